/* Strings: making, sharing, cutting, joining and finding, each byte with its mark. Strings are valid UTF-8. */
#include "jinja/text.h"

#include <string.h>

#include "base/utf8.h"
#include "jinja/jinja.h"

enum { ROOM_MIN = 512 }; /* a concatenation this long leaves room to grow */

static struct str *str_new(struct run *x, const char *b, size_t n) {
    if (n > JINJA_OUTPUT_MAX) jx_fail_limit(x, "text");
    struct str *s = jx_zalloc(x, 1, sizeof(*s));
    s->b = b;
    s->n = (uint32_t)n;
    s->chars = UINT32_MAX;
    return s;
}

static val v_of(struct str *s) { return (val){.type = V_STR, .s = s}; }

/* ---- Making ---- */

static void maker_reserve(struct maker *m, size_t more) {
    if (more > JINJA_OUTPUT_MAX || m->n + more > JINJA_OUTPUT_MAX) jx_fail_limit(m->x, "text");
    if (m->n + more <= m->cap) return;
    size_t cap = m->cap ? m->cap : 64;
    while (cap < m->n + more) cap *= 2;
    char *b = jx_alloc(m->x, cap, 1);
    if (m->n) memcpy(b, m->b, m->n);
    m->b = b;
    if (m->marks) {
        uint16_t *marks = jx_alloc(m->x, cap, sizeof(*marks));
        memcpy(marks, m->marks, m->n * sizeof(*marks));
        m->marks = marks;
    }
    m->cap = cap;
}

/* From here on each byte has its own mark. */
static void maker_split(struct maker *m) {
    if (m->marks) return;
    m->marks = jx_alloc(m->x, m->cap ? m->cap : 1, sizeof(*m->marks));
    for (size_t i = 0; i < m->n; i++) m->marks[i] = m->mark;
}

void maker_add(struct maker *m, const char *b, size_t n, uint16_t mark) {
    if (!n) return;
    jx_steps(m->x, 1 + n / 64);
    maker_reserve(m, n);
    if (!m->n) m->mark = mark;
    if (m->n && mark != m->mark) maker_split(m);
    memcpy(m->b + m->n, b, n);
    if (m->marks)
        for (size_t i = 0; i < n; i++) m->marks[m->n + i] = mark;
    m->n += n;
}

void maker_text(struct maker *m, const char *z, uint16_t mark) { maker_add(m, z, strlen(z), mark); }

void maker_part(struct maker *m, const struct str *s, size_t from, size_t n) {
    if (!s->marks) {
        maker_add(m, s->b + from, n, s->mark);
        return;
    }
    if (!n) return;
    jx_steps(m->x, n / 64);
    maker_reserve(m, n);
    maker_split(m);
    memcpy(m->b + m->n, s->b + from, n);
    memcpy(m->marks + m->n, s->marks + from, n * sizeof(*m->marks));
    m->n += n;
}

void maker_str(struct maker *m, const struct str *s) { maker_part(m, s, 0, s->n); }

void maker_char(struct maker *m, uint32_t c, uint16_t mark) {
    char b[4];
    maker_add(m, b, (size_t)utf8_encode(c, b), mark);
}

void maker_repeat(struct maker *m, const struct str *s, int64_t times) {
    if (times <= 0 || !s->n) return;
    if (times > JINJA_OUTPUT_MAX) jx_fail_limit(m->x, "text");
    maker_reserve(m, (size_t)times * s->n);
    size_t begin = m->n, end = begin + (size_t)times * s->n;
    maker_str(m, s);
    jx_steps(m->x, (end - begin) / 64);
    /* What is there already is copied behind itself, ever more of it. */
    while (m->n < end) {
        size_t n = m->n - begin < end - m->n ? m->n - begin : end - m->n;
        memcpy(m->b + m->n, m->b + begin, n);
        if (m->marks) memcpy(m->marks + m->n, m->marks + begin, n * sizeof(*m->marks));
        m->n += n;
    }
}

val maker_end(struct maker *m) {
    struct str *s = str_new(m->x, m->n ? m->b : "", m->n);
    s->marks = m->marks;
    s->mark = m->mark;
    return v_of(s);
}

val v_text(struct run *x, const char *z) { return v_of(str_new(x, z, strlen(z))); }

val v_bytes(struct run *x, const char *b, size_t n, uint16_t mark) {
    char *copy = jx_alloc(x, n ? n : 1, 1);
    memcpy(copy, b, n);
    struct str *s = str_new(x, copy, n);
    s->mark = mark;
    return v_of(s);
}

