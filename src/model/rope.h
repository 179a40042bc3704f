/* Rotation frequencies of a rope table. */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "base/err.h"
#include "model/spec.h"

/* Bounds that hold position * frequency below 2^30, where fmath_sincos ends, for every position below
 * SPEC_CONTEXT_MAX. */
enum { ROPE_FREQUENCY_MAX = 64 };
#define ROPE_BASE_MAX   1e15
#define ROPE_FACTOR_MAX 1e6

/* Computes the table; out->frequency is mem_alloc'ed. E_FILE if a factor of the file leads out of bounds. */
int rope_make(const struct spec_rope *rope, struct program_rope *out, cohort_error *err);

#endif
