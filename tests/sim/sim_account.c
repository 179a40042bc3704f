/* The naive account's first half: rows come, wait, are let in, give way and go. Everything is found by walking the
 * rows. */
#include <stdlib.h>
#include <string.h>

#include "sim_account.h"

enum { STALLS_MAX = 4 /* plans for which a row waits for pages on their way before it takes another's */ };

/* ---- Lists ---- */

static struct account_list list_new(uint32_t n) {
    struct account_list list = {calloc(n, sizeof *list.at), 0};
    SIM_HOLDS(list.at != NULL);
    return list;
}

static void push(struct account_list *list, struct account_row *r) {
    r->place = list->n;
    list->at[list->n++] = r;
}

/* From a list without order. */
static void drop(struct account_list *list, struct account_row *r) {
    SIM_HOLDS(r->place < list->n && list->at[r->place] == r);
    list->at[r->place] = list->at[--list->n];
    list->at[r->place]->place = r->place;
}

/* From one with an order. 1 if it was there. */
static int drop_ordered(struct account_list *list, const struct account_row *r) {
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] == r) {
            memmove(list->at + i, list->at + i + 1, (--list->n - i) * sizeof *list->at);
            return 1;
        }
    return 0;
}

struct account_row *account_take_first(struct account_list *list) {
    struct account_row *r = list->n > 0 ? list->at[0] : NULL;
    if (r != NULL) drop_ordered(list, r);
    return r;
}

void account_reorder(struct account *a, struct account_row *r) {
    SIM_HOLDS(drop_ordered(&a->in, r));
    a->in.at[a->in.n++] = r;
}

void account_init(struct account *a, const struct sched_config *config, uint32_t late_most, struct sim_totals *totals) {
    *a = (struct account){.config = config, .late_most = late_most, .totals = totals};
    a->recurs = sim_recurs(config);
    a->tenants_n = config->tenants == NULL ? 1 : config->tenants_n;
    SIM_HOLDS(a->tenants_n <= ACCOUNT_TENANTS);
    for (uint32_t t = 0; t < a->tenants_n; t++)
        a->tenant[t].limits = config->tenants == NULL ? (struct sched_tenant){1, 0} : config->tenants[t];
    uint32_t rows = config->rows_max * (1 + SCHED_IN_FLIGHT) + config->queue_max;
    struct account_list *lists[] = {&a->waiting,  &a->in,      &a->leaving,   &a->gone,     &a->untold,
                                    &a->gave_way, &a->scratch, &a->flight[0], &a->flight[1]};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) *lists[i] = list_new(rows);
}

void account_clear(struct account *a) {
    struct account_list *lists[] = {&a->waiting,  &a->in,      &a->leaving,   &a->gone,     &a->untold,
                                    &a->gave_way, &a->scratch, &a->flight[0], &a->flight[1]};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->at);
}

/* ---- Rows come and go ---- */

/* Pages that a row of so many tokens holds at most, when `ahead` of them are planned and not computed: those of all its
 * blocks that the group has; with a window those that window and slack and what is ahead touch, wherever they begin. */
