/* The form of an answer (forms.h).
 *
 *   response_format     OpenAI's: {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema":
 *                       {"name", "schema", "strict", "description"}}; a schema is held whether or not it says "strict".
 *                       vLLM's {"type": "structural_tag", ...}; llama-server's "schema" beside "json_object"
 *   structured_outputs  vLLM's: one of "json" (a schema, or its text), "regex", "choice" (strings), "grammar",
 *                       "json_object" (true), "structural_tag" (an object, or its text)
 *   guided_json, guided_regex, guided_choice, guided_grammar: the same by vLLM's older names
 *   grammar, json_schema           llama-server's
 *   regex, ebnf                    SGLang's
 *
 * White space in JSON is as it is usually written. What would change that, or begin a grammar late, is refused. */
#include "api/forms.h"

#include <string.h>

#include "base/buf.h"
#include "base/err.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct known_field fields[] = {
    {"response_format", FIELD_READ, NULL},
    {"structured_outputs", FIELD_READ, NULL},
    {"guided_json", FIELD_READ, NULL},
    {"guided_regex", FIELD_READ, NULL},
    {"guided_choice", FIELD_READ, NULL},
    {"guided_grammar", FIELD_READ, NULL},
    {"grammar", FIELD_READ, NULL},
    {"json_schema", FIELD_READ, NULL},
    {"regex", FIELD_READ, NULL},
    {"ebnf", FIELD_READ, NULL},
    {"guided_decoding_backend", FIELD_NEUTRAL, "\"\""},
    {"guided_whitespace_pattern", FIELD_REFUSED, NULL},
    {"grammar_lazy", FIELD_REFUSED, "false"},
    {"grammar_triggers", FIELD_REFUSED, "[]"},
    {"preserved_tokens", FIELD_REFUSED, "[]"},
};
const struct known_list forms_known = {fields, COUNT(fields)};

enum { FORMS_CHOICES_MAX = 4096 };

struct form {
    struct call *call;
    cohort_grammar_source *out;
    cohort_error *err;
};

static int wrong(const struct form *f, const char *field, const char *what) {
    return err_set(f->err, COHORT_E_ARGUMENT, field, "%s must be %s", field, what);
}

static int take(const struct form *f, cohort_grammar_kind kind, const char *text, size_t len, const char *field) {
    if (f->out->kind)
        return err_set(f->err, COHORT_E_ARGUMENT, field, "%s: the answer has a form already, by %s", field,
                       f->call->params.form_field);
    if (len > COHORT_GRAMMAR_BYTES_MAX)
        return err_set(f->err, COHORT_E_LIMIT, field, "%s has %zu bytes, at most %d are allowed", field, len,
                       COHORT_GRAMMAR_BYTES_MAX);
    *f->out = (cohort_grammar_source){.kind = kind, .text = text, .len = len};
    f->call->params.form_field = field;
    return 0;
}

static int take_text(const struct form *f, cohort_grammar_kind kind, const json_t *value, const char *field) {
    if (!json_is_string(value)) return wrong(f, field, "a string");
    return take(f, kind, json_string_value(value), json_string_length(value), field);
}

/* JSON, or its text. */
static int take_json(const struct form *f, cohort_grammar_kind kind, const json_t *value, const char *field) {
    const char *text;
    size_t len;
    if (f->out->kind) return take(f, kind, "", 0, field);
    if (json_is_string(value)) return take_text(f, kind, value, field);
    if (!json_is_object(value) && !(kind == COHORT_GRAMMAR_JSON_SCHEMA && json_is_boolean(value)))
        return wrong(f, field, kind == COHORT_GRAMMAR_JSON_SCHEMA ? "a JSON schema: an object" : "an object");
    int rc = chat_params_text(&f->call->params.chat, value, &text, &len, f->err);
    return rc ? rc : take(f, kind, text, len, field);
}

/* A literal of the grammar's notation. */
static int add_literal(struct buf *out, const char *text, size_t len) {
    int rc = buf_adds(out, "\"");
    for (size_t i = 0; i < len && !rc; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            rc = buf_addf(out, "\\%c", c);
        else if (c < ' ' || c == 0x7f)
            rc = buf_addf(out, "\\x%02x", c);
        else
            rc = buf_add(out, text + i, 1);
    }
    return rc ? rc : buf_adds(out, "\"");
}

