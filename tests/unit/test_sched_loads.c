/* S7, T2: rows that wait for copies of their state, and rows that go on behind tokens that are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/sched_internal.h"
#include "sched_texts.h"

/* ---- S7 ---- */

/* The first n tokens of a text are known from their copies only. */
static prefix_block restore(struct rig *r, uint32_t text, uint32_t n) {
    prefix_block block = 0;
    for (uint32_t at = 0; at < n; at += PAGE_TOKENS) {
        int32_t tokens[PAGE_TOKENS];
        for (uint32_t k = 0; k < PAGE_TOKENS; k++) tokens[k] = (int32_t)(text * 10000 + at + k);
        block = prefix_restore(r->prefix, 7, block, tokens, sched_min(PAGE_TOKENS, n - at), at + 1, 3);
        assert_int_not_equal(block, 0);
    }
    return block;
}

static void loaded(struct rig *r, sched_row row, int ok) {
    sched_loaded(r->s, row, ok);
    assert_true(sched_check(r->s));
}

static void s7_a_load_is_waited_for(void **state) {
    struct rig r = rig_full(4, 64);
    restore(&r, 1, 330);
    sched_row row = submit_new(&r, (struct prompt){1, 330, 2, 400}, 4),
              other = submit_new(&r, (struct prompt){3, 40, 3, 40}, 90);
    const struct plan *p = begin(&r);
    assert_int_equal(tokens_of(p, row), 0);
    assert_int_equal(tokens_of(p, other), 40);
    assert_int_equal(seen.loads, 1);
    assert_int_equal(seen.load.row, row);
    assert_int_equal(seen.load.n, 11);
    for (uint32_t k = 0; k < 11; k++) { /* from the last to the first */
        struct prefix_view view;
        assert_int_equal(seen.blocks[k].groups, 3);
        assert_true(prefix_get(r.prefix, seen.blocks[k].block, &view));
        assert_int_equal(view.where, view.index * PAGE_TOKENS + 1);
        for (uint32_t g = 0; g < 2; g++) assert_int_equal(seen.blocks[k].page[g], table(&r, row, g)[view.index]);
    }
    assert_int_equal(counts(&r).loading, 1);
    end(&r, p);
    assert_int_equal(tokens_of(turn(&r), row), 0);
    assert_int_equal(seen.loads, 0); /* told once */
    assert_int_equal(cached(&r, row), 0);
    loaded(&r, row, 1);
    assert_int_equal(cached(&r, row), 330);
    assert_int_equal(store(&r).resident, 10 + 1); /* the cut one is the row's; one is of the other row */
    assert_int_equal(item_of(turn(&r), row)->pos, 330);
    finish(&r, other);
    run(&r, row);
    rig_end(&r);
}

static void s7_only_what_is_missing_is_loaded(void **state) {
    struct rig r = rig_storing(4, 64, 1000, WINDOW);
    run_new(&r, (struct prompt){1, 96, 1, 96}, 1);
    struct prefix_match m;
    int32_t tokens[320];
    for (int32_t k = 0; k < 320; k++) tokens[k] = 10000 + k;
    prefix_find(r.prefix, 7, tokens, 96, &m);
    assert_int_equal(m.tokens, 96);
    prefix_block block = m.block;
    for (uint32_t at = 96; at < 320; at += PAGE_TOKENS)
        block = prefix_restore(r.prefix, 7, block, tokens + at, PAGE_TOKENS, at, 3);
    sched_row row = submit_new(&r, (struct prompt){1, 320, 2, 400}, 4);
    begin(&r);
    assert_int_equal(seen.loads, 1);
    assert_int_equal(seen.load.n, 7);
    for (uint32_t k = 0; k < 7; k++) /* of the window: the blocks of positions 257 to 319 */
        assert_int_equal(seen.blocks[k].groups, k < 2 ? 3 : 1);
    loaded(&r, row, 1);
    assert_int_equal(item_of(turn(&r), row)->pos, 320);
    run(&r, row);
    rig_end(&r);
}

