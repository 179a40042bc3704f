/* Gemma 2: scaled embeddings, norms on both sides of each half of a layer, capped scores and logits, every second layer
 * windowed. The files' norm weights already hold the 1 that the published formula adds. */
#include "model/family.h"

enum { LAYERS_27B = 46, WINDOW_DEFAULT = 4096 };

/* The largest size scales queries by its width per head instead of the heads' own width; files tell it only by its
 * number of layers. */
static int read_gemma2(const struct keys *keys, struct model_spec *spec) {
    if (spec->n_layers == LAYERS_27B) family_set_scale(spec, (double)(spec->width / spec->layers[0].attention.heads));
    int rc = family_read_softcaps(keys, spec);
    return rc ? rc : family_read_windows(keys, spec, WINDOW_DEFAULT, 2, 0);
}

const struct family family_gemma2 = {
    .architecture = "gemma2", .act = ACT_GELU_TANH, .post_norms = 1, .embed_scaled = 1, .read = read_gemma2};
