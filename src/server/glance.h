/* A glance over a large request body before it is parsed: how much text its prompt has at least. Reading 30 MB of JSON
 * takes the loop most of a second, this a hundredth of it, and a prompt that cannot fit anyhow needs no more. Pure.
 *
 * What it says holds for every body that is valid JSON without a name given twice (of those the longest counts, not the
 * last); a shape that it does not know counts as no text. */
#ifndef SERVER_GLANCE_H
#define SERVER_GLANCE_H

#include <stddef.h>

enum {
    GLANCE_DEPTH = 5, /* messages[i].content[j].text */
    GLANCE_NAME = 8   /* bytes of "messages", the longest name that matters */
};

struct glance {      /* zero-initialise */
    size_t prompt;   /* {"prompt": "..." or ["...", ...]}: bytes of the longest */
    size_t messages; /* {"messages": [{"content": "..." or [{"text": "..."}, ...]}, ...]}: bytes of all together, white
                        space at their ends left out, since templates may drop it */
    size_t input;    /* {"input": "..." or [{"content": as above}, ...]}: the same */

    /* the string that is being read, or was read last */
    int in_string, escaped, read; /* `read`: it has ended, and what follows says whether it was a name or a value */
    unsigned skip;                /* hex digits to come */
    size_t bytes;                 /* once decoded, at least: an escape counts as one */
    size_t first, last;           /* of `bytes`: [first, last) without spaces and escapes at the ends; last 0: none */
    char name[GLANCE_NAME];
    size_t name_len; /* above GLANCE_NAME: none that matters */

    size_t depth; /* open objects and arrays */
    struct {
        char kind, name[GLANCE_NAME]; /* '{' or '['; the member being read */
        size_t name_len;
    } level[GLANCE_DEPTH]; /* level[d - 1] is at depth d */
};

/* The body's next bytes. */
void glance_feed(struct glance *g, const char *bytes, size_t n);

#endif
