/* Embeddings: OpenAI's /v1/embeddings, and llama-server's /embedding, also as /embeddings. Loop thread. Each input is a
 * row of the running batch like any other; the vectors of a request come in its inputs' order.
 *
 * input            a string, an array of strings, ids, or an array of arrays of ids: at most SERVER_CHOICES_MAX inputs,
 *                  none empty. llama-server's: also as content. Text gets the begin token if the vocabulary wants one
 * encoding_format  "float", or "base64": the vector's fp32 values, little-endian
 * dimensions       1 to the model's width: so many of the first components
 * pooling          (our own) "mean", "cls" or "last"; the file's own kind if it is absent, else the mean
 * normalize        (our own, true) to a length of 1: after the cut, in double, each component rounded once; a vector of
 *                  zeros stays. llama-server's: embd_normalize 2 (the same) or -1 (not); its other norms are refused
 * priority, timeout_ms, cache_prompt, cache_salt, user as for other endpoints
 *
 * llama-server's reply is [{"index", "embedding": [[...]]}]; its pooling "none" (a vector for each token) is refused.
 */
#include <math.h>
#include <string.h>

#include "api/llama.h"
#include "api/openai.h"
#include "api/params.h"
#include "api/routes.h"
#include "base/err.h"
#include "base/mem.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct embed {
    uint32_t dimensions; /* 0: all */
    int base64, normalize;
};

static const struct known_field fields[] = {
    {"model", FIELD_READ, NULL},           {"input", FIELD_READ, NULL},          {"content", FIELD_READ, NULL},
    {"encoding_format", FIELD_READ, NULL}, {"dimensions", FIELD_READ, NULL},     {"pooling", FIELD_READ, NULL},
    {"normalize", FIELD_READ, NULL},       {"embd_normalize", FIELD_READ, NULL}, {"priority", FIELD_READ, NULL},
    {"timeout_ms", FIELD_READ, NULL},      {"cache_prompt", FIELD_READ, NULL},   {"cache_salt", FIELD_READ, NULL},
    {"user", FIELD_NEUTRAL, NULL},         {"stream", FIELD_REFUSED, "false"},   {"store", FIELD_REFUSED, "false"},
};

/* ---- what is asked ---- */

static int add_input(struct call *call, const json_t *value, const char *field, cohort_error *err) {
    struct prompt *prompt = &call->prompts[call->prompts_n++];
    if (json_is_string(value) && json_string_length(value)) {
        prompt->text = json_string_value(value);
        prompt->text_len = json_string_length(value);
        return 0;
    }
    if (json_is_array(value) && json_array_size(value))
        return params_ids(call, value, field, &prompt->ids, &prompt->ids_n, err);
    return err_set(err, COHORT_E_ARGUMENT, field, "%s must be a string or an array of token ids, and not empty", field);
}

static int read_inputs(struct call *call, const json_t *body, cohort_error *err) {
    const char *name = field_present(body, "content") && !field_present(body, "input") ? "content" : "input";
    const json_t *input = field_present(body, name);
    if (!input) return err_set(err, COHORT_E_ARGUMENT, "input", "input is missing");
    int several = json_array_size(input) && !json_is_integer(json_array_get(input, 0)), rc = 0;
    size_t n = several ? json_array_size(input) : 1;
    if (n > SERVER_CHOICES_MAX)
        return err_set(err, COHORT_E_ARGUMENT, name, "%zu inputs are more than %d", n, SERVER_CHOICES_MAX);
    call->prompts = mem_zalloc(n, sizeof *call->prompts);
    if (!call->prompts) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu inputs", n);
    if (!several) return add_input(call, input, name, err);
    for (size_t i = 0; i < n && !rc; i++) {
        char field[32];
        snprintf(field, sizeof field, "%s[%zu]", name, i);
        rc = add_input(call, json_array_get(input, i), field, err);
    }
    return rc;
}

