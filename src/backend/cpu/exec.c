/* Running a batch: from its items to rows and spans, then phase by phase. How a phase is cut into tiles decides speed
 * only: every tile computes whole chains.
 *
 * Threads: exec_advance runs alone between phases and is the only writer of p->run; exec_tile runs on the whole team.
 */
#include <assert.h>

#include "backend/cpu/compiled.h"
#include "backend/cpu/recur.h"
#include "backend/cpu/steps.h"
#include "base/clock.h"

/* Rough speeds, to choose tiles: what one thread reads and multiplies in a nanosecond, and times below which sharing
 * does not pay or a tile is too small. */
enum {
    BYTES_PER_NS = 10,
    MACS_PER_NS = 60,
    SEEN_NS = 30, /* a query head and a key: both products */
    SHARE_NS = 3000,
    ATTEND_SHARE_NS = 12000, /* more: what the other cores must fetch is larger */
    TILE_NS = 4000,
    TILES_PER_THREAD = 8,
    ROWS_STEP = 64,  /* rows for which a kernel unpacks weights once: row blocks are multiples */
    GROUPS_STEP = 2, /* output groups that share a pass over the rows */
    SPAN_GROUPS = LOGITS_SPAN / PACK_OUTPUTS,
    ACT_BYTES = 256 * 1024,   /* prepared rows that stay in a core's cache while groups pass */
    CHUNK_BYTES = 256 * 1024, /* weights that stay there while row blocks pass */
    HIDDEN_COLUMNS = 64,      /* of a tile */
};

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

static uint32_t threads_of(const struct backend_program *p) { return team_threads(p->backend->team); }

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
    r->stage = r->n_logits ? LOGITS_PRODUCTS : LOGITS_HIDDEN;
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

/* Nanoseconds that one thread needs for one output group. */
static uint64_t group_ns(const struct packed *w, uint32_t rows) {
    uint64_t reading = w->group_bytes / BYTES_PER_NS;
    uint64_t multiplying = (uint64_t)rows * PACK_OUTPUTS * w->cols / MACS_PER_NS;
    return 1 + (reading > multiplying ? reading : multiplying);
}

/* Tiles of about the same time. A tile is a run of output groups, whole steps of them, for all rows, so that weights
 * come from memory once; only when there are too few groups to go around are the rows cut, too. */
