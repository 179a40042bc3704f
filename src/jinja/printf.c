/* Formatting of strings: Python's % operator. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

struct directive {
    int left, sign, space, zero, alternate;
    int64_t width, precision; /* precision -1: none */
    char type;
};
struct formatting {
    struct maker m;
    struct str *s;
    size_t at;
    val args;
    uint32_t next; /* of a tuple */
    int keyed;     /* a mapping was asked by key */
};

static val next_argument(struct formatting *f) {
    struct run *x = f->m.x;
    if (f->args.type == V_TUPLE) {
        if (f->next >= f->args.l->n) jx_fail(x, "not enough arguments for format string");
        return f->args.l->v[f->next++];
    }
    if (f->next++) jx_fail(x, "not enough arguments for format string");
    return f->args;
}

static int64_t read_count(struct formatting *f, int *given) {
    int64_t n = 0;
    *given = 0;
    if (f->at < f->s->n && f->s->b[f->at] == '*') {
        f->at++;
        *given = 1;
        val v = next_argument(f);
        if (!is_integer(v)) jx_fail(f->m.x, "* wants int");
        return v.i;
    }
    while (f->at < f->s->n && f->s->b[f->at] >= '0' && f->s->b[f->at] <= '9') {
        *given = 1;
        n = n * 10 + (f->s->b[f->at++] - '0');
        if (n > JINJA_OUTPUT_MAX) jx_fail_limit(f->m.x, "text");
    }
    return n;
}

static val keyed_argument(struct formatting *f) {
    struct run *x = f->m.x;
    size_t from = ++f->at;
    int depth = 1;
    for (; f->at < f->s->n; f->at++) {
        if (f->s->b[f->at] == '(') depth++;
        if (f->s->b[f->at] == ')' && --depth == 0) break;
    }
    if (depth) jx_fail(x, "incomplete format key");
    val key = v_slice(x, f->s, from, f->at++ - from), out;
    if (f->args.type != V_DICT) jx_fail(x, "format requires a mapping");
    if (!dict_get(x, f->args.d, key, &out))
        jx_fail(x, "KeyError: '%.*s'", (int)(key.s->n > 100 ? 100 : key.s->n), key.s->b);
    f->keyed = 1;
    return out;
}

/* `body` within the width, with zeros behind `prefix` bytes (sign and base) if asked for. */
static void put_padded(struct formatting *f, const struct directive *d, val body, size_t prefix) {
    struct str *s = body.s;
    int64_t pad = d->width - str_chars(s);
    int zero = d->zero && !d->left && prefix != SIZE_MAX;
    if (pad > JINJA_OUTPUT_MAX) jx_fail_limit(f->m.x, "text");
    const struct str *fill = v_text(f->m.x, zero ? "0" : " ").s;
    if (zero) maker_part(&f->m, s, 0, prefix);
    if (!d->left) maker_repeat(&f->m, fill, pad);
    maker_part(&f->m, s, zero ? prefix : 0, s->n - (zero ? prefix : 0));
    if (d->left) maker_repeat(&f->m, fill, pad);
}

/* The digits of |v|; a float's whole part has all its digits. */
static int integer_digits(struct run *x, const struct directive *d, val v, char *digits, size_t size) {
    if (v.type == V_FLOAT) {
        if (isnan(v.f) || isinf(v.f)) jx_fail(x, "cannot convert float to integer");
        return snprintf(digits, size, "%.0f", trunc(fabs(v.f)));
    }
    unsigned long long u = v.i < 0 ? 0 - (unsigned long long)v.i : (unsigned long long)v.i;
    if (d->type == 'x') return snprintf(digits, size, "%llx", u);
    if (d->type == 'X') return snprintf(digits, size, "%llX", u);
    return snprintf(digits, size, d->type == 'o' ? "%llo" : "%llu", u);
}

static void put_integer(struct formatting *f, const struct directive *d, val v) {
    struct run *x = f->m.x;
    char digits[400];
    need_defined(x, v);
    if (!is_integer(v) && (v.type != V_FLOAT || !strchr("diu", d->type)))
        jx_fail(x, "%%%c format: a number is required, not %s", d->type, type_name(v));
    int n = integer_digits(x, d, v, digits, sizeof(digits)), negative = v.type == V_FLOAT ? v.f <= -1 : v.i < 0;
    struct maker m = maker_begin(x);
    maker_text(&m, negative ? "-" : d->sign ? "+" : d->space ? " " : "", v.mark);
    if (d->alternate && strchr("xXo", d->type))
        maker_text(&m, d->type == 'x' ? "0x" : d->type == 'X' ? "0X" : "0o", v.mark);
    size_t prefix = m.n;
    if (d->precision > n) maker_repeat(&m, v_text(x, "0").s, d->precision - n);
    maker_add(&m, digits, (size_t)n, v.mark);
    put_padded(f, d, maker_end(&m), prefix);
}

