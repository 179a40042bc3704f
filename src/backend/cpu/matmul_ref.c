/* The scalar reference of the matrix products: docs/NUMERICS.md in C. It defines the bits; nothing here is fast.
 * Reentrant, no allocation. */
#include <math.h>
#include <string.h>

#include "backend/cpu/act.h"
#include "backend/cpu/kernels.h"

static size_t act_bytes(enum pack_kind kind, uint32_t cols) {
    return kind == PACK_FLOAT ? (size_t)cols * sizeof(float) : cols / PACK_BLOCK * sizeof(struct act_block);
}

static int32_t sum_q(const int8_t *q, int first, int end) {
    int32_t sum = 0;
    for (int i = first; i < end; i++) sum += q[i];
    return sum;
}

static void block_quantise(struct act_block *a, const float *x) {
    float amax = 0;
    int is_nan = 0;
    for (int i = 0; i < PACK_BLOCK; i++) {
        is_nan |= isnan(x[i]);
        amax = fmaxf(amax, fabsf(x[i]));
    }
    memset(a, 0, sizeof *a);
    float inverse = 127 / amax;
    if (is_nan || isinf(amax)) {
        a->d = NAN;
    } else if (!isinf(inverse)) {
        a->d = amax / 127;
        for (int i = 0; i < PACK_BLOCK; i++) a->q[i] = (int8_t)rintf(x[i] * inverse);
    }
}

static void block_sums(struct act_block *a) {
    for (int part = 0; part < 3; part++) {
        int first = part == 2 ? 16 : 0, end = part == 1 ? 16 : 32;
        a->start[part] = -128 * sum_q(a->q, first, end);
        for (int i = first; i < end; i++) a->pair[part][i / 2 % 2] += a->q[i];
    }
    a->d_sum = a->d * (float)sum_q(a->q, 0, 32);
}

static void act_prepare(enum pack_kind kind, void *act, const float *x, uint32_t cols) {
    if (kind == PACK_FLOAT) {
        memcpy(act, x, (size_t)cols * sizeof(float));
        return;
    }
    for (uint32_t b = 0; b < cols / PACK_BLOCK; b++) {
        struct act_block *a = (struct act_block *)act + b;
        block_quantise(a, x + (size_t)b * PACK_BLOCK);
        block_sums(a);
    }
}

/* A block's part of sixteen chains, each of which sees its sums in the same order. */
static void add_block(float acc[PACK_OUTPUTS], const struct pack_form *f, const struct pack_values *w,
                      const struct act_block *a) {
    int groups = PACK_BLOCK / f->scale_cols;
    for (int g = 0; g < groups; g++) {
        int32_t isum[PACK_OUTPUTS] = {0};
        for (int i = g * f->scale_cols; i < (g + 1) * f->scale_cols; i++)
            for (int o = 0; o < PACK_OUTPUTS; o++) isum[o] += w->weight[i][o] * a->q[i];
        for (int o = 0; o < PACK_OUTPUTS; o++) acc[o] = fmaf((float)isum[o], w->scale[g][o] * a->d, acc[o]);
    }
    if (!f->has_min) return;
    for (int g = 0; g < groups; g++) {
        float d_sum = a->d * (float)sum_q(a->q, g * f->scale_cols, (g + 1) * f->scale_cols);
        for (int o = 0; o < PACK_OUTPUTS; o++) acc[o] = fmaf(w->minimum[g][o], d_sum, acc[o]);
    }
}

/* Rows in one pass, so that a block is decoded once for all of them. */
enum { ROWS = 32 };

static void group_int(const struct packed *w, uint32_t group, const char *acts, size_t act_stride, uint32_t n_rows,
                      float acc[][PACK_OUTPUTS]) {
    struct pack_values values;
    for (uint32_t b = 0; b < w->cols / PACK_BLOCK; b++) {
        pack_read_block(w, group, b, &values);
        for (uint32_t r = 0; r < n_rows; r++)
            add_block(acc[r], w->form, &values, (const struct act_block *)(acts + r * act_stride) + b);
    }
}

static void group_float(const struct packed *w, uint32_t group, const char *acts, size_t act_stride, uint32_t n_rows,
                        float acc[][PACK_OUTPUTS]) {
    float column[PACK_OUTPUTS];
    for (uint32_t k = 0; k < w->cols; k++) {
        pack_read_column(w, group, k, column);
        for (uint32_t r = 0; r < n_rows; r++)
            for (int o = 0; o < PACK_OUTPUTS; o++)
                acc[r][o] = fmaf(column[o], ((const float *)(acts + r * act_stride))[k], acc[r][o]);
    }
}

static void matmul(const struct packed *w, uint32_t first, uint32_t end, const void *acts, size_t act_stride,
                   uint32_t n_rows, float *y, size_t y_stride) {
    for (uint32_t group = first; group < end; group++) {
        uint32_t from = group * PACK_OUTPUTS;
        uint32_t outputs = w->rows - from < PACK_OUTPUTS ? w->rows - from : PACK_OUTPUTS;
        for (uint32_t row = 0; row < n_rows; row += ROWS) {
            uint32_t n = n_rows - row < ROWS ? n_rows - row : ROWS;
            const char *tile = (const char *)acts + row * act_stride;
            float acc[ROWS][PACK_OUTPUTS] = {{0}};
            (w->kind == PACK_FLOAT ? group_float : group_int)(w, group, tile, act_stride, n, acc);
            for (uint32_t r = 0; r < n; r++) memcpy(y + (row + r) * y_stride + from, acc[r], outputs * sizeof(float));
        }
    }
}

void kernels_matmul_ref(struct kernels *k) {
    k->act_bytes = act_bytes;
    k->act_prepare = act_prepare;
    k->matmul = matmul;
}
