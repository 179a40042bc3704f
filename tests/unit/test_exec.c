/* The executor: whatever the batch, the chunks, the threads, the pages or the level, a row's logits are the bits that
 * the plain execution (exec_model.c) gives for it alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "base/mem.h"
#include "base/rng.h"
#include "exec_model.h"

enum { ROWS = 4, PAGES = 64, TABLE = MODEL_TOKENS_MAX / BACKEND_PAGE_TOKENS + 1, TOKENS_MAX = 128 };

static const uint32_t row_lengths[ROWS] = {131, 5, 70, 33};

/* Rows, their right logits, and the pages they live in. */
struct bench {
    struct tiny_model model;
    int32_t tokens[ROWS][MODEL_TOKENS_MAX];
    float *right[ROWS], *right_hidden[ROWS];
    char *arena[PROGRAM_GROUPS_MAX];
    uint32_t table[ROWS][PROGRAM_GROUPS_MAX][TABLE];
    struct backend *backend;
    struct backend_program *program;
};

static void rows_init(struct bench *b, uint64_t seed) {
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < MODEL_TOKENS_MAX; i++)
            b->tokens[r][i] = (int32_t)(rng_u64(seed, 100 + r, i) % MODEL_VOCAB);
        b->right[r] = malloc((size_t)row_lengths[r] * MODEL_VOCAB * sizeof(float));
        b->right_hidden[r] = malloc((size_t)row_lengths[r] * hidden_width(&b->model.program) * sizeof(float));
        plain_run(&b->model.program, b->tokens[r], row_lengths[r], b->right[r], b->right_hidden[r]);
        for (uint32_t i = 0; i < row_lengths[r] * MODEL_VOCAB; i++) assert_true(isfinite(b->right[r][i]));
    }
    for (uint32_t g = 0; g < b->model.program.n_groups; g++)
        b->arena[g] = malloc(PAGES * backend_page_bytes(&b->model.program.groups[g]));
}

static void bench_init(struct bench *b, uint64_t seed, struct model_options o) {
    memset(b, 0, sizeof *b);
    tiny_model_init(&b->model, seed, o);
    rows_init(b, seed);
}

static void bench_deinit(struct bench *b) {
    for (uint32_t r = 0; r < ROWS; r++) free(b->right[r]), free(b->right_hidden[r]);
    for (uint32_t g = 0; g < b->model.program.n_groups; g++) free(b->arena[g]);
    tiny_model_deinit(&b->model);
}

static void bench_open(struct bench *b, const char *level, int threads, uint32_t tokens_max) {
    assert_int_equal(backend_open(&(struct backend_options){level, threads}, &b->backend, NULL), 0);
    assert_string_equal(backend_level(b->backend), level);
    assert_int_equal(backend_threads(b->backend), threads);
    assert_int_equal(
        backend_compile(b->backend, &b->model.program, tokens_max, ROWS, tokens_max, NULL, NULL, &b->program, NULL), 0);
}

static void bench_close(struct bench *b) {
    backend_program_free(b->program);
    backend_close(b->backend);
}

/* Every row gets its pages in an order that the seed shuffles; the arenas start as noise. */
static void pages_deal(struct bench *b, uint64_t seed) {
    for (uint32_t g = 0; g < b->model.program.n_groups; g++) {
        uint32_t ids[PAGES];
        for (uint32_t i = 0; i < PAGES; i++) ids[i] = i;
        for (uint32_t i = PAGES - 1; i > 0; i--) {
            uint32_t j = (uint32_t)(rng_u64(seed, g, i) % (i + 1)), id = ids[i];
            ids[i] = ids[j];
            ids[j] = id;
        }
        const struct program_group *group = &b->model.program.groups[g];
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t i = 0; i < TABLE; i++) {
                uint32_t pos = i * BACKEND_PAGE_TOKENS,
                         holds = pos >= group->begin && (!group->end || pos < group->end);
                b->table[r][g][i] = holds ? ids[r * TABLE + i] : UINT32_MAX; /* a page far outside */
            }
        memset(b->arena[g], 0xff, PAGES * backend_page_bytes(&b->model.program.groups[g]));
    }
}

/* ---- Running rows in chunks ---- */

