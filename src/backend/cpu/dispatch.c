/* Which kernel levels this machine can run, and the kernel table of a level.
 *
 * Built for the baseline CPU like every file without a level in its name. A level counts as available only if the CPU
 * has the instructions and the operating system saves their registers. Stateless; any thread. */
#include <string.h>

#include "backend/cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* The levels of this kind of processor, best last. A level's kernels are laid over those of all before it; none of what
 * remains visible needs more than the level says. */
static const struct level {
    const char *name;
    void (*matmul)(struct kernels *k), (*vector)(struct kernels *k); /* NULL: those before it stay */
} levels[] = {
    {"ref", kernels_matmul_ref, kernels_vector_ref},
#if defined(__x86_64__)
    {"avx2", kernels_matmul_avx2, kernels_vector_avx2},
    {"avxvnni", kernels_matmul_avxvnni, NULL},
    {"avx512", kernels_matmul_avx512, kernels_vector_avx512},
#elif defined(__aarch64__)
    {"neon", kernels_matmul_neon, kernels_vector_neon},
#endif
};
enum { LEVELS = sizeof levels / sizeof *levels };

#if defined(__x86_64__)
/* Extended control register 0: the register files that the operating system saves on a task switch. */
static uint64_t xcr0_read(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* A bit per level that this machine can run. */
static unsigned levels_here(void) {
    enum { REF = 1, AVX2 = 2, AVXVNNI = 4, AVX512 = 8 };
    const uint32_t avx_1c = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const uint64_t ymm_state = 0x06, zmm_state = 0xe6; /* xmm + ymm; and mask registers + both zmm halves */
    const uint32_t avx512_7b = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    uint32_t a, b, c, d, more;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & avx_1c) != avx_1c) return REF;
    uint64_t state = xcr0_read();
    if ((state & ymm_state) != ymm_state) return REF;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return REF;
    unsigned here = REF | AVX2;
    if ((state & zmm_state) == zmm_state && (b & avx512_7b) == avx512_7b && (c & bit_AVX512VNNI)) here |= AVX512;
    if (__get_cpuid_count(7, 1, &more, &b, &c, &d) && (more & bit_AVXVNNI)) here |= AVXVNNI;
    return here;
}
#elif defined(__aarch64__) && defined(__linux__)
static unsigned levels_here(void) {
    const unsigned long needed = HWCAP_ASIMD | HWCAP_ASIMDDP;
    return (getauxval(AT_HWCAP) & needed) == needed ? 3 : 1;
}
#else
static unsigned levels_here(void) { return 1; }
#endif

/* LEVELS: no level of that name. */
static int level_find(const char *name) {
    int i = 0;
    while (i < LEVELS && strcmp(levels[i].name, name) != 0) i++;
    return i;
}

const char *kernels_level(unsigned i) { return i < LEVELS ? levels[i].name : NULL; }

const char *kernels_best(void) {
    unsigned here = levels_here();
    int best = LEVELS - 1;
    while (!(here >> best & 1)) best--;
    return levels[best].name;
}

int kernels_available(const char *level) {
    int i = level_find(level);
    return i < LEVELS && levels_here() >> i & 1;
}

int kernels_init(struct kernels *k, const char *level) {
    int wanted = level_find(level);
    if (wanted == LEVELS) return -1;
    if (!(levels_here() >> wanted & 1)) return -2;

    memset(k, 0, sizeof *k);
    for (int i = 0; i <= wanted; i++) {
        levels[i].matmul(k);
        if (levels[i].vector) levels[i].vector(k);
    }
    k->level = levels[wanted].name;
    return 0;
}
