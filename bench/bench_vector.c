/* Speed of the vector kernels on the shapes of real models, one thread: attention at several contexts, the vocabulary
 * scans, norm and the gated activation. Prints one line per kernel and shape; the best of several runs counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/mem.h"

enum { VOCAB = 262144, RUNS = 7, PAGE = BACKEND_PAGE_TOKENS };

static struct kernels kernels;

static void fill(float *x, size_t n) {
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = (float)(int32_t)state * 0x1p-29f;
    }
}

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The best time of one call in microseconds; short calls are repeated until the clock can see them. */
static double best_us(void (*call)(void *), void *arg) {
    double best = 1e30;
    uint64_t repeat = 1;
    for (int run = 0; run < RUNS; run++) {
        uint64_t start = clock_ns();
        for (uint64_t i = 0; i < repeat; i++) call(arg);
        double ns = (double)(clock_ns() - start);
        if (ns < 2e6 && run == 0) {
            repeat = (uint64_t)(2e6 / (ns + 100)) + 1;
            continue;
        }
        if (ns / (double)repeat < best) best = ns / (double)repeat;
    }
    return best / 1000;
}

static void run_attend(void *arg) { kernels.attend(arg); }

static void bench_attend(uint32_t context, uint32_t tokens, uint32_t heads, uint32_t width) {
    uint32_t pages = (context + PAGE - 1) / PAGE;
    size_t page_bytes = 2 * sizeof(uint16_t) * PAGE * (size_t)width, row = (size_t)heads * width;
    char *arena = mem_aligned(pages, page_bytes);
    uint32_t *table = mem_alloc(pages, sizeof *table);
    float *q = mem_alloc(2 * tokens * row, sizeof *q), *scratch = NULL;
    scratch = mem_alloc(attend_scratch_floats(tokens * heads, width), sizeof *scratch);
    if (!arena || !table || !q || !scratch) exit(1);
    for (uint32_t i = 0; i < pages; i++) table[i] = (i * 7 + 3) % pages;
    if (pages % 7 == 0)
        for (uint32_t i = 0; i < pages; i++) table[i] = i;
    fill(q, 2 * tokens * row);
    for (uint32_t p = 0; p < pages * PAGE; p++)
        kernels.store(arena + table[p / PAGE] * page_bytes, p % PAGE, q + p % 13, width, q + p % 17, width);
    struct attend_args a = {.q = q,
                            .out = q + tokens * row,
                            .q_stride = row,
                            .out_stride = row,
                            .tokens = tokens,
                            .heads = heads,
                            .key_width = width,
                            .value_width = width,
                            .scale = 0.0625f,
                            .pos = context - tokens,
                            .table = table,
                            .arena = arena,
                            .page_bytes = page_bytes,
                            .scratch = scratch};
    double us = best_us(run_attend, &a);
    double macs = 2.0 * context * (double)(tokens * row), bytes = (double)pages * (double)page_bytes;
    printf("%-7s attend context %5u, %u tokens x %u heads of %3u: %9.1f us, %5.1f GMAC/s, %5.1f GB/s\n", kernels.level,
           context, tokens, heads, width, us, macs / us / 1000, bytes / us / 1000);
    mem_free(arena);
    mem_free(table);
    mem_free(q);
    mem_free(scratch);
}

struct scan {
    float *x, *y, *w;
    uint32_t n, found;
    int64_t best;
    double sum;
};
static void run_sum_exp(void *arg) {
    struct scan *s = arg;
    s->sum = kernels.vec.sum_exp(s->x, s->n, 4, 1);
}
static void run_sum(void *arg) {
    struct scan *s = arg;
    s->sum = kernels.vec.sum(s->x, s->n);
}
static void run_argmax(void *arg) {
    struct scan *s = arg;
    s->best = kernels.vec.argmax(s->x, s->n);
}
static void run_at_least(void *arg) {
    struct scan *s = arg;
    s->found = kernels.vec.at_least(s->x, s->n, 3.99f, (uint32_t *)(void *)s->y, s->n);
}
static void run_norm(void *arg) {
    struct scan *s = arg;
    kernels.norm(s->y, s->x, s->w, s->n, 1e-6f);
}
static void run_gelu(void *arg) {
    struct scan *s = arg;
    kernels.glu(s->y, s->x, s->w, s->n, ACT_GELU_TANH);
}
static void run_silu(void *arg) {
    struct scan *s = arg;
    kernels.glu(s->y, s->x, s->w, s->n, ACT_SILU);
}

static void bench_scan(const char *name, void (*call)(void *), struct scan *s, uint32_t n) {
    s->n = n;
    double us = best_us(call, s);
    printf("%-7s %-9s %6u: %9.2f us, %6.2f values/ns\n", kernels.level, name, n, us, n / us / 1000);
}

static void bench_level(struct scan *s) {
    static const uint32_t contexts[] = {128, 1024, 8192};
    for (int i = 0; i < 3; i++) bench_attend(contexts[i], 1, 4, 256);
    for (int i = 0; i < 3; i++) bench_attend(contexts[i], 8, 4, 256);
    bench_attend(1024, 1, 1, 128);
    bench_attend(1024, 1, 7, 128);
    bench_attend(1024, 8, 1, 64);
    bench_scan("sum_exp", run_sum_exp, s, VOCAB);
    bench_scan("sum", run_sum, s, VOCAB);
    bench_scan("argmax", run_argmax, s, VOCAB);
    bench_scan("at_least", run_at_least, s, VOCAB);
    bench_scan("norm", run_norm, s, 256);
    bench_scan("norm", run_norm, s, 640);
    bench_scan("norm", run_norm, s, 4096);
    bench_scan("gelu", run_gelu, s, 2048);
    bench_scan("silu", run_silu, s, 2048);
}

int main(int argc, char **argv) {
    struct scan s = {.x = mem_alloc(VOCAB, 4), .y = mem_alloc(VOCAB, 4), .w = mem_alloc(VOCAB, 4)};
    if (!s.x || !s.y || !s.w) return 1;
    fill(s.x, VOCAB);
    fill(s.w, VOCAB);
    const char *level = argc > 1 ? argv[1] : kernels_best();
    if (kernels_init(&kernels, level) != 0) {
        fprintf(stderr, "bench_vector: this machine has no level '%s'\n", level);
        return 1;
    }
    bench_level(&s);
    mem_free(s.x);
    mem_free(s.y);
    mem_free(s.w);
    return 0;
}
