/* Chats: the model's template, and the cohort_prompt_* and cohort_reader_* half of cohort.h. A prompt is immutable once
 * rendered; everything here may be called from any thread, a reader from one at a time. */
#include "engine/chat_api.h"

#include <string.h>

#include "base/mem.h"
#include "chat/builtin.h"
#include "chat/format.h"
#include "chat/render.h"
#include "chat/template.h"

struct cohort_prompt {
    struct chat_prompt rendered;
};

struct cohort_reader {
    struct chat_reader *reader;
};

/* ---- the model's template ---- */

/* What chats are rendered by: what the options say (a text, or a built-in one's name), the file's own, a built-in. */
static struct meta_string choose(cohort_model *m, const struct meta *meta, const char *wanted) {
    struct meta_string text = {"", 0};
    const struct chat_builtin *built_in = NULL;
    if (wanted)
        built_in = chat_builtin_named(wanted, strlen(wanted));
    else if (meta_string(meta, "tokenizer.chat_template", &text, NULL) != 0 || text.len == 0)
        built_in = chat_builtin_choose(m->tokenizer);
    else
        return text;
    m->chat.built_in = built_in != NULL;
    if (built_in) return (struct meta_string){built_in->text, strlen(built_in->text)};
    return (struct meta_string){wanted, strlen(wanted)};
}

int chat_api_open(cohort_model *m, const struct meta *meta, const char *wanted, cohort_error *err) {
    struct meta_string text = choose(m, meta, wanted), tools = {NULL, 0};
    cohort_error error;
    if (!wanted && !m->chat.built_in && meta_string(meta, "tokenizer.chat_template.tool_use", &tools, NULL) != 0)
        tools = (struct meta_string){NULL, 0};
    m->chat.text = mem_text(text.bytes, (size_t)text.len);
    if (!m->chat.text) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the chat template");
    int code = chat_template_make(m->tokenizer, text.bytes, (size_t)text.len, tools.len ? tools.bytes : NULL,
                                  (size_t)tools.len, &m->chat.made, &error);
    if (code == 0) return 0;
    if (code == COHORT_E_MEMORY || wanted)
        return err_set(err, code, error.field[0] ? error.field : NULL, "chat template: %s", error.text);
    /* A file whose template is of no use is still a model. */
    m->chat.reason = mem_text(error.text, strlen(error.text));
    return m->chat.reason ? 0 : err_set(err, COHORT_E_MEMORY, NULL, "no memory for the chat template");
}

void chat_api_close(cohort_model *m) {
    chat_template_free(m->chat.made);
    mem_free(m->chat.text);
    mem_free(m->chat.reason);
}

void chat_api_info(const cohort_model *m, cohort_model_info *out) {
    const struct chat_template *t = m->chat.made;
    out->chat_template = m->chat.text;
    out->chat_template_built_in = m->chat.built_in;
    out->chat_error = m->chat.reason ? m->chat.reason : "";
    out->chat_format = t ? chat_template_format(t) : "";
    out->chat_tools = t ? chat_template_tools(t) : 0;
    out->chat_reasoning = t ? chat_template_reasons(t) : 0;
}

/* ---- prompts ---- */

void cohort_chat_defaults(cohort_chat *chat) {
    *chat = (cohort_chat){.size = sizeof(*chat), .ending = 1, .parallel_calls = 1, .strict = 1};
}

int cohort_prompt_render(const cohort_model *m, const cohort_chat *chat, cohort_prompt **out, cohort_error *err) {
    *out = NULL;
    if (chat->size != sizeof(*chat))
        return err_set(err, COHORT_E_ARGUMENT, "size", "the chat was not filled by cohort_chat_defaults");
    if (!chat->chat_template && !m->chat.made)
        return err_set(err, COHORT_E_UNSUPPORTED, "messages", "the model's chat template is of no use: %s",
                       m->chat.reason);
    cohort_prompt *p = mem_zalloc(1, sizeof(*p));
    if (!p) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a prompt");
    int code = chat->chat_template ? chat_render_own(m->tokenizer, chat, &p->rendered, err)
                                   : chat_render(m->chat.made, chat, &p->rendered, err);
    if (code) {
        mem_free(p);
        return code;
    }
    *out = p;
    return 0;
}

void cohort_prompt_get(const cohort_prompt *p, cohort_prompt_info *out) {
    const struct chat_prompt *r = &p->rendered;
    *out = (cohort_prompt_info){.ids = r->ids,
                                .n = r->n,
                                .turns = r->turns,
                                .turns_n = r->turns_n,
                                .text = r->text ? r->text : "",
                                .text_n = r->text_n,
                                .grammar = r->grammar,
                                .reads = r->reads,
                                .reasons = r->reasons,
                                .reasoning_end = r->reasoning_end_n ? r->reasoning_end : NULL,
                                .reasoning_end_n = r->reasoning_end_n,
                                .reasoning_begin = r->reasoning_begin_n ? r->reasoning_begin : NULL,
                                .reasoning_begin_n = r->reasoning_begin_n,
                                .format = r->reads ? chat_format_name(r->format) : ""};
}

void cohort_prompt_free(cohort_prompt *p) {
    if (!p) return;
    chat_prompt_clear(&p->rendered);
    mem_free(p);
}

/* ---- readers ---- */

int cohort_reader_open(const cohort_prompt *p, cohort_reader **out, cohort_error *err) {
    struct chat_wants wants = chat_prompt_wants(&p->rendered);
    *out = NULL;
    cohort_reader *r = mem_zalloc(1, sizeof(*r));
    if (!r) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a reader");
    int code = chat_reader_make(p->rendered.format, &wants, &r->reader, err);
    if (code) {
        mem_free(r);
        return code;
    }
    *out = r;
    return 0;
}

int cohort_reader_feed(cohort_reader *r, const char *text, size_t len, int last, cohort_error *err) {
    int code = chat_reader_feed(r->reader, text, len, last);
    return code ? err_set(err, code, NULL, "no memory to read the answer") : 0;
}

int cohort_reader_next(cohort_reader *r, cohort_part *out) { return chat_reader_next(r->reader, out); }

void cohort_reader_close(cohort_reader *r) {
    if (!r) return;
    chat_reader_free(r->reader);
    mem_free(r);
}
