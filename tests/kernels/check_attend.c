/* Attention at every level: bit by bit against the reference over positions, windows, widths and heads; against a plain
 * softmax in double; and independence: no tile, stale page or unseen slot shows in a query's bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/half.h"
#include "kernel_check.h"
#include "vector_levels.h"

enum { PAGES_MAX = 12 };

static struct vector_level levels[VECTOR_LEVELS_MAX];
static int n_levels;

/* A sequence of stored keys and values, and queries at the positions pos .. pos + tokens - 1. */
struct scene {
    uint32_t tokens, heads, key_width, value_width, pos, window;
    float scale, softcap;
    enum state_form key_form[2], value_form[2]; /* before page `split`, and from it on */
    uint32_t split;                             /* 0: all pages are of the first forms */
    float balance[300];                         /* of keys in codes; the first is 0: none */
    uint32_t table[2][PAGES_MAX];
    size_t page_bytes[2], arena_bytes[2], q_floats, q_stride, out_stride;
    char *arena[2];
    float *q;
};

static uint32_t first_visible(const struct scene *c, uint32_t pos) {
    return c->window && pos >= c->window ? pos - c->window + 1 : 0;
}

static struct page_shape shape_of(const struct scene *c, int late) {
    return (struct page_shape){c->key_width, c->value_width, c->key_form[late], c->value_form[late],
                               c->balance[0] != 0 ? c->balance : NULL};
}

static int is_late(const struct scene *c, uint32_t pos) { return c->split && pos / PAGE >= c->split; }

static char *page_of(const struct scene *c, uint32_t pos) {
    int late = is_late(c, pos);
    return c->arena[late] + c->table[late][pos / PAGE] * c->page_bytes[late];
}

static void scene_store(const struct scene *c, uint32_t pos, const float *key, const float *value) {
    struct page_shape shape = shape_of(c, is_late(c, pos));
    levels[0].k.store(&shape, page_of(c, pos), pos % PAGE, key, value);
}

/* Garbage everywhere first: pages that no token may read, and slots behind the last token, hold NaN. */
static void scene_make(struct scene *c, enum check_numbers kind) {
    uint32_t offset = check_below(PAGES_MAX), last = c->pos + c->tokens - 1;
    assert_true(last < PAGE * PAGES_MAX);
    for (int late = 0; late < 2; late++) {
        struct page_shape shape = shape_of(c, late);
        c->page_bytes[late] = page_slice_bytes(&shape) + 128;
        c->arena_bytes[late] = c->page_bytes[late] * PAGES_MAX;
        c->arena[late] = check_alloc(c->arena_bytes[late]);
        memset(c->arena[late], 0xff, c->arena_bytes[late]);
        for (uint32_t b = 0; b < PAGES_MAX; b++) {
            c->table[late][b] = (b * 5 + offset + (uint32_t)late) % PAGES_MAX;
            if (b < first_visible(c, c->pos) / PAGE || b > last / PAGE || late != is_late(c, b * PAGE))
                c->table[late][b] = UINT32_MAX;
        }
    }
    float key[300], value[300];
    for (uint32_t p = first_visible(c, c->pos); p <= last; p++) {
        check_fill(key, c->key_width, kind);
        check_fill(value, c->value_width, kind);
        scene_store(c, p, key, value);
    }
    c->q_stride = (size_t)c->heads * c->key_width + check_below(9);
    c->out_stride = (size_t)c->heads * c->value_width + check_below(9);
    c->q_floats = c->q_stride * (c->tokens - 1) + (size_t)c->heads * c->key_width;
    c->q = check_alloc(c->q_floats * sizeof *c->q);
    check_fill(c->q, c->q_floats, kind);
}

static void scene_free(struct scene *c) {
    for (int late = 0; late < 2; late++) check_free(c->arena[late], c->arena_bytes[late]);
    check_free(c->q, c->q_floats * sizeof *c->q);
}

