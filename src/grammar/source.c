/* The front door of a compile: sizes, encoding and nesting, then the kind's own checks, which write the text anew. */
#include "grammar/source.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/real.h"
#include "base/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/grammar.h"
#include "grammar/pattern.h"
#include "grammar/schema.h"
#include "grammar/tags.h"

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

/* Brackets that are open at once, outside of strings. */
static int check_depth(const char *text, size_t len, cohort_error *err) {
    int depth = 0, in_string = 0;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else
                in_string = c != '"';
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '{' || c == '[') {
            if (++depth > GRAMMAR_DEPTH_MAX)
                return err_set(err, COHORT_E_LIMIT, "grammar", "is nested more than %d deep", GRAMMAR_DEPTH_MAX);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return 0;
}

static int read_json(const cohort_grammar_source *source, json_t **out, cohort_error *err) {
    json_error_t why;
    int rc = check_depth(source->text, source->len, err);
    if (rc) return rc;
    *out = json_loadb(source->text, source->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    return *out ? 0 : err_set(err, COHORT_E_ARGUMENT, "grammar", "is not JSON: line %d: %s", why.line, why.text);
}

/* jansson's memory becomes ours. */
static int take_json(json_t *json, struct grammar_source *out, cohort_error *err) {
    char *text = real_shorten_json(json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY));
    size_t n = text ? strlen(text) : 0;
    out->owned = text ? mem_alloc(n + 1, 1) : NULL;
    if (out->owned) memcpy(out->owned, text, n + 1);
    free(text);
    out->text = out->owned;
    out->len = n;
    return out->owned ? 0 : err_set(err, COHORT_E_MEMORY, "grammar", "no memory to read it");
}

static int take_schema(const cohort_grammar_source *source, struct grammar_source *out, cohort_error *err) {
    json_t *schema = NULL, *made = NULL;
    int rc = read_json(source, &schema, err);
    if (!rc) rc = schema_rewrite(schema, &made, err);
    if (!rc) rc = take_json(made, out, err);
    json_decref(schema);
    json_decref(made);
    return rc;
}

static int take_tags(const cohort_grammar_source *source, const struct grammar_vocab *v, struct grammar_source *out,
                     cohort_error *err) {
    json_t *tag = NULL;
    int rc = read_json(source, &tag, err);
    if (!rc) rc = tags_rewrite(tag, source->space, v, err);
    if (!rc) rc = take_json(tag, out, err);
    json_decref(tag);
    return rc;
}

static int take_text(const cohort_grammar_source *source, struct grammar_source *out, cohort_error *err) {
    struct buf text = {.max = 16 * COHORT_GRAMMAR_BYTES_MAX};
    int rc = source->kind == COHORT_GRAMMAR_REGEX
                 ? pattern_rewrite(source->text, source->len, PATTERN_WHOLE, &text, err)
                 : gbnf_rewrite(source->text, source->len, &text, err);
    if (!rc && !text.len) rc = err_set(err, COHORT_E_ARGUMENT, "grammar", "has no rules");
    if (rc) {
        buf_free(&text);
        return rc;
    }
    out->kind = COHORT_GRAMMAR_EBNF;
    out->text = out->owned = text.data;
    out->len = text.len;
    return 0;
}

int grammar_source_check(const cohort_grammar_source *source, const struct grammar_vocab *v, struct grammar_source *out,
                         cohort_error *err) {
    static const char any_object[] = "{\"type\":\"object\",\"additionalProperties\":true}";
    int rc = check_text(source, err);
    if (rc) return rc;
    *out = (struct grammar_source){source->kind, source->text, source->len, NULL, source->space};
    switch (source->kind) {
    case COHORT_GRAMMAR_JSON:
        out->kind = COHORT_GRAMMAR_JSON_SCHEMA;
        out->text = any_object;
        out->len = sizeof any_object - 1;
        return 0;
    case COHORT_GRAMMAR_JSON_SCHEMA:
        return take_schema(source, out, err);
    case COHORT_GRAMMAR_REGEX:
    case COHORT_GRAMMAR_EBNF:
        return take_text(source, out, err);
    case COHORT_GRAMMAR_TAGS:
        return take_tags(source, v, out, err);
    case COHORT_GRAMMAR_NONE:
        break;
    }
    return err_set(err, COHORT_E_ARGUMENT, "grammar", "has no kind that is known");
}

void grammar_source_free(struct grammar_source *source) {
    mem_free(source->owned);
    source->owned = NULL;
}
