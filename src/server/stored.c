/* A stored call's life (stored.h): the wish, the acknowledgement, what the journal reports, the ends. Loop thread.
 * Invariant: a stored call is in the server's tables from the moment its request is in the journal until it is freed.
 */
#include "server/stored.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/internal.h"
#include "server/readers.h"
#include "server/recover.h"

static int64_t now_s(void) { return (int64_t)(clock_us() / 1000000); }

const char *stored_owner(const struct server *server, uint32_t tenant) {
    size_t n;
    const cohort_tenant *tenants = server_tenants(server, &n);
    return tenant < n ? tenants[tenant].name : STORED_NO_KEYS;
}

int stored_is_owner(const char *who, const char *owner) {
    return strcmp(who, owner) == 0 || (strcmp(who, STORED_NO_KEYS) == 0 && strcmp(owner, STORED_NO_KEYS_BEFORE) == 0);
}

/* ---- the tables ---- */

static size_t id_bucket(const char *id) { return (size_t)journal_sum(0, 0, id, strlen(id)) % STORED_BUCKETS; }

void stored_list(struct stored *s) {
    struct stored **by_id = &s->server->stored_by_id[id_bucket(s->id)];
    struct stored **by_number = &s->server->stored_by_number[s->number % STORED_BUCKETS];
    s->id_next = *by_id;
    *by_id = s;
    s->number_next = *by_number;
    *by_number = s;
    s->listed = 1;
}

static void unlist(struct stored *s) {
    if (!s->listed) return;
    struct stored **at = &s->server->stored_by_id[id_bucket(s->id)];
    while (*at != s) at = &(*at)->id_next;
    *at = s->id_next;
    at = &s->server->stored_by_number[s->number % STORED_BUCKETS];
    while (*at != s) at = &(*at)->number_next;
    *at = s->number_next;
    s->listed = 0;
}

struct stored *stored_find(struct server *server, const char *id, const char *owner) {
    struct stored *s = server->stored_by_id[id_bucket(id)];
    while (s && (strcmp(s->id, id) != 0 || !stored_is_owner(owner, s->owner))) s = s->id_next;
    return s && (s->recovered || s->state != STORED_STARTING) ? s : NULL;
}

static struct stored *find_number(struct server *server, uint64_t number) {
    struct stored *s = server->stored_by_number[number % STORED_BUCKETS];
    while (s && s->number != number) s = s->number_next;
    return s;
}

/* ---- life ---- */

struct stored *stored_new(struct server *server, const char *id, const char *owner) {
    struct stored *s = mem_zalloc(1, sizeof *s);
    if (!s) return NULL;
    s->server = server;
    snprintf(s->id, sizeof s->id, "%s", id);
    snprintf(s->owner, sizeof s->owner, "%s", owner);
    s->log.max = s->result.max = SERVER_RESULT_BYTES_MAX;
    return s;
}

static void free_lanes(struct stored *s) {
    for (size_t i = 0; i < s->lanes_n; i++) {
        buf_free(&s->lanes[i].queue);
        buf_free(&s->lanes[i].known);
        mem_free(s->lanes[i].resume);
        if (!s->whole) continue;
        parts_close(&s->whole[i]);
        buf_free(&s->whole[i].text);
        buf_free(&s->whole[i].logprobs);
        buf_free(&s->whole[i].top_logprobs);
        buf_free(&s->whole[i].offsets);
        buf_free(&s->whole[i].tokens);
    }
    mem_free(s->lanes);
    mem_free(s->whole);
    s->lanes = NULL;
    s->whole = NULL;
    s->lanes_n = 0;
}

int stored_make_lanes(struct stored *s, size_t n, cohort_error *err) {
    s->lanes = mem_zalloc(n, sizeof *s->lanes);
    if (!s->lanes) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %zu choices", n);
    s->lanes_n = n;
    return 0;
}

void stored_free(struct stored *s) {
    unlist(s);
    recover_unlink(s);
    free_lanes(s);
    buf_free(&s->body);
    buf_free(&s->model_name);
    buf_free(&s->log);
    buf_free(&s->ends);
    buf_free(&s->result);
    mem_free(s->tickets);
    mem_free(s);
}

void stored_maybe_free(struct stored *s) {
    if (s->state == STORED_ENDED && s->settled && !s->readers && !s->feeding) stored_free(s);
}

/* The call goes; s stays. */
static void drop_call(struct stored *s) {
    struct call *call = s->call;
    s->call = NULL;
    if (!call) return;
    call->stored = NULL;
    call_free(call);
}

