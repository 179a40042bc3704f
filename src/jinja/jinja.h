/* Templates in Jinja's language, as far as chat templates use it, with the values, filters, tests, methods and error
 * behaviour of Python's jinja2 in the environment that models' makers test with (sandboxed and immutable, trim_blocks
 * and lstrip_blocks, loop controls, `generation` blocks, raise_exception, strftime_now, tojson without HTML escapes).
 *
 * A parsed template is immutable and rendered from any thread. Rendering reads nothing but what it is given: no clock,
 * no files. Templates and values are hostile: everything is bounded, by errors. */
#ifndef JINJA_JINJA_H
#define JINJA_JINJA_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    JINJA_TEMPLATE_MAX = 1 << 20, /* bytes of a template */
    JINJA_DEPTH_MAX = 128,        /* nesting of its blocks and expressions, of values, of macro calls */
#ifdef JINJA_SMALL                /* for fuzzing */
    JINJA_STEPS_MAX = 300000,
    JINJA_OUTPUT_MAX = 1 << 18,
    JINJA_MEMORY_MAX = 1 << 24,
#else
    JINJA_STEPS_MAX = 20000000,   /* of a rendering: nodes evaluated, parts of texts and bytes (by 64) worked on */
    JINJA_OUTPUT_MAX = 1 << 24,   /* bytes, of any text */
    JINJA_MEMORY_MAX = 256 << 20, /* bytes that a rendering takes at most; a parsed template too */
#endif
    JINJA_RANGE_MAX = 100000 /* elements of range() */
};

struct jinja;
/* E_ARGUMENT: field "chat_template", with the line and the reason. */
int jinja_parse(const char *text, size_t len, struct jinja **out, cohort_error *err);
void jinja_free(struct jinja *t);

/* A byte's mark says where it comes from: 0 is the template itself, anything else what the variable says. Every
 * operation on strings keeps the marks of the bytes it keeps; what an operation makes (digits of a number, the quotes
 * of tojson) of a marked value has that value's mark. */
struct jinja_variable {
    const char *name;
    const char *json; /* its value */
    size_t len;
    uint16_t mark;       /* of its strings' bytes; */
    uint8_t by_element;  /* or, for an array: element i has mark + i */
    const char *trusted; /* with by_element: what the elements have under this key has mark 0: the caller has checked
                            that it is a word of the template's language, not anybody's text. NULL: nothing */
};

struct jinja_text {
    char *bytes; /* mem_alloc'ed, as marks */
    uint16_t *marks;
    size_t len;
};

/* E_ARGUMENT: raise_exception ("...", field "messages"), or an error of the template for these values (field
 * "chat_template"); E_LIMIT; E_MEMORY. *out is empty on failure. `now_s`: Unix time for strftime_now, in UTC. */
int jinja_render(const struct jinja *t, const struct jinja_variable *variables, size_t n, int64_t now_s,
                 struct jinja_text *out, cohort_error *err);
void jinja_text_free(struct jinja_text *text);

#endif
