/* The token table of a vocabulary: texts as listed in the file, types, merge order, and the hash from text to id.
 * Immutable after load; any thread. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/meta.h"

enum token_type { /* GGUF's numbers; 0 is "undefined" and taken as unused */
                  TOKEN_NORMAL = 1,
                  TOKEN_UNKNOWN = 2,
                  TOKEN_CONTROL = 3,
                  TOKEN_USER = 4,
                  TOKEN_UNUSED = 5,
                  TOKEN_BYTE = 6
};

enum { VOCAB_PADDING = 8 }; /* bytes behind the texts that may be read, so that they can be taken by eight */

struct vocab {
    uint32_t n;
    uint32_t longest; /* bytes of the longest text */
    uint64_t seed;    /* of the hash: fresh per process, so that no file can be made to collide */
    void *memory;     /* of all that follows */
    size_t memory_bytes;
    char *text;   /* all texts, one after the other */
    uint32_t *at; /* n + 1 offsets into text */
    uint8_t *type;
    uint32_t *order; /* by score: smaller merges first. NULL without scores */
    uint64_t *slots; /* high half of the hash | id + 1; 0: free */
    uint32_t slots_mask;
    int32_t byte_id[256]; /* of "<0xHH>" tokens; -1: none */
};

/* Reads tokenizer.ggml.tokens, .token_type and, if `with_scores`, .scores. On failure *v holds nothing. */
int vocab_load(struct vocab *v, const struct meta *meta, int with_scores, cohort_error *err);
void vocab_free(struct vocab *v);

static inline const char *vocab_text(const struct vocab *v, uint32_t id, size_t *len) {
    *len = v->at[id + 1] - v->at[id];
    return v->text + v->at[id];
}

uint64_t vocab_hash(const struct vocab *v, const char *text, size_t len);
/* The lowest id with exactly this text, -1 if none or empty. */
int32_t vocab_find(const struct vocab *v, const char *text, size_t len);
int32_t vocab_find_hashed(const struct vocab *v, uint64_t hash, const char *text, size_t len);
static inline void vocab_prefetch(const struct vocab *v, uint64_t hash) {
    __builtin_prefetch(&v->slots[hash & v->slots_mask]);
}

/* Whether plain text may become this token. Control, unknown, unused and byte tokens never come out of merging, however
 * their text is spelled. */
static inline int vocab_is_plain(const struct vocab *v, int32_t id) {
    return v->type[id] == TOKEN_NORMAL || v->type[id] == TOKEN_USER;
}
static inline int vocab_is_hidden(const struct vocab *v, int32_t id) {
    return v->type[id] == TOKEN_CONTROL || v->type[id] == TOKEN_UNKNOWN || v->type[id] == TOKEN_UNUSED;
}

/* The byte that a "<0xHH>" token names, -1 if its text is not exactly of that form. */
int vocab_byte(const struct vocab *v, uint32_t id);

/* The array of this key, checked: *out is NULL if it is absent. `count` 0: any. */
int vocab_array(const struct meta *meta, const char *key, enum meta_type element, uint64_t count,
                const struct meta_entry **out, cohort_error *err);

#endif
