/* JSON schemas, rewritten for the compiler so that what it would ignore, guess or get wrong is either said otherwise or
 * refused: every answer that the result allows is valid under the schema as it was given. Pure; any thread.
 *
 * The result allows fewer answers than the schema where both cannot be had: docs/GRAMMARS.md lists where. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "base/err.h"

/* *out: a new reference. Errors name the keyword by its path in the schema. */
int schema_rewrite(json_t *schema, json_t **out, cohort_error *err);

#endif
