/* Finding and checking the tensors. Each one asked for is noted, so that what the file has beyond them shows. */
#include "model/tensors.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/mem.h"

enum { USED_PER_LAYER = 24, USED_OTHERS = 8, NAME_MAX_BYTES = 64 };

struct finder {
    const struct model_file *file;
    cohort_error *err;
    const struct file_tensor **used; /* USED_PER_LAYER * layers + USED_OTHERS */
    size_t n_used, capacity;
};

enum need { OPTIONAL, REQUIRED };

static void note_use(struct finder *f, const struct file_tensor *tensor) {
    assert(f->n_used < f->capacity);
    f->used[f->n_used++] = tensor;
}

static int wrong_shape(struct finder *f, const struct file_tensor *t, uint64_t cols, uint64_t rows) {
    char shape[96];
    int n = 0;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%llu", i ? " x " : "", (unsigned long long)t->dims[i]);
    return err_set(f->err, COHORT_E_FILE, t->name, "tensor %s is %s, its keys ask for %llu x %llu", t->name, shape,
                   (unsigned long long)cols, (unsigned long long)rows);
}

/* The tensor of this name if it has cols x rows elements. *out is NULL if it is optional and absent. */
static int find(struct finder *f, const char *name, enum need need, uint64_t cols, uint64_t rows,
                const struct file_tensor **out) {
    const struct file_tensor *t = *out = model_file_tensor(f->file, name);
    if (!t && need == OPTIONAL) return 0;
    if (!t) return err_set(f->err, COHORT_E_FILE, name, "tensor %s is missing", name);
    if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1)
        return wrong_shape(f, t, cols, rows);
    note_use(f, t);
    return 0;
}

/* Vectors (norms, biases, rope factors) are read as they lie in the file, so they are F32. */
static int find_vector(struct finder *f, const char *name, enum need need, uint64_t n, const struct file_tensor **out) {
    int rc = find(f, name, need, n, 1, out);
    if (rc || !*out || (*out)->type == DTYPE_F32) return rc;
    const struct dtype_info *info = dtype_info((*out)->type);
    return err_set(f->err, COHORT_E_UNSUPPORTED, name, "tensor %s is %s, only F32 is supported for vectors", name,
                   info ? info->name : "of an unknown type");
}

/* "blk.LAYER.PART" */
static void layer_name(char out[NAME_MAX_BYTES], uint32_t layer, const char *part, const char *kind) {
    int n = snprintf(out, NAME_MAX_BYTES, "blk.%u.%s.%s", layer, part, kind);
    assert(n > 0 && n < NAME_MAX_BYTES);
}

static int layer_vector(struct finder *f, uint32_t layer, const char *part, enum need need, uint64_t n,
                        const struct file_tensor **out) {
    char name[NAME_MAX_BYTES];
    layer_name(name, layer, part, "weight");
    return find_vector(f, name, need, n, out);
}

/* A matrix and its bias; a bias alone is not a matrix. */
static int layer_matrix(struct finder *f, uint32_t layer, const char *part, enum need need_bias, uint64_t cols,
                        uint64_t rows, struct spec_matrix *out) {
    char name[NAME_MAX_BYTES];
    layer_name(name, layer, part, "weight");
    int rc = find(f, name, REQUIRED, cols, rows, &out->weight);
    if (rc) return rc;
    layer_name(name, layer, part, "bias");
    return find_vector(f, name, need_bias, rows, &out->bias);
}

static int layer_has(const struct finder *f, uint32_t layer, const char *part) {
    char name[NAME_MAX_BYTES];
    layer_name(name, layer, part, "weight");
    return model_file_tensor(f->file, name) != NULL;
}

static int too_wide(struct finder *f, uint32_t layer, const char *key, const char *what, uint64_t width) {
    return err_set(f->err, COHORT_E_FILE, key, "%s of layer %u together are %llu wide, at most %u is supported", what,
                   layer, (unsigned long long)width, SPEC_WIDTH_MAX);
}

static int read_attention(struct finder *f, const struct family *family, uint32_t width, uint32_t i,
                          struct spec_attention *a) {
    uint64_t q = (uint64_t)a->heads * a->key_width, k = (uint64_t)a->kv_heads * a->key_width;
    uint64_t v = (uint64_t)a->kv_heads * a->value_width, o = (uint64_t)a->heads * a->value_width;
    a->gated = family->query_gated;
    uint64_t in = (a->gated ? 2 : 1) * q + k + v;
    if (in > SPEC_WIDTH_MAX || o > SPEC_WIDTH_MAX)
        return too_wide(f, i, "attention.head_count", "the heads", in > o ? in : o);

    enum need bias = family->qkv_biases ? REQUIRED : OPTIONAL;
    int rc;
    if (!a->gated && layer_has(f, i, "attn_qkv")) {
        rc = layer_matrix(f, i, "attn_qkv", bias, width, q + k + v, &a->fused);
    } else {
        rc = layer_matrix(f, i, "attn_q", bias, width, family->query_gated ? 2 * q : q, &a->query);
        if (!rc) rc = layer_matrix(f, i, "attn_k", bias, width, k, &a->key);
        if (!rc) rc = layer_matrix(f, i, "attn_v", bias, width, v, &a->value);
    }
    if (!rc && family->head_norms) rc = layer_vector(f, i, "attn_q_norm", REQUIRED, a->key_width, &a->query_norm);
    if (!rc && family->head_norms) rc = layer_vector(f, i, "attn_k_norm", REQUIRED, a->key_width, &a->key_norm);
    return rc ? rc : layer_matrix(f, i, "attn_output", OPTIONAL, o, width, &a->out);
}

