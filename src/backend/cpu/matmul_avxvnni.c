/* Matrix products for AVX2 with AVX-VNNI, as small cores and desktops without AVX-512 have it: the bits of
 * matmul_ref.c. Reentrant, no allocation. */
#include "backend/cpu/lanes_avx2.h"

#include "backend/cpu/pack.h"

/* Of sixteen registers eight hold sums; the chains, used once per block, wait on the stack. */
enum { PASS_GROUPS = 1, INT_GROUPS = 1, INT_ROWS = 4, LONE_FETCHES_BYTES = 1 };
#define EACH_ROWS(f, ...)   f(1, __VA_ARGS__) f(2, __VA_ARGS__) f(3, __VA_ARGS__) f(4, __VA_ARGS__)
#define EACH_GROUPS(f, ...) f(1, __VA_ARGS__)

typedef struct {
    __m256i half[2];
} slab;
LANES_INLINE slab slab_load(const uint8_t *p) {
    return (slab){{_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32))}};
}
LANES_INLINE void slab_store(uint8_t *p, slab v) {
    _mm256_storeu_si256((__m256i *)p, v.half[0]);
    _mm256_storeu_si256((__m256i *)(p + 32), v.half[1]);
}
#define EACH_HALF(call) ((slab){{call(0), call(1)}})
LANES_INLINE slab slab_or(slab v, slab w) {
#define OR(i) _mm256_or_si256(v.half[i], w.half[i])
    return EACH_HALF(OR);
#undef OR
}
LANES_INLINE slab slab_add(slab v, int n) {
#define ADD(i) _mm256_add_epi8(v.half[i], _mm256_set1_epi8((char)n))
    return EACH_HALF(ADD);
#undef ADD
}
/* Every byte moved left or right, then masked. */
LANES_INLINE slab slab_bits(slab v, int left, int mask) {
#define RIGHT(i) _mm256_srli_epi16(v.half[i], -left)
#define LEFT(i)  _mm256_slli_epi16(v.half[i], left)
#define AND(i)   _mm256_and_si256(v.half[i], _mm256_set1_epi8((char)mask))
    if (left < 0) v = EACH_HALF(RIGHT);
    if (left > 0) v = EACH_HALF(LEFT);
    return EACH_HALF(AND);
#undef RIGHT
#undef LEFT
#undef AND
}
LANES_INLINE slab slab_look_up(const int8_t *table, slab codes) {
    __m256i weights = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
#define LOOK_UP(i) _mm256_shuffle_epi8(weights, codes.half[i])
    return EACH_HALF(LOOK_UP);
#undef LOOK_UP
}

typedef slab sums;
LANES_INLINE sums sums_splat(int32_t n) { return (sums){{_mm256_set1_epi32(n), _mm256_set1_epi32(n)}}; }
/* Adds the products of each output's four columns with the four bytes at q. */
LANES_INLINE sums sums_add(sums s, slab w, const int8_t *q) {
    int32_t four;
    memcpy(&four, q, 4);
#define DOT(i) _mm256_dpbusd_avx_epi32(s.half[i], w.half[i], _mm256_set1_epi32(four))
    return EACH_HALF(DOT);
#undef DOT
}
LANES_INLINE lanes sums_float(sums s) { return (lanes){_mm256_cvtepi32_ps(s.half[0]), _mm256_cvtepi32_ps(s.half[1])}; }

#include "backend/cpu/matmul_vnni.h"

void kernels_matmul_avxvnni(struct kernels *k) { k->matmul = matmul; }
