/* Matrix products for AVX2, FMA and F16C: the bits of matmul_ref.c. Reentrant, no allocation.
 *
 * Exact sums without VNNI: vpmaddubsw multiplies unsigned by signed bytes and adds pairs with saturation to int16.
 *
 *   Small weights (tile_small). The unsigned operand is the code c <= 63, so a pair is at most 2 * 63 * 127 = 16002
 *   and never saturates. Pairs are added up in int16 modulo 2^16, starting at -zero * (sum of the lane's q), so the sum
 *   is that of the true weights w = c - zero. An int16 lane holds half of the columns of a scale group, thus its true
 *   value is at most 16 * max|w| * 127 for 32 columns, 8 * max|w| * 127 for 16. That fits in int16 (32767) for
 *   max|w| <= 16 and 32, and a sum modulo 2^16 whose true value fits is exact, whatever passed in between. Codes up
 *   to 31 that are weights themselves (Q5_1, Q5_K) are summed as c - 16; 16 * (sum of q) is added as floats, all
 *   exact.
 *
 *   Bytes (tile_bytes). The unsigned operand is |w| <= 128, the signed one q with w's sign; a pair is at most
 *   2 * 128 * 127 = 32512. Each is widened to int32 at once. */
#include "backend/cpu/lanes_avx2.h"

#include "backend/cpu/act.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/unpack.h"

enum { PASS_GROUPS = 1, INT_GROUPS = 1, INT_ROWS = 4, LONE_FETCHES_BYTES = 1 };

struct panel_codes {
    const uint8_t *direct; /* the packed codes, if tiles read those; else NULL and what follows is filled: */
    _Alignas(64) uint8_t code[PACK_SUPER][8][64]; /* small weights: codes; bytes: magnitudes */
    int8_t weight[PACK_SUPER][8][64];             /* bytes only */
};

#include "backend/cpu/matmul_direct.h"

/* ---- Unpacking ---- */

/* Bits [from, from + width) of every byte, moved to `to`. */
LANES_INLINE __m256i bits_move(__m256i v, int from, int width, int to) {
    if (from > to) v = _mm256_srli_epi16(v, from - to);
    if (from < to) v = _mm256_slli_epi16(v, to - from);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)(((1 << width) - 1) << to)));
}

/* Half a slab of a plane of `width` bits (the layout in pack.h). */
LANES_INLINE __m256i plane_half(const uint8_t *plane, int width, int slab, int half, int to) {
    __m256i v = _mm256_load_si256((const __m256i *)(plane + 64 * (slab % width) + 32 * half));
    return bits_move(v, slab / width * width, width, to);
}

LANES_INLINE __m256i look_up(const int8_t *table, __m256i codes) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table)), codes);
}

enum { MXFP4_ZERO = 12 };
static const int8_t mxfp4_codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* Half a slab of a packed block: codes of small weights (plus MXFP4_ZERO from that table), bytes as weights. */
LANES_INLINE __m256i codes_half(const uint8_t *block, int source, int slab, int half) {
    if (source == BITS_8)
        return _mm256_xor_si256(_mm256_load_si256((const __m256i *)(block + 64 * slab + 32 * half)),
                                _mm256_set1_epi8(-128));
    if (source == BITS_2) return plane_half(block, 2, slab, half, 0);
    if (source == BITS_3)
        return _mm256_or_si256(plane_half(block, 2, slab, half, 0), plane_half(block + 128, 1, slab, half, 2));
    __m256i low = plane_half(block, 4, slab, half, 0);
    if (source == BITS_5) return _mm256_or_si256(low, plane_half(block + 256, 1, slab, half, 4));
    if (source == BITS_6) return _mm256_or_si256(low, plane_half(block + 256, 2, slab, half, 4));
    if (source == BITS_4_MXFP4) return look_up(mxfp4_codes, low);
    return source == BITS_4_IQ4 ? look_up(unpack_codebook_iq4, low) : low;
}

LANES_INLINE void unpack(struct panel *panel, const uint8_t *from, uint32_t blocks, int source) {
    struct panel_codes *p = &panel->codes;
    for (uint32_t b = 0; b < blocks; b++, from += source_bytes(source)) {
        UNROLL for (int i = 0; i < 16; i++) {
            __m256i v = codes_half(from, source, i / 2, i % 2);
            if (source == BITS_8 || source == BITS_4_IQ4) {
                _mm256_store_si256((__m256i *)(p->weight[b][i / 2] + i % 2 * 32), v);
                v = _mm256_abs_epi8(v);
            }
            _mm256_store_si256((__m256i *)(p->code[b][i / 2] + i % 2 * 32), v);
        }
    }
}

