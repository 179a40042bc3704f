/* A generating request from its body to its reply (call.h), without what helpers do for it (submit.c). Loop thread.
 * Invariant: a call is in the server's list from call_start to call_free; once the helper has given it back, each
 * choice with an id is in the server's map. */
#include "server/call.h"

#include <event2/buffer.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/internal.h"
#include "server/stored.h"

/* ---- the end of a call ---- */

void call_drop_choice(struct choice *choice) {
    struct server *server = choice->call->server;
    if (choice->ticket) cohort_unreserve(server->engine, choice->ticket);
    choice->ticket = 0;
    if (choice->id) {
        server_map_remove(server, choice);
        cohort_drop(server->engine, choice->id);
        choice->id = 0;
    }
}

void call_free(struct call *call) {
    struct server *server = call->server;
    if (call->stored) stored_call_gone(call->stored);
    for (size_t i = 0; i < call->choices_n; i++) {
        struct choice *choice = &call->choices[i];
        call_drop_choice(choice);
        parts_close(choice);
        buf_free(&choice->text);
        buf_free(&choice->logprobs);
        buf_free(&choice->top_logprobs);
        buf_free(&choice->offsets);
        buf_free(&choice->tokens);
    }
    call->params.keep_prompts = 0;
    call_forget_body(call);
    parts_free(&call->parts);
    if (call->dialect->forget) call->dialect->forget(call);
    mem_free(call->prompts);
    mem_free(call->choices);
    sink_let_go(&call->sink);
    if (call->prev)
        call->prev->next = call->next;
    else
        server->calls = call->next;
    if (call->next) call->next->prev = call->prev;
    server->calls_open--;
    server->calls_freed = 1;
    mem_free(call);
}

static void answer_error(struct call *call, const cohort_error *error) {
    sink_error(&call->sink, error);
    call_free(call);
}

/* The client is gone: nothing is written any more, its choices end now. */
static void client_gone(struct sink *sink) {
    struct call *call = (struct call *)((char *)sink - offsetof(struct call, sink));
    call->gone = 1;
    if (!call->in_pool) call_free(call);
}

static void on_drained(struct sink *sink) { call_pump((struct call *)((char *)sink - offsetof(struct call, sink))); }

/* ---- writing ---- */

static void end_stream(struct call *call) {
    sink_end_stream(&call->sink);
    call_free(call);
}

int call_failing(struct call *call, const cohort_error *error, struct buf *out) {
    if (call->dialect->fail) return call->dialect->fail(call, error, out);
    int rc = error_json(out, call->dialect->errors, error);
    return rc ? rc : buf_adds(out, "\n");
}

static void stream_failed(struct call *call, const cohort_error *error) {
    struct buf piece = {0};
    if (call_failing(call, error, &piece) == 0) sink_events(&call->sink, piece.data, piece.len);
    buf_free(&piece);
    end_stream(call);
}

static void fail(struct call *call, const cohort_error *error) {
    if (call->sink.streaming)
        stream_failed(call, error);
    else
        answer_error(call, error);
}

static void finish_stream(struct call *call) {
    const struct dialect *dialect = call->dialect;
    struct buf events = {0};
    cohort_error error = {0};
    int rc = dialect->close ? dialect->close(call, &events) : 0;
    if (!rc) rc = sink_events(&call->sink, events.data, events.len);
    buf_free(&events);
    if (rc) {
        err_set(&error, rc, NULL, "no memory for the reply");
        stream_failed(call, &error);
        return;
    }
    if (dialect->done) sink_event(&call->sink, 0, dialect->done, strlen(dialect->done));
    end_stream(call);
}

static void finish_whole(struct call *call) {
    struct buf body = {0};
    cohort_error error = {0};
    if (call->dialect->whole(call, &body) != 0) {
        err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the reply");
        answer_error(call, &error);
    } else {
        sink_json(&call->sink, 200, body.data, body.len);
        call_free(call);
    }
    buf_free(&body);
}

/* ---- events ---- */

int call_time_is_over(const struct call *call, cohort_error *err) {
    return err_set(err, COHORT_E_TIMEOUT, NULL, "the request's time of %u ms is over", call->params.timeout_ms);
}

int call_take_end(struct choice *choice, const cohort_event *event, cohort_error *err) {
    if (event->type != COHORT_EVENT_FINISH) return 0;
    choice->finished = 1;
    choice->finish = event->finish;
    choice->stats = event->stats;
    choice->stop_token = event->stop_token;
    choice->stop_index = event->stop_index;
    if (event->error == COHORT_E_TIMEOUT) return call_time_is_over(choice->call, err);
    if (event->finish == COHORT_FINISH_ERROR)
        return err_set(err, event->error, NULL, "%s", event->error_text ? event->error_text : "");
    if (event->finish == COHORT_FINISH_CANCELLED)
        return err_set(err, COHORT_E_CLOSED, NULL, "the server is shutting down");
    return 0;
}

