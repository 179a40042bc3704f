/* The engine through cohort.h on a tiny model: same bytes in any company, stops, budgets, places, cancelling, readers
 * that do not read, closing. Built twice: with the real backend, and with one without arithmetic (fake_backend.h),
 * which mistakes of bookkeeping cannot survive. Faults are in test_engine_faults.c. */
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "engine_run.h"

#ifndef ENGINE_TEST_FOLDER
#define ENGINE_TEST_FOLDER "gemma3" /* windowed and full layers */
#endif

enum { COMPANY = 12 };

static cohort_model *model;
static cohort_model_info info;

static int open_model(void **state) {
    model = run_open_model(ENGINE_TEST_FOLDER, NULL, 0);
    if (model) cohort_model_get_info(model, &info);
    return 0;
}

static int close_model(void **state) {
    cohort_model_close(model);
    model = NULL;
    return 0;
}

#define NEEDS_MODEL                                                                                                    \
    if (!model) skip()

static cohort_engine_options options(void) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = COMPANY;
    o.queue = 32;
    return o;
}

static int32_t prompts[COMPANY][512];
static const char *const stop_texts[] = {"e", "qq", "zzzz"};

/* Request number i of the company: each unlike the others in length, sampling, seed, log-probabilities and stops. */
static void make_request(uint32_t i, cohort_request *q) {
    static const uint32_t lengths[] = {1, 7, 33, 130, 2, 64, 31, 32, 90, 5, 3, 200};
    static cohort_span stops[2];
    cohort_request_defaults(q);
    q->prompt = prompts[i];
    q->prompt_n = lengths[i];
    run_prompt(prompts[i], lengths[i], info.vocab_size, 100 + i);
    q->max_tokens = 20 + 3 * i;
    q->sampling.temperature = i % 3 ? 0.8f * (float)(i % 3) : 0;
    q->sampling.top_k = i % 4 == 1 ? 20 : 0;
    q->sampling.top_p = i % 5 == 2 ? 0.9f : 1;
    q->sampling.min_p = i % 7 == 3 ? 0.05f : 0;
    q->sampling.seed = 1000 + i;
    q->sampling.has_seed = 1;
    q->sampling.choice = i % 2;
    q->logprobs = (int)(i % 4) - 1;
    q->prompt_logprobs = i % 6 == 3;
    q->ignore_eos = i % 2;
    if (i % 6 == 4) {
        stops[0] = (cohort_span){stop_texts[0], 1};
        stops[1] = (cohort_span){stop_texts[1], 2};
        q->stops = stops;
        q->stops_n = 2;
    }
}

static struct outcome solo[COMPANY];

static void free_solo(void) {
    for (int i = 0; i < COMPANY; i++) outcome_free(&solo[i]);
    memset(solo, 0, sizeof(solo));
}

static void run_solo(void) {
    cohort_engine_options o = options();
    o.rows = 1;
    o.pipeline = 0;
    cohort_engine *engine = run_open_engine(model, &o);
    for (uint32_t i = 0; i < COMPANY; i++) {
        cohort_request q;
        make_request(i, &q);
        run_request(engine, &q, &solo[i]);
        assert_int_equal(solo[i].stats.prompt_tokens, q.prompt_n);
        assert_int_equal(solo[i].stats.seed, 1000 + i);
        if (solo[i].finish == COHORT_FINISH_LENGTH) assert_int_equal(solo[i].ids_n, q.max_tokens);
        assert_true(solo[i].ids_n > 0);
        assert_int_equal(solo[i].prompt_n, q.prompt_logprobs ? q.prompt_n : 0);
    }
    run_close(1000);
}

/* All at once, joining at random moments, while other requests come and are cancelled. */
static void run_company(const cohort_engine_options *o, uint64_t seed, const char *what) {
    cohort_engine *engine = run_open_engine(model, o);
    static struct outcome out[COMPANY];
    cohort_id id[COMPANY], noise[COMPANY];
    memset(out, 0, sizeof(out));
    for (uint32_t i = 0; i < COMPANY; i++) {
        cohort_request q;
        uint32_t other = (i + (uint32_t)seed) % COMPANY;
        make_request(other, &q);
        noise[i] = run_submit(engine, &q);
        make_request(i, &q);
        id[i] = run_submit(engine, &q);
        usleep((useconds_t)(rng_u64(seed, 5, i) % 2000));
        cohort_cancel(engine, noise[i]);
    }
    for (uint32_t i = 0; i < COMPANY; i++) {
        struct outcome ignored = {0};
        run_finish(engine, noise[i], &ignored);
        outcome_free(&ignored);
        run_finish(engine, id[i], &out[i]);
        char label[96];
        snprintf(label, sizeof(label), "%s, request %u", what, i);
        outcome_assert_equal(&solo[i], &out[i], label);
        outcome_free(&out[i]);
    }
    run_close(1000);
}

