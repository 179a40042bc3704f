/* exp, log, pow, sin and cos in double from + - * / in a fixed order: equal bits on every machine. Pure.
 *
 * Each function reduces its argument to a small range and sums a Taylor series there, long enough that the rest of the
 * series lies below 1e-17 of the value. Where a reduction would lose bits, a value is carried as the unevaluated sum of
 * two doubles (struct pair); Dekker's and Knuth's exact sum and product make such pairs. */
#include "base/fmath.h"

#include <stdint.h>
#include <string.h>

struct pair {
    double hi, lo; /* |lo| <= half an ulp of hi */
};

/* 1.5 * 2^52: adding and subtracting it rounds |x| < 2^51 to the nearest integer. */
static const double round_magic = 0x1.8p52;
/* ln 2 in two parts; the first has 32 bits, so that its product with any exponent is exact. */
static const double ln2_hi = 0x1.62e42fee00000p-1, ln2_lo = 0x1.a39ef35793c76p-33;

static double round_nearest(double x) { return (x + round_magic) - round_magic; }

static uint64_t to_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* 2^k for -1022 <= k <= 1023. */
static double power_of_two(int k) { return from_bits((uint64_t)(k + 1023) << 52); }

static struct pair two_sum(double a, double b) {
    double s = a + b, t = s - a;
    return (struct pair){s, (a - (s - t)) + (b - t)};
}

/* As two_sum, for |a| >= |b|. */
static struct pair quick_sum(double a, double b) {
    double s = a + b;
    return (struct pair){s, b - (s - a)};
}

