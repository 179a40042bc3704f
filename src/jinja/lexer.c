/* A template's text cut into tokens: data, and the names, operators and literals within tags, with the white space that
 * tags strip (trim_blocks and lstrip_blocks are on). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/jinja.h"
#include "jinja/tree.h"

struct lexer {
    struct run *x;
    struct name_table *names;
    const char *b;
    size_t n, at;
    uint32_t line;
    struct token *out;
    uint32_t n_out, cap;
    char *open; /* brackets that wait for their end */
    uint32_t n_open, cap_open;
    int line_starting;
};

static _Noreturn void lex_fail(struct lexer *l, const char *what) {
    l->x->line = l->line;
    jx_fail(l->x, "%s", what);
}

const struct name *name_intern(struct run *x, struct name_table *t, const char *b, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)b[i]) * 0x100000001b3u;
    if (t->n * 2 >= t->cap) {
        struct name_table bigger = {.cap = t->cap ? t->cap * 2 : 64, .n = t->n};
        bigger.slots = jx_zalloc(x, bigger.cap, sizeof(*bigger.slots));
        for (uint32_t i = 0; i < t->cap; i++) {
            if (!t->slots[i]) continue;
            uint64_t k = 0xcbf29ce484222325u;
            for (uint32_t j = 0; j < t->slots[i]->s->n; j++) k = (k ^ (uint8_t)t->slots[i]->s->b[j]) * 0x100000001b3u;
            uint32_t at = (uint32_t)(k ^ k >> 32) & (bigger.cap - 1);
            while (bigger.slots[at]) at = (at + 1) & (bigger.cap - 1);
            bigger.slots[at] = t->slots[i];
        }
        *t = bigger;
    }
    uint32_t at = (uint32_t)(h ^ h >> 32) & (t->cap - 1);
    for (; t->slots[at]; at = (at + 1) & (t->cap - 1))
        if (t->slots[at]->s->n == n && !memcmp(t->slots[at]->s->b, b, n)) return t->slots[at];
    struct name *name = jx_alloc(x, 1, sizeof(*name));
    name->s = v_bytes(x, b, n, 0).s;
    name->id = t->n++;
    t->slots[at] = name;
    return name;
}

static struct token *push(struct lexer *l, enum token_kind kind) {
    if (l->n_out == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 256;
        l->out = jx_grow(l->x, l->out, l->cap * sizeof(*l->out), cap * sizeof(*l->out));
        l->cap = cap;
    }
    struct token *t = &l->out[l->n_out++];
    *t = (struct token){.kind = (uint8_t)kind, .line = l->line};
    return t;
}

static void count_lines(struct lexer *l, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) l->line += l->b[i] == '\n';
}

static uint32_t char_at(const struct lexer *l, size_t at, unsigned *len) {
    uint32_t c = 0;
    int n = utf8_decode(l->b + at, l->n - at, &c);
    *len = n > 0 ? (unsigned)n : 1;
    return c;
}

static size_t spaces(const struct lexer *l, size_t at) {
    unsigned len;
    while (at < l->n && char_space(char_at(l, at, &len))) at += len;
    return at;
}

static size_t strip_right(const struct lexer *l, size_t from, size_t to) {
    while (to > from) {
        size_t at = to - 1;
        unsigned len;
        while (at > from && ((uint8_t)l->b[at] & 0xc0) == 0x80) at--;
        if (!char_space(char_at(l, at, &len))) break;
        to = at;
    }
    return to;
}

/* Data from `from` to `to` in front of a tag with this sign. */
static void push_data(struct lexer *l, size_t from, size_t to, char sign, int variable) {
    size_t end = to;
    if (sign == '-') {
        end = strip_right(l, from, to);
    } else if (sign != '+' && !variable) {
        size_t line = to;
        while (line > from && l->b[line - 1] != '\n') line--;
        if ((line > from || l->line_starting) && strip_right(l, line, to) == line) end = line;
    }
    if (end > from) push(l, T_DATA)->value = v_bytes(l->x, l->b + from, end - from, 0);
    count_lines(l, from, to);
}

static int starts(const struct lexer *l, size_t at, const char *z) {
    size_t n = strlen(z);
    return l->n - at >= n && !memcmp(l->b + at, z, n);
}

