/* Tokenizers: ids against known ones and against a naive model, special tokens, hostile metadata, long runs. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tiny_vocab.h"

static struct tiny_vocab v;

static void test_scores(void **state) {
    tiny_init(&v, "llama");
    tiny_add(&v, "<unk>", 2, 0);
    tiny_add(&v, "<s>", 3, 0);
    tiny_add(&v, "</s>", 3, 0);
    tiny_add_bytes(&v); /* 3.. */
    tiny_add(&v, "▁", 1, -9);
    tiny_add(&v, "a", 1, -10);
    tiny_add(&v, "b", 1, -11);
    tiny_add(&v, "ab", 1, -2);
    tiny_add(&v, "ba", 1, -1);
    tiny_add(&v, "▁a", 1, -3); /* 264 */
    tiny_add(&v, "aa", 1, -0.0f);
    tiny_add(&v, "bb", 1, 0.0f);
    tiny_add(&v, "<s", 1, 5); /* 267 */
    tiny_add(&v, "xy", 1, -0.0f);
    tiny_add(&v, "yz", 1, 0.0f);
    tiny_u32(&v, "tokenizer.ggml.bos_token_id", 1);
    tiny_u32(&v, "tokenizer.ggml.eos_token_id", 2);
    tiny_u32(&v, "tokenizer.ggml.unknown_token_id", 0);
    struct tokenizer *t = tiny_open(&v);
    assert_string_equal(tiny_ids(t, "ab", 0), "259 262");      /* ab before ▁a */
    assert_string_equal(tiny_ids(t, "bab", 0), "259 263 261"); /* ba before ab */
    assert_string_equal(tiny_ids(t, "baaab", 0), "259 261 265 262");
    assert_string_equal(tiny_ids(t, "aaa", 0), "259 265 260"); /* of equal scores the left one */
    assert_string_equal(tiny_ids(t, "xyz", 0), "259 268 125"); /* -0 and 0 are equal, too */
    assert_string_equal(tiny_ids(t, "a a", 0), "264 264");
    assert_string_equal(tiny_ids(t, "x\xc3\xa9", 0), "259 123 198 172");
    assert_string_equal(tiny_ids(t, "", 0), "");
    assert_string_equal(tiny_ids(t, "", TOKENIZER_BOS), "1");
    assert_string_equal(tiny_ids(t, "a", TOKENIZER_BOS), "1 264");
    /* a control token's spelling is text, unless asked for; then exactly one begin token */
    assert_string_equal(tiny_ids(t, "<s>a", 0), "259 267 65 260");
    assert_string_equal(tiny_ids(t, "<s>a", TOKENIZER_SPECIAL), "1 264");
    assert_string_equal(tiny_ids(t, "<s>a", TOKENIZER_SPECIAL | TOKENIZER_BOS), "1 264");
    assert_string_equal(tiny_ids(t, "<0x41>", 0), "259 63 51 123 55 52 65"); /* nor a byte token's */
    assert_int_equal(tokenizer_strips_first_space(t), 1);
    assert_true(tokenizer_is_end(t, 2) && tokenizer_is_special(t, 0) && !tokenizer_is_end(t, 260));
    tokenizer_close(t);
}

