/* The growing byte buffer. Invariant: data is NULL with len = cap = 0, or len < cap and data[len] is NUL. The caller's
 * memory, one thread at a time. */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"

/* Makes room for n more bytes and their NUL. */
static int reserve(struct buf *b, size_t n) {
    size_t end, need;
    assert(b->data ? b->len < b->cap : b->len == 0 && b->cap == 0);
    if (size_add(b->len, n, &end) || (b->max && end > b->max)) return COHORT_E_LIMIT;
    if (size_add(end, 1, &need)) return COHORT_E_LIMIT;
    if (need <= b->cap) return 0;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need)
        if (size_mul(cap, 2, &cap)) return COHORT_E_MEMORY;
    char *data = mem_realloc(b->data, cap, 1);
    if (!data) return COHORT_E_MEMORY;
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_add(struct buf *b, const void *bytes, size_t n) {
    int code = reserve(b, n);
    if (code) return code;
    if (n) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int buf_adds(struct buf *b, const char *string) { return buf_add(b, string, strlen(string)); }

int buf_addf(struct buf *b, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (n < 0) return COHORT_E_INTERNAL;
    int code = reserve(b, (size_t)n);
    if (code) return code;
    va_start(arguments, format);
    vsnprintf(b->data + b->len, (size_t)n + 1, format, arguments);
    va_end(arguments);
    b->len += (size_t)n;
    return 0;
}

/* Bytes that one U+FFFD stands for: the longest proper beginning of a character, or one byte. */
static size_t broken_length(const char *s, size_t n) {
    for (size_t k = n < 3 ? n : 3; k > 1; k--) {
        uint32_t cp;
        if (utf8_decode(s, k, &cp) == -1) return k;
    }
    return 1;
}

/* Control characters, also DEL and the C1 set, which some terminals obey. */
static int is_control(uint32_t cp) { return cp < 0x20 || (cp >= 0x7f && cp < 0xa0); }

static int add_escape(struct buf *b, uint32_t cp) {
    switch (cp) {
    case '"':
        return buf_adds(b, "\\\"");
    case '\\':
        return buf_adds(b, "\\\\");
    case '\n':
        return buf_adds(b, "\\n");
    case '\r':
        return buf_adds(b, "\\r");
    case '\t':
        return buf_adds(b, "\\t");
    default:
        return buf_addf(b, "\\u%04x", cp);
    }
}

int buf_json_string(struct buf *b, const char *bytes, size_t n) {
    size_t old_len = b->len, plain = 0, i = 0; /* bytes[plain..i) wait to be copied as they are */
    int code = buf_adds(b, "\"");
    while (!code && i < n) {
        uint32_t cp;
        int length = utf8_decode(bytes + i, n - i, &cp);
        if (length > 0 && !is_control(cp) && cp != '"' && cp != '\\') {
            i += (size_t)length;
            continue;
        }
        code = buf_add(b, bytes + plain, i - plain);
        if (!code) code = length > 0 ? add_escape(b, cp) : buf_adds(b, "\xef\xbf\xbd");
        i += length > 0 ? (size_t)length : broken_length(bytes + i, n - i);
        plain = i;
    }
    if (!code) code = buf_add(b, bytes + plain, n - plain);
    if (!code) code = buf_adds(b, "\"");
    if (code && b->data) {
        b->len = old_len;
        b->data[old_len] = '\0';
    }
    return code;
}

void buf_clear(struct buf *b) {
    b->len = 0;
    if (b->data) b->data[0] = '\0';
}

void buf_free(struct buf *b) {
    mem_free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}
