/* From a chat as clients write it to what its template wants: every message checked and named in errors, then contents
 * as text or as parts, arguments as text or as objects, calls and what tools answer in turns that the template has. The
 * reasons are the template's abilities; nothing here knows a model. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/real.h"
#include "chat/internal.h"
#include "chat/notation.h"

struct preparing {
    const cohort_chat *chat;
    struct chat_prepared *p;
    const struct chat_variant *v;
    cohort_error *err;
};

static int no_memory(cohort_error *err) { return err_set(err, COHORT_E_MEMORY, NULL, "no memory to render the chat"); }

/* ---- JSON ---- */

static int check_depth(const char *json, size_t len, const char *field, cohort_error *err) {
    int depth = 0, in_string = 0;
    for (size_t i = 0; i < len; i++) {
        char c = json[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '[' || c == '{') {
            if (++depth > CHAT_JSON_DEPTH_MAX)
                return err_set(err, COHORT_E_LIMIT, field, "nested deeper than %d levels", CHAT_JSON_DEPTH_MAX);
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return 0;
}

int chat_json_load(const char *json, size_t len, const char *field, json_t **out, cohort_error *err) {
    json_error_t where;
    *out = NULL;
    if (len > TOKENIZER_TEXT_MAX)
        return err_set(err, COHORT_E_LIMIT, field, "longer than %d bytes", TOKENIZER_TEXT_MAX);
    int code = check_depth(json, len, field, err);
    if (code) return code;
    *out = json_loadb(json, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    return *out ? 0 : err_set(err, COHORT_E_ARGUMENT, field, "not JSON: %s", where.text);
}

static int refuse(struct preparing *w, int code, size_t i, const char *key, const char *reason) {
    char field[96];
    snprintf(field, sizeof(field), "messages[%zu]%s%s", i, *key ? "." : "", key);
    return err_set(w->err, code, field, "%s: %s", field, reason);
}

static int is(const json_t *string, const char *text) {
    return json_is_string(string) && json_string_length(string) == strlen(text) &&
           strcmp(json_string_value(string), text) == 0;
}

static json_t *text_of(const char *a, size_t a_n, const char *between, const char *b, size_t b_n) {
    struct buf text = {0};
    int code = buf_add(&text, a, a_n);
    if (!code) code = buf_adds(&text, between);
    if (!code) code = buf_add(&text, b, b_n);
    json_t *out = code ? NULL : json_stringn_nocheck(text.data ? text.data : "", text.len);
    buf_free(&text);
    return out;
}

void chat_type_contents(json_t *messages) {
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message) {
        json_t *content = json_object_get(message, "content");
        if (json_is_string(content))
            json_object_set_new(message, "content", json_pack("[{s:s,s:O}]", "type", "text", "text", content));
    }
}

/* ---- checking messages ---- */

static int check_role(struct preparing *w, size_t i, json_t *message) {
    static const struct {
        const char *name;
        int role;
    } roles[] = {{"system", COHORT_ROLE_SYSTEM},
                 {"developer", COHORT_ROLE_SYSTEM},
                 {"user", COHORT_ROLE_USER},
                 {"assistant", COHORT_ROLE_ASSISTANT},
                 {"tool", COHORT_ROLE_TOOL}};
    json_t *role = json_object_get(message, "role");
    if (!json_is_string(role)) return refuse(w, COHORT_E_ARGUMENT, i, "role", "missing or not a string");
    for (size_t k = 0; k < sizeof(roles) / sizeof(roles[0]); k++) {
        if (!is(role, roles[k].name)) continue;
        w->p->roles[i] = roles[k].role;
        if (k == 1 && !w->v->knows_developer && json_object_set_new(message, "role", json_string("system")))
            return no_memory(w->err);
        return 0;
    }
    return refuse(w, COHORT_E_ARGUMENT, i, "role", "not system, developer, user, assistant or tool");
}

/* Parts become one string. */
static int check_content(struct preparing *w, size_t i, json_t *message) {
    json_t *content = json_object_get(message, "content"), *joined;
    struct buf text = {.max = TOKENIZER_TEXT_MAX};
    if (json_is_string(content)) return 0;
    if (!content || json_is_null(content)) {
        if (w->p->roles[i] != COHORT_ROLE_ASSISTANT) return refuse(w, COHORT_E_ARGUMENT, i, "content", "missing");
        return json_object_set_new(message, "content", json_string("")) ? no_memory(w->err) : 0;
    }
    if (!json_is_array(content))
        return refuse(w, COHORT_E_ARGUMENT, i, "content", "not a string or an array of text parts");
    int code = 0;
    for (size_t k = 0; !code && k < json_array_size(content); k++) {
        const json_t *part = json_array_get(content, k), *said = json_object_get(part, "text");
        if (!is(json_object_get(part, "type"), "text") || !json_is_string(said)) {
            buf_free(&text);
            return refuse(w, COHORT_E_ARGUMENT, i, "content", "a part that is not {\"type\":\"text\",\"text\":...}");
        }
        code = buf_add(&text, json_string_value(said), json_string_length(said));
    }
    joined = code ? NULL : json_stringn_nocheck(text.data ? text.data : "", text.len);
    buf_free(&text);
    return json_object_set_new(message, "content", joined) ? no_memory(w->err) : 0;
}

/* Arguments come as text, as the OpenAI API has it, or as an object; the template gets what it wants. */
static int check_arguments(struct preparing *w, size_t i, size_t k, json_t *function) {
    char key[64];
    json_t *arguments = json_object_get(function, "arguments"), *object = NULL;
    snprintf(key, sizeof(key), "tool_calls[%zu].function.arguments", k);
    if (json_is_string(arguments)) {
        cohort_error ignored;
        if (chat_json_load(json_string_value(arguments), json_string_length(arguments), key, &object, &ignored) ||
            !json_is_object(object)) {
            json_decref(object);
            return refuse(w, COHORT_E_ARGUMENT, i, key, "not the text of a JSON object");
        }
        if (!w->v->can.object_arguments) {
            json_decref(object);
            return 0;
        }
        return json_object_set_new(function, "arguments", object) ? no_memory(w->err) : 0;
    }
    if (arguments && !json_is_object(arguments))
        return refuse(w, COHORT_E_ARGUMENT, i, key, "not the text of a JSON object, nor an object");
    if (!arguments && json_object_set_new(function, "arguments", json_object())) return no_memory(w->err);
    if (w->v->can.object_arguments) return 0;
    char *text = real_shorten_json(json_dumps(json_object_get(function, "arguments"), 0));
    int code = !text || json_object_set_new(function, "arguments", json_string(text));
    free(text); /* jansson's */
    return code ? no_memory(w->err) : 0;
}

/* Ids of calls as the template wants them: of the same id always the same, so that results still name their calls. */
static int fit_id(const struct preparing *w, json_t *object, const char *key) {
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const char *id = json_string_value(json_object_get(object, key));
    size_t n = json_string_length(json_object_get(object, key));
    char fitted[CHAT_SHORT_ID + 1] = {0};
    if (!w->v->short_ids || !id || (n == CHAT_SHORT_ID && strspn(id, letters) == n)) return 0;
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)id[i]) * UINT64_C(1099511628211);
    for (size_t i = 0; i < CHAT_SHORT_ID; i++, hash /= sizeof(letters) - 1)
        fitted[i] = letters[hash % (sizeof(letters) - 1)];
    return json_object_set_new(object, key, json_string(fitted)) ? no_memory(w->err) : 0;
}

