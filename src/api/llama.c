/* llama-server's /completion, also as /completions: prompts, and how an answer is told, streamed and whole. Loop
 * thread, but for the parts of prompts, which a helper makes ids of.
 *
 * A prompt is a string, an array of ids and strings, or {"prompt_string": ...}; an array of such is several prompts,
 * and an array of strings alone is, too. The begin token comes in front if the vocabulary wants one and the prompt
 * begins with a string. Differences from llama-server: text is read as text; that of special tokens in it means those
 * tokens only with "parse_special": true. "prompt" in the reply is the text of the prompt's ids with those of special
 * tokens; tokens_cached counts the prompt's tokens that were not read again, as its documentation says; "id_slot" is
 * the request's own. A stream ends with the event that says "stop": true, without [DONE]; text that was held back
 * because a stop string might have begun in it comes in that event. */
#include "api/llama.h"

#include <stdlib.h>
#include <string.h>

#include "api/openai.h"
#include "api/params.h"
#include "api/routes.h"
#include "api/sampling.h"
#include "base/err.h"
#include "base/mem.h"

/* ---- prompts ---- */

int llama_add_text(const cohort_model *model, const char *text, size_t len, int flags, struct buf *ids,
                   cohort_error *err) {
    int32_t *part;
    size_t n;
    int rc = cohort_tokenize(model, text, len, flags, &part, &n, err);
    if (!rc && (rc = buf_add(ids, part, n * sizeof *part)) != 0)
        rc = err_set(err, rc, NULL, "no memory for %zu token ids", n);
    cohort_free(part);
    return rc;
}

int llama_take_ids(struct buf *ids, struct prompt *prompt, cohort_error *err) {
    prompt->ids = (int32_t *)(void *)ids->data;
    prompt->ids_n = ids->len / sizeof *prompt->ids;
    *ids = (struct buf){0};
    if (prompt->ids_n) return 0;
    return err_set(err, COHORT_E_ARGUMENT, "prompt", "prompt is empty and the vocabulary has no begin token");
}

int llama_add_parts(const cohort_model *model, const json_t *parts, int flags, struct buf *ids, cohort_error *err) {
    int rc = 0;
    for (size_t i = 0; i < json_array_size(parts) && !rc; i++) {
        const json_t *item = json_array_get(parts, i);
        int32_t id = (int32_t)json_integer_value(item);
        if (json_is_string(item))
            rc = llama_add_text(model, json_string_value(item), json_string_length(item),
                                i ? flags & ~COHORT_TOKENIZE_BOS : flags, ids, err);
        else if ((rc = buf_add(ids, &id, sizeof id)) != 0)
            err_set(err, rc, NULL, "no memory for %zu token ids", json_array_size(parts));
    }
    return rc;
}

static int is_mixed(const json_t *value) {
    for (size_t i = 0; i < json_array_size(value); i++)
        if (json_is_string(json_array_get(value, i))) return 1;
    return 0;
}

int llama_check_parts(const cohort_model_info *info, const json_t *parts, const char *field, size_t *text_len,
                      cohort_error *err) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *item = json_array_get(parts, i);
        int64_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (json_is_string(item) && text_len) *text_len += json_string_length(item);
        if (!json_is_string(item) && (id < 0 || id >= (int64_t)info->vocab_size))
            return err_set(err, COHORT_E_ARGUMENT, field,
                           "%s[%zu] is neither a string nor a token id: an integer from 0 to %u", field, i,
                           info->vocab_size - 1);
    }
    return 0;
}

static int add_prompt(struct call *call, const json_t *value, const char *field, cohort_error *err) {
    struct prompt *prompt = &call->prompts[call->prompts_n++];
    const struct llama_own *own = call->own;
    prompt->special = own->special;
    if (json_is_object(value)) {
        const json_t *media = field_present(value, "multimodal_data");
        if (media && !(json_is_array(media) && json_array_size(media) == 0))
            return err_set(err, COHORT_E_UNSUPPORTED, "prompt", "%s has multimodal_data, and the model reads text only",
                           field);
        value = json_object_get(value, "prompt_string");
        if (!json_is_string(value))
            return err_set(err, COHORT_E_ARGUMENT, "prompt", "%s has no string \"prompt_string\"", field);
    }
    if (json_is_string(value)) {
        prompt->text = json_string_value(value);
        prompt->text_len = json_string_length(value);
        return 0;
    }
    if (!json_is_array(value) || json_array_size(value) == 0)
        return err_set(err, COHORT_E_ARGUMENT, "prompt", "%s must be a string or an array of strings and token ids",
                       field);
    if (is_mixed(value)) {
        cohort_model_info info;
        cohort_model_get_info(server_model(call->server), &info);
        return llama_check_parts(&info, value, field, &prompt->text_len, err);
    }
    return params_ids(call, value, field, &prompt->ids, &prompt->ids_n, err);
}

/* An array that has an array, an object, or strings alone is several prompts. */
static int is_several(const json_t *prompt) {
    size_t n = json_array_size(prompt), strings = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(prompt, i);
        if (json_is_array(item) || json_is_object(item)) return 1;
        strings += json_is_string(item);
    }
    return n > 0 && strings == n;
}

static int prepare(struct call *call, cohort_error *err) {
    const struct llama_own *own = call->own;
    const json_t *prompt = json_object_get(call->body, "prompt");
    int rc = sampling_prepare(call, err), flags = COHORT_TOKENIZE_BOS | (own->special ? COHORT_TOKENIZE_SPECIAL : 0);
    for (size_t i = 0; i < call->prompts_n && !rc; i++) {
        const json_t *value = is_several(prompt) ? json_array_get(prompt, i) : prompt;
        if (!is_mixed(value)) continue;
        struct buf ids = {0};
        rc = llama_add_parts(server_model(call->server), value, flags, &ids, err);
        if (!rc) rc = llama_take_ids(&ids, &call->prompts[i], err);
        buf_free(&ids);
    }
    return rc;
}

static int read_prompts(struct call *call, const json_t *body, cohort_error *err) {
    const json_t *prompt = json_object_get(body, "prompt");
    if (!prompt || json_is_null(prompt)) return err_set(err, COHORT_E_ARGUMENT, "prompt", "prompt is missing");
    int several = is_several(prompt);
    size_t n = several ? json_array_size(prompt) : 1;
    if (n * call->params.n > SERVER_CHOICES_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "prompt", "%zu prompts with n %u give more than %d choices", n,
                       call->params.n, SERVER_CHOICES_MAX);
    call->prompts = mem_zalloc(n, sizeof *call->prompts);
    if (!call->prompts) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu prompts", n);
    if (!several) return add_prompt(call, prompt, "prompt", err);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        char field[32];
        snprintf(field, sizeof field, "prompt[%zu]", i);
        rc = add_prompt(call, json_array_get(prompt, i), field, err);
    }
    return rc;
}

static int parse(struct call *call, const json_t *body, cohort_error *err) {
    int rc = llama_read(call, body, err);
    return rc ? rc : read_prompts(call, body, err);
}

void llama_forget(struct call *call) {
    struct llama_own *own = call->own;
    if (!own) return;
    json_decref(own->told);
    json_decref(own->fields);
    mem_free(own);
}

static size_t text_bytes(const struct glance *glance) { return glance->prompt; }

const struct dialect dialect_llama = {
    .path = "/completion",
    .id_prefix = "llama-",
    .input = "prompt",
    .errors = &error_shape_llama,
    .text_bytes = text_bytes,
    .parse = parse,
    .prepare = prepare,
    .piece = llama_piece,
    .collect = llama_collect,
    .whole = llama_whole,
    .forget = llama_forget,
};
