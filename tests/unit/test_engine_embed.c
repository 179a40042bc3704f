/* Embeddings through cohort.h. What is right is made from the definition: the vector of position i is that of the LAST
 * kind of the prompt's first i + 1 tokens, a mean is the chain over these in double. Whatever the chunks, the company,
 * the store, preemptions and readers, the bits are those of the request alone. Built twice, as test_engine.c is; what
 * the head makes of a vector is looked at with the real backend (test_engine_embed_head.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine_run.h"

#ifndef EMBED_FOLDERS
#define EMBED_FOLDERS "gemma3", "gemma2", "llama", "llama_quant", "qwen2", "qwen3", "phi3", "qwen3_5", "lfm2"
#endif

enum { LENGTH = 70, WIDTH_MAX = 1024, REQUESTS = 12, WRITTEN = 12, PROMPT_MAX = 400 };

static const char *const folders[] = {EMBED_FOLDERS};
static cohort_model *model;
static cohort_model_info info;

static int open_folder(const char *folder) {
    cohort_model_close(model);
    model = run_open_model(folder, NULL, 2);
    if (!model) return 0;
    cohort_model_get_info(model, &info);
    assert_true(info.embedding_width <= WIDTH_MAX);
    return 1;
}

static int close_model(void **state) {
    cohort_model_close(model);
    model = NULL;
    return 0;
}

static cohort_engine_options options(void) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = 16;
    o.queue = 64;
    return o;
}

static cohort_request embedding_of(const int32_t *ids, uint32_t n, cohort_pooling pooling) {
    cohort_request q;
    cohort_request_defaults(&q);
    q.prompt = ids;
    q.prompt_n = n;
    q.max_tokens = 0;
    q.pooling = pooling;
    q.sampling.has_seed = 1;
    return q;
}

static void copy_vector(const struct outcome *out, float *vector) {
    assert_int_equal(out->finish, COHORT_FINISH_STOP);
    assert_int_equal(out->embeddings_n, 1);
    assert_int_equal(out->embedding_n, info.embedding_width);
    assert_int_equal(out->ids_n + out->prompt_n, 0);
    memcpy(vector, out->events.data + out->embedding_at, info.embedding_width * sizeof(float));
}

static void embed(cohort_engine *engine, const int32_t *ids, uint32_t n, cohort_pooling pooling, float *vector) {
    struct outcome out;
    cohort_request q = embedding_of(ids, n, pooling);
    run_request(engine, &q, &out);
    copy_vector(&out, vector);
    assert_int_equal(out.stats.prompt_tokens, n);
    assert_int_equal(out.stats.generated_tokens, 0);
    outcome_free(&out);
}

static void check_kinds(const char *folder) {
    static float at[LENGTH][WIDTH_MAX], got[WIDTH_MAX];
    static const uint32_t lengths[] = {1, 2, 31, 33, LENGTH};
    int32_t ids[LENGTH];
    run_prompt(ids, LENGTH, info.vocab_size, 1);
    cohort_engine_options o = options();
    cohort_engine *engine = run_open_engine(model, &o);
    for (uint32_t i = 0; i < LENGTH; i++) embed(engine, ids, i + 1, COHORT_POOLING_LAST, at[i]);
    assert_memory_not_equal(at[0], at[1], info.embedding_width * sizeof(float));
    embed(engine, ids, LENGTH, COHORT_POOLING_CLS, got);
    assert_memory_equal(got, at[0], info.embedding_width * sizeof(float));
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        embed(engine, ids, lengths[l], COHORT_POOLING_MEAN, got);
        for (uint32_t c = 0; c < info.embedding_width; c++) {
            double sum = 0;
            for (uint32_t i = 0; i < lengths[l]; i++) sum += (double)at[i][c];
            float right = (float)(sum / lengths[l]);
            if (memcmp(&right, &got[c], sizeof right) != 0)
                fail_msg("%s: column %u of the mean of %u: %a, should be %a", folder, c, lengths[l], (double)got[c],
                         (double)right);
        }
    }
    run_close(0);
}

static void kinds_are_what_their_definitions_say(void **state) {
    int any = 0;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (!open_folder(folders[i])) continue;
        check_kinds(folders[i]);
        any = 1;
    }
    if (!any) skip();
}

/* ---- Company ---- */
static int32_t prompts[2 * REQUESTS][PROMPT_MAX];
static struct outcome solo[REQUESTS];

/* Some begin alike, so that there is something to take from the store. */
static cohort_request make_request(uint32_t i) {
    static const uint32_t lengths[REQUESTS / 3] = {1, 33, 130, 300};
    uint32_t n = lengths[i / 3];
    run_prompt(prompts[i], n, info.vocab_size, i / 6);
    return embedding_of(prompts[i], n, (cohort_pooling)(COHORT_POOLING_MEAN + i % 3));
}

