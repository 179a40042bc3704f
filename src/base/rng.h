/* Counter-based random numbers (Philox 4x32-10; Salmon et al., SC11): a pure function of (seed, stream, counter), so a
 * draw never depends on order, slot or neighbours. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* The bare function: 128 bits from a 128-bit counter under a 64-bit key. `out` may be `counter`. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The 64 bits of draw `counter` of `stream` under `seed`. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t counter);
/* The same draw as a double in [0, 1) with 53 bits. */
double rng_unit(uint64_t seed, uint64_t stream, uint64_t counter);
/* Fresh entropy from the system. */
uint64_t rng_entropy(void);

#endif