/* Tokens and heads of the scene, [token, token + tokens) and [head, head + heads), into their places of out. */
static void scene_run(const struct scene *c, const struct kernels *k, uint32_t token, uint32_t tokens, uint32_t head,
                      uint32_t heads, float *out) {
    size_t scratch_bytes = sizeof(float) * attend_scratch_floats(tokens * heads, c->key_width);
    float *scratch = check_alloc(scratch_bytes);
    struct attend_args a = {.q = c->q + token * c->q_stride + (size_t)head * c->key_width,
                            .out = out + token * c->out_stride + (size_t)head * c->value_width,
                            .q_stride = c->q_stride,
                            .out_stride = c->out_stride,
                            .tokens = tokens,
                            .heads = heads,
                            .key_width = c->key_width,
                            .value_width = c->value_width,
                            .scale = c->scale,
                            .softcap = c->softcap,
                            .pos = c->pos + token,
                            .window = c->window,
                            .late = c->split ? c->split : UINT32_MAX,
                            .balance = c->balance[0] != 0 ? c->balance : NULL,
                            .scratch = scratch};
    for (int late = 0; late < 2; late++)
        a.pages[late] = (struct attend_pages){c->table[late], c->arena[late], c->page_bytes[late], c->key_form[late],
                                              c->value_form[late]};
    k->attend(&a);
    check_free(scratch, scratch_bytes);
}

static size_t out_floats(const struct scene *c) {
    return c->out_stride * (c->tokens - 1) + (size_t)c->heads * c->value_width;
}

static float *new_out(const struct scene *c) {
    float *out = check_alloc(out_floats(c) * sizeof *out);
    for (size_t i = 0; i < out_floats(c); i++) out[i] = 12345.5f; /* what lies between rows stays */
    return out;
}

static void compare(const struct scene *c, const char *what, const float *want, float *got) {
    char message[128];
    if (!check_same(want, got, out_floats(c), message))
        fail_msg(
            "%s: %u tokens at %u, window %u, %u heads of %u and %u, softcap %g, forms %d %d, from page %u %d %d: %s",
            what, c->tokens, c->pos, c->window, c->heads, c->key_width, c->value_width, (double)c->softcap,
            c->key_form[0], c->value_form[0], c->split, c->key_form[1], c->value_form[1], message);
    check_free(got, out_floats(c) * sizeof *got);
}

/* Every level, whole and one query at a time, against the reference. */
static void scene_check_form(struct scene *c, enum check_numbers kind) {
    scene_make(c, kind);
    float *want = new_out(c);
    scene_run(c, &levels[0].k, 0, c->tokens, 0, c->heads, want);
    for (int l = 0; l < n_levels; l++) {
        float *got = new_out(c);
        scene_run(c, &levels[l].k, 0, c->tokens, 0, c->heads, got);
        compare(c, levels[l].name, want, got);
    }
    for (int l = 1; l < n_levels; l++) {
        float *got = new_out(c);
        for (uint32_t t = 0; t < c->tokens; t++)
            for (uint32_t h = 0; h < c->heads; h++) scene_run(c, &levels[l].k, t, 1, h, 1, got);
        compare(c, "one by one", want, got);
        uint32_t cut = check_below(c->tokens), split = check_below(c->heads);
        got = new_out(c);
        for (int part = 0; part < 4; part++) {
            uint32_t t = part & 1 ? cut : 0, te = part & 1 ? c->tokens : cut;
            uint32_t h = part & 2 ? split : 0, he = part & 2 ? c->heads : split;
            if (t < te && h < he) scene_run(c, &levels[l].k, t, te - t, h, he - h, got);
        }
        compare(c, "in four parts", want, got);
    }
    check_free(want, out_floats(c) * sizeof *want);
    scene_free(c);
}

/* As halves, then in some other form. */
static void scene_check(struct scene *c, enum check_numbers kind) {
    scene_check_form(c, kind);
    for (int late = 0; late < 2; late++) {
        c->key_form[late] = check_below(3);
        c->value_form[late] = check_below(3);
    }
    c->split = check_below(3);
    for (uint32_t d = 0; d < c->key_width && check_below(2) + d > 0; d++)
        c->balance[d] = check_from_bits((125 + check_below(5)) << 23);
    scene_check_form(c, kind);
}

