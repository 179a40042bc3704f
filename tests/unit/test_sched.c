/* The scheduler's rules on queue, preparation and decode, one by one; the letters in the names are the rules' names in
 * docs/SCHEDULER.md. tests/sim plays whole lives at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/sched.h"
#include "sched/sched_internal.h"
#include "sched_rig.h"

/* ---- Queue ---- */

static void q1_rows_join_and_leave_between_iterations(void **state) {
    struct rig r = rig_wide(4, 4, 64);
    sched_row a = submit(&r, 10, 8);
    const struct plan *p = plan(&r);
    sched_row b = submit(&r, 10, 8);
    assert_int_equal(p->n_items, 1); /* the plan in flight does not change */
    finish(&r, a);
    assert_int_equal(p->items[0].row, a);
    assert_state(&r, a, ROW_ENDING);
    commit(&r, p);
    assert_state(&r, a, ROW_GONE);
    p = step(&r);
    assert_int_equal(p->n_items, 1);
    assert_int_equal(p->items[0].row, b);
    rig_end(&r);
}

static void q2_a_row_goes_exactly_once(void **state) {
    struct rig r = rig_wide(2, 2, 64);
    sched_row a = submit(&r, 4, 4);
    step(&r);
    finish(&r, a);
    finish(&r, a);
    assert_int_equal(pop_gone(&r), a);
    assert_int_equal(pop_gone(&r), 0);
    assert_state(&r, a, ROW_FREE);
    finish(&r, a); /* unknown by now */
    sched_pause(r.s, a, 1);
    sched_row b = submit(&r, 4, 4);
    assert_int_equal(sched_row_index(a), sched_row_index(b)); /* the index again, but never the name */
    assert_int_not_equal(a, b);
    finish(&r, a);
    assert_state(&r, b, ROW_WAITING);
    rig_end(&r);
}

static void q2_names_survive_the_wrap_of_generations(void **state) {
    struct rig r = rig_wide(1, 0, 64);
    for (uint32_t i = 0; i < r.s->rows_total; i++) row_at(r.s, i)->generation = UINT32_MAX;
    sched_row a = reserve(&r);
    sched_unreserve(r.s, a);
    sched_row b = reserve(&r);
    assert_int_not_equal(b >> 32, 0);
    assert_int_not_equal(a, b);
    sched_unreserve(r.s, b);
    rig_end(&r);
}

static void q3_the_line_is_bounded(void **state) {
    struct rig r = rig_wide(2, 3, 64);
    sched_row row[5], more;
    for (int i = 0; i < 3; i++) row[i] = submit(&r, 4, 4);
    for (int i = 3; i < 5; i++) row[i] = reserve(&r);
    assert_int_equal(sched_reserve(r.s, &more), COHORT_E_BUSY);
    assert_int_equal(more, 0);
    step(&r); /* two run, three are behind them */
    assert_int_equal(sched_reserve(r.s, &more), COHORT_E_BUSY);
    sched_unreserve(r.s, row[4]);
    row[4] = reserve(&r);
    assert_int_equal(sched_reserve(r.s, &more), COHORT_E_BUSY);
    finish(&r, row[0]);
    assert_int_equal(pop_gone(&r), row[0]);
    more = reserve(&r);
    assert_int_equal(sched_reserve(r.s, &row[0]), COHORT_E_BUSY);
    sched_unreserve(r.s, more);
    sched_unreserve(r.s, more); /* unknown: ignored */
    sched_unreserve(r.s, row[1]);
    assert_state(&r, row[1], ROW_RUNNING); /* no reserved place: ignored */
    rig_end(&r);
}

static void q3_no_line_at_all_still_runs_rows(void **state) {
    struct rig r = rig_wide(1, 0, 64);
    sched_row more, a = submit(&r, 4, 1);
    assert_int_equal(sched_reserve(r.s, &more), COHORT_E_BUSY);
    assert_int_equal(tokens_of(step(&r), a), 4);
    rig_end(&r);
}

static void q4_rows_max_run_together_first_come_first_served(void **state) {
    struct rig r = rig_wide(2, 8, 64);
    sched_row row[5];
    for (int i = 0; i < 5; i++) row[i] = submit(&r, 4, 100);
    for (int i = 0; i + 2 <= 5; i++) {
        const struct plan *p = step(&r);
        assert_int_equal(p->n_items, 2);
        assert_non_null(item_of(p, row[i]));
        assert_non_null(item_of(p, row[i + 1]));
        finish(&r, row[i]);
    }
    rig_end(&r);
}

