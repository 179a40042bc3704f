/* The row-wise operations. A row goes through all steps of a phase while it is in the nearest cache.
 *
 * Threads: the team's; every row is touched by one of them. Reads the batch through p->run, which stands still during a
 * phase. */
#include "backend/cpu/steps.h"

#include <string.h>

#include "base/fmath.h"

/* Angles of one token for every rope, in double, rounded once (docs/NUMERICS.md, Rotary positions). */
static void angles_make(const struct backend_program *p, uint32_t row, uint32_t pos) {
    for (uint32_t i = 0; i < p->n_ropes; i++) {
        const struct program_rope *rope = &p->ropes[i];
        float *cosines = p->angles[i] + (size_t)row * rope->pairs * 2, *sines = cosines + rope->pairs;
        for (uint32_t pair = 0; pair < rope->pairs; pair++) {
            double s, c;
            fmath_sincos((double)pos * rope->frequency[pair], &s, &c);
            cosines[pair] = (float)c * rope->magnitude; /* a magnitude of 1 changes no bit */
            sines[pair] = (float)s * rope->magnitude;
        }
    }
}

static void embed(const struct backend_program *p, const struct op *op, uint32_t row) {
    const struct program_tensor *t = &p->tensors[op->tensor];
    float *x = reg_row(p, op->dst, row);
    const struct packed *w = &p->weights[p->weights[op->tensor].same_as].packed;
    uint32_t id = (uint32_t)p->run.tokens[row].id;
    if (w->data)
        pack_read_row(w, id, x); /* the head is the same table: its bytes are in memory once */
    else
        dequant_row(t->type, t->data, id, t->cols, x);
    if (op->scale != 1)
        for (uint32_t i = 0; i < t->cols; i++) x[i] *= op->scale;
}

static void norm(const struct backend_program *p, const struct step *s, uint32_t row) {
    const float *x = reg_row(p, s->op.a, row);
    float *y = reg_row(p, s->op.dst, row);
    uint32_t width = p->regs[s->op.a].width;
    for (uint32_t i = 0; i < width; i += s->op.width)
        p->backend->kernels.norm(y + i, x + i, s->weight, s->op.width, s->op.eps);
}

static void store(const struct backend_program *p, const struct op *op, const struct token *token, uint32_t row) {
    uint32_t group = group_at(p, op->layer, token->pos);
    const struct program_group *g = &p->groups[group];
    struct page_shape shape = page_shape_of(g);
    shape.balance = p->layers[op->layer].balance;
    size_t page = p->run.batch.items[token->item].table[group][token->pos / BACKEND_PAGE_TOKENS];
    size_t offset = page * backend_page_bytes(g);
    const float *key = reg_row(p, op->b, row), *value = reg_row(p, op->c, row);
    for (uint32_t h = 0; h < g->kv_heads; h++)
        p->backend->kernels.store(&shape, slice_base(p, group, op->layer, h) + offset, token->pos % BACKEND_PAGE_TOKENS,
                                  key + (size_t)h * g->key_width, value + (size_t)h * g->value_width);
}

static void split(const struct backend_program *p, const struct op *op, uint32_t row) {
    const float *x = reg_row(p, op->a, row) + op->offset;
    float *y = reg_row(p, op->dst, row);
    size_t part = p->regs[op->a].width / op->heads;
    for (uint32_t h = 0; h < op->heads; h++) memcpy(y + (size_t)h * op->width, x + h * part, op->width * sizeof *y);
}

static void prepare(const struct backend_program *p, const struct step *s, uint32_t row) {
    uint32_t width = p->regs[s->op.a].width;
    char *act = p->acts[s->act_kind].base + row * act_stride(p, s->act_kind, width);
    p->backend->kernels.act_prepare(s->act_kind, act, reg_row(p, s->op.a, row), width);
}

static void step_run(const struct backend_program *p, const struct step *s, uint32_t row, uint32_t token_row) {
    const struct kernels *k = &p->backend->kernels;
    const struct op *op = &s->op;
    switch (s->kind) {
    case STEP_ANGLES:
        angles_make(p, row, p->run.tokens[row].pos);
        break;
    case STEP_EMBED:
        embed(p, op, row);
        break;
    case STEP_NORM:
        norm(p, s, row);
        break;
    case STEP_ROPE: {
        uint32_t pairs = p->ropes[op->rope].pairs;
        k->rope(reg_row(p, op->dst, row), op->heads, op->width, p->angles[op->rope] + (size_t)token_row * pairs * 2,
                pairs, p->ropes[op->rope].interleaved);
        break;
    }
    case STEP_STORE:
        store(p, op, &p->run.tokens[row], row);
        break;
    case STEP_L2_NORM:
        for (uint32_t i = 0; i < p->regs[op->dst].width; i += op->width)
            k->l2_norm(reg_row(p, op->dst, row) + i, reg_row(p, op->a, row) + i, op->width, op->eps, op->scale);
        break;
    case STEP_DECAY:
        k->decay(reg_row(p, op->dst, row), reg_row(p, op->a, row), s->weight, s->bias, p->regs[op->dst].width);
        break;
    case STEP_ACT:
        k->act(reg_row(p, op->dst, row), reg_row(p, op->a, row), p->regs[op->dst].width, op->act);
        break;
    case STEP_SPLIT:
        split(p, op, row);
        break;
    case STEP_GLU:
        k->glu(reg_row(p, op->dst, row), reg_row(p, op->a, row), reg_row(p, op->b, row), p->regs[op->dst].width,
               op->act);
        break;
    case STEP_ADD:
        k->add(reg_row(p, op->dst, row), reg_row(p, op->a, row), p->regs[op->dst].width);
        break;
    case STEP_SELECT:
        memcpy(reg_row(p, op->dst, row), reg_row(p, op->a, token_row), p->regs[op->dst].width * sizeof(float));
        break;
    case STEP_PREPARE:
        prepare(p, s, row);
        break;
    }
}

void steps_run(const struct backend_program *p, const struct phase *phase, uint32_t first, uint32_t end) {
    for (uint32_t row = first; row < end; row++) {
        uint32_t token_row = phase->domain == DOMAIN_OUTPUTS ? p->run.outputs[row].row : row;
        for (uint32_t i = 0; i < phase->n; i++) step_run(p, &p->steps[phase->first + i], row, token_row);
    }
}
