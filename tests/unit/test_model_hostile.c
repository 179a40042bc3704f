/* Files that are wrong in one place each: the loader says which key or tensor and why, and builds nothing. */
#include "test_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "tiny_model.h"

/* What a case does to a key of the family (whose prefix is added unless the name has a dot-free "general" in front). */
enum change { REMOVE, U32, I32, U64, F32, STRING, BOOL, ARRAY };

struct key_case {
    const char *family, *key;
    enum change change;
    double value; /* or, for STRING: */
    const char *text;
    int code;
    const char *says; /* part of the message */
};

static void apply(struct gguf_writer *w, const struct key_case *c) {
    const char *key = strncmp(c->key, "general.", 8) == 0 ? c->key : tiny_key(c->family, c->key);
    switch (c->change) {
    case REMOVE:
        gw_remove_key(w, key);
        break;
    case U32:
        gw_u32(w, key, (uint32_t)c->value);
        break;
    case I32:
        gw_i32(w, key, (int32_t)c->value);
        break;
    case U64:
        gw_u64(w, key, (uint64_t)c->value);
        break;
    case F32:
        gw_f32(w, key, (float)c->value);
        break;
    case STRING:
        gw_string(w, key, c->text);
        break;
    case BOOL:
        gw_bool(w, key, (uint8_t)c->value);
        break;
    case ARRAY: { /* of `value` integers, all 2 */
        uint32_t elements[16];
        for (size_t i = 0; i < 16; i++) elements[i] = 2;
        gw_array(w, key, META_U32, (uint64_t)c->value, 4, elements);
        break;
    }
    }
}

/* Builds, expects `code` and a message with `says` in it. */
static void expect(struct gguf_writer *w, int code, const char *what, const char *says) {
    struct tiny t;
    cohort_error err = {0};
    int rc = tiny_build(&t, w, &err);
    if (rc != code) fail_msg("%s: %s (%s), not %s", what, cohort_error_name(rc), err.text, cohort_error_name(code));
    if (rc) {
        assert_null(t.model);
        assert_int_equal(err.code, code);
        if (!strstr(err.text, says)) fail_msg("%s: \"%s\" does not say \"%s\"", what, err.text, says);
        assert_true(err.field[0] != 0);
    }
    tiny_free(&t);
}

#define F COHORT_E_FILE
#define U COHORT_E_UNSUPPORTED

