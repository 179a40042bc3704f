/* Anthropic's messages as a chat (anthropic.h). Pure.
 *
 * A request may hold a `system` and contents that are a string or an array of blocks; the roles "user" and "assistant".
 * Blocks: text; of the assistant also tool_use and thinking; of the user also tool_result, whose content is a string or
 * text blocks. `cache_control` and `citations` change nothing: turns' ends are kept in the prefix store anyhow, and
 * redacted_thinking says nothing here. Blocks of other types (images, documents) are refused with their place. Two
 * messages of one role in a row are two turns.
 *
 * Results follow their calls: each tool_use of the assistant has its tool_result in the user's turn behind it, in front
 * of all else there, as the origin demands. OpenAI's messages have one text and one reasoning each: what an assistant's
 * message says between its calls is told in front of them. */
#include <string.h>

#include "api/anthropic.h"
#include "api/json_text.h"
#include "base/err.h"
#include "server/fields.h"

enum { PLACE_MAX = 160 };

/* What is known while messages are read. */
struct reading {
    json_t *chat;    /* so far */
    json_t *pending; /* ids of calls that wait for their results: an object */
    json_t *used;    /* ids of all calls */
    const char *role;
    /* of the message */
    json_t *parts, *calls;
    struct buf thinking;
};

static int no_memory(cohort_error *err) { return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the messages"); }

int anthropic_cache_control(const json_t *block, const char *place, cohort_error *err) {
    const json_t *control = field_present(block, "cache_control");
    const char *type = field_word(control, "type");
    if (!control || (type && strcmp(type, "ephemeral") == 0)) return 0;
    return err_set(err, COHORT_E_ARGUMENT, place, "%s.cache_control must be {\"type\": \"ephemeral\"}", place);
}

static int wrong(cohort_error *err, const char *place, const char *what) {
    return err_set(err, COHORT_E_ARGUMENT, place, "%s%s", place, what);
}

/* ---- texts ---- */

static int add_part(json_t *parts, const json_t *text, cohort_error *err) {
    json_t *part = json_pack("{s:s,s:O}", "type", "text", "text", text);
    return json_array_append_new(parts, part) == 0 ? 0 : no_memory(err);
}

static int add_text(json_t *parts, const json_t *block, const char *place, cohort_error *err) {
    const json_t *text = json_object_get(block, "text");
    if (!json_is_string(text)) return wrong(err, place, ".text must be a string");
    return add_part(parts, text, err);
}

static int check_type(const json_t *block, const char *place, const char **type, cohort_error *err) {
    *type = field_word(block, "type");
    if (!*type) return wrong(err, place, " must be an object with a \"type\"");
    return anthropic_cache_control(block, place, err);
}

static int refuse_type(cohort_error *err, const char *place, const char *type, const char *taken) {
    return err_set(err, COHORT_E_UNSUPPORTED, place, "%s has the type \"%.64s\"; this server takes %s here", place,
                   type, taken);
}

/* Blocks that are nothing but text, behind `parts`. */
static int add_texts(json_t *parts, const json_t *blocks, const char *place, cohort_error *err) {
    int rc = 0;
    for (size_t i = 0; i < json_array_size(blocks) && !rc; i++) {
        char at[PLACE_MAX];
        const json_t *block = json_array_get(blocks, i);
        const char *type;
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        rc = check_type(block, at, &type, err);
        if (!rc && strcmp(type, "text") != 0) rc = refuse_type(err, at, type, "text blocks only");
        if (!rc) rc = add_text(parts, block, at, err);
    }
    return rc;
}

/* Takes `content` over, also on failure. */
static int add_message(json_t *chat, const char *role, json_t *content, cohort_error *err) {
    json_t *message = content ? json_pack("{s:s,s:o}", "role", role, "content", content) : NULL;
    return json_array_append_new(chat, message) == 0 ? 0 : no_memory(err);
}

static int read_system(json_t *chat, const json_t *system, cohort_error *err) {
    if (json_is_string(system)) return add_message(chat, "system", json_incref((json_t *)system), err);
    if (!json_is_array(system)) return wrong(err, "system", " must be a string or an array of text blocks");
    json_t *parts = json_array();
    int rc = parts ? add_texts(parts, system, "system", err) : no_memory(err);
    if (rc) {
        json_decref(parts);
        return rc;
    }
    return add_message(chat, "system", parts, err);
}

/* ---- calls and their results ---- */

static int is_waiting(const struct reading *r) { return json_object_size(r->pending) > 0; }

/* Something else than a result stands where results are waited for. */
static int miss_result(const struct reading *r, const char *place, cohort_error *err) {
    const char *id = json_object_iter_key(json_object_iter(r->pending));
    return err_set(
        err, COHORT_E_ARGUMENT, place,
        "%s: the tool_use \"%.64s\" has no tool_result in front of it; results come first in the message behind "
        "their calls",
        place, id ? id : "");
}

static int add_result(struct reading *r, const json_t *block, const char *place, cohort_error *err) {
    const char *id = field_word(block, "tool_use_id");
    const json_t *content = field_present(block, "content");
    char at[PLACE_MAX];
    int failed = 0, rc = field_bool(block, "is_error", &failed, err);
    if (rc) return wrong(err, place, ".is_error must be true or false");
    if (!id) return wrong(err, place, ".tool_use_id must be a string");
    if (!json_object_get(r->pending, id))
        return err_set(err, COHORT_E_ARGUMENT, place,
                       "%s: \"%.64s\" is no tool_use of the assistant's message before that waits for a result", place,
                       id);
    snprintf(at, sizeof at, "%.100s.content", place);
    if (content && !json_is_string(content) && !json_is_array(content))
        return wrong(err, at, " must be a string or an array of text blocks");
    json_t *parts = json_array(), *error = failed ? json_string("Error: ") : NULL;
    rc = parts && (!failed || error) ? 0 : no_memory(err);
    if (!rc && failed) rc = add_part(parts, error, err);
    if (!rc && json_is_string(content)) rc = add_part(parts, content, err);
    if (!rc && json_is_array(content)) rc = add_texts(parts, content, at, err);
    /* a string stays one */
    json_t *told = !failed && json_is_string(content) ? json_incref((json_t *)content) : json_incref(parts);
    json_t *message = rc ? NULL : json_pack("{s:s,s:s,s:O}", "role", "tool", "tool_call_id", id, "content", told);
    if (!rc && json_array_append_new(r->chat, message) != 0) rc = no_memory(err);
    json_decref(told);
    json_decref(parts);
    json_decref(error);
    json_object_del(r->pending, id);
    return rc;
}

static int add_call(struct reading *r, const json_t *block, const char *place, cohort_error *err) {
    const char *id = field_word(block, "id"), *name = field_word(block, "name");
    const json_t *input = json_object_get(block, "input"), *caller = field_present(block, "caller");
    const char *who = caller ? field_word(caller, "type") : "direct";
    if (!id || !*id) return wrong(err, place, ".id must be a string");
    if (!name || !*name) return wrong(err, place, ".name must be a string");
    if (!json_is_object(input)) return wrong(err, place, ".input must be an object");
    if (!who || strcmp(who, "direct") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, place, "%s.caller must be {\"type\": \"direct\"}", place);
    if (json_object_get(r->used, id))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s.id is \"%.64s\", which another call has", place, id);
    json_t *arguments = json_text_string(input);
    json_t *call = arguments ? json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", id, "type", "function", "function", "name",
                                         name, "arguments", arguments)
                             : NULL;
    if (json_array_append_new(r->calls, call) != 0) return no_memory(err);
    if (json_object_set_new(r->used, id, json_true()) != 0) return no_memory(err);
    return json_object_set_new(r->pending, id, json_true()) == 0 ? 0 : no_memory(err);
}

