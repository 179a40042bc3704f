/* Anthropic's /v1/messages: what is read from a body, and how tokens and finishes are written, streamed and whole.
 * Shapes follow the published API description. Loop thread.
 *
 * Differences from the origin: what is no text, tools and thinking are refused (anthropic_chat.c). A message of the
 * assistant at the end is continued, white space at its end included. An answer has one text block, also when it is
 * empty. usage.cache_creation_input_tokens is 0: everything is kept anyhow. What was found in the cache is known at the
 * end: message_start counts the whole prompt as input_tokens, message_delta splits it. Besides, the fields of the other
 * generating endpoints are taken by the same names. */
#include "api/anthropic.h"

#include <stdlib.h>
#include <string.h>

#include "api/params.h"
#include "api/routes.h"
#include "api/sampling.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/fields.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* What a call keeps of its body: the stop strings, which stop_sequence names. */
struct message {
    struct buf texts;
    size_t begin[COHORT_STOPS_MAX + 1];
};

static const struct known_field messages_fields[] = {
    {"model", FIELD_READ, NULL},
    {"messages", FIELD_READ, NULL},
    {"system", FIELD_READ, NULL},
    {"max_tokens", FIELD_READ, NULL},
    {"stop_sequences", FIELD_READ, NULL},
    {"stream", FIELD_READ, NULL},
    {"metadata", FIELD_READ, NULL},
    {"service_tier", FIELD_READ, NULL},
    {"tool_choice", FIELD_READ, NULL},
    {"inference_geo", FIELD_NEUTRAL, "\"\""},
    {"diagnostics", FIELD_NEUTRAL, "{}"},
    {"user_profile_id", FIELD_NEUTRAL, "\"\""},
    {"workspace_id", FIELD_NEUTRAL, "\"\""},
    {"speed", FIELD_REFUSED, "\"standard\""},
    {"cache_control", FIELD_NEUTRAL, "{}"},
    {"tools", FIELD_REFUSED, "[]"},
    {"thinking", FIELD_REFUSED, "{\"type\":\"disabled\"}"},
    {"mcp_servers", FIELD_REFUSED, "[]"},
    {"container", FIELD_REFUSED, NULL},
    {"context_management", FIELD_REFUSED, "{}"},
    {"output_config", FIELD_REFUSED, "{}"},
    {"output_format", FIELD_REFUSED, NULL},
    /* of the other endpoints, by the same names */
    {"store", FIELD_READ, NULL},
    /* which have other names here, or one value */
    {"stop", FIELD_REFUSED, NULL},
    {"n", FIELD_REFUSED, "1"},
    {"max_completion_tokens", FIELD_REFUSED, NULL},
    {"stream_options", FIELD_REFUSED, NULL},
};

static size_t messages_text_bytes(const struct glance *glance) { return glance->messages; }

static int check_known(struct evhttp_request *http, const json_t *body, cohort_error *err) {
    char unknown[512];
    const struct known_list lists[] = {{messages_fields, COUNT(messages_fields)}, params_known, sampling_known};
    int rc = fields_known(body, lists, COUNT(lists), unknown, sizeof unknown, err);
    reply_unknown(http, unknown);
    return rc;
}

/* Without tools they all mean the same. */
static int check_tool_choice(const json_t *body, cohort_error *err) {
    const json_t *choice = field_present(body, "tool_choice");
    const char *type = json_string_value(json_object_get(choice, "type"));
    if (!choice || (type && (strcmp(type, "auto") == 0 || strcmp(type, "none") == 0))) return 0;
    return err_set(err, type ? COHORT_E_UNSUPPORTED : COHORT_E_ARGUMENT, "tool_choice",
                   "tool_choice must be {\"type\": \"auto\"} or {\"type\": \"none\"}: there are no tools yet");
}

