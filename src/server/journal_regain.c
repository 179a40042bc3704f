/* What was begun, twice: at each start the rows of SQLite's file and the records of journal.begun (journal_begun.c) are
 * brought together, and what one has lost comes back from the other. The opener's thread; journal_regain_tidy: the
 * journal's.
 *
 * A record that holds is believed: a row has no sum over what it says of a stream. A stream whose row is gone, or says
 * what cannot be, runs again from its beginning: the same request has the same bytes. One whose row fell back behind
 * its removal is removed again. Indexes that do not fit the rows are made anew. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/journal_internal.h"

enum statement_of_regain { LOOK, DROP_OTHERS, PUT, REMOVE, ANSWER, ROWS, STATEMENTS };

static const char *const sql[STATEMENTS] = {
    [LOOK] = "SELECT id, owner, state, dirty, tries, begun, ended, events, status, head, head_sum, body, body_sum,"
             " result, result_sum FROM streams WHERE number = ?1",
    [DROP_OTHERS] = "DELETE FROM streams WHERE id = ?2 AND number <> ?1",
    [PUT] = "INSERT INTO streams(number, id, owner, state, dirty, begun, ended, events, status, head, head_sum, body,"
            " body_sum) VALUES(?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT(number) DO UPDATE SET"
            " id = ?2, owner = ?3, state = ?4, dirty = ?4, tries = 0, begun = ?5, ended = ?6, events = ?7, status = ?8,"
            " head = ?9, head_sum = ?10, body = ?11, body_sum = ?12, result = CASE ?4 WHEN 1 THEN result END,"
            " result_sum = CASE ?4 WHEN 1 THEN result_sum END",
    [REMOVE] = "UPDATE streams SET state = 2, dirty = 1 WHERE number = ?1 AND id = ?2 AND state <> 2",
    [ANSWER] = "SELECT n, bytes, sum FROM events WHERE stream = ?1 ORDER BY n",
    [ROWS] = "SELECT id, owner, state, 0, 0, begun, ended, events, status, head, head_sum, body, body_sum, 0, 0, number"
             " FROM streams WHERE state <> 2 ORDER BY number",
};

enum column {
    ID,
    OWNER,
    STATE,
    DIRTY,
    TRIES,
    BEGUN,
    ENDED,
    EVENTS,
    STATUS,
    HEAD,
    HEAD_SUM,
    BODY,
    BODY_SUM,
    RESULT,
    RESULT_SUM,
    NUMBER
};

struct regain {
    struct journal *j;
    sqlite3_stmt *s[STATEMENTS];
    int deep; /* answers are looked through, too */
    int rc;   /* SQLite's */
    uint64_t regained;
};

static int is_number(sqlite3_stmt *s, int column, int64_t value) {
    return sqlite3_column_type(s, column) == SQLITE_INTEGER && sqlite3_column_int64(s, column) == value;
}

static int is_text(sqlite3_stmt *s, int column, const char *text) {
    const void *is = sqlite3_column_text(s, column);
    size_t n = (size_t)sqlite3_column_bytes(s, column);
    return is && n == strlen(text) && memcmp(is, text, n) == 0;
}

static int is_blob(sqlite3_stmt *s, int column, const char *bytes, size_t n) {
    const void *is = sqlite3_column_blob(s, column);
    return (size_t)sqlite3_column_bytes(s, column) == n && (n == 0 || memcmp(is, bytes, n) == 0);
}

static int sum_holds(sqlite3_stmt *s, int column, uint64_t number, enum journal_part part) {
    const void *bytes = sqlite3_column_blob(s, column);
    size_t n = (size_t)sqlite3_column_bytes(s, column);
    return is_number(s, column + 1, journal_sum(number, part, bytes, n));
}