/* Law 1 and 2, D1, D6: pains 1 to 4, 27, 31. */
static void d6_company_changes_nothing(void **state) {
    NEEDS_MODEL;
    run_solo();
    static const uint32_t budgets[] = {1, 13, 64, 512}, rows[] = {COMPANY, 3, COMPANY, 5};
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        for (uint32_t i = 0; i < 4; i++) {
            cohort_engine_options o = options();
            o.rows = rows[i];
            o.batch_tokens = budgets[i];
            o.pipeline = pipeline;
            char what[64];
            snprintf(what, sizeof(what), "%u rows, budget %u, pipeline %d", rows[i], budgets[i], pipeline);
            run_company(&o, i + 1, what);
        }
    }
    free_solo();
}

static void k3_small_pools_and_rings_change_nothing(void **state) {
    NEEDS_MODEL;
    run_solo();
    cohort_engine_options o = options();
    o.kv_tokens = 640; /* little more than the largest request */
    run_company(&o, 3, "small state");
    o = options();
    o.ring_bytes = 1; /* raised to the least that works */
    run_company(&o, 4, "small rings");
    free_solo();
}

static void d6_threads_change_nothing(void **state) {
    NEEDS_MODEL;
    run_solo();
    cohort_model_close(model);
    for (int threads = 1; threads <= 3; threads += 2) {
        model = run_open_model(ENGINE_TEST_FOLDER, NULL, threads);
        cohort_engine_options o = options();
        run_company(&o, (uint64_t)threads, threads == 1 ? "one thread" : "three threads");
        cohort_model_close(model);
    }
    model = run_open_model(ENGINE_TEST_FOLDER, NULL, 0);
    free_solo();
}

static void greedy_request(cohort_request *q, uint32_t i, uint32_t prompt_n, uint32_t max_tokens) {
    cohort_request_defaults(q);
    run_prompt(prompts[i], prompt_n, info.vocab_size, 500 + i);
    q->prompt = prompts[i];
    q->prompt_n = prompt_n;
    q->max_tokens = max_tokens;
    q->sampling.temperature = 0;
    q->sampling.has_seed = 1;
    q->ignore_eos = 1;
}

/* Pain 49: a stop string is cut out wherever token borders fall, and what was held back in vain comes out. */
static void q7_stop_strings_cut_the_text(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_request q;
    struct outcome whole, cut;
    greedy_request(&q, 0, 9, 60);
    run_request(engine, &q, &whole);
    assert_int_equal(whole.finish, COHORT_FINISH_LENGTH);
    assert_true(whole.text.len > 40);
    int cuts = 0;
    for (size_t at = 3; at + 6 < whole.text.len; at++) {
        for (size_t len = 1; len <= 6; len += 5) {
            char stop[8];
            memcpy(stop, whole.text.data + at, len);
            if (!utf8_valid(stop, len)) continue;
            cuts++;
            size_t first = (size_t)((char *)memmem(whole.text.data, whole.text.len, stop, len) - whole.text.data);
            cohort_span stops[3] = {{"never in the text", 17}, {stop, len}, {"nor this", 8}};
            q.stops = stops;
            q.stops_n = 3;
            run_request(engine, &q, &cut);
            assert_int_equal(cut.finish, COHORT_FINISH_STOP);
            assert_int_equal(cut.stop_index, 1);
            assert_int_equal(cut.stop_token, -1);
            assert_int_equal(cut.text.len, first);
            assert_memory_equal(cut.text.data, whole.text.data, first);
            assert_int_equal(cut.stats.generated_tokens, cut.ids_n);
            assert_true(cut.ids_n <= whole.ids_n);
            outcome_free(&cut);
        }
    }
    assert_true(cuts > 20);
    cohort_span vain = {"\x01\x02", 2};
    q.stops = &vain;
    q.stops_n = 1;
    run_request(engine, &q, &cut);
    assert_int_equal(cut.text.len, whole.text.len);
    assert_memory_equal(cut.text.data, whole.text.data, whole.text.len);
    outcome_free(&cut);
    outcome_free(&whole);
    run_close(1000);
}

