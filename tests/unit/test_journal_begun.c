/* What was begun is known again, whatever single bit or sector of the journal's files is damaged, and what was removed
 * is not. A folder is made once, as a kill leaves it, and copied for every fault. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/mem.h"
#include "base/rng.h"
#include "journal_rig.h"

enum { KEPT = 12, REMOVED = 6, EVENTS = 4, FLIPS = 300, SECTORS = 60, SECTOR = 512, PAGE = 4096 };

static char model[320]; /* the folder that is copied */

static void shell(const char *format, const char *a, const char *b, const char *c) {
    char command[1400];
    snprintf(command, sizeof(command), format, a, b, c);
    assert_int_equal(system(command), 0);
}

static void name_of(char out[16], const char *kind, int i) { snprintf(out, 16, "%s-%d", kind, i); }

/* Some of one kind that have ended, and some that run. */
static void fill(struct journal *j, const char *kind, int n, uint64_t *numbers) {
    char id[16];
    for (int i = 0; i < n; i++) {
        name_of(id, kind, i);
        numbers[i] = begin(j, id, "one");
        for (uint64_t e = 1; e <= EVENTS; e++) {
            assert_int_equal(journal_event(j, numbers[i], e, "an event", 8), 0);
            assert_int_equal(journal_note(j, numbers[i], e, "a note", 6, 0), 0);
        }
        if (i % 2) assert_int_equal(journal_end(j, numbers[i], EVENTS, 200, "result", 6), 0);
    }
    for (int i = 0; i < n; i++) wait_good(j, 1 + 2 * EVENTS + i % 2);
}

/* No disk, where there is a choice: thousands of folders are opened. */
static int setup(void **state) {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    return journal_setup(state);
}

/* `rested`: the first of them are in the file, and not in front of it. */
static void write_and_die(int rested) {
    uint64_t kept[KEPT], removed[REMOVED];
    struct journal *j = open_it();
    fill(j, "removed", REMOVED, removed);
    fill(j, "old", KEPT, kept);
    if (rested) usleep(1000 * 2 * JOURNAL_REST_MS);
    for (int i = 0; i < REMOVED; i++) assert_int_equal(journal_remove(j, removed[i]), 0);
    wait_good(j, REMOVED);
    fill(j, "new", KEPT, kept);
    if (!rested) usleep(1000 * 2 * JOURNAL_REST_MS);
    raise(SIGKILL);
}

static void make_model(int rested) {
    shell("rm -rf '%s' && mkdir '%s'%s", dir, dir, "");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) write_and_die(rested);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    snprintf(model, sizeof(model), "%s.model", dir);
    shell("rm -rf '%s' && mv '%s' '%s'", model, dir, model);
}

static long size_of(const char *file) {
    char name[400];
    struct stat is;
    snprintf(name, sizeof(name), "%s/%s", model, file);
    return stat(name, &is) == 0 ? (long)is.st_size : 0;
}

/* Bytes from `at` on are changed as `mask` says. */
static void damage(const char *file, long at, int n, int mask) {
    char name[400];
    if (!n) return;
    snprintf(name, sizeof(name), "%s/%s", dir, file);
    FILE *f = fopen(name, "r+");
    assert_non_null(f);
    for (int i = 0; i < n; i++) {
        fseek(f, at + i, SEEK_SET);
        int c = fgetc(f);
        if (c == EOF) break;
        fseek(f, at + i, SEEK_SET);
        fputc(n == 1 ? c ^ mask : mask, f);
    }
    fclose(f);
}

static int count(void *user, uint64_t n, const char *bytes, size_t len) {
    assert_int_equal(n, ++*(uint64_t *)user);
    assert_memory_equal(bytes, "an event", len);
    return 0;
}

