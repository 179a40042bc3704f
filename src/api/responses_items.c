/* Items of /v1/responses (responses.h). Pure.
 *
 * An item is a message: {"type": "message", "role": "user"|"system"|"developer"|"assistant", "content": a string or
 * parts}, its type may be left out; parts are input_text or output_text. Or it is a function_call, a
 * function_call_output whose output is a string or text parts, or reasoning. Images, files, calls of other tools and
 * references to items are refused with their place.
 *
 * Reasoning, text and calls of the assistant that follow each other are one turn, as they were when it said them; each
 * call has its output in the turn behind it. */
#include <string.h>

#include "api/json_text.h"
#include "api/responses.h"
#include "base/err.h"
#include "server/fields.h"

enum { PLACE_MAX = 128 };

static int no_memory(cohort_error *err) { return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the input"); }

static int wrong(cohort_error *err, const char *place, const char *what) {
    return err_set(err, COHORT_E_ARGUMENT, place, "%s%s", place, what);
}

static int is_one_of(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; name && i < n; i++)
        if (strcmp(names[i], name) == 0) return 1;
    return 0;
}

/* ---- to a chat ---- */

/* What is known while items are read. */
struct reading {
    json_t *chat;    /* so far */
    json_t *turn;    /* the assistant's message at its end that goes on; NULL: none */
    json_t *pending; /* ids of calls that wait for their outputs: an object */
    int joins;       /* outputs may be of calls in front of the input */
};

static int add_part(json_t *parts, const json_t *part, const char *place, cohort_error *err) {
    static const char *const texts[] = {"input_text", "output_text", "text"};
    const char *type = field_word(part, "type");
    const json_t *text = json_object_get(part, "text");
    if (!type) return wrong(err, place, " must be an object with a \"type\"");
    if (!is_one_of(type, texts, 3))
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s has the type \"%.64s\"; this server takes text only",
                       place, type);
    if (!json_is_string(text)) return wrong(err, place, ".text must be a string");
    json_t *chat_part = json_pack("{s:s,s:O}", "type", "text", "text", text);
    return json_array_append_new(parts, chat_part) == 0 ? 0 : no_memory(err);
}

static int read_content(const json_t *content, const char *place, json_t **out, cohort_error *err) {
    *out = NULL;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)content);
        return 0;
    }
    if (!json_is_array(content)) return wrong(err, place, " must be a string or an array of parts");
    json_t *parts = json_array();
    int rc = parts ? 0 : no_memory(err);
    for (size_t i = 0; i < json_array_size(content) && !rc; i++) {
        char at[PLACE_MAX];
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        rc = add_part(parts, json_array_get(content, i), at, err);
    }
    if (rc)
        json_decref(parts);
    else
        *out = parts;
    return rc;
}

/* The assistant's turn that goes on, or a new one without content. */
static int begin_turn(struct reading *r, cohort_error *err) {
    if (r->turn) return 0;
    json_t *turn = json_pack("{s:s,s:n}", "role", "assistant", "content");
    if (json_array_append_new(r->chat, turn) != 0) return no_memory(err);
    r->turn = turn;
    return 0;
}

static int has_content(const json_t *turn) { return field_present(turn, "content") != NULL; }

static int add_message(struct reading *r, const json_t *item, size_t i, cohort_error *err) {
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const char *role = field_word(item, "role");
    char place[64];
    snprintf(place, sizeof place, "input[%zu].role", i);
    if (!is_one_of(role, roles, 4)) return wrong(err, place, " must be user, assistant, system or developer");
    snprintf(place, sizeof place, "input[%zu].content", i);
    json_t *content;
    int rc = read_content(json_object_get(item, "content"), place, &content, err);
    if (rc) return rc;
    if (strcmp(role, "assistant") == 0) {
        if (r->turn && has_content(r->turn)) r->turn = NULL;
        rc = begin_turn(r, err);
        if (!rc && json_object_set(r->turn, "content", content) != 0) rc = no_memory(err);
        json_decref(content);
        return rc;
    }
    r->turn = NULL;
    json_t *message = json_pack("{s:s,s:o}", "role", role, "content", content);
    return json_array_append_new(r->chat, message) == 0 ? 0 : no_memory(err);
}

