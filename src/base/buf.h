/* A growing byte buffer with a limit. Zero-initialise, use, buf_free. Always NUL-terminated behind `len` once it holds
 * something. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>

struct buf {
    char *data;
    size_t len, cap;
    size_t max; /* 0: no limit */
};

int buf_add(struct buf *b, const void *bytes, size_t n); /* 0, COHORT_E_MEMORY or COHORT_E_LIMIT: nothing added then */
int buf_adds(struct buf *b, const char *string);
int buf_addf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a quoted JSON string. All control characters are escaped, also DEL and C1; invalid UTF-8 becomes U+FFFD. */
int buf_json_string(struct buf *b, const char *bytes, size_t n);
void buf_clear(struct buf *b); /* keeps the memory */
void buf_free(struct buf *b);

#endif
