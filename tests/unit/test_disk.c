/* The disk tier when all is well: what is written is there after closing and opening, in the right order; room, slots,
 * queues, sessions, removing, and looking at a folder from outside. */
#include "disk_rig.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum { MANY = 50000, SLOT_SMALL = 8192, SLOT_LARGE = 12288, RECORD = 512 };
#define PLENTY (UINT64_C(1) << 30)

static char folder[RIG_PATH];
static struct rig_list list;

static int set_up(void **state) {
    (void)state;
    rig_make_folder(folder, 0);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    rig_remove_folder(folder);
    return 0;
}

/* ---- Round trips ---- */
static void records_survive(void **state) {
    (void)state;
    struct disk *d = rig_open(folder, PLENTY);
    uint64_t ids[12], parent = 0;
    for (uint32_t i = 0; i < 10; i++)
        parent = ids[i] = rig_write(d, parent, "space a", i,
                                    i == 5  ? 0
                                    : i % 3 ? RIG_BOTH
                                            : 2); /* 5: on the way only */
    ids[10] = rig_write(d, ids[4], "", 100, RIG_BOTH);
    ids[11] = rig_write(d, 0, "space b", 0, RIG_BOTH);
    assert_int_equal(rig_barrier(d), 0);
    disk_close(d);

    d = rig_open(folder, PLENTY);
    rig_list(d, &list);
    assert_int_equal(list.n, 12);
    for (uint32_t i = 0; i < 12; i++) {
        const struct rig_record *r = rig_find(&list, ids[i]);
        int32_t tokens[PAGE_TOKENS];
        uint32_t key = i == 10 ? 100 : i == 11 ? 0 : i;
        rig_tokens(key, tokens);
        assert_non_null(r);
        assert_int_equal(r->n, PAGE_TOKENS);
        assert_memory_equal(r->tokens, tokens, sizeof(tokens));
        assert_true(r->parent == (i == 0 || i == 11 ? 0 : i == 10 ? ids[4] : ids[i - 1]));
        assert_string_equal(r->space, i == 0 ? "space a" : i == 11 ? "space b" : "");
        assert_int_equal(r->groups, i == 5 ? 0 : i < 10 && i % 3 == 0 ? 2 : RIG_BOTH);
        assert_int_equal(rig_read(d, ids[i], 1, key), r->groups & 2 ? 0 : COHORT_E_NOT_FOUND);
        assert_int_equal(rig_read(d, ids[i], 0, key), r->groups & 1 ? 0 : COHORT_E_NOT_FOUND);
    }
    struct disk_counts counts;
    disk_get_counts(d, &counts);
    assert_int_equal(counts.records, 12);
    assert_int_equal(counts.read, 11 + 7);
    assert_int_equal(counts.discarded, 0);
    assert_true(counts.bytes == 12 * RECORD + 11 * SLOT_LARGE + 7 * SLOT_SMALL);
    disk_close(d);
}

