/* IEEE half precision, in plain C with the bits of the F16C instructions: nearest even, gradual underflow, overflow to
 * infinity, a NaN keeps its sign and its leading payload bits and becomes quiet. */
#ifndef BACKEND_CPU_HALF_H
#define BACKEND_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff, bits;
    if (exponent == 0x1f) {
        bits = sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0);
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        float tiny = (float)mantissa * 0x1p-24f; /* exact, and a normal float */
        memcpy(&bits, &tiny, sizeof bits);
        bits |= sign;
    }
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static inline uint16_t half_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more round to infinity */
    if (magnitude < 0x38800000) {
        /* Below 2^-14 the unit is 2^-24: adding 0.5, whose unit is 2^-24 too, rounds to it (nearest even). */
        float small;
        memcpy(&small, &magnitude, sizeof small);
        small += 0.5f;
        memcpy(&magnitude, &small, sizeof small);
        return (uint16_t)(sign | (magnitude - 0x3f000000));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

#endif
