/* Packing and matrix products: every type, every level against the reference, bit by bit; packing against
 * dequantising, dequantising against stored values; and that the comparison would notice a reordered sum. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/act.h"
#include "backend/cpu/kernels.h"
#include "kernel_check.h"

static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,   DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,
                                   DTYPE_Q5_1, DTYPE_Q8_0,   DTYPE_Q2_K,   DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K,
                                   DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
enum { TYPES = sizeof types / sizeof *types };

/* ---- Levels ---- */

struct level {
    const char *name;
    struct kernels k;
};
static struct level levels[6];
static int n_levels;

#ifdef COHORT_EMULATED
void kernels_matmul_avxvnni_emulated(struct kernels *k);
void kernels_matmul_avx512_emulated(struct kernels *k);
#endif

static void level_add(const char *name, void (*base)(struct kernels *), void (*fill)(struct kernels *)) {
    struct level *l = &levels[n_levels++];
    l->name = name;
    kernels_matmul_ref(&l->k);
    if (base) base(&l->k);
    if (fill) fill(&l->k);
}

static void levels_find(void) {
    level_add("ref", NULL, NULL);
#ifdef __x86_64__
    if (!kernels_available("avx2")) return;
    level_add("avx2", NULL, kernels_matmul_avx2);
    if (kernels_available("avxvnni")) level_add("avxvnni", kernels_matmul_avx2, kernels_matmul_avxvnni);
    if (kernels_available("avx512")) level_add("avx512", kernels_matmul_avx2, kernels_matmul_avx512);
#ifdef COHORT_EMULATED
    level_add("avxvnni emulated", kernels_matmul_avx2, kernels_matmul_avxvnni_emulated);
    level_add("avx512 emulated", kernels_matmul_avx2, kernels_matmul_avx512_emulated);
#endif
#endif
#ifdef __aarch64__
    if (kernels_available("neon")) level_add("neon", NULL, kernels_matmul_neon);
#endif
}

/* ---- Weights ---- */

enum weights { WEIGHTS_PLAIN, WEIGHTS_LARGEST, WEIGHTS_ANY_BITS, WEIGHTS_KINDS };

struct file_matrix {
    enum dtype type;
    uint32_t rows, cols;
    size_t row_bytes, bytes;
    uint8_t *data;
};

/* Where a block's f16 numbers are, behind each other; -1: none. */
static int halves_at(enum dtype type, int *n) {
    *n = type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || type == DTYPE_Q2_K || type == DTYPE_Q4_K || type == DTYPE_Q5_K ? 2
                                                                                                                    : 1;
    switch (type) {
    case DTYPE_Q2_K:
        return 80;
    case DTYPE_Q3_K:
        return 108;
    case DTYPE_Q6_K:
        return 208;
    case DTYPE_MXFP4:
        return -1;
    default:
        return 0;
    }
}

/* Random blocks. PLAIN: scales of ordinary size. LARGEST: also all codes at one end, per block. ANY_BITS: any scales.
 */
static void blocks_fill(struct file_matrix *m, enum weights kind) {
    const struct dtype_info *info = dtype_info(m->type);
    for (size_t at = 0; at < m->bytes; at += info->block_bytes) {
        uint8_t *block = m->data + at;
        int ends = kind == WEIGHTS_LARGEST ? (int)check_below(4) : 2;
        for (uint32_t i = 0; i < info->block_bytes; i++)
            block[i] = ends == 0                            ? 0
                       : ends == 1                          ? 0xff
                       : ends == 3 && m->type == DTYPE_Q8_0 ? 0x80
                                                            : (uint8_t)check_random();
        if (kind == WEIGHTS_ANY_BITS) continue;
        int n, offset = halves_at(m->type, &n);
        if (offset < 0) block[0] = (uint8_t)(120 + check_below(10));
        for (int i = 0; offset >= 0 && i < n; i++) {
            uint16_t half = (uint16_t)(0x2000 + check_below(0x1000) + 0x8000 * check_below(2));
            memcpy(block + offset + 2 * i, &half, 2);
        }
    }
}

static void floats_fill(struct file_matrix *m, enum weights kind) {
    size_t size = dtype_info(m->type)->block_bytes;
    for (size_t at = 0; at < m->bytes; at += size) {
        float x = kind == WEIGHTS_LARGEST ? 3e38f : check_uniform();
        uint32_t bits = kind == WEIGHTS_ANY_BITS ? check_random() : check_bits(x);
        uint16_t narrow =
            (uint16_t)(m->type == DTYPE_BF16 || kind == WEIGHTS_ANY_BITS ? bits >> 16 : 0x2c00 + (bits & 0x83ff));
        memcpy(m->data + at, size == 4 ? (void *)&bits : (void *)&narrow, size);
    }
}

