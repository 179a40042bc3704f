/* OpenAI's two generating endpoints: /v1/completions and /v1/chat/completions. What is read from a body, and how tokens
 * and finishes are written, streamed and whole. Shapes follow the published API description. Loop thread. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/internal.h"
#include "server/params.h"

/* ---- parts that both share ---- */

static const char *finish_name(cohort_finish finish) {
    switch (finish) {
    case COHORT_FINISH_STOP:
        return "stop";
    case COHORT_FINISH_LENGTH:
        return "length";
    default:
        return "error";
    }
}

static int add_usage(const struct call *call, struct buf *out) {
    uint64_t prompt = 0, cached = 0, generated = 0;
    for (size_t i = 0; i < call->choices_n; i++) {
        const cohort_stats *stats = &call->choices[i].stats;
        /* Choices of one prompt share it: it counts once. */
        if (i % call->params.n == 0) {
            prompt += stats->prompt_tokens;
            cached += stats->cached_tokens;
        }
        generated += stats->generated_tokens;
    }
    return buf_addf(out,
                    "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
                    "\"prompt_tokens_details\":{\"cached_tokens\":%llu}}",
                    (unsigned long long)prompt, (unsigned long long)generated, (unsigned long long)(prompt + generated),
                    (unsigned long long)cached);
}

static int add_head(const struct call *call, struct buf *out, const char *object) {
    int rc = buf_addf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", call->id, object,
                      (long long)call->created);
    const char *name = call->model_name;
    if (!rc) rc = buf_json_string(out, name, strlen(name));
    cohort_model_info info;
    cohort_model_get_info(call->server->model, &info);
    if (!rc) rc = buf_addf(out, ",\"system_fingerprint\":\"cohort-cpu-numerics-%d\"", info.numerics_version);
    return rc;
}

/* JSON has no infinities; a probability of zero is written as OpenAI writes it. */
static double finite_logprob(float logprob) { return isfinite(logprob) ? (double)logprob : -9999.0; }

static void piece_of(const struct call *call, int32_t id, const char **bytes, size_t *len) {
    if (cohort_token_piece(call->server->model, id, bytes, len) != 0) {
        *bytes = "";
        *len = 0;
    }
}

