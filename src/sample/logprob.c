/* Log-probabilities (logprob.h). Pure; called on the backend's team threads. */
#include "sample/logprob.h"

#include <assert.h>

#include "base/fmath.h"
#include "sample/order.h"

struct logprob logprob_of_row(const struct vecops *ops, const struct logits *logits, float *scratch, float max,
                              int32_t best_n, struct sample_result *out) {
    assert(best_n <= COHORT_TOP_LOGPROBS_MAX);
    struct logprob p = {(double)max, fmath_log(ops->sum_exp(logits->x, logits->n, max, 1.0f))};
    out->top_n = 0;
    if (best_n <= 0) return p;
    struct order o;
    uint32_t id;
    order_init(&o, ops, logits, max, (uint32_t *)(void *)scratch);
    while (out->top_n < (uint32_t)best_n && order_at(&o, out->top_n, &id))
        out->top[out->top_n++] = (cohort_logprob){.id = (int32_t)id, .logprob = logprob_of(&p, logits->x[id])};
    return p;
}