static struct file_matrix matrix_new(enum dtype type, uint32_t rows, uint32_t cols, enum weights kind) {
    const struct dtype_info *info = dtype_info(type);
    struct file_matrix m = {.type = type, .rows = rows, .cols = cols};
    m.row_bytes = (size_t)cols / info->block_elements * info->block_bytes;
    m.bytes = rows * m.row_bytes;
    m.data = check_alloc(m.bytes);
    if (info->block_elements == 1)
        floats_fill(&m, kind);
    else
        blocks_fill(&m, kind);
    return m;
}

static struct packed matrix_pack(const struct file_matrix *m) {
    struct packed p;
    assert_int_equal(pack_plan(&p, m->type, m->rows, m->cols), 0);
    assert_int_equal(p.group_bytes % 64, 0);
    p.data = check_alloc(p.groups * p.group_bytes); /* ends at a page's end and is a multiple of 64: aligned */
    for (uint32_t g = p.groups; g-- > 0;) pack_group(&p, m->data, g);
    return p;
}

static void packed_free(struct packed *p) { check_free(p->data, p->groups * p->group_bytes); }

/* ---- Packing ---- */

/* Random blocks, dequantised once by the format's own Python package and boiled down to one number per type: FNV-1a
 * over the 2,048 values' bits, zeros without sign, NaN as 7fc00000. */
static const struct {
    enum dtype type;
    uint64_t hash;
} dequantised[] = {
    {DTYPE_F32, 0x7200106f61aa9eb0},   {DTYPE_F16, 0x6944fe5e47568325},    {DTYPE_BF16, 0x1e32b279c9d0c325},
    {DTYPE_Q4_0, 0x7c414edd5f376b25},  {DTYPE_Q4_1, 0xcad74c2539a1a95c},   {DTYPE_Q5_0, 0x09c44f2405233725},
    {DTYPE_Q5_1, 0x17a616ef782638df},  {DTYPE_Q8_0, 0xb3a41d1ca612c725},   {DTYPE_Q2_K, 0xc9c93c3caa57cb72},
    {DTYPE_Q3_K, 0xa5fd805b712b17a5},  {DTYPE_Q4_K, 0xffad63c42af820f3},   {DTYPE_Q5_K, 0xd13dc31c538489d7},
    {DTYPE_Q6_K, 0xdd9fd9e3a264663d},  {DTYPE_IQ4_NL, 0x8903ef1a101587a5}, {DTYPE_IQ4_XS, 0xe8a6aa3c6e43bc89},
    {DTYPE_MXFP4, 0x1db30747d1aec325},
};

static void test_dequantised_values(void **state) {
    enum { VALUES = 2048 };
    assert_int_equal(sizeof dequantised / sizeof *dequantised, TYPES);
    for (int t = 0; t < TYPES; t++) {
        const struct dtype_info *info = dtype_info(dequantised[t].type);
        uint8_t blocks[VALUES * 4];
        float values[VALUES];
        uint64_t bits = 88172645463325252, hash = 14695981039346656037u;
        for (size_t i = 0; i < VALUES / info->block_elements * info->block_bytes; i++) {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            blocks[i] = (uint8_t)(bits >> 32);
        }
        dequant_row(dequantised[t].type, blocks, 0, VALUES, values);
        for (int i = 0; i < VALUES; i++)
            hash = (hash ^ (isnan(values[i]) ? 0x7fc00000 : check_bits(values[i] + 0.0f))) * 1099511628211u;
        if (hash != dequantised[t].hash) fail_msg("%s: other values", info->name);
    }
}

static void test_packed_is_the_file(void **state) {
    for (int t = 0; t < TYPES; t++) {
        uint32_t block = dtype_info(types[t])->block_elements;
        for (int size = 0; size < 6; size++) {
            uint32_t rows = (uint32_t[]){1, 15, 16, 17, 33, 40}[size],
                     cols = (block == 1 ? 7 : block) * (1 + (uint32_t)size);
            struct file_matrix m = matrix_new(types[t], rows, cols, WEIGHTS_PLAIN);
            struct packed p = matrix_pack(&m);
            float *row = check_alloc(cols * sizeof(float));
            for (uint32_t r = 0; r < rows; r++) {
                dequant_row(types[t], m.data, r, cols, row);
                uint32_t o = r % PACK_OUTPUTS;
                for (uint32_t c = 0; c < cols; c++) {
                    float want;
                    if (p.kind == PACK_FLOAT) {
                        float column[PACK_OUTPUTS];
                        pack_read_column(&p, r / PACK_OUTPUTS, c, column);
                        want = column[o];
                    } else {
                        struct pack_values v;
                        pack_read_block(&p, r / PACK_OUTPUTS, c / PACK_BLOCK, &v);
                        uint32_t i = c % PACK_BLOCK, set = i / p.form->scale_cols;
                        want = (float)v.weight[i][o] * v.scale[set][o];
                        if (p.form->has_min) want += v.minimum[set][o];
                    }
                    if (check_bits(want) != check_bits(row[c]))
                        fail_msg("%s: row %u, column %u of %u", dtype_info(types[t])->name, r, c, cols);
                }
            }
            check_free(row, cols * sizeof(float));
            check_free(m.data, m.bytes);
            packed_free(&p);
        }
    }
}

