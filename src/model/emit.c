/* The forward pass of a decoder, written once. Every layer is
 *
 *     x += post_norm(out * mix(h))                                       with h = norm(x)
 *     x += post_norm(down * (act(gate) * up))                            with gate, up from h = norm(x)
 *
 * where mixing is attention, attend(rope(norm(q)), rope(norm(k)), v) with q, k, v from h, or something recurrent, and
 * the spec says which of the norms, biases and scales there are. In the last layer every token has its keys and values
 * stored or goes through the recurrent state, but only the rows whose output is wanted ask and go on (OP_SELECT).
 *
 * A register is known by what it holds and its width; layers of one shape share registers. */
#include "model/emit.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/rope.h"

enum { OPS_PER_LAYER = 28, TENSORS_PER_LAYER = 24, OTHERS = 8 };

enum role {
    X,
    H,
    WANTED_X,
    WANTED_H,
    QKV,
    QUERY,
    QUERY_GATE, /* of a gated query matrix: all it gives, and the gates alone */
    KEY,
    VALUE,
    MIXED,
    WANTED_MIXED,
    MIX_GATE, /* of a recurrent mixer's output */
    MIX_IN,   /* what a convolution takes */
    CONVOLVED,
    DECAY,
    RATE,
    GATE_UP,
    GATE,
    UP
};

struct emitter {
    const struct model_spec *spec;
    const struct state_forms *forms;
    struct program *p;
    cohort_error *err;
    int rc; /* first failure; what is emitted after it is never used */
    enum role roles[PROGRAM_REGS_MAX];
};

/* ---- Registers and tensors ---- */

static int16_t view(struct emitter *e, enum role role, uint32_t width, int16_t parent, uint32_t offset) {
    struct program *p = e->p;
    for (uint32_t i = 0; i < p->n_regs; i++) {
        const struct program_reg *r = &p->regs[i];
        if (e->roles[i] == role && r->width == width && r->parent == parent && r->offset == offset) return (int16_t)i;
    }
    if (p->n_regs == PROGRAM_REGS_MAX) {
        if (!e->rc) e->rc = err_set(e->err, COHORT_E_UNSUPPORTED, NULL, "the layers have too many different widths");
        return 0;
    }
    e->roles[p->n_regs] = role;
    p->regs[p->n_regs] = (struct program_reg){.width = width, .parent = parent, .offset = offset};
    return (int16_t)p->n_regs++;
}

static int16_t reg(struct emitter *e, enum role role, uint32_t width) { return view(e, role, width, -1, 0); }

/* The program's index of a tensor of the file: `rows` of it, from the first; -1 for none. The embedding is the first
 * of all and found again when the head is tied to it. */
static int32_t tensor(struct emitter *e, const struct file_tensor *t, uint32_t rows) {
    struct program *p = e->p;
    if (!t) return -1;
    if (t == e->spec->embedding && p->n_tensors) return 0;
    p->tensors[p->n_tensors] = (struct program_tensor){.name = t->name,
                                                       .type = (enum dtype)t->type,
                                                       .rows = rows,
                                                       .cols = (uint32_t)t->dims[0],
                                                       .data = t->data,
                                                       .bytes = t->bytes / t->dims[1] * rows,
                                                       .mapped = t->mapped};
    return (int32_t)p->n_tensors++;
}

static struct op *add_op(struct emitter *e, enum op_kind kind, int16_t dst) {
    struct op *op = &e->p->ops[e->p->n_ops++];
    *op = (struct op){.kind = kind, .dst = dst, .a = -1, .b = -1, .c = -1, .tensor = -1, .bias = -1};
    return op;
}

/* ---- Operations ---- */

static void norm(struct emitter *e, int16_t dst, int16_t src, const struct file_tensor *weight) {
    if (!weight) return;
    struct op *op = add_op(e, OP_NORM, dst);
    op->a = src;
    op->tensor = tensor(e, weight, 1);
    op->width = (uint32_t)weight->dims[0];
    op->eps = e->spec->eps;
}

static void matmul(struct emitter *e, int16_t dst, int16_t src, const struct spec_matrix *m) {
    struct op *op = add_op(e, OP_MATMUL, dst);
    op->a = src;
    op->tensor = tensor(e, m->weight, (uint32_t)m->weight->dims[1]);
    op->bias = tensor(e, m->bias, 1);
}

