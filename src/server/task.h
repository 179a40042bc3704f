/* A request that is answered once a helper has worked for it: what needs the tokenizer, or reads the journal. Loop
 * thread, but for `work`; between task_start and its end the helper has all of it but `sink`.
 *
 *   task_new (loop) -> task_start (loop) -> work (helper) -> answer (loop, if the client is still there) -> gone
 *
 * The server counts its reply as owed, so it does not end before. */
#ifndef SERVER_TASK_H
#define SERVER_TASK_H

#include <event2/http.h>

#include "cohort/cohort.h"
#include "server/pool.h"
#include "server/sink.h"

enum {
    TASKS_MAX = 256,             /* at one time, of all kinds, */
    TASKS_BYTES_MAX = 512 << 20, /* and what their bodies may take of memory, as parsed: one is always let in */
    TASK_BYTES_OF_BODY = 16      /* for each byte of a body */
};

struct task { /* embedded in the caller's struct, as its first member */
    struct pool_job job;
    struct server *server;
    struct sink sink; /* empty once the client is gone */
    uint32_t tenant;
    cohort_error error;            /* set by `work`: answered instead of calling `answer` */
    void (*work)(struct task *);   /* helper */
    void (*answer)(struct task *); /* empties the sink */
    void (*forget)(struct task *); /* frees what the task holds beside itself; NULL: nothing */
    struct pool *pool;
    size_t bytes;     /* of TASKS_BYTES_MAX */
    _Atomic int gone; /* the client is: nobody wants the work any more */
    int again;        /* set by `answer`, which then has not answered: `work` has to be done once more */
};

enum task_pool {
    TASK_TOKENS, /* a helper for that: calls have others, so that tasks do not delay them */
    TASK_JOURNAL /* the thread that reads the journal */
};

/* Zeroed memory of `size` bytes that begins with a task for the request; NULL: the request was answered. */
void *task_new(struct server *server, struct evhttp_request *http, size_t size);
/* Owned from here on; its three functions are set. Answers 429 if too many are under way. */
void task_start(struct task *task, enum task_pool pool);
/* Ends one that was not started, with an error. */
void task_refuse(struct task *task, const cohort_error *error);

#endif
