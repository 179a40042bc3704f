/* The arena and the ways out of a run. One thread per run. */
#include "jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "jinja/jinja.h"

enum { CHUNK_MIN = 1 << 15, CHUNK_MAX = 1 << 20 };

struct chunk {
    struct chunk *next;
    size_t used, cap;
    _Alignas(16) char bytes[];
};

void arena_free(struct arena *a) {
    while (a->head) {
        struct chunk *next = a->head->next;
        mem_free(a->head);
        a->head = next;
    }
    a->used = 0;
}

static struct chunk *chunk_new(struct run *x, size_t need) {
    struct arena *a = x->arena;
    size_t cap = a->head ? a->head->cap * 2 : CHUNK_MIN, total;
    if (cap > CHUNK_MAX) cap = CHUNK_MAX;
    if (cap < need) cap = need;
    if (size_add(cap, sizeof(struct chunk), &total)) jx_fail_limit(x, "memory");
    if (total > a->limit || a->used > a->limit - total) jx_fail_limit(x, "memory");
    struct chunk *c = mem_alloc(total, 1);
    if (!c) jx_fail_code(x, COHORT_E_MEMORY, "chat_template", "no memory", 9);
    c->used = 0;
    c->cap = cap;
    /* A large one of its own goes behind the head, whose rest is still good. */
    if (a->head && need > CHUNK_MAX / 4 && a->head->cap - a->head->used > 256) {
        c->next = a->head->next;
        a->head->next = c;
    } else {
        c->next = a->head;
        a->head = c;
    }
    a->used += total;
    return c;
}

void *jx_alloc(struct run *x, size_t n, size_t size) {
    size_t bytes;
    if (size_mul(n, size, &bytes) || bytes > x->arena->limit) jx_fail_limit(x, "memory");
    bytes = (bytes + 15) & ~(size_t)15;
    struct chunk *c = x->arena->head;
    if (!c || c->cap - c->used < bytes) c = chunk_new(x, bytes);
    void *p = c->bytes + c->used;
    c->used += bytes;
    return p;
}

void *jx_zalloc(struct run *x, size_t n, size_t size) {
    void *p = jx_alloc(x, n, size);
    memset(p, 0, n * size);
    return p;
}

void *jx_grow(struct run *x, void *old, size_t old_n, size_t n) {
    struct chunk *c = x->arena->head;
    size_t was = (old_n + 15) & ~(size_t)15, now = (n + 15) & ~(size_t)15;
    if (old && c && (char *)old + was == c->bytes + c->used && now >= was && now - was <= c->cap - c->used) {
        c->used += now - was;
        return old;
    }
    void *p = jx_alloc(x, n, 1);
    if (old_n) memcpy(p, old, old_n);
    return p;
}

void jx_fail_code(struct run *x, int code, const char *field, const char *bytes, size_t n) {
    x->code = err_set(x->err, code, field, "%.*s", (int)(n > 4096 ? 4096 : n), bytes);
    longjmp(x->out, 1);
}

void jx_fail(struct run *x, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    x->code = err_set(x->err, COHORT_E_ARGUMENT, "chat_template", "line %u: %s", x->line, text);
    longjmp(x->out, 1);
}

void jx_fail_limit(struct run *x, const char *what) {
    x->code = err_set(x->err, COHORT_E_LIMIT, "chat_template", "line %u: too much %s", x->line, what);
    longjmp(x->out, 1);
}

void jx_enter(struct run *x) {
    if (++x->depth > 8 * JINJA_DEPTH_MAX) jx_fail_limit(x, "nesting");
}
