/* The loop: listener, routes, keys, signals, the way in from the engine. One thread, the caller of server_run;
 * server_attach and server_abort come from others through an event.
 *
 * Life: open (listening, answers 503 "loading") -> attached (serving) -> draining (SIGTERM: no new work) -> stopped. */
#include "server/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/thread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/fields.h"
#include "server/internal.h"
#include "server/readers.h"
#include "server/recover.h"
#include "server/sessions.h"

enum { READY_BATCH = 256, STUCK_US = 120 * 1000 * 1000 };

/* ---- ids ---- */

void server_map_add(struct server *server, struct choice *choice) {
    struct choice **bucket = &server->by_id[choice->id % ID_BUCKETS];
    choice->map_next = *bucket;
    *bucket = choice;
}

void server_map_remove(struct server *server, struct choice *choice) {
    struct choice **at = &server->by_id[choice->id % ID_BUCKETS];
    while (*at && *at != choice) at = &(*at)->map_next;
    if (*at) *at = choice->map_next;
}

static struct choice *map_find(struct server *server, cohort_id id) {
    struct choice *choice = server->by_id[id % ID_BUCKETS];
    while (choice && choice->id != id) choice = choice->map_next;
    return choice;
}

/* ---- routes ---- */

int server_tenant_of(const struct server *server, struct evhttp_request *http) {
    if (!server->keys) return 0;
    struct evkeyvalq *headers = evhttp_request_get_input_headers(http);
    const char *bearer = evhttp_find_header(headers, "Authorization");
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0) return keys_find(server->keys, bearer + 7);
    const char *key = evhttp_find_header(headers, "x-api-key");
    return key ? keys_find(server->keys, key) : -1;
}

/* Prompts that cannot fit whatever their tokens are, seen before the body is parsed. A body that would fit as text
 * cannot hold one. */
static int check_body(const struct server *server, const struct dialect *dialect, struct evbuffer *body,
                      cohort_error *err) {
    if (cohort_check_length(server->engine, evbuffer_get_length(body), UINT32_MAX, NULL) == 0) return 0;
    struct glance glance = {0};
    struct evbuffer_ptr at;
    struct evbuffer_iovec piece;
    evbuffer_ptr_set(body, &at, 0, EVBUFFER_PTR_SET);
    /* A length of 1 gives the whole next piece, without a walk over those behind it. */
    while (evbuffer_peek(body, 1, &at, &piece, 1) > 0 && piece.iov_len > 0) {
        glance_feed(&glance, piece.iov_base, piece.iov_len);
        if (evbuffer_ptr_set(body, &at, piece.iov_len, EVBUFFER_PTR_ADD) != 0) break;
    }
    return cohort_check_length(server->engine, dialect->text_bytes(&glance), UINT32_MAX, err);
}

json_t *server_read_body(struct server *server, struct evhttp_request *http, const struct dialect *dialect,
                         struct arrival *arrival) {
    struct evbuffer *input = evhttp_request_get_input_buffer(http);
    *arrival = (struct arrival){.tenant = (uint32_t)server_tenant_of(server, http), .read_us = clock_us()};
    cohort_error error = {0};
    json_t *body = NULL;
    traceparent_accept(http, &arrival->trace);
    int rc = check_body(server, dialect, input, &error);
    if (rc)
        call_name_input(dialect, &error);
    else
        rc = fields_body(input, &body, &error);
    if (rc) reply_error(server, http, &error);
    return body;
}

void server_generate(struct server *server, struct evhttp_request *http, const struct dialect *dialect) {
    struct arrival arrival;
    json_t *body = server_read_body(server, http, dialect, &arrival);
    if (body) call_start(server, dialect, http, &arrival, body);
}

static int loop_is_well(struct server *server) {
    cohort_metrics m;
    cohort_metrics_get(server->engine, &m);
    return m.healthy && m.last_iteration_us_ago < STUCK_US;
}

static void route_health(struct server *server, struct evhttp_request *http, const char *name) {
    (void)name;
    if (!server->engine)
        reply_status(server, http, 503, "server_error", "Loading model");
    else if (server->draining)
        reply_status(server, http, 503, "server_error", "Shutting down");
    else if (!loop_is_well(server))
        reply_status(server, http, 503, "server_error", "The engine makes no progress");
    else
        reply_json(http, 200, "{\"status\":\"ok\"}", 15);
}

