/* The recurrent layers' operations in plain C: docs/NUMERICS.md, Recurrent layers, operation by operation. Reentrant.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/math_ref.h"

static void l2_norm(float *y, const float *x, uint32_t n, float eps, float scale) {
    float lane[16] = {0};
    for (uint32_t i = 0; i < n; i++) lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    float r = 1 / sqrtf(lanes_total_ref(lane) + eps);
    for (uint32_t i = 0; i < n; i++) y[i] = x[i] * r * scale;
}

static void act(float *y, const float *x, uint32_t n, enum program_act act) {
    for (uint32_t i = 0; i < n; i++) y[i] = act_ref(x[i], act);
}

static void decay(float *y, const float *x, const float *rate, const float *bias, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) y[i] = exp_ref(rate[i] * softplus_ref(x[i] + bias[i]));
}

/* What column c had `back` tokens before token t, which may lie in the tail or before the sequence. */
static float conv_input(const struct conv_args *a, uint32_t t, uint32_t back, uint32_t c) {
    if (back <= t) return a->x[(t - back) * a->x_stride + c];
    return a->from ? a->from[(a->taps - 1 + t - back) * a->tail_stride + c] : 0;
}

/* Rows move towards the front, so the tails may be the same. */
static void conv_tail(const struct conv_args *a) {
    uint32_t rows = a->taps - 1;
    for (uint32_t j = 0; j < rows; j++)
        for (uint32_t c = 0; c < a->columns; c++)
            a->to[j * a->tail_stride + c] = conv_input(a, a->tokens - 1, rows - 1 - j, c);
}

static void conv(const struct conv_args *a) {
    for (uint32_t t = 0; t < a->tokens; t++)
        for (uint32_t c = 0; c < a->columns; c++) {
            float sum = 0;
            for (uint32_t j = 0; j < a->taps; j++)
                sum = fmaf(a->weight[j * a->weight_stride + c], conv_input(a, t, a->taps - 1 - j, c), sum);
            a->y[t * a->y_stride + c] = act_ref(sum, a->act);
        }
    conv_tail(a);
}

/* One value j of one token; `state` is [key_width] with `pitch` between. */
static float delta_value(const struct delta_args *a, uint32_t t, uint32_t j, float *state, size_t pitch) {
    const float *q = a->q + t * a->stride, *k = a->k + t * a->stride;
    float decay = a->decay[t * a->decay_stride], rate = a->rate[t * a->rate_stride], recalled = 0, out = 0;
    for (uint32_t i = 0; i < a->key_width; i++) recalled = fmaf(k[i], state[i * pitch], recalled);
    float correction = fmaf(-decay, recalled, a->v[t * a->stride + j]) * rate;
    for (uint32_t i = 0; i < a->key_width; i++) {
        state[i * pitch] = fmaf(k[i], correction, state[i * pitch] * decay);
        out = fmaf(q[i], state[i * pitch], out);
    }
    return out;
}

static void delta(const struct delta_args *a) {
    for (uint32_t first = a->first; first < a->end; first += DELTA_VALUES) {
        uint32_t width = a->end - first < DELTA_VALUES ? a->end - first : DELTA_VALUES;
        size_t at = (size_t)first * a->key_width, bytes = (size_t)width * a->key_width * sizeof(float);
        if (!a->from)
            memset(a->to + at, 0, bytes);
        else if (a->from != a->to)
            memcpy(a->to + at, a->from + at, bytes);
        for (uint32_t j = 0; j < width; j++)
            for (uint32_t t = 0; t < a->tokens; t++)
                a->out[t * a->out_stride + first + j] = delta_value(a, t, first + j, a->to + at + j, width);
    }
}

void kernels_recur_ref(struct kernels *k) {
    k->l2_norm = l2_norm;
    k->act = act;
    k->decay = decay;
    k->conv = conv;
    k->delta = delta;
}
