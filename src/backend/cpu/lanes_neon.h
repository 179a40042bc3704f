/* Sixteen fp32 lanes in four 128-bit registers: NEON as every 64-bit ARM has it. The names and their meaning are those
 * of lanes_avx2.h. */
#ifndef BACKEND_CPU_LANES_H
#define BACKEND_CPU_LANES_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline, unused))

typedef struct {
    float32x4_t a, b, c, d; /* lanes 0-3, 4-7, 8-11, 12-15 */
} lanes;
typedef struct {
    uint32x4_t a, b, c, d; /* all ones where true */
} lanes_mask;

/* Of thirty-two registers: six sums, one operand and a number beside it; or four sums and three operands. */
enum { LANES_ACCUMULATORS = 6, LANES_WIDE_ACCUMULATORS = 4 };

/* A struct of what an intrinsic makes of each quarter. */
#define LANES_OF(type, f, x)        ((type){f((x).a), f((x).b), f((x).c), f((x).d)})
#define LANES_OF_TWO(type, f, x, y) ((type){f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d)})
#define LANES_OF_THREE(type, f, x, y, z)                                                                               \
    ((type){f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b), f((x).c, (y).c, (z).c), f((x).d, (y).d, (z).d)})

LANES_INLINE lanes lanes_splat(float x) {
    float32x4_t v = vdupq_n_f32(x);
    return (lanes){v, v, v, v};
}
LANES_INLINE lanes lanes_load(const float *p) {
    return (lanes){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
LANES_INLINE void lanes_store(float *p, lanes x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}

LANES_INLINE lanes lanes_add(lanes x, lanes y) { return LANES_OF_TWO(lanes, vaddq_f32, x, y); }
LANES_INLINE lanes lanes_sub(lanes x, lanes y) { return LANES_OF_TWO(lanes, vsubq_f32, x, y); }
LANES_INLINE lanes lanes_mul(lanes x, lanes y) { return LANES_OF_TWO(lanes, vmulq_f32, x, y); }
LANES_INLINE lanes lanes_div(lanes x, lanes y) { return LANES_OF_TWO(lanes, vdivq_f32, x, y); }
LANES_INLINE lanes lanes_max(lanes x, lanes y) { return LANES_OF_TWO(lanes, vmaxq_f32, x, y); }
/* The instruction itself would give a NaN for a NaN on either side. */
LANES_INLINE lanes lanes_min(lanes x, lanes y) {
    lanes_mask less = LANES_OF_TWO(lanes_mask, vcltq_f32, x, y);
    return LANES_OF_THREE(lanes, vbslq_f32, less, x, y);
}
LANES_INLINE lanes lanes_fma(lanes x, lanes y, lanes z) { return LANES_OF_THREE(lanes, vfmaq_f32, z, x, y); }

LANES_INLINE lanes_mask lanes_at_most(lanes x, lanes y) { return LANES_OF_TWO(lanes_mask, vcleq_f32, x, y); }
LANES_INLINE lanes_mask lanes_mask_or(lanes_mask x, lanes_mask y) { return LANES_OF_TWO(lanes_mask, vorrq_u32, x, y); }
LANES_INLINE lanes_mask lanes_unordered(lanes x, lanes y) {
    lanes_mask x_number = LANES_OF_TWO(lanes_mask, vceqq_f32, x, x);
    lanes_mask y_number = LANES_OF_TWO(lanes_mask, vceqq_f32, y, y);
    lanes_mask both = LANES_OF_TWO(lanes_mask, vandq_u32, x_number, y_number);
    return LANES_OF(lanes_mask, vmvnq_u32, both);
}
LANES_INLINE lanes_mask lanes_mask_range(int first, int end) {
    static const int32_t index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int32x4_t from = vdupq_n_s32(first), behind = vdupq_n_s32(end);
#define INSIDE(i) vandq_u32(vcgeq_s32(vld1q_s32(index + (i)), from), vcltq_s32(vld1q_s32(index + (i)), behind))
    return (lanes_mask){INSIDE(0), INSIDE(4), INSIDE(8), INSIDE(12)};
#undef INSIDE
}
LANES_INLINE uint32_t lanes_bits(lanes_mask m) {
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t low = vcombine_u16(vmovn_u32(m.a), vmovn_u32(m.b));
    uint16x8_t high = vcombine_u16(vmovn_u32(m.c), vmovn_u32(m.d));
    uint8x16_t bits = vandq_u8(vcombine_u8(vmovn_u16(low), vmovn_u16(high)), vld1q_u8(bit));
    return (uint32_t)vaddv_u8(vget_low_u8(bits)) | (uint32_t)vaddv_u8(vget_high_u8(bits)) << 8;
}
LANES_INLINE lanes lanes_pick(lanes_mask m, lanes yes, lanes no) {
    return LANES_OF_THREE(lanes, vbslq_f32, m, yes, no);
}
LANES_INLINE lanes lanes_keep(lanes_mask m, lanes x) { return lanes_pick(m, x, lanes_splat(0)); }

LANES_INLINE lanes lanes_load_first(const float *p, int n) {
    float room[16] = {0};
    memcpy(room, p, (size_t)n * sizeof *p);
    return lanes_load(room);
}
LANES_INLINE void lanes_store_first(float *p, lanes x, int n) {
    float room[16];
    lanes_store(room, x);
    memcpy(p, room, (size_t)n * sizeof *p);
}

LANES_INLINE float lanes_sum(lanes x) {
    float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
LANES_INLINE float lanes_largest(lanes x) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.b), vmaxq_f32(x.c, x.d))); }

