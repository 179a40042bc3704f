/* The prefix store when pages run short, and what it knows of copies elsewhere. */

#include "prefix_rig.h"

/* ---- Eviction ---- */

static void leaves_go_first_and_those_used_longest_ago(void **state) {
    begin_full(6, 20);
    int32_t a[96], b[96];
    memcpy(a, seq(1, 96), sizeof a);
    memcpy(b, seq(2, 96), sizeof b);
    store(a, 96, 0);
    store(b, 96, 0);
    use(a, 96); /* now b is the older one, and used less */
    prefix_unref(p, 0, prefix_alloc(p, 0));
    assert_int_equal(find(a, 96).tokens, 96);
    assert_int_equal(find(b, 96).tokens, 64);
    for (uint32_t i = 0; i < 3; i++) prefix_alloc(p, 0);
    assert_int_equal(find(a, 96).tokens, 96);
    assert_int_equal(find(b, 96).tokens, 0);
    assert_int_equal(counts().evicted, 3);
    end();
}

/* A row holds the page of a block, but not of the one before it, and pinned neither. */
static void an_idle_page_before_one_in_use_is_found(void **state) {
    begin_full(2, 20);
    const int32_t *t = seq(1, 64);
    prefix_block last = store(t, 64, 0);
    uint32_t table[2], partial;
    prefix_take(p, last, 64, 0, table, &partial);
    prefix_unref(p, 0, table[0]);
    assert_int_equal(prefix_alloc(p, 0), table[0]);
    assert_int_equal(prefix_rows_of(p, 0, table[1]), 1);
    assert_int_equal(prefix_alloc(p, 0), PAGE_NONE);
    end();
}

static void hot_prefixes_survive_a_scan(void **state) {
    begin_full(64, 1000);
    int32_t hot[512];
    memcpy(hot, seq(-1, 512), sizeof hot);
    store(hot, 512, 0);
    for (int32_t k = 0; k < 2000; k++) { /* 2,000 prompts of 3 pages: 125 times what is left of the pool */
        store(seq(k, 96), 96, 0);
        if (k % 10 == 0) use(hot, 512);
    }
    assert_int_equal(find(hot, 512).tokens, 512);
    assert_int_equal(counts().idle[0], 64);
    for (int32_t k = 0; k < 40000 && find(hot, 512).tokens > 0; k++) store(seq(k, 96), 96, 0);
    assert_int_equal(find(hot, 512).tokens, 0); /* what is never used again goes in the end */
    end();
}

static void weight_holds_longer(void **state) {
    begin_full(8, 100);
    const int32_t *a = seq(-1, 32), *b = seq(-2, 32);
    prefix_block x = store(a, 32, 0), y = store(b, 32, 4);
    struct prefix_view v;
    int32_t k = 0, gone[2] = {0, 0};
    for (; k < 1000 && (gone[0] == 0 || gone[1] == 0); k++) {
        store(seq(k, 32), 32, 0);
        if (gone[0] == 0 && !prefix_get(p, x, &v)) gone[0] = k;
        if (gone[1] == 0 && !prefix_get(p, y, &v)) gone[1] = k;
    }
    assert_true(gone[0] > 0 && gone[1] >= 3 * gone[0]);
    end();
}

static void a_snapshot_far_from_its_predecessor_survives_a_near_one(void **state) {
    begin_mixed(40, 400);
    int32_t far[960], near[960];
    memcpy(far, seq(1, 960), sizeof far);
    memcpy(near, seq(2, 960), sizeof near);
    prefix_block first = store(far, 928, 1); /* used longest ago, but far from 0 */
    store(near, 864, 1);
    prefix_block second = store(near, 928, 1); /* 64 tokens behind its predecessor */
    uint32_t rest = pages_available(pages, 0);
    for (uint32_t i = 0; i < rest; i++) assert_int_not_equal(prefix_alloc(p, 0), PAGE_NONE);
    assert_int_equal(counts().snapshots, 3);
    assert_int_not_equal(prefix_alloc(p, 0), PAGE_NONE);
    assert_int_equal(counts().snapshots, 2);
    assert_int_equal(counts().evicted_snapshots, 1);
    assert_int_equal(find(far, 960).tokens, 928);
    assert_int_equal(find(near, 960).tokens, 864);
    struct prefix_view v;
    assert_true(prefix_get(p, first, &v) && prefix_get(p, second, &v)); /* full pages stay */
    end();
}

