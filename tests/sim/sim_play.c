/* One epoch: a configuration, a fake engine that reserves, submits, plans, runs, commits, reads and finishes in
 * changing order and at changing distances, people who cancel and readers who are slow; and beside it a naive account
 * of what the scheduler must do. Time is a counter of turns. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct request {
    struct sim_task task;
    sched_row row;
    uint32_t place;   /* in play.live */
    uint32_t chunk;   /* prompt tokens in one plan at most, as the scheduler must have cut it */
    uint32_t planned; /* positions in plans so far */
    uint32_t done;    /* positions in committed plans */
    uint32_t got;     /* tokens read */
    uint32_t fed;     /* the last sample */
    uint64_t scores;
    uint64_t plans; /* since it was admitted */
    uint64_t last_plan, wake_at, finish_at, ended_commit;
    uint64_t held[PAGES_GROUPS_MAX]; /* pages that it may take at most; once ended, that it holds */
    uint8_t all_outputs, admitted, paused, was_paused, closing, ended;
};

struct launch {
    const struct plan *plan;
    uint32_t *samples;
    int ran;
};

struct play {
    struct sim_rng rng;
    enum sim_canary canary;
    struct sim_totals *totals;
    struct sched_config config;
    struct sched *s;
    struct sim_model model;
    struct request **by_index, **live, **line; /* the line: those not admitted, in order */
    sched_row *names;                          /* the last of each index */
    uint32_t live_n, line_n;
    sched_row spare[4]; /* reserved places not used yet */
    uint32_t spare_n;
    struct launch launch[SCHED_IN_FLIGHT];
    uint32_t launched;
    struct plan_item *items; /* copy of a committed plan's */
    uint32_t left;
    uint64_t now, commits, hold_until;
    uint32_t check_every, cancel_rate, pause_rate, hold_rate, arrive_rate, late_rate, burst_max, stop_every;
    int depth_fixed;
    uint32_t idle_turns;
};

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* ---- The configuration ---- */

struct profile {
    uint32_t rows_low, rows_high, queue_high, batch_high, context_high, cohort_high;
};

static const struct profile profiles[] = {
    {1, 3, 3, 8, 120, 40},        /* tiny */
    {4, 32, 64, 128, 512, 400},   /* usual */
    {64, 400, 2000, 300, 200, 0}, /* large */
    {2, 16, 20, 4096, 700, 0},    /* a budget above every prompt */
    {8, 40, 100, 64, 300, 300},   /* with small pools, below */
};

static void draw_config(struct play *p) {
    struct sim_rng *rng = &p->rng;
    uint32_t which = sim_below(rng, sizeof profiles / sizeof *profiles);
    const struct profile *f = &profiles[which];
    struct sched_config *c = &p->config;
    *c = (struct sched_config){.rows_max = sim_between(rng, f->rows_low, f->rows_high),
                               .queue_max = sim_below(rng, f->queue_high + 1),
                               .batch_tokens = sim_below(rng, f->batch_high + 1),
                               .outputs_max = sim_chance(rng, 500) ? sim_below(rng, f->batch_high) : 0,
                               .context_max = sim_between(rng, 8, f->context_high),
                               .cohort_tokens = sim_below(rng, f->cohort_high + 1),
                               .groups = sim_between(rng, 1, 3)};
    uint32_t totals[PAGES_GROUPS_MAX];
    uint32_t batch = c->batch_tokens > c->rows_max ? c->batch_tokens : c->rows_max;
    uint32_t plenty = which == 4 ? sim_below(rng, 5) : sim_between(rng, 3, 12); /* of pages, in every group */
    for (uint32_t g = 0; g < c->groups; g++) {
        c->group[g].window = g == 0 && sim_chance(rng, 800) ? 0 : sim_between(rng, 1, 100);
        uint32_t worst = (uint32_t)pages_worst(c->group[g].window, c->context_max, 2 * batch);
        if (plenty == 0)
            totals[g] = sim_between(rng, (worst + 2) / 3, worst); /* some rows can never fit */
        else if (plenty < 5)
            totals[g] = worst + sim_below(rng, 2 * worst + 1); /* few large rows at a time */
        else if (plenty < 9)
            totals[g] = worst * sim_between(rng, (c->rows_max + 1) / 2, c->rows_max);
        else
            totals[g] = worst * c->rows_max;
    }
    SIM_HOLDS(pages_new(&c->pages, c->groups, totals, NULL) == 0);
    SIM_HOLDS(sched_new(c, &p->s, NULL) == 0);
    c->batch_tokens = sched_batch_tokens(p->s);
    c->outputs_max = sched_outputs_max(p->s);
    if (c->cohort_tokens == 0) c->cohort_tokens = SCHED_COHORT_TOKENS;
    if (c->cohort_tokens < 2 * c->batch_tokens) c->cohort_tokens = 2 * c->batch_tokens;

    uint32_t calm = sim_below(rng, 3); /* 0: nothing disturbs */
    p->cancel_rate = calm * sim_below(rng, 50);
    p->pause_rate = calm * sim_below(rng, 100);
    p->hold_rate = calm * sim_below(rng, 10);
    p->late_rate = sim_below(rng, 2) * sim_below(rng, 600);
    p->arrive_rate = sim_between(rng, 20, 1000);
    p->burst_max = sim_chance(rng, 500) ? 2 : c->rows_max * 2 + 1;
    p->stop_every = sim_chance(rng, 500) ? sim_between(rng, 2, 60) : 0;
    p->depth_fixed = (int)sim_below(rng, 3); /* 0: changes all the time */
}

