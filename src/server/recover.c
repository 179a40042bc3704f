/* Recovery (recover.h). A call that waits is an id, an owner and a head; it is read from the journal (LOADING) once it
 * has its places, so what memory the waiting ones take is small. Loop thread, and jobs. */
#include "server/recover.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/fields.h"
#include "server/internal.h"
#include "server/notes.h"
#include "server/readers.h"
#include "server/stored.h"

enum { AGAIN_S = 1 };

static int64_t now_s(void) { return (int64_t)(clock_us() / 1000000); }

/* ---- the list ---- */

void recover_unlink(struct stored *s) {
    struct server *server = s->server;
    if (s->wait_prev)
        s->wait_prev->wait_next = s->wait_next;
    else if (server->waiting_first == s)
        server->waiting_first = s->wait_next;
    if (s->wait_next)
        s->wait_next->wait_prev = s->wait_prev;
    else if (server->waiting_last == s)
        server->waiting_last = s->wait_prev;
    s->wait_prev = s->wait_next = NULL;
}

static void link_last(struct stored *s) {
    struct server *server = s->server;
    s->wait_next = NULL;
    s->wait_prev = server->waiting_last;
    if (server->waiting_last)
        server->waiting_last->wait_next = s;
    else
        server->waiting_first = s;
    server->waiting_last = s;
}

struct listing {
    struct pool_job job; /* first member */
    struct server *server;
    struct stored *first, **end; /* through wait_next */
    size_t n;
    cohort_error error;
};

static int add_unfinished(void *user, const struct journal_stream *stream) {
    struct listing *listing = user;
    struct stored *s = stored_new(listing->server, stream->id, stream->owner);
    if (!s) return COHORT_E_MEMORY;
    s->number = stream->number;
    s->tries = stream->tries;
    s->recovered = 1;
    s->state = STORED_WAITING;
    *listing->end = s;
    listing->end = &s->wait_next;
    listing->n++;
    return 0;
}

static void cannot_be_read(int code, cohort_error *err) {
    err_set(err, code, NULL,
            code == COHORT_E_MEMORY ? "no memory for the call" : "what the journal has of the call cannot be read");
}

/* Without memory the text is not at fault. */
static int code_of(const json_error_t *why) {
    return json_error_code(why) == json_error_out_of_memory ? COHORT_E_MEMORY : COHORT_E_FILE;
}

static int parse_head(struct stored *s, const json_t *head) {
    const char *path = json_string_value(json_object_get(head, "path"));
    const char *identity = json_string_value(json_object_get(head, "identity"));
    const char *model = json_string_value(json_object_get(head, "model"));
    json_int_t choices = json_integer_value(json_object_get(head, "choices"));
    if (!path || !identity || !model || choices < 1 || choices > SERVER_CHOICES_MAX) return COHORT_E_FILE;
    s->head.dialect = server_dialect_at(s->server, path);
    s->head.created = json_integer_value(json_object_get(head, "created"));
    s->head.seed = (uint64_t)json_integer_value(json_object_get(head, "seed"));
    s->head.choices = (uint32_t)choices;
    s->head.context = (uint32_t)json_integer_value(json_object_get(head, "context"));
    s->head.kv_tokens = (uint64_t)json_integer_value(json_object_get(head, "kv_tokens"));
    snprintf(s->head.identity, sizeof s->head.identity, "%s", identity);
    buf_clear(&s->model_name);
    return s->head.dialect ? buf_adds(&s->model_name, model) : COHORT_E_FILE;
}

static void read_head(struct stored *s) {
    struct buf text = {0};
    if (journal_part(s->server->journal, s->number, JOURNAL_HEAD, &text, &s->verdict) == 0) {
        json_error_t why;
        json_t *head = json_loadb(text.data, text.len, 0, &why);
        int rc = head ? parse_head(s, head) : code_of(&why);
        if (rc) cannot_be_read(rc, &s->verdict);
        json_decref(head);
    }
    buf_free(&text);
}

