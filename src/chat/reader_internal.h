/* The parts of a reader. reader.c: the text around calls; heads.c: how a call begins; values.c: its arguments. */
#ifndef CHAT_READER_INTERNAL_H
#define CHAT_READER_INTERNAL_H

#include <jansson.h>

#include "base/buf.h"
#include "chat/loose.h"
#include "chat/notation.h"
#include "chat/walk.h"

enum chat_reader_state {
    READER_TEXT,
    READER_REASONING,
    READER_VALUES,      /* within a call's arguments */
    READER_OBJECT_TAIL, /* behind them, in the call's object */
    READER_AFTER_CALL
};

enum chat_values_state {
    VALUES_NEXT,   /* TAGGED, PYTHON: a parameter or the end must come */
    VALUES_BEGIN,  /* TAGGED: the value's first byte */
    VALUES_STRING, /* TAGGED: a string as it stands */
    VALUES_HELD,   /* TAGGED: another value, held until its end */
    VALUES_LOOSE   /* PYTHON, BRACED: a value */
};

struct chat_reader_part {
    cohort_part_type type;
    uint32_t call;
    size_t at, len;
};

struct chat_reader {
    const struct chat_format *f;
    json_t *tools;        /* object: names to parameters' schemas (or null); NULL: calls are not looked for */
    int anywhere, strict; /* for probes */
    enum chat_reader_state state;
    struct buf in; /* what came and is not yet done with, from `at` on */
    size_t at;
    int last, failed;
    uint8_t starts[32]; /* bytes that markers begin with */
    int beginning;      /* the answer's very beginning */
    int fresh;          /* nothing but white space since a marker */
    int section;        /* within a section of calls */
    uint32_t calls;
    const char *end_left; /* of call_end, what may still come */
    /* the call that is read */
    json_t *schema;
    struct chat_walk walk;
    struct chat_loose loose;
    enum chat_values_state values;
    unsigned types;
    int parameters;
    struct buf scratch;
    /* what comes out */
    struct buf out;
    struct chat_reader_part *parts;
    size_t parts_n, parts_cap, next;
};

/* The beginning of a call. */
struct chat_head {
    char name[CHAT_NAME_MAX + 1];
    size_t used;
    int section; /* with the beginning of a section */
    int whole; /* its arguments stood before its name: they are in the reader's scratch, and the object is at its end */
};
/* Whether a call begins at s; `inner`: within a section. */
enum chat_match chat_call_head(struct chat_reader *r, const char *s, size_t n, int inner, struct chat_head *h);
/* The rest of a call's object, behind its arguments. */
enum chat_match chat_object_tail(const char *s, size_t n, size_t *used);

int chat_reader_put(struct chat_reader *r, cohort_part_type type, const char *bytes, size_t n);
static inline const char *chat_reader_text(const struct chat_reader *r) { return r->in.data + r->at; }
static inline size_t chat_reader_left(const struct chat_reader *r) { return r->in.len - r->at; }

/* values.c. The call's arguments begin at r->at, or are in the scratch if `whole`. */
int chat_values_begin(struct chat_reader *r, int whole);
/* 1: went on; 0: needs more; negative: no memory. */
int chat_values_step(struct chat_reader *r);

#endif
