#include "tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tiny_families[] = {"gemma2", "gemma3", "lfm2", "llama", "phi3", "qwen2", "qwen3", "qwen35", NULL};

const char *tiny_key(const char *family, const char *name) {
    static char key[128];
    snprintf(key, sizeof key, "%s.%s", family, name);
    return key;
}

static int is(const char *family, const char *name) { return strcmp(family, name) == 0; }

/* Weights that are neither zero nor all the same; norms around one. */
static void matrix(struct gguf_writer *w, const char *name, uint64_t cols, uint64_t rows) {
    float *data = malloc((size_t)(cols * rows) * sizeof *data);
    if (!data) abort();
    uint32_t state = (uint32_t)(cols * 31 + rows);
    for (uint64_t i = 0; i < cols * rows; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = (float)(state >> 8) / 16777216.0f - 0.5f;
        if (rows == 1) data[i] = 1 + 0.2f * data[i];
    }
    gw_floats(w, name, cols, rows, data);
    free(data);
}

static void layer_tensor(struct gguf_writer *w, uint32_t layer, const char *part, uint64_t cols, uint64_t rows) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer, part);
    matrix(w, name, cols, rows);
}

/* Every second layer of the hybrids, from the first on. */
static int recurrent(const char *family, uint32_t i) {
    return (is(family, "lfm2") || is(family, "qwen35")) && i % 2 == 0;
}

static void mixer_recurrent(struct gguf_writer *w, const char *family, uint32_t i) {
    uint32_t values = TINY_DELTA_HEADS * TINY_DELTA_WIDTH, columns = 2 * values;
    if (is(family, "lfm2")) {
        layer_tensor(w, i, "shortconv.in_proj.weight", TINY_WIDTH, 3 * TINY_WIDTH);
        layer_tensor(w, i, "shortconv.conv.weight", TINY_TAPS, TINY_WIDTH);
        layer_tensor(w, i, "shortconv.out_proj.weight", TINY_WIDTH, TINY_WIDTH);
        return;
    }
    layer_tensor(w, i, "attn_qkv.weight", TINY_WIDTH, columns);
    layer_tensor(w, i, "attn_gate.weight", TINY_WIDTH, values);
    layer_tensor(w, i, "ssm_alpha.weight", TINY_WIDTH, TINY_DELTA_HEADS);
    layer_tensor(w, i, "ssm_beta.weight", TINY_WIDTH, TINY_DELTA_HEADS);
    layer_tensor(w, i, "ssm_conv1d.weight", TINY_TAPS, columns);
    layer_tensor(w, i, "ssm_a", TINY_DELTA_HEADS, 1);
    layer_tensor(w, i, "ssm_dt.bias", TINY_DELTA_HEADS, 1);
    layer_tensor(w, i, "ssm_norm.weight", TINY_DELTA_WIDTH, 1);
    layer_tensor(w, i, "ssm_out.weight", values, TINY_WIDTH);
}

static void mixer_attention(struct gguf_writer *w, const char *family, uint32_t i, uint32_t head_width) {
    uint32_t q = TINY_HEADS * head_width, kv = TINY_KV_HEADS * head_width;
    if (is(family, "phi3")) {
        layer_tensor(w, i, "attn_qkv.weight", TINY_WIDTH, q + 2 * kv);
    } else {
        layer_tensor(w, i, "attn_q.weight", TINY_WIDTH, is(family, "qwen35") ? 2 * q : q);
        layer_tensor(w, i, "attn_k.weight", TINY_WIDTH, kv);
        layer_tensor(w, i, "attn_v.weight", TINY_WIDTH, kv);
    }
    if (is(family, "qwen2")) {
        layer_tensor(w, i, "attn_q.bias", q, 1);
        layer_tensor(w, i, "attn_k.bias", kv, 1);
        layer_tensor(w, i, "attn_v.bias", kv, 1);
    }
    if (is(family, "qwen3") || is(family, "gemma3") || is(family, "lfm2") || is(family, "qwen35")) {
        layer_tensor(w, i, "attn_q_norm.weight", head_width, 1);
        layer_tensor(w, i, "attn_k_norm.weight", head_width, 1);
    }
    layer_tensor(w, i, "attn_output.weight", q, TINY_WIDTH);
}

