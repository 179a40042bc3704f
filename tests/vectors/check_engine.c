/* Every model of the vectors through cohort.h: all its prompts in one running batch, with what the model says of the
 * prompt and the greedy continuation, against the stored answers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cohort/cohort.h"
#include "expected.h"
#include "models.h"

struct answer {
    uint32_t prompt_n, greedy_n;
    int32_t greedy[EXPECTED_GREEDY_MAX];
    cohort_stats stats;
};

static void check_position(const struct expected *e, const struct expected_prompt *p, const cohort_event *event,
                           uint32_t n) {
    assert_int_equal(event->index, n);
    if ((double)p->gap[n] > 2 * e->loose_max) assert_int_equal(event->token, p->argmax[n]);
    if (n + 1 == p->n)
        assert_true(isnan(event->logprob));
    else
        assert_true(fabs((double)event->logprob - (double)p->next_logprob[n]) <= 2 * e->loose_max);
}

static void read_answer(cohort_engine *engine, cohort_id id, const struct expected *e, const struct expected_prompt *p,
                        struct answer *a) {
    cohort_event event = {0};
    while (event.type != COHORT_EVENT_FINISH) {
        assert_int_equal(cohort_wait(engine, id, 120000), COHORT_OK);
        if (cohort_next(engine, id, &event) != COHORT_OK) continue;
        if (event.type == COHORT_EVENT_PROMPT) check_position(e, p, &event, a->prompt_n++);
        if (event.type == COHORT_EVENT_TOKEN) a->greedy[a->greedy_n++] = event.token;
    }
    assert_int_equal(event.finish, COHORT_FINISH_LENGTH);
    a->stats = event.stats;
    cohort_drop(engine, id);
}

static cohort_id submit(cohort_engine *engine, const struct expected_prompt *p) {
    cohort_request q;
    cohort_ticket ticket;
    cohort_id id;
    cohort_error err;
    cohort_request_defaults(&q);
    q.prompt = p->ids;
    q.prompt_n = p->n;
    q.max_tokens = p->n_greedy;
    q.sampling.temperature = 0;
    q.prompt_logprobs = 1;
    q.ignore_eos = 1;
    assert_int_equal(cohort_reserve(engine, &ticket, &err), 0);
    if (cohort_submit(engine, ticket, &q, &id, &err)) fail_msg("%s: %s", err.field, err.text);
    return id;
}

/* Tokens of the stored continuation that came, up to the first that did not. A step that rounding may decide can change
 * what follows: only a step with a wide gap must be right. */
static uint32_t check_greedy(const struct expected *e, const struct expected_prompt *p, const struct answer *a) {
    uint32_t n = 0;
    while (n < p->n_greedy && a->greedy[n] == p->greedy[n]) n++;
    if (n < p->n_greedy && (double)p->greedy_gap[n] > 2 * e->loose_max)
        fail_msg("token %u is %d instead of %d, at a gap of %g", n, a->greedy[n], p->greedy[n],
                 (double)p->greedy_gap[n]);
    return n;
}

static void check_model(const char *folder) {
    struct expected e;
    char path[512];
    cohort_model *model;
    cohort_engine *engine;
    cohort_engine_options options;
    cohort_error err;
    cohort_id id[EXPECTED_PROMPTS_MAX];
    uint32_t positions = 0, greedy = 0, all = 0;
    expected_load(&e, folder);
    snprintf(path, sizeof(path), "%s/%s/model.gguf", expected_root(), folder);
    cohort_engine_options_defaults(&options);
    options.context = 512;
    options.batch_tokens = 32;
    if (cohort_model_open(path, NULL, &model, &err)) fail_msg("%s", err.text);
    if (cohort_engine_open(model, &options, &engine, &err)) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < e.n_prompts; i++) id[i] = submit(engine, &e.prompts[i]);
    for (uint32_t i = 0; i < e.n_prompts; i++) {
        struct answer a = {0};
        const struct expected_prompt *p = &e.prompts[i];
        read_answer(engine, id[i], &e, p, &a);
        assert_int_equal(a.prompt_n, p->n);
        assert_int_equal(a.stats.prompt_tokens, p->n);
        assert_int_equal(a.stats.generated_tokens, p->n_greedy);
        positions += a.prompt_n;
        greedy += check_greedy(&e, p, &a);
        all += p->n_greedy;
    }
    printf("  %-30s %u positions, %u of %u greedy tokens\n", folder, positions, greedy, all);
    /* The prompts of the float models were drawn so that float32 decides every step. */
    if (!strstr(folder, "quants/")) assert_int_equal(greedy, all);
    cohort_engine_close(engine, 0);
    cohort_model_close(model);
    expected_free(&e);
}

static void stored_answers_come_out_of_the_engine(void **state) {
    if (!expected_root()) skip();
    for (int i = 0; vectors_folders[i]; i++) check_model(vectors_folders[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stored_answers_come_out_of_the_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
