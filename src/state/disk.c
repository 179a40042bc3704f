/* The disk tier's calls: what the engine's thread does with the index and the queues. Nothing here waits for the disk,
 * but for opening and closing. */
#include "state/disk.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "state/disk_internal.h"

/* ---- Queues ---- */
void disk_queue_init(struct disk_queue *q) {
    q->first = NULL;
    q->end = &q->first;
}

void disk_queue_add(struct disk_queue *q, struct disk_job *job) {
    job->next = NULL;
    *q->end = job;
    q->end = &job->next;
}

struct disk_job *disk_queue_take(struct disk_queue *q) {
    struct disk_job *job = q->first;
    if (!job) return NULL;
    q->first = job->next;
    if (!q->first) q->end = &q->first;
    return job;
}

void disk_job_free(struct disk_job *job) {
    if (!job) return;
    mem_free(job->pages);
    mem_free(job);
}

static void queue_free(struct disk_queue *q) {
    for (struct disk_job *job; (job = disk_queue_take(q));) disk_job_free(job);
}

static void lock(struct disk *d) { pthread_mutex_lock(&d->store.mutex); }
static void unlock(struct disk *d) { pthread_mutex_unlock(&d->store.mutex); }

/* ---- Life ---- */
static int check_options(const struct disk_options *o, cohort_error *err) {
    const struct disk_identity *identity = &o->identity;
    uint64_t least = DISK_RECORD_BYTES;
    if (!o->dir || !*o->dir) return err_set(err, COHORT_E_ARGUMENT, "state-dir", "state-dir is empty");
    if (identity->groups < 1 || identity->groups > DISK_GROUPS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "groups", "groups is %u; 1 to %d are possible", identity->groups,
                       DISK_GROUPS_MAX);
    for (uint32_t g = 0; g < identity->groups; g++) {
        if (identity->page_bytes[g] > DISK_PAGE_MAX)
            return err_set(err, COHORT_E_ARGUMENT, "page_bytes", "a page has %llu bytes; %llu are possible",
                           (unsigned long long)identity->page_bytes[g], (unsigned long long)DISK_PAGE_MAX);
        least += disk_slot_bytes(identity->page_bytes[g]);
    }
    if (o->bytes_max >= least) return 0;
    return err_set(err, COHORT_E_ARGUMENT, "state-dir-bytes",
                   "state-dir-bytes is %llu; one block of this model takes %llu", (unsigned long long)o->bytes_max,
                   (unsigned long long)least);
}

static int start(struct disk *d, cohort_error *err) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&d->cond, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pthread_create(&d->thread, NULL, disk_work, d) == 0) {
        pthread_setname_np(d->thread, "cohort-disk");
        return 0;
    }
    pthread_cond_destroy(&d->cond);
    return err_set(err, COHORT_E_MEMORY, "state-dir", "cannot start a thread");
}

int disk_open(const struct disk_options *options, struct disk **out, cohort_error *err) {
    *out = NULL;
    int code = check_options(options, err);
    if (code) return code;
    struct disk *d = mem_zalloc(1, sizeof(*d));
    if (!d) return err_set(err, COHORT_E_MEMORY, "state-dir", "no memory for the disk tier");
    d->bytes_max = options->bytes_max;
    d->wake = options->wake;
    d->user = options->user;
    disk_queue_init(&d->reads);
    disk_queue_init(&d->writes);
    disk_queue_init(&d->results);
    disk_queue_init(&d->staged);
    code = disk_store_open(&d->store, options->dir, DISK_OWN, &options->identity, NULL, NULL, err);
    if (!code && (code = start(d, err))) disk_store_close(&d->store);
    if (code)
        mem_free(d);
    else
        *out = d;
    return code;
}

void disk_close(struct disk *d) {
    if (!d) return;
    lock(d);
    d->closing = 1;
    d->close_us = clock_us() + (uint64_t)DISK_CLOSE_MS * 1000;
    pthread_cond_signal(&d->cond);
    unlock(d);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->cond);
    queue_free(&d->reads);
    queue_free(&d->writes);
    queue_free(&d->results);
    queue_free(&d->staged);
    disk_store_close(&d->store);
    mem_free(d);
}

/* ---- Records ---- */
int disk_each(struct disk *d, int (*each)(void *user, const struct disk_record *record), void *user,
              cohort_error *err) {
    struct disk_index *x = &d->store.index;
    lock(d);
    uint32_t at = disk_index_next(x, DISK_NONE);
    while (at != DISK_NONE) {
        const struct disk_entry e = x->entries[at]; /* its space stays as long as it is not removed */
        struct disk_record record = {.id = e.id,
                                     .parent = e.parent == DISK_NONE ? 0 : x->entries[e.parent].id,
                                     .space = e.space ? e.space : "",
                                     .space_n = e.space_n,
                                     .tokens = e.tokens,
                                     .n = e.n,
                                     .groups = e.written};
        unlock(d);
        int keep = each(user, &record);
        lock(d);
        if (x->entries[at].id != e.id || x->entries[at].state != DISK_LIVE) {
            unlock(d);
            return err_set(err, COHORT_E_AGAIN, "state-dir", "the stored blocks changed while they were listed");
        }
        if (keep) {
            at = disk_index_next(x, at);
            continue;
        }
        uint32_t next = at; /* behind all that goes with it */
        while (next != DISK_NONE && x->entries[next].next == DISK_NONE) next = x->entries[next].parent;
        if (next != DISK_NONE) next = x->entries[next].next;
        d->removed += disk_index_remove(x, at);
        pthread_cond_signal(&d->cond);
        at = next;
    }
    unlock(d);
    return 0;
}

