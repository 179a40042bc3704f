/* The convolution and the delta rule at every level: bit by bit against the reference over widths, tokens and numbers
 * of every kind; and independence: one call or several, one part of the values at a time, another page or the same. And
 * the delta rule against its definition in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel_check.h"
#include "vector_levels.h"

static struct vector_level levels[VECTOR_LEVELS_MAX];
static int n_levels;

static float *filled(size_t n, enum check_numbers kind) {
    float *x = check_alloc(n * sizeof *x);
    check_fill(x, n, kind);
    return x;
}

static float *copied(const float *x, size_t n) {
    float *y = check_alloc(n * sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

static void released(float *x, size_t n) { check_free(x, n * sizeof *x); }

/* How a call finds its state. */
enum place { EMPTY, ELSEWHERE, IN_PLACE, PLACES };
static const char *const place_names[PLACES] = {"no state", "another page", "the same page"};

/* ---- Convolution ---- */

struct conv_scene {
    struct conv_args a;
    enum place place;
    size_t x_floats, y_floats, tail_floats, weight_floats;
    float *x, *weight, *tail; /* tail: before the first token */
};

/* Calls the level's convolution in pieces of `chunk` tokens; y and the tail after it are the caller's to free. */
static void conv_run(const struct conv_scene *c, const struct kernels *k, uint32_t chunk, float **y, float **tail) {
    *y = check_alloc(c->y_floats * sizeof **y);
    for (size_t i = 0; i < c->y_floats; i++) (*y)[i] = 12345.5f; /* what lies between rows stays */
    float *to = *tail = c->place == IN_PLACE ? copied(c->tail, c->tail_floats) : filled(c->tail_floats, CHECK_PLAIN);
    if (c->place != IN_PLACE)
        for (size_t i = 0; i < c->tail_floats; i++) to[i] = 12345.5f;
    const float *from = c->place == EMPTY ? NULL : c->place == IN_PLACE ? to : c->tail;
    for (uint32_t t = 0; t < c->a.tokens; t += chunk, from = to) {
        struct conv_args a = c->a;
        a.x = c->x + t * a.x_stride;
        a.y = *y + t * a.y_stride;
        a.weight = c->weight;
        a.tokens = a.tokens - t < chunk ? a.tokens - t : chunk;
        a.from = from;
        a.to = to;
        k->conv(&a);
    }
}

static void conv_same(const struct conv_scene *c, const char *what, const float *y, const float *tail, float *got,
                      float *got_tail) {
    char message[128];
    if (!check_same(y, got, c->y_floats, message) || !check_same(tail, got_tail, c->tail_floats, message))
        fail_msg("convolution, %s: %u tokens, %u columns, %u taps, %s: %s", what, c->a.tokens, c->a.columns, c->a.taps,
                 place_names[c->place], message);
    released(got, c->y_floats);
    released(got_tail, c->tail_floats);
}

static void conv_check(struct conv_scene *c, enum check_numbers kind) {
    struct conv_args *a = &c->a;
    float *y, *tail, *got, *got_tail;
    uint32_t gap = check_below(5);
    a->x_stride = a->columns + gap;
    a->y_stride = a->columns + check_below(5);
    a->tail_stride = a->weight_stride = a->columns + check_below(5);
    c->x_floats = a->x_stride * (a->tokens - 1) + a->columns;
    c->y_floats = a->y_stride * (a->tokens - 1) + a->columns;
    c->tail_floats = a->tail_stride * (a->taps - 2) + a->columns;
    c->weight_floats = a->weight_stride * (a->taps - 1) + a->columns;
    c->x = filled(c->x_floats, kind);
    c->weight = filled(c->weight_floats, kind);
    c->tail = filled(c->tail_floats, kind);
    for (int p = 0; p < PLACES; p++) {
        c->place = (enum place)p;
        conv_run(c, &levels[0].k, a->tokens, &y, &tail);
        if (p == IN_PLACE) { /* what lies between the columns is the old tail's there */
            for (uint32_t j = 0; j + 2 < a->taps; j++)
                for (size_t i = a->columns; i < a->tail_stride; i++)
                    assert_memory_equal(&tail[j * a->tail_stride + i], &c->tail[j * a->tail_stride + i], sizeof *tail);
        }
        for (int l = 0; l < n_levels; l++) {
            static const uint32_t chunks[] = {1000, 1, 2, 5};
            for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
                conv_run(c, &levels[l].k, chunks[i], &got, &got_tail);
                conv_same(c, levels[l].name, y, tail, got, got_tail);
            }
        }
        released(y, c->y_floats);
        released(tail, c->tail_floats);
    }
    released(c->x, c->x_floats);
    released(c->weight, c->weight_floats);
    released(c->tail, c->tail_floats);
}

