/* Incremental text: random tokens and stop strings against a naive model that sees everything at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/detok.h"
#include "tiny_vocab.h"

static struct tiny_vocab v;
static uint64_t draws;
static uint32_t draw(uint32_t n) { return (uint32_t)(rng_u64(11, 0, draws++) % n); }

/* Tokens that are bytes, and some longer ones that begin or end inside characters. */
static struct tokenizer *open_pieces(void) {
    tiny_init(&v, "gpt2");
    tiny_add_alphabet(&v);
    tiny_add(&v, "<end>", 3, 0); /* 256: no text */
    tiny_add(&v, "Ġab", 1, 0);   /* " ab" */
    tiny_add(&v, "âĤ", 1, 0);    /* E2 82 */
    tiny_add(&v, "¬a", 1, 0);    /* AC 'a' */
    tiny_add(&v, "bâ", 1, 0);    /* 'b' E2 */
    tiny_add(&v, "ĤÃ", 1, 0);    /* 82 C3 */
    tiny_add(&v, "ðŁĺ", 1, 0);   /* F0 9F 98 */
    tiny_add(&v, "abcab", 1, 0); /* 263 */
    return tiny_open(&v);
}

/* The whole text at once: characters as they are, every other byte as U+FFFD. */
static void naive_text(struct buf *out, const struct tokenizer *t, const int32_t *ids, size_t n, int strip) {
    struct buf raw = {0};
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t len;
        tokenizer_piece(t, ids[i], 0, &bytes, &len);
        assert_int_equal(buf_add(&raw, bytes, len), 0);
    }
    size_t i = strip && raw.len && raw.data[0] == ' ';
    while (i < raw.len) {
        uint32_t cp;
        int len = utf8_decode(raw.data + i, raw.len - i, &cp);
        if (len > 0)
            buf_add(out, raw.data + i, (size_t)len);
        else
            buf_adds(out, "\xef\xbf\xbd");
        i += len > 0 ? (size_t)len : 1;
    }
    if (!out->data) buf_adds(out, "");
    buf_free(&raw);
}

/* Where the first stop string is complete: the least end; of several the longest, then the first. */
static int naive_stop(const struct buf *text, const struct detok_stop *stops, uint32_t n, size_t *begin) {
    for (size_t end = 1; end <= text->len; end++) {
        int best = -1;
        for (uint32_t k = 0; k < n; k++)
            if (stops[k].len <= end && (best < 0 || stops[k].len > stops[best].len) &&
                memcmp(text->data + end - stops[k].len, stops[k].bytes, stops[k].len) == 0)
                best = (int)k;
        if (best >= 0) {
            *begin = end - stops[best].len;
            return best;
        }
    }
    return -1;
}

static void set_stop(struct detok_stop *stop, const char *text) {
    stop->len = (uint16_t)strlen(text);
    memcpy(stop->bytes, text, stop->len);
}

/* Pushes tokens up to a match and checks that every piece is whole characters. *pushed counts them. */
static int push_all(struct detok *d, const int32_t *ids, size_t n, struct buf *out, size_t *pushed) {
    for (size_t i = 0; i < n; i++) {
        size_t before = out->len;
        int stop = detok_push(d, ids[i], out);
        assert_true(stop != DETOK_NO_MEMORY);
        assert_true(utf8_valid(out->data + before, out->len - before));
        *pushed = i + 1;
        if (stop >= 0) return stop;
        if (d->stops_n == 0) assert_int_equal(d->pending_n, 0);
    }
    assert_int_equal(detok_finish(d, out), 0);
    return DETOK_NONE;
}

static void check(const struct tokenizer *t, const int32_t *ids, size_t n, const struct detok_stop *stops,
                  uint32_t stops_n, int strip) {
    struct buf whole = {0}, out = {0}, before = {0};
    struct detok d;
    size_t begin = 0, pushed = 0, unused;
    naive_text(&whole, t, ids, n, strip);
    int want = naive_stop(&whole, stops, stops_n, &begin);
    detok_init(&d, t, stops, stops_n, strip);
    assert_int_equal(push_all(&d, ids, n, &out, &pushed), want);
    assert_int_equal(out.len, want >= 0 ? begin : whole.len);
    assert_memory_equal(out.data, whole.data, out.len);
    naive_text(&before, t, ids, want >= 0 ? pushed - 1 : 0, strip); /* it stopped at the first token it could */
    assert_int_equal(naive_stop(&before, stops, stops_n, &unused), -1);
    buf_free(&whole);
    buf_free(&out);
    buf_free(&before);
}

