/* See exec_model.h. Test code: allocation failures abort. */
#include "exec_model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "base/fmath.h"
#include "base/rng.h"

enum { WIDTH = 64, HEADS = 4, HEAD_WIDTH = 32, FF = 96, LAYERS = 3 };

/* ---- Building ---- */

static void *keep(struct tiny_model *m, size_t bytes) {
    assert(m->n_memory < 64);
    void *memory = calloc(1, bytes);
    assert(memory);
    return m->memory[m->n_memory++] = memory;
}

static float random_float(uint64_t seed, uint64_t stream, uint64_t i) {
    return (float)(rng_unit(seed, stream, i) * 2 - 1);
}

/* A random matrix: F32 values in +-1/8, or random codes with an f16 scale of about that size. */
static int32_t tensor_add(struct tiny_model *m, uint64_t seed, enum dtype type, uint32_t rows, uint32_t cols) {
    struct program *p = &m->program;
    uint32_t block = dtype_info(type)->block_elements, bytes = dtype_info(type)->block_bytes;
    size_t blocks = (size_t)rows * cols / block;
    unsigned char *data = keep(m, blocks * bytes);
    uint64_t stream = 1000 + p->n_tensors;
    if (type == DTYPE_F32) {
        for (size_t i = 0; i < blocks; i++) {
            float x = rows == 1 ? 1 + random_float(seed, stream, i) / 4 : random_float(seed, stream, i) / 8;
            memcpy(data + i * 4, &x, 4);
        }
    } else { /* Q8_0 and Q5_0: an f16 scale, then codes */
        for (size_t i = 0; i < blocks * bytes; i++) data[i] = (unsigned char)(rng_u64(seed, stream, i) & 0xff);
        for (size_t i = 0; i < blocks; i++) {
            uint16_t scale =
                (uint16_t)((type == DTYPE_Q8_0 ? 0x1400 : 0x2000) + (rng_u64(seed, stream, i) >> 40) % 1024);
            memcpy(data + i * bytes, &scale, 2);
        }
    }
    p->tensors[p->n_tensors] = (struct program_tensor){
        .name = "random", .type = type, .rows = rows, .cols = cols, .data = data, .bytes = blocks * bytes};
    return (int32_t)p->n_tensors++;
}

static int16_t reg_add(struct tiny_model *m, uint32_t width, int parent, uint32_t offset) {
    struct program *p = &m->program;
    p->regs[p->n_regs] = (struct program_reg){.width = width, .parent = parent, .offset = offset};
    return (int16_t)p->n_regs++;
}

static struct op *op_add(struct tiny_model *m, enum op_kind kind, int dst, int a) {
    struct op *op = &m->program.ops[m->program.n_ops++];
    *op = (struct op){.kind = kind, .dst = (int16_t)dst, .a = (int16_t)a, .b = -1, .c = -1, .tensor = -1, .bias = -1};
    return op;
}

static void add_norm(struct tiny_model *m, uint64_t seed, int dst, int a, uint32_t width) {
    struct op *op = op_add(m, OP_NORM, dst, a);
    op->tensor = tensor_add(m, seed, DTYPE_F32, 1, width);
    op->width = width;
    op->eps = 1e-6f;
}

static struct op *add_matmul(struct tiny_model *m, uint64_t seed, enum dtype type, int dst, int a) {
    struct op *op = op_add(m, OP_MATMUL, dst, a);
    op->tensor = tensor_add(m, seed, type, m->program.regs[dst].width, m->program.regs[a].width);
    return op;
}

static void add_rope(struct tiny_model *m, int dst, uint32_t heads, uint32_t rope) {
    struct op *op = op_add(m, OP_ROPE, dst, -1);
    op->heads = heads;
    op->width = HEAD_WIDTH;
    op->rope = rope;
}

struct layer_regs {
    int x, h, q, k, v, mixed, gate, up;
};

