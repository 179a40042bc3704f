/* Recurrent state in the executor: whatever the chunks, the company, the threads, the level and the pages, a row's
 * logits are the bits that the plain execution gives for it alone, and a state's page has the same bytes. A page that
 * states come from stays as it is: rows can go on from it more than once. */
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

enum { ROWS = 5, LENGTH = 90, PAGES = 3 * ROWS, TABLE = 4, TOKENS_MAX = 128 };

struct rig {
    struct tiny_model model;
    int32_t tokens[ROWS][LENGTH]; /* rows 0 and 1 begin alike */
    float *right[ROWS];
    char *arena[PROGRAM_GROUPS_MAX];
    size_t page_bytes[PROGRAM_GROUPS_MAX];
    uint32_t now[ROWS]; /* the page that holds the row's state; BATCH_EMPTY: none */
    struct backend *backend;
    struct backend_program *program;
};

enum { ALIKE = 40 };

static void rig_init(struct rig *r, uint64_t seed) {
    memset(r, 0, sizeof *r);
    hybrid_model_init(&r->model, seed);
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t i = 0; i < LENGTH; i++)
            r->tokens[row][i] = (int32_t)(rng_u64(seed, row == 1 && i < ALIKE ? 0 : row, i) % MODEL_VOCAB);
        r->right[row] = malloc((size_t)LENGTH * MODEL_VOCAB * sizeof(float));
        plain_run(&r->model.program, r->tokens[row], LENGTH, r->right[row], NULL);
        for (uint32_t i = 0; i < LENGTH * MODEL_VOCAB; i++) assert_true(isfinite(r->right[row][i]));
    }
    for (uint32_t g = 0; g < r->model.program.n_groups; g++) {
        r->page_bytes[g] = backend_page_bytes(&r->model.program.groups[g]);
        r->arena[g] = malloc((size_t)ROWS * TABLE * r->page_bytes[g]);
    }
}

static void rig_deinit(struct rig *r) {
    for (uint32_t row = 0; row < ROWS; row++) free(r->right[row]);
    for (uint32_t g = 0; g < r->model.program.n_groups; g++) free(r->arena[g]);
    tiny_model_deinit(&r->model);
}

static void rig_open(struct rig *r, const char *level, int threads) {
    assert_int_equal(backend_open(&(struct backend_options){level, threads}, &r->backend, NULL), 0);
    assert_int_equal(
        backend_compile(r->backend, &r->model.program, TOKENS_MAX, ROWS, TOKENS_MAX, NULL, NULL, &r->program, NULL), 0);
}

static void rig_close(struct rig *r) {
    backend_program_free(r->program);
    backend_close(r->backend);
}

/* No row has a state; what lies in the pages is noise. */
static void forget(struct rig *r) {
    for (uint32_t row = 0; row < ROWS; row++) r->now[row] = BATCH_EMPTY;
    for (uint32_t g = 0; g < r->model.program.n_groups; g++)
        memset(r->arena[g], 0xff, (size_t)ROWS * TABLE * r->page_bytes[g]);
}

/* ---- Batches ---- */

struct piece {
    uint32_t row, pos, n, outputs; /* the row's tokens, and its pages of attention */
    uint32_t from, to;             /* pages of recurrent state */
};

struct call {
    const struct rig *rig;
    const struct piece *pieces;
    _Atomic uint32_t seen, wrong;
};

static void compare(void *user, uint32_t item, uint32_t output, const struct logits *logits, float *scratch) {
    struct call *c = user;
    const struct piece *p = &c->pieces[item];
    uint32_t pos = p->pos + p->n - p->outputs + output;
    c->seen++;
    c->wrong += memcmp(logits->x, c->rig->right[p->row] + (size_t)pos * MODEL_VOCAB, MODEL_VOCAB * sizeof(float)) != 0;
    memset(scratch, 0x55, MODEL_VOCAB * sizeof(float));
}

static uint32_t run(struct rig *r, const struct piece *pieces, uint32_t n) {
    struct batch_item items[ROWS];
    static uint32_t tables[ROWS][TABLE];
    struct call call = {.rig = r, .pieces = pieces};
    struct batch batch = {.n_items = n, .items = items, .consume = compare, .user = &call};
    uint32_t outputs = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        items[i] = (struct batch_item){
            .first_pos = p->pos, .n_tokens = p->n, .tokens = r->tokens[p->row] + p->pos, .n_outputs = p->outputs};
        for (uint32_t t = 0; t < TABLE; t++) tables[i][t] = t * ROWS + p->row;
        for (uint32_t g = 0; g < r->model.program.n_groups; g++) {
            items[i].table[g] = tables[i];
            items[i].from[g] = p->from;
            items[i].to[g] = p->to;
        }
        outputs += p->outputs;
    }
    for (uint32_t g = 0; g < r->model.program.n_groups; g++) batch.arena[g] = r->arena[g];
    assert_int_equal(backend_launch(r->program, &batch), 0);
    assert_int_equal(backend_wait(r->program, NULL), 0);
    assert_int_equal(call.seen, outputs);
    return call.wrong;
}

