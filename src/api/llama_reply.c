/* How llama-server's generating endpoints tell answers and errors (llama.h). Loop thread. */
#include <stdlib.h>
#include <string.h>

#include "api/llama.h"
#include "api/openai.h"
#include "base/fmath.h"

/* ---- errors ---- */

static const char *error_type(const struct error_view *e) {
    if (e->code && strcmp(e->code, "context_length_exceeded") == 0) return "exceed_context_size_error";
    if (e->code && strcmp(e->code, "unsupported_value") == 0) return "not_supported_error";
    switch (e->status) {
    case 404:
        return "not_found_error";
    case 503:
        return "unavailable_error";
    default:
        return e->type;
    }
}

static int write_error(struct buf *out, const struct error_view *e) {
    int rc = buf_addf(out, "{\"error\":{\"code\":%d,\"message\":", e->status);
    if (!rc) rc = buf_json_string(out, e->message, strlen(e->message));
    if (!rc) rc = buf_addf(out, ",\"type\":\"%s\"", error_type(e));
    if (!rc && e->param && *e->param) {
        rc = buf_adds(out, ",\"param\":");
        if (!rc) rc = buf_json_string(out, e->param, strlen(e->param));
    }
    return rc ? rc : buf_adds(out, "}}");
}

const struct error_shape error_shape_llama = {.write = write_error};

/* ---- answers ---- */

static int add_probability(const struct call *call, int32_t id, float logprob, struct buf *out) {
    const char *bytes;
    size_t len;
    openai_piece_of(call, id, &bytes, &len);
    int rc = buf_addf(out, "{\"id\":%d,\"token\":", id);
    if (!rc) rc = buf_json_string(out, bytes, len);
    if (!rc) rc = buf_adds(out, ",\"bytes\":[");
    for (size_t i = 0; i < len && !rc; i++) rc = buf_addf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes[i]);
    if (rc) return rc;
    if (!call->params.post_sampling) return buf_addf(out, "],\"logprob\":%.9g", openai_logprob(logprob));
    double value = logprob > -700.0f ? fmath_exp((double)logprob) : 0;
    return buf_addf(out, "],\"prob\":%.9g", value);
}

static int add_probabilities(const struct call *call, const cohort_event *event, struct buf *out) {
    int rc = add_probability(call, event->token, event->logprob, out);
    if (!rc) rc = buf_addf(out, ",\"top_%s\":[", call->params.post_sampling ? "probs" : "logprobs");
    for (uint32_t i = 0; i < event->top_n && !rc; i++) {
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = add_probability(call, event->top[i].id, event->top[i].logprob, out);
        if (!rc) rc = buf_adds(out, "}");
    }
    return rc ? rc : buf_adds(out, "]}");
}

static double per(double a, double b) { return b > 0 ? a / b : 0; }

static int add_timings(const cohort_stats *stats, struct buf *out) {
    double read = stats->prompt_tokens - stats->cached_tokens, made = stats->generated_tokens;
    double read_ms = (double)stats->prefill_us * 1e-3, made_ms = (double)stats->decode_us * 1e-3;
    return buf_addf(out,
                    ",\"timings\":{\"cache_n\":%u,\"prompt_n\":%.0f,\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.6g,"
                    "\"prompt_per_second\":%.6g,\"predicted_n\":%.0f,\"predicted_ms\":%.3f,"
                    "\"predicted_per_token_ms\":%.6g,\"predicted_per_second\":%.6g}",
                    stats->cached_tokens, read, read_ms, per(read_ms, read), per(1000 * read, read_ms), made, made_ms,
                    per(made_ms, made), per(1000 * made, made_ms));
}

/* How it ended: the type, and the stop string. */
static int add_stop(const struct choice *choice, struct buf *out) {
    const struct llama_own *own = choice->call->own;
    const char *type = choice->finish == COHORT_FINISH_LENGTH ? "limit" : choice->stop_index >= 0 ? "word" : "eos";
    const json_t *word = json_object_get(own->told, "stop");
    if (choice->finish == COHORT_FINISH_LENGTH || choice->stop_index < 0)
        word = NULL;
    else if (json_is_array(word))
        word = json_array_get(word, (size_t)choice->stop_index);
    int rc = buf_addf(out, ",\"stop_type\":\"%s\",\"stopping_word\":", type);
    if (rc) return rc;
    return word ? buf_json_string(out, json_string_value(word), json_string_length(word)) : buf_adds(out, "\"\"");
}

static int add_prompt_text(const struct choice *choice, struct buf *out) {
    const struct call *call = choice->call;
    const struct prompt *prompt = &call->prompts[choice->index / call->params.tries];
    char *text;
    size_t len;
    int rc = cohort_detokenize(server_model(call->server), prompt->ids, prompt->ids_n, 1, &text, &len, NULL);
    if (!rc) rc = buf_adds(out, ",\"prompt\":");
    if (!rc) rc = buf_json_string(out, text, len);
    cohort_free(text);
    return rc;
}

struct answer {
    const char *text, *tokens; /* tokens: with commas */
    size_t len;
    int new_line;
};

