/* The tokenizer for clients: handlers of the routes in api.c (tokens.c has what they read and tell). Loop thread. */
#ifndef API_TOKENS_H
#define API_TOKENS_H

#include <event2/http.h>

#include "base/buf.h"
#include "cohort/cohort.h"

struct server;

enum {
    TOKENS_TEXT_MAX = 2 << 20, /* bytes of text to tokenise, and */
    TOKENS_IDS_MAX = 1 << 20   /* ids or parts */
};

void tokens_tokenize(struct server *server, struct evhttp_request *http, const char *name);
void tokens_detokenize(struct server *server, struct evhttp_request *http, const char *name);
void tokens_template(struct server *server, struct evhttp_request *http, const char *name);
void tokens_info(struct server *server, struct evhttp_request *http, const char *name);

/* A token's text as a JSON string; null for -1. */
int tokens_add_text(const cohort_model *model, int32_t id, struct buf *out);

#endif
