/* Packing of weight matrices at load, reading them back in plain numbers, and dequantising a row of a file's matrix.
 * The layout is described in pack.h. Stateless; any thread, groups in parallel. */
#include "backend/cpu/pack.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/half.h"
#include "backend/cpu/unpack.h"

static const struct pack_form forms[DTYPE_END] = {
    /*             bits, scale_cols, has_min, zero, codebook, scales */
    [DTYPE_Q4_0] = {4, 32, 0, 8, NULL, SCALES_F16},
    [DTYPE_Q4_1] = {4, 32, 1, 0, NULL, SCALES_F16},
    [DTYPE_Q5_0] = {5, 32, 0, 16, NULL, SCALES_F16},
    [DTYPE_Q5_1] = {5, 32, 1, 0, NULL, SCALES_F16},
    [DTYPE_Q8_0] = {8, 32, 0, 128, NULL, SCALES_F16},
    [DTYPE_Q2_K] = {2, 16, 1, 0, NULL, SCALES_SUPER},
    [DTYPE_Q3_K] = {3, 16, 0, 4, NULL, SCALES_SUPER},
    [DTYPE_Q4_K] = {4, 32, 1, 0, NULL, SCALES_SUPER},
    [DTYPE_Q5_K] = {5, 32, 1, 0, NULL, SCALES_SUPER},
    [DTYPE_Q6_K] = {6, 16, 0, 32, NULL, SCALES_SUPER},
    [DTYPE_IQ4_NL] = {4, 32, 0, 0, unpack_codebook_iq4, SCALES_F16},
    [DTYPE_IQ4_XS] = {4, 32, 0, 0, unpack_codebook_iq4, SCALES_SUPER},
    [DTYPE_MXFP4] = {4, 32, 0, 0, unpack_codebook_mxfp4, SCALES_BF16},
};

