/* A request's sampling: defaults, ranges, and what of its order does anything. Pure; any thread. */
#include <math.h>

#include "base/err.h"
#include "sample/sample.h"

void sample_defaults(cohort_sampling *s) {
    *s = (cohort_sampling){.temperature = 1,
                           .temperature_exponent = 1,
                           .top_p = 1,
                           .typical_p = 1,
                           .xtc_threshold = 0.1f,
                           .repetition_penalty = 1,
                           .repetition_window = -1,
                           .answer_window = -1,
                           .dry_base = 1.75f,
                           .dry_allowed_length = 2,
                           .dry_window = -1,
                           .mirostat_tau = 5,
                           .mirostat_eta = 0.1f};
}

struct range {
    const char *field;
    float value, least, most;
};

/* The comparison is written so that NaN fails it. */
static int check_numbers(const cohort_sampling *s, cohort_error *err) {
    const struct range ranges[] = {
        {"temperature", s->temperature, 0, 100},
        {"temperature_range", s->temperature_range, 0, 100},
        {"temperature_exponent", s->temperature_exponent, 0, 100},
        {"top_p", s->top_p, 0, 1},
        {"min_p", s->min_p, 0, 1},
        {"typical_p", s->typical_p, 0, 1},
        {"top_n_sigma", s->top_n_sigma, 0, 1000},
        {"xtc_probability", s->xtc_probability, 0, 1},
        {"xtc_threshold", s->xtc_threshold, 0, 1},
        {"frequency_penalty", s->frequency_penalty, -100, 100},
        {"presence_penalty", s->presence_penalty, -100, 100},
        {"dry_multiplier", s->dry_multiplier, 0, 100},
        {"dry_base", s->dry_base, 1, 100},
        {"mirostat_tau", s->mirostat_tau, 0, 100},
        {"mirostat_eta", s->mirostat_eta, 0, 1},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const struct range *r = &ranges[i];
        if (!(r->value >= r->least && r->value <= r->most))
            return err_set(err, COHORT_E_ARGUMENT, r->field, "%s must be a number from %g to %g", r->field,
                           (double)r->least, (double)r->most);
    }
    if (!(s->repetition_penalty > 0 && s->repetition_penalty <= 100))
        return err_set(err, COHORT_E_ARGUMENT, "repetition_penalty",
                       "repetition_penalty must be a number above 0, up to 100");
    return 0;
}

static int check_window(const char *field, int32_t value, cohort_error *err) {
    if (value >= -1 && value <= COHORT_SAMPLER_WINDOW_MAX) return 0;
    return err_set(err, COHORT_E_ARGUMENT, field, "%s is %d; -1 (all), 0 (off) and up to %d are possible", field, value,
                   COHORT_SAMPLER_WINDOW_MAX);
}

static int check_order(const cohort_sampling *s, cohort_error *err) {
    unsigned seen = 0;
    if (s->order_n > COHORT_SAMPLERS)
        return err_set(err, COHORT_E_ARGUMENT, "order", "order names %u samplers; there are %d", s->order_n,
                       COHORT_SAMPLERS);
    for (uint32_t i = 0; i < s->order_n; i++) {
        if (s->order[i] < 1 || s->order[i] > COHORT_SAMPLERS)
            return err_set(err, COHORT_E_ARGUMENT, "order", "order[%u] is %u, which is no sampler", i, s->order[i]);
        if (seen & 1u << s->order[i])
            return err_set(err, COHORT_E_ARGUMENT, "order", "order[%u] names a sampler for the second time", i);
        seen |= 1u << s->order[i];
    }
    return 0;
}