static void rope(struct emitter *e, int16_t dst, uint32_t heads, const struct spec_attention *a) {
    struct op *op = add_op(e, OP_ROPE, dst);
    op->heads = heads;
    op->width = a->key_width;
    op->rope = a->rope;
}

static void add(struct emitter *e, int16_t dst, int16_t src) { add_op(e, OP_ADD, dst)->a = src; }

static int16_t select_rows(struct emitter *e, enum role role, int16_t src) {
    int16_t dst = reg(e, role, e->p->regs[src].width);
    add_op(e, OP_SELECT, dst)->a = src;
    return dst;
}

/* ---- Layers ---- */

/* A new group of layers like this one. */
static uint32_t group_add(struct emitter *e, const struct program_group *like) {
    struct program *p = e->p;
    if (p->n_groups == PROGRAM_GROUPS_MAX) {
        if (!e->rc)
            e->rc = err_set(e->err, COHORT_E_UNSUPPORTED, NULL,
                            "the layers have more than %d kinds of state (window, key/value heads, forms)",
                            PROGRAM_GROUPS_MAX);
        return 0;
    }
    p->groups[p->n_groups] = *like;
    return p->n_groups++;
}

/* The groups of a layer: those of an earlier one of the same kind, or new ones. */
static struct program_layer groups_of(struct emitter *e, const struct spec_attention *a, struct layer_forms forms) {
    struct program_group group = {.window = a->window,
                                  .kv_heads = a->kv_heads,
                                  .key_width = a->key_width,
                                  .value_width = a->value_width,
                                  .key_form = forms.key,
                                  .value_form = forms.value};
    struct program *p = e->p;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        struct program_layer l = p->layers[i];
        const struct program_group *g = &p->groups[l.late >= 0 ? (uint32_t)l.late : l.group];
        if (g->kind == GROUP_ATTENTION && g->window == a->window && g->kv_heads == a->kv_heads &&
            g->key_width == a->key_width && g->value_width == a->value_width && g->key_form == forms.key &&
            g->value_form == forms.value)
            return (struct program_layer){.group = l.group, .late = l.late};
    }
    uint32_t after = forms.key != FORM_F16 || forms.value != FORM_F16 ? e->forms->after : 0;
    if (after == 0) return (struct program_layer){.group = group_add(e, &group), .late = -1};
    struct program_group first = group;
    first.key_form = first.value_form = FORM_F16;
    first.end = group.begin = after;
    uint32_t early = group_add(e, &first);
    return (struct program_layer){.group = early, .late = (int32_t)group_add(e, &group)};
}

/* The column that is rotated by position together with column d; d itself: none. */
static uint32_t partner(const struct spec_rope *rope, uint32_t d) {
    if (d >= 2 * rope->pairs) return d;
    if (rope->interleaved) return d ^ 1;
    return d < rope->pairs ? d + rope->pairs : d - rope->pairs;
}

static double pair_energy(const struct file_tensor *norm, uint32_t d, uint32_t other) {
    float w, v;
    memcpy(&w, (const char *)norm->data + d * sizeof w, sizeof w);
    memcpy(&v, (const char *)norm->data + other * sizeof v, sizeof v);
    return (double)w * (double)w + (double)v * (double)v;
}

/* docs/NUMERICS.md, State: as the weights of the norms tell how large a column is in queries and in keys. */
static float balance_of(double query, double key) {
    double ratio = query / key;
    if (!(ratio >= 0x1p-32 && ratio <= 0x1p32)) return 1;
    float power = 1;
    for (; ratio >= 4; ratio /= 16) power *= 2;
    for (; ratio < 0.25; ratio *= 16) power /= 2;
    return power;
}

static float *balance_make(struct emitter *e, const struct spec_attention *a) {
    uint32_t width = a->key_width;
    const struct file_tensor *query = a->query_norm, *key = a->key_norm;
    if (!query || !key || query->dims[0] != width || key->dims[0] != width) return NULL;
    if ((enum dtype)query->type != DTYPE_F32 || (enum dtype)key->type != DTYPE_F32) return NULL;
    float *out = mem_alloc(width, sizeof *out);
    if (!out && !e->rc) e->rc = err_set(e->err, COHORT_E_MEMORY, NULL, "no memory for a layer's balance");
    for (uint32_t d = 0; out && d < width; d++) {
        uint32_t other = partner(&e->spec->ropes[a->rope], d);
        out[d] = balance_of(pair_energy(query, d, other), pair_energy(key, d, other));
    }
    return out;
}