static int add_choices(struct buf *out, const json_t *list) {
    int rc = buf_adds(out, "root ::= ");
    for (size_t i = 0; i < json_array_size(list) && !rc; i++) {
        const json_t *item = json_array_get(list, i);
        if (i) rc = buf_adds(out, " | ");
        if (!rc) rc = add_literal(out, json_string_value(item), json_string_length(item));
    }
    return rc;
}

/* One of some strings, as a grammar. */
static int take_choice(const struct form *f, const json_t *list, const char *field) {
    struct buf rules = {.max = COHORT_GRAMMAR_BYTES_MAX};
    size_t n = json_array_size(list);
    if (f->out->kind) return take(f, COHORT_GRAMMAR_EBNF, "", 0, field);
    if (n == 0 || n > FORMS_CHOICES_MAX) return wrong(f, field, "an array of 1 to 4096 strings");
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        size_t len = json_string_length(item);
        if (!len || memchr(json_string_value(item), 0, len)) return wrong(f, field, "an array of texts, none empty");
    }
    int rc = add_choices(&rules, list);
    if (rc) {
        buf_free(&rules);
        return err_set(f->err, rc, field, "%s has too much text", field);
    }
    rc = take(f, COHORT_GRAMMAR_EBNF, rules.data, rules.len, field);
    chat_params_keep(&f->call->params.chat, &rules);
    return rc;
}

/* ---- the fields ---- */

static int take_schema(const struct form *f, const json_t *schema, const char *field) {
    return take_json(f, COHORT_GRAMMAR_JSON_SCHEMA, schema, field);
}

static int is_schema_name(const json_t *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *text = json_string_value(name);
    size_t len = json_string_length(name);
    return text && len && len <= 64 && strspn(text, letters) == len;
}

static int read_json_schema(const struct form *f, const json_t *format) {
    const json_t *of = json_object_get(format, "json_schema"), *schema = field_present(of, "schema");
    const json_t *strict = field_present(of, "strict"), *description = field_present(of, "description");
    if (!json_is_object(of)) return wrong(f, "response_format", "an object with an object \"json_schema\" here");
    if (!is_schema_name(json_object_get(of, "name")))
        return err_set(f->err, COHORT_E_ARGUMENT, "response_format",
                       "response_format.json_schema.name must be 1 to 64 letters, digits, \"_\" and \"-\"");
    if ((strict && !json_is_boolean(strict)) || (description && !json_is_string(description)))
        return err_set(f->err, COHORT_E_ARGUMENT, "response_format",
                       "response_format.json_schema: strict must be true or false, and description a string");
    if (!schema) return take(f, COHORT_GRAMMAR_JSON, NULL, 0, "response_format");
    if (!json_is_object(schema))
        return err_set(f->err, COHORT_E_ARGUMENT, "response_format",
                       "response_format.json_schema.schema must be an object, not %s", field_type(schema));
    return take_schema(f, schema, "response_format");
}

static int read_response_format(const struct form *f, const json_t *format) {
    const char *type = field_word(format, "type");
    if (!json_is_object(format) || !type) return wrong(f, "response_format", "an object with a \"type\"");
    if (strcmp(type, "text") == 0) return 0;
    if (strcmp(type, "json_schema") == 0) return read_json_schema(f, format);
    if (strcmp(type, "structural_tag") == 0) return take_json(f, COHORT_GRAMMAR_TAGS, format, "response_format");
    if (strcmp(type, "json_object") != 0)
        return err_set(f->err, COHORT_E_ARGUMENT, "response_format",
                       "response_format.type must be \"text\", \"json_object\", \"json_schema\" or \"structural_tag\"");
    const json_t *schema = field_present(format, "schema");
    return schema ? take_schema(f, schema, "response_format")
                  : take(f, COHORT_GRAMMAR_JSON, NULL, 0, "response_format");
}

