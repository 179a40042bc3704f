/* A folder of the disk tier as a whole: who may have it, opening it with every check, and what joins pages with
 * records. The opener's thread, then the module's own; the index is guarded by the mutex.
 *
 * Opening, in this order: the lock; the database (a damaged one is set aside and begun anew); another identity's
 * records go; each record is checked and the bad ones are removed, which is committed; then segments that no record
 * names are unlinked. A crash between two of these leaves what the next opening cleans up the same way. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/mem.h"
#include "state/disk_internal.h"

enum { IDS_LEAST = 64 };

#define INDEX_NAME   "index.db"
#define DAMAGED_NAME "index.db.damaged"
static const char *const index_files[] = {INDEX_NAME, INDEX_NAME "-wal", INDEX_NAME "-shm", INDEX_NAME "-journal"};
enum { INDEX_FILES = sizeof(index_files) / sizeof(index_files[0]) };

uint32_t disk_now(void) {
    time_t now = time(NULL);
    return now < 0 ? 0 : now > (time_t)UINT32_MAX ? UINT32_MAX : (uint32_t)now;
}

void disk_store_say(const struct disk_store *s, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fprintf(stderr, "cohort: state-dir %s: %s\n", s->path, line);
}

/* ---- The folder ---- */
static int io_error(const struct disk_store *s, const char *what, cohort_error *err) {
    return err_set(err, COHORT_E_IO, "state-dir", "state-dir %s: %s%s", s->path, what, strerror(errno));
}

