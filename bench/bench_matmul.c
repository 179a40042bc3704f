/* Speed of the matrix products, beside what the machine can do: the rate of reading the same packed weights, and the
 * peak rate of the level's integer multiply-add, both measured by this process.
 *
 *     bench_matmul [--level L] [--threads N] [--types Q8_0,Q4_K] [--rows 1,8,32]
 *
 * Per type and shape, for each number of rows: GMAC/s, its part of the peak, and GB/s of packed weights. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/kernels.h"
#include "base/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { THREADS_MAX = 64, ROWS_MAX = 512, LIST_MAX = 32 };

struct shape {
    const char *what;
    uint32_t rows, cols;
};
static const struct shape shapes[] = {
    {"in cache", 512, 640}, {"gemma ffn up", 2048, 640}, {"gemma ffn down", 640, 2048}, {"gemma head", 262144, 640}};

static const enum dtype all_types[] = {DTYPE_Q8_0, DTYPE_Q5_0, DTYPE_Q4_K,   DTYPE_Q6_K,  DTYPE_Q4_0, DTYPE_Q5_K,
                                       DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_IQ4_NL, DTYPE_MXFP4, DTYPE_F16,  DTYPE_F32};

static struct kernels kernels;
static int threads = 1;

/* ---- A job on all threads, each with its part of [0, n) ---- */

struct part {
    void (*work)(const void *job, size_t first, size_t end);
    const void *job;
    size_t first, end;
    double seconds;
};

/* Time on the processor: what other programs take away does not count. */
static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *part_run(void *arg) {
    struct part *p = arg;
    double start = thread_seconds();
    p->work(p->job, p->first, p->end);
    p->seconds = thread_seconds() - start;
    return NULL;
}

/* The slowest part's time. */
static double seconds_once(void (*work)(const void *, size_t, size_t), const void *job, size_t n) {
    struct part parts[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    double most = 0;
    for (int i = 0; i < threads; i++) {
        size_t first = n * (size_t)i / (size_t)threads, end = n * (size_t)(i + 1) / (size_t)threads;
        parts[i] = (struct part){work, job, first, end, 0};
        if (i && pthread_create(&ids[i], NULL, part_run, &parts[i]) != 0) exit(1);
    }
    part_run(&parts[0]);
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    for (int i = 0; i < threads; i++) most = parts[i].seconds > most ? parts[i].seconds : most;
    return most;
}

/* The best of many runs over about a third of a second: other programs only ever make a run slower. */
static double seconds_of(void (*work)(const void *, size_t, size_t), const void *job, size_t n) {
    double best = 1e9, all = 0;
    for (int i = 0; i < 5 || all < 0.3; i++) {
        double s = seconds_once(work, job, n);
        if (s < best) best = s;
        all += s;
    }
    return best;
}

/* ---- Roofs ---- */

struct sum_job {
    const char *data;
    long passes;
};
static volatile uint64_t sink;

static void sum_work(const void *job, size_t first, size_t end) {
    const struct sum_job *j = job;
    typedef uint64_t vec __attribute__((vector_size(16), may_alias));
    vec sum[8] = {{0}};
    for (long pass = 0; pass < j->passes; pass++)
        for (size_t i = first & ~(size_t)127; i + 128 <= end; i += 128)
            _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) sum[k] += *(const vec *)(j->data + i + 16 * k);
    for (int k = 1; k < 8; k++) sum[0] += sum[k];
    sink = sum[0][0] + sum[0][1];
}

/* One timed run is a few milliseconds. */
enum { PEAK_LOOPS = 500000, PEAK_CHAINS = 12, WINDOW_READ = 20000000, WINDOW_MACS = 100000000 };

#if defined(__x86_64__)
#define PEAK_LOOP(type, instruction, constraint)                                                                       \
    type acc[PEAK_CHAINS], x = {0};                                                                                    \
    _Pragma("GCC unroll 16") for (int i = 0; i < PEAK_CHAINS; i++) acc[i] = x;                                         \
    for (int n = 0; n < PEAK_LOOPS; n++)                                                                               \
        _Pragma("GCC unroll 16") for (int i = 0; i < PEAK_CHAINS;                                                      \
                                      i++) __asm__ volatile(instruction : "+" constraint(acc[i]) : constraint(x));

__attribute__((target("avx2"))) static void peak_avx2(const void *job, size_t first, size_t end) {
    PEAK_LOOP(__m256i, "vpmaddwd %1, %0, %0", "x")
}
__attribute__((target("avx512f"))) static void peak_avx512(const void *job, size_t first, size_t end) {
    PEAK_LOOP(__m512i, "vpdpbusd %1, %1, %0", "v")
}
#endif

/* 10^9 exact integer multiply-adds per second at the level; 0: not known. */
static double peak_gmacs(void) {
    double macs = 0, s = 1;
#if defined(__x86_64__)
    if (strcmp(kernels.level, "avx2") == 0) macs = 16, s = seconds_of(peak_avx2, NULL, 0);
    if (strcmp(kernels.level, "avx512") == 0) macs = 64, s = seconds_of(peak_avx512, NULL, 0);
#endif
    return macs * PEAK_LOOPS * PEAK_CHAINS * threads / s * 1e-9;
}

static double read_gbs(const struct packed *w) {
    size_t bytes = w->groups * w->group_bytes;
    struct sum_job job = {w->data, (long)(WINDOW_READ / bytes + 1)};
    return (double)bytes * (double)job.passes / seconds_of(sum_work, &job, bytes) * 1e-9;
}

/* ---- Products ---- */

