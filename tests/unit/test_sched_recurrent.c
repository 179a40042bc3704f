/* Groups whose pages hold a state: where items stop, what is taken and kept, how many states a row has. And groups that
 * hold only some of a sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/sched_internal.h"
#include "sched_texts.h"

/* Group 0 full, group 1 recurrent. */
static struct rig rig_recurrent(uint32_t rows, uint32_t batch, uint32_t states, uint32_t stride) {
    struct sched_config c = config_of(rows, 16, batch);
    c.group[1] = (struct pages_shape){.window = 1, .recurrent = 1};
    c.tokens = tokens_of_row;
    c.snapshot_stride = stride;
    return rig_of(c, 1000, states);
}

static const struct row *row_of(struct rig *r, sched_row row) { return row_at(r->s, sched_row_index(row)); }

/* The row's next items end at these places, the last of them at the end of its prompt. */
static void assert_ends(struct rig *r, sched_row row, const uint32_t *ends, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_item *item = item_of(turn(r), row);
        assert_non_null(item);
        assert_int_equal(item->source, PLAN_PROMPT);
        assert_int_equal(item->pos + item->n_tokens, ends[i]);
    }
    assert_state(r, row, ROW_RUNNING);
    run(r, row);
    while (pop_gone(r) != 0) continue;
}
#define ASSERT_ENDS(r, row, ...)                                                                                       \
    assert_ends(r, row, (const uint32_t[]){__VA_ARGS__}, sizeof(uint32_t[]){__VA_ARGS__} / sizeof(uint32_t))

/* Where a prompt that has the first `shared` tokens of text 1 begins. */
static uint32_t begins_at(struct rig *r, uint32_t shared) {
    sched_row row = submit_new(r, (struct prompt){1, shared, 9, shared + 40}, 1);
    const struct plan_item *item = item_of(begin(r), row);
    uint32_t pos = item->pos;
    assert_true(pos == 0 ? item->from[1] == PAGE_NONE : item->from[1] == table(r, row, 1)[(pos - 1) / PAGE_TOKENS]);
    assert_int_equal(item->to[1], table(r, row, 1)[(pos + item->n_tokens - 1) / PAGE_TOKENS]);
    end(r, plan_at(r->s, r->s->planned));
    sched_finish(r->s, row, 0); /* it leaves nothing */
    while (pop_gone(r) != 0) continue;
    return pos;
}

/* ---- Where items stop ---- */

static void s4_items_stop_at_the_last_whole_block_of_a_prompt(void **state) {
    static const uint32_t prompts[][2] = {{33, 32}, {64, 32}, {65, 64}, {96, 64}, {97, 96}, {100, 96}, {128, 96}};
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        uint32_t n = prompts[i][0], stop = prompts[i][1];
        struct rig r = rig_recurrent(4, 256, 100, 0);
        ASSERT_ENDS(&r, submit_new(&r, (struct prompt){1, n, 1, n}, 2), stop, n);
        assert_int_equal(run_new(&r, (struct prompt){1, n, 1, n}, 2), n - stop); /* again */
        rig_end(&r);
    }
    struct rig r = rig_recurrent(4, 256, 100, 0);
    ASSERT_ENDS(&r, submit_new(&r, (struct prompt){1, 32, 1, 32}, 2), 32); /* one token before its end there is none */
    ASSERT_ENDS(&r, submit_new(&r, (struct prompt){1, 7, 1, 7}, 2), 7);
    rig_end(&r);
}

static void p7_s4_items_stop_at_cuts_and_before_them(void **state) {
    struct rig r = rig_recurrent(4, 512, 100, 0);
    sched_row row = submit_text(&r, (struct prompt){1, 300, 1, 300},
                                (struct sched_request){.max_new = 2, .cuts = {70, 160, 180}, .cuts_n = 3});
    ASSERT_ENDS(&r, row, 64, 70, 160, 180, 288, 300);
    assert_int_equal(begins_at(&r, 63), 0);
    assert_int_equal(begins_at(&r, 90), 64);
    assert_int_equal(begins_at(&r, 159), 64);
    assert_int_equal(begins_at(&r, 287), 160);
    assert_int_equal(begins_at(&r, 288), 288);
    rig_end(&r);
}

static void s4_items_stop_by_the_stride(void **state) {
    struct rig r = rig_recurrent(4, 512, 100, 100);
    ASSERT_ENDS(&r, submit_new(&r, (struct prompt){1, 320, 1, 320}, 2), 128, 224, 288, 320);
    assert_int_equal(begins_at(&r, 127), 0);
    assert_int_equal(begins_at(&r, 200), 128);
    assert_int_equal(begins_at(&r, 230), 224);
    rig_end(&r);
}

