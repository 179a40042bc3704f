/* fmath against libm's long double functions: errors in ulp over the ranges used, special values, and a checksum of the
 * bits, which must be the same on every machine and with every compiler. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fmath.h"
#include "base/rng.h"

static double worst; /* of the running test, in ulp */

static void compare(double got, long double want) {
    int exponent;
    frexpl(want, &exponent);
    if (exponent < -1021) exponent = -1021;
    double ulps = (double)(fabsl((long double)got - want) / ldexpl(1.0L, exponent - 53));
    if (isnan(ulps)) ulps = INFINITY;
    if (ulps > worst) worst = ulps;
}

static double between(double low, double high, uint64_t stream, uint64_t i) {
    return low + (high - low) * rng_unit(11, stream, i);
}

static void exp_is_close(void **state) {
    worst = 0;
    for (uint64_t i = 0; i < 200000; i++) {
        double x = between(-1, 1, 0, i), y = between(-708, 709.7, 1, i), z = between(-1, 1, 2, i) * 1e-9;
        compare(fmath_exp(x), expl(x));
        compare(fmath_exp(y), expl(y));
        compare(fmath_exp(z), expl(z));
    }
    print_message("exp: worst error %.3f ulp\n", worst);
    assert_true(worst < 1.0);
    for (uint64_t i = 0; i < 20000; i++) {
        double x = between(-745, -708, 3, i); /* subnormal results round twice */
        compare(fmath_exp(x), expl(x));
    }
    assert_true(worst < 1.5);
    assert_true(fmath_exp(0) == 1 && fmath_exp(-0.0) == 1);
    assert_true(fmath_exp(710) == INFINITY && fmath_exp(INFINITY) == INFINITY && fmath_exp(1e300) == INFINITY);
    assert_true(fmath_exp(-746) == 0 && fmath_exp(-INFINITY) == 0);
    assert_true(isnan(fmath_exp(NAN)));
}

static void log_is_close(void **state) {
    worst = 0;
    for (uint64_t i = 0; i < 200000; i++) {
        double x = between(0.5, 2, 0, i), y = between(0, 262144, 1, i), z = exp(between(-700, 700, 2, i));
        compare(fmath_log(x), logl(x));
        compare(fmath_log(y), logl(y));
        compare(fmath_log(z), logl(z));
        double near = 1 + between(-1, 1, 3, i) * 1e-6;
        compare(fmath_log(near), logl(near));
    }
    print_message("log: worst error %.3f ulp\n", worst);
    assert_true(worst < 1.5);
    compare(fmath_log(0x1p-1074), logl(0x1p-1074L));
    compare(fmath_log(1.7976931348623157e308), logl(1.7976931348623157e308L));
    assert_true(worst < 1.5);
    assert_true(fmath_log(1) == 0 && fmath_log(0) == -INFINITY && fmath_log(INFINITY) == INFINITY);
    assert_true(isnan(fmath_log(-1)) && isnan(fmath_log(NAN)));
}

static void pow_is_close(void **state) {
    worst = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double base = exp(between(-20, 20, 0, i)), exponent = between(-30, 30, 1, i);
        compare(fmath_pow(base, exponent), powl(base, exponent));
        double near = 1 + between(-1, 1, 2, i) * 1e-5, large = between(-1e7, 1e7, 3, i);
        compare(fmath_pow(near, large), powl(near, large));
    }
    /* Rope frequencies. */
    static const double bases[] = {10000, 500000, 1000000, 5000000};
    for (int b = 0; b < 4; b++)
        for (int width = 64; width <= 512; width *= 2)
            for (int i = 0; i < width; i += 2)
                compare(fmath_pow(bases[b], -(double)i / width), powl(bases[b], -(double)i / width));
    print_message("pow: worst error %.3f ulp\n", worst);
    assert_true(worst < 1.5);
    assert_true(fmath_pow(2, 10) == 1024 && fmath_pow(2, -1022) == 0x1p-1022 && fmath_pow(4, 0.5) == 2);
    assert_true(fmath_pow(10, 3) == 1000 && fmath_pow(7, 0) == 1 && fmath_pow(1, 1e300) == 1);
    assert_true(fmath_pow(2, 1e300) == INFINITY && fmath_pow(0.5, 1e300) == 0 && fmath_pow(2, -5000) == 0);
    assert_true(fmath_pow(1 + 0x1p-52, 1e305) == INFINITY && fmath_pow(1 - 0x1p-53, 1e305) == 0);
    assert_true(fmath_pow(INFINITY, -1) == 0 && fmath_pow(INFINITY, 2) == INFINITY && fmath_pow(0, 2) == 0);
    assert_true(isnan(fmath_pow(-1, 2)) && isnan(fmath_pow(2, NAN)));
}

static void check_sincos(double x) {
    double s, c;
    fmath_sincos(x, &s, &c);
    compare(s, sinl(x));
    compare(c, cosl(x));
}

static void sincos_is_close(void **state) {
    worst = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        check_sincos(between(-4, 4, 0, i));
        check_sincos(between(-1e5, 1e5, 1, i));
        check_sincos(between(-0x1p30, 0x1p30, 2, i));
        check_sincos(between(-1, 1, 3, i) * 1e-6);
        check_sincos((double)(i * 10) * 0.8659643233600653); /* positions times a rope frequency */
        /* The double next to a multiple of pi/2, where nearly all bits cancel. */
        check_sincos((double)((long double)(i * 6829) * 1.57079632679489661923132169163975144L));
    }
    check_sincos(0x1p30);
    check_sincos(-0x1p30);
    print_message("sincos: worst error %.3f ulp\n", worst);
    assert_true(worst < 1.5);
    double s, c;
    fmath_sincos(0, &s, &c);
    assert_true(s == 0 && c == 1);
    fmath_sincos(0x1p31, &s, &c);
    assert_true(isnan(s) && isnan(c));
    fmath_sincos(NAN, &s, &c);
    assert_true(isnan(s) && isnan(c));
}

static uint64_t mix(uint64_t sum, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (sum ^ bits) * 0x100000001b3u;
}

static void bits_are_the_same_everywhere(void **state) {
    uint64_t sum = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < 50000; i++) {
        double s, c;
        sum = mix(sum, fmath_exp(between(-745, 709, 0, i)));
        sum = mix(sum, fmath_log(between(0, 1e6, 1, i)));
        sum = mix(sum, fmath_pow(between(0, 1e6, 2, i), between(-8, 8, 3, i)));
        fmath_sincos(between(-1e6, 1e6, 4, i), &s, &c);
        sum = mix(mix(sum, s), c);
    }
    assert_true(sum == 0xdf1e53307d9ae099u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_close),
        cmocka_unit_test(log_is_close),
        cmocka_unit_test(pow_is_close),
        cmocka_unit_test(sincos_is_close),
        cmocka_unit_test(bits_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