static const struct key_case key_cases[] = {
    {"llama", "general.architecture", REMOVE, 0, NULL, F, "general.architecture is missing"},
    {"llama", "general.architecture", U32, 3, NULL, F, "general.architecture"},
    {"llama", "general.architecture", STRING, 0, "", U, "gemma2 gemma3 lfm2 llama"},
    {"llama", "general.architecture", STRING, 0, "llam", U, "\"llam\" is not supported"},
    {"llama", "general.architecture", STRING, 0, "llamas", U, "\"llamas\" is not supported"},
    /* layers */
    {"llama", "block_count", REMOVE, 0, NULL, F, "llama.block_count is missing"},
    {"llama", "block_count", U32, 0, NULL, F, "llama.block_count is 0, allowed is 1 to 512"},
    {"llama", "block_count", U32, 513, NULL, F, "llama.block_count is 513"},
    {"llama", "block_count", U32, 4294967295.0, NULL, F, "llama.block_count is 4294967295"},
    {"llama", "block_count", U64, 4294967297.0, NULL, F, "llama.block_count"},
    {"llama", "block_count", I32, -1, NULL, F, "llama.block_count"},
    {"llama", "block_count", STRING, 0, "3", F, "llama.block_count"},
    {"llama", "block_count", F32, 3, NULL, F, "llama.block_count"},
    {"llama", "block_count", ARRAY, 1, NULL, F, "llama.block_count"},
    {"llama", "block_count", U32, TINY_LAYERS + 1, NULL, F, "blk.3.attn_norm.weight is missing"},
    {"llama", "block_count", U32, TINY_LAYERS - 1, NULL, U, "blk.2."},
    /* widths */
    {"llama", "context_length", REMOVE, 0, NULL, F, "context_length is missing"},
    {"llama", "context_length", U32, 0, NULL, F, "context_length is 0"},
    {"llama", "context_length", U32, 4294967295.0, NULL, F, "context_length is 4294967295"},
    {"llama", "embedding_length", REMOVE, 0, NULL, F, "embedding_length is missing"},
    {"llama", "embedding_length", U32, 0, NULL, F, "embedding_length is 0"},
    {"llama", "embedding_length", U32, 2147483648.0, NULL, F, "embedding_length is 2147483648"},
    {"llama", "embedding_length", U32, TINY_WIDTH + 1, NULL, F, "token_embd.weight"},
    {"llama", "feed_forward_length", REMOVE, 0, NULL, F, "feed_forward_length is missing"},
    {"llama", "feed_forward_length", U32, 0, NULL, F, "feed_forward_length is 0"},
    {"llama", "feed_forward_length", U32, 2 * TINY_FFN, NULL, F, "blk.0.ffn_gate.weight"},
    {"llama", "feed_forward_length", ARRAY, 2, NULL, F, "2 elements for 3 layers"},
    {"llama", "feed_forward_length", ARRAY, 3, NULL, F, "blk.0.ffn_gate.weight"},
    {"llama", "attention.layer_norm_rms_epsilon", REMOVE, 0, NULL, F, "epsilon is missing"},
    {"llama", "attention.layer_norm_rms_epsilon", F32, 0, NULL, F, "epsilon is 0"},
    {"llama", "attention.layer_norm_rms_epsilon", F32, -1e-5, NULL, F, "epsilon is -1e-05"},
    {"llama", "attention.layer_norm_rms_epsilon", F32, INFINITY, NULL, F, "epsilon"},
    {"llama", "attention.layer_norm_rms_epsilon", F32, NAN, NULL, F, "epsilon"},
    /* heads */
    {"llama", "attention.head_count", REMOVE, 0, NULL, F, "attention.head_count is missing"},
    {"llama", "attention.head_count", U32, 0, NULL, F, "attention.head_count is 0"},
    {"llama", "attention.head_count", U32, 1025, NULL, F, "attention.head_count is 1025"},
    {"llama", "attention.head_count", U32, 2, NULL, F, "blk.0.attn_q.weight"},
    {"llama", "attention.head_count", ARRAY, 4, NULL, F, "4 elements for 3 layers"},
    {"llama", "attention.head_count", ARRAY, 0, NULL, F, "0 elements for 3 layers"},
    {"llama", "attention.head_count_kv", U32, 0, NULL, F, "attention.head_count_kv is 0"},
    {"llama", "attention.head_count_kv", U32, 3, NULL, F, "does not divide head_count 4"},
    {"llama", "attention.head_count_kv", U32, 8, NULL, F, "does not divide head_count 4"},
    {"llama", "attention.head_count_kv", REMOVE, 0, NULL, F, "blk.0.attn_k.weight"},
    {"llama", "attention.head_count_kv", STRING, 0, "2", F, "attention.head_count_kv"},
    {"qwen2", "attention.head_count", U32, 5, NULL, F, "does not divide embedding_length 32"},
    {"llama", "attention.key_length", U32, 0, NULL, F, "attention.key_length is 0"},
    {"llama", "attention.key_length", U32, 1025, NULL, F, "attention.key_length is 1025"},
    {"llama", "attention.key_length", U32, 8, NULL, F, "blk.0.attn_q.weight"},
    {"llama", "attention.value_length", U32, 8, NULL, F, "blk.0.attn_v.weight"},
    {"qwen3", "attention.key_length", REMOVE, 0, NULL, F, "blk.0.attn_q.weight"},
    /* recurrent layers */
    {"qwen35", "attention.value_length", U32, 8, NULL, F, "attention.value_length is 8"},
    {"qwen35", "ssm.conv_kernel", REMOVE, 0, NULL, F, "ssm.conv_kernel is missing"},
    {"qwen35", "ssm.conv_kernel", U32, 1, NULL, F, "ssm.conv_kernel is 1, allowed is 2 to 16"},
    {"qwen35", "ssm.conv_kernel", U32, 17, NULL, F, "ssm.conv_kernel is 17"},
    {"qwen35", "ssm.conv_kernel", U32, 3, NULL, F, "blk.0.ssm_conv1d.weight"},
    {"qwen35", "ssm.state_size", REMOVE, 0, NULL, F, "ssm.state_size is missing"},
    {"qwen35", "ssm.state_size", U32, 1025, NULL, F, "ssm.state_size is 1025"},
    {"qwen35", "ssm.state_size", U32, 1024, NULL, F, "blk.0.attn_qkv.weight"},
    {"qwen35", "ssm.group_count", U32, 0, NULL, F, "ssm.group_count is 0"},
    {"qwen35", "ssm.group_count", U32, 4, NULL, F, "ssm.group_count is 4, which does not divide"},
    {"qwen35", "ssm.group_count", U32, 6, NULL, F, "blk.0.attn_qkv.weight"},
    {"qwen35", "ssm.time_step_rank", U32, 1025, NULL, F, "ssm.time_step_rank is 1025"},
    {"qwen35", "ssm.time_step_rank", REMOVE, 0, NULL, F, "ssm.time_step_rank is missing"},
    {"qwen35", "ssm.inner_size", U32, 47, NULL, F, "ssm.inner_size is 47, which 6 heads"},
    {"qwen35", "ssm.inner_size", U32, 6 * 1025, NULL, F, "at most 1024 each"},
    {"qwen35", "ssm.inner_size", U32, 4294967295.0, NULL, F, "ssm.inner_size is 4294967295"},
    {"qwen35", "full_attention_interval", U32, 0, NULL, F, "full_attention_interval is 0"},
    {"qwen35", "full_attention_interval", U32, 1, NULL, F, "blk.0.attn_q.weight is missing"},
    {"qwen35", "attention.recurrent_layers", ARRAY, 3, NULL, F, "recurrent_layers is no array of flags"},
    {"qwen35", "attention.recurrent_layers", BOOL, 1, NULL, F, "recurrent_layers is no array of flags"},
    {"lfm2", "shortconv.l_cache", REMOVE, 0, NULL, F, "shortconv.l_cache is missing"},
    {"lfm2", "shortconv.l_cache", U32, 1, NULL, F, "shortconv.l_cache is 1"},
    {"lfm2", "shortconv.l_cache", U32, 5, NULL, F, "blk.0.shortconv.conv.weight"},
    {"lfm2", "attention.head_count_kv", ARRAY, 3, NULL, F, "blk.0.attn_q.weight is missing"},
    {"lfm2", "attention.head_count_kv", U32, 0, NULL, F, "blk.1.shortconv.in_proj.weight is missing"},
    /* windows */
    {"gemma3", "attention.sliding_window", U32, 4294967295.0, NULL, F, "sliding_window is 4294967295"},
    {"gemma3", "attention.sliding_window", U32, 0, NULL, 0, ""},
    {"gemma3", "attention.sliding_window", U32, 2 * TINY_CONTEXT, NULL, 0, ""},
    {"gemma3", "attention.sliding_window", STRING, 0, "16", F, "sliding_window"},
    {"gemma3", "attention.sliding_window_pattern", ARRAY, 3, NULL, F, "sliding_window_pattern has 2 for layer 0"},
    {"gemma3", "attention.sliding_window_pattern", ARRAY, 2, NULL, F, "2 elements for 3 layers"},
    {"gemma3", "attention.sliding_window_pattern", U32, 0, NULL, 0, ""},
    {"gemma3", "attention.sliding_window_pattern", U32, 4294967295.0, NULL, F, "sliding_window_pattern is"},
    {"gemma3", "attention.sliding_window_pattern", STRING, 0, "LLG", F, "sliding_window_pattern"},
    {"gemma2", "attn_logit_softcapping", F32, -50, NULL, F, "attn_logit_softcapping is -50"},
    {"gemma2", "final_logit_softcapping", F32, NAN, NULL, F, "final_logit_softcapping"},
    /* rope */
    {"llama", "rope.dimension_count", U32, 0, NULL, F, "rope.dimension_count is 0"},
    {"llama", "rope.dimension_count", U32, 15, NULL, F, "rope.dimension_count is 15, which is not even"},
    {"llama", "rope.dimension_count", U32, 18, NULL, F, "rope.dimension_count is 18, allowed is 2 to 16"},
    {"llama", "rope.freq_base", F32, 0, NULL, F, "rope.freq_base is 0"},
    {"llama", "rope.freq_base", F32, 1, NULL, F, "rope.freq_base is 1"},
    {"llama", "rope.freq_base", F32, -10000, NULL, F, "rope.freq_base is -10000"},
    {"llama", "rope.freq_base", F32, INFINITY, NULL, F, "rope.freq_base"},
    {"llama", "rope.scaling.factor", F32, -1, NULL, F, "rope.scaling.factor is -1"},
    {"llama", "rope.scaling.factor", F32, 1e-6, NULL, F, "rope frequency 0"},
    {"llama", "rope.scaling.type", STRING, 0, "longrope", U, "\"longrope\""},
    {"llama", "rope.scaling.type", STRING, 0, "", U, "rope.scaling.type"},
    {"llama", "rope.scaling.type", U32, 1, NULL, F, "rope.scaling.type"},
    {"gemma3", "rope.freq_base_swa", F32, 0, NULL, F, "rope.freq_base_swa is 0"},
    /* what is not implemented is said, not left out */
    {"llama", "expert_count", U32, 8, NULL, U, "llama.expert_count is 8"},
    {"llama", "expert_count", U32, 0, NULL, 0, ""},
    {"qwen35", "nextn_predict_layers", U32, 1, NULL, U, "nextn_predict_layers is 1"},
    {"qwen35", "nextn_predict_layers", U32, 0, NULL, 0, ""},
    {"llama", "attention.causal", BOOL, 0, NULL, U, "attention.causal is 0"},
    {"llama", "attention.causal", BOOL, 1, NULL, 0, ""},
    {"llama", "pooling_type", U32, 4, NULL, 0, ""},
    {"llama", "pooling_type", U32, 5, NULL, F, "pooling_type"},
    {"llama", "pooling_type", STRING, 0, "mean", F, "pooling_type"},
    {"llama", "logit_scale", F32, 0.5, NULL, U, "logit_scale is 0.5"},
    {"llama", "attention.scale", STRING, 0, "x", F, "attention.scale is not a number"},
};

