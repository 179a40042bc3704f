/* The endpoints of /v1/responses around those that were stored: going on from one, telling, cancelling and deleting it,
 * its items; and counting. Loop thread, with tasks that read the journal.
 *
 * Differences from the origin: any response that runs can be cancelled, not only one in the background, and one that
 * has ended is told as it is. input_items has the whole conversation in front of the answer, that of the responses
 * before included: a response keeps it, so that deleting those does not matter. `instructions` are not inherited. */
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "api/responses.h"
#include "api/routes.h"
#include "base/err.h"
#include "server/fields.h"
#include "server/readers.h"
#include "server/record.h"
#include "server/server.h"
#include "server/task.h"

enum { LIST_DEFAULT = 20, LIST_MAX = 100 };

static int is_response(const char *id) {
    return strncmp(id, RESPONSES_PREFIX, strlen(RESPONSES_PREFIX)) == 0 && strlen(id) <= RECORD_ID_MAX &&
           strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == strlen(id);
}

static int unknown(const char *field, const char *id, cohort_error *err) {
    /* What a field names wrongly is a wrong field, as with OpenAI. */
    return err_set(err, field ? COHORT_E_ARGUMENT : COHORT_E_NOT_FOUND, field, "there is no response \"%.64s\"", id);
}

/* A task about one stored response. */
struct about {
    struct task task; /* first member */
    char id[RECORD_ID_MAX + 1];
    struct record record;
    const char *field; /* that named it; NULL: the path */
};

static void about_read(struct about *about, int result) {
    struct task *task = &about->task;
    int rc = record_read(task->server, about->id, result, &about->record, &task->error);
    if (rc && !task->error.code) task->error.code = rc;
    if (task->error.code != COHORT_E_NOT_FOUND) return;
    task->error = (cohort_error){0};
    unknown(about->field, about->id, &task->error);
}

static void about_forget(struct task *task) { record_free(&((struct about *)task)->record); }

/* A task of `size` bytes that begins with an `about`; NULL: the request was answered. */
static void *about_new(struct server *server, struct evhttp_request *http, size_t size, const char *id,
                       const char *field) {
    cohort_error error = {0};
    struct about *about = task_new(server, http, size);
    if (!about) return NULL;
    about->task.forget = about_forget;
    about->field = field;
    if (!is_response(id) || !record_ask(server, id, about->task.tenant, &about->record)) {
        unknown(field, id, &error);
        task_refuse(&about->task, &error);
        return NULL;
    }
    snprintf(about->id, sizeof about->id, "%s", id);
    return about;
}

/* ---- telling one ---- */

static void answer_buf(struct task *task, struct buf *body, int rc) {
    cohort_error error = {0};
    if (rc == 0) {
        sink_json(&task->sink, 200, body->data, body->len);
    } else {
        err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the reply");
        sink_error(&task->sink, &error);
    }
    buf_free(body);
}

/* The message of an error's JSON. */
static int add_failure(struct buf *out, const struct record *record) {
    json_t *json = json_loadb(record->result.data ? record->result.data : "", record->result.len, 0, NULL);
    const char *message = json_string_value(json_object_get(json_object_get(json, "error"), "message"));
    int rc = responses_failure(out, record->status, message ? message : "the response failed");
    json_decref(json);
    return rc;
}

/* One without a body of its own: it runs, or it failed. */
static int make_object(const struct about *about, const char *status, struct buf *out) {
    struct buf echo = {0}, failure = {0};
    const struct record *record = &about->record;
    int failed = strcmp(status, "failed") == 0, rc = responses_echo(&echo, record->body, 1);
    if (!rc && failed) rc = add_failure(&failure, record);
    const struct response_view view = {.id = about->id,
                                       .model = record->model.data ? record->model.data : "",
                                       .status = status,
                                       .created = record->created,
                                       .echo = echo.data,
                                       .failure = failure.data};
    if (!rc) rc = responses_object(out, &view);
    buf_free(&echo);
    buf_free(&failure);
    return rc;
}

static void read_whole(struct task *task) { about_read((struct about *)task, 1); }

static void answer_object(struct task *task) {
    struct about *about = (struct about *)task;
    struct record *record = &about->record;
    struct buf body = {0};
    cohort_error error = {0};
    int rc = 0;
    switch (record_state(task->server, about->id, record, &error)) {
    case RECORD_CHANGED:
        task->again = 1;
        return;
    case RECORD_GONE:
        sink_error(&task->sink, &error);
        return;
    case RECORD_QUEUED:
        rc = make_object(about, "queued", &body);
        break;
    case RECORD_RUNNING:
        rc = make_object(about, "in_progress", &body);
        break;
    case RECORD_ENDED:
        rc = record->status == 200 ? buf_add(&body, record->result.data, record->result.len)
                                   : make_object(about, "failed", &body);
        break;
    }
    answer_buf(task, &body, rc);
}