/* Going on right behind a block is a use of the snapshot in the next one. */
static void a_snapshot_that_is_used_survives_one_that_is_not(void **state) {
    begin_mixed(12, 100);
    int32_t a[128], b[128];
    memcpy(a, seq(1, 128), sizeof a);
    memcpy(b, seq(2, 128), sizeof b);
    store(a, 128, 1);
    store(b, 128, 1);
    for (int i = 0; i < 3; i++) use(a, 96);
    while (counts().snapshots == 2) prefix_alloc(p, 0);
    assert_int_equal(find(a, 96).tokens, 96);
    assert_int_equal(find(b, 96).tokens, 0);
    end();
}

static void a_snapshot_that_frees_nothing_is_passed_over(void **state) {
    begin_mixed(7, 100);
    int32_t a[96], b[96];
    memcpy(a, seq(1, 96), sizeof a);
    memcpy(b, seq(2, 96), sizeof b);
    store(a, 96, 1);
    store(b, 96, 1);
    struct prefix_match m = find(a, 96);
    uint32_t table[3], partial; /* a row holds the older one's pages */
    assert_int_equal(prefix_take(p, m.block, 96, 0, table, &partial), 1);
    prefix_alloc(p, 0);
    assert_int_equal(counts().snapshots, 2);
    assert_int_not_equal(prefix_alloc(p, 0), PAGE_NONE);
    assert_int_equal(find(a, 96).tokens, 96);
    assert_int_equal(find(b, 96).tokens, 0);
    prefix_alloc(p, 0);
    prefix_alloc(p, 0);
    assert_int_not_equal(prefix_alloc(p, 0), PAGE_NONE); /* the page of a's first block: rows hold only two */
    assert_int_equal(prefix_alloc(p, 0), PAGE_NONE);
    assert_int_equal(prefix_used(p, 0), 7);
    assert_int_equal(counts().snapshots, 0);
    end();
}

/* Two snapshots keep the same idle pages, and what the one keeps alone a row holds: one must go to free anything. */
static void snapshots_that_share_everything_go_one_after_another(void **state) {
    begin_mixed(3, 100);
    const int32_t *t = seq(1, 64);
    prefix_block last = store(t, 64, 1);
    assert_true(prefix_keep(p, view_of(last).parent, 1));
    uint32_t table[2], partial;
    prefix_take(p, last, 64, 0, table, &partial);
    prefix_unref(p, 0, table[0]); /* idle, and kept twice */
    assert_int_not_equal(prefix_alloc(p, 0), PAGE_NONE);
    assert_int_equal(counts().snapshots, 2);
    assert_int_not_equal(prefix_alloc(p, 0), PAGE_NONE);
    assert_int_equal(counts().snapshots, 0);
    assert_int_equal(prefix_alloc(p, 0), PAGE_NONE);
    end();
}

static void blocks_run_out_without_harm(void **state) {
    begin_full(100, 5);
    int32_t a[160];
    memcpy(a, seq(1, 160), sizeof a);
    prefix_block last = store(a, 160, 0);
    prefix_pin(p, last);
    uint32_t page[1] = {prefix_alloc(p, 0)};
    assert_true(prefix_add(p, SPACE, 0, seq(2, 32), 32, page) == 0); /* all pinned */
    prefix_unpin(p, last);
    assert_true(prefix_add(p, SPACE, 0, seq(2, 32), 32, page) != 0);
    assert_int_equal(find(a, 160).tokens, 128);
    assert_int_equal(counts().blocks, 5);
    end();
}

