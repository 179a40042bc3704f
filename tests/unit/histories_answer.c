/* What comes of a request, and what should (histories.h). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "histories.h"

enum { ORACLE_SLOTS = 1 << 12, ORACLE_CONTEXT = 10000 };

static void add(struct buf *b, const void *bytes, size_t n) {
    if (buf_add(b, bytes, n) != 0) abort();
}
#define ADD(b, value) add(b, &(value), sizeof(value))

static void keep_token(struct answer *a, const cohort_event *e) {
    if (a->tokens_n == a->tokens_cap) {
        a->tokens_cap = a->tokens_cap ? 2 * a->tokens_cap : 16;
        a->tokens = realloc(a->tokens, a->tokens_cap * sizeof(a->tokens[0]));
        if (!a->tokens) abort();
    }
    cohort_logprob *top = NULL;
    if (e->top_n) {
        top = malloc(e->top_n * sizeof(top[0]));
        if (!top) abort();
        memcpy(top, e->top, e->top_n * sizeof(top[0]));
    }
    a->tokens[a->tokens_n++] = (cohort_saved_token){e->token, e->logprob, e->sampler_state, e->top_n, top};
}

static void take(struct answer *a, const cohort_event *e) {
    if (e->type == COHORT_EVENT_FINISH) a->body = a->events.len;
    ADD(&a->events, e->type);
    ADD(&a->events, e->token);
    ADD(&a->events, e->index);
    ADD(&a->events, e->logprob);
    ADD(&a->events, e->sampler_state);
    for (uint32_t i = 0; i < e->top_n; i++) ADD(&a->events, e->top[i]);
    for (uint32_t i = 0; i < e->embedding_n; i++) ADD(&a->events, e->embedding[i]);
    ADD(&a->events, e->text_len);
    add(&a->events, e->text, e->text_len);
    a->events_n++;
    if (e->type == COHORT_EVENT_TOKEN) keep_token(a, e);
    if (e->type != COHORT_EVENT_FINISH) return;
    a->done = 1;
    a->finish = e->finish;
    a->error = e->error;
    a->stats = e->stats;
    ADD(&a->events, e->finish);
    ADD(&a->events, e->error);
    ADD(&a->events, e->stop_token);
    ADD(&a->events, e->stop_index);
    ADD(&a->events, e->stats.prompt_tokens);
    ADD(&a->events, e->stats.generated_tokens);
    ADD(&a->events, e->stats.forced_tokens);
    ADD(&a->events, e->stats.reasoning_tokens);
    ADD(&a->events, e->stats.seed);
}

uint32_t ask_reads(const struct ask *a) { return a->q.pooling == COHORT_POOLING_CLS ? 1 : (uint32_t)a->q.prompt_n; }

uint32_t answer_take(cohort_engine *engine, cohort_id id, struct answer *a, uint32_t most) {
    cohort_event event;
    uint32_t n = 0;
    while (n < most && !a->done && cohort_next(engine, id, &event) == COHORT_OK) {
        take(a, &event);
        n++;
    }
    return n;
}

void answer_free(struct answer *a) {
    for (uint32_t i = 0; i < a->tokens_n; i++) free((void *)(uintptr_t)a->tokens[i].top);
    free(a->tokens);
    buf_free(&a->events);
    *a = (struct answer){0};
}

/* ---- The oracle ---- */
struct remembered {
    struct remembered *next;
    struct buf key;
    struct answer answer;
    cohort_id id; /* while it is asked; then 0 */
};

struct oracle {
    cohort_engine *engine;
    struct history_model *model;
    struct remembered *slots[ORACLE_SLOTS];
};

struct oracle *oracle_new(struct history_model *m) {
    struct oracle *o = calloc(1, sizeof(*o));
    cohort_engine_options options;
    cohort_engine_options_defaults(&options);
    history_model_forms(m, &options);
    options.context = ORACLE_CONTEXT;
    options.rows = 1;
    options.queue = 2 * HISTORY_WAVE_MAX;
    options.kv_tokens = ORACLE_CONTEXT;
    options.ring_bytes = 1 << 20;
    options.cache = 0;
    cohort_error err = {0};
    if (&fake_backend != NULL) fake_backend.aside = 1;
    if (&fake_backend != NULL) fake_backend.when = FAKE_AT_LAUNCH;
    if (!o || cohort_engine_open(m->oracle, &options, &o->engine, &err) != 0) abort();
    if (&fake_backend != NULL) fake_backend.aside = 0;
    o->model = m;
    return o;
}

