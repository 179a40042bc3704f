/* Compiling a program: has the matrices packed (weights.c), widens the vectors, lays out registers and scratch,
 * and has the operations regrouped (phases.c).
 *
 * Threads: the owner's; the team's while packing. What came from the model file and can be wrong (element types) is an
 * error; what the program's maker guarantees is asserted. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/compiled.h"
#include "backend/cpu/phases.h"
#include "base/mem.h"

enum { LINE_FLOATS = 16 };

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Floats from one row to the next: whole cache lines, and an odd number of them, so that the rows of a column do not
 * all fall on the same few sets of a cache. */
static size_t row_stride(uint32_t floats) { return round_up(floats, 2 * LINE_FLOATS) + LINE_FLOATS; }

static int no_memory(cohort_error *err, const char *what, uint64_t bytes) {
    return err_set(err, COHORT_E_MEMORY, "model", "no memory for %s (%llu bytes)", what, (unsigned long long)bytes);
}

/* ---- Tensors ---- */

static const char *type_name(enum dtype type) {
    const struct dtype_info *info = dtype_info(type);
    return info && info->name ? info->name : "unknown";
}

/* Copies the tensor list; tensors with the same bytes become one. */
static int tensors_take(struct backend_program *p, const struct program *program, cohort_error *err) {
    p->n_tensors = program->n_tensors;
    p->tensors = mem_zalloc(p->n_tensors, sizeof *p->tensors);
    p->weights = mem_zalloc(p->n_tensors, sizeof *p->weights);
    if (!p->tensors || !p->weights) return no_memory(err, "the list of tensors", p->n_tensors * sizeof *p->weights);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        struct program_tensor *t = &p->tensors[i];
        *t = program->tensors[i];
        t->name = NULL;
        assert(t->data && t->rows > 0 && t->cols > 0);
        uint32_t same = 0;
        while (p->tensors[same].data != t->data || p->tensors[same].type != t->type ||
               p->tensors[same].rows != t->rows || p->tensors[same].cols != t->cols)
            same++;
        p->weights[i].same_as = same;
    }
    return 0;
}

static struct weight *weight_at(struct backend_program *p, int32_t tensor) {
    assert(tensor >= 0 && (uint32_t)tensor < p->n_tensors);
    return &p->weights[p->weights[tensor].same_as];
}

static int matrix_plan(struct backend_program *p, const struct program_tensor *t, int32_t tensor, cohort_error *err) {
    struct weight *w = weight_at(p, tensor);
    if (w->packed.groups) return 0;
    int code = pack_plan(&w->packed, t->type, t->rows, t->cols);
    if (code == -2)
        return err_set(err, COHORT_E_UNSUPPORTED, t->name, "type %s with %u columns: not a multiple of %u",
                       type_name(t->type), t->cols, dtype_info(t->type)->block_elements);
    if (code)
        return err_set(err, COHORT_E_UNSUPPORTED, t->name, "weights of type %s are not supported", type_name(t->type));
    assert(w->packed.groups > 0 && (int)w->packed.kind < PACK_KINDS);
    size_t bytes;
    if (size_mul(w->packed.groups, w->packed.group_bytes, &bytes) || bytes > SIZE_MAX / 2 ||
        size_add(p->packed_bytes, weights_bytes(&w->packed), &p->packed_bytes))
        return no_memory(err, "packed weights", UINT64_MAX);
    return 0;
}

static int vector_take(struct backend_program *p, const struct program_tensor *t, int32_t tensor, cohort_error *err) {
    struct weight *w = weight_at(p, tensor);
    assert(t->rows == 1);
    if (w->vector) return 0;
    if (!dequant_supported(t->type))
        return err_set(err, COHORT_E_UNSUPPORTED, t->name, "vectors of type %s are not supported", type_name(t->type));
    w->vector = mem_aligned(t->cols, sizeof *w->vector);
    p->work_bytes += t->cols * sizeof *w->vector;
    if (!w->vector) return no_memory(err, "a vector", t->cols * sizeof *w->vector);
    dequant_row(t->type, t->data, 0, t->cols, w->vector);
    return 0;
}

