/* What `cohort top` makes of a server's metrics: the strict reader, differences, quantiles, the picture. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "cli/prom.h"
#include "cli/top_sample.h"
#include "cli/top_view.h"

/* ---- the format ---- */

/* The number of samples, or -1. The text lies at the end of its memory, so that a sanitizer sees a byte too many read.
 */
static int count(const char *text, size_t len, struct prom_sample *last) {
    char *copy = malloc(len ? len : 1);
    struct prom_sample sample;
    assert_non_null(copy);
    memcpy(copy, text, len);
    struct prom p = {copy, copy + len};
    int n = 0, more;
    while ((more = prom_next(&p, &sample)) == 1) {
        n++;
        *last = sample;
    }
    free(copy);
    return more < 0 ? -1 : n;
}

static void samples_are_read(void **state) {
    static const char text[] =
        "# HELP a b\n# TYPE a counter\n\n  a 1\nb{x=\"1\", y = \"q\\\"\\\\\\n}\" ,} 2.5e3 1234\nc +Inf\nd{} -4";
    struct prom p = {text, text + sizeof text - 1};
    struct prom_sample s;
    assert_int_equal(prom_next(&p, &s), 1);
    assert_string_equal(s.name, "a");
    assert_true(s.value == 1 && s.labels_n == 0);
    assert_int_equal(prom_next(&p, &s), 1);
    assert_true(s.value == 2500 && s.labels_n == 2);
    assert_string_equal(prom_label(&s, "x"), "1");
    assert_string_equal(prom_label(&s, "y"), "q\"\\\n}");
    assert_null(prom_label(&s, "z"));
    assert_int_equal(prom_next(&p, &s), 1);
    assert_true(isinf(s.value));
    assert_int_equal(prom_next(&p, &s), 1);
    assert_true(s.value == -4);
    assert_int_equal(prom_next(&p, &s), 0);
}

static void other_texts_are_not(void **state) {
    static const char *const wrong[] = {"<html>",
                                        "a",
                                        "a ",
                                        "a x",
                                        "a 1 x",
                                        "a 1 2 3",
                                        "1a 2",
                                        "a{ 1",
                                        "a{x} 1",
                                        "a{x=1} 1",
                                        "a{x=\"1} 1",
                                        "a{x=\"1\"y=\"2\"} 1",
                                        "a{x=\"\\t\"} 1",
                                        "a{,} 1",
                                        "a{x=\"1\n\"} 1",
                                        "{x=\"1\"} 1",
                                        "a-b 1",
                                        "a 0x 1",
                                        "a{x=\"1\"",
                                        "a{x=\"1\\",
                                        "a{x"};
    struct prom_sample s;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (count(wrong[i], strlen(wrong[i]), &s) >= 0) fail_msg("taken: %s", wrong[i]);
    assert_int_equal(count("a\0 1", 4, &s), -1);
    assert_int_equal(count("a{x=\"\0\"} 1", 10, &s), -1);
}

static void limits_hold(void **state) {
    struct prom_sample s;
    struct buf text = {0};
    for (int n = PROM_NAME_MAX; n <= PROM_NAME_MAX + 1; n++) {
        buf_clear(&text);
        assert_int_equal(buf_addf(&text, "n%0*d 1", n - 1, 0), 0);
        assert_int_equal(count(text.data, text.len, &s), n == PROM_NAME_MAX ? 1 : -1);
    }
    for (int n = PROM_LABELS_MAX; n <= PROM_LABELS_MAX + 1; n++) {
        buf_clear(&text);
        assert_int_equal(buf_adds(&text, "a{"), 0);
        for (int i = 0; i < n; i++) assert_int_equal(buf_adds(&text, "x=\"\","), 0);
        assert_int_equal(buf_adds(&text, "} 1"), 0);
        assert_int_equal(count(text.data, text.len, &s), n == PROM_LABELS_MAX ? 1 : -1);
    }
    for (int n = PROM_LABEL_MAX; n <= PROM_LABEL_MAX + 1; n++) {
        buf_clear(&text);
        assert_int_equal(buf_addf(&text, "a{x=\"%0*d\"} 1", n, 0), 0);
        assert_int_equal(count(text.data, text.len, &s), n == PROM_LABEL_MAX ? 1 : -1);
    }
    buf_free(&text);
    assert_int_equal(count("a 1000000000000000000000000000000000000000000000000000000000000000", 66, &s), -1);
}

/* ---- readings ---- */

#define METRICS                                                                                                        \
    "cohort_rows_running 3\ncohort_rows_preparing 1\ncohort_rows_waiting 2\ncohort_prompt_tokens_total 100\n"          \
    "cohort_generated_tokens_total 50\ncohort_iterations_total 10\ncohort_kv_pages 40\ncohort_kv_pages_used 10\n"      \
    "cohort_healthy 1\n"