static void folder_is_private(void **state) {
    (void)state;
    char inner[RIG_PATH], path[RIG_PATH];
    struct stat status;
    struct disk *d = rig_open(rig_path(folder, "inner", inner), PLENTY);
    rig_write(d, 0, "s", 1, RIG_BOTH);
    assert_int_equal(rig_barrier(d), 0);
    assert_int_equal(stat(inner, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    const char *const names[] = {"lock", "index.db", "index.db-wal", "index.db-shm", "pages-0-0.seg", "pages-1-0.seg"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(stat(rig_path(inner, names[i], path), &status), 0);
        assert_int_equal(status.st_mode & 0777, 0600);
    }
    disk_close(d);
    rig_remove_folder(inner);
}

static void short_blocks_and_later_groups(void **state) {
    (void)state;
    struct disk *d = rig_open(folder, PLENTY);
    unsigned char page[RIG_LARGE];
    const void *pages[] = {page, page};
    int32_t tokens[] = {7, 8, 9};
    uint64_t id = 0, first = rig_write(d, 0, "s", 1, 2);
    struct disk_record record = {.parent = first, .space = "", .tokens = tokens, .n = 3, .groups = 2};
    memset(page, 5, sizeof(page));
    assert_int_equal(disk_write(d, &record, pages, &id), 0);
    rig_write_more(d, first, 1, RIG_BOTH); /* has group 1 already */
    rig_write_more(d, first, 1, RIG_BOTH); /* has all of them */
    uint64_t none = 0;
    record.parent = id; /* nothing comes behind a short block */
    assert_int_equal(disk_write(d, &record, pages, &none), COHORT_E_ARGUMENT);
    record.parent = first;
    record.groups = 4;
    assert_int_equal(disk_write(d, &record, pages, &none), COHORT_E_ARGUMENT);
    record.groups = 1;
    record.n = PAGE_TOKENS + 1;
    assert_int_equal(disk_write(d, &record, pages, &none), COHORT_E_ARGUMENT);
    record.n = 3;
    record.parent = 12345;
    assert_int_equal(disk_write(d, &record, pages, &none), COHORT_E_NOT_FOUND);
    disk_close(d); /* no barrier: closing writes what is queued */

    d = rig_open(folder, PLENTY);
    rig_list(d, &list);
    assert_int_equal(list.n, 2);
    assert_int_equal(rig_find(&list, first)->groups, RIG_BOTH);
    assert_int_equal(rig_find(&list, id)->n, 3);
    assert_int_equal(rig_find(&list, id)->tokens[2], 9);
    assert_int_equal(rig_read(d, first, 0, 1), 0);
    assert_int_equal(rig_read(d, first, 1, 1), 0);
    disk_close(d);
}

/* ---- Room ---- */
static void slots_are_used_again(void **state) {
    (void)state;
    const uint64_t each = SLOT_SMALL + SLOT_LARGE + RECORD;
    struct disk *d = rig_open(folder, 8 * each);
    uint64_t ids[8], id = 0;
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(disk_has_room(d, RIG_BOTH));
        ids[i] = rig_write(d, 0, "s", i, RIG_BOTH);
    }
    assert_false(disk_has_room(d, RIG_BOTH));
    assert_false(disk_has_room(d, 1));
    assert_int_equal(rig_try(d, 0, "s", 8, RIG_BOTH, &id), COHORT_E_LIMIT);
    for (uint32_t i = 8; i < 200; i++) { /* room is there at once, the slot when the removal is committed */
        disk_remove(d, ids[i % 8]);
        ids[i % 8] = rig_write(d, 0, "s", i, RIG_BOTH);
        if (i % 5 == 0) assert_int_equal(rig_barrier(d), 0);
    }
    assert_int_equal(rig_barrier(d), 0);
    for (uint32_t i = 192; i < 200; i++) {
        assert_int_equal(rig_read(d, ids[i % 8], 0, i), 0);
        assert_int_equal(rig_read(d, ids[i % 8], 1, i), 0);
    }
    assert_true(rig_file_bytes(folder, "pages-0-0.seg") + rig_file_bytes(folder, "pages-1-0.seg") <= 14 * each);
    disk_close(d);

    d = rig_open(folder, 8 * each);
    rig_list(d, &list);
    assert_int_equal(list.n, 8);
    for (uint32_t i = 0; i < 8; i++) disk_remove(d, ids[i]);
    assert_int_equal(rig_barrier(d), 0);
    assert_int_equal(rig_barrier(d), 0); /* what is unlinked is so before this one */
    assert_false(rig_exists(folder, "pages-0-0.seg"));
    assert_false(rig_exists(folder, "pages-1-0.seg"));
    rig_write(d, 0, "s", 1, RIG_BOTH);
    assert_int_equal(rig_barrier(d), 0);
    disk_close(d);
    d = rig_open(folder, 8 * each);
    rig_list(d, &list);
    assert_int_equal(list.n, 1);
    disk_close(d);
}

static void removing_takes_what_is_behind(void **state) {
    (void)state;
    struct disk *d = rig_open(folder, PLENTY);
    uint64_t a = rig_write(d, 0, "s", 1, RIG_BOTH), b = rig_write(d, a, "", 2, RIG_BOTH);
    uint64_t c = rig_write(d, b, "", 3, RIG_BOTH), e = rig_write(d, a, "", 4, RIG_BOTH), id = 0;
    disk_remove(d, b); /* its write is still queued, or not */
    disk_remove(d, b);
    disk_remove(d, 99999);
    assert_int_equal(rig_try(d, c, "", 5, RIG_BOTH, &id), COHORT_E_NOT_FOUND);
    id = c;
    assert_int_equal(rig_try(d, 0, "", 3, RIG_BOTH, &id), COHORT_E_NOT_FOUND);
    assert_int_equal(rig_barrier(d), 0);
    assert_int_equal(rig_failed_writes, 0);
    assert_int_equal(rig_read(d, b, 1, 2), COHORT_E_NOT_FOUND);
    assert_int_equal(rig_read(d, e, 1, 4), 0);
    disk_close(d);
    d = rig_open(folder, PLENTY);
    rig_list(d, &list);
    assert_int_equal(list.n, 2);
    assert_non_null(rig_find(&list, a));
    assert_non_null(rig_find(&list, e));
    disk_close(d);
}

static uint64_t unwanted;
static int keep_all_but(void *user, const struct disk_record *record) {
    ++*(uint32_t *)user;
    return record->id != unwanted;
}

static void each_forgets(void **state) {
    (void)state;
    struct disk *d = rig_open(folder, PLENTY);
    uint64_t a = rig_write(d, 0, "s", 1, 1), b = rig_write(d, a, "", 2, 1), told = 0;
    rig_write(d, b, "", 3, 1);
    rig_write(d, a, "", 4, 1);
    rig_write(d, 0, "t", 5, 1);
    disk_close(d);
    d = rig_open(folder, PLENTY);
    unwanted = b;
    assert_int_equal(disk_each(d, keep_all_but, &told, NULL), 0);
    assert_int_equal(told, 4);
    disk_close(d);
    d = rig_open(folder, PLENTY);
    rig_list(d, &list);
    assert_int_equal(list.n, 3);
    assert_null(rig_find(&list, b));
    disk_close(d);
}

/* ---- Queues: pages so large that the thread is busy for a while ---- */
static sem_t gate;
static void hold_thread(void *user) {
    if (atomic_load((atomic_int *)user)) sem_wait(&gate);
}

static struct disk *open_big(atomic_int *hold) {
    struct disk_options options = {.dir = folder, .bytes_max = PLENTY, .wake = hold_thread, .user = hold};
    struct disk *d = NULL;
    options.identity = (struct disk_identity){.groups = 1, .page_bytes = {RIG_BIG_PAGE}};
    assert_int_equal(disk_open(&options, &d, NULL), 0);
    return d;
}

static int write_big(struct disk *d, uint32_t key, unsigned char *page, uint64_t *id) {
    const void *pages[] = {page};
    int32_t tokens[PAGE_TOKENS];
    rig_tokens(key, tokens);
    memset(page, (int)key, RIG_BIG_PAGE);
    *id = 0;
    struct disk_record record = {.space = "s", .space_n = 1, .tokens = tokens, .n = PAGE_TOKENS, .groups = 1};
    return disk_write(d, &record, pages, id);
}

static void reads_go_first_and_writes_wait(void **state) {
    (void)state;
    atomic_int hold = 1; /* the thread, in its first call of wake: what is queued meanwhile stays queued */
    struct disk *d = open_big(&hold);
    sem_init(&gate, 0, 0);
    unsigned char *page = mem_alloc(RIG_BIG_PAGE, 1), *to = mem_alloc(RIG_BIG_PAGE, 2);
    uint64_t old, id = 0, last = 0;
    struct disk_result result;
    assert_int_equal(write_big(d, 1, page, &old), 0);
    assert_int_equal(disk_barrier(d, 1), 0);
    rig_wait(d, &result);
    assert_int_equal(result.kind, DISK_BARRIER);

    int code = 0; /* the thread waits at the gate */
    for (uint32_t key = 2; key < 40 && !code; key++) {
        code = write_big(d, key, page, &id);
        if (!code) last = id;
    }
    assert_int_equal(code, COHORT_E_AGAIN); /* 64 MiB are queued */
    struct disk_counts counts;
    disk_get_counts(d, &counts);
    assert_true(counts.queued_bytes <= DISK_QUEUE_BYTES);
    assert_int_equal(disk_barrier(d, 2), 0);
    struct disk_want of_last = {.id = last, .to = to}, of_old = {.id = old, .to = to + RIG_BIG_PAGE};
    assert_int_equal(disk_read(d, &of_last, 1, 3), 0); /* queued first, but its write is the last one */
    assert_int_equal(disk_read(d, &of_old, 1, 4), 0);
    atomic_store(&hold, 0);
    sem_post(&gate);
    uint64_t order[3];
    for (int i = 0; i < 3; i++) {
        rig_wait(d, &result);
        assert_int_equal(result.code, 0);
        order[i] = result.tag;
    }
    assert_int_equal(order[0], 4);
    assert_true(order[1] == 3 || order[2] == 3);
    assert_int_equal(to[RIG_BIG_PAGE], 1);
    assert_int_equal(to[RIG_BIG_PAGE - 1], to[0]);
    assert_true(to[0] >= 2);
    disk_get_counts(d, &counts);
    assert_int_equal(counts.queued_bytes, 0);
    mem_free(page);
    mem_free(to);
    disk_close(d);
    sem_destroy(&gate);
}

static void many_wants_one_result(void **state) {
    (void)state;
    struct disk *d = rig_open(folder, PLENTY);
    static unsigned char small[8][RIG_SMALL], large[8][RIG_LARGE];
    unsigned char right[RIG_LARGE];
    struct disk_want wants[17];
    struct disk_result result;
    uint64_t parent = 0;
    for (uint32_t i = 0; i < 8; i++) {
        parent = rig_write(d, parent, "s", i, RIG_BOTH);
        wants[2 * i] = (struct disk_want){.id = parent, .group = 0, .to = small[i]};
        wants[2 * i + 1] = (struct disk_want){.id = parent, .group = 1, .to = large[i]};
    }
    assert_int_equal(disk_read(d, wants, 16, 5), 0); /* behind the writes, by itself */
    rig_wait(d, &result);
    assert_int_equal(result.kind, DISK_READ);
    assert_int_equal(result.code, 0);
    for (uint32_t i = 0; i < 8; i++) {
        rig_page(i, 0, right, RIG_SMALL);
        assert_memory_equal(small[i], right, RIG_SMALL);
        rig_page(i, 1, right, RIG_LARGE);
        assert_memory_equal(large[i], right, RIG_LARGE);
    }
    wants[16] = (struct disk_want){.id = 555, .group = 0, .to = small[0]};
    assert_int_equal(disk_read(d, wants + 10, 7, 6), 0);
    rig_wait(d, &result);
    assert_int_equal(result.code, COHORT_E_NOT_FOUND);
    assert_int_equal(result.record, 555);
    wants[0].group = 2;
    assert_int_equal(disk_read(d, wants, 1, 7), COHORT_E_ARGUMENT);
    disk_close(d);
}

/* ---- Sessions ---- */
static void sessions_survive(void **state) {
    (void)state;
    struct disk *d = rig_open(folder, PLENTY);
    uint64_t a = rig_write(d, 0, "s", 1, 1), b = rig_write(d, a, "", 2, 1), record = 0;
    uint32_t tokens = 0;
    disk_session_put(d, "x\0y", 3, a, 20);
    disk_session_put(d, "x\0y", 3, b, 50);
    disk_session_put(d, "two", 3, a, 32);
    disk_session_put(d, "gone", 4, a, 32);
    disk_session_put(d, "never", 5, 777, 1);
    disk_session_drop(d, "gone", 4);
    assert_int_equal(rig_barrier(d), 0);
    disk_close(d);
    d = rig_open(folder, PLENTY);
    assert_int_equal(disk_session_get(d, "x\0y", 3, &record, &tokens), 0);
    assert_true(record == b && tokens == 50);
    assert_int_equal(disk_session_get(d, "two", 3, &record, &tokens), 0);
    assert_true(record == a && tokens == 32);
    assert_int_equal(disk_session_get(d, "gone", 4, &record, &tokens), COHORT_E_NOT_FOUND);
    assert_int_equal(disk_session_get(d, "never", 5, &record, &tokens), COHORT_E_NOT_FOUND);
    disk_remove(d, b); /* its session goes with it */
    assert_int_equal(disk_session_get(d, "x\0y", 3, &record, &tokens), COHORT_E_NOT_FOUND);
    for (uint32_t i = 0; i < DISK_SESSIONS_MAX; i++) {
        char name[16];
        int n = snprintf(name, sizeof(name), "s%u", i);
        disk_session_put(d, name, (size_t)n, a, i);
    }
    struct disk_counts counts;
    disk_get_counts(d, &counts);
    assert_int_equal(counts.sessions, DISK_SESSIONS_MAX);
    assert_int_equal(disk_session_get(d, "two", 3, &record, &tokens), COHORT_E_NOT_FOUND); /* the oldest made room */
    disk_close(d);
    d = rig_open(folder, PLENTY);
    disk_get_counts(d, &counts);
    assert_int_equal(counts.sessions, DISK_SESSIONS_MAX);
    assert_int_equal(disk_session_get(d, "s4095", 5, &record, &tokens), 0);
    assert_true(record == a && tokens == 4095);
    disk_close(d);
}

/* ---- From outside ---- */
static int has(const char *text, const char *part) { return strstr(text, part) != NULL; }

static void tools_look_and_remove(void **state) {
    (void)state;
    char *text, part[128];
    size_t len;
    uint64_t all, bad, removed;
    cohort_error err;
    assert_int_equal(disk_list(folder, 1, &text, &len, &err), COHORT_E_NOT_FOUND);
    assert_int_equal(disk_verify(folder, 0, &all, &bad, &err), COHORT_E_NOT_FOUND);
    assert_int_equal(disk_clear("/nowhere/at/all", 0, 0, &removed, &err), COHORT_E_NOT_FOUND);
    struct disk *d = rig_open(folder, PLENTY);
    uint64_t a = rig_write(d, 0, "s", 1, RIG_BOTH), b = rig_write(d, a, "", 2, RIG_BOTH);
    uint64_t c = rig_write(d, b, "", 3, 2), e = rig_write(d, a, "", 4, 2);
    disk_session_put(d, "t\"1", 3, e, 64);
    assert_int_equal(rig_barrier(d), 0);
    assert_int_equal(disk_list(folder, 1, &text, &len, &err), 0); /* while it is open */
    assert_int_equal(len, strlen(text));
    assert_true(has(text, "\"blocks\":4") && has(text, "\"sequences_n\":2") && has(text, "\"sessions\":[\"t\\\"1\"]"));
    snprintf(part, sizeof(part), "{\"id\":%llu,\"tokens\":96,\"bytes\":%d,\"own_bytes\":%d,", (unsigned long long)c,
             2 * (SLOT_SMALL + SLOT_LARGE) + SLOT_LARGE, SLOT_SMALL + 2 * SLOT_LARGE);
    assert_true(has(text, part));
    mem_free(text);
    assert_int_equal(disk_list(folder, 0, &text, &len, &err), 0);
    assert_true(has(text, "4 blocks") && has(text, "2 sequences") && has(text, "window 64"));
    mem_free(text);
    assert_int_equal(disk_verify(folder, 0, &all, &bad, &err), 0);
    assert_true(all == 4 && bad == 0);
    assert_int_equal(disk_verify(folder, 1, &all, &bad, &err), COHORT_E_BUSY);
    assert_int_equal(disk_clear(folder, 0, 0, &removed, &err), COHORT_E_BUSY);
    disk_close(d);

    assert_int_equal(disk_clear(folder, b, 0, &removed, &err), COHORT_E_NOT_FOUND); /* not the end of a sequence */
    assert_int_equal(disk_clear(folder, 0, 3600, &removed, &err), 0);
    assert_int_equal(removed, 0);
    assert_int_equal(disk_clear(folder, c, 0, &removed, &err), 0);
    assert_int_equal(removed, 2);
    d = rig_open(folder, PLENTY);
    rig_list(d, &list);
    assert_int_equal(list.n, 2);
    uint64_t record;
    uint32_t tokens;
    assert_int_equal(disk_session_get(d, "t\"1", 3, &record, &tokens), 0);
    assert_int_equal(rig_read(d, e, 1, 4), 0);
    disk_close(d);
    assert_int_equal(disk_clear(folder, 0, 0, &removed, &err), 0);
    assert_int_equal(removed, 2);
    assert_false(rig_exists(folder, "pages-1-0.seg"));
    assert_int_equal(disk_verify(folder, 1, &all, &bad, &err), 0);
    assert_true(all == 0 && bad == 0);
}

static void unused_goes(void **state) {
    (void)state;
    uint64_t removed;
    struct disk *d = rig_open(folder, PLENTY);
    uint64_t a = rig_write(d, 0, "s", 1, 1);
    rig_write(d, a, "", 2, 1);
    disk_close(d);
    sleep(2);
    d = rig_open(folder, PLENTY);
    uint64_t c = rig_write(d, a, "", 3, 1);
    disk_close(d);
    assert_int_equal(disk_clear(folder, 0, 1, &removed, NULL), 0);
    assert_int_equal(removed, 1);
    d = rig_open(folder, PLENTY);
    rig_list(d, &list);
    assert_int_equal(list.n, 2);
    assert_non_null(rig_find(&list, c));
    disk_close(d);
}

/* ---- Size, memory ---- */
static int count_records(void *user, const struct disk_record *record) {
    (void)record;
    ++*(uint32_t *)user;
    return 1;
}

static void many_records_open_fast(void **state) {
    (void)state;
    struct disk_options options = {.dir = folder, .bytes_max = PLENTY};
    struct disk *d = NULL;
    unsigned char page[64] = {0};
    const void *pages[] = {page};
    options.identity = (struct disk_identity){.groups = 1, .page_bytes = {sizeof(page)}};
    assert_int_equal(disk_open(&options, &d, NULL), 0);
    uint64_t parent = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        int32_t tokens[PAGE_TOKENS];
        uint64_t id = 0;
        for (uint32_t t = 0; t < PAGE_TOKENS; t++) tokens[t] = (int32_t)(i + t);
        if (i % 100 == 0) parent = 0;
        struct disk_record record = {.parent = parent, .space = "", .tokens = tokens, .n = PAGE_TOKENS, .groups = 1};
        int code;
        while ((code = disk_write(d, &record, pages, &id)) == COHORT_E_AGAIN) usleep(1000);
        assert_int_equal(code, 0);
        parent = id;
    }
    assert_int_equal(rig_barrier(d), 0);
    disk_close(d);
    uint64_t begin = clock_us();
    assert_int_equal(disk_open(&options, &d, NULL), 0);
    uint64_t us = clock_us() - begin;
    uint32_t n = 0;
    assert_int_equal(disk_each(d, count_records, &n, NULL), 0);
    assert_int_equal(n, MANY);
    print_message("opening %d records took %.0f ms\n", MANY, (double)us / 1000);
    assert_true(us < 5000000); /* a tenth of a second where nothing else runs and nothing is sanitized */
    disk_close(d);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    struct disk_options options = rig_options(folder, PLENTY);
    struct disk *d = rig_open(folder, PLENTY);
    uint64_t id = rig_write(d, 0, "s", 1, RIG_BOTH);
    rig_write(d, id, "", 2, RIG_BOTH);
    disk_close(d);
    cohort_error err;
    int code = -1, failures = 0, others = 0;
    rig_catch(folder);
    for (uint64_t nth = 1; code && nth < 100; nth++) {
        mem_fail_at(nth, 0);
        code = disk_open(&options, &d, &err);
        mem_fail_at(0, 0);
        failures += code == COHORT_E_MEMORY;
        others += code && code != COHORT_E_MEMORY;
    }
    assert_int_equal(rig_lines(folder, "removed"), 0); /* want of memory removes nothing */
    assert_int_equal(code, 0);
    assert_int_equal(others, 0);
    assert_true(failures >= 5);
    rig_list(d, &list);
    assert_int_equal(list.n, 2);
    uint64_t fresh = 0;
    for (uint64_t nth = 1; nth < 20; nth++) {
        mem_fail_at(nth, 0);
        fresh = 0;
        code = rig_try(d, id, "", 3, RIG_BOTH, &fresh);
        mem_fail_at(0, 0);
        if (!code) break;
        assert_int_equal(code, COHORT_E_MEMORY);
    }
    assert_int_equal(code, 0);
    assert_int_equal(rig_read(d, fresh, 1, 3), 0);
    disk_close(d);
}

