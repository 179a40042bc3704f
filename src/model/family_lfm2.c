/* LFM2, dense: short convolutions and, where a layer has key/value heads, attention with norms over each query and key
 * head. The files call the last norm token_embd_norm. */
#include "model/family.h"

static int read_lfm2(const struct keys *keys, struct model_spec *spec) {
    uint32_t taps = 0;
    int rc = family_read_windows(keys, spec, 0, 0, 0);
    if (!rc) rc = keys_need_u32(keys, "shortconv.l_cache", 2, SPEC_TAPS_MAX, &taps);
    if (rc) return rc;
    for (uint32_t i = 0; i < spec->n_layers; i++) {
        if (spec->layers[i].attention.kv_heads) continue;
        spec->layers[i].mixer = SPEC_SHORT_CONV;
        spec->layers[i].conv = (struct spec_short_conv){.taps = taps};
    }
    return 0;
}

const struct family family_lfm2 = {.architecture = "lfm2",
                                   .act = ACT_SILU,
                                   .head_norms = 1,
                                   .heads_may_lack = 1,
                                   .output_norm = "token_embd_norm.weight",
                                   .read = read_lfm2};