void stored_reset(struct stored *s) {
    drop_call(s);
    free_lanes(s);
    buf_free(&s->log);
    buf_free(&s->ends);
    buf_free(&s->result);
    s->log.max = s->result.max = SERVER_RESULT_BYTES_MAX;
    s->turn = s->ended_n = s->held = 0;
    s->base = s->events_n = s->events_safe = s->notes_n = s->notes_safe = s->before_n = 0;
    s->before_sum = s->sum = 0;
    s->lost = 0;
}

void stored_call_gone(struct stored *s) {
    /* Nobody was told of it yet, so nobody may find it. */
    if (!s->recovered && s->state == STORED_STARTING && s->number) journal_remove(s->server->journal, s->number);
    s->call = NULL;
    readers_cut(s, NULL);
    stored_free(s);
}

void stored_suspend(struct stored *s) {
    struct call *call = s->call;
    cohort_error error = {0};
    err_set(&error, COHORT_E_CLOSED, NULL, "the server is shutting down; GET /v1/streams/%s goes on with it later",
            s->id);
    if (call->sink.http) { /* not acknowledged: refused */
        err_set(&error, COHORT_E_CLOSED, NULL, "the server is shutting down");
        sink_error(&call->sink, &error);
        call_free(call); /* and s */
        return;
    }
    readers_cut(s, &error);
    drop_call(s);
    stored_free(s);
}

void stored_forget(struct stored *s) {
    cohort_error error = {0};
    err_set(&error, COHORT_E_NOT_FOUND, NULL, "the stream was deleted");
    s->forgotten = 1;
    unlist(s);
    readers_tell(s, &error);
    if (s->state == STORED_LOADING) return; /* the job has it */
    if (s->call && s->call->in_pool) {
        s->call->gone = 1; /* and s with it */
        return;
    }
    drop_call(s);
    stored_free(s);
}

/* ---- the start ---- */

static int wants(const struct call *call, cohort_error *err) {
    const struct server_options *o = &call->server->options;
    int store = call->params.store;
    int keeps = o->store == SERVER_STORE_ALL || (call->dialect->keeps && call->server->journal);
    if (keeps && store != 0) return 1;
    if (store != 1) return 0;
    if (o->store == SERVER_STORE_NONE)
        return err_set(err, COHORT_E_UNSUPPORTED, "store", "store is switched off on this server (--store none)");
    if (!call->server->journal)
        return err_set(err, COHORT_E_UNSUPPORTED, "store", "store needs a server with a state directory (--state-dir)");
    return 1;
}

int stored_wish(struct call *call, struct evbuffer *body, cohort_error *err) {
    int wish = wants(call, err);
    if (wish <= 0) return wish;
    struct stored *s = stored_new(call->server, call->id, stored_owner(call->server, call->arrival.tenant));
    if (!s) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    call->stored = s;
    s->call = call;
    s->state = STORED_STARTING;
    size_t len = evbuffer_get_length(body);
    int rc = buf_add(&s->body, evbuffer_pullup(body, -1), len);
    if (rc) return err_set(err, rc, NULL, "no memory for the request");
    return stored_make_lanes(s, call->choices_n, err);
}

static int refused(const struct stored *s, int code, cohort_error *err) {
    if (code == COHORT_E_CLOSED)
        return err_set(err, COHORT_E_IO, "store",
                       "the state directory %.200s was moved or replaced while the server runs, so the call cannot be "
                       "stored",
                       s->server->options.state_dir);
    if (code != COHORT_E_BUSY)
        return err_set(err, COHORT_E_IO, "store",
                       "the state directory cannot be written, so the call cannot be stored");
    struct journal_counts now;
    journal_get_counts(s->server->journal, &now);
    return err_set(err, code, "store",
                   "too much is under way in the state directory: %llu bytes to be written, %llu calls unfinished",
                   (unsigned long long)now.queued, (unsigned long long)now.running);
}

static int begin(struct stored *s, cohort_error *err) {
    struct call *call = s->call;
    cohort_engine_options engine;
    cohort_engine_get_options(s->server->engine, &engine);
    struct buf head = {0};
    int rc = buf_addf(&head,
                      "{\"path\":\"%s\",\"created\":%lld,\"seed\":%lld,\"choices\":%zu,\"context\":%u,"
                      "\"kv_tokens\":%llu,\"identity\":\"%s\",\"model\":",
                      call->dialect->path, (long long)call->created, (long long)call->params.sampling.seed,
                      call->choices_n, engine.context, (unsigned long long)engine.kv_tokens, s->server->identity);
    if (!rc) rc = buf_json_string(&head, call->model_name, strlen(call->model_name));
    if (!rc) rc = buf_adds(&head, "}");
    const struct journal_begin stream = {s->id, s->owner, head.data, s->body.data, head.len, s->body.len};
    if (!rc) rc = journal_begin(s->server->journal, &stream, &s->number);
    buf_free(&head);
    buf_free(&s->body);
    s->waits_since_s = now_s();
    return rc ? refused(s, rc, err) : 0;
}

