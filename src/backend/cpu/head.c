/* The head (head.h). Outputs of which all logits are wanted share the passes over its weights. Of one whose grammar
 * leaves a few tokens only the groups that hold those are computed, by a tile of its own: a fraction of the weights
 * instead of most of a row's products; of one that nobody will look at, nothing. Which way a logit came about makes no
 * difference to its bits.
 *
 * Threads: cutting and stepping run alone between phases; cutting the first products changes the order of the outputs.
 * Tiles run on the whole team. Invariant: output i of the run is row i of the head's prepared rows. */
#include "backend/cpu/head.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/products.h"
#include "backend/cpu/steps.h"
#include "backend/cpu/tiles.h"

enum {
    SPAN_GROUPS = LOGITS_SPAN / PACK_OUTPUTS,
    WORD_GROUPS = 32 / PACK_OUTPUTS, /* of a word of wanted ids */
    NARROW_PART = 64,                /* an output is narrow if at most one in so many groups holds what is wanted */
    HIDDEN_COLUMNS = 64,             /* of a tile */
};
_Static_assert(32 % PACK_OUTPUTS == 0, "a word of wanted ids is of whole groups");

static const struct product *product_of(const struct backend_program *p, const struct phase *phase) {
    return &p->products[phase->first];
}

/* ---- Outputs of which few logits are wanted ---- */

static int group_wanted(const uint32_t *ids, uint32_t group) {
    uint32_t bits = ids[group / WORD_GROUPS] >> group % WORD_GROUPS * PACK_OUTPUTS;
    return (bits & (((uint64_t)1 << PACK_OUTPUTS) - 1)) != 0;
}

/* The first one from `group` on; `groups` if there is none. */
static uint32_t next_wanted(const uint32_t *ids, uint32_t group, uint32_t groups) {
    while (group < groups && !group_wanted(ids, group))
        group = ids[group / WORD_GROUPS] ? group + 1 : (group / WORD_GROUPS + 1) * WORD_GROUPS;
    return min_u32(group, groups);
}

static int are_few(const uint32_t *ids, uint32_t groups) {
    uint32_t left = ceil_div(groups, NARROW_PART);
    for (uint32_t g = 0; (g = next_wanted(ids, g, groups)) < groups; g++)
        if (left-- == 0) return 0;
    return 1;
}

/* Asks what is wanted of an output, once. 1: it is little, and noted. */
static int ask_output(const struct run *r, struct output *o, uint32_t groups) {
    const uint32_t *ids = NULL;
    enum batch_wants wants = r->batch.wants(r->batch.user, o->item, o->index, &ids);
    assert((wants == BATCH_SOME) == (ids != NULL));
    if (wants == BATCH_ALL || (ids && !are_few(ids, groups))) return 0;
    o->wanted = ids;
    return 1;
}

static void swap_bytes(char *a, char *b, size_t n) {
    char held[256];
    for (size_t part; n > 0; n -= part, a += part, b += part) {
        part = n < sizeof(held) ? n : sizeof(held);
        memcpy(held, a, part);
        memcpy(a, b, part);
        memcpy(b, held, part);
    }
}

static void swap_outputs(struct backend_program *p, const struct packed *w, uint32_t i, uint32_t j) {
    struct output *outputs = p->run.outputs, held = outputs[i];
    size_t stride = act_stride(p, w->kind, w->cols);
    char *acts = p->acts[w->kind].base;
    if (i == j) return;
    outputs[i] = outputs[j];
    outputs[j] = held;
    swap_bytes(acts + i * stride, acts + j * stride, stride);
}

/* The narrow ones go behind the others. */
static void outputs_sort(struct backend_program *p, const struct phase *phase) {
    struct run *r = &p->run;
    const struct packed *w = product_of(p, phase)->weight;
    r->n_whole = r->n_logits;
    assert(phase->n == 1);
    if (!r->batch.wants) return;
    for (uint32_t i = 0; i < r->n_whole;) {
        if (ask_output(r, &r->outputs[i], w->groups))
            swap_outputs(p, w, i, --r->n_whole);
        else
            i++;
    }
}

/* ---- Cutting ---- */

void head_begin(struct run *r) {
    r->logit_first = 0;
    r->stage = r->n_logits ? LOGITS_PRODUCTS : LOGITS_HIDDEN;
}

/* Those of the current tile of outputs of which all logits are computed; they are its first. */
static uint32_t whole_here(const struct run *r) {
    return r->n_whole > r->logit_first ? min_u32(r->n_whole - r->logit_first, r->logit_n) : 0;
}

/* The narrow ones' tiles are the first: they may be the longest. */
static void products_stage_cut(struct backend_program *p, const struct phase *phase) {
    struct run *r = &p->run;
    if (r->logit_first == 0) outputs_sort(p, phase);
    uint32_t whole = whole_here(r);
    r->tiling.tiles = 0;
    if (whole) products_cut(p, phase, whole, SPAN_GROUPS, &r->tiling);
    r->tiling.tiles += r->logit_n - whole;
}

