/* What gguf.c (opening, shards, lookup), gguf_read.c (one header) and report.c share. */
#ifndef FORMAT_GGUF_INTERNAL_H
#define FORMAT_GGUF_INTERNAL_H

#include "format/gguf.h"

enum {
    GGUF_KEYS_MAX = 1 << 16,    /* keys of one shard */
    GGUF_TENSORS_MAX = 1 << 20, /* tensors over all shards */
    GGUF_KEY_BYTES_MAX = 65535, /* the format's own limit */
    GGUF_NAME_BYTES_MAX = 255,  /* of a tensor */
    GGUF_DIMS_MAX = 4,
    GGUF_NESTING_MAX = 4, /* arrays in arrays */
    GGUF_ALIGNMENT_MIN = 8,
    GGUF_ALIGNMENT_MAX = 1 << 20,
    GGUF_ALIGNMENT_DEFAULT = 32,
    GGUF_SHARDS_MAX = 1024
};
#define GGUF_ELEMENTS_MAX (1ull << 47) /* of one tensor: times any block size it still fits 64 bits with room */

struct gguf_shard {
    const uint8_t *base;
    size_t size;
    int mapped; /* ours to unmap; else the caller's memory */
    uint32_t version, alignment;
    size_t first, count; /* its tensors in model_file.tensors */
    struct meta meta;
    struct meta_entry *entries;  /* meta.entries */
    struct meta_string *strings; /* one slot per key, used by scalar strings */
};

/* What a tensor's header says beside file_tensor; needed only while opening. */
struct gguf_raw {
    uint64_t offset;   /* from the start of the shard's data */
    uint32_t name_len; /* of file_tensor.name, which points into the file until all shards are read */
};

struct model_file {
    struct gguf_shard *shards;
    size_t n_shards;
    struct file_tensor *tensors;
    struct gguf_raw *raw; /* NULL once open */
    size_t n_tensors;
    char *names;       /* every tensor's name with its NUL */
    uint32_t *by_name; /* tensor numbers in order of name */
};

/* Reads the header of shard number `number`, whose base and size are set: fills its meta and appends its tensors,
 * checked but for their names' uniqueness, to file->tensors. What was allocated stays with the file, on failure too. */
int gguf_shard_read(struct model_file *file, size_t number, cohort_error *err);
void gguf_shard_free_meta(struct gguf_shard *shard);

/* Sorts n numbers in place by `less`, in at most 2 n log n calls whatever the input is. */
typedef int gguf_less(const void *context, uint32_t a, uint32_t b);
void gguf_sort(uint32_t *numbers, size_t n, gguf_less *less, const void *context);

#endif
