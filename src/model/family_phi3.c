/* Phi 3 and 4 (mini): query, key and value in one matrix, gate and up in one, one window for all layers. */
#include "model/family.h"

static int read_phi3(const struct keys *keys, struct model_spec *spec) {
    return family_read_windows(keys, spec, 0, 0, 0);
}

const struct family family_phi3 = {.architecture = "phi3", .act = ACT_SILU, .gate_up_fused = 1, .read = read_phi3};
