/* S1 - S6, S8, P7: what rows take from the prefix store, leave there and lend each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/sched_internal.h"
#include "sched_texts.h"

/* Where it began. */
static uint32_t warm(struct rig *r, struct prompt p) {
    sched_row row = submit_new(r, p, 2);
    const struct plan_item *item = item_of(begin(r), row);
    uint32_t pos = item->pos;
    end(r, plan_at(r->s, r->s->planned));
    run(r, row);
    while (pop_gone(r) != 0) continue;
    return pos;
}

/* ---- S1 ---- */

static void s1_cold_then_warm(void **state) {
    struct rig r = rig_full(4, 256);
    assert_int_equal(run_new(&r, (struct prompt){1, 100, 1, 100}, 4), 100);
    /* 100 + 3 fed tokens are stored; the next turn has the answer, too */
    sched_row row = submit_new(&r, (struct prompt){1, 100, 2, 150}, 4);
    const struct plan_item *item = item_of(begin(&r), row);
    assert_int_equal(item->pos, 100);
    assert_int_equal(item->n_tokens, 50);
    assert_int_equal(item->sample_index, 0);
    assert_int_equal(cached(&r, row), 100);
    assert_int_equal(counts(&r).cached, 100);
    end(&r, plan_at(r.s, r.s->planned));
    run(&r, row);
    rig_end(&r);
}

static void s1_an_exact_repeat_computes_one_token(void **state) {
    for (uint32_t n = 31; n <= 98; n++) {
        struct rig r = rig_full(4, 256);
        assert_int_equal(run_new(&r, (struct prompt){1, n, 1, n}, 2), n);
        uint32_t stored = n + 1 >= 32; /* at least a page in all */
        assert_int_equal(run_new(&r, (struct prompt){1, n, 1, n}, 2), stored ? 1 : n);
        assert_int_equal(run_new(&r, (struct prompt){1, n, 1, n}, 2), stored ? 1 : n);
        rig_end(&r);
    }
}

static void s1_one_token_is_nothing_to_take(void **state) {
    struct rig r = rig_full(4, 256);
    run_new(&r, (struct prompt){1, 40, 1, 40}, 2);
    assert_int_equal(run_new(&r, (struct prompt){1, 1, 1, 1}, 2), 1);
    rig_end(&r);
}

static void s1_a_cut_inside_a_block_is_one_copy(void **state) {
    struct rig r = rig_full(4, 256);
    run_new(&r, (struct prompt){1, 100, 1, 100}, 4);
    sched_row row = submit_new(&r, (struct prompt){1, 70, 2, 100}, 4);
    const struct plan_item *item = item_of(begin(&r), row);
    assert_int_equal(item->pos, 70);
    assert_int_equal(seen.copies, 2); /* one in each group */
    for (uint32_t g = 0; g < 2; g++) {
        assert_int_equal(seen.copy[g].group, g);
        assert_int_equal(seen.copy[g].to, item->table[g][2]);
        assert_int_not_equal(seen.copy[g].from, seen.copy[g].to);
        assert_int_equal(prefix_rows_of(r.prefix, g, seen.copy[g].from), 0);
        assert_int_equal(pages_count(r.pages, g, item->table[g][1]), 2); /* the store and the row */
        assert_int_equal(pages_count(r.pages, g, item->table[g][2]), 1);
    }
    end(&r, plan_at(r.s, r.s->planned));
    assert_int_equal(seen.copies, 2);
    turn(&r);
    assert_int_equal(seen.copies, 0);
    run(&r, row);
    rig_end(&r);
}

static void s1_whole_blocks_need_no_copy(void **state) {
    struct rig r = rig_full(4, 256);
    run_new(&r, (struct prompt){1, 100, 1, 100}, 4);
    sched_row row = submit_new(&r, (struct prompt){1, 64, 2, 100}, 4);
    assert_int_equal(item_of(begin(&r), row)->pos, 64);
    assert_int_equal(seen.copies, 0);
    end(&r, plan_at(r.s, r.s->planned));
    run(&r, row);
    rig_end(&r);
}

/* The ring of copies is full, so a whole block is wanted. What can be found instead ends inside one, too: of the blocks
 * that the window of the whole one needs the row that lives has let go. */
