/* Running a batch: from its items to rows and spans, then phase by phase. How a phase is cut into tiles decides speed
 * only: every tile computes whole chains.
 *
 * Threads: exec_advance runs alone between phases and is the only writer of p->run; exec_tile runs on the whole team.
 */
#include <assert.h>

#include "backend/cpu/head.h"
#include "backend/cpu/products.h"
#include "backend/cpu/recur.h"
#include "backend/cpu/steps.h"
#include "backend/cpu/tiles.h"
#include "base/clock.h"

/* How phases are cut: rough times, and those below which sharing does not pay. */
enum {
    SEEN_NS = 30, /* a query head and a key: both products */
    SHARE_NS = 3000,
    ATTEND_SHARE_NS = 12000, /* more: what the other cores must fetch is larger */
    GROUPS_STEP = 2,         /* output groups that share a pass over the rows */
};

/* ---- The batch's rows ---- */

/* Cuts the last n tokens of an item into spans of equal length, as many for each thread as for any other: a chunk
 * beside decoding rows is most of the attention there is. `row` is the first one's in the domain. */
static void spans_add(const struct backend_program *p, struct run *r, enum domain domain, uint32_t item, uint32_t row,
                      uint32_t n) {
    if (n == 0) return;
    const struct batch_item *it = &r->batch.items[item];
    uint32_t pos = it->first_pos + it->n_tokens - n;
    uint32_t spans = ceil_div(ceil_div(n, ATTEND_TOKENS), threads_of(p)) * threads_of(p), each = ceil_div(n, spans);
    for (uint32_t done = 0; done < n; done += each)
        r->spans[domain][r->n_spans[domain]++] =
            (struct span){.item = item, .row = row + done, .n = min_u32(each, n - done), .pos = pos + done};
}

static void seen_count(struct backend_program *p) {
    struct run *r = &p->run;
    for (int d = 0; d < DOMAINS; d++)
        for (uint32_t g = 0; g < p->n_groups; g++) {
            uint32_t window = p->groups[g].window;
            uint64_t seen = 0;
            for (uint32_t i = 0; i < r->n_spans[d]; i++) {
                const struct span *s = &r->spans[d][i];
                uint32_t visible = s->pos + s->n;
                seen += (uint64_t)s->n * (window && window < visible ? window : visible);
            }
            r->seen[d][g] = seen;
        }
}

/* The outputs of the items that want logits, or of those that want hidden vectors. Returns how many there are so far.
 */
static uint32_t outputs_add(const struct backend_program *p, struct run *r, int hidden, uint32_t outputs) {
    for (uint32_t i = 0; i < r->batch.n_items; i++) {
        const struct batch_item *it = &r->batch.items[i];
        if ((it->hidden != 0) != hidden || it->n_outputs == 0) continue;
        assert(it->n_outputs <= it->n_tokens && it->n_outputs <= p->outputs_max - outputs);
        if (hidden) r->hidden[r->n_hidden++] = (struct hidden_item){i, outputs};
        spans_add(p, r, DOMAIN_OUTPUTS, i, outputs, it->n_outputs);
        uint32_t row = r->first_rows[i] + it->n_tokens - it->n_outputs;
        for (uint32_t o = 0; o < it->n_outputs; o++)
            r->outputs[outputs++] = (struct output){.row = row + o, .item = i, .index = o};
    }
    return outputs;
}

