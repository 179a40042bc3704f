/* Llama 1 to 3 and what shares its files' architecture (Mistral, SmolLM2, Yi, ...). The converters reorder the query
 * and key rows so that a rotated pair is two neighbours. Llama 3's rope scaling comes as a tensor of divisors
 * (tensors.c). */
#include "model/family.h"

/* Mistral's first version had one window for all layers; where a file says so it is kept. */
static int read_llama(const struct keys *keys, struct model_spec *spec) {
    return family_read_windows(keys, spec, 0, 0, 0);
}

const struct family family_llama = {
    .architecture = "llama", .act = ACT_SILU, .rope_interleaved = 1, .read = read_llama};
