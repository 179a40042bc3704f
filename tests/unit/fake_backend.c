/* The backend without arithmetic (fake_backend.h). */
#include "fake_backend.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "vecops_naive.h"

struct fake_backend fake_backend = {.poison = -1, .end = -1};

enum { PAGE_BYTES = BACKEND_PAGE_TOKENS * sizeof(int32_t) };

/* A page of a recurrent group. */
struct fake_state {
    uint64_t hash, tokens;
};

struct backend {
    int threads;
};

struct fake_wants {
    enum batch_wants wants;
    const uint32_t *ids;
};

struct backend_program {
    struct fake_wants *wants; /* by output of the batch that runs */
    uint32_t groups, vocab, width, tokens_max, items_max, outputs_max;
    struct program_group group[PROGRAM_GROUPS_MAX];
    uint64_t *states[PROGRAM_GROUPS_MAX]; /* of the item that runs, after each of its tokens */
    struct batch queue[BACKEND_IN_FLIGHT];
    uint64_t launched, run, waited; /* batch i lies at i % BACKEND_IN_FLIGHT */
    int when, aside, closing;
    float *logits, *peaks, *scratch, *hidden;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

unsigned backend_cpus(void) { return 1; }

int backend_open(const struct backend_options *options, struct backend **out, cohort_error *err) {
    *out = calloc(1, sizeof(**out));
    (*out)->threads = options->threads ? options->threads : 1;
    return 0;
}

void backend_close(struct backend *b) { free(b); }
const char *backend_level(const struct backend *b) { return "fake"; }
int backend_threads(const struct backend *b) { return b->threads; }
const struct vecops *backend_vecops(const struct backend *b) { return &vecops_naive; }
uint64_t backend_program_bytes(const struct backend_program *p) { return 1; }
uint64_t backend_page_bytes(const struct program_group *group) { return PAGE_BYTES; }
uint32_t backend_page_layout_version(void) { return 0; }

static int holds(const struct program_group *group, uint32_t pos) {
    return pos >= group->begin && (group->end == 0 || pos < group->end);
}

static int32_t *cell(const struct batch *b, const struct batch_item *item, uint32_t group, uint32_t pos) {
    char *page = (char *)b->arena[group] + (size_t)item->table[group][pos / BACKEND_PAGE_TOKENS] * PAGE_BYTES;
    return (int32_t *)(void *)page + pos % BACKEND_PAGE_TOKENS;
}

static uint64_t mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static struct fake_state *state_page(const struct batch *b, uint32_t group, uint32_t page) {
    return (struct fake_state *)(void *)((char *)b->arena[group] + (size_t)page * PAGE_BYTES);
}

/* Each token changes what the ones before it left. */
static void advance(struct backend_program *p, const struct batch *b, const struct batch_item *item, uint32_t group,
                    const int32_t *ids) {
    struct fake_state state = {1, 0};
    if (item->from[group] != BATCH_EMPTY) state = *state_page(b, group, item->from[group]);
    assert(state.tokens == item->first_pos);
    for (uint32_t j = 0; j < item->n_tokens; j++) {
        state.hash = ids[j] == fake_backend.poison || state.hash == 0 ? 0 : mix(state.hash, (uint64_t)ids[j]) | 1;
        state.tokens++;
        p->states[group][j] = state.hash;
    }
    *state_page(b, group, item->to[group]) = state;
}

/* A hash of what position pos sees of every group. */
static uint64_t seen_by(const struct backend_program *p, const struct batch *b, const struct batch_item *item,
                        uint32_t pos, int *poison) {
    uint64_t h = 1;
    int poisoned = 0;
    for (uint32_t g = 0; g < p->groups; g++) {
        const struct program_group *group = &p->group[g];
        uint32_t first = group->window && pos + 1 > group->window ? pos + 1 - group->window : 0;
        if (group->kind == GROUP_RECURRENT) {
            uint64_t state = p->states[g][pos - item->first_pos];
            poisoned |= state == 0;
            h = mix(h, state);
        }
        for (uint32_t i = first; i <= pos && group->kind == GROUP_ATTENTION; i++) {
            if (!holds(group, i)) continue;
            int32_t id = *cell(b, item, g, i);
            poisoned |= id == fake_backend.poison;
            h = mix(h, (uint64_t)id);
        }
        h = mix(h, g);
    }
    *poison = poisoned;
    return h;
}

/* Its logits. */
static void compute(const struct backend_program *p, const struct batch *b, const struct batch_item *item, uint32_t pos,
                    float *logits) {
    int poisoned;
    uint64_t h = seen_by(p, b, item, pos, &poisoned);
    for (uint32_t i = 0; i < p->vocab; i++)
        logits[i] = poisoned ? NAN : (float)(mix(h, i) >> 40) * 0x1p-21f; /* 0 to 8 */
    int32_t end = fake_backend.end;
    if (end >= 0) logits[end] = h % 16 == 0 && !poisoned ? 20 : -20;
}

/* Hidden vectors, of any sizes, so that the order of a sum shows; by columns from the last. */
static void run_hidden(struct backend_program *p, const struct batch *b, uint32_t i) {
    const struct batch_item *item = &b->items[i];
    uint32_t columns = 100;
    for (uint32_t o = 0; o < item->n_outputs; o++) {
        int poisoned;
        uint64_t h = seen_by(p, b, item, item->first_pos + item->n_tokens - item->n_outputs + o, &poisoned);
        for (uint32_t j = 0; j < p->width; j++)
            p->hidden[(size_t)o * p->width + j] =
                poisoned ? NAN : ldexpf((float)((int64_t)mix(h, j) >> 40), (int)(mix(h, ~(uint64_t)j) >> 59));
    }
    for (uint32_t end = p->width, n; end > 0 && item->n_outputs > 0; end -= n) {
        n = end < columns ? end : columns;
        const struct hidden hidden = {p->hidden + end - n, p->width, item->n_outputs, end - n, n};
        b->take_hidden(b->user, i, &hidden);
    }
}

/* What is wanted of the batch's outputs, asked before any of them is consumed. */
static void ask_wants(struct backend_program *p, const struct batch *b) {
    struct fake_wants *w = p->wants;
    for (uint32_t i = 0; i < b->n_items; i++)
        for (uint32_t o = 0; o < b->items[i].n_outputs; o++, w++) {
            *w = (struct fake_wants){BATCH_ALL, NULL};
            if (b->wants && !b->items[i].hidden) w->wants = b->wants(b->user, i, o, &w->ids);
            fake_backend.some += w->wants == BATCH_SOME;
            fake_backend.none += w->wants == BATCH_NONE;
        }
}

/* What nobody wanted to look at is no number, so that who looks is found out. */
static void spoil_unwanted(struct backend_program *p, const struct fake_wants *w) {
    if (w->wants == BATCH_ALL) return;
    for (uint32_t id = 0; id < p->vocab; id++)
        if (w->wants == BATCH_NONE || !(w->ids[id / 32] >> id % 32 & 1)) p->logits[id] = NAN;
    for (uint32_t span = 0; span < logits_spans(p->vocab); span++) p->peaks[span] = NAN;
}

static void run_item(struct backend_program *p, const struct batch *b, uint32_t i, const struct fake_wants *wants) {
    const struct batch_item *item = &b->items[i];
    assert(item->n_tokens >= 1 && item->n_outputs <= item->n_tokens && (item->tokens || item->n_tokens == 1));
    const int32_t *ids = item->tokens ? item->tokens : &b->slots[item->slot];
    for (uint32_t j = 0; j < item->n_tokens; j++) {
        uint32_t pos = item->first_pos + j;
        assert(ids[j] >= 0 && (uint32_t)ids[j] < p->vocab);
        for (uint32_t g = 0; g < p->groups; g++)
            if (p->group[g].kind == GROUP_ATTENTION && holds(&p->group[g], pos)) *cell(b, item, g, pos) = ids[j];
    }
    for (uint32_t g = 0; g < p->groups; g++)
        if (p->group[g].kind == GROUP_RECURRENT) advance(p, b, item, g, ids);
    if (item->hidden) {
        run_hidden(p, b, i);
        return;
    }
    for (uint32_t output = item->n_outputs; output-- > 0;) {
        uint32_t pos = item->first_pos + item->n_tokens - item->n_outputs + output;
        compute(p, b, item, pos, p->logits);
        struct logits l = {p->logits, p->vocab, p->peaks};
        logits_peaks(&vecops_naive, l.x, l.n, 0, logits_spans(l.n), p->peaks);
        spoil_unwanted(p, wants + output);
        b->consume(b->user, i, output, &l, p->scratch);
    }
}

static void run_items(struct backend_program *p, const struct batch *b, uint32_t outputs) {
    ask_wants(p, b);
    for (uint32_t i = b->n_items; i-- > 0;) {
        outputs -= b->items[i].n_outputs;
        run_item(p, b, i, p->wants + outputs);
    }
}

static void run_batch(struct backend_program *p, const struct batch *b) {
    uint32_t tokens = 0, outputs = 0;
    for (uint32_t i = 0; i < b->n_items; i++) {
        tokens += b->items[i].n_tokens;
        outputs += b->items[i].n_outputs;
    }
    assert(b->n_items <= p->items_max && tokens <= p->tokens_max && outputs <= p->outputs_max);
    if (p->aside) {
        run_items(p, b, outputs);
        return;
    }
    fake_backend.running = 1;
    fake_backend.last_tokens = tokens;
    fake_backend.tokens += tokens;
    run_items(p, b, outputs);
    if (fake_backend.delay_us) usleep((useconds_t)fake_backend.delay_us);
    while (fake_backend.hold) usleep(100);
    fake_backend.batches++;
    fake_backend.running = 0;
}

/* The oldest launched one, on the caller's thread. */
static void run_next(struct backend_program *p) {
    run_batch(p, &p->queue[p->run % BACKEND_IN_FLIGHT]);
    p->run++;
}

static void *worker(void *program) {
    struct backend_program *p = program;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->run == p->launched && !p->closing) pthread_cond_wait(&p->changed, &p->lock);
        if (p->run == p->launched) break;
        struct batch b = p->queue[p->run % BACKEND_IN_FLIGHT];
        pthread_mutex_unlock(&p->lock);
        run_batch(p, &b);
        pthread_mutex_lock(&p->lock);
        p->run++;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int backend_compile(struct backend *b, const struct program *program, uint32_t tokens_max, uint32_t items_max,
                    uint32_t outputs_max, void (*progress)(void *user, double fraction), void *user,
                    struct backend_program **out, cohort_error *err) {
    struct backend_program *p = calloc(1, sizeof(*p));
    p->groups = program->n_groups;
    p->vocab = program->vocab;
    p->tokens_max = tokens_max;
    p->items_max = items_max;
    p->outputs_max = outputs_max;
    for (uint32_t g = 0; g < p->groups; g++) {
        p->group[g] = program->groups[g];
        p->states[g] = calloc(tokens_max, sizeof(uint64_t));
    }
    p->width = program->regs[program->ops[program->n_ops - 1].a].width;
    p->hidden = calloc((size_t)outputs_max * p->width, sizeof(float));
    p->logits = calloc(p->vocab, sizeof(float));
    p->wants = calloc(outputs_max, sizeof(*p->wants));
    p->peaks = calloc(logits_spans(p->vocab), sizeof(float));
    p->scratch = calloc(p->vocab, sizeof(float));
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->when = fake_backend.when;
    p->aside = fake_backend.aside;
    if (p->when == FAKE_THREAD) pthread_create(&p->thread, NULL, worker, p);
    if (progress) progress(user, 1);
    *out = p;
    return 0;
}

int backend_measure(struct backend *b, const struct program *program, uint32_t tokens_max, uint32_t items_max,
                    uint32_t outputs_max, struct backend_needs *out, cohort_error *err) {
    *out = (struct backend_needs){.weights = 1, .work = 1};
    return 0;
}

void backend_program_free(struct backend_program *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->closing = 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->when == FAKE_THREAD) pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    for (uint32_t g = 0; g < p->groups; g++) free(p->states[g]);
    free(p->logits);
    free(p->wants);
    free(p->peaks);
    free(p->hidden);
    free(p->scratch);
    free(p);
}

int backend_launch(struct backend_program *p, const struct batch *batch) {
    if (!p->aside && fake_backend.refuse_launch && --fake_backend.refuse_launch == 0) return COHORT_E_MEMORY;
    pthread_mutex_lock(&p->lock);
    int busy = p->launched - p->waited == BACKEND_IN_FLIGHT;
    if (!busy) {
        p->queue[p->launched++ % BACKEND_IN_FLIGHT] = *batch;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    if (!busy && p->when == FAKE_AT_LAUNCH) run_next(p);
    return busy ? COHORT_E_BUSY : 0;
}

int backend_wait(struct backend_program *p, uint64_t *busy_us) {
    *busy_us = 1;
    if (p->waited == p->launched) return COHORT_E_AGAIN;
    if (p->when == FAKE_AT_WAIT) run_next(p);
    pthread_mutex_lock(&p->lock);
    while (p->run == p->waited) pthread_cond_wait(&p->changed, &p->lock);
    p->waited++;
    pthread_mutex_unlock(&p->lock);
    return fake_backend.break_wait && !p->aside ? COHORT_E_INTERNAL : 0;
}

int backend_done(const struct backend_program *p) { return 1; }
