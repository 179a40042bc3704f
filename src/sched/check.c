/* sched_check: every invariant of the scheduler, by walking all of it. Reads only, save for its own page counts. For
 * tests and for a debugger; production never calls it. */
#include <string.h>

#include "sched/sched_internal.h"

#define HOLDS(fact)                                                                                                    \
    do {                                                                                                               \
        if (!(fact)) return 0;                                                                                         \
    } while (0)

/* ---- Lists and counts ---- */

static int check_list(const struct sched *s, enum list_id id) {
    const struct list *list = &s->list[id];
    uint32_t n = 0, prev = NO_ROW;
    for (uint32_t i = list->first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next) {
        HOLDS(i < s->rows_total && n++ < list->n); /* a longer walk runs in a circle */
        const struct row *r = row_at(s, i);
        HOLDS(r->link[LINK_PLACE].prev == prev);
        HOLDS(r->list == id && sched_row_list(r) == id);
        prev = i;
    }
    return n == list->n && prev == list->last;
}

static int check_lists(const struct sched *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < LISTS; i++) {
        HOLDS(check_list(s, (enum list_id)i));
        n += s->list[i].n;
    }
    HOLDS(n == s->rows_total);

    uint32_t prev = NO_ROW;
    n = 0;
    for (uint32_t i = s->admitted.first; i != NO_ROW; i = row_at(s, i)->link[LINK_ADMITTED].next) {
        HOLDS(i < s->rows_total && n++ < s->admitted.n);
        const struct row *r = row_at(s, i);
        HOLDS(r->link[LINK_ADMITTED].prev == prev);
        HOLDS(r->admitted_unread && (r->state == ROW_PREPARING || r->state == ROW_RUNNING));
        prev = i;
    }
    return n == s->admitted.n && prev == s->admitted.last;
}

/* K3: what all claims cost together; in full groups a shared page once. */
static int check_claims(const struct sched *s) {
    uint64_t claimed[PAGES_GROUPS_MAX] = {0}, held[PAGES_GROUPS_MAX] = {0};
    for (uint32_t i = 0; i < s->rows_total; i++)
        for (uint32_t g = 0; g < s->config.groups; g++) {
            claimed[g] += row_at(s, i)->span[g].claim;
            held[g] += row_at(s, i)->span[g].held;
        }
    for (uint32_t g = 0; g < s->config.groups; g++) {
        uint32_t total = pages_total(s->config.pages, g), used = prefix_used(s->prefix, g);
        HOLDS(claimed[g] == s->claimed[g] && held[g] == s->held[g] && used <= held[g]);
        HOLDS((s->config.group[g].window != 0 ? claimed[g] : claimed[g] - held[g] + used) <= total);
    }
    return 1;
}

static int check_counts(const struct sched *s) {
    uint32_t state_n[ROW_STATES] = {0}, paused = 0, unread = 0, in_flight = 0, spent = 0, growing = 0, returning = 0;
    uint64_t load = 0, tokens = 0;
    for (uint32_t i = 0; i < s->rows_total; i++) {
        const struct row *r = row_at(s, i);
        HOLDS(r->generation != 0 && r->state < ROW_STATES);
        state_n[r->state]++;
        paused += r->paused;
        unread += r->admitted_unread;
        in_flight += r->in_flight;
        HOLDS(r->load == sched_row_load(s, r));
        load += r->load;
        HOLDS(r->spent == (r->state == ROW_RUNNING && row_spent(r)));
        spent += r->spent;
        growing += r->grows;
        returning += r->state == ROW_WAITING && r->preemptions > 0;
        if (r->slot != NO_SLOT && !r->loading) tokens += r->next - r->done;
    }
    HOLDS(memcmp(state_n, s->state_n, sizeof state_n) == 0);
    HOLDS(paused == s->paused_n && unread == s->admitted.n && load == s->cohort_load);
    HOLDS(spent == s->spent_n && growing == s->growing_n && returning == s->returning_n);
    HOLDS(check_claims(s));
    HOLDS(state_n[ROW_PREPARING] + state_n[ROW_RUNNING] + s->trailing_n <= s->config.rows_max);
    HOLDS(state_n[ROW_ENDING] - s->trailing_n + state_n[ROW_PREEMPTED] <= SCHED_IN_FLIGHT * s->config.rows_max);
    HOLDS(state_n[ROW_RESERVED] + state_n[ROW_WAITING] + state_n[ROW_PREPARING] + state_n[ROW_RUNNING] +
              state_n[ROW_PREEMPTED] <=
          s->config.rows_max + s->config.queue_max);
    for (uint32_t k = 0; k < s->in_flight; k++) {
        const struct plan *p = &s->plans[(s->planned - k) % SCHED_IN_FLIGHT];
        in_flight -= p->n_items;
        tokens -= p->n_tokens;
    }
    return in_flight == 0 && tokens == 0;
}

