/* Integer products with VNNI, for every level that has it. vpdpbusd adds four products of unsigned and signed bytes to
 * an int32, exactly. The panel holds every weight as w + 128, whatever its type, and a sum starts at -128 * (sum of q),
 * so that one kernel serves all types. One or two rows take the packed codes, each slab made w + 128 in registers: from
 * the third row on a panel pays. Activations are prepared by the AVX2 level.
 *
 * Included by matmul_LEVEL.c behind lanes_LEVEL.h and the level's definitions:
 *
 *     PASS_GROUPS, INT_GROUPS, INT_ROWS, LONE_FETCHES_BYTES                    see matmul_lanes.h
 *     lanes_load_factor, lanes_load_bf16                                       likewise
 *     EACH_ROWS(f, ...), EACH_GROUPS(f, ...)    f(1, ...) f(2, ...) to INT_ROWS, to INT_GROUPS
 *     slab, slab_load, slab_store, slab_or, slab_add, slab_bits, slab_look_up  64 bytes of codes: 16 outputs, 4 columns
 *     sums, sums_splat, sums_add, sums_float                                   16 int32 sums */
#ifndef BACKEND_CPU_MATMUL_VNNI_H
#define BACKEND_CPU_MATMUL_VNNI_H

#include <assert.h>

struct panel_codes {
    const uint8_t *at;     /* [block][slab][64]: `room`, or the packed weights themselves if they are w + 128 */
    const uint8_t *packed; /* not NULL: codes as they are packed, and */
    const int8_t *table;   /* the weights of codes, */
    int zero;              /* or what of a code is 0 */
    _Alignas(64) uint8_t room[PACK_SUPER * 512];
};

#include "backend/cpu/matmul_lanes.h"

/* ---- Unpacking ---- */

/* A slab of a plane of `width` bits (the layout in pack.h), its bits moved to `to`. */
LANES_INLINE slab plane_slab(const uint8_t *plane, int width, int number, int to) {
    int from = number / width * width;
    return slab_bits(slab_load(plane + 64 * (number % width)), to - from, ((1 << width) - 1) << to);
}

LANES_INLINE slab slab_codes(const uint8_t *block, int bits, int number) {
    if (bits == 2) return plane_slab(block, 2, number, 0);
    if (bits == 3) return slab_or(plane_slab(block, 2, number, 0), plane_slab(block + 128, 1, number, 2));
    slab low = plane_slab(block, 4, number, 0);
    if (bits == 5) low = slab_or(low, plane_slab(block + 256, 1, number, 4));
    if (bits == 6) low = slab_or(low, plane_slab(block + 256, 2, number, 4));
    return low;
}

/* w + 128. `table`: the weights of the codes, or NULL: code - zero. */
LANES_INLINE slab slab_weights(slab codes, int zero, const int8_t *table) {
    return slab_add(table ? slab_look_up(table, codes) : codes, 128 - zero);
}

LANES_INLINE void unpack(struct panel *p, const uint8_t *from, uint32_t blocks, int bits, int zero,
                         const int8_t *table) {
    size_t bytes = (size_t)64 * (size_t)bits;
    for (uint32_t b = 0; b < blocks; b++, from += bytes) {
        UNROLL for (int s = 0; s < 8; s++)
            slab_store(p->codes.room + (size_t)b * 512 + 64 * s, slab_weights(slab_codes(from, bits, s), zero, table));
    }
}

static void codes_prepare(const struct packed *w, struct panel *p, const uint8_t *from, uint32_t blocks,
                          uint32_t n_rows) {
    const struct pack_form *f = w->form;
    p->codes.at = f->bits == 8 ? from : p->codes.room;
    p->codes.packed = f->bits != 8 && n_rows <= LONE_ROWS ? from : NULL;
    p->codes.table = f->codebook;
    p->codes.zero = f->codebook ? 0 : f->zero;
    if (p->codes.packed) return;
    if (f->codebook) {
        unpack(p, from, blocks, 4, 0, f->codebook);
        return;
    }
    switch (f->bits) {
    case 2:
        unpack(p, from, blocks, 2, f->zero, NULL);
        break;
    case 3:
        unpack(p, from, blocks, 3, f->zero, NULL);
        break;
    case 4:
        unpack(p, from, blocks, 4, f->zero, NULL);
        break;
    case 5:
        unpack(p, from, blocks, 5, f->zero, NULL);
        break;
    case 6:
        unpack(p, from, blocks, 6, f->zero, NULL);
        break;
    }
}

