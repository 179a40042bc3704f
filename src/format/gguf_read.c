/* Reads one GGUF header: magic, counts, keys, tensor descriptions, and checks every tensor's place in the file.
 *
 *   magic  version  tensor count  key count | keys: name type value | tensors: name dims type offset | pad | data
 *
 * The bytes are hostile. Everything is taken through the reader, which never leaves the file; no allocation is larger
 * than a small multiple of bytes that are really there; the time is linear in the header, but for sorts of O(n log n).
 * One thread per file. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "format/gguf_internal.h"
#include "format/reader.h"

/* ---- Header ---- */

static int read_magic(struct reader *r) {
    reader_begin(r, "magic", READER_NO_NUMBER);
    if (r->size == 0) return reader_fail(r, COHORT_E_FILE, "is missing: the file is empty");
    int code = reader_need(r, 4);
    if (code) return code;
    if (memcmp(r->base, "GGUF", 4) != 0)
        return reader_fail(r, COHORT_E_FILE, "is '%.4s', not 'GGUF': this is no GGUF model file",
                           (const char *)r->base);
    r->at = 4;
    return 0;
}

static int read_version(struct reader *r, uint32_t *version) {
    reader_begin(r, "version", READER_NO_NUMBER);
    int code = reader_u32(r, version);
    if (code) return code;
    if (*version == 2 || *version == 3) return 0;
    if (*version == 0) return reader_fail(r, COHORT_E_FILE, "is 0");
    if ((*version & 0xffff) == 0)
        return reader_fail(r, COHORT_E_UNSUPPORTED, "has its bytes swapped: big-endian files are not supported");
    return reader_fail(r, COHORT_E_UNSUPPORTED, "is %u, supported are 2 and 3", *version);
}

static int read_count(struct reader *r, const char *field, uint64_t max, uint64_t *out) {
    reader_begin(r, field, READER_NO_NUMBER);
    int code = reader_u64(r, out);
    if (code) return code;
    if (*out > max)
        return reader_fail(r, COHORT_E_FILE, "is %llu, at most %llu are allowed", (unsigned long long)*out,
                           (unsigned long long)max);
    return 0;
}

/* A count that cannot be true is caught before anything is allocated for it: each thing counted takes some bytes. */
static int check_counts(struct reader *r, uint64_t tensors, uint64_t keys) {
    enum { KEY_SMALLEST = 8 + 1 + 4 + 1, TENSOR_SMALLEST = 8 + 1 + 4 + 8 + 4 + 8 };
    reader_begin(r, "key_count", READER_NO_NUMBER);
    if (keys > reader_left(r) / KEY_SMALLEST)
        return reader_fail(r, COHORT_E_FILE, "is %llu, more than the %zu bytes behind it can hold",
                           (unsigned long long)keys, reader_left(r));
    reader_begin(r, "tensor_count", READER_NO_NUMBER);
    if (tensors > (reader_left(r) - keys * KEY_SMALLEST) / TENSOR_SMALLEST)
        return reader_fail(r, COHORT_E_FILE, "is %llu, more than the %zu bytes behind it can hold",
                           (unsigned long long)tensors, reader_left(r));
    return 0;
}

/* ---- Keys ---- */

static int check_bools(struct reader *r, const void *data, uint64_t n) {
    const uint8_t *bytes = data;
    for (uint64_t i = 0; i < n; i++)
        if (bytes[i] > 1) return reader_fail(r, COHORT_E_FILE, "has a bool whose byte is %u, not 0 or 1", bytes[i]);
    return 0;
}

/* Takes n elements of a sized type out of the file. */
static int read_elements(struct reader *r, enum meta_type type, uint64_t n, const void **data) {
    size_t size = meta_type_size(type);
    assert(size > 0);
    if (n > reader_left(r) / size)
        return reader_fail(r, COHORT_E_FILE, "is cut short: %llu values of type %s do not fit the %zu bytes left",
                           (unsigned long long)n, meta_type_name(type), reader_left(r));
    *data = r->base + r->at;
    r->at += (size_t)n * size;
    return type == META_BOOL ? check_bools(r, *data, n) : 0;
}

enum { STRINGS_LARGE = 1 << 20 }; /* bytes from which an array of strings, a vocabulary, is worth a mapping */

