/* Gemma 3, text: as Gemma 2 but with norms over query and key heads in place of capped scores, every sixth layer global
 * and a rope base of their own for the windowed layers, which no scaling touches. */
#include "model/family.h"

#include "model/rope.h"

enum { LAYERS_27B = 62 };

static int read_gemma3(const struct keys *keys, struct model_spec *spec) {
    if (spec->n_layers == LAYERS_27B) family_set_scale(spec, (double)(spec->width / spec->layers[0].attention.heads));
    struct spec_rope *local = &spec->ropes[1];
    *local = (struct spec_rope){.pairs = spec->ropes[0].pairs, .base = 10000, .factor = 1, .magnitude = 1};
    spec->n_ropes = 2;
    int rc = keys_f64(keys, "rope.freq_base_swa", 1.0001, ROPE_BASE_MAX, &local->base);
    if (!rc) rc = family_read_softcaps(keys, spec);
    return rc ? rc : family_read_windows(keys, spec, 0, 6, 1);
}

const struct family family_gemma3 = {.architecture = "gemma3",
                                     .act = ACT_GELU_TANH,
                                     .head_norms = 1,
                                     .post_norms = 1,
                                     .embed_scaled = 1,
                                     .read = read_gemma3};
