#include "chat/walk.h"

#include <string.h>

enum {
    VALUE,        /* a value must come */
    VALUE_OR_END, /* behind [ */
    KEY_OR_END,   /* behind { */
    KEY,          /* behind a comma in an object */
    COLON,
    AFTER, /* behind a value within something */
    STRING,
    ESCAPE,
    HEX,
    MINUS,
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
    LITERAL,
    DONE
};

static int is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static int is_digit(char c) { return c >= '0' && c <= '9'; }

void chat_walk_begin(struct chat_walk *w) { memset(w, 0, sizeof *w); }

static int value_ended(struct chat_walk *w) {
    w->state = w->depth ? AFTER : DONE;
    return w->depth ? 0 : 1;
}

static int open_nest(struct chat_walk *w, int object) {
    if (w->depth == CHAT_WALK_DEPTH_MAX) return -1;
    if (object)
        w->objects |= UINT64_C(1) << w->depth;
    else
        w->objects &= ~(UINT64_C(1) << w->depth);
    w->depth++;
    w->state = object ? KEY_OR_END : VALUE_OR_END;
    return 0;
}

static int close_nest(struct chat_walk *w, char c) {
    int object = w->objects >> (w->depth - 1) & 1;
    if (object != (c == '}')) return -1;
    w->depth--;
    return value_ended(w);
}

static int literal_begin(struct chat_walk *w, const char *rest) {
    w->literal = rest;
    w->state = LITERAL;
    return 0;
}

static int value_begin(struct chat_walk *w, char c) {
    switch (c) {
    case '{':
        return open_nest(w, 1);
    case '[':
        return open_nest(w, 0);
    case '"':
        return w->state = STRING, w->key = 0, 0;
    case '-':
        return w->state = MINUS, 0;
    case '0':
        return w->state = ZERO, 0;
    case 't':
        return literal_begin(w, "rue");
    case 'f':
        return literal_begin(w, "alse");
    case 'n':
        return literal_begin(w, "ull");
    default:
        return is_digit(c) ? (w->state = INTEGER, 0) : -1;
    }
}

static int after(struct chat_walk *w, char c) {
    if (is_space(c)) return 0;
    if (c == '}' || c == ']') return close_nest(w, c);
    if (c != ',') return -1;
    w->state = w->objects >> (w->depth - 1) & 1 ? KEY : VALUE;
    return 0;
}

/* A number's end is the byte behind it, which belongs to what is around the number. */
static int number_end(struct chat_walk *w, char c) {
    if (!w->depth) return is_space(c) ? (w->state = DONE, 1) : -1;
    w->state = AFTER;
    return after(w, c);
}

static int number(struct chat_walk *w, char c) {
    switch (w->state) {
    case MINUS:
        return c == '0' ? (w->state = ZERO, 0) : is_digit(c) ? (w->state = INTEGER, 0) : -1;
    case INTEGER:
        if (is_digit(c)) return 0;
        /* fallthrough */
    case ZERO:
        if (c == '.') return w->state = POINT, 0;
        if (c == 'e' || c == 'E') return w->state = EXPONENT, 0;
        return number_end(w, c);
    case POINT:
        return is_digit(c) ? (w->state = FRACTION, 0) : -1;
    case FRACTION:
        if (is_digit(c)) return 0;
        if (c == 'e' || c == 'E') return w->state = EXPONENT, 0;
        return number_end(w, c);
    case EXPONENT:
        if (c == '+' || c == '-') return w->state = EXPONENT_SIGN, 0;
        /* fallthrough */
    case EXPONENT_SIGN:
        return is_digit(c) ? (w->state = EXPONENT_DIGITS, 0) : -1;
    default:
        return is_digit(c) ? 0 : number_end(w, c);
    }
}

static int string(struct chat_walk *w, char c) {
    if (w->state == ESCAPE) {
        if (c == 'u') return w->state = HEX, w->count = 4, 0;
        return c && strchr("\"\\/bfnrt", c) ? (w->state = STRING, 0) : -1;
    }
    if (w->state == HEX) {
        if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) return -1;
        if (!--w->count) w->state = STRING;
        return 0;
    }
    if (c == '\\') return w->state = ESCAPE, 0;
    if ((unsigned char)c < 0x20) return -1;
    if (c != '"') return 0;
    if (!w->key) return value_ended(w);
    w->state = COLON;
    return 0;
}

int chat_walk_byte(struct chat_walk *w, char c) {
    switch (w->state) {
    case STRING:
    case ESCAPE:
    case HEX:
        return string(w, c);
    case VALUE:
        return is_space(c) ? 0 : value_begin(w, c);
    case VALUE_OR_END:
        return is_space(c) ? 0 : c == ']' ? close_nest(w, c) : value_begin(w, c);
    case KEY_OR_END:
        if (c == '}') return close_nest(w, c);
        /* fallthrough */
    case KEY:
        if (is_space(c)) return 0;
        if (c != '"') return -1;
        w->state = STRING;
        w->key = 1;
        return 0;
    case COLON:
        return is_space(c) ? 0 : c == ':' ? (w->state = VALUE, 0) : -1;
    case AFTER:
        return after(w, c);
    case LITERAL:
        if (c != *w->literal) return -1;
        return *++w->literal ? 0 : value_ended(w);
    case DONE:
        return is_space(c) ? 1 : -1;
    default:
        return number(w, c);
    }
}

int chat_walk_whole(const struct chat_walk *w) {
    return w->state == DONE || (!w->depth && (w->state == ZERO || w->state == INTEGER || w->state == FRACTION ||
                                              w->state == EXPONENT_DIGITS));
}

int chat_walk_in_string(const struct chat_walk *w) { return w->state == STRING; }
int chat_walk_wants_key(const struct chat_walk *w) { return w->state == KEY || w->state == KEY_OR_END; }

int chat_walk_valid(const char *s, size_t n) {
    struct chat_walk w;
    chat_walk_begin(&w);
    for (size_t i = 0; i < n; i++)
        if (chat_walk_byte(&w, s[i]) < 0) return 0;
    return chat_walk_whole(&w);
}

ptrdiff_t chat_walk_value(const char *s, size_t n) {
    struct chat_walk w;
    chat_walk_begin(&w);
    for (size_t i = 0; i < n; i++) {
        /* A number ends where something comes that no number has. */
        if (!w.depth && chat_walk_whole(&w) && (s[i] == ',' || s[i] == '}' || s[i] == ']')) return (ptrdiff_t)i;
        int got = chat_walk_byte(&w, s[i]);
        if (got < 0) return -1;
        if (got) return (ptrdiff_t)i + 1;
    }
    return 0;
}
