/* The prefix store: each function, case by case. Rows are played by a small rig that gives every block of a sequence
 * its pages, publishes it and lets go. */

#include "prefix_rig.h"

/* ---- Rows' pages ---- */

static void rows_share_pages_by_reference(void **state) {
    begin_full(2, 4);
    uint32_t a = prefix_alloc(p, 0), b = prefix_alloc(p, 0);
    assert_true(a != b && a != PAGE_NONE && b != PAGE_NONE);
    assert_int_equal(prefix_alloc(p, 0), PAGE_NONE);
    prefix_ref(p, 0, a);
    assert_int_equal(prefix_rows_of(p, 0, a), 2);
    assert_int_equal(prefix_used(p, 0), 2); /* pages, not references */
    prefix_unref(p, 0, a);
    prefix_unref(p, 0, b);
    assert_int_equal(prefix_used(p, 0), 1);
    assert_int_equal(prefix_alloc(p, 0), b);
    prefix_unref(p, 0, a);
    prefix_unref(p, 0, b);
    assert_int_equal(prefix_used(p, 0), 0);
    end();
}

static void without_blocks_rows_still_get_pages(void **state) {
    begin_full(1, 0);
    uint32_t page[1] = {prefix_alloc(p, 0)};
    assert_true(prefix_add(p, SPACE, 0, seq(1, 32), 32, page) == 0);
    assert_true(prefix_restore(p, SPACE, 0, seq(1, 32), 32, 5, 1) == 0);
    assert_int_equal(find(seq(1, 32), 32).tokens, 0);
    prefix_unref(p, 0, page[0]);
    assert_int_equal(pages_available(pages, 0), 1);
    end();
}

