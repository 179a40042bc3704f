/* Readers (readers.h). Invariants: a reader is in the server's list, and in its stream's while that is in memory; one
 * that the journal's thread has (`in_pool`) is freed only when it comes back. */
#include "server/readers.h"

#include <event2/buffer.h>
#include <event2/keyvalq_struct.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "server/internal.h"

enum { BATCH_BYTES = 64 << 10 };

struct reader {
    struct pool_job job; /* first member */
    struct sink sink;
    struct server *server;
    struct reader *prev, *next;           /* the server's list */
    struct reader *peer_prev, *peer_next; /* the stream's */
    struct stored *stored;                /* NULL: all of it is in the journal */
    struct journal_stream stream;         /* then: what it is */
    char id[JOURNAL_ID_MAX + 1], owner[JOURNAL_OWNER_MAX + 1];
    uint64_t number, at; /* at: the last event that was sent */
    int whole, removing; /* wants the one body; waits for the end of the stream itself */
    int cancelling;      /* ends it first */
    const char *kind;    /* what it calls the stream */
    int in_pool, gone;
    struct buf batch; /* from the journal: lengths (uint32_t) and events, or the one body */
    size_t batch_at;
    cohort_error error;
};

/* ---- life ---- */

static void detach(struct reader *r) {
    struct stored *s = r->stored;
    if (!s) return;
    if (r->peer_prev)
        r->peer_prev->peer_next = r->peer_next;
    else
        s->readers = r->peer_next;
    if (r->peer_next) r->peer_next->peer_prev = r->peer_prev;
    r->peer_prev = r->peer_next = NULL;
    r->stored = NULL;
    s->readers_n--;
    stored_maybe_free(s);
}

static void attach(struct reader *r, struct stored *s) {
    r->stored = s;
    r->number = s->number;
    r->peer_next = s->readers;
    if (s->readers) s->readers->peer_prev = r;
    s->readers = r;
    s->readers_n++;
}

/* The sink is empty, or let go of here. */
static void reader_free(struct reader *r) {
    sink_let_go(&r->sink);
    detach(r);
    if (r->in_pool) {
        r->gone = 1;
        return;
    }
    if (r->prev)
        r->prev->next = r->next;
    else
        r->server->readers = r->next;
    if (r->next) r->next->prev = r->prev;
    r->server->readers_n--;
    buf_free(&r->batch);
    mem_free(r);
}

static struct reader *of_sink(struct sink *sink) {
    return (struct reader *)((char *)sink - offsetof(struct reader, sink));
}

static void on_gone(struct sink *sink) { reader_free(of_sink(sink)); }

static void feed(struct reader *r);
static void on_drained(struct sink *sink) { feed(of_sink(sink)); }

static struct reader *reader_new(struct server *server, const char *id, const char *owner) {
    struct reader *r = mem_zalloc(1, sizeof *r);
    if (!r) return NULL;
    r->server = r->sink.server = server;
    r->sink.gone = on_gone;
    r->sink.drained = on_drained;
    snprintf(r->id, sizeof r->id, "%s", id);
    const struct dialect *dialect = server_dialect_of(server, id);
    r->sink.names_events = dialect && dialect->names_events;
    snprintf(r->owner, sizeof r->owner, "%s", owner);
    r->next = server->readers;
    if (server->readers) server->readers->prev = r;
    server->readers = r;
    server->readers_n++;
    return r;
}

static void answer_error(struct reader *r, const cohort_error *error) {
    struct buf piece = {0};
    if (r->sink.streaming) {
        if (error_json(&piece, server_errors_of(r->server, r->id), error) == 0)
            sink_event(&r->sink, 0, piece.data, piece.len);
        sink_end_stream(&r->sink);
    } else {
        sink_error(&r->sink, error);
    }
    buf_free(&piece);
    reader_free(r);
}

/* ---- feeding ---- */

