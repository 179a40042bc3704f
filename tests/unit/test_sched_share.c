/* P9, the time between tokens, with times as literals; Q, tenants: whose row is next, weights, their own limits, who
 * makes way for whom; P7, positions at which an item ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/sched.h"
#include "sched/sched_internal.h"
#include "sched_rig.h"

static const struct plan *step_in(struct rig *r, uint32_t us) {
    const struct plan *p = plan(r);
    assert_non_null(p);
    sched_commit(r->s, p, us);
    return p;
}

static struct sched_counts counts(struct rig *r) {
    struct sched_counts n;
    sched_get_counts(r->s, &n);
    return n;
}

/* ---- P9 ---- */

static struct rig rig_timed(uint32_t target_us, uint32_t ratio_percent) {
    struct sched_config c = config_of(8, 16, 512);
    c.itl_target_us = target_us;
    c.itl_ratio_percent = ratio_percent;
    return rig_of(c, 4096, 4096);
}

static void p9_the_step_is_smoothed_for_each_number_of_rows(void **state) {
    struct rig r = rig_timed(0, 0);
    submit(&r, 4, 1000);
    step_in(&r, 1000); /* 4 prompt tokens alone tell nothing */
    assert_int_equal(counts(&r).step_us, 0);
    assert_int_equal(counts(&r).token_ns, 0);
    step_in(&r, 4000);
    assert_int_equal(counts(&r).step_us, 4000);
    step_in(&r, 4800);
    assert_int_equal(counts(&r).step_us, 4100);
    step_in(&r, 0); /* not known */
    assert_int_equal(counts(&r).step_us, 4100);
    step_in(&r, 100000); /* counts as 8200 */
    assert_int_equal(counts(&r).step_us, 4612);
    step_in(&r, 1); /* counts as 2306 */
    assert_int_equal(counts(&r).step_us, 4324);
    submit(&r, 1, 1000);
    step_in(&r, 0);
    assert_int_equal(counts(&r).step_us, 4324); /* two rows: as the nearest smaller number */
    step_in(&r, 5000);
    assert_int_equal(counts(&r).step_us, 5000);
    rig_end(&r);
}

static void p9_a_target_in_time(void **state) {
    struct rig r = rig_timed(10000, 0);
    submit(&r, 4, 1000);
    step_in(&r, 0);
    step_in(&r, 4000);
    submit(&r, 2000, 1);
    assert_int_equal(step_in(&r, 4000 + 3200)->n_prompt_tokens, 32); /* nothing was known: 100 us each */
    assert_int_equal(counts(&r).token_ns, 100000);
    assert_int_equal(step_in(&r, 4000 + 6000)->n_prompt_tokens, 60); /* (10000 - 4000) / 100 */
    assert_int_equal(step_in(&r, 4000 + 12000)->n_prompt_tokens, 60);
    assert_int_equal(counts(&r).token_ns, 112500); /* 200 us each, an eighth of it */
    assert_int_equal(step_in(&r, 0)->n_prompt_tokens, 53);
    rig_end(&r);
}

static void p9_prompts_always_get_a_little(void **state) {
    struct rig r = rig_timed(1, 0);
    submit(&r, 4, 1000);
    step_in(&r, 0);
    step_in(&r, 4000);
    submit(&r, 2000, 1);
    step_in(&r, 4000 + 3200);
    assert_int_equal(step_in(&r, 0)->n_prompt_tokens, SCHED_PROMPT_LEAST);
    for (int i = 0; i < 6; i++) submit(&r, 2000, 1);
    assert_int_equal(step_in(&r, 0)->n_prompt_tokens, 8); /* for seven rows, one each at least */
    rig_end(&r);
}

static void p9_without_a_target_or_without_decoding_rows_the_budget_is_used(void **state) {
    struct rig r = rig_timed(0, 0);
    submit(&r, 4, 1000);
    step_in(&r, 0);
    step_in(&r, 4000);
    submit(&r, 2000, 1);
    assert_int_equal(step_in(&r, 100000)->n_prompt_tokens, 511);
    assert_int_equal(step_in(&r, 100000)->n_prompt_tokens, 511);
    rig_end(&r);

    r = rig_timed(1, 0);
    submit(&r, 2000, 1);
    assert_int_equal(step_in(&r, 100000)->n_prompt_tokens, 512);
    assert_int_equal(step_in(&r, 100000)->n_prompt_tokens, 512);
    rig_end(&r);
}