static void q4_hold_stops_admission_only(void **state) {
    struct rig r = rig_wide(4, 4, 64);
    sched_row a = submit(&r, 4, 100);
    step(&r);
    sched_row b = submit(&r, 4, 100);
    sched_hold(r.s, 1);
    const struct plan *p = step(&r);
    assert_non_null(item_of(p, a));
    assert_null(item_of(p, b));
    finish(&r, a);
    assert_null(plan(&r)); /* drained */
    assert_state(&r, b, ROW_WAITING);
    sched_hold(r.s, 0);
    assert_non_null(item_of(step(&r), b));
    rig_end(&r);
}

static void q4_close_refuses_new_work_and_lets_the_rest_end(void **state) {
    struct rig r = rig_wide(1, 4, 64);
    sched_row a = submit(&r, 4, 2), b = submit(&r, 4, 2), c = reserve(&r), d;
    step(&r);
    sched_close(r.s);
    assert_int_equal(sched_reserve(r.s, &d), COHORT_E_CLOSED);
    struct sched_request q = {.prompt_n = 1, .max_new = 1};
    cohort_error err;
    assert_int_equal(sched_submit(r.s, c, &q, &err), COHORT_E_CLOSED);
    assert_int_equal(err.code, COHORT_E_CLOSED);
    sched_unreserve(r.s, c);
    assert_non_null(item_of(step(&r), a));
    finish(&r, a);
    assert_non_null(item_of(step(&r), b)); /* it was in the line before */
    rig_end(&r);
}

static void q5_cancel_touches_only_its_row(void **state) {
    struct rig r = rig_wide(3, 8, 32);
    sched_row runs = submit(&r, 4, 100), stays = submit(&r, 4, 100);
    step(&r);
    sched_row prepares = submit(&r, 200, 10), waits = submit(&r, 4, 10), behind = submit(&r, 4, 10);
    const struct plan *p = plan(&r), *q = plan(&r);
    uint32_t pos = item_of(p, stays)->pos;
    assert_int_equal(item_of(q, stays)->pos, pos + 1);

    finish(&r, waits); /* leaves unrun, at once */
    assert_int_equal(pop_gone(&r), waits);
    finish(&r, prepares);
    finish(&r, runs);
    assert_int_equal(pop_gone(&r), 0);
    commit(&r, p);
    assert_int_equal(pop_gone(&r), 0); /* the second plan still names them */
    p = plan(&r);
    assert_null(item_of(p, prepares));
    assert_null(item_of(p, runs));
    assert_int_equal(item_of(p, stays)->pos, pos + 2);
    assert_int_equal(tokens_of(p, behind), 4); /* the place is taken again before the old row is gone */
    commit(&r, q);
    assert_int_equal(pop_gone(&r), runs);
    assert_int_equal(pop_gone(&r), prepares);
    commit(&r, p);
    rig_end(&r);
}

/* ---- Preparation ---- */

static void p1_rows_prepare_together_under_a_limit(void **state) {
    struct sched_config c = config_of(8, 8, 32);
    c.cohort_tokens = 200;
    struct rig r = rig_of(c, 4096, 4096);
    sched_row row[4];
    row[0] = submit(&r, 1000, 1); /* counts 100 */
    row[1] = submit(&r, 60, 1);
    row[2] = submit(&r, 41, 1); /* 201 in all */
    row[3] = submit(&r, 4, 1);
    step(&r);
    assert_state(&r, row[1], ROW_PREPARING);
    assert_state(&r, row[2], ROW_WAITING);
    assert_state(&r, row[3], ROW_WAITING); /* nobody overtakes the head */
    step(&r);                              /* 8 tokens of row 1 are read by now: room for the 41 and the 4 */
    assert_state(&r, row[2], ROW_PREPARING);
    assert_state(&r, row[3], ROW_RUNNING);
    rig_end(&r);
}

static void p1_the_limit_never_leaves_an_iteration_unfilled(void **state) {
    struct sched_config c = config_of(64, 64, 96);
    c.cohort_tokens = 1; /* raised to 192 */
    struct rig r = rig_of(c, 4096, 4096);
    for (int i = 0; i < 60; i++) submit(&r, 5 + 7 * (i % 13), 1);
    for (int i = 0; i < 20; i++) assert_int_equal(step(&r)->n_prompt_tokens, 96);
    rig_end(&r);
}

