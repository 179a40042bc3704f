/* What is drawn: engines and requests (histories.h). Lengths lie on and beside the borders of pages, windows and chunks
 * more often than elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "histories.h"

enum { PAGE = 32 };

uint64_t draw_u64(struct draw *d) { return rng_u64(d->seed, d->stream, d->n++); }
uint32_t draw_below(struct draw *d, uint32_t n) { return (uint32_t)(((draw_u64(d) >> 32) * n) >> 32); }
uint32_t draw_between(struct draw *d, uint32_t low, uint32_t high) { return low + draw_below(d, high - low + 1); }
int draw_chance(struct draw *d, uint32_t percent) { return draw_below(d, 100) < percent; }

static uint32_t pick(struct draw *d, const uint32_t *values, uint32_t n) { return values[draw_below(d, n)]; }
#define PICK(d, ...)                                                                                                   \
    pick(d, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* ---- Engines ---- */
void shape_draw(struct draw *d, const struct history_model *m, struct shape *s) {
    static const char *const names[HISTORY_TENANTS] = {"a", "b", "c"};
    cohort_engine_options *o = &s->options;
    *s = (struct shape){.calm = draw_chance(d, 30)};
    s->alphabet = PICK(d, 1, 2, 3, 8, m->vocab - 20, m->vocab - 20, m->vocab - 20);
    s->backend = (int)PICK(d, FAKE_AT_WAIT, FAKE_AT_WAIT, FAKE_AT_WAIT, FAKE_AT_LAUNCH, FAKE_AT_LAUNCH, FAKE_THREAD);
    s->delay = draw_chance(d, 50) ? (int)draw_between(d, 1, 30) : 0;
    for (int i = 0; i < HISTORY_TENANTS; i++)
        s->tenants[i] = (cohort_tenant){.name = names[i], .weight = draw_between(d, 1, 3)};
    if (draw_chance(d, 20)) s->tenants[2].rows = 1;
    cohort_engine_options_defaults(o);
    history_model_forms(m, o);
    o->context = PICK(d, 256, 384, 512, 1024);
    s->prompt_most = o->context < 512 || draw_chance(d, 70) ? 160 : 400;
    o->rows = PICK(d, 1, 2, 3, 4, 6, 8);
    o->queue = 64;
    o->batch_tokens = PICK(d, 1, 8, 31, 32, 33, 48, 64, 96, 256);
    o->kv_tokens = s->calm ? 1 << 18 : (uint64_t)o->context * PICK(d, 8, 8, 9, 10, 12, 16, 24, 48) / 8;
    o->pipeline = draw_chance(d, 75);
    o->ring_bytes = draw_chance(d, 60) ? 1 : 64 << 10;
    o->tenants_n = HISTORY_TENANTS;
    o->cache = draw_chance(d, 95);
    o->snapshot_stride = PICK(d, 0, 0, 16, 32, 48, 64, 100, 256);
}

/* ---- Prompts ---- */
static uint32_t length(struct round *r, uint32_t most) {
    struct draw *d = &r->draw;
    uint32_t window = r->model->window, stride = r->shape.options.snapshot_stride, n;
    uint32_t chunk = r->shape.options.batch_tokens;
    uint32_t base = PICK(d, 1, PAGE, PAGE, 2 * PAGE, 3 * PAGE, window, window + PAGE, chunk, stride);
    switch (draw_below(d, 4)) {
    case 0:
        n = base + draw_below(d, 4) - 1;
        break;
    case 1:
        n = PAGE * draw_between(d, 1, 5) + draw_below(d, 4) - 1;
        break;
    default:
        n = 1 + draw_below(d, most);
        break;
    }
    return n < 1 || n > most ? 1 + draw_below(d, most) : n;
}

static int32_t some_id(struct round *r) { return (int32_t)(10 + draw_below(&r->draw, r->shape.alphabet)); }

static void fresh(struct round *r, struct ask *a, uint32_t n) {
    while (n-- && a->q.prompt_n < HISTORY_PROMPT_MAX) a->prompt[a->q.prompt_n++] = some_id(r);
}

static void copy(struct ask *a, const int32_t *ids, uint32_t n) {
    while (n-- && a->q.prompt_n < HISTORY_PROMPT_MAX) a->prompt[a->q.prompt_n++] = *ids++;
}

