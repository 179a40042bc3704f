/* Opening model files: mapping, joining shards, the table of tensor names. Owns model_file; immutable once open, so any
 * thread may read it. */
#include "format/gguf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "format/gguf_internal.h"

/* ---- Mapping ---- */

static int map_descriptor(int fd, struct gguf_shard *shard, cohort_error *err) {
    struct stat status;
    if (fstat(fd, &status)) return err_set(err, COHORT_E_IO, "file", "cannot be examined: %s", strerror(errno));
    if (!S_ISREG(status.st_mode)) return err_set(err, COHORT_E_FILE, "file", "is not a regular file");
    if ((uint64_t)status.st_size > SIZE_MAX / 2) return err_set(err, COHORT_E_LIMIT, "file", "is too large to map");
    shard->size = (size_t)status.st_size;
    if (shard->size == 0) return 0; /* cannot be mapped; the reader has the words for it */
    void *base = mmap(NULL, shard->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED) return err_set(err, COHORT_E_IO, "file", "cannot be mapped: %s", strerror(errno));
    shard->base = base;
    shard->mapped = 1;
    return 0;
}

static int map_file(const char *path, struct gguf_shard *shard, cohort_error *err) {
    /* Not blocking, or a path that names a pipe would hang here. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return err_set(err, COHORT_E_IO, "file", "cannot be opened: %s", strerror(errno));
    int code = map_descriptor(fd, shard, err);
    close(fd); /* the mapping stays */
    return code;
}

/* ---- Shards ---- */

/* The value of a split key that must be there. */
static int split_value(const struct gguf_shard *shard, const char *key, uint32_t *out, cohort_error *err) {
    int code = meta_u32(&shard->meta, key, out, err);
    if (code == COHORT_E_NOT_FOUND)
        return err_set(err, COHORT_E_FILE, key, "key '%s' is missing, although the file is one of several", key);
    return code;
}

/* How many shards the model has, by its first: 1 without split keys (or with a count of 0, which joined files keep). */
static int shard_count(const struct gguf_shard *shard, uint32_t *count, cohort_error *err) {
    uint32_t number;
    *count = 1;
    int code = meta_u32(&shard->meta, "split.count", count, err);
    if (code == COHORT_E_NOT_FOUND) return 0;
    if (code) return code;
    if (*count <= 1) {
        *count = 1;
        return 0;
    }
    if (*count > GGUF_SHARDS_MAX)
        return err_set(err, COHORT_E_FILE, "split.count", "key 'split.count' is %u, at most %d are allowed", *count,
                       GGUF_SHARDS_MAX);
    code = split_value(shard, "split.no", &number, err);
    if (!code && number != 0)
        code =
            err_set(err, COHORT_E_FILE, "split.no", "key 'split.no' is %u: open the first shard, not this one", number);
    return code;
}

/* Length of the path without its "-00001-of-00003.gguf", or 0 if it does not end so. */
static size_t path_stem(const char *path, uint32_t count) {
    char suffix[40];
    int n = snprintf(suffix, sizeof(suffix), "-00001-of-%05u.gguf", count);
    size_t len = strlen(path);
    if (len <= (size_t)n || strcmp(path + len - (size_t)n, suffix) != 0) return 0;
    return len - (size_t)n;
}

static int read_further_shard(struct model_file *file, const char *path, uint32_t number, uint32_t count,
                              cohort_error *err) {
    struct gguf_shard *shard = &file->shards[number];
    uint32_t found_number = 0, found_count = 0;
    int code = map_file(path, shard, err);
    if (!code) code = gguf_shard_read(file, number, err);
    if (!code) code = split_value(shard, "split.no", &found_number, err);
    if (!code) code = split_value(shard, "split.count", &found_count, err);
    if (!code && found_number != number)
        code = err_set(err, COHORT_E_FILE, "split.no", "key 'split.no' is %u, expected %u", found_number, number);
    if (!code && found_count != count)
        code = err_set(err, COHORT_E_FILE, "split.count", "key 'split.count' is %u, expected %u", found_count, count);
    return code;
}

