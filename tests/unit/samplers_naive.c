/* See samplers_naive.h. */
#include "samplers_naive.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fmath.h"
#include "base/rng.h"

struct cand {
    int32_t id;
    float x, weight;
    double distance; /* typical's */
    uint32_t rank;
};

struct left {
    const struct naive *n;
    float *x; /* a row of its own: all ids, or the allowed ones */
    int32_t *ids;
    uint32_t size;
    struct cand *cand; /* best first */
    uint32_t cands;
    float scale;
    int whole;
    uint32_t gone; /* from the beginning, by XTC */
};

static const cohort_sampling *asked(const struct left *l) { return &l->n->params->asked; }

static float bounded(double x) { return x > (double)FLT_MAX ? FLT_MAX : x < -(double)FLT_MAX ? -FLT_MAX : (float)x; }

static float *logit(struct left *l, int32_t id) {
    for (uint32_t i = 0; i < l->size; i++)
        if (l->ids[i] == id) return &l->x[i];
    return NULL;
}

static void forbid(struct left *l, int32_t id) {
    float *x = logit(l, id);
    if (x) *x = -INFINITY;
}

/* ---- Before the chain ---- */
static int by_id(const void *a, const void *b) { return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1; }

static int may(const struct left *l, int32_t id) { return !l->n->rejected || !l->n->rejected[id]; }

/* A grammar that leaves few makes a row of those alone. */
static void take_row(struct left *l) {
    const cohort_request *q = l->n->request;
    uint32_t few = 0;
    l->size = q->allowed_ids_n ? (uint32_t)q->allowed_ids_n : l->n->vocab;
    for (uint32_t i = 0; i < l->n->vocab; i++) few += (uint32_t)may(l, (int32_t)i);
    int gather = !q->allowed_ids_n && few > 0 && few <= l->n->vocab / 4;
    l->x = malloc(l->size * sizeof(*l->x));
    l->ids = malloc(l->size * sizeof(*l->ids));
    l->cand = malloc(l->size * sizeof(*l->cand));
    if (!l->x || !l->ids || !l->cand) abort();
    for (uint32_t i = 0; i < l->size; i++) l->ids[i] = q->allowed_ids_n ? q->allowed_ids[i] : (int32_t)i;
    qsort(l->ids, l->size, sizeof(*l->ids), by_id);
    if (gather) {
        l->size = 0;
        for (uint32_t i = 0; i < l->n->vocab; i++)
            if (may(l, (int32_t)i)) l->ids[l->size++] = (int32_t)i;
    }
    for (uint32_t i = 0; i < l->size; i++) l->x[i] = may(l, l->ids[i]) ? l->n->row[l->ids[i]] : -INFINITY;
}

static void take_lists(struct left *l) {
    const cohort_request *q = l->n->request;
    uint32_t position = l->n->position;
    for (size_t i = 0; i < q->biases_n; i++) {
        float *x = logit(l, q->biases[i].id);
        if (x && *x != -INFINITY) *x = isinf(q->biases[i].bias) ? -INFINITY : bounded((double)(*x + q->biases[i].bias));
    }
    if (position - q->prompt_n < q->min_tokens) {
        for (uint32_t i = 0; i < l->n->ends_n && !q->ignore_eos; i++) forbid(l, l->n->ends[i]);
        for (size_t i = 0; i < q->stop_ids_n; i++) forbid(l, q->stop_ids[i]);
    }
    for (size_t i = 0; i < q->banned_n; i++) {
        size_t before = q->banned[i].n - 1;
        if (before <= position &&
            memcmp(q->banned[i].ids, l->n->tokens + position - before, before * sizeof(int32_t)) == 0)
            forbid(l, q->banned[i].ids[before]);
    }
}

static int by_logit(const void *a, const void *b) {
    const struct cand *i = a, *j = b;
    if (i->x != j->x) return i->x > j->x ? -1 : 1;
    return i->id < j->id ? -1 : 1;
}

static void sort(struct left *l) { qsort(l->cand, l->cands, sizeof(*l->cand), by_logit); }

static void make_candidates(struct left *l) {
    l->cands = 0;
    for (uint32_t i = 0; i < l->size; i++)
        if (l->x[i] != -INFINITY) l->cand[l->cands++] = (struct cand){.id = l->ids[i], .x = l->x[i]};
    sort(l);
}

