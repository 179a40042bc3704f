/* The simulation: real src/sched and src/pages, a fake engine around them, a fake model whose answer depends on every
 * byte of state that a real one would read, a naive model that says what each row must get, and a naive account of what
 * the scheduler must do.
 *
 * One seed makes everything. It is cut into epochs, each with a configuration of its own, which can be played alone. */
#ifndef SIM_H
#define SIM_H

#include <stdint.h>

#include "sched/sched.h"

/* Mistakes that the fake engine can be told to make, or that it makes inside the scheduler's memory. */
#define SIM_CANARY_LIST(X)                                                                                             \
    X(NONE, "none")                                                                                                    \
    X(NEIGHBOUR, "neighbour")   /* a row is fed the sample of another */                                               \
    X(LOST, "lost")             /* a token is not delivered */                                                         \
    X(UNRUN, "unrun")           /* an item is skipped, so its state is what was there before */                        \
    X(EARLY, "early")           /* a page goes back while a plan in flight reads it */                                 \
    X(LEAK, "leak")             /* a page never goes back */                                                           \
    X(DEAF, "deaf")             /* a cancelled row is never finished */                                                \
    X(GREEDY, "greedy")         /* a row's budget is overrun by one token */                                           \
    X(STALE, "stale")           /* a page table is read one page off */                                                \
    X(REREAD, "reread")         /* a row that came again reads its own tokens one place off */                         \
    X(TWICE, "twice")           /* its last sample is delivered again */                                               \
    X(SLOT, "slot")             /* its last sample is lost while it reads again */                                     \
    X(FORGOTTEN, "forgotten")   /* a preempted row is in no line */                                                    \
    X(STOLEN, "stolen")         /* a tenant is served and it is not counted */                                         \
    X(CLAIMED, "claimed")       /* a page is claimed by two rows */                                                    \
    X(SHARED, "shared")         /* a page is in the tables of two rows */                                              \
    X(CUT, "cut")               /* a cut is skipped */                                                                 \
    X(VICTIM, "victim")         /* the row that is preempted is not the cheapest */                                    \
    X(SLOW, "slow")             /* prompts take more time than the target leaves */                                    \
    X(OVERTAKE, "overtake")     /* a waiting row overtakes an older one */                                             \
    X(UNCOPIED, "uncopied")     /* a row that begins inside a block gets an empty page instead of the copy */          \
    X(AHEAD, "ahead")           /* a row that followed starts one page too far */                                      \
    X(UNSOUND, "unsound")       /* what a failed launch left is stored */                                              \
    X(UNWINDOWED, "unwindowed") /* a row goes on where not all of the window is */                                     \
    X(TOLD, "told")             /* a load that failed is told as good */                                               \
    X(EAGER, "eager")           /* a page is stored one block early */                                                 \
    X(FOREIGN, "foreign")       /* rows take what is in another space */                                               \
    X(WAKELESS, "wakeless")     /* a row that follows is not woken */                                                  \
    X(MIDDLE, "middle")         /* the store takes the end of a block for any place in it, in recurrent groups, too */ \
    X(UNSTOPPED, "unstopped")   /* a leader does not stop where its follower wants a state */                          \
    X(STATELESS, "stateless")   /* a row that followed goes on from a page that holds no state */                      \
    X(HASTY, "hasty")           /* the page that an item goes on from goes back before the item ran */                 \
    X(BORDER, "border")         /* ranged groups are taken to meet one block later than they do */

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