val v_slice(struct run *x, const struct str *s, size_t from, size_t n) {
    struct str *part = str_new(x, s->b + from, n);
    part->marks = s->marks ? s->marks + from : NULL;
    part->mark = s->mark;
    part->markup = s->markup;
    if (s->chars == s->n) part->chars = part->n;
    return v_of(part);
}

val v_markup(struct run *x, val v, int markup) {
    if (v.s->markup == !!markup) return v;
    struct str *s = jx_alloc(x, 1, sizeof(*s));
    *s = *v.s;
    s->markup = !!markup;
    return v_of(s);
}

/* ---- Joining ---- */

static void room_marks(struct run *x, struct room *r, const struct str *s) {
    if (!r->marks) {
        if (!s->marks && s->mark == r->mark) return;
        r->marks = jx_alloc(x, r->cap, sizeof(*r->marks));
        for (uint32_t i = 0; i < r->used; i++) r->marks[i] = r->mark;
    }
    for (uint32_t i = 0; i < s->n; i++) r->marks[r->used + i] = str_mark(s, i);
}

static void room_add(struct run *x, struct room *r, const struct str *s) {
    if (!s->n) return;
    jx_steps(x, s->n / 64);
    if (!r->used && !s->marks) r->mark = s->mark;
    room_marks(x, r, s);
    memcpy(r->bytes + r->used, s->b, s->n);
    r->used += s->n;
}

val v_concat(struct run *x, val a, val b) {
    size_t n = (size_t)a.s->n + b.s->n;
    if (n > JINJA_OUTPUT_MAX) jx_fail_limit(x, "text");
    struct room *r = a.s->room;
    if (r && a.s->b + a.s->n == r->bytes + r->used && r->cap - r->used >= b.s->n) {
        room_add(x, r, b.s);
    } else {
        r = jx_zalloc(x, 1, sizeof(*r));
        r->cap = (uint32_t)(n < ROOM_MIN ? n : n * 2);
        r->bytes = jx_alloc(x, r->cap ? r->cap : 1, 1);
        room_add(x, r, a.s);
        room_add(x, r, b.s);
    }
    struct str *s = str_new(x, r->bytes + r->used - n, n);
    s->marks = r->marks ? r->marks + r->used - n : NULL;
    s->mark = r->mark;
    s->room = r;
    return v_of(s);
}

uint16_t mark_of(val v) {
    if (v.type != V_STR) return v.mark;
    if (!v.s->marks) return v.s->n ? v.s->mark : 0;
    for (uint32_t i = 0; i < v.s->n; i++)
        if (v.s->marks[i]) return v.s->marks[i];
    return 0;
}

/* ---- Looking ---- */

uint32_t str_chars(struct str *s) {
    if (s->chars == UINT32_MAX) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->n; i++) n += ((uint8_t)s->b[i] & 0xc0) != 0x80;
        s->chars = n;
    }
    return s->chars;
}

size_t str_offset(struct str *s, int64_t chars) {
    if (chars <= 0) return 0;
    if (chars >= (int64_t)str_chars(s)) return s->n;
    if (s->chars == s->n) return (size_t)chars;
    size_t at = 0;
    while (chars > 0) {
        at++;
        while (at < s->n && ((uint8_t)s->b[at] & 0xc0) == 0x80) at++;
        chars--;
    }
    return at;
}

uint32_t str_char(const struct str *s, size_t at, unsigned *len) {
    uint32_t c = 0xfffd;
    int n = utf8_decode(s->b + at, s->n - at, &c);
    *len = n > 0 ? (unsigned)n : 1;
    return c;
}

int str_is(const struct str *s, const char *z) { return strlen(z) == s->n && !memcmp(s->b, z, s->n); }

int str_equal(const struct str *a, const struct str *b) { return a->n == b->n && !memcmp(a->b, b->b, a->n); }

/* The order of code points is the order of UTF-8 bytes. */
int str_compare(const struct str *a, const struct str *b) {
    uint32_t n = a->n < b->n ? a->n : b->n;
    int r = memcmp(a->b, b->b, n);
    if (r) return r < 0 ? -1 : 1;
    return a->n < b->n ? -1 : a->n > b->n;
}

int64_t str_find(struct run *x, const struct str *s, const struct str *needle, size_t from, size_t to, int last) {
    if (from > to || needle->n > to - from) return -1;
    jx_steps(x, (to - from) / 64);
    if (!last) {
        const char *at = needle->n ? memmem(s->b + from, to - from, needle->b, needle->n) : s->b + from;
        return at ? at - s->b : -1;
    }
    for (size_t at = to - needle->n + 1; at-- > from;) {
        if ((to - at) % 64 == 0) jx_steps(x, 1 + needle->n / 64);
        if (!memcmp(s->b + at, needle->b, needle->n)) return (int64_t)at;
    }
    return -1;
}
