/* Tasks and the admission hold (X1, X2, Q4) through cohort.h, on a backend that can be held (fake_backend.h). Tasks
 * count their calls; cmocka's asserts belong to its own thread, so a task writes down what it saw. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_model.h"

static int32_t prompts[8][64];

static cohort_engine *open_engine(uint32_t rows, int pipeline, uint32_t ring_bytes) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = rows;
    o.queue = 16;
    o.pipeline = pipeline;
    o.ring_bytes = ring_bytes;
    return run_open_engine(model, &o);
}

static void make_request(uint32_t i, uint32_t tokens, cohort_request *q) {
    cohort_request_defaults(q);
    run_prompt(prompts[i], 20 + i, info.vocab_size, i);
    q->prompt = prompts[i];
    q->prompt_n = 20 + i;
    q->max_tokens = tokens;
    q->ignore_eos = 1;
    q->sampling.seed = i;
    q->sampling.has_seed = 1;
}

/* ---- tasks ---- */

struct job {
    cohort_engine *engine;
    cohort_task task;
    _Atomic int calls, code;
    int order;          /* of all calls */
    int batch_running;  /* what it saw */
    uint64_t finished;  /* requests that had */
    uint64_t generated; /* tokens that were */
    pthread_t thread;
    void (*also)(struct job *job);
    cohort_id id;
    int left;
};
static _Atomic int calls;

static void job_run(void *user, int code) {
    struct job *job = user;
    cohort_metrics m;
    job->order = ++calls;
    job->batch_running = fake_backend.running;
    job->thread = pthread_self();
    cohort_metrics_get(job->engine, &m);
    job->finished = m.requests_finished_length + m.requests_cancelled;
    job->generated = m.generated_tokens;
    job->code = code;
    if (job->also && code == COHORT_OK) job->also(job);
    job->calls++;
}

static void add(cohort_engine *engine, int kind, struct job *job) {
    cohort_error err = {0};
    job->engine = engine;
    job->code = 1;
    if (cohort_task_add(engine, kind, job_run, job, &job->task, &err) != 0) fail_msg("%s", err.text);
    assert_int_not_equal(job->task, 0);
}

#define ASSERT_RAN(job, with)                                                                                          \
    do {                                                                                                               \
        RUN_UNTIL((job)->calls > 0);                                                                                   \
        assert_int_equal((job)->calls, 1);                                                                             \
        assert_int_equal((job)->code, with);                                                                           \
    } while (0)

static uint64_t tasks_run(cohort_engine *engine) {
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    return m.tasks_run;
}

/* A row that runs for as long as nobody reads it, for tests that need something admitted. */
static cohort_id start_paused_row(cohort_engine *engine) {
    cohort_request q;
    cohort_metrics before, after;
    make_request(7, 400, &q);
    cohort_id id = run_submit(engine, &q);
    do {
        cohort_metrics_get(engine, &before);
        usleep(5000);
        cohort_metrics_get(engine, &after);
    } while (after.iterations == 0 || before.iterations != after.iterations);
    assert_int_equal(after.rows_running, 1);
    return id;
}

/* ---- X1 ---- */

/* Between iterations, in order, each once, on the engine's thread; and no row can tell. */
static void x1_read_tasks_run_at_boundaries(void **state) {
    NEEDS_MODEL;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        cohort_engine *engine = open_engine(2, pipeline, 64 << 10);
        struct job jobs[12];
        struct outcome want, got = {0};
        cohort_request q;
        memset(jobs, 0, sizeof(jobs));
        make_request(0, 100, &q);
        run_request(engine, &q, &want);
        calls = 0;
        fake_backend.delay_us = 1000;
        cohort_id id = run_submit(engine, &q);
        cohort_wait(engine, id, -1);
        for (int i = 0; i < 12; i++) {
            add(engine, COHORT_TASK_READ, &jobs[i]);
            usleep(1500);
        }
        for (int i = 0; i < 12; i++) {
            ASSERT_RAN(&jobs[i], COHORT_OK);
            assert_int_equal(jobs[i].order, i + 1);
            assert_int_equal(jobs[i].batch_running, 0);
            assert_true(pthread_equal(jobs[i].thread, jobs[0].thread) &&
                        !pthread_equal(jobs[i].thread, pthread_self()));
        }
        assert_true(jobs[11].generated < 200);
        run_finish(engine, id, &got);
        outcome_assert_equal(&want, &got, "a row with tasks between its iterations");
        assert_int_equal(tasks_run(engine), 12);
        outcome_free(&want);
        outcome_free(&got);
        fake_backend.delay_us = 0;
        run_close(1000);
    }
}