/* Layer 0 and 2 are windowed with different shapes of rope and softcap, layer 1 sees all. */
static void add_layer(struct tiny_model *m, uint64_t seed, uint32_t layer, struct model_options o,
                      struct layer_regs *r) {
    static const enum dtype types[LAYERS][4] = {{DTYPE_Q8_0, DTYPE_Q5_0, DTYPE_F32, DTYPE_Q8_0},
                                                {DTYPE_F32, DTYPE_F32, DTYPE_Q5_0, DTYPE_Q5_0},
                                                {DTYPE_Q5_0, DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_F32}};
    const enum dtype *type = types[layer];
    struct program *p = &m->program;
    int last = layer == LAYERS - 1;
    add_norm(m, seed, r->h, r->x, WIDTH);
    add_matmul(m, seed, type[0], r->q, r->h);
    add_matmul(m, seed, type[1], r->k, r->h); /* another kind of weights on the same source */
    add_matmul(m, seed, type[2], r->v, r->h)->bias = tensor_add(m, seed, DTYPE_F32, 1, p->regs[r->v].width);
    add_norm(m, seed, r->q, r->q, HEAD_WIDTH);
    add_norm(m, seed, r->k, r->k, HEAD_WIDTH);
    add_rope(m, r->q, HEADS, layer % 2);
    add_rope(m, r->k, o.kv_heads, layer % 2);
    int q = r->q, mixed = r->mixed;
    if (last && o.select_early) {
        q = reg_add(m, HEADS * HEAD_WIDTH, -1, 0);
        mixed = reg_add(m, HEADS * HEAD_WIDTH, -1, 0);
        op_add(m, OP_SELECT, q, r->q);
    }
    struct op *op = op_add(m, OP_ATTEND, mixed, q);
    op->b = (int16_t)r->k;
    op->c = (int16_t)r->v;
    op->width = HEAD_WIDTH;
    op->heads = HEADS;
    op->kv_heads = o.kv_heads;
    op->layer = layer;
    op->scale = 0.17f;
    op->softcap = layer == 2 ? 20 : 0;
    if (last) {
        int x = reg_add(m, WIDTH, -1, 0);
        op_add(m, OP_SELECT, x, r->x);
        r->x = x;
        if (!o.select_early) {
            int selected = reg_add(m, HEADS * HEAD_WIDTH, -1, 0);
            op_add(m, OP_SELECT, selected, mixed);
            mixed = selected;
        }
    }
    add_matmul(m, seed, type[3], r->h, mixed);
    add_norm(m, seed, r->h, r->h, WIDTH);
    op_add(m, OP_ADD, r->x, r->h);
    add_norm(m, seed, r->h, r->x, WIDTH);
    add_matmul(m, seed, type[1], r->gate, r->h);
    add_matmul(m, seed, type[3], r->up, r->h);
    op = op_add(m, OP_GLU, r->gate, r->gate);
    op->b = (int16_t)r->up;
    op->act = layer % 2 ? ACT_SILU : ACT_GELU_TANH;
    add_matmul(m, seed, type[0], r->h, r->gate);
    op_add(m, OP_ADD, r->x, r->h);
}

/* ---- The hybrid ---- */

enum { KEY_HEADS = 2, KEY_WIDTH = 20, VALUE_WIDTH = 40, TAPS = 4, SHORT_TAPS = 3 }; /* no multiples of the lanes */

static void add_glu(struct tiny_model *m, enum program_act act, int dst, int a, int b) {
    struct op *op = op_add(m, OP_GLU, dst, a);
    op->b = (int16_t)b;
    op->act = act;
}

static void add_conv(struct tiny_model *m, uint64_t seed, int dst, int a, uint32_t taps, uint32_t layer) {
    struct op *op = op_add(m, OP_CONV, dst, a);
    op->tensor = tensor_add(m, seed, DTYPE_F32, m->program.regs[a].width, taps);
    op->layer = layer;
    op->act = taps == TAPS ? ACT_SILU : ACT_NONE;
}