static void test_no_prefix_and_user_defined(void **state) {
    tiny_init(&v, "llama");
    tiny_add(&v, "<unk>", 2, 0);
    tiny_add(&v, "<bos>", 3, 0);
    tiny_add(&v, "\n", 4, -1000);
    tiny_add(&v, "\n\n", 4, -1000);
    tiny_add(&v, "  ", 4, -1000); /* spaces as they are: files list user-defined tokens so */
    tiny_add(&v, "<b>", 4, -1000);
    tiny_add(&v, "▁", 1, -1);
    tiny_add(&v, "a", 1, -1); /* 7 */
    tiny_add(&v, "▁a", 1, -1);
    tiny_add(&v, "<end_of_turn>", 4, 0); /* a marker, whatever the file says */
    tiny_add(&v, "[PAD]", 5, 0);
    tiny_bool(&v, "tokenizer.ggml.add_space_prefix", 0);
    tiny_u32(&v, "tokenizer.ggml.bos_token_id", 1); /* and no unknown_token_id: the token of that type */
    struct tokenizer *t = tiny_open(&v);
    assert_string_equal(tiny_ids(t, "a a", 0), "7 8");
    assert_string_equal(tiny_ids(t, "a\n\n\na", 0), "7 3 2 7"); /* leftmost, longest */
    assert_string_equal(tiny_ids(t, "a   a<b>", 0), "7 4 8 5");
    assert_string_equal(tiny_ids(t, "axyza", 0), "7 0 7"); /* a run of unknown characters is one token */
    assert_string_equal(tiny_ids(t, "<end_of_turn>", 0), "0");
    assert_string_equal(tiny_ids(t, "<end_of_turn>a", TOKENIZER_SPECIAL), "9 7");
    assert_string_equal(tiny_ids(t, "[PAD]", TOKENIZER_SPECIAL), "0"); /* padding is never made */
    assert_true(tokenizer_is_end(t, 9) && tokenizer_is_special(t, 9) && tokenizer_is_special(t, 10));
    assert_false(tokenizer_is_special(t, 5) || tokenizer_strips_first_space(t));
    tokenizer_close(t);
}

static const char *piece(const struct tokenizer *t, int32_t id, int special) {
    static char text[64];
    const char *bytes;
    size_t len;
    tokenizer_piece(t, id, special, &bytes, &len);
    memcpy(text, bytes, len);
    text[len] = '\0';
    return text;
}

static void test_bytes(void **state) {
    tiny_init(&v, "gpt2");
    tiny_string(&v, "tokenizer.ggml.pre", "llama-bpe");
    tiny_add_alphabet(&v);            /* id = byte */
    tiny_add(&v, "ab", 1, 0);         /* 256 */
    tiny_add(&v, "bc", 1, 0);         /* 257 */
    tiny_add(&v, "Ġab", 1, 0);        /* 258 */
    tiny_add(&v, "abc", 1, 0);        /* 259: no merge makes it, but a whole word is looked up */
    tiny_add(&v, "Ã©", 1, 0);         /* 260 */
    tiny_add(&v, "<|eot_id|>", 3, 0); /* 261 */
    tiny_add(&v, "  ", 4, 0);         /* 262 */
    tiny_add(&v, "cd", 3, 0);         /* 263: merged, but control */
    tiny_add(&v, "xa", 1, 0);         /* 264 */
    tiny_merge(&v, "b c");
    tiny_merge(&v, "a b");
    tiny_merge(&v, "Ġ ab");
    tiny_merge(&v, "Ã ©");
    tiny_merge(&v, "x a");
    tiny_merge(&v, "a b"); /* repeated: the first rank counts */
    tiny_merge(&v, "c d");
    tiny_u32(&v, "tokenizer.ggml.eos_token_id", 261);
    struct tokenizer *t = tiny_open(&v);
    assert_string_equal(tiny_ids(t, "abc", 0), "259");
    assert_string_equal(tiny_ids(t, "dabc", 0), "100 97 257"); /* b c has the lower rank */
    assert_string_equal(tiny_ids(t, "xab", 0), "120 256");
    assert_string_equal(tiny_ids(t, " ab ab", 0), "258 258");
    assert_string_equal(tiny_ids(t, "ab  ab", 0), "256 262 256");
    assert_string_equal(tiny_ids(t, "\xc3\xa9\n", 0), "260 10");
    assert_string_equal(tiny_ids(t, "cd", 0), "99 100");
    assert_string_equal(tiny_ids(t, "<|eot_id|>", 0), "60 124 101 111 116 95 105 100 124 62");
    assert_string_equal(tiny_ids(t, "<|eot_id|>", TOKENIZER_SPECIAL | TOKENIZER_BOS), "261"); /* no begin token */
    assert_string_equal(piece(t, 258, 0), " ab");
    assert_string_equal(piece(t, 260, 0), "\xc3\xa9");
    assert_string_equal(piece(t, 261, 0), "");
    assert_string_equal(piece(t, 261, 1), "<|eot_id|>");
    assert_string_equal(piece(t, 265, 1), "");
    assert_string_equal(piece(t, -1, 1), "");
    assert_int_equal(tokenizer_find(t, "Ġab", 4), 258);
    assert_int_equal(tokenizer_find(t, " ab", 3), -1);
    assert_true(tokenizer_is_end(t, 261) && !tokenizer_is_end(t, 1000) && !tokenizer_is_end(t, -1));
    tokenizer_close(t);
}

