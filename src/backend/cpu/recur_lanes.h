/* Recurrent layers over sixteen lanes: the end of vector_LEVEL.c, after vector_lanes.h. Lanes are columns of the
 * convolution and values of the delta rule's state; each kernel repeats the operations of recur_ref.c in its lanes. */
#ifndef BACKEND_CPU_RECUR_LANES_H
#define BACKEND_CPU_RECUR_LANES_H

#include <math.h>

#include "backend/cpu/kernels.h"

static void l2_norm(float *y, const float *x, uint32_t n, float eps, float scale) {
    lanes r = lanes_splat(1 / sqrtf(sum_of_squares(x, n) + eps)), scales = lanes_splat(scale);
    OVER_LANES(y, x, x, n, lanes_mul(lanes_mul(v, r), scales));
}

LANES_INLINE lanes lanes_act(lanes x, enum program_act act) {
    switch (act) {
    case ACT_SILU:
        return lanes_silu(x);
    case ACT_GELU_TANH:
        return lanes_gelu_tanh(x);
    case ACT_SIGMOID:
        return lanes_sigmoid(x);
    case ACT_NONE:
        break;
    }
    return x;
}

static void act(float *y, const float *x, uint32_t n, enum program_act act) {
    OVER_LANES(y, x, x, n, lanes_act(v, act));
}

/* Which of two zeros or a NaN the maximum takes does not show: the other part is not 0, or a NaN too. */
LANES_INLINE lanes lanes_softplus(lanes x) {
    static const float terms[LOG1P_COUNT] = LOG1P_TERMS;
    lanes e = lanes_exp(lanes_min(x, lanes_negate(x)));
    lanes s = lanes_div(e, lanes_add(lanes_splat(2), e)), z = lanes_mul(s, s), p = lanes_splat(terms[0]);
    for (int i = 1; i < LOG1P_COUNT; i++) p = lanes_fma(p, z, lanes_splat(terms[i]));
    p = lanes_fma(p, z, lanes_splat(1));
    return lanes_add(lanes_max(x, lanes_splat(0)), lanes_mul(lanes_add(s, s), p));
}

LANES_INLINE lanes lanes_decay(lanes x, lanes rate, lanes bias) {
    return lanes_exp(lanes_mul(rate, lanes_softplus(lanes_add(x, bias))));
}

static void decay(float *y, const float *x, const float *rate, const float *bias, uint32_t n) {
    uint32_t i = 0;
    for (; n - i >= 16; i += 16)
        lanes_store(y + i, lanes_decay(lanes_load(x + i), lanes_load(rate + i), lanes_load(bias + i)));
    if (i == n) return;
    int rest = (int)(n - i);
    lanes v = lanes_load_first(x + i, rest), r = lanes_load_first(rate + i, rest);
    lanes_store_first(y + i, lanes_decay(v, r, lanes_load_first(bias + i, rest)), rest);
}

/* ---- Convolution ---- */

/* The rows that a token's taps lie on, the oldest first; NULL: before the sequence. */
static void conv_rows(const struct conv_args *a, uint32_t t, const float *rows[CONV_TAPS_MAX]) {
    for (uint32_t j = 0; j < a->taps; j++) {
        uint32_t at = t + j, before = a->taps - 1; /* in the tail, with the tokens behind it */
        if (at >= before)
            rows[j] = a->x + (at - before) * a->x_stride;
        else
            rows[j] = a->from ? a->from + at * a->tail_stride : NULL;
    }
}

/* The first `count` of sixteen columns. */
LANES_INLINE void conv_rest(const struct conv_args *a, const float *const rows[], float *y, uint32_t c, int count) {
    lanes sum = lanes_splat(0);
    for (uint32_t j = 0; j < a->taps; j++) {
        lanes x = rows[j] ? lanes_load_first(rows[j] + c, count) : lanes_splat(0);
        sum = lanes_fma(lanes_load_first(a->weight + j * a->weight_stride + c, count), x, sum);
    }
    lanes_store_first(y + c, lanes_act(sum, a->act), count);
}

/* All columns of a token; the rows are all there if `full`. Two lanes at a time, so that one's chain fills the gaps of
 * the other's. */
LANES_INLINE void conv_token(const struct conv_args *a, uint32_t taps, const int full, const enum program_act act,
                             const float *const rows[], float *y) {
    uint32_t c = 0;
    for (; a->columns - c >= 32; c += 32) {
        lanes sums[2] = {lanes_splat(0), lanes_splat(0)};
        for (uint32_t j = 0; j < taps; j++)
            for (int l = 0; l < 2; l++) {
                lanes x = full || rows[j] ? lanes_load(rows[j] + c + 16 * l) : lanes_splat(0);
                sums[l] = lanes_fma(lanes_load(a->weight + j * a->weight_stride + c + 16 * l), x, sums[l]);
            }
        for (int l = 0; l < 2; l++) lanes_store(y + c + 16 * l, lanes_act(sums[l], act));
    }
    for (; c < a->columns; c += 16) conv_rest(a, rows, y, c, a->columns - c < 16 ? (int)(a->columns - c) : 16);
}

