/* The candidates of a logit row in (logit descending, id ascending) order, found lazily: bands of logits below the
 * maximum are collected one after the other, and inside a band a heap gives the next best. Whoever needs only the first
 * few pays for one pass over the row. The order is the same whatever the bands are. */
#ifndef SAMPLE_ORDER_H
#define SAMPLE_ORDER_H

#include <stdint.h>

#include "base/vecops.h"

struct order {
    const struct vecops *ops;
    const float *x;
    uint32_t n;
    float max;     /* largest of x, finite */
    uint32_t *ids; /* n: [0, taken) in final order, [taken, end) a heap whose root is at end - 1 */
    uint32_t taken, end;
    uint32_t bands; /* collected so far */
    float floor;    /* every x >= floor is in ids */
};

/* `ids` is memory for n ids. Every value of x is a number or an infinity, and `max` is finite. */
void order_init(struct order *o, const struct vecops *ops, const float *x, uint32_t n, float max, uint32_t *ids);
/* Candidate number `rank` (0: the best), which is at most `taken`: ranks are asked for one after the other. 0 if there
 * are not so many; logits of minus infinity are no candidates. */
int order_at(struct order *o, uint32_t rank, uint32_t *id);

#endif