static int recurrent(const struct rig *r, uint32_t g) { return r->model.program.groups[g].kind == GROUP_RECURRENT; }

static char *page(const struct rig *r, uint32_t g, uint32_t id) { return r->arena[g] + id * r->page_bytes[g]; }

/* A page's bytes in all recurrent groups. */
static char *page_copy(const struct rig *r, uint32_t id) {
    char *copy = malloc(r->page_bytes[0] + r->page_bytes[2]);
    memcpy(copy, page(r, 0, id), r->page_bytes[0]);
    memcpy(copy + r->page_bytes[0], page(r, 2, id), r->page_bytes[2]);
    return copy;
}

static void page_is(const struct rig *r, uint32_t id, char *copy) {
    assert_memory_equal(copy, page(r, 0, id), r->page_bytes[0]);
    assert_memory_equal(copy + r->page_bytes[0], page(r, 2, id), r->page_bytes[2]);
    free(copy);
}

/* The row's next piece: in place, or from one of its three pages to another. */
static struct piece next_piece(struct rig *r, uint32_t row, uint32_t pos, uint32_t n, uint32_t outputs, int in_place) {
    struct piece p = {.row = row, .pos = pos, .n = n, .outputs = outputs, .from = r->now[row]};
    p.to = p.from == BATCH_EMPTY ? row * 3 : in_place ? p.from : row * 3 + (p.from + 1) % 3;
    r->now[row] = p.to;
    return p;
}

/* ---- Ways to run all rows ---- */

static void run_alone(struct rig *r, uint32_t chunk, int every, int in_place) {
    forget(r);
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t pos = 0; pos < LENGTH; pos += chunk) {
            uint32_t n = LENGTH - pos < chunk ? LENGTH - pos : chunk, last = pos + n == LENGTH;
            struct piece p = next_piece(r, row, pos, n, every ? n : last, in_place);
            assert_int_equal(run(r, &p, 1), 0);
        }
}

static void run_together(struct rig *r, uint32_t chunk, uint64_t seed) {
    uint32_t pos[ROWS] = {0}, left = ROWS * LENGTH;
    forget(r);
    for (uint64_t step = 0; left; step++) {
        struct piece pieces[ROWS];
        uint32_t n = 0, budget = TOKENS_MAX;
        for (uint32_t i = 0; i < ROWS; i++) {
            uint32_t row = (uint32_t)(i + step) % ROWS, take = 1 + (uint32_t)(rng_u64(seed, row, step) % chunk);
            if (take > LENGTH - pos[row]) take = LENGTH - pos[row];
            if (take > budget) take = budget;
            if (step < row || take == 0) continue;
            uint64_t dice = rng_u64(seed, row, step + 1000);
            pieces[n++] = next_piece(r, row, pos[row], take, (uint32_t)(dice % (take + 1)), dice >> 40 & 1);
            pos[row] += take;
            budget -= take;
            left -= take;
        }
        if (n) assert_int_equal(run(r, pieces, n), 0);
    }
}

/* The bytes of all rows' states, in the order of rows. */
static char *states(const struct rig *r) {
    size_t each = r->page_bytes[0] + r->page_bytes[2];
    char *all = malloc(each * ROWS);
    for (uint32_t row = 0; row < ROWS; row++) {
        char *copy = page_copy(r, r->now[row]);
        memcpy(all + row * each, copy, each);
        free(copy);
    }
    return all;
}

/* NULL in *first: these are the first. */
static void same_states(const struct rig *r, char **first) {
    char *all = states(r);
    if (*first) assert_memory_equal(*first, all, (r->page_bytes[0] + r->page_bytes[2]) * ROWS);
    if (*first)
        free(all);
    else
        *first = all;
}

