/* Qwen 3, dense: a norm over each query and key head, heads of a width of their own. */
#include "model/family.h"

const struct family family_qwen3 = {.architecture = "qwen3", .act = ACT_SILU, .head_norms = 1};
