/* Speed of the matrix products, beside what the machine can do: the rate of reading the same packed weights, and the
 * peak rate of the level's integer multiply-add, both measured by this process.
 *
 *     bench_matmul [--level L] [--threads N] [--json] [--types Q8_0,Q4_K] [--rows 1,8,32] [--shape "in cache"]
 *
 * Per type and shape, for each number of rows: GMAC/s and its part of the peak, GB/s of packed weights and their part
 * of reading the same bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "base/mem.h"
#include "measure.h"

enum { ROWS_MAX = 512, LIST_MAX = 32, WINDOW_MACS = 100000000 /* one timed run is a few milliseconds */ };

struct shape {
    const char *what;
    uint32_t rows, cols;
};
static const struct shape shapes[] = {
    {"in cache", 512, 768},      {"gemma ffn up", 2048, 640}, {"gemma ffn down", 640, 2048},
    {"gemma head", 262144, 640}, {"1b ffn up", 5632, 2048},   {"1b ffn down", 2048, 5632},
};

static const enum dtype all_types[] = {DTYPE_Q8_0,   DTYPE_Q5_0,   DTYPE_Q4_K,  DTYPE_Q6_K, DTYPE_Q4_0,
                                       DTYPE_Q5_K,   DTYPE_Q2_K,   DTYPE_Q3_K,  DTYPE_Q4_1, DTYPE_Q5_1,
                                       DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4, DTYPE_F16,  DTYPE_F32};

static struct kernels kernels;

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

static double product_seconds(const struct measure *m, struct product_job *job) {
    double macs = (double)job->w->rows * job->w->cols * job->n_rows;
    job->passes = (long)(WINDOW_MACS * (double)m->threads / macs) + 1;
    return measure_seconds(m, product_work, job, job->w->groups) / (double)job->passes;
}

static void acts_prepare(const struct packed *w, char *acts, size_t stride) {
    float *x = mem_alloc(w->cols, sizeof *x);
    if (!x) exit(1);
    for (uint32_t r = 0; r < ROWS_MAX; r++) {
        for (uint32_t i = 0; i < w->cols; i++)
            x[i] = (float)((i * 2654435761u + r * 40503u) >> 8 & 0xffff) / 65536 - 0.5f;
        kernels.act_prepare(w->kind, acts + r * stride, x, w->cols);
    }
    mem_free(x);
}

static void bench_one(const struct measure *m, enum dtype type, const struct shape *shape, const uint32_t *rows,
                      int n_rows) {
    struct packed w;
    if (pack_random(&w, type, shape) != 0) return;
    size_t act_stride = (kernels.act_bytes(w.kind, w.cols) + 63) & ~(size_t)63;
    char *acts = mem_aligned(ROWS_MAX, act_stride), name[64];
    float *y = mem_alloc((size_t)rows[n_rows - 1], (size_t)w.rows * sizeof *y);
    if (!acts || !y) exit(1);
    acts_prepare(&w, acts, act_stride);
    double bytes = (double)w.groups * (double)w.group_bytes, read = roof_read(m, w.data, w.groups * w.group_bytes);
    snprintf(name, sizeof name, "%s %u x %u", shape->what, w.rows, w.cols);
    for (int i = 0; i < n_rows; i++) {
        struct product_job job = {&w, acts, act_stride, rows[i], y, 0};
        measure_print(m, &(struct measure_result){.kernel = dtype_info(type)->name,
                                                  .shape = name,
                                                  .rows = rows[i],
                                                  .seconds = product_seconds(m, &job),
                                                  .macs = (double)w.rows * w.cols * rows[i],
                                                  .peak = w.kind == PACK_INT ? m->int8 : m->fp32,
                                                  .bytes = bytes,
                                                  .read = read});
    }
    mem_free(acts), mem_free(y), mem_free(w.data);
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
    struct measure m = {.program = "matmul", .level = kernels_best(), .threads = 1};
    enum dtype types[LIST_MAX];
    uint32_t rows[LIST_MAX] = {1, 2, 4, 8, 16, 32, 64};
    int n_types = sizeof all_types / sizeof *all_types, n_rows = 7, bad = 0;
    const char *only = NULL;
    memcpy(types, all_types, sizeof all_types);
    for (int i = 1, used; i < argc; i += used) {
        if (measure_option(&m, argc, argv, i, &used)) continue;
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        used = 2;
        if (!strcmp(argv[i], "--types"))
            n_types = parse_types(value, types);
        else if (!strcmp(argv[i], "--rows"))
            n_rows = parse_rows(value, rows);
        else if (!strcmp(argv[i], "--shape"))
            only = value;
        else
            bad = 1;
    }
    if (bad || n_types < 1 || n_rows < 1 || kernels_init(&kernels, m.level) != 0)
        return fprintf(stderr, "bench_matmul: bad threads, types, rows (ascending, up to %d) or level\n", ROWS_MAX), 2;
    measure_machine(&m);
    for (int t = 0; t < n_types; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            if (!only || strcmp(only, shapes[s].what) == 0) bench_one(&m, types[t], &shapes[s], rows, n_rows);
    return 0;
}