/* Without full groups a block on the way to a snapshot has nothing, and goes with it. */
static void windowed_models_keep_the_way_to_a_snapshot_only(void **state) {
    begin(1, (uint32_t[]){64}, (uint32_t[]){40}, 100);
    const int32_t *t = seq(1, 640);
    store(t, 640, 1);
    assert_int_equal(counts().blocks, 20);
    assert_int_equal(counts().resident, 3);
    assert_int_equal(find(t, 640).tokens, 640);
    store(seq(2, 640), 640, 0);
    assert_int_equal(counts().blocks, 20);
    while (counts().snapshots > 0) prefix_alloc(p, 0);
    assert_int_equal(counts().blocks, 0);
    end();
}

/* ---- Copies elsewhere ---- */

static void fresh_blocks_are_told_once_parents_first(void **state) {
    begin_mixed(20, 20);
    const int32_t *t = seq(1, 128);
    uint32_t groups_told;
    prefix_block last = store(t, 128, 0), b;
    for (uint32_t i = 0; i < 4; i++) {
        b = prefix_next_fresh(p, &groups_told);
        assert_int_equal(view_of(b).index, i);
        assert_int_equal(groups_told, 2);
    }
    assert_true(b == last && prefix_next_fresh(p, &groups_told) == 0);
    assert_true(store(t, 128, 1) == last); /* now with a snapshot: blocks 1, 2, 3 */
    for (uint32_t i = 1; i < 4; i++) {
        b = prefix_next_fresh(p, &groups_told);
        assert_int_equal(view_of(b).index, i);
        assert_int_equal(groups_told, 1);
    }
    assert_true(prefix_next_fresh(p, &groups_told) == 0);
    const int32_t *u = seq(2, 32); /* what left in the meantime is not told */
    prefix_remove(p, store(u, 32, 1));
    assert_true(prefix_next_fresh(p, &groups_told) == 0);
    end();
}

static void windowed_models_tell_the_way_to_what_is_fresh(void **state) {
    begin(1, (uint32_t[]){64}, (uint32_t[]){40}, 100);
    uint32_t groups_told;
    store(seq(1, 160), 160, 1);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(view_of(prefix_next_fresh(p, &groups_told)).index, i);
        assert_int_equal(groups_told, i < 2 ? 0 : 1);
    }
    assert_true(prefix_next_fresh(p, &groups_told) == 0);
    end();
}

static void cold_blocks_are_found_and_loaded(void **state) {
    begin_full(4, 20);
    int32_t t[128];
    memcpy(t, seq(1, 128), sizeof t);
    prefix_block last = store(t, 128, 0), b = last;
    for (uint64_t where = 4; where > 0; where--, b = view_of(b).parent) assert_true(prefix_set_where(p, b, where, 1));
    assert_int_equal(counts().cold, 4);
    uint32_t page[3];
    for (uint32_t i = 0; i < 3; i++) page[i] = prefix_alloc(p, 0);
    struct prefix_match m = find(t, 128);
    assert_int_equal(m.tokens, 32);
    assert_int_equal(m.cold, 128);
    assert_true(m.cold_block == last);
    assert_int_equal(find(t, 95).cold, 32); /* 63 more are not worth it */
    assert_int_equal(find(t, 96).cold, 96);
    uint32_t table[4], partial;
    assert_int_equal(prefix_take(p, m.cold_block, 128, 0, table, &partial), 0);
    assert_int_not_equal(table[0], PAGE_NONE);
    for (uint32_t i = 1; i < 4; i++) assert_int_equal(table[i], PAGE_NONE);
    b = m.block; /* what was loaded into the row's pages enters the cold blocks */
    for (uint32_t i = 0; i < 3; i++) b = prefix_add(p, SPACE, b, t + 32 * (i + 1), 32, &page[i]);
    assert_true(b == last);
    assert_int_equal(find(t, 128).tokens, 128);
    assert_int_equal(counts().blocks, 4);
    uint32_t told;
    assert_true(prefix_next_fresh(p, &told) == 0); /* there are copies already */
    end();
}

