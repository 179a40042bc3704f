/* The part of the matrix products that is the same at every vector level: products of float weights, scales of integer
 * weights, and the walk over output groups, panels and tiles of rows. It is included by matmul_LEVEL.c behind
 * lanes_LEVEL.h and the level's definitions:
 *
 *     PASS_GROUPS           output groups that share a pass over the rows, for integer weights
 *     INT_GROUPS, INT_ROWS  output groups and rows that one tile takes at most
 *     LONE_FETCHES_BYTES    whether codes of whole bytes are fetched ahead for LONE_ROWS rows, too: where a tile of
 * them does little else than read, the processor's own fetching may do better alone struct panel_codes    a panel's
 * codes as the level's tiles want them lanes_load_factor(p), lanes_load_bf16(p) codes_prepare, tile_find    declared
 * below
 *
 * Integer weights go through a panel in the L1 cache: eight blocks of columns of an output group, their scales widened,
 * and their codes unpacked to bytes if that pays for the number of rows. Tiles of rows run over the panel; their fp32
 * chains wait in memory between panels. */
#ifndef BACKEND_CPU_MATMUL_LANES_H
#define BACKEND_CPU_MATMUL_LANES_H

#include <string.h>

#include "backend/cpu/act.h"
#include "backend/cpu/kernels.h"

/* Tiles are copied for every number of rows and unrolled. The emulation of AVX-512 would take minutes to compile that,
 * so there they stay single functions with loops. */
#if defined(COHORT_KERNELS_SMALL)
#define UNROLL
#define TILE_INLINE static __attribute__((noinline))
#else
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define TILE_INLINE LANES_INLINE
#endif

enum {
    PANEL = PACK_SUPER,                   /* blocks of columns in a panel */
    PANEL_SETS = PANEL * PACK_BLOCK / 16, /* sets of scales in a panel, at most */
    ROWS = 64,                            /* rows whose chains wait in memory at a time */
    FLOAT_GROUPS = 2,                     /* output groups of a tile of float weights, or one */
    FLOAT_ROWS = 3,
    GROUPS = PASS_GROUPS > FLOAT_GROUPS ? PASS_GROUPS : FLOAT_GROUPS,
    LONE_ROWS = 2,   /* so few have a pass for each output group of integer weights: memory brings one stream sooner */
    AHEAD = 16 << 10 /* bytes of packed weights from what is multiplied to what is fetched: several times what memory
                        brings, at its best, while a line is under way */
};

struct panel {
    uintptr_t ahead;   /* packed codes and scales that will be wanted later ... */
    size_t ahead_step; /* ... how many bytes of them each tile fetches beside a block ... */
    size_t ahead_next; /* ... and how far behind them those lie that go with the next block */
    _Alignas(64) struct panel_codes codes;
    _Alignas(64) float scale[PANEL_SETS][PACK_OUTPUTS], minimum[PANEL_SETS][PACK_OUTPUTS];
};

/* The chains of one row: those of the output groups of a pass, one group after the other. */
typedef float chains[GROUPS][PACK_OUTPUTS];

struct tile {
    const struct panel *panel; /* one per output group */
    uint32_t blocks;           /* in the panels */
    uint32_t part;             /* the number of this tile of rows */
    const char *acts;          /* the first row's record of the panels' first block */
    size_t act_stride;
    const float *from; /* chains so far of the first row and group; row r, group g: TILE_FROM(t, r, g) */
    size_t from_stride;
    float *to; /* likewise where they go */
    size_t to_stride;
};
#define TILE_FROM(t, r, g) ((t)->from + (size_t)(r) * (t)->from_stride + (g)*PACK_OUTPUTS)
#define TILE_TO(t, r, g)   ((t)->to + (size_t)(r) * (t)->to_stride + (g)*PACK_OUTPUTS)

typedef void (*tile_fn)(const struct tile *t);

/* What multiplies n_groups (1 .. INT_GROUPS) panels by n_rows (1 .. INT_ROWS) rows. Calls tile_prefetch for each block
 * and panel. */
static tile_fn tile_find(const struct packed *w, const struct panel *p, uint32_t n_groups, uint32_t n_rows);
/* Readies 1 .. PANEL blocks of codes for products with n_rows rows. */
static void codes_prepare(const struct packed *w, struct panel *to, const uint8_t *from, uint32_t blocks,
                          uint32_t n_rows);

/* So that memory works while the processor does: what comes later is fetched little by little by all tiles of the
 * panel. To the second level of the cache, which has room for it and lets more of it be under way at a time than the
 * first. May name addresses behind the end: a prefetch never faults. */