/* All that the answer may depend on. */
static void make_key(const struct ask *a, struct buf *key) {
    const cohort_request *q = &a->q;
    add(key, q->prompt, q->prompt_n * sizeof(q->prompt[0]));
    ADD(key, q->max_tokens);
    ADD(key, q->sampling.temperature);
    ADD(key, q->sampling.top_k);
    ADD(key, q->sampling.top_p);
    ADD(key, q->sampling.min_p);
    ADD(key, q->sampling.seed);
    ADD(key, q->sampling.choice);
    ADD(key, a->mix);
    ADD(key, a->grammar);
    ADD(key, q->min_tokens);
    ADD(key, q->ignore_eos);
    ADD(key, q->logprobs);
    ADD(key, q->prompt_logprobs);
    ADD(key, q->pooling);
    for (size_t i = 0; i < q->stop_ids_n; i++) ADD(key, q->stop_ids[i]);
    for (size_t i = 0; i < q->stops_n; i++) add(key, q->stops[i].bytes, q->stops[i].len);
}

static uint64_t hash(const struct buf *key) {
    uint64_t h = 1;
    for (size_t i = 0; i < key->len; i++) h = (h ^ (unsigned char)key->data[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

static cohort_id submit(struct oracle *o, const struct ask *a) {
    cohort_request q = a->q;
    cohort_ticket ticket;
    cohort_id id;
    if (a->grammar < GRAMMAR_MIXES) q.grammar = o->model->oracle_grammars.of[a->grammar];
    q.resume = NULL;
    q.resume_n = 0;
    q.cache_prompt = 0;
    q.cache_salt = q.session = NULL;
    q.cache_salt_n = q.session_n = 0;
    q.snapshot_at = NULL;
    q.snapshot_at_n = 0;
    q.chunk_max = 0;
    if (cohort_reserve(o->engine, &ticket, NULL) != 0 || cohort_submit(o->engine, ticket, &q, &id, NULL) != 0) abort();
    return id;
}

static struct remembered *find(struct oracle *o, const struct ask *a) {
    struct buf key = {0};
    make_key(a, &key);
    struct remembered **slot = &o->slots[hash(&key) % ORACLE_SLOTS], *r;
    for (r = *slot; r; r = r->next)
        if (r->key.len == key.len && memcmp(r->key.data, key.data, key.len) == 0) {
            buf_free(&key);
            return r;
        }
    r = calloc(1, sizeof(*r));
    if (!r) abort();
    r->key = key;
    r->next = *slot;
    r->id = submit(o, a);
    return *slot = r;
}

/* Not woken for each event: most of the time would go into that. */
static void finish(struct oracle *o, struct remembered *r) {
    if (r->id == 0) return;
    while (!r->answer.done)
        if (!answer_take(o->engine, r->id, &r->answer, UINT32_MAX)) usleep(50);
    cohort_drop(o->engine, r->id);
    r->id = 0;
}

void oracle_ask(struct oracle *o, const struct ask *a) { find(o, a); }

const struct answer *oracle_answer(struct oracle *o, const struct ask *a) {
    struct remembered *r = find(o, a);
    finish(o, r);
    return &r->answer;
}

void oracle_forget(struct oracle *o) {
    for (uint32_t i = 0; i < ORACLE_SLOTS; i++)
        while (o->slots[i]) {
            struct remembered *r = o->slots[i];
            o->slots[i] = r->next;
            finish(o, r);
            answer_free(&r->answer);
            buf_free(&r->key);
            free(r);
        }
}

void oracle_free(struct oracle *o) {
    oracle_forget(o);
    cohort_engine_close(o->engine, 0);
    free(o);
}
