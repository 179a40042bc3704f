#include "interpret.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/pack.h"

struct run {
    const struct program *p;
    enum interpret_mode mode;
    const int32_t *ids;
    uint32_t n;
    double *regs[PROGRAM_REGS_MAX]; /* of registers without a parent: [n][width] */
    float *row;                     /* one dequantised row */
    double *logits;
};

/* First value and row stride of a register. */
static double *values(const struct run *r, int16_t reg, size_t *stride) {
    assert_in_range(reg, 0, r->p->n_regs - 1);
    const struct program_reg *x = &r->p->regs[reg];
    int32_t root = x->parent < 0 ? reg : x->parent;
    *stride = r->p->regs[root].width;
    assert_true(x->offset + x->width <= *stride);
    return r->regs[root] + x->offset;
}

static const float *weights(struct run *r, int32_t tensor, uint32_t row) {
    const struct program_tensor *t = &r->p->tensors[tensor];
    assert_true(row < t->rows);
    dequant_row(t->type, t->data, row, t->cols, r->row);
    return r->row;
}

/* The nearest half-precision number, ties to even. */
static double to_half(double x) {
    int exponent;
    frexp(x, &exponent); /* |x| in [2^(exponent - 1), 2^exponent) */
    double quantum = ldexp(1, exponent < -13 ? -24 : exponent - 11);
    double rounded = nearbyint(x / quantum) * quantum;
    return fabs(rounded) > 65504 ? copysign(INFINITY, x) : rounded;
}

/* A block of 32 activations as 8-bit integers times a scale, in float where the backend's is. */
static void to_8_bits(double *x) {
    float amax = 0;
    for (int i = 0; i < 32; i++) amax = fmaxf(amax, fabsf((float)x[i]));
    float d = amax / 127, id = amax > 0 ? 127 / amax : 0;
    for (int i = 0; i < 32; i++) x[i] = (double)d * nearbyint((double)((float)x[i] * id));
}

static double capped(double x, double cap) { return cap != 0 ? cap * tanh(x / cap) : x; }

static void embed(struct run *r, const struct op *op) {
    size_t stride;
    double *x = values(r, op->dst, &stride);
    for (uint32_t t = 0; t < r->n; t++) {
        const float *w = weights(r, op->tensor, (uint32_t)r->ids[t]);
        for (uint32_t i = 0; i < stride; i++) x[t * stride + i] = (double)w[i] * (double)op->scale;
    }
}

static void norm(struct run *r, const struct op *op) {
    size_t dst_stride, src_stride;
    double *y = values(r, op->dst, &dst_stride);
    const double *x = values(r, op->a, &src_stride);
    const float *w = weights(r, op->tensor, 0);
    uint32_t total = r->p->regs[op->a].width;
    assert_int_equal(total % op->width, 0);
    for (uint32_t t = 0; t < r->n; t++)
        for (uint32_t at = 0; at < total; at += op->width) {
            const double *in = x + t * src_stride + at;
            double sum = 0;
            for (uint32_t i = 0; i < op->width; i++) sum += in[i] * in[i];
            double scale = 1 / sqrt(sum / op->width + (double)op->eps);
            for (uint32_t i = 0; i < op->width; i++) y[t * dst_stride + at + i] = in[i] * scale * (double)w[i];
        }
}

static int quantised(enum dtype type) { return type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_BF16; }

/* The rows of a product's source, as narrow as weights of this type want them. */
static double *source_rows(struct run *r, const struct op *op, enum dtype type) {
    size_t stride;
    const double *x = values(r, op->a, &stride);
    uint32_t width = r->p->regs[op->a].width;
    double *rows = malloc((size_t)r->n * width * sizeof *rows);
    assert_non_null(rows);
    for (uint32_t i = 0; i < r->n; i++) {
        memcpy(rows + (size_t)i * width, x + i * stride, width * sizeof *rows);
        if (r->mode == INTERPRET_EXACT || !quantised(type)) continue;
        for (uint32_t at = 0; at < width; at += 32) to_8_bits(rows + (size_t)i * width + at);
    }
    return rows;
}

