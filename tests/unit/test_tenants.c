/* Token buckets, drain rates and places, with a clock of the test's own: exact values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/rate.h"
#include "engine/tenants.h"

static const uint64_t S = 1000000;

/* ---- buckets ---- */

static void a_bucket_holds_a_minute_and_fills_evenly(void **state) {
    struct rate_bucket b;
    rate_bucket_init(&b, 600, 5 * S);
    assert_int_equal(rate_bucket_tokens(&b, 5 * S), 600);
    assert_int_equal(rate_bucket_wait_us(&b, 5 * S), 0);
    rate_bucket_take(&b, 599, 5 * S);
    assert_int_equal(rate_bucket_wait_us(&b, 5 * S), 0); /* one is left */
    rate_bucket_take(&b, 1, 5 * S);
    assert_int_equal(rate_bucket_tokens(&b, 5 * S), 0);
    assert_int_equal(rate_bucket_wait_us(&b, 5 * S), 1); /* not above zero, but in a microsecond */
    assert_int_equal(rate_bucket_wait_us(&b, 5 * S + 1), 0);
    assert_int_equal(rate_bucket_tokens(&b, 5 * S + 99999), 0); /* ten a second: one each 100 ms */
    assert_int_equal(rate_bucket_tokens(&b, 5 * S + 100000), 1);
    assert_int_equal(rate_bucket_tokens(&b, 35 * S), 300);
    assert_int_equal(rate_bucket_tokens(&b, 65 * S), 600);
    assert_int_equal(rate_bucket_tokens(&b, 1000000 * S), 600); /* never more */
}

static void a_prompt_beyond_a_minute_makes_debt(void **state) {
    struct rate_bucket b;
    rate_bucket_init(&b, 60, 0);
    rate_bucket_take(&b, 1000, 0);
    assert_int_equal(rate_bucket_tokens(&b, 0), -940);
    assert_int_equal(rate_bucket_wait_us(&b, 0), 940 * S + 1);
    assert_int_equal(rate_bucket_wait_us(&b, 939 * S), S + 1);
    assert_int_equal(rate_bucket_wait_us(&b, 940 * S), 1);
    assert_int_equal(rate_bucket_wait_us(&b, 940 * S + 1), 0);
    rate_bucket_take(&b, 1, 940 * S + 500000); /* half a token was there */
    assert_int_equal(rate_bucket_tokens(&b, 940 * S + 500000), -1);
    assert_int_equal(rate_bucket_wait_us(&b, 940 * S + 500000), 500001);
}

static void buckets_stay_sane_at_their_ends(void **state) {
    struct rate_bucket b;
    rate_bucket_init(&b, 0, 0); /* no limit */
    rate_bucket_take(&b, UINT64_MAX, 0);
    assert_int_equal(rate_bucket_wait_us(&b, 0), 0);
    rate_bucket_init(&b, COHORT_TOKENS_PER_MINUTE_MAX, 100);
    for (int i = 0; i < 5; i++) rate_bucket_take(&b, UINT64_MAX, 100);
    uint64_t wait = rate_bucket_wait_us(&b, 100);
    assert_true(wait > 0);
    assert_int_equal(rate_bucket_wait_us(&b, 100 + wait), 0);
    assert_int_equal(rate_bucket_tokens(&b, UINT64_MAX), COHORT_TOKENS_PER_MINUTE_MAX);
    rate_bucket_init(&b, 60, 10 * S);
    rate_bucket_take(&b, 60, 9 * S); /* another thread's clock, a little behind: time does not run back */
    assert_int_equal(rate_bucket_wait_us(&b, 9 * S), 1);
    assert_int_equal(rate_bucket_tokens(&b, 11 * S), 1);
}

/* ---- drain ---- */

