/* Builds small GGUF files in memory for tests: a list of keys and of tensors, each of which a test may replace or take
 * out before the bytes are made. Nothing is checked here: hostile files are the point. */
#ifndef UNIT_GGUF_WRITER_H
#define UNIT_GGUF_WRITER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/meta.h"

enum { GW_KEYS_MAX = 128, GW_TENSORS_MAX = 256, GW_NAME_MAX = 128, GW_ALIGNMENT = 32 };

struct gw_key {
    char name[GW_NAME_MAX];
    uint32_t type;
    void *bytes; /* the value as in the file, behind its type */
    size_t n;
};

struct gw_tensor {
    char name[GW_NAME_MAX];
    uint32_t type, n_dims;
    uint64_t dims[8];
    void *data;
    size_t bytes;
};

struct gguf_writer {
    uint32_t version; /* 0: 3 */
    size_t n_keys, n_tensors;
    struct gw_key keys[GW_KEYS_MAX];
    struct gw_tensor tensors[GW_TENSORS_MAX];
};

static inline void *gw_copy(const void *bytes, size_t n) {
    void *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n && bytes) memcpy(copy, bytes, n);
    if (n && !bytes) memset(copy, 0, n);
    return copy;
}

/* ---- Keys: setting one replaces one of the same name ---- */

static inline void gw_remove_key(struct gguf_writer *w, const char *name) {
    for (size_t i = 0; i < w->n_keys; i++) {
        if (strcmp(w->keys[i].name, name) != 0) continue;
        free(w->keys[i].bytes);
        memmove(&w->keys[i], &w->keys[i + 1], (w->n_keys - i - 1) * sizeof w->keys[0]);
        w->n_keys--;
        return;
    }
}

static inline void gw_raw(struct gguf_writer *w, const char *name, uint32_t type, const void *bytes, size_t n) {
    struct gw_key *key = NULL;
    for (size_t i = 0; i < w->n_keys; i++)
        if (strcmp(w->keys[i].name, name) == 0) key = &w->keys[i];
    if (!key) {
        if (w->n_keys == GW_KEYS_MAX) abort();
        key = &w->keys[w->n_keys++];
        *key = (struct gw_key){0};
        snprintf(key->name, sizeof key->name, "%s", name);
    }
    free(key->bytes);
    key->type = type;
    key->bytes = gw_copy(bytes, n);
    key->n = n;
}

static inline void gw_u32(struct gguf_writer *w, const char *name, uint32_t v) { gw_raw(w, name, META_U32, &v, 4); }
static inline void gw_i32(struct gguf_writer *w, const char *name, int32_t v) { gw_raw(w, name, META_I32, &v, 4); }
static inline void gw_u64(struct gguf_writer *w, const char *name, uint64_t v) { gw_raw(w, name, META_U64, &v, 8); }
static inline void gw_f32(struct gguf_writer *w, const char *name, float v) { gw_raw(w, name, META_F32, &v, 4); }
static inline void gw_bool(struct gguf_writer *w, const char *name, uint8_t v) { gw_raw(w, name, META_BOOL, &v, 1); }

static inline void gw_string(struct gguf_writer *w, const char *name, const char *text) {
    uint64_t n = strlen(text);
    char *bytes = gw_copy(NULL, 8 + n);
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, text, n);
    gw_raw(w, name, META_STRING, bytes, 8 + n);
    free(bytes);
}

/* An array of `count` fixed-size elements, `size` bytes each (0 elements' bytes may be NULL). */
static inline void gw_array(struct gguf_writer *w, const char *name, uint32_t element, uint64_t count, size_t size,
                            const void *elements) {
    size_t n = (size_t)count * size;
    char *bytes = gw_copy(NULL, 12 + n);
    memcpy(bytes, &element, 4);
    memcpy(bytes + 4, &count, 8);
    if (n) memcpy(bytes + 12, elements, n);
    gw_raw(w, name, META_ARRAY, bytes, 12 + n);
    free(bytes);
}

static inline void gw_strings(struct gguf_writer *w, const char *name, const char *const *texts, uint64_t count) {
    size_t n = 12, at = 12;
    for (uint64_t i = 0; i < count; i++) n += 8 + strlen(texts[i]);
    char *bytes = gw_copy(NULL, n);
    uint32_t element = META_STRING;
    memcpy(bytes, &element, 4);
    memcpy(bytes + 4, &count, 8);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t len = strlen(texts[i]);
        memcpy(bytes + at, &len, 8);
        memcpy(bytes + at + 8, texts[i], len);
        at += 8 + len;
    }
    gw_raw(w, name, META_ARRAY, bytes, n);
    free(bytes);
}

