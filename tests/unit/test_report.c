/* The step report's line: differences of two snapshots, over the time between them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/report.h"

static void o2_says_what_happened_between_two_snapshots(void **state) {
    cohort_metrics last = {.iterations = 100,
                           .prompt_tokens = 1000,
                           .generated_tokens = 500,
                           .preemptions = 3,
                           .step_build_us = 10,
                           .step_forward_us = 1000,
                           .step_deliver_us = 7,
                           .step_gap_us = 1};
    cohort_metrics now = {.iterations = 120,
                          .prompt_tokens = 1400,
                          .generated_tokens = 580,
                          .preemptions = 5,
                          .step_build_us = 2010,
                          .step_forward_us = 401000,
                          .step_deliver_us = 407,
                          .step_gap_us = 41,
                          .rows_running = 4,
                          .rows_preparing = 1,
                          .rows_waiting = 2,
                          .kv_pages_used = 30,
                          .kv_pages_total = 64};
    struct buf line = {0};
    assert_int_equal(report_line(&last, &now, 2.0, &line), 0);
    assert_string_equal(line.data, "rows 4 running, 1 preparing, 2 waiting; tokens/s 200.0 prompt, 40.0 generated; "
                                   "10.0 iterations/s of build 0.100, forward 20.000, deliver 0.020, gap 0.002 ms; "
                                   "state pages 30 of 64; preemptions 2");
    buf_clear(&line);
    now.cached_tokens = 1200; /* beside 400 that were read */
    assert_int_equal(report_line(&last, &now, 2.0, &line), 0);
    assert_non_null(strstr(line.data, " ms; 75 % of prompt tokens from the store; state pages"));
    buf_free(&line);
}

static void is_silent_while_nothing_runs(void **state) {
    cohort_metrics m = {.iterations = 100, .kv_pages_total = 64};
    struct buf line = {0};
    assert_int_equal(report_line(&m, &m, 1.0, &line), 0);
    assert_int_equal(line.len, 0);
    cohort_metrics waiting = m;
    waiting.rows_waiting = 1; /* stuck rows are worth a line, without a division by no iterations */
    assert_int_equal(report_line(&m, &waiting, 1.0, &line), 0);
    assert_non_null(strstr(line.data, "0.0 iterations/s of build 0.000"));
    buf_free(&line);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(o2_says_what_happened_between_two_snapshots),
        cmocka_unit_test(is_silent_while_nothing_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