/* ---- Penalties ---- */
static uint32_t count(const struct left *l, int32_t id, uint32_t from, int32_t window) {
    uint32_t found = 0;
    for (uint32_t i = from; i < l->n->position; i++)
        if (window < 0 || l->n->position - i <= (uint32_t)window) found += l->n->tokens[i] == id;
    return found;
}

static float penalised(const struct left *l, int32_t id, float x) {
    const cohort_sampling *s = asked(l);
    if (s->repetition_penalty != 1 && count(l, id, 0, s->repetition_window))
        x = x > 0 ? x / s->repetition_penalty : x * s->repetition_penalty;
    uint32_t uses = count(l, id, (uint32_t)l->n->request->prompt_n, s->answer_window);
    double less = (double)uses * (double)s->frequency_penalty + (double)s->presence_penalty;
    if (uses && (s->frequency_penalty != 0 || s->presence_penalty != 0))
        x = (float)((double)x - less / (double)l->scale);
    return bounded((double)x);
}

/* Every earlier place, the token that stood there, and how much of what is before it is the same as the end. */
static float dried(const struct left *l, int32_t id, float x) {
    const cohort_sampling *s = asked(l);
    const int32_t *t = l->n->tokens;
    uint32_t position = l->n->position, longest = 0;
    uint32_t begin = s->dry_window < 0 || (uint32_t)s->dry_window > position ? 0 : position - (uint32_t)s->dry_window;
    for (uint32_t at = begin; at < position; at++) {
        uint32_t same = 0;
        if (t[at] != id) continue;
        while (same < at - begin && t[at - 1 - same] == t[position - 1 - same]) same++;
        if (same > longest) longest = same;
    }
    if (longest < s->dry_allowed_length || longest == 0) return x;
    double power = (longest - s->dry_allowed_length) * fmath_log((double)s->dry_base);
    double less = (double)s->dry_multiplier * fmath_exp(power > 88 ? 88 : power);
    return bounded((double)(float)((double)x - less / (double)l->scale));
}

static void change(struct left *l, float (*to)(const struct left *, int32_t, float)) {
    if (l->gone) l->whole = 0;
    for (uint32_t i = 0; i < l->cands; i++) l->cand[i].x = to(l, l->cand[i].id, l->cand[i].x);
    for (uint32_t i = 0; i < l->size; i++)
        if (l->x[i] != -INFINITY) l->x[i] = to(l, l->ids[i], l->x[i]);
    sort(l);
}

/* ---- Filters ---- */
static double y_of(const struct left *l, uint32_t i) {
    return ((double)l->cand[i].x - (double)l->cand[0].x) * (double)l->scale;
}

static void weigh(struct left *l) {
    for (uint32_t i = 0; i < l->cands; i++)
        l->n->ops->exp_shifted(&l->cand[i].weight, &l->cand[i].x, 1, l->cand[0].x, l->scale);
}

static double fold(double lane[16]) {
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++) lane[i] += lane[i + width];
    return lane[0];
}

static int is_left(const struct left *l, int32_t id) {
    if (l->gone == 0) return 1;
    for (uint32_t i = 0; i < l->cands; i++)
        if (l->cand[i].id == id) return 1;
    return 0;
}

enum spread_kind { OF_WEIGHTS, OF_WEIGHTED, OF_LOGITS, OF_SQUARES };
static double spread(struct left *l, enum spread_kind kind, double mean) {
    double lane[16] = {0}, max = (double)l->cand[0].x;
    uint32_t n = l->whole ? l->size : l->cands;
    for (uint32_t i = 0; i < n; i++) {
        float x = l->whole ? l->x[i] : l->cand[i].x, w;
        if (x == -INFINITY || (l->whole && !is_left(l, l->ids[i]))) continue;
        l->n->ops->exp_shifted(&w, &x, 1, l->cand[0].x, l->scale);
        double y = ((double)x - max) * (double)l->scale, d = (double)x - mean;
        lane[i % 16] += kind == OF_WEIGHTS    ? (double)w
                        : kind == OF_WEIGHTED ? (double)w * y
                        : kind == OF_LOGITS   ? (double)x
                                              : d * d;
    }
    return fold(lane);
}

static double sum(struct left *l) {
    double all = 0;
    weigh(l);
    if (l->whole && l->gone) return spread(l, OF_WEIGHTS, 0);
    if (l->whole) return l->n->ops->sum_exp(l->x, l->size, l->cand[0].x, l->scale);
    for (uint32_t i = 0; i < l->cands; i++) all += (double)l->cand[i].weight;
    return all;
}