static void bad_options(void **state) {
    (void)state;
    struct disk_options options = rig_options(folder, 1000);
    struct disk *d;
    cohort_error err;
    assert_int_equal(disk_open(&options, &d, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "state-dir-bytes");
    options = rig_options("", PLENTY);
    assert_int_equal(disk_open(&options, &d, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "state-dir");
    options = rig_options("/nowhere/at/all", PLENTY);
    assert_int_equal(disk_open(&options, &d, &err), COHORT_E_IO);
    assert_string_equal(err.field, "state-dir");
    options = rig_options("/dev/null", PLENTY);
    assert_int_equal(disk_open(&options, &d, &err), COHORT_E_IO);
    options = rig_options(folder, PLENTY);
    options.identity.groups = 5;
    assert_int_equal(disk_open(&options, &d, &err), COHORT_E_ARGUMENT);
    disk_close(NULL);
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(records_survive),
        T(folder_is_private),
        T(short_blocks_and_later_groups),
        T(slots_are_used_again),
        T(removing_takes_what_is_behind),
        T(each_forgets),
        T(reads_go_first_and_writes_wait),
        T(many_wants_one_result),
        T(sessions_survive),
        T(tools_look_and_remove),
        T(unused_goes),
        T(many_records_open_fast),
        T(every_allocation_may_fail),
        T(bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