static int check_neutral(const json_t *body, cohort_error *err) {
    const json_t *metadata = field_present(body, "metadata"), *tier = field_present(body, "service_tier");
    if (metadata && !json_is_object(metadata))
        return err_set(err, COHORT_E_ARGUMENT, "metadata", "metadata must be an object, not %s", field_type(metadata));
    const char *name = json_string_value(tier);
    if (tier && !(name && (strcmp(name, "auto") == 0 || strcmp(name, "standard_only") == 0)))
        return err_set(err, COHORT_E_ARGUMENT, "service_tier", "service_tier must be \"auto\" or \"standard_only\"");
    return check_tool_choice(body, err);
}

static int read_stop(struct call *call, struct message *own, const json_t *item, size_t i, cohort_error *err) {
    struct params *p = &call->params;
    size_t len = json_string_length(item);
    if (!json_is_string(item))
        return err_set(err, COHORT_E_ARGUMENT, "stop_sequences", "stop_sequences[%zu] must be a string, not %s", i,
                       field_type(item));
    if (len == 0 || len > COHORT_STOP_BYTES_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "stop_sequences",
                       "stop_sequences[%zu] has %zu bytes, 1 to %d are allowed", i, len, COHORT_STOP_BYTES_MAX);
    p->stops[p->stops_n++] = (cohort_span){json_string_value(item), len};
    if (buf_add(&own->texts, json_string_value(item), len) != 0)
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the stop sequences");
    own->begin[p->stops_n] = own->texts.len;
    return 0;
}

static int read_stops(struct call *call, struct message *own, const json_t *body, cohort_error *err) {
    const json_t *stops = field_present(body, "stop_sequences");
    int rc = 0;
    if (!stops) return 0;
    if (!json_is_array(stops) || json_array_size(stops) > COHORT_STOPS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "stop_sequences",
                       "stop_sequences must be an array of at most %d strings", COHORT_STOPS_MAX);
    for (size_t i = 0; i < json_array_size(stops) && !rc; i++)
        rc = read_stop(call, own, json_array_get(stops, i), i, err);
    return rc;
}

static int read_chat(struct call *call, const json_t *body, cohort_error *err) {
    json_t *chat;
    int go_on = 0;
    int rc = anthropic_chat(body, &chat, &go_on, err);
    if (rc) return rc;
    if (go_on) call->params.chat.chat.ending = COHORT_CHAT_CONTINUE;
    rc = params_chat(call, chat, err);
    json_decref(chat);
    return rc;
}

static int messages_parse(struct call *call, const json_t *body, cohort_error *err) {
    float temperature = 1;
    int rc = check_known(call->sink.http, body, err);
    if (!rc) rc = params_common(call, body, err);
    if (!rc) rc = field_number(body, "temperature", 0, 1, &temperature, err);
    if (!rc) rc = check_neutral(body, err);
    if (rc) return rc;
    if (call->params.max_tokens == UINT32_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "max_tokens", "max_tokens is missing");
    if (call->params.max_tokens == 0)
        return err_set(err, COHORT_E_ARGUMENT, "max_tokens", "max_tokens is 0, at least 1 is needed");
    struct message *own = call->own = mem_zalloc(1, sizeof *own);
    if (!own) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    rc = read_stops(call, own, body, err);
    return rc ? rc : read_chat(call, body, err);
}

/* ---- what is told ---- */

static int add_usage(const struct choice *choice, struct buf *out) {
    const cohort_stats *s = &choice->stats;
    return buf_addf(out,
                    "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%u,"
                    "\"output_tokens\":%u}",
                    s->prompt_tokens - s->cached_tokens, s->cached_tokens, s->generated_tokens);
}

/* "stop_reason":...,"stop_sequence":... */
static int add_stop(const struct choice *choice, struct buf *out) {
    const struct message *own = choice->call->own;
    int which = choice->stop_index;
    if (choice->finish != COHORT_FINISH_STOP || which < 0 || which >= COHORT_STOPS_MAX)
        return buf_addf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":null",
                        choice->finish == COHORT_FINISH_LENGTH ? "max_tokens" : "end_turn");
    int rc = buf_adds(out, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":");
    return rc ? rc
              : buf_json_string(out, own->texts.data + own->begin[which], own->begin[which + 1] - own->begin[which]);
}

