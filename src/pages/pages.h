/* Page ids: which pages of each layer group are free, and how many owners each has. Knows no bytes, clocks or
 * allocators after init. One thread: the opener's, then the engine's. Ids are 0 .. total-1 per group.
 *
 * Invariants (pages_check): every page is either on its group's free list with count 0, or has count >= 1; free + used
 * = total. */
#ifndef PAGES_PAGES_H
#define PAGES_PAGES_H

#include <stdint.h>

#include "base/err.h"

enum { PAGES_GROUPS_MAX = 4, PAGE_TOKENS = 32 };
#define PAGE_NONE       UINT32_MAX
#define PAGES_TOTAL_MAX (UINT32_C(1) << 30)

struct pages;

/* totals: at least 1 page in each of 1 .. PAGES_GROUPS_MAX groups, at most PAGES_TOTAL_MAX; else E_ARGUMENT. */
int pages_new(struct pages **out, uint32_t groups, const uint32_t totals[], cohort_error *err);
void pages_free(struct pages *p);

uint32_t pages_alloc(struct pages *p,
                     uint32_t group); /* count 1; PAGE_NONE when none is free. Lowest free id not promised */
void pages_ref(struct pages *p, uint32_t group, uint32_t page);
void pages_unref(struct pages *p, uint32_t group, uint32_t page); /* frees at 0 */
uint32_t pages_count(const struct pages *p, uint32_t group, uint32_t page);
uint32_t pages_available(const struct pages *p, uint32_t group);
uint32_t pages_total(const struct pages *p, uint32_t group);
int pages_check(const struct pages *p); /* 1 if every invariant holds; walks everything */

/* Pages that `tokens` consecutive positions can touch at most, wherever they begin. */
static inline uint64_t pages_touched(uint64_t tokens) {
    return tokens == 0 ? 0 : (tokens + PAGE_TOKENS - 2) / PAGE_TOKENS + 1;
}

/* Which pages a sequence has in a group. A windowed group needs those of the last tokens only. A recurrent one is like
 * a window of one token: a block's page holds the state after the block's last token, or after the last that was
 * computed in it, and a block in whose middle a row went on without a stop has none. */
struct pages_shape {
    uint32_t window;     /* tokens that a position needs, itself included; 0: all. Recurrent: 1 */
    uint32_t begin, end; /* the blocks that have pages here: [begin, end); end 0: to the last */
    uint8_t recurrent;
};

/* Of the blocks before `block`, those that have pages here end with this one: begin .. end. */
static inline uint32_t pages_clamp(const struct pages_shape *shape, uint32_t block) {
    if (block < shape->begin) return shape->begin;
    return shape->end != 0 && block > shape->end ? shape->end : block;
}

static inline int pages_has(const struct pages_shape *shape, uint32_t block) {
    return block >= shape->begin && (shape->end == 0 || block < shape->end);
}

/* Tokens behind its window that a row keeps in a windowed group. So the page of a block whose last token was just
 * computed, and those before it that a snapshot there needs, are still there when that token becomes known. */
enum { PAGES_SLACK = PAGE_TOKENS };

/* States of a recurrent group that a row holds at most: after the last whole block, after the last token, and one for
 * each plan in flight. */
enum { PAGES_RECURRENT = 4 };

/* Pages that a row of `tokens` tokens holds at most in a group: all of them, or, with a window, what its window, the
 * slack behind it and the `ahead` tokens that are planned but not yet computed can touch. */
static inline uint64_t pages_worst(const struct pages_shape *shape, uint64_t tokens, uint64_t ahead) {
    uint64_t blocks = (tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
    uint64_t all = pages_clamp(shape, blocks > UINT32_MAX ? UINT32_MAX : (uint32_t)blocks) - shape->begin;
    if (shape->window == 0) return all;
    uint64_t some =
        shape->recurrent ? PAGES_RECURRENT : pages_touched((uint64_t)shape->window - 1 + PAGES_SLACK + ahead);
    return some < all ? some : all;
}

#endif