static cohort_request make_company(uint32_t i, uint32_t max_tokens) {
    cohort_request q;
    int32_t *ids = prompts[REQUESTS + i];
    cohort_request_defaults(&q);
    run_prompt(ids, 20 + 13 * i, info.vocab_size, i % 2);
    q.prompt = ids;
    q.prompt_n = 20 + 13 * i;
    q.max_tokens = max_tokens;
    q.ignore_eos = 1;
    q.prompt_logprobs = i % 4 == 3;
    return q;
}

static void run_solo(void) {
    cohort_engine_options o = options();
    o.rows = 1;
    o.pipeline = 0;
    o.cache = 0;
    cohort_engine *engine = run_open_engine(model, &o);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        cohort_request q = make_request(i);
        run_request(engine, &q, &solo[i]);
        assert_int_equal(solo[i].embeddings_n, 1);
    }
    run_close(0);
}

static void free_solo(void) {
    for (uint32_t i = 0; i < REQUESTS; i++) outcome_free(&solo[i]);
}

/* Twice, so that the second time meets what the first left in the store. Returns how much was found there. */
static uint32_t run_company(const cohort_engine_options *o) {
    static struct outcome got;
    cohort_id id[REQUESTS], other[REQUESTS];
    uint32_t cached = 0;
    cohort_engine *engine = run_open_engine(model, o);
    for (int time = 0; time < 2; time++) {
        for (uint32_t i = 0; i < REQUESTS; i++) {
            cohort_request q = make_company(i, WRITTEN);
            other[i] = run_submit(engine, &q);
            q = make_request(i);
            id[i] = run_submit(engine, &q);
        }
        for (uint32_t i = 0; i < REQUESTS; i++) {
            memset(&got, 0, sizeof got);
            run_finish(engine, id[i], &got);
            outcome_assert_equal(&got, &solo[i], "an embedding in company");
            if (i % 3 == 2)
                cached += got.stats.cached_tokens;
            else
                assert_int_equal(got.stats.cached_tokens, 0);
            outcome_free(&got);
        }
        for (uint32_t i = 0; i < REQUESTS; i++) {
            memset(&got, 0, sizeof got);
            run_finish(engine, other[i], &got);
            assert_int_equal(got.ids_n, WRITTEN);
            outcome_free(&got);
        }
    }
    run_close(0);
    return cached;
}

static void company_chunks_and_store_change_nothing(void **state) {
    static const uint32_t budgets[] = {1, 7, 512};
    if (!open_folder("gemma3")) skip();
    run_solo();
    for (int way = 0; way < 12; way++) {
        cohort_engine_options o = options();
        o.batch_tokens = budgets[way % 3];
        if (budgets[way % 3] == 1) o.rows = 1; /* else it would be raised */
        o.cache = way / 3 % 2;
        o.pipeline = way / 6;
        assert_int_equal(run_company(&o) > 0, o.cache);
    }
    free_solo();
}

/* Two rows write until they want more room, and have it from an embedding that has read a third of its prompt. */
static void preempt(const cohort_engine_options *o, uint32_t which) {
    static struct outcome got;
    cohort_id id, other[2];
    cohort_engine *engine = run_open_engine(model, o);
    cohort_engine_hold(engine, 1);
    for (uint32_t i = 0; i < 2; i++) {
        cohort_request q = make_company(i, 400);
        other[i] = run_submit(engine, &q);
    }
    cohort_request q = make_request(which);
    q.chunk_max = 1;
    q.priority = COHORT_PRIORITY_MAX;
    id = run_submit(engine, &q);
    cohort_engine_hold(engine, 0);
    memset(&got, 0, sizeof got);
    run_finish(engine, id, &got);
    outcome_assert_equal(&got, &solo[which], "a preempted embedding");
    assert_true(got.stats.preemptions > 0 && got.stats.redone_tokens > 0);
    outcome_free(&got);
    for (uint32_t i = 0; i < 2; i++) {
        memset(&got, 0, sizeof got);
        run_finish(engine, other[i], &got);
        outcome_free(&got);
    }
    run_close(0);
}

/* No position counts twice in a mean of which something is read again, and none is left out. */
static void preempted_embeddings_are_exact(void **state) {
    if (!open_folder("gemma3")) skip();
    run_solo();
    for (int way = 0; way < 8; way++) {
        cohort_engine_options o = options();
        o.kv_tokens = 26 * 32;
        o.pipeline = way % 2;
        o.cache = way / 2 % 2;
        preempt(&o, REQUESTS - (way / 4 ? 1 : 3)); /* the last position's, and the mean */
    }
    free_solo();
}

