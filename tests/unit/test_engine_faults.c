/* What goes wrong in one row, in one iteration, or in the whole loop, and who notices: the engine on a backend that can
 * be told to fail (fake_backend.h). */
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

static int32_t prompts[8][64];

static cohort_engine *open_engine(uint32_t rows, int pipeline) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = rows;
    o.queue = 16;
    o.pipeline = pipeline;
    return run_open_engine(model, &o);
}

static void make_request(uint32_t i, cohort_request *q) {
    cohort_request_defaults(q);
    run_prompt(prompts[i], 20 + i, info.vocab_size, i);
    q->prompt = prompts[i];
    q->prompt_n = 20 + i;
    q->max_tokens = 40;
    q->sampling.seed = i;
    q->sampling.has_seed = 1;
    q->logprobs = 2;
}

/* Pain 40, F1: the row with NaN logits ends with an error, at the right token, and nobody else can tell. */
static void f1_nan_logits_end_one_row(void **state) {
    NEEDS_MODEL;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        cohort_engine *engine = open_engine(8, pipeline);
        struct outcome want[4], got[4];
        memset(got, 0, sizeof(got));
        cohort_request q;
        cohort_id id[4];
        for (uint32_t i = 0; i < 4; i++) {
            make_request(i, &q);
            run_request(engine, &q, &want[i]);
        }
        fake_backend.poison = want[2].ids[17]; /* from the next token on that row is lost */
        for (uint32_t i = 0; i < 4; i++) {
            make_request(i, &q);
            id[i] = run_submit(engine, &q);
        }
        for (uint32_t i = 0; i < 4; i++) run_finish(engine, id[i], &got[i]);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t seen = 0;
            int in_prompt = 0;
            for (uint32_t j = 0; j < 20 + i; j++) in_prompt |= prompts[i][j] == fake_backend.poison;
            while (seen < 39 && want[i].ids[seen] != fake_backend.poison) seen++;
            if (in_prompt || seen < 39) {
                assert_int_equal(got[i].finish, COHORT_FINISH_ERROR);
                assert_int_equal(got[i].error, COHORT_E_NUMERIC);
                assert_int_equal(got[i].ids_n, in_prompt ? 0 : seen + 1);
                assert_memory_equal(got[i].ids, want[i].ids, got[i].ids_n * sizeof(int32_t));
                assert_int_equal(got[i].stats.generated_tokens, got[i].ids_n);
            } else {
                outcome_assert_equal(&want[i], &got[i], "a neighbour of NaN");
            }
        }
        fake_backend.poison = -1;
        for (uint32_t i = 0; i < 4; i++) {
            outcome_free(&want[i]);
            outcome_free(&got[i]);
        }
        cohort_metrics m;
        cohort_metrics_get(engine, &m);
        assert_true(m.requests_failed >= 1);
        assert_int_equal(m.healthy, 1);
        run_close(1000);
    }
}

static void f1_nan_in_a_scored_prompt_ends_the_row(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1);
    cohort_request q;
    struct outcome out;
    make_request(0, &q);
    q.prompt_logprobs = 1;
    fake_backend.poison = prompts[0][7];
    run_request(engine, &q, &out);
    assert_int_equal(out.finish, COHORT_FINISH_ERROR);
    assert_int_equal(out.error, COHORT_E_NUMERIC);
    assert_int_equal(out.prompt_n, 7);
    assert_int_equal(out.stats.generated_tokens, 0);
    outcome_free(&out);
    run_close(1000);
}

static void f1_nan_in_an_embedding_ends_the_row(void **state) {
    NEEDS_MODEL;
    for (int kind = COHORT_POOLING_MEAN; kind <= COHORT_POOLING_LAST; kind++) {
        cohort_engine *engine = open_engine(2, 1);
        cohort_request q;
        struct outcome out;
        make_request(0, &q);
        q.max_tokens = 0;
        q.pooling = (cohort_pooling)kind;
        fake_backend.poison = prompts[0][7];
        run_request(engine, &q, &out);
        int right = kind == COHORT_POOLING_CLS; /* it comes before */
        assert_int_equal(out.finish, right ? COHORT_FINISH_STOP : COHORT_FINISH_ERROR);
        assert_int_equal(out.error, right ? 0 : COHORT_E_NUMERIC);
        assert_int_equal(out.embeddings_n, right);
        outcome_free(&out);
        run_close(1000);
    }
}

/* F2: an iteration that cannot start fails its own rows; the rest goes on. */
static void f2_a_failed_launch_fails_its_rows(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1);
    cohort_request q;
    cohort_id id[5];
    struct outcome want[5], out;
    for (uint32_t i = 0; i < 5; i++) {
        make_request(i, &q);
        run_request(engine, &q, &want[i]);
    }
    fake_backend.refuse_launch = 10;
    for (uint32_t i = 0; i < 5; i++) {
        make_request(i, &q);
        id[i] = run_submit(engine, &q);
    }
    int failed = 0;
    for (uint32_t i = 0; i < 5; i++) {
        memset(&out, 0, sizeof(out));
        run_finish(engine, id[i], &out);
        if (out.finish == COHORT_FINISH_ERROR) {
            failed++;
            assert_int_equal(out.error, COHORT_E_MEMORY);
        } else {
            outcome_assert_equal(&want[i], &out, "a row that was not in the failed iteration");
        }
        outcome_free(&out);
        outcome_free(&want[i]);
    }
    assert_true(failed >= 1 && failed <= 2);
    run_close(1000);
}