enum { IDS = MODEL_VOCAB / 32 + 1, WANTS = 16 };

struct call { /* what a batch's consumer compares with */
    struct bench *bench;
    uint32_t row[ROWS], first_output_pos[ROWS];             /* by item */
    _Atomic uint32_t seen, wrong, wrong_peaks, seen_hidden; /* that one in floats */
    uint32_t asked;
    uint64_t wants;          /* seed of what is wanted of the outputs; 0: everything, and nobody asks */
    _Atomic uint32_t spared; /* outputs with other logits than the right ones where none were wanted */
};

/* Some ways to want something, by number: all, none, or ids of at most two groups (with the last one, of which bits of
 * no id speak, as many as are computed one by one: 140 / 64, rounded up), of some more, or of all. */
enum { WANT_ALL = 3, WANT_NONE = 5, WANT_FEW = 12 };
static enum batch_wants want(uint32_t way, uint32_t ids[IDS]) {
    memset(ids, 0, IDS * sizeof *ids);
    if (way <= WANT_ALL) return BATCH_ALL;
    if (way <= WANT_NONE) return BATCH_NONE;
    uint32_t n = way <= WANT_FEW ? 1 + way % 2 : way < 15 ? 3 : 900;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = way == 6 ? MODEL_VOCAB - 1 : (uint32_t)(rng_u64(3, way, i) % MODEL_VOCAB);
        ids[id / 32] |= 1u << id % 32;
    }
    ids[MODEL_VOCAB / 32] |= ~0u << MODEL_VOCAB % 32; /* bits of no token */
    return BATCH_SOME;
}

/* Below WANTS the seed is the way itself, of all but the first output. */
static uint32_t way_of(uint64_t seed, uint32_t row, uint32_t pos) {
    return (uint32_t)(seed > WANTS ? rng_u64(seed, row, pos) % WANTS : pos ? seed : WANT_ALL);
}

static enum batch_wants wants(void *user, uint32_t item, uint32_t output, const uint32_t **ids) {
    static uint32_t all[WANTS][IDS];
    struct call *c = user;
    uint32_t way = way_of(c->wants, c->row[item], c->first_output_pos[item] + output);
    c->asked++;
    enum batch_wants wants = want(way, all[way]);
    if (wants == BATCH_SOME) *ids = all[way];
    return wants;
}

