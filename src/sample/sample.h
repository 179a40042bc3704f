/* From logits to a token: biases, penalties, filters, temperature and a draw with counter-based random numbers, and
 * log-probabilities. Pure functions of a row's logits, its request and the tokens before the position: nothing else
 * survives a call. Called on the backend's team threads, different rows at the same time.
 *
 * docs/SAMPLING.md has the formulas, docs/NUMERICS.md their bits. Candidates are in (logit descending, id ascending)
 * order, and every filter leaves a range of ranks of it; ties always go to the lowest id. */
#ifndef SAMPLE_SAMPLE_H
#define SAMPLE_SAMPLE_H

#include <stdint.h>

#include "base/logits.h"
#include "cohort/cohort.h"

struct mask;       /* mask.h */
struct sample_row; /* row.h */

/* A request's sampling, made by sample_params_make. */
struct sample_params {
    cohort_sampling asked;
    uint8_t steps[COHORT_SAMPLERS]; /* of its order, those that do anything */
    uint8_t steps_n;
    uint8_t greedy;   /* the row's best, whatever the dice say */
    uint8_t post;     /* log-probabilities of what the samplers left */
    int32_t logprobs; /* -1: none; n: also the n best */
    uint64_t seed, stream;
    struct sample_row *row; /* what it has of its own; NULL: nothing. Set by who makes it */
};

/* Why there is no token: the model gave no finite logits (COHORT_E_NUMERIC), or the request forbids all of them. */
enum { SAMPLE_NOT_FINITE = -1, SAMPLE_NOTHING_LEFT = -2 };

struct sample_result {
    int32_t token; /* or SAMPLE_... */
    float logprob; /* of token: by the full distribution at temperature 1, before any filter; or by what was left */
    float state;   /* mirostat's, behind this token; else 0 */
    uint32_t top_n;
    cohort_logprob top[COHORT_TOP_LOGPROBS_MAX];
};

/* Every sampler off, temperature 1. */
void sample_defaults(cohort_sampling *s);
/* Checks ranges (two-sided, NaN refused); E_ARGUMENT with the field's name. */
int sample_check(const cohort_sampling *s, int logprobs, uint32_t vocab, cohort_error *err);
/* The same for what stands beside them in a request: biases, allowed_ids, banned, dry_breakers, post_sampling. */
int sample_check_lists(const cohort_request *q, uint32_t vocab, cohort_error *err);
/* Of what was checked. */
struct sample_params sample_params_make(const cohort_sampling *s, uint64_t seed, int logprobs, int post);

/* Draws the token at `position` (absolute position of the token being chosen: the random counter). `mask`: those that
 * may be drawn; NULL: all. scratch: as many floats as there are logits. The row of logits is used up. What the row
 * looks back on must be there for all positions before; the token is not kept (sample_row_keep). */
void sample_draw(const struct vecops *ops, const struct sample_params *params, uint64_t position,
                 const struct mask *mask, const struct logits *logits, float *scratch, struct sample_result *out);
/* The same for a token that is given: no dice are thrown, and samplers leave it as the only one. The logits are looked
 * at only if something is said of their row. */
void sample_given(const struct vecops *ops, const struct sample_params *params, uint64_t position, int32_t token,
                  const struct logits *logits, float *scratch, struct sample_result *out);
/* 1: log-probabilities are asked for, by the whole row. */
int sample_says_of_row(const struct sample_params *params);
/* 1: a draw with that mask, of n logits, reads those that it allows and no others, nor a peak. Then whether the row is
 * finite is asked of them alone, too. */
int sample_is_narrow(const struct sample_params *params, const struct mask *mask, uint32_t n);
/* What the distribution says of a given next id (-1: none): argmax in out->token, out->logprob of `next`, and the n
 * best. */
void sample_score(const struct vecops *ops, const struct logits *logits, float *scratch, int32_t next, int32_t logprobs,
                  struct sample_result *out);

#endif