static void route_metrics(struct server *server, struct evhttp_request *http, const char *name) {
    (void)name;
    struct buf text = {0};
    if (metrics_text(server, &text) != 0) {
        reply_status(server, http, 503, "server_error", "out of memory");
    } else {
        evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Type",
                          "text/plain; version=0.0.4; charset=utf-8");
        struct evbuffer *body = evbuffer_new();
        if (body) evbuffer_add(body, text.data, text.len);
        evhttp_send_reply(http, 200, "OK", body);
        if (body) evbuffer_free(body);
    }
    buf_free(&text);
}

/* /v1/streams/ID: all but who asks is the readers'. */
static void route_stream(struct server *server, struct evhttp_request *http, const char *id) {
    readers_route(server, http, (uint32_t)server_tenant_of(server, http), id);
}

/* What every server has, whatever is spoken. Everything needs the key unless `open`. */
static const struct route own_routes[] = {
    {"/health", EVHTTP_REQ_GET, 1, 1, 1, route_health, NULL, 0},
    {"/v1/health", EVHTTP_REQ_GET, 1, 1, 1, route_health, NULL, 0},
    {"/metrics", EVHTTP_REQ_GET, 0, 0, 1, route_metrics, NULL, 0},
    {"/slots/*", EVHTTP_REQ_POST, 0, 0, 0, sessions_slot, NULL, 0},
    {"/v1/sessions/*", EVHTTP_REQ_POST, 0, 0, 0, sessions_named, NULL, 0},
    {"/v1/streams/*", EVHTTP_REQ_GET, 0, 0, 1, route_stream, NULL, 1},
    {"/v1/streams/*", EVHTTP_REQ_DELETE, 0, 0, 1, route_stream, NULL, 0},
};

static int is_at(const struct route *route, const char *path, char name[ROUTE_NAME_MAX + 1]) {
    const char *star = strchr(route->path, '*');
    name[0] = 0;
    if (!star) return strcmp(route->path, path) == 0;
    size_t before = (size_t)(star - route->path), n;
    if (strncmp(route->path, path, before) != 0) return 0;
    n = strcspn(path + before, "/");
    if (n > ROUTE_NAME_MAX || strcmp(star + 1, path + before + n) != 0) return 0;
    memcpy(name, path + before, n);
    name[n] = 0;
    return 1;
}

static int takes(const struct route *route, enum evhttp_cmd_type method) {
    return method == route->method || (method == EVHTTP_REQ_HEAD && route->method == EVHTTP_REQ_GET && !route->no_head);
}

static const struct route *route_number(const struct server *server, size_t i) {
    const struct server_api *api = server->options.api;
    size_t own = sizeof own_routes / sizeof own_routes[0], more = api ? api->routes_n : 0;
    return i < own ? &own_routes[i] : i - own < more ? &api->routes[i - own] : NULL;
}

/* What a path leads to: its route for the method, or else one for another. NULL: nowhere. */
struct way {
    const struct route *route;
    int method_known;
    char name[ROUTE_NAME_MAX + 1], allow[64];
};

static void find_way(const struct server *server, struct evhttp_request *http, struct way *way) {
    enum evhttp_cmd_type method = evhttp_request_get_command(http);
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(http));
    const struct route *route;
    char name[ROUTE_NAME_MAX + 1];
    *way = (struct way){0};
    for (size_t i = 0; path && !way->method_known && (route = route_number(server, i)) != NULL; i++) {
        if (!is_at(route, path, name)) continue;
        way->route = route;
        way->method_known = takes(route, method);
        memcpy(way->name, name, sizeof name);
        size_t used = strlen(way->allow);
        snprintf(way->allow + used, sizeof way->allow - used, "%s%s", used ? ", " : "",
                 route->method == EVHTTP_REQ_GET      ? (route->no_head ? "GET" : "GET, HEAD")
                 : route->method == EVHTTP_REQ_DELETE ? "DELETE"
                                                      : "POST");
    }
}

/* A path that is nowhere speaks as the one that it lies behind. */
static const struct error_shape *shape_of_neighbour(const struct server *server, const char *path) {
    const struct route *route;
    for (size_t i = 0; path && (route = route_number(server, i)) != NULL; i++) {
        size_t n = strlen(route->path);
        if (route->errors && strncmp(route->path, path, n) == 0 && path[n] == '/') return route->errors;
    }
    return &error_shape_openai;
}

const struct error_shape *server_shape_of(const struct server *server, struct evhttp_request *http) {
    struct way way;
    find_way(server, http, &way);
    if (!way.route) return shape_of_neighbour(server, evhttp_uri_get_path(evhttp_request_get_evhttp_uri(http)));
    return way.route->errors ? way.route->errors : &error_shape_openai;
}

