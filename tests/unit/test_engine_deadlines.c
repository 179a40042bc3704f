/* Requests that end by themselves when their time is over, and the request's fields that the scheduler gets, on a
 * backend whose iterations take as long as they are told (fake_backend.h). Times are short and never measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "fake_model.h"

static int32_t prompts[8][256];

static cohort_engine *open_engine(uint32_t rows, uint32_t ring_bytes) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = rows;
    o.queue = 100;
    o.batch_tokens = 16;
    o.ring_bytes = ring_bytes;
    return run_open_engine(model, &o);
}

static void make_request(uint32_t i, uint32_t prompt_n, uint32_t tokens, cohort_request *q) {
    cohort_request_defaults(q);
    run_prompt(prompts[i], prompt_n, info.vocab_size, i);
    q->prompt = prompts[i];
    q->prompt_n = prompt_n;
    q->max_tokens = tokens;
    q->ignore_eos = 1;
    q->sampling.seed = i;
    q->sampling.has_seed = 1;
}

static cohort_metrics metrics(cohort_engine *engine) {
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    return m;
}

static void assert_timed_out(const struct outcome *out) {
    assert_int_equal(out->finish, COHORT_FINISH_ERROR);
    assert_int_equal(out->error, COHORT_E_TIMEOUT);
}

/* Waiting, preparing, running: each ends alone, and its neighbour cannot tell. */
static void deadline_of_each_state(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 64 << 10);
    struct outcome want, got[4];
    cohort_request q;
    cohort_id id[4];
    memset(got, 0, sizeof(got));
    make_request(0, 5, 100, &q);
    run_request(engine, &q, &want);
    fake_backend.delay_us = 2000;
    id[0] = run_submit(engine, &q);
    make_request(1, 5, 400, &q); /* takes 800 ms */
    q.timeout_ms = 150;
    id[1] = run_submit(engine, &q);
    make_request(2, 5, 400, &q); /* waits for one of both */
    q.timeout_ms = 20;
    id[2] = run_submit(engine, &q);
    for (uint32_t i = 1; i < 3; i++) {
        run_finish(engine, id[i], &got[i]);
        assert_timed_out(&got[i]);
    }
    assert_int_equal(got[2].stats.generated_tokens, 0);
    assert_true(got[1].ids_n < 400);
    make_request(3, 250, 2, &q); /* at most 15 tokens every 2 ms */
    q.timeout_ms = 10;
    id[3] = run_submit(engine, &q);
    run_finish(engine, id[3], &got[3]);
    assert_timed_out(&got[3]);
    assert_int_equal(got[3].stats.generated_tokens, 0);
    assert_int_equal(metrics(engine).requests_timed_out, 3);
    assert_int_equal(metrics(engine).requests_failed, 3);
    run_finish(engine, id[0], &got[0]);
    outcome_assert_equal(&want, &got[0], "a neighbour of rows whose time was over");
    for (int i = 0; i < 4; i++) outcome_free(&got[i]);
    outcome_free(&want);
    RUN_UNTIL(cohort_engine_idle(engine));
    RUN_UNTIL(metrics(engine).kv_pages_used == 0);
    run_close(1000);
}

/* A time that is long enough changes nothing. */
static void deadline_not_reached(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 64 << 10);
    struct outcome want, got;
    cohort_request q;
    make_request(0, 5, 50, &q);
    run_request(engine, &q, &want);
    q.timeout_ms = q.max_predict_ms = UINT32_MAX;
    run_request(engine, &q, &got);
    outcome_assert_equal(&want, &got, "with time enough");
    outcome_free(&want);
    outcome_free(&got);
    assert_int_equal(metrics(engine).requests_timed_out, 0);
    run_close(1000);
}

/* The loop sleeps beside a row whose reader does not read, or a held line: it wakes by itself, and does not look in
 * between. */
