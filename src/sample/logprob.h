/* Log-probabilities by the whole distribution at temperature 1, before any filter. */
#ifndef SAMPLE_LOGPROB_H
#define SAMPLE_LOGPROB_H

#include "sample/sample.h"

/* Sets out->logprob to that of `token` (NAN if -1) and out->top to the `best_n` best (none if it is 0 or less). */
void logprob_fill(const struct vecops *ops, const struct logits *logits, float *scratch, float max, int32_t token,
                  int32_t best_n, struct sample_result *out);

#endif
