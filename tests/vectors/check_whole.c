/* A whole real model against itself: the same logits, bit for bit, whatever the chunks of its prompt, the threads, the
 * level, and the number of rows beside it. Logits are kept as hashes, because a vocabulary's worth of them is large.
 *
 * usage: test_whole MODEL.gguf    skips if there is no such file */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/mem.h"
#include "base/rng.h"
#include "format/gguf.h"
#include "model/model.h"

enum {
    PROMPT = 512, /* tokens in chunks, the last of which has an output */
    TAIL = 8,     /* more tokens, all of which have one */
    ROWS = 67,
    ROW_TOKENS = 20, /* of each row of a company */
    TOKENS_MAX = PROMPT,
    LONG_PAGES = (PROMPT + TAIL) / BACKEND_PAGE_TOKENS + 1,
};

static struct model_file *file;
static struct model *model;
static int32_t ids[ROWS][PROMPT + TAIL];

struct whole {
    struct backend *backend;
    struct backend_program *compiled;
    void *arena[PROGRAM_GROUPS_MAX];
    size_t bytes[PROGRAM_GROUPS_MAX];
    uint32_t table[ROWS][LONG_PAGES]; /* of every group; row 0 has room for the long prompt */
    int32_t slots[ROWS];
    uint64_t hash[ROWS][TAIL + 1]; /* of each item's outputs, in the last batch */
};

static void whole_open(struct whole *m, const char *level, int threads) {
    const struct program *p = model_program(model);
    struct backend_options options = {.level = level, .threads = threads};
    cohort_error err = {0};
    memset(m, 0, sizeof *m);
    if (backend_open(&options, &m->backend, &err) ||
        backend_compile(m->backend, p, TOKENS_MAX, ROWS, ROWS, NULL, NULL, &m->compiled, &err))
        fail_msg("%s: %s", level, err.text);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        m->bytes[g] = backend_page_bytes(&p->groups[g]) * (LONG_PAGES + ROWS);
        m->arena[g] = mem_map(m->bytes[g]);
        assert_non_null(m->arena[g]);
    }
    for (uint32_t i = 0; i < LONG_PAGES; i++) m->table[0][i] = i * 5 % LONG_PAGES;
    for (uint32_t row = 1; row < ROWS; row++) m->table[row][0] = LONG_PAGES + row;
}

static void whole_close(struct whole *m) {
    backend_program_free(m->compiled);
    backend_close(m->backend);
    for (uint32_t g = 0; g < model_program(model)->n_groups; g++) mem_unmap(m->arena[g], m->bytes[g]);
}

static void consume(void *user, uint32_t item, uint32_t output, const struct logits *logits, float *scratch) {
    struct whole *m = user;
    uint64_t hash = UINT64_C(14695981039346656037);
    (void)scratch;
    for (uint32_t i = 0; i < logits->n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits->x[i], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(1099511628211);
    }
    m->hash[item][output] = hash;
}

/* One batch: tokens [first, first + n) of rows 0 .. n_rows - 1, with outputs for the last `outputs`. */
static void step(struct whole *m, uint32_t n_rows, uint32_t first, uint32_t n, uint32_t outputs) {
    struct batch_item items[ROWS];
    struct batch batch = {.n_items = n_rows, .items = items, .slots = m->slots, .consume = consume, .user = m};
    for (uint32_t row = 0; row < n_rows; row++) {
        items[row] = (struct batch_item){
            .first_pos = first, .n_tokens = n, .tokens = ids[row] + first, .slot = row, .n_outputs = outputs};
        for (uint32_t g = 0; g < model_program(model)->n_groups; g++) items[row].table[g] = m->table[row];
    }
    memcpy(batch.arena, m->arena, sizeof batch.arena);
    assert_int_equal(backend_launch(m->compiled, &batch), 0);
    assert_int_equal(backend_wait(m->compiled, NULL), 0);
}

/* Hashes after the prompt's last token and each one of the tail. */
static void run_prompt(struct whole *m, uint32_t chunk, uint64_t out[TAIL + 1]) {
    for (uint32_t at = 0; at < PROMPT; at += chunk) {
        uint32_t n = PROMPT - at < chunk ? PROMPT - at : chunk;
        step(m, 1, at, n, at + n == PROMPT);
    }
    out[0] = m->hash[0][0];
    step(m, 1, PROMPT, TAIL, TAIL);
    memcpy(out + 1, m->hash[0], TAIL * sizeof *out);
}