static int add_thinking(struct reading *r, const json_t *block, const char *place, cohort_error *err) {
    const json_t *text = json_object_get(block, "thinking");
    if (!json_is_string(text)) return wrong(err, place, ".thinking must be a string");
    if (!json_is_string(json_object_get(block, "signature"))) return wrong(err, place, ".signature must be a string");
    int rc = r->thinking.len && json_string_length(text) ? buf_adds(&r->thinking, "\n") : 0;
    if (!rc) rc = buf_add(&r->thinking, json_string_value(text), json_string_length(text));
    return rc ? no_memory(err) : 0;
}

/* ---- messages ---- */

static int read_block(struct reading *r, const json_t *block, const char *place, cohort_error *err) {
    const char *type;
    int users = strcmp(r->role, "user") == 0, rc = check_type(block, place, &type, err);
    if (rc) return rc;
    if (users && strcmp(type, "tool_result") == 0) return add_result(r, block, place, err);
    if (users && is_waiting(r)) return miss_result(r, place, err);
    if (strcmp(type, "text") == 0) return add_text(r->parts, block, place, err);
    if (!users && strcmp(type, "tool_use") == 0) return add_call(r, block, place, err);
    if (!users && strcmp(type, "thinking") == 0) return add_thinking(r, block, place, err);
    if (!users && strcmp(type, "redacted_thinking") == 0)
        return json_is_string(json_object_get(block, "data")) ? 0 : wrong(err, place, ".data must be a string");
    return refuse_type(err, place, type, users ? "text and tool_result" : "text, tool_use and thinking");
}

