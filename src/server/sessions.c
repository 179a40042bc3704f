/* Calls about sessions' state (sessions.h). A job belongs to the loop's thread, except between pool_add and `done`,
 * when the helper has all of it but `sink`. The server counts its reply as owed from the start, so it does not end
 * before. */
#include "server/sessions.h"

#include <event2/buffer.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/cache.h"
#include "server/fields.h"
#include "server/internal.h"
#include "server/sink.h"

enum action { SAVE, RESTORE, ERASE, ACTIONS };
static const char *const actions[ACTIONS] = {"save", "restore", "erase"};

struct session_job {
    struct pool_job job; /* first member */
    struct server *server;
    struct sink sink; /* empty once the client is gone */
    enum action action;
    uint32_t tenant;
    int32_t slot; /* -1: a session by name */
    char session[COHORT_SESSION_NAME_MAX], name[SESSIONS_FILE_MAX];
    size_t session_n, name_n;
    uint32_t tokens;
    uint64_t bytes, us;
    cohort_error error;
};

/* ---- the helper's part ---- */

static void work(struct pool_job *pool_job) {
    struct session_job *job = (struct session_job *)pool_job;
    cohort_engine *engine = job->server->engine;
    cohort_span session = {job->session, job->session_n}, name = {job->name, job->name_n};
    uint64_t begin = clock_us();
    int rc;
    if (job->action == SAVE)
        rc = cohort_session_save(engine, job->tenant, &session, &name, &job->tokens, &job->bytes, &job->error);
    else if (job->action == RESTORE)
        rc = cohort_session_restore(engine, job->tenant, &session, &name, &job->tokens, &job->bytes, &job->error);
    else
        rc = cohort_session_erase(engine, job->tenant, &session, &job->tokens, &job->error);
    job->us = clock_us() - begin;
    if (rc && !job->error.code) job->error.code = rc;
}

/* ---- the reply ---- */

static int add_who(const struct session_job *job, struct buf *out) {
    if (job->slot >= 0) return buf_addf(out, "{\"id_slot\":%d", job->slot);
    int rc = buf_adds(out, "{\"session\":");
    return rc ? rc : buf_json_string(out, job->session, job->session_n);
}

static int add_result(const struct session_job *job, struct buf *out) {
    int rc = add_who(job, out);
    if (job->action == ERASE) return rc ? rc : buf_addf(out, ",\"n_erased\":%u}", job->tokens);
    if (!rc) rc = buf_adds(out, ",\"filename\":");
    if (!rc) rc = buf_json_string(out, job->name, job->name_n);
    int saved = job->action == SAVE;
    return rc ? rc
              : buf_addf(out, ",\"n_%s\":%u,\"n_%s\":%llu,\"timings\":{\"%s_ms\":%.3f}}", saved ? "saved" : "restored",
                         job->tokens, saved ? "written" : "read", (unsigned long long)job->bytes, actions[job->action],
                         (double)job->us * 1e-3);
}

static void done(struct pool_job *pool_job) {
    struct session_job *job = (struct session_job *)pool_job;
    struct server *server = job->server;
    struct buf body = {0};
    server->session_jobs--;
    server->replies_open--;
    if (job->sink.http) {
        if (!job->error.code && add_result(job, &body) != 0)
            err_set(&job->error, COHORT_E_MEMORY, NULL, "no memory for the reply");
        if (job->error.code)
            sink_error(&job->sink, &job->error);
        else
            sink_json(&job->sink, 200, body.data, body.len);
    }
    buf_free(&body);
    mem_free(job);
}

/* What was asked for is done all the same. */
static void client_gone(struct sink *sink) { (void)sink; }

/* ---- what is asked ---- */

static int read_action(struct evhttp_request *http, enum action *out, cohort_error *err) {
    char value[32] = "";
    int i = 0, rc = query_field(http, "action", value, sizeof value, err);
    if (rc < 0) return rc;
    while (i < ACTIONS && strcmp(value, actions[i]) != 0) i++;
    if (i == ACTIONS)
        return err_set(err, COHORT_E_ARGUMENT, "action", "action must be save, restore or erase (?action=save)");
    *out = (enum action)i;
    return 0;
}

