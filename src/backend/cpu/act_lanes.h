/* The activation quantiser of a vector level: blocks of 32 values to int8 (docs/NUMERICS.md says how; act.h the
 * record). Included by matmul_LEVEL.c behind
 *
 *     largest_bits(x)             the largest magnitude of 32 floats, as bits: those order like values, infinities and
 *                                 NaNs above all numbers
 *     quantise(q, x, inverse)     32 bytes: x * inverse, rounded to nearest even
 *     pair_sums(q, pair)          of 16 bytes: the sum of columns 0, 1 modulo 4 in pair[0], of columns 2, 3 in pair[1]
 */
#ifndef BACKEND_CPU_ACT_LANES_H
#define BACKEND_CPU_ACT_LANES_H

#include <string.h>

#include "backend/cpu/act.h"
#include "backend/cpu/pack.h"

static void block_prepare(struct act_block *a, const float *x) {
    uint32_t bits = largest_bits(x);
    float amax, d = 0;
    memcpy(&amax, &bits, sizeof amax);
    float inverse = 127 / amax;
    if (bits < 0x7f800000 && inverse <= 0x1.fffffep127f) {
        d = amax / 127;
        quantise(a->q, x, inverse);
    } else {
        if (bits >= 0x7f800000) d = __builtin_nanf("");
        memset(a->q, 0, sizeof a->q);
    }
    int32_t sum[3];
    for (int i = 1; i <= 2; i++) {
        pair_sums(a->q + 16 * (i - 1), a->pair[i]);
        sum[i] = a->pair[i][0] + a->pair[i][1];
    }
    sum[0] = sum[1] + sum[2];
    for (int i = 0; i < 2; i++) a->pair[0][i] = (int16_t)(a->pair[1][i] + a->pair[2][i]);
    for (int i = 0; i < 3; i++) a->start[i] = -128 * sum[i];
    a->d = d;
    a->d_sum = d * (float)sum[0];
}

static void act_prepare(enum pack_kind kind, void *act, const float *x, uint32_t cols) {
    if (kind == PACK_FLOAT) {
        memcpy(act, x, (size_t)cols * sizeof(float));
        return;
    }
    for (uint32_t b = 0; b < cols / PACK_BLOCK; b++)
        block_prepare((struct act_block *)act + b, x + (size_t)b * PACK_BLOCK);
}

#endif