/* The end of a tag ("-%}  ", "+%}", "%}\n") at `at`: where it ends, or 0. `plus`, `trim`: what this kind of tag knows.
 */
static size_t tag_end(const struct lexer *l, size_t at, const char *close, int plus, int trim) {
    size_t n = strlen(close);
    if (at >= l->n) return 0;
    if (l->b[at] == '-' && starts(l, at + 1, close)) return spaces(l, at + 1 + n);
    if (plus && l->b[at] == '+' && starts(l, at + 1, close)) return at + 1 + n;
    if (!starts(l, at, close)) return 0;
    at += n;
    return trim && at < l->n && l->b[at] == '\n' ? at + 1 : at;
}

static void move_to(struct lexer *l, size_t to) {
    count_lines(l, l->at, to);
    l->line_starting = to > l->at ? l->b[to - 1] == '\n' : l->line_starting;
    l->at = to;
}

static void skip_comment(struct lexer *l) {
    for (size_t at = l->at; at < l->n; at++) {
        size_t end = tag_end(l, at, "#}", 1, 1);
        if (!end) continue;
        move_to(l, end);
        return;
    }
    lex_fail(l, "Missing end of comment tag");
}

static size_t keyword_at(const struct lexer *l, size_t at, const char *word) {
    at = spaces(l, at);
    return starts(l, at, word) ? spaces(l, at + strlen(word)) : 0;
}

/* {% raw %} behind the braces at l->at: where its end is, or 0. */
static size_t raw_begin(const struct lexer *l) {
    size_t at = l->at + 2;
    if (at < l->n && (l->b[at] == '-' || l->b[at] == '+')) at++;
    at = keyword_at(l, at, "raw");
    return at ? tag_end(l, at, "%}", 0, 0) : 0;
}

static void lex_raw(struct lexer *l) {
    for (size_t at = l->at; at < l->n; at++) {
        if (!starts(l, at, "{%")) continue;
        size_t k = at + 2;
        char sign = 0;
        if (k < l->n && (l->b[k] == '-' || l->b[k] == '+')) sign = l->b[k++];
        k = keyword_at(l, k, "endraw");
        size_t end = k ? tag_end(l, k, "%}", 1, 1) : 0;
        if (!end) continue;
        push_data(l, l->at, at, sign, 0);
        l->at = at;
        move_to(l, end);
        return;
    }
    lex_fail(l, "Missing end of raw directive");
}

/* ---- Within tags ---- */

static int word_char(uint32_t c) { return char_word(c) || char_joins(c); }

static void lex_name(struct lexer *l) {
    size_t from = l->at;
    unsigned len;
    while (l->at < l->n && word_char(char_at(l, l->at, &len))) l->at += len;
    uint32_t first = char_at(l, from, &len);
    if (char_numeric(first)) lex_fail(l, "Invalid character in identifier");
    push(l, T_NAME)->name = name_intern(l->x, l->names, l->b + from, l->at - from);
}

static size_t digits(const struct lexer *l, size_t at, const char *set) {
    size_t from = at;
    while (at < l->n && ((l->b[at] && strchr(set, l->b[at])) ||
                         (l->b[at] == '_' && at > from && at + 1 < l->n && l->b[at + 1] && strchr(set, l->b[at + 1]))))
        at++;
    return at;
}

static int try_float(struct lexer *l) {
    static const char ten[] = "0123456789";
    size_t at = digits(l, l->at, ten), end;
    if (l->at > 0 && l->b[l->at - 1] == '.') return 0;
    int real = 0;
    if (at + 1 < l->n && l->b[at] == '.' && (end = digits(l, at + 1, ten)) > at + 1 && l->b[at + 1] != '_') {
        at = end;
        real = 1;
    }
    if (at < l->n && (l->b[at] | 32) == 'e') {
        size_t k = at + 1;
        if (k < l->n && (l->b[k] == '+' || l->b[k] == '-')) k++;
        end = digits(l, k, ten);
        if (end > k) {
            at = end;
            real = 1;
        }
    }
    if (!real) return 0;
    if (at - l->at > 400) lex_fail(l, "a number of too many digits");
    char text[404];
    size_t n = 0;
    for (size_t i = l->at; i < at; i++)
        if (l->b[i] != '_') text[n++] = l->b[i];
    text[n] = 0;
    push(l, T_FLOAT)->value = v_float(strtod(text, NULL));
    l->at = at;
    return 1;
}