static void s1_a_cut_that_cannot_be_copied_is_not_taken(void **state) {
    struct rig r = rig_storing(2, 256, 1000, 34);
    run_new(&r, (struct prompt){1, 50, 2, 60}, 1);
    run_new(&r, (struct prompt){3, 100, 3, 100}, 1);
    for (uint32_t k = 0; k < 8; k++) { /* nobody makes the copies */
        sched_row row = submit_new(&r, (struct prompt){3, 100, 3, 100}, 1);
        const struct plan *p = plan(&r);
        assert_int_equal(item_of(p, row)->pos, 99);
        end(&r, p);
        finish(&r, row);
        assert_int_equal(pop_gone(&r), row);
    }
    sched_row living = submit_new(&r, (struct prompt){1, 140, 1, 140}, 20);
    end(&r, plan(&r));
    assert_state(&r, living, ROW_RUNNING);
    sched_row row = submit_new(&r, (struct prompt){1, 120, 4, 140}, 1);
    const struct plan *p = plan(&r);
    assert_int_equal(item_of(p, row)->pos, PAGE_TOKENS);
    collect(&r);
    assert_int_equal(seen.copies, 16);
    end(&r, p);
    rig_end(&r);
}

/* ---- S2 ---- */

static void s2_spaces_are_apart(void **state) {
    struct rig r = rig_full(4, 256);
    run_new(&r, (struct prompt){1, 100, 1, 100}, 2);
    sched_row row = submit_text(&r, (struct prompt){1, 100, 1, 100}, (struct sched_request){.max_new = 2, .space = 8});
    assert_int_equal(run(&r, row), 100);
    assert_int_equal(run_new(&r, (struct prompt){1, 100, 1, 100}, 2), 1);
    rig_end(&r);
}

static void s2_no_space_no_store(void **state) {
    struct rig r = rig_full(4, 256);
    run_new(&r, (struct prompt){1, 100, 1, 100}, 2);
    uint32_t blocks = store(&r).blocks;
    sched_row row = reserve(&r);
    struct sched_request q = {.prompt_n = 100, .max_new = 2};
    assert_int_equal(sched_submit(r.s, row, &q, NULL), 0);
    assert_int_equal(run(&r, row), 100);
    assert_int_equal(store(&r).blocks, blocks);
    rig_end(&r);
}

/* ---- S3 ---- */

static void s3_what_is_stored_is_what_was_fed(void **state) {
    struct rig r = rig_full(4, 256);
    run_new(&r, (struct prompt){1, 90, 1, 90}, 11); /* feeds 10 of the 11 */
    struct prefix_match m;
    int32_t tokens[128];
    for (int32_t k = 0; k < 128; k++) tokens[k] = k < 90 ? 10000 + k : 1000000 + k;
    prefix_find(r.prefix, 7, tokens, 128, &m);
    assert_int_equal(m.tokens, 100);
    rig_end(&r);
}

static void s3_little_is_not_stored_unless_it_matters(void **state) {
    struct rig r = rig_full(4, 256);
    run_new(&r, (struct prompt){1, 20, 1, 20}, 2);
    assert_int_equal(store(&r).blocks, 0);
    run(&r, submit_text(&r, (struct prompt){1, 20, 1, 20}, (struct sched_request){.max_new = 2, .weight = 4}));
    assert_int_equal(store(&r).blocks, 1);
    assert_int_equal(run_new(&r, (struct prompt){1, 20, 1, 20}, 2), 1);
    rig_end(&r);
}

static void s3_a_cancelled_row_leaves_what_it_has(void **state) {
    struct rig r = rig_full(4, 50);
    sched_row row = submit_new(&r, (struct prompt){1, 200, 1, 200}, 4);
    turn(&r);
    turn(&r);
    finish(&r, row);
    assert_int_equal(run_new(&r, (struct prompt){1, 200, 1, 200}, 4), 100);
    rig_end(&r);
}