#define UNPACK(name, source)                                                                                           \
    static void name(struct panel *p, const uint8_t *from, uint32_t blocks) { unpack(p, from, blocks, source); }
UNPACK(unpack_2, BITS_2)
UNPACK(unpack_3, BITS_3)
UNPACK(unpack_4, BITS_4)
UNPACK(unpack_5, BITS_5)
UNPACK(unpack_6, BITS_6)
UNPACK(unpack_8, BITS_8)
UNPACK(unpack_mxfp4, BITS_4_MXFP4)
UNPACK(unpack_iq4, BITS_4_IQ4)

/* ---- Products ---- */

LANES_INLINE __m256i splat_q(const struct act_block *a, int slab) {
    int32_t four;
    memcpy(&four, a->q + 4 * slab, 4);
    return _mm256_set1_epi32(four);
}

LANES_INLINE __m256i splat_pair(const struct act_block *a, int part) {
    int32_t both;
    memcpy(&both, a->pair[part], 4);
    return _mm256_set1_epi32(both);
}

/* float(sum of q) of a part, exactly. */
LANES_INLINE __m256 splat_sum(const struct act_block *a, int part) {
    /* Negated as an integer: a sum of zero stays +0, as the reference has it. */
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_set1_epi32(-a->start[part])), _mm256_set1_ps(1.0f / 128));
}

/* The chains of a tile: in registers or on the stack, as the compiler sees fit. */
typedef __m256 chain_halves[INT_ROWS][2];

LANES_INLINE void chains_load(const struct tile *t, int R, chain_halves acc) {
    UNROLL for (int i = 0; i < 2 * R; i++) acc[i / 2][i % 2] = _mm256_loadu_ps(TILE_FROM(t, i / 2, 0) + i % 2 * 8);
}

LANES_INLINE void chains_keep(const struct tile *t, int R, chain_halves acc) {
    UNROLL for (int i = 0; i < 2 * R; i++) _mm256_storeu_ps(TILE_TO(t, i / 2, 0) + i % 2 * 8, acc[i / 2][i % 2]);
}

LANES_INLINE __m256 chain_add(__m256 acc, __m256 value, const float *scale, __m256 d) {
    return _mm256_fmadd_ps(value, _mm256_mul_ps(_mm256_load_ps(scale), d), acc);
}

/* Keeps a sum in its register: compilers else reorder the additions, run out of registers and spill. */
#define KEEP(v) __asm__("" : "+x"(v))

LANES_INLINE const uint8_t *direct_block(const struct tile *t, int source, uint32_t b) {
    return t->panel->codes.direct + b * source_bytes(source);
}

/* Sums of R rows over slabs [first, end) of a block, less zero times the sums of q. */
TILE_INLINE void small_sums(const struct tile *t, int R, int source, const uint8_t *block, uint32_t b, int first,
                            int end, int part, int zero, __m256i sum[][2]) {
    UNROLL for (int r = 0; r < R; r++) {
        if (zero)
            sum[r][0] = sum[r][1] =
                _mm256_mullo_epi16(splat_pair(act_at(t, r, b), part), _mm256_set1_epi16((short)-zero));
    }
    UNROLL for (int s = first; s < end; s++) {
        __m256i w[2];
        UNROLL for (int h = 0; h < 2; h++) {
            const uint8_t *code = t->panel->codes.code[b][s] + 32 * h;
            w[h] = source ? codes_half(block, source, s, h) : _mm256_load_si256((const __m256i *)code);
        }
        UNROLL for (int r = 0; r < R; r++) {
            __m256i q = splat_q(act_at(t, r, b), s);
            UNROLL for (int h = 0; h < 2; h++) {
                __m256i p = _mm256_maddubs_epi16(w[h], q);
                sum[r][h] = zero || s > first ? _mm256_add_epi16(sum[r][h], p) : p;
                KEEP(sum[r][h]);
            }
        }
    }
}

/* `mid`: the codes are the weights, but their sums would not fit if taken whole; `zero` times the sums of q is added
 * back. */
