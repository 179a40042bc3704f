/* The machine's roofs (measure.h): loops that do nothing but read, or nothing but multiply and add in registers. */
#include <string.h>

#include "measure.h"

#include "base/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* One timed run is a few milliseconds. CHAINS hide an instruction's latency. */
enum { LOOPS = 300000, CHAINS = 12, WINDOW_READ = 20000000 };

/* ---- Reading ---- */

struct sum_job {
    const char *data;
    long passes;
};
static volatile uint64_t sink;

static void sum_work(const void *job, size_t first, size_t end) {
    const struct sum_job *j = job;
    typedef uint64_t vec __attribute__((vector_size(16), may_alias, aligned(1)));
    vec sum[8] = {{0}};
    for (long pass = 0; pass < j->passes; pass++)
        for (size_t i = first & ~(size_t)127; i + 128 <= end; i += 128)
            _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) sum[k] += *(const vec *)(j->data + i + 16 * k);
    for (int k = 1; k < 8; k++) sum[0] += sum[k];
    sink = sum[0][0] + sum[0][1];
}

double roof_read(const struct measure *m, const void *data, size_t bytes) {
    struct sum_job job = {data, (long)(WINDOW_READ / bytes + 1)};
    return (double)bytes * (double)job.passes / measure_seconds(m, sum_work, &job, bytes) * 1e-9;
}

double roof_read_fresh(const struct measure *m, size_t bytes) {
    char *data = mem_map_large(bytes);
    if (!data) return 0;
    memset(data, 1, bytes);
    double gbs = roof_read(m, data, bytes);
    mem_unmap(data, bytes);
    return gbs;
}

/* ---- Multiplying ---- */

#define CHAINS_OF(type, instruction, constraint)                                                                       \
    type acc[CHAINS], x = {0};                                                                                         \
    _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) acc[i] = x;                                              \
    for (int n = 0; n < LOOPS; n++)                                                                                    \
        _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS;                                                           \
                                      i++) __asm__ volatile(instruction : "+" constraint(acc[i]) : constraint(x));

#if defined(__x86_64__)
#define PAIR_CHAINS(product, sum)                                                                                      \
    __m256i acc[CHAINS], x = {0}, t;                                                                                   \
    _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) acc[i] = x;                                              \
    for (int n = 0; n < LOOPS; n++)                                                                                    \
        _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) __asm__ volatile(                                    \
            product " %2, %2, %1\n\t" sum " %1, %0, %0" : "+x"(acc[i]), "=&x"(t) : "x"(x));

/* Without a fused integer product the sum is an instruction of its own, which any exact kernel must spend, too. */
__attribute__((target("avx2"))) static void run_maddwd(const void *job, size_t first, size_t end) {
    PAIR_CHAINS("vpmaddwd", "vpaddd")
}
__attribute__((target("avx2"))) static void run_maddubsw(const void *job, size_t first, size_t end) {
    PAIR_CHAINS("vpmaddubsw", "vpaddw")
}
__attribute__((target("avx2,fma"))) static void run_fma_avx2(const void *job, size_t first, size_t end) {
    CHAINS_OF(__m256, "vfmadd231ps %1, %1, %0", "x")
}
__attribute__((target("avx2"))) static void run_vnni_256(const void *job, size_t first, size_t end) {
    CHAINS_OF(__m256i, "%{vex%} vpdpbusd %1, %1, %0", "x")
}
__attribute__((target("avx512f"))) static void run_vnni_512(const void *job, size_t first, size_t end) {
    CHAINS_OF(__m512i, "vpdpbusd %1, %1, %0", "v")
}
__attribute__((target("avx512f"))) static void run_fma_512(const void *job, size_t first, size_t end) {
    CHAINS_OF(__m512, "vfmadd231ps %1, %1, %0", "v")
}
#elif defined(__aarch64__)
__attribute__((target("arch=armv8.2-a+dotprod"))) static void run_sdot(const void *job, size_t first, size_t end) {
    CHAINS_OF(int32x4_t, "sdot %0.4s, %1.16b, %1.16b", "w")
}
static void run_fmla(const void *job, size_t first, size_t end) {
    CHAINS_OF(float32x4_t, "fmla %0.4s, %1.4s, %1.4s", "w")
}
#endif

/* The levels that have an instruction, by the names in dispatch.c. */
struct candidate {
    const char *level, *instruction;
    enum roof_kind kind;
    int macs;
    measure_work work;
};
static const struct candidate candidates[] = {
#if defined(__x86_64__)
    {"avx2", "vpmaddwd + vpaddd", ROOF_INT8, 16, run_maddwd},
    {"avx2", "vpmaddubsw + vpaddw", ROOF_INT8, 32, run_maddubsw},
    {"avx2", "vfmadd 256", ROOF_FLOAT, 8, run_fma_avx2},
    {"avxvnni", "vpdpbusd 256", ROOF_INT8, 32, run_vnni_256},
    {"avxvnni", "vfmadd 256", ROOF_FLOAT, 8, run_fma_avx2},
    {"avx512", "vpdpbusd 512", ROOF_INT8, 64, run_vnni_512},
    {"avx512", "vfmadd 512", ROOF_FLOAT, 16, run_fma_512},
#elif defined(__aarch64__)
    {"neon", "sdot", ROOF_INT8, 16, run_sdot},
    {"neon", "fmla", ROOF_FLOAT, 4, run_fmla},
#endif
    {NULL, NULL, ROOF_INT8, 0, NULL},
};

struct roof roof_multiply(const struct measure *m, enum roof_kind kind) {
    struct roof best = {0, "none"};
    for (const struct candidate *c = candidates; c->level; c++) {
        if (c->kind != kind || strcmp(c->level, m->level) != 0) continue;
        double gmacs = (double)c->macs * LOOPS * CHAINS * m->threads / measure_seconds(m, c->work, NULL, 0) * 1e-9;
        if (gmacs > best.gmacs) best = (struct roof){gmacs, c->instruction};
    }
    return best;
}
