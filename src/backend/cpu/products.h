/* The phases of products, and what the head shares with them: how products are cut into tiles, and one piece. */
#ifndef BACKEND_CPU_PRODUCTS_H
#define BACKEND_CPU_PRODUCTS_H

#include "backend/cpu/compiled.h"

/* Of a product: output groups [group, group_end) for rows [row, row_end). */
struct piece {
    const struct product *product;
    uint32_t group, group_end, row, row_end;
};

/* Cuts the phase's products for `rows` rows, at least one, into runs of output groups that are multiples of `step`.
 * Between phases, alone. */
void products_cut(const struct backend_program *p, const struct phase *phase, uint32_t rows, uint32_t step,
                  struct tiling *t);
/* What a tile of that is. */
struct piece products_piece(const struct backend_program *p, const struct phase *phase, uint32_t rows, uint32_t tile);
/* Computes it, biases too; acts and y are row 0's. Any thread of the team. */
void products_run(const struct backend_program *p, const struct piece *piece, const char *acts, float *y,
                  size_t y_stride);
/* One tile of a MATMUL phase, cut for all rows of its domain. Any thread of the team; tiles are independent. */
void products_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile);

#endif
