/* Anthropic's /v1/messages: what is read from a body (messages: anthropic_chat.c; tools, thinking and the output's
 * form: anthropic_tools.c). Shapes follow the published API description. Loop thread.
 *
 * Differences from the origin: images, documents and the origin's own tools are refused. A message of the assistant at
 * the end is continued, white space at its end included. usage.cache_creation_input_tokens is 0: everything is kept
 * anyhow. What was found in the cache is known at the end: message_start counts the whole prompt as input_tokens,
 * message_delta splits it. Besides, the fields of the other generating endpoints are taken by the same names. */
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

static const struct asked_names names = {.messages = "messages", .schema = "input_schema", .reasoning = "thinking"};

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
    {"tools", FIELD_READ, NULL},
    {"thinking", FIELD_READ, NULL},
    {"mcp_servers", FIELD_REFUSED, "[]"},
    {"container", FIELD_REFUSED, NULL},
    {"thread", FIELD_REFUSED, NULL},
    {"context_management", FIELD_REFUSED, "{}"},
    {"output_config", FIELD_READ, NULL},
    {"output_format", FIELD_READ, NULL},
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

static int check_neutral(const json_t *body, cohort_error *err) {
    const json_t *metadata = field_present(body, "metadata"), *tier = field_present(body, "service_tier");
    if (metadata && !json_is_object(metadata))
        return err_set(err, COHORT_E_ARGUMENT, "metadata", "metadata must be an object, not %s", field_type(metadata));
    const char *name = json_string_value(tier);
    if (tier && !(name && (strcmp(name, "auto") == 0 || strcmp(name, "standard_only") == 0)))
        return err_set(err, COHORT_E_ARGUMENT, "service_tier", "service_tier must be \"auto\" or \"standard_only\"");
    return 0;
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

static int read_chat(struct call *call, struct message *own, const json_t *body, cohort_error *err) {
    struct asked asked;
    int rc = anthropic_ask(body, &asked, err);
    if (rc) return rc;
    own->hides_thinking = asked.hides_reasoning;
    rc = asked_call(&asked, &names, call, err);
    asked_free(&asked);
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
    return rc ? rc : read_chat(call, own, body, err);
}

static void messages_forget(struct call *call) {
    struct message *own = call->own;
    if (own) buf_free(&own->texts);
    mem_free(own);
    call->own = NULL;
}

static void messages_name_field(const struct call *call, cohort_error *err) {
    (void)call;
    asked_name(&names, err);
}

static int messages_collect(struct choice *choice, const cohort_event *event) {
    (void)event;
    return parts_collect(choice);
}

const struct dialect dialect_messages = {
    .path = "/v1/messages",
    .id_prefix = "msg_",
    .input = "messages",
    .name_field = messages_name_field,
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
    json_t *body;
    struct asked asked = {0};
    cohort_error error = {0};
    int rc = fields_body(evhttp_request_get_input_buffer(http), &body, &error);
    if (!rc) rc = check_known(http, body, &error);
    if (!rc) rc = check_neutral(body, &error);
    if (!rc) rc = anthropic_ask(body, &asked, &error);
    if (rc)
        reply_error(server, http, &error);
    else
        count_chat(server, http, body, &asked, &names, NULL);
    asked_free(&asked);
    json_decref(body);
}
