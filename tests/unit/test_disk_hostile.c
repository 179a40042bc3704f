/* The disk tier when things go wrong: damaged, missing and foreign files, other identities and formats, two openers,
 * disks that are full or read-only, and kill -9 at random moments. What comes out is right or refused. */
#include "disk_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    CHAIN = 12, /* records of the folder that is damaged */
    FLIPS = 80, /* of each kind of file */
    KILLS = 100,
    KILL_LOG = 1 << 16,
    KILL_LIVE = 48, /* records that a killed child keeps at a time */
    KILL_MS_MAX = 60
};
#define PLENTY (UINT64_C(1) << 30)

static char folder[RIG_PATH], copy[RIG_PATH];
static struct rig_list list;

static int set_up(void **state) {
    (void)state;
    rig_make_folder(folder, 1);
    rig_make_folder(copy, 1);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    rig_remove_folder(folder);
    rig_remove_folder(copy);
    return 0;
}

/* Keys 0 .. CHAIN-1, ids 1 .. CHAIN: two chains of one space, with a session on the last. */
static void fill(const char *dir) {
    struct disk *d = rig_open(dir, PLENTY);
    uint64_t parent = 0;
    for (uint32_t key = 0; key < CHAIN; key++) {
        if (key == CHAIN / 2) parent = 1;
        parent = rig_write(d, parent, "tenant", key, RIG_BOTH);
        assert_int_equal(parent, key + 1);
    }
    disk_session_put(d, "name", 4, parent, 99);
    assert_int_equal(rig_barrier(d), 0);
    disk_close(d);
}

/* Whatever the folder tells is what was written: each record's place, space, tokens; its pages are right or refused. */
static void check_honest(struct disk *d, uint32_t *right, uint32_t *refused) {
    int32_t tokens[PAGE_TOKENS];
    *right = *refused = 0;
    rig_list(d, &list);
    for (uint32_t i = 0; i < list.n; i++) {
        const struct rig_record *r = &list.records[i];
        uint32_t key = (uint32_t)r->id - 1;
        assert_true(key <= CHAIN);
        rig_tokens(key, tokens);
        assert_int_equal(r->n, PAGE_TOKENS);
        assert_memory_equal(r->tokens, tokens, sizeof(tokens));
        assert_true(r->parent == (key == CHAIN / 2 ? 1 : key == CHAIN ? CHAIN - 1 : key));
        assert_string_equal(r->space, key ? "" : "tenant");
        for (uint32_t g = 0; g < 2; g++) {
            if (!(r->groups >> g & 1)) continue;
            if (rig_read(d, r->id, g, key))
                ++*refused;
            else
                ++*right;
        }
    }
    uint64_t record;
    uint32_t count;
    if (!disk_session_get(d, "name", 4, &record, &count)) assert_true(record == CHAIN && count == 99);
    struct disk_counts counts;
    disk_get_counts(d, &counts);
    assert_true(counts.sessions <= 1);
}

