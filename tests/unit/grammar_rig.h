/* A small vocabulary for grammars: every byte, some longer texts, and control tokens; and what tests do with states. */
#ifndef GRAMMAR_RIG_H
#define GRAMMAR_RIG_H

#include "grammar/grammar.h"

enum {
    RIG_WORDS_AT = 256,
    RIG_END = 280, /* "<end>", which ends answers */
    RIG_CALL,      /* "<call>" */
    RIG_CALL_END,  /* "</call>" */
    RIG_THINK,     /* "<think>" */
    RIG_THINK_END, /* "</think>" */
    RIG_VOCAB,
    RIG_MASK_WORDS = (RIG_VOCAB + 31) / 32
};

/* Limits that no honest test meets, also under a sanitizer. */
extern const struct grammar_limits rig_limits;

struct grammar_vocab *rig_vocab(void);
int rig_compile(const struct grammar_vocab *v, cohort_grammar_kind kind, const char *text, int32_t space,
                struct grammar **out, cohort_error *err);
/* Whether the grammar takes the whole text, token by token (the longest word that fits first if `words`), and may end
 * there; each token is also looked up in the mask, which must agree. -1: it broke. */
int rig_takes(const struct grammar *g, const char *text, size_t n, int words);
const char *rig_text(int32_t token);                    /* of a byte or a word; byte 0 has none */
int rig_allows(struct grammar_state *s, int32_t token); /* by its mask */

#endif