/* ---- Requests come ---- */

static void remove_at(struct request **list, uint32_t *n, uint32_t i) {
    memmove(list + i, list + i + 1, (--*n - i) * sizeof *list);
}

static uint32_t places_taken(const struct play *p) {
    uint32_t n = p->spare_n;
    for (uint32_t i = 0; i < p->live_n; i++) n += !p->live[i]->ended;
    return n;
}

/* The largest chunk with which the row fits the empty pool, by trying; 0 if none. Fills r->held with its worst case. */
static uint32_t project(const struct play *p, struct request *r, uint32_t chunk_max) {
    uint64_t tokens = (uint64_t)r->task.prompt_n + r->task.max_new;
    uint32_t c = chunk_max == 0 ? p->config.batch_tokens : min_u32(chunk_max, p->config.batch_tokens);
    for (; c > 0; c--) {
        int fits = 1;
        for (uint32_t g = 0; g < p->config.groups; g++) {
            r->held[g] = pages_worst(p->config.group[g].window, tokens, 2 * c);
            fits &= r->held[g] <= pages_total(p->config.pages, g);
        }
        if (fits) break;
    }
    return c;
}

static void draw_request(struct play *p, struct request *r, struct sched_request *q) {
    struct sim_rng *rng = &p->rng;
    uint32_t context = p->config.context_max, brief = min_u32(context, 40);
    q->prompt_n = sim_between(rng, 1, sim_chance(rng, 700) ? brief : context);
    if (sim_chance(rng, 200)) q->prompt_n = sim_between(rng, 1, min_u32(context, 4));
    q->max_new = sim_between(rng, 1, sim_chance(rng, 800) ? brief : context);
    if (sim_chance(rng, 970)) q->max_new = min_u32(q->max_new, context - q->prompt_n); /* mostly inside the context */
    q->chunk_max = sim_chance(rng, 300) ? sim_between(rng, 1, 50) : 0;
    q->all_outputs = (uint8_t)sim_chance(rng, 100);
    if (q->max_new == 0) q->all_outputs = 1;
    *r = (struct request){.all_outputs = q->all_outputs};
    r->task = (struct sim_task){.salt = sim_draw(rng),
                                .prompt_n = q->prompt_n,
                                .max_new = q->max_new,
                                .stop_every = sim_chance(rng, 800) ? p->stop_every : 0};
}

static void submit(struct play *p, sched_row row) {
    struct request *r = malloc(sizeof *r);
    SIM_HOLDS(r != NULL);
    struct sched_request q;
    draw_request(p, r, &q);
    r->chunk = project(p, r, q.chunk_max);
    int want = (uint64_t)q.prompt_n + q.max_new > p->config.context_max ? COHORT_E_CONTEXT
               : r->chunk == 0                                          ? COHORT_E_CAPACITY
                                                                        : 0;
    if (p->canary == CANARY_GREEDY && q.max_new > 1) r->task.max_new--;
    SIM_HOLDS(sched_fits(p->s, &q, NULL) == want);
    SIM_HOLDS(sched_submit(p->s, row, &q, NULL) == want);
    p->left--;
    p->totals->requests++;
    if (want != 0) {
        p->totals->refused_size++;
        SIM_HOLDS(sched_row_state(p->s, row) == ROW_RESERVED);
        sched_unreserve(p->s, row);
        free(r);
        return;
    }
    sim_task_solve(&p->config, &r->task);
    r->row = row;
    r->place = p->live_n;
    p->live[p->live_n++] = r;
    p->line[p->line_n++] = r;
    SIM_HOLDS(p->by_index[sched_row_index(row)] == NULL);
    p->by_index[sched_row_index(row)] = r;
}

