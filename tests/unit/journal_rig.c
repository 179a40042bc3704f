#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <poll.h>
#include <sqlite3.h>

#include "journal_rig.h"

char dir[256], path[300];

int journal_setup(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/cohort-journal-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/journal.db", dir);
    return 0;
}

int journal_teardown(void **state) {
    (void)state;
    char command[512];
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command);
}

struct journal *open_with(uint32_t keep_s, uint64_t bytes_max, uint32_t streams_max) {
    const struct journal_options options = {dir, keep_s, bytes_max, streams_max};
    struct journal *j;
    cohort_error error = {0};
    if (journal_open(&options, &j, &error) != 0) fail_msg("%s", error.text);
    return j;
}

struct journal *open_it(void) {
    return open_with(3600, JOURNAL_BYTES_MAX, JOURNAL_STREAMS_MAX);
}

struct journal_result wait_result(struct journal *j) {
    struct journal_result result;
    struct pollfd readable = {.fd = journal_fd(j), .events = POLLIN};
    while (!journal_next_result(j, &result)) assert_int_equal(poll(&readable, 1, 20000), 1);
    return result;
}

/* Takes `n` results, which must be good. */
void wait_good(struct journal *j, int n) {
    while (n-- > 0) assert_int_equal(wait_result(j).code, 0);
}

uint64_t begin(struct journal *j, const char *id, const char *owner) {
    const struct journal_begin stream = {id, owner, "head", "the body", 4, 8};
    uint64_t number = 0;
    assert_int_equal(journal_begin(j, &stream, &number), 0);
    assert_true(number > 0);
    return number;
}

void exec_sql(const char *sql) {
    sqlite3 *db;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) fail_msg("%s: %s", sql, why);
    sqlite3_close(db);
}

void forget_begun(void) {
    char begun[320];
    snprintf(begun, sizeof(begun), "%s/journal.begun", dir);
    assert_int_equal(unlink(begun), 0);
}
