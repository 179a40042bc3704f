/* The policy: which rows run, which tokens each iteration takes, who gets pages. A pure state machine over rows and
 * page ids: no clocks (times come in with sched_commit), tensors, sockets or allocation after sched_new. One thread
 * (the engine's) after sched_new; only sched_fits may be asked by others. docs/SCHEDULER.md explains the rules.
 *
 * A row's life (row_state):
 *
 *   FREE --reserve--> RESERVED --submit--> WAITING --admit (plan)--> PREPARING --all it knows is planned--> RUNNING
 *     ^                  |                  | ^                          |                                    |
 *     |<---unreserve-----+               finish +------ PREEMPTED <------+------- no room (plan) -------------+
 *     |                                     v               | finish     | finish                             | finish
 *     +-------- pop_gone ----------------- GONE <---------- ENDING <-----+------------------------------------+
 *
 * A row that was admitted may have to wait before it is planned: it follows another that computes the same beginning,
 * or it loads (sched_pop_load ... sched_loaded). One that ends while it loads is ENDING until the load is over.
 *
 * Up to SCHED_IN_FLIGHT plans may be planned and not committed. A plan's pages are allocated by sched_plan; pages given
 * up return to the pool when the last plan that names their row is committed (behind a window: the last plan that
 * still reads them).
 *
 * Which tokens a row has is asked for (config.tokens) only to find what it shares with others; what they mean is not
 * known here. The engine decides from the tokens it reads that a row ends (sched_finish); reaching the row's own budget
 * is seen here: such a row is not planned again (D2), and the engine finishes it when it has read its last token.
 *
 * A row that is preempted loses its pages and waits again. When it is admitted anew it takes what of its state is still
 * in the prefix store; the other tokens that it was fed so far are read again as PLAN_PROMPT items (positions behind
 * the prompt are generated tokens, which the engine has read by then), without outputs; then it goes on from its last
 * sample as if nothing had happened. */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pages/prefix.h"

enum {
    SCHED_IN_FLIGHT = 2,
    SCHED_ROWS_MAX = 4096,
    SCHED_QUEUE_MAX = 65536,
    SCHED_BATCH_MAX = 1 << 20,
    SCHED_CONTEXT_MAX = 1 << 24,
    SCHED_COHORT_TOKENS = 2048, /* the default of cohort_tokens */
    SCHED_TENANTS_MAX = 1024,
    SCHED_WEIGHT_MAX = 1000,
    SCHED_CUTS_MAX = 8,
    SCHED_KEEP_MAX = 16,      /* weight of what a row leaves in the prefix store */
    SCHED_AHEAD = 128,        /* tokens behind its own that a row is admitted with room for (K3) */
    SCHED_SHORT_PROMPT = 512, /* prompts up to this may stretch an iteration more than long ones (P9) */
    SCHED_PROMPT_LEAST = 8,   /* prompt tokens of an iteration, whatever the target between tokens is (P9) */
    SCHED_SHARE_QUANTUM = 512 /* tokens by which one tenant may be ahead of another that waits */
};

enum row_state {
    ROW_FREE,
    ROW_RESERVED,
    ROW_WAITING,
    ROW_PREPARING,
    ROW_RUNNING,
    ROW_PREEMPTED,
    ROW_ENDING,
    ROW_GONE,
    ROW_STATES
};

struct sched_tenant {
    uint32_t weight;   /* 1 .. SCHED_WEIGHT_MAX */
    uint32_t rows_max; /* rows that run together; 0: no limit of its own */
};

/* A row's name: index and generation, never 0, never reused while anybody could hold it. */
typedef uint64_t sched_row;
static inline uint32_t sched_row_index(sched_row row) { return (uint32_t)row; }

struct sched_config {
    uint32_t rows_max;     /* rows that run together: preparing, running, and those that ended while they load */
    uint32_t queue_max;    /* places behind them: reserved + waiting + preparing + running <= rows_max + queue_max */
    uint32_t batch_tokens; /* per iteration; sched_new raises it to rows_max */
    uint32_t outputs_max;  /* outputs per iteration; 0: batch_tokens. sched_new raises it to rows_max */
    uint32_t context_max;  /* prompt + generated tokens of a row */
    /* P1: unread prompt tokens of the rows that prepare together, each counted up to half of it. 0: the default.
     * sched_new raises it to 2 * batch_tokens, so that the limit never leaves an iteration unfilled. */
    uint32_t cohort_tokens;
    /* P9: what reading prompts may stretch an iteration to while rows decode: a time, or, if 0, percent of the same
     * iteration without prompts, and more only within the bounds of docs/SCHEDULER.md. Both 0: no limit but
     * batch_tokens. */
    uint32_t itl_target_us, itl_ratio_percent;
    uint32_t groups;
    struct pages_shape group[PAGES_GROUPS_MAX];
    struct pages *pages;      /* borrowed; sized by the caller */
    struct prefix *prefix;    /* borrowed; on the same pages. NULL: rows share nothing */
    uint32_t snapshot_stride; /* windowed and recurrent groups: a snapshot every so many tokens; 0: none by stride */
    /* The row's tokens that are known: the prompt, and behind it what it generated and the engine has read; valid until
     * the next call of anything here. Asked inside sched_plan, sched_commit, sched_abandon, sched_finish,
     * sched_pop_load and sched_loaded, for rows with a space only. */
    const int32_t *(*tokens)(void *user, sched_row row, uint32_t *n);
    void *user;
    const struct sched_tenant *tenants; /* copied; NULL: one of weight 1 */
    uint32_t tenants_n;                 /* at most SCHED_TENANTS_MAX */
};

