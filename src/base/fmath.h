/* Our own exp, log, pow, sin and cos in double, scalar: + - * / only, so the bits do not depend on libm or
 * the CPU. Used where values are few (rope tables, log-probabilities). Errors are a few ulp in the ranges used. The
 * vectorised fp32 exp belongs to the CPU backend's kernels. */
#ifndef BASE_FMATH_H
#define BASE_FMATH_H

double fmath_exp(double x);
double fmath_log(double x);                        /* x > 0 */
double fmath_pow(double base, double exponent);    /* base > 0 */
void fmath_sincos(double x, double *s, double *c); /* |x| <= 2^30 */

#endif
