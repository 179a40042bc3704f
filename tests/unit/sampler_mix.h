/* Requests that differ in their samplers: every one of them alone, and some together. One thread. */
#ifndef TESTS_SAMPLER_MIX_H
#define TESTS_SAMPLER_MIX_H

#include "cohort/cohort.h"

enum { SAMPLER_MIXES = 16 };

/* Sets samplers number `mix` and what they need in a request that has none; what it points to stays. */
void sampler_mix(uint32_t mix, uint32_t vocab, cohort_request *q);

#endif
