/* Norm, rotation, elementwise, state and whole-vocabulary kernels over sixteen lanes: the body of vector_LEVEL.c, which
 * includes its lanes_LEVEL.h first. Each kernel repeats the operations of vector_ref.c in its lanes; only what has no
 * order (maxima, searches) is arranged freely. */
#ifndef BACKEND_CPU_VECTOR_LANES_H
#define BACKEND_CPU_VECTOR_LANES_H

#include <math.h>

#include "backend/cpu/codes.h"
#include "backend/cpu/exp_constants.h"
#include "backend/cpu/kernels.h"

LANES_INLINE lanes lanes_exp(lanes x) {
    lanes t = lanes_fma(x, lanes_splat(EXP_LOG2E), lanes_splat(EXP_ROUND));
    lanes n = lanes_sub(t, lanes_splat(EXP_ROUND));
    lanes r = lanes_fma(n, lanes_splat(-EXP_LN2_HIGH), x);
    r = lanes_fma(n, lanes_splat(-EXP_LN2_LOW), r);
    lanes p = lanes_splat(EXP_C6);
    p = lanes_fma(p, r, lanes_splat(EXP_C5));
    p = lanes_fma(p, r, lanes_splat(EXP_C4));
    p = lanes_fma(p, r, lanes_splat(EXP_C3));
    p = lanes_fma(p, r, lanes_splat(EXP_C2));
    p = lanes_fma(p, r, lanes_splat(1));
    p = lanes_fma(p, r, lanes_splat(1));
    p = lanes_scale(p, t);
    p = lanes_keep(lanes_at_most(lanes_splat(EXP_LOWEST), x), p);
    return lanes_pick(lanes_at_most(x, lanes_splat(EXP_HIGHEST)), p, lanes_add(x, lanes_splat(INFINITY)));
}

LANES_INLINE lanes lanes_negate(lanes x) { return lanes_sub(lanes_splat(-0.0f), x); }

LANES_INLINE lanes lanes_tanh(lanes u) {
    lanes v = lanes_min(lanes_splat(TANH_LIMIT), u), e = lanes_exp(lanes_add(v, v)), one = lanes_splat(1);
    return lanes_div(lanes_sub(e, one), lanes_add(e, one));
}

LANES_INLINE lanes lanes_softcap(lanes x, lanes cap) { return lanes_mul(cap, lanes_tanh(lanes_div(x, cap))); }

LANES_INLINE lanes lanes_silu(lanes x) {
    lanes e = lanes_exp(lanes_negate(x));
    return lanes_div(x, lanes_add(lanes_splat(1), e));
}

LANES_INLINE lanes lanes_gelu_tanh(lanes x) {
    lanes square = lanes_mul(lanes_mul(lanes_splat(GELU_CUBIC), x), x);
    lanes e = lanes_exp(lanes_mul(lanes_splat(GELU_SCALE), lanes_fma(square, x, x)));
    return lanes_div(x, lanes_add(lanes_splat(1), e));
}

LANES_INLINE lanes lanes_sigmoid(lanes x) {
    return lanes_div(lanes_splat(1), lanes_add(lanes_splat(1), lanes_exp(lanes_negate(x))));
}

/* Absent lanes are +0 and add nothing: a sum that began at +0 is never -0. */
LANES_INLINE float sum_of_squares(const float *x, uint32_t n) {
    lanes squares = lanes_splat(0);
    uint32_t i = 0;
    for (; n - i >= 16; i += 16) {
        lanes v = lanes_load(x + i);
        squares = lanes_fma(v, v, squares);
    }
    if (i < n) {
        lanes v = lanes_load_first(x + i, (int)(n - i));
        squares = lanes_fma(v, v, squares);
    }
    return lanes_sum(squares);
}

static void norm(float *y, const float *x, const float *weight, uint32_t n, float eps) {
    float mean = sum_of_squares(x, n) / (float)n;
    lanes r = lanes_splat(1 / sqrtf(mean + eps));
    uint32_t i;
    for (i = 0; n - i >= 16; i += 16)
        lanes_store(y + i, lanes_mul(lanes_mul(lanes_load(x + i), r), lanes_load(weight + i)));
    if (i < n) {
        int rest = (int)(n - i);
        lanes v = lanes_mul(lanes_load_first(x + i, rest), r);
        lanes_store_first(y + i, lanes_mul(v, lanes_load_first(weight + i, rest)), rest);
    }
}

