/* A walk over the formats; nesting is bounded by the check of the text's depth. */
#include "grammar/tags.h"

#include <string.h>

#include "base/buf.h"
#include "cohort/cohort.h"
#include "grammar/gbnf.h"
#include "grammar/pattern.h"
#include "grammar/schema.h"
#include "grammar/source.h"

enum {
    TEXTS_MAX =
        64 /* that free text leads away from, or must not hold, in one format: each is looked for in each token */
};

struct walk {
    int32_t space;
    const struct grammar_vocab *v;
    cohort_error *err;
};

/* Fields of each type of format beside "type". */
static const struct {
    const char *type, *fields[6];
} formats[] = {
    {"const_string", {"value"}},
    {"json_schema", {"json_schema", "style", "any_order", "max_whitespace_cnt", "excludes"}},
    {"qwen_xml_parameter", {"json_schema", "any_order", "max_whitespace_cnt", "excludes"}},
    {"any_text", {"excludes"}},
    {"grammar", {"grammar", "syntax"}},
    {"regex", {"pattern"}},
    {"sequence", {"elements"}},
    {"or", {"elements"}},
    {"tag", {"begin", "content", "end"}},
    {"triggered_tags", {"triggers", "tags", "excludes", "at_least_one", "stop_after_first"}},
    {"tags_with_separator", {"tags", "separator", "at_least_one", "stop_after_first"}},
    {"optional", {"content"}},
    {"plus", {"content"}},
    {"star", {"content"}},
    {"repeat", {"content", "min", "max"}},
    {"token", {"token"}},
    {"exclude_token", {"exclude_tokens"}},
    {"any_tokens", {"exclude_tokens"}},
    {"token_triggered_tags", {"trigger_tokens", "tags", "exclude_tokens", "at_least_one", "stop_after_first"}},
    {"dispatch", {"rules", "loop", "excludes"}},
    {"token_dispatch", {"rules", "loop", "exclude_tokens"}},
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static int refuse(struct walk *w, int code, const char *type, const char *reason) {
    return err_set(w->err, code, "grammar", "structural tag, %s: %s", type, reason);
}

static int walk_format(struct walk *w, json_t *format);

/* ---- Tokens ---- */

/* The id in place of a name; NULL and an error if there is none. */
static int token_id(struct walk *w, json_t *token, json_t **out) {
    *out = NULL;
    if (!json_is_string(token)) return 0; /* ids are checked with the others, by the compiler */
    int32_t id = grammar_vocab_find(w->v, json_string_value(token), json_string_length(token));
    if (id < 0) return refuse(w, COHORT_E_ARGUMENT, json_string_value(token), "there is no such token");
    *out = json_integer(id);
    return *out ? 0 : refuse(w, COHORT_E_MEMORY, "token", "no memory");
}

static int token_field(struct walk *w, json_t *format) {
    json_t *id;
    int rc = token_id(w, json_object_get(format, "token"), &id);
    return rc || !id                                  ? rc
           : json_object_set_new(format, "token", id) ? refuse(w, COHORT_E_MEMORY, "token", "no memory")
                                                      : 0;
}

static int token_list(struct walk *w, json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *id;
        int rc = token_id(w, json_array_get(list, i), &id);
        if (rc) return rc;
        if (id && json_array_set_new(list, i, id)) return refuse(w, COHORT_E_MEMORY, "token", "no memory");
    }
    return 0;
}

static int is_among(json_t *list, int32_t id) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == id) return 1;
    return 0;
}

/* Free text holds no control token but those that lead somewhere: all others are excluded. */
static int exclude_controls(struct walk *w, json_t *format, json_t *triggers) {
    json_t *excluded = json_object_get(format, "exclude_tokens");
    int32_t id;
    int bad = 0;
    if (!excluded) bad |= json_object_set_new(format, "exclude_tokens", excluded = json_array());
    for (uint32_t i = 0; !bad && (id = grammar_vocab_control(w->v, i)) >= 0; i++)
        if (!is_among(triggers, id)) bad |= json_array_append_new(excluded, json_integer(id));
    return bad ? refuse(w, COHORT_E_MEMORY, "exclude_tokens", "no memory") : 0;
}

