/* From a list of operations to phases: row-wise operations gather in one phase, neighbouring products of the same
 * source share one, and sources are prepared at the end of the row phase that makes them.
 *
 * Threads: the owner's, while compiling. Invariant: inside a ROWS phase a row's steps touch only that row, except that
 * SELECT reads other rows of registers which nothing in the same phase writes. */
#include "backend/cpu/phases.h"

#include <assert.h>

#include "base/mem.h"

struct builder {
    struct backend_program *p;
    const struct program *program;
    int8_t domain[PROGRAM_REGS_MAX]; /* of each register without parent: what its rows are now */
    struct phase *rows;              /* the ROWS phase that may still grow; NULL: none */
    uint64_t selected;               /* registers whose other rows the open phase reads */
    int prepared;                    /* the register (parent) whose prepared rows are current; -1: none */
    int prepared_reg;                /* the register itself */
    unsigned prepared_kinds;         /* bit per pack_kind */
};

static int root_of(const struct builder *b, int reg) {
    assert(reg >= 0 && (uint32_t)reg < b->program->n_regs);
    int parent = b->program->regs[reg].parent;
    return parent < 0 ? reg : parent;
}

static uint32_t width_of(const struct builder *b, int reg) { return b->program->regs[reg].width; }

static enum domain domain_of(const struct builder *b, int reg) {
    int domain = b->domain[root_of(b, reg)];
    assert(domain != DOMAIN_NONE); /* read before it was written */
    return (enum domain)domain;
}

static void reg_written(struct builder *b, int reg, enum domain domain) {
    int root = root_of(b, reg);
    b->domain[root] = (int8_t)domain;
    if (root == b->prepared) b->prepared = -1;
}

static struct phase *phase_add(struct builder *b, enum phase_kind kind, enum domain domain, uint32_t first) {
    struct phase *phase = &b->p->phases[b->p->n_phases++];
    *phase = (struct phase){.kind = kind, .domain = domain, .first = first};
    b->rows = NULL;
    b->selected = 0;
    return phase;
}

/* A rough cost in nanoseconds per row. */
static uint32_t step_cost(const struct builder *b, const struct step *s) {
    uint64_t ns = 20;
    const struct op *op = &s->op;
    switch (s->kind) {
    case STEP_ANGLES:
        for (uint32_t r = 0; r < b->program->n_ropes; r++) ns += b->program->ropes[r].pairs * UINT64_C(25);
        break;
    case STEP_EMBED:
        ns += width_of(b, op->dst);
        break;
    case STEP_NORM:
        ns += width_of(b, op->dst) / 4;
        break;
    case STEP_ROPE:
        ns += width_of(b, op->dst) / 4;
        break;
    case STEP_STORE:
        ns += width_of(b, op->b) + width_of(b, op->c) / 4;
        break;
    case STEP_L2_NORM:
        ns += width_of(b, op->dst) / 4;
        break;
    case STEP_DECAY:
        ns += width_of(b, op->dst) * UINT64_C(4);
        break;
    case STEP_SPLIT:
        ns += width_of(b, op->dst) / 8;
        break;
    case STEP_ACT:
    case STEP_GLU:
        ns += width_of(b, op->dst);
        break;
    case STEP_ADD:
        ns += width_of(b, op->dst) / 8;
        break;
    case STEP_SELECT:
        ns += width_of(b, op->dst) / 8;
        break;
    case STEP_PREPARE:
        ns += width_of(b, op->a) / 4;
        break;
    }
    return (uint32_t)ns;
}

/* Appends a step to the open ROWS phase, or to a new one. `dst`: the register it writes, -1: none. */
static struct step *step_add(struct builder *b, enum step_kind kind, const struct op *op, enum domain domain, int dst) {
    struct backend_program *p = b->p;
    int written = dst >= 0 ? root_of(b, dst) : -1;
    int clash = written >= 0 && (b->selected >> written & 1);
    if (!b->rows || b->rows->domain != domain || clash) b->rows = phase_add(b, PHASE_ROWS, domain, p->n_steps);
    struct step *s = &p->steps[p->n_steps++];
    *s = (struct step){.kind = kind, .op = *op};
    b->rows->n++;
    b->rows->row_ns += step_cost(b, s);
    if (dst >= 0) reg_written(b, dst, domain);
    return s;
}

