/* The messages of OpenAI's chats (chat_messages.h). Here is said what the rendering would not say as exactly: shapes,
 * and that what a tool answers belongs to a call that an earlier message of the assistant made. */
#include "api/chat_messages.h"

#include <stdio.h>
#include <string.h>

#include "api/tools.h"
#include "base/err.h"
#include "server/fields.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* While messages are read in their order. */
struct reading {
    json_t *calls;   /* ids of the calls so far */
    char legacy[32]; /* the id that was given to the last function_call; "": there is none that waits */
    cohort_error *err;
};

static int refuse(cohort_error *err, int code, size_t i, const char *key, const char *reason) {
    char field[128];
    snprintf(field, sizeof field, "messages[%zu]%s%s", i, *key ? "." : "", key);
    return err_set(err, code, field, "%s %s", field, reason);
}

static int no_memory(cohort_error *err) { return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the messages"); }

/* ---- checks ---- */

/* Text parts only. */
static int check_part(const json_t *part, size_t i, size_t j, cohort_error *err) {
    char field[96];
    const json_t *type = json_object_get(part, "type");
    snprintf(field, sizeof field, "messages[%zu].content[%zu]", i, j);
    if (!json_is_object(part)) return err_set(err, COHORT_E_ARGUMENT, field, "%s must be an object", field);
    snprintf(field, sizeof field, "messages[%zu].content[%zu].type", i, j);
    if (!json_is_string(type)) return err_set(err, COHORT_E_ARGUMENT, field, "%s must be a string", field);
    if (strcmp(json_string_value(type), "text") != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, field, "%s is \"%.40s\"; this server reads \"text\" only", field,
                       json_string_value(type));
    snprintf(field, sizeof field, "messages[%zu].content[%zu].text", i, j);
    if (!json_is_string(json_object_get(part, "text")))
        return err_set(err, COHORT_E_ARGUMENT, field, "%s must be a string", field);
    return 0;
}

/* Fields of a message beside role, content and calls. */
static int check_beside(const json_t *message, size_t i, cohort_error *err) {
    static const char *const strings[] = {"role", "name", "tool_call_id", "refusal", "reasoning_content", "reasoning"};
    for (size_t k = 0; k < COUNT(strings); k++) {
        const json_t *value = field_present(message, strings[k]);
        if (value && !json_is_string(value)) return refuse(err, COHORT_E_ARGUMENT, i, strings[k], "must be a string");
    }
    if (field_present(message, "audio"))
        return refuse(err, COHORT_E_UNSUPPORTED, i, "audio", "is not supported by this server yet");
    if (json_string_length(json_object_get(message, "refusal")))
        return refuse(err, COHORT_E_UNSUPPORTED, i, "refusal", "is not supported by this server yet");
    return 0;
}

static int check_function(const json_t *function, size_t i, const char *field, cohort_error *err) {
    if (!tools_is_name(json_object_get(function, "name")) || !json_is_string(json_object_get(function, "arguments")))
        return refuse(err, COHORT_E_ARGUMENT, i, field, "must have a tool's name and \"arguments\": a string of JSON");
    return 0;
}

/* An assistant's tool_calls. */
static int check_calls(struct reading *r, const json_t *message, size_t i) {
    const json_t *calls = field_present(message, "tool_calls");
    int rc = 0;
    if (!calls) return 0;
    if (!json_is_array(calls)) return refuse(r->err, COHORT_E_ARGUMENT, i, "tool_calls", "must be an array");
    for (size_t j = 0; j < json_array_size(calls) && !rc; j++) {
        const json_t *call = json_array_get(calls, j), *id = json_object_get(call, "id");
        const char *type = field_word(call, "type");
        char field[48];
        snprintf(field, sizeof field, "tool_calls[%zu]", j);
        if (!json_is_string(id)) return refuse(r->err, COHORT_E_ARGUMENT, i, field, "must have an \"id\": a string");
        if (!type || strcmp(type, "function") != 0)
            return refuse(r->err, type ? COHORT_E_UNSUPPORTED : COHORT_E_ARGUMENT, i, field,
                          "must have the \"type\" \"function\"");
        rc = check_function(json_object_get(call, "function"), i, field, r->err);
        if (!rc && json_object_setn_new(r->calls, json_string_value(id), json_string_length(id), json_true()) != 0)
            rc = no_memory(r->err);
    }
    return rc;
}

static int check_answer(const struct reading *r, const json_t *message, size_t i) {
    const json_t *id = field_present(message, "tool_call_id");
    if (!id) return refuse(r->err, COHORT_E_ARGUMENT, i, "tool_call_id", "is missing");
    if (!json_object_getn(r->calls, json_string_value(id), json_string_length(id)))
        return refuse(r->err, COHORT_E_ARGUMENT, i, "tool_call_id", "is the id of no call in an earlier message");
    return 0;
}

/* ---- what older clients say ---- */

/* function_call -> tool_calls, with an id of ours. */
static int renew_call(struct reading *r, json_t *message, size_t i) {
    json_t *call = json_object_get(message, "function_call");
    int rc = check_function(call, i, "function_call", r->err);
    if (rc) return rc;
    snprintf(r->legacy, sizeof r->legacy, "call_%zu", i);
    json_t *calls = json_pack("[{s:s, s:s, s:O}]", "id", r->legacy, "type", "function", "function", call);
    if (json_object_set_new(message, "tool_calls", calls) != 0) return no_memory(r->err);
    json_object_del(message, "function_call");
    return 0;
}

/* The role "function" -> "tool", for the call before it. */
static int renew_answer(struct reading *r, json_t *message, size_t i) {
    if (!r->legacy[0])
        return refuse(r->err, COHORT_E_ARGUMENT, i, "role", "is \"function\", and there is no function_call before it");
    if (json_object_set_new(message, "role", json_string("tool")) != 0 ||
        json_object_set_new(message, "tool_call_id", json_string(r->legacy)) != 0)
        return no_memory(r->err);
    r->legacy[0] = 0;
    return 0;
}

static int renew_reasoning(struct reading *r, json_t *message) {
    json_t *reasoning = json_object_get(message, "reasoning");
    if (!reasoning || field_present(message, "reasoning_content")) return 0;
    return json_object_set(message, "reasoning_content", reasoning) == 0 ? 0 : no_memory(r->err);
}

/* A copy of the message, as it is rendered. */
static int take_message(struct reading *r, json_t *message, size_t i) {
    const char *role = field_word(message, "role");
    int is_assistant = role && strcmp(role, "assistant") == 0, rc = check_beside(message, i, r->err);
    const json_t *content = json_object_get(message, "content");
    for (size_t j = 0; j < json_array_size(content) && !rc; j++)
        rc = check_part(json_array_get(content, j), i, j, r->err);
    if (!rc && is_assistant && field_present(message, "function_call")) rc = renew_call(r, message, i);
    if (!rc && role && strcmp(role, "function") == 0) {
        rc = renew_answer(r, message, i);
    } else if (!rc && role && strcmp(role, "tool") == 0) {
        rc = check_answer(r, message, i);
    }
    if (!rc && is_assistant) rc = renew_reasoning(r, message);
    return rc || !is_assistant ? rc : check_calls(r, message, i);
}

int chat_messages(const json_t *messages, json_t **out, cohort_error *err) {
    struct reading r = {.calls = json_object(), .err = err};
    *out = json_array();
    int rc = r.calls && *out ? 0 : no_memory(err);
    if (!rc && !json_is_array(messages)) rc = err_set(err, COHORT_E_ARGUMENT, "messages", "messages must be an array");
    if (!rc && json_array_size(messages) == 0) rc = err_set(err, COHORT_E_ARGUMENT, "messages", "messages is empty");
    for (size_t i = 0; i < json_array_size(messages) && !rc; i++) {
        json_t *message = json_copy(json_array_get(messages, i));
        if (!message || json_array_append_new(*out, message) != 0)
            rc = no_memory(err);
        else if (!json_is_object(message))
            rc = refuse(err, COHORT_E_ARGUMENT, i, "", "must be an object");
        else
            rc = take_message(&r, message, i);
    }
    json_decref(r.calls);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}
