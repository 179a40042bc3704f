/* OpenAI's /v1/chat/completions: what is read from a body, and how tokens and finishes are written, streamed and whole.
 * Shapes follow the published API description. Loop thread, but for chat_prepare.
 *
 * max_completion_tokens, or else max_tokens: at least 1; without either as many as there is room for. Contents are
 * strings or text parts, whose texts are joined; an assistant's may be null. `name` and `tool_call_id` are not told to
 * the model. tools, response_format and reasoning_effort are refused unless they ask for nothing; `prediction`, which
 * would only save time, is left aside. add_generation_prompt: false ends the prompt behind the last turn;
 * continue_final_message: true leaves the last turn, an assistant's, open, and the answer goes on with it. */
#include <stdlib.h>
#include <string.h>

#include "api/openai.h"
#include "api/params.h"
#include "api/routes.h"
#include "base/err.h"
#include "base/mem.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct known_field chat_fields[] = {
    {"messages", FIELD_READ, NULL},
    {"top_logprobs", FIELD_READ, NULL},
    {"add_generation_prompt", FIELD_READ, NULL},
    {"continue_final_message", FIELD_READ, NULL},
    {"prediction", FIELD_READ, NULL},
    {"parallel_tool_calls", FIELD_NEUTRAL, "true"},
    {"tools", FIELD_REFUSED, "[]"},
    {"tool_choice", FIELD_REFUSED, "\"none\" \"auto\""},
    {"functions", FIELD_REFUSED, "[]"},
    {"function_call", FIELD_REFUSED, "\"none\" \"auto\""},
    {"response_format", FIELD_REFUSED, "{\"type\":\"text\"}"},
    {"reasoning_effort", FIELD_REFUSED, "\"none\""},
    {"include_reasoning", FIELD_NEUTRAL, "true"},
    {"verbosity", FIELD_REFUSED, "\"medium\""},
    {"modalities", FIELD_REFUSED, "[\"text\"]"},
    {"audio", FIELD_REFUSED, NULL},
    {"moderation", FIELD_REFUSED, NULL},
    {"web_search_options", FIELD_REFUSED, NULL},
    {"chat_template", FIELD_REFUSED, NULL},
    {"chat_template_kwargs", FIELD_REFUSED, "{}"},
    {"documents", FIELD_REFUSED, "[]"},
    {"add_special_tokens", FIELD_REFUSED, "false"},
    {"echo", FIELD_REFUSED, "false"},
    {"best_of", FIELD_REFUSED, "1"},
    {"suffix", FIELD_REFUSED, "\"\""},
};

static size_t chat_text_bytes(const struct glance *glance) { return glance->messages; }

/* ---- messages ---- */

static int refuse(cohort_error *err, int code, size_t i, const char *key, const char *reason) {
    char field[48];
    snprintf(field, sizeof field, "messages[%zu]%s%s", i, *key ? "." : "", key);
    return err_set(err, code, field, "%s %s", field, reason);
}

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

/* Fields of a message beside role and content. */
static int check_beside(const json_t *message, size_t i, cohort_error *err) {
    static const char *const strings[] = {"role", "name", "tool_call_id", "refusal"};
    static const char *const refused[] = {"audio", "function_call"};
    for (size_t k = 0; k < COUNT(strings); k++) {
        const json_t *value = field_present(message, strings[k]);
        if (value && !json_is_string(value)) return refuse(err, COHORT_E_ARGUMENT, i, strings[k], "must be a string");
    }
    for (size_t k = 0; k < COUNT(refused); k++)
        if (field_present(message, refused[k]))
            return refuse(err, COHORT_E_UNSUPPORTED, i, refused[k], "is not supported by this server yet");
    if (json_string_length(json_object_get(message, "refusal")))
        return refuse(err, COHORT_E_UNSUPPORTED, i, "refusal", "is not supported by this server yet");
    const json_t *calls = field_present(message, "tool_calls");
    if (!calls) return 0;
    if (!json_is_array(calls)) return refuse(err, COHORT_E_ARGUMENT, i, "tool_calls", "must be an array");
    return json_array_size(calls) ? refuse(err, COHORT_E_UNSUPPORTED, i, "tool_calls", "is not supported yet") : 0;
}

