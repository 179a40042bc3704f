/* The team's threads, the ticket they take tiles from, and how they sleep.
 *
 * The ticket is one 64-bit word: | phase number (16) | tiles of the phase (24) | next tile (24) |. Adding 1 takes a
 * tile and tells in the same step which phase it belongs to, so a thread that comes late can never mistake an old phase
 * for the current one. A thread that adds when nothing is left has taken nothing; each does so at most once per look,
 * which 24 bits hold easily (TEAM_TILES_MAX + threads). A phase of no tiles: the team is idle.
 *
 * Invariants: while a tile is taken and not yet counted in `finished`, the phase and the job stand still. `job`, the
 * queue's head and the ticket's next phase are written only by the thread that finished a phase, or by the owner while
 * the team is idle (under the lock). */
#include "backend/cpu/team.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Looks at the ticket before a thread sleeps: some tens of microseconds inside a job, as long as a wake-up takes; few
 * when there is no job, because then the owner needs the CPU to make one. */
enum { FIELD_BITS = 24, SPINS = 1500, SPINS_IDLE = 150, FETCH_BYTES = 128 };
#define FIELD_MASK ((UINT64_C(1) << FIELD_BITS) - 1)
_Static_assert(TEAM_TILES_MAX + TEAM_THREADS_MAX * 2 < 1 << FIELD_BITS, "the next-tile field must not overflow");

/* A word to sleep on until another thread bumps it. */
struct bell {
    _Atomic uint32_t word;
    _Atomic uint32_t sleepers;
#if !defined(__linux__)
    pthread_mutex_t lock;
    pthread_cond_t rung;
#endif
};

struct team {
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t finished; /* tiles of this phase */
    _Alignas(64) struct team_job *job;      /* being run; NULL before the first and while idle */
    uint16_t phase;
    _Atomic uintptr_t ahead, ahead_end; /* what waiting threads fetch */
    struct bell bell;
    atomic_int stop;

    pthread_mutex_t lock; /* queue, active, and every job's `done` */
    pthread_cond_t over;  /* a job ended */
    struct team_job *queue[TEAM_JOBS_MAX];
    unsigned queue_first, queue_n;
    int active; /* a thread is on its way through the queue */

    unsigned n_threads;
    unsigned n_started; /* the owner's: those to be joined */
    struct member {
        struct team *team;
        pthread_t thread;
        unsigned index;
    } * members;
};

void team_float_mode(void) {
#if defined(__x86_64__)
    _mm_setcsr(0x1f80);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
#endif
}

static void cpu_pause(void) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- Sleeping ---- */

