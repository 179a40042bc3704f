/* The second copy of what was begun: DIR/journal.begun, beside SQLite's file and independent of it. The opener's
 * thread, then the journal's.
 *
 *   0     head: magic | format | seed | sum, filled up to 256 bytes
 *   256   records: a head of 256 bytes (struct begun_record), then the stream's head and body, filled up to 256
 *
 * One record a stream, appended behind the commit that has its row and before anybody is told, so whatever lives here
 * and is not in SQLite's file was lost there. Its head says what became of the stream and is written anew in its place
 * when that changes; it never crosses a page, so a kill leaves the old one or the new one. Sums are XXH3-128 under the
 * file's seed, which nobody outside knows: a request whose bytes look like a record is none.
 *
 * Behind a head that does not hold the next record is looked for at every 256 bytes. What lives is copied into a new
 * file when most of this one is of streams that are forgotten, and when something in it was damaged. Writes are
 * synchronised lazily: a power failure may take the last records, whose rows are safe, but an erased head is on the
 * disk before its row goes, so that a forgotten stream never comes back. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"
#include "server/journal_internal.h"

enum { GRID = 256, SLACK = 8 << 20 /* bytes, so that little is not written anew all the time */ };
#define HEAD_MAGIC   0x31686e7567656263ull /* "cbegunh1", as the bytes are in the file */
#define RECORD_MAGIC 0x31726e7567656263ull /* "cbegunr1" */

struct head {
    uint64_t magic, format, seed;
    uint8_t unused[GRID - 40], sum[16];
};
_Static_assert(sizeof(struct head) == GRID && sizeof(struct begun_record) == GRID, "one place of the grid each");

static void sum_of(const void *bytes, size_t n, uint64_t seed, uint8_t out[16]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_withSeed(bytes, n, seed));
    memcpy(out, &canonical, sizeof canonical);
}

static int holds(const void *head, uint64_t seed) {
    uint8_t sum[16];
    sum_of(head, GRID - sizeof sum, seed, sum);
    return memcmp(sum, (const uint8_t *)head + GRID - sizeof sum, sizeof sum) == 0;
}

static void seal(void *head, uint64_t seed) { sum_of(head, GRID - 16, seed, (uint8_t *)head + GRID - 16); }

/* Length of what is behind a record's head. */
static uint64_t payload_of(const struct begun_record *r) { return r->head_len + r->body_len; }

static uint64_t padded(uint64_t n) { return (n + GRID - 1) & ~(uint64_t)(GRID - 1); }

static void path_of(const struct journal *j, const char *more, char out[JOURNAL_PATH_MAX]) {
    snprintf(out, JOURNAL_PATH_MAX, "%.*sbegun%s", (int)(strlen(j->path) - strlen("db")), j->path, more);
}

static int read_at(int fd, void *bytes, size_t n, uint64_t at) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)bytes + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        done += (size_t)got;
    }
    return 0;
}

/* One that writes less has met the end of the disk. */
static int write_at(int fd, struct iovec *parts, int n, uint64_t at) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += parts[i].iov_len;
    ssize_t done = pwritev(fd, parts, n, (off_t)at);
    if (done == (ssize_t)bytes) return 0;
    if (done >= 0) errno = ENOSPC;
    return -1;
}

static int write_head(int fd, uint64_t seed) {
    struct head head = {.magic = HEAD_MAGIC, .format = JOURNAL_FORMAT, .seed = seed};
    seal(&head, 0);
    return write_at(fd, &(struct iovec){&head, sizeof head}, 1, 0);
}

/* ---- the index: of what lives, by number ---- */

static struct begun_entry *entries(const struct begun *b, size_t *n) {
    *n = b->index.len / sizeof(struct begun_entry);
    return (struct begun_entry *)(void *)b->index.data;
}

static int by_number(const void *one, const void *other) {
    uint64_t a = ((const struct begun_entry *)one)->number, b = ((const struct begun_entry *)other)->number;
    return a < b ? -1 : a > b;
}

static struct begun_entry *find(const struct begun *b, uint64_t number) {
    size_t n;
    struct begun_entry *all = entries(b, &n), key = {.number = number};
    return b->sorted ? bsearch(&key, all, b->sorted, sizeof key, by_number) : NULL;
}

