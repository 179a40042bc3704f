/* What OpenAI's generating endpoints share. Loop thread. */
#ifndef API_OPENAI_H
#define API_OPENAI_H

#include "base/buf.h"
#include "server/call.h"
#include "server/fields.h"

const char *openai_finish_name(cohort_finish finish);
/* "usage":{...} of all choices together. */
int openai_add_usage(const struct call *call, struct buf *out);
/* {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":... without the end. */
int openai_add_head(const struct call *call, struct buf *out, const char *object);
/* JSON has no infinities; a probability of zero is written as OpenAI writes it. */
double openai_logprob(float logprob);
/* A token's own bytes. */
void openai_piece_of(const struct call *call, int32_t id, const char **bytes, size_t *len);
/* {"token","logprob","bytes","top_logprobs":[...]}: a token of a chat. */
int openai_add_logprob(const struct call *call, const cohort_event *event, struct buf *out);
/* The event that tells usage, for a stream that asked for it. */
int openai_usage_event(struct call *call, struct buf *out, const char *object);
/* Names of fields: refuses what cannot be done, tells what is not known in a header. */
int openai_check_known(struct call *call, const json_t *body, const struct known_field *fields, size_t n,
                       cohort_error *err);

#endif