static int read_strings(struct reader *r, uint64_t n, const void **data) {
    if (n > reader_left(r) / 8)
        return reader_fail(r, COHORT_E_FILE, "is cut short: %llu strings do not fit the %zu bytes left",
                           (unsigned long long)n, reader_left(r));
    struct meta_string *strings;
    size_t bytes = (size_t)n * sizeof(*strings); /* twice what is left, at most */
    strings = bytes < STRINGS_LARGE ? mem_alloc(bytes, 1) : mem_map_large(bytes);
    if (!strings) return reader_no_memory(r);
    *data = strings; /* the shard's now, also if a string turns out bad */
    for (uint64_t i = 0; i < n; i++) {
        int code = reader_string(r, &strings[i]);
        if (code) return code;
    }
    return 0;
}

static int read_array_head(struct reader *r, uint32_t *element, uint64_t *count) {
    int code = reader_u32(r, element);
    if (!code) code = reader_u64(r, count);
    if (!code && *element > META_F64) code = reader_fail(r, COHORT_E_FILE, "has an array of unknown type %u", *element);
    return code;
}

/* Walks over an array of n arrays. Each step takes at least a head's bytes, so a false count ends at the file's end. */
static int skip_arrays(struct reader *r, uint64_t n) {
    uint64_t counts[GGUF_NESTING_MAX] = {n};
    for (int depth = 0; depth >= 0;) {
        if (counts[depth] == 0) {
            depth--;
            continue;
        }
        counts[depth]--;
        uint32_t element;
        uint64_t count;
        int code = read_array_head(r, &element, &count);
        if (code) return code;
        if (element == META_ARRAY) {
            if (++depth == GGUF_NESTING_MAX)
                return reader_fail(r, COHORT_E_FILE, "nests arrays more than %d deep", GGUF_NESTING_MAX);
            counts[depth] = count;
        } else if (element == META_STRING) {
            struct meta_string ignored;
            for (uint64_t i = 0; !code && i < count; i++) code = reader_string(r, &ignored);
        } else {
            const void *ignored;
            code = read_elements(r, element, count, &ignored);
        }
        if (code) return code;
    }
    return 0;
}

static int read_array(struct reader *r, struct meta_entry *entry) {
    uint32_t element;
    int code = read_array_head(r, &element, &entry->count);
    if (code) return code;
    entry->element = element;
    if (element == META_STRING) return read_strings(r, entry->count, &entry->data);
    if (element != META_ARRAY) return read_elements(r, element, entry->count, &entry->data);
    entry->data = r->base + r->at;
    return skip_arrays(r, entry->count);
}

/* Reads one key with its value. `slot` is the key's own place for a scalar string. */
static int read_key(struct reader *r, struct meta_entry *entry, struct meta_string *slot) {
    uint32_t type;
    int code = reader_name(r, GGUF_KEY_BYTES_MAX);
    if (!code) code = reader_u32(r, &type);
    if (code) return code;
    if (type > META_F64) return reader_fail(r, COHORT_E_FILE, "has the unknown type %u", type);
    *entry = (struct meta_entry){.key = r->name, .type = type, .count = 1};
    if (type == META_ARRAY) return read_array(r, entry);
    if (type != META_STRING) return read_elements(r, type, 1, &entry->data);
    entry->data = slot;
    return reader_string(r, slot);
}