static void add_l2_norm(struct tiny_model *m, int reg, float scale) {
    struct op *op = op_add(m, OP_L2_NORM, reg, reg);
    op->width = KEY_WIDTH;
    op->eps = 1e-6f;
    op->scale = scale;
}

static int selected(struct tiny_model *m, int reg) {
    int dst = reg_add(m, m->program.regs[reg].width, -1, 0);
    op_add(m, OP_SELECT, dst, reg);
    return dst;
}

/* A gated delta rule; returns the register of what the heads gave, gated. */
static int add_delta(struct tiny_model *m, uint64_t seed, int h, uint32_t layer) {
    uint32_t keys = KEY_HEADS * KEY_WIDTH, values = HEADS * VALUE_WIDTH, columns = 2 * keys + values;
    int in = reg_add(m, columns, -1, 0), convolved = reg_add(m, columns, -1, 0), gate = reg_add(m, values, -1, 0);
    int decay = reg_add(m, HEADS, -1, 0), rate = reg_add(m, HEADS, -1, 0), mixed = reg_add(m, values, -1, 0);
    add_matmul(m, seed, DTYPE_Q8_0, in, h);
    add_matmul(m, seed, DTYPE_F32, decay, h);
    add_matmul(m, seed, DTYPE_F32, rate, h);
    add_matmul(m, seed, DTYPE_Q8_0, gate, h);
    add_conv(m, seed, convolved, in, TAPS, layer);
    add_l2_norm(m, reg_add(m, keys, convolved, 0), 0.2236068f);
    add_l2_norm(m, reg_add(m, keys, convolved, keys), 1);
    struct op *op = op_add(m, OP_DECAY, decay, decay);
    op->tensor = tensor_add(m, seed, DTYPE_F32, 1, HEADS);
    op->bias = tensor_add(m, seed, DTYPE_F32, 1, HEADS);
    float *negative = (float *)m->memory[m->n_memory - 2];
    for (int i = 0; i < HEADS; i++) negative[i] *= -0.3f;
    op = op_add(m, OP_ACT, rate, rate);
    op->act = ACT_SIGMOID;
    op = op_add(m, OP_DELTA, mixed, convolved);
    op->b = (int16_t)decay;
    op->c = (int16_t)rate;
    op->heads = HEADS;
    op->key_heads = KEY_HEADS;
    op->width = KEY_WIDTH;
    op->layer = layer;
    op->offset = (TAPS - 1) * columns;
    add_norm(m, seed, mixed, mixed, VALUE_WIDTH);
    add_glu(m, ACT_SILU, mixed, gate, mixed);
    return mixed;
}

static int add_gated_attention(struct tiny_model *m, uint64_t seed, int h, uint32_t layer) {
    uint32_t width = HEADS * HEAD_WIDTH;
    int both = reg_add(m, 2 * width, -1, 0), q = reg_add(m, width, -1, 0), gate = reg_add(m, width, -1, 0);
    int k = reg_add(m, HEAD_WIDTH, -1, 0), v = reg_add(m, HEAD_WIDTH, -1, 0), mixed = reg_add(m, width, -1, 0);
    add_matmul(m, seed, DTYPE_Q8_0, both, h);
    add_matmul(m, seed, DTYPE_Q8_0, k, h);
    add_matmul(m, seed, DTYPE_Q8_0, v, h);
    for (uint32_t part = 0; part < 2; part++) {
        struct op *op = op_add(m, OP_SPLIT, part ? gate : q, both);
        op->heads = HEADS;
        op->width = HEAD_WIDTH;
        op->offset = part * HEAD_WIDTH;
    }
    add_rope(m, q, HEADS, 0);
    add_rope(m, k, 1, 0);
    struct op *op = op_add(m, OP_ATTEND, mixed, q);
    op->b = (int16_t)k;
    op->c = (int16_t)v;
    op->width = HEAD_WIDTH;
    op->heads = HEADS;
    op->kv_heads = 1;
    op->layer = layer;
    op->scale = 0.17f;
    add_glu(m, ACT_SIGMOID, mixed, gate, mixed);
    return mixed;
}