int sample_check(const cohort_sampling *s, int logprobs, uint32_t vocab, cohort_error *err) {
    int code = check_numbers(s, err);
    if (!code) code = check_window("repetition_window", s->repetition_window, err);
    if (!code) code = check_window("answer_window", s->answer_window, err);
    if (!code) code = check_window("dry_window", s->dry_window, err);
    if (!code) code = check_order(s, err);
    if (code) return code;
    if (s->top_k < 0) return err_set(err, COHORT_E_ARGUMENT, "top_k", "top_k must not be negative");
    if (s->dry_allowed_length < 1)
        return err_set(err, COHORT_E_ARGUMENT, "dry_allowed_length", "dry_allowed_length must be at least 1");
    if (s->mirostat < 0 || s->mirostat > 2)
        return err_set(err, COHORT_E_ARGUMENT, "mirostat", "mirostat is %d; 0 (off), 1 and 2 are possible",
                       s->mirostat);
    int most = vocab < COHORT_TOP_LOGPROBS_MAX ? (int)vocab : COHORT_TOP_LOGPROBS_MAX;
    if (logprobs < -1 || logprobs > most)
        return err_set(err, COHORT_E_ARGUMENT, "logprobs", "logprobs must be from -1 to %d", most);
    return 0;
}

/* ---- Lists ---- */
static int check_count(const char *field, size_t n, size_t most, cohort_error *err) {
    if (n <= most) return 0;
    return err_set(err, COHORT_E_ARGUMENT, field, "%s has %zu entries; at most %zu are allowed", field, n, most);
}

static int is_id(int32_t id, uint32_t vocab) { return id >= 0 && (uint32_t)id < vocab; }

static int check_biases(const cohort_request *q, uint32_t vocab, cohort_error *err) {
    for (size_t i = 0; i < q->biases_n; i++) {
        float bias = q->biases[i].bias;
        if (!is_id(q->biases[i].id, vocab))
            return err_set(err, COHORT_E_ARGUMENT, "biases",
                           "biases[%zu] is for token %d; the vocabulary has %u tokens", i, q->biases[i].id, vocab);
        if (!(bias >= -100 && bias <= 100) && bias != -INFINITY)
            return err_set(err, COHORT_E_ARGUMENT, "biases",
                           "biases[%zu] must be a number from -100 to 100, or minus infinity", i);
    }
    return 0;
}

static int check_banned(const cohort_request *q, uint32_t vocab, cohort_error *err) {
    for (size_t i = 0; i < q->banned_n; i++) {
        const cohort_ids *b = &q->banned[i];
        if (b->n == 0 || b->n > COHORT_BANNED_IDS_MAX)
            return err_set(err, COHORT_E_ARGUMENT, "banned", "banned[%zu] has %zu tokens; 1 to %d are allowed", i, b->n,
                           COHORT_BANNED_IDS_MAX);
        for (size_t j = 0; j < b->n; j++)
            if (!is_id(b->ids[j], vocab))
                return err_set(err, COHORT_E_ARGUMENT, "banned",
                               "banned[%zu] has token %d at %zu; the vocabulary has %u tokens", i, b->ids[j], j, vocab);
    }
    return 0;
}

static int check_breakers(const cohort_request *q, cohort_error *err) {
    for (size_t i = 0; i < q->dry_breakers_n; i++)
        if (q->dry_breakers[i].len == 0 || q->dry_breakers[i].len > COHORT_STOP_BYTES_MAX)
            return err_set(err, COHORT_E_ARGUMENT, "dry_breakers",
                           "dry_breakers[%zu] has %zu bytes; 1 to %d are allowed", i, q->dry_breakers[i].len,
                           COHORT_STOP_BYTES_MAX);
    return 0;
}

