/* The engine's half of the prefix store: which space a request belongs to, the bytes that move because of it (copies of
 * pages, loads from the disk tier, writes to it), and sessions. What is stored and what is taken is decided in
 * src/sched and src/pages; the bytes lie in src/state. Engine thread, but for what says otherwise. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "engine/records.h"
#include "engine/spaces.h"
#include "pages/prefix.h"
#include "sched/sched.h"
#include "state/disk.h"
#include "state/state.h"

struct cohort_engine;
struct row;
struct session_call;

enum {
    CACHE_SESSIONS_MAX = 1024, /* known at one time: the one used longest ago is forgotten */
    CACHE_SESSIONS_SHARE = 64, /* of them a tenant may have before its own make room first */
    CACHE_SESSION_WEIGHT = 16, /* what a session leaves is worth so many times its tokens */
    CACHE_WRITES_A_TURN = 8,   /* blocks that are handed to the disk between two iterations */
    CACHE_EVICT_MOST = 64,     /* copies that make room for one */
    CACHE_FLUSH_MS = 5000      /* for what is not on the disk yet when the engine ends */
};

struct session {
    struct space_name name; /* tenant and session */
    uint32_t tenant;
    prefix_block block; /* a whole one, unless there is none */
    uint32_t tokens;
    uint64_t used;
};

struct cache {
    struct prefix *prefix;
    struct spaces *spaces;
    uint32_t groups;
    uint64_t page_bytes[PAGES_GROUPS_MAX];

    struct disk *disk; /* NULL: no state_dir */
    struct records records;
    prefix_block fresh; /* a block that is to be written, and had to wait; 0: none */
    uint32_t fresh_groups;
    int fresh_waits;               /* for a barrier */
    int failed;                    /* writing was given up */
    struct disk_identity identity; /* if there is a disk */
    prefix_block *pinned;          /* blocks that saved sessions are, found when room was made: DISK_SESSIONS_MAX */
    uint32_t pinned_n;
    void *scratch; /* one page of the largest group: for reading what is only checked */

    struct session *sessions;
    uint32_t sessions_n;
    uint64_t sessions_used;
    struct session_call *calls; /* that wait for the disk */
    uint64_t lookups, hits, restores, disk_evicted;
};

int cache_open(struct cohort_engine *e, const struct state_plan *plan, cohort_error *err);
void cache_close(struct cohort_engine *e);

/* A row comes and goes. */
void cache_enter(struct cohort_engine *e, struct row *row);
void cache_leave(struct cohort_engine *e, struct row *row, prefix_block stored); /* stored: its last block; 0: none */
void cache_count(struct cohort_engine *e, uint32_t cached); /* a request that may use the store ended */

/* Behind sched_plan, before the launch: makes the copies, begins the loads. 1: there were some, and a load that failed
 * at once may have left a row that can be planned. */
int cache_moves(struct cohort_engine *e);
/* At the beginning of a turn: takes in what the disk has done. 1: there was something. */
int cache_turn(struct cohort_engine *e);
/* While an iteration runs: hands the disk what is new. Stored pages are not written any more. 1: there was something.
 */
int cache_writes(struct cohort_engine *e);
/* The engine ends: session calls that wait are refused, and, if `flush`, what is worth it goes to the disk. */
void cache_end(struct cohort_engine *e, int flush);
/* What the store and the disk have to say, asked outside of any lock, and put into the metrics under theirs. */
struct cache_sight {
    struct prefix_counts store;
    struct disk_counts disk;
};
void cache_look(const struct cohort_engine *e, struct cache_sight *out);
void cache_metrics(const struct cohort_engine *e, const struct cache_sight *sight, cohort_metrics *out);

/* spill.c: the disk tier's side. */
int spill_open(struct cohort_engine *e, cohort_error *err);
int spill_results(struct cohort_engine *e);
int spill_writes(struct cohort_engine *e);
int spill_idle(const struct cohort_engine *e); /* everything worth it was handed over */
void spill_load(struct cohort_engine *e, const struct sched_load *load);
void spill_forget_space(struct cohort_engine *e, uint64_t space);
/* The block's whole path has copies of what it needs. */
int spill_holds(const struct cohort_engine *e, prefix_block block, uint64_t *bytes);
/* Reads the block's whole path to check it; the result comes to sessions_read with this tag. 0 or a code. */
int spill_check(struct cohort_engine *e, prefix_block block, uint64_t tag);

/* sessions.c */
void sessions_put(struct cache *c, const struct space_name *name, uint32_t tenant, prefix_block block, uint32_t tokens);
int sessions_turn(struct cohort_engine *e);
void sessions_read(struct cohort_engine *e, uint64_t tag, int code);
void sessions_end(struct cohort_engine *e);

/* identity.c: what stored state and answers depend on. Any thread; reads the model file once. */
void identity_of(const struct cohort_engine *e, struct disk_identity *out);

#endif
