/* UTF-8 after the table of well-formed byte sequences in the Unicode Standard (chapter 3, table 3-7). Pure. */
#include "base/utf8.h"

#include <string.h>

/* Length that a lead byte announces (0: not a lead byte) and the range its second byte must be in: that range is what
 * rules out overlong forms, surrogates and values above U+10FFFF. */
static int lead_length(uint8_t lead, uint8_t *low, uint8_t *high) {
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0;
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) {
        if (lead == 0xe0) *low = 0xa0;
        if (lead == 0xed) *high = 0x9f;
        return 3;
    }
    if (lead > 0xf4) return 0;
    if (lead == 0xf0) *low = 0x90;
    if (lead == 0xf4) *high = 0x8f;
    return 4;
}

int utf8_decode(const char *s, size_t n, uint32_t *cp) {
    *cp = 0;
    if (n == 0) return 0;
    uint8_t lead = (uint8_t)s[0], low, high;
    int length = lead_length(lead, &low, &high);
    if (length <= 1) {
        *cp = lead;
        return length;
    }
    uint32_t value = lead & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n) return -1;
        uint8_t byte = (uint8_t)s[i];
        if (byte < low || byte > high) return 0;
        low = 0x80;
        high = 0xbf;
        value = value << 6 | (byte & 0x3f);
    }
    *cp = value;
    return length;
}

int utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return 0;
    int length = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3f));
        cp >>= 6;
    }
    out[0] = (char)((0xf00u >> length & 0xff) | cp);
    return length;
}

int utf8_valid(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8) {
            memcpy(&eight, s + i, 8);
            if (!(eight & 0x8080808080808080u)) {
                i += 8;
                continue;
            }
        }
        uint32_t cp;
        int length = utf8_decode(s + i, n - i, &cp);
        if (length <= 0) return 0;
        i += (size_t)length;
    }
    return 1;
}

size_t utf8_tail(const char *s, size_t n) {
    for (size_t tail = 1; tail <= 3 && tail <= n; tail++) {
        uint32_t cp;
        if (utf8_decode(s + n - tail, tail, &cp) == -1) return tail;
    }
    return 0;
}
