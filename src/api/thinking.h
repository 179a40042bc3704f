/* How much a model reasons before it answers, from a body into a chat. Loop thread; pure apart from the call. */
#ifndef API_THINKING_H
#define API_THINKING_H

#include <jansson.h>

#include "server/call.h"

/* "none" is off; "minimal", "low", "medium", "high", "xhigh" and "max" are on, and told to the template. `field`: where
 * it came from. E_ARGUMENT: no such word; E_UNSUPPORTED: on, and the model's answers hold no reasoning. */
int thinking_effort(struct call *call, const char *word, const char *field, cohort_error *err);
/* At most so many tokens of it; below 0: no limit. `field` is a literal. */
void thinking_budget(struct call *call, int64_t tokens, const char *field);
/* reasoning_effort, and the budget by vLLM's and llama-server's names: thinking_token_budget, reasoning_budget_tokens,
 * thinking_budget_tokens. */
int thinking_read(struct call *call, const json_t *body, cohort_error *err);

#endif