LANES_INLINE void tile_prefetch(const struct tile *t, int group, uint32_t block) {
    /* Read anew for each block: kept in registers, they would push out what the products need. */
    const volatile struct panel *p = &t->panel[group];
    size_t step = p->ahead_step;
    uintptr_t from = p->ahead + (t->part * t->blocks + block) * p->ahead_next, end = from + step;
    for (from = (from + 63) & ~(uintptr_t)63; from < end; from += 64) __builtin_prefetch((const void *)from, 0, 2);
}

LANES_INLINE const struct act_block *act_at(const struct tile *t, int row, uint32_t block) {
    return (const struct act_block *)(t->acts + (size_t)row * t->act_stride) + block;
}

/* ---- Panels ---- */

static void block_scales_unpack(const struct packed *w, struct panel *p, const uint8_t *from, uint32_t blocks) {
    const size_t step = w->scale_step;
    if (w->form->scales == SCALES_BF16)
        for (uint32_t b = 0; b < blocks; b++)
            lanes_store(p->scale[b], lanes_load_bf16((const uint16_t *)(from + b * step)));
    else
        for (uint32_t b = 0; b < blocks; b++)
            lanes_store(p->scale[b], lanes_load_half((const uint16_t *)(from + b * step)));
    for (uint32_t b = 0; b < blocks && w->form->has_min; b++)
        lanes_store(p->minimum[b], lanes_load_half((const uint16_t *)(from + b * step) + PACK_OUTPUTS));
}

static void super_scales_unpack(const struct pack_form *f, struct panel *p, const uint8_t *from, uint32_t blocks) {
    uint32_t sets = PANEL * PACK_BLOCK / f->scale_cols, used = blocks * PACK_BLOCK / f->scale_cols;
    const uint16_t *d = (const uint16_t *)from;
    const uint8_t *factors = from + (f->has_min ? 64 : 32);
    lanes scale = lanes_load_half(d);
    for (uint32_t i = 0; i < used; i++)
        lanes_store(p->scale[i], lanes_mul(scale, lanes_load_factor(factors + i * PACK_OUTPUTS)));
    if (!f->has_min) return;
    lanes minimum = lanes_load_half(d + PACK_OUTPUTS);
    for (uint32_t i = 0; i < used; i++)
        lanes_store(p->minimum[i], lanes_mul(minimum, lanes_load_factor(factors + (sets + i) * PACK_OUTPUTS)));
}

/* The bytes of a pass are fetched in the order in which they lie, AHEAD of those that are multiplied: with these panels
 * as many as there are for each of their blocks, scales among them. */
static void ahead_find(const struct packed *w, struct panel *p, uint32_t group, uint32_t n_groups, uint32_t first,
                       uint32_t blocks, uint32_t n_rows) {
    uint32_t all = w->cols / PACK_BLOCK, pieces = blocks * ((n_rows + INT_ROWS - 1) / INT_ROWS);
    size_t from = w->group_bytes * first / all, to = w->group_bytes * (first + blocks) / all;
    size_t step = (to - from + pieces - 1) / pieces;
    if (!LONE_FETCHES_BYTES && n_rows <= LONE_ROWS && w->form->bits == 8) step = 0;
    for (uint32_t g = 0; g < n_groups; g++) {
        p[g].ahead = (uintptr_t)w->data + group * w->group_bytes + n_groups * from + AHEAD + g * step;
        p[g].ahead_step = step;
        p[g].ahead_next = n_groups * step;
    }
}

/* Blocks [first, first + blocks) of a group; first is a multiple of PANEL. */
static void panel_prepare(const struct packed *w, struct panel *p, uint32_t group, uint32_t first, uint32_t blocks,
                          uint32_t n_rows) {
    const uint8_t *scales = (const uint8_t *)w->data + group * w->group_bytes;
    codes_prepare(w, p, scales + w->scale_bytes + first * w->block_bytes, blocks, n_rows);
    if (w->form->scales == SCALES_SUPER)
        super_scales_unpack(w->form, p, scales + first / PACK_SUPER * w->scale_step, blocks);
    else
        block_scales_unpack(w, p, scales + first * w->scale_step, blocks);
}

/* ---- A pass: a few output groups times up to ROWS rows ---- */

/* All tiles of rows over the panels of n_groups groups from column block `first` on. The chains start at zero and wait
 * in `acc` until the last panel's tiles put them into y, if outputs are whole groups. */