static int open_folder(struct disk_store *s, enum disk_mode mode, cohort_error *err) {
    int made = mode == DISK_OWN && mkdir(s->path, 0700) == 0;
    if (mode == DISK_OWN && !made && errno != EEXIST) return io_error(s, "", err);
    s->folder = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->folder < 0 && errno == ENOENT)
        return err_set(err, COHORT_E_NOT_FOUND, "state-dir", "state-dir %s: there is no such folder", s->path);
    if (s->folder < 0) return io_error(s, "", err);
    int parent = made ? openat(s->folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (parent >= 0) { /* so that the new folder's name survives, too */
        fsync(parent);
        close(parent);
    }
    if (mode == DISK_LOOK) return 0;
    s->lock = openat(s->folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (s->lock < 0) return io_error(s, "its file \"lock\" cannot be opened: ", err);
    struct stat status;
    if (fstat(s->lock, &status)) return io_error(s, "", err);
    if (!S_ISREG(status.st_mode))
        return err_set(err, COHORT_E_IO, "state-dir", "state-dir %s: its file \"lock\" is no plain file", s->path);
    if (flock(s->lock, LOCK_EX | LOCK_NB) == 0) {
        s->lock_file = status.st_ino;
        return 0;
    }
    if (errno != EWOULDBLOCK) return io_error(s, "the lock cannot be taken: ", err);
    return err_set(err, COHORT_E_BUSY, "state-dir", "state-dir %s: another process is using it", s->path);
}

/* The path of a file in the folder, for SQLite, which opens by path and follows no links. */
static int full_path(const struct disk_store *s, const char *name, struct buf *out, cohort_error *err) {
    struct stat by_path, by_folder;
    char *real = realpath(s->path, NULL);
    if (!real || stat(real, &by_path) || fstat(s->folder, &by_folder)) {
        free(real);
        return io_error(s, "", err);
    }
    int same = by_path.st_dev == by_folder.st_dev && by_path.st_ino == by_folder.st_ino;
    int code = same ? buf_addf(out, "%s/%s", real, name) : COHORT_E_IO;
    free(real);
    if (!same) return err_set(err, code, "state-dir", "state-dir %s: it was moved while it was opened", s->path);
    return code ? err_set(err, code, "state-dir", "state-dir %s: no memory for its path", s->path) : 0;
}

static int is_file(const struct disk_store *s, const char *name, uint64_t file) {
    struct stat status;
    return !fstatat(s->folder, name, &status, AT_SYMLINK_NOFOLLOW) && status.st_ino == file;
}

int disk_store_is_there(const struct disk_store *s) {
    return is_file(s, "lock", s->lock_file) && is_file(s, INDEX_NAME, s->index_file);
}

/* Whether the database's files are plain files of their own, or not there. */
static int files_are_plain(const struct disk_store *s) {
    struct stat status;
    for (int i = 0; i < INDEX_FILES; i++)
        if (!fstatat(s->folder, index_files[i], &status, AT_SYMLINK_NOFOLLOW) &&
            (!S_ISREG(status.st_mode) || status.st_nlink != 1))
            return 0;
    return 1;
}

static int set_aside(struct disk_store *s, cohort_error *err) {
    if (renameat(s->folder, INDEX_NAME, s->folder, DAMAGED_NAME) && errno != ENOENT)
        return io_error(s, "its index is damaged and cannot be moved aside: ", err);
    for (int i = 1; i < INDEX_FILES; i++)
        if (unlinkat(s->folder, index_files[i], 0) && errno != ENOENT)
            return err_set(err, COHORT_E_IO, "state-dir",
                           "state-dir %s: its index is damaged, and %s cannot be removed: %s", s->path, index_files[i],
                           strerror(errno));
    disk_store_say(s,
                   "its index was damaged; it was moved to " DAMAGED_NAME " and begun anew, without what was stored");
    return 0;
}

/* ---- Identity ---- */
static void pack_identity(const struct disk_identity *identity, uint8_t out[DISK_IDENTITY_BYTES]) {
    memset(out, 0, DISK_IDENTITY_BYTES);
    memcpy(out, identity->model, 16);
    memcpy(out + 16, identity->tokenizer, 16);
    memcpy(out + 32, &identity->numerics, 4);
    memcpy(out + 36, &identity->page_layout, 4);
    memcpy(out + 40, &identity->groups, 4);
    for (uint32_t g = 0; g < identity->groups; g++) {
        memcpy(out + 44 + 12 * g, &identity->window[g], 4);
        memcpy(out + 48 + 12 * g, &identity->page_bytes[g], 8);
    }
}

static int unpack_identity(const uint8_t bytes[DISK_IDENTITY_BYTES], struct disk_identity *out) {
    *out = (struct disk_identity){0};
    memcpy(out->model, bytes, 16);
    memcpy(out->tokenizer, bytes + 16, 16);
    memcpy(&out->numerics, bytes + 32, 4);
    memcpy(&out->page_layout, bytes + 36, 4);
    memcpy(&out->groups, bytes + 40, 4);
    if (out->groups > DISK_GROUPS_MAX) return -1;
    for (uint32_t g = 0; g < out->groups; g++) {
        memcpy(&out->window[g], bytes + 44 + 12 * g, 4);
        memcpy(&out->page_bytes[g], bytes + 48 + 12 * g, 8);
        if (out->page_bytes[g] > DISK_PAGE_MAX) return -1;
    }
    return 0;
}

/* Takes over the folder's identity, or gives it ours. */
static int settle_identity(struct disk_store *s, enum disk_mode mode, const struct disk_identity *wanted,
                           cohort_error *err) {
    uint8_t found[DISK_IDENTITY_BYTES], packed[DISK_IDENTITY_BYTES];
    uint64_t records = 0;
    int there;
    int code = disk_db_identity(&s->db, found, &there, err);
    if (code) return code;
    if (mode != DISK_OWN) {
        s->identity = (struct disk_identity){0};
        return there && unpack_identity(found, &s->identity) ? DISK_DB_DAMAGED : 0;
    }
    s->identity = *wanted;
    pack_identity(wanted, packed);
    if (there && !memcmp(found, packed, sizeof(packed))) return 0;
    code = disk_db_reset(&s->db, packed, &records, err);
    if (code) return code;
    s->discarded += records;
    if (there && records)
        disk_store_say(s, "%llu stored blocks are of another model or other settings and were removed",
                       (unsigned long long)records);
    return 0;
}

/* ---- Loading ---- */
struct discards {
    disk_bad_fn *bad; /* the caller's */
    void *user;
    uint64_t *ids, n, cap;
    int code;
    const char *why; /* of the first one */
};

static void note_discard(void *user, uint64_t id, const char *why) {
    struct discards *d = user;
    if (d->bad) d->bad(d->user, id, why);
    if (d->n == d->cap) {
        uint64_t cap = d->cap ? 2 * d->cap : IDS_LEAST;
        uint64_t *ids = mem_realloc(d->ids, cap, sizeof(*ids));
        if (!ids) {
            d->code = COHORT_E_MEMORY;
            return;
        }
        d->ids = ids;
        d->cap = cap;
    }
    if (d->n == 0) d->why = why;
    d->ids[d->n++] = id;
}

static int delete_discards(struct disk_store *s, const struct discards *d, cohort_error *err) {
    int code = d->n ? disk_db_begin(&s->db) : 0;
    for (uint64_t i = 0; i < d->n && !code; i++) code = disk_db_remove(&s->db, d->ids[i]);
    if (!code && d->n) code = disk_db_commit(&s->db);
    if (!code) return 0;
    disk_db_rollback(&s->db);
    if (disk_db_is_fatal(code)) return DISK_DB_DAMAGED;
    return err_set(err, COHORT_E_IO, "state-dir", "state-dir %s: its index cannot be written: %s", s->path,
                   disk_db_text(code));
}

/* Unlinks segments that no record names, and halves of such. */
static int clean_segments(struct disk_store *s, cohort_error *err) {
    int copy = openat(s->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;
    if (!folder) {
        if (copy >= 0) close(copy);
        return io_error(s, "", err);
    }
    unsigned unlinked = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        uint32_t group, number;
        int kind = disk_segments_name(entry->d_name, &group, &number);
        if (kind == 2) unlinkat(s->folder, entry->d_name, 0);
        if (kind != 1) continue;
        if (group < s->segments.groups) {
            uint64_t first = (uint64_t)number * s->segments.slots[group];
            if (first < DISK_SLOTS_MAX &&
                !disk_index_slots_free(&s->index, group, (uint32_t)first, s->segments.slots[group]))
                continue;
            disk_segments_unlink(&s->segments, group, number);
        } else {
            unlinkat(s->folder, entry->d_name, 0);
        }
        unlinked++;
    }
    closedir(folder);
    if (unlinked) disk_store_say(s, "%u segments without any stored block were removed", unlinked);
    return 0;
}

static int load(struct disk_store *s, enum disk_mode mode, disk_bad_fn *bad, void *user, cohort_error *err) {
    uint8_t packed[DISK_IDENTITY_BYTES], digest[16];
    struct discards d = {.bad = bad, .user = user};
    pack_identity(&s->identity, packed);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(packed, sizeof(packed)));
    memcpy(digest, canonical.digest, sizeof(digest));
    disk_segments_init(&s->segments, s->folder, mode != DISK_LOOK, &s->identity, digest);
    int code = disk_index_init(&s->index, s->identity.groups, s->segments.slot_bytes);
    if (!code) code = disk_db_load(&s->db, &s->index, &s->segments, note_discard, &d, err);
    if (!code) code = d.code;
    s->discarded += d.n;
    if (code == COHORT_E_MEMORY)
        err_set(err, code, "state-dir", "state-dir %s: no memory for what is known of it", s->path);
    if (!code && mode != DISK_LOOK) code = delete_discards(s, &d, err);
    if (!code && mode != DISK_LOOK) code = clean_segments(s, err);
    if (!code && d.n && mode == DISK_OWN)
        disk_store_say(s, "%llu stored blocks of %llu cannot be used and were removed (the first: %s)",
                       (unsigned long long)d.n, (unsigned long long)(d.n + s->index.records), d.why);
    mem_free(d.ids);
    return code;
}