void head_cut(struct backend_program *p, const struct phase *phase) {
    struct run *r = &p->run;
    switch (r->stage) {
    case LOGITS_PRODUCTS:
        r->logit_n = min_u32(BACKEND_LOGIT_TILE, r->n_logits - r->logit_first);
        assert(r->logit_n >= 1);
        products_stage_cut(p, phase);
        break;
    case LOGITS_CONSUME:
        r->tiling.tiles = r->logit_n;
        break;
    case LOGITS_HIDDEN:
        r->tiling.slices = ceil_div(p->regs[phase->op.a].width, HIDDEN_COLUMNS);
        r->tiling.tiles = r->n_hidden * r->tiling.slices;
        break;
    }
}

int head_step(struct run *r) {
    if (r->stage == LOGITS_HIDDEN) return 0;
    if (r->stage == LOGITS_PRODUCTS) {
        r->stage = LOGITS_CONSUME;
        return 1;
    }
    r->logit_first += r->logit_n;
    r->stage = r->logit_first < r->n_logits ? LOGITS_PRODUCTS : LOGITS_HIDDEN;
    return r->stage == LOGITS_PRODUCTS || r->n_hidden > 0;
}

/* ---- Tiles ---- */

static float *logits_row(const struct backend_program *p, uint32_t row) { return p->logits + row * p->logits_stride; }

/* Rows are those of the current tile of outputs. */
static void run_piece(const struct backend_program *p, const struct phase *phase, const struct piece *piece) {
    const struct packed *w = piece->product->weight;
    const char *acts = p->acts[w->kind].base + p->run.logit_first * act_stride(p, w->kind, w->cols);
    products_run(p, piece, acts, p->logits, p->logits_stride);
    uint32_t column = piece->group * PACK_OUTPUTS;
    uint32_t columns = min_u32(piece->group_end * PACK_OUTPUTS, w->rows) - column;
    for (uint32_t i = piece->row; phase->op.softcap != 0 && i < piece->row_end; i++)
        p->backend->kernels.softcap(logits_row(p, i) + column, columns, phase->op.softcap);
}

static void narrow_tile(const struct backend_program *p, const struct phase *phase, uint32_t row) {
    const uint32_t *ids = p->run.outputs[p->run.logit_first + row].wanted;
    const struct product *product = product_of(p, phase);
    uint32_t groups = product->weight->groups;
    for (uint32_t g = 0, end; ids && (g = next_wanted(ids, g, groups)) < groups; g = end) {
        for (end = g + 1; end < groups && group_wanted(ids, end);) end++;
        run_piece(p, phase, &(struct piece){product, g, end, row, row + 1});
    }
}

static void whole_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile) {
    struct piece piece = products_piece(p, phase, whole_here(&p->run), tile);
    run_piece(p, phase, &piece);
    uint32_t end = logits_spans(min_u32(piece.group_end * PACK_OUTPUTS, p->vocab));
    for (uint32_t i = piece.row; i < piece.row_end; i++)
        logits_peaks(&p->backend->kernels.vec, logits_row(p, i), p->vocab, piece.group / SPAN_GROUPS, end,
                     p->peaks + i * p->peaks_stride);
}

static void products_stage_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile) {
    uint32_t whole = whole_here(&p->run), narrow = p->run.logit_n - whole;
    if (tile < narrow)
        narrow_tile(p, phase, whole + tile);
    else
        whole_tile(p, phase, tile - narrow);
}

static void consume_tile(const struct backend_program *p, uint32_t tile, unsigned thread) {
    const struct run *r = &p->run;
    const struct output *o = &r->outputs[r->logit_first + tile];
    struct logits l = {p->logits + tile * p->logits_stride, p->vocab, p->peaks + tile * p->peaks_stride};
    r->batch.consume(r->batch.user, o->item, o->index, &l, p->scratch + thread * p->scratch_stride);
}

static void hidden_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile) {
    const struct run *r = &p->run;
    const struct hidden_item *h = &r->hidden[tile / r->tiling.slices];
    const struct reg_rows *reg = &p->regs[phase->op.a];
    uint32_t first = tile % r->tiling.slices * HIDDEN_COLUMNS;
    const struct hidden hidden = {.x = reg->base + h->row * reg->stride + first,
                                  .stride = reg->stride,
                                  .rows = r->batch.items[h->item].n_outputs,
                                  .first = first,
                                  .columns = min_u32(HIDDEN_COLUMNS, reg->width - first)};
    r->batch.take_hidden(r->batch.user, h->item, &hidden);
}

void head_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile, unsigned thread) {
    switch (p->run.stage) {
    case LOGITS_PRODUCTS:
        products_stage_tile(p, phase, tile);
        break;
    case LOGITS_CONSUME:
        consume_tile(p, tile, thread);
        break;
    case LOGITS_HIDDEN:
        hidden_tile(p, phase, tile);
        break;
    }
}
