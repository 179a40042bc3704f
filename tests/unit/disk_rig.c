/* See disk_rig.h. */
#include "disk_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"

enum { POLL_US = 200, PATIENCE_US = 20 * 1000 * 1000 };

uint32_t rig_failed_writes;
uint64_t rig_failed_record;
static int saved_stderr = -1;

/* ---- Folders ---- */
void rig_make_folder(char path[RIG_PATH], int in_memory) {
    const char *tmp = getenv("TMPDIR");
    if (!tmp || !*tmp) tmp = in_memory && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, RIG_PATH, "%s/cohort-disk-XXXXXX", tmp);
    assert_non_null(mkdtemp(path));
}

const char *rig_path(const char *folder, const char *name, char out[RIG_PATH]) {
    assert_true(snprintf(out, RIG_PATH, "%s/%s", folder, name) < RIG_PATH);
    return out;
}

void rig_remove_folder(const char *path) {
    char file[RIG_PATH];
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        rig_path(path, entry->d_name, file);
        if (unlink(file)) rmdir(file);
    }
    closedir(folder);
    rmdir(path);
}

static void copy_file(const char *from, const char *to) {
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, bytes, sizeof(bytes))) > 0;) assert_int_equal(write(out, bytes, (size_t)n), n);
    close(in);
    close(out);
}

void rig_copy_folder(const char *from, const char *to) {
    char a[RIG_PATH], b[RIG_PATH];
    DIR *folder = opendir(from);
    assert_non_null(folder);
    mkdir(to, 0700);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') copy_file(rig_path(from, entry->d_name, a), rig_path(to, entry->d_name, b));
    closedir(folder);
}

uint64_t rig_file_bytes(const char *folder, const char *name) {
    char path[RIG_PATH];
    struct stat status;
    return lstat(rig_path(folder, name, path), &status) ? 0 : (uint64_t)status.st_blocks * 512;
}

int rig_exists(const char *folder, const char *name) {
    char path[RIG_PATH];
    struct stat status;
    return lstat(rig_path(folder, name, path), &status) == 0;
}

