/* A row's life: places, submission, ending, and the lists in which rows stand. Owns struct sched. The engine's thread.
 *
 * Who makes which transition; every one goes through sched_row_enter:
 *
 *   FREE ------------------ sched_reserve ------------------> RESERVED
 *   RESERVED -------------- sched_unreserve ----------------> FREE
 *   RESERVED -------------- sched_submit -------------------> WAITING
 *   WAITING --------------- sched_finish -------------------> GONE
 *   WAITING --------------- row_admit (in sched_plan) ------> PREPARING
 *   PREPARING ------------- row_plan (in sched_plan) -------> RUNNING     when all it knows is planned
 *   PREPARING, RUNNING ---- sched_preempt ------------------> PREEMPTED   in sched_plan; one that follows or whose load
 *                                                                         failed also in sched_commit, sched_loaded
 *   PREEMPTED ------------- sched_row_requeue --------------> WAITING
 *   PREPARING, RUNNING,
 *   PREEMPTED ------------- sched_finish -------------------> ENDING
 *   ENDING ---------------- sched_row_leave ----------------> GONE
 *   GONE ------------------ sched_pop_gone -----------------> FREE        the name's generation ends here
 *
 * sched_row_leave and sched_row_requeue run at once if no plan in flight names the row, else in the sched_commit or
 * sched_abandon of the last one that does; for a row that ends while it loads, in sched_loaded.
 *
 * What holds in each state (sched_check):
 *
 *   FREE, RESERVED, GONE    no tables, no pages, no claims, in no plan
 *   WAITING                 the same; its request is known and fits the empty pool; in its tenant's line unless paused
 *   PREPARING               has tables and claims; next < known
 *     ... and follows       no pages, in no plan; in its leader's list, or an orphan
 *     ... and loads         in no plan; done is 0, and next is where the load ends
 *   RUNNING                 has tables and claims; next >= known
 *   PREEMPTED, ENDING       has tables, claims what it holds; a plan in flight names it, or (ENDING) it loads
 *
 * What a row has in the store (share.c): blocks [0, stored), the last one pinned, only from PREPARING to ENDING.
 */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "sched/sched_internal.h"

enum { COPIES_FOR_ROW = 4 /* places in the ring; when it is full rows begin at whole pages */ };

/* ---- Lists ---- */

void sched_list_push(struct sched *s, struct list *list, struct row *r) {
    uint32_t i = row_index(s, r);
    r->link[list->kind] = (struct link){list->last, NO_ROW};
    if (list->last == NO_ROW)
        list->first = i;
    else
        row_at(s, list->last)->link[list->kind].next = i;
    list->last = i;
    list->n++;
}

void sched_list_remove(struct sched *s, struct list *list, struct row *r) {
    struct link l = r->link[list->kind];
    assert(list->n > 0);
    if (l.prev == NO_ROW)
        list->first = l.next;
    else
        row_at(s, l.prev)->link[list->kind].next = l.next;
    if (l.next == NO_ROW)
        list->last = l.prev;
    else
        row_at(s, l.next)->link[list->kind].prev = l.prev;
    list->n--;
}

/* ---- States ---- */

enum list_id sched_row_list(const struct row *r) {
    switch ((enum row_state)r->state) {
    case ROW_RESERVED:
        return LIST_RESERVED;
    case ROW_WAITING:
        return r->paused ? LIST_PARKED : LIST_WAITING;
    case ROW_PREPARING:
        return r->paused ? LIST_PARKED : r->following || r->loading ? LIST_FOLLOWING : LIST_PREPARING;
    case ROW_RUNNING:
        return r->paused || row_spent(r) ? LIST_PARKED : LIST_RUNNING;
    case ROW_PREEMPTED:
    case ROW_ENDING:
        return LIST_ENDING;
    case ROW_GONE:
        return LIST_GONE;
    case ROW_FREE:
    case ROW_STATES:
        break;
    }
    return LIST_FREE;
}

uint32_t sched_row_load(const struct sched *s, const struct row *r) {
    if (r->list != LIST_PREPARING && r->list != LIST_FOLLOWING) return 0;
    uint32_t unread = r->known - (r->following ? r->lead_until : r->next), half = s->config.cohort_tokens / 2;
    return unread < half ? unread : half;
}

