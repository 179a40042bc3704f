/* The disk tier's parts. From the ground up:
 *
 *   disk_segments.c   segment files: slots are read, written, synced, given back to the file system
 *   disk_index.c      what is known of every record, in memory: tree, slots, sessions. No files
 *   disk_db.c         the same in SQLite
 *   disk_store.c      a folder with all three: its lock, opening with every check, sums of pages
 *   disk_work.c       the thread: what it does with queues, and group commits
 *   disk.c            disk.h's calls
 *   disk_tool.c       folders from outside
 *
 * Locking. `struct disk` has one mutex for the index, the queues and the counts. Whoever calls holds it for short; the
 * thread never holds it during input or output. Segments and database are the opener's until the thread starts, then
 * the thread's alone.
 *
 * Sums. A record's `chain` is the XXH3 of its id, its parent's chain, its tokens and its space's name; that of a page
 * is seeded with the chain and the group; the index has one sum more over chain, slots and sums of pages. So a flipped
 * bit anywhere, a page of another record and a record under another parent do not hold. */
#ifndef STATE_DISK_INTERNAL_H
#define STATE_DISK_INTERNAL_H

#include <pthread.h>

#include "state/disk.h"

enum {
    DISK_GROUPS_MAX = PROGRAM_GROUPS_MAX,
    DISK_ALIGN = 4096,       /* of slots; a segment's header is as long */
    DISK_RECORD_BYTES = 512, /* what a record counts for, beside its slots: its row in the index, generously */
    DISK_RECORDS_MAX = 1 << 20,
    DISK_SLOTS_MAX = 1 << 28, /* per group */
    DISK_SEGMENTS_MAX = 1 << 20,
    DISK_OPEN_MAX = 32, /* segments that are open at one time */
    DISK_IDENTITY_BYTES = 44 + 12 * DISK_GROUPS_MAX,
    DISK_LINGER_MS = 50,          /* how long what is written waits for more before it is committed */
    DISK_RETRY_MS = 1000,         /* after a commit that failed */
    DISK_CLOSE_MS = 5000,         /* for what is queued when the folder is closed */
    DISK_COMMIT_BYTES = 16 << 20, /* in one commit at most (and one record more) */
    DISK_JOBS_MAX = 1 << 16,      /* in the queue of writes */
    DISK_TOUCHED_MAX = 1 << 12    /* records whose time of use waits to be written; more are not noted */
};
#define DISK_ID_MAX   (UINT64_C(1) << 48)
#define DISK_NONE     UINT32_MAX
#define DISK_PAGE_MAX (UINT64_C(1) << 32) /* bytes of a page */

/* ---- disk_segments.c: one thread at a time. Fallible functions return 0 or an errno ---- */
struct disk_segment {
    int fd;        /* -1: not open now */
    uint8_t known; /* the file is there and its header holds */
    uint8_t dirty; /* written since the last sync */
    uint64_t size; /* bytes of the file when it was looked at */
    uint64_t used; /* the clock at the last use */
};
struct disk_segments {
    int folder, writable;
    uint32_t groups;
    uint64_t page_bytes[DISK_GROUPS_MAX], slot_bytes[DISK_GROUPS_MAX];
    uint32_t slots[DISK_GROUPS_MAX]; /* of a segment */
    uint8_t identity[16];            /* digest, in every header */
    struct disk_segment *list[DISK_GROUPS_MAX];
    uint32_t n[DISK_GROUPS_MAX];
    uint32_t open;
    uint64_t clock;
    int created; /* names that are not synced */
};
void disk_segments_init(struct disk_segments *s, int folder, int writable, const struct disk_identity *identity,
                        const uint8_t digest[16]);
void disk_segments_deinit(struct disk_segments *s);
/* Whether the slot's segment is there, is one of ours and long enough; below 0: an errno that says nothing of that. */
int disk_segments_has(struct disk_segments *s, uint32_t group, uint32_t slot);
int disk_segments_read(struct disk_segments *s, uint32_t group, uint32_t slot, void *to);
int disk_segments_write(struct disk_segments *s, uint32_t group, uint32_t slot, const void *page);
int disk_segments_sync(struct disk_segments *s); /* everything written and every new name */
void disk_segments_give_back(struct disk_segments *s, uint32_t group, uint32_t slot); /* a slot's room, if possible */
void disk_segments_unlink(struct disk_segments *s, uint32_t group, uint32_t number);
/* Whether a folder's entry is a segment's (1) or one half made (2). */
int disk_segments_name(const char *name, uint32_t *group, uint32_t *number);
static inline uint64_t disk_slot_bytes(uint64_t page_bytes) {
    uint64_t bytes = (page_bytes + DISK_ALIGN - 1) / DISK_ALIGN * DISK_ALIGN;
    return bytes ? bytes : DISK_ALIGN;
}

