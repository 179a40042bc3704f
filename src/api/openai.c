/* What OpenAI's two generating endpoints share (openai.h). Shapes follow the published API description. Loop thread. */
#include "api/openai.h"

#include <math.h>
#include <string.h>

const char *openai_finish_name(cohort_finish finish) {
    switch (finish) {
    case COHORT_FINISH_STOP:
        return "stop";
    case COHORT_FINISH_LENGTH:
        return "length";
    default:
        return "error";
    }
}

int openai_add_usage(const struct call *call, struct buf *out) {
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

int openai_add_head(const struct call *call, struct buf *out, const char *object) {
    int rc = buf_addf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", call->id, object,
                      (long long)call->created);
    const char *name = call->model_name;
    if (!rc) rc = buf_json_string(out, name, strlen(name));
    cohort_model_info info;
    cohort_model_get_info(server_model(call->server), &info);
    if (!rc) rc = buf_addf(out, ",\"system_fingerprint\":\"cohort-cpu-numerics-%d\"", info.numerics_version);
    return rc;
}

/* JSON has no infinities; a probability of zero is written as OpenAI writes it. */
double openai_logprob(float logprob) { return isfinite(logprob) ? (double)logprob : -9999.0; }

void openai_piece_of(const struct call *call, int32_t id, const char **bytes, size_t *len) {
    if (cohort_token_piece(server_model(call->server), id, bytes, len) != 0) {
        *bytes = "";
        *len = 0;
    }
}

static int add_token(const struct call *call, int32_t id, float logprob, struct buf *out) {
    const char *bytes;
    size_t len;
    openai_piece_of(call, id, &bytes, &len);
    int rc = buf_adds(out, "{\"token\":");
    if (!rc) rc = buf_json_string(out, bytes, len);
    if (!rc) rc = buf_addf(out, ",\"logprob\":%.9g,\"bytes\":[", openai_logprob(logprob));
    for (size_t i = 0; i < len && !rc; i++) rc = buf_addf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes[i]);
    if (!rc) rc = buf_adds(out, "]");
    return rc;
}

int openai_add_logprob(const struct call *call, const cohort_event *event, struct buf *out) {
    int rc = add_token(call, event->token, event->logprob, out);
    if (!rc) rc = buf_adds(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < event->top_n && !rc; i++) {
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = add_token(call, event->top[i].id, event->top[i].logprob, out);
        if (!rc) rc = buf_adds(out, "}");
    }
    return rc ? rc : buf_adds(out, "]}");
}

int openai_usage_event(struct call *call, struct buf *out, const char *object) {
    if (!call->params.include_usage) return 0;
    int rc = openai_add_head(call, out, object);
    if (!rc) rc = buf_adds(out, ",\"choices\":[],");
    if (!rc) rc = openai_add_usage(call, out);
    if (!rc) rc = buf_adds(out, "}\n");
    return rc;
}

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

int openai_check_known(struct call *call, const json_t *body, const struct known_field *fields, size_t n,
                       cohort_error *err) {
    char unknown[512];
    const struct known_list lists[] = {{common_fields, sizeof common_fields / sizeof common_fields[0]}, {fields, n}};
    int rc = fields_known(body, lists, sizeof lists / sizeof lists[0], unknown, sizeof unknown, err);
    if (unknown[0] && call->sink.http)
        evhttp_add_header(evhttp_request_get_output_headers(call->sink.http), "X-Cohort-Unknown-Fields", unknown);
    return rc;
}
