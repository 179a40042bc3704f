/* Doubles as text (real.h). Pure functions. */
#include "base/real.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits without the zeros at their end that say nothing. */
static size_t trim_zeros(const char *digits, size_t n) {
    if (!memchr(digits, '.', n)) return n;
    while (digits[n - 1] == '0') n--;
    return digits[n - 1] == '.' ? n - 1 : n;
}

void real_text(char out[REAL_TEXT_MAX], double value) {
    char digits[REAL_TEXT_MAX];
    int precision = fabs(value) < 1e-300 ? 0 : 14; /* fifteen digits are always kept, but by the smallest values */
    do snprintf(digits, sizeof(digits), "%.*e", precision++, value);
    while (precision < 17 && strtod(digits, NULL) != value);
    char *e = strchr(digits, 'e');
    int exponent = atoi(e + 1), places = (int)(e - digits) - (digits[0] == '-') - 2;
    if (exponent < -4 || exponent >= 16) {
        size_t n = trim_zeros(digits, (size_t)(e - digits));
        snprintf(out, REAL_TEXT_MAX, "%.*se%c%02d", (int)n, digits, exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    places = (places < 0 ? 0 : places) - exponent;
    snprintf(out, REAL_TEXT_MAX, "%.*f", places < 0 ? 0 : places, value);
    size_t n = trim_zeros(out, strlen(out));
    snprintf(out + n, REAL_TEXT_MAX - n, "%s", memchr(out, '.', n) ? "" : ".0");
}

static size_t number_length(const char *text, int *real) {
    size_t n = strspn(text, "+-.0123456789eE");
    *real = strcspn(text, ".eE") < n;
    return n;
}

char *real_shorten_json(char *json) {
    char *to = json, text[REAL_TEXT_MAX];
    for (const char *from = json; from && *from;) {
        int real = 0;
        size_t n = 1;
        if (*from == '"') {
            while (from[n] && from[n] != '"') n += from[n] == '\\' && from[n + 1] ? 2 : 1;
            n += from[n] == '"';
        } else if (*from == '-' || (*from >= '0' && *from <= '9')) {
            n = number_length(from, &real);
        }
        if (real) {
            real_text(text, strtod(from, NULL));
            real = strlen(text) < n;
        }
        if (real)
            memcpy(to, text, strlen(text));
        else
            memmove(to, from, n);
        to += real ? strlen(text) : n;
        from += n;
    }
    if (to) *to = '\0';
    return json;
}
