/* Unit tests of src/base except fmath. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/meta.h"
#include "base/real.h"
#include "base/rng.h"
#include "base/utf8.h"

/* ---- UTF-8 ---- */

static int decode(const char *s, size_t n, uint32_t *cp) {
    /* A copy of exact size, so that a sanitizer sees any read behind the end. */
    char *copy = malloc(n ? n : 1);
    memcpy(copy, s, n);
    int length = utf8_decode(copy, n, cp);
    free(copy);
    return length;
}

static void utf8_boundaries(void **state) {
    static const struct {
        const char *bytes;
        int length;
        uint32_t cp;
    } good[] = {{"\x7f", 1, 0x7f},
                {"\xc2\x80", 2, 0x80},
                {"\xdf\xbf", 2, 0x7ff},
                {"\xe0\xa0\x80", 3, 0x800},
                {"\xed\x9f\xbf", 3, 0xd7ff},
                {"\xee\x80\x80", 3, 0xe000},
                {"\xef\xbf\xbf", 3, 0xffff},
                {"\xf0\x90\x80\x80", 4, 0x10000},
                {"\xf4\x8f\xbf\xbf", 4, 0x10ffff}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint32_t cp;
        size_t n = strlen(good[i].bytes);
        assert_int_equal(decode(good[i].bytes, n, &cp), good[i].length);
        assert_int_equal(cp, good[i].cp);
        for (size_t cut = 1; cut < n; cut++) {
            assert_int_equal(decode(good[i].bytes, cut, &cp), -1);
            assert_int_equal(utf8_tail(good[i].bytes, cut), cut);
            assert_false(utf8_valid(good[i].bytes, cut));
        }
        assert_int_equal(utf8_tail(good[i].bytes, n), 0);
        assert_true(utf8_valid(good[i].bytes, n));
    }
    uint32_t cp;
    assert_int_equal(decode("\0", 1, &cp), 1);
    assert_int_equal(cp, 0);
}

static void utf8_bad_sequences(void **state) {
    static const char *const bad[] = {
        "\x80",         "\xbf",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x80\x80", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xfe",         "\xf4\x90\x80\x80",
        "\xf5\x80",     "\xff",         "\xc2\x41",         "\xe1\x80\x41",     "\xe1\xc0",     "\xf1\x80\x80\xc0",
        "\xe0\x9f",     "\xed\xa0",     "\xf0\x8f",         "\xf4\x90"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint32_t cp;
        assert_int_equal(decode(bad[i], strlen(bad[i]), &cp), 0);
        assert_false(utf8_valid(bad[i], strlen(bad[i])));
        assert_int_equal(utf8_tail(bad[i], strlen(bad[i])), 0);
    }
}

static void utf8_round_trip(void **state) {
    for (uint32_t cp = 0; cp < 0x110100; cp++) {
        char bytes[4];
        int n = utf8_encode(cp, bytes);
        if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff)) {
            assert_int_equal(n, 0);
            continue;
        }
        uint32_t back;
        assert_int_equal(n, cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_decode(bytes, (size_t)n, &back), n);
        assert_int_equal(back, cp);
    }
    assert_int_equal(utf8_encode(UINT32_MAX, (char[4]){0}), 0);
}

static void utf8_valid_looks_everywhere(void **state) {
    char text[40];
    for (size_t at = 0; at < sizeof(text); at++) {
        memset(text, 'a', sizeof(text));
        assert_true(utf8_valid(text, sizeof(text)));
        text[at] = (char)0xff;
        assert_false(utf8_valid(text, sizeof(text)));
    }
    assert_true(utf8_valid("", 0));
    assert_int_equal(utf8_tail("", 0), 0);
    assert_int_equal(utf8_tail("abc\xf0\x90\x80", 6), 3);
    assert_int_equal(utf8_tail("abc\xe2\x82", 5), 2);
    assert_int_equal(utf8_tail("\x80\x80\x80\x80", 4), 0);
}

/* ---- Errors ---- */

static void error_names(void **state) {
    assert_string_equal(cohort_error_name(COHORT_OK), "OK");
    assert_string_equal(cohort_error_name(COHORT_E_BUSY), "E_BUSY");
    assert_string_equal(cohort_error_text(COHORT_E_BUSY), "waiting line is full");
    assert_string_equal(cohort_error_name(COHORT_E_INTERNAL), "E_INTERNAL");
    assert_string_equal(cohort_error_name(-999), "E_UNKNOWN");
    assert_string_equal(cohort_error_text(1), "unknown error");
}

