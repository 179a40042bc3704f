/* Reading from the journal: one connection, one reader at a time. Any thread. What does not hold its checksum is not
 * told. */
#include <string.h>

#include "base/err.h"
#include "server/journal_internal.h"

static sqlite3_stmt *begin(struct journal *j, enum read_statement which) {
    pthread_mutex_lock(&j->read_lock);
    return j->read[which];
}

static void end(struct journal *j, sqlite3_stmt *statement) {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    pthread_mutex_unlock(&j->read_lock);
}

/* E_FILE if it is damage, which does not pass. */
static int failed(struct journal *j, cohort_error *err) {
    int code = journal_note_damage(j, sqlite3_errcode(j->reading)) ? COHORT_E_FILE : COHORT_E_IO;
    return err_set(err, code, "state-dir", "the journal cannot be read: %s", sqlite3_errmsg(j->reading));
}

static void copy_text(char *to, size_t size, sqlite3_stmt *statement, int column) {
    const void *text = sqlite3_column_text(statement, column);
    size_t len = (size_t)sqlite3_column_bytes(statement, column);
    if (len >= size) len = size - 1;
    if (len) memcpy(to, text, len);
    to[len] = 0;
}

static void fill(struct journal_stream *out, sqlite3_stmt *s) {
    *out = (struct journal_stream){
        .number = (uint64_t)sqlite3_column_int64(s, 0),
        .ended = sqlite3_column_int(s, 3) == STREAM_ENDED,
        .status = sqlite3_column_int(s, 4),
        .tries = (uint32_t)sqlite3_column_int64(s, 5),
        .events = (uint64_t)sqlite3_column_int64(s, 6),
        .begun = sqlite3_column_int64(s, 7),
        .has_result = sqlite3_column_int(s, 8),
    };
    copy_text(out->id, sizeof out->id, s, 1);
    copy_text(out->owner, sizeof out->owner, s, 2);
}

int journal_find(struct journal *j, const char *id, const char *owner, struct journal_stream *out, cohort_error *err) {
    sqlite3_stmt *s = begin(j, READ_FIND);
    sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 2, owner, -1, SQLITE_STATIC);
    int rc = sqlite3_step(s), code = 0;
    if (rc == SQLITE_ROW)
        fill(out, s);
    else if (rc == SQLITE_DONE)
        code = err_set(err, COHORT_E_NOT_FOUND, NULL, "no such stream");
    else
        code = failed(j, err);
    end(j, s);
    return code;
}

int journal_unfinished(struct journal *j, int (*each)(void *user, const struct journal_stream *stream), void *user,
                       cohort_error *err) {
    sqlite3_stmt *s = begin(j, READ_UNFINISHED);
    int rc, code = 0;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW && !code) {
        struct journal_stream stream;
        fill(&stream, s);
        code = each(user, &stream);
    }
    if (!code && rc != SQLITE_DONE) code = failed(j, err);
    end(j, s);
    return code;
}

static int holds(sqlite3_stmt *s, uint64_t number, uint64_t n) {
    const void *bytes = sqlite3_column_blob(s, 1);
    return journal_sum(number, n, bytes, (size_t)sqlite3_column_bytes(s, 1)) == sqlite3_column_int64(s, 2);
}

static int read_blobs(struct journal *j, enum read_statement which, uint64_t number, uint64_t from, journal_each each,
                      void *user, cohort_error *err) {
    sqlite3_stmt *s = begin(j, which);
    sqlite3_bind_int64(s, 1, (int64_t)number);
    sqlite3_bind_int64(s, 2, (int64_t)from);
    int rc, code = 0;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW && !code) {
        uint64_t n = (uint64_t)sqlite3_column_int64(s, 0);
        if (n != from || !holds(s, number, n)) break;
        const char *bytes = sqlite3_column_blob(s, 1);
        code = each(user, n, bytes ? bytes : "", (size_t)sqlite3_column_bytes(s, 1));
        from++;
    }
    if (rc != SQLITE_DONE && rc != SQLITE_ROW) code = failed(j, err);
    end(j, s);
    return code;
}

int journal_events(struct journal *j, uint64_t number, uint64_t from, journal_each each, void *user,
                   cohort_error *err) {
    return read_blobs(j, READ_EVENTS, number, from, each, user, err);
}

int journal_notes(struct journal *j, uint64_t number, uint64_t from, journal_each each, void *user, cohort_error *err) {
    return read_blobs(j, READ_NOTES, number, from, each, user, err);
}

int journal_part(struct journal *j, uint64_t number, enum journal_part part, struct buf *out, cohort_error *err) {
    static const enum read_statement statements[] = {READ_HEAD, READ_BODY, READ_RESULT};
    sqlite3_stmt *s = begin(j, statements[part]);
    sqlite3_bind_int64(s, 1, (int64_t)number);
    int rc = sqlite3_step(s), code = 0;
    if (rc == SQLITE_DONE || (rc == SQLITE_ROW && sqlite3_column_type(s, 1) == SQLITE_NULL)) {
        code = err_set(err, COHORT_E_NOT_FOUND, NULL, "the journal has no such part");
    } else if (rc != SQLITE_ROW) {
        code = failed(j, err);
    } else if (!holds(s, number, part)) {
        code = err_set(err, COHORT_E_FILE, NULL, "what the journal has of it is damaged");
    } else {
        code = buf_add(out, sqlite3_column_blob(s, 1), (size_t)sqlite3_column_bytes(s, 1));
        if (code) err_set(err, code, NULL, "no memory for what the journal has of it");
    }
    end(j, s);
    return code;
}