static int32_t best_of(const float *x) {
    int32_t best = 0;
    for (int32_t i = 1; i < MODEL_VOCAB; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void check_logits(void *user, uint32_t item, uint32_t output, const struct logits *logits, float *scratch) {
    struct call *c = user;
    uint32_t row = c->row[item], pos = c->first_output_pos[item] + output;
    const float *right = c->bench->right[row] + (size_t)pos * MODEL_VOCAB;
    uint32_t way = c->wants ? way_of(c->wants, row, pos) : WANT_ALL, ids[IDS];
    memset(scratch, 0x55, MODEL_VOCAB * sizeof(float));
    c->seen++;
    enum batch_wants wanted = want(way, ids);
    int wrong = 0;
    if (wanted != BATCH_ALL) {
        for (uint32_t i = 0; wanted == BATCH_SOME && i < MODEL_VOCAB; i++)
            wrong |= (ids[i / 32] >> i % 32 & 1) && memcmp(logits->x + i, right + i, sizeof(float)) != 0;
        c->wrong += (uint32_t)wrong;
        c->spared += memcmp(logits->x, right, MODEL_VOCAB * sizeof(float)) != 0;
        return;
    }
    c->wrong += memcmp(logits->x, right, MODEL_VOCAB * sizeof(float)) != 0;
    for (uint32_t i = 0; i < MODEL_VOCAB; i++) /* the peaks are reached, and not passed */
        c->wrong_peaks += !(logits->x[i] <= logits->peaks[i / LOGITS_SPAN]);
    c->wrong_peaks += logits_best(backend_vecops(c->bench->backend), logits) != best_of(logits->x);
}

static void check_hidden(void *user, uint32_t item, const struct hidden *hidden) {
    struct call *c = user;
    uint32_t width = hidden_width(&c->bench->model.program), pos = c->first_output_pos[item];
    for (uint32_t o = 0; o < hidden->rows; o++) {
        const float *right = c->bench->right_hidden[c->row[item]] + (size_t)(pos + o) * width + hidden->first;
        c->wrong += memcmp(hidden->x + o * hidden->stride, right, hidden->columns * sizeof(float)) != 0;
    }
    c->seen_hidden += hidden->rows * hidden->columns;
}

struct item_plan {
    uint32_t row, pos, n, outputs;
    int hidden;
};

static void batch_fill(struct bench *b, const struct item_plan *plan, uint32_t n, struct batch_item *items,
                       struct call *call, struct batch *batch) {
    *batch = (struct batch){
        .n_items = n, .items = items, .consume = check_logits, .take_hidden = check_hidden, .user = call};
    call->bench = b;
    call->seen = call->wrong = call->wrong_peaks = call->seen_hidden = call->spared = 0;
    call->asked = 0;
    call->wants = 0;
    for (uint32_t i = 0; i < n; i++) {
        items[i] = (struct batch_item){.first_pos = plan[i].pos,
                                       .n_tokens = plan[i].n,
                                       .tokens = b->tokens[plan[i].row] + plan[i].pos,
                                       .n_outputs = plan[i].outputs,
                                       .hidden = (uint8_t)plan[i].hidden};
        call->row[i] = plan[i].row;
        call->first_output_pos[i] = plan[i].pos + plan[i].n - plan[i].outputs;
        for (uint32_t g = 0; g < b->model.program.n_groups; g++) items[i].table[g] = b->table[plan[i].row][g];
    }
    for (uint32_t g = 0; g < b->model.program.n_groups; g++) batch->arena[g] = b->arena[g];
}

/* Wanting what the seed says (0: everything) of the outputs. Returns of how many not all logits were computed. */
static uint32_t batch_run_wanting(struct bench *b, const struct item_plan *plan, uint32_t n, uint64_t wants_seed) {
    struct batch_item items[ROWS];
    struct call call;
    struct batch batch;
    uint32_t outputs = 0, hidden = 0;
    for (uint32_t i = 0; i < n; i++) *(plan[i].hidden ? &hidden : &outputs) += plan[i].outputs;
    batch_fill(b, plan, n, items, &call, &batch);
    call.wants = wants_seed;
    if (wants_seed) batch.wants = wants;
    assert_int_equal(backend_launch(b->program, &batch), 0);
    assert_int_equal(backend_wait(b->program, NULL), 0);
    assert_int_equal(call.seen, outputs);
    assert_int_equal(call.seen_hidden, hidden * hidden_width(&b->model.program));
    assert_int_equal(call.wrong, 0);
    assert_int_equal(call.wrong_peaks, 0);
    assert_int_equal(call.asked, wants_seed ? outputs : 0);
    return call.spared;
}

static void batch_run(struct bench *b, const struct item_plan *plan, uint32_t n) {
    assert_int_equal(batch_run_wanting(b, plan, n, 0), 0);
}

/* One row alone in chunks; `every`: all positions have outputs, else only the last. */
static void run_alone(struct bench *b, uint32_t row, uint32_t chunk, int every, int hidden) {
    for (uint32_t pos = 0; pos < row_lengths[row]; pos += chunk) {
        uint32_t n = row_lengths[row] - pos < chunk ? row_lengths[row] - pos : chunk;
        int last = pos + n == row_lengths[row];
        batch_run(b, &(struct item_plan){row, pos, n, every ? n : (uint32_t)last, hidden}, 1);
    }
}

/* All rows together, each starting one batch after the one before, with chunks of different sizes and mixed outputs. */
static void run_together(struct bench *b, uint32_t chunk, uint64_t seed) {
    uint32_t pos[ROWS] = {0};
    for (uint32_t step = 0;; step++) {
        struct item_plan plan[ROWS];
        uint32_t n = 0, budget = TOKENS_MAX;
        for (uint32_t i = 0; i < ROWS; i++) {
            uint32_t row = (i + step) % ROWS, left = row_lengths[row] - pos[row];
            uint32_t take = 1 + (uint32_t)(rng_u64(seed, row, step) % chunk);
            if (step < row || left == 0) continue;
            take = take < left ? take : left;
            take = take < budget ? take : budget;
            if (take == 0) continue;
            uint32_t outputs = (uint32_t)(rng_u64(seed, row, step + 1000) % (take + 1));
            plan[n++] = (struct item_plan){row, pos[row], take, outputs, rng_u64(seed, row, step + 2000) % 2 != 0};
            pos[row] += take;
            budget -= take;
        }
        if (n) batch_run(b, plan, n);
        int left = 0;
        for (uint32_t r = 0; r < ROWS; r++) left |= pos[r] < row_lengths[r];
        if (!left) return;
    }
}

static void run_all_ways(struct bench *b, const char *level, int threads, uint64_t seed) {
    static const uint32_t chunks[] = {1, 3, 16, 64};
    bench_open(b, level, threads, TOKENS_MAX);
    int slow = strcmp(level, "ref") == 0; /* once is enough: what differs between chunks is the same code */
    for (size_t i = slow ? 2 : 0; i < (slow ? 3 : sizeof chunks / sizeof *chunks); i++) {
        pages_deal(b, seed + i);
        for (uint32_t row = 0; row < ROWS; row++) run_alone(b, row, chunks[i], 1, row % 2);
        pages_deal(b, seed + i + 10);
        for (uint32_t row = 0; row < ROWS; row++) run_alone(b, row, chunks[i], 0, row % 2 == 0);
        pages_deal(b, seed + i + 20);
        run_together(b, chunks[i], seed + i);
    }
    bench_close(b);
}

static void same_bits_every_way(struct model_options o) {
    struct bench b;
    bench_init(&b, 42 + (uint64_t)o.kv_heads, o);
    const char *level;
    for (unsigned l = 0; (level = kernels_level(l)); l++) {
        if (!kernels_available(level)) continue;
        int slow = strcmp(level, "ref") == 0;
        for (int threads = slow ? 3 : 1; threads <= (slow ? 3 : 4); threads++)
            run_all_ways(&b, level, threads, (uint64_t)threads);
    }
    bench_deinit(&b);
}

static void tied_head(void **state) {
    (void)state;
    same_bits_every_way((struct model_options){.tied = 1, .kv_heads = 1});
}
static void own_head_early_select(void **state) {
    (void)state;
    same_bits_every_way((struct model_options){.select_early = 1, .kv_heads = 2});
}
static void every_head_its_own(void **state) {
    (void)state;
    same_bits_every_way((struct model_options){.tied = 1, .select_early = 1, .kv_heads = 4});
}

static void codes_from_the_start(void **state) {
    (void)state;
    same_bits_every_way((struct model_options){.tied = 1, .kv_heads = 2, .key_form = FORM_Q8, .value_form = FORM_Q8});
    same_bits_every_way((struct model_options){.kv_heads = 1, .key_form = FORM_Q4, .value_form = FORM_Q4});
}

/* Chunks go over the position where the form changes, and windows see both sides. */
static void codes_from_a_position_on(void **state) {
    (void)state;
    same_bits_every_way(
        (struct model_options){.tied = 1, .kv_heads = 1, .key_form = FORM_Q4, .value_form = FORM_Q8, .after = 64});
    same_bits_every_way(
        (struct model_options){.kv_heads = 4, .key_form = FORM_F16, .value_form = FORM_Q4, .after = 32});
}

/* The form is seen in the bits from the first token that it holds on, and in nothing more than it must. */
static void codes_are_near(void **state) {
    (void)state;
    static const struct {
        enum state_form form;
        uint32_t after;
        double most;
    } cases[] = {{FORM_Q8, 0, 0.1}, {FORM_Q4, 0, 1.5}, {FORM_Q8, 64, 0.1}, {FORM_Q4, 64, 1.5}};
    enum { N = 131 };
    struct bench b;
    bench_init(&b, 43, (struct model_options){.kv_heads = 2});
    float *logits = malloc((size_t)N * MODEL_VOCAB * sizeof(float));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct tiny_model m;
        tiny_model_init(
            &m, 43,
            (struct model_options){
                .kv_heads = 2, .key_form = cases[c].form, .value_form = cases[c].form, .after = cases[c].after});
        plain_run(&m.program, b.tokens[0], N, logits, NULL);
        size_t same = (size_t)cases[c].after * MODEL_VOCAB;
        assert_memory_equal(logits, b.right[0], same * sizeof(float));
        double sum = 0;
        for (size_t i = same; i < (size_t)N * MODEL_VOCAB; i++)
            sum += ((double)logits[i] - (double)b.right[0][i]) * ((double)logits[i] - (double)b.right[0][i]);
        double distance = sqrt(sum / (double)((size_t)N * MODEL_VOCAB - same));
        print_message("form %d after %u: logits differ by %.3g\n", cases[c].form, cases[c].after, distance);
        assert_true(distance > 1e-4 && distance < cases[c].most);
        tiny_model_deinit(&m);
    }
    free(logits);
    bench_deinit(&b);
}

static void long_rows_are_cut(void **state) {
    (void)state;
    struct bench b = {0};
    wide_model_init(&b.model, 9);
    rows_init(&b, 9);
    const char *level;
    for (unsigned l = 0; (level = kernels_level(l)); l++) {
        if (!kernels_available(level)) continue;
        for (int threads = 1; threads <= 4; threads++) {
            bench_open(&b, level, threads, TOKENS_MAX);
            for (int hidden = 0; hidden < 2; hidden++) {
                batch_run(&b, &(struct item_plan){0, 0, 128, 128, hidden}, 1);
                batch_run(&b, (struct item_plan[]){{0, 2, 70, 30, hidden}, {2, 0, 50, 50, !hidden}, {1, 0, 5, 1, 0}},
                          3);
            }
            bench_close(&b);
        }
    }
    bench_deinit(&b);
}

/* Returns how many outputs were spared some of their logits. */
static uint32_t run_wanting(struct bench *b) {
    uint32_t spared = 0;
    for (uint64_t seed = 101; seed <= 108; seed++) {
        spared += batch_run_wanting(b, &(struct item_plan){0, 0, 128, 128, 0}, 1, seed);
        struct item_plan mixed[] = {{0, 2, 60, 17, 0}, {2, 0, 30, 30, seed % 2 != 0}, {1, 0, 5, 1, 0}, {3, 0, 9, 9, 0}};
        spared += batch_run_wanting(b, mixed, 4, seed + 100);
    }
    /* Nothing is wanted whole, of one output or of several tiles of them; and one output is, in the first tile. */
    static const uint64_t ways[] = {WANT_NONE, WANT_FEW};
    for (int i = 0; i < 2; i++) {
        batch_run_wanting(b, &(struct item_plan){0, 2, 60, 1, 0}, 1, ways[i]);
        spared += batch_run_wanting(b, &(struct item_plan){0, 2, 100, 100, 0}, 1, ways[i]);
        spared += batch_run_wanting(b, &(struct item_plan){0, 0, 66, 66, 0}, 1, ways[i]);
    }
    return spared;
}

/* Whatever is wanted of a row's neighbours, and of itself: every logit that is wanted has its bits, in whatever order
 * the head takes the outputs, behind more than one tile of them and beside hidden vectors. */
static void wanted_logits_are_right(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct bench b;
        bench_init(&b, 11, (struct model_options){.tied = tied, .kv_heads = 2});
        const char *level;
        for (unsigned l = 0; (level = kernels_level(l)); l++) {
            if (!kernels_available(level)) continue;
            for (int threads = 1; threads <= 4; threads += 3) {
                bench_open(&b, level, threads, TOKENS_MAX);
                pages_deal(&b, 5);
                /* Nine of sixteen ways are spared, and of the fixed ones all; what was there may happen to be right. */
                assert_in_range(run_wanting(&b), (8 * 128 * 9 / 16 + 2 * 165) * 3 / 4, 8 * (128 + 57) + 2 * 166);
                bench_close(&b);
            }
        }
        bench_deinit(&b);
    }
}