static void the_rate_is_the_last_ends_over_their_time(void **state) {
    struct rate_drain d = {0};
    uint64_t now = 100 * S;
    rate_drain_busy(&d, now);
    assert_int_equal(rate_drain_interval_us(&d, now), 0);
    assert_int_equal(rate_drain_interval_us(&d, now + 7 * S), 7 * S); /* none has ended yet */
    rate_drain_end(&d, now += 10 * S);
    assert_int_equal(rate_drain_interval_us(&d, now), 10 * S);
    rate_drain_end(&d, now += 2 * S);
    assert_int_equal(rate_drain_interval_us(&d, now), 6 * S);
    assert_int_equal(rate_drain_interval_us(&d, now + 8 * S), 10 * S); /* a stall shows */
    for (int i = 0; i < RATE_ENDS; i++) rate_drain_end(&d, now += S);
    assert_int_equal(rate_drain_interval_us(&d, now), S); /* what was before is forgotten */
    rate_drain_end(&d, now += 17 * S);
    assert_int_equal(rate_drain_interval_us(&d, now), 2 * S); /* 15 * 1 + 17 in 16 ends */
}

static void idle_time_does_not_count(void **state) {
    struct rate_drain d = {0};
    rate_drain_busy(&d, 0);
    rate_drain_end(&d, 3 * S);
    rate_drain_idle(&d, 3 * S);
    assert_int_equal(rate_drain_interval_us(&d, 3600 * S), 3 * S);
    rate_drain_busy(&d, 3600 * S);
    assert_int_equal(rate_drain_interval_us(&d, 3601 * S), 4 * S);
    rate_drain_end(&d, 3605 * S);
    assert_int_equal(rate_drain_interval_us(&d, 3605 * S), 4 * S); /* 8 s of work, two ends */
    assert_int_equal(rate_drain_interval_us(&d, 3604 * S), 3500000);
}

/* ---- tenants ---- */

static struct tenants *make(const cohort_tenant *list, size_t n, uint32_t rows, uint32_t queue) {
    struct tenants *t;
    cohort_error err = {0};
    if (tenants_new(list, n, rows, queue, 0, &t, &err) != 0) fail_msg("%s", err.text);
    return t;
}

static void enter(struct tenants *t, uint32_t tenant, uint64_t now) {
    cohort_error err = {0};
    if (tenants_enter(t, tenant, now, &err) != 0) fail_msg("%s", err.text);
}

static void assert_refused(struct tenants *t, uint32_t tenant, uint64_t now, const char *field, const char *text,
                           uint32_t retry_ms) {
    cohort_error err = {0};
    assert_int_equal(tenants_enter(t, tenant, now, &err), COHORT_E_BUSY);
    assert_int_equal(err.code, COHORT_E_BUSY);
    assert_string_equal(err.field, field);
    assert_string_equal(err.text, text);
    assert_int_equal(err.retry_after_ms, retry_ms);
}

static void all_places_are_bounded_as_before(void **state) {
    struct tenants *t = make(NULL, 0, 2, 1);
    const char *text = "all 3 places (2 rows and a line of 1) are taken";
    for (int i = 0; i < 3; i++) enter(t, 0, 0);
    assert_refused(t, 0, 0, "", text, 1000);          /* nothing is known: the least */
    assert_refused(t, 0, 90 * S, "", text, 90000);    /* it has been 90 s, it may be as long again */
    assert_refused(t, 0, 4000 * S, "", text, 300000); /* and at most this */
    tenants_leave(t, 0, TENANTS_UNUSED, 4000 * S);    /* says nothing about the rate */
    enter(t, 0, 4000 * S);
    assert_refused(t, 0, 4000 * S, "", text, 300000);
    tenants_leave(t, 0, TENANTS_WAITED, 4000 * S);
    for (int i = 0; i < 20; i++) {
        enter(t, 0, (4000 + 2 * (uint64_t)i) * S);
        tenants_leave(t, 0, TENANTS_WAITED, (4002 + 2 * (uint64_t)i) * S);
    }
    enter(t, 0, 4040 * S);
    assert_refused(t, 0, 4040 * S, "", text, 2000);
    assert_refused(t, 0, 4040 * S + 16, "", text, 2001); /* 2 s and a microsecond: rounded up */
    for (int i = 0; i < 3; i++) tenants_leave(t, 0, TENANTS_WAITED, 4041 * S);
    assert_int_equal(tenants_places(t), 0);
    tenants_free(t);
}