/* Under lock. */
static int has_room(const struct disk *d, uint64_t bytes) {
    return d->store.index.records < DISK_RECORDS_MAX && bytes <= d->bytes_max &&
           d->store.index.bytes <= d->bytes_max - bytes;
}

int disk_has_room(const struct disk *d, uint32_t groups) {
    lock((struct disk *)d);
    int room = has_room(d, disk_index_cost(&d->store.index, groups));
    unlock((struct disk *)d);
    return room;
}

/* What is to be written for the record: of one that is there, only what it does not have. Under lock. */
static int wanted_groups(struct disk *d, const struct disk_record *record, uint64_t id, uint32_t *groups) {
    const struct disk_index *x = &d->store.index;
    *groups = record->groups;
    if (d->broken) return COHORT_E_CLOSED;
    if (record->groups >> d->store.identity.groups) return COHORT_E_ARGUMENT;
    uint64_t bytes = disk_index_cost(x, record->groups);
    if (id) {
        uint32_t entry = disk_index_find(x, id);
        if (entry == DISK_NONE) return COHORT_E_NOT_FOUND;
        *groups &= ~(uint32_t)x->entries[entry].groups;
        bytes = disk_index_cost(x, *groups) - DISK_RECORD_BYTES;
    } else {
        if (record->n < 1 || record->n > PAGE_TOKENS || record->space_n > DISK_SPACE_MAX) return COHORT_E_ARGUMENT;
        if (record->parent && record->space_n) return COHORT_E_ARGUMENT;
        uint32_t parent = disk_index_find(x, record->parent);
        if (record->parent && parent == DISK_NONE) return COHORT_E_NOT_FOUND;
        if (record->parent && x->entries[parent].n != PAGE_TOKENS) return COHORT_E_ARGUMENT;
        if (x->next_id >= DISK_ID_MAX) return COHORT_E_LIMIT;
    }
    if (!has_room(d, bytes)) return COHORT_E_LIMIT;
    uint64_t queued = 0;
    for (uint32_t g = 0; g < d->store.identity.groups; g++)
        if (*groups >> g & 1) queued += d->store.identity.page_bytes[g];
    if (d->writes_n >= DISK_JOBS_MAX || (d->queued_bytes && d->queued_bytes + queued > DISK_QUEUE_BYTES))
        return COHORT_E_AGAIN;
    return 0;
}

static struct disk_job *make_write(const struct disk *d, uint32_t groups, const void *const page[]) {
    const uint64_t *bytes = d->store.identity.page_bytes;
    struct disk_job *job = mem_zalloc(1, sizeof(*job));
    if (!job) return NULL;
    job->kind = DISK_WRITE;
    job->groups = groups;
    for (uint32_t g = 0; g < d->store.identity.groups; g++)
        if (groups >> g & 1) job->bytes += bytes[g];
    job->pages = mem_alloc(job->bytes, 1);
    if (!job->pages) {
        mem_free(job);
        return NULL;
    }
    char *to = job->pages;
    for (uint32_t g = 0; g < d->store.identity.groups; g++) {
        if (!(groups >> g & 1)) continue;
        memcpy(to, page[g], bytes[g]);
        to += bytes[g];
    }
    return job;
}

/* The entry with its slots, new or the one of `id`; all or nothing. Under lock. */
static int make_entry(struct disk *d, const struct disk_record *record, uint64_t id, uint32_t groups, uint32_t *out) {
    struct disk_index *x = &d->store.index;
    uint32_t entry = disk_index_find(x, id);
    int code = 0;
    if (!id) {
        struct disk_record fresh = *record;
        fresh.id = x->next_id;
        code = disk_index_add(x, disk_index_find(x, record->parent), &fresh, &entry);
        if (!code) x->entries[entry].used = disk_now();
    }
    for (uint32_t g = 0; g < x->groups && !code; g++)
        if (groups >> g & 1) code = disk_index_take_slot(x, entry, g);
    if (code && entry != DISK_NONE) {
        disk_index_return_slots(x, entry, groups);
        if (!id) disk_index_remove(x, entry);
    }
    *out = entry;
    return code;
}

