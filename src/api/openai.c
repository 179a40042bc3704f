/* What OpenAI's two generating endpoints share (openai.h). Shapes follow the published API description. Loop thread. */
#include "api/openai.h"

#include <math.h>
#include <string.h>

#include "api/forms.h"
#include "api/params.h"
#include "api/sampling.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/server.h"

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
    uint64_t prompt = 0, cached = 0, generated = 0, reasoning = 0;
    for (size_t i = 0; i < call->choices_n; i++) {
        const cohort_stats *stats = &call->choices[i].stats;
        /* Choices of one prompt share it: it counts once. */
        if (i % call->params.tries == 0) {
            prompt += stats->prompt_tokens;
            cached += stats->cached_tokens;
        }
        generated += stats->generated_tokens;
        if (call->choices[i].said.reasoned) reasoning += stats->reasoning_tokens;
    }
    return buf_addf(out,
                    "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
                    "\"prompt_tokens_details\":{\"audio_tokens\":0,\"cached_tokens\":%llu},"
                    "\"completion_tokens_details\":{\"accepted_prediction_tokens\":0,\"audio_tokens\":0,"
                    "\"reasoning_tokens\":%llu,\"rejected_prediction_tokens\":0}}",
                    (unsigned long long)prompt, (unsigned long long)generated, (unsigned long long)(prompt + generated),
                    (unsigned long long)cached, (unsigned long long)reasoning);
}