static int string_compare(const struct meta_string *a, const struct meta_string *b) {
    uint64_t shorter = a->len < b->len ? a->len : b->len;
    int order = memcmp(a->bytes, b->bytes, (size_t)shorter);
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

static int key_less(const void *context, uint32_t a, uint32_t b) {
    const struct meta_entry *entries = context;
    return string_compare(&entries[a].key, &entries[b].key) < 0;
}

static int check_keys_unique(struct reader *r, const struct meta *meta) {
    uint32_t *order = mem_alloc(meta->n, sizeof(*order));
    if (!order) return reader_no_memory(r);
    int code = 0;
    for (size_t i = 0; i < meta->n; i++) order[i] = (uint32_t)i;
    gguf_sort(order, meta->n, key_less, meta->entries);
    for (size_t i = 1; i < meta->n && !code; i++) {
        const struct meta_string *key = &meta->entries[order[i]].key;
        if (string_compare(&meta->entries[order[i - 1]].key, key) != 0) continue;
        r->name = *key;
        code = reader_fail(r, COHORT_E_FILE, "appears twice");
    }
    mem_free(order);
    return code;
}

static int read_keys(struct reader *r, struct gguf_shard *shard, size_t n) {
    reader_begin(r, "key_count", READER_NO_NUMBER);
    shard->entries = mem_zalloc(n, sizeof(*shard->entries));
    shard->strings = mem_zalloc(n, sizeof(*shard->strings));
    if (!shard->entries || !shard->strings) return reader_no_memory(r);
    shard->meta.entries = shard->entries;
    for (size_t i = 0; i < n; i++) {
        reader_begin(r, "key", i);
        shard->meta.n = i + 1; /* counted before it is whole, so that what it allocated is freed */
        int code = read_key(r, &shard->entries[i], &shard->strings[i]);
        if (code) return code;
    }
    reader_begin(r, "key", READER_NO_NUMBER);
    return check_keys_unique(r, &shard->meta);
}

static void free_strings(const struct meta_entry *entry) {
    size_t bytes = (size_t)entry->count * sizeof(struct meta_string);
    if (bytes < STRINGS_LARGE)
        mem_free((void *)entry->data);
    else
        mem_unmap((void *)entry->data, bytes);
}

void gguf_shard_free_meta(struct gguf_shard *shard) {
    for (size_t i = 0; i < shard->meta.n; i++) {
        const struct meta_entry *entry = &shard->entries[i];
        if (entry->type == META_ARRAY && entry->element == META_STRING) free_strings(entry);
    }
    mem_free(shard->entries);
    mem_free(shard->strings);
    shard->entries = NULL;
    shard->strings = NULL;
    shard->meta = (struct meta){0};
}

static int read_alignment(struct reader *r, struct gguf_shard *shard) {
    static const char key[] = "general.alignment";
    shard->alignment = GGUF_ALIGNMENT_DEFAULT;
    int code = meta_u32(&shard->meta, key, &shard->alignment, r->err);
    if (code == COHORT_E_NOT_FOUND) return 0;
    if (code) return code;
    uint32_t a = shard->alignment;
    if (a >= GGUF_ALIGNMENT_MIN && a <= GGUF_ALIGNMENT_MAX && (a & (a - 1)) == 0) return 0;
    return err_set(r->err, COHORT_E_FILE, key, "key '%s' is %u, not a power of two from %d to %d", key, a,
                   GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
}

/* ---- Tensors ---- */

static int read_shape(struct reader *r, struct file_tensor *tensor, uint64_t *elements) {
    int code = reader_u32(r, &tensor->n_dims);
    if (code) return code;
    if (tensor->n_dims < 1 || tensor->n_dims > GGUF_DIMS_MAX)
        return reader_fail(r, COHORT_E_FILE, "has %u dimensions, expected 1 to %d", tensor->n_dims, GGUF_DIMS_MAX);
    *elements = 1;
    for (uint32_t i = 0; i < GGUF_DIMS_MAX; i++) {
        tensor->dims[i] = 1;
        if (i >= tensor->n_dims) continue;
        code = reader_u64(r, &tensor->dims[i]);
        if (code) return code;
        if (tensor->dims[i] == 0) return reader_fail(r, COHORT_E_FILE, "has a dimension %u of 0", i);
        if (__builtin_mul_overflow(*elements, tensor->dims[i], elements) || *elements > GGUF_ELEMENTS_MAX)
            return reader_fail(r, COHORT_E_FILE, "has a dimension %u of %llu: more than 2^47 elements", i,
                               (unsigned long long)tensor->dims[i]);
    }
    return 0;
}

static int read_tensor(struct reader *r, struct file_tensor *tensor, struct gguf_raw *raw) {
    uint64_t elements = 0;
    int code = reader_name(r, GGUF_NAME_BYTES_MAX);
    if (code) return code;
    tensor->name = r->name.bytes;
    raw->name_len = (uint32_t)r->name.len;
    code = read_shape(r, tensor, &elements);
    if (!code) code = reader_u32(r, &tensor->type);
    if (!code) code = reader_u64(r, &raw->offset);
    if (code) return code;
    const struct dtype_info *info = dtype_info(tensor->type);
    if (!info) /* Numbers near the known ones are types that were dropped or are newer than this program. */
        return reader_fail(r, tensor->type < DTYPE_END ? COHORT_E_UNSUPPORTED : COHORT_E_FILE,
                           "has the unknown type %u", tensor->type);
    if (tensor->dims[0] % info->block_elements)
        return reader_fail(r, COHORT_E_FILE, "has rows of %llu values, not a multiple of %s's block of %u",
                           (unsigned long long)tensor->dims[0], info->name, info->block_elements);
    tensor->bytes = elements / info->block_elements * info->block_bytes;
    return 0;
}

/* Finds the tensor's bytes in the file. */
static int place_tensor(struct reader *r, const struct gguf_shard *shard, size_t data_start, struct file_tensor *tensor,
                        uint64_t offset) {
    uint64_t room = shard->size - data_start;
    if (offset % shard->alignment)
        return reader_fail(r, COHORT_E_FILE, "has the offset %llu, not a multiple of the alignment %u",
                           (unsigned long long)offset, shard->alignment);
    if (offset > room || tensor->bytes > room - offset)
        return reader_fail(r, COHORT_E_FILE,
                           "has %llu bytes at offset %llu, but the file holds only %llu bytes of data",
                           (unsigned long long)tensor->bytes, (unsigned long long)offset, (unsigned long long)room);
    tensor->data = shard->base + data_start + (size_t)offset;
    tensor->mapped = shard->mapped;
    return 0;
}

static int data_less(const void *context, uint32_t a, uint32_t b) {
    const struct file_tensor *tensors = context;
    return tensors[a].data < tensors[b].data;
}

static int check_overlaps(struct reader *r, const struct file_tensor *tensors, const struct gguf_raw *raw, size_t n) {
    uint32_t *order = mem_alloc(n, sizeof(*order));
    if (!order) return reader_no_memory(r);
    int code = 0;
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    gguf_sort(order, n, data_less, tensors);
    for (size_t i = 1; i < n && !code; i++) {
        const struct file_tensor *before = &tensors[order[i - 1]], *tensor = &tensors[order[i]];
        uint64_t distance = (uint64_t)((const uint8_t *)tensor->data - (const uint8_t *)before->data);
        if (distance >= before->bytes) continue;
        r->name = (struct meta_string){tensor->name, raw[order[i]].name_len};
        code = reader_fail(r, COHORT_E_FILE, "overlaps tensor '%.*s'", (int)raw[order[i - 1]].name_len, before->name);
    }
    mem_free(order);
    return code;
}

/* Makes room for n more tensors. */
static int grow_tensors(struct reader *r, struct model_file *file, size_t n) {
    size_t all = file->n_tensors + n;
    reader_begin(r, "tensor_count", READER_NO_NUMBER);
    if (all > GGUF_TENSORS_MAX)
        return reader_fail(r, COHORT_E_FILE, "adds up to %zu over the shards, at most %d are allowed", all,
                           GGUF_TENSORS_MAX);
    struct file_tensor *tensors = mem_realloc(file->tensors, all, sizeof(*tensors));
    if (!tensors) return reader_no_memory(r);
    file->tensors = tensors;
    struct gguf_raw *raw = mem_realloc(file->raw, all, sizeof(*raw));
    if (!raw) return reader_no_memory(r);
    file->raw = raw;
    return 0;
}

static int read_tensors(struct reader *r, struct model_file *file, size_t number, size_t n) {
    struct gguf_shard *shard = &file->shards[number];
    int code = grow_tensors(r, file, n);
    if (code) return code;
    struct file_tensor *tensors = file->tensors + file->n_tensors;
    struct gguf_raw *raw = file->raw + file->n_tensors;
    for (size_t i = 0; i < n; i++) {
        reader_begin(r, "tensor", i);
        tensors[i].shard = (uint32_t)number;
        code = read_tensor(r, &tensors[i], &raw[i]);
        if (code) return code;
    }
    /* The data begins at the next aligned place; a file without tensors may end before it. */
    size_t padding = -r->at & ((size_t)shard->alignment - 1);
    size_t data_start = padding <= reader_left(r) ? r->at + padding : shard->size;
    for (size_t i = 0; i < n; i++) {
        reader_begin(r, "tensor", i);
        r->name = (struct meta_string){tensors[i].name, raw[i].name_len};
        code = place_tensor(r, shard, data_start, &tensors[i], raw[i].offset);
        if (code) return code;
    }
    code = check_overlaps(r, tensors, raw, n);
    if (code) return code;
    shard->first = file->n_tensors;
    shard->count = n;
    file->n_tensors += n;
    return 0;
}

int gguf_shard_read(struct model_file *file, size_t number, cohort_error *err) {
    struct gguf_shard *shard = &file->shards[number];
    struct reader r = {.base = shard->base, .size = shard->size, .err = err};
    uint64_t tensors, keys;
    int code = read_magic(&r);
    if (!code) code = read_version(&r, &shard->version);
    if (!code) code = read_count(&r, "tensor_count", GGUF_TENSORS_MAX, &tensors);
    if (!code) code = read_count(&r, "key_count", GGUF_KEYS_MAX, &keys);
    if (!code) code = check_counts(&r, tensors, keys);
    if (!code) code = read_keys(&r, shard, (size_t)keys);
    if (!code) code = read_alignment(&r, shard);
    if (!code) code = read_tensors(&r, file, number, (size_t)tensors);
    return code;
}
