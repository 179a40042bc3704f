/* Reading the architecture's keys: the bounded getters, and what every family has. Whatever a file says goes through a
 * bound here; whether it agrees with the tensors is tensors.c's business. */
#include "model/keys.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fmath.h"
#include "base/mem.h"
#include "model/family.h"
#include "model/rope.h"

enum { KEY_MAX = 96 };

static void full_name(const struct keys *k, const char *name, char out[KEY_MAX]) {
    int n = snprintf(out, KEY_MAX, "%s.%s", k->prefix, name);
    assert(n > 0 && n < KEY_MAX);
}

int keys_error(const struct keys *k, const char *name, const char *format, ...) {
    char key[KEY_MAX], text[256];
    full_name(k, name, key);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return err_set(k->err, COHORT_E_FILE, key, "key %s %s", key, text);
}

int keys_u32(const struct keys *k, const char *name, uint32_t low, uint32_t high, uint32_t *value) {
    char key[KEY_MAX];
    full_name(k, name, key);
    uint64_t got;
    int rc = meta_u64(k->meta, key, &got, k->err);
    if (rc == COHORT_E_NOT_FOUND) return 0;
    if (rc) return rc;
    if (got < low || got > high)
        return keys_error(k, name, "is %llu, allowed is %u to %u", (unsigned long long)got, low, high);
    *value = (uint32_t)got;
    return 0;
}

int keys_need_u32(const struct keys *k, const char *name, uint32_t low, uint32_t high, uint32_t *value) {
    char key[KEY_MAX];
    full_name(k, name, key);
    if (!meta_find(k->meta, key)) return keys_error(k, name, "is missing");
    return keys_u32(k, name, low, high, value);
}

int keys_f64(const struct keys *k, const char *name, double low, double high, double *value) {
    char key[KEY_MAX];
    full_name(k, name, key);
    float got;
    int rc = meta_f32(k->meta, key, &got, k->err);
    if (rc == COHORT_E_NOT_FOUND) return 0;
    if (rc) return rc;
    if (!(got >= low && got <= high)) return keys_error(k, name, "is %g, allowed is %g to %g", (double)got, low, high);
    *value = (double)got;
    return 0;
}

int keys_layers(const struct keys *k, const char *name, uint32_t low, uint32_t high, uint32_t n, uint32_t *values) {
    char key[KEY_MAX];
    full_name(k, name, key);
    const struct meta_entry *entry = meta_find(k->meta, key);
    if (!entry) return 0;
    if (entry->type != META_ARRAY) {
        int rc = keys_u32(k, name, low, high, &values[0]);
        for (uint32_t i = 1; rc == 0 && i < n; i++) values[i] = values[0];
        return rc;
    }
    if (!meta_is_integer(entry->element)) return keys_error(k, name, "is an array of something other than integers");
    if (entry->count != n)
        return keys_error(k, name, "has %llu elements for %u layers", (unsigned long long)entry->count, n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t value = meta_entry_i64(entry, i);
        if (value < (int64_t)low || value > (int64_t)high)
            return keys_error(k, name, "has %lld for layer %u, allowed is %u to %u", (long long)value, i, low, high);
        values[i] = (uint32_t)value;
    }
    return 0;
}

int keys_flags(const struct keys *k, const char *name, uint32_t n, int *flags, int *found) {
    char key[KEY_MAX];
    full_name(k, name, key);
    const struct meta_entry *entry = meta_find(k->meta, key);
    *found = entry != NULL;
    if (!entry) return 0;
    if (entry->type != META_ARRAY || entry->element != META_BOOL) return keys_error(k, name, "is no array of flags");
    if (entry->count != n)
        return keys_error(k, name, "has %llu elements for %u layers", (unsigned long long)entry->count, n);
    for (uint32_t i = 0; i < n; i++) flags[i] = meta_entry_i64(entry, i) != 0;
    return 0;
}

/* Keys that change what a model computes in ways that are not implemented: they may only say what their absence says.
 */