static int check_calls(struct preparing *w, size_t i, json_t *message) {
    char key[48];
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls) return 0;
    if (!json_is_array(calls)) return refuse(w, COHORT_E_ARGUMENT, i, "tool_calls", "not an array");
    if (json_array_size(calls) == 0) return json_object_del(message, "tool_calls");
    if (w->p->roles[i] != COHORT_ROLE_ASSISTANT)
        return refuse(w, COHORT_E_ARGUMENT, i, "tool_calls", "only assistants call tools");
    for (size_t k = 0; k < json_array_size(calls); k++) {
        json_t *call = json_array_get(calls, k), *function = json_object_get(call, "function"),
               *id = json_object_get(call, "id"), *type = json_object_get(call, "type");
        snprintf(key, sizeof(key), "tool_calls[%zu]", k);
        if (!json_is_object(call) || !json_is_object(function) || !json_is_string(json_object_get(function, "name")))
            return refuse(w, COHORT_E_ARGUMENT, i, key, "not {\"id\",\"type\",\"function\":{\"name\",\"arguments\"}}");
        if (type && !is(type, "function"))
            return refuse(w, COHORT_E_UNSUPPORTED, i, key, "a type that is not \"function\"");
        if (!type && json_object_set_new(call, "type", json_string("function"))) return no_memory(w->err);
        if (id && !json_is_string(id)) return refuse(w, COHORT_E_ARGUMENT, i, key, "an id that is not a string");
        int code = check_arguments(w, i, k, function);
        if (!code) code = fit_id(w, call, "id");
        if (code) return code;
    }
    return 0;
}