/* The sleeping loop wakes, and an engine with a task is not idle. */
static void x1_an_idle_engine_wakes(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1, 64 << 10);
    for (int i = 0; i < 20; i++) {
        struct job read = {0}, exclusive = {0};
        usleep(1000);
        add(engine, COHORT_TASK_READ, &read);
        add(engine, COHORT_TASK_EXCLUSIVE, &exclusive);
        RUN_UNTIL(cohort_engine_idle(engine));
        ASSERT_RAN(&read, COHORT_OK);
        ASSERT_RAN(&exclusive, COHORT_OK);
    }
    assert_int_equal(tasks_run(engine), 40);
    run_close(1000);
}

static void x1_a_cancelled_task_does_not_run(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1, 64 << 10);
    struct job jobs[3];
    cohort_request q;
    struct outcome out = {0};
    memset(jobs, 0, sizeof(jobs));
    make_request(0, 5, &q);
    fake_backend.hold = 1;
    cohort_id id = run_submit(engine, &q);
    RUN_UNTIL(fake_backend.running);
    usleep(10000); /* the iteration is launched: no boundary comes */
    for (int i = 0; i < 3; i++) add(engine, i == 1 ? COHORT_TASK_EXCLUSIVE : COHORT_TASK_READ, &jobs[i]);
    cohort_task_cancel(engine, jobs[0].task);
    cohort_task_cancel(engine, jobs[0].task);
    cohort_task_cancel(engine, jobs[1].task);
    cohort_task_cancel(engine, 0);
    cohort_task_cancel(engine, 12345);
    usleep(10000);
    for (int i = 0; i < 3; i++) assert_int_equal(jobs[i].calls, 0);
    assert_false(cohort_engine_idle(engine));
    fake_backend.hold = 0;
    ASSERT_RAN(&jobs[0], COHORT_E_CANCELLED);
    ASSERT_RAN(&jobs[1], COHORT_E_CANCELLED);
    ASSERT_RAN(&jobs[2], COHORT_OK);
    cohort_task_cancel(engine, jobs[2].task);
    run_finish(engine, id, &out);
    assert_int_equal(out.finish, COHORT_FINISH_LENGTH);
    outcome_free(&out);
    RUN_UNTIL(cohort_engine_idle(engine));
    for (int i = 0; i < 3; i++) assert_int_equal(jobs[i].calls, 1);
    assert_int_equal(tasks_run(engine), 1);
    run_close(1000);
}

