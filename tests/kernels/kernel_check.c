/* See kernel_check.h. */
#include "kernel_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { CANARY_BYTES = 64, CANARY = 0xa5 };

static size_t mapped_bytes(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + CANARY_BYTES + page - 1) / page * page + page;
}

void *check_alloc(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = mapped_bytes(bytes);
    char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base + mapped - page, page, PROT_NONE), 0);
    memset(base, CANARY, mapped - page);
    return base + mapped - page - bytes;
}

void check_free(void *memory, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = mapped_bytes(bytes);
    char *base = (char *)memory + bytes + page - mapped;
    for (const char *p = base; p < (char *)memory; p++) assert_int_equal((unsigned char)*p, CANARY);
    munmap(base, mapped);
}

static uint64_t state = 0x9e3779b97f4a7c15u;

uint32_t check_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state * 0x2545f4914f6cdd1du >> 32);
}

uint32_t check_below(uint32_t bound) { return (uint32_t)((uint64_t)check_random() * bound >> 32); }

float check_uniform(void) { return (float)(int32_t)check_random() * 0x1p-31f; }

float check_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t check_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float extreme(void) {
    static const uint32_t odd[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345,
                                   0x7f812345, 0x00000001, 0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
                                   0x3f800000, 0xbf800000, 0x42b17218, 0xc2aeac4f, 0xc2aeac50, 0x42b17217};
    uint32_t pick = check_below(3 * (sizeof odd / sizeof *odd));
    if (pick < sizeof odd / sizeof *odd) return check_from_bits(odd[pick]);
    return check_from_bits(check_random());
}

void check_fill(float *x, size_t n, enum check_numbers kind) {
    for (size_t i = 0; i < n; i++) {
        if (kind == CHECK_PLAIN)
            x[i] = 4 * check_uniform() * check_uniform();
        else if (kind == CHECK_WIDE)
            x[i] = ldexpf(check_uniform(), (int)check_below(250) - 125);
        else
            x[i] = extreme();
    }
}

int check_same(const float *want, const float *got, size_t n, char message[128]) {
    if (memcmp(want, got, n * sizeof *want) == 0) return 1;
    for (size_t i = 0; i < n; i++) {
        if (check_bits(want[i]) == check_bits(got[i]) || (isnan(want[i]) && isnan(got[i]))) continue;
        snprintf(message, 128, "value %zu of %zu: %a (%08x), should be %a (%08x)", i, n, (double)got[i],
                 check_bits(got[i]), (double)want[i], check_bits(want[i]));
        return 0;
    }
    return 1;
}