/* Markers for filling in: by key, by the older key, by text; and none of them is found in a user's text. */
static void test_fills(void **state) {
    tiny_init(&v, "llama");
    tiny_add_bytes(&v);
    for (int i = 0; i < 3; i++) tiny_add(&v, (const char *[]){"<a>", "<b>", "<c>"}[i], 4, 0); /* 256 to 258 */
    tiny_add(&v, "<|fim_prefix|>", 4, 0);                                                     /* 259 */
    tiny_add(&v, "<fim_middle>", 3, 0);                                                       /* 260 */
    tiny_add(&v, "<|repo_name|>", 1, 0);                                                      /* 261: an ordinary one */
    tiny_add(&v, "\xe2\x96\x81<MID>", 3, 0);                                                  /* 262 */
    tiny_add(&v, "<|file_sep|>", 4, 0);                                                       /* 263 */
    tiny_u32(&v, "tokenizer.ggml.fim_pre_token_id", 256);
    tiny_u32(&v, "tokenizer.ggml.prefix_token_id", 257); /* the newer key counts */
    tiny_u32(&v, "tokenizer.ggml.suffix_token_id", 258);
    struct tokenizer *t = tiny_open(&v);
    static const int32_t want[TOKENIZER_FILLS] = {256, 258, 260, -1, -1, 263};
    for (int i = 0; i < TOKENIZER_FILLS; i++) assert_int_equal(tokenizer_fill(t, (enum tokenizer_fill)i), want[i]);
    assert_true(tokenizer_is_special(t, 256) && tokenizer_is_special(t, 258) && !tokenizer_is_special(t, 257));
    assert_string_equal(tiny_ids(t, "<b>", TOKENIZER_SPECIAL), "257");
    assert_string_equal(tiny_ids(t, "<a>", TOKENIZER_SPECIAL), "256");
    size_t n;
    int32_t *ids;
    assert_int_equal(tokenizer_encode(t, "<a><c><fim_middle><|file_sep|>", 30, 0, &ids, &n, NULL), 0);
    for (size_t i = 0; i < n; i++) assert_true(ids[i] < 256);
    mem_free(ids);
    tokenizer_close(t);
}

static void test_spaced(void **state) {
    tiny_init(&v, "gemma4");
    tiny_add_bytes(&v);
    tiny_add(&v, "▁", 1, 0); /* 256 */
    tiny_add(&v, "a", 1, 0);
    tiny_add(&v, "▁a", 1, 0); /* 258 */
    tiny_add(&v, "\n", 1, 0);
    tiny_add(&v, "\n\n", 1, 0); /* 260 */
    tiny_add(&v, "<bos>", 3, 0);
    tiny_merge(&v, "▁ a");
    tiny_u32(&v, "tokenizer.ggml.bos_token_id", 261);
    struct tokenizer *t = tiny_open(&v);
    assert_string_equal(tiny_ids(t, "a a\n\na", TOKENIZER_BOS), "261 257 258 260 257");
    assert_string_equal(tiny_ids(t, "\n\n\n", 0), "259 259 259"); /* a run of line ends is one token or its merges */
    assert_string_equal(tiny_ids(t, "\xc3\xa9", 0), "195 169");
    assert_string_equal(piece(t, 258, 0), " a");
    tokenizer_close(t);
}

