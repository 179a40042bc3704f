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

static int is_mark(const char *s) { return s[0] == space_mark[0] && s[1] == space_mark[1] && s[2] == space_mark[2]; }

/* Bytes in front of the first that a mark could begin with, 8 if there is none. */
static size_t bytes_before_mark(uint64_t eight) {
    const uint64_t ones = 0x0101010101010101u;
    uint64_t differs = eight ^ ones * (uint8_t)space_mark[0];
    uint64_t found = (differs - ones) & ~differs & ones << 7; /* exact up to the first byte that is 0 */
    return found ? (size_t)__builtin_ctzll(found) / 8 : 8;
}

/* Spaces for U+2581. Notes what stands in front of one, unless it is another (joins_space). Goes by eight bytes: reads
 * and writes up to 7 behind the ends (VOCAB_PADDING). */
static size_t decode_spaces(struct tokenizer *t, const char *s, size_t n, char *out) {
    size_t used = 0, behind_mark = 1; /* at the beginning there is nothing to join */
    for (size_t i = 0; i < n;) {
        if (n - i >= 3 && is_mark(s + i)) {
            if (!behind_mark) t->joins_space[(uint8_t)s[i - 1]] = 1;
            behind_mark = 1;
            out[used++] = ' ';
            i += 3;
            continue;
        }
        uint64_t eight;
        memcpy(&eight, s + i, 8);
        memcpy(out + used, &eight, 8);
        size_t plain = bytes_before_mark(eight);
        if (plain == 0) plain = 1; /* it was no mark */
        if (plain > n - i) plain = n - i;
        used += plain;
        i += plain;
        behind_mark = 0;
    }
    return used;
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
    return t->kind == KIND_BYTES ? decode_alphabet(char_byte, s, n, out) : decode_spaces(t, s, n, out);
}

/* Where spaces are marks, a text may also hold the mark itself, whose three bytes decode to one: there the listed text
 * counts. */
static uint32_t find_reach(const struct tokenizer *t) {
    const int32_t *bytes = t->kind == KIND_BYTES ? t->byte_token : t->vocab.byte_id;
    for (int i = 0; i < 256; i++)
        if (bytes[i] < 0 && t->unknown >= 0) return 0;
    for (uint32_t id = 0; id < t->vocab.n; id++)
        if (t->vocab.type[id] == TOKEN_USER && t->flags[id] & ID_EATS_SPACE) return 0;
    return t->kind == KIND_BYTES ? t->longest_piece : t->vocab.longest;
}

int pieces_load(struct tokenizer *t, cohort_error *err) {
    const struct vocab *v = &t->vocab;
    int16_t char_byte[ALPHABET_END] = {0};
    if (t->kind == KIND_BYTES) fill_alphabet(t, char_byte);
    t->piece_bytes =
        ((size_t)v->n + 1) * sizeof(*t->piece_at) + v->at[v->n] + VOCAB_PADDING; /* no text becomes longer */
    t->piece_at = mem_map_large(t->piece_bytes);
    if (!t->piece_at) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the vocabulary");
    t->pieces = (char *)(t->piece_at + v->n + 1);
    uint32_t at = 0;
    for (uint32_t id = 0; id < v->n; id++) {
        t->piece_at[id] = at;
        uint32_t len = (uint32_t)decode(t, char_byte, id, t->pieces + at);
        if (len > t->longest_piece) t->longest_piece = len;
        at += len;
    }
    t->piece_at[v->n] = at;
    assert(at <= v->at[v->n]);
    t->reach = find_reach(t);
    return 0;
}