/* Keys whose value is null say nothing; templates that ask whether a key is there would think that they do. */
static void drop_nulls(json_t *object) {
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, key, value) if (json_is_null(value)) json_object_del(object, key);
}

static int check_strings(struct preparing *w, size_t i, json_t *message) {
    static const char *const names[] = {"reasoning_content", "tool_call_id", "name"};
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
        const json_t *value = json_object_get(message, names[k]);
        if (value && !json_is_string(value)) return refuse(w, COHORT_E_ARGUMENT, i, names[k], "not a string");
    }
    int code = fit_id(w, message, "tool_call_id");
    if (code) return code;
    json_t *reasoning = json_object_get(message, "reasoning_content");
    if (!reasoning || strcmp(w->v->reasoning, "reasoning_content") == 0) return 0;
    if (json_object_set(message, w->v->reasoning, reasoning)) return no_memory(w->err);
    return json_object_del(message, "reasoning_content");
}

static int check_message(struct preparing *w, size_t i, json_t *message) {
    if (!json_is_object(message)) return refuse(w, COHORT_E_ARGUMENT, i, "", "not an object");
    int code = check_role(w, i, message);
    if (!code) code = check_content(w, i, message);
    drop_nulls(message);
    if (!code) code = check_strings(w, i, message);
    if (!code) code = check_calls(w, i, message);
    return code;
}

static int check_messages(struct preparing *w) {
    struct chat_prepared *p = w->p;
    int code = chat_json_load(w->chat->messages ? w->chat->messages : "", w->chat->messages_n, "messages", &p->messages,
                              w->err);
    if (code) return code;
    p->n = json_array_size(p->messages);
    if (!json_is_array(p->messages) || p->n == 0)
        return err_set(w->err, COHORT_E_ARGUMENT, "messages", "not an array with at least one message");
    if (p->n > CHAT_MESSAGES_MAX)
        return err_set(w->err, COHORT_E_LIMIT, "messages", "%zu messages, the limit is %d", p->n, CHAT_MESSAGES_MAX);
    p->roles = mem_zalloc(p->n, sizeof(*p->roles));
    p->at = mem_zalloc(p->n, sizeof(*p->at));
    if (!p->roles || !p->at) return no_memory(w->err);
    for (size_t i = 0; !code && i < p->n; i++) {
        p->at[i] = i;
        code = check_message(w, i, json_array_get(p->messages, i));
    }
    return code;
}

/* ---- tools ---- */

