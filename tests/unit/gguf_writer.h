/* Writes GGUF files piece by piece into a buffer, as wrong as a test wants them. */
#ifndef TESTS_GGUF_WRITER_H
#define TESTS_GGUF_WRITER_H

#include <stdint.h>

#include "base/buf.h"

void gguf_u32(struct buf *b, uint32_t value);
void gguf_u64(struct buf *b, uint64_t value);
void gguf_zeros(struct buf *b, size_t n);
void gguf_string(struct buf *b, const char *text);
void gguf_head(struct buf *b, uint32_t version, uint64_t tensors, uint64_t keys);
void gguf_key(struct buf *b, const char *key, uint32_t type); /* the value follows */
void gguf_key_u32(struct buf *b, const char *key, uint32_t value);
void gguf_key_string(struct buf *b, const char *key, const char *value);
void gguf_key_array(struct buf *b, const char *key, uint32_t element, uint64_t count); /* the elements follow */
void gguf_tensor(struct buf *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                 uint64_t offset);
void gguf_pad(struct buf *b, size_t alignment);

#endif
