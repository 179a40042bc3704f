/* Every vector kernel at every level against the reference, bit by bit: ragged sizes, extreme values, buffers whose
 * ends are guarded. Attention has check_attend.c, accuracy check_accuracy.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/half.h"
#include "base/logits.h"
#include "kernel_check.h"
#include "vector_levels.h"

static struct vector_level levels[VECTOR_LEVELS_MAX];
static int n_levels;

/* 0 .. 70, then sizes around tiles. */
static const uint32_t large_sizes[] = {127, 128, 640, 1023, 4095, 4096, 4097, 8191, 8192, 8209, 20001};
enum { SIZES = 71 + sizeof large_sizes / sizeof *large_sizes };
static uint32_t size_at(int i) { return i < 71 ? (uint32_t)i : large_sizes[i - 71]; }

/* One operation over n values: `a` and `b` are inputs, `y` the output, which begins as a copy of `a`. */
typedef void (*operation)(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n);

static void check_operation(const char *what, operation run, uint32_t smallest) {
    for (int s = 0; s < SIZES; s++) {
        uint32_t n = size_at(s);
        if (n < smallest) continue;
        for (int kind = 0; kind < CHECK_NUMBERS; kind++) {
            size_t bytes = n * sizeof(float);
            float *a = check_alloc(bytes), *b = check_alloc(bytes), *want = check_alloc(bytes);
            check_fill(a, n, kind);
            check_fill(b, n, kind);
            memcpy(want, a, bytes);
            run(&levels[0].k, want, a, b, n);
            for (int l = 1; l < n_levels; l++) {
                float *got = check_alloc(bytes);
                char message[128];
                memcpy(got, a, bytes);
                run(&levels[l].k, got, a, b, n);
                if (!check_same(want, got, n, message))
                    fail_msg("%s, %s, numbers %d: %s", what, levels[l].name, kind, message);
                memcpy(got, a, bytes);
                run(&levels[l].k, got, got, b, n); /* in place */
                if (!check_same(want, got, n, message))
                    fail_msg("%s in place, %s, numbers %d: %s", what, levels[l].name, kind, message);
                check_free(got, bytes);
            }
            check_free(a, bytes);
            check_free(b, bytes);
            check_free(want, bytes);
        }
    }
}

static void norm(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->norm(y, a, b, n, 1e-6f);
}
static void silu(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->glu(y, a, b, n, ACT_SILU);
}
static void gelu(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->glu(y, a, b, n, ACT_GELU_TANH);
}
static void sigmoid_product(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->glu(y, a, b, n, ACT_SIGMOID);
}
static void product(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->glu(y, a, b, n, ACT_NONE);
}
static void act_silu(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->act(y, a, n, ACT_SILU);
}
static void act_gelu(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->act(y, a, n, ACT_GELU_TANH);
}
static void act_sigmoid(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->act(y, a, n, ACT_SIGMOID);
}
static void act_none(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->act(y, a, n, ACT_NONE);
}
static void decay(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->decay(y, a, b, b, n);
}
static void l2_norm(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->l2_norm(y, a, n, 1e-6f, 0.25f);
}
static void add(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) { k->add(y, b, n); }
static void softcap(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->softcap(y, n, 30);
}
static void exp_plain(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->vec.exp_shifted(y, a, n, 0, 1);
}
static void exp_shifted(const struct kernels *k, float *y, const float *a, const float *b, uint32_t n) {
    k->vec.exp_shifted(y, a, n, 3.5f, 1 / 0.7f);
}
static void test_norm(void **s) { check_operation("norm", norm, 1); }
static void test_glu(void **s) {
    check_operation("silu", silu, 0);
    check_operation("gelu", gelu, 0);
    check_operation("sigmoid product", sigmoid_product, 0);
    check_operation("product", product, 0);
}
static void test_act(void **s) {
    check_operation("act silu", act_silu, 0);
    check_operation("act gelu", act_gelu, 0);
    check_operation("act sigmoid", act_sigmoid, 0);
    check_operation("act none", act_none, 0);
}
static void test_decay(void **s) { check_operation("decay", decay, 0); }
static void test_l2_norm(void **s) { check_operation("l2 norm", l2_norm, 1); }
static void test_add(void **s) { check_operation("add", add, 0); }
static void test_softcap(void **s) { check_operation("softcap", softcap, 0); }
static void test_exp(void **s) {
    check_operation("exp", exp_plain, 0);
    check_operation("exp_shifted", exp_shifted, 0);
}

