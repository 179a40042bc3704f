/* The methods of strings that look for something or ask what the characters are. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

struct window {
    size_t from, to;
    int valid;
};

static val none_or(val v) { return v.type == V_MISSING ? v_none() : v; }

static int64_t bound(struct run *x, val v, int64_t n, int64_t fallback) {
    if (none_or(v).type == V_NONE) return fallback;
    int64_t i = need_int(x, v, "slice index");
    if (i < 0) i = i < -n ? 0 : i + n;
    return i;
}

/* start and end in characters. A start behind the end is nowhere, even for an empty text. */
static struct window window_of(struct run *x, struct str *s, val start, val end) {
    if (none_or(start).type == V_NONE && none_or(end).type == V_NONE) return (struct window){0, s->n, 1};
    int64_t n = str_chars(s), from = bound(x, start, n, 0), to = bound(x, end, n, n);
    jx_steps(x, s->n / 64);
    if (to > n) to = n;
    if (from > to) return (struct window){0, 0, 0};
    return (struct window){str_offset(s, from), str_offset(s, to), 1};
}

static int64_t chars_before(struct str *s, int64_t at) {
    if (s->chars == s->n) return at;
    int64_t n = 0;
    for (int64_t i = 0; i < at; i++) n += ((uint8_t)s->b[i] & 0xc0) != 0x80;
    return n;
}

static int64_t find(struct run *x, val self, const struct args *a, const char *who, int last) {
    val v[3];
    if (a->n_kw) jx_fail(x, "str.%s() takes no keyword arguments", who);
    bind(x, who, a, "sub,start,end", v, 3, 1);
    need_defined(x, v[0]);
    if (!is_str(v[0])) jx_fail(x, "must be str, not %s", type_name(v[0]));
    struct window w = window_of(x, self.s, v[1], v[2]);
    if (!w.valid) return -1;
    int64_t at = str_find(x, self.s, v[0].s, w.from, w.to, last);
    str_chars(self.s);
    return at < 0 ? -1 : chars_before(self.s, at);
}

static val m_find(struct run *x, val self, const struct args *a) { return v_int(find(x, self, a, "find", 0)); }
static val m_rfind(struct run *x, val self, const struct args *a) { return v_int(find(x, self, a, "rfind", 1)); }
static val index_of(struct run *x, val self, const struct args *a, const char *who, int last) {
    int64_t at = find(x, self, a, who, last);
    if (at < 0) jx_fail(x, "substring not found");
    return v_int(at);
}
static val m_index(struct run *x, val self, const struct args *a) { return index_of(x, self, a, "index", 0); }
static val m_rindex(struct run *x, val self, const struct args *a) { return index_of(x, self, a, "rindex", 1); }

static val m_count(struct run *x, val self, const struct args *a) {
    val v[3];
    if (a->n_kw) jx_fail(x, "str.count() takes no keyword arguments");
    bind(x, "count", a, "sub,start,end", v, 3, 1);
    need_defined(x, v[0]);
    if (!is_str(v[0])) jx_fail(x, "must be str, not %s", type_name(v[0]));
    struct window w = window_of(x, self.s, v[1], v[2]);
    if (!w.valid) return v_int(0);
    if (!v[0].s->n) {
        val part = v_slice(x, self.s, w.from, w.to - w.from);
        return v_int(str_chars(part.s) + 1);
    }
    int64_t n = 0, at;
    const char *b = self.s->b;
    jx_steps(x, (w.to - w.from) / 64);
    for (at = (int64_t)w.from;; n++) {
        const char *found = memmem(b + at, w.to - (size_t)at, v[0].s->b, v[0].s->n);
        if (!found) return v_int(n);
        at = found - b + v[0].s->n;
        if (n % 16 == 0) jx_steps(x, 1);
    }
}

static int matches(const struct str *s, struct window w, const struct str *p, int end) {
    if (!w.valid || p->n > w.to - w.from) return 0;
    return !memcmp(s->b + (end ? w.to - p->n : w.from), p->b, p->n);
}