static uint64_t most_pages(const struct pages_shape *shape, uint64_t tokens, uint64_t ahead) {
    uint64_t last = (tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
    if (shape->end != 0 && last > shape->end) last = shape->end;
    uint64_t all = last > shape->begin ? last - shape->begin : 0, some = all;
    if (shape->window != 0) some = (2 * PAGE_TOKENS - 2 + shape->window - 1 + PAGES_SLACK + ahead) / PAGE_TOKENS;
    if (shape->recurrent) some = ACCOUNT_STATES;
    return some < all ? some : all;
}

/* The largest chunk with which the row's worst case fits the empty pool, by trying; 0 if none. */
static uint32_t project(const struct account *a, const struct sched_request *q) {
    uint32_t c = q->chunk_max == 0 ? a->config->batch_tokens : sim_min(q->chunk_max, a->config->batch_tokens);
    for (; c > 0; c--) {
        int fits = 1;
        for (uint32_t g = 0; g < a->config->groups; g++)
            fits &= most_pages(&a->config->group[g], (uint64_t)q->prompt_n + q->max_new, 2 * c) <=
                    pages_total(a->config->pages, g);
        if (fits) break;
    }
    return c;
}

int account_judge(const struct account *a, struct account_row *row) {
    const struct sched_request *q = &row->request;
    if (q->prompt_n == 0 || (q->max_new == 0 && !q->all_outputs && !q->last_output)) return COHORT_E_ARGUMENT;
    if ((uint64_t)q->prompt_n + q->max_new > a->config->context_max) return COHORT_E_CONTEXT;
    if (q->tenant >= a->tenants_n || q->cuts_n > SCHED_CUTS_MAX) return COHORT_E_ARGUMENT;
    for (uint32_t i = 0, last = 0; i < q->cuts_n; last = q->cuts[i++])
        if (q->cuts[i] <= last || q->cuts[i] > q->prompt_n) return COHORT_E_ARGUMENT;
    if (q->weight > SCHED_KEEP_MAX || (q->resumed > 0 && (q->resumed >= q->max_new || q->all_outputs)))
        return COHORT_E_ARGUMENT;
    row->chunk = project(a, q);
    return row->chunk == 0 ? COHORT_E_CAPACITY : 0;
}

/* A tenant competes: it has somebody in line, and may have one more row. */
static int may_have_more(const struct account *a, uint32_t tenant) {
    uint32_t most = a->tenant[tenant].limits.rows_max;
    int stands = 0;
    for (uint32_t i = 0; i < a->waiting.n; i++)
        stands |= a->waiting.at[i]->request.tenant == tenant && !a->waiting.at[i]->paused;
    return stands && (most == 0 || account_rows(a, tenant) < most);
}

/* After every change of a tenant's line or rows. When it begins to compete, nobody who is here and does not compete is
 * behind the least served that does; if nobody does, all who are here are level. */
static void settle(struct account *a, uint32_t tenant) {
    int before = a->tenant[tenant].competes;
    a->tenant[tenant].competes = 0;
    if (!before && may_have_more(a, tenant)) {
        uint64_t least = UINT64_MAX, most = 0, level;
        for (uint32_t t = 0; t < a->tenants_n; t++) {
            const struct account_tenant *x = &a->tenant[t];
            if (x->competes && x->served < least) least = x->served;
            if (x->present > 0 && x->served > most) most = x->served;
        }
        level = least == UINT64_MAX ? most : least;
        for (uint32_t t = 0; t < a->tenants_n; t++) {
            struct account_tenant *x = &a->tenant[t];
            if (x->present > 0 && !x->competes && x->served < level) x->served = level;
        }
    }
    a->tenant[tenant].competes = may_have_more(a, tenant);
}

void account_pass_cuts(struct account_row *r) {
    while (r->cuts_seen < r->request.cuts_n && r->request.cuts[r->cuts_seen] <= r->reach) r->cuts_seen++;
}

void account_submit(struct account *a, struct account_row *row) {
    struct account_tenant *t = &a->tenant[row->request.tenant];
    t->present++;
    row->state = ROW_WAITING;
    row->submitted = ++a->submitted;
    row->known = row->request.prompt_n + row->request.resumed;
    row->reach = row->request.resumed > 0 ? row->known - 1 : 0;
    account_pass_cuts(row);
    a->pages_reached++;
    push(&a->waiting, row);
    settle(a, row->request.tenant);
}

/* From the page that the window of the last commit reached, to its last; of a recurrent group its states. */
uint32_t account_held(const struct account *a, const struct account_row *r, uint32_t g) {
    const struct pages_shape *shape = &a->config->group[g];
    if (shape->recurrent) return r->states_n;
    uint32_t keeps = shape->window + PAGES_SLACK, n = 0;
    uint32_t from = shape->window == 0 || r->done < keeps ? 0 : r->done - keeps + 1;
    for (uint32_t block = from / PAGE_TOKENS; block * PAGE_TOKENS < r->next; block++)
        n += sim_has(shape, block * PAGE_TOKENS);
    return n;
}

void account_state(struct account_row *r, uint32_t block) {
    if (r->states_n > 0 && r->states[r->states_n - 1] == block) return;
    SIM_HOLDS(r->states_n < ACCOUNT_STATES);
    r->states[r->states_n++] = block;
}

int account_stateless(struct account_row *r, uint32_t block) {
    for (uint32_t i = 0; i < r->states_n; i++) {
        if (r->states[i] != block) continue;
        memmove(&r->states[i], &r->states[i + 1], (--r->states_n - i) * sizeof *r->states);
        return 1;
    }
    return 0;
}

/* What it holds when it takes no more. */
static void freeze(const struct account *a, struct account_row *r) {
    for (uint32_t g = 0; g < a->config->groups; g++) r->held[g] = account_held(a, r, g);
}

void account_go(struct account *a, struct account_row *r) {
    SIM_HOLDS(r->flying == 0);
    drop(&a->leaving, r);
    if (r->state == ROW_ENDING) {
        r->state = ROW_GONE;
        a->gone.at[a->gone.n++] = r;
        return;
    }
    r->state = ROW_WAITING;
    r->next = r->done = r->covered = r->taken = r->states_n = 0;
    push(&a->waiting, r);
    settle(a, r->request.tenant);
}

static void leave(struct account *a, struct account_row *r, enum row_state state) {
    SIM_HOLDS(drop_ordered(&a->in, r));
    a->redo_plans = 0;
    if (r->untold) drop_ordered(&a->untold, r);
    r->untold = 0;
    freeze(a, r);
    r->state = state;
    r->following = 0;
    r->leader = NULL;
    if (!r->told) r->loading = 0;
    push(&a->leaving, r);
    settle(a, r->request.tenant);
    if (r->flying == 0 && !r->loading) account_go(a, r);
}

void account_finish(struct account *a, struct account_row *r) {
    r->paused = 0;
    a->tenant[r->request.tenant].present--;
    if (r->state == ROW_WAITING) {
        drop(&a->waiting, r);
        settle(a, r->request.tenant);
        r->state = ROW_GONE;
        a->gone.at[a->gone.n++] = r;
    } else if (r->state == ROW_PREEMPTED)
        r->state = ROW_ENDING;
    else
        leave(a, r, ROW_ENDING);
}

void account_pause(struct account *a, struct account_row *r, int paused) {
    int changes = r->paused != paused;
    r->paused = (uint8_t)paused;
    a->redo_plans = 0;
    if (changes && (r->state == ROW_PREPARING || r->state == ROW_RUNNING)) account_reorder(a, r);
    settle(a, r->request.tenant);
}

/* ---- Room ---- */

static uint64_t claim(const struct account *a, const struct account_row *r, uint32_t g, uint32_t tokens) {
    return most_pages(&a->config->group[g], tokens, (uint64_t)SCHED_IN_FLIGHT * r->chunk);
}

static uint64_t claimed(const struct account *a, uint32_t g) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < a->in.n; i++) n += claim(a, a->in.at[i], g, a->in.at[i]->covered);
    for (uint32_t i = 0; i < a->leaving.n; i++) n += a->leaving.at[i]->held[g];
    return n;
}