static void a_copy_without_all_full_groups_does_not_carry_a_block(void **state) {
    begin(2, (uint32_t[]){0, 0}, (uint32_t[]){1, 1}, 20);
    prefix_block b = store(seq(1, 32), 32, 0);
    assert_true(prefix_set_where(p, b, 5, 1)); /* one of two */
    prefix_alloc(p, 0);
    assert_int_equal(counts().blocks, 0);
    assert_int_equal(prefix_next_dropped(p), 5);
    assert_false(prefix_set_where(p, b, 5, 3));
    end();
}

static void copies_go_where_they_are_worth_least(void **state) {
    begin_full(8, 20);
    int32_t t[96];
    memcpy(t, seq(1, 96), sizeof t);
    prefix_block last = store(t, 96, 0), middle = view_of(last).parent, first = view_of(middle).parent;
    prefix_block other = store(seq(2, 32), 32, 0);
    assert_true(prefix_coldest(p) == 0);
    prefix_set_where(p, first, 1, 1);
    assert_true(prefix_coldest(p) == first);
    prefix_set_where(p, last, 3, 1);
    assert_true(prefix_coldest(p) == last); /* first has one behind it */
    prefix_set_where(p, other, 4, 1);
    use(t, 96);
    assert_true(prefix_coldest(p) == other);
    prefix_pin(p, other);
    assert_true(prefix_coldest(p) == last);
    prefix_forget_where(p, last);
    assert_true(prefix_coldest(p) == first);
    assert_int_equal(counts().blocks, 4); /* all have pages */
    assert_int_equal(counts().cold, 2);
    end();
}

static void a_block_without_pages_or_copy_is_gone_with_all_behind(void **state) {
    begin_full(4, 20);
    prefix_block a = prefix_restore(p, SPACE, 0, seq(1, 96), 32, 1, 1);
    prefix_block b = prefix_restore(p, SPACE, a, seq(1, 96) + 32, 32, 2, 1);
    prefix_block c = prefix_restore(p, SPACE, b, seq(1, 96) + 64, 10, 3, 1);
    assert_true(a != 0 && b != 0 && c != 0);
    assert_int_equal(find(seq(1, 96), 96).tokens, 0);
    assert_int_equal(find(seq(1, 96), 96).cold, 74);
    assert_true(prefix_restore(p, SPACE, b, seq(1, 96) + 64, 10, 9, 1) == 0); /* another copy of the same */
    assert_true(prefix_restore(p, SPACE, b, seq(1, 96) + 64, 5, 9, 1) == 0);  /* of its beginning */
    assert_true(prefix_restore(p, SPACE, c, seq(1, 96) + 74, 5, 9, 1) == 0);  /* behind a part */
    assert_true(prefix_restore(p, SPACE, b, seq(2, 96), 5, 9, 0) == 0);       /* of nothing */
    prefix_block longer = prefix_restore(p, SPACE, b, seq(1, 96) + 64, 20, 4, 1);
    assert_true(longer != 0);
    assert_int_equal(prefix_next_dropped(p), 3);
    assert_int_equal(prefix_next_dropped(p), 0);
    prefix_forget_where(p, b);
    assert_int_equal(counts().blocks, 1);
    assert_int_equal(prefix_next_dropped(p), 4);
    assert_int_equal(prefix_next_dropped(p), 0);
    end();
}

static void names_of_copies_are_told_from_the_end_when_blocks_go(void **state) {
    begin_full(4, 4);
    prefix_block last = store(seq(1, 96), 96, 0), b = last;
    for (uint64_t where = 3; where > 0; where--, b = view_of(b).parent) prefix_set_where(p, b, where, 1);
    prefix_remove_space(p, SPACE);
    assert_true(prefix_check(p));
    for (uint64_t where = 3; where > 0; where--) assert_int_equal(prefix_next_dropped(p), where);
    assert_int_equal(prefix_next_dropped(p), 0);
    assert_int_equal(counts().cold, 0);
    last = store(seq(2, 128), 128, 0); /* and their places can be used */
    prefix_set_where(p, last, 9, 1);
    prefix_remove(p, last);
    store(seq(3, 32), 32, 0); /* if nobody asked in time */
    assert_int_equal(prefix_next_dropped(p), 0);
    end();
}

