/* Finding listed tokens literally in text: leftmost first, the longest there. Immutable after build. */
#ifndef TEXT_SPECIAL_H
#define TEXT_SPECIAL_H

#include "text/vocab.h"

enum { SPECIAL_BYTES_MAX = 1024 }; /* longest text that is matched; bounds the work per byte of the text */

struct special_set {
    int32_t *ids; /* sorted by text */
    uint32_t n;
    uint32_t first[257]; /* ids[first[b]..first[b + 1]) begin with byte b */
};

/* The user-defined tokens, and with `control` the control and unknown ones too; none of those
 * that have `without` among their flags. */
int special_build(struct special_set *set, const struct vocab *v, int control, const uint8_t *flags, unsigned without,
                  cohort_error *err);
void special_free(struct special_set *set);

/* The next token at or after *at: its id, and *at and *len where it is; -1 if there is none. */
int32_t special_next(const struct special_set *set, const struct vocab *v, const char *text, size_t n, size_t *at,
                     size_t *len);

/* The longest token that the n > 0 bytes of `text` begin with; -1 if there is none. */
int32_t special_longest(const struct special_set *set, const struct vocab *v, const char *text, size_t n, size_t *len);

#endif