static void give_to_pool(struct reader *r, void (*work)(struct pool_job *), void (*done)(struct pool_job *)) {
    if (r->server->stopping) return;
    r->job.work = work;
    r->job.done = done;
    r->in_pool = 1;
    pool_add(r->server->journal_pool, &r->job);
}

/* 1: it is there no more. */
static int came_back(struct reader *r) {
    int gone = r->gone; /* freeing it takes the flag away, too */
    r->in_pool = 0;
    if (gone) reader_free(r);
    return gone;
}

static int add_to_batch(void *user, uint64_t n, const char *bytes, size_t len) {
    struct buf *batch = user;
    uint32_t head = (uint32_t)len;
    (void)n;
    int rc = buf_add(batch, &head, sizeof head);
    if (!rc) rc = buf_add(batch, bytes, len);
    return rc ? rc : batch->len >= BATCH_BYTES;
}

static void read_batch(struct pool_job *job) {
    struct reader *r = (struct reader *)job;
    int rc = journal_events(r->server->journal, r->number, r->at + 1, add_to_batch, &r->batch, &r->error);
    if (rc >= 0 && r->batch.len == 0)
        err_set(&r->error, COHORT_E_FILE, NULL, "event %llu of the stream is damaged or gone",
                (unsigned long long)r->at + 1);
    else if (rc < 0 && !r->error.code)
        err_set(&r->error, rc, NULL, "no memory to read the stream");
}

static void batch_was_read(struct pool_job *job) {
    struct reader *r = (struct reader *)job;
    if (came_back(r)) return;
    cohort_error error = r->error;
    if (error.code)
        answer_error(r, &error);
    else
        feed(r);
}

static int send_from_batch(struct reader *r) {
    uint32_t len;
    memcpy(&len, r->batch.data + r->batch_at, sizeof len);
    int rc = sink_event(&r->sink, ++r->at, r->batch.data + r->batch_at + sizeof len, len);
    r->batch_at += sizeof len + len;
    if (r->batch_at < r->batch.len) return rc;
    buf_free(&r->batch);
    r->batch_at = 0;
    return rc;
}

static int send_from_log(struct reader *r) {
    size_t len;
    const char *bytes = stored_event(r->stored, ++r->at, &len);
    return sink_event(&r->sink, r->at, bytes, len);
}

static void was_streamed(cohort_error *err) {
    err_set(err, COHORT_E_ARGUMENT, "result",
            "the call was made with \"stream\": true, so there are events of it, and no one body");
}

static void read_result(struct pool_job *job) {
    struct reader *r = (struct reader *)job;
    journal_part(r->server->journal, r->number, JOURNAL_RESULT, &r->batch, &r->error);
}

/* The end of a stream that broke has no number, so whoever reconnects by itself asks for it again. */
static int was_told(const struct reader *r) {
    for (size_t i = 0; i < STORED_TOLD; i++)
        if (r->server->told[i].number == r->number && r->server->told[i].at == r->at) return 1;
    return 0;
}

static void note_told(const struct reader *r) {
    if (!was_told(r)) r->server->told[r->server->told_n++ % STORED_TOLD] = (struct told){r->number, r->at};
}

/* `result` as the one body, or as the end of a stream that broke. */
static void send_result(struct reader *r, int status, const struct buf *result) {
    if (r->whole) {
        sink_json(&r->sink, status & STORED_STATUS, result->data, result->len);
    } else {
        note_told(r);
        sink_event(&r->sink, 0, result->data, result->len);
        sink_end_stream(&r->sink);
    }
    reader_free(r);
}

static void result_was_read(struct pool_job *job) {
    struct reader *r = (struct reader *)job;
    if (came_back(r)) return;
    if (r->error.code == COHORT_E_NOT_FOUND) was_streamed(&r->error);
    cohort_error error = r->error;
    if (error.code)
        answer_error(r, &error);
    else
        send_result(r, r->stream.status, &r->batch);
}

