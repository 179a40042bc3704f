/* OpenAI's /v1/responses: what is read from a body (items: responses_items.c; tools, reasoning and the text's form:
 * responses_tools.c), and the object at an answer's ends. Shapes follow the published API description. Loop thread.
 *
 * Differences from the origin: input and output are text, and tools are functions. max_tool_calls, which is of the
 * origin's own tools, has no effect. Reasoning is told in clear, so that nothing encrypted is included.
 * max_output_tokens may be from 1 on (the origin: 16). `store` is true unless it is said otherwise where the server has
 * a state directory, and false elsewhere; `background` needs it. What is stored is kept as docs/STORED.md says, and its
 * stream's event N + 1 is sequence_number N. A response that was cancelled ends its stream with response.incomplete,
 * for the origin has no event of that name; usage is not known then. completed_at is never told. top_logprobs needs
 * "message.output_text.logprobs" in `include`. Besides, the fields of the other generating endpoints are taken by the
 * same names. */
#include "api/responses.h"

#include <stdlib.h>
#include <string.h>

#include "api/openai.h"
#include "api/params.h"
#include "api/routes.h"
#include "api/sampling.h"
#include "api/thinking.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/fields.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { ID_MAX = 63, NAME_MAX_BYTES = 512 };

const struct asked_names responses_names = {.messages = "input", .schema = "parameters", .reasoning = "reasoning"};

static const struct known_field responses_fields[] = {
    {"model", FIELD_READ, NULL},
    {"input", FIELD_READ, NULL},
    {"instructions", FIELD_READ, NULL},
    {"previous_response_id", FIELD_READ, NULL},
    {"max_output_tokens", FIELD_READ, NULL},
    {"top_logprobs", FIELD_READ, NULL},
    {"include", FIELD_READ, NULL},
    {"stream", FIELD_READ, NULL},
    {"stream_options", FIELD_READ, NULL},
    {"store", FIELD_READ, NULL},
    {"background", FIELD_READ, NULL},
    {"metadata", FIELD_READ, NULL},
    {"parallel_tool_calls", FIELD_READ, NULL},
    {"max_tool_calls", FIELD_READ, NULL},
    {"text", FIELD_READ, NULL},
    {"reasoning", FIELD_READ, NULL},
    {"tool_choice", FIELD_READ, NULL},
    {"service_tier", FIELD_READ, NULL},
    {"user", FIELD_READ, NULL},
    {"safety_identifier", FIELD_READ, NULL},
    {"prompt_cache_key", FIELD_READ, NULL},
    {"prompt_cache_retention", FIELD_NEUTRAL, "\"\""},
    {"prompt_cache_options", FIELD_NEUTRAL, "{}"},
    {"truncation", FIELD_REFUSED, "\"disabled\""},
    {"tools", FIELD_READ, NULL},
    {"prompt", FIELD_REFUSED, NULL},
    {"conversation", FIELD_REFUSED, NULL},
    {"context_management", FIELD_REFUSED, "[]"},
    {"moderation", FIELD_REFUSED, NULL},
    /* of the other endpoints, by the same names */
    {"stop", FIELD_READ, NULL},
    {"thinking_token_budget", FIELD_READ, NULL},
    /* which have other names here, or one value */
    {"n", FIELD_REFUSED, "1"},
    {"max_tokens", FIELD_REFUSED, NULL},
    {"max_completion_tokens", FIELD_REFUSED, NULL},
};

int responses_check_known(struct evhttp_request *http, const json_t *body, cohort_error *err) {
    char unknown[512];
    const struct known_list lists[] = {{responses_fields, COUNT(responses_fields)}, params_known, sampling_known};
    int rc = fields_known(body, lists, COUNT(lists), unknown, sizeof unknown, err);
    reply_unknown(http, unknown);
    return rc;
}

/* ---- fields that must not ask for anything ---- */

static int is_null_or(const json_t *value, const char *text) {
    return !value || json_is_null(value) || (json_is_string(value) && strcmp(json_string_value(value), text) == 0);
}

static int check_tier(const json_t *body, cohort_error *err) {
    const json_t *tier = field_present(body, "service_tier");
    if (is_null_or(tier, "auto") || is_null_or(tier, "default")) return 0;
    return err_set(err, COHORT_E_UNSUPPORTED, "service_tier", "service_tier must be \"auto\" or \"default\"");
}

