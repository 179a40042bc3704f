/* What there is beside when rows share: a fake disk with copies of blocks, page copies, loads that come late or fail,
 * and a witness. Which beginnings are found depends on what was evicted while others were let in, so the naive account
 * does not predict it; the witness looks at what the scheduler did, reads its memory, and sees that
 *   - who came in was the next in line, and nobody was kept out who would have fitted if he shared nothing;
 *   - nobody began behind what may be taken, nor before what can be found;
 *   - who gave way had a reason, and the first of all had none;
 *   - everything else about each row is as the account has it.
 * Whether what was taken is right shows in the tokens. */
#include <stdlib.h>
#include <string.h>

#include "sched/sched_internal.h"
#include "sim_canary.h"
#include "sim_play.h"

static const struct row *row_of(const struct play *p, const struct account_row *r) {
    return row_at(p->s, sched_row_index(r->name));
}

static struct request *request_of(const struct play *p, sched_row row) {
    struct request *r = p->by_index[sched_row_index(row)];
    SIM_HOLDS(r != NULL && r->row.name == row);
    return r;
}

static const int32_t *tokens_of(void *user, sched_row row, uint32_t *n) {
    const struct request *r = request_of(user, row);
    SIM_HOLDS(r->row.request.space != 0);
    *n = r->task.prompt_n + r->heard;
    return r->task.tokens;
}

static uint64_t *page_at(const struct play *p, uint32_t g, uint32_t page) {
    return p->model.arena[g] + (size_t)page * PAGE_TOKENS;
}

/* ---- Birth and end ---- */

void store_new(struct play *p) {
    if (p->habits.blocks_max == 0) return;
    struct prefix_config config = {.pages = p->config.pages, .groups = p->config.groups};
    struct sched_config told = p->config;
    canary_configure(p, &told);
    config.blocks_max = p->habits.blocks_max;
    config.seed = sim_draw(&p->rng);
    for (uint32_t g = 0; g < config.groups; g++) {
        config.group[g] = told.group[g];
        if (p->canary == CANARY_MIDDLE) config.group[g].recurrent = 0;
        if (p->canary == CANARY_UNWINDOWED) config.group[g].window = (config.group[g].window + 1) / 2;
    }
    SIM_HOLDS(prefix_new(&config, &p->config.prefix, NULL) == 0);
    p->config.tokens = tokens_of;
    p->config.user = p;
    p->disk = calloc(p->habits.disk + 1, sizeof *p->disk);
    p->loads = calloc(p->config.rows_max * (1 + SCHED_IN_FLIGHT), sizeof *p->loads);
    p->orphans = calloc(p->config.rows_max, sizeof *p->orphans);
    SIM_HOLDS(p->disk != NULL && p->loads != NULL && p->orphans != NULL);
    p->totals->stored_epochs++;
}

void store_free(struct play *p) {
    for (uint32_t t = 0; t < SIM_TEXTS; t++) free(p->library.text[t]);
    if (p->config.prefix == NULL) return;
    struct prefix_counts n;
    prefix_get_counts(p->config.prefix, &n);
    p->totals->evicted += n.evicted + n.evicted_snapshots;
    for (uint32_t i = 0; i < p->habits.disk; i++)
        for (uint32_t g = 0; g < PAGES_GROUPS_MAX; g++) free(p->disk[i].values[g]);
    free(p->disk);
    free(p->loads);
    free(p->orphans);
    prefix_free(p->config.prefix);
}

/* A task's prompt and its answer may be the beginning of others. */
void store_say(struct play *p, const struct sim_task *task) {
    uint32_t answer = sim_below(&p->rng, task->expected_n + 1), n = task->prompt_n + answer;
    if (p->config.prefix == NULL || !sim_chance(&p->rng, n < 4 * PAGE_TOKENS ? 40 : 300)) return; /* rather long ones */
    struct sim_library *lib = &p->library;
    lib->last = sim_below(&p->rng, SIM_TEXTS);
    free(lib->text[lib->last]);
    int32_t *text = calloc(n, sizeof *text);
    SIM_HOLDS(text != NULL);
    memcpy(text, task->tokens, task->prompt_n * sizeof *text);
    for (uint32_t i = 0; i < answer; i++) text[task->prompt_n + i] = (int32_t)task->expected[i];
    lib->text[lib->last] = text;
    lib->n[lib->last] = n;
}

/* ---- The disk ---- */

static void disk_free(struct play *p, uint64_t where) {
    SIM_HOLDS(where >= 1 && where <= p->habits.disk && p->disk[where - 1].used);
    p->disk[where - 1].used = 0;
    p->disk_n--;
}