static void p2_chunk_size_is_the_rows_own(void **state) {
    struct rig r = rig_wide(4, 4, 64);
    sched_row a = submit_request(&r, (struct sched_request){.prompt_n = 20, .max_new = 1, .chunk_max = 7});
    assert_int_equal(tokens_of(step(&r), a), 7);
    assert_int_equal(tokens_of(step(&r), a), 7);
    const struct plan *p = step(&r);
    assert_int_equal(tokens_of(p, a), 6);
    assert_int_equal(item_of(p, a)->pos, 14);
    sched_row b = submit_request(&r, (struct sched_request){.prompt_n = 200, .max_new = 1, .chunk_max = 1000});
    assert_int_equal(tokens_of(step(&r), b), 64);
    rig_end(&r);
}

static void p3_every_running_row_has_a_token_in_every_iteration(void **state) {
    struct rig r = rig_wide(8, 8, 16);
    sched_row run[3];
    for (int i = 0; i < 3; i++) run[i] = submit(&r, 3, 200);
    step(&r);
    for (int i = 0; i < 5; i++) submit(&r, 1000, 1);
    for (uint32_t k = 0; k < 100; k++) {
        const struct plan *p = step(&r);
        assert_int_equal(p->n_tokens, 16);
        assert_int_equal(p->n_decode_tokens, 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(tokens_of(p, run[i]), 1);
            assert_int_equal(item_of(p, run[i])->source, PLAN_SAMPLE);
            assert_int_equal(item_of(p, run[i])->pos, 3 + k);
            assert_int_equal(item_of(p, run[i])->sample_index, k + 1);
        }
    }
    rig_end(&r);
}

static void p4_preparing_rows_share_what_running_rows_leave(void **state) {
    struct rig r = rig_wide(8, 8, 66);
    sched_row run = submit(&r, 2, 100);
    submit(&r, 2, 100);
    step(&r);
    sched_row old = submit(&r, 500, 1), mid = submit(&r, 500, 1), tiny = submit(&r, 3, 1), young = submit(&r, 500, 1);
    const struct plan *p = step(&r); /* 64 are left, 8 are everyone's */
    assert_int_equal(tokens_of(p, run), 1);
    assert_int_equal(tokens_of(p, tiny), 3);
    assert_int_equal(tokens_of(p, mid), 8);
    assert_int_equal(tokens_of(p, young), 8);
    assert_int_equal(tokens_of(p, old), 64 - 3 - 8 - 8);
    assert_int_equal(p->n_tokens, 66);
    rig_end(&r);
}

static void p4_the_budget_is_raised_to_the_rows(void **state) {
    struct rig r = rig_wide(9, 0, 4);
    assert_int_equal(sched_batch_tokens(r.s), 9);
    assert_int_equal(sched_outputs_max(r.s), 9);
    for (int i = 0; i < 9; i++) submit(&r, 2, 5);
    const struct plan *p = step(&r);
    assert_int_equal(p->n_items, 9); /* each at least one */
    assert_int_equal(p->n_tokens, 9);
    p = step(&r);
    assert_int_equal(p->n_items, 9);
    assert_int_equal(p->n_outputs, 9);
    p = step(&r);
    assert_int_equal(p->n_decode_tokens, 9);
    rig_end(&r);
}

static void p5_p6_the_first_token_comes_with_the_end_of_its_own_prompt(void **state) {
    struct rig r = rig_wide(4, 4, 32);
    sched_row lengthy = submit(&r, 300, 5), brief = submit(&r, 10, 5);
    const struct plan *p = step(&r);
    const struct plan_item *item = item_of(p, brief);
    assert_int_equal(item->n_tokens, 8);
    assert_int_equal(item->n_outputs, 0); /* nothing is projected before the end */
    assert_int_equal(item->samples, 0);
    p = step(&r);
    item = item_of(p, brief);
    assert_int_equal(item->n_tokens, 2);
    assert_int_equal(item->source, PLAN_PROMPT);
    assert_int_equal(item->n_outputs, 1);
    assert_int_equal(item->samples, 1);
    assert_int_equal(item->sample_index, 0);
    assert_int_equal(item_of(p, lengthy)->n_outputs, 0);
    assert_int_equal(p->n_outputs, 1);
    assert_state(&r, brief, ROW_RUNNING);
    assert_state(&r, lengthy, ROW_PREPARING);
    rig_end(&r);
}