static void error_text_is_one_clean_line(void **state) {
    cohort_error err;
    assert_int_equal(err_set(&err, COHORT_E_FILE, "key", "a\nb\x1b[31m\x01\xff\xc3\xa9\xc2\x85 %d", 7), COHORT_E_FILE);
    assert_int_equal(err.code, COHORT_E_FILE);
    assert_string_equal(err.field, "key");
    assert_string_equal(err.text, "a b?[31m??\xc3\xa9? 7");
    assert_int_equal(err_set(NULL, COHORT_E_IO, NULL, "x"), COHORT_E_IO);
    assert_int_equal(err_prefix(NULL, COHORT_E_IO, "x"), COHORT_E_IO);
    assert_int_equal(err_prefix(&err, COHORT_E_IO, "dir/f.gguf"), COHORT_E_FILE);
    assert_string_equal(err.text, "dir/f.gguf: a b?[31m??\xc3\xa9? 7");
    err_set(&err, COHORT_E_FILE, NULL, "plain");
    assert_string_equal(err.field, "");
}

static void error_text_is_cut_at_a_character(void **state) {
    struct {
        cohort_error err;
        char behind[8];
    } box;
    memset(&box, 'c', sizeof(box));
    char text[4000];
    for (size_t i = 0; i + 2 < sizeof(text); i += 2) memcpy(text + i, "\xc3\xa9", 3);
    for (int shift = 0; shift < 2; shift++) {
        err_set(&box.err, COHORT_E_FILE, text, "%s%s", shift ? "x" : "", text);
        assert_true(utf8_valid(box.err.text, strlen(box.err.text)));
        assert_true(utf8_valid(box.err.field, strlen(box.err.field)));
        assert_true(strlen(box.err.text) >= sizeof(box.err.text) - 3);
        assert_true(strlen(box.err.field) >= sizeof(box.err.field) - 3);
    }
    assert_memory_equal(box.behind, "cccccccc", 8);
    err_set(&box.err, COHORT_E_FILE, NULL, "the reason");
    err_prefix(&box.err, COHORT_E_FILE, text);
    assert_non_null(strstr(box.err.text, ": the reason"));
    assert_true(utf8_valid(box.err.text, strlen(box.err.text)));
}

/* ---- Memory ---- */

static void mem_sizes(void **state) {
    assert_null(mem_alloc(SIZE_MAX / 2, 3));
    assert_null(mem_zalloc(SIZE_MAX, SIZE_MAX));
    assert_null(mem_realloc(NULL, SIZE_MAX / 4, 8));
    assert_null(mem_aligned(SIZE_MAX, 1));
    void *a = mem_alloc(0, 8), *b = mem_alloc(8, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
    for (size_t n = 1; n < 300; n += 37) {
        void *p = mem_aligned(n, 1);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, n);
        mem_free(p);
    }
    unsigned char *z = mem_zalloc(100, 3);
    for (int i = 0; i < 300; i++) assert_int_equal(z[i], 0);
    mem_free(z);
    unsigned char *m = mem_map(1 << 20);
    assert_int_equal((uintptr_t)m % 4096, 0);
    assert_int_equal(m[123456], 0);
    mem_unmap(m, 1 << 20);
    mem_unmap(NULL, 5);
    size_t out;
    assert_int_equal(size_mul(SIZE_MAX, 1, &out), 0);
    assert_int_equal(size_mul(SIZE_MAX / 2 + 1, 2, &out), -1);
    assert_int_equal(size_add(SIZE_MAX, 0, &out), 0);
    assert_int_equal(size_add(SIZE_MAX, 1, &out), -1);
}