void sched_row_settle(struct sched *s, struct row *r) {
    if (r->following && r->state != ROW_PREPARING) sched_unfollow(s, r);
    enum list_id list = sched_row_list(r);
    if (list != r->list) {
        if (r->list == LIST_WAITING) sched_line_remove(s, r);
        sched_list_remove(s, &s->list[r->list], r);
        r->list = (uint8_t)list;
        sched_list_push(s, &s->list[list], r);
        if (list == LIST_WAITING) sched_line_push(s, r);
    }
    uint8_t spent = r->state == ROW_RUNNING && row_spent(r);
    s->spent_n += (uint32_t)spent - r->spent;
    r->spent = spent;
    uint32_t load = sched_row_load(s, r);
    s->cohort_load = s->cohort_load - r->load + load;
    r->load = load;
    sched_lead_settle(s, r);
}

void sched_row_enter(struct sched *s, struct row *r, enum row_state state) {
    assert(s->state_n[r->state] > 0);
    s->state_n[r->state]--;
    s->state_n[state]++;
    s->returning_n += (uint32_t)(r->preemptions > 0) * ((uint32_t)(state == ROW_WAITING) - (r->state == ROW_WAITING));
    sched_tenant_count(s, r, (enum row_state)r->state, state);
    r->state = (uint8_t)state;
    sched_row_settle(s, r);
}

static void set_paused(struct sched *s, struct row *r, int paused) {
    s->paused_n = s->paused_n - r->paused + (paused != 0);
    r->paused = paused != 0;
}

/* ---- Leaving ---- */

void sched_row_leave(struct sched *s, struct row *r) {
    assert(r->state == ROW_ENDING);
    sched_share_leave(s, r);
    sched_room_give_back(s, r);
    sched_row_enter(s, r, ROW_GONE);
}

void sched_row_requeue(struct sched *s, struct row *r) {
    assert(r->state == ROW_PREEMPTED);
    sched_share_leave(s, r);
    sched_room_give_back(s, r);
    r->next = r->done = 0;
    sched_row_enter(s, r, ROW_WAITING);
}

void sched_row_untell(struct sched *s, struct row *r) {
    if (!r->admitted_unread) return;
    r->admitted_unread = 0;
    sched_list_remove(s, &s->admitted, r);
}

/* ---- Names ---- */

struct row *sched_row_find(const struct sched *s, sched_row name) {
    uint32_t i = sched_row_index(name);
    if (i >= s->rows_total) return NULL;
    struct row *r = row_at(s, i);
    return r->generation == name >> 32 && r->state != ROW_FREE ? r : NULL;
}

/* Forgets the row and its name: nobody who still holds the name finds the next row at this index. */
static void row_free(struct sched *s, struct row *r) {
    r->generation = r->generation == UINT32_MAX ? 1 : r->generation + 1;
    sched_row_enter(s, r, ROW_FREE);
}

int sched_reserve(struct sched *s, sched_row *out) {
    *out = 0;
    if (s->closed) return COHORT_E_CLOSED;
    uint32_t taken = s->state_n[ROW_RESERVED] + s->state_n[ROW_WAITING] + s->state_n[ROW_PREPARING] +
                     s->state_n[ROW_RUNNING] + s->state_n[ROW_PREEMPTED];
    if (taken >= s->config.rows_max + s->config.queue_max || s->list[LIST_FREE].n == 0) return COHORT_E_BUSY;
    struct row *r = row_at(s, s->list[LIST_FREE].last); /* the one used last */
    sched_row_enter(s, r, ROW_RESERVED);
    *out = row_name(s, r);
    return 0;
}

void sched_unreserve(struct sched *s, sched_row row) {
    struct row *r = sched_row_find(s, row);
    if (r != NULL && r->state == ROW_RESERVED) row_free(s, r);
}

/* ---- Submission ---- */

/* The row's chunk, with which its worst case fits the empty pool in every group (K3). A window keeps what the row's
 * tokens in flight still read, so a row whose chunks are too large for a small pool gets smaller ones: bytes do not
 * depend on them. */