/* ---- Whose folder it is ---- */
static void one_opener(void **state) {
    (void)state;
    struct disk_options options = rig_options(folder, PLENTY);
    struct disk *d = rig_open(folder, PLENTY), *second;
    cohort_error err;
    assert_int_equal(disk_open(&options, &second, &err), COHORT_E_BUSY);
    assert_string_equal(err.field, "state-dir");
    assert_non_null(strstr(err.text, "another process is using it"));
    pid_t child = fork();
    if (child == 0) _exit(disk_open(&options, &second, &err) == COHORT_E_BUSY ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    disk_close(d);
    disk_close(rig_open(folder, PLENTY));
}

static void another_identity(void **state) {
    (void)state;
    for (int change = 0; change < 5; change++) {
        fill(folder);
        struct disk_options options = rig_options(folder, PLENTY);
        if (change == 0) options.identity.model[3] ^= 1;
        if (change == 1) options.identity.tokenizer[15] ^= 1;
        if (change == 2) options.identity.numerics++;
        if (change == 3) options.identity.window[1] = 5;
        if (change == 4) options.identity.page_bytes[0]++;
        struct disk *d;
        struct disk_counts counts;
        rig_catch(folder);
        int code = disk_open(&options, &d, NULL);
        assert_int_equal(rig_lines(folder, "12 stored blocks are of another model"), 1);
        assert_int_equal(code, 0);
        rig_list(d, &list);
        assert_int_equal(list.n, 0);
        disk_get_counts(d, &counts);
        assert_true(counts.discarded == 12 && counts.sessions == 0 && counts.bytes == 0);
        assert_false(rig_exists(folder, "pages-0-0.seg"));
        disk_close(d);
        rig_remove_folder(folder);
    }
}

static void patch(const char *name, off_t at, const void *bytes, size_t n) {
    char path[RIG_PATH];
    int fd = open(rig_path(folder, name, path), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
    close(fd);
}

static void newer_format(void **state) {
    (void)state;
    fill(folder);
    const unsigned char version[4] = {0, 0, 0, DISK_FORMAT + 1};
    patch("index.db", 60, version, 4); /* SQLite's user version */
    struct disk_options options = rig_options(folder, PLENTY);
    struct disk *d;
    cohort_error err;
    char *text;
    size_t len;
    uint64_t all, bad;
    assert_int_equal(disk_open(&options, &d, &err), COHORT_E_UNSUPPORTED);
    assert_string_equal(err.field, "state-dir");
    assert_non_null(strstr(err.text, "has format 2; this version knows format 1"));
    assert_int_equal(disk_list(folder, 0, &text, &len, &err), COHORT_E_UNSUPPORTED);
    assert_int_equal(disk_verify(folder, 1, &all, &bad, &err), COHORT_E_UNSUPPORTED);
    assert_true(rig_exists(folder, "pages-0-0.seg"));
}

/* ---- The index ---- */
static void replace(const char *name, const char *content, size_t n) {
    char path[RIG_PATH];
    unlink(rig_path(folder, name, path));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, n), (ssize_t)n);
    close(fd);
}

static void expect_begun_anew(int lines) {
    rig_catch(folder);
    struct disk *d = rig_open(folder, PLENTY);
    assert_int_equal(rig_lines(folder, "its index was damaged"), lines);
    rig_list(d, &list);
    assert_int_equal(list.n, 0);
    assert_false(rig_exists(folder, "pages-1-0.seg"));
    uint64_t id = rig_write(d, 0, "s", 5, RIG_BOTH);
    assert_int_equal(rig_barrier(d), 0);
    assert_int_equal(rig_read(d, id, 1, 5), 0);
    disk_close(d);
    assert_int_equal(rig_exists(folder, "index.db.damaged"), lines);
    rig_remove_folder(folder);
}

static void damaged_index(void **state) {
    (void)state;
    char path[RIG_PATH], noise[9000], *text;
    size_t len;
    cohort_error err;
    uint64_t all, bad;
    memset(noise, 'x', sizeof(noise));
    fill(folder);
    replace("index.db", noise, sizeof(noise));
    assert_int_equal(disk_list(folder, 0, &text, &len, &err), COHORT_E_IO);
    assert_non_null(strstr(err.text, "its index is damaged"));
    expect_begun_anew(1);
    fill(folder);
    assert_int_equal(truncate(rig_path(folder, "index.db", path), 5000), 0);
    expect_begun_anew(1);
    fill(folder);
    assert_int_equal(truncate(rig_path(folder, "index.db", path), 0), 0); /* is a new one, to SQLite */
    expect_begun_anew(0);
    fill(folder);
    assert_int_equal(unlink(rig_path(folder, "index.db", path)), 0);
    expect_begun_anew(0);
    fill(folder);
    patch("index.db", 68, "abcd", 4); /* another application's */
    rig_catch(folder);
    assert_int_equal(disk_verify(folder, 1, &all, &bad, &err), 0); /* repairs likewise */
    assert_int_equal(rig_lines(folder, "its index was damaged"), 1);
    assert_true(all == 0 && bad == 0);
    assert_true(rig_exists(folder, "index.db.damaged") && !rig_exists(folder, "pages-0-0.seg"));
}

