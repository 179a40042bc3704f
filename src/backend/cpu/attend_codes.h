/* Scores and weighted values of pages that hold codes instead of halves: part of attend_lanes.h, which includes it in
 * its middle. A key's sum over a block's codes meets its scale at the block's end; a value's scale meets its weight
 * before the page's values are summed, so that both cost an operation per block and not per column. */
#ifndef BACKEND_CPU_ATTEND_CODES_H
#define BACKEND_CPU_ATTEND_CODES_H

/* Sixteen codes; `shift` chooses the nibbles. */
LANES_INLINE lanes load_codes(const enum state_form form, const char *p, int shift) {
    return form == FORM_Q8 ? lanes_load_bytes(p) : lanes_load_nibbles(p, shift);
}

/* Column d of 16 * wide keys joins the sums. */
LANES_INLINE void score_column(const enum state_form form, const int rows, const int wide, const char *keys, int shift,
                               const float *q, uint32_t width, lanes *sums) {
    for (int l = 0; l < wide; l++) {
        lanes k = load_codes(form, keys + 16 * l, shift);
        for (int r = 0; r < rows; r++)
            sums[r * wide + l] = lanes_fma(lanes_splat(q[(size_t)r * width]), k, sums[r * wide + l]);
    }
}

/* Scores of at least the keys low .. high, like score_tile. */
LANES_INLINE void score_codes(const enum state_form form, const int rows, const int wide, const char *keys,
                              const float *q, uint32_t width, float *scores, uint32_t low, uint32_t high) {
    const uint16_t *scales = (const uint16_t *)(const void *)(keys + page_key_codes(form, width));
    const char *ahead = keys + page_keys_bytes(form, width);
    const uint32_t step = 16 * (uint32_t)wide;
    const size_t line = form == FORM_Q8 ? PAGE : PAGE / 2; /* per column */
    for (uint32_t part = low / step * step; part <= high; part += step) {
        for (uint32_t first = 0; first < width; first += BLOCK) {
            uint32_t end = width - first < BLOCK ? width : first + BLOCK, d = first;
            lanes sums[TILE_ROWS * 2];
            for (int i = 0; i < rows * wide; i++) sums[i] = lanes_splat(0);
            for (; d + 1 < end; d += 2, ahead += line * (size_t)wide) {
                const char *k = keys + d * line + part;
                lanes_prefetch(ahead);
                score_column(form, rows, wide, k, 0, q + d, width, sums);
                score_column(form, rows, wide, form == FORM_Q8 ? k + PAGE : k, 4, q + d + 1, width, sums);
            }
            if (d < end) score_column(form, rows, wide, keys + d * line + part, 0, q + d, width, sums);
            for (int l = 0; l < wide; l++) {
                lanes scale = lanes_load_half(scales + first + part + 16 * l);
                for (int r = 0; r < rows; r++) {
                    float *s = scores + r * PAGE + part + 16 * l;
                    lanes_store(s, lanes_fma(sums[r * wide + l], scale, first ? lanes_load(s) : lanes_splat(0)));
                }
            }
        }
    }
}

/* The weights of a chunk's values: times the scales of its blocks. */
struct scaled_weights {
    float of[CHUNK / BLOCK][TILE_ROWS][PAGE];
};

static void scale_weights(struct scaled_weights *out, int rows, const float *weights, const uint16_t *scales,
                          uint32_t blocks) {
    for (uint32_t b = 0; b < blocks; b++, scales += PAGE) {
        lanes low = lanes_load_half(scales), high = lanes_load_half(scales + 16);
        for (int r = 0; r < rows; r++) {
            lanes_store(out->of[b][r], lanes_mul(lanes_load(weights + r * PAGE), low));
            lanes_store(out->of[b][r] + 16, lanes_mul(lanes_load(weights + r * PAGE + 16), high));
        }
    }
}

/* The sums of 16 * wide columns, like weigh_values: `values` is the first key's first byte of them, `shift` its nibble
 * if wide is 1; weights are those of the first column's block. */
LANES_INLINE void weigh_codes(const enum state_form form, const int rows, const int wide, const char *values,
                              size_t stride, int shift, const struct view *view, const float *weights,
                              const char *ahead, lanes *sums) {
    for (int i = 0; i < rows * wide; i++) sums[i] = lanes_splat(0);
    const float *w = weights + view->low, *end = weights + view->high + 1;
    const int columns = form == FORM_Q8 ? 16 : 8; /* bytes of sixteen */
    values += view->low * stride;
    _Pragma("GCC unroll 2") for (; w < end; w++, values += stride, ahead += columns * wide) {
        lanes_prefetch(ahead);
        for (int l = 0; l < wide; l++) {
            lanes v = form == FORM_Q8 ? lanes_load_bytes(values + 16 * l)
                                      : lanes_load_nibbles(values + l / 2 * 16, wide == 1 ? shift : l % 2 * 4);
            for (int r = 0; r < rows; r++)
                sums[r * wide + l] = lanes_fma(lanes_splat(w[(l / 2 * TILE_ROWS + r) * PAGE]), v, sums[r * wide + l]);
        }
    }
}

/* Sixteen columns, or the last ones of the width, from `column` on. */
LANES_INLINE void code_columns_last(const enum state_form form, const int rows, const char *values, uint32_t width,
                                    uint32_t column, uint32_t count, const struct view *view, const float *weights,
                                    const char *ahead, lanes *sums) {
    size_t row = page_value_row(form, width), at = form == FORM_Q8 ? column : column / BLOCK * 16;
    int shift = column % BLOCK ? 4 : 0;
    values += at;
    size_t bytes = form == FORM_Q8 ? count : row - at; /* of a block, or more */
    if (bytes >= 16) {
        weigh_codes(form, rows, 1, values, row, shift, view, weights, ahead, sums);
        return;
    }
    char block[PAGE * 16] = {0};
    for (uint32_t j = view->low; j <= view->high; j++) memcpy(block + 16 * j, values + j * row, bytes);
    weigh_codes(form, rows, 1, block, 16, shift, view, weights, ahead, sums);
}

/* Columns [d, end) of the output, at most a chunk of them, like value_tile. */
LANES_INLINE void code_tile(const enum state_form form, const int rows, const int wide, const char *values,
                            uint32_t width, uint32_t d, uint32_t end, const struct view *view,
                            const struct value_rows *v) {
    const uint32_t step = 16 * (uint32_t)wide, first = d;
    size_t row = page_value_row(form, width);
    const uint16_t *scales = (const uint16_t *)(const void *)(values + row * PAGE);
    struct scaled_weights scaled;
    lanes sums[TILE_SUMS];
    scale_weights(&scaled, rows, v->weights, scales + d, page_blocks(end - d));
    for (; wide > 1 && end - d >= step; d += step) {
        size_t at = form == FORM_Q8 ? d : d / 2;
        weigh_codes(form, rows, wide, values + at, row, 0, view, scaled.of[(d - first) / BLOCK][0],
                    v->ahead + at * PAGE, sums);
        join_columns(rows, wide, view, v, d, sums);
    }
    for (uint32_t n; d < end; d += n) {
        n = end - d < 16 ? end - d : 16;
        code_columns_last(form, rows, values, width, d, n, view, scaled.of[(d - first) / BLOCK][0],
                          v->ahead + (size_t)d * PAGE, sums);
        if (n == 16)
            join_columns(rows, 1, view, v, d, sums);
        else
            join_last(rows, view, v, d, (int)n, sums);
    }
}

#endif
