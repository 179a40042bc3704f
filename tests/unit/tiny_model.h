/* Tiny model files of each family, in memory, for tests that change one thing and look what the loader says. */
#ifndef UNIT_TINY_MODEL_H
#define UNIT_TINY_MODEL_H

#include "base/err.h"
#include "model/model.h"
#include "tiny_gguf.h"

enum {
    TINY_LAYERS = 3,
    TINY_WIDTH = 32,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_HEAD_WIDTH = 16, /* not width / heads, except where the family has no key for it */
    TINY_FFN = 48,
    TINY_TAPS = 4,
    TINY_DELTA_HEADS = 6, /* of values; half as many of keys, of the same width */
    TINY_DELTA_WIDTH = 8,
    TINY_VOCAB = 40,
    TINY_CONTEXT = 64
};

extern const char *const tiny_families[]; /* NULL at the end */

/* Fills a zeroed writer with a whole valid file of the family, `layers` layers. */
void tiny_make(struct gguf_writer *w, const char *family, uint32_t layers);
/* "family.name", valid until the next call. */
const char *tiny_key(const char *family, const char *name);

/* A model together with the bytes it points into. */
struct tiny {
    void *bytes;
    struct model_file *file;
    struct model *model;
};
/* What model_build says (or model_file_from_memory, if it does not get that far), for TINY_VOCAB tokens. */
int tiny_build(struct tiny *t, const struct gguf_writer *w, cohort_error *err);
void tiny_free(struct tiny *t);

#endif