static void name_request(const struct server *server, struct evhttp_request *http) {
    char id[32];
    if (!server_shape_of(server, http)->request_ids) return;
    snprintf(id, sizeof id, "req_%016llx", (unsigned long long)rng_entropy());
    evhttp_add_header(evhttp_request_get_output_headers(http), "request-id", id);
}

static void dispatch(struct server *server, struct evhttp_request *http, const struct way *way) {
    const struct route *route = way->route;
    if (!(route && route->open) && server_tenant_of(server, http) < 0) {
        reply_status(server, http, 401, "authentication_error", "missing or wrong API key");
    } else if (!route) {
        reply_status(server, http, 404, "invalid_request_error", "no such path");
    } else if (!way->method_known) {
        evhttp_add_header(evhttp_request_get_output_headers(http), "Allow", way->allow);
        reply_status(server, http, 405, "invalid_request_error", "this path does not take that method");
    } else if (!server->engine && !route->while_loading) {
        reply_status(server, http, 503, "server_error", "Loading model");
    } else if (server->draining && !route->while_draining) {
        evhttp_add_header(evhttp_request_get_output_headers(http), "Connection", "close");
        reply_status(server, http, 503, "server_error", "the server is shutting down");
    } else {
        route->handle(server, http, way->name);
    }
}

static void on_request(struct evhttp_request *http, void *argument) {
    struct server *server = argument;
    struct bufferevent *socket = evhttp_connection_get_bufferevent(evhttp_request_get_connection(http));
    struct way way;
    /* What a client sends ahead while its reply is written stays bounded. */
    bufferevent_setwatermark(socket, EV_READ, 0, SERVER_BODY_MAX + SERVER_HEADERS_MAX);
    if (descriptors_scarce(bufferevent_getfd(socket)))
        evhttp_add_header(evhttp_request_get_output_headers(http), "Connection", "close");
    find_way(server, http, &way);
    name_request(server, http);
    dispatch(server, http, &way);
}

const struct dialect *server_dialect_at(const struct server *server, const char *path) {
    const struct server_api *api = server->options.api;
    for (size_t i = 0; api && i < api->dialects_n; i++)
        if (strcmp(api->dialects[i]->path, path) == 0) return api->dialects[i];
    return NULL;
}

const struct dialect *server_dialect_of(const struct server *server, const char *id) {
    const struct server_api *api = server->options.api;
    for (size_t i = 0; api && i < api->dialects_n; i++)
        if (strncmp(api->dialects[i]->id_prefix, id, strlen(api->dialects[i]->id_prefix)) == 0) return api->dialects[i];
    return NULL;
}

const struct error_shape *server_errors_of(const struct server *server, const char *id) {
    const struct dialect *dialect = server_dialect_of(server, id);
    return dialect ? dialect->errors : &error_shape_openai;
}

/* ---- an engine that cannot go on ---- */

/* The engine itself fails what is pending; here the failure is told, health has time to be seen red, and then this is
 * over: whoever started the program can start it again. */
static void check_engine(struct server *server, int64_t now) {
    if (!server->engine) return;
    if (server->failed_s) {
        int quiet = server->calls_open == 0 && server->replies_open == 0 && server->readers_n == 0;
        if (now >= server->failed_s + (quiet ? SERVER_FAILED_S : SERVER_FAILED_MAX_S))
            event_base_loopbreak(server->base);
        return;
    }
    cohort_metrics m;
    cohort_metrics_get(server->engine, &m);
    if (m.healthy) return;
    cohort_error why = {0};
    cohort_ticket none;
    cohort_reserve(server->engine, &none, &why); /* says why it takes no work */
    fprintf(stderr, "cohort: %s; the server ends\n", why.text);
    server->failed_s = now;
}

/* ---- events from outside the loop ---- */

static void on_engine(evutil_socket_t fd, short what, void *argument) {
    (void)fd;
    (void)what;
    struct server *server = argument;
    cohort_id ids[READY_BATCH];
    size_t n;
    while ((n = cohort_ready(server->engine, ids, READY_BATCH)) > 0)
        for (size_t i = 0; i < n; i++) {
            struct choice *choice = map_find(server, ids[i]);
            if (choice) call_pump(choice->call);
        }
    if (server->calls_freed) recover_look(server);
    server->calls_freed = 0;
}