static uint32_t least(const struct left *l) {
    uint32_t n = asked(l)->min_keep ? asked(l)->min_keep : 1;
    return n < l->cands ? n : l->cands;
}

static void cut_to(struct left *l, uint32_t n) {
    l->whole = 0;
    if (n < least(l)) n = least(l);
    if (n < l->cands) l->cands = n;
}

static void cut_below(struct left *l, float floor) {
    uint32_t n = 0;
    while (n < l->cands && l->cand[n].x >= floor) n++;
    cut_to(l, n);
}

static void top_p(struct left *l) {
    double cut = (double)asked(l)->top_p * sum(l), mass = 0;
    uint32_t n = 0;
    while (n < l->cands) {
        mass += (double)l->cand[n++].weight;
        if (mass >= cut && n >= least(l)) break;
    }
    cut_to(l, n);
}

static int by_distance(const void *a, const void *b) {
    const struct cand *i = a, *j = b;
    double x = fabs(i->distance), y = fabs(j->distance);
    if (x != y) return x < y ? -1 : 1;
    int above = i->distance > 0;
    if (above != (j->distance > 0)) return above ? -1 : 1;
    return (i->rank < j->rank) == above ? 1 : -1;
}

static void typical(struct left *l) {
    double all = spread(l, OF_WEIGHTS, 0), mean = spread(l, OF_WEIGHTED, 0) / all, mass = 0;
    uint32_t n = 0;
    sum(l);
    for (uint32_t i = 0; i < l->cands; i++) {
        l->cand[i].distance = y_of(l, i) - mean;
        l->cand[i].rank = i;
    }
    qsort(l->cand, l->cands, sizeof(*l->cand), by_distance);
    while (n < l->cands && (n < least(l) || mass < (double)asked(l)->typical_p * all))
        mass += (double)l->cand[n++].weight;
    cut_to(l, n);
    sort(l);
}

static void xtc(struct left *l) {
    const struct sample_params *p = l->n->params;
    if (rng_unit(p->seed, p->stream | UINT64_C(1) << 32, l->n->position) >= (double)p->asked.xtc_probability) return;
    double cut = (double)p->asked.xtc_threshold * sum(l);
    uint32_t n = 0, keep = p->asked.min_keep ? p->asked.min_keep : 1;
    while (n < l->cands && (double)l->cand[n].weight >= cut) n++;
    if (n < 2 || l->cands - (n - 1) < keep) return;
    l->gone += n - 1;
    l->cands -= n - 1;
    memmove(l->cand, l->cand + n - 1, l->cands * sizeof(*l->cand));
}

static void temperature(struct left *l) {
    const cohort_sampling *s = asked(l);
    float t = s->temperature;
    if (s->temperature_range > 0) {
        double low = fmax((double)t - (double)s->temperature_range, 0), high = (double)t + (double)s->temperature_range;
        double all = spread(l, OF_WEIGHTS, 0), mean = spread(l, OF_WEIGHTED, 0) / all;
        double share = l->cands > 1 ? (fmath_log(all) - mean) / fmath_log(l->cands) : 0;
        double power = s->temperature_exponent == 0 ? 1
                       : share > 0                  ? fmath_pow(share, (double)s->temperature_exponent)
                                                    : 0;
        t = l->cands > 1 ? (float)(low + (high - low) * power) : 1;
    }
    if (!isinf(1 / t)) {
        l->scale = 1 / t;
        return;
    }
    l->whole = 0;
    l->cands = 1;
}

/* The paper's own forms. */
static void mirostat(struct left *l) {
    if (asked(l)->mirostat == 2) {
        double all = sum(l);
        uint32_t n = 0;
        while (n < l->cands && -(y_of(l, n) - log(all)) / log(2) <= (double)l->n->state) n++;
        cut_to(l, n);
        return;
    }
    double products = 0, squares = 0, n = l->size;
    for (uint32_t i = 0; i + 1 < l->cands && i < 99; i++) {
        double t = log((i + 2.0) / (i + 1.0)), b = y_of(l, i) - y_of(l, i + 1);
        products += t * b;
        squares += t * t;
    }
    double s = squares > 0 ? products / squares : 0, e = s - 1;
    double k = s > 0 ? pow(e * pow(2, (double)l->n->state) / (1 - pow(n, -e)), 1 / s) : n;
    l->whole = 0;
    if (s > 0 && fabs(e) <= 1e-9) k = pow(pow(2, (double)l->n->state) / log(n), 1 / s);
    cut_to(l, k >= n || isnan(k) ? l->size : (uint32_t)k);
}

