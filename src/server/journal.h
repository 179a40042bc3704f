/* The journal: streams of numbered events that survive the process. Knows nothing of what they say.
 *
 *   DIR/journal.db      SQLite, WAL, synchronous FULL
 *   DIR/journal.begun   what was begun once more, each stream with a checksum (journal_begun.c)
 *   DIR/journal.lock    held (flock) as long as the journal is open
 *
 * A stream has an id, an owner, a head and a body, all opaque; events, numbered from 1, for whoever follows it; and
 * notes, numbered from 1, for whoever has to make its further events after a crash. It runs until it is ended: then it
 * has a result, its notes are forgotten, and it is kept for a time and within bounds of number and bytes, the oldest
 * going first.
 *
 * Commands are queued by one thread and written by the journal's own, many in one transaction: what was reported as
 * written is on the disk, and commands are written in the order in which they came. A failed write is reported, told on
 * stderr once, and tried anew with the next command. So is one that the next start would not find, because the folder
 * was moved or a file of it replaced. Every blob has a checksum: a flipped bit is found when it is read. A stream that
 * was reported as begun is found again whatever single bit or sector of the files is damaged: with its events, or
 * without them as one that runs. One that was reported as removed is not. */
#ifndef SERVER_JOURNAL_H
#define SERVER_JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cohort/cohort.h"

enum {
    JOURNAL_FORMAT = 1,
    JOURNAL_ID_MAX = 63,             /* bytes */
    JOURNAL_OWNER_MAX = 63,          /* bytes */
    JOURNAL_STREAMS_MAX = 10000,     /* ended ones that are kept */
    JOURNAL_TRIES_MAX = 20,          /* more are none of ours */
    JOURNAL_RUNNING_MAX = 100000,    /* others: no more are begun */
    JOURNAL_COMMIT_MS = 10,          /* what is not urgent waits so long for company, */
    JOURNAL_REST_MS = 500,           /* without a write: what SQLite keeps in front of the file is moved into it */
    JOURNAL_COMMIT_BYTES = 64 << 10, /* or until there is so much */
    JOURNAL_BATCH_BYTES = 1 << 20,   /* of one transaction, about */
    JOURNAL_QUEUE_MAX = 64 << 20,    /* bytes that wait to be written, and one command: no more are taken then */
    JOURNAL_BLOB_MAX = 256 << 20,    /* of one blob */
    JOURNAL_CHECKED_MAX = 64 << 20   /* a file of more bytes is not read whole when it is opened */
};
#define JOURNAL_BYTES_MAX                                                                                              \
    (UINT64_C(1) << 30) /* of the file: above it the oldest ended streams go; 5/4 of it is the end */

struct journal;

struct journal_options {
    const char *dir; /* made if it is not there (its parent must be) */
    uint32_t keep_s; /* ended streams are kept for so long */
    uint64_t bytes_max;
    uint32_t streams_max;
};

/* A folder has one server, also one that keeps no journal there. Makes the folder (its parent must be there). E_BUSY:
 * another process has it; E_IO, E_ARGUMENT. With field "state-dir". */
int journal_lock(const char *dir, int *fd, cohort_error *err);
void journal_unlock(int *fd);

/* Takes the lock, too. E_IO: not a folder, not writable. E_BUSY: another process has it. E_UNSUPPORTED: a newer format.
 * All with field "state-dir". A damaged file is moved aside, with a line on stderr, and a new one begun. */
int journal_open(const struct journal_options *options, struct journal **out, cohort_error *err);
/* Writes what is queued and closes. NULL is allowed. */
void journal_close(struct journal *j);

