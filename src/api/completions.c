/* OpenAI's /v1/completions: what is read from a body, and how tokens and finishes are written, streamed and whole.
 * Shapes follow the published API description. Loop thread.
 *
 * max_tokens is 16 if it is not given, and 0 only with echo or prompt_logprobs. n prompts with n each: choices are
 * numbered prompt by prompt; at most SERVER_CHOICES_MAX of them, or best_of each. best_of tells the n whose tokens have
 * the highest mean log-probability (the end token counts), the best first. logprobs: 0 to 20; `top_logprobs` has the
 * token that came beside the best ones. With echo the first token's values are null, and the end token that an answer
 * ended with has its columns, too, so that one more column than those of the prompt is there if max_tokens is 1.
 * Offsets count characters of the text. A prompt's text means no special tokens; add_special_tokens: false leaves out
 * the begin token. What the answer must follow is read by all its names (forms.c). */
#include <string.h>

#include "api/forms.h"
#include "api/openai.h"
#include "api/params.h"
#include "api/routes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct known_field completion_fields[] = {
    {"prompt", FIELD_READ, NULL}, {"snapshot_at", FIELD_READ, NULL},        {"best_of", FIELD_READ, NULL},
    {"echo", FIELD_READ, NULL},   {"add_special_tokens", FIELD_READ, NULL}, {"suffix", FIELD_REFUSED, "\"\""},
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
    if (n * call->params.tries > SERVER_CHOICES_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "prompt", "%zu prompts with %s %u give more than %d choices", n,
                       call->params.tries > call->params.n ? "best_of" : "n", call->params.tries, SERVER_CHOICES_MAX);
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

static int read_tries(struct params *p, const json_t *body, cohort_error *err) {
    int64_t best_of = p->n;
    int rc = field_integer(body, "best_of", 1, SERVER_CHOICES_MAX, &best_of, err);
    if (!rc && best_of < p->n)
        rc = err_set(err, COHORT_E_ARGUMENT, "best_of", "best_of is %lld, below n, which is %u", (long long)best_of,
                     p->n);
    p->tries = (uint32_t)best_of;
    return rc;
}

static int completions_parse(struct call *call, const json_t *body, cohort_error *err) {
    int64_t logprobs = -1;
    int rc = openai_parse(call, body, completion_fields, COUNT(completion_fields), err);
    if (!rc) rc = cache_read_snapshots(body, &call->params.cache, err);
    if (rc) return rc;
    struct openai *own = openai_of(call);
    if (call->params.max_tokens == UINT32_MAX) call->params.max_tokens = 16; /* the API's default */
    rc = field_integer(body, "logprobs", 0, COHORT_TOP_LOGPROBS_MAX, &logprobs, err);
    own->logprobs = (int)logprobs;
    if (!rc) rc = field_bool(body, "echo", &own->echo, err);
    if (!rc) rc = field_bool(body, "add_special_tokens", &own->add_begin, err);
    if (!rc) rc = read_tries(&call->params, body, err);
    if (!rc) rc = forms_read(call, body, 0, err);
    if (!rc) rc = read_prompts(call, body, err);
    return rc ? rc : openai_settle(call, err);
}

/* ---- the four columns of the legacy log-probabilities ---- */

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

/* Two tokens may be spelled alike: an object has a name once, and the better one's value. */
static int is_spelled_before(const struct call *call, const cohort_event *event, uint32_t n, int32_t id) {
    const char *bytes, *other;
    size_t len, other_len;
    openai_piece_of(call, id, &bytes, &len);
    for (uint32_t i = 0; i < n; i++) {
        openai_piece_of(call, event->top[i].id, &other, &other_len);
        if (len == other_len && memcmp(bytes, other, len) == 0) return 1;
    }
    return 0;
}

static int add_named(struct choice *choice, int32_t id, float logprob, int first) {
    struct buf *out = &choice->top_logprobs;
    int rc = first ? 0 : buf_adds(out, ",");
    if (!rc) rc = add_legacy_token(choice->call, id, out);
    return rc ? rc : buf_addf(out, ":%.9g", openai_logprob(logprob));
}

/* The best ones, and the token that came. */
static int add_best(struct choice *choice, const cohort_event *event, int32_t id, float logprob) {
    uint32_t n = (uint32_t)openai_of(choice->call)->logprobs;
    if (n > event->top_n) n = event->top_n;
    int rc = buf_adds(&choice->top_logprobs, "{");
    for (uint32_t i = 0; i < n && !rc; i++)
        if (!is_spelled_before(choice->call, event, i, event->top[i].id))
            rc = add_named(choice, event->top[i].id, event->top[i].logprob, i == 0);
    if (!rc && !is_spelled_before(choice->call, event, n, id)) rc = add_named(choice, id, logprob, n == 0);
    return rc ? rc : buf_adds(&choice->top_logprobs, "}");
}

