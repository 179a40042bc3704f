/* OpenAI's /v1/chat/completions: what is read from a body. How answers are written: chat_reply.c. Shapes follow the
 * published API description. Loop thread.
 *
 * max_completion_tokens, or else max_tokens: at least 1; without either as many as there is room for. Contents are
 * strings or text parts; an assistant's may be null. Of `name` and `tool_call_id` the model is told what its template
 * has a place for. `prediction`, which would only save time, is left aside. add_generation_prompt: false ends the
 * prompt behind the last turn; continue_final_message: true leaves the last turn, an assistant's, open, and the answer
 * goes on with it.
 *
 * tools are functions; every call's arguments follow the tool's schema (a tool that does not say "strict": true is let
 * off if its schema has something that cannot be held). `functions` and `function_call` are read and answered in their
 * own shape. What the text of an answer must follow is read by all its names (forms.c), how much may be reasoned in
 * thinking.c. reasoning_format "none" tells the answer as it is, markers and all, and cannot be with tools;
 * include_reasoning: false leaves what was reasoned out of the reply. */
#include <stdio.h>
#include <string.h>

#include "api/chat.h"
#include "api/chat_fields.h"
#include "api/chat_messages.h"
#include "api/forms.h"
#include "api/params.h"
#include "api/routes.h"
#include "api/thinking.h"
#include "api/tools.h"
#include "base/err.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct known_field chat_fields[] = {
    {"messages", FIELD_READ, NULL},
    {"top_logprobs", FIELD_READ, NULL},
    {"add_generation_prompt", FIELD_READ, NULL},
    {"continue_final_message", FIELD_READ, NULL},
    {"prediction", FIELD_READ, NULL},
    {"parallel_tool_calls", FIELD_READ, NULL},
    {"tools", FIELD_READ, NULL},
    {"tool_choice", FIELD_READ, NULL},
    {"functions", FIELD_READ, NULL},
    {"function_call", FIELD_READ, NULL},
    {"reasoning_effort", FIELD_READ, NULL},
    {"thinking_token_budget", FIELD_READ, NULL},
    {"thinking_budget_tokens", FIELD_READ, NULL},
    {"reasoning_budget_tokens", FIELD_READ, NULL},
    {"reasoning_format", FIELD_READ, NULL},
    {"include_reasoning", FIELD_READ, NULL},
    {"chat_template_kwargs", FIELD_READ, NULL},
    {"parse_tool_calls", FIELD_REFUSED, "true"},
    {"verbosity", FIELD_REFUSED, "\"medium\""},
    {"modalities", FIELD_REFUSED, "[\"text\"]"},
    {"audio", FIELD_REFUSED, NULL},
    {"moderation", FIELD_REFUSED, NULL},
    {"web_search_options", FIELD_REFUSED, NULL},
    {"chat_template", FIELD_READ, NULL},
    {"documents", FIELD_REFUSED, "[]"},
    {"add_special_tokens", FIELD_REFUSED, "false"},
    {"echo", FIELD_REFUSED, "false"},
    {"best_of", FIELD_REFUSED, "1"},
    {"suffix", FIELD_REFUSED, "\"\""},
};

static size_t chat_text_bytes(const struct glance *glance) { return glance->messages; }

/* ---- the body ---- */

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

/* ---- tools ---- */

/* {"name",...} -> {"type":"function","function":{...}} */
static int renew_functions(const json_t *functions, json_t **out, cohort_error *err) {
    *out = json_array();
    int rc = *out ? 0 : -1;
    if (!json_is_array(functions))
        return err_set(err, COHORT_E_ARGUMENT, "functions", "functions must be an array, not %s",
                       field_type(functions));
    for (size_t i = 0; i < json_array_size(functions) && !rc; i++)
        rc = json_array_append_new(
            *out, json_pack("{s:s, s:O}", "type", "function", "function", json_array_get(functions, i)));
    return rc ? err_set(err, COHORT_E_MEMORY, NULL, "no memory for the functions") : 0;
}

static int read_function_call(cohort_chat *chat, const json_t *choice, const json_t *tools, cohort_error *err) {
    const json_t *name = json_object_get(choice, "name");
    const char *word = json_string_value(choice);
    if (!choice || (word && strcmp(word, "auto") == 0)) return 0;
    if (word && strcmp(word, "none") == 0) {
        chat->tool_choice = COHORT_TOOLS_NONE;
        return 0;
    }
    if (!json_is_string(name) || !tools_have(tools, name))
        return err_set(err, COHORT_E_ARGUMENT, "function_call",
                       "function_call must be \"none\", \"auto\" or {\"name\": the name of one of the functions}");
    chat->tool_choice = COHORT_TOOLS_NAMED;
    chat->tool_name = json_string_value(name);
    return 0;
}