static int add_call(struct reading *r, const json_t *item, const char *place, cohort_error *err) {
    const char *id = field_word(item, "call_id"), *name = field_word(item, "name");
    const json_t *arguments = json_object_get(item, "arguments");
    if (!id || !*id) return wrong(err, place, ".call_id must be a string");
    if (!name || !*name) return wrong(err, place, ".name must be a string");
    if (!json_is_string(arguments)) return wrong(err, place, ".arguments must be a string");
    if (field_present(item, "namespace"))
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.namespace cannot be told to the model", place);
    if (json_object_get(r->pending, id))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.call_id is \"%.64s\", which another call has", place, id);
    json_t *call = json_pack("{s:s,s:s,s:{s:s,s:O}}", "id", id, "type", "function", "function", "name", name,
                             "arguments", arguments);
    int rc = call ? begin_turn(r, err) : no_memory(err);
    if (rc) {
        json_decref(call);
        return rc;
    }
    json_t *calls = json_object_get(r->turn, "tool_calls");
    if (!calls && json_object_set_new(r->turn, "tool_calls", calls = json_array()) != 0) calls = NULL;
    if (json_array_append_new(calls, call) != 0) return no_memory(err);
    return json_object_set_new(r->pending, id, json_true()) == 0 ? 0 : no_memory(err);
}

static int add_output(struct reading *r, const json_t *item, const char *place, cohort_error *err) {
    const char *id = field_word(item, "call_id");
    char at[64];
    if (!id) return wrong(err, place, ".call_id must be a string");
    if (!json_object_get(r->pending, id) && !r->joins)
        return err_set(err, COHORT_E_ARGUMENT, place,
                       "%s: there is no function_call in front of it that has the call_id \"%.64s\" and no output",
                       place, id);
    snprintf(at, sizeof at, "%.40s.output", place);
    json_t *content;
    int rc = read_content(json_object_get(item, "output"), at, &content, err);
    if (rc) return rc;
    r->turn = NULL;
    json_object_del(r->pending, id);
    json_t *message = json_pack("{s:s,s:s,s:o}", "role", "tool", "tool_call_id", id, "content", content);
    return json_array_append_new(r->chat, message) == 0 ? 0 : no_memory(err);
}

/* Adds the texts of parts of this type, a line each. */
static int join_texts(struct buf *out, const json_t *parts, const char *type, const char *place, cohort_error *err) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *text = json_object_get(part, "text");
        const char *own = field_word(part, "type");
        if (!own || strcmp(own, type) != 0 || !json_is_string(text))
            return err_set(err, COHORT_E_ARGUMENT, place, "%s must have parts {\"type\": \"%s\", \"text\"}", place,
                           type);
        int rc = out->len && json_string_length(text) ? buf_adds(out, "\n") : 0;
        if (!rc) rc = buf_add(out, json_string_value(text), json_string_length(text));
        if (rc) return no_memory(err);
    }
    return 0;
}

/* Its text, or else the summary. */
static int read_reasoning(const json_t *item, const char *place, struct buf *text, cohort_error *err) {
    const json_t *content = field_present(item, "content"), *summary = field_present(item, "summary");
    if ((!content && !summary) || (content && !json_is_array(content)) || (summary && !json_is_array(summary)))
        return wrong(err, place, " must have a summary or content, both arrays");
    int rc = join_texts(text, content, "reasoning_text", place, err);
    if (!rc && !text->len) rc = join_texts(text, summary, "summary_text", place, err);
    if (rc || text->len || !field_present(item, "encrypted_content")) return rc;
    return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.encrypted_content cannot be read by this server", place);
}

