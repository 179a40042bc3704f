/* The journal alone: what was reported as written is there after any death of the process, bounds are kept, and damage
 * is found. */
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
#include <poll.h>
#include <sqlite3.h>

#include "base/rng.h"
#include "journal_rig.h"
#include "server/journal.h"

enum { KILLS = 100, STREAMS = 8 };

struct blobs {
    uint64_t n, stop_at;
    char last[256];
    size_t bytes;
};

static int count(void *user, uint64_t n, const char *bytes, size_t len) {
    struct blobs *blobs = user;
    assert_int_equal(n, blobs->n + 1);
    blobs->n = n;
    blobs->bytes += len;
    snprintf(blobs->last, sizeof(blobs->last), "%.*s", (int)len, bytes);
    return n == blobs->stop_at;
}

static uint64_t events_of(struct journal *j, uint64_t number, struct blobs *blobs) {
    *blobs = (struct blobs){0};
    assert_int_equal(journal_events(j, number, 1, count, blobs, NULL), 0);
    return blobs->n;
}

/* ---- */

static void what_is_written_is_read(void **state) {
    (void)state;
    struct journal *j = open_it();
    struct journal_stream stream;
    struct blobs blobs;
    struct buf part = {0};
    cohort_error error = {0};
    uint64_t a = begin(j, "a-1", "one"), b = begin(j, "b-1", "two");
    assert_int_equal(journal_event(j, a, 1, "first", 5), 0);
    assert_int_equal(journal_note(j, a, 1, "n\0te", 4, 0), 0);
    assert_int_equal(journal_event(j, a, 2, "", 0), 0);
    assert_int_equal(journal_event(j, a, 3, "third", 5), 0);
    assert_int_equal(journal_tried(j, b, 3), 0);
    const struct journal_result expected[] = {
        {a, 0, JOURNAL_BEGIN, 0}, {b, 0, JOURNAL_BEGIN, 0}, {a, 1, JOURNAL_EVENT, 0}, {a, 1, JOURNAL_NOTE, 0},
        {a, 2, JOURNAL_EVENT, 0}, {a, 3, JOURNAL_EVENT, 0}, {b, 3, JOURNAL_TRIED, 0},
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        struct journal_result result = wait_result(j);
        assert_int_equal(result.number, expected[i].number);
        assert_int_equal(result.n, expected[i].n);
        assert_int_equal(result.kind, expected[i].kind);
        assert_int_equal(result.code, 0);
    }
    assert_int_equal(events_of(j, a, &blobs), 3);
    assert_string_equal(blobs.last, "third");
    blobs = (struct blobs){.n = 1, .stop_at = 2};
    assert_int_equal(journal_events(j, a, 2, count, &blobs, NULL), 1);
    assert_int_equal(journal_find(j, "a-1", "one", &stream, NULL), 0);
    assert_int_equal(stream.number, a);
    assert_false(stream.ended);
    assert_true(stream.begun > 1600000000);
    assert_int_equal(journal_find(j, "a-1", "two", &stream, &error), COHORT_E_NOT_FOUND);
    assert_int_equal(journal_find(j, "a-", "one", &stream, &error), COHORT_E_NOT_FOUND);
    assert_int_equal(journal_find(j, "A-1", "one", &stream, &error), COHORT_E_NOT_FOUND);
    assert_int_equal(journal_find(j, "' OR '1", "one", &stream, &error), COHORT_E_NOT_FOUND);
    assert_int_equal(journal_part(j, a, JOURNAL_BODY, &part, NULL), 0);
    assert_string_equal(part.data, "the body");
    assert_int_equal(journal_part(j, a, JOURNAL_RESULT, &part, &error), COHORT_E_NOT_FOUND);
    assert_int_equal(journal_end(j, a, 3, 200, "all", 3), 0);
    wait_good(j, 1);
    journal_close(j);

    j = open_it();
    assert_int_equal(journal_find(j, "a-1", "one", &stream, NULL), 0);
    assert_true(stream.ended && stream.has_result);
    assert_int_equal(stream.status, 200);
    assert_int_equal(stream.events, 3);
    assert_int_equal(journal_find(j, "b-1", "two", &stream, NULL), 0);
    assert_int_equal(stream.tries, 3);
    buf_clear(&part);
    assert_int_equal(journal_part(j, a, JOURNAL_RESULT, &part, NULL), 0);
    assert_string_equal(part.data, "all");
    buf_free(&part);
    assert_true(begin(j, "c-1", "one") > b);
    journal_close(j);
}

