/* Lazy descending order (order.h). Pure functions over the caller's memory; called on the backend's team threads. */
#include "sample/order.h"

#include <assert.h>
#include <float.h>
#include <math.h>

/* How far below the maximum each band reaches. Language models rarely have more than some hundred candidates in the
 * first. The last band is everything that is finite. */
static const float band_depths[] = {4, 8, 16, 64, 1024, INFINITY};
enum { BANDS = sizeof(band_depths) / sizeof(band_depths[0]) };

static int before(const struct order *o, uint32_t a, uint32_t b) {
    return o->x[a] > o->x[b] || (o->x[a] == o->x[b] && a < b);
}

/* Heap element j lies at ids[end - 1 - j], so that the heap shrinks from the front and leaves the sorted ids there. */
static void sift_down(struct order *o, uint32_t j) {
    uint32_t *root = o->ids + o->end - 1;
    uint32_t size = o->end - o->taken;
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

static void heapify(struct order *o) {
    uint32_t size = o->end - o->taken;
    for (uint32_t j = size / 2; j-- > 0;) sift_down(o, j);
}

/* Adds the next band's ids behind those already taken. */
static void collect_band(struct order *o) {
    float floor = o->max - band_depths[o->bands];
    if (!(floor >= -FLT_MAX)) floor = -FLT_MAX;
    if (o->bands == 0) {
        o->end = o->ops->at_least(o->x, o->n, floor, o->ids, o->n);
    } else {
        for (uint32_t i = 0; i < o->n; i++)
            if (o->x[i] < o->floor && o->x[i] >= floor) o->ids[o->end++] = i;
    }
    assert(o->end <= o->n);
    o->floor = floor;
    o->bands++;
    heapify(o);
}

void order_init(struct order *o, const struct vecops *ops, const float *x, uint32_t n, float max, uint32_t *ids) {
    assert(n > 0 && max >= -FLT_MAX && max <= FLT_MAX);
    *o = (struct order){.ops = ops, .x = x, .n = n, .max = max, .ids = ids, .floor = INFINITY};
}

int order_at(struct order *o, uint32_t rank, uint32_t *id) {
    assert(rank <= o->taken);
    if (rank == o->taken) {
        while (o->taken == o->end) {
            if (o->bands == BANDS) return 0;
            collect_band(o);
        }
        uint32_t best = o->ids[o->end - 1];
        o->ids[o->end - 1] = o->ids[o->taken]; /* the heap's last leaf becomes its root */
        o->taken++;
        if (o->taken < o->end) sift_down(o, 0);
        o->ids[o->taken - 1] = best;
    }
    *id = o->ids[rank];
    return 1;
}