static void feed_whole(struct reader *r) {
    struct stored *s = r->stored;
    cohort_error error = {0};
    if (!s) {
        give_to_pool(r, read_result, result_was_read);
    } else if (s->call && s->call->params.stream && !s->call->dialect->keeps) {
        was_streamed(&error);
        answer_error(r, &error);
    } else if (s->state == STORED_ENDED) {
        if (s->result.len == 0) {
            was_streamed(&error);
            answer_error(r, &error);
            return;
        }
        send_result(r, s->status, &s->result);
    }
}

/* All numbered events were sent. */
static void finish(struct reader *r) {
    const struct stored *s = r->stored;
    if (!((s ? s->status : r->stream.status) & STORED_BROKEN)) {
        sink_end_stream(&r->sink);
        reader_free(r);
    } else if (s) {
        send_result(r, s->status, &s->result);
    } else {
        give_to_pool(r, read_result, result_was_read);
    }
}

/* Who cancels is told that it holds. */
static void cannot_cancel(struct reader *r) {
    cohort_error error = {0};
    err_set(&error, COHORT_E_IO, NULL, "the state directory cannot be written, so that the end would not last");
    answer_error(r, &error);
}

static void feed(struct reader *r) {
    const struct stored *held = r->stored;
    if (r->in_pool || r->removing || !r->sink.http) return;
    if (held && stored_is_held(held)) return;
    if (held && held->cancelled && held->state == STORED_ENDED && held->lost) {
        cannot_cancel(r);
        return;
    }
    if (r->whole) {
        feed_whole(r);
        return;
    }
    int rc = 0;
    while (!rc && sink_unsent(&r->sink) < SERVER_OUTPUT_MAX) {
        const struct stored *s = r->stored;
        if (r->batch_at < r->batch.len) {
            rc = send_from_batch(r);
        } else if (s && r->at >= s->base && r->at < s->events_n) {
            rc = send_from_log(r);
        } else if (s && r->at >= s->events_n && s->state != STORED_ENDED) {
            return;
        } else if (r->at < (s ? s->events_n : r->stream.events)) {
            give_to_pool(r, read_batch, batch_was_read);
            return;
        } else {
            finish(r);
            return;
        }
    }
    if (rc) sink_hang_up(&r->sink); /* an event that could not be sent is not left out: the client asks again */
}

void readers_feed(struct stored *s) {
    s->feeding++;
    for (struct reader *r = s->readers, *next; r; r = next) {
        next = r->peer_next;
        feed(r);
    }
    s->feeding--;
}

void readers_tell(struct stored *s, const cohort_error *error) {
    s->feeding++;
    while (s->readers) {
        struct reader *r = s->readers;
        if (r->sink.http)
            answer_error(r, error);
        else
            reader_free(r);
    }
    s->feeding--;
}

void readers_cut(struct stored *s, const cohort_error *error) {
    s->feeding++;
    while (s->readers) {
        struct reader *r = s->readers;
        if (error && r->sink.http && r->sink.streaming)
            sink_end_stream(&r->sink);
        else if (error && r->sink.http)
            sink_error(&r->sink, error);
        reader_free(r);
    }
    s->feeding--;
}

/* Everything that was to be sent was sent, and is known: what reconnects by itself shall stop (204). */
static int is_over(const struct reader *r) {
    const struct stored *s = r->stored;
    if (r->whole || (s && s->state != STORED_ENDED) || r->at < (s ? s->events_n : r->stream.events)) return 0;
    return !((s ? s->status : r->stream.status) & STORED_BROKEN) || was_told(r);
}

static void begin(struct reader *r) {
    if (is_over(r)) {
        sink_json(&r->sink, 204, "", 0);
        reader_free(r);
        return;
    }
    if (!r->whole) sink_begin_stream(&r->sink);
    feed(r);
}