static void p8_an_idle_group_admits_all_that_fits(void **state) {
    struct rig r = rig_wide(16, 16, 256);
    for (int i = 0; i < 20; i++) submit(&r, 10, 5);
    const struct plan *p = step(&r);
    assert_int_equal(p->n_items, 16);
    assert_int_equal(p->n_outputs, 16);
    sched_row row;
    for (int i = 0; i < 16; i++) assert_int_equal(sched_pop_admitted(r.s, &row), 1);
    assert_int_equal(sched_pop_admitted(r.s, &row), 0);
    rig_end(&r);
}

/* The bound of docs/SCHEDULER.md: a prompt of n tokens is read within ceil(n / max(1, (B - R) / 2m)) iterations. */
static void p9_no_preparing_row_starves(void **state) {
    enum { ROWS = 12, B = 40, RUN = 4 };
    struct sched_config c = config_of(ROWS, 100, B);
    c.cohort_tokens = 100000;
    struct rig r = rig_of(c, 4096, 4096);
    for (int i = 0; i < RUN; i++) submit(&r, 1, 2000);
    step(&r);
    uint32_t each = (B - RUN) / (2 * (ROWS - RUN));
    assert_int_equal(each, 2);
    for (int i = 0; i < ROWS - RUN - 1; i++) submit(&r, 2000, 1); /* these would take the whole budget, for long */
    sched_row late = submit(&r, 99, 1);
    uint32_t iterations = 0;
    do {
        const struct plan *p = step(&r);
        iterations++;
        assert_int_equal(p->n_items, ROWS); /* everyone advances */
    } while (sched_row_state(r.s, late) == ROW_PREPARING);
    assert_true(iterations <= (99 + each - 1) / each);
    assert_true(iterations > 40); /* and the oldest still had its half */
    rig_end(&r);
}

static void outputs_of_an_iteration_are_bounded(void **state) {
    struct sched_config c = config_of(4, 4, 64);
    c.outputs_max = 10;
    struct rig r = rig_of(c, 4096, 4096);
    sched_row run = submit(&r, 1, 100);
    step(&r);
    struct sched_request all = {.prompt_n = 50, .max_new = 0, .all_outputs = 1};
    sched_row a = submit_request(&r, all), b = submit_request(&r, all), plain = submit(&r, 500, 1);
    const struct plan *p = step(&r);
    assert_int_equal(tokens_of(p, run), 1);
    assert_int_equal(tokens_of(p, a) + tokens_of(p, b), 8); /* 10 less one each for the others */
    assert_int_equal(tokens_of(p, b), 1);                   /* its part of half of the 9 */
    assert_int_equal(item_of(p, a)->n_outputs, tokens_of(p, a));
    assert_int_equal(tokens_of(p, plain), 64 - 1 - 8); /* what they cannot use is not lost */
    uint32_t outputs = p->n_outputs;
    while (sched_row_state(r.s, b) == ROW_PREPARING) {
        p = step(&r);
        assert_true(p->n_outputs <= 10);
        const struct plan_item *item = item_of(p, b);
        assert_int_equal(item->samples, 0); /* max_new is 0 */
        outputs += p->n_outputs;
    }
    assert_true(outputs >= 100);
    assert_null(item_of(step(&r), b)); /* its prompt is read: nothing more to plan */
    assert_state(&r, b, ROW_RUNNING);
    rig_end(&r);
}

/* ---- Decode ---- */

static void d1_the_next_plan_is_made_before_the_last_is_read(void **state) {
    struct rig r = rig_wide(2, 2, 16);
    sched_row a = submit(&r, 20, 10);
    const struct plan *p = plan(&r), *q = plan(&r), *more;
    assert_int_equal(p->number + 1, q->number);
    assert_int_equal(item_of(q, a)->pos, 16);
    assert_int_equal(item_of(q, a)->samples, 1);
    assert_int_equal(sched_plan(r.s, &more), 0); /* two at most */
    commit(&r, p);
    p = plan(&r);
    assert_int_equal(item_of(p, a)->source, PLAN_SAMPLE); /* of the token that q is still making */
    assert_int_equal(item_of(p, a)->pos, 20);
    assert_int_equal(item_of(p, a)->sample_index, 1);
    commit(&r, q);
    commit(&r, p);
    rig_end(&r);
}

