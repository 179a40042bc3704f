/* See sampler_mix.h. */
#include "sampler_mix.h"

#include <math.h>

enum { ALLOWED = 300 };

static void set_lists(uint32_t mix, uint32_t vocab, cohort_request *q) {
    static int32_t allowed[ALLOWED];
    static const cohort_bias biases[] = {{30, 5}, {12, -INFINITY}, {45, 100}, {11, -3.5f}};
    static const int32_t single[] = {17}, two[] = {12, 13}, three[] = {10, 11, 12}, stop_ids[] = {31, 32, 33};
    static const cohort_ids banned[] = {{single, 1}, {two, 2}, {three, 3}};
    static const cohort_span stops[] = {{"e", 1}, {"an", 2}}, breakers[] = {{"e", 1}, {"in", 2}, {"\n", 1}};
    uint32_t n = vocab / 3 < ALLOWED ? vocab / 3 : ALLOWED;
    for (uint32_t i = 0; i < n; i++) allowed[i] = (int32_t)(3 * (n - 1 - i)); /* and not in order */
    if (mix == 10) {
        q->biases = biases;
        q->biases_n = 3 + (mix & 1);
    }
    if (mix == 11 || mix == 15) {
        q->allowed_ids = allowed;
        q->allowed_ids_n = n;
    }
    if (mix == 12) {
        q->banned = banned;
        q->banned_n = 3;
    }
    if (mix == 13) {
        q->min_tokens = 6;
        q->ignore_eos = 0;
        q->stop_ids = stop_ids;
        q->stop_ids_n = 3;
        q->stops = stops;
        q->stops_n = 2;
        q->include_stop = 1;
    }
    if (mix == 3 || mix == 15) {
        q->dry_breakers = breakers;
        q->dry_breakers_n = 3;
    }
}

void sampler_mix(uint32_t mix, uint32_t vocab, cohort_request *q) {
    static const uint8_t order[] = {COHORT_SAMPLER_TEMPERATURE, COHORT_SAMPLER_TOP_K, COHORT_SAMPLER_PENALTIES,
                                    COHORT_SAMPLER_TOP_P, COHORT_SAMPLER_DRY};
    cohort_sampling *s = &q->sampling;
    s->temperature = mix == 1 || mix == 12 ? 0 : 0.6f + 0.1f * (float)(mix % 4);
    if (mix == 1 || mix == 14 || mix == 15) s->repetition_penalty = 1.3f;
    if (mix == 2 || mix == 14) {
        s->frequency_penalty = 0.7f;
        s->presence_penalty = 0.4f;
        s->answer_window = 16;
    }
    if (mix == 3 || mix == 14 || mix == 15) {
        s->dry_multiplier = 1.5f;
        s->dry_allowed_length = 1;
    }
    if (mix == 4) {
        s->top_n_sigma = 1.2f;
        s->temperature = 1.3f;
    }
    if (mix == 5 || mix == 15) s->typical_p = 0.8f;
    if (mix == 6 || mix == 15) {
        s->xtc_probability = 0.5f;
        s->xtc_threshold = 0.003f;
        s->min_keep = 2;
    }
    if (mix == 7) s->temperature_range = 0.5f;
    if (mix == 8 || mix == 9) {
        s->mirostat = (int32_t)mix - 7;
        s->mirostat_tau = 4;
        s->mirostat_eta = 0.2f;
    }
    if (mix == 14) {
        for (uint32_t i = 0; i < sizeof(order); i++) s->order[i] = order[i];
        s->order_n = sizeof(order);
        s->temperature = 0.8f;
        s->top_k = 30;
        s->top_p = 0.95f;
    }
    if (mix == 15) {
        q->post_sampling = 1;
        s->temperature_range = 0.2f;
    }
    set_lists(mix, vocab, q);
}
