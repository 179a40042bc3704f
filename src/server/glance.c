/* The glance (glance.h): one pass that knows strings from structure, how deep it is, and the names on the way down to
 * GLANCE_DEPTH. Loop thread. */
#include "server/glance.h"

#include <stdint.h>
#include <string.h>

enum { GLANCE_DEPTH = 6 }; /* messages[i].content[j].text is at depth 5 */

/* A string's bytes once decoded, at least: \uXXXX counts as one, like any other escape. */
struct measure {
    size_t all;     /* the whole string */
    size_t trimmed; /* without spaces and escapes at its ends */
};

struct glance {
    const char *at, *end;
    size_t depth; /* open objects and arrays */
    struct {
        char kind; /* '{' or '[' */
        const char *name;
        size_t name_len;   /* of the member that is being read */
    } level[GLANCE_DEPTH]; /* level[d - 1] is at depth d */
};

static void measure_plain(const char *from, size_t n, size_t before, size_t *first, size_t *last) {
    size_t begin = 0, end = n;
    while (begin < end && from[begin] == ' ') begin++;
    if (begin == end) return;
    while (from[end - 1] == ' ') end--;
    if (*first == SIZE_MAX) *first = before + begin;
    *last = before + end;
}

/* g->at is behind the opening quote; afterwards behind the closing one, or at the end. */
static struct measure measure_string(struct glance *g) {
    size_t all = 0, first = SIZE_MAX, last = 0;
    const char *quote = g->at;
    for (;;) {
        if (quote <= g->at) quote = memchr(g->at, '"', (size_t)(g->end - g->at));
        if (!quote) quote = g->end;
        const char *escape = memchr(g->at, '\\', (size_t)(quote - g->at));
        const char *stop = escape ? escape : quote;
        measure_plain(g->at, (size_t)(stop - g->at), all, &first, &last);
        all += (size_t)(stop - g->at);
        g->at = stop;
        if (!escape) break;
        size_t skip = g->end - escape > 1 && escape[1] == 'u' ? 6 : 2;
        g->at += (size_t)(g->end - escape) < skip ? (size_t)(g->end - escape) : skip;
        all++;
        if (escape + 1 == quote) quote = g->at; /* it was no end: look for the next */
    }
    if (g->at < g->end) g->at++;
    return (struct measure){all, first == SIZE_MAX ? 0 : last - first};
}

/* The name of the member at depth d, from 1. */
static int is_named(const struct glance *g, size_t d, const char *name) {
    return g->level[d - 1].kind == '{' && g->level[d - 1].name_len == strlen(name) &&
           memcmp(g->level[d - 1].name, name, strlen(name)) == 0;
}

static int is_list(const struct glance *g, size_t d) { return g->level[d - 1].kind == '['; }

static int is_prompt(const struct glance *g) {
    return (g->depth == 1 || (g->depth == 2 && is_list(g, 2))) && is_named(g, 1, "prompt");
}

static int is_content(const struct glance *g) {
    if (g->depth < 3 || !is_named(g, 1, "messages") || !is_list(g, 2) || !is_named(g, 3, "content")) return 0;
    return g->depth == 3 || (g->depth == 5 && is_list(g, 4) && is_named(g, 5, "text"));
}

/* Whether the string just read is a member's name. */
static int is_name(const struct glance *g) {
    const char *at = g->at;
    while (at < g->end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
    return at < g->end && *at == ':';
}

/* The next string that is a value, its measure in *out; 0 at the end. */
static int next_value(struct glance *g, struct measure *out) {
    while (g->at < g->end) {
        char c = *g->at++;
        if (c == '{' || c == '[') {
            if (g->depth < GLANCE_DEPTH) {
                g->level[g->depth].kind = c;
                g->level[g->depth].name_len = 0;
            }
            g->depth++;
        } else if (c == '}' || c == ']') {
            if (g->depth) g->depth--;
        } else if (c == '"') {
            const char *begin = g->at;
            *out = measure_string(g);
            if (!is_name(g)) return 1;
            if (g->depth == 0 || g->depth > GLANCE_DEPTH) continue;
            g->level[g->depth - 1].name = begin;
            g->level[g->depth - 1].name_len = (size_t)(g->at - begin) - (g->at > begin && g->at[-1] == '"');
        }
    }
    return 0;
}

size_t glance_prompt(const char *body, size_t len) {
    struct glance g = {.at = body, .end = body + len};
    struct measure m;
    size_t most = 0;
    while (next_value(&g, &m))
        if (is_prompt(&g) && m.all > most) most = m.all;
    return most;
}

size_t glance_messages(const char *body, size_t len) {
    struct glance g = {.at = body, .end = body + len};
    struct measure m;
    size_t sum = 0;
    while (next_value(&g, &m))
        if (is_content(&g)) sum += m.trimmed;
    return sum;
}
