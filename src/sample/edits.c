/* Edits of a row of logits (edits.h). Pure functions over the caller's memory; called on the backend's team threads. */
#include "sample/edits.h"

#include <float.h>
#include <math.h>

uint32_t edits_index(const struct edits *e, int32_t id) {
    uint32_t low = 0, high = e->logits->n;
    if (!e->allowed) return (uint32_t)id < high ? (uint32_t)id : UINT32_MAX;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (e->allowed[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < e->logits->n && e->allowed[low] == id ? low : UINT32_MAX;
}

static void set(struct edits *e, uint32_t index, float x) {
    const struct logits *l = e->logits;
    uint32_t span = index / LOGITS_SPAN;
    float old = l->x[index], peak = l->peaks[span];
    if (old == -INFINITY) return;
    e->done[e->n++] = (struct edit){index, old};
    l->x[index] = x;
    if (x >= peak)
        l->peaks[span] = x;
    else if (old == peak)
        logits_peaks(e->ops, l->x, l->n, span, span + 1, l->peaks);
}

void edits_set(struct edits *e, uint32_t index, float x) {
    set(e, index, x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x);
}

void edits_forbid(struct edits *e, uint32_t index) { set(e, index, -INFINITY); }

float edits_was(const struct edits *e, uint32_t index) {
    for (uint32_t i = 0; i < e->n; i++)
        if (e->done[i].index == index) return e->done[i].x;
    return e->logits->x[index];
}