/* A group of 4 pages for first blocks, another for all later ones. */
static uint32_t store_ranged(const int32_t *tokens, uint32_t blocks) {
    uint32_t page[2], held[8];
    prefix_block block = 0;
    for (uint32_t i = 0; i < blocks; i++) {
        page[0] = i == 0 ? prefix_alloc(p, 0) : PAGE_NONE;
        page[1] = i == 0 ? PAGE_NONE : prefix_alloc(p, 1);
        held[i] = page[i > 0];
        assert_int_not_equal(held[i], PAGE_NONE);
        block = prefix_add(p, SPACE, block, tokens + i * PAGE_TOKENS, PAGE_TOKENS, page);
    }
    for (uint32_t i = 0; i < blocks; i++) prefix_unref(p, i > 0, held[i]);
    assert_true(prefix_check(p));
    return blocks * PAGE_TOKENS;
}

/* When the first blocks' pages run out, one conversation goes and the others keep all they have. */
static void a_beginning_goes_with_its_own_path_only(void **state) {
    groups = 2;
    assert_int_equal(pages_new(&pages, 2, (uint32_t[]){4, 100}, NULL), 0);
    struct prefix_config config = {.pages = pages, .groups = 2, .blocks_max = 100, .seed = 99};
    config.group[0].end = config.group[1].begin = 1;
    assert_int_equal(prefix_new(&config, &p, NULL), 0);
    int32_t text[5][256];
    for (int32_t i = 0; i < 5; i++) memcpy(text[i], seq(i, 256), sizeof text[i]);
    for (int i = 0; i < 4; i++) store_ranged(text[i], 8);
    for (int i = 1; i < 4; i++)
        for (uint32_t g = 0; g < 2; g++) { /* used again, but for the first */
            uint32_t table[8], partial, first = prefix_take(p, find(text[i], 256).block, 256, g, table, &partial);
            for (uint32_t k = first; k < (g == 0 ? 1U : 8U); k++) prefix_unref(p, g, table[k]);
        }
    store_ranged(text[4], 8);
    assert_int_equal(find(text[0], 256).tokens, 0);
    for (int i = 1; i < 5; i++) assert_int_equal(find(text[i], 256).tokens, 256);
    assert_int_equal(counts().evicted, 8);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_go_first_and_those_used_longest_ago),
        cmocka_unit_test(an_idle_page_before_one_in_use_is_found),
        cmocka_unit_test(a_beginning_goes_with_its_own_path_only),
        cmocka_unit_test(hot_prefixes_survive_a_scan),
        cmocka_unit_test(weight_holds_longer),
        cmocka_unit_test(a_snapshot_far_from_its_predecessor_survives_a_near_one),
        cmocka_unit_test(a_snapshot_that_is_used_survives_one_that_is_not),
        cmocka_unit_test(a_snapshot_that_frees_nothing_is_passed_over),
        cmocka_unit_test(snapshots_that_share_everything_go_one_after_another),
        cmocka_unit_test(blocks_run_out_without_harm),
        cmocka_unit_test(windowed_models_keep_the_way_to_a_snapshot_only),
        cmocka_unit_test(fresh_blocks_are_told_once_parents_first),
        cmocka_unit_test(windowed_models_tell_the_way_to_what_is_fresh),
        cmocka_unit_test(cold_blocks_are_found_and_loaded),
        cmocka_unit_test(a_copy_without_all_full_groups_does_not_carry_a_block),
        cmocka_unit_test(copies_go_where_they_are_worth_least),
        cmocka_unit_test(a_block_without_pages_or_copy_is_gone_with_all_behind),
        cmocka_unit_test(names_of_copies_are_told_from_the_end_when_blocks_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
