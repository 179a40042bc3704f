/* Opening the journal's file: the lock, its format, what is done with a damaged one, and the statements. Whoever opens.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "server/journal_internal.h"

enum { APPLICATION = 0x636f686a /* "cohj", in the file's header */, BUSY_MS = 2000 };

/* By name, as SQLite lists them. A file with anything else in it is not ours. */
static const struct {
    const char *type, *name, *sql;
} schema[] = {
    {"table", "events",
     "CREATE TABLE events(stream INTEGER, n INTEGER, bytes BLOB, sum INTEGER, PRIMARY KEY(stream, n)) WITHOUT ROWID"},
    {"table", "notes",
     "CREATE TABLE notes(stream INTEGER, n INTEGER, bytes BLOB, sum INTEGER, PRIMARY KEY(stream, n)) WITHOUT ROWID"},
    {"index", "sqlite_autoindex_streams_1", NULL}, /* of UNIQUE */
    {"table", "streams",
     "CREATE TABLE streams(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
     " state INTEGER NOT NULL, dirty INTEGER NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0,"
     " begun INTEGER NOT NULL, ended INTEGER, events INTEGER, status INTEGER,"
     " head BLOB, head_sum INTEGER, body BLOB, body_sum INTEGER, result BLOB, result_sum INTEGER)"},
    {"index", "streams_dirty", "CREATE INDEX streams_dirty ON streams(number) WHERE dirty = 1"},
    {"index", "streams_ended", "CREATE INDEX streams_ended ON streams(ended) WHERE state = 1"},
    {"index", "streams_running", "CREATE INDEX streams_running ON streams(number) WHERE state = 0"},
};
enum { SCHEMA_ENTRIES = sizeof schema / sizeof schema[0] };

const char *const journal_write_sql[WRITE_STATEMENTS] = {
    [INSERT_STREAM] = "INSERT INTO streams(number, id, owner, state, begun, head, head_sum, body, body_sum)"
                      " VALUES(?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8)",
    /* After a failed write the numbers behind it may be there already. */
    [PUT_EVENT] = "INSERT OR REPLACE INTO events(stream, n, bytes, sum) VALUES(?1, ?2, ?3, ?4)",
    [PUT_NOTE] = "INSERT OR REPLACE INTO notes(stream, n, bytes, sum) VALUES(?1, ?2, ?3, ?4)",
    [COUNT_EVENTS] = "SELECT count(*), max(n) FROM events WHERE stream = ?1",
    [END_STREAM] = "UPDATE streams SET state = 1, dirty = 1, ended = ?2, events = ?3, status = ?4, result = ?5,"
                   " result_sum = ?6 WHERE number = ?1 AND state = 0",
    [TRY_STREAM] = "UPDATE streams SET tries = ?2 WHERE number = ?1",
    [CUT_EVENTS] = "DELETE FROM events WHERE stream = ?1 AND n > ?2",
    [CUT_NOTES] = "DELETE FROM notes WHERE stream = ?1 AND n > ?2",
    [REMOVE_STREAM] = "UPDATE streams SET state = 2, dirty = 1 WHERE number = ?1",
    [FIND_DIRTY] = "SELECT number, state FROM streams WHERE dirty = 1 LIMIT 1",
    [FIND_REMOVED] = "SELECT number FROM streams WHERE dirty = 1 AND state = 2",
    [PURGE_NOTES] = "DELETE FROM notes WHERE stream = ?1 AND n < (SELECT min(n) FROM notes WHERE stream = ?1) + ?2",
    [PURGE_EVENTS] = "DELETE FROM events WHERE stream = ?1 AND n < (SELECT min(n) FROM events WHERE stream = ?1) + ?2",
    [PURGE_STREAM] = "DELETE FROM streams WHERE number = ?1",
    [CLEAN_STREAM] = "UPDATE streams SET dirty = 0 WHERE number = ?1",
    [EXPIRE] = "UPDATE streams SET state = 2, dirty = 1 WHERE state = 1 AND ended < ?1",
    [EXPIRE_OLDEST] = "UPDATE streams SET state = 2, dirty = 1 WHERE number IN"
                      " (SELECT number FROM streams WHERE state = 1 ORDER BY ended LIMIT ?1)",
    [COUNT_STREAMS] = "SELECT (SELECT count(*) FROM streams WHERE state = 0),"
                      " (SELECT count(*) FROM streams WHERE state = 1), (SELECT coalesce(max(number), 0) FROM streams)",
    [BEGIN_BATCH] = "BEGIN IMMEDIATE",
    [COMMIT_BATCH] = "COMMIT",
    [ROLLBACK_BATCH] = "ROLLBACK",
};

