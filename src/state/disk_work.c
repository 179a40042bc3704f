/* The disk tier's thread: reads, writes and group commits, in this order of preference.
 *
 *   writes (queue) -> pages into slots -> staged -> sync of segments, then one transaction -> committed
 *
 * Any failure on this way ends the record: it and all behind it are removed, each write of them that is still queued
 * fails in its turn, and the caller is told record by record. A read whose page does not hold its sum does the same. A
 * record is REMOVING until a commit has taken it out of the database, whether it ever was in it or not, so that a
 * transaction of which nobody knows if it happened cannot leave a name for a slot that is used again. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "state/disk_internal.h"

enum { TOUCH_EVERY_S = 60, WELL_S = 10, US_PER_MS = 1000 };

static void lock(struct disk *d) { pthread_mutex_lock(&d->store.mutex); }
static void unlock(struct disk *d) { pthread_mutex_unlock(&d->store.mutex); }

/* ---- Results ---- */
/* Takes the lock and lets go of it. */
static void give_result(struct disk *d, struct disk_job *job, int code) {
    job->code = code;
    lock(d);
    disk_queue_add(&d->results, job);
    unlock(d);
    if (d->wake) d->wake(d->user);
}

static void mark_lost(struct disk *d, struct disk_queue *queue, int code) {
    for (struct disk_job *job = queue->first; job; job = job->next)
        if (job->kind == DISK_WRITE && !job->code && disk_index_find(&d->store.index, job->record) == DISK_NONE)
            job->code = code;
}

/* Removes a record that failed, with all behind it, and marks their writes, which end in their turn. Under lock. */
static void fail_record(struct disk *d, uint64_t id, int code) {
    uint32_t entry = disk_index_find(&d->store.index, id);
    if (entry == DISK_NONE) return;
    d->removed += disk_index_remove(&d->store.index, entry);
    mark_lost(d, &d->staged, code);
    mark_lost(d, &d->writes, code);
}

static void fail_write(struct disk *d, struct disk_job *job, int code) {
    lock(d);
    d->failed_writes++;
    fail_record(d, job->record, code);
    unlock(d);
    d->lost = 1;
    give_result(d, job, code);
}

/* One line when it begins, and one when it is over: on a full disk a write that is small enough may work between two
 * that fail. */
static void say_once(struct disk *d, const char *why) {
    if (!d->said)
        disk_store_say(&d->store,
                       "state cannot be written: %s; what is lost is computed again (said once until it works)", why);
    d->said = 1;
    d->failed_us = clock_us();
}

static void say_well(struct disk *d) {
    if (!d->said || clock_us() - d->failed_us < WELL_S * UINT64_C(1000000)) return;
    disk_store_say(&d->store, "state is written again");
    d->said = 0;
}

/* ---- Reading ---- */
/* Whether every page that it wants is written or will never be. Under lock. */
static int read_is_ready(const struct disk *d, const struct disk_job *job) {
    for (size_t i = 0; i < job->wants_n; i++) {
        uint32_t entry = disk_index_find(&d->store.index, job->wants[i].id);
        if (entry == DISK_NONE) continue;
        const struct disk_entry *e = &d->store.index.entries[entry];
        if ((e->groups & ~e->written) >> job->wants[i].group & 1) return 0;
    }
    return 1;
}

static struct disk_job *take_read(struct disk *d) {
    struct disk_job **at = &d->reads.first;
    while (*at && !read_is_ready(d, *at)) at = &(*at)->next;
    struct disk_job *job = *at;
    if (!job) return NULL;
    *at = job->next;
    if (d->reads.end == &job->next) d->reads.end = at;
    return job;
}

/* Notes that the record was used. Under lock. */
static void touch(struct disk *d, struct disk_entry *e) {
    uint32_t now = disk_now();
    if (now < e->used + TOUCH_EVERY_S || d->touched_n == DISK_TOUCHED_MAX) return;
    e->used = now;
    d->touched[d->touched_n++] = e->id;
}

