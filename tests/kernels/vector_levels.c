/* See vector_levels.h. AVX-512 is there twice: as itself where the CPU has it, and by emulation, which needs AVX2. */
#include "vector_levels.h"

#include <string.h>

#ifdef COHORT_EMULATED
void kernels_vector_avx512_emulated(struct kernels *k);
#endif

static int put(struct vector_level *out, int n, const char *name, void (*fill)(struct kernels *)) {
    memset(&out[n], 0, sizeof out[n]);
    out[n].name = name;
    fill(&out[n].k);
    return n + 1;
}

int vector_levels(struct vector_level out[VECTOR_LEVELS_MAX]) {
    int n = put(out, 0, "ref", kernels_vector_ref);
#ifdef __x86_64__
    int avx2 = kernels_available("avx2");
    if (avx2) n = put(out, n, "avx2", kernels_vector_avx2);
    if (kernels_available("avx512")) n = put(out, n, "avx512", kernels_vector_avx512);
#ifdef COHORT_EMULATED
    if (avx2) n = put(out, n, "avx512 emulated", kernels_vector_avx512_emulated);
#endif
#endif
#ifdef __aarch64__
    if (kernels_available("neon")) n = put(out, n, "neon", kernels_vector_neon);
#endif
    return n;
}