/* What the message's blocks were, but for results, which stand there already. */
static int end_message(struct reading *r, size_t before, cohort_error *err) {
    size_t texts = json_array_size(r->parts), calls = json_array_size(r->calls);
    if (!texts && json_array_size(r->chat) > before) return 0; /* results only */
    json_t *content = texts || !calls ? json_incref(r->parts) : json_null();
    json_t *message = json_pack("{s:s,s:o}", "role", r->role, "content", content);
    int rc = message ? 0 : no_memory(err);
    if (!rc && r->thinking.len &&
        json_object_set_new(message, "reasoning_content", json_stringn(r->thinking.data, r->thinking.len)) != 0)
        rc = no_memory(err);
    if (!rc && calls && json_object_set(message, "tool_calls", r->calls) != 0) rc = no_memory(err);
    if (rc) {
        json_decref(message);
        return rc;
    }
    return json_array_append_new(r->chat, message) == 0 ? 0 : no_memory(err);
}

static int read_blocks(struct reading *r, const json_t *blocks, const char *place, cohort_error *err) {
    size_t before = json_array_size(r->chat);
    r->parts = json_array();
    r->calls = json_array();
    int rc = r->parts && r->calls ? 0 : no_memory(err);
    for (size_t i = 0; i < json_array_size(blocks) && !rc; i++) {
        char at[PLACE_MAX];
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        rc = read_block(r, json_array_get(blocks, i), at, err);
    }
    if (!rc) rc = end_message(r, before, err);
    json_decref(r->parts);
    json_decref(r->calls);
    buf_free(&r->thinking);
    return rc;
}

static int read_message(struct reading *r, const json_t *message, size_t i, cohort_error *err) {
    const char *before = r->role;
    char place[64];
    snprintf(place, sizeof place, "messages[%zu]", i);
    if (!json_is_object(message)) return wrong(err, place, " must be an object");
    r->role = field_word(message, "role");
    snprintf(place, sizeof place, "messages[%zu].role", i);
    if (!r->role || (strcmp(r->role, "user") != 0 && strcmp(r->role, "assistant") != 0))
        return err_set(err, COHORT_E_ARGUMENT, place, "%s must be \"user\" or \"assistant\"%s", place,
                       r->role && strcmp(r->role, "system") == 0 ? "; a system prompt goes into the field \"system\""
                                                                 : "");
    snprintf(place, sizeof place, "messages[%zu].content", i);
    const json_t *content = json_object_get(message, "content");
    int turns = !before || strcmp(before, r->role) != 0, text = json_is_string(content);
    if (is_waiting(r) && ((turns && strcmp(r->role, "assistant") == 0) || (text && strcmp(r->role, "user") == 0)))
        return miss_result(r, place, err);
    if (text) return add_message(r->chat, r->role, json_incref((json_t *)content), err);
    if (!json_is_array(content)) return wrong(err, place, " must be a string or an array of blocks");
    return read_blocks(r, content, place, err);
}

int anthropic_chat(const json_t *body, json_t **out, int *prefill, cohort_error *err) {
    const json_t *system = field_present(body, "system"), *messages = json_object_get(body, "messages");
    size_t n = json_array_size(messages);
    *out = NULL;
    if (!json_is_array(messages)) return wrong(err, "messages", " must be an array");
    if (n == 0) return wrong(err, "messages", " is empty");
    struct reading r = {.chat = json_array(), .pending = json_object(), .used = json_object()};
    int rc = r.chat && r.pending && r.used ? 0 : no_memory(err);
    if (!rc && system) rc = read_system(r.chat, system, err);
    for (size_t i = 0; i < n && !rc; i++) rc = read_message(&r, json_array_get(messages, i), i, err);
    if (!rc && is_waiting(&r)) rc = miss_result(&r, "messages", err);
    json_decref(r.pending);
    json_decref(r.used);
    if (rc) {
        json_decref(r.chat);
        return rc;
    }
    *prefill = strcmp(r.role, "assistant") == 0;
    *out = r.chat;
    return 0;
}