/* ---- disk_index.c: under the lock ---- */
enum { DISK_FREE, DISK_LIVE, DISK_REMOVING }; /* REMOVING: forgotten, but its removal is not committed */
struct disk_entry {
    uint64_t id, chain;
    uint64_t sum[DISK_GROUPS_MAX];
    char *space; /* NULL if it has none */
    uint32_t slot[DISK_GROUPS_MAX];
    int32_t tokens[PAGE_TOKENS];
    uint32_t parent, child, next, before; /* DISK_NONE; `before`: the sibling in front */
    uint32_t link;                        /* of the free and the removing list */
    uint32_t used;                        /* seconds since 1970 */
    uint16_t space_n, sessions;
    uint8_t n, state;
    uint8_t groups;  /* has a slot */
    uint8_t written; /* the page is in its slot, so it can be read */
};
struct disk_slots {
    uint64_t *taken; /* a bit per slot */
    uint32_t words, hint;
};
struct disk_session {      /* row i of the table */
    uint64_t hash, record; /* record 0: free */
    uint64_t used;         /* the clock of uses: the smallest is the oldest */
    uint32_t tokens;
    uint16_t name_n;
    uint8_t dirty; /* 1: the table has something else; 2: this is being committed */
    char name[DISK_NAME_MAX];
};
struct disk_index {
    struct disk_entry *entries;
    uint32_t entries_n, entries_cap, free_entries;
    uint32_t *map; /* open addressing, id -> entry */
    uint32_t map_size;
    uint32_t first;    /* of the blocks without a parent */
    uint32_t records;  /* live */
    uint32_t removing; /* list */
    uint64_t next_id, bytes;
    uint32_t groups;
    uint64_t slot_bytes[DISK_GROUPS_MAX];
    struct disk_slots slots[DISK_GROUPS_MAX];
    struct disk_session *sessions; /* DISK_SESSIONS_MAX */
    uint32_t sessions_n, sessions_dirty;
    uint64_t clock;
};
int disk_index_init(struct disk_index *x, uint32_t groups, const uint64_t slot_bytes[]); /* E_MEMORY */
void disk_index_deinit(struct disk_index *x);
uint32_t disk_index_find(const struct disk_index *x, uint64_t id); /* DISK_NONE */
/* A live record without groups behind `parent` (an entry or DISK_NONE). E_MEMORY, E_LIMIT. */
int disk_index_add(struct disk_index *x, uint32_t parent, const struct disk_record *record, uint32_t *out);
int disk_index_take_slot(struct disk_index *x, uint32_t entry, uint32_t group); /* any; E_MEMORY, E_LIMIT */
/* Gives slots back that no transaction ever named. */
void disk_index_return_slots(struct disk_index *x, uint32_t entry, uint32_t groups);
/* Exactly that one; E_BUSY if it is another's. */
int disk_index_claim_slot(struct disk_index *x, uint32_t entry, uint32_t group, uint32_t slot);
/* Turns the record and all behind it REMOVING, and drops their sessions. Returns how many. */
uint32_t disk_index_remove(struct disk_index *x, uint32_t entry);
void disk_index_forget(struct disk_index *x, uint32_t entry); /* a REMOVING one that is in no list: frees slots, too */
int disk_index_slots_free(const struct disk_index *x, uint32_t group, uint32_t first, uint32_t n); /* all of them */
uint64_t disk_index_cost(const struct disk_index *x, uint32_t groups); /* bytes of a record of these */
uint32_t disk_index_next(const struct disk_index *x, uint32_t entry);  /* parents first; DISK_NONE: from/at the end */
uint64_t disk_chain(uint64_t id, uint64_t parent_chain, const int32_t *tokens, uint32_t n, const char *space,
                    size_t space_n);
struct disk_session *disk_index_session(const struct disk_index *x, const char *name, size_t n);
/* The record must be live. Takes the place of the one used longest ago if there is no other. */
struct disk_session *disk_index_session_put(struct disk_index *x, const char *name, size_t n, uint32_t entry,
                                            uint32_t tokens);
void disk_index_session_drop(struct disk_index *x, struct disk_session *session);

/* ---- disk_db.c: one thread at a time ---- */
struct sqlite3;
struct sqlite3_stmt;
enum {
    DISK_DB_PUT,
    DISK_DB_DEL,
    DISK_DB_TOUCH,
    DISK_DB_SESSION_PUT,
    DISK_DB_SESSION_DEL,
    DISK_DB_GET,
    DISK_DB_STATEMENTS
};
struct disk_db {
    struct sqlite3 *db;
    struct sqlite3_stmt *statements[DISK_DB_STATEMENTS];
};
enum { DISK_DB_DAMAGED = 1 }; /* beside the codes of cohort.h */
/* `path`: of index.db. */
int disk_db_open(struct disk_db *b, const char *path, int writable, cohort_error *err);
void disk_db_close(struct disk_db *b);
/* *there: 0 if none is written down yet. */
int disk_db_identity(struct disk_db *b, uint8_t out[DISK_IDENTITY_BYTES], int *there, cohort_error *err);
/* Removes every record and session (*records: how many) and writes the identity. */
int disk_db_reset(struct disk_db *b, const uint8_t identity[DISK_IDENTITY_BYTES], uint64_t *records, cohort_error *err);
/* Fills the index. `segments` says which slots there are. What does not hold is left out and told to `bad`. */
typedef void disk_bad_fn(void *user, uint64_t id, const char *why);
int disk_db_load(struct disk_db *b, struct disk_index *x, struct disk_segments *segments, disk_bad_fn *bad, void *user,
                 cohort_error *err);