static void test_plan_refuses(void **state) {
    struct packed p;
    assert_int_equal(pack_plan(&p, DTYPE_Q8_0, 4, 48), -2);
    assert_int_equal(pack_plan(&p, DTYPE_Q4_K, 4, 128), -2);
    assert_int_equal(pack_plan(&p, DTYPE_IQ2_XS, 4, 256), -1);
    assert_int_equal(pack_plan(&p, DTYPE_I32, 4, 256), -1);
    assert_int_equal(pack_plan(&p, (enum dtype)63, 4, 256), -1);
    assert_int_equal(pack_plan(&p, DTYPE_F16, 4, 47), 0);
    assert_false(dequant_supported(DTYPE_Q8_1));
}

/* ---- Activations ---- */

static void check_act(const float *x, uint32_t cols) {
    size_t bytes = levels[0].k.act_bytes(PACK_INT, cols);
    struct act_block *want = check_alloc(bytes);
    levels[0].k.act_prepare(PACK_INT, want, x, cols);
    for (int l = 1; l < n_levels; l++) {
        struct act_block *got = check_alloc(bytes);
        levels[l].k.act_prepare(PACK_INT, got, x, cols);
        for (uint32_t b = 0; b < cols / 32; b++) {
            char message[128];
            if (memcmp(got[b].q, want[b].q, 32) || memcmp(got[b].start, want[b].start, sizeof want->start) ||
                memcmp(got[b].pair, want[b].pair, sizeof want->pair) || !check_same(&want[b].d, &got[b].d, 2, message))
                fail_msg("%s: activations of block %u, %a ...", levels[l].name, b, (double)x[32 * b]);
        }
        check_free(got, bytes);
    }
    check_free(want, bytes);
}

static void test_activations(void **state) {
    for (int round = 0; round < 200; round++)
        for (int kind = 0; kind < CHECK_NUMBERS; kind++) {
            uint32_t cols = 32 * (1 + check_below(9));
            float *x = check_alloc(cols * sizeof *x);
            check_fill(x, cols, kind);
            if (round % 4 == 0) /* sizes around the smallest that still counts, and one block of zeros */
                for (uint32_t i = 0; i < cols; i++) x[i] = i < 32 ? 0 : ldexpf(x[i], -116 - (int)(i / 32));
            check_act(x, cols);
            check_free(x, cols * sizeof *x);
        }
}

static void test_activation_values(void **state) {
    float x[32] = {0}, tiny[32] = {0};
    struct act_block a;
    for (int i = 0; i < 32; i++) x[i] = (float)(i - 16) / 8;
    for (int l = 0; l < n_levels; l++) {
        levels[l].k.act_prepare(PACK_INT, &a, x, 32);
        assert_true(a.d == 2.0f / 127);
        assert_int_equal(a.q[0], -127);
        assert_int_equal(a.q[16], 0);
        assert_int_equal(a.q[20], 32); /* 31.75 */
        assert_int_equal(a.q[18], 16); /* 15.875 */
        assert_int_equal(a.start[0], -128 * (a.pair[0][0] + a.pair[0][1]));
        assert_int_equal(a.pair[1][0] + a.pair[2][0], a.pair[0][0]);
        tiny[3] = 0x1p-125f; /* 127 / x overflows */
        levels[l].k.act_prepare(PACK_INT, &a, tiny, 32);
        assert_true(a.d == 0 && a.q[3] == 0);
        tiny[3] = -INFINITY;
        levels[l].k.act_prepare(PACK_INT, &a, tiny, 32);
        assert_true(isnan(a.d) && a.q[3] == 0 && isnan(a.d_sum));
    }
}

/* ---- Products ---- */

struct rows {
    uint32_t n;
    size_t act_stride, act_bytes;
    char *acts;
};

