/* Matrix products for AVX2, FMA and F16C: the bits of matmul_ref.c. Reentrant, no allocation.
 *
 * Integer weights go group by group through a panel in the L1 cache: eight blocks of columns of one output group,
 * unpacked to bytes, their scales widened. Tiles of up to four rows run over the panel; their fp32 chains wait in `acc`
 * between panels. One row goes the same way, so there is one set of kernels; unpacking is far faster than memory.
 *
 * Exact sums without VNNI: vpmaddubsw multiplies unsigned by signed bytes and adds pairs with saturation to int16.
 *
 *   Small weights (SHAPE_SMALL*). The unsigned operand is the code c <= 63, so a pair is at most 2 * 63 * 127 = 16002
 *   and never saturates. Pairs are added up in int16 modulo 2^16, starting at -zero * (sum of the lane's q), so the sum
 *   is that of the true weights w = c - zero. An int16 lane holds half of the columns of a scale group, thus its true
 *   value is at most 16 * max|w| * 127 for 32 columns, 8 * max|w| * 127 for 16. That fits in int16 (32767) for
 *   max|w| <= 16 and 32, and a sum modulo 2^16 whose true value fits is exact, whatever passed in between. Codes up to
 * 31 that are weights themselves (Q5_1, Q5_K) are summed as c - 16; 16 * (sum of q) is added as floats, all exact.
 *
 *   Bytes (SHAPE_BYTES). The unsigned operand is |w| <= 128, the signed one q with w's sign; a pair is at most
 *   2 * 128 * 127 = 32512. Each is widened to int32 at once. */
#include "backend/cpu/lanes_avx2.h"

#include "backend/cpu/act.h"
#include "backend/cpu/pack.h"

enum { INT_GROUPS = 1, INT_ROWS = 4, FLOAT_ROWS = 3 };

struct panel_codes {
    uint8_t code[PACK_SUPER][8][64];  /* small weights: codes; bytes: magnitudes */
    int8_t weight[PACK_SUPER][8][64]; /* bytes only */
    int zero;                         /* small weights: what a code is summed less of */
};

LANES_INLINE lanes lanes_load_bf16(const uint16_t *p) {
    __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)));
    return (lanes){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}

/* Sixteen factors of scales (int8) or minima (uint8). */
LANES_INLINE lanes lanes_load_factor(const uint8_t *p, int is_signed) {
    __m128i v = _mm_loadu_si128((const __m128i *)p), high = _mm_unpackhi_epi64(v, v);
    return (lanes){_mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v)),
                   _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(high) : _mm256_cvtepu8_epi32(high))};
}

#include "backend/cpu/matmul_lanes.h"

enum shape {
    SHAPE_SMALL_32,     /* any zero */
    SHAPE_PLAIN_32_MIN, /* zero 0 */
    SHAPE_MID_32_MIN,   /* zero 0, summed as code - 16 */
    SHAPE_SMALL_16,
    SHAPE_PLAIN_16_MIN,
    SHAPE_BYTES,
    SHAPES
};

static enum shape shape_of(const struct packed *w) {
    const struct pack_form *f = w->form;
    if (f->bits == 8 || (f->codebook && w->type != DTYPE_MXFP4)) return SHAPE_BYTES;
    if (f->scale_cols == 16) return f->has_min ? SHAPE_PLAIN_16_MIN : SHAPE_SMALL_16;
    if (!f->has_min) return SHAPE_SMALL_32;
    return f->bits == 5 ? SHAPE_MID_32_MIN : SHAPE_PLAIN_32_MIN;
}

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

LANES_INLINE __m256i codes_half(const uint8_t *block, int bits, int slab, int half) {
    if (bits == 2) return plane_half(block, 2, slab, half, 0);
    if (bits == 3)
        return _mm256_or_si256(plane_half(block, 2, slab, half, 0), plane_half(block + 128, 1, slab, half, 2));
    __m256i low = plane_half(block, 4, slab, half, 0);
    if (bits == 5) low = _mm256_or_si256(low, plane_half(block + 256, 1, slab, half, 4));
    if (bits == 6) low = _mm256_or_si256(low, plane_half(block + 256, 2, slab, half, 4));
    return low;
}

