/* Values that are nearly JSON, made JSON as they come: Python's literals ('a', True, None, dictionaries and lists), and
 * values in braces whose keys stand without quotes and whose strings stand between marks. One value at a time. Pure,
 * but for the buffer. */
#ifndef CHAT_LOOSE_H
#define CHAT_LOOSE_H

#include "base/buf.h"
#include "chat/walk.h"

enum { CHAT_LOOSE_WORD_MAX = 256 };

struct chat_loose {
    struct chat_walk walk;
    const char *quote; /* NULL: Python's */
    char in;           /* the quote of the string that is open; 'q': the mark's; 0: none */
    uint8_t escaped;
    uint16_t word_n;
    char word[CHAT_LOOSE_WORD_MAX];
};

enum chat_loose_result { CHAT_LOOSE_MORE, CHAT_LOOSE_DONE, CHAT_LOOSE_BAD, CHAT_LOOSE_MEMORY };

void chat_loose_begin(struct chat_loose *l, const char *quote);
/* Reads from `s` and adds JSON to `out`; *used: bytes taken, all up to the value's end when DONE (a word ends before
 * the byte behind it). `last`: nothing comes behind n. */
enum chat_loose_result chat_loose_feed(struct chat_loose *l, const char *s, size_t n, int last, struct buf *out,
                                       size_t *used);
/* Adds the characters of s as the inside of a JSON string, as many as are whole: returns how many bytes, or -1 for no
 * memory. `last`: an incomplete character is replaced, as bytes that are none are. */
ptrdiff_t chat_json_inside(struct buf *out, const char *s, size_t n, int last);

#endif