static const struct weight *weight_of(const struct builder *b, int32_t tensor) {
    assert(tensor >= 0 && (uint32_t)tensor < b->p->n_tensors);
    return &b->p->weights[b->p->weights[tensor].same_as];
}

static void add_norm(struct builder *b, const struct op *op) {
    const struct weight *w = weight_of(b, op->tensor);
    uint32_t width = width_of(b, op->a);
    assert(width_of(b, op->dst) == width && op->width > 0 && width % op->width == 0);
    assert(w->vector && b->p->tensors[op->tensor].cols == op->width);
    step_add(b, STEP_NORM, op, domain_of(b, op->a), op->dst)->weight = w->vector;
}

/* The kinds of weights among the products that follow from `op` on with its source. */
static unsigned kinds_ahead(const struct builder *b, const struct op *op) {
    const struct op *end = b->program->ops + b->program->n_ops;
    unsigned kinds = 0;
    for (const struct op *o = op; o < end && o->kind == op->kind && o->a == op->a; o++) {
        kinds |= 1u << weight_of(b, o->tensor)->packed.kind;
        if (root_of(b, o->a) == (o->dst >= 0 ? root_of(b, o->dst) : -1)) break;
    }
    return kinds;
}

static void source_prepare(struct builder *b, const struct op *op) {
    unsigned kind = 1u << weight_of(b, op->tensor)->packed.kind;
    if (b->prepared >= 0 && b->prepared_reg == op->a && (b->prepared_kinds & kind)) return;
    unsigned kinds = kinds_ahead(b, op);
    enum domain domain = domain_of(b, op->a);
    for (int k = 0; k < PACK_KINDS; k++)
        if (kinds >> k & 1) step_add(b, STEP_PREPARE, op, domain, -1)->act_kind = (enum pack_kind)k;
    b->prepared = root_of(b, op->a);
    b->prepared_reg = op->a;
    b->prepared_kinds = kinds;
}

static void product_add(struct builder *b, struct phase *phase, const struct op *op) {
    struct backend_program *p = b->p;
    const struct weight *bias = op->bias >= 0 ? weight_of(b, op->bias) : NULL;
    struct product *product = &p->products[p->n_products++];
    *product = (struct product){.weight = &weight_of(b, op->tensor)->packed, .dst = op->dst};
    assert(product->weight->groups > 0 && product->weight->cols == width_of(b, op->a));
    if (bias) {
        assert(bias->vector && p->tensors[op->bias].cols == product->weight->rows);
        product->bias = bias->vector;
    }
    phase->n++;
}

static void add_matmul(struct builder *b, const struct op *op) {
    struct backend_program *p = b->p;
    source_prepare(b, op);
    enum domain domain = domain_of(b, op->a);
    struct phase *last = p->n_phases ? &p->phases[p->n_phases - 1] : NULL;
    if (!last || last->kind != PHASE_MATMUL || last->n == PHASE_PRODUCTS_MAX)
        last = phase_add(b, PHASE_MATMUL, domain, p->n_products);
    assert(last->domain == domain && width_of(b, op->dst) == p->tensors[op->tensor].rows);
    product_add(b, last, op);
    reg_written(b, op->dst, domain);
}

