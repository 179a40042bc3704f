/* What an iteration is expected to take, from what iterations took (P9). Two smoothed figures: the step of R decoding
 * rows without prompts, for each R (beyond 128 rows one figure for 16), and what a prompt token adds to it. Pure
 * arithmetic over times that came in with sched_commit; the engine's thread. */
#include "sched/sched_internal.h"

enum {
    UNKNOWN_TOKENS = 32, /* prompt tokens an iteration while nothing was measured */
    LEAST_SHARE = 4,     /* prompts get at least a quarter of the step's own time on top, whatever the target is */
    PROMPT_LEAST = 8     /* fewer prompt tokens than this are noise to the measurement */
};

static uint32_t step_index(uint32_t rows) { return rows <= 128 ? rows - 1 : 128 + (rows - 129) / 16; }

/* A new value moves the figure by a part of the difference; one that is far off counts as twice or half of it. */
static uint32_t smooth(uint32_t old, uint64_t value, uint32_t part) {
    if (value > UINT32_MAX) value = UINT32_MAX;
    if (old == 0) return value == 0 ? 1 : (uint32_t)value;
    if (value > 2 * (uint64_t)old) value = 2 * (uint64_t)old;
    if (value < old / 2) value = old / 2;
    int64_t moved = (int64_t)old + ((int64_t)value - old) / (int64_t)part;
    return moved < 1 ? 1 : (uint32_t)moved;
}

/* The figure of the nearest smaller number of rows that was measured, else of the nearest larger one. */
uint32_t sched_costs_step(const struct costs *c, uint32_t rows) {
    if (rows == 0) return 0;
    uint32_t at = step_index(sched_min(rows, SCHED_ROWS_MAX));
    for (uint32_t i = at + 1; i-- > 0;)
        if (c->step_us[i] != 0) return c->step_us[i];
    for (uint32_t i = at + 1; i < COST_STEPS; i++)
        if (c->step_us[i] != 0) return c->step_us[i];
    return 0;
}

void sched_costs_note(struct costs *c, const struct plan *p, uint32_t us) {
    if (us == 0) return;
    if (p->n_prompt_tokens == 0) {
        uint32_t *step = &c->step_us[step_index(p->n_decode_tokens)];
        *step = smooth(*step, us, 8);
    } else if (p->n_prompt_tokens >= PROMPT_LEAST) {
        uint32_t step = sched_costs_step(c, p->n_decode_tokens);
        if (p->n_decode_tokens > 0 && step == 0) return;
        uint64_t added = us > step ? us - step : 0;
        c->token_ns = smooth(c->token_ns, added * 1000 / p->n_prompt_tokens, 4);
    }
}

uint32_t sched_costs_allow(const struct costs *c, const struct sched_config *config, uint32_t rows) {
    if (rows == 0 || (config->itl_target_us == 0 && config->itl_ratio_percent == 0)) return UINT32_MAX;
    uint64_t step = sched_costs_step(c, rows);
    if (step == 0 || c->token_ns == 0) return UNKNOWN_TOKENS;
    uint64_t target = config->itl_target_us != 0 ? config->itl_target_us : step * config->itl_ratio_percent / 100;
    uint64_t spare = target > step ? target - step : 0;
    if (spare < step / LEAST_SHARE) spare = step / LEAST_SHARE;
    uint64_t tokens = spare * 1000 / c->token_ns;
    return tokens < 1 ? 1 : tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
}