void test_hostile_keys(void **state) {
    static struct gguf_writer w;
    for (size_t i = 0; i < sizeof key_cases / sizeof key_cases[0]; i++) {
        const struct key_case *c = &key_cases[i];
        char what[128];
        snprintf(what, sizeof what, "case %zu, %s", i, c->key);
        tiny_make(&w, c->family, TINY_LAYERS);
        apply(&w, c);
        expect(&w, c->code, what, c->says);
        gw_deinit(&w);
    }
}

/* ---- Tensors ---- */

static void missing_tensors(struct gguf_writer *w, const char *family) {
    tiny_make(w, family, TINY_LAYERS);
    size_t n = w->n_tensors;
    for (size_t i = 0; i < n; i++) {
        char name[GW_NAME_MAX];
        gw_deinit(w);
        tiny_make(w, family, TINY_LAYERS);
        snprintf(name, sizeof name, "%s", w->tensors[i].name);
        gw_remove_tensor(w, name);
        if (strcmp(name, "output.weight") == 0)
            expect(w, 0, name, ""); /* the head is then tied to the embedding */
        else
            expect(w, F, name,
                   strcmp(family, "phi3") || strcmp(name, "blk.0.attn_qkv.weight") ? "is missing"
                                                                                   : "attn_q.weight is missing");
    }
    gw_deinit(w);
}