/* A convolution's taps, turned so that columns lie behind one another. */
static int taps_take(struct backend_program *p, const struct program_tensor *t, int32_t tensor, cohort_error *err) {
    struct weight *w = weight_at(p, tensor);
    if (w->vector) return 0;
    assert(t->cols >= 2 && t->cols <= CONV_TAPS_MAX);
    if (!dequant_supported(t->type) || t->cols % dtype_info(t->type)->block_elements)
        return err_set(err, COHORT_E_UNSUPPORTED, t->name, "a convolution of type %s is not supported",
                       type_name(t->type));
    w->vector = mem_aligned((size_t)t->cols * t->rows, sizeof *w->vector);
    p->work_bytes += (size_t)t->cols * t->rows * sizeof *w->vector;
    if (!w->vector) return no_memory(err, "a convolution", (uint64_t)t->cols * t->rows * sizeof *w->vector);
    for (uint32_t row = 0; row < t->rows; row++) {
        float taps[CONV_TAPS_MAX];
        dequant_row(t->type, t->data, row, t->cols, taps);
        for (uint32_t tap = 0; tap < t->cols; tap++) w->vector[(size_t)tap * t->rows + row] = taps[tap];
    }
    return 0;
}

/* Gives every tensor the forms that the operations need, as plans; checks the types. */
static int weights_plan(struct backend_program *p, const struct program *program, cohort_error *err) {
    int code = 0;
    for (uint32_t i = 0; i < program->n_ops && !code; i++) {
        const struct op *op = &program->ops[i];
        const struct program_tensor *t = op->tensor >= 0 ? &program->tensors[op->tensor] : NULL;
        if (op->kind == OP_MATMUL || op->kind == OP_LOGITS) {
            code = matrix_plan(p, t, op->tensor, err);
            if (!code && op->kind == OP_MATMUL && op->bias >= 0)
                code = vector_take(p, &program->tensors[op->bias], op->bias, err);
        } else if (op->kind == OP_NORM) {
            code = vector_take(p, t, op->tensor, err);
        } else if (op->kind == OP_DECAY) {
            code = vector_take(p, t, op->tensor, err);
            if (!code) code = vector_take(p, &program->tensors[op->bias], op->bias, err);
        } else if (op->kind == OP_CONV) {
            code = taps_take(p, t, op->tensor, err);
        } else if (op->kind == OP_EMBED) {
            if (!dequant_supported(t->type))
                code = err_set(err, COHORT_E_UNSUPPORTED, t->name, "an embedding table of type %s is not supported",
                               type_name(t->type));
        }
    }
    return code;
}

/* ---- Registers and scratch ---- */

/* Floats of n rows of `stride` floats. */
static float *rows_alloc(struct backend_program *p, size_t n, size_t stride) {
    size_t floats;
    if (size_mul(n ? n : 1, stride, &floats)) return NULL;
    p->work_bytes += floats * sizeof(float);
    return mem_aligned(floats, sizeof(float));
}

static int regs_alloc(struct backend_program *p, const struct program *program, cohort_error *err) {
    assert(program->n_regs <= PROGRAM_REGS_MAX);
    p->n_regs = program->n_regs;
    for (uint32_t i = 0; i < p->n_regs; i++) {
        const struct program_reg *reg = &program->regs[i];
        assert(reg->width > 0 && reg->width <= PROGRAM_WIDTH_MAX);
        if (reg->parent >= 0) continue;
        size_t stride = row_stride(reg->width);
        p->reg_data[i] = rows_alloc(p, p->tokens_max, stride);
        if (!p->reg_data[i]) return no_memory(err, "a batch's registers", p->tokens_max * stride * sizeof(float));
        p->regs[i] = (struct reg_rows){p->reg_data[i], stride, reg->width};
    }
    for (uint32_t i = 0; i < p->n_regs; i++) {
        const struct program_reg *reg = &program->regs[i];
        if (reg->parent < 0) continue;
        const struct reg_rows *parent = &p->regs[reg->parent];
        assert((uint32_t)reg->parent < p->n_regs && program->regs[reg->parent].parent < 0);
        assert(reg->width <= parent->width && reg->offset <= parent->width - reg->width);
        p->regs[i] = (struct reg_rows){parent->base + reg->offset, parent->stride, reg->width};
    }
    return 0;
}

