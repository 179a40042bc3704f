/* What an answer must follow, as a structural tag: reasoning, then text or calls, by the format's description and the
 * request's choice. All of it is built as JSON values, so that nothing a user names can change its structure. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "chat/notation.h"

enum { PARAMETERS_MAX = 64 /* of a function whose arguments are a list */ };

struct work {
    const struct chat_format *f;
    const struct chat_wants *w;
    json_t *tools; /* array of {"name", "schema"}, those that may be called */
    int once;      /* at most one call */
    cohort_error *err;
    int failed;
};

static int fail(struct work *k, int code, const char *field, const char *text) {
    if (!k->failed) k->failed = err_set(k->err, code, field, "%s", text);
    return k->failed;
}

/* Every json_t below is owned by who gets it; NULL stands for no memory, which ends in one check. */
static json_t *constant(const char *text, size_t n) {
    return json_pack("{s:s,s:s%}", "type", "const_string", "value", text, n);
}

static json_t *pattern(const char *text) { return json_pack("{s:s,s:s}", "type", "regex", "pattern", text); }

static json_t *optional(json_t *content) { return json_pack("{s:s,s:o}", "type", "optional", "content", content); }

/* Appends to a sequence; text joins the text before it. */
static void add(struct work *k, json_t *elements, json_t *format) {
    json_t *last = json_array_get(elements, json_array_size(elements) - 1);
    const char *a = json_string_value(json_object_get(last, "value"));
    const char *b = json_string_value(json_object_get(format, "value"));
    if (a && b) {
        json_object_set_new(last, "value", json_sprintf("%s%s", a, b));
        json_decref(format);
        return;
    }
    if (json_array_append_new(elements, format)) fail(k, COHORT_E_MEMORY, NULL, "no memory for a grammar");
}

static void add_all(struct work *k, json_t *elements, json_t *more) {
    for (size_t i = 0; i < json_array_size(more); i++) add(k, elements, json_incref(json_array_get(more, i)));
    json_decref(more);
}

static json_t *sequence(json_t *elements) {
    if (json_array_size(elements) == 1) {
        json_t *one = json_incref(json_array_get(elements, 0));
        json_decref(elements);
        return one;
    }
    if (!json_array_size(elements)) {
        json_decref(elements);
        return constant("", 0);
    }
    return json_pack("{s:s,s:o}", "type", "sequence", "elements", elements);
}

static json_t *either(json_t *elements) {
    if (json_array_size(elements) == 1) return sequence(elements);
    return json_pack("{s:s,s:o}", "type", "or", "elements", elements);
}

/* A literal, with tokens where the vocabulary has control tokens for what it spells. If `ended` is given, a token that
 * ends answers is left out with all that comes behind it, now and later. */
static void add_literal(struct work *k, json_t *elements, const char *text, int *ended) {
    if (!text || !*text || (ended && *ended)) return;
    const struct tokenizer *t = k->w->tokenizer;
    int32_t *ids = NULL;
    size_t n = 0, from = 0, len = strlen(text);
    if (t && tokenizer_encode(t, text, len, TOKENIZER_SPECIAL, &ids, &n, k->err)) {
        fail(k, COHORT_E_MEMORY, NULL, "no memory for a grammar");
        return;
    }
    for (size_t i = 0, at = 0; i < n && !(ended && *ended); i++) {
        const char *piece;
        size_t piece_n;
        if (!tokenizer_is_special(t, ids[i])) continue;
        tokenizer_piece(t, ids[i], 1, &piece, &piece_n);
        const char *found = piece_n ? memmem(text + at, len - at, piece, piece_n) : NULL;
        if (!found) continue;
        at = (size_t)(found - text);
        if (at > from) add(k, elements, constant(text + from, at - from));
        from = at += piece_n;
        if (ended && tokenizer_is_end(t, ids[i]))
            *ended = 1;
        else
            add(k, elements, json_pack("{s:s,s:i}", "type", "token", "token", (int)ids[i]));
    }
    mem_free(ids);
    if (from < len && !(ended && *ended)) add(k, elements, constant(text + from, len - from));
}

static void literal(struct work *k, json_t *elements, const char *text) { add_literal(k, elements, text, NULL); }

static int is_token(const json_t *format) { return json_object_get(format, "token") != NULL; }

