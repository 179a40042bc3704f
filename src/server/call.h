/* One HTTP request that generates: its parameters, its choices (each a request to the engine) and how its reply is
 * written. All of it belongs to the loop's thread, except between pool_add and the job's `done`, when a helper has
 * `prompts`, `choices`, `params` and `error` to itself.
 *
 *   parse (loop) -> reserve (loop) -> tokenise + submit (helper) -> stream or collect (loop) -> reply -> free
 *
 * Where the answer must follow a grammar, another helper compiles it and submits (submit.c).
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
#include "server/chat_params.h"
#include "server/glance.h"
#include "server/http.h"
#include "server/parts.h"
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
    cohort_reader *reader;                    /* NULL: all that it says is text */
    struct said said;
    struct block *blocks; /* what was said, in parts: replies that are not streamed */
    size_t blocks_n, blocks_bytes;
    uint32_t text_offset; /* characters of text so far */
    uint32_t mark;        /* the dialect's own */
    int finished;
    cohort_finish finish;
    int32_t stop_token, stop_index; /* of the finish event */
    cohort_stats stats;
};

struct prompt {
    const char *text; /* in the body's JSON; NULL: ids */
    size_t text_len;  /* of a chat: bytes that its messages bring at least */
    int special;      /* the text of special tokens in it means those tokens */
    int32_t *ids;     /* owned */
    size_t ids_n;     /* stays known when the ids have been forgotten */
};

/* Texts whose ids must not come in a row (bad_words), in the body's JSON. */
enum { PARAMS_WORDS_MAX = 64 };

struct params {
    int stream, include_usage;
    uint32_t max_tokens; /* UINT32_MAX: not given */
    uint32_t n;
    uint32_t tries; /* choices that are made of each prompt; more than n: the best n of them are told */
    cohort_sampling sampling;
    int logprobs;        /* -1: none */
    int prompt_logprobs; /* 1: the dialect gets PROMPT events */
    int post_sampling, ignore_eos, include_stop;
    int keep_prompts; /* the prompts' ids are needed until the end */
    uint32_t min_tokens;
    cohort_pooling pooling;
    cohort_bias *biases; /* owned */
    size_t biases_n;
    int32_t *allowed_ids; /* owned */
    size_t allowed_ids_n;
    cohort_ids *banned; /* owned, one block with their ids */
    size_t banned_n;
    cohort_span dry_breakers[COHORT_DRY_BREAKERS_MAX]; /* in the body's JSON */
    size_t dry_breakers_n;
    uint32_t timeout_ms, max_predict_ms; /* 0: none */
    int32_t priority;
    int store;                           /* -1: not said */
    int detached;                        /* stored: answered when it is, and not followed */
    cohort_span stops[COHORT_STOPS_MAX]; /* in the body's JSON */
    size_t stops_n;
    int32_t stop_ids[COHORT_STOP_IDS_MAX];
    size_t stop_ids_n;
    struct cache_params cache;
    struct chat_params chat;       /* of a call that is one */
    cohort_grammar_source grammar; /* of one that is none: what the answer must follow; its text as chat's texts */
    const char *form_field;        /* where what the answer's text must follow came from, for errors; a literal */
    uint32_t reasoning_budget;     /* UINT32_MAX: none */
    const char *budget_field;      /* where that came from; a literal */
    int raw;                       /* the answer is told as it is, markers, reasoning and all */
};

/* How one API speaks. What is written for a stream is appended to `out`: events, one a line, each ended by a newline
 * (JSON has none), without the frame of server-sent events. All but `prepare` run on the loop's thread. */
struct dialect {
    const char *path;
    const char *id_prefix; /* of calls; no other dialect's */
    const char *input;     /* the field that a prompt comes in */
    /* The dialect's own name for a field of a chat, which errors name as OpenAI does ("messages[2].role",
     * "tools[0].function.parameters"); NULL: the same. */
    void (*name_field)(const struct call *call, cohort_error *error);
    const struct error_shape *errors;
    const char *done; /* the data of a stream's last event; NULL: nothing follows what `close` wrote */
    int names_events; /* an event's name is its "type", with which its JSON begins */
    int keeps;        /* stored unless the request says no, if there is where to; `piece` collects, too, and `whole` is
                         made of every stored call, also of a streamed one */
    /* Bytes of text that the longest prompt of a body has at least, before it is parsed (glance.h). */
    size_t (*text_bytes)(const struct glance *glance);
    /* Fills call->params and call->prompts from the body; a code with the field's name on failure. */
    int (*parse)(struct call *call, const json_t *body, cohort_error *err);
    /* On a helper, before the prompts are tokenised: what needs the tokenizer. NULL: nothing. */
    int (*prepare)(struct call *call, cohort_error *err);
    int (*open)(struct call *call, struct buf *out); /* in front of the choices' events; NULL: nothing */
    /* A piece of a choice's stream: its opening (event NULL), a token, a prompt position (if params.prompt_logprobs),
     * the finish. What it says is in call->parts, and choice->said counts it already. Only where there is no reader is
     * it the event's text as well. */
    int (*piece)(struct choice *choice, const cohort_event *event, struct buf *out);
    /* Collects such an event for a reply that is not streamed (parts_collect). */
    int (*collect)(struct choice *choice, const cohort_event *event);
    int (*close)(struct call *call, struct buf *out); /* when all choices have finished; NULL: nothing */
    /* A stream's last events if the call fails; NULL: the error's JSON. */
    int (*fail)(struct call *call, const cohort_error *error, struct buf *out);
    int (*begun)(struct call *call, struct buf *out); /* the body of a reply to params.detached */
    int (*whole)(struct call *call, struct buf *out); /* the one body of a reply that is not streamed */
    void (*forget)(struct call *call);                /* frees call->own; NULL: there is none */
};

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
    cohort_prompt *chat;     /* of a call with messages, from the helper on until its body is forgotten, as */
    cohort_grammar *grammar; /* what its answers must follow */
    struct parts parts;      /* of the event at hand */
    struct choice *choices;
    size_t choices_n, finished_n;
    void *own; /* the dialect's */
    char id[48];
    int64_t created;
    const char *model_name; /* as its pieces tell it */
    cohort_error error;     /* set by the helper: answered instead of the reply */
    int in_pool;
    _Atomic int gone;
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
/* The body and what was made of it are of no use any more (submit.c): a stream that waits for its turn costs little. */
void call_forget_body(struct call *call);
/* On a helper, and on the loop's thread behind it (submit.c): prompts to ids, grammars, requests to the engine. */
void call_tokenise(struct pool_job *job);
void call_tokenised(struct pool_job *job);
/* The helpers are done with it, and all of it is in the engine, unless call->error says why not. */
void call_submitted(struct call *call);
/* E_TIMEOUT. */
int call_time_is_over(const struct call *call, cohort_error *err);
int call_check_places(struct server *server, uint32_t tenant, const char *field, size_t n, cohort_error *err);
/* The events that a stream begins with. */
int call_opening(struct call *call, struct buf *out);
/* The events that a stream ends with when the call fails, one a line. */
int call_failing(struct call *call, const cohort_error *error, struct buf *out);
/* The choice's end, if the event is one; a code if the call cannot go on. */
int call_take_end(struct choice *choice, const cohort_event *event, cohort_error *err);
void call_drop_choice(struct choice *choice);
void call_free(struct call *call);

#endif
