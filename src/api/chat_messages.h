/* The messages of OpenAI's chats. Pure. */
#ifndef API_CHAT_MESSAGES_H
#define API_CHAT_MESSAGES_H

#include <jansson.h>

#include "cohort/cohort.h"

/* A body's messages, checked, as chats are rendered: *out is owned by the caller. What older clients say is said as
 * newer ones do: `function_call` and messages of the role "function", and `reasoning` (vLLM's name for
 * reasoning_content). */
int chat_messages(const json_t *messages, json_t **out, cohort_error *err);

#endif
