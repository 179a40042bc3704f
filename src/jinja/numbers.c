/* Numbers from texts, as Python's int() and float() read them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/text.h"

/* The text without white space around it and without the underscores between digits, decimal digits of any script as
 * ASCII, NUL-terminated; NULL if it cannot be a number. */
static char *plain(struct run *x, struct str *s, size_t *n_out) {
    struct str *t = str_strip(x, s, v_none(), 3).s;
    if (!t->n || t->n > 4096) return NULL;
    char *b = jx_alloc(x, t->n + 1, 1);
    size_t n = 0;
    unsigned len;
    for (size_t at = 0; at < t->n; at += len) {
        uint32_t c = str_char(t, at, &len);
        if (c == '_') {
            int inside = n > 0 && at + 1 < t->n && b[n - 1] != '_' && strchr("+-. ", b[n - 1]) == NULL &&
                         strchr("+-._ ", t->b[at + 1]) == NULL;
            if (!inside) return NULL;
            continue;
        }
        if (c >= 128) {
            if (!char_decimal(c)) return NULL;
            /* Digits of a script stand together, zero first. */
            uint32_t zero = c;
            while (char_decimal(zero - 1) && c - zero < 9) zero--;
            c = '0' + (c - zero) % 10;
        }
        b[n++] = (char)c;
    }
    b[n] = 0;
    *n_out = n;
    return b;
}

static int digit_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
}

static int text_to_int(struct run *x, struct str *s, int64_t base, val *out) {
    size_t n, at = 0;
    if (base != 0 && (base < 2 || base > 36)) return 0;
    char *b = plain(x, s, &n);
    if (!b) return 0;
    int negative = b[0] == '-';
    if (b[0] == '-' || b[0] == '+') at++;
    if (b[at] == '0' && at + 2 < n) {
        char c = (char)(b[at + 1] | 32);
        int64_t prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (prefix && (base == 0 || base == prefix)) {
            base = prefix;
            at += 2;
        }
    }
    if (base == 0) {
        base = 10;
        for (size_t i = at; b[at] == '0' && i < n; i++)
            if (b[i] != '0') return 0;
    }
    if (at >= n) return 0;
    int64_t value = 0;
    int large = 0;
    for (; at < n; at++) {
        int d = digit_of(b[at]);
        if (d >= base) return 0;
        large |=
            __builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, negative ? -d : d, &value);
    }
    if (large) jx_fail_limit(x, "digits of an integer");
    *out = v_int(value);
    return 1;
}

int to_int(struct run *x, val v, int64_t base, val *out) {
    uint16_t mark = mark_of(v);
    if (is_str(v)) {
        if (!text_to_int(x, v.s, base, out)) return 0;
    } else if (v.type == V_BIG) {
        jx_fail_limit(x, "digits of an integer");
    } else if (is_integer(v)) {
        *out = v_int(v.i);
    } else if (v.type == V_FLOAT) {
        if (isnan(v.f)) return 0;
        if (isinf(v.f)) jx_fail(x, "cannot convert float infinity to integer");
        if (!(v.f > -9.2e18 && v.f < 9.2e18)) jx_fail_limit(x, "digits of an integer");
        *out = v_int((int64_t)v.f);
    } else {
        return 0;
    }
    out->mark = mark;
    return 1;
}

int to_float(struct run *x, val v, val *out) {
    size_t n;
    if (is_number(v)) {
        *out = v_float(v.type == V_FLOAT ? v.f : (double)v.i);
    } else if (is_str(v) || v.type == V_BIG) {
        char *b = plain(x, v.s, &n), *end;
        if (!b) return 0;
        /* strtod knows hexadecimal too, and "nan(...)". */
        for (size_t i = 0; i < n; i++)
            if ((b[i] | 32) == 'x' || b[i] == '(' || b[i] == ' ' || b[i] == 0) return 0;
        *out = v_float(strtod(b, &end));
        if (end != b + n) return 0;
    } else {
        return 0;
    }
    out->mark = mark_of(v);
    return 1;
}