static void on_attached(evutil_socket_t fd, short what, void *argument) {
    (void)fd;
    (void)what;
    struct server *server = argument;
    if (atomic_load(&server->aborted)) {
        event_base_loopbreak(server->base);
        return;
    }
    server->model = atomic_load(&server->new_model);
    server->engine = atomic_load(&server->new_engine);
    if (server->draining) {
        event_base_loopbreak(server->base);
        return;
    }
    server->engine_readable =
        event_new(server->base, cohort_event_fd(server->engine), EV_READ | EV_PERSIST, on_engine, server);
    event_add(server->engine_readable, NULL);
    recover_start(server);
}

static void on_tick(evutil_socket_t fd, short what, void *argument) {
    (void)fd;
    (void)what;
    struct server *server = argument;
    int64_t now = (int64_t)(clock_us() / 1000000);
    if (server->options.verbose && server->engine) report_tick(&server->report, server->engine);
    mem_tick();
    for (struct call *call = server->calls, *next; call; call = next) {
        next = call->next;
        sink_tick(&call->sink, now);
    }
    if (server->journal) stored_tick(server, now);
    descriptors_tick(server->socket);
    check_engine(server, now);
    if (!server->draining) return;
    if (server->calls_open == 0 && server->replies_open == 0 && server->readers_n == 0) {
        event_base_loopexit(server->base, NULL);
    } else if (now >= server->drain_until_s) {
        for (struct call *call = server->calls, *next; call; call = next) {
            next = call->next;
            call_cancel(call);
        }
        readers_end(server);
        if (now >= server->drain_until_s + 5) event_base_loopbreak(server->base);
    }
}

static void on_signal(evutil_socket_t number, short what, void *argument) {
    (void)what;
    struct server *server = argument;
    if (server->draining) {
        fprintf(stderr, "cohort: second signal, ending at once\n");
        event_base_loopbreak(server->base);
        return;
    }
    fprintf(stderr, "cohort: %s, %llu requests to end (at most %u s)\n", strsignal((int)number),
            (unsigned long long)server->calls_open, server->options.drain_s);
    server->draining = 1;
    server->drain_until_s = (int64_t)(clock_us() / 1000000) + server->options.drain_s;
    evhttp_del_accept_socket(server->http, server->socket);
    server->socket = NULL;
    if (server->engine) cohort_engine_drain(server->engine);
    struct timeval often = {0, 50000};
    event_add(server->tick, &often);
}

/* ---- life ---- */

static int listen_on(struct server *server, cohort_error *err) {
    const struct server_options *o = &server->options;
    server->socket = evhttp_bind_socket_with_handle(server->http, o->host, o->port);
    if (!server->socket)
        return err_set(err, COHORT_E_IO, "port", "cannot listen on %s:%u: %s", o->host, o->port, strerror(errno));
    descriptors_guard(server->socket);
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    if (getsockname(evhttp_bound_socket_get_fd(server->socket), (struct sockaddr *)&address, &len) == 0)
        server->port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                           : ((struct sockaddr_in *)&address)->sin_port);
    return 0;
}

static int make_events(struct server *server) {
    struct timeval second = {1, 0};
    server->tick = event_new(server->base, -1, EV_PERSIST, on_tick, server);
    server->attached = event_new(server->base, -1, 0, on_attached, server);
    server->term = evsignal_new(server->base, SIGTERM, on_signal, server);
    server->interrupt = evsignal_new(server->base, SIGINT, on_signal, server);
    server->pool = pool_new(server->base, SERVER_HELPERS);
    server->grammars = pool_new_fair(server->base, SERVER_GRAMMAR_HELPERS);
    server->sessions = pool_new(server->base, 1);
    server->task_pool = pool_new(server->base, 1);
    if (!server->tick || !server->attached || !server->term || !server->interrupt || !server->pool ||
        !server->grammars || !server->sessions || !server->task_pool)
        return -1;
    return event_add(server->tick, &second) || event_add(server->term, NULL) || event_add(server->interrupt, NULL);
}

/* Before it listens: who cannot keep what is stored is not started. */
static int open_journal(struct server *server, cohort_error *err) {
    const struct server_options *o = &server->options;
    if (o->store == SERVER_STORE_ALL && !o->state_dir)
        return err_set(err, COHORT_E_ARGUMENT, "store", "--store all needs --state-dir");
    if (!o->state_dir) return 0;
    /* Two servers never share a folder, whatever each of them keeps there. */
    if (o->store == SERVER_STORE_NONE) return journal_lock(o->state_dir, &server->folder_lock, err);
    const struct journal_options journal = {
        .dir = o->state_dir,
        .keep_s = o->store_hours * 3600,
        .bytes_max = JOURNAL_BYTES_MAX,
        .streams_max = JOURNAL_STREAMS_MAX,
    };
    int rc = journal_open(&journal, &server->journal, err);
    if (rc) return rc;
    server->journal_pool = pool_new(server->base, 1);
    server->journal_readable =
        event_new(server->base, journal_fd(server->journal), EV_READ | EV_PERSIST, stored_on_journal, server);
    if (server->journal_pool && server->journal_readable && event_add(server->journal_readable, NULL) == 0) return 0;
    return err_set(err, COHORT_E_INTERNAL, NULL, "cannot set up the journal's events");
}