/* What the rendering would not say as exactly. */
static int check_messages(const json_t *messages, cohort_error *err) {
    int rc = 0;
    if (!json_is_array(messages)) return err_set(err, COHORT_E_ARGUMENT, "messages", "messages must be an array");
    if (json_array_size(messages) == 0) return err_set(err, COHORT_E_ARGUMENT, "messages", "messages is empty");
    for (size_t i = 0; i < json_array_size(messages) && !rc; i++) {
        const json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
        if (!json_is_object(message)) return refuse(err, COHORT_E_ARGUMENT, i, "", "must be an object");
        rc = check_beside(message, i, err);
        for (size_t j = 0; j < json_array_size(content) && !rc; j++)
            rc = check_part(json_array_get(content, j), i, j, err);
    }
    return rc;
}

/* It would only save time. */
static int check_prediction(const json_t *body, cohort_error *err) {
    const json_t *prediction = field_present(body, "prediction");
    if (!prediction) return 0;
    const json_t *type = json_object_get(prediction, "type"), *content = json_object_get(prediction, "content");
    if (!json_is_string(type) || strcmp(json_string_value(type), "content") != 0 ||
        !(json_is_string(content) || json_is_array(content)))
        return err_set(err, COHORT_E_ARGUMENT, "prediction",
                       "prediction must be {\"type\": \"content\", \"content\": a text or text parts}");
    return 0;
}

/* How the prompt ends. */
static int read_ending(struct params *p, const json_t *body, const json_t *messages, cohort_error *err) {
    int open = 1, go_on = 0;
    int rc = field_bool(body, "continue_final_message", &go_on, err);
    if (!rc) rc = field_bool(body, "add_generation_prompt", &open, err);
    p->chat.chat.ending = open;
    if (rc || !go_on) return rc;
    if (field_present(body, "add_generation_prompt") && open)
        return err_set(err, COHORT_E_ARGUMENT, "continue_final_message",
                       "continue_final_message and add_generation_prompt cannot both be true");
    size_t n = json_array_size(messages);
    const char *role = json_string_value(json_object_get(json_array_get(messages, n - 1), "role"));
    if (n < 2 || !role || strcmp(role, "assistant") != 0)
        return err_set(err, COHORT_E_ARGUMENT, "continue_final_message",
                       "continue_final_message needs an assistant's message at the end, and others before it");
    p->chat.chat.ending = COHORT_CHAT_CONTINUE;
    return 0;
}

static int read_chat_logprobs(struct openai *own, const json_t *body, cohort_error *err) {
    int logprobs = 0;
    int64_t top = -1;
    int rc = field_bool(body, "logprobs", &logprobs, err);
    if (!rc) rc = field_integer(body, "top_logprobs", 0, COHORT_TOP_LOGPROBS_MAX, &top, err);
    if (rc) return rc;
    if (top > 0 && !logprobs)
        return err_set(err, COHORT_E_ARGUMENT, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (logprobs) own->logprobs = top < 0 ? 0 : (int)top;
    return 0;
}

static int chat_parse(struct call *call, const json_t *body, cohort_error *err) {
    const json_t *messages = json_object_get(body, "messages");
    int rc = openai_parse(call, body, chat_fields, COUNT(chat_fields), err);
    struct openai *own = openai_of(call);
    if (!rc) rc = read_chat_logprobs(own, body, err);
    if (!rc) rc = check_prediction(body, err);
    if (!rc) rc = check_messages(messages, err);
    if (!rc) rc = read_ending(&call->params, body, messages, err);
    if (rc) return rc;
    rc = params_chat(call, messages, err);
    return rc ? rc : openai_settle(call, err);
}

/* ---- log-probabilities ---- */

static int chat_logprob(struct choice *choice, const cohort_event *event) {
    int rc = choice->logprobs.len ? buf_adds(&choice->logprobs, ",") : 0;
    uint32_t most = (uint32_t)openai_of(choice->call)->logprobs;
    return rc ? rc : openai_add_logprob(choice->call, event, most, &choice->logprobs);
}

static int add_chat_logprobs(struct choice *choice, struct buf *out) {
    if (openai_of(choice->call)->logprobs < 0) return buf_adds(out, "\"logprobs\":null");
    return buf_addf(out, "\"logprobs\":{\"content\":[%s],\"refusal\":null}",
                    choice->logprobs.len ? choice->logprobs.data : "");
}

/* ---- events and replies ---- */

/* `event`: NULL for the opening chunk. */
static int chat_chunk(struct choice *choice, const cohort_event *event, struct buf *out) {
    int finished = event && event->type == COHORT_EVENT_FINISH;
    int rc = openai_add_head(choice->call, out, "chat.completion.chunk");
    if (!rc) rc = buf_addf(out, ",\"choices\":[{\"index\":%u,\"delta\":{", choice->index);
    if (!rc && !event) rc = buf_adds(out, "\"role\":\"assistant\",\"content\":\"\"");
    if (!rc && event && event->text_len) {
        rc = buf_adds(out, "\"content\":");
        if (!rc) rc = buf_json_string(out, event->text, event->text_len);
    }
    if (!rc) rc = buf_adds(out, "},");
    if (!rc) rc = choice->logprobs.len ? add_chat_logprobs(choice, out) : buf_adds(out, "\"logprobs\":null");
    if (!rc)
        rc = finished ? buf_addf(out, ",\"finish_reason\":\"%s\"", openai_finish_name(choice->finish))
                      : buf_adds(out, ",\"finish_reason\":null");
    if (!rc && event) rc = openai_add_ids(choice, event, out);
    if (!rc) rc = buf_adds(out, "}]");
    if (!rc && !event) rc = openai_add_prompt_ids(choice, out);
    if (!rc) rc = openai_add_usage_so_far(choice, event, out);
    return rc ? rc : buf_adds(out, "}\n");
}

static int chat_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    const struct openai *own = openai_of(choice->call);
    if (!event) return chat_chunk(choice, NULL, out);
    if (event->type == COHORT_EVENT_PROMPT) return 0;
    int rc = 0;
    if (event->type == COHORT_EVENT_TOKEN && own->logprobs >= 0) rc = chat_logprob(choice, event);
    if (!rc && (event->type == COHORT_EVENT_FINISH || event->text_len || own->logprobs >= 0 || own->ids))
        rc = chat_chunk(choice, event, out);
    buf_clear(&choice->logprobs);
    return rc;
}

