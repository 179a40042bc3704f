/* Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11). Pure, except for
 * rng_entropy. */
#include "base/rng.h"

#include <unistd.h>

#include "base/clock.h"

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0;
        uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u; /* the golden ratio and sqrt(3) - 1, as the paper's Weyl sequence */
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t words[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    rng_philox(words, key, words);
    return (uint64_t)words[1] << 32 | words[0];
}

double rng_unit(uint64_t seed, uint64_t stream, uint64_t counter) {
    return (double)(rng_u64(seed, stream, counter) >> 11) * 0x1p-53;
}

uint64_t rng_entropy(void) {
    static _Atomic uint64_t calls;
    uint64_t value;
    if (getentropy(&value, sizeof(value)) == 0) return value;
    /* No entropy source (a very bare sandbox): still different from call to call and from process to process. */
    return rng_u64(clock_us(), (uint64_t)getpid(), calls++);
}