static struct rows rows_new(const struct level *l, const struct packed *p, uint32_t n, const float *x) {
    struct rows r = {.n = n, .act_stride = (l->k.act_bytes(p->kind, p->cols) + 63) & ~(size_t)63};
    r.act_bytes = r.act_stride * n;
    r.acts = check_alloc(r.act_bytes);
    for (uint32_t i = 0; i < n; i++)
        l->k.act_prepare(p->kind, r.acts + i * r.act_stride, x + (size_t)i * p->cols, p->cols);
    return r;
}

/* The product of n rows at a level, in `cuts` calls over parts of the groups; y has exactly n * stride floats less what
 * the last row does not use, and what lies between rows must stay. */
static float *product(const struct level *l, const struct packed *p, uint32_t n, const float *x, size_t stride,
                      uint32_t cuts) {
    size_t floats = (n - 1) * stride + p->rows;
    float *y = check_alloc(floats * sizeof *y);
    for (size_t i = 0; i < floats; i++) y[i] = 1234.5f;
    struct rows r = rows_new(l, p, n, x);
    for (uint32_t c = cuts; c-- > 0;)
        l->k.matmul(p, p->groups * c / cuts, p->groups * (c + 1) / cuts, r.acts, r.act_stride, n, y, stride);
    check_free(r.acts, r.act_bytes);
    return y;
}

static void check_product(const struct packed *p, uint32_t n, const float *x, const char *what) {
    size_t stride = p->rows + check_below(5), floats = (n - 1) * stride + p->rows;
    float *want = product(&levels[0], p, n, x, stride, 1);
    for (uint32_t r = 0; r + 1 < n; r++)
        for (size_t i = p->rows; i < stride; i++) assert_true(want[r * stride + i] == 1234.5f);
    for (int l = 1; l < n_levels; l++) {
        float *got = product(&levels[l], p, n, x, stride, 1 + check_below(3));
        char message[128];
        if (!check_same(want, got, floats, message))
            fail_msg("%s %s, %u rows, %u x %u, %s: %s", dtype_info(p->type)->name, what, n, p->rows, p->cols,
                     levels[l].name, message);
        check_free(got, floats * sizeof *got);
    }
    check_free(want, floats * sizeof *want);
}

static void check_shape(enum dtype type, uint32_t rows, uint32_t cols, uint32_t n, enum weights weights,
                        enum check_numbers numbers, const char *what) {
    struct file_matrix m = matrix_new(type, rows, cols, weights);
    struct packed p = matrix_pack(&m);
    size_t count = (size_t)n * cols;
    float *x = check_alloc(count * sizeof *x);
    check_fill(x, count, numbers);
    if (weights == WEIGHTS_LARGEST) /* every q is 127 or -127 */
        for (size_t i = 0; i < count; i++) x[i] = i / 32 % 3 == 2 && i % 5 == 0 ? -1 : i / 32 % 3 ? 1 : -1;
    check_product(&p, n, x, what);
    check_free(x, count * sizeof *x);
    check_free(m.data, m.bytes);
    packed_free(&p);
}

/* Columns: 1, 2, 3, 9 and 19 blocks cover whole, ragged and several panels; float types also take odd ones. */
static uint32_t cols_at(enum dtype type, uint32_t i) {
    uint32_t block = dtype_info(type)->block_elements;
    if (block == 1) return (uint32_t[]){1, 7, 33, 64, 257}[i];
    return (block == 256 ? (uint32_t[]){1, 2, 3, 2, 1}[i] : (uint32_t[]){1, 2, 3, 9, 19}[i]) * block;
}

static void test_products_of_every_row_count(void **state) {
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 67, 130};
    for (int t = 0; t < TYPES; t++)
        for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
            check_shape(types[t], (uint32_t[]){33, 16, 47}[i % 3], cols_at(types[t], i % 5), rows[i], WEIGHTS_PLAIN,
                        CHECK_PLAIN, "plain");
}

