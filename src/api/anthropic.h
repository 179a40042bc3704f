/* What Anthropic's endpoints share. Loop thread. */
#ifndef API_ANTHROPIC_H
#define API_ANTHROPIC_H

#include <jansson.h>

#include "server/http.h"

/* {"type":"error","error":{"type","message"},"request_id"}. 529 "overloaded_error" where the server itself has no room
 * for more; a key that has used up what it may is still a 429 "rate_limit_error". */
extern const struct error_shape error_shape_anthropic;

/* The chat of a body's `system` and `messages`, as OpenAI's messages: *out is owned by the caller. `prefill`: its last
 * message is the beginning of the answer. */
int anthropic_chat(const json_t *body, json_t **out, int *prefill, cohort_error *err);

#endif
