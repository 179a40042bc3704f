/* The candidates of a draw (chain.h). Pure functions over the caller's memory; called on the backend's team threads. */
#include "sample/chain.h"

#include <assert.h>
#include <stdlib.h>

void chain_init(struct chain *c, const struct vecops *ops, const struct logits *logits, float max, uint32_t *ids,
                const struct sample_params *params, uint64_t position) {
    c->ops = ops;
    c->logits = logits;
    c->params = params;
    c->position = position;
    c->ids = ids;
    order_init(&c->order, ops, logits, max, ids);
    c->low = 0;
    c->end = logits->n;
    c->max = max;
    c->scale = 1;
    c->keep = params->asked.min_keep > 1 ? params->asked.min_keep : 1;
    c->whole = 1;
    c->listed = 0;
}

int chain_at(struct chain *c, uint32_t rank, uint32_t *id) {
    if (!c->listed) return order_at(&c->order, rank, id);
    if (rank >= c->end) return 0;
    *id = c->ids[rank];
    return 1;
}

void chain_read(struct chain *c, uint32_t rank, struct chain_block *out) {
    out->n = 0;
    while (out->n < CHAIN_BLOCK && rank + out->n < c->end && chain_at(c, rank + out->n, &out->id[out->n])) {
        out->weight[out->n] = c->logits->x[out->id[out->n]];
        out->n++;
    }
    c->ops->exp_shifted(out->weight, out->weight, out->n, c->max, c->scale);
}

double chain_sum(struct chain *c) {
    if (c->whole && c->low == 0) return c->ops->sum_exp(c->logits->x, c->logits->n, c->max, c->scale);
    if (c->whole) return chain_spread(c).sum;
    struct chain_block b;
    double sum = 0;
    for (uint32_t rank = c->low; rank < c->end; rank += b.n) {
        chain_read(c, rank, &b);
        for (uint32_t i = 0; i < b.n; i++) sum += (double)b.weight[i];
        if (b.n == 0) break;
    }
    return sum;
}

void chain_cut(struct chain *c, uint32_t low, uint32_t end) {
    assert(low >= c->low && low < end && end <= c->end);
    c->whole = 0;
    c->end = end;
    chain_drop(c, low);
}

void chain_drop(struct chain *c, uint32_t low) {
    if (low == c->low) return;
    int found = chain_at(c, low, &c->first);
    assert(found);
    (void)found;
    c->max = c->logits->x[c->first];
    c->low = low;
}

void chain_cut_below(struct chain *c, float floor) {
    uint32_t rank = c->low, id;
    while (rank < c->end && chain_at(c, rank, &id) && (c->logits->x[id] >= floor || rank - c->low < c->keep)) rank++;
    chain_cut(c, c->low, rank);
}

void chain_count(struct chain *c) {
    uint32_t rank = c->low, id;
    if (c->listed) return;
    while (rank < c->end && chain_at(c, rank, &id)) rank++;
    c->end = rank;
}

void chain_list(struct chain *c) {
    assert(c->order.base == 0);
    chain_count(c); /* what was taken from the order lies in its memory by rank */
    c->whole = 0;
    c->listed = 1;
}

static int by_logit(const void *a, const void *b, void *logits) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const float *x = logits;
    if (x[i] != x[j]) return x[i] > x[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

void chain_relist(struct chain *c) {
    assert(c->listed);
    qsort_r(c->ids + c->low, c->end - c->low, sizeof(*c->ids), by_logit, c->logits->x);
    c->max = c->logits->x[c->ids[c->low]];
}

uint32_t chain_pick(struct chain *c, double target) {
    struct chain_block b;
    double sum = 0;
    uint32_t last = 0;
    for (uint32_t rank = c->low; rank < c->end; rank += b.n) {
        chain_read(c, rank, &b);
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
