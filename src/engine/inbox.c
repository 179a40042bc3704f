/* Handles, and the way from API threads to the engine thread. Short; every change is under engine.lock, but
 * requests are filled and freed outside it, by the one thread that has the handle then. The inbox is a list of handles,
 * each at most once with the set of what is wanted of it, so it needs no bound of its own. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "engine/internal.h"

enum { INDEX_BITS = 20 };
_Static_assert(2 * (SCHED_ROWS_MAX + SCHED_QUEUE_MAX) <= 1 << INDEX_BITS, "a handle's index fits its number");

static uint32_t index_of(const struct cohort_engine *e, const struct row *row) { return (uint32_t)(row - e->rows); }

struct row *inbox_find(struct cohort_engine *e, uint64_t id) {
    uint32_t index = (uint32_t)(id & ((1u << INDEX_BITS) - 1));
    if (id == 0 || index >= e->rows_n || atomic_load(&e->rows[index].id) != id) return NULL;
    return &e->rows[index];
}

/* ---- under lock ---- */
static void want(struct cohort_engine *e, struct row *row, uint8_t wants) {
    row->wants |= wants;
    if (row->queued) return;
    row->queued = 1;
    row->inbox_next = ROW_NONE;
    if (e->inbox_first == ROW_NONE)
        e->inbox_first = index_of(e, row);
    else
        e->rows[e->inbox_last].inbox_next = index_of(e, row);
    e->inbox_last = index_of(e, row);
    pthread_cond_signal(&e->wake);
}

static void handle_put(struct cohort_engine *e, struct row *row) {
    assert(row->state == HANDLE_FREE);
    row->free_next = e->free_first;
    e->free_first = index_of(e, row);
}

int inbox_closed_error(const struct cohort_engine *e, cohort_error *err) {
    if (e->failure.code) return err_set(err, COHORT_E_CLOSED, NULL, "the engine has stopped: %s", e->failure.text);
    return err_set(err, COHORT_E_CLOSED, NULL, "the engine is closing and takes no new work");
}

/* ---- handles that end ---- */
/* From any state to FREE. The row's memory is freed outside the lock. */
static void handle_free(struct cohort_engine *e, struct row *row) {
    atomic_store(&row->id, 0);
    row->state = HANDLE_FREE;
    row->wants = 0;
    pthread_mutex_unlock(&e->lock);
    row_clear(row);
    pthread_mutex_lock(&e->lock);
    handle_put(e, row);
}

void inbox_end(struct cohort_engine *e, struct row *row) {
    pthread_mutex_lock(&e->lock);
    assert(row->state == HANDLE_LIVE && e->active > 0);
    row->state = HANDLE_ENDED;
    if (row->dropped) handle_free(e, row);
    if (--e->active == 0) pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
}

void inbox_give_place_back(struct cohort_engine *e, const struct row *row, uint64_t now_us) {
    tenants_leave(e->tenants, row->request.tenant, row->admitted_us ? TENANTS_RAN : TENANTS_WAITED, now_us);
}

void inbox_fail(struct cohort_engine *e, const cohort_error *cause) {
    pthread_mutex_lock(&e->lock);
    e->failure = *cause;
    e->draining = 1;
    pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
}

void inbox_over(struct cohort_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->over = 1;
    pthread_mutex_unlock(&e->lock);
}

void inbox_want(struct cohort_engine *e, struct row *row, uint64_t id, uint8_t wants) {
    pthread_mutex_lock(&e->lock);
    if (atomic_load(&row->id) == id && row->state == HANDLE_LIVE) want(e, row, wants);
    pthread_mutex_unlock(&e->lock);
}

/* Sleeps until something is wanted or the earliest deadline has passed. Under lock. */
static void sleep_until_wanted(struct cohort_engine *e) {
    uint64_t due = deadlines_next(e); /* only the engine thread, which sleeps, changes it */
    struct timespec until = {.tv_sec = (time_t)(due / 1000000), .tv_nsec = (long)(due % 1000000) * 1000};
    int late = 0;
    while (!late && e->inbox_first == ROW_NONE && !e->stopping && !e->disk_news && !tasks_due(e))
        late = due == DUE_NEVER ? pthread_cond_wait(&e->wake, &e->lock)
                                : pthread_cond_timedwait(&e->wake, &e->lock, &until) == ETIMEDOUT;
}

int inbox_drain(struct cohort_engine *e, int may_sleep) {
    int n = 0;
    pthread_mutex_lock(&e->lock);
    if (may_sleep) sleep_until_wanted(e);
    e->disk_news = 0;
    while (e->inbox_first != ROW_NONE) {
        struct row *row = &e->rows[e->inbox_first];
        e->inbox_first = row->inbox_next;
        row->queued = 0;
        /* One that has ended is its reader's to free, and may be another's by the time it would be looked at. */
        if (row->wants && row->state == HANDLE_LIVE) e->drained[n++] = (struct drained){row, row->wants};
        row->wants = 0;
    }
    if (e->stopping) n = -1;
    pthread_mutex_unlock(&e->lock);
    return n;
}

