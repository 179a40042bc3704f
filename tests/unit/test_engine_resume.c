/* Continuations (T2, T3) on the fake backend: a request that is given again with the tokens that it was given before,
 * cut anywhere, tells all events that the uninterrupted run told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_model.h"

enum { PROMPT_N = 45, TOKENS = 70, TOP = 3 };

static int32_t prompt[PROMPT_N];
static cohort_saved_token saved[TOKENS];
static cohort_logprob tops[TOKENS][COHORT_TOP_LOGPROBS_MAX];
static uint32_t saved_n;

static cohort_engine *open_engine(uint32_t ring_bytes, int pipeline) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 1024;
    o.rows = 4;
    o.batch_tokens = 24;
    o.kv_tokens = 4096;
    o.pipeline = pipeline;
    if (ring_bytes) o.ring_bytes = ring_bytes;
    return run_open_engine(model, &o);
}

static void make_request(cohort_request *q) {
    cohort_request_defaults(q);
    run_prompt(prompt, PROMPT_N, info.vocab_size, 3);
    q->prompt = prompt;
    q->prompt_n = PROMPT_N;
    q->max_tokens = TOKENS;
    q->sampling.temperature = 0.9f;
    q->sampling.seed = 11;
    q->sampling.has_seed = 1;
    q->logprobs = TOP;
    q->ignore_eos = 1;
}

/* The solo run, and its tokens as a journal would keep them. */
static void run_and_save(cohort_engine *engine, const cohort_request *q, struct outcome *want) {
    cohort_id id = run_submit(engine, q);
    cohort_event e;
    saved_n = 0;
    for (;;) {
        int code = cohort_next(engine, id, &e);
        if (code == COHORT_E_AGAIN) {
            assert_int_equal(cohort_wait(engine, id, 60000), COHORT_OK);
            continue;
        }
        assert_int_equal(code, COHORT_OK);
        if (e.type == COHORT_EVENT_FINISH) break;
        memcpy(tops[saved_n], e.top, e.top_n * sizeof(*e.top));
        saved[saved_n] =
            (cohort_saved_token){.token = e.token, .logprob = e.logprob, .top_n = e.top_n, .top = tops[saved_n]};
        saved_n++;
    }
    cohort_drop(engine, id);
    run_request(engine, q, want);
    assert_int_equal(want->ids_n, saved_n);
}

static void assert_resumes_everywhere(uint32_t ring_bytes, int pipeline, const cohort_request *q) {
    struct outcome want, got;
    cohort_engine *engine = open_engine(ring_bytes, pipeline);
    run_and_save(engine, q, &want);
    for (int cached = 0; cached < 2; cached++)
        for (uint32_t k = 0; k <= saved_n; k += k < 4 || k + 4 > saved_n ? 1 : 3) {
            cohort_request again = *q;
            again.resume = saved;
            again.resume_n = k;
            again.cache_prompt = cached;
            run_request(engine, &again, &got);
            outcome_assert_equal(&got, &want, "a continuation");
            assert_int_equal(got.stats.generated_tokens, want.stats.generated_tokens);
            outcome_free(&got);
        }
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    assert_true(m.requests_resumed >= 2);
    outcome_free(&want);
    run_close(0);
}

static void test_T2_a_continuation_equals_the_whole(void **state) {
    NEEDS_MODEL;
    cohort_request q;
    make_request(&q);
    for (int pipeline = 0; pipeline < 2; pipeline++) assert_resumes_everywhere(0, pipeline, &q);
}

/* More is replayed than the ring holds, so it waits for its reader in between. */
static void test_T2_a_replay_longer_than_the_ring(void **state) {
    NEEDS_MODEL;
    cohort_request q;
    make_request(&q);
    q.logprobs = COHORT_TOP_LOGPROBS_MAX;
    assert_resumes_everywhere(1, 1, &q);
}

