/* What every file of the room shares: the run (of a parse or of a rendering), its memory, its limits and its way out.
 *
 * A run takes all its memory from one arena and leaves on failure by longjmp to the one public function that began it,
 * which frees the arena. So nothing inside the room can leak, and no value is looked at after a failure. */
#ifndef JINJA_RUN_H
#define JINJA_RUN_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "jinja/jinja.h"

struct chunk;
struct arena {
    struct chunk *head;
    size_t used, limit; /* bytes taken from the system, and at most */
};

struct run {
    jmp_buf out;
    cohort_error *err;
    int code;
    uint32_t line; /* of the template, for messages */
    struct arena *arena;
    uint64_t steps;
    int depth;             /* of evaluation and of walks over values */
    int calls;             /* of macros and recursive loops */
    struct render *render; /* NULL while parsing */
};

void arena_free(struct arena *a);
/* Never NULL, not zeroed, 16-byte aligned. */
void *jx_alloc(struct run *x, size_t n, size_t size);
void *jx_zalloc(struct run *x, size_t n, size_t size);
/* `old` of old_n bytes with room for n: in its place if it was the last one taken. */
void *jx_grow(struct run *x, void *old, size_t old_n, size_t n);

_Noreturn void jx_fail(struct run *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void jx_fail_limit(struct run *x, const char *what);
_Noreturn void jx_fail_code(struct run *x, int code, const char *field, const char *bytes, size_t n);
/* Counts work. */
static inline void jx_steps(struct run *x, uint64_t n) {
    x->steps += n;
    if (x->steps > JINJA_STEPS_MAX) jx_fail_limit(x, "work");
}
void jx_enter(struct run *x); /* one level deeper */
static inline void jx_leave(struct run *x) { x->depth--; }

#endif