static void check_kept(struct journal *j, const char *kind) {
    char id[16];
    struct journal_stream stream;
    for (int i = 0; i < KEPT; i++) {
        struct buf head = {0}, body = {0};
        uint64_t events = 0;
        name_of(id, kind, i);
        if (journal_find(j, id, "one", &stream, NULL) != 0) fail_msg("%s is lost", id);
        assert_int_equal(journal_part(j, stream.number, JOURNAL_HEAD, &head, NULL), 0);
        assert_int_equal(journal_part(j, stream.number, JOURNAL_BODY, &body, NULL), 0);
        assert_string_equal(head.data, "head");
        assert_string_equal(body.data, "the body");
        assert_int_equal(journal_events(j, stream.number, 1, count, &events, NULL), 0);
        assert_true(stream.tries <= JOURNAL_TRIES_MAX);
        if (stream.ended) {
            assert_true(i % 2);
            assert_int_equal(events, EVENTS);
            assert_int_equal(stream.events, EVENTS);
            assert_int_equal(stream.status, 200);
            assert_true(stream.has_result);
        }
        buf_free(&head);
        buf_free(&body);
    }
}

static int listed(void *user, const struct journal_stream *stream) {
    (void)stream;
    ++*(int *)user;
    return 0;
}

/* All that was begun is there, what runs is listed, and nothing that was removed. */
static void check_all(struct journal *j) {
    char id[16];
    int unfinished = 0, expected = 0;
    struct journal_stream stream;
    check_kept(j, "old");
    check_kept(j, "new");
    for (int i = 0; i < REMOVED; i++) {
        name_of(id, "removed", i);
        if (journal_find(j, id, "one", &stream, NULL) != COHORT_E_NOT_FOUND) fail_msg("%s is back", id);
    }
    for (int i = 0; i < KEPT * 2; i++) {
        name_of(id, i % 2 ? "old" : "new", i / 2);
        assert_int_equal(journal_find(j, id, "one", &stream, NULL), 0);
        expected += !stream.ended;
    }
    assert_int_equal(journal_unfinished(j, listed, &unfinished, NULL), 0);
    assert_int_equal(unfinished, expected);
}

/* A folder as the model, with one fault. Opened twice: what was put right stays so. */
static void check_damage(const char *file, long at, int n, int mask) {
    shell("rm -rf '%s' && cp -r '%s' '%s'", dir, model, dir);
    damage(file, at, n, mask);
    print_message("%s: %d bytes at %ld, %#x\n", file, n, at, (unsigned)mask);
    struct journal *j = open_it();
    check_all(j);
    journal_close(j);
    j = open_it();
    struct journal_counts counts;
    journal_get_counts(j, &counts);
    assert_int_equal(counts.regained, 0);
    assert_int_equal(counts.lost_frames, 0);
    assert_int_equal(counts.damaged_places, 0);
    check_all(j);
    journal_close(j);
}

static void flip_everywhere(const char *file, int rested) {
    make_model(rested);
    long size = size_of(file);
    assert_true(size > 4096);
    for (uint64_t i = 0; i < FLIPS; i++) {
        long at = (long)(rng_u64(11, 0, i) % (uint64_t)size);
        if (i < 100) at = (long)i; /* heads of files are special */
        check_damage(file, at, 1, 1 << rng_u64(11, 1, i) % 8);
    }
    for (uint64_t i = 0; i < SECTORS; i++) {
        int n = i % 3 ? SECTOR : PAGE;
        long at = (long)(rng_u64(12, 0, i) % (uint64_t)(size / n)) * n;
        check_damage(file, at, n, i % 2 ? 0 : (int)(rng_u64(12, 1, i) & 255));
    }
}

static void a_bit_of_the_file(void **state) {
    (void)state;
    flip_everywhere("journal.db", 0);
}

static void a_bit_in_front_of_the_file(void **state) {
    (void)state;
    flip_everywhere("journal.db-wal", 1);
}

static void a_bit_of_the_second_copy(void **state) {
    (void)state;
    flip_everywhere("journal.begun", 0);
}

