/* Page ids: counts, free lists, bounds and the arithmetic of spans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "pages/pages.h"

static struct pages *pages_of(uint32_t a, uint32_t b) {
    struct pages *p;
    assert_int_equal(pages_new(&p, 2, (const uint32_t[]){a, b}, NULL), 0);
    return p;
}

static void every_page_is_given_once(void **state) {
    struct pages *p = pages_of(5, 3);
    int seen[5] = {0};
    for (int i = 0; i < 5; i++) {
        uint32_t page = pages_alloc(p, 0);
        assert_true(page < 5 && !seen[page]++);
        assert_int_equal(pages_count(p, 0, page), 1);
        assert_int_equal(pages_available(p, 0), 4 - i);
    }
    assert_int_equal(pages_alloc(p, 0), PAGE_NONE);
    assert_int_equal(pages_available(p, 1), 3); /* groups do not touch each other */
    assert_int_equal(pages_total(p, 0), 5);
    assert_true(pages_check(p));
    pages_free(p);
}

static void a_shared_page_is_free_after_its_last_owner(void **state) {
    struct pages *p = pages_of(1, 1);
    uint32_t page = pages_alloc(p, 0);
    pages_ref(p, 0, page);
    pages_ref(p, 0, page);
    assert_int_equal(pages_count(p, 0, page), 3);
    pages_unref(p, 0, page);
    pages_unref(p, 0, page);
    assert_int_equal(pages_available(p, 0), 0);
    assert_int_equal(pages_alloc(p, 0), PAGE_NONE);
    pages_unref(p, 0, page);
    assert_int_equal(pages_available(p, 0), 1);
    assert_int_equal(pages_alloc(p, 0), page);
    assert_true(pages_check(p));
    pages_free(p);
}

/* Against a plain array of counts. */
static void random_use_agrees_with_a_naive_model(void **state) {
    enum { TOTAL = 37 };
    struct pages *p = pages_of(TOTAL, 1);
    uint32_t count[TOTAL] = {0}, used = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t page = (uint32_t)(rng_u64(7, 0, i) % TOTAL);
        uint64_t what = rng_u64(7, 1, i) % 3;
        if (what == 0) {
            uint32_t got = pages_alloc(p, 0);
            assert_int_equal(got == PAGE_NONE, used == TOTAL);
            if (got != PAGE_NONE) {
                assert_int_equal(count[got], 0);
                count[got] = 1;
                used++;
            }
        } else if (what == 1 && count[page] > 0) {
            pages_ref(p, 0, page);
            count[page]++;
        } else if (count[page] > 0) {
            pages_unref(p, 0, page);
            used -= --count[page] == 0;
        }
        assert_int_equal(pages_available(p, 0), TOTAL - used);
        assert_true(pages_check(p));
    }
    for (uint32_t k = 0; k < TOTAL; k++) assert_int_equal(pages_count(p, 0, k), count[k]);
    pages_free(p);
}

static void bad_sizes_are_refused(void **state) {
    struct pages *p;
    cohort_error err;
    uint32_t totals[PAGES_GROUPS_MAX + 1] = {1, 1, 1, 1, 1};
    assert_int_equal(pages_new(&p, 0, totals, &err), COHORT_E_ARGUMENT);
    assert_int_equal(pages_new(&p, PAGES_GROUPS_MAX + 1, totals, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "groups");
    totals[1] = 0;
    assert_int_equal(pages_new(&p, 2, totals, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "totals");
    totals[1] = PAGES_TOTAL_MAX + 1;
    assert_int_equal(pages_new(&p, 2, totals, &err), COHORT_E_ARGUMENT);
    assert_null(p);
    pages_free(NULL);
}

static void every_failing_allocation_is_survived(void **state) {
    struct pages *p = NULL;
    int e = COHORT_E_MEMORY;
    for (uint64_t nth = 1; e != 0; nth++) {
        assert_true(nth < 10);
        mem_fail_at(nth, 0);
        e = pages_new(&p, 2, (const uint32_t[]){4, 4}, NULL);
        assert_true(e == 0 || (e == COHORT_E_MEMORY && p == NULL));
    }
    mem_fail_at(0, 0);
    pages_free(p);
}

/* The formulas against counting. */
static void worst_cases_are_exact(void **state) {
    for (uint32_t tokens = 1; tokens < 200; tokens++) {
        uint64_t most = 0;
        for (uint32_t from = 0; from < PAGE_TOKENS; from++) {
            uint64_t touched = (from + tokens - 1) / PAGE_TOKENS - from / PAGE_TOKENS + 1;
            if (touched > most) most = touched;
        }
        assert_int_equal(pages_touched(tokens), most);
    }
    assert_int_equal(pages_touched(0), 0);
    assert_int_equal(pages_worst(&(struct pages_shape){.window = 0}, 64, 999), 2);
    assert_int_equal(pages_worst(&(struct pages_shape){.window = 0}, 65, 0), 3);
    assert_int_equal(pages_worst(&(struct pages_shape){.window = 512}, 100, 256), 4); /* shorter than its window */
    assert_int_equal(pages_worst(&(struct pages_shape){.window = 512}, 1 << 20, 256),
                     26); /* 799 tokens, which may begin at a page's last position */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_is_given_once),
        cmocka_unit_test(a_shared_page_is_free_after_its_last_owner),
        cmocka_unit_test(random_use_agrees_with_a_naive_model),
        cmocka_unit_test(bad_sizes_are_refused),
        cmocka_unit_test(every_failing_allocation_is_survived),
        cmocka_unit_test(worst_cases_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
