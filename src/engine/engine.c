/* Opening and closing an engine: options made effective, everything allocated and sized once, the thread started; and
 * the same in reverse. Runs on the caller's thread. */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/budget.h"
#include "engine/forms.h"
#include "engine/internal.h"

_Static_assert((int)COHORT_TENANTS_MAX == (int)SCHED_TENANTS_MAX && (int)COHORT_WEIGHT_MAX == (int)SCHED_WEIGHT_MAX &&
                   (int)COHORT_SNAPSHOTS_MAX == (int)SCHED_CUTS_MAX,
               "the header's limits are the scheduler's");

/* A handle for every place, and as many again for requests that have ended and wait for their readers. */
enum { HANDLES_PER_PLACE = 2 };
uint32_t engine_handles(const cohort_engine_options *o) { return HANDLES_PER_PLACE * (o->rows + o->queue); }

void cohort_engine_options_defaults(cohort_engine_options *options) {
    *options = (cohort_engine_options){.size = sizeof(*options),
                                       .rows = 32,
                                       .queue = 256,
                                       .batch_tokens = 256,
                                       .pipeline = 1,
                                       .ring_bytes = 64 << 10,
                                       .itl_ratio_percent = 150,
                                       .cache = 1,
                                       .snapshot_stride = 2048,
                                       .state_dir_bytes = UINT64_C(8) << 30};
}

void cohort_request_defaults(cohort_request *request) {
    *request = (cohort_request){.size = sizeof(*request), .max_tokens = UINT32_MAX, .cache_prompt = 1, .logprobs = -1};
    sample_defaults(&request->sampling);
}