/* SQLite makes it anew. */
static void a_bit_of_the_shared_memory(void **state) {
    (void)state;
    make_model(1);
    for (int i = 0; i < 40; i++)
        check_damage("journal.db-shm", (long)(rng_u64(13, 0, (uint64_t)i) % 400), 1, 1 << i % 8);
}

/* Without any fault both agree, however the process ended. */
static void nothing_is_regained_from_a_sound_folder(void **state) {
    (void)state;
    for (int rested = 0; rested < 2; rested++) {
        make_model(rested);
        check_damage("journal.begun", size_of("journal.begun"), 0, 0);
        shell("rm -rf '%s' && cp -r '%s' '%s'", dir, model, dir);
        struct journal *j = open_it();
        struct journal_counts counts;
        journal_get_counts(j, &counts);
        assert_int_equal(counts.regained, 0);
        assert_int_equal(counts.running, KEPT);
        assert_int_equal(counts.ended, KEPT);
        journal_close(j);
    }
}

/* Either of the two is enough. */
static void one_file_is_enough(void **state) {
    (void)state;
    make_model(1);
    for (int i = 0; i < 2; i++) {
        shell("rm -rf '%s' && cp -r '%s' '%s'", dir, model, dir);
        shell(i ? "rm '%s'/journal.begun%s%s" : "rm '%s'/journal.db*%s%s", dir, "", "");
        struct journal *j = open_it();
        struct journal_counts counts;
        journal_get_counts(j, &counts);
        assert_int_equal(counts.regained, i ? 0 : 2 * KEPT);
        check_all(j);
        uint64_t another = begin(j, "another", "one");
        assert_true(another > 2 * KEPT); /* no number twice */
        journal_remove(j, another);
        wait_good(j, 2);
        journal_close(j);
        check_all(j = open_it());
        journal_close(j);
    }
}

/* Damage of both is told, and takes what both have lost, and no more. */
static void damage_of_both_is_told(void **state) {
    (void)state;
    make_model(0);
    shell("rm -rf '%s' && cp -r '%s' '%s'", dir, model, dir);
    shell("rm '%s'/journal.db*%s%s", dir, "", "");
    damage("journal.begun", size_of("journal.begun") - 256, 1, 1); /* the last one's request */
    struct journal *j = open_it();
    struct journal_counts counts;
    struct journal_stream stream;
    journal_get_counts(j, &counts);
    assert_int_equal(counts.regained, 2 * KEPT - 1);
    assert_int_equal(counts.damaged_places, 1);
    check_kept(j, "old");
    assert_int_equal(journal_find(j, "new-11", "one", &stream, NULL), COHORT_E_NOT_FOUND);
    journal_close(j);
}