int journal_begun_has(const struct journal *j, uint64_t number) { return find(&j->begun, number) != NULL; }

void journal_begun_sort(struct journal *j) {
    size_t n;
    struct begun_entry *all = entries(&j->begun, &n);
    if (j->begun.sorted < n) qsort(all, n, sizeof *all, by_number);
    j->begun.sorted = n;
}

/* Erased entries have no bytes; they go when they are the most. */
static void squeeze(struct begun *b) {
    size_t n, kept = 0;
    struct begun_entry *all = entries(b, &n);
    if (b->erased * 2 <= n) return;
    for (size_t i = 0; i < n; i++)
        if (all[i].bytes) all[kept++] = all[i];
    b->index.len = kept * sizeof *all;
    b->sorted = kept;
    b->erased = 0;
}

static int add_entry(struct begun *b, uint64_t number, uint64_t at, uint64_t bytes) {
    const struct begun_entry entry = {number, at, bytes};
    size_t n;
    const struct begun_entry *all = entries(b, &n);
    int in_order = b->sorted == n && (n == 0 || all[n - 1].number < number);
    if (buf_add(&b->index, &entry, sizeof entry) != 0) {
        errno = ENOMEM;
        return -1;
    }
    b->sorted += (size_t)in_order;
    if (number > b->highest) b->highest = number;
    b->live += bytes;
    return 0;
}

/* ---- opening and reading ---- */

int journal_begun_open(struct journal *j, cohort_error *err) {
    struct begun *b = &j->begun;
    struct head head;
    struct stat is;
    char path[JOURNAL_PATH_MAX], aside[JOURNAL_PATH_MAX];
    path_of(j, "", path);
    path_of(j, ".damaged", aside);
    for (int i = 0;; i++) {
        b->fd = journal_open_plain(path, O_CREAT, err);
        if (b->fd < 0) return COHORT_E_IO;
        if (fstat(b->fd, &is) != 0 || is.st_size < GRID) break; /* new: a head is written before anything else */
        if (read_at(b->fd, &head, sizeof head, 0) == 0 && head.magic == HEAD_MAGIC && holds(&head, 0)) {
            b->seed = head.seed;
            b->format = head.format;
            b->size = (uint64_t)is.st_size;
            return 0;
        }
        b->damaged++;
        close(b->fd);
        b->fd = -1;
        if (i || rename(path, aside) != 0)
            return err_set(err, COHORT_E_IO, "state-dir", "%.200s is damaged and cannot be moved aside", path);
    }
    b->size = 0;
    b->unlisted = 1;
    if (getrandom(&b->seed, sizeof b->seed, 0) != sizeof b->seed)
        return err_set(err, COHORT_E_IO, NULL, "no random numbers");
    return 0;
}

void journal_begun_close(struct journal *j) {
    if (j->begun.fd >= 0) {
        journal_begun_sync(j);
        close(j->begun.fd);
    }
    j->begun.fd = -1;
    buf_free(&j->begun.index);
}

static int is_record(const struct begun *b, const struct begun_record *r) {
    return r->magic == RECORD_MAGIC && holds(r, b->seed) && r->head_len <= JOURNAL_BLOB_MAX &&
           r->body_len <= JOURNAL_BLOB_MAX;
}

static int payload_holds(const struct begun *b, const struct begun_record *r, const char *payload) {
    uint8_t sum[16];
    sum_of(payload, payload_of(r), b->seed ^ r->number, sum);
    return memcmp(sum, r->payload_sum, sizeof sum) == 0;
}

static int rewrite_record(struct begun *b, struct begun_record *r, uint64_t at) {
    seal(r, b->seed);
    b->unsynced = 1;
    if (write_at(b->fd, &(struct iovec){r, sizeof *r}, 1, at) == 0) return 0;
    b->error = errno;
    return -1;
}

