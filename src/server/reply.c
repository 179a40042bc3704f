/* Short replies: JSON bodies, and errors in the shape of the path's API. Loop thread. */
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "server/internal.h"

struct status_of {
    int code, status;
    const char *type, *name;
};

static const struct status_of statuses[] = {
    {COHORT_E_ARGUMENT, 400, "invalid_request_error", "invalid_value"},
    {COHORT_E_CONTEXT, 400, "invalid_request_error", "context_length_exceeded"},
    {COHORT_E_CAPACITY, 400, "invalid_request_error", "capacity_exceeded"},
    {COHORT_E_LIMIT, 400, "invalid_request_error", "limit_exceeded"},
    {COHORT_E_UNSUPPORTED, 400, "invalid_request_error", "unsupported_value"},
    {COHORT_E_NOT_FOUND, 404, "invalid_request_error", "not_found"},
    {COHORT_E_BUSY, 429, "rate_limit_error", "queue_full"},
    {COHORT_E_CLOSED, 503, "server_error", "shutting_down"},
    {COHORT_E_MEMORY, 503, "server_error", "out_of_memory"},
    {COHORT_E_IO, 503, "server_error", "storage_unavailable"},
    {COHORT_E_TIMEOUT, 504, "timeout_error", "request_timeout"},
};

static const struct status_of *find_status(int code) {
    static const struct status_of internal = {0, 500, "server_error", "internal_error"};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        if (statuses[i].code == code) return &statuses[i];
    return &internal;
}

static const char *reason(int status) {
    switch (status) {
    case 200:
        return "OK";
    case 204:
        return "No Content";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 413:
        return "Payload Too Large";
    case 415:
        return "Unsupported Media Type";
    case 429:
        return "Too Many Requests";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    case 529:
        return "Overloaded";
    default:
        return "Internal Server Error";
    }
}

void reply_json(struct evhttp_request *http, int status, const char *json, size_t len) {
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);
    evhttp_add_header(headers, "Content-Type", "application/json");
    struct evbuffer *body = evbuffer_new();
    if (body) evbuffer_add(body, json, len);
    evhttp_send_reply(http, status, reason(status), body);
    if (body) evbuffer_free(body);
}

static int write_openai(struct buf *out, const struct error_view *e) {
    int rc = buf_adds(out, "{\"error\":{\"message\":");
    if (!rc) rc = buf_json_string(out, e->message, strlen(e->message));
    if (!rc) rc = buf_addf(out, ",\"type\":\"%s\",\"param\":", e->type);
    if (!rc) rc = e->param && *e->param ? buf_json_string(out, e->param, strlen(e->param)) : buf_adds(out, "null");
    if (!rc)
        rc = e->code && *e->code ? buf_addf(out, ",\"code\":\"%s\"}}", e->code) : buf_adds(out, ",\"code\":null}}");
    return rc;
}

const struct error_shape error_shape_openai = {.write = write_openai};

static int status_in(const struct error_shape *shape, const struct error_view *usual) {
    return shape->status ? shape->status(usual) : usual->status;
}

static struct error_view view_of(const struct error_shape *shape, const cohort_error *error) {
    const struct status_of *s = find_status(error->code);
    const char *name = s->name;
    if (error->code == COHORT_E_BUSY && strcmp(error->field, "tokens_per_minute") == 0) name = "rate_limit_exceeded";
    struct error_view view = {.status = s->status,
                              .message = error->text[0] ? error->text : cohort_error_text(error->code),
                              .type = s->type,
                              .param = error->field,
                              .code = name};
    view.status = status_in(shape, &view);
    return view;
}

int error_status(const struct error_shape *shape, const cohort_error *error) { return view_of(shape, error).status; }

int error_json(struct buf *out, const struct error_shape *shape, const cohort_error *error) {
    const struct error_view view = view_of(shape, error);
    return shape->write(out, &view);
}

static const char *request_id_of(struct evhttp_request *http) {
    return evhttp_find_header(evhttp_request_get_output_headers(http), "request-id");
}

/* Whole seconds for everybody, and milliseconds for clients that read them. A second if it is not known. */
static void add_retry_after(struct evhttp_request *http, uint32_t ms) {
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);
    char text[16];
    snprintf(text, sizeof text, "%u", ms ? ms / 1000 + (ms % 1000 != 0) : 1);
    evhttp_add_header(headers, "Retry-After", text);
    if (!ms) return;
    snprintf(text, sizeof text, "%u", ms);
    evhttp_add_header(headers, "retry-after-ms", text);
}

static void send_error(struct evhttp_request *http, int status, struct buf *body, int rc) {
    if (rc == 0)
        reply_json(http, status, body->data, body->len);
    else
        evhttp_send_reply(http, 503, reason(503), NULL);
    buf_free(body);
}

void reply_error(struct server *server, struct evhttp_request *http, const cohort_error *error) {
    const struct error_shape *shape = server_shape_of(server, http);
    struct buf body = {0};
    int usual = find_status(error->code)->status;
    if (usual == 429 || usual == 503) add_retry_after(http, error->retry_after_ms);
    struct error_view view = view_of(shape, error);
    view.request_id = request_id_of(http);
    int rc = shape->write(&body, &view);
    send_error(http, view.status, &body, rc);
}

void reply_status(struct server *server, struct evhttp_request *http, int status, const char *type,
                  const char *message) {
    const struct error_shape *shape = server_shape_of(server, http);
    struct buf body = {0};
    if (status == 503) add_retry_after(http, 0);
    struct error_view view = {.status = status, .message = message, .type = type, .request_id = request_id_of(http)};
    view.status = status_in(shape, &view);
    int rc = shape->write(&body, &view);
    send_error(http, view.status, &body, rc);
}

void reply_unknown(struct evhttp_request *http, const char *names) {
    if (http && names[0]) evhttp_add_header(evhttp_request_get_output_headers(http), "X-Cohort-Unknown-Fields", names);
}

void reply_buf(struct server *server, struct evhttp_request *http, struct buf *body, int rc) {
    if (rc == 0)
        reply_json(http, 200, body->data, body->len);
    else
        reply_status(server, http, 503, "server_error", "out of memory");
    buf_free(body);
}

int query_field(struct evhttp_request *http, const char *name, char *out, size_t size, cohort_error *err) {
    const char *at = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(http));
    size_t name_n = strlen(name), n;
    for (; at && *at; at += n + (at[n] == '&')) {
        n = strcspn(at, "&");
        if (n < name_n || (n > name_n && at[name_n] != '=') || strncmp(at, name, name_n) != 0) continue;
        struct buf value = {0};
        size_t len = 0, skip = name_n + (n > name_n);
        char *text = NULL;
        if (buf_add(&value, at + skip, n - skip) == 0) text = evhttp_uridecode(value.data ? value.data : "", 1, &len);
        buf_free(&value);
        if (!text) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the query");
        int rc = 1;
        for (size_t i = 0; i < len; i++)
            if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) rc = COHORT_E_ARGUMENT;
        snprintf(out, size, "%s", text);
        free(text);
        return rc == 1 ? rc : err_set(err, rc, name, "%s has a byte that is not part of any text", name);
    }
    return 0;
}
