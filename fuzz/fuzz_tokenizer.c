/* Tokenizers, turn templates and detokenising over any vocabulary and any text. The input is a small program: the first
 * byte chooses the kind, then come tokens (type, score, length, text), a zero byte, merges likewise for BPE, a zero
 * byte, and the rest is the text. Checked: nothing is read or written outside, an accepted text gives ids inside the
 * vocabulary, and pieces come out as whole UTF-8. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/detok.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STRINGS_MAX = 400, PLAIN = 256 };

struct input {
    const uint8_t *at, *end;
};

static unsigned take(struct input *in) { return in->at < in->end ? *in->at++ : 0; }

static struct meta_string take_string(struct input *in) {
    size_t len = take(in) % 24, left = (size_t)(in->end - in->at);
    if (len > left) len = left;
    struct meta_string s = {(const char *)in->at, len};
    in->at += len;
    return s;
}

struct vocabulary {
    struct meta_string tokens[STRINGS_MAX + PLAIN], merges[STRINGS_MAX], model, pre;
    int32_t types[STRINGS_MAX + PLAIN];
    float scores[STRINGS_MAX + PLAIN];
    char plain[PLAIN][8];
    uint32_t n, merges_n, bos;
    struct meta_entry entries[8];
    struct meta meta;
};

static struct meta_string text_of(const char *s) { return (struct meta_string){s, strlen(s)}; }

static void add(struct vocabulary *v, struct meta_string text, int type, float score) {
    v->tokens[v->n] = text;
    v->types[v->n] = type;
    v->scores[v->n++] = score;
}

/* Every byte has a token, so that most texts can be encoded: the alphabet of byte-level BPE, or byte tokens. */
static void add_plain(struct vocabulary *v, int alphabet) {
    static const char hex[] = "0123456789ABCDEF";
    uint32_t other = 0x100;
    for (uint32_t byte = 0; byte < PLAIN; byte++) {
        char *s = v->plain[byte];
        int itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        if (alphabet) {
            int len = utf8_encode(itself ? byte : other, s);
            other += !itself;
            s[len] = '\0';
        } else {
            memcpy(s, (char[]){'<', '0', 'x', hex[byte >> 4], hex[byte & 15], '>', 0}, 7);
        }
        add(v, text_of(s), alphabet ? 1 : 6, 0);
    }
}

static void add_entry(struct vocabulary *v, const char *key, enum meta_type type, enum meta_type element,
                      uint64_t count, const void *value) {
    v->entries[v->meta.n++] = (struct meta_entry){text_of(key), type, element, count, value};
}

static void read_vocabulary(struct vocabulary *v, struct input *in) {
    static const char *const models[] = {"llama", "gpt2", "gemma4", "gpt2"};
    static const char *const pres[] = {"default",     "llama-bpe",  "qwen35",       "gpt-4o",
                                       "tekken",      "falcon",     "deepseek-llm", "deepseek-coder",
                                       "deepseek-v3", "bailingmoe", "bloom",        "gpt-2"};
    unsigned kind = take(in), tokens = take(in);
    v->model = text_of(models[kind % 4]);
    v->pre = text_of(pres[kind / 4 % 12]);
    if (tokens & 1) add_plain(v, kind & 1);
    for (unsigned type; v->n < STRINGS_MAX && (type = take(in));) {
        float score = (float)(int8_t)take(in);
        add(v, take_string(in), type % 8, score);
    }
    while (v->merges_n < STRINGS_MAX && kind % 4 && take(in)) v->merges[v->merges_n++] = take_string(in);
    v->bos = take(in);
    add_entry(v, "tokenizer.ggml.model", META_STRING, 0, 1, &v->model);
    add_entry(v, "tokenizer.ggml.pre", META_STRING, 0, 1, &v->pre);
    add_entry(v, "tokenizer.ggml.tokens", META_ARRAY, META_STRING, v->n, v->tokens);
    add_entry(v, "tokenizer.ggml.token_type", META_ARRAY, META_I32, v->n, v->types);
    add_entry(v, "tokenizer.ggml.scores", META_ARRAY, META_F32, v->n, v->scores);
    add_entry(v, "tokenizer.ggml.merges", META_ARRAY, META_STRING, v->merges_n, v->merges);
    add_entry(v, "tokenizer.ggml.bos_token_id", META_U32, 0, 1, &v->bos);
    v->meta.entries = v->entries;
}

static void check(int holds) {
    if (!holds) abort();
}

static void decode(const struct tokenizer *t, const int32_t *ids, size_t n, const char *stop, size_t stop_len) {
    struct detok_stop stops[1] = {{.len = (uint16_t)(stop_len < 8 ? stop_len : 8)}};
    struct detok d;
    struct buf out = {0};
    memcpy(stops[0].bytes, stop, stops[0].len);
    /* A cut tail's U+FFFD comes at the end, where no stop string is looked for any more. */
    int use = stops[0].len > 0 && utf8_valid(stops[0].bytes, stops[0].len) &&
              !memmem(stops[0].bytes, stops[0].len, "\xef\xbf\xbd", 3);
    int match = DETOK_NONE;
    detok_init(&d, t, stops, (uint32_t)use, tokenizer_strips_first_space(t));
    for (size_t i = 0; i < n && match == DETOK_NONE; i++) {
        check(ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_size(t));
        match = detok_push(&d, ids[i], &out);
        check(utf8_valid(out.data ? out.data : "", out.len));
    }
    if (match == DETOK_NONE) check(detok_finish(&d, &out) == 0);
    check(utf8_valid(out.data ? out.data : "", out.len));
    if (use && out.data) check(memmem(out.data, out.len, stops[0].bytes, stops[0].len) == NULL);
    buf_free(&out);
}

static void use(const struct tokenizer *t, const char *text, size_t len) {
    for (int flags = 0; flags < 4; flags++) {
        int32_t *ids;
        size_t n;
        if (tokenizer_encode(t, text, len, flags, &ids, &n, NULL) == 0) {
            decode(t, ids, n, text + len / 2, len - len / 2);
            mem_free(ids);
        }
    }
    uint16_t *marks = malloc((len + 1) * sizeof *marks);
    if (!marks) return;
    for (size_t i = 0; i < len; i++) marks[i] = (uint8_t)text[i] % 3 ? 0 : (uint8_t)text[len - 1 - i] % 2;
    size_t cuts[3] = {len / 3, len / 2, len}, n;
    uint32_t places[3];
    int32_t *ids;
    struct tokenizer_marked in = {
        .text = text, .marks = marks, .len = len, .cuts = cuts, .cut_ids = places, .cuts_n = 3, .within = (int)len & 1};
    if (tokenizer_encode_marked(t, &in, &ids, &n, NULL) == 0) {
        check(places[0] <= places[1] && places[1] <= places[2] && places[2] <= n);
        decode(t, ids, n, text + len / 2, len - len / 2);
        mem_free(ids);
    }
    free(marks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, data + size};
    struct vocabulary *v = calloc(1, sizeof(*v));
    struct tokenizer *t;
    if (!v) return 0;
    read_vocabulary(v, &in);
    if (tokenizer_open(&v->meta, &t, NULL) == 0) {
        size_t len = (size_t)(in.end - in.at);
        char *text = malloc(len + 1); /* its own block: reads past the text are seen */
        if (text) {
            if (len) memcpy(text, in.at, len);
            text[len] = '\0';
            use(t, text, len);
        }
        free(text);
        tokenizer_close(t);
    }
    free(v);
    return 0;
}
