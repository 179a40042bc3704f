/* The naive account's second half: what every plan must be, given who is in, and what must follow from many plans:
 * nobody starves, something new is made, tenants are not passed. */
#include <stdio.h>

#include "sim_account.h"

enum { STALLS_MAX = 4 };

/* ---- One item ---- */

static int reads(const struct account_row *r) { return r->state == ROW_PREPARING; }

/* With recurrent groups somebody may want the state at the end of a block: of the last one before the last token but
 * one of the prompt, or of what it knows, or before a cut; where it parts from another text; and of each that a
 * multiple of the stride lies in. */
static int is_wanted(const struct account *a, const struct account_row *r, uint32_t end) {
    uint32_t stride = a->config->snapshot_stride, next = end + PAGE_TOKENS;
    int wanted = stride > 0 && end / stride > (end - PAGE_TOKENS) / stride;
    wanted |= end < r->request.prompt_n && r->request.prompt_n <= next;
    wanted |= end < r->known && r->known <= next;
    wanted |= end == r->branch;
    for (uint32_t i = 0; i < r->request.cuts_n; i++) wanted |= end <= r->request.cuts[i] && r->request.cuts[i] < next;
    return wanted;
}

/* Where its next item must end at the latest: its chunk, what it knows, its next cut that it never reached, the next
 * state that may be wanted. */
static uint32_t limit_of(const struct account *a, const struct account_row *r) {
    uint32_t end = sim_min(r->known, r->next + r->chunk), from = sim_max(r->next, r->reach);
    for (uint32_t i = 0; i < r->request.cuts_n; i++)
        if (r->request.cuts[i] > from) end = sim_min(end, r->request.cuts[i]);
    if (a->recurs && a->config->prefix != NULL && r->request.space != 0)
        for (uint32_t at = (r->next / PAGE_TOKENS + 1) * PAGE_TOKENS; at < end; at += PAGE_TOKENS)
            if (is_wanted(a, r, at)) end = at;
    return end - r->next;
}

/* A leader stops where its followers want its state. */
static void note_limits(struct account *a) {
    for (uint32_t i = 0; i < a->in.n; i++) a->in.at[i]->limit = reads(a->in.at[i]) ? limit_of(a, a->in.at[i]) : 1;
    for (uint32_t i = 0; i < a->in.n && a->recurs; i++) {
        const struct account_row *r = a->in.at[i];
        if (r->leader == NULL) continue;
        SIM_HOLDS(r->lead_until >= r->leader->next); /* it has not gone past it */
        if (r->lead_until > r->leader->next && reads(r->leader))
            r->leader->limit = sim_min(r->leader->limit, r->lead_until - r->leader->next);
    }
}

/* Returns the tokens of it that were never planned before. */
static uint32_t check_item(const struct account_row *r, const struct plan_item *item) {
    uint32_t end = item->pos + item->n_tokens, prompt_n = r->request.prompt_n;
    SIM_HOLDS(item->row == r->name && item->pos == r->next && item->n_tokens >= 1);
    SIM_HOLDS(item->source == (reads(r) ? PLAN_PROMPT : PLAN_SAMPLE));
    SIM_HOLDS(item->n_tokens <= r->limit);
    SIM_HOLDS(end <= prompt_n || end < account_total(r)); /* D2 */
    uint32_t fresh = end <= r->reach ? 0 : end - sim_max(item->pos, r->reach);
    int last = fresh > 0 && end >= prompt_n, samples = last && r->request.max_new > 0, boundary = 0;
    for (uint32_t i = 0; i < r->request.cuts_n; i++) boundary |= fresh > 0 && reads(r) && r->request.cuts[i] == end;
    SIM_HOLDS(item->samples == samples && item->boundary == boundary);
    uint32_t outputs = samples || (last && r->request.last_output);
    SIM_HOLDS(item->n_outputs == (reads(r) && r->request.all_outputs ? fresh : outputs));
    SIM_HOLDS(!samples || item->sample_index == end - prompt_n);
    return fresh;
}

static void take_item(struct account *a, struct account_row *r, const struct plan_item *item, uint32_t fresh) {
    r->next = item->pos + item->n_tokens;
    if (a->recurs) account_state(r, (r->next - 1) / PAGE_TOKENS);
    a->pages_reached += (sim_max(r->reach, r->next) - r->reach + r->reach % PAGE_TOKENS) / PAGE_TOKENS;
    r->reach = sim_max(r->reach, r->next);
    r->redone += item->n_tokens - fresh;
    a->redone += item->n_tokens - fresh;
    r->cuts_seen += item->boundary;
    if (r->next >= r->request.prompt_n) SIM_HOLDS(r->cuts_seen == r->request.cuts_n); /* P7: each of them, once */
    r->flying++;
    a->tenant[r->request.tenant].served += account_virtual(a, r->request.tenant, fresh);
    if (reads(r) && r->next == r->known) {
        r->state = ROW_RUNNING;
        account_reorder(a, r);
    }
}