/* ---- Rows that wait for others' state ---- */

/* The followers of one leader, the orphans, or those whose load nobody was told of. */
static int check_share_list(const struct sched *s, const struct list *list, uint32_t leader, uint32_t *n) {
    uint32_t prev = NO_ROW, left = list->n;
    for (uint32_t i = list->first; i != NO_ROW; i = row_at(s, i)->link[LINK_SHARE].next) {
        HOLDS(i < s->rows_total && left-- > 0);
        const struct row *r = row_at(s, i);
        HOLDS(r->link[LINK_SHARE].prev == prev && r->leader == leader);
        HOLDS(list == &s->loads ? r->loading && r->unfetched : r->following);
        HOLDS(leader == NO_ROW || r->lead_until > row_at(s, leader)->done);
        prev = i;
        ++*n;
    }
    return left == 0 && prev == list->last;
}

static int check_followers(const struct sched *s) {
    uint32_t following = 0, loading = 0, trailing = 0, unfetched = 0, leads = 0, listed = 0, loads = 0;
    for (uint32_t i = 0; i < s->rows_total; i++) {
        const struct row *r = row_at(s, i);
        following += r->following;
        loading += r->loading;
        trailing += r->loading && r->state == ROW_ENDING;
        unfetched += r->unfetched;
        leads += r->leads;
        HOLDS(!r->leads || ((r->state == ROW_PREPARING || r->state == ROW_RUNNING) && !r->paused && !r->following &&
                            !r->sealed && r->done < r->known));
        HOLDS(r->leads || r->followers.n == 0);
        HOLDS(check_share_list(s, &r->followers, i, &listed));
    }
    HOLDS(check_share_list(s, &s->orphans, NO_ROW, &listed) && check_share_list(s, &s->loads, NO_ROW, &loads));
    HOLDS(following == s->following_n && following == listed && loading == s->loading_n && trailing == s->trailing_n);
    HOLDS(unfetched == loads);
    for (uint32_t i = s->leaders.first; i != NO_ROW; i = row_at(s, i)->link[LINK_LEADS].next)
        HOLDS(i < s->rows_total && leads-- > 0 && row_at(s, i)->leads);
    return leads == 0;
}

/* What it says to have in the store is there, and its table names the store's pages. */
static int check_stored(const struct sched *s, const struct row *r) {
    struct prefix_view view;
    HOLDS(r->stored <= (r->done + PAGE_TOKENS - 1) / PAGE_TOKENS || r->loading);
    if (!prefix_get(s->prefix, r->block, &view)) return 1; /* nothing, or taken out behind its back */
    view.parent = r->block;
    for (uint32_t i = r->stored; i-- > 0;) {
        HOLDS(prefix_get(s->prefix, view.parent, &view) && view.index == i && view.space == r->space);
        for (uint32_t g = 0; g < s->config.groups; g++)
            if (i >= r->span[g].first && i < r->span[g].end) {
                uint32_t page = row_table(s, r, g)[i]; /* the row may have gone on without a stop, and others not */
                HOLDS(view.page[g] == page || (s->config.group[g].recurrent && page == PAGE_NONE));
            }
    }
    return view.parent == 0 || r->stored == 0;
}

/* ---- Lines and tenants ---- */

/* Every waiting row stands in its tenant's heap: each has one parent or is a root, and goes behind it. */
static int check_lines(const struct sched *s) {
    uint32_t children = 0, roots = 0, waiting = 0, present = 0;
    for (uint32_t i = s->list[LIST_WAITING].first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next) {
        const struct row *r = row_at(s, i);
        uint32_t prev = i;
        for (uint32_t c = r->heap.child; c != NO_ROW; c = row_at(s, c)->heap.next) {
            HOLDS(c < s->rows_total && children++ < s->rows_total);
            const struct row *child = row_at(s, c);
            HOLDS(child->list == LIST_WAITING && child->tenant == r->tenant && child->heap.prev == prev);
            HOLDS(sched_row_before(r, child));
            prev = c;
        }
    }
    for (uint32_t t = 0; t < s->tenants_n; t++) {
        const struct tenant *tenant = &s->tenants[t];
        uint32_t root = tenant->root;
        HOLDS((root == NO_ROW) == (tenant->waiting == 0));
        HOLDS(tenant->competes == (tenant->waiting > 0 && (tenant->rows_max == 0 || tenant->rows < tenant->rows_max)));
        if (root != NO_ROW) HOLDS(row_at(s, root)->list == LIST_WAITING && row_at(s, root)->heap.prev == NO_ROW);
        roots += root != NO_ROW;
        waiting += tenant->waiting;
        present += tenant->present > 0;
    }
    HOLDS(waiting == s->list[LIST_WAITING].n && children + roots == waiting);
    for (uint32_t t = s->present_first, prev = NO_ROW; t != NO_ROW; prev = t, t = s->tenants[t].next)
        HOLDS(t < s->tenants_n && present-- > 0 && s->tenants[t].present > 0 && s->tenants[t].prev == prev);
    return present == 0;
}

