/* The fields of llama-server's generating endpoints (llama.h). Loop thread.
 *
 * Names and defaults are llama-server's: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, repeat_penalty 1 over 64
 * tokens, n_predict -1 (also as max_completion_tokens, max_tokens), n_probs 0 (also as
 * logprobs). Differences:
 *   - types are strict and ranges two-sided; what is out of range is refused, not clamped, except that a temperature
 *     below 0 is greedy and a seed of -1 or 4294967295 is none, as their users know it;
 *   - n_keep, n_discard, n_cache_reuse are read and change nothing: a context is never shifted. Nor does n_indent;
 *   - return_progress and lora are refused unless they are neutral, and grammar_lazy with its triggers: a grammar
 *     holds from the beginning;
 *   - timings come with the last event, also where timings_per_token asks for more of them;
 *   - n_probs is at most COHORT_TOP_LOGPROBS_MAX. */
#include <stdlib.h>
#include <string.h>

#include "api/forms.h"
#include "api/llama.h"
#include "api/openai.h"
#include "api/params.h"
#include "base/err.h"
#include "base/mem.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct known_field fields[] = {
    {"prompt", FIELD_READ, NULL},
    {"parse_special", FIELD_READ, NULL},
    {"n_predict", FIELD_READ, NULL},
    {"n_cmpl", FIELD_READ, NULL},
    {"n_probs", FIELD_READ, NULL},
    {"post_sampling_probs", FIELD_READ, NULL},
    {"return_tokens", FIELD_READ, NULL},
    {"response_fields", FIELD_READ, NULL},
    {"timings_per_token", FIELD_READ, NULL},
    {"snapshot_at", FIELD_READ, NULL},
    {"n_keep", FIELD_READ, NULL},
    {"n_discard", FIELD_READ, NULL},
    {"n_indent", FIELD_READ, NULL},
    {"n_cache_reuse", FIELD_READ, NULL},
    {"input_prefix", FIELD_READ, NULL}, /* of /infill */
    {"input_suffix", FIELD_READ, NULL},
    {"input_extra", FIELD_READ, NULL},
    {"verbose", FIELD_NEUTRAL, NULL},
    {"backend_sampling", FIELD_NEUTRAL, NULL},
    {"sse_ping_interval", FIELD_NEUTRAL, NULL},
    {"t_max_prompt_ms", FIELD_NEUTRAL, NULL},
    {"return_progress", FIELD_REFUSED, "false"},
    {"lora", FIELD_REFUSED, "[]"},
};

/* ---- sampling ---- */

enum { LAST_N = 64 };

void llama_sampling_defaults(cohort_sampling *s) {
    s->temperature = 0.8f;
    s->top_k = 40;
    s->top_p = 0.95f;
    s->min_p = 0.05f;
    s->repetition_window = s->answer_window = LAST_N;
}

static void set_defaults(const json_t *body, cohort_sampling *s) {
    cohort_sampling own = *s;
    int last_n = field_present(body, "repeat_last_n") != NULL;
    llama_sampling_defaults(&own);
    if (!field_present(body, "temperature")) s->temperature = own.temperature;
    if (!field_present(body, "top_k")) s->top_k = own.top_k;
    if (!field_present(body, "top_p")) s->top_p = own.top_p;
    if (!field_present(body, "min_p")) s->min_p = own.min_p;
    if (!last_n) s->repetition_window = own.repetition_window;
    if (!last_n && !field_present(body, "penalty_last_n")) s->answer_window = own.answer_window;
}

/* What means something of its own here is taken out for the fields that all endpoints share. */
static json_t *shared_part(const json_t *body) {
    json_t *rest = json_copy((json_t *)body);
    static const char *const ours[] = {"max_tokens", "max_completion_tokens", "n_predict", "n", "stream_options"};
    for (size_t i = 0; rest && i < COUNT(ours); i++) json_object_del(rest, ours[i]);
    const json_t *seed = json_object_get(rest, "seed"), *temperature = json_object_get(rest, "temperature");
    if (json_is_integer(seed) && json_integer_value(seed) == UINT32_MAX) json_object_del(rest, "seed");
    if (json_is_number(temperature) && json_number_value(temperature) < 0)
        json_object_set_new(rest, "temperature", json_integer(0));
    return rest;
}

static int read_shared(struct call *call, const json_t *body, cohort_error *err) {
    json_t *rest = shared_part(body);
    if (!rest) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    int rc = params_common(call, rest, err);
    if (!rc) set_defaults(rest, &call->params.sampling);
    json_decref(rest); /* what the params borrow is in the body as well */
    return rc;
}