static int read_one(struct disk *d, const struct disk_want *want) {
    lock(d);
    uint32_t entry = disk_index_find(&d->store.index, want->id);
    struct disk_entry e = entry == DISK_NONE ? (struct disk_entry){0} : d->store.index.entries[entry];
    unlock(d);
    if (!(e.written >> want->group & 1)) return COHORT_E_NOT_FOUND;
    const char *why = disk_store_read(&d->store, &e, want->group, want->to);
    if (!why) return 0;
    lock(d);
    uint64_t before = d->removed;
    fail_record(d, want->id, COHORT_E_IO);
    uint64_t removed = d->removed - before;
    unlock(d);
    disk_store_say(&d->store, "block %llu is not used: %s; it was removed with %llu behind it",
                   (unsigned long long)want->id, why, (unsigned long long)(removed ? removed - 1 : 0));
    return COHORT_E_IO;
}

static void do_read(struct disk *d, struct disk_job *job) {
    int code = 0;
    uint64_t records = 0;
    for (size_t i = 0; i < job->wants_n && !code; i++) {
        code = read_one(d, &job->wants[i]);
        if (code) job->record = job->wants[i].id;
        if (i == 0 || job->wants[i].id != job->wants[i - 1].id) records++;
    }
    lock(d);
    if (code) {
        d->failed_reads++;
    } else {
        d->read += records;
        for (size_t i = 0; i < job->wants_n; i++) {
            uint32_t entry = disk_index_find(&d->store.index, job->wants[i].id);
            if (entry != DISK_NONE) touch(d, &d->store.index.entries[entry]);
        }
    }
    unlock(d);
    give_result(d, job, code);
}

/* ---- Writing ---- */
static void do_write(struct disk *d, struct disk_job *job) {
    const struct disk_identity *identity = &d->store.identity;
    uint64_t sum[DISK_GROUPS_MAX];
    int error = 0;
    lock(d);
    uint32_t entry = disk_index_find(&d->store.index, job->record);
    struct disk_entry e = entry == DISK_NONE ? (struct disk_entry){0} : d->store.index.entries[entry];
    int broken = d->broken;
    unlock(d);
    const char *page = job->pages;
    for (uint32_t g = 0; g < identity->groups && e.id && !broken && !error; g++) {
        if (!(job->groups >> g & 1)) continue;
        sum[g] = disk_page_sum(page, identity->page_bytes[g], e.chain, g);
        error = disk_segments_write(&d->store.segments, g, e.slot[g], page);
        page += identity->page_bytes[g];
    }
    mem_free(job->pages);
    job->pages = NULL;
    lock(d);
    d->queued_bytes -= job->bytes;
    entry = disk_index_find(&d->store.index, job->record);
    if (entry != DISK_NONE && !error && !broken) {
        struct disk_entry *now = &d->store.index.entries[entry];
        for (uint32_t g = 0; g < identity->groups; g++)
            if (job->groups >> g & 1) now->sum[g] = sum[g];
        now->written |= (uint8_t)job->groups;
        disk_queue_add(&d->staged, job);
        d->staged_bytes += job->bytes;
        job = NULL;
    }
    unlock(d);
    if (!job) return;
    if (error) say_once(d, strerror(error));
    if (error || broken)
        fail_write(d, job, broken ? COHORT_E_CLOSED : COHORT_E_IO);
    else if (job->code)
        fail_write(d, job, job->code);
    else
        disk_job_free(job); /* removed by the caller, who does not wait for it */
}

/* ---- Committing ---- */
static int is_dirty(const struct disk *d) {
    return d->staged.first || d->store.index.removing != DISK_NONE || d->store.index.sessions_dirty;
}