/* A vector whose name does not end in ".weight". */
static int layer_vector_named(struct finder *f, uint32_t layer, const char *part, const char *kind, uint64_t n,
                              const struct file_tensor **out) {
    char name[NAME_MAX_BYTES];
    int length = snprintf(name, sizeof name, "blk.%u.%s%s", layer, part, kind);
    assert(length > 0 && length < NAME_MAX_BYTES);
    return find_vector(f, name, REQUIRED, n, out);
}

/* A convolution's taps, read as they lie in the file, too. */
static int layer_taps(struct finder *f, uint32_t layer, const char *part, uint64_t taps, uint64_t columns,
                      const struct file_tensor **out) {
    char name[NAME_MAX_BYTES];
    layer_name(name, layer, part, "weight");
    int rc = find(f, name, REQUIRED, taps, columns, out);
    if (rc || (*out)->type == DTYPE_F32 || (*out)->type == DTYPE_F16 || (*out)->type == DTYPE_BF16) return rc;
    return err_set(f->err, COHORT_E_UNSUPPORTED, name,
                   "tensor %s: only F32, F16 and BF16 are supported for convolutions", name);
}

static int read_gated_delta(struct finder *f, uint32_t width, uint32_t i, struct spec_gated_delta *d) {
    uint64_t keys = (uint64_t)d->key_heads * d->key_width, values = (uint64_t)d->heads * d->value_width;
    if (2 * keys + values > SPEC_WIDTH_MAX) return too_wide(f, i, "ssm.inner_size", "the heads", 2 * keys + values);
    int rc = layer_matrix(f, i, "attn_qkv", OPTIONAL, width, 2 * keys + values, &d->in);
    if (!rc) rc = layer_matrix(f, i, "attn_gate", OPTIONAL, width, values, &d->gate);
    if (!rc) rc = layer_matrix(f, i, "ssm_alpha", OPTIONAL, width, d->heads, &d->decay);
    if (!rc) rc = layer_matrix(f, i, "ssm_beta", OPTIONAL, width, d->heads, &d->rate);
    if (!rc) rc = layer_taps(f, i, "ssm_conv1d", d->taps, 2 * keys + values, &d->conv);
    if (!rc) rc = layer_vector_named(f, i, "ssm_a", "", d->heads, &d->decay_rate);
    if (!rc) rc = layer_vector_named(f, i, "ssm_dt", ".bias", d->heads, &d->decay_bias);
    if (!rc) rc = layer_vector(f, i, "ssm_norm", REQUIRED, d->value_width, &d->norm);
    return rc ? rc : layer_matrix(f, i, "ssm_out", OPTIONAL, values, width, &d->out);
}

static int read_short_conv(struct finder *f, uint32_t width, uint32_t i, struct spec_short_conv *c) {
    if (3 * (uint64_t)width > SPEC_WIDTH_MAX)
        return too_wide(f, i, "embedding_length", "the gates and values", 3 * (uint64_t)width);
    int rc = layer_matrix(f, i, "shortconv.in_proj", OPTIONAL, width, 3 * (uint64_t)width, &c->in);
    if (!rc) rc = layer_taps(f, i, "shortconv.conv", c->taps, width, &c->conv);
    return rc ? rc : layer_matrix(f, i, "shortconv.out_proj", OPTIONAL, width, width, &c->out);
}

static int read_mixer(struct finder *f, const struct family *family, uint32_t width, uint32_t i,
                      struct spec_layer *layer) {
    switch (layer->mixer) {
    case SPEC_ATTENTION:
        break;
    case SPEC_GATED_DELTA:
        return read_gated_delta(f, width, i, &layer->delta);
    case SPEC_SHORT_CONV:
        return read_short_conv(f, width, i, &layer->conv);
    }
    return read_attention(f, family, width, i, &layer->attention);
}

