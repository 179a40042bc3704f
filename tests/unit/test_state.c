/* The state room: how a budget divides, and that arenas hold what is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "pages/pages.h"
#include "state/state.h"

/* The default model's shape: 3 full layers and 15 with a window of 512, one kv head of 256. */
static struct program gemma(void) {
    struct program p = {.n_groups = 2};
    p.groups[0] =
        (struct program_group){.window = 512, .layers = 15, .kv_heads = 1, .key_width = 256, .value_width = 256};
    p.groups[1] = (struct program_group){.window = 0, .layers = 3, .kv_heads = 1, .key_width = 256, .value_width = 256};
    return p;
}

static int plan_for(const struct program *p, uint64_t bytes, uint64_t tokens, uint32_t rows, uint32_t row_tokens,
                    uint32_t chunk, struct state_plan *out, cohort_error *err) {
    const struct state_wanted wanted = {
        .bytes = bytes, .tokens = tokens, .rows = rows, .row_tokens_max = row_tokens, .chunk_max = chunk};
    return state_plan_make(p, &wanted, out, err);
}

enum { WINDOWED_PAGE = 15 * 512 * 2 * 32, FULL_PAGE = 3 * 512 * 2 * 32 };

static void page_sizes(void **state) {
    (void)state;
    struct program p = gemma();
    assert_int_equal(backend_page_bytes(&p.groups[0]), WINDOWED_PAGE);
    assert_int_equal(backend_page_bytes(&p.groups[1]), FULL_PAGE);
}

static void tokens_make_pages(void **state) {
    (void)state;
    struct program p = gemma();
    struct state_plan plan;
    assert_int_equal(plan_for(&p, 0, 32 * 100 + 1, 4, 4096, 64, &plan, NULL), 0);
    assert_int_equal(plan.pages[1], 101);
    /* window - 1 + slack + 2 chunks = 671 positions touch at most 22 pages; four rows: 88 */
    assert_int_equal(plan.pages[0], 88);
    assert_int_equal(plan.bytes, 88 * (uint64_t)WINDOWED_PAGE + 101 * (uint64_t)FULL_PAGE);
    /* a small budget caps the window, too */
    assert_int_equal(plan_for(&p, 0, 64, 4, 4096, 64, &plan, NULL), 0);
    assert_int_equal(plan.pages[0], 2);
    assert_int_equal(plan.pages[1], 2);
}

static void snapshots_have_pages_of_their_own(void **state) {
    (void)state;
    struct program p = gemma();
    struct state_plan plan;
    const struct state_wanted wanted = {
        .tokens = 32 * 1000, .rows = 4, .row_tokens_max = 4096, .chunk_max = 64, .snapshots = 8};
    assert_int_equal(state_plan_make(&p, &wanted, &plan, NULL), 0);
    /* A snapshot: window - 1 + slack + one page = 575 positions touch at most 19 pages. */
    assert_int_equal(plan.pages[0], 88 + 8 * 19);
    assert_int_equal(plan.pages[1], 1000);
}

static void short_rows_need_no_window(void **state) {
    (void)state;
    struct program p = gemma();
    struct state_plan plan;
    assert_int_equal(plan_for(&p, 0, 1 << 20, 3, 100, 64, &plan, NULL), 0);
    assert_int_equal(plan.pages[0], 3 * 4); /* rows of 100 tokens: 4 pages each */
}

static void bytes_are_used_up(void **state) {
    (void)state;
    struct program p = gemma();
    for (uint64_t budget = WINDOWED_PAGE + FULL_PAGE; budget < UINT64_C(8) << 30; budget = budget * 3 / 2 + 12345) {
        struct state_plan plan;
        assert_int_equal(plan_for(&p, budget, 7, 4, 4096, 64, &plan, NULL), 0);
        assert_true(plan.bytes <= budget);
        uint64_t one_more = FULL_PAGE + (plan.pages[0] < 84 ? WINDOWED_PAGE : 0);
        assert_true(plan.bytes + one_more > budget);
        assert_int_equal(plan.bytes, plan.pages[0] * (uint64_t)WINDOWED_PAGE + plan.pages[1] * (uint64_t)FULL_PAGE);
        assert_int_equal(plan.pages[0], plan.pages[1] < 88 ? plan.pages[1] : 88);
    }
}

static void too_small_a_budget(void **state) {
    (void)state;
    struct program p = gemma();
    struct state_plan plan;
    cohort_error err;
    assert_int_equal(plan_for(&p, WINDOWED_PAGE + FULL_PAGE - 1, 0, 1, 4096, 64, &plan, &err), COHORT_E_CAPACITY);
    assert_non_null(strstr(err.text, "589823")); /* what was given, and what is needed */
    assert_non_null(strstr(err.text, "589824"));
    assert_int_equal(plan_for(&p, 0, 0, 1, 4096, 64, &plan, &err), COHORT_E_CAPACITY);
    assert_int_equal(plan_for(&p, 0, UINT64_MAX, 1, 4096, 64, &plan, &err), COHORT_E_CAPACITY);
}

static void huge_shapes_do_not_wrap(void **state) {
    (void)state;
    struct program p = {.n_groups = 1};
    p.groups[0] = (struct program_group){
        .window = 4096, .layers = 512, .kv_heads = 1 << 10, .key_width = 1 << 16, .value_width = 1 << 16};
    struct state_plan plan;
    assert_int_equal(plan_for(&p, UINT64_MAX, 0, UINT32_MAX, UINT32_MAX, UINT32_MAX, &plan, NULL), 0);
    assert_true(plan.pages[0] >= 1);
    struct state *s = NULL;
    assert_int_equal(state_new(&plan, &s, NULL), COHORT_E_MEMORY);
    assert_null(s);
}

static void pages_hold_and_copy(void **state) {
    (void)state;
    struct program p = gemma();
    struct state_plan plan;
    struct state *s;
    assert_int_equal(plan_for(&p, 0, 320, 2, 4096, 64, &plan, NULL), 0);
    assert_int_equal(state_new(&plan, &s, NULL), 0);
    char *arena = state_arena(s, 1);
    for (uint32_t page = 0; page < plan.pages[1]; page++) {
        assert_int_equal(arena[page * (size_t)FULL_PAGE], 0);
        memset(arena + page * (size_t)FULL_PAGE, (int)page + 1, FULL_PAGE);
    }
    state_copy(s, 1, 3, 7);
    for (uint32_t page = 0; page < plan.pages[1]; page++) {
        int expected = page == 7 ? 4 : (int)page + 1;
        assert_int_equal(arena[page * (size_t)FULL_PAGE], expected);
        assert_int_equal(arena[(page + 1) * (size_t)FULL_PAGE - 1], expected);
    }
    state_free(s);
    state_free(NULL);
}

static void failed_allocations(void **state) {
    (void)state;
    struct program p = gemma();
    struct state_plan plan;
    assert_int_equal(plan_for(&p, 0, 320, 2, 4096, 64, &plan, NULL), 0);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        struct state *s = NULL;
        cohort_error err;
        mem_fail_at(nth, 0);
        assert_int_equal(state_new(&plan, &s, &err), COHORT_E_MEMORY);
        mem_fail_at(0, 0);
        assert_null(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_sizes),
        cmocka_unit_test(tokens_make_pages),
        cmocka_unit_test(snapshots_have_pages_of_their_own),
        cmocka_unit_test(short_rows_need_no_window),
        cmocka_unit_test(bytes_are_used_up),
        cmocka_unit_test(too_small_a_budget),
        cmocka_unit_test(huge_shapes_do_not_wrap),
        cmocka_unit_test(pages_hold_and_copy),
        cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