LANES_INLINE void rotate(lanes *x0, lanes *x1, lanes c, lanes s) {
    lanes y0 = lanes_fma(*x0, c, lanes_negate(lanes_mul(*x1, s)));
    *x1 = lanes_fma(*x0, s, lanes_mul(*x1, c));
    *x0 = y0;
}

static void rope_halves(float *x, const float *c, const float *s, uint32_t pairs) {
    uint32_t i = 0;
    for (; pairs - i >= 16; i += 16) {
        lanes x0 = lanes_load(x + i), x1 = lanes_load(x + pairs + i);
        rotate(&x0, &x1, lanes_load(c + i), lanes_load(s + i));
        lanes_store(x + i, x0);
        lanes_store(x + pairs + i, x1);
    }
    if (i < pairs) {
        int rest = (int)(pairs - i);
        lanes x0 = lanes_load_first(x + i, rest), x1 = lanes_load_first(x + pairs + i, rest);
        rotate(&x0, &x1, lanes_load_first(c + i, rest), lanes_load_first(s + i, rest));
        lanes_store_first(x + i, x0, rest);
        lanes_store_first(x + pairs + i, x1, rest);
    }
}

static void rope_interleaved(float *x, const float *c, const float *s, uint32_t pairs) {
    uint32_t i = 0;
    lanes x0, x1;
    for (; pairs - i >= 16; i += 16) {
        lanes_load_pairs(x + 2 * i, &x0, &x1);
        rotate(&x0, &x1, lanes_load(c + i), lanes_load(s + i));
        lanes_store_pairs(x + 2 * i, x0, x1);
    }
    if (i < pairs) {
        int rest = (int)(pairs - i);
        float last[32] = {0};
        memcpy(last, x + 2 * i, sizeof(float) * 2 * (size_t)rest);
        lanes_load_pairs(last, &x0, &x1);
        rotate(&x0, &x1, lanes_load_first(c + i, rest), lanes_load_first(s + i, rest));
        lanes_store_pairs(last, x0, x1);
        memcpy(x + 2 * i, last, sizeof(float) * 2 * (size_t)rest);
    }
}

static void rope(float *x, uint32_t heads, uint32_t width, const float *cs, uint32_t pairs, int interleaved) {
    for (uint32_t h = 0; h < heads; h++) {
        if (interleaved)
            rope_interleaved(x + (size_t)h * width, cs, cs + pairs, pairs);
        else
            rope_halves(x + (size_t)h * width, cs, cs + pairs, pairs);
    }
}

/* Runs `expression` of lanes v (from x) and w (from z) over n values and stores it in y. */
#define OVER_LANES(y, x, z, n, expression)                                                                             \
    do {                                                                                                               \
        uint32_t at = 0;                                                                                               \
        lanes v, w;                                                                                                    \
        for (; (n)-at >= 16; at += 16) {                                                                               \
            v = lanes_load((x) + at), w = lanes_load((z) + at);                                                        \
            (void)w;                                                                                                   \
            lanes_store((y) + at, expression);                                                                         \
        }                                                                                                              \
        if (at < (n)) {                                                                                                \
            v = lanes_load_first((x) + at, (int)((n)-at)), w = lanes_load_first((z) + at, (int)((n)-at));              \
            (void)w;                                                                                                   \
            lanes_store_first((y) + at, expression, (int)((n)-at));                                                    \
        }                                                                                                              \
    } while (0)

static void glu(float *y, const float *a, const float *b, uint32_t n, enum program_act act) {
    switch (act) {
    case ACT_SILU:
        OVER_LANES(y, a, b, n, lanes_mul(lanes_silu(v), w));
        break;
    case ACT_GELU_TANH:
        OVER_LANES(y, a, b, n, lanes_mul(lanes_gelu_tanh(v), w));
        break;
    case ACT_SIGMOID:
        OVER_LANES(y, a, b, n, lanes_mul(lanes_sigmoid(v), w));
        break;
    case ACT_NONE:
        OVER_LANES(y, a, b, n, lanes_mul(v, w));
        break;
    }
}

static void add(float *y, const float *x, uint32_t n) { OVER_LANES(y, y, x, n, lanes_add(v, w)); }