/* D2, F2: the iteration that cannot start is the one too many of a row whose last token nobody has read yet: that row
 * ended before it, and does not fail. */
static void d2_a_row_that_has_ended_does_not_fail_with_the_next_iteration(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1);
    cohort_request q;
    struct outcome want, got = {0};
    make_request(0, &q);
    run_request(engine, &q, &want);
    int32_t stop = want.ids[5];
    int at = 0;
    while (want.ids[at] != stop) at++;
    outcome_free(&want);
    q.stop_ids = &stop;
    q.stop_ids_n = 1;
    run_request(engine, &q, &want);
    assert_int_equal(want.finish, COHORT_FINISH_STOP);
    RUN_UNTIL(cohort_engine_idle(engine));
    fake_backend.refuse_launch = at + 2; /* the first makes token 0 */
    run_request(engine, &q, &got);
    assert_int_equal(fake_backend.refuse_launch, 0);
    outcome_assert_equal(&want, &got, "a row that ended before the iteration that failed");
    outcome_free(&want);
    outcome_free(&got);
    run_close(1000);
}

/* F4, pain 12: if the loop cannot go on, everything pending fails with the cause, and it shows. */
static void f4_a_broken_backend_fails_everything(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1);
    cohort_request q;
    cohort_id id[5];
    cohort_error err;
    cohort_ticket ticket;
    fake_backend.hold = 1;
    for (uint32_t i = 0; i < 5; i++) {
        make_request(i, &q);
        id[i] = run_submit(engine, &q);
    }
    assert_int_equal(cohort_reserve(engine, &ticket, &err), 0);
    fake_backend.break_wait = 1;
    fake_backend.hold = 0;
    for (uint32_t i = 0; i < 5; i++) {
        struct outcome out = {0};
        run_finish(engine, id[i], &out);
        assert_int_equal(out.finish, COHORT_FINISH_ERROR);
        assert_int_equal(out.error, COHORT_E_INTERNAL);
        outcome_free(&out);
    }
    RUN_UNTIL(cohort_engine_idle(engine)); /* nothing waits or runs any more */
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    assert_int_equal(m.healthy, 0);
    assert_int_equal(m.requests_failed, 5);
    assert_int_equal(m.rows_running + m.rows_preparing + m.rows_waiting, 0);
    make_request(0, &q);
    assert_int_equal(cohort_submit(engine, ticket, &q, &id[0], &err), COHORT_E_CLOSED);
    assert_int_equal(cohort_reserve(engine, &ticket, &err), COHORT_E_CLOSED);
    assert_non_null(strstr(err.text, "stopped"));
    run_close(60000); /* does not wait for what cannot end */
}

/* Cancelling is seen at the next boundary: one iteration, not more, runs after it. */
static void q5_a_cancel_takes_one_iteration(void **state) {
    NEEDS_MODEL;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        cohort_engine *engine = open_engine(2, pipeline);
        cohort_request q;
        struct outcome out = {0};
        make_request(0, &q);
        q.max_tokens = 400;
        fake_backend.delay_us = 2000;
        cohort_id id = run_submit(engine, &q);
        cohort_wait(engine, id, -1);
        fake_backend.hold = 1;
        usleep(20000); /* the batch that runs now cannot end */
        uint32_t batches = fake_backend.batches;
        cohort_cancel(engine, id);
        fake_backend.hold = 0;
        run_finish(engine, id, &out);
        assert_int_equal(out.finish, COHORT_FINISH_CANCELLED);
        RUN_UNTIL(cohort_engine_idle(engine));
        assert_true(fake_backend.batches <= batches + 1);
        outcome_free(&out);
        run_close(1000);
    }
}

/* D2: the end token is read late, so the row runs once more than it should; nothing of that shows. */
static void d2_a_late_end_does_not_show(void **state) {
    NEEDS_MODEL;
    fake_backend.end = info.eos;
    struct outcome want[8], got;
    uint32_t stopped = 0;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        cohort_engine *engine = open_engine(4, pipeline);
        uint64_t generated = 0;
        cohort_metrics m;
        for (uint32_t i = 0; i < 8; i++) {
            cohort_request q;
            make_request(i, &q);
            struct outcome *out = pipeline ? &got : &want[i];
            memset(out, 0, sizeof(*out));
            cohort_id id = run_submit(engine, &q);
            RUN_UNTIL(cohort_engine_idle(engine)); /* it ended, and what ran too often was delivered, before a look */
            RUN_UNTIL((cohort_metrics_get(engine, &m), m.last_iteration_us_ago == 0));
            run_finish(engine, id, out);
            generated += want[i].stats.generated_tokens;
            if (!pipeline) {
                stopped += want[i].finish == COHORT_FINISH_STOP;
                if (want[i].finish == COHORT_FINISH_STOP) {
                    assert_int_equal(want[i].stop_token, info.eos);
                    assert_int_equal(want[i].stats.generated_tokens, want[i].ids_n + 1);
                }
                continue;
            }
            outcome_assert_equal(&want[i], &got, "pipelined");
            outcome_free(&got);
        }
        assert_int_equal(m.generated_tokens, generated);
        run_close(1000);
    }
    for (uint32_t i = 0; i < 8; i++) outcome_free(&want[i]);
    assert_true(stopped >= 3);
}