/* The row is of this stream, with all that it was begun with. */
static int is_same(sqlite3_stmt *s, const struct begun_record *r, const char *payload) {
    return is_text(s, ID, r->id) && is_text(s, OWNER, r->owner) && is_number(s, BEGUN, r->begun) &&
           is_blob(s, HEAD, payload, r->head_len) && is_blob(s, BODY, payload + r->head_len, r->body_len) &&
           sum_holds(s, HEAD, r->number, JOURNAL_HEAD) && sum_holds(s, BODY, r->number, JOURNAL_BODY);
}

/* All events of an ended stream and its result are there. One that ended with an error may not end so again: it stays
 * as it is. */
static int answer_holds(struct regain *g, sqlite3_stmt *row, uint64_t number, uint64_t events, int status) {
    sqlite3_stmt *s = g->s[ANSWER];
    uint64_t n = 0;
    int rc;
    if (!g->deep || status != 200) return 1;
    if (sqlite3_column_type(row, RESULT) != SQLITE_NULL || sqlite3_column_type(row, RESULT_SUM) != SQLITE_NULL)
        if (!sum_holds(row, RESULT, number, JOURNAL_RESULT)) return 0;
    sqlite3_bind_int64(s, 1, (int64_t)number);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        const void *bytes = sqlite3_column_blob(s, 1);
        size_t len = (size_t)sqlite3_column_bytes(s, 1);
        if (!is_number(s, 0, (int64_t)n + 1) || !is_number(s, 2, journal_sum(number, n + 1, bytes, len))) break;
        n++;
    }
    sqlite3_reset(s);
    if (rc != SQLITE_DONE && rc != SQLITE_ROW) g->rc = rc;
    return rc == SQLITE_DONE && n == events;
}

/* A kill may have come between the end and the record of it. */
static int end_holds(struct regain *g, sqlite3_stmt *s, struct begun_record *r) {
    if (!is_number(s, STATE, STREAM_ENDED)) return 0;
    for (int i = ENDED; i <= STATUS; i++)
        if (sqlite3_column_type(s, i) != SQLITE_INTEGER) return 0;
    if (r->state != STREAM_ENDED) {
        r->ended = sqlite3_column_int64(s, ENDED);
        r->events = (uint64_t)sqlite3_column_int64(s, EVENTS);
        r->status = sqlite3_column_int(s, STATUS);
    } else if (!is_number(s, ENDED, r->ended) || !is_number(s, EVENTS, (int64_t)r->events) ||
               !is_number(s, STATUS, r->status)) {
        return 0;
    }
    return answer_holds(g, s, r->number, r->events, r->status);
}

static int runs(sqlite3_stmt *s) {
    int64_t tries = sqlite3_column_int64(s, TRIES);
    return is_number(s, STATE, STREAM_RUNNING) && is_number(s, DIRTY, 0) && tries >= 0 && tries <= JOURNAL_TRIES_MAX;
}

static void run(struct regain *g, enum statement_of_regain which) {
    int rc = sqlite3_step(g->s[which]);
    sqlite3_reset(g->s[which]);
    sqlite3_clear_bindings(g->s[which]);
    if (rc != SQLITE_DONE && g->rc == SQLITE_OK) g->rc = rc;
}

static void bind_name(sqlite3_stmt *s, const struct begun_record *r) {
    sqlite3_bind_int64(s, 1, (int64_t)r->number);
    sqlite3_bind_text(s, 2, r->id, -1, SQLITE_STATIC);
}

/* The row as the record has it. */
static void put(struct regain *g, const struct begun_record *r, const char *payload) {
    sqlite3_stmt *s = g->s[PUT];
    const char *body = payload + r->head_len;
    int ended = r->state == STREAM_ENDED;
    bind_name(g->s[DROP_OTHERS], r);
    run(g, DROP_OTHERS);
    bind_name(s, r);
    sqlite3_bind_text(s, 3, r->owner, -1, SQLITE_STATIC);
    sqlite3_bind_int(s, 4, r->state);
    sqlite3_bind_int64(s, 5, r->begun);
    if (ended) sqlite3_bind_int64(s, 6, r->ended);
    if (ended) sqlite3_bind_int64(s, 7, (int64_t)r->events);
    if (ended) sqlite3_bind_int(s, 8, r->status);
    sqlite3_bind_blob64(s, 9, payload, r->head_len, SQLITE_STATIC);
    sqlite3_bind_int64(s, 10, journal_sum(r->number, JOURNAL_HEAD, payload, r->head_len));
    sqlite3_bind_blob64(s, 11, body, r->body_len, SQLITE_STATIC);
    sqlite3_bind_int64(s, 12, journal_sum(r->number, JOURNAL_BODY, body, r->body_len));
    run(g, PUT);
    g->regained++;
}

