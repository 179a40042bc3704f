/* A chat as a body asks for it, with what its texts live in: for calls, and for what only counts or renders. Pure; one
 * thread at a time. Zeroed memory has no chat, and can be let go of. */
#ifndef SERVER_CHAT_PARAMS_H
#define SERVER_CHAT_PARAMS_H

#include <jansson.h>

#include "base/buf.h"
#include "cohort/cohort.h"

enum { CHAT_PARAMS_OWNED_MAX = 6 /* texts, one of each kind */ };

struct chat_params {
    cohort_chat chat; /* its texts are `owned`, or in the body's JSON; messages NULL: no chat */
    struct buf owned[CHAT_PARAMS_OWNED_MAX];
    size_t owned_n;
};

/* No chat yet: the defaults of what it will say. */
void chat_params_init(struct chat_params *c);
void chat_params_deinit(struct chat_params *c);

/* Texts that stay as long as `c`: one that is there, which is empty then, and a value's JSON. */
void chat_params_keep(struct chat_params *c, struct buf *text);
int chat_params_text(struct chat_params *c, const json_t *value, const char **text, size_t *n, cohort_error *err);
/* In the shapes of OpenAI's API: messages, tools, an object of the template's variables. */
int chat_params_messages(struct chat_params *c, const json_t *messages, cohort_error *err);
int chat_params_tools(struct chat_params *c, const json_t *tools, cohort_error *err);
int chat_params_variables(struct chat_params *c, const json_t *variables, cohort_error *err);
/* The names of an array of strings, which stays where it is, as the tools that may be called. */
int chat_params_allow(struct chat_params *c, const json_t *names, cohort_error *err);

#endif
