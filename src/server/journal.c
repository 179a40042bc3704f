/* The journal's queue and thread (journal.h). Commands go queue -> batch -> results; a command is in exactly one of
 * them. `held_bytes` counts all three, so that whoever does not take results cannot pile them up. */
#include "server/journal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/journal_internal.h"

enum { PURGE_ROWS = 1000, PURGE_SLICES = 64, EXPIRE_S = 60, WELL_S = 10 };

static void list_init(struct command_list *list) {
    list->first = NULL;
    list->end = &list->first;
}

static void list_add(struct command_list *list, struct command *command) {
    command->next = NULL;
    *list->end = command;
    list->end = &command->next;
}

static struct command *list_take(struct command_list *list) {
    struct command *command = list->first;
    if (command && !(list->first = command->next)) list->end = &list->first;
    return command;
}

static size_t bytes_of(const struct command *c) {
    return sizeof *c + JOURNAL_COMMAND_OVERHEAD + c->first_len + c->second_len;
}

static void signal_fd(int fd) {
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one); /* fails only near 2^64 */
    (void)written;
}

/* ---- writing: the journal's thread ---- */

static int step(struct journal *j, enum statement which) {
    int rc = sqlite3_step(j->write[which]);
    sqlite3_reset(j->write[which]);
    sqlite3_clear_bindings(j->write[which]);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static void bind_blob(sqlite3_stmt *s, int at, uint64_t number, uint64_t n, const char *bytes, size_t len) {
    sqlite3_bind_blob64(s, at, bytes, len, SQLITE_STATIC);
    sqlite3_bind_int64(s, at + 1, journal_sum(number, n, bytes, len));
}

static int insert_stream(struct journal *j, const struct command *c) {
    sqlite3_stmt *s = j->write[INSERT_STREAM];
    sqlite3_bind_int64(s, 1, (int64_t)c->number);
    sqlite3_bind_text(s, 2, c->id, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 3, c->owner, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 4, c->at_s);
    bind_blob(s, 5, c->number, JOURNAL_HEAD, c->bytes, c->first_len);
    bind_blob(s, 7, c->number, JOURNAL_BODY, c->bytes + c->first_len, c->second_len);
    return step(j, INSERT_STREAM);
}

static int put_blob(struct journal *j, enum statement which, const struct command *c) {
    sqlite3_stmt *s = j->write[which];
    sqlite3_bind_int64(s, 1, (int64_t)c->number);
    sqlite3_bind_int64(s, 2, (int64_t)c->n);
    bind_blob(s, 3, c->number, c->n, c->bytes, c->first_len);
    return step(j, which);
}

/* Only a stream that has all its events ends, and no others: one with a gap, after a failed write, is made anew at the
 * next start. */
static int end_stream(struct journal *j, struct command *c) {
    sqlite3_stmt *count = j->write[COUNT_EVENTS], *s = j->write[END_STREAM];
    sqlite3_bind_int64(count, 1, (int64_t)c->number);
    int rc = sqlite3_step(count);
    uint64_t events = (uint64_t)sqlite3_column_int64(count, 0), last = (uint64_t)sqlite3_column_int64(count, 1);
    sqlite3_reset(count);
    if (rc != SQLITE_ROW) return rc;
    if (events != c->n || last != c->n) {
        c->code = COHORT_E_IO;
        return SQLITE_OK;
    }
    sqlite3_bind_int64(s, 1, (int64_t)c->number);
    sqlite3_bind_int64(s, 2, c->at_s);
    sqlite3_bind_int64(s, 3, (int64_t)c->n);
    sqlite3_bind_int(s, 4, c->status);
    if (c->has_blob) bind_blob(s, 5, c->number, JOURNAL_RESULT, c->bytes, c->first_len);
    j->purge = 1;
    rc = step(j, END_STREAM);
    if (rc == SQLITE_OK && sqlite3_changes(j->writing) == 0) c->code = COHORT_E_NOT_FOUND;
    return rc;
}

static int number_step(struct journal *j, enum statement which, uint64_t number, int64_t value) {
    sqlite3_bind_int64(j->write[which], 1, (int64_t)number);
    if (which == TRY_STREAM || which == CUT_EVENTS || which == CUT_NOTES) sqlite3_bind_int64(j->write[which], 2, value);
    return step(j, which);
}

static int cut(struct journal *j, const struct command *c) {
    int rc = number_step(j, CUT_EVENTS, c->number, (int64_t)c->events);
    return rc ? rc : number_step(j, CUT_NOTES, c->number, (int64_t)c->n);
}

static int apply(struct journal *j, struct command *c) {
    switch (c->kind) {
    case JOURNAL_BEGIN:
        return insert_stream(j, c);
    case JOURNAL_EVENT:
        return put_blob(j, PUT_EVENT, c);
    case JOURNAL_NOTE:
        return put_blob(j, PUT_NOTE, c);
    case JOURNAL_END:
        return end_stream(j, c);
    case JOURNAL_TRIED:
        return number_step(j, TRY_STREAM, c->number, (int64_t)c->n);
    case JOURNAL_CUT:
        return cut(j, c);
    case JOURNAL_REMOVE:
        j->purge = 1;
        return number_step(j, REMOVE_STREAM, c->number, 0);
    }
    return SQLITE_MISUSE;
}

static void written(struct journal *j) {
    j->unrested = 1;
    j->written_us = clock_us();
}

/* All of them in one transaction, or none. */
static int transact(struct journal *j, struct command *first, const struct command *end) {
    int rc = step(j, BEGIN_BATCH);
    for (struct command *c = first; c != end && rc == SQLITE_OK; c = c->next) rc = apply(j, c);
    if (rc == SQLITE_OK) rc = step(j, COMMIT_BATCH);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(j->writing)) step(j, ROLLBACK_BATCH);
    written(j);
    return rc;
}