static int check_range(const char *field, uint64_t value, uint64_t least, uint64_t most, cohort_error *err) {
    if (value >= least && value <= most) return 0;
    return err_set(err, COHORT_E_ARGUMENT, field, "%s is %llu; %llu to %llu are possible", field,
                   (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

/* Fills in what was left to us and raises what is too small. */
int engine_make_effective(struct cohort_engine *e, cohort_error *err) {
    cohort_engine_options *o = &e->options;
    if (o->size != sizeof(*o))
        return err_set(err, COHORT_E_ARGUMENT, "size", "the options were not filled by cohort_engine_options_defaults");
    if (o->context == 0) {
        o->context = model_program(e->model->built)->context_trained;
        if (o->context == 0 || o->context > ENGINE_CONTEXT_DEFAULT_MAX) o->context = ENGINE_CONTEXT_DEFAULT_MAX;
    }
    int code = check_range("context", o->context, 1, ENGINE_CONTEXT_MAX, err);
    if (!code) code = check_range("rows", o->rows, 1, SCHED_ROWS_MAX, err);
    if (!code) code = check_range("queue", o->queue, 0, SCHED_QUEUE_MAX, err);
    if (!code) code = check_range("batch_tokens", o->batch_tokens, 1, ENGINE_BATCH_MAX, err);
    if (!code) code = check_range("itl_target_ms", o->itl_target_ms, 0, ENGINE_ITL_MAX_MS, err);
    if (!code) code = check_range("itl_ratio_percent", o->itl_ratio_percent, 110, 10000, err);
    if (!code) code = check_range("snapshot_stride", o->snapshot_stride, 0, ENGINE_CONTEXT_MAX, err);
    if (!code) code = check_range("ring_bytes", o->ring_bytes, 0, ENGINE_RING_BYTES_MAX, err);
    if (code) return code;
    if (o->batch_tokens < o->rows) o->batch_tokens = o->rows;
    o->pipeline = o->pipeline != 0;
    o->cache = o->cache != 0;
    /* A token's text at worst: every byte of the longest token and of a held tail as U+FFFD, and what a stop string
     * held back. The ring takes several, with the longest lists, and a prompt position for each. */
    e->text_max = 3 * (e->model->piece_max + 4) + DETOK_STOP_BYTES_MAX;
    uint32_t token = ring_event_bytes(COHORT_TOP_LOGPROBS_MAX, e->text_max);
    uint32_t least = 4 * token + 8 * ring_event_bytes(COHORT_TOP_LOGPROBS_MAX, 0);
    if (o->ring_bytes < least) o->ring_bytes = least;
    o->ring_bytes = (o->ring_bytes + 7) & ~7u;
    return 0;
}

/* First of all: a path that is wrong is known before the weights are packed. */
static int open_trace(struct cohort_engine *e, cohort_error *err) {
    const char *path = e->options.trace_path;
    e->options.trace_path = NULL; /* the caller's */
    if (!path) return 0;
    int code = trace_open(path, TRACE_BYTES_MAX, &e->trace, err);
    e->options.trace_path = trace_path(e->trace);
    return code;
}

/* The folder's name, copied; the folder itself is opened with the state. */
static int copy_state_dir(struct cohort_engine *e, cohort_error *err) {
    const char *dir = e->options.state_dir;
    if (!dir) return 0;
    size_t n = strlen(dir);
    char *copy = mem_alloc(n + 1, 1);
    e->options.state_dir = copy;
    if (!copy) return err_set(err, COHORT_E_MEMORY, "state-dir", "no memory for a name");
    memcpy(copy, dir, n + 1);
    return 0;
}

static int open_tenants(struct cohort_engine *e, cohort_error *err) {
    cohort_engine_options *o = &e->options;
    int code = tenants_new(o->tenants, o->tenants_n, o->rows, o->queue, clock_us(), &e->tenants, err);
    if (!code) o->tenants = tenants_list(e->tenants, &o->tenants_n);
    return code;
}

static int open_state(struct cohort_engine *e, cohort_error *err) {
    struct state_plan plan;
    const struct program *program = model_program(e->model->built);
    int code = budget_plan(program, &e->options, &plan, err);
    if (code) return code;
    e->groups = program->n_groups;
    e->options.kv_bytes = plan.bytes;
    e->options.kv_tokens = budget_tokens(program, &plan);
    code = state_new(&plan, &e->state, err);
    if (!code) code = pages_new(&e->pages, plan.groups, plan.pages, err);
    if (!code) code = cache_open(e, &plan, err);
    return code;
}

static const int32_t *row_known_tokens(void *user, sched_row name, uint32_t *n) {
    const struct cohort_engine *e = user;
    const struct row *row = e->by_sched[sched_row_index(name)];
    assert(row && row->sched == name);
    *n = row->tokens_n;
    return row->tokens;
}

static int open_sched(struct cohort_engine *e, cohort_error *err) {
    const struct program *program = model_program(e->model->built);
    struct sched_config config = {.rows_max = e->options.rows,
                                  .queue_max = e->options.queue,
                                  .batch_tokens = e->options.batch_tokens,
                                  .context_max = e->options.context,
                                  .itl_target_us = e->options.itl_target_ms * 1000,
                                  .itl_ratio_percent = e->options.itl_ratio_percent,
                                  .groups = program->n_groups,
                                  .pages = e->pages,
                                  .prefix = e->cache.prefix,
                                  .snapshot_stride = e->options.snapshot_stride,
                                  .tokens = row_known_tokens,
                                  .user = e};
    for (uint32_t g = 0; g < program->n_groups; g++) config.group[g] = state_shape(&program->groups[g]);
    size_t n;
    const cohort_tenant *list = tenants_list(e->tenants, &n);
    struct sched_tenant *tenants = mem_zalloc(n, sizeof(*tenants));
    if (!tenants) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu tenants", n);
    for (size_t i = 0; i < n; i++) tenants[i] = (struct sched_tenant){list[i].weight, list[i].rows};
    config.tenants = tenants;
    config.tenants_n = (uint32_t)n;
    int code = sched_new(&config, &e->sched, err);
    mem_free(tenants);
    if (code) return code;
    uint32_t total = sched_rows_total(e->sched);
    e->by_sched = mem_zalloc(total, sizeof(*e->by_sched));
    e->slots = mem_zalloc(total, sizeof(*e->slots));
    if (!e->by_sched || !e->slots) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %u rows", total);
    return 0;
}

static void compile_progress(void *user, double fraction) {
    const cohort_model *model = user;
    if (model->progress) model->progress(model->progress_user, "pack", fraction);
}

static int open_program(struct cohort_engine *e, cohort_error *err) {
    cohort_model *m = e->model;
    uint32_t tokens = sched_batch_tokens(e->sched), outputs = sched_outputs_max(e->sched);
    int code = backend_compile(m->backend, model_program(m->built), tokens, e->options.rows, outputs, compile_progress,
                               m, &e->program, err);
    if (code) return code;
    atomic_store(&m->packed_bytes, backend_program_bytes(e->program));
    model_file_release(m->file); /* the weights are packed, names and vocabulary copied */
    e->vecops = backend_vecops(m->backend);
    for (int i = 0; i < ENGINE_ITERATIONS; i++)
        if (iteration_init(&e->iterations[i], e, e->options.rows, outputs))
            return err_set(err, COHORT_E_MEMORY, NULL, "no memory for iterations of %u tokens", tokens);
    return 0;
}

static int list_ends(struct cohort_engine *e) {
    const struct tokenizer *t = e->model->tokenizer;
    for (uint32_t i = 0; i < e->vocab; i++) e->ends_n += (uint32_t)tokenizer_is_end(t, (int32_t)i);
    e->ends = mem_alloc(e->ends_n, sizeof(*e->ends));
    if (!e->ends) return COHORT_E_MEMORY;
    for (uint32_t i = 0, n = 0; i < e->vocab; i++)
        if (tokenizer_is_end(t, (int32_t)i)) e->ends[n++] = (int32_t)i;
    return 0;
}

static int open_rows(struct cohort_engine *e, cohort_error *err) {
    e->rows_n = engine_handles(&e->options);
    e->rows = mem_zalloc(e->rows_n, sizeof(*e->rows));
    e->drained = mem_zalloc(e->rows_n, sizeof(*e->drained));
    if (!e->rows || !e->drained || list_ends(e) != 0)
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %u requests", e->rows_n);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < e->rows_n; i++) {
        e->rows[i].free_next = i + 1 < e->rows_n ? i + 1 : ROW_NONE;
        pthread_mutex_init(&e->rows[i].wait_lock, NULL);
        pthread_cond_init(&e->rows[i].wait_cond, &monotonic);
    }
    pthread_condattr_destroy(&monotonic);
    e->free_first = 0;
    e->inbox_first = e->inbox_last = ROW_NONE;
    /* The engine thread's text buffer never has to grow: delivery cannot run out of memory. */
    e->text.max = e->text_max;
    char *filler = mem_zalloc(e->text_max, 1);
    int code = filler ? buf_add(&e->text, filler, e->text_max) : COHORT_E_MEMORY;
    mem_free(filler);
    buf_clear(&e->text);
    if (!code) code = deadlines_init(e);
    if (!code) code = events_init(e);
    return code ? err_set(err, code, NULL, "cannot make the event queue") : 0;
}

static int start_thread(struct cohort_engine *e, cohort_error *err) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the program's, never the engine's */
    int failed = pthread_create(&e->thread, NULL, loop_main, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) return err_set(err, COHORT_E_MEMORY, NULL, "cannot start the engine thread: %s", strerror(failed));
    pthread_setname_np(e->thread, "cohort-engine");
    e->thread_started = 1;
    return 0;
}

static void engine_free(struct cohort_engine *e) {
    trace_close(e->trace);
    for (int i = 0; i < ENGINE_ITERATIONS; i++) iteration_deinit(&e->iterations[i]);
    backend_program_free(e->program);
    if (e->rows) {
        for (uint32_t i = 0; i < e->rows_n; i++) {
            row_clear(&e->rows[i]);
            pthread_mutex_destroy(&e->rows[i].wait_lock);
            pthread_cond_destroy(&e->rows[i].wait_cond);
        }
        events_deinit(e);
    }
    sched_free(e->sched);
    cache_close(e);
    mem_free((char *)e->options.state_dir);
    pages_free(e->pages);
    state_free(e->state);
    tenants_free(e->tenants);
    mem_free(e->by_sched);
    mem_free(e->slots);
    mem_free(e->rows);
    mem_free(e->drained);
    mem_free(e->ends);
    deadlines_deinit(e);
    buf_free(&e->text);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->ready_lock);
    pthread_mutex_destroy(&e->metrics_lock);
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->idle);
    atomic_store(&e->model->packed_bytes, 0);
    atomic_store(&e->model->in_use, 0);
    mem_free(e);
}

