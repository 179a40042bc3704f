/* What Python's str() and repr() write. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/real.h"
#include "jinja/tree.h"

/* As Python writes them. */
void put_float(struct maker *m, double f, uint16_t mark) {
    char text[REAL_TEXT_MAX];
    if (isfinite(f))
        real_text(text, f);
    else
        snprintf(text, sizeof(text), "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    maker_text(m, text, mark);
}

static void repr_char(struct maker *m, uint32_t c, uint16_t mark) {
    char text[16];
    if (c == '\n' || c == '\r' || c == '\t') {
        maker_text(m, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", mark);
    } else if (char_printable(c)) {
        maker_char(m, c, mark);
    } else {
        snprintf(text, sizeof(text), c < 256 ? "\\x%02x" : c < 65536 ? "\\u%04x" : "\\U%08x", c);
        maker_text(m, text, mark);
    }
}

static void repr_str(struct maker *m, const struct str *s) {
    uint16_t mark = mark_of((val){.type = V_STR, .s = (struct str *)s});
    char quote = memchr(s->b, '\'', s->n) && !memchr(s->b, '"', s->n) ? '"' : '\'';
    unsigned len;
    if (s->markup) maker_text(m, "Markup(", mark);
    maker_add(m, &quote, 1, mark);
    for (size_t at = 0; at < s->n; at += len) {
        uint32_t c = str_char(s, at, &len);
        uint16_t own = str_mark(s, at);
        if (c == (uint32_t)quote || c == '\\') maker_text(m, "\\", own);
        if (c < 128 && (c == '\\' || (c >= 32 && c < 127)))
            maker_add(m, s->b + at, 1, own);
        else
            repr_char(m, c, own);
    }
    maker_add(m, &quote, 1, mark);
    if (s->markup) maker_text(m, ")", mark);
    jx_steps(m->x, s->n / 16);
}

static void repr_list(struct maker *m, val v) {
    maker_text(m, v.type == V_LIST ? "[" : "(", v.mark);
    for (uint32_t i = 0; i < v.l->n; i++) {
        if (i) maker_text(m, ", ", v.mark);
        put_repr(m, v.l->v[i]);
    }
    if (v.type == V_TUPLE && v.l->n == 1) maker_text(m, ",", v.mark);
    maker_text(m, v.type == V_LIST ? "]" : ")", v.mark);
}

static void repr_dict(struct maker *m, const struct dict *d, uint16_t mark) {
    maker_text(m, "{", mark);
    for (uint32_t i = 0; i < d->n; i++) {
        if (i) maker_text(m, ", ", mark);
        put_repr(m, d->e[i].key);
        maker_text(m, ": ", mark);
        put_repr(m, d->e[i].value);
    }
    maker_text(m, "}", mark);
}

static void repr_view(struct maker *m, val v) {
    const struct dict *d = v.v->dict.d;
    maker_text(m, type_name(v), v.mark);
    maker_text(m, "([", v.mark);
    for (uint32_t i = 0; i < d->n; i++) {
        if (i) maker_text(m, ", ", v.mark);
        if (v.v->what == 'i') maker_text(m, "(", v.mark);
        if (v.v->what != 'v') put_repr(m, d->e[i].key);
        if (v.v->what == 'i') maker_text(m, ", ", v.mark);
        if (v.v->what != 'k') put_repr(m, d->e[i].value);
        if (v.v->what == 'i') maker_text(m, ")", v.mark);
    }
    maker_text(m, "])", v.mark);
}

static void repr_other(struct maker *m, val v) {
    char text[128];
    switch (v.type) {
    case V_RANGE:
        if (v.r->step == 1)
            snprintf(text, sizeof(text), "range(%lld, %lld)", (long long)v.r->start, (long long)v.r->stop);
        else
            snprintf(text, sizeof(text), "range(%lld, %lld, %lld)", (long long)v.r->start, (long long)v.r->stop,
                     (long long)v.r->step);
        maker_text(m, text, v.mark);
        break;
    case V_NAMESPACE:
        maker_text(m, "<Namespace ", 0);
        repr_dict(m, v.d, 0);
        maker_text(m, ">", 0);
        break;
    case V_MACRO:
        maker_text(m, "<Macro ", 0);
        if (v.m->name.type == V_STR)
            repr_str(m, v.m->name.s);
        else
            maker_text(m, "anonymous", 0);
        maker_text(m, ">", 0);
        break;
    case V_LOOP:
        snprintf(text, sizeof(text), "<LoopContext %lld/%lld>", (long long)v.loop->index0 + 1,
                 (long long)loop_length(m->x, v.loop));
        maker_text(m, text, 0);
        break;
    default:
        maker_text(m, "<", 0);
        maker_text(m, v.type == V_METHOD ? "built-in method " : v.type == V_FUNCTION ? "function " : "", 0);
        maker_text(m, v.type == V_METHOD ? v.method->def->name : v.type == V_FUNCTION ? v.fn->name : type_name(v), 0);
        maker_text(m, " object>", 0);
    }
}

void put_repr(struct maker *m, val v) {
    char text[32];
    jx_steps(m->x, 1);
    jx_enter(m->x);
    switch (v.type) {
    case V_NONE:
        maker_text(m, "None", v.mark);
        break;
    case V_BOOL:
        maker_text(m, v.i ? "True" : "False", v.mark);
        break;
    case V_INT:
        snprintf(text, sizeof(text), "%lld", (long long)v.i);
        maker_text(m, text, v.mark);
        break;
    case V_BIG:
        maker_str(m, v.s);
        break;
    case V_FLOAT:
        put_float(m, v.f, v.mark);
        break;
    case V_STR:
        repr_str(m, v.s);
        break;
    case V_LIST:
    case V_TUPLE:
        repr_list(m, v);
        break;
    case V_DICT:
        repr_dict(m, v.d, v.mark);
        break;
    case V_VIEW:
        repr_view(m, v);
        break;
    case V_UNDEF:
        maker_text(m, "Undefined", 0);
        break;
    default:
        repr_other(m, v);
    }
    jx_leave(m->x);
}

void put_str(struct maker *m, val v) {
    if (v.type == V_STR)
        maker_str(m, v.s);
    else if (v.type != V_UNDEF)
        put_repr(m, v);
}

val v_str_of(struct run *x, val v) {
    if (v.type == V_STR) return v;
    struct maker m = maker_begin(x);
    put_str(&m, v);
    return maker_end(&m);
}

struct str *to_str(struct run *x, val v) {
    return v_str_of(x, v).s;
}

val escape_html(struct run *x, val v) {
    val text = v_str_of(x, v);
    if (text.s->markup) return text;
    struct maker m = maker_begin(x);
    const struct str *s = text.s;
    size_t from = 0;
    for (size_t at = 0; at < s->n; at++) {
        const char *to = s->b[at] == '&'    ? "&amp;"
                         : s->b[at] == '<'  ? "&lt;"
                         : s->b[at] == '>'  ? "&gt;"
                         : s->b[at] == '\'' ? "&#39;"
                         : s->b[at] == '"'  ? "&#34;"
                                            : NULL;
        if (!to) continue;
        maker_part(&m, s, from, at - from);
        maker_text(&m, to, str_mark(s, at));
        from = at + 1;
    }
    maker_part(&m, s, from, s->n - from);
    return v_markup(x, maker_end(&m), 1);
}