static int shape_take(struct backend_program *p, const struct program *program, cohort_error *err) {
    assert(program->n_groups <= PROGRAM_GROUPS_MAX && program->n_ropes <= PROGRAM_ROPES_MAX);
    p->n_layers = program->n_layers;
    p->n_groups = program->n_groups;
    memcpy(p->groups, program->groups, sizeof p->groups);
    p->layers = mem_alloc(p->n_layers, sizeof *p->layers);
    if (!p->layers) return no_memory(err, "the list of layers", p->n_layers * sizeof *p->layers);
    if (p->n_layers) memcpy(p->layers, program->layers, p->n_layers * sizeof *p->layers);
    for (uint32_t i = 0; i < p->n_layers; i++) p->layers[i].balance = NULL; /* the program's */
    for (uint32_t i = 0; i < p->n_layers; i++) {
        assert(p->layers[i].group < p->n_groups);
        const struct program_group *g = &p->groups[p->layers[i].group];
        assert(p->layers[i].slot < g->layers);
        const float *balance = program->layers[i].balance;
        if (balance) {
            p->layers[i].balance = mem_alloc(g->key_width, sizeof(float));
            if (!p->layers[i].balance) return no_memory(err, "a layer's balance", g->key_width * sizeof(float));
            memcpy(p->layers[i].balance, balance, g->key_width * sizeof(float));
        }
        if (p->layers[i].late < 0) continue;
        assert((uint32_t)p->layers[i].late < p->n_groups);
        const struct program_group *late = &p->groups[p->layers[i].late];
        assert(g->end > 0 && g->end % BACKEND_PAGE_TOKENS == 0 && late->begin == g->end && late->end == 0);
        assert(p->layers[i].slot < late->layers && late->window == g->window && late->kv_heads == g->kv_heads);
        assert(late->key_width == g->key_width && late->value_width == g->value_width);
    }
    for (uint32_t i = 0; i < program->n_ropes; i++) {
        const struct program_rope *rope = &program->ropes[i];
        p->ropes[i] = *rope;
        p->ropes[i].frequency = mem_alloc(rope->pairs, sizeof(double));
        p->angles[i] = rows_alloc(p, p->tokens_max, (size_t)rope->pairs * 2);
        p->n_ropes = i + 1; /* before the check: what is there is freed */
        if (!p->ropes[i].frequency || !p->angles[i]) return no_memory(err, "rope tables", rope->pairs);
        memcpy(p->ropes[i].frequency, rope->frequency, rope->pairs * sizeof(double));
    }
    return 0;
}

static int acts_alloc(struct backend_program *p, cohort_error *err) {
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct packed *w = &p->weights[i].packed;
        if (!w->groups) continue;
        size_t stride = round_up(p->backend->kernels.act_bytes(w->kind, w->cols), 64), bytes;
        if (size_mul(stride, p->tokens_max, &bytes)) return no_memory(err, "prepared rows", UINT64_MAX);
        if (bytes > p->acts[w->kind].bytes) p->acts[w->kind].bytes = bytes;
    }
    for (int k = 0; k < PACK_KINDS; k++) {
        if (!p->acts[k].bytes) continue;
        p->acts[k].base = mem_aligned(p->acts[k].bytes, 1);
        p->work_bytes += p->acts[k].bytes;
        if (!p->acts[k].base) return no_memory(err, "prepared rows", p->acts[k].bytes);
    }
    return 0;
}

static uint32_t logits_rows(const struct backend_program *p, uint32_t outputs) {
    if (outputs > p->outputs_max) outputs = p->outputs_max;
    return outputs < BACKEND_LOGIT_TILE ? outputs : BACKEND_LOGIT_TILE;
}

static int scratch_alloc(struct backend_program *p, cohort_error *err) {
    uint32_t floats = p->vocab; /* the consumer's */
    for (uint32_t i = 0; i < p->n_phases; i++) {
        const struct phase *phase = &p->phases[i];
        if (phase->kind != PHASE_ATTEND) continue;
        const struct program_group *g = &p->groups[p->layers[phase->op.layer].group];
        size_t need = attend_scratch_floats(ATTEND_TOKENS * (phase->op.heads / phase->op.kv_heads), g->key_width);
        if (need > floats) floats = (uint32_t)need;
    }
    p->scratch_stride = row_stride(floats);
    p->scratch = rows_alloc(p, team_threads(p->backend->team), p->scratch_stride);
    p->logits_stride = row_stride(p->vocab);
    uint32_t rows = logits_rows(p, p->outputs_max);
    p->logits = rows_alloc(p, rows, p->logits_stride);
    p->peaks_stride = row_stride(logits_spans(p->vocab));
    p->peaks = rows_alloc(p, rows, p->peaks_stride);
    if (!p->scratch || !p->logits || !p->peaks)
        return no_memory(err, "logits", rows * p->logits_stride * sizeof(float));

    struct run *r = &p->run;
    r->tokens = mem_alloc(p->tokens_max, sizeof *r->tokens);
    r->first_rows = mem_alloc(p->items_max, sizeof *r->first_rows);
    r->outputs = mem_alloc(p->outputs_max, sizeof *r->outputs);
    r->hidden = mem_alloc(p->items_max, sizeof *r->hidden);
    for (int d = 0; d < DOMAINS; d++) r->spans[d] = mem_alloc(p->tokens_max, sizeof *r->spans[d]);
    if (!r->tokens || !r->first_rows || !r->outputs || !r->hidden || !r->spans[DOMAIN_TOKENS] ||
        !r->spans[DOMAIN_OUTPUTS])
        return no_memory(err, "a batch's tokens", p->tokens_max * sizeof *r->tokens);
    return 0;
}

