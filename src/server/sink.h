/* Where a reply goes: one evhttp request, watched for its client's leaving, written piece by piece. Embedded in what
 * answers it; loop thread.
 *
 * A sink without `http` is empty: its reply was made, or its client is gone. Nothing may be written to it then. */
#ifndef SERVER_SINK_H
#define SERVER_SINK_H

#include <event2/event.h>
#include <event2/http.h>
#include <stdint.h>

#include "base/buf.h"
#include "cohort/cohort.h"

struct server;

struct sink {
    struct server *server;
    struct evhttp_request *http;
    struct event *watch; /* on a second descriptor of the socket: the peer went away */
    int streaming;
    int names_events;                   /* an event's name is the "type" with which its JSON begins */
    int64_t last_write_s, drained_s;    /* when something was written, and when all of it was last gone */
    void (*gone)(struct sink *sink);    /* the client has left; the sink is empty. May free what holds it */
    void (*drained)(struct sink *sink); /* everything written so far was sent. May free what holds it */
};

/* Begins to look after the client; `gone` and `drained` are set. On failure the sink can still be answered. */
int sink_watch(struct sink *sink, cohort_error *err);
/* Gives the request to another sink that has none, with its callbacks changed over. */
void sink_move(struct sink *from, struct sink *to);
/* Lets go of the request without a reply: for who answers it otherwise. */
void sink_let_go(struct sink *sink);

void sink_begin_stream(struct sink *sink);
/* One server-sent event; `id` 0: without an id line. */
int sink_event(struct sink *sink, uint64_t id, const char *data, size_t len);
/* Several, one a line, without ids. */
int sink_events(struct sink *sink, const char *lines, size_t len);
size_t sink_unsent(const struct sink *sink);
/* A comment if the stream was silent for SERVER_COMMENT_S; hangs up on a reader that does not read. */
void sink_tick(struct sink *sink, int64_t now_s);

/* The ends. Each empties the sink; the server waits for what is on its way when it shuts down. */
void sink_end_stream(struct sink *sink);
void sink_error(struct sink *sink, const cohort_error *error);
void sink_json(struct sink *sink, int status, const char *json, size_t len);
/* Ends the connection from our side, and tells `gone`. */
void sink_hang_up(struct sink *sink);

#endif
