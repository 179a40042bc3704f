/* Structural tags, checked format by format: names of tokens become ids, what is inside (schemas, expressions,
 * grammars) goes the way that it goes outside of tags, and fields that nothing reads are refused. */
#ifndef GRAMMAR_TAGS_H
#define GRAMMAR_TAGS_H

#include <stdint.h>

#include <jansson.h>

#include "base/err.h"

struct grammar_vocab;
/* Changes `tag` in place. `space`: for schemas that do not say. */
int tags_rewrite(json_t *tag, int32_t space, const struct grammar_vocab *v, cohort_error *err);

#endif
