/* Matrix products for AVX-512 with VNNI: the bits of matmul_ref.c. Reentrant, no allocation.
 *
 * vpdpbusd adds four products of unsigned and signed bytes to an int32, exactly. The panel holds every weight as
 * w + 128, whatever its type, and a sum starts at -128 * (sum of q), so that one kernel serves all types. Activations
 * are prepared by the AVX2 level. */
#include "backend/cpu/lanes_avx512.h"

#include "backend/cpu/pack.h"

enum { PASS_GROUPS = 2, INT_GROUPS = 2, INT_ROWS = 6 };

struct panel_codes {
    const uint8_t *at; /* [block][slab][64]: `room`, or the packed weights themselves if they are w + 128 */
    _Alignas(64) uint8_t room[PACK_SUPER * 512];
};

LANES_INLINE lanes lanes_load_bf16(const uint16_t *p) {
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

/* Sixteen factors of scales or minima. */
LANES_INLINE lanes lanes_load_factor(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

#include "backend/cpu/matmul_lanes.h"

/* ---- Unpacking ---- */

/* A slab of a plane of `width` bits (the layout in pack.h), its bits moved to `to`. */
LANES_INLINE __m512i plane_slab(const uint8_t *plane, int width, int slab, int to) {
    int from = slab / width * width;
    __m512i v = _mm512_loadu_si512(plane + 64 * (slab % width));
    if (from > to) v = _mm512_srli_epi16(v, (unsigned)(from - to));
    if (from < to) v = _mm512_slli_epi16(v, (unsigned)(to - from));
    return _mm512_and_si512(v, _mm512_set1_epi8((char)(((1 << width) - 1) << to)));
}

LANES_INLINE __m512i slab_codes(const uint8_t *block, int bits, int slab) {
    if (bits == 2) return plane_slab(block, 2, slab, 0);
    if (bits == 3) return _mm512_or_si512(plane_slab(block, 2, slab, 0), plane_slab(block + 128, 1, slab, 2));
    __m512i low = plane_slab(block, 4, slab, 0);
    if (bits == 5) low = _mm512_or_si512(low, plane_slab(block + 256, 1, slab, 4));
    if (bits == 6) low = _mm512_or_si512(low, plane_slab(block + 256, 2, slab, 4));
    return low;
}

/* `table`: the weights of the codes, or NULL: code - zero. */
LANES_INLINE void unpack(struct panel *p, const uint8_t *from, uint32_t blocks, int bits, int zero,
                         const int8_t *table) {
    __m512i weights = table ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)) : _mm512_setzero_si512();
    __m512i offset = _mm512_set1_epi8((char)(128 - zero));
    size_t bytes = (size_t)64 * (size_t)bits;
    for (uint32_t b = 0; b < blocks; b++, from += bytes) {
        UNROLL for (int s = 0; s < 8; s++) {
            __m512i v = slab_codes(from, bits, s);
            if (table) v = _mm512_shuffle_epi8(weights, v);
            _mm512_storeu_si512(p->codes.room + (size_t)b * 512 + 64 * s, _mm512_add_epi8(v, offset));
        }
    }
}

static void codes_prepare(const struct packed *w, struct panel *p, const uint8_t *from, uint32_t blocks,
                          uint32_t n_rows) {
    const struct pack_form *f = w->form;
    p->codes.at = f->bits == 8 ? from : p->codes.room;
    if (f->codebook) {
        unpack(p, from, blocks, 4, 0, f->codebook);
        return;
    }
    switch (f->bits) {
    case 2:
        unpack(p, from, blocks, 2, f->zero, NULL);
        break;
    case 3:
        unpack(p, from, blocks, 3, f->zero, NULL);
        break;
    case 4:
        unpack(p, from, blocks, 4, f->zero, NULL);
        break;
    case 5:
        unpack(p, from, blocks, 5, f->zero, NULL);
        break;
    case 6:
        unpack(p, from, blocks, 6, f->zero, NULL);
        break;
    }
}

/* ---- Products ---- */

LANES_INLINE __m512i splat_q(const struct act_block *a, int slab) {
    int32_t four;
    memcpy(&four, a->q + 4 * slab, 4);
    return _mm512_set1_epi32(four);
}

/* float(sum of q) of a part, exactly. */
LANES_INLINE lanes splat_sum(const struct act_block *a, int part) {
    /* Negated as an integer: a sum of zero stays +0, as the reference has it. */
    return lanes_mul(_mm512_cvtepi32_ps(_mm512_set1_epi32(-a->start[part])), lanes_splat(1.0f / 128));
}