static int same_double(double want, double got) {
    return memcmp(&want, &got, sizeof want) == 0 || (isnan(want) && isnan(got));
}

static void test_sums(void **s) {
    for (int i = 0; i < SIZES; i++) {
        for (int kind = 0; kind < CHECK_NUMBERS; kind++) {
            uint32_t n = size_at(i);
            float *x = check_alloc(n * sizeof *x);
            check_fill(x, n, kind);
            if (kind == CHECK_EXTREME && i % 2)
                for (uint32_t j = 0; j < n; j++) x[j] = isnan(x[j]) || x[j] > 80 ? -x[j] / 0x1p100f : x[j];
            for (int l = 1; l < n_levels; l++) {
                const struct vecops *ref = &levels[0].k.vec, *v = &levels[l].k.vec;
                assert_true(same_double(ref->sum(x, n), v->sum(x, n)));
                assert_true(same_double(ref->sum_exp(x, n, 2.25f, 0.5f), v->sum_exp(x, n, 2.25f, 0.5f)));
                assert_true(same_double(ref->sum_exp(x, n, 0, 1), v->sum_exp(x, n, 0, 1)));
            }
            check_free(x, n * sizeof *x);
        }
    }
}

/* By the peaks of spans. */
static int64_t best(const struct vecops *ops, const float *x, uint32_t n) {
    float *peaks = check_alloc(logits_spans(n) * sizeof *peaks);
    logits_peaks(ops, x, n, 0, logits_spans(n), peaks);
    int64_t found = logits_best(ops, &(struct logits){(float *)x, n, peaks});
    check_free(peaks, logits_spans(n) * sizeof *peaks);
    return found;
}

static void test_empty_sums(void **s) {
    for (int l = 0; l < n_levels; l++) {
        assert_true(levels[l].k.vec.sum(NULL, 0) == 0);
        assert_true(levels[l].k.vec.sum_exp(NULL, 0, 0, 1) == 0);
        assert_true(levels[l].k.vec.peak(NULL, 0) == -INFINITY);
        assert_int_equal(best(&levels[l].k.vec, NULL, 0), -1);
        assert_int_equal(levels[l].k.vec.at_least(NULL, 0, 0, NULL, 0), 0);
    }
}

static void test_known_values(void **s) {
    for (int l = 0; l < n_levels; l++) {
        const struct kernels *k = &levels[l].k;
        float x[3] = {0, 1, -INFINITY}, e[3], y[4] = {3, 4, 0, 0}, w[4] = {1, 2, 3, 4}, big[5000];
        k->vec.exp_shifted(e, x, 3, 0, 1);
        assert_true(e[0] == 1 && fabsf(e[1] - 2.7182817f) < 3e-7f && check_bits(e[2]) == 0);
        k->norm(y, y, w, 4, 0); /* rms = 2.5 */
        assert_true(fabsf(y[0] - 1.2f) < 1e-6f && fabsf(y[1] - 3.2f) < 1e-6f && y[2] == 0);
        for (int i = 0; i < 5000; i++) big[i] = 0x1p-10f;
        assert_true(k->vec.sum(big, 5000) == 5000 * 0x1p-10);
        assert_true(k->vec.sum_exp(big, 5000, 0x1p-10f, 1) == 5000);
    }
}

static void test_rope(void **s) {
    for (uint32_t width = 1; width <= 140; width++) {
        for (int round = 0; round < 4; round++) {
            uint32_t heads = 1 + check_below(3), pairs = round == 0 ? width / 2 : check_below(width / 2 + 1);
            size_t bytes = sizeof(float) * heads * width, cs_bytes = sizeof(float) * 2 * pairs;
            float *x = check_alloc(bytes), *cs = check_alloc(cs_bytes), *want = check_alloc(bytes);
            int interleaved = round & 1;
            check_fill(x, (size_t)heads * width, round == 3 ? CHECK_EXTREME : CHECK_PLAIN);
            check_fill(cs, 2 * (size_t)pairs, CHECK_PLAIN);
            memcpy(want, x, bytes);
            levels[0].k.rope(want, heads, width, cs, pairs, interleaved);
            if (2 * pairs < width) assert_memory_equal(want + 2 * pairs, x + 2 * pairs, 4 * (width - 2 * pairs));
            for (int l = 1; l < n_levels; l++) {
                float *got = check_alloc(bytes);
                char message[128];
                memcpy(got, x, bytes);
                levels[l].k.rope(got, heads, width, cs, pairs, interleaved);
                if (!check_same(want, got, (size_t)heads * width, message))
                    fail_msg("rope, %s, width %u, pairs %u: %s", levels[l].name, width, pairs, message);
                check_free(got, bytes);
            }
            check_free(x, bytes);
            check_free(cs, cs_bytes);
            check_free(want, bytes);
        }
    }
}