/* `table`: NULL, or sixteen bytes for each code. */
LANES_INLINE void unpack_small(struct panel_codes *p, const uint8_t *codes, uint32_t blocks, int bits,
                               const __m128i *table) {
    for (uint32_t b = 0; b < blocks; b++) {
        UNROLL for (int s = 0; s < 8; s++) {
            UNROLL for (int h = 0; h < 2; h++) {
                __m256i v = codes_half(codes + (size_t)b * 64 * bits, bits, s, h);
                if (table) v = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(*table), v);
                _mm256_store_si256((__m256i *)(p->code[b][s] + 32 * h), v);
            }
        }
    }
}

LANES_INLINE void store_bytes(struct panel_codes *p, uint32_t b, int slab, int half, __m256i weight) {
    _mm256_store_si256((__m256i *)(p->weight[b][slab] + 32 * half), weight);
    _mm256_store_si256((__m256i *)(p->code[b][slab] + 32 * half), _mm256_abs_epi8(weight));
}

static void unpack_bytes(struct panel_codes *p, const uint8_t *codes, uint32_t blocks) {
    for (uint32_t b = 0; b < blocks; b++) UNROLL for (int i = 0; i < 16; i++) {
            __m256i v = _mm256_load_si256((const __m256i *)(codes + b * 512 + 32 * i));
            store_bytes(p, b, i / 2, i % 2, _mm256_xor_si256(v, _mm256_set1_epi8(-128)));
        }
}

static void unpack_table(struct panel_codes *p, const uint8_t *codes, uint32_t blocks, __m128i table) {
    for (uint32_t b = 0; b < blocks; b++) UNROLL for (int i = 0; i < 16; i++) {
            __m256i v = codes_half(codes + b * 256, 4, i / 2, i % 2);
            store_bytes(p, b, i / 2, i % 2, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v));
        }
}

static void codes_unpack(const struct packed *w, struct panel_codes *p, const uint8_t *codes, uint32_t blocks) {
    p->zero = w->type == DTYPE_MXFP4 ? 12 : shape_of(w) == SHAPE_MID_32_MIN ? 16 : w->form->zero;
    if (w->form->codebook) {
        __m128i table = _mm_loadu_si128((const __m128i *)w->form->codebook);
        if (w->type != DTYPE_MXFP4) {
            unpack_table(p, codes, blocks, table);
            return;
        }
        table = _mm_add_epi8(table, _mm_set1_epi8(12)); /* the smallest is -12 */
        unpack_small(p, codes, blocks, 4, &table);
        return;
    }
    switch (w->form->bits) {
    case 2:
        unpack_small(p, codes, blocks, 2, NULL);
        break;
    case 3:
        unpack_small(p, codes, blocks, 3, NULL);
        break;
    case 4:
        unpack_small(p, codes, blocks, 4, NULL);
        break;
    case 5:
        unpack_small(p, codes, blocks, 5, NULL);
        break;
    case 6:
        unpack_small(p, codes, blocks, 6, NULL);
        break;
    default:
        unpack_bytes(p, codes, blocks);
    }
}

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
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_set1_epi32(a->start[part])), _mm256_set1_ps(-1.0f / 128));
}

/* The chains of a tile: in registers or on the stack, as the compiler sees fit. */
typedef __m256 chain_halves[INT_ROWS][2];

LANES_INLINE void chains_load(const struct tile *t, int R, chain_halves acc) {
    UNROLL for (int i = 0; i < 2 * R; i++) acc[i / 2][i % 2] = _mm256_load_ps(TILE_CHAINS(t, i / 2, 0) + i % 2 * 8);
}

LANES_INLINE void chains_keep(const struct tile *t, int R, chain_halves acc) {
    UNROLL for (int i = 0; i < 2 * R; i++) _mm256_store_ps(TILE_CHAINS(t, i / 2, 0) + i % 2 * 8, acc[i / 2][i % 2]);
}

LANES_INLINE __m256 chain_add(__m256 acc, __m256 value, const float *scale, __m256 d) {
    return _mm256_fmadd_ps(value, _mm256_mul_ps(_mm256_load_ps(scale), d), acc);
}

