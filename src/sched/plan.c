/* Admission and iterations: who joins, which tokens each row takes, which pages they get, and what a commit gives back.
 * The engine's thread.
 *
 * An iteration's budget (batch_tokens, B) is shared like this. R running rows take one token each, always, but for
 * those that have no room just now (room.c). The m preparing rows share min(B - R, what the time allows (costs.c)), at
 * least m, in two rounds, in the order of their admission: in the first each is granted an equal part of half of it, at
 * least one token; in the second the oldest rows take all they can of the rest. So the oldest prompt gets at least
 * half, and every prompt advances in every iteration. Outputs are shared by the same rule. B >= rows_max makes the
 * single tokens always fit.
 *
 * Planning asks first (room, the grants) and changes after. Whatever a plan takes was claimed before, so taking pages
 * cannot fail. */
#include <assert.h>

#include "sched/sched_internal.h"

/* ---- Admission ---- */

static void row_admit(struct sched *s, struct row *r, const struct look *look) {
    assert(r->state == ROW_WAITING);
    assert(s->slot_free_n > 0); /* rows_max admitted, and as many leaving for each plan in flight */
    r->slot = s->slot_free[--s->slot_free_n];
    if (look->leader != NO_ROW) sched_follow(s, r, look);
    sched_room_claim(s, r);
    sched_share_take(s, r, look);
    sched_row_enter(s, r, ROW_PREPARING);
    r->admitted_unread = 1;
    sched_list_push(s, &s->admitted, r);
}

static int is_among(const struct sched *s, enum list_id list, uint32_t tenant) {
    for (uint32_t i = s->list[list].first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next)
        if (row_at(s, i)->tenant == tenant) return 1;
    return 0;
}

/* P1: the tokens that the rows that prepare have to read have a limit. It keeps a tenant's next row out while another
 * of its own prepares, but never its only one: long prompts of one tenant would hold up all others. */
static int cohort_is_full(const struct sched *s, const struct row *head, const struct look *look) {
    uint32_t unread = head->known - sched_max(look->position, look->until);
    uint32_t load = sched_min(unread, s->config.cohort_tokens / 2);
    if (s->cohort_load + load <= s->config.cohort_tokens) return 0;
    return is_among(s, LIST_PREPARING, head->tenant) || is_among(s, LIST_FOLLOWING, head->tenant);
}

/* The next in line (line.c) joins if there is a row and room for it, else everyone behind it waits: it will join,
 * because what it waits for is held by rows that end or that give it up. */
static void admit(struct sched *s) {
    struct row *head;
    struct look look;
    int yielded = 0;
    while ((head = sched_line_head(s)) != NULL) {
        uint32_t rows = s->state_n[ROW_PREPARING] + s->state_n[ROW_RUNNING] + s->trailing_n;
        sched_share_hope(s, head, &look);
        if (cohort_is_full(s, head, &look)) return;
        int full = rows >= s->config.rows_max || !sched_room_fits(s, head, &look);
        if (full && sched_room_giver(s, head) == NULL) return;
        sched_share_look(s, head, &look);
        if (cohort_is_full(s, head, &look)) return;
        if (full || !sched_room_fits(s, head, &look)) {
            struct row *giver = sched_room_giver(s, head);
            if (giver == NULL) return;
            sched_preempt(s, giver);
            yielded = 1;
            continue;
        }
        row_admit(s, head, &look);
        if (yielded) return; /* whoever gave way is admitted in a later plan, when all its tokens are read */
    }
}

/* ---- One row's item ---- */

/* Pages for positions up to `end`, one by one as the row reaches them. */
static void row_grow(struct sched *s, struct row *r, uint32_t end) {
    for (uint32_t g = 0; g < s->config.groups; g++) {
        const struct pages_shape *shape = &s->config.group[g];
        struct span *span = &r->span[g];
        uint32_t pages_end = pages_clamp(shape, (end + PAGE_TOKENS - 1) / PAGE_TOKENS);
        if (span->end < shape->begin) span->first = span->end = shape->begin;
        uint32_t *table = row_table(s, r, g);
        for (; span->end < pages_end; span->end++) {
            table[span->end] = PAGE_NONE;
            if (shape->recurrent && span->end + 1 < pages_end) continue;
            table[span->end] = prefix_alloc(s->prefix, g);
            assert(table[span->end] != PAGE_NONE);
            span->held++;
            s->held[g]++;
        }
        assert(span->held <= span->claim);
    }
}

