/* From logits to a token: greedy or temperature, top-k, top-p, min-p, with counter-based random numbers, and
 * log-probabilities. Pure functions over a row's own data: no state survives a call. Called on the backend's team
 * threads.
 *
 * Order of the chain: top-k, top-p, min-p on the distribution at temperature 1, then temperature, as llama-server
 * orders them. Candidates are kept in (logit descending, id ascending) order and probabilities accumulate in that
 * order, in double; ties always go to the lowest id. */
#ifndef SAMPLE_SAMPLE_H
#define SAMPLE_SAMPLE_H

#include <stdint.h>

#include "base/logits.h"
#include "cohort/cohort.h"

struct sample_params {
    float temperature; /* 0: greedy */
    int32_t top_k;     /* 0: off */
    float top_p, min_p;
    uint64_t seed;
    uint64_t stream;  /* choice index of the request */
    int32_t logprobs; /* -1: none; n: also the n best */
};

struct sample_result {
    int32_t token; /* -1: no finite logits (COHORT_E_NUMERIC) */
    float logprob; /* of token, by the full distribution at temperature 1, before any filter */
    uint32_t top_n;
    cohort_logprob top[COHORT_TOP_LOGPROBS_MAX];
};

/* Checks ranges (two-sided, NaN refused); E_ARGUMENT with the field's name. */
int sample_check(const cohort_sampling *s, int logprobs, uint32_t vocab, cohort_error *err);

/* Draws the token at `position` (absolute position of the token being chosen: the random counter). scratch: as many
 * floats as there are logits. */
void sample_draw(const struct vecops *ops, const struct sample_params *params, uint64_t position,
                 const struct logits *logits, float *scratch, struct sample_result *out);
/* What the distribution says of a given next id (-1: none): argmax in out->token, out->logprob of `next`, and the n
 * best. */
void sample_score(const struct vecops *ops, const struct logits *logits, float *scratch, int32_t next, int32_t logprobs,
                  struct sample_result *out);

#endif