struct sched;

/* E_ARGUMENT names the field that is out of its bounds. */
int sched_new(const struct sched_config *config, struct sched **out, cohort_error *err);
void sched_free(
    struct sched *s); /* the pages that its rows still hold go with the pool, which must outlive this call */
/* Row indices are below this: rows_max + queue_max, and room for rows that end while plans still name them. */
uint32_t sched_rows_total(const struct sched *s);
uint32_t sched_batch_tokens(const struct sched *s); /* as raised */
uint32_t sched_outputs_max(const struct sched *s);  /* as raised */

/* Q3: a place in the line, or E_BUSY; E_CLOSED after sched_close. The index of a row that is gone is used again only
 * after it was popped. */
int sched_reserve(struct sched *s, sched_row *out);
void sched_unreserve(struct sched *s, sched_row row);

struct sched_request {
    uint32_t prompt_n;             /* >= 1 */
    uint32_t max_new;              /* tokens to generate at most; 0 only with one of the next two */
    uint32_t chunk_max;            /* P2: prompt tokens per iteration for this row; 0: the budget */
    uint8_t all_outputs;           /* an output for every prompt position, not only the last */
    uint8_t last_output;           /* one for the last prompt position, even if no token is made of it */
    uint32_t tenant;               /* index into config.tenants */
    int32_t priority;              /* among its tenant's rows: lower goes first, and is preempted last */
    uint32_t cuts[SCHED_CUTS_MAX]; /* P7: ascending positions, 1 .. prompt_n, at which an item ends exactly */
    uint32_t cuts_n;
    /* S2: what it may share with; 0: it takes nothing from the prefix store and leaves nothing there. */
    uint64_t space;
    uint32_t weight;  /* of what it leaves there, against eviction: 1 .. SCHED_KEEP_MAX; 0 is 1 */
    uint32_t resumed; /* T2: generated tokens that are known already; below max_new. Not together with all_outputs */
};

/* The row joins its tenant's line. E_CONTEXT (prompt_n + max_new > context_max), E_CAPACITY with both numbers in err if
 * its worst case can never fit the pages, E_ARGUMENT, E_CLOSED, E_NOT_FOUND (not a reserved row). On failure the place
 * stays reserved. */
int sched_submit(struct sched *s, sched_row row, const struct sched_request *request, cohort_error *err);
/* What sched_submit would say of the request itself. Looks at nothing that changes: any thread may ask. */
int sched_fits(const struct sched *s, const struct sched_request *request, cohort_error *err);

/* Ends a row in any state after RESERVED: a waiting one, or one that no plan in flight names, is gone at once; another
 * is not planned again and turns ENDING until the last such plan is committed. Its pages are given up when it is gone.
 * `sound`: its state is what its tokens say, so it goes to the prefix store (S3), up to the tokens that are known; else
 * everything that it has put there is taken out again (S5). Ended or unknown rows are ignored. */
void sched_finish(struct sched *s, sched_row row, int sound);
/* A paused row is not planned (slow reader). It keeps its pages as long as nobody else needs them. */
void sched_pause(struct sched *s, sched_row row, int paused);
/* More of a running row's tokens are known than it was fed: all of [0, known), its last sample among them. What it has
 * not read of them comes as PLAN_PROMPT items, the last with the sample behind it, instead of one by one from its
 * samples; of a sample between, made or in flight, nothing is read. A hint: nothing happens where that is not more than
 * one token, the row does not decode, or it has no room yet. The last token that it may have is never read. */
void sched_fill(struct sched *s, sched_row row, uint32_t known);
/* Q4: holds admissions, so that what was admitted drains; rows that were preempted come in again. Kick re-evaluates by
 * itself at the next plan. */
void sched_hold(struct sched *s, int hold);
void sched_close(struct sched *s); /* no reserve or submit any more */

enum plan_source { PLAN_PROMPT, PLAN_SAMPLE };

struct plan_item {
    sched_row row;
    uint32_t pos; /* of its first token */
    uint32_t n_tokens;
    /* PROMPT: the row's tokens [pos, pos + n), behind the prompt its generated ones; SAMPLE: its last sample, maybe
     * still in flight */
    enum plan_source source;
    uint32_t n_outputs;                      /* over the last n_outputs tokens */
    uint8_t samples;                         /* the last output is sampled: the row's next token */
    uint8_t boundary;                        /* its end is one of the row's cuts, reached for the first time */
    uint32_t sample_index;                   /* 0-based index of the generated token that it makes */
    const uint32_t *table[PAGES_GROUPS_MAX]; /* page ids by position / PAGE_TOKENS; valid until the plan is committed */
    /* Recurrent groups: the pages with the state before the first token (PAGE_NONE: the sequence begins) and after the
     * last. They are the same if both lie in one block. */
    uint32_t from[PAGES_GROUPS_MAX], to[PAGES_GROUPS_MAX];
};

