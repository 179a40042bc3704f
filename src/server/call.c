/* A generating request from its body to its reply (call.h). Loop thread, but for tokenise_and_submit, which runs on a
 * helper. Invariant: a call is in the server's list from call_start to call_free; once the helper has given it
 * back, each choice with an id is in the server's map. */
#include "server/call.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/internal.h"

static int64_t now_s(void) { return (int64_t)(clock_us() / 1000000); }

/* ---- the end of a call ---- */

static void drop_choice(struct choice *choice) {
    struct server *server = choice->call->server;
    if (choice->ticket) cohort_unreserve(server->engine, choice->ticket);
    choice->ticket = 0;
    if (choice->id) {
        server_map_remove(server, choice);
        cohort_drop(server->engine, choice->id);
        choice->id = 0;
    }
}

static void stop_watching(struct call *call) {
    if (!call->watch) return;
    evutil_socket_t fd = event_get_fd(call->watch);
    event_free(call->watch);
    close(fd);
    call->watch = NULL;
}

/* What the request said is in the engine, or of no use any more: a stream that waits for its turn costs little. */
static void forget_body(struct call *call) {
    for (size_t i = 0; i < call->prompts_n; i++) {
        mem_free(call->prompts[i].ids);
        call->prompts[i] = (struct prompt){0};
    }
    free(call->params.messages);
    call->params.messages = NULL;
    call->params.stops_n = 0; /* they lie in the body */
    json_decref(call->body);
    call->body = NULL;
}

static void call_free(struct call *call) {
    struct server *server = call->server;
    for (size_t i = 0; i < call->choices_n; i++) {
        struct choice *choice = &call->choices[i];
        drop_choice(choice);
        buf_free(&choice->text);
        buf_free(&choice->logprobs);
        buf_free(&choice->top_logprobs);
        buf_free(&choice->offsets);
        buf_free(&choice->tokens);
    }
    forget_body(call);
    mem_free(call->prompts);
    mem_free(call->choices);
    stop_watching(call);
    if (call->prev)
        call->prev->next = call->next;
    else
        server->calls = call->next;
    if (call->next) call->next->prev = call->prev;
    server->calls_open--;
    mem_free(call);
}

/* The connection belongs to evhttp again: no callback of ours may point at this call. */
static void let_go(struct call *call) {
    stop_watching(call);
    if (call->http) {
        struct evhttp_connection *connection = evhttp_request_get_connection(call->http);
        if (connection) evhttp_connection_set_closecb(connection, NULL, NULL);
    }
    call->http = NULL;
}

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

/* Takes the request out of the call for its last write. */
static struct evhttp_request *last_write(struct call *call) {
    struct evhttp_request *http = call->http;
    struct server *server = call->server;
    let_go(call);
    server->replies_open++;
    evhttp_request_set_on_complete_cb(http, on_reply_sent, server);
    evhttp_connection_set_closecb(evhttp_request_get_connection(http), on_reply_cut, server);
    return http;
}

static void answer_error(struct call *call, const cohort_error *error) {
    reply_error(last_write(call), error);
    call_free(call);
}

/* The client is gone: nothing is written any more, its choices end now. */
static void client_gone(struct call *call) {
    call->gone = 1;
    let_go(call);
    if (!call->in_pool) call_free(call);
}

/* evhttp closed the connection by itself (write failed, timed out). A request whose reply was under way it then leaves
 * to us, without a connection. */
static void on_connection_closed(struct evhttp_connection *connection, void *argument) {
    (void)connection;
    struct call *call = argument;
    struct evhttp_request *http = call->http;
    call->http = NULL;
    client_gone(call);
    if (!evhttp_request_get_connection(http)) evhttp_request_free(http);
}

/* Ends the connection from our side. Freeing it also frees the request. */
static void hang_up(struct call *call) {
    struct evhttp_connection *connection = evhttp_request_get_connection(call->http);
    client_gone(call); /* takes our callbacks off first */
    if (connection) evhttp_connection_free(connection);
}

