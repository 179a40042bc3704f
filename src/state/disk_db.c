/* The disk tier's index in SQLite. The opener's thread, then the module's own.
 *
 * WAL with synchronous=FULL. NORMAL would survive kill -9 as well, but not a power cut: commits since the last
 * checkpoint could come undone. An undone insert would only lose a record; an undone removal would bring back a record
 * whose slot another page has by now, and a session that was reported saved would be gone. FULL costs one sync of the
 * log for a commit, and commits are groups. Pages are synced before, by the caller.
 *
 * The file is hostile. It must have exactly our tables (no trigger, view or index could be run), pass SQLite's quick
 * check, and every value of every row is checked for type, size and range; what a row says must hold its sum. A file
 * that does not is DISK_DB_DAMAGED; a row that does not is left out. */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "state/disk_internal.h"

enum {
    APPLICATION = 0x63686f74, /* "chot" */
    PAGE_ROW_BYTES = 16,      /* group, slot, sum */
    VALUE_BYTES_MAX = 1 << 16,
    SCHEMA_TABLES = 3
};

static const char *const schema[SCHEMA_TABLES][2] = {
    {"meta", "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"},
    {"records", "CREATE TABLE records (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, used INTEGER NOT NULL, "
                "space BLOB NOT NULL, tokens BLOB NOT NULL, pages BLOB NOT NULL, sum INTEGER NOT NULL)"},
    {"sessions", "CREATE TABLE sessions (place INTEGER PRIMARY KEY, name BLOB NOT NULL, record INTEGER NOT NULL, "
                 "tokens INTEGER NOT NULL, used INTEGER NOT NULL, sum INTEGER NOT NULL)"},
};

static const char *const statements[DISK_DB_STATEMENTS] = {
    [DISK_DB_PUT] = "INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [DISK_DB_DEL] = "DELETE FROM records WHERE id = ?1",
    [DISK_DB_TOUCH] = "UPDATE records SET used = ?2 WHERE id = ?1",
    [DISK_DB_SESSION_PUT] = "INSERT OR REPLACE INTO sessions VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [DISK_DB_SESSION_DEL] = "DELETE FROM sessions WHERE place = ?1",
    [DISK_DB_GET] = "SELECT pages FROM records WHERE id = ?1",
};

const char *disk_db_text(int code) { return sqlite3_errstr(code); }

int disk_db_is_fatal(int code) {
    int primary = code & 0xff;
    return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_READONLY ||
           primary == SQLITE_SCHEMA || primary == SQLITE_ERROR;
}

/* Which failures say something of the file, and which of the machine. */
static int classify(struct disk_db *b, const char *path, int code, cohort_error *err) {
    switch (code & 0xff) {
    case SQLITE_READONLY: /* also said of a file that claims a form which this SQLite only reads */
        if (access(path, W_OK)) break;
        return DISK_DB_DAMAGED;
    case SQLITE_IOERR:
        if (code != SQLITE_IOERR_SHORT_READ) break;
        return DISK_DB_DAMAGED;
    case SQLITE_NOMEM:
        return err_set(err, COHORT_E_MEMORY, "state-dir", "%s: no memory for the index", path);
    case SQLITE_CANTOPEN:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        break;
    default:
        return DISK_DB_DAMAGED;
    }
    int system = b->db ? sqlite3_system_errno(b->db) : 0;
    return err_set(err, COHORT_E_IO, "state-dir", "%s: %s%s%s", path, sqlite3_errstr(code), system ? ": " : "",
                   system ? strerror(system) : "");
}

static int run(struct disk_db *b, const char *sql) { return sqlite3_exec(b->db, sql, NULL, NULL, NULL); }

