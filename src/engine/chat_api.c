/* Chats: the cohort_prompt_* and cohort_reader_* half of cohort.h. A prompt is immutable once rendered; everything here
 * may be called from any thread, a reader from one at a time. */
#include <string.h>

#include "base/mem.h"
#include "engine/internal.h"
#include "text/chat.h"

struct cohort_prompt {
    int32_t *ids;
    size_t n;
    cohort_turn *turns;
    size_t turns_n;
};

struct cohort_reader {
    const char *text;
    size_t len;
};

void cohort_chat_defaults(cohort_chat *chat) {
    *chat = (cohort_chat){.size = sizeof(*chat), .ending = 1, .parallel_calls = 1, .strict = 1};
}

int cohort_prompt_render(const cohort_model *m, const cohort_chat *chat, cohort_prompt **out, cohort_error *err) {
    *out = NULL;
    if (chat->size != sizeof(*chat))
        return err_set(err, COHORT_E_ARGUMENT, "size", "the chat was not filled by cohort_chat_defaults");
    if (chat->tools) return err_set(err, COHORT_E_UNSUPPORTED, "tools", "tools are not supported");
    if (chat->variables)
        return err_set(err, COHORT_E_UNSUPPORTED, "variables", "the template's variables are not supported");
    if (chat->chat_template)
        return err_set(err, COHORT_E_UNSUPPORTED, "chat_template", "a template of the chat's own is not supported");
    cohort_prompt *p = mem_zalloc(1, sizeof(*p));
    if (!p) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a prompt");
    int code = chat_render(m->tokenizer, chat->messages, chat->messages_n, chat->ending, &p->ids, &p->n, &p->turns,
                           &p->turns_n, err);
    if (code) {
        mem_free(p);
        return code;
    }
    *out = p;
    return 0;
}

void cohort_prompt_get(const cohort_prompt *p, cohort_prompt_info *out) {
    *out = (cohort_prompt_info){
        .ids = p->ids, .n = p->n, .turns = p->turns, .turns_n = p->turns_n, .text = "", .format = ""};
}

void cohort_prompt_free(cohort_prompt *p) {
    if (!p) return;
    mem_free(p->ids);
    mem_free(p->turns);
    mem_free(p);
}

int cohort_reader_open(const cohort_prompt *p, cohort_reader **out, cohort_error *err) {
    (void)p;
    *out = mem_zalloc(1, sizeof(**out));
    return *out ? 0 : err_set(err, COHORT_E_MEMORY, NULL, "no memory for a reader");
}

int cohort_reader_feed(cohort_reader *r, const char *text, size_t len, int last, cohort_error *err) {
    (void)last;
    (void)err;
    r->text = text;
    r->len = len;
    return 0;
}

int cohort_reader_next(cohort_reader *r, cohort_part *out) {
    if (!r->len) return COHORT_E_AGAIN;
    *out = (cohort_part){.type = COHORT_PART_TEXT, .bytes = r->text, .len = r->len};
    r->len = 0;
    return 0;
}

void cohort_reader_close(cohort_reader *r) { mem_free(r); }