static void d2_a_row_at_its_budget_is_not_planned_again(void **state) {
    struct rig r = rig_wide(2, 2, 64);
    sched_row a = submit(&r, 4, 3), one = submit(&r, 4, 1);
    const struct plan *p = plan(&r), *q = plan(&r);
    assert_int_equal(item_of(p, one)->sample_index, 0);
    assert_null(item_of(q, one)); /* its only token is unread yet */
    commit(&r, p);
    p = plan(&r);
    assert_int_equal(item_of(p, a)->sample_index, 2);
    commit(&r, q);
    assert_null(plan(&r));
    commit(&r, p);
    assert_null(plan(&r));
    assert_state(&r, a, ROW_RUNNING); /* until the engine has read its last token */
    finish(&r, a);
    assert_state(&r, a, ROW_GONE);
    rig_end(&r);
}

static void d2_a_row_that_ended_in_flight_is_not_planned_again(void **state) {
    struct rig r = rig_wide(2, 2, 64);
    sched_row a = submit(&r, 4, 100);
    const struct plan *p = plan(&r), *q = plan(&r);
    commit(&r, p);
    finish(&r, a); /* a stop in the first token, found while the second is made */
    assert_state(&r, a, ROW_ENDING);
    assert_null(plan(&r));
    assert_int_equal(pages_available(r.pages, 0), 4095); /* q still reads it */
    commit(&r, q);
    assert_state(&r, a, ROW_GONE);
    assert_int_equal(pages_available(r.pages, 0), 4096);
    rig_end(&r);
}

static void a_paused_row_keeps_its_pages_and_is_not_planned(void **state) {
    struct rig r = rig_wide(4, 4, 32);
    sched_row a = submit(&r, 4, 100), b = submit(&r, 100, 100);
    step(&r);
    uint32_t used = 4096 - pages_available(r.pages, 0);
    sched_pause(r.s, a, 1);
    sched_pause(r.s, b, 1);
    sched_pause(r.s, b, 1);
    struct sched_counts counts;
    sched_get_counts(r.s, &counts);
    assert_int_equal(counts.paused, 2);
    assert_null(plan(&r));
    assert_int_equal(4096 - pages_available(r.pages, 0), used);
    sched_pause(r.s, a, 0);
    const struct plan *p = step(&r);
    assert_int_equal(tokens_of(p, a), 1);
    assert_int_equal(p->n_items, 1);
    sched_pause(r.s, b, 0);
    assert_int_equal(item_of(step(&r), b)->pos, 28);
    sched_pause(r.s, a, 1);
    finish(&r, a);
    sched_get_counts(r.s, &counts);
    assert_int_equal(counts.paused, 0);
    sched_row w = submit(&r, 4, 4);
    sched_pause(r.s, w, 1); /* already while it waits */
    assert_null(item_of(step(&r), w));
    assert_state(&r, w, ROW_WAITING); /* it would take a row's place for nothing */
    sched_pause(r.s, w, 0);
    assert_int_equal(tokens_of(step(&r), w), 4);
    rig_end(&r);
}

/* D5: a lone row pays nothing for being one of many that could be there: each plan is its one token, and the next one
 * is there before the last has run. (What the scheduler costs is measured by bench_sched.) */
static void d5_a_lone_row_has_every_iteration_to_itself(void **state) {
    struct rig r = rig_wide(1000, 0, 256);
    sched_row a = submit(&r, 200, 100);
    const struct plan *last = plan(&r), *next;
    assert_int_equal(last->n_items, 1);
    assert_int_equal(last->n_tokens, 200); /* the whole prompt at once */
    for (uint32_t i = 0; i < 99; i++) {
        next = plan(&r);
        assert_int_equal(next->n_items, 1);
        assert_int_equal(next->n_tokens, 1);
        assert_int_equal(next->n_outputs, 1);
        assert_int_equal(item_of(next, a)->source, PLAN_SAMPLE);
        commit(&r, last);
        last = next;
    }
    commit(&r, last);
    assert_null(plan(&r));
    rig_end(&r);
}