static void arrive(struct play *p) {
    while (p->spare_n > 0 && sim_chance(&p->rng, 300)) submit(p, p->spare[--p->spare_n]);
    if (p->left == 0 || (p->live_n > 0 && !sim_chance(&p->rng, p->arrive_rate))) return;
    for (uint32_t n = sim_between(&p->rng, 1, p->burst_max); n > 0 && p->left > p->spare_n; n--) {
        sched_row row;
        int full = places_taken(p) == p->config.rows_max + p->config.queue_max;
        SIM_HOLDS(sched_reserve(p->s, &row) == (full ? COHORT_E_BUSY : 0));
        if (full) {
            p->totals->refused_busy++;
            return;
        }
        SIM_HOLDS(sched_row_index(row) < sched_rows_total(p->s) && row >> 32 != 0);
        SIM_HOLDS(row != p->names[sched_row_index(row)]); /* a name never comes again */
        p->names[sched_row_index(row)] = row;
        if (sim_chance(&p->rng, 30))
            sched_unreserve(p->s, row);
        else if (p->spare_n < 4 && sim_chance(&p->rng, 50))
            p->spare[p->spare_n++] = row;
        else
            submit(p, row);
    }
}

/* ---- Requests end ---- */

static void end_row(struct play *p, struct request *r) {
    r->ended = 1;
    r->paused = 0;
    r->ended_commit = p->commits;
    for (uint32_t g = 0; g < p->config.groups; g++) { /* what it holds until it is gone */
        uint32_t window = p->config.group[g].window;
        uint32_t from = window == 0 || r->done < window ? 0 : r->done - window + 1;
        r->held[g] = (r->planned + PAGE_TOKENS - 1) / PAGE_TOKENS - from / PAGE_TOKENS;
    }
    if (!r->admitted)
        for (uint32_t i = 0; i < p->line_n; i++)
            if (p->line[i] == r) remove_at(p->line, &p->line_n, i);
}

static void finish(struct play *p, struct request *r) {
    end_row(p, r);
    sched_finish(p->s, r->row);
    SIM_HOLDS(r->got == r->task.expected_n);
    SIM_HOLDS(!r->all_outputs || r->scores == r->task.scores);
    if (r->got > 0 && sim_task_stops(&r->task, r->task.expected[r->got - 1]))
        p->totals->finished_stop++;
    else
        p->totals->finished_length++;
}

static void pop_gone(struct play *p) {
    sched_row row;
    while (sched_pop_gone(p->s, &row)) {
        struct request *r = p->by_index[sched_row_index(row)];
        SIM_HOLDS(r != NULL && r->row == row && r->ended);
        SIM_HOLDS(sched_row_state(p->s, row) == ROW_FREE);
        p->by_index[sched_row_index(row)] = NULL;
        p->live[r->place] = p->live[--p->live_n];
        p->live[r->place]->place = r->place;
        sim_task_clear(&r->task);
        free(r);
    }
}

/* ---- What happens to them meanwhile ---- */

static void disturb(struct play *p) {
    if (p->live_n > 0 && sim_chance(&p->rng, p->cancel_rate)) {
        struct request *r = p->live[sim_below(&p->rng, p->live_n)];
        if (!r->ended) {
            end_row(p, r);
            if (p->canary != CANARY_DEAF) sched_finish(p->s, r->row);
            p->totals->cancelled++;
        }
    }
    if (p->live_n > 0 && sim_chance(&p->rng, p->pause_rate)) {
        struct request *r = p->live[sim_below(&p->rng, p->live_n)];
        if (!r->ended && !r->paused) {
            r->paused = r->was_paused = 1;
            r->wake_at = p->now + sim_between(&p->rng, 1, 20);
            sched_pause(p->s, r->row, 1);
            p->totals->paused++;
        }
    }
    if (sim_chance(&p->rng, p->hold_rate) && p->hold_until == 0) {
        p->hold_until = p->now + sim_between(&p->rng, 1, 30);
        sched_hold(p->s, 1);
    }
}

