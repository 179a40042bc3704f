/* What the disk tier's tests share: folders, records whose bytes follow from a number, and waiting for results. */
#ifndef TESTS_DISK_RIG_H
#define TESTS_DISK_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "state/disk.h"

enum { RIG_SMALL = 5000, RIG_LARGE = 12288, RIG_PATH = 256, RIG_BOTH = 3, RIG_BIG_PAGE = 8 << 20 };

/* `in_memory`: on a file system that syncs at once, if there is one, for tests that open a folder hundreds of times. */
void rig_make_folder(char path[RIG_PATH], int in_memory);
void rig_remove_folder(const char *path); /* with the files in it */
void rig_copy_folder(const char *from, const char *to);
/* Path of a file in the folder. */
const char *rig_path(const char *folder, const char *name, char out[RIG_PATH]);
uint64_t rig_file_bytes(const char *folder, const char *name); /* on the disk; 0: not there */
int rig_exists(const char *folder, const char *name);
void rig_flip(const char *folder, const char *name, uint64_t bit); /* of the file's bits, counted round */
/* stderr goes into a file of the folder from now on; rig_lines ends that and counts the lines with `text`. */
void rig_catch(const char *folder);
int rig_lines(const char *folder, const char *text);

struct disk_options rig_options(const char *folder, uint64_t bytes_max); /* two groups: RIG_SMALL and RIG_LARGE */
struct disk *rig_open(const char *folder, uint64_t bytes_max);           /* fails the test if it cannot be opened */

void rig_tokens(uint32_t key, int32_t tokens[PAGE_TOKENS]);
void rig_page(uint32_t key, uint32_t group, void *page, size_t bytes);
uint64_t rig_page_bytes(uint32_t group);

/* Writes a full block of the key; waits while the queue is full. Returns disk_write's code. */
int rig_try(struct disk *d, uint64_t parent, const char *space, uint32_t key, uint32_t groups, uint64_t *id);
uint64_t rig_write(struct disk *d, uint64_t parent, const char *space, uint32_t key, uint32_t groups);
/* Adds groups to a record. */
void rig_write_more(struct disk *d, uint64_t id, uint32_t key, uint32_t groups);
/* Reads a page and compares: 0, or the result's code. Wrong bytes fail the test. */
int rig_read(struct disk *d, uint64_t id, uint32_t group, uint32_t key);
int rig_barrier(struct disk *d); /* the result's code */
void rig_wait(struct disk *d, struct disk_result *out);
extern uint32_t rig_failed_writes; /* WRITE results that were seen while waiting for others */
extern uint64_t rig_failed_record;

/* Records as disk_each tells them. */
enum { RIG_RECORDS = 4096 };
struct rig_record {
    uint64_t id, parent;
    uint32_t n, groups;
    char space[16];
    int32_t tokens[PAGE_TOKENS];
};
struct rig_list {
    struct rig_record records[RIG_RECORDS];
    uint32_t n;
};
void rig_list(struct disk *d, struct rig_list *out); /* checks that parents come first */
const struct rig_record *rig_find(const struct rig_list *list, uint64_t id);

uint64_t rig_random(uint64_t *state);

#endif