static void lex_integer(struct lexer *l) {
    static const char *const sets[] = {"01", "01234567", "0123456789abcdefABCDEF", "0123456789"};
    static const int bases[] = {2, 8, 16, 10};
    size_t at = l->at, from = at, end;
    int k = 3;
    if (l->b[at] == '0' && at + 2 < l->n) {
        char c = (char)(l->b[at + 1] | 32);
        int base = c == 'b' ? 0 : c == 'o' ? 1 : c == 'x' ? 2 : 3;
        size_t first = at + 2 + (l->b[at + 2] == '_');
        if (base < 3 && digits(l, first, sets[base]) > first) {
            k = base;
            from = first;
        }
    }
    end = digits(l, from, k == 3 && l->b[from] == '0' ? "0" : sets[k]);
    int64_t value = 0;
    for (size_t i = from; i < end; i++) {
        if (l->b[i] == '_') continue;
        int d = l->b[i] <= '9' ? l->b[i] - '0' : (l->b[i] | 32) - 'a' + 10;
        if (__builtin_mul_overflow(value, bases[k], &value) || __builtin_add_overflow(value, d, &value))
            lex_fail(l, "an integer beyond 64 bits");
    }
    push(l, T_INTEGER)->value = v_int(value);
    l->at = end;
}

static size_t escape_digits(struct lexer *l, size_t at, size_t end, int n, uint32_t *c) {
    *c = 0;
    for (int i = 0; i < n; i++, at++) {
        char d = at < end ? l->b[at] : 0;
        int v = d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : -1;
        if (v < 0) lex_fail(l, "truncated escape in a string");
        *c = *c * 16 + (uint32_t)v;
    }
    return at;
}

/* Python's "unicode-escape" of what follows a backslash at `at`; returns what is behind it. */
static size_t lex_escape(struct lexer *l, struct maker *m, size_t at, size_t end) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = l->b[at], text[16];
    const char *k = c ? strchr(from, c) : NULL;
    uint32_t u = 0;
    if (c == '\n') return at + 1;
    if (k) {
        maker_add(m, &to[k - from], 1, 0);
        return at + 1;
    }
    if (c >= '0' && c <= '7') {
        int n = 0;
        for (; n < 3 && at < end && l->b[at] >= '0' && l->b[at] <= '7'; n++) u = u * 8 + (uint32_t)(l->b[at++] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        at = escape_digits(l, at + 1, end, c == 'x' ? 2 : c == 'u' ? 4 : 8, &u);
    } else if (c == 'N') {
        lex_fail(l, "\\N in strings is not supported");
    } else {
        /* Not an escape: the backslash stays, and what is not ASCII is written out as an escape. */
        unsigned len;
        u = char_at(l, at, &len);
        maker_text(m, "\\", 0);
        if (u < 128) return at;
        snprintf(text, sizeof(text), u < 256 ? "x%02x" : u < 65536 ? "u%04x" : "U%08x", u);
        maker_text(m, text, 0);
        return at + len;
    }
    if (u > 0x10ffff || (u >= 0xd800 && u < 0xe000)) lex_fail(l, "an escape that is no character");
    maker_char(m, u, 0);
    return at;
}

static void lex_string(struct lexer *l) {
    char quote = l->b[l->at];
    size_t end = l->at + 1;
    while (end < l->n && l->b[end] != quote) end += l->b[end] == '\\' ? 2 : 1;
    if (end >= l->n) lex_fail(l, "unexpected char: a string without end");
    struct maker m = maker_begin(l->x);
    for (size_t at = l->at + 1, from; at < end;) {
        from = at;
        while (at < end && l->b[at] != '\\') at++;
        maker_add(&m, l->b + from, at - from, 0);
        if (at < end) at = lex_escape(l, &m, at + 1, end);
    }
    push(l, T_STRING)->value = maker_end(&m);
    move_to(l, end + 1);
}