static uint32_t attention_layer(struct emitter *e, const struct spec_attention *a) {
    struct program *p = e->p;
    struct layer_forms forms = e->forms ? e->forms->layer[p->n_layers] : (struct layer_forms){FORM_F16, FORM_F16};
    struct program_layer l = groups_of(e, a, forms);
    l.slot = p->groups[l.group].layers++;
    if (l.late >= 0) p->groups[l.late].layers++;
    l.balance = forms.key != FORM_F16 ? balance_make(e, a) : NULL;
    p->layers[p->n_layers] = l;
    return p->n_layers++;
}

/* A layer with a recurrent state of so many floats; returns its index. */
static uint32_t recurrent_layer(struct emitter *e, uint32_t floats) {
    struct program *p = e->p;
    uint32_t group = 0;
    while (group < p->n_groups && (p->groups[group].kind != GROUP_RECURRENT || p->groups[group].floats != floats))
        group++;
    if (group == p->n_groups) group = group_add(e, &(struct program_group){.kind = GROUP_RECURRENT, .floats = floats});
    p->layers[p->n_layers] = (struct program_layer){.group = group, .slot = p->groups[group].layers++, .late = -1};
    return p->n_layers++;
}

/* dst = act(a) * b */
static void glu(struct emitter *e, int16_t dst, enum program_act act, int16_t a, int16_t b) {
    struct op *op = add_op(e, OP_GLU, dst);
    op->a = a;
    op->b = b;
    op->act = act;
}

static void split(struct emitter *e, int16_t dst, int16_t src, uint32_t heads, uint32_t width, uint32_t offset) {
    struct op *op = add_op(e, OP_SPLIT, dst);
    op->a = src;
    op->heads = heads;
    op->width = width;
    op->offset = offset;
}

/* The queries from h; *gate: the register of their gates, if the matrix has them. */
static int16_t queries(struct emitter *e, const struct spec_attention *a, int16_t h, int16_t *gate) {
    uint32_t width = a->heads * a->key_width;
    int16_t q = reg(e, QUERY, width);
    if (!a->gated) {
        matmul(e, q, h, &a->query);
        return q;
    }
    int16_t both = reg(e, QUERY_GATE, 2 * width);
    *gate = reg(e, QUERY_GATE, width);
    matmul(e, both, h, &a->query);
    split(e, q, both, a->heads, a->key_width, 0);
    split(e, *gate, both, a->heads, a->key_width, a->key_width);
    return q;
}

/* Attention of one layer, up to the mixed values of the heads; returns their register. `wanted`: only the queries of
 * wanted rows are asked. */
static int16_t attention(struct emitter *e, const struct spec_attention *a, int16_t h, int wanted) {
    uint32_t qw = a->heads * a->key_width, kw = a->kv_heads * a->key_width, vw = a->kv_heads * a->value_width;
    int16_t q, k, v, gate = -1;
    if (a->fused.weight) {
        int16_t all = reg(e, QKV, qw + kw + vw);
        matmul(e, all, h, &a->fused);
        q = view(e, QUERY, qw, all, 0);
        k = view(e, KEY, kw, all, qw);
        v = view(e, VALUE, vw, all, qw + kw);
        if (wanted) q = select_rows(e, QUERY, q);
    } else {
        k = reg(e, KEY, kw);
        v = reg(e, VALUE, vw);
        matmul(e, k, h, &a->key);
        matmul(e, v, h, &a->value);
        q = queries(e, a, wanted ? select_rows(e, WANTED_H, h) : h, &gate);
    }
    norm(e, q, q, a->query_norm);
    norm(e, k, k, a->key_norm);
    rope(e, q, a->heads, a);
    rope(e, k, a->kv_heads, a);

    int16_t mixed = reg(e, MIXED, a->heads * a->value_width);
    struct op *op = add_op(e, OP_ATTEND, mixed);
    op->a = q;
    op->b = k;
    op->c = v;
    op->width = a->key_width;
    op->heads = a->heads;
    op->kv_heads = a->kv_heads;
    op->layer = attention_layer(e, a);
    op->scale = a->scale;
    op->softcap = a->softcap;
    if (gate >= 0) glu(e, mixed, ACT_SIGMOID, gate, mixed);
    return mixed;
}