/* Characters that begin like the mark or end like it, at every place of a text: only marks become spaces. */
static void test_almost_marks(void **state) {
    static const char *const letters[] = {"▁", "▂", "∀", "\xe2", "\xe2\x96", "\x96\x81", "a"};
    enum { LETTERS = sizeof(letters) / sizeof(letters[0]), WORDS = 300 };
    static char want[WORDS][64];
    tiny_init(&v, "llama");
    tiny_add_bytes(&v);
    for (uint32_t i = 0, n = 1; i < WORDS; i++) {
        char word[64] = "";
        for (uint32_t k = 0; k < 1 + i / 20; k++, n = n * 1664525 + 1013904223)
            strcat(word, letters[(n >> 16) % LETTERS]);
        char *to = want[i];
        for (const char *s = word; *s;) {
            int mark = strncmp(s, "▁", 3) == 0;
            *to++ = mark ? ' ' : *s;
            s += mark ? 3 : 1;
        }
        tiny_add(&v, word, 1, 0); /* 256 + i */
    }
    struct tokenizer *t = tiny_open(&v);
    size_t longest = 0;
    for (int32_t i = 0; i < WORDS; i++) {
        assert_string_equal(piece(t, 256 + i, 0), want[i]);
        if (strlen(want[i]) > longest) longest = strlen(want[i]);
    }
    assert_int_equal(tokenizer_longest_piece(t), longest);
    tokenizer_close(t);
}

/* ---- against a naive model ---- */

static uint64_t draws;
static uint32_t draw(uint32_t n) { return (uint32_t)(rng_u64(7, 0, draws++) % n); }

/* A random word over `letters` (strings), of 1..max of them. */
static void random_word(char *out, const char *const *letters, uint32_t n, uint32_t max) {
    out[0] = '\0';
    for (uint32_t i = 0, len = 1 + draw(max); i < len; i++) strcat(out, letters[draw(n)]);
}

static int32_t listed(const char *text, size_t len) {
    for (size_t i = 0; i < v.n; i++)
        if (v.tokens[i].len == len && memcmp(v.tokens[i].bytes, text, len) == 0) return (int32_t)i;
    return -1;
}

static int32_t rank_of(const char *left, size_t left_len, const char *right, size_t right_len) {
    for (size_t i = 0; i < v.merges_n; i++) {
        const struct meta_string *m = &v.merges[i];
        if (m->len == left_len + right_len + 1 && memcmp(m->bytes, left, left_len) == 0 && m->bytes[left_len] == ' ' &&
            memcmp(m->bytes + left_len + 1, right, right_len) == 0)
            return (int32_t)i;
    }
    return -1;
}

/* Merges the best neighbours again and again, looking at all of them each time. Prints ids as tiny_ids does. */
static void naive(char *out, const char *text, int by_rank) {
    size_t at[512], n = 0;
    for (size_t i = 0; text[i]; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80) at[n++] = i;
    at[n] = strlen(text);
    for (;;) {
        size_t best = n;
        double best_value = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const char *left = text + at[i], *right = text + at[i + 1];
            size_t left_len = at[i + 1] - at[i], right_len = at[i + 2] - at[i + 1];
            int32_t id = listed(left, left_len + right_len), rank = rank_of(left, left_len, right, right_len);
            if (id < 0 || (by_rank && rank < 0)) continue;
            double value = by_rank ? -rank : v.scores[id];
            if (best == n || value > best_value) {
                best = i;
                best_value = value;
            }
        }
        if (best == n) break;
        memmove(at + best + 1, at + best + 2, (n - best - 1) * sizeof(*at));
        n--;
    }
    out[0] = '\0';
    for (size_t i = 0; i < n; i++)
        sprintf(out + strlen(out), "%s%d", i ? " " : "", listed(text + at[i], at[i + 1] - at[i]));
}

static void check_text(const struct tokenizer *t, const char *spaced, int by_rank) {
    char text[1024], want[4096];
    size_t used = 0;
    for (const char *s = spaced; *s; s++) {
        int mark = strncmp(s, "▁", 3) == 0;
        text[used++] = mark ? ' ' : *s;
        s += mark ? 2 : 0;
    }
    text[used] = '\0';
    naive(want, spaced, by_rank);
    assert_string_equal(tiny_ids(t, text, 0), want);
}

