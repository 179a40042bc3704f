/* What one row's tokens must follow: its grammar's state, the ids that come without being drawn, and the end of its
 * reasoning. Everything in it is a function of the request and of the tokens so far, whoever computes it and when.
 *
 * Threads. The submitting thread makes it, behind what a continuation was given. From then on it belongs to whoever
 * asks what the row's next token needs, and then draws it, a team thread at a time, but for two things: the mask of the
 * next token is made by the first of that thread and the engine thread to claim it (`mask_state`), and the ids of a
 * run, once they are noted with a token, may be read by the engine thread until the last but one of them was taken. */
#ifndef ENGINE_CONSTRAINT_H
#define ENGINE_CONSTRAINT_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "grammar/grammar.h"
#include "sample/row.h"
#include "text/tokenizer.h"

enum {
    CONSTRAINT_RUN_MAX = 64,    /* ids that come without being drawn, at a time */
    CONSTRAINT_TEXT_MAX = 1024, /* bytes of forced text that are asked for at a time */
    CONSTRAINT_ENDS_MAX = COHORT_STOP_IDS_MAX
};

/* Masks made, and the time that they took. */
struct constraint_counts {
    _Atomic uint64_t masks, ns;
};

/* Finds a sequence of ids among tokens that come one by one. */
struct id_match {
    const int32_t *ids;
    uint32_t n;
    uint32_t have; /* so many of its ids are the last tokens */
    uint8_t found;
};
void id_match_take(struct id_match *m, int32_t token); /* nothing once it was found */

/* Reasoning: open behind `begin` (no ids: from the beginning) until `end` came. */
struct reasoning_watch {
    struct id_match begin, end;
};
static inline int reasoning_is_open(const struct reasoning_watch *w) {
    return w->end.n > 0 && !w->end.found && (w->begin.n == 0 || w->begin.found);
}
/* Returns how many tokens of reasoning there are more with this one. */
uint32_t reasoning_take(struct reasoning_watch *w, int32_t token);

struct constraint_request {
    const struct grammar *grammar; /* NULL: none */
    const struct tokenizer *tokenizer;
    const int32_t *ends; /* ids that end an answer */
    uint32_t ends_n, vocab, prompt_n, max_new;
    struct reasoning_watch reasoning; /* nothing taken yet; its ids live as long as the row */
    uint32_t reasoning_budget;
    struct sample_row *sample; /* what the samplers look back on; NULL: nothing */
    struct constraint_counts *counts;
};

/* Of the token at hand. */
struct constraint_note {
    uint32_t run_n; /* ids that come behind it without being drawn */
    uint8_t forced; /* so did this one */
    uint8_t over;   /* the grammar is at its end behind those */
    int failed;     /* not 0: there is no token because the grammar failed so */
};

struct constraint;
/* Behind the saved tokens, of which *forced were not drawn. E_ARGUMENT "resume": the grammar does not allow one of
 * them; E_MEMORY. */
int constraint_make(struct constraint **out, const struct constraint_request *request, const cohort_saved_token *saved,
                    uint32_t saved_n, uint32_t *forced, cohort_error *err);
void constraint_free(struct constraint *c);
/* The grammar is at its end behind the first n tokens. Before anything is drawn. */
int constraint_over(const struct constraint *c, uint32_t n);

/* Which logits constraint_draw will look at for the token at `position`; BATCH_SOME: those whose bits are set in *ids,
 * which stays so until then. Called between the draw before and this one; waits for nobody: as long as the mask is not
 * ready they are all. */
enum batch_wants constraint_wants(const struct constraint *c, const struct sample_params *params, uint64_t position,
                                  const uint32_t **ids);
/* The token at `position`: drawn, or given; kept by the row's samplers. */
void constraint_draw(struct constraint *c, const struct vecops *ops, const struct sample_params *params,
                     uint64_t position, const struct logits *logits, float *scratch, struct sample_result *out,
                     struct constraint_note *note);
/* Makes the mask of the token that is drawn next, if nobody has begun. Engine thread. */
void constraint_prepare(struct constraint *c);
/* Token number `index` of the answer, one of a run that was noted. */
void constraint_run_token(const struct constraint *c, uint32_t index, struct sample_result *out);

#endif