static void matmul(struct run *r, const struct op *op, double *y, size_t dst_stride) {
    const struct program_tensor *t = &r->p->tensors[op->tensor];
    assert_int_equal(r->p->regs[op->a].width, t->cols);
    double *x = source_rows(r, op, t->type);
    for (uint32_t o = 0; o < t->rows; o++) {
        const double bias = op->bias >= 0 ? (double)((const float *)r->p->tensors[op->bias].data)[o] : 0;
        const float *w = weights(r, op->tensor, o);
        for (uint32_t i = 0; i < r->n; i++) {
            double sum = bias;
            for (uint32_t c = 0; c < t->cols; c++) sum += (double)w[c] * x[(size_t)i * t->cols + c];
            y[i * dst_stride + o] = sum;
        }
    }
    free(x);
}

static void rope(struct run *r, const struct op *op) {
    size_t stride;
    double *x = values(r, op->dst, &stride);
    const struct program_rope *table = &r->p->ropes[op->rope];
    assert_int_equal(op->heads * op->width, r->p->regs[op->dst].width);
    for (uint32_t t = 0; t < r->n; t++)
        for (uint32_t h = 0; h < op->heads; h++)
            for (uint32_t i = 0; i < table->pairs; i++) {
                double *head = x + t * stride + h * op->width;
                double *a = head + (table->interleaved ? 2 * i : i);
                double *b = head + (table->interleaved ? 2 * i + 1 : i + table->pairs);
                double angle = t * table->frequency[i], m = (double)table->magnitude;
                double c = cos(angle) * m, s = sin(angle) * m, x0 = *a, x1 = *b;
                *a = x0 * c - x1 * s;
                *b = x0 * s + x1 * c;
            }
}

/* Keys and values as the state keeps them. */
static void store(struct run *r, const struct op *op) {
    const int16_t kept[] = {op->b, op->c};
    for (size_t k = 0; k < 2; k++) {
        size_t stride;
        double *x = values(r, kept[k], &stride);
        for (uint32_t t = 0; t < r->n; t++)
            for (uint32_t i = 0; i < r->p->regs[kept[k]].width; i++) x[t * stride + i] = to_half(x[t * stride + i]);
    }
}

