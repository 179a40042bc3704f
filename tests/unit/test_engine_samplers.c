/* Samplers in the engine on the fake backend: rows that differ in all of them alone and together, preempted, continued
 * anywhere; and what only the engine does for them: ends that wait for a number of tokens, stop strings that stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fake_model.h"
#include "sampler_mix.h"

enum { TOKENS = 200, PROMPT_MOST = 120, ROUNDS = 20 };

static int32_t prompts[SAMPLER_MIXES][PROMPT_MOST];

static cohort_engine *open_engine(uint32_t rows, uint64_t kv_tokens, int pipeline) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = rows;
    o.queue = 64;
    o.batch_tokens = 48;
    o.kv_tokens = kv_tokens;
    o.pipeline = pipeline;
    return run_open_engine(model, &o);
}

static void make_request(uint32_t i, cohort_request *q) {
    cohort_request_defaults(q);
    q->prompt = prompts[i];
    q->prompt_n = 5 + 7 * i;
    run_prompt(prompts[i], (uint32_t)q->prompt_n, i % 2 ? 60 : info.vocab_size, 40 + i);
    q->max_tokens = TOKENS;
    q->sampling.seed = 70 + i;
    q->sampling.has_seed = 1;
    q->sampling.choice = i % 3;
    q->logprobs = (int)(i % 7) - 1;
    q->ignore_eos = 1;
    sampler_mix(i, info.vocab_size, q);
}

static struct outcome solo[SAMPLER_MIXES];

static void run_solo(void) {
    cohort_engine *engine = open_engine(1, 4096, 0);
    for (uint32_t i = 0; i < SAMPLER_MIXES; i++) {
        cohort_request q;
        make_request(i, &q);
        run_request(engine, &q, &solo[i]);
        assert_true(solo[i].ids_n > 5);
    }
    run_close(0);
}

static void free_solo(void) {
    for (uint32_t i = 0; i < SAMPLER_MIXES; i++) outcome_free(&solo[i]);
}

/* All at once, beside others that are cancelled; how often rows were preempted. */
static uint32_t run_company(cohort_engine *engine, uint64_t seed) {
    cohort_id ids[SAMPLER_MIXES], noise[SAMPLER_MIXES];
    uint32_t preemptions = 0;
    struct outcome got = {0};
    for (uint32_t i = 0; i < SAMPLER_MIXES; i++) {
        cohort_request q;
        uint32_t at = (uint32_t)((i + seed) % SAMPLER_MIXES);
        make_request((at + 5) % SAMPLER_MIXES, &q);
        noise[at] = run_submit(engine, &q);
        make_request(at, &q);
        ids[at] = run_submit(engine, &q);
        usleep((useconds_t)(rng_u64(seed, 5, i) % 300));
        if (i % 2) cohort_cancel(engine, noise[at]);
    }
    for (uint32_t i = 0; i < SAMPLER_MIXES; i++) {
        char what[32];
        memset(&got, 0, sizeof(got));
        run_finish(engine, ids[i], &got);
        snprintf(what, sizeof(what), "mix %u", i);
        outcome_assert_equal(&solo[i], &got, what);
        preemptions += got.stats.preemptions;
        outcome_free(&got);
        memset(&got, 0, sizeof(got));
        run_finish(engine, noise[i], &got);
        outcome_free(&got);
    }
    return preemptions;
}

static void test_company_changes_nothing(void **state) {
    NEEDS_MODEL;
    uint32_t preemptions = 0;
    run_solo();
    for (int tight = 0; tight < 2; tight++)
        for (int pipeline = 0; pipeline < 2; pipeline++) {
            cohort_engine *engine = open_engine(SAMPLER_MIXES, tight ? 640 : 8192, pipeline);
            for (uint64_t round = 0; round < ROUNDS / 4; round++) preemptions += run_company(engine, round);
            run_close(0);
        }
    assert_true(preemptions > 0);
    free_solo();
}

/* ---- Continuations ---- */
static cohort_saved_token saved[TOKENS];
static cohort_logprob tops[TOKENS][COHORT_TOP_LOGPROBS_MAX];

static uint32_t save(cohort_engine *engine, const cohort_request *q) {
    cohort_id id = run_submit(engine, q);
    cohort_event e;
    uint32_t n = 0;
    for (;;) {
        int code = cohort_next(engine, id, &e);
        if (code == COHORT_E_AGAIN) {
            assert_int_equal(cohort_wait(engine, id, 60000), COHORT_OK);
            continue;
        }
        assert_int_equal(code, COHORT_OK);
        if (e.type == COHORT_EVENT_FINISH) break;
        memcpy(tops[n], e.top, e.top_n * sizeof(*e.top));
        saved[n] = (cohort_saved_token){e.token, e.logprob, e.sampler_state, e.top_n, tops[n]};
        n++;
    }
    cohort_drop(engine, id);
    return n;
}

static void test_continuations_equal_the_whole(void **state) {
    NEEDS_MODEL;
    run_solo();
    cohort_engine *engine = open_engine(4, 4096, 1);
    for (uint32_t i = 0; i < SAMPLER_MIXES; i++) {
        cohort_request q;
        struct outcome got;
        make_request(i, &q);
        uint32_t n = save(engine, &q);
        assert_int_equal(n, solo[i].ids_n);
        q.resume = saved;
        for (uint32_t k = 1; k < n; k += 1 + k % 23) {
            q.resume_n = k;
            run_request(engine, &q, &got);
            outcome_assert_equal(&solo[i], &got, "a continuation");
            outcome_free(&got);
        }
    }
    run_close(0);
    free_solo();
}

