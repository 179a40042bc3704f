/* The one door to the heap. Two atomic counters serve the tests' failure hook; otherwise stateless. Any thread. */
#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic uint64_t allocations;
static _Atomic uint64_t fail_at; /* the number of the allocation that fails; 0: none */
static _Atomic int fail_sticky;

/* Counts an allocation; nonzero if the hook wants it to fail. */
static int must_fail(void) {
    uint64_t number = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
    uint64_t limit = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (__builtin_expect(limit == 0, 1)) return 0;
    return number == limit || (number > limit && atomic_load_explicit(&fail_sticky, memory_order_relaxed));
}

void mem_fail_at(uint64_t nth, int sticky) {
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_at, nth ? atomic_load(&allocations) + nth : 0);
}

uint64_t mem_count(void) { return atomic_load(&allocations); }

/* Bytes to ask for: never 0, so that every success is a pointer of its own. */
static int request_bytes(size_t n, size_t size, size_t *bytes) {
    if (size_mul(n, size, bytes)) return -1;
    if (*bytes == 0) *bytes = 1;
    return 0;
}

void *mem_alloc(size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || request_bytes(n, size, &bytes)) return NULL;
    return malloc(bytes);
}

void *mem_zalloc(size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || request_bytes(n, size, &bytes)) return NULL;
    return calloc(1, bytes);
}

void *mem_realloc(void *old, size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || request_bytes(n, size, &bytes)) return NULL;
    return realloc(old, bytes);
}

void *mem_aligned(size_t n, size_t size) {
    size_t bytes, rounded;
    if (must_fail() || request_bytes(n, size, &bytes) || size_add(bytes, 63, &rounded)) return NULL;
    return aligned_alloc(64, rounded & ~(size_t)63);
}

char *mem_text(const char *bytes, size_t n) {
    char *text = n < SIZE_MAX ? mem_alloc(n + 1, 1) : NULL;
    if (!text) return NULL;
    if (n) memcpy(text, bytes, n);
    text[n] = '\0';
    return text;
}

void mem_free(void *memory) { free(memory); }

static void *map(size_t bytes, int more_flags) {
    if (must_fail() || bytes == 0) return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *mem_map(size_t bytes) { return map(bytes, MAP_NORESERVE); }

void *mem_map_large(size_t bytes) {
    void *memory = map(bytes, 0); /* it will be used whole, so what cannot be promised fails here */
#if defined(MADV_HUGEPAGE)
    if (memory) madvise(memory, bytes, MADV_HUGEPAGE); /* a wish */
#endif
    return memory;
}

void mem_unmap(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}

enum { GIVE_BACK_TICKS = 8 };
static _Atomic int give_back_ticks;

void mem_give_back_soon(void) { atomic_store(&give_back_ticks, GIVE_BACK_TICKS); }

void mem_tick(void) {
    if (atomic_load(&give_back_ticks) <= 0) return;
    atomic_fetch_sub(&give_back_ticks, 1);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
