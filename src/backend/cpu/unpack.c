/* The quantised types' blocks as they are in files (ggml's layouts), unpacked to codes, scales and factors: one
 * function per type, plain C, any thread. Blocks have any alignment. */
#include "backend/cpu/unpack.h"

#include <string.h>

const int8_t unpack_codebook_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* Twice the E2M1 values; the scale is halved instead. */
const int8_t unpack_codebook_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static uint16_t read_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static uint16_t half_negated(uint16_t half) { return half ^ 0x8000; }

/* Sixteen codes at a time, one in each byte: what the compiler makes of it are plain vector instructions of whatever
 * machine it compiles for. */
typedef uint64_t codes __attribute__((vector_size(16)));

static codes load_codes(const uint8_t *p) {
    codes v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void store_codes(uint8_t *p, codes v) { memcpy(p, &v, sizeof v); }

static uint64_t each_byte(uint8_t v) { return UINT64_C(0x0101010101010101) * v; }

/* n bytes hold n codes in their low halves, then n in their high halves; n is a multiple of 16. */
static inline void unpack_nibbles(const uint8_t *bytes, int n, uint8_t *code) {
    for (int i = 0; i < n; i += 16) {
        codes both = load_codes(bytes + i);
        store_codes(code + i, both & each_byte(15));
        store_codes(code + i + n, both >> 4 & each_byte(15));
    }
}

/* Bit i of byte i / 8 at `high` is bit 4 of code i: a byte's bits are put one in each of eight bytes, and moved. */
static void add_fifth_bits(const uint8_t *high, uint8_t *code) {
    for (int i = 0; i < 4; i += 2) {
        codes apart = (codes){each_byte(high[i]), each_byte(high[i + 1])} & UINT64_C(0x8040201008040201);
        codes ones = (apart + each_byte(0x7f)) >> 7 & each_byte(1); /* no byte is above 0x80: nothing carries */
        store_codes(code + 8 * i, load_codes(code + 8 * i) | ones << 4);
    }
}

/* Bits [bit, bit + width) of the bytes at `high` become bits [to, to + width) of 32 codes. */
static inline void add_high_bits(const uint8_t *high, int bit, int width, int to, uint8_t *code) {
    for (int i = 0; i < 32; i += 16) {
        codes part = load_codes(high + i) >> bit & each_byte((uint8_t)((1 << width) - 1));
        store_codes(code + i, load_codes(code + i) | part << to);
    }
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
    add_fifth_bits(b + 2, out->code);
}

static void unpack_q5_1(const uint8_t *b, struct unpacked *out) {
    out->d = read_u16(b);
    out->m = read_u16(b + 2);
    unpack_nibbles(b + 8, 16, out->code);
    add_fifth_bits(b + 4, out->code);
}

static void unpack_q8_0(const uint8_t *b, struct unpacked *out) {
    out->d = read_u16(b);
    for (int i = 0; i < 32; i += 16)
        store_codes(out->code + i, load_codes(b + 2 + i) ^ each_byte(0x80)); /* int8 + 128 */
}

static void unpack_mxfp4(const uint8_t *b, struct unpacked *out) {
    /* 2^(e - 128) as bf16; the two smallest are subnormal. */
    out->d = b[0] < 2 ? (uint16_t)(0x20 << b[0]) : (uint16_t)((b[0] - 1) << 7);
    unpack_nibbles(b + 1, 16, out->code);
}

/* 64 bytes hold 256 two-bit codes: a byte has the same column of four consecutive blocks of 32. */
static void unpack_pairs(const uint8_t *bytes, uint8_t *code) {
    for (int i = 0; i < 256; i += 16)
        store_codes(code + i, load_codes(bytes + i / 128 * 32 + i % 32) >> i / 32 % 4 * 2 & each_byte(3));
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
    for (int i = 0; i < 8; i++) add_high_bits(high, i, 1, 2, out->code + 32 * i);
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
    for (int i = 0; i < 8; i++) add_high_bits(high, i, 1, 4, out->code + 32 * i);
}

static void unpack_q6_k(const uint8_t *b, struct unpacked *out) {
    const uint8_t *high = b + 128;
    for (int i = 0; i < 2; i++) unpack_nibbles(b + 64 * i, 64, out->code + 128 * i);
    for (int i = 0; i < 8; i++) add_high_bits(high + i / 4 * 32, i % 4 * 2, 2, 4, out->code + 32 * i);
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