int openai_add_usage_so_far(const struct choice *choice, const cohort_event *event, struct buf *out) {
    if (!choice->call->params.include_usage) return 0;
    if (!openai_of(choice->call)->usage_so_far) return buf_adds(out, ",\"usage\":null");
    unsigned long long prompt = openai_prompt_of(choice)->ids_n, generated = 0;
    if (event && event->type == COHORT_EVENT_TOKEN) generated = event->index + 1ull;
    if (event && event->type == COHORT_EVENT_FINISH) generated = event->stats.generated_tokens;
    return buf_addf(out, ",\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu}", prompt,
                    generated, prompt + generated);
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

int openai_add_logprob(const struct call *call, const cohort_event *event, uint32_t most, struct buf *out) {
    int rc = add_token(call, event->token, event->logprob, out);
    if (!rc) rc = buf_adds(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < event->top_n && i < most && !rc; i++) {
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

/* ---- token ids, and the prompt's log-probabilities ---- */

int openai_add_prompt_ids(const struct choice *choice, struct buf *out) {
    const struct prompt *prompt = openai_prompt_of(choice);
    if (!openai_of(choice->call)->ids) return 0;
    int rc = buf_adds(out, ",\"prompt_token_ids\":[");
    for (size_t i = 0; i < prompt->ids_n && !rc; i++) rc = buf_addf(out, "%s%d", i ? "," : "", prompt->ids[i]);
    return rc ? rc : buf_adds(out, "]");
}

int openai_add_ids(const struct choice *choice, const cohort_event *event, struct buf *out) {
    if (!openai_of(choice->call)->ids) return 0;
    const struct buf *ids = &openai_choice_of(choice)->ids;
    if (!event) return buf_addf(out, ",\"token_ids\":[%s]", ids->len ? ids->data : "");
    return event->type == COHORT_EVENT_TOKEN ? buf_addf(out, ",\"token_ids\":[%d]", event->token)
                                             : buf_adds(out, ",\"token_ids\":[]");
}

int openai_count(struct choice *choice, const cohort_event *event) {
    struct openai_choice *own = openai_choice_of(choice);
    int ends = event->type == COHORT_EVENT_FINISH && event->stop_token >= 0;
    if (event->type != COHORT_EVENT_TOKEN && !ends) return 0;
    own->logprobs += openai_logprob(event->logprob);
    own->tokens++;
    if (ends || !openai_of(choice->call)->ids) return 0;
    return buf_addf(&own->ids, "%s%d", own->ids.len ? "," : "", event->token);
}

static size_t collected_bytes(const struct choice *choice) {
    const struct openai_choice *own = openai_choice_of(choice);
    return choice->text.len + choice->blocks_bytes + choice->tokens.len + choice->logprobs.len +
           choice->top_logprobs.len + choice->offsets.len + own->ids.len + own->prompt.len;
}

int openai_collect(struct choice *choice, const cohort_event *event,
                   int (*take)(struct choice *choice, const cohort_event *event)) {
    struct openai *own = openai_of(choice->call);
    size_t before = collected_bytes(choice);
    int rc = take(choice, event);
    own->held += collected_bytes(choice) - before;
    return !rc && own->held > OPENAI_REPLY_BYTES_MAX ? COHORT_E_LIMIT : rc;
}

/* {"id":{"logprob":...,"rank":...,"decoded_token":...}: the rank is known of the best ones only. */
static int add_ranked(const struct call *call, int32_t id, float logprob, uint32_t rank, struct buf *out) {
    const char *bytes;
    size_t len;
    openai_piece_of(call, id, &bytes, &len);
    int rc = buf_addf(out, "\"%d\":{\"logprob\":%.9g,\"rank\":", id, openai_logprob(logprob));
    if (!rc) rc = rank ? buf_addf(out, "%u", rank) : buf_adds(out, "null");
    if (!rc) rc = buf_adds(out, ",\"decoded_token\":");
    if (!rc) rc = buf_json_string(out, bytes, len);
    return rc ? rc : buf_adds(out, "}");
}

int openai_prompt_logprob(struct choice *choice, const cohort_event *event) {
    const struct prompt *prompt = openai_prompt_of(choice);
    const struct openai *own = openai_of(choice->call);
    struct buf *out = &openai_choice_of(choice)->prompt;
    if (own->prompt_top < 0 || event->index + 1ull >= prompt->ids_n) return 0;
    int32_t next = prompt->ids[event->index + 1];
    uint32_t rank = 0, most = (uint32_t)own->prompt_top;
    for (uint32_t i = 0; i < event->top_n && !rank; i++)
        if (event->top[i].id == next) rank = i + 1;
    int rc = buf_adds(out, ",{");
    if (!rc) rc = add_ranked(choice->call, next, event->logprob, rank, out);
    for (uint32_t i = 0; i < event->top_n && i < most && !rc; i++) {
        if (event->top[i].id == next) continue;
        rc = buf_adds(out, ",");
        if (!rc) rc = add_ranked(choice->call, event->top[i].id, event->top[i].logprob, i + 1, out);
    }
    return rc ? rc : buf_adds(out, "}");
}

int openai_add_prompt_logprobs(const struct choice *choice, struct buf *out) {
    const struct buf *prompt = &openai_choice_of(choice)->prompt;
    if (openai_of(choice->call)->prompt_top < 0) return 0;
    return buf_addf(out, ",\"prompt_logprobs\":[null%s]", prompt->len ? prompt->data : "");
}

/* ---- bodies ---- */

static const struct known_field common_fields[] = {
    {"model", FIELD_READ, NULL},
    {"max_tokens", FIELD_READ, NULL},
    {"max_completion_tokens", FIELD_READ, NULL},
    {"n_predict", FIELD_READ, NULL},
    {"stop", FIELD_READ, NULL},
    {"stream", FIELD_READ, NULL},
    {"stream_options", FIELD_READ, NULL},
    {"n", FIELD_READ, NULL},
    {"logprobs", FIELD_READ, NULL},
    {"prompt_logprobs", FIELD_READ, NULL},
    {"post_sampling_probs", FIELD_READ, NULL},
    {"return_token_ids", FIELD_READ, NULL},
    {"return_tokens", FIELD_READ, NULL},
    {"store", FIELD_READ, NULL},
    {"prompt_cache_key", FIELD_NEUTRAL, "\"\""},
    {"prompt_cache_retention", FIELD_NEUTRAL, "\"\""},
    {"prompt_cache_options", FIELD_NEUTRAL, "{}"},
    {"user", FIELD_NEUTRAL, "\"\""},
    {"safety_identifier", FIELD_NEUTRAL, "\"\""},
    {"metadata", FIELD_NEUTRAL, "{}"},
    {"service_tier", FIELD_REFUSED, "\"auto\" \"default\""},
    /* what would change the answer and is not there */
    {"skip_special_tokens", FIELD_REFUSED, "true"},
    {"spaces_between_special_tokens", FIELD_REFUSED, "true"},
    {"truncate_prompt_tokens", FIELD_REFUSED, NULL},
    {"n_keep", FIELD_REFUSED, "0"},
    {"stop_regex", FIELD_REFUSED, NULL},
    {"logits_processors", FIELD_REFUSED, "[]"},
    {"lora", FIELD_REFUSED, "[]"},
    {"lora_path", FIELD_REFUSED, NULL},
    {"use_beam_search", FIELD_REFUSED, "false"},
    {"length_penalty", FIELD_REFUSED, "1"},
    {"thinking_token_budget", FIELD_REFUSED, "-1"},
    {"reasoning_budget_tokens", FIELD_REFUSED, "-1"},
    {"thinking_budget_tokens", FIELD_REFUSED, "-1"},
    {"reasoning_budget_message", FIELD_REFUSED, "\"\""},
    {"repetition_detection", FIELD_REFUSED, NULL},
};

int openai_check_known(struct call *call, const json_t *body, const struct known_field *fields, size_t n,
                       cohort_error *err) {
    char unknown[512];
    const struct known_list lists[] = {/* what the endpoint says of a field goes before what is common */
                                       {fields, n},
                                       {common_fields, sizeof common_fields / sizeof common_fields[0]},
                                       params_known,
                                       sampling_known,
                                       forms_known};
    int rc = fields_known(body, lists, sizeof lists / sizeof lists[0], unknown, sizeof unknown, err);
    reply_unknown(call->sink.http, unknown);
    return rc;
}

static int read_stream_options(const json_t *body, struct openai *own, cohort_error *err) {
    const json_t *options = field_present(body, "stream_options");
    int obfuscation = 0;
    if (!options) return 0;
    int rc = field_bool(options, "continuous_usage_stats", &own->usage_so_far, err);
    return rc ? rc : field_bool(options, "include_obfuscation", &obfuscation, err);
}

/* llama-server's name. */
static int read_n_predict(struct params *p, const json_t *body, cohort_error *err) {
    int64_t n = -1;
    int rc = field_integer(body, "n_predict", -1, INT32_MAX, &n, err);
    if (n >= 0 && p->max_tokens == UINT32_MAX) p->max_tokens = (uint32_t)n;
    return rc;
}

int openai_parse(struct call *call, const json_t *body, const struct known_field *fields, size_t n, cohort_error *err) {
    struct params *p = &call->params;
    struct openai *own = call->own = mem_zalloc(1, sizeof *own);
    if (!own) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    own->logprobs = own->prompt_top = -1;
    own->add_begin = 1;
    int64_t prompt_top = -1;
    int rc = openai_check_known(call, body, fields, n, err);
    if (!rc) rc = params_common(call, body, err);
    if (!rc) rc = params_metadata(body, err);
    if (!rc) rc = read_stream_options(body, own, err);
    if (!rc) rc = field_integer(body, "prompt_logprobs", 0, COHORT_TOP_LOGPROBS_MAX, &prompt_top, err);
    if (!rc) rc = field_bool(body, "post_sampling_probs", &p->post_sampling, err);
    if (!rc) rc = field_bool(body, "return_tokens", &own->ids, err);
    if (!rc) rc = field_bool(body, "return_token_ids", &own->ids, err);
    own->prompt_top = (int)prompt_top;
    return rc ? rc : read_n_predict(p, body, err);
}

/* Names the field that a call with it cannot be stored. */
static int check_store(const struct call *call, const char *field, cohort_error *err) {
    const struct params *p = &call->params;
    if (p->store == 1) return err_set(err, COHORT_E_ARGUMENT, "store", "store: a call with %s cannot be stored", field);
    if (p->store == -1 && server_get_options(call->server)->store == SERVER_STORE_ALL)
        return err_set(err, COHORT_E_ARGUMENT, "store",
                       "store: this server stores every call, and one with %s cannot be: say \"store\": false", field);
    return 0;
}

static int make_places(struct call *call, cohort_error *err) {
    struct openai *own = openai_of(call);
    size_t n = call->prompts_n * call->params.tries;
    own->choices = mem_zalloc(n, sizeof *own->choices);
    if (!own->choices) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu choices", n);
    own->choices_n = n;
    for (size_t i = 0; i < n; i++) own->choices[i].ids.max = own->choices[i].prompt.max = SERVER_RESULT_BYTES_MAX;
    return 0;
}

int openai_settle(struct call *call, cohort_error *err) {
    struct params *p = &call->params;
    struct openai *own = openai_of(call);
    int rc = 0;
    if (p->min_tokens > p->max_tokens)
        return err_set(err, COHORT_E_ARGUMENT, "min_tokens", "min_tokens is %u, above max_tokens, which is %u",
                       p->min_tokens, p->max_tokens);
    if (p->max_tokens == 0 && !own->echo && own->prompt_top < 0)
        return err_set(err, COHORT_E_ARGUMENT, "max_tokens",
                       "max_tokens must be at least 1, but with echo or prompt_logprobs");
    if (own->prompt_top >= 0 && p->stream)
        return err_set(err, COHORT_E_ARGUMENT, "prompt_logprobs", "prompt_logprobs are not streamed");
    if (p->tries > p->n && p->stream)
        return err_set(err, COHORT_E_ARGUMENT, "best_of", "best_of above n cannot be streamed");
    if (own->echo) rc = check_store(call, "echo", err);
    if (!rc && own->prompt_top >= 0) rc = check_store(call, "prompt_logprobs", err);
    if (!rc && p->tries > p->n) rc = check_store(call, "best_of", err);
    if (rc) return rc;
    p->prompt_logprobs = (own->echo && own->logprobs >= 0) || own->prompt_top >= 0 || p->max_tokens == 0;
    p->logprobs = own->logprobs > own->prompt_top ? own->logprobs : own->prompt_top;
    if (p->logprobs < 0 && p->tries > p->n) p->logprobs = 0; /* to tell the best */
    p->keep_prompts = own->ids || p->prompt_logprobs;
    return make_places(call, err);
}

/* The prompt as it is echoed: the text that came, or what its ids spell. */
static int keep_echo(struct call *call, size_t i, cohort_error *err) {
    const struct prompt *prompt = &call->prompts[i];
    struct buf *echo = &openai_of(call)->echoes[i];
    char *spelled = NULL;
    const char *text = prompt->text;
    size_t len = prompt->text_len;
    if (!text) {
        int rc = cohort_detokenize(server_model(call->server), prompt->ids, prompt->ids_n, 0, &spelled, &len, err);
        if (rc) return rc;
        text = spelled;
    }
    int rc = buf_add(echo, text, len);
    cohort_free(spelled);
    return rc ? err_set(err, rc, "echo", "no memory for the echo") : 0;
}

int openai_prepare(struct call *call, cohort_error *err) {
    struct openai *own = openai_of(call);
    int rc = sampling_prepare(call, err);
    if (rc) return rc;
    if (own->echo) {
        own->echoes = mem_zalloc(call->prompts_n, sizeof *own->echoes);
        if (!own->echoes) return err_set(err, COHORT_E_MEMORY, "echo", "no memory for the echo");
        own->echoes_n = call->prompts_n;
    }
    for (size_t i = 0; i < own->echoes_n && !rc; i++) rc = keep_echo(call, i, err);
    for (size_t i = 0; i < call->prompts_n && !rc && !own->add_begin; i++) {
        struct prompt *prompt = &call->prompts[i];
        if (!prompt->text) continue;
        rc = cohort_tokenize(server_model(call->server), prompt->text, prompt->text_len, 0, &prompt->ids,
                             &prompt->ids_n, err);
        prompt->text = NULL;
        if (!rc && prompt->ids_n == 0) rc = err_set(err, COHORT_E_ARGUMENT, "prompt", "prompt has no tokens");
    }
    return rc;
}

void openai_forget(struct call *call) {
    struct openai *own = call->own;
    if (!own) return;
    for (size_t i = 0; i < own->echoes_n; i++) buf_free(&own->echoes[i]);
    for (size_t i = 0; i < own->choices_n; i++) {
        buf_free(&own->choices[i].ids);
        buf_free(&own->choices[i].prompt);
    }
    mem_free(own->echoes);
    mem_free(own->choices);
    mem_free(own);
    call->own = NULL;
}