LANES_INLINE void lanes_prefetch(const void *p) { __builtin_prefetch(p); }

LANES_INLINE float32x4_t lanes_scale_quarter(float32x4_t x, float32x4_t t) {
    uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(t), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(x), n));
}
LANES_INLINE lanes lanes_scale(lanes x, lanes t) { return LANES_OF_TWO(lanes, lanes_scale_quarter, x, t); }

/* The conversions are those of the base instruction set: with the default mode of team_float_mode nearest even, with
 * denormals, and a NaN keeps its sign and leading payload bits and becomes quiet. */
LANES_INLINE lanes lanes_load_half(const uint16_t *p) {
    float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(p)), high = vreinterpretq_f16_u16(vld1q_u16(p + 8));
    return (lanes){vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
                   vcvt_high_f32_f16(high)};
}
LANES_INLINE void lanes_store_half(uint16_t *p, lanes x) {
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.c), x.d)));
}

LANES_INLINE lanes lanes_of_bytes(int8x16_t v) {
    int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_high_s8(v);
    return (lanes){vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                   vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}
LANES_INLINE lanes lanes_load_bytes(const void *p) { return lanes_of_bytes(vld1q_s8((const int8_t *)p)); }
LANES_INLINE void lanes_store_bytes(void *p, lanes x) {
    int16x8_t low = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.a)), vmovn_s32(vcvtnq_s32_f32(x.b)));
    int16x8_t high = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.c)), vmovn_s32(vcvtnq_s32_f32(x.d)));
    vst1q_s8((int8_t *)p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
LANES_INLINE lanes lanes_load_nibbles(const void *p, int shift) {
    uint8x16_t v = vshlq_u8(vld1q_u8((const uint8_t *)p), vdupq_n_s8((int8_t)-shift));
    return lanes_of_bytes(vsubq_s8(vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))), vdupq_n_s8(8)));
}

LANES_INLINE void lanes_load_pairs(const float *p, lanes *first, lanes *second) {
    float32x4x2_t v[4] = {vld2q_f32(p), vld2q_f32(p + 8), vld2q_f32(p + 16), vld2q_f32(p + 24)};
    *first = (lanes){v[0].val[0], v[1].val[0], v[2].val[0], v[3].val[0]};
    *second = (lanes){v[0].val[1], v[1].val[1], v[2].val[1], v[3].val[1]};
}
LANES_INLINE void lanes_store_pairs(float *p, lanes first, lanes second) {
    float32x4x2_t a = {{first.a, second.a}}, b = {{first.b, second.b}};
    float32x4x2_t c = {{first.c, second.c}}, d = {{first.d, second.d}};
    vst2q_f32(p, a);
    vst2q_f32(p + 8, b);
    vst2q_f32(p + 16, c);
    vst2q_f32(p + 24, d);
}

#endif