/* Room for one more; the least of what is there may go. 0: none. */
static uint64_t disk_room(struct play *p) {
    for (uint64_t where; (where = prefix_next_dropped(p->config.prefix)) != 0;) disk_free(p, where);
    for (uint32_t k = 0; k < p->habits.disk && p->disk_n < p->habits.disk; k++) {
        p->disk_next = (p->disk_next + 1) % p->habits.disk;
        if (!p->disk[p->disk_next].used) return p->disk_next + 1;
    }
    struct prefix_view view;
    prefix_block coldest = prefix_coldest(p->config.prefix);
    if (!prefix_get(p->config.prefix, coldest, &view)) return 0;
    prefix_forget_where(p->config.prefix, coldest);
    disk_free(p, view.where);
    return view.where;
}

static void disk_write(struct play *p, prefix_block block, uint32_t groups) {
    struct prefix_view view;
    SIM_HOLDS(prefix_get(p->config.prefix, block, &view));
    uint64_t where = view.where != 0 ? view.where : disk_room(p);
    if (where == 0 || !prefix_get(p->config.prefix, block, &view)) return;
    struct sim_copy *copy = &p->disk[where - 1];
    if (view.where == 0) copy->groups = 0;
    p->disk_n += !copy->used;
    copy->used = 1;
    copy->groups |= groups;
    for (uint32_t g = 0; g < p->config.groups; g++) {
        if (!(groups >> g & 1)) continue;
        if (copy->values[g] == NULL) copy->values[g] = calloc(PAGE_TOKENS, sizeof *copy->values[g]);
        SIM_HOLDS(copy->values[g] != NULL && view.page[g] != PAGE_NONE);
        SIM_HOLDS(sim_has(&p->config.group[g], view.index * PAGE_TOKENS));
        SIM_HOLDS(!p->config.group[g].recurrent ||
                  page_at(p, g, view.page[g])[1] == (view.index + 1) * (uint64_t)PAGE_TOKENS);
        memcpy(copy->values[g], page_at(p, g, view.page[g]), PAGE_TOKENS * sizeof *copy->values[g]);
    }
    SIM_HOLDS(prefix_set_where(p->config.prefix, block, where, groups));
    p->totals->spilled++;
}

void store_spill(struct play *p) {
    if (p->config.prefix == NULL || p->habits.disk == 0 || !sim_chance(&p->rng, p->habits.spill)) return;
    uint32_t groups;
    prefix_block block;
    for (uint32_t n = 0; n < 8 && (block = prefix_next_fresh(p->config.prefix, &groups)) != 0; n++)
        disk_write(p, block, groups);
}

void store_drop(struct play *p) {
    if (p->config.prefix == NULL || !sim_chance(&p->rng, p->habits.drop)) return;
    prefix_remove_space(p->config.prefix, sim_between(&p->rng, 1, p->habits.spaces));
    p->totals->dropped++;
}

/* ---- Copies and loads ---- */

void store_spoil(struct play *p, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->n_items; i++)
        for (uint32_t g = 0; g < p->config.groups; g++) {
            const struct plan_item *item = &plan->items[i];
            const struct pages_shape *shape = &p->config.group[g];
            if (shape->recurrent) { /* it looks like one */
                page_at(p, g, item->to[g])[0] = sim_draw(&p->rng);
                page_at(p, g, item->to[g])[1] = item->pos + item->n_tokens;
                continue;
            }
            for (uint32_t pos = item->pos; pos < item->pos + item->n_tokens; pos++)
                if (sim_has(shape, pos))
                    page_at(p, g, item->table[g][pos / PAGE_TOKENS])[pos % PAGE_TOKENS] = sim_draw(&p->rng);
        }
}

static void copy_pages(struct play *p) {
    struct sched_copy c;
    while (sched_pop_copy(p->s, &c)) {
        p->totals->copies++;
        if (p->canary == CANARY_UNCOPIED) continue;
        memcpy(page_at(p, c.group, c.to), page_at(p, c.group, c.from), PAGE_TOKENS * sizeof(uint64_t));
    }
}

static void forget(struct play *p, prefix_block block) {
    struct prefix_view view;
    if (!prefix_get(p->config.prefix, block, &view) || view.where == 0) return;
    prefix_forget_where(p->config.prefix, block);
    disk_free(p, view.where);
}

