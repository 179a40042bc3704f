#include "chat/loose.h"

#include <string.h>

#include "base/utf8.h"

void chat_loose_begin(struct chat_loose *l, const char *quote) {
    memset(l, 0, sizeof *l);
    chat_walk_begin(&l->walk);
    l->quote = quote;
}

/* Adds to the output what the walk takes; 1: the value is at its end, -1: not JSON, -2: no memory. */
static int put(struct chat_loose *l, struct buf *out, const char *s, size_t n) {
    int got = 0;
    for (size_t i = 0; i < n; i++) {
        got = chat_walk_byte(&l->walk, s[i]);
        if (got < 0) return -1;
    }
    return buf_add(out, s, n) ? -2 : got;
}

static int put_character(struct chat_loose *l, struct buf *out, const char *s, size_t n) {
    char text[8];
    if (n == 1 && (unsigned char)*s < 0x20) {
        static const char digits[] = "0123456789abcdef";
        const char *at = strchr("\b\f\n\r\t", *s);
        if (*s && at) {
            text[0] = '\\';
            text[1] = "bfnrt"[at - "\b\f\n\r\t"];
            return put(l, out, text, 2);
        }
        memcpy(text, "\\u00", 4);
        text[4] = digits[*s >> 4 & 1];
        text[5] = digits[*s & 15];
        return put(l, out, text, 6);
    }
    if (n == 1 && (*s == '"' || *s == '\\')) {
        text[0] = '\\';
        text[1] = *s;
        return put(l, out, text, 2);
    }
    return put(l, out, s, n);
}

ptrdiff_t chat_json_inside(struct buf *out, const char *s, size_t n, int last) {
    struct chat_loose l;
    chat_loose_begin(&l, NULL);
    chat_walk_byte(&l.walk, '"');
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        int got = utf8_decode(s + i, n - i, &cp);
        if (got < 0 && !last) break;
        int e = got > 0 ? put_character(&l, out, s + i, (size_t)got) : put(&l, out, "\xef\xbf\xbd", 3);
        if (e < 0) return -1;
        i += got > 0 ? (size_t)got : got < 0 ? n - i : 1;
    }
    return (ptrdiff_t)i;
}

static int is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
           c == '+' || c == '-';
}

static int word_is(const struct chat_loose *l, const char *name) {
    return strlen(name) == l->word_n && !memcmp(name, l->word, l->word_n);
}

static int put_word(struct chat_loose *l, struct buf *out) {
    const char *s = l->word;
    size_t n = l->word_n;
    if (word_is(l, "True")) s = "true", n = 4;
    if (word_is(l, "False")) s = "false", n = 5;
    if (word_is(l, "None")) s = "null", n = 4;
    if (!chat_walk_valid(s, n)) return -1; /* the word stays, and is no part of the value */
    int got = put(l, out, s, n);
    if (got == -1) return -1;
    l->word_n = 0;
    return got == 0 && chat_walk_whole(&l->walk) ? 1 : got;
}

/* A character behind a backslash in a Python string; how many bytes it took, 0 for too few yet, -1 or -2. */
static ptrdiff_t put_escape(struct chat_loose *l, struct buf *out, const char *s, size_t n, int last) {
    static const char from[] = "abfnrtv0", to[] = "\a\b\f\n\r\t\v";
    const char *at = strchr(from, *s);
    if (*s && at) return put_character(l, out, to + (at - from), 1) < 0 ? -2 : 1;
    if (*s == 'x' || *s == 'u') {
        size_t digits = *s == 'x' ? 2 : 4;
        if (n < digits + 1) return last ? -1 : 0;
        uint32_t cp = 0;
        for (size_t i = 1; i <= digits; i++) {
            const char *hex = "0123456789abcdef", *d = strchr(hex, s[i] | 0x20);
            if (!s[i] || !d) return -1;
            cp = cp * 16 + (uint32_t)(d - hex);
        }
        char text[4];
        int len = utf8_encode(cp, text);
        if (!len) return -1;
        return put_character(l, out, text, (size_t)len) < 0 ? -2 : (ptrdiff_t)digits + 1;
    }
    if (*s == '\n') return 1; /* the line goes on */
    if (*s != '\'' && *s != '"' && *s != '\\' && put_character(l, out, "\\", 1) < 0) return -2;
    if ((unsigned char)*s >= 0x80) return 0; /* the caller takes it as a character */
    return put_character(l, out, s, 1) < 0 ? -2 : 1;
}

/* One step within a string: bytes taken, 0 for too few, -1 bad, -2 memory, -3: the string's end was taken and so was
 * the value's. */
