/* A glance over a large request body before it is parsed: how much text its prompt has at least. Reading 30 MB of JSON
 * takes the loop most of a second, this some milliseconds, and a prompt that cannot fit anyhow needs no more. Pure.
 *
 * What it says holds for every body that is valid JSON without a name given twice (others are refused anyway); a shape
 * that it does not know counts as no text. */
#ifndef SERVER_GLANCE_H
#define SERVER_GLANCE_H

#include <stddef.h>

/* {"prompt": "..." or ["...", ...]}: bytes of the longest. */
size_t glance_prompt(const char *body, size_t len);
/* {"messages": [{"content": "..." or [{"text": "..."}, ...]}, ...]}: bytes of all together, white space at their ends
 * left out, since templates may drop it. */
size_t glance_messages(const char *body, size_t len);

#endif
