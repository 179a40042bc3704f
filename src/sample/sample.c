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
#include "sample/mask.h"
#include "sample/row.h"

/* ---- Edits: what is forbidden and biased, and notes of what the penalties are about ---- */
struct work {
    struct edits edits;
    struct logits small; /* of the ids that may be drawn, if those are few */
    const struct logits *logits;
    uint32_t *order; /* room for the candidates' ids */
    uint32_t uses_n, repeats_n;
};

static void go_small(struct work *w, const int32_t *ids, float *x, uint32_t n, float *peaks) {
    logits_peaks(w->edits.ops, x, n, 0, logits_spans(n), peaks);
    w->small = (struct logits){x, n, peaks};
    w->logits = w->edits.logits = &w->small;
    w->edits.allowed = ids;
}

static void gather_allowed(struct sample_row *r, const struct logits *from, const struct mask *mask, struct work *w) {
    for (uint32_t i = 0; i < r->allowed_n; i++) {
        uint32_t id = (uint32_t)r->allowed[i];
        r->allowed_x[i] = mask && !mask_allows(mask, id) ? -INFINITY : from->x[id];
    }
    go_small(w, r->allowed, r->allowed_x, r->allowed_n, r->allowed_peaks);
}

/* The drawing thread's scratch has room for few ones: their order, ids, logits and peaks. */
static void take_mask(const struct logits *from, const struct mask *mask, float *scratch, struct work *w) {
    uint32_t n = mask->allowed;
    if (n == from->n) return;
    if (!mask_is_few(mask, from->n)) {
        mask_reject(w->edits.ops, mask, from);
        return;
    }
    int32_t *ids = (int32_t *)(void *)(scratch + n);
    mask_gather(mask, from, ids, scratch + 2 * (size_t)n);
    go_small(w, ids, scratch + 2 * (size_t)n, n, scratch + 3 * (size_t)n);
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

static void apply_lists(const struct sample_row *r, uint64_t position, struct work *w) {
    struct edits *e = &w->edits;
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
}

static void begin_work(struct work *w, const struct vecops *ops, const struct sample_params *p, uint64_t position,
                       const struct mask *mask, const struct logits *logits, float *scratch) {
    _Static_assert(sizeof(float) == sizeof(uint32_t), "the scratch row holds ids");
    struct sample_row *r = p->row;
    uint32_t *ids = (uint32_t *)(void *)scratch;
    *w = (struct work){
        .edits = {.ops = ops, .logits = logits, .done = r ? r->edits : NULL}, .logits = logits, .order = ids};
    /* Notes first: they use all of the scratch. */
    if (r && r->uses) w->uses_n = penalties_note(r, &p->asked, (uint32_t)position, ids);
    if (r && r->repeats) w->repeats_n = dry_note(r, &p->asked, (uint32_t)position, ids);
    if (r && r->allowed)
        gather_allowed(r, logits, mask, w);
    else if (mask)
        take_mask(logits, mask, scratch, w);
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
static int32_t id_of(const struct work *w, uint32_t index) {
    return w->edits.allowed ? w->edits.allowed[index] : (int32_t)index;
}

static double log_weight(const struct chain *c, uint32_t index) {
    return ((double)c->logits->x[index] - (double)c->max) * (double)c->scale;
}

/* Log-probabilities of what the filters left. */
static void post_fill(struct chain *c, const struct work *w, uint32_t token, double log_sum,
                      struct sample_result *out) {
    uint32_t index;
    out->logprob = (float)(log_weight(c, token) - log_sum);
    for (int32_t i = 0; i < c->params->logprobs && chain_at(c, c->low + (uint32_t)i, &index); i++) {
        if (c->low + (uint32_t)i >= c->end) break;
        out->top[out->top_n++] =
            (cohort_logprob){.id = id_of(w, index), .logprob = (float)(log_weight(c, index) - log_sum)};
    }
}

/* Everything is decided: the best it is. */
static void take_only(const struct sample_params *p, int32_t id, struct sample_result *out) {
    out->token = id;
    if (!p->post || p->logprobs < 0) return;
    out->logprob = 0;
    if (p->logprobs == 0) return;
    out->top_n = 1;
    out->top[0] = (cohort_logprob){.id = out->token, .logprob = 0};
}

/* Returns the index of what was drawn. */
static uint32_t draw(const struct vecops *ops, const struct sample_params *p, uint64_t position, uint32_t from,
                     struct work *w, float max, struct sample_result *out) {
    struct chain c;
    chain_init(&c, ops, w->logits, max, w->order, p, position);
    run_steps(&c, from, w);
    if (p->asked.mirostat) mirostat_cut(&c, out->state);
    double sum = chain_sum(&c);
    int post = p->post && p->logprobs >= 0;
    if (c.whole && c.low == 0 && !post) c.order.forget = 1;
    uint32_t token = chain_pick(&c, rng_unit(p->seed, p->stream, position) * sum);
    out->token = id_of(w, token);
    if (!p->asked.mirostat && !post) return token;
    double log_sum = fmath_log(sum);
    if (p->asked.mirostat) out->state = mirostat_next(&p->asked, out->state, log_weight(&c, token) - log_sum);
    if (post) post_fill(&c, w, token, log_sum, out);
    return token;
}

int sample_says_of_row(const struct sample_params *params) { return params->logprobs >= 0 && !params->post; }

int sample_is_narrow(const struct sample_params *params, const struct mask *mask, uint32_t n) {
    return mask && mask_is_few(mask, n) && !sample_says_of_row(params) && !(params->row && params->row->allowed);
}

static void set_state(const struct sample_params *p, uint64_t position, struct sample_result *out) {
    const struct sample_row *r = p->row;
    if (r && r->states) out->state = r->states[position - r->prompt_n];
}

/* What is said of the row before anything changes in it; 0: it is no row of numbers. `narrow`: it is only what a mask
 * leaves of one, and that may all be minus infinity. */
static int begin(const struct vecops *ops, const struct sample_params *p, uint64_t position, int narrow,
                 const struct logits *logits, float *scratch, struct sample_result *out, struct logprob *whole,
                 uint32_t *best) {
    out->token = SAMPLE_NOT_FINITE;
    out->logprob = NAN;
    out->state = 0;
    out->top_n = 0;
    int64_t raw_best = logits_best(ops, logits);
    if (raw_best < 0 || logits->x[raw_best] == INFINITY) return 0;
    if (!narrow && isinf(logits->x[raw_best])) return 0;
    set_state(p, position, out);
    if (sample_says_of_row(p)) *whole = logprob_of_row(ops, logits, scratch, logits->x[raw_best], p->logprobs, out);
    *best = (uint32_t)raw_best;
    return 1;
}

void sample_draw(const struct vecops *ops, const struct sample_params *params, uint64_t position,
                 const struct mask *mask, const struct logits *logits, float *scratch, struct sample_result *out) {
    struct work w;
    struct logprob whole;
    uint32_t from = 0, token;
    int narrow = sample_is_narrow(params, mask, logits->n);
    if (!narrow && !begin(ops, params, position, 0, logits, scratch, out, &whole, &token)) return;
    begin_work(&w, ops, params, position, mask, logits, scratch);
    if (narrow && !begin(ops, params, position, 1, w.logits, scratch, out, &whole, &token)) return;
    if (params->row) apply_lists(params->row, position, &w);
    while (from < params->steps_n && is_edit(params->steps[from])) apply(params, params->steps[from++], 1, &w);
    if (params->row || mask) token = (uint32_t)logits_best(ops, w.logits);
    float max = w.logits->x[token];
    if (!isfinite(max)) {
        out->token = SAMPLE_NOTHING_LEFT;
        out->top_n = 0;
        return;
    }
    if (params->greedy) {
        take_only(params, id_of(&w, token), out);
        if (params->asked.mirostat) out->state = mirostat_next(&params->asked, out->state, 0);
    } else {
        token = draw(ops, params, position, from, &w, max, out);
    }
    if (!sample_says_of_row(params)) return;
    out->logprob = logprob_of(&whole, w.edits.allowed ? logits->x[out->token] : edits_was(&w.edits, token));
}

void sample_given(const struct vecops *ops, const struct sample_params *params, uint64_t position, int32_t token,
                  const struct logits *logits, float *scratch, struct sample_result *out) {
    struct logprob whole;
    uint32_t best;
    if (sample_says_of_row(params)) {
        if (!begin(ops, params, position, 0, logits, scratch, out, &whole, &best)) return;
        out->token = token;
        out->logprob = logprob_of(&whole, logits->x[token]);
        return;
    }
    *out = (struct sample_result){.logprob = NAN};
    set_state(params, position, out);
    take_only(params, token, out);
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
    if (next < 0 && logprobs <= 0) return;
    struct logprob whole = logprob_of_row(ops, logits, scratch, logits->x[best], logprobs, out);
    if (next >= 0) out->logprob = logprob_of(&whole, logits->x[next]);
}