static int read_further_shards(struct model_file *file, const char *path, uint32_t count, cohort_error *err) {
    size_t stem = path_stem(path, count);
    if (stem == 0) {
        err_set(err, COHORT_E_FILE, "split.count",
                "key 'split.count' is %u, but the name does not end in "
                "'-00001-of-%05u.gguf'",
                count, count);
        return err_prefix(err, COHORT_E_FILE, path);
    }
    struct gguf_shard *shards = mem_realloc(file->shards, count, sizeof(*shards));
    size_t size = stem + 40;
    char *name = mem_alloc(size, 1);
    int code = 0;
    if (shards) {
        file->shards = shards;
        memset(shards + 1, 0, (count - 1) * sizeof(*shards));
    }
    if (!shards || !name) code = err_set(err, COHORT_E_MEMORY, NULL, "%s: no memory for the shards", path);
    for (uint32_t i = 1; i < count && !code; i++) {
        file->n_shards = i + 1;
        snprintf(name, size, "%.*s-%05u-of-%05u.gguf", (int)stem, path, i + 1, count);
        code = read_further_shard(file, name, i, count, err);
        if (code) code = err_prefix(err, code, name);
    }
    mem_free(name);
    return code;
}

static int check_tensor_total(const struct model_file *file, cohort_error *err) {
    uint32_t total;
    int code = split_value(&file->shards[0], "split.tensors.count", &total, err);
    if (!code && total != file->n_tensors)
        code = err_set(err, COHORT_E_FILE, "split.tensors.count",
                       "key 'split.tensors.count' is %u, but the shards hold %zu tensors", total, file->n_tensors);
    return code;
}

/* ---- Names ---- */

/* Gives every tensor a name of its own with a NUL behind it. */
static int copy_names(struct model_file *file) {
    size_t bytes = 0;
    for (size_t i = 0; i < file->n_tensors; i++) bytes += file->raw[i].name_len + 1;
    char *at = file->names = mem_alloc(bytes, 1);
    if (!at) return COHORT_E_MEMORY;
    for (size_t i = 0; i < file->n_tensors; i++) {
        uint32_t len = file->raw[i].name_len;
        memcpy(at, file->tensors[i].name, len);
        at[len] = '\0';
        file->tensors[i].name = at;
        at += len + 1;
    }
    mem_free(file->raw);
    file->raw = NULL;
    return 0;
}

static int name_less(const void *context, uint32_t a, uint32_t b) {
    const struct file_tensor *tensors = context;
    return strcmp(tensors[a].name, tensors[b].name) < 0;
}

static int index_names(struct model_file *file, cohort_error *err) {
    size_t n = file->n_tensors;
    file->by_name = mem_alloc(n, sizeof(*file->by_name));
    if (copy_names(file) || !file->by_name) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for tensor names");
    for (size_t i = 0; i < n; i++) file->by_name[i] = (uint32_t)i;
    gguf_sort(file->by_name, n, name_less, file->tensors);
    for (size_t i = 1; i < n; i++) {
        const char *name = file->tensors[file->by_name[i]].name;
        if (strcmp(file->tensors[file->by_name[i - 1]].name, name) == 0)
            return err_set(err, COHORT_E_FILE, name, "tensor '%s' appears twice", name);
    }
    return 0;
}

