/* The glance (glance.h): knows strings from structure, how deep it is, and the names on the way down. Loop thread. */
#include "server/glance.h"

#include <string.h>

/* ---- strings ---- */

static void add_plain(struct glance *g, const char *from, size_t n) {
    size_t begin = 0, end = n;
    if (g->name_len + n <= GLANCE_NAME) memcpy(g->name + g->name_len, from, n);
    g->name_len += n;
    while (begin < end && from[begin] == ' ') begin++;
    if (begin < end) {
        while (from[end - 1] == ' ') end--;
        if (g->last == 0) g->first = g->bytes + begin;
        g->last = g->bytes + end;
    }
    g->bytes += n;
}

static const char *feed_escape(struct glance *g, const char *at, const char *end) {
    if (g->escaped) {
        g->escaped = 0;
        g->skip = *at == 'u' ? 4 : 0;
        return at + 1;
    }
    size_t n = (size_t)(end - at) < g->skip ? (size_t)(end - at) : g->skip;
    g->skip -= (unsigned)n;
    return at + n;
}

/* Inside a string: up to behind its end, or to the end of the bytes. */
static const char *feed_string(struct glance *g, const char *at, const char *end) {
    const char *quote = NULL; /* the next one; looked for again only once it is passed */
    while (at < end) {
        if (g->escaped || g->skip) {
            at = feed_escape(g, at, end);
            continue;
        }
        if (!quote || quote < at) quote = memchr(at, '"', (size_t)(end - at));
        if (!quote) quote = end;
        const char *escape = memchr(at, '\\', (size_t)(quote - at)), *stop = escape ? escape : quote;
        add_plain(g, at, (size_t)(stop - at));
        at = stop;
        if (escape) {
            g->escaped = 1;
            g->bytes++;
            g->name_len = GLANCE_NAME + 1;
            at++;
        } else if (at < end) {
            g->in_string = 0;
            g->read = 1;
            return at + 1;
        }
    }
    return at;
}

/* ---- structure ---- */

/* The member at depth d, from 1, has this name. */
static int is_named(const struct glance *g, size_t d, const char *name) {
    return g->level[d - 1].kind == '{' && g->level[d - 1].name_len == strlen(name) &&
           memcmp(g->level[d - 1].name, name, strlen(name)) == 0;
}

static int is_list(const struct glance *g, size_t d) { return g->level[d - 1].kind == '['; }

static int is_prompt(const struct glance *g) {
    return (g->depth == 1 || (g->depth == 2 && is_list(g, 2))) && is_named(g, 1, "prompt");
}

static int is_content(const struct glance *g, const char *list) {
    if (g->depth < 3 || !is_named(g, 1, list) || !is_list(g, 2) || !is_named(g, 3, "content")) return 0;
    return g->depth == 3 || (g->depth == 5 && is_list(g, 4) && is_named(g, 5, "text"));
}

static void take_value(struct glance *g) {
    if (is_prompt(g) && g->bytes > g->prompt) g->prompt = g->bytes;
    if (is_content(g, "messages") && g->last) g->messages += g->last - g->first;
    if ((is_content(g, "input") || (g->depth == 1 && is_named(g, 1, "input"))) && g->last)
        g->input += g->last - g->first;
}

static void take_name(struct glance *g) {
    if (g->depth < 1 || g->depth > GLANCE_DEPTH) return;
    g->level[g->depth - 1].name_len = g->name_len;
    memcpy(g->level[g->depth - 1].name, g->name, GLANCE_NAME);
}

static void take_mark(struct glance *g, char c) {
    switch (c) {
    case '"':
        g->in_string = 1;
        g->read = 0;
        g->bytes = g->first = g->last = g->name_len = 0;
        break;
    case ':':
        if (g->read) take_name(g);
        g->read = 0;
        break;
    case '{':
    case '[':
        if (g->depth < GLANCE_DEPTH) {
            g->level[g->depth].kind = c;
            g->level[g->depth].name_len = 0;
        }
        g->depth++;
        break;
    case '}':
    case ']':
    case ',':
        if (g->read) take_value(g);
        g->read = 0;
        if (c != ',' && g->depth > 0) g->depth--;
        break;
    default:
        break;
    }
}

void glance_feed(struct glance *g, const char *bytes, size_t n) {
    const char *at = bytes, *end = bytes + n;
    while (at < end) {
        if (g->in_string)
            at = feed_string(g, at, end);
        else
            take_mark(g, *at++);
    }
}
