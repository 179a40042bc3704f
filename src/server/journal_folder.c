/* The state directory as the journal sees it: who has it, that what is opened there is a plain file, and whether the
 * names there still mean the files that are open. The opener's thread; journal_missing: the journal's, too.
 *
 * SQLite keeps its files open and never asks again what their names mean. What is written after the folder was moved,
 * or a file of it was removed or replaced, is lost to the next start. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "server/journal_internal.h"

static const char *const names[] = {
    "journal.lock",   "journal.db",    "journal.db-wal",
    "journal.db-shm", "journal.begun", "journal.db-journal" /* SQLite looks for it, and it never is there */};
enum { NAMES = sizeof names / sizeof names[0] };
_Static_assert(JOURNAL_FILES == NAMES - 1, "all but the last stay open");

int journal_open_plain(const char *path, int flags, cohort_error *err) {
    struct stat is = {0};
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0600);
    int why = fd < 0 ? errno : fstat(fd, &is) != 0 ? errno : 0;
    if (!why && S_ISREG(is.st_mode)) return fd;
    if (fd >= 0) close(fd);
    if (why == ENOENT && !(flags & O_CREAT)) {
        errno = why;
        return -1;
    }
    const char *text = !why || why == ENXIO || why == EISDIR ? "it is no plain file"
                       : why == ELOOP                        ? "it is a symbolic link"
                                                             : strerror(why);
    err_set(err, COHORT_E_IO, "state-dir", "%.200s cannot be used: %s", path, text);
    errno = 0;
    return -1;
}

int journal_lock(const char *dir, int *fd, cohort_error *err) {
    char path[JOURNAL_PATH_MAX];
    *fd = -1;
    if (!*dir) return err_set(err, COHORT_E_ARGUMENT, "state-dir", "the state directory's name is empty");
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return err_set(err, COHORT_E_IO, "state-dir", "the state directory %.200s cannot be made: %s", dir,
                       strerror(errno));
    if (snprintf(path, sizeof path, "%s/%s", dir, names[0]) >= (int)sizeof path)
        return err_set(err, COHORT_E_ARGUMENT, "state-dir", "the path of the state directory is too long");
    *fd = journal_open_plain(path, O_CREAT, err);
    if (*fd < 0) return COHORT_E_IO;
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0) return 0;
    int busy = errno == EWOULDBLOCK;
    err_set(err, busy ? COHORT_E_BUSY : COHORT_E_IO, "state-dir", "the state directory %.200s: %s", dir,
            busy ? "another server uses it" : strerror(errno));
    journal_unlock(fd);
    return busy ? COHORT_E_BUSY : COHORT_E_IO;
}

void journal_unlock(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void path_of(const struct journal *j, int i, char out[JOURNAL_PATH_MAX]) {
    snprintf(out, JOURNAL_PATH_MAX, "%.*s/%s", (int)(strlen(j->path) - strlen(names[1]) - 1), j->path, names[i]);
}

/* Streams hold what people asked: for nobody else's eyes. SQLite opens by path; what it opens is a plain file. */
int journal_make_files(const struct journal *j, cohort_error *err) {
    for (int i = 1; i < NAMES; i++) {
        char path[JOURNAL_PATH_MAX];
        path_of(j, i, path);
        int fd = journal_open_plain(path, i == 1 ? O_CREAT : 0, err);
        if (fd < 0 && errno != ENOENT) return COHORT_E_IO;
        if (fd >= 0) close(fd);
    }
    return 0;
}

static int look(const struct journal *j, int i, struct journal_file *out) {
    char path[JOURNAL_PATH_MAX];
    struct stat is;
    path_of(j, i, path);
    if (lstat(path, &is) != 0) return -1;
    *out = (struct journal_file){.device = is.st_dev, .inode = is.st_ino};
    return 0;
}

/* While a file is open its number is not given to another one. */
int journal_note_files(struct journal *j, cohort_error *err) {
    for (int i = 0; i < JOURNAL_FILES; i++)
        if (look(j, i, &j->files[i]) != 0)
            return err_set(err, COHORT_E_IO, "state-dir", "%.200s: %s is gone: %s", j->path, names[i], strerror(errno));
    return 0;
}

void journal_note_file(struct journal *j, const char *name, const struct stat *is) {
    for (int i = 0; i < JOURNAL_FILES; i++)
        if (strcmp(names[i], name) == 0) j->files[i] = (struct journal_file){.device = is->st_dev, .inode = is->st_ino};
}

const char *journal_missing(const struct journal *j) {
    for (int i = 0; i < JOURNAL_FILES; i++) {
        struct journal_file now;
        if (look(j, i, &now) != 0 || now.device != j->files[i].device || now.inode != j->files[i].inode)
            return names[i];
    }
    return NULL;
}
