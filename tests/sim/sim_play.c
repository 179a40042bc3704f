/* One epoch: a fake engine that reserves, submits, plans, runs, commits, reads and finishes in changing order and at
 * changing distances, people who cancel, readers who are slow, launches and rows that fail. Beside it runs the naive
 * account (sim_account.h), which is told of each call first and compared after it. Time is a counter of turns; what an
 * iteration takes is a formula with noise.
 *
 * What the engine has read when it plans: all tokens of committed plans, but those of the last one maybe not. That is
 * the most that an engine may put off, and what it needs to feed a row that comes again. */
#include <stdlib.h>
#include <string.h>

#include "sched/sched_internal.h"
#include "sim_account.h"
#include "sim_canary.h"
#include "sim_play.h"

/* ---- Requests come ---- */

static uint32_t places_taken(const struct play *p) {
    uint32_t n = p->spare_n + p->account.waiting.n + p->account.in.n;
    for (uint32_t i = 0; i < p->account.leaving.n; i++) n += p->account.leaving.at[i]->state == ROW_PREEMPTED;
    return n;
}

/* What it must get; and maybe it got some of that before, in another life. */
static void prepare(struct play *p, struct request *r) {
    sim_task_solve(&p->config, &r->task);
    if (r->row.request.all_outputs || r->task.expected_n < 2 || !sim_chance(&p->rng, p->habits.resumes)) return;
    r->got = r->heard = r->row.request.resumed = sim_between(&p->rng, 1, r->task.expected_n - 1);
    for (uint32_t i = 0; i < r->got; i++) r->task.tokens[r->task.prompt_n + i] = (int32_t)r->task.expected[i];
    p->totals->resumed++;
}

static void submit(struct play *p, sched_row row) {
    struct request *r = calloc(1, sizeof *r);
    SIM_HOLDS(r != NULL);
    sim_draw_request(&p->rng, &p->config, &p->habits, &p->library, &r->row.request, &r->task);
    struct sched_request *q = &r->row.request;
    int want = account_judge(&p->account, &r->row);
    SIM_HOLDS(sched_fits(p->s, q, NULL) == want);
    if (want == 0) prepare(p, r);
    if (p->closed) want = COHORT_E_CLOSED;
    struct sched_request given = *q;
    if (p->canary == CANARY_GREEDY && want == 0 && q->prompt_n + q->max_new < p->config.context_max) given.max_new++;
    if (p->canary == CANARY_FOREIGN && given.space > 1) given.space = 1;
    SIM_HOLDS(sched_submit(p->s, row, &given, NULL) == want);
    p->left -= p->left > 0;
    p->totals->requests++;
    if (want != 0) {
        *(want == COHORT_E_ARGUMENT ? &p->totals->refused_wrong : &p->totals->refused_size) += 1;
        SIM_HOLDS(sched_row_state(p->s, row) == ROW_RESERVED);
        sched_unreserve(p->s, row);
        sim_task_clear(&r->task);
        free(r);
        return;
    }
    SIM_HOLDS(sched_submit(p->s, row, q, NULL) == COHORT_E_NOT_FOUND); /* once */
    SIM_HOLDS(p->by_index[sched_row_index(row)] == NULL);
    store_say(p, &r->task);
    r->row.name = row;
    r->place = p->live_n;
    p->live[p->live_n++] = r;
    p->by_index[sched_row_index(row)] = r;
    account_submit(&p->account, &r->row);
    canary_submitted(p, r);
}

static void arrive(struct play *p) {
    while (p->spare_n > 0 && sim_chance(&p->rng, 300)) submit(p, p->spare[--p->spare_n]);
    if (p->left == 0 || (p->live_n > 0 && !sim_chance(&p->rng, p->habits.arrive))) return;
    for (uint32_t n = sim_between(&p->rng, 1, p->habits.burst_max); n > 0 && p->left > p->spare_n; n--) {
        sched_row row;
        int full = places_taken(p) == p->config.rows_max + p->config.queue_max;
        int want = p->closed ? COHORT_E_CLOSED : full ? COHORT_E_BUSY : 0;
        SIM_HOLDS(sched_reserve(p->s, &row) == want);
        if (want != 0) {
            SIM_HOLDS(row == 0);
            p->totals->refused_busy++;
            if (p->closed) p->left = p->spare_n;
            return;
        }
        SIM_HOLDS(sched_row_index(row) < sched_rows_total(p->s) && row >> 32 != 0);
        SIM_HOLDS(row != p->names[sched_row_index(row)]); /* a name never comes again */
        p->names[sched_row_index(row)] = row;
        if (sim_chance(&p->rng, 30))
            sched_unreserve(p->s, row);
        else if (p->spare_n < SPARE && sim_chance(&p->rng, 50))
            p->spare[p->spare_n++] = row;
        else
            submit(p, row);
    }
}