static void list(struct pool_job *job) {
    struct listing *listing = (struct listing *)job;
    int rc = journal_unfinished(listing->server->journal, add_unfinished, listing, &listing->error);
    if (rc && !listing->error.code) listing->error.code = rc;
    for (struct stored *s = listing->first; s; s = s->wait_next) read_head(s);
}

static void listed(struct pool_job *job) {
    struct listing *listing = (struct listing *)job;
    struct server *server = listing->server;
    if (listing->error.code)
        fprintf(stderr, "cohort: not all calls that were under way can be found: %s\n",
                listing->error.text[0] ? listing->error.text : cohort_error_text(listing->error.code));
    if (listing->n) fprintf(stderr, "cohort: %zu stored calls were under way; they go on\n", listing->n);
    for (struct stored *s = listing->first, *next; s; s = next) {
        next = s->wait_next;
        link_last(s);
        stored_list(s);
    }
    mem_free(listing);
    recover_look(server);
}

void recover_start(struct server *server) {
    if (!server->journal) return;
    struct listing *listing = mem_zalloc(1, sizeof *listing);
    if (!listing) {
        fprintf(stderr, "cohort: no memory to look for calls that were under way\n");
        return;
    }
    listing->server = server;
    listing->end = &listing->first;
    listing->job.work = list;
    listing->job.done = listed;
    pool_add(server->journal_pool, &listing->job);
}

/* ---- whether it can go on ---- */

static int find_tenant(const struct server *server, const char *owner, uint32_t *out) {
    size_t n;
    const cohort_tenant *tenants = server_tenants(server, &n);
    *out = 0;
    if (n == 0) return stored_is_owner(STORED_NO_KEYS, owner) ? 0 : -1;
    for (size_t i = 0; i < n; i++)
        if (strcmp(tenants[i].name, owner) == 0) {
            *out = (uint32_t)i;
            return 0;
        }
    return -1;
}

static int judge(struct stored *s, uint32_t *tenant, cohort_error *err) {
    const struct server *server = s->server;
    if (s->verdict.code) return s->verdict.code;
    if (strcmp(s->head.identity, server->identity) != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, "model",
                       "the call was under way when the server was started with another model or other numeric "
                       "settings, under which it cannot go on with the same bytes");
    if (find_tenant(server, s->owner, tenant) != 0)
        return err_set(err, COHORT_E_UNSUPPORTED, NULL, "the call's key is not known to the server any more");
    if (s->tries >= STORED_TRIES_MAX)
        return err_set(err, COHORT_E_INTERNAL, NULL,
                       "the server ended %d times before the call got a step ahead; it is not tried again",
                       STORED_TRIES_MAX);
    return call_check_places(s->server, *tenant, "n", s->head.choices, err);
}

static void give_tickets_back(struct stored *s) {
    for (uint32_t i = 0; s->tickets && i < s->head.choices; i++)
        if (s->tickets[i]) cohort_unreserve(s->server->engine, s->tickets[i]);
    mem_free(s->tickets);
    s->tickets = NULL;
}

static int reserve(struct stored *s, uint32_t tenant) {
    s->tickets = mem_zalloc(s->head.choices, sizeof *s->tickets);
    if (!s->tickets) return COHORT_E_MEMORY;
    for (uint32_t i = 0; i < s->head.choices; i++) {
        int rc = cohort_reserve_for(s->server->engine, tenant, &s->tickets[i], NULL);
        if (!rc) continue;
        give_tickets_back(s);
        return rc;
    }
    return 0;
}

/* ---- from the journal to a call ---- */

struct load {
    struct pool_job job; /* first member */
    struct stored *s;
    uint32_t tenant;
    int again; /* only the head was read */
    json_t *body;
    struct buf note; /* of its own, for the alignment */
};