struct product_job {
    const struct packed *w;
    const void *acts;
    size_t act_stride;
    uint32_t n_rows;
    float *y;
    long passes;
};

static void product_work(const void *job, size_t first, size_t end) {
    const struct product_job *j = job;
    for (long pass = 0; pass < j->passes; pass++)
        kernels.matmul(j->w, (uint32_t)first, (uint32_t)end, j->acts, j->act_stride, j->n_rows, j->y, j->w->rows);
}

static void fill(void *to, size_t bytes) {
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < bytes; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        ((uint8_t *)to)[i] = (uint8_t)(0x30 | (state >> 32 & 0x0b)); /* finite and no subnormals, in any type */
    }
}

static int pack_random(struct packed *w, enum dtype type, const struct shape *shape) {
    const struct dtype_info *info = dtype_info(type);
    if (pack_plan(w, type, shape->rows, shape->cols) != 0) return -1;
    size_t row_bytes = shape->cols / info->block_elements * info->block_bytes;
    void *file = mem_alloc(shape->rows, row_bytes);
    w->data = mem_aligned(w->groups, w->group_bytes);
    if (!file || !w->data) exit(1);
    fill(file, shape->rows * row_bytes);
    for (uint32_t g = 0; g < w->groups; g++) pack_group(w, file, g);
    mem_free(file);
    return 0;
}

static double product_seconds(struct product_job *job) {
    double macs = (double)job->w->rows * job->w->cols * job->n_rows;
    job->passes = (long)(WINDOW_MACS * (double)threads / macs) + 1;
    return seconds_of(product_work, job, job->w->groups) / (double)job->passes;
}

static void bench_one(enum dtype type, const struct shape *shape, const uint32_t *rows, int n_rows, double peak) {
    struct packed w;
    if (pack_random(&w, type, shape) != 0) return;
    size_t act_stride = (kernels.act_bytes(w.kind, w.cols) + 63) & ~(size_t)63;
    char *acts = mem_aligned(ROWS_MAX, act_stride);
    float *x = mem_alloc(w.cols, sizeof *x), *y = mem_alloc((size_t)rows[n_rows - 1], (size_t)w.rows * sizeof *y);
    if (!acts || !x || !y) exit(1);
    for (uint32_t r = 0; r < ROWS_MAX; r++) {
        for (uint32_t i = 0; i < w.cols; i++)
            x[i] = (float)((i * 2654435761u + r * 40503u) >> 8 & 0xffff) / 65536 - 0.5f;
        kernels.act_prepare(w.kind, acts + r * act_stride, x, w.cols);
    }
    double bytes = (double)w.groups * (double)w.group_bytes;
    printf("%-6s %-15s N %6u K %5u  %8.2f MB, read %5.1f GB/s\n", dtype_info(type)->name, shape->what, w.rows, w.cols,
           bytes * 1e-6, read_gbs(&w));
    for (int i = 0; i < n_rows; i++) {
        struct product_job job = {&w, acts, act_stride, rows[i], y, 0};
        double s = product_seconds(&job), gmacs = (double)w.rows * w.cols * rows[i] / s * 1e-9;
        printf("    rows %3u  %7.1f GMAC/s  %5.1f %% of peak  %6.1f GB/s\n", rows[i], gmacs, 100 * gmacs / peak,
               bytes / s * 1e-9);
    }
    fflush(stdout);
    mem_free(acts), mem_free(x), mem_free(y), mem_free(w.data);
}

static void print_machine(void) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0) {
            printf("%s", strchr(line, ':') ? strchr(line, ':') + 2 : line);
            break;
        }
    if (f) fclose(f);
}

static int parse_types(const char *text, enum dtype *out) {
    int n = 0;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = strtok(copy, ","); at && n < LIST_MAX; at = strtok(NULL, ","))
        for (uint32_t t = 0; t < DTYPE_END; t++)
            if (dtype_info(t) && strcmp(dtype_info(t)->name, at) == 0) out[n++] = (enum dtype)t;
    return n;
}

static int parse_rows(const char *text, uint32_t *out) {
    int n = 0;
    for (char *end; *text && n < LIST_MAX; text = *end ? end + 1 : end) {
        out[n] = (uint32_t)strtoul(text, &end, 10);
        if (end == text || out[n] < 1 || out[n] > ROWS_MAX || (n && out[n] < out[n - 1])) return 0;
        n++;
    }
    return n;
}

int main(int argc, char **argv) {
    const char *level = kernels_best();
    enum dtype types[LIST_MAX];
    uint32_t rows[LIST_MAX] = {1, 2, 4, 8, 16, 32, 64};
    int n_types = sizeof all_types / sizeof *all_types, n_rows = 7;
    memcpy(types, all_types, sizeof all_types);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--level")) level = argv[i + 1];
        if (!strcmp(argv[i], "--threads")) threads = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--types")) n_types = parse_types(argv[i + 1], types);
        if (!strcmp(argv[i], "--rows")) n_rows = parse_rows(argv[i + 1], rows);
    }
    if (threads < 1 || threads > THREADS_MAX || n_types < 1 || n_rows < 1 || kernels_init(&kernels, level) != 0)
        return fprintf(stderr, "bench_matmul: bad threads, types, rows (ascending, up to %d) or level\n", ROWS_MAX), 2;
    print_machine();
    double peak = peak_gmacs();
    printf("level %s, threads %d, peak %.0f GMAC/s\n", kernels.level, threads, peak);
    for (int t = 0; t < n_types; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) bench_one(types[t], &shapes[s], rows, n_rows, peak);
    return 0;
}