/* ---- Requests end ---- */

static void end_row(struct play *p, struct request *r, int sound) {
    SIM_HOLDS(!r->ended);
    r->ended = 1;
    r->ended_commit = p->commits;
    account_finish(&p->account, &r->row);
    if (p->canary != CANARY_DEAF) sched_finish(p->s, r->row.name, sound || p->canary == CANARY_UNSOUND);
}

static void finish(struct play *p, struct request *r) {
    end_row(p, r, 1);
    SIM_HOLDS(r->got == r->task.expected_n);
    SIM_HOLDS(!r->row.request.all_outputs || r->scores == r->task.scores);
    if (r->got > 0 && sim_task_stops(&r->task, r->task.expected[r->got - 1]))
        p->totals->finished_stop++;
    else
        p->totals->finished_length++;
}

static void pop_gone(struct play *p) {
    sched_row row;
    while (sched_pop_gone(p->s, &row)) {
        struct request *r = p->by_index[sched_row_index(row)];
        SIM_HOLDS(r != NULL && r->row.name == row && r->ended);
        SIM_HOLDS(account_take_first(&p->account.gone) == &r->row);
        SIM_HOLDS(sched_row_state(p->s, row) == ROW_FREE);
        p->by_index[sched_row_index(row)] = NULL;
        p->live[r->place] = p->live[--p->live_n];
        p->live[r->place]->place = r->place;
        sim_task_clear(&r->task);
        free(r);
    }
    SIM_HOLDS(p->account.gone.n == 0);
}

/* ---- What happens to them meanwhile ---- */

static struct request *any_live(struct play *p, uint32_t rate) {
    if (p->live_n == 0 || !sim_chance(&p->rng, rate)) return NULL;
    struct request *r = p->live[sim_below(&p->rng, p->live_n)];
    return r->ended ? NULL : r;
}

static void pause_row(struct play *p, struct request *r, int paused) {
    account_pause(&p->account, &r->row, paused);
    sched_pause(p->s, r->row.name, paused);
}

/* Calls with names that nobody has change nothing. */
static void call_strangers(struct play *p) {
    sched_row row = p->names[sim_below(&p->rng, sched_rows_total(p->s))];
    if (row != 0 && p->by_index[sched_row_index(row)] != NULL) {
        sched_unreserve(p->s, row); /* it is no reserved place any more */
        row += UINT64_C(1) << 32;
    }
    for (uint32_t i = 0; i < p->spare_n; i++)
        if (p->spare[i] == row) return;
    sched_finish(p->s, row, 1);
    sched_pause(p->s, row, 1);
    sched_unreserve(p->s, row);
}

static void disturb(struct play *p) {
    struct request *r = any_live(p, p->habits.cancel);
    if (r != NULL) {
        end_row(p, r, sim_chance(&p->rng, 800));
        p->totals->cancelled++;
    }
    r = any_live(p, p->habits.pause);
    if (r != NULL) {
        r->wake_at = p->now + sim_between(&p->rng, 1, sim_chance(&p->rng, 100 + p->habits.lengthy / 4) ? 400 : 20);
        pause_row(p, r, 1);
        p->totals->pauses++;
    }
    if (sim_chance(&p->rng, p->habits.hold) && p->hold_until == 0) {
        p->hold_until = p->now + sim_between(&p->rng, 1, 30);
        p->account.hold = 1;
        sched_hold(p->s, 1);
    }
    if (sim_chance(&p->rng, p->habits.cancel)) call_strangers(p);
    if (!p->closed && p->left < p->habits.close) {
        p->closed = 1;
        sched_close(p->s);
        if (sim_chance(&p->rng, 500)) /* at once */
            for (uint32_t i = 0; i < p->live_n; i++)
                if (!p->live[i]->ended) end_row(p, p->live[i], 1);
    }
    canary_disturb(p);
}

static void wake(struct play *p) {
    if (p->hold_until != 0 && p->now >= p->hold_until) {
        p->hold_until = 0;
        p->account.hold = 0;
        sched_hold(p->s, 0);
    }
    for (uint32_t i = 0; i < p->live_n; i++) {
        struct request *r = p->live[i];
        if (r->row.paused && p->now >= r->wake_at) pause_row(p, r, 0);
        if (r->closing && !r->ended && p->now >= r->finish_at) finish(p, r);
        if (r->ended && !r->row.loading && p->commits > r->ended_commit + SCHED_IN_FLIGHT)
            sim_fail("a finished row does not go");
    }
    pop_gone(p);
}