static int add_reasoning(struct reading *r, const json_t *item, const char *place, cohort_error *err) {
    struct buf text = {0};
    const json_t *turn = r->turn;
    if (turn && has_content(turn) && !json_object_get(turn, "tool_calls")) r->turn = NULL;
    const json_t *before = json_object_get(r->turn, "reasoning_content");
    int rc = before ? buf_add(&text, json_string_value(before), json_string_length(before)) : 0;
    rc = rc ? no_memory(err) : 0;
    struct buf own = {0};
    if (!rc) rc = read_reasoning(item, place, &own, err);
    if (!rc && text.len && own.len) rc = buf_adds(&text, "\n");
    if (!rc && own.len) rc = buf_add(&text, own.data, own.len);
    if (!rc && own.len) rc = begin_turn(r, err);
    if (!rc && own.len && json_object_set_new(r->turn, "reasoning_content", json_stringn(text.data, text.len)) != 0)
        rc = no_memory(err);
    buf_free(&text);
    buf_free(&own);
    return rc;
}

static int add_item(struct reading *r, const json_t *item, size_t i, cohort_error *err) {
    char place[64];
    snprintf(place, sizeof place, "input[%zu]", i);
    if (!json_is_object(item)) return wrong(err, place, " must be an object");
    const json_t *type = field_present(item, "type");
    const char *kind = type ? field_word(item, "type") : "message";
    if (!kind)
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.type must be a string, not %s", place, field_type(type));
    if (strcmp(kind, "message") == 0) return add_message(r, item, i, err);
    if (strcmp(kind, "function_call") == 0) return add_call(r, item, place, err);
    if (strcmp(kind, "function_call_output") == 0) return add_output(r, item, place, err);
    if (strcmp(kind, "reasoning") == 0) return add_reasoning(r, item, place, err);
    return err_set(err, COHORT_E_UNSUPPORTED, place,
                   "%s has the type \"%.64s\"; this server takes messages, function calls and reasoning", place, kind);
}

static int check_input(const json_t *input, cohort_error *err) {
    if (!input) return err_set(err, COHORT_E_ARGUMENT, "input", "input is missing");
    if (!json_is_string(input) && !json_is_array(input))
        return err_set(err, COHORT_E_ARGUMENT, "input", "input must be a string or an array of items, not %s",
                       field_type(input));
    if (json_is_array(input) && json_array_size(input) == 0)
        return err_set(err, COHORT_E_ARGUMENT, "input", "input is empty");
    if (json_array_size(input) > RESPONSES_ITEMS_MAX)
        return err_set(err, COHORT_E_LIMIT, "input", "input has %zu items, the limit is %d", json_array_size(input),
                       RESPONSES_ITEMS_MAX);
    return 0;
}

static int add_text(json_t *chat, const char *role, const json_t *text, cohort_error *err) {
    json_t *message = json_pack("{s:s,s:O}", "role", role, "content", text);
    return json_array_append_new(chat, message) == 0 ? 0 : no_memory(err);
}

static int check_outputs(const struct reading *r, cohort_error *err) {
    const char *id = json_object_iter_key(json_object_iter(r->pending));
    return id ? err_set(err, COHORT_E_ARGUMENT, "input",
                        "input: the function_call \"%.64s\" has no function_call_output behind it", id)
              : 0;
}

int responses_chat(const json_t *body, int joins, json_t **out, cohort_error *err) {
    const json_t *input = field_present(body, "input"), *instructions = field_present(body, "instructions");
    *out = NULL;
    int rc = check_input(input, err);
    if (!rc && instructions && !json_is_string(instructions))
        rc = err_set(err, COHORT_E_ARGUMENT, "instructions", "instructions must be a string, not %s",
                     field_type(instructions));
    if (rc) return rc;
    struct reading r = {.chat = json_array(), .pending = json_object(), .joins = joins};
    if (!r.chat || !r.pending) rc = no_memory(err);
    if (!rc && instructions) rc = add_text(r.chat, "system", instructions, err);
    if (!rc && json_is_string(input)) rc = add_text(r.chat, "user", input, err);
    for (size_t i = 0; i < json_array_size(input) && !rc; i++) rc = add_item(&r, json_array_get(input, i), i, err);
    if (!rc) rc = check_outputs(&r, err);
    json_decref(r.pending);
    if (rc)
        json_decref(r.chat);
    else
        *out = r.chat;
    return rc;
}