static void end_staged(struct disk *d, int code) {
    struct disk_job *job;
    d->staged_bytes = 0;
    for (;;) {
        lock(d);
        job = disk_queue_take(&d->staged);
        int is_gone = job && disk_index_find(&d->store.index, job->record) == DISK_NONE;
        if (job && !code && !is_gone) d->written++;
        unlock(d);
        if (!job) return;
        if (code && !is_gone)
            fail_write(d, job, code);
        else if (job->code)
            fail_write(d, job, job->code);
        else
            disk_job_free(job);
    }
}

static int put_staged(struct disk *d) {
    struct disk_index *x = &d->store.index;
    int code = 0;
    for (struct disk_job *job = d->staged.first; job && !code; job = job->next) {
        lock(d);
        uint32_t entry = disk_index_find(x, job->record);
        struct disk_entry e = entry == DISK_NONE ? (struct disk_entry){0} : x->entries[entry];
        uint64_t parent = e.id && e.parent != DISK_NONE ? x->entries[e.parent].id : 0;
        unlock(d);
        /* The entry's space is its own memory, which only a commit frees: this thread. */
        if (e.id) code = disk_db_put(&d->store.db, &e, parent);
    }
    return code;
}

static int put_sessions(struct disk *d) {
    struct disk_index *x = &d->store.index;
    int code = 0;
    for (uint32_t i = 0; i < DISK_SESSIONS_MAX && !code; i++) {
        lock(d);
        struct disk_session *row = &x->sessions[i];
        struct disk_session session = {0};
        int dirty = row->dirty;
        uint64_t chain = 0;
        if (dirty) {
            session = *row;
            row->dirty = 2;
            uint32_t entry = session.record ? disk_index_find(x, session.record) : DISK_NONE;
            int written = entry != DISK_NONE && (x->entries[entry].written || !x->entries[entry].groups);
            if (written) {
                chain = x->entries[entry].chain;
            } else if (session.record) { /* a name for what is not written yet: later */
                session.record = 0;
                row->dirty = 1;
            }
        }
        unlock(d);
        if (dirty) code = disk_db_session(&d->store.db, i, &session, chain);
    }
    return code;
}

static void end_sessions(struct disk *d, int code) {
    struct disk_index *x = &d->store.index;
    lock(d);
    for (uint32_t i = 0; i < DISK_SESSIONS_MAX; i++) {
        if (x->sessions[i].dirty != 2) continue;
        x->sessions[i].dirty = code != 0;
        if (!code) x->sessions_dirty--;
    }
    unlock(d);
}

static int put_touched(struct disk *d) {
    int code = 0;
    for (uint32_t i = 0; !code; i++) {
        lock(d);
        uint32_t entry = i < d->touched_n ? disk_index_find(&d->store.index, d->touched[i]) : DISK_NONE;
        uint64_t id = entry == DISK_NONE ? 0 : d->store.index.entries[entry].id;
        uint32_t used = id ? d->store.index.entries[entry].used : 0;
        int is_end = i >= d->touched_n;
        if (is_end) d->touched_n = 0; /* if the commit fails, only the time of use is not noted */
        unlock(d);
        if (is_end) break;
        if (id) code = disk_db_touch(&d->store.db, id, used);
    }
    return code;
}

/* Puts the removals of a commit that failed back in front of the list. */
static void keep_removing(struct disk *d, uint32_t list) {
    struct disk_index *x = &d->store.index;
    if (list == DISK_NONE) return;
    lock(d);
    uint32_t last = list;
    while (x->entries[last].link != DISK_NONE) last = x->entries[last].link;
    x->entries[last].link = x->removing;
    x->removing = list;
    unlock(d);
}

static void give_up(struct disk *d, const char *why) {
    lock(d);
    int was = d->broken;
    d->broken = 1;
    unlock(d);
    if (!was) disk_store_say(&d->store, "%s; nothing is stored any more until the next start", why);
}