static void tell(struct server *server, struct evhttp_request *http, const char *id) {
    struct about *about = about_new(server, http, sizeof *about, id, NULL);
    if (!about) return;
    about->task.work = read_whole;
    about->task.answer = answer_object;
    task_start(&about->task, TASK_JOURNAL);
}

/* ---- following, cancelling and deleting one ---- */

static void ask_readers(struct server *server, struct evhttp_request *http, const char *id, struct readers_wish wish) {
    cohort_error error = {0};
    wish.kind = "response";
    if (is_response(id)) {
        readers_ask(server, http, (uint32_t)server_tenant_of(server, http), id, &wish);
        return;
    }
    unknown(NULL, id, &error);
    reply_error(server, http, &error);
}

static int query_bool(struct evhttp_request *http, const char *name, int *out, cohort_error *err) {
    char text[16];
    int rc = query_field(http, name, text, sizeof text, err);
    if (rc <= 0) return rc;
    *out = strcmp(text, "true") == 0;
    if (*out || strcmp(text, "false") == 0) return 0;
    return err_set(err, COHORT_E_ARGUMENT, name, "%s must be true or false", name);
}

static int query_number(struct evhttp_request *http, const char *name, uint64_t most, int64_t *out, cohort_error *err) {
    char text[32];
    int rc = query_field(http, name, text, sizeof text, err);
    if (rc <= 0) return rc;
    size_t len = strlen(text);
    if (len == 0 || len > 18 || strspn(text, "0123456789") != len || strtoull(text, NULL, 10) > most)
        return err_set(err, COHORT_E_ARGUMENT, name, "%s must be a number of at most %llu", name,
                       (unsigned long long)most);
    *out = (int64_t)strtoull(text, NULL, 10);
    return 0;
}

/* GET: the object, or with ?stream=true its events, those behind starting_after. */
void responses_get(struct server *server, struct evhttp_request *http, const char *id) {
    cohort_error error = {0};
    int stream = 0;
    int64_t after = -1;
    int rc = query_bool(http, "stream", &stream, &error);
    if (!rc) rc = query_number(http, "starting_after", INT64_MAX >> 4, &after, &error);
    if (!rc && after >= 0 && !stream)
        rc = err_set(&error, COHORT_E_ARGUMENT, "starting_after", "starting_after needs stream=true");
    if (rc)
        reply_error(server, http, &error);
    else if (stream)
        ask_readers(server, http, id, (struct readers_wish){.after = (uint64_t)(after + 1)});
    else
        tell(server, http, id);
}

void responses_cancel(struct server *server, struct evhttp_request *http, const char *id) {
    if (is_response(id) && record_is_running(server, id, (uint32_t)server_tenant_of(server, http)))
        ask_readers(server, http, id, (struct readers_wish){.whole = 1, .cancelling = 1});
    else
        tell(server, http, id);
}

void responses_delete(struct server *server, struct evhttp_request *http, const char *id) {
    ask_readers(server, http, id, (struct readers_wish){.removing = 1});
}

/* ---- its items ---- */

struct listing {
    struct about about; /* first member */
    int64_t limit;
    int ascending;
    char after[256];
};

static void read_request(struct task *task) { about_read((struct about *)task, 0); }

static int add_end(struct buf *out, const char *name, const json_t *ids, size_t i, int there) {
    int rc = buf_addf(out, ",\"%s\":", name);
    const json_t *id = json_array_get(ids, i);
    if (!rc) rc = there ? buf_json_string(out, json_string_value(id), json_string_length(id)) : buf_adds(out, "null");
    return rc;
}

/* The ids that the items have in the list. */
static json_t *list_ids(const char *id, const json_t *items) {
    json_t *ids = json_array();
    for (size_t i = 0; ids && i < json_array_size(items); i++) {
        const json_t *own = json_object_get(json_array_get(items, i), "id");
        json_t *given = json_is_string(own) ? json_incref((json_t *)own)
                                            : json_sprintf("%s%s_%zu", responses_item_prefix(json_array_get(items, i)),
                                                           id + strlen(RESPONSES_PREFIX), i);
        if (json_array_append_new(ids, given) == 0) continue;
        json_decref(ids);
        ids = NULL;
    }
    return ids;
}

