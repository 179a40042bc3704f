/* Sixteen fp32 lanes in one 512-bit register: AVX-512 F, DQ, BW and VL. The names and their meaning are those of
 * lanes_avx2.h. */
#ifndef BACKEND_CPU_LANES_H
#define BACKEND_CPU_LANES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline, unused))

typedef __m512 lanes;
typedef __mmask16 lanes_mask;

/* Of thirty-two registers, beside up to four operands and a number. */
enum { LANES_ACCUMULATORS = 24, LANES_WIDE_ACCUMULATORS = 24 };

LANES_INLINE lanes lanes_splat(float x) { return _mm512_set1_ps(x); }
LANES_INLINE lanes lanes_load(const float *p) { return _mm512_loadu_ps(p); }
LANES_INLINE void lanes_store(float *p, lanes x) { _mm512_storeu_ps(p, x); }

LANES_INLINE lanes lanes_add(lanes x, lanes y) { return _mm512_add_ps(x, y); }
LANES_INLINE lanes lanes_sub(lanes x, lanes y) { return _mm512_sub_ps(x, y); }
LANES_INLINE lanes lanes_mul(lanes x, lanes y) { return _mm512_mul_ps(x, y); }
LANES_INLINE lanes lanes_div(lanes x, lanes y) { return _mm512_div_ps(x, y); }
LANES_INLINE lanes lanes_max(lanes x, lanes y) { return _mm512_max_ps(x, y); }
LANES_INLINE lanes lanes_min(lanes x, lanes y) { return _mm512_min_ps(x, y); }
LANES_INLINE lanes lanes_fma(lanes x, lanes y, lanes z) { return _mm512_fmadd_ps(x, y, z); }

LANES_INLINE lanes_mask lanes_at_most(lanes x, lanes y) { return _mm512_cmp_ps_mask(x, y, _CMP_LE_OQ); }
LANES_INLINE lanes_mask lanes_unordered(lanes x, lanes y) { return _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q); }
LANES_INLINE lanes_mask lanes_mask_or(lanes_mask x, lanes_mask y) { return (lanes_mask)(x | y); }
LANES_INLINE lanes_mask lanes_mask_range(int first, int end) {
    uint32_t below_end = end >= 16 ? 0xffff : end > 0 ? (1u << end) - 1 : 0;
    uint32_t below_first = first >= 16 ? 0xffff : first > 0 ? (1u << first) - 1 : 0;
    return (lanes_mask)(below_end & ~below_first);
}
LANES_INLINE uint32_t lanes_bits(lanes_mask m) { return m; }
LANES_INLINE lanes lanes_keep(lanes_mask m, lanes x) { return _mm512_maskz_mov_ps(m, x); }
LANES_INLINE lanes lanes_pick(lanes_mask m, lanes yes, lanes no) { return _mm512_mask_blend_ps(m, no, yes); }

LANES_INLINE lanes lanes_load_first(const float *p, int n) { return _mm512_maskz_loadu_ps(lanes_mask_range(0, n), p); }
LANES_INLINE void lanes_store_first(float *p, lanes x, int n) { _mm512_mask_storeu_ps(p, lanes_mask_range(0, n), x); }

LANES_INLINE float lanes_sum(lanes x) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
LANES_INLINE float lanes_largest(lanes x) {
    __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

LANES_INLINE void lanes_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

LANES_INLINE lanes lanes_scale(lanes x, lanes t) {
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), n));
}

LANES_INLINE lanes lanes_load_half(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
LANES_INLINE void lanes_store_half(uint16_t *p, lanes x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

LANES_INLINE lanes lanes_of_bytes(__m128i v) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v)); }
LANES_INLINE lanes lanes_load_bytes(const void *p) { return lanes_of_bytes(_mm_loadu_si128((const __m128i *)p)); }
LANES_INLINE void lanes_store_bytes(void *p, lanes x) {
    __m256i low = _mm256_cvtps_epi32(_mm512_castps512_ps256(x));
    __m256i high = _mm256_cvtps_epi32(_mm512_extractf32x8_ps(x, 1));
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)p, bytes);
}
LANES_INLINE lanes lanes_load_nibbles(const void *p, int shift) {
    __m128i v = _mm_srl_epi16(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi32_si128(shift));
    return lanes_of_bytes(_mm_sub_epi8(_mm_and_si128(v, _mm_set1_epi8(15)), _mm_set1_epi8(8)));
}

LANES_INLINE void lanes_load_pairs(const float *p, lanes *first, lanes *second) {
    __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    __m512 low = _mm512_loadu_ps(p), high = _mm512_loadu_ps(p + 16);
    *first = _mm512_permutex2var_ps(low, even, high);
    *second = _mm512_permutex2var_ps(low, odd, high);
}
LANES_INLINE void lanes_store_pairs(float *p, lanes first, lanes second) {
    __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(first, low, second));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(first, high, second));
}

#endif
