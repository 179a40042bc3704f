/* The arguments of a call, made one JSON object as they come. Whatever does not go on as arguments ends the call
 * without an end, and is text. */
#include <string.h>

#include "base/utf8.h"
#include "chat/reader_internal.h"

static unsigned type_bit(const char *name) {
    static const char *const names[] = {"string", "number", "boolean", "null", "object", "array"};
    for (unsigned i = 0; i < 6; i++)
        if (!strcmp(name, names[i])) return 1u << i;
    return !strcmp(name, "integer") ? CHAT_TYPE_NUMBER : CHAT_TYPE_ANY;
}

static unsigned value_bit(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING:
        return CHAT_TYPE_STRING;
    case JSON_OBJECT:
        return CHAT_TYPE_OBJECT;
    case JSON_ARRAY:
        return CHAT_TYPE_ARRAY;
    case JSON_NULL:
        return CHAT_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return CHAT_TYPE_BOOLEAN;
    default:
        return CHAT_TYPE_NUMBER;
    }
}

static unsigned listed_types(const json_t *list) {
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        types |= json_is_string(e) ? type_bit(json_string_value(e)) : CHAT_TYPE_ANY;
    }
    return types;
}

static const json_t *referred(const json_t *root, const char *ref) {
    if (strncmp(ref, "#/", 2)) return NULL;
    const json_t *at = root;
    for (const char *p = ref + 2; at && *p;) {
        char key[128];
        size_t n = strcspn(p, "/");
        if (n >= sizeof key) return NULL;
        memcpy(key, p, n);
        key[n] = 0;
        at = json_object_get(at, key);
        p += n + (p[n] == '/');
    }
    return at;
}

unsigned chat_schema_types(const json_t *root, const json_t *schema, int depth) {
    if (!json_is_object(schema) || depth > 8) return CHAT_TYPE_ANY;
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (ref) return chat_schema_types(root, referred(root, ref), depth + 1);
    const json_t *v = json_object_get(schema, "const");
    if (v) return value_bit(v);
    unsigned types = 0;
    v = json_object_get(schema, "enum");
    for (size_t i = 0; i < json_array_size(v); i++) types |= value_bit(json_array_get(v, i));
    if (types) return types;
    v = json_object_get(schema, "type");
    if (json_is_string(v)) return type_bit(json_string_value(v));
    if (json_array_size(v)) return listed_types(v);
    v = json_object_get(schema, "anyOf");
    if (!v) v = json_object_get(schema, "oneOf");
    for (size_t i = 0; i < json_array_size(v); i++) types |= chat_schema_types(root, json_array_get(v, i), depth + 1);
    return types ? types : CHAT_TYPE_ANY;
}

/* ---- Ends ---- */

static int put(struct chat_reader *r, const char *s) { return chat_reader_put(r, COHORT_PART_ARGUMENTS, s, strlen(s)); }

/* The arguments are whole. `left`: what of the call's end has still to come. */
static int finish(struct chat_reader *r, enum chat_reader_state next, const char *left) {
    r->state = next;
    r->end_left = left;
    int e = chat_reader_put(r, COHORT_PART_CALL_END, "", 0);
    return e ? e : 1;
}

static int broken(struct chat_reader *r) {
    r->state = READER_TEXT;
    r->fresh = 1;
    r->section = 0;
    return 1;
}

static enum chat_reader_state behind(const struct chat_reader *r) {
    return r->f->calls.shape == CHAT_SHAPE_OBJECT ? READER_OBJECT_TAIL : READER_AFTER_CALL;
}

int chat_values_begin(struct chat_reader *r, int whole) {
    const struct chat_calls *c = &r->f->calls;
    r->parameters = 0;
    r->values = VALUES_NEXT;
    chat_walk_begin(&r->walk);
    if (whole) {
        int e = chat_reader_put(r, COHORT_PART_ARGUMENTS, r->scratch.data, r->scratch.len);
        if (!e) e = finish(r, READER_AFTER_CALL, c->call_end);
        return e < 0 ? e : 0;
    }
    if (c->values == CHAT_VALUES_BRACED) chat_loose_begin(&r->loose, c->quote);
    return c->values == CHAT_VALUES_TAGGED || c->values == CHAT_VALUES_PYTHON ? put(r, "{") : 0;
}

/* ---- JSON ---- */

/* Bytes of JSON that were taken, with raw control characters escaped and what is no character replaced: a model's slips
 * that must not spoil a call. *got: as chat_walk_byte says. */
