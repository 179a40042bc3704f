/* A recursive descent over the expression that writes as it reads. Depth is bounded by GRAMMAR_DEPTH_MAX. */
#include "grammar/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/grammar.h"

enum { RANGES_MAX = 512, REPEAT_MAX = 1000000, CODE_MAX = 0x10ffff };

struct range {
    uint32_t low, high;
};
struct set {
    struct range ranges[RANGES_MAX];
    int n;
};
struct reader {
    const char *begin, *at, *end;
    enum pattern_use use;
    struct buf *out;
    cohort_error *err;
    int depth;
    int failed; /* the first code */
    struct set set;
};

static const struct range digits[] = {{'0', '9'}};
static const struct range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct range space[] = {{9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680},
                                     {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                     {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const struct range line_ends[] = {{10, 10}, {13, 13}, {0x2028, 0x2029}};
static const struct range no_text[] = {{0xd800, 0xdfff}}; /* surrogates */
static const struct range escaped_in_json[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}, {0xd800, 0xdfff}};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static int fail(struct reader *r, int code, const char *reason) {
    if (!r->failed)
        r->failed = err_set(r->err, code, "grammar", "pattern, at byte %zu: %s", (size_t)(r->at - r->begin), reason);
    return r->failed;
}

/* An expression; inside a grammar it stands in quotation marks, and escapes are escaped. */
static void put(struct reader *r, const char *text) {
    int rc = r->failed                                  ? 0
             : *text == '\\' && r->use == PATTERN_WHOLE ? buf_addf(r->out, "\\%s", text)
                                                        : buf_adds(r->out, text);
    if (rc) fail(r, rc, "too large");
}

/* ---- Sets of characters ---- */

static void set_add(struct reader *r, uint32_t low, uint32_t high) {
    if (r->set.n == RANGES_MAX)
        fail(r, COHORT_E_LIMIT, "a class has too many parts");
    else
        r->set.ranges[r->set.n++] = (struct range){low, high};
}

static int by_low(const void *a, const void *b) {
    uint32_t x = ((const struct range *)a)->low, y = ((const struct range *)b)->low;
    return x < y ? -1 : x > y;
}

static void set_sort(struct set *s) {
    qsort(s->ranges, (size_t)s->n, sizeof *s->ranges, by_low);
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (n && s->ranges[i].low <= s->ranges[n - 1].high + 1) {
            if (s->ranges[i].high > s->ranges[n - 1].high) s->ranges[n - 1].high = s->ranges[i].high;
        } else {
            s->ranges[n++] = s->ranges[i];
        }
    }
    s->n = n;
}

static void set_negate(struct reader *r) {
    static const struct range all = {0, CODE_MAX};
    struct set *s = &r->set;
    set_sort(s);
    if (s->n == RANGES_MAX) {
        fail(r, COHORT_E_LIMIT, "a class has too many parts");
        return;
    }
    uint32_t next = all.low;
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        struct range taken = s->ranges[i]; /* what is written lies before what is read, but for the last */
        if (taken.low > next) s->ranges[n++] = (struct range){next, taken.low - 1};
        next = taken.high + 1;
    }
    if (next <= CODE_MAX) s->ranges[n++] = (struct range){next, CODE_MAX};
    s->n = n;
}

static void set_remove(struct reader *r, const struct range *what, int n) {
    set_negate(r);
    for (int i = 0; i < n; i++) set_add(r, what[i].low, what[i].high);
    set_negate(r);
}

static void put_code(struct reader *r, uint32_t code) {
    char text[16];
    int plain = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || (code >= '0' && code <= '9');
    if (plain)
        snprintf(text, sizeof text, "%c", (char)code);
    else if (code <= 0xffff)
        snprintf(text, sizeof text, "\\u%04x", code);
    else
        snprintf(text, sizeof text, "\\u{%x}", code);
    put(r, text);
}

