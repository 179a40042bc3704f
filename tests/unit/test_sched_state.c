/* The scheduler's rules on the state budget, on failure and on its own books; the letters in the names are the rules'
 * names in docs/SCHEDULER.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sched/sched.h"
#include "sched/sched_internal.h" /* to damage it on purpose */
#include "sched_rig.h"

/* ---- State budget ---- */

static void k3_a_row_is_admitted_when_its_worst_case_fits(void **state) {
    struct rig r = rig_of(config_of(8, 8, 64), 10, 1000);
    sched_row a = submit(&r, 100, 92), b = submit(&r, 60, 69), c = submit(&r, 4, 4); /* 6, 5 and 1 pages */
    step(&r);
    assert_state(&r, a, ROW_PREPARING);
    assert_state(&r, b, ROW_WAITING);
    assert_state(&r, c, ROW_WAITING); /* would fit, but nobody overtakes the head */
    while (sched_row_state(r.s, a) == ROW_PREPARING) step(&r);
    finish(&r, a);
    step(&r);
    assert_state(&r, b, ROW_RUNNING);
    assert_state(&r, c, ROW_RUNNING);
    rig_end(&r);
}

static void k3_what_an_ending_row_will_not_use_is_free_at_once(void **state) {
    struct rig r = rig_of(config_of(8, 8, 64), 10, 1000);
    sched_row a = submit(&r, 20, 300);
    const struct plan *p = plan(&r);
    sched_row b = submit(&r, 20, 200);
    finish(&r, a); /* holds one page of its ten until p is committed */
    const struct plan *q = plan(&r);
    assert_int_equal(tokens_of(q, b), 20);
    commit(&r, p);
    commit(&r, q);
    rig_end(&r);
}

static void k3_a_row_that_can_never_fit_is_refused_with_both_numbers(void **state) {
    struct rig r = rig_of(config_of(8, 8, 64), 10, 4);
    cohort_error err;
    sched_row a = reserve(&r);
    struct sched_request q = {.prompt_n = 300, .max_new = 21};
    assert_int_equal(sched_submit(r.s, a, &q, &err), COHORT_E_CAPACITY);
    assert_non_null(strstr(err.text, "need 11 pages"));
    assert_non_null(strstr(err.text, "has 10"));
    assert_state(&r, a, ROW_RESERVED);
    assert_int_equal(sched_fits(r.s, &q, &err), COHORT_E_CAPACITY); /* the same answer without a place */
    q.max_new = 20;
    assert_int_equal(sched_fits(r.s, &q, &err), 0);
    assert_int_equal(sched_submit(r.s, a, &q, &err), 0);
    rig_end(&r);

    r = rig_of(config_of(8, 8, 64), 100, 2); /* 65 tokens may touch three pages */
    a = reserve(&r);
    assert_int_equal(sched_submit(r.s, a, &q, &err), COHORT_E_CAPACITY);
    assert_non_null(strstr(err.text, "layer group 1"));
    q = (struct sched_request){.prompt_n = 60, .max_new = 4}; /* shorter than the window */
    assert_int_equal(sched_submit(r.s, a, &q, &err), 0);
    rig_end(&r);
}

