/* Items of /v1/responses (responses.h). Pure.
 *
 * An item is a message: {"type": "message", "role": "user"|"system"|"developer"|"assistant", "content": a string or
 * parts}, its type may be left out; parts are input_text or output_text. Calls of functions, images, files, reasoning
 * and references to items are refused with their place. */
#include <string.h>

#include "api/responses.h"
#include "base/err.h"
#include "server/fields.h"

static int no_memory(cohort_error *err) { return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the input"); }

static int is_one_of(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; name && i < n; i++)
        if (strcmp(names[i], name) == 0) return 1;
    return 0;
}

/* ---- to a chat ---- */

static int add_part(json_t *parts, const json_t *part, const char *place, cohort_error *err) {
    static const char *const texts[] = {"input_text", "output_text", "text"};
    const char *type = field_word(part, "type");
    const json_t *text = json_object_get(part, "text");
    if (!type) return err_set(err, COHORT_E_ARGUMENT, place, "%s must be an object with a \"type\"", place);
    if (!is_one_of(type, texts, 3))
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s has the type \"%.64s\"; this server takes text only",
                       place, type);
    if (!json_is_string(text)) return err_set(err, COHORT_E_ARGUMENT, place, "%s.text must be a string", place);
    json_t *chat_part = json_pack("{s:s,s:O}", "type", "text", "text", text);
    return json_array_append_new(parts, chat_part) == 0 ? 0 : no_memory(err);
}

static int read_content(const json_t *content, const char *place, json_t **out, cohort_error *err) {
    *out = NULL;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)content);
        return 0;
    }
    if (!json_is_array(content))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s must be a string or an array of parts", place);
    json_t *parts = json_array();
    int rc = parts ? 0 : no_memory(err);
    for (size_t i = 0; i < json_array_size(content) && !rc; i++) {
        char at[128];
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        rc = add_part(parts, json_array_get(content, i), at, err);
    }
    if (rc)
        json_decref(parts);
    else
        *out = parts;
    return rc;
}

static int add_item(json_t *chat, const json_t *item, size_t i, cohort_error *err) {
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    char place[64];
    snprintf(place, sizeof place, "input[%zu]", i);
    if (!json_is_object(item)) return err_set(err, COHORT_E_ARGUMENT, place, "%s must be an object", place);
    const json_t *type = field_present(item, "type");
    const char *kind = type ? field_word(item, "type") : "message";
    if (!kind)
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.type must be a string, not %s", place, field_type(type));
    if (strcmp(kind, "message") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s has the type \"%.64s\"; this server takes messages only",
                       place, kind);
    const char *role = field_word(item, "role");
    snprintf(place, sizeof place, "input[%zu].role", i);
    if (!is_one_of(role, roles, 4))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s must be user, assistant, system or developer", place);
    snprintf(place, sizeof place, "input[%zu].content", i);
    json_t *content;
    int rc = read_content(json_object_get(item, "content"), place, &content, err);
    if (rc) return rc;
    json_t *message = json_pack("{s:s,s:o}", "role", role, "content", content);
    return json_array_append_new(chat, message) == 0 ? 0 : no_memory(err);
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

int responses_chat(const json_t *body, json_t **out, cohort_error *err) {
    const json_t *input = field_present(body, "input"), *instructions = field_present(body, "instructions");
    *out = NULL;
    int rc = check_input(input, err);
    if (!rc && instructions && !json_is_string(instructions))
        rc = err_set(err, COHORT_E_ARGUMENT, "instructions", "instructions must be a string, not %s",
                     field_type(instructions));
    if (rc) return rc;
    json_t *chat = json_array();
    if (!chat) return no_memory(err);
    if (instructions) rc = add_text(chat, "system", instructions, err);
    if (!rc && json_is_string(input)) rc = add_text(chat, "user", input, err);
    for (size_t i = 0; i < json_array_size(input) && !rc; i++) rc = add_item(chat, json_array_get(input, i), i, err);
    if (rc)
        json_decref(chat);
    else
        *out = chat;
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

int responses_list_item(struct buf *out, const char *id, const json_t *item) {
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