/* ---- the public half ---- */
static int handle_take(struct cohort_engine *e, uint32_t tenant, cohort_ticket *out, cohort_error *err) {
    if (e->draining) return inbox_closed_error(e, err);
    uint64_t now = clock_us();
    int code = tenants_enter(e->tenants, tenant, now, err);
    if (code) return code;
    if (e->free_first == ROW_NONE) {
        tenants_leave(e->tenants, tenant, TENANTS_UNUSED, now);
        tenants_refused(e->tenants, tenant);
        return err_set(err, COHORT_E_BUSY, NULL, "too many ended requests were not dropped");
    }
    struct row *row = &e->rows[e->free_first];
    e->free_first = row->free_next;
    row->state = HANDLE_RESERVED;
    row->dropped = 0;
    row->tenant = tenant;
    *out = ++row->generation << INDEX_BITS | index_of(e, row);
    atomic_store(&row->id, *out);
    return 0;
}

int cohort_reserve_for(struct cohort_engine *e, uint32_t tenant, cohort_ticket *out, cohort_error *err) {
    *out = 0;
    pthread_mutex_lock(&e->lock);
    int code = handle_take(e, tenant, out, err);
    pthread_mutex_unlock(&e->lock);
    if (code == COHORT_E_BUSY) metrics_refused(e);
    return code;
}

int cohort_reserve(struct cohort_engine *e, cohort_ticket *out, cohort_error *err) {
    return cohort_reserve_for(e, 0, out, err);
}

void cohort_unreserve(struct cohort_engine *e, cohort_ticket ticket) {
    pthread_mutex_lock(&e->lock);
    struct row *row = inbox_find(e, ticket);
    if (row && row->state == HANDLE_RESERVED) {
        tenants_leave(e->tenants, row->tenant, TENANTS_UNUSED, clock_us());
        handle_free(e, row);
    }
    pthread_mutex_unlock(&e->lock);
}

int cohort_submit(struct cohort_engine *e, cohort_ticket ticket, const cohort_request *request, cohort_id *out,
                  cohort_error *err) {
    *out = 0;
    pthread_mutex_lock(&e->lock);
    struct row *row = inbox_find(e, ticket);
    if (!row || row->state != HANDLE_RESERVED) {
        pthread_mutex_unlock(&e->lock);
        return err_set(err, COHORT_E_ARGUMENT, "ticket", "not a reserved place, or used before");
    }
    row->state = HANDLE_FILLING;
    e->active++;
    int code = e->draining ? inbox_closed_error(e, err) : 0;
    pthread_mutex_unlock(&e->lock);

    if (!code) code = row_fill(e, row, request, err);
    if (!code) metrics_submitted(e, row);
    pthread_mutex_lock(&e->lock);
    if (!code && e->failure.code) code = inbox_closed_error(e, err);
    if (code) {
        tenants_leave(e->tenants, row->tenant, TENANTS_UNUSED, clock_us());
        handle_free(e, row);
        if (--e->active == 0) pthread_cond_broadcast(&e->idle);
    } else {
        row->state = HANDLE_LIVE;
        spans_submitted(e, row, request);
        want(e, row, WANT_SUBMIT);
        *out = ticket;
    }
    pthread_mutex_unlock(&e->lock);
    return code;
}

void cohort_cancel(struct cohort_engine *e, cohort_id id) {
    pthread_mutex_lock(&e->lock);
    struct row *row = inbox_find(e, id);
    if (row && row->state == HANDLE_LIVE) want(e, row, WANT_CANCEL);
    pthread_mutex_unlock(&e->lock);
}

void cohort_drop(struct cohort_engine *e, cohort_id id) {
    pthread_mutex_lock(&e->lock);
    struct row *row = inbox_find(e, id);
    if (row && row->state == HANDLE_ENDED) {
        handle_free(e, row);
    } else if (row && row->state == HANDLE_LIVE) {
        row->dropped = 1;
        want(e, row, WANT_CANCEL);
    }
    pthread_mutex_unlock(&e->lock);
}

void cohort_engine_drain(struct cohort_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->draining = 1;
    pthread_mutex_unlock(&e->lock);
}

int cohort_engine_idle(const struct cohort_engine *engine) {
    struct cohort_engine *e = (struct cohort_engine *)engine; /* only the lock is written */
    pthread_mutex_lock(&e->lock);
    int idle = (e->active == 0 || e->over) && e->tasks.n == 0;
    pthread_mutex_unlock(&e->lock);
    return idle;
}
