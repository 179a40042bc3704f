/* Filters that make text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

/* jinja2's soft_str(): Markup stays Markup. */
static struct str *soft(struct run *x, val v) { return to_str(x, v); }

static val none_or(val v) { return v.type == V_MISSING ? v_none() : v; }

static struct str *need_str(struct run *x, val v, const char *what) {
    need_defined(x, v);
    if (!is_str(v)) jx_fail(x, "%s: expected a string, not %s", what, type_name(v));
    return v.s;
}

static val f_upper(struct run *x, val self, const struct args *a) {
    bind(x, "upper", a, "", NULL, 0, 0);
    return str_case(x, soft(x, self), CASE_UPPER);
}
static val f_lower(struct run *x, val self, const struct args *a) {
    bind(x, "lower", a, "", NULL, 0, 0);
    return str_case(x, soft(x, self), CASE_LOWER);
}
static val f_capitalize(struct run *x, val self, const struct args *a) {
    bind(x, "capitalize", a, "", NULL, 0, 0);
    return str_case(x, soft(x, self), CASE_CAPITAL);
}

static int begins_word(uint32_t c) { return c == '-' || char_space(c) || c == '(' || c == '{' || c == '[' || c == '<'; }

/* Unlike the method: words begin behind white space, hyphens and opening brackets, and an apostrophe is within one. */
static val f_title(struct run *x, val self, const struct args *a) {
    struct str *s = soft(x, self);
    struct maker m = maker_begin(x);
    unsigned len;
    bind(x, "title", a, "", NULL, 0, 0);
    for (size_t at = 0; at < s->n;) {
        size_t from = at;
        int gap = begins_word(str_char(s, at, &len));
        while (at < s->n && begins_word(str_char(s, at, &len)) == gap) at += len;
        str_char(s, from, &len);
        val first = v_slice(x, s, from, len), rest = v_slice(x, s, from + len, at - from - len);
        maker_str(&m, str_case(x, first.s, CASE_UPPER).s);
        maker_str(&m, str_case(x, rest.s, CASE_LOWER).s);
    }
    return maker_end(&m);
}

static val f_string(struct run *x, val self, const struct args *a) {
    bind(x, "string", a, "", NULL, 0, 0);
    return v_str_of(x, self);
}

static val f_trim(struct run *x, val self, const struct args *a) {
    val chars;
    bind(x, "trim", a, "chars", &chars, 1, 0);
    return str_strip(x, soft(x, self), chars, 3);
}

static val f_replace(struct run *x, val self, const struct args *a) {
    val v[3];
    bind(x, "replace", a, "old,new,count", v, 3, 2);
    v[2] = none_or(v[2]);
    int64_t count = v[2].type == V_NONE ? -1 : need_int(x, v[2], "replace");
    return v_markup(x, str_replace(x, to_str(x, self), to_str(x, v[0]), to_str(x, v[1]), count), 0);
}

static val f_center(struct run *x, val self, const struct args *a) {
    val v;
    bind(x, "center", a, "width", &v, 1, 0);
    return str_pad(x, soft(x, self), v.type == V_MISSING ? 80 : need_int(x, v, "center"), v_text(x, " ").s, 0);
}

static val f_format(struct run *x, val self, const struct args *a) {
    if (a->n && a->n_kw) jx_fail(x, "can't handle positional and keyword arguments at the same time");
    val args;
    if (a->n_kw) {
        struct dict *d = dict_new(x);
        for (uint32_t i = 0; i < a->n_kw; i++)
            dict_set(x, d, (val){.type = V_STR, .s = (struct str *)a->kw[i].name}, a->kw[i].value);
        args = (val){.type = V_DICT, .d = d};
    } else {
        struct list *l = list_new(x, a->n);
        for (uint32_t i = 0; i < a->n; i++) list_add(x, l, a->v[i]);
        args = v_list(l, V_TUPLE);
    }
    return format_percent(x, v_str_of(x, self), args);
}

/* ---- Lines ---- */

static val f_indent(struct run *x, val self, const struct args *a) {
    val v[3];
    bind(x, "indent", a, "width,first,blank", v, 3, 0);
    struct str *s = need_str(x, self, "indent");
    val width = or_else(v[0], v_int(4));
    int first = truth(x, or_else(v[1], v_bool(0))), blank = truth(x, or_else(v[2], v_bool(0)));
    struct maker m = maker_begin(x), pad = maker_begin(x);
    if (is_str(width))
        maker_str(&pad, width.s);
    else
        maker_repeat(&pad, v_text(x, " ").s, need_int(x, width, "indent"));
    const struct str *indent = maker_end(&pad).s;
    /* A line end is put behind the text before it is split, so that a last empty line counts. */
    struct list *lines = str_lines(x, v_concat(x, self, v_text(x, "\n")).s, 0);
    for (uint32_t i = 0; i < lines->n; i++) {
        if (i) maker_text(&m, "\n", 0);
        if (i ? blank || lines->v[i].s->n : first) maker_str(&m, indent);
        maker_str(&m, lines->v[i].s);
    }
    return v_markup(x, maker_end(&m), s->markup);
}