static void begin_loads(struct play *p) {
    struct sched_load load;
    while (sched_pop_load(p->s, &load)) {
        struct request *r = request_of(p, load.row);
        SIM_HOLDS(load.n > 0 && !r->row.told);
        if (sim_chance(&p->rng, p->habits.load_fail / 2)) { /* the disk takes no more */
            forget(p, load.blocks[0].block);
            sched_loaded(p->s, load.row, 0);
            p->totals->refused++;
            continue;
        }
        r->row.told = 1;
        struct sim_load *l = &p->loads[p->loads_n++];
        *l = (struct sim_load){load.row, p->now + sim_below(&p->rng, p->habits.load_late + 1), load.n, NULL};
        l->blocks = calloc(load.n, sizeof *l->blocks);
        SIM_HOLDS(l->blocks != NULL);
        memcpy(l->blocks, load.blocks, load.n * sizeof *l->blocks);
        p->totals->loads++;
    }
}

/* What is not there any more, or not as it was, makes the load fail. */
static int read_block(struct play *p, const struct sched_load_block *b) {
    struct prefix_view view;
    if (!prefix_get(p->config.prefix, b->block, &view) || view.where == 0) return 0;
    const struct sim_copy *copy = &p->disk[view.where - 1];
    SIM_HOLDS(copy->used && (copy->groups & view.where_has) == view.where_has);
    if ((b->groups & view.where_has) != b->groups) return 0;
    for (uint32_t g = 0; g < p->config.groups; g++)
        if (b->groups >> g & 1) memcpy(page_at(p, g, b->page[g]), copy->values[g], PAGE_TOKENS * sizeof(uint64_t));
    return 1;
}

static void note_cached(struct play *p, struct account_row *r) {
    uint32_t from = sim_min(r->reach, r->request.prompt_n), to = sim_min(r->taken, r->request.prompt_n);
    if (to <= from) return;
    r->cached += to - from;
    p->account.cached += to - from;
    p->totals->cached += to - from;
}

static void end_load(struct play *p, struct sim_load *l) {
    struct request *r = request_of(p, l->row);
    int ok = 1;
    for (uint32_t k = 0; k < l->n && ok; k++) {
        ok = !sim_chance(&p->rng, p->habits.load_fail) && read_block(p, &l->blocks[k]);
        if (!ok) forget(p, l->blocks[k].block);
    }
    p->totals->loads_failed += !ok;
    int ending = r->row.state == ROW_ENDING;
    sched_loaded(p->s, l->row, ok || p->canary == CANARY_TOLD);
    if (!ending) return;
    SIM_HOLDS(r->row.loading && r->row.told);
    if (ok) note_cached(p, &r->row);
    r->row.loading = r->row.told = 0;
    account_go(&p->account, &r->row);
}

void store_load(struct play *p) {
    for (uint32_t i = 0; i < p->loads_n;) {
        struct sim_load l = p->loads[i];
        if (l.due > p->now) {
            i++;
            continue;
        }
        p->loads[i] = p->loads[--p->loads_n];
        end_load(p, &l);
        free(l.blocks);
        store_sync(p);
    }
}

/* ---- The witness ---- */

/* Outputs that it has not got yet must still be made, the next token's always. */
static uint32_t most_of(const struct account_row *r) {
    return r->request.all_outputs ? sim_min(r->known - 1, r->reach) : r->known - 1;
}

/* P9: a short prompt does not wait until a long one has read more than a chunk. */
static void check_pace(const struct play *p, const struct row *row) {
    if (!row->following || row->leader == NO_ROW || row->known > SCHED_SHORT_PROMPT) return;
    const struct row *leader = row_at(p->s, row->leader);
    SIM_HOLDS(leader->known <= SCHED_SHORT_PROMPT || leader->loading ||
              row->lead_until <= leader->done + leader->chunk);
}

/* With recurrent groups it goes on where a block ends, from the state there. */
static void check_state(const struct play *p, const struct account_row *r) {
    uint32_t at = r->lead_until > 0 ? r->lead_until : r->taken;
    SIM_HOLDS(at % PAGE_TOKENS == 0);
    for (uint32_t g = 0; g < p->config.groups && r->taken > 0; g++)
        if (p->config.group[g].recurrent && !r->loading) {
            uint32_t page = row_table(p->s, row_of(p, r), g)[(r->taken - 1) / PAGE_TOKENS];
            SIM_HOLDS(page < pages_total(p->config.pages, g) && page_at(p, g, page)[1] == r->taken);
        }
}

