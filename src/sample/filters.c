/* The filters and the temperature (chain.h). Pure functions over one draw's candidates; called on the backend's team
 * threads. */
#include <math.h>

#include "base/fmath.h"
#include "base/rng.h"
#include "sample/chain.h"

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

void filter_top_k(struct chain *c) {
    uint32_t k = larger((uint32_t)c->params->asked.top_k, c->keep);
    if (k < c->end - c->low) chain_cut(c, c->low, c->low + k);
}

void filter_top_p(struct chain *c) {
    struct chain_block b;
    double cut = (double)c->params->asked.top_p * chain_sum(c), mass = 0;
    uint32_t rank = c->low, end = 0;
    for (; !end; rank += b.n) {
        chain_read(c, rank, &b);
        if (b.n == 0) break;
        for (uint32_t i = 0; i < b.n && !end; i++) {
            mass += (double)b.weight[i];
            if (mass >= cut && rank + i + 1 - c->low >= c->keep) end = rank + i + 1;
        }
    }
    chain_cut(c, c->low, end ? end : rank);
}

void filter_min_p(struct chain *c) {
    double down = fmath_log((double)c->params->asked.min_p) / (double)c->scale;
    chain_cut_below(c, (float)((double)c->max + down));
}

void filter_top_n_sigma(struct chain *c) {
    double mean, variance;
    chain_moments(c, &mean, &variance);
    chain_cut_below(c, (float)((double)c->max - (double)c->params->asked.top_n_sigma * sqrt(variance)));
}

static double weight_of(const struct chain *c, float x) {
    float w;
    c->ops->exp_shifted(&w, &x, 1, c->max, c->scale);
    return (double)w;
}

/* The set grows outwards from the place of the mean y, which is that of a candidate as surprising as the entropy says:
 * one candidate at a time, the nearer neighbour, of equally near ones the likelier. */
void filter_typical(struct chain *c) {
    const float *x = c->logits->x;
    struct spread s = chain_spread(c);
    double want = (double)c->params->asked.typical_p * s.sum, mass = 0, scale = (double)c->scale;
    uint32_t low = c->low, end, id, above = 0, below;
#define Y(id) (((double)x[id] - (double)c->max) * scale)
    while (low < c->end && chain_at(c, low, &id) && Y(id) > s.mean_y) {
        above = id;
        low++;
    }
    end = low;
    int more = end < c->end && chain_at(c, end, &below);
    while ((mass < want || end - low < c->keep) && (low > c->low || more)) {
        if (low > c->low && (!more || Y(above) - s.mean_y <= s.mean_y - Y(below))) {
            mass += weight_of(c, x[above]);
            if (--low > c->low) chain_at(c, low - 1, &above);
        } else {
            mass += weight_of(c, x[below]);
            end++;
            more = end < c->end && chain_at(c, end, &below);
        }
    }
#undef Y
    chain_cut(c, low, end);
}

/* The likeliest go, but for the last one that reaches the threshold, if the dice say so: counted apart from the draw's.
 */
void filter_xtc(struct chain *c) {
    const cohort_sampling *s = &c->params->asked;
    enum { APART = 1 };
    double chance = rng_unit(c->params->seed, c->params->stream | (uint64_t)APART << 32, c->position);
    if (chance >= (double)s->xtc_probability) return;
    struct chain_block b;
    double least = (double)s->xtc_threshold * chain_sum(c);
    uint32_t reach = c->low; /* behind the last that reaches it */
    for (uint32_t rank = c->low;; rank += b.n) {
        chain_read(c, rank, &b);
        uint32_t i = 0;
        while (i < b.n && (double)b.weight[i] >= least) i++;
        reach = rank + i;
        if (i < b.n || b.n == 0) break;
    }
    if (reach <= c->low + 1) return;
    uint32_t first = reach - 1, id;
    for (uint32_t rank = reach; rank - first < c->keep; rank++)
        if (rank >= c->end || !chain_at(c, rank, &id)) return;
    chain_drop(c, first);
}

/* The temperature that follows the entropy: within `range` on either side of what was asked for. */
static float dynamic(struct chain *c) {
    const cohort_sampling *s = &c->params->asked;
    struct spread of = chain_spread(c);
    double lowest = (double)s->temperature - (double)s->temperature_range;
    double highest = (double)s->temperature + (double)s->temperature_range;
    if (of.n <= 1) return 1;
    if (lowest < 0) lowest = 0;
    double share = (fmath_log(of.sum) - of.mean_y) / fmath_log((double)of.n);
    if (!(share > 0)) share = 0;
    double power = s->temperature_exponent == 0 ? 1 : share > 0 ? fmath_pow(share, (double)s->temperature_exponent) : 0;
    return (float)(lowest + (highest - lowest) * power);
}

void filter_temperature(struct chain *c) {
    const cohort_sampling *s = &c->params->asked;
    float temperature = s->temperature_range > 0 ? dynamic(c) : s->temperature;
    float scale = 1.0f / temperature;
    if (isinf(scale))
        chain_cut(c, c->low, c->low + 1);
    else
        c->scale = scale;
}
