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

/* The next block is stored although only its beginning is there. */
static void store_early(struct play *p) {
    for (uint32_t i = 0; i < p->live_n; i++) {
        struct row *row = row_of(p, p->live[i]);
        if (row->space == 0 || row->state != ROW_PREPARING || row->following || row->loading) continue;
        if (row->done % PAGE_TOKENS == 0 || row->stored != row->done / PAGE_TOKENS) continue;
        row->done += PAGE_TOKENS;
        sched_share_publish(p->s, row);
        row->done -= PAGE_TOKENS;
    }
}

static void unlist_follower(struct play *p) {
    for (uint32_t i = 0; i < p->live_n && !p->bitten; i++) {
        struct row *row = row_of(p, p->live[i]);
        if (!row->following || row->leader == NO_ROW) continue;
        sched_list_remove(p->s, &row_at(p->s, row->leader)->followers, row);
        p->bitten = 1;
    }
}

void canary_begun(struct play *p, struct account_row *r) {
    struct row *row = row_at(p->s, sched_row_index(r->name));
    if (p->canary != CANARY_AHEAD || !r->following || row->following || row->loading || row->taken == 0) return;
    if (row->taken + PAGE_TOKENS >= row->known) return;
    for (uint32_t g = 0; g < p->config.groups; g++) {
        row_table(p->s, row, g)[row->span[g].end++] = prefix_alloc(p->config.prefix, g);
        p->s->held[g]++;
    }
    row->taken += PAGE_TOKENS;
    row->next = row->done = row->taken;
    row->reach = sim_max(row->reach, row->taken);
}

void canary_disturb(struct play *p) {
    if (p->canary == CANARY_EAGER && sim_chance(&p->rng, 300)) store_early(p);
    if (p->canary == CANARY_WAKELESS && !p->bitten) unlist_follower(p);
    if (p->canary == CANARY_FORGOTTEN && !p->bitten) forget(p);
    if (p->canary == CANARY_SHARED && !p->bitten && p->now > 20) share_page(p);
    if (p->canary == CANARY_VICTIM && p->config.prefix == NULL) mistake_victims(p);
    if (p->canary == CANARY_CLAIMED && !p->bitten && p->now > 20 && p->config.prefix == NULL && p->s->claimed[0] > 0) {
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
    if (p->canary == CANARY_LEAK && p->totals->plans >= 100 && !p->bitten)
        p->bitten = pages_alloc(p->config.pages, 0) != PAGE_NONE;
}