/* ---- Plans ---- */

static void pop_admitted(struct play *p) {
    if (p->config.prefix != NULL || sim_chance(&p->rng, p->habits.late_told)) return; /* sim_store.c */
    sched_row row;
    while (sched_pop_admitted(p->s, &row)) {
        struct account_row *r = account_take_first(&p->account.untold);
        SIM_HOLDS(r != NULL && r->name == row);
        r->untold = 0;
    }
    SIM_HOLDS(p->account.untold.n == 0);
}

/* The promise of sched.h: generated tokens that a row must read again were read by the engine before. */
static void check_promise(const struct play *p, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct plan_item *item = &plan->items[i];
        const struct request *r = p->by_index[sched_row_index(item->row)];
        SIM_HOLDS(r != NULL && !r->ended && !r->row.paused);
        if (item->source == PLAN_PROMPT) SIM_HOLDS(item->pos + item->n_tokens <= r->task.prompt_n + r->heard);
    }
}

/* There is nothing to do, and nothing on its way: nobody may wait for a plan that nobody makes. */
static void check_sleep(const struct play *p) { SIM_HOLDS(p->s->list[LIST_PREPARING].n == 0 && p->s->orphans.n == 0); }

static int make_plan(struct play *p) {
    const struct plan *plan;
    canary_plan(p);
    account_predict(&p->account);
    store_plan(p);
    int made = sched_plan(p->s, &plan);
    SIM_HOLDS(made == (plan != NULL));
    canary_made(p);
    store_planned(p);
    account_expect(&p->account, p->s);
    pop_admitted(p);
    account_plan(&p->account, plan);
    store_sync(p);
    int failed = store_move(p);
    canary_planned(p, plan);
    if (!made && p->launched == 0 && !failed) check_sleep(p);
    if (!made) return 0;
    check_promise(p, plan);
    struct launch *l = &p->launch[p->launched++];
    l->plan = plan;
    l->ran = 0;
    l->failed = sim_chance(&p->rng, p->habits.fail_launch);
    p->totals->plans++;
    p->totals->tokens += plan->n_tokens;
    p->totals->redone += plan->n_redone;
    return 1;
}

/* ---- The backend and the reader ---- */

/* It does not succeed: what its rows would have written is anything. */
static void spoil_launch(struct play *p, const struct launch *l) {
    for (uint32_t i = 0; i < l->plan->n_items; i++) p->by_index[sched_row_index(l->plan->items[i].row)]->spoilt = 1;
    store_spoil(p, l->plan);
}

static void run_launch(struct play *p, struct launch *l) {
    if (l->ran) return;
    l->ran = 1;
    if (l->failed) {
        spoil_launch(p, l);
        return;
    }
    for (uint32_t i = 0; i < l->plan->n_items; i++) {
        const struct plan_item *item = &l->plan->items[i];
        struct request *r = p->by_index[sched_row_index(item->row)];
        SIM_HOLDS(r != NULL && r->row.name == item->row); /* an ending row is still there */
        if (r->spoilt || (p->canary == CANARY_UNRUN && sim_chance(&p->rng, 10))) continue;
        struct sim_feed feed = {r->heard, r->slot};
        if (p->canary == CANARY_NEIGHBOUR && i > 0)
            feed.sample = p->by_index[sched_row_index(l->plan->items[i - 1].row)]->slot;
        l->samples[i] = sim_model_run(&p->model, &r->task, item, &feed, &r->scores, p->canary);
        if (item->samples) r->slot = l->samples[i];
        if (p->canary == CANARY_SLOT && item->source == PLAN_PROMPT && !item->samples) r->slot = l->samples[i];
    }
}

static void hear(struct request *r, uint32_t sample) {
    r->task.tokens[r->task.prompt_n + r->heard++] = (int32_t)sample;
}

/* Reads one row's item of a committed plan. What comes after the row's end, until the engine finishes it, is kept for a
 * row that comes again, and shows nowhere. */
