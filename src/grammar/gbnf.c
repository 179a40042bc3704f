/* name ::= choices. A rule ends with its line, unless a parenthesis is open or the line ends in a bar. Rules get names
 * of ours, so that none of them means something to the compiler. */
#include "grammar/gbnf.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/utf8.h"
#include "grammar/grammar.h"

enum { REPEAT_MAX = 1000000 };

struct reader {
    const char *begin, *at, *end;
    struct buf *out;
    cohort_error *err;
    json_t *names;   /* object: a rule's name -> its number; "root" is 0 */
    json_t *defined; /* object: the names that have a rule */
    int depth;       /* of parentheses */
    int failed;
};

static int fail(struct reader *r, int code, const char *reason) {
    size_t line = 1;
    for (const char *p = r->begin; p < r->at; p++) line += *p == '\n';
    if (!r->failed) r->failed = err_set(r->err, code, "grammar", "line %zu: %s", line, reason);
    return r->failed;
}

static void put(struct reader *r, const char *text) {
    int rc = r->failed ? 0 : buf_adds(r->out, text);
    if (rc) fail(r, rc, "too large");
}

static void put_code(struct reader *r, uint32_t code) {
    char text[16];
    if ((code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || (code >= '0' && code <= '9') || code == ' ')
        snprintf(text, sizeof text, "%c", (char)code);
    else if (code <= 0xffff)
        snprintf(text, sizeof text, "\\u%04x", code);
    else
        snprintf(text, sizeof text, "\\U%08x", code);
    put(r, text);
}

/* Blanks and comments; line ends too if `lines`. */
static void skip(struct reader *r, int lines) {
    while (r->at < r->end) {
        if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n') r->at++;
        else if (*r->at == ' ' || *r->at == '\t' || (lines && (*r->at == '\n' || *r->at == '\r')))
            r->at++;
        else
            return;
    }
}

static int name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* The number of the rule whose name stands here, or -1. */
static int take_name(struct reader *r, int defines) {
    char name[128];
    size_t n = 0;
    while (r->at + n < r->end && name_char(r->at[n])) n++;
    if (n == 0 || n >= sizeof name)
        return fail(r, COHORT_E_ARGUMENT, n ? "a name is too long" : "a rule's name is missing");
    memcpy(name, r->at, n);
    name[n] = 0;
    json_t *known = json_object_get(r->names, name);
    json_int_t number = known ? json_integer_value(known) : (json_int_t)json_object_size(r->names);
    if (!known && json_object_set_new(r->names, name, json_integer(number)))
        return fail(r, COHORT_E_MEMORY, "no memory");
    if (defines && json_object_get(r->defined, name)) return fail(r, COHORT_E_ARGUMENT, "the rule is there twice");
    if (defines && json_object_set_new(r->defined, name, json_null())) return fail(r, COHORT_E_MEMORY, "no memory");
    r->at += n;
    return (int)number;
}

static void put_name(struct reader *r, int number) {
    char text[24];
    snprintf(text, sizeof text, number ? "r%d " : "root ", number);
    put(r, text);
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One character of a string or a class, escaped or not. */
static uint32_t take_char(struct reader *r) {
    uint32_t code = 0;
    if (*r->at != '\\') {
        int n = utf8_decode(r->at, (size_t)(r->end - r->at), &code);
        r->at += n > 0 ? n : 1;
        return code;
    }
    char c = r->end - r->at > 1 ? r->at[1] : 0;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    static const char names[] = "nrt\"\\[]-^'/", codes[] = "\n\r\t\"\\[]-^'/";
    const char *named = c ? strchr(names, c) : NULL;
    if (!digits && !named) {
        fail(r, COHORT_E_ARGUMENT, "no such escape");
        r->at = r->end;
        return 0;
    }
    r->at += 2;
    if (named) return (unsigned char)codes[named - names];
    for (int i = 0; i < digits; i++, r->at++) {
        int digit = r->at < r->end ? hex_value(*r->at) : -1;
        if (digit < 0 || code > 0x10ffff) {
            fail(r, COHORT_E_ARGUMENT, "hexadecimal digits of a character are missing");
            return 0;
        }
        code = code * 16 + (uint32_t)digit;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) fail(r, COHORT_E_ARGUMENT, "no such character");
    return code;
}

static void read_string(struct reader *r) {
    r->at++;
    put(r, "\"");
    while (!r->failed && r->at < r->end && *r->at != '"') put_code(r, take_char(r));
    put(r, "\" ");
    if (r->at >= r->end)
        fail(r, COHORT_E_ARGUMENT, "a string does not end");
    else
        r->at++;
}

static void read_class(struct reader *r) {
    int n = 0;
    r->at++;
    put(r, "[");
    if (r->at < r->end && *r->at == '^') {
        put(r, "^");
        r->at++;
    }
    for (; !r->failed && r->at < r->end && *r->at != ']'; n++) {
        uint32_t low = take_char(r), high = low;
        if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            high = take_char(r);
            if (high < low) fail(r, COHORT_E_ARGUMENT, "a range of characters ends before it begins");
        }
        put_code(r, low);
        if (high == low) continue;
        put(r, "-");
        put_code(r, high);
    }
    put(r, "] ");
    if (r->at >= r->end)
        fail(r, COHORT_E_ARGUMENT, "a class of characters does not end");
    else
        r->at++;
    if (n == 0) fail(r, COHORT_E_ARGUMENT, "a class of characters is empty");
}

static int take_number(struct reader *r, uint32_t *out) {
    const char *begin = r->at;
    *out = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        if (*out <= REPEAT_MAX) *out = *out * 10 + (uint32_t)(*r->at - '0');
        r->at++;
    }
    return r->at > begin;
}