static const struct {
    char text[3];
    uint8_t kind;
} operators[] = {{"//", T_FLOORDIV}, {"**", T_POW},   {"==", T_EQ},      {"!=", T_NE},      {">=", T_GE},
                 {"<=", T_LE},       {"+", T_ADD},    {"-", T_SUB},      {"/", T_DIV},      {"*", T_MUL},
                 {"%", T_MOD},       {"~", T_TILDE},  {"[", T_LBRACKET}, {"]", T_RBRACKET}, {"(", T_LPAREN},
                 {")", T_RPAREN},    {"{", T_LBRACE}, {"}", T_RBRACE},   {">", T_GT},       {"<", T_LT},
                 {"=", T_ASSIGN},    {".", T_DOT},    {":", T_COLON},    {"|", T_PIPE},     {",", T_COMMA},
                 {";", T_SEMICOLON}};

static void balance(struct lexer *l, char c) {
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_open == l->cap_open) {
            uint32_t cap = l->cap_open ? l->cap_open * 2 : 64;
            l->open = jx_grow(l->x, l->open, l->cap_open, cap);
            l->cap_open = cap;
        }
        l->open[l->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (!l->n_open || l->open[--l->n_open] != c) lex_fail(l, "unexpected closing bracket");
    }
}

static void lex_operator(struct lexer *l) {
    for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++) {
        if (!starts(l, l->at, operators[i].text)) continue;
        balance(l, l->b[l->at]);
        push(l, operators[i].kind);
        l->at += strlen(operators[i].text);
        return;
    }
    lex_fail(l, "unexpected character in a tag");
}

static void lex_tag(struct lexer *l, int variable) {
    const char *close = variable ? "}}" : "%}";
    for (;;) {
        size_t end = l->n_open ? 0 : tag_end(l, l->at, close, !variable, !variable);
        unsigned len;
        if (end) {
            push(l, variable ? T_VARIABLE_END : T_BLOCK_END);
            move_to(l, end);
            return;
        }
        if (l->at >= l->n) {
            if (l->n_open) lex_fail(l, "unexpected end of template within brackets");
            return; /* the parser finds the end missing */
        }
        uint32_t c = char_at(l, l->at, &len);
        if (char_space(c))
            move_to(l, spaces(l, l->at));
        else if (c >= '0' && c <= '9' ? !try_float(l) : 0)
            lex_integer(l);
        else if (c >= '0' && c <= '9')
            continue;
        else if (word_char(c))
            lex_name(l);
        else if (c == '\'' || c == '"')
            lex_string(l);
        else
            lex_operator(l);
    }
}

static void lex_root(struct lexer *l) {
    size_t at = l->at;
    while (at < l->n && !(l->b[at] == '{' && at + 1 < l->n && strchr("%{#", l->b[at + 1]) && l->b[at + 1])) at++;
    if (at >= l->n) {
        if (at > l->at) push(l, T_DATA)->value = v_bytes(l->x, l->b + l->at, at - l->at, 0);
        l->at = at;
        return;
    }
    char kind = l->b[at + 1], sign = at + 2 < l->n ? l->b[at + 2] : 0;
    push_data(l, l->at, at, sign, kind == '{');
    l->at = at;
    l->line_starting = 0;
    size_t raw = kind == '%' ? raw_begin(l) : 0;
    if (raw) {
        move_to(l, raw);
        lex_raw(l);
        return;
    }
    l->at += 2 + (sign == '-' || sign == '+');
    if (kind == '#') {
        skip_comment(l);
        return;
    }
    push(l, kind == '{' ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN);
    lex_tag(l, kind == '{');
}

/* Line ends become \n, and one at the end of the template is not part of it. */
static void normalize(struct lexer *l, const char *text, size_t n) {
    char *b = jx_alloc(l->x, n + 1, 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        b[k++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (k && b[k - 1] == '\n') k--;
    l->b = b;
    l->n = k;
}

struct token *lex(struct run *x, const char *text, size_t n, struct name_table *names, uint32_t *n_tokens) {
    struct lexer l = {.x = x, .names = names, .line = 1, .line_starting = 1};
    normalize(&l, text, n);
    while (l.at < l.n) lex_root(&l);
    push(&l, T_EOF);
    *n_tokens = l.n_out;
    return l.out;
}
