/* How many prompt tokens an iteration has time for (P9), from what iterations took. Pure arithmetic over times that
 * came in with sched_commit; the engine's thread.
 *
 * The step of R decoding rows without prompts is measured and smoothed for each R (beyond 128 rows one figure for 16).
 * Where only mixed iterations were seen, the least of what they would have taken without their prompts stands in.
 * From the step follows the target; and how many tokens meet it is found by trying: after each mixed iteration the
 * allowance moves by half of the relative difference between target and time. What a token costs (positions, kernels,
 * neighbours) need not be known. */
#include "sched/sched_internal.h"

enum {
    ALLOW_UNIT = 16,        /* the allowance is kept in sixteenths of a token */
    ALLOW_FIRST = 32,       /* tokens, while nothing was measured */
    PROMPT_LEAST = 16,      /* fewer prompt tokens than this alone are noise to the cost of one */
    STEP_PARTS = 8,         /* a new time moves a smoothed one by this part of the difference */
    MIXED_PART_PERCENT = 75 /* of its cost alone, that a prompt token adds beside decoding rows at least */
};

static uint32_t step_index(uint32_t rows) { return rows <= 128 ? rows - 1 : 128 + (rows - 129) / 16; }

/* One value that is far off counts as twice or half of the old one. */
static uint32_t smooth(uint32_t old, uint64_t value) {
    if (value > UINT32_MAX) value = UINT32_MAX;
    if (old == 0) return value == 0 ? 1 : (uint32_t)value;
    if (value > 2 * (uint64_t)old) value = 2 * (uint64_t)old;
    if (value < old / 2) value = old / 2;
    int64_t moved = (int64_t)old + ((int64_t)value - old) / STEP_PARTS;
    return moved < 1 ? 1 : (uint32_t)moved;
}

/* Measured, or guessed, or that of the nearest smaller number of rows, or of the nearest larger one. */
uint32_t sched_costs_step(const struct costs *c, uint32_t rows) {
    if (rows == 0) return 0;
    uint32_t at = step_index(sched_min(rows, SCHED_ROWS_MAX));
    if (c->step_us[at] != 0) return c->step_us[at];
    if (c->guess_us[at] != 0) return c->guess_us[at];
    for (uint32_t i = at; i-- > 0;)
        if (c->step_us[i] != 0) return c->step_us[i];
    for (uint32_t i = at + 1; i < COST_STEPS; i++)
        if (c->step_us[i] != 0) return c->step_us[i];
    return 0;
}

static uint64_t target_of(const struct sched_config *config, uint64_t step) {
    return config->itl_target_us != 0 ? config->itl_target_us : step * config->itl_ratio_percent / 100;
}

static int is_limited(const struct sched_config *config) {
    return config->itl_target_us != 0 || config->itl_ratio_percent != 0;
}

static void note_mixed(struct costs *c, const struct sched_config *config, const struct plan *p, uint64_t us) {
    uint32_t at = step_index(p->n_decode_tokens);
    uint64_t prompts = (uint64_t)c->token_ns * p->n_prompt_tokens / 1000 * MIXED_PART_PERCENT / 100;
    uint64_t least = us / 3, without = us > prompts + least ? us - prompts : least;
    if (c->guess_us[at] == 0 || without < c->guess_us[at]) c->guess_us[at] = (uint32_t)sched_max(1, (uint32_t)without);

    if (!is_limited(config)) return;
    int64_t target = (int64_t)target_of(config, sched_costs_step(c, p->n_decode_tokens));
    int64_t allow = c->allow == 0 ? ALLOW_FIRST * ALLOW_UNIT : c->allow, time = (int64_t)us;
    if (time < target && p->n_prompt_tokens < (uint32_t)allow / ALLOW_UNIT) return; /* the prompts were that short */
    int64_t moved = allow + allow * (target - time) / (2 * time);
    if (moved < allow / 2) moved = allow / 2;
    if (moved > allow + allow / 4 + 1) moved = allow + allow / 4 + 1;
    if (moved < SCHED_PROMPT_LEAST * ALLOW_UNIT) moved = SCHED_PROMPT_LEAST * ALLOW_UNIT;
    if (moved > (int64_t)config->batch_tokens * ALLOW_UNIT) moved = (int64_t)config->batch_tokens * ALLOW_UNIT;
    c->allow = (uint32_t)moved;
}

void sched_costs_note(struct costs *c, const struct sched_config *config, const struct plan *p, uint32_t us) {
    if (us == 0) return;
    if (p->n_prompt_tokens == 0) {
        uint32_t *step = &c->step_us[step_index(p->n_decode_tokens)];
        *step = smooth(*step, us);
    } else if (p->n_decode_tokens > 0) {
        note_mixed(c, config, p, us);
    } else if (p->n_prompt_tokens >= PROMPT_LEAST) {
        c->token_ns = smooth(c->token_ns, (uint64_t)us * 1000 / p->n_prompt_tokens);
    }
}

uint32_t sched_costs_allow(const struct costs *c, const struct sched_config *config, uint32_t rows) {
    if (rows == 0 || !is_limited(config)) return UINT32_MAX;
    return c->allow == 0 ? ALLOW_FIRST : c->allow / ALLOW_UNIT;
}