static void deadline_while_the_loop_sleeps(void **state) {
    NEEDS_MODEL;
    for (int held = 0; held < 2; held++) {
        cohort_engine *engine = open_engine(2, 1);
        cohort_request q;
        cohort_event event;
        make_request(0, 5, 400, &q);
        q.timeout_ms = 300;
        cohort_engine_hold(engine, held);
        cohort_id id = run_submit(engine, &q);
        usleep(100000);
        assert_int_equal(metrics(engine).rows_running, !held);
        clock_t before = clock();
        uint64_t iterations = metrics(engine).iterations;
        usleep(100000);
        assert_true((double)(clock() - before) / CLOCKS_PER_SEC < 0.02);
        if (!cohort_engine_idle(engine)) assert_int_equal(metrics(engine).iterations, iterations);
        RUN_UNTIL(cohort_engine_idle(engine));
        assert_int_equal(metrics(engine).requests_timed_out, 1);
        do assert_int_equal(cohort_next(engine, id, &event), COHORT_OK);
        while (event.type != COHORT_EVENT_FINISH);
        assert_int_equal(event.error, COHORT_E_TIMEOUT);
        assert_non_null(strstr(event.error_text, "300 ms"));
        cohort_drop(engine, id);
        run_close(1000);
    }
}

enum { MANY = 60 };

/* Any number of them, in the order of their deadlines, whatever the order in which they came and left. */
static void deadline_of_many(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 64 << 10);
    cohort_request q;
    cohort_id id[MANY], ended[MANY], ready[8];
    uint64_t least[MANY], most[MANY];
    uint32_t n = 0, cancelled = 0;
    cohort_event event;
    cohort_engine_hold(engine, 1);
    for (uint32_t i = 0; i < MANY; i++) {
        make_request(i % 8, 5, 5, &q);
        q.timeout_ms = 50 + 4 * (uint32_t)(rng_u64(1, 2, i) % 50);
        least[i] = clock_us() + q.timeout_ms * 1000;
        id[i] = run_submit(engine, &q);
        most[i] = clock_us() + q.timeout_ms * 1000;
        if (i % 7 == 3) {
            cohort_cancel(engine, id[i - 2]);
            cancelled++;
        }
    }
    while (n < MANY) {
        size_t got = cohort_ready(engine, ready, 8);
        for (size_t j = 0; j < got; j++) ended[n++] = ready[j];
        if (!got) usleep(500);
    }
    uint64_t latest = 0, timed_out = 0;
    for (uint32_t k = 0; k < MANY; k++) {
        uint32_t i = 0;
        while (i < MANY && id[i] != ended[k]) i++;
        assert_true(i < MANY);
        assert_int_equal(cohort_next(engine, id[i], &event), COHORT_OK);
        assert_int_equal(event.type, COHORT_EVENT_FINISH);
        if (event.error == COHORT_E_TIMEOUT) {
            timed_out++;
            assert_true(most[i] >= latest);
            if (least[i] > latest) latest = least[i];
        }
        cohort_drop(engine, id[i]);
    }
    assert_true(timed_out >= MANY - cancelled); /* a slow machine may be late with a cancel */
    assert_int_equal(metrics(engine).requests_timed_out, timed_out);
    assert_true(cohort_engine_idle(engine));
    run_close(1000);
}

/* ---- max_predict_ms ---- */

static int32_t newline_id(void) {
    int32_t *ids, id;
    size_t n;
    cohort_error err;
    assert_int_equal(cohort_tokenize(model, "\n", 1, 0, &ids, &n, &err), 0);
    id = ids[n - 1];
    cohort_free(ids);
    const char *bytes;
    size_t len;
    assert_int_equal(cohort_token_piece(model, id, &bytes, &len), 0);
    assert_true(len == 1 && bytes[0] == '\n');
    return id;
}

