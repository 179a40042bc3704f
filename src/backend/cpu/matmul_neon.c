/* Matrix products for NEON with dot products (Armv8.2 DotProd): the bits of matmul_ref.c. Reentrant, no allocation.
 *
 * SDOT adds four products of signed bytes to an int32, exactly. Its by-element form takes the activations' four bytes
 * from any quarter of a register, so that the packed layout fits as it is: a quarter of a slab is four outputs of four
 * columns, and one register of activations serves four slabs.
 *
 * The matrix instructions of I8MM are not used. SMMLA multiplies two outputs of eight columns by two rows: codes would
 * have to be interleaved by pairs of slabs, activations by pairs of rows, the 2 x 2 results be taken apart again for
 * the chains, whose lanes are outputs, and an odd row would waste half of each. All of that to pay only where many rows
 * share a panel; and USDOT would save no more than the flipping of a bit in Q8_0.
 *
 * Few rows are multiplied by the packed codes themselves. The codes are signed bytes as they are, 0 .. 63; a sum starts
 * at -zero * (sum of q), so that it is that of the weights code - zero. More rows share a panel of true weights. */
#include "backend/cpu/lanes_neon.h"

#include "backend/cpu/act.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/unpack.h"

/* Three rows: twelve registers of chains, twelve of sums, four of codes, three of activations. */
enum { PASS_GROUPS = 1, INT_GROUPS = 1, INT_ROWS = 3, LONE_FETCHES_BYTES = 1 };

struct panel_codes {
    const uint8_t *direct; /* the packed codes, if tiles read those; else NULL and what follows is filled: */
    _Alignas(64) int8_t weight[PACK_SUPER][8][64];
};

LANES_INLINE lanes lanes_load_bf16(const uint16_t *p) {
    uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
    return (lanes){
        vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(low, 16)),
        vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(high), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(high, 16))};
}

/* Sixteen factors of scales or minima. */
LANES_INLINE lanes lanes_load_factor(const uint8_t *p) {
    int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(p));
    int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_high_s8(v);
    return (lanes){vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                   vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}

#include "backend/cpu/matmul_direct.h"

/* ---- Unpacking ---- */

/* A quarter of a slab of a plane of `width` bits (the layout in pack.h), moved to bit `to`. */
LANES_INLINE uint8x16_t plane_quarter(const uint8_t *plane, int width, int slab, int quarter, int to) {
    int from = slab / width * width, mask = (1 << width) - 1;
    uint8x16_t v = vld1q_u8(plane + 64 * (slab % width) + 16 * quarter);
    if (from > to) v = v >> (from - to);
    if (from < to) v = v << (to - from);
    if (from - to + width == 8) return v; /* the shift has left nothing else */
    return vandq_u8(v, vdupq_n_u8((uint8_t)(mask << to)));
}

/* A quarter of a slab of a packed block: weights where the source says what they are, else codes. */
LANES_INLINE int8x16_t codes_quarter(const uint8_t *block, int source, int slab, int quarter) {
    uint8x16_t v;
    if (source == BITS_8) {
        v = veorq_u8(vld1q_u8(block + 64 * slab + 16 * quarter), vdupq_n_u8(128));
    } else if (source == BITS_2 || source == BITS_3) {
        v = plane_quarter(block, 2, slab, quarter, 0);
        if (source == BITS_3) v = vorrq_u8(v, plane_quarter(block + 128, 1, slab, quarter, 2));
    } else {
        v = plane_quarter(block, 4, slab, quarter, 0);
        if (source == BITS_5) v = vorrq_u8(v, plane_quarter(block + 256, 1, slab, quarter, 4));
        if (source == BITS_6) v = vorrq_u8(v, plane_quarter(block + 256, 2, slab, quarter, 4));
    }
    if (source == BITS_4_IQ4) return vqtbl1q_s8(vld1q_s8(unpack_codebook_iq4), v);
    if (source == BITS_4_MXFP4) return vqtbl1q_s8(vld1q_s8(unpack_codebook_mxfp4), v);
    return vreinterpretq_s8_u8(v);
}

LANES_INLINE void unpack(struct panel *p, const uint8_t *from, uint32_t blocks, int source, int zero) {
    for (uint32_t b = 0; b < blocks; b++, from += source_bytes(source)) {
        UNROLL for (int s = 0; s < 8; s++) {
            UNROLL for (int i = 0; i < 4; i++) {
                int8x16_t v = codes_quarter(from, source, s, i);
                if (zero) v = vsubq_s8(v, vdupq_n_s8((int8_t)zero));
                vst1q_s8(p->codes.weight[b][s] + 16 * i, v);
            }
        }
    }
}

/* ---- Products ---- */

LANES_INLINE int8x16_t slab_quarter(const struct tile *t, int source, const uint8_t *block, uint32_t b, int slab,
                                    int quarter) {
    return source ? codes_quarter(block, source, slab, quarter)
                  : vld1q_s8(t->panel->codes.weight[b][slab] + 16 * quarter);
}