static void test_T2_stops_still_stop(void **state) {
    NEEDS_MODEL;
    struct outcome whole;
    cohort_request q;
    make_request(&q);
    cohort_engine *engine = open_engine(0, 1);
    run_request(engine, &q, &whole);
    run_close(0);
    /* Something that the text really has, near its end. */
    char stop[4] = {0};
    assert_true(whole.text.len > 40);
    size_t at = whole.text.len - 20;
    while ((whole.text.data[at] & 0xC0) == 0x80) at++;
    size_t n = 1;
    while ((whole.text.data[at + n] & 0xC0) == 0x80) n++;
    assert_true(n < sizeof(stop));
    memcpy(stop, whole.text.data + at, n);
    const cohort_span span = {stop, n};
    q.stops = &span;
    q.stops_n = 1;
    assert_resumes_everywhere(0, 1, &q);
    outcome_free(&whole);
}

static void assert_fails(cohort_engine *engine, const cohort_request *q, const char *what) {
    struct outcome got;
    run_request(engine, q, &got);
    if (got.finish != COHORT_FINISH_ERROR || got.error != COHORT_E_ARGUMENT)
        fail_msg("%s: finish %d, error %d", what, got.finish, got.error);
    outcome_free(&got);
}

/* T2: a stop inside what is replayed is an error, not a silent end. */
static void test_T2_what_cannot_have_been_is_an_error(void **state) {
    NEEDS_MODEL;
    struct outcome want;
    cohort_request q;
    make_request(&q);
    cohort_engine *engine = open_engine(0, 1);
    run_and_save(engine, &q, &want);
    q.resume = saved;
    q.resume_n = 20;
    const int32_t stop_id = saved[7].token;
    q.stop_ids = &stop_id;
    q.stop_ids_n = 1;
    assert_fails(engine, &q, "an end inside");
    q.resume_n = 8;
    for (uint32_t i = 0; i < 7; i++) assert_int_not_equal(saved[i].token, stop_id);
    assert_fails(engine, &q, "an end as the last one");
    q.stop_ids_n = 0;

    cohort_ticket ticket;
    cohort_id id;
    cohort_error err;
    struct {
        uint32_t max_tokens;
        size_t resume_n;
        int32_t token;
        int prompt_logprobs, code;
    } const bad[] = {{10, 11, 0, 0, COHORT_E_ARGUMENT},
                     {TOKENS, 5, (int32_t)info.vocab_size, 0, COHORT_E_ARGUMENT},
                     {TOKENS, 5, -1, 0, COHORT_E_ARGUMENT},
                     {TOKENS, 5, 0, 1, COHORT_E_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int32_t keep = saved[3].token;
        if (bad[i].token) saved[3].token = bad[i].token;
        q.max_tokens = bad[i].max_tokens;
        q.resume_n = bad[i].resume_n;
        q.prompt_logprobs = bad[i].prompt_logprobs;
        assert_int_equal(cohort_reserve(engine, &ticket, &err), 0);
        assert_int_equal(cohort_submit(engine, ticket, &q, &id, &err), bad[i].code);
        assert_string_equal(err.field, "resume");
        saved[3].token = keep;
    }
    outcome_free(&want);
    run_close(0);
}

/* A reader that does not come: the row waits with its replay half told, and can be cancelled. */
static void test_T3_a_waiting_replay_ends_alone(void **state) {
    NEEDS_MODEL;
    struct outcome want, other, got = {0};
    cohort_request q;
    make_request(&q);
    q.logprobs = COHORT_TOP_LOGPROBS_MAX;
    cohort_engine *engine = open_engine(1, 1);
    run_and_save(engine, &q, &want);
    q.resume = saved;
    q.resume_n = saved_n - 1;
    cohort_id id = run_submit(engine, &q);
    q.resume_n = 0;
    run_request(engine, &q, &other);
    outcome_assert_equal(&other, &want, "beside a replay that waits");
    cohort_cancel(engine, id);
    run_finish(engine, id, &got);
    assert_int_equal(got.finish, COHORT_FINISH_CANCELLED);
    assert_true(got.ids_n < saved_n);
    assert_memory_equal(got.ids, want.ids, got.ids_n * sizeof(*got.ids));
    RUN_UNTIL(cohort_engine_idle(engine));
    outcome_free(&want);
    outcome_free(&other);
    outcome_free(&got);
    run_close(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_T2_a_continuation_equals_the_whole, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(test_T2_a_replay_longer_than_the_ring, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(test_T2_stops_still_stop, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(test_T2_what_cannot_have_been_is_an_error, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(test_T3_a_waiting_replay_ends_alone, reset, run_close_engine),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
