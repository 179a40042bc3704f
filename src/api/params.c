/* Fields that several endpoints share (params.h). */
#include "api/params.h"

#include <string.h>

#include "api/sampling.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/http.h"

int params_ids_for(const struct server *server, const json_t *array, const char *field, int32_t **out, size_t *n,
                   cohort_error *err) {
    cohort_model_info info;
    cohort_model_get_info(server_model(server), &info);
    size_t count = json_array_size(array);
    int32_t *ids = mem_alloc(count, sizeof *ids);
    if (!ids) return err_set(err, COHORT_E_MEMORY, field, "no memory for %zu token ids", count);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) >= (int64_t)info.vocab_size) {
            mem_free(ids);
            return err_set(err, COHORT_E_ARGUMENT, field, "%s[%zu] is not a token id: an integer from 0 to %u", field,
                           i, info.vocab_size - 1);
        }
        ids[i] = (int32_t)json_integer_value(item);
    }
    *out = ids;
    *n = count;
    return 0;
}

int params_ids(const struct call *call, const json_t *array, const char *field, int32_t **out, size_t *n,
               cohort_error *err) {
    return params_ids_for(call->server, array, field, out, n, err);
}

/* Without the white space around it, which templates may drop. */
static size_t trimmed_bytes(const json_t *text) {
    const char *s = json_string_value(text);
    size_t begin = 0, end = json_string_length(text);
    while (begin < end && (s[begin] == ' ' || (s[begin] >= '\t' && s[begin] <= '\r'))) begin++;
    while (end > begin && (s[end - 1] == ' ' || (s[end - 1] >= '\t' && s[end - 1] <= '\r'))) end--;
    return end - begin;
}

size_t params_message_bytes(const json_t *message) {
    const json_t *content = json_object_get(message, "content");
    size_t sum = trimmed_bytes(content);
    for (size_t j = 0; j < json_array_size(content); j++)
        sum += trimmed_bytes(json_object_get(json_array_get(content, j), "text"));
    return sum;
}

static int read_stops(struct params *p, const json_t *body, cohort_error *err) {
    const json_t *stop = field_present(body, "stop");
    if (!stop) return 0;
    size_t count = json_is_array(stop) ? json_array_size(stop) : 1;
    if (!json_is_array(stop) && !json_is_string(stop))
        return err_set(err, COHORT_E_ARGUMENT, "stop", "stop must be a string or an array of strings, not %s",
                       field_type(stop));
    if (count > COHORT_STOPS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "stop", "stop has %zu strings, at most %d are allowed", count,
                       COHORT_STOPS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!json_is_string(item))
            return err_set(err, COHORT_E_ARGUMENT, "stop", "stop[%zu] must be a string, not %s", i, field_type(item));
        size_t len = json_string_length(item);
        if (len == 0 || len > COHORT_STOP_BYTES_MAX)
            return err_set(err, COHORT_E_ARGUMENT, "stop", "stop[%zu] has %zu bytes, 1 to %d are allowed", i, len,
                           COHORT_STOP_BYTES_MAX);
        p->stops[p->stops_n++] = (cohort_span){json_string_value(item), len};
    }
    return 0;
}

static int read_stop_ids(struct call *call, const json_t *body, cohort_error *err) {
    struct params *p = &call->params;
    const json_t *ids = field_present(body, "stop_token_ids");
    if (!ids) return 0;
    if (!json_is_array(ids) || json_array_size(ids) > COHORT_STOP_IDS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "stop_token_ids",
                       "stop_token_ids must be an array of at most %d token ids", COHORT_STOP_IDS_MAX);
    int32_t *list;
    size_t n;
    int rc = params_ids(call, ids, "stop_token_ids", &list, &n, err);
    if (rc) return rc;
    memcpy(p->stop_ids, list, n * sizeof *list);
    p->stop_ids_n = n;
    mem_free(list);
    return 0;
}

static int read_stream(struct params *p, const json_t *body, cohort_error *err) {
    int rc = field_bool(body, "stream", &p->stream, err);
    if (rc) return rc;
    const json_t *options = field_present(body, "stream_options");
    if (!options) return 0;
    if (!json_is_object(options))
        return err_set(err, COHORT_E_ARGUMENT, "stream_options", "stream_options must be an object, not %s",
                       field_type(options));
    if (!p->stream)
        return err_set(err, COHORT_E_ARGUMENT, "stream_options", "stream_options is only allowed when stream is true");
    rc = field_bool(options, "include_usage", &p->include_usage, err);
    return rc;
}

