/* Numbers in few bits: what the levels share of storing quantised keys and values (docs/NUMERICS.md, State). A block is
 * at most 32 columns of one head of one token, whose codes are integers beside one half-precision scale. Reentrant. */
#ifndef BACKEND_CPU_CODES_H
#define BACKEND_CPU_CODES_H

#include <math.h>
#include <string.h>

#include "backend/cpu/half.h"
#include "backend/cpu/page.h"

enum { SCALE_NAN = 0x7e00, ROTATE_MAX = 256 };

struct code_block {
    int8_t codes[BLOCK]; /* behind the block's last column: 0 */
    uint16_t scale;
};

static inline float codes_lowest(enum state_form form) { return form == FORM_Q8 ? -127 : -8; }
static inline float codes_highest(enum state_form form) { return form == FORM_Q8 ? 127 : 7; }

/* The scale of a block between low <= 0 and high >= 0, and what its columns are multiplied by: 0 if all codes are 0. */
static inline uint16_t codes_scale(enum state_form form, float low, float high, int nan, float *inverse) {
    float d;
    *inverse = 0;
    if (form == FORM_Q8)
        d = (high >= -low ? high : -low) / 127;
    else
        d = (high >= -low ? high : low) / -8;
    uint16_t half = half_from_float(d);
    float scale = half_to_float(half);
    if (nan || !isfinite(scale)) return SCALE_NAN;
    if (scale == 0) return 0;
    *inverse = 1 / scale;
    return half;
}

/* Keys are rotated before they become codes, and so is a query that asks them: their product stays, and no column
 * stands out of its block any more. This is how many columns the next part has that is rotated by itself: the largest
 * power of two that is there. */
static inline uint32_t rotated_part(uint32_t left) {
    uint32_t n = 1;
    while (n < ROTATE_MAX && 2 * n <= left) n *= 2;
    return n;
}

/* Columns of the next run of keys that can be rotated and cut into blocks by itself. */
static inline uint32_t codes_run(uint32_t left) { return left < BLOCK ? left : rotated_part(left); }

/* The block of keys that begins at column d. */
static inline void codes_put_keys(const struct page_shape *s, char *keys, uint32_t slot, uint32_t d,
                                  const struct code_block *b) {
    uint32_t n = s->key_width - d < BLOCK ? s->key_width - d : BLOCK;
    uint16_t *scales = (uint16_t *)(void *)(keys + page_key_codes(s->key_form, s->key_width));
    scales[d / BLOCK * PAGE + slot] = b->scale;
    if (s->key_form == FORM_Q8) {
        for (uint32_t i = 0; i < n; i++) keys[(size_t)(d + i) * PAGE + slot] = (char)b->codes[i];
        return;
    }
    for (uint32_t i = 0; i < n; i += 2)
        keys[(size_t)(d + i) / 2 * PAGE + slot] =
            (char)((b->codes[i] + NIBBLE_ZERO) | (b->codes[i + 1] + NIBBLE_ZERO) << 4);
}

/* The block of values that begins at column d. */
static inline void codes_put_values(const struct page_shape *s, char *values, uint32_t slot, uint32_t d,
                                    const struct code_block *b) {
    uint32_t n = s->value_width - d < BLOCK ? s->value_width - d : BLOCK;
    size_t row = page_value_row(s->value_form, s->value_width);
    uint16_t *scales = (uint16_t *)(void *)(values + row * PAGE);
    scales[d / BLOCK * PAGE + slot] = b->scale;
    if (s->value_form == FORM_Q8) {
        memcpy(values + slot * row + d, b->codes, n);
        return;
    }
    char *bytes = values + slot * row + d / 2;
    for (uint32_t i = 0; i < n && i < 16; i++)
        bytes[i] = (char)((b->codes[i] + NIBBLE_ZERO) | (b->codes[i + 16] + NIBBLE_ZERO) << 4);
}

#endif
