/* Mistakes inside the scheduler's memory, as a bug of its own would make them. */
#include "sim_canary.h"
#include "sched/sched_internal.h"

static struct row *row_of(const struct play *p, const struct request *r) {
    return row_at(p->s, sched_row_index(r->row.name));
}

void canary_configure(const struct play *p, struct sched_config *told) {
    for (uint32_t g = 0; g < told->groups && p->canary == CANARY_BORDER; g++) {
        told->group[g].begin += told->group[g].begin > 0;
        told->group[g].end += told->group[g].end > 0;
    }
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

static void lose_state(struct play *p, struct row *row) {
    for (uint32_t g = 0; g < p->config.groups; g++) {
        if (!p->config.group[g].recurrent) continue;
        uint32_t *entry = &row_table(p->s, row, g)[row->span[g].end - 1], page = prefix_alloc(p->config.prefix, g);
        if (page == PAGE_NONE) continue;
        prefix_unref(p->config.prefix, g, *entry);
        *entry = page;
    }
}

void canary_begun(struct play *p, struct account_row *r) {
    struct row *row = row_at(p->s, sched_row_index(r->name));
    if (!r->following || row->following || row->loading || row->taken == 0) return;
    if (p->canary == CANARY_STATELESS) lose_state(p, row);
    if (p->canary != CANARY_AHEAD || row->taken + PAGE_TOKENS >= row->known) return;
    for (uint32_t g = 0; g < p->config.groups; g++) {
        if (!sim_has(&p->config.group[g], row->taken)) continue;
        row_table(p->s, row, g)[row->span[g].end++] = prefix_alloc(p->config.prefix, g);
        row->span[g].held++;
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

/* While a plan is made the leaders do not know what is wanted of them. */
static void hide_followers(struct play *p, int hide) {
    for (uint32_t i = 0; i < p->live_n; i++) {
        struct row *row = row_of(p, p->live[i]);
        if (row->following && (hide || row->lead_until == 0)) row->lead_until = hide ? 0 : p->live[i]->row.lead_until;
    }
}

/* The page with the state from which an item will go on. */
static void give_early(struct play *p, const struct plan *plan) {
    const struct plan_item *item = &plan->items[sim_below(&p->rng, plan->n_items)];
    for (uint32_t g = 0; g < p->config.groups && !p->bitten; g++) {
        uint32_t from = item->from[g];
        if (!p->config.group[g].recurrent || item->pos == 0 || from == item->to[g]) continue;
        if (pages_count(p->config.pages, g, from) != 1) continue;
        pages_unref(p->config.pages, g, from);
        p->bitten = 1;
    }
}

void canary_plan(struct play *p) {
    if (p->canary == CANARY_UNSTOPPED && sim_recurs(&p->config)) hide_followers(p, 1);
    if (p->canary == CANARY_STOLEN) p->s->tenants[0].served /= 2;
    if (p->canary == CANARY_SLOW) p->s->costs.added_ns /= 4;
}

void canary_made(struct play *p) {
    if (p->canary == CANARY_UNSTOPPED && sim_recurs(&p->config)) hide_followers(p, 0);
}

void canary_planned(struct play *p, const struct plan *plan) {
    if (p->canary == CANARY_SLOW) p->s->costs.added_ns = (uint32_t)p->account.added_ns;
    if (plan == NULL) return;
    const struct plan_item *first = &plan->items[0];
    int early = p->canary == CANARY_EARLY && !p->config.group[0].recurrent && sim_has(&p->config.group[0], first->pos);
    if (early && sim_chance(&p->rng, 10)) pages_unref(p->config.pages, 0, first->table[0][first->pos / PAGE_TOKENS]);
    if (p->canary == CANARY_HASTY && !p->bitten && sim_chance(&p->rng, 100)) give_early(p, plan);
    if (p->canary == CANARY_LEAK && p->totals->plans >= 100 && !p->bitten)
        p->bitten = pages_alloc(p->config.pages, 0) != PAGE_NONE;
}