static ptrdiff_t in_string(struct chat_loose *l, const char *s, size_t n, int last, struct buf *out) {
    if (l->escaped) {
        ptrdiff_t got = put_escape(l, out, s, n, last);
        if (got || (unsigned char)*s >= 0x80) l->escaped = 0;
        if (got || !l->escaped) return got ? got : in_string(l, s, n, last, out);
        return 0;
    }
    if (l->in == 'q') {
        size_t quote = strlen(l->quote), shorter = n < quote ? n : quote;
        if (!memcmp(s, l->quote, shorter)) {
            if (n < quote && !last) return 0;
            if (n >= quote) {
                l->in = 0;
                int e = put(l, out, "\"", 1);
                return e < 0 ? e : e ? -3 : (ptrdiff_t)quote;
            }
        }
    } else if (*s == l->in) {
        l->in = 0;
        int e = put(l, out, "\"", 1);
        return e < 0 ? e : e ? -3 : 1;
    } else if (*s == '\\') {
        l->escaped = 1;
        return 1;
    }
    uint32_t cp;
    int got = utf8_decode(s, n, &cp);
    if (got < 0 && !last) return 0;
    int e = got > 0 ? put_character(l, out, s, (size_t)got) : put(l, out, "\xef\xbf\xbd", 3);
    return e < 0 ? e : got > 0 ? got : got < 0 ? (ptrdiff_t)n : 1;
}

/* A key without quotes, up to the colon. */
static ptrdiff_t bare_key(struct chat_loose *l, char c, struct buf *out) {
    if (c != ':') {
        if (l->word_n == CHAT_LOOSE_WORD_MAX || c == '"' || c == '{' || c == '}') return -1;
        l->word[l->word_n++] = c;
        return 1;
    }
    if (!utf8_valid(l->word, l->word_n)) return -1;
    int e = put(l, out, "\"", 1);
    for (size_t i = 0; i < l->word_n && !e;) {
        uint32_t cp;
        size_t got = (size_t)utf8_decode(l->word + i, l->word_n - i, &cp);
        e = put_character(l, out, l->word + i, got);
        i += got;
    }
    if (!e) e = put(l, out, "\":", 2);
    l->word_n = 0;
    return e < 0 ? e : 1;
}

static ptrdiff_t outside(struct chat_loose *l, const char *s, size_t n, int last, struct buf *out) {
    char c = *s;
    if (l->quote && chat_walk_wants_key(&l->walk) && (l->word_n || (c != '}' && !strchr(" \n\t\r", c))))
        return bare_key(l, c, out);
    if (is_word(c)) {
        if (l->word_n == CHAT_LOOSE_WORD_MAX) return -1;
        l->word[l->word_n++] = c;
        return 1;
    }
    if (l->word_n) {
        int e = put_word(l, out);
        if (e < 0) return e;
        if (e && !l->walk.depth) return -4; /* the value ended before this byte */
    }
    size_t quote = l->quote ? strlen(l->quote) : 1, shorter = n < quote ? n : quote;
    if (l->quote ? !memcmp(s, l->quote, shorter) : c == '\'' || c == '"') {
        if (n < quote) return last ? -1 : 0;
        l->in = l->quote ? 'q' : c;
        int e = put(l, out, "\"", 1);
        return e < 0 ? e : (ptrdiff_t)quote;
    }
    int e = c == '"' ? -1 : put(l, out, s, 1);
    return e < 0 ? e : e && !strchr(" \n\t\r", c) ? -3 : 1;
}

enum chat_loose_result chat_loose_feed(struct chat_loose *l, const char *s, size_t n, int last, struct buf *out,
                                       size_t *used) {
    size_t i = 0, word = 0;
    enum chat_loose_result result = CHAT_LOOSE_MORE;
    while (i < n && result == CHAT_LOOSE_MORE) {
        char in = l->in;
        if (!l->word_n) word = i;
        ptrdiff_t got = in ? in_string(l, s + i, n - i, last, out) : outside(l, s + i, n - i, last, out);
        if (got > 0) {
            i += (size_t)got;
            continue;
        }
        if (got == -3) i += in == 'q' ? strlen(l->quote) : 1;
        if (!got) break;
        result = got == -1 ? CHAT_LOOSE_BAD : got == -2 ? CHAT_LOOSE_MEMORY : CHAT_LOOSE_DONE;
    }
    if (last && result == CHAT_LOOSE_MORE && l->word_n && !l->in && !l->walk.depth) {
        int e = put_word(l, out);
        result = e == 1 ? CHAT_LOOSE_DONE : e == -2 ? CHAT_LOOSE_MEMORY : CHAT_LOOSE_BAD;
    }
    /* A word that is not at its end is not taken: it may turn out to be none. */
    *used = l->word_n ? word : i;
    l->word_n = 0;
    return result;
}
