/* A reply's connection (sink.h). Loop thread. Invariant: while a sink has its request and is watched, the connection's
 * close callback points at it; emptied, nothing does. */
#include "server/sink.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "server/internal.h"

static int64_t now_s(void) { return (int64_t)(clock_us() / 1000000); }

static void stop_watching(struct sink *sink) {
    if (!sink->watch) return;
    evutil_socket_t fd = event_get_fd(sink->watch);
    event_free(sink->watch);
    close(fd);
    sink->watch = NULL;
}

void sink_let_go(struct sink *sink) {
    stop_watching(sink);
    if (sink->http) {
        struct evhttp_connection *connection = evhttp_request_get_connection(sink->http);
        if (connection) evhttp_connection_set_closecb(connection, NULL, NULL);
    }
    sink->http = NULL;
}

/* evhttp closed the connection by itself (write failed, timed out). A request whose reply was under way it then leaves
 * to us, without a connection. */
static void on_connection_closed(struct evhttp_connection *connection, void *argument) {
    (void)connection;
    struct sink *sink = argument;
    struct evhttp_request *http = sink->http;
    sink->http = NULL;
    stop_watching(sink);
    sink->gone(sink);
    if (!evhttp_request_get_connection(http)) evhttp_request_free(http);
}

/* Freeing the connection also frees the request. */
void sink_hang_up(struct sink *sink) {
    struct evhttp_connection *connection = evhttp_request_get_connection(sink->http);
    sink_let_go(sink); /* takes our callbacks off first */
    sink->gone(sink);
    if (connection) evhttp_connection_free(connection);
}

/* Something came from the peer while evhttp is not reading: its end, a reset, or bytes sent ahead, which stay where
 * they are. */
static void on_peer(evutil_socket_t fd, short what, void *argument) {
    (void)what; /* says EV_READ for a reset as well */
    struct pollfd peer = {.fd = fd, .events = POLLRDHUP};
    if (poll(&peer, 1, 0) > 0 && peer.revents & (POLLRDHUP | POLLERR | POLLHUP)) sink_hang_up(argument);
}

/* Edge-triggered, so that bytes nobody reads do not keep the loop busy. That cannot be mixed with evhttp's own events
 * on one descriptor, hence the second one for the same socket. */
static int watch_descriptor(struct sink *sink, int fd, cohort_error *err) {
    sink->watch = event_new(sink->server->base, fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_peer, sink);
    if (!sink->watch) {
        close(fd);
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory to watch the connection");
    }
    evhttp_connection_set_closecb(evhttp_request_get_connection(sink->http), on_connection_closed, sink);
    if (event_add(sink->watch, NULL) == 0) return 0;
    return err_set(err, COHORT_E_INTERNAL, NULL, "cannot watch the connection");
}

