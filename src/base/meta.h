/* The neutral view of a model file's metadata: a list of typed, named values. `format` fills it; `text` and `model`
 * read it. Plain data; immutable once built; every pointer lives as long as the file object that made it. */
#ifndef BASE_META_H
#define BASE_META_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum meta_type { /* GGUF's numbers */
                 META_U8 = 0,
                 META_I8 = 1,
                 META_U16 = 2,
                 META_I16 = 3,
                 META_U32 = 4,
                 META_I32 = 5,
                 META_F32 = 6,
                 META_BOOL = 7,
                 META_STRING = 8,
                 META_ARRAY = 9,
                 META_U64 = 10,
                 META_I64 = 11,
                 META_F64 = 12
};

struct meta_string {
    const char *bytes; /* not NUL-terminated */
    uint64_t len;
};

struct meta_entry {
    struct meta_string key;
    enum meta_type type;
    enum meta_type element; /* of an ARRAY */
    uint64_t count;         /* elements; 1 for a scalar */
    /* Little-endian elements, not necessarily aligned; for strings an aligned array of struct meta_string; for an array
     * of arrays (recognised, never used) the raw bytes. */
    const void *data;
};

struct meta {
    const struct meta_entry *entries; /* in file order */
    size_t n;
};

const struct meta_entry *meta_find(const struct meta *meta, const char *key); /* NULL if absent */

/* Scalars. Return 0, COHORT_E_NOT_FOUND if absent (*out untouched, err untouched), or COHORT_E_FILE with the key named
 * if the type is wrong or the value does not fit. Any integer type that holds the value is accepted for the integer
 * getters. */
int meta_u64(const struct meta *meta, const char *key, uint64_t *out, cohort_error *err);
int meta_u32(const struct meta *meta, const char *key, uint32_t *out, cohort_error *err);
int meta_f32(const struct meta *meta, const char *key, float *out, cohort_error *err); /* must be finite */
int meta_bool(const struct meta *meta, const char *key, int *out, cohort_error *err);
int meta_string(const struct meta *meta, const char *key, struct meta_string *out, cohort_error *err);

/* Element i of an array entry (or 0 of a scalar) as an integer / float; the caller checked count and type. A u64 above
 * INT64_MAX reads as INT64_MAX. */
int64_t meta_entry_i64(const struct meta_entry *entry, uint64_t i);
double meta_entry_f64(const struct meta_entry *entry, uint64_t i);
const struct meta_string *meta_entry_string(const struct meta_entry *entry, uint64_t i);
int meta_is_integer(enum meta_type type);
const char *meta_type_name(enum meta_type type); /* "u8" ...; "unknown" for a number that is no type */
size_t meta_type_size(enum meta_type type);      /* bytes of one element; 0 for strings, arrays and no type */

#endif
