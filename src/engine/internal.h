/* What the engine's files share: the model handle, the engine, and its half of a row.
 *
 * Threads. The engine thread (loop.c) owns the scheduler, the pages, the state, the compiled program, the iterations
 * and the parts of rows marked "engine". API threads come in through inbox.c (every change under `lock`) and read
 * events through events.c (a row's ring, one reader per row). The backend's team threads run consume (iteration.c).
 *
 * A handle's life (enum handle_state, under `lock`):
 *
 *   FREE --reserve--> RESERVED --submit--> LIVE --the scheduler forgot it--> ENDED --drop--> FREE
 *                        |                  |
 *                        +--unreserve-------+--drop: cancelled, then straight from LIVE to FREE
 *
 * Between RESERVED and LIVE it is FILLING while the submitting thread copies the request, outside the lock; a request
 * that is refused there goes to FREE.
 *
 * A place in the line is taken by reserve and given back when the row's finish event is made, so whoever has read a
 * finish event finds the place free. Handles outnumber places, because ended requests wait for their readers. */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "base/buf.h"
#include "base/err.h"
#include "engine/ring.h"
#include "engine/tenants.h"
#include "format/gguf.h"
#include "model/model.h"
#include "pages/pages.h"
#include "sample/sample.h"
#include "sched/sched.h"
#include "state/state.h"
#include "text/detok.h"
#include "text/tokenizer.h"

enum {
    ENGINE_CONTEXT_DEFAULT_MAX = 32768,
    ENGINE_CONTEXT_MAX = SCHED_CONTEXT_MAX,
    ENGINE_BATCH_MAX = 65536,
    ENGINE_RING_BYTES_MAX = 1 << 26,
    ENGINE_ITERATIONS = 2 /* one running, one being delivered */
};

struct cohort_model {
    struct model_file *file;
    struct tokenizer *tokenizer;
    struct model *built;     /* NULL: vocabulary only */
    struct backend *backend; /* NULL: vocabulary only */
    char *architecture, *name;
    uint32_t piece_max; /* bytes of the longest token */
    cohort_progress_fn progress;
    void *progress_user;
    _Atomic uint64_t packed_bytes; /* of the engine that is open */
    _Atomic int in_use;            /* an engine is open on it */
};

enum handle_state { HANDLE_FREE, HANDLE_RESERVED, HANDLE_FILLING, HANDLE_LIVE, HANDLE_ENDED };

/* What an API thread wants of the engine thread for a row. */
enum { WANT_SUBMIT = 1, WANT_CANCEL = 2, WANT_RESUME = 4 };

/* The copied request: written by the submitting thread, then constant until the handle is freed. */
struct row_request {
    void *memory; /* one block: prompt, stop ids, stops */
    const int32_t *prompt;
    const int32_t *stop_ids;
    const struct detok_stop *stops;
    uint32_t prompt_n, stop_ids_n, stops_n;
    uint32_t max_new;
    uint32_t chunk_max; /* so that the events of an iteration's prompt tokens fit the ring; 0: any */
    uint32_t tenant;
    int32_t priority;
    uint8_t ignore_eos, prompt_logprobs;
    struct sample_params sample;
    uint32_t ring_need; /* free bytes of the ring without which no more iterations are planned */
    void *user;
    uint64_t submitted_us;
};

/* What the finish event says besides its text: written by the engine thread before that event is pushed. */
struct row_final {
    cohort_finish finish;
    int32_t stop_token, stop_index;
    cohort_error error;
    cohort_stats stats;
};

struct row {
    _Atomic uint64_t id; /* 0: free. The ticket has the same number */

    /* under engine.lock */
    uint64_t generation;
    enum handle_state state;
    uint8_t dropped, queued, wants;
    uint32_t tenant; /* whose place it has */
    uint32_t inbox_next, free_next;

    struct row_request request;
    struct ring ring;
    struct row_final final;

    /* engine; fresh from row_fill */
    sched_row sched; /* 0: not handed to the scheduler yet */
    uint8_t finished;
    uint32_t generated;
    struct detok detok;
    uint64_t admitted_us, first_us, last_us; /* first and last token; 0: not yet */

    /* engine and reader */
    _Atomic int paused;
    _Atomic int waiters;
    pthread_mutex_t wait_lock;
    pthread_cond_t wait_cond;

    /* reader */
    const struct ring_event *held; /* the event last taken: its memory is still the caller's */
    uint8_t finish_taken;

    /* under engine.ready_lock */
    uint8_t ready_queued;
    uint64_t ready_id; /* whose events were announced last */
};

struct iteration_item {
    struct row *row;
    uint64_t id; /* the row's when the plan was made */
    uint32_t pos, n_tokens, n_outputs, first_output;
    uint32_t slot;
    uint8_t samples, scores;
};

/* One iteration from its plan to its delivery. */
struct iteration {
    struct cohort_engine *engine;
    const struct plan *plan; /* NULL once committed */
    uint32_t n_items, n_tokens, n_prompt_tokens;
    struct iteration_item *items;
    struct batch_item *batch_items;
    struct sample_result *scores;  /* per output, of rows with prompt_logprobs */
    struct sample_result *samples; /* per item */
    uint64_t launched_us, done_us;
};

