/* Chats to ids by a template, with the ends of their turns and how the answer is to be read. Reentrant. */
#ifndef CHAT_RENDER_H
#define CHAT_RENDER_H

#include "chat/format.h"
#include "chat/template.h"

struct chat_prompt {
    const struct tokenizer *tokenizer;
    int32_t *ids;
    size_t n;
    cohort_turn *turns; /* one for each message */
    size_t turns_n;
    char *text;
    size_t text_n;
    cohort_chat chat;                 /* what the answer's reader and grammar need of it: tools and choices, copied */
    const struct chat_format *format; /* counted */
    cohort_grammar_source grammar;
    int32_t *reasoning_end, *reasoning_begin;
    size_t reasoning_end_n, reasoning_begin_n;
    uint8_t reads, reasons;
};

/* `chat` is checked here. On failure *out is as chat_prompt_clear leaves it. */
int chat_render(const struct chat_template *t, const cohort_chat *chat, struct chat_prompt *out, cohort_error *err);
/* By the chat's own template. */
int chat_render_own(const struct tokenizer *t, const cohort_chat *chat, struct chat_prompt *out, cohort_error *err);
void chat_prompt_clear(struct chat_prompt *p);
/* What format.h asks for, of the rendered prompt. */
struct chat_wants chat_prompt_wants(const struct chat_prompt *p);

#endif