int sink_watch(struct sink *sink, cohort_error *err) {
    struct evhttp_connection *connection = evhttp_request_get_connection(sink->http);
    int fd = fcntl(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return err_set(err, COHORT_E_BUSY, NULL, "too many connections are open");
    if (descriptors_scarce(fd)) {
        close(fd);
        evhttp_add_header(evhttp_request_get_output_headers(sink->http), "Connection", "close");
        return err_set(err, COHORT_E_BUSY, NULL, "too many connections are open");
    }
    return watch_descriptor(sink, fd, err);
}

void sink_move(struct sink *from, struct sink *to) {
    to->server = from->server;
    to->http = from->http;
    to->watch = from->watch;
    from->http = NULL;
    from->watch = NULL;
    evutil_socket_t fd = event_get_fd(to->watch);
    event_del(to->watch);
    event_assign(to->watch, to->server->base, fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_peer, to);
    event_add(to->watch, NULL);
    evhttp_connection_set_closecb(evhttp_request_get_connection(to->http), on_connection_closed, to);
}

/* ---- writing ---- */

static struct bufferevent *socket_of(const struct sink *sink) {
    return evhttp_connection_get_bufferevent(evhttp_request_get_connection(sink->http));
}

size_t sink_unsent(const struct sink *sink) { return evbuffer_get_length(bufferevent_get_output(socket_of(sink))); }

/* evhttp starts to read again with each write, into a buffer without a limit that nobody looks at before the reply has
 * ended. */
static void stop_reading(struct sink *sink) { bufferevent_disable(socket_of(sink), EV_READ); }

static void on_sent(struct evhttp_connection *connection, void *argument) {
    (void)connection;
    struct sink *sink = argument;
    sink->drained_s = now_s();
    sink->drained(sink);
}

static int send_raw(struct sink *sink, const char *bytes, size_t len) {
    struct evbuffer *chunk = evbuffer_new();
    if (!chunk || evbuffer_add(chunk, bytes, len) != 0) {
        if (chunk) evbuffer_free(chunk);
        return COHORT_E_MEMORY;
    }
    if (sink_unsent(sink) == 0) sink->drained_s = now_s();
    evhttp_send_reply_chunk_with_cb(sink->http, chunk, on_sent, sink);
    evbuffer_free(chunk);
    stop_reading(sink);
    sink->last_write_s = now_s();
    return 0;
}

static int add_name(struct buf *frame, const char *data, size_t len) {
    static const char begin[] = "{\"type\":\"";
    const size_t at = sizeof begin - 1;
    const char *end = len > at && memcmp(data, begin, at) == 0 ? memchr(data + at, '"', len - at) : NULL;
    return end ? buf_addf(frame, "event: %.*s\n", (int)(end - data - (ptrdiff_t)at), data + at) : 0;
}

int sink_event(struct sink *sink, uint64_t id, const char *data, size_t len) {
    struct buf frame = {0};
    int rc = id ? buf_addf(&frame, "id: %llu\n", (unsigned long long)id) : 0;
    if (!rc && sink->names_events) rc = add_name(&frame, data, len);
    if (!rc) rc = buf_adds(&frame, "data: ");
    if (!rc) rc = buf_add(&frame, data, len);
    if (!rc) rc = buf_adds(&frame, "\n\n");
    if (!rc) rc = send_raw(sink, frame.data, frame.len);
    buf_free(&frame);
    return rc;
}

int sink_events(struct sink *sink, const char *lines, size_t len) {
    int rc = 0;
    for (const char *at = lines, *end; at < lines + len && !rc; at = end + 1) {
        end = memchr(at, '\n', (size_t)(lines + len - at));
        if (!end) return COHORT_E_INTERNAL;
        rc = sink_event(sink, 0, at, (size_t)(end - at));
    }
    return rc;
}

void sink_begin_stream(struct sink *sink) {
    struct evkeyvalq *headers = evhttp_request_get_output_headers(sink->http);
    evhttp_add_header(headers, "Content-Type", "text/event-stream; charset=utf-8");
    evhttp_add_header(headers, "Cache-Control", "no-cache");
    evhttp_add_header(headers, "X-Accel-Buffering", "no");
    evhttp_send_reply_start(sink->http, 200, "OK");
    stop_reading(sink);
    sink->streaming = 1;
    sink->last_write_s = sink->drained_s = now_s();
}

void sink_tick(struct sink *sink, int64_t now) {
    if (!sink->streaming || !sink->http) return;
    if (sink_unsent(sink) > 0) {
        /* A reader that takes a byte now and then would hold its row's place and pages for ever. */
        if (now - sink->drained_s >= SERVER_STALL_S) sink_hang_up(sink);
    } else if (now - sink->last_write_s >= SERVER_COMMENT_S) {
        send_raw(sink, ": still working\n\n", 17);
    }
}

/* ---- the last write ---- */

/* The reply is made but not all sent: the server waits for it when it shuts down. One of these two ends that. */
static void on_reply_sent(struct evhttp_request *http, void *argument) {
    struct server *server = argument;
    evhttp_connection_set_closecb(evhttp_request_get_connection(http), NULL, NULL);
    server->replies_open--;
}

static void on_reply_cut(struct evhttp_connection *connection, void *argument) {
    (void)connection;
    struct server *server = argument;
    server->replies_open--;
}

static struct evhttp_request *last_write(struct sink *sink) {
    struct evhttp_request *http = sink->http;
    struct server *server = sink->server;
    sink_let_go(sink);
    server->replies_open++;
    evhttp_request_set_on_complete_cb(http, on_reply_sent, server);
    evhttp_connection_set_closecb(evhttp_request_get_connection(http), on_reply_cut, server);
    return http;
}

void sink_end_stream(struct sink *sink) { evhttp_send_reply_end(last_write(sink)); }

void sink_error(struct sink *sink, const cohort_error *error) {
    struct server *server = sink->server;
    reply_error(server, last_write(sink), error);
}

void sink_json(struct sink *sink, int status, const char *json, size_t len) {
    reply_json(last_write(sink), status, json, len);
}