/* The name that a state is saved under: a name and no path, whatever is in it. */
static int read_name(struct evhttp_request *http, struct session_job *job, cohort_error *err) {
    static const struct known_field fields[] = {{"filename", FIELD_READ, NULL}, {"model", FIELD_NEUTRAL, NULL}};
    const struct known_list list = {fields, sizeof fields / sizeof fields[0]};
    struct evbuffer *input = evhttp_request_get_input_buffer(http);
    cohort_span name = {job->session, job->session_n};
    char unknown[512] = "";
    json_t *body = NULL;
    int rc = evbuffer_get_length(input) ? fields_body(input, &body, err) : 0;
    if (!rc && body) rc = fields_known(body, &list, 1, unknown, sizeof unknown, err);
    if (!rc && body) rc = field_string(body, "filename", SESSIONS_FILE_MAX, &name, err);
    if (!rc && name.bytes == job->session && job->slot >= 0)
        rc = err_set(err, COHORT_E_ARGUMENT, "filename", "filename is missing: the name that the state is saved under");
    if (!rc) memcpy(job->name, name.bytes, job->name_n = name.len);
    reply_unknown(http, unknown);
    json_decref(body);
    return rc;
}

/* `job` has the session's name. Owned from here on. */
static void start(struct session_job *job) {
    struct server *server = job->server;
    cohort_error error = {0};
    struct evhttp_request *http = job->sink.http;
    int rc = read_action(http, &job->action, &error);
    if (!rc && job->action != ERASE) rc = read_name(http, job, &error);
    if (!rc && server->session_jobs >= SESSIONS_JOBS_MAX)
        rc = err_set(&error, COHORT_E_BUSY, NULL, "%d calls about sessions wait already", SESSIONS_JOBS_MAX);
    if (!rc) rc = sink_watch(&job->sink, &error);
    if (rc) {
        sink_error(&job->sink, &error);
        mem_free(job);
        return;
    }
    job->job.work = work;
    job->job.done = done;
    server->session_jobs++;
    server->replies_open++;
    pool_add(server->sessions, &job->job);
}

static struct session_job *new_job(struct server *server, struct evhttp_request *http) {
    struct session_job *job = mem_zalloc(1, sizeof *job);
    if (!job) {
        const cohort_error error = {.code = COHORT_E_MEMORY};
        reply_error(server, http, &error);
        return NULL;
    }
    job->server = server;
    job->sink = (struct sink){.server = server, .http = http, .gone = client_gone, .drained = client_gone};
    job->tenant = (uint32_t)server_tenant_of(server, http);
    return job;
}

static void refuse(struct server *server, struct evhttp_request *http, const char *field, const char *text) {
    cohort_error error = {0};
    err_set(&error, COHORT_E_ARGUMENT, field, "%s", text);
    reply_error(server, http, &error);
}

void sessions_slot(struct server *server, struct evhttp_request *http, const char *rest) {
    size_t digits = strspn(rest, "0123456789");
    long long slot = digits && digits <= 10 ? strtoll(rest, NULL, 10) : -1;
    if (slot < 0 || slot > INT32_MAX || rest[digits]) {
        refuse(server, http, "id_slot", "the slot must be a number: /slots/0?action=save");
        return;
    }
    struct session_job *job = new_job(server, http);
    if (!job) return;
    char name[CACHE_SLOT_NAME_MAX + 1];
    cache_slot_name((int32_t)slot, name);
    job->slot = (int32_t)slot;
    memcpy(job->session, name, job->session_n = strlen(name));
    start(job);
}

void sessions_named(struct server *server, struct evhttp_request *http, const char *encoded) {
    size_t n = 0;
    char *name = evhttp_uridecode(encoded, 0, &n);
    if (!name || n == 0 || n > COHORT_SESSION_NAME_MAX) {
        free(name);
        char text[64];
        snprintf(text, sizeof text, "a session's name has 1 to %d bytes", COHORT_SESSION_NAME_MAX);
        refuse(server, http, "cache_session_id", text);
        return;
    }
    struct session_job *job = new_job(server, http);
    if (job) {
        job->slot = -1;
        memcpy(job->session, name, job->session_n = n);
        start(job);
    }
    free(name);
}