static void a_tenant_has_a_limit_of_its_own(void **state) {
    const cohort_tenant list[] = {{"small", 1, 0, 2, 0}, {"free", 1, 0, 0, 0}};
    struct tenants *t = make(list, 2, 2, 3);
    cohort_tenant_metrics m;
    cohort_error err = {0};
    enter(t, 0, 0);
    enter(t, 0, 0);
    assert_refused(t, 0, 5 * S, "queue", "all 2 places of \"small\" are taken", 5000);
    enter(t, 1, 5 * S); /* the other does not mind */
    tenants_leave(t, 1, TENANTS_WAITED, 6 * S);
    assert_refused(t, 0, 7 * S, "queue", "all 2 places of \"small\" are taken", 7000); /* its own rate counts */
    enter(t, 1, 7 * S);
    enter(t, 1, 7 * S);
    enter(t, 1, 7 * S);
    assert_refused(t, 1, 7 * S, "", "all 5 places (2 rows and a line of 3) are taken", 7000);
    assert_int_equal(tenants_metrics(t, 0, &m), 0);
    assert_string_equal(m.name, "small");
    assert_int_equal(m.places, 2);
    assert_int_equal(m.requests_refused, 2);
    assert_int_equal(tenants_metrics(t, 1, &m), 0);
    assert_int_equal(m.places, 3);
    assert_int_equal(m.requests_refused, 1);
    assert_int_equal(tenants_metrics(t, 2, &m), COHORT_E_NOT_FOUND);
    assert_int_equal(tenants_enter(t, 2, 0, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "tenant");
    assert_int_equal(tenants_enter(t, 1, 7 * S, NULL), COHORT_E_BUSY);
    tenants_free(t);
}

static void tokens_are_charged_and_waited_for(void **state) {
    const cohort_tenant list[] = {{"a", 1, 0, 1, 60}, {"b", 1, 0, 0, 0}};
    struct tenants *t = make(list, 2, 4, 4);
    cohort_tenant_metrics m;
    enter(t, 0, 0);
    tenants_submitted(t, 0, 100, 0); /* more than a minute's worth: it runs all the same */
    tenants_admitted(t, 0);
    assert_int_equal(tenants_metrics(t, 0, &m), 0);
    assert_int_equal(m.rows, 1);
    for (int i = 0; i < 20; i++) tenants_generated(t, 0, 1, S);
    tenants_leave(t, 0, TENANTS_RAN, 10 * S);
    /* 60 - 100 + 1 - 20 + 9 */
    assert_refused(t, 0, 10 * S, "tokens_per_minute", "\"a\" may use 60 tokens per minute and is 50 tokens over that",
                   50001);
    assert_refused(t, 0, 59 * S + 500000, "tokens_per_minute",
                   "\"a\" may use 60 tokens per minute and is 1 tokens over that", 501);
    assert_refused(t, 0, 60 * S, "tokens_per_minute", "\"a\" may use 60 tokens per minute and is 0 tokens over that",
                   1);
    enter(t, 0, 60 * S + 1);
    /* Two limits: the one that is in the way for longer. */
    tenants_submitted(t, 0, 3, 60 * S + 1);
    assert_refused(t, 0, 61 * S, "queue", "all 1 places of \"a\" are taken", 11000); /* 11 s of work, 1 end */
    tenants_submitted(t, 0, 60, 61 * S);
    assert_refused(t, 0, 61 * S, "tokens_per_minute", "\"a\" may use 60 tokens per minute and is 62 tokens over that",
                   62001);
    tenants_leave(t, 0, TENANTS_UNUSED, 61 * S);
    assert_int_equal(tenants_metrics(t, 0, &m), 0);
    assert_int_equal(m.places, 0);
    assert_int_equal(m.rows, 0);
    assert_int_equal(m.requests_submitted, 3);
    assert_int_equal(m.requests_refused, 5);
    assert_int_equal(m.prompt_tokens, 163);
    assert_int_equal(m.generated_tokens, 20);
    enter(t, 1, 61 * S); /* nobody else pays */
    tenants_free(t);
}

static void assert_bad(const cohort_tenant *list, size_t n, const char *part) {
    struct tenants *t;
    cohort_error err = {0};
    assert_int_equal(tenants_new(list, n, 1, 1, 0, &t, &err), COHORT_E_ARGUMENT);
    assert_null(t);
    assert_string_equal(err.field, "tenants");
    if (!strstr(err.text, part)) fail_msg("\"%s\" is not in \"%s\"", part, err.text);
}

static void lists_are_checked_and_copied(void **state) {
    static cohort_tenant many[COHORT_TENANTS_MAX + 1];
    static char names[COHORT_TENANTS_MAX + 1][COHORT_TENANT_NAME_MAX + 2];
    size_t n;
    cohort_tenant one = {"a", 1, 0, 0, 0};
    assert_bad(&one, 0, "0 tenants");
    assert_bad(NULL, 3, "tenants_n is 3");
    const char *bad[] = {NULL, "", "a b", "a\"b", "\xc3\xa4", "a/b"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        one.name = bad[i];
        assert_bad(&one, 1, "tenants[0].name");
    }
    memset(names[0], 'x', COHORT_TENANT_NAME_MAX + 1);
    one.name = names[0];
    assert_bad(&one, 1, "tenants[0].name");
    names[0][COHORT_TENANT_NAME_MAX] = '\0';
    tenants_free(make(&one, 1, 1, 1));
    one = (cohort_tenant){"a", 0, 0, 0, 0};
    assert_bad(&one, 1, "weight is 0; 1 to 1000");
    one.weight = COHORT_WEIGHT_MAX + 1;
    assert_bad(&one, 1, "weight is 1001");
    one = (cohort_tenant){"a", 1, 0, 0, (uint64_t)COHORT_TOKENS_PER_MINUTE_MAX + 1};
    assert_bad(&one, 1, "tokens_per_minute is 1000000001");
    const cohort_tenant twins[] = {{"a", 1, 0, 0, 0}, {"b", 1, 0, 0, 0}, {"a", 1, 0, 0, 0}};
    assert_bad(twins, 3, "tenants[2].name \"a\" is taken by tenants[0]");
    for (size_t i = 0; i <= COHORT_TENANTS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "t%zu", i);
        many[i] = (cohort_tenant){names[i], 1, 2, 3, 4};
    }
    assert_bad(many, COHORT_TENANTS_MAX + 1, "1025 tenants; 1 to 1024");
    struct tenants *t = make(many, COHORT_TENANTS_MAX, 1, 1);
    memset(names, '?', sizeof(names));
    const cohort_tenant *list = tenants_list(t, &n);
    assert_int_equal(n, COHORT_TENANTS_MAX);
    assert_string_equal(list[1023].name, "t1023");
    assert_int_equal(list[7].rows, 2);
    tenants_free(t);
    t = make(NULL, 0, 1, 1);
    list = tenants_list(t, &n);
    assert_int_equal(n, 1);
    assert_string_equal(list[0].name, "default");
    assert_int_equal(list[0].weight, 1);
    tenants_free(t);
}

static void each_allocation_may_fail(void **state) {
    struct tenants *t;
    cohort_error err = {0};
    for (uint64_t nth = 1; nth <= 4; nth++) {
        mem_fail_at(nth, 0);
        assert_int_equal(tenants_new(NULL, 0, 1, 1, 0, &t, &err), COHORT_E_MEMORY);
        assert_null(t);
    }
    mem_fail_at(0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_holds_a_minute_and_fills_evenly),
        cmocka_unit_test(a_prompt_beyond_a_minute_makes_debt),
        cmocka_unit_test(buckets_stay_sane_at_their_ends),
        cmocka_unit_test(the_rate_is_the_last_ends_over_their_time),
        cmocka_unit_test(idle_time_does_not_count),
        cmocka_unit_test(all_places_are_bounded_as_before),
        cmocka_unit_test(a_tenant_has_a_limit_of_its_own),
        cmocka_unit_test(tokens_are_charged_and_waited_for),
        cmocka_unit_test(lists_are_checked_and_copied),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
