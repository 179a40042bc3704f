/* Requests that end by themselves when their time is over. Engine thread only.
 *
 * A heap of the rows that have a deadline, the earliest in front, so a turn looks at one number and nothing is ever
 * searched. Invariant: a row is in the heap exactly while its due_us is not DUE_NEVER, which holds from its submission,
 * or from the newline that makes its prediction limit count, until it finishes. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/internal.h"

int deadlines_init(struct cohort_engine *e) {
    e->due = mem_alloc(e->rows_n, sizeof(*e->due));
    return e->due ? 0 : COHORT_E_MEMORY;
}

void deadlines_deinit(struct cohort_engine *e) { mem_free(e->due); }

static void put(struct cohort_engine *e, struct row *row, uint32_t at) {
    e->due[at] = row;
    row->due_heap = at;
}

static void sift_up(struct cohort_engine *e, struct row *row, uint32_t at) {
    for (; at > 0; at = (at - 1) / 2) {
        struct row *parent = e->due[(at - 1) / 2];
        if (parent->due_us <= row->due_us) break;
        put(e, parent, at);
    }
    put(e, row, at);
}

static void sift_down(struct cohort_engine *e, struct row *row, uint32_t at) {
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= e->due_n) break;
        if (child + 1 < e->due_n && e->due[child + 1]->due_us < e->due[child]->due_us) child++;
        if (row->due_us <= e->due[child]->due_us) break;
        put(e, e->due[child], at);
        at = child;
    }
    put(e, row, at);
}

static void take_out(struct cohort_engine *e, struct row *row) {
    uint32_t at = row->due_heap;
    assert(at < e->due_n && e->due[at] == row);
    struct row *moved = e->due[--e->due_n];
    row->due_us = DUE_NEVER;
    if (moved == row) return;
    if (at > 0 && moved->due_us < e->due[(at - 1) / 2]->due_us)
        sift_up(e, moved, at);
    else
        sift_down(e, moved, at);
}

static void put_in(struct cohort_engine *e, struct row *row, uint64_t due_us) {
    if (row->due_us <= due_us) return; /* the earlier one counts */
    if (row->due_us != DUE_NEVER) take_out(e, row);
    assert(e->due_n < e->rows_n);
    row->due_us = due_us;
    sift_up(e, row, e->due_n++);
}

static uint64_t timeout_due(const struct row_request *r) {
    return r->timeout_ms ? r->submitted_us + r->timeout_ms * 1000ull : DUE_NEVER;
}

void deadlines_submitted(struct cohort_engine *e, struct row *row) { put_in(e, row, timeout_due(&row->request)); }

void deadlines_forget(struct cohort_engine *e, struct row *row) {
    if (row->due_us != DUE_NEVER) take_out(e, row);
}

void deadlines_text(struct cohort_engine *e, struct row *row, uint64_t now) {
    uint32_t limit_ms = row->request.max_predict_ms;
    if (limit_ms == 0 || row->newline || !memchr(e->text.data, '\n', e->text.len)) return;
    row->newline = 1;
    uint64_t due = row->first_us + limit_ms * 1000ull;
    if (due <= now)
        deliver_finish(e, row, COHORT_FINISH_LENGTH, 0, NULL);
    else
        put_in(e, row, due);
}

uint64_t deadlines_next(const struct cohort_engine *e) { return e->due_n ? e->due[0]->due_us : DUE_NEVER; }

void deadlines_run(struct cohort_engine *e, uint64_t now) {
    while (deadlines_next(e) <= now) {
        struct row *row = e->due[0];
        int scheduled = row->sched != 0;        /* else it replays, and nothing but this ends it */
        if (now < timeout_due(&row->request)) { /* then it is its prediction limit */
            deliver_finish(e, row, COHORT_FINISH_LENGTH, 0, NULL);
        } else {
            char text[80];
            snprintf(text, sizeof(text), "the request's time of %u ms is over", row->request.timeout_ms);
            deliver_finish(e, row, COHORT_FINISH_ERROR, COHORT_E_TIMEOUT, text);
        }
        if (!scheduled) loop_end_unscheduled(e, row);
    }
}