static int refuse_tool(struct preparing *w, int code, size_t i, const char *reason) {
    char field[32];
    snprintf(field, sizeof(field), "tools[%zu]", i);
    return err_set(w->err, code, field, "%s: %s", field, reason);
}

/* As templates expect it: with a description and parameters, and without what is no word to the model. */
static int check_tool(struct preparing *w, size_t i, json_t *tool) {
    json_t *function = json_object_get(tool, "function"), *name = json_object_get(function, "name");
    if (!json_is_object(tool)) return refuse_tool(w, COHORT_E_ARGUMENT, i, "not an object");
    if (!is(json_object_get(tool, "type"), "function"))
        return refuse_tool(w, COHORT_E_UNSUPPORTED, i, "its type is not \"function\"");
    if (!json_is_object(function) || !json_is_string(name) || json_string_length(name) == 0)
        return refuse_tool(w, COHORT_E_ARGUMENT, i, "it has no function with a name");
    drop_nulls(function);
    const json_t *description = json_object_get(function, "description"),
                 *parameters = json_object_get(function, "parameters");
    if ((description && !json_is_string(description)) || (parameters && !json_is_object(parameters)))
        return refuse_tool(w, COHORT_E_ARGUMENT, i, "its description is no string, or its parameters are no object");
    json_object_del(function, "strict");
    int bad = 0;
    if (!description) bad = json_object_set_new(function, "description", json_string(""));
    if (!parameters && !bad)
        bad = json_object_set_new(function, "parameters", json_pack("{s:s,s:{}}", "type", "object", "properties"));
    return bad ? no_memory(w->err) : 0;
}

static int has_tool(const json_t *tools, const char *name) {
    for (size_t i = 0; name && i < json_array_size(tools); i++)
        if (is(json_object_get(json_object_get(json_array_get(tools, i), "function"), "name"), name)) return 1;
    return 0;
}

static int check_choice(struct preparing *w, const json_t *tools) {
    const cohort_chat *c = w->chat;
    if ((unsigned)c->tool_choice > COHORT_TOOLS_NAMED)
        return err_set(w->err, COHORT_E_ARGUMENT, "tool_choice", "tool_choice is %d", (int)c->tool_choice);
    if (c->tool_choice >= COHORT_TOOLS_REQUIRED && json_array_size(tools) == 0)
        return err_set(w->err, COHORT_E_ARGUMENT, "tool_choice", "a call is asked for, but there are no tools");
    if (c->tool_choice == COHORT_TOOLS_NAMED && !has_tool(tools, c->tool_name))
        return err_set(w->err, COHORT_E_ARGUMENT, "tool_choice", "there is no tool of the name that is asked for");
    for (size_t i = 0; i < c->tool_names_allowed_n; i++)
        if (!has_tool(tools, c->tool_names_allowed[i]))
            return err_set(w->err, COHORT_E_ARGUMENT, "tool_choice", "there is no tool of a name that is allowed");
    return 0;
}

static int check_tools(struct preparing *w, json_t **out) {
    const cohort_chat *c = w->chat;
    *out = NULL;
    int code = c->tools ? chat_json_load(c->tools, c->tools_n, "tools", out, w->err) : 0;
    if (code) return code;
    if (*out && !json_is_array(*out)) return err_set(w->err, COHORT_E_ARGUMENT, "tools", "tools must be an array");
    if (json_array_size(*out) > COHORT_CHAT_TOOLS_MAX)
        return err_set(w->err, COHORT_E_LIMIT, "tools", "%zu tools, the limit is %d", json_array_size(*out),
                       COHORT_CHAT_TOOLS_MAX);
    for (size_t i = 0; !code && i < json_array_size(*out); i++) code = check_tool(w, i, json_array_get(*out, i));
    return code ? code : check_choice(w, *out);
}

/* ---- what the template has no words for ---- */

