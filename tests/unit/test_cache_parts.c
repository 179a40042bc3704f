/* The tables of the engine's half of the prefix store: spaces by name, blocks by record. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/records.h"
#include "engine/spaces.h"

static uint64_t next(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

/* ---- records ---- */

enum { MOST = 300, IDS = 900 };

static void test_records_equal_an_array(void **state) {
    struct records r;
    uint64_t truth[IDS + 1] = {0}, n = 0, x = 7;
    assert_int_equal(records_init(&r, MOST), 0);
    for (int step = 0; step < 200000; step++) {
        uint64_t id = 1 + next(&x) % IDS, block = 1 + next(&x);
        if (next(&x) % 2 && (truth[id] || n < MOST)) {
            assert_true(records_put(&r, id, block));
            n += !truth[id];
            truth[id] = block;
        } else {
            records_drop(&r, id);
            n -= truth[id] != 0;
            truth[id] = 0;
        }
        assert_int_equal(r.n, n);
        if (step % 997 == 0)
            for (uint64_t i = 1; i <= IDS; i++) assert_int_equal(records_get(&r, i), truth[i]);
    }
    records_deinit(&r);
}

static void test_records_that_are_full_say_so(void **state) {
    struct records r;
    uint64_t id = 0;
    assert_int_equal(records_init(&r, 10), 0);
    while (records_put(&r, id + 1, 1)) id++;
    assert_true(id >= 10);
    assert_true(records_put(&r, id, 5)); /* one that is there */
    assert_int_equal(records_get(&r, id), 5);
    assert_int_equal(records_get(&r, id + 1), 0);
    records_deinit(&r);
}

/* ---- spaces ---- */

static uint64_t take(struct spaces *s, const char *tenant, const char *salt, uint64_t *dropped) {
    struct space_name name;
    space_name_make(&name, tenant, salt, strlen(salt));
    return spaces_take(s, &name, (uint32_t)tenant[0], dropped);
}

static void test_S2_spaces_differ_by_every_part_and_its_length(void **state) {
    struct spaces *s = spaces_new();
    uint64_t dropped, a = take(s, "a", "", &dropped);
    assert_true(a > 0);
    assert_int_equal(take(s, "a", "", &dropped), a);
    assert_int_not_equal(take(s, "b", "", &dropped), a);
    assert_int_not_equal(take(s, "a", "x", &dropped), a);
    /* What one part says cannot be read as the other's. */
    assert_int_not_equal(take(s, "a", ";salt:1:x", &dropped), take(s, "a;salt:1:x", "", &dropped));
    assert_int_not_equal(take(s, "a;salt:0:", "", &dropped), a);
    assert_null(spaces_name(s, 0));
    assert_null(spaces_name(s, 999));
    assert_memory_equal(spaces_name(s, a)->bytes, "tenant:1:a;salt:0:", spaces_name(s, a)->n);
    spaces_free(s);
}

static void test_a_space_that_nobody_holds_makes_room(void **state) {
    struct spaces *s = spaces_new();
    uint64_t dropped, first = 0;
    char salt[16];
    for (int i = 0; i < SPACES_MAX; i++) {
        snprintf(salt, sizeof(salt), "%d", i);
        uint64_t space = take(s, "t", salt, &dropped);
        assert_true(space > 0 && dropped == 0);
        if (i == 0) first = space;
    }
    assert_int_equal(take(s, "t", "one more", &dropped), 0); /* all are held */
    assert_int_equal(dropped, 0);
    spaces_leave(s, first);
    uint64_t space = take(s, "t", "one more", &dropped);
    assert_true(space > SPACES_MAX); /* a number is never used again */
    assert_int_equal(dropped, first);
    assert_null(spaces_name(s, first));
    spaces_free(s);
}

static void test_L2_a_tenant_with_many_spaces_loses_its_own(void **state) {
    struct spaces *s = spaces_new();
    uint64_t dropped, other = take(s, "b", "", &dropped);
    char salt[16];
    spaces_leave(s, other); /* the oldest, and nobody's */
    for (int i = 0; i < SPACES_MAX + 100; i++) {
        snprintf(salt, sizeof(salt), "%d", i);
        uint64_t space = take(s, "a", salt, &dropped);
        assert_true(space > 0 && dropped != other);
        spaces_leave(s, space);
    }
    assert_non_null(spaces_name(s, other));
    spaces_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_equal_an_array),
        cmocka_unit_test(test_records_that_are_full_say_so),
        cmocka_unit_test(test_S2_spaces_differ_by_every_part_and_its_length),
        cmocka_unit_test(test_L2_a_tenant_with_many_spaces_loses_its_own),
        cmocka_unit_test(test_a_space_that_nobody_holds_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