/* Every tensor one column and one row too large and too small. */
static void wrong_shapes(struct gguf_writer *w, const char *family) {
    static const int changes[][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    tiny_make(w, family, 1);
    size_t n = w->n_tensors;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 4; k++) {
            gw_deinit(w);
            tiny_make(w, family, 1);
            char name[GW_NAME_MAX];
            snprintf(name, sizeof name, "%s", w->tensors[i].name);
            uint64_t cols = w->tensors[i].dims[0] + (uint64_t)(int64_t)changes[k][0];
            uint64_t rows = (w->tensors[i].n_dims > 1 ? w->tensors[i].dims[1] : 1) + (uint64_t)(int64_t)changes[k][1];
            if (rows == 0) continue;
            /* More rows than tokens are padding. */
            int vocabulary = strcmp(name, "token_embd.weight") == 0 || strcmp(name, "output.weight") == 0;
            gw_floats(w, name, cols, rows, NULL);
            expect(w, vocabulary && changes[k][1] == 1 ? 0 : F, name, name);
        }
    gw_deinit(w);
}

static void other_tensors(struct gguf_writer *w) {
    static const struct {
        const char *family, *name;
        uint32_t type;
        uint64_t dims[4];
        size_t bytes;
        int code;
        const char *says;
    } cases[] = {
        {"llama", "blk.0.attn_q_norm.weight", DTYPE_F32, {16, 1, 1, 1}, 64, U, "not part of this architecture"},
        {"llama", "blk.3.attn_q.weight", DTYPE_F32, {32, 64, 1, 1}, 8192, U, "blk.3.attn_q.weight is not part"},
        {"llama", "blk.0.ffn_gate_inp.weight", DTYPE_F32, {32, 4, 1, 1}, 512, U, "ffn_gate_inp.weight is not part"},
        {"llama", "x", DTYPE_F32, {1, 1, 1, 1}, 4, U, "tensor x is not part"},
        {"llama", "rope_freqs.weight", DTYPE_F32, {7, 1, 1, 1}, 28, F, "rope_freqs.weight is 7"},
        {"llama", "rope_freqs.weight", DTYPE_F32, {8, 1, 1, 1}, 32, F, "rope frequency 0 is inf"}, /* zeros */
        {"llama", "rope_freqs.weight", DTYPE_F16, {8, 1, 1, 1}, 16, U, "rope_freqs.weight is F16"},
        {"qwen35", "blk.0.ssm_conv1d.weight", DTYPE_Q8_0, {4, 96, 1, 1}, 408, F, "blk.0.ssm_conv1d.weight"},
        {"qwen35", "blk.0.ssm_conv1d.weight", DTYPE_F16, {4, 96, 1, 1}, 768, 0, ""},
        {"qwen35", "blk.0.ssm_a", DTYPE_F16, {6, 1, 1, 1}, 12, U, "blk.0.ssm_a is F16"},
        {"qwen35", "blk.0.attn_q.weight", DTYPE_F32, {32, 64, 1, 1}, 8192, U, "blk.0.attn_q.weight is not part"},
        {"lfm2", "output_norm.weight", DTYPE_F32, {32, 1, 1, 1}, 128, U, "output_norm.weight is not part"},
        {"phi3", "rope_factors_long.weight", DTYPE_F32, {4, 1, 1, 1}, 16, U, "rope_factors_long.weight"},
        {"phi3", "rope_factors_short.weight", DTYPE_F32, {4, 1, 1, 1}, 16, U, "rope_factors_short.weight"},
        {"llama", "output_norm.weight", DTYPE_F16, {32, 1, 1, 1}, 64, U, "output_norm.weight is F16"},
        {"qwen2", "blk.0.attn_q.bias", DTYPE_F32, {33, 1, 1, 1}, 132, F, "blk.0.attn_q.bias is 33"},
        {"llama", "blk.0.attn_q.weight", DTYPE_F32, {32, 64, 2, 1}, 16384, F, "attn_q.weight is 32 x 64 x 2"},
        {"llama", "blk.0.attn_q.weight", DTYPE_F32, {32, 64, 1, 2}, 16384, F, "attn_q.weight is 32 x 64 x 1 x 2"},
        {"llama", "blk.0.attn_q.weight", DTYPE_F32, {64, 32, 1, 1}, 8192, F, "keys ask for 32 x 64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tiny_make(w, cases[i].family, TINY_LAYERS);
        uint32_t n_dims = 4;
        while (n_dims > 1 && cases[i].dims[n_dims - 1] == 1) n_dims--;
        gw_tensor(w, cases[i].name, cases[i].type, n_dims, cases[i].dims, NULL, cases[i].bytes);
        expect(w, cases[i].code, cases[i].name, cases[i].says);
        gw_deinit(w);
    }
}

/* Sizes that no tensor of a file could have, with every other key agreeing. */
static void too_wide(struct gguf_writer *w) {
    tiny_make(w, "llama", 1);
    gw_u32(w, "llama.attention.head_count", 1024);
    gw_u32(w, "llama.attention.head_count_kv", 1024);
    gw_u32(w, "llama.attention.key_length", 1024);
    expect(w, F, "heads", "at most 1048576");
    gw_deinit(w);
}

void test_hostile_tensors(void **state) {
    static struct gguf_writer w;
    for (size_t i = 0; tiny_families[i]; i++) {
        missing_tensors(&w, tiny_families[i]);
        wrong_shapes(&w, tiny_families[i]);
    }
    other_tensors(&w);
    too_wide(&w);
    /* A tokenizer with more tokens than the embedding has rows, and with none. */
    struct tiny t;
    cohort_error err = {0};
    tiny_make(&w, "llama", 1);
    assert_int_equal(tiny_build(&t, &w, &err), 0);
    struct model *model;
    assert_int_equal(model_build(t.file, TINY_VOCAB + 1, &model, &err), F);
    assert_non_null(strstr(err.text, "token_embd.weight has 40 rows"));
    assert_int_equal(model_build(t.file, 0, &model, &err), F);
    assert_int_equal(model_build(t.file, UINT32_MAX, &model, &err), F);
    assert_null(model);
    tiny_free(&t);
    gw_deinit(&w);
}
