/* The readers' side: the next event of a request, waiting for it, and the list of requests that have some. A row's ring
 * has one reader at a time; the ready list is under its own lock, and the pipe behind its descriptor holds one byte
 * exactly while the list is not empty. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/internal.h"

int events_init(struct cohort_engine *e) {
    e->ready = mem_alloc(e->rows_n, sizeof(*e->ready));
    if (!e->ready) return COHORT_E_MEMORY;
    if (pipe(e->ready_fd) != 0) {
        e->ready_fd[0] = e->ready_fd[1] = -1;
        return COHORT_E_IO;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(e->ready_fd[i], F_SETFD, FD_CLOEXEC);
        fcntl(e->ready_fd[i], F_SETFL, O_NONBLOCK);
    }
    return 0;
}

void events_deinit(struct cohort_engine *e) {
    for (int i = 0; i < 2; i++)
        if (e->ready_fd[i] >= 0) close(e->ready_fd[i]);
    mem_free(e->ready);
}

static void signal_ready(struct cohort_engine *e) {
    ssize_t n;
    do n = write(e->ready_fd[1], "", 1);
    while (n < 0 && errno == EINTR);
    e->ready_signalled = 1;
}

static void unsignal_ready(struct cohort_engine *e) {
    char byte;
    ssize_t n;
    do n = read(e->ready_fd[0], &byte, 1);
    while (n < 0 && errno == EINTR);
    e->ready_signalled = 0;
}

void events_announce(struct cohort_engine *e, struct row *row) {
    pthread_mutex_lock(&e->ready_lock);
    row->ready_id = atomic_load(&row->id);
    if (!row->ready_queued) {
        row->ready_queued = 1;
        assert(e->ready_n < e->rows_n);
        e->ready[(e->ready_first + e->ready_n++) % e->rows_n] = (uint32_t)(row - e->rows);
        if (!e->ready_signalled) signal_ready(e);
    }
    pthread_mutex_unlock(&e->ready_lock);
    if (atomic_load(&row->waiters) == 0) return;
    pthread_mutex_lock(&row->wait_lock);
    pthread_cond_broadcast(&row->wait_cond);
    pthread_mutex_unlock(&row->wait_lock);
}

int cohort_event_fd(struct cohort_engine *e) { return e->ready_fd[0]; }

size_t cohort_ready(struct cohort_engine *e, cohort_id *ids, size_t capacity) {
    size_t n = 0;
    pthread_mutex_lock(&e->ready_lock);
    while (n < capacity && e->ready_n > 0) {
        struct row *row = &e->rows[e->ready[e->ready_first]];
        e->ready_first = (e->ready_first + 1) % e->rows_n;
        e->ready_n--;
        row->ready_queued = 0;
        /* A handle that was freed meanwhile, and maybe reserved again, has nothing to say. */
        if (atomic_load(&row->id) == row->ready_id) ids[n++] = row->ready_id;
    }
    if (e->ready_n == 0 && e->ready_signalled) unsignal_ready(e);
    pthread_mutex_unlock(&e->ready_lock);
    return n;
}

/* Gives the memory of the event last taken back to the ring, and asks for more if the row was paused. */
static void release(struct cohort_engine *e, struct row *row, uint64_t id) {
    if (!row->held) return;
    ring_pop(&row->ring, row->held);
    row->held = NULL;
    if (!atomic_load(&row->paused) || !row_has_room(row)) return;
    if (ring_room(&row->ring) >= row->ring.limit / 2 || ring_empty(&row->ring)) inbox_want(e, row, id, WANT_RESUME);
}

static void fill_event(const struct row *row, const struct ring_event *record, cohort_event *out) {
    *out = (cohort_event){.type = (cohort_event_type)record->type,
                          .id = atomic_load(&row->id),
                          .user = row->request.user,
                          .token = record->token,
                          .index = record->index,
                          .text = ring_event_text(record),
                          .text_len = record->text_len,
                          .logprob = record->logprob,
                          .top = ring_event_top(record),
                          .top_n = record->top_n,
                          .sampler_state = record->sampler_state,
                          .stop_token = -1,
                          .stop_index = -1};
    if (record->type == COHORT_EVENT_EMBEDDING) {
        out->embedding = row->embedding.vector;
        out->embedding_n = row->embedding.width;
    }
    if (record->type != COHORT_EVENT_FINISH) return;
    const struct row_final *final = &row->final;
    out->finish = final->finish;
    out->error = final->error.code;
    out->error_text = final->error.text;
    out->stop_token = final->stop_token;
    out->stop_index = final->stop_index;
    out->stats = final->stats;
}

int cohort_next(struct cohort_engine *e, cohort_id id, cohort_event *out) {
    struct row *row = inbox_find(e, id);
    if (!row || row->finish_taken) return COHORT_E_NOT_FOUND;
    release(e, row, id);
    const struct ring_event *record = ring_peek(&row->ring);
    if (!record) return COHORT_E_AGAIN;
    row->held = record;
    row->finish_taken = record->type == COHORT_EVENT_FINISH;
    fill_event(row, record, out);
    return COHORT_OK;
}

int cohort_wait(struct cohort_engine *e, cohort_id id, int timeout_ms) {
    struct row *row = inbox_find(e, id);
    if (!row || row->finish_taken) return COHORT_OK; /* cohort_next has something to say: that there is nothing */
    release(e, row, id);
    if (!ring_empty(&row->ring)) return COHORT_OK;
    if (timeout_ms == 0) return COHORT_E_AGAIN;
    struct timespec until = clock_deadline(timeout_ms < 0 ? 0 : (uint32_t)timeout_ms);
    int timed_out = 0;
    atomic_fetch_add(&row->waiters, 1);
    pthread_mutex_lock(&row->wait_lock);
    while (ring_empty(&row->ring) && !timed_out) {
        if (timeout_ms < 0)
            pthread_cond_wait(&row->wait_cond, &row->wait_lock);
        else
            timed_out = pthread_cond_timedwait(&row->wait_cond, &row->wait_lock, &until) == ETIMEDOUT;
    }
    pthread_mutex_unlock(&row->wait_lock);
    atomic_fetch_sub(&row->waiters, 1);
    return ring_empty(&row->ring) ? COHORT_E_AGAIN : COHORT_OK;
}