static void p9_a_ratio_to_the_step(void **state) {
    struct rig r = rig_timed(0, 150);
    sched_row run = submit(&r, 20, 1000);
    step_in(&r, 2000); /* 100 us a token, alone */
    assert_int_equal(counts(&r).token_ns, 100000);
    for (int i = 0; i < 3; i++) submit(&r, 1, 1000);
    step_in(&r, 0);
    step_in(&r, 4000);
    assert_int_equal(counts(&r).step_us, 4000);
    /* Half of the step on top is 20 tokens; the pace of 220 us a token is 4000 / 220 = 18; one prompt beside four rows
     * may take a quarter of the step, 10. */
    submit(&r, 2000, 1);
    assert_int_equal(step_in(&r, 4000 + 3000)->n_prompt_tokens, 20); /* 150 us each */
    assert_int_equal(counts(&r).token_ns, 150000);
    /* 13; now 4000 / (220 - 150) = 57 for the pace, but no more than 2.5 steps: 6000 / 150. */
    assert_int_equal(step_in(&r, 0)->n_prompt_tokens, 40);
    submit(&r, 512, 1); /* with short ones up to three steps: 8000 / 150 */
    const struct plan *p = step_in(&r, 0);
    assert_int_equal(p->n_prompt_tokens, 53);
    assert_int_equal(p->items[4].n_tokens, 40); /* the older and longer one */
    assert_int_equal(p->items[5].n_tokens, 13);
    assert_int_equal(tokens_of(p, run), 1);
    rig_end(&r);
}

static void p9_a_crowd_of_prompts_may_take_as_much_as_the_rows_beside_it(void **state) {
    struct rig r = rig_timed(0, 110);
    submit(&r, 20, 1000);
    step_in(&r, 2000);
    step_in(&r, 4000);
    for (int i = 0; i < 3; i++) submit(&r, 600, 1);
    assert_int_equal(step_in(&r, 0)->n_prompt_tokens, 120); /* 3 * 4000 / 100 */
    rig_end(&r);
}

/* ---- Tenants ---- */

static struct rig rig_shared(uint32_t rows, const struct sched_tenant *tenants, uint32_t n) {
    struct sched_config c = config_of(rows, 64, 64);
    c.tenants = tenants;
    c.tenants_n = n;
    return rig_of(c, 4096, 4096);
}

static sched_row submit_for(struct rig *r, uint32_t tenant, uint32_t prompt_n, uint32_t max_new) {
    return submit_request(r, (struct sched_request){.prompt_n = prompt_n, .max_new = max_new, .tenant = tenant});
}

/* One row at a time, of a single plan each: the order in which tenants have their turns. */
static void assert_turns(struct rig *r, const char *turns) {
    for (; *turns != 0; turns++) {
        const struct plan *p = step(r);
        assert_int_equal(p->n_items, 1);
        const struct row *row = row_at(r->s, sched_row_index(p->items[0].row));
        assert_int_equal('A' + (int)row->tenant, *turns);
        finish(r, p->items[0].row);
        assert_true(pop_gone(r) != 0);
    }
}

static void q_the_tenant_that_was_served_least_is_next(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {1, 0}};
    struct rig r = rig_shared(1, two, 2);
    for (int i = 0; i < 5; i++) submit_for(&r, 0, 10, 1);
    for (int i = 0; i < 2; i++) submit_for(&r, 1, 25, 1); /* later in the line */
    assert_turns(&r, "ABAABAA");                          /* at 0:0, 10:0, 10:25, 20:25, 30:25 */
    rig_end(&r);
}

static void q_weights_divide_the_service(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {4, 0}};
    struct rig r = rig_shared(1, two, 2);
    for (int i = 0; i < 10; i++) submit_for(&r, 0, 40, 1);
    for (int i = 0; i < 10; i++) submit_for(&r, 1, 40, 1);
    assert_turns(&r, "ABBBBABBBBAB");
    rig_end(&r);
}

