/* The methods of strings that make strings or lists of them. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

static struct str *need_str(struct run *x, val v, const char *who) {
    need_defined(x, v);
    if (!is_str(v)) jx_fail(x, "%s() argument must be str, not %s", who, type_name(v));
    return v.s;
}
static val none_or(val v) { return v.type == V_MISSING ? v_none() : v; }
static void no_arguments(struct run *x, const char *who, const struct args *a) {
    if (a->n || a->n_kw) jx_fail(x, "%s() takes no arguments", who);
}
static void positional(struct run *x, const char *who, const struct args *a) {
    if (a->n_kw) jx_fail(x, "str.%s() takes no keyword arguments", who);
}
/* What joins a Markup is escaped. */
static val joining(struct run *x, val self, val v) { return self.s->markup ? escape_html(x, v) : v; }

static val m_lower(struct run *x, val self, const struct args *a) {
    return no_arguments(x, "lower", a), str_case(x, self.s, CASE_LOWER);
}
static val m_upper(struct run *x, val self, const struct args *a) {
    return no_arguments(x, "upper", a), str_case(x, self.s, CASE_UPPER);
}
static val m_title(struct run *x, val self, const struct args *a) {
    return no_arguments(x, "title", a), str_case(x, self.s, CASE_TITLE);
}
static val m_capitalize(struct run *x, val self, const struct args *a) {
    return no_arguments(x, "capitalize", a), str_case(x, self.s, CASE_CAPITAL);
}
static val m_swapcase(struct run *x, val self, const struct args *a) {
    return no_arguments(x, "swapcase", a), str_case(x, self.s, CASE_SWAP);
}
static val m_casefold(struct run *x, val self, const struct args *a) {
    return no_arguments(x, "casefold", a), str_case(x, self.s, CASE_FOLD);
}

static val strip(struct run *x, val self, const struct args *a, const char *who, int sides) {
    val chars;
    positional(x, who, a);
    bind(x, who, a, "chars", &chars, 1, 0);
    return str_strip(x, self.s, chars, sides);
}
static val m_strip(struct run *x, val self, const struct args *a) { return strip(x, self, a, "strip", 3); }
static val m_lstrip(struct run *x, val self, const struct args *a) { return strip(x, self, a, "lstrip", 1); }
static val m_rstrip(struct run *x, val self, const struct args *a) { return strip(x, self, a, "rstrip", 2); }

static val m_replace(struct run *x, val self, const struct args *a) {
    val v[3];
    positional(x, "replace", a);
    bind(x, "replace", a, "old,new,count", v, 3, 2);
    int64_t count = v[2].type == V_MISSING ? -1 : need_int(x, v[2], "replace");
    need_str(x, v[0], "replace");
    need_str(x, v[1], "replace");
    return v_markup(x, str_replace(x, self.s, v[0].s, joining(x, self, v[1]).s, count), self.s->markup);
}

static val m_join(struct run *x, val self, const struct args *a) {
    val v, item;
    struct iter it;
    struct maker m = maker_begin(x);
    positional(x, "join", a);
    bind(x, "join", a, "iterable", &v, 1, 1);
    iter_begin(x, &it, v);
    for (uint32_t i = 0; iter_next(x, &it, &item); i++) {
        if (!is_str(item)) jx_fail(x, "sequence item %u: expected str instance, %s found", i, type_name(item));
        if (i) maker_str(&m, self.s);
        maker_str(&m, joining(x, self, item).s);
    }
    return v_markup(x, maker_end(&m), self.s->markup);
}

static val pad(struct run *x, val self, const struct args *a, const char *who, int side) {
    val v[2];
    positional(x, who, a);
    bind(x, who, a, "width,fillchar", v, 2, 1);
    val fill = or_else(v[1], v_text(x, " "));
    return str_pad(x, self.s, need_int(x, v[0], who), need_str(x, fill, who), side);
}
static val m_ljust(struct run *x, val self, const struct args *a) { return pad(x, self, a, "ljust", -1); }
static val m_rjust(struct run *x, val self, const struct args *a) { return pad(x, self, a, "rjust", 1); }
static val m_center(struct run *x, val self, const struct args *a) { return pad(x, self, a, "center", 0); }

