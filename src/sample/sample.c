/* One draw (sample.h): the edits of a row of logits, its chain of filters, the draw, and what is said about it.
 * docs/NUMERICS.md "Sampling" says bit by bit what is computed here. Pure functions over one row; called on the
 * backend's team threads. */
#include "sample/sample.h"

#include <assert.h>
#include <math.h>

#include "base/fmath.h"
#include "base/rng.h"
#include "sample/chain.h"
#include "sample/logprob.h"
#include "sample/row.h"

/* ---- Edits: what is forbidden and biased, and notes of what the penalties are about ---- */
struct work {
    struct edits edits;
    struct logits small; /* of the allowed ids */
    const struct logits *logits;
    uint32_t uses_n, repeats_n;
};

static void gather_allowed(struct sample_row *r, const struct logits *from, struct work *w) {
    for (uint32_t i = 0; i < r->allowed_n; i++) r->allowed_x[i] = from->x[r->allowed[i]];
    logits_peaks(w->edits.ops, r->allowed_x, r->allowed_n, 0, logits_spans(r->allowed_n), r->allowed_peaks);
    w->small = (struct logits){r->allowed_x, r->allowed_n, r->allowed_peaks};
    w->logits = w->edits.logits = &w->small;
    w->edits.allowed = r->allowed;
}

static void forbid(struct edits *e, int32_t id) {
    uint32_t index = edits_index(e, id);
    if (index != UINT32_MAX) edits_forbid(e, index);
}

/* The last of a banned sequence whose others are the last tokens. */
static void forbid_banned(const struct sample_row *r, uint64_t position, struct edits *e) {
    for (uint32_t i = 0; i < r->banned_n; i++) {
        const cohort_ids *b = &r->banned[i];
        size_t before = b->n - 1, same = 0;
        if (before > position) continue;
        while (same < before && b->ids[same] == r->tokens[position - before + same]) same++;
        if (same == before) forbid(e, b->ids[before]);
    }
}

static void begin_edits(struct work *w, const struct vecops *ops, const struct sample_params *p, uint64_t position,
                        const struct logits *logits, uint32_t *scratch) {
    struct sample_row *r = p->row;
    *w = (struct work){.edits = {.ops = ops, .logits = logits, .done = r ? r->edits : NULL}, .logits = logits};
    if (!r) return;
    struct edits *e = &w->edits;
    if (r->allowed) gather_allowed(r, logits, w);
    for (uint32_t i = 0; i < r->biases_n; i++) {
        uint32_t index = edits_index(e, r->biases[i].id);
        if (index == UINT32_MAX) continue;
        if (isinf(r->biases[i].bias))
            edits_forbid(e, index);
        else
            edits_set(e, index, w->logits->x[index] + r->biases[i].bias);
    }
    if (position - r->prompt_n < r->min_tokens)
        for (uint32_t i = 0; i < r->ends_n; i++) forbid(e, r->ends[i]);
    forbid_banned(r, position, e);
    if (r->uses) w->uses_n = penalties_note(r, &p->asked, (uint32_t)position, e, scratch);
    if (r->repeats) w->repeats_n = dry_note(r, &p->asked, (uint32_t)position, e, scratch);
}

/* ---- The chain ---- */
static int is_edit(uint8_t step) { return step == COHORT_SAMPLER_PENALTIES || step == COHORT_SAMPLER_DRY; }

static void apply(const struct sample_params *p, uint8_t step, float scale, struct work *w) {
    if (step == COHORT_SAMPLER_PENALTIES)
        penalties_apply(p->row->uses, w->uses_n, &p->asked, scale, &w->edits);
    else
        dry_apply(p->row->repeats, w->repeats_n, &p->asked, scale, &w->edits);
}

/* Logits change behind a filter: only its candidates are put in order again. */
static void apply_late(struct chain *c, uint8_t step, struct work *w) {
    if (!c->whole || c->low) {
        chain_list(c);
        apply(c->params, step, c->scale, w);
        chain_relist(c);
        return;
    }
    apply(c->params, step, c->scale, w);
    c->max = c->logits->x[logits_best(c->ops, c->logits)];
    order_init(&c->order, c->ops, c->logits, c->max, c->ids);
}

static void run_steps(struct chain *c, uint32_t from, struct work *w) {
    for (uint32_t i = from; i < c->params->steps_n; i++) {
        uint8_t step = c->params->steps[i];
        switch (step) {
        case COHORT_SAMPLER_PENALTIES:
        case COHORT_SAMPLER_DRY:
            apply_late(c, step, w);
            break;
        case COHORT_SAMPLER_TOP_N_SIGMA:
            filter_top_n_sigma(c);
            break;
        case COHORT_SAMPLER_TOP_K:
            filter_top_k(c);
            break;
        case COHORT_SAMPLER_TYPICAL:
            filter_typical(c);
            break;
        case COHORT_SAMPLER_TOP_P:
            filter_top_p(c);
            break;
        case COHORT_SAMPLER_MIN_P:
            filter_min_p(c);
            break;
        case COHORT_SAMPLER_XTC:
            filter_xtc(c);
            break;
        default:
            filter_temperature(c);
        }
    }
}

