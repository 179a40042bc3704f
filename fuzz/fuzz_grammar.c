/* Grammars from outside: a byte of kind, a byte of white space, then the text. What compiles is walked with bytes of
 * the text, and its masks must agree with what it accepts. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok) {
    if (!ok) abort();
}

static void walk(const struct grammar *g, const uint8_t *data, size_t size) {
    struct grammar_state *s;
    uint32_t mask[RIG_MASK_WORDS];
    char text[64];
    if (grammar_state_make(g, &s)) return;
    for (size_t i = 0, steps = 0; steps < 40 && size; steps++, i = (i + 1) % size) {
        if (grammar_state_mask(s, mask) < 0) break;
        int32_t token = (int32_t)(data[i] + (steps % 3 == 2 ? 150u : 0u)) % RIG_VOCAB;
        for (int tries = 0; tries < RIG_VOCAB && !(mask[token / 32] >> token % 32 & 1); tries++)
            token = (token + 1) % RIG_VOCAB;
        int allowed = (int)(mask[token / 32] >> token % 32 & 1), rc = grammar_state_accept(s, token);
        check(rc == (allowed ? 0 : COHORT_E_ARGUMENT) || rc == COHORT_E_LIMIT);
        if (rc || token == RIG_END) break;
        grammar_state_forced(s, text, sizeof text);
    }
    grammar_state_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct grammar_limits limits = {300, 64 << 20};
    static struct grammar_vocab *vocab;
    if (!vocab) check((vocab = rig_vocab()) != NULL);
    if (size < 2) return 0;
    cohort_grammar_source source = {(cohort_grammar_kind)(COHORT_GRAMMAR_JSON + data[0] % 5), (const char *)data + 2,
                                    size - 2, data[1] % 8};
    struct grammar *g;
    cohort_error err = {0};
    int rc = grammar_compile(vocab, &source, &limits, &g, &err);
    check((rc == 0) == (g != NULL));
    check(rc == 0 || rc == COHORT_E_ARGUMENT || rc == COHORT_E_LIMIT || rc == COHORT_E_UNSUPPORTED ||
          rc == COHORT_E_MEMORY);
    check(rc == 0 || err.text[0]);
    if (g) walk(g, data + 2, size - 2);
    grammar_free(g);
    return 0;
}
