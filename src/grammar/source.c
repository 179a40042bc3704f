/* The front door of a compile: sizes, encoding and nesting, then the kind's own checks. */
#include "grammar/source.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/grammar.h"

static int check_text(const cohort_grammar_source *source, cohort_error *err) {
    if (source->space < 0 || source->space > COHORT_GRAMMAR_SPACE_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "grammar", "space must be 0 .. %d", COHORT_GRAMMAR_SPACE_MAX);
    if (source->kind == COHORT_GRAMMAR_JSON) return 0;
    if (!source->text || source->len == 0) return err_set(err, COHORT_E_ARGUMENT, "grammar", "is empty");
    if (source->len > COHORT_GRAMMAR_BYTES_MAX)
        return err_set(err, COHORT_E_LIMIT, "grammar", "has %zu bytes, at most %d are allowed", source->len,
                       COHORT_GRAMMAR_BYTES_MAX);
    if (memchr(source->text, 0, source->len) || !utf8_valid(source->text, source->len))
        return err_set(err, COHORT_E_ARGUMENT, "grammar", "is not UTF-8 text");
    return 0;
}

int grammar_source_check(const cohort_grammar_source *source, const struct grammar_vocab *v, struct grammar_source *out,
                         cohort_error *err) {
    static const char any_object[] = "{\"type\":\"object\",\"additionalProperties\":true}";
    int rc = check_text(source, err);
    if (rc) return rc;
    *out = (struct grammar_source){source->kind, source->text, source->len, NULL, source->space, 1};
    switch (source->kind) {
    case COHORT_GRAMMAR_JSON:
        out->kind = COHORT_GRAMMAR_JSON_SCHEMA;
        out->text = any_object;
        out->len = sizeof any_object - 1;
        return 0;
    case COHORT_GRAMMAR_JSON_SCHEMA:
    case COHORT_GRAMMAR_REGEX:
    case COHORT_GRAMMAR_EBNF:
    case COHORT_GRAMMAR_TAGS:
        return 0;
    case COHORT_GRAMMAR_NONE:
        break;
    }
    return err_set(err, COHORT_E_ARGUMENT, "grammar", "has no kind that is known");
}

void grammar_source_free(struct grammar_source *source) {
    mem_free(source->owned);
    source->owned = NULL;
}
