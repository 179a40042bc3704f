/* Rows of logits by spans (logits.h). Pure. */
#include "base/logits.h"

#include <assert.h>

static uint32_t span_length(uint32_t n, uint32_t span) {
    uint32_t from = span * LOGITS_SPAN;
    return n - from < LOGITS_SPAN ? n - from : LOGITS_SPAN;
}

void logits_peaks(const struct vecops *ops, const float *x, uint32_t n, uint32_t first, uint32_t end, float *peaks) {
    for (uint32_t i = first; i < end; i++) peaks[i] = ops->peak(x + (size_t)i * LOGITS_SPAN, span_length(n, i));
}

int64_t logits_best(const struct vecops *ops, const struct logits *l) {
    float best = ops->peak(l->peaks, logits_spans(l->n));
    if (l->n == 0 || best != best) return -1;
    uint32_t span = 0;
    while (l->peaks[span] != best) span++;
    uint32_t i = span * LOGITS_SPAN;
    for (; l->x[i] != best; i++) assert(i + 1 < l->n); /* a peak is one of the span's */
    return i;
}

uint32_t logits_at_least(const struct vecops *ops, const struct logits *l, float limit, uint32_t *out,
                         uint32_t capacity) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < logits_spans(l->n); i++) {
        if (l->peaks[i] < limit) continue;
        uint32_t from = i * LOGITS_SPAN, kept = found < capacity ? found : capacity, room = capacity - kept;
        uint32_t here = ops->at_least(l->x + from, span_length(l->n, i), limit, out + kept, room);
        for (uint32_t j = 0; j < here && j < room; j++) out[kept + j] += from;
        found += here;
    }
    return found;
}