/* ---- the rest ---- */

static int read_length(struct call *call, const json_t *body, struct llama_own *own, cohort_error *err) {
    static const char *const names[] = {"n_predict", "max_completion_tokens", "max_tokens"};
    struct params *p = &call->params;
    int rc = 0;
    own->n_predict = -1;
    for (size_t i = COUNT(names); i-- > 0 && !rc;) /* the first one counts, all must be right */
        rc = field_integer(body, names[i], -1, INT32_MAX, &own->n_predict, err);
    if (rc) return rc;
    p->max_tokens = own->n_predict < 0 ? UINT32_MAX : (uint32_t)own->n_predict;
    if (own->n_predict == 0) p->prompt_logprobs = 1; /* the prompt is read, and nobody looks at what is said of it */
    return 0;
}

static int read_counts(struct call *call, const json_t *body, struct llama_own *own, cohort_error *err) {
    int64_t n = 1, probs = 0, reuse = 0, slot = -1;
    int rc = field_integer(body, "n", 1, SERVER_CHOICES_MAX, &n, err);
    if (!rc) rc = field_integer(body, "n_cmpl", 1, SERVER_CHOICES_MAX, &n, err);
    if (!rc) rc = field_integer(body, "logprobs", 0, COHORT_TOP_LOGPROBS_MAX, &probs, err);
    if (!rc) rc = field_integer(body, "n_probs", 0, COHORT_TOP_LOGPROBS_MAX, &probs, err);
    if (!rc) rc = field_integer(body, "n_keep", -1, INT32_MAX, &own->n_keep, err);
    if (!rc) rc = field_integer(body, "n_discard", 0, INT32_MAX, &own->n_discard, err);
    if (!rc) rc = field_integer(body, "n_indent", 0, INT32_MAX, &own->n_indent, err);
    if (!rc) rc = field_integer(body, "n_cache_reuse", 0, INT32_MAX, &reuse, err);
    if (!rc) rc = field_integer(body, "id_slot", -1, INT32_MAX, &slot, err);
    call->params.n = call->params.tries = (uint32_t)n;
    call->params.logprobs = probs ? (int)probs : -1;
    own->slot = (int32_t)slot;
    return rc;
}

static int read_response_fields(const json_t *body, struct llama_own *own, cohort_error *err) {
    const json_t *list = field_present(body, "response_fields");
    if (!list) return 0;
    if (!json_is_array(list) || json_array_size(list) > LLAMA_FIELDS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "response_fields",
                       "response_fields must be an array of at most %d names", LLAMA_FIELDS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);
        if (!json_is_string(name) || json_string_length(name) > LLAMA_FIELD_BYTES_MAX)
            return err_set(err, COHORT_E_ARGUMENT, "response_fields",
                           "response_fields[%zu] must be a string of at most %d bytes", i, LLAMA_FIELD_BYTES_MAX);
    }
    if (json_array_size(list)) own->fields = json_incref((json_t *)list);
    return 0;
}

/* The body is gone when the answer tells these. */
static int keep_told(const json_t *body, struct llama_own *own, cohort_error *err) {
    static const char *const names[] = {"stop", "logit_bias", "samplers", "dry_sequence_breakers", "grammar"};
    own->told = json_object();
    int rc = own->told ? 0 : -1;
    for (size_t i = 0; i < COUNT(names) && !rc; i++) {
        const json_t *value = field_present(body, names[i]);
        if (value) rc = json_object_set(own->told, names[i], (json_t *)value);
    }
    return rc ? err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request") : 0;
}

int llama_read(struct call *call, const json_t *body, cohort_error *err) {
    struct params *p = &call->params;
    struct llama_own *own = call->own = mem_zalloc(1, sizeof *own);
    if (!own) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    int rc = openai_check_known(call, body, fields, COUNT(fields), err);
    if (!rc && field_present(body, "prompt_logprobs"))
        rc = err_set(err, COHORT_E_UNSUPPORTED, "prompt_logprobs", "prompt_logprobs is for /v1/completions");
    if (!rc) rc = read_shared(call, body, err);
    if (!rc) rc = cache_read_snapshots(body, &p->cache, err);
    if (!rc) rc = read_counts(call, body, own, err);
    if (!rc) rc = read_length(call, body, own, err);
    if (!rc) rc = field_bool(body, "parse_special", &own->special, err);
    if (!rc) rc = field_bool(body, "return_tokens", &own->return_tokens, err);
    if (!rc) rc = field_bool(body, "timings_per_token", &own->timings_per_token, err);
    if (!rc) rc = field_bool(body, "post_sampling_probs", &p->post_sampling, err);
    if (!rc) rc = forms_read(call, body, 0, err);
    if (!rc) rc = read_response_fields(body, own, err);
    if (!rc) rc = keep_told(body, own, err);
    p->keep_prompts = 1; /* the answer tells the prompt's text */
    return rc;
}

