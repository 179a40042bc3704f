/* The compute team: a fixed set of threads that run posted jobs in order, one at a time.
 *
 * A job is a sequence of phases; a phase is a number of tiles that may run at the same time on any threads. A phase is
 * over when all its tiles are done, not when all threads have arrived: a thread that the system has put aside holds up
 * nobody unless it holds a tile. Whoever finishes the last tile of a phase prepares the next one (`advance`), alone.
 *
 *      post --> [ advance ]--n tiles--> tile 0 | tile 1 | ... --last one done--> [ advance ] --> ... --0--> job over
 *
 * What a phase wrote is visible to all tiles of later phases and to the owner after team_wait. Threads without a tile
 * spin for some tens of microseconds, then sleep; without a job they all sleep almost at once. Every thread runs in the
 * default floating-point mode. */
#ifndef BACKEND_CPU_TEAM_H
#define BACKEND_CPU_TEAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { TEAM_THREADS_MAX = 256, TEAM_JOBS_MAX = 16, TEAM_TILES_MAX = 1 << 22 };

struct team;

struct team_job {
    /* Between phases, on one thread, while nothing else touches the job: tiles of the next phase (at most
     * TEAM_TILES_MAX), 0: the job is over. One tile runs on the same thread at once. */
    uint32_t (*advance)(void *user, unsigned thread);
    void (*tile)(void *user, uint32_t tile, unsigned thread);
    void *user;
    atomic_int done; /* the team's */
};

int team_new(unsigned threads, struct team **out, cohort_error *err); /* 1 .. TEAM_THREADS_MAX */
void team_free(struct team *t); /* every posted job was waited for; NULL is fine */
unsigned team_threads(const struct team *t);

/* One owner thread posts and waits. The job stays valid until its wait. E_BUSY if TEAM_JOBS_MAX wait already. */
int team_post(struct team *t, struct team_job *job);
void team_wait(struct team *t, struct team_job *job);
/* As team_wait, but for `ms` at most; 1 if the job is over. */
int team_wait_ms(struct team *t, struct team_job *job, unsigned ms);
/* 1 if team_wait would return at once. */
int team_done(const struct team_job *job);

/* Memory that a later phase will read: threads that wait for a phase to end fetch it into the cache meanwhile. For
 * `advance` to call; the memory may be gone by the time. */
void team_fetch_ahead(struct team *t, const void *at, size_t bytes);

/* Sets this thread's floating-point mode to the default: nearest even, no flush to zero, no traps. */
void team_float_mode(void);

#endif