/* Where the page begins; n: nowhere. */
static size_t find_first(const struct listing *l, const json_t *ids, size_t n) {
    size_t k = 0;
    if (!l->after[0]) return 0;
    while (k < n && strcmp(json_string_value(json_array_get(ids, l->ascending ? k : n - 1 - k)), l->after) != 0) k++;
    return k < n ? k + 1 : n;
}

static int write_list(struct buf *out, const struct listing *l, const json_t *items, const json_t *ids) {
    size_t n = json_array_size(items), first = find_first(l, ids, n), last = first + (size_t)l->limit;
    if (last > n) last = n;
    int rc = buf_adds(out, "{\"object\":\"list\",\"data\":[");
    for (size_t k = first; k < last && !rc; k++) {
        size_t i = l->ascending ? k : n - 1 - k;
        if (k > first) rc = buf_adds(out, ",");
        if (!rc) rc = responses_list_item(out, json_string_value(json_array_get(ids, i)), json_array_get(items, i));
    }
    if (!rc) rc = buf_addf(out, "],\"has_more\":%s", last < n ? "true" : "false");
    if (!rc) rc = add_end(out, "first_id", ids, l->ascending ? first : n - 1 - first, first < last);
    if (!rc) rc = add_end(out, "last_id", ids, l->ascending ? last - 1 : n - last, first < last);
    return rc ? rc : buf_adds(out, "}");
}

static void answer_items(struct task *task) {
    const struct listing *l = (const struct listing *)task;
    json_t *items = json_array();
    struct buf body = {0};
    cohort_error error = {0};
    int rc = items ? responses_add_items(items, json_object_get(l->about.record.body, "input"), &error) : -1;
    json_t *ids = rc ? NULL : list_ids(l->about.id, items);
    rc = ids ? write_list(&body, l, items, ids) : -1;
    json_decref(items);
    json_decref(ids);
    answer_buf(task, &body, rc);
}

static int read_listing(struct evhttp_request *http, struct listing *l, cohort_error *err) {
    char order[16] = "desc";
    l->limit = LIST_DEFAULT;
    int rc = query_number(http, "limit", LIST_MAX, &l->limit, err);
    if (!rc && l->limit < 1) rc = err_set(err, COHORT_E_ARGUMENT, "limit", "limit must be from 1 to %d", LIST_MAX);
    if (!rc && query_field(http, "order", order, sizeof order, err) < 0) rc = err->code;
    if (!rc && query_field(http, "after", l->after, sizeof l->after, err) < 0) rc = err->code;
    if (rc) return rc;
    l->ascending = strcmp(order, "asc") == 0;
    if (l->ascending || strcmp(order, "desc") == 0) return 0;
    return err_set(err, COHORT_E_ARGUMENT, "order", "order must be asc or desc");
}

void responses_items(struct server *server, struct evhttp_request *http, const char *id) {
    cohort_error error = {0};
    struct listing *l = about_new(server, http, sizeof *l, id, NULL);
    if (!l) return;
    l->about.task.work = read_request;
    l->about.task.answer = answer_items;
    if (read_listing(http, l, &error) != 0)
        task_refuse(&l->about.task, &error);
    else
        task_start(&l->about.task, TASK_JOURNAL);
}

/* ---- going on from one ---- */

struct going_on {
    struct about about; /* first member; its record is the earlier response's */
    struct arrival arrival;
    json_t *body;    /* of the request; with the conversation in front of its input once `joined` */
    struct buf text; /* the same as bytes */
    int joined, counts;
};

static int join(struct going_on *g, cohort_error *err) {
    const struct record *earlier = &g->about.record;
    if (earlier->status != 200)
        return err_set(err, COHORT_E_ARGUMENT, g->about.field,
                       "the response %s failed, so there is nothing to go on from", g->about.id);
    json_t *object;
    fields_own_json(earlier->result.data, earlier->result.len, &object, NULL);
    int rc = object ? responses_continue(g->body, earlier->body, object, err)
                    : err_set(err, COHORT_E_FILE, NULL, "what the journal has of the response cannot be read");
    json_decref(object);
    char *text = rc ? NULL : json_dumps(g->body, JSON_COMPACT);
    if (!rc && (!text || buf_adds(&g->text, text) != 0))
        rc = err_set(err, COHORT_E_MEMORY, NULL, "no memory for the conversation");
    free(text);
    if (!rc && g->text.len > SERVER_BODY_MAX)
        rc = err_set(err, COHORT_E_LIMIT, g->about.field, "the conversation has %zu bytes, the limit is %d",
                     g->text.len, SERVER_BODY_MAX);
    if (!rc && fields_too_many(g->text.data, g->text.len))
        rc =
            err_set(err, COHORT_E_LIMIT, g->about.field, "the conversation has more than %d values", FIELDS_VALUES_MAX);
    g->joined = !rc;
    return rc;
}

