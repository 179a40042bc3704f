/* What an embedding is made of is what the head reads: its products with the head's rows, widened from the file, are
 * the logits whose log-probabilities the engine tells of the same position. One thread; skips without the vectors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/pack.h"
#include "engine_run.h"
#include "format/gguf.h"
#include "model/model.h"

enum { LENGTH = 40, WIDTH_MAX = 1024 };

/* softcap(head * x), in double; log_sum: of their exponentials. */
static double *logits_of(const struct program *p, const float *x, double *log_sum) {
    const struct op *op = &p->ops[p->n_ops - 1];
    const struct program_tensor *head = &p->tensors[op->tensor];
    static float row[WIDTH_MAX];
    double *logits = calloc(p->vocab, sizeof *logits), max = -INFINITY, sum = 0;
    assert_non_null(logits);
    for (uint32_t r = 0; r < p->vocab; r++) {
        dequant_row(head->type, head->data, r, head->cols, row);
        for (uint32_t c = 0; c < head->cols; c++) logits[r] += (double)row[c] * (double)x[c];
        if (op->softcap != 0) logits[r] = (double)op->softcap * tanh(logits[r] / (double)op->softcap);
        max = logits[r] > max ? logits[r] : max;
    }
    for (uint32_t r = 0; r < p->vocab; r++) sum += exp(logits[r] - max);
    *log_sum = max + log(sum);
    return logits;
}

/* The last PROMPT event's list of a request. */
static uint32_t score(cohort_engine *engine, cohort_request *q, cohort_logprob *top) {
    cohort_event event;
    uint32_t n = 0;
    cohort_id id = run_submit(engine, q);
    do {
        while (cohort_wait(engine, id, 1000) != COHORT_OK) continue;
        assert_int_equal(cohort_next(engine, id, &event), COHORT_OK);
        if (event.type == COHORT_EVENT_PROMPT) memcpy(top, event.top, (n = event.top_n) * sizeof *top);
    } while (event.type != COHORT_EVENT_FINISH);
    cohort_drop(engine, id);
    return n;
}

static double largest_error(cohort_model *model, const struct program *p) {
    cohort_model_info info;
    cohort_engine_options o;
    int32_t ids[LENGTH];
    cohort_model_get_info(model, &info);
    assert_true(info.embedding_width <= WIDTH_MAX);
    cohort_engine_options_defaults(&o);
    o.context = 512;
    cohort_engine *engine = run_open_engine(model, &o);
    run_prompt(ids, LENGTH, info.vocab_size, 3);
    double error = 0;
    for (uint32_t n = 1; n <= LENGTH; n += 13) {
        cohort_request q;
        cohort_request_defaults(&q);
        q.prompt = ids;
        q.prompt_n = n;
        q.max_tokens = 0;
        q.pooling = COHORT_POOLING_LAST;
        struct outcome out;
        run_request(engine, &q, &out);
        float x[WIDTH_MAX];
        assert_int_equal(out.embedding_n, info.embedding_width);
        memcpy(x, out.events.data + out.embedding_at, out.embedding_n * sizeof x[0]);
        outcome_free(&out);
        q.pooling = COHORT_POOLING_NONE;
        q.prompt_logprobs = 1;
        q.logprobs = COHORT_TOP_LOGPROBS_MAX;
        cohort_logprob top[COHORT_TOP_LOGPROBS_MAX];
        uint32_t top_n = score(engine, &q, top);
        assert_int_equal(top_n, COHORT_TOP_LOGPROBS_MAX);
        double log_sum, *logits = logits_of(p, x, &log_sum);
        for (uint32_t i = 0; i < top_n; i++)
            error = fmax(error, fabs(logits[top[i].id] - log_sum - (double)top[i].logprob));
        free(logits);
    }
    run_close(0);
    return error;
}

static void the_head_makes_logits_of_it(void **state) {
    static const char *const folders[] = {"gemma3", "gemma2", "llama", "qwen3", "qwen3_5", "lfm2", "phi3"};
    int any = 0;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        cohort_model *model = run_open_model(folders[i], NULL, 2);
        if (!model) continue;
        any = 1;
        cohort_model_info info;
        cohort_model_get_info(model, &info);
        struct model_file *file;
        struct model *built;
        char path[4096];
        run_model_path(folders[i], path);
        assert_int_equal(model_file_open(path, &file, NULL), 0);
        assert_int_equal(model_build(file, info.vocab_size, &built, NULL), 0);
        double error = largest_error(model, model_program(built));
        print_message("%s: log-probabilities differ by %.2g\n", folders[i], error);
        assert_true(error < 1e-4);
        model_free(built);
        model_file_close(file);
        cohort_model_close(model);
    }
    if (!any) skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_head_makes_logits_of_it, run_close_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
