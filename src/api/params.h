/* The fields that several endpoints share, from a body into a call. Loop thread; pure apart from the call. */
#ifndef API_PARAMS_H
#define API_PARAMS_H

#include <jansson.h>

#include "server/call.h"
#include "server/fields.h"

/* Of those that params_common reads, the fields that have the same name in every API. */
extern const struct known_list params_known;

/* The fields that all generating endpoints share: stream, stream_options, sampling, stop, max_tokens, n. Of
 * max_completion_tokens and max_tokens the former counts; 0 of them is for the dialect to refuse. */
int params_common(struct call *call, const json_t *body, cohort_error *err);
/* Bytes of text that a chat's message brings at least: templates may drop white space around it. What is no message
 * brings none. */
size_t params_message_bytes(const json_t *message);
/* OpenAI's metadata: nothing, or sixteen pairs of strings at most, as published. */
int params_metadata(const json_t *body, cohort_error *err);
/* The chat (an array of OpenAI's messages) as the call's one prompt. */
int params_chat(struct call *call, const json_t *chat, cohort_error *err);
/* An array of token ids, each inside the vocabulary, into mem_alloc'ed *out; `field` for messages. */
int params_ids(const struct call *call, const json_t *array, const char *field, int32_t **out, size_t *n,
               cohort_error *err);
/* The same for a request that is no call. */
int params_ids_for(const struct server *server, const json_t *array, const char *field, int32_t **out, size_t *n,
                   cohort_error *err);

#endif