/* Any tokens are any text, then: which has no control tokens. */
static int any_tokens(struct walk *w, json_t *format) {
    json_t *excluded = json_object_get(format, "exclude_tokens");
    for (size_t i = 0; i < json_array_size(excluded); i++)
        if (!grammar_vocab_is_control(w->v, (int32_t)json_integer_value(json_array_get(excluded, i))))
            return exclude_controls(w, format, NULL); /* tokens of text are left out: only a list of tokens says so */
    json_object_clear(format);
    return json_object_set_new(format, "type", json_string("any_text"))
               ? refuse(w, COHORT_E_MEMORY, "any_tokens", "no memory")
               : 0;
}

/* ---- What is inside ---- */

static int inner_schema(struct walk *w, json_t *format, const char *type) {
    json_t *space = json_object_get(format, "max_whitespace_cnt"), *made = NULL;
    if (json_is_true(json_object_get(format, "any_order")))
        return refuse(w, COHORT_E_UNSUPPORTED, type, "any_order does not hold what is required");
    if (space && !json_is_null(space) &&
        (!json_is_integer(space) || json_integer_value(space) < 0 ||
         json_integer_value(space) > COHORT_GRAMMAR_SPACE_MAX))
        return refuse(w, COHORT_E_ARGUMENT, type, "max_whitespace_cnt must be 0 .. 64");
    int bad =
        !space || json_is_null(space) ? json_object_set_new(format, "max_whitespace_cnt", json_integer(w->space)) : 0;
    json_t *schema = json_object_get(format, "json_schema");
    if (!schema) return refuse(w, COHORT_E_ARGUMENT, type, "json_schema is missing");
    int rc = schema_rewrite(schema, &made, w->err);
    if (rc) return rc;
    bad |= json_object_set_new(format, "json_schema", made);
    return bad ? refuse(w, COHORT_E_MEMORY, type, "no memory") : 0;
}

static int inner_text(struct walk *w, json_t *format, const char *type, const char *field) {
    json_t *text = json_object_get(format, field), *syntax = json_object_get(format, "syntax");
    struct buf out = {.max = 8 * COHORT_GRAMMAR_BYTES_MAX};
    if (!json_is_string(text)) return refuse(w, COHORT_E_ARGUMENT, type, "the text is missing");
    if (syntax && (!json_is_string(syntax) || strcmp(json_string_value(syntax), "ebnf")))
        return refuse(w, COHORT_E_UNSUPPORTED, type, "only the syntax \"ebnf\" is supported");
    int rc = strcmp(field, "grammar")
                 ? pattern_rewrite(json_string_value(text), json_string_length(text), PATTERN_WHOLE, &out, w->err)
                 : gbnf_rewrite(json_string_value(text), json_string_length(text), &out, w->err);
    if (!rc) {
        json_object_clear(format); /* both are grammars now */
        if (json_object_set_new(format, "type", json_string("grammar")) ||
            json_object_set_new(format, "grammar", json_stringn(out.data, out.len)))
            rc = refuse(w, COHORT_E_MEMORY, type, "no memory");
    }
    buf_free(&out);
    return rc;
}

/* ---- Structure ---- */

static int walk_list(struct walk *w, json_t *list) {
    int rc = 0;
    for (size_t i = 0; !rc && i < json_array_size(list); i++) rc = walk_format(w, json_array_get(list, i));
    return rc;
}

/* Pairs of what leads to a format, and the format. */
static int walk_rules(struct walk *w, json_t *format, int tokens) {
    json_t *rules = json_object_get(format, "rules"), *triggers = json_array();
    int rc = triggers ? 0 : refuse(w, COHORT_E_MEMORY, "rules", "no memory");
    for (size_t i = 0; !rc && i < json_array_size(rules); i++) {
        json_t *pair = json_array_get(rules, i), *id = NULL;
        if (json_array_size(pair) != 2)
            rc = refuse(w, COHORT_E_ARGUMENT, "rules", "each is a pair");
        else if (tokens)
            rc = token_id(w, json_array_get(pair, 0), &id);
        if (id && json_array_set_new(pair, 0, id)) rc = refuse(w, COHORT_E_MEMORY, "rules", "no memory");
        if (!rc && tokens && json_array_append(triggers, json_array_get(pair, 0)))
            rc = refuse(w, COHORT_E_MEMORY, "rules", "no memory");
        if (!rc) rc = walk_format(w, json_array_get(pair, 1));
    }
    if (!rc && tokens) rc = exclude_controls(w, format, triggers);
    json_decref(triggers);
    return rc;
}

