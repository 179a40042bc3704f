/* Literals as a template itself writes them: the table's, with the white space that stands between them in a rendering
 * of two calls. Pure. */
#include <string.h>

#include "chat/notation.h"
#include "chat/walk.h"

struct derive {
    const char *s;
    size_t n, at;
    struct chat_format *f;
    size_t stored;
    int failed;
};

static const char *keep(struct derive *d, const char *text, size_t n) {
    if (n >= CHAT_LITERAL_MAX || d->stored + n + 1 > sizeof d->f->store) {
        d->failed = 1;
        return "";
    }
    char *out = memcpy(d->f->store + d->stored, text, n);
    out[n] = 0;
    d->stored += n + 1;
    return out;
}

/* The literal as it stands here, with the white space on both of its sides. */
static const char *take(struct derive *d, const char *literal) {
    size_t begin = d->at, used, space = begin;
    if (!*literal || d->failed) return literal;
    while (space < d->n && chat_is_space(d->s[space])) space++;
    if (chat_literal_match(literal, d->s + space, d->n - space, &used) != CHAT_MATCH_YES) {
        /* Nothing but white space is written of some literals. */
        d->failed = strspn(literal, " \n") != strlen(literal);
        d->at = space;
        return keep(d, d->s + begin, space - begin);
    }
    d->at = space + used;
    while (d->at < d->n && chat_is_space(d->s[d->at])) d->at++;
    return keep(d, d->s + begin, d->at - begin);
}

static void skip_value(struct derive *d) {
    ptrdiff_t n = d->failed ? 0 : chat_walk_value(d->s + d->at, d->n - d->at);
    if (n <= 0)
        d->failed = 1;
    else
        d->at += (size_t)n;
}

static void skip_text(struct derive *d, const char *text) {
    size_t n = strlen(text);
    if (d->failed || d->n - d->at < n || memcmp(d->s + d->at, text, n))
        d->failed = 1;
    else
        d->at += n;
}

/* One parameter's literals into *c. */
static void parameter(struct derive *d, struct chat_calls *c, const char *key, const char *value) {
    c->key = take(d, c->key);
    skip_text(d, key);
    c->key_end = take(d, c->key_end);
    if (c->kind_end) {
        while (d->at < d->n && d->s[d->at] != *c->kind_end) d->at++;
        c->kind_end = take(d, c->kind_end);
    }
    skip_text(d, value);
    c->value_end = take(d, c->value_end);
}

static size_t spaces_behind(const char *s) {
    size_t n = strlen(s), k = 0;
    while (k < n && chat_is_space(s[n - 1 - k])) k++;
    return k;
}

/* Behind the last parameter may stand other white space than behind the others: the call's end begins with the rest. */
static void last_parameter(struct derive *d, struct chat_calls *c, struct chat_calls *last) {
    size_t usual = spaces_behind(c->value_end), here = spaces_behind(last->value_end);
    const char *rest = last->value_end + strlen(last->value_end) - here;
    if (d->failed || here < usual || strncmp(rest, c->value_end + strlen(c->value_end) - usual, usual))
        d->failed = 1;
    else
        d->at -= here - usual;
}

static void one_call(struct derive *d, struct chat_calls *c) {
    c->call = take(d, c->call);
    if (c->shape == CHAT_SHAPE_OBJECT) {
        skip_value(d);
    } else {
        skip_text(d, "probe_tool");
        c->name_end = take(d, c->name_end);
        if (c->values == CHAT_VALUES_JSON) skip_value(d);
        if (c->values == CHAT_VALUES_TAGGED) {
            parameter(d, c, "prb_s", "PROBEVALUE");
            struct chat_calls last = *c;
            parameter(d, &last, "prb_n", "4711");
            last_parameter(d, c, &last);
        }
    }
    c->call_end = take(d, c->call_end);
}

static const char *without_space(struct derive *d, const char *literal, size_t behind) {
    return keep(d, literal, strlen(literal) - behind);
}

static void both_calls(struct derive *d, struct chat_calls *c) {
    c->section = take(d, c->section);
    one_call(d, c);
    size_t behind = spaces_behind(c->call_end);
    if (strspn(c->between, " \n") == strlen(c->between)) {
        /* Only white space lies between calls: it was taken with the end. */
        if (*c->call_end) {
            c->between = keep(d, c->call_end + strlen(c->call_end) - behind, behind);
            c->call_end = without_space(d, c->call_end, behind);
        } else {
            c->between = take(d, c->between);
        }
    } else {
        c->between = take(d, c->between);
    }
    struct chat_calls second = *c;
    one_call(d, &second);
    if (!*c->section_end) return;
    d->at -= *second.call_end ? spaces_behind(second.call_end) : 0;
    c->section_end = take(d, c->section_end);
    c->section_end = without_space(d, c->section_end, spaces_behind(c->section_end));
}

int chat_derive(struct chat_format *f, const char *text) {
    const struct chat_calls *row = &f->calls;
    const char *first;
    if (row->tail || row->id_lead || row->id_key || row->bare || row->prompted || row->values == CHAT_VALUES_PYTHON ||
        row->values == CHAT_VALUES_BRACED)
        return 0;
    size_t n = chat_literal_first(*row->section ? row->section : row->call, &first);
    const char *begin = n ? memmem(text, strlen(text), first, n) : NULL;
    if (!begin) return 0;
    struct derive d = {.s = begin, .n = strlen(begin), .f = f};
    struct chat_calls derived = *row;
    both_calls(&d, &derived);
    if (d.failed) return 0;
    f->calls = derived;
    return 1;
}