/* Q6, Q7, pain 52: the end token counts and is not delivered; nothing that follows it shows. */
static void q7_stop_ids_end_the_row(void **state) {
    NEEDS_MODEL;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        cohort_engine_options o = options();
        o.pipeline = pipeline;
        cohort_engine *engine = run_open_engine(model, &o);
        cohort_request q;
        struct outcome whole, cut;
        greedy_request(&q, 0, 9, 40);
        run_request(engine, &q, &whole);
        for (uint32_t at = 0; at < 40; at += 13) {
            uint32_t first = 0;
            while (whole.ids[first] != whole.ids[at]) first++;
            const int32_t ids[2] = {whole.ids[at], 1};
            q.stop_ids = ids;
            q.stop_ids_n = 2;
            run_request(engine, &q, &cut);
            assert_int_equal(cut.finish, COHORT_FINISH_STOP);
            assert_int_equal(cut.stop_token, whole.ids[at]);
            assert_int_equal(cut.stop_index, -1);
            assert_int_equal(cut.ids_n, first);
            assert_int_equal(cut.stats.generated_tokens, first + 1);
            assert_memory_equal(cut.ids, whole.ids, first * sizeof(int32_t));
            outcome_free(&cut);
        }
        outcome_free(&whole);
        run_close(1000);
    }
}

static int submit_error(cohort_engine *engine, const cohort_request *q, cohort_error *err) {
    cohort_ticket ticket;
    cohort_id id;
    assert_int_equal(cohort_reserve(engine, &ticket, err), 0);
    int code = cohort_submit(engine, ticket, q, &id, err);
    assert_int_equal(id, 0);
    return code;
}