void stored_submitted(struct stored *s, const cohort_error *error) {
    struct call *call = s->call;
    cohort_error why = *error;
    for (size_t i = 0; i < s->lanes_n; i++) {
        mem_free(s->lanes[i].resume);
        s->lanes[i].resume = NULL;
    }
    if (s->recovered) {
        recover_submitted(s, &why);
        return;
    }
    if (!why.code) begin(s, &why);
    if (!why.code) {
        stored_list(s);
        return;
    }
    s->number = 0;
    sink_error(&call->sink, &why);
    call_free(call); /* and s */
}

/* Nobody follows it; its id is all that the client needs. */
static void tell_begun(struct call *call) {
    struct buf body = {0};
    cohort_error error = {0};
    if (call->dialect->begun(call, &body) == 0) {
        sink_json(&call->sink, 200, body.data, body.len);
    } else {
        err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the reply; the call %s goes on", call->id);
        sink_error(&call->sink, &error);
    }
    buf_free(&body);
}

int stored_is_away(const struct server *server, const char *what, cohort_error *err) {
    if (server->stored_lost == 0) return err_set(err, COHORT_E_NOT_FOUND, NULL, "no such %s", what);
    return err_set(err, COHORT_E_IO, NULL,
                   "the end of the %s could not be written; it is made again at the next start of the server", what);
}

/* The request is on the disk. */
static void acknowledge(struct stored *s) {
    struct call *call = s->call;
    s->waits_since_s = 0;
    evhttp_add_header(evhttp_request_get_output_headers(call->sink.http), "X-Cohort-Stream-Id", s->id);
    if (call->params.detached && !call->params.stream)
        tell_begun(call);
    else
        reader_follow(s, &call->sink, 0, !call->params.stream);
    stored_run(s);
}

static void refuse(struct stored *s, int code) {
    struct call *call = s->call;
    cohort_error error = {0};
    refused(s, code, &error);
    sink_error(&call->sink, &error);
    call_free(call); /* and s, and what there may be in the journal */
}

/* ---- what the journal reports ---- */

static void settle(struct stored *s) {
    s->settled = 1;
    if (s->cancelled) readers_feed(s); /* they waited for it */
    stored_maybe_free(s);
}

static void take_result(struct stored *s, const struct journal_result *r) {
    switch (r->kind) {
    case JOURNAL_BEGIN:
        if (r->code)
            refuse(s, r->code);
        else
            acknowledge(s);
        return;
    case JOURNAL_EVENT:
        if (r->code)
            stored_lose(s);
        else if (!s->lost)
            s->events_safe = r->n;
        break;
    case JOURNAL_NOTE:
        if (r->code)
            stored_lose(s);
        else if (!s->lost)
            s->notes_safe = r->n;
        break;
    case JOURNAL_END:
        if (r->code) stored_lose(s);
        settle(s);
        return;
    default:
        return;
    }
    if (s->state == STORED_RUNNING && (r->kind == JOURNAL_NOTE || r->code)) stored_pump(s);
}

void stored_on_journal(evutil_socket_t fd, short what, void *argument) {
    (void)fd;
    (void)what;
    struct server *server = argument;
    struct journal_result result;
    while (journal_next_result(server->journal, &result)) {
        if (result.kind == JOURNAL_REMOVE) readers_removed(server, result.number, result.code);
        struct stored *s = find_number(server, result.number);
        if (s) take_result(s, &result);
    }
}

/* A disk that does not answer is one that failed. */
static void check_commit(struct stored *s, int64_t now) {
    if (!s->waits_since_s || now - s->waits_since_s < STORED_COMMIT_S) return;
    s->waits_since_s = 0;
    if (s->state == STORED_STARTING && !s->recovered) {
        refuse(s, COHORT_E_IO);
    } else if (s->state == STORED_RUNNING) {
        stored_lose(s);
        stored_pump(s);
    } else if (s->state == STORED_ENDED) {
        stored_lose(s);
        settle(s);
    }
}

void stored_tick(struct server *server, int64_t now) {
    cohort_error draining = {0};
    err_set(&draining, COHORT_E_CLOSED, NULL, "the server is shutting down");
    for (size_t i = 0; i < STORED_BUCKETS; i++)
        for (struct stored *s = server->stored_by_id[i], *next; s; s = next) {
            next = s->id_next;
            if (server->draining && (s->state == STORED_WAITING || s->state == STORED_LOADING))
                readers_cut(s, &draining); /* it waits for the next start */
            else
                check_commit(s, now);
        }
    readers_tick(server, now);
    recover_look(server);
}

void stored_close(struct server *server) {
    for (size_t i = 0; i < STORED_BUCKETS; i++)
        while (server->stored_by_id[i]) stored_free(server->stored_by_id[i]);
}