/* ---- to one longer input ---- */

int responses_add_items(json_t *out, const json_t *input, cohort_error *err) {
    if (json_is_string(input)) {
        json_t *item = json_pack("{s:s,s:s,s:O}", "type", "message", "role", "user", "content", input);
        return json_array_append_new(out, item) == 0 ? 0 : no_memory(err);
    }
    return json_array_extend(out, (json_t *)input) == 0 ? 0 : no_memory(err);
}

/* Without the log-probabilities, which may be longer than all else. */
static int add_said(json_t *out, const json_t *item, cohort_error *err) {
    json_t *copy = json_deep_copy(item);
    json_t *content = json_object_get(copy, "content");
    for (size_t i = 0; i < json_array_size(content); i++) json_object_del(json_array_get(content, i), "logprobs");
    return json_array_append_new(out, copy) == 0 ? 0 : no_memory(err);
}

int responses_continue(json_t *body, const json_t *earlier_body, const json_t *earlier_object, cohort_error *err) {
    const json_t *input = json_object_get(body, "input"), *output = json_object_get(earlier_object, "output");
    int rc = check_input(field_present(body, "input"), err);
    if (rc) return rc;
    json_t *items = json_array();
    if (!items) return no_memory(err);
    rc = responses_add_items(items, json_object_get(earlier_body, "input"), err);
    for (size_t i = 0; i < json_array_size(output) && !rc; i++) rc = add_said(items, json_array_get(output, i), err);
    if (!rc) rc = responses_add_items(items, input, err);
    if (!rc && json_array_size(items) > RESPONSES_ITEMS_MAX)
        rc = err_set(err, COHORT_E_LIMIT, "previous_response_id", "the conversation has %zu items, the limit is %d",
                     json_array_size(items), RESPONSES_ITEMS_MAX);
    if (!rc && json_object_set(body, "input", items) != 0) rc = no_memory(err);
    json_decref(items);
    return rc;
}

/* ---- the list ---- */

static int list_part(struct buf *out, const json_t *text, int said) {
    int rc = buf_adds(out, said ? "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":"
                                : "{\"type\":\"input_text\",\"text\":");
    if (!rc) rc = buf_json_string(out, json_string_value(text), json_string_length(text));
    return rc ? rc : buf_adds(out, "}");
}

static int list_message(struct buf *out, const char *id, const json_t *item) {
    const char *role = field_word(item, "role");
    const json_t *content = json_object_get(item, "content");
    int said = strcmp(role, "assistant") == 0, rc = buf_adds(out, "{\"id\":");
    if (!rc) rc = buf_json_string(out, id, strlen(id));
    if (!rc) rc = buf_addf(out, ",\"type\":\"message\",\"status\":\"completed\",\"role\":\"%s\",\"content\":[", role);
    if (!rc && json_is_string(content)) rc = list_part(out, content, said);
    for (size_t k = 0; k < json_array_size(content) && !rc; k++) {
        if (k) rc = buf_adds(out, ",");
        if (!rc) rc = list_part(out, json_object_get(json_array_get(content, k), "text"), said);
    }
    return rc ? rc : buf_adds(out, "]}");
}

const char *responses_item_prefix(const json_t *item) {
    const char *type = field_word(item, "type");
    if (type && strcmp(type, "function_call") == 0) return "fc_";
    if (type && strcmp(type, "function_call_output") == 0) return "fco_";
    return type && strcmp(type, "reasoning") == 0 ? "rs_" : "msg_";
}

int responses_list_item(struct buf *out, const char *id, const json_t *item) {
    if (strcmp(responses_item_prefix(item), "msg_") == 0) return list_message(out, id, item);
    json_t *copy = json_copy((json_t *)item);
    int rc = copy && json_object_set_new(copy, "id", json_string(id)) == 0 &&
                     json_object_set_new(copy, "status", json_string("completed")) == 0
                 ? json_text(out, copy)
                 : COHORT_E_MEMORY;
    json_decref(copy);
    return rc;
}