/* Takes in one event; a code if the call cannot go on. */
static int take_event(struct choice *choice, const cohort_event *event, cohort_error *err) {
    struct call *call = choice->call;
    int code = call_take_end(choice, event, err);
    if (code) return code;
    struct buf events = {0};
    int rc = parts_read(choice, event);
    if (!rc)
        rc =
            call->sink.streaming ? call->dialect->piece(choice, event, &events) : call->dialect->collect(choice, event);
    if (!rc) rc = sink_events(&call->sink, events.data, events.len);
    buf_free(&events);
    if (!rc && choice->text.len > SERVER_RESULT_BYTES_MAX) rc = COHORT_E_LIMIT;
    if (rc == COHORT_E_LIMIT) return err_set(err, rc, NULL, "the reply is longer than what is kept of one");
    return rc ? err_set(err, rc, NULL, "no memory for the reply") : 0;
}

/* 1 if the call is still there. */
static int pump_choice(struct choice *choice) {
    struct call *call = choice->call;
    cohort_event event;
    while (!choice->finished && (!call->sink.streaming || sink_unsent(&call->sink) < SERVER_OUTPUT_MAX) &&
           cohort_next(call->server->engine, choice->id, &event) == COHORT_OK) {
        cohort_error error = {0};
        if (take_event(choice, &event, &error) != 0) {
            fail(call, &error);
            return 0;
        }
    }
    if (choice->finished && choice->id) {
        call_drop_choice(choice);
        call->finished_n++;
    }
    return 1;
}

void call_pump(struct call *call) {
    if (call->in_pool || call->gone) return;
    if (call->stored) {
        stored_pump(call->stored);
        return;
    }
    if (!call->sink.http) return;
    for (size_t i = 0; i < call->choices_n; i++)
        if (!pump_choice(&call->choices[i])) return;
    if (call->finished_n < call->choices_n) return;
    if (call->sink.streaming)
        finish_stream(call);
    else
        finish_whole(call);
}

void call_cancel(struct call *call) {
    if (call->in_pool) return; /* the helper has the choices: the next tick finds them */
    if (call->stored) {
        stored_suspend(call->stored);
        return;
    }
    for (size_t i = 0; i < call->choices_n; i++)
        if (call->choices[i].id) cohort_cancel(call->server->engine, call->choices[i].id);
}

/* ---- the beginning of a reply ---- */

int call_opening(struct call *call, struct buf *out) {
    call->parts.n = 0;
    int rc = call->dialect->open ? call->dialect->open(call, out) : 0;
    for (size_t i = 0; i < call->choices_n && !rc; i++) rc = call->dialect->piece(&call->choices[i], NULL, out);
    return rc;
}

static void begin_reply(struct call *call) {
    if (call->params.stream) {
        cohort_error error = {0};
        struct buf events = {0};
        int rc = call_opening(call, &events);
        sink_begin_stream(&call->sink);
        if (!rc) rc = sink_events(&call->sink, events.data, events.len);
        buf_free(&events);
        if (rc) {
            err_set(&error, rc, NULL, "no memory for the reply");
            stream_failed(call, &error);
            return;
        }
    }
    call_pump(call);
}

void call_submitted(struct call *call) {
    call->in_pool = 0;
    call_forget_body(call);
    for (size_t i = 0; i < call->choices_n; i++)
        if (call->choices[i].id) server_map_add(call->server, &call->choices[i]);
    if (call->gone) {
        call_free(call);
        return;
    }
    cohort_error error = call->error;
    if (call->stored)
        stored_submitted(call->stored, &error);
    else if (error.code)
        answer_error(call, &error);
    else
        begin_reply(call);
}

/* ---- the start ---- */

void call_name_input(const struct dialect *dialect, cohort_error *error) {
    if (strcmp(error->field, "prompt") == 0) snprintf(error->field, sizeof error->field, "%s", dialect->input);
}

/* What the lengths of the texts alone rule out needs no place. Ids have no text: submit counts them exactly. */
static int check_lengths(const struct call *call, cohort_error *err) {
    int rc = 0;
    for (size_t i = 0; i < call->prompts_n && !rc; i++)
        if (!call->prompts[i].ids)
            rc = cohort_check_length(call->server->engine, call->prompts[i].text_len, call->params.max_tokens, err);
    return rc;
}

/* More choices than there are places at all are refused for good: waiting does not help. */
int call_check_places(struct server *server, uint32_t tenant_index, const char *field, size_t n, cohort_error *err) {
    size_t tenants_n;
    cohort_engine_options engine;
    cohort_engine_get_options(server->engine, &engine);
    const cohort_tenant *tenants = server_tenants(server, &tenants_n);
    if (n > (uint64_t)engine.rows + engine.queue)
        return err_set(err, COHORT_E_CAPACITY, field,
                       "the request takes %zu places, and there are %llu (%u rows and a line of %u)", n,
                       (unsigned long long)engine.rows + engine.queue, engine.rows, engine.queue);
    const cohort_tenant *tenant = tenant_index < tenants_n ? &tenants[tenant_index] : NULL;
    if (tenant && tenant->queue && n > tenant->queue)
        return err_set(err, COHORT_E_CAPACITY, field, "the request takes %zu places, and \"%s\" has %u", n,
                       tenant->name, tenant->queue);
    return 0;
}

