/* Strict reading of JSON fields (params.h). */
#include "server/params.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "server/internal.h"

int params_body(struct evbuffer *input, json_t **out, cohort_error *err) {
    size_t len = evbuffer_get_length(input);
    const char *bytes = (const char *)evbuffer_pullup(input, -1);
    json_error_t where;
    json_t *body = json_loadb(len ? bytes : "", len, SERVER_JSON_FLAGS, &where);
    *out = NULL;
    if (!body)
        return err_set(err, COHORT_E_ARGUMENT, NULL, "the body is not JSON that can be read: line %d, column %d: %s",
                       where.line, where.column, where.text);
    if (!json_is_object(body)) {
        json_decref(body);
        return err_set(err, COHORT_E_ARGUMENT, NULL, "the body must be a JSON object");
    }
    *out = body;
    return 0;
}

static const char *type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

static const json_t *present(const json_t *body, const char *name) {
    const json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

int field_bool(const json_t *body, const char *name, int *out, cohort_error *err) {
    const json_t *value = present(body, name);
    if (!value) return 0;
    if (!json_is_boolean(value))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s must be true or false, not %s", name, type_name(value));
    *out = json_is_true(value);
    return 0;
}

int field_integer(const json_t *body, const char *name, int64_t low, int64_t high, int64_t *out, cohort_error *err) {
    const json_t *value = present(body, name);
    if (!value) return 0;
    if (!json_is_integer(value))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s must be an integer, not %s", name, type_name(value));
    int64_t number = json_integer_value(value);
    if (number < low || number > high)
        return err_set(err, COHORT_E_ARGUMENT, name, "%s is %lld, outside %lld to %lld", name, (long long)number,
                       (long long)low, (long long)high);
    *out = number;
    return 0;
}

int field_string(const json_t *body, const char *name, size_t most, cohort_span *out, cohort_error *err) {
    const json_t *value = present(body, name);
    if (!value) return 0;
    if (!json_is_string(value))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s must be a string, not %s", name, type_name(value));
    size_t len = json_string_length(value);
    if (len == 0 || len > most)
        return err_set(err, COHORT_E_ARGUMENT, name, "%s has %zu bytes, 1 to %zu are allowed", name, len, most);
    *out = (cohort_span){json_string_value(value), len};
    return 0;
}

int field_number(const json_t *body, const char *name, double low, double high, float *out, cohort_error *err) {
    const json_t *value = present(body, name);
    if (!value) return 0;
    if (!json_is_number(value))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s must be a number, not %s", name, type_name(value));
    double number = json_number_value(value);
    if (!(number >= low && number <= high))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s is %g, outside %g to %g", name, number, low, high);
    *out = (float)number;
    return 0;
}

int params_ids(const struct call *call, const json_t *array, const char *field, int32_t **out, size_t *n,
               cohort_error *err) {
    cohort_model_info info;
    cohort_model_get_info(call->server->model, &info);
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

static int read_stops(struct params *p, const json_t *body, cohort_error *err) {
    const json_t *stop = present(body, "stop");
    if (!stop) return 0;
    size_t count = json_is_array(stop) ? json_array_size(stop) : 1;
    if (!json_is_array(stop) && !json_is_string(stop))
        return err_set(err, COHORT_E_ARGUMENT, "stop", "stop must be a string or an array of strings, not %s",
                       type_name(stop));
    if (count > COHORT_STOPS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "stop", "stop has %zu strings, at most %d are allowed", count,
                       COHORT_STOPS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!json_is_string(item))
            return err_set(err, COHORT_E_ARGUMENT, "stop", "stop[%zu] must be a string, not %s", i, type_name(item));
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
    const json_t *ids = present(body, "stop_token_ids");
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

static int read_sampling(struct params *p, const json_t *body, cohort_error *err) {
    int64_t top_k = 0, seed = 0;
    int rc = field_number(body, "temperature", 0, 100, &p->sampling.temperature, err);
    if (!rc) rc = field_number(body, "top_p", 0, 1, &p->sampling.top_p, err);
    if (!rc) rc = field_number(body, "min_p", 0, 1, &p->sampling.min_p, err);
    if (!rc) rc = field_integer(body, "top_k", -1, INT32_MAX, &top_k, err);
    if (!rc) rc = field_integer(body, "seed", INT64_MIN, INT64_MAX, &seed, err);
    if (rc) return rc;
    p->sampling.top_k = top_k < 0 ? 0 : (int32_t)top_k;
    if (present(body, "seed")) {
        p->sampling.seed = (uint64_t)seed;
        p->sampling.has_seed = 1;
    }
    return 0;
}

static int read_stream(struct params *p, const json_t *body, cohort_error *err) {
    int rc = field_bool(body, "stream", &p->stream, err);
    if (rc) return rc;
    const json_t *options = present(body, "stream_options");
    if (!options) return 0;
    if (!json_is_object(options))
        return err_set(err, COHORT_E_ARGUMENT, "stream_options", "stream_options must be an object, not %s",
                       type_name(options));
    if (!p->stream)
        return err_set(err, COHORT_E_ARGUMENT, "stream_options", "stream_options is only allowed when stream is true");
    rc = field_bool(options, "include_usage", &p->include_usage, err);
    return rc;
}

int params_common(struct call *call, const json_t *body, cohort_error *err) {
    struct params *p = &call->params;
    p->max_tokens = UINT32_MAX;
    p->n = 1;
    p->logprobs = -1;
    p->store = -1;
    cohort_request defaults;
    cohort_request_defaults(&defaults);
    p->sampling = defaults.sampling;
    p->sampling.temperature = 1.0f;

    const json_t *model = present(body, "model");
    if (model && !json_is_string(model))
        return err_set(err, COHORT_E_ARGUMENT, "model", "model must be a string, not %s", type_name(model));
    int64_t n = 1, max_tokens = -1, timeout = 0, max_predict = 0, priority = 0;
    int rc = read_stream(p, body, err);
    if (!rc) rc = cache_read(body, &p->cache, err);
    if (!rc) rc = read_sampling(p, body, err);
    if (!rc) rc = read_stops(p, body, err);
    if (!rc) rc = read_stop_ids(call, body, err);
    if (!rc) rc = field_bool(body, "ignore_eos", &p->ignore_eos, err);
    if (!rc) rc = field_bool(body, "store", &p->store, err);
    if (!rc) rc = field_integer(body, "priority", -COHORT_PRIORITY_MAX, COHORT_PRIORITY_MAX, &priority, err);
    if (!rc) rc = field_integer(body, "n", 1, SERVER_CHOICES_MAX, &n, err);
    if (!rc) rc = field_integer(body, "max_tokens", 1, INT32_MAX, &max_tokens, err);
    if (!rc) rc = field_integer(body, "max_completion_tokens", 1, INT32_MAX, &max_tokens, err);
    if (!rc) rc = field_integer(body, "timeout_ms", 0, UINT32_MAX, &timeout, err);
    if (!rc) rc = field_integer(body, "t_max_predict_ms", -1, UINT32_MAX, &max_predict, err);
    if (rc) return rc;
    p->timeout_ms = (uint32_t)timeout;
    p->max_predict_ms = max_predict < 0 ? 0 : (uint32_t)max_predict; /* -1 and 0: no limit, as in llama-server */
    p->n = (uint32_t)n;
    p->priority = (int32_t)priority;
    if (max_tokens > 0) p->max_tokens = (uint32_t)max_tokens;
    return 0;
}

static void note_unknown(char *unknown, size_t cap, const char *name) {
    size_t used = strlen(unknown), len = strlen(name);
    if (len == 0 || len > 64 || used + len + 3 > cap) return;
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == ',') return;
    snprintf(unknown + used, cap - used, "%s%s", used ? ", " : "", name);
}

static int is_neutral(const json_t *value, const struct known_field *field) {
    if (json_is_null(value)) return 1;
    if (!field->neutral) return 0;
    json_t *neutral = json_loads(field->neutral, JSON_DECODE_ANY, NULL);
    int same = neutral && (json_equal(neutral, value) || (json_is_number(neutral) && json_is_number(value) &&
                                                          json_number_value(neutral) == json_number_value(value)));
    json_decref(neutral);
    return same;
}

static const struct known_field *find_field(const struct known_list *lists, size_t lists_n, const char *name) {
    for (size_t i = 0; i < lists_n; i++)
        for (size_t j = 0; j < lists[i].n; j++)
            if (strcmp(lists[i].fields[j].name, name) == 0) return &lists[i].fields[j];
    return NULL;
}

int params_known(const json_t *body, const struct known_list *lists, size_t lists_n, char *unknown, size_t cap,
                 cohort_error *err) {
    unknown[0] = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)body, name, value) {
        const struct known_field *field = find_field(lists, lists_n, name);
        if (!field)
            note_unknown(unknown, cap, name);
        else if (field->kind == FIELD_REFUSED && !is_neutral(value, field))
            return err_set(err, COHORT_E_UNSUPPORTED, name, "%s is not supported by this server yet", name);
    }
    return 0;
}