static void test_naive_scores(void **state) {
    static const char *const letters[] = {"a", "b", "é", "▁"};
    for (int round = 0; round < 60; round++) {
        tiny_init(&v, "llama");
        for (int i = 0; i < 4; i++) tiny_add(&v, letters[i], 1, 0);
        for (int i = 0; i < 30; i++) {
            char word[64];
            random_word(word, letters, round % 2 ? 4 : 3, 5);
            if (round % 3 == 0) sprintf(word, "▁%s", strcpy((char[64]){0}, word));
            if (listed(word, strlen(word)) < 0) tiny_add(&v, word, 1, -(float)draw(8));
        }
        tiny_bool(&v, "tokenizer.ggml.add_space_prefix", 0);
        struct tokenizer *t = tiny_open(&v);
        for (int i = 0; i < 40; i++) {
            char text[512];
            random_word(text, letters, 4, 60);
            check_text(t, text, 0);
        }
        tokenizer_close(t);
    }
}

static void test_naive_ranks(void **state) {
    static const char *const letters[] = {"a", "b", "é", "▁"};
    for (int round = 0; round < 60; round++) {
        tiny_init(&v, "gemma4");
        for (int i = 0; i < 4; i++) tiny_add(&v, letters[i], 1, 0);
        for (int i = 0; i < 60; i++) {
            const struct meta_string *a = &v.tokens[draw((uint32_t)v.n)], *b = &v.tokens[draw((uint32_t)v.n)];
            char word[64], line[64];
            if (a->len + b->len > 20 || rank_of(a->bytes, a->len, b->bytes, b->len) >= 0) continue;
            sprintf(word, "%.*s%.*s", (int)a->len, a->bytes, (int)b->len, b->bytes);
            sprintf(line, "%.*s %.*s", (int)a->len, a->bytes, (int)b->len, b->bytes);
            if (listed(word, strlen(word)) < 0) tiny_add(&v, word, 1, 0);
            tiny_merge(&v, line);
        }
        tiny_u32(&v, "tokenizer.ggml.bos_token_id", 0);
        struct tokenizer *t = tiny_open(&v);
        for (int i = 0; i < 40; i++) {
            char text[512];
            random_word(text, letters, 4, 60);
            check_text(t, text, 1);
        }
        tokenizer_close(t);
    }
}

/* Long runs: slow ones fail by the test's time limit. */
static void test_long_runs(void **state) {
    static const char *const models[] = {"llama", "gpt2", "gemma4"};
    static const char *const pres[] = {"llama-bpe", "qwen2",    "qwen35",       "gpt-4o",         "tekken",
                                       "default",   "falcon",   "deepseek-llm", "deepseek-coder", "deepseek-v3",
                                       "gpt-2",     "bloom",    "viking",       "bailingmoe",     "seed-coder",
                                       "minicpm5",  "starcoder"};
    static const char *const units[] = {"a", " ",  "_", "\n", "\t", "0", "\xcc\x81", "\xe4\xb8\x80",
                                        "A", "aA", "'", " \n"};
    enum { LONG = 200000 };
    char *text = mem_alloc(3 * LONG + 2, 1);
    for (size_t m = 0; m < 3 + sizeof(pres) / sizeof(pres[0]); m++) {
        const char *model = models[m < 3 ? m : 1];
        tiny_init(&v, model);
        tiny_string(&v, "tokenizer.ggml.pre", m < 3 ? "default" : pres[m - 3]);
        if (strcmp(model, "gpt2") == 0)
            tiny_add_alphabet(&v);
        else
            tiny_add_bytes(&v);
        static const char *const more[] = {"▁",  "▁▁", "__", "____", "a", "aa", "aaaa",
                                           "00", "Ġ",  "ĠĠ", "ĠĠĠĠ", "_", "0"};
        for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
            if (listed(more[i], strlen(more[i])) < 0) tiny_add(&v, more[i], 1, -(float)i);
        tiny_merge(&v, "a a");
        tiny_merge(&v, "aa aa");
        tiny_merge(&v, "_ _");
        tiny_merge(&v, "__ __");
        tiny_merge(&v, "Ġ Ġ");
        tiny_merge(&v, "▁ ▁");
        struct tokenizer *t = tiny_open(&v);
        for (size_t u = 0; u < (m < 3 ? sizeof(units) / sizeof(units[0]) : 7); u++) {
            size_t len = strlen(units[u]), n, N = m < 3 ? LONG : LONG / 2;
            for (size_t i = 0; i < N; i++) memcpy(text + i * len, units[u], len);
            text[N * len] = 'x';
            int32_t *ids;
            cohort_error err = {0};
            if (tokenizer_encode(t, text, N * len + 1, 0, &ids, &n, &err)) fail_msg("%s", err.text);
            size_t bytes = 0;
            for (size_t i = 0; i < n; i++) {
                const char *at;
                tokenizer_piece(t, ids[i], 0, &at, &len);
                bytes += len;
            }
            assert_int_equal(bytes, N * strlen(units[u]) + 1 + (m == 0));
            mem_free(ids);
        }
        tokenizer_close(t);
    }
    mem_free(text);
}

