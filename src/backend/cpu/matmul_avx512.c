/* Matrix products for AVX-512 with VNNI: the bits of matmul_ref.c. Reentrant, no allocation. */
#include "backend/cpu/lanes_avx512.h"

#include "backend/cpu/pack.h"

/* Of thirty-two registers twelve hold chains and twelve sums. */
enum { PASS_GROUPS = 2, INT_GROUPS = 2, INT_ROWS = 6, LONE_FETCHES_BYTES = 0 };
#define EACH_ROWS(f, ...)                                                                                              \
    f(1, __VA_ARGS__) f(2, __VA_ARGS__) f(3, __VA_ARGS__) f(4, __VA_ARGS__) f(5, __VA_ARGS__) f(6, __VA_ARGS__)
#define EACH_GROUPS(f, ...) f(1, __VA_ARGS__) f(2, __VA_ARGS__)

LANES_INLINE lanes lanes_load_bf16(const uint16_t *p) {
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

/* Sixteen factors of scales or minima. */
LANES_INLINE lanes lanes_load_factor(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

typedef __m512i slab;
LANES_INLINE slab slab_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
LANES_INLINE void slab_store(uint8_t *p, slab v) { _mm512_storeu_si512(p, v); }
LANES_INLINE slab slab_or(slab v, slab w) { return _mm512_or_si512(v, w); }
LANES_INLINE slab slab_add(slab v, int n) { return _mm512_add_epi8(v, _mm512_set1_epi8((char)n)); }
/* Every byte moved left or right, then masked. */
LANES_INLINE slab slab_bits(slab v, int left, int mask) {
    if (left < 0) v = _mm512_srli_epi16(v, (unsigned)-left);
    if (left > 0) v = _mm512_slli_epi16(v, (unsigned)left);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}
LANES_INLINE slab slab_look_up(const int8_t *table, slab codes) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), codes);
}

typedef __m512i sums;
LANES_INLINE sums sums_splat(int32_t n) { return _mm512_set1_epi32(n); }
/* Adds the products of each output's four columns with the four bytes at q. */
LANES_INLINE sums sums_add(sums s, slab w, const int8_t *q) {
    int32_t four;
    memcpy(&four, q, 4);
    return _mm512_dpbusd_epi32(s, w, _mm512_set1_epi32(four));
}
LANES_INLINE lanes sums_float(sums s) { return _mm512_cvtepi32_ps(s); }

#include "backend/cpu/matmul_vnni.h"

void kernels_matmul_avx512(struct kernels *k) { k->matmul = matmul; }
