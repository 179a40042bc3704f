/* Packed weights: what a matrix becomes at load. Outputs are taken in groups of PACK_OUTPUTS; inside a group lanes are
 * outputs, so that one row and a thousand rows run the same chains (docs/NUMERICS.md). The layout is the same at every
 * level, so the packers are plain C. It keeps the bits per weight of the file: a single row's speed is that of memory.
 *
 * A new weight type is one unpack step (unpack.h), one line of the table in pack.c, and its places in matmul_avx2.c and
 * matmul_neon.c (matmul_vnni.h asks the table, and lists the forms that there are). */
#ifndef BACKEND_CPU_PACK_H
#define BACKEND_CPU_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum { PACK_OUTPUTS = 16, PACK_BLOCK = 32, PACK_SUPER = 8 /* blocks in a superblock */ };

enum pack_kind {
    PACK_FLOAT, /* [cols][16 outputs], F32, F16 or BF16 as in the file: the kernels widen them, exactly */
    PACK_INT    /* integer weights, groups of 16 or 32 columns with a scale, maybe a minimum; layout below */
};

/* Integer weights. An output group is a section of scales, then a section of codes, each a multiple of 64 bytes.
 *
 * Codes, per block of 32 columns, are `bits` wide and cut into planes of 4, 2, 1 (or 8) bits, the low bits of a code in
 * the widest plane; the planes of a block follow each other, widest first. A plane is made of 64-byte vectors. Byte
 * 4 * output + column % 4 of a vector belongs to slab column / 4 (0..7) of the block:
 *     8 bits  8 vectors  vector s: slab s
 *     4 bits  4 vectors  vector v: slab v in the low four bits, slab v + 4 in the high four
 *     2 bits  2 vectors  vector v: slab v + 2 * j in bits 2j and 2j + 1
 *     1 bit   1 vector   slab j in bit j
 * A slab is thus 16 outputs of four columns: what one vpdpbusd takes.
 *
 * Scales, one set of sixteen per scale group:
 *     SCALES_F16    f16 scales; f16 minima follow each set if the type has any
 *     SCALES_BF16   bf16 scales
 *     SCALES_SUPER  per superblock: 16 f16 d, 16 f16 -dmin (if minima), then int8 factors by scale group, then those of
 *                   the minima (0 .. 63). s = d * factor, m = -dmin * factor, both exact */
enum pack_scales { SCALES_F16, SCALES_BF16, SCALES_SUPER };

struct pack_form {
    uint8_t bits;           /* of a code: 2, 3, 4, 5, 6 or 8 */
    uint8_t scale_cols;     /* 16 or 32 columns per scale */
    uint8_t has_min;        /* one minimum per scale group */
    uint8_t zero;           /* the weight is code - zero ... */
    const int8_t *codebook; /* ... or, if there is one, codebook[code] */
    enum pack_scales scales;
};

struct packed {
    enum pack_kind kind;
    enum dtype type; /* in the file */
    uint32_t rows, cols;
    uint32_t groups;              /* of outputs: ceil(rows / PACK_OUTPUTS) */
    const struct pack_form *form; /* INT; a constant */
    size_t scale_bytes;           /* INT: the section of scales ... */
    size_t scale_step;            /* ... and in it those of one block, or of one superblock */
    size_t block_bytes;           /* INT: the planes of one block */
    size_t group_bytes;
    void *data; /* groups * group_bytes, 64-byte aligned; owned by who made it */
};

/* 0, or -1 if the type cannot be packed, -2 if cols is not a multiple of the type's block. Fills everything but data.
 * rows * cols is below 2^47, both at least 1. */
int pack_plan(struct packed *p, enum dtype type, uint32_t rows, uint32_t cols);
size_t pack_row_bytes(const struct packed *p); /* of one row in the file */
/* Packs output group `group` from the file's bytes of the whole matrix (any alignment). Groups may be packed in
 * parallel. Missing outputs of the last group get scale 0. */
void pack_group(const struct packed *p, const void *file_data, uint32_t group);

/* One block of an output group in plain numbers, lanes last. scale[g] and minimum[g]: of scale group g of the block. */
struct pack_values {
    int8_t weight[PACK_BLOCK][PACK_OUTPUTS];
    float scale[2][PACK_OUTPUTS], minimum[2][PACK_OUTPUTS];
};
void pack_read_block(const struct packed *p, uint32_t group, uint32_t block, struct pack_values *out);
/* Float weights: column `col` of a group, widened. */
void pack_read_column(const struct packed *p, uint32_t group, uint32_t col, float out[PACK_OUTPUTS]);

/* Row `row` of a packed matrix, as dequant_row makes it from the file's bytes. */
void pack_read_row(const struct packed *p, uint32_t row, float *out);

/* Dequantises row `row` of a matrix as in the file (docs/NUMERICS.md, Embedding, before the model's scale). */
void dequant_row(enum dtype type, const void *file_data, uint32_t row, uint32_t cols, float *out);
int dequant_supported(enum dtype type);

#endif
