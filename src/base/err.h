/* Errors inside the house: a code from cohort.h's list and one line of text that names the field or file and the
 * reason. Every fallible function returns 0 or a negative code; the text travels in the caller's `cohort_error` (may be
 * NULL). */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "cohort/cohort.h"

/* Fills *err (if not NULL) and returns `code`. The text is cut to fit, made valid UTF-8 and put on one line. `field`
 * may be NULL. */
int err_set(cohort_error *err, int code, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "prefix: " in front of the text already there (a path, say), and returns err's code, or `code` if err is NULL.
 */
int err_prefix(cohort_error *err, int code, const char *prefix);

#endif