static void a_full_disk_refuses_what_has_no_second_copy(void **state) {
    (void)state;
    static char large[200 << 10];
    signal(SIGXFSZ, SIG_IGN);
    struct journal *j = open_it();
    struct journal_stream stream;
    struct rlimit before, tight;
    struct journal_begin many = {"first", "one", "head", large, 4, sizeof(large)};
    uint64_t number;
    for (int i = 0; i < 4; i++) { /* the second copy is the larger file then: the other has used its pages again */
        assert_int_equal(journal_begin(j, &many, &number), 0);
        wait_good(j, 1);
        journal_remove(j, number);
        wait_good(j, 1);
        usleep(1000 * 2 * JOURNAL_REST_MS);
        many.id = (const char *[]){"second", "third", "fourth", "many"}[i];
    }
    getrlimit(RLIMIT_FSIZE, &before);
    tight = (struct rlimit){700 << 10, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
    assert_int_equal(journal_begin(j, &many, &number), 0);
    assert_int_equal(wait_result(j).code, COHORT_E_IO);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(journal_find(j, "many", "one", &stream, NULL), COHORT_E_NOT_FOUND);
    begin(j, "more", "one");
    wait_good(j, 1);
    journal_close(j);
    j = open_it();
    assert_int_equal(journal_find(j, "many", "one", &stream, NULL), COHORT_E_NOT_FOUND);
    assert_int_equal(journal_find(j, "more", "one", &stream, NULL), 0);
    journal_close(j);
}

/* It does not grow with what is forgotten. */
static void the_second_copy_is_written_anew(void **state) {
    (void)state;
    enum { LEN = 1 << 20 };
    char *large = calloc(1, LEN), name[400];
    struct journal *j = open_it();
    uint64_t number, stays = begin(j, "stays", "one");
    struct journal_stream stream;
    struct stat is;
    wait_good(j, 1);
    assert_non_null(large);
    for (int i = 0; i < 60; i++) {
        char id[16];
        name_of(id, "many", i);
        const struct journal_begin many = {id, "one", "head", large, 4, LEN};
        assert_int_equal(journal_begin(j, &many, &number), 0);
        wait_good(j, 1);
        journal_remove(j, number);
        wait_good(j, 1);
    }
    snprintf(name, sizeof(name), "%s/journal.begun", dir);
    assert_int_equal(stat(name, &is), 0);
    assert_true(is.st_size < 40 << 20);
    begin(j, "after", "one");
    wait_good(j, 1);
    for (int i = 0; i < 400 && is.st_size >= 18 << 20; i++) { /* when it rests, which a busy machine puts off */
        usleep(1000 * JOURNAL_REST_MS / 4);
        assert_int_equal(stat(name, &is), 0);
    }
    assert_true(is.st_size < 18 << 20);
    journal_close(j);
    shell("rm '%s'/journal.db*%s%s", dir, "", "");
    j = open_it();
    assert_int_equal(journal_find(j, "stays", "one", &stream, NULL), 0);
    assert_int_equal(stream.number, stays);
    assert_int_equal(journal_find(j, "after", "one", &stream, NULL), 0);
    assert_int_equal(journal_find(j, "many-59", "one", &stream, NULL), COHORT_E_NOT_FOUND);
    journal_close(j);
    free(large);
}

/* Makes the second copy large enough to be written anew, of streams that are removed again. */
static void fill_and_remove(struct journal *j) {
    enum { LEN = 1 << 20, N = 40 };
    char *large = calloc(1, LEN), id[16];
    uint64_t number;
    assert_non_null(large);
    for (int i = 0; i < N; i++) {
        name_of(id, "large", i);
        const struct journal_begin many = {id, "one", "head", large, 4, LEN};
        assert_int_equal(journal_begin(j, &many, &number), 0);
        wait_good(j, 1);
        journal_remove(j, number);
        wait_good(j, 1);
    }
    free(large);
}

static void check_there(struct journal *j, const char *id, int there) {
    struct journal_stream stream;
    int code = journal_find(j, id, "one", &stream, NULL);
    if (code != (there ? 0 : COHORT_E_NOT_FOUND)) fail_msg("%s is %s", id, there ? "lost" : "back");
}

/* Begins and removes in one that may not have been compared with its second copy, and looks what the next starts find.
 */
static void use_and_look_again(struct journal *j, uint64_t gone, uint64_t highest) {
    assert_true(begin(j, "new", "one") > highest);
    assert_int_equal(journal_remove(j, gone), 0);
    wait_good(j, 2);
    fill_and_remove(j);
    begin(j, "last", "one");
    wait_good(j, 1);
    journal_close(j);
    for (int i = 0; i < 2; i++) { /* both, and the second copy alone */
        if (i) shell("rm '%s'/journal.db*%s%s", dir, "", "");
        j = open_it();
        check_there(j, "lost", 1);
        check_there(j, "kept", 1);
        check_there(j, "new", 1);
        check_there(j, "last", 1);
        check_there(j, "gone", 0);
        check_there(j, "large-39", 0);
        journal_close(j);
    }
}

/* A start that cannot bring the two together loses nothing, and nothing that is removed then comes back. */
static void a_start_without_memory_loses_nothing(void **state) {
    (void)state;
    enum { NTH = 12 };
    const struct journal_options options = {dir, 3600, JOURNAL_BYTES_MAX, JOURNAL_STREAMS_MAX};
    int opened = 0;
    struct journal *j = open_it();
    begin(j, "lost", "one");
    begin(j, "kept", "one");
    uint64_t gone = begin(j, "gone", "one"), highest = begin(j, "lost-too", "one");
    wait_good(j, 4);
    journal_close(j);
    exec_sql("DELETE FROM streams WHERE id LIKE 'lost%'");
    snprintf(model, sizeof(model), "%s.model", dir);
    shell("mv '%s' '%s'%s", dir, model, "");
    for (int nth = 1; nth <= NTH; nth++) {
        cohort_error error = {0};
        shell("rm -rf '%s' && cp -r '%s' '%s'", dir, model, dir);
        mem_fail_at((uint64_t)nth, 0);
        int code = journal_open(&options, &j, &error);
        mem_fail_at(0, 0);
        if (code) {
            assert_null(j);
            assert_true(error.text[0]);
            j = open_it();
        } else {
            struct journal_counts counts;
            journal_get_counts(j, &counts);
            opened += counts.regained == 0;
        }
        use_and_look_again(j, gone, highest);
    }
    assert_true(opened >= 2); /* of those that this is about */
}

static void use_up_and_die(void) {
    sqlite3 *reader;
    struct journal *j = open_it();
    uint64_t number = begin(j, "victim", "one");
    wait_good(j, 1);
    begin(j, "kept", "one");
    wait_good(j, 1);
    usleep(1000 * 2 * JOURNAL_REST_MS);
    assert_int_equal(sqlite3_open(path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM streams", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(journal_remove(j, number), 0);
    wait_good(j, 1);
    fill_and_remove(j);
    begin(j, "after", "one");
    wait_good(j, 1);
    raise(SIGKILL);
}

/* A removal that is only in front of the file, where one bit may lose it, is not dropped from the second copy. */
static void a_removal_in_front_of_the_file_is_in_the_second_copy(void **state) {
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) use_up_and_die();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    damage("journal.db-wal", 32 + 24 + 100, 1, 1);
    for (int i = 0; i < 2; i++) {
        struct journal *j = open_it();
        check_there(j, "victim", 0);
        check_there(j, "large-39", 0);
        check_there(j, "kept", 1);
        check_there(j, "after", 1);
        journal_close(j);
    }
}

/* A second copy that is made anew is not sorted for each of its streams. */
static void many_streams_are_added_soon(void **state) {
    (void)state;
    enum { MANY = 20000, SECONDS = 4 };
    char id[16];
    struct journal *j = open_it();
    for (int i = 0; i < MANY; i++) {
        name_of(id, "many", i);
        begin(j, id, "one");
    }
    wait_good(j, MANY);
    journal_close(j);
    forget_begun();
    clock_t before = clock();
    j = open_it();
    assert_true(clock() - before < (clock_t)SECONDS * CLOCKS_PER_SEC);
    journal_close(j);
    shell("rm '%s'/journal.db*%s%s", dir, "", "");
    j = open_it();
    struct journal_counts counts;
    journal_get_counts(j, &counts);
    assert_int_equal(counts.regained, MANY);
    journal_close(j);
}

static int teardown(void **state) {
    if (*model) shell("rm -rf '%s'%s%s", model, "", "");
    *model = 0;
    return journal_teardown(state);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_regained_from_a_sound_folder),
        TEST(one_file_is_enough),
        TEST(a_bit_of_the_second_copy),
        TEST(a_bit_in_front_of_the_file),
        TEST(a_bit_of_the_file),
        TEST(a_bit_of_the_shared_memory),
        TEST(damage_of_both_is_told),
        TEST(a_full_disk_refuses_what_has_no_second_copy),
        TEST(the_second_copy_is_written_anew),
        TEST(a_start_without_memory_loses_nothing),
        TEST(a_removal_in_front_of_the_file_is_in_the_second_copy),
        TEST(many_streams_are_added_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