/* One record whose head holds and that is there as a whole. */
static int take(struct begun *b, struct begun_record *r, uint64_t at, journal_begun_each_fn each, void *user) {
    uint64_t bytes = GRID + padded(payload_of(r));
    struct begun_record before = *r;
    char *payload = NULL;
    int rc = 0;
    if (r->number > b->highest) b->highest = r->number;
    if (r->state != STREAM_REMOVED) {
        payload = mem_alloc(payload_of(r) + 1, 1);
        if (!payload) {
            b->error = ENOMEM;
            return -1;
        }
        if (read_at(b->fd, payload, payload_of(r), at + GRID) != 0 || !payload_holds(b, r, payload)) {
            b->damaged++;
            mem_free(payload);
            return 0;
        }
    }
    rc = each(user, r, payload);
    if (!rc && memcmp(&before, r, sizeof before) != 0) rc = rewrite_record(b, r, at);
    if (!rc && r->state != STREAM_REMOVED && (rc = add_entry(b, r->number, at, bytes)) != 0) b->error = errno;
    mem_free(payload);
    return rc;
}

int journal_begun_each(struct journal *j, journal_begun_each_fn each, void *user) {
    struct begun *b = &j->begun;
    uint64_t at = GRID;
    int rc = 0, lost = 0; /* among what does not hold */
    buf_clear(&b->index);
    b->live = b->erased = b->sorted = 0;
    b->damaged -= b->walked; /* the same places are met again */
    uint64_t before = b->damaged;
    while (!rc && at + GRID <= b->size) {
        struct begun_record r;
        if (read_at(b->fd, &r, sizeof r, at) != 0 || !is_record(b, &r)) {
            b->damaged += !lost;
            lost = 1;
            at += GRID;
            continue;
        }
        lost = 0;
        uint64_t next = at + GRID + padded(payload_of(&r));
        if (next > b->size) break; /* cut off */
        rc = take(b, &r, at, each, user);
        at = next;
    }
    if (!rc && at < b->size && ftruncate(b->fd, (off_t)at) == 0) b->size = at;
    b->walked = b->damaged - before;
    journal_begun_sort(j);
    return rc;
}

/* ---- writing ---- */

int journal_begun_add(struct journal *j, struct begun_record *r, const char *head, const char *body) {
    static char zeros[GRID];
    struct begun *b = &j->begun;
    XXH3_state_t *sum = XXH3_createState();
    if (!sum) {
        b->error = ENOMEM;
        return COHORT_E_IO;
    }
    XXH3_128bits_reset_withSeed(sum, b->seed ^ r->number);
    XXH3_128bits_update(sum, head, r->head_len);
    XXH3_128bits_update(sum, body, r->body_len);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(sum));
    XXH3_freeState(sum);
    memcpy(r->payload_sum, &canonical, sizeof canonical);
    r->magic = RECORD_MAGIC;
    seal(r, b->seed);
    uint64_t bytes = GRID + padded(payload_of(r));
    uint64_t at = b->size ? b->size : GRID;
    struct iovec parts[] = {{r, sizeof *r},
                            {(void *)(uintptr_t)head, r->head_len},
                            {(void *)(uintptr_t)body, r->body_len},
                            {zeros, padded(payload_of(r)) - payload_of(r)}};
    int rc = b->size ? 0 : write_head(b->fd, b->seed);
    if (!rc) rc = write_at(b->fd, parts, 4, at);
    if (!rc) rc = add_entry(b, r->number, at, bytes);
    if (rc) {
        b->error = errno;
        if (ftruncate(b->fd, (off_t)b->size) != 0) b->damaged++; /* the next one is written over it */
        return COHORT_E_IO;
    }
    b->size = at + bytes;
    b->format = JOURNAL_FORMAT;
    b->unsynced = 1;
    return 0;
}

/* The head of a stream's record as it is in the file. 0: there is none that holds. */
static int read_record(struct begun *b, const struct begun_entry *entry, struct begun_record *r) {
    if (!entry || !entry->bytes) return 0;
    if (read_at(b->fd, r, sizeof *r, entry->at) == 0 && is_record(b, r) && r->number == entry->number) return 1;
    b->damaged++;
    return 0;
}

void journal_begun_ended(struct journal *j, uint64_t number, int64_t ended, uint64_t events, int status) {
    struct begun_record r;
    const struct begun_entry *entry = find(&j->begun, number);
    if (!read_record(&j->begun, entry, &r)) return;
    r.state = STREAM_ENDED;
    r.ended = ended;
    r.events = events;
    r.status = status;
    rewrite_record(&j->begun, &r, entry->at); /* without it the row is believed */
}