/* The one integer or text that a statement gives. */
static int ask(struct disk_db *b, const char *sql, sqlite3_int64 *number, int *is_ok) {
    sqlite3_stmt *statement;
    int code = sqlite3_prepare_v2(b->db, sql, -1, &statement, NULL);
    if (code) return code;
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        const char *text = is_ok ? (const char *)sqlite3_column_text(statement, 0) : NULL;
        if (number) *number = sqlite3_column_int64(statement, 0);
        if (is_ok) *is_ok = text && !strcmp(text, "ok");
    }
    sqlite3_finalize(statement);
    return code == SQLITE_ROW ? SQLITE_OK : code == SQLITE_DONE ? SQLITE_CORRUPT : code;
}

/* *tables: how many of ours are there. Anything else is damage. */
static int compare_schema(struct disk_db *b, int *tables) {
    sqlite3_stmt *statement;
    int code =
        sqlite3_prepare_v2(b->db, "SELECT type, name, sql FROM sqlite_master ORDER BY name", -1, &statement, NULL);
    if (code) return code;
    for (*tables = 0; (code = sqlite3_step(statement)) == SQLITE_ROW; ++*tables) {
        const char *type = (const char *)sqlite3_column_text(statement, 0);
        const char *name = (const char *)sqlite3_column_text(statement, 1);
        const char *sql = (const char *)sqlite3_column_text(statement, 2);
        if (*tables == SCHEMA_TABLES || !type || !name || !sql || strcmp(type, "table") != 0 ||
            strcmp(name, schema[*tables][0]) != 0 || strcmp(sql, schema[*tables][1]) != 0) {
            sqlite3_finalize(statement);
            return SQLITE_CORRUPT;
        }
    }
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int create(struct disk_db *b) {
    char numbers[128];
    snprintf(numbers, sizeof(numbers), "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION,
             DISK_FORMAT);
    int code = run(b, "BEGIN IMMEDIATE");
    for (int i = 0; i < SCHEMA_TABLES && !code; i++) code = run(b, schema[i][1]);
    if (!code) code = run(b, numbers);
    if (!code) code = run(b, "COMMIT");
    return code;
}

/* Checks whose file this is, newest things first: a newer format may look any way it likes inside. */
static int check_file(struct disk_db *b, const char *path, int writable, cohort_error *err) {
    sqlite3_int64 application = 0, version = 0;
    int tables = 0, sound = 0;
    int code = ask(b, "PRAGMA application_id", &application, NULL);
    if (!code) code = ask(b, "PRAGMA user_version", &version, NULL);
    if (!code && application == APPLICATION && version > DISK_FORMAT)
        return err_set(err, COHORT_E_UNSUPPORTED, "state-dir", "%s has format %lld; this version knows format %d", path,
                       (long long)version, DISK_FORMAT);
    if (!code) code = compare_schema(b, &tables);
    int is_empty = !code && tables == 0 && application == 0 && version == 0;
    if (is_empty && !writable) /* its making was cut short */
        return err_set(err, COHORT_E_NOT_FOUND, "state-dir", "%s: nothing is stored there", path);
    if (is_empty)
        code = create(b);
    else if (!code && (tables != SCHEMA_TABLES || application != APPLICATION || version != DISK_FORMAT))
        code = SQLITE_CORRUPT;
    if (!code) code = ask(b, "PRAGMA quick_check(1)", NULL, &sound);
    if (!code && !sound) code = SQLITE_CORRUPT;
    return code ? classify(b, path, code, err) : 0;
}

int disk_db_open(struct disk_db *b, const char *path, int writable, cohort_error *err) {
    *b = (struct disk_db){0};
    int flags = writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    int code = sqlite3_open_v2(path, &b->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    if (!code) {
        sqlite3_extended_result_codes(b->db, 1);
        sqlite3_busy_timeout(b->db, 2000);
        sqlite3_limit(b->db, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
        sqlite3_limit(b->db, SQLITE_LIMIT_ATTACHED, 0);
        sqlite3_db_config(b->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(b->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        sqlite3_db_config(b->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
        sqlite3_db_config(b->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
        code = run(b, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0");
    }
    if (!code && writable)
        code = run(b, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 4194304");
    if (code) return classify(b, path, code, err);
    code = check_file(b, path, writable, err);
    for (int i = 0; i < DISK_DB_STATEMENTS && !code; i++) {
        int result = sqlite3_prepare_v3(b->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &b->statements[i], NULL);
        if (result) code = classify(b, path, result, err);
    }
    return code;
}

void disk_db_close(struct disk_db *b) {
    for (int i = 0; i < DISK_DB_STATEMENTS; i++) sqlite3_finalize(b->statements[i]);
    sqlite3_close(b->db);
    *b = (struct disk_db){0};
}

static int failed(struct disk_db *b, int code, cohort_error *err) {
    return classify(b, sqlite3_db_filename(b->db, "main"), code, err);
}

/* ---- Identity ---- */
int disk_db_identity(struct disk_db *b, uint8_t out[DISK_IDENTITY_BYTES], int *there, cohort_error *err) {
    sqlite3_stmt *statement;
    *there = 0;
    int code = sqlite3_prepare_v2(b->db, "SELECT value FROM meta WHERE name = 'identity'", -1, &statement, NULL);
    if (code) return failed(b, code, err);
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW && sqlite3_column_type(statement, 0) == SQLITE_BLOB &&
        sqlite3_column_bytes(statement, 0) == DISK_IDENTITY_BYTES) {
        memcpy(out, sqlite3_column_blob(statement, 0), DISK_IDENTITY_BYTES);
        *there = 1;
    }
    sqlite3_finalize(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? 0 : failed(b, code, err);
}

int disk_db_reset(struct disk_db *b, const uint8_t identity[DISK_IDENTITY_BYTES], uint64_t *records,
                  cohort_error *err) {
    sqlite3_int64 n = 0;
    sqlite3_stmt *statement = NULL;
    int code = ask(b, "SELECT count(*) FROM records", &n, NULL);
    if (!code) code = run(b, "BEGIN IMMEDIATE; DELETE FROM records; DELETE FROM sessions; DELETE FROM meta");
    if (!code) code = sqlite3_prepare_v2(b->db, "INSERT INTO meta VALUES ('identity', ?1)", -1, &statement, NULL);
    if (!code) code = sqlite3_bind_blob(statement, 1, identity, DISK_IDENTITY_BYTES, SQLITE_STATIC);
    if (!code) code = sqlite3_step(statement) == SQLITE_DONE ? 0 : sqlite3_extended_errcode(b->db);
    sqlite3_finalize(statement);
    if (!code) code = run(b, "COMMIT");
    *records = (uint64_t)n;
    if (!code) return 0;
    disk_db_rollback(b);
    return failed(b, code, err);
}

/* ---- Rows ---- */
/* The pages of an entry as the table has them; returns the length. */
static int pack_pages(const struct disk_entry *e, uint32_t groups,
                      unsigned char out[DISK_GROUPS_MAX * PAGE_ROW_BYTES]) {
    int n = 0;
    for (uint32_t g = 0; g < DISK_GROUPS_MAX; g++) {
        if (!(groups >> g & 1)) continue;
        memcpy(out + n, &g, sizeof(g));
        memcpy(out + n + 4, &e->slot[g], sizeof(e->slot[g]));
        memcpy(out + n + 8, &e->sum[g], sizeof(e->sum[g]));
        n += PAGE_ROW_BYTES;
    }
    return n;
}

static uint64_t row_sum(uint64_t chain, const void *pages, int n) {
    return XXH3_64bits_withSeed(pages, (size_t)n, chain);
}

static uint64_t session_sum(uint32_t row, const struct disk_session *s, uint64_t chain) {
    uint64_t numbers[3] = {s->record, s->tokens, row};
    return XXH3_64bits_withSeed(s->name, s->name_n, XXH3_64bits_withSeed(numbers, sizeof(numbers), chain));
}

struct load {
    struct disk_index *index;
    struct disk_segments *segments;
    disk_bad_fn *bad;
    void *user;
    int code, error; /* what ends the load: our code, and the system's */
};

/* NULL, or why the row is not to be used. */
static const char *read_row(sqlite3_stmt *row, struct disk_record *r, uint32_t *used) {
    static const int types[] = {SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_BLOB,
                                SQLITE_BLOB,    SQLITE_BLOB,    SQLITE_INTEGER};
    for (int i = 0; i < 7; i++)
        if (sqlite3_column_type(row, i) != types[i]) return "a value has a wrong type";
    sqlite3_int64 id = sqlite3_column_int64(row, 0), parent = sqlite3_column_int64(row, 1);
    sqlite3_int64 when = sqlite3_column_int64(row, 2);
    int tokens = sqlite3_column_bytes(row, 4), space = sqlite3_column_bytes(row, 3);
    if (id <= 0 || (uint64_t)id >= DISK_ID_MAX || parent < 0 || parent >= id) return "its number is out of range";
    if (tokens < 4 || tokens % 4 || tokens > 4 * PAGE_TOKENS) return "its tokens have a wrong length";
    if (space > DISK_SPACE_MAX || (parent && space)) return "its space's name has a wrong length";
    r->id = (uint64_t)id;
    r->parent = (uint64_t)parent;
    r->n = (uint32_t)tokens / 4;
    r->tokens = sqlite3_column_blob(row, 4);
    r->space = space ? sqlite3_column_blob(row, 3) : "";
    r->space_n = (size_t)space;
    *used = when < 0 ? 0 : when > UINT32_MAX ? UINT32_MAX : (uint32_t)when;
    return NULL;
}

static const char *read_pages(struct load *l, sqlite3_stmt *row, uint32_t entry) {
    struct disk_index *x = l->index;
    const unsigned char *pages = sqlite3_column_blob(row, 5);
    int n = sqlite3_column_bytes(row, 5);
    if (n % PAGE_ROW_BYTES || n > DISK_GROUPS_MAX * PAGE_ROW_BYTES) return "its list of pages has a wrong length";
    if (row_sum(x->entries[entry].chain, pages, n) != (uint64_t)sqlite3_column_int64(row, 6))
        return "its checksum does not hold";
    for (int at = 0; at < n; at += PAGE_ROW_BYTES) {
        uint32_t group, slot;
        memcpy(&group, pages + at, sizeof(group));
        memcpy(&slot, pages + at + 4, sizeof(slot));
        if (group >= x->groups || slot >= DISK_SLOTS_MAX || x->entries[entry].groups >> group & 1)
            return "its list of pages is not possible";
        int has = disk_segments_has(l->segments, group, slot);
        if (has < 0) {
            l->code = has == -ENOMEM ? COHORT_E_MEMORY : COHORT_E_IO;
            l->error = -has;
        }
        if (has <= 0) return "its pages are gone";
        int code = disk_index_claim_slot(x, entry, group, slot);
        if (code == COHORT_E_MEMORY) l->code = code;
        if (code) return "its pages are another's";
        memcpy(&x->entries[entry].sum[group], pages + at + 8, sizeof(uint64_t));
        x->entries[entry].written |= (uint8_t)(1u << group);
    }
    return NULL;
}

/* One record into the index, or out of it again. */
static void load_row(struct load *l, sqlite3_stmt *row) {
    struct disk_index *x = l->index;
    struct disk_record r;
    uint32_t used, entry = DISK_NONE, parent = DISK_NONE;
    const char *why = read_row(row, &r, &used);
    if (!why && disk_index_find(x, r.id) != DISK_NONE) why = "it is there twice";
    if (!why && r.parent) {
        parent = disk_index_find(x, r.parent);
        if (parent == DISK_NONE)
            why = "the block before it is gone";
        else if (x->entries[parent].n != PAGE_TOKENS)
            why = "the block before it is not full";
    }
    if (!why) {
        int code = disk_index_add(x, parent, &r, &entry);
        if (code == COHORT_E_MEMORY) l->code = code;
        if (code) why = "there are too many";
    }
    if (!why) x->entries[entry].used = used;
    if (!why) why = read_pages(l, row, entry);
    if (!why) return;
    if (entry != DISK_NONE) { /* it has no children yet, and is the only one on the list */
        disk_index_remove(x, entry);
        x->removing = DISK_NONE;
        disk_index_forget(x, entry);
    }
    if (!l->code) l->bad(l->user, (uint64_t)sqlite3_column_int64(row, 0), why);
}

/* What does not hold is forgotten without a word: a session is only a name for what is still there. */
static void load_session(struct disk_index *x, sqlite3_stmt *row) {
    sqlite3_int64 place = sqlite3_column_int64(row, 0), record = sqlite3_column_int64(row, 2);
    sqlite3_int64 tokens = sqlite3_column_int64(row, 3), used = sqlite3_column_int64(row, 4);
    int n = sqlite3_column_bytes(row, 1);
    const void *name = sqlite3_column_blob(row, 1);
    if (place < 0 || place >= DISK_SESSIONS_MAX || x->sessions[place].record) return;
    struct disk_session *s = &x->sessions[place];
    s->dirty = 1; /* until it is known to be as it should */
    x->sessions_dirty++;
    if (n < 1 || n > DISK_NAME_MAX || tokens < 0 || tokens > UINT32_MAX || used < 0 || record <= 0) return;
    uint32_t entry = disk_index_find(x, (uint64_t)record);
    if (entry == DISK_NONE || disk_index_session(x, name, (size_t)n)) return;
    memcpy(s->name, name, (size_t)n);
    s->name_n = (uint16_t)n;
    s->tokens = (uint32_t)tokens;
    s->used = (uint64_t)used;
    s->hash = XXH3_64bits(name, (size_t)n);
    s->record = (uint64_t)record;
    if (session_sum((uint32_t)place, s, x->entries[entry].chain) != (uint64_t)sqlite3_column_int64(row, 5)) {
        s->record = 0;
        return;
    }
    s->dirty = 0;
    x->sessions_dirty--;
    x->sessions_n++;
    x->entries[entry].sessions++;
    if (x->clock < s->used) x->clock = s->used;
}

int disk_db_load(struct disk_db *b, struct disk_index *x, struct disk_segments *segments, disk_bad_fn *bad, void *user,
                 cohort_error *err) {
    struct load l = {.index = x, .segments = segments, .bad = bad, .user = user};
    sqlite3_stmt *rows = NULL;
    int code = run(b, "BEGIN"); /* one state of it, whoever writes meanwhile */
    if (!code)
        code = sqlite3_prepare_v2(b->db, "SELECT id, parent, used, space, tokens, pages, sum FROM records ORDER BY id",
                                  -1, &rows, NULL);
    if (!code) {
        while (!l.code && (code = sqlite3_step(rows)) == SQLITE_ROW) load_row(&l, rows);
        if (code == SQLITE_DONE || l.code) code = 0;
    }
    sqlite3_finalize(rows);
    rows = NULL;
    if (l.code) {
        disk_db_rollback(b);
        return err_set(err, l.code, "state-dir", "the state-dir cannot be loaded: %s",
                       l.code == COHORT_E_MEMORY ? "no memory" : strerror(l.error));
    }
    if (!code)
        code =
            sqlite3_prepare_v2(b->db, "SELECT place, name, record, tokens, used, sum FROM sessions", -1, &rows, NULL);
    if (!code) {
        while ((code = sqlite3_step(rows)) == SQLITE_ROW) load_session(x, rows);
        if (code == SQLITE_DONE) code = 0;
    }
    sqlite3_finalize(rows);
    if (!code) code = run(b, "COMMIT");
    if (!code) return 0;
    disk_db_rollback(b);
    return failed(b, code, err);
}

/* ---- Changing ---- */
static int step(struct disk_db *b, int which) {
    sqlite3_stmt *statement = b->statements[which];
    int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return code == SQLITE_DONE || code == SQLITE_ROW ? 0 : code;
}

int disk_db_begin(struct disk_db *b) { return run(b, "BEGIN IMMEDIATE"); }

int disk_db_put(struct disk_db *b, const struct disk_entry *e, uint64_t parent) {
    unsigned char pages[DISK_GROUPS_MAX * PAGE_ROW_BYTES];
    int n = pack_pages(e, e->written, pages);
    sqlite3_stmt *s = b->statements[DISK_DB_PUT];
    sqlite3_bind_int64(s, 1, (sqlite3_int64)e->id);
    sqlite3_bind_int64(s, 2, (sqlite3_int64)parent);
    sqlite3_bind_int64(s, 3, e->used);
    sqlite3_bind_blob(s, 4, e->space ? e->space : "", e->space_n, SQLITE_STATIC);
    sqlite3_bind_blob(s, 5, e->tokens, 4 * e->n, SQLITE_STATIC);
    sqlite3_bind_blob(s, 6, pages, n, SQLITE_STATIC);
    sqlite3_bind_int64(s, 7, (sqlite3_int64)row_sum(e->chain, pages, n));
    return step(b, DISK_DB_PUT);
}

int disk_db_remove(struct disk_db *b, uint64_t id) {
    sqlite3_bind_int64(b->statements[DISK_DB_DEL], 1, (sqlite3_int64)id);
    return step(b, DISK_DB_DEL);
}

int disk_db_touch(struct disk_db *b, uint64_t id, uint32_t used) {
    sqlite3_bind_int64(b->statements[DISK_DB_TOUCH], 1, (sqlite3_int64)id);
    sqlite3_bind_int64(b->statements[DISK_DB_TOUCH], 2, used);
    return step(b, DISK_DB_TOUCH);
}

int disk_db_session(struct disk_db *b, uint32_t row, const struct disk_session *session, uint64_t chain) {
    sqlite3_stmt *s = b->statements[session->record ? DISK_DB_SESSION_PUT : DISK_DB_SESSION_DEL];
    sqlite3_bind_int64(s, 1, row);
    if (!session->record) return step(b, DISK_DB_SESSION_DEL);
    sqlite3_bind_blob(s, 2, session->name, session->name_n, SQLITE_STATIC);
    sqlite3_bind_int64(s, 3, (sqlite3_int64)session->record);
    sqlite3_bind_int64(s, 4, session->tokens);
    sqlite3_bind_int64(s, 5, (sqlite3_int64)session->used);
    sqlite3_bind_int64(s, 6, (sqlite3_int64)session_sum(row, session, chain));
    return step(b, DISK_DB_SESSION_PUT);
}

int disk_db_commit(struct disk_db *b) { return run(b, "COMMIT"); }

void disk_db_rollback(struct disk_db *b) {
    if (b->db && !sqlite3_get_autocommit(b->db)) run(b, "ROLLBACK");
}

int disk_db_same(struct disk_db *b, const struct disk_entry *e) {
    unsigned char pages[DISK_GROUPS_MAX * PAGE_ROW_BYTES];
    int n = pack_pages(e, e->written, pages);
    sqlite3_stmt *s = b->statements[DISK_DB_GET];
    sqlite3_bind_int64(s, 1, (sqlite3_int64)e->id);
    int same = sqlite3_step(s) == SQLITE_ROW && sqlite3_column_bytes(s, 0) == n &&
               !memcmp(sqlite3_column_blob(s, 0), pages, (size_t)n);
    sqlite3_reset(s);
    return same;
}