/* Behind a newline only, as a length; what came until then stays. */
static void deadline_of_prediction_needs_a_newline(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 64 << 10);
    struct outcome want, got;
    cohort_request q;
    make_request(0, 5, 60, &q);
    run_request(engine, &q, &want);
    assert_null(memchr(want.text.data, '\n', want.text.len));
    fake_backend.delay_us = 1000;
    q.max_predict_ms = 1;
    run_request(engine, &q, &got);
    outcome_assert_equal(&want, &got, "without a newline");
    outcome_free(&want);
    outcome_free(&got);

    fake_backend.end = newline_id(); /* now and then */
    q.max_tokens = 400;
    q.max_predict_ms = 0;
    fake_backend.delay_us = 0;
    run_request(engine, &q, &want);
    assert_int_equal(want.ids_n, 400);
    assert_non_null(memchr(want.text.data, '\n', want.text.len));
    fake_backend.delay_us = 1000;
    for (uint32_t ms = 1; ms <= 50; ms += 49) { /* passed when the newline comes; passes behind it */
        q.max_predict_ms = ms;
        run_request(engine, &q, &got);
        assert_int_equal(got.finish, COHORT_FINISH_LENGTH);
        assert_int_equal(got.error, 0);
        assert_true(got.ids_n < 400);
        assert_int_equal(got.stats.generated_tokens, got.ids_n);
        assert_non_null(memchr(got.text.data, '\n', got.text.len));
        assert_memory_equal(got.ids, want.ids, got.ids_n * sizeof(got.ids[0]));
        outcome_free(&got);
    }
    assert_int_equal(metrics(engine).requests_timed_out, 0);
    /* The whole time counts beside it. */
    q.max_predict_ms = 100000;
    q.timeout_ms = 60;
    run_request(engine, &q, &got);
    assert_timed_out(&got);
    outcome_free(&got);
    outcome_free(&want);
    run_close(1000);
}

/* ---- fields on their way to the scheduler ---- */

static int submit_error(cohort_engine *engine, const cohort_request *q, cohort_error *err) {
    cohort_ticket ticket;
    cohort_id id;
    assert_int_equal(cohort_reserve(engine, &ticket, err), 0);
    int code = cohort_submit(engine, ticket, q, &id, err);
    if (!code) cohort_drop(engine, id);
    return code;
}

static void p7_snapshot_positions_are_checked(void **state) {
    NEEDS_MODEL;
    static const struct {
        uint32_t at[3];
        size_t n;
        int code;
    } cases[] = {
        {{1, 2, 20}, 3, 0},
        {{0}, 1, COHORT_E_ARGUMENT},
        {{21}, 1, COHORT_E_ARGUMENT},
        {{5, 5}, 2, COHORT_E_ARGUMENT},
        {{5, 4}, 2, COHORT_E_ARGUMENT},
        {{5, UINT32_MAX}, 2, COHORT_E_ARGUMENT},
    };
    cohort_engine *engine = open_engine(2, 64 << 10);
    cohort_request q;
    cohort_error err;
    make_request(0, 20, 2, &q);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        q.snapshot_at = cases[i].at;
        q.snapshot_at_n = cases[i].n;
        assert_int_equal(submit_error(engine, &q, &err), cases[i].code);
        if (cases[i].code) assert_string_equal(err.field, "snapshot_at");
    }
    static const uint32_t many[COHORT_SNAPSHOTS_MAX + 1] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    q.snapshot_at = many;
    q.snapshot_at_n = COHORT_SNAPSHOTS_MAX;
    assert_int_equal(submit_error(engine, &q, &err), 0);
    q.snapshot_at_n++;
    assert_int_equal(submit_error(engine, &q, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "snapshot_at");
    run_close(1000);
}

static void p2_a_requests_chunk_is_its_own(void **state) {
    NEEDS_MODEL;
    for (int scored = 0; scored < 2; scored++) {
        cohort_engine *engine = open_engine(2, 64 << 10);
        struct outcome want, got;
        cohort_request q;
        make_request(0, 60, 3, &q);
        q.cache_prompt = 0;
        q.prompt_logprobs = scored;
        run_request(engine, &q, &want);
        uint64_t before = metrics(engine).iterations;
        q.chunk_max = 4;
        run_request(engine, &q, &got);
        assert_true(metrics(engine).iterations - before >= 15);
        q.chunk_max = UINT32_MAX;
        outcome_assert_equal(&want, &got, "in small chunks");
        outcome_free(&got);
        run_request(engine, &q, &got);
        outcome_assert_equal(&want, &got, "in chunks as large as they come");
        outcome_free(&got);
        outcome_free(&want);
        run_close(1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(deadline_of_each_state, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(deadline_not_reached, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(deadline_while_the_loop_sleeps, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(deadline_of_many, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(deadline_of_prediction_needs_a_newline, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(p7_snapshot_positions_are_checked, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(p2_a_requests_chunk_is_its_own, reset, run_close_engine),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
