/* The handlers of what is spoken, and the dialects of the endpoints that generate: the table in api.c has all of them.
 * Loop thread. */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include "server/call.h"
#include "server/http.h"

extern const struct dialect dialect_completions, dialect_chat, dialect_llama, dialect_infill;
extern const struct dialect dialect_embeddings, dialect_embedding; /* OpenAI's and llama-server's */

void models_list(struct server *server, struct evhttp_request *http, const char *name);
void models_one(struct server *server, struct evhttp_request *http, const char *name);

#endif