/* Inside a transaction; SQLite's code. */
int disk_db_begin(struct disk_db *b);
int disk_db_put(struct disk_db *b, const struct disk_entry *entry, uint64_t parent);
int disk_db_remove(struct disk_db *b, uint64_t id);
int disk_db_touch(struct disk_db *b, uint64_t id, uint32_t used);
int disk_db_session(struct disk_db *b, uint32_t row, const struct disk_session *session, uint64_t chain);
int disk_db_commit(struct disk_db *b);
void disk_db_rollback(struct disk_db *b);
int disk_db_is_fatal(int code); /* no use in going on with this database */
const char *disk_db_text(int code);
/* Whether the record is still there as the entry says it. */
int disk_db_same(struct disk_db *b, const struct disk_entry *entry);

/* ---- disk_store.c: one thread at a time, but for what the mutex guards ---- */
enum disk_mode {
    DISK_LOOK,   /* nothing is changed, and a server may be at work */
    DISK_CHANGE, /* locked; what is there is taken over, with its identity */
    DISK_OWN     /* the same, made if it is not there, for one identity */
};
struct disk_store {
    const char *path; /* as given, borrowed while it is opened, then a copy: for lines to people */
    int folder, lock;
    uint64_t lock_file, index_file; /* inode numbers */
    struct disk_identity identity;  /* groups 0: the folder has none */
    struct disk_segments segments;
    struct disk_db db;
    pthread_mutex_t mutex;
    struct disk_index index; /* under it */
    uint64_t discarded;
};
/* `identity`: of DISK_OWN. `bad` (may be NULL) is told of each record that was left out. E_NOT_FOUND if nothing is
 * there, but for DISK_OWN. On failure nothing is left open. */
int disk_store_open(struct disk_store *s, const char *dir, enum disk_mode mode, const struct disk_identity *identity,
                    disk_bad_fn *bad, void *user, cohort_error *err);
void disk_store_close(struct disk_store *s);
/* One line on stderr that names the folder. */
void disk_store_say(const struct disk_store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether the lock and the index are still what the folder's names mean: else what is written would be lost, or another
 * process could have the folder. */
int disk_store_is_there(const struct disk_store *s);
uint64_t disk_page_sum(const void *page, uint64_t bytes, uint64_t chain, uint32_t group);
/* Reads a page of the entry and compares its sum. NULL, or why it is not to be used. */
const char *disk_store_read(struct disk_store *s, const struct disk_entry *entry, uint32_t group, void *to);
/* Entries that are being removed, linked: takes them out of the database, inside a transaction (SQLite's code). */
int disk_store_delete(struct disk_store *s, uint32_t list);
/* When that is committed: forgets them and gives their slots back. */
void disk_store_release(struct disk_store *s, uint32_t list);
uint32_t disk_now(void); /* seconds since 1970 */

/* ---- disk.c, disk_work.c ---- */
struct disk_job { /* then its result */
    struct disk_job *next;
    enum disk_kind kind;
    int code;
    uint64_t tag, record;
    uint32_t groups;
    size_t bytes; /* that are queued */
    char *pages;  /* one after another */
    size_t wants_n;
    struct disk_want wants[];
};
struct disk_queue {
    struct disk_job *first, **end;
};
void disk_queue_init(struct disk_queue *q);
void disk_queue_add(struct disk_queue *q, struct disk_job *job);
struct disk_job *disk_queue_take(struct disk_queue *q); /* NULL if empty */
void disk_job_free(struct disk_job *job);

struct disk {
    struct disk_store store;
    uint64_t bytes_max;
    void (*wake)(void *user);
    void *user;
    pthread_t thread;
    pthread_cond_t cond;
    /* under the store's mutex */
    struct disk_queue reads, writes, results; /* writes: barriers, too */
    uint32_t writes_n;
    int closing, broken;
    uint64_t close_us; /* when closing: the end of patience */
    uint64_t queued_bytes;
    uint64_t touched[DISK_TOUCHED_MAX];
    uint32_t touched_n;
    uint64_t written, read, removed, failed_writes, failed_reads;
    /* the thread's */
    struct disk_queue staged; /* written, not committed */
    size_t staged_bytes;
    uint64_t commit_us; /* not before */
    int lost;           /* something since the last barrier did not get there */
    int said;           /* that writing fails, and it has not worked for a while since */
    uint64_t failed_us; /* when it did last */
};
void *disk_work(void *disk); /* the thread */

#endif