static void test_random(void **state) {
    static const char *const letters[] = {"a", "b", "c", "\xc3\xa9", "\xe2\x82\xac", " "};
    static const int32_t often[] = {'a',  'b', 'c', ' ', 0xc3, 0xa9, 0xe2, 0x82,
                                    0xac, 257, 258, 259, 260,  261,  262,  263};
    struct tokenizer *t = open_pieces();
    for (int round = 0; round < 20000; round++) {
        struct detok_stop stops[DETOK_STOPS_MAX];
        int32_t ids[40];
        uint32_t stops_n = draw(4), n = draw(40);
        for (uint32_t k = 0; k < stops_n; k++) {
            stops[k].len = 0;
            for (uint32_t i = 0, len = 1 + draw(5); i < len; i++) {
                const char *letter = letters[draw(round % 2 ? 6 : 3)];
                memcpy(stops[k].bytes + stops[k].len, letter, strlen(letter));
                stops[k].len = (uint16_t)(stops[k].len + strlen(letter));
            }
        }
        for (uint32_t i = 0; i < n; i++)
            ids[i] =
                draw(8) ? often[draw(round % 2 ? 16 : 3)] : (int32_t)draw(264); /* bytes of all kinds now and then */
        check(t, ids, n, stops, stops_n, (int)draw(2));
    }
    tokenizer_close(t);
}

static const char *pushed(struct detok *d, int32_t id, int stop) {
    static struct buf out;
    buf_clear(&out);
    buf_adds(&out, "");
    assert_int_equal(detok_push(d, id, &out), stop);
    return out.data;
}

static void test_rules(void **state) {
    struct tokenizer *t = open_pieces();
    struct detok_stop stops[3];
    struct detok d, copy;
    struct buf out = {0};
    detok_init(&d, t, NULL, 0, 1);
    assert_string_equal(pushed(&d, 256, -1), "");
    assert_string_equal(pushed(&d, 257, -1), "ab");  /* the first text loses its space, */
    assert_string_equal(pushed(&d, 257, -1), " ab"); /* only the first */
    assert_string_equal(pushed(&d, 258, -1), "");
    copy = d; /* a clone goes its own way */
    assert_string_equal(pushed(&d, 259, -1), "\xe2\x82\xac"
                                             "a");
    assert_string_equal(pushed(&copy, 'x', -1), "\xef\xbf\xbd\xef\xbf\xbdx"); /* one per byte that came to nothing */
    assert_string_equal(pushed(&copy, 0xff, -1), "\xef\xbf\xbd");             /* never UTF-8: at once */
    assert_string_equal(pushed(&copy, 262, -1), "");
    assert_int_equal(detok_finish(&copy, &out), 0);
    assert_string_equal(out.data, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");

    set_stop(&stops[0], "abcd");
    set_stop(&stops[1], "bc");
    set_stop(&stops[2], "abc");
    detok_init(&d, t, stops, 1, 0);
    assert_string_equal(pushed(&d, 263, -1), "abc"); /* "abcab": the second "ab" may still match */
    assert_string_equal(pushed(&d, 'x', -1), "abx");
    assert_string_equal(pushed(&d, 263, -1), "abc");
    assert_string_equal(pushed(&d, 'c', -1), "");
    assert_string_equal(pushed(&d, 'd', 0), "");
    detok_init(&d, t, stops, 2, 0);
    assert_string_equal(pushed(&d, 263, 1), "a"); /* complete first: bc, not abcd */
    detok_init(&d, t, stops, 3, 0);
    assert_string_equal(pushed(&d, 263, 2), ""); /* both end at c: the longer */
    detok_init(&d, t, stops, 1, 0);
    assert_string_equal(pushed(&d, 'a', -1), "");
    buf_clear(&out);
    assert_int_equal(detok_finish(&d, &out), 0);
    assert_string_equal(out.data, "a");
    buf_free(&out);
    tokenizer_close(t);
}

/* The longest stop string, nearly matched again and again. */
static void test_longest_stop(void **state) {
    struct tokenizer *t = open_pieces();
    struct detok_stop stop = {.len = DETOK_STOP_BYTES_MAX};
    struct detok d;
    struct buf out = {0};
    memset(stop.bytes, 'a', stop.len);
    stop.bytes[stop.len - 1] = 'b';
    detok_init(&d, t, &stop, 1, 0);
    for (int i = 0; i < 1000; i++) assert_int_equal(detok_push(&d, 'a', &out), DETOK_NONE);
    assert_int_equal(out.len, 1000 - (DETOK_STOP_BYTES_MAX - 1));
    assert_int_equal(detok_push(&d, 'b', &out), 0);
    assert_int_equal(out.len, 1000 - (DETOK_STOP_BYTES_MAX - 1));
    buf_free(&out);
    tokenizer_close(t);
}

static void test_no_room(void **state) {
    struct tokenizer *t = open_pieces();
    struct detok d;
    struct buf out = {.max = 2};
    detok_init(&d, t, NULL, 0, 0);
    assert_int_equal(detok_push(&d, 257, &out), DETOK_NO_MEMORY);
    assert_int_equal(detok_push(&d, 260, &out), DETOK_NO_MEMORY);
    assert_int_equal(detok_finish(&d, &out), 0);
    buf_free(&out);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_rules),
                                       cmocka_unit_test(test_longest_stop), cmocka_unit_test(test_no_room)};
    return cmocka_run_group_tests_name("detok", tests, NULL, NULL);
}