static void wake(struct play *p) {
    if (p->hold_until != 0 && p->now >= p->hold_until) {
        p->hold_until = 0;
        sched_hold(p->s, 0);
    }
    for (uint32_t i = 0; i < p->live_n; i++) {
        struct request *r = p->live[i];
        if (r->paused && p->now >= r->wake_at) {
            r->paused = 0;
            sched_pause(p->s, r->row, 0);
        }
        if (r->closing && !r->ended && p->now >= r->finish_at) finish(p, r);
        if (r->ended && p->commits > r->ended_commit + SCHED_IN_FLIGHT) sim_fail("a finished row does not go");
    }
    pop_gone(p);
}

/* ---- Admission, naively ---- */

/* The plan must have admitted exactly what fits, in order. */
static void check_admission(struct play *p, uint32_t prepare_n, uint64_t load) {
    uint64_t held[PAGES_GROUPS_MAX] = {0};
    uint32_t rows = 0;
    for (uint32_t i = 0; i < p->live_n; i++) {
        struct request *r = p->live[i];
        if (!r->admitted) continue;
        rows += !r->ended;
        for (uint32_t g = 0; g < p->config.groups; g++) held[g] += r->held[g];
    }
    sched_row row;
    for (;;) {
        int fits = p->line_n > 0 && p->hold_until == 0 && rows < p->config.rows_max;
        struct request *head = p->line_n > 0 ? p->line[0] : NULL;
        uint32_t part = head == NULL ? 0 : min_u32(head->task.prompt_n, p->config.cohort_tokens / 2);
        for (uint32_t g = 0; fits && g < p->config.groups; g++)
            fits = held[g] + head->held[g] <= pages_total(p->config.pages, g);
        fits = fits && (prepare_n == 0 || load + part <= p->config.cohort_tokens);
        SIM_HOLDS(sched_pop_admitted(p->s, &row) == fits);
        if (!fits) return;
        SIM_HOLDS(row == head->row);
        head->admitted = 1;
        remove_at(p->line, &p->line_n, 0);
        rows++;
        for (uint32_t g = 0; g < p->config.groups; g++) held[g] += head->held[g];
        if (head->paused) continue;
        prepare_n++;
        load += part;
    }
}

/* ---- Plans ---- */

static int wants(const struct request *r) {
    return r->planned < r->task.prompt_n || r->planned + 1 < r->task.prompt_n + r->task.max_new;
}

static void check_item(struct play *p, const struct plan *plan, const struct plan_item *item) {
    struct request *r = p->by_index[sched_row_index(item->row)];
    SIM_HOLDS(r != NULL && r->row == item->row && r->admitted && !r->ended && !r->paused);
    uint32_t end = item->pos + item->n_tokens, prompt_n = r->task.prompt_n;
    SIM_HOLDS(item->pos == r->planned && item->n_tokens >= 1 && r->last_plan != plan->number && wants(r));
    if (item->pos < prompt_n) {
        SIM_HOLDS(item->source == PLAN_PROMPT && end <= prompt_n && item->n_tokens <= r->chunk);
        r->plans++;
    } else
        SIM_HOLDS(item->source == PLAN_SAMPLE && item->n_tokens == 1);
    int samples = end >= prompt_n && r->task.max_new > 0;
    SIM_HOLDS(item->samples == samples && (!samples || item->sample_index == end - prompt_n));
    SIM_HOLDS(item->n_outputs == (item->pos < prompt_n && r->all_outputs ? item->n_tokens : (uint32_t)samples));
    r->planned = end;
    r->last_plan = plan->number;
}

/* The bound of docs/SCHEDULER.md on the iterations that a prompt takes. */
static uint32_t plans_bound(const struct play *p, const struct request *r) {
    uint32_t rows = p->config.rows_max, each = p->config.batch_tokens / (2 * rows);
    if (r->all_outputs) each = min_u32(each, p->config.outputs_max / (2 * rows));
    each = min_u32(each < 1 ? 1 : each, r->chunk);
    return (r->task.prompt_n + each - 1) / each;
}