/* Keeps a sum in its register: compilers else reorder the additions, run out of registers and spill. */
#define KEEP(v) __asm__("" : "+x"(v))

/* Sums of one scale group of R rows: slabs [first, end). */
LANES_INLINE void small_sums(const struct tile *t, int R, uint32_t b, int first, int end, int part, int plain,
                             __m256i sum[][2]) {
    __m256i zero = _mm256_set1_epi16((short)-t->panel->codes.zero);
    UNROLL for (int r = 0; r < R; r++) {
        if (!plain) sum[r][0] = sum[r][1] = _mm256_mullo_epi16(splat_pair(act_at(t, r, b), part), zero);
    }
    UNROLL for (int s = first; s < end; s++) {
        const uint8_t *code = t->panel->codes.code[b][s];
        __m256i w0 = _mm256_load_si256((const __m256i *)code), w1 = _mm256_load_si256((const __m256i *)(code + 32));
        UNROLL for (int r = 0; r < R; r++) {
            __m256i q = splat_q(act_at(t, r, b), s);
            __m256i p0 = _mm256_maddubs_epi16(w0, q), p1 = _mm256_maddubs_epi16(w1, q);
            sum[r][0] = plain && s == first ? p0 : _mm256_add_epi16(sum[r][0], p0);
            sum[r][1] = plain && s == first ? p1 : _mm256_add_epi16(sum[r][1], p1);
            KEEP(sum[r][0]);
            KEEP(sum[r][1]);
        }
    }
}

LANES_INLINE void tile_small(const struct tile *t, int R, int cols, int plain, int mid, int has_min) {
    const __m256i ones = _mm256_set1_epi16(1);
    int sets = PACK_BLOCK / cols;
    chain_halves acc;
    chains_load(t, R, acc);
    for (uint32_t b = 0; b < t->blocks; b++) {
        UNROLL for (int g = 0; g < sets; g++) {
            __m256i sum[4][2];
            const float *scale = t->panel->scale[b * (uint32_t)sets + (uint32_t)g];
            small_sums(t, R, b, g * cols / 4, (g + 1) * cols / 4, sets == 1 ? 0 : 1 + g, plain, sum);
            UNROLL for (int r = 0; r < R; r++) {
                const struct act_block *a = act_at(t, r, b);
                __m256 d = _mm256_set1_ps(a->d), back = mid ? splat_sum(a, 0) : d;
                UNROLL for (int h = 0; h < 2; h++) {
                    __m256 value = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[r][h], ones));
                    if (mid) value = _mm256_fmadd_ps(back, _mm256_set1_ps(16), value);
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

LANES_INLINE void tile_bytes(const struct tile *t, int R) {
    const __m256i ones = _mm256_set1_epi16(1);
    chain_halves acc;
    chains_load(t, R, acc);
    for (uint32_t b = 0; b < t->blocks; b++) {
        __m256i sum[4][2];
        UNROLL for (int s = 0; s < 8; s++) {
            const __m256i *magnitude = (const __m256i *)t->panel->codes.code[b][s];
            const __m256i *weight = (const __m256i *)t->panel->codes.weight[b][s];
            UNROLL for (int r = 0; r < R; r++) {
                __m256i q = splat_q(act_at(t, r, b), s);
                UNROLL for (int h = 0; h < 2; h++) {
                    __m256i signed_q = _mm256_sign_epi8(q, _mm256_load_si256(weight + h));
                    __m256i p = _mm256_maddubs_epi16(_mm256_load_si256(magnitude + h), signed_q);
                    p = _mm256_madd_epi16(p, ones);
                    sum[r][h] = s ? _mm256_add_epi32(sum[r][h], p) : p;
                    KEEP(sum[r][h]);
                }
            }
        }
        UNROLL for (int r = 0; r < R; r++) {
            __m256 d = _mm256_set1_ps(act_at(t, r, b)->d);
            UNROLL for (int h = 0; h < 2; h++) acc[r][h] =
                chain_add(acc[r][h], _mm256_cvtepi32_ps(sum[r][h]), t->panel->scale[b] + 8 * h, d);
        }
    }
    chains_keep(t, R, acc);
}

/* One function per shape and number of rows. */
#define TILE(name, rows, call)                                                                                         \
    static void name##_##rows(const struct tile *t) {                                                                  \
        const int R = rows;                                                                                            \
        call;                                                                                                          \
    }
#define TILES(name, call) TILE(name, 1, call) TILE(name, 2, call) TILE(name, 3, call) TILE(name, 4, call)
TILES(small_32, tile_small(t, R, 32, 0, 0, 0))
TILES(plain_32_min, tile_small(t, R, 32, 1, 0, 1))
TILES(mid_32_min, tile_small(t, R, 32, 0, 1, 1))
TILES(small_16, tile_small(t, R, 16, 0, 0, 0))
TILES(plain_16_min, tile_small(t, R, 16, 1, 0, 1))
TILES(bytes, tile_bytes(t, R))

#define ALL(name)                                                                                                      \
    { name##_1, name##_2, name##_3, name##_4 }
static const tile_fn tiles[SHAPES][INT_ROWS] = {
    [SHAPE_SMALL_32] = ALL(small_32), [SHAPE_PLAIN_32_MIN] = ALL(plain_32_min), [SHAPE_MID_32_MIN] = ALL(mid_32_min),
    [SHAPE_SMALL_16] = ALL(small_16), [SHAPE_PLAIN_16_MIN] = ALL(plain_16_min), [SHAPE_BYTES] = ALL(bytes)};

static tile_fn tile_find(const struct packed *w, uint32_t n_groups, uint32_t n_rows) {
    return tiles[shape_of(w)][n_rows - 1];
}

/* ---- Activations ---- */

/* Largest magnitude of 32 floats as bits: bits order like values, infinities and NaNs above all numbers. */
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

/* 32 rounded values of x * inverse as bytes, in order. */
static __m256i quantise(const float *x, float inverse) {
    __m256i v[4];
    UNROLL for (int i = 0; i < 4; i++) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse)));
    }
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sums of 16 bytes by column modulo 4: columns 0, 1 in element 0 and columns 2, 3 in element 1. */
static __m128i pair_sums(__m128i q) {
    __m128i v = _mm_maddubs_epi16(_mm_set1_epi8(1), q);
    v = _mm_add_epi16(v, _mm_shuffle_epi32(v, 0x4e));
    return _mm_add_epi16(v, _mm_shuffle_epi32(v, 0xb1));
}

