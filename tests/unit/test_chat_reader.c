/* Answers in every notation, as models write them, well and badly: the parts that a reader makes of them, and that they
 * do not depend on how the text is cut. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "chat/notation.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"exact\":{\"type\":\"boolean\"},"
    "\"at\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"more\":{\"type\":\"object\"},"
    "\"list\":{\"type\":\"array\"},\"unit\":{\"enum\":[\"C\",\"F\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\"}}]";

struct fixture {
    const char *calls, *reasoning; /* rows */
    const char *prompt;            /* its end */
    const char *text;
    const char *parts; /* R(reasoning) T(text) C(name) A(arguments) E for the end of a call */
};

static const struct fixture fixtures[] = {
#include "chat_fixtures.inc"
};

static const struct chat_format *format_of(const char *calls, const char *reasoning) {
    const struct chat_calls *c = NULL;
    const struct chat_reasoning *w = NULL;
    for (size_t i = 0; i < chat_calls_n; i++)
        if (!strcmp(chat_calls_table[i].name, calls)) c = &chat_calls_table[i];
    for (size_t i = 0; i < chat_reasoning_n; i++)
        if (!strcmp(chat_reasoning_table[i].name, reasoning)) w = &chat_reasoning_table[i];
    assert_true(c || !*calls);
    assert_true(w || !*reasoning);
    const struct chat_format *f = chat_format_make(c, w);
    assert_non_null(f);
    return f;
}

static struct chat_reader *reader_of(const struct chat_format *f, const char *prompt, cohort_tool_choice choice) {
    cohort_chat chat = {.messages = "[]", .messages_n = 2, .ending = 1, .tool_choice = choice};
    chat.tools = tools;
    chat.tools_n = strlen(tools);
    struct chat_wants w = {.chat = &chat, .prompt = prompt, .prompt_n = strlen(prompt)};
    struct chat_reader *r;
    assert_int_equal(chat_reader_make(f, &w, &r, NULL), 0);
    return r;
}

/* Adds the parts to the list; neighbours of one type are one. */
static void take_parts(struct chat_reader *r, struct buf *list, cohort_part_type *open) {
    static const char *const names[] = {"", "T", "R", "C", "A", "E"};
    cohort_part p;
    while (!chat_reader_next(r, &p)) {
        assert_true(utf8_valid(p.bytes, p.len));
        int streamed = p.type != COHORT_PART_CALL && p.type != COHORT_PART_CALL_END;
        if (*open && (*open != p.type || !streamed)) assert_int_equal(buf_adds(list, ")"), 0);
        if (*open != p.type || !streamed) {
            assert_int_equal(buf_adds(list, names[p.type]), 0);
            *open = p.type == COHORT_PART_CALL_END ? 0 : p.type;
            if (*open) assert_int_equal(buf_adds(list, "("), 0);
        }
        assert_int_equal(buf_add(list, p.bytes, p.len), 0);
    }
}

/* `step`: bytes of each piece; 0: random. */
static char *read_in(struct chat_reader *r, const char *text, size_t step, uint64_t seed) {
    struct buf list = {0};
    cohort_part_type open = 0;
    size_t n = strlen(text);
    assert_int_equal(buf_adds(&list, ""), 0);
    for (size_t at = 0; at < n;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t piece = step ? step : 1 + (seed >> 33) % 9;
        if (piece > n - at) piece = n - at;
        assert_int_equal(chat_reader_feed(r, text + at, piece, 0), 0);
        take_parts(r, &list, &open);
        at += piece;
    }
    assert_int_equal(chat_reader_feed(r, "", 0, 1), 0);
    take_parts(r, &list, &open);
    if (open) assert_int_equal(buf_adds(&list, ")"), 0);
    chat_reader_free(r);
    return list.data;
}

static void test_fixtures(void **state) {
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        const struct fixture *x = &fixtures[i];
        const struct chat_format *f = format_of(x->calls, x->reasoning);
        for (size_t cut = 0; cut < 40; cut++) {
            size_t step = cut == 0 ? strlen(x->text) + 1 : cut < 8 ? cut : 0;
            char *got = read_in(reader_of(f, x->prompt, COHORT_TOOLS_AUTO), x->text, step, cut);
            if (strcmp(got, x->parts))
                fail_msg("fixture %zu (%s) cut %zu:\n%s\ngives\n%s\nnot\n%s", i, x->calls, cut, x->text, got, x->parts);
            mem_free(got);
        }
        chat_format_unref(f);
    }
}