static void test_conv(void **s) {
    static const enum program_act acts[] = {ACT_NONE, ACT_SILU};
    for (uint32_t round = 0; round < 400; round++) {
        struct conv_scene c = {.a = {.tokens = 1 + check_below(round % 4 ? 9 : 40),
                                     .columns = 1 + check_below(round % 3 ? 40 : 200),
                                     .taps = round % 2 ? 4 : 2 + check_below(6),
                                     .act = acts[round / 2 % 2]}};
        conv_check(&c, (enum check_numbers)(round % CHECK_NUMBERS));
    }
}

/* ---- Delta rule ---- */

struct delta_scene {
    struct delta_args a;
    enum place place;
    size_t x_floats, gate_floats, out_floats, state_floats;
    float *x, *gates, *state; /* x: queries, keys, values of each token; gates: decay, rate of each token */
};

static void delta_make(struct delta_scene *c, enum check_numbers kind) {
    struct delta_args *a = &c->a;
    size_t width = 2 * (size_t)a->key_width + a->value_width;
    a->stride = width + check_below(5);
    a->out_stride = a->value_width + check_below(5);
    a->decay_stride = a->rate_stride = 2 + check_below(3);
    c->x_floats = a->stride * (a->tokens - 1) + width;
    c->gate_floats = a->decay_stride * (a->tokens - 1) + 2;
    c->out_floats = a->out_stride * (a->tokens - 1) + a->value_width;
    c->state_floats = (size_t)a->key_width * a->value_width;
    c->x = filled(c->x_floats, kind);
    c->gates = filled(c->gate_floats, kind);
    c->state = filled(c->state_floats, kind);
    if (kind == CHECK_PLAIN) /* as in a model, so that nothing grows without bound */
        for (size_t i = 0; i < c->gate_floats; i++) c->gates[i] = fabsf(check_uniform());
    if (kind == CHECK_PLAIN)
        for (size_t i = 0; i < c->x_floats; i++) c->x[i] = check_uniform() / sqrtf((float)a->key_width);
}

static void delta_free(struct delta_scene *c) {
    released(c->x, c->x_floats);
    released(c->gates, c->gate_floats);
    released(c->state, c->state_floats);
}

/* In pieces of `chunk` tokens and `blocks` blocks of values. */
static void delta_run(const struct delta_scene *c, const struct kernels *k, uint32_t chunk, uint32_t blocks,
                      float **out, float **state) {
    *out = check_alloc(c->out_floats * sizeof **out);
    for (size_t i = 0; i < c->out_floats; i++) (*out)[i] = 12345.5f;
    float *to = *state = copied(c->state, c->state_floats);
    if (c->place != IN_PLACE) memset(to, 0xff, c->state_floats * sizeof *to);
    const float *from = c->place == EMPTY ? NULL : c->place == IN_PLACE ? to : c->state;
    for (uint32_t t = 0; t < c->a.tokens; t += chunk, from = to)
        for (uint32_t first = 0; first < c->a.value_width; first += blocks * DELTA_VALUES) {
            struct delta_args a = c->a;
            a.q = c->x + t * a.stride;
            a.k = a.q + a.key_width;
            a.v = a.k + a.key_width;
            a.decay = c->gates + t * a.decay_stride;
            a.rate = a.decay + 1;
            a.out = *out + t * a.out_stride;
            a.tokens = a.tokens - t < chunk ? a.tokens - t : chunk;
            a.first = first;
            a.end = a.value_width - first < blocks * DELTA_VALUES ? a.value_width : first + blocks * DELTA_VALUES;
            a.from = from;
            a.to = to;
            k->delta(&a);
        }
}

