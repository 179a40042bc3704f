/* OpenAI's /v1/completions: what is read from a body, and how tokens and finishes are written, streamed and whole.
 * Shapes follow the published API description. Loop thread. */
#include <string.h>

#include "api/openai.h"
#include "api/params.h"
#include "api/routes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct known_field completion_fields[] = {
    {"prompt", FIELD_READ, NULL},     {"snapshot_at", FIELD_READ, NULL}, {"best_of", FIELD_REFUSED, "1"},
    {"echo", FIELD_REFUSED, "false"}, {"suffix", FIELD_REFUSED, "\"\""},
};

static uint32_t characters(const char *text, size_t len) {
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

static int add_prompt(struct call *call, const json_t *value, const char *field, cohort_error *err) {
    struct prompt *prompt = &call->prompts[call->prompts_n];
    if (json_is_string(value)) {
        prompt->text = json_string_value(value);
        prompt->text_len = json_string_length(value);
    } else if (json_is_array(value)) {
        if (json_array_size(value) == 0) return err_set(err, COHORT_E_ARGUMENT, "prompt", "%s is empty", field);
        int rc = params_ids(call, value, field, &prompt->ids, &prompt->ids_n, err);
        if (rc) return rc;
    } else {
        return err_set(err, COHORT_E_ARGUMENT, "prompt", "%s must be a string or an array of token ids", field);
    }
    call->prompts_n++;
    return 0;
}

/* A string, token ids, or an array of either. */
static int read_prompts(struct call *call, const json_t *body, cohort_error *err) {
    const json_t *prompt = json_object_get(body, "prompt");
    if (!prompt || json_is_null(prompt)) return err_set(err, COHORT_E_ARGUMENT, "prompt", "prompt is missing");
    const json_t *first = json_array_get(prompt, 0);
    int several = first && !json_is_integer(first);
    size_t n = several ? json_array_size(prompt) : 1;
    if (n * call->params.n > SERVER_CHOICES_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "prompt", "%zu prompts with n %u give more than %d choices", n,
                       call->params.n, SERVER_CHOICES_MAX);
    call->prompts = mem_zalloc(n, sizeof *call->prompts);
    if (!call->prompts) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu prompts", n);
    if (!several) return add_prompt(call, prompt, "prompt", err);
    for (size_t i = 0; i < n; i++) {
        char field[32];
        snprintf(field, sizeof field, "prompt[%zu]", i);
        int rc = add_prompt(call, json_array_get(prompt, i), field, err);
        if (rc) return rc;
    }
    return 0;
}

static size_t completions_text_bytes(const struct glance *glance) { return glance->prompt; }

static int completions_parse(struct call *call, const json_t *body, cohort_error *err) {
    int rc = openai_check_known(call, body, completion_fields, COUNT(completion_fields), err);
    if (!rc) rc = params_common(call, body, err);
    if (!rc) rc = cache_read_snapshots(body, &call->params.cache, err);
    if (rc) return rc;
    if (call->params.max_tokens == UINT32_MAX) call->params.max_tokens = 16; /* the API's default */
    int64_t logprobs = -1;
    rc = field_integer(body, "logprobs", 0, COHORT_TOP_LOGPROBS_MAX, &logprobs, err);
    if (rc) return rc;
    call->params.logprobs = (int)logprobs;
    return read_prompts(call, body, err);
}

/* A token's text as a JSON string; bytes that are no whole characters are spelled as OpenAI spells them, so that two
 * such tokens have different names: "bytes:\\xe2\\x80". */
static int add_legacy_token(const struct call *call, int32_t id, struct buf *out) {
    const char *bytes;
    size_t len;
    openai_piece_of(call, id, &bytes, &len);
    if (utf8_valid(bytes, len)) return buf_json_string(out, bytes, len);
    int rc = buf_adds(out, "\"bytes:");
    for (size_t i = 0; i < len && !rc; i++) rc = buf_addf(out, "\\\\x%02x", (unsigned)(unsigned char)bytes[i]);
    return rc ? rc : buf_adds(out, "\"");
}

/* One token into the four columns of the legacy log-probabilities. */
static int legacy_columns(struct choice *choice, const cohort_event *event) {
    const char *comma = choice->tokens.len ? "," : "";
    int rc = buf_adds(&choice->tokens, comma);
    if (!rc) rc = add_legacy_token(choice->call, event->token, &choice->tokens);
    if (!rc) rc = buf_addf(&choice->logprobs, "%s%.9g", comma, openai_logprob(event->logprob));
    if (!rc) rc = buf_addf(&choice->offsets, "%s%u", comma, choice->text_offset);
    if (!rc) rc = buf_addf(&choice->top_logprobs, "%s{", comma);
    for (uint32_t i = 0; i < event->top_n && !rc; i++) {
        if (i) rc = buf_adds(&choice->top_logprobs, ",");
        if (!rc) rc = add_legacy_token(choice->call, event->top[i].id, &choice->top_logprobs);
        if (!rc) rc = buf_addf(&choice->top_logprobs, ":%.9g", openai_logprob(event->top[i].logprob));
    }
    if (!rc) rc = buf_adds(&choice->top_logprobs, "}");
    return rc;
}

static int add_legacy(struct choice *choice, struct buf *out) {
    if (choice->call->params.logprobs < 0 || !choice->tokens.len) return buf_adds(out, "\"logprobs\":null");
    int rc = buf_addf(out, "\"logprobs\":{\"tokens\":[%s],\"token_logprobs\":[%s],", choice->tokens.data,
                      choice->logprobs.data);
    if (!rc)
        rc = choice->call->params.logprobs > 0 ? buf_addf(out, "\"top_logprobs\":[%s],", choice->top_logprobs.data)
                                               : buf_adds(out, "\"top_logprobs\":null,");
    if (!rc) rc = buf_addf(out, "\"text_offset\":[%s]}", choice->offsets.data);
    return rc;
}

static void clear_columns(struct choice *choice) {
    buf_clear(&choice->tokens);
    buf_clear(&choice->logprobs);
    buf_clear(&choice->offsets);
    buf_clear(&choice->top_logprobs);
}

static int completion_choice(struct choice *choice, const char *text, size_t len, int finished, struct buf *out) {
    int rc = buf_adds(out, "{\"text\":");
    if (!rc) rc = buf_json_string(out, text, len);
    if (!rc) rc = buf_addf(out, ",\"index\":%u,", choice->index);
    if (!rc) rc = add_legacy(choice, out);
    if (!rc)
        rc = finished ? buf_addf(out, ",\"finish_reason\":\"%s\"}", openai_finish_name(choice->finish))
                      : buf_adds(out, ",\"finish_reason\":null}");
    return rc;
}

static int completion_chunk(struct choice *choice, const char *text, size_t len, int finished, struct buf *out) {
    int rc = openai_add_head(choice->call, out, "text_completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    if (!rc) rc = completion_choice(choice, text, len, finished, out);
    if (!rc) rc = buf_adds(out, "]");
    if (!rc && choice->call->params.include_usage) rc = buf_adds(out, ",\"usage\":null");
    if (!rc) rc = buf_adds(out, "}\n");
    return rc;
}

static int completions_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    if (!event) return 0;
    int logprobs = choice->call->params.logprobs >= 0, rc = 0;
    int finished = event->type == COHORT_EVENT_FINISH;
    if (event->type == COHORT_EVENT_TOKEN && logprobs) rc = legacy_columns(choice, event);
    if (!rc && (finished || event->text_len || logprobs))
        rc = completion_chunk(choice, event->text, event->text_len, finished, out);
    choice->text_offset += characters(event->text, event->text_len);
    clear_columns(choice);
    return rc;
}

static int completions_collect(struct choice *choice, const cohort_event *event) {
    int rc = 0;
    if (event->type == COHORT_EVENT_TOKEN && choice->call->params.logprobs >= 0) rc = legacy_columns(choice, event);
    choice->text_offset += characters(event->text, event->text_len);
    if (!rc) rc = buf_add(&choice->text, event->text, event->text_len);
    return rc;
}

static int completions_close(struct call *call, struct buf *out) {
    return openai_usage_event(call, out, "text_completion");
}

static int completions_whole(struct call *call, struct buf *out) {
    int rc = openai_add_head(call, out, "text_completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    for (size_t i = 0; i < call->choices_n && !rc; i++) {
        struct choice *choice = &call->choices[i];
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = completion_choice(choice, choice->text.data ? choice->text.data : "", choice->text.len, 1, out);
    }
    if (!rc) rc = buf_adds(out, "],");
    if (!rc) rc = openai_add_usage(call, out);
    if (!rc) rc = buf_adds(out, "}");
    return rc;
}

const struct dialect dialect_completions = {
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .input = "prompt",
    .errors = &error_shape_openai,
    .done = "[DONE]",
    .text_bytes = completions_text_bytes,
    .parse = completions_parse,
    .piece = completions_piece,
    .collect = completions_collect,
    .close = completions_close,
    .whole = completions_whole,
};
