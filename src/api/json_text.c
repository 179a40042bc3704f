/* Writing JSON (json_text.h). The depth of values is bounded by the reader of bodies. */
#include "api/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/real.h"
#include "cohort/cohort.h"

static int add_real(struct buf *out, double value) {
    char text[REAL_TEXT_MAX];
    real_text(text, value);
    return buf_adds(out, text);
}

static int add_string(struct buf *out, const json_t *value) {
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    int rc = text ? buf_adds(out, text) : COHORT_E_MEMORY;
    free(text);
    return rc;
}

static int add_name(struct buf *out, const char *name) {
    json_t *string = json_string(name);
    int rc = string ? add_string(out, string) : COHORT_E_MEMORY;
    json_decref(string);
    return rc ? rc : buf_adds(out, ": ");
}

static int add_object(struct buf *out, const json_t *value) {
    const char *name;
    json_t *member;
    int rc = buf_adds(out, "{"), first = 1;
    json_object_foreach((json_t *)value, name, member) {
        if (rc) break;
        if (!first) rc = buf_adds(out, ", ");
        first = 0;
        if (!rc) rc = add_name(out, name);
        if (!rc) rc = json_text(out, member);
    }
    return rc ? rc : buf_adds(out, "}");
}

static int add_array(struct buf *out, const json_t *value) {
    int rc = buf_adds(out, "[");
    for (size_t i = 0; i < json_array_size(value) && !rc; i++) {
        if (i) rc = buf_adds(out, ", ");
        if (!rc) rc = json_text(out, json_array_get(value, i));
    }
    return rc ? rc : buf_adds(out, "]");
}

int json_text(struct buf *out, const json_t *value) {
    if (json_is_object(value)) return add_object(out, value);
    if (json_is_array(value)) return add_array(out, value);
    return json_is_real(value) ? add_real(out, json_real_value(value)) : add_string(out, value);
}

json_t *json_text_string(const json_t *value) {
    struct buf text = {0};
    json_t *string = json_text(&text, value) == 0 ? json_stringn(text.data, text.len) : NULL;
    buf_free(&text);
    return string;
}

/* ---- closing what was cut off ---- */

struct closing {
    struct buf open;  /* brackets that are open, outermost first */
    size_t kept;      /* bytes up to the end of the last value that is whole, */
    size_t kept_open; /* and the brackets that are open there */
    int name;         /* the string that comes is a member's name */
};

static int open_bracket(struct closing *c, char bracket, size_t behind) {
    int rc = buf_add(&c->open, &bracket, 1);
    c->name = bracket == '{';
    c->kept = behind;
    c->kept_open = c->open.len;
    return rc;
}

static void end_value(struct closing *c, size_t behind) {
    c->kept = behind;
    c->kept_open = c->open.len;
}

static void close_bracket(struct closing *c, size_t behind) {
    if (c->open.len) c->open.len--;
    c->name = 0;
    end_value(c, behind);
}

static size_t string_end(const char *bytes, size_t at, size_t n) {
    for (at++; at < n && bytes[at] != '"'; at++)
        if (bytes[at] == '\\') at++;
    return at < n ? at + 1 : n + 1;
}

static int is_bare(char c) { return strchr(" \t\r\n,:{}[]\"", c) == NULL; }

/* Reads one token at `at`, and returns where the next one begins; above n: it was cut off. */
static size_t read_token(struct closing *c, const char *bytes, size_t at, size_t n, int *rc) {
    char first = bytes[at];
    size_t end = at + 1;
    if (first == '{' || first == '[') {
        *rc = open_bracket(c, first, end);
    } else if (first == '}' || first == ']') {
        close_bracket(c, end);
    } else if (first == ',' || first == ':') {
        c->name = first == ',' && c->open.len && c->open.data[c->open.len - 1] == '{';
    } else if (first == '"') {
        end = string_end(bytes, at, n);
        if (end <= n && !c->name) end_value(c, end);
    } else if (is_bare(first)) {
        while (end < n && is_bare(bytes[end])) end++;
        if (end == n) return n + 1; /* a number may have gone on */
        end_value(c, end);
    }
    return end;
}

int json_text_closed(struct buf *out, const char *bytes, size_t n) {
    struct closing c = {0};
    size_t at = 0;
    int rc = 0;
    while (at < n && strchr(" \t\r\n", bytes[at])) at++;
    if (at >= n || bytes[at] != '{') return buf_adds(out, "{}");
    do at = read_token(&c, bytes, at, n, &rc);
    while (!rc && at < n && c.open.len);
    if (!rc) rc = buf_add(out, bytes, c.kept);
    while (!rc && c.kept_open > 0) rc = buf_adds(out, c.open.data[--c.kept_open] == '{' ? "}" : "]");
    buf_free(&c.open);
    return rc;
}