static ptrdiff_t take_json(struct chat_reader *r, const char *s, size_t n, struct buf *out, int *got) {
    size_t i = 0;
    for (*got = 0; i < n && !*got;) {
        unsigned char c = (unsigned char)s[i];
        if (!chat_walk_in_string(&r->walk) || (c >= 0x20 && c < 0x80)) {
            *got = chat_walk_byte(&r->walk, s[i]);
            if (*got < 0) break;
            if (buf_add(out, s + i++, 1)) return -1;
            continue;
        }
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len < 0 && !r->last) break;
        len = len > 0 ? len : len < 0 ? (int)(n - i) : 1;
        if (chat_json_inside(out, s + i, (size_t)len, 1) < 0) return -1;
        i += (size_t)len;
    }
    return (ptrdiff_t)i;
}

static int flush(struct chat_reader *r) {
    int e = chat_reader_put(r, COHORT_PART_ARGUMENTS, r->scratch.data, r->scratch.len);
    buf_clear(&r->scratch);
    return e;
}

static int step_json(struct chat_reader *r) {
    int got;
    buf_clear(&r->scratch);
    ptrdiff_t n = take_json(r, chat_reader_text(r), chat_reader_left(r), &r->scratch, &got);
    if (n < 0 || flush(r)) return COHORT_E_MEMORY;
    r->at += (size_t)n;
    if (got < 0) return broken(r);
    return got ? finish(r, behind(r), r->f->calls.call_end) : 0;
}

/* More of a value that is written loosely: 1: it is at its end; 0: there is more to come, or it was no value. */
static int feed_loose(struct chat_reader *r, int *e) {
    size_t used;
    buf_clear(&r->scratch);
    enum chat_loose_result got =
        chat_loose_feed(&r->loose, chat_reader_text(r), chat_reader_left(r), r->last, &r->scratch, &used);
    *e = got == CHAT_LOOSE_MEMORY || flush(r) ? COHORT_E_MEMORY : 0;
    if (*e) return 0;
    r->at += used;
    if (got == CHAT_LOOSE_BAD) *e = broken(r);
    return got == CHAT_LOOSE_DONE;
}

static int step_braced(struct chat_reader *r) {
    int e, done = feed_loose(r, &e);
    return done ? finish(r, READER_AFTER_CALL, r->f->calls.call_end) : e;
}

/* ---- Parameters between tags ---- */

static int put_key(struct chat_reader *r, const char *key, size_t n) {
    buf_clear(&r->scratch);
    int e = buf_adds(&r->scratch, r->parameters++ ? ", \"" : "\"");
    if (!e && chat_json_inside(&r->scratch, key, n, 1) < 0) e = COHORT_E_MEMORY;
    if (!e) e = buf_adds(&r->scratch, "\": ");
    return e ? e : flush(r);
}

/* The literal without white space at its end: what stands behind it belongs to the value. */
static enum chat_match match_trimmed(const char *text, const char *s, size_t n, size_t *used) {
    char trimmed[CHAT_LITERAL_MAX];
    size_t len = strlen(text);
    while (len && chat_is_space(text[len - 1])) len--;
    if (len >= sizeof trimmed) return CHAT_MATCH_NO;
    memcpy(trimmed, text, len);
    trimmed[len] = 0;
    return chat_literal_match(trimmed, s, n, used);
}

static enum chat_match find_trimmed(const char *text, const char *s, size_t n, size_t from, size_t *begin,
                                    size_t *end) {
    for (size_t i = from; i <= from + CHAT_NAME_MAX; i++) {
        size_t used;
        enum chat_match m = i < n ? match_trimmed(text, s + i, n - i, &used) : CHAT_MATCH_MORE;
        if (m == CHAT_MATCH_NO) continue;
        *begin = i;
        *end = i + (m == CHAT_MATCH_YES ? used : 0);
        return m;
    }
    return CHAT_MATCH_NO;
}

static enum chat_match parameter_head(struct chat_reader *r, const char *s, size_t n, size_t *used, size_t key[2],
                                      int *raw) {
    const struct chat_calls *c = &r->f->calls;
    size_t at, begin, end;
    enum chat_match m = match_trimmed(c->key, s, n, &at);
    if (m != CHAT_MATCH_YES) return m;
    m = find_trimmed(c->key_end, s, n, at, &begin, &end);
    if (m != CHAT_MATCH_YES) return m;
    key[0] = at;
    key[1] = begin;
    *raw = -1;
    if (c->kind_end) {
        size_t from = end;
        m = find_trimmed(c->kind_end, s, n, from, &begin, &end);
        if (m != CHAT_MATCH_YES) return m;
        *raw = begin - from == strlen(c->kind_raw) && !memcmp(s + from, c->kind_raw, begin - from);
    }
    *used = end;
    return CHAT_MATCH_YES;
}

