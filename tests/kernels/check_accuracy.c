/* The fp32 functions against libm in double, with the bounds that docs/NUMERICS.md states. They hold for every level,
 * because levels are equal in bits (check_vector.c); the fastest one here is measured. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/exp_constants.h"
#include "backend/cpu/math_ref.h"
#include "kernel_check.h"
#include "vector_levels.h"

enum { CHUNK = 4096 };

static const struct kernels *fastest(void) {
    static struct vector_level levels[VECTOR_LEVELS_MAX];
    return &levels[vector_levels(levels) > 1].k;
}

/* Calls `judge` with x and f(x) for every `stride`th float of both signs up to `limit`. */
static void sweep(uint32_t stride, float limit, void (*f)(float *y, const float *x, uint32_t n),
                  void (*judge)(float x, float y)) {
    float x[CHUNK], y[CHUNK];
    uint32_t n = 0, end = check_bits(limit);
    for (uint64_t bits = 0; bits <= end; bits += stride) {
        x[n++] = check_from_bits((uint32_t)bits);
        x[n++] = check_from_bits((uint32_t)bits | 0x80000000);
        if (n < CHUNK && bits + stride <= end) continue;
        f(y, x, n);
        for (uint32_t i = 0; i < n; i++) judge(x[i], y[i]);
        n = 0;
    }
}

static double worst;

static void exp_of(float *y, const float *x, uint32_t n) { fastest()->vec.exp_shifted(y, x, n, 0, 1); }
static void judge_exp(float x, float y) {
    double want = exp((double)x);
    if (x < EXP_LOWEST) {
        if (check_bits(y) != 0 || want >= 0x1p-126) fail_msg("exp(%a) = %a", (double)x, (double)y);
    } else if (x > EXP_HIGHEST) {
        if (y != INFINITY || want <= 0x1.fffffep127) fail_msg("exp(%a) = %a", (double)x, (double)y);
    } else {
        int exponent;
        frexp(want, &exponent);
        double error = fabs((double)y - want) * ldexp(1, 24 - exponent);
        if (!(error <= 0.9)) fail_msg("exp(%a) = %a, %g ulp", (double)x, (double)y, error);
        worst = fmax(worst, error);
    }
}
static void test_exp(void **s) {
    worst = 0;
    sweep(61, 120, exp_of, judge_exp);
    print_message("exp: %.3f ulp\n", worst);
    float x[4] = {EXP_LOWEST, nextafterf(EXP_LOWEST, -INFINITY), EXP_HIGHEST, nextafterf(EXP_HIGHEST, INFINITY)}, y[4];
    exp_of(y, x, 4);
    for (int i = 0; i < 4; i++) judge_exp(x[i], y[i]);
}

static void tanh_of(float *y, const float *x, uint32_t n) {
    memcpy(y, x, n * sizeof *y);
    fastest()->softcap(y, n, 1);
}
static void judge_tanh(float x, float y) {
    double error = fabs((double)y - tanh((double)x));
    if (!(error <= 0x1.4p-23)) fail_msg("tanh(%a) = %a, error %g", (double)x, (double)y, error);
    worst = fmax(worst, error);
}
static void test_tanh(void **s) {
    worst = 0;
    sweep(997, INFINITY, tanh_of, judge_tanh);
    print_message("tanh: %.3g absolute (2^-23 is 1.19e-07)\n", worst);
}

static void glu_of(float *y, const float *x, uint32_t n, enum program_act act) {
    float one[CHUNK];
    for (uint32_t i = 0; i < n; i++) one[i] = 1;
    fastest()->glu(y, x, one, n, act);
}
static void gelu_of(float *y, const float *x, uint32_t n) { glu_of(y, x, n, ACT_GELU_TANH); }
static void silu_of(float *y, const float *x, uint32_t n) { glu_of(y, x, n, ACT_SILU); }

/* Relative to the larger of |x| and what is smallest normal, since both functions are x times a factor of 0 .. 1. */
static void judge_factor(float x, float y, double want) {
    if (isinf(x)) return;
    double error = fabs((double)y - want) / fmax(fabs((double)x), 0x1p-120);
    if (!(error <= 0x1p-23)) fail_msg("f(%a) = %a, should be %a", (double)x, (double)y, want);
    worst = fmax(worst, error);
}
static void judge_gelu(float x, float y) {
    double v = (double)x;
    judge_factor(x, y, 0.5 * v * (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v))));
}
static void judge_silu(float x, float y) { judge_factor(x, y, (double)x / (1 + exp(-(double)x))); }
static void test_gelu(void **s) {
    worst = 0;
    sweep(997, INFINITY, gelu_of, judge_gelu);
    print_message("gelu_tanh: %.3g of |x|\n", worst);
}
static void test_silu(void **s) {
    worst = 0;
    sweep(997, INFINITY, silu_of, judge_silu);
    print_message("silu: %.3g of |x|\n", worst);
}

/* The reference's, which has a name of its own; the levels' are seen in the decay (check_vector.c). */
static void softplus_of(float *y, const float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) y[i] = softplus_ref(x[i]);
}
static void judge_softplus(float x, float y) {
    double want = x > 700 ? (double)x : log1p(exp((double)x));
    if (isinf(x) || x < EXP_LOWEST) return;
    double error = fabs((double)y - want) / want;
    if (!(error <= 0x1p-22)) fail_msg("softplus(%a) = %a, should be %a", (double)x, (double)y, want);
    worst = fmax(worst, error);
}
static void test_softplus(void **s) {
    worst = 0;
    sweep(997, INFINITY, softplus_of, judge_softplus);
    print_message("softplus: %.3g of itself\n", worst);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),  cmocka_unit_test(test_tanh),     cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_silu), cmocka_unit_test(test_softplus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