/* It has begun: with what it took, or it follows, or it loads. */
static void begun(struct play *p, struct account_row *r) {
    const struct row *row = row_of(p, r);
    r->following = row->following;
    r->loading = row->loading;
    r->told = 0;
    r->lead_until = row->following ? row->lead_until : 0;
    r->taken = r->following ? 0 : row->taken;
    r->branch = row->branch;
    SIM_HOLDS(r->branch % PAGE_TOKENS == 0 && (r->branch == 0 || r->branch > r->taken) && r->branch <= most_of(r));
    r->next = r->taken;
    r->done = r->loading ? 0 : r->taken;
    r->covered = sim_min(account_total(r), r->known + SCHED_AHEAD);
    r->admitted = r->known;
    r->states_n = 0;
    if (p->account.recurs) check_state(p, r);
    if (p->account.recurs && r->taken > 0) account_state(r, (r->taken - 1) / PAGE_TOKENS);
    SIM_HOLDS(r->next <= most_of(r) && (r->next == 0 || r->request.space != 0));
    SIM_HOLDS(r->lead_until <= most_of(r) && r->lead_until % PAGE_TOKENS == 0);
    SIM_HOLDS(!r->following || (!r->loading && r->lead_until > 0 && r->request.space != 0));
    check_pace(p, row);
    p->totals->followed += r->following;
    if (r->loading) return;
    note_cached(p, r);
    r->reach = sim_max(r->reach, r->taken);
    account_pass_cuts(r);
}

/* Nothing has changed in the store since: it took all that can be found. */
static void check_found(struct play *p, const struct account_row *r) {
    uint32_t n;
    struct prefix_match m;
    if (r->request.space == 0 || r->following || r->loading || row_of(p, r)->warm_only) return;
    prefix_find(p->config.prefix, r->request.space, tokens_of(p, r->name, &n), most_of(r), &m);
    if (m.cold == m.tokens && m.tokens != r->taken)
        sim_fail("row %llx began at %u, and %u are stored", (unsigned long long)r->name, r->taken, m.tokens);
}

/* The account's rows, in the order of the scheduler's lists. */
static void reorder(struct play *p) {
    static const enum list_id lists[] = {LIST_RUNNING, LIST_PREPARING, LIST_FOLLOWING, LIST_PARKED};
    struct account *a = &p->account;
    uint32_t n = 0;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (uint32_t i = p->s->list[lists[l]].first; i != NO_ROW; i = row_at(p->s, i)->link[LINK_PLACE].next) {
            struct request *r = p->by_index[i];
            SIM_HOLDS(r != NULL);
            if (r->row.state != ROW_PREPARING && r->row.state != ROW_RUNNING) continue; /* paused in line */
            SIM_HOLDS(n < a->in.n);
            a->scratch.at[n++] = &r->row;
        }
    SIM_HOLDS(n == a->in.n);
    memcpy(a->in.at, a->scratch.at, n * sizeof *a->in.at);
}

static int is_out(const struct account_row *r, const struct row *row) {
    return row->state == ROW_WAITING || row->state == ROW_PREEMPTED || row->preemptions != r->preemptions;
}

/* Of the rows that stand in line again: each could be taken, and the first of all only if it was asleep, had nothing,
 * or is owed to another tenant. */
static void check_preempted(struct play *p, int planned) {
    struct account *a = &p->account;
    for (uint32_t i = 0; i < a->in.n;) {
        struct account_row *r = a->in.at[i];
        if (!is_out(r, row_of(p, r))) {
            i++;
            continue;
        }
        SIM_HOLDS(planned || r->following || r->loading);
        SIM_HOLDS(!account_spent(r) && (!planned || !r->loading) &&
                  (r->following || r->loading || a->tenants_n > 1 || r != account_senior(a)));
        r->loading = 0;
        account_preempt(a, r, NOT_SAID);
    }
}

static int has_begun(const struct account_row *r, const struct row *row) {
    return (r->following || r->loading) && (r->following != row->following || r->loading != row->loading ||
                                            (r->following && r->lead_until != row->lead_until));
}

void store_sync(struct play *p) {
    if (p->config.prefix == NULL) return;
    struct account *a = &p->account;
    check_preempted(p, 0);
    a->loading = 0;
    for (uint32_t i = 0; i < a->in.n; i++) {
        struct account_row *r = a->in.at[i];
        const struct row *row = row_of(p, r);
        if (has_begun(r, row)) {
            canary_begun(p, r);
            begun(p, r);
        }
        SIM_HOLDS(row_name(p->s, row) == r->name && r->state == row->state);
        SIM_HOLDS(r->following == row->following && r->loading == row->loading);
        SIM_HOLDS(r->next == row->next && r->done == row->done && r->reach == row->reach && r->known == row->known);
        SIM_HOLDS(r->admitted == row->admitted && r->covered == row->covered);
        a->loading |= r->loading;
    }
    for (uint32_t t = 0; t < a->tenants_n; t++) {
        /* Where some gave way and others came in or ended, the levels depend on an order that nobody told. */
        if (a->gave_way.n > 0) a->tenant[t].served = p->s->tenants[t].served;
        SIM_HOLDS(a->tenant[t].served == p->s->tenants[t].served);
    }
    reorder(p);
}

