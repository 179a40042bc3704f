/* llama-server's /infill: what stands between input_prefix and input_suffix, by the vocabulary's own markers. Loop
 * thread, but for the prompt, which a helper puts together.
 *
 * input_prefix and input_suffix (strings, or arrays of strings and ids) must be there, prompt (a string: the beginning
 * of what is filled in) and input_extra ([{"text", "filename" ("tmp")}], at most INFILL_EXTRA_MAX) may. All the fields
 * of /completion are read as well. The prompt is
 *
 *   begin token, if the vocabulary wants one
 *   repository marker "myproject\n"                                         if there is such a marker
 *   for each extra: file marker filename "\n" text                          if there is one, else
 *                   "\n\n--- snip ---\n\n" text
 *   file marker "filename\n"                                                if there is one
 *   prefix marker input_prefix prompt, suffix marker input_suffix, middle marker
 *
 * and texts in it are texts, never markers. Differences from llama-server: the begin token is the first of all, not the
 * first behind the extras; nothing is cut to fit: what is too long is refused; a vocabulary without the markers is a
 * 400. */
#include <string.h>

#include "api/llama.h"
#include "api/routes.h"
#include "api/sampling.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/fields.h"

enum { INFILL_EXTRA_MAX = 1024 };

static int check_markers(const cohort_model_info *info, cohort_error *err) {
    const char *missing = info->fim_prefix < 0   ? "prefix"
                          : info->fim_suffix < 0 ? "suffix"
                          : info->fim_middle < 0 ? "middle"
                                                 : NULL;
    if (!missing) return 0;
    return err_set(err, COHORT_E_UNSUPPORTED, NULL,
                   "the model's vocabulary has no markers for filling in: the %s marker is missing", missing);
}

static int check_side(const cohort_model_info *info, const json_t *body, const char *field, size_t *text_len,
                      cohort_error *err) {
    const json_t *side = field_present(body, field);
    if (json_is_array(side)) return llama_check_parts(info, side, field, text_len, err);
    *text_len += json_string_length(side);
    if (json_is_string(side)) return 0;
    return err_set(err, COHORT_E_ARGUMENT, field, "%s must be there: a string, or an array of strings and token ids",
                   field);
}

static int check_extra(const json_t *body, size_t *text_len, cohort_error *err) {
    const json_t *list = field_present(body, "input_extra");
    if (!list) return 0;
    if (!json_is_array(list) || json_array_size(list) > INFILL_EXTRA_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "input_extra",
                       "input_extra must be an array of at most %d objects {\"filename\", \"text\"}", INFILL_EXTRA_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *name = field_present(item, "filename");
        const json_t *text = json_object_get(item, "text");
        if (!json_is_string(text) || (name && !json_is_string(name)))
            return err_set(err, COHORT_E_ARGUMENT, "input_extra",
                           "input_extra[%zu] must have a string \"text\", and \"filename\" must be a string", i);
        *text_len += json_string_length(text) + json_string_length(name);
    }
    return 0;
}

static int parse(struct call *call, const json_t *body, cohort_error *err) {
    const json_t *prompt = field_present(body, "prompt");
    cohort_model_info info;
    size_t text_len = json_string_length(prompt);
    cohort_model_get_info(server_model(call->server), &info);
    int rc = check_markers(&info, err);
    if (!rc) rc = llama_read(call, body, err);
    if (!rc && prompt && !json_is_string(prompt))
        rc = err_set(err, COHORT_E_ARGUMENT, "prompt", "prompt must be a string, not %s", field_type(prompt));
    if (!rc) rc = check_side(&info, body, "input_prefix", &text_len, err);
    if (!rc) rc = check_side(&info, body, "input_suffix", &text_len, err);
    if (!rc) rc = check_extra(body, &text_len, err);
    if (rc) return rc;
    call->prompts = mem_zalloc(1, sizeof *call->prompts);
    if (!call->prompts) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the prompt");
    call->prompts_n = 1;
    call->prompts[0].text_len = text_len;
    return 0;
}

/* ---- the helper's part ---- */

struct infill {
    const cohort_model *model;
    cohort_model_info info;
    struct buf ids;
    cohort_error *err;
};

static int add_marker(struct infill *f, int32_t id) {
    int rc = id < 0 ? 0 : buf_add(&f->ids, &id, sizeof id);
    return rc ? err_set(f->err, rc, NULL, "no memory for the prompt") : 0;
}

static int add_text(struct infill *f, const char *text, size_t len) {
    return llama_add_text(f->model, text, len, 0, &f->ids, f->err);
}

static int add_value(struct infill *f, const json_t *value) {
    if (json_is_array(value)) return llama_add_parts(f->model, value, 0, &f->ids, f->err);
    return value ? add_text(f, json_string_value(value), json_string_length(value)) : 0;
}

/* The name and the end of its line are one text. */
static int add_file(struct infill *f, const char *name, size_t len) {
    struct buf line = {0};
    int rc = add_marker(f, f->info.fim_file);
    if (!rc) rc = buf_add(&line, name, len);
    if (!rc) rc = buf_adds(&line, "\n");
    if (!rc) rc = add_text(f, line.data, line.len);
    buf_free(&line);
    return rc;
}

static int add_extra(struct infill *f, const json_t *item) {
    static const char snip[] = "\n\n--- snip ---\n\n";
    const json_t *name = field_present(item, "filename");
    int rc;
    if (f->info.fim_file < 0)
        rc = add_text(f, snip, sizeof snip - 1);
    else
        rc = name ? add_file(f, json_string_value(name), json_string_length(name)) : add_file(f, "tmp", 3);
    return rc ? rc : add_value(f, json_object_get(item, "text"));
}

static int add_all(struct infill *f, const json_t *body) {
    const json_t *extra = field_present(body, "input_extra");
    int rc = f->info.add_bos ? add_marker(f, f->info.bos) : 0;
    if (!rc && f->info.fim_repository >= 0) {
        rc = add_marker(f, f->info.fim_repository);
        if (!rc) rc = add_text(f, "myproject\n", 10);
    }
    for (size_t i = 0; i < json_array_size(extra) && !rc; i++) rc = add_extra(f, json_array_get(extra, i));
    if (!rc && f->info.fim_file >= 0) rc = add_file(f, "filename", 8);
    if (!rc) rc = add_marker(f, f->info.fim_prefix);
    if (!rc) rc = add_value(f, json_object_get(body, "input_prefix"));
    if (!rc) rc = add_value(f, field_present(body, "prompt"));
    if (!rc) rc = add_marker(f, f->info.fim_suffix);
    if (!rc) rc = add_value(f, json_object_get(body, "input_suffix"));
    return rc ? rc : add_marker(f, f->info.fim_middle);
}

static int prepare(struct call *call, cohort_error *err) {
    struct infill f = {.model = server_model(call->server), .err = err};
    cohort_model_get_info(f.model, &f.info);
    int rc = sampling_prepare(call, err);
    if (!rc) rc = add_all(&f, call->body);
    if (!rc) rc = llama_take_ids(&f.ids, &call->prompts[0], err);
    buf_free(&f.ids);
    return rc;
}

static size_t text_bytes(const struct glance *glance) { return glance->prompt; }

const struct dialect dialect_infill = {
    .path = "/infill",
    .id_prefix = "infill-",
    .input = "input_prefix",
    .errors = &error_shape_llama,
    .text_bytes = text_bytes,
    .parse = parse,
    .prepare = prepare,
    .piece = llama_piece,
    .collect = llama_collect,
    .whole = llama_whole,
    .forget = llama_forget,
};