/* ---- Entry points ---- */

/* All but the weights themselves. */
static int prepare(struct backend *b, const struct program *program, uint32_t tokens_max, uint32_t items_max,
                   uint32_t outputs_max, struct backend_program **out, cohort_error *err) {
    assert(tokens_max >= 1 && items_max >= 1 && program->vocab >= 1 && program->n_ops <= PROGRAM_OPS_MAX);
    struct backend_program *p = mem_zalloc(1, sizeof *p);
    if (!p) return no_memory(err, "a program", sizeof *p);
    p->backend = b;
    p->tokens_max = tokens_max;
    p->items_max = items_max;
    p->outputs_max = outputs_max < tokens_max ? outputs_max : tokens_max;
    p->vocab = program->vocab;
    *out = p;

    int code = tensors_take(p, program, err);
    if (!code) code = weights_plan(p, program, err);
    if (!code) code = shape_take(p, program, err);
    if (!code) code = regs_alloc(p, program, err);
    if (!code) code = acts_alloc(p, err);
    if (!code) code = phases_build(p, program, err);
    if (!code) code = scratch_alloc(p, err);
    return code;
}

/* Of the file: embedding tables that are not the head too, of which batches read rows. */
static uint64_t tables_bytes(const struct backend_program *p, const struct program *program) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        int32_t tensor = program->ops[i].tensor;
        if (program->ops[i].kind != OP_EMBED || !p->tensors[tensor].mapped) continue;
        if (!p->weights[p->weights[tensor].same_as].packed.groups) bytes += p->tensors[tensor].bytes;
    }
    return bytes;
}

int backend_measure(struct backend *b, const struct program *program, uint32_t tokens_max, uint32_t items_max,
                    uint32_t outputs_max, struct backend_needs *out, cohort_error *err) {
    struct backend_program *p = NULL;
    int code = prepare(b, program, tokens_max, items_max, outputs_max, &p, err);
    if (!code) {
        uint64_t row = (p->logits_stride + p->peaks_stride) * sizeof(float);
        out->weights = p->packed_bytes;
        out->tables = tables_bytes(p, program);
        out->scoring = (logits_rows(p, outputs_max) - logits_rows(p, items_max)) * row;
        out->work = p->work_bytes - out->scoring;
    }
    backend_program_free(p);
    return code;
}

int backend_compile(struct backend *b, const struct program *program, uint32_t tokens_max, uint32_t items_max,
                    uint32_t outputs_max, void (*progress)(void *user, double fraction), void *user,
                    struct backend_program **out, cohort_error *err) {
    struct backend_program *p = NULL;
    int code = prepare(b, program, tokens_max, items_max, outputs_max, &p, err);
    if (!code) code = weights_pack(p, progress, user, err);
    if (code) {
        backend_program_free(p);
        return code;
    }
    for (int i = 0; i < BACKEND_IN_FLIGHT; i++) {
        struct flight *f = &p->flights[i];
        f->program = p;
        f->job = (struct team_job){.advance = exec_advance, .tile = exec_tile, .user = f};
    }
    *out = p;
    return 0;
}

void backend_program_free(struct backend_program *p) {
    if (!p) return;
    assert(p->launched == p->waited);
    for (uint32_t i = 0; p->weights && i < p->n_tensors; i++) mem_free(p->weights[i].vector);
    for (uint32_t i = 0; i < PROGRAM_REGS_MAX; i++) mem_free(p->reg_data[i]);
    for (int k = 0; k < PACK_KINDS; k++) mem_free(p->acts[k].base);
    for (uint32_t i = 0; i < p->n_ropes; i++) {
        mem_free(p->ropes[i].frequency);
        mem_free(p->angles[i]);
    }
    if (p->packed_data) mem_unmap(p->packed_data, p->packed_bytes);
    for (int d = 0; d < DOMAINS; d++) mem_free(p->run.spans[d]);
    mem_free(p->run.outputs);
    mem_free(p->run.hidden);
    mem_free(p->run.first_rows);
    mem_free(p->run.tokens);
    mem_free(p->scratch);
    mem_free(p->logits);
    mem_free(p->peaks);
    mem_free(p->steps);
    mem_free(p->phases);
    mem_free(p->products);
    for (uint32_t i = 0; p->layers && i < p->n_layers; i++) mem_free(p->layers[i].balance);
    mem_free(p->layers);
    mem_free(p->weights);
    mem_free(p->tensors);
    mem_free(p);
}

uint64_t backend_program_bytes(const struct backend_program *p) { return p->packed_bytes; }
