/* Vector operations that the sampler needs over a whole vocabulary, as function pointers: declared here so that
 * `sample` can be handed the backend's versions without knowing the backend. Each is one fixed operation sequence
 * (docs/NUMERICS.md), equal in bits at every CPU level. Reentrant. */
#ifndef BASE_VECOPS_H
#define BASE_VECOPS_H

#include <stdint.h>

struct vecops {
    /* The largest value: NaN if there is a NaN, minus infinity if n == 0. */
    float (*peak)(const float *x, uint32_t n);
    /* Appends the indices i (ascending) with x[i] >= limit to out, at most `capacity`; returns how many there are in
     * all. */
    uint32_t (*at_least)(const float *x, uint32_t n, float limit, uint32_t *out, uint32_t capacity);
    /* out[i] = exp(scale * (x[i] - shift)): the difference, the product and our own exp each rounded once, all fp32.
     * out may be x. */
    void (*exp_shifted)(float *out, const float *x, uint32_t n, float shift, float scale);
    /* Sum of x in fixed tiles of 4,096: inside a tile lane i mod 16 in ascending order, then halving (8, 4, 2, 1); the
     * tiles' fp32 sums are added in ascending order in double. */
    double (*sum)(const float *x, uint32_t n);
    /* As sum over exp_shifted(x), without storing it. */
    double (*sum_exp)(const float *x, uint32_t n, float shift, float scale);
};

#endif
