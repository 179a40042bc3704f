/* GGUF model files, version 2 and 3, memory-mapped, one file or all its shards. Hostile input: every count, length,
 * offset and product is checked against what the file really holds before it is used; errors name file, field and
 * reason.
 *
 * A model_file owns the mappings; the metadata view and all tensor data point into it. Immutable after open, any
 * thread. */
#ifndef FORMAT_GGUF_H
#define FORMAT_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/meta.h"

struct model_file;

struct file_tensor {
    const char *name; /* NUL-terminated; no NUL inside */
    uint32_t type;    /* enum dtype; always one that dtype_info knows */
    uint32_t n_dims;  /* 1..4 */
    uint64_t dims[4]; /* fastest first; unused ones are 1; none is 0; the product fits 2^47 */
    const void *data; /* bytes long, inside the mapping; aligned to the file's alignment, as far as pages are */
    uint64_t bytes;
    uint32_t shard;
    int mapped; /* data lies in a mapping of the file, not in the caller's memory */
};

/* `path` names the only file or the first shard ("-00001-of-00003.gguf"). */
int model_file_open(const char *path, struct model_file **out, cohort_error *err);
void model_file_close(struct model_file *file);

const struct meta *model_file_meta(const struct model_file *file); /* of the first shard */
size_t model_file_tensor_count(const struct model_file *file);
const struct file_tensor *model_file_tensor_at(const struct model_file *file, size_t i);      /* file order */
const struct file_tensor *model_file_tensor(const struct model_file *file, const char *name); /* NULL if absent */
uint64_t model_file_bytes(const struct model_file *file);
uint32_t model_file_version(const struct model_file *file);
uint32_t model_file_alignment(const struct model_file *file);
uint32_t model_file_shards(const struct model_file *file);

/* The bytes of shard i, 0 .. model_file_shards - 1, for digests. */
const void *model_file_shard(const struct model_file *file, uint32_t i, size_t *bytes);

/* Tells the system that the file's mapped bytes are not needed in memory for now (they are read again if touched). */
void model_file_release(const struct model_file *file);

/* Parses a GGUF header from memory (for fuzzing and tests): as open, with `bytes` as the whole file, which the caller
 * keeps alive (and aligned as it wants the tensors to be). One shard only. */
int model_file_from_memory(const void *bytes, size_t n, struct model_file **out, cohort_error *err);

/* The report of `cohort inspect`, as text or JSON, into *out (base/buf.h). */
struct buf;
int model_file_report(const struct model_file *file, int json, struct buf *out);

#endif