static void x1_tasks_are_bounded_and_checked(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1, 64 << 10);
    static struct job jobs[COHORT_TASKS_MAX + 1];
    cohort_error err;
    cohort_task task = 77;
    memset(jobs, 0, sizeof(jobs));
    assert_int_equal(cohort_task_add(engine, 2, job_run, &jobs[0], &task, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "kind");
    assert_int_equal(task, 0);
    assert_int_equal(cohort_task_add(engine, COHORT_TASK_READ, NULL, NULL, NULL, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "run");
    cohort_request q;
    make_request(0, 5, &q);
    fake_backend.hold = 1;
    cohort_id id = run_submit(engine, &q);
    RUN_UNTIL(fake_backend.running);
    usleep(10000);
    for (int i = 0; i < COHORT_TASKS_MAX; i++) add(engine, COHORT_TASK_READ, &jobs[i]);
    task = 77;
    assert_int_equal(cohort_task_add(engine, COHORT_TASK_READ, job_run, &jobs[COHORT_TASKS_MAX], &task, &err),
                     COHORT_E_BUSY);
    assert_int_equal(task, 0);
    fake_backend.hold = 0;
    for (int i = 0; i < COHORT_TASKS_MAX; i++) ASSERT_RAN(&jobs[i], COHORT_OK);
    RUN_UNTIL(cohort_engine_idle(engine));
    assert_int_equal(jobs[COHORT_TASKS_MAX].calls, 0);
    cohort_drop(engine, id);
    run_close(1000);
}

/* Closing tells every task that will not run; drained ones did. */
static void x1_closing_tells_every_task(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 1, 1);
    struct job jobs[4], late = {0};
    memset(jobs, 0, sizeof(jobs));
    start_paused_row(engine);
    for (int i = 0; i < 4; i++) add(engine, i == 3 ? COHORT_TASK_READ : COHORT_TASK_EXCLUSIVE, &jobs[i]);
    ASSERT_RAN(&jobs[3], COHORT_OK);
    cohort_task_cancel(engine, jobs[1].task);
    ASSERT_RAN(&jobs[1], COHORT_E_CANCELLED);
    cohort_engine_drain(engine);
    cohort_error err;
    assert_int_equal(cohort_task_add(engine, COHORT_TASK_READ, job_run, &late, NULL, &err), COHORT_E_CLOSED);
    usleep(20000);
    assert_int_equal(jobs[0].calls + jobs[2].calls, 0);
    run_close(0);
    assert_int_equal(jobs[0].code, COHORT_E_CLOSED);
    assert_int_equal(jobs[2].code, COHORT_E_CLOSED);
    for (int i = 0; i < 4; i++) assert_int_equal(jobs[i].calls, 1);
    assert_true(jobs[0].order < jobs[2].order);
    assert_int_equal(late.calls, 0);
}

static void x1_a_failed_engine_tells_every_task(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1, 64 << 10);
    struct job jobs[3];
    cohort_request q;
    cohort_error err;
    struct outcome out = {0};
    memset(jobs, 0, sizeof(jobs));
    make_request(0, 5, &q);
    fake_backend.hold = 1;
    cohort_id id = run_submit(engine, &q);
    RUN_UNTIL(fake_backend.running);
    usleep(10000);
    for (int i = 0; i < 3; i++) add(engine, i == 1 ? COHORT_TASK_EXCLUSIVE : COHORT_TASK_READ, &jobs[i]);
    cohort_task_cancel(engine, jobs[2].task);
    fake_backend.break_wait = 1;
    fake_backend.hold = 0;
    ASSERT_RAN(&jobs[0], COHORT_E_CLOSED);
    ASSERT_RAN(&jobs[1], COHORT_E_CLOSED);
    ASSERT_RAN(&jobs[2], COHORT_E_CANCELLED);
    run_finish(engine, id, &out);
    outcome_free(&out);
    assert_int_equal(cohort_task_add(engine, COHORT_TASK_READ, job_run, &jobs[0], NULL, &err), COHORT_E_CLOSED);
    cohort_engine_hold(engine, 1);
    cohort_task_cancel(engine, jobs[0].task);
    for (int i = 0; i < 3; i++) assert_int_equal(jobs[i].calls, 1);
    assert_int_equal(tasks_run(engine), 0);
    run_close(60000);
}

static void submit_and_more(struct job *job) {
    cohort_request q;
    cohort_ticket ticket;
    cohort_id unwanted;
    make_request(3, 10, &q);
    int code = cohort_reserve(job->engine, &ticket, NULL);
    if (!code) code = cohort_submit(job->engine, ticket, &q, &unwanted, NULL);
    if (!code) code = cohort_reserve(job->engine, &ticket, NULL);
    if (!code) code = cohort_submit(job->engine, ticket, &q, &job->id, NULL);
    if (!code) {
        cohort_cancel(job->engine, unwanted);
        cohort_drop(job->engine, unwanted);
    }
    if (code) job->code = code;
}