/* With tickets nothing but their number can be wrong, and then none was taken. */
static int take_places(struct call *call, const cohort_ticket *tickets, size_t tickets_n, cohort_error *err) {
    int rc = 0;
    if (tickets_n && tickets_n != call->choices_n)
        return err_set(err, COHORT_E_INTERNAL, NULL, "the request has another number of choices than it had");
    for (size_t i = 0; i < call->choices_n && !rc; i++) {
        if (tickets_n)
            call->choices[i].ticket = tickets[i];
        else
            rc = cohort_reserve_for(call->server->engine, call->arrival.tenant, &call->choices[i].ticket, err);
    }
    return rc;
}

static int make_choices(struct call *call, const cohort_ticket *tickets, size_t tickets_n, cohort_error *err) {
    size_t n = call->prompts_n * call->params.tries;
    call->choices = mem_zalloc(n, sizeof *call->choices);
    if (!call->choices) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu choices", n);
    call->choices_n = n;
    for (size_t i = 0; i < n; i++)
        call->choices[i].call = call; /* all: one without a place is dropped like the others */
    for (size_t i = 0; i < n; i++) {
        struct choice *choice = &call->choices[i];
        choice->index = (uint32_t)i;
        choice->text.max = choice->logprobs.max = SERVER_RESULT_BYTES_MAX;
        choice->tokens.max = choice->offsets.max = choice->top_logprobs.max = SERVER_RESULT_BYTES_MAX;
    }
    int rc = take_places(call, tickets, tickets_n, err);
    if (rc) return rc;
    /* All choices share one seed, each with its own random stream; drawn here so that they do when none was given. */
    if (!call->params.sampling.has_seed) {
        call->params.sampling.seed = rng_entropy() >> 1;
        call->params.sampling.has_seed = 1;
    }
    return 0;
}

/* The smaller one of the request's and the server's limits counts. */
static void limit_time(struct call *call) {
    uint64_t limit_ms = call->server->options.request_timeout_s * 1000ull;
    uint32_t *ms = &call->params.timeout_ms;
    if (limit_ms && (*ms == 0 || *ms > limit_ms)) *ms = limit_ms < UINT32_MAX ? (uint32_t)limit_ms : UINT32_MAX;
}

struct call *call_new(struct server *server, const struct dialect *dialect, const struct arrival *arrival,
                      json_t *body) {
    struct call *call = mem_zalloc(1, sizeof *call);
    if (!call) {
        json_decref(body);
        return NULL;
    }
    call->server = call->sink.server = server;
    call->sink.gone = client_gone;
    call->sink.drained = on_drained;
    call->dialect = dialect;
    call->sink.names_events = dialect->names_events;
    call->arrival = *arrival;
    call->body = body;
    call->model_name = server->options.model_name;
    call->created = (int64_t)time(NULL);
    call->job.work = call_tokenise;
    call->job.done = call_tokenised;
    call->job.owner = arrival->tenant;
    call->next = server->calls;
    if (server->calls) server->calls->prev = call;
    server->calls = call;
    server->calls_open++;
    return call;
}

int call_prepare(struct call *call, const cohort_ticket *tickets, size_t tickets_n, cohort_error *err) {
    int rc = call->dialect->parse(call, call->body, err);
    limit_time(call);
    const struct params *p = &call->params;
    const char *many = p->tries > p->n ? "best_of" : p->n > 1 ? "n" : "prompt";
    if (!rc) {
        rc = check_lengths(call, err);
        if (!rc) rc = call_check_places(call->server, call->arrival.tenant, many, call->prompts_n * p->tries, err);
        if (rc) call_name_input(call->dialect, err);
    }
    return rc ? rc : make_choices(call, tickets, tickets_n, err);
}

void call_submit(struct call *call) {
    call->in_pool = 1;
    pool_add(call->server->pool, &call->job);
}

static void tell_seed(struct call *call) {
    char seed[32];
    snprintf(seed, sizeof seed, "%lld", (long long)call->params.sampling.seed);
    evhttp_add_header(evhttp_request_get_output_headers(call->sink.http), "X-Cohort-Seed", seed);
}

void call_start(struct server *server, const struct dialect *dialect, struct evhttp_request *http,
                const struct arrival *arrival, json_t *body) {
    cohort_error error = {0};
    struct call *call = call_new(server, dialect, arrival, body);
    if (!call) {
        err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the request");
        reply_error(server, http, &error);
        return;
    }
    call->sink.http = http;
    snprintf(call->id, sizeof call->id, "%s%016llx%08llx", dialect->id_prefix, (unsigned long long)rng_entropy(),
             (unsigned long long)++server->calls_started & 0xffffffff);
    int rc = call_prepare(call, NULL, 0, &error);
    if (!rc) tell_seed(call);
    struct evbuffer *input = evhttp_request_get_input_buffer(http);
    if (!rc) rc = stored_wish(call, input, &error);
    if (!rc) rc = sink_watch(&call->sink, &error);
    /* The body's bytes: all of them were parsed. */
    evbuffer_drain(input, evbuffer_get_length(input));
    if (rc)
        answer_error(call, &error);
    else
        call_submit(call);
}
