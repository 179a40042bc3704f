/* One row of logits, with the largest of every span of them: whoever makes the row writes those down while the span is
 * in its cache, so that whoever looks for the best few reads only the spans that can hold them.
 *
 * Plain data; any thread. Who draws from a row changes it, values and peaks together, and nobody reads it after. */
#ifndef BASE_LOGITS_H
#define BASE_LOGITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/vecops.h"

enum { LOGITS_SPAN = 256 };

struct logits {
    float *x; /* n values */
    uint32_t n;
    float *peaks; /* logits_spans(n) values: the largest of x[i * LOGITS_SPAN ...], NaN if one of them is NaN */
};

static inline uint32_t logits_spans(uint32_t n) { return n / LOGITS_SPAN + (n % LOGITS_SPAN > 0); }

/* Writes the peaks of spans [first, end). */
void logits_peaks(const struct vecops *ops, const float *x, uint32_t n, uint32_t first, uint32_t end, float *peaks);
/* Lowest index of the largest value; -1: NaN anywhere, or n == 0. Infinities compare as usual. */
int64_t logits_best(const struct vecops *ops, const struct logits *l);
/* Appends the indices i (ascending) with x[i] >= limit to out, at most `capacity`; returns how many there are in all.
 */
uint32_t logits_at_least(const struct vecops *ops, const struct logits *l, float limit, uint32_t *out,
                         uint32_t capacity);

#endif
