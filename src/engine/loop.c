/* The engine thread: one turn after the other until it is told to stop.
 *
 *   pipelined   drain, plan and launch N+1 | masks of N+1, deliver N (N+1 runs) | wait for N+1, commit it
 *   serial      drain, plan and launch N | masks of N (it runs) | wait for N, commit it | deliver N
 *
 * Nothing is in flight between turns. A pipelined plan is made from lengths alone, before anybody has read the tokens
 * of the iteration before; rows that turn out to have ended there run once too often, and deliver.c drops what they
 * made. With nothing to plan and nothing to deliver the thread sleeps until the inbox gets something, a task can run or
 * a deadline passes. */
#include <assert.h>

#include "base/clock.h"
#include "engine/internal.h"

void loop_end_unscheduled(struct cohort_engine *e, struct row *row) {
    cache_leave(e, row, 0);
    inbox_end(e, row);
}

/* 0: the handle may be another's already. */
static int submit_row(struct cohort_engine *e, struct row *row) {
    cohort_error err = {0};
    deadlines_submitted(e, row);
    if (!replay_run(e, row, clock_us())) { /* its reader is waited for */
        atomic_store(&row->paused, 1);
        if (row_has_room(row)) inbox_want(e, row, atomic_load(&row->id), WANT_RESUME);
        return 1;
    }
    if (row->finished) {
        loop_end_unscheduled(e, row);
        return 0;
    }
    cache_enter(e, row);
    struct sched_request wanted = row_wanted(&row->request, row->request.max_new);
    wanted.space = row->space;
    sched_row name;
    int code = sched_reserve(e->sched, &name);
    if (!code) {
        code = sched_submit(e->sched, name, &wanted, &err);
        if (code) sched_unreserve(e->sched, name);
    }
    if (code) { /* everything was checked at submit, so this is a fault of ours: it still ends only this row */
        deliver_finish(e, row, COHORT_FINISH_ERROR, code, err.text[0] ? err.text : cohort_error_text(code));
        loop_end_unscheduled(e, row);
        return 0;
    }
    row->sched = name;
    e->by_sched[sched_row_index(name)] = row;
    return 1;
}

static void take_wants(struct cohort_engine *e, int n) {
    for (int i = 0; i < n; i++) {
        struct row *row = e->drained[i].row;
        uint8_t wants = e->drained[i].wants;
        if ((wants & WANT_SUBMIT) && !submit_row(e, row)) continue;
        if (row->finished) continue;
        if (wants & WANT_CANCEL) {
            spans_cancel(e, row);
            deliver_finish(e, row, COHORT_FINISH_CANCELLED, COHORT_E_CANCELLED, cohort_error_text(COHORT_E_CANCELLED));
            if (!row->sched) loop_end_unscheduled(e, row);
        } else if ((wants & WANT_RESUME) && atomic_load(&row->paused) && row_has_room(row)) {
            atomic_store(&row->paused, 0);
            if (row->sched)
                sched_pause(e->sched, row->sched, 0);
            else
                submit_row(e, row); /* its replay goes on */
        }
    }
}

/* Lets go of rows that the scheduler has forgotten: nothing in flight names them any more. What is undelivered may
 * still name one, though it has nothing to say to it: its reader can have it freed and filled anew at any time from
 * here on, so it is looked at no more. */
static void reap(struct cohort_engine *e) {
    sched_row name;
    int forgotten = 0;
    while (sched_pop_gone(e->sched, &name)) {
        if (!forgotten && e->unread) iteration_forget_finished(e->unread);
        forgotten = 1;
        struct row *row = e->by_sched[sched_row_index(name)];
        assert(row && row->sched == name && row->finished);
        e->by_sched[sched_row_index(name)] = NULL;
        cache_leave(e, row, sched_stored(e->sched, name));
        inbox_end(e, row);
    }
}

static void note_admitted(struct cohort_engine *e) {
    sched_row name;
    uint64_t now = 0;
    while (sched_pop_admitted(e->sched, &name)) {
        struct row *row = e->by_sched[sched_row_index(name)];
        if (!now) now = clock_us();
        spans_admitted(e, row, now);
        if (row->admitted_us) continue; /* again, after it was preempted */
        tenants_admitted(e->tenants, row->request.tenant);
        row->admitted_us = now;
        metrics_admitted(e, row);
    }
}

/* An iteration that could not be launched: its rows end, the others go on (F2). */
static void fail_rows(struct cohort_engine *e, struct iteration *it, int code) {
    for (uint32_t i = 0; i < it->n_items; i++)
        if (!it->items[i].row->finished)
            deliver_finish(e, it->items[i].row, COHORT_FINISH_ERROR, code, "the iteration could not be started");
}