#define STREAM_COLUMNS "number, id, owner, state, status, tries, events, begun, result IS NOT NULL"
static const char *const read_sql[READ_STATEMENTS] = {
    [READ_FIND] = "SELECT " STREAM_COLUMNS " FROM streams WHERE id = ?1 AND owner = ?2 AND state <> 2",
    [READ_UNFINISHED] = "SELECT " STREAM_COLUMNS " FROM streams WHERE state = 0 ORDER BY number",
    [READ_EVENTS] = "SELECT n, bytes, sum FROM events WHERE stream = ?1 AND n >= ?2 ORDER BY n",
    [READ_NOTES] = "SELECT n, bytes, sum FROM notes WHERE stream = ?1 AND n >= ?2 ORDER BY n",
    [READ_HEAD] = "SELECT 0, head, head_sum FROM streams WHERE number = ?1",
    [READ_BODY] = "SELECT 0, body, body_sum FROM streams WHERE number = ?1",
    [READ_RESULT] = "SELECT 0, result, result_sum FROM streams WHERE number = ?1",
};

/* FNV-1a over the place and the bytes: finds flipped bits and blobs in a wrong place, and is no secret. */
int64_t journal_sum(uint64_t number, uint64_t n, const void *bytes, size_t len) {
    const uint64_t prime = 0x100000001b3ull;
    uint64_t h = 0xcbf29ce484222325ull;
    h = (h ^ number) * prime;
    h = (h ^ n) * prime;
    h = (h ^ len) * prime;
    for (size_t i = 0; i < len; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * prime;
    return (int64_t)(h ^ h >> 32);
}

int journal_is_disk_error(int sqlite_code) {
    switch (sqlite_code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CANTOPEN:
    case SQLITE_BUSY:
        return 1;
    default:
        return 0;
    }
}

static int is_damage(int sqlite_code) {
    return (sqlite_code & 0xff) == SQLITE_CORRUPT || (sqlite_code & 0xff) == SQLITE_NOTADB;
}

static void mark_path(const struct journal *j, char out[sizeof j->path + 16]) {
    snprintf(out, sizeof j->path + 16, "%s.suspect", j->path);
}

int journal_note_damage(const struct journal *j, int sqlite_code) {
    char path[sizeof j->path + 16];
    if (!is_damage(sqlite_code)) return 0;
    mark_path(j, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return 1; /* it is there, or nothing can be written */
    close(fd);
    fprintf(stderr, "cohort: %s is damaged (%s); the next start sets it aside\n", j->path, sqlite3_errstr(sqlite_code));
    return 1;
}

static int number_of(sqlite3 *db, const char *sql, int64_t *out) {
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) *out = sqlite3_column_int64(statement, 0);
    int end = sqlite3_finalize(statement);
    return rc == SQLITE_ROW ? SQLITE_OK : end;
}

/* "ok", or what is wrong: both SQLITE_OK to SQLite. */
int journal_check(sqlite3 *db, const char *pragma) {
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, pragma, -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    int well = rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(statement, 0), "ok") == 0;
    int end = sqlite3_finalize(statement);
    if (rc == SQLITE_ROW) return well ? SQLITE_OK : SQLITE_CORRUPT;
    return end ? end : SQLITE_CORRUPT;
}

static int create(sqlite3 *db) {
    char numbers[96];
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (int i = 0; i < SCHEMA_ENTRIES && rc == SQLITE_OK; i++)
        if (schema[i].sql) rc = sqlite3_exec(db, schema[i].sql, NULL, NULL, NULL);
    snprintf(numbers, sizeof numbers, "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", APPLICATION,
             JOURNAL_FORMAT);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, numbers, NULL, NULL, NULL);
    return rc;
}

static int same(const char *text, const char *expected) {
    return text && expected ? strcmp(text, expected) == 0 : text == expected;
}

/* *entries: how many of ours are there. Anything else is damage. */
static int compare_schema(sqlite3 *db, int *entries) {
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db, "SELECT type, name, sql FROM sqlite_schema ORDER BY name", -1, &s, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    for (*entries = 0; rc == SQLITE_ROW; rc = sqlite3_step(s)) {
        int i = (*entries)++;
        if (i >= SCHEMA_ENTRIES || !same((const char *)sqlite3_column_text(s, 0), schema[i].type) ||
            !same((const char *)sqlite3_column_text(s, 1), schema[i].name) ||
            !same((const char *)sqlite3_column_text(s, 2), schema[i].sql))
            break;
    }
    sqlite3_finalize(s);
    return rc == SQLITE_DONE ? SQLITE_OK : rc == SQLITE_ROW ? SQLITE_CORRUPT : rc;
}

