/* Two stages, one character at a time: bytes become characters (held), characters pass the stop strings (pending).
 * Invariant: pending is the longest end of the text so far that a stop string begins with, and shorter than it. */
#include "text/detok.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void detok_init(struct detok *d, const struct tokenizer *tokenizer, const struct detok_stop *stops, uint32_t stops_n,
                int strip_first_space) {
    assert(stops_n <= DETOK_STOPS_MAX);
    memset(d, 0, sizeof(*d));
    d->tokenizer = tokenizer;
    d->stops = stops;
    d->stops_n = stops_n;
    d->started = !strip_first_space;
}

/* The stop string that the text (pending and one more character) ends with: the longest, DETOK_NONE if none. */
static int find_match(const struct detok *d, const char *text, size_t n) {
    int best = DETOK_NONE;
    for (uint32_t k = 0; k < d->stops_n; k++) {
        const struct detok_stop *stop = &d->stops[k];
        if (stop->len == 0 || stop->len > n || (best >= 0 && stop->len <= d->stops[best].len)) continue;
        if (memcmp(text + n - stop->len, stop->bytes, stop->len) == 0) best = (int)k;
    }
    return best;
}

/* Length of the longest end of the text that is a proper beginning of a stop string. */
static size_t withheld(const struct detok *d, const char *text, size_t n) {
    for (size_t begin = 0; begin < n; begin++)
        for (uint32_t k = 0; k < d->stops_n; k++) {
            const struct detok_stop *stop = &d->stops[k];
            if (stop->len > n - begin && memcmp(text + begin, stop->bytes, n - begin) == 0) return n - begin;
        }
    return 0;
}

/* One whole character. DETOK_NONE, a stop string's index, or DETOK_NO_MEMORY. */
static int pass(struct detok *d, const char *bytes, size_t len, struct buf *out) {
    if (d->stops_n == 0) return buf_add(out, bytes, len) ? DETOK_NO_MEMORY : DETOK_NONE;
    char text[DETOK_STOP_BYTES_MAX + 4];
    size_t n = d->pending_n + len;
    memcpy(text, d->pending, d->pending_n);
    memcpy(text + d->pending_n, bytes, len);
    int match = d->deaf ? DETOK_NONE : find_match(d, text, n);
    size_t keep = match < 0 ? withheld(d, text, n) : d->include_stop ? 0 : d->stops[match].len;
    if (buf_add(out, text, n - keep)) return DETOK_NO_MEMORY;
    d->pending_n = match >= 0 ? 0 : (uint32_t)keep;
    memcpy(d->pending, text + n - keep, d->pending_n);
    return match;
}

static int push_byte(struct detok *d, char byte, struct buf *out) {
    d->held[d->held_n++] = byte;
    int result = DETOK_NONE;
    while (d->held_n && result == DETOK_NONE) {
        uint32_t cp;
        int len = utf8_decode(d->held, d->held_n, &cp);
        if (len < 0) break;
        result = len ? pass(d, d->held, (size_t)len, out) : pass(d, replacement, 3, out);
        size_t used = len ? (size_t)len : 1;
        d->held_n -= (uint8_t)used;
        memmove(d->held, d->held + used, d->held_n);
    }
    assert(d->held_n < sizeof(d->held));
    return result;
}

int detok_push(struct detok *d, int32_t token, struct buf *out) {
    const char *bytes;
    size_t n;
    tokenizer_piece(d->tokenizer, token, d->special, &bytes, &n);
    if (n && !d->started) {
        d->started = 1;
        size_t skip = bytes[0] == ' ';
        bytes += skip;
        n -= skip;
    }
    int result = DETOK_NONE;
    for (size_t i = 0; i < n && result == DETOK_NONE; i++) result = push_byte(d, bytes[i], out);
    return result;
}

int detok_finish(struct detok *d, struct buf *out) {
    int code = buf_add(out, d->pending, d->pending_n);
    for (; !code && d->held_n; d->held_n--) code = buf_add(out, replacement, 3);
    d->pending_n = 0;
    return code ? COHORT_E_MEMORY : 0;
}