/* {m}, {m,}, {m,n} or {,n} */
static void read_bounds(struct reader *r) {
    uint32_t low = 0, high = 0;
    char text[40];
    r->at++;
    skip(r, 0);
    int lower = take_number(r, &low);
    skip(r, 0);
    int comma = r->at < r->end && *r->at == ',', upper = 0;
    r->at += comma;
    skip(r, 0);
    if (comma) upper = take_number(r, &high);
    skip(r, 0);
    if ((!lower && !upper) || r->at >= r->end || *r->at != '}') {
        fail(r, COHORT_E_ARGUMENT, "repetitions are {m}, {m,}, {m,n} or {,n}");
        return;
    }
    r->at++;
    if (!comma) high = low;
    if (low > REPEAT_MAX || high > REPEAT_MAX) {
        fail(r, COHORT_E_LIMIT, "too many repetitions");
    } else if ((upper || !comma) && high < low) {
        fail(r, COHORT_E_ARGUMENT, "repetitions end before they begin");
    } else {
        if (comma && !upper)
            snprintf(text, sizeof text, "{%u,} ", low);
        else
            snprintf(text, sizeof text, "{%u,%u} ", low, high);
        put(r, text);
    }
}

static void read_choices(struct reader *r);

static void read_item(struct reader *r) {
    char c = *r->at;
    if (c == '"') {
        read_string(r);
    } else if (c == '[') {
        read_class(r);
    } else if (c == '.') {
        put(r, "[\\u0000-\\U0010ffff] ");
        r->at++;
    } else if (c == '(') {
        if (++r->depth > GRAMMAR_DEPTH_MAX) {
            fail(r, COHORT_E_LIMIT, "nested too deeply");
            return;
        }
        r->at++;
        put(r, "( ");
        read_choices(r);
        put(r, ") ");
        r->depth--;
        if (r->at >= r->end || *r->at != ')')
            fail(r, COHORT_E_ARGUMENT, "a parenthesis is not closed");
        else
            r->at++;
    } else if (c == '<' || c == '!') {
        fail(r, COHORT_E_UNSUPPORTED, "tokens are not supported in this notation");
    } else {
        put_name(r, take_name(r, 0));
    }
}

/* What may end the choices here. */
static int at_end(struct reader *r) {
    skip(r, r->depth > 0);
    return r->failed || r->at >= r->end || strchr("\n\r)", *r->at) != NULL;
}

static void read_choices(struct reader *r) {
    for (;;) {
        int items = 0;
        for (; !at_end(r) && *r->at != '|'; items++) {
            read_item(r);
            skip(r, r->depth > 0);
            int repeats = 0;
            for (; !r->failed && r->at < r->end && strchr("*+?{", *r->at); repeats++) {
                char text[3] = {*r->at, ' ', 0};
                if (*r->at == '{') {
                    read_bounds(r);
                } else {
                    put(r, text);
                    r->at++;
                }
                skip(r, r->depth > 0);
            }
            if (repeats > 1) fail(r, COHORT_E_ARGUMENT, "repetitions of repetitions need parentheses");
        }
        if (!items) put(r, "\"\" ");
        if (r->failed || r->at >= r->end || *r->at != '|') return;
        put(r, "| ");
        r->at++;
        skip(r, 1);
    }
}

static void read_rule(struct reader *r) {
    int number = take_name(r, 1);
    if (r->failed) return;
    put_name(r, number);
    skip(r, 0);
    if (r->end - r->at < 3 || memcmp(r->at, "::=", 3)) {
        fail(r, COHORT_E_ARGUMENT, "::= is missing behind a rule's name");
        return;
    }
    r->at += 3;
    put(r, "::= ");
    skip(r, 1);
    read_choices(r);
    if (!r->failed && r->at < r->end && *r->at == ')')
        fail(r, COHORT_E_ARGUMENT, "a parenthesis is closed that is not open");
    put(r, "\n");
}

static void check_names(struct reader *r) {
    const char *name;
    json_t *number;
    char text[200];
    json_object_foreach(r->names, name, number) {
        if (json_object_get(r->defined, name)) continue;
        snprintf(text, sizeof text, "there is no rule \"%s\"", name);
        fail(r, COHORT_E_ARGUMENT, text);
    }
}

int gbnf_rewrite(const char *text, size_t len, struct buf *out, cohort_error *err) {
    struct reader r = {.begin = text, .at = text, .end = text + len, .out = out, .err = err};
    r.names = json_pack("{s:i}", "root", 0);
    r.defined = json_object();
    if (!r.names || !r.defined) fail(&r, COHORT_E_MEMORY, "no memory");
    for (skip(&r, 1); !r.failed && r.at < r.end; skip(&r, 1)) read_rule(&r);
    if (!r.failed) check_names(&r);
    if (!r.failed) r.failed = gbnf_has_text(out->data, json_object_size(r.names), err);
    json_decref(r.names);
    json_decref(r.defined);
    return r.failed;
}
