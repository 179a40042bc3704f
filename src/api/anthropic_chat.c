/* Anthropic's errors, and its messages as a chat (anthropic.h). Pure.
 *
 * What a request may hold: a `system` and contents that are a string or an array of {"type":"text","text":...} blocks;
 * the roles "user" and "assistant". A block's `cache_control` and `citations` change nothing: turns' ends are kept in
 * the prefix store anyhow. Blocks of other types (images, documents, tools, thinking) are refused with their place. Two
 * messages of one role in a row are two turns. */
#include <string.h>

#include "api/anthropic.h"
#include "base/err.h"
#include "server/fields.h"

/* ---- errors ---- */

static int status(const struct error_view *usual) {
    const char *param = usual->param ? usual->param : "";
    int is_tenants = strcmp(param, "queue") == 0 || strcmp(param, "tokens_per_minute") == 0;
    return usual->status == 429 && !is_tenants ? 529 : usual->status;
}

static const char *type_of(int status) {
    static const struct {
        int status;
        const char *type;
    } types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
                 {404, "not_found_error"},       {405, "invalid_request_error"}, {413, "request_too_large"},
                 {415, "invalid_request_error"}, {429, "rate_limit_error"},      {504, "timeout_error"},
                 {529, "overloaded_error"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == status) return types[i].type;
    return "api_error";
}

static int write_error(struct buf *out, const struct error_view *e) {
    int rc = buf_addf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type_of(e->status));
    if (!rc) rc = buf_json_string(out, e->message, strlen(e->message));
    if (!rc) rc = buf_adds(out, "}");
    if (!rc && e->request_id) rc = buf_addf(out, ",\"request_id\":\"%s\"", e->request_id);
    return rc ? rc : buf_adds(out, "}");
}

const struct error_shape error_shape_anthropic = {.status = status, .write = write_error, .request_ids = 1};

/* ---- the chat ---- */

static int no_memory(cohort_error *err) { return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the messages"); }

static int check_cache_control(const json_t *block, const char *place, cohort_error *err) {
    const json_t *control = field_present(block, "cache_control");
    const char *type = field_word(control, "type");
    if (!control || (type && strcmp(type, "ephemeral") == 0)) return 0;
    return err_set(err, COHORT_E_ARGUMENT, place, "%s.cache_control must be {\"type\": \"ephemeral\"}", place);
}

static int add_block(json_t *parts, const json_t *block, const char *place, cohort_error *err) {
    const json_t *text = json_object_get(block, "text");
    const char *type = field_word(block, "type");
    if (!type) return err_set(err, COHORT_E_ARGUMENT, place, "%s must be an object with a \"type\"", place);
    if (strcmp(type, "text") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, place,
                       "%s has the type \"%.64s\"; this server takes text blocks only", place, type);
    if (!json_is_string(text)) return err_set(err, COHORT_E_ARGUMENT, place, "%s.text must be a string", place);
    int rc = check_cache_control(block, place, err);
    if (rc) return rc;
    json_t *part = json_pack("{s:s,s:O}", "type", "text", "text", text);
    return json_array_append_new(parts, part) == 0 ? 0 : no_memory(err);
}

/* A string, or text blocks. *out is owned. */
static int read_content(const json_t *content, const char *place, json_t **out, cohort_error *err) {
    *out = NULL;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)content);
        return 0;
    }
    if (!json_is_array(content))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s must be a string or an array of text blocks", place);
    json_t *parts = json_array();
    int rc = parts ? 0 : no_memory(err);
    for (size_t i = 0; i < json_array_size(content) && !rc; i++) {
        char at[128];
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        rc = add_block(parts, json_array_get(content, i), at, err);
    }
    if (rc)
        json_decref(parts);
    else
        *out = parts;
    return rc;
}

static int add_message(json_t *chat, const char *role, const json_t *content, const char *place, cohort_error *err) {
    json_t *read;
    int rc = read_content(content, place, &read, err);
    if (rc) return rc;
    json_t *message = json_pack("{s:s,s:o}", "role", role, "content", read);
    return json_array_append_new(chat, message) == 0 ? 0 : no_memory(err);
}

static int read_message(json_t *chat, const json_t *message, size_t i, cohort_error *err) {
    char place[64];
    snprintf(place, sizeof place, "messages[%zu]", i);
    if (!json_is_object(message)) return err_set(err, COHORT_E_ARGUMENT, place, "%s must be an object", place);
    const char *role = field_word(message, "role");
    snprintf(place, sizeof place, "messages[%zu].role", i);
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s must be \"user\" or \"assistant\"%s", place,
                       role && strcmp(role, "system") == 0 ? "; a system prompt goes into the field \"system\"" : "");
    snprintf(place, sizeof place, "messages[%zu].content", i);
    return add_message(chat, role, json_object_get(message, "content"), place, err);
}

int anthropic_chat(const json_t *body, json_t **out, int *prefill, cohort_error *err) {
    const json_t *system = field_present(body, "system"), *messages = json_object_get(body, "messages");
    size_t n = json_array_size(messages);
    *out = NULL;
    if (!json_is_array(messages)) return err_set(err, COHORT_E_ARGUMENT, "messages", "messages must be an array");
    if (n == 0) return err_set(err, COHORT_E_ARGUMENT, "messages", "messages is empty");
    json_t *chat = json_array();
    int rc = chat ? 0 : no_memory(err);
    if (!rc && system) rc = add_message(chat, "system", system, "system", err);
    for (size_t i = 0; i < n && !rc; i++) rc = read_message(chat, json_array_get(messages, i), i, err);
    if (rc) {
        json_decref(chat);
        return rc;
    }
    const char *last = field_word(json_array_get(messages, n - 1), "role");
    *prefill = strcmp(last, "assistant") == 0;
    *out = chat;
    return 0;
}
