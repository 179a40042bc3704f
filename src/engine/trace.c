/* The trace's buffer, its writer thread and the file (trace.h).
 *
 * Two arrays of records: producers append to one under a lock that is held for a copy of one record; the writer swaps
 * them under the same lock and formats and writes outside it. A failed write ends tracing with one line on stderr, and
 * what is in the file stays whole: it is cut back to the last batch that was written in full. */
#include "engine/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum { WRITE_BYTES = 64 << 10 /* text gathered before a write */ };

struct trace {
    char *path;
    int fd, pid;
    uint64_t bytes_max;
    pthread_t writer;
    int started;

    pthread_mutex_t lock;
    pthread_cond_t wake; /* the first record, half of the buffer, or `stopping` */
    /* under lock */
    struct trace_record *filling;
    uint32_t n;
    uint64_t dropped;
    int stopping, ended;

    /* the writer's */
    struct trace_record *writing;
    struct buf text;
    uint64_t bytes; /* written in whole batches */
};

/* ---- the file ---- */

static int write_all(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : EIO;
        bytes += done;
        n -= (size_t)done;
    }
    return 0;
}

/* Regular files and devices only: a pipe would let its reader hold up the close, and already the open. */
static int open_file(struct trace *t, cohort_error *err) {
    struct stat found;
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600);
    if (t->fd < 0 || fstat(t->fd, &found) != 0)
        return err_set(err, COHORT_E_IO, "trace_path", "trace_path: cannot create %s: %s", t->path, strerror(errno));
    if (!S_ISREG(found.st_mode) && !S_ISCHR(found.st_mode))
        return err_set(err, COHORT_E_IO, "trace_path", "trace_path: %s is not a file", t->path);
    if (S_ISREG(found.st_mode) && fchmod(t->fd, 0600) != 0) /* one that was there before */
        return err_set(err, COHORT_E_IO, "trace_path", "trace_path: cannot restrict %s: %s", t->path, strerror(errno));
    if (fcntl(t->fd, F_SETFL, 0) != 0)
        return err_set(err, COHORT_E_IO, "trace_path", "trace_path: %s: %s", t->path, strerror(errno));
    return 0;
}

/* ---- the writer ---- */

static void end_tracing(struct trace *t) {
    pthread_mutex_lock(&t->lock);
    t->ended = 1;
    pthread_mutex_unlock(&t->lock);
}

/* Takes back what a write left half done, and ends the array if there is room for that. */
static void mend(struct trace *t) {
    if (ftruncate(t->fd, (off_t)t->bytes) != 0 || lseek(t->fd, (off_t)t->bytes, SEEK_SET) < 0) return; /* a device */
    if (trace_json_end(&t->text) == 0) write_all(t->fd, t->text.data, t->text.len);
}

/* Puts the gathered text behind what is in the file. -1: tracing has ended. */
static int flush(struct trace *t) {
    int error = write_all(t->fd, t->text.data, t->text.len);
    if (!error) t->bytes += t->text.len;
    buf_clear(&t->text);
    if (!error) return 0;
    end_tracing(t);
    fprintf(stderr, "cohort: writing the trace %s failed: %s; tracing has ended\n", t->path, strerror(error));
    mend(t);
    return -1;
}

static void end_at_limit(struct trace *t) {
    end_tracing(t);
    if (trace_json_end(&t->text) != 0 || flush(t) != 0) return;
    fprintf(stderr, "cohort: the trace %s has reached its %llu bytes; tracing has ended\n", t->path,
            (unsigned long long)t->bytes_max);
}

static void write_records(struct trace *t, uint32_t n) {
    uint64_t lost = 0;
    int full = 0, failed = 0;
    for (uint32_t i = 0; i < n && !full && !failed; i++) {
        if (trace_json_record(&t->text, t->pid, &t->writing[i]) != 0) lost++;
        full = t->bytes + t->text.len > t->bytes_max;
        if (t->text.len >= WRITE_BYTES) failed = flush(t);
    }
    if (!failed && t->text.len) failed = flush(t);
    if (!failed && full) end_at_limit(t);
    pthread_mutex_lock(&t->lock);
    t->dropped += lost;
    pthread_mutex_unlock(&t->lock);
}