/* ---- Products ---- */

/* float(sum of q) of a part, exactly. */
LANES_INLINE lanes splat_sum(const struct act_block *a, int part) {
    /* Negated as an integer: a sum of zero stays +0, as the reference has it. */
    return lanes_mul(sums_float(sums_splat(-a->start[part])), lanes_splat(1.0f / 128));
}

/* Where a tile's weights come from: the panel, or packed codes of so many bits, perhaps looked up in a table. */
enum source { PANEL_CODES, BITS_2 = 2, BITS_3, BITS_4, BITS_5, BITS_6, BITS_4_TABLE = 8 + BITS_4 };

LANES_INLINE slab tile_slab(const struct panel_codes *c, int source, uint32_t b, int number) {
    if (source == PANEL_CODES) return slab_load(c->at + b * 512 + 64 * number);
    int bits = source % 8;
    return slab_weights(slab_codes(c->packed + b * 64 * (uint32_t)bits, bits, number), c->zero,
                        source > 8 ? c->table : NULL);
}

/* Adds a scale group to the chains: slabs [first, end), whose sums start at `part`, and set `set` of the scales. */
TILE_INLINE void add_scale_group(const struct tile *t, int R, int G, int source, uint32_t b, int first, int end,
                                 int part, uint32_t set, lanes acc[][INT_GROUPS]) {
    sums sum[INT_ROWS][INT_GROUPS];
    slab w[INT_GROUPS];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int g = 0; g < G; g++) sum[r][g] = sums_splat(act_at(t, r, b)->start[part]);
    }
    UNROLL for (int s = first; s < end; s++) {
        UNROLL for (int g = 0; g < G; g++) w[g] = tile_slab(&t->panel[g].codes, source, b, s);
        UNROLL for (int r = 0; r < R; r++) {
            const int8_t *q = act_at(t, r, b)->q + 4 * s;
            UNROLL for (int g = 0; g < G; g++) sum[r][g] = sums_add(sum[r][g], w[g], q);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        lanes d = lanes_splat(act_at(t, r, b)->d);
        UNROLL for (int g = 0; g < G; g++) {
            lanes scale = lanes_mul(lanes_load(t->panel[g].scale[set]), d);
            acc[r][g] = lanes_fma(sums_float(sum[r][g]), scale, acc[r][g]);
        }
    }
}

