/* See tiny_vocab.h. */
#include "tiny_vocab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/utf8.h"

static struct meta_string keep(struct tiny_vocab *v, const char *text) {
    size_t len = strlen(text);
    assert_true(v->used + len <= sizeof(v->text));
    char *at = v->text + v->used;
    memcpy(at, text, len);
    v->used += len;
    return (struct meta_string){at, len};
}

static struct meta_entry *add_entry(struct tiny_vocab *v, const char *key, enum meta_type type) {
    assert_true(v->meta.n < TINY_KEYS);
    struct meta_entry *e = &v->entries[v->meta.n];
    *e = (struct meta_entry){.key = keep(v, key), .type = type, .count = 1, .data = &v->values[v->meta.n]};
    v->meta.entries = v->entries;
    v->meta.n++;
    return e;
}

void tiny_u32(struct tiny_vocab *v, const char *key, uint32_t value) {
    v->values[v->meta.n] = value;
    add_entry(v, key, META_U32);
}

void tiny_bool(struct tiny_vocab *v, const char *key, int value) {
    v->values[v->meta.n] = (uint64_t)value;
    add_entry(v, key, META_BOOL);
}

void tiny_string(struct tiny_vocab *v, const char *key, const char *value) {
    size_t i = v->meta.n;
    add_entry(v, key, META_STRING)->data = &v->strings[i];
    v->strings[i] = keep(v, value);
}

void tiny_init(struct tiny_vocab *v, const char *model) {
    memset(v, 0, sizeof(*v));
    tiny_string(v, "tokenizer.ggml.model", model);
}

int32_t tiny_add(struct tiny_vocab *v, const char *text, int type, float score) {
    assert_true(v->n < TINY_TOKENS);
    v->tokens[v->n] = keep(v, text);
    v->types[v->n] = type;
    v->scores[v->n] = score;
    return (int32_t)v->n++;
}

void tiny_add_bytes(struct tiny_vocab *v) {
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        tiny_add(v, text, 6, 0);
    }
}

void tiny_add_alphabet(struct tiny_vocab *v) {
    uint32_t other = 0x100;
    for (uint32_t byte = 0; byte < 256; byte++) {
        int itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        char text[5] = {0};
        text[utf8_encode(itself ? byte : other, text)] = '\0';
        other += !itself;
        tiny_add(v, text, 1, 0);
    }
}

void tiny_merge(struct tiny_vocab *v, const char *line) {
    assert_true(v->merges_n < TINY_MERGES);
    v->merges[v->merges_n++] = keep(v, line);
}

static void add_array(struct tiny_vocab *v, const char *key, enum meta_type element, size_t n, const void *data) {
    struct meta_entry *e = add_entry(v, key, META_ARRAY);
    e->element = element;
    e->count = n;
    e->data = data;
}

const struct meta *tiny_meta(struct tiny_vocab *v) {
    add_array(v, "tokenizer.ggml.tokens", META_STRING, v->n, v->tokens);
    add_array(v, "tokenizer.ggml.token_type", META_I32, v->n, v->types);
    if (v->strings[0].len == 5)
        add_array(v, "tokenizer.ggml.scores", META_F32, v->n, v->scores);
    else
        add_array(v, "tokenizer.ggml.merges", META_STRING, v->merges_n, v->merges);
    return &v->meta;
}

struct meta_entry *tiny_entry(struct tiny_vocab *v, const char *key) {
    for (size_t i = 0; i < v->meta.n; i++)
        if (v->entries[i].key.len == strlen(key) && memcmp(v->entries[i].key.bytes, key, strlen(key)) == 0)
            return &v->entries[i];
    fail_msg("no key %s", key);
    return NULL;
}

struct tokenizer *tiny_open(struct tiny_vocab *v) {
    struct tokenizer *t;
    cohort_error err = {0};
    if (tokenizer_open(tiny_meta(v), &t, &err)) fail_msg("%s", err.text);
    return t;
}

const char *tiny_ids(const struct tokenizer *t, const char *text, int flags) {
    static char out[4096];
    int32_t *ids;
    size_t n, used = 0;
    cohort_error err = {0};
    if (tokenizer_encode(t, text, strlen(text), flags, &ids, &n, &err)) return strcpy(out, err.text);
    out[0] = '\0';
    for (size_t i = 0; i < n && used < sizeof(out) - 16; i++)
        used += (size_t)snprintf(out + used, sizeof(out) - used, "%s%d", i ? " " : "", ids[i]);
    mem_free(ids);
    return out;
}