/* A call in the notation that chat_format_explain tells of, or the house's where that is no JSON. */
static int write_call(const struct chat_calls *c, const json_t *call, struct buf *out) {
    const json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name"),
                 *arguments = json_object_get(function, "arguments");
    char *text = json_is_string(arguments) ? NULL : real_shorten_json(json_dumps(arguments, 0));
    int code = json_is_string(arguments) || text ? 0 : COHORT_E_MEMORY, named = c->shape == CHAT_SHAPE_NAMED;
    if (!code) code = buf_adds(out, c->call);
    if (!code && !named) code = buf_addf(out, "{\"%s\": ", c->name_key);
    if (!code && !named) code = buf_json_string(out, json_string_value(name), json_string_length(name));
    if (!code && !named) code = buf_addf(out, ", \"%s\": ", c->values_key);
    if (!code && named) code = buf_addf(out, "%s%s", json_string_value(name), c->name_end);
    if (!code) code = buf_adds(out, text ? text : json_string_value(arguments));
    if (!code && !named) code = buf_adds(out, "}");
    if (!code) code = buf_adds(out, c->call_end);
    free(text); /* jansson's */
    return code;
}

/* An assistant's calls as text of its answer. */
static int write_calls(struct preparing *w, json_t *message) {
    json_t *calls = json_object_get(message, "tool_calls"), *content = json_object_get(message, "content");
    struct buf text = {.max = TOKENIZER_TEXT_MAX};
    const struct chat_calls *c = &w->v->can.format->calls;
    if (c->shape == CHAT_SHAPE_NONE || c->values != CHAT_VALUES_JSON || c->id_key || c->id_lead || c->tail)
        c = &chat_format_house.calls;
    int code = buf_add(&text, json_string_value(content), json_string_length(content));
    if (!code && text.len) code = buf_adds(&text, "\n");
    if (!code) code = buf_adds(&text, c->section);
    for (size_t i = 0; !code && i < json_array_size(calls); i++) {
        if (i) code = buf_adds(&text, c->between);
        if (!code) code = write_call(c, json_array_get(calls, i), &text);
    }
    if (!code) code = buf_adds(&text, c->section_end);
    if (!code && json_object_set_new(message, "content", json_stringn_nocheck(text.data ? text.data : "", text.len)))
        code = COHORT_E_MEMORY;
    buf_free(&text);
    if (code) return no_memory(w->err);
    return json_object_del(message, "tool_calls");
}

/* What tools answer, in a user's turn: answers to one message's calls in one. */
static int turn_answers(struct preparing *w) {
    struct chat_prepared *p = w->p;
    json_t *kept = json_array(), *last = NULL; /* an answer */
    int code = kept ? 0 : COHORT_E_MEMORY;
    for (size_t i = 0; !code && i < p->n; i++) {
        json_t *message = json_array_get(p->messages, i), *content = json_object_get(message, "content");
        int answer = p->roles[i] == COHORT_ROLE_TOOL;
        if (answer) {
            struct buf text = {.max = TOKENIZER_TEXT_MAX};
            const json_t *before = json_object_get(last, "content");
            if (last) code = buf_add(&text, json_string_value(before), json_string_length(before));
            if (!code) code = buf_adds(&text, last ? "\n<tool_response>\n" : "<tool_response>\n");
            if (!code) code = buf_add(&text, json_string_value(content), json_string_length(content));
            if (!code) code = buf_adds(&text, "\n</tool_response>");
            json_t *user = last ? last : json_pack("{s:s}", "role", "user");
            if (code || !user || json_object_set_new(user, "content", json_stringn_nocheck(text.data, text.len)))
                code = COHORT_E_MEMORY;
            if (!last && !code) code = json_array_append(kept, user) ? COHORT_E_MEMORY : 0;
            if (!last) json_decref(user);
            last = code ? NULL : json_array_get(kept, json_array_size(kept) - 1);
            buf_free(&text);
        } else {
            code = json_array_append(kept, message) ? COHORT_E_MEMORY : 0;
            last = NULL;
        }
        p->at[i] = code ? 0 : json_array_size(kept) - 1;
    }
    if (code) {
        json_decref(kept);
        return no_memory(w->err);
    }
    json_decref(p->messages);
    p->messages = kept;
    return 0;
}

