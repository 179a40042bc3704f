/* UTF-8: decoding, validity, incomplete tails. Pure. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the character at s (n > 0 bytes). Returns its length 1..4 and *cp, or 0 for a byte sequence that is not UTF-8
 * (overlong forms and surrogates are not), or -1 if it is a proper but incomplete beginning. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);
int utf8_encode(uint32_t cp, char out[4]); /* length, 0 if cp is not a character */
int utf8_valid(const char *s, size_t n);
/* Bytes at the end that are a proper but incomplete beginning of a character: 0..3. */
size_t utf8_tail(const char *s, size_t n);

#endif