static void test_every_position(void **s) {
    static const uint32_t windows[] = {0, 1, 2, 31, 32, 33, 40, 64, 65};
    for (uint32_t pos = 0; pos < 140; pos++) {
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
            struct scene c = {.tokens = 1 + check_below(ATTEND_TOKENS),
                              .heads = 1 + check_below(3),
                              .key_width = 5,
                              .value_width = 19,
                              .pos = pos,
                              .window = windows[w],
                              .scale = 0.5f};
            scene_check(&c, CHECK_PLAIN);
        }
    }
}

static void test_every_width(void **s) {
    for (uint32_t width = 1; width <= 70; width++) {
        struct scene c = {.tokens = 1 + check_below(ATTEND_TOKENS),
                          .heads = 1 + check_below(9),
                          .key_width = width,
                          .value_width = 1 + check_below(130),
                          .pos = check_below(80),
                          .scale = 0.3f,
                          .softcap = width % 3 ? 0 : 20};
        scene_check(&c, CHECK_PLAIN);
    }
    static const uint32_t widths[] = {80, 96, 127, 128, 255, 256, 257};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct scene c = {.tokens = 3,
                          .heads = 4,
                          .key_width = widths[i],
                          .value_width = widths[i],
                          .pos = 60,
                          .window = 40,
                          .scale = 0.0625f};
        scene_check(&c, CHECK_PLAIN);
    }
}

static void test_every_tile(void **s) {
    for (uint32_t tokens = 1; tokens <= ATTEND_TOKENS; tokens++) {
        for (uint32_t heads = 1; heads <= 17; heads++) {
            struct scene c = {.tokens = tokens,
                              .heads = heads,
                              .key_width = 16,
                              .value_width = 48,
                              .pos = 20 + check_below(50),
                              .window = check_below(2) * (1 + check_below(60)),
                              .scale = 0.25f,
                              .softcap = (float)check_below(2) * 30};
            scene_check(&c, CHECK_PLAIN);
        }
    }
}

static void test_extremes(void **s) {
    for (int round = 0; round < 200; round++) {
        struct scene c = {.tokens = 1 + check_below(ATTEND_TOKENS),
                          .heads = 1 + check_below(4),
                          .key_width = 1 + check_below(3),
                          .value_width = 1 + check_below(40),
                          .pos = check_below(90),
                          .window = check_below(3) * 7,
                          .scale = 1,
                          .softcap = (float)check_below(2) * 10};
        scene_check(&c, round % 2 ? CHECK_EXTREME : CHECK_WIDE);
    }
}

/* One visible key has weight 1, so that the output is the value: every half as the levels read it. */
static void test_every_half(void **s) {
    struct scene c = {.tokens = 1, .heads = 1, .key_width = 1, .value_width = 64, .scale = 1};
    scene_make(&c, CHECK_PLAIN);
    c.table[0][0] = 0;
    uint16_t *page = (uint16_t *)(void *)c.arena[0];
    memset(page, 0, 64);
    for (uint32_t first = 0; first < 0x10000; first += 64) {
        float want[64];
        for (uint32_t i = 0; i < 64; i++) {
            page[32 + i] = (uint16_t)(first + i);
            want[i] = half_to_float((uint16_t)(first + i)) + 0.0f; /* the sum begins at +0 */
        }
        for (int l = 0; l < n_levels; l++) {
            float *got = new_out(&c);
            scene_run(&c, &levels[l].k, 0, 1, 0, 1, got);
            compare(&c, levels[l].name, want, got);
        }
    }
    scene_free(&c);
}