/* Pains 8, 52, 57. */
static void q6_budgets_have_exact_edges(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    o.context = 100;
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_request q;
    struct outcome out;
    static const uint32_t lengths[] = {1, 50, 99};
    for (int i = 0; i < 3; i++) {
        greedy_request(&q, 0, lengths[i], 1);
        run_request(engine, &q, &out);
        assert_int_equal(out.finish, COHORT_FINISH_LENGTH);
        assert_int_equal(out.ids_n, 1);
        assert_int_equal(out.stats.generated_tokens, 1);
        outcome_free(&out);
        q.max_tokens = UINT32_MAX;
        run_request(engine, &q, &out);
        assert_int_equal(out.finish, COHORT_FINISH_LENGTH);
        assert_int_equal(out.ids_n, 100 - lengths[i]);
        outcome_free(&out);
        q.max_tokens = 100 - lengths[i];
        run_request(engine, &q, &out);
        assert_int_equal(out.ids_n, 100 - lengths[i]);
        outcome_free(&out);
        cohort_error err;
        q.max_tokens++;
        assert_int_equal(submit_error(engine, &q, &err), COHORT_E_CONTEXT);
        assert_non_null(strstr(err.text, "100"));
    }
    cohort_error err;
    greedy_request(&q, 0, 100, 1);
    assert_int_equal(submit_error(engine, &q, &err), COHORT_E_CONTEXT);
    q.max_tokens = UINT32_MAX;
    assert_int_equal(submit_error(engine, &q, &err), COHORT_E_CONTEXT);
    q.max_tokens = 0;
    assert_int_equal(submit_error(engine, &q, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "max_tokens");
    q.prompt_logprobs = 1;
    run_request(engine, &q, &out);
    assert_int_equal(out.finish, COHORT_FINISH_LENGTH);
    assert_int_equal(out.ids_n, 0);
    assert_int_equal(out.prompt_n, 100);
    assert_true(isnan(out.prompt_logprob[99]));
    outcome_free(&out);
    run_close(1000);
}

static void k3_what_can_never_fit_is_refused(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    o.kv_tokens = 128;
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_request q;
    cohort_error err;
    struct outcome out;
    greedy_request(&q, 0, 100, 60);
    assert_int_equal(submit_error(engine, &q, &err), COHORT_E_CAPACITY);
    greedy_request(&q, 0, 100, 28);
    run_request(engine, &q, &out);
    assert_int_equal(out.ids_n, 28);
    outcome_free(&out);
    /* An open budget is what there is room for. */
    greedy_request(&q, 0, 100, UINT32_MAX);
    run_request(engine, &q, &out);
    assert_int_equal(out.ids_n, 28);
    assert_int_equal(out.finish, COHORT_FINISH_LENGTH);
    outcome_free(&out);
    greedy_request(&q, 0, 128, UINT32_MAX);
    assert_int_equal(submit_error(engine, &q, &err), COHORT_E_CAPACITY);
    run_close(1000);
}

/* Pains 39 and 47: every number is checked on both sides, and the field is named. */
static void arguments_are_checked(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_request good, q;
    cohort_error err;
    greedy_request(&good, 0, 4, 4);
    const int32_t bad_ids[] = {-1, (int32_t)info.vocab_size, INT32_MAX, INT32_MIN};
#define REFUSED(name, ...)                                                                                             \
    do {                                                                                                               \
        q = good;                                                                                                      \
        __VA_ARGS__;                                                                                                   \
        assert_int_equal(submit_error(engine, &q, &err), COHORT_E_ARGUMENT);                                           \
        assert_string_equal(err.field, name);                                                                          \
    } while (0)
    for (int i = 0; i < 4; i++) {
        const int32_t ids[3] = {5, bad_ids[i], 5};
        REFUSED("prompt", q.prompt = ids; q.prompt_n = 3);
        REFUSED("stop_ids", q.stop_ids = ids; q.stop_ids_n = 3);
    }
    static int32_t many[COHORT_STOP_IDS_MAX + 1];
    static char long_stop[COHORT_STOP_BYTES_MAX + 1];
    static cohort_span stops[COHORT_STOPS_MAX + 1];
    for (int i = 0; i <= COHORT_STOPS_MAX; i++) stops[i] = (cohort_span){"x", 1};
    cohort_span empty = {"", 0}, broken = {"\xd0", 1}, longest = {long_stop, sizeof(long_stop)};
    REFUSED("prompt", q.prompt_n = 0);
    REFUSED("stop_ids", q.stop_ids = many; q.stop_ids_n = COHORT_STOP_IDS_MAX + 1);
    REFUSED("stop", q.stops = stops; q.stops_n = COHORT_STOPS_MAX + 1);
    REFUSED("stop", q.stops = &empty; q.stops_n = 1);
    REFUSED("stop", q.stops = &longest; q.stops_n = 1);
    REFUSED("stop", q.stops = &broken; q.stops_n = 1);
    REFUSED("temperature", q.sampling.temperature = NAN);
    REFUSED("top_p", q.sampling.top_p = -1);
    REFUSED("logprobs", q.logprobs = COHORT_TOP_LOGPROBS_MAX + 1);
    REFUSED("prompt_logprobs", q.prompt_logprobs = 2);
    REFUSED("size", q.size = 1);
    cohort_id id;
    assert_int_equal(cohort_submit(engine, 12345, &good, &id, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "ticket");
    cohort_ticket ticket;
    assert_int_equal(cohort_reserve(engine, &ticket, &err), 0);
    cohort_unreserve(engine, ticket);
    assert_int_equal(cohort_submit(engine, ticket, &good, &id, &err), COHORT_E_ARGUMENT);
    cohort_metrics metrics;
    cohort_metrics_get(engine, &metrics);
    assert_int_equal(metrics.requests_submitted, 0);
    run_close(1000);
}

/* Q3, pain 11. Whoever has read a finish event finds the place free. */
static void q3_places_are_counted(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    o.rows = 1;
    o.queue = 2;
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_ticket tickets[4];
    cohort_error err;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 3; i++) assert_int_equal(cohort_reserve(engine, &tickets[i], &err), 0);
        assert_int_equal(cohort_reserve(engine, &tickets[3], &err), COHORT_E_BUSY);
        assert_int_equal(tickets[3], 0);
        cohort_request q;
        cohort_id id[3];
        struct outcome out = {0};
        cohort_event event;
        greedy_request(&q, 0, 5, 3);
        for (int i = 0; i < 3; i++) assert_int_equal(cohort_submit(engine, tickets[i], &q, &id[i], &err), 0);
        while (cohort_next(engine, id[0], &event) != COHORT_OK || event.type != COHORT_EVENT_FINISH)
            cohort_wait(engine, id[0], -1);
        assert_int_equal(cohort_reserve(engine, &tickets[3], &err), 0);
        cohort_unreserve(engine, tickets[3]);
        cohort_drop(engine, id[0]);
        for (int i = 1; i < 3; i++) {
            memset(&out, 0, sizeof(out));
            run_finish(engine, id[i], &out);
            outcome_free(&out);
        }
    }
    cohort_metrics metrics;
    cohort_metrics_get(engine, &metrics);
    assert_int_equal(metrics.requests_refused, 20);
    assert_int_equal(metrics.requests_finished_length, 60);
    run_close(1000);
}