static void s7_a_load_that_failed_is_read_instead(void **state) {
    struct rig r = rig_full(4, 64);
    run_new(&r, (struct prompt){1, 64, 1, 64}, 1);
    struct prefix_match m;
    int32_t tokens[320];
    for (int32_t k = 0; k < 320; k++) tokens[k] = 10000 + k;
    prefix_find(r.prefix, 7, tokens, 64, &m);
    prefix_block block = m.block;
    for (uint32_t at = 64; at < 320; at += PAGE_TOKENS)
        block = prefix_restore(r.prefix, 7, block, tokens + at, PAGE_TOKENS, at, 3);
    sched_row row = submit_new(&r, (struct prompt){1, 320, 2, 400}, 4);
    begin(&r);
    assert_int_equal(seen.load.n, 8);
    prefix_forget_where(r.prefix, seen.blocks[0].block);
    loaded(&r, row, 0);
    const struct plan_item *item = item_of(begin(&r), row); /* other copies are there, but it takes none again */
    assert_int_equal(seen.loads, 0);
    assert_int_equal(item->pos, 64);
    end(&r, plan_at(r.s, r.s->planned));
    run(&r, row);
    rig_end(&r);
}

static void s7_a_row_that_ends_while_it_loads(void **state) {
    for (int ok = 0; ok < 2; ok++) {
        struct rig r = rig_full(4, 64);
        restore(&r, 1, 320);
        sched_row row = submit_new(&r, (struct prompt){1, 320, 2, 400}, 4);
        begin(&r);
        finish(&r, row);
        assert_state(&r, row, ROW_ENDING);
        assert_int_equal(pop_gone(&r), 0);
        assert_int_equal(prefix_used(r.prefix, 0), 10); /* somebody writes to them */
        loaded(&r, row, ok);
        assert_int_equal(pop_gone(&r), row);
        assert_int_equal(store(&r).resident, ok ? 10 : 0);
        loaded(&r, row, 1); /* a stranger */
        rig_end(&r);
    }
}

static void s7_a_load_that_nobody_was_told_of_ends_at_once(void **state) {
    struct rig r = rig_full(4, 64);
    restore(&r, 1, 320);
    sched_row row = submit_new(&r, (struct prompt){1, 320, 2, 400}, 4);
    plan(&r);
    finish(&r, row);
    assert_int_equal(pop_gone(&r), row);
    collect(&r);
    assert_int_equal(seen.loads, 0);
    rig_end(&r);
}

/* Its pages and its tables are not free before the load is over, so it still counts as one of the rows. */
static void s7_rows_that_end_while_they_load_are_bounded(void **state) {
    struct rig r = rig_full(2, 64);
    restore(&r, 1, 320);
    restore(&r, 2, 320);
    sched_row row[3];
    for (uint32_t k = 0; k < 2; k++) row[k] = submit_new(&r, (struct prompt){1 + k, 320, 9, 400}, 4);
    begin(&r);
    assert_int_equal(counts(&r).loading, 2);
    for (uint32_t k = 0; k < 2; k++) finish(&r, row[k]);
    row[2] = submit_new(&r, (struct prompt){3, 40, 3, 40}, 4);
    assert_null(begin(&r));
    assert_state(&r, row[2], ROW_WAITING);
    loaded(&r, row[0], 1);
    assert_non_null(turn(&r));
    assert_state(&r, row[2], ROW_RUNNING);
    loaded(&r, row[1], 1);
    rig_end(&r);
}