static int read_gated(struct finder *f, const struct family *family, uint32_t width, uint32_t i, struct spec_gated *g) {
    int rc;
    if (family->gate_up_fused) {
        rc = layer_matrix(f, i, "ffn_up", OPTIONAL, width, 2 * (uint64_t)g->width, &g->fused);
    } else {
        rc = layer_matrix(f, i, "ffn_gate", OPTIONAL, width, g->width, &g->gate);
        if (!rc) rc = layer_matrix(f, i, "ffn_up", OPTIONAL, width, g->width, &g->up);
    }
    return rc ? rc : layer_matrix(f, i, "ffn_down", OPTIONAL, g->width, width, &g->down);
}

static int read_layer(struct finder *f, const struct family *family, struct model_spec *spec, uint32_t i) {
    struct spec_layer *layer = &spec->layers[i];
    uint32_t width = spec->width;
    int rc = layer_vector(f, i, "attn_norm", REQUIRED, width, &layer->mixer_norm);
    if (!rc) rc = read_mixer(f, family, width, i, layer);
    if (!rc)
        rc = layer_vector(f, i, family->ffn_norm ? family->ffn_norm : "ffn_norm", REQUIRED, width, &layer->ffn_norm);
    if (!rc) rc = read_gated(f, family, width, i, &layer->gated);
    if (rc || !family->post_norms) return rc;
    rc = layer_vector(f, i, "post_attention_norm", REQUIRED, width, &layer->mixer_post_norm);
    return rc ? rc : layer_vector(f, i, "post_ffw_norm", REQUIRED, width, &layer->ffn_post_norm);
}

/* A table of the vocabulary: a row per token of the tokenizer at least. Rows behind those are padding. */
static int find_vocabulary(struct finder *f, const char *name, enum need need, const struct model_spec *spec,
                           const struct file_tensor **out) {
    const struct file_tensor *t = model_file_tensor(f->file, name);
    if (t && (t->dims[1] < spec->vocab || t->dims[1] > SPEC_VOCAB_MAX))
        return err_set(f->err, COHORT_E_FILE, name, "tensor %s has %llu rows, the tokenizer has %u tokens (at most %d)",
                       name, (unsigned long long)t->dims[1], spec->vocab, SPEC_VOCAB_MAX);
    return find(f, name, need, spec->width, t ? t->dims[1] : spec->vocab, out);
}

/* Long-context divisors of which one or the other set holds, by the length of the sequence: refused by name. */
static int read_rope_factors(struct finder *f, struct model_spec *spec) {
    static const char *const by_length[] = {"rope_factors_long.weight", "rope_factors_short.weight"};
    for (size_t i = 0; i < 2; i++)
        if (model_file_tensor(f->file, by_length[i]))
            return err_set(f->err, COHORT_E_UNSUPPORTED, by_length[i],
                           "tensor %s: rope factors that depend on the length are not supported", by_length[i]);
    return find_vector(f, "rope_freqs.weight", OPTIONAL, spec->ropes[0].pairs, &spec->ropes[0].factors);
}

static int compare_pointers(const void *a, const void *b) {
    uintptr_t x = (uintptr_t) * (const void *const *)a, y = (uintptr_t) * (const void *const *)b;
    return x < y ? -1 : x > y;
}

/* Everything in the file must have been asked for. Adds up the elements on the way. */
static int refuse_others(struct finder *f, uint64_t *parameters) {
    qsort(f->used, f->n_used, sizeof *f->used, compare_pointers);
    *parameters = 0;
    for (size_t i = 0; i < model_file_tensor_count(f->file); i++) {
        const struct file_tensor *t = model_file_tensor_at(f->file, i);
        if (!bsearch(&t, f->used, f->n_used, sizeof *f->used, compare_pointers))
            return err_set(f->err, COHORT_E_UNSUPPORTED, t->name,
                           "tensor %s is not part of this architecture as supported here", t->name);
        *parameters += t->dims[0] * t->dims[1];
    }
    return 0;
}

int tensors_read(const struct model_file *file, const struct family *family, struct model_spec *spec,
                 uint64_t *parameters, cohort_error *err) {
    struct finder f = {.file = file, .err = err, .capacity = (size_t)spec->n_layers * USED_PER_LAYER + USED_OTHERS};
    f.used = mem_alloc(f.capacity, sizeof *f.used);
    if (!f.used) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the list of tensors");
    int rc = find_vocabulary(&f, "token_embd.weight", REQUIRED, spec, &spec->embedding);
    if (!rc) rc = find_vocabulary(&f, "output.weight", OPTIONAL, spec, &spec->head);
    const char *output_norm = family->output_norm ? family->output_norm : "output_norm.weight";
    if (!rc) rc = find_vector(&f, output_norm, REQUIRED, spec->width, &spec->output_norm);
    if (!rc) rc = read_rope_factors(&f, spec);
    for (uint32_t i = 0; rc == 0 && i < spec->n_layers; i++) rc = read_layer(&f, family, spec, i);
    if (!rc) rc = refuse_others(&f, parameters);
    mem_free(f.used);
    spec->tied = spec->head == NULL;
    if (spec->tied) spec->head = spec->embedding;
    return rc;
}