/* A literal that a tag can begin or end with, taken off the elements; "" if there is none at that place. */
static json_t *take_literal(json_t *elements, size_t at) {
    json_t *e = json_array_get(elements, at), *taken = NULL;
    if (is_token(e)) taken = json_incref(e);
    if (json_object_get(e, "value")) taken = json_incref(json_object_get(e, "value"));
    if (!taken) return json_string("");
    json_array_remove(elements, at);
    return taken;
}

static json_t *tag(json_t *elements) {
    json_t *begin = take_literal(elements, 0);
    json_t *end = json_array_size(elements) ? take_literal(elements, json_array_size(elements) - 1) : json_string("");
    return json_pack("{s:s,s:o,s:o,s:o}", "type", "tag", "begin", begin, "content", sequence(elements), "end", end);
}

/* ---- Text and reasoning ---- */

/* Any text up to what the literal begins with, and then the literal. */
static json_t *text_until(struct work *k, const char *end) {
    json_t *rest = json_array(), *elements = json_array();
    literal(k, rest, end);
    json_t *first = json_incref(json_array_get(rest, 0));
    json_array_remove(rest, 0);
    json_t *stop = is_token(first) ? json_incref(first) : json_incref(json_object_get(first, "value"));
    add(k, elements,
        json_pack("{s:s,s:s,s:{s:s},s:o}", "type", "tag", "begin", "", "content", "type",
                  is_token(first) ? "any_tokens" : "any_text", "end", stop));
    json_decref(first);
    add_all(k, elements, rest);
    return sequence(elements);
}

static json_t *reasoning_from(struct work *k, int open) {
    const struct chat_reasoning *r = &k->f->reasoning;
    json_t *elements = json_array();
    char opener[CHAT_LITERAL_MAX];
    size_t n = strlen(r->open);
    while (n && chat_is_space(r->open[n - 1])) n--;
    if (n < sizeof opener) memcpy(opener, r->open, n), opener[n] = 0;
    if (!open) literal(k, elements, opener);
    add(k, elements, text_until(k, r->close));
    if (r->behind)
        literal(k, elements, r->behind);
    else
        add(k, elements, pattern("\\n{0,2}"));
    return sequence(elements);
}

/* What the answer's text must follow; NULL: anything. */
static json_t *answer_format(struct work *k) {
    const cohort_grammar_source *a = &k->w->chat->answer;
    json_t *value = NULL;
    switch (a->kind) {
    case COHORT_GRAMMAR_NONE:
        return NULL;
    case COHORT_GRAMMAR_JSON:
        return json_pack("{s:s,s:{s:s,s:b},s:i}", "type", "json_schema", "json_schema", "type", "object",
                         "additionalProperties", 1, "max_whitespace_cnt", (int)a->space);
    case COHORT_GRAMMAR_JSON_SCHEMA:
        value = json_loadb(a->text, a->len, JSON_DECODE_ANY, NULL);
        if (!json_is_object(value) && !json_is_boolean(value)) break;
        return json_pack("{s:s,s:o,s:i}", "type", "json_schema", "json_schema", value, "max_whitespace_cnt",
                         (int)a->space);
    case COHORT_GRAMMAR_REGEX:
        return json_pack("{s:s,s:s%}", "type", "regex", "pattern", a->text, a->len);
    case COHORT_GRAMMAR_EBNF:
        return json_pack("{s:s,s:s%}", "type", "grammar", "grammar", a->text, a->len);
    case COHORT_GRAMMAR_TAGS:
        value = json_loadb(a->text, a->len, 0, NULL);
        json_t *format = json_incref(json_object_get(value, "format"));
        json_decref(value);
        if (json_is_object(format)) return format;
        value = format;
        break;
    }
    json_decref(value);
    fail(k, COHORT_E_ARGUMENT, "grammar", "is not JSON of its kind");
    return NULL;
}

static json_t *as_text(struct work *k, json_t *inner) {
    const struct chat_calls *c = &k->f->calls;
    const struct chat_wants *w = k->w;
    json_t *elements = json_array();
    int ended = 0;
    size_t skip = 0, n = strlen(c->call);
    if (c->prompted && w->prompt_n >= n && !memcmp(w->prompt + w->prompt_n - n, c->call, n)) skip = n;
    if (c->text_lead) literal(k, elements, c->text_lead + skip);
    if (!inner && c->text_end) {
        add(k, elements, text_until(k, c->text_end));
    } else {
        add(k, elements, inner ? inner : json_pack("{s:s}", "type", "any_text"));
        add_literal(k, elements, c->text_end, &ended);
    }
    return sequence(elements);
}