static void test_rope_quarter_turn(void **s) {
    for (int l = 0; l < n_levels; l++) {
        float halves[5] = {1, 2, 3, 4, 5}, pairs[5] = {1, 2, 3, 4, 5}, cs[4] = {0, 0, 1, 1};
        levels[l].k.rope(halves, 1, 5, cs, 2, 0);
        levels[l].k.rope(pairs, 1, 5, cs, 2, 1);
        float want_halves[5] = {-3, -4, 1, 2, 5}, want_pairs[5] = {-2, 1, -4, 3, 5};
        assert_memory_equal(halves, want_halves, sizeof halves);
        assert_memory_equal(pairs, want_pairs, sizeof pairs);
    }
}

static void test_best(void **s) {
    for (int i = 0; i < SIZES; i++) {
        uint32_t n = size_at(i);
        if (n == 0) continue;
        float *x = check_alloc(n * sizeof *x);
        for (uint32_t round = 0; round < (n < 80 ? 3 * n : 40); round++) {
            uint32_t a = n < 80 ? round % n : check_below(n), b = check_below(n);
            check_fill(x, n, CHECK_PLAIN);
            x[a] = x[b] = round / n == 1 ? INFINITY : 100;
            for (int l = 0; l < n_levels; l++) assert_int_equal(best(&levels[l].k.vec, x, n), a < b ? a : b);
            x[a] = check_from_bits(0xffc00001u + check_below(1000));
            for (int l = 0; l < n_levels; l++) assert_int_equal(best(&levels[l].k.vec, x, n), -1);
        }
        for (uint32_t j = 0; j < n; j++) x[j] = -INFINITY;
        for (int l = 0; l < n_levels; l++) assert_int_equal(best(&levels[l].k.vec, x, n), 0);
        for (uint32_t j = 0; j < n; j++) x[j] = j % 2 ? 0.0f : -0.0f; /* equal, so the first */
        for (int l = 0; l < n_levels; l++) assert_int_equal(best(&levels[l].k.vec, x, n), 0);
        check_free(x, n * sizeof *x);
    }
}

/* Looks in all values, or by the peaks of spans. */
static uint32_t find(const struct vecops *ops, int by_peaks, const float *x, uint32_t n, float limit, uint32_t *out,
                     uint32_t capacity) {
    if (!by_peaks) return ops->at_least(x, n, limit, out, capacity);
    float *peaks = check_alloc(logits_spans(n) * sizeof *peaks);
    logits_peaks(ops, x, n, 0, logits_spans(n), peaks);
    uint32_t found = logits_at_least(ops, &(struct logits){(float *)x, n, peaks}, limit, out, capacity);
    check_free(peaks, logits_spans(n) * sizeof *peaks);
    return found;
}

static void test_at_least(void **s) {
    for (int i = 0; i < SIZES; i++) {
        uint32_t n = size_at(i);
        for (int round = 0; round < 6; round++) {
            float *x = check_alloc(n * sizeof *x);
            check_fill(x, n, round % CHECK_NUMBERS);
            float limit = round < 3 ? 0.5f : n ? x[check_below(n)] : 1;
            uint32_t capacity = round % 2 ? n : check_below(n + 1);
            uint32_t *want = check_alloc(4 * (size_t)n), *got = check_alloc(4 * (size_t)capacity), found = 0;
            for (uint32_t j = 0; j < n; j++)
                if (x[j] >= limit) want[found++] = j;
            for (int l = 0; l < 2 * n_levels; l++) {
                memset(got, 0xee, 4 * (size_t)capacity);
                assert_int_equal(find(&levels[l / 2].k.vec, l % 2, x, n, limit, got, capacity), found);
                uint32_t kept = found < capacity ? found : capacity;
                assert_memory_equal(got, want, 4 * (size_t)kept);
                for (uint32_t j = kept; j < capacity; j++) assert_int_equal(got[j], 0xeeeeeeee);
            }
            check_free(x, n * sizeof *x);
            check_free(want, 4 * (size_t)n);
            check_free(got, 4 * (size_t)capacity);
        }
    }
}