/* *moved: pages were copied, or loads began. 1: *out runs. 0: nothing to plan. A negative code: *out could not be
 * started, and its rows must fail. */
static int launch(struct cohort_engine *e, struct iteration **out, int *moved) {
    const struct plan *plan;
    *out = NULL;
    int planned = sched_plan(e->sched, &plan);
    note_admitted(e);
    *moved = cache_moves(e);
    if (!planned) return 0;
    struct iteration *it = &e->iterations[e->turn++ % ENGINE_ITERATIONS];
    assert(it != e->unread);
    *out = it;
    int code = iteration_launch(it, plan);
    if (code == 0) return 1;
    sched_abandon(e->sched, plan);
    return code;
}

/* Ends every request that has not ended. */
static void finish_all(struct cohort_engine *e, cohort_finish how, int code, const char *text) {
    for (uint32_t i = 0; i < e->rows_n; i++) {
        struct row *row = &e->rows[i];
        pthread_mutex_lock(&e->lock);
        int live = row->state == HANDLE_LIVE;
        pthread_mutex_unlock(&e->lock);
        if (live && !row->finished) deliver_finish(e, row, how, code, text);
    }
}

/* F4: the loop cannot go on. Everything pending fails with the cause, and the memory that a broken backend may still
 * use stays until the engine is closed. */
static void fail_engine(struct cohort_engine *e, int code) {
    cohort_error cause;
    err_set(&cause, code, NULL, "the backend failed: %s", cohort_error_text(code));
    inbox_fail(e, &cause);
    metrics_unhealthy(e);
    int n = inbox_drain(e, 0);
    take_wants(e, n < 0 ? 0 : n);
    finish_all(e, COHORT_FINISH_ERROR, COHORT_E_INTERNAL, cause.text);
    tasks_end(e);
    cache_end(e, 0);
    inbox_over(e);
    while (inbox_drain(e, 1) >= 0)
        ;
}

/* Waits for the iteration and gives its plan back. Adds to *step what it took. */
static int complete(struct cohort_engine *e, struct iteration *it, struct metrics_step *step) {
    int code = backend_wait(e->program, &step->forward_us);
    if (code) return code;
    it->done_us = e->last_wait_us = clock_us();
    sched_commit(e->sched, it->plan, (uint32_t)(it->done_us - it->launched_us));
    it->plan = NULL;
    metrics_iteration(e, it);
    return 0;
}

static uint64_t deliver(struct cohort_engine *e, struct iteration *it) {
    uint64_t begin = clock_us();
    spans_steps(e, it);
    deliver_iteration(e, it);
    uint64_t end = clock_us();
    spans_iteration(e, it, begin, end);
    return end - begin;
}

/* 1: something was done; 0: nothing to do; a negative code: the loop cannot go on. `begin`: when the turn began. */
static int turn(struct cohort_engine *e, uint64_t begin) {
    struct metrics_step step = {0};
    struct iteration *it, *unread = e->unread;
    uint64_t last_wait = e->last_wait_us;
    int moved, launched = launch(e, &it, &moved);
    if (launched > 0) {
        iteration_prepare_masks(it);
        it->begun_us = begin;
        it->idle_since_us = last_wait;
        step.build_us = it->launched_us - begin;
        step.gap_us = last_wait ? it->launched_us - last_wait : 0;
    }
    moved |= cache_writes(e);
    e->unread = NULL;
    if (unread) step.deliver_us = deliver(e, unread);
    if (launched < 0) fail_rows(e, it, launched); /* but for those that ended in the one just delivered (D2) */
    if (launched > 0) {
        int code = complete(e, it, &step);
        if (code) return code;
        if (e->options.pipeline)
            e->unread = it;
        else
            step.deliver_us = deliver(e, it);
    }
    reap(e);
    metrics_step(e, &step);
    return launched != 0 || unread != NULL || moved;
}

void *loop_main(void *engine) {
    struct cohort_engine *e = engine;
    int worked = 1, n;
    for (;;) {
        if (!worked) {
            e->last_wait_us = 0;
            metrics_asleep(e);
        }
        if ((n = inbox_drain(e, !worked)) < 0) break;
        if (!worked) metrics_awake(e);
        uint64_t begin = clock_us();
        take_wants(e, n);
        deadlines_run(e, begin);
        tasks_boundary(e);
        int moved = cache_turn(e);
        worked = turn(e, begin);
        if (worked < 0) {
            fail_engine(e, worked);
            return NULL;
        }
        worked |= moved;
    }
    finish_all(e, COHORT_FINISH_CANCELLED, COHORT_E_CANCELLED, "the engine is closed");
    cache_end(e, 1);
    tasks_end(e);
    return NULL;
}
