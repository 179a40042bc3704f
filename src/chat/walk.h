/* JSON, checked byte by byte as it comes. Pure. */
#ifndef CHAT_WALK_H
#define CHAT_WALK_H

#include <stddef.h>
#include <stdint.h>

enum { CHAT_WALK_DEPTH_MAX = 64 };

struct chat_walk {
    uint8_t state, depth, count, key;
    uint64_t objects; /* bit d: what is open at depth d is an object */
    const char *literal;
};

void chat_walk_begin(struct chat_walk *w);
/* 1: the value ends with this byte; 0: it goes on; -1: not JSON (and the walk is of no use any more). A number that is
 * the whole text never ends by itself. */
int chat_walk_byte(struct chat_walk *w, char c);
int chat_walk_whole(const struct chat_walk *w); /* the value could end here */
int chat_walk_in_string(const struct chat_walk *w);
int chat_walk_wants_key(const struct chat_walk *w); /* next is a key or a closing brace */
/* 1: all of it is one JSON value, with white space around. */
int chat_walk_valid(const char *s, size_t n);
/* Length of the value that `s` begins with; 0: it goes on behind n; -1: it is none. */
ptrdiff_t chat_walk_value(const char *s, size_t n);

#endif