TILE_INLINE void tile(const struct tile *t, int R, int G, int source, int cols, int has_min) {
    int sets = PACK_BLOCK / cols;
    lanes acc[INT_ROWS][INT_GROUPS];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int g = 0; g < G; g++) acc[r][g] = lanes_load(TILE_FROM(t, r, g));
    }
    for (uint32_t b = 0; b < t->blocks; b++) {
        UNROLL for (int g = 0; g < G; g++) tile_prefetch(t, g, b);
        UNROLL for (int i = 0; i < sets; i++) {
            uint32_t set = b * (uint32_t)sets + (uint32_t)i;
            add_scale_group(t, R, G, source, b, i * cols / 4, (i + 1) * cols / 4, sets == 1 ? 0 : 1 + i, set, acc);
        }
        if (!has_min) continue;
        UNROLL for (int i = 0; i < sets; i++) {
            uint32_t set = b * (uint32_t)sets + (uint32_t)i;
            UNROLL for (int r = 0; r < R; r++) {
                const struct act_block *a = act_at(t, r, b);
                lanes d_sum = sets == 1 ? lanes_splat(a->d_sum) : lanes_mul(lanes_splat(a->d), splat_sum(a, 1 + i));
                UNROLL for (int g = 0; g < G; g++) acc[r][g] =
                    lanes_fma(lanes_load(t->panel[g].minimum[set]), d_sum, acc[r][g]);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) { UNROLL for (int g = 0; g < G; g++) lanes_store(TILE_TO(t, r, g), acc[r][g]); }
}

/* One function per scale group's width, minima or not, output groups and rows. */
#define TILE(rows, groups, name, cols, has_min)                                                                        \
    static void name##_##groups##_##rows(const struct tile *t) { tile(t, rows, groups, PANEL_CODES, cols, has_min); }
#define TILES(groups, name, cols, has_min) EACH_ROWS(TILE, groups, name, cols, has_min)
#define SHAPE(name, cols, has_min)         EACH_GROUPS(TILES, name, cols, has_min)
SHAPE(plain_32, 32, 0)
SHAPE(plain_16, 16, 0)
SHAPE(min_32, 32, 1)
SHAPE(min_16, 16, 1)

#define NAME(rows, groups, name) name##_##groups##_##rows,
#define NAMES(groups, name)      {EACH_ROWS(NAME, groups, name)},
static const tile_fn tiles[2][2][INT_GROUPS][INT_ROWS] = {
    {{EACH_GROUPS(NAMES, plain_32)}, {EACH_GROUPS(NAMES, plain_16)}},
    {{EACH_GROUPS(NAMES, min_32)}, {EACH_GROUPS(NAMES, min_16)}}};

/* Likewise by packed codes, of the forms that there are. */
_Static_assert(LONE_ROWS == 2, "DIRECTS and DIRECT_NAMES have as many");
#define EACH_FORM(f)                                                                                                   \
    f(BITS_2, 16, 1) f(BITS_3, 16, 0) f(BITS_4, 32, 0) f(BITS_4, 32, 1) f(BITS_4_TABLE, 32, 0) f(BITS_5, 32, 0)        \
        f(BITS_5, 32, 1) f(BITS_6, 16, 0)
#define DIRECT(rows, groups, source, cols, has_min)                                                                    \
    static void direct_##source##_##cols##_##has_min##_##groups##_##rows(const struct tile *t) {                       \
        tile(t, rows, groups, source, cols, has_min);                                                                  \
    }
#define DIRECTS(groups, ...)                                                                                           \
    DIRECT(1, groups, __VA_ARGS__)                                                                                     \
    DIRECT(2, groups, __VA_ARGS__)
#define FORM(...) EACH_GROUPS(DIRECTS, __VA_ARGS__)
EACH_FORM(FORM)

#define DIRECT_NAME(rows, groups, source, cols, has_min) direct_##source##_##cols##_##has_min##_##groups##_##rows,
#define DIRECT_NAMES(groups, ...)                        {DIRECT_NAME(1, groups, __VA_ARGS__) DIRECT_NAME(2, groups, __VA_ARGS__)},
#define FORM_NAMES(source, cols, has_min)                {source, cols, has_min, {EACH_GROUPS(DIRECT_NAMES, source, cols, has_min)}},
static const struct direct {
    int source, cols, has_min;
    tile_fn tiles[INT_GROUPS][LONE_ROWS];
} directs[] = {EACH_FORM(FORM_NAMES)};

static tile_fn direct_find(const struct pack_form *f, uint32_t n_groups, uint32_t n_rows) {
    const struct direct *d = directs;
    int source = f->codebook ? BITS_4_TABLE : f->bits;
    for (; d->source != source || d->cols != f->scale_cols || d->has_min != f->has_min; d++)
        assert(d + 1 < directs + sizeof directs / sizeof *directs);
    return d->tiles[n_groups - 1][n_rows - 1];
}

static tile_fn tile_find(const struct packed *w, const struct panel *p, uint32_t n_groups, uint32_t n_rows) {
    if (p->codes.packed) return direct_find(w->form, n_groups, n_rows);
    return tiles[w->form->has_min][w->form->scale_cols == 16][n_groups - 1][n_rows - 1];
}

#endif
