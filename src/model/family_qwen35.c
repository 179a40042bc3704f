/* Qwen 3.5, dense: three layers of four are gated delta rules, the fourth is attention with an output gate. Rope comes
 * in sections for images; text has the same position in all of them, so a plain one over a part of each head is meant.
 * The files' value heads are ordered so that head h asks key head h % key heads, and ssm_a is -exp(A). */
#include "model/family.h"

enum { INTERVAL_DEFAULT = 4 };

static int read_recurrent(const struct keys *keys, const struct model_spec *spec, int recurrent[SPEC_LAYERS_MAX]) {
    uint32_t interval = INTERVAL_DEFAULT;
    int found, rc = keys_flags(keys, "attention.recurrent_layers", spec->n_layers, recurrent, &found);
    if (rc || found) return rc;
    rc = keys_u32(keys, "full_attention_interval", 1, SPEC_LAYERS_MAX, &interval);
    for (uint32_t i = 0; i < spec->n_layers; i++) recurrent[i] = (i + 1) % interval != 0;
    return rc;
}

static int read_delta(const struct keys *keys, struct spec_gated_delta *d) {
    uint32_t inner = 0;
    int rc = keys_need_u32(keys, "ssm.conv_kernel", 2, SPEC_TAPS_MAX, &d->taps);
    if (!rc) rc = keys_need_u32(keys, "ssm.state_size", 1, SPEC_HEAD_WIDTH_MAX, &d->key_width);
    if (!rc) rc = keys_need_u32(keys, "ssm.group_count", 1, SPEC_HEADS_MAX, &d->key_heads);
    if (!rc) rc = keys_need_u32(keys, "ssm.time_step_rank", 1, SPEC_HEADS_MAX, &d->heads);
    if (!rc) rc = keys_need_u32(keys, "ssm.inner_size", 1, SPEC_WIDTH_MAX, &inner);
    if (rc) return rc;
    if (d->heads % d->key_heads)
        return keys_error(keys, "ssm.group_count", "is %u, which does not divide time_step_rank %u", d->key_heads,
                          d->heads);
    d->value_width = inner / d->heads;
    if (inner % d->heads || d->value_width > SPEC_HEAD_WIDTH_MAX)
        return keys_error(keys, "ssm.inner_size", "is %u, which %u heads do not divide into at most %d each", inner,
                          d->heads, SPEC_HEAD_WIDTH_MAX);
    return 0;
}

static int read_qwen35(const struct keys *keys, struct model_spec *spec) {
    int recurrent[SPEC_LAYERS_MAX];
    struct spec_gated_delta delta = {0};
    int rc = read_recurrent(keys, spec, recurrent);
    if (!rc) rc = read_delta(keys, &delta);
    if (rc) return rc;
    for (uint32_t i = 0; i < spec->n_layers; i++) {
        if (!recurrent[i]) continue;
        spec->layers[i].mixer = SPEC_GATED_DELTA;
        spec->layers[i].delta = delta;
    }
    return 0;
}

const struct family family_qwen35 = {.architecture = "qwen35",
                                     .act = ACT_SILU,
                                     .head_norms = 1,
                                     .query_gated = 1,
                                     .ffn_norm = "post_attention_norm",
                                     .read = read_qwen35};
