/* Fields of a chat that several endpoints read by the same names. Pure. */
#ifndef API_CHAT_FIELDS_H
#define API_CHAT_FIELDS_H

#include <jansson.h>

#include "server/chat_params.h"
#include "server/server.h"

/* add_generation_prompt and continue_final_message: how the prompt of these messages ends. */
int chat_fields_ending(cohort_chat *chat, const json_t *body, const json_t *messages, cohort_error *err);
/* chat_template, which only a server takes that was told to, and chat_template_kwargs. */
int chat_fields_template(struct chat_params *c, const struct server_options *options, const json_t *body,
                         cohort_error *err);

#endif