static void init_locks(struct cohort_engine *e) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->ready_lock, NULL);
    pthread_mutex_init(&e->metrics_lock, NULL);
    pthread_cond_init(&e->wake, &monotonic);
    pthread_cond_init(&e->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int cohort_engine_open(cohort_model *model, const cohort_engine_options *options, cohort_engine **out,
                       cohort_error *err) {
    *out = NULL;
    if (!model->built)
        return err_set(err, COHORT_E_UNSUPPORTED, "vocab_only", "the model was opened for its vocabulary only");
    int expected = 0;
    if (!atomic_compare_exchange_strong(&model->in_use, &expected, 1))
        return err_set(err, COHORT_E_UNSUPPORTED, "model", "a model has one engine at a time, and this one has one");
    struct cohort_engine *e = mem_zalloc(1, sizeof(*e));
    if (!e) {
        atomic_store(&model->in_use, 0);
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for an engine");
    }
    e->model = model;
    e->vocab = tokenizer_size(model->tokenizer);
    e->ready_fd[0] = e->ready_fd[1] = -1;
    init_locks(e);
    if (options)
        e->options = *options;
    else
        cohort_engine_options_defaults(&e->options);
    int code = copy_state_dir(e, err); /* first: from here on the name is ours to free */
    if (!code) code = engine_make_effective(e, err);
    if (!code) code = forms_take(e, err);
    if (!code) code = open_trace(e, err);
    if (!code) code = open_tenants(e, err);
    if (!code) code = open_state(e, err);
    if (!code) code = open_sched(e, err);
    if (!code) code = open_rows(e, err);
    if (!code) code = open_program(e, err);
    e->metrics.healthy = 1;
    if (!code) metrics_step(e, &(struct metrics_step){0});
    if (!code) code = start_thread(e, err);
    if (code) {
        engine_free(e);
        return code;
    }
    *out = e;
    return COHORT_OK;
}

static void wait_for_idle(struct cohort_engine *e, uint32_t grace_ms) {
    struct timespec until = clock_deadline(grace_ms);
    int late = 0;
    while (!late && (e->active > 0 || e->tasks.n > 0) && !e->failure.code)
        late = pthread_cond_timedwait(&e->idle, &e->lock, &until);
}

void cohort_engine_close(cohort_engine *e, uint32_t grace_ms) {
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->draining = 1;
    wait_for_idle(e, grace_ms);
    e->stopping = 1;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    engine_free(e);
}

void cohort_engine_get_options(const cohort_engine *e, cohort_engine_options *out) { *out = e->options; }
