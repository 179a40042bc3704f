/* Vocabularies built in memory, right or wrong as a test wants them: fill, take tiny_meta(), open a tokenizer on it. */
#ifndef TESTS_TINY_VOCAB_H
#define TESTS_TINY_VOCAB_H

#include "base/meta.h"
#include "text/tokenizer.h"

enum { TINY_TOKENS = 1024, TINY_MERGES = 512, TINY_KEYS = 32, TINY_TEXT = 1 << 16 };

struct tiny_vocab {
    struct meta_string tokens[TINY_TOKENS], merges[TINY_MERGES], strings[TINY_KEYS];
    int32_t types[TINY_TOKENS];
    float scores[TINY_TOKENS];
    size_t n, merges_n;
    uint64_t values[TINY_KEYS];
    struct meta_entry entries[TINY_KEYS];
    struct meta meta;
    char text[TINY_TEXT]; /* the strings' bytes */
    size_t used;
};

void tiny_init(struct tiny_vocab *v, const char *model);
int32_t tiny_add(struct tiny_vocab *v, const char *text, int type, float score); /* its id */
void tiny_add_bytes(struct tiny_vocab *v);                                       /* the 256 "<0xHH>" tokens */
void tiny_add_alphabet(struct tiny_vocab *v); /* the 256 characters of byte-level BPE, id = byte */
void tiny_merge(struct tiny_vocab *v, const char *line);
void tiny_u32(struct tiny_vocab *v, const char *key, uint32_t value);
void tiny_bool(struct tiny_vocab *v, const char *key, int value);
void tiny_string(struct tiny_vocab *v, const char *key, const char *value);
/* Adds tokens, token_type, and scores or merges as the model wants them; call it once, last. */
const struct meta *tiny_meta(struct tiny_vocab *v);
struct meta_entry *tiny_entry(struct tiny_vocab *v, const char *key); /* to spoil it */
struct tokenizer *tiny_open(struct tiny_vocab *v);                    /* asserts success */
/* The ids as "1 2 3". */
const char *tiny_ids(const struct tokenizer *t, const char *text, int flags);

#endif