static void mem_failure_hook(void **state) {
    uint64_t before = mem_count();
    mem_fail_at(2, 0);
    void *a = mem_alloc(1, 1), *b = mem_zalloc(1, 1), *c = mem_alloc(1, 1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    mem_fail_at(2, 1);
    void *d = mem_realloc(a, 2, 1);
    assert_non_null(d);
    assert_null(mem_realloc(d, 3, 1));
    assert_null(mem_aligned(1, 1));
    assert_null(mem_map(1));
    mem_fail_at(0, 0);
    assert_int_equal(mem_count() - before, 7);
    void *e = mem_alloc(1, 1);
    assert_non_null(e);
    mem_free(c);
    mem_free(d);
    mem_free(e);
}

/* ---- Buffers ---- */

static void buf_grows_and_stays_terminated(void **state) {
    struct buf b = {0};
    char expected[3001];
    for (int i = 0; i < 300; i++) {
        assert_int_equal(buf_addf(&b, "%09d;", i), 0);
        snprintf(expected + 10 * i, 11, "%09d;", i);
        assert_int_equal(b.len, 10 * (i + 1));
        assert_int_equal(b.data[b.len], 0);
    }
    assert_string_equal(b.data, expected);
    size_t cap = b.cap;
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    assert_int_equal(b.cap, cap);
    assert_int_equal(buf_add(&b, "a\0b", 3), 0);
    assert_memory_equal(b.data, "a\0b", 4);
    assert_int_equal(buf_add(&b, NULL, 0), 0);
    buf_free(&b);
    assert_null(b.data);
    buf_free(&b);
    buf_clear(&b);
}

static void buf_limits(void **state) {
    struct buf b = {.max = 10};
    assert_int_equal(buf_adds(&b, "0123456789"), 0);
    assert_int_equal(buf_adds(&b, "x"), COHORT_E_LIMIT);
    assert_int_equal(buf_addf(&b, "%d", 1), COHORT_E_LIMIT);
    assert_int_equal(buf_json_string(&b, "", 0), COHORT_E_LIMIT);
    assert_int_equal(buf_add(&b, "", SIZE_MAX), COHORT_E_LIMIT);
    assert_string_equal(b.data, "0123456789");
    buf_clear(&b);
    assert_int_equal(buf_json_string(&b, "12345678", 8), 0);
    buf_clear(&b);
    assert_int_equal(buf_adds(&b, "ab"), 0);
    assert_int_equal(buf_json_string(&b, "12\n567", 6), COHORT_E_LIMIT);
    assert_string_equal(b.data, "ab");
    mem_fail_at(1, 1);
    b.max = 0;
    char big[200] = {0};
    assert_int_equal(buf_add(&b, big, sizeof(big)), COHORT_E_MEMORY);
    assert_string_equal(b.data, "ab");
    mem_fail_at(0, 0);
    buf_free(&b);
}

static void buf_json(void **state) {
    static const char in[] =
        "a\"b\\c/\n\r\t\x01\x1f\x7f\0\xc2\x9b\xc3\xa9\xff.\xe2\x82.\xf0\x90\x80\xed\xa0\x80\xf0\x9f";
    static const char out[] = "\"a\\\"b\\\\c/\\n\\r\\t\\u0001\\u001f\\u007f\\u0000\\u009b\xc3\xa9\xef\xbf\xbd."
                              "\xef\xbf\xbd.\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"";
    struct buf b = {0};
    assert_int_equal(buf_json_string(&b, in, sizeof(in) - 1), 0);
    assert_string_equal(b.data, out);
    buf_clear(&b);
    assert_int_equal(buf_json_string(&b, "", 0), 0);
    assert_string_equal(b.data, "\"\"");
    buf_free(&b);
}

/* ---- Random numbers ---- */

/* Known answers of Philox 4x32-10 from the authors' Random123 distribution. */
static void rng_known_answers(void **state) {
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        rng_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof(out));
    }
    assert_true(rng_u64(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) == 0x94fdccebd16cfe09);
    assert_true(rng_unit(0, 0, 0) == (double)(0xe169c58d6627e8d5 >> 11) / 9007199254740992.0);
}

static void rng_draws_differ_and_spread(void **state) {
    assert_true(rng_u64(1, 0, 0) != rng_u64(0, 1, 0));
    assert_true(rng_u64(0, 1, 0) != rng_u64(0, 0, 1));
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = rng_unit(42, 7, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.005);
    assert_true(rng_entropy() != rng_entropy());
}

/* ---- Element types, clock ---- */