static void k3_the_context_limits_a_row(void **state) {
    struct rig r = rig_wide(8, 8, 64);
    cohort_error err;
    sched_row a = reserve(&r);
    struct sched_request q = {.prompt_n = 4090, .max_new = 7};
    assert_int_equal(sched_submit(r.s, a, &q, &err), COHORT_E_CONTEXT);
    assert_non_null(strstr(err.text, "4090"));
    assert_non_null(strstr(err.text, "4096"));
    q.max_new = UINT32_MAX; /* no overflow */
    assert_int_equal(sched_submit(r.s, a, &q, &err), COHORT_E_CONTEXT);
    q = (struct sched_request){.prompt_n = 0, .max_new = 1};
    assert_int_equal(sched_submit(r.s, a, &q, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "prompt");
    q = (struct sched_request){.prompt_n = 1, .max_new = 0};
    assert_int_equal(sched_submit(r.s, a, &q, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "max_tokens");
    q.max_new = 4095;
    assert_int_equal(sched_submit(r.s, a, &q, &err), 0);
    assert_int_equal(sched_submit(r.s, a, &q, &err), COHORT_E_NOT_FOUND); /* once */
    assert_int_equal(sched_submit(r.s, a + (UINT64_C(1) << 32), &q, &err), COHORT_E_NOT_FOUND);
    assert_int_equal(sched_submit(r.s, UINT64_MAX, &q, &err), COHORT_E_NOT_FOUND);
    rig_end(&r);
}

/* A long row walks through a windowed pool that is much smaller than the row. */
static void k3_a_window_caps_what_a_row_holds(void **state) {
    enum { CHUNK = 32 };
    uint64_t worst = pages_worst(&(struct pages_shape){.window = 64}, 2000, 2 * CHUNK);
    struct rig r = rig_of(config_of(2, 2, CHUNK), 64, (uint32_t)worst);
    sched_row a = submit(&r, 1000, 1000);
    const struct plan *p = plan(&r);
    for (int k = 0; k < 1030; k++) { /* always two in flight */
        const struct plan *q = plan(&r);
        if (q == NULL) break;
        assert_true(pages_total(r.pages, 1) - pages_available(r.pages, 1) <= worst);
        commit(&r, p);
        p = q;
    }
    assert_int_equal(item_of(p, a)->sample_index, 999);
    commit(&r, p);
    assert_int_equal(pages_available(r.pages, 0), 64 - 63); /* 1999 tokens were computed */
    assert_int_equal(pages_available(r.pages, 1), worst - 4);
    rig_end(&r);
}

static void k3_a_small_pool_makes_chunks_smaller(void **state) {
    struct rig r =
        rig_of(config_of(2, 2, 256), 64, 5); /* a span of 129 tokens: 63 of the window, 32 behind it, twice 17 */
    sched_row a = submit(&r, 1000, 10);
    for (int k = 0; k < 1000 / 17; k++) assert_int_equal(tokens_of(step(&r), a), 17);
    assert_int_equal(tokens_of(step(&r), a), 1000 % 17);
    rig_end(&r);
}

static void a_page_behind_the_window_waits_for_the_last_plan_that_reads_it(void **state) {
    struct rig r = rig_wide(1, 1, 32);
    sched_row a = submit(&r, 1000, 10);
    for (int k = 0; k < 4; k++) step(&r); /* [0, 128) */
    const struct plan *p = plan(&r), *q = plan(&r);
    const uint32_t *table = item_of(p, a)->table[1];
    uint32_t first =
        table[1]; /* [32, 64): p's first token, 128, sees from 65 on, 32 before it are kept; q's 32 later */
    assert_int_equal(table[0], PAGE_NONE);
    assert_int_equal(pages_count(r.pages, 1, first), 1);
    commit(&r, p); /* q is planned since, but does not read it */
    assert_int_equal(pages_count(r.pages, 1, first), 0);
    assert_int_equal(pages_count(r.pages, 1, item_of(q, a)->table[1][2]), 1);
    commit(&r, q);
    rig_end(&r);
}

static void pages_are_taken_one_by_one(void **state) {
    struct rig r = rig_wide(1, 1, 32);
    submit(&r, 31, 100);
    step(&r);
    assert_int_equal(pages_available(r.pages, 0), 4095);
    step(&r); /* position 31 */
    assert_int_equal(pages_available(r.pages, 0), 4095);
    step(&r); /* position 32 */
    assert_int_equal(pages_available(r.pages, 0), 4094);
    rig_end(&r);
}

/* ---- Failure, sight, bounds ---- */

static void f2_the_rows_of_a_failed_iteration_go_and_the_rest_goes_on(void **state) {
    struct rig r = rig_wide(2, 4, 64);
    sched_row row[3];
    for (int i = 0; i < 3; i++) row[i] = submit(&r, 10, 10);
    const struct plan *p = plan(&r);
    for (uint32_t i = 0; i < p->n_items; i++) finish(&r, p->items[i].row);
    commit(&r, p);
    assert_int_equal(pop_gone(&r), row[0]);
    assert_int_equal(pop_gone(&r), row[1]);
    assert_int_equal(pop_gone(&r), 0);
    p = step(&r);
    assert_int_equal(p->n_items, 1);
    assert_int_equal(tokens_of(p, row[2]), 10);
    rig_end(&r);
}

static void admitted_rows_are_told_once_unless_gone(void **state) {
    struct rig r = rig_wide(4, 4, 64);
    sched_row a = submit(&r, 4, 4), b = submit(&r, 4, 4), c = submit(&r, 4, 4), row;
    assert_int_equal(sched_pop_admitted(r.s, &row), 0);
    step(&r);
    finish(&r, b);
    assert_int_equal(sched_pop_admitted(r.s, &row), 1);
    assert_int_equal(row, a);
    assert_int_equal(sched_pop_admitted(r.s, &row), 1);
    assert_int_equal(row, c);
    assert_int_equal(sched_pop_admitted(r.s, &row), 0);
    rig_end(&r);
}

static void counts_follow_the_states(void **state) {
    struct rig r = rig_wide(2, 8, 16);
    sched_row a = submit(&r, 8, 4);
    submit(&r, 100, 4);
    submit(&r, 8, 4);
    reserve(&r);
    const struct plan *p = plan(&r);
    struct sched_counts n;
    sched_get_counts(r.s, &n);
    assert_int_equal(n.reserved, 1);
    assert_int_equal(n.waiting, 1);
    assert_int_equal(n.preparing, 1);
    assert_int_equal(n.running, 1);
    assert_int_equal(n.in_flight, 1);
    commit(&r, p);
    p = plan(&r);
    finish(&r, a);
    sched_get_counts(r.s, &n);
    assert_int_equal(n.running, 0);
    assert_int_equal(n.ending, 1);
    commit(&r, p);
    sched_get_counts(r.s, &n);
    assert_int_equal(n.ending, 0);
    assert_int_equal(n.gone, 1);
    rig_end(&r);
}

static void configurations_out_of_bounds_are_refused(void **state) {
    struct pages *pages;
    assert_int_equal(pages_new(&pages, 2, (const uint32_t[]){8, 8}, NULL), 0);
    struct sched_config good = config_of(2, 2, 16);
    good.pages = pages;
    struct sched *s;
    cohort_error err;
    struct sched_config c;
#define REFUSED(change, name)                                                                                          \
    c = good;                                                                                                          \
    c.change;                                                                                                          \
    assert_int_equal(sched_new(&c, &s, &err), COHORT_E_ARGUMENT);                                                      \
    assert_string_equal(err.field, name);                                                                              \
    assert_null(s)
    REFUSED(rows_max = 0, "rows_max");
    REFUSED(rows_max = SCHED_ROWS_MAX + 1, "rows_max");
    REFUSED(queue_max = SCHED_QUEUE_MAX + 1, "queue_max");
    REFUSED(batch_tokens = SCHED_BATCH_MAX + 1, "batch_tokens");
    REFUSED(context_max = 0, "context_max");
    REFUSED(context_max = SCHED_CONTEXT_MAX + 1, "context_max");
    REFUSED(groups = 0, "groups");
    REFUSED(groups = PAGES_GROUPS_MAX + 1, "groups");
    REFUSED(pages = NULL, "pages");
#undef REFUSED
    sched_free(NULL);
    pages_free(pages);
}

static void every_failing_allocation_is_survived(void **state) {
    struct pages *pages;
    assert_int_equal(pages_new(&pages, 2, (const uint32_t[]){8, 8}, NULL), 0);
    struct sched_config c = config_of(2, 2, 16);
    c.pages = pages;
    struct sched *s = NULL;
    int e = COHORT_E_MEMORY;
    for (uint64_t nth = 1; e != 0; nth++) {
        assert_true(nth < 40);
        mem_fail_at(nth, 0);
        e = sched_new(&c, &s, NULL);
        assert_true(e == 0 || (e == COHORT_E_MEMORY && s == NULL));
    }
    mem_fail_at(0, 0);
    uint64_t before = mem_count();
    sched_row row;
    const struct plan *p;
    assert_int_equal(sched_reserve(s, &row), 0);
    assert_int_equal(sched_submit(s, row, &(struct sched_request){.prompt_n = 40, .max_new = 9}, NULL), 0);
    while (sched_plan(s, &p)) sched_commit(s, p, 0);
    assert_int_equal(mem_count(), before); /* nothing is allocated after sched_new */
    sched_free(s);
    pages_free(pages);
}

/* sched_check must be able to fail: damage of each kind is seen, and repaired it holds again. */
static void check_sees_damage(void **state) {
    struct rig r = rig_wide(4, 4, 32);
    sched_row a = submit(&r, 40, 10);
    submit(&r, 100, 10);
    step(&r);
    const struct plan *p = plan(&r);
    sched_row w = submit(&r, 4, 4), v = submit(&r, 4, 4);
    struct row *row = row_at(r.s, sched_row_index(a)), *x = row_at(r.s, sched_row_index(w)),
               *y = row_at(r.s, sched_row_index(v));
#define SEEN(place, wrong)                                                                                             \
    do {                                                                                                               \
        __typeof__(place) right = (place);                                                                             \
        (place) = (wrong);                                                                                             \
        assert_false(sched_check(r.s));                                                                                \
        (place) = right;                                                                                               \
        assert_true(sched_check(r.s));                                                                                 \
    } while (0)
    SEEN(row->generation, 0);
    SEEN(row->state, ROW_PREPARING);
    SEEN(row->in_flight, 0);
    SEEN(row->done, row->done + 1);
    SEEN(row->next, row->next + 1);
    SEEN(row->slot, row->slot + 1);
    SEEN(row->paused, 1);
    SEEN(row->span[0].end, row->span[0].end + 1);
    SEEN(row->span[0].first, row->span[0].first + 1);
    SEEN(row->span[0].claim, row->span[0].claim + 1);
    SEEN(row->grows, !row->grows);
    SEEN(row->spent, 1);
    SEEN(row->covered, 3);
    SEEN(row->load, 1);
    SEEN(row_table(r.s, row, 0)[0], row_table(r.s, row, 0)[1]);
    SEEN(r.s->claimed[1], r.s->claimed[1] - 1);
    SEEN(r.s->tenants[0].rows, 1);
    SEEN(r.s->tenants[0].waiting, 1);
    SEEN(r.s->tenants[0].root, NO_ROW);
    SEEN(r.s->present_first, NO_ROW);
    SEEN(r.s->state_n[ROW_WAITING], 7);
    SEEN(r.s->list[LIST_WAITING].n, 0);
    SEEN(r.s->list[LIST_FREE].first, r.s->list[LIST_WAITING].first);
    SEEN(r.s->slot_free_n, r.s->slot_free_n - 1);
    SEEN(r.s->slot_free[0], r.s->slot_free[1]);
    SEEN(x->link[LINK_PLACE].prev, sched_row_index(v));
    SEEN(x->chunk, 0);
    SEEN(y->submitted, 0); /* goes before its parent in the line */
    SEEN(y->heap.prev, NO_ROW);
    SEEN(r.s->plans[p->number % SCHED_IN_FLIGHT].n_tokens, 1);
    SEEN(p->items[0].pos, p->items[0].pos + 1);
    SEEN(p->items[0].source, PLAN_SAMPLE);
#undef SEEN
    pages_ref(r.pages, 1, row_table(r.s, row, 1)[0]);
    assert_false(sched_check(r.s));
    pages_unref(r.pages, 1, row_table(r.s, row, 1)[0]);
    assert_int_equal(pages_alloc(r.pages, 0) == PAGE_NONE, 0); /* a leaked page */
    assert_false(sched_check(r.s));
    for (uint32_t k = 0; k < 4096; k++)
        if (pages_count(r.pages, 0, k) == 1 && r.s->owners[0][k] == 0) pages_unref(r.pages, 0, k);
    assert_true(sched_check(r.s));
    commit(&r, p);
    rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k3_a_row_is_admitted_when_its_worst_case_fits),
        cmocka_unit_test(k3_what_an_ending_row_will_not_use_is_free_at_once),
        cmocka_unit_test(k3_a_row_that_can_never_fit_is_refused_with_both_numbers),
        cmocka_unit_test(k3_the_context_limits_a_row),
        cmocka_unit_test(k3_a_window_caps_what_a_row_holds),
        cmocka_unit_test(k3_a_small_pool_makes_chunks_smaller),
        cmocka_unit_test(a_page_behind_the_window_waits_for_the_last_plan_that_reads_it),
        cmocka_unit_test(pages_are_taken_one_by_one),
        cmocka_unit_test(f2_the_rows_of_a_failed_iteration_go_and_the_rest_goes_on),
        cmocka_unit_test(admitted_rows_are_told_once_unless_gone),
        cmocka_unit_test(counts_follow_the_states),
        cmocka_unit_test(configurations_out_of_bounds_are_refused),
        cmocka_unit_test(every_failing_allocation_is_survived),
        cmocka_unit_test(check_sees_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