static void products_cut(const struct backend_program *p, const struct phase *phase, uint32_t rows, uint32_t step,
                         struct tiling *t) {
    uint64_t total = 0, largest = 0;
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

/* Output groups [first, end) for rows [row, row_end) of a product; y is row 0's first output. */
static void product_run(const struct backend_program *p, const struct product *product, uint32_t first, uint32_t end,
                        uint32_t row, uint32_t row_end, const char *acts, float *y, size_t y_stride) {
    const struct packed *w = product->weight;
    size_t stride = act_stride(p, w->kind, w->cols);
    uint32_t block = max_u32((uint32_t)(ACT_BYTES / stride) / ROWS_STEP, 1) * ROWS_STEP;
    uint32_t column = first * PACK_OUTPUTS, columns = min_u32(end * PACK_OUTPUTS, w->rows) - column;
    for (uint32_t r = row; r < row_end; r += block) {
        uint32_t n = min_u32(block, row_end - r);
        p->backend->kernels.matmul(w, first, end, acts + r * stride, stride, n, y + r * y_stride, y_stride);
        for (uint32_t i = r; product->bias && i < r + n; i++)
            p->backend->kernels.add(y + i * y_stride + column, product->bias + column, columns);
    }
}

static void matmul_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile) {
    const struct tiling *t = &p->run.tiling;
    uint32_t i = phase->n - 1;
    while (tile < t->first_tile[i]) i--;
    tile -= t->first_tile[i];
    const struct product *product = &p->products[phase->first + i];
    uint32_t row = tile % t->row_blocks * t->rows_per_tile;
    uint32_t row_end = min_u32(row + t->rows_per_tile, p->run.n_rows[phase->domain]);
    uint32_t first = tile / t->row_blocks * t->groups_per_tile[i];
    uint32_t end = min_u32(first + t->groups_per_tile[i], product->weight->groups);
    const struct reg_rows *dst = &p->regs[product->dst];
    product_run(p, product, first, end, row, row_end, p->acts[product->weight->kind].base, dst->base, dst->stride);
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

/* ---- The head ---- */

static void logits_cut(struct backend_program *p, const struct phase *phase) {
    struct run *r = &p->run;
    if (r->stage == LOGITS_HIDDEN) {
        r->tiling.slices = ceil_div(p->regs[phase->op.a].width, HIDDEN_COLUMNS);
        r->tiling.tiles = r->n_hidden * r->tiling.slices;
        return;
    }
    r->logit_n = min_u32(BACKEND_LOGIT_TILE, r->n_logits - r->logit_first);
    if (r->stage == LOGITS_CONSUME)
        r->tiling.tiles = r->logit_n;
    else
        products_cut(p, phase, r->logit_n, SPAN_GROUPS, &r->tiling);
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

static void products_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile) {
    const struct run *r = &p->run;
    const struct product *product = &p->products[phase->first];
    const struct packed *w = product->weight;
    uint32_t row = tile % r->tiling.row_blocks * r->tiling.rows_per_tile;
    uint32_t row_end = min_u32(row + r->tiling.rows_per_tile, r->logit_n);
    uint32_t first = tile / r->tiling.row_blocks * r->tiling.groups_per_tile[0];
    uint32_t end = min_u32(first + r->tiling.groups_per_tile[0], w->groups);
    const char *acts = p->acts[w->kind].base + r->logit_first * act_stride(p, w->kind, w->cols);
    product_run(p, product, first, end, row, row_end, acts, p->logits, p->logits_stride);
    uint32_t column = first * PACK_OUTPUTS, columns = min_u32(end * PACK_OUTPUTS, w->rows) - column;
    for (uint32_t i = row; i < row_end; i++) {
        float *logits = p->logits + i * p->logits_stride;
        if (phase->op.softcap != 0) p->backend->kernels.softcap(logits + column, columns, phase->op.softcap);
        logits_peaks(&p->backend->kernels.vec, logits, w->rows, first / SPAN_GROUPS, logits_spans(column + columns),
                     p->peaks + i * p->peaks_stride);
    }
}

static void logits_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile, unsigned thread) {
    switch (p->run.stage) {
    case LOGITS_PRODUCTS:
        products_tile(p, phase, tile);
        break;
    case LOGITS_CONSUME:
        consume_tile(p, tile, thread);
        break;
    case LOGITS_HIDDEN:
        hidden_tile(p, phase, tile);
        break;
    }
}

/* Goes from the products of a tile of outputs to its consumer, then to the next tile, and behind the last one to the
 * outputs that are no logits. 0: nothing is left. */
static int logits_step(struct run *r) {
    if (r->stage == LOGITS_HIDDEN) return 0;
    if (r->stage == LOGITS_PRODUCTS) {
        r->stage = LOGITS_CONSUME;
        return 1;
    }
    r->logit_first += r->logit_n;
    r->stage = r->logit_first < r->n_logits ? LOGITS_PRODUCTS : LOGITS_HIDDEN;
    return r->stage == LOGITS_PRODUCTS || r->n_hidden > 0;
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
        logits_cut(p, phase);
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
        r->phase = r->logit_first = 0;
    } else if (p->phases[r->phase].kind != PHASE_LOGITS || !logits_step(r)) {
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
        matmul_tile(p, phase, tile);
        break;
    case PHASE_ATTEND:
        attend_tile(p, phase, tile, thread);
        break;
    case PHASE_RECUR:
        recur_tile(p, phase, tile);
        break;
    case PHASE_LOGITS:
        logits_tile(p, phase, tile, thread);
        break;
    }
}