/* A wrong row must be seen: the comparison above can fail. */
static void comparison_can_fail(void **state) {
    (void)state;
    struct bench b;
    bench_init(&b, 7, (struct model_options){.kv_heads = 2});
    bench_open(&b, "ref", 2, TOKENS_MAX);
    pages_deal(&b, 1);
    b.tokens[0][3]++;
    struct batch_item items[ROWS];
    struct call call;
    struct batch batch;
    batch_fill(&b, &(struct item_plan){0, 0, 40, 40, 0}, 1, items, &call, &batch);
    assert_int_equal(backend_launch(b.program, &batch), 0);
    assert_int_equal(backend_wait(b.program, NULL), 0);
    assert_int_equal(call.seen, 40);
    assert_int_equal(call.wrong, 37); /* positions 3 .. 39 */
    bench_close(&b);
    bench_deinit(&b);
}

/* ---- Tokens that are still in flight ---- */

struct greedy {
    const struct vecops *vec;
    int32_t *slot;
    float *logits; /* a copy of each output */
};

static void take_best(void *user, uint32_t item, uint32_t output, const struct logits *logits, float *scratch) {
    struct greedy *g = user;
    (void)item, (void)output, (void)scratch;
    memcpy(g->logits, logits->x, MODEL_VOCAB * sizeof(float));
    *g->slot = (int32_t)logits_best(g->vec, logits);
}