/* One bit from ours, and the second copy is ours. */
static int is_flipped(const struct journal *j, int64_t version) {
    uint64_t bits = (uint64_t)version ^ JOURNAL_FORMAT;
    return (bits & (bits - 1)) == 0 && j->begun.format == JOURNAL_FORMAT;
}

/* What the file is. *newer: its format, if this program does not know it. */
static int recognise(struct journal *j, int64_t *newer) {
    sqlite3 *db = j->writing;
    int64_t application = 0, version = 0, pages = 0;
    int entries = 0;
    int rc = number_of(db, "PRAGMA application_id", &application);
    if (rc == SQLITE_OK) rc = number_of(db, "PRAGMA user_version", &version);
    if (rc == SQLITE_OK) rc = number_of(db, "PRAGMA page_count", &pages);
    if (rc == SQLITE_OK && application == APPLICATION && version > JOURNAL_FORMAT && !is_flipped(j, version)) {
        *newer = version;
        return SQLITE_OK;
    }
    if (rc == SQLITE_OK) rc = compare_schema(db, &entries);
    if (rc != SQLITE_OK) return rc;
    if (entries == 0 && application == 0 && version == 0) return create(db);
    if (entries != SCHEMA_ENTRIES || application != APPLICATION || version != JOURNAL_FORMAT) return SQLITE_NOTADB;
    j->checked = 1;
    /* Without its last pages the file may be of two times at once. */
    if (j->counts.lost_frames) return journal_check(db, "PRAGMA integrity_check(1)");
    j->checked = pages <= JOURNAL_CHECKED_MAX / 4096;
    return j->checked ? journal_check(db, "PRAGMA quick_check(1)") : SQLITE_OK;
}

/* Nothing that a file might bring along is run. */
static void guard(sqlite3 *db) {
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_timeout(db, BUSY_MS);
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
}

