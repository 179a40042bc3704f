/* Inside the room: descriptions of how calls and reasoning are written. One table of each (notation.c); everything
 * else here is written for descriptions, not for models.
 *
 * An answer with calls, as literals and variable parts:
 *
 *   section  call NAME ... call_end  [between  call NAME ... call_end]  section_end
 *
 * where, by shape and values, NAME ... is
 *
 *   OBJECT         {"name_key": "NAME", "values_key": {JSON}}
 *   NAMED, JSON    NAME tail name_end {JSON}
 *   NAMED, TAGGED  NAME tail name_end  [key KEY key_end VALUE value_end]
 *   NAMED, PYTHON  NAME name_end KEY=VALUE, KEY=VALUE         (name_end "(", call_end ")")
 *   NAMED, BRACED  NAME {KEY:VALUE,KEY:VALUE}                 strings between `quote`s, keys without any
 *
 * Literals are written with the white space that the model was taught. When they are read, white space in them stands
 * for any, or none. */
#ifndef CHAT_NOTATION_H
#define CHAT_NOTATION_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "chat/format.h"

enum {
    CHAT_NAME_MAX = 256,   /* bytes of a tool's name and of a parameter's, */
    CHAT_HELD_MAX = 16384, /* of text that is held back because it may become a marker or a call, */
    CHAT_SPACE_MAX = 256,  /* of white space that is held back before a marker or stands between its words, */
    CHAT_TAIL_MAX = 128,   /* and of what may stand between a name and its arguments */
    CHAT_LITERAL_MAX = 160 /* bytes of a literal */
};

enum chat_shape { CHAT_SHAPE_NONE, CHAT_SHAPE_OBJECT, CHAT_SHAPE_NAMED };
enum chat_values { CHAT_VALUES_JSON, CHAT_VALUES_TAGGED, CHAT_VALUES_PYTHON, CHAT_VALUES_BRACED };

struct chat_calls {
    const char *name;
    enum chat_shape shape;
    enum chat_values values;
    const char *section, *section_end; /* around all calls; "" where there is nothing */
    const char *call, *call_end;       /* around each */
    const char *between;               /* from one call to the next */
    const char *also[3];               /* other beginnings that are read; may be NULL */
    const char *name_key, *values_key; /* OBJECT */
    const char *id_key, *id_pattern;   /* OBJECT: a key that is written too, and what its string matches; or NULL */
    const char *id_lead;               /* NAMED: between `call` and an id that comes before the name: the literal that
                                          ends the id, which matches id_pattern; or NULL */
    const char *tail, *tail_pattern;   /* NAMED: stands between the name and name_end, and what matches the pattern
                                          behind it; or NULL */
    const char *name_end;
    const char *key, *key_end, *value_end; /* TAGGED */
    const char *kind_end, *kind_raw;       /* TAGGED: behind key_end comes the value's kind, up to kind_end: a value of
                                              kind kind_raw is a string as it stands, any other JSON; or NULL */
    const char *quote;                     /* BRACED */
    const char *style;                     /* the style of the grammar library's schemas that writes such values */
    const char *skip[6];                   /* markers around text, dropped */
    const char *text_lead, *text_end;      /* around text that is no call; or NULL */
    const char *hints[2];                  /* spelled by templates that do not write calls themselves; or NULL */
    uint8_t id_first;                      /* OBJECT: the id is the first key */
    uint8_t bare;                          /* no marker at all: a call is a whole answer, from its first brace on */
    uint8_t prompted;                      /* prompts end with `call` */
};

struct chat_reasoning {
    const char *name;
    const char *open, *close;
    const char *open_too; /* NULL or another spelling */
    const char *behind;   /* what is written between `close` and the rest of the answer; NULL: white space */
    const char *hint;     /* as above */
    const char *skip[4];  /* markers around text that come with it, dropped */
};

struct chat_format {
    atomic_uint refs;
    int fixed; /* not counted */
    struct chat_calls calls;
    struct chat_reasoning reasoning; /* .open NULL: none */
    char name[64];
    char store[1024]; /* literals that were derived */
};

extern const struct chat_calls chat_calls_table[];
extern const size_t chat_calls_n;
extern const struct chat_reasoning chat_reasoning_table[];
extern const size_t chat_reasoning_n;
extern const struct chat_format chat_format_house; /* the house's own notation, reasoning between <think> markers */

/* Of these rows (NULL: the house's calls, no reasoning); counted; NULL: no memory. */
const struct chat_format *chat_format_make(const struct chat_calls *calls, const struct chat_reasoning *reasoning);

/* Puts the literals in the place of the row's as `text` writes them: a rendering of two calls of the probe's tool (see
 * format.c). 0: it does not write them so, or the notation has parts of its own; then they stay. */
int chat_derive(struct chat_format *f, const char *text);

static inline int chat_is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* What JSON types a parameter may have. */
enum {
    CHAT_TYPE_STRING = 1,
    CHAT_TYPE_NUMBER = 2,
    CHAT_TYPE_BOOLEAN = 4,
    CHAT_TYPE_NULL = 8,
    CHAT_TYPE_OBJECT = 16,
    CHAT_TYPE_ARRAY = 32,
    CHAT_TYPE_ANY = 63
};
struct json_t;
/* Of a schema within `root`; all if it does not say. */
unsigned chat_schema_types(const struct json_t *root, const struct json_t *schema, int depth);

/* Literals in text. */
enum chat_match { CHAT_MATCH_NO, CHAT_MATCH_MORE, CHAT_MATCH_YES }; /* MORE: the text ends too early to say */
enum chat_match chat_literal_match(const char *literal, const char *s, size_t n, size_t *used);

/* Which reasoning an answer begins with. */
enum chat_begins { CHAT_BEGINS_TEXT, CHAT_BEGINS_MAYBE, CHAT_BEGINS_REASONING };
enum chat_begins chat_format_begins(const struct chat_format *f, const struct chat_wants *w);

/* A reader that finds calls and reasoning wherever they stand: for what templates write. `tools`: JSON as in a chat;
 * `strict`: calls only with all that is written around them. */
int chat_reader_make_probe(const struct chat_format *f, const char *tools, size_t len, int strict,
                           struct chat_reader **out, cohort_error *err);

/* The literal's first word: what a marker must at least be. */
static inline size_t chat_literal_first(const char *literal, const char **first) {
    while (chat_is_space(*literal)) literal++;
    *first = literal;
    size_t n = 0;
    while (literal[n] && !chat_is_space(literal[n])) n++;
    return n;
}

#endif
