/* What speaks through the server sees of it: the routes it adds, replies, and what it needs to make them. Loop thread,
 * but for server_model and server_engine, which helpers use while they have a job. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include <event2/http.h>
#include <jansson.h>
#include <stdint.h>

#include "base/buf.h"
#include "cohort/cohort.h"

struct server;
struct server_options;
struct dialect;
struct arrival;

/* ---- errors, as each API words them ---- */

struct error_view {
    int status;
    const char *message, *type; /* OpenAI's types */
    const char *param, *code;   /* NULL or "": none */
    const char *request_id;     /* of the reply's header; NULL: none */
};
struct error_shape {
    int (*status)(const struct error_view *usual);            /* in the place of the usual one; NULL: that */
    int (*write)(struct buf *out, const struct error_view *); /* the JSON */
    int request_ids;                                          /* every reply has a header "request-id" */
};
/* {"error":{message,type,param,code}}: of every path that is nobody else's. */
extern const struct error_shape error_shape_openai;

/* ---- routes ---- */

enum { ROUTE_NAME_MAX = 511 };

struct route {
    const char *path; /* "*" stands for one segment */
    enum evhttp_cmd_type method;
    int open, while_loading, while_draining; /* needs no key; is answered while the model loads, or the server ends */
    /* `name`: the segment at "*", as it is in the URL, or "". */
    void (*handle)(struct server *server, struct evhttp_request *http, const char *name);
    const struct error_shape *errors; /* also of the paths behind it; NULL: OpenAI's */
    int no_head;                      /* what GET gives may have no end */
};

/* What is spoken. A path may be there once for each method. */
struct server_api {
    const struct route *routes;
    size_t routes_n;
    const struct dialect *const *dialects; /* all that generate: stored calls are read back by their path */
    size_t dialects_n;
};

/* A route's handler for an endpoint that generates: reads the body and starts the call. */
void server_generate(struct server *server, struct evhttp_request *http, const struct dialect *dialect);

/* Its first half: the body, owned by the caller, and what is known of the request. NULL: it was answered. */
json_t *server_read_body(struct server *server, struct evhttp_request *http, const struct dialect *dialect,
                         struct arrival *arrival);

/* ---- the server ---- */

cohort_model *server_model(const struct server *server); /* NULL while it loads */
cohort_engine *server_engine(const struct server *server);
const struct server_options *server_get_options(const struct server *server);
int64_t server_started(const struct server *server); /* seconds since the epoch */
int server_is_draining(const struct server *server);
int server_has_journal(const struct server *server); /* calls can be stored */
/* Whose request it is; -1: nobody's who may ask. */
int server_tenant_of(const struct server *server, struct evhttp_request *http);

/* The field of the request's query, decoded, in `out` (longer values are cut): 1. 0: it is not there. E_ARGUMENT names
 * the field: it has a byte that no value has, as %00, behind which nobody would look. */
int query_field(struct evhttp_request *http, const char *name, char *out, size_t size, cohort_error *err);

/* ---- replies: each ends the request ---- */

void reply_json(struct evhttp_request *http, int status, const char *json, size_t len);
/* The buffer as JSON, which it frees; 503 if `rc` says that it could not be made. */
void reply_buf(struct server *server, struct evhttp_request *http, struct buf *body, int rc);
/* Names of fields that nobody knows, in a header; "": none. `http` NULL: there is nobody to tell. */
void reply_unknown(struct evhttp_request *http, const char *names);
/* Status and type follow from the code, the words from the path. */
void reply_error(struct server *server, struct evhttp_request *http, const cohort_error *error);
void reply_status(struct server *server, struct evhttp_request *http, int status, const char *type,
                  const char *message);

/* The JSON of an error, for streams. */
int error_json(struct buf *out, const struct error_shape *shape, const cohort_error *error);
int error_status(const struct error_shape *shape, const cohort_error *error);

#endif
