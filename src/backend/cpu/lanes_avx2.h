/* Sixteen fp32 lanes in two 256-bit registers: AVX2, FMA and F16C. Every lanes_*.h defines the same names, and the
 * kernels (vector_lanes.h, attend_lanes.h) are written over them once. Lane i always stands for index i mod 16. */
#ifndef BACKEND_CPU_LANES_H
#define BACKEND_CPU_LANES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline, unused))

typedef struct {
    __m256 a, b; /* lanes 0-7, 8-15 */
} lanes;
typedef struct {
    __m256 a, b; /* all ones where true */
} lanes_mask;

/* How many sums (of `lanes`) a kernel may keep in the sixteen registers: at most, and where it also holds more than one
 * operand of lanes. */
enum { LANES_ACCUMULATORS = 6, LANES_WIDE_ACCUMULATORS = 4 };

LANES_INLINE lanes lanes_splat(float x) { return (lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LANES_INLINE lanes lanes_load(const float *p) { return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LANES_INLINE void lanes_store(float *p, lanes x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

LANES_INLINE lanes lanes_add(lanes x, lanes y) { return (lanes){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
LANES_INLINE lanes lanes_sub(lanes x, lanes y) { return (lanes){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
LANES_INLINE lanes lanes_mul(lanes x, lanes y) { return (lanes){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
LANES_INLINE lanes lanes_div(lanes x, lanes y) { return (lanes){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
LANES_INLINE lanes lanes_max(lanes x, lanes y) { return (lanes){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
/* y where one of the two is NaN. */
LANES_INLINE lanes lanes_min(lanes x, lanes y) { return (lanes){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
LANES_INLINE lanes lanes_fma(lanes x, lanes y, lanes z) {
    return (lanes){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

/* Comparisons are false where a NaN takes part, except lanes_unordered. */
LANES_INLINE lanes_mask lanes_at_most(lanes x, lanes y) {
    return (lanes_mask){_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)};
}
LANES_INLINE lanes_mask lanes_unordered(lanes x, lanes y) {
    return (lanes_mask){_mm256_cmp_ps(x.a, y.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, y.b, _CMP_UNORD_Q)};
}
LANES_INLINE lanes_mask lanes_mask_or(lanes_mask x, lanes_mask y) {
    return (lanes_mask){_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)};
}
/* Lanes first .. end - 1; both may be any numbers. */
LANES_INLINE lanes_mask lanes_mask_range(int first, int end) {
    __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
    __m256i before = _mm256_set1_epi32(first - 1), behind = _mm256_set1_epi32(end);
    __m256i a = _mm256_and_si256(_mm256_cmpgt_epi32(low, before), _mm256_cmpgt_epi32(behind, low));
    __m256i b = _mm256_and_si256(_mm256_cmpgt_epi32(high, before), _mm256_cmpgt_epi32(behind, high));
    return (lanes_mask){_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)};
}
LANES_INLINE uint32_t lanes_bits(lanes_mask m) {
    return (uint32_t)_mm256_movemask_ps(m.a) | (uint32_t)_mm256_movemask_ps(m.b) << 8;
}
/* x where m is true, else +0. */
LANES_INLINE lanes lanes_keep(lanes_mask m, lanes x) {
    return (lanes){_mm256_and_ps(x.a, m.a), _mm256_and_ps(x.b, m.b)};
}
LANES_INLINE lanes lanes_pick(lanes_mask m, lanes yes, lanes no) {
    return (lanes){_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)};
}

/* The first n lanes, n = 0 .. 16; nothing behind them is touched, absent lanes are +0. */
LANES_INLINE lanes lanes_load_first(const float *p, int n) {
    lanes_mask m = lanes_mask_range(0, n);
    return (lanes){_mm256_maskload_ps(p, _mm256_castps_si256(m.a)),
                   _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b))};
}
LANES_INLINE void lanes_store_first(float *p, lanes x, int n) {
    lanes_mask m = lanes_mask_range(0, n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), x.a);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), x.b);
}

/* l + (l + 8), then 4, 2, 1. */
LANES_INLINE float lanes_sum(lanes x) {
    __m256 eight = _mm256_add_ps(x.a, x.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
/* The largest lane, if none is NaN. */
LANES_INLINE float lanes_largest(lanes x) {
    __m256 eight = _mm256_max_ps(x.a, x.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* Asks for the cache line at p, which need not be readable. */
LANES_INLINE void lanes_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

/* x with the low bits of t, an integer, added to its exponent. */
LANES_INLINE lanes lanes_scale(lanes x, lanes t) {
    __m256i a = _mm256_slli_epi32(_mm256_castps_si256(t.a), 23), b = _mm256_slli_epi32(_mm256_castps_si256(t.b), 23);
    return (lanes){_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.a), a)),
                   _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.b), b))};
}

LANES_INLINE lanes lanes_load_half(const uint16_t *p) {
    return (lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
LANES_INLINE void lanes_store_half(uint16_t *p, lanes x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Sixteen bytes with a sign. */
LANES_INLINE lanes lanes_of_bytes(__m128i v) {
    return (lanes){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
                   _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)))};
}
LANES_INLINE lanes lanes_load_bytes(const void *p) {
    __m256i a = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
    __m256i b = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)((const char *)p + 8)));
    return (lanes){_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)};
}
LANES_INLINE void lanes_store_bytes(void *p, lanes x) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)p, bytes);
}
/* The low (shift 0) or high (shift 4) nibbles of sixteen bytes, minus 8. */
LANES_INLINE lanes lanes_load_nibbles(const void *p, int shift) {
    __m128i v = _mm_srl_epi16(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi32_si128(shift));
    return lanes_of_bytes(_mm_sub_epi8(_mm_and_si128(v, _mm_set1_epi8(15)), _mm_set1_epi8(8)));
}

LANES_INLINE void lanes_load_pairs(const float *p, lanes *first, lanes *second) {
    __m256 v[4], f[2], s[2];
    for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(p + 8 * i);
    for (int i = 0; i < 2; i++) {
        __m256 low = _mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x20);
        __m256 high = _mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x31);
        f[i] = _mm256_shuffle_ps(low, high, 0x88);
        s[i] = _mm256_shuffle_ps(low, high, 0xdd);
    }
    *first = (lanes){f[0], f[1]};
    *second = (lanes){s[0], s[1]};
}
LANES_INLINE void lanes_store_pairs(float *p, lanes first, lanes second) {
    __m256 f[2] = {first.a, first.b}, s[2] = {second.a, second.b};
    for (int i = 0; i < 2; i++) {
        __m256 low = _mm256_unpacklo_ps(f[i], s[i]), high = _mm256_unpackhi_ps(f[i], s[i]);
        _mm256_storeu_ps(p + 16 * i, _mm256_permute2f128_ps(low, high, 0x20));
        _mm256_storeu_ps(p + 16 * i + 8, _mm256_permute2f128_ps(low, high, 0x31));
    }
}

LANES_INLINE lanes lanes_load_bf16(const uint16_t *p) {
    __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)));
    return (lanes){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}

/* Sixteen factors of scales or minima. */
LANES_INLINE lanes lanes_load_factor(const uint8_t *p) {
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    return (lanes){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
                   _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)))};
}

#endif