static int collect(struct choice *choice, const cohort_event *event) {
    if (event->type == COHORT_EVENT_PROMPT) return openai_prompt_logprob(choice, event);
    int rc = openai_count(choice, event);
    if (!rc && event->type == COHORT_EVENT_TOKEN && openai_of(choice->call)->logprobs >= 0)
        rc = chat_logprob(choice, event);
    if (!rc) rc = buf_add(&choice->text, event->text, event->text_len);
    return rc;
}

static int chat_collect(struct choice *choice, const cohort_event *event) {
    return openai_collect(choice, event, collect);
}

static int chat_close(struct call *call, struct buf *out) {
    return openai_usage_event(call, out, "chat.completion.chunk");
}

static int whole_choice(struct choice *choice, struct buf *out) {
    int rc = buf_addf(out, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", choice->index ? "," : "",
                      choice->index);
    if (!rc) rc = buf_json_string(out, choice->text.data ? choice->text.data : "", choice->text.len);
    if (!rc) rc = buf_adds(out, ",\"refusal\":null},");
    if (!rc) rc = add_chat_logprobs(choice, out);
    if (!rc) rc = buf_addf(out, ",\"finish_reason\":\"%s\"", openai_finish_name(choice->finish));
    if (!rc) rc = openai_add_ids(choice, NULL, out);
    return rc ? rc : buf_adds(out, "}");
}

static int chat_whole(struct call *call, struct buf *out) {
    int rc = openai_add_head(call, out, "chat.completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    for (size_t i = 0; i < call->choices_n && !rc; i++) rc = whole_choice(&call->choices[i], out);
    if (!rc) rc = buf_adds(out, "]");
    /* of the one prompt: every choice was told the same */
    if (!rc) rc = openai_add_prompt_logprobs(&call->choices[0], out);
    if (!rc) rc = openai_add_prompt_ids(&call->choices[0], out);
    if (!rc) rc = buf_adds(out, ",");
    if (!rc) rc = openai_add_usage(call, out);
    return rc ? rc : buf_adds(out, "}");
}

const struct dialect dialect_chat = {
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .input = "messages",
    .errors = &error_shape_openai,
    .done = "[DONE]",
    .text_bytes = chat_text_bytes,
    .parse = chat_parse,
    .prepare = openai_prepare,
    .piece = chat_piece,
    .collect = chat_collect,
    .close = chat_close,
    .whole = chat_whole,
    .forget = openai_forget,
};