static int count_event(void *user, uint64_t n, const char *bytes, size_t len) {
    struct stored *s = user;
    s->before_sum = journal_sum((uint64_t)s->before_sum, n, bytes, len);
    s->before_n = n;
    return 0;
}

/* A note that does not go on where the others ended (after a gap that a full disk left, say) ends what is known. */
static int add_note(void *user, uint64_t n, const char *bytes, size_t len) {
    struct load *load = user;
    struct stored *s = load->s;
    uint32_t index;
    cohort_event event;
    buf_clear(&load->note);
    int rc = buf_add(&load->note, bytes, len);
    if (rc) return rc;
    if (note_length(load->note.data, len) != len || note_read(load->note.data, len, &index, &event) != 0 ||
        index >= s->lanes_n)
        return 1;
    struct lane *lane = &s->lanes[index];
    int token = event.type == COHORT_EVENT_TOKEN;
    if (lane->end_note || (token && event.index != lane->known.len / sizeof(int32_t))) return 1;
    rc = buf_add(&lane->queue, load->note.data, len);
    if (!rc && token) rc = buf_add(&lane->known, &event.token, sizeof event.token);
    s->held += load->note.len;
    if (!token) lane->end_note = n;
    s->notes_n = s->notes_safe = n;
    return rc;
}

static void read_call(struct pool_job *job) {
    struct load *load = (struct load *)job;
    struct stored *s = load->s;
    struct journal *journal = s->server->journal;
    struct buf body = {0};
    if (stored_fault_passes(s->verdict.code)) { /* it was not read well: its head comes first */
        s->verdict = (cohort_error){0};
        load->again = 1;
        read_head(s);
        return;
    }
    int rc = journal_events(journal, s->number, 1, count_event, s, &s->verdict);
    if (s->verdict.code) return;
    rc = journal_part(journal, s->number, JOURNAL_BODY, &body, &s->verdict);
    if (!rc) rc = stored_make_lanes(s, s->head.choices, &s->verdict);
    if (!rc) rc = journal_notes(journal, s->number, 1, add_note, load, &s->verdict);
    if (rc > 0) rc = 0;
    if (!rc) {
        rc = fields_json(body.data, body.len, &load->body, NULL);
        if (rc == COHORT_E_ARGUMENT) rc = COHORT_E_FILE;
    }
    buf_free(&body);
    buf_free(&load->note);
    if (!s->verdict.code && rc) cannot_be_read(rc, &s->verdict);
}

/* "As many tokens as there is room for" is another number with another room. */
static int same_room(const struct stored *s, const struct call *call, cohort_error *err) {
    cohort_engine_options engine;
    cohort_engine_get_options(s->server->engine, &engine);
    if (call->params.max_tokens != UINT32_MAX ||
        (engine.context == s->head.context && engine.kv_tokens == s->head.kv_tokens))
        return 0;
    return err_set(
        err, COHORT_E_UNSUPPORTED, "max_tokens",
        "the call has no max_tokens, and its room was %u tokens of context and %llu of state, which is %u and "
        "%llu now",
        s->head.context, (unsigned long long)s->head.kv_tokens, engine.context, (unsigned long long)engine.kv_tokens);
}

static int make_call(struct stored *s, uint32_t tenant, json_t *body, cohort_error *err) {
    struct server *server = s->server;
    const struct arrival arrival = {.tenant = tenant, .read_us = clock_us()};
    struct call *call = call_new(server, s->head.dialect, &arrival, body);
    if (!call) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the request");
    snprintf(call->id, sizeof call->id, "%.47s", s->id);
    call->created = s->head.created;
    call->model_name = s->model_name.data;
    call->stored = s;
    s->call = call;
    int rc = call_prepare(call, s->tickets, s->head.choices, err);
    if (rc) return rc;
    memset(s->tickets, 0, s->head.choices * sizeof *s->tickets);
    call->params.sampling.seed = s->head.seed;
    for (size_t i = 0; i < call->choices_n; i++)
        if (stored_has_ended(s, i)) call_drop_choice(&call->choices[i]);
    return same_room(s, call, err);
}