/* What the model is told of tools: in the system message, a new one if there is none, or else in front of the first
 * user's text. */
static int explain(struct preparing *w, const json_t *tools) {
    struct chat_prepared *p = w->p;
    char *json = json_dumps(tools, JSON_COMPACT), *text = NULL;
    size_t n = 0, i = 0;
    int code = json ? chat_format_explain(w->v->can.format, json, strlen(json), &text, &n, w->err) : no_memory(w->err);
    free(json); /* jansson's */
    if (code) return code;
    json_t *first = json_array_get(p->messages, 0), *content = json_object_get(first, "content");
    int bad = 0;
    if (p->roles[0] == COHORT_ROLE_SYSTEM) {
        bad = json_object_set_new(first, "content",
                                  text_of(json_string_value(content), json_string_length(content), "\n\n", text, n));
    } else if (w->v->can.system) {
        json_t *system = json_pack("{s:s,s:o}", "role", "system", "content", json_stringn_nocheck(text, n));
        bad = json_array_insert_new(p->messages, 0, system);
        for (size_t k = 0; k < p->n; k++) p->at[k]++;
    } else {
        while (i < p->n && p->roles[i] != COHORT_ROLE_USER) i++;
        first = i < p->n ? json_array_get(p->messages, p->at[i]) : NULL;
        content = json_object_get(first, "content");
        bad = first &&
              json_object_set_new(first, "content",
                                  text_of(text, n, "\n\n", json_string_value(content), json_string_length(content)));
    }
    mem_free(text);
    return bad ? no_memory(w->err) : 0;
}

/* An assistant's content beside calls, where it is empty. */
static int null_contents(struct preparing *w) {
    size_t i;
    json_t *message;
    json_array_foreach(w->p->messages, i, message) {
        if (!json_object_get(message, "tool_calls")) continue;
        if (json_string_length(json_object_get(message, "content"))) continue;
        if (json_object_set_new(message, "content", json_null())) return no_memory(w->err);
    }
    return 0;
}

/* Where tools are told of in the house's notation, calls and answers are written in it, too. */
static int fit(struct preparing *w, const json_t *tools) {
    struct chat_prepared *p = w->p;
    int code = 0, house = p->shows_tools && !w->v->can.tools;
    for (size_t i = 0; !code && i < p->n; i++) {
        json_t *message = json_array_get(p->messages, i);
        if (!json_object_get(message, "tool_calls") || (w->v->writes_calls && !house)) continue;
        code = write_calls(w, message);
        house = 1;
    }
    if (!code && (house || !w->v->can.tool_turns)) code = turn_answers(w);
    if (!code && p->shows_tools && !w->v->can.tools) code = explain(w, tools);
    if (!code && w->v->null_content) code = null_contents(w);
    return code;
}

/* ---- the rest ---- */

/* The white space that the last message ends with is put behind the rendering: templates may cut it off. */
static int open_last(struct preparing *w) {
    struct chat_prepared *p = w->p;
    size_t i = p->n - 1;
    json_t *message = json_array_get(p->messages, p->at[i]), *content = json_object_get(message, "content");
    if (p->roles[i] != COHORT_ROLE_ASSISTANT)
        return refuse(w, COHORT_E_ARGUMENT, i, "role", "only an assistant's turn can be continued");
    if (json_object_get(message, "tool_calls"))
        return refuse(w, COHORT_E_ARGUMENT, i, "tool_calls", "a turn that calls tools cannot be continued");
    const char *text = json_string_value(content);
    size_t n = json_string_length(content), kept = n;
    while (kept > 0 && (text[kept - 1] == ' ' || (text[kept - 1] >= '\t' && text[kept - 1] <= '\r'))) kept--;
    p->tail = mem_alloc(n - kept + 1, 1);
    if (!p->tail) return no_memory(w->err);
    memcpy(p->tail, text + kept, n - kept);
    p->tail[n - kept] = '\0';
    p->stands_in = kept == 0;
    json_t *rest = kept ? json_stringn_nocheck(text, kept) : json_string("x");
    return json_object_set_new(message, "content", rest) ? no_memory(w->err) : 0;
}

