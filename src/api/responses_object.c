/* The object of /v1/responses (responses.h). Pure: it follows from the request and what was said, so that a call that
 * is made again after a crash tells it with the same bytes; hence completed_at is left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/responses.h"
#include "server/fields.h"

/* As short as it can be said. */
static int add_real(struct buf *out, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.15g", value);
    if (strtod(text, NULL) != value) snprintf(text, sizeof text, "%.17g", value);
    return buf_adds(out, text);
}

static int add_json(struct buf *out, const json_t *value) {
    if (json_is_real(value)) return add_real(out, json_real_value(value));
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    int rc = text ? buf_adds(out, text) : COHORT_E_MEMORY;
    free(text);
    return rc;
}

/* A member with the value that the request gave it, or `other`. */
static int add_member(struct buf *out, const json_t *body, const char *name, const char *other) {
    const json_t *value = field_present(body, name);
    int rc = buf_addf(out, ",\"%s\":", name);
    if (!rc) rc = value ? add_json(out, value) : buf_adds(out, other);
    return rc;
}

int responses_echo(struct buf *out, const json_t *body, int stored) {
    static const struct {
        const char *name, *other;
    } members[] = {{"background", "false"},
                   {"instructions", "null"},
                   {"max_output_tokens", "null"},
                   {"max_tool_calls", "null"},
                   {"metadata", "{}"},
                   {"parallel_tool_calls", "true"},
                   {"previous_response_id", "null"},
                   {"prompt_cache_key", "null"},
                   {"safety_identifier", "null"},
                   {"temperature", "1.0"},
                   {"tool_choice", "\"auto\""},
                   {"top_logprobs", "0"},
                   {"top_p", "1.0"},
                   {"user", "null"}};
    int rc = buf_addf(out, ",\"store\":%s,\"service_tier\":\"default\",\"truncation\":\"disabled\",\"tools\":[]",
                      stored ? "true" : "false");
    if (!rc)
        rc = buf_adds(out,
                      ",\"reasoning\":{\"effort\":null,\"summary\":null},\"text\":{\"format\":{\"type\":\"text\"}}");
    for (size_t i = 0; i < sizeof members / sizeof members[0] && !rc; i++)
        rc = add_member(out, body, members[i].name, members[i].other);
    return rc;
}

int responses_failure(struct buf *out, int status, const char *message) {
    const char *code = status == 429 ? "rate_limit_exceeded" : status >= 500 ? "server_error" : "invalid_prompt";
    int rc = buf_addf(out, "{\"code\":\"%s\",\"message\":", code);
    if (!rc) rc = buf_json_string(out, message, strlen(message));
    return rc ? rc : buf_adds(out, "}");
}

static int add_string(struct buf *out, const struct buf *text) {
    return buf_json_string(out, text && text->data ? text->data : "", text ? text->len : 0);
}

int responses_output_part(struct buf *out, const struct buf *text, const struct buf *logprobs) {
    int rc = buf_adds(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[");
    if (!rc && logprobs) rc = buf_add(out, logprobs->data, logprobs->len);
    if (!rc) rc = buf_adds(out, "],\"text\":");
    if (!rc) rc = add_string(out, text);
    return rc ? rc : buf_adds(out, "}");
}

int responses_output_item(struct buf *out, const char *id, const char *status, const struct buf *text,
                          const struct buf *logprobs) {
    int rc =
        buf_addf(out, "{\"id\":\"msg_%s\",\"type\":\"message\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":[",
                 id + strlen(RESPONSES_PREFIX), status);
    if (!rc && text) rc = responses_output_part(out, text, logprobs);
    return rc ? rc : buf_adds(out, "]}");
}

static int add_usage(struct buf *out, const cohort_stats *s) {
    if (!s) return buf_adds(out, ",\"usage\":null");
    return buf_addf(out,
                    ",\"usage\":{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u,"
                    "\"cache_write_tokens\":0},\"output_tokens\":%u,\"output_tokens_details\":{\"reasoning_tokens\":0},"
                    "\"total_tokens\":%llu}",
                    s->prompt_tokens, s->cached_tokens, s->generated_tokens,
                    (unsigned long long)s->prompt_tokens + s->generated_tokens);
}

int responses_object(struct buf *out, const struct response_view *v) {
    int rc = buf_addf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"error\":%s,",
                      v->id, (long long)v->created, v->status, v->failure ? v->failure : "null");
    if (!rc)
        rc = v->cut ? buf_addf(out, "\"incomplete_details\":{\"reason\":\"%s\"},\"model\":", v->cut)
                    : buf_adds(out, "\"incomplete_details\":null,\"model\":");
    if (!rc) rc = buf_json_string(out, v->model, strlen(v->model));
    if (!rc) rc = buf_adds(out, ",\"output\":[");
    const char *item = strcmp(v->status, "completed") == 0 ? "completed" : "incomplete";
    if (!rc && v->has_output) rc = responses_output_item(out, v->id, item, v->text, v->logprobs);
    if (!rc) rc = buf_adds(out, "]");
    if (!rc) rc = add_usage(out, v->stats);
    if (!rc) rc = buf_adds(out, v->echo);
    return rc ? rc : buf_adds(out, "}");
}