static void put_set(struct reader *r) {
    struct set *s = &r->set;
    if (r->use == PATTERN_STRING)
        set_remove(r, escaped_in_json, COUNT(escaped_in_json));
    else
        set_remove(r, no_text, COUNT(no_text));
    if (r->failed) return;
    if (s->n == 0) {
        fail(r, COHORT_E_UNSUPPORTED, "needs a character that cannot be written here");
        return;
    }
    if (s->n == 1 && s->ranges[0].low == s->ranges[0].high) {
        put_code(r, s->ranges[0].low);
        return;
    }
    put(r, "[");
    for (int i = 0; i < s->n; i++) {
        put_code(r, s->ranges[i].low);
        if (s->ranges[i].high == s->ranges[i].low) continue;
        put(r, "-");
        put_code(r, s->ranges[i].high);
    }
    put(r, "]");
}

static void put_one(struct reader *r, uint32_t code) {
    r->set.n = 0;
    set_add(r, code, code);
    put_set(r);
}

static void put_anything(struct reader *r) {
    r->set.n = 0;
    set_add(r, 0, CODE_MAX);
    put_set(r);
    put(r, "*");
}

/* ---- Characters and escapes ---- */

static uint32_t take_code(struct reader *r) {
    uint32_t code = 0;
    int n = utf8_decode(r->at, (size_t)(r->end - r->at), &code);
    if (n <= 0) {
        fail(r, COHORT_E_ARGUMENT, "not UTF-8");
        r->at = r->end;
        return 0;
    }
    r->at += n;
    return code;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* `n` hexadecimal digits. */
static uint32_t take_hex(struct reader *r, int n) {
    uint32_t code = 0;
    for (int i = 0; i < n; i++, r->at++) {
        int digit = r->at < r->end ? hex_value(*r->at) : -1;
        if (digit < 0) {
            fail(r, COHORT_E_ARGUMENT, "hexadecimal digits are missing");
            return 0;
        }
        code = code * 16 + (uint32_t)digit;
    }
    return code;
}

static uint32_t take_unicode(struct reader *r) {
    if (r->at < r->end && *r->at == '{') {
        const char *close = memchr(r->at, '}', (size_t)(r->end - r->at));
        size_t n = close ? (size_t)(close - r->at) - 1 : 0;
        if (n < 1 || n > 6) {
            fail(r, COHORT_E_ARGUMENT, "\\u{ needs one to six digits and a }");
            return 0;
        }
        r->at++;
        uint32_t code = take_hex(r, (int)n);
        r->at++;
        return code > CODE_MAX ? (uint32_t)fail(r, COHORT_E_ARGUMENT, "no such character") * 0 : code;
    }
    uint32_t code = take_hex(r, 4), low;
    if (code < 0xd800 || code > 0xdbff || r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u') return code;
    const char *before = r->at; /* perhaps the first half of a pair */
    r->at += 2;
    low = take_hex(r, 4);
    if (low >= 0xdc00 && low <= 0xdfff) return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    r->at = before;
    return code;
}

static void add_ranges(struct reader *r, const struct range *ranges, int n, int negated) {
    uint32_t next = 0;
    for (int i = 0; i < n; i++) {
        if (!negated)
            set_add(r, ranges[i].low, ranges[i].high);
        else if (ranges[i].low > next)
            set_add(r, next, ranges[i].low - 1);
        next = ranges[i].high + 1;
    }
    if (negated) set_add(r, next, CODE_MAX);
}

/* An escape that stands for one character, or -1 for one that stands for several, which are added to the set. */
static int64_t take_escape(struct reader *r, int in_class) {
    r->at++;
    if (r->at == r->end) return fail(r, COHORT_E_ARGUMENT, "ends in a backslash");
    char c = *r->at;
    if (strchr("dDwWsS", c)) {
        r->at++;
        int negated = c < 'a';
        const struct range *ranges = c == 'd' || c == 'D' ? digits : c == 'w' || c == 'W' ? word : space;
        add_ranges(r, ranges, ranges == digits ? COUNT(digits) : ranges == word ? COUNT(word) : COUNT(space), negated);
        return -1;
    }
    static const char names[] = "ntrfv", codes[] = "\n\t\r\f\v";
    const char *named = strchr(names, c);
    int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9')) return take_code(r);
    r->at++;
    if (named) return codes[named - names];
    if (c == 'b' && in_class) return 8;
    if (c == '0') return 0;
    if (c == 'x') return take_hex(r, 2);
    if (c == 'u') return take_unicode(r);
    if (c == 'c' && r->at < r->end && (*r->at | 32) >= 'a' && (*r->at | 32) <= 'z') return *r->at++ & 31;
    r->at -= 2;
    return fail(r, COHORT_E_UNSUPPORTED, "this escape is not supported");
}

static void read_class(struct reader *r) {
    r->at++;
    r->set.n = 0;
    int negated = r->at < r->end && *r->at == '^';
    r->at += negated;
    while (!r->failed && r->at < r->end && *r->at != ']') {
        int64_t low = *r->at == '\\' ? take_escape(r, 1) : (int64_t)take_code(r);
        if (r->failed || low < 0) continue;
        int64_t high = low;
        if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            high = *r->at == '\\' ? take_escape(r, 1) : (int64_t)take_code(r);
            if (r->failed) return;
            if (high < low) {
                fail(r, COHORT_E_ARGUMENT, "a range ends before it begins");
                return;
            }
        }
        set_add(r, (uint32_t)low, (uint32_t)high);
    }
    if (r->failed) return;
    if (r->at == r->end) {
        fail(r, COHORT_E_ARGUMENT, "a class is not closed");
        return;
    }
    r->at++;
    if (negated) set_negate(r);
    put_set(r);
}

/* ---- Structure ---- */

static void read_choices(struct reader *r, int outermost);

static void read_group(struct reader *r, int outermost) {
    r->at++;
    if (r->at < r->end && *r->at == '?') {
        const char *name = r->at + 2;
        if (r->end - r->at >= 2 && r->at[1] == ':') {
            r->at += 2;
        } else if (r->end - r->at >= 3 && r->at[1] == '<' && *name != '=' && *name != '!') {
            const char *close = memchr(name, '>', (size_t)(r->end - name));
            if (!close) {
                fail(r, COHORT_E_ARGUMENT, "a group's name does not end");
                return;
            }
            r->at = close + 1;
        } else {
            fail(r, COHORT_E_UNSUPPORTED, "looking ahead or behind and flags are not supported");
            return;
        }
    }
    if (++r->depth > GRAMMAR_DEPTH_MAX) {
        fail(r, COHORT_E_LIMIT, "nested too deeply");
        return;
    }
    put(r, "(");
    read_choices(r, outermost);
    put(r, ")");
    r->depth--;
    if (r->at == r->end)
        fail(r, COHORT_E_ARGUMENT, "a group is not closed");
    else
        r->at++;
}

static void read_item(struct reader *r) {
    char c = *r->at;
    r->set.n = 0;
    if (c == '(') {
        read_group(r, 0);
    } else if (c == '[') {
        read_class(r);
    } else if (c == '.') {
        r->at++;
        add_ranges(r, line_ends, COUNT(line_ends), 1);
        put_set(r);
    } else if (c == '\\') {
        int64_t code = take_escape(r, 0);
        if (r->failed) return;
        if (code >= 0)
            put_one(r, (uint32_t)code);
        else
            put_set(r);
    } else if (strchr("*+?", c)) {
        fail(r, COHORT_E_ARGUMENT, "nothing to repeat");
    } else if (c == '^' || c == '$') {
        fail(r, COHORT_E_UNSUPPORTED, "an anchor is only supported at the beginning and at the end");
    } else {
        uint32_t code = take_code(r);
        put_one(r, code);
    }
}

static int take_number(struct reader *r, uint32_t *out) {
    const char *begin = r->at;
    uint32_t n = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        if (n <= REPEAT_MAX) n = n * 10 + (uint32_t)(*r->at - '0');
        r->at++;
    }
    *out = n;
    return r->at > begin;
}

