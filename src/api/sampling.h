/* The fields that say how tokens are drawn, by the names that OpenAI's, vLLM's and llama-server's bodies have for them:
 * every dialect reads all of them. sampling.c lists them with their limits. */
#ifndef API_SAMPLING_H
#define API_SAMPLING_H

#include <jansson.h>

#include "server/call.h"
#include "server/fields.h"

/* Their names, for fields_known. */
extern const struct known_list sampling_known;

/* From the body into call->params; what is absent stays as it is there. Loop thread. */
int sampling_read(struct call *call, const json_t *body, cohort_error *err);
/* What needs the tokenizer: texts in logit_bias, bad_words. On a helper, once, while the call has its body. */
int sampling_prepare(struct call *call, cohort_error *err);

#endif
