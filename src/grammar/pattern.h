/* Regular expressions as JSON Schema has them (ECMAScript's, with Unicode), rewritten so that only one reading is left:
 * every character and class spelled out, anchors resolved, what cannot be held refused. Pure. */
#ifndef GRAMMAR_PATTERN_H
#define GRAMMAR_PATTERN_H

#include "base/buf.h"
#include "base/err.h"

enum pattern_use {
    PATTERN_WHOLE, /* the text matches from end to end */
    PATTERN_STRING /* a JSON string's content holds a match, and none of the characters that JSON escapes */
};
/* Adds the rewritten expression to `out`: WHOLE as a grammar of the compiler's, STRING as an expression of its.
 * E_ARGUMENT: not a pattern; E_UNSUPPORTED: what it says cannot be held. */
int pattern_rewrite(const char *text, size_t len, enum pattern_use use, struct buf *out, cohort_error *err);

#endif