/* ---- Ends ---- */
static void refused(cohort_engine *engine, const cohort_request *q, int code, const char *field) {
    cohort_ticket ticket;
    cohort_id id;
    cohort_error err = {0};
    assert_int_equal(cohort_reserve(engine, &ticket, &err), 0);
    assert_int_equal(cohort_submit(engine, ticket, q, &id, &err), code);
    assert_string_equal(err.field, field);
}

static void what_cannot_be_is_refused(void **state) {
    if (!open_folder("gemma3")) skip();
    cohort_engine_options o = options();
    cohort_engine *engine = run_open_engine(model, &o);
    static int32_t ids[513];
    run_prompt(ids, 513, info.vocab_size, 1);
    cohort_request q = embedding_of(ids, 9, COHORT_POOLING_MEAN);
    q.max_tokens = 1;
    refused(engine, &q, COHORT_E_ARGUMENT, "max_tokens");
    q = embedding_of(ids, 9, COHORT_POOLING_LAST);
    q.prompt_logprobs = 1;
    refused(engine, &q, COHORT_E_ARGUMENT, "prompt_logprobs");
    q = embedding_of(ids, 9, (cohort_pooling)4);
    refused(engine, &q, COHORT_E_ARGUMENT, "pooling");
    q = embedding_of(ids, 0, COHORT_POOLING_CLS);
    refused(engine, &q, COHORT_E_ARGUMENT, "prompt");
    q = embedding_of(ids, 9, COHORT_POOLING_NONE);
    refused(engine, &q, COHORT_E_ARGUMENT, "max_tokens");
    q = embedding_of(ids, 9, COHORT_POOLING_LAST);
    const cohort_saved_token saved = {.token = 12};
    q.resume = &saved;
    q.resume_n = 1;
    refused(engine, &q, COHORT_E_ARGUMENT, "resume");
    for (int kind = COHORT_POOLING_MEAN; kind <= COHORT_POOLING_LAST; kind++) { /* the whole prompt is checked */
        q = embedding_of(ids, 513, (cohort_pooling)kind);
        refused(engine, &q, COHORT_E_CONTEXT, "prompt");
        int32_t saved_id = ids[400];
        ids[400] = (int32_t)info.vocab_size;
        q = embedding_of(ids, 512, (cohort_pooling)kind);
        refused(engine, &q, COHORT_E_ARGUMENT, "prompt");
        ids[400] = saved_id;
        float vector[WIDTH_MAX];
        embed(engine, ids, 512, (cohort_pooling)kind, vector); /* nothing needs room behind it */
    }
    uint32_t cuts[] = {1, 40};
    q = embedding_of(ids, 50, COHORT_POOLING_CLS);
    q.snapshot_at = cuts;
    q.snapshot_at_n = 2;
    struct outcome out;
    run_request(engine, &q, &out);
    assert_int_equal(out.finish, COHORT_FINISH_STOP);
    outcome_free(&out);
    run_close(0);
}

static void cancelled_and_dropped_ones_leave_nothing(void **state) {
    if (!open_folder("gemma3")) skip();
    cohort_engine_options o = options();
    o.batch_tokens = 16;
    cohort_engine *engine = run_open_engine(model, &o);
    for (uint32_t i = 0; i < 30; i++) {
        cohort_request q = make_request(i % REQUESTS);
        cohort_id id = run_submit(engine, &q);
        usleep(i * 100);
        if (i % 2) {
            cohort_drop(engine, id);
            continue;
        }
        cohort_cancel(engine, id);
        struct outcome out = {0};
        run_finish(engine, id, &out);
        assert_int_equal(out.embeddings_n, out.finish == COHORT_FINISH_STOP);
        if (!out.embeddings_n) assert_int_equal(out.finish, COHORT_FINISH_CANCELLED);
        outcome_free(&out);
    }
    cohort_metrics m;
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.kv_pages_used == 0 && m.rows_running + m.rows_preparing == 0));
    run_close(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(kinds_are_what_their_definitions_say, run_close_engine),
        cmocka_unit_test_teardown(company_chunks_and_store_change_nothing, run_close_engine),
        cmocka_unit_test_teardown(preempted_embeddings_are_exact, run_close_engine),
        cmocka_unit_test_teardown(what_cannot_be_is_refused, run_close_engine),
        cmocka_unit_test_teardown(cancelled_and_dropped_ones_leave_nothing, run_close_engine),
    };
    return cmocka_run_group_tests(tests, NULL, close_model);
}