TILE_INLINE void tile_small(const struct tile *t, int R, int source, int cols, int zero, int mid, int has_min) {
    const __m256i ones = _mm256_set1_epi16(1);
    int sets = PACK_BLOCK / cols;
    chain_halves acc;
    chains_load(t, R, acc);
    for (uint32_t b = 0; b < t->blocks; b++) {
        tile_prefetch(t, 0, b);
        const uint8_t *block = source ? direct_block(t, source, b) : NULL;
        UNROLL for (int g = 0; g < sets; g++) {
            __m256i sum[INT_ROWS][2];
            const float *scale = t->panel->scale[b * (uint32_t)sets + (uint32_t)g];
            small_sums(t, R, source, block, b, g * cols / 4, (g + 1) * cols / 4, sets == 1 ? 0 : 1 + g, zero, sum);
            UNROLL for (int r = 0; r < R; r++) {
                const struct act_block *a = act_at(t, r, b);
                __m256 d = _mm256_set1_ps(a->d), q_sum = mid ? splat_sum(a, 0) : d;
                UNROLL for (int h = 0; h < 2; h++) {
                    __m256 value = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[r][h], ones));
                    if (mid) value = _mm256_fmadd_ps(q_sum, _mm256_set1_ps((float)zero), value);
                    acc[r][h] = chain_add(acc[r][h], value, scale + 8 * h, d);
                }
            }
        }
        if (!has_min) continue;
        UNROLL for (int g = 0; g < sets; g++) {
            const float *minimum = t->panel->minimum[b * (uint32_t)sets + (uint32_t)g];
            UNROLL for (int r = 0; r < R; r++) {
                const struct act_block *a = act_at(t, r, b);
                __m256 d_sum =
                    sets == 1 ? _mm256_set1_ps(a->d_sum) : _mm256_mul_ps(_mm256_set1_ps(a->d), splat_sum(a, 1 + g));
                UNROLL for (int h = 0; h < 2; h++) {
                    acc[r][h] = _mm256_fmadd_ps(_mm256_load_ps(minimum + 8 * h), d_sum, acc[r][h]);
                }
            }
        }
    }
    chains_keep(t, R, acc);
}

TILE_INLINE void tile_bytes(const struct tile *t, int R, int source) {
    const __m256i ones = _mm256_set1_epi16(1);
    chain_halves acc;
    chains_load(t, R, acc);
    for (uint32_t b = 0; b < t->blocks; b++) {
        tile_prefetch(t, 0, b);
        const uint8_t *block = source ? direct_block(t, source, b) : NULL;
        __m256i sum[INT_ROWS][2];
        UNROLL for (int s = 0; s < 8; s++) {
            __m256i w[2], magnitude[2];
            UNROLL for (int h = 0; h < 2; h++) {
                const __m256i *unpacked = (const __m256i *)t->panel->codes.weight[b][s] + h;
                w[h] = source ? codes_half(block, source, s, h) : _mm256_load_si256(unpacked);
                unpacked = (const __m256i *)t->panel->codes.code[b][s] + h;
                magnitude[h] = source ? _mm256_abs_epi8(w[h]) : _mm256_load_si256(unpacked);
            }
            UNROLL for (int r = 0; r < R; r++) {
                __m256i q = splat_q(act_at(t, r, b), s);
                UNROLL for (int h = 0; h < 2; h++) {
                    __m256i p = _mm256_maddubs_epi16(magnitude[h], _mm256_sign_epi8(q, w[h]));
                    p = _mm256_madd_epi16(p, ones);
                    sum[r][h] = s ? _mm256_add_epi32(sum[r][h], p) : p;
                    KEEP(sum[r][h]);
                }
            }
        }
        UNROLL for (int r = 0; r < R; r++) {
            __m256 d = _mm256_set1_ps(act_at(t, r, b)->d);
            UNROLL for (int h = 0; h < 2; h++) {
                acc[r][h] = chain_add(acc[r][h], _mm256_cvtepi32_ps(sum[r][h]), t->panel->scale[b] + 8 * h, d);
            }
        }
    }
    chains_keep(t, R, acc);
}

/* One function per number of rows, in an array of that name. */
#define TILE(name, rows, call)                                                                                         \
    static void name##_##rows(const struct tile *t) {                                                                  \
        const int R = rows;                                                                                            \
        call;                                                                                                          \
    }