static void dtype_table(void **state) {
    assert_string_equal(dtype_info(DTYPE_Q4_K)->name, "Q4_K");
    assert_int_equal(dtype_info(DTYPE_Q4_K)->block_elements, 256);
    assert_int_equal(dtype_info(DTYPE_Q4_K)->block_bytes, 144);
    assert_string_equal(dtype_info(0)->name, "F32");
    static const uint32_t none[] = {4, 5, 31, 32, 33, 36, 37, 38, 63, 64, 65, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) assert_null(dtype_info(none[i]));
}

static void clock_is_monotonic(void **state) {
    uint64_t last = clock_us();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_us();
        assert_true(now >= last);
        last = now;
    }
}

/* ---- Metadata ---- */

#define KEY(text)                                                                                                      \
    { text, sizeof(text) - 1 }
static const struct meta_string text_value = {"hi\0there", 8};
/* Values start at an odd address, as they may in a file. */
static const char u8_bytes[] = "\xfe", i8_bytes[] = "\xfe", i32_bytes[] = "_\xff\xff\xff\xff",
                  u64_big[] = "_\xff\xff\xff\xff\xff\xff\xff\xff", u64_edge[] = "_\xff\xff\xff\xff\0\0\0\0",
                  f32_bytes[] = "_\0\0\xc0\x3f", f32_nan[] = "_\0\0\xc0\x7f", f64_huge[] = "_\0\0\0\0\0\0\xf0\x7e",
                  i16_array[] = "_\x01\0\xff\xff\0\x80", bool_bad[] = "\2", bool_true[] = "\1";
static const struct meta_entry entries[] = {
    {KEY("u8"), META_U8, 0, 1, u8_bytes},
    {KEY("i8"), META_I8, 0, 1, i8_bytes},
    {KEY("i32"), META_I32, 0, 1, i32_bytes + 1},
    {KEY("u64.big"), META_U64, 0, 1, u64_big + 1},
    {KEY("u64.edge"), META_U64, 0, 1, u64_edge + 1},
    {KEY("f32"), META_F32, 0, 1, f32_bytes + 1},
    {KEY("f32.nan"), META_F32, 0, 1, f32_nan + 1},
    {KEY("f64.huge"), META_F64, 0, 1, f64_huge + 1},
    {KEY("true"), META_BOOL, 0, 1, bool_true},
    {KEY("bool.bad"), META_BOOL, 0, 1, bool_bad},
    {KEY("text"), META_STRING, 0, 1, &text_value},
    {KEY("array"), META_ARRAY, META_I16, 3, i16_array + 1},
};
static const struct meta meta = {entries, sizeof(entries) / sizeof(entries[0])};

static void meta_good_values(void **state) {
    uint64_t u64 = 0;
    uint32_t u32 = 0;
    float f32 = 0;
    int flag = 0;
    struct meta_string text;
    assert_int_equal(meta_u64(&meta, "u8", &u64, NULL), 0);
    assert_int_equal(u64, 254);
    assert_int_equal(meta_u64(&meta, "u64.big", &u64, NULL), 0);
    assert_true(u64 == UINT64_MAX);
    assert_int_equal(meta_u32(&meta, "u64.edge", &u32, NULL), 0);
    assert_int_equal(u32, UINT32_MAX);
    assert_int_equal(meta_f32(&meta, "f32", &f32, NULL), 0);
    assert_true(f32 == 1.5f);
    assert_int_equal(meta_bool(&meta, "true", &flag, NULL), 0);
    assert_int_equal(flag, 1);
    assert_int_equal(meta_string(&meta, "text", &text, NULL), 0);
    assert_int_equal(text.len, 8);
    assert_ptr_equal(text.bytes, text_value.bytes);
    const struct meta_entry *array = meta_find(&meta, "array");
    assert_int_equal(meta_entry_i64(array, 0), 1);
    assert_int_equal(meta_entry_i64(array, 1), -1);
    assert_int_equal(meta_entry_i64(array, 2), -32768);
    assert_true(meta_entry_f64(array, 2) == -32768.0);
    assert_int_equal(meta_entry_i64(meta_find(&meta, "i8"), 0), -2);
    assert_int_equal(meta_entry_i64(meta_find(&meta, "i32"), 0), -1);
    assert_true(meta_entry_i64(meta_find(&meta, "u64.big"), 0) == INT64_MAX);
    assert_true(meta_entry_f64(meta_find(&meta, "u64.big"), 0) == 18446744073709551616.0);
    assert_int_equal(meta_entry_i64(meta_find(&meta, "true"), 0), 1);
    assert_int_equal(meta_entry_string(meta_find(&meta, "text"), 0)->len, 8);
}