static void same(const uint64_t *got, const uint64_t *want, uint32_t n, const char *level, int threads, uint32_t how) {
    for (uint32_t i = 0; i < n; i++)
        if (got[i] != want[i]) fail_msg("level %s, %d threads, %u: output %u differs", level, threads, how, i);
}

static void chunks_threads_and_levels_change_nothing(void **state) {
    (void)state;
    static const uint32_t chunks[] = {511, 64, 16, 3, 1};
    struct whole m;
    uint64_t want[TAIL + 1], got[TAIL + 1];
    whole_open(&m, kernels_best(), 2);
    run_prompt(&m, PROMPT, want);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        run_prompt(&m, chunks[i], got);
        same(got, want, TAIL + 1, kernels_best(), 2, chunks[i]);
    }
    whole_close(&m);
    for (int threads = 1; threads <= 4; threads++) {
        whole_open(&m, kernels_best(), threads);
        run_prompt(&m, 64, got);
        same(got, want, TAIL + 1, kernels_best(), threads, 64);
        whole_close(&m);
    }
    const char *level;
    for (unsigned i = 0; (level = kernels_level(i)); i++) {
        if (!kernels_available(level) || strcmp(level, kernels_best()) == 0) continue;
        whole_open(&m, level, 2);
        run_prompt(&m, 100, got);
        same(got, want, TAIL + 1, level, 2, 100);
        whole_close(&m);
    }
    want[3] ^= 1; /* and a difference is seen */
    assert_memory_not_equal(got, want, sizeof got);
}

static void company_changes_nothing(void **state) {
    (void)state;
    static uint64_t want[ROWS];
    struct whole m;
    whole_open(&m, kernels_best(), 2);
    step(&m, ROWS, 0, TOKENS_MAX / ROWS, 0);
    step(&m, ROWS, TOKENS_MAX / ROWS, TOKENS_MAX / ROWS, 0);
    step(&m, ROWS, 2 * (TOKENS_MAX / ROWS), ROW_TOKENS - 1 - 2 * (TOKENS_MAX / ROWS), 0);
    for (uint32_t row = 0; row < ROWS; row++) { /* each row in row 0's place, alone */
        memcpy(m.table[0], m.table[row], sizeof m.table[0]);
        int32_t first[ROW_TOKENS];
        memcpy(first, ids[0], sizeof first);
        memcpy(ids[0], ids[row], sizeof first);
        step(&m, 1, ROW_TOKENS - 1, 1, 1);
        want[row] = m.hash[0][0];
        memcpy(ids[0], first, sizeof first);
        if (row == 0) assert_true(m.table[0][0] < LONG_PAGES);
    }
    for (uint32_t i = 0; i < LONG_PAGES; i++) m.table[0][i] = i * 5 % LONG_PAGES;
    for (uint32_t n = 1; n <= ROWS; n++) {
        step(&m, n, ROW_TOKENS - 1, 1, 1);
        for (uint32_t row = 0; row < n; row++) same(m.hash[row], &want[row], 1, kernels_best(), 2, n);
    }
    whole_close(&m);
}

int main(int argc, char **argv) {
    cohort_error err = {0};
    FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!f) {
        printf("skipped: no model file\n");
        return 77;
    }
    fclose(f);
    if (model_file_open(argv[1], &file, &err)) return fprintf(stderr, "%s\n", err.text), 1;
    const struct meta_entry *tokens = meta_find(model_file_meta(file), "tokenizer.ggml.tokens");
    if (!tokens || model_build(file, (uint32_t)tokens->count, &model, &err))
        return fprintf(stderr, "%s\n", err.text), 1;
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t i = 0; i < PROMPT + TAIL; i++) ids[row][i] = (int32_t)(rng_u64(1, row, i) % tokens->count);
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_threads_and_levels_change_nothing),
                                       cmocka_unit_test(company_changes_nothing)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_free(model);
    model_file_close(file);
    return failed;
}