/* As the last layer: everything goes through the state, the wanted rows alone go on. */
static int add_short_conv(struct tiny_model *m, uint64_t seed, int h, uint32_t layer) {
    int in = reg_add(m, 3 * WIDTH, -1, 0), mixed = reg_add(m, WIDTH, -1, 0);
    int before = reg_add(m, WIDTH, in, 0), behind = reg_add(m, WIDTH, in, WIDTH), x = reg_add(m, WIDTH, in, 2 * WIDTH);
    add_matmul(m, seed, DTYPE_F32, in, h);
    add_glu(m, ACT_NONE, x, before, x);
    add_conv(m, seed, mixed, x, SHORT_TAPS, layer);
    mixed = selected(m, mixed);
    behind = selected(m, behind);
    add_glu(m, ACT_NONE, mixed, behind, mixed);
    return mixed;
}

static void add_ropes(struct tiny_model *m) {
    for (uint32_t i = 0; i < 2; i++) {
        struct program_rope *rope = &m->program.ropes[i];
        rope->pairs = i ? HEAD_WIDTH / 2 : 10; /* rope 0 leaves dimensions behind 20 alone */
        rope->interleaved = (int)i;
        rope->magnitude = i ? 1.1f : 1.0f;
        rope->frequency = keep(m, rope->pairs * sizeof(double));
        for (uint32_t pair = 0; pair < rope->pairs; pair++)
            rope->frequency[pair] = fmath_pow(10000, -(double)pair / rope->pairs);
    }
    m->program.n_ropes = 2;
}

static struct program *program_begin(struct tiny_model *m) {
    memset(m, 0, sizeof *m);
    struct program *p = &m->program;
    p->vocab = MODEL_VOCAB;
    p->tensors = keep(m, 64 * sizeof *p->tensors);
    p->regs = keep(m, PROGRAM_REGS_MAX * sizeof *p->regs);
    p->ops = keep(m, 128 * sizeof *p->ops);
    p->layers = keep(m, (LAYERS + 1) * sizeof *p->layers);
    return p;
}

void wide_model_init(struct tiny_model *m, uint64_t seed) {
    program_begin(m);
    int x = reg_add(m, 2048, -1, 0), a = reg_add(m, 48, -1, 0), b = reg_add(m, 48, -1, 0);
    int sum = reg_add(m, 64, -1, 0), wide = reg_add(m, 64, -1, 0), other = reg_add(m, 64, -1, 0);
    struct op *op = op_add(m, OP_EMBED, x, -1);
    op->tensor = tensor_add(m, seed, DTYPE_Q8_0, MODEL_VOCAB, 2048);
    op->scale = 8;
    add_matmul(m, seed, DTYPE_Q8_0, a, x);
    add_matmul(m, seed, DTYPE_F32, b, x)->bias = tensor_add(m, seed, DTYPE_F32, 1, 48);
    op_add(m, OP_ADD, a, b);
    add_matmul(m, seed, DTYPE_F32, wide, a);
    op_add(m, OP_ADD, a, b);
    add_matmul(m, seed, DTYPE_F32, other, a); /* the same register with another content */
    op_add(m, OP_ADD, wide, other);
    op_add(m, OP_SELECT, sum, wide);
    add_norm(m, seed, wide, sum, 64); /* over rows that other outputs are yet to be selected from */
    op = op_add(m, OP_LOGITS, -1, wide);
    op->tensor = tensor_add(m, seed, DTYPE_Q5_0, MODEL_VOCAB, 64);
}