/* ---- Commands: one thread. E_BUSY: the queue is full; E_MEMORY. Nothing is queued then. ---- */
struct journal_begin {
    const char *id, *owner;
    const void *head, *body;
    size_t head_len, body_len;
};
int journal_begin(struct journal *j, const struct journal_begin *stream, uint64_t *number);
int journal_event(struct journal *j, uint64_t number, uint64_t n, const void *bytes, size_t len);
/* `urgent`: somebody waits for it. */
int journal_note(struct journal *j, uint64_t number, uint64_t n, const void *bytes, size_t len, int urgent);
/* Ends a stream that has the events 1 to `events`. `status` and the result are for the readers; result NULL: none. */
int journal_end(struct journal *j, uint64_t number, uint64_t events, int status, const void *result, size_t len);
/* How often it was tried to go on with it. */
int journal_tried(struct journal *j, uint64_t number, uint32_t tries);
/* Drops the events and notes behind these numbers, which a gap or damage made useless: they are made anew, notes maybe
 * in another order. */
int journal_cut(struct journal *j, uint64_t number, uint64_t events, uint64_t notes);
/* Forgets a stream, running or ended. */
int journal_remove(struct journal *j, uint64_t number);

struct journal_result {
    uint64_t number, n; /* n: of an event or a note */
    enum journal_kind {
        JOURNAL_BEGIN,
        JOURNAL_EVENT,
        JOURNAL_NOTE,
        JOURNAL_END,
        JOURNAL_TRIED,
        JOURNAL_CUT,
        JOURNAL_REMOVE
    } kind;
    int code; /* 0: it is on the disk. E_CLOSED: the folder is not the one any more that was opened */
};
/* Readable while there are results. The journal's; do not close. */
int journal_fd(const struct journal *j);
/* 1: one was taken. 0: none left, and the descriptor is not readable any more. Each command has one, in their order. */
int journal_next_result(struct journal *j, struct journal_result *out);

/* ---- Reading what is written: any thread; waits for the disk, and for other readers. E_FILE: damaged; E_IO: another
 * fault, which may pass ---- */
struct journal_stream {
    uint64_t number;
    char id[JOURNAL_ID_MAX + 1], owner[JOURNAL_OWNER_MAX + 1];
    int ended, status;
    uint32_t tries;
    uint64_t events; /* of an ended one */
    int64_t begun;   /* seconds of the epoch */
    int has_result;
};
/* E_NOT_FOUND: nothing of this owner has this very id. */
int journal_find(struct journal *j, const char *id, const char *owner, struct journal_stream *out, cohort_error *err);
/* Streams that were not ended, oldest first, until `each` returns another value than 0, which is then returned. */
int journal_unfinished(struct journal *j, int (*each)(void *user, const struct journal_stream *stream), void *user,
                       cohort_error *err);
typedef int (*journal_each)(void *user, uint64_t n, const char *bytes, size_t len); /* another value than 0 ends it */
/* Events (notes) from number `from` on, up to the first that is missing or does not hold its checksum: that one and all
 * behind it are not told. */
int journal_events(struct journal *j, uint64_t number, uint64_t from, journal_each each, void *user, cohort_error *err);
int journal_notes(struct journal *j, uint64_t number, uint64_t from, journal_each each, void *user, cohort_error *err);
/* Appends to *out. E_FILE: damaged. E_NOT_FOUND. */
enum journal_part { JOURNAL_HEAD, JOURNAL_BODY, JOURNAL_RESULT };
int journal_part(struct journal *j, uint64_t number, enum journal_part part, struct buf *out, cohort_error *err);

/* The checksum of a blob and its place. Pure. */
int64_t journal_sum(uint64_t number, uint64_t n, const void *bytes, size_t len);

struct journal_counts {
    uint64_t bytes, ended, running; /* bytes: of the file, in use */
    uint64_t queued;                /* bytes of commands whose results were not taken yet */
    uint64_t commits, failures;     /* so far */
    uint64_t refused;               /* commands that found the queue full */
    uint64_t lost_frames;           /* pages that were written last before the start and are lost by damage */
    uint64_t regained;              /* streams that the file had lost, or damaged, at the start */
    uint64_t damaged_places;        /* of journal.begun, met so far */
};
void journal_get_counts(struct journal *j, struct journal_counts *out);

#endif