static uint32_t characters(const char *text, size_t len) {
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* ---- /v1/completions ---- */

static const struct known_field common_fields[] = {
    {"model", FIELD_READ, NULL},
    {"max_tokens", FIELD_READ, NULL},
    {"max_completion_tokens", FIELD_READ, NULL},
    {"temperature", FIELD_READ, NULL},
    {"top_p", FIELD_READ, NULL},
    {"top_k", FIELD_READ, NULL},
    {"min_p", FIELD_READ, NULL},
    {"seed", FIELD_READ, NULL},
    {"stop", FIELD_READ, NULL},
    {"stop_token_ids", FIELD_READ, NULL},
    {"stream", FIELD_READ, NULL},
    {"stream_options", FIELD_READ, NULL},
    {"n", FIELD_READ, NULL},
    {"logprobs", FIELD_READ, NULL},
    {"ignore_eos", FIELD_READ, NULL},
    {"timeout_ms", FIELD_READ, NULL},
    {"t_max_predict_ms", FIELD_READ, NULL},
    {"priority", FIELD_READ, NULL},
    {"store", FIELD_READ, NULL},
    {"cache_prompt", FIELD_READ, NULL},
    {"cache_salt", FIELD_READ, NULL},
    {"cache_session_id", FIELD_READ, NULL},
    {"id_slot", FIELD_READ, NULL},
    {"prompt_cache_key", FIELD_NEUTRAL, NULL},
    {"user", FIELD_NEUTRAL, NULL},
    {"logit_bias", FIELD_REFUSED, "{}"},
    {"frequency_penalty", FIELD_REFUSED, "0"},
    {"presence_penalty", FIELD_REFUSED, "0"},
    {"repetition_penalty", FIELD_REFUSED, "1"},
};

static const struct known_field completion_fields[] = {
    {"prompt", FIELD_READ, NULL},     {"snapshot_at", FIELD_READ, NULL}, {"best_of", FIELD_REFUSED, "1"},
    {"echo", FIELD_REFUSED, "false"}, {"suffix", FIELD_REFUSED, "\"\""},
};

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

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int check_known(struct call *call, const json_t *body, const struct known_field *fields, size_t n,
                       cohort_error *err) {
    char unknown[512];
    const struct known_list lists[] = {{common_fields, COUNT(common_fields)}, {fields, n}};
    int rc = params_known(body, lists, COUNT(lists), unknown, sizeof unknown, err);
    if (unknown[0] && call->sink.http)
        evhttp_add_header(evhttp_request_get_output_headers(call->sink.http), "X-Cohort-Unknown-Fields", unknown);
    return rc;
}

static int add_prompt(struct call *call, const json_t *value, const char *field, cohort_error *err) {
    struct prompt *prompt = &call->prompts[call->prompts_n];
    if (json_is_string(value)) {
        prompt->text = json_string_value(value);
        prompt->text_len = json_string_length(value);
    } else if (json_is_array(value)) {
        if (json_array_size(value) == 0) return err_set(err, COHORT_E_ARGUMENT, "prompt", "%s is empty", field);
        int rc = params_ids(call, value, field, &prompt->ids, &prompt->ids_n, err);
        if (rc) return rc;
    } else {
        return err_set(err, COHORT_E_ARGUMENT, "prompt", "%s must be a string or an array of token ids", field);
    }
    call->prompts_n++;
    return 0;
}

/* A string, token ids, or an array of either. */
static int read_prompts(struct call *call, const json_t *body, cohort_error *err) {
    const json_t *prompt = json_object_get(body, "prompt");
    if (!prompt || json_is_null(prompt)) return err_set(err, COHORT_E_ARGUMENT, "prompt", "prompt is missing");
    const json_t *first = json_array_get(prompt, 0);
    int several = first && !json_is_integer(first);
    size_t n = several ? json_array_size(prompt) : 1;
    if (n * call->params.n > SERVER_CHOICES_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "prompt", "%zu prompts with n %u give more than %d choices", n,
                       call->params.n, SERVER_CHOICES_MAX);
    call->prompts = mem_zalloc(n, sizeof *call->prompts);
    if (!call->prompts) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu prompts", n);
    if (!several) return add_prompt(call, prompt, "prompt", err);
    for (size_t i = 0; i < n; i++) {
        char field[32];
        snprintf(field, sizeof field, "prompt[%zu]", i);
        int rc = add_prompt(call, json_array_get(prompt, i), field, err);
        if (rc) return rc;
    }
    return 0;
}

static size_t completions_text_bytes(const struct glance *glance) { return glance->prompt; }

static int completions_parse(struct call *call, const json_t *body, cohort_error *err) {
    int rc = check_known(call, body, completion_fields, COUNT(completion_fields), err);
    if (!rc) rc = params_common(call, body, err);
    if (!rc) rc = cache_read_snapshots(body, &call->params.cache, err);
    if (rc) return rc;
    if (call->params.max_tokens == UINT32_MAX) call->params.max_tokens = 16; /* the API's default */
    int64_t logprobs = -1;
    rc = field_integer(body, "logprobs", 0, COHORT_TOP_LOGPROBS_MAX, &logprobs, err);
    if (rc) return rc;
    call->params.logprobs = (int)logprobs;
    return read_prompts(call, body, err);
}

/* A token's text as a JSON string; bytes that are no whole characters are spelled as OpenAI spells them, so that two
 * such tokens have different names: "bytes:\\xe2\\x80". */
static int add_legacy_token(const struct call *call, int32_t id, struct buf *out) {
    const char *bytes;
    size_t len;
    piece_of(call, id, &bytes, &len);
    if (utf8_valid(bytes, len)) return buf_json_string(out, bytes, len);
    int rc = buf_adds(out, "\"bytes:");
    for (size_t i = 0; i < len && !rc; i++) rc = buf_addf(out, "\\\\x%02x", (unsigned)(unsigned char)bytes[i]);
    return rc ? rc : buf_adds(out, "\"");
}

/* One token into the four columns of the legacy log-probabilities. */
static int legacy_columns(struct choice *choice, const cohort_event *event) {
    const char *comma = choice->tokens.len ? "," : "";
    int rc = buf_adds(&choice->tokens, comma);
    if (!rc) rc = add_legacy_token(choice->call, event->token, &choice->tokens);
    if (!rc) rc = buf_addf(&choice->logprobs, "%s%.9g", comma, finite_logprob(event->logprob));
    if (!rc) rc = buf_addf(&choice->offsets, "%s%u", comma, choice->text_offset);
    if (!rc) rc = buf_addf(&choice->top_logprobs, "%s{", comma);
    for (uint32_t i = 0; i < event->top_n && !rc; i++) {
        if (i) rc = buf_adds(&choice->top_logprobs, ",");
        if (!rc) rc = add_legacy_token(choice->call, event->top[i].id, &choice->top_logprobs);
        if (!rc) rc = buf_addf(&choice->top_logprobs, ":%.9g", finite_logprob(event->top[i].logprob));
    }
    if (!rc) rc = buf_adds(&choice->top_logprobs, "}");
    return rc;
}

static int add_legacy(struct choice *choice, struct buf *out) {
    if (choice->call->params.logprobs < 0 || !choice->tokens.len) return buf_adds(out, "\"logprobs\":null");
    int rc = buf_addf(out, "\"logprobs\":{\"tokens\":[%s],\"token_logprobs\":[%s],", choice->tokens.data,
                      choice->logprobs.data);
    if (!rc)
        rc = choice->call->params.logprobs > 0 ? buf_addf(out, "\"top_logprobs\":[%s],", choice->top_logprobs.data)
                                               : buf_adds(out, "\"top_logprobs\":null,");
    if (!rc) rc = buf_addf(out, "\"text_offset\":[%s]}", choice->offsets.data);
    return rc;
}

static void clear_columns(struct choice *choice) {
    buf_clear(&choice->tokens);
    buf_clear(&choice->logprobs);
    buf_clear(&choice->offsets);
    buf_clear(&choice->top_logprobs);
}

static int completion_choice(struct choice *choice, const char *text, size_t len, int finished, struct buf *out) {
    int rc = buf_adds(out, "{\"text\":");
    if (!rc) rc = buf_json_string(out, text, len);
    if (!rc) rc = buf_addf(out, ",\"index\":%u,", choice->index);
    if (!rc) rc = add_legacy(choice, out);
    if (!rc)
        rc = finished ? buf_addf(out, ",\"finish_reason\":\"%s\"}", finish_name(choice->finish))
                      : buf_adds(out, ",\"finish_reason\":null}");
    return rc;
}

static int completion_chunk(struct choice *choice, const char *text, size_t len, int finished, struct buf *out) {
    int rc = add_head(choice->call, out, "text_completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    if (!rc) rc = completion_choice(choice, text, len, finished, out);
    if (!rc) rc = buf_adds(out, "]");
    if (!rc && choice->call->params.include_usage) rc = buf_adds(out, ",\"usage\":null");
    if (!rc) rc = buf_adds(out, "}");
    return rc;
}

static int completions_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    if (!event) return 0;
    int logprobs = choice->call->params.logprobs >= 0, rc = 0;
    int finished = event->type == COHORT_EVENT_FINISH;
    if (event->type == COHORT_EVENT_TOKEN && logprobs) rc = legacy_columns(choice, event);
    if (!rc && (finished || event->text_len || logprobs))
        rc = completion_chunk(choice, event->text, event->text_len, finished, out);
    choice->text_offset += characters(event->text, event->text_len);
    clear_columns(choice);
    return rc;
}

static int completions_collect(struct choice *choice, const cohort_event *event) {
    int rc = 0;
    if (event->type == COHORT_EVENT_TOKEN && choice->call->params.logprobs >= 0) rc = legacy_columns(choice, event);
    choice->text_offset += characters(event->text, event->text_len);
    if (!rc) rc = buf_add(&choice->text, event->text, event->text_len);
    return rc;
}

static int usage_piece(struct call *call, struct buf *out, const char *object) {
    int rc = add_head(call, out, object);
    if (!rc) rc = buf_adds(out, ",\"choices\":[],");
    if (!rc) rc = add_usage(call, out);
    if (!rc) rc = buf_adds(out, "}");
    return rc;
}

static int completions_usage(struct call *call, struct buf *out) { return usage_piece(call, out, "text_completion"); }

static int completions_whole(struct call *call, struct buf *out) {
    int rc = add_head(call, out, "text_completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    for (size_t i = 0; i < call->choices_n && !rc; i++) {
        struct choice *choice = &call->choices[i];
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = completion_choice(choice, choice->text.data ? choice->text.data : "", choice->text.len, 1, out);
    }
    if (!rc) rc = buf_adds(out, "],");
    if (!rc) rc = add_usage(call, out);
    if (!rc) rc = buf_adds(out, "}");
    return rc;
}

const struct dialect dialect_completions = {
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .input = "prompt",
    .text_bytes = completions_text_bytes,
    .parse = completions_parse,
    .piece = completions_piece,
    .collect = completions_collect,
    .usage_piece = completions_usage,
    .whole = completions_whole,
};

/* ---- /v1/chat/completions ---- */

/* Without the white space around it, which templates may drop. */
static size_t trimmed_bytes(const json_t *text) {
    const char *s = json_string_value(text);
    size_t begin = 0, end = json_string_length(text);
    while (begin < end && (s[begin] == ' ' || (s[begin] >= '\t' && s[begin] <= '\r'))) begin++;
    while (end > begin && (s[end - 1] == ' ' || (s[end - 1] >= '\t' && s[end - 1] <= '\r'))) end--;
    return end - begin;
}

/* What is no message is looked at later. */
static size_t messages_bytes(const json_t *messages) {
    size_t sum = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        sum += trimmed_bytes(content);
        for (size_t j = 0; j < json_array_size(content); j++)
            sum += trimmed_bytes(json_object_get(json_array_get(content, j), "text"));
    }
    return sum;
}