/* `event`: NULL for a token of which nothing was said. */
static int add_column(struct choice *choice, int32_t id, const cohort_event *event, uint32_t offset) {
    const char *comma = choice->tokens.len ? "," : "";
    int rc = buf_adds(&choice->tokens, comma);
    if (!rc) rc = add_legacy_token(choice->call, id, &choice->tokens);
    if (!rc) rc = buf_addf(&choice->offsets, "%s%u", comma, offset);
    if (!rc) rc = buf_adds(&choice->logprobs, comma);
    if (!rc) rc = buf_adds(&choice->top_logprobs, comma);
    if (rc) return rc;
    if (!event) {
        rc = buf_adds(&choice->logprobs, "null");
        return rc ? rc : buf_adds(&choice->top_logprobs, "null");
    }
    rc = buf_addf(&choice->logprobs, "%.9g", openai_logprob(event->logprob));
    return rc ? rc : add_best(choice, event, id, event->logprob);
}

static const struct buf *echo_of(const struct choice *choice) {
    return &openai_of(choice->call)->echoes[choice->index / choice->call->params.tries];
}

/* How much of the echoed text from `at` on is the token's. Special tokens have none, nor has what the vocabulary spells
 * in another way. */
static size_t echoed_bytes(const struct choice *choice, int32_t id, size_t at) {
    const struct buf *echo = echo_of(choice);
    cohort_model_info info;
    cohort_model_get_info(server_model(choice->call->server), &info);
    const char *bytes;
    size_t len;
    openai_piece_of(choice->call, id, &bytes, &len);
    if (id == info.bos || len == 0 || !echo->len) return 0;
    if (len <= echo->len - at && memcmp(echo->data + at, bytes, len) == 0) return len;
    /* a space that the vocabulary puts in front of a text */
    int spaced = at == 0 && *bytes == ' ' && len - 1 <= echo->len;
    return spaced && memcmp(echo->data, bytes + 1, len - 1) == 0 ? len - 1 : 0;
}

static int echo_token(struct choice *choice, int32_t id, const cohort_event *event) {
    struct openai_choice *own = openai_choice_of(choice);
    size_t len = echoed_bytes(choice, id, own->echo_at);
    int rc = add_column(choice, id, event, choice->text_offset);
    if (len) choice->text_offset += characters(echo_of(choice)->data + own->echo_at, len);
    own->echo_at += len;
    return rc;
}

/* A position tells of the token behind it. */
static int echo_columns(struct choice *choice, const cohort_event *event) {
    const struct prompt *prompt = openai_prompt_of(choice);
    const struct openai *own = openai_of(choice->call);
    if (!own->echo || own->logprobs < 0) return 0;
    int rc = event->index == 0 ? echo_token(choice, prompt->ids[0], NULL) : 0;
    if (!rc && event->index + 1ull < prompt->ids_n) rc = echo_token(choice, prompt->ids[event->index + 1], event);
    return rc;
}

/* What an event brings to the columns, and to the text's length. */
static int take_columns(struct choice *choice, const cohort_event *event) {
    const struct openai *own = openai_of(choice->call);
    if (event->type == COHORT_EVENT_PROMPT) return echo_columns(choice, event);
    int rc = 0;
    if (event->type == COHORT_EVENT_TOKEN && own->logprobs >= 0)
        rc = add_column(choice, event->token, event, choice->text_offset);
    choice->text_offset += characters(event->text, event->text_len);
    if (!rc && event->type == COHORT_EVENT_FINISH && event->stop_token >= 0 && own->echo && own->logprobs >= 0)
        rc = add_column(choice, event->stop_token, event, choice->text_offset);
    return rc;
}

