/* JSON: the variables in, and what the filter tojson writes, which is Python's json.dumps(). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/jinja.h"
#include "jinja/text.h"

/* ---- Reading ---- */

struct reader {
    struct run *x;
    const char *b;
    size_t n, at;
    uint16_t mark;
    int depth;
    const char *trusted; /* key of the elements of an array by_element, or NULL */
};

static _Noreturn void bad(struct reader *r, const char *what) {
    char text[160];
    int n = snprintf(text, sizeof(text), "variable is not JSON: %s at byte %zu", what, r->at);
    jx_fail_code(r->x, COHORT_E_ARGUMENT, "chat_template", text, (size_t)n);
}

static void skip_space(struct reader *r) {
    while (r->at < r->n && (r->b[r->at] == ' ' || r->b[r->at] == '\n' || r->b[r->at] == '\r' || r->b[r->at] == '\t'))
        r->at++;
}

static int peek(struct reader *r) {
    skip_space(r);
    return r->at < r->n ? (uint8_t)r->b[r->at] : -1;
}

static uint32_t read_hex(struct reader *r) {
    uint32_t c = 0;
    if (r->n - r->at < 4) bad(r, "cut off escape");
    for (int i = 0; i < 4; i++) {
        char d = r->b[r->at++];
        int v = d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : -1;
        if (v < 0) bad(r, "bad escape");
        c = c * 16 + (uint32_t)v;
    }
    return c;
}

static void read_escape(struct reader *r, struct maker *m) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at >= r->n) bad(r, "cut off string");
    char c = r->b[r->at++];
    const char *k = c ? strchr(from, c) : NULL;
    if (k) {
        maker_add(m, &to[k - from], 1, r->mark);
        return;
    }
    if (c != 'u') bad(r, "bad escape");
    uint32_t u = read_hex(r);
    if (u >= 0xd800 && u < 0xdc00 && r->n - r->at >= 6 && r->b[r->at] == '\\' && r->b[r->at + 1] == 'u') {
        r->at += 2;
        uint32_t low = read_hex(r);
        if (low < 0xdc00 || low > 0xdfff) bad(r, "half a surrogate pair");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    }
    if (u >= 0xd800 && u < 0xe000) bad(r, "half a surrogate pair");
    maker_char(m, u, r->mark);
}

static val read_string(struct reader *r) {
    size_t from = ++r->at;
    struct maker m = maker_begin(r->x);
    for (;;) {
        while (r->at < r->n && r->b[r->at] != '"' && r->b[r->at] != '\\' && (uint8_t)r->b[r->at] >= 32) r->at++;
        if (r->at >= r->n) bad(r, "cut off string");
        if ((uint8_t)r->b[r->at] < 32) bad(r, "control character in a string");
        if (!utf8_valid(r->b + from, r->at - from)) bad(r, "invalid UTF-8");
        maker_add(&m, r->b + from, r->at - from, r->mark);
        if (r->b[r->at++] == '"') return maker_end(&m);
        read_escape(r, &m);
        from = r->at;
    }
}

static val whole_number(struct reader *r, const char *text, const char *digits) {
    int64_t i = 0;
    int negative = text != digits, large = 0;
    for (const char *d = digits; *d; d++) {
        if (*d < '0' || *d > '9') bad(r, "bad number");
        large |= __builtin_mul_overflow(i, 10, &i) || __builtin_add_overflow(i, negative ? '0' - *d : *d - '0', &i);
    }
    if (!large) return v_int(i);
    val v = v_bytes(r->x, text, strlen(text), r->mark);
    v.type = V_BIG;
    return v;
}

static val read_number(struct reader *r) {
    char text[400];
    size_t n = 0;
    int whole = 1;
    while (r->at < r->n && n < sizeof(text) - 1 && strchr("+-0123456789.eE", r->b[r->at]) && r->b[r->at]) {
        if (strchr(".eE", r->b[r->at])) whole = 0;
        text[n++] = r->b[r->at++];
    }
    text[n] = 0;
    const char *digits = text + (text[0] == '-');
    if (digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9') ||
        n == sizeof(text) - 1)
        bad(r, "bad number");
    char *end;
    val v;
    if (whole) {
        v = whole_number(r, text, digits);
    } else {
        v = v_float(strtod(text, &end));
        if (*end) bad(r, "bad number");
    }
    v.mark = r->mark;
    return v;
}