static void s4_who_shares_nothing_does_not_stop(void **state) {
    struct rig r = rig_recurrent(4, 512, 100, 64);
    sched_row row = submit(&r, 300, 1);
    assert_int_equal(tokens_of(plan(&r), row), 300);
    commit(&r, plan_at(r.s, r.s->planned));
    rig_end(&r);
}

/* Of the blocks of a path, only those that an item ended with have a state. */
static void assert_states(struct rig *r, prefix_block block, uint32_t first, uint32_t second) {
    struct prefix_view view;
    for (; prefix_get(r->prefix, block, &view); block = view.parent) {
        uint32_t end = (view.index + 1) * PAGE_TOKENS;
        assert_true(view.page[1] == PAGE_NONE || end == first || end == second);
    }
}

/* A state from which a row went on in the middle of a block is not that block's. */
static void s3_a_state_in_the_middle_is_not_stored(void **state) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct rig r = rig_recurrent(4, 512, 100, 0);
        sched_row row =
            submit_text(&r, (struct prompt){1, 200, 1, 200}, (struct sched_request){.max_new = 2, .chunk_max = 20});
        while (row_of(&r, row)->next < 200) {
            plan(&r);
            if (r.s->in_flight < depth) continue;
            end(&r, plan_at(r.s, r.s->planned - depth + 1));
            assert_states(&r, row_of(&r, row)->block, 160, 192); /* 20, 40, ... 180, 192, 200 */
        }
        while (r.s->in_flight > 0) end(&r, plan_at(r.s, r.s->planned - r.s->in_flight + 1));
        finish(&r, row);
        assert_int_equal(pop_gone(&r), row);
        assert_states(&r, sched_stored(r.s, row), 192, 192);
        assert_int_equal(begins_at(&r, 170), 0); /* nobody wanted that at 160 */
        assert_int_equal(begins_at(&r, 192), 192);
        rig_end(&r);
    }
}

/* It ends, or gives way, behind such a block. */
static void s3_nor_is_it_when_the_row_leaves(void **state) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct rig r = rig_recurrent(4, 512, 100, 0);
        struct sched_request q = {.max_new = 2, .chunk_max = 20};
        sched_row row = submit_text(&r, (struct prompt){1, 200, 1, 200}, q);
        while (row_of(&r, row)->next < 80) {
            plan(&r);
            if (r.s->in_flight == depth && row_of(&r, row)->next < 80) end(&r, plan_at(r.s, r.s->planned - depth + 1));
        }
        finish(&r, row); /* [60, 80) is in flight, with [40, 60) or without */
        while (r.s->in_flight > 0) end(&r, plan_at(r.s, r.s->planned - r.s->in_flight + 1));
        assert_int_equal(pop_gone(&r), row);
        assert_states(&r, sched_stored(r.s, row), 0, 0);
        assert_int_equal(begins_at(&r, 70), 0);
        rig_end(&r);
    }
}

/* ---- Following ---- */

static void s8_a_leader_stops_where_its_follower_goes_on(void **state) {
    struct rig r = rig_recurrent(4, 100, 100, 0);
    sched_row a = submit_new(&r, (struct prompt){1, 320, 1, 320}, 2);
    assert_int_equal(tokens_of(turn(&r), a), 100);
    sched_row b = submit_new(&r, (struct prompt){1, 170, 2, 210}, 2);
    const struct plan *p = begin(&r);
    assert_int_equal(p->n_items, 1);
    assert_int_equal(tokens_of(p, a), 60);
    assert_true(row_of(&r, b)->following && row_of(&r, b)->lead_until == 160);
    end(&r, p);
    p = begin(&r);
    const struct plan_item *item = item_of(p, b);
    assert_int_equal(item->pos, 160);
    assert_int_equal(item->from[1], item_of(p, a)->from[1]); /* both from the same state, to one of their own */
    assert_int_not_equal(item->to[1], item_of(p, a)->to[1]);
    end(&r, p);
    /* What lies behind it is nothing to wait for any more. */
    sched_row c = submit_new(&r, (struct prompt){1, 100, 3, 150}, 2);
    p = begin(&r);
    assert_false(row_of(&r, c)->following);
    assert_int_equal(item_of(p, c)->pos, 0);
    end(&r, p);
    rig_end(&r);
}

