/* Drawn from the seed: configurations from barely one row's room to plenty, and requests that press on them. */
#include <stdlib.h>

#include "sim.h"

struct profile {
    uint32_t rows_low, rows_high, queue_high, batch_low, batch_high, context_low, context_high, cohort_high;
    uint32_t requests_high; /* in an epoch; as many as keep its time like that of others */
};

static const struct profile profiles[] = {
    {1, 3, 3, 0, 8, 8, 120, 40, 300},             /* tiny */
    {4, 32, 64, 0, 128, 8, 512, 400, 2000},       /* usual */
    {64, 400, 900, 0, 600, 8, 200, 0, 30000},     /* large */
    {2, 16, 20, 0, 4096, 8, 700, 0, 1000},        /* a budget above every prompt */
    {8, 40, 100, 0, 64, 8, 300, 300, 1000},       /* with small pools, below */
    {3, 16, 20, 16, 256, 600, 2500, 600, 200},    /* rows that grow far beyond what they are admitted with */
    {24, 64, 200, 64, 512, 400, 900, 1000, 1000}, /* many of them */
    {8, 24, 100, 16, 128, 400, 800, 400, 600},    /* them beside brief ones whose ends are noticed late */
};
enum { PROFILES = sizeof profiles / sizeof *profiles, SMALL_POOLS = 4, GROWING = 5, LATE = 7 };

/* A full or a windowed group in two: of one the beginnings of sequences, of the other what lies behind. */
static void split_group(struct sched_config *c, uint32_t g, uint32_t border) {
    c->group[c->groups] = c->group[g];
    c->group[g].end = border;
    c->group[c->groups++].begin = border;
}

static void draw_shapes(struct sim_rng *rng, struct sched_config *c, uint32_t which) {
    for (uint32_t g = 0; g < c->groups; g++)
        c->group[g].window = g == 0 && sim_chance(rng, which >= GROWING ? 950 : 800) ? 0 : sim_between(rng, 1, 100);
    if (sim_chance(rng, 350)) c->group[c->groups - 1] = (struct pages_shape){.window = 1, .recurrent = 1};
    if (!sim_chance(rng, 300)) return;
    uint32_t border = sim_between(rng, 1, 1 + c->context_max / (sim_chance(rng, 500) ? 4 : 1) / PAGE_TOKENS);
    for (uint32_t g = 0, n = c->groups; g < n && c->groups < PAGES_GROUPS_MAX; g++)
        if (!c->group[g].recurrent && (g == 0 || sim_chance(rng, 500))) split_group(c, g, border);
}

static void draw_pages(struct sim_rng *rng, struct sched_config *c, uint32_t which) {
    uint32_t totals[PAGES_GROUPS_MAX], batch = sim_max(c->batch_tokens, c->rows_max);
    uint32_t plenty = which >= SMALL_POOLS ? sim_below(rng, 6) : sim_between(rng, 3, 12); /* in every group */
    for (uint32_t g = 0; g < c->groups; g++) {
        uint32_t worst = sim_max(1, (uint32_t)pages_worst(&c->group[g], c->context_max, 2 * batch));
        if (plenty == 0)
            totals[g] = sim_between(rng, (worst + 2) / 3, worst); /* some rows can never fit */
        else if (plenty < 5)
            totals[g] = worst + sim_below(rng, 2 * worst + 1); /* few large rows at a time */
        else if (plenty < 9)
            totals[g] = worst * sim_between(rng, (c->rows_max + 3) / 4, c->rows_max);
        else
            totals[g] = worst * c->rows_max;
    }
    SIM_HOLDS(pages_new(&c->pages, c->groups, totals, NULL) == 0);
}

static void draw_tenants(struct sim_rng *rng, struct sched_config *c, struct sim_habits *h) {
    h->priorities = sim_chance(rng, 500);
    if (sim_chance(rng, 300)) return; /* one of weight 1 */
    c->tenants = h->tenants;
    c->tenants_n = sim_between(rng, 1, SIM_TENANTS);
    for (uint32_t t = 0; t < c->tenants_n; t++)
        h->tenants[t] = (struct sched_tenant){.weight = sim_chance(rng, 500) ? 1 : sim_between(rng, 1, 10),
                                              .rows_max = sim_chance(rng, 700) ? 0 : sim_between(rng, 1, c->rows_max)};
    h->tenants_busy = sim_chance(rng, 600);
}

static void draw_time(struct sim_rng *rng, struct sched_config *c, struct sim_habits *h) {
    h->cost_base = sim_between(rng, 1, 5000);
    h->cost_row = sim_below(rng, 500);
    h->cost_token = sim_between(rng, 1, 1000);
    h->cost_noise = sim_below(rng, 4) * sim_below(rng, 30);
    uint32_t how = sim_below(rng, 3);
    if (how == 1) c->itl_target_us = sim_between(rng, 1, 4 * (h->cost_base + h->cost_token * 20));
    if (how == 2) c->itl_ratio_percent = sim_between(rng, 110, 400);
}