static void softcap(float *x, uint32_t n, float cap) { OVER_LANES(x, x, x, n, lanes_softcap(v, lanes_splat(cap))); }

static void exp_shifted(float *out, const float *x, uint32_t n, float shift, float scale) {
    OVER_LANES(out, x, x, n, lanes_exp(lanes_mul(lanes_splat(scale), lanes_sub(v, lanes_splat(shift)))));
}

/* docs/NUMERICS.md, State: stages of sums and differences of neighbours. */
static void rotate_part(float *x, uint32_t n) {
    float room[ROTATE_MAX], *from = x, *to = room;
    for (uint32_t stage = 1; stage < n; stage *= 2) {
        uint32_t half = n / 2, i = 0;
        for (; half - i >= 16; i += 16) {
            lanes even, odd;
            lanes_load_pairs(from + 2 * i, &even, &odd);
            lanes_store(to + i, lanes_add(even, odd));
            lanes_store(to + half + i, lanes_sub(even, odd));
        }
        for (; i < half; i++) {
            to[i] = from[2 * i] + from[2 * i + 1];
            to[half + i] = from[2 * i] - from[2 * i + 1];
        }
        float *swap = from;
        from = to, to = swap;
    }
    if (from != x) memcpy(x, from, n * sizeof *x);
}

static void rotate_key(float *x, uint32_t width) {
    for (uint32_t n; width > 0; x += n, width -= n) rotate_part(x, n = rotated_part(width));
}

static void rotate_query(float *x, uint32_t width, const float *balance) {
    if (balance) OVER_LANES(x, x, balance, width, lanes_div(v, w));
    for (uint32_t n; width > 0; x += n, width -= n) {
        rotate_part(x, n = rotated_part(width));
        OVER_LANES(x, x, x, n, lanes_mul(v, lanes_splat(1 / (float)n)));
    }
}

/* Columns behind the n-th are +0, which changes no extreme. */
static struct code_block block_make(enum state_form form, const float *x, uint32_t n) {
    struct code_block b = {{0}, 0};
    lanes first = n < 16 ? lanes_load_first(x, (int)n) : lanes_load(x);
    lanes second = n == BLOCK ? lanes_load(x + 16) : n > 16 ? lanes_load_first(x + 16, (int)n - 16) : lanes_splat(0);
    int nan = lanes_bits(lanes_unordered(first, second)) != 0;
    float high = 0, low = 0, inverse;
    if (!nan) {
        high = fmaxf(0, lanes_largest(lanes_max(first, second)));
        low = fminf(0, -lanes_largest(lanes_max(lanes_negate(first), lanes_negate(second))));
    }
    b.scale = codes_scale(form, low, high, nan, &inverse);
    if (inverse == 0) return b;
    lanes lowest = lanes_splat(codes_lowest(form)), highest = lanes_splat(codes_highest(form));
    lanes by = lanes_splat(inverse);
    lanes_store_bytes(b.codes, lanes_min(lanes_max(lanes_mul(first, by), lowest), highest));
    lanes_store_bytes(b.codes + 16, lanes_min(lanes_max(lanes_mul(second, by), lowest), highest));
    return b;
}

static void store_keys(const struct page_shape *s, char *page, uint32_t slot, const float *key) {
    if (s->key_form == FORM_F16) {
        uint16_t *keys = (uint16_t *)(void *)page + slot, block[16];
        for (uint32_t d = 0; d < s->key_width; d += 16) {
            uint32_t count = s->key_width - d < 16 ? s->key_width - d : 16;
            lanes_store_half(block, count == 16 ? lanes_load(key + d) : lanes_load_first(key + d, (int)count));
            for (uint32_t i = 0; i < count; i++) keys[(size_t)(d + i) * PAGE] = block[i];
        }
        return;
    }
    for (uint32_t first = 0, n; first < s->key_width; first += n) {
        float x[ROTATE_MAX];
        n = codes_run(s->key_width - first);
        memcpy(x, key + first, n * sizeof *x);
        if (s->balance) OVER_LANES(x, x, s->balance + first, n, lanes_mul(v, w));
        rotate_key(x, n);
        for (uint32_t d = 0; d < n; d += BLOCK) {
            struct code_block b = block_make(s->key_form, x + d, n - d < BLOCK ? n - d : BLOCK);
            codes_put_keys(s, page, slot, first + d, &b);
        }
    }
}