struct drained {
    struct row *row;
    uint64_t id; /* when it was drained: the handle may be another by the time it is looked at */
    uint8_t wants;
};

struct cohort_engine {
    cohort_model *model;
    cohort_engine_options options; /* effective */
    struct pages *pages;
    struct state *state;
    struct tenants *tenants;
    struct sched *sched;
    struct backend_program *program;
    const struct vecops *vecops;
    uint32_t groups, vocab;
    uint32_t text_max; /* bytes that one token, or a finish event, can bring at most */

    struct row *rows; /* handles */
    uint32_t rows_n;
    struct row **by_sched; /* by the scheduler's row index */
    int32_t *slots;        /* sampled tokens, by the same index */

    pthread_t thread;
    int thread_started;
    struct iteration iterations[ENGINE_ITERATIONS];
    struct iteration *unread; /* run, not yet delivered */
    unsigned turn;
    struct buf text;       /* of the event being made; as large as it can get */
    uint64_t last_wait_us; /* when the last batch ended; 0: nothing has run since the engine slept */

    pthread_mutex_t lock;
    pthread_cond_t wake; /* the inbox got something, or `stopping` */
    pthread_cond_t idle; /* `active` fell to 0 */
    /* under lock */
    uint32_t free_first, inbox_first, inbox_last;
    uint32_t active; /* being submitted, or submitted and not ended */
    int draining, stopping;
    cohort_error failure;    /* code 0: none. Why the loop cannot go on */
    struct drained *drained; /* the engine thread's, filled under lock */

    pthread_mutex_t ready_lock;
    uint32_t *ready; /* ring of handle indices, each at most once */
    uint32_t ready_first, ready_n;
    int ready_fd[2], ready_signalled; /* a pipe: reader's end, writer's end */

    pthread_mutex_t metrics_lock;
    cohort_metrics metrics;
    uint64_t last_step_us; /* 0: asleep */
};

#define ROW_NONE UINT32_MAX

/* inbox.c: handles, places, and what API threads want. */
struct row *inbox_find(struct cohort_engine *e, uint64_t id); /* NULL if the handle is not (or no more) this one */
/* Collects what is wanted into e->drained and returns how many; sleeps until there is something if `may_sleep`.
 * -1: the thread must end. */
int inbox_drain(struct cohort_engine *e, int may_sleep);
void inbox_want(struct cohort_engine *e, struct row *row, uint64_t id, uint8_t wants);
/* The row ends: whoever reads that may take its place at once. */
void inbox_give_place_back(struct cohort_engine *e, const struct row *row, uint64_t now_us);
/* The engine thread has done with the row: its handle is ENDED, or FREE if it was dropped. */
void inbox_end(struct cohort_engine *e, struct row *row);
/* Refuses all work from now on. */
void inbox_fail(struct cohort_engine *e, const cohort_error *cause);

/* row.c: one row's request and its memory. */
/* Checks and copies a request. 0 or a code; the row has no memory then. */
int row_fill(struct cohort_engine *e, struct row *row, const cohort_request *request, cohort_error *err);
void row_clear(struct row *row);
int row_has_room(const struct row *row); /* the ring takes another iteration's results */

/* iteration.c: a plan as a batch. */
int iteration_init(struct iteration *it, struct cohort_engine *e, uint32_t items_max, uint32_t outputs_max);
void iteration_deinit(struct iteration *it);
int iteration_launch(struct iteration *it, const struct plan *plan);

/* deliver.c: results to events. Engine thread. */
void deliver_iteration(struct cohort_engine *e, struct iteration *it);
/* Makes the finish event of a row that has none yet. `code` and `text` for COHORT_FINISH_ERROR. */
void deliver_finish(struct cohort_engine *e, struct row *row, cohort_finish finish, int code, const char *text);

/* events.c: what readers see. */
int events_init(struct cohort_engine *e);
void events_deinit(struct cohort_engine *e);
void events_announce(struct cohort_engine *e, struct row *row); /* after a push; engine thread */

/* loop.c: the engine thread. */
void *loop_main(void *engine);

/* metrics.c */
void metrics_submitted(struct cohort_engine *e, const struct row *row);
void metrics_refused(struct cohort_engine *e);
void metrics_admitted(struct cohort_engine *e, const struct row *row);
void metrics_token(struct cohort_engine *e, const struct row *row, uint64_t now_us);
void metrics_finish(struct cohort_engine *e, const struct row *row, uint64_t now_us);
void metrics_iteration(struct cohort_engine *e, const struct iteration *it);
struct metrics_step { /* what a turn's parts took */
    uint64_t build_us, forward_us, deliver_us, gap_us;
};
void metrics_step(struct cohort_engine *e, const struct metrics_step *step);
void metrics_asleep(struct cohort_engine *e);
void metrics_awake(struct cohort_engine *e);
void metrics_unhealthy(struct cohort_engine *e);

#endif
