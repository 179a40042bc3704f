/* A prepared row of activations for integer weights: one 64-byte record per block of 32 columns, the same at every
 * level. docs/NUMERICS.md says how d and q come about. For float weights a prepared row is the row itself. */
#ifndef BACKEND_CPU_ACT_H
#define BACKEND_CPU_ACT_H

#include <stdint.h>

struct act_block {
    int8_t q[32];
    float d;
    float d_sum; /* d * float(sum of q), rounded once: what a minimum of 32 columns is multiplied by */
    /* -128 * the sum of q: where an integer sum starts whose weights are stored as w + 128. [0]: of all columns, [1],
     * [2]: of the two halves. */
    int32_t start[3];
    /* The sums of the q in columns 0, 1 modulo 4 and in columns 2, 3 modulo 4: what the two int16 lanes of an output
     * add up in vpmaddubsw. Same order as start. */
    int16_t pair[3][2];
};
_Static_assert(sizeof(struct act_block) == 64, "one cache line per block");

#endif
