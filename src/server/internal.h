/* What the server's files share: the server object and replying. Loop thread only, but for the atomics (server_attach,
 * server_abort), and model and engine, which helpers use while they have a job. */
#ifndef SERVER_INTERNAL_H
#define SERVER_INTERNAL_H

#include <event2/event.h>
#include <event2/http.h>
#include <stdatomic.h>

#include "server/call.h"
#include "server/descriptors.h"
#include "server/keys.h"
#include "server/pool.h"
#include "server/report.h"
#include "server/server.h"
#include "server/stored.h"

enum { ID_BUCKETS = 4096, SERVER_JSON_FLAGS = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES };

struct server {
    struct server_options options;
    struct event_base *base;
    struct evhttp *http;
    struct evhttp_bound_socket *socket;
    struct event *engine_readable, *tick, *attached, *term, *interrupt;
    struct pool *pool;     /* tokenises */
    struct pool *sessions; /* waits for the disk (sessions.h) */
    struct keys *keys;     /* NULL: everybody is tenant 0 */
    cohort_model *model;   /* NULL while loading */
    cohort_engine *engine;
    _Atomic(cohort_model *) new_model;
    _Atomic(cohort_engine *) new_engine;
    _Atomic int aborted;
    struct call *calls;
    struct journal *journal;   /* NULL: nothing is stored */
    int folder_lock;           /* of a state directory without a journal; -1 */
    struct pool *journal_pool; /* one thread, which waits for the journal's disk */
    struct event *journal_readable;
    char identity[COHORT_IDENTITY_SIZE]; /* of what answers follow from beside the request */
    struct stored *stored_by_id[STORED_BUCKETS], *stored_by_number[STORED_BUCKETS];
    struct stored *waiting_first, *waiting_last; /* recovered calls without places */
    unsigned loading_n;
    int places_freed;     /* maybe, since all of them were last tried */
    int calls_freed;      /* since the engine's events were last read */
    uint64_t stored_lost; /* calls whose further steps could not be written, so far */
    struct reader *readers;
    unsigned readers_n;
    struct told told[STORED_TOLD]; /* a ring */
    size_t told_n;
    struct choice *by_id[ID_BUCKETS];
    uint64_t calls_open, calls_started;
    uint64_t replies_open; /* made or owed by a session's job, not all sent */
    int session_jobs;
    int draining, stopping;
    int64_t drain_until_s;
    int64_t failed_s; /* when the engine was seen not to go on; 0: it does */
    int64_t started;
    uint16_t port;
    struct report report;
};

/* The field of the request's query, decoded, in `out` (longer values are cut): 1. 0: it is not there. E_ARGUMENT names
 * the field: it has a byte that no value has, as %00, behind which nobody would look. */
int query_field(struct evhttp_request *http, const char *name, char *out, size_t size, cohort_error *err);

/* Replies. Each ends the request. */
void reply_json(struct evhttp_request *http, int status, const char *json, size_t len);
/* OpenAI's error shape: {"error":{message,type,param,code}}; status and type follow from the code. */
void reply_error(struct evhttp_request *http, const cohort_error *error);
void reply_status(struct evhttp_request *http, int status, const char *type, const char *message);
/* The JSON of an error, for streams. */
int error_json(struct buf *out, const cohort_error *error);
int error_status(const cohort_error *error);

void server_map_add(struct server *server, struct choice *choice);
void server_map_remove(struct server *server, struct choice *choice);

/* Whose request it is; -1: nobody's who may ask. */
int server_tenant_of(const struct server *server, struct evhttp_request *http);

/* The Prometheus text of /metrics. */
int metrics_text(struct server *server, struct buf *out);

#endif