struct plan {
    uint64_t number;                       /* 1, 2, 3, ... */
    uint32_t n_items, n_tokens, n_outputs; /* at most rows_max, batch_tokens, outputs_max */
    uint32_t n_prompt_tokens, n_decode_tokens;
    uint32_t n_redone;       /* of the prompt tokens: read before, and again after a preemption */
    uint32_t n_filled;       /* of the prompt tokens: behind a prompt, for the first time (sched_fill) */
    struct plan_item *items; /* in the scheduler's memory until the commit */
};

/* Admits what fits and makes the next iteration. 1: *out points to a plan (then launch it, and commit it once it ran);
 * 0: nothing to do now (no row can be planned, or SCHED_IN_FLIGHT plans are out). Only plans whose pages are allocated
 * are returned. */
int sched_plan(struct sched *s, const struct plan **out);
/* The oldest plan in flight has run, and took `us` microseconds (0: not known). */
void sched_commit(struct sched *s, const struct plan *plan, uint32_t us);
/* The oldest plan in flight did not run. Its rows have no sound state any more: finish them. */
void sched_abandon(struct sched *s, const struct plan *plan);

/* ---- What a plan wants done before it runs, whether sched_plan returned one or not ---- */
struct sched_copy {
    uint32_t group, from, to;
};
/* Page copies, in the order in which they must be made, before the plan is launched and before a load is begun. 0: none
 * left. */
int sched_pop_copy(struct sched *s, struct sched_copy *out);

/* A row that was admitted onto a beginning of which parts have no pages, only a copy elsewhere. It is not planned until
 * sched_loaded; its pages are its own, and named here block by block. */
struct sched_load_block {
    prefix_block block;
    uint32_t groups;                 /* bit g: wanted */
    uint32_t page[PAGES_GROUPS_MAX]; /* where to */
};
struct sched_load {
    sched_row row;
    uint32_t n;
    const struct sched_load_block *blocks; /* in the scheduler's memory until the next sched_pop_load */
};
/* 0: none left. A load that cannot be done any more (what it wants has left the store) fails here: its row reads for
 * itself, or waits in line again. So this call, too, can give sched_plan something to do, and sched_pop_copy. */
int sched_pop_load(struct sched *s, struct sched_load *out);
/* The row may be planned from now on, or another that waited for it, so sched_plan may have something to do. ok: every
 * byte is there. Else the caller has made the tree forget the copy that failed, and the row looks again. */
void sched_loaded(struct sched *s, sched_row row, int ok);

enum row_state sched_row_state(const struct sched *s, sched_row row); /* ROW_FREE for an unknown one */
/* Rows that are gone, in the order in which they went; popping one frees its place, and the engine forgets its own half
 * before it reserves again. Returns 0 when none is left. */
int sched_pop_gone(struct sched *s, sched_row *out);
/* Of the row that was popped last: the last block of what it left in the prefix store, 0 if nothing. */
prefix_block sched_stored(const struct sched *s, sched_row row);
/* Rows admitted (for the first time or again) since the last call and neither gone nor preempted since, in order, for
 * spans. Returns 0 when none is left. */
int sched_pop_admitted(struct sched *s, sched_row *out);

struct sched_counts {
    uint32_t reserved, waiting, preparing, running, ending, gone;
    uint32_t preempted;           /* its last plans are not committed yet; after that it counts as waiting */
    uint32_t returning;           /* of those waiting: they were preempted */
    uint32_t paused;              /* of those waiting, preparing, running and preempted */
    uint32_t in_flight;           /* plans */
    uint64_t preemptions, redone; /* so far: rows, tokens */
    uint32_t following, loading;  /* of those preparing: they wait for another row's state, or for a copy */
    uint64_t cached;              /* so far: prompt tokens that were taken from the store */
    uint32_t step_us;             /* P9: an iteration of the rows that run now without prompts; 0: not known */
    uint32_t token_ns;            /* P9: what a prompt token adds to it; 0: not known */
};
void sched_get_counts(const struct sched *s, struct sched_counts *out);
struct sched_tenant_counts {
    uint32_t waiting, rows; /* rows: preparing and running */
};
void sched_get_tenant(const struct sched *s, uint32_t tenant, struct sched_tenant_counts *out);
struct sched_history {
    uint32_t preemptions, redone, cached;
};
/* How often a row was preempted, how many positions it was planned to read again, and how many prompt tokens it never
 * read because they were stored. */
void sched_get_history(const struct sched *s, sched_row row, struct sched_history *out);

int sched_check(const struct sched *s); /* 1 if every invariant holds (pages_check included); walks everything */

#endif