#if defined(__linux__)
static int bell_init(struct bell *b) { return (void)b, 0; }
static void bell_deinit(struct bell *b) { (void)b; }
static void bell_sleep(struct bell *b, uint32_t seen) {
    syscall(SYS_futex, &b->word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static void bell_wake(struct bell *b, uint32_t n) {
    atomic_fetch_add(&b->word, 1);
    syscall(SYS_futex, &b->word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}
#else
static int bell_init(struct bell *b) {
    return pthread_mutex_init(&b->lock, NULL) || pthread_cond_init(&b->rung, NULL) ? -1 : 0;
}
static void bell_deinit(struct bell *b) {
    pthread_cond_destroy(&b->rung);
    pthread_mutex_destroy(&b->lock);
}
static void bell_sleep(struct bell *b, uint32_t seen) {
    pthread_mutex_lock(&b->lock);
    while (atomic_load(&b->word) == seen) pthread_cond_wait(&b->rung, &b->lock);
    pthread_mutex_unlock(&b->lock);
}
static void bell_wake(struct bell *b, uint32_t n) {
    (void)n;
    pthread_mutex_lock(&b->lock);
    atomic_fetch_add(&b->word, 1);
    pthread_cond_broadcast(&b->rung);
    pthread_mutex_unlock(&b->lock);
}
#endif

/* ---- The ticket ---- */

static uint32_t ticket_next(uint64_t ticket) { return (uint32_t)(ticket & FIELD_MASK); }
static uint32_t ticket_tiles(uint64_t ticket) { return (uint32_t)(ticket >> FIELD_BITS & FIELD_MASK); }
static int ticket_open(uint64_t ticket) { return ticket_next(ticket) < ticket_tiles(ticket); }

/* Opens a phase of `tiles` tiles and wakes at most `wake` sleepers. The store comes before the look at `sleepers`, and
 * a sleeper counts itself before its last look at the ticket: one of the two sees the other. */
static void phase_open(struct team *t, uint32_t tiles, uint32_t wake) {
    t->phase++;
    atomic_store(&t->ticket, (uint64_t)t->phase << (2 * FIELD_BITS) | (uint64_t)tiles << FIELD_BITS);
    if (wake && atomic_load(&t->bell.sleepers)) bell_wake(&t->bell, wake);
}

void team_fetch_ahead(struct team *t, const void *at, size_t bytes) {
    atomic_store_explicit(&t->ahead, (uintptr_t)at, memory_order_relaxed);
    atomic_store_explicit(&t->ahead_end, (uintptr_t)at + bytes, memory_order_relaxed);
}

/* The two words may belong to different calls and name memory that is gone: a prefetch never faults. */
static void fetch_line(struct team *t, size_t offset) {
    uintptr_t at = atomic_load_explicit(&t->ahead, memory_order_relaxed) + offset;
    if (at >= atomic_load_explicit(&t->ahead_end, memory_order_relaxed)) return;
    for (int i = 0; i < FETCH_BYTES; i += 64) __builtin_prefetch((const void *)(at + (uintptr_t)i), 0, 2);
}

/* Waits until there may be a tile to take, or until the team stops. */
static void phase_await(struct team *t, unsigned thread) {
    for (int i = 0; i < SPINS; i++) {
        uint64_t ticket = atomic_load_explicit(&t->ticket, memory_order_acquire);
        if (ticket_open(ticket)) return;
        if (ticket_tiles(ticket) == 0 && i >= SPINS_IDLE) break;
        fetch_line(t, ((uint32_t)i * t->n_threads + thread) * FETCH_BYTES);
        cpu_pause();
    }
    atomic_fetch_add(&t->bell.sleepers, 1);
    for (;;) {
        uint32_t seen = atomic_load(&t->bell.word);
        if (ticket_open(atomic_load(&t->ticket)) || atomic_load(&t->stop)) break;
        bell_sleep(&t->bell, seen);
    }
    atomic_fetch_sub(&t->bell.sleepers, 1);
}

/* ---- Jobs ---- */

/* Ends the current job, if any, and makes the queue's first the current one. NULL: the team is idle from now on, and
 * the owner may start it again at once, so the caller must not touch it any more. */
static struct team_job *job_next(struct team *t) {
    pthread_mutex_lock(&t->lock);
    if (t->job) {
        atomic_store_explicit(&t->job->done, 1, memory_order_release);
        pthread_cond_broadcast(&t->over);
    }
    struct team_job *job = NULL;
    if (t->queue_n) {
        job = t->queue[t->queue_first];
        t->queue_first = (t->queue_first + 1) % TEAM_JOBS_MAX;
        t->queue_n--;
    } else {
        t->active = 0;
        phase_open(t, 0, 0);
    }
    t->job = job;
    pthread_mutex_unlock(&t->lock);
    return job;
}

/* The phase is over: goes on until there are tiles to share or no job is left. */
static void phase_end(struct team *t, unsigned thread) {
    atomic_store_explicit(&t->finished, 0, memory_order_relaxed);
    struct team_job *job = t->job;
    if (!job) job = job_next(t); /* it was the phase that starts an idle team */
    while (job) {
        uint32_t tiles = job->advance(job->user, thread);
        assert(tiles <= TEAM_TILES_MAX);
        if (tiles > 1) {
            phase_open(t, tiles, tiles - 1);
            return;
        }
        if (tiles == 1)
            job->tile(job->user, 0, thread);
        else
            job = job_next(t);
    }
}

static void *member_run(void *arg) {
    struct member *me = arg;
    struct team *t = me->team;
    team_float_mode();
    while (!atomic_load_explicit(&t->stop, memory_order_relaxed)) {
        uint32_t mine = 0, tiles = 0;
        while (ticket_open(atomic_load_explicit(&t->ticket, memory_order_relaxed))) {
            uint64_t ticket = atomic_fetch_add(&t->ticket, 1);
            if (!ticket_open(ticket)) break;
            if (t->job) t->job->tile(t->job->user, ticket_next(ticket), me->index);
            tiles = ticket_tiles(ticket);
            mine++;
        }
        if (mine && atomic_fetch_add(&t->finished, mine) + mine == tiles)
            phase_end(t, me->index);
        else
            phase_await(t, me->index);
    }
    return NULL;
}

int team_post(struct team *t, struct team_job *job) {
    assert(job->advance && job->tile);
    pthread_mutex_lock(&t->lock);
    int full = t->queue_n == TEAM_JOBS_MAX;
    if (!full) {
        atomic_store_explicit(&job->done, 0, memory_order_relaxed);
        t->queue[(t->queue_first + t->queue_n++) % TEAM_JOBS_MAX] = job;
        if (!t->active) {
            t->active = 1;
            phase_open(t, 1, t->n_threads); /* one starts the job; the others are about to be needed */
        }
    }
    pthread_mutex_unlock(&t->lock);
    return full ? COHORT_E_BUSY : 0;
}

void team_wait(struct team *t, struct team_job *job) {
    pthread_mutex_lock(&t->lock);
    while (!team_done(job)) pthread_cond_wait(&t->over, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

int team_wait_ms(struct team *t, struct team_job *job, unsigned ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)ms * 1000000;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&t->lock);
    while (!team_done(job) && pthread_cond_timedwait(&t->over, &t->lock, &until) == 0) {
    }
    int done = team_done(job);
    pthread_mutex_unlock(&t->lock);
    return done;
}

int team_done(const struct team_job *job) { return atomic_load_explicit(&job->done, memory_order_acquire); }

/* ---- Life ---- */

static int locks_init(struct team *t) {
    pthread_condattr_t attr;
    if (pthread_mutex_init(&t->lock, NULL) || pthread_condattr_init(&attr)) return -1;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(&t->over, &attr);
    pthread_condattr_destroy(&attr);
    return failed || bell_init(&t->bell) ? -1 : 0;
}

/* Starts a member with every signal blocked: signals belong to the program's own threads. */
static int member_start(struct member *m) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&m->thread, NULL, member_run, m);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
#if defined(__linux__)
    char name[16];
    snprintf(name, sizeof name, "compute-%u", m->index);
    if (!code) pthread_setname_np(m->thread, name);
#endif
    return code;
}

int team_new(unsigned threads, struct team **out, cohort_error *err) {
    assert(threads >= 1 && threads <= TEAM_THREADS_MAX);
    struct team *t = mem_aligned(1, sizeof *t);
    struct member *members = mem_zalloc(threads, sizeof *members);
    if (!t || !members) {
        mem_free(t);
        mem_free(members);
        return err_set(err, COHORT_E_MEMORY, "threads", "no memory for a team of %u compute threads", threads);
    }
    memset(t, 0, sizeof *t);
    t->members = members;
    if (locks_init(t)) {
        mem_free(members);
        mem_free(t);
        return err_set(err, COHORT_E_MEMORY, "threads", "cannot make the compute team's locks");
    }
    t->n_threads = threads; /* before the first that reads it */
    for (; t->n_started < threads; t->n_started++) {
        struct member *m = &members[t->n_started];
        m->team = t;
        m->index = t->n_started;
        int code = member_start(m);
        if (!code) continue;
        err_set(err, COHORT_E_MEMORY, "threads", "cannot start compute thread %u of %u: %s", m->index + 1, threads,
                strerror(code));
        team_free(t);
        return COHORT_E_MEMORY;
    }
    *out = t;
    return 0;
}

void team_free(struct team *t) {
    if (!t) return;
    assert(!t->active && t->queue_n == 0);
    atomic_store(&t->stop, 1);
    bell_wake(&t->bell, t->n_threads);
    for (unsigned i = 0; i < t->n_started; i++) pthread_join(t->members[i].thread, NULL);
    bell_deinit(&t->bell);
    pthread_cond_destroy(&t->over);
    pthread_mutex_destroy(&t->lock);
    mem_free(t->members);
    mem_free(t);
}

unsigned team_threads(const struct team *t) { return t->n_threads; }
