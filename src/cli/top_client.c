/* The HTTP half of `cohort top` (top_client.h). A connection lives from its question to the next one, because evhttp is
 * still using it when it calls back. */
#include "cli/top_client.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PROBE_MS = 200 };

struct top_client {
    struct event_base *base;
    const char *host, *api_key;
    uint16_t port;
    top_answer_fn answer;
    void *user;
    char url[320];
    struct evhttp_connection *connection; /* of the last question; NULL: none yet */
    struct event *deadline;
    int open;        /* a question is */
    const char *why; /* evhttp's reason, if it called back with one */
};

static void answer(struct top_client *c, enum top_outcome outcome, const char *text, size_t len) {
    c->open = 0;
    event_del(c->deadline);
    c->answer(c->user, outcome, text, len);
}

static void fail(struct top_client *c, const char *why) { answer(c, TOP_FAILED, why, strlen(why)); }

static void on_error(enum evhttp_request_error error, void *argument) {
    struct top_client *c = argument;
    switch (error) {
    case EVREQ_HTTP_TIMEOUT:
        c->why = "it does not answer";
        break;
    case EVREQ_HTTP_DATA_TOO_LONG:
        c->why = "the answer is longer than 4 MiB: this is not a cohort server";
        break;
    case EVREQ_HTTP_INVALID_HEADER:
        c->why = "the answer is not HTTP: this is not a cohort server";
        break;
    default:
        c->why = "the connection was closed before an answer";
    }
}

static void on_status(struct top_client *c, int status) {
    char text[160];
    switch (status) {
    case 401:
    case 403:
        fail(c, c->api_key ? "the server does not take this API key" : "the server wants an API key (--api-key)");
        break;
    case 503:
        answer(c, TOP_LATER, "the server is loading its model", 31);
        break;
    default:
        snprintf(text, sizeof text, "this is not a cohort server: it answers /metrics with status %d", status);
        fail(c, text);
    }
}

/* The error of a connection to the address, 0 if there is none within a moment. */
static int try_address(const struct addrinfo *at) {
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
    socklen_t len = sizeof error;
    if (fd < 0) return errno;
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        struct pollfd done = {.fd = fd, .events = POLLOUT};
        if (errno != EINPROGRESS)
            error = errno;
        else if (poll(&done, 1, PROBE_MS) > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
            error = errno;
    }
    close(fd);
    return error;
}

/* evhttp does not tell why it could not connect, so we look again. */
static const char *why_not(const struct top_client *c) {
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found;
    char port[8];
    snprintf(port, sizeof port, "%u", c->port);
    int failed = getaddrinfo(c->host, port, &wanted, &found);
    if (failed) return gai_strerror(failed);
    int error = try_address(found);
    freeaddrinfo(found);
    if (error) return strerror(error);
    return c->why ? c->why : "it cannot be reached";
}

static void on_answer(struct evhttp_request *http, void *argument) {
    struct top_client *c = argument;
    if (!c->open) return; /* the deadline was faster */
    int status = http ? evhttp_request_get_response_code(http) : 0;
    if (status == 200) {
        struct evbuffer *body = evhttp_request_get_input_buffer(http);
        size_t len = evbuffer_get_length(body);
        const char *text = len ? (const char *)evbuffer_pullup(body, -1) : "";
        if (text)
            answer(c, TOP_ANSWERED, text, len);
        else
            fail(c, "out of memory");
    } else if (status) {
        on_status(c, status);
    } else {
        fail(c, why_not(c));
    }
}

static void hang_up(struct top_client *c) {
    if (c->connection) evhttp_connection_free(c->connection);
    c->connection = NULL;
}

/* evhttp's time limits are for each read: a server that sends a byte now and then meets this one. */
static void on_deadline(evutil_socket_t fd, short what, void *argument) {
    (void)fd;
    (void)what;
    struct top_client *c = argument;
    hang_up(c);
    fail(c, "it does not answer");
}

static int add_headers(const struct top_client *c, struct evhttp_request *http) {
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);
    char key[1024];
    if (evhttp_add_header(headers, "Host", c->url + strlen("http://")) != 0 ||
        evhttp_add_header(headers, "Connection", "close") != 0)
        return -1;
    if (!c->api_key) return 0;
    int n = snprintf(key, sizeof key, "Bearer %s", c->api_key);
    return n < (int)sizeof key ? evhttp_add_header(headers, "Authorization", key) : -1;
}

void top_client_ask(struct top_client *c) {
    if (c->open) return;
    hang_up(c);
    c->open = 1;
    c->why = NULL;
    struct timeval limit = {TOP_TIMEOUT_S, 0};
    struct evhttp_request *http = evhttp_request_new(on_answer, c);
    c->connection = evhttp_connection_base_new(c->base, NULL, c->host, c->port);
    if (!http || !c->connection || add_headers(c, http) != 0) {
        if (http) evhttp_request_free(http);
        fail(c, "the request cannot be made");
        return;
    }
    evhttp_request_set_error_cb(http, on_error);
    evhttp_connection_set_timeout(c->connection, TOP_TIMEOUT_S);
    evhttp_connection_set_max_headers_size(c->connection, 64 << 10);
    evhttp_connection_set_max_body_size(c->connection, TOP_ANSWER_MAX);
    event_add(c->deadline, &limit);
    if (evhttp_make_request(c->connection, http, EVHTTP_REQ_GET, "/metrics") != 0 && c->open) fail(c, "cannot connect");
}

const char *top_client_url(const struct top_client *c) { return c->url; }

struct top_client *top_client_new(struct event_base *base, const char *host, uint16_t port, const char *api_key,
                                  top_answer_fn answer_fn, void *user) {
    struct top_client *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    *c = (struct top_client){
        .base = base, .host = host, .port = port, .api_key = api_key, .answer = answer_fn, .user = user};
    int bare = strchr(host, ':') != NULL && host[0] != '[';
    snprintf(c->url, sizeof c->url, bare ? "http://[%.256s]:%u" : "http://%.256s:%u", host, port);
    c->deadline = event_new(base, -1, 0, on_deadline, c);
    if (c->deadline) return c;
    free(c);
    return NULL;
}

void top_client_free(struct top_client *c) {
    if (!c) return;
    hang_up(c);
    event_free(c->deadline);
    free(c);
}