static val read_value(struct reader *r);

static val read_array(struct reader *r, int by_element) {
    struct list *l = list_new(r->x, 0);
    val v = v_list(l, V_LIST);
    v.mark = r->mark;
    r->at++;
    if (peek(r) == ']') return r->at++, v;
    for (;;) {
        list_add(r->x, l, read_value(r));
        int c = peek(r);
        r->at++;
        if (c == ']') return v;
        if (c != ',') bad(r, "expected , or ]");
        if (by_element) r->mark++;
    }
}

static val read_object(struct reader *r) {
    struct dict *d = dict_new(r->x);
    val v = {.type = V_DICT, .mark = r->mark, .d = d};
    r->at++;
    if (peek(r) == '}') return r->at++, v;
    for (;;) {
        if (peek(r) != '"') bad(r, "expected a name");
        val key = read_string(r);
        if (peek(r) != ':') bad(r, "expected :");
        r->at++;
        uint16_t mark = r->mark;
        if (r->trusted && r->depth == 2 && str_is(key.s, r->trusted)) r->mark = 0;
        dict_set(r->x, d, key, read_value(r));
        r->mark = mark;
        int c = peek(r);
        r->at++;
        if (c == '}') return v;
        if (c != ',') bad(r, "expected , or }");
    }
}

static val read_word(struct reader *r) {
    static const struct {
        const char *word;
        val v;
    } words[] = {{"null", {.type = V_NONE}}, {"true", {.type = V_BOOL, .i = 1}}, {"false", {.type = V_BOOL, .i = 0}}};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i].word);
        if (r->n - r->at < n || memcmp(r->b + r->at, words[i].word, n)) continue;
        r->at += n;
        val v = words[i].v;
        v.mark = r->mark;
        return v;
    }
    bad(r, "unknown word");
}

static val read_value(struct reader *r) {
    jx_steps(r->x, 1);
    if (++r->depth > JINJA_DEPTH_MAX) jx_fail_limit(r->x, "nesting of a variable");
    int c = peek(r);
    val v = c == '"'                             ? read_string(r)
            : c == '['                           ? read_array(r, 0)
            : c == '{'                           ? read_object(r)
            : c == '-' || (c >= '0' && c <= '9') ? read_number(r)
            : c < 0                              ? (bad(r, "nothing"), v_none())
                                                 : read_word(r);
    r->depth--;
    return v;
}

val json_parse(struct run *x, const struct jinja_variable *v) {
    struct reader r = {.x = x, .b = v->json, .n = v->len, .mark = v->mark};
    val value;
    if (v->by_element && peek(&r) == '[') {
        r.depth++;
        r.trusted = v->trusted;
        value = read_array(&r, 1);
    } else {
        value = read_value(&r);
    }
    if (peek(&r) >= 0) bad(&r, "more than one value");
    return value;
}

/* ---- Writing ---- */

struct writer {
    struct maker m;
    int ascii, sorted, indented;
    const struct str *indent, *item_end, *key_end;
};

static void write_string(struct writer *w, const struct str *s) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    struct maker *m = &w->m;
    uint16_t mark = mark_of((val){.type = V_STR, .s = (struct str *)s});
    unsigned len;
    size_t begun = 0, at;
    maker_add(m, "\"", 1, mark);
    for (at = 0; at < s->n; at += len) {
        char text[16] = "\\";
        uint8_t c = (uint8_t)s->b[at];
        len = 1;
        const char *k = c ? strchr(from, c) : NULL;
        if (k) {
            text[1] = to[k - from];
        } else if (c < 32) {
            snprintf(text, sizeof(text), "\\u%04x", c);
        } else if (w->ascii && c > 126) {
            uint32_t u = str_char(s, at, &len);
            if (u < 0x10000)
                snprintf(text, sizeof(text), "\\u%04x", u);
            else
                snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xd800 + ((u - 0x10000) >> 10), 0xdc00 + (u & 0x3ff));
        } else {
            continue;
        }
        maker_part(m, s, begun, at - begun);
        maker_text(m, text, str_mark(s, at));
        begun = at + len;
    }
    maker_part(m, s, begun, s->n - begun);
    maker_add(m, "\"", 1, mark);
    jx_steps(m->x, s->n / 16);
}

