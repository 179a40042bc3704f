/* Qwen 2 and 2.5: biases on query, key and value. */
#include "model/family.h"

const struct family family_qwen2 = {.architecture = "qwen2", .act = ACT_SILU, .qkv_biases = 1};
