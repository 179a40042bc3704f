/* K3, optimistic: who has pages, who gives them up, and how a row comes again. Claims are looked at directly; the rest
 * is seen from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "sched/sched.h"
#include "sched/sched_internal.h"
#include "sched_rig.h"

/* Only the first group, of full attention, is scarce in these tests. */
static struct rig scarce(uint32_t rows, uint32_t batch, uint32_t pages) {
    return rig_of(config_of(rows, 16, batch), pages, 4096);
}

static uint32_t claim_of(struct rig *r, sched_row row) { return row_at(r->s, sched_row_index(row))->span[0].claim; }
static uint32_t next_of(struct rig *r, sched_row row) { return row_at(r->s, sched_row_index(row))->next; }

static uint64_t preemptions(struct rig *r) {
    struct sched_counts n;
    sched_get_counts(r->s, &n);
    return n.preemptions;
}

static uint32_t preemptions_of(struct rig *r, sched_row row) {
    struct sched_history h;
    sched_get_history(r->s, row, &h);
    return h.preemptions;
}

/* Whole iterations until somebody was preempted. */
static void press(struct rig *r) {
    uint64_t before = preemptions(r);
    for (int k = 0; k < 4000 && preemptions(r) == before; k++) assert_non_null(step(r));
    assert_int_equal(preemptions(r), before + 1);
}

/* ---- Claims ---- */

static void k3_a_row_claims_what_it_knows_and_a_little_more(void **state) {
    struct rig r = scarce(4, 64, 12);
    sched_row a = submit(&r, 20, 300), b = submit(&r, 20, 300), c = submit(&r, 4, 2); /* 10, 10 and 1 pages at worst */
    step(&r);
    assert_int_equal(claim_of(&r, a), 5); /* 148 tokens */
    assert_int_equal(claim_of(&r, b), 5); /* and a page for each of the two to grow */
    assert_state(&r, c, ROW_WAITING);
    rig_end(&r);

    r = scarce(4, 64, 11);
    a = submit(&r, 20, 300);
    b = submit(&r, 20, 300);
    step(&r);
    assert_state(&r, a, ROW_RUNNING);
    assert_state(&r, b, ROW_WAITING); /* 5 + 5 + 2 do not fit */
    rig_end(&r);
}

static void k3_a_brief_row_claims_its_worst_case_at_once(void **state) {
    struct rig r = scarce(4, 64, 12);
    sched_row a = submit(&r, 20, 13); /* 33 tokens */
    step(&r);
    assert_int_equal(claim_of(&r, a), 2);
    assert_int_equal(row_at(r.s, sched_row_index(a))->grows, 0);
    rig_end(&r);
}

static void k3_a_claim_grows_by_much_if_there_is_room_else_by_a_page(void **state) {
    struct rig r = scarce(4, 64, 40);
    sched_row a = submit(&r, 20, 1000);
    while (step(&r) != NULL && next_of(&r, a) < 148) assert_int_equal(claim_of(&r, a), 5);
    step(&r);
    assert_int_equal(claim_of(&r, a), 9); /* 148 + 128 tokens */
    rig_end(&r);

    r = scarce(4, 64, 12);
    a = submit(&r, 20, 300);
    sched_row b = submit(&r, 20, 300);
    while (next_of(&r, a) < 160) step(&r);
    assert_int_equal(claim_of(&r, a), 5); /* to the end of its page */
    step(&r);
    assert_int_equal(claim_of(&r, a), 6); /* 276 would be 9 */
    assert_int_equal(claim_of(&r, b), 6);
    assert_int_equal(preemptions(&r), 0);
    rig_end(&r);
}

/* ---- Who is preempted ---- */

