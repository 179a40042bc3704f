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

/* Four words; what the compiler makes of it are plain vector instructions of whatever machine it compiles for. */
typedef uint32_t quad __attribute__((vector_size(16)));
enum { SLABS = PACK_BLOCK / 4, QUADS = PACK_OUTPUTS / 4 };

/* A block's codes on their way into planes: a word is the four columns of an output in a slab. */
struct slabs {
    quad word[SLABS][QUADS];
};

static quad load_quad(const uint8_t *at) {
    quad v;
    memcpy(&v, at, sizeof v);
    return v;
}

/* Sixteen columns, from `col` on, of four outputs: from a run of slabs for each output to four outputs for each slab.
 */
static void turn_codes(const struct unpacked u[4], size_t col, quad to[4]) {
    quad a = load_quad(u[0].code + col), b = load_quad(u[1].code + col);
    quad c = load_quad(u[2].code + col), d = load_quad(u[3].code + col);
    quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    to[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    to[1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    to[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    to[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/* Block `block` of all outputs of a unit. */
static void take_slabs(const struct unpacked u[PACK_OUTPUTS], uint32_t block, struct slabs *out) {
    for (int q = 0; q < QUADS; q++)
        for (int slab = 0; slab < SLABS; slab += 4) {
            quad turned[4];
            turn_codes(u + 4 * q, block * PACK_BLOCK + 4 * (size_t)slab, turned);
            for (int i = 0; i < 4; i++) out->word[slab + i][q] = turned[i];
        }
}

static void put_codes(uint8_t *block, int bits, const struct slabs *codes) {
    for (int first = 0; first < bits;) {
        int width = plane_width(bits - first);
        uint32_t mask = 0x01010101u * ((1u << width) - 1);
        for (int vector = 0; vector < width; vector++) {
            quad word[QUADS] = {0};
            for (int slab = vector; slab < SLABS; slab += width) {
                int shift = plane_shift(width, slab);
                for (int q = 0; q < QUADS; q++) word[q] |= (codes->word[slab][q] >> first & mask) << shift;
            }
            memcpy(block, word, sizeof word);
            block += sizeof word;
        }
        first += width;
    }
}

/* A block's codes by slab, plane by plane. */
static void get_codes(const uint8_t *block, int bits, uint8_t code[PACK_BLOCK * PACK_OUTPUTS]) {
    memset(code, 0, PACK_BLOCK * PACK_OUTPUTS);
    for (int first = 0; first < bits;) {
        int width = plane_width(bits - first), mask = (1 << width) - 1;
        for (int slab = 0; slab < SLABS; slab++) {
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

/* The rows of a group, and how many of them there are. */
struct rows {
    const uint8_t *first;
    size_t stride;
    int n;
};

/* Goes along all rows at once, unit by unit (a unit is a block of the file), so that the group is written in order. */
static void pack_int_group(const struct packed *p, const struct rows *rows, uint8_t *group) {
    const struct dtype_info *info = dtype_info(p->type);
    unpack_fn unpack = unpack_find(p->type);
    uint32_t per_unit = info->block_elements / PACK_BLOCK, units = p->cols / info->block_elements;
    uint8_t *scales = group, *block = group + p->scale_bytes;
    struct unpacked u[PACK_OUTPUTS];
    struct slabs codes;
    memset(u + rows->n, 0, (size_t)(PACK_OUTPUTS - rows->n) * sizeof *u);
    for (uint32_t i = 0; i < units; i++, scales += p->scale_step) {
        for (int o = 0; o < rows->n; o++) {
            const uint8_t *unit = rows->first + (size_t)o * rows->stride + (size_t)i * info->block_bytes;
            __builtin_prefetch((const void *)((uintptr_t)unit + PACK_OUTPUTS * rows->stride)); /* the next group's */
            unpack(unit, &u[o]);
        }
        for (int o = 0; o < PACK_OUTPUTS; o++)
            if (p->form->scales == SCALES_SUPER)
                put_super_scales(p->form, scales, o, &u[o]);
            else
                put_block_scales(p->form, scales, o, &u[o]);
        for (uint32_t b = 0; b < per_unit; b++, block += p->block_bytes) {
            take_slabs(u, b, &codes);
            put_codes(block, p->form->bits, &codes);
        }
    }
    memset(scales, 0, (size_t)(group + p->scale_bytes - scales));
}

static void pack_float_group(const struct packed *p, const struct rows *rows, uint8_t *group) {
    size_t size = float_bytes(p->type), used = (size_t)p->cols * PACK_OUTPUTS * size;
    if (rows->n < PACK_OUTPUTS) memset(group, 0, used);
    memset(group + used, 0, p->group_bytes - used);
    const uint8_t *from = rows->first;
    for (uint32_t col = 0; col < p->cols; col++, from += size, group += PACK_OUTPUTS * size)
        if (size == 2)
            for (int o = 0; o < rows->n; o++) memcpy(group + 2 * o, from + (size_t)o * rows->stride, 2);
        else
            for (int o = 0; o < rows->n; o++) memcpy(group + 4 * o, from + (size_t)o * rows->stride, 4);
}

size_t pack_row_bytes(const struct packed *p) {
    const struct dtype_info *info = dtype_info(p->type);
    return (size_t)p->cols / info->block_elements * info->block_bytes;
}

void pack_group(const struct packed *p, const void *file_data, uint32_t group) {
    assert(group < p->groups);
    size_t stride = pack_row_bytes(p);
    uint64_t first = (uint64_t)group * PACK_OUTPUTS, left = p->rows - first;
    struct rows rows = {(const uint8_t *)file_data + first * stride, stride,
                        left < PACK_OUTPUTS ? (int)left : PACK_OUTPUTS};
    uint8_t *to = (uint8_t *)p->data + group * p->group_bytes;
    if (p->kind == PACK_FLOAT)
        pack_float_group(p, &rows, to);
    else
        pack_int_group(p, &rows, to);
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
    for (uint32_t first = 0; first < columns; first += f->scale_cols) {
        uint32_t set = first / f->scale_cols;
        float scale = f->scales == SCALES_BF16 ? bf16_to_float(u->d) : half_to_float(u->d);
        float minimum = f->has_min ? half_to_float(u->m) : 0;
        if (f->scales == SCALES_SUPER) {
            scale *= (float)u->factor[set];
            if (f->has_min) minimum *= (float)u->min_factor[set];
        }
        for (uint32_t i = first; i < first + f->scale_cols; i++) {
            float value = (float)code_weight(f, u->code[i]) * scale;
            out[i] = f->has_min ? value + minimum : value;
        }
    }
}

/* One output's codes of a block. */
static void get_output_codes(const uint8_t *block, int bits, uint32_t output, uint8_t code[PACK_BLOCK]) {
    uint32_t word[SLABS] = {0};
    for (int first = 0; first < bits;) {
        int width = plane_width(bits - first);
        uint32_t mask = 0x01010101u * ((1u << width) - 1), from;
        for (int slab = 0; slab < SLABS; slab++) {
            memcpy(&from, block + plane_vector(width, slab) + 4 * output, sizeof from);
            word[slab] |= (from >> plane_shift(width, slab) & mask) << first;
        }
        block += 64 * width;
        first += width;
    }
    memcpy(code, word, PACK_BLOCK);
}

/* One output's scales of a block or superblock, as unpack found them. */
static void get_output_scales(const struct pack_form *f, const uint8_t *at, uint32_t output, struct unpacked *u) {
    memcpy(&u->d, at + 2 * output, 2);
    at += 2 * PACK_OUTPUTS;
    if (f->has_min) {
        memcpy(&u->m, at + 2 * output, 2);
        at += 2 * PACK_OUTPUTS;
    }
    int sets = f->scales == SCALES_SUPER ? PACK_SUPER * PACK_BLOCK / f->scale_cols : 0;
    for (int i = 0; i < sets; i++) {
        u->factor[i] = (int8_t)at[(uint32_t)i * PACK_OUTPUTS + output];
        if (f->has_min) u->min_factor[i] = at[(uint32_t)(sets + i) * PACK_OUTPUTS + output];
    }
}

void pack_read_row(const struct packed *p, uint32_t row, float *out) {
    assert(row < p->rows);
    const struct dtype_info *info = dtype_info(p->type);
    const uint8_t *group = (const uint8_t *)p->data + row / PACK_OUTPUTS * p->group_bytes;
    uint32_t output = row % PACK_OUTPUTS, units = p->cols / info->block_elements;
    if (p->kind == PACK_FLOAT) {
        size_t size = float_bytes(p->type);
        for (uint32_t i = 0; i < p->cols; i++)
            out[i] = float_at(p->type, group + ((size_t)i * PACK_OUTPUTS + output) * size);
        return;
    }
    const uint8_t *block = group + p->scale_bytes;
    struct unpacked u;
    for (uint32_t i = 0; i < units; i++) {
        get_output_scales(p->form, group + i * p->scale_step, output, &u);
        for (uint32_t at = 0; at < info->block_elements; at += PACK_BLOCK, block += p->block_bytes)
            get_output_codes(block, p->form->bits, output, u.code + at);
        dequant_unit(p->type, &u, info->block_elements, out + (size_t)i * info->block_elements);
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