static val affix(struct run *x, val self, const struct args *a, const char *who, int end) {
    val v[3];
    if (a->n_kw) jx_fail(x, "str.%s() takes no keyword arguments", who);
    bind(x, who, a, "prefix,start,end", v, 3, 1);
    struct window w = window_of(x, self.s, v[1], v[2]);
    need_defined(x, v[0]);
    if (is_str(v[0])) return v_bool(matches(self.s, w, v[0].s, end));
    if (v[0].type != V_TUPLE) jx_fail(x, "%s first arg must be str or a tuple of str, not %s", who, type_name(v[0]));
    for (uint32_t i = 0; i < v[0].l->n; i++) {
        if (!is_str(v[0].l->v[i]))
            jx_fail(x, "tuple for %s must only contain str, not %s", who, type_name(v[0].l->v[i]));
        if (matches(self.s, w, v[0].l->v[i].s, end)) return v_bool(1);
    }
    return v_bool(0);
}
static val m_startswith(struct run *x, val self, const struct args *a) { return affix(x, self, a, "startswith", 0); }
static val m_endswith(struct run *x, val self, const struct args *a) { return affix(x, self, a, "endswith", 1); }

/* ---- What the characters are ---- */

static val all(struct run *x, val self, const struct args *a, int (*is)(uint32_t c), int empty) {
    unsigned len;
    if (a->n || a->n_kw) jx_fail(x, "this method takes no arguments");
    if (!self.s->n) return v_bool(empty);
    jx_steps(x, self.s->n / 16);
    for (size_t at = 0; at < self.s->n; at += len)
        if (!is(str_char(self.s, at, &len))) return v_bool(0);
    return v_bool(1);
}
static int is_alnum(uint32_t c) { return char_alpha(c) || char_numeric(c); }
static int is_ascii(uint32_t c) { return c < 128; }
static val m_isalpha(struct run *x, val self, const struct args *a) { return all(x, self, a, char_alpha, 0); }
static val m_isalnum(struct run *x, val self, const struct args *a) { return all(x, self, a, is_alnum, 0); }
static val m_isascii(struct run *x, val self, const struct args *a) { return all(x, self, a, is_ascii, 1); }
static val m_isdecimal(struct run *x, val self, const struct args *a) { return all(x, self, a, char_decimal, 0); }
static val m_isdigit(struct run *x, val self, const struct args *a) { return all(x, self, a, char_digit, 0); }
static val m_isnumeric(struct run *x, val self, const struct args *a) { return all(x, self, a, char_numeric, 0); }
static val m_isspace(struct run *x, val self, const struct args *a) { return all(x, self, a, char_space, 0); }
static val m_isprintable(struct run *x, val self, const struct args *a) { return all(x, self, a, char_printable, 1); }

static val m_islower(struct run *x, val self, const struct args *a) {
    return v_bool(test_find("lower", 5)->fn(x, self, a));
}
static val m_isupper(struct run *x, val self, const struct args *a) {
    return v_bool(test_find("upper", 5)->fn(x, self, a));
}

static val m_istitle(struct run *x, val self, const struct args *a) {
    unsigned len;
    int inside = 0, any = 0;
    if (a->n || a->n_kw) jx_fail(x, "istitle() takes no arguments");
    for (size_t at = 0; at < self.s->n; at += len) {
        uint32_t c = str_char(self.s, at, &len);
        int big = char_upper(c) || char_title(c);
        if (big ? inside : char_lower(c) && !inside) return v_bool(0);
        inside = big || char_lower(c);
        any |= inside;
    }
    return v_bool(any);
}

static val m_isidentifier(struct run *x, val self, const struct args *a) {
    unsigned len;
    if (a->n || a->n_kw) jx_fail(x, "isidentifier() takes no arguments");
    for (size_t at = 0; at < self.s->n; at += len) {
        uint32_t c = str_char(self.s, at, &len);
        if (!(c == '_' || char_alpha(c) || (at && (char_decimal(c) || char_joins(c))))) return v_bool(0);
    }
    return v_bool(self.s->n > 0);
}

const struct method_def str_methods_find[] = {{"startswith", m_startswith},
                                              {"endswith", m_endswith},
                                              {"find", m_find},
                                              {"rfind", m_rfind},
                                              {"index", m_index},
                                              {"rindex", m_rindex},
                                              {"count", m_count},
                                              {"isalpha", m_isalpha},
                                              {"isalnum", m_isalnum},
                                              {"isascii", m_isascii},
                                              {"isdecimal", m_isdecimal},
                                              {"isdigit", m_isdigit},
                                              {"isnumeric", m_isnumeric},
                                              {"isspace", m_isspace},
                                              {"isprintable", m_isprintable},
                                              {"islower", m_islower},
                                              {"isupper", m_isupper},
                                              {"istitle", m_istitle},
                                              {"isidentifier", m_isidentifier},
                                              {NULL, NULL}};
