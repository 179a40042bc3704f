/* Scalar forms of the fp32 functions of docs/NUMERICS.md, for the reference kernels. The lane forms are in
 * vector_lanes.h and repeat these sequences operation by operation. */
#ifndef BACKEND_CPU_MATH_REF_H
#define BACKEND_CPU_MATH_REF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/exp_constants.h"
#include "backend/program.h"

static inline float exp_ref(float x) {
    float t = fmaf(x, EXP_LOG2E, EXP_ROUND), n = t - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_HIGH, x);
    r = fmaf(n, -EXP_LN2_LOW, r);
    float p = EXP_C6;
    p = fmaf(p, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1);
    p = fmaf(p, r, 1);
    if (x < EXP_LOWEST) return 0;
    if (!(x <= EXP_HIGHEST)) return x + INFINITY; /* infinity, or x's NaN */
    uint32_t scale, bits;
    memcpy(&scale, &t, sizeof scale);
    memcpy(&bits, &p, sizeof bits);
    bits += scale << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

static inline float tanh_ref(float u) {
    float v = u > TANH_LIMIT ? TANH_LIMIT : u, e = exp_ref(v + v);
    return (e - 1) / (e + 1);
}

static inline float softcap_ref(float x, float cap) { return cap * tanh_ref(x / cap); }

static inline float sigmoid_ref(float x) { return 1 / (1 + exp_ref(-x)); }

static inline float silu_ref(float x) { return x / (1 + exp_ref(-x)); }

static inline float gelu_tanh_ref(float x) { return x / (1 + exp_ref(GELU_SCALE * fmaf(GELU_CUBIC * x * x, x, x))); }

static inline float act_ref(float x, enum program_act act) {
    switch (act) {
    case ACT_SILU:
        return silu_ref(x);
    case ACT_GELU_TANH:
        return gelu_tanh_ref(x);
    case ACT_SIGMOID:
        return sigmoid_ref(x);
    case ACT_NONE:
        break;
    }
    return x;
}

/* log(1 + exp(x)) */
static inline float softplus_ref(float x) {
    static const float terms[LOG1P_COUNT] = LOG1P_TERMS;
    float e = exp_ref(x < -x ? x : -x), s = e / (2 + e), z = s * s, p = terms[0];
    for (int i = 1; i < LOG1P_COUNT; i++) p = fmaf(p, z, terms[i]);
    p = fmaf(p, z, 1);
    return (x > 0 ? x : 0) + (s + s) * p;
}

/* Adds the sixteen partial sums. */
static inline float lanes_total_ref(float lane[16]) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

#endif