static void check_plan(struct play *p, const struct plan *plan) {
    uint32_t tokens = 0, outputs = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        check_item(p, plan, &plan->items[i]);
        tokens += plan->items[i].n_tokens;
        outputs += plan->items[i].n_outputs;
    }
    SIM_HOLDS(tokens == plan->n_tokens && tokens <= p->config.batch_tokens);
    SIM_HOLDS(outputs == plan->n_outputs && outputs <= p->config.outputs_max);
    for (uint32_t i = 0; i < p->live_n; i++) {
        const struct request *r = p->live[i];
        if (!r->admitted || r->ended || r->paused) continue;
        SIM_HOLDS(r->last_plan == plan->number || !wants(r)); /* nobody is left out */
        SIM_HOLDS(r->was_paused || r->plans <= plans_bound(p, r));
    }
}

static int make_plan(struct play *p) {
    uint32_t prepare_n = 0;
    uint64_t load = 0;
    for (uint32_t i = 0; i < p->live_n; i++) {
        const struct request *r = p->live[i];
        if (!r->admitted || r->ended || r->paused || r->planned >= r->task.prompt_n) continue;
        prepare_n++;
        load += min_u32(r->task.prompt_n - r->planned, p->config.cohort_tokens / 2);
    }
    const struct plan *plan;
    int made = sched_plan(p->s, &plan);
    check_admission(p, prepare_n, load);
    if (!made) {
        for (uint32_t i = 0; i < p->live_n; i++) {
            const struct request *r = p->live[i];
            SIM_HOLDS(!r->admitted || r->ended || r->paused || !wants(r));
        }
        return 0;
    }
    check_plan(p, plan);
    p->launch[p->launched].plan = plan;
    p->launch[p->launched++].ran = 0;
    p->totals->plans++;
    p->totals->tokens += plan->n_tokens;
    if (p->canary == CANARY_EARLY && sim_chance(&p->rng, 10))
        pages_unref(p->config.pages, 0, plan->items[0].table[0][plan->items[0].pos / PAGE_TOKENS]);
    if (p->canary == CANARY_LEAK && p->totals->plans == 100) pages_alloc(p->config.pages, 0);
    return 1;
}

/* ---- The backend and the reader ---- */

static void run_launch(struct play *p, struct launch *l) {
    if (l->ran) return;
    l->ran = 1;
    for (uint32_t i = 0; i < l->plan->n_items; i++) {
        const struct plan_item *item = &l->plan->items[i];
        struct request *r = p->by_index[sched_row_index(item->row)];
        SIM_HOLDS(r != NULL && r->row == item->row); /* an ending row is still there */
        if (p->canary == CANARY_UNRUN && sim_chance(&p->rng, 10)) continue;
        uint32_t fed = r->fed;
        if (p->canary == CANARY_NEIGHBOUR && i > 0) fed = p->by_index[sched_row_index(l->plan->items[i - 1].row)]->fed;
        l->samples[i] = sim_model_run(&p->model, &r->task, item, fed, &r->scores, p->canary);
        if (item->samples) r->fed = l->samples[i];
    }
}

/* Reads one row's item of a committed plan. What comes after the row's end is not looked at. */
static void deliver(struct play *p, const struct plan_item *item, uint32_t sample) {
    struct request *r = p->by_index[sched_row_index(item->row)];
    SIM_HOLDS(r != NULL && r->row == item->row);
    if (r->ended || r->closing) return;
    uint32_t end = item->pos + item->n_tokens;
    if (item->samples) {
        if (p->canary == CANARY_LOST && sim_chance(&p->rng, 10)) return;
        SIM_HOLDS(item->sample_index == r->got && r->got < r->task.expected_n);
        if (sample != r->task.expected[r->got])
            sim_fail("row %llx: token %u is %u, alone it is %u", (unsigned long long)item->row, r->got, sample,
                     r->task.expected[r->got]);
        r->got++;
        r->closing = sim_task_stops(&r->task, sample) || r->got == r->task.max_new;
    } else
        r->closing = r->task.max_new == 0 && end == r->task.prompt_n;
    if (!r->closing) return;
    r->finish_at = p->now + (sim_chance(&p->rng, p->late_rate) ? sim_between(&p->rng, 1, 4) : 0);
    if (r->finish_at == p->now) finish(p, r);
}