static inline uint32_t sim_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t sim_max(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* ---- The fake model (sim_model.c) ---- */

/* What a request is and what it must get. */
struct sim_task {
    int32_t *tokens; /* the prompt, and room for what is generated */
    uint64_t space;  /* the model says other things in another one, as adapters do */
    uint32_t prompt_n, max_new, stop_every;
    uint32_t *expected; /* tokens of the solo run, the one that stops it included; freed by sim_task_clear */
    uint32_t expected_n;
    uint64_t scores; /* of all prompt outputs, if the request wants them */
};

struct sim_model {
    const struct sched_config *config;
    /* One value per position of each page: the sum of the page's up to it. In recurrent groups the state (0), and how
     * many tokens it stands for (1). */
    uint64_t *arena[PAGES_GROUPS_MAX];
    sched_row *owner[PAGES_GROUPS_MAX]; /* who wrote to a page last */
};

void sim_model_init(struct sim_model *m, const struct sched_config *config);
void sim_model_clear(struct sim_model *m);

/* Whether a sequence has a page in a group for the block of a position. */
static inline int sim_has(const struct pages_shape *shape, uint32_t pos) {
    return pos / PAGE_TOKENS >= shape->begin && (shape->end == 0 || pos / PAGE_TOKENS < shape->end);
}
static inline int sim_recurs(const struct sched_config *config) {
    int recurs = 0;
    for (uint32_t g = 0; g < config->groups; g++) recurs |= config->group[g].recurrent;
    return recurs;
}

/* The solo run: fills expected, expected_n and scores. */
void sim_task_solve(const struct sched_config *config, struct sim_task *task);
void sim_task_clear(struct sim_task *task);
int32_t sim_token(uint64_t salt, uint32_t pos); /* one that nobody has said before */
int sim_task_stops(const struct sim_task *task, uint32_t token);

/* What an item is fed by the engine. */
struct sim_feed {
    uint32_t read_n; /* of the task's tokens behind its prompt: those that the engine has read */
    uint32_t sample; /* in the row's slot */
};
/* Computes an item through its page tables as the backend would: every token's state is written, and read by the
 * tokens that see it. Returns the sample (0 if none); adds outputs before the sample to *scores. */
uint32_t sim_model_run(struct sim_model *m, const struct sim_task *task, const struct plan_item *item,
                       const struct sim_feed *feed, uint64_t *scores, enum sim_canary canary);

/* ---- What an epoch is like (sim_draw.c) ---- */

enum { SIM_TENANTS = 6, SIM_LATE_MOST = 12, SIM_TEXTS = 12, SIM_SPACES = 3 };

/* What was said lately: prompts begin like these. */
struct sim_library {
    int32_t *text[SIM_TEXTS];
    uint32_t n[SIM_TEXTS], last;
};

/* How the world around the scheduler behaves, beside its configuration. Rates are per thousand. */
struct sim_habits {
    uint32_t cancel, pause, hold, late_finish, late_read, late_told, fail_launch, fail_row, wrong;
    uint32_t arrive, burst_max, stop_every, depth_fixed; /* depth 0: changes all the time */
    uint32_t cuts, priorities, close;                    /* close: with how many requests left */
    uint32_t tenants_busy;                               /* most requests come from one of them */
    uint32_t lengthy;                                    /* rows that make many tokens */
    uint32_t blocks_max; /* of the prefix store; 0: there is none, and the rest of this line is not used */
    uint32_t shares, crowds, spaces, resumes, spill, disk, load_late, load_fail, drop; /* drop: of a space */
    uint32_t requests;
    uint32_t cost_base, cost_row, cost_token, cost_noise; /* of an iteration; noise in percent */
    struct sched_tenant tenants[SIM_TENANTS];
};

/* Makes the pages, too: the caller's. */
void sim_draw_epoch(struct sim_rng *rng, struct sched_config *config, struct sim_habits *habits);
void sim_draw_request(struct sim_rng *rng, const struct sched_config *config, const struct sim_habits *habits,
                      const struct sim_library *library, struct sched_request *request, struct sim_task *task);

/* ---- One epoch (sim_play.c) ---- */

struct sim_totals {
    uint64_t requests, refused_busy, refused_size, refused_wrong, finished_stop, finished_length, cancelled, failed;
    uint64_t pauses, plans, tokens, redone, checks;
    uint64_t pressed, made_way, owed, not_said; /* preemptions: for room; of paused rows; of rows ahead of their share;
                                             with a store */
    uint64_t stored_epochs, cached, copies, followed, loads, loads_failed, refused, dropped, resumed, spilled, evicted;
    uint32_t most_stalls, most_redo_plans;
    uint64_t most_passed;
};

/* Plays requests under a configuration drawn from the seed; every invariant is checked on the way. */
void sim_play(uint64_t seed, uint64_t epoch, enum sim_canary canary, struct sim_totals *totals);

#endif
