/* Chats to ids with a turn template chosen by the vocabulary's own markers (Gemma, ChatML, Llama 3, Llama 2/Mistral,
 * Phi 3; plain "role: text" lines where the vocabulary has none), until the template engine comes. Markers come from
 * here only: contents are always encoded as plain text. Reentrant. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "text/tokenizer.h"

enum { CHAT_MESSAGES_MAX = 4096, CHAT_JSON_DEPTH_MAX = 64 };

/* `json`: array of {"role": "system"|"developer"|"user"|"assistant"|"tool", "content": string |
 * [{"type":"text","text":...}]}. Errors are E_ARGUMENT with the field ("messages[1].content"). *out and *turns (one
 * for each message: cohort_chat_render_turns) are mem_alloc'ed, NULL on failure. */
int chat_render(const struct tokenizer *t, const char *json, size_t len, int add_generation, int32_t **out, size_t *n,
                cohort_turn **turns, size_t *turns_n, cohort_error *err);
/* The template's name ("gemma", "chatml", ...), for start-up lines. */
const char *chat_template_name(const struct tokenizer *t);

#endif
