/* Mistakes inside the scheduler's memory, as a bug of its own would make them. */
#include "sim_canary.h"
#include "sched/sched_internal.h"

static struct row *row_of(const struct play *p, const struct request *r) {
    return row_at(p->s, sched_row_index(r->row.name));
}

void canary_submitted(struct play *p, struct request *r) {
    struct row *row = row_of(p, r);
    if (p->canary == CANARY_CUT && row->cuts_n > 0) row->cuts_n--;
    if (p->canary == CANARY_OVERTAKE && row->submitted > 10) {
        sched_line_remove(p->s, row);
        row->submitted -= 10;
        sched_line_push(p->s, row);
    }
}

static void forget(struct play *p) {
    for (uint32_t i = 0; i < p->live_n && !p->bitten; i++) {
        struct row *row = row_of(p, p->live[i]);
        if (row->list != LIST_WAITING || row->preemptions == 0) continue;
        sched_line_remove(p->s, row);
        p->bitten = 1;
    }
}

static void share_page(struct play *p) {
    const struct row *last = NULL;
    for (uint32_t i = 0; i < p->live_n && !p->bitten; i++) {
        struct row *row = row_of(p, p->live[i]);
        if (row->state != ROW_RUNNING || row->span[0].end == row->span[0].first) continue;
        if (last != NULL) {
            row_table(p->s, row, 0)[row->span[0].end - 1] = row_table(p->s, last, 0)[last->span[0].end - 1];
            p->bitten = 1;
        }
        last = row;
    }
}

static void mistake_victims(struct play *p) {
    for (uint32_t i = 0; i < p->live_n; i++) row_of(p, p->live[i])->admitted = 0;
}

void canary_disturb(struct play *p) {
    if (p->canary == CANARY_FORGOTTEN && !p->bitten) forget(p);
    if (p->canary == CANARY_SHARED && !p->bitten && p->now > 20) share_page(p);
    if (p->canary == CANARY_VICTIM) mistake_victims(p);
    if (p->canary == CANARY_CLAIMED && !p->bitten && p->now > 20 && p->s->claimed[0] > 0) {
        p->s->claimed[0]--;
        p->bitten = 1;
    }
}

void canary_plan(struct play *p) {
    if (p->canary == CANARY_STOLEN) p->s->tenants[0].served /= 2;
    if (p->canary == CANARY_SLOW) p->s->costs.added_ns /= 4;
}

void canary_planned(struct play *p, const struct plan *plan) {
    if (p->canary == CANARY_SLOW) p->s->costs.added_ns = (uint32_t)p->account.added_ns;
    if (plan == NULL) return;
    if (p->canary == CANARY_EARLY && sim_chance(&p->rng, 10))
        pages_unref(p->config.pages, 0, plan->items[0].table[0][plan->items[0].pos / PAGE_TOKENS]);
    if (p->canary == CANARY_LEAK && p->totals->plans == 100) pages_alloc(p->config.pages, 0);
}
