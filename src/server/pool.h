/* A few helper threads for work that must not run on the event loop (tokenising, templates, grammars). Jobs run in
 * submission order, or owners take turns, each on one thread; `done` runs on the loop's thread afterwards. The line is
 * as long as the engine's: every job holds a reserved place there. */
#ifndef SERVER_POOL_H
#define SERVER_POOL_H

#include <event2/event.h>
#include <stdint.h>

struct pool;

struct pool_job { /* embedded in the caller's struct */
    struct pool_job *next;
    uint32_t owner;                     /* a tenant: whose turn it is in a fair pool */
    void (*work)(struct pool_job *job); /* helper thread */
    void (*done)(struct pool_job *job); /* loop thread; may free the job */
};

struct pool *pool_new(struct event_base *base, int threads);
/* For jobs that take long: of the owners that wait the one goes first whose last job began longest ago. */
struct pool *pool_new_fair(struct event_base *base, int threads);
void pool_add(struct pool *pool, struct pool_job *job); /* loop thread */
/* Joins the threads after the jobs that were added; runs their `done`. */
void pool_free(struct pool *pool);

#endif
