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

/* The levels of this kind of processor, each of which can do all that those before it can. */
static const struct level {
    const char *name;
    void (*matmul)(struct kernels *k), (*vector)(struct kernels *k);
} levels[] = {
    {"ref", kernels_matmul_ref, kernels_vector_ref},
#if defined(__x86_64__)
    {"avx2", kernels_matmul_avx2, kernels_vector_avx2},
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

static int level_best(void) {
    enum { REF, AVX2, AVX512 };
    const uint32_t avx_1c = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const uint64_t ymm_state = 0x06, zmm_state = 0xe6; /* xmm + ymm; and mask registers + both zmm halves */
    const uint32_t avx512_7b = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    uint32_t a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & avx_1c) != avx_1c) return REF;
    uint64_t state = xcr0_read();
    if ((state & ymm_state) != ymm_state) return REF;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return REF;
    if ((state & zmm_state) != zmm_state || (b & avx512_7b) != avx512_7b || !(c & bit_AVX512VNNI)) return AVX2;
    return AVX512;
}
#elif defined(__aarch64__) && defined(__linux__)
static int level_best(void) {
    const unsigned long needed = HWCAP_ASIMD | HWCAP_ASIMDDP;
    return (getauxval(AT_HWCAP) & needed) == needed;
}
#else
static int level_best(void) { return 0; }
#endif

/* LEVELS: no level of that name. */
static int level_find(const char *name) {
    int i = 0;
    while (i < LEVELS && strcmp(levels[i].name, name) != 0) i++;
    return i;
}

const char *kernels_level(unsigned i) { return i < LEVELS ? levels[i].name : NULL; }

const char *kernels_best(void) { return levels[level_best()].name; }

int kernels_available(const char *level) { return level_find(level) <= level_best(); }

int kernels_init(struct kernels *k, const char *level) {
    int wanted = level_find(level);
    if (wanted == LEVELS) return -1;
    if (wanted > level_best()) return -2;

    memset(k, 0, sizeof *k);
    for (int i = 0; i <= wanted; i++) {
        levels[i].matmul(k);
        levels[i].vector(k);
    }
    k->level = levels[wanted].name;
    return 0;
}