static void batch_begin(struct backend_program *p, const struct batch *batch) {
    struct run *r = &p->run;
    r->batch = *batch;
    assert(batch->n_items >= 1 && batch->n_items <= p->items_max);
    uint32_t rows = 0;
    for (int d = 0; d < DOMAINS; d++) r->n_spans[d] = 0;
    for (uint32_t i = 0; i < batch->n_items; i++) {
        const struct batch_item *it = &batch->items[i];
        assert(it->n_tokens >= 1 && it->n_tokens <= p->tokens_max - rows);
        assert(it->first_pos <= UINT32_MAX - it->n_tokens && (it->tokens || it->n_tokens == 1));
        recur_check(p, it);
        r->first_rows[i] = rows;
        spans_add(p, r, DOMAIN_TOKENS, i, rows, it->n_tokens);
        for (uint32_t t = 0; t < it->n_tokens; t++) {
            int32_t id = it->tokens ? it->tokens[t] : batch->slots[it->slot];
            assert(id >= 0 && (uint32_t)id < p->vocab);
            r->tokens[rows++] = (struct token){.item = i, .pos = it->first_pos + t, .id = id};
        }
    }
    r->n_hidden = 0;
    r->n_logits = outputs_add(p, r, 0, 0);
    r->n_rows[DOMAIN_TOKENS] = rows;
    r->n_rows[DOMAIN_OUTPUTS] = outputs_add(p, r, 1, r->n_logits);
    seen_count(p);
    r->end = r->n_rows[DOMAIN_OUTPUTS] ? p->n_phases : p->end_stateful;
    head_begin(r);
}

/* ---- Cutting phases into tiles ---- */

static void rows_cut(const struct backend_program *p, const struct phase *phase, struct tiling *t) {
    uint32_t rows = p->run.n_rows[phase->domain];
    if ((uint64_t)rows * phase->row_ns < SHARE_NS || threads_of(p) == 1) {
        t->rows_per_tile = max_u32(rows, 1);
    } else {
        uint32_t balanced = ceil_div(rows, threads_of(p) * TILES_PER_THREAD);
        t->rows_per_tile =
            max_u32(balanced, min_u32(ceil_div(SHARE_NS / 2, phase->row_ns), ceil_div(rows, threads_of(p))));
    }
    t->tiles = ceil_div(rows, t->rows_per_tile);
}

/* Units are (span, kv head, part of its query heads); tiles are runs of units. */
static void attend_cut(const struct backend_program *p, const struct phase *phase, struct tiling *t) {
    const struct run *r = &p->run;
    uint32_t heads = phase->op.heads / phase->op.kv_heads;
    uint32_t whole = r->n_spans[phase->domain] * phase->op.kv_heads;
    uint64_t ns = r->seen[phase->domain][p->layers[phase->op.layer].group] * phase->op.heads * SEEN_NS;
    t->parts = 1;
    if (whole < threads_of(p) && ns >= ATTEND_SHARE_NS)
        t->parts = min_u32(heads, ceil_div(threads_of(p), max_u32(whole, 1)));
    t->units = whole * t->parts;
    uint64_t tiles = ns < ATTEND_SHARE_NS ? 1 : ns / SHARE_NS;
    tiles = tiles < threads_of(p) * TILES_PER_THREAD * 2 ? tiles : threads_of(p) * TILES_PER_THREAD * 2;
    t->tiles = min_u32(t->units, (uint32_t)tiles);
}

/* ---- Tiles ---- */

static void rows_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile) {
    uint32_t first = tile * p->run.tiling.rows_per_tile;
    steps_run(p, phase, first, min_u32(first + p->run.tiling.rows_per_tile, p->run.n_rows[phase->domain]));
}

static struct attend_pages pages_of(const struct backend_program *p, uint32_t group, uint32_t layer, uint32_t item,
                                    uint32_t kv_head) {
    const struct program_group *g = &p->groups[group];
    return (struct attend_pages){.table = p->run.batch.items[item].table[group],
                                 .arena = slice_base(p, group, layer, kv_head),
                                 .page_bytes = backend_page_bytes(g),
                                 .key_form = g->key_form,
                                 .value_form = g->value_form};
}