static void many_commands_share_a_commit(void **state) {
    (void)state;
    struct journal *j = open_it();
    struct journal_counts before, after;
    uint64_t number = begin(j, "a", "one");
    wait_good(j, 1);
    journal_get_counts(j, &before);
    for (uint64_t n = 1; n <= 500; n++) assert_int_equal(journal_event(j, number, n, "some bytes", 10), 0);
    wait_good(j, 500);
    journal_get_counts(j, &after);
    assert_true(after.commits - before.commits < 50);
    struct blobs blobs;
    assert_int_equal(events_of(j, number, &blobs), 500);
    journal_close(j);
}

static void a_stream_with_a_gap_does_not_end(void **state) {
    (void)state;
    struct journal *j = open_it();
    struct blobs blobs;
    uint64_t number = begin(j, "a", "one");
    journal_event(j, number, 1, "x", 1);
    journal_event(j, number, 3, "z", 1);
    journal_end(j, number, 3, 200, NULL, 0);
    wait_good(j, 3);
    assert_int_equal(wait_result(j).code, COHORT_E_IO);
    assert_int_equal(events_of(j, number, &blobs), 1);
    journal_event(j, number, 2, "y", 1);
    journal_event(j, number, 3, "Z", 1);
    journal_end(j, number, 3, 200, NULL, 0);
    wait_good(j, 3);
    assert_int_equal(events_of(j, number, &blobs), 3);
    assert_string_equal(blobs.last, "Z");
    journal_close(j);
}

static void a_removed_stream_is_gone(void **state) {
    (void)state;
    struct journal *j = open_it();
    struct journal_stream stream;
    struct journal_counts counts;
    uint64_t number = begin(j, "a", "one");
    wait_good(j, 1);
    journal_get_counts(j, &counts);
    uint64_t small = counts.bytes;
    static char bytes[1000];
    for (uint64_t n = 1; n <= 3000; n++) {
        journal_event(j, number, n, bytes, sizeof(bytes));
        journal_note(j, number, n, bytes, sizeof(bytes), 0);
    }
    wait_good(j, 6000);
    journal_remove(j, number);
    wait_good(j, 1);
    assert_int_equal(journal_find(j, "a", "one", &stream, NULL), COHORT_E_NOT_FOUND);
    for (int i = 0; i < 500; i++) { /* the bytes go in slices */
        journal_get_counts(j, &counts);
        if (counts.bytes <= small + 65536) break;
        usleep(20000);
        number = begin(j, (char[8]){(char)('b' + i % 20), (char)('0' + i / 20 % 10), (char)('0' + i / 200), 0}, "one");
        wait_good(j, 1);
    }
    assert_true(counts.bytes <= small + 65536);
    journal_close(j);
}

static uint64_t ended_stream(struct journal *j, const char *id, size_t bytes) {
    static char zeros[1 << 16];
    uint64_t number = begin(j, id, "one"), n = 0;
    for (; bytes > 0; bytes -= bytes < sizeof(zeros) ? bytes : sizeof(zeros))
        assert_int_equal(journal_event(j, number, ++n, zeros, bytes < sizeof(zeros) ? bytes : sizeof(zeros)), 0);
    assert_int_equal(journal_end(j, number, n, 200, NULL, 0), 0);
    wait_good(j, (int)n + 2);
    return number;
}

/* Until the first is gone, and the last is not. */
static void wait_gone(struct journal *j, const char *first, const char *last) {
    struct journal_stream stream;
    for (int i = 0; i < 500 && journal_find(j, first, "one", &stream, NULL) == 0; i++) usleep(20000);
    assert_int_equal(journal_find(j, first, "one", &stream, NULL), COHORT_E_NOT_FOUND);
    assert_int_equal(journal_find(j, last, "one", &stream, NULL), 0);
}

