/* Rotation frequencies, in double and by our own functions only (base/fmath.h), so that their bits are the same
 * everywhere.
 *
 * Pair i of a plain table turns by base^(-i / pairs) per position. Stretching a trained context divides frequencies:
 * all of them (LINEAR), each by a number of its own from the file (factors), or the slow ones fully and the fast ones
 * not at all with a ramp between (YARN, Peng et al. 2023). */
#include "model/rope.h"

#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/mem.h"

/* The pair (as a fraction) that makes `turns` turns in the original context: where original * base^(-i / pairs) is
 * 2 pi * turns. */
static double pair_of_turns(const struct spec_rope *rope, double turns) {
    const double two_pi = 6.283185307179586477;
    double ratio = (double)rope->original_context / (turns * two_pi);
    return (double)rope->pairs * fmath_log(ratio) / fmath_log(rope->base);
}

/* How much of pair i's own frequency stays (1) or is divided by the factor (0). The ends of the ramp are rounded
 * outwards to whole pairs and kept inside the head, as published. */
static double yarn_kept(const struct spec_rope *rope, uint32_t i) {
    double low = floor(pair_of_turns(rope, rope->beta_fast)), high = ceil(pair_of_turns(rope, rope->beta_slow));
    double last = 2 * (double)rope->pairs - 1;
    if (low < 0) low = 0;
    if (high > last) high = last;
    double span = high - low;
    if (span < 0.001) span = 0.001;
    double x = ((double)i - low) / span;
    return 1 - (x < 0 ? 0 : x > 1 ? 1 : x);
}

static double frequency_of(const struct spec_rope *rope, uint32_t i) {
    double own = fmath_pow(rope->base, -(double)i / (double)rope->pairs);
    if (rope->factors) {
        float divisor;
        memcpy(&divisor, (const char *)rope->factors->data + i * sizeof divisor, sizeof divisor);
        own /= (double)divisor;
    }
    switch (rope->scaling) {
    case SPEC_ROPE_PLAIN:
        return own;
    case SPEC_ROPE_LINEAR:
        return own / rope->factor;
    case SPEC_ROPE_YARN:
        break;
    }
    double kept = yarn_kept(rope, i);
    return own / rope->factor * (1 - kept) + own * kept;
}

int rope_make(const struct spec_rope *rope, struct program_rope *out, cohort_error *err) {
    *out = (struct program_rope){
        .pairs = rope->pairs, .interleaved = rope->interleaved, .magnitude = (float)rope->magnitude};
    out->frequency = mem_alloc(rope->pairs, sizeof *out->frequency);
    if (!out->frequency) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %u rope frequencies", rope->pairs);
    for (uint32_t i = 0; i < rope->pairs; i++) {
        double f = frequency_of(rope, i);
        if (!(f >= 0 && f <= ROPE_FREQUENCY_MAX))
            return err_set(err, COHORT_E_FILE, rope->factors ? rope->factors->name : "rope",
                           "rope frequency %u is %g, allowed is 0 to %d", i, f, ROPE_FREQUENCY_MAX);
        out->frequency[i] = f;
    }
    return 0;
}
