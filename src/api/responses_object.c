/* The object of /v1/responses (responses.h). Pure: it follows from the request and what was said, so that a call that
 * is made again after a crash tells it with the same bytes; hence completed_at is left out. */
#include <string.h>

#include "api/json_text.h"
#include "api/responses.h"
#include "server/fields.h"

/* A member with the value that the request gave it, or `other`. */
static int add_member(struct buf *out, const json_t *body, const char *name, const char *other) {
    const json_t *value = field_present(body, name);
    int rc = buf_addf(out, ",\"%s\":", name);
    if (!rc) rc = value ? json_text(out, value) : buf_adds(out, other);
    return rc;
}

/* A function as the origin repeats it. */
static int add_tool(struct buf *out, const json_t *tool) {
    const json_t *strict = field_present(tool, "strict");
    int rc = buf_adds(out, "{\"type\":\"function\",\"name\":");
    if (!rc) rc = json_text(out, json_object_get(tool, "name"));
    if (!rc) rc = add_member(out, tool, "description", "null");
    if (!rc) rc = add_member(out, tool, "parameters", "null");
    return rc ? rc : buf_addf(out, ",\"strict\":%s}", strict && json_is_false(strict) ? "false" : "true");
}

static int add_tools(struct buf *out, const json_t *tools) {
    int rc = buf_adds(out, ",\"tools\":[");
    for (size_t i = 0; i < json_array_size(tools) && !rc; i++) {
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = add_tool(out, json_array_get(tools, i));
    }
    return rc ? rc : buf_adds(out, "]");
}

static int add_forms(struct buf *out, const json_t *body) {
    const json_t *reasoning = field_present(body, "reasoning"), *text = field_present(body, "text");
    const json_t *verbosity = field_present(text, "verbosity");
    const char *other = field_present(reasoning, "generate_summary") ? "\"auto\"" : "null";
    int rc = buf_adds(out, ",\"reasoning\":{\"context\":null");
    if (!rc) rc = add_member(out, reasoning, "effort", "null");
    if (!rc) rc = add_member(out, reasoning, "summary", other);
    if (!rc) rc = buf_addf(out, "},\"text\":{%s", verbosity ? "\"verbosity\":\"medium\"," : "");
    const json_t *format = field_present(text, "format");
    if (!rc) rc = buf_adds(out, "\"format\":");
    if (!rc) rc = format ? json_text(out, format) : buf_adds(out, "{\"type\":\"text\"}");
    return rc ? rc : buf_adds(out, "}");
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
    int rc = buf_addf(out, ",\"store\":%s,\"service_tier\":\"default\",\"truncation\":\"disabled\"",
                      stored ? "true" : "false");
    if (!rc) rc = add_tools(out, json_object_get(body, "tools"));
    if (!rc) rc = add_forms(out, body);
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

static int add_usage(struct buf *out, const cohort_stats *s) {
    if (!s) return buf_adds(out, ",\"usage\":null");
    return buf_addf(
        out,
        ",\"usage\":{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u,"
        "\"cache_write_tokens\":0},\"output_tokens\":%u,\"output_tokens_details\":{\"reasoning_tokens\":%u},"
        "\"total_tokens\":%llu}",
        s->prompt_tokens, s->cached_tokens, s->generated_tokens, s->reasoning_tokens,
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
    if (!rc && v->output) rc = buf_adds(out, v->output);
    if (!rc) rc = buf_adds(out, "]");
    if (!rc) rc = add_usage(out, v->stats);
    if (!rc) rc = buf_adds(out, v->echo);
    return rc ? rc : buf_adds(out, "}");
}