static void s7_others_follow_a_load(void **state) {
    for (int ok = 0; ok < 2; ok++) {
        struct rig r = rig_full(4, 64);
        prefix_block last = restore(&r, 1, 320);
        sched_row a = submit_new(&r, (struct prompt){1, 320, 2, 400}, 4),
                  b = submit_new(&r, (struct prompt){1, 320, 3, 400}, 4);
        begin(&r);
        assert_int_equal(seen.loads, 1);
        assert_int_equal(counts(&r).loading, 1);
        assert_int_equal(counts(&r).following, 1);
        if (!ok) prefix_forget_where(r.prefix, last);
        loaded(&r, a, ok);
        turn(&r);
        assert_int_equal(counts(&r).following, !ok); /* it reads, and is still followed */
        while (counts(&r).running < 2) turn(&r);
        assert_int_equal(cached(&r, a), ok ? 320 : 0);
        assert_int_equal(cached(&r, b), 320);
        rig_end(&r);
    }
}

static void s7_a_row_that_loads_is_not_preempted(void **state) {
    struct rig r = rig_storing(2, 64, 20, 0);
    restore(&r, 1, 320);
    sched_row a = submit_new(&r, (struct prompt){2, 20, 2, 20}, 500),
              b = submit_new(&r, (struct prompt){1, 320, 3, 330}, 4);
    begin(&r);
    assert_int_equal(counts(&r).loading, 1);
    end(&r, plan_at(r.s, r.s->planned));
    uint32_t n = 0;
    for (const struct plan *p; (p = turn(&r)) != NULL; n++) continue; /* a has no room any more and waits */
    assert_true(n > 200);
    assert_int_equal(counts(&r).preemptions, 0);
    loaded(&r, b, 1);
    turn(&r);
    assert_int_equal(counts(&r).preemptions, 1);
    assert_state(&r, b, ROW_WAITING);
    assert_state(&r, a, ROW_RUNNING);
    rig_end(&r);
}

/* A row that loads pins blocks whose pages it does not hold. What others put there meanwhile can be taken back. */
static void s7_pinned_blocks_do_not_hold_idle_pages(void **state) {
    struct rig r = rig_storing(3, 512, 26, 0);
    restore(&r, 1, 320);
    sched_row a = submit_new(&r, (struct prompt){1, 320, 2, 330}, 10);
    begin(&r);
    assert_int_equal(counts(&r).loading, 1);
    sched_row b = submit_text(&r, (struct prompt){1, 320, 1, 320}, (struct sched_request){.all_outputs = 1});
    while (sched_row_state(r.s, b) != ROW_RUNNING) turn(&r);
    finish(&r, b); /* its pages are in the blocks that a loads */
    assert_int_equal(store(&r).idle[0], 10);
    sched_row c = submit_new(&r, (struct prompt){4, 479, 4, 479}, 1);
    assert_int_equal(tokens_of(turn(&r), c), 479);
    loaded(&r, a, 1);
    finish(&r, c);
    run(&r, a);
    rig_end(&r);
}

/* ---- T2 ---- */

static void t2_a_resumed_row_goes_on_with_its_next_token(void **state) {
    struct rig r = rig_full(4, 64);
    sched_row row =
        submit_text(&r, (struct prompt){1, 50, 2, 60}, (struct sched_request){.max_new = 20, .resumed = 10});
    const struct plan_item *item = item_of(begin(&r), row);
    assert_int_equal(item->pos, 0);
    assert_int_equal(item->n_tokens, 60);
    assert_int_equal(item->source, PLAN_PROMPT);
    assert_int_equal(item->n_outputs, 1);
    assert_true(item->samples);
    assert_int_equal(item->sample_index, 10);
    end(&r, plan_at(r.s, r.s->planned));
    item = item_of(begin(&r), row);
    assert_int_equal(item->pos, 60);
    assert_int_equal(item->sample_index, 11);
    end(&r, plan_at(r.s, r.s->planned));
    run(&r, row);
    assert_int_equal(texts[sched_row_index(row)].n, 70);
    rig_end(&r);
}