static void add_again(struct job *job) {
    if (job->left-- > 0)
        cohort_task_add(job->engine, job->left % 2 ? COHORT_TASK_EXCLUSIVE : COHORT_TASK_READ, job_run, job, NULL,
                        NULL);
}

static void x1_a_task_may_use_the_engine(void **state) {
    NEEDS_MODEL;
    for (int kind = COHORT_TASK_READ; kind <= COHORT_TASK_EXCLUSIVE; kind++) {
        cohort_engine *engine = open_engine(2, 1, 64 << 10);
        cohort_request q;
        struct outcome want, got = {0};
        make_request(3, 10, &q);
        run_request(engine, &q, &want);
        struct job job = {.also = submit_and_more};
        add(engine, kind, &job);
        ASSERT_RAN(&job, COHORT_OK);
        run_finish(engine, job.id, &got);
        outcome_assert_equal(&want, &got, "what a task submitted");
        outcome_free(&want);
        outcome_free(&got);
        run_close(1000);
    }
}

/* One that adds itself again and again leaves the loop its turns, and rows their admission. */
static void x1_tasks_that_add_tasks_starve_nobody(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 1, 64 << 10);
    cohort_request q;
    struct outcome out[3];
    cohort_id id[3];
    memset(out, 0, sizeof(out));
    struct job job = {.also = add_again, .left = INT32_MAX};
    add(engine, COHORT_TASK_READ, &job);
    make_request(0, 50, &q);
    for (int i = 0; i < 3; i++) id[i] = run_submit(engine, &q);
    for (int i = 0; i < 3; i++) {
        run_finish(engine, id[i], &out[i]);
        assert_int_equal(out[i].ids_n, 50);
        outcome_free(&out[i]);
    }
    assert_true(job.calls > 3);
    assert_false(cohort_engine_idle(engine));
    run_close(0);
    assert_true(job.code == COHORT_E_CLOSED || job.code == COHORT_OK); /* or its last self could add no more */
}

/* ---- X2 ---- */

/* What was admitted ends and was delivered, nothing else runs; then the others come, with the same bytes. */
static void x2_exclusive_work_waits_for_a_drain(void **state) {
    NEEDS_MODEL;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        cohort_engine *engine = open_engine(2, pipeline, 64 << 10);
        struct outcome want[4], got[4];
        cohort_id id[4];
        cohort_request q;
        memset(got, 0, sizeof(got));
        for (uint32_t i = 0; i < 4; i++) {
            make_request(i, 30 + 10 * (i % 2), &q);
            run_request(engine, &q, &want[i]);
        }
        fake_backend.delay_us = 500;
        for (uint32_t i = 0; i < 4; i++) {
            make_request(i, 30 + 10 * (i % 2), &q);
            id[i] = run_submit(engine, &q);
        }
        RUN_UNTIL((run_take(engine, id[1], &got[1]), got[1].ids_n > 0));
        struct job job = {0};
        add(engine, COHORT_TASK_EXCLUSIVE, &job);
        ASSERT_RAN(&job, COHORT_OK);
        assert_int_equal(job.batch_running, 0);
        assert_int_equal(job.finished, 4 + 2);
        assert_int_equal(job.generated, 3 * (30 + 40)); /* all four alone before, and the two that were admitted */
        for (uint32_t i = 0; i < 4; i++) {
            run_finish(engine, id[i], &got[i]);
            outcome_assert_equal(&want[i], &got[i], "a row around exclusive work");
            outcome_free(&want[i]);
            outcome_free(&got[i]);
        }
        fake_backend.delay_us = 0;
        run_close(1000);
    }
}

