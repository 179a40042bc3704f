/* What the files of the schema rewriter share. */
#ifndef GRAMMAR_SCHEMA_INNER_H
#define GRAMMAR_SCHEMA_INNER_H

#include <stdint.h>

#include "grammar/schema.h"

enum {
    SCHEMA_NODES_MAX = 200000, /* written, or looked at while schemas are joined */
    SCHEMA_DEPTH_MAX = 100,    /* nesting with references followed */
    SCHEMA_PATH_MAX = 200,
    SCHEMA_NOTHING = 1 /* result: no value is valid */
};
enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8, /* integers are among them */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127
};

struct schema {
    json_t *root;    /* as given */
    json_t *refs;    /* object: what references name -> number of the definition */
    json_t *targets; /* array: the definitions as given, by number */
    json_t *uris;    /* array: what names them */
    json_t *defs;    /* object: the definitions rewritten */
    uint32_t nodes;
    int depth;
    char path[SCHEMA_PATH_MAX + 4];
    size_t path_n;
    cohort_error *err;
};

/* Functions return 0, a negative code, or SCHEMA_NOTHING; what they put out is a new reference. */

/* Below the place in the path; give back what it returned to schema_up. */
size_t schema_down(struct schema *s, const char *key);
size_t schema_down_index(struct schema *s, size_t index);
void schema_up(struct schema *s, size_t before);
int schema_refuse(struct schema *s, int code, const char *keyword, const char *reason);
int schema_count(struct schema *s, size_t nodes); /* so much more work: 0 or E_LIMIT */
int schema_made(struct schema *s, const void *made);

/* schema_join.c: a schema without $ref and allOf: all of them in one object. */
int schema_flat(struct schema *s, json_t *in, json_t **out);
int schema_join(struct schema *s, json_t *into, json_t *other);  /* both flat: `into` becomes both */
int schema_resolve(struct schema *s, json_t *ref, json_t **out); /* borrowed */
int schema_is_annotation(const char *key);
int schema_is_ref(json_t *in);                                   /* nothing but a reference */
int schema_types(struct schema *s, json_t *flat, unsigned *out); /* of "type"; TYPE_ANY without */
unsigned schema_type_of(json_t *value);
/* Whether a value is valid: 1, 0, or -1 for not known. `flat` is flat. */
int schema_fits(struct schema *s, json_t *flat, json_t *value);
int schema_disjoint(struct schema *s, json_t *a, json_t *b); /* 1: no value is valid under both; 0: not known */

/* schema_types.c: what is left for one type. */
int schema_string(struct schema *s, json_t *flat, json_t **out);
int schema_integer(struct schema *s, json_t *flat, json_t **out);
int schema_number(struct schema *s, json_t *flat, json_t **out);
/* A count ("minItems"): 0 and *out, which keeps its value if the keyword is not there; negative for no count. */
int schema_size(struct schema *s, json_t *flat, const char *keyword, int64_t *out);

/* schema_parts.c */
int schema_array(struct schema *s, json_t *flat, json_t **out);
int schema_object(struct schema *s, json_t *flat, json_t **out);

/* schema_ends.c: of what was rewritten, its definitions too: 0, or SCHEMA_NOTHING: its values hold themselves for ever.
 */
int schema_has_value(struct schema *s, json_t *root);

/* schema.c */
int schema_node(struct schema *s, json_t *in, json_t **out);
int schema_node_flat(struct schema *s, json_t *flat, json_t **out);

#endif