/* Its leader's plan in flight goes past the place. */
static void s8_nobody_waits_for_a_state_that_will_not_be(void **state) {
    struct rig r = rig_recurrent(4, 100, 100, 0);
    sched_row a = submit_new(&r, (struct prompt){1, 320, 1, 320}, 2);
    const struct plan *first = begin(&r);
    assert_int_equal(tokens_of(first, a), 100);
    sched_row b = submit_new(&r, (struct prompt){1, 70, 2, 210}, 2);
    const struct plan *p = begin(&r);
    assert_int_equal(item_of(p, b)->pos, 0);
    end(&r, first);
    end(&r, p);
    rig_end(&r);
}

static void s8_sixteen_rows_read_a_beginning_once(void **state) {
    enum { N = 16, PROMPT = 2000, LAST = 1984 };
    for (uint32_t others = 0; others < 2; others++) { /* equal prompts; or different ones with an equal beginning */
        struct rig r = rig_recurrent(N, 256, 100, 0);
        uint32_t behind = others ? 100 : 0, read = 0, most = 0;
        sched_row row[N];
        for (uint32_t i = 0; i < N; i++) row[i] = submit_new(&r, (struct prompt){1, PROMPT, 2 + i, PROMPT + behind}, 2);
        for (const struct plan *p; (p = turn(&r)) != NULL;) read += p->n_prompt_tokens;
        for (uint32_t i = 0; i < N; i++) most += cached(&r, row[i]) == LAST;
        assert_int_equal(most, N - 1);
        assert_int_equal(read, PROMPT + behind + (N - 1) * (PROMPT + behind - LAST));
        rig_end(&r);
    }
}

/* ---- Room ---- */

/* One row at a time: a paused one makes way, and comes again. Returns where it goes on. */
static uint32_t comes_again_at(struct rig *r, sched_row row) {
    sched_pause(r->s, row, 1);
    sched_row other = submit_new(r, (struct prompt){5, 40, 5, 40}, 1);
    while (row_of(r, other)->state != ROW_RUNNING) turn(r);
    assert_int_equal(row_of(r, row)->preemptions, 1);
    finish(r, other);
    while (pop_gone(r) != 0) continue;
    sched_pause(r->s, row, 0);
    const struct plan_item *item = item_of(begin(r), row);
    assert_int_equal(item->source, PLAN_PROMPT);
    uint32_t pos = item->pos;
    end(r, plan_at(r->s, r->s->planned));
    return pos;
}

static void k3_who_comes_again_goes_on_at_its_last_whole_block(void **state) {
    struct rig r = rig_recurrent(1, 100, 100, 0);
    sched_row row = submit_new(&r, (struct prompt){1, 100, 1, 100}, 100);
    while (row_of(&r, row)->done < 150) turn(&r);
    assert_int_equal(comes_again_at(&r, row), 128);
    run(&r, row);
    assert_int_equal(row_of(&r, row)->redone, 22);
    rig_end(&r);
}

static void k3_who_comes_again_goes_on_at_its_last_stop(void **state) {
    struct rig r = rig_recurrent(1, 100, 100, 128);
    sched_row row = submit_new(&r, (struct prompt){1, 1000, 1, 1000}, 4);
    while (row_of(&r, row)->done < 484) turn(&r); /* ... 384, 484, 512 */
    assert_int_equal(row_of(&r, row)->done, 484);
    assert_int_equal(comes_again_at(&r, row), 384);
    rig_end(&r);
}

/* After the last whole block, after the last token, and one for each of two plans; and so many are enough. */
static void k3_a_row_has_few_states(void **state) {
    struct rig r = rig_recurrent(1, 512, PAGES_RECURRENT, 0);
    struct sched_request q = {.max_new = 200, .chunk_max = 40, .cuts = {96, 100}, .cuts_n = 2};
    sched_row row = submit_text(&r, (struct prompt){1, 300, 1, 300}, q);
    uint32_t most = 0;
    while (!row_spent(row_of(&r, row))) {
        plan(&r);
        uint32_t held = row_of(&r, row)->span[1].held;
        most = sched_max(most, held);
        assert_true(held <= PAGES_RECURRENT);
        if (r.s->in_flight == SCHED_IN_FLIGHT) end(&r, plan_at(r.s, r.s->planned - 1));
    }
    assert_int_equal(most, PAGES_RECURRENT);
    end(&r, plan_at(r.s, r.s->planned));
    rig_end(&r);
}

/* ---- Ranged groups ---- */

/* The first two blocks of a sequence in group 0, the others in group 1. */
static struct rig rig_ranged(uint32_t window, uint32_t first, uint32_t second) {
    struct sched_config c = config_of(4, 16, 256);
    c.group[0] = (struct pages_shape){.window = window, .end = 2};
    c.group[1] = (struct pages_shape){.window = window, .begin = 2};
    c.tokens = tokens_of_row;
    return rig_of(c, first, second);
}