static float bf16_to_float(uint16_t v) {
    uint32_t bits = (uint32_t)v << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static size_t round_up_64(size_t n) { return (n + 63) & ~(size_t)63; }

/* Bytes of a float type, 0 if it is none. */
static size_t float_bytes(enum dtype type) {
    return type == DTYPE_F32 ? 4 : type == DTYPE_F16 || type == DTYPE_BF16 ? 2 : 0;
}

/* Bytes of the scales of one superblock or block. */
static size_t scale_step(const struct pack_form *f) {
    size_t sets = (f->scales == SCALES_SUPER ? PACK_SUPER : 1) * PACK_BLOCK / f->scale_cols;
    size_t per_output = f->scales == SCALES_SUPER ? 2 + sets : 2 * sets;
    return PACK_OUTPUTS * per_output * (f->has_min ? 2 : 1);
}

int pack_plan(struct packed *p, enum dtype type, uint32_t rows, uint32_t cols) {
    assert(rows && cols);
    const struct dtype_info *info = dtype_info(type);
    memset(p, 0, sizeof *p);
    if (!dequant_supported(type)) return -1;
    if (cols % info->block_elements) return -2;
    p->type = type;
    p->rows = rows;
    p->cols = cols;
    p->groups = (rows - 1) / PACK_OUTPUTS + 1;
    if (float_bytes(type)) {
        p->kind = PACK_FLOAT;
        p->group_bytes = round_up_64((size_t)cols * PACK_OUTPUTS * float_bytes(type));
        return 0;
    }
    size_t blocks = cols / PACK_BLOCK;
    p->kind = PACK_INT;
    p->form = &forms[type];
    p->scale_step = scale_step(p->form);
    p->scale_bytes =
        round_up_64(cols / (p->form->scales == SCALES_SUPER ? info->block_elements : PACK_BLOCK) * p->scale_step);
    p->block_bytes = (size_t)64 * p->form->bits;
    p->group_bytes = p->scale_bytes + blocks * p->block_bytes;
    return 0;
}

/* The planes of a block from the widest: `width` bits, `first` the number of the code's lowest bit in the plane. A
 * code's low bits are in the widest plane. */
static int plane_width(int bits_left) { return bits_left >= 8 ? 8 : bits_left >= 4 ? 4 : bits_left >= 2 ? 2 : 1; }

/* Where the codes of slab s lie in a plane: vector and bit. Vectors of a plane number as many as its bits. */
static size_t plane_vector(int width, int slab) { return (size_t)(slab % width) * 64; }
static int plane_shift(int width, int slab) { return slab / width * width; }

static void put_codes(uint8_t *block, int bits, int output, const uint8_t code[PACK_BLOCK]) {
    for (int first = 0; first < bits;) {
        int width = plane_width(bits - first);
        for (int col = 0; col < PACK_BLOCK; col++) {
            uint8_t *byte = block + plane_vector(width, col / 4) + 4 * output + col % 4;
            int part = code[col] >> first & ((1 << width) - 1);
            *byte |= (uint8_t)(part << plane_shift(width, col / 4));
        }
        block += 64 * width;
        first += width;
    }
}

/* A block's codes by slab, plane by plane. */
static void get_codes(const uint8_t *block, int bits, uint8_t code[PACK_BLOCK * PACK_OUTPUTS]) {
    memset(code, 0, PACK_BLOCK * PACK_OUTPUTS);
    for (int first = 0; first < bits;) {
        int width = plane_width(bits - first), mask = (1 << width) - 1;
        for (int slab = 0; slab < PACK_BLOCK / 4; slab++) {
            const uint8_t *from = block + plane_vector(width, slab);
            uint8_t *to = code + slab * 4 * PACK_OUTPUTS;
            int shift = plane_shift(width, slab);
            for (int i = 0; i < 4 * PACK_OUTPUTS; i++) to[i] |= (uint8_t)((from[i] >> shift & mask) << first);
        }
        block += 64 * width;
        first += width;
    }
}

static void put_super_scales(const struct pack_form *f, uint8_t *at, int output, const struct unpacked *u) {
    int sets = PACK_SUPER * PACK_BLOCK / f->scale_cols;
    memcpy(at + 2 * output, &u->d, 2);
    at += 2 * PACK_OUTPUTS;
    if (f->has_min) {
        memcpy(at + 2 * output, &u->m, 2);
        at += 2 * PACK_OUTPUTS;
    }
    for (int i = 0; i < sets; i++) {
        at[i * PACK_OUTPUTS + output] = (uint8_t)u->factor[i];
        if (f->has_min) at[(sets + i) * PACK_OUTPUTS + output] = u->min_factor[i];
    }
}

static void put_block_scales(const struct pack_form *f, uint8_t *at, int output, const struct unpacked *u) {
    memcpy(at + 2 * output, &u->d, 2);
    if (f->has_min) memcpy(at + 2 * (PACK_OUTPUTS + output), &u->m, 2);
}

static void pack_int_output(const struct packed *p, const uint8_t *row, uint8_t *group, int output) {
    const struct dtype_info *info = dtype_info(p->type);
    unpack_fn unpack = unpack_find(p->type);
    uint32_t per_unit = info->block_elements / PACK_BLOCK, units = p->cols / info->block_elements;
    struct unpacked u;
    for (uint32_t i = 0; i < units; i++) {
        unpack(row + (size_t)i * info->block_bytes, &u);
        uint8_t *scales = group + i * p->scale_step;
        if (p->form->scales == SCALES_SUPER)
            put_super_scales(p->form, scales, output, &u);
        else
            put_block_scales(p->form, scales, output, &u);
        uint8_t *block = group + p->scale_bytes + (size_t)i * per_unit * p->block_bytes;
        for (uint32_t b = 0; b < per_unit; b++)
            put_codes(block + b * p->block_bytes, p->form->bits, output, u.code + b * PACK_BLOCK);
    }
}

static void pack_float_output(const struct packed *p, const uint8_t *row, uint8_t *group, int output) {
    size_t size = float_bytes(p->type);
    for (uint32_t col = 0; col < p->cols; col++)
        memcpy(group + ((size_t)col * PACK_OUTPUTS + (size_t)output) * size, row + col * size, size);
}

void pack_group(const struct packed *p, const void *file_data, uint32_t group) {
    assert(group < p->groups);
    const struct dtype_info *info = dtype_info(p->type);
    size_t row_bytes = (size_t)p->cols / info->block_elements * info->block_bytes;
    uint8_t *to = (uint8_t *)p->data + group * p->group_bytes;
    memset(to, 0, p->group_bytes);
    for (int i = 0; i < PACK_OUTPUTS; i++) {
        uint64_t row = (uint64_t)group * PACK_OUTPUTS + (uint64_t)i;
        if (row >= p->rows) break;
        const uint8_t *from = (const uint8_t *)file_data + row * row_bytes;
        if (p->kind == PACK_FLOAT)
            pack_float_output(p, from, to, i);
        else
            pack_int_output(p, from, to, i);
    }
}

static int code_weight(const struct pack_form *f, int code) { return f->codebook ? f->codebook[code] : code - f->zero; }

static float read_half(const uint8_t *at) {
    uint16_t v;
    memcpy(&v, at, 2);
    return half_to_float(v);
}

/* `d` is where the superblock of the block begins. */
static void read_super_scales(const struct pack_form *f, const uint8_t *d, uint32_t block, struct pack_values *out) {
    int sets = PACK_SUPER * PACK_BLOCK / f->scale_cols, per_block = PACK_BLOCK / f->scale_cols;
    const uint8_t *factors = d + 2 * PACK_OUTPUTS * (f->has_min ? 2 : 1);
    for (int g = 0; g < per_block; g++) {
        const uint8_t *factor = factors + ((int)(block % PACK_SUPER) * per_block + g) * PACK_OUTPUTS;
        for (int o = 0; o < PACK_OUTPUTS; o++) {
            out->scale[g][o] = read_half(d + 2 * o) * (float)(int8_t)factor[o];
            if (f->has_min)
                out->minimum[g][o] = read_half(d + 2 * (PACK_OUTPUTS + o)) * (float)factor[sets * PACK_OUTPUTS + o];
        }
    }
}

static void read_block_scales(const struct pack_form *f, const uint8_t *at, struct pack_values *out) {
    for (int o = 0; o < PACK_OUTPUTS; o++) {
        uint16_t d;
        memcpy(&d, at + 2 * o, 2);
        out->scale[0][o] = f->scales == SCALES_BF16 ? bf16_to_float(d) : half_to_float(d);
        if (f->has_min) out->minimum[0][o] = read_half(at + 2 * (PACK_OUTPUTS + o));
    }
}

void pack_read_block(const struct packed *p, uint32_t group, uint32_t block, struct pack_values *out) {
    const struct pack_form *f = p->form;
    const uint8_t *scales = (const uint8_t *)p->data + group * p->group_bytes;
    const uint8_t *codes = scales + p->scale_bytes + block * p->block_bytes;
    uint8_t code[PACK_BLOCK * PACK_OUTPUTS];
    get_codes(codes, f->bits, code);
    if (f->codebook)
        for (int i = 0; i < PACK_BLOCK * PACK_OUTPUTS; i++) code[i] = (uint8_t)f->codebook[code[i]];
    else
        for (int i = 0; i < PACK_BLOCK * PACK_OUTPUTS; i++) code[i] = (uint8_t)(code[i] - f->zero);
    for (int col = 0; col < PACK_BLOCK; col++)
        for (int o = 0; o < PACK_OUTPUTS; o++)
            out->weight[col][o] = (int8_t)code[col / 4 * 4 * PACK_OUTPUTS + 4 * o + col % 4];
    if (f->scales == SCALES_SUPER)
        read_super_scales(f, scales + block / PACK_SUPER * p->scale_step, block, out);
    else
        read_block_scales(f, scales + block * p->scale_step, out);
}

static float float_at(enum dtype type, const uint8_t *at) {
    float wide;
    uint16_t narrow;
    if (type == DTYPE_F32) {
        memcpy(&wide, at, 4);
        return wide;
    }
    memcpy(&narrow, at, 2);
    return type == DTYPE_F16 ? half_to_float(narrow) : bf16_to_float(narrow);
}

void pack_read_column(const struct packed *p, uint32_t group, uint32_t col, float out[PACK_OUTPUTS]) {
    size_t size = float_bytes(p->type);
    const uint8_t *at = (const uint8_t *)p->data + group * p->group_bytes + (size_t)col * PACK_OUTPUTS * size;
    for (size_t o = 0; o < PACK_OUTPUTS; o++) out[o] = float_at(p->type, at + o * size);
}

static void dequant_unit(enum dtype type, const struct unpacked *u, uint32_t columns, float *out) {
    const struct pack_form *f = &forms[type];
    for (uint32_t i = 0; i < columns; i++) {
        uint32_t set = i / f->scale_cols;
        float scale = f->scales == SCALES_BF16 ? bf16_to_float(u->d) : half_to_float(u->d);
        float minimum = f->has_min ? half_to_float(u->m) : 0;
        if (f->scales == SCALES_SUPER) {
            scale *= (float)u->factor[set];
            if (f->has_min) minimum *= (float)u->min_factor[set];
        }
        float value = (float)code_weight(f, u->code[i]) * scale;
        out[i] = f->has_min ? value + minimum : value;
    }
}

void dequant_row(enum dtype type, const void *file_data, uint32_t row, uint32_t cols, float *out) {
    assert(dequant_supported(type));
    const struct dtype_info *info = dtype_info(type);
    uint32_t units = cols / info->block_elements;
    const uint8_t *from = (const uint8_t *)file_data + (size_t)row * units * info->block_bytes;
    if (float_bytes(type)) {
        for (uint32_t i = 0; i < cols; i++) out[i] = float_at(type, from + i * info->block_bytes);
        return;
    }
    unpack_fn unpack = unpack_find(type);
    struct unpacked u;
    for (uint32_t i = 0; i < units; i++) {
        unpack(from + (size_t)i * info->block_bytes, &u);
        dequant_unit(type, &u, info->block_elements, out + (size_t)i * info->block_elements);
    }
}

int dequant_supported(enum dtype type) { return float_bytes(type) || unpack_find(type); }