/* Every beginning of every answer reads without error, and a call's arguments so far are the beginning of the whole. */
static void test_cut_off(void **state) {
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        const struct fixture *x = &fixtures[i];
        const struct chat_format *f = format_of(x->calls, x->reasoning);
        size_t n = strlen(x->text);
        char *text = mem_alloc(n + 1, 1);
        for (size_t to = 0; to <= n; to++) {
            while (to < n && ((unsigned char)x->text[to] & 0xC0) == 0x80) to++;
            memcpy(text, x->text, to);
            text[to] = 0;
            char *whole = read_in(reader_of(f, x->prompt, COHORT_TOOLS_AUTO), text, to + 1, 0);
            char *bytes = read_in(reader_of(f, x->prompt, COHORT_TOOLS_AUTO), text, 1, 0);
            assert_string_equal(whole, bytes);
            mem_free(whole);
            mem_free(bytes);
        }
        mem_free(text);
        chat_format_unref(f);
    }
}

/* Without calls to look for, what would be one is text; reasoning is still split off. */
static void test_no_calls(void **state) {
    const struct chat_format *f = format_of("hermes", "think");
    const char *text = "<think>a</think>\n\nb <tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
    char *got = read_in(reader_of(f, "", COHORT_TOOLS_NONE), text, 1, 0);
    assert_string_equal(got, "R(a)T(b <tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>)");
    mem_free(got);
    chat_format_unref(f);
}

/* Bytes that are no character become U+FFFD wherever they stand in arguments: they stay JSON, and of their kind. */
static void test_no_characters(void **state) {
    static const struct {
        const char *calls, *text, *parts;
    } cases[] = {
        {"qwen3-coder",
         "<tool_call>\n<function=get_weather>\n<parameter=more>\n{\"\x84k\": [\"\xe2\x82\"]}\n</parameter>\n"
         "</function>\n</tool_call>",
         "C(get_weather)A({\"more\": {\"\xef\xbf\xbdk\": [\"\xef\xbf\xbd\xef\xbf\xbd\"]}})E"},
        {"hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"more\": {\"\x84k\": 1}}}\n</tool_call>",
         "C(get_weather)A({\"more\": {\"\xef\xbf\xbdk\": 1}})E"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct chat_format *f = format_of(cases[i].calls, "think");
        char *got = read_in(reader_of(f, "", COHORT_TOOLS_AUTO), cases[i].text, 1000, 0);
        assert_string_equal(got, cases[i].parts);
        mem_free(got);
        chat_format_unref(f);
    }
}

/* What is held has a bound: a call's beginning that never ends comes out, white space too. */
static void test_bounds(void **state) {
    const struct chat_format *f = format_of("hermes", "think");
    struct buf text = {0};
    assert_int_equal(buf_adds(&text, "x<tool_call>{\"arguments\": {\"a\": \""), 0);
    for (size_t i = 0; i < 40000; i++) assert_int_equal(buf_adds(&text, "b"), 0);
    struct chat_reader *r = reader_of(f, "", COHORT_TOOLS_AUTO);
    size_t out = 0;
    cohort_part p;
    for (size_t i = 0; i < text.len; i++) {
        assert_int_equal(chat_reader_feed(r, text.data + i, 1, 0), 0);
        while (!chat_reader_next(r, &p)) out += p.len;
        assert_true(i + 1 - out <= CHAT_HELD_MAX + 1);
    }
    chat_reader_free(r);
    buf_clear(&text);
    for (size_t i = 0; i < 5000; i++) assert_int_equal(buf_adds(&text, "\n"), 0);
    r = reader_of(f, "", COHORT_TOOLS_AUTO);
    assert_int_equal(chat_reader_feed(r, text.data, text.len, 0), 0);
    out = 0;
    while (!chat_reader_next(r, &p)) out += p.len;
    assert_int_equal(out, 5000 - CHAT_SPACE_MAX);
    chat_reader_free(r);
    buf_free(&text);
    chat_format_unref(f);
}

/* The nth allocation fails, for every n: an error, or the right parts; nothing is left. */
static void test_no_memory(void **state) {
    const struct chat_format *f = format_of("qwen3-coder", "think");
    const char *text = "<think>a</think>b<tool_call>\n<function=get_weather>\n<parameter=city>\nÄ\n</parameter>\n"
                       "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
    cohort_chat chat = {.messages = "[]", .messages_n = 2, .ending = 1};
    chat.tools = tools;
    chat.tools_n = strlen(tools);
    struct chat_wants w = {.chat = &chat, .prompt = "", .prompt_n = 0};
    for (uint64_t n = 1; n < 60; n++) {
        struct chat_reader *r = NULL;
        mem_fail_at(n, 0);
        int e = chat_reader_make(f, &w, &r, NULL);
        if (!e) e = chat_reader_feed(r, text, strlen(text), 1);
        mem_fail_at(0, 0);
        assert_true(e == 0 || e == COHORT_E_MEMORY);
        chat_reader_free(r);
    }
    chat_format_unref(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures),      cmocka_unit_test(test_cut_off), cmocka_unit_test(test_no_calls),
        cmocka_unit_test(test_no_characters), cmocka_unit_test(test_bounds),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