static void ended_streams_are_kept_within_bounds(void **state) {
    (void)state;
    char id[16];
    struct journal *j = open_with(3600, JOURNAL_BYTES_MAX, 5);
    uint64_t runs = begin(j, "runs", "one");
    wait_good(j, 1);
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "s%d", i);
        ended_stream(j, id, 10);
    }
    wait_gone(j, "s3", "s4");
    journal_close(j);
    forget_begun();
    exec_sql("UPDATE streams SET ended = ended - 5000 WHERE id IN ('s4', 's5')"); /* older than what is kept */
    j = open_with(3600, JOURNAL_BYTES_MAX, 5);
    wait_gone(j, "s5", "s6");
    journal_close(j);
    j = open_with(3600, 4 << 20, 100);
    for (int i = 20; i < 26; i++) {
        snprintf(id, sizeof(id), "s%d", i);
        ended_stream(j, id, 1 << 20);
    }
    wait_gone(j, "s21", "s25");
    struct journal_counts counts;
    for (int i = 0; i < 500; i++) {
        journal_get_counts(j, &counts);
        if (counts.bytes <= 4 << 20) break;
        usleep(20000);
    }
    assert_true(counts.bytes <= 4 << 20);
    struct journal_stream stream;
    assert_int_equal(journal_find(j, "runs", "one", &stream, NULL), 0); /* what runs stays */
    assert_int_equal(stream.number, runs);
    /* And what only grows is stopped. */
    static char bytes[1 << 16];
    int refused = 0;
    for (uint64_t n = 1; n <= 200; n++) {
        assert_int_equal(journal_event(j, runs, n, bytes, sizeof(bytes)), 0);
        refused += wait_result(j).code != 0;
    }
    struct stat is;
    assert_int_equal(stat(path, &is), 0);
    assert_true(refused > 50 && is.st_size < 8 << 20);
    journal_close(j);
}

static void a_queue_has_an_end(void **state) {
    (void)state;
    struct journal *j = open_it();
    uint64_t number = begin(j, "a", "one"), n = 0;
    static char bytes[1 << 20];
    int code;
    while ((code = journal_event(j, number, n + 1, bytes, sizeof(bytes))) == 0) assert_true(++n < 100);
    assert_int_equal(code, COHORT_E_BUSY); /* results that nobody takes count, too */
    struct journal_counts counts;
    journal_get_counts(j, &counts);
    assert_int_equal(counts.refused, 1);
    wait_good(j, (int)n + 1);
    assert_int_equal(journal_event(j, number, n + 1, bytes, sizeof(bytes)), 0);
    wait_good(j, 1);
    journal_close(j);
}

static void one_command_may_be_larger_than_the_queue(void **state) {
    (void)state;
    struct journal *j = open_it();
    uint64_t number = begin(j, "a", "one");
    size_t len = JOURNAL_QUEUE_MAX + 1;
    char *large = calloc(1, len);
    assert_non_null(large);
    assert_int_equal(journal_end(j, number, 0, 200, large, len), 0);
    wait_good(j, 2);
    struct buf part = {0};
    assert_int_equal(journal_part(j, number, JOURNAL_RESULT, &part, NULL), 0);
    assert_int_equal(part.len, len);
    buf_free(&part);
    free(large);
    journal_close(j);
}

/* ---- faults ---- */

/* It is there, and has to be made again. */
static void check_begun_anew(struct journal *j, const char *id) {
    struct journal_stream stream;
    struct blobs blobs;
    struct buf part = {0};
    assert_int_equal(journal_find(j, id, "one", &stream, NULL), 0);
    assert_false(stream.ended);
    assert_int_equal(events_of(j, stream.number, &blobs), 0);
    assert_int_equal(journal_part(j, stream.number, JOURNAL_BODY, &part, NULL), 0);
    assert_string_equal(part.data, "the body");
    buf_free(&part);
}

