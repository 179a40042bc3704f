#include "machine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

enum { NO_PAGE = 0x7fffffff };

void machine_open(struct machine *m, const struct program *program, const char *level, int threads) {
    *m = (struct machine){.program = program};
    cohort_error err = {0};
    struct backend_options options = {.level = level, .threads = threads};
    if (backend_open(&options, &m->backend, &err)) fail_msg("backend %s: %s", level ? level : "", err.text);
    if (backend_compile(m->backend, program, MACHINE_TOKENS, MACHINE_ROWS, MACHINE_TOKENS, NULL, NULL, &m->compiled,
                        &err))
        fail_msg("compile: %s", err.text);
    for (uint32_t g = 0; g < program->n_groups; g++) {
        m->arena_bytes[g] = backend_page_bytes(&program->groups[g]) * MACHINE_ROWS * MACHINE_PAGES;
        m->arena[g] = mem_map(m->arena_bytes[g]);
        assert_non_null(m->arena[g]);
    }
    m->logits = calloc((size_t)MACHINE_ROWS * MACHINE_TOKENS * program->vocab, sizeof *m->logits);
    assert_non_null(m->logits);
    machine_reset(m);
}

void machine_close(struct machine *m) {
    backend_program_free(m->compiled);
    backend_close(m->backend);
    for (uint32_t g = 0; g < m->program->n_groups; g++) mem_unmap(m->arena[g], m->arena_bytes[g]);
    free(m->logits);
}

void machine_reset(struct machine *m) {
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        memset(m->arena[g], 0xff, m->arena_bytes[g]);
        for (uint32_t row = 0; row < MACHINE_ROWS; row++)
            for (uint32_t i = 0; i < MACHINE_PAGES; i++)
                m->table[row][g][i] = (i * 5 + row * 2 + g) % MACHINE_PAGES * MACHINE_ROWS + (row + i) % MACHINE_ROWS;
    }
    for (uint32_t row = 0; row < MACHINE_ROWS; row++) m->state[row] = BATCH_EMPTY;
    memset(m->logits, 0, (size_t)MACHINE_ROWS * MACHINE_TOKENS * m->program->vocab * sizeof *m->logits);
}

static float *logits_at(const struct machine *m, uint32_t row, uint32_t position) {
    return m->logits + ((size_t)row * MACHINE_TOKENS + position) * m->program->vocab;
}

const float *machine_logits(const struct machine *m, uint32_t row, uint32_t position) {
    return logits_at(m, row, position);
}

struct consumer {
    struct machine *m;
    const struct piece *pieces;
};

static void consume(void *user, uint32_t item, uint32_t output, const struct logits *logits, float *scratch) {
    const struct consumer *c = user;
    const struct piece *piece = &c->pieces[item];
    uint32_t vocab = c->m->program->vocab;
    assert_int_equal(logits->n, vocab);
    memcpy(logits_at(c->m, piece->row, piece->first + output), logits->x, vocab * sizeof *logits->x);
    if (output == piece->n - 1) c->m->slots[piece->row] = (int32_t)logits_best(backend_vecops(c->m->backend), logits);
    /* It is the consumer's to spoil. */
    memset(scratch, 0xff, vocab * sizeof *scratch);
}

/* Entries of pages that the window has left. */
static void forget_pages(struct machine *m, const struct piece *piece) {
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        uint32_t window = m->program->groups[g].window;
        if (!window || piece->first + 1 < window) continue;
        uint32_t first_seen = piece->first + 1 - window;
        for (uint32_t i = 0; (i + 1) * BACKEND_PAGE_TOKENS <= first_seen; i++) m->table[piece->row][g][i] = NO_PAGE;
    }
}

/* Where a row's recurrent state goes: now in place, now to its other page. */
static uint32_t state_next(const struct machine *m, const struct piece *p) {
    uint32_t own = p->row * MACHINE_PAGES, now = m->state[p->row];
    if (now == BATCH_EMPTY) return own;
    return p->first % 3 ? now : own + (now == own);
}

void machine_step(struct machine *m, const struct piece *pieces, uint32_t n) {
    struct batch_item items[MACHINE_ROWS];
    assert_in_range(n, 1, MACHINE_ROWS);
    for (uint32_t i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        forget_pages(m, p);
        items[i] = (struct batch_item){
            .first_pos = p->first, .n_tokens = p->n, .tokens = p->ids, .slot = p->row, .n_outputs = p->n};
        uint32_t to = state_next(m, p);
        for (uint32_t g = 0; g < m->program->n_groups; g++) {
            items[i].table[g] = m->table[p->row][g];
            items[i].from[g] = m->state[p->row];
            items[i].to[g] = to;
        }
        m->state[p->row] = to;
    }
    struct consumer consumer = {m, pieces};
    struct batch batch = {.n_items = n, .items = items, .slots = m->slots, .consume = consume, .user = &consumer};
    memcpy(batch.arena, m->arena, sizeof batch.arena);
    uint64_t busy;
    assert_int_equal(backend_launch(m->compiled, &batch), 0);
    assert_int_equal(backend_wait(m->compiled, &busy), 0);
}