static val m_zfill(struct run *x, val self, const struct args *a) {
    val v;
    positional(x, "zfill", a);
    bind(x, "zfill", a, "width", &v, 1, 1);
    int64_t zeros = need_int(x, v, "zfill") - str_chars(self.s);
    if (zeros <= 0) return self;
    struct maker m = maker_begin(x);
    size_t sign = self.s->n && (self.s->b[0] == '-' || self.s->b[0] == '+');
    maker_part(&m, self.s, 0, sign);
    maker_repeat(&m, v_text(x, "0").s, zeros);
    maker_part(&m, self.s, sign, self.s->n - sign);
    return v_markup(x, maker_end(&m), self.s->markup);
}

static val m_expandtabs(struct run *x, val self, const struct args *a) {
    val v;
    struct maker m = maker_begin(x);
    unsigned len;
    int64_t column = 0;
    bind(x, "expandtabs", a, "tabsize", &v, 1, 0);
    int64_t size = v.type == V_MISSING ? 8 : need_int(x, v, "expandtabs");
    for (size_t at = 0; at < self.s->n; at += len) {
        uint32_t c = str_char(self.s, at, &len);
        if (c == '\t') {
            int64_t spaces = size > 0 ? size - column % size : 0;
            struct str space = {.b = " ", .n = 1, .chars = 1, .mark = str_mark(self.s, at)};
            maker_repeat(&m, &space, spaces);
            column += spaces;
            continue;
        }
        column = c == '\n' || c == '\r' ? 0 : column + 1;
        maker_part(&m, self.s, at, len);
    }
    return v_markup(x, maker_end(&m), self.s->markup);
}

/* ---- Splitting ---- */

static val as_list(struct list *l) { return v_list(l, V_LIST); }

static struct list *split_by(struct run *x, const struct str *s, const struct str *by, int64_t most) {
    struct list *l = list_new(x, 0);
    size_t at = 0;
    if (!by->n) jx_fail(x, "empty separator");
    jx_steps(x, s->n / 64);
    while (most) {
        const char *found = memmem(s->b + at, s->n - at, by->b, by->n);
        if (!found) break;
        size_t end = (size_t)(found - s->b);
        list_add(x, l, v_slice(x, s, at, end - at));
        jx_steps(x, 1);
        at = end + by->n;
        most -= most > 0;
    }
    list_add(x, l, v_slice(x, s, at, s->n - at));
    return l;
}