void reader_follow(struct stored *s, struct sink *sink, uint64_t after, int whole) {
    struct reader *r = reader_new(s->server, s->id, s->owner);
    if (!r) {
        cohort_error error = {0};
        err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the connection; GET /v1/streams/%s has the answer",
                s->id);
        sink_error(sink, &error);
        return;
    }
    sink_move(sink, &r->sink);
    r->at = after;
    r->whole = whole;
    attach(r, s);
    begin(r);
}

/* ---- GET and DELETE ---- */

static void answer_deleted(struct reader *r) {
    struct buf body = {0};
    int rc = buf_adds(&body, "{\"id\":");
    if (!rc) rc = buf_json_string(&body, r->id, strlen(r->id));
    if (!rc) rc = buf_addf(&body, ",\"object\":\"%s\",\"deleted\":true}", r->kind ? r->kind : "stream.deleted");
    sink_json(&r->sink, rc ? 503 : 200, rc ? "{}" : body.data, rc ? 2 : body.len);
    buf_free(&body);
    reader_free(r);
}

static void remove_number(struct reader *r, uint64_t number) {
    r->number = number;
    r->removing = 1;
    int rc = journal_remove(r->server->journal, number);
    if (!rc) return;
    cohort_error error = {0};
    err_set(&error, COHORT_E_IO, NULL, "the state directory cannot be written");
    answer_error(r, &error);
}

void readers_removed(struct server *server, uint64_t number, int code) {
    cohort_error error = {0};
    err_set(&error, COHORT_E_IO, NULL, "the state directory cannot be written");
    for (struct reader *r = server->readers, *next; r; r = next) {
        next = r->next;
        if (!r->removing || r->number != number || !r->sink.http) continue;
        if (code)
            answer_error(r, &error);
        else
            answer_deleted(r);
    }
}

static void join(struct reader *r, struct stored *s) {
    cohort_error error = {0};
    if (r->removing) {
        uint64_t number = s->number;
        stored_forget(s);
        remove_number(r, number);
    } else if (r->cancelling && s->state != STORED_ENDED) {
        attach(r, s);
        stored_cancel(s); /* answers, now or when it is on the disk */
    } else if (s->readers_n >= STORED_READERS_MAX) {
        err_set(&error, COHORT_E_BUSY, NULL, "the stream has %d readers already", STORED_READERS_MAX);
        answer_error(r, &error);
    } else {
        attach(r, s);
        begin(r);
    }
}

static void find(struct pool_job *job) {
    struct reader *r = (struct reader *)job;
    int rc = journal_find(r->server->journal, r->id, r->owner, &r->stream, &r->error);
    if (rc != COHORT_E_NOT_FOUND || !stored_is_owner(r->owner, STORED_NO_KEYS_BEFORE)) return;
    r->error = (cohort_error){0};
    journal_find(r->server->journal, r->id, STORED_NO_KEYS_BEFORE, &r->stream, &r->error);
}

static int not_found(const char *kind, cohort_error *err) {
    *err = (cohort_error){0};
    return err_set(err, COHORT_E_NOT_FOUND, NULL, "no such %s", kind ? kind : "stream");
}

static void was_found(struct pool_job *job) {
    struct reader *r = (struct reader *)job;
    if (came_back(r)) return;
    struct stored *s = stored_find(r->server, r->id, r->owner);
    if (!r->error.code && !s && !r->stream.ended && !r->removing) stored_is_away(r->server, "stream", &r->error);
    if (r->error.code == COHORT_E_NOT_FOUND) not_found(r->kind, &r->error);
    cohort_error error = r->error;
    if (error.code) {
        answer_error(r, &error);
    } else if (s) {
        join(r, s);
    } else if (r->removing) {
        remove_number(r, r->stream.number);
    } else {
        r->number = r->stream.number;
        begin(r);
    }
}

/* Digits only, so that nothing is read into what is no number. */
static int read_number(const char *text, uint64_t *out, cohort_error *err) {
    size_t len = strlen(text);
    if (len == 0 || len > 18 || strspn(text, "0123456789") != len)
        return err_set(err, COHORT_E_ARGUMENT, "last_event_id", "Last-Event-ID must be the number of an event");
    *out = strtoull(text, NULL, 10);
    return 0;
}

