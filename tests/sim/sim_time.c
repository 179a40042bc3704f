/* The naive account of time (P9): what iterations took, and the prompt tokens for which the next one has time. The
 * figures of src/sched/costs.c, on plain arrays. */
#include "sim_account.h"

enum {
    ALLOW_FIRST = 32,
    PROMPT_LEAST = 16, /* a prompt alone in fewer tokens tells nothing of their cost */
    SLOWDOWN_PERCENT = 220,
    MOST_PERCENT = 250,
    SHORT_PERCENT = 300
};

static uint32_t class_of(uint32_t rows) { return rows <= 128 ? rows : rows - (rows - 129) % 16; }

static int64_t smoothed(int64_t old, int64_t now) {
    if (old == 0) return now == 0 ? 1 : now;
    if (now > 2 * old) now = 2 * old;
    if (now < old / 2) now = old / 2;
    int64_t next = old + (now - old) / 8;
    return next < 1 ? 1 : next;
}

/* What is known of as many rows, else guessed, else known of the next fewer, else of the next more. */
static int64_t step_of(const struct account *a, uint32_t rows) {
    uint32_t its = class_of(rows);
    if (rows == 0) return 0;
    if (a->step_us[its] != 0) return a->step_us[its];
    if (a->guess_us[its] != 0) return a->guess_us[its];
    for (uint32_t r = its; r > 0; r--)
        if (a->step_us[r] != 0) return a->step_us[r];
    for (uint32_t r = its; r <= SCHED_ROWS_MAX; r++)
        if (a->step_us[r] != 0) return a->step_us[r];
    return 0;
}

static void note_mixed(struct account *a, uint32_t rows, int64_t tokens, int64_t us) {
    int64_t *guess = &a->guess_us[class_of(rows)], without = us - a->token_ns * tokens / 1000;
    if (without <= us / 3) without = us / 3; /* a third of it is not the prompt's, whatever is known */
    if (without < 1) without = 1;
    if (*guess == 0 || without < *guess) *guess = without;
    int64_t added = us - step_of(a, rows);
    if (added < us / 16) added = us / 16;
    a->added_ns = smoothed(a->added_ns, added * 1000 / tokens);
}

void account_note(struct account *a, const struct plan *p, int64_t us) {
    if (us == 0) return;
    int64_t *its = &a->step_us[class_of(p->n_decode_tokens)];
    if (p->n_prompt_tokens == 0)
        *its = smoothed(*its, us);
    else if (p->n_decode_tokens > 0)
        note_mixed(a, p->n_decode_tokens, p->n_prompt_tokens, us);
    else if (p->n_prompt_tokens >= PROMPT_LEAST)
        a->token_ns = smoothed(a->token_ns, us * 1000 / p->n_prompt_tokens);
}

static int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

static uint32_t bounded(int64_t tokens) {
    return tokens < SCHED_PROMPT_LEAST ? SCHED_PROMPT_LEAST : tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
}

struct account_allowance account_allow(const struct account *a, uint32_t rows, uint32_t prompts) {
    int64_t target = a->config->itl_target_us, ratio = a->config->itl_ratio_percent, step = step_of(a, rows);
    int64_t token = a->added_ns != 0 ? a->added_ns : a->token_ns;
    if (rows == 0 || (target == 0 && ratio == 0)) return (struct account_allowance){UINT32_MAX, UINT32_MAX};
    if (step == 0 || token == 0) return (struct account_allowance){ALLOW_FIRST, ALLOW_FIRST};
    if (target != 0) {
        uint32_t fit = bounded(max_i64(target - step, 0) * 1000 / token);
        return (struct account_allowance){fit, fit};
    }
    int64_t most = step * (MOST_PERCENT - 100) / 100 * 1000 / token;
    int64_t slower =
        a->token_ns * SLOWDOWN_PERCENT / 100 - a->added_ns; /* the pace of a prompt: not slower than this */
    int64_t pace = slower > 0 ? step * 1000 / slower : most;
    int64_t tokens = step * (ratio - 100) / 100 * 1000 / token;
    tokens = max_i64(tokens, pace < most ? pace : most);
    tokens = max_i64(tokens, step * prompts / rows * 1000 / token); /* as many prompts as rows: twice the step */
    int64_t all = max_i64(tokens, step * (SHORT_PERCENT - 100) / 100 * 1000 / token);
    return (struct account_allowance){bounded(tokens), bounded(all)};
}

void account_compare_time(const struct account *a, uint32_t rows, const struct sched_counts *n) {
    SIM_HOLDS(n->step_us == step_of(a, rows));
    SIM_HOLDS(n->token_ns == (a->added_ns != 0 ? a->added_ns : a->token_ns));
}