static void q_who_was_away_has_saved_nothing(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {1, 0}};
    struct rig r = rig_shared(1, two, 2);
    for (int i = 0; i < 9; i++) submit_for(&r, 0, 10, 1);
    assert_turns(&r, "AAAAA");
    for (int i = 0; i < 4; i++) submit_for(&r, 1, 10, 1);
    assert_turns(&r, "ABABABAB");
    for (int i = 0; i < 3; i++) submit_for(&r, 1, 10, 1); /* and who was here alone owes nothing to who comes */
    assert_turns(&r, "BBB");
    rig_end(&r);
}

/* A has one row all the time, B all others. That A was served less is no claim: it never had to wait. */
static void q_who_did_not_have_to_wait_has_saved_nothing(void **state) {
    static const struct sched_tenant three[] = {{1, 0}, {1, 0}, {1, 0}};
    for (int paused = 0; paused < 2; paused++) {
        struct rig r = rig_shared(4, three, 3);
        sched_row a = submit_for(&r, 0, 10, 3000);
        step(&r);
        if (paused) sched_pause(r.s, a, 1);
        sched_row had[3];
        for (int i = 0; i < 3; i++) had[i] = submit_for(&r, 1, 10, 4000);
        for (int k = 0; k < 2000; k++) step(&r);
        uint64_t before = r.s->tenants[1].served;
        uint32_t by = paused ? 2 : 0; /* C was never here, and A's paused row does not speak for it */
        for (int i = 0; i < 16; i++) submit_for(&r, by, 10, 100);
        assert_true(r.s->tenants[by].served == before);
        for (int i = 0; i < 3; i++) finish(&r, had[i]);
        step(&r);
        sched_row b = submit_for(&r, 1, 10, 10);
        for (int k = 0; k < 250 && sched_row_state(r.s, b) == ROW_WAITING; k++) {
            const struct plan *p = step(&r);
            for (uint32_t i = 0; i < p->n_items; i++) {
                const struct row *row = row_at(r.s, sched_row_index(p->items[i].row));
                if (row->next == row->prompt_n + 99) finish(&r, p->items[i].row);
            }
        }
        assert_state(&r, b, ROW_RUNNING); /* when one of the others' rows ends, not after as much as B had */
        rig_end(&r);
    }
}

/* C finds A and B waiting, A below its limit of rows only now and then: it starts level with those who compete. */
static void q_whoever_begins_to_compete_is_level_with_those_who_do(void **state) {
    static const struct sched_tenant three[] = {{1, 1}, {1, 0}, {1, 0}};
    struct rig r = rig_shared(2, three, 3);
    sched_row a = submit_for(&r, 0, 10, 2000);
    submit_for(&r, 0, 10, 2000); /* waits for A's own limit only */
    submit_for(&r, 1, 10, 2000);
    step(&r);
    r.s->tenants[1].served += 5000 * SERVED_UNIT;
    uint64_t most = r.s->tenants[1].served;
    submit_for(&r, 2, 10, 10);
    assert_true(r.s->tenants[2].served == most);
    assert_true(r.s->tenants[0].served == most);
    r.s->tenants[1].served += 300 * SERVED_UNIT;
    finish(&r, a); /* now A competes, with C */
    assert_true(r.s->tenants[0].served == most);
    submit_for(&r, 1, 10, 10);
    assert_true(r.s->tenants[1].served == most + 300 * SERVED_UNIT);
    rig_end(&r);
}

static void q_a_tenants_own_limit_of_rows(void **state) {
    static const struct sched_tenant two[] = {{1, 2}, {1, 0}};
    struct rig r = rig_shared(4, two, 2);
    sched_row a[4], b;
    for (int i = 0; i < 4; i++) a[i] = submit_for(&r, 0, 4, 10);
    b = submit_for(&r, 1, 4, 10);
    const struct plan *p = step(&r);
    assert_int_equal(p->n_items, 3); /* those behind A's are not kept waiting */
    assert_non_null(item_of(p, b));
    assert_state(&r, a[1], ROW_RUNNING);
    assert_state(&r, a[2], ROW_WAITING);
    struct sched_tenant_counts n;
    sched_get_tenant(r.s, 0, &n);
    assert_int_equal(n.rows, 2);
    assert_int_equal(n.waiting, 2);
    finish(&r, a[0]);
    assert_non_null(item_of(step(&r), a[2]));
    rig_end(&r);
}