/* float(sum of q) of a part, exactly. */
LANES_INLINE float q_sum(const struct act_block *a, int part) {
    return (float)(-a->start[part] / 128); /* divided as an integer: a sum of zero stays +0, as the reference has it */
}

LANES_INLINE int32x4_t dot(int32x4_t sum, int8x16_t w, int8x16_t q, int element) {
    switch (element) { /* the instruction names it */
    case 0:
        return vdotq_laneq_s32(sum, w, q, 0);
    case 1:
        return vdotq_laneq_s32(sum, w, q, 1);
    case 2:
        return vdotq_laneq_s32(sum, w, q, 2);
    default:
        return vdotq_laneq_s32(sum, w, q, 3);
    }
}

/* Adds a scale group to the chains: slabs [first, end), whose sums of q are those of `part`. */
TILE_INLINE void add_scale_group(const struct tile *t, int R, int source, const uint8_t *block, uint32_t b, int first,
                                 int end, int part, int zero, const float *scales, float32x4_t acc[][4]) {
    int32x4_t sum[INT_ROWS][4];
    int8x16_t q[INT_ROWS];
    UNROLL for (int r = 0; r < R; r++) {
        int32x4_t start = vdupq_n_s32(zero ? act_at(t, r, b)->start[part] / 128 * zero : 0);
        UNROLL for (int i = 0; i < 4; i++) sum[r][i] = start;
    }
    UNROLL for (int s = first; s < end; s++) {
        int8x16_t w[4];
        UNROLL for (int i = 0; i < 4; i++) w[i] = slab_quarter(t, source, block, b, s, i);
        UNROLL for (int r = 0; r < R; r++) {
            if (s % 4 == 0) q[r] = vld1q_s8(act_at(t, r, b)->q + 4 * s);
            UNROLL for (int i = 0; i < 4; i++) sum[r][i] = dot(sum[r][i], w[i], q[r], s % 4);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        float32x4_t d = vdupq_n_f32(act_at(t, r, b)->d);
        UNROLL for (int i = 0; i < 4; i++) acc[r][i] =
            vfmaq_f32(acc[r][i], vcvtq_f32_s32(sum[r][i]), vmulq_f32(vld1q_f32(scales + 4 * i), d));
    }
}

TILE_INLINE void tile(const struct tile *t, int R, int source, int cols, int zero, int has_min) {
    uint32_t sets = (uint32_t)(PACK_BLOCK / cols);
    float32x4_t acc[INT_ROWS][4];
    UNROLL for (int i = 0; i < 4 * R; i++) acc[i / 4][i % 4] = vld1q_f32(TILE_FROM(t, i / 4, 0) + i % 4 * 4);
    for (uint32_t b = 0; b < t->blocks; b++) {
        const uint8_t *block = source ? t->panel->codes.direct + b * source_bytes(source) : NULL;
        tile_prefetch(t, 0, b);
        UNROLL for (int g = 0; g < PACK_BLOCK / cols; g++) {
            add_scale_group(t, R, source, block, b, g * cols / 4, (g + 1) * cols / 4, sets == 1 ? 0 : 1 + g, zero,
                            t->panel->scale[b * sets + (uint32_t)g], acc);
        }
        if (!has_min) continue;
        UNROLL for (int g = 0; g < PACK_BLOCK / cols; g++) {
            const float *minimum = t->panel->minimum[b * sets + (uint32_t)g];
            UNROLL for (int r = 0; r < R; r++) {
                const struct act_block *a = act_at(t, r, b);
                float32x4_t d_sum = vdupq_n_f32(sets == 1 ? a->d_sum : a->d * q_sum(a, 1 + g));
                UNROLL for (int i = 0; i < 4; i++) acc[r][i] = vfmaq_f32(acc[r][i], vld1q_f32(minimum + 4 * i), d_sum);
            }
        }
    }
    UNROLL for (int i = 0; i < 4 * R; i++) vst1q_f32(TILE_TO(t, i / 4, 0) + i % 4 * 4, acc[i / 4][i % 4]);
}

/* One function per number of rows, in an array of that name. */
#define TILE(name, rows, ...)                                                                                          \
    static void name##_##rows(const struct tile *t) { tile(t, rows, __VA_ARGS__); }
#define TILES(name, ...)                                                                                               \
    TILE(name, 1, __VA_ARGS__)                                                                                         \
    TILE(name, 2, __VA_ARGS__)                                                                                         \
    TILE(name, 3, __VA_ARGS__)                                                                                         \
    static const tile_fn name[INT_ROWS] = {name##_1, name##_2, name##_3};
/*    name,         source, columns of a scale, zero, minima */
TILES(panel_32, PANEL_CODES, 32, 0, 0)
TILES(panel_16, PANEL_CODES, 16, 0, 0)
TILES(panel_32_min, PANEL_CODES, 32, 0, 1)
TILES(panel_16_min, PANEL_CODES, 16, 0, 1)
TILES(direct_q4_0, BITS_4, 32, 8, 0)
TILES(direct_q4_min, BITS_4, 32, 0, 1)
TILES(direct_q5_0, BITS_5, 32, 16, 0)
TILES(direct_q5_min, BITS_5, 32, 0, 1)
TILES(direct_q8_0, BITS_8, 32, 0, 0)
TILES(direct_q2, BITS_2, 16, 0, 1)
TILES(direct_q3, BITS_3, 16, 4, 0)
TILES(direct_q6, BITS_6, 16, 32, 0)
TILES(direct_iq4, BITS_4_IQ4, 32, 0, 0)
TILES(direct_mxfp4, BITS_4_MXFP4, 32, 0, 0)

#define UNPACK(name, source, zero)                                                                                     \
    static void name(struct panel *p, const uint8_t *from, uint32_t blocks) { unpack(p, from, blocks, source, zero); }
UNPACK(unpack_q4_0, BITS_4, 8)
UNPACK(unpack_q4, BITS_4, 0)
UNPACK(unpack_q5_0, BITS_5, 16)
UNPACK(unpack_q5, BITS_5, 0)
UNPACK(unpack_q8_0, BITS_8, 0)
UNPACK(unpack_q2, BITS_2, 0)
UNPACK(unpack_q3, BITS_3, 4)
UNPACK(unpack_q6, BITS_6, 32)
UNPACK(unpack_iq4, BITS_4_IQ4, 0)
UNPACK(unpack_mxfp4, BITS_4_MXFP4, 0)

static const struct plan plans[DTYPE_END] = {
    [DTYPE_Q4_0] = {unpack_q4_0, panel_32, direct_q4_0, INT_ROWS},
    [DTYPE_Q4_1] = {unpack_q4, panel_32_min, direct_q4_min, INT_ROWS},
    [DTYPE_Q5_0] = {unpack_q5_0, panel_32, direct_q5_0, INT_ROWS},
    [DTYPE_Q5_1] = {unpack_q5, panel_32_min, direct_q5_min, INT_ROWS},
    [DTYPE_Q8_0] = {unpack_q8_0, panel_32, direct_q8_0, INT_ROWS},
    [DTYPE_Q2_K] = {unpack_q2, panel_16_min, direct_q2, INT_ROWS},
    [DTYPE_Q3_K] = {unpack_q3, panel_16, direct_q3, INT_ROWS},
    [DTYPE_Q4_K] = {unpack_q4, panel_32_min, direct_q4_min, INT_ROWS},
    [DTYPE_Q5_K] = {unpack_q5, panel_32_min, direct_q5_min, INT_ROWS},
    [DTYPE_Q6_K] = {unpack_q6, panel_16, direct_q6, INT_ROWS},
    [DTYPE_IQ4_NL] = {unpack_iq4, panel_32, direct_iq4, INT_ROWS},
    [DTYPE_IQ4_XS] = {unpack_iq4, panel_32, direct_iq4, INT_ROWS},
    [DTYPE_MXFP4] = {unpack_mxfp4, panel_32, direct_mxfp4, INT_ROWS},
};

/* ---- Activations ---- */

static uint32_t largest_bits(const float *x) {
    uint32x4_t most = vdupq_n_u32(0);
    for (int i = 0; i < 32; i += 4) {
        uint32x4_t v = vreinterpretq_u32_f32(vld1q_f32(x + i));
        most = vmaxq_u32(most, vandq_u32(v, vdupq_n_u32(0x7fffffff)));
    }
    return vmaxvq_u32(most);
}

static void quantise(int8_t q[32], const float *x, float inverse) {
    UNROLL for (int i = 0; i < 2; i++) {
        int16x4_t v[4];
        UNROLL for (int j = 0; j < 4; j++) {
            v[j] = vmovn_s32(vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + 16 * i + 4 * j), vdupq_n_f32(inverse))));
        }
        vst1q_s8(q + 16 * i, vcombine_s8(vmovn_s16(vcombine_s16(v[0], v[1])), vmovn_s16(vcombine_s16(v[2], v[3]))));
    }
}

static void pair_sums(const int8_t *q, int16_t pair[2]) {
    int16x8_t two = vpaddlq_s8(vld1q_s8(q));
    int16x4_t v = vadd_s16(vget_low_s16(two), vget_high_s16(two));
    pair[0] = (int16_t)(vget_lane_s16(v, 0) + vget_lane_s16(v, 2));
    pair[1] = (int16_t)(vget_lane_s16(v, 1) + vget_lane_s16(v, 3));
}

#include "backend/cpu/act_lanes.h"

void kernels_matmul_neon(struct kernels *k) {
    k->act_prepare = act_prepare;
    k->matmul = matmul;
}