/* Links are not followed: what they point to stays as it is. */
static void links_instead_of_files(void **state) {
    (void)state;
    static const char *const names[] = {"index.db", "index.db-wal", "pages-0-0.seg", "lock"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[RIG_PATH], target[RIG_PATH], text[16] = "";
        rig_remove_folder(folder);
        mkdir(folder, 0700);
        fill(folder);
        FILE *file = fopen(rig_path(copy, "victim", target), "w");
        assert_non_null(file);
        fputs("precious", file);
        fclose(file);
        unlink(rig_path(folder, names[i], path));
        assert_int_equal(symlink(target, path), 0);
        struct disk_options options = rig_options(folder, PLENTY);
        struct disk *d;
        rig_catch(folder);
        int code = disk_open(&options, &d, NULL);
        rig_lines(folder, "");
        assert_int_equal(code, i == 3 ? COHORT_E_IO : 0);
        if (!code) {
            rig_list(d, &list);
            assert_int_equal(list.n, 0);
            rig_write(d, 0, "s", 1, RIG_BOTH);
            assert_int_equal(rig_barrier(d), 0);
            disk_close(d);
        }
        file = fopen(target, "r");
        assert_non_null(file);
        assert_non_null(fgets(text, sizeof(text), file));
        fclose(file);
        assert_string_equal(text, "precious");
    }
}

/* ---- Segments ---- */
static void check_segment_fault(const char *what, uint32_t records_left) {
    struct disk_counts counts;
    uint32_t right, refused;
    rig_catch(folder);
    struct disk *d = rig_open(folder, PLENTY);
    int lines = rig_lines(folder, "cannot be used and were removed (the first: its pages are gone)");
    check_honest(d, &right, &refused);
    disk_get_counts(d, &counts);
    if (lines != 1 || list.n != records_left || refused || counts.discarded != CHAIN - records_left)
        fail_msg("%s: %d lines, %u records, %u refused", what, lines, list.n, refused);
    uint64_t id = rig_write(d, 0, "s", 77, RIG_BOTH);
    assert_int_equal(rig_barrier(d), 0);
    assert_int_equal(rig_read(d, id, 0, 77), 0);
    disk_close(d);
    uint64_t all, bad;
    assert_int_equal(disk_verify(folder, 0, &all, &bad, NULL), 0);
    assert_true(all == records_left + 1 && bad == 0);
    rig_remove_folder(folder);
}

static void damaged_segments(void **state) {
    (void)state;
    char path[RIG_PATH];
    fill(folder);
    unlink(rig_path(folder, "pages-0-0.seg", path));
    check_segment_fault("missing", 0);
    fill(folder); /* the slots of keys 0 .. 3 are there whole */
    assert_int_equal(truncate(rig_path(folder, "pages-1-0.seg", path), 4096 + 5 * RIG_LARGE - 1), 0);
    check_segment_fault("truncated", 4);
    fill(folder);
    patch("pages-1-0.seg", 8, "\2", 1);
    check_segment_fault("newer", 0);
    fill(folder);
    patch("pages-0-0.seg", 30, "?", 1);
    check_segment_fault("header", 0);
    fill(folder);
    unlink(rig_path(folder, "pages-0-0.seg", path));
    assert_int_equal(mkfifo(path, 0600), 0);
    check_segment_fault("pipe", 0);
    fill(folder);
    replace("pages-0-0.seg", "short", 5);
    check_segment_fault("short", 0);
}

