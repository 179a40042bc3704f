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
#include "chat/template.h"
#include "engine/cache.h"
#include "engine/constraint.h"
#include "engine/grammars.h"
#include "engine/ring.h"
#include "engine/tasks.h"
#include "engine/tenants.h"
#include "engine/trace.h"
#include "format/gguf.h"
#include "model/model.h"
#include "pages/pages.h"
#include "sample/row.h"
#include "sched/sched.h"
#include "state/state.h"
#include "text/detok.h"
#include "text/tokenizer.h"

enum {
    ENGINE_CONTEXT_DEFAULT_MAX = 32768,
    ENGINE_CONTEXT_MAX = SCHED_CONTEXT_MAX,
    ENGINE_BATCH_MAX = 65536,
    ENGINE_RING_BYTES_MAX = 1 << 26,
    ENGINE_ITL_MAX_MS = 1000000,
    ENGINE_ITERATIONS = 2 /* one running, one being delivered */
};

struct cohort_model {
    struct model_file *file;
    struct tokenizer *tokenizer;
    struct model *built;     /* NULL: vocabulary only */
    struct backend *backend; /* NULL: vocabulary only */
    char *architecture, *name;
    struct {                        /* chat_api.c */
        struct chat_template *made; /* NULL: of no use, for `reason` */
        char *text, *reason;
        int built_in;
    } chat;
    uint32_t piece_max; /* bytes of the longest token */
    struct grammars *grammars;
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
    void *memory; /* one block: saved tokens and what they name, stop ids, stops, names */
    const int32_t *stop_ids;
    const struct detok_stop *stops;
    uint32_t prompt_n; /* of the tokens to read */
    uint32_t given_n;  /* of the whole prompt, which may be more (embed.c) */
    uint32_t stop_ids_n, stops_n;
    uint32_t max_new;
    uint32_t chunk_max; /* as asked for, and so that the events of an iteration's prompt tokens fit; 0: any */
    uint32_t cuts_n, cuts[COHORT_SNAPSHOTS_MAX]; /* P7: a chunk ends at these positions */
    uint32_t timeout_ms, max_predict_ms;         /* 0: none */
    uint32_t tenant;
    int32_t priority;
    uint32_t min_tokens;
    uint8_t ignore_eos, prompt_logprobs, cache, show_special;
    cohort_pooling pooling;
    uint32_t salt_n, session_n, saved_n;
    const char *salt, *session;
    const cohort_saved_token *saved;  /* T2: what it was given before */
    const cohort_grammar *grammar;    /* held; NULL: none */
    struct reasoning_watch reasoning; /* nothing taken yet */
    uint32_t reasoning_budget;
    struct sample_params sample; /* its `row` is the block of its own, or NULL */
    uint32_t fill_max;           /* tokens that are told before they are read, at most (deliver.c) */
    uint32_t ring_need;          /* free bytes of the ring without which no more iterations are planned */
    void *user;
    uint64_t submitted_us;
};

/* What the finish event says besides its text: written by the engine thread before that event is pushed. */
struct row_final {
    cohort_finish finish;
    int32_t stop_token, stop_index;
    float logprob; /* of stop_token */
    cohort_error error;
    cohort_stats stats;
};

/* What becomes of a row's hidden vectors (embed.c). */
struct embedding {
    float *vector; /* NULL: none is wanted. Complete when its event is pushed, and constant from then on */
    double *sums;  /* of MEAN: over the positions so far. The team's, in an item of the row */
    uint32_t width;
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
    int32_t *tokens; /* the prompt, then what was delivered. Moves only while no iteration reads it (row_add_token) */
    uint32_t tokens_n, tokens_cap;
    sched_row sched; /* 0: not handed to the scheduler yet */
    uint64_t space;  /* what it shares with in the prefix store; 0: nothing */
    uint8_t finished;
    uint8_t span;    /* enum trace_phase; of traced rows only */
    uint8_t newline; /* one was generated */
    uint8_t at_end;  /* behind the token at hand its grammar is at its end */
    uint32_t generated;
    uint64_t due_us;   /* when it ends by itself, DUE_NEVER: not */
    uint32_t due_heap; /* its place among those that do (deadlines.c) */
    struct detok detok;
    struct reasoning_watch reasoning; /* of what was delivered */
    uint32_t reasoning_tokens, forced_tokens;
    struct constraint *constraint;           /* NULL: the model alone decides. constraint.h says whose what is */
    struct embedding embedding;              /* of requests with pooling */
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
    struct row *row; /* NULL: it ended before this was delivered, and may be another's */
    uint32_t pos, n_tokens, n_outputs, first_output;
    uint32_t slot;
    uint32_t index; /* of the token that it makes, in the answer */
    uint8_t samples, scores;
    uint8_t prompt, boundary; /* reads known tokens; and ends at a snapshot boundary */
};