static unsigned parameter_types(const struct chat_reader *r, const char *key, size_t n, int raw) {
    char name[CHAT_NAME_MAX + 1];
    if (raw == 1) return CHAT_TYPE_STRING;
    if (raw == 0) return CHAT_TYPE_ANY & ~CHAT_TYPE_STRING;
    if (n > CHAT_NAME_MAX) return CHAT_TYPE_ANY;
    memcpy(name, key, n);
    name[n] = 0;
    json_t *properties = json_object_get(r->schema, "properties");
    json_t *schema = json_object_get(properties, name);
    if (!schema) schema = json_object_get(r->schema, "additionalProperties");
    return chat_schema_types(r->schema, schema, 0);
}

static int step_next(struct chat_reader *r) {
    const struct chat_calls *c = &r->f->calls;
    while (chat_reader_left(r) && chat_is_space(*chat_reader_text(r))) r->at++;
    const char *s = chat_reader_text(r), *first;
    size_t n = chat_reader_left(r), used, key[2];
    if (!n) return 0;
    int raw;
    enum chat_match m = parameter_head(r, s, n, &used, key, &raw);
    if (m == CHAT_MATCH_YES) {
        r->types = parameter_types(r, s + key[0], key[1] - key[0], raw);
        int e = put_key(r, s + key[0], key[1] - key[0]);
        r->at += used;
        r->values = VALUES_BEGIN;
        return e ? e : 1;
    }
    size_t len = chat_literal_first(c->call_end, &first);
    if (n >= len && !memcmp(s, first, len)) {
        r->at += len;
        int e = put(r, "}");
        return e ? e : finish(r, READER_AFTER_CALL, first + len);
    }
    int end_may_come = n < len && !memcmp(s, first, n);
    return !r->last && (m == CHAT_MATCH_MORE || end_may_come) ? 0 : broken(r);
}

static int ends_with_line(const char *literal) { return literal[0] && literal[strlen(literal) - 1] == '\n'; }

/* Where the value's end begins, with the line's end before it that belongs to the tag; *used: bytes of both. */
static enum chat_match value_end(const struct chat_reader *r, const char *s, size_t n, size_t *used) {
    const char *literal = r->f->calls.value_end, *first;
    size_t len = chat_literal_first(literal, &first), skip = chat_is_space(*literal) && *s == '\n';
    size_t shorter = n - skip < len ? n - skip : len;
    if (memcmp(s + skip, first, shorter)) return CHAT_MATCH_NO;
    *used = skip + len;
    return shorter == len ? CHAT_MATCH_YES : CHAT_MATCH_MORE;
}

/* Offset of the value's end or n; *m says which. */
static size_t find_end(const struct chat_reader *r, const char *s, size_t n, enum chat_match *m, size_t *used) {
    *m = CHAT_MATCH_NO;
    for (size_t i = 0; i < n; i++) {
        *m = value_end(r, s + i, n - i, used);
        if (*m == CHAT_MATCH_MORE && r->last) *m = CHAT_MATCH_NO;
        if (*m != CHAT_MATCH_NO) return i;
    }
    return n;
}

static int step_begin(struct chat_reader *r) {
    const struct chat_calls *c = &r->f->calls;
    if (ends_with_line(c->kind_end ? c->kind_end : c->key_end) && *chat_reader_text(r) == '\n') {
        size_t used;
        enum chat_match m = value_end(r, chat_reader_text(r), chat_reader_left(r), &used);
        if (m == CHAT_MATCH_MORE && !r->last) return 0;
        if (m != CHAT_MATCH_YES) r->at++; /* else the line's end is the tag's behind an empty value */
    }
    r->values = r->types == CHAT_TYPE_STRING ? VALUES_STRING : VALUES_HELD;
    int e = r->types == CHAT_TYPE_STRING ? put(r, "\"") : 0;
    return e ? e : 1;
}

static int step_string(struct chat_reader *r) {
    const char *s = chat_reader_text(r);
    size_t n = chat_reader_left(r), used;
    enum chat_match m;
    size_t end = find_end(r, s, n, &m, &used);
    buf_clear(&r->scratch);
    ptrdiff_t took = chat_json_inside(&r->scratch, s, end, m == CHAT_MATCH_YES || r->last);
    if (took < 0 || flush(r)) return COHORT_E_MEMORY;
    r->at += (size_t)took;
    if (m != CHAT_MATCH_YES) return 0;
    r->at += used;
    r->values = VALUES_NEXT;
    int e = put(r, "\"");
    return e ? e : 1;
}