int disk_write(struct disk *d, const struct disk_record *record, const void *const page[], uint64_t *id) {
    uint32_t groups, entry;
    lock(d);
    int code = wanted_groups(d, record, *id, &groups);
    unlock(d);
    if (code || (!groups && *id)) return code;
    struct disk_job *job = make_write(d, groups, page); /* only this thread adds to the queue: there is still room */
    if (!job) return COHORT_E_MEMORY;
    lock(d);
    code = wanted_groups(d, record, *id, &groups); /* the parent may have failed meanwhile */
    if (!code) code = make_entry(d, record, *id, groups, &entry);
    if (!code) {
        *id = job->record = d->store.index.entries[entry].id;
        d->queued_bytes += job->bytes;
        d->writes_n++;
        disk_queue_add(&d->writes, job);
        pthread_cond_signal(&d->cond);
        job = NULL;
    }
    unlock(d);
    disk_job_free(job);
    return code;
}

int disk_read(struct disk *d, const struct disk_want *wants, size_t n, uint64_t tag) {
    size_t bytes;
    struct disk_job *job;
    if (size_mul(n, sizeof(*wants), &bytes) || size_add(bytes, sizeof(*job), &bytes)) return COHORT_E_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (wants[i].group >= d->store.identity.groups) return COHORT_E_ARGUMENT;
    job = mem_zalloc(1, bytes);
    if (!job) return COHORT_E_MEMORY;
    job->kind = DISK_READ;
    job->tag = tag;
    job->wants_n = n;
    if (n) memcpy(job->wants, wants, n * sizeof(*wants));
    lock(d);
    disk_queue_add(&d->reads, job);
    pthread_cond_signal(&d->cond);
    unlock(d);
    return 0;
}

void disk_remove(struct disk *d, uint64_t id) {
    lock(d);
    uint32_t entry = disk_index_find(&d->store.index, id);
    if (entry != DISK_NONE) {
        d->removed += disk_index_remove(&d->store.index, entry);
        pthread_cond_signal(&d->cond);
    }
    unlock(d);
}

/* ---- Sessions ---- */
int disk_session_put(struct disk *d, const char *name, size_t name_n, uint64_t record, uint32_t tokens) {
    if (name_n < 1 || name_n > DISK_NAME_MAX) return COHORT_E_ARGUMENT;
    lock(d);
    uint32_t entry = disk_index_find(&d->store.index, record);
    if (entry != DISK_NONE) {
        disk_index_session_put(&d->store.index, name, name_n, entry, tokens);
        pthread_cond_signal(&d->cond);
    }
    unlock(d);
    return entry == DISK_NONE ? COHORT_E_NOT_FOUND : 0;
}

int disk_is_named(const struct disk *d, uint64_t record) {
    lock((struct disk *)d);
    uint32_t entry = disk_index_find(&d->store.index, record);
    int named = entry != DISK_NONE && d->store.index.entries[entry].sessions > 0;
    unlock((struct disk *)d);
    return named;
}

int disk_session_get(const struct disk *d, const char *name, size_t name_n, uint64_t *record, uint32_t *tokens) {
    lock((struct disk *)d);
    const struct disk_session *session = disk_index_session(&d->store.index, name, name_n);
    if (session) {
        *record = session->record;
        *tokens = session->tokens;
    }
    unlock((struct disk *)d);
    return session ? 0 : COHORT_E_NOT_FOUND;
}

void disk_session_drop(struct disk *d, const char *name, size_t name_n) {
    lock(d);
    struct disk_session *session = disk_index_session(&d->store.index, name, name_n);
    if (session) {
        disk_index_session_drop(&d->store.index, session);
        pthread_cond_signal(&d->cond);
    }
    unlock(d);
}

/* ---- Results ---- */
int disk_barrier(struct disk *d, uint64_t tag) {
    struct disk_job *job = mem_zalloc(1, sizeof(*job));
    if (!job) return COHORT_E_MEMORY;
    job->kind = DISK_BARRIER;
    job->tag = tag;
    lock(d);
    disk_queue_add(&d->writes, job);
    d->writes_n++;
    pthread_cond_signal(&d->cond);
    unlock(d);
    return 0;
}

int disk_poll(struct disk *d, struct disk_result *out) {
    lock(d);
    struct disk_job *job = disk_queue_take(&d->results);
    unlock(d);
    if (!job) return 0;
    *out = (struct disk_result){.kind = job->kind, .code = job->code, .tag = job->tag, .record = job->record};
    disk_job_free(job);
    return 1;
}

void disk_get_counts(const struct disk *d, struct disk_counts *out) {
    lock((struct disk *)d);
    *out = (struct disk_counts){.records = d->store.index.records,
                                .sessions = d->store.index.sessions_n,
                                .bytes = d->store.index.bytes,
                                .bytes_max = d->bytes_max,
                                .queued_bytes = d->queued_bytes,
                                .written = d->written,
                                .read = d->read,
                                .removed = d->removed,
                                .failed_writes = d->failed_writes,
                                .failed_reads = d->failed_reads,
                                .discarded = d->store.discarded};
    unlock((struct disk *)d);
}