/* ---- Fill ---- */
/* Known tokens come in as many as there is room for, the sample behind the last of them, and nothing is made twice. */
static void g1_known_tokens_come_at_once(void **state) {
    for (uint32_t batch = 4; batch <= 64; batch *= 4) {
        struct rig r = rig_wide(2, 2, batch);
        sched_row a = submit(&r, 10, 30);
        while (item_of(step(&r), a)->samples == 0)
            ;
        const struct plan *p = plan(&r); /* feeds token 0, samples token 1 */
        assert_int_equal(item_of(p, a)->pos, 10);
        sched_fill(r.s, a, 19); /* tokens 0 to 8 are known: positions 11 to 18 are not read */
        assert_int_equal(sched_check(r.s), 1);
        assert_state(&r, a, ROW_PREPARING);
        uint32_t filled = 0, next = 11;
        commit(&r, p);
        for (int samples = 0; !samples;) {
            const struct plan_item *i = item_of(p = step(&r), a);
            assert_int_equal(i->pos, next);
            assert_int_equal(i->source, PLAN_PROMPT);
            next += i->n_tokens;
            filled += p->n_filled;
            samples = i->samples;
            assert_int_equal(i->n_outputs, samples);
            assert_int_equal(p->n_redone, 0);
            if (samples) assert_int_equal(i->sample_index, 9);
        }
        assert_int_equal(next, 19);
        assert_int_equal(filled, 8);
        p = step(&r);
        assert_int_equal(item_of(p, a)->source, PLAN_SAMPLE);
        assert_int_equal(item_of(p, a)->sample_index, 10);
        assert_int_equal(p->n_filled, 0);
        sched_fill(r.s, a, 21); /* one token more is nothing, */
        assert_state(&r, a, ROW_RUNNING);
        sched_fill(r.s, a, 5); /* what it has is nothing, */
        assert_state(&r, a, ROW_RUNNING);
        sched_fill(r.s, a, 1000); /* and the last token is never read */
        assert_state(&r, a, ROW_PREPARING);
        do p = step(&r);
        while (!item_of(p, a)->samples);
        assert_int_equal(item_of(p, a)->sample_index, 29);
        assert_int_equal(plan(&r) == NULL, 1);
        finish(&r, a);
        sched_fill(r.s, a, 30); /* gone */
        rig_end(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g1_known_tokens_come_at_once),
        cmocka_unit_test(q1_rows_join_and_leave_between_iterations),
        cmocka_unit_test(q2_a_row_goes_exactly_once),
        cmocka_unit_test(q2_names_survive_the_wrap_of_generations),
        cmocka_unit_test(q3_the_line_is_bounded),
        cmocka_unit_test(q3_no_line_at_all_still_runs_rows),
        cmocka_unit_test(q4_rows_max_run_together_first_come_first_served),
        cmocka_unit_test(q4_hold_stops_admission_only),
        cmocka_unit_test(q4_close_refuses_new_work_and_lets_the_rest_end),
        cmocka_unit_test(q5_cancel_touches_only_its_row),
        cmocka_unit_test(p1_rows_prepare_together_under_a_limit),
        cmocka_unit_test(p1_the_limit_never_leaves_an_iteration_unfilled),
        cmocka_unit_test(p2_chunk_size_is_the_rows_own),
        cmocka_unit_test(p3_every_running_row_has_a_token_in_every_iteration),
        cmocka_unit_test(p4_preparing_rows_share_what_running_rows_leave),
        cmocka_unit_test(p4_the_budget_is_raised_to_the_rows),
        cmocka_unit_test(p5_p6_the_first_token_comes_with_the_end_of_its_own_prompt),
        cmocka_unit_test(p8_an_idle_group_admits_all_that_fits),
        cmocka_unit_test(p9_no_preparing_row_starves),
        cmocka_unit_test(outputs_of_an_iteration_are_bounded),
        cmocka_unit_test(d1_the_next_plan_is_made_before_the_last_is_read),
        cmocka_unit_test(d2_a_row_at_its_budget_is_not_planned_again),
        cmocka_unit_test(d2_a_row_that_ended_in_flight_is_not_planned_again),
        cmocka_unit_test(a_paused_row_keeps_its_pages_and_is_not_planned),
        cmocka_unit_test(d5_a_lone_row_has_every_iteration_to_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