static void test_products_of_every_output_count(void **state) {
    static const uint32_t outputs[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 65};
    for (int t = 0; t < TYPES; t++)
        for (uint32_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
            check_shape(types[t], outputs[i], cols_at(types[t], i % 5), 1 + i % 8, WEIGHTS_PLAIN, CHECK_PLAIN, "plain");
}

static void test_products_at_the_limits(void **state) {
    for (int t = 0; t < TYPES; t++)
        for (uint32_t i = 0; i < 12; i++) {
            uint32_t cols = cols_at(types[t], i % 5), n = 1 + i;
            check_shape(types[t], 32, cols, n, WEIGHTS_LARGEST, CHECK_PLAIN, "largest weights");
            check_shape(types[t], 17, cols, n, WEIGHTS_ANY_BITS, CHECK_PLAIN, "any weights");
            check_shape(types[t], 17, cols, n, WEIGHTS_ANY_BITS, CHECK_EXTREME, "any weights, extreme rows");
            check_shape(types[t], 33, cols, n, WEIGHTS_PLAIN, CHECK_WIDE, "wide rows");
            check_shape(types[t], 33, cols, n, WEIGHTS_PLAIN, CHECK_EXTREME, "extreme rows");
        }
}

static void test_no_rows_no_groups(void **state) {
    struct file_matrix m = matrix_new(DTYPE_Q8_0, 16, 32, WEIGHTS_PLAIN);
    struct packed p = matrix_pack(&m);
    for (int l = 0; l < n_levels; l++) {
        levels[l].k.matmul(&p, 0, 1, NULL, 64, 0, NULL, 16);
        levels[l].k.matmul(&p, 1, 1, NULL, 64, 5, NULL, 16);
    }
    check_free(m.data, m.bytes);
    packed_free(&p);
}

/* The order is the contract: adding the blocks in descending order must give other bits, or the checks above would not
 * notice a kernel that does so. */
static void test_a_reordered_sum_is_noticed(void **state) {
    enum { COLS = 320, OUTPUTS = 16 };
    struct file_matrix m = matrix_new(DTYPE_Q8_0, OUTPUTS, COLS, WEIGHTS_PLAIN), turned = m;
    float x[COLS], x_turned[COLS];
    char message[128];
    check_fill(x, COLS, CHECK_PLAIN);
    turned.data = check_alloc(m.bytes);
    for (size_t b = 0; b < COLS / 32; b++) {
        memcpy(x_turned + (COLS / 32 - 1 - b) * 32, x + b * 32, 32 * sizeof *x);
        for (size_t r = 0; r < OUTPUTS; r++)
            memcpy(turned.data + r * m.row_bytes + (COLS / 32 - 1 - b) * 34, m.data + r * m.row_bytes + b * 34, 34);
    }
    struct packed p = matrix_pack(&m), q = matrix_pack(&turned);
    for (int l = 0; l < n_levels; l++) {
        float *a = product(&levels[l], &p, 1, x, OUTPUTS, 1), *b = product(&levels[l], &q, 1, x_turned, OUTPUTS, 1);
        assert_false(check_same(a, b, OUTPUTS, message));
        for (int i = 0; i < OUTPUTS; i++) assert_true(fabsf(a[i] - b[i]) < 1e-3f);
        check_free(a, OUTPUTS * sizeof *a);
        check_free(b, OUTPUTS * sizeof *b);
    }
    check_free(m.data, m.bytes);
    check_free(turned.data, m.bytes);
    packed_free(&p);
    packed_free(&q);
}

/* The reference itself: close to the product of dequantised weights and rows in double. */
static void test_reference_is_a_product(void **state) {
    for (int t = 0; t < TYPES; t++) {
        uint32_t cols = cols_at(types[t], 2), rows = 20;
        struct file_matrix m = matrix_new(types[t], rows, cols, WEIGHTS_PLAIN);
        struct packed p = matrix_pack(&m);
        float *x = check_alloc(cols * sizeof *x), *w = check_alloc(cols * sizeof *w);
        check_fill(x, cols, CHECK_PLAIN);
        float *y = product(&levels[0], &p, 1, x, rows, 1);
        for (uint32_t r = 0; r < rows; r++) {
            double want = 0, size = 0;
            dequant_row(types[t], m.data, r, cols, w);
            for (uint32_t i = 0; i < cols; i++) {
                want += (double)w[i] * x[i];
                size += fabs((double)w[i]) * 4; /* a row's numbers are below 4 */
            }
            assert_true(fabs(y[r] - want) <= size * (p.kind == PACK_INT ? 1.0 / 254 : 1e-6));
        }
        check_free(y, rows * sizeof *y);
        check_free(x, cols * sizeof *x);
        check_free(w, cols * sizeof *w);
        check_free(m.data, m.bytes);
        packed_free(&p);
    }
}

int main(void) {
    levels_find();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequantised_values),
        cmocka_unit_test(test_packed_is_the_file),
        cmocka_unit_test(test_plan_refuses),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_activation_values),
        cmocka_unit_test(test_reference_is_a_product),
        cmocka_unit_test(test_products_of_every_row_count),
        cmocka_unit_test(test_products_of_every_output_count),
        cmocka_unit_test(test_products_at_the_limits),
        cmocka_unit_test(test_no_rows_no_groups),
        cmocka_unit_test(test_a_reordered_sum_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