static void block_prepare(struct act_block *a, const float *x) {
    uint32_t bits = largest_bits(x);
    float amax, d = 0;
    memcpy(&amax, &bits, sizeof amax);
    float inverse = 127 / amax;
    __m256i q = _mm256_setzero_si256();
    if (bits >= 0x7f800000) {
        d = __builtin_nanf("");
    } else if (inverse <= 0x1.fffffep127f) {
        d = amax / 127;
        q = quantise(x, inverse);
    }
    _mm256_storeu_si256((__m256i *)a->q, q);
    __m128i pairs[2] = {pair_sums(_mm256_castsi256_si128(q)), pair_sums(_mm256_extracti128_si256(q, 1))};
    int32_t sum[3] = {0};
    for (int i = 0; i < 2; i++) {
        int32_t both = _mm_cvtsi128_si32(pairs[i]);
        memcpy(a->pair[1 + i], &both, sizeof both);
        sum[1 + i] = a->pair[1 + i][0] + a->pair[1 + i][1];
        a->start[1 + i] = -128 * sum[1 + i];
    }
    sum[0] = sum[1] + sum[2];
    a->start[0] = -128 * sum[0];
    for (int i = 0; i < 2; i++) a->pair[0][i] = (int16_t)(a->pair[1][i] + a->pair[2][i]);
    a->d = d;
    a->d_sum = d * (float)sum[0];
}

static void act_prepare(enum pack_kind kind, void *act, const float *x, uint32_t cols) {
    if (kind == PACK_FLOAT) {
        memcpy(act, x, (size_t)cols * sizeof(float));
        return;
    }
    for (uint32_t b = 0; b < cols / PACK_BLOCK; b++)
        block_prepare((struct act_block *)act + b, x + (size_t)b * PACK_BLOCK);
}

void kernels_matmul_avx2(struct kernels *k) {
    k->act_prepare = act_prepare;
    k->matmul = matmul;
}
