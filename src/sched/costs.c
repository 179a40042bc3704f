/* How many prompt tokens an iteration has time for (P9), from what iterations took. Pure arithmetic over times that
 * came in with sched_commit; the engine's thread.
 *
 * The step of R decoding rows without prompts is measured and smoothed for each R (beyond 128 rows one figure for 16).
 * Where only mixed iterations were seen, the least of what they would have taken without their prompts stands in. What
 * a prompt token adds beside decoding rows is smoothed over all of them: it holds a part of what mixing costs at all,
 * and so it follows the number of tokens that is chosen by it to the one that takes the time there is. */
#include "sched/sched_internal.h"

enum {
    ALLOW_FIRST = 32,       /* tokens, while nothing was measured */
    PROMPT_LEAST = 16,      /* fewer prompt tokens than this alone are noise to the cost of one */
    STEP_PARTS = 8,         /* a new time moves a smoothed one by this part of the difference */
    ADDED_LEAST = 16,       /* prompts add this part of an iteration's time at least, whatever the noise says */
    SLOWDOWN_PERCENT = 220, /* of the time that a prompt takes alone: the pace it is read at if that stretches an */
    MOST_PERCENT = 250,     /* iteration to no more than this, of the same one without prompts */
    SHORT_PERCENT = 300     /* the same where short prompts are read */
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

static void note_mixed(struct costs *c, const struct plan *p, uint32_t us) {
    uint32_t at = step_index(p->n_decode_tokens), least = us / ADDED_LEAST;
    uint64_t prompts = (uint64_t)c->token_ns * p->n_prompt_tokens / 1000;
    uint32_t without = us > prompts + us / 3 ? us - (uint32_t)prompts : us / 3;
    if (c->guess_us[at] == 0 || without < c->guess_us[at]) c->guess_us[at] = sched_max(1, without);

    uint32_t step = sched_costs_step(c, p->n_decode_tokens);
    uint64_t added = us > step + least ? us - step : least;
    c->added_ns = smooth(c->added_ns, added * 1000 / p->n_prompt_tokens);
}

void sched_costs_note(struct costs *c, const struct plan *p, uint32_t us) {
    if (us == 0) return;
    if (p->n_prompt_tokens == 0) {
        uint32_t *step = &c->step_us[step_index(p->n_decode_tokens)];
        *step = smooth(*step, us);
    } else if (p->n_decode_tokens > 0) {
        note_mixed(c, p, us);
    } else if (p->n_prompt_tokens >= PROMPT_LEAST) {
        c->token_ns = smooth(c->token_ns, (uint64_t)us * 1000 / p->n_prompt_tokens);
    }
}

static uint64_t tokens_in(const struct costs *c, uint64_t spare_us) {
    return spare_us * 1000 / (c->added_ns != 0 ? c->added_ns : c->token_ns);
}

/* Tokens with which a prompt is read SLOWDOWN_PERCENT as slowly as alone: n of them in step + n * added. */
static uint64_t tokens_for_pace(const struct costs *c, uint64_t step_us) {
    uint64_t pace = (uint64_t)c->token_ns * SLOWDOWN_PERCENT / 100;
    return pace > c->added_ns ? step_us * 1000 / (pace - c->added_ns) : UINT32_MAX;
}

static uint32_t bounded(uint64_t tokens) {
    return tokens < SCHED_PROMPT_LEAST ? SCHED_PROMPT_LEAST : tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
}

struct allowance sched_costs_allow(const struct costs *c, const struct sched_config *config, uint32_t rows,
                                   uint32_t prompts) {
    uint64_t target = config->itl_target_us, step = sched_costs_step(c, rows);
    uint32_t ratio = config->itl_ratio_percent;
    if (rows == 0 || (target == 0 && ratio == 0)) return (struct allowance){UINT32_MAX, UINT32_MAX};
    if (step == 0 || c->added_ns + c->token_ns == 0) return (struct allowance){ALLOW_FIRST, ALLOW_FIRST};
    if (target != 0) {
        uint32_t fit = bounded(target > step ? tokens_in(c, target - step) : 0);
        return (struct allowance){fit, fit};
    }
    uint64_t base = tokens_in(c, step * (ratio - 100) / 100), most = tokens_in(c, step * (MOST_PERCENT - 100) / 100);
    uint64_t pace = tokens_for_pace(c, step);
    uint64_t crowd = tokens_in(c, step * prompts / rows), all = tokens_in(c, step * (SHORT_PERCENT - 100) / 100);
    if (pace > most) pace = most;
    if (base < pace) base = pace;
    if (base < crowd) base = crowd;
    return (struct allowance){bounded(base), bounded(all > base ? all : base)};
}