static void *encode_often(void *tokenizer) {
    static const char text[] = "ab aab  <|eot_id|> 12345 \xe4\xb8\x80\n\n x";
    int32_t *first = NULL, *ids;
    size_t first_n = 0, n;
    for (int i = 0; i < 300; i++) {
        if (tokenizer_encode(tokenizer, text, sizeof(text) - 1, i & 3, &ids, &n, NULL)) return tokenizer;
        if (i < 4 && !(i & 3)) {
            first = ids;
            first_n = n;
            continue;
        }
        int same = n == first_n && memcmp(ids, first, n * sizeof(*ids)) == 0;
        mem_free(ids);
        if (!(i & 3) && !same) return tokenizer;
    }
    mem_free(first);
    return NULL;
}

static void test_threads(void **state) {
    tiny_init(&v, "gpt2");
    tiny_string(&v, "tokenizer.ggml.pre", "gpt-4o");
    tiny_add_alphabet(&v);
    tiny_add(&v, "ab", 1, 0);
    tiny_merge(&v, "a b");
    struct tokenizer *t = tiny_open(&v);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    tokenizer_close(t);
}

/* ---- refusals ---- */

static void test_text_refusals(void **state) {
    tiny_init(&v, "gpt2");
    tiny_add(&v, "a", 1, 0);
    struct tokenizer *t = tiny_open(&v);
    cohort_error err;
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(t, "\xff", 1, 0, &ids, &n, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "text");
    assert_null(ids);
    assert_int_equal(tokenizer_encode(t, "b", 1, 0, &ids, &n, &err), COHORT_E_UNSUPPORTED); /* and no unknown token */
    char *text = mem_alloc(TOKENIZER_TEXT_MAX + 1, 1);
    memset(text, 'a', TOKENIZER_TEXT_MAX + 1);
    assert_int_equal(tokenizer_encode(t, text, TOKENIZER_TEXT_MAX + 1, 0, &ids, &n, &err), COHORT_E_LIMIT);
    assert_int_equal(tokenizer_encode(t, text, TOKENIZER_WORD_MAX + 1, 0, &ids, &n, &err), COHORT_E_LIMIT);
    assert_string_equal(err.field, "text");
    assert_int_equal(tokenizer_encode(t, text, TOKENIZER_WORD_MAX, 0, &ids, &n, &err), 0);
    assert_int_equal(n, TOKENIZER_WORD_MAX);
    mem_free(ids);
    mem_free(text);
    assert_int_equal(tokenizer_encode(t, "a\0a", 3, 0, &ids, &n, &err), COHORT_E_UNSUPPORTED); /* NUL is text */
    tokenizer_close(t);
}

static void good(const char *model) {
    tiny_init(&v, model);
    if (strcmp(model, "gpt2") == 0) {
        tiny_string(&v, "tokenizer.ggml.pre", "qwen2");
        tiny_add_alphabet(&v);
    } else {
        tiny_add_bytes(&v);
    }
    tiny_add(&v, "aa", 1, 0); /* 256 */
    tiny_add(&v, "<s>", 3, 0);
    if (strcmp(model, "gpt2") == 0) tiny_merge(&v, "a a");
    tiny_u32(&v, "tokenizer.ggml.bos_token_id", 257);
    tiny_bool(&v, "tokenizer.ggml.add_bos_token", 1);
    tiny_meta(&v);
}

/* Opens what a test spoiled and expects a refusal that names the key. */
static void refused(int code, const char *key) {
    struct tokenizer *t;
    cohort_error err = {0};
    int got = tokenizer_open(&v.meta, &t, &err);
    if (got != code) fail_msg("%s: %d instead of %d (%s)", key, got, code, err.text);
    assert_null(t);
    assert_string_equal(err.field, key);
    assert_non_null(strstr(err.text, key));
}

