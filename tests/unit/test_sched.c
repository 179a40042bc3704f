/* The scheduler's rules, one by one; the letters in the names are the rules' names in docs/SCHEDULER.md. Every step is
 * followed by sched_check. tests/sim plays whole lives at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sched/sched.h"
#include "sched/sched_internal.h" /* to damage it on purpose */

struct rig {
    struct pages *pages;
    struct sched *s;
};

/* Two groups, the second windowed, as in the default model. */
static struct sched_config config_of(uint32_t rows, uint32_t queue, uint32_t batch) {
    return (struct sched_config){.rows_max = rows,
                                 .queue_max = queue,
                                 .batch_tokens = batch,
                                 .context_max = 4096,
                                 .groups = 2,
                                 .group = {{0}, {64}}};
}

static struct rig rig_of(struct sched_config config, uint32_t full, uint32_t windowed) {
    struct rig r;
    assert_int_equal(pages_new(&r.pages, 2, (const uint32_t[]){full, windowed}, NULL), 0);
    config.pages = r.pages;
    assert_int_equal(sched_new(&config, &r.s, NULL), 0);
    assert_true(sched_check(r.s));
    return r;
}

static struct rig rig_wide(uint32_t rows, uint32_t queue, uint32_t batch) {
    return rig_of(config_of(rows, queue, batch), 4096, 4096);
}

/* Ends every row and sees that all pages came back. */
static void rig_end(struct rig *r) {
    for (uint32_t i = 0; i < r->s->rows_total; i++) sched_finish(r->s, row_name(r->s, row_at(r->s, i)));
    while (r->s->in_flight > 0) sched_commit(r->s, plan_at(r->s, r->s->planned - r->s->in_flight + 1));
    assert_true(sched_check(r->s));
    for (uint32_t g = 0; g < 2; g++) assert_int_equal(pages_available(r->pages, g), pages_total(r->pages, g));
    sched_free(r->s);
    pages_free(r->pages);
}

static sched_row reserve(struct rig *r) {
    sched_row row;
    assert_int_equal(sched_reserve(r->s, &row), 0);
    assert_int_not_equal(row, 0);
    return row;
}

static sched_row submit_request(struct rig *r, struct sched_request q) {
    sched_row row = reserve(r);
    assert_int_equal(sched_submit(r->s, row, &q, NULL), 0);
    assert_true(sched_check(r->s));
    return row;
}

static sched_row submit(struct rig *r, uint32_t prompt_n, uint32_t max_new) {
    return submit_request(r, (struct sched_request){.prompt_n = prompt_n, .max_new = max_new});
}

static const struct plan *plan(struct rig *r) {
    const struct plan *p;
    int made = sched_plan(r->s, &p);
    assert_int_equal(made, p != NULL);
    assert_true(sched_check(r->s));
    return p;
}

static void commit(struct rig *r, const struct plan *p) {
    sched_commit(r->s, p);
    assert_true(sched_check(r->s));
}

/* One whole iteration; the plan stays readable until the next but one. */
static const struct plan *step(struct rig *r) {
    const struct plan *p = plan(r);
    if (p != NULL) commit(r, p);
    return p;
}

static const struct plan_item *item_of(const struct plan *p, sched_row row) {
    for (uint32_t i = 0; p != NULL && i < p->n_items; i++)
        if (p->items[i].row == row) return &p->items[i];
    return NULL;
}

static uint32_t tokens_of(const struct plan *p, sched_row row) {
    const struct plan_item *item = item_of(p, row);
    return item == NULL ? 0 : item->n_tokens;
}

static void finish(struct rig *r, sched_row row) {
    sched_finish(r->s, row);
    assert_true(sched_check(r->s));
}

static sched_row pop_gone(struct rig *r) {
    sched_row row;
    int popped = sched_pop_gone(r->s, &row);
    assert_int_equal(popped, row != 0);
    assert_true(sched_check(r->s));
    return row;
}

static void assert_state(struct rig *r, sched_row row, enum row_state state) {
    assert_int_equal(sched_row_state(r->s, row), state);
}

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
    assert_state(&r, w, ROW_PREPARING);
    sched_pause(r.s, w, 0);
    assert_int_equal(tokens_of(step(&r), w), 4);
    rig_end(&r);
}

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
    uint64_t worst = pages_worst(64, 2000, 2 * CHUNK);
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
    assert_int_equal(pages_available(r.pages, 1), worst - 3);
    rig_end(&r);
}

static void k3_a_small_pool_makes_chunks_smaller(void **state) {
    struct rig r = rig_of(config_of(2, 2, 256), 64, 4); /* a span of 97 tokens: 63 of the window and twice 17 */
    sched_row a = submit(&r, 1000, 10);
    for (int k = 0; k < 1000 / 17; k++) assert_int_equal(tokens_of(step(&r), a), 17);
    assert_int_equal(tokens_of(step(&r), a), 1000 % 17);
    rig_end(&r);
}

static void a_page_behind_the_window_waits_for_the_last_plan_that_reads_it(void **state) {
    struct rig r = rig_wide(1, 1, 32);
    sched_row a = submit(&r, 1000, 10);
    for (int k = 0; k < 3; k++) step(&r); /* [0, 96) */
    const struct plan *p = plan(&r), *q = plan(&r);
    const uint32_t *table = item_of(p, a)->table[1];
    uint32_t first = table[1]; /* [32, 64): p's first token, 96, sees from 33 on, q's from 65 on */
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
        assert_true(nth < 20);
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
    while (sched_plan(s, &p)) sched_commit(s, p);
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
    SEEN(row->span[0].worst, row->span[0].worst + 1);
    SEEN(row->load, 1);
    SEEN(row_table(r.s, row, 0)[0], row_table(r.s, row, 0)[1]);
    SEEN(r.s->worst[1], r.s->worst[1] - 1);
    SEEN(r.s->state_n[ROW_WAITING], 7);
    SEEN(r.s->list[LIST_WAITING].n, 0);
    SEEN(r.s->list[LIST_FREE].first, r.s->list[LIST_WAITING].first);
    SEEN(r.s->slot_free_n, r.s->slot_free_n - 1);
    SEEN(r.s->slot_free[0], r.s->slot_free[1]);
    SEEN(x->link[LINK_PLACE].prev, sched_row_index(v));
    SEEN(x->chunk, 0);
    SEEN(y->submitted, 0);
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
