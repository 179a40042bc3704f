/* The traceparent header: what its grammar allows, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/traceparent.h"

#define TRACE  "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static int parse(const char *header, struct trace_context *out) {
    return traceparent_parse(header, strlen(header), out);
}

static void what_is_well_formed_is_read(void **state) {
    struct trace_context c;
    static const uint8_t trace[] = {0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6,
                                    0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36};
    static const uint8_t parent[] = {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7};
    assert_true(parse("00-" TRACE "-" PARENT "-01", &c));
    assert_memory_equal(c.trace_id, trace, sizeof trace);
    assert_memory_equal(c.parent_id, parent, sizeof parent);
    assert_int_equal(c.flags, 1);
    assert_true(parse("00-" TRACE "-" PARENT "-fe", &c));
    assert_int_equal(c.flags, 0xfe);
    /* Later versions: what they begin with. */
    assert_true(parse("01-" TRACE "-" PARENT "-00", &c));
    assert_true(parse("fe-" TRACE "-" PARENT "-00-and-more", &c));
}

static void all_else_is_not(void **state) {
    static const char *const wrong[] = {
        "",
        "00",
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-01-",
        "00-" TRACE "-" PARENT "-01-more",
        "00-" TRACE "-" PARENT "-01 ",
        " 00-" TRACE "-" PARENT "-01",
        "ff-" TRACE "-" PARENT "-01",
        "0G-" TRACE "-" PARENT "-01",
        "01-" TRACE "-" PARENT "-01more",
        "00_" TRACE "-" PARENT "-01",
        "00-" TRACE "_" PARENT "-01",
        "00-" TRACE "-" PARENT "_01",
        "00-" TRACE "-" PARENT "-0x",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01",
        "00-" TRACE "-00F067AA0BA902B7-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-" PARENT "-010",
        "00-" TRACE "-00f067aa0ba902b--01",
    };
    struct trace_context c = {.flags = 7};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (parse(wrong[i], &c)) fail_msg("taken: %s", wrong[i]);
    assert_int_equal(c.flags, 7);
}

static void a_byte_more_or_less_is_not(void **state) {
    static const char good[] = "00-" TRACE "-" PARENT "-01";
    struct trace_context c;
    for (size_t n = 0; n < sizeof good - 1; n++) assert_false(traceparent_parse(good, n, &c));
    assert_true(traceparent_parse(good, sizeof good - 1, &c));
}

static void it_is_written_as_version_00(void **state) {
    struct trace_context c;
    char header[TRACEPARENT_LEN + 1];
    static const uint8_t span[8] = {1, 2, 3, 4, 0xab, 0xcd, 0xef, 0xff};
    assert_true(parse("05-" TRACE "-" PARENT "-ff-x", &c));
    traceparent_format(&c, span, header);
    assert_string_equal(header, "00-" TRACE "-01020304abcdefff-01");
    c.flags = 2;
    traceparent_format(&c, span, header);
    assert_string_equal(header, "00-" TRACE "-01020304abcdefff-00");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_well_formed_is_read),
        cmocka_unit_test(all_else_is_not),
        cmocka_unit_test(a_byte_more_or_less_is_not),
        cmocka_unit_test(it_is_written_as_version_00),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