static void draw_habits(struct sim_rng *rng, const struct sched_config *c, struct sim_habits *h, uint32_t which) {
    uint32_t calm = sim_below(rng, 3); /* 0: nothing disturbs */
    /* Turns and tokens are what these happen to, so rows that take many of them would never come to their end. */
    uint32_t part = which >= GROWING ? sim_between(rng, 5, 40) : 1;
    h->cancel = calm * sim_below(rng, 50) / part;
    h->pause = calm * sim_below(rng, 100) / part;
    h->hold = calm * sim_below(rng, 10) / part;
    h->fail_launch = calm * sim_below(rng, 6) / part;
    h->fail_row = calm * sim_below(rng, 4) / part;
    h->wrong = calm * sim_below(rng, 20);
    h->late_finish = sim_below(rng, 2) * sim_below(rng, 600);
    if (which == LATE) h->late_finish = sim_between(rng, 300, 1000);
    h->late_read = sim_below(rng, 3) * 500;
    h->late_told = calm * 100;
    h->arrive = sim_between(rng, 20, 1000);
    h->burst_max = sim_chance(rng, 500) ? 2 : c->rows_max * 2 + 1;
    h->stop_every = sim_chance(rng, 500) ? sim_between(rng, 2, which >= GROWING ? 1000 : 60) : 0;
    h->depth_fixed = sim_below(rng, 3);
    h->cuts = sim_chance(rng, 500) ? sim_between(rng, 50, 500) : 0;
    h->close = sim_chance(rng, 500) ? sim_below(rng, 100) : 0;
    h->lengthy = which == LATE ? sim_between(rng, 100, 400) : which >= GROWING ? sim_between(rng, 300, 1000) : 0;
}

static void draw_store(struct sim_rng *rng, struct sched_config *c, struct sim_habits *h) {
    if (sim_chance(rng, 350)) return;
    uint32_t pages = 0;
    for (uint32_t g = 0; g < c->groups; g++) pages += pages_total(c->pages, g);
    h->blocks_max = sim_chance(rng, 200) ? sim_between(rng, 1, 20) : pages * sim_between(rng, 1, 4) + 8;
    h->shares = sim_between(rng, 300, 1000);
    h->crowds = sim_below(rng, 900);
    h->spaces = sim_between(rng, 1, SIM_SPACES);
    h->resumes = sim_chance(rng, 500) ? sim_below(rng, 200) : 0;
    h->disk = sim_chance(rng, 600) ? sim_between(rng, 1, 4 * pages) : 0;
    h->spill = sim_between(rng, 100, 1000);
    h->load_late = sim_below(rng, 3) * 10;
    h->load_fail = sim_below(rng, 3) * 100;
    h->drop = sim_below(rng, 3);
    h->late_told = 0;
    c->snapshot_stride = sim_chance(rng, 500) ? 0 : sim_between(rng, 16, 200);
}

void sim_draw_epoch(struct sim_rng *rng, struct sched_config *c, struct sim_habits *h) {
    uint32_t which = sim_below(rng, PROFILES);
    const struct profile *f = &profiles[which];
    *h = (struct sim_habits){0};
    *c = (struct sched_config){.rows_max = sim_between(rng, f->rows_low, f->rows_high),
                               .queue_max = sim_below(rng, f->queue_high + 1),
                               .batch_tokens = sim_between(rng, f->batch_low, f->batch_high),
                               .outputs_max = sim_chance(rng, 500) ? sim_below(rng, f->batch_high) : 0,
                               .context_max = sim_between(rng, f->context_low, f->context_high),
                               .cohort_tokens = sim_below(rng, f->cohort_high + 1),
                               .groups = sim_between(rng, 1, 3)};
    draw_shapes(rng, c, which);
    draw_pages(rng, c, which);
    draw_tenants(rng, c, h);
    draw_time(rng, c, h);
    draw_habits(rng, c, h, which);
    draw_store(rng, c, h);
    h->requests = sim_between(rng, f->requests_high / 10, f->requests_high);
}

/* Ascending positions in the prompt. */
static void draw_cuts(struct sim_rng *rng, struct sched_request *q) {
    uint32_t step = q->prompt_n / sim_between(rng, 1, SCHED_CUTS_MAX) + 1;
    for (uint32_t at = 0; q->cuts_n < SCHED_CUTS_MAX;) {
        at += sim_between(rng, 1, step);
        if (at > q->prompt_n) return;
        q->cuts[q->cuts_n++] = at;
    }
}