static void conv(const struct conv_args *a) {
    const float *rows[CONV_TAPS_MAX];
    for (uint32_t t = 0; t < a->tokens; t++) {
        conv_rows(a, t, rows);
        float *y = a->y + t * a->y_stride;
        if (a->taps == 4 && rows[0] && a->act == ACT_SILU)
            conv_token(a, 4, 1, ACT_SILU, rows, y);
        else
            conv_token(a, a->taps, 0, a->act, rows, y);
    }
    conv_rows(a, a->tokens, rows); /* what the next token would see; rows move to the front, so one tail may be both */
    for (uint32_t j = 0; j + 1 < a->taps; j++) {
        float *to = a->to + j * a->tail_stride;
        if (rows[j])
            memcpy(to, rows[j], a->columns * sizeof *to);
        else
            memset(to, 0, a->columns * sizeof *to);
    }
}

/* ---- Delta rule ---- */

enum { DELTA_LANES = DELTA_VALUES / 16 };

/* Columns of a block: `wide` lanes of which the last has `last` values. */
LANES_INLINE lanes delta_load(const float *p, const int wide, int l, int last) {
    return l == wide - 1 && last < 16 ? lanes_load_first(p + 16 * l, last) : lanes_load(p + 16 * l);
}
LANES_INLINE void delta_store(float *p, lanes x, const int wide, int l, int last) {
    if (l == wide - 1 && last < 16)
        lanes_store_first(p + 16 * l, x, last);
    else
        lanes_store(p + 16 * l, x);
}

struct delta_block {
    const struct delta_args *args;
    uint32_t first;    /* its first value */
    const float *from; /* as it was before the token at hand */
    float *to;
};

/* What the first token's key recalls. */
LANES_INLINE void delta_recall(const int wide, int last, const struct delta_block *b, lanes *recalled) {
    const struct delta_args *a = b->args;
    const float *s = b->from;
    for (int l = 0; l < wide; l++) recalled[l] = lanes_splat(0);
    for (uint32_t i = 0; i < a->key_width; i++, s += 16 * (wide - 1) + last) {
        lanes k = lanes_splat(a->k[i]);
        for (int l = 0; l < wide; l++) recalled[l] = lanes_fma(k, delta_load(s, wide, l, last), recalled[l]);
    }
}

/* Token t, in one pass over the block: the correction goes in, the query's answer comes out and, if another token
 * follows, what its key recalls, all in the order in which they would be done one after the other. */
LANES_INLINE void delta_token(const int wide, int last, const int more, const struct delta_block *b, uint32_t t,
                              lanes *recalled) {
    const struct delta_args *a = b->args;
    const float *q = a->q + t * a->stride, *k = a->k + t * a->stride, *next = k + a->stride;
    const float *v = a->v + t * a->stride + b->first, *s = b->from;
    float *to = b->to, *y = a->out + t * a->out_stride + b->first;
    lanes decay = lanes_splat(a->decay[t * a->decay_stride]), rate = lanes_splat(a->rate[t * a->rate_stride]);
    lanes correction[DELTA_LANES], out[DELTA_LANES];
    for (int l = 0; l < wide; l++) {
        lanes missed = lanes_fma(lanes_negate(decay), recalled[l], delta_load(v, wide, l, last));
        correction[l] = lanes_mul(missed, rate);
        out[l] = recalled[l] = lanes_splat(0);
    }
    for (uint32_t i = 0; i < a->key_width; i++) {
        lanes key = lanes_splat(k[i]), query = lanes_splat(q[i]);
        for (int l = 0; l < wide; l++) {
            lanes x = lanes_fma(key, correction[l], lanes_mul(delta_load(s, wide, l, last), decay));
            delta_store(to, x, wide, l, last);
            out[l] = lanes_fma(query, x, out[l]);
            if (more) recalled[l] = lanes_fma(lanes_splat(next[i]), x, recalled[l]);
        }
        s += 16 * (wide - 1) + last;
        to += 16 * (wide - 1) + last;
    }
    for (int l = 0; l < wide; l++) delta_store(y, out[l], wide, l, last);
}

LANES_INLINE void delta_tokens(const int wide, int last, struct delta_block *b) {
    lanes recalled[DELTA_LANES];
    delta_recall(wide, last, b, recalled);
    uint32_t t = 0;
    for (; t + 1 < b->args->tokens; t++, b->from = b->to) delta_token(wide, last, 1, b, t, recalled);
    delta_token(wide, last, 0, b, t, recalled);
}

static void delta_whole(struct delta_block *b) { delta_tokens(DELTA_LANES, 16, b); }
static void delta_rest_wide(struct delta_block *b, int last) { delta_tokens(2, last, b); }
static void delta_rest(struct delta_block *b, int last) { delta_tokens(1, last, b); }

static void delta(const struct delta_args *a) {
    _Static_assert(DELTA_LANES == 2, "the rest of a block is one lane or two");
    for (uint32_t first = a->first; first < a->end; first += DELTA_VALUES) {
        uint32_t width = a->end - first < DELTA_VALUES ? a->end - first : DELTA_VALUES;
        size_t at = (size_t)first * a->key_width;
        struct delta_block b = {.args = a, .first = first, .from = a->from ? a->from + at : NULL, .to = a->to + at};
        if (!b.from) b.from = memset(b.to, 0, (size_t)width * a->key_width * sizeof *b.to);
        if (width == DELTA_VALUES)
            delta_whole(&b);
        else if (width > 16)
            delta_rest_wide(&b, (int)width - 16);
        else
            delta_rest(&b, (int)width);
    }
}

static void recur_fill(struct kernels *k) {
    k->l2_norm = l2_norm;
    k->act = act;
    k->decay = decay;
    k->conv = conv;
    k->delta = delta;
}

#endif