#define TOKENS "tokenizer.ggml.tokens"
#define TYPES  "tokenizer.ggml.token_type"
#define SCORES "tokenizer.ggml.scores"
#define MERGES "tokenizer.ggml.merges"
#define BOS    "tokenizer.ggml.bos_token_id"
#define PRE    "tokenizer.ggml.pre"
#define MODEL  "tokenizer.ggml.model"

static void test_good_ones_open(void **state) {
    static const char *const models[] = {"llama", "gpt2"};
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t;
        good(models[i]);
        assert_int_equal(tokenizer_open(&v.meta, &t, NULL), 0);
        tokenizer_close(t);
    }
}

static void test_hostile_arrays(void **state) {
    static const char *const keys[] = {TYPES, SCORES};
    for (int k = 0; k < 2; k++) {
        good("llama");
        tiny_entry(&v, keys[k])->count--;
        refused(COHORT_E_FILE, keys[k]);
        tiny_entry(&v, keys[k])->count = UINT64_MAX;
        refused(COHORT_E_FILE, keys[k]);
        good("llama");
        tiny_entry(&v, keys[k])->element = META_I8;
        refused(COHORT_E_FILE, keys[k]);
        tiny_entry(&v, keys[k])->element = META_STRING;
        refused(COHORT_E_FILE, keys[k]);
        tiny_entry(&v, keys[k])->type = META_U32;
        refused(COHORT_E_FILE, keys[k]);
    }
    good("llama");
    v.scores[3] = __builtin_nanf("");
    refused(COHORT_E_FILE, SCORES);
    good("llama");
    v.types[3] = 7;
    refused(COHORT_E_FILE, TYPES);
    v.types[3] = -1;
    refused(COHORT_E_FILE, TYPES);
    good("llama");
    tiny_entry(&v, SCORES)->key.len--;
    refused(COHORT_E_FILE, SCORES);
}

static void test_hostile_tokens(void **state) {
    good("llama");
    tiny_entry(&v, TOKENS)->count = 0;
    refused(COHORT_E_FILE, TOKENS);
    tiny_entry(&v, TOKENS)->count = TOKENIZER_VOCAB_MAX + 1;
    refused(COHORT_E_LIMIT, TOKENS);
    tiny_entry(&v, TOKENS)->element = META_U32;
    refused(COHORT_E_FILE, TOKENS);
    tiny_entry(&v, TOKENS)->key.len--;
    refused(COHORT_E_FILE, TOKENS);
    good("llama");
    v.tokens[256].len = TOKENIZER_PIECE_MAX + 1;
    refused(COHORT_E_LIMIT, TOKENS);
    v.tokens[256].len = UINT64_MAX;
    refused(COHORT_E_LIMIT, TOKENS);
    static const char *const bytes[] = {"<0x-1>", "<0xGG>", "<0x1>", "<0x123>", "[0x12]", "<0X12>", "", "<0x1 >"};
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        good("llama");
        v.tokens[5] = (struct meta_string){bytes[i], strlen(bytes[i])};
        refused(COHORT_E_FILE, TOKENS);
    }
    good("llama");
    v.tokens[257] = (struct meta_string){"\xe2\x96", 2}; /* a control token that would cut characters */
    refused(COHORT_E_FILE, TOKENS);
}