/* A plan in flight reads the row's table: equal blocks are taken over when none does. */
static void s3_equal_blocks_become_one(void **state) {
    struct rig r = rig_full(4, 256);
    sched_row a =
        submit_text(&r, (struct prompt){1, 120, 1, 120}, (struct sched_request){.max_new = 2, .chunk_max = 8});
    turn(&r);
    sched_row b = submit_new(&r, (struct prompt){1, 120, 1, 120}, 30); /* does not follow one with smaller chunks */
    turn(&r);
    assert_int_equal(counts(&r).following, 0);
    uint32_t used = prefix_used(r.prefix, 0);
    while (sched_row_state(r.s, a) != ROW_RUNNING) turn(&r);
    assert_true(prefix_used(r.prefix, 0) < used + 3);
    for (uint32_t k = 0; k < 3; k++) assert_int_equal(table(&r, a, 0)[k], table(&r, b, 0)[k]);
    rig_end(&r);
}

/* ---- S4, P7 ---- */

static void s4_a_window_that_is_gone_is_no_place_to_go_on(void **state) {
    struct rig r = rig_storing(4, 32, 1000, WINDOW);
    run_new(&r, (struct prompt){1, 400, 1, 400}, 2);
    assert_int_equal(warm(&r, (struct prompt){1, 200, 2, 400}), 0);
    assert_int_equal(warm(&r, (struct prompt){1, 400, 2, 450}), 400); /* its end */
    assert_int_equal(warm(&r, (struct prompt){1, 400, 1, 400}), 399);
    rig_end(&r);
}

static void p7_cuts_are_places_to_go_on(void **state) {
    struct rig r = rig_storing(4, 32, 1000, WINDOW);
    sched_row row = submit_text(&r, (struct prompt){1, 400, 1, 400},
                                (struct sched_request){.max_new = 2, .cuts = {130, 300}, .cuts_n = 2});
    run(&r, row);
    assert_int_equal(warm(&r, (struct prompt){1, 130, 2, 400}), 130);
    assert_int_equal(warm(&r, (struct prompt){1, 299, 3, 400}), 299); /* in the same block */
    assert_int_equal(warm(&r, (struct prompt){1, 280, 4, 400}), 160); /* the end of the block of 130 */
    rig_end(&r);
}

static void s4_a_stride_makes_places(void **state) {
    struct sched_config c = config_of(4, 16, 48);
    c.tokens = tokens_of_row;
    c.snapshot_stride = 200;
    struct rig r = rig_of(c, 1000, 1000);
    run_new(&r, (struct prompt){1, 500, 1, 500}, 2);
    assert_int_equal(warm(&r, (struct prompt){1, 110, 2, 150}), 0);
    assert_int_equal(warm(&r, (struct prompt){1, 199, 3, 400}), 199);
    assert_int_equal(warm(&r, (struct prompt){1, 300, 4, 450}), 224);
    assert_int_equal(warm(&r, (struct prompt){1, 390, 5, 450}), 390);
    rig_end(&r);
}

/* ---- S5 ---- */

static void s5_an_unsound_row_leaves_nothing(void **state) {
    struct rig r = rig_full(4, 50);
    run_new(&r, (struct prompt){1, 64, 1, 64}, 2);
    uint32_t blocks = store(&r).blocks;
    sched_row row = submit_new(&r, (struct prompt){1, 64, 2, 300}, 4);
    turn(&r);
    turn(&r);
    assert_true(store(&r).blocks > blocks); /* already published */
    sched_finish(r.s, row, 0);
    assert_true(sched_check(r.s));
    assert_int_equal(store(&r).blocks, blocks);
    assert_int_equal(run_new(&r, (struct prompt){1, 64, 1, 64}, 2), 1); /* what it took stays */
    assert_int_equal(run_new(&r, (struct prompt){1, 64, 2, 300}, 2), 300 - 64);
    rig_end(&r);
}

static void s5_a_launch_that_failed_leaves_nothing(void **state) {
    struct rig r = rig_full(4, 50);
    sched_row row = submit_new(&r, (struct prompt){1, 300, 1, 300}, 4);
    turn(&r);
    turn(&r);
    assert_true(store(&r).blocks > 0);
    const struct plan *p = begin(&r);
    sched_abandon(r.s, p);
    assert_true(sched_check(r.s));
    assert_int_equal(store(&r).blocks, 0);
    sched_finish(r.s, row, 1); /* whatever the engine says */
    assert_true(sched_check(r.s));
    assert_int_equal(store(&r).blocks, 0);
    rig_end(&r);
}

