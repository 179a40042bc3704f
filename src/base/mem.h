/* Memory: checked sizes and one place through which every heap allocation of the library and the server goes (not the
 * cli's, nor those inside other libraries), so that tests can make the nth one fail. Any thread. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* NULL on failure or if n * size overflows. n * size == 0 gives a unique pointer. */
void *mem_alloc(size_t n, size_t size);
void *mem_zalloc(size_t n, size_t size);
void *mem_realloc(void *old, size_t n, size_t size); /* old stays valid on failure */
void *mem_aligned(size_t n, size_t size);            /* 64-byte aligned, not zeroed; mem_free frees it */
char *mem_text(const char *bytes, size_t n);         /* a copy that ends with NUL */
void mem_free(void *memory);

/* Page-aligned zero memory straight from the system (for arenas: untouched pages cost nothing). NULL on failure. */
void *mem_map(size_t bytes);
/* The same for memory that will be used whole: in large pages where the system has them, which come into being at once
 * instead of by a fault for each small one. */
void *mem_map_large(size_t bytes);
void mem_unmap(void *memory, size_t bytes);
/* Much memory was taken in small pieces and will be free soon: for some seconds from now mem_tick, which somebody calls
 * once a second, gives back to the system what is free in whole pages (milliseconds each time). */
void mem_give_back_soon(void);
void mem_tick(void);

/* Test hook: the nth allocation from now on (1 = the next) fails, and all after it if `sticky`. 0: off. */
void mem_fail_at(uint64_t nth, int sticky);
uint64_t mem_count(void); /* allocations so far */

static inline int size_mul(size_t a, size_t b, size_t *out) { return __builtin_mul_overflow(a, b, out) ? -1 : 0; }
static inline int size_add(size_t a, size_t b, size_t *out) { return __builtin_add_overflow(a, b, out) ? -1 : 0; }

#endif