static struct top_sample *sample(const char *text, double at_s) {
    static struct top_sample samples[4];
    static int next;
    struct top_sample *s = &samples[next++ % 4];
    assert_int_equal(top_read(text, strlen(text), at_s, s), 0);
    return s;
}

static int readable(const char *text) {
    static struct top_sample s;
    return top_read(text, strlen(text), 1, &s) == 0;
}

static void a_servers_metrics_are_told_from_others(void **state) {
    assert_true(readable(METRICS));
    assert_true(readable("go_threads{x=\"y\"} 3\n" METRICS "other_thing NaN\n"));
    assert_false(readable(""));
    assert_false(readable("go_threads 3\n"));
    assert_false(readable(METRICS "cohort_rows_running 4\n"));        /* twice */
    assert_false(readable(METRICS "cohort_preemptions_total NaN\n")); /* no number */
    assert_false(readable(METRICS "cohort_preemptions_total{a=\"b\"} 1\n"));
    assert_false(readable(METRICS "cohort_inter_token_seconds_bucket{le=\"0.1\"} 1\n")); /* no end */
    assert_false(readable(METRICS "cohort_inter_token_seconds_bucket{le=\"0.1\"} 2\n"
                                  "cohort_inter_token_seconds_bucket{le=\"+Inf\"} 1\n")); /* falls */
    assert_false(readable(METRICS "cohort_inter_token_seconds_bucket 2\n"));
}

static void rates_and_restarts(void **state) {
    const struct top_sample *a = sample(METRICS, 10);
    const struct top_sample *b =
        sample("cohort_rows_running 0\ncohort_rows_preparing 0\ncohort_rows_waiting 0\n"
               "cohort_prompt_tokens_total 160\ncohort_generated_tokens_total 51\n"
               "cohort_iterations_total 30\ncohort_kv_pages 40\ncohort_kv_pages_used 0\ncohort_healthy 1\n",
               12);
    assert_true(top_rate(a, b, TOP_PROMPT_TOKENS) == 30);
    assert_true(top_rate(a, b, TOP_GENERATED_TOKENS) == 0.5);
    assert_true(top_rate(a, a, TOP_ITERATIONS) == 0);
    assert_false(top_restarted(a, b));
    assert_false(top_restarted(a, a));
    assert_true(top_restarted(b, a));
}

static void near(double a, double b) {
    if (!(fabs(a - b) < 1e-9)) fail_msg("%g is not %g", a, b);
}

static void quantiles_are_of_what_came_between(void **state) {
    struct top_histogram from = {4, {0.1, 0.2, 0.5, INFINITY}, {5, 7, 7, 9}};
    struct top_histogram to = {4, {0.1, 0.2, 0.5, INFINITY}, {5, 17, 27, 29}}; /* 10 in (.1, .2], 10 in (.2, .5] */
    near(top_quantile(&from, &to, 0.25), 0.15);
    near(top_quantile(&from, &to, 0.5), 0.2);
    near(top_quantile(&from, &to, 0.75), 0.35);
    to.below[3] = 49; /* and 20 above all bounds */
    near(top_quantile(&from, &to, 0.99), 0.5);
    assert_true(isnan(top_quantile(&to, &to, 0.5)));
    struct top_histogram none = {0};
    assert_true(isnan(top_quantile(&none, &none, 0.5)));
    assert_true(isnan(top_quantile(&none, &to, 0.5)));
}

static void tenants_are_bounded_and_printable(void **state) {
    struct buf text = {0};
    assert_int_equal(
        buf_adds(&text, METRICS "cohort_tenant_rows{tenant=\"a\\nb\"} 1\ncohort_tenant_places{tenant=\"a\\nb\"} 3\n"),
        0);
    for (int i = 0; i < TOP_TENANTS_MAX + 5; i++)
        assert_int_equal(buf_addf(&text, "cohort_tenant_rows{tenant=\"t%d\"} %d\n", i, i), 0);
    const struct top_sample *s = sample(text.data, 1);
    assert_int_equal(s->tenants_n, TOP_TENANTS_MAX);
    assert_int_equal(s->tenants_left_out, 6);
    assert_string_equal(s->tenants[0].name, "a?b");
    assert_true(s->tenants[0].rows == 1 && s->tenants[0].places == 3);
    assert_string_equal(s->tenants[7].name, "t6");
    assert_true(s->tenants[7].rows == 6);
    buf_free(&text);
}

/* ---- the picture ---- */

static void has(const struct buf *picture, const char *what) {
    if (!strstr(picture->data, what)) fail_msg("no \"%s\" in:\n%s", what, picture->data);
}

