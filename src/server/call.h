/* One HTTP request that generates: its parameters, its choices (each a request to the engine) and how its reply is
 * written. All of it belongs to the loop's thread, except between pool_add and the job's `done`, when a helper has
 * `prompts`, `choices` and `error` to itself.
 *
 *   parse (loop) -> reserve (loop) -> tokenise + submit (helper) -> stream or collect (loop) -> reply -> free
 *
 * A client that goes away sets `gone`: the choices are cancelled and dropped, and nothing is written any more. */
#ifndef SERVER_CALL_H
#define SERVER_CALL_H

#include <event2/event.h>
#include <event2/http.h>
#include <jansson.h>

#include "base/buf.h"
#include "server/glance.h"
#include "server/pool.h"
#include "server/server.h"
#include "server/traceparent.h"

struct call;

struct choice {
    struct call *call;
    uint32_t index;
    cohort_ticket ticket; /* 0 once used */
    cohort_id id;         /* 0 before the submit and after the drop */
    struct choice *map_next;
    struct buf text;                          /* what was generated: replies that are not streamed */
    struct buf logprobs;                      /* JSON values written so far, by the dialect */
    struct buf top_logprobs, offsets, tokens; /* legacy completions keep theirs in columns */
    uint32_t text_offset;                     /* characters of text so far */
    int finished;
    cohort_finish finish;
    cohort_stats stats;
};

struct prompt {
    const char *text; /* in the body's JSON; NULL: ids */
    size_t text_len;  /* of a chat: bytes that its messages bring at least */
    int32_t *ids;     /* owned */
    size_t ids_n;
};

struct params {
    int stream, include_usage;
    uint32_t max_tokens; /* UINT32_MAX: not given */
    uint32_t n;
    cohort_sampling sampling;
    int logprobs; /* -1: none */
    int ignore_eos;
    uint32_t timeout_ms, max_predict_ms; /* 0: none */
    int32_t priority;
    cohort_span stops[COHORT_STOPS_MAX]; /* in the body's JSON */
    size_t stops_n;
    int32_t stop_ids[COHORT_STOP_IDS_MAX];
    size_t stop_ids_n;
    char *messages; /* chat: JSON text of the messages, owned */
};

/* How one API speaks. Functions that write append to `out` (JSON, without the SSE frame). */
struct dialect {
    const char *path;
    const char *id_prefix;
    const char *input; /* the field that a prompt comes in */
    /* Bytes of text that the longest prompt of a body has at least, before it is parsed (glance.h). */
    size_t (*text_bytes)(const struct glance *glance);
    /* Fills call->params and call->prompts from the body; a code with the field's name on failure. */
    int (*parse)(struct call *call, const json_t *body, cohort_error *err);
    /* A piece of a choice's stream: an opening piece (event NULL), a token, the finish. Leaves `out` empty if there is
     * nothing to say. */
    int (*piece)(struct choice *choice, const cohort_event *event, struct buf *out);
    /* Collects a token (or finish) event for a reply that is not streamed. */
    int (*collect)(struct choice *choice, const cohort_event *event);
    int (*usage_piece)(struct call *call, struct buf *out); /* the last piece of a stream that asked for usage */
    int (*whole)(struct call *call, struct buf *out);
};

extern const struct dialect dialect_completions, dialect_chat;

/* What is known of a request before its body is parsed. */
struct arrival {
    uint32_t tenant;
    uint64_t read_us; /* when all of it had been read: its time counts from here */
    struct trace_context trace;
};

struct call {
    struct pool_job job; /* first member */
    struct server *server;
    const struct dialect *dialect;
    struct arrival arrival;
    struct evhttp_request *http; /* NULL once the reply is complete or the client is gone */
    struct event *watch;         /* on a second descriptor of the socket: the peer went away */
    struct call *prev, *next;    /* the server's list */
    json_t *body;                /* NULL once all of it is in the engine */
    struct params params;
    struct prompt *prompts;
    size_t prompts_n;
    struct choice *choices;
    size_t choices_n, finished_n;
    char id[48];
    int64_t created;
    cohort_error error; /* set by the helper: answered instead of the reply */
    int in_pool, gone, streaming;
    int64_t last_write_s, drained_s; /* when something was written, and when all of it was last gone */
};

/* Entry points from the routes: parses `body` (owned from here on) and starts the call, or answers an error. */
void call_start(struct server *server, const struct dialect *dialect, struct evhttp_request *http,
                const struct arrival *arrival, json_t *body);
/* The engine calls every input a prompt: an error about it gets the field's own name. */
void call_name_input(const struct dialect *dialect, cohort_error *error);
/* Reads what its choices have to say, as far as the client's unsent output allows. */
void call_pump(struct call *call);
/* A comment line if the stream was silent for SERVER_COMMENT_S. */
void call_tick(struct call *call, int64_t now_s);
/* Cancels everything (drain ran out). The finish events end the call. */
void call_cancel(struct call *call);

#endif