/* Rows that were preempted were admitted, too: they come back under the hold, and end. */
static void x2_preempted_rows_end_before_exclusive_work(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = 3;
    o.queue = 16;
    o.kv_tokens = 640;
    cohort_engine *engine = run_open_engine(model, &o);
    struct outcome out[5];
    cohort_id id[5];
    cohort_request q;
    cohort_metrics m;
    memset(out, 0, sizeof(out));
    fake_backend.delay_us = 200;
    for (uint32_t i = 0; i < 5; i++) {
        make_request(i, 400, &q);
        id[i] = run_submit(engine, &q);
    }
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.preemptions > 0));
    struct job job = {0};
    add(engine, COHORT_TASK_EXCLUSIVE, &job);
    ASSERT_RAN(&job, COHORT_OK);
    assert_true(job.finished > 0 && job.finished < 5);
    assert_int_equal(job.generated, job.finished * 400); /* nobody was in the middle */
    fake_backend.delay_us = 0;
    for (uint32_t i = 0; i < 5; i++) {
        run_finish(engine, id[i], &out[i]);
        assert_int_equal(out[i].ids_n, 400);
        outcome_free(&out[i]);
    }
    run_close(1000);
}

/* Exclusive ones keep their order; reads do not wait for them; a cancelled one holds nothing back. */
static void x2_order_is_kept_and_reads_go_on(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1, 1);
    struct job jobs[5];
    struct outcome out = {0};
    cohort_request q;
    memset(jobs, 0, sizeof(jobs));
    calls = 0;
    cohort_id running = start_paused_row(engine);
    for (int i = 0; i < 4; i++) add(engine, COHORT_TASK_EXCLUSIVE, &jobs[i]);
    add(engine, COHORT_TASK_READ, &jobs[4]);
    ASSERT_RAN(&jobs[4], COHORT_OK);
    make_request(1, 5, &q);
    cohort_id waiting = run_submit(engine, &q);
    usleep(10000);
    for (int i = 0; i < 4; i++) assert_int_equal(jobs[i].calls, 0);
    cohort_task_cancel(engine, jobs[0].task);
    ASSERT_RAN(&jobs[0], COHORT_E_CANCELLED);
    assert_int_equal(cohort_wait(engine, waiting, 10), COHORT_E_AGAIN); /* still held by the others */
    cohort_drop(engine, running);
    for (int i = 1; i < 4; i++) {
        ASSERT_RAN(&jobs[i], COHORT_OK);
        assert_int_equal(jobs[i].order, 2 + i);
    }
    run_finish(engine, waiting, &out);
    assert_int_equal(out.finish, COHORT_FINISH_LENGTH);
    outcome_free(&out);
    run_close(1000);
}

static void x2_a_cancelled_task_lets_admission_go_on(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 1, 1);
    struct job job = {0};
    struct outcome out = {0};
    cohort_request q;
    start_paused_row(engine);
    add(engine, COHORT_TASK_EXCLUSIVE, &job);
    make_request(1, 5, &q);
    cohort_id waiting = run_submit(engine, &q);
    assert_int_equal(cohort_wait(engine, waiting, 20), COHORT_E_AGAIN);
    cohort_task_cancel(engine, job.task);
    run_finish(engine, waiting, &out);
    ASSERT_RAN(&job, COHORT_E_CANCELLED);
    outcome_free(&out);
    run_close(0);
}

/* ---- Q4 ---- */

static uint32_t waiting_rows(cohort_engine *engine) {
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    return m.rows_waiting;
}