/* ---- All of it ---- */
static int does(const struct left *l, int step) {
    const cohort_sampling *s = asked(l);
    if (step == COHORT_SAMPLER_PENALTIES) return 1;
    if (step == COHORT_SAMPLER_DRY) return s->dry_multiplier > 0 && s->dry_window != 0;
    if (step == COHORT_SAMPLER_TEMPERATURE) return s->temperature != 1 || s->temperature_range > 0;
    if (s->mirostat) return 0;
    if (step == COHORT_SAMPLER_TOP_N_SIGMA) return s->top_n_sigma > 0;
    if (step == COHORT_SAMPLER_TOP_K)
        return s->top_k > 0 &&
               (!l->whole || ((uint32_t)s->top_k < l->size - l->gone && s->min_keep < l->size - l->gone));
    if (step == COHORT_SAMPLER_TYPICAL) return s->typical_p < 1;
    if (step == COHORT_SAMPLER_TOP_P) return s->top_p < 1;
    if (step == COHORT_SAMPLER_MIN_P) return s->min_p > 0;
    return s->xtc_probability > 0 && s->xtc_threshold <= 0.5f;
}

static void take_step(struct left *l, int step) {
    const cohort_sampling *s = asked(l);
    if (!does(l, step)) return;
    if (step == COHORT_SAMPLER_PENALTIES) change(l, penalised);
    if (step == COHORT_SAMPLER_DRY) change(l, dried);
    if (step == COHORT_SAMPLER_TOP_N_SIGMA) {
        uint32_t n = l->cands;
        double mean = spread(l, OF_LOGITS, 0) / n, deviation = sqrt(spread(l, OF_SQUARES, mean) / n);
        cut_below(l, (float)((double)l->cand[0].x - (double)s->top_n_sigma * deviation));
    }
    if (step == COHORT_SAMPLER_TOP_K) cut_to(l, (uint32_t)s->top_k);
    if (step == COHORT_SAMPLER_TYPICAL) typical(l);
    if (step == COHORT_SAMPLER_TOP_P) top_p(l);
    if (step == COHORT_SAMPLER_MIN_P)
        cut_below(l, (float)((double)l->cand[0].x + fmath_log((double)s->min_p) / (double)l->scale));
    if (step == COHORT_SAMPLER_XTC) xtc(l);
    if (step == COHORT_SAMPLER_TEMPERATURE) temperature(l);
}

static void finish(struct left *l, struct sample_result *out) {
    const struct sample_params *p = l->n->params;
    double all = sum(l), mass = 0, target = rng_unit(p->seed, p->stream, l->n->position) * all;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < l->cands && l->cand[i].weight > 0; i++) {
        chosen = i;
        mass += (double)l->cand[i].weight;
        if (mass > target) break;
    }
    out->token = l->cand[chosen].id;
    double log_p = y_of(l, chosen) - fmath_log(all);
    out->logprob = (float)log_p;
    if (p->asked.mirostat) {
        double surprise = -log_p / log(2), error = surprise - (double)p->asked.mirostat_tau;
        out->state = (float)((double)l->n->state - (double)p->asked.mirostat_eta * error);
    }
    for (uint32_t i = 0; i < l->cands && i < (uint32_t)p->logprobs; i++)
        out->top[out->top_n++] = (cohort_logprob){l->cand[i].id, (float)(y_of(l, i) - fmath_log(all))};
}

void naive_draw(const struct naive *n, struct sample_result *out) {
    const cohort_sampling *s = &n->params->asked;
    struct left l = {.n = n, .scale = 1, .whole = 1};
    *out = (struct sample_result){.token = SAMPLE_NOTHING_LEFT, .logprob = NAN}; /* its logits are finite */
    take_row(&l);
    take_lists(&l);
    make_candidates(&l);
    uint32_t steps = s->order_n ? s->order_n : COHORT_SAMPLERS;
    if (l.cands) {
        for (uint32_t i = 0; i < steps; i++) take_step(&l, s->order_n ? s->order[i] : (int)i + 1);
        if (s->mirostat) mirostat(&l);
        finish(&l, out);
    }
    free(l.x);
    free(l.ids);
    free(l.cand);
}