static int set_default(json_t *variables, const char *name, json_t *value) {
    if (!json_object_get(variables, name)) return json_object_set_new(variables, name, value);
    json_decref(value);
    return 0;
}

/* How much a model should think has several names; a template reads those that it knows. */
static int read_variables(struct preparing *w) {
    const cohort_chat *c = w->chat;
    struct chat_prepared *p = w->p;
    const char *name;
    json_t *value;
    int code = c->variables ? chat_json_load(c->variables, c->variables_n, "variables", &p->variables, w->err) : 0;
    if (code) return code;
    if (!p->variables) p->variables = json_object();
    if (!json_is_object(p->variables))
        return err_set(w->err, COHORT_E_ARGUMENT, "variables", "the template's variables are not an object");
    if (json_object_size(p->variables) > CHAT_VARIABLES_MAX / 2)
        return err_set(w->err, COHORT_E_LIMIT, "variables", "more than %d variables", CHAT_VARIABLES_MAX / 2);
    json_object_foreach(p->variables, name, value) if (chat_template_reserves(name)) return err_set(
        w->err, COHORT_E_ARGUMENT, "variables", "the variable \"%s\" is the server's own", name);
    int bad = 0;
    if (c->reasoning != COHORT_REASONING_DEFAULT) {
        int on = c->reasoning == COHORT_REASONING_ON;
        bad = set_default(p->variables, "enable_thinking", json_boolean(on)) ||
              set_default(p->variables, "thinking", json_boolean(on)) ||
              (!on && set_default(p->variables, "thinking_budget", json_integer(0)));
    }
    if (c->effort && !bad) bad = set_default(p->variables, "reasoning_effort", json_string(c->effort));
    return bad ? no_memory(w->err) : 0;
}

static int prepare(struct preparing *w, const struct chat_template *t) {
    struct chat_prepared *p = w->p;
    const cohort_chat *c = w->chat;
    json_t *tools = NULL;
    if (c->ending < 0 || c->ending > COHORT_CHAT_CONTINUE)
        return err_set(w->err, COHORT_E_ARGUMENT, "ending", "ending is %d", c->ending);
    int code = check_tools(w, &tools);
    p->shows_tools = json_array_size(tools) > 0 && c->tool_choice != COHORT_TOOLS_NONE;
    w->v = p->variant = p->shows_tools && t->tools.jinja ? &t->tools : &t->plain;
    if (!code) code = read_variables(w);
    if (!code) code = check_messages(w);
    if (!code) code = fit(w, tools);
    if (!code && c->ending == COHORT_CHAT_CONTINUE) code = open_last(w);
    if (!code && w->v->can.typed_content) chat_type_contents(p->messages);
    if (!code && p->shows_tools && w->v->can.tools) p->tools = json_incref(tools);
    json_decref(tools);
    return code;
}

int chat_prepare(const struct chat_template *t, const cohort_chat *chat, struct chat_prepared *out, cohort_error *err) {
    memset(out, 0, sizeof(*out));
    struct preparing w = {.chat = chat, .p = out, .err = err};
    int code = prepare(&w, t);
    if (code) chat_prepared_free(out);
    return code;
}

void chat_prepared_free(struct chat_prepared *p) {
    json_decref(p->messages);
    json_decref(p->tools);
    json_decref(p->variables);
    mem_free(p->roles);
    mem_free(p->at);
    mem_free(p->tail);
    memset(p, 0, sizeof(*p));
}
