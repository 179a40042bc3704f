/* Rows that lose their state and get it back (K3): the engine on a pool that is too small for what it admits, on a
 * backend whose state is the tokens themselves (fake_backend.h). What a row says must be what it says alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "fake_model.h"

enum { ROWS = 8, PROMPT_MAX = 256 };

static int32_t prompts[ROWS][PROMPT_MAX];
static struct outcome want[ROWS], got[ROWS];

static cohort_engine *open_engine(uint32_t rows, uint64_t kv_tokens, int pipeline) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = rows;
    o.queue = 32;
    o.kv_tokens = kv_tokens;
    o.batch_tokens = 64;
    o.pipeline = pipeline;
    return run_open_engine(model, &o);
}

static void make_request(uint32_t i, uint32_t prompt_n, uint32_t max_tokens, cohort_request *q) {
    cohort_request_defaults(q);
    run_prompt(prompts[i], prompt_n, info.vocab_size, i);
    q->prompt = prompts[i];
    q->prompt_n = prompt_n;
    q->max_tokens = max_tokens;
    q->sampling.seed = i;
    q->sampling.has_seed = 1;
    q->logprobs = 2;
    q->ignore_eos = 1;
}

static void free_outcomes(void) {
    for (uint32_t i = 0; i < ROWS; i++) {
        outcome_free(&want[i]);
        outcome_free(&got[i]);
    }
}

static void assert_pages_are_back(cohort_engine *engine) {
    cohort_metrics m;
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.kv_pages_used == 0 && m.rows_running == 0 && m.rows_waiting == 0));
}

/* K3: eight rows in a pool for little more than one. Everybody ends, equal to the solo run, and somebody had to read
 * again. */
static void play(uint64_t kv_tokens, uint32_t max_tokens, int pipeline, int scored) {
    cohort_request q;
    cohort_id id[ROWS];
    cohort_engine *engine = open_engine(1, 8192, 1);
    memset(want, 0, sizeof(want));
    memset(got, 0, sizeof(got));
    for (uint32_t i = 0; i < ROWS; i++) {
        make_request(i, 20 + 5 * i, max_tokens, &q);
        q.prompt_logprobs = scored && i % 3 == 0;
        run_request(engine, &q, &want[i]);
        assert_int_equal(want[i].ids_n, max_tokens);
        assert_int_equal(want[i].stats.preemptions, 0);
    }
    run_close(0);
    engine = open_engine(ROWS, kv_tokens, pipeline);
    for (uint32_t i = 0; i < ROWS; i++) {
        make_request(i, 20 + 5 * i, max_tokens, &q);
        q.prompt_logprobs = scored && i % 3 == 0;
        id[i] = run_submit(engine, &q);
    }
    uint32_t preempted = 0, redone = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        run_finish(engine, id[i], &got[i]);
        outcome_assert_equal(&got[i], &want[i], "a row under pressure");
        preempted += got[i].stats.preemptions;
        redone += got[i].stats.redone_tokens;
    }
    assert_true(preempted > 0 && redone > 0);
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    assert_int_equal(m.preemptions, preempted);
    assert_int_equal(m.redone_tokens, redone);
    assert_int_equal(m.generated_tokens, ROWS * max_tokens);
    assert_int_equal(m.prompt_tokens, ROWS * 20 + 5 * ROWS * (ROWS - 1) / 2); /* without those read again */
    assert_pages_are_back(engine);
    run_close(0);
    free_outcomes();
}

static void k3_preempted_rows_resume_with_the_same_bytes(void **state) {
    NEEDS_MODEL;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        play(512, 300, pipeline, 0);
        play(640, 350, pipeline, 1);
    }
}

/* K3: at one row's minimum everybody still ends. */
static void k3_a_pool_of_one_row_serves_everybody(void **state) {
    NEEDS_MODEL;
    play(20 + 5 * (ROWS - 1) + 300, 300, 1, 0);
}

/* K3: four requests of 400 tokens in a budget of 1,024: what fits runs, what never fits is refused with both numbers,
 * and all four are what they are alone. */
static void k3_a_budget_of_1024_tokens(void **state) {
    NEEDS_MODEL;
    cohort_request q;
    cohort_id id[4];
    cohort_engine *engine = open_engine(1, 8192, 1);
    memset(want, 0, sizeof(want));
    memset(got, 0, sizeof(got));
    for (uint32_t i = 0; i < 4; i++) {
        make_request(i, 200, 200, &q);
        run_request(engine, &q, &want[i]);
    }
    run_close(0);
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 4096;
    o.rows = 8;
    o.kv_tokens = 1024;
    engine = run_open_engine(model, &o);
    for (uint32_t i = 0; i < 4; i++) {
        make_request(i, 200, 200, &q);
        id[i] = run_submit(engine, &q);
    }
    cohort_ticket ticket;
    cohort_id none;
    cohort_error err = {0};
    make_request(5, 200, 900, &q);
    assert_int_equal(cohort_reserve(engine, &ticket, &err), COHORT_OK);
    assert_int_equal(cohort_submit(engine, ticket, &q, &none, &err), COHORT_E_CAPACITY);
    assert_non_null(strstr(err.text, "35 pages")); /* ceil(1100 / 32) */
    assert_non_null(strstr(err.text, "has 32"));
    for (uint32_t i = 0; i < 4; i++) {
        run_finish(engine, id[i], &got[i]);
        outcome_assert_equal(&got[i], &want[i], "a row of 400 tokens");
    }
    assert_pages_are_back(engine);
    run_close(0);
    free_outcomes();
}