static void deliver(struct play *p, const struct plan_item *item, uint32_t sample) {
    struct request *r = p->by_index[sched_row_index(item->row)];
    if (r == NULL || r->row.name != item->row || r->ended || r->spoilt) return;
    if (r->closing) {
        if (item->samples) hear(r, sample);
        return;
    }
    uint32_t end = item->pos + item->n_tokens;
    if (sim_chance(&p->rng, p->habits.fail_row)) {
        end_row(p, r, 0);
        p->totals->failed++;
        return;
    }
    int samples = item->samples;
    if (p->canary == CANARY_TWICE && item->source == PLAN_PROMPT && r->got > 0 &&
        end + 1 == r->task.prompt_n + r->got) {
        samples = 1;
        sample = r->slot;
    }
    if (samples) {
        if (p->canary == CANARY_LOST && sim_chance(&p->rng, 10)) return;
        SIM_HOLDS(item->sample_index == r->got && r->got < r->task.expected_n);
        if (sample != r->task.expected[r->got])
            sim_fail("row %llx: token %u is %u, alone it is %u", (unsigned long long)item->row, r->got, sample,
                     r->task.expected[r->got]);
        hear(r, sample);
        r->got++;
        r->closing = sim_task_stops(&r->task, sample) || r->got == r->task.max_new;
    } else
        r->closing = r->task.max_new == 0 && end == r->task.prompt_n;
    if (!r->closing) return;
    r->finish_at = p->now + (sim_chance(&p->rng, p->habits.late_finish) ? sim_between(&p->rng, 1, SIM_LATE_MOST) : 0);
    if (r->finish_at == p->now) finish(p, r);
}

static void read_unread(struct play *p) {
    uint32_t n = p->unread_n;
    p->unread_n = 0;
    for (uint32_t i = 0; i < n; i++) deliver(p, &p->unread[i], p->unread_samples[i]);
}

static uint32_t time_of(struct play *p, const struct plan *plan) {
    const struct sim_habits *h = &p->habits;
    uint32_t us = h->cost_base + h->cost_row * plan->n_decode_tokens + h->cost_token * plan->n_prompt_tokens;
    if (h->cost_noise > 0) us += us * sim_below(&p->rng, h->cost_noise) / 100;
    if (h->cost_noise > 0 && sim_chance(&p->rng, 10)) us *= sim_below(&p->rng, 50); /* 0: not known */
    return us;
}

/* The launch did not succeed: every row of it ends with an error, some before its plan is given back. */
static void fail_rows(struct play *p, const struct plan_item *items, uint32_t n, uint32_t per_thousand) {
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = p->by_index[sched_row_index(items[i].row)];
        if (r == NULL || r->row.name != items[i].row || r->ended || !sim_chance(&p->rng, per_thousand)) continue;
        end_row(p, r, 0);
        p->totals->failed++;
    }
}

static void commit(struct play *p) {
    read_unread(p);
    struct launch l = p->launch[0];
    run_launch(p, &p->launch[0]);
    uint32_t n = l.plan->n_items, us = l.failed ? 0 : time_of(p, l.plan);
    memcpy(p->unread, l.plan->items, n * sizeof *p->unread);
    memcpy(p->unread_samples, l.samples, n * sizeof *p->unread_samples);
    if (l.failed) fail_rows(p, p->unread, n, 500);
    account_commit(&p->account, l.plan, us);
    if (l.failed && p->canary != CANARY_UNSOUND)
        sched_abandon(p->s, l.plan);
    else
        sched_commit(p->s, l.plan, us);
    store_sync(p);
    p->commits++;
    if (l.failed) fail_rows(p, p->unread, n, 1001);
    p->unread_n = l.failed ? 0 : n;
    for (uint32_t k = 1; k < p->launched; k++) p->launch[k - 1] = p->launch[k];
    p->launch[--p->launched].samples = l.samples;
    if (!sim_chance(&p->rng, p->habits.late_read)) read_unread(p);
    pop_gone(p);
}

/* ---- The loop ---- */

/* Nothing was done in this turn: somebody must be asleep or late, or there is nothing to do. One turn without is
 * allowed, because the rows in the way may have gone since the plan was tried. */
static void check_moves(struct play *p, int done) {
    int excused = done || p->live_n == 0 || p->hold_until != 0 || p->loads_n > 0;
    for (uint32_t i = 0; !excused && i < p->live_n; i++) excused = p->live[i]->row.paused || p->live[i]->closing;
    p->idle_turns = excused ? 0 : p->idle_turns + 1;
    if (p->idle_turns > 1) sim_fail("nothing moves, and %u rows live", p->live_n);
}