static void attend_unit(const struct backend_program *p, const struct phase *phase, uint32_t unit, float *scratch) {
    const struct op *op = &phase->op;
    const struct program_layer *layer = &p->layers[op->layer];
    const struct program_group *g = &p->groups[layer->group];
    uint32_t parts = p->run.tiling.parts, part = unit % parts, kv_head = unit / parts % op->kv_heads;
    const struct span *s = &p->run.spans[phase->domain][unit / parts / op->kv_heads];
    uint32_t heads = op->heads / op->kv_heads, first = heads * part / parts, end = heads * (part + 1) / parts;
    size_t head = (size_t)kv_head * heads + first;
    struct attend_args args = {
        .q = reg_row(p, op->a, s->row) + head * g->key_width,
        .out = reg_row(p, op->dst, s->row) + head * g->value_width,
        .q_stride = p->regs[op->a].stride,
        .out_stride = p->regs[op->dst].stride,
        .tokens = s->n,
        .heads = end - first,
        .key_width = g->key_width,
        .value_width = g->value_width,
        .scale = op->scale,
        .softcap = op->softcap,
        .pos = s->pos,
        .window = g->window,
        .pages = {pages_of(p, layer->group, op->layer, s->item, kv_head)},
        .late = UINT32_MAX,
        .balance = layer->balance,
        .scratch = scratch,
    };
    if (layer->late >= 0) {
        args.pages[1] = pages_of(p, (uint32_t)layer->late, op->layer, s->item, kv_head);
        args.late = g->end / BACKEND_PAGE_TOKENS;
    }
    p->backend->kernels.attend(&args);
}

static void attend_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile, unsigned thread) {
    const struct tiling *t = &p->run.tiling;
    uint32_t first = (uint32_t)((uint64_t)t->units * tile / t->tiles);
    uint32_t end = (uint32_t)((uint64_t)t->units * (tile + 1) / t->tiles);
    for (uint32_t unit = first; unit < end; unit++)
        attend_unit(p, phase, unit, p->scratch + thread * p->scratch_stride);
}

/* ---- The job ---- */

static int has_products(const struct phase *phase) {
    return phase->kind == PHASE_MATMUL || phase->kind == PHASE_LOGITS;
}

/* Products read memory and everything else does not: who waits gets the next ones' weights on their way; behind the
 * last, those with which the next batch begins. */
static void weights_ahead(const struct backend_program *p, uint32_t phase) {
    while (phase < p->run.end && !has_products(&p->phases[phase])) phase++;
    if (phase == p->run.end) phase = 0;
    while (!has_products(&p->phases[phase])) phase++; /* the head at the latest */
    const struct packed *w = p->products[p->phases[phase].first].weight;
    team_fetch_ahead(p->backend->team, w->data, w->groups * w->group_bytes);
}

static uint32_t phase_cut(struct backend_program *p, const struct phase *phase) {
    struct tiling *t = &p->run.tiling;
    switch (phase->kind) {
    case PHASE_ROWS:
        rows_cut(p, phase, t);
        break;
    case PHASE_MATMUL:
        products_cut(p, phase, p->run.n_rows[phase->domain], GROUPS_STEP, t);
        break;
    case PHASE_ATTEND:
        attend_cut(p, phase, t);
        break;
    case PHASE_RECUR:
        recur_cut(p, phase, t);
        break;
    case PHASE_LOGITS:
        head_cut(p, phase);
        break;
    }
    return t->tiles;
}

uint32_t exec_advance(void *flight, unsigned thread) {
    struct flight *f = flight;
    struct backend_program *p = f->program;
    struct run *r = &p->run;
    if (!f->started) {
        f->started = 1;
        f->begin_us = clock_us();
        batch_begin(p, &f->batch);
        r->phase = 0;
    } else if (p->phases[r->phase].kind != PHASE_LOGITS || !head_step(r)) {
        r->phase++;
    }
    while (r->phase < r->end && r->n_rows[p->phases[r->phase].domain] == 0) r->phase++;
    if (r->phase < r->end) {
        weights_ahead(p, r->phase + 1);
        return phase_cut(p, &p->phases[r->phase]);
    }
    f->busy_us = clock_us() - f->begin_us;
    return 0;
}

void exec_tile(void *flight, uint32_t tile, unsigned thread) {
    struct backend_program *p = ((struct flight *)flight)->program;
    const struct phase *phase = &p->phases[p->run.phase];
    switch (phase->kind) {
    case PHASE_ROWS:
        rows_tile(p, phase, tile);
        break;
    case PHASE_MATMUL:
        products_tile(p, phase, tile);
        break;
    case PHASE_ATTEND:
        attend_tile(p, phase, tile, thread);
        break;
    case PHASE_RECUR:
        recur_tile(p, phase, tile);
        break;
    case PHASE_LOGITS:
        head_tile(p, phase, tile, thread);
        break;
    }
}
