/* Everything but matrix products and attention in plain C: docs/NUMERICS.md, operation by operation. It defines the
 * bits of every other level and runs on any CPU. Reentrant. */
#include <math.h>
#include <stddef.h>

#include "backend/backend.h"
#include "backend/cpu/attend_ref.h"
#include "backend/cpu/half.h"
#include "backend/cpu/math_ref.h"

static void norm(float *y, const float *x, const float *weight, uint32_t n, float eps) {
    float lane[16] = {0};
    for (uint32_t i = 0; i < n; i++) lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    float mean = lanes_total_ref(lane) / (float)n;
    float r = 1 / sqrtf(mean + eps);
    for (uint32_t i = 0; i < n; i++) y[i] = x[i] * r * weight[i];
}

static void rope(float *x, uint32_t heads, uint32_t width, const float *cs, uint32_t pairs, int interleaved) {
    for (uint32_t h = 0; h < heads; h++, x += width) {
        for (uint32_t i = 0; i < pairs; i++) {
            float *first = interleaved ? x + 2 * i : x + i, *second = interleaved ? first + 1 : first + pairs;
            float c = cs[i], s = cs[pairs + i], x0 = *first, x1 = *second;
            *first = fmaf(x0, c, -(x1 * s));
            *second = fmaf(x0, s, x1 * c);
        }
    }
}

static void glu(float *y, const float *a, const float *b, uint32_t n, enum program_act act) {
    for (uint32_t i = 0; i < n; i++) y[i] = act_ref(a[i], act) * b[i];
}

static void add(float *y, const float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) y[i] += x[i];
}

static void softcap(float *x, uint32_t n, float cap) {
    for (uint32_t i = 0; i < n; i++) x[i] = softcap_ref(x[i], cap);
}

static void store(void *page, uint32_t slot, const float *key, uint32_t key_width, const float *value,
                  uint32_t value_width) {
    uint16_t *keys = page, *values = keys + (size_t)key_width * BACKEND_PAGE_TOKENS;
    for (uint32_t d = 0; d < key_width; d++) keys[(size_t)d * BACKEND_PAGE_TOKENS + slot] = half_from_float(key[d]);
    for (uint32_t d = 0; d < value_width; d++) values[(size_t)slot * value_width + d] = half_from_float(value[d]);
}

static float peak(const float *x, uint32_t n) {
    float largest = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (isnan(x[i])) return x[i];
        if (x[i] > largest) largest = x[i];
    }
    return largest;
}

static uint32_t at_least(const float *x, uint32_t n, float limit, uint32_t *out, uint32_t capacity) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(x[i] >= limit)) continue;
        if (found < capacity) out[found] = i;
        found++;
    }
    return found;
}

static void exp_shifted(float *out, const float *x, uint32_t n, float shift, float scale) {
    for (uint32_t i = 0; i < n; i++) out[i] = exp_ref(scale * (x[i] - shift));
}

static double sum(const float *x, uint32_t n) {
    double total = 0;
    for (uint32_t start = 0, count; start < n; start += count) {
        float lane[16] = {0};
        count = n - start < TILE_SUM ? n - start : TILE_SUM;
        for (uint32_t i = 0; i < count; i++) lane[i % 16] += x[start + i];
        total += (double)lanes_total_ref(lane);
    }
    return total;
}

static double sum_exp(const float *x, uint32_t n, float shift, float scale) {
    double total = 0;
    for (uint32_t start = 0, count; start < n; start += count) {
        float lane[16] = {0};
        count = n - start < TILE_SUM ? n - start : TILE_SUM;
        for (uint32_t i = 0; i < count; i++) lane[i % 16] += exp_ref(scale * (x[start + i] - shift));
        total += (double)lanes_total_ref(lane);
    }
    return total;
}

void kernels_vector_ref(struct kernels *k) {
    k->norm = norm;
    k->rope = rope;
    k->glu = glu;
    k->add = add;
    k->softcap = softcap;
    k->store = store;
    k->attend = attend_ref;
    kernels_recur_ref(k);
    k->vec =
        (struct vecops){.peak = peak, .at_least = at_least, .exp_shifted = exp_shifted, .sum = sum, .sum_exp = sum_exp};
}
