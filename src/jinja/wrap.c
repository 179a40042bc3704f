/* Lines broken at a width, as Python's textwrap breaks them: between words, behind hyphens between letters, and within
 * words that are longer than a line. */
#include <string.h>

#include "jinja/text.h"

/* A line by characters. */
struct chars {
    uint32_t *c;
    uint32_t *at; /* the byte where each begins, and the end */
    uint32_t n;
};

static struct chars chars_of(struct run *x, const struct str *s) {
    struct chars k = {jx_alloc(x, s->n + 1, sizeof(uint32_t)), jx_alloc(x, s->n + 1, sizeof(uint32_t)), 0};
    unsigned len;
    for (uint32_t at = 0; at < s->n; at += len) {
        k.at[k.n] = at;
        k.c[k.n++] = str_char(s, at, &len);
    }
    k.at[k.n] = s->n;
    jx_steps(x, s->n / 8);
    return k;
}

static int is_space(uint32_t c) { return c == ' ' || (c >= 9 && c <= 13); }
static int is_letter(uint32_t c) { return char_word(c) && !char_decimal(c); }
static int ends_word(uint32_t c) { return char_word(c) || (c && c < 128 && strchr("!\"'&.,?", (int)c)); }

/* Where a dash of two or more hyphens that begins at i ends, if a word follows it; else 0. */
static uint32_t dash_end(const struct chars *k, uint32_t i) {
    uint32_t e = i;
    while (e < k->n && k->c[e] == '-') e++;
    return e - i >= 2 && e < k->n && char_word(k->c[e]) ? e : 0;
}

static int hyphen_breaks(const struct chars *k, uint32_t i) {
    const uint32_t *c = k->c;
    int before = (i >= 2 && is_letter(c[i - 1]) && is_letter(c[i - 2])) ||
                 (i >= 3 && is_letter(c[i - 1]) && c[i - 2] == '-' && is_letter(c[i - 3]));
    if (!before || i + 2 >= k->n || !is_letter(c[i + 1])) return 0;
    return is_letter(c[i + 2]) || (c[i + 2] == '-' && i + 3 < k->n && is_letter(c[i + 3]));
}

/* The end of the chunk that begins at i. */
static uint32_t chunk_end(const struct chars *k, uint32_t i, int hyphens) {
    uint32_t e = i, dash;
    if (is_space(k->c[i])) {
        while (e < k->n && is_space(k->c[e])) e++;
        return e;
    }
    if (hyphens && i && ends_word(k->c[i - 1]) && (dash = dash_end(k, i))) return dash;
    for (e = i + 1; e < k->n && !is_space(k->c[e]); e++) {
        if (!hyphens || k->c[e] != '-') continue;
        if (hyphen_breaks(k, e)) return e + 1;
        if (ends_word(k->c[e - 1]) && k->c[e - 1] != '-' && dash_end(k, e)) return e;
    }
    return e;
}

static int blank(const struct str *s) {
    unsigned len;
    for (size_t at = 0; at < s->n; at += len)
        if (!char_space(str_char(s, at, &len))) return 0;
    return 1;
}

/* Takes what fits of a word longer than a line off it. */
static val cut_word(struct run *x, val *word, int64_t room, int hyphens) {
    struct str *s = word->s;
    size_t end = str_offset(s, room);
    if (hyphens && str_chars(s) > room) {
        size_t hyphen = end;
        while (hyphen > 0 && s->b[hyphen - 1] != '-') hyphen--;
        size_t other = 0;
        while (hyphen && other < hyphen - 1 && s->b[other] == '-') other++;
        if (hyphen > 1 && other < hyphen - 1) end = hyphen;
    }
    val head = v_slice(x, s, 0, end);
    *word = v_slice(x, s, end, s->n - end);
    return head;
}

struct list *wrap_line(struct run *x, struct str *line, int64_t width, int break_words, int hyphens) {
    struct chars k = chars_of(x, line);
    struct list *chunks = list_new(x, 0), *out = list_new(x, 0);
    if (width <= 0) jx_fail(x, "invalid width %lld (must be > 0)", (long long)width);
    for (uint32_t i = 0, e; i < k.n; i = e) {
        e = chunk_end(&k, i, hyphens);
        list_add(x, chunks, v_slice(x, line, k.at[i], k.at[e] - k.at[i]));
    }
    for (uint32_t i = 0; i < chunks->n;) {
        struct list *now = list_new(x, 4);
        int64_t have = 0;
        if (out->n && blank(chunks->v[i].s)) i++;
        for (; i < chunks->n && have + str_chars(chunks->v[i].s) <= width; i++) {
            have += str_chars(chunks->v[i].s);
            list_add(x, now, chunks->v[i]);
        }
        if (i < chunks->n && str_chars(chunks->v[i].s) > width) {
            if (break_words)
                list_add(x, now, cut_word(x, &chunks->v[i], width - have, hyphens));
            else if (!now->n)
                list_add(x, now, chunks->v[i++]);
        }
        if (now->n && blank(now->v[now->n - 1].s)) now->n--;
        struct maker m = maker_begin(x);
        for (uint32_t j = 0; j < now->n; j++) maker_str(&m, now->v[j].s);
        if (now->n) list_add(x, out, maker_end(&m));
        jx_steps(x, 4);
    }
    return out;
}