static void commit_failed(struct disk *d, int code) {
    disk_db_rollback(&d->store.db);
    d->commit_us = clock_us() + (uint64_t)DISK_RETRY_MS * US_PER_MS;
    if (disk_db_is_fatal(code))
        give_up(d, disk_db_text(code));
    else
        say_once(d, disk_db_text(code));
}

/* Makes all that is staged, removed or named durable. Without the lock. */
static void commit(struct disk *d) {
    struct disk_store *s = &d->store;
    if (!disk_store_is_there(s)) {
        give_up(d, "its lock or its index was taken away");
        end_staged(d, COHORT_E_CLOSED);
        return;
    }
    int error = disk_segments_sync(&s->segments);
    if (error) {
        say_once(d, strerror(error));
        end_staged(d, COHORT_E_IO);
    }
    lock(d);
    uint32_t list = s->index.removing;
    s->index.removing = DISK_NONE;
    int had_work = d->staged.first != NULL;
    unlock(d);
    int code = disk_db_begin(&s->db);
    if (!code) code = put_staged(d);
    if (!code) code = disk_store_delete(s, list);
    if (!code) code = put_sessions(d);
    if (!code) code = put_touched(d);
    if (!code) code = disk_db_commit(&s->db);
    end_sessions(d, code);
    if (code) {
        keep_removing(d, list);
        commit_failed(d, code);
        end_staged(d, COHORT_E_IO);
        d->lost = 1;
        return;
    }
    d->commit_us = 0;
    if (had_work) say_well(d);
    disk_store_release(s, list);
    end_staged(d, 0);
}

/* ---- The thread ---- */
/* Does something of the queue of writes; 0: there is nothing to do in it. Called and left with the lock. */
static int step_writes(struct disk *d) {
    struct disk_job *job = d->writes.first;
    if (!job || (d->closing && clock_us() >= d->close_us)) return 0;
    int is_write = job->kind == DISK_WRITE;
    if (is_write && d->staged_bytes < DISK_COMMIT_BYTES) {
        disk_queue_take(&d->writes);
        d->writes_n--;
        unlock(d);
        do_write(d, job);
        lock(d);
        return 1;
    }
    int dirty = is_dirty(d), broken = d->broken;
    unlock(d);
    if (dirty && !broken)
        commit(d);
    else if (broken)
        end_staged(d, COHORT_E_CLOSED);
    lock(d);
    if (is_write) return 1;
    disk_queue_take(&d->writes);
    d->writes_n--;
    broken = d->broken;
    unlock(d);
    give_result(d, job, broken ? COHORT_E_CLOSED : d->lost ? COHORT_E_IO : 0);
    d->lost = 0;
    lock(d);
    return 1;
}

/* Commits what waits for it if it is time, or sleeps until it is. With the lock. */
static void wait_or_commit(struct disk *d) {
    if (!is_dirty(d) || d->broken) {
        pthread_cond_wait(&d->cond, &d->store.mutex);
        return;
    }
    uint64_t now = clock_us();
    if (!d->commit_us) d->commit_us = now + (uint64_t)DISK_LINGER_MS * US_PER_MS;
    if (now < d->commit_us) {
        struct timespec until = clock_deadline((uint32_t)((d->commit_us - now) / US_PER_MS + 1));
        pthread_cond_timedwait(&d->cond, &d->store.mutex, &until);
        return;
    }
    unlock(d);
    commit(d);
    lock(d);
}

void *disk_work(void *disk) {
    struct disk *d = disk;
    lock(d);
    for (;;) {
        struct disk_job *job = d->closing ? NULL : take_read(d);
        if (job) {
            unlock(d);
            do_read(d, job);
            lock(d);
        } else if (step_writes(d)) {
            continue;
        } else if (d->closing) {
            break;
        } else {
            wait_or_commit(d);
        }
    }
    int dirty = !d->broken && (is_dirty(d) || d->touched_n);
    unlock(d);
    if (dirty) commit(d);
    return NULL;
}