static size_t chat_text_bytes(const struct glance *glance) { return glance->messages; }

static int chat_parse(struct call *call, const json_t *body, cohort_error *err) {
    int rc = check_known(call, body, chat_fields, COUNT(chat_fields), err);
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

static int add_token(const struct call *call, int32_t id, float logprob, struct buf *out) {
    const char *bytes;
    size_t len;
    piece_of(call, id, &bytes, &len);
    int rc = buf_adds(out, "{\"token\":");
    if (!rc) rc = buf_json_string(out, bytes, len);
    if (!rc) rc = buf_addf(out, ",\"logprob\":%.9g,\"bytes\":[", finite_logprob(logprob));
    for (size_t i = 0; i < len && !rc; i++) rc = buf_addf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes[i]);
    if (!rc) rc = buf_adds(out, "]");
    return rc;
}

static int chat_logprob(struct choice *choice, const cohort_event *event) {
    struct buf *out = &choice->logprobs;
    int rc = out->len ? buf_adds(out, ",") : 0;
    if (!rc) rc = add_token(choice->call, event->token, event->logprob, out);
    if (!rc) rc = buf_adds(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < event->top_n && !rc; i++) {
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = add_token(choice->call, event->top[i].id, event->top[i].logprob, out);
        if (!rc) rc = buf_adds(out, "}");
    }
    if (!rc) rc = buf_adds(out, "]}");
    return rc;
}

