/* Packed weights: what a matrix becomes at load. Outputs are taken in groups of PACK_OUTPUTS; inside a group lanes are
 * outputs, so that one row and a thousand rows run the same chains (docs/NUMERICS.md). The layout is the same at every
 * level, so the packers are plain C.
 *
 * A new weight type is one unpack step here: file block -> integers, scales and minima (struct pack_block) for one
 * output. */
#ifndef BACKEND_CPU_PACK_H
#define BACKEND_CPU_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum { PACK_OUTPUTS = 16, PACK_BLOCK = 32 };

enum pack_kind {
    PACK_FLOAT, /* fp32, F16 and BF16 widened exactly (layout in pack.c) */
    PACK_INT    /* integer weights, groups of 16 or 32 columns with a scale, maybe a minimum */
};

struct packed {
    enum pack_kind kind;
    enum dtype type; /* in the file */
    uint32_t rows, cols;
    uint32_t groups;     /* of outputs: ceil(rows / PACK_OUTPUTS) */
    uint32_t scale_cols; /* INT: 16 or 32 columns per scale */
    int has_min;
    size_t group_bytes;
    void *data; /* groups * group_bytes, 64-byte aligned; owned by who made it */
};

/* 0, or -1 if the type cannot be packed. Fills everything but data. cols must be a multiple of 32 for quantised types
 * (-2 if not). */
int pack_plan(struct packed *p, enum dtype type, uint32_t rows, uint32_t cols);
/* Packs output group `group` from the file's bytes of the whole matrix. Groups may be packed in parallel. Missing
 * outputs of the last group are zeros. */
void pack_group(const struct packed *p, const void *file_data, uint32_t group);
/* Dequantises row `row` of a matrix as in the file (docs/NUMERICS.md, Embedding, before the model's scale). */
void dequant_row(enum dtype type, const void *file_data, uint32_t row, uint32_t cols, float *out);
int dequant_supported(enum dtype type);

#endif