/* One of a few words; *out is its index. */
static int read_word(const json_t *body, const char *name, const char *const *words, int n, int *out,
                     cohort_error *err) {
    const json_t *value = field_present(body, name);
    char all[96] = "";
    if (!value) return 0;
    for (int i = 0; i < n; i++) {
        if (json_is_string(value) && strcmp(json_string_value(value), words[i]) == 0) {
            *out = i;
            return 0;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s\"%s\"", i ? ", " : "", words[i]);
    }
    return err_set(err, COHORT_E_ARGUMENT, name, "%s must be one of %s", name, all);
}

static int read_pooling(const cohort_model_info *info, const json_t *body, cohort_pooling *out, cohort_error *err) {
    static const char *const names[] = {"mean", "cls", "last"};
    static const cohort_pooling kinds[] = {COHORT_POOLING_MEAN, COHORT_POOLING_CLS, COHORT_POOLING_LAST};
    int which = -1, rc = read_word(body, "pooling", names, COUNT(names), &which, err);
    *out = which >= 0 ? kinds[which] : info->pooling == COHORT_POOLING_NONE ? COHORT_POOLING_MEAN : info->pooling;
    return rc;
}

static int read_norm(const json_t *body, struct embed *embed, cohort_error *err) {
    int64_t norm = 2;
    embed->normalize = 1;
    int rc = field_bool(body, "normalize", &embed->normalize, err);
    if (rc || !field_present(body, "embd_normalize")) return rc;
    rc = field_integer(body, "embd_normalize", -1, INT32_MAX, &norm, err);
    if (!rc && norm != -1 && norm != 2)
        return err_set(err, COHORT_E_UNSUPPORTED, "embd_normalize",
                       "embd_normalize can be -1 (not at all) or 2 (to a length of 1)");
    embed->normalize = norm == 2;
    return rc;
}

static int read_fields(struct call *call, const json_t *body, cohort_error *err) {
    static const char *const formats[] = {"float", "base64"};
    struct params *p = &call->params;
    struct embed *embed = call->own;
    int64_t dimensions = 0, priority = 0, timeout = 0;
    cohort_model_info info;
    cohort_model_get_info(server_model(call->server), &info);
    const json_t *model = field_present(body, "model");
    if (model && !json_is_string(model))
        return err_set(err, COHORT_E_ARGUMENT, "model", "model must be a string, not %s", field_type(model));
    int rc = cache_read(body, &p->cache, err);
    if (!rc) rc = read_word(body, "encoding_format", formats, COUNT(formats), &embed->base64, err);
    if (!rc) rc = field_integer(body, "dimensions", 1, info.embedding_width, &dimensions, err);
    if (!rc) rc = field_integer(body, "priority", -COHORT_PRIORITY_MAX, COHORT_PRIORITY_MAX, &priority, err);
    if (!rc) rc = field_integer(body, "timeout_ms", 0, UINT32_MAX, &timeout, err);
    if (!rc) rc = read_norm(body, embed, err);
    if (!rc) rc = read_pooling(&info, body, &p->pooling, err);
    embed->dimensions = (uint32_t)dimensions;
    p->priority = (int32_t)priority;
    p->timeout_ms = (uint32_t)timeout;
    return rc;
}

static int parse(struct call *call, const json_t *body, cohort_error *err) {
    static const struct known_list known = {fields, COUNT(fields)};
    struct params *p = &call->params;
    char unknown[512];
    cohort_request defaults;
    cohort_request_defaults(&defaults);
    p->sampling = defaults.sampling;
    p->n = p->tries = 1;
    p->logprobs = -1; /* store stays 0: a vector is made again as quickly as it is read */
    call->own = mem_zalloc(1, sizeof(struct embed));
    if (!call->own) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    int rc = fields_known(body, &known, 1, unknown, sizeof unknown, err);
    reply_unknown(call->sink.http, unknown);
    if (!rc) rc = read_fields(call, body, err);
    return rc ? rc : read_inputs(call, body, err);
}

static size_t text_bytes(const struct glance *glance) {
    (void)glance;
    return 0; /* it knows prompts and messages */
}

static void forget(struct call *call) { mem_free(call->own); }

