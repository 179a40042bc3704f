/* Speed of the executor alone on a model file: no scheduler, no sampler beyond an argmax per output.
 *
 *     bench_exec MODEL [--level L] [--threads N] [--seconds S]
 *
 * One line per test: prompt of 512 tokens in one batch, then decoding with 1, 8 and 32 rows behind contexts of 64
 * tokens. Rates are tokens per second of the team's busy time; the best of the repetitions, and the middle one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "model/model.h"

enum { TOKENS_MAX = 512, ROWS_MAX = 64, PAGES_PER_ROW = 18, CONTEXT = 64, RUNS_MAX = 4096 };

struct bench {
    struct backend *backend;
    struct backend_program *program;
    const struct program *plan;
    char *arena[PROGRAM_GROUPS_MAX];
    uint32_t table[ROWS_MAX][PAGES_PER_ROW];
    int32_t tokens[TOKENS_MAX];
    int64_t best[ROWS_MAX];
    uint64_t budget_us;
};

static void consume(void *user, uint32_t item, uint32_t output, float *logits, float *scratch) {
    struct bench *b = user;
    (void)output, (void)scratch;
    b->best[item] = backend_vecops(b->backend)->argmax(logits, b->plan->vocab);
}

/* One batch of n items with `each` tokens from position `pos` on; busy microseconds. */
static uint64_t batch_run(struct bench *b, uint32_t n, uint32_t each, uint32_t pos, uint32_t outputs) {
    struct batch_item items[ROWS_MAX];
    struct batch batch = {.n_items = n, .items = items, .consume = consume, .user = b};
    for (uint32_t i = 0; i < n; i++) {
        items[i] = (struct batch_item){.first_pos = pos, .n_tokens = each, .tokens = b->tokens, .n_outputs = outputs};
        for (uint32_t g = 0; g < b->plan->n_groups; g++) items[i].table[g] = b->table[i];
    }
    memcpy(batch.arena, b->arena, sizeof batch.arena);
    uint64_t busy = 0;
    if (backend_launch(b->program, &batch) || backend_wait(b->program, &busy)) abort();
    return busy;
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void measure(struct bench *b, const char *what, uint32_t n, uint32_t each, uint32_t pos, uint32_t outputs) {
    static uint64_t busy[RUNS_MAX];
    size_t runs = 0;
    uint64_t begin = clock_us();
    do busy[runs++] = batch_run(b, n, each, pos, outputs);
    while (runs < RUNS_MAX && (runs < 3 || clock_us() - begin < b->budget_us));
    qsort(busy, runs, sizeof *busy, by_size);
    double tokens = (double)n * each * 1e6;
    printf("%-8s %3u rows x %3u  best %8.1f tok/s  middle %8.1f tok/s  (%zu runs, best %llu us)\n", what, n, each,
           tokens / (double)busy[0], tokens / (double)busy[runs / 2], runs, (unsigned long long)busy[0]);
    fflush(stdout);
}

static void bench_all(struct bench *b) {
    measure(b, "prompt", 1, TOKENS_MAX, 0, 1);
    measure(b, "chunk", 1, TOKENS_MAX, 0, 0);
    static const uint32_t rows[] = {1, 2, 4, 8, 16, 32, 64};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (uint32_t done = 0; done < rows[i]; done += TOKENS_MAX / CONTEXT)
            batch_run(b, rows[i] < TOKENS_MAX / CONTEXT ? rows[i] : TOKENS_MAX / CONTEXT, CONTEXT, 0, 0);
        measure(b, "decode", rows[i], 1, CONTEXT, 1);
    }
}

static int fail(const cohort_error *err) {
    fprintf(stderr, "%s: %s\n", err->field, err->text);
    return 1;
}

int main(int argc, char **argv) {
    static struct bench b;
    struct backend_options options = {0};
    struct model_file *file;
    struct model *model;
    cohort_error err;
    b.budget_us = 3000000;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--level")) options.level = argv[i + 1];
        if (!strcmp(argv[i], "--threads")) options.threads = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--seconds")) b.budget_us = (uint64_t)(atof(argv[i + 1]) * 1e6);
    }
    if (argc < 2) {
        fprintf(stderr, "usage: bench_exec MODEL [--level L] [--threads N] [--seconds S]\n");
        return 2;
    }
    if (model_file_open(argv[1], &file, &err)) return fail(&err);
    const struct file_tensor *embedding = model_file_tensor(file, "token_embd.weight");
    if (!embedding || model_build(file, (uint32_t)embedding->dims[1], &model, &err)) return fail(&err);
    b.plan = model_program(model);
    if (backend_open(&options, &b.backend, &err)) return fail(&err);
    uint64_t begin = clock_us();
    if (backend_compile(b.backend, b.plan, TOKENS_MAX, ROWS_MAX, ROWS_MAX, NULL, NULL, &b.program, &err))
        return fail(&err);
    printf("%s, %d threads, packed %.1f MB in %.2f s\n", backend_level(b.backend), backend_threads(b.backend),
           (double)backend_program_bytes(b.program) / 1e6, (double)(clock_us() - begin) / 1e6);
    for (uint32_t g = 0; g < b.plan->n_groups; g++)
        b.arena[g] = calloc(ROWS_MAX * PAGES_PER_ROW, backend_page_bytes(&b.plan->groups[g]));
    for (uint32_t r = 0; r < ROWS_MAX; r++)
        for (uint32_t i = 0; i < PAGES_PER_ROW; i++) b.table[r][i] = r * PAGES_PER_ROW + i;
    for (uint32_t i = 0; i < TOKENS_MAX; i++) b.tokens[i] = (int32_t)((i * 7919 + 17) % b.plan->vocab);
    bench_all(&b);
    backend_program_free(b.program);
    backend_close(b.backend);
    for (uint32_t g = 0; g < b.plan->n_groups; g++) free(b.arena[g]);
    model_free(model);
    model_file_close(file);
    return 0;
}