static void delta_check(struct delta_scene *c, enum check_numbers kind) {
    static const uint32_t ways[][2] = {{1000, 1000}, {1, 1000}, {3, 1}, {1000, 2}}; /* tokens, blocks */
    float *out, *state, *got, *got_state;
    char message[128];
    delta_make(c, kind);
    for (int p = 0; p < PLACES; p++) {
        c->place = (enum place)p;
        delta_run(c, &levels[0].k, 1000, 1000, &out, &state);
        for (int l = 0; l < n_levels; l++)
            for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
                delta_run(c, &levels[l].k, ways[i][0], ways[i][1], &got, &got_state);
                if (!check_same(out, got, c->out_floats, message) ||
                    !check_same(state, got_state, c->state_floats, message))
                    fail_msg("delta, %s: %u tokens (by %u), keys of %u, values of %u, %s: %s", levels[l].name,
                             c->a.tokens, ways[i][0], c->a.key_width, c->a.value_width, place_names[p], message);
                released(got, c->out_floats);
                released(got_state, c->state_floats);
            }
        released(out, c->out_floats);
        released(state, c->state_floats);
    }
    delta_free(c);
}

static void test_delta(void **s) {
    for (uint32_t round = 0; round < 300; round++) {
        struct delta_scene c = {.a = {.tokens = 1 + check_below(round % 4 ? 4 : 20),
                                      .key_width = 1 + check_below(round % 2 ? 20 : 70),
                                      .value_width = round < 100 ? 1 + round : 16 * (1 + check_below(8))}};
        delta_check(&c, (enum check_numbers)(round % CHECK_NUMBERS));
    }
}

/* The rule as it is published, one value after the other. */
static double delta_naive(const struct delta_scene *c, const float *out) {
    const struct delta_args *a = &c->a;
    double worst = 0, column[256];
    for (uint32_t j = 0; j < a->value_width; j++) {
        memset(column, 0, sizeof column);
        for (uint32_t t = 0; t < a->tokens; t++) {
            const float *q = c->x + t * a->stride, *k = q + a->key_width, *v = k + a->key_width;
            double decay = (double)c->gates[t * a->decay_stride], rate = (double)c->gates[t * a->decay_stride + 1];
            double recalled = 0, y = 0;
            for (uint32_t i = 0; i < a->key_width; i++) recalled += (column[i] *= decay) * (double)k[i];
            for (uint32_t i = 0; i < a->key_width; i++) {
                column[i] += (double)k[i] * ((double)v[j] - recalled) * rate;
                y += (double)q[i] * column[i];
            }
            worst = fmax(worst, fabs(y - (double)out[t * a->out_stride + j]));
        }
    }
    return worst;
}

static void test_delta_is_the_rule(void **s) {
    for (int l = 0; l < n_levels; l++) {
        struct delta_scene c = {.a = {.tokens = 200, .key_width = 128, .value_width = 48}, .place = EMPTY};
        float *out, *state;
        delta_make(&c, CHECK_PLAIN);
        delta_run(&c, &levels[l].k, 1000, 1000, &out, &state);
        assert_true(delta_naive(&c, out) < 1e-6);
        released(out, c.out_floats);
        released(state, c.state_floats);
        delta_free(&c);
    }
}

int main(void) {
    n_levels = vector_levels(levels);
    for (int l = 0; l < n_levels; l++) printf("level %s\n", levels[l].name);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conv), cmocka_unit_test(test_delta),
                                       cmocka_unit_test(test_delta_is_the_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