#define TILES(name, call)                                                                                              \
    TILE(name, 1, call)                                                                                                \
    TILE(name, 2, call)                                                                                                \
    TILE(name, 3, call)                                                                                                \
    TILE(name, 4, call)                                                                                                \
    static const tile_fn name[INT_ROWS] = {name##_1, name##_2, name##_3, name##_4};
/* cols, zero, mid, has_min */
#define Q4_0_KIND   32, 8, 0, 0
#define Q5_0_KIND   32, 16, 0, 0
#define MXFP4_KIND  32, MXFP4_ZERO, 0, 0
#define Q4_MIN_KIND 32, 0, 0, 1
#define Q5_MIN_KIND 32, 16, 1, 1
#define Q6_KIND     16, 32, 0, 0
#define Q3_KIND     16, 4, 0, 0
#define Q2_KIND     16, 0, 0, 1
#define SMALL(name, source, kind)                                                                                      \
    TILES(name##_panel, tile_small(t, R, PANEL_CODES, kind)) TILES(name##_direct, tile_small(t, R, source, kind))
SMALL(q4_0, BITS_4, Q4_0_KIND)
SMALL(q5_0, BITS_5, Q5_0_KIND)
SMALL(mxfp4, BITS_4_MXFP4, MXFP4_KIND)
SMALL(q4_min, BITS_4, Q4_MIN_KIND)
SMALL(q5_min, BITS_5, Q5_MIN_KIND)
SMALL(q6, BITS_6, Q6_KIND)
SMALL(q3, BITS_3, Q3_KIND)
SMALL(q2, BITS_2, Q2_KIND)
TILES(bytes_panel, tile_bytes(t, R, PANEL_CODES))
TILES(q8_direct, tile_bytes(t, R, BITS_8))
TILES(iq4_direct, tile_bytes(t, R, BITS_4_IQ4))

static const struct plan plans[DTYPE_END] = {
    [DTYPE_Q4_0] = {unpack_4, q4_0_panel, q4_0_direct, 4},
    [DTYPE_Q4_1] = {unpack_4, q4_min_panel, q4_min_direct, 4},
    [DTYPE_Q5_0] = {unpack_5, q5_0_panel, q5_0_direct, 4},
    [DTYPE_Q5_1] = {unpack_5, q5_min_panel, q5_min_direct, 4},
    [DTYPE_Q8_0] = {unpack_8, bytes_panel, q8_direct, 16},
    [DTYPE_Q2_K] = {unpack_2, q2_panel, q2_direct, 4},
    [DTYPE_Q3_K] = {unpack_3, q3_panel, q3_direct, 4},
    [DTYPE_Q4_K] = {unpack_4, q4_min_panel, q4_min_direct, 4},
    [DTYPE_Q5_K] = {unpack_5, q5_min_panel, q5_min_direct, 4},
    [DTYPE_Q6_K] = {unpack_6, q6_panel, q6_direct, 4},
    [DTYPE_IQ4_NL] = {unpack_iq4, bytes_panel, iq4_direct, 4},
    [DTYPE_IQ4_XS] = {unpack_iq4, bytes_panel, iq4_direct, 4},
    [DTYPE_MXFP4] = {unpack_mxfp4, mxfp4_panel, mxfp4_direct, 4},
};

/* ---- Activations ---- */

static uint32_t largest_bits(const float *x) {
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < 32; i += 8) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(x + i));
        most = _mm256_max_epi32(most, _mm256_and_si256(v, _mm256_set1_epi32(0x7fffffff)));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static void quantise(int8_t q[32], const float *x, float inverse) {
    __m256i v[4];
    UNROLL for (int i = 0; i < 4; i++) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse)));
    }
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, bytes);
}

static void pair_sums(const int8_t *q, int16_t pair[2]) {
    __m128i v = _mm_maddubs_epi16(_mm_set1_epi8(1), _mm_loadu_si128((const __m128i *)q));
    v = _mm_add_epi16(v, _mm_shuffle_epi32(v, 0x4e));
    int32_t both = _mm_cvtsi128_si32(_mm_add_epi16(v, _mm_shuffle_epi32(v, 0xb1)));
    memcpy(pair, &both, sizeof both);
}

#include "backend/cpu/act_lanes.h"

void kernels_matmul_avx2(struct kernels *k) {
    k->act_prepare = act_prepare;
    k->matmul = matmul;
}