static int add_legacy(struct choice *choice, struct buf *out) {
    int told = openai_of(choice->call)->logprobs;
    if (told < 0 || !choice->tokens.len) return buf_adds(out, "\"logprobs\":null");
    int rc = buf_addf(out, "\"logprobs\":{\"tokens\":[%s],\"token_logprobs\":[%s],", choice->tokens.data,
                      choice->logprobs.data);
    if (!rc)
        rc = told > 0 ? buf_addf(out, "\"top_logprobs\":[%s],", choice->top_logprobs.data)
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

/* ---- events and replies ---- */

/* Without its end, for what a stream's event or a whole reply adds. */
static int completion_choice(struct choice *choice, uint32_t index, const char *text, size_t len, int finished,
                             struct buf *out) {
    int rc = buf_adds(out, "{\"text\":");
    if (!rc) rc = buf_json_string(out, text, len);
    if (!rc) rc = buf_addf(out, ",\"index\":%u,", index);
    if (!rc) rc = add_legacy(choice, out);
    if (!rc)
        rc = finished ? buf_addf(out, ",\"finish_reason\":\"%s\"", openai_finish_name(choice->finish))
                      : buf_adds(out, ",\"finish_reason\":null");
    return rc;
}

/* `event`: NULL for what comes before the answer. */
static int completion_chunk(struct choice *choice, const char *text, size_t len, const cohort_event *event,
                            struct buf *out) {
    int rc = openai_add_head(choice->call, out, "text_completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    if (!rc) rc = completion_choice(choice, choice->index, text, len, event && event->type == COHORT_EVENT_FINISH, out);
    if (!rc && !event) rc = openai_add_prompt_ids(choice, out);
    if (!rc && event) rc = openai_add_ids(choice, event, out);
    if (!rc) rc = buf_adds(out, "}]");
    if (!rc) rc = openai_add_usage_so_far(choice, event, out);
    return rc ? rc : buf_adds(out, "}\n");
}

/* In front of the answer: the echo once its columns are there. `event`: NULL at the opening, else a position. */
static int before_answer(struct choice *choice, const cohort_event *event, struct buf *out) {
    const struct openai *own = openai_of(choice->call);
    int columns = own->echo && own->logprobs >= 0;
    int is_turn =
        columns ? event && event->index + 1ull == openai_prompt_of(choice)->ids_n : !event && (own->echo || own->ids);
    if (!is_turn) return 0;
    const struct buf *echo = own->echo ? echo_of(choice) : NULL;
    if (echo && !columns) choice->text_offset = echo->len ? characters(echo->data, echo->len) : 0;
    int rc = completion_chunk(choice, echo && echo->len ? echo->data : "", echo ? echo->len : 0, NULL, out);
    clear_columns(choice);
    return rc;
}

static int completions_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    const struct openai *own = openai_of(choice->call);
    int rc = event ? take_columns(choice, event) : 0;
    if (rc) return rc;
    if (!event || event->type == COHORT_EVENT_PROMPT) return before_answer(choice, event, out);
    if (event->type == COHORT_EVENT_FINISH || event->text_len || own->logprobs >= 0 || own->ids)
        rc = completion_chunk(choice, event->text, event->text_len, event, out);
    clear_columns(choice);
    return rc;
}

static int collect(struct choice *choice, const cohort_event *event) {
    struct openai_choice *own = openai_choice_of(choice);
    int rc = 0;
    if (!own->begun && openai_of(choice->call)->echo) {
        const struct buf *echo = echo_of(choice);
        rc = buf_add(&choice->text, echo->data, echo->len);
        if (openai_of(choice->call)->logprobs < 0 && echo->len) choice->text_offset = characters(echo->data, echo->len);
    }
    own->begun = 1;
    if (!rc) rc = take_columns(choice, event);
    if (event->type == COHORT_EVENT_PROMPT) return rc ? rc : openai_prompt_logprob(choice, event);
    if (!rc) rc = openai_count(choice, event);
    if (!rc) rc = buf_add(&choice->text, event->text, event->text_len);
    return rc;
}

static int completions_collect(struct choice *choice, const cohort_event *event) {
    return openai_collect(choice, event, collect);
}

static int completions_close(struct call *call, struct buf *out) {
    return openai_usage_event(call, out, "text_completion");
}

/* Of a prompt's choices [first, first + tries) the best one that was not told: `told` has a flag for each. */
static size_t best_choice(const struct call *call, size_t first, unsigned char *told) {
    size_t best = call->params.tries;
    double best_mean = 0;
    for (size_t i = 0; i < call->params.tries; i++) {
        const struct openai_choice *own = &openai_of(call)->choices[first + i];
        double mean = own->tokens ? own->logprobs / own->tokens : 0;
        if (told[i] || (best < call->params.tries && mean <= best_mean)) continue;
        best = i;
        best_mean = mean;
    }
    told[best] = 1;
    return first + best;
}

static int whole_choice(struct call *call, struct choice *choice, uint32_t index, struct buf *out) {
    const char *text = choice->text.data ? choice->text.data : "";
    int rc = index ? buf_adds(out, ",") : 0;
    if (!rc) rc = completion_choice(choice, index, text, choice->text.len, 1, out);
    if (!rc) rc = openai_add_prompt_logprobs(choice, out);
    if (!rc) rc = openai_add_prompt_ids(choice, out);
    if (!rc) rc = openai_add_ids(choice, NULL, out);
    return rc ? rc : buf_adds(out, "}");
}

static int completions_whole(struct call *call, struct buf *out) {
    const struct params *p = &call->params;
    uint32_t index = 0;
    int rc = openai_add_head(call, out, "text_completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    for (size_t first = 0; first < call->choices_n && !rc; first += p->tries) {
        unsigned char told[SERVER_CHOICES_MAX] = {0};
        for (uint32_t i = 0; i < p->n && !rc; i++, index++) {
            size_t which = p->tries > p->n ? best_choice(call, first, told) : first + i;
            rc = whole_choice(call, &call->choices[which], index, out);
        }
    }
    if (!rc) rc = buf_adds(out, "],");
    if (!rc) rc = openai_add_usage(call, out);
    return rc ? rc : buf_adds(out, "}");
}

const struct dialect dialect_completions = {
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .input = "prompt",
    .errors = &error_shape_openai,
    .done = "[DONE]",
    .text_bytes = completions_text_bytes,
    .parse = completions_parse,
    .prepare = openai_prepare,
    .piece = completions_piece,
    .collect = completions_collect,
    .close = completions_close,
    .whole = completions_whole,
    .forget = openai_forget,
};
