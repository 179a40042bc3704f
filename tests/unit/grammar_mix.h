/* Grammars for requests that differ in them, and budgets of reasoning. One thread. */
#ifndef TESTS_GRAMMAR_MIX_H
#define TESTS_GRAMMAR_MIX_H

#include "cohort/cohort.h"

enum { GRAMMAR_MIXES = 8 };

struct grammar_mix {
    cohort_grammar *of[GRAMMAR_MIXES];
};
const char *grammar_mix_text(uint32_t mix);
/* Compiles all of them for a model. */
void grammar_mix_open(struct grammar_mix *g, const cohort_model *model);
void grammar_mix_close(struct grammar_mix *g);
/* Sets grammar number `mix` in a request, and with some of them an end of reasoning. */
void grammar_mix_set(const struct grammar_mix *g, uint32_t mix, uint32_t vocab, cohort_request *q);

#endif