static void read_and_join(struct task *task) {
    struct going_on *g = (struct going_on *)task;
    about_read(&g->about, 1);
    if (!task->error.code && g->about.record.ended) join(g, &task->error);
}

static void count_body(struct server *server, struct evhttp_request *http, json_t *body) {
    struct asked asked = {0};
    cohort_error error = {0};
    if (responses_ask(body, 0, &asked, &error) != 0)
        reply_error(server, http, &error);
    else
        count_chat(server, http, body, &asked, &responses_names, "response.input_tokens");
    asked_free(&asked);
}

/* What is stored is the request as it would have been with all of the conversation in it. */
static void start_joined(struct going_on *g) {
    struct task *task = &g->about.task;
    struct evhttp_request *http = task->sink.http;
    json_t *body = g->body;
    g->body = NULL;
    sink_let_go(&task->sink);
    if (g->counts) {
        count_body(task->server, http, body);
        json_decref(body);
        return;
    }
    struct evbuffer *input = evhttp_request_get_input_buffer(http);
    evbuffer_drain(input, evbuffer_get_length(input));
    if (evbuffer_add(input, g->text.data, g->text.len) == 0) {
        call_start(task->server, &dialect_responses, http, &g->arrival, body);
        return;
    }
    cohort_error error = {0};
    json_decref(body);
    err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the conversation");
    reply_error(task->server, http, &error);
}

static void answer_going_on(struct task *task) {
    struct going_on *g = (struct going_on *)task;
    cohort_error error = {0};
    int rc = 0;
    if (!g->joined) switch (record_state(task->server, g->about.id, &g->about.record, &error)) {
        case RECORD_CHANGED:
            task->again = 1;
            return;
        case RECORD_ENDED: /* its end is on its way to the disk */
            rc = join(g, &error);
            break;
        case RECORD_GONE:
            rc = error.code;
            break;
        default:
            rc = err_set(&error, COHORT_E_ARGUMENT, g->about.field, "the response %s has not ended yet", g->about.id);
        }
    if (rc)
        sink_error(&task->sink, &error);
    else
        start_joined(g);
}

static void going_on_forget(struct task *task) {
    struct going_on *g = (struct going_on *)task;
    json_decref(g->body);
    buf_free(&g->text);
    about_forget(task);
}

/* `body` is owned from here on. */
static void go_on(struct server *server, struct evhttp_request *http, const struct arrival *arrival, json_t *body,
                  int counts) {
    const char *id = field_word(body, "previous_response_id");
    struct going_on *g = about_new(server, http, sizeof *g, id ? id : "", "previous_response_id");
    if (!g) {
        json_decref(body);
        return;
    }
    g->about.task.work = read_and_join;
    g->about.task.answer = answer_going_on;
    g->about.task.forget = going_on_forget;
    g->arrival = *arrival;
    g->body = body;
    g->counts = counts;
    task_start(&g->about.task, TASK_JOURNAL);
}

/* What is wrong with the input is told by the places that it has in the request. */
static int check_alone(const json_t *body, cohort_error *err) {
    struct asked asked = {0};
    cohort_span id;
    int rc = field_string(body, "previous_response_id", RECORD_ID_MAX, &id, err);
    if (!rc) rc = responses_ask(body, field_present(body, "previous_response_id") != NULL, &asked, err);
    asked_free(&asked);
    return rc;
}

void responses_create(struct server *server, struct evhttp_request *http, const char *name) {
    (void)name;
    struct arrival arrival;
    cohort_error error = {0};
    json_t *body = server_read_body(server, http, &dialect_responses, &arrival);
    if (!body) return;
    if (!field_present(body, "previous_response_id")) {
        call_start(server, &dialect_responses, http, &arrival, body);
    } else if (check_alone(body, &error) != 0) {
        json_decref(body);
        reply_error(server, http, &error);
    } else {
        go_on(server, http, &arrival, body, 0);
    }
}

void responses_count(struct server *server, struct evhttp_request *http, const char *name) {
    (void)name;
    struct arrival arrival;
    cohort_error error = {0};
    json_t *body = server_read_body(server, http, &dialect_responses, &arrival);
    if (!body) return;
    int rc = responses_check_known(http, body, &error);
    if (!rc) rc = responses_check_neutral(body, &error);
    if (!rc) rc = check_alone(body, &error);
    if (!rc && field_present(body, "previous_response_id")) {
        go_on(server, http, &arrival, body, 1);
        return;
    }
    if (rc)
        reply_error(server, http, &error);
    else
        count_body(server, http, body);
    json_decref(body);
}