/* Segments vanish, or change, while the folder is open: reads say so, and what was there is gone from the index. */
static void damage_at_work(void **state) {
    (void)state;
    fill(folder);
    struct disk *d = rig_open(folder, PLENTY);
    struct disk_counts counts;
    patch("pages-1-0.seg", 4096 + 3 * RIG_LARGE + 100, "damage", 6); /* of key 3 */
    rig_catch(folder);
    assert_int_equal(rig_read(d, 3, 1, 2), 0);
    int code = rig_read(d, 4, 1, 3), again = rig_read(d, 4, 0, 3), behind = rig_read(d, 5, 0, 4);
    int lines =
        rig_lines(folder, "block 4 is not used: a page's checksum does not hold; it was removed with 2 behind it");
    assert_int_equal(code, COHORT_E_IO);
    assert_int_equal(again, COHORT_E_NOT_FOUND);
    assert_int_equal(behind, COHORT_E_NOT_FOUND);
    assert_int_equal(lines, 1);
    assert_int_equal(rig_read(d, CHAIN, 1, CHAIN - 1), 0);
    disk_get_counts(d, &counts);
    assert_int_equal(counts.records, CHAIN - 3);
    disk_close(d);
    d = rig_open(folder, PLENTY);
    rig_list(d, &list);
    assert_int_equal(list.n, CHAIN - 3);
    disk_close(d);
}

static void verify_finds_and_repairs(void **state) {
    (void)state;
    uint64_t all, bad;
    fill(folder);
    patch("pages-0-0.seg", 4096 + 2 * 8192 + 7, "damage", 6); /* of key 2 */
    rig_catch(folder);
    int code = disk_verify(folder, 0, &all, &bad, NULL);
    assert_int_equal(rig_lines(folder, "stored block 3 is bad: a page's checksum does not hold"), 1);
    assert_int_equal(code, 0);
    assert_true(all == CHAIN && bad == 1);
    rig_catch(folder);
    code = disk_verify(folder, 1, &all, &bad, NULL);
    assert_int_equal(rig_lines(folder, "3 blocks behind bad ones were removed"), 1);
    assert_true(code == 0 && all == CHAIN && bad == 1);
    assert_int_equal(disk_verify(folder, 1, &all, &bad, NULL), 0);
    assert_true(all == CHAIN - 4 && bad == 0);
    uint32_t right, refused;
    struct disk *d = rig_open(folder, PLENTY);
    check_honest(d, &right, &refused);
    assert_true(list.n == CHAIN - 4 && right == 2 * list.n && refused == 0);
    disk_close(d);
}

/* ---- Random bits ---- */
static void flip_one_kind(const char *template, const char *name, uint64_t *random, uint32_t seen[3]) {
    char victim[RIG_PATH];
    rig_path(copy, "victim", victim);
    for (int i = 0; i < FLIPS; i++) {
        struct disk_options options = rig_options(victim, PLENTY);
        struct disk *d;
        cohort_error err = {0};
        uint32_t right = 0, refused = 0;
        rig_copy_folder(template, victim);
        int bits = 1 + (int)(rig_random(random) % 3);
        while (bits--) rig_flip(victim, name, rig_random(random));
        rig_catch(victim);
        int code = disk_open(&options, &d, &err);
        if (!code) check_honest(d, &right, &refused);
        rig_lines(victim, "");
        if (code && code != COHORT_E_UNSUPPORTED) fail_msg("%s: %d %s", name, code, err.text);
        seen[code ? 2 : right == 2 * CHAIN ? 0 : 1]++;
        if (!code) disk_close(d);
        rig_remove_folder(victim);
    }
}

static void flipped_bits(void **state) {
    (void)state;
    static const char *const names[] = {"pages-0-0.seg", "pages-1-0.seg", "index.db"};
    uint64_t random = 1;
    fill(folder);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint32_t seen[3] = {0};
        flip_one_kind(folder, names[i], &random, seen);
        print_message("%s: %u whole, %u with losses, %u refused\n", names[i], seen[0], seen[1], seen[2]);
        assert_true(seen[1] > 0);
    }
}

