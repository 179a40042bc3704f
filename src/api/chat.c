/* OpenAI's /v1/chat/completions: what is read from a body, and how tokens and finishes are written, streamed and whole.
 * Shapes follow the published API description. Loop thread. */
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
    {"metadata", FIELD_NEUTRAL, NULL},
    {"safety_identifier", FIELD_NEUTRAL, NULL},
    {"parallel_tool_calls", FIELD_NEUTRAL, NULL},
    {"service_tier", FIELD_REFUSED, "\"auto\""},
    {"tools", FIELD_REFUSED, "[]"},
    {"tool_choice", FIELD_REFUSED, "\"none\""},
    {"functions", FIELD_REFUSED, "[]"},
    {"function_call", FIELD_REFUSED, "\"none\""},
    {"response_format", FIELD_REFUSED, "{\"type\":\"text\"}"},
    {"reasoning_effort", FIELD_REFUSED, "\"none\""},
    {"modalities", FIELD_REFUSED, "[\"text\"]"},
    {"audio", FIELD_REFUSED, NULL},
    {"prediction", FIELD_REFUSED, NULL},
    {"web_search_options", FIELD_REFUSED, NULL},
};

static size_t messages_bytes(const json_t *messages) {
    size_t sum = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) sum += params_message_bytes(json_array_get(messages, i));
    return sum;
}

static size_t chat_text_bytes(const struct glance *glance) { return glance->messages; }

static int chat_parse(struct call *call, const json_t *body, cohort_error *err) {
    int rc = openai_check_known(call, body, chat_fields, COUNT(chat_fields), err);
    if (!rc) rc = params_common(call, body, err);
    if (rc) return rc;
    int logprobs = 0;
    int64_t top = -1;
    rc = field_bool(body, "logprobs", &logprobs, err);
    if (!rc) rc = field_integer(body, "top_logprobs", 0, COHORT_TOP_LOGPROBS_MAX, &top, err);
    if (rc) return rc;
    if (top > 0 && !logprobs)
        return err_set(err, COHORT_E_ARGUMENT, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (logprobs) call->params.logprobs = top < 0 ? 0 : (int)top;

    const json_t *messages = json_object_get(body, "messages");
    if (!json_is_array(messages)) return err_set(err, COHORT_E_ARGUMENT, "messages", "messages must be an array");
    if (json_array_size(messages) == 0) return err_set(err, COHORT_E_ARGUMENT, "messages", "messages is empty");
    call->params.messages = json_dumps(messages, JSON_COMPACT);
    call->prompts = mem_zalloc(1, sizeof *call->prompts);
    if (!call->params.messages || !call->prompts)
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the messages");
    call->prompts_n = 1;
    call->prompts[0].text_len = messages_bytes(messages);
    return 0;
}

static int chat_logprob(struct choice *choice, const cohort_event *event) {
    int rc = choice->logprobs.len ? buf_adds(&choice->logprobs, ",") : 0;
    return rc ? rc : openai_add_logprob(choice->call, event, &choice->logprobs);
}

static int add_chat_logprobs(struct choice *choice, struct buf *out) {
    if (choice->call->params.logprobs < 0) return buf_adds(out, "\"logprobs\":null");
    return buf_addf(out, "\"logprobs\":{\"content\":[%s],\"refusal\":null}",
                    choice->logprobs.len ? choice->logprobs.data : "");
}

/* `role`: the opening chunk. */
static int chat_chunk(struct choice *choice, int role, const char *text, size_t len, int finished, struct buf *out) {
    int rc = openai_add_head(choice->call, out, "chat.completion.chunk");
    if (!rc) rc = buf_addf(out, ",\"choices\":[{\"index\":%u,\"delta\":{", choice->index);
    if (!rc && role) rc = buf_adds(out, "\"role\":\"assistant\",\"content\":\"\"");
    if (!rc && !role && len) {
        rc = buf_adds(out, "\"content\":");
        if (!rc) rc = buf_json_string(out, text, len);
    }
    if (!rc) rc = buf_adds(out, "},");
    if (!rc) rc = choice->logprobs.len ? add_chat_logprobs(choice, out) : buf_adds(out, "\"logprobs\":null");
    if (!rc)
        rc = finished ? buf_addf(out, ",\"finish_reason\":\"%s\"}]", openai_finish_name(choice->finish))
                      : buf_adds(out, ",\"finish_reason\":null}]");
    if (!rc && choice->call->params.include_usage) rc = buf_adds(out, ",\"usage\":null");
    if (!rc) rc = buf_adds(out, "}\n");
    return rc;
}

static int chat_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    if (!event) return chat_chunk(choice, 1, "", 0, 0, out);
    int rc = 0, logprobs = choice->call->params.logprobs >= 0;
    int finished = event->type == COHORT_EVENT_FINISH;
    if (event->type == COHORT_EVENT_TOKEN && logprobs) rc = chat_logprob(choice, event);
    if (!rc && (finished || event->text_len || logprobs))
        rc = chat_chunk(choice, 0, event->text, event->text_len, finished, out);
    buf_clear(&choice->logprobs);
    return rc;
}

static int chat_collect(struct choice *choice, const cohort_event *event) {
    int rc = 0;
    if (event->type == COHORT_EVENT_TOKEN && choice->call->params.logprobs >= 0) rc = chat_logprob(choice, event);
    if (!rc) rc = buf_add(&choice->text, event->text, event->text_len);
    return rc;
}

static int chat_close(struct call *call, struct buf *out) {
    return openai_usage_event(call, out, "chat.completion.chunk");
}

static int chat_whole(struct call *call, struct buf *out) {
    int rc = openai_add_head(call, out, "chat.completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    for (size_t i = 0; i < call->choices_n && !rc; i++) {
        struct choice *choice = &call->choices[i];
        rc = buf_addf(out, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", i ? "," : "",
                      choice->index);
        if (!rc) rc = buf_json_string(out, choice->text.data ? choice->text.data : "", choice->text.len);
        if (!rc) rc = buf_adds(out, ",\"refusal\":null},");
        if (!rc) rc = add_chat_logprobs(choice, out);
        if (!rc) rc = buf_addf(out, ",\"finish_reason\":\"%s\"}", openai_finish_name(choice->finish));
    }
    if (!rc) rc = buf_adds(out, "],");
    if (!rc) rc = openai_add_usage(call, out);
    if (!rc) rc = buf_adds(out, "}");
    return rc;
}

const struct dialect dialect_chat = {
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .input = "messages",
    .errors = &error_shape_openai,
    .done = "[DONE]",
    .text_bytes = chat_text_bytes,
    .parse = chat_parse,
    .piece = chat_piece,
    .collect = chat_collect,
    .close = chat_close,
    .whole = chat_whole,
};