int server_open(const struct server_options *options, struct server **out, cohort_error *err) {
    *out = NULL;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that cannot grow is an error of that write */
    descriptors_raise();
    if (evthread_use_pthreads() != 0) return err_set(err, COHORT_E_INTERNAL, NULL, "libevent has no threads");
    struct server *server = mem_zalloc(1, sizeof *server);
    if (!server) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the server");
    server->options = *options;
    server->started = (int64_t)time(NULL);
    server->folder_lock = -1;
    int rc = keys_open(options->api_key, options->keys_path, &server->keys, err);
    if (rc) {
        server_close(server);
        return rc;
    }
    server->base = event_base_new();
    if (server->base) server->http = evhttp_new(server->base);
    if (!server->http || make_events(server) != 0) {
        server_close(server);
        return err_set(err, COHORT_E_INTERNAL, NULL, "cannot set up the event loop");
    }
    evhttp_set_max_body_size(server->http, SERVER_BODY_MAX);
    evhttp_set_max_headers_size(server->http, SERVER_HEADERS_MAX);
    evhttp_set_timeout(server->http, SERVER_IDLE_S);
    evhttp_set_allowed_methods(server->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT |
                                                 EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH |
                                                 EVHTTP_REQ_TRACE);
    evhttp_set_gencb(server->http, on_request, server);
    rc = open_journal(server, err);
    if (!rc) rc = listen_on(server, err);
    if (rc) {
        server_close(server);
        return rc;
    }
    *out = server;
    return 0;
}

cohort_model *server_model(const struct server *server) { return server->model; }
cohort_engine *server_engine(const struct server *server) { return server->engine; }
const struct server_options *server_get_options(const struct server *server) { return &server->options; }
int64_t server_started(const struct server *server) { return server->started; }
int server_is_draining(const struct server *server) { return server->draining; }
int server_has_journal(const struct server *server) { return server->journal != NULL; }
uint16_t server_port(const struct server *server) { return server->port; }

const cohort_tenant *server_tenants(const struct server *server, size_t *n) { return keys_tenants(server->keys, n); }

void server_attach(struct server *server, cohort_model *model, cohort_engine *engine) {
    cohort_error error = {0};
    if (server->journal && cohort_engine_identity(engine, server->identity, &error) != 0) {
        fprintf(stderr, "cohort: what stored calls depend on is not known: %s\n", error.text);
        server_abort(server);
        return;
    }
    atomic_store(&server->new_model, model);
    atomic_store(&server->new_engine, engine);
    event_active(server->attached, EV_TIMEOUT, 0);
}

void server_abort(struct server *server) {
    atomic_store(&server->aborted, 1);
    event_active(server->attached, EV_TIMEOUT, 0);
}

int server_run(struct server *server) {
    event_base_loop(server->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return atomic_load(&server->aborted) || server->failed_s ? -1 : 0;
}

void server_close(struct server *server) {
    if (!server) return;
    server->stopping = 1;
    pool_free(server->pool);     /* helpers first: their calls come back, */
    pool_free(server->grammars); /* some of them to go there */
    pool_free(server->task_pool);
    pool_free(server->journal_pool);
    pool_free(server->sessions);
    if (server->http) evhttp_free(server->http); /* closes connections: their calls are freed by the close callbacks */
    while (server->calls) call_free(server->calls); /* stored ones have no connection */
    recover_close(server);
    stored_close(server);
    if (server->journal_readable) event_free(server->journal_readable);
    journal_close(server->journal);
    journal_unlock(&server->folder_lock);
    if (server->engine_readable) event_free(server->engine_readable);
    if (server->tick) event_free(server->tick);
    if (server->attached) event_free(server->attached);
    if (server->term) event_free(server->term);
    if (server->interrupt) event_free(server->interrupt);
    if (server->base) event_base_free(server->base);
    keys_close(server->keys);
    mem_free(server);
}