static void test_hostile_ids_and_names(void **state) {
    good("gpt2");
    v.values[tiny_entry(&v, BOS) - v.entries] = 258;
    refused(COHORT_E_FILE, BOS);
    v.values[tiny_entry(&v, BOS) - v.entries] = UINT32_MAX;
    refused(COHORT_E_FILE, BOS);
    tiny_entry(&v, BOS)->type = META_F32;
    refused(COHORT_E_FILE, BOS);
    tiny_entry(&v, BOS)->key.len--; /* add_bos_token asks for it */
    refused(COHORT_E_FILE, BOS);
    good("gpt2");
    tiny_u32(&v, "tokenizer.ggml.padding_token_id", 1 << 20);
    refused(COHORT_E_FILE, "tokenizer.ggml.padding_token_id");
    good("gpt2");
    v.values[tiny_entry(&v, "tokenizer.ggml.add_bos_token") - v.entries] = 2;
    refused(COHORT_E_FILE, "tokenizer.ggml.add_bos_token");
    good("gpt2");
    v.strings[tiny_entry(&v, PRE) - v.entries].len--;
    refused(COHORT_E_UNSUPPORTED, PRE);
    tiny_entry(&v, PRE)->type = META_U32;
    refused(COHORT_E_FILE, PRE);
    good("gpt2");
    v.strings[0] = (struct meta_string){"bert", 4};
    refused(COHORT_E_UNSUPPORTED, MODEL);
    tiny_entry(&v, MODEL)->key.len--;
    refused(COHORT_E_FILE, MODEL);
}

static void test_hostile_merges(void **state) {
    static const char *const lines[] = {"aa", "a", " ", "a ", " a", "  ", "a  a", "a a a", "a zz", "zz a", "a b", ""};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        good("gpt2");
        v.merges[0] = (struct meta_string){lines[i], strlen(lines[i])};
        refused(COHORT_E_FILE, MERGES);
    }
    good("gpt2");
    tiny_entry(&v, MERGES)->element = META_I32;
    refused(COHORT_E_FILE, MERGES);
    tiny_entry(&v, MERGES)->key.len--;
    refused(COHORT_E_FILE, MERGES);
    good("gpt2");
    tiny_entry(&v, MERGES)->count = TOKENIZER_MERGES_MAX + 1ull;
    refused(COHORT_E_LIMIT, MERGES);
}

static void test_repeated_texts(void **state) {
    tiny_init(&v, "llama");
    tiny_add(&v, "▁", 1, 0);
    tiny_add(&v, "a", 1, 0);
    tiny_add(&v, "a", 1, 0);
    tiny_add(&v, "<u>", 4, 0);
    tiny_add(&v, "<u>", 4, 0);
    tiny_add(&v, "", 1, 0);
    tiny_add(&v, "", 4, 0);
    tiny_add(&v, "<0x62>", 6, 0);
    tiny_add(&v, "<0x62>", 6, 0);
    struct tokenizer *t = tiny_open(&v);
    assert_string_equal(tiny_ids(t, "a<u>ab", 0), "0 1 3 0 1 7");
    assert_string_equal(piece(t, 8, 0), "b");
    assert_int_equal(tokenizer_find(t, "", 0), -1);
    tokenizer_close(t);
}

/* The nth allocation fails, for every n until all succeed. */
static void test_memory(void **state) {
    static const char *const models[] = {"llama", "gpt2"};
    for (int i = 0; i < 2; i++) {
        good(models[i]);
        int code = COHORT_E_MEMORY;
        for (uint64_t nth = 1; code; nth++) {
            struct tokenizer *t;
            int32_t *ids = NULL;
            size_t n;
            cohort_error err = {0};
            mem_fail_at(nth, 0);
            code = tokenizer_open(&v.meta, &t, &err);
            if (!code) code = tokenizer_encode(t, "<s>aaa aa", 9, TOKENIZER_SPECIAL, &ids, &n, &err);
            mem_fail_at(0, 0);
            assert_true(code == 0 || code == COHORT_E_MEMORY);
            assert_int_equal(err.code, code);
            mem_free(ids);
            tokenizer_close(t);
            assert_true(nth < 10000);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),         cmocka_unit_test(test_no_prefix_and_user_defined),
        cmocka_unit_test(test_bytes),          cmocka_unit_test(test_spaced),
        cmocka_unit_test(test_almost_marks),   cmocka_unit_test(test_naive_scores),
        cmocka_unit_test(test_naive_ranks),    cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_text_refusals),
        cmocka_unit_test(test_good_ones_open), cmocka_unit_test(test_hostile_arrays),
        cmocka_unit_test(test_hostile_tokens), cmocka_unit_test(test_hostile_ids_and_names),
        cmocka_unit_test(test_hostile_merges), cmocka_unit_test(test_repeated_texts),
        cmocka_unit_test(test_fills),          cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