static int request_project(const struct sched *s, const struct sched_request *q, uint32_t *chunk, cohort_error *err) {
    uint64_t tokens = (uint64_t)q->prompt_n + q->max_new;
    uint32_t c = q->chunk_max == 0 ? s->config.batch_tokens : sched_min(q->chunk_max, s->config.batch_tokens);
    for (uint32_t g = 0; g < s->config.groups; g++) {
        const struct pages_shape *shape = &s->config.group[g];
        uint32_t total = pages_total(s->config.pages, g);
        uint64_t least = pages_worst(shape, tokens, SCHED_IN_FLIGHT);
        if (least > total)
            return err_set(err, COHORT_E_CAPACITY, "prompt",
                           "%u prompt and %u new tokens need %llu pages of %d tokens in layer group %u; the state "
                           "budget has %u",
                           q->prompt_n, q->max_new, (unsigned long long)least, PAGE_TOKENS, g, total);
        if (pages_worst(shape, tokens, (uint64_t)SCHED_IN_FLIGHT * c) > total) {
            uint64_t span =
                (uint64_t)PAGE_TOKENS * (total - 1) + 1; /* the longest that touches `total` pages at most */
            c = sched_min(c, (uint32_t)((span - (shape->window - 1) - PAGES_SLACK) / SCHED_IN_FLIGHT));
        }
    }
    *chunk = c;
    return 0;
}

static int cuts_check(const struct sched_request *q, cohort_error *err) {
    if (q->cuts_n > SCHED_CUTS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "snapshot_at", "%u positions; at most %d are possible", q->cuts_n,
                       SCHED_CUTS_MAX);
    for (uint32_t i = 0; i < q->cuts_n; i++)
        if (q->cuts[i] < 1 || q->cuts[i] > q->prompt_n || (i > 0 && q->cuts[i] <= q->cuts[i - 1]))
            return err_set(err, COHORT_E_ARGUMENT, "snapshot_at",
                           "position %u is not inside the prompt of %u tokens, or not above the one before", q->cuts[i],
                           q->prompt_n);
    return 0;
}

static int sharing_check(const struct sched_request *q, cohort_error *err) {
    if (q->weight > SCHED_KEEP_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "weight", "a weight of %u: at most %d is possible", q->weight,
                       SCHED_KEEP_MAX);
    if (q->resumed == 0) return 0;
    if (q->resumed >= q->max_new)
        return err_set(err, COHORT_E_ARGUMENT, "resume", "%u tokens were generated before, of at most %u", q->resumed,
                       q->max_new);
    if (q->all_outputs)
        return err_set(err, COHORT_E_ARGUMENT, "resume", "the outputs of the prompt cannot be had again");
    return 0;
}

/* Everything about a request that its row does not matter for. */
static int request_check(const struct sched *s, const struct sched_request *request, uint32_t *chunk,
                         cohort_error *err) {
    if (request->prompt_n == 0) return err_set(err, COHORT_E_ARGUMENT, "prompt", "the prompt has no tokens");
    if (request->max_new == 0 && !request->all_outputs && !request->last_output)
        return err_set(err, COHORT_E_ARGUMENT, "max_tokens", "no tokens and no prompt outputs are asked for");
    if ((uint64_t)request->prompt_n + request->max_new > s->config.context_max)
        return err_set(err, COHORT_E_CONTEXT, "prompt", "%u prompt and %u new tokens exceed the context of %u",
                       request->prompt_n, request->max_new, s->config.context_max);
    if (request->tenant >= s->tenants_n)
        return err_set(err, COHORT_E_ARGUMENT, "tenant", "there is no tenant %u", request->tenant);
    int e = cuts_check(request, err);
    if (e == 0) e = sharing_check(request, err);
    return e != 0 ? e : request_project(s, request, chunk, err);
}

int sched_fits(const struct sched *s, const struct sched_request *request, cohort_error *err) {
    uint32_t chunk;
    return request_check(s, request, &chunk, err);
}

