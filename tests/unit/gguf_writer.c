/* The tests' GGUF writer. A failing allocation ends the program. */
#include "gguf_writer.h"

#include <stdlib.h>
#include <string.h>

static void put(struct buf *b, const void *bytes, size_t n) {
    if (buf_add(b, bytes, n)) abort();
}

void gguf_u32(struct buf *b, uint32_t value) { put(b, &value, sizeof(value)); }

void gguf_u64(struct buf *b, uint64_t value) { put(b, &value, sizeof(value)); }

void gguf_zeros(struct buf *b, size_t n) {
    static const char zeros[4096];
    for (; n > sizeof(zeros); n -= sizeof(zeros)) put(b, zeros, sizeof(zeros));
    put(b, zeros, n);
}

void gguf_string(struct buf *b, const char *text) {
    gguf_u64(b, strlen(text));
    put(b, text, strlen(text));
}

void gguf_head(struct buf *b, uint32_t version, uint64_t tensors, uint64_t keys) {
    put(b, "GGUF", 4);
    gguf_u32(b, version);
    gguf_u64(b, tensors);
    gguf_u64(b, keys);
}

void gguf_key(struct buf *b, const char *key, uint32_t type) {
    gguf_string(b, key);
    gguf_u32(b, type);
}

void gguf_key_u32(struct buf *b, const char *key, uint32_t value) {
    gguf_key(b, key, 4);
    gguf_u32(b, value);
}

void gguf_key_string(struct buf *b, const char *key, const char *value) {
    gguf_key(b, key, 8);
    gguf_string(b, value);
}

void gguf_key_array(struct buf *b, const char *key, uint32_t element, uint64_t count) {
    gguf_key(b, key, 9);
    gguf_u32(b, element);
    gguf_u64(b, count);
}

void gguf_tensor(struct buf *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                 uint64_t offset) {
    gguf_string(b, name);
    gguf_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) gguf_u64(b, dims[i]);
    gguf_u32(b, type);
    gguf_u64(b, offset);
}

void gguf_pad(struct buf *b, size_t alignment) { gguf_zeros(b, -b->len & (alignment - 1)); }