static void k3_under_pressure_the_younger_gives_way_and_comes_again(void **state) {
    struct rig r = scarce(4, 64, 12);
    sched_row a = submit(&r, 20, 300), b = submit(&r, 20, 300), told;
    step(&r);
    while (sched_pop_admitted(r.s, &told)) {
    }
    press(&r); /* both need a seventh page */
    assert_state(&r, a, ROW_RUNNING);
    assert_state(&r, b, ROW_WAITING);
    assert_int_equal(next_of(&r, a), 193);
    assert_int_equal(claim_of(&r, a), 10);
    while (sched_row_state(r.s, b) == ROW_WAITING && next_of(&r, a) < 319) assert_int_equal(step(&r)->n_items, 1);
    assert_int_equal(next_of(&r, a), 319); /* b's five pages and one to grow never fitted beside a's */
    assert_null(plan(&r));
    finish(&r, a);

    /* 192 tokens are read again, 20 of the prompt and 172 generated ones, without outputs. */
    for (uint32_t k = 0; k < 3; k++) {
        const struct plan *p = step(&r);
        const struct plan_item *item = item_of(p, b);
        assert_int_equal(item->source, PLAN_PROMPT);
        assert_int_equal(item->pos, 64 * k);
        assert_int_equal(item->n_tokens, 64);
        assert_int_equal(item->n_outputs, 0);
        assert_int_equal(item->samples, 0);
        assert_int_equal(p->n_redone, 64);
        assert_int_equal(p->n_prompt_tokens, 64);
    }
    assert_true(sched_pop_admitted(r.s, &told));
    assert_true(told == b);
    assert_state(&r, b, ROW_RUNNING);
    const struct plan_item *item = item_of(step(&r), b);
    assert_int_equal(item->source, PLAN_SAMPLE); /* the sample that it made last, before it was preempted */
    assert_int_equal(item->pos, 192);
    assert_int_equal(item->sample_index, 173);
    assert_int_equal(item->samples, 1);
    struct sched_history h;
    sched_get_history(r.s, b, &h);
    assert_int_equal(h.preemptions, 1);
    assert_int_equal(h.redone, 192);
    rig_end(&r);
}

static void k3_the_senior_is_never_taken_though_it_costs_least(void **state) {
    struct rig r = scarce(4, 64, 12);
    sched_row old = submit(&r, 4, 300), young = submit(&r, 60, 250); /* 132 and 188 tokens are 5 and 6 pages... */
    step(&r);
    assert_state(&r, old, ROW_RUNNING);
    assert_state(&r, young, ROW_WAITING); /* ... and one page each */
    rig_end(&r);

    r = scarce(4, 64, 13);
    old = submit(&r, 4, 300);
    young = submit(&r, 60, 250);
    press(&r);
    assert_true(next_of(&r, old) < 250);
    assert_state(&r, old, ROW_RUNNING);
    assert_state(&r, young, ROW_WAITING);
    rig_end(&r);

    r = scarce(4, 64, 13); /* priority makes the senior, not age */
    old = submit_request(&r, (struct sched_request){.prompt_n = 4, .max_new = 300, .priority = 1});
    young = submit_request(&r, (struct sched_request){.prompt_n = 60, .max_new = 250, .priority = 0});
    press(&r);
    assert_state(&r, old, ROW_WAITING);
    assert_state(&r, young, ROW_RUNNING);
    rig_end(&r);
}

/* Three rows beside the senior, `apart` tokens between them; `change` comes just before the plan in which somebody must
 * give way. Says which of the three it was. */
static int victim_of(uint32_t apart, void (*change)(struct rig *r, const sched_row row[3])) {
    struct rig r;
    sched_row row[3], senior;
    uint64_t before = 0;
    for (int played = 0; played < 2; played++) {
        r = scarce(4, 256, 4 * 5 + 4 + 3 * apart / PAGE_TOKENS);
        senior = submit_request(&r, (struct sched_request){.prompt_n = 30, .max_new = 400, .priority = -9});
        for (uint32_t i = 0; i < 3; i++) row[i] = submit(&r, 20 + apart * i, 300);
        if (played == 0) {
            press(&r);
            before = r.s->planned - 1;
            rig_end(&r);
        }
    }
    while (r.s->planned < before) step(&r);
    assert_int_equal(preemptions(&r), 0);
    uint32_t earlier[3];
    change(&r, row);
    for (int i = 0; i < 3; i++) earlier[i] = preemptions_of(&r, row[i]);
    press(&r);
    assert_int_equal(preemptions_of(&r, senior), 0);
    int victim = -1;
    for (int i = 0; i < 3; i++)
        if (preemptions_of(&r, row[i]) > earlier[i]) victim = i;
    rig_end(&r);
    return victim;
}