int sched_submit(struct sched *s, sched_row row, const struct sched_request *request, cohort_error *err) {
    struct row *r = sched_row_find(s, row);
    if (s->closed) return err_set(err, COHORT_E_CLOSED, NULL, "the engine takes no new work");
    if (r == NULL || r->state != ROW_RESERVED) return err_set(err, COHORT_E_NOT_FOUND, NULL, "no such reserved place");
    int e = request_check(s, request, &r->chunk, err);
    if (e != 0) return e;
    r->prompt_n = request->prompt_n;
    r->known = request->prompt_n + request->resumed;
    r->max_new = request->max_new;
    r->all_outputs = request->all_outputs != 0;
    r->last_output = request->last_output != 0;
    r->tenant = request->tenant;
    r->priority = request->priority;
    r->cuts_n = request->cuts_n;
    memcpy(r->cuts, request->cuts, sizeof r->cuts);
    r->next = r->done = r->admitted = r->covered = r->preemptions = r->redone = 0;
    r->reach = request->resumed > 0 ? r->known - 1 : 0; /* the last one's output is the next token */
    memset(r->span, 0, sizeof r->span);
    r->space = s->owns_prefix ? 0 : request->space;
    r->weight = sched_max(request->weight, 1);
    r->taken = r->stored = r->cached = r->begins = 0;
    r->block = r->own = r->cold = r->left = 0;
    r->unsound = r->sealed = r->warm_only = 0;
    r->leader = NO_ROW;
    r->followers = (struct list){NO_ROW, NO_ROW, 0, LINK_SHARE};
    r->submitted = ++s->submitted;
    sched_row_enter(s, r, ROW_WAITING);
    return 0;
}

/* ---- Events ---- */

static int is_live(const struct row *r) {
    return r != NULL && (r->state == ROW_WAITING || r->state == ROW_PREPARING || r->state == ROW_RUNNING ||
                         r->state == ROW_PREEMPTED);
}

void sched_finish(struct sched *s, sched_row row, int sound) {
    struct row *r = sched_row_find(s, row);
    if (!is_live(r)) return;
    set_paused(s, r, 0);
    sched_row_untell(s, r);
    if (!sound) sched_share_disown(s, r);
    if (r->state == ROW_WAITING) {
        sched_row_enter(s, r, ROW_GONE);
        return;
    }
    sched_room_shrink(s, r); /* what it does not hold is free for others now */
    sched_row_enter(s, r, ROW_ENDING);
    s->trailing_n += r->loading;
    sched_load_cancel(s, r);
    if (r->in_flight == 0 && !r->loading) sched_row_leave(s, r);
}

void sched_pause(struct sched *s, sched_row row, int paused) {
    struct row *r = sched_row_find(s, row);
    if (!is_live(r)) return;
    set_paused(s, r, paused);
    sched_row_settle(s, r);
}

void sched_fill(struct sched *s, sched_row row, uint32_t known) {
    struct row *r = sched_row_find(s, row);
    if (r == NULL || r->state != ROW_RUNNING || r->all_outputs) return;
    known = sched_min(sched_min(known, r->covered), r->prompt_n + r->max_new - 1);
    if (known < r->next || known - r->next < 2) return;
    r->known = known;
    sched_row_enter(s, r, ROW_PREPARING);
}

void sched_hold(struct sched *s, int hold) { s->held_back = hold != 0; }
void sched_close(struct sched *s) { s->closed = 1; }

int sched_pop_gone(struct sched *s, sched_row *out) {
    *out = 0;
    if (s->list[LIST_GONE].n == 0) return 0;
    struct row *r = row_at(s, s->list[LIST_GONE].first);
    *out = row_name(s, r);
    row_free(s, r);
    return 1;
}

prefix_block sched_stored(const struct sched *s, sched_row row) { return row_at(s, sched_row_index(row))->left; }

int sched_pop_admitted(struct sched *s, sched_row *out) {
    *out = 0;
    if (s->admitted.n == 0) return 0;
    struct row *r = row_at(s, s->admitted.first);
    sched_list_remove(s, &s->admitted, r);
    r->admitted_unread = 0;
    *out = row_name(s, r);
    return 1;
}

/* ---- Sight ---- */

enum row_state sched_row_state(const struct sched *s, sched_row row) {
    const struct row *r = sched_row_find(s, row);
    return r == NULL ? ROW_FREE : (enum row_state)r->state;
}

void sched_get_counts(const struct sched *s, struct sched_counts *out) {
    *out = (struct sched_counts){
        .reserved = s->state_n[ROW_RESERVED],
        .waiting = s->state_n[ROW_WAITING],
        .preparing = s->state_n[ROW_PREPARING],
        .running = s->state_n[ROW_RUNNING],
        .ending = s->state_n[ROW_ENDING],
        .gone = s->state_n[ROW_GONE],
        .preempted = s->state_n[ROW_PREEMPTED],
        .returning = s->returning_n,
        .paused = s->paused_n,
        .in_flight = s->in_flight,
        .preemptions = s->preemptions,
        .redone = s->redone,
        .following = s->following_n,
        .loading = s->loading_n,
        .cached = s->cached,
        .step_us = sched_costs_step(&s->costs, s->list[LIST_RUNNING].n),
        .token_ns = s->costs.added_ns != 0 ? s->costs.added_ns : s->costs.token_ns,
    };
}