static int refuse_unknown(const struct keys *k) {
    static const struct {
        const char *name;
        double neutral, also;
    } keys[] = {
        {"expert_count", 0, 0},
        {"nextn_predict_layers", 0, 0},
        {"attention.max_alibi_bias", 0, 0},
        {"attention.clamp_kqv", 0, 0},
        {"attention.scale", 0, 0},
        {"attention.causal", 1, 1},
        {"logit_scale", 0, 1},
        {"residual_scale", 0, 1},
        {"embedding_scale", 0, 1},
        {"use_parallel_residual", 0, 0},
        {"rope.scaling.alpha", 0, 1},
        {"rope.scaling.yarn_ext_factor", 1, 1},
        {"rope.scaling.yarn_log_multiplier", 0, 0},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char key[KEY_MAX];
        full_name(k, keys[i].name, key);
        const struct meta_entry *entry = meta_find(k->meta, key);
        if (!entry) continue;
        int number = meta_is_integer(entry->type) || entry->type == META_BOOL || entry->type == META_F32 ||
                     entry->type == META_F64;
        if (!number) return keys_error(k, keys[i].name, "is not a number");
        double value = meta_entry_f64(entry, 0);
        if (value != keys[i].neutral && value != keys[i].also)
            return err_set(k->err, COHORT_E_UNSUPPORTED, key, "key %s is %g, which is not supported", key, value);
    }
    return 0;
}

static int read_sizes(const struct keys *k, struct model_spec *spec) {
    int rc = keys_need_u32(k, "block_count", 1, SPEC_LAYERS_MAX, &spec->n_layers);
    if (!rc) rc = keys_need_u32(k, "context_length", 1, SPEC_CONTEXT_MAX, &spec->context_trained);
    if (!rc) rc = keys_need_u32(k, "embedding_length", 1, SPEC_WIDTH_MAX, &spec->width);
    double eps = 0;
    if (!rc) rc = keys_f64(k, "attention.layer_norm_rms_epsilon", 1e-30, 1, &eps);
    if (!rc && eps == 0) rc = keys_error(k, "attention.layer_norm_rms_epsilon", "is missing");
    spec->eps = (float)eps;
    return rc;
}

/* Width of a head: a key of its own, or the residual stream divided between the heads. */
static int read_head_width(const struct keys *k, const char *name, const struct model_spec *spec, uint32_t heads,
                           uint32_t *width) {
    *width = 0;
    int rc = keys_u32(k, name, 1, SPEC_HEAD_WIDTH_MAX, width);
    if (rc || *width) return rc;
    if (spec->width % heads || spec->width / heads > SPEC_HEAD_WIDTH_MAX)
        return keys_error(k, "attention.head_count", "is %u, which does not divide embedding_length %u into heads",
                          heads, spec->width);
    *width = spec->width / heads;
    return 0;
}

static int read_heads(const struct keys *k, const struct family *family, struct model_spec *spec) {
    uint32_t n = spec->n_layers, heads[SPEC_LAYERS_MAX] = {0}, kv_heads[SPEC_LAYERS_MAX], key_width, value_width;
    int rc = keys_layers(k, "attention.head_count", 1, SPEC_HEADS_MAX, n, heads);
    if (rc) return rc;
    if (!heads[0]) return keys_error(k, "attention.head_count", "is missing");
    memcpy(kv_heads, heads, sizeof kv_heads);
    rc = keys_layers(k, "attention.head_count_kv", family->heads_may_lack ? 0 : 1, SPEC_HEADS_MAX, n, kv_heads);
    if (!rc) rc = read_head_width(k, "attention.key_length", spec, heads[0], &key_width);
    if (!rc) rc = read_head_width(k, "attention.value_length", spec, heads[0], &value_width);
    if (rc) return rc;
    for (uint32_t i = 0; i < n; i++) {
        struct spec_attention *a = &spec->layers[i].attention;
        *a = (struct spec_attention){
            .heads = heads[i], .kv_heads = kv_heads[i], .key_width = key_width, .value_width = value_width};
        if (family->query_gated && key_width != value_width)
            return keys_error(k, "attention.value_length",
                              "is %u, but gates of queries %u wide belong to values as wide", value_width, key_width);
        if (kv_heads[i] && heads[i] % kv_heads[i])
            return keys_error(k, "attention.head_count_kv", "is %u in layer %u, which does not divide head_count %u",
                              kv_heads[i], i, heads[i]);
    }
    return 0;
}

static int read_ffn(const struct keys *k, const struct family *family, struct model_spec *spec) {
    uint32_t n = spec->n_layers, width[SPEC_LAYERS_MAX] = {0};
    int rc = keys_layers(k, "feed_forward_length", 1, SPEC_WIDTH_MAX / 2, n, width);
    if (rc) return rc;
    if (!width[0]) return keys_error(k, "feed_forward_length", "is missing");
    for (uint32_t i = 0; i < n; i++) spec->layers[i].gated = (struct spec_gated){.width = width[i], .act = family->act};
    return 0;
}