/* ---- Opening ---- */
/* One attempt; DISK_DB_DAMAGED if the database is. */
static int open_database(struct disk_store *s, enum disk_mode mode, int make, const struct disk_identity *identity,
                         disk_bad_fn *bad, void *user, cohort_error *err) {
    struct buf path = {0};
    struct stat status;
    if (!files_are_plain(s)) return DISK_DB_DAMAGED;
    if (!make && fstatat(s->folder, INDEX_NAME, &status, AT_SYMLINK_NOFOLLOW))
        return err_set(err, COHORT_E_NOT_FOUND, "state-dir", "state-dir %s: nothing is stored there", s->path);
    if (make) { /* SQLite would give it a mode by the umask, and takes the mode of its other files from this one */
        int fd = openat(s->folder, INDEX_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) return io_error(s, INDEX_NAME ": ", err);
        close(fd);
    }
    if (fstatat(s->folder, INDEX_NAME, &status, AT_SYMLINK_NOFOLLOW)) return io_error(s, INDEX_NAME ": ", err);
    s->index_file = status.st_ino;
    int code = full_path(s, INDEX_NAME, &path, err);
    if (!code) code = disk_db_open(&s->db, path.data, mode != DISK_LOOK, err);
    if (!code) code = settle_identity(s, mode, identity, err);
    if (!code) code = load(s, mode, bad, user, err);
    buf_free(&path);
    return code;
}