/* An earlier request: most often of this history, at times of one long ago. */
struct base {
    const int32_t *ids;
    uint32_t prompt_n, n;
    uint32_t tenant, salt;
};

static int find_base(struct round *r, uint32_t asked, struct base *b) {
    struct draw *d = &r->draw;
    int old = r->pasts_n && (asked == 0 || draw_chance(d, 10));
    if (!old && asked == 0) return 0;
    if (old || draw_chance(d, 60)) { /* with its answer, if it has one */
        uint32_t back = old ? r->pasts_n : asked < r->pasts_n ? asked : r->pasts_n;
        if (!back) return 0;
        const struct past *p = &r->pasts[r->pasts_n - 1 - draw_below(d, back)];
        *b = (struct base){p->ids, p->prompt_n, p->n, p->space / HISTORY_SALTS, p->space % HISTORY_SALTS};
    } else {
        const struct ask *a = &r->asks[draw_below(d, asked)];
        *b = (struct base){a->prompt, (uint32_t)a->q.prompt_n, (uint32_t)a->q.prompt_n, a->tenant, a->salt};
    }
    return 1;
}

static void edit(struct round *r, struct ask *a, const struct base *b) {
    struct draw *d = &r->draw;
    uint32_t at = draw_below(d, b->prompt_n), skip = draw_below(d, 2);
    copy(a, b->ids, at);
    fresh(r, a, draw_below(d, 3));
    copy(a, b->ids + at + (at + skip <= b->prompt_n ? skip : 0),
         b->prompt_n - at - (at + skip <= b->prompt_n ? skip : 0));
    a->kind = "edited";
}

static void prompt_draw(struct round *r, struct ask *a, uint32_t asked) {
    struct draw *d = &r->draw;
    struct base b;
    uint32_t most = r->shape.prompt_most;
    a->kind = "fresh";
    if (draw_chance(d, 12) || !find_base(r, asked, &b)) {
        fresh(r, a, length(r, most));
        return;
    }
    if (draw_chance(d, 90)) {
        a->tenant = b.tenant;
        a->salt = b.salt;
    }
    switch (draw_below(d, 7)) {
    case 0:
    case 1:
        copy(a, b.ids, b.prompt_n);
        a->kind = "repeated";
        break;
    case 2:
        copy(a, b.ids, length(r, b.n));
        a->kind = "cut";
        break;
    case 3:
    case 4:
        copy(a, b.ids, b.n);
        fresh(r, a, draw_below(d, 4) ? length(r, 40) : 0);
        a->kind = "extended";
        break;
    case 5:
        copy(a, b.ids, length(r, b.n));
        fresh(r, a, length(r, 60));
        a->kind = "branched";
        break;
    default:
        edit(r, a, &b);
        break;
    }
}

/* ---- The rest of a request ---- */
static void sampling_draw(struct draw *d, cohort_request *q) {
    q->sampling.has_seed = 1;
    q->sampling.seed = draw_below(d, 3);
    q->sampling.temperature = 0;
    if (!draw_chance(d, 15)) return;
    q->sampling.temperature = draw_chance(d, 50) ? 1.0f : 0.6f;
    q->sampling.top_k = draw_chance(d, 50) ? 20 : 0;
    q->sampling.top_p = draw_chance(d, 50) ? 0.9f : 1.0f;
    q->sampling.min_p = draw_chance(d, 20) ? 0.05f : 0.0f;
    q->sampling.choice = draw_below(d, 2);
}

static void ends_draw(struct round *r, struct ask *a) {
    struct draw *d = &r->draw;
    a->q.max_tokens = PICK(d, 1, 1, 2, 3, 4, 5, 8, 12, 17, 33);
    if (draw_chance(d, 3)) a->q.max_tokens = draw_between(d, 34, 90);
    a->q.ignore_eos = draw_chance(d, 40);
    if (draw_chance(d, 5)) {
        a->stop_id = (int32_t)(10 + draw_below(d, 20));
        a->q.stop_ids = &a->stop_id;
        a->q.stop_ids_n = 1;
    }
    if (draw_chance(d, 5)) {
        a->stop = (cohort_span){"e", 1};
        a->q.stops = &a->stop;
        a->q.stops_n = 1;
    }
    a->q.logprobs = draw_chance(d, 85) ? -1 : (int)PICK(d, 0, 1, 5, 20);
    if (draw_chance(d, 4)) {
        a->q.prompt_logprobs = 1;
        if (draw_chance(d, 30)) a->q.max_tokens = 0;
    } else if (draw_chance(d, 8)) {
        a->q.pooling = (cohort_pooling)draw_between(d, COHORT_POOLING_MEAN, COHORT_POOLING_LAST);
        a->q.max_tokens = 0;
    }
}

