/* Grammars in GBNF's notation, read whole and written anew for the compiler: only what GBNF has gets through, and
 * errors name the line. Pure. */
#ifndef GRAMMAR_GBNF_H
#define GRAMMAR_GBNF_H

#include "base/buf.h"
#include "base/err.h"

/* E_ARGUMENT: not GBNF, or a rule is missing; E_UNSUPPORTED: tokens by number or name, which a structural tag has. */
int gbnf_rewrite(const char *text, size_t len, struct buf *out, cohort_error *err);

/* gbnf_ends.c: of what was written, so many rules: 0; E_ARGUMENT: no text ends; E_LIMIT, E_MEMORY. */
int gbnf_has_text(const char *text, size_t rules, cohort_error *err);

#endif
