/* What the journal's files share: the object, its two connections, the queue. journal_db.c opens, journal.c writes on
 * the thread, journal_read.c reads; journal_begun.c has the second copy, journal_regain.c brings the two together. */
#ifndef SERVER_JOURNAL_INTERNAL_H
#define SERVER_JOURNAL_INTERNAL_H

#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "server/journal.h"

struct command {
    struct command *next;
    enum journal_kind kind;
    int urgent, status, code;
    int64_t at_s;                 /* when a stream was begun, or ended: seconds of the epoch */
    uint64_t number, n, events;   /* events: of a cut */
    size_t first_len, second_len; /* begin: head and body; else the blob, and nothing */
    int has_blob;
    char id[JOURNAL_ID_MAX + 1], owner[JOURNAL_OWNER_MAX + 1];
    char bytes[];
};

/* What a command costs beside its bytes, about; and how many fit in a batch. */
enum {
    JOURNAL_COMMAND_OVERHEAD = 128,
    JOURNAL_BATCH_COMMANDS = JOURNAL_BATCH_BYTES / (sizeof(struct command) + JOURNAL_COMMAND_OVERHEAD) + 1
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
    FIND_REMOVED,
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

enum { JOURNAL_PATH_MAX = 4096, JOURNAL_FILES = 5 /* that stay open */ };

struct journal_file {
    dev_t device;
    ino_t inode;
};

/* In journal.begun, as it is in the file. */
struct begun_record {
    uint64_t magic;
    int32_t state, status; /* a row's; status, ended and events: of one that has ended */
    uint64_t number;
    int64_t begun, ended;
    uint64_t events, head_len, body_len;
    uint8_t payload_sum[16];
    char id[JOURNAL_ID_MAX + 1], owner[JOURNAL_OWNER_MAX + 1];
    uint8_t unused[32], sum[16];
};

struct begun_entry {
    uint64_t number, at, bytes; /* bytes: 0 if it was erased */
};

struct begun {
    int fd, error; /* errno of the last write that failed */
    uint64_t seed, format;
    uint64_t size, live; /* bytes of the file, and of the records in it that live */
    uint64_t due;        /* it is not written anew below this size: it failed */
    struct buf index;    /* struct begun_entry, the first `sorted` by number: only these are found */
    size_t sorted;       /* entries; but for journal_regain, all */
    size_t erased;       /* entries */
    uint64_t highest;    /* number of a stream */
    uint64_t damaged;    /* places that were met and do not hold, */
    uint64_t walked;     /* and those of them that the last journal_begun_each met */
    int unsynced;
    int unlisted; /* its name may not be on the disk yet */
    int apart;    /* the rows could not be compared with it: it is not written anew, which would lose what they lost */
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
    int checked; /* the file was small enough to be read whole when it was opened */
    pthread_t thread;

    /* the thread's */
    struct begun begun;                    /* the opener's, before it runs */
    int failing;                           /* told on stderr, and not over yet */
    int gone;                              /* the same of a folder that is not the one that was opened */
    int64_t failed_s;                      /* the last write that did */
    int purge;                             /* something may be left to purge */
    uint64_t owed[JOURNAL_BATCH_COMMANDS]; /* rows of streams that were refused, and are not removed yet */
    size_t owed_n;
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
/* Opens a plain file and nothing else; never waits, as opening a pipe would. `flags`: O_CREAT or 0. -1 and errno ENOENT
 * without a word if it is not there. */
int journal_open_plain(const char *path, int flags, cohort_error *err);
/* Makes the file if it is not there, and refuses what is no plain file: also what SQLite keeps beside it. */
int journal_make_files(const struct journal *j, cohort_error *err);
int journal_note_files(struct journal *j, cohort_error *err);
/* The same of one that the journal has replaced by itself. */
void journal_note_file(struct journal *j, const char *name, const struct stat *is);
/* NULL, or the name that does not mean the file any more that is open. */
const char *journal_missing(const struct journal *j);

/* ---- journal_wal.c ---- */
/* Says on stderr, counts and keeps a copy if SQLite would leave out what was written behind a frame that does not hold.
 * Before SQLite opens the file. */
void journal_look_at_wal(struct journal *j);

/* ---- journal_begun.c: 0, or COHORT_E_IO and begun.error ---- */
int journal_begun_open(struct journal *j, cohort_error *err);
void journal_begun_close(struct journal *j);
/* Every record that holds. `each` may change its head, which is written then; `payload`: head and body, NULL of one
 * that was removed. Another value than 0 ends it. */
typedef int (*journal_begun_each_fn)(void *user, struct begun_record *r, const char *payload);
int journal_begun_each(struct journal *j, journal_begun_each_fn each, void *user);
/* `r`: all but magic and sums. In the order of the numbers, or journal_begun_sort comes behind it. */
int journal_begun_add(struct journal *j, struct begun_record *r, const char *head, const char *body);
void journal_begun_sort(struct journal *j);
int journal_begun_has(const struct journal *j, uint64_t number);
void journal_begun_ended(struct journal *j, uint64_t number, int64_t ended, uint64_t events, int status);
int journal_begun_erase(struct journal *j, uint64_t number);
int journal_begun_sync(struct journal *j);
/* Most of it is of streams that are forgotten: `times` of what lives. */
int journal_begun_is_due(const struct journal *j, unsigned times);
/* Only while nothing lies in front of SQLite's file (journal_db_rest): a removed stream's head is not copied, and its
 * row would come back with a page that is lost there. `keep`: the old one stays as journal.begun.damaged. */
int journal_begun_rewrite(struct journal *j, int keep);

/* ---- journal_regain.c ---- */
/* Brings the rows and the second copy together when the journal is opened. SQLite's code: of damage. */
int journal_regain(struct journal *j);
/* Writes the second copy anew; as journal_begun_rewrite. */
void journal_regain_tidy(struct journal *j);

/* ---- journal_db.c ---- */
/* Moves what SQLite keeps in front of the file into it. SQLite's code; SQLITE_BUSY if somebody reads. */
int journal_db_rest(struct journal *j);
/* SQLITE_OK: the check that this pragma is finds nothing. */
int journal_check(sqlite3 *db, const char *pragma);
/* 1: another process's or the disk's doing: whatever is tried next fails, too. */
int journal_is_disk_error(int sqlite_code);
/* 1 if the code says so: the next opening sets the file aside. Any thread. */
int journal_note_damage(const struct journal *j, int sqlite_code);

#endif