/* Adds a scale group to the chains: slabs [first, end), whose sums start at `part`, and set `set` of the scales. */
TILE_INLINE void add_scale_group(const struct tile *t, int R, int G, uint32_t b, int first, int end, int part,
                                 uint32_t set, lanes acc[][INT_GROUPS]) {
    __m512i sum[INT_ROWS][INT_GROUPS], w[INT_GROUPS];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int g = 0; g < G; g++) sum[r][g] = _mm512_set1_epi32(act_at(t, r, b)->start[part]);
    }
    UNROLL for (int s = first; s < end; s++) {
        UNROLL for (int g = 0; g < G; g++) w[g] = _mm512_loadu_si512(t->panel[g].codes.at + b * 512 + 64 * s);
        UNROLL for (int r = 0; r < R; r++) {
            __m512i q = splat_q(act_at(t, r, b), s);
            UNROLL for (int g = 0; g < G; g++) sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], w[g], q);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        lanes d = lanes_splat(act_at(t, r, b)->d);
        UNROLL for (int g = 0; g < G; g++) {
            lanes scale = lanes_mul(lanes_load(t->panel[g].scale[set]), d);
            acc[r][g] = lanes_fma(_mm512_cvtepi32_ps(sum[r][g]), scale, acc[r][g]);
        }
    }
}

TILE_INLINE void tile(const struct tile *t, int R, int G, int cols, int has_min) {
    int sets = PACK_BLOCK / cols;
    lanes acc[INT_ROWS][INT_GROUPS];
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int g = 0; g < G; g++) acc[r][g] = lanes_load(TILE_FROM(t, r, g));
    }
    for (uint32_t b = 0; b < t->blocks; b++) {
        UNROLL for (int g = 0; g < G; g++) tile_prefetch(t, g, b);
        UNROLL for (int i = 0; i < sets; i++) {
            uint32_t set = b * (uint32_t)sets + (uint32_t)i;
            add_scale_group(t, R, G, b, i * cols / 4, (i + 1) * cols / 4, sets == 1 ? 0 : 1 + i, set, acc);
        }
        if (!has_min) continue;
        UNROLL for (int i = 0; i < sets; i++) {
            uint32_t set = b * (uint32_t)sets + (uint32_t)i;
            UNROLL for (int r = 0; r < R; r++) {
                const struct act_block *a = act_at(t, r, b);
                lanes d_sum = sets == 1 ? lanes_splat(a->d_sum) : lanes_mul(lanes_splat(a->d), splat_sum(a, 1 + i));
                UNROLL for (int g = 0; g < G; g++) acc[r][g] =
                    lanes_fma(lanes_load(t->panel[g].minimum[set]), d_sum, acc[r][g]);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) { UNROLL for (int g = 0; g < G; g++) lanes_store(TILE_TO(t, r, g), acc[r][g]); }
}

/* One function per scale group's width, minima or not, output groups and rows. */
#define TILE(name, rows, groups, cols, has_min)                                                                        \
    static void name##_##groups##_##rows(const struct tile *t) { tile(t, rows, groups, cols, has_min); }
#define TILES(name, groups, cols, has_min)                                                                             \
    TILE(name, 1, groups, cols, has_min)                                                                               \
    TILE(name, 2, groups, cols, has_min)                                                                               \
    TILE(name, 3, groups, cols, has_min)                                                                               \
    TILE(name, 4, groups, cols, has_min)                                                                               \
    TILE(name, 5, groups, cols, has_min)                                                                               \
    TILE(name, 6, groups, cols, has_min)
#define SHAPE(name, cols, has_min) TILES(name, 1, cols, has_min) TILES(name, 2, cols, has_min)
SHAPE(plain_32, 32, 0)
SHAPE(plain_16, 16, 0)
SHAPE(min_32, 32, 1)
SHAPE(min_16, 16, 1)

#define ROWS_OF(name)                                                                                                  \
    { name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 }
#define GROUPS_OF(name)                                                                                                \
    { ROWS_OF(name##_1), ROWS_OF(name##_2) }
static const tile_fn tiles[2][2][INT_GROUPS][INT_ROWS] = {{GROUPS_OF(plain_32), GROUPS_OF(plain_16)},
                                                          {GROUPS_OF(min_32), GROUPS_OF(min_16)}};

static tile_fn tile_find(const struct packed *w, const struct panel *p, uint32_t n_groups, uint32_t n_rows) {
    return tiles[w->form->has_min][w->form->scale_cols == 16][n_groups - 1][n_rows - 1];
}

void kernels_matmul_avx512(struct kernels *k) { k->matmul = matmul; }