int journal_db_rest(struct journal *j) {
    sqlite3_busy_timeout(j->writing, 0);
    int rc = sqlite3_wal_checkpoint_v2(j->writing, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_busy_timeout(j->writing, BUSY_MS);
    return rc;
}

static int open_writing(struct journal *j, int64_t *newer) {
    int rc =
        sqlite3_open_v2(j->path, &j->writing, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) return rc;
    guard(j->writing);
    rc = sqlite3_exec(j->writing, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA synchronous = FULL", NULL,
                      NULL, NULL);
    if (rc == SQLITE_OK) rc = recognise(j, newer);
    if (rc == SQLITE_ERROR) rc = SQLITE_CORRUPT; /* a schema of a format that SQLite does not know: a damaged header */
    if (rc != SQLITE_OK || *newer) return rc;    /* one of a newer format is left as it is */
    rc = sqlite3_exec(j->writing, "PRAGMA journal_mode = WAL; PRAGMA journal_size_limit = 16777216", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    rc = journal_db_rest(j);
    if (rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB) return rc;
    j->unrested = rc != SQLITE_OK; /* later: a full disk keeps nobody from starting */
    char limit[64];
    int64_t page = 4096;
    rc = number_of(j->writing, "PRAGMA page_size", &page);
    snprintf(limit, sizeof limit, "PRAGMA max_page_count = %lld",
             (long long)(j->options.bytes_max + j->options.bytes_max / 4) / (page > 0 ? page : 4096) + 64);
    if (rc == SQLITE_OK) rc = sqlite3_exec(j->writing, limit, NULL, NULL, NULL);
    for (int i = 0; i < WRITE_STATEMENTS && rc == SQLITE_OK; i++)
        rc = sqlite3_prepare_v3(j->writing, journal_write_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &j->write[i], NULL);
    return rc;
}

static int open_reading(struct journal *j) {
    int rc = sqlite3_open_v2(j->path, &j->reading, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) return rc;
    guard(j->reading);
    rc = sqlite3_exec(j->reading, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA query_only = 1", NULL,
                      NULL, NULL);
    for (int i = 0; i < READ_STATEMENTS && rc == SQLITE_OK; i++)
        rc = sqlite3_prepare_v3(j->reading, read_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &j->read[i], NULL);
    return rc;
}

static void close_connections(struct journal *j) {
    for (int i = 0; i < WRITE_STATEMENTS; i++) sqlite3_finalize(j->write[i]);
    for (int i = 0; i < READ_STATEMENTS; i++) sqlite3_finalize(j->read[i]);
    memset(j->write, 0, sizeof j->write);
    memset(j->read, 0, sizeof j->read);
    sqlite3_close(j->reading);
    sqlite3_close(j->writing);
    j->reading = j->writing = NULL;
}

static int failed(struct journal *j, int rc, cohort_error *err) {
    char why[160];
    snprintf(why, sizeof why, "%s",
             j->writing && sqlite3_errcode(j->writing) == rc ? sqlite3_errmsg(j->writing) : sqlite3_errstr(rc));
    close_connections(j);
    return err_set(err, COHORT_E_IO, "state-dir", "%.200s: cannot be opened: %s", j->path, why);
}

/* The file, and what SQLite keeps beside it. */
static int move_aside(struct journal *j, cohort_error *err) {
    static const char *const parts[] = {"", "-wal", "-shm"};
    char from[sizeof j->path + 16], to[sizeof j->path + 48];
    long long now = (long long)time(NULL);
    for (int i = 0; i < 3; i++) {
        snprintf(from, sizeof from, "%s%s", j->path, parts[i]);
        snprintf(to, sizeof to, "%s.damaged-%lld%s", j->path, now, parts[i]);
        if (rename(from, to) != 0 && errno != ENOENT)
            return err_set(err, COHORT_E_IO, "state-dir", "%.200s is damaged and cannot be moved aside: %s", j->path,
                           strerror(errno));
    }
    mark_path(j, from);
    unlink(from);
    fprintf(stderr,
            "cohort: %s is damaged; it was moved to %s.damaged-%lld, and a new one is begun from "
            "journal.begun\n",
            j->path, j->path, now);
    return 0;
}

/* While the server ran, SQLite came upon damage, which the check that is made here may not see, or not be made. */
static int was_marked(const struct journal *j) {
    char path[sizeof j->path + 16];
    mark_path(j, path);
    return access(path, F_OK) == 0;
}

/* A file that could be opened for writing and says that it must not be written has a damaged header. */
static int open_whole(struct journal *j, int64_t *newer) {
    int rc = open_writing(j, newer);
    if (rc == SQLITE_READONLY) return SQLITE_CORRUPT;
    return rc == SQLITE_OK && !*newer ? journal_regain(j) : rc;
}

static int open_file(struct journal *j, int64_t *newer, int *rc, cohort_error *err) {
    int code = journal_make_files(j, err);
    if (!code) code = journal_begun_open(j, err);
    if (!code && !was_marked(j)) journal_look_at_wal(j);
    *rc = code || was_marked(j) ? SQLITE_CORRUPT : open_whole(j, newer);
    if (code || !is_damage(*rc)) return code;
    close_connections(j);
    if ((code = move_aside(j, err)) != 0 || (code = journal_make_files(j, err)) != 0) return code;
    *rc = open_whole(j, newer);
    return 0;
}

int journal_db_open(struct journal *j, cohort_error *err) {
    const char *dir = j->options.dir;
    if (snprintf(j->path, sizeof j->path - 64, "%s/journal.db", dir) >= (int)sizeof j->path - 64)
        return err_set(err, COHORT_E_ARGUMENT, "state-dir", "the path of the state directory is too long");
    int64_t newer = 0;
    int rc = SQLITE_OK, code = journal_lock(dir, &j->lock_fd, err);
    if (!code) code = open_file(j, &newer, &rc, err);
    if (code) return code;
    if (newer) {
        close_connections(j);
        return err_set(err, COHORT_E_UNSUPPORTED, "state-dir",
                       "%.200s has format %lld, and this program knows formats up to %d", j->path, (long long)newer,
                       JOURNAL_FORMAT);
    }
    if (rc == SQLITE_OK) rc = open_reading(j);
    /* So that all of its files are there. */
    if (rc == SQLITE_OK) rc = sqlite3_exec(j->writing, "BEGIN IMMEDIATE; ROLLBACK", NULL, NULL, NULL);
    return rc == SQLITE_OK ? journal_note_files(j, err) : failed(j, rc, err);
}

void journal_db_close(struct journal *j) {
    close_connections(j);
    journal_begun_close(j);
    journal_unlock(&j->lock_fd);
}