static int read_wish(struct evhttp_request *http, struct readers_wish *wish, cohort_error *err) {
    struct evkeyvalq *headers = evhttp_request_get_input_headers(http);
    const char *last = evhttp_find_header(headers, "Last-Event-ID"), *accept = evhttp_find_header(headers, "Accept");
    char in_query[32], result[32]; /* longer than what is good */
    int has_last = query_field(http, "last_event_id", in_query, sizeof in_query, err);
    if (has_last < 0) return has_last;
    int has_result = query_field(http, "result", result, sizeof result, err);
    if (has_result < 0) return has_result;
    if (!last && has_last) last = in_query;
    int rc = last ? read_number(last, &wish->after, err) : 0;
    if (!rc && has_result && strcmp(result, "1") != 0 && strcmp(result, "0") != 0)
        rc = err_set(err, COHORT_E_ARGUMENT, "result", "result must be 1 or 0");
    if (has_result)
        wish->whole = *result == '1';
    else
        wish->whole = accept && strstr(accept, "application/json") && !strstr(accept, "text/event-stream");
    return rc;
}

static int is_id(const char *id) {
    size_t len = strlen(id);
    return len > 0 && len <= JOURNAL_ID_MAX &&
           strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == len;
}

/* Tenants share what connections there may be, so that nobody's keep the others out. */
static int owner_has_share(const struct server *server, const char *owner) {
    size_t tenants, n = 0;
    server_tenants(server, &tenants);
    size_t share = STORED_ALL_READERS_MAX / (tenants ? tenants : 1);
    if (share < STORED_READERS_MAX) share = STORED_READERS_MAX;
    if (server->readers_n < share) return 0;
    for (const struct reader *r = server->readers; r; r = r->next) n += strcmp(r->owner, owner) == 0;
    return n >= share;
}

void readers_route(struct server *server, struct evhttp_request *http, uint32_t tenant, const char *id) {
    struct readers_wish wish = {.removing = evhttp_request_get_command(http) == EVHTTP_REQ_DELETE};
    cohort_error error = {0};
    if (!wish.removing && server->journal && is_id(id) && read_wish(http, &wish, &error) != 0)
        reply_error(server, http, &error);
    else
        readers_ask(server, http, tenant, id, &wish);
}

void readers_ask(struct server *server, struct evhttp_request *http, uint32_t tenant, const char *id,
                 const struct readers_wish *wish) {
    cohort_error error = {0};
    const char *owner = stored_owner(server, tenant);
    struct reader *r = NULL;
    int rc = 0;
    if (!server->journal || !is_id(id))
        rc = not_found(wish->kind, &error);
    else if (server->readers_n >= STORED_ALL_READERS_MAX || owner_has_share(server, owner))
        rc = err_set(&error, COHORT_E_BUSY, NULL, "too many connections follow streams");
    else if (!(r = reader_new(server, id, owner)))
        rc = err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the connection");
    if (rc) {
        reply_error(server, http, &error);
        return;
    }
    r->sink.http = http;
    r->at = wish->after;
    r->whole = wish->whole;
    r->removing = wish->removing;
    r->cancelling = wish->cancelling;
    r->kind = wish->kind;
    rc = sink_watch(&r->sink, &error);
    struct stored *s = rc ? NULL : stored_find(server, id, owner);
    if (rc)
        answer_error(r, &error);
    else if (s)
        join(r, s);
    else
        give_to_pool(r, find, was_found);
}

/* ---- time ---- */

void readers_tick(struct server *server, int64_t now) {
    for (struct reader *r = server->readers, *next; r; r = next) {
        next = r->next;
        sink_tick(&r->sink, now);
    }
}

void readers_end(struct server *server) {
    for (struct reader *r = server->readers, *next; r; r = next) {
        next = r->next;
        if (r->sink.http) sink_hang_up(&r->sink);
    }
}