/* Waiting requests stay in line, admitted ones go on; both holds together. */
static void q4_a_hold_stops_admission_alone(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(4, 1, 1);
    struct outcome out = {0};
    struct job job = {0};
    cohort_id id[3];
    cohort_request q;
    cohort_metrics m;
    cohort_id running = start_paused_row(engine);
    cohort_engine_hold(engine, 1);
    for (uint32_t i = 0; i < 3; i++) {
        make_request(i, 5, &q);
        id[i] = run_submit(engine, &q);
    }
    RUN_UNTIL(waiting_rows(engine) == 3);
    run_finish(engine, running, &out); /* reads it to its end */
    assert_int_equal(out.ids_n, 400);
    outcome_free(&out);
    usleep(10000);
    cohort_metrics_get(engine, &m);
    assert_int_equal(m.rows_waiting, 3);
    assert_int_equal(m.rows_running + m.rows_preparing, 0);
    add(engine, COHORT_TASK_EXCLUSIVE, &job);
    ASSERT_RAN(&job, COHORT_OK);
    assert_int_equal(cohort_wait(engine, id[0], 10), COHORT_E_AGAIN); /* the user's hold is still there */
    cohort_cancel(engine, id[2]);                                     /* also while it is held */
    memset(&out, 0, sizeof(out));
    run_finish(engine, id[2], &out);
    assert_int_equal(out.finish, COHORT_FINISH_CANCELLED);
    outcome_free(&out);
    cohort_engine_hold(engine, 0);
    for (uint32_t i = 0; i < 2; i++) {
        memset(&out, 0, sizeof(out));
        run_finish(engine, id[i], &out);
        assert_int_equal(out.ids_n, 5);
        outcome_free(&out);
    }
    run_close(1000);
}

static void q4_letting_go_does_not_end_a_tasks_hold(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(4, 1, 1);
    struct outcome out = {0};
    struct job job = {0};
    cohort_request q;
    cohort_id running = start_paused_row(engine);
    cohort_engine_hold(engine, 1);
    cohort_engine_hold(engine, 1); /* it is a switch, not a count */
    add(engine, COHORT_TASK_EXCLUSIVE, &job);
    make_request(1, 5, &q);
    cohort_id waiting = run_submit(engine, &q);
    cohort_engine_hold(engine, 0);
    assert_int_equal(cohort_wait(engine, waiting, 20), COHORT_E_AGAIN);
    assert_int_equal(job.calls, 0);
    cohort_drop(engine, running);
    ASSERT_RAN(&job, COHORT_OK);
    run_finish(engine, waiting, &out);
    outcome_free(&out);
    run_close(1000);
}

/* Draining refuses new tasks and runs those that are there; the engine is idle behind them. */
static void q4_draining_runs_what_is_there(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 1, 64 << 10);
    struct job jobs[2];
    cohort_id id[3];
    cohort_request q;
    cohort_error err;
    memset(jobs, 0, sizeof(jobs));
    fake_backend.delay_us = 300;
    make_request(0, 20, &q);
    for (uint32_t i = 0; i < 3; i++) id[i] = run_submit(engine, &q);
    for (int i = 0; i < 2; i++) add(engine, i ? COHORT_TASK_READ : COHORT_TASK_EXCLUSIVE, &jobs[i]);
    cohort_engine_drain(engine);
    assert_int_equal(cohort_task_add(engine, COHORT_TASK_READ, job_run, &jobs[0], NULL, &err), COHORT_E_CLOSED);
    RUN_UNTIL(cohort_engine_idle(engine));
    for (int i = 0; i < 2; i++) ASSERT_RAN(&jobs[i], COHORT_OK);
    for (uint32_t i = 0; i < 3; i++) {
        struct outcome out = {0};
        run_finish(engine, id[i], &out);
        assert_int_equal(out.ids_n, 20);
        outcome_free(&out);
    }
    run_close(1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(x1_read_tasks_run_at_boundaries, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x1_an_idle_engine_wakes, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x1_a_cancelled_task_does_not_run, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x1_tasks_are_bounded_and_checked, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x1_closing_tells_every_task, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x1_a_failed_engine_tells_every_task, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x1_a_task_may_use_the_engine, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x1_tasks_that_add_tasks_starve_nobody, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x2_exclusive_work_waits_for_a_drain, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x2_preempted_rows_end_before_exclusive_work, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x2_order_is_kept_and_reads_go_on, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(x2_a_cancelled_task_lets_admission_go_on, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(q4_a_hold_stops_admission_alone, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(q4_letting_go_does_not_end_a_tasks_hold, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(q4_draining_runs_what_is_there, reset, run_close_engine),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
