/* How calls begin. Tried on text that is held: a call's whole head is there, or cannot come, or more text is needed. */
#include <string.h>

#include "base/utf8.h"
#include "chat/reader_internal.h"

static enum chat_match literal(const char *text, const char *s, size_t n, size_t *at) {
    size_t used;
    enum chat_match m = chat_literal_match(text, s + *at, n - *at, &used);
    if (m == CHAT_MATCH_YES) *at += used;
    return m;
}

static int skip_space(const char *s, size_t n, size_t *at) {
    while (*at < n && chat_is_space(s[*at])) ++*at;
    return *at < n;
}

static int is_name(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
           c == '-';
}

static int declared(const struct chat_reader *r, const char *name) { return json_object_get(r->tools, name) != NULL; }

/* A JSON string at s[*at]; its text is copied, cut at `cap` (then it is none that we know). */
static enum chat_match string(const char *s, size_t n, size_t *at, char *out, size_t cap) {
    if (*at == n) return CHAT_MATCH_MORE;
    if (s[*at] != '"') return CHAT_MATCH_NO;
    ptrdiff_t len = chat_walk_value(s + *at, n - *at);
    if (len <= 0) return len ? CHAT_MATCH_NO : CHAT_MATCH_MORE;
    json_t *value = json_loadb(s + *at, (size_t)len, JSON_DECODE_ANY, NULL);
    if (!value || json_string_length(value) >= cap) {
        json_decref(value);
        return CHAT_MATCH_NO;
    }
    memcpy(out, json_string_value(value), json_string_length(value) + 1);
    json_decref(value);
    *at += (size_t)len;
    return CHAT_MATCH_YES;
}

/* Arguments that stand before the name, or as a string of JSON: kept in the scratch. */
static enum chat_match keep_values(struct chat_reader *r, const char *s, size_t n, size_t *at) {
    ptrdiff_t len = chat_walk_value(s + *at, n - *at);
    if (len <= 0) return len ? CHAT_MATCH_NO : CHAT_MATCH_MORE;
    if (!utf8_valid(s + *at, (size_t)len)) return CHAT_MATCH_NO;
    buf_clear(&r->scratch);
    enum chat_match m = CHAT_MATCH_NO;
    if (s[*at] == '{') {
        r->failed = buf_add(&r->scratch, s + *at, (size_t)len);
        m = CHAT_MATCH_YES;
    } else if (s[*at] == '"' && !r->anywhere) {
        json_t *value = json_loadb(s + *at, (size_t)len, JSON_DECODE_ANY, NULL);
        const char *text = json_string_value(value);
        size_t text_n = json_string_length(value);
        if (text_n && *text == '{' && chat_walk_valid(text, text_n)) {
            r->failed = buf_add(&r->scratch, text, text_n);
            m = CHAT_MATCH_YES;
        }
        json_decref(value);
    }
    *at += (size_t)len;
    return m;
}

/* A key and the colon behind it. */
static enum chat_match key(const char *s, size_t n, size_t *at, char *out, size_t cap) {
    enum chat_match m = string(s, n, at, out, cap);
    if (m != CHAT_MATCH_YES) return m;
    if (!skip_space(s, n, at)) return CHAT_MATCH_MORE;
    if (s[(*at)++] != ':') return CHAT_MATCH_NO;
    return skip_space(s, n, at) ? CHAT_MATCH_YES : CHAT_MATCH_MORE;
}

static enum chat_match skip_value(const char *s, size_t n, size_t *at) {
    ptrdiff_t len = chat_walk_value(s + *at, n - *at);
    if (len > 0) *at += (size_t)len;
    return len > 0 ? CHAT_MATCH_YES : len ? CHAT_MATCH_NO : CHAT_MATCH_MORE;
}

static enum chat_match object_end(struct chat_reader *r, struct chat_head *h, int kept) {
    if (!*h->name) return CHAT_MATCH_NO;
    if (!kept) {
        buf_clear(&r->scratch);
        r->failed = buf_adds(&r->scratch, "{}");
    }
    h->whole = 1;
    return CHAT_MATCH_YES;
}

static enum chat_match object_head(struct chat_reader *r, const char *s, size_t n, struct chat_head *h) {
    const struct chat_calls *c = &r->f->calls;
    size_t *at = &h->used;
    int kept = 0;
    if (!skip_space(s, n, at)) return CHAT_MATCH_MORE;
    if (s[(*at)++] != '{') return CHAT_MATCH_NO;
    for (int first = 1;; first = 0) {
        if (!skip_space(s, n, at)) return CHAT_MATCH_MORE;
        if (s[*at] == '}') return ++*at, object_end(r, h, kept);
        if (!first) {
            if (s[(*at)++] != ',') return CHAT_MATCH_NO;
            if (!skip_space(s, n, at)) return CHAT_MATCH_MORE;
        }
        char name[CHAT_NAME_MAX + 1];
        enum chat_match m = key(s, n, at, name, sizeof name);
        if (m != CHAT_MATCH_YES) return m;
        if (!strcmp(name, c->name_key)) {
            m = string(s, n, at, h->name, sizeof h->name);
            if (m == CHAT_MATCH_YES && !declared(r, h->name)) m = CHAT_MATCH_NO;
        } else if (!strcmp(name, c->values_key)) {
            if (*h->name && s[*at] == '{') return CHAT_MATCH_YES;
            m = keep_values(r, s, n, at);
            kept = 1;
        } else {
            m = skip_value(s, n, at);
        }
        if (m != CHAT_MATCH_YES) return m;
    }
}