static void panels_run(const struct packed *w, const struct panel *panels, uint32_t n_groups, struct tile t,
                       uint32_t first, uint32_t n_rows, chains *acc, float *y, size_t y_stride) {
    static const float zeros[GROUPS * PACK_OUTPUTS];
    int last = y && first + t.blocks == w->cols / PACK_BLOCK;
    const char *acts = t.acts + first * sizeof(struct act_block);
    t.from_stride = first ? GROUPS * PACK_OUTPUTS : 0;
    t.to_stride = last ? y_stride : GROUPS * PACK_OUTPUTS;
    for (uint32_t r = 0; r < n_rows; r += INT_ROWS, t.part++) {
        uint32_t tile_rows = n_rows - r < INT_ROWS ? n_rows - r : INT_ROWS;
        t.acts = acts + r * t.act_stride;
        for (uint32_t g = 0; g < n_groups; g += INT_GROUPS) {
            t.panel = &panels[g];
            t.from = first ? acc[r][g] : zeros;
            t.to = last ? y + r * y_stride + g * PACK_OUTPUTS : acc[r][g];
            tile_find(w, t.panel, n_groups - g < INT_GROUPS ? n_groups - g : INT_GROUPS, tile_rows)(&t);
        }
    }
}

/* y: the first output of the pass, or NULL: the chains end in acc. */
static void pass_int(const struct packed *w, uint32_t group, uint32_t n_groups, const char *acts, size_t act_stride,
                     uint32_t n_rows, chains *acc, float *y, size_t y_stride) {
    struct panel panels[PASS_GROUPS];
    struct tile t = {.acts = acts, .act_stride = act_stride};
    uint32_t blocks = w->cols / PACK_BLOCK;
    for (uint32_t first = 0; first < blocks; first += PANEL) {
        t.blocks = blocks - first < PANEL ? blocks - first : PANEL;
        ahead_find(w, panels, group, n_groups, first, t.blocks, n_rows);
        for (uint32_t g = 0; g < n_groups; g++) panel_prepare(w, &panels[g], group + g, first, t.blocks, n_rows);
        panels_run(w, panels, n_groups, t, first, n_rows, acc, y, y_stride);
    }
}

struct float_tile {
    const char *from[FLOAT_GROUPS]; /* weights of a run of columns, per output group */
    uint32_t cols;                  /* in the run */
    const char *x;                  /* the first row's value in the run's first column */
    size_t x_stride;                /* bytes from row to row */
    chains *acc;                    /* of the first row */
};

LANES_INLINE lanes float_weights(const char *at, enum dtype type) {
    if (type == DTYPE_F32) return lanes_load((const float *)at);
    return type == DTYPE_F16 ? lanes_load_half((const uint16_t *)at) : lanes_load_bf16((const uint16_t *)at);
}

static size_t float_step(enum dtype type) { return PACK_OUTPUTS * (type == DTYPE_F32 ? 4 : 2); }