void tiny_model_init(struct tiny_model *m, uint64_t seed, struct model_options o) {
    struct program *p = program_begin(m);
    add_ropes(m);
    p->n_groups = o.after ? 4 : 2;
    for (uint32_t g = 0; g < p->n_groups; g++) {
        struct program_group *group = &p->groups[g];
        *group = (struct program_group){.window = g % 2 ? 0 : MODEL_WINDOW,
                                        .layers = g % 2 ? 1 : 2,
                                        .kv_heads = o.kv_heads,
                                        .key_width = HEAD_WIDTH,
                                        .value_width = HEAD_WIDTH};
        if (g / 2 == p->n_groups / 2 - 1) group->key_form = o.key_form, group->value_form = o.value_form;
        if (o.after && g < 2) group->end = o.after;
        if (o.after && g >= 2) group->begin = o.after;
    }
    p->n_layers = LAYERS;
    for (uint32_t i = 0; i < LAYERS; i++)
        p->layers[i] =
            (struct program_layer){.group = i % 2, .slot = i / 2, .late = o.after ? 2 + (int32_t)(i % 2) : -1};
    p->layers[1].balance = keep(m, HEAD_WIDTH * sizeof(float));
    for (uint32_t d = 0; d < HEAD_WIDTH; d++)
        p->layers[1].balance[d] = 0.125f * (float)(1u << rng_u64(seed, 99, d) % 6);

    uint32_t qw = HEADS * HEAD_WIDTH, kw = o.kv_heads * HEAD_WIDTH;
    struct layer_regs r;
    r.x = reg_add(m, WIDTH, -1, 0);
    r.h = reg_add(m, WIDTH, -1, 0);
    int qkv = reg_add(m, qw + 2 * kw, -1, 0);
    r.q = reg_add(m, qw, qkv, 0);
    r.k = reg_add(m, kw, qkv, qw);
    r.v = reg_add(m, kw, qkv, qw + kw);
    r.mixed = reg_add(m, qw, -1, 0);
    r.gate = reg_add(m, FF, -1, 0);
    r.up = reg_add(m, FF, -1, 0);

    struct op *op = op_add(m, OP_EMBED, r.x, -1);
    op->tensor = tensor_add(m, seed, DTYPE_Q8_0, MODEL_VOCAB, WIDTH);
    op->scale = 8;
    for (uint32_t i = 0; i < LAYERS; i++) add_layer(m, seed, i, o, &r);
    add_norm(m, seed, r.h, r.x, WIDTH);
    int32_t head = o.tied ? 0 : tensor_add(m, seed, DTYPE_Q5_0, MODEL_VOCAB, WIDTH);
    op = op_add(m, OP_LOGITS, -1, r.h);
    op->tensor = head;
    op->softcap = o.tied ? 0 : 30;
}

void hybrid_model_init(struct tiny_model *m, uint64_t seed) {
    enum { COLUMNS = 2 * KEY_HEADS * KEY_WIDTH + HEADS * VALUE_WIDTH };
    struct program *p = program_begin(m);
    add_ropes(m);
    p->n_groups = 3;
    p->groups[0] = (struct program_group){
        .kind = GROUP_RECURRENT, .layers = 2, .floats = (TAPS - 1) * COLUMNS + HEADS * VALUE_WIDTH * KEY_WIDTH};
    p->groups[1] =
        (struct program_group){.layers = 1, .kv_heads = 1, .key_width = HEAD_WIDTH, .value_width = HEAD_WIDTH};
    p->groups[2] = (struct program_group){.kind = GROUP_RECURRENT, .layers = 1, .floats = (SHORT_TAPS - 1) * WIDTH};
    static const struct program_layer layers[] = {{.group = 0, .late = -1},
                                                  {.group = 1, .late = -1},
                                                  {.group = 0, .slot = 1, .late = -1},
                                                  {.group = 2, .late = -1}};
    memcpy(p->layers, layers, sizeof layers);
    p->n_layers = 4;

    int x = reg_add(m, WIDTH, -1, 0), h = reg_add(m, WIDTH, -1, 0);
    struct op *op = op_add(m, OP_EMBED, x, -1);
    op->tensor = tensor_add(m, seed, DTYPE_Q8_0, MODEL_VOCAB, WIDTH);
    op->scale = 8;
    for (uint32_t layer = 0; layer < 4; layer++) {
        add_norm(m, seed, h, x, WIDTH);
        int mixed = layer == 3   ? add_short_conv(m, seed, h, layer)
                    : layer == 1 ? add_gated_attention(m, seed, h, layer)
                                 : add_delta(m, seed, h, layer);
        if (layer == 3) x = selected(m, x);
        add_matmul(m, seed, DTYPE_F32, h, mixed);
        op_add(m, OP_ADD, x, h);
    }
    add_norm(m, seed, h, x, WIDTH);
    op_add(m, OP_LOGITS, -1, h)->tensor = 0;
}