static void bad_configurations_are_refused(void **state) {
    cohort_error err;
    struct prefix *none;
    assert_int_equal(pages_new(&pages, 1, (uint32_t[]){1}, NULL), 0);
    struct prefix_config c = {.pages = NULL, .groups = 1};
    assert_int_equal(prefix_new(&c, &none, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "pages");
    c.pages = pages;
    c.groups = 0;
    assert_int_equal(prefix_new(&c, &none, &err), COHORT_E_ARGUMENT);
    c.groups = PAGES_GROUPS_MAX + 1;
    assert_int_equal(prefix_new(&c, &none, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "groups");
    c.groups = 1;
    c.blocks_max = PREFIX_BLOCKS_MAX + 1;
    assert_int_equal(prefix_new(&c, &none, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "blocks_max");
    assert_null(none);
    prefix_free(NULL);
    pages_free(pages);
}

static void every_failing_allocation_is_survived(void **state) {
    assert_int_equal(pages_new(&pages, 2, (uint32_t[]){4, 4}, NULL), 0);
    struct prefix_config c = {.pages = pages, .groups = 2, .group = {{.window = 64}}, .blocks_max = 10};
    int e = COHORT_E_MEMORY;
    for (uint64_t nth = 1; e != 0; nth++) {
        assert_true(nth < 20);
        mem_fail_at(nth, 0);
        e = prefix_new(&c, &p, NULL);
        assert_true(e == 0 || (e == COHORT_E_MEMORY && p == NULL));
    }
    mem_fail_at(0, 0);
    end();
}

static void nothing_is_allocated_after_the_start(void **state) {
    begin_mixed(20, 20);
    uint64_t before = mem_count();
    for (int32_t k = 0; k < 50; k++) {
        const int32_t *t = seq(k, 100);
        uint32_t page[PAGES_GROUPS_MAX] = {prefix_alloc(p, 0), prefix_alloc(p, 1)};
        prefix_block b = prefix_add(p, SPACE, 0, t, 32, page);
        prefix_keep(p, b, 1);
        find(t, 100);
        prefix_unref(p, 0, page[0]);
        prefix_unref(p, 1, page[1]);
    }
    assert_int_equal(mem_count(), before);
    assert_true(counts().evicted > 0);
    end();
}

/* ---- Finding ---- */

static void the_longest_beginning_is_found_token_by_token(void **state) {
    begin_full(20, 20);
    int32_t t[100];
    memcpy(t, seq(1, 100), sizeof t);
    prefix_block last = store(t, 100, 0);
    for (uint32_t n = 0; n <= 100; n++) {
        struct prefix_match m = find(t, n);
        assert_int_equal(m.tokens, n);
        assert_int_equal(m.cold, n);
        assert_true(m.block == m.cold_block);
        if (n > 0) assert_int_equal(view_of(m.block).index, (n - 1) / 32);
    }
    assert_true(find(t, 100).block == last);
    for (uint32_t at = 0; at < 100; at++) { /* one token is different */
        t[at]++;
        assert_int_equal(find(t, 100).tokens, at);
        t[at]--;
    }
    struct prefix_match m;
    prefix_find(p, SPACE + 1, t, 100, &m); /* nothing crosses spaces */
    assert_int_equal(m.tokens, 0);
    assert_true(m.block == 0);
    end();
}

static void a_block_is_found_by_exactly_its_tokens(void **state) {
    begin_full(20, 20);
    const int32_t *t = seq(1, 100);
    prefix_block last = store(t, 74, 0), middle = view_of(last).parent, first = view_of(middle).parent;
    assert_true(prefix_child(p, SPACE, 0, t, 32) == first);
    assert_true(prefix_child(p, SPACE, first, t + 32, 32) == middle);
    assert_true(prefix_child(p, SPACE, middle, t + 64, 10) == last);
    assert_true(prefix_child(p, SPACE, middle, t + 64, 9) == 0);
    assert_true(prefix_child(p, SPACE, middle, t + 64, 11) == 0);
    assert_true(prefix_child(p, SPACE, last, t + 74, 10) == 0);
    assert_true(prefix_child(p, SPACE + 1, 0, t, 32) == 0);
    assert_true(prefix_child(p, SPACE + 1, first, t + 32, 32) == 0);
    end();
}

/* One of many siblings has the most in common, wherever it stands among them. */
static void siblings_are_told_apart(void **state) {
    begin_full(300, 300);
    int32_t t[32];
    for (int32_t k = 0; k < 200; k++) {
        for (int32_t i = 0; i < 32; i++) t[i] = i < 8 ? (k * 77 >> (7 - i)) & 1 : k;
        store(t, 32, 0);
    }
    assert_int_equal(counts().blocks, 200);
    for (int32_t k = 0; k < 200; k++)
        for (uint32_t same = 0; same <= 32; same++) {
            for (uint32_t i = 0; i < 32; i++) t[i] = i >= same ? -1 : i < 8 ? (k * 77 >> (7 - i)) & 1 : k;
            assert_int_equal(find(t, 32).tokens, same);
        }
    end();
}

static void a_window_is_exact_to_the_token(void **state) {
    begin_mixed(20, 20);
    const int32_t *t = seq(1, 320);
    store(t, 300, 1); /* a snapshot in block 9: from position 288 on, so what is behind 288 - 63 */
    for (uint32_t n = 0; n <= 320; n++) {
        /* 225 .. 287 are in blocks 7 and 8, and 9 itself. At 287, position 224 is needed: it is in block 7, too. */
        uint32_t most = n > 300 ? 300 : n;
        assert_int_equal(find(t, n).tokens, most >= 287 ? most : 0);
    }
    assert_int_equal(counts().idle[0], 3);
    assert_int_equal(counts().idle[1], 10);
    end();
}

static void a_cut_takes_the_sibling_that_has_everything(void **state) {
    begin_mixed(20, 20);
    int32_t t[64];
    memcpy(t, seq(1, 64), sizeof t);
    store(t, 64, 1);
    t[60] = -5; /* has more in common with what is asked for, but lost its window */
    store(t, 64, 0);
    t[50] = -1;
    assert_int_equal(find(t, 64).tokens, 50);
    t[50] = 100000 + 50;
    t[61] = -6;
    assert_int_equal(find(t, 64).tokens, 60); /* the first one has 60 */
    end();
}

/* ---- Taking ---- */

static void taking_gives_pages_and_the_one_to_copy(void **state) {
    begin_mixed(20, 20);
    const int32_t *t = seq(1, 200);
    prefix_block last = store(t, 200, 1);
    uint32_t table[7], partial;
    assert_int_equal(prefix_take(p, last, 200, 1, table, &partial), 0);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(prefix_rows_of(p, 1, table[i]), 1);
    assert_int_equal(table[6], PAGE_NONE);
    assert_int_equal(partial, view_of(last).page[1]);
    assert_int_equal(prefix_rows_of(p, 1, partial), 0);
    assert_int_equal(prefix_used(p, 1), 6);
    for (uint32_t i = 0; i < 6; i++) prefix_unref(p, 1, table[i]);
    assert_int_equal(prefix_take(p, last, 200, 0, table, &partial), 4); /* 137 .. 199 */
    assert_int_equal(table[4], view_of(view_of(view_of(last).parent).parent).page[0]);
    assert_int_equal(partial, view_of(last).page[0]);
    prefix_unref(p, 0, table[4]);
    prefix_unref(p, 0, table[5]);
    prefix_block whole = view_of(last).parent; /* at a page's end nothing is copied */
    assert_int_equal(prefix_take(p, whole, 192, 0, table, &partial), 4);
    assert_int_equal(partial, PAGE_NONE);
    prefix_unref(p, 0, table[4]);
    prefix_unref(p, 0, table[5]);
    prefix_remove(p, last);
    table[6] = 12345; /* of a block that is gone nothing is there */
    assert_int_equal(prefix_take(p, last, 200, 1, table, &partial), 0);
    assert_int_equal(table[6], PAGE_NONE);
    assert_int_equal(partial, PAGE_NONE);
    end();
}

/* ---- Storing ---- */

static void equal_blocks_share_one_page(void **state) {
    begin_full(4, 4);
    const int32_t *t = seq(1, 32);
    uint32_t a[1] = {prefix_alloc(p, 0)}, b[1] = {prefix_alloc(p, 0)}, mine = b[0];
    prefix_block first = prefix_add(p, SPACE, 0, t, 32, a);
    assert_true(prefix_add(p, SPACE, 0, t, 32, b) == first);
    assert_int_equal(b[0], a[0]);
    assert_int_equal(prefix_rows_of(p, 0, a[0]), 2);
    assert_int_equal(pages_count(pages, 0, mine), 0);
    assert_true(prefix_add(p, SPACE, 0, t, 32, b) == first); /* again: nothing changes */
    assert_int_equal(prefix_rows_of(p, 0, a[0]), 2);
    prefix_unref(p, 0, a[0]);
    prefix_unref(p, 0, a[0]);
    assert_int_equal(prefix_used(p, 0), 0);
    assert_int_equal(counts().idle[0], 1);
    end();
}

static void a_longer_block_replaces_its_beginning(void **state) {
    begin_mixed(8, 8);
    const int32_t *t = seq(1, 64);
    prefix_block shorter = store(t, 40, 3), longer = store(t, 50, 0);
    struct prefix_view v;
    assert_false(prefix_get(p, shorter, &v));
    assert_true(prefix_get(p, longer, &v));
    assert_int_equal(v.n, 18);
    assert_int_equal(counts().blocks, 2);
    assert_int_equal(counts().snapshots, 1); /* what kept the shorter one keeps this */
    assert_int_equal(find(t, 64).tokens, 50);
    assert_true(store(t, 45, 0) == longer); /* the other way round nothing is added */
    assert_int_equal(find(t, 64).tokens, 50);
    assert_int_equal(counts().idle[1], 2);
    /* without the windowed page nobody can go on there */
    uint32_t page[PAGES_GROUPS_MAX] = {PAGE_NONE, prefix_alloc(p, 1)};
    assert_true(prefix_add(p, SPACE, view_of(longer).parent, t + 32, 32, page) != 0);
    prefix_unref(p, 1, page[1]);
    assert_int_equal(counts().snapshots, 0);
    assert_int_equal(counts().idle[0], 0);
    assert_int_equal(find(t, 64).tokens, 0);
    end();
}

static void nothing_is_stored_behind_what_cannot_carry_it(void **state) {
    begin_full(8, 8);
    const int32_t *t = seq(1, 96);
    uint32_t page[1] = {prefix_alloc(p, 0)};
    prefix_block part = store(t, 40, 0), whole = view_of(part).parent;
    assert_true(prefix_add(p, SPACE, part, t + 40, 32, page) == 0);      /* shorter than a page */
    assert_true(prefix_add(p, SPACE + 1, whole, t + 32, 32, page) == 0); /* of another space */
    assert_true(prefix_set_where(p, whole, 3, 1));
    prefix_remove(p, part);
    for (uint32_t i = 0; i < 7; i++) prefix_alloc(p, 0); /* takes its page; it has a copy */
    assert_int_equal(view_of(whole).page[0], PAGE_NONE);
    assert_true(prefix_add(p, SPACE, whole, t + 32, 32, page) == 0); /* no pages before it */
    prefix_remove(p, whole);
    assert_true(prefix_add(p, SPACE, whole, t + 32, 32, page) == 0); /* gone */
    end();
}

static void snapshots_keep_exactly_their_window(void **state) {
    begin_mixed(20, 20);
    const int32_t *t = seq(1, 320);
    assert_false(prefix_keep(p, 12345, 1));
    prefix_block last = store(t, 320, 0);
    assert_int_equal(counts().idle[0], 0); /* rows let go, nothing kept: they left */
    assert_false(prefix_keep(p, last, 1));
    assert_int_equal(find(t, 320).tokens, 0);
    prefix_remove_space(p, SPACE);
    last = store(t, 320, 1);
    assert_int_equal(counts().snapshots, 1);
    assert_int_equal(counts().idle[0], 3); /* 288 - 63 = 225: blocks 7, 8, 9 */
    assert_true(prefix_keep(p, last, 1));  /* again */
    assert_int_equal(counts().snapshots, 1);
    prefix_remove(p, last);
    assert_int_equal(counts().snapshots, 0);
    assert_int_equal(counts().idle[0], 0);
    assert_int_equal(counts().idle[1], 9);
    end();
}

/* One can go on right before the snapshot's block, and anywhere in it, but nowhere earlier. */
static void every_window_is_kept_whole(void **state) {
    static const uint32_t window[] = {1, 2, 31, 32, 33, 34, 63, 64, 65, 66, 97, 400};
    static const uint32_t kept[] = {2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 10};
    for (size_t i = 0; i < sizeof window / sizeof *window; i++) {
        begin(2, (uint32_t[]){window[i], 0}, (uint32_t[]){20, 20}, 20);
        const int32_t *t = seq(1, 320);
        store(t, 300, 1);
        assert_int_equal(counts().idle[0], kept[i]);
        for (uint32_t n = 288; n <= 300; n++) assert_int_equal(find(t, n).tokens, n);
        assert_int_equal(find(t, 256).tokens, window[i] == 400 ? 256 : 0);
        end();
    }
}

/* Its pages are held by rows or are free for the taking: that a claimed page can be had must not depend on pins. What a
 * pin holds is the block, as long as it has pages of rows or a copy. */
static void pins_hold_a_block_and_all_before_it(void **state) {
    begin_full(4, 8);
    const int32_t *t = seq(1, 96);
    prefix_block last = store(t, 96, 0), path[3] = {view_of(view_of(last).parent).parent, view_of(last).parent, last};
    for (int i = 0; i < 3; i++) assert_int_equal(prefix_set_where(p, path[i], 10 + (uint64_t)i, 1), 1);
    prefix_pin(p, last);
    prefix_pin(p, last);
    for (int i = 0; i < 4; i++) assert_int_not_equal(prefix_alloc(p, 0), PAGE_NONE);
    assert_int_equal(find(t, 96).tokens, 0);
    assert_int_equal(find(t, 96).cold, 96);
    assert_int_equal(prefix_coldest(p), 0);
    prefix_unpin(p, last);
    assert_int_equal(prefix_coldest(p), 0);
    prefix_unpin(p, last);
    assert_int_equal(prefix_coldest(p), last);
    prefix_forget_where(p, last);
    prefix_pin(p, last); /* gone: nothing happens */
    prefix_unpin(p, last);
    assert_int_equal(find(t, 96).cold, 64);
    end();
}

static void removal_takes_all_behind_and_leaves_rows_their_pages(void **state) {
    begin_full(8, 8);
    const int32_t *t = seq(1, 128);
    prefix_block last = store(t, 128, 0), second = view_of(view_of(last).parent).parent;
    uint32_t table[4], partial;
    prefix_take(p, last, 128, 0, table, &partial);
    prefix_pin(p, last);
    prefix_remove(p, second);
    assert_int_equal(counts().blocks, 1);
    assert_int_equal(prefix_used(p, 0), 4);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(prefix_rows_of(p, 0, table[i]), 1);
    assert_int_equal(find(t, 128).tokens, 32);
    prefix_unpin(p, last);
    for (uint32_t i = 0; i < 4; i++) prefix_unref(p, 0, table[i]);
    assert_int_equal(pages_available(pages, 0), 7);
    prefix_remove(p, second); /* gone */
    prefix_remove_space(p, SPACE + 1);
    assert_int_equal(counts().blocks, 1);
    prefix_remove_space(p, SPACE);
    assert_int_equal(counts().blocks, 0);
    end();
}

static void names_are_never_found_again(void **state) {
    begin_full(4, 1);
    prefix_block before = store(seq(1, 32), 32, 0);
    for (int32_t k = 2; k < 100; k++) { /* all in one slot */
        prefix_block b = store(seq(k, 32), 32, 0);
        struct prefix_view v;
        assert_false(prefix_get(p, before, &v));
        assert_true(prefix_get(p, b, &v));
        assert_int_equal(v.tokens[0], k * 100000);
        before = b;
    }
    end();
}

static void more_spaces_than_places_push_out_the_one_used_longest_ago(void **state) {
    begin_full(PREFIX_SPACES_MAX + 10, PREFIX_SPACES_MAX + 10);
    const int32_t *t = seq(1, 32);
    struct prefix_match m;
    for (uint64_t space = 0; space < PREFIX_SPACES_MAX; space++) {
        uint32_t page[1] = {prefix_alloc(p, 0)};
        assert_true(prefix_add(p, space, 0, t, 32, page) != 0);
        prefix_unref(p, 0, page[0]);
    }
    uint32_t table[1], partial;
    prefix_find(p, 0, t, 32, &m);
    prefix_take(p, m.block, 32, 0, table, &partial); /* 0 is used, 1 is pinned */
    prefix_find(p, 1, t, 32, &m);
    prefix_pin(p, m.block);
    uint32_t page[1] = {prefix_alloc(p, 0)};
    assert_true(prefix_add(p, 1 << 20, 0, t, 32, page) != 0);
    for (uint64_t space = 0; space < 4; space++) {
        prefix_find(p, space, t, 32, &m);
        assert_int_equal(m.tokens, space == 2 ? 0 : 32);
    }
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_share_pages_by_reference),
        cmocka_unit_test(without_blocks_rows_still_get_pages),
        cmocka_unit_test(bad_configurations_are_refused),
        cmocka_unit_test(every_failing_allocation_is_survived),
        cmocka_unit_test(nothing_is_allocated_after_the_start),
        cmocka_unit_test(the_longest_beginning_is_found_token_by_token),
        cmocka_unit_test(a_block_is_found_by_exactly_its_tokens),
        cmocka_unit_test(siblings_are_told_apart),
        cmocka_unit_test(a_window_is_exact_to_the_token),
        cmocka_unit_test(a_cut_takes_the_sibling_that_has_everything),
        cmocka_unit_test(taking_gives_pages_and_the_one_to_copy),
        cmocka_unit_test(equal_blocks_share_one_page),
        cmocka_unit_test(a_longer_block_replaces_its_beginning),
        cmocka_unit_test(nothing_is_stored_behind_what_cannot_carry_it),
        cmocka_unit_test(snapshots_keep_exactly_their_window),
        cmocka_unit_test(every_window_is_kept_whole),
        cmocka_unit_test(pins_hold_a_block_and_all_before_it),
        cmocka_unit_test(removal_takes_all_behind_and_leaves_rows_their_pages),
        cmocka_unit_test(names_are_never_found_again),
        cmocka_unit_test(more_spaces_than_places_push_out_the_one_used_longest_ago),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
