/* Tokenizers from model metadata: SentencePiece (unigram scores, merged like BPE, byte fallback), byte-level BPE with
 * the published pre-tokeniser patterns, and BPE over text whose spaces are written as U+2581. Immutable after open;
 * encoding and decoding are reentrant and used from any thread. The metadata may go once it is open.
 *
 * Text becomes the tokens that the model's own tokenizer makes of it, but never a control, unknown, unused or byte
 * token by its spelling: those come from TOKENIZER_SPECIAL, or for bytes from characters without a token. Tokens of
 * type "user defined" are found in any text, leftmost and longest first. No normalisation is done, since no key asks
 * for one. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/meta.h"

struct tokenizer;

enum {
    TOKENIZER_SPECIAL = 1, /* these two are the COHORT_TOKENIZE_ flags */
    TOKENIZER_BOS = 2,
    TOKENIZER_GOES_ON = 4 /* other text stands before it: no space is put in front */
};
enum {
    TOKENIZER_VOCAB_MAX = 1 << 20,
    TOKENIZER_PIECE_MAX = 1 << 16,  /* bytes of one token */
    TOKENIZER_BYTES_MAX = 1 << 28,  /* bytes of all tokens */
    TOKENIZER_MERGES_MAX = 1 << 22, /* entries of the merge list */
    TOKENIZER_TEXT_MAX = 1 << 24,   /* bytes of a text */
    TOKENIZER_WORD_MAX = 1 << 22    /* bytes of it that no pattern and no space cuts; bounds the memory of a call */
};

/* Reads tokenizer.ggml.* keys. Every array's type and length is checked against the token count; ids are range-checked.
 * Keys named. */
int tokenizer_open(const struct meta *meta, struct tokenizer **out, cohort_error *err);
void tokenizer_close(struct tokenizer *t);

/* 1: SentencePiece's way, by unigram scores. */
int tokenizer_merges_by_score(const struct tokenizer *t);
uint32_t tokenizer_size(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);
int tokenizer_add_bos(const struct tokenizer *t);
/* Markers for filling in the middle, of code models: -1: none. */
enum tokenizer_fill {
    TOKENIZER_FILL_PREFIX,
    TOKENIZER_FILL_SUFFIX,
    TOKENIZER_FILL_MIDDLE,
    TOKENIZER_FILL_PAD,
    TOKENIZER_FILL_REPOSITORY,
    TOKENIZER_FILL_FILE,
    TOKENIZER_FILLS
};
int32_t tokenizer_fill(const struct tokenizer *t, enum tokenizer_fill which);
/* 1 if the id ends generation: eos, eot, eom and the turn-end markers ("<end_of_turn>", "<|im_end|>", "<|eot_id|>",
 * ...). */
int tokenizer_is_end(const struct tokenizer *t, int32_t id);
/* Control, unknown or unused (padding): never shown as text. */
int tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* Id of a token by its exact text as listed in the vocabulary, -1 if none. The first of equal texts. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len);

/* Encodes valid UTF-8; *out is mem_alloc'ed. Near-linear in len. len at most TOKENIZER_TEXT_MAX (E_LIMIT). The begin
 * token is put in front if TOKENIZER_BOS is set, the vocabulary wants one and the text does not begin with it already.
 */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int flags, int32_t **out, size_t *n,
                     cohort_error *err);
/* The same of text whose bytes have marks, which a template has written: control tokens and markers come only from
 * bytes that all have mark 0; everything else is plain text, whatever it spells, and encoded with what is around it.
 * A user-defined token is a marker if it is written like a tag ("<think>", "[TOOL_CALLS]") and no tag of HTML.
 * The begin token is put in front as with TOKENIZER_BOS, but for `within`: then the text is a piece from inside a
 * chat. cut_ids[i], for the ascending cuts[i]: the number of ids that lie wholly in front of that byte; where the
 * vocabulary lacks characters, no more than that. */
struct tokenizer_marked {
    const char *text;
    const uint16_t *marks;
    size_t len;
    const size_t *cuts;
    uint32_t *cut_ids;
    size_t cuts_n;
    int within;
};
int tokenizer_encode_marked(const struct tokenizer *t, const struct tokenizer_marked *in, int32_t **out, size_t *n,
                            cohort_error *err);
/* The bytes a token stands for ("▁" already a space, byte tokens their byte), in the tokenizer's memory; empty for
 * special tokens unless `special`, and for an id outside the vocabulary. */
void tokenizer_piece(const struct tokenizer *t, int32_t id, int special, const char **bytes, size_t *len);
/* A token's text as the vocabulary lists it; empty for an id outside it. */
void tokenizer_spelling(const struct tokenizer *t, int32_t id, const char **bytes, size_t *len);
uint32_t tokenizer_longest_piece(const struct tokenizer *t); /* bytes of the longest, special ones too */
/* Bytes of text that one token stands for at most, in text read without TOKENIZER_SPECIAL; 0: no limit, because a run
 * of characters that the vocabulary lacks is one token, or because white space behind some token is dropped. */
uint32_t tokenizer_reach(const struct tokenizer *t);
/* 1 if the first token of a decoded sequence loses one leading space (SentencePiece's dummy prefix). */
int tokenizer_strips_first_space(const struct tokenizer *t);

#endif