void tiny_model_deinit(struct tiny_model *m) {
    for (int i = 0; i < m->n_memory; i++) free(m->memory[i]);
}

/* ---- The plain execution ---- */

struct plain {
    const struct program *p;
    struct kernels k;
    float *regs[PROGRAM_REGS_MAX];
    char *arena[PROGRAM_GROUPS_MAX];
    uint32_t table[MODEL_TOKENS_MAX / PAGE + 1];
    struct packed packed[64];
    float *logits, *hidden;
};

static float *plain_reg(const struct plain *e, int reg) {
    const struct program_reg *r = &e->p->regs[reg];
    return r->parent < 0 ? e->regs[reg] : e->regs[r->parent] + r->offset;
}

static void plain_matmul(struct plain *e, const struct op *op, float *y) {
    const struct packed *w = &e->packed[op->tensor];
    void *act = malloc(e->k.act_bytes(w->kind, w->cols));
    e->k.act_prepare(w->kind, act, plain_reg(e, op->a), w->cols);
    e->k.matmul(w, 0, w->groups, act, e->k.act_bytes(w->kind, w->cols), 1, y, w->rows);
    free(act);
    if (op->bias < 0) return;
    for (uint32_t i = 0; i < w->rows; i++) y[i] += ((const float *)e->p->tensors[op->bias].data)[i];
}

/* Pages of a layer and kv head in a group. */
static struct attend_pages plain_pages(const struct plain *e, uint32_t group, const struct op *op, uint32_t kv) {
    const struct program_group *g = &e->p->groups[group];
    size_t page_bytes = backend_page_bytes(g), slice = page_bytes / (g->layers * g->kv_heads);
    return (struct attend_pages){e->table, e->arena[group] + (e->p->layers[op->layer].slot * op->kv_heads + kv) * slice,
                                 page_bytes, g->key_form, g->value_form};
}

static void plain_attend(struct plain *e, const struct op *op, uint32_t pos) {
    const struct program_layer *layer = &e->p->layers[op->layer];
    uint32_t heads = op->heads / op->kv_heads;
    const struct program_group *g = &e->p->groups[layer->group];
    for (uint32_t kv = 0; kv < op->kv_heads; kv++) {
        struct attend_pages pages[2] = {plain_pages(e, layer->group, op, kv)};
        if (layer->late >= 0) pages[1] = plain_pages(e, (uint32_t)layer->late, op, kv);
        const struct attend_pages *to = &pages[layer->late >= 0 && pos >= g->end];
        struct page_shape shape = {g->key_width, g->value_width, to->key_form, to->value_form, layer->balance};
        e->k.store(&shape, (char *)to->arena + pos / PAGE * to->page_bytes, pos % PAGE,
                   plain_reg(e, op->b) + kv * g->key_width, plain_reg(e, op->c) + kv * g->value_width);
        for (uint32_t h = kv * heads; h < (kv + 1) * heads; h++) {
            float scratch[8192];
            assert(attend_scratch_floats(1, g->key_width) <= 8192);
            struct attend_args a = {.q = plain_reg(e, op->a) + h * g->key_width,
                                    .out = plain_reg(e, op->dst) + h * g->value_width,
                                    .tokens = 1,
                                    .heads = 1,
                                    .key_width = g->key_width,
                                    .value_width = g->value_width,
                                    .scale = op->scale,
                                    .softcap = op->softcap,
                                    .pos = pos,
                                    .window = g->window,
                                    .pages = {pages[0], pages[1]},
                                    .late = layer->late >= 0 ? g->end / PAGE : UINT32_MAX,
                                    .balance = layer->balance,
                                    .scratch = scratch};
            e->k.attend(&a);
        }
    }
}

