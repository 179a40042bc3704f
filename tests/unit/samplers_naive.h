/* The sampler chain written as plainly as possible: one array of candidates, sorted whole, walked from one end to the
 * other at every step. Its sums are those that docs/NUMERICS.md states. One thread. */
#ifndef TESTS_SAMPLERS_NAIVE_H
#define TESTS_SAMPLERS_NAIVE_H

#include "sample/sample.h"

struct naive {
    const struct vecops *ops;
    const float *row; /* by id */
    uint32_t vocab;
    const struct sample_params *params;
    const cohort_request *request;
    const uint8_t *rejected; /* by id; NULL: none */
    const int32_t *tokens;   /* prompt and answer before `position` */
    uint32_t position;
    const int32_t *ends;
    uint32_t ends_n;
    float state;
};

/* As sample_draw with `post`: the token, its state and the log-probabilities of what is left. */
void naive_draw(const struct naive *n, struct sample_result *out);

#endif