static void q_priority_orders_a_tenants_own_line(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {1, 0}};
    struct rig r = rig_shared(1, two, 2);
    static const int32_t priority[] = {0, 5, -3, 0, 5, -3};
    static const int order[] = {2, 5, 0, 3, 1, 4};
    sched_row row[6];
    for (int i = 0; i < 6; i++)
        row[i] = submit_request(&r, (struct sched_request){.prompt_n = 5, .max_new = 1, .priority = priority[i]});
    for (int i = 0; i < 6; i++) {
        const struct plan *p = step(&r);
        assert_true(p->items[0].row == row[order[i]]);
        finish(&r, p->items[0].row);
    }
    for (int i = 0; i < 2; i++) submit_request(&r, (struct sched_request){.prompt_n = 5, .max_new = 1, .priority = -9});
    submit_request(&r, (struct sched_request){.prompt_n = 5, .max_new = 1, .priority = 9, .tenant = 1});
    step(&r);
    assert_turns(&r, ""); /* it does not reach into another's line: */
    finish(&r, row_name(r.s, row_at(r.s, r.s->list[LIST_PARKED].first)));
    assert_turns(&r, "BA");
    rig_end(&r);
}

/* One row's place, and A holds it. B waits until A is more than 512 tokens ahead, then A's row makes way. */
static void q_a_tenant_ahead_of_its_share_makes_way(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {1, 0}};
    struct rig r = rig_shared(1, two, 2);
    sched_row a = submit_for(&r, 0, 4, 3000);
    step(&r);
    sched_row b = submit_for(&r, 1, 10, 2000); /* level with A: at 4 tokens */
    for (int k = 0; k < SCHED_SHARE_QUANTUM + 1; k++) assert_int_equal(tokens_of(step(&r), a), 1);
    assert_int_equal(tokens_of(step(&r), b), 10); /* A: 4 + 513 */
    assert_state(&r, a, ROW_WAITING);
    struct sched_history h;
    sched_get_history(r.s, a, &h);
    assert_int_equal(h.preemptions, 1);
    /* A comes again when B is ahead by as much, and is not charged for what it reads again. */
    for (int k = 0; k < 2 * SCHED_SHARE_QUANTUM + 1 - 9; k++) assert_int_equal(tokens_of(step(&r), b), 1);
    assert_int_equal(step(&r)->n_redone, 64);
    assert_state(&r, b, ROW_WAITING);
    uint64_t charged = r.s->tenants[0].served;
    while (sched_row_state(r.s, a) == ROW_PREPARING) step(&r);
    assert_true(r.s->tenants[0].served == charged);
    rig_end(&r);
}

static void q_whoever_came_again_keeps_its_place_for_a_while(void **state) {
    static const struct sched_tenant three[] = {{1, 0}, {1, 0}, {1, 0}};
    struct rig r = rig_shared(1, three, 3);
    sched_row a = submit_for(&r, 0, 4, 3000);
    step(&r);
    struct row *row = row_at(r.s, sched_row_index(a));
    row->preemptions = 1; /* as if it had come again with what it has */
    row->admitted = 1500;
    sched_row b = submit_for(&r, 1, 10, 10);
    r.s->tenants[0].served += UINT64_C(10000) * SERVED_UNIT;
    while (row->next < 1500 + 750) assert_int_equal(tokens_of(step(&r), a), 1); /* half of what it read again */
    assert_int_equal(tokens_of(step(&r), b), 10);
    rig_end(&r);
}

/* The last token of a prompt without an answer is worth as much as any other. */
static void q_a_row_that_came_again_keeps_its_place_for_its_last_token(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {1, 0}};
    struct rig r = rig_shared(1, two, 2);
    sched_row a =
        submit_request(&r, (struct sched_request){.prompt_n = 60, .max_new = 0, .all_outputs = 1, .chunk_max = 59});
    assert_int_equal(tokens_of(step(&r), a), 59);
    row_at(r.s, sched_row_index(a))->preemptions = 1;
    sched_row b = submit_for(&r, 1, 10, 10);
    r.s->tenants[0].served += UINT64_C(10000) * SERVED_UNIT;
    assert_int_equal(tokens_of(step(&r), a), 1);
    finish(&r, a);
    assert_int_equal(tokens_of(step(&r), b), 10);
    rig_end(&r);
}