/* One iteration from its plan to its delivery. */
struct iteration {
    struct cohort_engine *engine;
    const struct plan *plan; /* NULL once committed */
    uint64_t number;         /* the plan's */
    uint32_t n_items, n_tokens, n_prompt_tokens, n_redone, n_filled, n_boundaries;
    struct iteration_item *items;
    struct batch_item *batch_items;
    struct sample_result *scores;                           /* per output, of rows with prompt_logprobs */
    struct sample_result *samples;                          /* per item, */
    struct constraint_note *notes;                          /* and what is said of it, of rows with a constraint */
    uint64_t begun_us, idle_since_us, launched_us, done_us; /* idle: the team; 0: the engine slept before */
};

struct drained {
    struct row *row; /* live, so nobody but the engine thread ends it */
    uint8_t wants;
};

struct cohort_engine {
    cohort_model *model;
    cohort_engine_options options; /* effective */
    cohort_layer_forms layer_forms[COHORT_LAYER_FORMS_MAX];
    struct pages *pages;
    struct state *state;
    struct tenants *tenants;
    struct sched *sched;
    struct cache cache;
    struct backend_program *program;
    const struct vecops *vecops;
    uint32_t groups, vocab;
    int32_t *ends; /* ids that end an answer */
    uint32_t ends_n;
    uint32_t text_max; /* bytes that one token, or a finish event, can bring at most */
    struct constraint_counts masks;

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
    struct row **due;      /* a heap (deadlines.c) */
    uint32_t due_n;

    pthread_mutex_t lock;
    pthread_cond_t wake; /* the inbox got something, a task or the hold did, or `stopping` */
    pthread_cond_t idle; /* `active` or the number of tasks fell to 0 */
    /* under lock */
    uint32_t free_first, inbox_first, inbox_last;
    uint32_t active; /* being submitted, or submitted and not ended */
    int draining, stopping;
    int disk_news;           /* the disk tier has results */
    int over;                /* the loop failed, and everything that was pending has ended */
    cohort_error failure;    /* code 0: none. Why the loop cannot go on */
    struct drained *drained; /* the engine thread's, filled under lock */
    struct tasks tasks;

    pthread_mutex_t ready_lock;
    uint32_t *ready; /* ring of handle indices, each at most once */
    uint32_t ready_first, ready_n;
    int ready_fd[2], ready_signalled; /* a pipe: reader's end, writer's end */

    pthread_mutex_t metrics_lock;
    cohort_metrics metrics;
    uint64_t last_step_us; /* 0: asleep */

    struct trace *trace; /* NULL: none */
};

#define ROW_NONE  UINT32_MAX
#define DUE_NEVER UINT64_MAX

/* inbox.c: handles, and what API threads want. Places are counted by tenants.c. */
struct row *inbox_find(struct cohort_engine *e, uint64_t id); /* NULL if the handle is not (or no more) this one */
/* Collects what is wanted into e->drained and returns how many; sleeps until there is something, a task can run, or a
 * deadline has passed, if `may_sleep`. -1: the thread must end. */
int inbox_drain(struct cohort_engine *e, int may_sleep);
void inbox_want(struct cohort_engine *e, struct row *row, uint64_t id, uint8_t wants);
/* The row ends: whoever reads that may take its place at once. */
void inbox_give_place_back(struct cohort_engine *e, const struct row *row, uint64_t now_us);
/* The engine thread has done with the row: its handle is ENDED, or FREE if it was dropped. */
void inbox_end(struct cohort_engine *e, struct row *row);
/* Why no new work is taken; under lock. */
int inbox_closed_error(const struct cohort_engine *e, cohort_error *err);
/* Refuses all work from now on. */
void inbox_fail(struct cohort_engine *e, const cohort_error *cause);
/* After that: every request has its finish event, though none of them is let go of before the engine closes. */
void inbox_over(struct cohort_engine *e);

/* row.c: one row's request and its memory. */
/* Checks and copies a request. 0 or a code; the row has no memory then. */
int row_fill(struct cohort_engine *e, struct row *row, const cohort_request *request, cohort_error *err);
void row_clear(struct row *row);
struct sched_request row_wanted(const struct row_request *r, uint32_t max_new);
int row_has_room(const struct row *row); /* the ring takes another iteration's results */
/* Keeps a generated token: a row that is preempted reads it again. The row is in no iteration as a reader then: it was
 * preempted at least one iteration after this token was made, and is admitted again later. 0 or COHORT_E_MEMORY. */
