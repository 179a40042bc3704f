/* What the kernel checks share: the levels that can run here, guarded buffers, numbers of every kind, and equality of
 * bits. Test programs only; one thread. */
#ifndef TESTS_KERNEL_CHECK_H
#define TESTS_KERNEL_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* A buffer that ends exactly at an unreadable page (reading or writing behind it is a crash) and has canaries before
 * it. Freed by check_free, which fails the test if a canary changed. */
void *check_alloc(size_t bytes);
void check_free(void *memory, size_t bytes);

uint32_t check_random(void);          /* any 32 bits; the sequence is fixed */
uint32_t check_below(uint32_t bound); /* 0 .. bound - 1 */
float check_uniform(void);            /* -1 .. 1 */
float check_from_bits(uint32_t bits);
uint32_t check_bits(float x);

enum check_numbers {
    CHECK_PLAIN,   /* within a few units of zero */
    CHECK_WIDE,    /* finite, any exponent */
    CHECK_EXTREME, /* any bits; NaN, infinities, zeros, denormals and the largest numbers often */
    CHECK_NUMBERS
};
void check_fill(float *x, size_t n, enum check_numbers kind);

/* The same bits, or both NaN (which NaN an operation gives is left open). The message names the first difference. */
int check_same(const float *want, const float *got, size_t n, char message[128]);

#endif