/* `functions`: one call at most, and the old words for it. */
static int read_functions(struct call *call, const json_t *functions, const json_t *body, cohort_error *err) {
    struct chat_params *c = &call->params.chat;
    json_t *tools = NULL;
    if (field_present(body, "tools") || field_present(body, "tool_choice"))
        return err_set(err, COHORT_E_ARGUMENT, "functions", "functions and tools cannot be used together");
    openai_of(call)->legacy = 1;
    c->chat.parallel_calls = 0;
    int rc = renew_functions(functions, &tools, err);
    if (!rc) rc = tools_read(c, tools, err);
    if (!rc) rc = read_function_call(&c->chat, field_present(body, "function_call"), tools, err);
    json_decref(tools); /* the name is in the body, too */
    return rc;
}

static int read_tools(struct call *call, const json_t *body, cohort_error *err) {
    struct chat_params *c = &call->params.chat;
    const json_t *functions = field_present(body, "functions"), *tools = field_present(body, "tools");
    int rc = field_bool(body, "parallel_tool_calls", &c->chat.parallel_calls, err);
    if (!rc && functions) return read_functions(call, functions, body, err);
    if (!rc) rc = read_function_call(&c->chat, field_present(body, "function_call"), NULL, err);
    if (!rc) rc = tools_read(c, tools, err);
    return rc ? rc : tools_read_choice(c, field_present(body, "tool_choice"), tools, err);
}

/* Errors about functions name them as the body does. */
static void chat_name_field(const struct call *call, cohort_error *error) {
    char rest[sizeof error->field];
    if (!call->own || !openai_of(call)->legacy || strncmp(error->field, "tools", 5) != 0) return;
    const char *end = error->field + 5, *behind = strstr(end, ".function");
    snprintf(rest, sizeof rest, "%.*s%s", behind ? (int)(behind - end) : (int)strlen(end), end,
             behind ? behind + strlen(".function") : "");
    snprintf(error->field, sizeof error->field, "functions%.38s", rest);
}

/* ---- reasoning ---- */

static int read_reasoning(struct call *call, const json_t *body, cohort_error *err) {
    const char *format = field_word(body, "reasoning_format");
    int told = 1, rc = field_bool(body, "include_reasoning", &told, err);
    openai_of(call)->hide_reasoning = !told;
    if (!rc && field_present(body, "reasoning_format")) {
        if (!format || (strcmp(format, "none") != 0 && strcmp(format, "auto") != 0 && strcmp(format, "deepseek") != 0))
            return err_set(err, COHORT_E_UNSUPPORTED, "reasoning_format",
                           "reasoning_format must be \"none\", \"auto\" or \"deepseek\"");
        call->params.raw = strcmp(format, "none") == 0;
        if (call->params.raw && call->params.chat.chat.tools)
            return err_set(err, COHORT_E_UNSUPPORTED, "reasoning_format",
                           "reasoning_format \"none\" cannot be used with tools: their calls would be text");
    }
    return rc ? rc : thinking_read(call, body, err);
}

static int read_chat(struct call *call, const json_t *body, cohort_error *err) {
    json_t *messages = NULL;
    int rc = chat_messages(json_object_get(body, "messages"), &messages, err);
    if (!rc) rc = chat_fields_ending(&call->params.chat.chat, body, messages, err);
    if (!rc) rc = params_chat(call, messages, err);
    json_decref(messages);
    if (!rc) rc = chat_fields_template(&call->params.chat, server_get_options(call->server), body, err);
    if (!rc) rc = read_tools(call, body, err);
    openai_of(call)->tools = call->params.chat.chat.tools != NULL;
    if (!rc) rc = forms_read(call, body, 1, err);
    return rc ? rc : read_reasoning(call, body, err);
}

static int chat_parse(struct call *call, const json_t *body, cohort_error *err) {
    int rc = openai_parse(call, body, chat_fields, COUNT(chat_fields), err);
    if (!rc) rc = read_chat_logprobs(openai_of(call), body, err);
    if (!rc) rc = check_prediction(body, err);
    if (!rc) rc = read_chat(call, body, err);
    if (!rc) rc = openai_settle(call, err);
    if (rc) chat_name_field(call, err);
    return rc;
}

const struct dialect dialect_chat = {
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .input = "messages",
    .name_field = chat_name_field,
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
