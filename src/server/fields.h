/* Reading JSON bodies: strict types, every field by name, null means absent. Pure. */
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include <event2/buffer.h>
#include <jansson.h>

#include "cohort/cohort.h"

enum { FIELDS_VALUES_MAX = 2 << 20 }; /* of a body: what its JSON takes of memory and time stays bounded */

/* The bytes of a body as a JSON object, owned by the caller; E_ARGUMENT says where it is none, E_LIMIT, E_MEMORY. Of a
 * name that is given twice the last value counts. */
int fields_body(struct evbuffer *input, json_t **out, cohort_error *err);
int fields_json(const char *bytes, size_t len, json_t **out, cohort_error *err);
/* The same without the limit to its values: for what we wrote. */
int fields_own_json(const char *bytes, size_t len, json_t **out, cohort_error *err);
int fields_too_many(const char *bytes, size_t len); /* more values than a body may have */

/* The member, or NULL if it is absent or null. */
const json_t *field_present(const json_t *body, const char *name);
/* The member if it is a string that C can hold, or NULL. */
const char *field_word(const json_t *object, const char *name);
/* "a string", "an array" ... for messages. */
const char *field_type(const json_t *value);

/* Typed fields. Absent or null: *out untouched, 0. Wrong type or outside [low, high]: E_ARGUMENT naming the field. */
int field_bool(const json_t *body, const char *name, int *out, cohort_error *err);
int field_integer(const json_t *body, const char *name, int64_t low, int64_t high, int64_t *out, cohort_error *err);
/* `out` stays in the body's JSON. Empty strings and those of more than `most` bytes are refused. */
int field_string(const json_t *body, const char *name, size_t most, cohort_span *out, cohort_error *err);
int field_number(const json_t *body, const char *name, double low, double high, float *out, cohort_error *err);

/* Whether a field name is one that the endpoint knows; used for the header that names the others. */
enum field_kind {
    FIELD_READ,    /* read by this server */
    FIELD_NEUTRAL, /* known and harmless to skip: metadata without influence on the answer */
    FIELD_REFUSED  /* known and not available: refused unless null or at its neutral value */
};
struct known_field {
    const char *name;
    enum field_kind kind;
    const char *neutral; /* REFUSED: JSON of the values that change nothing, with spaces between them, or NULL.
                            NEUTRAL: JSON of the types that it may have, as examples; NULL: any */
};
struct known_list {
    const struct known_field *fields;
    size_t n;
};
/* Refuses FIELD_REFUSED ones and NEUTRAL ones of a wrong type, and writes the unknown names into `unknown`
 * (comma-separated, printable, at most cap bytes). */
int fields_known(const json_t *body, const struct known_list *lists, size_t lists_n, char *unknown, size_t cap,
                 cohort_error *err);

#endif