/* ---- Arguments ---- */

static json_t *json_values(json_t *schema, const char *style, int space) {
    json_t *format =
        json_pack("{s:s,s:O,s:i}", "type", "json_schema", "json_schema", schema, "max_whitespace_cnt", space);
    if (style) json_object_set_new(format, "style", json_string(style));
    return format;
}

/* A parameter's own schema, with the definitions that it may refer to. */
static json_t *parameter_schema(const json_t *root, json_t *schema) {
    if (!json_is_object(schema)) return json_incref(schema);
    json_t *copy = json_copy(schema);
    static const char *const shared[] = {"$defs", "definitions"};
    for (size_t i = 0; i < 2; i++) {
        json_t *defs = json_object_get(root, shared[i]);
        if (defs && !json_object_get(copy, shared[i])) json_object_set(copy, shared[i], defs);
    }
    return copy;
}

static int is_required(const json_t *schema, const char *name) {
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && !strcmp(s, name)) return 1;
    }
    return 0;
}

static int says(const json_t *schema, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (json_object_get(schema, keys[i])) return 1;
    return 0;
}

/* The strings that a schema lists; NULL: it lists none, or others too. */
static json_t *listed_strings(const json_t *schema) {
    json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    if (one) return json_is_string(one) ? json_pack("[O]", one) : NULL;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i))) return NULL;
    return json_array_size(list) ? json_incref(list) : NULL;
}

/* A value between tags that no style of the grammar library writes. */
static json_t *tagged_value(struct work *k, json_t *schema) {
    static const char *const held_by_none[] = {"pattern", "format", "minLength", "maxLength"};
    const struct chat_calls *c = &k->f->calls;
    unsigned types = chat_schema_types(schema, schema, 0);
    json_t *strings = listed_strings(schema), *elements = json_array();
    if (strings) {
        json_t *choices = json_array();
        for (size_t i = 0; i < json_array_size(strings); i++) {
            json_t *s = json_array_get(strings, i);
            json_array_append_new(choices, constant(json_string_value(s), json_string_length(s)));
        }
        json_decref(strings);
        add(k, elements, either(choices));
        literal(k, elements, c->value_end);
    } else if (types & CHAT_TYPE_STRING) {
        if (types == CHAT_TYPE_STRING && says(schema, held_by_none, 4))
            fail(k, COHORT_E_UNSUPPORTED, "tools",
                 "this model's calls cannot hold a string's pattern, format or length");
        if (types != CHAT_TYPE_STRING && types != CHAT_TYPE_ANY)
            fail(k, COHORT_E_UNSUPPORTED, "tools",
                 "this model's calls cannot hold a value of a string or another type");
        add(k, elements, text_until(k, c->value_end));
    } else {
        add(k, elements, json_values(schema, NULL, 0));
        literal(k, elements, c->value_end);
    }
    return sequence(elements);
}

static json_t *tagged_parameter(struct work *k, const json_t *root, const char *name, json_t *schema) {
    const struct chat_calls *c = &k->f->calls;
    json_t *elements = json_array(), *own = parameter_schema(root, schema);
    literal(k, elements, c->key);
    add(k, elements, constant(name, strlen(name)));
    literal(k, elements, c->key_end);
    add(k, elements, tagged_value(k, own));
    json_decref(own);
    return sequence(elements);
}

static int is_parameter_name(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return n && n <= CHAT_NAME_MAX && !s[n];
}

static json_t *tagged_values(struct work *k, json_t *schema) {
    json_t *elements = json_array(), *property;
    const char *name;
    json_object_foreach(json_object_get(schema, "properties"), name, property) {
        if (!is_parameter_name(name)) {
            fail(k, COHORT_E_UNSUPPORTED, "tools", "a parameter's name may have letters, digits, _, . and - only");
            break;
        }
        json_t *one = tagged_parameter(k, schema, name, property);
        add(k, elements, is_required(schema, name) ? one : optional(one));
    }
    return sequence(elements);
}

