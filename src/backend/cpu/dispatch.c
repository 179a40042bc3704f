/* Which kernel levels this machine can run, and the kernel table of a level.
 *
 * Built for the baseline CPU like every file without a level in its name. A level counts as available only if the CPU
 * has the instructions and the operating system saves their registers. Stateless; any thread. */
#include <string.h>

#include "backend/cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

enum level { LEVEL_REF, LEVEL_AVX2, LEVEL_AVX512, LEVELS };

static const char *const level_names[LEVELS] = {"ref", "avx2", "avx512"};

#if HAVE_X86
/* Extended control register 0: the register files that the operating system saves on a task switch. */
static uint64_t xcr0_read(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static enum level level_best(void) {
    const uint32_t avx_1c = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const uint64_t ymm_state = 0x06, zmm_state = 0xe6; /* xmm + ymm; and mask registers + both zmm halves */
    const uint32_t avx512_7b = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    uint32_t a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & avx_1c) != avx_1c) return LEVEL_REF;
    uint64_t state = xcr0_read();
    if ((state & ymm_state) != ymm_state) return LEVEL_REF;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return LEVEL_REF;
    if ((state & zmm_state) != zmm_state || (b & avx512_7b) != avx512_7b || !(c & bit_AVX512VNNI)) return LEVEL_AVX2;
    return LEVEL_AVX512;
}
#else
static enum level level_best(void) { return LEVEL_REF; }
#endif

/* LEVELS: no level of that name. */
static enum level level_find(const char *name) {
    int i = 0;
    while (i < LEVELS && strcmp(level_names[i], name) != 0) i++;
    return (enum level)i;
}

const char *kernels_best(void) { return level_names[level_best()]; }

int kernels_available(const char *level) { return level_find(level) <= level_best(); }

int kernels_init(struct kernels *k, const char *level) {
    enum level wanted = level_find(level);
    if (wanted == LEVELS) return -1;
    if (wanted > level_best()) return -2;

    memset(k, 0, sizeof *k);
    kernels_matmul_ref(k);
    kernels_vector_ref(k);
#if HAVE_X86
    if (wanted >= LEVEL_AVX2) {
        kernels_matmul_avx2(k);
        kernels_vector_avx2(k);
    }
    if (wanted >= LEVEL_AVX512) {
        kernels_matmul_avx512(k);
        kernels_vector_avx512(k);
    }
#endif
    k->level = level_names[wanted];
    return 0;
}
