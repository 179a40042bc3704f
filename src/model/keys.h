/* The architecture's keys of a model file, each read within bounds. An absent key leaves the value as it was unless the
 * function's name says `need`; errors name the whole key. */
#ifndef MODEL_KEYS_H
#define MODEL_KEYS_H

#include <stdint.h>

#include "base/err.h"
#include "base/meta.h"

struct family;
struct model_spec;

struct keys {
    const struct meta *meta;
    const char *prefix; /* the architecture's name: at most 16 bytes */
    cohort_error *err;
};

int keys_u32(const struct keys *k, const char *name, uint32_t low, uint32_t high, uint32_t *value);
int keys_need_u32(const struct keys *k, const char *name, uint32_t low, uint32_t high, uint32_t *value);
int keys_f64(const struct keys *k, const char *name, double low, double high, double *value);
/* One integer for all layers or an array with one for each. */
int keys_layers(const struct keys *k, const char *name, uint32_t low, uint32_t high, uint32_t n, uint32_t *values);
/* One flag for each layer, absent: untouched. *found: whether it was there. */
int keys_flags(const struct keys *k, const char *name, uint32_t n, int *flags, int *found);
/* COHORT_E_FILE with the key named. */
int keys_error(const struct keys *k, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Reads everything that the families have in common: sizes, heads, rope, the keys that must not say anything that is
 * not implemented. spec->layers is allocated here (mem_free). */
int keys_read(const struct keys *k, const struct family *family, struct model_spec *spec);

#endif