static void item_pages(const struct sched *s, const struct row *r, struct plan_item *item) {
    uint32_t end = item->pos + item->n_tokens;
    for (uint32_t g = 0; g < s->config.groups; g++) {
        const uint32_t *table = item->table[g] = row_table(s, r, g);
        if (!s->config.group[g].recurrent) continue;
        item->from[g] = item->pos == 0 ? PAGE_NONE : table[(item->pos - 1) / PAGE_TOKENS];
        item->to[g] = table[(end - 1) / PAGE_TOKENS];
        assert(item->pos == 0 || item->from[g] != PAGE_NONE);
    }
}

/* The first of the row's cuts that it has not reached yet; UINT32_MAX if there is none. */
static uint32_t next_cut(const struct row *r) {
    uint32_t from = sched_max(r->next, r->reach);
    for (uint32_t i = 0; i < r->cuts_n; i++)
        if (r->cuts[i] > from) return r->cuts[i];
    return UINT32_MAX;
}

static uint32_t row_limit(const struct row *r) {
    return sched_min(r->chunk, sched_min(r->known, sched_min(next_cut(r), r->stop)) - r->next);
}

static void row_plan(struct sched *s, struct plan *p, struct row *r, uint32_t n) {
    assert(n >= 1);
    assert(p->n_items < s->config.rows_max);
    uint32_t pos = r->next, end = pos + n;
    int reads = r->state == ROW_PREPARING;
    uint32_t fresh = end > r->reach ? end - sched_max(pos, r->reach) : 0; /* tokens that were not planned before */
    int last = fresh > 0 && end >= r->prompt_n && (!reads || end == r->known), samples = last && r->max_new > 0;
    row_grow(s, r, end);

    struct plan_item *item = &p->items[p->n_items++];
    *item = (struct plan_item){
        .row = row_name(s, r),
        .pos = pos,
        .n_tokens = n,
        .source = reads ? PLAN_PROMPT : PLAN_SAMPLE,
        .n_outputs = reads && r->all_outputs ? fresh : (uint32_t)(samples || (last && r->last_output)),
        .samples = (uint8_t)samples,
        .sample_index = samples ? end - r->prompt_n : 0,
        .boundary = reads && fresh > 0 && end == next_cut(r),
    };
    item_pages(s, r, item);
    p->n_tokens += n;
    p->n_outputs += item->n_outputs;
    p->n_redone += n - fresh;
    if (reads && end > r->prompt_n) p->n_filled += sched_min(fresh, end - r->prompt_n);
    s->redone += n - fresh;
    r->redone += n - fresh;
    if (reads)
        p->n_prompt_tokens += n;
    else
        p->n_decode_tokens += n;
    sched_tenant_charge(s, r, fresh);

    r->next = end;
    r->reach = sched_max(r->reach, end);
    r->in_flight++;
    if (reads && end == r->known)
        sched_row_enter(s, r, ROW_RUNNING);
    else
        sched_row_settle(s, r);
}

/* ---- The iteration ---- */

static void plan_running(struct sched *s, struct plan *p) {
    uint32_t next;
    for (uint32_t i = s->list[LIST_RUNNING].first; i != NO_ROW; i = next) {
        struct row *r = row_at(s, i);
        next = r->link[LINK_PLACE].next; /* the row may be parked now */
        if (r->next < r->covered) row_plan(s, p, r, 1);
    }
}

/* What is left of an iteration for rows that prepare. */
struct left {
    uint32_t tokens, long_tokens; /* of all of them, and of those with long prompts among them */
    uint32_t outputs;             /* of rows that want one at each position */
};

static void take(struct left *left, struct row *r, uint32_t n) {
    n = sched_min(n, sched_min(row_limit(r) - r->granted, left->tokens));
    if (r->all_outputs) n = sched_min(n, left->outputs);
    int is_long = r->known > SCHED_SHORT_PROMPT;
    if (is_long) n = sched_min(n, left->long_tokens);
    r->granted += n;
    left->tokens -= n;
    if (is_long) left->long_tokens -= n;
    if (r->all_outputs) left->outputs -= n;
}

/* Three rounds of grants, into row.granted: a token for each row, an equal part of half of the rest, and then the
 * oldest rows take all they can. Of the rows that do not want an output at each position each may need one. */