/* Sleeps until there are records, lets some more gather, and takes them. 0: the trace is being closed and has none. */
static uint32_t take(struct trace *t) {
    pthread_mutex_lock(&t->lock);
    while (t->n == 0 && !t->stopping) pthread_cond_wait(&t->wake, &t->lock);
    struct timespec until = clock_deadline(TRACE_LINGER_MS);
    int late = 0;
    while (!late && t->n < TRACE_RECORDS / 2 && !t->stopping) late = pthread_cond_timedwait(&t->wake, &t->lock, &until);
    uint32_t n = t->n;
    struct trace_record *full = t->filling;
    t->filling = t->writing;
    t->writing = full;
    t->n = 0;
    pthread_mutex_unlock(&t->lock);
    return n;
}

static void *writer_main(void *argument) {
    struct trace *t = argument;
    uint32_t n;
    while ((n = take(t)) > 0)
        if (!t->ended) write_records(t, n); /* what came in while the last write failed */
    return NULL;
}

static int start_writer(struct trace *t, cohort_error *err) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&t->writer, NULL, writer_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) return err_set(err, COHORT_E_MEMORY, NULL, "cannot start the trace's thread: %s", strerror(failed));
    pthread_setname_np(t->writer, "cohort-trace");
    t->started = 1;
    return 0;
}

/* ---- for the engine ---- */

static struct trace *allocate(const char *path) {
    struct trace *t = mem_zalloc(1, sizeof *t);
    if (!t) return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    t->fd = -1;
    t->pid = (int)getpid();
    t->path = mem_alloc(strlen(path) + 1, 1);
    t->filling = mem_alloc(TRACE_RECORDS, sizeof *t->filling);
    t->writing = mem_alloc(TRACE_RECORDS, sizeof *t->writing);
    if (t->path) memcpy(t->path, path, strlen(path) + 1);
    return t;
}

int trace_open(const char *path, uint64_t bytes_max, struct trace **out, cohort_error *err) {
    *out = NULL;
    struct trace *t = allocate(path);
    int code = 0;
    if (!t || !t->path || !t->filling || !t->writing || trace_json_begin(&t->text, t->pid, clock_us()) != 0)
        code = err_set(err, COHORT_E_MEMORY, NULL, "no memory for the trace");
    if (!code) {
        t->bytes_max = bytes_max;
        code = open_file(t, err);
    }
    if (!code) {
        int error = write_all(t->fd, t->text.data, t->text.len);
        t->bytes = t->text.len;
        buf_clear(&t->text);
        if (error)
            code = err_set(err, COHORT_E_IO, "trace_path", "trace_path: cannot write to %s: %s", path, strerror(error));
    }
    if (!code) code = start_writer(t, err);
    if (code) {
        trace_close(t);
        return code;
    }
    *out = t;
    return 0;
}

void trace_close(struct trace *t) {
    if (!t) return;
    if (t->started) {
        pthread_mutex_lock(&t->lock);
        t->stopping = 1;
        pthread_cond_signal(&t->wake);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->writer, NULL);
        if (!t->ended && trace_json_end(&t->text) == 0) flush(t);
    }
    if (t->fd >= 0) close(t->fd);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    buf_free(&t->text);
    mem_free(t->filling);
    mem_free(t->writing);
    mem_free(t->path);
    mem_free(t);
}

const char *trace_path(const struct trace *t) { return t ? t->path : NULL; }

void trace_push(struct trace *t, const struct trace_record *record) {
    pthread_mutex_lock(&t->lock);
    if (t->ended) {
        /* nobody writes any more */
    } else if (t->n == TRACE_RECORDS) {
        t->dropped++;
    } else {
        t->filling[t->n++] = *record;
        if (t->n == 1 || t->n == TRACE_RECORDS / 2) pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->lock);
}

uint64_t trace_dropped(struct trace *t) {
    if (!t) return 0;
    pthread_mutex_lock(&t->lock);
    uint64_t dropped = t->dropped;
    pthread_mutex_unlock(&t->lock);
    return dropped;
}