static void nothing(struct rig *r, const sched_row row[3]) {}
static void pause_last(struct rig *r, const sched_row row[3]) { sched_pause(r->s, row[2], 1); }
static void second_matters_less(struct rig *r, const sched_row row[3]) {
    row_at(r->s, sched_row_index(row[1]))->priority = 1;
}
static void came_again(struct rig *r, sched_row name, uint32_t made) {
    struct row *row = row_at(r->s, sched_row_index(name));
    row->preemptions = 1;
    row->admitted = row->next - made;
}
static void first_came_again(struct rig *r, const sched_row row[3]) { came_again(r, row[0], 127); }
static void first_came_again_and_made_enough(struct rig *r, const sched_row row[3]) { came_again(r, row[0], 128); }
static void all_came_again(struct rig *r, const sched_row row[3]) {
    for (int i = 0; i < 3; i++) came_again(r, row[i], 10);
}
static void first_came_again_and_others_matter_more(struct rig *r, const sched_row row[3]) {
    came_again(r, row[0], 10);
    row_at(r->s, sched_row_index(row[0]))->priority = 1;
}

static void k3_the_row_that_costs_least_is_preempted(void **state) {
    assert_int_equal(victim_of(34, nothing), 0); /* the fewest pages */
    assert_int_equal(victim_of(0, nothing), 2);  /* else the youngest */
    assert_int_equal(victim_of(34, second_matters_less), 1);
    assert_int_equal(victim_of(34, pause_last), 2); /* nobody reads it */
}

static void k3_a_row_that_came_again_is_protected_until_it_made_some(void **state) {
    assert_int_equal(victim_of(34, first_came_again), 1);
    assert_int_equal(victim_of(34, first_came_again_and_made_enough), 0);
    assert_int_equal(victim_of(34, all_came_again), 0);                          /* unless only such rows are left */
    assert_int_equal(victim_of(34, first_came_again_and_others_matter_more), 0); /* or it matters less */
}

/* ---- Pages on their way back ---- */

static void k3_a_row_stalls_while_pages_are_on_their_way(void **state) {
    struct rig r = scarce(4, 64, 12);
    sched_row a = submit(&r, 20, 300), b = submit(&r, 20, 300);
    while (next_of(&r, a) < 191) step(&r);
    const struct plan *p = plan(&r), *q; /* position 191 of both; it stays in flight */
    assert_int_equal(p->n_items, 2);
    q = plan(&r); /* a needs a page: b gives way, but its six are still read */
    assert_null(item_of(q, b));
    assert_state(&r, b, ROW_PREEMPTED);
    assert_null(item_of(q, a)); /* nothing at all to plan */
    assert_null(q);
    assert_int_equal(row_at(r.s, sched_row_index(a))->stalls, 1);
    commit(&r, p);
    assert_state(&r, b, ROW_WAITING);
    q = step(&r);
    assert_int_equal(item_of(q, a)->pos, 192);
    assert_int_equal(row_at(r.s, sched_row_index(a))->stalls, 0);
    assert_int_equal(preemptions(&r), 1);
    rig_end(&r);
}

static void k3_a_row_that_is_about_to_end_is_waited_for_but_not_for_ever(void **state) {
    struct rig r = scarce(4, 64, 14);
    sched_row a = submit(&r, 20, 300), b = submit(&r, 20, 300), c = submit(&r, 20, 44);
    while (next_of(&r, c) < 63) step(&r); /* its last token is planned, and nobody reads it */
    while (next_of(&r, a) < 192) step(&r);
    for (uint32_t k = 1; k <= 4; k++) {
        assert_null(plan(&r));
        assert_int_equal(row_at(r.s, sched_row_index(a))->stalls, k);
        assert_int_equal(preemptions(&r), 0);
    }
    const struct plan *p = step(&r); /* then b gives way after all */
    assert_int_equal(preemptions_of(&r, b), 1);
    assert_int_equal(tokens_of(p, a), 1);
    rig_end(&r);

    r = scarce(4, 64, 14);
    a = submit(&r, 20, 300);
    b = submit(&r, 20, 300);
    c = submit(&r, 20, 44);
    while (next_of(&r, a) < 192) step(&r);
    assert_null(plan(&r));
    finish(&r, c);
    assert_int_equal(step(&r)->n_items, 2); /* a page each */
    assert_int_equal(preemptions(&r), 0);
    rig_end(&r);
}