static void meta_bad_values(void **state) {
    uint64_t u64 = 77;
    uint32_t u32 = 77;
    float f32 = 77;
    int flag = 77;
    struct meta_string text = {"old", 3};
    cohort_error err = {.code = 5};
    assert_int_equal(meta_u64(&meta, "absent", &u64, &err), COHORT_E_NOT_FOUND);
    assert_int_equal(meta_string(&meta, "tex", &text, &err), COHORT_E_NOT_FOUND);
    assert_int_equal(err.code, 5);
#define BAD(call, key)                                                                                                 \
    do {                                                                                                               \
        memset(&err, 0, sizeof(err));                                                                                  \
        assert_int_equal(call, COHORT_E_FILE);                                                                         \
        assert_int_equal(err.code, COHORT_E_FILE);                                                                     \
        assert_string_equal(err.field, key);                                                                           \
        assert_non_null(strstr(err.text, key));                                                                        \
    } while (0)
    BAD(meta_u64(&meta, "i8", &u64, &err), "i8");
    BAD(meta_u64(&meta, "i32", &u64, &err), "i32");
    BAD(meta_u64(&meta, "f32", &u64, &err), "f32");
    BAD(meta_u64(&meta, "true", &u64, &err), "true");
    BAD(meta_u64(&meta, "array", &u64, &err), "array");
    BAD(meta_u32(&meta, "u64.big", &u32, &err), "u64.big");
    BAD(meta_f32(&meta, "f32.nan", &f32, &err), "f32.nan");
    BAD(meta_f32(&meta, "f64.huge", &f32, &err), "f64.huge");
    BAD(meta_f32(&meta, "u8", &f32, &err), "u8");
    BAD(meta_bool(&meta, "bool.bad", &flag, &err), "bool.bad");
    BAD(meta_bool(&meta, "u8", &flag, &err), "u8");
    BAD(meta_string(&meta, "array", &text, &err), "array");
    assert_true(u64 == 77 && u32 == 77 && f32 == 77 && flag == 77 && text.len == 3);
}

static void reals_are_as_short_as_they_can_be(void **state) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {0.0, "0.0"},
                 {-0.0, "-0.0"},
                 {1.0, "1.0"},
                 {100000.0, "100000.0"},
                 {1e15, "1000000000000000.0"},
                 {1e16, "1e+16"},
                 {1.5e-7, "1.5e-07"},
                 {0.0001, "0.0001"},
                 {-123.456, "-123.456"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {5e-324, "5e-324"},
                 {1.7976931348623157e308, "1.7976931348623157e+308"}};
    char text[REAL_TEXT_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        real_text(text, cases[i].value);
        assert_string_equal(text, cases[i].text);
    }
    char json[] = "{\"0.10000000000000001\\\"\": [0.10000000000000001, 17, -0.69999999999999996,1e2,\"\\\\\", 2.5]}";
    assert_string_equal(real_shorten_json(json), "{\"0.10000000000000001\\\"\": [0.1, 17, -0.7,1e2,\"\\\\\", 2.5]}");
    assert_null(real_shorten_json(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_boundaries),
        cmocka_unit_test(utf8_bad_sequences),
        cmocka_unit_test(utf8_round_trip),
        cmocka_unit_test(utf8_valid_looks_everywhere),
        cmocka_unit_test(error_names),
        cmocka_unit_test(error_text_is_one_clean_line),
        cmocka_unit_test(error_text_is_cut_at_a_character),
        cmocka_unit_test(mem_sizes),
        cmocka_unit_test(mem_failure_hook),
        cmocka_unit_test(buf_grows_and_stays_terminated),
        cmocka_unit_test(buf_limits),
        cmocka_unit_test(buf_json),
        cmocka_unit_test(reals_are_as_short_as_they_can_be),
        cmocka_unit_test(rng_known_answers),
        cmocka_unit_test(rng_draws_differ_and_spread),
        cmocka_unit_test(dtype_table),
        cmocka_unit_test(clock_is_monotonic),
        cmocka_unit_test(meta_good_values),
        cmocka_unit_test(meta_bad_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