static void two_in_flight(void **state) {
    (void)state;
    enum { PROMPT = 50, NEW = 60 };
    struct bench b;
    bench_init(&b, 11, (struct model_options){.tied = 1, .kv_heads = 2});
    for (int threads = 1; threads <= 3; threads++) {
        bench_open(&b, kernels_best(), threads, TOKENS_MAX);
        pages_deal(&b, 5);
        float *logits = malloc((size_t)(NEW + 1) * MODEL_VOCAB * sizeof(float));
        int32_t slots[2], sampled[NEW + 1];
        struct batch_item items[NEW + 1];
        struct greedy greedy[NEW + 1];
        uint64_t busy;
        assert_true(backend_done(b.program));
        assert_int_equal(backend_wait(b.program, &busy), COHORT_E_AGAIN);
        for (int i = 0; i <= NEW; i++) {
            greedy[i] = (struct greedy){backend_vecops(b.backend), &slots[i % 2], logits + (size_t)i * MODEL_VOCAB};
            items[i] = (struct batch_item){.first_pos = i ? (uint32_t)(PROMPT + i - 1) : 0,
                                           .n_tokens = i ? 1 : PROMPT,
                                           .tokens = i ? NULL : b.tokens[0],
                                           .slot = (uint32_t)(i + 1) % 2,
                                           .n_outputs = 1};
            for (uint32_t g = 0; g < 2; g++) items[i].table[g] = b.table[0][g];
            struct batch batch = {.n_items = 1,
                                  .items = &items[i],
                                  .arena = {b.arena[0], b.arena[1]},
                                  .slots = slots,
                                  .consume = take_best,
                                  .user = &greedy[i]};
            assert_int_equal(backend_launch(b.program, &batch), 0);
            if (i == 0) continue;
            if (i == 1) assert_int_equal(backend_launch(b.program, &batch), COHORT_E_BUSY);
            assert_int_equal(backend_wait(b.program, &busy), 0);
        }
        assert_int_equal(backend_wait(b.program, &busy), 0);
        assert_int_equal(backend_wait(b.program, &busy), COHORT_E_AGAIN);

        int32_t row[MODEL_TOKENS_MAX];
        memcpy(row, b.tokens[0], PROMPT * sizeof *row);
        for (int i = 0; i <= NEW; i++) {
            sampled[i] = best_of(logits + (size_t)i * MODEL_VOCAB);
            if (i < NEW) row[PROMPT + i] = sampled[i];
        }
        float *right = malloc((size_t)(PROMPT + NEW) * MODEL_VOCAB * sizeof(float));
        plain_run(&b.model.program, row, PROMPT + NEW, right, NULL);
        assert_memory_equal(logits, right + (size_t)(PROMPT - 1) * MODEL_VOCAB,
                            (size_t)(NEW + 1) * MODEL_VOCAB * sizeof(float));
        free(right);
        free(logits);
        bench_close(&b);
    }
    bench_deinit(&b);
}