/* YaRN's keys. Cos and sin are multiplied by what the file says, or by the published 0.1 ln(factor) + 1. */
static int read_yarn(const struct keys *k, const struct model_spec *spec, struct spec_rope *rope) {
    rope->original_context = spec->context_trained;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    double magnitude = rope->factor > 1 ? 0.1 * fmath_log(rope->factor) + 1 : 1;
    int rc = keys_u32(k, "rope.scaling.original_context_length", 1, SPEC_CONTEXT_MAX, &rope->original_context);
    if (!rc) rc = keys_f64(k, "rope.scaling.yarn_attn_factor", 1e-3, 1e3, &magnitude);
    if (!rc) rc = keys_f64(k, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, &rope->beta_fast);
    if (!rc) rc = keys_f64(k, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, &rope->beta_slow);
    rope->magnitude *= magnitude;
    return rc;
}

static int string_is(struct meta_string s, const char *text) {
    return s.len == strlen(text) && memcmp(s.bytes, text, s.len) == 0;
}

/* The scaling's kind: a factor without a kind is the old way to say "linear". */
static int read_scaling(const struct keys *k, const struct model_spec *spec, struct spec_rope *rope) {
    static const char type_name[] = "rope.scaling.type";
    char key[KEY_MAX];
    full_name(k, type_name, key);
    struct meta_string kind = {"linear", 6};
    int rc = meta_string(k->meta, key, &kind, k->err);
    if (rc && rc != COHORT_E_NOT_FOUND) return rc;

    double factor = 0;
    rc = keys_f64(k, "rope.scale_linear", 0, ROPE_FACTOR_MAX, &factor);
    if (!rc) rc = keys_f64(k, "rope.scaling.factor", 0, ROPE_FACTOR_MAX, &factor);
    if (rc) return rc;
    rope->factor = factor > 0 ? factor : 1;

    if (string_is(kind, "none")) return 0;
    if (string_is(kind, "linear")) {
        if (rope->factor != 1) rope->scaling = SPEC_ROPE_LINEAR;
        return 0;
    }
    if (string_is(kind, "yarn")) {
        rope->scaling = SPEC_ROPE_YARN;
        return read_yarn(k, spec, rope);
    }
    return err_set(k->err, COHORT_E_UNSUPPORTED, key, "key %s is \"%.*s\", which is not supported", key,
                   (int)(kind.len < 32 ? kind.len : 32), kind.bytes);
}

static int read_rope(const struct keys *k, const struct family *family, struct model_spec *spec) {
    struct spec_rope *rope = &spec->ropes[0];
    uint32_t key_width = spec->layers[0].attention.key_width, dims = key_width;
    *rope = (struct spec_rope){.interleaved = family->rope_interleaved, .base = 10000, .factor = 1, .magnitude = 1};
    int rc = keys_u32(k, "rope.dimension_count", 2, key_width, &dims);
    if (rc) return rc;
    if (dims % 2) return keys_error(k, "rope.dimension_count", "is %u, which is not even", dims);
    rope->pairs = dims / 2;
    rc = keys_f64(k, "rope.freq_base", 1.0001, ROPE_BASE_MAX, &rope->base);
    if (!rc) rc = keys_f64(k, "rope.scaling.attn_factor", 1e-3, 1e3, &rope->magnitude);
    if (!rc) rc = read_scaling(k, spec, rope);
    spec->n_ropes = 1;
    return rc;
}

/* How the file wants its hidden vectors pooled. Its numbers: none, mean, first, last, and a rank, which is no
 * embedding.
 */
static int read_pooling(const struct keys *k, struct model_spec *spec) {
    static const cohort_pooling kinds[] = {COHORT_POOLING_NONE, COHORT_POOLING_MEAN, COHORT_POOLING_CLS,
                                           COHORT_POOLING_LAST, COHORT_POOLING_NONE};
    uint32_t kind = 0;
    int rc = keys_u32(k, "pooling_type", 0, sizeof kinds / sizeof kinds[0] - 1, &kind);
    spec->pooling = kinds[kind];
    return rc;
}

int keys_read(const struct keys *k, const struct family *family, struct model_spec *spec) {
    spec->architecture = family->architecture;
    int rc = refuse_unknown(k);
    if (!rc) rc = read_sizes(k, spec);
    if (rc) return rc;
    spec->layers = mem_zalloc(spec->n_layers, sizeof *spec->layers);
    if (!spec->layers) return err_set(k->err, COHORT_E_MEMORY, NULL, "no memory for %u layers", spec->n_layers);
    spec->embed_scale = family->embed_scaled ? (float)sqrt((double)spec->width) : 1;
    rc = read_heads(k, family, spec);
    if (!rc) rc = read_ffn(k, family, spec);
    if (!rc) rc = read_rope(k, family, spec);
    if (!rc) rc = read_pooling(k, spec);
    if (rc) return rc;
    family_set_scale(spec, spec->layers[0].attention.key_width);
    return family->read ? family->read(k, spec) : 0;
}