static void store_values(const struct page_shape *s, char *page, uint32_t slot, const float *value) {
    uint32_t width = s->value_width, d = 0;
    if (s->value_form == FORM_F16) {
        uint16_t *values = (uint16_t *)(void *)page + (size_t)slot * width, block[16];
        for (; width - d >= 16; d += 16) lanes_store_half(values + d, lanes_load(value + d));
        if (d < width) {
            lanes_store_half(block, lanes_load_first(value + d, (int)(width - d)));
            memcpy(values + d, block, sizeof(uint16_t) * (width - d));
        }
        return;
    }
    for (; d < width; d += BLOCK) {
        struct code_block b = block_make(s->value_form, value + d, width - d < BLOCK ? width - d : BLOCK);
        codes_put_values(s, page, slot, d, &b);
    }
}

static void store(const struct page_shape *s, void *page, uint32_t slot, const float *key, const float *value) {
    store_keys(s, page, slot, key);
    store_values(s, (char *)page + page_keys_bytes(s->key_form, s->key_width), slot, value);
}

static float peak(const float *x, uint32_t n) {
    float best = -INFINITY;
    uint32_t i = 0;
    if (n >= 64) {
        lanes max[4] = {lanes_load(x), lanes_load(x + 16), lanes_load(x + 32), lanes_load(x + 48)};
        lanes_mask nan = lanes_mask_or(lanes_unordered(max[0], max[1]), lanes_unordered(max[2], max[3]));
        for (i = 64; n - i >= 64; i += 64) {
            lanes v[4] = {lanes_load(x + i), lanes_load(x + i + 16), lanes_load(x + i + 32), lanes_load(x + i + 48)};
            nan = lanes_mask_or(nan, lanes_mask_or(lanes_unordered(v[0], v[1]), lanes_unordered(v[2], v[3])));
            for (int j = 0; j < 4; j++) max[j] = lanes_max(max[j], v[j]);
        }
        if (lanes_bits(nan)) return NAN;
        best = lanes_largest(lanes_max(lanes_max(max[0], max[1]), lanes_max(max[2], max[3])));
    }
    for (; i < n; i++) {
        if (isnan(x[i])) return NAN;
        if (x[i] > best) best = x[i];
    }
    return best;
}

static uint32_t at_least(const float *x, uint32_t n, float limit, uint32_t *out, uint32_t capacity) {
    uint32_t found = 0;
    lanes limits = lanes_splat(limit);
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t bits;
        if (n - i >= 16)
            bits = lanes_bits(lanes_at_most(limits, lanes_load(x + i)));
        else
            bits = lanes_bits(lanes_at_most(limits, lanes_load_first(x + i, (int)(n - i)))) & ((1u << (n - i)) - 1);
        for (; bits; bits &= bits - 1, found++)
            if (found < capacity) out[found] = i + (uint32_t)__builtin_ctz(bits);
    }
    return found;
}

static double sum(const float *x, uint32_t n) {
    double total = 0;
    for (uint32_t at = 0; at < n;) {
        uint32_t end = n - at < TILE_SUM ? n : at + TILE_SUM;
        lanes part = lanes_splat(0);
        for (; end - at >= 16; at += 16) part = lanes_add(part, lanes_load(x + at));
        if (at < end) part = lanes_add(part, lanes_load_first(x + at, (int)(end - at)));
        at = end;
        total += (double)lanes_sum(part);
    }
    return total;
}

static double sum_exp(const float *x, uint32_t n, float shift, float scale) {
    lanes shifts = lanes_splat(shift), scales = lanes_splat(scale);
    double total = 0;
    for (uint32_t at = 0; at < n;) {
        uint32_t end = n - at < TILE_SUM ? n : at + TILE_SUM;
        lanes part = lanes_splat(0);
        for (; end - at >= 16; at += 16)
            part = lanes_add(part, lanes_exp(lanes_mul(scales, lanes_sub(lanes_load(x + at), shifts))));
        if (at < end) {
            int rest = (int)(end - at);
            lanes e = lanes_exp(lanes_mul(scales, lanes_sub(lanes_load_first(x + at, rest), shifts)));
            part = lanes_add(part, lanes_keep(lanes_mask_range(0, rest), e));
        }
        at = end;
        total += (double)lanes_sum(part);
    }
    return total;
}

#endif