/* What is beside the one kind in structured_outputs. */
static int check_beside(const struct form *f, const json_t *structured) {
    static const char *const left_aside[] = {"disable_fallback", "disable_any_whitespace"};
    const json_t *additional = field_present(structured, "disable_additional_properties");
    int ignored = 0, rc = 0;
    for (size_t i = 0; i < COUNT(left_aside) && !rc; i++) rc = field_bool(structured, left_aside[i], &ignored, f->err);
    if (rc) return rc;
    if (field_present(structured, "whitespace_pattern"))
        return err_set(f->err, COHORT_E_UNSUPPORTED, "structured_outputs",
                       "structured_outputs.whitespace_pattern is not supported: white space is as usually written");
    if (additional && !json_is_false(additional))
        return err_set(f->err, COHORT_E_UNSUPPORTED, "structured_outputs",
                       "structured_outputs.disable_additional_properties is not supported: say so in the schema");
    return 0;
}

static int read_structured(const struct form *f, const json_t *structured) {
    const json_t *json = field_present(structured, "json"), *regex = field_present(structured, "regex");
    const json_t *choice = field_present(structured, "choice"), *grammar = field_present(structured, "grammar");
    const json_t *object = field_present(structured, "json_object");
    const json_t *tag = field_present(structured, "structural_tag");
    if (!json_is_object(structured)) return wrong(f, "structured_outputs", "an object");
    int rc = check_beside(f, structured);
    if (!rc && json) rc = take_schema(f, json, "structured_outputs.json");
    if (!rc && regex) rc = take_text(f, COHORT_GRAMMAR_REGEX, regex, "structured_outputs.regex");
    if (!rc && choice) rc = take_choice(f, choice, "structured_outputs.choice");
    if (!rc && grammar) rc = take_text(f, COHORT_GRAMMAR_EBNF, grammar, "structured_outputs.grammar");
    if (!rc && tag) rc = take_json(f, COHORT_GRAMMAR_TAGS, tag, "structured_outputs.structural_tag");
    if (!rc && object && !json_is_boolean(object)) rc = wrong(f, "structured_outputs.json_object", "true or false");
    if (!rc && json_is_true(object)) rc = take(f, COHORT_GRAMMAR_JSON, NULL, 0, "structured_outputs.json_object");
    if (!rc && !f->out->kind)
        rc = err_set(f->err, COHORT_E_ARGUMENT, "structured_outputs",
                     "structured_outputs must have one of json, regex, choice, grammar, json_object, structural_tag");
    return rc;
}

static int is_empty_text(const json_t *value) { return json_is_string(value) && json_string_length(value) == 0; }

/* llama-server takes an empty one for none. */
static const json_t *llama_schema(const json_t *body) {
    const json_t *schema = field_present(body, "json_schema");
    return json_is_object(schema) && json_object_size(schema) == 0 ? NULL : schema;
}

static struct form form_in(struct call *call, int is_chat, cohort_error *err) {
    struct params *p = &call->params;
    return (struct form){call, is_chat ? &p->chat.chat.answer : &p->grammar, err};
}

int forms_schema(struct call *call, const json_t *schema, int is_chat, const char *field, cohort_error *err) {
    const struct form f = form_in(call, is_chat, err);
    return take_schema(&f, schema, field);
}

int forms_read(struct call *call, const json_t *body, int is_chat, cohort_error *err) {
    static const struct {
        const char *name;
        cohort_grammar_kind kind;
    } texts[] = {{"guided_regex", COHORT_GRAMMAR_REGEX},
                 {"regex", COHORT_GRAMMAR_REGEX},
                 {"guided_grammar", COHORT_GRAMMAR_EBNF},
                 {"grammar", COHORT_GRAMMAR_EBNF},
                 {"ebnf", COHORT_GRAMMAR_EBNF}};
    const struct form f = form_in(call, is_chat, err);
    const json_t *value;
    int rc = 0;
    if ((value = field_present(body, "response_format"))) rc = read_response_format(&f, value);
    if (!rc && (value = field_present(body, "structured_outputs"))) rc = read_structured(&f, value);
    if (!rc && (value = field_present(body, "guided_json"))) rc = take_schema(&f, value, "guided_json");
    if (!rc && (value = llama_schema(body))) rc = take_schema(&f, value, "json_schema");
    for (size_t i = 0; i < COUNT(texts) && !rc; i++)
        if ((value = field_present(body, texts[i].name)) && !is_empty_text(value))
            rc = take_text(&f, texts[i].kind, value, texts[i].name);
    if (!rc && (value = field_present(body, "guided_choice"))) rc = take_choice(&f, value, "guided_choice");
    return rc;
}
