/* What the server's files share: the server object and replying. Loop thread only, but for the atomics (server_attach,
 * server_abort), and model and engine, which helpers use while they have a job. */
#ifndef SERVER_INTERNAL_H
#define SERVER_INTERNAL_H

#include <event2/event.h>
#include <event2/http.h>
#include <stdatomic.h>

#include "server/call.h"
#include "server/descriptors.h"
#include "server/http.h"
#include "server/keys.h"
#include "server/pool.h"
#include "server/report.h"
#include "server/server.h"
#include "server/stored.h"

enum { ID_BUCKETS = 4096 };

struct server {
    struct server_options options;
    struct event_base *base;
    struct evhttp *http;
    struct evhttp_bound_socket *socket;
    struct event *engine_readable, *tick, *attached, *term, *interrupt;
    struct pool *pool;      /* tokenises */
    struct pool *grammars;  /* compiles them: keys take turns */
    struct pool *sessions;  /* waits for the disk (sessions.h) */
    struct pool *task_pool; /* one helper (task.h) */
    struct keys *keys;      /* NULL: everybody is tenant 0 */
    cohort_model *model;    /* NULL while loading */
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
    int session_jobs, tasks_n;
    size_t tasks_bytes; /* may be more than the limit, by one that came alone */
    int draining, stopping;
    int64_t drain_until_s;
    int64_t failed_s; /* when the engine was seen not to go on; 0: it does */
    int64_t started;
    uint16_t port;
    struct report report;
};

/* How the path of a request words its errors. */
const struct error_shape *server_shape_of(const struct server *server, struct evhttp_request *http);

/* The dialect of a path, or of a call's id; NULL: none. */
const struct dialect *server_dialect_at(const struct server *server, const char *path);
const struct dialect *server_dialect_of(const struct server *server, const char *id);
const struct error_shape *server_errors_of(const struct server *server, const char *id); /* OpenAI's, if nobody's */

void server_map_add(struct server *server, struct choice *choice);
void server_map_remove(struct server *server, struct choice *choice);

/* The Prometheus text of /metrics. */
int metrics_text(struct server *server, struct buf *out);

#endif
