/* How keys and values lie in a page (the page layout, version 1): one slice per layer slot of the group and kv head,
 * keys, then values, T = 32 tokens. Widths are per head; blocks are 32 columns, the last may be shorter.
 *
 *     keys    f16  halves [key_width][T]
 *             q8   int8 [key_width][T], then scales: halves [blocks][T]
 *             q4   bytes [ceil(key_width / 2)][T], then scales; columns 2i and 2i + 1 are byte i's low and high nibble
 *     values  f16  halves [T][value_width]
 *             q8   int8 [T][value_width], then scales: halves [blocks][T]
 *             q4   bytes [T][row], then scales; byte i of a block holds its column i (low nibble) and i + 16, so a
 *                  block of n columns takes min(n, 16) bytes
 *
 * A nibble is the value + 8; one that stands for no column holds 8. In keys lanes are keys, in values columns. */
#ifndef BACKEND_CPU_PAGE_H
#define BACKEND_CPU_PAGE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

enum { PAGE = BACKEND_PAGE_TOKENS, BLOCK = 32, NIBBLE_ZERO = 8 };

struct page_shape {
    uint32_t key_width, value_width; /* any value >= 1 */
    enum state_form key_form, value_form;
    const float *balance; /* as in struct program_layer: to store keys, it changes no layout */
};

static inline uint32_t page_blocks(uint32_t width) { return (width + BLOCK - 1) / BLOCK; }

/* Bytes of a token's values without their scales. */
static inline size_t page_value_row(enum state_form form, uint32_t width) {
    uint32_t rest = width % BLOCK;
    if (form == FORM_F16) return sizeof(uint16_t) * (size_t)width;
    return form == FORM_Q8 ? width : (size_t)width / BLOCK * 16 + (rest < 16 ? rest : 16);
}

/* Bytes of all keys without their scales, which lie behind them. */
static inline size_t page_key_codes(enum state_form form, uint32_t width) {
    if (form == FORM_F16) return sizeof(uint16_t) * (size_t)width * PAGE;
    return form == FORM_Q8 ? (size_t)width * PAGE : ((size_t)width + 1) / 2 * PAGE;
}

static inline size_t page_scales(enum state_form form, uint32_t width) {
    return form == FORM_F16 ? 0 : sizeof(uint16_t) * page_blocks(width) * PAGE;
}

static inline size_t page_keys_bytes(enum state_form form, uint32_t width) {
    return page_key_codes(form, width) + page_scales(form, width);
}

static inline size_t page_values_bytes(enum state_form form, uint32_t width) {
    return page_value_row(form, width) * PAGE + page_scales(form, width);
}

static inline size_t page_slice_bytes(const struct page_shape *s) {
    return page_keys_bytes(s->key_form, s->key_width) + page_values_bytes(s->value_form, s->value_width);
}

#endif