void sched_get_tenant(const struct sched *s, uint32_t tenant, struct sched_tenant_counts *out) {
    assert(tenant < s->tenants_n);
    const struct tenant *t = &s->tenants[tenant];
    *out = (struct sched_tenant_counts){.waiting = t->present - t->rows, .rows = t->rows};
}

void sched_get_history(const struct sched *s, sched_row row, struct sched_history *out) {
    const struct row *r = sched_row_find(s, row);
    *out = r == NULL ? (struct sched_history){0, 0, 0} : (struct sched_history){r->preemptions, r->redone, r->cached};
}

uint32_t sched_rows_total(const struct sched *s) { return s->rows_total; }
uint32_t sched_batch_tokens(const struct sched *s) { return s->config.batch_tokens; }
uint32_t sched_outputs_max(const struct sched *s) { return s->config.outputs_max; }

/* ---- Birth and end of the object ---- */

static int bounded(uint32_t value, uint32_t least, uint32_t most, const char *field, cohort_error *err) {
    if (value >= least && value <= most) return 0;
    return err_set(err, COHORT_E_ARGUMENT, field, "%u is outside %u to %u", value, least, most);
}

static int config_check(const struct sched_config *c, cohort_error *err) {
    int e;
    if ((e = bounded(c->rows_max, 1, SCHED_ROWS_MAX, "rows_max", err)) != 0) return e;
    if ((e = bounded(c->queue_max, 0, SCHED_QUEUE_MAX, "queue_max", err)) != 0) return e;
    if ((e = bounded(c->batch_tokens, 0, SCHED_BATCH_MAX, "batch_tokens", err)) != 0) return e;
    if ((e = bounded(c->context_max, 1, SCHED_CONTEXT_MAX, "context_max", err)) != 0) return e;
    if ((e = bounded(c->groups, 1, PAGES_GROUPS_MAX, "groups", err)) != 0) return e;
    if ((e = bounded(c->itl_ratio_percent, 0, 10000, "itl_ratio_percent", err)) != 0) return e;
    if (c->itl_ratio_percent > 0 && c->itl_ratio_percent < 110)
        return err_set(err, COHORT_E_ARGUMENT, "itl_ratio_percent", "%u leaves prompts no time: 110 at least",
                       c->itl_ratio_percent);
    if (c->pages == NULL) return err_set(err, COHORT_E_ARGUMENT, "pages", "there is no page pool");
    if (c->prefix != NULL && c->tokens == NULL)
        return err_set(err, COHORT_E_ARGUMENT, "tokens", "a prefix store, and nobody knows the tokens");
    return 0;
}

static void config_raise(struct sched_config *c) {
    if (c->batch_tokens < c->rows_max) c->batch_tokens = c->rows_max;
    if (c->outputs_max == 0 || c->outputs_max > c->batch_tokens) c->outputs_max = c->batch_tokens;
    if (c->outputs_max < c->rows_max) c->outputs_max = c->rows_max;
    if (c->cohort_tokens == 0) c->cohort_tokens = SCHED_COHORT_TOKENS;
    if (c->cohort_tokens < 2 * c->batch_tokens) c->cohort_tokens = 2 * c->batch_tokens;
}

static int tables_new(struct sched *s) {
    s->table_len = (s->config.context_max + PAGE_TOKENS - 1) / PAGE_TOKENS;
    s->slots = s->config.rows_max * (1 + SCHED_IN_FLIGHT);
    size_t bytes;
    if (size_mul((size_t)s->slots * s->config.groups, s->table_len, &bytes) != 0 ||
        size_mul(bytes, sizeof *s->tables, &bytes) != 0)
        return COHORT_E_MEMORY;
    s->tables = mem_map(bytes);
    s->tables_bytes = bytes;
    s->slot_free = mem_alloc(s->slots, sizeof *s->slot_free);
    s->slot_seen = mem_zalloc(s->slots, sizeof *s->slot_seen);
    if (s->tables == NULL || s->slot_free == NULL || s->slot_seen == NULL) return COHORT_E_MEMORY;
    for (uint32_t i = 0; i < s->slots; i++) s->slot_free[i] = s->slots - 1 - i;
    s->slot_free_n = s->slots;
    return 0;
}

