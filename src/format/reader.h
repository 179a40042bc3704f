/* A bounded walk over the bytes of a header, with error messages that say what was being read. One thread. */
#ifndef FORMAT_READER_H
#define FORMAT_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/meta.h"

struct reader {
    const uint8_t *base;
    size_t size, at;
    cohort_error *err;
    /* What is being read, for messages: "key 'x'" once `name` is known, else "key 7", or just the kind without a
     * number. */
    const char *kind;
    uint64_t number; /* READER_NO_NUMBER: none */
    struct meta_string name;
};
#define READER_NO_NUMBER UINT64_MAX

/* Says what is read next. */
void reader_begin(struct reader *r, const char *kind, uint64_t number);

/* Fills the error ("tensor 'x' <format...>", field "x") and returns `code`. */
int reader_fail(struct reader *r, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int reader_no_memory(struct reader *r);

size_t reader_left(const struct reader *r);        /* bytes behind `at` */
int reader_need(struct reader *r, uint64_t bytes); /* an error unless that many are left */

int reader_u32(struct reader *r, uint32_t *out);
int reader_u64(struct reader *r, uint64_t *out);
int reader_string(struct reader *r, struct meta_string *out);
/* Reads the name of a key or tensor into r->name: 1..max bytes of printable UTF-8, so that it can stand in a message or
 * a C string. */
int reader_name(struct reader *r, uint64_t max);

#endif
