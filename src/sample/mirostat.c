/* Mirostat, both versions (Basu et al., 2021): candidates too surprising for its state go, and the state follows how
 * surprising the drawn ones were. All in double, in bits as the paper has it. Pure; called on the backend's team
 * threads. */
#include "base/fmath.h"
#include "sample/chain.h"

enum { ESTIMATE_MOST = 100 }; /* candidates that the first version looks at */
static const double ln2 = 0x1.62e42fefa39efp-1;

/* Of a Zipf distribution through the likeliest candidates: its exponent; 0 if there is only one. */
static double exponent(struct chain *c) {
    double products = 0, squares = 0, before = 0;
    uint32_t id;
    for (uint32_t i = 0; i < ESTIMATE_MOST && c->low + i < c->end && chain_at(c, c->low + i, &id); i++) {
        double y = ((double)c->logits->x[id] - (double)c->max) * (double)c->scale;
        if (i > 0) {
            double t = fmath_log((double)(i + 1) / (double)i);
            products += t * (before - y);
            squares += t * t;
        }
        before = y;
    }
    return squares > 0 ? products / squares : 0;
}

/* How many candidates of such a distribution are as surprising as the state on average:
 * ((s - 1) * 2^state / (1 - n^(1 - s))) ^ (1 / s), by logarithms; flat ones keep all. */
static void first_version(struct chain *c, double state) {
    double s = exponent(c), e = s - 1, log_n = fmath_log((double)c->logits->n);
    if (!(s > 0)) return;
    double down = e * log_n > 700 ? 700 : e * log_n;
    double factor = e > -1e-9 && e < 1e-9 ? log_n : (1 - fmath_exp(-down)) / e;
    if (!(factor > 0)) return;
    double log_k = (state * ln2 - fmath_log(factor)) / s;
    if (log_k >= log_n) return;
    uint32_t k = log_k > 0 ? (uint32_t)fmath_exp(log_k) : 1;
    if (k < c->keep) k = c->keep;
    if (k < c->end - c->low) chain_cut(c, c->low, c->low + k);
}

static void second_version(struct chain *c, double state) {
    double least_y = fmath_log(chain_sum(c)) - state * ln2; /* -log2(p) <= state */
    uint32_t rank = c->low, id;
    while (rank < c->end && chain_at(c, rank, &id)) {
        double y = ((double)c->logits->x[id] - (double)c->max) * (double)c->scale;
        if (y < least_y && rank - c->low >= c->keep) break;
        rank++;
    }
    chain_cut(c, c->low, rank);
}

void mirostat_cut(struct chain *c, float state) {
    if (c->params->asked.mirostat == 1)
        first_version(c, (double)state);
    else
        second_version(c, (double)state);
    c->whole = 0;
}

float mirostat_next(const cohort_sampling *s, float state, double log_probability) {
    double error = -log_probability / ln2 - (double)s->mirostat_tau;
    return (float)((double)state - (double)s->mirostat_eta * error);
}