static struct pair two_product(double a, double b) {
    double p = a * b;
    double ca = 134217729.0 * a, cb = 134217729.0 * b; /* 2^27 + 1 splits 53 bits in halves */
    double ah = ca - (ca - a), bh = cb - (cb - b);
    double al = a - ah, bl = b - bh;
    return (struct pair){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

static struct pair pair_product(struct pair a, struct pair b) {
    struct pair p = two_product(a.hi, b.hi);
    return quick_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

static struct pair pair_sum(struct pair a, struct pair b) {
    struct pair s = two_sum(a.hi, b.hi);
    return quick_sum(s.hi, s.lo + (a.lo + b.lo));
}

/* exp(hi + lo), |lo| small against 1. */
static double exp_pair(double hi, double lo) {
    if (hi != hi) return hi;
    if (hi > 709.8) return __builtin_inf();
    if (hi < -745.2) return 0.0;
    double k = round_nearest(hi * 0x1.71547652b82fep+0);
    double a = hi - k * ln2_hi; /* exact */
    double b = lo - k * ln2_lo;
    struct pair r = two_sum(a, b);
    double x = r.hi, q = 1.0 / 6227020800.0; /* 1/13!, then down to 1/2! */
    q = q * x + 1.0 / 479001600.0;
    q = q * x + 1.0 / 39916800.0;
    q = q * x + 1.0 / 3628800.0;
    q = q * x + 1.0 / 362880.0;
    q = q * x + 1.0 / 40320.0;
    q = q * x + 1.0 / 5040.0;
    q = q * x + 1.0 / 720.0;
    q = q * x + 1.0 / 120.0;
    q = q * x + 1.0 / 24.0;
    q = q * x + 1.0 / 6.0;
    q = q * x + 0.5;
    double tail = x * x * q + r.lo * (1.0 + x); /* exp(x) = 1 + x + tail */
    struct pair one = quick_sum(1.0, x);
    double y = one.hi + (one.lo + tail);
    int n = (int)k;
    if (n > 1023) return y * 2.0 * power_of_two(n - 1);
    if (n < -1022) return y * power_of_two(n + 64) * 0x1p-64;
    return y * power_of_two(n);
}

double fmath_exp(double x) { return exp_pair(x, 0.0); }

/* Splits x > 0 (finite) into m * 2^*exponent with m in [sqrt(1/2), sqrt(2)). */
static double split(double x, int *exponent) {
    int e = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        e = -54;
    }
    uint64_t bits = to_bits(x), fraction = bits & 0xfffffffffffffu;
    e += (int)(bits >> 52) - 1023;
    int above = fraction > 0x6a09e667f3bccu; /* the fraction bits of sqrt(2) */
    *exponent = e + above;
    return from_bits(fraction | (uint64_t)(1023 - above) << 52);
}

/* sum of 2 / (2i + 1) * z^(i - first) from i = first to 12, the series of atanh. */
static double atanh_tail(double z, int first) {
    double sum = 0.0;
    for (int i = 12; i >= first; i--) sum = sum * z + 2.0 / (2.0 * i + 1.0);
    return sum;
}

/* Values outside (0, inf), as log answers them. */
static int log_special(double x, double *out) {
    if (x > 0.0 && x <= 0x1.fffffffffffffp1023) return 0;
    *out = x == 0.0 ? -__builtin_inf() : x > 0.0 ? x : __builtin_nan("");
    return 1;
}

double fmath_log(double x) {
    double special;
    if (log_special(x, &special)) return special;
    int exponent;
    double f = split(x, &exponent) - 1.0, k = exponent; /* exact: m is within a factor 2 of 1 */
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    /* log(1 + f) = 2 atanh(s) = f - half + s * (half + rest): the large terms are exact, so errors stay small. */
    double rest = z * atanh_tail(z, 1);
    return k * ln2_hi - ((half - (s * (half + rest) + k * ln2_lo)) - f);
}

/* log(x) with about 100 bits, for pow. */
static struct pair log_pair(double x) {
    int exponent;
    double m = split(x, &exponent), k = exponent;
    double f = m - 1.0; /* exact */
    struct pair d = two_sum(m, 1.0);
    double s_hi = f / d.hi; /* s = f / (m + 1): a quotient and one correction from its exact remainder */
    struct pair back = two_product(s_hi, d.hi);
    struct pair s = quick_sum(s_hi, ((f - back.hi) - back.lo - s_hi * d.lo) / d.hi);
    struct pair z = pair_product(s, s);
    static const struct pair two_thirds = {0x1.5555555555555p-1, 0x1.5555555555555p-55};
    static const struct pair two_fifths = {0x1.999999999999ap-2, -0x1.999999999999ap-56};
    static const struct pair two_sevenths = {0x1.2492492492492p-2, 0x1.2492492492492p-56};
    struct pair sum = pair_sum(two_sevenths, (struct pair){z.hi * atanh_tail(z.hi, 4), 0.0});
    sum = pair_sum(two_fifths, pair_product(z, sum));
    sum = pair_sum(two_thirds, pair_product(z, sum));
    sum = pair_sum((struct pair){2.0, 0.0}, pair_product(z, sum));
    sum = pair_product(s, sum);
    struct pair base = two_sum(k * ln2_hi, k * ln2_lo);
    return pair_sum(base, sum);
}

double fmath_pow(double base, double exponent) {
    double special;
    if (exponent == 0.0 || base == 1.0) return 1.0;
    if (exponent != exponent) return exponent;
    if (log_special(base, &special)) return fmath_exp(exponent * special);
    struct pair log = log_pair(base);
    double rough = exponent * log.hi;
    if (!(rough < 1000.0 && rough > -1000.0)) return exp_pair(rough, 0.0);
    /* Beyond 2^900 the splitting in two_product would overflow; such an exponent matters only next to base 1, where
     * |log| >= 2^-53 puts it far outside the range above. */
    struct pair p = two_product(exponent, log.hi);
    return exp_pair(p.hi, p.lo + exponent * log.lo);
}

/* x - n * pi/2 for the nearest n, as a pair of 100 bits or more; returns n mod 4.
 * pi/2 stands in four parts of 23 bits and a rest: n has at most 30 bits, so its products with the parts are exact. */
static int reduce(double x, struct pair *r) {
    double n = round_nearest(x * 0x1.45f306dc9c883p-1);
    double a = (x - n * 0x1.921fb4p+0) - n * 0x1.4442dp-24; /* both differences are exact */
    struct pair b = two_sum(a, -(n * 0x1.846988p-48));
    struct pair c = two_sum(b.hi, -(n * 0x1.8cc514p-72));
    struct pair low = two_sum(b.lo, c.lo);
    struct pair sum = two_sum(c.hi, low.hi);
    *r = quick_sum(sum.hi, sum.lo + (low.lo - n * 0x1.80dc1cd129025p-95));
    return (int)((int64_t)n & 3);
}

void fmath_sincos(double x, double *s, double *c) {
    if (!(x <= 1073741824.0 && x >= -1073741824.0)) { /* 2^30; NaN too */
        *s = *c = __builtin_nan("");
        return;
    }
    struct pair r;
    int quarter = reduce(x, &r);
    double y = r.hi, z = y * y;
    double p = 1.0 / 355687428096000.0; /* 1/17!, 1/15! ... 1/3!, signs alternating */
    p = p * z - 1.0 / 1307674368000.0;
    p = p * z + 1.0 / 6227020800.0;
    p = p * z - 1.0 / 39916800.0;
    p = p * z + 1.0 / 362880.0;
    p = p * z - 1.0 / 5040.0;
    p = p * z + 1.0 / 120.0;
    p = p * z - 1.0 / 6.0;
    double sine = y + (y * z * p + r.lo * (1.0 - 0.5 * z));
    double q = -1.0 / 6402373705728000.0; /* 1/18!, 1/16! ... 1/4! */
    q = q * z + 1.0 / 20922789888000.0;
    q = q * z - 1.0 / 87178291200.0;
    q = q * z + 1.0 / 479001600.0;
    q = q * z - 1.0 / 3628800.0;
    q = q * z + 1.0 / 40320.0;
    q = q * z - 1.0 / 720.0;
    q = q * z + 1.0 / 24.0;
    double half = 0.5 * z, w = 1.0 - half;
    double cosine = w + (((1.0 - w) - half) + (z * z * q - y * r.lo));
    switch (quarter) {
    case 0:
        *s = sine, *c = cosine;
        break;
    case 1:
        *s = cosine, *c = -sine;
        break;
    case 2:
        *s = -sine, *c = -cosine;
        break;
    default:
        *s = -cosine, *c = sine;
        break;
    }
}
