/* The disk tier: copies of blocks of state that survive the process. One folder, one server at a time.
 *
 *   DIR/lock                  held (flock) as long as the folder is open
 *   DIR/index.db              SQLite, WAL: the format, the identity, one record per block, sessions
 *   DIR/pages-GROUP-N.seg     page-aligned segments: a header, then slots of one page of that layer group each
 *
 * A record is a block of the prefix tree: its parent's record, its space, its tokens, and for each group that it has a
 * slot and the XXH3 of the page's bytes together with the record's tokens. Files are named by this module only.
 *
 * Threads: everything here is called by one thread (the engine's); a thread of the module's own reads, writes and talks
 * to SQLite. Results are collected with disk_poll; `wake` is called (on the module's thread) when there are some. Reads
 * go before writes, save that a block is never read before it is written.
 *
 * What survives what. A record is committed only after its pages are written (fdatasync, then a group commit), so an
 * index entry always names whole pages, unless the disk lied: checksums find that, and every torn or flipped byte. A
 * slot whose record is removed is used again only after the removal is committed. Nothing is used before its checksum
 * held; what does not hold is removed with a line on stderr, and all behind it. A write that fails (disk full, folder
 * gone) is reported, counted and nothing else: whoever reads the block reads it from memory or computes it again. A
 * process that is killed loses what it wrote in about the last 50 ms, unless it waited for a barrier. */
#ifndef STATE_DISK_H
#define STATE_DISK_H

#include <stddef.h>
#include <stdint.h>

#include "backend/program.h"
#include "base/err.h"
#include "pages/pages.h"

enum {
    DISK_FORMAT = 1,
    DISK_SPACE_MAX = 512,         /* bytes of a space's name */
    DISK_NAME_MAX = 256,          /* bytes of a session's name */
    DISK_SESSIONS_MAX = 4096,     /* named at one time: the one used longest ago goes */
    DISK_SEGMENT_BYTES = 64 << 20 /* of a segment, rounded to whole slots */
};
#define DISK_QUEUE_BYTES (UINT64_C(64) << 20) /* pages that wait to be written */

/* What stored state depends on. Another identity in the folder: its records are removed and counted in one line on
 * stderr, since they are of no use; the folder is not refused for that. */
struct disk_identity {
    uint8_t model[16], tokenizer[16]; /* digests */
    uint32_t numerics, page_layout;
    uint32_t groups;
    uint32_t window[PROGRAM_GROUPS_MAX];
    uint64_t page_bytes[PROGRAM_GROUPS_MAX];
};

struct disk_options {
    const char *dir; /* made if it is not there (its parent must be) */
    uint64_t bytes_max;
    struct disk_identity identity;
    void (*wake)(void *user);
    void *user;
};

struct disk;

/* E_ARGUMENT: bytes_max is too small for one block, or a bad identity. E_IO: not a folder, not writable, or a damaged
 * index (which is moved aside by name, with a line on stderr, and begun anew; only what cannot be moved is an error).
 * E_BUSY: another process has it. E_UNSUPPORTED: a newer format. All with field "state-dir". */
int disk_open(const struct disk_options *options, struct disk **out, cohort_error *err);
/* Writes what is queued, at most for some seconds, and closes. NULL is allowed. */
void disk_close(struct disk *d);

struct disk_record {
    uint64_t id, parent; /* parent: 0 for the first block of a space; below id */
    const char *space;   /* the space's name; of first blocks only, else "" */
    size_t space_n;
    const int32_t *tokens;
    uint32_t n;
    uint32_t groups; /* bit g: there is a page */
};
/* All records, parents first. For right after disk_open, on the caller's thread. `each` returns 0 to forget the record.
 */
int disk_each(struct disk *d, int (*each)(void *user, const struct disk_record *record), void *user, cohort_error *err);

/* Room for a record of these groups within bytes_max, after everything that is queued. If not, the caller removes
 * something: its room counts as free at once, though its slot is used again only later. What counts are slots and
 * 512 bytes for each record; SQLite's log comes on top (some MiB). */
int disk_has_room(const struct disk *d, uint32_t groups);
/* Copies the pages and queues them. A record without any is one on the way to others. *id: 0: a new record is made and
 * its id returned at once; else more groups for that one, of which it takes those that it does not have. E_AGAIN: the
 * queue is full, later. E_LIMIT: no room. E_NOT_FOUND: the record, or its parent, is gone (it failed). E_ARGUMENT,
 * E_MEMORY. E_CLOSED: the disk failed for good. */
int disk_write(struct disk *d, const struct disk_record *record, const void *const page[], uint64_t *id);
/* Queues: reads the page of `group` of each record into `to`. The memory must stay until the result. At most one result
 * for all of them; on a failure `record` in the result names the first bad one, which is gone then, with all behind it.
 * E_MEMORY. */
struct disk_want {
    uint64_t id;
    uint32_t group;
    void *to;
};
int disk_read(struct disk *d, const struct disk_want *wants, size_t n, uint64_t tag);
/* Forgets a record and all behind it. Numbers that are gone are ignored. A read of it that is queued fails. */
void disk_remove(struct disk *d, uint64_t id);

/* Sessions: a name under which a record is found again. Putting one: 0, or E_NOT_FOUND if the record is not there. */
int disk_session_put(struct disk *d, const char *name, size_t name_n, uint64_t record, uint32_t tokens);
int disk_is_named(const struct disk *d, uint64_t record); /* 1: some session is this record */
int disk_session_get(const struct disk *d, const char *name, size_t name_n, uint64_t *record, uint32_t *tokens);
void disk_session_drop(struct disk *d, const char *name, size_t name_n);
/* A result with this tag follows when all that was queued before is on the disk. */
int disk_barrier(struct disk *d, uint64_t tag);

struct disk_result {
    enum disk_kind { DISK_READ, DISK_WRITE, DISK_BARRIER } kind;
    /* WRITE: told of failures only. The record is gone, with all behind it, of which those that were still queued are
     * told, too; it may have been removed by disk_remove meanwhile. BARRIER: not 0 if anything that was queued since
     * the barrier before did not get to the disk. */
    int code;
    uint64_t tag;    /* READ, BARRIER */
    uint64_t record; /* WRITE: whose; READ: the first bad one */
};
int disk_poll(struct disk *d, struct disk_result *out); /* 1: one was taken */

struct disk_counts {
    uint64_t records, sessions, bytes, bytes_max, queued_bytes;
    uint64_t written, read, removed, failed_writes, failed_reads, discarded; /* records so far; discarded: at open */
};
void disk_get_counts(const struct disk *d, struct disk_counts *out);

/* ---- Looking at a folder that no server has open (disk_tool.c). Any thread. ---- */
/* Text or JSON into mem_alloc'ed *out: the format, the identity, and each stored sequence (ending in a record without
 * children, or one that a session names) with its id, tokens, bytes, age and sessions. Also while a server runs.
 * All three: E_NOT_FOUND if nothing is stored there. */
int disk_list(const char *dir, int json, char **out, size_t *len, cohort_error *err);
/* Reads everything: *bad records of *all do not hold what their checksums say; each is named on stderr. `repair`:
 * removes them and all behind them. E_BUSY while a server runs and `repair`. */
int disk_verify(const char *dir, int repair, uint64_t *all, uint64_t *bad, cohort_error *err);
/* Removes one sequence up to where others share it, or everything (id 0), or what was not used for `unused_s` seconds
 * (id 0, unused_s > 0). */
int disk_clear(const char *dir, uint64_t id, uint64_t unused_s, uint64_t *removed, cohort_error *err);

#endif
