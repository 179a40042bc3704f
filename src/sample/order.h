/* The candidates of a logit row in (logit descending, id ascending) order, found lazily: bands of logits below the
 * maximum are collected one after the other, a large band is cut into buckets, and inside a bucket a heap gives the
 * next best. Whoever needs only the first few pays for a pass or two over the row. The order is the same whatever the
 * bands are. */
#ifndef SAMPLE_ORDER_H
#define SAMPLE_ORDER_H

#include <stdint.h>

#include "base/logits.h"

enum { ORDER_BUCKETS = 1024 };

/* ids: | final order | heap, its root last | later buckets |
 *      0           taken                 heap             end   */
struct order {
    const struct vecops *ops;
    const struct logits *logits;
    const float *x; /* theirs */
    uint32_t n;
    float max;     /* largest of x, finite */
    uint32_t *ids; /* room for n */
    uint32_t base; /* rank of ids[0]: lower ranks are forgotten */
    uint32_t taken, heap, end;
    uint32_t seen; /* candidates collected so far: every x >= floor */
    float floor;
    float depth, step; /* the last band ended `depth` below max; the next is `step` deep */
    int forget;        /* each rank is asked for once only: their room may be used again */
    int last;          /* nothing is left to collect */
    uint32_t bucket, buckets;
    uint32_t bucket_end[ORDER_BUCKETS];
};

/* `ids` is memory for as many ids as there are logits. Every one of those is a number or an infinity, and `max` is
 * finite. */
void order_init(struct order *o, const struct vecops *ops, const struct logits *logits, float max, uint32_t *ids);
/* Candidate number `rank` (0: the best). A rank is asked for only after all before it. 0 if there are not so many;
 * logits of minus infinity are no candidates. */
int order_at(struct order *o, uint32_t rank, uint32_t *id);

#endif