static void t2_a_resumed_row_finds_what_it_left(void **state) {
    struct rig r = rig_full(4, 64);
    sched_row row = submit_new(&r, (struct prompt){1, 50, 1, 50}, 20);
    for (uint32_t k = 0; k < 11; k++) turn(&r);
    finish(&r, row); /* 11 tokens made, 10 fed */
    pop_gone(&r);
    row = submit_text(&r, (struct prompt){1, 50, 1, 50}, (struct sched_request){.max_new = 20});
    uint32_t i = sched_row_index(row);
    finish(&r, row);
    pop_gone(&r);
    row = reserve(&r);
    assert_int_equal(sched_row_index(row), i);
    for (uint32_t k = 50; k < 61; k++) texts[i].tokens[k] = 1000000 + (int32_t)k;
    texts[i].n = 61;
    struct sched_request q = {.prompt_n = 50, .max_new = 20, .resumed = 11, .space = 7};
    assert_int_equal(sched_submit(r.s, row, &q, NULL), 0);
    const struct plan_item *item = item_of(begin(&r), row);
    assert_int_equal(item->pos, 60);
    assert_int_equal(item->n_tokens, 1);
    assert_int_equal(item->sample_index, 11);
    end(&r, plan_at(r.s, r.s->planned));
    rig_end(&r);
}

/* Its last token is known, but the next was not made yet. */
static void t2_a_resumed_row_is_preempted_before_it_went_on(void **state) {
    struct rig r = rig_full(1, 32);
    sched_row row =
        submit_text(&r, (struct prompt){1, 50, 2, 60}, (struct sched_request){.max_new = 20, .resumed = 10});
    turn(&r);
    sched_pause(r.s, row, 1);
    sched_row other = submit_new(&r, (struct prompt){9, 20, 9, 20}, 2);
    turn(&r);
    assert_state(&r, row, ROW_WAITING);
    sched_pause(r.s, row, 0);
    run(&r, other);
    const struct plan_item *item = item_of(begin(&r), row);
    assert_int_equal(item->pos, 32);
    assert_int_equal(item->n_tokens, 28);
    assert_true(item->samples);
    assert_int_equal(item->sample_index, 10);
    end(&r, plan_at(r.s, r.s->planned));
    rig_end(&r);
}

static void t2_what_cannot_be_resumed(void **state) {
    struct rig r = rig_full(4, 64);
    cohort_error err;
    struct sched_request q = {.prompt_n = 10, .max_new = 5, .resumed = 5};
    assert_int_equal(sched_fits(r.s, &q, &err), COHORT_E_ARGUMENT);
    q = (struct sched_request){.prompt_n = 10, .max_new = 5, .resumed = 4, .all_outputs = 1};
    assert_int_equal(sched_fits(r.s, &q, &err), COHORT_E_ARGUMENT);
    q = (struct sched_request){.prompt_n = 10, .max_new = 5, .resumed = 4, .weight = 17};
    assert_int_equal(sched_fits(r.s, &q, &err), COHORT_E_ARGUMENT);
    q = (struct sched_request){.prompt_n = 10, .max_new = 5, .resumed = 4, .weight = 16};
    assert_int_equal(sched_fits(r.s, &q, &err), 0);
    rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(s7_a_load_is_waited_for),
        cmocka_unit_test(s7_only_what_is_missing_is_loaded),
        cmocka_unit_test(s7_a_load_that_failed_is_read_instead),
        cmocka_unit_test(s7_a_row_that_ends_while_it_loads),
        cmocka_unit_test(s7_a_load_that_nobody_was_told_of_ends_at_once),
        cmocka_unit_test(s7_rows_that_end_while_they_load_are_bounded),
        cmocka_unit_test(s7_others_follow_a_load),
        cmocka_unit_test(s7_a_row_that_loads_is_not_preempted),
        cmocka_unit_test(s7_pinned_blocks_do_not_hold_idle_pages),
        cmocka_unit_test(t2_a_resumed_row_goes_on_with_its_next_token),
        cmocka_unit_test(t2_a_resumed_row_finds_what_it_left),
        cmocka_unit_test(t2_a_resumed_row_is_preempted_before_it_went_on),
        cmocka_unit_test(t2_what_cannot_be_resumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
