/* The simulation: real src/sched and src/pages, a fake engine around them, a fake model whose answer depends on every
 * byte of state that a real one would read, and a naive model that says what each row must get.
 *
 * One seed makes everything. It is cut into epochs, each with a configuration of its own, which can be played alone. */
#ifndef SIM_H
#define SIM_H

#include <stdint.h>

#include "sched/sched.h"

/* Mistakes that the fake engine can be told to make. */
#define SIM_CANARY_LIST(X)                                                                                             \
    X(NONE, "none")                                                                                                    \
    X(NEIGHBOUR, "neighbour") /* a row is fed the sample of another */                                                 \
    X(LOST, "lost")           /* a token is not delivered */                                                           \
    X(UNRUN, "unrun")         /* an item is skipped, so its state is what was there before */                          \
    X(EARLY, "early")         /* a page goes back while a plan in flight reads it */                                   \
    X(LEAK, "leak")           /* a page never goes back */                                                             \
    X(DEAF, "deaf")           /* a cancelled row is never finished */                                                  \
    X(GREEDY, "greedy")       /* a row's budget is overrun by one token */                                             \
    X(STALE, "stale")         /* a page table is read one page off */

enum sim_canary {
#define SIM_CANARY_ENUM(name, text) CANARY_##name,
    SIM_CANARY_LIST(SIM_CANARY_ENUM)
#undef SIM_CANARY_ENUM
};

struct sim_rng {
    uint64_t seed, stream, drawn;
};
uint64_t sim_draw(struct sim_rng *rng);
uint32_t sim_below(struct sim_rng *rng, uint32_t n);                    /* 0 .. n-1 */
uint32_t sim_between(struct sim_rng *rng, uint32_t low, uint32_t high); /* both included */
int sim_chance(struct sim_rng *rng, uint32_t per_thousand);

/* Ends the program: with the seed, the epoch and the reason, or well if a canary was to be caught. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define SIM_HOLDS(fact)                                                                                                \
    do {                                                                                                               \
        if (!(fact)) sim_fail("%s:%d: %s", __FILE__, __LINE__, #fact);                                                 \
    } while (0)

/* ---- The fake model (sim_model.c) ---- */

/* What a request is and what it must get. */
struct sim_task {
    uint64_t salt; /* of its prompt: no two requests share one */
    uint32_t prompt_n, max_new, stop_every;
    uint32_t *expected; /* tokens of the solo run, the one that stops it included; freed by sim_task_clear */
    uint32_t expected_n;
    uint64_t scores; /* of all prompt outputs, if the request wants them */
};

struct sim_model {
    const struct sched_config *config;
    uint64_t *arena[PAGES_GROUPS_MAX];  /* one value per position of each page */
    sched_row *owner[PAGES_GROUPS_MAX]; /* who wrote to a page last */
};

void sim_model_init(struct sim_model *m, const struct sched_config *config);
void sim_model_clear(struct sim_model *m);

/* The solo run: fills expected, expected_n and scores. */
void sim_task_solve(const struct sched_config *config, struct sim_task *task);
void sim_task_clear(struct sim_task *task);
int sim_task_stops(const struct sim_task *task, uint32_t token);

/* Computes an item through its page tables as the backend would: every token's state is written, and read by the
 * tokens that see it. Returns the sample (0 if none); adds outputs before the sample to *scores. */
uint32_t sim_model_run(struct sim_model *m, const struct sim_task *task, const struct plan_item *item, uint32_t fed,
                       uint64_t *scores, enum sim_canary canary);

/* ---- One epoch (sim_play.c) ---- */

struct sim_totals {
    uint64_t requests, refused_busy, refused_size, finished_stop, finished_length, cancelled, plans, tokens, checks;
    uint64_t paused;
};

/* Plays `requests` requests under a configuration drawn from the seed; every invariant is checked on the way. */
void sim_play(uint64_t seed, uint64_t epoch, uint32_t requests, enum sim_canary canary, struct sim_totals *totals);

#endif
