/* Sums over all candidates of a draw (chain.h): what entropies and deviations are made of. Pure; called on the
 * backend's team threads.
 *
 * Element j of the sequence, in the row's order while the chain is whole and by rank if not, is added to lane j mod 16
 * in ascending order, all in double; the lanes are added by halving. Minus infinities, and in a whole chain those that
 * went from its beginning, count as places, but nothing is added for them. */
#include <math.h>

#include "sample/chain.h"

enum { LANES = 16, TILE = 512 };

struct lanes {
    double lane[LANES];
};

static double fold(struct lanes *l) {
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) l->lane[i] += l->lane[i + width];
    return l->lane[0];
}

/* One step of either sum: tiles begin at multiples of the number of lanes. */
struct sums {
    struct lanes first, second;
    uint32_t n;
};

static void add_weights(struct sums *s, const float *x, const float *weight, uint32_t n, double max, double scale) {
    for (uint32_t j = 0; j < n; j++) {
        if (x[j] == -INFINITY) continue;
        s->n++;
        s->first.lane[j % LANES] += (double)weight[j];
        s->second.lane[j % LANES] += (double)weight[j] * (((double)x[j] - max) * scale);
    }
}

static void add_values(struct sums *s, const float *x, uint32_t n) {
    for (uint32_t j = 0; j < n; j++) {
        if (x[j] == -INFINITY) continue;
        s->n++;
        s->first.lane[j % LANES] += (double)x[j];
    }
}

static void add_squares(struct sums *s, const float *x, uint32_t n, double mean) {
    for (uint32_t j = 0; j < n; j++) {
        if (x[j] == -INFINITY) continue;
        double d = (double)x[j] - mean;
        s->first.lane[j % LANES] += d * d;
    }
}

/* The next tile of logits: where it lies, and how long it is (0: the end). `copy` has room for one. */
static uint32_t next_tile(struct chain *c, uint32_t at, float *copy, const float **x) {
    uint32_t n = 0, id;
    *x = copy;
    if (c->whole) {
        const float *from = c->logits->x + at;
        uint32_t size = c->logits->n - at < TILE ? c->logits->n - at : TILE;
        if (c->low == 0) *x = from;
        for (uint32_t j = 0; c->low && j < size; j++)
            copy[j] = from[j] > c->max || (from[j] == c->max && at + j < c->first) ? -INFINITY : from[j];
        return size;
    }
    while (n < TILE && c->low + at + n < c->end && chain_at(c, c->low + at + n, &id)) copy[n++] = c->logits->x[id];
    return n;
}

struct spread chain_spread(struct chain *c) {
    float copy[TILE], weight[TILE];
    const float *x;
    struct sums s = {0};
    for (uint32_t at = 0, n; (n = next_tile(c, at, copy, &x)) > 0; at += n) {
        c->ops->exp_shifted(weight, x, n, c->max, c->scale);
        add_weights(&s, x, weight, n, (double)c->max, (double)c->scale);
    }
    struct spread out = {.n = s.n, .sum = fold(&s.first)};
    out.mean_y = fold(&s.second) / out.sum;
    return out;
}

void chain_moments(struct chain *c, double *mean, double *variance) {
    float copy[TILE];
    const float *x;
    struct sums s = {0}, squares = {0};
    for (uint32_t at = 0, n; (n = next_tile(c, at, copy, &x)) > 0; at += n) add_values(&s, x, n);
    *mean = fold(&s.first) / s.n;
    for (uint32_t at = 0, n; (n = next_tile(c, at, copy, &x)) > 0; at += n) add_squares(&squares, x, n, *mean);
    *variance = fold(&squares.first) / s.n;
}