static int check_tenants(const struct sched *s) {
    for (uint32_t t = 0; t < s->tenants_n; t++) {
        const struct tenant *tenant = &s->tenants[t];
        HOLDS(tenant->rows <= tenant->present && (tenant->rows_max == 0 || tenant->rows <= tenant->rows_max));
        uint32_t rows = tenant->rows, present = tenant->present, waiting = tenant->waiting;
        if (s->tenants_n > 1 && present == 0) continue;
        for (uint32_t i = 0; i < s->rows_total; i++) {
            const struct row *r = row_at(s, i);
            if (r->tenant != t) continue;
            rows -= r->state == ROW_PREPARING || r->state == ROW_RUNNING;
            present -= r->state >= ROW_WAITING && r->state <= ROW_PREEMPTED;
            waiting -= r->list == LIST_WAITING;
        }
        HOLDS(rows == 0 && present == 0 && waiting == 0);
    }
    return 1;
}

/* ---- Rows ---- */

static int check_row_budget(const struct sched *s, const struct row *r) {
    HOLDS(r->prompt_n >= 1 && (r->max_new >= 1 || r->all_outputs || r->last_output));
    HOLDS((uint64_t)r->prompt_n + r->max_new <= s->config.context_max);
    HOLDS(r->chunk >= 1 && r->chunk <= s->config.batch_tokens);
    for (uint32_t g = 0; g < s->config.groups; g++) {
        const struct pages_shape *shape = &s->config.group[g];
        int may_be_none = shape->begin > 0 || (shape->end > 0 && r->following); /* it will share them all */
        HOLDS(r->state >= ROW_PREEMPTED || r->state == ROW_WAITING || may_be_none || r->span[g].claim >= 1);
        HOLDS(r->span[g].claim <= pages_total(s->config.pages, g));
    }
    return 1;
}

static int check_row_spans(const struct sched *s, const struct row *r) {
    HOLDS(r->done <= r->next);
    HOLDS(r->next <= r->prompt_n || r->next < r->prompt_n + r->max_new); /* D2: never past the budget */
    HOLDS(r->loading ? r->done == 0 && r->next > 0 && r->in_flight == 0 : (r->in_flight == 0) == (r->done == r->next));
    HOLDS(r->in_flight <= s->in_flight && (!r->following || r->next == 0));
    for (uint32_t g = 0; g < s->config.groups; g++) {
        const struct span *span = &r->span[g];
        const uint32_t *table = row_table(s, r, g);
        const struct pages_shape *shape = &s->config.group[g];
        uint32_t held = 0, end = (r->next + PAGE_TOKENS - 1) / PAGE_TOKENS;
        HOLDS(span->first <= span->end && span->held <= span->claim);
        HOLDS(end <= shape->begin ? span->held == 0 : span->end == pages_clamp(shape, end)); /* not one page early */
        for (uint32_t k = span->first; k < span->end; k++) {
            if (shape->recurrent && table[k] == PAGE_NONE) continue;
            HOLDS(table[k] < pages_total(s->config.pages, g));
            s->owners[g][table[k]]++;
            held++;
        }
        HOLDS(held == span->held && (!shape->recurrent || r->next == 0 || table[span->end - 1] != PAGE_NONE));
    }
    return 1;
}

static int check_row(const struct sched *s, const struct row *r) {
    int holds = r->state >= ROW_PREPARING && r->state <= ROW_ENDING;
    HOLDS((r->slot != NO_SLOT) == holds && (holds || r->in_flight == 0));
    HOLDS(!r->paused || (r->state >= ROW_WAITING && r->state <= ROW_PREEMPTED));
    switch ((enum row_state)r->state) {
    case ROW_WAITING:
        HOLDS(r->next == 0 && r->known >= r->prompt_n && r->known >= r->reach && check_row_budget(s, r));
        break;
    case ROW_PREPARING:
        HOLDS(r->next < r->known && r->known <= r->covered);
        HOLDS(!r->following || !r->loading);
        break;
    case ROW_RUNNING:
        HOLDS(r->next >= r->known && r->next <= r->covered && r->reach == r->next);
        break;
    case ROW_PREEMPTED:
    case ROW_ENDING:
        HOLDS((r->in_flight > 0 || (r->loading && r->state == ROW_ENDING)) && !r->grows);
        for (uint32_t g = 0; g < s->config.groups; g++) HOLDS(r->span[g].held == r->span[g].claim);
        break;
    default:
        break;
    }
    HOLDS(holds || (r->stored == 0 && r->block == 0));
    HOLDS((!r->following && !r->loading) || holds);
    return !holds || (check_row_budget(s, r) && check_row_spans(s, r) && check_stored(s, r));
}