static int add_final(const struct choice *choice, const struct answer *a, struct buf *out) {
    const struct call *call = choice->call;
    const struct llama_own *own = call->own;
    const cohort_stats *stats = &choice->stats;
    int rc = buf_addf(out, "{\"index\":%u,\"content\":", choice->index);
    if (!rc) rc = buf_json_string(out, a->text, a->len);
    if (!rc) rc = buf_addf(out, ",\"tokens\":[%s],\"id_slot\":%d,\"stop\":true,\"model\":", a->tokens, own->slot);
    if (!rc) rc = buf_json_string(out, call->model_name, strlen(call->model_name));
    if (!rc)
        rc = buf_addf(out, ",\"tokens_predicted\":%u,\"tokens_evaluated\":%u,\"generation_settings\":",
                      stats->generated_tokens, stats->prompt_tokens);
    if (!rc) rc = llama_add_settings(&call->params, own, out);
    if (!rc) rc = add_prompt_text(choice, out);
    if (!rc) rc = buf_addf(out, ",\"has_new_line\":%s,\"truncated\":false", a->new_line ? "true" : "false");
    if (!rc) rc = add_stop(choice, out);
    if (!rc) rc = buf_addf(out, ",\"tokens_cached\":%u", stats->cached_tokens);
    if (!rc && !call->stored)
        rc = add_timings(stats, out); /* a stored answer has nothing that another run would change */
    if (!rc && choice->logprobs.len) {
        rc = buf_adds(out, ",\"completion_probabilities\":[");
        if (!rc) rc = buf_add(out, choice->logprobs.data, choice->logprobs.len);
        if (!rc) rc = buf_adds(out, "]");
    }
    return rc ? rc : buf_adds(out, "}");
}

/* "a/b": member b of the member a. */
static json_t *at_path(json_t *object, const char *path) {
    char name[LLAMA_FIELD_BYTES_MAX + 1];
    while (object && path) {
        size_t n = strcspn(path, "/");
        memcpy(name, path, n);
        name[n] = 0;
        object = json_object_get(object, name);
        path = path[n] ? path + n + 1 : NULL;
    }
    return object;
}

/* Only the fields that were asked for, each under its path. */
static int add_chosen(const struct llama_own *own, const struct buf *all, struct buf *out) {
    json_t *from = json_loadb(all->data, all->len, JSON_ALLOW_NUL, NULL), *to = json_object();
    int rc = from && to ? 0 : COHORT_E_MEMORY;
    for (size_t i = 0; i < json_array_size(own->fields) && !rc; i++) {
        const char *path = json_string_value(json_array_get(own->fields, i));
        json_t *value = at_path(from, path);
        if (value && json_object_set(to, path, value) != 0) rc = COHORT_E_MEMORY;
    }
    char *text = rc ? NULL : json_dumps(to, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!rc) rc = text ? buf_adds(out, text) : COHORT_E_MEMORY;
    free(text);
    json_decref(from);
    json_decref(to);
    return rc;
}

static int add_answer(const struct choice *choice, const struct answer *answer, struct buf *out) {
    const struct llama_own *own = choice->call->own;
    if (!own->fields) return add_final(choice, answer, out);
    struct buf all = {0};
    int rc = add_final(choice, answer, &all);
    if (!rc) rc = add_chosen(own, &all, out);
    buf_free(&all);
    return rc;
}

static int add_partial(const struct choice *choice, const cohort_event *event, struct buf *out) {
    const struct call *call = choice->call;
    const struct llama_own *own = call->own;
    const struct prompt *prompt = &call->prompts[choice->index / call->params.tries];
    int rc = buf_addf(out, "{\"index\":%u,\"content\":", choice->index);
    if (!rc) rc = buf_json_string(out, event->text, event->text_len);
    if (!rc)
        rc = buf_addf(out,
                      ",\"tokens\":[%d],\"stop\":false,\"id_slot\":%d,\"tokens_predicted\":%u,"
                      "\"tokens_evaluated\":%zu",
                      event->token, own->slot, event->index + 1, prompt->ids_n);
    if (!rc && call->params.logprobs >= 0) {
        rc = buf_adds(out, ",\"completion_probabilities\":[");
        if (!rc) rc = add_probabilities(call, event, out);
        if (!rc) rc = buf_adds(out, "]");
    }
    return rc ? rc : buf_adds(out, "}\n");
}

static int has_new_line(const char *text, size_t len) { return len && memchr(text, '\n', len) != NULL; }

int llama_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    if (!event || event->type == COHORT_EVENT_PROMPT) return 0;
    choice->mark |= (uint32_t)has_new_line(event->text, event->text_len);
    if (event->type == COHORT_EVENT_TOKEN) return add_partial(choice, event, out);
    const struct answer answer = {event->text, "", event->text_len, choice->mark != 0};
    int rc = add_answer(choice, &answer, out);
    return rc ? rc : buf_adds(out, "\n");
}

int llama_collect(struct choice *choice, const cohort_event *event) {
    const struct llama_own *own = choice->call->own;
    int rc = 0;
    if (event->type == COHORT_EVENT_PROMPT) return 0;
    if (event->type == COHORT_EVENT_TOKEN && own->return_tokens)
        rc = buf_addf(&choice->tokens, "%s%d", choice->tokens.len ? "," : "", event->token);
    if (!rc && event->type == COHORT_EVENT_TOKEN && choice->call->params.logprobs >= 0) {
        if (choice->logprobs.len) rc = buf_adds(&choice->logprobs, ",");
        if (!rc) rc = add_probabilities(choice->call, event, &choice->logprobs);
    }
    return rc ? rc : buf_add(&choice->text, event->text, event->text_len);
}

int llama_whole(struct call *call, struct buf *out) {
    int rc = 0, several = call->choices_n > 1;
    if (several) rc = buf_adds(out, "[");
    for (size_t i = 0; i < call->choices_n && !rc; i++) {
        const struct choice *choice = &call->choices[i];
        const char *text = choice->text.data ? choice->text.data : "";
        const struct answer answer = {text, choice->tokens.data ? choice->tokens.data : "", choice->text.len,
                                      has_new_line(text, choice->text.len)};
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = add_answer(choice, &answer, out);
    }
    if (!rc && several) rc = buf_adds(out, "]");
    return rc;
}
