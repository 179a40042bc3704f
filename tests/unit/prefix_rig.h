/* What the tests of the prefix store share: one store, sequences of tokens, and short ways to store, find and use them.
 * Each test program has its own. */
#ifndef TESTS_PREFIX_RIG_H
#define TESTS_PREFIX_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "pages/prefix.h"

enum { SPACE = 7, LONG = 4096 };

static struct pages *pages;
static struct prefix *p;
static uint32_t groups;

static inline void begin(uint32_t n, const uint32_t *window, const uint32_t *total, uint32_t blocks) {
    groups = n;
    assert_int_equal(pages_new(&pages, n, total, NULL), 0);
    struct prefix_config config = {.pages = pages, .groups = n, .blocks_max = blocks, .seed = 99};
    for (uint32_t g = 0; g < n; g++) config.group[g].window = window[g];
    assert_int_equal(prefix_new(&config, &p, NULL), 0);
}

static inline void begin_full(uint32_t total, uint32_t blocks) { begin(1, (uint32_t[]){0}, &total, blocks); }
/* group 0: a window of 64; group 1: full */
static inline void begin_mixed(uint32_t windowed, uint32_t full) {
    begin(2, (uint32_t[]){64, 0}, (uint32_t[]){windowed, full}, 1000);
}

static inline void end(void) {
    assert_true(prefix_check(p));
    prefix_free(p);
    pages_free(pages);
}

/* A sequence of its own for each number: no two have a beginning in common. */
static inline const int32_t *seq(int32_t number, uint32_t n) {
    static int32_t tokens[4][LONG];
    static int next;
    int32_t *t = tokens[next++ % 4];
    for (uint32_t i = 0; i < n; i++) t[i] = number * 100000 + (int32_t)i;
    return t;
}

/* What a row that computed tokens[0, n) leaves behind: all blocks, a snapshot if weight > 0. Returns the last block. */
static inline prefix_block store(const int32_t *tokens, uint32_t n, uint32_t weight) {
    uint32_t page[PAGES_GROUPS_MAX], held[PAGES_GROUPS_MAX][LONG / PAGE_TOKENS];
    prefix_block block = 0;
    uint32_t blocks = (n + PAGE_TOKENS - 1) / PAGE_TOKENS;
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t some = n - i * PAGE_TOKENS < PAGE_TOKENS ? n - i * PAGE_TOKENS : PAGE_TOKENS;
        for (uint32_t g = 0; g < groups; g++) {
            page[g] = prefix_alloc(p, g);
            assert_int_not_equal(page[g], PAGE_NONE);
        }
        prefix_block before = block;
        block = prefix_add(p, SPACE, before, tokens + i * PAGE_TOKENS, some, page);
        assert_true(block != 0);
        prefix_pin(p, block);
        prefix_unpin(p, before);
        for (uint32_t g = 0; g < groups; g++) held[g][i] = page[g];
    }
    if (weight > 0) assert_true(prefix_keep(p, block, weight));
    prefix_unpin(p, block);
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t i = 0; i < blocks; i++) prefix_unref(p, g, held[g][i]);
    assert_true(prefix_check(p));
    return block;
}

static inline struct prefix_match find(const int32_t *tokens, uint32_t n) {
    struct prefix_match m;
    prefix_find(p, SPACE, tokens, n, &m);
    return m;
}

static inline struct prefix_view view_of(prefix_block block) {
    struct prefix_view v;
    assert_true(prefix_get(p, block, &v));
    return v;
}

static inline struct prefix_counts counts(void) {
    struct prefix_counts c;
    prefix_get_counts(p, &c);
    return c;
}

/* Somebody takes what is found, reads it, and lets go. */
static inline void use(const int32_t *tokens, uint32_t n) {
    struct prefix_match m = find(tokens, n);
    assert_int_equal(m.tokens, n);
    uint32_t table[LONG / PAGE_TOKENS], partial;
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t first = prefix_take(p, m.block, n, g, table, &partial);
        for (uint32_t i = first; i < n / PAGE_TOKENS; i++) prefix_unref(p, g, table[i]);
    }
}

#endif