static void grant(struct sched *s, const struct plan *p) {
    const struct list *list = &s->list[LIST_PREPARING];
    struct allowance allowed = sched_costs_allow(&s->costs, &s->config, p->n_decode_tokens, list->n);
    struct left left = {.outputs = s->config.outputs_max - p->n_outputs};
    left.tokens = sched_max(sched_min(s->config.batch_tokens - p->n_tokens, allowed.all), list->n);
    left.long_tokens = sched_max(sched_min(left.tokens, allowed.long_ones), list->n);
    uint32_t each = left.tokens / (2 * list->n), outputs_each = left.outputs / (2 * list->n);
    for (uint32_t i = list->first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next) {
        struct row *r = row_at(s, i);
        r->granted = 0;
        r->stop = sched_share_stop(s, r);
        left.outputs -= !r->all_outputs;
        take(&left, r, 1);
    }
    for (uint32_t i = list->first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next) {
        struct row *r = row_at(s, i);
        uint32_t part = r->all_outputs ? sched_min(each, outputs_each) : each;
        if (part > 1) take(&left, r, part - 1);
    }
    for (uint32_t i = list->first; i != NO_ROW && left.tokens > 0; i = row_at(s, i)->link[LINK_PLACE].next)
        take(&left, row_at(s, i), UINT32_MAX);
}

static void plan_preparing(struct sched *s, struct plan *p) {
    if (s->list[LIST_PREPARING].n == 0) return;
    grant(s, p);
    uint32_t next;
    for (uint32_t i = s->list[LIST_PREPARING].first; i != NO_ROW; i = next) {
        struct row *r = row_at(s, i);
        next = r->link[LINK_PLACE].next; /* the row may be running now */
        row_plan(s, p, r, r->granted);
    }
}

int sched_plan(struct sched *s, const struct plan **out) {
    *out = NULL;
    if (s->in_flight == SCHED_IN_FLIGHT) return 0;
    sched_orphans(s);
    if (sched_room_make(s)) admit(s);
    struct plan *p = plan_at(s, s->planned + 1);
    *p = (struct plan){.number = s->planned + 1, .items = p->items};
    plan_running(s, p);
    plan_preparing(s, p);
    if (p->n_items == 0) return 0;
    s->planned++;
    assert(p->n_tokens <= s->config.batch_tokens);
    assert(p->n_outputs <= s->config.outputs_max);
    s->in_flight++;
    *out = p;
    return 1;
}

/* The row's part of the oldest plan in flight is over. 1: it stays as it is. */
static int item_end(struct sched *s, struct row *r, const struct plan_item *item) {
    assert(r->generation == item->row >> 32);
    assert(r->in_flight > 0 && r->done == item->pos);
    r->in_flight--;
    r->done = item->pos + item->n_tokens;
    if (s->has_recurrent) sched_row_release_state(s, r, item->pos);
    if (r->state != ROW_ENDING && r->state != ROW_PREEMPTED) return 1;
    if (r->in_flight == 0 && r->state == ROW_ENDING)
        sched_row_leave(s, r);
    else if (r->in_flight == 0)
        sched_row_requeue(s, r);
    return 0;
}

static void plan_end(struct sched *s, const struct plan *plan) {
    assert(s->in_flight > 0);
    assert(plan == plan_at(s, s->planned - s->in_flight + 1));
    s->in_flight--;
}

/* A row's items follow each other without a gap, so the next one that reads its pages, planned or not, begins where
 * this one ended: what lies behind that one's window is read by nobody any more. Before it goes it is stored, and lent
 * to those that waited for it. */
void sched_commit(struct sched *s, const struct plan *plan, uint32_t us) {
    plan_end(s, plan);
    sched_costs_note(&s->costs, plan, us);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct row *r = row_at(s, sched_row_index(plan->items[i].row));
        if (!item_end(s, r, &plan->items[i])) continue;
        if (r->space != 0) { /* mostly there is no whole page more, and nobody follows */
            if (r->done / PAGE_TOKENS > r->stored) sched_share_publish(s, r);
            if (r->leads) sched_lead(s, r);
        }
        sched_row_release_window(s, r);
    }
}

void sched_abandon(struct sched *s, const struct plan *plan) {
    plan_end(s, plan);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct row *r = row_at(s, sched_row_index(plan->items[i].row));
        sched_share_disown(s, r);
        if (item_end(s, r, &plan->items[i])) sched_row_release_window(s, r);
    }
}
