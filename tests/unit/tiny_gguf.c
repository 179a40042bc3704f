#include "tiny_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/meta.h"
#include "gguf_writer.h"

enum { ALIGNMENT = 32 };

static void *copy_of(const void *bytes, size_t n) {
    void *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n && bytes) memcpy(copy, bytes, n);
    if (n && !bytes) memset(copy, 0, n);
    return copy;
}

/* ---- Keys ---- */

void gw_remove_key(struct gguf_writer *w, const char *name) {
    for (size_t i = 0; i < w->n_keys; i++) {
        if (strcmp(w->keys[i].name, name) != 0) continue;
        free(w->keys[i].bytes);
        memmove(&w->keys[i], &w->keys[i + 1], (w->n_keys - i - 1) * sizeof w->keys[0]);
        w->n_keys--;
        return;
    }
}

void gw_raw(struct gguf_writer *w, const char *name, uint32_t type, const void *bytes, size_t n) {
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
    key->bytes = copy_of(bytes, n);
    key->n = n;
}

void gw_u32(struct gguf_writer *w, const char *name, uint32_t v) { gw_raw(w, name, META_U32, &v, 4); }
void gw_i32(struct gguf_writer *w, const char *name, int32_t v) { gw_raw(w, name, META_I32, &v, 4); }
void gw_u64(struct gguf_writer *w, const char *name, uint64_t v) { gw_raw(w, name, META_U64, &v, 8); }
void gw_f32(struct gguf_writer *w, const char *name, float v) { gw_raw(w, name, META_F32, &v, 4); }
void gw_bool(struct gguf_writer *w, const char *name, uint8_t v) { gw_raw(w, name, META_BOOL, &v, 1); }

void gw_string(struct gguf_writer *w, const char *name, const char *text) {
    uint64_t n = strlen(text);
    char *bytes = copy_of(NULL, 8 + n);
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, text, n);
    gw_raw(w, name, META_STRING, bytes, 8 + n);
    free(bytes);
}

void gw_array(struct gguf_writer *w, const char *name, uint32_t element, uint64_t count, size_t size,
              const void *elements) {
    size_t n = (size_t)count * size;
    char *bytes = copy_of(NULL, 12 + n);
    memcpy(bytes, &element, 4);
    memcpy(bytes + 4, &count, 8);
    if (n) memcpy(bytes + 12, elements, n);
    gw_raw(w, name, META_ARRAY, bytes, 12 + n);
    free(bytes);
}

/* ---- Tensors ---- */

void gw_remove_tensor(struct gguf_writer *w, const char *name) {
    for (size_t i = 0; i < w->n_tensors; i++) {
        if (strcmp(w->tensors[i].name, name) != 0) continue;
        free(w->tensors[i].data);
        memmove(&w->tensors[i], &w->tensors[i + 1], (w->n_tensors - i - 1) * sizeof w->tensors[0]);
        w->n_tensors--;
        return;
    }
}

void gw_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
               const void *data, size_t bytes) {
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
    t->data = copy_of(data, bytes);
    t->bytes = bytes;
}

void gw_floats(struct gguf_writer *w, const char *name, uint64_t cols, uint64_t rows, const float *data) {
    uint64_t dims[2] = {cols, rows};
    gw_tensor(w, name, DTYPE_F32, rows == 1 ? 1 : 2, dims, data, (size_t)(cols * rows) * sizeof *data);
}

/* ---- The file ---- */

static void put(struct buf *b, const void *bytes, size_t n) {
    if (buf_add(b, bytes, n)) abort();
}

size_t gw_finish(const struct gguf_writer *w, void **bytes) {
    struct buf b = {0};
    uint64_t offset = 0;
    gguf_head(&b, 3, w->n_tensors, w->n_keys);
    for (size_t i = 0; i < w->n_keys; i++) {
        gguf_key(&b, w->keys[i].name, w->keys[i].type);
        put(&b, w->keys[i].bytes, w->keys[i].n);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct gw_tensor *t = &w->tensors[i];
        gguf_tensor(&b, t->name, t->n_dims, t->dims, t->type, offset);
        offset += (t->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    gguf_pad(&b, ALIGNMENT);
    for (size_t i = 0; i < w->n_tensors; i++) {
        put(&b, w->tensors[i].data, w->tensors[i].bytes);
        gguf_pad(&b, ALIGNMENT);
    }
    size_t n = b.len;
    *bytes = aligned_alloc(64, (n + 63) / 64 * 64);
    if (!*bytes) abort();
    memcpy(*bytes, b.data, n);
    buf_free(&b);
    return n;
}

void gw_deinit(struct gguf_writer *w) {
    for (size_t i = 0; i < w->n_keys; i++) free(w->keys[i].bytes);
    for (size_t i = 0; i < w->n_tensors; i++) free(w->tensors[i].data);
    memset(w, 0, sizeof *w);
}