int sample_check_lists(const cohort_request *q, uint32_t vocab, cohort_error *err) {
    int code = check_count("biases", q->biases_n, COHORT_BIASES_MAX, err);
    if (!code) code = check_count("allowed_ids", q->allowed_ids_n, COHORT_ALLOWED_IDS_MAX, err);
    if (!code) code = check_count("banned", q->banned_n, COHORT_BANNED_MAX, err);
    if (!code) code = check_count("dry_breakers", q->dry_breakers_n, COHORT_DRY_BREAKERS_MAX, err);
    if (!code) code = check_biases(q, vocab, err);
    if (!code) code = check_banned(q, vocab, err);
    if (!code) code = check_breakers(q, err);
    if (code) return code;
    if (q->allowed_ids && q->allowed_ids_n == 0)
        return err_set(err, COHORT_E_ARGUMENT, "allowed_ids", "allowed_ids is empty, so no token could be drawn");
    for (size_t i = 0; i < q->allowed_ids_n; i++)
        if (!is_id(q->allowed_ids[i], vocab))
            return err_set(err, COHORT_E_ARGUMENT, "allowed_ids",
                           "allowed_ids[%zu] is %d; the vocabulary has %u tokens", i, q->allowed_ids[i], vocab);
    if (q->post_sampling != 0 && q->post_sampling != 1)
        return err_set(err, COHORT_E_ARGUMENT, "post_sampling", "post_sampling must be 0 or 1");
    return 0;
}

/* ---- What does anything ---- */
static int penalties_on(const cohort_sampling *s) {
    return (s->repetition_penalty != 1 && s->repetition_window != 0) ||
           ((s->frequency_penalty != 0 || s->presence_penalty != 0) && s->answer_window != 0);
}

static int is_on(const cohort_sampling *s, int sampler) {
    switch (sampler) {
    case COHORT_SAMPLER_PENALTIES:
        return penalties_on(s);
    case COHORT_SAMPLER_DRY:
        return s->dry_multiplier > 0 && s->dry_window != 0;
    case COHORT_SAMPLER_TEMPERATURE:
        return s->temperature != 1 || s->temperature_range > 0;
    default:
        break;
    }
    if (s->mirostat) return 0;
    switch (sampler) {
    case COHORT_SAMPLER_TOP_N_SIGMA:
        return s->top_n_sigma > 0;
    case COHORT_SAMPLER_TOP_K:
        return s->top_k > 0;
    case COHORT_SAMPLER_TYPICAL:
        return s->typical_p < 1;
    case COHORT_SAMPLER_TOP_P:
        return s->top_p < 1;
    case COHORT_SAMPLER_MIN_P:
        return s->min_p > 0;
    default:
        return s->xtc_probability > 0 && s->xtc_threshold <= 0.5f;
    }
}

/* 1 if the best of the logits, as the penalties in front leave them, is what comes of it whatever the dice say: a
 * temperature of zero, or one whose inverse overflows, or a top-k of 1, behind nothing that can take the best away. */
static int is_greedy(const struct sample_params *p) {
    const cohort_sampling *s = &p->asked;
    int front = 1;
    for (uint32_t i = 0; i < p->steps_n; i++) {
        int step = p->steps[i], edit = step == COHORT_SAMPLER_PENALTIES || step == COHORT_SAMPLER_DRY;
        if (step == COHORT_SAMPLER_TEMPERATURE && s->temperature_range == 0 && isinf(1.0f / s->temperature)) return 1;
        if (step == COHORT_SAMPLER_TOP_K && s->top_k == 1 && s->min_keep <= 1) return 1;
        if ((edit && !front) || step == COHORT_SAMPLER_TYPICAL || step == COHORT_SAMPLER_XTC) return 0;
        front &= edit;
    }
    return 0;
}

struct sample_params sample_params_make(const cohort_sampling *s, uint64_t seed, int logprobs, int post) {
    struct sample_params p = {.asked = *s, .seed = seed, .stream = s->choice, .logprobs = logprobs, .post = post != 0};
    uint32_t n = s->order_n ? s->order_n : COHORT_SAMPLERS;
    for (uint32_t i = 0; i < n; i++) {
        int sampler = s->order_n ? s->order[i] : (int)i + 1;
        if (is_on(s, sampler)) p.steps[p.steps_n++] = (uint8_t)sampler;
    }
    p.greedy = (uint8_t)is_greedy(&p);
    return p;
}