static void look(struct server *server);

/* It waits again: for a fault to pass, or for the next start. Its readers stay, unless the server ends. */
static void wait_again(struct stored *s, int64_t seconds) {
    stored_reset(s);
    s->state = STORED_WAITING;
    s->again_s = seconds ? now_s() + seconds : 0;
    link_last(s);
}

static void go_on(struct stored *s) {
    struct journal *journal = s->server->journal;
    s->state = STORED_STARTING;
    journal_tried(journal, s->number, ++s->tries);
    if (journal_cut(journal, s->number, s->before_n, s->notes_n) != 0) stored_lose(s);
    call_submit(s->call);
}

static void end_for_good(struct stored *s, const cohort_error *error) {
    if (journal_cut(s->server->journal, s->number, s->before_n, INT64_MAX) != 0) stored_lose(s);
    stored_fail(s, error);
}

static void call_was_read(struct pool_job *job) {
    struct load *load = (struct load *)job;
    struct stored *s = load->s;
    struct server *server = s->server;
    uint32_t tenant = load->tenant;
    json_t *body = load->body;
    cohort_error error = s->verdict;
    int again = load->again || server->draining;
    mem_free(load);
    server->loading_n--;
    if (server->stopping || s->forgotten) {
        json_decref(body);
        give_tickets_back(s);
        readers_cut(s, NULL);
        stored_free(s);
        return;
    }
    if (!error.code && !again)
        make_call(s, tenant, body, &error);
    else
        json_decref(body);
    give_tickets_back(s);
    if (again || stored_fault_passes(error.code))
        wait_again(s, error.code ? AGAIN_S : 0);
    else if (error.code)
        end_for_good(s, &error);
    else
        go_on(s);
    look(server);
}

void recover_submitted(struct stored *s, const cohort_error *error) {
    if (stored_fault_passes(error->code)) {
        s->tries--; /* it was not the call that ended a server */
        wait_again(s, AGAIN_S);
    } else if (error->code) {
        stored_fail(s, error);
    } else {
        stored_run(s);
    }
}

static int load_call(struct stored *s, uint32_t tenant) {
    struct load *load = mem_zalloc(1, sizeof *load);
    if (!load) return COHORT_E_MEMORY;
    load->s = s;
    load->tenant = tenant;
    load->job.work = read_call;
    load->job.done = call_was_read;
    recover_unlink(s);
    s->state = STORED_LOADING;
    s->server->loading_n++;
    pool_add(s->server->journal_pool, &load->job);
    return 0;
}

/* Looks through those that wait, from the oldest on. Each try that finds no place counts as a refusal, and one for
 * several choices keeps places from others for a moment: so nothing is tried again until `places_freed`. */
static void look(struct server *server) {
    uint8_t busy[COHORT_TENANTS_MAX] = {0}; /* no places: the others' calls do not wait for that */
    int64_t now = now_s();
    if (!server->waiting_first || !server->places_freed || server->draining || server->stopping || !server->engine)
        return;
    for (struct stored *s = server->waiting_first, *next; s; s = next) {
        uint32_t tenant = 0;
        next = s->wait_next;
        if (server->loading_n >= STORED_LOADING_MAX) return;
        if (s->again_s > now) continue;
        int rc = judge(s, &tenant, &s->verdict) ? 0 : busy[tenant] ? COHORT_E_BUSY : reserve(s, tenant);
        if (rc) busy[tenant] = 1;
        if (!rc && load_call(s, tenant) != 0) {
            give_tickets_back(s);
            return;
        }
    }
    server->places_freed = 0; /* all were asked */
}

void recover_look(struct server *server) {
    server->places_freed = 1;
    look(server);
}

void recover_close(struct server *server) {
    while (server->waiting_first) stored_free(server->waiting_first);
}