static void layer(struct gguf_writer *w, const char *family, uint32_t i, uint32_t head_width) {
    int gemma = is(family, "gemma2") || is(family, "gemma3"), phi = is(family, "phi3");
    layer_tensor(w, i, "attn_norm.weight", TINY_WIDTH, 1);
    if (recurrent(family, i))
        mixer_recurrent(w, family, i);
    else
        mixer_attention(w, family, i, head_width);
    layer_tensor(w, i, is(family, "qwen35") ? "post_attention_norm.weight" : "ffn_norm.weight", TINY_WIDTH, 1);
    if (!phi) layer_tensor(w, i, "ffn_gate.weight", TINY_WIDTH, TINY_FFN);
    layer_tensor(w, i, "ffn_up.weight", TINY_WIDTH, phi ? 2 * TINY_FFN : TINY_FFN);
    layer_tensor(w, i, "ffn_down.weight", TINY_FFN, TINY_WIDTH);
    if (gemma) {
        layer_tensor(w, i, "post_attention_norm.weight", TINY_WIDTH, 1);
        layer_tensor(w, i, "post_ffw_norm.weight", TINY_WIDTH, 1);
    }
}

static void hybrid_keys(struct gguf_writer *w, const char *family, uint32_t layers) {
    if (is(family, "lfm2")) {
        uint32_t kv_heads[16];
        if (layers > 16) abort();
        for (uint32_t i = 0; i < layers; i++) kv_heads[i] = recurrent(family, i) ? 0 : TINY_KV_HEADS;
        gw_array(w, "lfm2.attention.head_count_kv", META_U32, layers, 4, kv_heads);
        gw_u32(w, "lfm2.shortconv.l_cache", TINY_TAPS);
    }
    if (is(family, "qwen35")) {
        gw_u32(w, "qwen35.full_attention_interval", 2);
        gw_u32(w, "qwen35.ssm.conv_kernel", TINY_TAPS);
        gw_u32(w, "qwen35.ssm.state_size", TINY_DELTA_WIDTH);
        gw_u32(w, "qwen35.ssm.group_count", TINY_DELTA_HEADS / 2);
        gw_u32(w, "qwen35.ssm.time_step_rank", TINY_DELTA_HEADS);
        gw_u32(w, "qwen35.ssm.inner_size", TINY_DELTA_HEADS * TINY_DELTA_WIDTH);
    }
}

void tiny_make(struct gguf_writer *w, const char *family, uint32_t layers) {
    int own_head_width = !is(family, "qwen2") && !is(family, "phi3");
    uint32_t head_width = own_head_width ? TINY_HEAD_WIDTH : TINY_WIDTH / TINY_HEADS;
    gw_string(w, "general.architecture", family);
    gw_u32(w, tiny_key(family, "block_count"), layers);
    gw_u32(w, tiny_key(family, "context_length"), TINY_CONTEXT);
    gw_u32(w, tiny_key(family, "embedding_length"), TINY_WIDTH);
    gw_u32(w, tiny_key(family, "feed_forward_length"), TINY_FFN);
    gw_u32(w, tiny_key(family, "attention.head_count"), TINY_HEADS);
    gw_u32(w, tiny_key(family, "attention.head_count_kv"), TINY_KV_HEADS);
    gw_f32(w, tiny_key(family, "attention.layer_norm_rms_epsilon"), 1e-5f);
    if (own_head_width) {
        gw_u32(w, tiny_key(family, "attention.key_length"), head_width);
        gw_u32(w, tiny_key(family, "attention.value_length"), head_width);
    }
    matrix(w, "token_embd.weight", TINY_WIDTH, TINY_VOCAB);
    hybrid_keys(w, family, layers);
    matrix(w, is(family, "lfm2") ? "token_embd_norm.weight" : "output_norm.weight", TINY_WIDTH, 1);
    if (!is(family, "gemma2") && !is(family, "gemma3")) matrix(w, "output.weight", TINY_WIDTH, TINY_VOCAB);
    for (uint32_t i = 0; i < layers; i++) layer(w, family, i, head_width);
}

int tiny_build(struct tiny *t, const struct gguf_writer *w, cohort_error *err) {
    *t = (struct tiny){0};
    size_t n = gw_finish(w, &t->bytes);
    int rc = model_file_from_memory(t->bytes, n, &t->file, err);
    return rc ? rc : model_build(t->file, TINY_VOCAB, &t->model, err);
}

void tiny_free(struct tiny *t) {
    model_free(t->model);
    model_file_close(t->file);
    free(t->bytes);
}
