/* Lazy descending order (order.h). Pure functions over the caller's memory; called on the backend's team threads. */
#include "sample/order.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* Language models rarely have more than some hundred candidates within the first band. */
static const float first_step = 4, least_step = 1.0f / 64, most_step = 0x1p120f;
enum {
    BUCKET_SIZE = 16,   /* wanted */
    BUCKETS_FROM = 128, /* smaller bands are one heap */
    BAND_LEAST = 1024   /* smaller bands are not split */
};

static int before(const struct order *o, uint32_t a, uint32_t b) {
    float x = o->x[a], y = o->x[b];
    return x != y ? x > y : a < b;
}

/* Heap element j lies at ids[heap - 1 - j], so that the heap shrinks from the front and leaves the sorted ids there. */
static void sift_down(struct order *o, uint32_t j) {
    uint32_t *root = o->ids + o->heap - 1;
    uint32_t size = o->heap - o->taken;
    uint32_t id = root[-(int64_t)j];
    for (;;) {
        uint32_t child = 2 * j + 1;
        if (child >= size) break;
        if (child + 1 < size && before(o, root[-(int64_t)child - 1], root[-(int64_t)child])) child++;
        if (!before(o, root[-(int64_t)child], id)) break;
        root[-(int64_t)j] = root[-(int64_t)child];
        j = child;
    }
    root[-(int64_t)j] = id;
}

static void heapify(struct order *o, uint32_t end) {
    o->heap = end;
    for (uint32_t j = (end - o->taken) / 2; j-- > 0;) sift_down(o, j);
}

static void pop(struct order *o) {
    uint32_t best = o->ids[o->heap - 1];
    o->ids[o->heap - 1] = o->ids[o->taken]; /* the last leaf becomes the root */
    o->taken++;
    if (o->taken < o->heap) sift_down(o, 0);
    o->ids[o->taken - 1] = best;
}

/* Puts the candidates in [floor, o->floor) behind those taken, unless they are more than `most`; returns how many there
 * are. */
static uint32_t collect(struct order *o, float floor, uint32_t most) {
    uint32_t *to = o->ids + o->taken, room = o->n - o->taken, kept = 0;
    uint32_t total = logits_at_least(o->ops, o->logits, floor, to, room);
    if (total - o->seen > most || o->seen == 0) return total - o->seen;
    if (total <= room) {
        for (uint32_t i = 0; i < total; i++)
            if (o->x[to[i]] < o->floor) to[kept++] = to[i];
    } else { /* not enough room for those that are known already */
        for (uint32_t i = 0; i < o->n; i++)
            if (o->x[i] < o->floor && o->x[i] >= floor) to[kept++] = i;
    }
    assert(kept == total - o->seen);
    return kept;
}

/* Cuts ids[taken, end), with logits from `low` to `high`, into buckets of falling logits. 0 if that cannot be done. */
static int cut(struct order *o, float low, float high) {
    uint32_t m = o->end - o->taken;
    uint32_t buckets = m / BUCKET_SIZE < ORDER_BUCKETS ? m / BUCKET_SIZE : ORDER_BUCKETS;
    float scale = (float)buckets / (high - low);
    if (m < BUCKETS_FROM || m > o->n - o->end || !(scale > 0 && scale <= FLT_MAX)) return 0;
    uint32_t *from = o->ids + o->taken, *to = o->ids + o->end, at = 0;
#define BUCKET_OF(id)                                                                                                  \
    ((high - o->x[id]) * scale < (float)(buckets - 1) ? (uint32_t)((high - o->x[id]) * scale) : buckets - 1)
    memset(o->bucket_end, 0, buckets * sizeof(o->bucket_end[0]));
    for (uint32_t i = 0; i < m; i++) o->bucket_end[BUCKET_OF(from[i])]++;
    for (uint32_t b = 0; b < buckets; b++) {
        uint32_t size = o->bucket_end[b];
        o->bucket_end[b] = at;
        at += size;
    }
    for (uint32_t i = 0; i < m; i++) to[o->bucket_end[BUCKET_OF(from[i])]++] = from[i];
#undef BUCKET_OF
    memcpy(from, to, m * sizeof(*to));
    for (uint32_t b = 0; b < buckets; b++) o->bucket_end[b] += o->taken;
    o->bucket = 0;
    o->buckets = buckets;
    o->heap = o->taken;
    return 1;
}

/* Makes ids[taken, end) ready to be popped. */
static void arrange(struct order *o) {
    float low = INFINITY, high = -INFINITY;
    for (uint32_t i = o->taken; i < o->end; i++) {
        float x = o->x[o->ids[i]];
        if (x < low) low = x;
        if (x > high) high = x;
    }
    o->bucket = o->buckets = 0;
    if (low == high)
        o->taken = o->heap = o->end; /* equals: they were collected by ascending id */
    else if (!cut(o, low, high))
        heapify(o, o->end);
}

/* Finds the next band's floor and collects it. Its depth follows from how many candidates the one before had: neither a
 * whole flat row at once, nor many passes for a few. */
static uint32_t collect_next(struct order *o, float *floor) {
    uint32_t most = o->n / 4 > BAND_LEAST ? o->n / 4 : BAND_LEAST;
    for (int split = 0;;) {
        *floor = o->max - (o->depth + o->step);
        if (!(*floor >= -FLT_MAX)) *floor = -FLT_MAX;
        if (o->step <= least_step) most = o->n;
        uint32_t found = collect(o, *floor, most);
        if (found > most) {
            o->step /= 2;
            split = 1;
        } else if (found == 0 && split) { /* too many, or none: floats are no finer here */
            o->step *= 2;
            most = o->n;
        } else {
            return found;
        }
    }
}

static void next_band(struct order *o) {
    float floor;
    if (o->forget) {
        o->base += o->taken;
        o->taken = 0;
    }
    uint32_t found = collect_next(o, &floor);
    o->depth += o->step;
    o->floor = floor;
    o->seen += found;
    o->end = o->taken + found;
    o->last = floor == -FLT_MAX;
    if (found < o->n / 64 || found == 0) o->step *= found ? 2 : 16;
    if (o->step > most_step) o->step = most_step;
    if (found)
        arrange(o);
    else
        o->heap = o->taken;
}

void order_init(struct order *o, const struct vecops *ops, const struct logits *logits, float max, uint32_t *ids) {
    assert(logits->n > 0 && max >= -FLT_MAX && max <= FLT_MAX);
    o->ops = ops;
    o->logits = logits;
    o->x = logits->x;
    o->n = logits->n;
    o->max = max;
    o->ids = ids;
    o->base = o->taken = o->heap = o->end = o->seen = 0;
    o->bucket = o->buckets = 0;
    o->floor = INFINITY;
    o->depth = 0;
    o->step = first_step;
    o->forget = o->last = 0;
}

int order_at(struct order *o, uint32_t rank, uint32_t *id) {
    assert(rank >= o->base && rank <= o->base + o->taken);
    while (rank == o->base + o->taken) {
        if (o->taken < o->heap)
            pop(o);
        else if (o->bucket < o->buckets)
            heapify(o, o->bucket_end[o->bucket++]);
        else if (!o->last)
            next_band(o);
        else
            return 0;
    }
    *id = o->ids[rank - o->base];
    return 1;
}