static val f_truncate(struct run *x, val self, const struct args *a) {
    val v[4];
    bind(x, "truncate", a, "length,killwords,end,leeway", v, 4, 0);
    int64_t n = need_int(x, or_else(v[0], v_int(255)), "truncate"), leeway = 5;
    val end = or_else(v[2], v_text(x, "..."));
    if (none_or(v[3]).type != V_NONE) leeway = need_int(x, v[3], "truncate");
    int64_t end_n = str_chars(need_str(x, end, "truncate"));
    if (n < end_n) jx_fail(x, "expected length >= %lld, got %lld", (long long)end_n, (long long)n);
    if (leeway < 0) jx_fail(x, "expected leeway >= 0, got %lld", (long long)leeway);
    if (length(x, self) <= n + leeway) return self;
    struct str *s = need_str(x, self, "truncate");
    size_t cut = str_offset(s, n - end_n);
    if (!truth(x, or_else(v[1], v_bool(0)))) {
        size_t space = cut;
        while (space > 0 && s->b[space - 1] != ' ') space--;
        if (space > 0) cut = space - 1;
    }
    return v_concat(x, v_slice(x, s, 0, cut), end);
}

static val f_wordwrap(struct run *x, val self, const struct args *a) {
    val v[4];
    bind(x, "wordwrap", a, "width,break_long_words,wrapstring,break_on_hyphens", v, 4, 0);
    int64_t width = need_int(x, or_else(v[0], v_int(79)), "wordwrap");
    val wrap = none_or(v[2]).type == V_NONE ? v_text(x, "\n") : v[2];
    struct list *lines = str_lines(x, need_str(x, self, "wordwrap"), 0);
    int break_words = truth(x, or_else(v[1], v_bool(1))), hyphens = truth(x, or_else(v[3], v_bool(1)));
    struct maker m = maker_begin(x);
    for (uint32_t i = 0; i < lines->n; i++) {
        struct list *parts = wrap_line(x, lines->v[i].s, width, break_words, hyphens);
        for (uint32_t k = 0; k < parts->n; k++) {
            if (k) maker_str(&m, need_str(x, wrap, "wordwrap"));
            maker_str(&m, parts->v[k].s);
        }
        if (i + 1 < lines->n) maker_str(&m, need_str(x, wrap, "wordwrap"));
    }
    return maker_end(&m);
}

static val f_wordcount(struct run *x, val self, const struct args *a) {
    const struct str *s = soft(x, self);
    int64_t n = 0;
    int inside = 0;
    unsigned len;
    bind(x, "wordcount", a, "", NULL, 0, 0);
    jx_steps(x, s->n / 16);
    for (size_t at = 0; at < s->n; at += len) {
        int word = char_word(str_char(s, at, &len));
        n += word && !inside;
        inside = word;
    }
    return v_int(n);
}

/* ---- Numbers ---- */

static val f_filesizeformat(struct run *x, val self, const struct args *a) {
    static const char letters[] = "kMGTPEZY";
    val binary;
    char text[400];
    bind(x, "filesizeformat", a, "binary", &binary, 1, 0);
    int two = truth(x, or_else(binary, v_bool(0)));
    val v = self;
    if (!to_float(x, v, &v)) jx_fail(x, "could not convert to float");
    double bytes = v.f, base = two ? 1024 : 1000, unit = base;
    if (bytes == 1) return v_bytes(x, "1 Byte", 6, mark_of(self));
    if (bytes < base) {
        snprintf(text, sizeof(text), "%.0f Bytes", trunc(bytes) + 0.0);
        return v_bytes(x, text, strlen(text), mark_of(self));
    }
    int i = 0;
    for (unit = base * base; i < 7 && bytes >= unit; i++) unit *= base;
    snprintf(text, sizeof(text), "%.1f %c%sB", base * bytes / unit, two && i == 0 ? 'K' : letters[i], two ? "i" : "");
    return v_bytes(x, text, strlen(text), mark_of(self));
}

/* ---- JSON ---- */

static val f_tojson(struct run *x, val self, const struct args *a) {
    val v[4];
    bind(x, "tojson", a, "ensure_ascii,indent,separators,sort_keys", v, 4, 0);
    return json_dump(x, self, or_else(v[0], v_bool(0)), none_or(v[1]), none_or(v[2]), or_else(v[3], v_bool(0)));
}

static val f_pprint(struct run *x, val self, const struct args *a) {
    struct maker m = maker_begin(x);
    bind(x, "pprint", a, "", NULL, 0, 0);
    put_repr(&m, self);
    return maker_end(&m);
}

const struct filter filters_text[] = {{"upper", f_upper},
                                      {"lower", f_lower},
                                      {"capitalize", f_capitalize},
                                      {"title", f_title},
                                      {"string", f_string},
                                      {"trim", f_trim},
                                      {"replace", f_replace},
                                      {"center", f_center},
                                      {"format", f_format},
                                      {"indent", f_indent},
                                      {"truncate", f_truncate},
                                      {"wordwrap", f_wordwrap},
                                      {"wordcount", f_wordcount},
                                      {"filesizeformat", f_filesizeformat},
                                      {"tojson", f_tojson},
                                      {"pprint", f_pprint},
                                      {NULL, NULL}};