/* Without a store of the caller's, rows take their pages through one that stores nothing. */
static int prefix_open(struct sched *s) {
    struct prefix_config c = {.pages = s->config.pages, .groups = s->config.groups};
    for (uint32_t g = 0; g < c.groups; g++) {
        c.group[g] = s->config.group[g];
        s->has_windows |= c.group[g].window != 0;
        s->has_recurrent |= c.group[g].recurrent;
    }
    s->prefix = s->config.prefix;
    if (s->prefix != NULL) return 0;
    s->owns_prefix = 1;
    return prefix_new(&c, &s->prefix, NULL);
}

static int parts_new(struct sched *s) {
    s->rows = mem_zalloc(s->rows_total, sizeof *s->rows);
    if (s->rows == NULL || tables_new(s) != 0 || prefix_open(s) != 0) return COHORT_E_MEMORY;
    s->copies_max = COPIES_FOR_ROW * s->config.rows_max * s->config.groups;
    s->copies = mem_alloc(s->copies_max, sizeof *s->copies);
    s->load_blocks = mem_alloc(s->table_len, sizeof *s->load_blocks);
    if (s->copies == NULL || s->load_blocks == NULL) return COHORT_E_MEMORY;
    for (uint32_t i = 0; i < SCHED_IN_FLIGHT; i++) {
        s->plans[i].items = mem_zalloc(s->config.rows_max, sizeof *s->plans[i].items);
        if (s->plans[i].items == NULL) return COHORT_E_MEMORY;
    }
    for (uint32_t g = 0; g < s->config.groups; g++) {
        s->owners[g] = mem_zalloc(pages_total(s->config.pages, g), sizeof *s->owners[g]);
        if (s->owners[g] == NULL) return COHORT_E_MEMORY;
    }
    return 0;
}

int sched_new(const struct sched_config *config, struct sched **out, cohort_error *err) {
    *out = NULL;
    int e = config_check(config, err);
    if (e != 0) return e;
    struct sched *s = mem_zalloc(1, sizeof *s);
    if (s == NULL) goto fail;
    s->config = *config;
    config_raise(&s->config);
    if ((e = sched_line_new(s, config, err)) != 0) {
        sched_free(s);
        return e;
    }
    s->config.tenants = NULL; /* the caller's */
    s->rows_total = s->config.rows_max * (1 + SCHED_IN_FLIGHT) + s->config.queue_max;
    if (parts_new(s) != 0) goto fail;

    for (uint32_t i = 0; i < LISTS; i++) s->list[i] = (struct list){NO_ROW, NO_ROW, 0, LINK_PLACE};
    s->admitted = (struct list){NO_ROW, NO_ROW, 0, LINK_ADMITTED};
    s->leaders = (struct list){NO_ROW, NO_ROW, 0, LINK_LEADS};
    s->orphans = s->loads = (struct list){NO_ROW, NO_ROW, 0, LINK_SHARE};
    for (uint32_t i = s->rows_total; i-- > 0;) {
        struct row *r = row_at(s, i);
        *r = (struct row){.generation = 1, .state = ROW_FREE, .list = LIST_FREE, .slot = NO_SLOT, .leader = NO_ROW};
        r->followers = (struct list){NO_ROW, NO_ROW, 0, LINK_SHARE};
        sched_list_push(s, &s->list[LIST_FREE], r);
    }
    s->state_n[ROW_FREE] = s->rows_total;
    *out = s;
    return 0;
fail:
    sched_free(s);
    return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the scheduler's tables");
}

void sched_free(struct sched *s) {
    if (s == NULL) return;
    for (uint32_t g = 0; g < PAGES_GROUPS_MAX; g++) mem_free(s->owners[g]);
    for (uint32_t i = 0; i < SCHED_IN_FLIGHT; i++) mem_free(s->plans[i].items);
    if (s->tables != NULL) mem_unmap(s->tables, s->tables_bytes);
    if (s->owns_prefix) prefix_free(s->prefix);
    mem_free(s->copies);
    mem_free(s->load_blocks);
    mem_free(s->slot_free);
    mem_free(s->slot_seen);
    mem_free(s->tenants);
    mem_free(s->rows);
    mem_free(s);
}