/* What is repeated in the object has a bound. */
static int check_names(const json_t *body, cohort_error *err) {
    static const char *const names[] = {"user", "safety_identifier", "prompt_cache_key", "previous_response_id"};
    cohort_span value;
    int rc = 0;
    for (size_t i = 0; i < COUNT(names) && !rc; i++) rc = field_string(body, names[i], NAME_MAX_BYTES, &value, err);
    return rc;
}

int responses_check_neutral(const json_t *body, cohort_error *err) {
    int64_t calls;
    int rc = check_tier(body, err);
    if (!rc) rc = params_metadata(body, err);
    if (!rc) rc = check_names(body, err);
    return rc ? rc : field_integer(body, "max_tool_calls", 1, INT32_MAX, &calls, err);
}

/* ---- the others ---- */

static int read_include(const json_t *body, int *logprobs, cohort_error *err) {
    static const char *const names[] = {"message.output_text.logprobs",
                                        /* of what there is none of */
                                        "reasoning.encrypted_content", "file_search_call.results",
                                        "web_search_call.results", "web_search_call.action.sources",
                                        "message.input_image.image_url", "computer_call_output.output.image_url",
                                        "code_interpreter_call.outputs"};
    const json_t *include = field_present(body, "include");
    if (include && !json_is_array(include))
        return err_set(err, COHORT_E_ARGUMENT, "include", "include must be an array of strings");
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *name = json_string_value(json_array_get(include, i));
        size_t k = 0;
        while (name && k < COUNT(names) && strcmp(names[k], name) != 0) k++;
        if (!name || k == COUNT(names))
            return err_set(err, COHORT_E_ARGUMENT, "include", "include[%zu] is nothing that can be included", i);
        *logprobs |= k == 0;
    }
    return 0;
}

static int read_logprobs(struct params *p, const json_t *body, cohort_error *err) {
    int64_t top = 0;
    int wanted = 0;
    int rc = read_include(body, &wanted, err);
    if (!rc) rc = field_integer(body, "top_logprobs", 0, COHORT_TOP_LOGPROBS_MAX, &top, err);
    if (rc) return rc;
    if (top > 0 && !wanted)
        return err_set(err, COHORT_E_ARGUMENT, "top_logprobs",
                       "top_logprobs needs \"message.output_text.logprobs\" in include");
    p->logprobs = wanted ? (int)top : -1;
    return 0;
}

static int read_keeping(struct call *call, struct response *own, const json_t *body, int *stored, cohort_error *err) {
    struct params *p = &call->params;
    int rc = field_bool(body, "background", &own->background, err);
    if (rc) return rc;
    *stored = server_has_journal(call->server) && p->store != 0;
    if (own->background && !*stored)
        return err_set(err, COHORT_E_UNSUPPORTED, "background",
                       p->store == 0 ? "background needs store to be true"
                                     : "background needs a server that stores calls (--state-dir)");
    p->detached = own->background;
    return 0;
}

static int read_chat(struct call *call, struct response *own, const json_t *body, cohort_error *err) {
    struct asked asked;
    int rc = responses_ask(body, 0, &asked, err);
    if (rc) return rc;
    int64_t budget = -1;
    own->summarises = asked.summarises;
    rc = asked_call(&asked, &responses_names, call, err);
    asked_free(&asked);
    if (!rc) rc = field_integer(body, "thinking_token_budget", -1, INT32_MAX, &budget, err);
    if (!rc && budget >= 0) thinking_budget(call, budget, "thinking_token_budget");
    return rc;
}

static int responses_parse(struct call *call, const json_t *body, cohort_error *err) {
    int64_t most = -1;
    int stored = 0, rc = responses_check_known(call->sink.http, body, err);
    if (!rc) rc = params_common(call, body, err);
    if (!rc) rc = responses_check_neutral(body, err);
    if (!rc) rc = read_logprobs(&call->params, body, err);
    if (!rc) rc = field_integer(body, "max_output_tokens", 1, INT32_MAX, &most, err);
    if (rc) return rc;
    if (most > 0) call->params.max_tokens = (uint32_t)most;
    struct response *own = call->own = mem_zalloc(1, sizeof *own);
    if (!own) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    rc = read_keeping(call, own, body, &stored, err);
    if (!rc) rc = read_chat(call, own, body, err);
    if (!rc && responses_echo(&own->echo, body, stored) != 0)
        rc = err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    return rc;
}