static void attend_head(struct run *r, const struct op *op, uint32_t t, uint32_t h) {
    const struct program_group *g = &r->p->groups[r->p->layers[op->layer].group];
    size_t qs, ks, vs, os;
    uint32_t kv = h / (op->heads / op->kv_heads);
    const double *q = values(r, op->a, &qs), *k = values(r, op->b, &ks), *v = values(r, op->c, &vs);
    double *out = values(r, op->dst, &os) + t * os + h * g->value_width;
    q += t * qs + h * op->width;
    k += kv * op->width;
    v += kv * g->value_width;
    uint32_t first = g->window && t + 1 > g->window ? t + 1 - g->window : 0;
    double *e = calloc(r->n, sizeof *e), best = -INFINITY, sum = 0;
    for (uint32_t j = first; j <= t; j++) {
        double s = 0;
        for (uint32_t d = 0; d < op->width; d++) s += q[d] * (double)op->scale * k[j * ks + d];
        e[j] = capped(s, (double)op->softcap);
        best = fmax(best, e[j]);
    }
    for (uint32_t j = first; j <= t; j++) sum += e[j] = exp(e[j] - best);
    for (uint32_t d = 0; d < g->value_width; d++) {
        double x = 0;
        for (uint32_t j = first; j <= t; j++) x += e[j] / sum * v[j * vs + d];
        out[d] = x;
    }
    free(e);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double activated(double x, enum program_act act) {
    switch (act) {
    case ACT_SILU:
        return x * sigmoid(x);
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ACT_SIGMOID:
        return sigmoid(x);
    case ACT_NONE:
        break;
    }
    return x;
}

static void convolve(struct run *r, const struct op *op) {
    size_t ys, xs;
    double *y = values(r, op->dst, &ys);
    const double *x = values(r, op->a, &xs);
    uint32_t taps = r->p->tensors[op->tensor].cols;
    for (uint32_t c = 0; c < r->p->regs[op->dst].width; c++) {
        const float *w = weights(r, op->tensor, c);
        for (uint32_t t = 0; t < r->n; t++) {
            double sum = 0;
            for (uint32_t back = 0; back < taps && back <= t; back++)
                sum += (double)w[taps - 1 - back] * x[(t - back) * xs + c];
            y[t * ys + c] = activated(sum, op->act);
        }
    }
}

/* One head: every token changes a matrix from keys to values. */
static void delta_head(struct run *r, const struct op *op, uint32_t h) {
    size_t xs, ds, bs, ys;
    uint32_t kw = op->width, vw = r->p->regs[op->dst].width / op->heads, keys = op->key_heads * kw;
    const double *x = values(r, op->a, &xs), *decay = values(r, op->b, &ds), *rate = values(r, op->c, &bs);
    double *y = values(r, op->dst, &ys) + h * vw, *state = calloc((size_t)kw * vw, sizeof *state);
    for (uint32_t t = 0; t < r->n; t++) {
        const double *q = x + t * xs + h % op->key_heads * kw, *k = q + keys, *v = x + t * xs + 2 * keys + h * vw;
        for (uint32_t i = 0; i < kw * vw; i++) state[i] *= decay[t * ds + h];
        for (uint32_t j = 0; j < vw; j++) {
            double recalled = 0, out = 0;
            for (uint32_t i = 0; i < kw; i++) recalled += k[i] * state[i * vw + j];
            for (uint32_t i = 0; i < kw; i++) {
                state[i * vw + j] += k[i] * (v[j] - recalled) * rate[t * bs + h];
                out += q[i] * state[i * vw + j];
            }
            y[t * ys + j] = out;
        }
    }
    free(state);
}

static void l2_norm(struct run *r, const struct op *op) {
    size_t ys, xs;
    double *y = values(r, op->dst, &ys);
    const double *x = values(r, op->a, &xs);
    for (uint32_t t = 0; t < r->n; t++)
        for (uint32_t at = 0; at < r->p->regs[op->a].width; at += op->width) {
            double sum = (double)op->eps;
            for (uint32_t i = 0; i < op->width; i++) sum += x[t * xs + at + i] * x[t * xs + at + i];
            for (uint32_t i = 0; i < op->width; i++)
                y[t * ys + at + i] = x[t * xs + at + i] / sqrt(sum) * (double)op->scale;
        }
}

/* What makes each value of dst from the same place in `a`. */
static void each_value(struct run *r, const struct op *op) {
    size_t ys, as;
    double *y = values(r, op->dst, &ys);
    const double *a = values(r, op->a, &as);
    const float *rate = op->kind == OP_DECAY ? r->p->tensors[op->tensor].data : NULL;
    const float *bias = op->kind == OP_DECAY ? r->p->tensors[op->bias].data : NULL;
    for (uint32_t t = 0; t < r->n; t++)
        for (uint32_t i = 0; i < r->p->regs[op->dst].width; i++) {
            double x = a[t * as + i];
            y[t * ys + i] = rate ? exp((double)rate[i] * log1p(exp(x + (double)bias[i]))) : activated(x, op->act);
        }
}

static void split(struct run *r, const struct op *op) {
    size_t ys, as, part = r->p->regs[op->a].width / op->heads;
    double *y = values(r, op->dst, &ys);
    const double *a = values(r, op->a, &as);
    for (uint32_t t = 0; t < r->n; t++)
        for (uint32_t h = 0; h < op->heads; h++)
            memcpy(y + t * ys + h * op->width, a + t * as + h * part + op->offset, op->width * sizeof *y);
}

static void glu(struct run *r, const struct op *op) {
    size_t ys, as, bs;
    double *y = values(r, op->dst, &ys);
    const double *a = values(r, op->a, &as), *b = values(r, op->b, &bs);
    for (uint32_t t = 0; t < r->n; t++)
        for (uint32_t i = 0; i < r->p->regs[op->dst].width; i++)
            y[t * ys + i] = activated(a[t * as + i], op->act) * b[t * bs + i];
}

/* dst = (or +=) a, row by row. Every row is wanted here, so selecting is copying. */
static void copy(struct run *r, const struct op *op, int add) {
    size_t ys, as;
    double *y = values(r, op->dst, &ys);
    const double *a = values(r, op->a, &as);
    assert_int_equal(r->p->regs[op->dst].width, r->p->regs[op->a].width);
    for (uint32_t t = 0; t < r->n; t++)
        for (uint32_t i = 0; i < r->p->regs[op->dst].width; i++)
            y[t * ys + i] = (add ? y[t * ys + i] : 0) + a[t * as + i];
}

static void step(struct run *r, const struct op *op) {
    size_t stride;
    switch (op->kind) {
    case OP_EMBED:
        embed(r, op);
        break;
    case OP_NORM:
        norm(r, op);
        break;
    case OP_MATMUL: {
        double *y = values(r, op->dst, &stride);
        assert_int_equal(r->p->regs[op->dst].width, r->p->tensors[op->tensor].rows);
        matmul(r, op, y, stride);
        break;
    }
    case OP_ROPE:
        rope(r, op);
        break;
    case OP_ATTEND:
        if (r->mode == INTERPRET_ROUNDED) store(r, op);
        for (uint32_t t = 0; t < r->n; t++)
            for (uint32_t h = 0; h < op->heads; h++) attend_head(r, op, t, h);
        break;
    case OP_CONV:
        convolve(r, op);
        break;
    case OP_DELTA:
        for (uint32_t h = 0; h < op->heads; h++) delta_head(r, op, h);
        break;
    case OP_L2_NORM:
        l2_norm(r, op);
        break;
    case OP_DECAY:
    case OP_ACT:
        each_value(r, op);
        break;
    case OP_SPLIT:
        split(r, op);
        break;
    case OP_GLU:
        glu(r, op);
        break;
    case OP_ADD:
        copy(r, op, 1);
        break;
    case OP_SELECT:
        copy(r, op, 0);
        break;
    case OP_LOGITS:
        matmul(r, op, r->logits, r->p->vocab);
        for (size_t i = 0; i < (size_t)r->n * r->p->vocab; i++)
            r->logits[i] = capped(r->logits[i], (double)op->softcap);
        break;
    }
}

void interpret(const struct program *p, enum interpret_mode mode, const int32_t *ids, uint32_t n, double *logits,
               interpret_hook hook, void *user) {
    struct run r = {.p = p, .mode = mode, .ids = ids, .n = n, .logits = logits};
    uint32_t widest = 1;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].cols > widest) widest = p->tensors[i].cols;
    r.row = calloc(widest, sizeof *r.row);
    for (uint32_t i = 0; i < p->n_regs; i++)
        if (p->regs[i].parent < 0) r.regs[i] = calloc((size_t)n * p->regs[i].width, sizeof(double));
    for (uint32_t i = 0; i < p->n_ops; i++) {
        step(&r, &p->ops[i]);
        if (!hook) continue;
        size_t stride;
        int16_t shown = p->ops[i].kind == OP_LOGITS ? p->ops[i].a : p->ops[i].dst;
        const double *rows = values(&r, shown, &stride);
        hook(user, i, rows, stride);
    }
    for (uint32_t i = 0; i < p->n_regs; i++) free(r.regs[i]);
    free(r.row);
}