static void s5_rows_that_took_it_go_on(void **state) {
    struct rig r = rig_full(4, 50);
    sched_row a = submit_new(&r, (struct prompt){1, 300, 1, 300}, 4);
    turn(&r);
    turn(&r);
    sched_row b = submit_new(&r, (struct prompt){1, 96, 2, 300}, 4);
    turn(&r);
    assert_int_equal(cached(&r, b), 96);
    sched_finish(r.s, a, 0);
    assert_true(sched_check(r.s));
    assert_int_equal(run(&r, b) + 96 + 12, 300); /* 12 were its part of the first turn */
    assert_int_equal(run_new(&r, (struct prompt){1, 96, 2, 300}, 4), 300);
    rig_end(&r);
}

/* One row of 100 tokens that has stored three blocks stands in line again, because it slept while another came. */
static sched_row preempted(struct rig *r) {
    sched_row row = submit_new(r, (struct prompt){1, 120, 1, 120}, 4);
    turn(r);
    sched_pause(r->s, row, 1);
    sched_row other = submit_new(r, (struct prompt){9, 20, 9, 20}, 2);
    turn(r);
    assert_state(r, row, ROW_WAITING);
    run(r, other);
    assert_int_equal(pop_gone(r), other);
    sched_pause(r->s, row, 0);
    return row;
}

static void assert_leaves_nothing(struct rig *r, sched_row row) {
    sched_finish(r->s, row, 0);
    assert_true(sched_check(r->s));
    assert_int_equal(store(r).blocks, 0);
    assert_int_equal(pop_gone(r), row);
    assert_int_equal(sched_stored(r->s, row), 0);
}

static void s5_an_unsound_row_that_waits_again_leaves_nothing(void **state) {
    struct rig r = rig_full(1, 100);
    sched_row row = preempted(&r);
    assert_int_equal(store(&r).blocks, 4);
    assert_leaves_nothing(&r, row);
    rig_end(&r);
}

static void s5_an_unsound_row_that_came_again_leaves_nothing(void **state) {
    for (int gone = 0; gone < 2; gone++) { /* it finds its own state, or that is not there any more */
        struct rig r = rig_full(1, 100);
        sched_row row = preempted(&r);
        if (gone) prefix_remove_space(r.prefix, 7);
        turn(&r);
        assert_int_equal(store(&r).blocks, gone ? 3 : 4);
        if (gone) turn(&r);
        assert_leaves_nothing(&r, row);
        rig_end(&r);
    }
}

/* Its first own block is known from a copy only, and what it had taken before that must be read again. */
static void s5_what_was_taken_once_and_computed_later_is_its_own(void **state) {
    struct rig r = rig_full(1, 100);
    run_new(&r, (struct prompt){1, 64, 1, 64}, 1);
    sched_row row = preempted(&r);
    struct prefix_match m;
    prefix_find(r.prefix, 7, texts[sched_row_index(row)].tokens, 120, &m);
    struct prefix_view view;
    for (prefix_block b = m.block; prefix_get(r.prefix, b, &view); b = view.parent)
        if (view.n == PAGE_TOKENS) prefix_set_where(r.prefix, b, view.index + 1, 3);
    uint32_t pages[1000], n = 0;
    for (uint32_t page; (page = prefix_alloc(r.prefix, 0)) != PAGE_NONE;) pages[n++] = page; /* all is evicted */
    while (n > 0) prefix_unref(r.prefix, 0, pages[--n]);
    assert_int_equal(store(&r).cold, 3);
    row_at(r.s, sched_row_index(row))->warm_only = 1;
    turn(&r);
    assert_int_equal(store(&r).resident, 3);
    sched_finish(r.s, row, 0);
    assert_true(sched_check(r.s));
    assert_int_equal(store(&r).resident, 0);
    rig_end(&r);
}

/* ---- S6 ---- */

static void s6_the_store_goes_before_anybody_is_preempted(void **state) {
    struct rig r = rig_storing(2, 256, 12, 0);
    for (uint32_t k = 1; k <= 6; k++) {
        run_new(&r, (struct prompt){k, 100, k, 100}, 60);
        assert_int_equal(counts(&r).preemptions, 0);
    }
    assert_true(store(&r).evicted > 0);
    assert_true(store(&r).idle[0] > 0);
    rig_end(&r);
}

/* ---- S8 ---- */

