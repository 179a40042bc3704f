/* Incremental text of one generated sequence: tokens in, whole UTF-8 characters out, with stop strings withheld while
 * they may still match. A plain struct without pointers to the heap; one thread at a time; cloning is a struct copy.
 *
 * Rules: text goes out as soon as it is certain. An incomplete UTF-8 tail is held back and, at the end, released with
 * each of its bytes as U+FFFD. A byte sequence that can never become UTF-8 goes out as U+FFFD at once, one per byte.
 * The joined pieces equal the one-shot decode, with those replacements.
 *
 * A stop string matches as soon as its last character is there, wherever tokens begin and end; if several end at the
 * same character the longest counts, of equal ones the first. On a match everything before it goes out and nothing
 * after that. */
#ifndef TEXT_DETOK_H
#define TEXT_DETOK_H

#include "base/buf.h"
#include "text/tokenizer.h"

enum { DETOK_STOPS_MAX = 16, DETOK_STOP_BYTES_MAX = 256 };

struct detok_stop {
    uint16_t len; /* 1..DETOK_STOP_BYTES_MAX, whole UTF-8 characters */
    char bytes[DETOK_STOP_BYTES_MAX];
};

struct detok {
    const struct tokenizer *tokenizer;
    const struct detok_stop *stops; /* caller's, outlives this */
    uint32_t stops_n;
    uint8_t started;      /* the first text was seen (leading-space rule) */
    uint8_t include_stop; /* set by the owner, behind detok_init: the stop string that matches goes out too */
    uint8_t special;      /* set by the owner, behind detok_init: control tokens have text, too */
    uint8_t deaf;         /* set by the owner at any time: what is completed meanwhile does not match */
    uint8_t held_n;       /* bytes of an incomplete character */
    char held[4];
    uint32_t pending_n; /* valid text withheld because a stop string may begin in it */
    char pending[DETOK_STOP_BYTES_MAX];
};

void detok_init(struct detok *d, const struct tokenizer *tokenizer, const struct detok_stop *stops, uint32_t stops_n,
                int strip_first_space);
/* Adds a token's text to *out. Returns the index of the stop string that matched, DETOK_NONE, or DETOK_NO_MEMORY
 * (*out could not grow). After a match nothing may be pushed. */
int detok_push(struct detok *d, int32_t token, struct buf *out);
/* End without a stop match: releases what is held back. 0 or COHORT_E_MEMORY. */
int detok_finish(struct detok *d, struct buf *out);

enum { DETOK_NONE = -1, DETOK_NO_MEMORY = -2 };

#endif
