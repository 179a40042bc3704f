/* The quantised types' blocks as they are in files (ggml's layouts), unpacked to codes, scales and factors: one
 * function per type, plain C, any thread. Blocks have any alignment. */
#include "backend/cpu/unpack.h"

#include <string.h>

const int8_t unpack_codebook_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* Twice the E2M1 values; the scale is halved instead. */
const int8_t unpack_codebook_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static uint16_t read_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static uint32_t read_u32(const uint8_t *p) { return read_u16(p) | (uint32_t)read_u16(p + 2) << 16; }

static uint16_t half_negated(uint16_t half) { return half ^ 0x8000; }

/* n bytes hold n codes in their low halves, then n in their high halves. */
static void unpack_nibbles(const uint8_t *bytes, int n, uint8_t *code) {
    for (int i = 0; i < n; i++) {
        code[i] = bytes[i] & 15;
        code[i + n] = bytes[i] >> 4;
    }
}

/* Bit i of `high` is bit 4 of code i. */
static void add_fifth_bits(uint32_t high, uint8_t *code) {
    for (int i = 0; i < 32; i++) code[i] |= (uint8_t)((high >> i & 1) << 4);
}

static void unpack_q4_0(const uint8_t *b, struct unpacked *out) {
    out->d = read_u16(b);
    unpack_nibbles(b + 2, 16, out->code);
}

static void unpack_q4_1(const uint8_t *b, struct unpacked *out) {
    out->d = read_u16(b);
    out->m = read_u16(b + 2);
    unpack_nibbles(b + 4, 16, out->code);
}

static void unpack_q5_0(const uint8_t *b, struct unpacked *out) {
    out->d = read_u16(b);
    unpack_nibbles(b + 6, 16, out->code);
    add_fifth_bits(read_u32(b + 2), out->code);
}

static void unpack_q5_1(const uint8_t *b, struct unpacked *out) {
    out->d = read_u16(b);
    out->m = read_u16(b + 2);
    unpack_nibbles(b + 8, 16, out->code);
    add_fifth_bits(read_u32(b + 4), out->code);
}

static void unpack_q8_0(const uint8_t *b, struct unpacked *out) {
    out->d = read_u16(b);
    for (int i = 0; i < 32; i++) out->code[i] = b[2 + i] ^ 0x80; /* int8 + 128 */
}

static void unpack_mxfp4(const uint8_t *b, struct unpacked *out) {
    /* 2^(e - 128) as bf16; the two smallest are subnormal. */
    out->d = b[0] < 2 ? (uint16_t)(0x20 << b[0]) : (uint16_t)((b[0] - 1) << 7);
    unpack_nibbles(b + 1, 16, out->code);
}

/* 64 bytes hold 256 two-bit codes: a byte has the same column of four consecutive blocks of 32. */
static void unpack_pairs(const uint8_t *bytes, uint8_t *code) {
    for (int i = 0; i < 256; i++) code[i] = bytes[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
}

static void unpack_q2_k(const uint8_t *b, struct unpacked *out) {
    for (int i = 0; i < 16; i++) {
        out->factor[i] = b[i] & 15;
        out->min_factor[i] = b[i] >> 4;
    }
    unpack_pairs(b + 16, out->code);
    out->d = read_u16(b + 80);
    out->m = half_negated(read_u16(b + 82));
}

static void unpack_q3_k(const uint8_t *b, struct unpacked *out) {
    const uint8_t *high = b, *factors = b + 96;
    unpack_pairs(b + 32, out->code);
    for (int i = 0; i < 256; i++) out->code[i] |= (uint8_t)((high[i % 32] >> i / 32 & 1) << 2);
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? factors[i] & 15 : factors[i - 8] >> 4;
        out->factor[i] = (int8_t)((low | (factors[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32);
    }
    out->d = read_u16(b + 108);
}

/* Eight 6-bit factors and eight 6-bit factors of minima in 12 bytes. */
static void unpack_factors_k(const uint8_t *b, struct unpacked *out) {
    for (int i = 0; i < 4; i++) {
        out->factor[i] = b[i] & 63;
        out->min_factor[i] = b[i + 4] & 63;
        out->factor[i + 4] = (int8_t)((b[i + 8] & 15) | b[i] >> 6 << 4);
        out->min_factor[i + 4] = (uint8_t)(b[i + 8] >> 4 | b[i + 4] >> 6 << 4);
    }
}

static void unpack_q4_k(const uint8_t *b, struct unpacked *out) {
    out->d = read_u16(b);
    out->m = half_negated(read_u16(b + 2));
    unpack_factors_k(b + 4, out);
    for (int i = 0; i < 4; i++) unpack_nibbles(b + 16 + 32 * i, 32, out->code + 64 * i);
}

static void unpack_q5_k(const uint8_t *b, struct unpacked *out) {
    const uint8_t *high = b + 16;
    out->d = read_u16(b);
    out->m = half_negated(read_u16(b + 2));
    unpack_factors_k(b + 4, out);
    for (int i = 0; i < 4; i++) unpack_nibbles(b + 48 + 32 * i, 32, out->code + 64 * i);
    for (int i = 0; i < 256; i++) out->code[i] |= (uint8_t)((high[i % 32] >> i / 32 & 1) << 4);
}

static void unpack_q6_k(const uint8_t *b, struct unpacked *out) {
    const uint8_t *high = b + 128;
    for (int i = 0; i < 2; i++) unpack_nibbles(b + 64 * i, 64, out->code + 128 * i);
    for (int i = 0; i < 256; i++) out->code[i] |= (uint8_t)((high[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3) << 4);
    memcpy(out->factor, b + 192, 16);
    out->d = read_u16(b + 208);
}

static void unpack_iq4_xs(const uint8_t *b, struct unpacked *out) {
    uint16_t high = read_u16(b + 2);
    out->d = read_u16(b);
    for (int i = 0; i < 8; i++) {
        int low = b[4 + i / 2] >> i % 2 * 4 & 15;
        out->factor[i] = (int8_t)((low | (high >> 2 * i & 3) << 4) - 32);
        unpack_nibbles(b + 8 + 16 * i, 16, out->code + 32 * i);
    }
}

unpack_fn unpack_find(enum dtype type) {
    switch (type) {
    case DTYPE_Q4_0:
        return unpack_q4_0;
    case DTYPE_Q4_1:
        return unpack_q4_1;
    case DTYPE_Q5_0:
        return unpack_q5_0;
    case DTYPE_Q5_1:
        return unpack_q5_1;
    case DTYPE_Q8_0:
        return unpack_q8_0;
    case DTYPE_Q2_K:
        return unpack_q2_k;
    case DTYPE_Q3_K:
        return unpack_q3_k;
    case DTYPE_Q4_K:
        return unpack_q4_k;
    case DTYPE_Q5_K:
        return unpack_q5_k;
    case DTYPE_Q6_K:
        return unpack_q6_k;
    case DTYPE_IQ4_NL:
        return unpack_q4_0; /* the same layout; the codes index a table */
    case DTYPE_IQ4_XS:
        return unpack_iq4_xs;
    case DTYPE_MXFP4:
        return unpack_mxfp4;
    default:
        return NULL;
    }
}