static void turn(struct list *l) {
    for (uint32_t i = 0; i < l->n / 2; i++) {
        val v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

static struct list *rsplit_by(struct run *x, const struct str *s, const struct str *by, int64_t most) {
    struct list *l = list_new(x, 0);
    size_t end = s->n;
    if (!by->n) jx_fail(x, "empty separator");
    while (most) {
        int64_t at = str_find(x, s, by, 0, end, 1);
        if (at < 0) break;
        list_add(x, l, v_slice(x, s, (size_t)at + by->n, end - (size_t)at - by->n));
        end = (size_t)at;
        most -= most > 0;
    }
    list_add(x, l, v_slice(x, s, 0, end));
    turn(l);
    return l;
}

static struct list *rsplit_words(struct run *x, struct str *s, int64_t most) {
    struct list *l = list_new(x, 0), *all = str_words(x, s, -1);
    if (most < 0 || all->n <= most) return all;
    uint32_t first = (uint32_t)(all->n - most);
    const struct str *last = all->v[first - 1].s;
    size_t end = (size_t)(last->b + last->n - s->b);
    list_add(x, l, v_slice(x, s, 0, end));
    for (uint32_t i = first; i < all->n; i++) list_add(x, l, all->v[i]);
    return l;
}

static val split(struct run *x, val self, const struct args *a, const char *who, int right) {
    val v[2];
    bind(x, who, a, "sep,maxsplit", v, 2, 0);
    int64_t most = v[1].type == V_MISSING ? -1 : need_int(x, v[1], who);
    if (none_or(v[0]).type == V_NONE)
        return as_list(right ? rsplit_words(x, self.s, most) : str_words(x, self.s, most));
    const struct str *by = need_str(x, v[0], who);
    return as_list(right ? rsplit_by(x, self.s, by, most) : split_by(x, self.s, by, most));
}
static val m_split(struct run *x, val self, const struct args *a) { return split(x, self, a, "split", 0); }
static val m_rsplit(struct run *x, val self, const struct args *a) { return split(x, self, a, "rsplit", 1); }

static val m_splitlines(struct run *x, val self, const struct args *a) {
    val v;
    bind(x, "splitlines", a, "keepends", &v, 1, 0);
    return as_list(str_lines(x, self.s, truth(x, or_else(v, v_bool(0)))));
}

static val partition(struct run *x, val self, const struct args *a, const char *who, int last) {
    val v;
    positional(x, who, a);
    bind(x, who, a, "sep", &v, 1, 1);
    struct str *by = need_str(x, v, who);
    struct list *l = list_new(x, 3);
    if (!by->n) jx_fail(x, "empty separator");
    int64_t at = str_find(x, self.s, by, 0, self.s->n, last);
    l->n = 3;
    if (at < 0) {
        l->v[last ? 2 : 0] = self;
        l->v[1] = l->v[last ? 0 : 2] = v_slice(x, self.s, 0, 0);
    } else {
        l->v[0] = v_slice(x, self.s, 0, (size_t)at);
        l->v[1] = v_slice(x, self.s, (size_t)at, by->n);
        l->v[2] = v_slice(x, self.s, (size_t)at + by->n, self.s->n - (size_t)at - by->n);
    }
    return v_list(l, V_TUPLE);
}
static val m_partition(struct run *x, val self, const struct args *a) { return partition(x, self, a, "partition", 0); }
static val m_rpartition(struct run *x, val self, const struct args *a) {
    return partition(x, self, a, "rpartition", 1);
}

static val m_removeprefix(struct run *x, val self, const struct args *a) {
    val v;
    positional(x, "removeprefix", a);
    bind(x, "removeprefix", a, "prefix", &v, 1, 1);
    const struct str *p = need_str(x, v, "removeprefix");
    if (p->n > self.s->n || memcmp(self.s->b, p->b, p->n)) return self;
    return v_slice(x, self.s, p->n, self.s->n - p->n);
}
static val m_removesuffix(struct run *x, val self, const struct args *a) {
    val v;
    positional(x, "removesuffix", a);
    bind(x, "removesuffix", a, "suffix", &v, 1, 1);
    const struct str *p = need_str(x, v, "removesuffix");
    if (p->n > self.s->n || memcmp(self.s->b + self.s->n - p->n, p->b, p->n)) return self;
    return v_slice(x, self.s, 0, self.s->n - p->n);
}

static val m_format(struct run *x, val self, const struct args *a) { return format_method(x, self, a); }

static val m_format_map(struct run *x, val self, const struct args *a) {
    val v;
    positional(x, "format_map", a);
    bind(x, "format_map", a, "mapping", &v, 1, 1);
    if (v.type != V_DICT) jx_fail(x, "format_map() takes a mapping");
    struct kwarg *kw = jx_alloc(x, v.d->n + 1, sizeof(*kw));
    uint32_t n = 0;
    for (uint32_t i = 0; i < v.d->n; i++)
        if (is_str(v.d->e[i].key)) kw[n++] = (struct kwarg){v.d->e[i].key.s, v.d->e[i].value};
    struct args own = {.kw = kw, .n_kw = n};
    return format_method(x, self, &own);
}

static val m_encode(struct run *x, val self, const struct args *a) {
    jx_fail(x, "str.encode() is not supported: there are no bytes");
}
static val m_translate(struct run *x, val self, const struct args *a) {
    jx_fail(x, "str.translate() and str.maketrans() are not supported");
}

const struct method_def str_methods[] = {{"strip", m_strip},
                                         {"split", m_split},
                                         {"lstrip", m_lstrip},
                                         {"rstrip", m_rstrip},
                                         {"replace", m_replace},
                                         {"lower", m_lower},
                                         {"upper", m_upper},
                                         {"title", m_title},
                                         {"capitalize", m_capitalize},
                                         {"swapcase", m_swapcase},
                                         {"casefold", m_casefold},
                                         {"join", m_join},
                                         {"ljust", m_ljust},
                                         {"rjust", m_rjust},
                                         {"center", m_center},
                                         {"zfill", m_zfill},
                                         {"expandtabs", m_expandtabs},
                                         {"rsplit", m_rsplit},
                                         {"splitlines", m_splitlines},
                                         {"partition", m_partition},
                                         {"rpartition", m_rpartition},
                                         {"removeprefix", m_removeprefix},
                                         {"removesuffix", m_removesuffix},
                                         {"format", m_format},
                                         {"format_map", m_format_map},
                                         {"encode", m_encode},
                                         {"translate", m_translate},
                                         {"maketrans", m_translate},
                                         {NULL, NULL}};