/* One line when it begins, and one when it is over: a full disk may take a small write between two that fail.
 * `missing`: of the folder's files. `why`: what failed, if it was not SQLite. */
static void tell(struct journal *j, int rc, const char *missing, const char *why) {
    if (!missing) journal_note_damage(j, rc);
    int64_t now = (int64_t)(clock_us() / 1000000);
    if (missing) {
        if (!j->gone)
            fprintf(stderr,
                    "cohort: the folder of %s was moved, or its %s removed or replaced, while the server runs: new "
                    "stored calls are refused until it is put right or the server restarted\n",
                    j->path, missing);
        j->gone = j->failing = 1;
        j->failed_s = now;
    } else if (rc != SQLITE_OK) {
        if (!j->failing)
            fprintf(stderr,
                    "cohort: %s cannot be written (%s): new stored calls are refused, and those that run would begin "
                    "anew after a restart\n",
                    j->path, why ? why : sqlite3_errmsg(j->writing));
        j->failing = 1;
        j->failed_s = now;
    } else if (j->failing && now - j->failed_s >= WELL_S) {
        fprintf(stderr, "cohort: %s is written again\n", j->path);
        j->failing = j->gone = 0;
    }
}

static uint64_t bytes_in_use(struct journal *j) {
    int64_t pages = 0, free_pages = 0, size = 4096;
    static const char *const pragmas[] = {"PRAGMA page_count", "PRAGMA freelist_count", "PRAGMA page_size"};
    int64_t *values[] = {&pages, &free_pages, &size};
    for (int i = 0; i < 3; i++) {
        sqlite3_stmt *s;
        if (sqlite3_prepare_v2(j->writing, pragmas[i], -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
            *values[i] = sqlite3_column_int64(s, 0);
        sqlite3_finalize(s);
    }
    return (uint64_t)(pages - free_pages) * (uint64_t)size;
}

static void set_codes(struct command *first, int code) {
    for (struct command *c = first; c; c = c->next) c->code = code;
}

/* All of them, or each that can be; the others have a code then. */
static int write_batch(struct journal *j, struct command *first) {
    int rc = transact(j, first, NULL);
    if (rc == SQLITE_OK) return rc;
    if (journal_is_disk_error(rc)) {
        set_codes(first, COHORT_E_IO);
        return rc;
    }
    /* One of them is at fault: the others do without it. */
    rc = SQLITE_OK;
    for (struct command *c = first; c; c = c->next) {
        int alone = transact(j, c, c->next);
        if (alone != SQLITE_OK) c->code = COHORT_E_IO;
        if (journal_is_disk_error(alone)) rc = alone;
    }
    return rc;
}

static int begin_again(struct journal *j, const struct command *c) {
    struct begun_record r = {
        .number = c->number, .begun = c->at_s, .head_len = c->first_len, .body_len = c->second_len};
    snprintf(r.id, sizeof r.id, "%s", c->id);
    snprintf(r.owner, sizeof r.owner, "%s", c->owner);
    return journal_begun_add(j, &r, c->bytes, c->bytes + c->first_len);
}

/* The second copy of what was committed: 0, or -1 if it cannot be written. An end that it does not have is believed. */
static int write_begun(struct journal *j, struct command *first) {
    int failed = 0;
    for (struct command *c = first; c; c = c->next) {
        int code = 0;
        if (c->code) continue;
        if (c->kind == JOURNAL_BEGIN) code = begin_again(j, c);
        if (c->kind == JOURNAL_REMOVE) journal_begun_erase(j, c->number); /* or purge_row does, before the row goes */
        if (c->kind == JOURNAL_END) journal_begun_ended(j, c->number, c->at_s, c->n, c->status);
        if (code) failed = c->code = COHORT_E_IO;
    }
    return failed ? -1 : 0;
}

/* Removes the rows of `owed`, as far as that can be done. */
static int pay(struct journal *j) {
    int rc = SQLITE_OK;
    while (j->owed_n && (rc = number_step(j, REMOVE_STREAM, j->owed[j->owed_n - 1], 0)) == SQLITE_OK) {
        j->owed_n--;
        j->purge = 1;
        written(j);
    }
    return rc;
}

/* What is refused although its row was committed does not run at the next start. Nothing else is written until that is
 * sure, so there are never more than of one batch. */
static void take_back(struct journal *j, const struct command *first, int all) {
    for (const struct command *c = first; c; c = c->next) {
        if (c->kind != JOURNAL_BEGIN || (!c->code && !all)) continue;
        journal_begun_erase(j, c->number);
        if (j->owed_n < JOURNAL_BATCH_COMMANDS) j->owed[j->owed_n++] = c->number;
    }
    pay(j);
}

static void run_batch(struct journal *j, struct command *first) {
    uint64_t ended = 0, begun = 0, removed = 0;
    int rc = SQLITE_CANTOPEN;
    const char *missing = journal_missing(j), *why = NULL;
    if (!missing) {
        int paid = (rc = pay(j)) == SQLITE_OK;
        if (paid)
            rc = write_batch(j, first);
        else
            set_codes(first, COHORT_E_IO);
        if (write_begun(j, first) != 0) {
            why = strerror(j->begun.error);
            if (rc == SQLITE_OK) rc = SQLITE_FULL;
        }
        missing = journal_missing(j); /* nothing is reported as written where nobody will look for it */
        if (paid && (missing || why)) take_back(j, first, missing != NULL);
    }
    if (missing) {
        rc = SQLITE_CANTOPEN;
        set_codes(first, COHORT_E_CLOSED);
    }
    tell(j, rc, missing, why);
    for (struct command *c = first; c; c = c->next) {
        begun += c->kind == JOURNAL_BEGIN && !c->code;
        ended += c->kind == JOURNAL_END && !c->code;
        removed += c->kind == JOURNAL_REMOVE && !c->code;
    }
    pthread_mutex_lock(&j->lock);
    j->counts.commits++;
    j->counts.failures += rc != SQLITE_OK;
    j->counts.running += begun - ended;
    j->counts.ended += ended;
    pthread_mutex_unlock(&j->lock);
    if (removed || missing) j->expired_s = 0; /* counted anew with the next look */
}

/* ---- what goes again ---- */

static int purge_rows(struct journal *j, enum statement which, int64_t number, int *some) {
    sqlite3_bind_int64(j->write[which], 1, number);
    sqlite3_bind_int64(j->write[which], 2, PURGE_ROWS);
    int rc = step(j, which);
    *some = rc == SQLITE_OK && sqlite3_changes(j->writing) > 0;
    return rc;
}

/* The second copy has forgotten it on the disk before the row goes: a power failure brings nothing back. */
static int purge_row(struct journal *j, uint64_t number, int state) {
    if (state != STREAM_REMOVED) return number_step(j, CLEAN_STREAM, number, 0);
    if (journal_begun_erase(j, number) != 0 || journal_begun_sync(j) != 0) return SQLITE_IOERR;
    return number_step(j, PURGE_STREAM, number, 0);
}

/* A slice of what nobody needs any more, so that a long stream's end delays nobody. */
static void purge_slice(struct journal *j) {
    sqlite3_stmt *s = j->write[FIND_DIRTY];
    int some = 0, rc = sqlite3_step(s);
    int64_t number = sqlite3_column_int64(s, 0);
    int state = sqlite3_column_int(s, 1);
    sqlite3_reset(s);
    j->purge = rc == SQLITE_ROW;
    if (!j->purge) return;
    rc = step(j, BEGIN_BATCH);
    if (rc == SQLITE_OK) rc = purge_rows(j, PURGE_NOTES, number, &some);
    if (rc == SQLITE_OK && !some && state == STREAM_REMOVED) rc = purge_rows(j, PURGE_EVENTS, number, &some);
    if (rc == SQLITE_OK && !some) rc = purge_row(j, (uint64_t)number, state);
    if (rc == SQLITE_OK) rc = step(j, COMMIT_BATCH);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(j->writing)) step(j, ROLLBACK_BATCH);
    written(j);
    if (rc != SQLITE_OK) j->purge = 0; /* with the next end or removal */
    journal_note_damage(j, rc);
}

/* Returns the highest number of a stream. */
static uint64_t count_streams(struct journal *j) {
    sqlite3_stmt *s = j->write[COUNT_STREAMS];
    uint64_t highest = 0;
    if (sqlite3_step(s) == SQLITE_ROW) {
        pthread_mutex_lock(&j->lock);
        j->counts.running = (uint64_t)sqlite3_column_int64(s, 0);
        j->counts.ended = (uint64_t)sqlite3_column_int64(s, 1);
        pthread_mutex_unlock(&j->lock);
        highest = (uint64_t)sqlite3_column_int64(s, 2);
    }
    sqlite3_reset(s);
    return highest;
}

static void expire_with(struct journal *j, enum statement which, int64_t value) {
    sqlite3_stmt *removed = j->write[FIND_REMOVED];
    sqlite3_bind_int64(j->write[which], 1, value);
    if (step(j, which) != SQLITE_OK || sqlite3_changes(j->writing) == 0) return;
    j->purge = 1;
    while (sqlite3_step(removed) == SQLITE_ROW) /* at once, since each on its own would be synchronised on its own */
        journal_begun_erase(j, (uint64_t)sqlite3_column_int64(removed, 0));
    sqlite3_reset(removed);
}

static void expire(struct journal *j) {
    j->expired_s = (int64_t)(clock_us() / 1000000);
    expire_with(j, EXPIRE, (int64_t)time(NULL) - j->options.keep_s);
    count_streams(j);
    struct journal_counts now;
    journal_get_counts(j, &now);
    if (now.ended > j->options.streams_max) {
        expire_with(j, EXPIRE_OLDEST, (int64_t)(now.ended - j->options.streams_max));
        count_streams(j);
    }
}

/* One more of the oldest, if the file is too large and nothing is left of those before it. 1: it is too large. */
static int expire_bytes(struct journal *j) {
    uint64_t bytes = bytes_in_use(j);
    pthread_mutex_lock(&j->lock);
    j->counts.bytes = bytes;
    uint64_t ended = j->counts.ended;
    pthread_mutex_unlock(&j->lock);
    if (bytes <= j->options.bytes_max) return 0;
    if (j->purge || ended == 0) return j->purge;
    expire_with(j, EXPIRE_OLDEST, 1);
    count_streams(j);
    return j->purge;
}

/* SQLite's own sums protect what lies in front of the file only as a chain, which a flipped bit ends: so nothing stays
 * there for long. */
static int move_into_file(struct journal *j) {
    int rc = SQLITE_BUSY;
    if (pthread_mutex_trylock(&j->read_lock) == 0) {
        rc = journal_db_rest(j);
        pthread_mutex_unlock(&j->read_lock);
    }
    j->unrested = rc == SQLITE_BUSY;
    j->written_us = clock_us();
    journal_note_damage(j, rc);
    return rc;
}

/* Behind each batch: files that are too large are made smaller before they grow on. */
static void make_room(struct journal *j) {
    for (int i = 0; i < PURGE_SLICES && expire_bytes(j); i++) purge_slice(j);
    if (!j->failing && journal_begun_is_due(j, 4) && move_into_file(j) == SQLITE_OK) journal_regain_tidy(j);
}

/* ---- the thread ---- */

static int is_due(const struct journal *j) {
    return j->queue.first &&
           (j->urgent || j->closing || j->waiting_bytes >= JOURNAL_COMMIT_BYTES || clock_us() >= j->due_us);
}

static struct command *take_batch(struct journal *j) {
    struct command *first = j->queue.first, *last = first;
    size_t bytes = bytes_of(first);
    while (last->next && bytes < JOURNAL_BATCH_BYTES) {
        last = last->next;
        bytes += bytes_of(last);
    }
    j->queue.first = last->next;
    last->next = NULL;
    j->waiting_bytes -= bytes;
    if (!j->queue.first) {
        j->queue.end = &j->queue.first;
        j->urgent = 0;
    }
    return first;
}

static void give_results(struct journal *j, struct command *batch) {
    while (batch) {
        struct command *next = batch->next;
        list_add(&j->results, batch);
        batch = next;
    }
    signal_fd(j->fd);
}

static void rest(struct journal *j) {
    int rc = move_into_file(j);
    journal_begun_sync(j);
    if (rc == SQLITE_OK && journal_begun_is_due(j, 2)) journal_regain_tidy(j);
}

/* With nothing to write: a slice of tidying, or sleep. */
static void tidy_or_wait(struct journal *j) {
    int64_t now = (int64_t)(clock_us() / 1000000);
    int look = !j->failing && (j->purge || j->expired_s == 0 || now - j->expired_s >= EXPIRE_S ||
                               j->counts.ended > j->options.streams_max);
    if (look && !j->closing) {
        pthread_mutex_unlock(&j->lock);
        if (j->purge)
            purge_slice(j);
        else
            expire(j);
        expire_bytes(j);
        pthread_mutex_lock(&j->lock);
        return;
    }
    uint64_t now_us = clock_us(), rest_us = j->written_us + JOURNAL_REST_MS * 1000;
    uint32_t ms = EXPIRE_S * 1000;
    int tired = j->unrested && !j->failing && !j->closing && !j->queue.first;
    if (tired && now_us >= rest_us) {
        pthread_mutex_unlock(&j->lock);
        rest(j);
        pthread_mutex_lock(&j->lock);
        return;
    }
    if (tired) ms = (uint32_t)((rest_us - now_us + 999) / 1000);
    if (j->queue.first) ms = j->due_us > now_us ? (uint32_t)((j->due_us - now_us + 999) / 1000) : 0;
    struct timespec until = clock_deadline(ms);
    pthread_cond_timedwait(&j->wake, &j->lock, &until);
}

static void *writer(void *argument) {
    struct journal *j = argument;
    pthread_mutex_lock(&j->lock);
    while (j->queue.first || !j->closing) {
        if (!is_due(j)) {
            tidy_or_wait(j);
            continue;
        }
        struct command *batch = take_batch(j);
        pthread_mutex_unlock(&j->lock);
        run_batch(j, batch);
        pthread_mutex_lock(&j->lock);
        give_results(j, batch);
        pthread_mutex_unlock(&j->lock);
        make_room(j);
        pthread_mutex_lock(&j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    if (pay(j) != SQLITE_OK)
        fprintf(stderr,
                "cohort: %zu stored calls that were refused could not be taken out of %s: they run at the next start\n",
                j->owed_n, j->path);
    return NULL;
}

/* ---- commands: the caller's thread ---- */

static struct command *command_new(enum journal_kind kind, uint64_t number, const void *first, size_t first_len,
                                   const void *second, size_t second_len) {
    size_t size;
    if (size_add(first_len, second_len, &size) || size_add(size, sizeof(struct command), &size)) return NULL;
    struct command *c = mem_alloc(size, 1);
    if (!c) return NULL;
    *c = (struct command){.kind = kind, .number = number, .first_len = first_len, .second_len = second_len};
    c->at_s = (int64_t)time(NULL);
    c->has_blob = first != NULL;
    if (first_len) memcpy(c->bytes, first, first_len);
    if (second_len) memcpy(c->bytes + first_len, second, second_len);
    return c;
}

/* One line a spell: it is over when half of it is written. The lock is held. */
static void refused(struct journal *j) {
    j->counts.refused++;
    if (!j->full)
        fprintf(stderr,
                "cohort: more than %d MiB wait to be written to %s: new stored calls are refused, and those that run "
                "would begin anew after a restart\n",
                JOURNAL_QUEUE_MAX >> 20, j->path);
    j->full = 1;
}

static int queue_command(struct journal *j, struct command *c) {
    if (!c) return COHORT_E_MEMORY;
    size_t bytes = bytes_of(c);
    pthread_mutex_lock(&j->lock);
    if (j->held_bytes >= JOURNAL_QUEUE_MAX) {
        refused(j);
        pthread_mutex_unlock(&j->lock);
        mem_free(c);
        return COHORT_E_BUSY;
    }
    if (!j->queue.first) j->due_us = clock_us() + JOURNAL_COMMIT_MS * 1000;
    int first = !j->queue.first;
    list_add(&j->queue, c);
    j->held_bytes += bytes;
    j->waiting_bytes += bytes;
    j->urgent |= c->urgent;
    if (first || c->urgent || j->waiting_bytes >= JOURNAL_COMMIT_BYTES) pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    return 0;
}

int journal_begin(struct journal *j, const struct journal_begin *b, uint64_t *number) {
    struct journal_counts now;
    journal_get_counts(j, &now);
    if (now.running >= JOURNAL_RUNNING_MAX || b->head_len > JOURNAL_BLOB_MAX || b->body_len > JOURNAL_BLOB_MAX ||
        strlen(b->id) > JOURNAL_ID_MAX || strlen(b->owner) > JOURNAL_OWNER_MAX)
        return COHORT_E_BUSY;
    struct command *c = command_new(JOURNAL_BEGIN, j->next_number, b->head, b->head_len, b->body, b->body_len);
    if (!c) return COHORT_E_MEMORY;
    snprintf(c->id, sizeof c->id, "%s", b->id);
    snprintf(c->owner, sizeof c->owner, "%s", b->owner);
    c->urgent = 1;
    int code = queue_command(j, c);
    if (!code) *number = j->next_number++;
    return code;
}

static int blob_command(struct journal *j, enum journal_kind kind, uint64_t number, uint64_t n, const void *bytes,
                        size_t len, int urgent) {
    if (len > JOURNAL_BLOB_MAX) return COHORT_E_BUSY;
    struct command *c = command_new(kind, number, bytes, len, NULL, 0);
    if (!c) return COHORT_E_MEMORY;
    c->n = n;
    c->urgent = urgent;
    return queue_command(j, c);
}

int journal_event(struct journal *j, uint64_t number, uint64_t n, const void *bytes, size_t len) {
    return blob_command(j, JOURNAL_EVENT, number, n, bytes, len, 0);
}

int journal_note(struct journal *j, uint64_t number, uint64_t n, const void *bytes, size_t len, int urgent) {
    return blob_command(j, JOURNAL_NOTE, number, n, bytes, len, urgent);
}

int journal_end(struct journal *j, uint64_t number, uint64_t events, int status, const void *result, size_t len) {
    if (len > JOURNAL_BLOB_MAX) return COHORT_E_BUSY;
    struct command *c = command_new(JOURNAL_END, number, result, len, NULL, 0);
    if (!c) return COHORT_E_MEMORY;
    c->n = events;
    c->status = status;
    c->urgent = 1;
    return queue_command(j, c);
}

int journal_tried(struct journal *j, uint64_t number, uint32_t tries) {
    return blob_command(j, JOURNAL_TRIED, number, tries, NULL, 0, 0);
}

int journal_cut(struct journal *j, uint64_t number, uint64_t events, uint64_t notes) {
    struct command *c = command_new(JOURNAL_CUT, number, NULL, 0, NULL, 0);
    if (!c) return COHORT_E_MEMORY;
    c->events = events;
    c->n = notes;
    return queue_command(j, c);
}

int journal_remove(struct journal *j, uint64_t number) {
    return blob_command(j, JOURNAL_REMOVE, number, 0, NULL, 0, 1);
}

int journal_fd(const struct journal *j) { return j->fd; }

int journal_next_result(struct journal *j, struct journal_result *out) {
    pthread_mutex_lock(&j->lock);
    struct command *c = list_take(&j->results);
    if (c) {
        assert(j->held_bytes >= bytes_of(c));
        j->held_bytes -= bytes_of(c);
        if (j->held_bytes < JOURNAL_QUEUE_MAX / 2) j->full = 0;
    } else {
        uint64_t count;
        ssize_t got = read(j->fd, &count, sizeof count);
        (void)got;
    }
    pthread_mutex_unlock(&j->lock);
    if (!c) return 0;
    *out = (struct journal_result){.number = c->number, .n = c->n, .kind = c->kind, .code = c->code};
    mem_free(c);
    return 1;
}

void journal_get_counts(struct journal *j, struct journal_counts *out) {
    pthread_mutex_lock(&j->lock);
    *out = j->counts;
    out->queued = j->held_bytes;
    pthread_mutex_unlock(&j->lock);
}

/* ---- life ---- */

int journal_open(const struct journal_options *options, struct journal **out, cohort_error *err) {
    *out = NULL;
    struct journal *j = mem_zalloc(1, sizeof *j);
    if (!j) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the journal");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&j->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&j->lock, NULL);
    pthread_mutex_init(&j->read_lock, NULL);
    list_init(&j->queue);
    list_init(&j->results);
    j->options = *options;
    j->lock_fd = j->begun.fd = -1;
    j->purge = 1;
    j->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = j->fd < 0 ? err_set(err, COHORT_E_IO, NULL, "no descriptor for the journal") : journal_db_open(j, err);
    if (!code) {
        uint64_t highest = count_streams(j);
        j->next_number = (highest > j->begun.highest ? highest : j->begun.highest) + 1;
        j->options.dir = NULL;
        j->started = pthread_create(&j->thread, NULL, writer, j) == 0;
        if (!j->started) code = err_set(err, COHORT_E_MEMORY, NULL, "cannot start the journal's thread");
    }
    if (code)
        journal_close(j);
    else
        *out = j;
    return code;
}

void journal_close(struct journal *j) {
    if (!j) return;
    if (j->started) {
        pthread_mutex_lock(&j->lock);
        j->closing = 1;
        pthread_cond_signal(&j->wake);
        pthread_mutex_unlock(&j->lock);
        pthread_join(j->thread, NULL);
    }
    for (struct command *c; (c = list_take(&j->results));) mem_free(c);
    assert(!j->queue.first);
    journal_db_close(j);
    if (j->fd >= 0) close(j->fd);
    pthread_cond_destroy(&j->wake);
    pthread_mutex_destroy(&j->lock);
    pthread_mutex_destroy(&j->read_lock);
    mem_free(j);
}