/* ---- Plans ---- */

/* The row still holds every page that the item reads or writes. */
static int check_item_pages(const struct sched *s, const struct row *r, const struct plan_item *item) {
    uint32_t last = (item->pos + item->n_tokens - 1) / PAGE_TOKENS;
    for (uint32_t g = 0; g < s->config.groups; g++) {
        const struct pages_shape *shape = &s->config.group[g];
        const uint32_t *table = row_table(s, r, g);
        uint32_t window = shape->window;
        uint32_t from = window == 0 || item->pos < window ? 0 : item->pos - window + 1;
        HOLDS(item->table[g] == table);
        if (shape->recurrent) {
            from = item->pos == 0 ? 0 : item->pos - 1;
            HOLDS(item->from[g] == (item->pos == 0 ? PAGE_NONE : table[from / PAGE_TOKENS]));
            HOLDS(item->to[g] == table[last] && item->to[g] != PAGE_NONE);
        }
        HOLDS(pages_clamp(shape, from / PAGE_TOKENS) == pages_clamp(shape, last + 1) ||
              (r->span[g].first <= pages_clamp(shape, from / PAGE_TOKENS) &&
               pages_clamp(shape, last + 1) <= r->span[g].end));
    }
    return 1;
}

/* Plans in flight from the oldest on: each row's items join without a gap from `done` to `next`. */
static int check_plan(const struct sched *s, uint64_t number) {
    const struct plan *p = &s->plans[number % SCHED_IN_FLIGHT];
    uint32_t tokens = 0, outputs = 0;
    HOLDS(p->number == number && p->n_items >= 1 && p->n_items <= s->config.rows_max);
    for (uint32_t k = 0; k < p->n_items; k++) {
        const struct plan_item *item = &p->items[k];
        const struct row *r = row_at(s, sched_row_index(item->row));
        HOLDS(row_name(s, r) == item->row && r->in_flight > 0 && item->n_tokens >= 1);
        HOLDS(item->pos >= r->done && item->pos + item->n_tokens <= r->next);
        HOLDS(item->pos == r->done || number != s->planned - s->in_flight + 1);
        HOLDS(item->pos + item->n_tokens == r->next || number != s->planned);
        HOLDS(item->source == PLAN_PROMPT || (item->pos >= r->prompt_n && item->n_tokens == 1));
        HOLDS(item->n_outputs <= item->n_tokens && (!item->samples || item->sample_index < r->max_new));
        HOLDS(check_item_pages(s, r, item));
        tokens += item->n_tokens;
        outputs += item->n_outputs;
    }
    HOLDS(tokens == p->n_tokens && tokens == p->n_prompt_tokens + p->n_decode_tokens && outputs == p->n_outputs);
    return tokens <= s->config.batch_tokens && outputs <= s->config.outputs_max;
}

/* ---- Pages and slots ---- */

/* Each page has as many references of rows as tables name it; the tree's own are checked with it. */
static int check_owners(const struct sched *s) {
    for (uint32_t g = 0; g < s->config.groups; g++)
        for (uint32_t p = 0; p < pages_total(s->config.pages, g); p++)
            HOLDS(s->owners[g][p] == prefix_rows_of(s->prefix, g, p));
    return prefix_check(s->prefix);
}

/* Each slot is either one row's or free, once. */
static int check_slots(const struct sched *s) {
    uint32_t used = 0;
    memset(s->slot_seen, 0, s->slots);
    for (uint32_t i = 0; i < s->rows_total; i++) {
        uint32_t slot = row_at(s, i)->slot;
        if (slot == NO_SLOT) continue;
        HOLDS(slot < s->slots && !s->slot_seen[slot]++);
        used++;
    }
    for (uint32_t k = 0; k < s->slot_free_n; k++) {
        uint32_t slot = s->slot_free[k];
        HOLDS(slot < s->slots && !s->slot_seen[slot]++);
    }
    return used + s->slot_free_n == s->slots;
}

int sched_check(const struct sched *s) {
    for (uint32_t g = 0; g < s->config.groups; g++)
        memset(s->owners[g], 0, pages_total(s->config.pages, g) * sizeof *s->owners[g]);
    HOLDS(s->in_flight <= SCHED_IN_FLIGHT);
    HOLDS(check_lists(s) && check_counts(s) && check_slots(s) && check_lines(s) && check_tenants(s));
    HOLDS(check_followers(s));
    for (uint32_t i = 0; i < s->rows_total; i++) HOLDS(check_row(s, row_at(s, i)));
    for (uint32_t k = s->in_flight; k > 0; k--) HOLDS(check_plan(s, s->planned - k + 1));
    return check_owners(s);
}
