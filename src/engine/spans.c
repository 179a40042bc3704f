/* What the engine tells the trace: each call makes one record of what its caller knows, or returns at once when there
 * is no trace. spans_submitted runs on the submitting thread, before the engine thread can see the row; the rest on the
 * engine thread. row->span is the phase that is open in the file. */
#include <string.h>

#include "base/clock.h"
#include "engine/internal.h"

void spans_submitted(struct cohort_engine *e, struct row *row, const cohort_request *q) {
    if (!e->trace) return;
    struct trace_record r = {.kind = TRACE_SUBMITTED,
                             .request = atomic_load(&row->id),
                             .begin_us = row->request.submitted_us,
                             .submitted = {.prompt_n = row->request.prompt_n, .max_new = row->request.max_new}};
    memcpy(r.submitted.trace_id, q->trace_id, sizeof r.submitted.trace_id);
    memcpy(r.submitted.parent_id, q->trace_parent, sizeof r.submitted.parent_id);
    row->span = TRACE_PHASE_QUEUE;
    trace_push(e->trace, &r);
}

static void instant(struct cohort_engine *e, const struct row *row, enum trace_instant what) {
    trace_push(e->trace, &(struct trace_record){.kind = TRACE_INSTANT,
                                                .request = atomic_load(&row->id),
                                                .begin_us = clock_us(),
                                                .instant = {.what = (uint8_t)what}});
}

void spans_admitted(struct cohort_engine *e, struct row *row, uint64_t now_us) {
    if (!e->trace) return;
    if (row->span != TRACE_PHASE_QUEUE) { /* its state was given up meanwhile */
        instant(e, row, TRACE_PREEMPTED);
        return;
    }
    row->span = TRACE_PHASE_PREFILL;
    trace_push(e->trace,
               &(struct trace_record){.kind = TRACE_ADMITTED, .request = atomic_load(&row->id), .begin_us = now_us});
}

void spans_decodes(struct cohort_engine *e, struct row *row, uint64_t now_us) {
    if (!e->trace || row->span != TRACE_PHASE_PREFILL) return;
    row->span = TRACE_PHASE_DECODE;
    trace_push(e->trace,
               &(struct trace_record){.kind = TRACE_DECODES, .request = atomic_load(&row->id), .begin_us = now_us});
}

void spans_cancel(struct cohort_engine *e, const struct row *row) {
    if (e->trace) instant(e, row, TRACE_CANCEL);
}

void spans_finished(struct cohort_engine *e, const struct row *row, uint64_t now_us) {
    if (!e->trace) return;
    trace_push(e->trace, &(struct trace_record){.kind = TRACE_FINISHED,
                                                .request = atomic_load(&row->id),
                                                .begin_us = now_us,
                                                .finished = {.phase = row->span,
                                                             .finish = (uint8_t)row->final.finish,
                                                             .code = row->final.error.code,
                                                             .stats = row->final.stats}});
}

static void step(struct cohort_engine *e, const struct iteration *it, const struct iteration_item *item) {
    const struct row *row = item->row;
    struct trace_record r = {.kind = TRACE_STEP,
                             .request = atomic_load(&row->id),
                             .begin_us = it->launched_us,
                             .end_us = it->done_us,
                             .step = {.iteration = it->number,
                                      .pos = item->pos,
                                      .n_tokens = item->n_tokens,
                                      .prompt = item->prompt,
                                      .boundary = item->boundary,
                                      .first_token = item->samples && row->span == TRACE_PHASE_PREFILL}};
    for (uint32_t g = 0; r.step.first_token && g < e->groups; g++) {
        r.step.pages_total += pages_total(e->pages, g);
        r.step.pages_used += pages_total(e->pages, g) - pages_available(e->pages, g);
    }
    trace_push(e->trace, &r);
}

void spans_steps(struct cohort_engine *e, const struct iteration *it) {
    if (!e->trace) return;
    for (uint32_t i = 0; i < it->n_items; i++) {
        const struct iteration_item *item = &it->items[i];
        if (item->row && !item->row->finished) step(e, it, item);
    }
}

void spans_iteration(struct cohort_engine *e, const struct iteration *it, uint64_t deliver_us, uint64_t end_us) {
    if (!e->trace) return;
    trace_push(e->trace, &(struct trace_record){.kind = TRACE_ITERATION,
                                                .begin_us = it->begun_us,
                                                .end_us = end_us,
                                                .iteration = {.number = it->number,
                                                              .idle_since_us = it->idle_since_us,
                                                              .launched_us = it->launched_us,
                                                              .done_us = it->done_us,
                                                              .deliver_us = deliver_us,
                                                              .rows = it->n_items,
                                                              .prompt_tokens = it->n_prompt_tokens,
                                                              .redone_tokens = it->n_redone,
                                                              .decode_tokens = it->n_tokens - it->n_prompt_tokens}});
}
