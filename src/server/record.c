/* Records (record.h): the journal's part is read on its thread, the rest is in the server's tables. */
#include "server/record.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "server/fields.h"
#include "server/internal.h"

_Static_assert((int)RECORD_ID_MAX == (int)JOURNAL_ID_MAX && (int)RECORD_ID_MAX == (int)JOURNAL_OWNER_MAX,
               "the journal's limits");

int record_ask(struct server *server, const char *id, uint32_t tenant, struct record *out) {
    size_t len = strlen(id);
    if (!server->journal || len == 0 || len > RECORD_ID_MAX) return 0;
    snprintf(out->owner, sizeof out->owner, "%s", stored_owner(server, tenant));
    out->was_here = stored_find(server, id, out->owner) != NULL;
    return 1;
}

static int find(struct server *server, const char *id, const char *owner, struct journal_stream *out,
                cohort_error *err) {
    int rc = journal_find(server->journal, id, owner, out, err);
    if (rc != COHORT_E_NOT_FOUND || !stored_is_owner(owner, STORED_NO_KEYS_BEFORE)) return rc;
    *err = (cohort_error){0};
    return journal_find(server->journal, id, STORED_NO_KEYS_BEFORE, out, err);
}

static int read_json(struct server *server, uint64_t number, enum journal_part part, json_t **out, cohort_error *err) {
    struct buf text = {0};
    int rc = journal_part(server->journal, number, part, &text, err);
    cohort_error why = {0};
    if (!rc && fields_json(text.data, text.len, out, &why) != 0)
        rc = err_set(err, why.code == COHORT_E_MEMORY ? why.code : COHORT_E_FILE, NULL,
                     "what the journal has of the call cannot be read");
    buf_free(&text);
    return rc;
}

int record_read(struct server *server, const char *id, int result, struct record *out, cohort_error *err) {
    struct journal_stream stream;
    json_t *head = NULL;
    json_decref(out->body);
    out->body = NULL;
    buf_clear(&out->model);
    buf_clear(&out->result);
    int rc = find(server, id, out->owner, &stream, err);
    if (!rc) rc = read_json(server, stream.number, JOURNAL_HEAD, &head, err);
    if (!rc) rc = read_json(server, stream.number, JOURNAL_BODY, &out->body, err);
    if (!rc && stream.ended && result)
        rc = journal_part(server->journal, stream.number, JOURNAL_RESULT, &out->result, err);
    const char *model = json_string_value(json_object_get(head, "model"));
    if (!rc && (rc = buf_adds(&out->model, model ? model : "")) != 0) err_set(err, rc, NULL, "no memory for the call");
    if (!rc) {
        out->created = json_integer_value(json_object_get(head, "created"));
        out->ended = stream.ended;
        out->status = stream.status & STORED_STATUS;
    }
    json_decref(head);
    return rc;
}

/* An end that is on its way to the disk is one, but for a call that was cancelled: then it has to be there. */
static enum record_state state_here(struct record *record, const struct stored *s, cohort_error *err) {
    if (s->state == STORED_WAITING || s->state == STORED_LOADING) return RECORD_QUEUED;
    if (s->state != STORED_ENDED || stored_is_held(s)) return RECORD_RUNNING;
    record->status = s->status & STORED_STATUS;
    buf_clear(&record->result);
    if (buf_add(&record->result, s->result.data, s->result.len) == 0) return RECORD_ENDED;
    err_set(err, COHORT_E_MEMORY, NULL, "no memory for the call");
    return RECORD_GONE;
}

enum record_state record_state(struct server *server, const char *id, struct record *record, cohort_error *err) {
    const struct stored *s = stored_find(server, id, record->owner);
    if (record->ended) return RECORD_ENDED;
    if (s) return state_here(record, s, err);
    if (record->was_here) {
        record->was_here = 0;
        return RECORD_CHANGED;
    }
    stored_is_away(server, "call", err);
    return RECORD_GONE;
}

int record_is_running(struct server *server, const char *id, uint32_t tenant) {
    const struct stored *s = server->journal ? stored_find(server, id, stored_owner(server, tenant)) : NULL;
    return s && (s->state != STORED_ENDED || stored_is_held(s));
}

void record_free(struct record *record) {
    json_decref(record->body);
    buf_free(&record->model);
    buf_free(&record->result);
}