/* Pain 28. */
static void d3_a_seed_is_drawn_and_reported(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_request q;
    struct outcome a, b, again;
    greedy_request(&q, 0, 5, 30);
    q.sampling.temperature = 1.5f;
    q.sampling.has_seed = 0;
    run_request(engine, &q, &a);
    run_request(engine, &q, &b);
    assert_true(a.stats.seed != b.stats.seed);
    assert_true(memcmp(a.ids, b.ids, sizeof(a.ids)) != 0);
    q.sampling.seed = a.stats.seed;
    q.sampling.has_seed = 1;
    run_request(engine, &q, &again);
    outcome_assert_equal(&a, &again, "the reported seed");
    outcome_free(&again);
    q.sampling.choice = 1;
    run_request(engine, &q, &again);
    assert_true(memcmp(a.ids, again.ids, sizeof(a.ids)) != 0);
    outcome_free(&a);
    outcome_free(&b);
    outcome_free(&again);
    run_close(1000);
}

/* Pain 63: a reader that does not read stops only its own row, which goes on where it was. */
static void slow_readers_are_waited_for(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    o.ring_bytes = 1;
    o.context = 2048;
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_request q, lively;
    struct outcome want, got = {0}, other;
    greedy_request(&q, 0, 40, 1000);
    q.logprobs = 20;
    q.prompt_logprobs = 1;
    run_request(engine, &q, &want);
    assert_int_equal(want.ids_n, 1000);
    cohort_id slow = run_submit(engine, &q);
    for (int i = 0; i < 20; i++) {
        greedy_request(&lively, 1, 5, 50);
        run_request(engine, &lively, &other);
        assert_int_equal(other.ids_n, 50);
        outcome_free(&other);
    }
    cohort_metrics before, after;
    usleep(20000);
    cohort_metrics_get(engine, &before);
    usleep(50000);
    cohort_metrics_get(engine, &after);
    assert_int_equal(before.iterations, after.iterations); /* the row is paused */
    assert_true(after.generated_tokens < 1000 + 20 * 50 + 1000);
    run_finish(engine, slow, &got);
    outcome_assert_equal(&want, &got, "a slow reader");
    outcome_free(&got);
    /* One that never reads at all is cancelled and dropped. */
    slow = run_submit(engine, &q);
    usleep(30000);
    cohort_drop(engine, slow);
    RUN_UNTIL(cohort_engine_idle(engine));
    outcome_free(&want);
    run_close(1000);
}

/* Pains 6 and 7. */
static void q5_cancelling_ends_one_request(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    o.rows = 2;
    o.context = 2048;
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_request q;
    struct outcome want, got = {0}, out = {0};
    greedy_request(&q, 0, 20, 300);
    run_request(engine, &q, &want);
    cohort_id running = run_submit(engine, &q), other = run_submit(engine, &q);
    cohort_id waiting = run_submit(engine, &q);
    cohort_event event;
    while (cohort_next(engine, other, &event) != COHORT_OK) cohort_wait(engine, other, -1);
    cohort_cancel(engine, waiting);
    run_finish(engine, waiting, &out);
    assert_int_equal(out.finish, COHORT_FINISH_CANCELLED);
    assert_int_equal(out.stats.generated_tokens, 0);
    outcome_free(&out);
    cohort_cancel(engine, other);
    memset(&out, 0, sizeof(out));
    do assert_int_equal(cohort_wait(engine, other, 60000), COHORT_OK);
    while (cohort_next(engine, other, &event) == COHORT_OK && event.type != COHORT_EVENT_FINISH);
    assert_int_equal(event.finish, COHORT_FINISH_CANCELLED);
    assert_true(event.stats.generated_tokens < 300);
    cohort_cancel(engine, other); /* ended: ignored */
    cohort_drop(engine, other);
    cohort_cancel(engine, other); /* unknown: ignored */
    run_finish(engine, running, &got);
    outcome_assert_equal(&want, &got, "the one that was not cancelled");
    outcome_free(&got);
    outcome_free(&want);
    RUN_UNTIL(cohort_engine_idle(engine));
    cohort_metrics metrics;
    RUN_UNTIL((cohort_metrics_get(engine, &metrics), metrics.kv_pages_used == 0));
    assert_int_equal(metrics.requests_cancelled, 2);
    run_close(1000);
}