/* F1: a row whose output finds no memory ends; its neighbour cannot tell, and the end is said. */
static void f1_a_ring_without_memory_ends_one_row(void **state) {
    NEEDS_MODEL;
    for (int scored = 0; scored < 2; scored++) {
        cohort_engine *engine = open_engine(2, 1);
        cohort_request q;
        cohort_id id[2];
        struct outcome want[2], got[2];
        int failed = 0;
        memset(got, 0, sizeof(got));
        for (uint32_t i = 0; i < 2; i++) {
            make_request(i, &q);
            q.prompt_logprobs = scored;
            run_request(engine, &q, &want[i]);
        }
        fake_backend.hold = 1;
        for (uint32_t i = 0; i < 2; i++) {
            make_request(i, &q);
            q.prompt_logprobs = scored;
            id[i] = run_submit(engine, &q);
        }
        RUN_UNTIL(fake_backend.running);
        mem_fail_at(1, 0); /* a ring's first segment: nothing else is taken while rows run */
        fake_backend.hold = 0;
        for (uint32_t i = 0; i < 2; i++) {
            run_finish(engine, id[i], &got[i]);
            if (got[i].finish == COHORT_FINISH_ERROR) {
                failed++;
                assert_int_equal(got[i].error, COHORT_E_MEMORY);
            } else {
                outcome_assert_equal(&want[i], &got[i], "a neighbour of a row without memory");
            }
        }
        mem_fail_at(0, 0);
        assert_int_equal(failed, 1);
        for (uint32_t i = 0; i < 2; i++) {
            outcome_free(&want[i]);
            outcome_free(&got[i]);
        }
        run_close(1000);
    }
}

/* Every allocation of opening, submitting and running fails once: an error code or a row's end, never more. */
static void f3_each_allocation_may_fail(void **state) {
    NEEDS_MODEL;
    cohort_request q;
    make_request(0, &q);
    q.max_tokens = 5;
    for (uint64_t nth = 1;; nth++) {
        cohort_engine_options o;
        cohort_engine *engine;
        cohort_error err;
        cohort_engine_options_defaults(&o);
        o.context = 64;
        o.rows = o.queue = 2;
        mem_fail_at(nth, 0);
        int code = cohort_engine_open(model, &o, &engine, &err);
        if (code) {
            assert_int_equal(code, COHORT_E_MEMORY);
            continue;
        }
        cohort_ticket ticket;
        cohort_id id;
        assert_int_equal(cohort_reserve(engine, &ticket, &err), 0);
        code = cohort_submit(engine, ticket, &q, &id, &err);
        mem_fail_at(0, 0);
        if (code) {
            assert_int_equal(code, COHORT_E_MEMORY);
            cohort_engine_close(engine, 0);
            continue;
        }
        struct outcome out = {0};
        run_finish(engine, id, &out);
        assert_int_equal(out.finish, COHORT_FINISH_LENGTH);
        outcome_free(&out);
        cohort_engine_close(engine, 1000);
        assert_true(nth > 10);
        break;
    }
}

static void each_allocation_of_a_model_may_fail(void **state) {
    NEEDS_MODEL;
    uint64_t nth = 0;
    int code;
    do {
        cohort_model *opened;
        cohort_error err;
        nth++;
        mem_fail_at(nth, 0);
        code = run_try_model("gemma3", &opened, &err);
        mem_fail_at(0, 0);
        if (code)
            assert_int_equal(code, COHORT_E_MEMORY);
        else
            cohort_model_close(opened);
    } while (code);
    assert_true(nth > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(f1_nan_logits_end_one_row, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(f1_nan_in_a_scored_prompt_ends_the_row, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(f1_nan_in_an_embedding_ends_the_row, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(f2_a_failed_launch_fails_its_rows, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(d2_a_row_that_has_ended_does_not_fail_with_the_next_iteration, reset,
                                        run_close_engine),
        cmocka_unit_test_setup_teardown(f4_a_broken_backend_fails_everything, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(q5_a_cancel_takes_one_iteration, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(d2_a_late_end_does_not_show, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(f3_each_allocation_may_fail, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(f1_a_ring_without_memory_ends_one_row, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(each_allocation_of_a_model_may_fail, reset, run_close_engine),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
