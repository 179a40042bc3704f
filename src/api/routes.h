/* The handlers of what is spoken, and the dialects of the endpoints that generate: the table in api.c has all of them.
 * Loop thread. */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include <jansson.h>

#include "api/asked.h"
#include "server/call.h"
#include "server/http.h"

extern const struct dialect dialect_completions, dialect_chat, dialect_messages, dialect_responses, dialect_llama,
    dialect_infill;
extern const struct dialect dialect_embeddings, dialect_embedding; /* OpenAI's and llama-server's */

void models_list(struct server *server, struct evhttp_request *http, const char *name);
void models_one(struct server *server, struct evhttp_request *http, const char *name);
void messages_count_tokens(struct server *server, struct evhttp_request *http, const char *name);

void responses_create(struct server *server, struct evhttp_request *http, const char *name);
void responses_count(struct server *server, struct evhttp_request *http, const char *name);
void responses_get(struct server *server, struct evhttp_request *http, const char *id);
void responses_delete(struct server *server, struct evhttp_request *http, const char *id);
void responses_cancel(struct server *server, struct evhttp_request *http, const char *id);
void responses_items(struct server *server, struct evhttp_request *http, const char *id);

/* Answers {"input_tokens":N}, the length of the prompt that the chat which `body` asks for has. `names` for errors;
 * `object` (a literal, NULL: none) is told besides. */
void count_chat(struct server *server, struct evhttp_request *http, json_t *body, const struct asked *asked,
                const struct asked_names *names, const char *object);

#endif
