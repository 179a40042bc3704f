/* Products (products.h): weights are read once for all rows, and prepared rows stay near while groups pass.
 *
 * Threads: cutting runs alone between phases; pieces on the whole team. */
#include "backend/cpu/products.h"

#include <assert.h>

#include "backend/cpu/steps.h"
#include "backend/cpu/tiles.h"

/* Rough speeds, to choose tiles: what one thread reads and multiplies in a nanosecond, and the time below which a tile
 * is too small. */
enum {
    BYTES_PER_NS = 10,
    MACS_PER_NS = 60,
    TILE_NS = 4000,
    ROWS_STEP = 64,           /* rows for which a kernel unpacks weights once: row blocks are multiples */
    ACT_BYTES = 256 * 1024,   /* prepared rows that stay in a core's cache while groups pass */
    CHUNK_BYTES = 256 * 1024, /* weights that stay there while row blocks pass */
};

/* Nanoseconds that one thread needs for one output group. */
static uint64_t group_ns(const struct packed *w, uint32_t rows) {
    uint64_t reading = w->group_bytes / BYTES_PER_NS;
    uint64_t multiplying = (uint64_t)rows * PACK_OUTPUTS * w->cols / MACS_PER_NS;
    return 1 + (reading > multiplying ? reading : multiplying);
}

/* Tiles of about the same time. A tile is a run of output groups, whole steps of them, for all rows, so that weights
 * come from memory once; only when there are too few groups to go around are the rows cut, too. */
void products_cut(const struct backend_program *p, const struct phase *phase, uint32_t rows, uint32_t step,
                  struct tiling *t) {
    uint64_t total = 0, largest = 0;
    assert(rows >= 1);
    for (uint32_t i = 0; i < phase->n; i++) {
        const struct packed *w = p->products[phase->first + i].weight;
        uint64_t ns = group_ns(w, rows);
        total += w->groups * ns;
        if (ns > largest) largest = ns;
    }
    uint64_t share = total / (threads_of(p) * TILES_PER_THREAD);
    if (share < TILE_NS) share = TILE_NS;
    t->row_blocks = 1;
    if (largest > share && rows > ROWS_STEP)
        t->row_blocks = min_u32((uint32_t)((largest + share - 1) / share), ceil_div(rows, ROWS_STEP));
    t->rows_per_tile = ceil_div(ceil_div(rows, t->row_blocks), ROWS_STEP) * ROWS_STEP;
    if (t->row_blocks == 1) t->rows_per_tile = rows;
    t->row_blocks = ceil_div(rows, t->rows_per_tile);

    t->tiles = 0;
    for (uint32_t i = 0; i < phase->n; i++) {
        const struct packed *w = p->products[phase->first + i].weight;
        uint64_t groups = share / group_ns(w, t->rows_per_tile);
        uint64_t most = CHUNK_BYTES / w->group_bytes;
        if (groups > most) groups = most;
        t->first_tile[i] = t->tiles;
        t->groups_per_tile[i] = max_u32((uint32_t)groups / step, 1) * step;
        if (ceil_div(w->groups, t->groups_per_tile[i]) > TEAM_TILES_MAX / PHASE_PRODUCTS_MAX / t->row_blocks)
            t->groups_per_tile[i] = w->groups;
        t->tiles += ceil_div(w->groups, t->groups_per_tile[i]) * t->row_blocks;
    }
}

struct piece products_piece(const struct backend_program *p, const struct phase *phase, uint32_t rows, uint32_t tile) {
    const struct tiling *t = &p->run.tiling;
    uint32_t i = phase->n - 1;
    while (tile < t->first_tile[i]) i--;
    tile -= t->first_tile[i];
    const struct product *product = &p->products[phase->first + i];
    uint32_t row = tile % t->row_blocks * t->rows_per_tile, group = tile / t->row_blocks * t->groups_per_tile[i];
    return (struct piece){.product = product,
                          .group = group,
                          .group_end = min_u32(group + t->groups_per_tile[i], product->weight->groups),
                          .row = row,
                          .row_end = min_u32(row + t->rows_per_tile, rows)};
}

void products_run(const struct backend_program *p, const struct piece *piece, const char *acts, float *y,
                  size_t y_stride) {
    const struct packed *w = piece->product->weight;
    const float *bias = piece->product->bias;
    size_t stride = act_stride(p, w->kind, w->cols);
    uint32_t block = max_u32((uint32_t)(ACT_BYTES / stride) / ROWS_STEP, 1) * ROWS_STEP;
    uint32_t column = piece->group * PACK_OUTPUTS;
    uint32_t columns = min_u32(piece->group_end * PACK_OUTPUTS, w->rows) - column;
    for (uint32_t r = piece->row; r < piece->row_end; r += block) {
        uint32_t n = min_u32(block, piece->row_end - r);
        float *out = y + r * y_stride;
        p->backend->kernels.matmul(w, piece->group, piece->group_end, acts + r * stride, stride, n, out, y_stride);
        for (uint32_t i = 0; bias && i < n; i++)
            p->backend->kernels.add(out + i * y_stride + column, bias + column, columns);
    }
}

void products_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile) {
    struct piece piece = products_piece(p, phase, p->run.n_rows[phase->domain], tile);
    const struct reg_rows *dst = &p->regs[piece.product->dst];
    products_run(p, &piece, p->acts[piece.product->weight->kind].base, dst->base, dst->stride);
}