int journal_begun_erase(struct journal *j, uint64_t number) {
    struct begun *b = &j->begun;
    struct begun_record r;
    struct begun_entry *entry = find(b, number);
    if (!entry || !entry->bytes) return 0;
    if (read_record(b, entry, &r)) {
        r.state = STREAM_REMOVED;
        if (rewrite_record(b, &r, entry->at) != 0) return COHORT_E_IO;
    }
    b->live -= entry->bytes;
    entry->bytes = 0;
    b->erased++;
    squeeze(b);
    return 0;
}

static int sync_folder(const char *path) {
    char folder[JOURNAL_PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    int fd = open(*folder ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd);
    if (fd >= 0) close(fd);
    return rc;
}

int journal_begun_sync(struct journal *j) {
    struct begun *b = &j->begun;
    if ((b->unlisted && sync_folder(j->path) != 0) || (b->unsynced && fdatasync(b->fd) != 0)) {
        b->error = errno;
        return COHORT_E_IO;
    }
    b->unlisted = b->unsynced = 0;
    return 0;
}

/* ---- what lives, in a new file ---- */

static int copy_record(struct begun *from, struct begun *to, const struct begun_entry *entry) {
    char *bytes = mem_alloc(entry->bytes, 1);
    if (!bytes) return -1;
    struct begun_record r;
    int rc = 0;
    if (read_record(from, entry, &r) && GRID + padded(payload_of(&r)) == entry->bytes) {
        memcpy(bytes, &r, sizeof r);
        if (read_at(from->fd, bytes + GRID, entry->bytes - GRID, entry->at + GRID) != 0 ||
            !payload_holds(from, &r, bytes + GRID)) {
            from->damaged++; /* its row is all there is */
        } else {
            rc = write_at(to->fd, &(struct iovec){bytes, entry->bytes}, 1, to->size);
            if (!rc) rc = add_entry(to, entry->number, to->size, entry->bytes);
            if (!rc) to->size += entry->bytes;
        }
    }
    mem_free(bytes);
    return rc;
}

static int copy_all(struct begun *from, struct begun *to) {
    size_t n;
    const struct begun_entry *all = entries(from, &n);
    int rc = write_head(to->fd, to->seed);
    to->size = GRID;
    for (size_t i = 0; i < n && !rc; i++)
        if (all[i].bytes) rc = copy_record(from, to, &all[i]);
    return rc ? rc : fdatasync(to->fd);
}

int journal_begun_rewrite(struct journal *j, int keep) {
    struct begun *b = &j->begun, to = {.seed = b->seed, .format = JOURNAL_FORMAT, .highest = b->highest};
    char path[JOURNAL_PATH_MAX], new[JOURNAL_PATH_MAX], aside[JOURNAL_PATH_MAX];
    struct stat is;
    path_of(j, "", path);
    path_of(j, ".new", new);
    path_of(j, ".damaged", aside);
    unlink(new);
    to.fd = open(new, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc = to.fd < 0 ? -1 : copy_all(b, &to);
    if (!rc) rc = fstat(to.fd, &is);
    if (!rc && keep) {
        unlink(aside);
        if (link(path, aside) != 0) fprintf(stderr, "cohort: %s cannot be kept: %s\n", path, strerror(errno));
    }
    if (!rc) rc = rename(new, path);
    if (rc) {
        if (to.fd >= 0) close(to.fd);
        unlink(new);
        buf_free(&to.index);
        b->due = b->size + SLACK;
        return COHORT_E_IO;
    }
    journal_note_file(j, "journal.begun", &is);
    close(b->fd);
    buf_free(&b->index);
    to.damaged = b->damaged;
    to.unlisted = 1;
    *b = to;
    journal_begun_sync(j); /* or with the next one */
    return 0;
}

int journal_begun_is_due(const struct journal *j, unsigned times) {
    const struct begun *b = &j->begun;
    return !b->apart && b->size > b->due && b->size > times * (b->live + SLACK) + GRID;
}