/* ---- The shares of one plan ---- */

/* P4, P9: what the running rows leave, and the time allows, is for the preparing rows, one token each at least. Each
 * gets an equal part of half of it, or all it can take, and the oldest take the rest. Long prompts together may have a
 * limit of their own below that of all. */
struct shares {
    uint32_t n, tokens, long_tokens, each, outputs_each;
    uint32_t given, long_given; /* in the plan */
    int outputs_gone;           /* all that rows with outputs at every position may use is used */
};

static int is_long(const struct account_row *r) { return r->known > SCHED_SHORT_PROMPT; }

static struct shares shares_of(const struct account *a, const struct plan *plan, struct account_row *const *rows,
                               uint32_t running) {
    struct shares s = {.n = plan->n_items - running};
    struct account_allowance allowed = account_allow(a, running, s.n);
    s.tokens = sim_max(sim_min(a->config->batch_tokens - running, allowed.all), s.n);
    s.long_tokens = sim_max(sim_min(s.tokens, allowed.long_ones), s.n);
    uint32_t outputs = a->config->outputs_max - running, wanted = 0;
    s.each = sim_max(1, s.tokens / (2 * s.n));
    s.outputs_each = sim_max(1, outputs / (2 * s.n));
    for (uint32_t i = running; i < plan->n_items; i++) {
        uint32_t got = plan->items[i].n_tokens;
        s.given += got;
        s.long_given += is_long(rows[i]) ? got : 0;
        wanted += rows[i]->request.all_outputs ? got : 1;
    }
    SIM_HOLDS(s.given <= s.tokens && s.long_given <= s.long_tokens && wanted <= outputs);
    s.outputs_gone = wanted == outputs;
    return s;
}

static void check_shares(const struct account *a, const struct plan *plan, struct account_row *const *rows,
                         uint32_t running) {
    if (plan->n_items == running) return;
    struct shares s = shares_of(a, plan, rows, running);
    int short_one_wants = 0, long_one_wants = 0; /* an older one has not got all it can take */
    for (uint32_t i = running; i < plan->n_items; i++) {
        const struct account_row *r = rows[i];
        uint32_t got = plan->items[i].n_tokens, limit = r->limit;
        uint32_t part = r->request.all_outputs ? sim_min(s.each, s.outputs_each) : s.each;
        int outputs_lack = r->request.all_outputs && s.outputs_gone;
        int long_lack = is_long(r) && s.long_given == s.long_tokens;
        SIM_HOLDS(got >= sim_min(limit, long_lack ? 1 : part));
        if (short_one_wants || (is_long(r) && long_one_wants)) SIM_HOLDS(got <= part);
        if (got == limit || outputs_lack) continue;
        SIM_HOLDS(long_lack || s.given == s.tokens); /* nothing is left over */
        *(long_lack ? &long_one_wants : &short_one_wants) = 1;
    }
}

static int is_due(const struct account_row *r) {
    return !r->paused && !account_spent(r) && !r->following && !r->loading && (reads(r) || r->next < r->covered);
}

static void check_stalls(struct account *a) {
    /* A row without room waits STALLS_MAX plans for pages that are on their way; then everyone else but those gives
     * way, and it waits for the last of them: for commits, or for the engine to read a last token. */
    uint32_t most = STALLS_MAX + SCHED_IN_FLIGHT + a->late_most;
    int loads = 0; /* somebody who holds pages may take any time */
    for (uint32_t i = 0; i < a->in.n; i++) loads |= a->in.at[i]->loading;
    for (uint32_t i = 0; i < a->leaving.n; i++) loads |= a->leaving.at[i]->loading;
    for (uint32_t i = 0; i < a->in.n; i++) {
        struct account_row *r = a->in.at[i];
        int short_of_room = r->state == ROW_RUNNING && !r->paused && !account_spent(r) && r->next >= r->covered;
        r->without = short_of_room && !loads ? r->without + 1 : 0;
        a->totals->most_stalls = sim_max(a->totals->most_stalls, r->without);
        SIM_HOLDS(r->without <= most);
    }
}

/* ---- Tenants are not passed ---- */

static int waits_with_nothing(const struct account *a, uint32_t tenant) {
    int waits = 0;
    for (uint32_t i = 0; i < a->waiting.n; i++)
        waits |= a->waiting.at[i]->request.tenant == tenant && !a->waiting.at[i]->paused;
    return waits && account_rows(a, tenant) == 0;
}

