/* The helper pool: two singly linked lists under one mutex, and an eventfd that brings finished jobs back to the loop.
 * Invariant: a job is on exactly one of: todo, a helper's hands, finished. */
#include "server/pool.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "cohort/cohort.h"

enum { POOL_THREADS_MAX = 16 };

struct list {
    struct pool_job *first, **end;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list todo, finished;
    uint64_t *turns; /* of a fair pool: for each owner when its last job began, counted in jobs */
    uint64_t jobs;
    int closing;
    int threads;
    pthread_t thread[POOL_THREADS_MAX];
    int fd;
    struct event *readable;
};

static void list_init(struct list *list) {
    list->first = NULL;
    list->end = &list->first;
}

static void list_add(struct list *list, struct pool_job *job) {
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
}

static struct pool_job *list_take(struct list *list) {
    struct pool_job *job = list->first;
    if (job) {
        list->first = job->next;
        if (!list->first) list->end = &list->first;
    }
    return job;
}

static struct pool_job *list_take_fair(struct pool *pool) {
    struct list *list = &pool->todo;
    struct pool_job **best = NULL, *job;
    for (struct pool_job **at = &list->first; *at; at = &(*at)->next)
        if (!best || pool->turns[(*at)->owner % COHORT_TENANTS_MAX] < pool->turns[(*best)->owner % COHORT_TENANTS_MAX])
            best = at;
    if (!best) return NULL;
    job = *best;
    *best = job->next;
    if (!*best) list->end = best; /* it was the last one */
    pool->turns[job->owner % COHORT_TENANTS_MAX] = ++pool->jobs;
    return job;
}

static void *helper(void *argument) {
    struct pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct pool_job *job = pool->turns ? list_take_fair(pool) : list_take(&pool->todo);
        if (job) {
            pthread_mutex_unlock(&pool->lock);
            job->work(job);
            pthread_mutex_lock(&pool->lock);
            list_add(&pool->finished, job);
            uint64_t one = 1;
            /* Cannot fail but for a counter near 2^64: the loop drains it whole. */
            ssize_t written = write(pool->fd, &one, sizeof one);
            (void)written;
        } else if (pool->closing) {
            break;
        } else {
            pthread_cond_wait(&pool->wake, &pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void run_finished(struct pool *pool) {
    pthread_mutex_lock(&pool->lock);
    struct pool_job *job = pool->finished.first;
    list_init(&pool->finished);
    pthread_mutex_unlock(&pool->lock);
    while (job) {
        struct pool_job *next = job->next;
        job->done(job);
        job = next;
    }
}

static void on_readable(evutil_socket_t fd, short what, void *argument) {
    (void)what;
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
    run_finished(argument);
}

static struct pool *make(struct event_base *base, int threads, uint64_t *turns) {
    struct pool *pool = mem_zalloc(1, sizeof *pool);
    if (!pool) {
        mem_free(turns);
        return NULL;
    }
    pool->turns = turns;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    list_init(&pool->todo);
    list_init(&pool->finished);
    pool->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pool->fd >= 0) pool->readable = event_new(base, pool->fd, EV_READ | EV_PERSIST, on_readable, pool);
    if (!pool->readable || event_add(pool->readable, NULL) != 0) goto fail;
    while (pool->threads < threads && pool->threads < POOL_THREADS_MAX) {
        if (pthread_create(&pool->thread[pool->threads], NULL, helper, pool) != 0) goto fail;
        pool->threads++;
    }
    return pool;
fail:
    pool_free(pool);
    return NULL;
}

struct pool *pool_new(struct event_base *base, int threads) {
    return make(base, threads, NULL);
}

struct pool *pool_new_fair(struct event_base *base, int threads) {
    uint64_t *turns = mem_zalloc(COHORT_TENANTS_MAX, sizeof *turns);
    return turns ? make(base, threads, turns) : NULL;
}

void pool_add(struct pool *pool, struct pool_job *job) {
    pthread_mutex_lock(&pool->lock);
    list_add(&pool->todo, job);
    pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void pool_free(struct pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = 1;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->threads; i++) pthread_join(pool->thread[i], NULL);
    run_finished(pool);
    if (pool->readable) event_free(pool->readable);
    if (pool->fd >= 0) close(pool->fd);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    mem_free(pool->turns);
    mem_free(pool);
}
