/* One HTTP request that generates: its parameters, its choices (each a request to the engine) and how its reply is
 * written. All of it belongs to the loop's thread, except between pool_add and the job's `done`, when a helper has
 * `prompts`, `choices`, `params` and `error` to itself.
 *
 *   parse (loop) -> reserve (loop) -> tokenise + submit (helper) -> stream or collect (loop) -> reply -> free
 *
 * A client that goes away sets `gone`: the choices are cancelled and dropped, and nothing is written any more.
 *
 * A stored call (`stored` is set) has its sink only until it is in the journal. From then on what its choices say goes
 * to the log of its stream, and readers follow that (stored.h). */
#ifndef SERVER_CALL_H
#define SERVER_CALL_H

#include <event2/event.h>
#include <event2/http.h>
#include <jansson.h>

#include "base/buf.h"
#include "server/cache.h"
#include "server/glance.h"
#include "server/pool.h"
#include "server/server.h"
#include "server/sink.h"
#include "server/traceparent.h"

struct call;
struct stored;

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
    int store;                           /* -1: not said */
    cohort_span stops[COHORT_STOPS_MAX]; /* in the body's JSON */
    size_t stops_n;
    int32_t stop_ids[COHORT_STOP_IDS_MAX];
    size_t stop_ids_n;
    struct cache_params cache;
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
    struct sink sink;         /* empty once the reply is complete or the client is gone */
    struct stored *stored;    /* NULL: the call ends with its client */
    struct call *prev, *next; /* the server's list */
    json_t *body;             /* NULL once all of it is in the engine */
    struct params params;
    struct prompt *prompts;
    size_t prompts_n;
    struct choice *choices;
    size_t choices_n, finished_n;
    char id[48];
    int64_t created;
    const char *model_name; /* as its pieces tell it */
    cohort_error error;     /* set by the helper: answered instead of the reply */
    int in_pool, gone;
};

/* Entry points from the routes: parses `body` (owned from here on) and starts the call, or answers an error. */
void call_start(struct server *server, const struct dialect *dialect, struct evhttp_request *http,
                const struct arrival *arrival, json_t *body);
/* The engine calls every input a prompt: an error about it gets the field's own name. */
void call_name_input(const struct dialect *dialect, cohort_error *error);
/* Reads what its choices have to say, as far as the client's unsent output allows. */
void call_pump(struct call *call);
/* Drain ran out: cancels everything, and the finish events end the call. A stored one ends here, to be resumed. */
void call_cancel(struct call *call);

/* For stored calls. A call without a connection, in the server's list: from `body` (owned from here on, also on
 * failure), which the dialect takes as it took it before. NULL without memory. */
struct call *call_new(struct server *server, const struct dialect *dialect, const struct arrival *arrival,
                      json_t *body);
/* Reads the body and makes the choices, with places reserved now or, if there are any, those of `tickets`: as many as
 * there are choices, taken over on success only. */
int call_prepare(struct call *call, const cohort_ticket *tickets, size_t tickets_n, cohort_error *err);
void call_submit(struct call *call); /* gives it to a helper */
int call_check_places(struct server *server, uint32_t tenant, const char *field, size_t n, cohort_error *err);
/* The choice's end, if the event is one; a code if the call cannot go on. */
int call_take_end(struct choice *choice, const cohort_event *event, cohort_error *err);
void call_drop_choice(struct choice *choice);
void call_free(struct call *call);

#endif