static void put_real(struct formatting *f, const struct directive *d, val v) {
    struct run *x = f->m.x;
    char pattern[16], *text = jx_alloc(x, 1, 1200);
    need_defined(x, v);
    if (!is_number(v)) jx_fail(x, "must be real number, not %s", type_name(v));
    double real = v.type == V_FLOAT ? v.f : (double)v.i;
    int64_t precision = d->precision < 0 ? 6 : d->precision;
    if (precision > 800) jx_fail_limit(x, "digits");
    snprintf(pattern, sizeof(pattern), "%%%s.*%c", d->alternate ? "#" : "", d->type);
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wformat-nonliteral\"") int n =
        snprintf(text, 1200, pattern, (int)precision, fabs(real));
    _Pragma("GCC diagnostic pop") struct maker m = maker_begin(x);
    maker_text(&m, signbit(real) && !isnan(real) ? "-" : d->sign ? "+" : d->space ? " " : "", v.mark);
    size_t prefix = m.n;
    maker_add(&m, text, (size_t)n, v.mark);
    put_padded(f, d, maker_end(&m), prefix);
}

static void put_text(struct formatting *f, const struct directive *d, val v) {
    struct run *x = f->m.x;
    struct maker m = maker_begin(x);
    if (f->s->markup && d->type == 's')
        put_str(&m, escape_html(x, v));
    else if (d->type == 's')
        put_str(&m, v);
    else
        put_repr(&m, v);
    val text = maker_end(&m);
    if (d->precision >= 0 && d->precision < str_chars(text.s))
        text = v_slice(x, text.s, 0, str_offset(text.s, d->precision));
    put_padded(f, d, text, SIZE_MAX);
}

static void put_character(struct formatting *f, const struct directive *d, val v) {
    struct run *x = f->m.x;
    if (is_str(v) && str_chars(v.s) == 1) {
        put_padded(f, d, v, SIZE_MAX);
        return;
    }
    if (!is_integer(v) || v.i < 0 || v.i > 0x10ffff || (v.i >= 0xd800 && v.i < 0xe000))
        jx_fail(x, "%%c requires int or char");
    struct maker m = maker_begin(x);
    maker_char(&m, (uint32_t)v.i, v.mark);
    put_padded(f, d, maker_end(&m), SIZE_MAX);
}

static void put_directive(struct formatting *f) {
    struct run *x = f->m.x;
    struct directive d = {.precision = -1};
    int keyed = 0, given;
    val v = v_none();
    if (f->at < f->s->n && f->s->b[f->at] == '(') {
        v = keyed_argument(f);
        keyed = 1;
    }
    for (; f->at < f->s->n && strchr("-+ 0#", f->s->b[f->at]) && f->s->b[f->at]; f->at++) {
        char c = f->s->b[f->at];
        d.left |= c == '-';
        d.sign |= c == '+';
        d.space |= c == ' ';
        d.zero |= c == '0';
        d.alternate |= c == '#';
    }
    d.width = read_count(f, &given);
    if (d.width < 0) {
        d.left = 1;
        d.width = d.width < -JINJA_OUTPUT_MAX ? JINJA_OUTPUT_MAX : -d.width;
    }
    if (f->at < f->s->n && f->s->b[f->at] == '.') {
        f->at++;
        d.precision = read_count(f, &given);
        if (d.precision < 0) d.precision = 0;
    }
    while (f->at < f->s->n && (f->s->b[f->at] == 'h' || f->s->b[f->at] == 'l' || f->s->b[f->at] == 'L')) f->at++;
    if (f->at >= f->s->n) jx_fail(x, "incomplete format");
    d.type = f->s->b[f->at++];
    if (d.type == '%') {
        maker_part(&f->m, f->s, f->at - 1, 1);
        return;
    }
    if (!strchr("sradiuxXoeEfFgGc", d.type)) jx_fail(x, "unsupported format character");
    if (!keyed) v = next_argument(f);
    if (strchr("sra", d.type))
        put_text(f, &d, v);
    else if (d.type == 'c')
        put_character(f, &d, v);
    else if (strchr("diuxXo", d.type))
        put_integer(f, &d, v);
    else
        put_real(f, &d, v);
}

val format_percent(struct run *x, val format, val args) {
    struct formatting f = {.m = maker_begin(x), .s = format.s, .args = args};
    while (f.at < f.s->n) {
        const char *percent = memchr(f.s->b + f.at, '%', f.s->n - f.at);
        size_t end = percent ? (size_t)(percent - f.s->b) : f.s->n;
        maker_part(&f.m, f.s, f.at, end - f.at);
        f.at = end;
        if (!percent) break;
        f.at++;
        jx_steps(x, 1);
        put_directive(&f);
    }
    int mapping = args.type == V_DICT || args.type == V_LIST || args.type == V_RANGE || args.type == V_UNDEF ||
                  args.type == V_LOOP;
    uint32_t total = args.type == V_TUPLE ? args.l->n : mapping ? f.next : 1;
    if (!f.keyed && f.next < total) jx_fail(x, "not all arguments converted during string formatting");
    return v_markup(x, maker_end(&f.m), format.s->markup);
}