static const struct known_field common_names[] = {
    {"stop_token_ids", FIELD_READ, NULL}, {"include_stop_str_in_output", FIELD_READ, NULL},
    {"timeout_ms", FIELD_READ, NULL},     {"t_max_predict_ms", FIELD_READ, NULL},
    {"priority", FIELD_READ, NULL},       {"cache_prompt", FIELD_READ, NULL},
    {"cache_salt", FIELD_READ, NULL},     {"cache_session_id", FIELD_READ, NULL},
    {"id_slot", FIELD_READ, NULL},
};
const struct known_list params_known = {common_names, sizeof common_names / sizeof common_names[0]};

enum { METADATA_MAX = 16, METADATA_NAME_MAX = 64, METADATA_VALUE_MAX = 512 }; /* pairs; bytes */

int params_metadata(const json_t *body, cohort_error *err) {
    const json_t *metadata = field_present(body, "metadata");
    const char *name;
    json_t *value;
    if (!metadata) return 0;
    if (!json_is_object(metadata) || json_object_size(metadata) > METADATA_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "metadata", "metadata must be an object of at most %d strings",
                       METADATA_MAX);
    json_object_foreach((json_t *)metadata, name, value) {
        if (strlen(name) <= METADATA_NAME_MAX && json_is_string(value) &&
            json_string_length(value) <= METADATA_VALUE_MAX)
            continue;
        return err_set(err, COHORT_E_ARGUMENT, "metadata",
                       "metadata must have names of at most %d bytes and strings of at most %d", METADATA_NAME_MAX,
                       METADATA_VALUE_MAX);
    }
    return 0;
}

int params_chat(struct call *call, const json_t *chat, cohort_error *err) {
    int rc = chat_params_messages(&call->params.chat, chat, err);
    if (rc) return rc;
    call->prompts = mem_zalloc(1, sizeof *call->prompts);
    if (!call->prompts) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the messages");
    call->prompts_n = 1;
    for (size_t i = 0; i < json_array_size(chat); i++)
        call->prompts[0].text_len += params_message_bytes(json_array_get(chat, i));
    return 0;
}

int params_common(struct call *call, const json_t *body, cohort_error *err) {
    struct params *p = &call->params;
    p->max_tokens = UINT32_MAX;
    p->n = 1;
    p->logprobs = -1;
    p->store = -1;
    p->reasoning_budget = UINT32_MAX;
    chat_params_init(&p->chat);
    cohort_request defaults;
    cohort_request_defaults(&defaults);
    p->sampling = defaults.sampling;
    p->sampling.temperature = 1.0f;

    const json_t *model = field_present(body, "model");
    if (model && !json_is_string(model))
        return err_set(err, COHORT_E_ARGUMENT, "model", "model must be a string, not %s", field_type(model));
    int64_t n = 1, max_tokens = -1, timeout = 0, max_predict = 0, priority = 0;
    int rc = read_stream(p, body, err);
    if (!rc) rc = cache_read(body, &p->cache, err);
    if (!rc) rc = sampling_read(call, body, err);
    if (!rc) rc = read_stops(p, body, err);
    if (!rc) rc = read_stop_ids(call, body, err);
    if (!rc) rc = field_bool(body, "include_stop_str_in_output", &p->include_stop, err);
    if (!rc) rc = field_bool(body, "store", &p->store, err);
    if (!rc) rc = field_integer(body, "priority", -COHORT_PRIORITY_MAX, COHORT_PRIORITY_MAX, &priority, err);
    if (!rc) rc = field_integer(body, "n", 1, SERVER_CHOICES_MAX, &n, err);
    if (!rc) rc = field_integer(body, "max_tokens", 0, INT32_MAX, &max_tokens, err);
    if (!rc) rc = field_integer(body, "max_completion_tokens", 1, INT32_MAX, &max_tokens, err);
    if (!rc) rc = field_integer(body, "timeout_ms", 0, UINT32_MAX, &timeout, err);
    if (!rc) rc = field_integer(body, "t_max_predict_ms", -1, UINT32_MAX, &max_predict, err);
    if (rc) return rc;
    p->timeout_ms = (uint32_t)timeout;
    p->max_predict_ms = max_predict < 0 ? 0 : (uint32_t)max_predict; /* -1 and 0: no limit, as in llama-server */
    p->n = p->tries = (uint32_t)n;
    p->priority = (int32_t)priority;
    if (max_tokens >= 0) p->max_tokens = (uint32_t)max_tokens;
    return 0;
}
