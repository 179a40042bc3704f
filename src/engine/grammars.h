/* A model's compiled grammars: made when they are first asked for, kept for the next request, and counted. Any thread.
 *
 * One lock for the list; compiling happens outside of it. Whoever asks for what is just being compiled waits for that.
 * What was kept last longest goes first when the bytes are too many; a grammar that somebody holds lives on. Texts that
 * were refused are remembered, too, so that asking again costs nothing. */
#ifndef ENGINE_GRAMMARS_H
#define ENGINE_GRAMMARS_H

#include "base/err.h"
#include "cohort/cohort.h"
#include "grammar/grammar.h"
#include "text/tokenizer.h"

struct grammars;

int grammars_new(const struct tokenizer *tokenizer, const cohort_model_options *options, struct grammars **out);
void grammars_free(struct grammars *g); /* NULL is allowed. Nobody holds a grammar of it any more */
/* Of these options; E_ARGUMENT with the field. */
int grammars_check_options(const cohort_model_options *o, cohort_error *err);
/* Adds what is counted here. */
void grammars_metrics(struct grammars *g, cohort_metrics *out);

const struct grammar *grammars_compiled(const cohort_grammar *grammar);
int grammars_owns(const struct grammars *g, const cohort_grammar *grammar); /* it was compiled here */
void grammars_retain(const cohort_grammar *grammar);
int grammars_compile(struct grammars *g, const cohort_grammar_source *source, cohort_grammar **out, cohort_error *err);

#endif