static void way_draw(struct round *r, struct ask *a) {
    struct draw *d = &r->draw;
    static const char *const salts[HISTORY_SALTS] = {NULL, "salt", "salt\0b"};
    static const char *const sessions[HISTORY_SESSIONS] = {NULL, "one", "two"};
    cohort_request *q = &a->q;
    q->priority = draw_chance(d, 20) ? (int32_t)draw_below(d, 5) - 2 : 0;
    q->chunk_max = draw_chance(d, 70) ? 0 : PICK(d, 1, 7, 31, 32, 33, 64);
    for (uint32_t at = 0; draw_chance(d, at ? 60 : 20) && q->snapshot_at_n < COHORT_SNAPSHOTS_MAX;) {
        at += 1 + draw_below(d, 50);
        if (at >= q->prompt_n) break;
        a->snapshots[q->snapshot_at_n++] = at;
        q->snapshot_at = a->snapshots;
    }
    q->cache_prompt = !draw_chance(d, 6);
    if (!q->cache_prompt) a->session = 0; /* refused */
    q->cache_salt = salts[a->salt];
    q->cache_salt_n = a->salt == 2 ? 6 : a->salt ? 4 : 0;
    q->session = sessions[a->session];
    q->session_n = a->session ? 3 : 0;
}

/* A continuation of what the oracle says, cut anywhere, behind the last token too. */
static void resume_draw(struct round *r, struct ask *a) {
    const struct answer *want = oracle_answer(r->oracle, a);
    if (want->tokens_n == 0) return;
    a->q.resume = want->tokens;
    a->q.resume_n = draw_below(&r->draw, want->tokens_n + 1);
}

void ask_draw(struct round *r, struct ask *a) {
    struct draw *d = &r->draw;
    *a = (struct ask){.cancel_after = HISTORY_NEVER};
    cohort_request_defaults(&a->q);
    a->q.prompt_n = 0;
    if (draw_chance(d, 20)) a->tenant = draw_below(d, HISTORY_TENANTS);
    if (draw_chance(d, 20)) a->salt = draw_below(d, HISTORY_SALTS);
    if (draw_chance(d, 15)) a->session = draw_below(d, HISTORY_SESSIONS);
    prompt_draw(r, a, r->asks_n);
    if (a->q.prompt_n == 0) fresh(r, a, 1);
    a->q.prompt = a->prompt;
    sampling_draw(d, &a->q);
    ends_draw(r, a);
    uint32_t most = r->shape.options.context - a->q.max_tokens;
    if (a->q.prompt_n > most || a->q.prompt_n > r->shape.prompt_most + 100) a->q.prompt_n = r->shape.prompt_most;
    if (!r->shape.calm && draw_chance(d, 1))
        a->prompt[draw_below(d, (uint32_t)a->q.prompt_n)] = (int32_t)(r->model->vocab - 5); /* poison */
    a->mix = SAMPLER_MIXES;
    if (draw_chance(d, 15)) {
        a->mix = draw_below(d, SAMPLER_MIXES);
        sampler_mix(a->mix, r->model->vocab, &a->q);
    }
    a->grammar = GRAMMAR_MIXES;
    if (a->q.max_tokens > 0 && !a->q.pooling && draw_chance(d, 20)) {
        a->grammar = draw_below(d, GRAMMAR_MIXES);
        grammar_mix_set(&r->model->played_grammars, a->grammar, r->model->vocab, &a->q);
    }
    way_draw(r, a);
    if (draw_chance(d, 6)) a->cancel_after = draw_chance(d, 40) ? 0 : (int)draw_below(d, 12);
    if (draw_chance(d, 10)) {
        a->late = 1;
        a->q.logprobs = COHORT_TOP_LOGPROBS_MAX;
        if (!a->q.pooling) a->q.max_tokens = a->q.prompt_n + 40 <= r->shape.options.context ? 40 : 1;
    }
    if (a->q.min_tokens > a->q.max_tokens) a->q.min_tokens = a->q.max_tokens;
    if (!a->q.prompt_logprobs && !a->q.pooling && draw_chance(d, 6)) resume_draw(r, a);
}
