/* The sampler chain (sample.h); docs/NUMERICS.md "Sampling" says bit by bit what is computed here. Pure functions over
 * one row; called on the backend's team threads. */
#include "sample/sample.h"

#include <assert.h>
#include <math.h>

#include "base/err.h"
#include "base/fmath.h"
#include "base/rng.h"
#include "sample/logprob.h"
#include "sample/order.h"

int sample_check(const cohort_sampling *s, int logprobs, uint32_t vocab, cohort_error *err) {
    /* Each comparison is written so that NaN fails it. */
    if (!(s->temperature >= 0.0f && s->temperature <= 100.0f))
        return err_set(err, COHORT_E_ARGUMENT, "temperature", "temperature must be a number from 0 to 100");
    if (s->top_k < 0) return err_set(err, COHORT_E_ARGUMENT, "top_k", "top_k must not be negative");
    if (!(s->top_p >= 0.0f && s->top_p <= 1.0f))
        return err_set(err, COHORT_E_ARGUMENT, "top_p", "top_p must be a number from 0 to 1");
    if (!(s->min_p >= 0.0f && s->min_p <= 1.0f))
        return err_set(err, COHORT_E_ARGUMENT, "min_p", "min_p must be a number from 0 to 1");
    int most = vocab < COHORT_TOP_LOGPROBS_MAX ? (int)vocab : COHORT_TOP_LOGPROBS_MAX;
    if (logprobs < -1 || logprobs > most)
        return err_set(err, COHORT_E_ARGUMENT, "logprobs", "logprobs must be from -1 to %d", most);
    return 0;
}

/* Candidates of the order with their weights exp(scale * (x - max)): the same bits as in a pass over the whole row. */
enum { BLOCK = 32 };
struct block {
    uint32_t n, id[BLOCK];
    float weight[BLOCK];
};

/* Reads the candidates from `rank` on, below rank `end`. */
static void read_block(struct order *o, uint32_t rank, uint32_t end, float scale, struct block *out) {
    out->n = 0;
    while (out->n < BLOCK && rank + out->n < end && order_at(o, rank + out->n, &out->id[out->n])) {
        out->weight[out->n] = o->x[out->id[out->n]];
        out->n++;
    }
    o->ops->exp_shifted(out->weight, out->weight, out->n, o->max, scale);
}

static double sum_of_best(struct order *o, uint32_t n, float scale) {
    struct block b;
    double sum = 0;
    for (uint32_t rank = 0; rank < n; rank += b.n) {
        read_block(o, rank, n, scale, &b);
        for (uint32_t i = 0; i < b.n; i++) sum += (double)b.weight[i];
        if (b.n == 0) break;
    }
    return sum;
}

/* How many candidates pass top-k, top-p and min-p; at least the best one does. */
static uint32_t keep(struct order *o, const struct sample_params *p, uint32_t k) {
    struct block b;
    double cut = INFINITY, mass = 0;
    if (p->top_p < 1.0f)
        cut = (double)p->top_p * (k == o->n ? o->ops->sum_exp(o->x, o->n, o->max, 1.0f) : sum_of_best(o, k, 1.0f));
    float floor = p->min_p > 0.0f ? (float)((double)o->max + fmath_log((double)p->min_p)) : -INFINITY;
    for (uint32_t kept = 0;; kept += b.n) {
        read_block(o, kept, k, 1.0f, &b);
        if (b.n == 0) return kept;
        for (uint32_t i = 0; i < b.n; i++) {
            if (o->x[b.id[i]] < floor) return kept + i;
            mass += (double)b.weight[i];
            if (mass >= cut) return kept + i + 1;
        }
    }
}

/* The first of the best `kept` candidates at which the accumulated weight exceeds `target`. Rounding may leave the
 * target above the accumulated sum: then it is the last candidate that has any weight. */
static uint32_t pick(struct order *o, uint32_t kept, float scale, double target) {
    struct block b;
    double sum = 0;
    uint32_t last = 0;
    for (uint32_t rank = 0; rank < kept; rank += b.n) {
        read_block(o, rank, kept, scale, &b);
        for (uint32_t i = 0; i < b.n; i++) {
            if (b.weight[i] == 0) return last; /* the rest has none either */
            last = b.id[i];
            sum += (double)b.weight[i];
            if (sum > target) return last;
        }
        if (b.n == 0) break;
    }
    return last;
}

static uint32_t draw(const struct vecops *ops, const struct sample_params *p, uint64_t position,
                     const struct logits *logits, float *scratch, float max) {
    uint32_t n = logits->n;
    struct order o;
    order_init(&o, ops, logits, max, (uint32_t *)(void *)scratch);
    float scale = 1.0f / p->temperature;
    double u = rng_unit(p->seed, p->stream, position);
    uint32_t k = p->top_k > 0 && (uint32_t)p->top_k < n ? (uint32_t)p->top_k : n;
    if (k == n && p->top_p >= 1.0f && !(p->min_p > 0.0f)) {
        o.forget = 1;
        return pick(&o, n, scale, u * ops->sum_exp(logits->x, n, max, scale));
    }
    uint32_t kept = keep(&o, p, k);
    assert(kept >= 1);
    return pick(&o, kept, scale, u * sum_of_best(&o, kept, scale));
}

/* A temperature whose inverse overflows is zero for every purpose. */
static int is_greedy(const struct sample_params *p) {
    return p->temperature == 0.0f || p->top_k == 1 || isinf(1.0f / p->temperature);
}

void sample_draw(const struct vecops *ops, const struct sample_params *params, uint64_t position,
                 const struct logits *logits, float *scratch, struct sample_result *out) {
    _Static_assert(sizeof(float) == sizeof(uint32_t), "the scratch row holds ids");
    out->token = -1;
    out->logprob = NAN;
    out->top_n = 0;
    int64_t best = logits_best(ops, logits);
    if (best < 0 || isinf(logits->x[best])) return;
    float max = logits->x[best];
    out->token = (int32_t)best;
    if (!is_greedy(params)) out->token = (int32_t)draw(ops, params, position, logits, scratch, max);
    if (params->logprobs < 0) return;
    logprob_fill(ops, logits, scratch, max, out->token, params->logprobs, out);
}

void sample_score(const struct vecops *ops, const struct logits *logits, float *scratch, int32_t next, int32_t logprobs,
                  struct sample_result *out) {
    out->token = -1;
    out->logprob = NAN;
    out->top_n = 0;
    int64_t best = logits_best(ops, logits);
    if (best < 0 || isinf(logits->x[best])) return;
    out->token = (int32_t)best;
    logprob_fill(ops, logits, scratch, logits->x[best], next, logprobs, out);
}