/* A tenant waits and has no row at all. Others that are ahead of it by more than the quantum Q (of the smallest weight,
 * because they give way to the head of the line, which may be another's that was served even less) get no new row
 * before it. Of the rows that they have, between two admissions,
 *   - each may be one that came again, and then keeps its place for max(Q, context / 2) tokens;
 *   - each other one gives way when it is asked, one at a time; whoever leaves, or ends, or stands short of room, keeps
 *     everybody waiting for at most SLACK plans of at most B tokens.
 * So they make at most  rows_max * (max(Q, context / 2) + (SLACK + 1) * B)  tokens more. */
static void check_passed(struct account *a, const uint32_t fresh[]) {
    uint32_t slack = STALLS_MAX + SCHED_IN_FLIGHT + a->late_most, least = SCHED_WEIGHT_MAX;
    for (uint32_t t = 0; t < a->tenants_n; t++) least = sim_min(least, a->tenant[t].limits.weight);
    uint64_t quantum = SCHED_SHARE_QUANTUM * ((UINT64_C(1) << 20) / least);
    uint64_t most = a->config->rows_max * (uint64_t)(sim_max(SCHED_SHARE_QUANTUM, a->config->context_max / 2) +
                                                     (slack + 1) * a->config->batch_tokens);
    for (uint32_t w = 0; w < a->tenants_n && a->tenants_n > 1; w++) {
        struct account_tenant *tenant = &a->tenant[w];
        if (a->hold || a->admitted_n > 0 || a->loading || !waits_with_nothing(a, w)) {
            tenant->passed = 0;
            continue;
        }
        for (uint32_t t = 0; t < a->tenants_n; t++)
            if (a->tenant[t].served > tenant->served + quantum) tenant->passed += fresh[t];
        if (tenant->passed > a->totals->most_passed) a->totals->most_passed = tenant->passed;
        SIM_HOLDS(tenant->passed <= most);
    }
}

/* ---- The plan ---- */

/* Every row that prepares advances in every plan, so the first of them comes to something new, unless it leaves. */
static void check_progress(struct account *a, uint32_t fresh) {
    a->redo_plans = fresh > 0 ? 0 : a->redo_plans + 1;
    a->totals->most_redo_plans = sim_max(a->totals->most_redo_plans, a->redo_plans);
    SIM_HOLDS(a->redo_plans <= a->config->context_max);
}

void account_plan(struct account *a, const struct plan *plan) {
    struct account_row **rows = a->scratch.at;
    uint32_t due = 0, running = 0, tokens = 0, outputs = 0, redone = 0, fresh_of[ACCOUNT_TENANTS] = {0};
    check_stalls(a);
    note_limits(a);
    for (uint32_t i = 0; i < a->in.n; i++)
        if (is_due(a->in.at[i]) && !reads(a->in.at[i])) rows[due++] = a->in.at[i];
    running = due;
    for (uint32_t i = 0; i < a->in.n; i++)
        if (is_due(a->in.at[i]) && reads(a->in.at[i])) rows[due++] = a->in.at[i];
    SIM_HOLDS((plan != NULL ? plan->n_items : 0) == due);
    if (plan == NULL) return;
    SIM_HOLDS(plan->n_decode_tokens == running && plan->n_prompt_tokens + running == plan->n_tokens);
    check_shares(a, plan, rows, running);
    struct account_list *flight = &a->flight[plan->number % SCHED_IN_FLIGHT];
    flight->n = due;
    for (uint32_t i = 0; i < due; i++) {
        const struct plan_item *item = &plan->items[i];
        uint32_t fresh = check_item(rows[i], item);
        tokens += item->n_tokens;
        outputs += item->n_outputs;
        redone += item->n_tokens - fresh;
        fresh_of[rows[i]->request.tenant] += fresh;
        flight->at[i] = rows[i];
    }
    SIM_HOLDS(tokens == plan->n_tokens && tokens <= a->config->batch_tokens && redone == plan->n_redone);
    SIM_HOLDS(outputs == plan->n_outputs && outputs <= a->config->outputs_max);
    check_passed(a, fresh_of);
    check_progress(a, tokens - redone);
    for (uint32_t i = 0; i < due; i++) take_item(a, rows[i], &plan->items[i], check_item(rows[i], &plan->items[i]));
    a->flying++;
}

/* A state in the middle of a block that the row has left is of no use to anybody; nor is one before its last whole
 * block, or the one before that as long as the last token of the last may turn out to be none of its own, unless the
 * row is leaving and gives back everything soon. */
static void drop_states(const struct account *a, struct account_row *r, const struct plan_item *item) {
    uint32_t block = item->pos / PAGE_TOKENS;
    int leaves = r->state == ROW_ENDING || r->state == ROW_PREEMPTED;
    if (item->pos % PAGE_TOKENS != 0 && block != (r->done - 1) / PAGE_TOKENS && account_stateless(r, block) && leaves)
        for (uint32_t g = 0; g < a->config->groups; g++) r->held[g] -= a->config->group[g].recurrent;
    while (!leaves && r->states_n > 0 && (r->states[0] + 2) * PAGE_TOKENS < r->done) account_stateless(r, r->states[0]);
}