static size_t responses_text_bytes(const struct glance *glance) { return glance->input; }

/* ---- what is told ---- */

static const char *status_of(const struct choice *choice) {
    if (!choice->finished) return "in_progress";
    return choice->finish == COHORT_FINISH_CANCELLED ? "cancelled"
           : choice->finish == COHORT_FINISH_LENGTH  ? "incomplete"
                                                     : "completed";
}

static int add_object(const struct call *call, const char *status, const char *failure, struct buf *out) {
    const struct response *own = call->own;
    const struct choice *choice = &call->choices[0];
    struct buf items = {0};
    cohort_stats stats = choice->stats;
    if (!choice->said.reasoned) stats.reasoning_tokens = 0;
    int ended = choice->finished && !failure, rc = ended ? responses_add_output(choice, &items) : 0;
    const struct response_view view = {
        .id = call->id,
        .model = call->model_name,
        .status = status,
        .created = call->created,
        .echo = own->echo.data,
        .failure = failure,
        .cut = ended && choice->finish == COHORT_FINISH_LENGTH ? "max_output_tokens" : NULL,
        .output = items.data,
        .stats = ended && choice->finish != COHORT_FINISH_CANCELLED ? &stats : NULL,
    };
    if (!rc) rc = responses_object(out, &view);
    buf_free(&items);
    return rc;
}

static int object_event(struct call *call, const char *type, const char *status, const char *failure, struct buf *out) {
    int rc = responses_begin_event(call, type, out);
    if (!rc) rc = buf_adds(out, ",\"response\":");
    if (!rc) rc = add_object(call, status, failure, out);
    return rc ? rc : buf_adds(out, "}\n");
}

static int responses_open(struct call *call, struct buf *out) {
    const struct response *own = call->own;
    int rc = object_event(call, "created", own->background ? "queued" : "in_progress", NULL, out);
    if (!rc) rc = object_event(call, "in_progress", "in_progress", NULL, out);
    /* what cannot but be text */
    return rc || call->choices[0].reader ? rc : responses_start_text(&call->choices[0], out);
}

static int responses_close(struct call *call, struct buf *out) {
    const char *status = status_of(&call->choices[0]);
    return object_event(call, strcmp(status, "completed") == 0 ? "completed" : "incomplete", status, NULL, out);
}

static int responses_whole(struct call *call, struct buf *out) {
    return add_object(call, status_of(&call->choices[0]), NULL, out);
}

static int responses_begun(struct call *call, struct buf *out) { return add_object(call, "queued", NULL, out); }

static int responses_fail(struct call *call, const cohort_error *error, struct buf *out) {
    struct buf failure = {0};
    int rc = responses_failure(&failure, error_status(&error_shape_openai, error),
                               error->text[0] ? error->text : cohort_error_text(error->code));
    if (!rc) rc = object_event(call, "failed", "failed", failure.data, out);
    buf_free(&failure);
    return rc;
}

static void responses_forget(struct call *call) {
    struct response *own = call->own;
    if (own) {
        buf_free(&own->echo);
        buf_free(&own->begins);
        buf_free(&own->waiting);
    }
    mem_free(own);
    call->own = NULL;
}

static void responses_name_field(const struct call *call, cohort_error *err) {
    (void)call;
    asked_name(&responses_names, err);
}

const struct dialect dialect_responses = {
    .path = "/v1/responses",
    .id_prefix = RESPONSES_PREFIX,
    .input = "input",
    .name_field = responses_name_field,
    .errors = &error_shape_openai,
    .names_events = 1,
    .keeps = 1,
    .text_bytes = responses_text_bytes,
    .parse = responses_parse,
    .prepare = sampling_prepare,
    .open = responses_open,
    .piece = responses_piece,
    .collect = responses_collect,
    .close = responses_close,
    .fail = responses_fail,
    .begun = responses_begun,
    .whole = responses_whole,
    .forget = responses_forget,
};