/* ---- Opening and compiling ---- */

static void bad_levels(void **state) {
    (void)state;
    struct backend *backend;
    cohort_error err;
    assert_int_equal(backend_open(&(struct backend_options){"sse9", 1}, &backend, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "cpu");
    assert_non_null(strstr(err.text, "sse9"));
    assert_int_equal(backend_open(&(struct backend_options){NULL, -1}, &backend, &err), COHORT_E_ARGUMENT);
    assert_int_equal(backend_open(&(struct backend_options){NULL, BACKEND_THREADS_MAX + 1}, &backend, &err),
                     COHORT_E_ARGUMENT);
    for (unsigned l = 0; kernels_level(l); l++) {
        int code = backend_open(&(struct backend_options){kernels_level(l), 1}, &backend, &err);
        assert_int_equal(code, kernels_available(kernels_level(l)) ? 0 : COHORT_E_UNSUPPORTED);
        if (!code) backend_close(backend);
    }
    assert_int_equal(backend_open(&(struct backend_options){NULL, 0}, &backend, NULL), 0);
    assert_string_equal(backend_level(backend), kernels_best());
    assert_int_equal(backend_threads(backend), backend_cpus());
    backend_close(backend);
}

static void bad_types(void **state) {
    (void)state;
    struct bench b;
    cohort_error err;
    bench_init(&b, 3, (struct model_options){.kv_heads = 1});
    assert_int_equal(backend_open(&(struct backend_options){"ref", 2}, &b.backend, NULL), 0);
    struct program *program = &b.model.program;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        if (program->ops[i].tensor < 0) continue;
        struct program_tensor *t = &program->tensors[program->ops[i].tensor], saved = *t;
        t->type = DTYPE_IQ1_M;
        t->name = "the_odd_one";
        assert_int_equal(backend_compile(b.backend, program, 8, 1, 8, NULL, NULL, &b.program, &err),
                         COHORT_E_UNSUPPORTED);
        assert_string_equal(err.field, "the_odd_one");
        assert_non_null(strstr(err.text, "IQ1_M"));
        *t = saved;
    }
    backend_close(b.backend);
    bench_deinit(&b);
}