/* A waiting row claims what it knows and SCHED_AHEAD tokens, and leaves a page for every row that will claim more. */
static int fits(const struct account *a, const struct account_row *r) {
    uint32_t tokens = sim_min(account_total(r), r->known + SCHED_AHEAD), growing = tokens < account_total(r);
    for (uint32_t i = 0; i < a->in.n; i++) growing += a->in.at[i]->covered < account_total(a->in.at[i]);
    for (uint32_t g = 0; g < a->config->groups; g++) {
        uint64_t others = claimed(a, g);
        if (others > 0) others += growing;
        if (others + claim(a, r, g, tokens) > pages_total(a->config->pages, g)) return 0;
    }
    return 1;
}

static int cover(const struct account *a, struct account_row *r, uint32_t tokens) {
    for (uint32_t g = 0; g < a->config->groups; g++)
        if (claimed(a, g) - claim(a, r, g, r->covered) + claim(a, r, g, tokens) > pages_total(a->config->pages, g))
            return 0;
    r->covered = tokens;
    return 1;
}

/* A running row's next token has room: SCHED_AHEAD tokens if they fit, else to the end of its page. */
static int has_room(const struct account *a, struct account_row *r) {
    return r->next < r->covered || cover(a, r, sim_min(account_total(r), r->next + SCHED_AHEAD)) ||
           cover(a, r, sim_min(account_total(r), r->next - r->next % PAGE_TOKENS + PAGE_TOKENS));
}

/* Pages are on their way: of rows that leave, and of rows that end as soon as their last token is read. */
static int are_coming(const struct account *a) {
    int spent = 0;
    for (uint32_t i = 0; i < a->in.n; i++) spent |= a->in.at[i]->state == ROW_RUNNING && account_spent(a->in.at[i]);
    return spent || a->leaving.n > 0;
}

/* ---- Who gives way ---- */

static int before(const struct account_row *x, const struct account_row *y) {
    return x->request.priority != y->request.priority ? x->request.priority < y->request.priority
                                                      : x->submitted < y->submitted;
}