static void flipped_bits_are_found(void **state) {
    (void)state;
    struct journal *j = open_it();
    uint64_t number = begin(j, "a", "one");
    for (uint64_t n = 1; n <= 5; n++) {
        journal_event(j, number, n, "event", 5);
        journal_note(j, number, n, "note", 4, 0);
    }
    wait_good(j, 11);
    journal_close(j);
    exec_sql("UPDATE events SET bytes = x'6576656e75' WHERE n = 4;"
             "UPDATE notes SET n = 9 WHERE n = 3; UPDATE notes SET n = 3 WHERE n = 5;"
             "UPDATE streams SET body = x'00'");
    j = open_it();
    struct blobs blobs;
    struct buf part = {0};
    assert_int_equal(events_of(j, number, &blobs), 3);
    blobs = (struct blobs){0};
    assert_int_equal(journal_notes(j, number, 1, count, &blobs, NULL), 0);
    assert_int_equal(blobs.n, 2); /* one that stands in another's place */
    assert_int_equal(journal_end(j, number, 3, 200, NULL, 0), 0);
    assert_int_equal(wait_result(j).code, COHORT_E_IO); /* there is one behind the gap, */
    assert_int_equal(journal_cut(j, number, 3, 2), 0);  /* which goes */
    assert_int_equal(journal_note(j, number, 3, "new", 3, 0), 0);
    wait_good(j, 2);
    blobs = (struct blobs){0};
    assert_int_equal(journal_notes(j, number, 1, count, &blobs, NULL), 0);
    assert_int_equal(blobs.n, 3); /* and nothing of the others behind it */
    assert_string_equal(blobs.last, "new");
    assert_int_equal(journal_end(j, number, 3, 200, NULL, 0), 0);
    wait_good(j, 1);
    assert_int_equal(journal_part(j, number, JOURNAL_HEAD, &part, NULL), 0);
    buf_clear(&part);
    assert_int_equal(journal_part(j, number, JOURNAL_BODY, &part, NULL), 0);
    assert_string_equal(part.data, "the body"); /* of the second copy */
    buf_free(&part);
    journal_close(j);
}

static void damage_is_moved_aside(void **state) {
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct journal *j = open_it();
        for (int i = 0; i < 50; i++) {
            char id[16];
            snprintf(id, sizeof(id), "%d-%d", round, i);
            ended_stream(j, id, 500);
        }
        journal_close(j);
        FILE *file = fopen(path, "r+");
        assert_non_null(file);
        if (round == 0) assert_int_equal(ftruncate(fileno(file), 4096 * 3 + 100), 0);
        if (round == 1) assert_int_equal(fwrite("not a database", 1, 14, file), 14);
        for (long at = 4096; round == 2 && at < 4096 * 8; at += 4096) {
            fseek(file, at, SEEK_SET);
            assert_int_equal(fwrite("\xff\xff\xff\xff\xff\xff\xff\xff", 1, 8, file), 8);
        }
        fclose(file);
        j = open_it();
        char id[16];
        snprintf(id, sizeof(id), "%d-1", round);
        check_begun_anew(j, id);
        journal_close(j);
        sleep(1); /* names of what was moved aside have seconds */
    }
}

/* What SQLite comes upon while it runs is gone with the next start, even if the check at the start does not see it. */
static void damage_met_while_running_is_moved_aside_later(void **state) {
    (void)state;
    static char bytes[3000];
    struct journal_stream stream;
    struct journal *j = open_it();
    uint64_t number = begin(j, "a", "one");
    for (uint64_t n = 1; n <= 400; n++) assert_int_equal(journal_event(j, number, n, bytes, sizeof(bytes)), 0);
    wait_good(j, 401);
    journal_close(j); /* all of it is in the file then */
    j = open_it();
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    for (long at = 4096 * 12; at < 4096 * 300; at += 4096) {
        fseek(file, at, SEEK_SET);
        assert_int_equal(fwrite("\xff\xff\xff\xff\xff\xff\xff\xff", 1, 8, file), 8);
    }
    fclose(file);
    struct blobs blobs = {0};
    assert_int_equal(journal_events(j, number, 1, count, &blobs, NULL), COHORT_E_FILE);
    journal_close(j);
    char mark[320];
    snprintf(mark, sizeof(mark), "%s.suspect", path);
    assert_int_equal(access(mark, F_OK), 0);
    j = open_it();
    assert_int_not_equal(access(mark, F_OK), 0);
    check_begun_anew(j, "a");
    number = begin(j, "b", "one");
    wait_good(j, 1);
    journal_close(j);
    j = open_it();
    assert_int_equal(journal_find(j, "b", "one", &stream, NULL), 0);
    journal_close(j);
}

