/* Segment files of the disk tier: a header, then slots of one page each. The opener's thread, then the module's own.
 *
 *   0       "cohort-s" | format | group | number | slots | slot bytes | page bytes | identity | sum of what is before
 *   4096    slot 0, slot 1, ... each as long as a page, rounded up
 *
 * A file is made under another name, whole, and renamed; it grows as its slots are written. Nothing is followed: a
 * link, a pipe or a file without our header in the place of a segment is one that is not there. At most DISK_OPEN_MAX
 * are open. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mem.h"
#include "state/disk_internal.h"

struct header {
    char magic[8];
    uint32_t format, group, number, slots;
    uint64_t slot_bytes, page_bytes;
    uint8_t identity[16];
    uint64_t sum;
};
_Static_assert(sizeof(struct header) == 64, "a header has no holes");

enum { NAME_SIZE = 48 };

static void segment_name(uint32_t group, uint32_t number, const char *more, char out[NAME_SIZE]) {
    snprintf(out, NAME_SIZE, "pages-%u-%u.seg%s", group, number, more);
}

int disk_segments_name(const char *name, uint32_t *group, uint32_t *number) {
    char again[NAME_SIZE];
    if (sscanf(name, "pages-%u-%u.seg", group, number) != 2) return 0;
    if (*group >= DISK_GROUPS_MAX || *number >= DISK_SEGMENTS_MAX) return 0;
    segment_name(*group, *number, "", again);
    if (!strcmp(again, name)) return 1;
    segment_name(*group, *number, ".tmp", again);
    return strcmp(again, name) ? 0 : 2;
}

void disk_segments_init(struct disk_segments *s, int folder, int writable, const struct disk_identity *identity,
                        const uint8_t digest[16]) {
    *s = (struct disk_segments){.folder = folder, .writable = writable, .groups = identity->groups};
    memcpy(s->identity, digest, sizeof(s->identity));
    for (uint32_t g = 0; g < s->groups; g++) {
        s->page_bytes[g] = identity->page_bytes[g];
        s->slot_bytes[g] = disk_slot_bytes(identity->page_bytes[g]);
        uint64_t slots = DISK_SEGMENT_BYTES / s->slot_bytes[g];
        s->slots[g] = slots ? (uint32_t)slots : 1;
    }
}

void disk_segments_deinit(struct disk_segments *s) {
    for (uint32_t g = 0; g < s->groups; g++) {
        for (uint32_t i = 0; i < s->n[g]; i++)
            if (s->list[g][i].fd >= 0) close(s->list[g][i].fd);
        mem_free(s->list[g]);
    }
    *s = (struct disk_segments){.folder = -1};
}

static void make_header(const struct disk_segments *s, uint32_t group, uint32_t number, struct header *out) {
    *out = (struct header){.magic = {'c', 'o', 'h', 'o', 'r', 't', '-', 's'},
                           .format = DISK_FORMAT,
                           .group = group,
                           .number = number,
                           .slots = s->slots[group],
                           .slot_bytes = s->slot_bytes[group],
                           .page_bytes = s->page_bytes[group]};
    memcpy(out->identity, s->identity, sizeof(out->identity));
    out->sum = XXH3_64bits(out, offsetof(struct header, sum));
}

/* The segment's place in the list, which grows up to it; NULL without memory. */
static struct disk_segment *place(struct disk_segments *s, uint32_t group, uint32_t number) {
    if (number >= s->n[group]) {
        uint32_t n = number < 8 ? 8 : number + number / 2 + 1;
        struct disk_segment *list = mem_realloc(s->list[group], n, sizeof(*list));
        if (!list) return NULL;
        for (uint32_t i = s->n[group]; i < n; i++) list[i] = (struct disk_segment){.fd = -1};
        s->list[group] = list;
        s->n[group] = n;
    }
    return &s->list[group][number];
}

static int close_segment(struct disk_segments *s, struct disk_segment *segment) {
    int error = segment->dirty && fdatasync(segment->fd) ? errno : 0;
    segment->dirty = 0;
    close(segment->fd);
    segment->fd = -1;
    s->open--;
    return error;
}

/* Closes the one used longest ago if too many are open. What was written to it is synced before, since a failure would
 * be told to that descriptor only. */
static int make_room(struct disk_segments *s) {
    if (s->open < DISK_OPEN_MAX) return 0;
    struct disk_segment *oldest = NULL;
    for (uint32_t g = 0; g < s->groups; g++)
        for (uint32_t i = 0; i < s->n[g]; i++) {
            struct disk_segment *segment = &s->list[g][i];
            if (segment->fd >= 0 && (!oldest || segment->used < oldest->used)) oldest = segment;
        }
    return oldest ? close_segment(s, oldest) : 0;
}

