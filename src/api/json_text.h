/* JSON as text, for prompts and replies. Pure. */
#ifndef API_JSON_TEXT_H
#define API_JSON_TEXT_H

#include <jansson.h>

#include "base/buf.h"

/* On one line with ", " and ": ", members in their order, as chat templates write it; reals as short as they can be
 * said (the library writes 0.1 with seventeen digits). */
int json_text(struct buf *out, const json_t *value);
/* What of the beginning of an object is whole, closed: the members and elements up to where it was cut off. A whole one
 * stays as it is; "{}" if it is no object. */
int json_text_closed(struct buf *out, const char *bytes, size_t n);
/* As json_text, as a JSON string; NULL without memory. */
json_t *json_text_string(const json_t *value);

#endif