static void add_attend(struct builder *b, const struct op *op) {
    struct backend_program *p = b->p;
    assert(op->layer < p->n_layers && op->heads > 0);
    const struct program_group *g = &p->groups[p->layers[op->layer].group];
    assert(g->kind == GROUP_ATTENTION && g->kv_heads == op->kv_heads && op->heads % op->kv_heads == 0);
    assert(width_of(b, op->a) == op->heads * g->key_width && width_of(b, op->dst) == op->heads * g->value_width);
    assert(width_of(b, op->b) == g->kv_heads * g->key_width && width_of(b, op->c) == g->kv_heads * g->value_width);
    assert(domain_of(b, op->b) == DOMAIN_TOKENS && domain_of(b, op->c) == DOMAIN_TOKENS);

    step_add(b, STEP_STORE, op, DOMAIN_TOKENS, -1);
    p->end_stateful = p->n_phases;
    enum domain domain = domain_of(b, op->a);
    phase_add(b, PHASE_ATTEND, domain, 0)->op = *op;
    reg_written(b, op->dst, domain);
}

/* An operation over the layer's recurrent state, from register `a` into dst. */
static struct phase *recur_add(struct builder *b, const struct op *op) {
    struct backend_program *p = b->p;
    assert(op->layer < p->n_layers && domain_of(b, op->a) == DOMAIN_TOKENS);
    assert(root_of(b, op->a) != root_of(b, op->dst));
    struct phase *phase = phase_add(b, PHASE_RECUR, DOMAIN_TOKENS, 0);
    phase->op = *op;
    p->end_stateful = p->n_phases;
    reg_written(b, op->dst, DOMAIN_TOKENS);
    return phase;
}

static void add_conv(struct builder *b, const struct op *op) {
    const struct program_tensor *t = &b->p->tensors[op->tensor];
    const struct program_group *g = &b->p->groups[b->p->layers[op->layer].group];
    assert(g->kind == GROUP_RECURRENT && t->rows == width_of(b, op->a) && t->rows == width_of(b, op->dst));
    assert((uint64_t)op->offset + (t->cols - 1) * (uint64_t)t->rows <= g->floats);
    recur_add(b, op)->weight = weight_of(b, op->tensor)->vector;
}

static void add_delta(struct builder *b, const struct op *op) {
    const struct program_group *g = &b->p->groups[b->p->layers[op->layer].group];
    uint32_t values = width_of(b, op->dst);
    assert(g->kind == GROUP_RECURRENT && op->key_heads > 0 && op->heads % op->key_heads == 0);
    assert(op->heads > 0 && values % op->heads == 0 && op->offset + (uint64_t)values * op->width <= g->floats);
    assert(width_of(b, op->a) == 2 * op->key_heads * op->width + values);
    assert(width_of(b, op->b) == op->heads && width_of(b, op->c) == op->heads);
    assert(domain_of(b, op->b) == DOMAIN_TOKENS && domain_of(b, op->c) == DOMAIN_TOKENS);
    recur_add(b, op);
}

/* An operation that makes each value or run of values of dst from the same place in `a`. */
static struct step *alike_add(struct builder *b, enum step_kind kind, const struct op *op) {
    assert(width_of(b, op->dst) == width_of(b, op->a));
    return step_add(b, kind, op, domain_of(b, op->a), op->dst);
}

static void add_decay(struct builder *b, const struct op *op) {
    const struct weight *rate = weight_of(b, op->tensor), *bias = weight_of(b, op->bias);
    assert(rate->vector && bias->vector && b->p->tensors[op->tensor].cols == width_of(b, op->a));
    assert(b->p->tensors[op->bias].cols == width_of(b, op->a));
    struct step *s = alike_add(b, STEP_DECAY, op);
    s->weight = rate->vector;
    s->bias = bias->vector;
}

static void add_split(struct builder *b, const struct op *op) {
    assert(op->heads > 0 && width_of(b, op->a) % op->heads == 0 && root_of(b, op->a) != root_of(b, op->dst));
    assert((uint64_t)op->offset + op->width <= width_of(b, op->a) / op->heads);
    assert(width_of(b, op->dst) == op->heads * op->width);
    step_add(b, STEP_SPLIT, op, domain_of(b, op->a), op->dst);
}

