/* AVX-512 and AVX-VNNI for machines without them: a level file compiled with this folder first on the include path, and
 * with -mavx2 -mfma -mf16c instead of the AVX-512 flags, gets its intrinsics from SIMDe. Bits are those of the real
 * instructions; only the speed is not. What SIMDe lacks stands below. */
#ifndef EMULATED_IMMINTRIN_H
#define EMULATED_IMMINTRIN_H

#include_next <immintrin.h>

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__) || defined(__AVX512F__)
#error "the emulation is built with AVX2, FMA and F16C (so that fma rounds once) and without AVX-512"
#endif

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpsabi"
#else
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <string.h>

#define _mm256_dpbusd_avx_epi32(sum, unsigned_bytes, signed_bytes)                                                     \
    simde_mm256_dpbusd_epi32(sum, unsigned_bytes, signed_bytes)

typedef union {
    float f32[16];
    uint32_t u32[16];
    __m256 ps256[2];
    __m256i si256[2];
    simde__m512 ps;
    simde__m512i si;
} emulated_512;

static inline __attribute__((unused)) simde__m512 emulated_maskz_loadu_ps(simde__mmask16 mask, const void *from) {
    emulated_512 r;
    for (int i = 0; i < 16; i++) {
        r.u32[i] = 0;
        if (mask >> i & 1) memcpy(&r.u32[i], (const char *)from + 4 * i, 4);
    }
    return r.ps;
}
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps(mask, from) emulated_maskz_loadu_ps(mask, from)

static inline __attribute__((unused)) void emulated_mask_storeu_ps(void *to, simde__mmask16 mask, simde__m512 v) {
    emulated_512 a = {.ps = v};
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy((char *)to + 4 * i, &a.u32[i], 4);
}
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps(to, mask, v) emulated_mask_storeu_ps(to, mask, v)

static inline __attribute__((unused)) simde__m512 emulated_cvtph_ps(__m256i halves) {
    emulated_512 r;
    r.ps256[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    r.ps256[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    return r.ps;
}
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(halves) emulated_cvtph_ps(halves)

static inline __attribute__((unused)) __m256 emulated_extractf32x8_ps(simde__m512 v, int half) {
    emulated_512 a = {.ps = v};
    return a.ps256[half];
}
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(v, half) emulated_extractf32x8_ps(v, half)

static inline __attribute__((unused)) __m256i emulated_join(__m128i low, __m128i high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(v, rounding)                                                                                   \
    emulated_join(_mm256_cvtps_ph(emulated_extractf32x8_ps(v, 0), rounding),                                           \
                  _mm256_cvtps_ph(emulated_extractf32x8_ps(v, 1), rounding))

static inline __attribute__((unused)) simde__m512i emulated_widen(__m256i low, __m256i high) {
    emulated_512 r = {.si256 = {low, high}};
    return r.si;
}
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(v) emulated_widen(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(v)                                                                                       \
    emulated_widen(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),                                                   \
                   _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)))

static inline __attribute__((unused)) simde__m512 emulated_cvtepi32_ps(simde__m512i v) {
    emulated_512 a = {.si = v}, r;
    r.ps256[0] = _mm256_cvtepi32_ps(a.si256[0]);
    r.ps256[1] = _mm256_cvtepi32_ps(a.si256[1]);
    return r.ps;
}
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(v) emulated_cvtepi32_ps(v)

/* SIMDe's versions want a literal count. */
#undef _mm512_srli_epi16
#define _mm512_srli_epi16(v, n) emulated_shift_epi16(v, -(int)(n))
#undef _mm512_slli_epi16
#define _mm512_slli_epi16(v, n) emulated_shift_epi16(v, (int)(n))
static inline __attribute__((unused)) simde__m512i emulated_shift_epi16(simde__m512i v, int left) {
    emulated_512 a = {.si = v};
    for (int i = 0; i < 2; i++)
        a.si256[i] = left < 0 ? _mm256_srli_epi16(a.si256[i], -left) : _mm256_slli_epi16(a.si256[i], left);
    return a.si;
}

#endif
