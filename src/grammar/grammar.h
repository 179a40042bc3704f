/* Grammars that answers must follow, compiled for a vocabulary, and the state of one answer. XGrammar (C++) does the
 * work behind grammar.cc; nothing of it shows here, and no C++ exception leaves that file.
 *
 * A vocabulary and a compiled grammar are immutable and used from any thread; a state belongs to one thread at a time.
 * What is given is hostile: a compile ends at its limits of processor time and memory, by errors, and takes nothing
 * else with it. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cohort/cohort.h"

enum { GRAMMAR_DEPTH_MAX = 64 /* nesting of a grammar's text: brackets, parentheses, JSON */ };

struct grammar_vocab;
/* What grammars see of a vocabulary: n tokens' bytes, in order. `control`: tokens that are no text, which only a
 * structural tag's token formats can name, by their bytes; `ends`: ids that end an answer, allowed where the grammar
 * can be at its end. Everything is copied. Takes some tenths of a second for a large vocabulary. */
struct grammar_piece {
    const char *bytes;
    uint32_t len;
    uint8_t control;
};
int grammar_vocab_make(struct grammar_vocab **out, const struct grammar_piece *pieces, uint32_t n, const int32_t *ends,
                       uint32_t ends_n, cohort_error *err);
void grammar_vocab_free(struct grammar_vocab *v);

struct grammar_limits {
    uint32_t ms;    /* of the thread's processor time */
    uint64_t bytes; /* allocated and not freed, at any one time */
};

struct grammar;
/* E_ARGUMENT with the reason, E_LIMIT, E_UNSUPPORTED (a schema's keyword that would not be held), E_MEMORY; field
 * "grammar". The vocabulary must outlive it. */
int grammar_compile(const struct grammar_vocab *v, const cohort_grammar_source *source,
                    const struct grammar_limits *limits, struct grammar **out, cohort_error *err);
void grammar_free(struct grammar *g);
uint64_t grammar_bytes(const struct grammar *g); /* of memory, roughly */

struct grammar_state;
/* At the beginning of an answer. The grammar must outlive it. 0 or E_MEMORY. */
int grammar_state_make(const struct grammar *g, struct grammar_state **out);
void grammar_state_free(struct grammar_state *s);
/* Which tokens may come next: bit i % 32 of words[i / 32]; words for the whole vocabulary. 1: some may not; 0: all
 * may, and `words` has all bits set; a negative code: the state is of no use any more. */
int grammar_state_mask(struct grammar_state *s, uint32_t *words);
/* Goes on behind a token. 0; E_ARGUMENT: the grammar does not allow it, and the state is as it was; or another code. */
int grammar_state_accept(struct grammar_state *s, int32_t token);
/* The answer could end here. */
int grammar_state_complete(const struct grammar_state *s);
/* The text that must come next, as far as there is only one, into `out`; returns its length, cut at `capacity`. */
size_t grammar_state_forced(struct grammar_state *s, char *out, size_t capacity);

#endif