const struct file_tensor *model_file_tensor(const struct model_file *file, const char *name) {
    size_t low = 0, high = file->n_tensors;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct file_tensor *tensor = &file->tensors[file->by_name[middle]];
        int order = strcmp(name, tensor->name);
        if (order == 0) return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ---- Open and close ---- */

static struct model_file *file_new(cohort_error *err) {
    struct model_file *file = mem_zalloc(1, sizeof(*file));
    if (file) file->shards = mem_zalloc(1, sizeof(*file->shards));
    if (file && file->shards) {
        file->n_shards = 1;
        return file;
    }
    mem_free(file);
    err_set(err, COHORT_E_MEMORY, NULL, "no memory for the file");
    return NULL;
}

/* Everything after the first shard's header. Errors name the file that they are about. */
static int open_rest(struct model_file *file, const char *path, cohort_error *err) {
    uint32_t count = 1;
    int code = shard_count(&file->shards[0], &count, err);
    if (code) return err_prefix(err, code, path);
    if (count > 1) {
        code = read_further_shards(file, path, count, err);
        if (code) return code;
        code = check_tensor_total(file, err);
        /* Only the first shard's metadata is ever looked at again. */
        for (size_t i = 1; i < file->n_shards; i++) gguf_shard_free_meta(&file->shards[i]);
    }
    if (!code) code = index_names(file, err);
    return code ? err_prefix(err, code, path) : 0;
}

int model_file_open(const char *path, struct model_file **out, cohort_error *err) {
    *out = NULL;
    struct model_file *file = file_new(err);
    if (!file) return COHORT_E_MEMORY;
    int code = map_file(path, &file->shards[0], err);
    if (!code) code = gguf_shard_read(file, 0, err);
    code = code ? err_prefix(err, code, path) : open_rest(file, path, err);
    if (code) {
        model_file_close(file);
        return code;
    }
    *out = file;
    return 0;
}

int model_file_from_memory(const void *bytes, size_t n, struct model_file **out, cohort_error *err) {
    uint32_t count;
    *out = NULL;
    struct model_file *file = file_new(err);
    if (!file) return COHORT_E_MEMORY;
    file->shards[0].base = bytes;
    file->shards[0].size = n;
    int code = gguf_shard_read(file, 0, err);
    if (!code) code = shard_count(&file->shards[0], &count, err);
    if (!code && count > 1)
        code = err_set(err, COHORT_E_UNSUPPORTED, "split.count", "key 'split.count' is %u, but memory holds one shard",
                       count);
    if (!code) code = index_names(file, err);
    if (code) {
        model_file_close(file);
        return code;
    }
    *out = file;
    return 0;
}

void model_file_close(struct model_file *file) {
    if (!file) return;
    for (size_t i = 0; i < file->n_shards; i++) {
        struct gguf_shard *shard = &file->shards[i];
        gguf_shard_free_meta(shard);
        if (shard->mapped) munmap((void *)shard->base, shard->size);
    }
    mem_free(file->shards);
    mem_free(file->tensors);
    mem_free(file->raw);
    mem_free(file->names);
    mem_free(file->by_name);
    mem_free(file);
}

/* ---- Plain questions ---- */

const struct meta *model_file_meta(const struct model_file *file) { return &file->shards[0].meta; }

size_t model_file_tensor_count(const struct model_file *file) { return file->n_tensors; }

const struct file_tensor *model_file_tensor_at(const struct model_file *file, size_t i) {
    return i < file->n_tensors ? &file->tensors[i] : NULL;
}

uint64_t model_file_bytes(const struct model_file *file) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < file->n_shards; i++) bytes += file->shards[i].size;
    return bytes;
}

uint32_t model_file_version(const struct model_file *file) { return file->shards[0].version; }

uint32_t model_file_alignment(const struct model_file *file) { return file->shards[0].alignment; }

const void *model_file_shard(const struct model_file *file, uint32_t i, size_t *bytes) {
    assert(i < file->n_shards);
    *bytes = file->shards[i].size;
    return file->shards[i].base;
}
uint32_t model_file_shards(const struct model_file *file) { return (uint32_t)file->n_shards; }

void model_file_release(const struct model_file *file) {
    /* The caller's memory is left alone: dropping pages that no file stands behind would clear them. */
    for (size_t i = 0; i < file->n_shards; i++)
        if (file->shards[i].mapped) madvise((void *)file->shards[i].base, file->shards[i].size, MADV_DONTNEED);
}