/* Q5, K3: cancelled while its state is away, a row goes like any other waiting one. */
static void q5_a_preempted_row_can_be_cancelled(void **state) {
    NEEDS_MODEL;
    cohort_request q;
    cohort_id id[ROWS];
    cohort_engine *engine = open_engine(ROWS, 512, 1);
    memset(got, 0, sizeof(got));
    fake_backend.delay_us = 200;
    for (uint32_t i = 0; i < ROWS; i++) {
        make_request(i, 40, 400, &q);
        id[i] = run_submit(engine, &q);
    }
    cohort_metrics m;
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.preemptions > 0));
    for (uint32_t i = 1; i < ROWS; i++) cohort_cancel(engine, id[i]);
    for (uint32_t i = 0; i < ROWS; i++) {
        run_finish(engine, id[i], &got[i]);
        assert_int_equal(got[i].finish, i == 0 ? COHORT_FINISH_LENGTH : COHORT_FINISH_CANCELLED);
    }
    assert_pages_are_back(engine);
    run_close(0);
    free_outcomes();
}

/* K3: a row whose reader sleeps gives its pages up when others need them, and loses nothing. */
static void k3_a_slow_reader_lends_its_pages(void **state) {
    NEEDS_MODEL;
    cohort_request q;
    cohort_engine *engine = open_engine(1, 8192, 1);
    memset(want, 0, sizeof(want));
    memset(got, 0, sizeof(got));
    for (uint32_t i = 0; i < 2; i++) {
        make_request(i, 40, 400, &q);
        q.logprobs = 20; /* large events: the ring is full long before the end */
        run_request(engine, &q, &want[i]);
    }
    run_close(0);
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = 4;
    o.kv_tokens = 512;
    o.ring_bytes = 16 << 10;
    engine = run_open_engine(model, &o);
    cohort_id id[2];
    for (uint32_t i = 0; i < 2; i++) {
        make_request(i, 40, 400, &q);
        q.logprobs = 20;
        id[i] = run_submit(engine, &q);
        uint32_t before = 0;
        cohort_metrics m;
        if (i > 0) break;
        do { /* until it is paused: it makes no more tokens */
            cohort_metrics_get(engine, &m);
            before = (uint32_t)m.generated_tokens;
            usleep(20000);
            cohort_metrics_get(engine, &m);
        } while (before == 0 || m.generated_tokens != before);
    }
    run_finish(engine, id[1], &got[1]);
    run_finish(engine, id[0], &got[0]);
    for (uint32_t i = 0; i < 2; i++) outcome_assert_equal(&got[i], &want[i], "beside a slow reader");
    assert_true(got[0].stats.preemptions > 0);
    assert_pages_are_back(engine);
    run_close(0);
    free_outcomes();
}

/* A token that only row `of` ever sees; -1 if there is none. */
static int32_t own_token(uint32_t of, uint32_t n) {
    for (uint32_t k = 20; k < want[of].ids_n; k++) {
        int found = 0;
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t j = 0; j < want[i].ids_n; j++) found += want[i].ids[j] == want[of].ids[k];
            for (uint32_t j = 0; j < 40 + i; j++) found += prompts[i][j] == want[of].ids[k];
        }
        if (found == 1) return want[of].ids[k];
    }
    return -1;
}

static void assert_prefix(const struct outcome *short_one, const struct outcome *whole) {
    assert_true(short_one->ids_n < whole->ids_n);
    assert_memory_equal(short_one->ids, whole->ids, short_one->ids_n * sizeof(int32_t));
}

/* F1, F3: of eight rows one meets NaN, one finds no memory, one is cancelled while an iteration runs, one is dropped by
 * its reader. The other four are what they are alone, the failed ones are beginnings of what they are alone, and every
 * page comes back. */