static void a_mark_alone_moves_it_aside(void **state) {
    (void)state;
    struct journal *j = open_it();
    ended_stream(j, "a", 10);
    journal_close(j);
    char mark[320];
    snprintf(mark, sizeof(mark), "%s.suspect", path);
    fclose(fopen(mark, "w"));
    j = open_it();
    check_begun_anew(j, "a");
    journal_close(j);
}

/* What a file brings along is not run, and what it points at is not touched. */
static void hostile_files_are_not_used(void **state) {
    (void)state;
    static const char *const additions[] = {
        "CREATE TRIGGER t AFTER INSERT ON streams BEGIN DELETE FROM streams; END",
        "CREATE VIEW v AS SELECT * FROM streams",
        "CREATE TABLE more(x)",
        "DROP INDEX streams_ended; CREATE INDEX streams_ended ON streams(number)",
    };
    for (size_t i = 0; i < sizeof(additions) / sizeof(additions[0]); i++) {
        char id[8];
        snprintf(id, sizeof(id), "a%zu", i);
        struct journal *j = open_it();
        ended_stream(j, id, 10);
        journal_close(j);
        exec_sql(additions[i]);
        j = open_it();
        check_begun_anew(j, id);
        journal_close(j);
        sleep(1); /* names of what was moved aside have seconds */
    }
    char elsewhere[320];
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", dir);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    const struct journal_options options = {dir, 60, JOURNAL_BYTES_MAX, 10};
    struct journal *j;
    cohort_error error = {0};
    assert_int_equal(journal_open(&options, &j, &error), COHORT_E_IO);
    assert_string_equal(error.field, "state-dir");
}

static void a_newer_format_is_left_as_it_is(void **state) {
    (void)state;
    const struct journal_options options = {dir, 60, JOURNAL_BYTES_MAX, 10};
    struct journal *j;
    cohort_error error = {0};
    journal_close(open_it());
    exec_sql("PRAGMA journal_mode = DELETE; PRAGMA user_version = 7; CREATE TABLE more(x)");
    assert_int_equal(journal_open(&options, &j, &error), COHORT_E_UNSUPPORTED);
    FILE *file = fopen(path, "r");
    char head[20];
    assert_non_null(file);
    assert_int_equal(fread(head, 1, sizeof(head), file), sizeof(head));
    fclose(file);
    assert_int_equal(head[18], 1); /* no WAL */
}

static void others_files_and_folders_are_refused(void **state) {
    (void)state;
    struct journal_options options = {dir, 60, JOURNAL_BYTES_MAX, 10};
    struct journal *j = open_it(), *second;
    cohort_error error = {0};
    assert_int_equal(journal_open(&options, &second, &error), COHORT_E_BUSY);
    assert_non_null(strstr(error.text, "another server"));
    assert_null(second);
    journal_close(j);
    exec_sql("PRAGMA user_version = 7");
    assert_int_equal(journal_open(&options, &second, &error), COHORT_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "format 7"));
    exec_sql("PRAGMA user_version = 1");
    journal_close(open_it());
    options.dir = path; /* a file */
    assert_int_equal(journal_open(&options, &second, &error), COHORT_E_IO);
    assert_string_equal(error.field, "state-dir");
    options.dir = "/proc/nothing/here";
    assert_int_equal(journal_open(&options, &second, &error), COHORT_E_IO);
}

/* A file that may not grow is a disk that is full. */
static void a_full_disk_is_reported_and_passes(void **state) {
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    struct journal *j = open_it();
    struct blobs blobs;
    uint64_t number = begin(j, "a", "one");
    static char bytes[4096];
    wait_good(j, 1);
    struct rlimit before, tight = {.rlim_cur = 256 << 10};
    getrlimit(RLIMIT_FSIZE, &before);
    tight.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &tight);
    uint64_t n = 0, good = 0;
    int code = 0;
    while (!code && n < 1000) {
        assert_int_equal(journal_event(j, number, ++n, bytes, sizeof(bytes)), 0);
        code = wait_result(j).code;
        if (!code) good = n;
    }
    assert_int_equal(code, COHORT_E_IO);
    const struct journal_begin another = {"b", "one", "h", "b", 1, 1};
    uint64_t other;
    int refused = 0;
    for (int i = 0; i < 5; i++) { /* small ones may still find room */
        assert_int_equal(journal_begin(j, &another, &other), 0);
        refused += wait_result(j).code != 0;
    }
    assert_true(refused >= 4);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(events_of(j, number, &blobs), good);
    assert_int_equal(journal_event(j, number, n, bytes, sizeof(bytes)), 0);
    wait_good(j, 1);
    assert_int_equal(events_of(j, number, &blobs), n);
    journal_close(j);
}