/* What becomes of a stream: as its row says, if that can be. r->state is this then. */
static void judge(struct regain *g, struct begun_record *r, const char *payload) {
    sqlite3_stmt *s = g->s[LOOK];
    sqlite3_bind_int64(s, 1, (int64_t)r->number);
    int rc = sqlite3_step(s), there = rc == SQLITE_ROW, same = there && is_same(s, r, payload), well = 0;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        g->rc = rc;
    } else if (same && is_number(s, STATE, STREAM_REMOVED) && is_number(s, DIRTY, 1)) {
        r->state = STREAM_REMOVED;
        well = 1;
    } else if (same && runs(s)) {
        r->state = STREAM_RUNNING;
        well = 1;
    } else if (same && end_holds(g, s, r)) {
        r->state = STREAM_ENDED;
        well = 1;
    } else if (!there || r->state != STREAM_ENDED || !answer_holds(g, s, r->number, r->events, r->status)) {
        r->state = STREAM_RUNNING;
    }
    sqlite3_reset(s);
    if (!well && g->rc == SQLITE_OK) put(g, r, payload);
    if (r->state == STREAM_RUNNING) r->ended = r->status = 0, r->events = 0;
}

static int each(void *user, struct begun_record *r, const char *payload) {
    struct regain *g = user;
    if (r->state != STREAM_REMOVED) {
        judge(g, r, payload);
    } else {
        bind_name(g->s[REMOVE], r);
        run(g, REMOVE);
    }
    return g->rc;
}

static void copy_text(char *to, size_t size, sqlite3_stmt *s, int column) {
    const void *text = sqlite3_column_text(s, column);
    snprintf(to, size, "%.*s", sqlite3_column_bytes(s, column), text ? (const char *)text : "");
}

/* Rows that the second copy has not: a kill came between the two, it was damaged, or there was none. */
static void add_rows(struct regain *g) {
    struct journal *j = g->j;
    sqlite3_stmt *s = g->s[ROWS];
    int rc, full = 0;
    while (!full && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        uint64_t number = (uint64_t)sqlite3_column_int64(s, NUMBER);
        if (journal_begun_has(j, number) || !sum_holds(s, HEAD, number, JOURNAL_HEAD) ||
            !sum_holds(s, BODY, number, JOURNAL_BODY))
            continue;
        struct begun_record r = {
            .number = number,
            .state = sqlite3_column_int(s, STATE),
            .begun = sqlite3_column_int64(s, BEGUN),
            .ended = sqlite3_column_int64(s, ENDED),
            .events = (uint64_t)sqlite3_column_int64(s, EVENTS),
            .status = sqlite3_column_int(s, STATUS),
            .head_len = (uint64_t)sqlite3_column_bytes(s, HEAD),
            .body_len = (uint64_t)sqlite3_column_bytes(s, BODY),
        };
        copy_text(r.id, sizeof r.id, s, ID);
        copy_text(r.owner, sizeof r.owner, s, OWNER);
        full = journal_begun_add(j, &r, sqlite3_column_blob(s, HEAD), sqlite3_column_blob(s, BODY)) != 0;
    }
    journal_begun_sort(j); /* once: no number comes twice, so what was added is not looked for before */
    if (!full && rc != SQLITE_DONE && g->rc == SQLITE_OK) g->rc = rc;
    sqlite3_reset(s);
}

