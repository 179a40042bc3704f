/* Templates for files that have none of their own, chosen by the markers in their vocabulary, or by name. Constant. */
#ifndef CHAT_BUILTIN_H
#define CHAT_BUILTIN_H

#include <stddef.h>

#include "text/tokenizer.h"

struct chat_builtin {
    const char *name;
    const char *text;
    const char *needs[3]; /* control tokens that the vocabulary must have; NULL first: chosen by name only */
    int by_score;         /* 1: for vocabularies that are merged by score, which join a space to words */
};

/* The first whose markers the vocabulary has; plain lines "role: text" if there is none. */
const struct chat_builtin *chat_builtin_choose(const struct tokenizer *t);
/* NULL: there is none of this name. */
const struct chat_builtin *chat_builtin_named(const char *name, size_t len);

#endif