/* A bad number in one position is seen by the queries that see the position and by no other. */
static void check_bad_key(enum state_form form) {
    struct scene c = {.tokens = 8, .heads = 2, .key_width = 4, .value_width = 20, .pos = 60, .window = 5, .scale = 1};
    c.key_form[0] = c.value_form[0] = form;
    scene_make(&c, CHECK_PLAIN);
    float bad[20];
    for (int i = 0; i < 20; i++) bad[i] = NAN;
    scene_store(&c, 62, bad, bad);
    for (int l = 0; l < n_levels; l++) {
        float *got = new_out(&c);
        scene_run(&c, &levels[l].k, 0, 8, 0, 2, got);
        for (uint32_t t = 0; t < 8; t++)
            for (uint32_t i = 0; i < 40; i++) assert_int_equal(isnan(got[t * c.out_stride + i]) != 0, t >= 2 && t <= 6);
        check_free(got, out_floats(&c) * sizeof *got);
    }
    scene_free(&c);
}

static void test_bad_key_stays_inside(void **s) {
    check_bad_key(FORM_F16);
    check_bad_key(FORM_Q8);
    check_bad_key(FORM_Q4);
}

/* The plain definition, in double: softmax over the visible positions, then the weighted mean of the values. */
static void naive(const struct scene *c, uint32_t t, uint32_t h, double *out) {
    double weights[PAGE * PAGES_MAX], sum = 0, max = -INFINITY;
    uint32_t last = c->pos + t, first = first_visible(c, last);
    for (uint32_t p = first; p <= last; p++) {
        const uint16_t *keys = (const uint16_t *)(const void *)page_of(c, p);
        double score = 0;
        for (uint32_t d = 0; d < c->key_width; d++)
            score +=
                (double)c->q[t * c->q_stride + h * c->key_width + d] * (double)half_to_float(keys[d * PAGE + p % PAGE]);
        score *= (double)c->scale;
        if (c->softcap != 0) score = (double)c->softcap * tanh(score / (double)c->softcap);
        weights[p] = score;
        max = fmax(max, score);
    }
    for (uint32_t p = first; p <= last; p++) sum += weights[p] = exp(weights[p] - max);
    for (uint32_t d = 0; d < c->value_width; d++) {
        out[d] = 0;
        for (uint32_t p = first; p <= last; p++) {
            const uint16_t *keys = (const uint16_t *)(const void *)page_of(c, p);
            out[d] +=
                weights[p] / sum * (double)half_to_float(keys[c->key_width * PAGE + p % PAGE * c->value_width + d]);
        }
    }
}

static void test_against_softmax(void **s) {
    double worst = 0;
    for (int round = 0; round < 60; round++) {
        struct scene c = {.tokens = 1 + check_below(ATTEND_TOKENS),
                          .heads = 1 + check_below(4),
                          .key_width = 1 + check_below(130),
                          .value_width = 1 + check_below(70),
                          .pos = check_below(350),
                          .window = check_below(2) * (1 + check_below(200)),
                          .scale = 0.25f,
                          .softcap = (float)check_below(2) * 15};
        scene_make(&c, CHECK_PLAIN);
        float *got = new_out(&c);
        scene_run(&c, &levels[n_levels > 1].k, 0, c.tokens, 0, c.heads, got);
        for (uint32_t t = 0; t < c.tokens; t++) {
            for (uint32_t h = 0; h < c.heads; h++) {
                double want[300];
                naive(&c, t, h, want);
                for (uint32_t d = 0; d < c.value_width; d++) {
                    double error = fabs((double)got[t * c.out_stride + h * c.value_width + d] - want[d]);
                    worst = fmax(worst, error);
                }
            }
        }
        check_free(got, out_floats(&c) * sizeof *got);
        scene_free(&c);
    }
    print_message("attention: error %.3g against double, values up to 4\n", worst);
    assert_true(worst < 2e-5);
}

int main(void) {
    n_levels = vector_levels(levels);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_position),  cmocka_unit_test(test_every_width),
        cmocka_unit_test(test_every_tile),      cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_every_half),      cmocka_unit_test(test_bad_key_stays_inside),
        cmocka_unit_test(test_against_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