static void q4_closing_ends_everything(void **state) {
    NEEDS_MODEL;
    for (uint32_t grace = 0; grace <= 20000; grace += 20000) {
        cohort_engine_options o = options();
        o.rows = 3;
        cohort_engine *engine = run_open_engine(model, &o);
        cohort_request q;
        cohort_id id[9];
        for (uint32_t i = 0; i < 9; i++) {
            make_request(i, &q);
            id[i] = run_submit(engine, &q);
        }
        cohort_engine_drain(engine);
        cohort_ticket ticket;
        cohort_error err;
        assert_int_equal(cohort_reserve(engine, &ticket, &err), COHORT_E_CLOSED);
        if (grace) {
            RUN_UNTIL(cohort_engine_idle(engine));
            for (uint32_t i = 0; i < 9; i++) {
                struct outcome out = {0};
                run_finish(engine, id[i], &out);
                assert_true(out.finish == COHORT_FINISH_LENGTH || out.finish == COHORT_FINISH_STOP);
                outcome_free(&out);
            }
        }
        run_close(grace);
    }
}

static void readiness_is_announced(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_id id[COMPANY], ready[COMPANY];
    struct outcome out[COMPANY];
    struct pollfd fd = {.fd = cohort_event_fd(engine), .events = POLLIN};
    memset(out, 0, sizeof(out));
    assert_int_equal(poll(&fd, 1, 0), 0);
    for (uint32_t i = 0; i < COMPANY; i++) {
        cohort_request q;
        make_request(i, &q);
        id[i] = run_submit(engine, &q);
    }
    for (int done = 0; done < COMPANY;) {
        assert_int_equal(poll(&fd, 1, 60000), 1);
        size_t n = cohort_ready(engine, ready, 5);
        for (size_t j = 0; j < n; j++) {
            uint32_t i = 0;
            while (i < COMPANY && id[i] != ready[j]) i++;
            if (i == COMPANY || out[i].done) continue;
            done += run_take(engine, id[i], &out[i]);
        }
    }
    while (cohort_ready(engine, ready, 5) > 0)
        ;
    assert_int_equal(poll(&fd, 1, 0), 0);
    for (uint32_t i = 0; i < COMPANY; i++) {
        cohort_drop(engine, id[i]);
        outcome_free(&out[i]);
    }
    run_close(1000);
}

/* Events of a request that was dropped unread are not told under the name of the next one with its handle. */
static void readiness_of_dropped_requests_is_not_told(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_request q;
    cohort_id ready[4];
    cohort_ticket ticket;
    struct pollfd fd = {.fd = cohort_event_fd(engine), .events = POLLIN};
    greedy_request(&q, 0, 5, 2);
    cohort_id id = run_submit(engine, &q);
    assert_int_equal(poll(&fd, 1, 60000), 1);
    RUN_UNTIL(cohort_engine_idle(engine));
    cohort_drop(engine, id);
    assert_int_equal(cohort_reserve(engine, &ticket, NULL), 0);
    assert_int_equal(cohort_ready(engine, ready, 4), 0);
    cohort_event event;
    assert_int_not_equal(cohort_next(engine, ticket, &event), COHORT_OK);
    cohort_unreserve(engine, ticket);
    run_close(1000);
}

static void o3_metrics_add_up(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    cohort_engine *engine = run_open_engine(model, &o);
    uint64_t prompt = 0, generated = 0;
    cohort_metrics m;
    for (uint32_t i = 0; i < 6; i++) {
        cohort_request q;
        struct outcome out;
        make_request(i, &q);
        run_request(engine, &q, &out);
        prompt += q.prompt_n;
        generated += out.stats.generated_tokens;
        assert_true(out.stats.first_token_us >= out.stats.queue_us + out.stats.prefill_us);
        outcome_free(&out);
        cohort_metrics_get(engine, &m);
        assert_int_equal(m.requests_submitted, i + 1);
        assert_int_equal(m.requests_finished_stop + m.requests_finished_length, i + 1);
        assert_int_equal(m.generated_tokens, generated);
        assert_int_equal(m.prompt_tokens, prompt);
        assert_int_equal(m.ttft_s.count, i + 1);
        assert_int_equal(m.e2e_s.count, i + 1);
        assert_int_equal(m.queue_s.count, i + 1);
        assert_int_equal(m.inter_token_s.count, generated - (i + 1));
    }
    assert_int_equal(m.healthy, 1);
    assert_true(m.iterations > 0 && m.iteration_tokens >= prompt);
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.rows_running == 0 && m.last_iteration_us_ago == 0));
    run_close(1000);
}