/* ---- What is said of it ---- */
static int32_t id_of(const struct sample_params *p, uint32_t index) {
    return p->row && p->row->allowed ? p->row->allowed[index] : (int32_t)index;
}

static double log_weight(const struct chain *c, uint32_t index) {
    return ((double)c->logits->x[index] - (double)c->max) * (double)c->scale;
}

/* Log-probabilities of what the filters left. */
static void post_fill(struct chain *c, uint32_t token, double log_sum, struct sample_result *out) {
    uint32_t index;
    out->logprob = (float)(log_weight(c, token) - log_sum);
    for (int32_t i = 0; i < c->params->logprobs && chain_at(c, c->low + (uint32_t)i, &index); i++) {
        if (c->low + (uint32_t)i >= c->end) break;
        out->top[out->top_n++] =
            (cohort_logprob){.id = id_of(c->params, index), .logprob = (float)(log_weight(c, index) - log_sum)};
    }
}

/* Everything is decided: the best it is. */
static void take_best(const struct sample_params *p, uint32_t best, struct sample_result *out) {
    out->token = id_of(p, best);
    if (p->asked.mirostat) out->state = mirostat_next(&p->asked, out->state, 0);
    if (!p->post || p->logprobs < 0) return;
    out->logprob = 0;
    if (p->logprobs == 0) return;
    out->top_n = 1;
    out->top[0] = (cohort_logprob){.id = out->token, .logprob = 0};
}

static void draw(const struct vecops *ops, const struct sample_params *p, uint64_t position, uint32_t from,
                 struct work *w, float max, uint32_t *ids, struct sample_result *out) {
    struct chain c;
    chain_init(&c, ops, w->logits, max, ids, p, position);
    run_steps(&c, from, w);
    if (p->asked.mirostat) mirostat_cut(&c, out->state);
    double sum = chain_sum(&c);
    int post = p->post && p->logprobs >= 0;
    if (c.whole && c.low == 0 && !post) c.order.forget = 1;
    uint32_t token = chain_pick(&c, rng_unit(p->seed, p->stream, position) * sum);
    out->token = id_of(p, token);
    if (!p->asked.mirostat && !post) return;
    double log_sum = fmath_log(sum);
    if (p->asked.mirostat) out->state = mirostat_next(&p->asked, out->state, log_weight(&c, token) - log_sum);
    if (post) post_fill(&c, token, log_sum, out);
}

void sample_draw(const struct vecops *ops, const struct sample_params *params, uint64_t position,
                 const struct logits *logits, float *scratch, struct sample_result *out) {
    _Static_assert(sizeof(float) == sizeof(uint32_t), "the scratch row holds ids");
    uint32_t *ids = (uint32_t *)(void *)scratch, from = 0;
    const struct sample_row *r = params->row;
    struct work w;
    out->token = SAMPLE_NOT_FINITE;
    out->logprob = NAN;
    out->state = 0;
    out->top_n = 0;
    int64_t raw_best = logits_best(ops, logits);
    if (raw_best < 0 || isinf(logits->x[raw_best])) return;
    float raw_max = logits->x[raw_best];
    if (r && r->states) out->state = r->states[position - r->prompt_n];
    begin_edits(&w, ops, params, position, logits, ids);
    while (from < params->steps_n && is_edit(params->steps[from])) apply(params, params->steps[from++], 1, &w);
    int64_t best = r ? logits_best(ops, w.logits) : raw_best;
    float max = w.logits->x[best];
    if (!isfinite(max))
        out->token = SAMPLE_NOTHING_LEFT;
    else if (params->greedy)
        take_best(params, (uint32_t)best, out);
    else
        draw(ops, params, position, from, &w, max, ids, out);
    edits_undo(&w.edits);
    if (params->logprobs < 0 || params->post || out->token < 0) return;
    logprob_fill(ops, logits, scratch, raw_max, out->token, params->logprobs, out);
}

void sample_score(const struct vecops *ops, const struct logits *logits, float *scratch, int32_t next, int32_t logprobs,
                  struct sample_result *out) {
    out->token = SAMPLE_NOT_FINITE;
    out->logprob = NAN;
    out->state = 0;
    out->top_n = 0;
    int64_t best = logits_best(ops, logits);
    if (best < 0 || isinf(logits->x[best])) return;
    out->token = (int32_t)best;
    logprob_fill(ops, logits, scratch, logits->x[best], next, logprobs, out);
}