/* Who lost the one that it followed looks again, in this order. */
static void check_orphans(struct play *p) {
    for (uint32_t i = 0; i < p->orphans_n; i++) {
        struct account_row *r = &request_of(p, p->orphans[i])->row;
        if ((r->state != ROW_PREPARING && r->state != ROW_RUNNING) || !has_begun(r, row_of(p, r))) continue;
        begun(p, r);
        account_reorder(&p->account, r);
    }
}

/* Each was the next in line. */
static void check_admitted(struct play *p, int as_it_was) {
    struct account *a = &p->account;
    sched_row name;
    while (sched_pop_admitted(p->s, &name)) {
        struct account_row *r = &request_of(p, name)->row;
        SIM_HOLDS((account_head(a) == r || a->gave_way.n > 0) && a->in.n < a->config->rows_max);
        account_admit(a, r);
        account_take_first(&a->untold);
        r->untold = 0;
        begun(p, r);
        if (as_it_was) check_found(p, r);
    }
}

/* Claims of running rows grow when they come to their end, by SCHED_AHEAD tokens or to the end of the page. */
static void check_claims(struct play *p) {
    for (uint32_t i = 0; i < p->account.in.n; i++) {
        struct account_row *r = p->account.in.at[i];
        uint32_t covered = row_of(p, r)->covered, total = account_total(r);
        if (covered == r->covered) continue;
        SIM_HOLDS(r->state == ROW_RUNNING && r->next >= r->covered);
        SIM_HOLDS(covered == sim_min(total, r->next + SCHED_AHEAD) ||
                  covered == sim_min(total, r->next - r->next % PAGE_TOKENS + PAGE_TOKENS));
        r->covered = covered;
    }
}

static uint64_t stamp(const struct play *p) {
    struct prefix_counts n;
    prefix_get_counts(p->config.prefix, &n);
    return n.evicted * 1000003 + n.evicted_snapshots * 10007 + n.blocks * 101 + n.snapshots * 11 + n.resident;
}

static int is_short(const struct account_row *r) {
    return r->state == ROW_RUNNING && !r->paused && !account_spent(r) && r->next >= r->covered;
}

void store_plan(struct play *p) {
    if (p->config.prefix == NULL) return;
    p->stamp = stamp(p);
    p->orphans_n = 0;
    for (uint32_t i = p->s->orphans.first; i != NO_ROW; i = row_at(p->s, i)->link[LINK_SHARE].next)
        p->orphans[p->orphans_n++] = row_name(p->s, row_at(p->s, i));
    p->account.calm = 1;
    for (uint32_t i = 0; i < p->account.in.n; i++) p->account.calm &= !is_short(p->account.in.at[i]);
}

void store_planned(struct play *p) {
    if (p->config.prefix == NULL) return;
    struct account *a = &p->account;
    uint64_t spent[PAGES_GROUPS_MAX];
    for (uint32_t g = 0; g < p->config.groups; g++) {
        spent[g] = p->s->claimed[g];
        if (p->config.group[g].window == 0) spent[g] += prefix_used(p->config.prefix, g) - p->s->held[g];
    }
    check_preempted(p, 1);
    check_orphans(p);
    check_admitted(p, stamp(p) == p->stamp && a->gave_way.n == 0);
    check_claims(p);
    for (uint32_t i = 0; i < a->in.n; i++) {
        const struct row *row = row_of(p, a->in.at[i]);
        int led = row->following && row->leader != NO_ROW;
        a->in.at[i]->leader = led ? &p->by_index[row->leader]->row : NULL;
    }
    const struct account_row *head = account_head(a);
    if (a->calm && a->gave_way.n == 0 && head != NULL && account_has_room(a, head, spent))
        sim_fail("row %llx has room and does not come in", (unsigned long long)head->name);
}

int store_move(struct play *p) {
    if (p->config.prefix == NULL) return 0;
    copy_pages(p);
    store_drop(p);
    uint32_t loading = p->s->loading_n;
    begin_loads(p);
    if (p->s->loading_n == loading) return 0;
    store_sync(p);
    return 1;
}