static void commit(struct play *p) {
    struct launch l = p->launch[0];
    run_launch(p, &p->launch[0]);
    uint32_t n = l.plan->n_items;
    memcpy(p->items, l.plan->items, n * sizeof *p->items);
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = p->by_index[sched_row_index(p->items[i].row)];
        r->done = p->items[i].pos + p->items[i].n_tokens;
    }
    sched_commit(p->s, l.plan, 0);
    p->commits++;
    for (uint32_t i = 0; i < n; i++) deliver(p, &p->items[i], l.samples[i]);
    for (uint32_t k = 1; k < p->launched; k++) p->launch[k - 1] = p->launch[k];
    p->launch[--p->launched].samples = l.samples;
    pop_gone(p);
}

/* ---- The loop ---- */

/* Nothing was done in this turn: somebody must be asleep or late, or there is nothing to do. One turn without is
 * allowed, because the rows in the way may have gone since the plan was tried. */
static void check_progress(struct play *p, int done) {
    int excused = done || p->live_n == 0 || p->hold_until != 0;
    for (uint32_t i = 0; !excused && i < p->live_n; i++) excused = p->live[i]->paused || p->live[i]->closing;
    p->idle_turns = excused ? 0 : p->idle_turns + 1;
    if (p->idle_turns > 1) sim_fail("nothing moves, and %u rows live", p->live_n);
}

static void turn(struct play *p) {
    uint32_t depth = p->depth_fixed > 0 ? (uint32_t)p->depth_fixed : sim_between(&p->rng, 1, 2);
    arrive(p);
    disturb(p);
    pop_gone(p);
    int made = p->launched < depth && make_plan(p);
    if (made && sim_chance(&p->rng, 300)) /* the backend is quick */
        for (uint32_t k = 0; k < p->launched; k++) run_launch(p, &p->launch[k]);
    disturb(p);
    pop_gone(p);
    if (p->launched > 0 && (p->launched >= depth || !made)) {
        commit(p);
        made = 1;
    }
    check_progress(p, made);
    p->now++;
    wake(p);
    if (p->now % p->check_every == 0) {
        SIM_HOLDS(sched_check(p->s));
        p->totals->checks++;
    }
}

static void play_new(struct play *p) {
    draw_config(p);
    uint32_t total = sched_rows_total(p->s);
    sim_model_init(&p->model, &p->config);
    p->by_index = calloc(total, sizeof *p->by_index);
    p->names = calloc(total, sizeof *p->names);
    p->live = calloc(total, sizeof *p->live);
    p->line = calloc(total, sizeof *p->line);
    p->items = calloc(p->config.rows_max, sizeof *p->items);
    SIM_HOLDS(p->by_index != NULL && p->names != NULL && p->live != NULL && p->line != NULL && p->items != NULL);
    for (uint32_t k = 0; k < SCHED_IN_FLIGHT; k++) {
        p->launch[k].samples = calloc(p->config.rows_max, sizeof *p->launch[k].samples);
        SIM_HOLDS(p->launch[k].samples != NULL);
    }
    uint32_t pages = 0;
    for (uint32_t g = 0; g < p->config.groups; g++) pages += pages_total(p->config.pages, g);
    p->check_every = 1 + (total + pages) / 200;
}

static void play_free(struct play *p) {
    sim_model_clear(&p->model);
    for (uint32_t k = 0; k < SCHED_IN_FLIGHT; k++) free(p->launch[k].samples);
    free(p->by_index);
    free(p->names);
    free(p->live);
    free(p->line);
    free(p->items);
    sched_free(p->s);
    pages_free(p->config.pages);
}

void sim_play(uint64_t seed, uint64_t epoch, uint32_t requests, enum sim_canary canary, struct sim_totals *totals) {
    struct play p = {.rng = {seed, epoch, 0}, .canary = canary, .totals = totals, .left = requests};
    play_new(&p);
    while (p.left > 0 || p.live_n > 0 || p.launched > 0) turn(&p);
    while (p.spare_n > 0) sched_unreserve(p.s, p.spare[--p.spare_n]);
    SIM_HOLDS(sched_check(p.s));
    struct sched_counts n;
    sched_get_counts(p.s, &n);
    SIM_HOLDS(n.reserved + n.waiting + n.preparing + n.running + n.ending + n.gone + n.paused + n.in_flight == 0);
    for (uint32_t g = 0; g < p.config.groups; g++)
        SIM_HOLDS(pages_available(p.config.pages, g) == pages_total(p.config.pages, g));
    sched_close(p.s);
    sched_row row;
    SIM_HOLDS(sched_reserve(p.s, &row) == COHORT_E_CLOSED);
    play_free(&p);
}