/* The type of a JSON value, by its first byte. */
static unsigned text_bit(char first) {
    switch (first) {
    case '"':
        return CHAT_TYPE_STRING;
    case '{':
        return CHAT_TYPE_OBJECT;
    case '[':
        return CHAT_TYPE_ARRAY;
    case 't':
    case 'f':
        return CHAT_TYPE_BOOLEAN;
    case 'n':
        return CHAT_TYPE_NULL;
    default:
        return CHAT_TYPE_NUMBER;
    }
}

/* A value that is held whole: JSON of a type that the schema has, or Python's spelling of one, or else a string. */
static int put_held(struct chat_reader *r, const char *s, size_t n) {
    const char *text = s;
    size_t len = n;
    while (len && chat_is_space(*text)) text++, len--;
    while (len && chat_is_space(text[len - 1])) len--;
    int json = utf8_valid(text, len) && chat_walk_valid(text, len);
    buf_clear(&r->scratch);
    if (json && buf_add(&r->scratch, text, len)) return COHORT_E_MEMORY;
    if (!json && len) {
        struct chat_loose loose;
        size_t used;
        chat_loose_begin(&loose, NULL);
        enum chat_loose_result got = chat_loose_feed(&loose, text, len, 1, &r->scratch, &used);
        if (got == CHAT_LOOSE_MEMORY) return COHORT_E_MEMORY;
        json = got == CHAT_LOOSE_DONE && used == len;
    }
    if (json && (r->types & text_bit(*r->scratch.data))) return flush(r);
    buf_clear(&r->scratch);
    if (buf_adds(&r->scratch, "\"") || chat_json_inside(&r->scratch, s, n, 1) < 0 || buf_adds(&r->scratch, "\""))
        return COHORT_E_MEMORY;
    return flush(r);
}

static int step_held(struct chat_reader *r) {
    const char *s = chat_reader_text(r);
    size_t n = chat_reader_left(r), used;
    enum chat_match m;
    size_t end = find_end(r, s, n, &m, &used);
    if (m == CHAT_MATCH_YES && end <= CHAT_HELD_MAX) {
        int e = put_held(r, s, end);
        r->at += end + used;
        r->values = VALUES_NEXT;
        return e ? e : 1;
    }
    if (end <= CHAT_HELD_MAX) {
        if (r->last) r->at = r->in.len; /* cut off within a value that cannot be told yet */
        return 0;
    }
    /* Too long to be held: a string. */
    r->values = VALUES_STRING;
    int e = put(r, "\"");
    return e ? e : 1;
}

/* ---- Python's arguments ---- */

static int step_python_next(struct chat_reader *r) {
    const struct chat_calls *c = &r->f->calls;
    const char *s = chat_reader_text(r);
    size_t n = chat_reader_left(r), at = 0;
    while (at < n && (chat_is_space(s[at]) || (s[at] == ',' && r->parameters))) at++;
    r->at += at;
    s += at;
    n -= at;
    if (!n) return 0;
    const char *first;
    size_t len = chat_literal_first(c->call_end, &first);
    if (n >= len && !memcmp(s, first, len)) {
        r->at += len;
        int e = put(r, "}");
        return e ? e : finish(r, READER_AFTER_CALL, first + len);
    }
    size_t key = 0;
    while (key < n && key <= CHAT_NAME_MAX && s[key] != '=' && !chat_is_space(s[key]) && !strchr("'\"(),", s[key]))
        key++;
    if (key == n && !r->last && key <= CHAT_NAME_MAX) return 0;
    size_t to = key;
    while (to < n && chat_is_space(s[to]) && to - key < CHAT_SPACE_MAX) to++;
    if (to == n && !r->last) return 0;
    if (!key || key > CHAT_NAME_MAX || to == n || s[to] != '=') return broken(r);
    int e = put_key(r, s, key);
    r->at += to + 1;
    r->values = VALUES_LOOSE;
    chat_loose_begin(&r->loose, NULL);
    return e ? e : 1;
}

static int step_python_value(struct chat_reader *r) {
    int e, done = feed_loose(r, &e);
    if (done) r->values = VALUES_NEXT;
    return done ? 1 : e;
}

int chat_values_step(struct chat_reader *r) {
    switch (r->f->calls.values) {
    case CHAT_VALUES_JSON:
        return step_json(r);
    case CHAT_VALUES_BRACED:
        return step_braced(r);
    case CHAT_VALUES_PYTHON:
        return r->values == VALUES_NEXT ? step_python_next(r) : step_python_value(r);
    default:
        break;
    }
    switch (r->values) {
    case VALUES_NEXT:
        return step_next(r);
    case VALUES_BEGIN:
        return step_begin(r);
    case VALUES_STRING:
        return step_string(r);
    default:
        return step_held(r);
    }
}