/* ---- death ---- */

struct told {
    uint64_t number, events, notes;
    int ended;
};

/* Writes to several streams without end, and tells through the pipe what was reported as written. */
static void write_for_ever(int out, uint64_t seed) {
    struct journal *j = open_it();
    uint64_t number[STREAMS], events[STREAMS] = {0}, notes[STREAMS] = {0}, draw = 0;
    char id[32], bytes[200];
    for (int i = 0; i < STREAMS; i++) {
        snprintf(id, sizeof(id), "%llx-%d", (unsigned long long)seed, i);
        number[i] = begin(j, id, "one");
    }
    for (;;) {
        int i = (int)(rng_u64(seed, 0, draw++) % STREAMS);
        uint64_t what = rng_u64(seed, 1, draw) % 100;
        memset(bytes, 'a' + (int)((events[i] + notes[i]) % 26), sizeof(bytes));
        if (what < 50)
            journal_event(j, number[i], ++events[i], bytes, 1 + what);
        else if (what < 98)
            journal_note(j, number[i], ++notes[i], bytes, what, what == 97);
        else
            usleep(1000);
        struct journal_result r;
        while (journal_next_result(j, &r)) {
            struct told told = {r.number, r.kind == JOURNAL_EVENT ? r.n : 0, r.kind == JOURNAL_NOTE ? r.n : 0, 0};
            if (r.code || write(out, &told, sizeof(told)) != sizeof(told)) _exit(1);
        }
    }
}

static void everything_reported_survives_a_kill(void **state) {
    (void)state;
    uint64_t checked = 0;
    for (uint64_t round = 0; round < KILLS; round++) {
        int out[2];
        assert_int_equal(pipe(out), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(out[0]);
            write_for_ever(out[1], 1000 + round);
        }
        close(out[1]);
        if (round % 2) { /* else it may still be opening */
            struct pollfd told_some = {.fd = out[0], .events = POLLIN};
            assert_int_equal(poll(&told_some, 1, 20000), 1);
        }
        usleep((useconds_t)(rng_u64(7, 0, round) % 40000));
        kill(child, SIGKILL);
        struct told told, last[STREAMS] = {0};
        size_t n = 0;
        while (read(out[0], &told, sizeof(told)) == sizeof(told)) {
            size_t i = 0;
            while (i < n && last[i].number != told.number) i++;
            if (i == n) {
                assert_true(n < STREAMS);
                last[n++].number = told.number;
            }
            if (told.events) last[i].events = told.events;
            if (told.notes) last[i].notes = told.notes;
        }
        close(out[0]);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        struct journal *j = open_it();
        for (size_t i = 0; i < n; i++) {
            struct blobs blobs;
            assert_true(events_of(j, last[i].number, &blobs) >= last[i].events);
            blobs = (struct blobs){0};
            assert_int_equal(journal_notes(j, last[i].number, 1, count, &blobs, NULL), 0);
            assert_true(blobs.n >= last[i].notes);
            checked += last[i].events + last[i].notes;
            journal_remove(j, last[i].number);
        }
        journal_close(j);
    }
    assert_true(checked > 1000);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, journal_setup, journal_teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read),
        TEST(many_commands_share_a_commit),
        TEST(a_stream_with_a_gap_does_not_end),
        TEST(a_removed_stream_is_gone),
        TEST(ended_streams_are_kept_within_bounds),
        TEST(a_queue_has_an_end),
        TEST(one_command_may_be_larger_than_the_queue),
        TEST(flipped_bits_are_found),
        TEST(damage_is_moved_aside),
        TEST(damage_met_while_running_is_moved_aside_later),
        TEST(a_mark_alone_moves_it_aside),
        TEST(hostile_files_are_not_used),
        TEST(a_newer_format_is_left_as_it_is),
        TEST(others_files_and_folders_are_refused),
        TEST(a_full_disk_is_reported_and_passes),
        TEST(everything_reported_survives_a_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