/* {n}, {n,} or {n,m}; anything else is a brace as it stands. Returns 1 if it was one. */
static int read_bounds(struct reader *r) {
    const char *begin = r->at;
    uint32_t low, high;
    char text[40];
    r->at++;
    int right = take_number(r, &low), comma = right && r->at < r->end && *r->at == ',';
    r->at += comma;
    int upper = comma && take_number(r, &high);
    if (!right || r->at == r->end || *r->at != '}') {
        r->at = begin;
        return 0;
    }
    r->at++;
    if (!upper) high = low;
    if (low > REPEAT_MAX || high > REPEAT_MAX) {
        fail(r, COHORT_E_LIMIT, "too many repetitions");
        return 0;
    }
    if (high < low) {
        fail(r, COHORT_E_ARGUMENT, "repetitions end before they begin");
        return 0;
    }
    if (comma && !upper)
        snprintf(text, sizeof text, "{%u,}", low);
    else
        snprintf(text, sizeof text, "{%u,%u}", low, high);
    put(r, text);
    return 1;
}

static void read_repeat(struct reader *r) {
    if (r->failed || r->at == r->end) return;
    char c = *r->at;
    if (c == '*' || c == '+' || c == '?') {
        char text[2] = {c, 0};
        put(r, text);
        r->at++;
    } else if (c != '{' || !read_bounds(r)) {
        return;
    }
    if (r->at < r->end && *r->at == '?') r->at++; /* whether it is greedy makes no difference to what matches */
    if (r->at < r->end && strchr("*+?", *r->at)) fail(r, COHORT_E_ARGUMENT, "nothing to repeat");
}

