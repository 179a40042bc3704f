/* What the journal's files share: the object, its two connections, the queue. journal_db.c opens, journal.c writes on
 * the thread, journal_read.c reads. */
#ifndef SERVER_JOURNAL_INTERNAL_H
#define SERVER_JOURNAL_INTERNAL_H

#include <pthread.h>
#include <sqlite3.h>
#include <sys/types.h>

#include "server/journal.h"

struct command {
    struct command *next;
    enum journal_kind kind;
    int urgent, status, code;
    uint64_t number, n, events;   /* events: of a cut */
    size_t first_len, second_len; /* begin: head and body; else the blob, and nothing */
    int has_blob;
    char id[JOURNAL_ID_MAX + 1], owner[JOURNAL_OWNER_MAX + 1];
    char bytes[];
};

struct command_list {
    struct command *first, **end;
};

enum statement {
    INSERT_STREAM,
    PUT_EVENT,
    PUT_NOTE,
    COUNT_EVENTS,
    END_STREAM,
    TRY_STREAM,
    CUT_EVENTS,
    CUT_NOTES,
    REMOVE_STREAM,
    FIND_DIRTY,
    PURGE_NOTES,
    PURGE_EVENTS,
    PURGE_STREAM,
    CLEAN_STREAM,
    EXPIRE,
    EXPIRE_OLDEST,
    COUNT_STREAMS,
    BEGIN_BATCH,
    COMMIT_BATCH,
    ROLLBACK_BATCH,
    WRITE_STATEMENTS
};
extern const char *const journal_write_sql[WRITE_STATEMENTS];

enum read_statement {
    READ_FIND,
    READ_UNFINISHED,
    READ_EVENTS,
    READ_NOTES,
    READ_HEAD,
    READ_BODY,
    READ_RESULT,
    READ_STATEMENTS
};

enum { JOURNAL_PATH_MAX = 4096, JOURNAL_FILES = 4 /* the lock, and those that SQLite keeps open */ };

struct journal_file {
    dev_t device;
    ino_t inode;
};

struct journal {
    struct journal_options options;
    char path[JOURNAL_PATH_MAX]; /* of the file; options.dir is not kept */
    int lock_fd;
    struct journal_file files[JOURNAL_FILES]; /* as they were when they were opened */
    sqlite3 *writing;                         /* the thread's, once it runs */
    sqlite3_stmt *write[WRITE_STATEMENTS];
    pthread_mutex_t read_lock; /* over the reading connection */
    sqlite3 *reading;
    sqlite3_stmt *read[READ_STATEMENTS];

    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t wake;
    struct command_list queue, results;
    size_t waiting_bytes; /* in the queue: says when a batch is due */
    size_t held_bytes;    /* in the queue, being written, and results not taken */
    int urgent, closing;
    int full;        /* commands were refused; told on stderr */
    uint64_t due_us; /* when the oldest in the queue has waited enough */
    struct journal_counts counts;
    int fd;
    int started;
    pthread_t thread;

    /* the thread's */
    int failing;          /* told on stderr, and not over yet */
    int gone;             /* the same of a folder that is not the one that was opened */
    int64_t failed_s;     /* the last write that did */
    int purge;            /* something may be left to purge */
    int unrested;         /* something was written since journal_db_rest, */
    uint64_t written_us;  /* the last at this time */
    int64_t expired_s;    /* when was last looked for streams that are too old */
    uint64_t next_number; /* the commanding thread's */
};

/* States of a row. */
enum { STREAM_RUNNING = 0, STREAM_ENDED = 1, STREAM_REMOVED = 2 };

/* Opens both connections and the lock, moves a damaged file aside. */
int journal_db_open(struct journal *j, cohort_error *err);
void journal_db_close(struct journal *j);

/* ---- journal_folder.c ---- */
/* Makes the file if it is not there, and refuses what is no plain file: also what SQLite keeps beside it. */
int journal_make_files(const struct journal *j, cohort_error *err);
int journal_note_files(struct journal *j, cohort_error *err);
/* NULL, or the name that does not mean the file any more that is open. */
const char *journal_missing(const struct journal *j);

/* ---- journal_wal.c ---- */
/* Says on stderr, counts and keeps a copy if SQLite would leave out what was written behind a frame that does not hold.
 * Before SQLite opens the file. */
void journal_look_at_wal(struct journal *j);

/* ---- journal_db.c ---- */
/* Moves what SQLite keeps in front of the file into it. SQLite's code; SQLITE_BUSY if somebody reads. */
int journal_db_rest(struct journal *j);
/* 1: another process's or the disk's doing: whatever is tried next fails, too. */
int journal_is_disk_error(int sqlite_code);
/* 1 if the code says so: the next opening sets the file aside. Any thread. */
int journal_note_damage(const struct journal *j, int sqlite_code);

#endif