/* ---- vectors ---- */

static float component(const cohort_event *event, uint32_t i, double length) {
    return (float)((double)event->embedding[i] / length);
}

static int add_floats(const cohort_event *event, uint32_t n, double length, struct buf *out) {
    int rc = buf_adds(out, "[");
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = buf_addf(out, "%s%.9g", i ? "," : "", (double)component(event, i, length));
    return rc ? rc : buf_adds(out, "]");
}

static int add_base64(const cohort_event *event, uint32_t n, double length, struct buf *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t group = 0;
    size_t bytes = 0;
    int rc = buf_adds(out, "\"");
    for (size_t i = 0; i < (size_t)n * 4 && !rc; i++) {
        float value = component(event, (uint32_t)(i / 4), length);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        group = group << 8 | (bits >> 8 * (i % 4) & 0xff);
        if (++bytes % 3) continue;
        const char four[4] = {digits[group >> 18 & 63], digits[group >> 12 & 63], digits[group >> 6 & 63],
                              digits[group & 63]};
        rc = buf_add(out, four, 4);
    }
    if (!rc && bytes % 3 == 1) {
        const char four[4] = {digits[group >> 2 & 63], digits[group << 4 & 63], '=', '='};
        rc = buf_add(out, four, 4);
    } else if (!rc && bytes % 3 == 2) {
        const char four[4] = {digits[group >> 10 & 63], digits[group >> 4 & 63], digits[group << 2 & 63], '='};
        rc = buf_add(out, four, 4);
    }
    return rc ? rc : buf_adds(out, "\"");
}

static int collect(struct choice *choice, const cohort_event *event) {
    const struct embed *embed = choice->call->own;
    if (event->type != COHORT_EVENT_EMBEDDING) return 0;
    uint32_t n = embed->dimensions ? embed->dimensions : event->embedding_n;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)event->embedding[i] * (double)event->embedding[i];
    double length = embed->normalize && sum > 0 ? sqrt(sum) : 1;
    return embed->base64 ? add_base64(event, n, length, &choice->text) : add_floats(event, n, length, &choice->text);
}

/* ---- replies ---- */

static int whole_openai(struct call *call, struct buf *out) {
    unsigned long long tokens = 0;
    int rc = buf_adds(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < call->choices_n && !rc; i++) {
        const struct choice *choice = &call->choices[i];
        tokens += choice->stats.prompt_tokens;
        rc = buf_addf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "", i);
        if (!rc) rc = buf_add(out, choice->text.data, choice->text.len);
        if (!rc) rc = buf_adds(out, "}");
    }
    if (!rc) rc = buf_adds(out, "],\"model\":");
    if (!rc) rc = buf_json_string(out, call->model_name, strlen(call->model_name));
    return rc ? rc : buf_addf(out, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", tokens, tokens);
}

static int whole_llama(struct call *call, struct buf *out) {
    int rc = buf_adds(out, "[");
    for (size_t i = 0; i < call->choices_n && !rc; i++) {
        const struct choice *choice = &call->choices[i];
        rc = buf_addf(out, "%s{\"index\":%zu,\"embedding\":[", i ? "," : "", i);
        if (!rc) rc = buf_add(out, choice->text.data, choice->text.len);
        if (!rc) rc = buf_adds(out, "]}");
    }
    return rc ? rc : buf_adds(out, "]");
}

/* Neither is streamed or stored: they have no pieces. */
const struct dialect dialect_embeddings = {
    .path = "/v1/embeddings",
    .id_prefix = "embd-",
    .input = "input",
    .errors = &error_shape_openai,
    .text_bytes = text_bytes,
    .parse = parse,
    .collect = collect,
    .whole = whole_openai,
    .forget = forget,
};

const struct dialect dialect_embedding = {
    .path = "/embedding",
    .id_prefix = "embedding-",
    .input = "content",
    .errors = &error_shape_llama,
    .text_bytes = text_bytes,
    .parse = parse,
    .collect = collect,
    .whole = whole_llama,
    .forget = forget,
};
