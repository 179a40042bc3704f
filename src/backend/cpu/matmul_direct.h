/* Integer products of levels that multiply few rows by the packed codes themselves and more rows by a panel of unpacked
 * ones: what AVX2 and NEON share. Included by matmul_LEVEL.c behind its struct panel_codes, whose `direct` says which
 * of the two it is; the level then defines `plans`. */
#ifndef BACKEND_CPU_MATMUL_DIRECT_H
#define BACKEND_CPU_MATMUL_DIRECT_H

#include "backend/cpu/matmul_lanes.h"

/* Where a tile's codes come from: the panel, or packed codes of so many bits, perhaps looked up in a table. */
enum source { PANEL_CODES, BITS_2 = 2, BITS_3, BITS_4, BITS_5, BITS_6, BITS_8 = 8, BITS_4_MXFP4, BITS_4_IQ4 };

LANES_INLINE size_t source_bytes(int source) { return (size_t)64 * (source > BITS_8 ? 4 : (size_t)source); }

/* Per weight type: functions by the number of rows, less one. */
struct plan {
    void (*unpack)(struct panel *, const uint8_t *, uint32_t);
    const tile_fn *panel, *direct;
    uint32_t direct_rows; /* more rows share a panel */
};
static const struct plan plans[DTYPE_END];

static void codes_prepare(const struct packed *w, struct panel *p, const uint8_t *from, uint32_t blocks,
                          uint32_t n_rows) {
    const struct plan *plan = &plans[w->type];
    p->codes.direct = n_rows <= plan->direct_rows ? from : NULL;
    if (!p->codes.direct) plan->unpack(p, from, blocks);
}

static tile_fn tile_find(const struct packed *w, const struct panel *p, uint32_t n_groups, uint32_t n_rows) {
    const struct plan *plan = &plans[w->type];
    return (p->codes.direct ? plan->direct : plan->panel)[n_rows - 1];
}

#endif