void rig_flip(const char *folder, const char *name, uint64_t bit) {
    char path[RIG_PATH];
    struct stat status;
    unsigned char byte;
    int fd = open(rig_path(folder, name, path), O_RDWR);
    assert_true(fd >= 0 && !fstat(fd, &status) && status.st_size > 0);
    off_t at = (off_t)(bit / 8 % (uint64_t)status.st_size);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1u << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

void rig_catch(const char *folder) {
    char path[RIG_PATH];
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    int fd = open(rig_path(folder, "stderr", path), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
}

int rig_lines(const char *folder, const char *text) {
    char path[RIG_PATH], line[2048];
    int n = 0;
    fflush(stderr);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    FILE *file = fopen(rig_path(folder, "stderr", path), "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) n += strstr(line, text) != NULL;
    fclose(file);
    unlink(path);
    return n;
}

/* ---- Records ---- */
uint64_t rig_page_bytes(uint32_t group) { return group == 0 ? RIG_SMALL : RIG_LARGE; }

struct disk_options rig_options(const char *folder, uint64_t bytes_max) {
    struct disk_options options = {.dir = folder, .bytes_max = bytes_max};
    options.identity =
        (struct disk_identity){.model = "a model", .tokenizer = "its tokens", .numerics = 1, .groups = 2};
    options.identity.window[0] = 64;
    options.identity.page_bytes[0] = RIG_SMALL;
    options.identity.page_bytes[1] = RIG_LARGE;
    return options;
}

struct disk *rig_open(const char *folder, uint64_t bytes_max) {
    struct disk_options options = rig_options(folder, bytes_max);
    struct disk *d = NULL;
    cohort_error err = {0};
    rig_failed_writes = 0;
    rig_failed_record = 0;
    int code = disk_open(&options, &d, &err);
    if (code) fail_msg("disk_open: %d: %s", code, err.text);
    return d;
}

uint64_t rig_random(uint64_t *state) {
    static const uint64_t stream = 7;
    return rng_u64(42, stream, ++*state);
}

void rig_tokens(uint32_t key, int32_t tokens[PAGE_TOKENS]) {
    for (uint32_t i = 0; i < PAGE_TOKENS; i++) tokens[i] = (int32_t)(rng_u64(key, 1, i) & 0x3ffff);
}

void rig_page(uint32_t key, uint32_t group, void *page, size_t bytes) {
    uint64_t x = rng_u64(key, 2, group) | 1;
    unsigned char *to = page;
    for (size_t i = 0; i < bytes; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        to[i] = (unsigned char)(x >> 56);
    }
}

int rig_try(struct disk *d, uint64_t parent, const char *space, uint32_t key, uint32_t groups, uint64_t *id) {
    unsigned char small[RIG_SMALL], large[RIG_LARGE];
    const void *pages[] = {small, large};
    int32_t tokens[PAGE_TOKENS];
    struct disk_record record = {.parent = parent,
                                 .space = parent ? "" : space,
                                 .space_n = parent ? 0 : strlen(space),
                                 .tokens = tokens,
                                 .n = PAGE_TOKENS,
                                 .groups = groups};
    rig_tokens(key, tokens);
    rig_page(key, 0, small, sizeof(small));
    rig_page(key, 1, large, sizeof(large));
    int code;
    while ((code = disk_write(d, &record, pages, id)) == COHORT_E_AGAIN) usleep(POLL_US);
    return code;
}

uint64_t rig_write(struct disk *d, uint64_t parent, const char *space, uint32_t key, uint32_t groups) {
    uint64_t id = 0;
    assert_int_equal(rig_try(d, parent, space, key, groups, &id), 0);
    assert_true(id > parent);
    return id;
}

void rig_write_more(struct disk *d, uint64_t id, uint32_t key, uint32_t groups) {
    uint64_t same = id;
    assert_int_equal(rig_try(d, 0, "", key, groups, &same), 0);
    assert_true(same == id);
}

void rig_wait(struct disk *d, struct disk_result *out) {
    for (uint32_t waited = 0; !disk_poll(d, out); waited += POLL_US) {
        if (waited > PATIENCE_US) fail_msg("no result came");
        usleep(POLL_US);
    }
}

/* The next result that is not of a write. */
static void wait_for(struct disk *d, struct disk_result *out) {
    for (;;) {
        rig_wait(d, out);
        if (out->kind != DISK_WRITE) return;
        rig_failed_writes++;
        rig_failed_record = out->record;
    }
}

int rig_read(struct disk *d, uint64_t id, uint32_t group, uint32_t key) {
    unsigned char page[RIG_LARGE] = {0}, right[RIG_LARGE];
    static uint64_t tag;
    struct disk_want want = {.id = id, .group = group, .to = page};
    struct disk_result result;
    assert_int_equal(disk_read(d, &want, 1, ++tag), 0);
    wait_for(d, &result);
    assert_int_equal(result.kind, DISK_READ);
    assert_true(result.tag == tag);
    if (result.code) {
        assert_true(result.record == id);
        return result.code;
    }
    rig_page(key, group, right, rig_page_bytes(group));
    assert_memory_equal(page, right, rig_page_bytes(group));
    return 0;
}

int rig_barrier(struct disk *d) {
    struct disk_result result;
    assert_int_equal(disk_barrier(d, 77), 0);
    wait_for(d, &result);
    assert_int_equal(result.kind, DISK_BARRIER);
    assert_true(result.tag == 77);
    return result.code;
}

/* ---- Lists ---- */
static int add_record(void *user, const struct disk_record *r) {
    struct rig_list *list = user;
    assert_true(list->n < RIG_RECORDS && r->n >= 1 && r->n <= PAGE_TOKENS &&
                r->space_n < sizeof(list->records[0].space));
    struct rig_record *to = &list->records[list->n];
    *to = (struct rig_record){.id = r->id, .parent = r->parent, .n = r->n, .groups = r->groups};
    memcpy(to->space, r->space, r->space_n);
    memcpy(to->tokens, r->tokens, r->n * sizeof(to->tokens[0]));
    assert_true(r->parent == 0 || rig_find(list, r->parent));
    assert_null(rig_find(list, r->id));
    list->n++;
    return 1;
}

void rig_list(struct disk *d, struct rig_list *out) {
    out->n = 0;
    assert_int_equal(disk_each(d, add_record, out, NULL), 0);
}

const struct rig_record *rig_find(const struct rig_list *list, uint64_t id) {
    for (uint32_t i = 0; i < list->n; i++)
        if (list->records[i].id == id) return &list->records[i];
    return NULL;
}
