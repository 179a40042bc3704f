/* Stripping, replacing, padding and splitting, which methods and filters share. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/text.h"

static int in_set(const struct str *set, const char *b, unsigned n) {
    unsigned len;
    for (size_t at = 0; at < set->n; at += len) {
        str_char(set, at, &len);
        if (len == n && !memcmp(set->b + at, b, n)) return 1;
    }
    return 0;
}

static int strips(struct run *x, const struct str *s, size_t at, unsigned len, val chars) {
    if (chars.type == V_STR) {
        jx_steps(x, chars.s->n / 64);
        return in_set(chars.s, s->b + at, len);
    }
    return char_space(str_char(s, at, &len));
}

val str_strip(struct run *x, struct str *s, val chars, int sides) {
    size_t from = 0, to = s->n;
    unsigned len;
    need_defined(x, chars);
    if (chars.type != V_MISSING && chars.type != V_NONE && chars.type != V_STR)
        jx_fail(x, "strip arg must be None or str");
    for (; sides & 1 && from < to; from += len) {
        str_char(s, from, &len);
        if (!strips(x, s, from, len, chars)) break;
    }
    while (sides & 2 && to > from) {
        size_t at = to - 1;
        while (at > from && ((uint8_t)s->b[at] & 0xc0) == 0x80) at--;
        if (!strips(x, s, at, (unsigned)(to - at), chars)) break;
        to = at;
    }
    jx_steps(x, (s->n - (to - from)) / 16);
    return v_slice(x, s, from, to - from);
}

/* Between all characters, if there is nothing to look for. */
static val replace_empty(struct run *x, const struct str *s, const struct str *to, int64_t count) {
    struct maker m = maker_begin(x);
    unsigned len;
    size_t at = 0;
    while (count) {
        maker_str(&m, to);
        count -= count > 0;
        if (at >= s->n) break;
        str_char(s, at, &len);
        maker_part(&m, s, at, len);
        at += len;
    }
    maker_part(&m, s, at, s->n - at);
    jx_steps(x, s->n / 8);
    return maker_end(&m);
}

val str_replace(struct run *x, const struct str *s, const struct str *from, const struct str *to, int64_t count) {
    if (!from->n) return replace_empty(x, s, to, count);
    struct maker m = maker_begin(x);
    size_t at = 0;
    jx_steps(x, s->n / 64);
    while (count) {
        const char *found = memmem(s->b + at, s->n - at, from->b, from->n);
        if (!found) break;
        maker_part(&m, s, at, (size_t)(found - s->b) - at);
        maker_str(&m, to);
        at = (size_t)(found - s->b) + from->n;
        count -= count > 0;
        jx_steps(x, 1);
    }
    maker_part(&m, s, at, s->n - at);
    return maker_end(&m);
}

val str_pad(struct run *x, struct str *s, int64_t width, struct str *fill, int side) {
    int64_t pad = width - str_chars(s);
    struct maker m = maker_begin(x);
    if (str_chars(fill) != 1) jx_fail(x, "The fill character must be exactly one character long");
    if (pad <= 0) return v_slice(x, s, 0, s->n);
    int64_t left = side < 0 ? 0 : side > 0 ? pad : pad / 2 + (pad & width & 1);
    maker_repeat(&m, fill, left);
    maker_str(&m, s);
    maker_repeat(&m, fill, pad - left);
    return v_markup(x, maker_end(&m), s->markup);
}

struct list *str_lines(struct run *x, const struct str *s, int keep_ends) {
    struct list *l = list_new(x, 0);
    unsigned len;
    jx_steps(x, s->n / 16);
    for (size_t at = 0; at < s->n;) {
        size_t from = at, end;
        while (at < s->n && !line_break(str_char(s, at, &len))) at += len;
        end = at;
        if (at < s->n) {
            at += len;
            if (s->b[end] == '\r' && at < s->n && s->b[at] == '\n') at++;
        }
        list_add(x, l, v_slice(x, s, from, (keep_ends ? at : end) - from));
    }
    return l;
}

struct list *str_words(struct run *x, const struct str *s, int64_t most) {
    struct list *l = list_new(x, 0);
    unsigned len;
    jx_steps(x, s->n / 16);
    for (size_t at = 0; at < s->n;) {
        while (at < s->n && char_space(str_char(s, at, &len))) at += len;
        if (at >= s->n) break;
        size_t from = at;
        if (most == 0) {
            list_add(x, l, v_slice(x, s, from, s->n - from));
            break;
        }
        most -= most > 0;
        while (at < s->n && !char_space(str_char(s, at, &len))) at += len;
        list_add(x, l, v_slice(x, s, from, at - from));
    }
    return l;
}