static void q_nobody_makes_way_inside_a_tenant_or_for_one_that_is_ahead(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {1, 0}};
    struct rig r = rig_shared(1, two, 2);
    sched_row a = submit_for(&r, 0, 4, 2000);
    step(&r);
    submit_for(&r, 0, 4, 2000);
    while (row_at(r.s, sched_row_index(a))->next < 2000) assert_int_equal(tokens_of(step(&r), a), 1);
    r.s->tenants[1].served = r.s->tenants[0].served;
    submit_for(&r, 1, 4, 4);
    assert_int_equal(tokens_of(step(&r), a), 1);
    assert_int_equal(counts(&r).preemptions, 0);
    rig_end(&r);
}

/* K3: a tenant's priorities order its own rows and nobody else's: room is given up by whoever was served most. */
static void q_priority_takes_no_room_from_another_tenant(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {1, 0}};
    struct sched_config c = config_of(4, 16, 256);
    c.tenants = two;
    c.tenants_n = 2;
    struct rig r = rig_of(c, 20, 4096);
    struct sched_request q = {.prompt_n = 20, .max_new = 300, .priority = -100};
    sched_row a = submit_request(&r, q), a2;
    q.prompt_n = 60;
    a2 = submit_request(&r, q);
    sched_row b = submit_for(&r, 1, 10, 300); /* less important, fewer tokens, younger */
    step(&r);
    assert_state(&r, b, ROW_RUNNING);
    while (counts(&r).preemptions == 0) step(&r);
    assert_state(&r, a, ROW_RUNNING);
    assert_state(&r, b, ROW_RUNNING);
    assert_state(&r, a2, ROW_WAITING);
    rig_end(&r);
}

/* P1: long prompts fill the cohort. That keeps out their own tenant, not another's first. */
static void q_long_prompts_of_one_tenant_do_not_keep_out_another(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {1, 0}};
    struct rig r = rig_shared(8, two, 2);
    submit_for(&r, 0, 3000, 1);
    submit_for(&r, 0, 3000, 1);
    sched_row more = submit_for(&r, 0, 10, 1), other = submit_for(&r, 1, 10, 1), second = submit_for(&r, 1, 10, 1);
    step(&r); /* at 0:0 the first tenant is next */
    assert_state(&r, more, ROW_WAITING);
    assert_true(tokens_of(step(&r), other) > 0);
    assert_state(&r, more, ROW_WAITING);
    assert_state(&r, second, ROW_WAITING); /* one of its own prepares by now */
    while (sched_row_state(r.s, other) == ROW_PREPARING) step(&r);
    step(&r);
    assert_state(&r, second, ROW_RUNNING);
    rig_end(&r);
}

/* The head has no room, and A is far ahead, but the cohort would not take the head anyway. */
static void q_nobody_makes_way_for_a_head_that_the_cohort_keeps_out(void **state) {
    static const struct sched_tenant two[] = {{1, 0}, {1, 0}};
    struct rig r = rig_shared(3, two, 2);
    sched_row a = submit_for(&r, 0, 4, 2000);
    step(&r);
    submit_for(&r, 1, 3000, 1);
    submit_for(&r, 1, 3000, 1);
    submit_for(&r, 1, 3000, 1);
    r.s->tenants[0].served += UINT64_C(100000) * SERVED_UNIT;
    for (int k = 0; k < 20; k++) assert_non_null(item_of(step(&r), a));
    assert_int_equal(counts(&r).preemptions, 0);
    assert_int_equal(counts(&r).preparing, 2);
    rig_end(&r);
}

