/* Everything but matrix products and attention in plain C: docs/NUMERICS.md, operation by operation. It defines the
 * bits of every other level and runs on any CPU. Reentrant. */
#include <math.h>
#include <stddef.h>

#include "backend/cpu/attend_ref.h"
#include "backend/cpu/codes.h"
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

static struct code_block block_make(enum state_form form, const float *x, uint32_t n) {
    struct code_block b = {{0}, 0};
    float low = 0, high = 0, inverse;
    int nan = 0;
    for (uint32_t i = 0; i < n; i++) {
        nan |= isnan(x[i]);
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
    }
    b.scale = codes_scale(form, low, high, nan, &inverse);
    for (uint32_t i = 0; i < n && inverse != 0; i++) {
        float c = rintf(x[i] * inverse);
        c = c < codes_lowest(form) ? codes_lowest(form) : c;
        b.codes[i] = (int8_t)(c > codes_highest(form) ? codes_highest(form) : c);
    }
    return b;
}

static void store_keys(const struct page_shape *s, char *keys, uint32_t slot, const float *key) {
    if (s->key_form == FORM_F16) {
        uint16_t *halves = (uint16_t *)(void *)keys;
        for (uint32_t d = 0; d < s->key_width; d++) halves[(size_t)d * PAGE + slot] = half_from_float(key[d]);
        return;
    }
    for (uint32_t first = 0, n; first < s->key_width; first += n) {
        float x[ROTATE_MAX];
        n = codes_run(s->key_width - first);
        memcpy(x, key + first, n * sizeof *x);
        for (uint32_t i = 0; i < n && s->balance; i++) x[i] *= s->balance[first + i];
        rotate_ref(x, n);
        for (uint32_t d = 0; d < n; d += BLOCK) {
            struct code_block b = block_make(s->key_form, x + d, n - d < BLOCK ? n - d : BLOCK);
            codes_put_keys(s, keys, slot, first + d, &b);
        }
    }
}

static void store_values(const struct page_shape *s, char *values, uint32_t slot, const float *value) {
    uint32_t width = s->value_width;
    if (s->value_form == FORM_F16) {
        uint16_t *halves = (uint16_t *)(void *)values + (size_t)slot * width;
        for (uint32_t d = 0; d < width; d++) halves[d] = half_from_float(value[d]);
        return;
    }
    for (uint32_t d = 0; d < width; d += BLOCK) {
        struct code_block b = block_make(s->value_form, value + d, width - d < BLOCK ? width - d : BLOCK);
        codes_put_values(s, values, slot, d, &b);
    }
}

static void store(const struct page_shape *s, void *page, uint32_t slot, const float *key, const float *value) {
    store_keys(s, page, slot, key);
    store_values(s, (char *)page + page_keys_bytes(s->key_form, s->key_width), slot, value);
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