/* A continuation that had another state goes on otherwise: it is that state that carries it. */
static void test_mirostat_goes_on_from_the_saved_state(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 4096, 1);
    cohort_request q;
    struct outcome want, got;
    make_request(9, &q);
    q.logprobs = -1;
    assert_true(save(engine, &q) == TOKENS);
    q.resume = saved;
    q.resume_n = 10;
    run_request(engine, &q, &want);
    assert_true(saved[0].sampler_state != 0 && saved[0].sampler_state != saved[1].sampler_state);
    saved[9].sampler_state = -5;
    run_request(engine, &q, &got);
    assert_int_equal(got.ids_n, TOKENS);
    assert_memory_not_equal(got.ids, want.ids, TOKENS * sizeof(*got.ids));
    outcome_free(&want);
    outcome_free(&got);
    run_close(0);
}

/* ---- Ends ---- */
static void test_min_tokens_holds_ends_back(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 4096, 1);
    cohort_request q;
    struct outcome got;
    fake_backend.end = info.eos;
    uint32_t earlier = 0;
    for (uint32_t seed = 0; seed < 20; seed++) {
        make_request(0, &q);
        q.sampling.seed = seed;
        q.ignore_eos = 0;
        run_request(engine, &q, &got);
        earlier += got.finish == COHORT_FINISH_STOP && got.ids_n < 25;
        outcome_free(&got);
        q.min_tokens = 25;
        run_request(engine, &q, &got);
        assert_true(got.ids_n >= 25);
        for (uint32_t i = 0; i < got.ids_n; i++) assert_int_not_equal(got.ids[i], info.eos);
        outcome_free(&got);
    }
    assert_true(earlier > 0);
    run_close(0);
}

/* The text of an answer's first tokens, to find stop strings in. */
static void test_stop_strings_wait_and_stay(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 4096, 1);
    cohort_request q;
    struct outcome whole, got;
    make_request(0, &q);
    run_request(engine, &q, &whole);
    assert_int_equal(whole.ids_n, TOKENS);
    const cohort_span stop = {"e", 1}; /* in nearly every token of this vocabulary's text */
    const char *first = memchr(whole.text.data, 'e', whole.text.len);
    assert_non_null(first);
    size_t before = (size_t)(first - whole.text.data);
    q.stops = &stop;
    q.stops_n = 1;
    run_request(engine, &q, &got);
    assert_int_equal(got.stop_index, 0);
    assert_int_equal(got.text.len, before);
    uint32_t n = got.ids_n;
    outcome_free(&got);
    q.include_stop = 1;
    run_request(engine, &q, &got);
    assert_int_equal(got.text.len, before + 1);
    assert_memory_equal(got.text.data, whole.text.data, before + 1);
    assert_int_equal(got.ids_n, n);
    outcome_free(&got);
    q.min_tokens = n; /* with its own token it counts, one later it does not */
    run_request(engine, &q, &got);
    assert_int_equal(got.ids_n, n);
    outcome_free(&got);
    q.min_tokens = n + 1;
    run_request(engine, &q, &got);
    assert_true(got.ids_n > n && got.text.len > before + 1);
    assert_memory_equal(got.text.data, whole.text.data, got.text.len);
    outcome_free(&got);
    outcome_free(&whole);
    run_close(0);
}

/* ---- Refusals ---- */
static void expect_refusal(cohort_engine *engine, const cohort_request *q, const char *field) {
    cohort_ticket ticket;
    cohort_id id;
    cohort_error err = {0};
    assert_int_equal(cohort_reserve(engine, &ticket, &err), 0);
    assert_int_equal(cohort_submit(engine, ticket, q, &id, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, field);
}

static void test_what_is_wrong_is_refused_by_name(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 4096, 1);
    const int32_t twice[] = {5, 6, 5}, beyond[] = {(int32_t)info.vocab_size};
    const cohort_bias bias = {(int32_t)info.vocab_size, 1};
    const cohort_ids banned = {beyond, 1};
    const cohort_saved_token odd = {.token = 3, .sampler_state = __builtin_nanf("")};
    cohort_request q;
#define REFUSED(name, ...)                                                                                             \
    do {                                                                                                               \
        make_request(0, &q);                                                                                           \
        __VA_ARGS__;                                                                                                   \
        expect_refusal(engine, &q, name);                                                                              \
    } while (0)
    REFUSED("typical_p", q.sampling.typical_p = 2);
    REFUSED("biases", q.biases = &bias, q.biases_n = 1);
    REFUSED("allowed_ids", q.allowed_ids = beyond, q.allowed_ids_n = 1);
    REFUSED("allowed_ids", q.allowed_ids = twice, q.allowed_ids_n = 3);
    REFUSED("banned", q.banned = &banned, q.banned_n = 1);
    REFUSED("include_stop", q.include_stop = 2);
    REFUSED("post_sampling", q.post_sampling = -1);
    REFUSED("min_tokens", q.min_tokens = TOKENS + 1);
    REFUSED("resume", q.resume = &odd, q.resume_n = 1);
    /* Nothing can be drawn: the row fails alone. */
    struct outcome got;
    make_request(0, &q);
    q.allowed_ids = twice;
    q.allowed_ids_n = 1;
    q.stop_ids = twice;
    q.stop_ids_n = 1;
    q.min_tokens = 5;
    run_request(engine, &q, &got);
    assert_int_equal(got.finish, COHORT_FINISH_ERROR);
    assert_int_equal(got.error, COHORT_E_ARGUMENT);
    outcome_free(&got);
    run_close(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_company_changes_nothing, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(test_continuations_equal_the_whole, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(test_mirostat_goes_on_from_the_saved_state, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(test_min_tokens_holds_ends_back, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(test_stop_strings_wait_and_stay, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(test_what_is_wrong_is_refused_by_name, reset, run_close_engine),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