static void s8_sixteen_equal_prompts_are_read_once(void **state) {
    struct rig r = rig_full(16, 256);
    sched_row rows[16];
    for (uint32_t k = 0; k < 16; k++) rows[k] = submit_new(&r, (struct prompt){1, 2000, 1, 2000}, 8);
    uint32_t read = 0, running = 0;
    const struct plan *p = turn(&r);
    assert_int_equal(counts(&r).following, 15);
    for (; running < 16; p = turn(&r)) {
        read += p->n_prompt_tokens;
        running = counts(&r).running;
    }
    assert_int_equal(read, 2000 + 15 * 16);
    for (uint32_t k = 1; k < 16; k++) {
        assert_int_equal(cached(&r, rows[k]), 1984);
        assert_int_equal(table(&r, rows[k], 0)[61], table(&r, rows[0], 0)[61]);
    }
    assert_true(prefix_used(r.prefix, 0) <= 62 + 16);
    rig_end(&r);
}

static void s8_followers_of_a_window(void **state) {
    struct rig r = rig_storing(16, 256, 1000, WINDOW);
    sched_row rows[8];
    for (uint32_t k = 0; k < 8; k++) rows[k] = submit_new(&r, (struct prompt){1, 500, 10 + k, 520 + 30 * k}, 8);
    uint32_t read = 0;
    while (counts(&r).running < 8) read += turn(&r)->n_prompt_tokens;
    /* to 480 they follow; when the leader comes there it has the whole page, too, and they copy what it shares */
    for (uint32_t k = 1; k < 8; k++) assert_int_equal(cached(&r, rows[k]), 500);
    assert_int_equal(read, 8 * 520 + 30 * 28 - 7 * 500);
    rig_end(&r);
}

static void s8_rooms_for_followers_are_small(void **state) {
    /* 32 pages: 640 tokens and 128 more are 24 of them, a follower's own 160 are 5 */
    struct rig r = rig_storing(4, 64, 36, 0);
    sched_row a = submit_new(&r, (struct prompt){1, 640, 1, 640}, 200);
    sched_row b = submit_new(&r, (struct prompt){1, 640, 2, 672}, 200);
    turn(&r);
    assert_state(&r, b, ROW_PREPARING);
    assert_int_equal(counts(&r).following, 1);
    while (counts(&r).running < 2) turn(&r);
    assert_int_equal(cached(&r, b), 640);
    assert_int_equal(counts(&r).preemptions, 0);
    (void)a;
    rig_end(&r);
}

static struct rig rig_led(sched_row *leader, sched_row followers[2]) {
    struct rig r = rig_full(4, 100);
    *leader = submit_new(&r, (struct prompt){1, 1000, 1, 1000}, 8);
    turn(&r);
    for (uint32_t k = 0; k < 2; k++) followers[k] = submit_new(&r, (struct prompt){1, 900, 2 + k, 1000}, 8);
    turn(&r);
    turn(&r);
    assert_int_equal(counts(&r).following, 2);
    return r;
}

static void s8_a_leader_that_ends_leaves_its_place(void **state) {
    sched_row leader, f[2];
    struct rig r = rig_led(&leader, f);
    finish(&r, leader); /* cancelled, 300 are read */
    turn(&r);
    assert_int_equal(cached(&r, f[0]), 300);
    assert_int_equal(counts(&r).following, 1); /* the second follows the first */
    while (counts(&r).running < 2) turn(&r);
    assert_int_equal(cached(&r, f[1]), 896);
    rig_end(&r);
}

static void s8_a_leader_that_is_unsound_leaves_nothing(void **state) {
    sched_row leader, f[2];
    struct rig r = rig_led(&leader, f);
    sched_finish(r.s, leader, 0);
    assert_true(sched_check(r.s));
    turn(&r);
    assert_int_equal(cached(&r, f[0]), 0);
    assert_int_equal(counts(&r).following, 1);
    while (counts(&r).running < 2) turn(&r);
    assert_int_equal(cached(&r, f[1]), 896);
    rig_end(&r);
}

/* What it had stored is taken away under its feet, so it stores nothing behind that. */
static void s8_a_leader_that_stores_nothing_is_not_followed(void **state) {
    sched_row leader, f[2];
    struct rig r = rig_led(&leader, f);
    prefix_remove_space(r.prefix, 7);
    turn(&r);
    turn(&r);
    assert_int_equal(counts(&r).following, 1); /* the second follows the first */
    assert_int_equal(row_at(r.s, sched_row_index(f[1]))->leader, sched_row_index(f[0]));
    while (counts(&r).running < 3) turn(&r);
    assert_in_range(cached(&r, f[1]), 896, 900);
    rig_end(&r);
}