static void write_float(struct writer *w, val v) {
    if (isnan(v.f) || isinf(v.f))
        maker_text(&w->m, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity", v.mark);
    else
        put_float(&w->m, v.f, v.mark);
}

static void write_value(struct writer *w, val v, int level);

static void new_line(struct writer *w, int level, uint16_t mark) {
    if (!w->indented) return;
    maker_text(&w->m, "\n", mark);
    for (int i = 0; i < level; i++) maker_add(&w->m, w->indent->b, w->indent->n, mark);
}

static void write_list(struct writer *w, val v, int level) {
    maker_text(&w->m, "[", v.mark);
    for (uint32_t i = 0; i < v.l->n; i++) {
        if (i) maker_add(&w->m, w->item_end->b, w->item_end->n, v.mark);
        new_line(w, level + 1, v.mark);
        write_value(w, v.l->v[i], level + 1);
    }
    if (v.l->n) new_line(w, level, v.mark);
    maker_text(&w->m, "]", v.mark);
}

static void write_key(struct writer *w, val key) {
    switch (key.type) {
    case V_STR:
        write_string(w, key.s);
        return;
    case V_FLOAT:
    case V_INT:
    case V_BOOL:
    case V_NONE:
        maker_text(&w->m, "\"", key.mark);
        write_value(w, key, 0);
        maker_text(&w->m, "\"", key.mark);
        return;
    default:
        jx_fail(w->m.x, "keys must be str, int, float, bool or None, not %s", type_name(key));
    }
}

static void write_dict(struct writer *w, val v, int level) {
    struct run *x = w->m.x;
    const struct dict *d = v.d;
    val *items = jx_alloc(x, d->n + 1, sizeof(val)), *keys = jx_alloc(x, d->n + 1, sizeof(val));
    for (uint32_t i = 0; i < d->n; i++) {
        keys[i] = d->e[i].key;
        items[i] = v_int(i);
    }
    if (w->sorted) sort_by(x, items, keys, d->n, 0);
    maker_text(&w->m, "{", v.mark);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct entry *e = &d->e[items[i].i];
        if (i) maker_add(&w->m, w->item_end->b, w->item_end->n, v.mark);
        new_line(w, level + 1, v.mark);
        write_key(w, e->key);
        maker_add(&w->m, w->key_end->b, w->key_end->n, v.mark);
        write_value(w, e->value, level + 1);
    }
    if (d->n) new_line(w, level, v.mark);
    maker_text(&w->m, "}", v.mark);
}

static void write_value(struct writer *w, val v, int level) {
    jx_steps(w->m.x, 1);
    jx_enter(w->m.x);
    switch (v.type) {
    case V_NONE:
        maker_text(&w->m, "null", v.mark);
        break;
    case V_BOOL:
        maker_text(&w->m, v.i ? "true" : "false", v.mark);
        break;
    case V_INT:
    case V_BIG:
        put_repr(&w->m, v);
        break;
    case V_FLOAT:
        write_float(w, v);
        break;
    case V_STR:
        write_string(w, v.s);
        break;
    case V_LIST:
    case V_TUPLE:
        write_list(w, v, level);
        break;
    case V_DICT:
        write_dict(w, v, level);
        break;
    default:
        jx_fail(w->m.x, "Object of type %s is not JSON serializable", type_name(v));
    }
    jx_leave(w->m.x);
}

static const struct str *separator(struct run *x, val v) {
    if (!is_str(v)) jx_fail(x, "separators of tojson are two strings");
    return v.s;
}

val json_dump(struct run *x, val v, val ensure_ascii, val indent, val separators, val sort_keys) {
    struct writer w = {.m = maker_begin(x), .ascii = truth(x, ensure_ascii), .sorted = truth(x, sort_keys)};
    w.indented = indent.type != V_NONE;
    if (is_str(indent)) {
        w.indent = indent.s;
    } else if (w.indented) {
        struct maker m = maker_begin(x);
        maker_repeat(&m, v_text(x, " ").s, need_int(x, indent, "indent"));
        w.indent = maker_end(&m).s;
    }
    w.item_end = v_text(x, w.indented ? "," : ", ").s;
    w.key_end = v_text(x, ": ").s;
    if (separators.type != V_NONE) {
        struct list *l = list_from(x, separators);
        if (l->n != 2) jx_fail(x, "separators of tojson are two strings");
        w.item_end = separator(x, l->v[0]);
        w.key_end = separator(x, l->v[1]);
    }
    write_value(&w, v, 0);
    return maker_end(&w.m);
}
