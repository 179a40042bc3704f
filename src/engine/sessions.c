/* Sessions: conversations whose state is found again by a name, kept longer than others, and saved and restored through
 * the disk tier (cache.h). The table is the engine thread's. The three public calls come from other threads: each is
 * put into a list by a task, looked at once a turn until the disk has done its part, and then woken. */
#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "engine/internal.h"

enum session_kind { SESSION_SAVE, SESSION_RESTORE, SESSION_ERASE };

struct session_call {
    struct cohort_engine *engine;
    enum session_kind kind;
    uint32_t tenant;
    struct space_name session, name;
    uint64_t tag; /* of the disk's work for it; 0: none yet */
    prefix_block block;
    uint32_t tokens;
    uint64_t bytes;
    cohort_error error;
    struct session_call *next;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int done; /* under lock */
};

/* ---- The table ---- */

static int same(const struct space_name *a, const struct space_name *b) {
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static struct session *find(struct cache *c, const struct space_name *name) {
    for (uint32_t i = 0; i < c->sessions_n; i++)
        if (same(&c->sessions[i].name, name)) return &c->sessions[i];
    return NULL;
}

/* The one used longest ago: of the tenant's own, if it has many. */
static struct session *oldest(struct cache *c, uint32_t tenant) {
    struct session *oldest = &c->sessions[0], *own = NULL;
    uint32_t owns = 0;
    for (uint32_t i = 0; i < c->sessions_n; i++) {
        struct session *it = &c->sessions[i];
        if (it->used < oldest->used) oldest = it;
        if (it->tenant != tenant) continue;
        owns++;
        if (!own || it->used < own->used) own = it;
    }
    return own && owns >= CACHE_SESSIONS_SHARE ? own : oldest;
}

void sessions_put(struct cache *c, const struct space_name *name, uint32_t tenant, prefix_block block,
                  uint32_t tokens) {
    struct session *it = find(c, name);
    if (!it) it = c->sessions_n < CACHE_SESSIONS_MAX ? &c->sessions[c->sessions_n++] : oldest(c, tenant);
    *it =
        (struct session){.name = *name, .tenant = tenant, .block = block, .tokens = tokens, .used = ++c->sessions_used};
}

static void drop(struct cache *c, struct session *it) { *it = c->sessions[--c->sessions_n]; }

/* ---- What a call waits for ---- */

static void end(struct session_call *call, int code, const char *text) {
    if (code) err_set(&call->error, code, "session", "%s", text);
    pthread_mutex_lock(&call->lock);
    call->done = 1;
    pthread_cond_signal(&call->changed);
    pthread_mutex_unlock(&call->lock); /* the caller's memory: not ours from here on */
}

/* Tags of calls are below those of rows, and above the disk tier's own. */
static uint64_t new_tag(struct cache *c) { return 16 + ++c->sessions_used % (UINT32_MAX - 16); }

/* 1: the call ended. */
static int begin_save(struct cohort_engine *e, struct session_call *call) {
    struct cache *c = &e->cache;
    struct session *it = find(c, &call->session);
    struct prefix_view view;
    if (!it || !prefix_get(c->prefix, it->block, &view)) {
        end(call, COHORT_E_NOT_FOUND, it ? "the session's state is not stored any more" : "there is no such session");
        return 1;
    }
    if (!spill_holds(e, it->block, &call->bytes)) {
        if (!spill_idle(e)) return 0; /* its turn will come */
        end(call, COHORT_E_IO, "the session's state could not be written to the state dir");
        return 1;
    }
    call->tokens = it->tokens;
    call->tag = new_tag(c);
    call->block = it->block;
    int code = disk_session_put(c->disk, call->name.bytes, call->name.n, view.where, it->tokens);
    if (!code) code = disk_barrier(c->disk, call->tag);
    if (code) end(call, code, cohort_error_text(code));
    return code != 0;
}

static int begin_restore(struct cohort_engine *e, struct session_call *call) {
    struct cache *c = &e->cache;
    uint64_t record;
    if (disk_session_get(c->disk, call->name.bytes, call->name.n, &record, &call->tokens) != 0 ||
        !(call->block = records_get(&c->records, record)) || !spill_holds(e, call->block, &call->bytes)) {
        end(call, COHORT_E_NOT_FOUND, "nothing is saved under that name");
        return 1;
    }
    call->tag = new_tag(c);
    int code = spill_check(e, call->block, call->tag);
    if (code) end(call, code, cohort_error_text(code));
    return code != 0;
}

static int begin_erase(struct cohort_engine *e, struct session_call *call) {
    struct session *it = find(&e->cache, &call->session);
    if (it) {
        call->tokens = it->tokens;
        drop(&e->cache, it);
    }
    end(call, it ? 0 : COHORT_E_NOT_FOUND, "there is no such session");
    return 1;
}

static int look(struct cohort_engine *e, struct session_call *call) {
    if (call->tag) return 0;
    switch (call->kind) {
    case SESSION_SAVE:
        return begin_save(e, call);
    case SESSION_RESTORE:
        return begin_restore(e, call);
    case SESSION_ERASE:
        break;
    }
    return begin_erase(e, call);
}

int sessions_turn(struct cohort_engine *e) {
    int worked = 0;
    for (struct session_call **at = &e->cache.calls, *call; (call = *at) != NULL;) {
        struct session_call *next = call->next;
        if (look(e, call)) {
            *at = next;
            worked = 1;
        } else {
            at = &call->next;
        }
    }
    return worked;
}

/* Some block of it may have failed while others were written. */
static int is_saved(const struct cohort_engine *e, const struct session_call *call) {
    const struct cache *c = &e->cache;
    uint64_t record, bytes;
    uint32_t tokens;
    return spill_holds(e, call->block, &bytes) &&
           disk_session_get(c->disk, call->name.bytes, call->name.n, &record, &tokens) == 0 &&
           records_get(&c->records, record) == call->block;
}

void sessions_read(struct cohort_engine *e, uint64_t tag, int code) {
    struct cache *c = &e->cache;
    for (struct session_call **at = &c->calls, *call; (call = *at) != NULL; at = &call->next) {
        if (call->tag != tag) continue;
        *at = call->next;
        if (!code && call->kind == SESSION_RESTORE)
            sessions_put(c, &call->session, call->tenant, call->block, call->tokens);
        if (!code && call->kind == SESSION_SAVE && !is_saved(e, call)) code = COHORT_E_IO;
        end(call, code,
            call->kind == SESSION_RESTORE ? "what was saved does not hold its checksum, and was removed"
                                          : "the session could not be written to the state dir");
        return;
    }
}

void sessions_end(struct cohort_engine *e) {
    for (struct session_call *call = e->cache.calls, *next; call; call = next) {
        next = call->next;
        end(call, COHORT_E_CLOSED, cohort_error_text(COHORT_E_CLOSED));
    }
    e->cache.calls = NULL;
}

/* ---- The public calls ---- */

static void take_call(void *user, int code) {
    struct session_call *call = user;
    struct cache *c = &call->engine->cache;
    if (code) {
        end(call, code, cohort_error_text(code));
        return;
    }
    call->next = c->calls;
    c->calls = call;
}

static int name_of(struct cohort_engine *e, uint32_t tenant, const cohort_span *span, const char *field,
                   struct space_name *out, cohort_error *err) {
    size_t tenants_n;
    tenants_list(e->tenants, &tenants_n);
    if (tenant >= tenants_n) return err_set(err, COHORT_E_ARGUMENT, "tenant", "there is no tenant %u", tenant);
    if (span->len == 0 || span->len > COHORT_SESSION_NAME_MAX)
        return err_set(err, COHORT_E_ARGUMENT, field, "%s has %zu bytes; 1 to %d are possible", field, span->len,
                       COHORT_SESSION_NAME_MAX);
    space_name_make(out, tenants_owner(e->tenants, tenant), span->bytes, span->len);
    return 0;
}

static int session_do(struct cohort_engine *e, enum session_kind kind, uint32_t tenant, const cohort_span *session,
                      const cohort_span *name, uint32_t *tokens, uint64_t *bytes, cohort_error *err) {
    struct session_call call = {.engine = e, .kind = kind, .tenant = tenant};
    int code = name_of(e, tenant, session, "session", &call.session, err);
    if (!code && name) code = name_of(e, tenant, name, "filename", &call.name, err);
    if (code) return code;
    if (!e->options.cache)
        return err_set(err, COHORT_E_UNSUPPORTED, "cache", "the prefix store is switched off: there are no sessions");
    if (kind != SESSION_ERASE && !e->cache.disk)
        return err_set(err, COHORT_E_UNSUPPORTED, "state-dir", "saving and restoring sessions takes a state dir");
    pthread_mutex_init(&call.lock, NULL);
    pthread_cond_init(&call.changed, NULL);
    code = cohort_task_add(e, COHORT_TASK_READ, take_call, &call, NULL, err);
    if (!code) {
        pthread_mutex_lock(&call.lock);
        while (!call.done) pthread_cond_wait(&call.changed, &call.lock);
        pthread_mutex_unlock(&call.lock);
        code = call.error.code;
        if (code && err) *err = call.error;
    }
    pthread_cond_destroy(&call.changed);
    pthread_mutex_destroy(&call.lock);
    if (!code && tokens) *tokens = call.tokens;
    if (!code && bytes) *bytes = call.bytes;
    return code;
}

int cohort_session_save(cohort_engine *e, uint32_t tenant, const cohort_span *session, const cohort_span *name,
                        uint32_t *tokens, uint64_t *bytes, cohort_error *err) {
    return session_do(e, SESSION_SAVE, tenant, session, name, tokens, bytes, err);
}

int cohort_session_restore(cohort_engine *e, uint32_t tenant, const cohort_span *session, const cohort_span *name,
                           uint32_t *tokens, uint64_t *bytes, cohort_error *err) {
    return session_do(e, SESSION_RESTORE, tenant, session, name, tokens, bytes, err);
}

int cohort_session_erase(cohort_engine *e, uint32_t tenant, const cohort_span *session, uint32_t *tokens,
                         cohort_error *err) {
    return session_do(e, SESSION_ERASE, tenant, session, NULL, tokens, NULL, err);
}
