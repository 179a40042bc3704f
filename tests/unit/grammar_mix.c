/* See grammar_mix.h. */
#include "grammar_mix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts with much that is forced, with nothing that is, and with ends anywhere; what fake_grammar.h knows. */
static const char *const texts[GRAMMAR_MIXES] = {
    "the house and the lantern: [a-z ]{5,14} and then [0-9]{1,3}!",
    "\\{\"name\": \"[a-z]{1,8}\", \"count\": [0-9]{1,4}\\}",
    "[a-z ]*",
    "[^q]+",
    "[a-f]{0,40}",
    "and so on, and so on, and that is all there is to say",
    ".*",
    "[0-9]+ hundreds and thousands of them\\.?",
};

const char *grammar_mix_text(uint32_t mix) { return texts[mix]; }

void grammar_mix_open(struct grammar_mix *g, const cohort_model *model) {
    cohort_error err = {0};
    for (uint32_t i = 0; i < GRAMMAR_MIXES; i++) {
        cohort_grammar_source source = {COHORT_GRAMMAR_REGEX, texts[i], strlen(texts[i]), 0};
        if (cohort_grammar_compile(model, &source, &g->of[i], &err) == 0) continue;
        fprintf(stderr, "%s: %s\n", texts[i], err.text);
        abort();
    }
}

void grammar_mix_close(struct grammar_mix *g) {
    for (uint32_t i = 0; i < GRAMMAR_MIXES; i++) cohort_grammar_release(g->of[i]);
    memset(g, 0, sizeof(*g));
}

void grammar_mix_set(const struct grammar_mix *g, uint32_t mix, uint32_t vocab, cohort_request *q) {
    static int32_t ends[3];
    for (int i = 0; i < 3; i++) ends[i] = (int32_t)(vocab / 2) + 7 * i;
    q->grammar = g->of[mix];
    if (mix != 3 && mix != 6) return;
    q->reasoning_end = ends;
    q->reasoning_end_n = mix == 3 ? 3 : 1;
    q->reasoning_budget = mix == 3 ? 5 : 0;
}