static void assert_held(struct rig *r, sched_row row, uint32_t first, uint32_t second) {
    assert_int_equal(row_of(r, row)->span[0].held, first);
    assert_int_equal(row_of(r, row)->span[1].held, second);
}

static void k3_a_row_crosses_the_border(void **state) {
    struct rig r = rig_ranged(0, 10, 10);
    sched_row row = submit_new(&r, (struct prompt){1, 30, 1, 30}, 100);
    turn(&r);
    while (row_of(&r, row)->next < 120) {
        const struct plan *p = begin(&r);
        uint32_t blocks = (row_of(&r, row)->next + PAGE_TOKENS - 1) / PAGE_TOKENS;
        assert_held(&r, row, sched_min(blocks, 2), blocks - sched_min(blocks, 2));
        if (blocks > 2) assert_true(item_of(p, row)->table[1][blocks - 1] < 10);
        end(&r, p);
    }
    finish(&r, row);
    rig_end(&r);
}

static void k3_a_prompt_crosses_the_border(void **state) {
    struct rig r = rig_ranged(0, 10, 10);
    run_new(&r, (struct prompt){1, 150, 1, 150}, 2);
    static const uint32_t cut[][2] = {{40, 0}, {64, 2}, {70, 1}, {96, 2}, {149, 1}}; /* where, the group of the copy */
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        uint32_t n = cut[i][0], copies = cut[i][1] < 2;
        sched_row row = submit_new(&r, (struct prompt){1, n, 3, 160}, 1);
        assert_int_equal(item_of(begin(&r), row)->pos, n);
        assert_int_equal(seen.copies, copies);
        if (copies) assert_int_equal(seen.copy[0].group, cut[i][1]);
        assert_held(&r, row, 2, 3);
        end(&r, plan_at(r.s, r.s->planned));
        sched_finish(r.s, row, 0);
        while (pop_gone(&r) != 0) continue;
    }
    rig_end(&r);
}

static void k3_each_part_has_room_for_its_own(void **state) {
    struct rig r = rig_ranged(0, 2, 2);
    sched_row row = reserve(&r);
    struct sched_request q = {.prompt_n = 100, .max_new = 29};
    cohort_error err;
    assert_int_equal(sched_submit(r.s, row, &q, &err), COHORT_E_CAPACITY);
    assert_non_null(strstr(err.text, "need 3 pages of 32 tokens in layer group 1; the state budget has 2"));
    q.max_new = 28;
    assert_int_equal(sched_submit(r.s, row, &q, NULL), 0);
    while (!row_spent(row_of(&r, row))) assert_non_null(step(&r));
    assert_held(&r, row, 2, 2);
    rig_end(&r);
}

static void k3_a_window_crosses_the_border(void **state) {
    struct rig r = rig_ranged(40, 2, 14);
    sched_row row = submit_new(&r, (struct prompt){1, 50, 1, 50}, 200);
    while (!row_spent(row_of(&r, row))) {
        turn(&r);
        uint32_t done = row_of(&r, row)->done, from = done < 72 ? 0 : (done - 71) / PAGE_TOKENS;
        uint32_t blocks = (done + PAGE_TOKENS - 1) / PAGE_TOKENS, first = sched_min(blocks, 2);
        assert_held(&r, row, first - sched_min(first, from), blocks - sched_max(first, from));
    }
    run(&r, row);
    assert_int_equal(run_new(&r, (struct prompt){1, 50, 1, 50}, 2), 1);
    rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(s4_items_stop_at_the_last_whole_block_of_a_prompt),
        cmocka_unit_test(p7_s4_items_stop_at_cuts_and_before_them),
        cmocka_unit_test(s4_items_stop_by_the_stride),
        cmocka_unit_test(s4_who_shares_nothing_does_not_stop),
        cmocka_unit_test(s3_a_state_in_the_middle_is_not_stored),
        cmocka_unit_test(s3_nor_is_it_when_the_row_leaves),
        cmocka_unit_test(s8_nobody_waits_for_a_state_that_will_not_be),
        cmocka_unit_test(s8_a_leader_stops_where_its_follower_goes_on),
        cmocka_unit_test(s8_sixteen_rows_read_a_beginning_once),
        cmocka_unit_test(k3_who_comes_again_goes_on_at_its_last_whole_block),
        cmocka_unit_test(k3_who_comes_again_goes_on_at_its_last_stop),
        cmocka_unit_test(k3_a_row_has_few_states),
        cmocka_unit_test(k3_a_row_crosses_the_border),
        cmocka_unit_test(k3_a_prompt_crosses_the_border),
        cmocka_unit_test(k3_each_part_has_room_for_its_own),
        cmocka_unit_test(k3_a_window_crosses_the_border),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
