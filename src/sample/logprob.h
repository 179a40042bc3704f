/* Log-probabilities by the whole distribution at temperature 1, before any filter. */
#ifndef SAMPLE_LOGPROB_H
#define SAMPLE_LOGPROB_H

#include "sample/sample.h"

/* Of one row of logits: what stays when the row is changed. */
struct logprob {
    double max, log_sum;
};
/* Sets out->top to the `best_n` best (none if it is 0 or less). `max` is the row's largest logit. */
struct logprob logprob_of_row(const struct vecops *ops, const struct logits *logits, float *scratch, float max,
                              int32_t best_n, struct sample_result *out);
static inline float logprob_of(const struct logprob *p, float x) { return (float)((double)x - p->max - p->log_sum); }

#endif