static void spoil(struct sim_rng *rng, struct sched_request *q) {
    switch (sim_below(rng, 7)) {
    case 0:
        q->prompt_n = 0;
        break;
    case 1:
        q->tenant = sim_between(rng, SIM_TENANTS, UINT32_MAX - 1);
        break;
    case 2:
        q->max_new = q->all_outputs = q->last_output = 0;
        break;
    case 3:
        q->weight = sim_between(rng, SCHED_KEEP_MAX + 1, UINT32_MAX - 1);
        break;
    case 4:
        q->resumed = sim_chance(rng, 500) ? q->max_new + 1 : 1;
        if (q->resumed == 1) q->all_outputs = 1;
        break;
    case 5:
        q->cuts_n = sim_between(rng, 2, UINT32_MAX - 2);
        q->cuts[0] = q->cuts[1];
        break;
    default:
        q->cuts_n = 1;
        q->cuts[0] = sim_chance(rng, 500) ? 0 : q->prompt_n + 1;
    }
}

/* Its beginning may be that of something said before, all of it, or with a change in the middle; often the newest. The
 * whole of it may stand before something new. */
static void draw_prompt(struct sim_rng *rng, const struct sched_config *c, const struct sim_habits *h,
                        const struct sim_library *lib, struct sched_request *q, struct sim_task *task) {
    uint32_t most = c->context_max - c->context_max / 4;
    uint32_t which = sim_chance(rng, h->crowds) ? lib->last : sim_below(rng, SIM_TEXTS), n = lib->n[which], same = 0;
    uint64_t salt = sim_draw(rng);
    if (n > 0 && q->space != 0 && sim_chance(rng, h->shares)) {
        uint32_t how = sim_below(rng, 5);
        if (how == 0) q->prompt_n = sim_min(n, most); /* again, maybe with its answer */
        if (how == 1) q->prompt_n = sim_min(n + sim_between(rng, 1, 60), most);
        same = sim_min(n, q->prompt_n);
        if (how == 2) same = sim_below(rng, same + 1);
    }
    task->tokens = calloc((size_t)q->prompt_n + c->context_max + 2, sizeof *task->tokens);
    SIM_HOLDS(task->tokens != NULL);
    for (uint32_t i = 0; i < q->prompt_n; i++) task->tokens[i] = i < same ? lib->text[which][i] : sim_token(salt, i);
    if (same > 0 && sim_chance(rng, 150)) task->tokens[sim_below(rng, same)] ^= 1;
}

void sim_draw_request(struct sim_rng *rng, const struct sched_config *c, const struct sim_habits *h,
                      const struct sim_library *lib, struct sched_request *q, struct sim_task *task) {
    uint32_t context = c->context_max, brief = sim_min(context, 40);
    *q = (struct sched_request){.prompt_n = sim_between(rng, 1, sim_chance(rng, 700) ? brief : context)};
    if (sim_chance(rng, h->lengthy > 0 ? 500 : 200)) q->prompt_n = sim_between(rng, 1, sim_min(context, 4));
    if (h->blocks_max > 0 && sim_chance(rng, 900)) q->space = sim_between(rng, 1, h->spaces);
    *task = (struct sim_task){.space = q->space};
    draw_prompt(rng, c, h, lib, q, task);
    q->max_new = sim_between(rng, 1, sim_chance(rng, 800) ? brief : context);
    if (sim_chance(rng, h->lengthy)) q->max_new = sim_between(rng, context / 2, context);
    if (sim_chance(rng, 970)) q->max_new = sim_min(q->max_new, context - q->prompt_n); /* mostly inside the context */
    q->chunk_max = sim_chance(rng, 300) ? sim_between(rng, 1, 50) : 0;
    q->all_outputs = (uint8_t)sim_chance(rng, 100);
    q->last_output = (uint8_t)sim_chance(rng, 40);
    if (q->last_output) q->max_new = 0;
    if (q->max_new == 0 && !q->last_output) q->all_outputs = 1;
    if (c->tenants != NULL)
        q->tenant = h->tenants_busy && sim_chance(rng, 800) ? c->tenants_n - 1 : sim_below(rng, c->tenants_n);
    if (h->priorities) q->priority = (int32_t)sim_below(rng, 4) - 2;
    if (sim_chance(rng, h->cuts)) draw_cuts(rng, q);
    q->weight = sim_chance(rng, 100) ? sim_between(rng, 1, SCHED_KEEP_MAX) : 0;
    task->prompt_n = q->prompt_n;
    task->max_new = q->max_new;
    task->stop_every = sim_chance(rng, 800) ? h->stop_every : 0;
    if (sim_chance(rng, h->wrong)) spoil(rng, q);
}
