/* Filters about HTML and URLs. */
#include <stdio.h>
#include <string.h>

#include "jinja/tree.h"

static val f_escape(struct run *x, val self, const struct args *a) {
    bind(x, "escape", a, "", NULL, 0, 0);
    return escape_html(x, self);
}

static val f_forceescape(struct run *x, val self, const struct args *a) {
    bind(x, "forceescape", a, "", NULL, 0, 0);
    return escape_html(x, v_markup(x, v_str_of(x, self), 0));
}

static val f_safe(struct run *x, val self, const struct args *a) {
    bind(x, "safe", a, "", NULL, 0, 0);
    return v_markup(x, v_str_of(x, self), 1);
}

static void put_quoted(struct maker *m, const struct str *s, int for_query) {
    char text[8];
    for (size_t at = 0; at < s->n; at++) {
        uint8_t c = (uint8_t)s->b[at];
        int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (letter || (c && strchr("_.-~", c)) || (c == '/' && !for_query)) {
            maker_part(m, s, at, 1);
            continue;
        }
        if (c == ' ' && for_query) {
            maker_text(m, "+", str_mark(s, at));
            continue;
        }
        snprintf(text, sizeof(text), "%%%02X", c);
        maker_text(m, text, str_mark(s, at));
    }
    jx_steps(m->x, s->n / 16);
}

static val f_urlencode(struct run *x, val self, const struct args *a) {
    struct maker m = maker_begin(x);
    bind(x, "urlencode", a, "", NULL, 0, 0);
    if (is_str(self) || !iterable(self)) {
        put_quoted(&m, to_str(x, self), 0);
        return maker_end(&m);
    }
    struct iter it;
    val item, pairs = self;
    if (self.type == V_DICT) pairs = v_gen(x, G_ITEMS, self);
    iter_begin(x, &it, pairs);
    for (uint32_t i = 0; iter_next(x, &it, &item); i++) {
        struct list *l = list_from(x, item);
        if (l->n != 2) jx_fail(x, "urlencode takes pairs");
        if (i) maker_text(&m, "&", 0);
        put_quoted(&m, to_str(x, l->v[0]), 1);
        maker_text(&m, "=", 0);
        put_quoted(&m, to_str(x, l->v[1]), 1);
    }
    return maker_end(&m);
}

static val f_xmlattr(struct run *x, val self, const struct args *a) {
    val space;
    struct maker m = maker_begin(x);
    bind(x, "xmlattr", a, "autospace", &space, 1, 0);
    need_defined(x, self);
    if (self.type != V_DICT) jx_fail(x, "'%s' object has no attribute 'items'", type_name(self));
    int leading = space.type == V_MISSING || truth(x, space), any = 0;
    for (uint32_t i = 0; i < self.d->n; i++) {
        const struct entry *e = &self.d->e[i];
        if (e->value.type == V_NONE || is_undef(e->value)) continue;
        if (!is_str(e->key)) jx_fail(x, "expected string or bytes-like object");
        for (uint32_t k = 0; k < e->key.s->n; k++)
            if (strchr(" \t\n\v\f\r/>=", e->key.s->b[k])) jx_fail(x, "Invalid character in attribute name");
        if (any || leading) maker_text(&m, " ", 0);
        any = 1;
        put_str(&m, escape_html(x, e->key));
        maker_text(&m, "=\"", 0);
        put_str(&m, escape_html(x, e->value));
        maker_text(&m, "\"", 0);
    }
    return maker_end(&m);
}

/* Without comments and tags, white space between words made one space, and the commonest entities as characters. */
static val f_striptags(struct run *x, val self, const struct args *a) {
    static const struct {
        const char *name;
        uint32_t c;
    } entities[] = {{"&amp;", '&'},  {"&lt;", '<'},   {"&gt;", '>'},    {"&#34;", '"'},
                    {"&#39;", '\''}, {"&quot;", '"'}, {"&apos;", '\''}, {"&nbsp;", 0xa0}};
    bind(x, "striptags", a, "", NULL, 0, 0);
    const struct str *s = to_str(x, self);
    struct maker m = maker_begin(x), out = maker_begin(x);
    for (size_t at = 0; at < s->n;) {
        const char *end = NULL;
        if (s->n - at >= 4 && !memcmp(s->b + at, "<!--", 4)) {
            end = memmem(s->b + at, s->n - at, "-->", 3);
            if (end) end += 3;
        } else if (s->b[at] == '<') {
            end = memchr(s->b + at, '>', s->n - at);
            if (end) end++;
        }
        jx_steps(x, end ? (uint64_t)(end - s->b - (ptrdiff_t)at) / 64 : s->b[at] == '<' ? (s->n - at) / 64 + 1 : 0);
        if (end) {
            at = (size_t)(end - s->b);
        } else {
            maker_part(&m, s, at, 1);
            at++;
        }
    }
    struct list *words = str_words(x, maker_end(&m).s, -1);
    for (uint32_t i = 0; i < words->n; i++) {
        const struct str *w = words->v[i].s;
        if (i) maker_text(&out, " ", 0);
        for (size_t at = 0; at < w->n;) {
            size_t k = 0, n = sizeof(entities) / sizeof(*entities);
            while (
                w->b[at] == '&' && k < n &&
                (w->n - at < strlen(entities[k].name) || memcmp(w->b + at, entities[k].name, strlen(entities[k].name))))
                k++;
            if (w->b[at] == '&' && k < n) {
                maker_char(&out, entities[k].c, str_mark(w, at));
                at += strlen(entities[k].name);
            } else {
                maker_part(&out, w, at++, 1);
            }
        }
    }
    return maker_end(&out);
}

static val f_urlize(struct run *x, val self, const struct args *a) { jx_fail(x, "urlize is not supported"); }

const struct filter filters_html[] = {{"escape", f_escape},
                                      {"e", f_escape},
                                      {"forceescape", f_forceescape},
                                      {"safe", f_safe},
                                      {"urlencode", f_urlencode},
                                      {"xmlattr", f_xmlattr},
                                      {"striptags", f_striptags},
                                      {"urlize", f_urlize},
                                      {NULL, NULL}};