/* NAME=VALUE of the parameters from `i` on that are written, the first of them without a comma if none is `before`. */
static json_t *listed_values(struct work *k, json_t *schema) {
    json_t *properties = json_object_get(schema, "properties"), *choices = json_array(), *property;
    size_t n = json_object_size(properties), i = 0;
    json_t *written[PARAMETERS_MAX];
    int required[PARAMETERS_MAX];
    const char *name;
    if (n > PARAMETERS_MAX) {
        fail(k, COHORT_E_LIMIT, "tools", "a tool has more than 64 parameters");
        return choices;
    }
    json_object_foreach(properties, name, property) {
        if (!is_parameter_name(name))
            fail(k, COHORT_E_UNSUPPORTED, "tools", "a parameter's name has unusual characters");
        json_t *elements = json_array(), *own = parameter_schema(schema, property), *head;
        head = json_sprintf("%s=", name);
        add(k, elements, constant(json_string_value(head), json_string_length(head)));
        json_decref(head);
        add(k, elements, json_values(own, NULL, 0));
        json_decref(own);
        required[i] = is_required(schema, name);
        written[i++] = sequence(elements);
    }
    int none = 1;
    for (size_t first = 0; first < n && none; first++) {
        json_t *elements = json_array();
        add(k, elements, json_incref(written[first]));
        for (size_t j = first + 1; j < n; j++) {
            json_t *pair = json_array();
            add(k, pair, constant(", ", 2));
            add(k, pair, json_incref(written[j]));
            add(k, elements, required[j] ? sequence(pair) : optional(sequence(pair)));
        }
        json_array_append_new(choices, sequence(elements));
        none = !required[first];
    }
    if (none) json_array_append_new(choices, constant("", 0));
    for (i = 0; i < n; i++) json_decref(written[i]);
    return either(choices);
}

static json_t *values(struct work *k, json_t *schema) {
    const struct chat_calls *c = &k->f->calls;
    if (c->style) return json_values(schema, c->style, c->values == CHAT_VALUES_BRACED ? 1 : 2);
    if (c->values == CHAT_VALUES_TAGGED || c->values == CHAT_VALUES_PYTHON) {
        if (!json_object_get(schema, "properties") && json_is_true(json_object_get(schema, "additionalProperties")))
            fail(k, COHORT_E_UNSUPPORTED, "tools", "this model's calls need a schema of their arguments");
        return c->values == CHAT_VALUES_TAGGED ? tagged_values(k, schema) : listed_values(k, schema);
    }
    return json_values(schema, NULL, 0);
}

/* ---- Calls ---- */

static void add_string(struct work *k, json_t *elements, json_t *made) {
    literal(k, elements, made ? json_string_value(made) : "");
    json_decref(made);
}

static void add_id(struct work *k, json_t *elements, const char *before, const char *after) {
    const struct chat_calls *c = &k->f->calls;
    add_string(k, elements, json_sprintf("%s\"%s\": \"", before, c->id_key));
    add(k, elements, pattern(c->id_pattern));
    add_string(k, elements, json_sprintf("\"%s", after));
}

static void add_object(struct work *k, json_t *elements, const char *name, json_t *schema) {
    const struct chat_calls *c = &k->f->calls;
    literal(k, elements, "{");
    if (c->id_key && c->id_first) add_id(k, elements, "", ", ");
    add_string(k, elements, json_sprintf("\"%s\": \"%s\", \"%s\": ", c->name_key, name, c->values_key));
    add(k, elements, values(k, schema));
    if (c->id_key && !c->id_first) add_id(k, elements, ", ", "");
    literal(k, elements, "}");
}

static void add_named(struct work *k, json_t *elements, const char *name, json_t *schema) {
    const struct chat_calls *c = &k->f->calls;
    if (c->id_lead) {
        add(k, elements, pattern(c->id_pattern));
        literal(k, elements, c->id_lead);
    }
    add(k, elements, constant(name, strlen(name)));
    literal(k, elements, c->tail);
    if (c->tail_pattern) add(k, elements, pattern(c->tail_pattern));
    literal(k, elements, c->name_end);
    add(k, elements, values(k, schema));
}

/* One call as a sequence, from behind the first `skip` bytes of its beginning on. */
static json_t *call(struct work *k, const json_t *tool, const char *lead, int *ended) {
    const char *name = json_string_value(json_object_get(tool, "name"));
    json_t *elements = json_array(), *schema = json_object_get(tool, "schema");
    literal(k, elements, lead);
    if (k->f->calls.shape == CHAT_SHAPE_OBJECT)
        add_object(k, elements, name, schema);
    else
        add_named(k, elements, name, schema);
    add_literal(k, elements, k->f->calls.call_end, ended);
    return elements;
}

