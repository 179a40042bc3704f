/* Recurrent layers: a tile takes one item's tokens in their order through a part of the state that no other tile
 * touches (columns of a convolution; heads, or blocks of values of one head, of the delta rule). So the state of a tile
 * stays near while the tokens pass, and neither chunks nor company can be seen in the bits.
 *
 * Threads: recur_cut runs alone between phases; tiles on the whole team. Invariant: a `from` page is only read, a `to`
 * page only written where this tile's part lies; that they may be the same page is the kernels' business. */
#include "backend/cpu/recur.h"

#include <assert.h>

#include "backend/cpu/steps.h"
#include "backend/cpu/tiles.h"

/* Rough speeds of one thread, to choose tiles. */
enum {
    CONV_COLUMNS = 64, /* a tile's columns are a multiple */
    CONV_PER_NS = 2,   /* columns of a token */
    DELTA_PER_NS = 16, /* elements of the state, for each token */
    STATE_PER_NS = 2,  /* elements of the state, read and written once */
    TILE_NS = 3000,    /* below it a tile is too small */
};

static uint32_t clamp_u32(uint64_t x, uint32_t low, uint32_t high) {
    return x < low ? low : x > high ? high : (uint32_t)x;
}

/* How many of an item's parts, `count` of them and each `ns` for the average item, make a tile. */
static uint32_t slice_of(const struct backend_program *p, uint32_t count, double ns) {
    double total = ns * count * p->run.batch.n_items;
    double share = total / ((double)threads_of(p) * TILES_PER_THREAD);
    if (share < TILE_NS) share = TILE_NS;
    uint64_t least = 1 + (uint64_t)count * p->run.batch.n_items / (TEAM_TILES_MAX / 2);
    return clamp_u32((uint64_t)(share / ns), least < count ? (uint32_t)least : count, count);
}

static void conv_cut(const struct backend_program *p, uint32_t columns, double tokens, struct tiling *t) {
    uint32_t blocks = ceil_div(columns, CONV_COLUMNS);
    t->slice = slice_of(p, blocks, tokens * CONV_COLUMNS / CONV_PER_NS) * CONV_COLUMNS;
    t->slices = ceil_div(columns, t->slice);
}

static void delta_cut(const struct backend_program *p, const struct op *op, double tokens, struct tiling *t) {
    uint32_t values = p->regs[op->dst].width / op->heads, threads = threads_of(p);
    double elements = (double)values * op->width;
    double ns = elements * (tokens / DELTA_PER_NS + 1.0 / STATE_PER_NS);
    t->slice = slice_of(p, op->heads, ns);
    t->slices = ceil_div(op->heads, t->slice);
    if (t->slice > 1 || (uint64_t)t->slices * p->run.batch.n_items >= 4 * (uint64_t)threads) return;
    t->parts = clamp_u32((uint64_t)(ns / TILE_NS), 1, ceil_div(values, DELTA_VALUES));
    t->slices *= t->parts;
}

void recur_cut(const struct backend_program *p, const struct phase *phase, struct tiling *t) {
    double tokens = (double)p->run.n_rows[DOMAIN_TOKENS] / p->run.batch.n_items;
    t->parts = 1;
    if (phase->op.kind == OP_CONV)
        conv_cut(p, p->regs[phase->op.a].width, tokens, t);
    else
        delta_cut(p, &phase->op, tokens, t);
    t->tiles = t->slices * p->run.batch.n_items;
}

/* An item's states before and after the batch: of the operation's layer, from its offset on. */
struct state {
    const float *from; /* NULL: none yet */
    float *to;
};

static struct state state_of(const struct backend_program *p, const struct op *op, const struct batch_item *item) {
    const struct program_layer *l = &p->layers[op->layer];
    const struct program_group *g = &p->groups[l->group];
    float *arena = p->run.batch.arena[l->group];
    size_t page = (size_t)g->layers * g->floats, at = (size_t)l->slot * g->floats + op->offset;
    uint32_t from = item->from[l->group];
    return (struct state){.from = from == BATCH_EMPTY ? NULL : arena + from * page + at,
                          .to = arena + item->to[l->group] * page + at};
}