/* Of the rows that are not paused and have tokens to plan, the first: it is never preempted for room. */
const struct account_row *account_senior(const struct account *a) {
    const struct account_row *first = NULL;
    for (uint32_t i = 0; i < a->in.n; i++) {
        const struct account_row *r = a->in.at[i];
        if (!r->paused && !account_spent(r) && (first == NULL || before(r, first))) first = r;
    }
    return first;
}

/* It came again and has not made `tokens` more than it had. */
static int has_just_come(const struct account_row *r, uint32_t tokens) {
    return r->preemptions > 0 && r->next < r->admitted + tokens;
}

/* Each of these decides if the ones before do not: nobody reads it; its tenant got more; it matters less; it may be
 * taken again; the fewest pages are redone; it is younger. */
static int goes_rather(const struct account *a, const struct account_row *x, const struct account_row *y) {
    uint32_t of_x = x->request.tenant, of_y = y->request.tenant;
    uint64_t got_x = a->tenant[of_x].served, got_y = a->tenant[of_y].served;
    int just_x = has_just_come(x, SCHED_AHEAD), just_y = has_just_come(y, SCHED_AHEAD);
    uint32_t pages_x = x->next / PAGE_TOKENS, pages_y = y->next / PAGE_TOKENS;
    return x->paused != y->paused                       ? x->paused
           : got_x != got_y                             ? got_x > got_y
           : of_x != of_y                               ? of_x > of_y
           : x->request.priority != y->request.priority ? x->request.priority > y->request.priority
           : just_x != just_y                           ? just_y
           : pages_x != pages_y                         ? pages_x < pages_y
                                                        : x->submitted > y->submitted;
}

/* A tenant that waits with `head` has got so little that whoever got more than this is ahead. */
static uint64_t share_limit(const struct account *a, const struct account_row *head) {
    uint32_t t = head->request.tenant;
    return a->tenant[t].served + account_virtual(a, t, SCHED_SHARE_QUANTUM);
}

static int is_owed(const struct account *a, const struct account_row *r, uint64_t limit) {
    return a->tenant[r->request.tenant].served > limit &&
           !has_just_come(r, sim_max(SCHED_SHARE_QUANTUM, r->admitted / 2));
}

static struct account_row *choose(const struct account *a, enum account_reason reason, const struct account_row *head) {
    const struct account_row *first = account_senior(a);
    struct account_row *best = NULL;
    for (uint32_t i = 0; i < a->in.n; i++) {
        struct account_row *r = a->in.at[i];
        if (account_spent(r)) continue;
        if (reason == FOR_ROOM && r == first) continue;
        if (reason == PAUSED_ONE && !r->paused) continue;
        if (reason == OWED_ONE && !is_owed(a, r, share_limit(a, head))) continue;
        if (best == NULL) {
            best = r;
            continue;
        }
        uint64_t served = a->tenant[r->request.tenant].served, best_served = a->tenant[best->request.tenant].served;
        int further = reason == OWED_ONE && served != best_served;
        if (further ? served > best_served : goes_rather(a, r, best)) best = r;
    }
    return best;
}

/* No thrash: between two preemptions that it was not forced to, a row makes SCHED_AHEAD tokens. And rows are preempted
 * for room only because rows grow: a row claims at least a page when it finds no room, and comes again with at least
 * SCHED_AHEAD tokens of room, so not more often than they reach pages. Each costs at most its row's length. */
void account_preempt(struct account *a, struct account_row *r, enum account_reason reason) {
    SIM_HOLDS(reason != FOR_ROOM || r != account_senior(a));
    r->forced += r->paused || r->following || r->loading;
    r->forced += !r->paused && (reason == FOR_ROOM || reason == NOT_SAID) && has_just_come(r, SCHED_AHEAD);
    a->pressed += reason == FOR_ROOM;
    SIM_HOLDS(a->pressed <= a->pages_reached);
    a->gave_way.at[a->gave_way.n++] = r;
    r->preemptions++;
    SIM_HOLDS(r->preemptions <= r->forced + 1 + r->reach / SCHED_AHEAD);
    a->preemptions++;
    *(reason == FOR_ROOM     ? &a->totals->pressed
      : reason == PAUSED_ONE ? &a->totals->made_way
      : reason == OWED_ONE   ? &a->totals->owed
                             : &a->totals->not_said) += 1;
    r->known = sim_max(r->known, r->reach);
    leave(a, r, ROW_PREEMPTED);
}