/* One of the calls, or several, one after the other. */
static json_t *calls(struct work *k, const char *lead, int *ended) {
    json_t *one = json_array();
    for (size_t i = 0; i < json_array_size(k->tools); i++)
        json_array_append_new(one, call(k, json_array_get(k->tools, i), lead, ended));
    int once = k->once || *ended;
    for (size_t i = 0; i < json_array_size(one); i++) {
        json_t *elements = json_incref(json_array_get(one, i));
        json_array_set_new(one, i, once ? sequence(elements) : tag(elements));
    }
    if (once) return either(one);
    return json_pack("{s:s,s:o,s:s,s:b}", "type", "tags_with_separator", "tags", one, "separator", k->f->calls.between,
                     "at_least_one", 1);
}

/* All calls; `trimmed`: without white space in front, which belongs to the text that is there. */
static json_t *section(struct work *k, int trimmed) {
    const struct chat_calls *c = &k->f->calls;
    const struct chat_wants *w = k->w;
    json_t *elements = json_array();
    int ended = 0;
    size_t n = strlen(c->call);
    literal(k, elements, c->section + (trimmed ? strspn(c->section, " \n") : 0));
    if (c->prompted && w->prompt_n >= n && !memcmp(w->prompt + w->prompt_n - n, c->call, n)) {
        /* The first call's beginning is in the prompt. */
        int once = k->once;
        k->once = 1;
        add(k, elements, calls(k, "", &ended));
        k->once = once;
        if (!once) add(k, elements, json_pack("{s:s,s:o}", "type", "star", "content", calls(k, c->call, &ended)));
        return elements;
    }
    add(k, elements, calls(k, c->call, &ended));
    add_literal(k, elements, c->section_end, &ended);
    return elements;
}

static void exclude(json_t *list, const char *text) {
    const char *first;
    size_t n = text ? chat_literal_first(text, &first) : 0;
    if (n) json_array_append_new(list, json_stringn(first, n));
}

/* The first word of what is written before every call, as far as it is in the tag's beginning. */
static json_t *trigger_of(const char *lead, const json_t *begin) {
    const char *first;
    size_t n = chat_literal_first(lead, &first), most = json_string_length(begin);
    return json_stringn(json_string_value(begin), n < most ? n : most);
}

/* Text in which calls may come: what begins one goes on as one. */
static json_t *text_or_calls(struct work *k) {
    const struct chat_calls *c = &k->f->calls;
    json_t *tags = json_array(), *excludes = json_array();
    int ended = 0;
    if (*c->section)
        json_array_append_new(tags, tag(section(k, 1)));
    else
        for (size_t i = 0; i < json_array_size(k->tools); i++)
            json_array_append_new(tags, tag(call(k, json_array_get(k->tools, i), c->call, &ended)));
    json_t *begin = json_object_get(json_array_get(tags, 0), "begin");
    int token = is_token(begin), once = k->once || ended;
    json_t *trigger;
    if (token)
        trigger = json_incref(json_object_get(begin, "token"));
    else if (c->bare)
        trigger = json_sprintf("{\"%s\": \"", c->name_key);
    else
        trigger = trigger_of(*c->section ? c->section : c->call, begin);
    for (size_t i = 0; !token && i < sizeof c->also / sizeof *c->also; i++) exclude(excludes, c->also[i]);
    if (!token && *c->section && *c->call == '<') exclude(excludes, c->call);
    return json_pack("{s:s,s:[o],s:o,s:o,s:b}", "type", token ? "token_triggered_tags" : "triggered_tags",
                     token ? "trigger_tokens" : "triggers", trigger, "tags", tags,
                     token ? "exclude_tokens" : "excludes", excludes, "stop_after_first", once);
}

/* ---- The whole answer ---- */

static int is_tool_name(const char *s) { return is_parameter_name(s) && strlen(s) <= 128; }

static int is_allowed(const cohort_chat *chat, const char *name) {
    if (chat->tool_choice == COHORT_TOOLS_NAMED && strcmp(chat->tool_name ? chat->tool_name : "", name)) return 0;
    for (size_t i = 0; chat->tool_names_allowed && i < chat->tool_names_allowed_n; i++)
        if (!strcmp(chat->tool_names_allowed[i], name)) return 1;
    return !chat->tool_names_allowed;
}