static void add_logits(struct builder *b, const struct op *op) {
    struct backend_program *p = b->p;
    assert(domain_of(b, op->a) == DOMAIN_OUTPUTS && p->tensors[op->tensor].rows == p->vocab);
    source_prepare(b, op);
    struct phase *phase = phase_add(b, PHASE_LOGITS, DOMAIN_OUTPUTS, p->n_products);
    phase->op = *op;
    product_add(b, phase, op);
}

static void add_op(struct builder *b, const struct op *op) {
    switch (op->kind) {
    case OP_EMBED: {
        const struct program_tensor *t = &b->p->tensors[op->tensor];
        assert(t->rows == b->p->vocab && t->cols == width_of(b, op->dst));
        step_add(b, STEP_EMBED, op, DOMAIN_TOKENS, op->dst);
        break;
    }
    case OP_NORM:
        add_norm(b, op);
        break;
    case OP_MATMUL:
        add_matmul(b, op);
        break;
    case OP_ROPE:
        assert(op->rope < b->p->n_ropes && b->p->ropes[op->rope].pairs * 2 <= op->width);
        assert(width_of(b, op->dst) == op->heads * op->width);
        step_add(b, STEP_ROPE, op, domain_of(b, op->dst), op->dst);
        break;
    case OP_ATTEND:
        add_attend(b, op);
        break;
    case OP_CONV:
        add_conv(b, op);
        break;
    case OP_DELTA:
        add_delta(b, op);
        break;
    case OP_L2_NORM:
        assert(op->width > 0 && width_of(b, op->a) % op->width == 0);
        alike_add(b, STEP_L2_NORM, op);
        break;
    case OP_DECAY:
        add_decay(b, op);
        break;
    case OP_ACT:
        alike_add(b, STEP_ACT, op);
        break;
    case OP_SPLIT:
        add_split(b, op);
        break;
    case OP_GLU:
        assert(domain_of(b, op->a) == domain_of(b, op->b) && width_of(b, op->a) == width_of(b, op->b));
        assert(width_of(b, op->dst) == width_of(b, op->a));
        step_add(b, STEP_GLU, op, domain_of(b, op->a), op->dst);
        break;
    case OP_ADD:
        assert(domain_of(b, op->a) == domain_of(b, op->dst) && width_of(b, op->dst) == width_of(b, op->a));
        step_add(b, STEP_ADD, op, domain_of(b, op->dst), op->dst);
        break;
    case OP_SELECT: {
        int source = root_of(b, op->a);
        assert(domain_of(b, op->a) == DOMAIN_TOKENS && source != root_of(b, op->dst));
        assert(width_of(b, op->dst) == width_of(b, op->a));
        step_add(b, STEP_SELECT, op, DOMAIN_OUTPUTS, op->dst);
        b->selected |= UINT64_C(1) << source;
        break;
    }
    case OP_LOGITS:
        assert(op == b->program->ops + b->program->n_ops - 1);
        add_logits(b, op);
        break;
    }
}

int phases_build(struct backend_program *p, const struct program *program, cohort_error *err) {
    _Static_assert(PROGRAM_REGS_MAX <= 64, "registers are bits of a word");
    size_t n = program->n_ops;
    p->steps = mem_zalloc(n * 3 + 1, sizeof *p->steps); /* an operation makes at most PACK_KINDS steps and itself */
    p->phases = mem_zalloc(n * 3 + 1, sizeof *p->phases);
    p->products = mem_zalloc(n + 1, sizeof *p->products);
    if (!p->steps || !p->phases || !p->products)
        return err_set(err, COHORT_E_MEMORY, "model", "no memory for a program of %zu operations", n);

    struct builder b = {.p = p, .program = program, .prepared = -1};
    for (int i = 0; i < PROGRAM_REGS_MAX; i++) b.domain[i] = DOMAIN_NONE;
    if (program->n_ropes) step_add(&b, STEP_ANGLES, &(struct op){.dst = -1, .a = -1}, DOMAIN_TOKENS, -1);
    for (size_t i = 0; i < n; i++) add_op(&b, &program->ops[i]);
    return 0;
}