/* A tag begins and ends with a text, or with a token. */
static int walk_side(struct walk *w, json_t *side) { return json_is_object(side) ? walk_format(w, side) : 0; }

static int check_texts(struct walk *w, json_t *format, const char *type) {
    static const char *const lists[] = {"triggers", "excludes", "rules", "end"};
    for (size_t i = 0; i < COUNT(lists); i++)
        if (json_array_size(json_object_get(format, lists[i])) > TEXTS_MAX)
            return refuse(w, COHORT_E_LIMIT, type, "more than 64 texts to look for");
    return 0;
}

static int walk_fields(struct walk *w, json_t *format, const char *type) {
    int rc = check_texts(w, format, type);
    if (rc) return rc;
    if (!strcmp(type, "json_schema") || !strcmp(type, "qwen_xml_parameter")) return inner_schema(w, format, type);
    if (!strcmp(type, "grammar")) return inner_text(w, format, type, "grammar");
    if (!strcmp(type, "regex")) return inner_text(w, format, type, "pattern");
    if (!strcmp(type, "token")) return token_field(w, format);
    rc = token_list(w, json_object_get(format, "exclude_tokens"));
    if (!rc) rc = token_list(w, json_object_get(format, "trigger_tokens"));
    if (!rc && !strcmp(type, "any_tokens")) return any_tokens(w, format);
    if (!rc && !strcmp(type, "token_triggered_tags"))
        rc = exclude_controls(w, format, json_object_get(format, "trigger_tokens"));
    if (!rc) rc = walk_list(w, json_object_get(format, "elements"));
    if (!rc) rc = walk_list(w, json_object_get(format, "tags"));
    if (!rc) rc = walk_rules(w, format, !strcmp(type, "token_dispatch"));
    if (!rc && json_object_get(format, "content")) rc = walk_format(w, json_object_get(format, "content"));
    if (!rc) rc = walk_side(w, json_object_get(format, "begin"));
    if (!rc) rc = walk_side(w, json_object_get(format, "end"));
    return rc;
}

static int walk_format(struct walk *w, json_t *format) {
    const char *type = json_string_value(json_object_get(format, "type")), *field;
    json_t *value;
    size_t k = 0;
    if (!json_is_object(format)) return refuse(w, COHORT_E_ARGUMENT, "format", "must be an object");
    if (!type) { /* the only ones that go without: a tag in a list of tags, a token at a tag's side */
        type = json_object_get(format, "begin") ? "tag" : "token";
        if (json_object_get(format, "type") || json_object_set_new(format, "type", json_string(type)))
            return refuse(w, COHORT_E_ARGUMENT, "format", "\"type\" must be a string");
    }
    while (k < COUNT(formats) && strcmp(type, formats[k].type)) k++;
    if (k == COUNT(formats)) return refuse(w, COHORT_E_ARGUMENT, type, "there is no such type of format");
    json_object_foreach(format, field, value) {
        int known = !strcmp(field, "type");
        for (size_t i = 0; i < COUNT(formats[k].fields) && formats[k].fields[i]; i++)
            known |= !strcmp(field, formats[k].fields[i]);
        if (!known) return refuse(w, COHORT_E_UNSUPPORTED, type, field);
    }
    return walk_fields(w, format, formats[k].type);
}

int tags_rewrite(json_t *tag, int32_t space, const struct grammar_vocab *v, cohort_error *err) {
    struct walk w = {space, v, err};
    const char *type = json_string_value(json_object_get(tag, "type"));
    if (!type || strcmp(type, "structural_tag") || json_object_size(tag) != 2 || !json_object_get(tag, "format"))
        return refuse(&w, COHORT_E_ARGUMENT, "structural_tag",
                      "must be {\"type\":\"structural_tag\",\"format\":{...}}");
    return walk_format(&w, json_object_get(tag, "format"));
}