static void turn(struct play *p) {
    uint32_t depth = p->habits.depth_fixed > 0 ? p->habits.depth_fixed : sim_between(&p->rng, 1, 2);
    arrive(p);
    disturb(p);
    pop_gone(p);
    if (p->launched == SCHED_IN_FLIGHT) {
        const struct plan *more;
        SIM_HOLDS(sched_plan(p->s, &more) == 0 && more == NULL);
    }
    int made = p->launched < depth && make_plan(p);
    if (made && sim_chance(&p->rng, 300)) /* the backend is quick */
        for (uint32_t k = 0; k < p->launched; k++) run_launch(p, &p->launch[k]);
    disturb(p);
    uint64_t submitted = p->account.submitted;
    if (sim_chance(&p->rng, 300)) arrive(p);
    pop_gone(p);
    int moved = made || p->unread_n > 0 || p->launched > 0 || p->account.submitted != submitted;
    if (p->launched > 0 && (p->launched >= depth || !made))
        commit(p);
    else if (!made)
        read_unread(p);
    check_moves(p, moved);
    p->now++;
    wake(p);
    store_load(p);
    store_spill(p);
    store_drop(p);
    if (p->now % p->check_every == 0) {
        SIM_HOLDS(sched_check(p->s));
        account_compare(&p->account, p->s);
        p->totals->checks++;
    }
}

static void play_new(struct play *p) {
    sim_draw_epoch(&p->rng, &p->config, &p->habits);
    p->left = p->habits.requests;
    store_new(p);
    struct sched_config told = p->config;
    canary_configure(p, &told);
    SIM_HOLDS(sched_new(&told, &p->s, NULL) == 0);
    struct sched_config *c = &p->config; /* as the scheduler raises it */
    c->batch_tokens = sched_batch_tokens(p->s);
    c->outputs_max = sched_outputs_max(p->s);
    if (c->cohort_tokens == 0) c->cohort_tokens = SCHED_COHORT_TOKENS;
    c->cohort_tokens = sim_max(c->cohort_tokens, 2 * c->batch_tokens);
    uint32_t total = sched_rows_total(p->s), pages = 0;
    sim_model_init(&p->model, c);
    account_init(&p->account, c, SIM_LATE_MOST + 4, p->totals);
    p->by_index = calloc(total, sizeof *p->by_index);
    p->names = calloc(total, sizeof *p->names);
    p->live = calloc(total, sizeof *p->live);
    p->unread = calloc(c->rows_max, sizeof *p->unread);
    p->unread_samples = calloc(c->rows_max, sizeof *p->unread_samples);
    SIM_HOLDS(p->by_index != NULL && p->names != NULL && p->live != NULL);
    SIM_HOLDS(p->unread != NULL && p->unread_samples != NULL);
    for (uint32_t k = 0; k < SCHED_IN_FLIGHT; k++) {
        p->launch[k].samples = calloc(c->rows_max, sizeof *p->launch[k].samples);
        SIM_HOLDS(p->launch[k].samples != NULL);
    }
    for (uint32_t g = 0; g < c->groups; g++) pages += pages_total(c->pages, g);
    p->check_every = 1 + (total + pages + sim_min(c->prefix == NULL ? 0 : p->habits.blocks_max, 2 * pages)) / 60;
    if (c->prefix != NULL) p->check_every *= 5; /* it walks the store, too */
}

static void play_free(struct play *p) {
    sim_model_clear(&p->model);
    account_clear(&p->account);
    for (uint32_t k = 0; k < SCHED_IN_FLIGHT; k++) free(p->launch[k].samples);
    free(p->by_index);
    free(p->names);
    free(p->live);
    free(p->unread);
    free(p->unread_samples);
    sched_free(p->s);
    store_free(p);
    pages_free(p->config.pages);
}

void sim_play(uint64_t seed, uint64_t epoch, enum sim_canary canary, struct sim_totals *totals) {
    struct play *p = calloc(1, sizeof *p);
    SIM_HOLDS(p != NULL);
    *p = (struct play){.rng = {seed, epoch, 0}, .canary = canary, .totals = totals};
    play_new(p);
    while (p->left > 0 || p->live_n > 0 || p->launched > 0) turn(p);
    while (p->spare_n > 0) sched_unreserve(p->s, p->spare[--p->spare_n]);
    SIM_HOLDS(sched_check(p->s));
    account_compare(&p->account, p->s);
    struct sched_counts n;
    sched_get_counts(p->s, &n);
    SIM_HOLDS(n.reserved + n.waiting + n.preparing + n.running + n.ending + n.gone + n.paused + n.in_flight == 0);
    struct prefix_counts kept = {0};
    if (p->config.prefix != NULL) prefix_get_counts(p->config.prefix, &kept);
    for (uint32_t g = 0; g < p->config.groups; g++)
        SIM_HOLDS(pages_available(p->config.pages, g) + kept.idle[g] == pages_total(p->config.pages, g));
    sched_close(p->s);
    sched_row row;
    SIM_HOLDS(sched_reserve(p->s, &row) == COHORT_E_CLOSED);
    play_free(p);
    free(p);
}
