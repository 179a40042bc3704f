/* Speed of the executor alone on a model file: no scheduler, no sampler beyond an argmax per output.
 *
 *     bench_exec MODEL [--level L] [--threads N] [--json] [--seconds S]
 *
 * One line per test: a prompt of 512 tokens in one batch, then decoding with 1 to 64 rows behind contexts of 64 tokens.
 * The time is the team's busy time, the best of the repetitions; beside it stand the integer peak for the products
 * (attention is not counted) and the rate of reading as many bytes as the weights have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "measure.h"
#include "model/model.h"

enum { TOKENS_MAX = 512, ROWS_MAX = 64, PAGES_PER_ROW = 18, CONTEXT = 64, RUNS_MIN = 3 };

struct bench {
    struct backend *backend;
    struct backend_program *program;
    const struct program *plan;
    char *arena[PROGRAM_GROUPS_MAX];
    uint32_t table[ROWS_MAX][PAGES_PER_ROW];
    int32_t tokens[TOKENS_MAX];
    int64_t best[ROWS_MAX];
    uint64_t budget_us;
    struct measure measure;
    double read_gbs;
    double token_macs, output_macs; /* products per token, and per token whose logits are wanted */
};

static void consume(void *user, uint32_t item, uint32_t output, const struct logits *logits, float *scratch) {
    struct bench *b = user;
    (void)output, (void)scratch;
    b->best[item] = logits_best(backend_vecops(b->backend), logits);
}

/* One batch of n items with `each` tokens from position `pos` on; busy microseconds. */
static uint64_t batch_run(struct bench *b, uint32_t n, uint32_t each, uint32_t pos, uint32_t outputs) {
    struct batch_item items[ROWS_MAX];
    struct batch batch = {.n_items = n, .items = items, .consume = consume, .user = b};
    for (uint32_t i = 0; i < n; i++) {
        items[i] = (struct batch_item){.first_pos = pos, .n_tokens = each, .tokens = b->tokens, .n_outputs = outputs};
        for (uint32_t g = 0; g < b->plan->n_groups; g++) {
            items[i].table[g] = b->table[i];
            items[i].from[g] = pos ? i : BATCH_EMPTY; /* recurrent state stays in place */
            items[i].to[g] = i;
        }
    }
    memcpy(batch.arena, b->arena, sizeof batch.arena);
    uint64_t busy = 0;
    if (backend_launch(b->program, &batch) || backend_wait(b->program, &busy)) abort();
    return busy;
}

static void measure(struct bench *b, const char *what, uint32_t n, uint32_t each, uint32_t pos, uint32_t outputs) {
    char shape[48];
    uint64_t best = UINT64_MAX, begin = clock_us();
    for (int runs = 0; runs < RUNS_MIN || clock_us() - begin < b->budget_us; runs++) {
        uint64_t busy = batch_run(b, n, each, pos, outputs);
        if (busy < best) best = busy;
    }
    snprintf(shape, sizeof shape, "%u x %u tokens behind %u", n, each, pos);
    measure_print(&b->measure, &(struct measure_result){.kernel = what,
                                                        .shape = shape,
                                                        .rows = n,
                                                        .seconds = (double)best * 1e-6,
                                                        .tokens = (double)n * each,
                                                        .macs = n * (each * b->token_macs + outputs * b->output_macs),
                                                        .peak = b->measure.int8,
                                                        .bytes = (double)backend_program_bytes(b->program),
                                                        .read = b->read_gbs});
}

/* What follows a SELECT is computed for outputs only. */
static void macs_count(struct bench *b) {
    int selected = 0;
    for (uint32_t i = 0; i < b->plan->n_ops; i++) {
        const struct op *op = &b->plan->ops[i];
        selected |= op->kind == OP_SELECT;
        if (op->kind != OP_MATMUL && op->kind != OP_LOGITS) continue;
        const struct program_tensor *t = &b->plan->tensors[op->tensor];
        *(selected ? &b->output_macs : &b->token_macs) += (double)t->rows * t->cols;
    }
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

/* Opens, compiles and lays out state for the largest test. */
static int open_all(struct bench *b, const char *path, struct model_file **file, struct model **model) {
    struct backend_options options = {.level = b->measure.level, .threads = b->measure.threads};
    cohort_error err;
    if (model_file_open(path, file, &err)) return fail(&err);
    const struct file_tensor *embedding = model_file_tensor(*file, "token_embd.weight");
    if (!embedding || model_build(*file, (uint32_t)embedding->dims[1], model, &err)) return fail(&err);
    b->plan = model_program(*model);
    if (backend_open(&options, &b->backend, &err)) return fail(&err);
    b->measure.level = backend_level(b->backend);
    b->measure.threads = backend_threads(b->backend);
    if (backend_compile(b->backend, b->plan, TOKENS_MAX, ROWS_MAX, ROWS_MAX, NULL, NULL, &b->program, &err))
        return fail(&err);
    for (uint32_t g = 0; g < b->plan->n_groups; g++)
        b->arena[g] = calloc(ROWS_MAX * PAGES_PER_ROW, backend_page_bytes(&b->plan->groups[g]));
    for (uint32_t r = 0; r < ROWS_MAX; r++)
        for (uint32_t i = 0; i < PAGES_PER_ROW; i++) b->table[r][i] = r * PAGES_PER_ROW + i;
    for (uint32_t i = 0; i < TOKENS_MAX; i++) b->tokens[i] = (int32_t)((i * 7919 + 17) % b->plan->vocab);
    macs_count(b);
    return 0;
}

int main(int argc, char **argv) {
    static struct bench b = {.budget_us = 2000000, .measure = {.program = "exec"}};
    struct model_file *file;
    struct model *model;
    int bad = argc < 2;
    for (int i = 2, used; i < argc; i += used) {
        if (measure_option(&b.measure, argc, argv, i, &used)) continue;
        if (i + 1 < argc && !strcmp(argv[i], "--seconds"))
            b.budget_us = (uint64_t)(atof(argv[i + 1]) * 1e6), used = 2;
        else
            bad = 1;
    }
    if (bad) return fprintf(stderr, "usage: bench_exec MODEL [--level L] [--threads N] [--json] [--seconds S]\n"), 2;
    if (open_all(&b, argv[1], &file, &model)) return 1;
    measure_machine(&b.measure);
    b.read_gbs = roof_read_fresh(&b.measure, backend_program_bytes(b.program));
    bench_all(&b);
    backend_program_free(b.program);
    backend_close(b.backend);
    for (uint32_t g = 0; g < b.plan->n_groups; g++) free(b.arena[g]);
    model_free(model);
    model_file_close(file);
    return 0;
}