static void make_room(struct account *a) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->in.n; i++) a->scratch.at[n++] = a->in.at[i];
    for (uint32_t i = 0; i < n; i++) {
        struct account_row *r = a->scratch.at[i];
        while (r->state == ROW_RUNNING && !r->paused && !account_spent(r) && !has_room(a, r)) {
            a->calm = 0;
            struct account_row *victim = are_coming(a) && r->stalls < STALLS_MAX ? NULL : choose(a, FOR_ROOM, NULL);
            if (victim == NULL) {
                r->stalls = sim_min(r->stalls + 1, STALLS_MAX);
                break;
            }
            account_preempt(a, victim, FOR_ROOM);
        }
        if (r->next < r->covered) r->stalls = 0;
    }
}

/* ---- Who comes in ---- */

uint32_t account_rows(const struct account *a, uint32_t tenant) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->in.n; i++) n += a->in.at[i]->request.tenant == tenant;
    return n;
}

/* The first in the line of the tenant that was served least, among those below their own number of rows. */
struct account_row *account_head(const struct account *a) {
    struct account_row *first[ACCOUNT_TENANTS] = {NULL}, *head = NULL;
    for (uint32_t i = 0; i < a->waiting.n; i++) {
        struct account_row *r = a->waiting.at[i], **its = &first[r->request.tenant];
        int may_come = !r->paused && (!a->hold || r->preemptions > 0); /* a hold is for those that never were in */
        if (may_come && (*its == NULL || before(r, *its))) *its = r;
    }
    for (uint32_t t = 0; t < a->tenants_n; t++) {
        uint32_t most = a->tenant[t].limits.rows_max;
        if (first[t] == NULL || (most > 0 && account_rows(a, t) >= most)) continue;
        if (head == NULL || a->tenant[t].served < a->tenant[head->request.tenant].served) head = first[t];
    }
    return head;
}

/* P1: the unread tokens of all rows that prepare, each counted up to half of the limit, leave no room for the head's.
 * That does not matter for a tenant of which no row prepares. */
static int cohort_is_full(const struct account *a, const struct account_row *head) {
    uint32_t half = a->config->cohort_tokens / 2;
    uint64_t load = sim_min(head->known, half), its = 0;
    for (uint32_t i = 0; i < a->in.n; i++) {
        const struct account_row *r = a->in.at[i];
        if (r->state != ROW_PREPARING || r->paused) continue;
        its += r->request.tenant == head->request.tenant;
        load += sim_min(r->known - r->next, half);
    }
    return its > 0 && load > a->config->cohort_tokens;
}

void account_admit(struct account *a, struct account_row *r) {
    drop(&a->waiting, r);
    r->state = ROW_PREPARING;
    r->covered = sim_min(account_total(r), r->known + SCHED_AHEAD);
    r->admitted = r->known;
    r->stalls = r->without = 0;
    r->untold = 1;
    a->in.at[a->in.n++] = r;
    a->untold.at[a->untold.n++] = r;
    a->admitted_n++;
    settle(a, r->request.tenant);
}

int account_has_room(const struct account *a, const struct account_row *r, const uint64_t spent[]) {
    uint32_t tokens = sim_min(account_total(r), r->known + SCHED_AHEAD), growing = tokens < account_total(r);
    for (uint32_t i = 0; i < a->in.n; i++) growing += a->in.at[i]->covered < account_total(a->in.at[i]);
    for (uint32_t g = 0; g < a->config->groups; g++)
        if (spent[g] + growing + claim(a, r, g, tokens) > pages_total(a->config->pages, g)) return 0;
    uint32_t rows = a->in.n; /* and those whose load is not over */
    for (uint32_t i = 0; i < a->leaving.n; i++) rows += a->leaving.at[i]->loading;
    return rows < a->config->rows_max && !cohort_is_full(a, r);
}

void account_predict(struct account *a) {
    struct account_row *head;
    int made_way = 0;
    a->calm = 1;
    a->admitted_n = a->gave_way.n = 0;
    if (a->config->prefix != NULL) return; /* sim_store.c sees to it afterwards */
    make_room(a);
    while (a->calm && (head = account_head(a)) != NULL && !cohort_is_full(a, head)) {
        if (a->in.n >= a->config->rows_max || !fits(a, head)) {
            if (are_coming(a)) return;
            enum account_reason reason = PAUSED_ONE;
            struct account_row *victim = choose(a, PAUSED_ONE, head);
            if (victim == NULL) victim = choose(a, reason = OWED_ONE, head);
            if (victim == NULL) return;
            account_preempt(a, victim, reason);
            made_way = 1;
            continue;
        }
        account_admit(a, head);
        if (made_way) return; /* nobody else, maybe the one that made way, before the next plan */
    }
}
