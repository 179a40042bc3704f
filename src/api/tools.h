/* Tools in the shapes of OpenAI's API, from a body into a chat. Pure. */
#ifndef API_TOOLS_H
#define API_TOOLS_H

#include <jansson.h>

#include "server/chat_params.h"

enum { TOOLS_NAME_MAX = 128 /* bytes, of [A-Za-z0-9_-] */ };

/* Whether it can be a tool's name. */
int tools_is_name(const json_t *name);
/* An array of {"type":"function","function":{"name","description","parameters","strict"}}, checked; an empty one is
 * none. */
int tools_read(struct chat_params *c, const json_t *tools, cohort_error *err);
/* tool_choice; behind the tools. `tools`: those of the body, NULL: none. The names stay in the body's JSON. */
int tools_read_choice(struct chat_params *c, const json_t *choice, const json_t *tools, cohort_error *err);
/* Whether the array of tools has one of that name. */
int tools_have(const json_t *tools, const json_t *name);

#endif