static int pwrite_all(int fd, const void *bytes, uint64_t n, uint64_t at) {
    while (n > 0) {
        ssize_t done = pwrite(fd, bytes, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : ENOSPC;
        bytes = (const char *)bytes + done;
        n -= (uint64_t)done;
        at += (uint64_t)done;
    }
    return 0;
}

static int pread_all(int fd, void *bytes, uint64_t n, uint64_t at) {
    while (n > 0) {
        ssize_t done = pread(fd, bytes, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : ENODATA;
        bytes = (char *)bytes + done;
        n -= (uint64_t)done;
        at += (uint64_t)done;
    }
    return 0;
}

/* Opens the file that is there, if it is ours. */
static int open_segment(struct disk_segments *s, uint32_t group, uint32_t number, struct disk_segment *segment) {
    char name[NAME_SIZE];
    segment_name(group, number, "", name);
    int error = make_room(s);
    if (error) return error;
    int fd = openat(s->folder, name, (s->writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    struct header wanted, found;
    struct stat status;
    make_header(s, group, number, &wanted);
    error = fstat(fd, &status) ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
    if (!error) error = pread_all(fd, &found, sizeof(found), 0);
    if (!error && memcmp(&found, &wanted, sizeof(found)) != 0) error = EINVAL;
    if (error) {
        close(fd);
        return error;
    }
    segment->fd = fd;
    segment->known = 1;
    segment->size = (uint64_t)status.st_size;
    s->open++;
    return 0;
}

static int make_segment(struct disk_segments *s, uint32_t group, uint32_t number) {
    char name[NAME_SIZE], half[NAME_SIZE], block[DISK_ALIGN] = {0};
    struct header header;
    segment_name(group, number, "", name);
    segment_name(group, number, ".tmp", half);
    unlinkat(s->folder, half, 0);
    int fd = openat(s->folder, half, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    make_header(s, group, number, &header);
    memcpy(block, &header, sizeof(header));
    int error = pwrite_all(fd, block, sizeof(block), 0);
    if (!error && fdatasync(fd)) error = errno;
    close(fd);
    if (!error && renameat(s->folder, half, s->folder, name)) error = errno;
    if (error)
        unlinkat(s->folder, half, 0);
    else
        s->created = 1;
    return error;
}

static int find(struct disk_segments *s, uint32_t group, uint32_t number, struct disk_segment **out) {
    *out = place(s, group, number);
    if (!*out) return ENOMEM;
    (*out)->used = ++s->clock;
    return (*out)->fd >= 0 ? 0 : open_segment(s, group, number, *out);
}

static uint64_t slot_at(const struct disk_segments *s, uint32_t group, uint32_t slot) {
    return DISK_ALIGN + slot % s->slots[group] * s->slot_bytes[group];
}

/* What an attempt to open says when the file is not there, or not ours. */
static int is_missing(int error) {
    return error == ENOENT || error == EINVAL || error == ENODATA || error == ELOOP || error == ENXIO;
}

int disk_segments_has(struct disk_segments *s, uint32_t group, uint32_t slot) {
    struct disk_segment *segment;
    struct stat status;
    uint32_t number = slot / s->slots[group];
    uint64_t end = slot_at(s, group, slot) + s->page_bytes[group];
    if (number >= DISK_SEGMENTS_MAX) return 0;
    if (number < s->n[group] && s->list[group][number].known && end <= s->list[group][number].size) return 1;
    int error = find(s, group, number, &segment);
    if (error) return is_missing(error) ? 0 : -error;
    if (end > segment->size && !fstat(segment->fd, &status)) segment->size = (uint64_t)status.st_size;
    return end <= segment->size;
}

int disk_segments_read(struct disk_segments *s, uint32_t group, uint32_t slot, void *to) {
    struct disk_segment *segment;
    int error = find(s, group, slot / s->slots[group], &segment);
    return error ? error : pread_all(segment->fd, to, s->page_bytes[group], slot_at(s, group, slot));
}

int disk_segments_write(struct disk_segments *s, uint32_t group, uint32_t slot, const void *page) {
    struct disk_segment *segment;
    uint32_t number = slot / s->slots[group];
    if (number >= DISK_SEGMENTS_MAX) return EFBIG;
    int error = find(s, group, number, &segment);
    if (is_missing(error)) {
        error = make_segment(s, group, number);
        if (!error) error = find(s, group, number, &segment);
    }
    if (error) return error;
    segment->dirty = 1;
    return pwrite_all(segment->fd, page, s->page_bytes[group], slot_at(s, group, slot));
}

int disk_segments_sync(struct disk_segments *s) {
    int error = 0;
    for (uint32_t g = 0; g < s->groups; g++)
        for (uint32_t i = 0; i < s->n[g]; i++) {
            struct disk_segment *segment = &s->list[g][i];
            if (!segment->dirty) continue;
            segment->dirty = 0;
            if (fdatasync(segment->fd) && !error) error = errno;
        }
    if (s->created) {
        if (fsync(s->folder)) return error ? error : errno;
        s->created = 0;
    }
    return error;
}

void disk_segments_give_back(struct disk_segments *s, uint32_t group, uint32_t slot) {
#if defined(FALLOC_FL_PUNCH_HOLE)
    struct disk_segment *segment;
    if (find(s, group, slot / s->slots[group], &segment)) return;
    /* A file system that cannot do this keeps the room until the slot is written again. */
    (void)fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)slot_at(s, group, slot),
                    (off_t)s->slot_bytes[group]);
#else
    (void)s, (void)group, (void)slot;
#endif
}

void disk_segments_unlink(struct disk_segments *s, uint32_t group, uint32_t number) {
    char name[NAME_SIZE];
    segment_name(group, number, "", name);
    if (number < s->n[group]) {
        struct disk_segment *segment = &s->list[group][number];
        segment->dirty = 0; /* nobody will read it */
        if (segment->fd >= 0) close_segment(s, segment);
        *segment = (struct disk_segment){.fd = -1};
    }
    unlinkat(s->folder, name, 0);
}
