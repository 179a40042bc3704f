/* Log-probabilities (logprob.h). Pure; called on the backend's team threads. */
#include "sample/logprob.h"

#include <assert.h>
#include <math.h>

#include "base/fmath.h"
#include "sample/order.h"

void logprob_fill(const struct vecops *ops, const struct logits *logits, float *scratch, float max, int32_t token,
                  int32_t best_n, struct sample_result *out) {
    assert(token < (int64_t)logits->n && best_n <= COHORT_TOP_LOGPROBS_MAX);
    out->logprob = NAN;
    out->top_n = 0;
    if (token < 0 && best_n <= 0) return;
    double log_sum = fmath_log(ops->sum_exp(logits->x, logits->n, max, 1.0f));
    if (token >= 0) out->logprob = (float)((double)logits->x[token] - (double)max - log_sum);
    if (best_n <= 0) return;
    struct order o;
    uint32_t id;
    order_init(&o, ops, logits, max, (uint32_t *)(void *)scratch);
    while (out->top_n < (uint32_t)best_n && order_at(&o, out->top_n, &id))
        out->top[out->top_n++] =
            (cohort_logprob){.id = (int32_t)id, .logprob = (float)((double)logits->x[id] - (double)max - log_sum)};
}