static void s8_a_leader_that_sleeps_is_not_waited_for(void **state) {
    sched_row leader, f[2];
    struct rig r = rig_led(&leader, f);
    sched_pause(r.s, leader, 1);
    assert_true(sched_check(r.s));
    turn(&r);
    assert_int_equal(cached(&r, f[0]), 288);
    assert_int_equal(counts(&r).following, 1);
    sched_pause(r.s, f[1], 1); /* a follower that sleeps goes on when it wakes */
    while (sched_row_state(r.s, f[0]) != ROW_RUNNING) turn(&r);
    assert_int_equal(counts(&r).following, 0);
    sched_pause(r.s, leader, 0);
    sched_pause(r.s, f[1], 0);
    while (counts(&r).running < 3) turn(&r);
    assert_int_equal(cached(&r, f[1]), 900);
    rig_end(&r);
}

static void s8_a_leader_that_is_preempted_leaves_its_place(void **state) {
    struct rig r = rig_full(3, 100);
    sched_row leader = submit_new(&r, (struct prompt){1, 1000, 1, 1000}, 8), f[2];
    turn(&r);
    for (uint32_t k = 0; k < 2; k++) f[k] = submit_new(&r, (struct prompt){1, 900, 2 + k, 1000}, 8);
    turn(&r);
    turn(&r);
    sched_pause(r.s, leader, 1);
    submit_new(&r, (struct prompt){9, 20, 9, 20}, 90); /* there is no row for it, so the one that sleeps gives his */
    turn(&r);
    assert_state(&r, leader, ROW_WAITING);
    assert_int_equal(counts(&r).following, 1);
    assert_int_equal(cached(&r, f[0]), 288); /* it looked before the last 12 were stored */
    while (counts(&r).running < 3) turn(&r);
    assert_in_range(cached(&r, f[1]), 896, 900);
    rig_end(&r);
}

static void s8_followers_go_on_in_their_order(void **state) {
    sched_row leader, f[2];
    struct rig r = rig_led(&leader, f);
    const struct plan *p;
    while ((p = turn(&r)) != NULL && item_of(p, f[0]) == NULL) assert_null(item_of(p, f[1]));
    assert_non_null(item_of(p, f[1]));
    assert_true(item_of(p, f[0]) < item_of(p, f[1]));
    assert_int_equal(item_of(p, f[0])->pos, item_of(p, f[1])->pos);
    rig_end(&r);
}

static void s8_a_follower_ends(void **state) {
    sched_row leader, f[2];
    struct rig r = rig_led(&leader, f);
    finish(&r, f[0]);
    assert_int_equal(pop_gone(&r), f[0]);
    assert_int_equal(counts(&r).following, 1);
    while (counts(&r).running < 2) turn(&r);
    assert_int_equal(cached(&r, f[1]), 896);
    rig_end(&r);
}

static void s8_outputs_everywhere_take_nothing(void **state) {
    struct rig r = rig_full(4, 64);
    run_new(&r, (struct prompt){1, 100, 1, 100}, 2);
    sched_row row =
        submit_text(&r, (struct prompt){1, 100, 1, 100}, (struct sched_request){.max_new = 2, .all_outputs = 1});
    const struct plan_item *item = item_of(begin(&r), row);
    assert_int_equal(item->pos, 0);
    assert_int_equal(item->n_outputs, 64);
    end(&r, plan_at(r.s, r.s->planned));
    run(&r, row);
    assert_int_equal(cached(&r, row), 0);
    rig_end(&r);
}

