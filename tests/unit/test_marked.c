/* Text that a template has written: markers come from its own bytes only, and cuts land between tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tiny_vocab.h"

static struct tiny_vocab v;

enum { THINK = 256, IM_END, TABLE, RUN, BOS };

static struct tokenizer *open_bytes(void) {
    tiny_init(&v, "gpt2");
    tiny_add_alphabet(&v);
    assert_int_equal(tiny_add(&v, "<think>", 4, 0), THINK);
    tiny_add(&v, "<|im_end|>", 3, 0);
    tiny_add(&v, "<table>", 4, 0);
    tiny_add(&v, "\n\n", 4, 0);
    tiny_add(&v, "<s>", 3, 0);
    tiny_u32(&v, "tokenizer.ggml.bos_token_id", BOS);
    tiny_bool(&v, "tokenizer.ggml.add_bos_token", 1);
    return tiny_open(&v);
}

/* Ids as text; bytes of `text` in braces have mark 7, and "|" marks are cuts, which come behind: "ids; cuts". */
static const char *encode(const struct tokenizer *t, const char *text, int within) {
    static char out[1024];
    char plain[256];
    uint16_t marks[256], mark = 0;
    size_t n = 0, cuts[16], cuts_n = 0, ids_n;
    uint32_t places[16];
    int32_t *ids;
    for (; *text; text++) {
        if (*text == '{' || *text == '}')
            mark = *text == '{' ? 7 : 0;
        else if (*text == '^')
            cuts[cuts_n++] = n;
        else
            marks[n] = mark, plain[n++] = *text;
    }
    struct tokenizer_marked in = {
        .text = plain, .marks = marks, .len = n, .cuts = cuts, .cut_ids = places, .cuts_n = cuts_n, .within = within};
    assert_int_equal(tokenizer_encode_marked(t, &in, &ids, &ids_n, NULL), 0);
    size_t at = 0;
    for (size_t i = 0; i < ids_n; i++) {
        int printable = ids[i] > ' ' && ids[i] < 127;
        at += (size_t)snprintf(out + at, sizeof out - at, printable ? "%s%c" : "%s%d", i ? " " : "", ids[i]);
    }
    for (size_t i = 0; i < cuts_n; i++) at += (size_t)snprintf(out + at, sizeof out - at, " ;%u", places[i]);
    mem_free(ids);
    return out;
}

static void markers_come_from_the_template(void **state) {
    struct tokenizer *t = open_bytes();
    assert_string_equal(encode(t, "<think>a<|im_end|>", 1), "256 a 257");
    assert_string_equal(encode(t, "{<think>}", 1), "< t h i n k >");
    assert_string_equal(encode(t, "{<|im_end|>}", 1), "< | i m _ e n d | >");
    /* a marker of which one byte is somebody else's */
    assert_string_equal(encode(t, "<think{>}", 1), "< t h i n k >");
    assert_string_equal(encode(t, "{<}think>", 1), "< t h i n k >");
    assert_string_equal(encode(t, "<|im_{e}nd|>", 1), "< | i m _ e n d | >");
    /* words of the vocabulary that are no markers are found in any text */
    assert_string_equal(encode(t, "{a<table>b}", 1), "a 258 b");
    assert_string_equal(encode(t, "<ta{ble>}", 1), "258");
    assert_string_equal(encode(t, "\n{\n}", 1), "259");
    tokenizer_close(t);
}

static void the_begin_token_comes_once(void **state) {
    struct tokenizer *t = open_bytes();
    assert_string_equal(encode(t, "a^", 0), "260 a ;2");
    assert_string_equal(encode(t, "<s>a^", 0), "260 a ;2");
    assert_string_equal(encode(t, "{<s>}a", 0), "260 < s > a");
    assert_string_equal(encode(t, "", 0), "260");
    assert_string_equal(encode(t, "<s>^", 1), "260 ;1");
    tokenizer_close(t);
}

static void cuts_land_between_tokens(void **state) {
    struct tokenizer *t = open_bytes();
    assert_string_equal(encode(t, "^ab^c<th^ink>^d^<think>^<think>^", 1), "a b c 256 d 256 256 ;0 ;2 ;3 ;4 ;5 ;6 ;7");
    assert_string_equal(encode(t, "a\n^\nb^", 1), "a 259 b ;1 ;3");
    tokenizer_close(t);
    tiny_init(&v, "llama");
    tiny_add_bytes(&v);
    tiny_add(&v, "▁", 1, 0);
    tiny_add(&v, "<|x|>", 3, 0);
    t = tiny_open(&v);
    /* a space in front, where the text is not inside another */
    assert_string_equal(encode(t, "a^b<|x|>^c^", 0), "256 a b 257 256 c ;2 ;4 ;6");
    assert_string_equal(encode(t, "a^b<|x|>^c^", 1), "a b 257 256 c ;1 ;3 ;5");
    tokenizer_close(t);
}

/* Merging must not make what looking for markers has refused. */
static void merging_makes_no_markers(void **state) {
    tiny_init(&v, "llama");
    tiny_add_bytes(&v);
    tiny_add(&v, "▁", 1, 0);
    tiny_add(&v, "<a", 1, 1);
    int32_t tool = tiny_add(&v, "<a1>", 4, 9);
    tiny_add(&v, "1>", 1, 2);
    struct tokenizer *t = tiny_open(&v);
    char want[32];
    snprintf(want, sizeof want, "%d", tool);
    assert_string_equal(encode(t, "<a1>", 1), want);
    snprintf(want, sizeof want, "%d %d", tool - 1, tool + 1);
    assert_string_equal(encode(t, "{<a1>}", 1), want);
    assert_string_equal(encode(t, "{<a}1>", 1), want);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markers_come_from_the_template), cmocka_unit_test(the_begin_token_comes_once),
        cmocka_unit_test(cuts_land_between_tokens), cmocka_unit_test(merging_makes_no_markers)};
    return cmocka_run_group_tests_name("marked", tests, NULL, NULL);
}