static void convolve(struct emitter *e, int16_t dst, int16_t src, const struct file_tensor *taps, enum program_act act,
                     uint32_t layer) {
    struct op *op = add_op(e, OP_CONV, dst);
    op->a = src;
    op->tensor = tensor(e, taps, (uint32_t)taps->dims[1]);
    op->act = act;
    op->layer = layer;
}

static void l2_norm(struct emitter *e, int16_t reg, uint32_t width, float scale) {
    struct op *op = add_op(e, OP_L2_NORM, reg);
    op->a = reg;
    op->width = width;
    op->scale = scale;
    op->eps = 1e-6f; /* published as a constant, whatever the other norms have */
}

/* What goes into the recurrence beside the convolved columns: decays and rates of each head. */
static void delta_gates(struct emitter *e, const struct spec_gated_delta *d, int16_t decay, int16_t rate) {
    struct op *op = add_op(e, OP_DECAY, decay);
    op->a = decay;
    op->tensor = tensor(e, d->decay_rate, 1);
    op->bias = tensor(e, d->decay_bias, 1);
    op = add_op(e, OP_ACT, rate);
    op->a = rate;
    op->act = ACT_SIGMOID;
}

static int16_t gated_delta(struct emitter *e, const struct spec_gated_delta *d, int16_t h, int wanted) {
    uint32_t keys = d->key_heads * d->key_width, values = d->heads * d->value_width, columns = 2 * keys + values;
    int16_t in = reg(e, MIX_IN, columns), decay = reg(e, DECAY, d->heads), rate = reg(e, RATE, d->heads);
    int16_t gate = reg(e, MIX_GATE, values), convolved = reg(e, CONVOLVED, columns), mixed = reg(e, MIXED, values);
    matmul(e, in, h, &d->in);
    matmul(e, decay, h, &d->decay);
    matmul(e, rate, h, &d->rate);
    matmul(e, gate, wanted ? select_rows(e, WANTED_H, h) : h, &d->gate);

    uint32_t tail = (d->taps - 1) * columns;
    uint32_t layer = recurrent_layer(e, tail + values * d->key_width);
    convolve(e, convolved, in, d->conv, ACT_SILU, layer);
    l2_norm(e, view(e, QUERY, keys, convolved, 0), d->key_width, (float)(1 / sqrt((double)d->key_width)));
    l2_norm(e, view(e, KEY, keys, convolved, keys), d->key_width, 1);
    delta_gates(e, d, decay, rate);
    struct op *op = add_op(e, OP_DELTA, mixed);
    op->a = convolved;
    op->b = decay;
    op->c = rate;
    op->width = d->key_width;
    op->heads = d->heads;
    op->key_heads = d->key_heads;
    op->layer = layer;
    op->offset = tail;
    if (wanted) mixed = select_rows(e, WANTED_MIXED, mixed);
    norm(e, mixed, mixed, d->norm);
    glu(e, mixed, ACT_SILU, gate, mixed);
    return mixed;
}

static int16_t short_conv(struct emitter *e, const struct spec_short_conv *c, int16_t h, int wanted) {
    uint32_t width = e->spec->width;
    int16_t in = reg(e, MIX_IN, 3 * width), mixed = reg(e, MIXED, width);
    int16_t before = view(e, GATE, width, in, 0), behind = view(e, MIX_GATE, width, in, width);
    int16_t x = view(e, VALUE, width, in, 2 * width);
    matmul(e, in, h, &c->in);
    glu(e, x, ACT_NONE, before, x);
    uint32_t layer = recurrent_layer(e, (c->taps - 1) * width);
    convolve(e, mixed, x, c->conv, ACT_NONE, layer);
    if (wanted) {
        mixed = select_rows(e, WANTED_MIXED, mixed);
        behind = select_rows(e, MIX_GATE, behind);
    }
    glu(e, mixed, ACT_NONE, behind, mixed);
    return mixed;
}

/* The mixer of a layer, up to what its last matrix takes. */
static int16_t mix(struct emitter *e, const struct spec_layer *l, int16_t h, int wanted) {
    switch (l->mixer) {
    case SPEC_ATTENTION:
        break;
    case SPEC_GATED_DELTA:
        return gated_delta(e, &l->delta, h, wanted);
    case SPEC_SHORT_CONV:
        return short_conv(e, &l->conv, h, wanted);
    }
    return attention(e, &l->attention, h, wanted);
}