int row_add_token(struct row *row, int32_t token);

/* engine.c. Fills in what was left to us and raises what is too small; needs e->model. */
int engine_make_effective(struct cohort_engine *e, cohort_error *err);
uint32_t engine_handles(const cohort_engine_options *o); /* requests that can be known at one time */

/* iteration.c: a plan as a batch. */
int iteration_init(struct iteration *it, struct cohort_engine *e, uint32_t items_max, uint32_t outputs_max);
void iteration_deinit(struct iteration *it);
int iteration_launch(struct iteration *it, const struct plan *plan);
void iteration_prepare_masks(struct iteration *it);   /* while it runs: of rows with grammars */
void iteration_forget_finished(struct iteration *it); /* to be called before any of its rows is given away */

/* deliver.c: results to events. Engine thread. */
void deliver_iteration(struct cohort_engine *e, struct iteration *it);
void deliver_token(struct cohort_engine *e, struct row *row, const struct sample_result *r, uint64_t now);
/* Makes the finish event of a row that has none yet. `code` and `text` for COHORT_FINISH_ERROR. */
void deliver_finish(struct cohort_engine *e, struct row *row, cohort_finish finish, int code, const char *text);
void deliver_not_finite(struct cohort_engine *e, struct row *row); /* ends it with E_NUMERIC */

/* replay.c: gives a row's saved tokens out. 1: all of them are out, or the row has ended; 0: its ring is full. */
int replay_run(struct cohort_engine *e, struct row *row, uint64_t now);

/* embed.c: requests for an embedding. */
int embed_check(const cohort_request *q, cohort_error *err);
uint32_t embed_reads(const cohort_request *q); /* how many of its tokens must be read */
int embed_init(const struct cohort_engine *e, struct row *row);
void embed_deinit(struct row *row);
void embed_take(void *iteration, uint32_t item, const struct hidden *hidden); /* the batch's consumer */
void embed_deliver(struct cohort_engine *e, struct row *row);                 /* its prompt is read: ends the row */

/* deadlines.c: rows that end by themselves. Engine thread. */
int deadlines_init(struct cohort_engine *e);
void deadlines_deinit(struct cohort_engine *e);
void deadlines_submitted(struct cohort_engine *e, struct row *row); /* its timeout counts, also while it replays */
/* A token's text, in e->text, was delivered at `now`: behind a newline its prediction limit counts, and may end it. */
void deadlines_text(struct cohort_engine *e, struct row *row, uint64_t now);
void deadlines_forget(struct cohort_engine *e, struct row *row); /* it finishes */
uint64_t deadlines_next(const struct cohort_engine *e);          /* DUE_NEVER: none */
void deadlines_run(struct cohort_engine *e, uint64_t now);       /* ends every row whose time is over */

/* events.c: what readers see. */
int events_init(struct cohort_engine *e);
void events_deinit(struct cohort_engine *e);
void events_announce(struct cohort_engine *e, struct row *row); /* after a push; engine thread */

/* loop.c: the engine thread. */
void *loop_main(void *engine);
/* Lets go of a row that ended before the scheduler had it. */
void loop_end_unscheduled(struct cohort_engine *e, struct row *row);

/* spans.c: what the trace is told. Nothing without one. */
void spans_submitted(struct cohort_engine *e, struct row *row, const cohort_request *request); /* any thread */
void spans_admitted(struct cohort_engine *e, struct row *row, uint64_t now_us); /* again: it had been preempted */
void spans_steps(struct cohort_engine *e, const struct iteration *it);          /* before its results are delivered */
void spans_decodes(struct cohort_engine *e, struct row *row, uint64_t now_us);  /* it has its first token */
void spans_cancel(struct cohort_engine *e, const struct row *row);
void spans_finished(struct cohort_engine *e, const struct row *row, uint64_t now_us); /* with row->final */
void spans_iteration(struct cohort_engine *e, const struct iteration *it, uint64_t deliver_us, uint64_t end_us);

/* metrics.c */
void metrics_submitted(struct cohort_engine *e, const struct row *row);
void metrics_refused(struct cohort_engine *e);
void metrics_task(struct cohort_engine *e); /* one ran */
void metrics_admitted(struct cohort_engine *e, const struct row *row);
void metrics_token(struct cohort_engine *e, const struct row *row, uint64_t now_us);
void metrics_forced(struct cohort_engine *e); /* a token that was not drawn */
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
