/* The constants of the fp32 functions (docs/NUMERICS.md, Elementwise), shared by the reference and the levels. */
#ifndef BACKEND_CPU_EXP_CONSTANTS_H
#define BACKEND_CPU_EXP_CONSTANTS_H

#define EXP_LOG2E    0x1.715476p+0f
#define EXP_ROUND    0x1.8p+23f      /* adding it rounds to an integer, kept in the low bits */
#define EXP_LN2_HIGH 0x1.62e4p-1f    /* 15 bits, so that n times it is exact */
#define EXP_LN2_LOW  0x1.7f7d1cp-20f /* ln 2 - EXP_LN2_HIGH, rounded */
#define EXP_C2       0x1.fffffcp-2f  /* minimax for the relative error on |r| <= ln2 / 2 */
#define EXP_C3       0x1.555492p-3f
#define EXP_C4       0x1.5558f2p-5f
#define EXP_C5       0x1.1239dap-7f
#define EXP_C6       0x1.6a22bep-10f
#define EXP_LOWEST   -0x1.5d589ep+6f /* the last x whose exp is a normal number; below it exp is +0 */
#define EXP_HIGHEST  0x1.62e42ep+6f  /* the last x whose exp is finite */

#define TANH_LIMIT 10.0f /* tanh is 1 from about 9 on */
#define GELU_CUBIC 0.044715f
#define GELU_SCALE -1.5957691216f /* -2 sqrt(2 / pi) */

/* log(1 + e) = 2 s (1 + s^2 / 3 + s^4 / 5 + ...) with s = e / (2 + e), for e in 0 .. 1: 1 / 15, 1 / 13, ... 1 / 3. */
#define LOG1P_COUNT 7
#define LOG1P_TERMS                                                                                                    \
    { 0x1.111112p-4f, 0x1.3b13b2p-4f, 0x1.745d18p-4f, 0x1.c71c72p-4f, 0x1.24924ap-3f, 0x1.99999ap-3f, 0x1.555556p-2f }

#endif