static const struct spec_matrix *mix_out(const struct spec_layer *l) {
    return l->mixer == SPEC_GATED_DELTA  ? &l->delta.out
           : l->mixer == SPEC_SHORT_CONV ? &l->conv.out
                                         : &l->attention.out;
}

/* The gated feed-forward from h back into h. */
static void gated(struct emitter *e, const struct spec_gated *g, int16_t h) {
    int16_t gate, up;
    if (g->fused.weight) {
        int16_t both = reg(e, GATE_UP, 2 * g->width);
        matmul(e, both, h, &g->fused);
        gate = view(e, GATE, g->width, both, 0);
        up = view(e, UP, g->width, both, g->width);
    } else {
        gate = reg(e, GATE, g->width);
        up = reg(e, UP, g->width);
        matmul(e, gate, h, &g->gate);
        matmul(e, up, h, &g->up);
    }
    glu(e, gate, g->act, gate, up);
    matmul(e, h, gate, &g->down);
}

/* One layer on *x, which after the last layer is the register of the wanted rows. */
static void layer(struct emitter *e, uint32_t i, int16_t *x) {
    const struct spec_layer *l = &e->spec->layers[i];
    int wanted = i == e->spec->n_layers - 1;
    int16_t h = reg(e, H, e->spec->width);
    norm(e, h, *x, l->mixer_norm);
    int16_t mixed = mix(e, l, h, wanted);
    if (wanted) *x = select_rows(e, WANTED_X, *x);
    matmul(e, h, mixed, mix_out(l));
    norm(e, h, h, l->mixer_post_norm);
    add(e, *x, h);

    norm(e, h, *x, l->ffn_norm);
    gated(e, &l->gated, h);
    norm(e, h, h, l->ffn_post_norm);
    add(e, *x, h);
}

static void forward(struct emitter *e) {
    const struct model_spec *spec = e->spec;
    int16_t x = reg(e, X, spec->width);
    struct op *op = add_op(e, OP_EMBED, x);
    op->tensor = tensor(e, spec->embedding, spec->vocab);
    op->scale = spec->embed_scale;
    for (uint32_t i = 0; i < spec->n_layers; i++) layer(e, i, &x);
    int16_t h = reg(e, H, spec->width);
    norm(e, h, x, spec->output_norm);
    op = add_op(e, OP_LOGITS, -1);
    op->a = h;
    op->tensor = tensor(e, spec->head, spec->vocab);
    op->softcap = spec->logits_cap;
}

int emit_program(const struct model_spec *spec, const struct state_forms *forms, struct program *out,
                 cohort_error *err) {
    size_t n = spec->n_layers;
    _Static_assert(PROGRAM_LAYERS_MAX * OPS_PER_LAYER + OTHERS <= PROGRAM_OPS_MAX, "a program of all layers fits");
    out->vocab = spec->vocab;
    out->context_trained = spec->context_trained;
    out->ops = mem_alloc(n * OPS_PER_LAYER + OTHERS, sizeof *out->ops);
    out->tensors = mem_alloc(n * TENSORS_PER_LAYER + OTHERS, sizeof *out->tensors);
    out->layers = mem_alloc(n, sizeof *out->layers);
    out->regs = mem_alloc(PROGRAM_REGS_MAX, sizeof *out->regs);
    if (!out->ops || !out->tensors || !out->layers || !out->regs)
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a program of %zu layers", n);
    for (uint32_t i = 0; i < spec->n_ropes; i++) {
        out->n_ropes++;
        int rc = rope_make(&spec->ropes[i], &out->ropes[i], err);
        if (rc) return rc;
    }
    struct emitter e = {.spec = spec, .forms = forms, .p = out, .err = err};
    forward(&e);
    assert(out->n_ops <= n * OPS_PER_LAYER + OTHERS && out->n_tensors <= n * TENSORS_PER_LAYER + OTHERS);
    return e.rc;
}

void emit_free(struct program *program) {
    for (uint32_t i = 0; i < program->n_ropes; i++) mem_free(program->ropes[i].frequency);
    for (uint32_t i = 0; i < program->n_layers; i++) mem_free(program->layers[i].balance);
    mem_free(program->ops);
    mem_free(program->tensors);
    mem_free(program->layers);
    mem_free(program->regs);
    *program = (struct program){0};
}