/* A schema for arguments: the tool's own if it is to be held, else any object. */
static json_t *tool_schema(const cohort_chat *chat, const json_t *function) {
    json_t *own = json_object_get(function, "parameters");
    if (!json_is_object(own))
        return json_pack("{s:s,s:{},s:b}", "type", "object", "properties", "additionalProperties", 0);
    if (!chat->strict && !json_is_true(json_object_get(function, "strict")))
        return json_pack("{s:s,s:b}", "type", "object", "additionalProperties", 1);
    return json_incref(own);
}

static int take_tools(struct work *k) {
    const cohort_chat *chat = k->w->chat;
    json_t *all = json_loadb(chat->tools, chat->tools_n, 0, NULL);
    k->tools = json_array();
    for (size_t i = 0; i < json_array_size(all) && !k->failed; i++) {
        json_t *function = json_object_get(json_array_get(all, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        char field[48];
        snprintf(field, sizeof field, "tools[%zu].function.name", i);
        if (!name || !is_tool_name(name))
            fail(k, COHORT_E_ARGUMENT, field, "must be 1 to 128 letters, digits, _, . and -");
        else if (is_allowed(chat, name))
            json_array_append_new(k->tools,
                                  json_pack("{s:s,s:o}", "name", name, "schema", tool_schema(chat, function)));
    }
    json_decref(all);
    if (!k->failed && !json_array_size(k->tools))
        fail(k, COHORT_E_ARGUMENT, "tool_choice", "names no tool that there is");
    return k->failed;
}

/* What comes behind reasoning; NULL: anything. */
static json_t *body(struct work *k, int with_calls) {
    const cohort_chat *chat = k->w->chat;
    json_t *answer = answer_format(k);
    if (!with_calls) return answer ? as_text(k, answer) : NULL;
    if (chat->tool_choice != COHORT_TOOLS_AUTO) {
        json_decref(answer);
        return sequence(section(k, 0));
    }
    if (!answer && !k->f->calls.text_lead) return text_or_calls(k);
    json_t *choices = json_array();
    json_array_append_new(choices, sequence(section(k, 0)));
    json_array_append_new(choices, as_text(k, answer));
    return either(choices);
}

static int write_source(struct work *k, json_t *format, cohort_grammar_source *out) {
    json_t *whole = json_pack("{s:s,s:o}", "type", "structural_tag", "format", format);
    char *text = whole ? json_dumps(whole, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    size_t n = text ? strlen(text) : 0;
    char *copy = text ? mem_alloc(n + 1, 1) : NULL;
    if (copy) memcpy(copy, text, n + 1);
    free(text);
    json_decref(whole);
    if (!copy) return fail(k, COHORT_E_MEMORY, NULL, "no memory for a grammar");
    if (n > COHORT_GRAMMAR_BYTES_MAX) {
        mem_free(copy);
        return fail(k, COHORT_E_LIMIT, "tools", "the tools' schemas are too large together");
    }
    *out = (cohort_grammar_source){.kind = COHORT_GRAMMAR_TAGS, .text = copy, .len = n};
    return 0;
}

int chat_constrain(const struct chat_format *f, const struct chat_wants *w, cohort_grammar_source *out,
                   cohort_error *err) {
    const cohort_chat *chat = w->chat;
    struct work k = {.f = f, .w = w, .err = err};
    *out = (cohort_grammar_source){.kind = COHORT_GRAMMAR_NONE};
    int with_calls = chat->tools && chat->tool_choice != COHORT_TOOLS_NONE;
    k.once = !chat->parallel_calls || chat->tool_choice == COHORT_TOOLS_NAMED || f->calls.bare;
    if (with_calls && take_tools(&k)) return json_decref(k.tools), k.failed;
    json_t *rest = body(&k, with_calls);
    enum chat_begins begins = chat_format_begins(f, w);
    if (rest && begins != CHAT_BEGINS_TEXT &&
        !(begins == CHAT_BEGINS_MAYBE && chat->reasoning == COHORT_REASONING_OFF)) {
        json_t *elements = json_array();
        json_t *reasoning = reasoning_from(&k, begins == CHAT_BEGINS_REASONING);
        add(&k, elements, begins == CHAT_BEGINS_REASONING ? reasoning : optional(reasoning));
        add(&k, elements, rest);
        rest = sequence(elements);
    }
    json_decref(k.tools);
    if (k.failed || !rest) return json_decref(rest), k.failed;
    return write_source(&k, rest, out);
}