static void k3_a_preempted_row_can_end_and_pause_while_plans_name_it(void **state) {
    for (int paused = 0; paused < 2; paused++) {
        struct rig r = scarce(4, 64, 12);
        sched_row a = submit(&r, 20, 300), b = submit(&r, 20, 300);
        while (next_of(&r, a) < 191) step(&r);
        const struct plan *p = plan(&r);
        assert_null(plan(&r));
        assert_state(&r, b, ROW_PREEMPTED);
        struct sched_counts n;
        sched_get_counts(r.s, &n);
        assert_int_equal(n.preempted, 1);
        if (paused) {
            sched_pause(r.s, b, 1);
            commit(&r, p);
            assert_state(&r, b, ROW_WAITING);
            finish(&r, a);
            assert_null(plan(&r)); /* it is in no line */
            sched_pause(r.s, b, 0);
            assert_int_equal(tokens_of(step(&r), b), 64);
        } else {
            finish(&r, b);
            assert_state(&r, b, ROW_ENDING);
            commit(&r, p);
            assert_state(&r, b, ROW_GONE);
            assert_int_equal(pop_gone(&r), b);
        }
        rig_end(&r);
    }
}

/* ---- Making way for who waits ---- */

static void k3_paused_rows_make_way_first(void **state) {
    struct rig r = scarce(4, 64, 13);
    sched_row a = submit(&r, 100, 200), b = submit(&r, 20, 100), c = submit(&r, 100, 100); /* claims 8, 4, 7 */
    step(&r);
    step(&r);
    assert_state(&r, c, ROW_WAITING);
    step(&r);
    assert_int_equal(preemptions(&r), 0);
    sched_pause(r.s, a, 1); /* nobody reads it, and it holds what c needs */
    uint32_t had = next_of(&r, a);
    assert_int_equal(tokens_of(step(&r), c), 63);
    assert_state(&r, a, ROW_WAITING);
    assert_state(&r, b, ROW_RUNNING);
    sched_pause(r.s, a, 0);
    step(&r);
    assert_state(&r, a, ROW_WAITING); /* it is the oldest, but nobody makes way for it */
    finish(&r, c);
    const struct plan_item *item = item_of(step(&r), a);
    assert_int_equal(item->pos, 0);
    assert_int_equal(item->n_tokens, 63);
    assert_int_equal(row_at(r.s, sched_row_index(a))->known, had);
    rig_end(&r);
}

static void k3_a_paused_row_stays_while_nobody_needs_its_pages(void **state) {
    struct rig r = scarce(4, 64, 40);
    sched_row a = submit(&r, 100, 200);
    step(&r);
    step(&r);
    sched_pause(r.s, a, 1);
    sched_row b = submit(&r, 100, 100);
    while (next_of(&r, b) < 199) step(&r);
    assert_int_equal(preemptions(&r), 0);
    sched_pause(r.s, a, 0);
    assert_int_equal(item_of(step(&r), a)->pos, 100);
    rig_end(&r);
}

/* ---- Coming again ---- */

/* Preempted in the middle of its prompt: outputs that were asked for once are not asked for again. */
static void k3_a_prompt_is_read_again_without_the_outputs_it_had(void **state) {
    struct rig r = scarce(4, 33, 10);
    sched_row a = submit(&r, 4, 250);
    step(&r);
    const struct sched_request q = {
        .prompt_n = 100, .max_new = 5, .all_outputs = 1, .chunk_max = 20, .cuts = {30, 70}, .cuts_n = 2};
    sched_row b = submit_request(&r, q);
    uint32_t outputs = 0, boundaries = 0;
    for (int k = 0; k < 3; k++) { /* [0,20), [20,30), [30,50) */
        const struct plan_item *item = item_of(step(&r), b);
        outputs += item->n_outputs;
        boundaries += item->boundary;
    }
    assert_int_equal(outputs, 50);
    assert_int_equal(boundaries, 1);
    sched_pause(r.s, b, 1);
    sched_row c = submit(&r, 60, 40); /* needs its place */
    step(&r);
    assert_state(&r, b, ROW_WAITING);
    sched_pause(r.s, b, 0);
    finish(&r, c);
    static const uint32_t tokens[] = {20, 20, 20, 10, 20, 10}, fresh[] = {0, 0, 10, 10, 20, 10};
    for (int k = 0; k < 6; k++) {
        const struct plan_item *item = item_of(step(&r), b);
        assert_int_equal(item->n_tokens, tokens[k]);
        assert_int_equal(item->n_outputs, fresh[k]);
        assert_int_equal(item->boundary, k == 3); /* 70 only: 30 was said */
        assert_int_equal(item->samples, k == 5);
        assert_int_equal(item->sample_index, 0);
    }
    (void)a;
    rig_end(&r);
}