/* Up to and with the literal that comes within `max` bytes. */
static enum chat_match find_literal(const char *text, const char *s, size_t n, size_t *at, size_t max) {
    for (size_t i = 0; i <= max; i++) {
        size_t to = *at + i;
        enum chat_match m = literal(text, s, n, &to);
        if (m == CHAT_MATCH_YES) *at = to;
        if (m != CHAT_MATCH_NO) return m;
        if (*at + i >= n) return CHAT_MATCH_MORE;
    }
    return CHAT_MATCH_NO;
}

static enum chat_match named_head(struct chat_reader *r, const char *s, size_t n, struct chat_head *h) {
    const struct chat_calls *c = &r->f->calls;
    size_t *at = &h->used;
    enum chat_match m;
    if (c->id_lead) {
        m = find_literal(c->id_lead, s, n, at, CHAT_TAIL_MAX);
        if (m != CHAT_MATCH_YES) return m;
    }
    if (!skip_space(s, n, at)) return CHAT_MATCH_MORE;
    size_t begin = *at;
    while (*at < n && is_name(s[*at])) ++*at;
    size_t len = *at - begin;
    if (len > CHAT_NAME_MAX) return CHAT_MATCH_NO;
    if (*at == n) return CHAT_MATCH_MORE;
    if (!len) return CHAT_MATCH_NO;
    memcpy(h->name, s + begin, len);
    h->name[len] = 0;
    if (!declared(r, h->name)) return CHAT_MATCH_NO;
    if (c->tail && r->strict && (m = literal(c->tail, s, n, at)) != CHAT_MATCH_YES) return m;
    m = c->tail ? find_literal(c->name_end, s, n, at, CHAT_TAIL_MAX) : literal(c->name_end, s, n, at);
    if (m != CHAT_MATCH_YES || c->values == CHAT_VALUES_TAGGED || c->values == CHAT_VALUES_PYTHON) return m;
    if (!skip_space(s, n, at)) return CHAT_MATCH_MORE;
    return s[*at] == '{' ? CHAT_MATCH_YES : CHAT_MATCH_NO;
}

static enum chat_match beginning(struct chat_reader *r, const char *const *literals, size_t count, const char *s,
                                 size_t n, struct chat_head *h) {
    memset(h, 0, sizeof *h);
    for (size_t i = 0; i < count; i++) {
        enum chat_match m = literal(literals[i], s, n, &h->used);
        if (m != CHAT_MATCH_YES) return m;
    }
    return r->f->calls.shape == CHAT_SHAPE_OBJECT ? object_head(r, s, n, h) : named_head(r, s, n, h);
}

/* The ways are tried in order, and none before it is sure that those in front of it are not it: what comes of a text
 * must not depend on how much of it is there. */
enum chat_match chat_call_head(struct chat_reader *r, const char *s, size_t n, int inner, struct chat_head *h) {
    const struct chat_calls *c = &r->f->calls;
    const char *ways[6][2] = {{c->section, c->call}, {"", c->call}};
    int from = inner || !*c->section ? 1 : 0, count = 2, wait = !r->last && n < CHAT_HELD_MAX;
    /* Outside of its section only a call that has a marker of its own is one. */
    if (*c->section && !inner && (*c->call != '<' || r->strict)) count = 1;
    for (size_t i = 0; i < sizeof c->also / sizeof *c->also && !r->strict; i++)
        if (c->also[i]) ways[count][0] = "", ways[count++][1] = c->also[i];
    for (int i = from; i < count; i++) {
        enum chat_match m = beginning(r, ways[i], 2, s, n < CHAT_HELD_MAX ? n : CHAT_HELD_MAX, h);
        h->section = i == 0;
        if (m == CHAT_MATCH_YES || (m == CHAT_MATCH_MORE && wait)) return m;
    }
    return CHAT_MATCH_NO;
}

enum chat_match chat_object_tail(const char *s, size_t n, size_t *used) {
    size_t at = 0;
    for (;;) {
        if (!skip_space(s, n, &at)) return CHAT_MATCH_MORE;
        if (s[at] == '}') return *used = at + 1, CHAT_MATCH_YES;
        if (s[at++] != ',') return CHAT_MATCH_NO;
        if (!skip_space(s, n, &at)) return CHAT_MATCH_MORE;
        char name[CHAT_NAME_MAX + 1];
        enum chat_match m = key(s, n, &at, name, sizeof name);
        if (m == CHAT_MATCH_YES) m = skip_value(s, n, &at);
        if (m != CHAT_MATCH_YES) return m;
    }
}
