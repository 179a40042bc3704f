/* A look at what SQLite keeps in front of the journal's file, before SQLite opens it. The opener's thread.
 *
 * Committed pages are appended to journal.db-wal until they are copied into the file. After a crash SQLite reads it
 * from the beginning and ends, without a word, at the first frame whose checksum does not hold: that is how a write
 * that was cut off looks, and a flipped bit, too. They differ in what is behind. Numbers are big-endian:
 *
 *   0    magic, its last bit: order of the words that are summed | version | page size | sequence | salts: 2 | sums: 2
 *   32   frames: page number | pages of the file after a commit, else 0 | salts: 2 | sums: 2 | a page's bytes
 *
 * The sums go on from frame to frame, over 8 bytes of its head and its page. Frames with other salts are of an earlier
 * round and mean nothing. A whole frame of this round that ends a commit, behind one that does not hold, can only be
 * there if that one had been written, too, or if the power went while both were on their way. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "server/journal_internal.h"

enum { HEAD = 32, FRAME_HEAD = 24, PAGE_MIN = 512, PAGE_MAX = 65536, COPY_MAX = 64 << 20 };

struct walk {
    int fd;
    unsigned char *frame; /* head and page */
    uint32_t page;
    int big; /* the words that are summed are big-endian */
    uint32_t salts[2], sums[2];
    uint64_t n, bad_from, lost; /* frames; the first that does not hold, from 1; those behind, up to the last commit */
};

static uint32_t number(const unsigned char *at, int big) {
    return big ? (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]
               : (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static void sum(struct walk *w, const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        w->sums[0] += number(bytes + i, w->big) + w->sums[1];
        w->sums[1] += number(bytes + i + 4, w->big) + w->sums[0];
    }
}

static int sums_are(const struct walk *w, const unsigned char *at) {
    return w->sums[0] == number(at, 1) && w->sums[1] == number(at + 4, 1);
}

static int has_salts(const struct walk *w, const unsigned char *head) {
    return number(head + 8, 1) == w->salts[0] && number(head + 12, 1) == w->salts[1];
}

static int is_page_size(uint32_t n) { return n >= PAGE_MIN && n <= PAGE_MAX && (n & (n - 1)) == 0; }

/* The size of the file's pages, which a head that does not hold says nothing of. */
static uint32_t page_of_file(const struct journal *j) {
    unsigned char size[2] = {0};
    int fd = open(j->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : pread(fd, size, sizeof size, 16);
    if (fd >= 0) close(fd);
    uint32_t page = n == 2 ? (uint32_t)size[0] << 8 | size[1] : 0;
    return page == 1 ? PAGE_MAX : is_page_size(page) ? page : 4096;
}

/* 1: the head holds. 0: it does not, and the first frame's salts stand for its. -1: there is nothing to look at. */
static int read_head(const struct journal *j, struct walk *w) {
    unsigned char head[HEAD], frame[FRAME_HEAD];
    if (pread(w->fd, head, HEAD, 0) != HEAD) return -1;
    uint32_t magic = number(head, 1);
    w->big = (int)(magic & 1);
    w->page = number(head + 8, 1);
    sum(w, head, HEAD - 8);
    int holds = magic >> 1 == 0x377f0682 >> 1 && is_page_size(w->page) && sums_are(w, head + HEAD - 8);
    if (!holds) {
        if (pread(w->fd, frame, FRAME_HEAD, HEAD) != FRAME_HEAD) return -1;
        w->page = page_of_file(j);
    }
    const unsigned char *salts = holds ? head + 16 : frame + 8;
    w->salts[0] = number(salts, 1);
    w->salts[1] = number(salts + 4, 1);
    return holds;
}

/* The next frame, whole. 0: there is none. */
static int next_frame(struct walk *w) {
    size_t bytes = FRAME_HEAD + (size_t)w->page;
    ssize_t got = pread(w->fd, w->frame, bytes, (off_t)(HEAD + w->n * bytes));
    w->n++;
    return got == (ssize_t)bytes;
}

static int holds(struct walk *w) {
    if (!has_salts(w, w->frame)) return 0;
    sum(w, w->frame, 8);
    sum(w, w->frame + FRAME_HEAD, w->page);
    return sums_are(w, w->frame + 16);
}

static void walk(const struct journal *j, struct walk *w) {
    int head = read_head(j, w);
    if (head < 0 || !(w->frame = mem_alloc(FRAME_HEAD + (size_t)w->page, 1))) return;
    if (!head) w->bad_from = 1;
    while (next_frame(w)) {
        if (!w->bad_from && !holds(w)) {
            w->bad_from = w->n;
            continue; /* its own commit may be one that was cut off */
        }
        if (w->bad_from && has_salts(w, w->frame) && number(w->frame + 4, 1)) w->lost = w->n - w->bad_from + 1;
    }
    mem_free(w->frame);
}

/* One copy is kept, of the last damage. */
static int copy(const struct walk *w, const char *to) {
    static const size_t piece = 1 << 16;
    char *bytes = mem_alloc(piece, 1);
    unlink(to);
    int fd = bytes ? open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    ssize_t n = fd < 0 ? -1 : 0;
    for (off_t at = 0; n >= 0 && at < COPY_MAX; at += n) {
        n = pread(w->fd, bytes, piece, at);
        if (n == 0) break;
        if (n > 0 && write(fd, bytes, (size_t)n) != n) n = -1;
    }
    if (fd >= 0) close(fd);
    mem_free(bytes);
    return n < 0 ? -1 : 0;
}

void journal_look_at_wal(struct journal *j) {
    char path[JOURNAL_PATH_MAX], aside[JOURNAL_PATH_MAX];
    struct walk w = {0};
    snprintf(path, sizeof path, "%.4000s-wal", j->path);
    snprintf(aside, sizeof aside, "%.4000s-wal.damaged", j->path);
    w.fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (w.fd < 0) return;
    walk(j, &w);
    if (w.lost) {
        j->counts.lost_frames = w.lost;
        int kept = copy(&w, aside) == 0;
        fprintf(stderr,
                "cohort: %s is damaged at page %llu of what was written last: %llu pages (%llu bytes) from there on "
                "cannot be read; calls that were stored there are taken from journal.begun and made again%s%s\n",
                path, (unsigned long long)w.bad_from, (unsigned long long)w.lost,
                (unsigned long long)(w.lost * (FRAME_HEAD + (uint64_t)w.page)),
                kept ? "; a copy is in " : "; it cannot be copied", kept ? aside : "");
    }
    close(w.fd);
}