static void close_database(struct disk_store *s) {
    disk_db_close(&s->db);
    disk_segments_deinit(&s->segments);
    disk_index_deinit(&s->index);
}

int disk_store_open(struct disk_store *s, const char *dir, enum disk_mode mode, const struct disk_identity *identity,
                    disk_bad_fn *bad, void *user, cohort_error *err) {
    *s = (struct disk_store){.path = dir, .folder = -1, .lock = -1};
    pthread_mutex_init(&s->mutex, NULL);
    int code = open_folder(s, mode, err);
    if (!code) code = open_database(s, mode, mode == DISK_OWN, identity, bad, user, err);
    if (code == DISK_DB_DAMAGED && mode != DISK_LOOK) {
        close_database(s);
        code = set_aside(s, err);
        if (!code) code = open_database(s, mode, 1, identity, bad, user, err);
    }
    if (code == DISK_DB_DAMAGED)
        code = err_set(err, COHORT_E_IO, "state-dir", "state-dir %s: its index is damaged", dir);
    char *copy = code ? NULL : mem_alloc(strlen(dir) + 1, 1);
    if (!code && !copy) code = err_set(err, COHORT_E_MEMORY, "state-dir", "state-dir %s: no memory for its name", dir);
    s->path = copy;
    if (code)
        disk_store_close(s);
    else
        memcpy(copy, dir, strlen(dir) + 1);
    return code;
}

void disk_store_close(struct disk_store *s) {
    close_database(s);
    if (s->lock >= 0) close(s->lock);
    if (s->folder >= 0) close(s->folder);
    pthread_mutex_destroy(&s->mutex);
    mem_free((char *)s->path);
    *s = (struct disk_store){.folder = -1, .lock = -1};
}

/* ---- Pages and records ---- */
uint64_t disk_page_sum(const void *page, uint64_t bytes, uint64_t chain, uint32_t group) {
    return XXH3_64bits_withSeed(page, bytes, chain ^ (group + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

const char *disk_store_read(struct disk_store *s, const struct disk_entry *entry, uint32_t group, void *to) {
    int error = disk_segments_read(&s->segments, group, entry->slot[group], to);
    if (error == ENOENT || error == ENODATA || error == EINVAL || error == ELOOP || error == ENXIO)
        return "its page is gone";
    if (error) return "its page cannot be read";
    uint64_t sum = disk_page_sum(to, s->identity.page_bytes[group], entry->chain, group);
    return sum == entry->sum[group] ? NULL : "a page's checksum does not hold";
}

int disk_store_delete(struct disk_store *s, uint32_t list) {
    int code = 0;
    while (list != DISK_NONE && !code) {
        pthread_mutex_lock(&s->mutex);
        uint64_t id = s->index.entries[list].id;
        list = s->index.entries[list].link;
        pthread_mutex_unlock(&s->mutex);
        code = disk_db_remove(&s->db, id);
    }
    return code;
}

void disk_store_release(struct disk_store *s, uint32_t list) {
    while (list != DISK_NONE) {
        uint32_t empty = 0;
        pthread_mutex_lock(&s->mutex);
        struct disk_entry entry = s->index.entries[list];
        disk_index_forget(&s->index, list);
        for (uint32_t g = 0; g < s->segments.groups; g++) {
            uint32_t slots = s->segments.slots[g];
            if (entry.groups >> g & 1 && disk_index_slots_free(&s->index, g, entry.slot[g] / slots * slots, slots))
                empty |= 1u << g;
        }
        pthread_mutex_unlock(&s->mutex);
        list = entry.link;
        for (uint32_t g = 0; g < s->segments.groups; g++) {
            if (!(entry.groups >> g & 1)) continue;
            if (empty >> g & 1)
                disk_segments_unlink(&s->segments, g, entry.slot[g] / s->segments.slots[g]);
            else
                disk_segments_give_back(&s->segments, g, entry.slot[g]);
        }
    }
}