static void any_way(void **state) {
    (void)state;
    struct rig r;
    char *first = NULL;
    const char *level;
    rig_init(&r, 5);
    for (unsigned l = 0; (level = kernels_level(l)); l++) {
        if (!kernels_available(level)) continue;
        int slow = strcmp(level, "ref") == 0;
        for (int threads = slow ? 3 : 1; threads <= (slow ? 3 : 4); threads++) {
            static const uint32_t chunks[] = {LENGTH, 1, 3, 32};
            rig_open(&r, level, threads);
            for (size_t i = slow ? 2 : 0; i < sizeof chunks / sizeof *chunks; i++) {
                run_alone(&r, chunks[i], (int)i % 2, threads % 2);
                same_states(&r, &first);
                run_together(&r, chunks[i], (uint64_t)threads * 10 + i);
                same_states(&r, &first);
            }
            rig_close(&r);
        }
    }
    free(first);
    rig_deinit(&r);
}

/* ---- One state, several ways on ---- */

/* The pages of attention that rows 0 and 1 have in common are the same bytes. */
static void attention_copy(struct rig *r) {
    for (uint32_t g = 0; g < r->model.program.n_groups; g++)
        if (!recurrent(r, g))
            for (uint32_t t = 0; t < TABLE; t++)
                memcpy(page(r, g, t * ROWS + 1), page(r, g, t * ROWS), r->page_bytes[g]);
}

static void clone_goes_its_own_way(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 6);
    for (int threads = 1; threads <= 3; threads++) {
        rig_open(&r, kernels_best(), threads);
        forget(&r);
        assert_int_equal(run(&r, &(struct piece){0, 0, ALIKE, 0, BATCH_EMPTY, 0}, 1), 0);
        attention_copy(&r);
        char *before = page_copy(&r, 0);
        /* Both from page 0 in one batch, then each in its own page, then row 1 once more from page 0. */
        assert_int_equal(run(&r, (struct piece[]){{0, ALIKE, 5, 5, 0, 1}, {1, ALIKE, 1, 1, 0, 2}}, 2), 0);
        assert_int_equal(run(&r, (struct piece[]){{1, ALIKE + 1, 9, 9, 2, 2}, {0, ALIKE + 5, 1, 1, 1, 3}}, 2), 0);
        assert_int_equal(run(&r, &(struct piece){1, ALIKE, LENGTH - ALIKE, LENGTH - ALIKE, 0, 4}, 1), 0);
        page_is(&r, 0, before);
        rig_close(&r);
    }
    rig_deinit(&r);
}

static void rolled_back(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 7);
    rig_open(&r, kernels_best(), 2);
    forget(&r);
    assert_int_equal(run(&r, &(struct piece){2, 0, 30, 30, BATCH_EMPTY, 0}, 1), 0);
    char *before = page_copy(&r, 0), *right;
    /* Eight tokens, of which three turn out to be wrong: five of them again from where it began. */
    int32_t saved[3];
    memcpy(saved, r.tokens[2] + 35, sizeof saved);
    for (int i = 0; i < 3; i++) r.tokens[2][35 + i] = (saved[i] + 1) % MODEL_VOCAB;
    assert_int_equal(run(&r, &(struct piece){2, 30, 8, 8, 0, 1}, 1), 3);
    memcpy(r.tokens[2] + 35, saved, sizeof saved);
    page_is(&r, 0, before);
    assert_int_equal(run(&r, &(struct piece){2, 30, 5, 0, 0, 1}, 1), 0);
    assert_int_equal(run(&r, &(struct piece){2, 35, LENGTH - 35, LENGTH - 35, 1, 2}, 1), 0);
    right = page_copy(&r, 2);
    r.now[2] = BATCH_EMPTY;
    struct piece whole = next_piece(&r, 2, 0, LENGTH, LENGTH, 0);
    assert_int_equal(run(&r, &whole, 1), 0);
    page_is(&r, whole.to, right);
    rig_close(&r);
    rig_deinit(&r);
}

static void page_sizes(void **state) {
    (void)state;
    struct program_group g = {.kind = GROUP_RECURRENT, .layers = 3, .floats = 1000};
    assert_int_equal(backend_page_bytes(&g), 12000);
}

static void failed_allocations(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 8);
    assert_int_equal(backend_open(&(struct backend_options){"ref", 1}, &r.backend, NULL), 0);
    for (uint64_t nth = 1;; nth++) {
        cohort_error err;
        mem_fail_at(nth, 0);
        int code = backend_compile(r.backend, &r.model.program, 8, 2, 8, NULL, NULL, &r.program, &err);
        mem_fail_at(0, 0);
        if (!code) break;
        assert_int_equal(code, COHORT_E_MEMORY);
    }
    rig_close(&r);
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_way),    cmocka_unit_test(clone_goes_its_own_way), cmocka_unit_test(rolled_back),
        cmocka_unit_test(page_sizes), cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