static void plain_rope(struct plain *e, const struct op *op, uint32_t pos) {
    const struct program_rope *rope = &e->p->ropes[op->rope];
    float cs[HEAD_WIDTH];
    for (uint32_t i = 0; i < rope->pairs; i++) {
        double s, c;
        fmath_sincos(pos * rope->frequency[i], &s, &c);
        cs[i] = (float)c * rope->magnitude;
        cs[rope->pairs + i] = (float)s * rope->magnitude;
    }
    e->k.rope(plain_reg(e, op->dst), op->heads, op->width, cs, rope->pairs, rope->interleaved);
}

/* State of one sequence, in page 0. */
static float *plain_state(const struct plain *e, const struct op *op) {
    const struct program_layer *l = &e->p->layers[op->layer];
    return (float *)(void *)e->arena[l->group] + (size_t)l->slot * e->p->groups[l->group].floats + op->offset;
}

static void plain_conv(struct plain *e, const struct op *op, uint32_t pos) {
    const struct program_tensor *t = &e->p->tensors[op->tensor];
    float *turned = malloc(t->bytes), *state = plain_state(e, op);
    for (uint32_t i = 0; i < t->rows * t->cols; i++)
        turned[i % t->cols * t->rows + i / t->cols] = ((const float *)t->data)[i];
    struct conv_args a = {.x = plain_reg(e, op->a),
                          .y = plain_reg(e, op->dst),
                          .tokens = 1,
                          .columns = t->rows,
                          .taps = t->cols,
                          .weight = turned,
                          .weight_stride = t->rows,
                          .from = pos ? state : NULL,
                          .to = state,
                          .tail_stride = t->rows,
                          .act = op->act};
    e->k.conv(&a);
    free(turned);
}

static void plain_delta(struct plain *e, const struct op *op, uint32_t pos) {
    const float *x = plain_reg(e, op->a);
    float *state = plain_state(e, op);
    uint32_t keys = op->key_heads * op->width, values = e->p->regs[op->dst].width / op->heads;
    for (uint32_t h = 0; h < op->heads; h++) {
        struct delta_args a = {.q = x + h % op->key_heads * op->width,
                               .k = x + keys + h % op->key_heads * op->width,
                               .v = x + 2 * keys + h * values,
                               .decay = plain_reg(e, op->b) + h,
                               .rate = plain_reg(e, op->c) + h,
                               .out = plain_reg(e, op->dst) + h * values,
                               .tokens = 1,
                               .key_width = op->width,
                               .value_width = values,
                               .end = values,
                               .from = pos ? state + h * values * op->width : NULL,
                               .to = state + h * values * op->width};
        e->k.delta(&a);
    }
}

static void plain_split(struct plain *e, const struct op *op) {
    uint32_t part = e->p->regs[op->a].width / op->heads;
    for (uint32_t h = 0; h < op->heads; h++)
        memcpy(plain_reg(e, op->dst) + h * op->width, plain_reg(e, op->a) + h * part + op->offset,
               op->width * sizeof(float));
}

