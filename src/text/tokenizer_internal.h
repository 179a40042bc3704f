/* What the tokenizer's files share. */
#ifndef TEXT_TOKENIZER_INTERNAL_H
#define TEXT_TOKENIZER_INTERNAL_H

#include "base/buf.h"
#include "text/merge.h"
#include "text/pairs.h"
#include "text/pretok.h"
#include "text/special.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

enum tokenizer_kind {
    KIND_SCORES, /* "llama": spaces as U+2581, merged by score */
    KIND_BYTES,  /* "gpt2": bytes as printable characters, merged by rank inside words */
    KIND_SPACED  /* "gemma4": spaces as U+2581, merged by rank inside lines */
};

struct tokenizer {
    enum tokenizer_kind kind;
    struct vocab vocab;
    struct pairs pairs;   /* KIND_BYTES, KIND_SPACED */
    struct pretok pretok; /* KIND_BYTES */
    struct special_set user, all;
    struct special_set words; /* of `user` those that are no markers */
    int32_t bos, eos, unknown, fill[TOKENIZER_FILLS];
    uint8_t add_bos, add_space, ignore_merges;
    uint8_t *flags;     /* per id: ID_... */
    size_t piece_bytes; /* of the block that begins at piece_at */
    uint32_t *piece_at; /* vocab.n + 1 offsets into pieces */
    char *pieces;       /* decoded bytes, one token after the other */
    uint32_t longest_piece;
    uint32_t reach; /* tokenizer_reach */

    /* KIND_BYTES: the character that stands for a byte, its UTF-8, and its token. */
    uint16_t byte_char[256];
    int32_t byte_token[256];
    /* Other kinds: the last bytes of characters that some token has in front of a U+2581. Only behind these can a
     * merge reach over the beginning of a word. */
    uint8_t joins_space[256];
};

enum {
    ID_END = 1,        /* ends generation */
    ID_EATS_SPACE = 2, /* white space behind the token is not text */
    ID_MARKER = 4      /* user-defined, but a marker: only a template writes it (tokenizer_encode_marked) */
};

/* Marks end tokens and markers, and makes turn markers control tokens (markers.c). */
int markers_load(struct tokenizer *t, const struct meta *meta, cohort_error *err);
/* Fills pieces, piece_at and the byte tables (pieces.c). */
int pieces_load(struct tokenizer *t, cohort_error *err);

struct ids {
    int32_t *v;
    size_t n, capacity;
};
int ids_add(struct ids *ids, int32_t id); /* 0 or COHORT_E_MEMORY */

/* One call's state. */
struct encoder {
    const struct tokenizer *t;
    struct ids out;
    struct merger merger;
    struct buf scratch;
    const char *word;  /* the one being merged */
    size_t plain_from; /* of out: where the text between two special tokens begins */
    int marked;        /* merging makes no markers */
    cohort_error *err;
};

/* Appends the ids of text without special tokens in it (bytes.c, spaced.c). */
int bytes_encode(struct encoder *e, const char *text, size_t n);
int spaced_encode(struct encoder *e, const char *text, size_t n, int space_in_front);
int encoder_plain(struct encoder *e, const char *text, size_t n, int after_special);
int encoder_check(const char *text, size_t len, cohort_error *err);
/* Gives the ids to the caller and frees the rest. */
int encoder_end(struct encoder *e, int code, int32_t **out, size_t *n);
/* White space that some tokens drop behind them. */
static inline int encoder_drops(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
/* Whether merging may make this token. */
static inline int encoder_may_make(const struct encoder *e, int32_t id) {
    return vocab_is_plain(&e->t->vocab, id) && !(e->marked && e->t->flags[id] & ID_MARKER);
}
/* What a byte without any token becomes: the unknown token, or COHORT_E_UNSUPPORTED with e->err set. */
int encoder_no_token(struct encoder *e, unsigned byte);

#endif
