/* The vector operations of base/vecops.h, written as plainly as possible, for tests that must not depend on a backend.
 * exp is the rounded double one, so values differ from a backend's in the last bit. */
#ifndef TESTS_VECOPS_NAIVE_H
#define TESTS_VECOPS_NAIVE_H

#include <math.h>

#include "base/fmath.h"
#include "base/vecops.h"

static float naive_peak(const float *x, uint32_t n) {
    float largest = -INFINITY;
    for (uint32_t i = 0; i < n; i++) largest = isnan(largest) || isnan(x[i]) ? NAN : fmaxf(largest, x[i]);
    return largest;
}

static uint32_t naive_at_least(const float *x, uint32_t n, float limit, uint32_t *out, uint32_t capacity) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(x[i] >= limit)) continue;
        if (found < capacity) out[found] = i;
        found++;
    }
    return found;
}

static float naive_exp1(float x, float shift, float scale) {
    float d = x - shift;
    d *= scale;
    return d < -103.0f ? 0.0f : (float)fmath_exp((double)d);
}

static void naive_exp_shifted(float *out, const float *x, uint32_t n, float shift, float scale) {
    for (uint32_t i = 0; i < n; i++) out[i] = naive_exp1(x[i], shift, scale);
}

static double naive_tiles(const float *x, uint32_t n, int exponentials, float shift, float scale) {
    double sum = 0;
    for (uint32_t tile = 0; tile < n; tile += 4096) {
        float lane[16] = {0};
        for (uint32_t i = 0; i < 4096 && tile + i < n; i++)
            lane[i % 16] += exponentials ? naive_exp1(x[tile + i], shift, scale) : x[tile + i];
        for (int width = 8; width > 0; width /= 2)
            for (int l = 0; l < width; l++) lane[l] += lane[l + width];
        sum += (double)lane[0];
    }
    return sum;
}

static double naive_sum(const float *x, uint32_t n) { return naive_tiles(x, n, 0, 0, 0); }
static double naive_sum_exp(const float *x, uint32_t n, float shift, float scale) {
    return naive_tiles(x, n, 1, shift, scale);
}

static const struct vecops vecops_naive = {naive_peak, naive_at_least, naive_exp_shifted, naive_sum, naive_sum_exp};

#endif