/* ---- Tensors: likewise ---- */

static inline void gw_remove_tensor(struct gguf_writer *w, const char *name) {
    for (size_t i = 0; i < w->n_tensors; i++) {
        if (strcmp(w->tensors[i].name, name) != 0) continue;
        free(w->tensors[i].data);
        memmove(&w->tensors[i], &w->tensors[i + 1], (w->n_tensors - i - 1) * sizeof w->tensors[0]);
        w->n_tensors--;
        return;
    }
}

/* `bytes` bytes of data, zeros if `data` is NULL. */
static inline void gw_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
                             const uint64_t *dims, const void *data, size_t bytes) {
    struct gw_tensor *t = NULL;
    for (size_t i = 0; i < w->n_tensors; i++)
        if (strcmp(w->tensors[i].name, name) == 0) t = &w->tensors[i];
    if (!t) {
        if (w->n_tensors == GW_TENSORS_MAX) abort();
        t = &w->tensors[w->n_tensors++];
        *t = (struct gw_tensor){0};
        snprintf(t->name, sizeof t->name, "%s", name);
    }
    free(t->data);
    t->type = type;
    t->n_dims = n_dims;
    for (uint32_t i = 0; i < n_dims && i < 8; i++) t->dims[i] = dims[i];
    t->data = gw_copy(data, bytes);
    t->bytes = bytes;
}

/* A float32 matrix of rows x cols (a vector if rows is 1): its dims are {cols, rows}. */
static inline void gw_floats(struct gguf_writer *w, const char *name, uint64_t cols, uint64_t rows, const float *data) {
    uint64_t dims[2] = {cols, rows};
    gw_tensor(w, name, DTYPE_F32, rows == 1 ? 1 : 2, dims, data, (size_t)(cols * rows) * sizeof *data);
}

/* ---- The file ---- */

struct gw_out {
    char *bytes;
    size_t n, cap;
};

static inline void gw_put(struct gw_out *o, const void *bytes, size_t n) {
    if (o->n + n > o->cap) {
        o->cap = 2 * (o->n + n) + 1024;
        o->bytes = realloc(o->bytes, o->cap);
        if (!o->bytes) abort();
    }
    if (bytes)
        memcpy(o->bytes + o->n, bytes, n);
    else
        memset(o->bytes + o->n, 0, n);
    o->n += n;
}

static inline void gw_pad(struct gw_out *o) { gw_put(o, NULL, (GW_ALIGNMENT - o->n % GW_ALIGNMENT) % GW_ALIGNMENT); }

static inline void gw_put_name(struct gw_out *o, const char *name) {
    uint64_t n = strlen(name);
    gw_put(o, &n, 8);
    gw_put(o, name, n);
}

/* The whole file in *bytes (aligned, freed with free). */
static inline size_t gw_finish(const struct gguf_writer *w, void **bytes) {
    struct gw_out o = {0};
    uint32_t version = w->version ? w->version : 3;
    uint64_t n_tensors = w->n_tensors, n_keys = w->n_keys, offset = 0;
    gw_put(&o, "GGUF", 4);
    gw_put(&o, &version, 4);
    gw_put(&o, &n_tensors, 8);
    gw_put(&o, &n_keys, 8);
    for (size_t i = 0; i < w->n_keys; i++) {
        gw_put_name(&o, w->keys[i].name);
        gw_put(&o, &w->keys[i].type, 4);
        gw_put(&o, w->keys[i].bytes, w->keys[i].n);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct gw_tensor *t = &w->tensors[i];
        gw_put_name(&o, t->name);
        gw_put(&o, &t->n_dims, 4);
        gw_put(&o, t->dims, t->n_dims * sizeof t->dims[0]);
        gw_put(&o, &t->type, 4);
        gw_put(&o, &offset, 8);
        offset += (t->bytes + GW_ALIGNMENT - 1) / GW_ALIGNMENT * GW_ALIGNMENT;
    }
    gw_pad(&o);
    for (size_t i = 0; i < w->n_tensors; i++) {
        gw_put(&o, w->tensors[i].data, w->tensors[i].bytes);
        gw_pad(&o);
    }
    *bytes = aligned_alloc(64, (o.n + 63) / 64 * 64);
    if (!*bytes) abort();
    memcpy(*bytes, o.bytes, o.n);
    free(o.bytes);
    return o.n;
}

static inline void gw_deinit(struct gguf_writer *w) {
    for (size_t i = 0; i < w->n_keys; i++) free(w->keys[i].bytes);
    for (size_t i = 0; i < w->n_tensors; i++) free(w->tensors[i].data);
    memset(w, 0, sizeof *w);
}

#endif