TILE_INLINE void float_tile(const struct float_tile *t, int G, int R, enum dtype type) {
    lanes acc[FLOAT_ROWS][FLOAT_GROUPS], column[FLOAT_GROUPS];
    UNROLL for (int r = 0; r < R; r++) { UNROLL for (int g = 0; g < G; g++) acc[r][g] = lanes_load(t->acc[r][g]); }
    for (size_t k = 0; k < t->cols; k++) {
        UNROLL for (int g = 0; g < G; g++) column[g] = float_weights(t->from[g] + k * float_step(type), type);
        UNROLL for (int r = 0; r < R; r++) {
            lanes x = lanes_splat(((const float *)(t->x + (size_t)r * t->x_stride))[k]);
            UNROLL for (int g = 0; g < G; g++) acc[r][g] = lanes_fma(column[g], x, acc[r][g]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) { UNROLL for (int g = 0; g < G; g++) lanes_store(t->acc[r][g], acc[r][g]); }
}

#define FLOAT_TILE(name, type)                                                                                         \
    static void name(const struct float_tile *t, uint32_t n_groups, uint32_t n_rows) {                                 \
        switch (n_groups * 8 + n_rows) {                                                                               \
        case 9:                                                                                                        \
            float_tile(t, 1, 1, type);                                                                                 \
            break;                                                                                                     \
        case 10:                                                                                                       \
            float_tile(t, 1, 2, type);                                                                                 \
            break;                                                                                                     \
        case 11:                                                                                                       \
            float_tile(t, 1, 3, type);                                                                                 \
            break;                                                                                                     \
        case 17:                                                                                                       \
            float_tile(t, 2, 1, type);                                                                                 \
            break;                                                                                                     \
        case 18:                                                                                                       \
            float_tile(t, 2, 2, type);                                                                                 \
            break;                                                                                                     \
        case 19:                                                                                                       \
            float_tile(t, 2, 3, type);                                                                                 \
            break;                                                                                                     \
        }                                                                                                              \
    }
FLOAT_TILE(float_tile_f32, DTYPE_F32)
FLOAT_TILE(float_tile_f16, DTYPE_F16)
FLOAT_TILE(float_tile_bf16, DTYPE_BF16)

/* Narrow weights that several tiles of rows share are widened once. */
static void float_widen(const char *from, enum dtype type, uint32_t cols, float (*to)[PACK_OUTPUTS]) {
    for (size_t k = 0; k < cols; k++) {
        const char *at = from + k * float_step(type);
        lanes_store(to[k], type == DTYPE_F16 ? float_weights(at, DTYPE_F16) : float_weights(at, DTYPE_BF16));
    }
}

static void pass_float(const struct packed *w, uint32_t group, uint32_t n_groups, const char *acts, size_t act_stride,
                       uint32_t n_rows, chains *acc) {
    enum { RUN = 128 }; /* columns that are widened at a time: two groups fill half of an L1 cache */
    _Alignas(64) float wide[FLOAT_GROUPS][RUN][PACK_OUTPUTS];
    int widen = w->type != DTYPE_F32 && n_rows > FLOAT_ROWS;
    void (*const tile)(const struct float_tile *, uint32_t, uint32_t) = widen || w->type == DTYPE_F32 ? float_tile_f32
                                                                        : w->type == DTYPE_F16        ? float_tile_f16
                                                                                                      : float_tile_bf16;
    struct float_tile t = {.x_stride = act_stride};
    memset(acc, 0, n_rows * sizeof *acc);
    for (uint32_t first = 0; first < w->cols; first += t.cols) {
        t.cols = widen && w->cols - first > RUN ? RUN : w->cols - first;
        for (uint32_t g = 0; g < n_groups; g++) {
            t.from[g] = (const char *)w->data + (group + g) * w->group_bytes + first * float_step(w->type);
            if (!widen) continue;
            float_widen(t.from[g], w->type, t.cols, wide[g]);
            t.from[g] = (const char *)wide[g];
        }
        for (uint32_t r = 0; r < n_rows; r += FLOAT_ROWS) {
            t.x = acts + r * act_stride + first * sizeof(float);
            t.acc = acc + r;
            tile(&t, n_groups, n_rows - r < FLOAT_ROWS ? n_rows - r : FLOAT_ROWS);
        }
    }
}

static void chains_store(const struct packed *w, uint32_t group, uint32_t n_groups, chains *acc, uint32_t n_rows,
                         float *y, size_t y_stride) {
    for (uint32_t g = 0; g < n_groups; g++) {
        uint32_t from = (group + g) * PACK_OUTPUTS, outputs = w->rows - from;
        for (uint32_t r = 0; r < n_rows; r++) {
            lanes value = lanes_load(acc[r][g]);
            if (outputs >= PACK_OUTPUTS)
                lanes_store(y + r * y_stride + from, value);
            else
                lanes_store_first(y + r * y_stride + from, value, (int)outputs);
        }
    }
}

static void matmul(const struct packed *w, uint32_t first, uint32_t end, const void *acts, size_t act_stride,
                   uint32_t n_rows, float *y, size_t y_stride) {
    _Alignas(64) chains acc[ROWS];
    uint32_t step = w->kind == PACK_FLOAT ? FLOAT_GROUPS : n_rows <= LONE_ROWS ? 1 : PASS_GROUPS;
    for (uint32_t group = first; group < end; group += step) {
        uint32_t n_groups = end - group < step ? end - group : step;
        int whole = (group + n_groups) * PACK_OUTPUTS <= w->rows;
        for (uint32_t row = 0; row < n_rows; row += ROWS) {
            uint32_t n = n_rows - row < ROWS ? n_rows - row : ROWS;
            const char *from = (const char *)acts + row * act_stride;
            float *to = y + row * y_stride;
            for (uint32_t r = 0; r < n; r++) __builtin_prefetch(to + r * y_stride + group * PACK_OUTPUTS, 1);
            if (w->kind == PACK_INT)
                pass_int(w, group, n_groups, from, act_stride, n, acc, whole ? to + group * PACK_OUTPUTS : NULL,
                         y_stride);
            else
                pass_float(w, group, n_groups, from, act_stride, n, acc);
            if (w->kind != PACK_INT || !whole) chains_store(w, group, n_groups, acc, n, to, y_stride);
        }
    }
}

#endif
