/* Strings with the origin of each byte, and what makes them. */
#ifndef JINJA_TEXT_H
#define JINJA_TEXT_H

#include "jinja/value.h"

/* A string in the making. */
struct maker {
    struct run *x;
    char *b;
    uint16_t *marks; /* NULL: all bytes so far have `mark` */
    size_t n, cap;
    uint16_t mark;
};
static inline struct maker maker_begin(struct run *x) { return (struct maker){.x = x}; }
void maker_add(struct maker *m, const char *b, size_t n, uint16_t mark);
void maker_text(struct maker *m, const char *z, uint16_t mark);
void maker_part(struct maker *m, const struct str *s, size_t from, size_t n); /* bytes */
void maker_str(struct maker *m, const struct str *s);
void maker_char(struct maker *m, uint32_t c, uint16_t mark);
void maker_repeat(struct maker *m, const struct str *s, int64_t times);
val maker_end(struct maker *m);

val v_text(struct run *x, const char *z);
val v_bytes(struct run *x, const char *b, size_t n, uint16_t mark);     /* copied */
val v_slice(struct run *x, const struct str *s, size_t from, size_t n); /* bytes; shares them */
val v_concat(struct run *x, val a, val b);
val v_markup(struct run *x, val s, int markup);
static inline uint16_t str_mark(const struct str *s, size_t at) { return s->marks ? s->marks[at] : s->mark; }
/* The mark of what is made of a whole value. */
uint16_t mark_of(val v);

uint32_t str_chars(struct str *s);
size_t str_offset(struct str *s, int64_t chars); /* bytes in front of character `chars`, at most n */
uint32_t str_char(const struct str *s, size_t at, unsigned *len);
int str_is(const struct str *s, const char *z);
int str_equal(const struct str *a, const struct str *b);
int str_compare(const struct str *a, const struct str *b);
/* The first (or last) place of `needle` in s from byte `from` (until `to`), or -1. */
int64_t str_find(struct run *x, const struct str *s, const struct str *needle, size_t from, size_t to, int last);

/* split.c */
val str_strip(struct run *x, struct str *s, val chars, int sides); /* sides: 1 left, 2 right */
val str_replace(struct run *x, const struct str *s, const struct str *from, const struct str *to, int64_t count);
val str_pad(struct run *x, struct str *s, int64_t width, struct str *fill,
            int side); /* <0 left-bound, 0 centred, >0 right */
struct list *str_lines(struct run *x, const struct str *s, int keep_ends);
struct list *str_words(struct run *x, const struct str *s, int64_t most);

/* wrap.c: the lines that Python's textwrap makes of one */
struct list *wrap_line(struct run *x, struct str *line, int64_t width, int break_words, int hyphens);

/* numbers.c: Python's int() and float(); 0: cannot be */
int to_int(struct run *x, val v, int64_t base, val *out);
int to_float(struct run *x, val v, val *out);

/* chars.c: Python's classes of characters and its mappings of case */
int char_space(uint32_t c);
int char_word(uint32_t c);
int char_alpha(uint32_t c);
int char_joins(uint32_t c); /* may stand within an identifier, beyond letters and digits */
int char_decimal(uint32_t c);
int char_digit(uint32_t c);
int char_numeric(uint32_t c);
int char_upper(uint32_t c);
int char_lower(uint32_t c);
int char_title(uint32_t c);
int char_printable(uint32_t c);
enum case_kind { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP, CASE_FOLD };
val str_case(struct run *x, struct str *s, enum case_kind kind);
int line_break(uint32_t c); /* of splitlines() */

/* repr.c */
struct str *to_str(struct run *x, val v); /* Python's str(): a string as it is */
val v_str_of(struct run *x, val v);
void put_str(struct maker *m, val v);
void put_repr(struct maker *m, val v);
void put_float(struct maker *m, double f, uint16_t mark);
val escape_html(struct run *x, val v); /* Markup as it is */

/* json.c */
struct jinja_variable;
val json_parse(struct run *x, const struct jinja_variable *v);
val json_dump(struct run *x, val v, val ensure_ascii, val indent, val separators, val sort_keys);

/* printf.c and format.c */
val format_percent(struct run *x, val format, val args);
val format_method(struct run *x, val format, const struct args *a);
val format_value(struct run *x, val v, const struct str *spec);

/* time.c */
val time_format(struct run *x, int64_t now_s, const struct str *format);

#endif