/* Q8, pain 78. */
static void q8_an_idle_engine_sleeps(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options();
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_request q;
    struct outcome out;
    greedy_request(&q, 0, 5, 5);
    run_request(engine, &q, &out);
    outcome_free(&out);
    RUN_UNTIL(cohort_engine_idle(engine));
    usleep(50000);
    clock_t before = clock();
    usleep(300000);
    assert_true((double)(clock() - before) / CLOCKS_PER_SEC < 0.02);
    run_close(1000);
}

static void options_are_checked_and_reported(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o = options(), effective;
    cohort_engine *engine, *second;
    cohort_error err;
    o.context = 0;
    o.batch_tokens = 2;
    o.rows = 7;
    engine = run_open_engine(model, &o);
    cohort_engine_get_options(engine, &effective);
    assert_int_equal(effective.batch_tokens, 7);
    assert_int_equal(effective.context, info.context_trained < 32768 ? info.context_trained : 32768);
    assert_true(effective.kv_bytes > 0 && effective.kv_tokens > 0);
    assert_int_equal(cohort_engine_open(model, &o, &second, &err), COHORT_E_UNSUPPORTED);
    assert_null(second);
    run_close(0);
    o.context = 33; /* the second page of a row is its own */
    o.rows = 5;
    engine = run_open_engine(model, &o);
    cohort_engine_get_options(engine, &effective);
    assert_true(effective.kv_tokens >= 5 * 64);
    run_close(0);
#define BAD(name, value)                                                                                               \
    do {                                                                                                               \
        o = options();                                                                                                 \
        o.name = (value);                                                                                              \
        assert_int_equal(cohort_engine_open(model, &o, &engine, &err), COHORT_E_ARGUMENT);                             \
        assert_string_equal(err.field, #name);                                                                         \
        assert_null(engine);                                                                                           \
    } while (0)
    BAD(rows, 0);
    BAD(rows, UINT32_MAX);
    BAD(queue, UINT32_MAX);
    BAD(batch_tokens, 0);
    BAD(batch_tokens, UINT32_MAX);
    BAD(context, UINT32_MAX);
    BAD(ring_bytes, UINT32_MAX);
    BAD(size, 3);
    engine = run_open_engine(model, NULL);
    run_close(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(d6_company_changes_nothing, run_close_engine),
        cmocka_unit_test_teardown(k3_small_pools_and_rings_change_nothing, run_close_engine),
        cmocka_unit_test_teardown(d6_threads_change_nothing, run_close_engine),
        cmocka_unit_test_teardown(q7_stop_strings_cut_the_text, run_close_engine),
        cmocka_unit_test_teardown(q7_stop_ids_end_the_row, run_close_engine),
        cmocka_unit_test_teardown(q6_budgets_have_exact_edges, run_close_engine),
        cmocka_unit_test_teardown(k3_what_can_never_fit_is_refused, run_close_engine),
        cmocka_unit_test_teardown(arguments_are_checked, run_close_engine),
        cmocka_unit_test_teardown(q3_places_are_counted, run_close_engine),
        cmocka_unit_test_teardown(d3_a_seed_is_drawn_and_reported, run_close_engine),
        cmocka_unit_test_teardown(slow_readers_are_waited_for, run_close_engine),
        cmocka_unit_test_teardown(q5_cancelling_ends_one_request, run_close_engine),
        cmocka_unit_test_teardown(q4_closing_ends_everything, run_close_engine),
        cmocka_unit_test_teardown(readiness_is_announced, run_close_engine),
        cmocka_unit_test_teardown(readiness_of_dropped_requests_is_not_told, run_close_engine),
        cmocka_unit_test_teardown(o3_metrics_add_up, run_close_engine),
        cmocka_unit_test_teardown(q8_an_idle_engine_sleeps, run_close_engine),
        cmocka_unit_test_teardown(options_are_checked_and_reported, run_close_engine),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
