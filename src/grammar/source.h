/* What is asked for, checked and made ready for the compiler: texts of every kind before they reach parsers that
 * recurse, ignore or guess. C; any thread. */
#ifndef GRAMMAR_SOURCE_H
#define GRAMMAR_SOURCE_H

#include <stdint.h>

#include "base/err.h"
#include "cohort/cohort.h"

#ifdef __cplusplus
extern "C" {
#endif

struct grammar_vocab;
/* The id of the token with this text: of a control token rather than of another one; -1: there is none. */
int32_t grammar_vocab_find(const struct grammar_vocab *v, const char *text, size_t len);
int32_t grammar_vocab_control(const struct grammar_vocab *v,
                              uint32_t i); /* the ith control token; -1: there are no more */
int grammar_vocab_is_control(const struct grammar_vocab *v, int32_t id);

struct grammar_source {
    cohort_grammar_kind kind; /* of `text`: JSON_SCHEMA, EBNF or TAGS; JSON and REGEX have become one of them */
    const char *text;
    size_t len;
    char *owned;   /* what `text` points into; NULL: into the caller's own */
    int32_t space; /* as in cohort_grammar_source */
};

/* Fills *out, which grammar_source_free clears; after an error there is nothing to clear. */
int grammar_source_check(const cohort_grammar_source *source, const struct grammar_vocab *v, struct grammar_source *out,
                         cohort_error *err);
void grammar_source_free(struct grammar_source *source);

#ifdef __cplusplus
}
#endif
#endif