static void q_tenants_out_of_bounds_are_refused(void **state) {
    struct rig r = rig_wide(1, 1, 16);
    struct sched_config c = config_of(1, 1, 16);
    c.pages = r.pages;
    struct sched *s;
    cohort_error err;
    struct sched_tenant wrong[] = {{0, 0}};
    c.tenants = wrong;
    assert_int_equal(sched_new(&c, &s, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "tenants");
    c.tenants_n = 1;
    assert_int_equal(sched_new(&c, &s, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "weight");
    wrong[0].weight = SCHED_WEIGHT_MAX + 1;
    assert_int_equal(sched_new(&c, &s, &err), COHORT_E_ARGUMENT);
    const struct sched_request q = {.prompt_n = 1, .max_new = 1, .tenant = 1};
    assert_int_equal(sched_fits(r.s, &q, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "tenant");
    rig_end(&r);
}

/* ---- P7 ---- */

static void p7_an_item_ends_exactly_at_each_cut_and_says_so_once(void **state) {
    struct rig r = rig_wide(2, 2, 64);
    const struct sched_request q = {.prompt_n = 130, .max_new = 3, .cuts = {30, 31, 100, 130}, .cuts_n = 4};
    sched_row a = submit_request(&r, q);
    static const uint32_t tokens[] = {30, 1, 64, 5, 30};
    static const uint8_t boundary[] = {1, 1, 0, 1, 1};
    for (int k = 0; k < 5; k++) {
        const struct plan_item *item = item_of(step(&r), a);
        assert_int_equal(item->n_tokens, tokens[k]);
        assert_int_equal(item->boundary, boundary[k]);
        assert_int_equal(item->samples, k == 4);
    }
    for (int k = 0; k < 2; k++) assert_int_equal(item_of(step(&r), a)->boundary, 0);
    rig_end(&r);
}

static void p7_cuts_that_are_no_ascending_positions_of_the_prompt_are_refused(void **state) {
    struct rig r = rig_wide(2, 2, 64);
    static const struct sched_request wrong[] = {
        {.prompt_n = 10, .max_new = 1, .cuts = {0}, .cuts_n = 1},
        {.prompt_n = 10, .max_new = 1, .cuts = {11}, .cuts_n = 1},
        {.prompt_n = 10, .max_new = 1, .cuts = {4, 4}, .cuts_n = 2},
        {.prompt_n = 10, .max_new = 1, .cuts = {4, 3}, .cuts_n = 2},
        {.prompt_n = 10, .max_new = 1, .cuts = {1, 2, 3, 4, 5, 6, 7, 8}, .cuts_n = SCHED_CUTS_MAX + 1},
        {.prompt_n = 10, .max_new = 1, .cuts_n = UINT32_MAX},
    };
    cohort_error err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(sched_fits(r.s, &wrong[i], &err), COHORT_E_ARGUMENT);
        assert_string_equal(err.field, "snapshot_at");
    }
    rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p9_the_step_is_smoothed_for_each_number_of_rows),
        cmocka_unit_test(p9_a_target_in_time),
        cmocka_unit_test(p9_prompts_always_get_a_little),
        cmocka_unit_test(p9_without_a_target_or_without_decoding_rows_the_budget_is_used),
        cmocka_unit_test(p9_a_ratio_to_the_step),
        cmocka_unit_test(p9_a_crowd_of_prompts_may_take_as_much_as_the_rows_beside_it),
        cmocka_unit_test(q_the_tenant_that_was_served_least_is_next),
        cmocka_unit_test(q_weights_divide_the_service),
        cmocka_unit_test(q_who_was_away_has_saved_nothing),
        cmocka_unit_test(q_who_did_not_have_to_wait_has_saved_nothing),
        cmocka_unit_test(q_whoever_begins_to_compete_is_level_with_those_who_do),
        cmocka_unit_test(q_a_tenants_own_limit_of_rows),
        cmocka_unit_test(q_priority_orders_a_tenants_own_line),
        cmocka_unit_test(q_a_tenant_ahead_of_its_share_makes_way),
        cmocka_unit_test(q_whoever_came_again_keeps_its_place_for_a_while),
        cmocka_unit_test(q_a_row_that_came_again_keeps_its_place_for_its_last_token),
        cmocka_unit_test(q_nobody_makes_way_inside_a_tenant_or_for_one_that_is_ahead),
        cmocka_unit_test(q_priority_takes_no_room_from_another_tenant),
        cmocka_unit_test(q_long_prompts_of_one_tenant_do_not_keep_out_another),
        cmocka_unit_test(q_nobody_makes_way_for_a_head_that_the_cohort_keeps_out),
        cmocka_unit_test(q_tenants_out_of_bounds_are_refused),
        cmocka_unit_test(p7_an_item_ends_exactly_at_each_cut_and_says_so_once),
        cmocka_unit_test(p7_cuts_that_are_no_ascending_positions_of_the_prompt_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