/* ---- what was understood ---- */

static const char *const sampler_names[COHORT_SAMPLERS + 1] = {
    NULL, "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"};

static int add_samplers(const cohort_sampling *s, struct buf *out) {
    uint32_t n = s->order_n ? s->order_n : COHORT_SAMPLERS;
    int rc = buf_adds(out, ",\"samplers\":[");
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = buf_addf(out, "%s\"%s\"", i ? "," : "", sampler_names[s->order_n ? s->order[i] : i + 1]);
    return rc ? rc : buf_adds(out, "]");
}

/* A field as it came, as a list if it is one otherwise; `otherwise` if it did not come. */
static int add_told(const struct llama_own *own, const char *name, const char *otherwise, struct buf *out) {
    const json_t *value = own ? json_object_get(own->told, name) : NULL;
    int wrap = json_is_string(value) && *otherwise == '[';
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (value && !text) return COHORT_E_MEMORY;
    int rc = buf_addf(out, ",\"%s\":%s", name, wrap ? "[" : "");
    if (!rc) rc = buf_adds(out, text ? text : otherwise);
    if (!rc && wrap) rc = buf_adds(out, "]");
    free(text);
    return rc;
}

int llama_add_settings(const struct params *p, const struct llama_own *own, struct buf *out) {
    const cohort_sampling *s = &p->sampling;
    long long n_predict = own ? (long long)own->n_predict : -1;
    int rc = buf_addf(out,
                      "{\"seed\":%lld,\"temperature\":%.9g,\"dynatemp_range\":%.9g,\"dynatemp_exponent\":%.9g,"
                      "\"top_k\":%d,\"top_p\":%.9g,\"min_p\":%.9g,\"top_n_sigma\":%.9g,\"xtc_probability\":%.9g,"
                      "\"xtc_threshold\":%.9g,\"typical_p\":%.9g,\"repeat_last_n\":%d,\"repeat_penalty\":%.9g,"
                      "\"presence_penalty\":%.9g,\"frequency_penalty\":%.9g,",
                      s->has_seed ? (long long)s->seed : 4294967295ll, s->temperature, s->temperature_range,
                      s->temperature_exponent, s->top_k, s->top_p, s->min_p,
                      s->top_n_sigma > 0 ? s->top_n_sigma : -1.0f, s->xtc_probability, s->xtc_threshold, s->typical_p,
                      s->repetition_window, s->repetition_penalty, s->presence_penalty, s->frequency_penalty);
    if (!rc)
        rc = buf_addf(out,
                      "\"dry_multiplier\":%.9g,\"dry_base\":%.9g,\"dry_allowed_length\":%u,\"dry_penalty_last_n\":%d,"
                      "\"mirostat\":%d,\"mirostat_tau\":%.9g,\"mirostat_eta\":%.9g,\"max_tokens\":%lld,"
                      "\"n_predict\":%lld,\"n_keep\":%lld,\"n_discard\":%lld,\"ignore_eos\":%s,\"stream\":%s,"
                      "\"n_probs\":%d,\"min_keep\":%u,\"timings_per_token\":%s,"
                      "\"post_sampling_probs\":%s,\"lora\":[]",
                      s->dry_multiplier, s->dry_base, s->dry_allowed_length, s->dry_window, s->mirostat,
                      s->mirostat_tau, s->mirostat_eta, n_predict, n_predict, own ? (long long)own->n_keep : 0,
                      own ? (long long)own->n_discard : 0, p->ignore_eos ? "true" : "false",
                      p->stream ? "true" : "false", p->logprobs > 0 ? p->logprobs : 0, s->min_keep,
                      own && own->timings_per_token ? "true" : "false", p->post_sampling ? "true" : "false");
    if (!rc) rc = add_told(own, "grammar", "\"\"", out);
    if (!rc) rc = add_told(own, "stop", "[]", out);
    if (!rc) rc = add_told(own, "logit_bias", "[]", out);
    if (!rc) rc = add_told(own, "dry_sequence_breakers", "[\"\\n\",\":\",\"\\\"\",\"*\"]", out);
    if (!rc) rc = add_samplers(s, out);
    return rc ? rc : buf_adds(out, "}");
}