/* The place behind the group that begins at `at`, or NULL. */
static const char *behind_group(const char *at, const char *end) {
    int depth = 0, in_class = 0;
    for (; at < end; at++) {
        if (*at == '\\')
            at++;
        else if (in_class)
            in_class = *at != ']';
        else if (*at == '[')
            in_class = 1;
        else if (*at == '(')
            depth++;
        else if (*at == ')' && --depth == 0)
            return at + 1;
    }
    return NULL;
}

static void read_sequence(struct reader *r, int outermost) {
    int anchored = 0;
    if (outermost && r->at < r->end && *r->at == '(') { /* a group that is all of it: anchors may be in there */
        const char *behind = behind_group(r->at, r->end);
        if (behind && (behind == r->end || *behind == '|' || *behind == ')')) {
            read_group(r, 1);
            return;
        }
    }
    if (outermost && r->at < r->end && *r->at == '^') {
        anchored = 1;
        r->at++;
    }
    if (outermost && r->use == PATTERN_STRING && !anchored) put_anything(r);
    anchored = 0;
    while (!r->failed && r->at < r->end && *r->at != '|' && *r->at != ')') {
        const char *next = r->at + 1;
        if (outermost && *r->at == '$' && (next == r->end || *next == '|' || *next == ')')) {
            anchored = 1;
            r->at++;
            break;
        }
        read_item(r);
        read_repeat(r);
    }
    if (outermost && r->use == PATTERN_STRING && !anchored) put_anything(r);
}

static void read_choices(struct reader *r, int outermost) {
    for (;;) {
        read_sequence(r, outermost);
        if (r->failed || r->at == r->end || *r->at != '|') return;
        put(r, "|");
        r->at++;
    }
}

int pattern_rewrite(const char *text, size_t len, enum pattern_use use, struct buf *out, cohort_error *err) {
    struct reader r = {.begin = text, .at = text, .end = text + len, .use = use, .out = out, .err = err};
    /* One automaton for all of it: rules of a grammar have ends, and what reaches beyond an end is looked at token by
     * token when a mask is made. */
    if (use == PATTERN_WHOLE) put(&r, "root ::= Regex(\"");
    read_choices(&r, 1);
    if (use == PATTERN_WHOLE) put(&r, "\")");
    if (!r.failed && r.at < r.end) fail(&r, COHORT_E_ARGUMENT, "a group is closed that is not open");
    return r.failed;
}