static int add_chat_logprobs(struct choice *choice, struct buf *out) {
    if (choice->call->params.logprobs < 0) return buf_adds(out, "\"logprobs\":null");
    return buf_addf(out, "\"logprobs\":{\"content\":[%s],\"refusal\":null}",
                    choice->logprobs.len ? choice->logprobs.data : "");
}

/* `role`: the opening chunk. */
static int chat_chunk(struct choice *choice, int role, const char *text, size_t len, int finished, struct buf *out) {
    int rc = add_head(choice->call, out, "chat.completion.chunk");
    if (!rc) rc = buf_addf(out, ",\"choices\":[{\"index\":%u,\"delta\":{", choice->index);
    if (!rc && role) rc = buf_adds(out, "\"role\":\"assistant\",\"content\":\"\"");
    if (!rc && !role && len) {
        rc = buf_adds(out, "\"content\":");
        if (!rc) rc = buf_json_string(out, text, len);
    }
    if (!rc) rc = buf_adds(out, "},");
    if (!rc) rc = choice->logprobs.len ? add_chat_logprobs(choice, out) : buf_adds(out, "\"logprobs\":null");
    if (!rc)
        rc = finished ? buf_addf(out, ",\"finish_reason\":\"%s\"}]", finish_name(choice->finish))
                      : buf_adds(out, ",\"finish_reason\":null}]");
    if (!rc && choice->call->params.include_usage) rc = buf_adds(out, ",\"usage\":null");
    if (!rc) rc = buf_adds(out, "}");
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

static int chat_usage(struct call *call, struct buf *out) { return usage_piece(call, out, "chat.completion.chunk"); }

static int chat_whole(struct call *call, struct buf *out) {
    int rc = add_head(call, out, "chat.completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    for (size_t i = 0; i < call->choices_n && !rc; i++) {
        struct choice *choice = &call->choices[i];
        rc = buf_addf(out, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", i ? "," : "",
                      choice->index);
        if (!rc) rc = buf_json_string(out, choice->text.data ? choice->text.data : "", choice->text.len);
        if (!rc) rc = buf_adds(out, ",\"refusal\":null},");
        if (!rc) rc = add_chat_logprobs(choice, out);
        if (!rc) rc = buf_addf(out, ",\"finish_reason\":\"%s\"}", finish_name(choice->finish));
    }
    if (!rc) rc = buf_adds(out, "],");
    if (!rc) rc = add_usage(call, out);
    if (!rc) rc = buf_adds(out, "}");
    return rc;
}

const struct dialect dialect_chat = {
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .input = "messages",
    .text_bytes = chat_text_bytes,
    .parse = chat_parse,
    .piece = chat_piece,
    .collect = chat_collect,
    .usage_piece = chat_usage,
    .whole = chat_whole,
};