/* Nothing that it could find would let it in, so it is not looked for. */
static void s8_a_head_that_cannot_come_in_is_not_looked_at(void **state) {
    struct rig r = rig_full(4, 64);
    for (uint32_t k = 1; k < 3; k++) submit_new(&r, (struct prompt){k, 1500, k, 1500}, 1); /* a full cohort */
    sched_row head = submit_new(&r, (struct prompt){3, 200, 3, 200}, 1);
    turn(&r);
    assert_state(&r, head, ROW_WAITING);
    assert_int_equal(texts[sched_row_index(head)].asked, 0);
    rig_end(&r);

    r = rig_storing(4, 64, 60, 0);
    submit_new(&r, (struct prompt){1, 20, 1, 20}, 1);
    submit_new(&r, (struct prompt){2, 1800, 2, 1800}, 1);     /* 1 and 57 of 60 pages */
    head = submit_new(&r, (struct prompt){3, 70, 3, 70}, 60); /* 5, of which 2 may be there */
    turn(&r);
    assert_state(&r, head, ROW_WAITING);
    assert_int_equal(texts[sched_row_index(head)].asked, 0);
    rig_end(&r);
}

/* ---- Preemption ---- */

static void s8_a_preempted_row_finds_its_state_again(void **state) {
    struct rig r = rig_storing(2, 64, 20, 0);
    sched_row a = submit_new(&r, (struct prompt){1, 60, 1, 60}, 500),
              b = submit_new(&r, (struct prompt){2, 60, 2, 60}, 500);
    while (counts(&r).preemptions == 0) turn(&r);
    finish(&r, a); /* there is room again, and only the last blocks of b were evicted */
    struct sched_history h;
    sched_get_history(r.s, b, &h);
    assert_int_equal(h.preemptions, 1);
    turn(&r);
    assert_state(&r, b, ROW_RUNNING);
    sched_get_history(r.s, b, &h);
    assert_in_range(h.redone, 1, 2 * PAGE_TOKENS);
    assert_int_equal(h.cached, 0); /* it had read all of it */
    rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(s1_cold_then_warm),
        cmocka_unit_test(s1_an_exact_repeat_computes_one_token),
        cmocka_unit_test(s1_one_token_is_nothing_to_take),
        cmocka_unit_test(s1_a_cut_inside_a_block_is_one_copy),
        cmocka_unit_test(s1_whole_blocks_need_no_copy),
        cmocka_unit_test(s1_a_cut_that_cannot_be_copied_is_not_taken),
        cmocka_unit_test(s2_spaces_are_apart),
        cmocka_unit_test(s2_no_space_no_store),
        cmocka_unit_test(s3_what_is_stored_is_what_was_fed),
        cmocka_unit_test(s3_little_is_not_stored_unless_it_matters),
        cmocka_unit_test(s3_a_cancelled_row_leaves_what_it_has),
        cmocka_unit_test(s3_equal_blocks_become_one),
        cmocka_unit_test(s4_a_window_that_is_gone_is_no_place_to_go_on),
        cmocka_unit_test(p7_cuts_are_places_to_go_on),
        cmocka_unit_test(s4_a_stride_makes_places),
        cmocka_unit_test(s5_an_unsound_row_leaves_nothing),
        cmocka_unit_test(s5_a_launch_that_failed_leaves_nothing),
        cmocka_unit_test(s5_rows_that_took_it_go_on),
        cmocka_unit_test(s5_an_unsound_row_that_waits_again_leaves_nothing),
        cmocka_unit_test(s5_an_unsound_row_that_came_again_leaves_nothing),
        cmocka_unit_test(s5_what_was_taken_once_and_computed_later_is_its_own),
        cmocka_unit_test(s6_the_store_goes_before_anybody_is_preempted),
        cmocka_unit_test(s8_sixteen_equal_prompts_are_read_once),
        cmocka_unit_test(s8_followers_of_a_window),
        cmocka_unit_test(s8_rooms_for_followers_are_small),
        cmocka_unit_test(s8_a_leader_that_ends_leaves_its_place),
        cmocka_unit_test(s8_a_leader_that_is_unsound_leaves_nothing),
        cmocka_unit_test(s8_a_leader_that_stores_nothing_is_not_followed),
        cmocka_unit_test(s8_a_leader_that_sleeps_is_not_waited_for),
        cmocka_unit_test(s8_a_leader_that_is_preempted_leaves_its_place),
        cmocka_unit_test(s8_followers_go_on_in_their_order),
        cmocka_unit_test(s8_a_follower_ends),
        cmocka_unit_test(s8_outputs_everywhere_take_nothing),
        cmocka_unit_test(s8_a_head_that_cannot_come_in_is_not_looked_at),
        cmocka_unit_test(s8_a_preempted_row_finds_its_state_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
