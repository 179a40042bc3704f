/* S1 - S8, P7, T2: what rows take from the prefix store, leave there and lend each other. Rows have real tokens; a
 * generated one is a number made of its position, so that equal prompts go on equally. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/sched.h"
#include "sched/sched_internal.h"
#include "sched_rig.h"

enum { ROWS = 64, TEXT = 4096, WINDOW = 64 };

/* ---- A world with tokens ---- */

static struct {
    int32_t tokens[TEXT];
    uint32_t n;
} texts[ROWS]; /* by row index */

static struct {
    struct sched_copy copy[64];
    uint32_t copies;
    struct sched_load load;
    struct sched_load_block blocks[128];
    uint32_t loads;
} seen; /* since the last turn began */

static const int32_t *tokens_of_row(void *user, sched_row row, uint32_t *n) {
    (void)user;
    *n = texts[sched_row_index(row)].n;
    return texts[sched_row_index(row)].tokens;
}

static struct rig rig_storing(uint32_t rows, uint32_t batch, uint32_t full, uint32_t windowed) {
    struct sched_config c = config_of(rows, 16, batch);
    c.group[1].window = windowed;
    c.tokens = tokens_of_row;
    return rig_of(c, full, full);
}

/* 1,000 pages in each group; both full, so that every place is one to go on. */
static struct rig rig_full(uint32_t rows, uint32_t batch) { return rig_storing(rows, batch, 1000, 0); }

/* The first `shared` tokens of text `a`, then `n - shared` of text `b`. */
struct prompt {
    uint32_t a, shared, b, n;
};

static sched_row submit_text(struct rig *r, struct prompt p, struct sched_request q) {
    sched_row row = reserve(r);
    uint32_t i = sched_row_index(row);
    assert_true(i < ROWS && p.n <= TEXT);
    for (uint32_t k = 0; k < p.n; k++) texts[i].tokens[k] = (int32_t)((k < p.shared ? p.a : p.b) * 10000 + k);
    texts[i].n = p.n;
    q.prompt_n = p.n - q.resumed;
    if (q.space == 0) q.space = 7;
    assert_int_equal(sched_submit(r->s, row, &q, NULL), 0);
    assert_true(sched_check(r->s));
    return row;
}

static sched_row submit_new(struct rig *r, struct prompt p, uint32_t max_new) {
    return submit_text(r, p, (struct sched_request){.max_new = max_new});
}

static void collect(struct rig *r) {
    struct sched_load load;
    seen.copies = seen.loads = 0;
    while (sched_pop_copy(r->s, &seen.copy[seen.copies])) seen.copies++;
    while (sched_pop_load(r->s, &load)) {
        seen.load = load;
        memcpy(seen.blocks, load.blocks, load.n * sizeof *load.blocks);
        seen.loads++;
    }
    assert_true(sched_check(r->s));
}

static const struct plan *begin(struct rig *r) {
    const struct plan *p = plan(r);
    collect(r);
    return p;
}

static void end(struct rig *r, const struct plan *p) {
    commit(r, p);
    for (uint32_t i = 0; i < p->n_items; i++) {
        uint32_t row = sched_row_index(p->items[i].row);
        if (!p->items[i].samples) continue;
        texts[row].tokens[texts[row].n] = 1000000 + (int32_t)texts[row].n;
        texts[row].n++;
    }
}

static const struct plan *turn(struct rig *r) {
    const struct plan *p = begin(r);
    if (p != NULL) end(r, p);
    return p;
}

/* Turns until the row has planned its last token; then it ends. Returns its prompt tokens in plans. */
static uint32_t run(struct rig *r, sched_row row) {
    uint32_t read = 0;
    const struct row *it = row_at(r->s, sched_row_index(row));
    while (!(it->state == ROW_RUNNING && row_spent(it))) {
        const struct plan_item *item = item_of(turn(r), row);
        if (item != NULL && item->source == PLAN_PROMPT) read += item->n_tokens;
    }
    finish(r, row);
    return read;
}

static uint32_t run_new(struct rig *r, struct prompt p, uint32_t max_new) {
    uint32_t read = run(r, submit_new(r, p, max_new));
    while (pop_gone(r) != 0) continue;
    return read;
}

static uint32_t cached(struct rig *r, sched_row row) {
    struct sched_history h;
    sched_get_history(r->s, row, &h);
    return h.cached;
}

static struct prefix_counts store(struct rig *r) {
    struct prefix_counts n;
    prefix_get_counts(r->prefix, &n);
    return n;
}

static struct sched_counts counts(struct rig *r) {
    struct sched_counts n;
    sched_get_counts(r->s, &n);
    return n;
}

static const uint32_t *table(struct rig *r, sched_row row, uint32_t g) {
    return row_table(r->s, row_at(r->s, sched_row_index(row)), g);
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

static uint32_t warm(struct rig *r, struct prompt p) {
    sched_row row = submit_new(r, p, 2);
    const struct plan_item *item = item_of(begin(r), row);
    uint32_t pos = item->pos;
    end(r, plan_at(r->s, r->s->planned));
    run(r, row);
    while (pop_gone(r) != 0) continue;
    return pos;
}

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
        cmocka_unit_test(s1_cold_then_warm),
        cmocka_unit_test(s1_an_exact_repeat_computes_one_token),
        cmocka_unit_test(s1_one_token_is_nothing_to_take),
        cmocka_unit_test(s1_a_cut_inside_a_block_is_one_copy),
        cmocka_unit_test(s1_whole_blocks_need_no_copy),
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
        cmocka_unit_test(s6_the_store_goes_before_anybody_is_preempted),
        cmocka_unit_test(s8_sixteen_equal_prompts_are_read_once),
        cmocka_unit_test(s8_followers_of_a_window),
        cmocka_unit_test(s8_rooms_for_followers_are_small),
        cmocka_unit_test(s8_a_leader_that_ends_leaves_its_place),
        cmocka_unit_test(s8_a_leader_that_is_unsound_leaves_nothing),
        cmocka_unit_test(s8_a_leader_that_sleeps_is_not_waited_for),
        cmocka_unit_test(s8_a_leader_that_is_preempted_leaves_its_place),
        cmocka_unit_test(s8_followers_go_on_in_their_order),
        cmocka_unit_test(s8_a_follower_ends),
        cmocka_unit_test(s8_outputs_everywhere_take_nothing),
        cmocka_unit_test(s8_a_preempted_row_finds_its_state_again),
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