static int add_head(const struct call *call, struct buf *out) {
    int rc = buf_addf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", call->id);
    return rc ? rc : buf_json_string(out, call->model_name, strlen(call->model_name));
}

static int messages_open(struct call *call, struct buf *out) {
    int rc = buf_adds(out, "{\"type\":\"message_start\",\"message\":");
    if (!rc) rc = add_head(call, out);
    if (!rc)
        rc = buf_addf(
            out,
            ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":%zu,"
            "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":0}}}\n"
            "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n"
            "{\"type\":\"ping\"}\n",
            call->prompts[0].ids_n);
    return rc;
}

static int add_delta(const cohort_event *event, struct buf *out) {
    if (event->text_len == 0) return 0;
    int rc =
        buf_adds(out, "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":");
    if (!rc) rc = buf_json_string(out, event->text, event->text_len);
    return rc ? rc : buf_adds(out, "}}\n");
}

static int messages_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    if (!event) return 0;
    int rc = add_delta(event, out);
    if (rc || event->type != COHORT_EVENT_FINISH) return rc;
    rc = buf_adds(out, "{\"type\":\"content_block_stop\",\"index\":0}\n{\"type\":\"message_delta\",\"delta\":{");
    if (!rc) rc = add_stop(choice, out);
    if (!rc) rc = buf_adds(out, "},");
    if (!rc) rc = add_usage(choice, out);
    return rc ? rc : buf_adds(out, "}\n");
}

static int messages_close(struct call *call, struct buf *out) {
    (void)call;
    return buf_adds(out, "{\"type\":\"message_stop\"}\n");
}

static int messages_collect(struct choice *choice, const cohort_event *event) {
    return buf_add(&choice->text, event->text, event->text_len);
}

static int messages_whole(struct call *call, struct buf *out) {
    const struct choice *choice = &call->choices[0];
    int rc = add_head(call, out);
    if (!rc) rc = buf_adds(out, ",\"content\":[{\"type\":\"text\",\"text\":");
    if (!rc) rc = buf_json_string(out, choice->text.data ? choice->text.data : "", choice->text.len);
    if (!rc) rc = buf_adds(out, "}],");
    if (!rc) rc = add_stop(choice, out);
    if (!rc) rc = buf_adds(out, ",");
    if (!rc) rc = add_usage(choice, out);
    return rc ? rc : buf_adds(out, "}");
}

static void messages_forget(struct call *call) {
    struct message *own = call->own;
    if (own) buf_free(&own->texts);
    mem_free(own);
    call->own = NULL;
}

const struct dialect dialect_messages = {
    .path = "/v1/messages",
    .id_prefix = "msg_",
    .input = "messages",
    .errors = &error_shape_anthropic,
    .names_events = 1,
    .text_bytes = messages_text_bytes,
    .parse = messages_parse,
    .prepare = sampling_prepare,
    .open = messages_open,
    .piece = messages_piece,
    .collect = messages_collect,
    .close = messages_close,
    .whole = messages_whole,
    .forget = messages_forget,
};

/* ---- /v1/messages/count_tokens ---- */

void messages_count_tokens(struct server *server, struct evhttp_request *http, const char *name) {
    (void)name;
    json_t *body, *chat = NULL;
    int prefill = 0;
    cohort_error error = {0};
    int rc = fields_body(evhttp_request_get_input_buffer(http), &body, &error);
    if (!rc) rc = check_known(http, body, &error);
    if (!rc) rc = check_neutral(body, &error);
    if (!rc) rc = anthropic_chat(body, &chat, &prefill, &error);
    if (rc)
        reply_error(server, http, &error);
    else
        count_chat(server, http, chat, prefill, NULL);
    json_decref(chat);
    json_decref(body);
}