/* The log of a process that was killed, with flipped bits and cut anywhere. */
static void damaged_log(void **state) {
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        fill(folder);
        struct disk *d = rig_open(folder, PLENTY);
        disk_remove(d, CHAIN);
        if (rig_barrier(d)) _exit(1);
        rig_write(d, CHAIN - 1, "", CHAIN, RIG_BOTH); /* into the slots that became free */
        if (rig_barrier(d)) _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_true(rig_file_bytes(folder, "index.db-wal") > 0);
    uint64_t random = 2;
    uint32_t seen[3] = {0};
    flip_one_kind(folder, "index.db-wal", &random, seen);
    print_message("index.db-wal: %u whole, %u with losses, %u refused\n", seen[0], seen[1], seen[2]);
    assert_true(seen[1] > 0 && seen[2] == 0); /* a frame that does not hold ends the log */
}

/* ---- Disks that are full, or not writable ---- */
static void fill_until_full(struct disk *d, uint32_t *written) {
    for (uint32_t key = 0; key < 2000 && !rig_failed_writes; key++) {
        rig_write(d, 0, "s", key, RIG_BOTH);
        int code = rig_barrier(d);
        if (!code) ++*written;
        assert_int_equal(code != 0, rig_failed_writes != 0);
    }
}

static void full_disk(void **state) {
    (void)state;
    struct rlimit old, limit;
    struct disk *d = rig_open(folder, PLENTY);
    struct disk_counts counts;
    uint32_t written = 0;
    uint64_t first = rig_write(d, 0, "s", 5000, RIG_BOTH);
    assert_int_equal(rig_barrier(d), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 200000; /* what a file may have: EFBIG goes the way of ENOSPC */
    setrlimit(RLIMIT_FSIZE, &limit);
    rig_catch(folder);
    fill_until_full(d, &written);
    for (uint32_t key = 3000; key < 3010; key++) rig_write(d, 0, "s", key, RIG_BOTH);
    int code = rig_barrier(d);
    int lines = rig_lines(folder, "state cannot be written");
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(lines, 1);
    assert_true(code != 0 && written >= 5 && written < 20);
    disk_get_counts(d, &counts);
    assert_true(counts.failed_writes == rig_failed_writes && counts.records == written + 1);
    assert_int_equal(rig_read(d, first, 1, 5000), 0);
    uint64_t id = rig_write(d, first, "", 4000, RIG_BOTH); /* and it works again */
    assert_int_equal(rig_barrier(d), 0);
    disk_close(d);
    d = rig_open(folder, PLENTY);
    assert_int_equal(rig_read(d, id, 1, 4000), 0);
    disk_get_counts(d, &counts);
    assert_true(counts.records == written + 2 && counts.discarded == 0);
    disk_close(d);
}

/* A real one, where a name space of its own may be had: exit codes, since a test's longjmp is not a child's. */
static int work_on_small_disk(const char *dir) {
    struct disk_options options = rig_options(dir, PLENTY);
    struct disk *d;
    struct disk_result result;
    struct disk_counts counts;
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
        return 0; /* not here */
    if (!freopen("/dev/null", "w", stderr) || disk_open(&options, &d, NULL)) return 2;
    for (uint32_t key = 0; key < 200; key++) { /* 4 MB */
        uint64_t id = 0;
        if (rig_try(d, 0, "s", key, RIG_BOTH, &id)) return 3;
        if (disk_barrier(d, key)) return 4;
        do rig_wait(d, &result);
        while (result.kind == DISK_WRITE);
        if (key == 0 && result.code) return 5;
    }
    disk_get_counts(d, &counts);
    uint64_t before = counts.records;
    if (!counts.failed_writes || before < 10 || before > 50) return 6;
    disk_close(d);
    if (disk_open(&options, &d, NULL)) return 7;
    disk_get_counts(d, &counts);
    if (counts.discarded || counts.records != before) return 8;
    disk_close(d);
    uint64_t all, bad;
    return disk_verify(dir, 0, &all, &bad, NULL) || bad || all != before ? 9 : 0;
}

static void really_full_disk(void **state) {
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) _exit(work_on_small_disk(folder));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int open_as_nobody(mode_t mode, cohort_error *err) {
    struct disk_options options = rig_options(folder, PLENTY);
    struct disk *d;
    chmod(folder, mode);
    if (geteuid() == 0 && setresuid(65534, 65534, 65534)) return 1;
    return disk_open(&options, &d, err);
}

static void read_only_folder(void **state) {
    (void)state;
    for (int is_filled = 0; is_filled < 2; is_filled++) {
        int status;
        if (is_filled) fill(folder);
        pid_t child = fork();
        if (child == 0) {
            cohort_error err = {0};
            int code = open_as_nobody(0555, &err);
            _exit(code == COHORT_E_IO && !strcmp(err.field, "state-dir") && strstr(err.text, "ermission denied") ? 0
                                                                                                                 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        chmod(folder, 0700);
    }
}

/* The folder is taken away from under it: an end of storing, and of nothing else. */
static void folder_vanishes(void **state) {
    (void)state;
    struct disk *d = rig_open(folder, PLENTY);
    uint64_t id = rig_write(d, 0, "s", 1, RIG_BOTH);
    assert_int_equal(rig_barrier(d), 0);
    rig_remove_folder(folder);
    rig_catch(copy);
    int code = 0;
    for (uint32_t key = 2; key < 20 && code != COHORT_E_CLOSED; key++) {
        uint64_t next = 0;
        code = rig_try(d, 0, "s", key, RIG_BOTH, &next);
        int barrier = rig_barrier(d);
        if (!code) code = barrier;
    }
    int lines = rig_lines(copy, "its lock or its index was taken away; nothing is stored any more");
    assert_int_equal(code, COHORT_E_CLOSED);
    assert_int_equal(lines, 1);
    assert_int_equal(rig_read(d, id, 1, 1), 0); /* the file is still open */
    disk_close(d);
}

/* ---- kill -9 ---- */
enum { UNKNOWN, QUEUED, DURABLE, REMOVED };
struct kill_log { /* shared with the child */
    uint32_t next_key;
    struct {
        uint64_t id, parent;
        uint32_t state;
    } key[KILL_LOG];
};

static void set_state(struct kill_log *log, uint32_t key, uint32_t state) {
    __atomic_store_n(&log->key[key].state, state, __ATOMIC_RELEASE);
}

/* Removing a record takes those behind it. */
static void log_removed(struct kill_log *log, uint32_t first_key, uint64_t id) {
    for (uint32_t key = first_key; key < log->next_key; key++) {
        uint32_t is = log->key[key].state;
        if (is == UNKNOWN || is == REMOVED) continue;
        if (log->key[key].id != id && log->key[key].parent != id) continue;
        set_state(log, key, REMOVED);
        if (log->key[key].id != id) log_removed(log, key + 1, log->key[key].id);
    }
}

/* Writes and removes at random until it is killed. What a barrier has told is DURABLE in the log, what it is about to
 * remove is REMOVED before. */
static void live_dangerously(struct kill_log *log, uint64_t seed) {
    struct disk_options options = rig_options(folder, KILL_LIVE * UINT64_C(21000));
    struct disk *d;
    uint64_t random = seed << 32;
    if (disk_open(&options, &d, NULL)) _exit(10);
    static uint32_t live[KILL_LOG];
    uint32_t n = 0, queued = log->next_key;
    for (uint32_t key = 0; key < log->next_key; key++)
        if (log->key[key].state == DURABLE) live[n++] = key;
    while (log->next_key < KILL_LOG) {
        while (n && (!disk_has_room(d, RIG_BOTH) || rig_random(&random) % 6 == 0)) {
            uint32_t at = (uint32_t)(rig_random(&random) % n), key = live[at];
            if (log->key[key].state != REMOVED) {
                log_removed(log, 0, log->key[key].id);
                disk_remove(d, log->key[key].id);
            }
            live[at] = live[--n];
        }
        uint32_t key = log->next_key, from = n ? live[rig_random(&random) % n] : 0;
        uint64_t id = 0,
                 parent = n && log->key[from].state != REMOVED && rig_random(&random) % 2 ? log->key[from].id : 0;
        if (rig_try(d, parent, "s", key, RIG_BOTH, &id)) _exit(11);
        log->key[key].id = id;
        log->key[key].parent = parent;
        set_state(log, key, QUEUED);
        log->next_key++;
        live[n++] = key;
        if (rig_random(&random) % 4) continue;
        struct disk_result result;
        if (disk_barrier(d, 1)) _exit(12);
        do rig_wait(d, &result);
        while (result.kind != DISK_BARRIER);
        if (result.code) _exit(13);
        for (; queued < log->next_key; queued++)
            if (log->key[queued].state == QUEUED) set_state(log, queued, DURABLE);
    }
    _exit(14);
}

/* What was durable is there, with its bytes; what is there was written. Then the log says what is there. */
static uint32_t check_after_kill(struct kill_log *log) {
    uint64_t all, bad;
    uint32_t durable = 0;
    cohort_error err;
    int code = disk_verify(folder, 0, &all, &bad, &err);
    if (code && code != COHORT_E_NOT_FOUND) fail_msg("verify: %d %s", code, err.text);
    assert_int_equal(bad, 0);
    rig_catch(copy); /* a segment that was just made may have no record */
    struct disk *d = rig_open(folder, PLENTY);
    rig_lines(copy, "");
    struct disk_counts counts;
    disk_get_counts(d, &counts);
    assert_int_equal(counts.discarded, 0);
    rig_list(d, &list);
    for (uint32_t key = 0; key < log->next_key; key++) {
        uint32_t is = log->key[key].state;
        const struct rig_record *r = rig_find(&list, log->key[key].id);
        int32_t tokens[PAGE_TOKENS];
        if (r) rig_tokens(key, tokens);
        if (r && memcmp(r->tokens, tokens, sizeof(tokens))) r = NULL; /* the id came again, for another */
        if (is == DURABLE) assert_non_null(r);
        if (is == DURABLE) durable++;
        log->key[key].state = r ? DURABLE : REMOVED;
        if (!r) log->key[key].id = 0;
        if (!r || key % 4) continue;
        assert_true(r->parent == log->key[key].parent);
        assert_int_equal(rig_read(d, r->id, 0, key), 0);
        assert_int_equal(rig_read(d, r->id, 1, key), 0);
    }
    disk_close(d);
    return durable;
}

static void killed_at_random_moments(void **state) {
    (void)state;
    struct kill_log *log = mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(log != MAP_FAILED);
    uint64_t random = 3;
    uint32_t durable = 0;
    int wrong = 0;
    for (int i = 0; i < KILLS; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) live_dangerously(log, (uint64_t)i + 1);
        usleep((useconds_t)(rig_random(&random) % (KILL_MS_MAX * 1000)));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status)) wrong = status;
        durable += check_after_kill(log);
    }
    assert_int_equal(wrong, 0);
    print_message("%d kills, %u records written, %u times one was durable\n", KILLS, log->next_key, durable);
    assert_true(durable > KILLS);
    munmap(log, sizeof(*log));
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(one_opener),
        T(another_identity),
        T(newer_format),
        T(damaged_index),
        T(links_instead_of_files),
        T(damaged_segments),
        T(damage_at_work),
        T(verify_finds_and_repairs),
        T(flipped_bits),
        T(damaged_log),
        T(full_disk),
        T(really_full_disk),
        T(read_only_folder),
        T(folder_vanishes),
        T(killed_at_random_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
