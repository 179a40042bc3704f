/* Pre-tokenisers of byte-level BPE: the published patterns that cut text into the words inside which merging happens.
 * Immutable after open; splitting is reentrant. */
#ifndef TEXT_PRETOK_H
#define TEXT_PRETOK_H

#include <stddef.h>

#include "base/err.h"

enum { PRETOK_STAGES_MAX = 6 };

struct pretok_rule {
    const char *name; /* a value of tokenizer.ggml.pre */
    const char *const *stages;
    unsigned char ignore_merges; /* a word that is itself a token is not merged up from its bytes */
    unsigned char add_bos;       /* if the file does not say */
};

/* NULL: no such name. */
const struct pretok_rule *pretok_find(const char *name, size_t len);

struct pretok {
    struct pretok_memory *memory; /* the library's allocator: ours */
    struct pretok_pattern *patterns[PRETOK_STAGES_MAX];
    int n;
};

int pretok_open(struct pretok *p, const struct pretok_rule *rule, cohort_error *err);
void pretok_close(struct pretok *p);

/* Calls `word` for every word in order until it returns non-zero, which is then returned. `text` is valid UTF-8.
 * COHORT_E_MEMORY, or COHORT_E_LIMIT if a pattern takes more than its bounded work. */
typedef int (*pretok_word)(void *context, const char *word, size_t len);
int pretok_split(const struct pretok *p, const char *text, size_t n, pretok_word word, void *context);

#endif
