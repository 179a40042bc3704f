/* What a row has of its own for its samplers: the lists of its request, the tokens it looks back on, and room to work,
 * in one block that is made at submit. Rows whose samplers need none of it have none.
 *
 * Who may touch it when: the submitting thread fills it; then whoever draws the row's next token, a team thread, which
 * never meets another at the same row. Everything in it follows from the request and the tokens before a position, so a
 * position that is drawn again, because its row was preempted or its draw thrown away, finds and writes the same. */
#ifndef SAMPLE_ROW_H
#define SAMPLE_ROW_H

#include "sample/edits.h"
#include "sample/sample.h"
#include "text/tokenizer.h"

/* A token that penalties are about. */
struct sample_note {
    int32_t id;
    uint32_t uses;     /* in the answer's window */
    uint32_t repeated; /* it is in the repetition window, or with DRY: length of the repeat that it would go on with */
};

struct sample_row {
    uint32_t prompt_n, most; /* positions: 0 .. most - 1 */
    /* By position: the prompt's from the beginning, the answer's as it is drawn. NULL: nothing looks back. */
    int32_t *tokens;
    uint8_t *breaks; /* a breaker ends inside this token's text. NULL: there are none */
    float *states;   /* mirostat's by index in the answer, before that token is drawn. NULL: off */
    /* From the request; ids ascend in biases and allowed. */
    cohort_bias *biases;
    int32_t *allowed; /* NULL: all */
    cohort_ids *banned;
    int32_t *ends; /* forbidden to the first min_tokens tokens */
    cohort_span *breakers;
    uint32_t biases_n, allowed_n, banned_n, ends_n, breakers_n, min_tokens, breaker_max; /* longest, bytes */
    const struct tokenizer *tokenizer;
    /* Room: a small row of logits, edits, notes of penalties and of DRY, lengths of matches. */
    float *allowed_x, *allowed_peaks;
    struct edit *edits;
    struct sample_note *uses, *repeats;
    uint32_t *matches;
};

/* What the request of `params` needs of its own; *out is NULL if that is nothing. `ends`: ids that end a row; they and
 * the stop ids are what min_tokens is about. `max_new` tokens are drawn at most; those that are resumed count. The
 * tokenizer must outlive it. 0; E_ARGUMENT: an id twice in a list; E_MEMORY. */
int sample_row_make(struct sample_row **out, const struct sample_params *params, const cohort_request *q,
                    uint32_t max_new, uint32_t vocab, const int32_t *ends, uint32_t ends_n,
                    const struct tokenizer *tokenizer, cohort_error *err);
void sample_row_free(struct sample_row *r);
/* Keeps what was drawn at `position`. Nothing if r is NULL. */
void sample_row_keep(struct sample_row *r, uint64_t position, int32_t token, float state);

/* breakers.c. 1 if one of the row's breakers ends inside the text of `token` at `position`, behind the tokens before;
 * of these the last BREAKERS_TOKENS count, of which some may have no text. */
enum { BREAKERS_TOKENS = COHORT_STOP_BYTES_MAX };
int breakers_end(const struct sample_row *r, uint32_t position, int32_t token);
/* The same in two steps, for many tokens at one position. */
struct breakers_tail {
    size_t n; /* the last bytes in front of the position, at the end of `bytes` */
    char bytes[COHORT_STOP_BYTES_MAX];
};
void breakers_tail(const struct sample_row *r, uint32_t position, struct breakers_tail *out);
int breakers_end_behind(const struct sample_row *r, const struct breakers_tail *tail, int32_t token);

/* penalties.c, dry.c: notes of what they are about, then what they do with it. The scratch holds an id's worth of 32
 * bits for the whole vocabulary. Returns how many notes there are. */
uint32_t penalties_note(const struct sample_row *r, const cohort_sampling *s, uint32_t position, uint32_t *scratch);
void penalties_apply(const struct sample_note *notes, uint32_t n, const cohort_sampling *s, float scale,
                     struct edits *e);
uint32_t dry_note(const struct sample_row *r, const cohort_sampling *s, uint32_t position, uint32_t *scratch);
void dry_apply(const struct sample_note *notes, uint32_t n, const cohort_sampling *s, float scale, struct edits *e);

#endif
