/* What tokens decode to, and byte-level BPE's alphabet: bytes that are printable in Latin-1 stand for themselves, the
 * others for the characters from U+0100 on, in order. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_internal.h"

static const char space_mark[] = "\xe2\x96\x81"; /* U+2581 */

enum { ALPHABET_END = 0x144 };

static int stands_for_itself(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* char_byte: the inverse of byte_char, -1 for characters outside the alphabet. */
static void fill_alphabet(struct tokenizer *t, int16_t char_byte[ALPHABET_END]) {
    int next = 0x100;
    memset(char_byte, 0xff, ALPHABET_END * sizeof(*char_byte));
    for (int byte = 0; byte < 256; byte++) {
        t->byte_char[byte] = (uint16_t)(stands_for_itself(byte) ? byte : next++);
        char_byte[t->byte_char[byte]] = (int16_t)byte;
    }
    assert(next == ALPHABET_END);
    for (int byte = 0; byte < 256; byte++) {
        char utf8[4];
        int32_t id = vocab_find(&t->vocab, utf8, (size_t)utf8_encode(t->byte_char[byte], utf8));
        t->byte_token[byte] = id >= 0 && vocab_is_plain(&t->vocab, id) ? id : -1;
    }
}

/* Characters outside the alphabet, and what is not UTF-8, stay as they are. */
static size_t decode_alphabet(const int16_t *char_byte, const char *s, size_t n, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len > 0 && cp < ALPHABET_END && char_byte[cp] >= 0) {
            out[used++] = (char)char_byte[cp];
        } else {
            len = len > 0 ? len : 1;
            memcpy(out + used, s + i, (size_t)len);
            used += (size_t)len;
        }
        i += (size_t)len;
    }
    return used;
}

static size_t decode_spaces(const char *s, size_t n, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        if (n - i >= 3 && memcmp(s + i, space_mark, 3) == 0) {
            out[used++] = ' ';
            i += 3;
        } else {
            out[used++] = s[i++];
        }
    }
    return used;
}

/* Looks for a U+2581 behind another character in a token that merging can make. */
static void note_joins(struct tokenizer *t, const char *s, size_t n) {
    const char *end = s + n, *at = s;
    while (at + 3 <= end && (at = memchr(at, (unsigned char)space_mark[0], (size_t)(end - at)))) {
        int mark = at + 3 <= end && memcmp(at, space_mark, 3) == 0;
        int behind_mark = at - s >= 3 && memcmp(at - 3, space_mark, 3) == 0;
        if (mark && at > s && !behind_mark) t->joins_space[(uint8_t)at[-1]] = 1;
        at++;
    }
}

static size_t decode(struct tokenizer *t, const int16_t *char_byte, uint32_t id, char *out) {
    size_t n;
    const char *s = vocab_text(&t->vocab, id, &n);
    int type = t->vocab.type[id];
    if (type == TOKEN_BYTE) {
        out[0] = (char)vocab_byte(&t->vocab, id);
        return 1;
    }
    if (type != TOKEN_NORMAL && (type != TOKEN_USER || t->kind == KIND_BYTES)) {
        memcpy(out, s, n);
        return n;
    }
    return t->kind == KIND_BYTES ? decode_alphabet(char_byte, s, n, out) : decode_spaces(s, n, out);
}

int pieces_load(struct tokenizer *t, cohort_error *err) {
    const struct vocab *v = &t->vocab;
    int16_t char_byte[ALPHABET_END] = {0};
    if (t->kind == KIND_BYTES) fill_alphabet(t, char_byte);
    t->pieces = mem_alloc((size_t)v->at[v->n] + 1, 1); /* decoding never makes a text longer */
    t->piece_at = mem_alloc((size_t)v->n + 1, sizeof(*t->piece_at));
    if (!t->pieces || !t->piece_at) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the vocabulary");
    uint32_t at = 0;
    for (uint32_t id = 0; id < v->n; id++) {
        t->piece_at[id] = at;
        at += (uint32_t)decode(t, char_byte, id, t->pieces + at);
        if (t->kind != KIND_BYTES && vocab_is_plain(v, (int32_t)id)) {
            size_t n;
            const char *s = vocab_text(v, id, &n);
            note_joins(t, s, n);
        }
    }
    t->piece_at[v->n] = at;
    assert(at <= v->at[v->n]);
    return 0;
}