/* Stores at one slot in every form and compares the whole page, so that nothing else changes. */
static void check_store(const float *key, uint32_t key_width, const float *value, uint32_t value_width, uint32_t slot) {
    float balance[70];
    for (uint32_t d = 0; d < 70; d++) balance[d] = d % 3 ? 4 : 0.5f;
    for (int form = 0; form < 9; form++) {
        struct page_shape shape = {key_width, value_width, form / 3, form % 3, form > 4 ? balance : NULL};
        size_t bytes = page_slice_bytes(&shape);
        unsigned char *want = check_alloc(bytes), *got = check_alloc(bytes);
        memset(want, 0x5a, bytes);
        levels[0].k.store(&shape, want, slot, key, value);
        for (int l = 1; l < n_levels; l++) {
            memset(got, 0x5a, bytes);
            levels[l].k.store(&shape, got, slot, key, value);
            if (memcmp(want, got, bytes) != 0)
                fail_msg("store, %s, widths %u %u, slot %u, forms %d %d", levels[l].name, key_width, value_width, slot,
                         form / 3, form % 3);
        }
        check_free(want, bytes);
        check_free(got, bytes);
    }
}

static void test_store(void **s) {
    for (uint32_t width = 1; width <= 70; width++) {
        uint32_t value_width = 1 + check_below(70);
        float *key = check_alloc(4 * (size_t)width), *value = check_alloc(4 * (size_t)value_width);
        for (int kind = 0; kind < CHECK_NUMBERS; kind++) {
            check_fill(key, width, kind);
            check_fill(value, value_width, kind);
            check_store(key, width, value, value_width, check_below(32));
        }
        check_free(key, 4 * (size_t)width);
        check_free(value, 4 * (size_t)value_width);
    }
}

/* Every half and what lies around the middle between it and the next, of both signs, NaNs too, stored as keys and
 * values: the reference has the bits of the F16C instructions. */
static void test_store_rounding(void **s) {
    float x[64];
    for (uint32_t half = 0; half < 0x8000; half += 8) {
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t h = half + i, bits = check_bits(half_to_float((uint16_t)h));
            uint32_t middle = h < 0x400 ? check_bits(((float)h + 0.5f) * 0x1p-24f) : bits + 0x1000;
            uint32_t near[8] = {bits,           bits + 1,     middle - 1,
                                middle,         middle + 1,   bits + check_below(0x2000),
                                check_random(), bits | 0x1fff};
            for (int j = 0; j < 8; j++)
                x[8 * i + (uint32_t)j] = check_from_bits(near[j] ^ (check_random() & 0x80000000));
        }
        check_store(x, 64, x, 64, half / 8 % 32);
    }
}

static void test_store_known(void **s) {
    static const struct {
        float x;
        uint16_t half;
    } known[] = {{0, 0},
                 {-0.0f, 0x8000},
                 {1, 0x3c00},
                 {-2, 0xc000},
                 {65504, 0x7bff},
                 {65519.99f, 0x7bff},
                 {65520, 0x7c00},
                 {-1e30f, 0xfc00},
                 {INFINITY, 0x7c00},
                 {0x1p-24f, 1},
                 {0x1p-25f, 0},
                 {0x1.000002p-25f, 1},
                 {0x1.8p-24f, 2},
                 {0x1p-14f, 0x400},
                 {0x1.ff8p-15f, 0x3ff},
                 {0x1.ffcp-15f, 0x400},
                 {1 + 0x1p-11f, 0x3c00},
                 {1 + 0x1.8p-10f, 0x3c02},
                 {0x1p-149f, 0}};
    static const struct page_shape one = {1, 1, FORM_F16, FORM_F16, NULL};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        for (int l = 0; l < n_levels; l++) {
            uint16_t page[64] = {0};
            levels[l].k.store(&one, page, 3, &known[i].x, &known[i].x);
            assert_int_equal(page[3], known[i].half);
            assert_int_equal(page[32 + 3], known[i].half);
        }
    }
    for (int l = 0; l < n_levels; l++) { /* a signalling NaN becomes quiet and keeps its payload's head */
        uint16_t page[64] = {0};
        float nan = check_from_bits(0xff82a000);
        levels[l].k.store(&one, page, 0, &nan, &nan);
        assert_int_equal(page[32], 0xfe15);
    }
}

int main(void) {
    n_levels = vector_levels(levels);
    for (int l = 0; l < n_levels; l++) print_message("level: %s\n", levels[l].name);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_glu),
        cmocka_unit_test(test_act),
        cmocka_unit_test(test_decay),
        cmocka_unit_test(test_l2_norm),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_empty_sums),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_quarter_turn),
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_at_least),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_store_rounding),
        cmocka_unit_test(test_store_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
