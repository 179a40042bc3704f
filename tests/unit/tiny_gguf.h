/* A small model file as lists of keys and tensors, each of which a test may replace or take out before the bytes are
 * made with the byte-level writer (gguf_writer.h). Nothing is checked here: hostile files are the point. */
#ifndef UNIT_TINY_GGUF_H
#define UNIT_TINY_GGUF_H

#include <stddef.h>
#include <stdint.h>

enum { GW_KEYS_MAX = 128, GW_TENSORS_MAX = 256, GW_NAME_MAX = 128 };

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

struct gguf_writer { /* zeroed, filled, gw_deinit */
    size_t n_keys, n_tensors;
    struct gw_key keys[GW_KEYS_MAX];
    struct gw_tensor tensors[GW_TENSORS_MAX];
};

/* Keys: setting one replaces one of the same name. */
void gw_raw(struct gguf_writer *w, const char *name, uint32_t type, const void *bytes, size_t n);
void gw_u32(struct gguf_writer *w, const char *name, uint32_t value);
void gw_i32(struct gguf_writer *w, const char *name, int32_t value);
void gw_u64(struct gguf_writer *w, const char *name, uint64_t value);
void gw_f32(struct gguf_writer *w, const char *name, float value);
void gw_bool(struct gguf_writer *w, const char *name, uint8_t value);
void gw_string(struct gguf_writer *w, const char *name, const char *text);
/* `count` elements of `size` bytes each. */
void gw_array(struct gguf_writer *w, const char *name, uint32_t element, uint64_t count, size_t size,
              const void *elements);
void gw_remove_key(struct gguf_writer *w, const char *name);

/* Tensors: likewise. `bytes` bytes of data, zeros if `data` is NULL. */
void gw_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
               const void *data, size_t bytes);
/* A float32 matrix of rows x cols (a vector if rows is 1): its dims are {cols, rows}. */
void gw_floats(struct gguf_writer *w, const char *name, uint64_t cols, uint64_t rows, const float *data);
void gw_remove_tensor(struct gguf_writer *w, const char *name);

/* The whole file in *bytes (64-byte aligned, freed with free); returns its length. */
size_t gw_finish(const struct gguf_writer *w, void **bytes);
void gw_deinit(struct gguf_writer *w);

#endif