static void prepare(struct regain *g) {
    for (int i = 0; i < STATEMENTS && g->rc == SQLITE_OK; i++)
        g->rc = sqlite3_prepare_v2(g->j->writing, sql[i], -1, &g->s[i], NULL);
}

static void finish(struct regain *g) {
    for (int i = 0; i < STATEMENTS; i++) sqlite3_finalize(g->s[i]);
}

static void tell_damage(struct journal *j) {
    fprintf(stderr,
            "cohort: %.*sbegun is damaged in %llu places; what it has lost is taken from journal.db, and a copy is in "
            "journal.begun.damaged\n",
            (int)(strlen(j->path) - 2), j->path, (unsigned long long)j->begun.damaged);
    pthread_mutex_lock(&j->lock);
    j->counts.damaged_places = j->begun.damaged;
    pthread_mutex_unlock(&j->lock);
}

/* In one transaction, so that a kill leaves both as they were, or together. */
static void bring_together(struct regain *g) {
    sqlite3 *db = g->j->writing;
    g->rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (g->rc == SQLITE_OK && journal_check(db, "PRAGMA integrity_check(streams)") != SQLITE_OK)
        g->rc = sqlite3_exec(db, "REINDEX streams", NULL, NULL, NULL);
    if ((g->rc & 0xff) == SQLITE_CONSTRAINT) g->rc = SQLITE_CORRUPT; /* two streams of one name */
    if (g->rc == SQLITE_OK) prepare(g);
    if (g->rc == SQLITE_OK && journal_begun_each(g->j, each, g) != 0 && g->rc == SQLITE_OK)
        g->rc = g->j->begun.error == ENOMEM ? SQLITE_NOMEM : SQLITE_IOERR;
    if (g->rc == SQLITE_OK) g->rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (g->rc != SQLITE_OK && !sqlite3_get_autocommit(db)) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
}

static int nothing(void *user, struct begun_record *r, const char *payload) {
    (void)user;
    (void)r;
    (void)payload;
    return 0;
}

/* A full disk, say: it keeps nobody from starting. What is removed has to be found in the second copy all the same, and
 * no number comes twice. */
static int stay_apart(struct journal *j, int rc) {
    j->begun.apart = 1;
    if (journal_begun_each(j, nothing, NULL) != 0) {
        fprintf(stderr, "cohort: journal.begun beside %s cannot be read: %s\n", j->path, strerror(j->begun.error));
        return rc;
    }
    fprintf(stderr, "cohort: %s cannot be compared with journal.begun (%s); the next start tries it again\n", j->path,
            sqlite3_errstr(rc));
    return SQLITE_OK;
}

int journal_regain(struct journal *j) {
    struct regain g = {.j = j, .deep = j->checked};
    struct begun *b = &j->begun;
    bring_together(&g);
    if (g.rc == SQLITE_OK) {
        j->counts.regained = g.regained;
        add_rows(&g);
        if (g.regained)
            fprintf(stderr, "cohort: %llu stored calls that %s lost or has damaged are taken from journal.begun\n",
                    (unsigned long long)g.regained, j->path);
        if (b->damaged) tell_damage(j);
        int damaged = b->walked > 0;
        if ((damaged || journal_begun_is_due(j, 2)) && journal_db_rest(j) == SQLITE_OK)
            journal_begun_rewrite(j, damaged);
    }
    finish(&g);
    j->unrested = 1;
    if (g.rc == SQLITE_OK || (g.rc & 0xff) == SQLITE_CORRUPT || (g.rc & 0xff) == SQLITE_NOTADB) return g.rc;
    return stay_apart(j, g.rc);
}

void journal_regain_tidy(struct journal *j) {
    struct regain g = {.j = j};
    uint64_t before = j->begun.damaged;
    if (journal_begun_rewrite(j, 0) != 0 || j->begun.damaged == before) return;
    prepare(&g);
    if (g.rc == SQLITE_OK) add_rows(&g);
    finish(&g);
    tell_damage(j);
}