void account_commit(struct account *a, const struct plan *plan, uint32_t us) {
    struct account_list *flight = &a->flight[plan->number % SCHED_IN_FLIGHT];
    a->flying--;
    account_note(a, plan, us);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct account_row *r = flight->at[i];
        r->flying--;
        r->done = plan->items[i].pos + plan->items[i].n_tokens;
        if (a->recurs) drop_states(a, r, &plan->items[i]);
        if (r->flying == 0 && (r->state == ROW_ENDING || r->state == ROW_PREEMPTED)) account_go(a, r);
    }
}

/* ---- Sight ---- */

static void expect(const struct account_row *r, const struct sched *s, int in) {
    enum row_state state = sched_row_state(s, r->name);
    if ((state == ROW_PREPARING || state == ROW_RUNNING) == in) return;
    sim_fail("row %llx (tenant %u, priority %d, submitted %llu, reached %u) should be %s, but its state is %d",
             (unsigned long long)r->name, r->request.tenant, r->request.priority, (unsigned long long)r->submitted,
             r->reach,
             in                   ? "in"
             : r->preemptions > 0 ? "preempted"
                                  : "waiting",
             (int)state);
}

void account_expect(const struct account *a, const struct sched *s) {
    for (uint32_t i = 0; i < a->in.n; i++) expect(a->in.at[i], s, 1);
    for (uint32_t i = 0; i < a->gave_way.n; i++) {
        const struct account_row *r = a->gave_way.at[i]; /* one that followed may find its place again at once */
        if (r->state != ROW_PREPARING && r->state != ROW_RUNNING) expect(r, s, 0);
    }
}

/* Where rows share nothing, what they hold is what is not free. */
static void compare_pages(const struct account *a) {
    for (uint32_t g = 0; g < a->config->groups && a->config->prefix == NULL; g++) {
        uint64_t held = 0;
        for (uint32_t i = 0; i < a->in.n; i++) held += account_held(a, a->in.at[i], g);
        for (uint32_t i = 0; i < a->leaving.n; i++) held += a->leaving.at[i]->held[g];
        SIM_HOLDS(held + pages_available(a->config->pages, g) == pages_total(a->config->pages, g));
    }
}

void account_compare(const struct account *a, const struct sched *s) {
    struct sched_counts n;
    sched_get_counts(s, &n);
    uint32_t state[ROW_STATES] = {0}, paused = 0, steady = 0, returning = 0, following = 0, loading = 0;
    uint32_t waiting[ACCOUNT_TENANTS] = {0}, rows[ACCOUNT_TENANTS] = {0};
    const struct account_list *lists[] = {&a->waiting, &a->in, &a->leaving};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (uint32_t i = 0; i < lists[l]->n; i++) {
            const struct account_row *r = lists[l]->at[i];
            SIM_HOLDS(sched_row_state(s, r->name) == r->state);
            struct sched_history history;
            sched_get_history(s, r->name, &history);
            SIM_HOLDS(history.preemptions == r->preemptions && history.redone == r->redone);
            SIM_HOLDS(history.cached == r->cached);
            following += r->following;
            loading += r->loading;
            state[r->state]++;
            paused += r->paused;
            returning += r->state == ROW_WAITING && r->preemptions > 0;
            steady += r->state == ROW_RUNNING && !r->paused && !account_spent(r);
            waiting[r->request.tenant] += r->state == ROW_WAITING || r->state == ROW_PREEMPTED;
            rows[r->request.tenant] += r->state == ROW_PREPARING || r->state == ROW_RUNNING;
        }
    SIM_HOLDS(n.waiting == state[ROW_WAITING] && n.preparing == state[ROW_PREPARING]);
    SIM_HOLDS(n.running == state[ROW_RUNNING] && n.preempted == state[ROW_PREEMPTED] && n.ending == state[ROW_ENDING]);
    SIM_HOLDS(n.returning == returning && n.paused == paused && n.in_flight == a->flying && n.gone == a->gone.n);
    SIM_HOLDS(n.preemptions == a->preemptions && n.redone == a->redone && n.cached == a->cached);
    SIM_HOLDS(n.following == following && n.loading == loading);
    account_compare_time(a, steady, &n);
    compare_pages(a);
    for (uint32_t t = 0; t < a->tenants_n; t++) {
        struct sched_tenant_counts its;
        sched_get_tenant(s, t, &its);
        SIM_HOLDS(its.waiting == waiting[t] && its.rows == rows[t]);
        SIM_HOLDS(a->tenant[t].limits.rows_max == 0 || its.rows <= a->tenant[t].limits.rows_max);
    }
}