/* Q4: a hold is for those that never were in: what was preempted comes again, also from behind others, and drains. */
static void q4_under_a_hold_a_preempted_row_comes_again(void **state) {
    struct rig r = scarce(2, 64, 12);
    sched_row a = submit(&r, 20, 300), b = submit(&r, 20, 300);
    struct sched_counts n;
    press(&r);
    sched_row c = submit_request(&r, (struct sched_request){.prompt_n = 4, .max_new = 100, .priority = -5});
    assert_int_equal(preemptions_of(&r, b), 1);
    sched_hold(r.s, 1);
    step(&r);
    finish(&r, a);
    sched_get_counts(r.s, &n);
    assert_int_equal(n.returning, 1);
    assert_int_equal(n.waiting, 2);
    assert_non_null(item_of(step(&r), b));
    sched_get_counts(r.s, &n);
    assert_int_equal(n.returning, 0);
    assert_state(&r, c, ROW_WAITING);
    finish(&r, b);
    assert_null(plan(&r));
    sched_hold(r.s, 0);
    assert_non_null(item_of(step(&r), c));
    rig_end(&r);
}

/* The smallest pool that takes the requests at all: all of them end, each token is made once and in order. */
static void k3_everybody_ends_in_the_room_of_one(void **state) {
    for (uint32_t pages = 10; pages <= 16; pages += 2) {
        struct rig r = scarce(4, 64, pages);
        enum { ROWS = 4, NEW = 300 };
        sched_row row[ROWS];
        uint32_t made[ROWS] = {0}, ended = 0;
        for (int i = 0; i < ROWS; i++) row[i] = submit(&r, 20, NEW);
        for (int k = 0; k < 4000 && ended < ROWS; k++) {
            const struct plan *p = step(&r);
            assert_non_null(p);
            for (uint32_t i = 0; i < p->n_items; i++)
                for (int j = 0; j < ROWS; j++)
                    if (p->items[i].row == row[j] && p->items[i].samples) {
                        assert_int_equal(p->items[i].sample_index, made[j]);
                        made[j]++;
                    }
            for (int j = 0; j < ROWS; j++)
                if (made[j] == NEW && sched_row_state(r.s, row[j]) == ROW_RUNNING) {
                    finish(&r, row[j]);
                    ended++;
                }
        }
        assert_int_equal(ended, ROWS);
        struct sched_counts n;
        sched_get_counts(r.s, &n);
        if (pages == 10) assert_int_equal(n.preemptions, 0); /* one after the other */
        assert_true(n.redone <= ROWS * (20 + NEW));
        rig_end(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k3_a_row_claims_what_it_knows_and_a_little_more),
        cmocka_unit_test(k3_a_brief_row_claims_its_worst_case_at_once),
        cmocka_unit_test(k3_a_claim_grows_by_much_if_there_is_room_else_by_a_page),
        cmocka_unit_test(k3_under_pressure_the_younger_gives_way_and_comes_again),
        cmocka_unit_test(k3_the_senior_is_never_taken_though_it_costs_least),
        cmocka_unit_test(k3_the_row_that_costs_least_is_preempted),
        cmocka_unit_test(k3_a_row_that_came_again_is_protected_until_it_made_some),
        cmocka_unit_test(k3_a_row_stalls_while_pages_are_on_their_way),
        cmocka_unit_test(k3_a_row_that_is_about_to_end_is_waited_for_but_not_for_ever),
        cmocka_unit_test(k3_a_preempted_row_can_end_and_pause_while_plans_name_it),
        cmocka_unit_test(k3_paused_rows_make_way_first),
        cmocka_unit_test(k3_a_paused_row_stays_while_nobody_needs_its_pages),
        cmocka_unit_test(k3_a_prompt_is_read_again_without_the_outputs_it_had),
        cmocka_unit_test(q4_under_a_hold_a_preempted_row_comes_again),
        cmocka_unit_test(k3_everybody_ends_in_the_room_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