void recur_check(const struct backend_program *p, const struct batch_item *item) {
    for (uint32_t g = 0; g < p->n_groups; g++) {
        if (p->groups[g].kind != GROUP_RECURRENT) continue;
        assert((item->from[g] == BATCH_EMPTY) == (item->first_pos == 0));
        assert(item->to[g] != BATCH_EMPTY);
    }
}

static void conv_tile(const struct backend_program *p, const struct phase *phase, uint32_t item, uint32_t slice) {
    const struct op *op = &phase->op;
    const struct batch_item *it = &p->run.batch.items[item];
    const struct reg_rows *x = &p->regs[op->a], *y = &p->regs[op->dst];
    uint32_t row = p->run.first_rows[item], column = slice * p->run.tiling.slice, left = x->width - column;
    struct state s = state_of(p, op, it);
    struct conv_args args = {
        .x = x->base + row * x->stride + column,
        .y = y->base + row * y->stride + column,
        .x_stride = x->stride,
        .y_stride = y->stride,
        .tokens = it->n_tokens,
        .columns = left < p->run.tiling.slice ? left : p->run.tiling.slice,
        .taps = p->tensors[op->tensor].cols,
        .weight = phase->weight + column,
        .weight_stride = x->width,
        .from = s.from ? s.from + column : NULL,
        .to = s.to + column,
        .tail_stride = x->width,
        .act = op->act,
    };
    p->backend->kernels.conv(&args);
}

static void delta_head(const struct backend_program *p, const struct op *op, uint32_t item, uint32_t head,
                       uint32_t part) {
    const struct batch_item *it = &p->run.batch.items[item];
    const struct reg_rows *a = &p->regs[op->a], *decay = &p->regs[op->b], *rate = &p->regs[op->c];
    const struct reg_rows *out = &p->regs[op->dst];
    uint32_t row = p->run.first_rows[item], values = out->width / op->heads, parts = p->run.tiling.parts;
    uint32_t blocks = ceil_div(values, DELTA_VALUES), end = blocks * (part + 1) / parts * DELTA_VALUES;
    const float *x = a->base + row * a->stride;
    size_t keys = (size_t)op->key_heads * op->width, key = (size_t)(head % op->key_heads) * op->width;
    size_t at = (size_t)head * values * op->width;
    struct state s = state_of(p, op, it);
    struct delta_args args = {
        .q = x + key,
        .k = x + keys + key,
        .v = x + 2 * keys + (size_t)head * values,
        .stride = a->stride,
        .decay = decay->base + row * decay->stride + head,
        .rate = rate->base + row * rate->stride + head,
        .decay_stride = decay->stride,
        .rate_stride = rate->stride,
        .out = out->base + row * out->stride + (size_t)head * values,
        .out_stride = out->stride,
        .tokens = it->n_tokens,
        .key_width = op->width,
        .value_width = values,
        .first = blocks * part / parts * DELTA_VALUES,
        .end = end < values ? end : values,
        .from = s.from ? s.from + at : NULL,
        .to = s.to + at,
    };
    p->backend->kernels.delta(&args);
}

void recur_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile) {
    const struct tiling *t = &p->run.tiling;
    uint32_t item = tile / t->slices, slice = tile % t->slices;
    if (phase->op.kind == OP_CONV) {
        conv_tile(p, phase, item, slice);
        return;
    }
    uint32_t first = slice / t->parts * t->slice, end = first + t->slice;
    if (end > phase->op.heads) end = phase->op.heads;
    for (uint32_t head = first; head < end; head++) delta_head(p, &phase->op, item, head, slice % t->parts);
}