static void f1_poisoned_rows_leave_their_neighbours_alone(void **state) {
    NEEDS_MODEL;
    cohort_request q;
    cohort_id id[ROWS];
    cohort_engine *engine = open_engine(ROWS, 8192, 1);
    memset(want, 0, sizeof(want));
    memset(got, 0, sizeof(got));
    for (uint32_t i = 0; i < ROWS; i++) {
        make_request(i, 40 + i, 300, &q);
        run_request(engine, &q, &want[i]);
    }
    fake_backend.poison = own_token(1, ROWS);
    assert_true(fake_backend.poison >= 0);
    fake_backend.delay_us = 300;
    for (uint32_t i = 0; i < ROWS; i++) {
        make_request(i, 40 + i, 300, &q);
        id[i] = run_submit(engine, &q);
    }
    cohort_metrics m;
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.generated_tokens > 10 * ROWS));
    fake_backend.hold = 1;
    usleep(5000); /* an iteration runs and cannot end */
    cohort_cancel(engine, id[2]);
    cohort_drop(engine, id[3]);
    fake_backend.hold = 0;
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.requests_cancelled == 2));
    uint64_t failed = m.requests_failed;
    mem_fail_at(1, 0); /* the next allocation is some row's: its tokens or its ring */
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.requests_failed > failed));
    mem_fail_at(0, 0);
    uint32_t whole = 0, starved = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        if (i == 3) continue;
        run_finish(engine, id[i], &got[i]);
        if (got[i].finish == COHORT_FINISH_LENGTH) {
            outcome_assert_equal(&got[i], &want[i], "a neighbour of poisoned rows");
            whole++;
            continue;
        }
        assert_prefix(&got[i], &want[i]);
        if (i == 2)
            assert_int_equal(got[i].finish, COHORT_FINISH_CANCELLED);
        else
            assert_int_equal(got[i].finish, COHORT_FINISH_ERROR);
        starved += got[i].error == COHORT_E_MEMORY;
    }
    assert_int_equal(starved, 1);
    assert_true(whole >= 4);
    assert_true(got[1].error == COHORT_E_NUMERIC || got[1].error == COHORT_E_MEMORY);
    fake_backend.poison = -1;
    assert_pages_are_back(engine);
    run_close(0);
    free_outcomes();
}

/* Fairness: all rows belong to one tenant with long answers, and more of its requests wait. Another's request gets a
 * row after SCHED_SHARE_QUANTUM tokens of the first (and what the iteration in which that is seen makes), not after an
 * answer; whoever made way ends with the bytes it has alone. */
static void a_noisy_tenant_delays_another_by_a_bound(void **state) {
    NEEDS_MODEL;
    static const cohort_tenant tenants[] = {{.name = "noisy", .weight = 1}, {.name = "quiet", .weight = 1}};
    enum { NOISY = 6, TOKENS = 900 };
    cohort_request q;
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 1024;
    o.rows = 2;
    o.queue = 32;
    o.tenants = tenants;
    o.tenants_n = 2;
    cohort_engine *engine = run_open_engine(model, &o);
    memset(want, 0, sizeof(want));
    memset(got, 0, sizeof(got));
    make_request(0, 40, TOKENS, &q);
    run_request(engine, &q, &want[0]);
    fake_backend.delay_us = 300;
    cohort_id id[NOISY], quiet;
    cohort_ticket ticket;
    for (uint32_t i = 0; i < NOISY; i++) id[i] = run_submit(engine, &q);
    cohort_tenant_metrics m;
    RUN_UNTIL((cohort_tenant_metrics_get(engine, 0, &m), m.generated_tokens > TOKENS + 20));
    make_request(1, 40, 8, &q);
    assert_int_equal(cohort_reserve_for(engine, 1, &ticket, NULL), COHORT_OK);
    assert_int_equal(cohort_submit(engine, ticket, &q, &quiet, NULL), COHORT_OK);
    cohort_tenant_metrics_get(engine, 0, &m);
    uint64_t before = m.generated_tokens;
    assert_int_equal(cohort_wait(engine, quiet, 60000), COHORT_OK);
    cohort_tenant_metrics_get(engine, 0, &m);
    /* The test's thread may look late. Without the rule it would be the rest of a whole answer, twice 880 tokens. */
    assert_in_range(m.generated_tokens - before, 0, 2 * 512);
    run_finish(engine, quiet, &got[1]);
    uint32_t preempted = 0;
    for (uint32_t i = 0; i < NOISY; i++) {
        outcome_free(&got[0]);
        memset(&got[0], 0, sizeof(got[0]));
        run_finish(engine, id[i], &got[0]);
        outcome_assert_equal(&got[0], &want[0], "a row that may have made way");
        preempted += got[0].stats.preemptions;
    }
    assert_true(preempted > 0);
    assert_pages_are_back(engine);
    run_close(0);
    free_outcomes();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(k3_preempted_rows_resume_with_the_same_bytes, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(k3_a_pool_of_one_row_serves_everybody, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(k3_a_budget_of_1024_tokens, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(q5_a_preempted_row_can_be_cancelled, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(k3_a_slow_reader_lends_its_pages, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(f1_poisoned_rows_leave_their_neighbours_alone, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(a_noisy_tenant_delays_another_by_a_bound, reset, run_close_engine),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