static void plain_op(struct plain *e, const struct op *op, int32_t token, uint32_t pos) {
    const struct program_tensor *t = op->tensor >= 0 ? &e->p->tensors[op->tensor] : NULL;
    float *dst = op->dst >= 0 ? plain_reg(e, op->dst) : NULL, *a = op->a >= 0 ? plain_reg(e, op->a) : NULL;
    uint32_t width = op->dst >= 0 ? e->p->regs[op->dst].width : 0;
    switch (op->kind) {
    case OP_EMBED:
        dequant_row(t->type, t->data, (uint32_t)token, t->cols, dst);
        for (uint32_t i = 0; i < width; i++) dst[i] *= op->scale;
        break;
    case OP_NORM:
        for (uint32_t i = 0; i < width; i += op->width) e->k.norm(dst + i, a + i, t->data, op->width, op->eps);
        break;
    case OP_MATMUL:
        plain_matmul(e, op, dst);
        break;
    case OP_ROPE:
        plain_rope(e, op, pos);
        break;
    case OP_ATTEND:
        plain_attend(e, op, pos);
        break;
    case OP_CONV:
        plain_conv(e, op, pos);
        break;
    case OP_DELTA:
        plain_delta(e, op, pos);
        break;
    case OP_L2_NORM:
        for (uint32_t i = 0; i < width; i += op->width) e->k.l2_norm(dst + i, a + i, op->width, op->eps, op->scale);
        break;
    case OP_DECAY:
        e->k.decay(dst, a, t->data, e->p->tensors[op->bias].data, width);
        break;
    case OP_ACT:
        e->k.act(dst, a, width, op->act);
        break;
    case OP_SPLIT:
        plain_split(e, op);
        break;
    case OP_GLU:
        e->k.glu(dst, a, plain_reg(e, op->b), width, op->act);
        break;
    case OP_ADD:
        e->k.add(dst, a, width);
        break;
    case OP_SELECT:
        memcpy(dst, a, width * sizeof(float));
        break;
    case OP_LOGITS:
        if (e->hidden) memcpy(e->hidden, a, hidden_width(e->p) * sizeof(float));
        plain_matmul(e, op, e->logits);
        if (op->softcap != 0) e->k.softcap(e->logits, e->p->vocab, op->softcap);
        break;
    }
}

uint32_t hidden_width(const struct program *program) { return program->regs[program->ops[program->n_ops - 1].a].width; }

void plain_run(const struct program *program, const int32_t *tokens, uint32_t n, float *logits, float *hidden) {
    struct plain *e = calloc(1, sizeof *e);
    e->p = program;
    kernels_init(&e->k, "ref");
    for (uint32_t i = 0; i < program->n_regs; i++) e->regs[i] = calloc(program->regs[i].width, sizeof(float));
    for (uint32_t g = 0; g < program->n_groups; g++)
        e->arena[g] = calloc(MODEL_TOKENS_MAX / PAGE + 1, backend_page_bytes(&program->groups[g]));
    for (uint32_t i = 0; i < sizeof e->table / sizeof *e->table; i++) e->table[i] = i;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const struct op *op = &program->ops[i];
        if ((op->kind != OP_MATMUL && op->kind != OP_LOGITS) || e->packed[op->tensor].data) continue;
        struct packed *w = &e->packed[op->tensor];
        const struct program_tensor *t = &program->tensors[op->tensor];
        int code = pack_plan(w, t->type, t->rows, t->cols);
        assert(code == 0);
        w->data = aligned_alloc(64, (w->groups * w->group_bytes + 63) / 64 * 64);
        for (uint32_t g = 0; g < w->groups; g++) pack_group(w, t->data, g);
    }
    for (uint32_t pos = 0; pos < n; pos++) {
        e->logits = logits + (size_t)pos * program->vocab;
        e->hidden = hidden ? hidden + (size_t)pos * hidden_width(program) : NULL;
        for (uint32_t i = 0; i < program->n_ops; i++) plain_op(e, &program->ops[i], tokens[pos], pos);
    }
    for (uint32_t i = 0; i < program->n_regs; i++) free(e->regs[i]);
    for (uint32_t g = 0; g < program->n_groups; g++) free(e->arena[g]);
    for (int i = 0; i < 64; i++) free(e->packed[i].data);
    free(e);
}