static void take_progress(void *user, double fraction) {
    double *last = user;
    assert_true(fraction >= *last && fraction <= 1);
    *last = fraction;
}

static void tensors_after_compiling(void **state) {
    (void)state;
    struct bench b;
    double progress = 0;
    bench_init(&b, 3, (struct model_options){.tied = 1, .kv_heads = 1});
    assert_int_equal(backend_open(&(struct backend_options){"ref", 2}, &b.backend, NULL), 0);
    assert_int_equal(backend_compile(b.backend, &b.model.program, 8, 1, 8, take_progress, &progress, &b.program, NULL),
                     0);
    assert_true(progress == 1);
    assert_true(backend_program_bytes(b.program) > 100000);
    /* The embedding table is the head, too: nothing of the file's bytes is needed any more. */
    for (uint32_t i = 0; i < b.model.program.n_tensors; i++)
        memset((void *)b.model.program.tensors[i].data, 0xff, b.model.program.tensors[i].bytes);
    batch_run(&b, &(struct item_plan){1, 0, 5, 5, 1}, 1);
    bench_close(&b);
    bench_deinit(&b);
}

static void failed_allocations(void **state) {
    (void)state;
    struct bench b;
    bench_init(&b, 3, (struct model_options){.kv_heads = 1});
    for (uint64_t nth = 1;; nth++) {
        cohort_error err;
        mem_fail_at(nth, 0);
        int code = backend_open(&(struct backend_options){"ref", 2}, &b.backend, &err);
        if (code) {
            assert_int_equal(code, COHORT_E_MEMORY);
            continue;
        }
        code = backend_compile(b.backend, &b.model.program, 8, 2, 8, NULL, NULL, &b.program, &err);
        mem_fail_at(0, 0);
        if (!code) break;
        assert_int_equal(code, COHORT_E_MEMORY);
        backend_close(b.backend);
    }
    bench_close(&b);
    bench_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_head),
        cmocka_unit_test(own_head_early_select),
        cmocka_unit_test(every_head_its_own),
        cmocka_unit_test(wanted_logits_are_right),
        cmocka_unit_test(comparison_can_fail),
        cmocka_unit_test(codes_from_the_start),
        cmocka_unit_test(codes_from_a_position_on),
        cmocka_unit_test(codes_are_near),
        cmocka_unit_test(long_rows_are_cut),
        cmocka_unit_test(two_in_flight),
        cmocka_unit_test(bad_levels),
        cmocka_unit_test(bad_types),
        cmocka_unit_test(tensors_after_compiling),
        cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