/* Something came from the peer while evhttp is not reading: its end, a reset, or bytes sent ahead, which stay where
 * they are. */
static void on_peer(evutil_socket_t fd, short what, void *argument) {
    (void)what; /* says EV_READ for a reset as well */
    struct pollfd peer = {.fd = fd, .events = POLLRDHUP};
    if (poll(&peer, 1, 0) > 0 && peer.revents & (POLLRDHUP | POLLERR | POLLHUP)) hang_up(argument);
}

/* Edge-triggered, so that bytes nobody reads do not keep the loop busy. That cannot be mixed with evhttp's own events
 * on one descriptor, hence the second one for the same socket. */
static int watch_client(struct call *call, cohort_error *err) {
    struct evhttp_connection *connection = evhttp_request_get_connection(call->http);
    int fd = fcntl(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return err_set(err, COHORT_E_BUSY, NULL, "too many connections are open");
    if (descriptors_scarce(fd)) {
        close(fd);
        evhttp_add_header(evhttp_request_get_output_headers(call->http), "Connection", "close");
        return err_set(err, COHORT_E_BUSY, NULL, "too many connections are open");
    }
    call->watch = event_new(call->server->base, fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_peer, call);
    if (!call->watch) {
        close(fd);
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory to watch the connection");
    }
    evhttp_connection_set_closecb(connection, on_connection_closed, call);
    if (event_add(call->watch, NULL) == 0) return 0;
    return err_set(err, COHORT_E_INTERNAL, NULL, "cannot watch the connection");
}

/* ---- writing ---- */

static struct bufferevent *socket_of(const struct call *call) {
    return evhttp_connection_get_bufferevent(evhttp_request_get_connection(call->http));
}

static size_t unsent(const struct call *call) { return evbuffer_get_length(bufferevent_get_output(socket_of(call))); }

/* evhttp starts to read again with each write, into a buffer without a limit that nobody looks at before the reply has
 * ended. */
static void stop_reading(struct call *call) { bufferevent_disable(socket_of(call), EV_READ); }

static void on_sent(struct evhttp_connection *connection, void *argument) {
    (void)connection;
    struct call *call = argument;
    call->drained_s = now_s();
    call_pump(call);
}

static void send_raw(struct call *call, const char *bytes, size_t len) {
    struct evbuffer *chunk = evbuffer_new();
    if (!chunk) return;
    evbuffer_add(chunk, bytes, len);
    if (unsent(call) == 0) call->drained_s = now_s();
    evhttp_send_reply_chunk_with_cb(call->http, chunk, on_sent, call);
    evbuffer_free(chunk);
    stop_reading(call);
    call->last_write_s = now_s();
}

static int send_piece(struct call *call, const struct buf *piece) {
    struct buf frame = {0};
    int rc = buf_adds(&frame, "data: ");
    if (!rc) rc = buf_add(&frame, piece->data, piece->len);
    if (!rc) rc = buf_adds(&frame, "\n\n");
    if (!rc) send_raw(call, frame.data, frame.len);
    buf_free(&frame);
    return rc;
}

static void begin_stream(struct call *call) {
    struct evkeyvalq *headers = evhttp_request_get_output_headers(call->http);
    evhttp_add_header(headers, "Content-Type", "text/event-stream; charset=utf-8");
    evhttp_add_header(headers, "Cache-Control", "no-cache");
    evhttp_add_header(headers, "X-Accel-Buffering", "no");
    evhttp_send_reply_start(call->http, 200, "OK");
    stop_reading(call);
    call->streaming = 1;
    call->last_write_s = call->drained_s = now_s();
}

static void end_stream(struct call *call) {
    evhttp_send_reply_end(last_write(call));
    call_free(call);
}

static void stream_failed(struct call *call, const cohort_error *error) {
    struct buf piece = {0};
    if (error_json(&piece, error) == 0) send_piece(call, &piece);
    buf_free(&piece);
    end_stream(call);
}

static void fail(struct call *call, const cohort_error *error) {
    if (call->streaming)
        stream_failed(call, error);
    else
        answer_error(call, error);
}

static void finish_stream(struct call *call) {
    struct buf piece = {0};
    if (call->params.include_usage && call->dialect->usage_piece(call, &piece) == 0) send_piece(call, &piece);
    buf_free(&piece);
    static const char done[] = "data: [DONE]\n\n";
    send_raw(call, done, sizeof done - 1);
    end_stream(call);
}

static void finish_whole(struct call *call) {
    struct buf body = {0};
    cohort_error error = {0};
    if (call->dialect->whole(call, &body) != 0) {
        err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the reply");
        answer_error(call, &error);
    } else {
        reply_json(last_write(call), 200, body.data, body.len);
        call_free(call);
    }
    buf_free(&body);
}

/* ---- events ---- */

static int time_is_over(const struct call *call, cohort_error *err) {
    return err_set(err, COHORT_E_TIMEOUT, NULL, "the request's time of %u ms is over", call->params.timeout_ms);
}

/* Takes in one event; a code if the call cannot go on. */
static int take_event(struct choice *choice, const cohort_event *event, cohort_error *err) {
    struct call *call = choice->call;
    if (event->type == COHORT_EVENT_FINISH) {
        choice->finished = 1;
        choice->finish = event->finish;
        choice->stats = event->stats;
        if (event->error == COHORT_E_TIMEOUT) return time_is_over(call, err);
        if (event->finish == COHORT_FINISH_ERROR)
            return err_set(err, event->error, NULL, "%s", event->error_text ? event->error_text : "");
        if (event->finish == COHORT_FINISH_CANCELLED)
            return err_set(err, COHORT_E_CLOSED, NULL, "the server is shutting down");
    }
    if (event->type == COHORT_EVENT_PROMPT) return 0;
    struct buf piece = {0};
    int rc = call->streaming ? call->dialect->piece(choice, event, &piece) : call->dialect->collect(choice, event);
    if (!rc && piece.len) rc = send_piece(call, &piece);
    buf_free(&piece);
    if (!rc && choice->text.len > SERVER_RESULT_BYTES_MAX) rc = COHORT_E_LIMIT;
    return rc ? err_set(err, rc, NULL, "no memory for the reply") : 0;
}

/* 1 if the call is still there. */
static int pump_choice(struct choice *choice) {
    struct call *call = choice->call;
    cohort_event event;
    while (!choice->finished && (!call->streaming || unsent(call) < SERVER_OUTPUT_MAX) &&
           cohort_next(call->server->engine, choice->id, &event) == COHORT_OK) {
        cohort_error error = {0};
        if (take_event(choice, &event, &error) != 0) {
            fail(call, &error);
            return 0;
        }
    }
    if (choice->finished && choice->id) {
        drop_choice(choice);
        call->finished_n++;
    }
    return 1;
}

void call_pump(struct call *call) {
    if (call->in_pool || call->gone || !call->http) return;
    for (size_t i = 0; i < call->choices_n; i++)
        if (!pump_choice(&call->choices[i])) return;
    if (call->finished_n < call->choices_n) return;
    if (call->streaming)
        finish_stream(call);
    else
        finish_whole(call);
}

void call_tick(struct call *call, int64_t now) {
    if (!call->streaming || !call->http) return;
    if (unsent(call) > 0) {
        /* A reader that takes a byte now and then would hold its row's place and pages for ever. */
        if (now - call->drained_s >= SERVER_STALL_S) hang_up(call);
    } else if (now - call->last_write_s >= SERVER_COMMENT_S) {
        send_raw(call, ": still working\n\n", 17);
    }
}

void call_cancel(struct call *call) {
    if (call->in_pool) return; /* the helper has the choices: the next tick finds them */
    for (size_t i = 0; i < call->choices_n; i++)
        if (call->choices[i].id) cohort_cancel(call->server->engine, call->choices[i].id);
}

/* ---- the helper's part ---- */

static int prompt_ids(struct call *call, struct prompt *prompt, cohort_error *err) {
    const cohort_model *model = call->server->model;
    if (call->params.messages)
        return cohort_chat_render(model, call->params.messages, strlen(call->params.messages), 1, &prompt->ids,
                                  &prompt->ids_n, err);
    if (!prompt->text) return 0;
    int rc =
        cohort_tokenize(model, prompt->text, prompt->text_len, COHORT_TOKENIZE_BOS, &prompt->ids, &prompt->ids_n, err);
    if (!rc && prompt->ids_n == 0)
        rc = err_set(err, COHORT_E_ARGUMENT, "prompt", "prompt is empty and the vocabulary has no begin token");
    return rc;
}

/* What is left of the request's time for the engine; E_TIMEOUT if nothing is. */
static int time_left(const struct call *call, uint32_t *ms, cohort_error *err) {
    uint64_t all_us = call->params.timeout_ms * 1000ull, gone_us = clock_us() - call->arrival.read_us;
    *ms = 0;
    if (all_us == 0) return 0;
    if (gone_us >= all_us) return time_is_over(call, err);
    *ms = (uint32_t)((all_us - gone_us + 999) / 1000);
    return 0;
}

static int submit_choice(struct call *call, struct choice *choice, const struct prompt *prompt, cohort_error *err) {
    const struct params *p = &call->params;
    uint32_t timeout_ms;
    int code = time_left(call, &timeout_ms, err);
    if (code) return code;
    cohort_request request;
    cohort_request_defaults(&request);
    request.prompt = prompt->ids;
    request.prompt_n = prompt->ids_n;
    request.max_tokens = p->max_tokens;
    request.sampling = p->sampling;
    request.sampling.choice = choice->index % p->n;
    request.stops = p->stops;
    request.stops_n = p->stops_n;
    request.stop_ids = p->stop_ids;
    request.stop_ids_n = p->stop_ids_n;
    request.ignore_eos = p->ignore_eos;
    request.logprobs = p->logprobs;
    memcpy(request.trace_id, call->arrival.trace.trace_id, sizeof request.trace_id);
    memcpy(request.trace_parent, call->arrival.trace.parent_id, sizeof request.trace_parent);
    request.timeout_ms = timeout_ms;
    request.max_predict_ms = p->max_predict_ms;
    request.priority = p->priority;
    request.user = choice;
    cohort_ticket ticket = choice->ticket;
    choice->ticket = 0;
    return cohort_submit(call->server->engine, ticket, &request, &choice->id, err);
}

static void tokenise_and_submit(struct pool_job *job) {
    struct call *call = (struct call *)job;
    int rc = 0;
    for (size_t i = 0; i < call->prompts_n && !rc; i++) rc = prompt_ids(call, &call->prompts[i], &call->error);
    for (size_t i = 0; i < call->choices_n && !rc; i++)
        rc = submit_choice(call, &call->choices[i], &call->prompts[i / call->params.n], &call->error);
    if (rc && !call->error.code) call->error.code = rc;
    if (rc) call_name_input(call->dialect, &call->error);
}

static void after_submit(struct pool_job *job) {
    struct call *call = (struct call *)job;
    call->in_pool = 0;
    forget_body(call);
    for (size_t i = 0; i < call->choices_n; i++)
        if (call->choices[i].id) server_map_add(call->server, &call->choices[i]);
    if (call->gone) {
        call_free(call);
        return;
    }
    if (call->error.code) {
        cohort_error error = call->error;
        answer_error(call, &error);
        return;
    }
    if (call->params.stream) {
        begin_stream(call);
        for (size_t i = 0; i < call->choices_n; i++) {
            struct buf piece = {0};
            if (call->dialect->piece(&call->choices[i], NULL, &piece) == 0 && piece.len) send_piece(call, &piece);
            buf_free(&piece);
        }
    }
    call_pump(call);
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
static int check_places(const struct call *call, cohort_error *err) {
    const char *field = call->params.n > 1 ? "n" : "prompt";
    size_t n = call->prompts_n * call->params.n, tenants_n;
    cohort_engine_options engine;
    cohort_engine_get_options(call->server->engine, &engine);
    const cohort_tenant *tenants = server_tenants(call->server, &tenants_n);
    if (n > (uint64_t)engine.rows + engine.queue)
        return err_set(err, COHORT_E_CAPACITY, field,
                       "the request takes %zu places, and there are %llu (%u rows and a line of %u)", n,
                       (unsigned long long)engine.rows + engine.queue, engine.rows, engine.queue);
    const cohort_tenant *tenant = call->arrival.tenant < tenants_n ? &tenants[call->arrival.tenant] : NULL;
    if (tenant && tenant->queue && n > tenant->queue)
        return err_set(err, COHORT_E_CAPACITY, field, "the request takes %zu places, and \"%s\" has %u", n,
                       tenant->name, tenant->queue);
    return 0;
}

static int make_choices(struct call *call, cohort_error *err) {
    size_t n = call->prompts_n * call->params.n;
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
        int rc = cohort_reserve_for(call->server->engine, call->arrival.tenant, &choice->ticket, err);
        if (rc) return rc;
    }
    /* All choices share one seed, each with its own random stream; drawn here so that they do when none was given. */
    if (!call->params.sampling.has_seed) {
        call->params.sampling.seed = rng_entropy() >> 1;
        call->params.sampling.has_seed = 1;
    }
    char seed[32];
    snprintf(seed, sizeof seed, "%lld", (long long)call->params.sampling.seed);
    evhttp_add_header(evhttp_request_get_output_headers(call->http), "X-Cohort-Seed", seed);
    return 0;
}

/* The smaller one of the request's and the server's limits counts. */
static void limit_time(struct call *call) {
    uint64_t limit_ms = call->server->options.request_timeout_s * 1000ull;
    uint32_t *ms = &call->params.timeout_ms;
    if (limit_ms && (*ms == 0 || *ms > limit_ms)) *ms = limit_ms < UINT32_MAX ? (uint32_t)limit_ms : UINT32_MAX;
}

void call_start(struct server *server, const struct dialect *dialect, struct evhttp_request *http,
                const struct arrival *arrival, json_t *body) {
    cohort_error error = {0};
    struct call *call = mem_zalloc(1, sizeof *call);
    if (!call) {
        json_decref(body);
        err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the request");
        reply_error(http, &error);
        return;
    }
    call->server = server;
    call->dialect = dialect;
    call->arrival = *arrival;
    call->http = http;
    call->body = body;
    call->created = (int64_t)time(NULL);
    call->job.work = tokenise_and_submit;
    call->job.done = after_submit;
    snprintf(call->id, sizeof call->id, "%s%016llx%08llx", dialect->id_prefix, (unsigned long long)rng_entropy(),
             (unsigned long long)++server->calls_started & 0xffffffff);
    call->next = server->calls;
    if (server->calls) server->calls->prev = call;
    server->calls = call;
    server->calls_open++;
    int rc = dialect->parse(call, body, &error);
    limit_time(call);
    if (!rc && (rc = check_lengths(call, &error)) != 0) call_name_input(dialect, &error);
    if (!rc) rc = check_places(call, &error);
    if (!rc) rc = make_choices(call, &error);
    if (!rc) rc = watch_client(call, &error);
    /* The body's bytes: all of them were parsed. */
    struct evbuffer *input = evhttp_request_get_input_buffer(http);
    evbuffer_drain(input, evbuffer_get_length(input));
    if (rc) {
        answer_error(call, &error);
        return;
    }
    call->in_pool = 1;
    pool_add(server->pool, &call->job);
}