static void the_store_is_shown(void **state) {
    struct buf picture = {0};
    struct top_view v = {.url = "x", .now = sample(METRICS, 1)};
    assert_int_equal(top_view(&v, &picture), 0); /* a server from before it had one */
    has(&picture, "store         0 % of prompt tokens came from it; 0 blocks (0 bytes), 0 sessions, 0 bytes on disk\n");
    const struct top_sample *a =
        sample(METRICS "cohort_cached_tokens_total 300\ncohort_cache_blocks 12\ncohort_cache_bytes 1572864\n"
                       "cohort_cache_sessions 2\ncohort_disk_bytes 1023\n",
               2);
    v = (struct top_view){.url = "x", .now = a, .last = a};
    buf_clear(&picture);
    assert_int_equal(top_view(&v, &picture), 0); /* nothing came: since its start */
    has(&picture,
        "store         75 % of prompt tokens came from it; 12 blocks (1.5 MiB), 2 sessions, 1023 bytes on disk\n");
    v.last = sample(METRICS "cohort_cached_tokens_total 200\n", 1);
    buf_clear(&picture);
    assert_int_equal(top_view(&v, &picture), 0);
    has(&picture, "store         100 % of prompt tokens came from it");
    buf_free(&picture);
}

static void the_picture_says_it_all(void **state) {
    static const char before[] =
        METRICS "cohort_step_forward_seconds_total 1\n"
                "cohort_inter_token_seconds_bucket{le=\"0.1\"} 1\n"
                "cohort_inter_token_seconds_bucket{le=\"+Inf\"} 1\n"
                "cohort_tenant_rows{tenant=\"red\"} 1\ncohort_tenant_places{tenant=\"red\"} 3\n"
                "cohort_tenant_prompt_tokens_total{tenant=\"red\"} 5\n";
    static const char after[] =
        "cohort_rows_running 3\ncohort_rows_preparing 1\ncohort_rows_waiting 2\ncohort_prompt_tokens_total 300\n"
        "cohort_generated_tokens_total 90\ncohort_iterations_total 20\ncohort_kv_pages 40\ncohort_kv_pages_used 10\n"
        "cohort_healthy 1\ncohort_step_forward_seconds_total 1.2\ncohort_preemptions_total "
        "4\ncohort_redone_tokens_total 99\n"
        "cohort_requests_refused_total 7\ncohort_inter_token_seconds_bucket{le=\"0.1\"} 11\n"
        "cohort_inter_token_seconds_bucket{le=\"+Inf\"} 11\ncohort_tenant_rows{tenant=\"red\"} 1\n"
        "cohort_tenant_places{tenant=\"red\"} 3\ncohort_tenant_prompt_tokens_total{tenant=\"red\"} 25\n";
    const struct top_sample *a = sample(before, 10), *b = sample(after, 12);
    struct top_view v = {.url = "http://h:1", .now = b, .last = a, .older = a};
    struct buf picture = {0};
    assert_int_equal(top_view(&v, &picture), 0);
    has(&picture, "http://h:1   healthy\n");
    has(&picture, "     3 running         1 preparing       2 waiting");
    has(&picture, "100.0 prompt       20.0 generated");
    has(&picture, "5.0 of build 0.0 ms, forward 20.0 ms");
    has(&picture, "[##########..............................] 25 %: 10 of 40 pages");
    has(&picture, "time between tokens  p50 50.0 ms      p99 99.0 ms");
    has(&picture, "time to first token  p50 -            p99 -");
    has(&picture, "4 preemptions (99 tokens redone), 7 refused, 0 timed out");
    has(&picture, "red                           1        2       10.0           0.0         0\n");

    buf_clear(&picture);
    v.trouble = "Connection refused";
    v.silent_s = 3;
    assert_int_equal(top_view(&v, &picture), 0);
    has(&picture, "NO ANSWER for 3 s: Connection refused; trying again\n");
    has(&picture, "3 running");

    buf_clear(&picture);
    v = (struct top_view){.url = "http://h:1", .trouble = "the server is loading its model"};
    assert_int_equal(top_view(&v, &picture), 0);
    assert_string_equal(picture.data, "cohort top   http://h:1   the server is loading its model\n");
    buf_free(&picture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_read),
        cmocka_unit_test(other_texts_are_not),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(a_servers_metrics_are_told_from_others),
        cmocka_unit_test(rates_and_restarts),
        cmocka_unit_test(quantiles_are_of_what_came_between),
        cmocka_unit_test(tenants_are_bounded_and_printable),
        cmocka_unit_test(the_picture_says_it_all),
        cmocka_unit_test(the_store_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
