/* The report of `cohort inspect`: what a model file says of itself, for people or as one JSON object. Strings come from
 * a hostile file: everything printed is quoted or known to be printable. Pure but for the buffer. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "format/gguf_internal.h"

enum {
    ARRAY_SHOWN = 8,           /* elements of an array */
    TEXT_SHOWN = 80,           /* bytes of a string in the text report */
    JSON_SHOWN = 64 * 1024,    /* bytes of a string in the JSON report: any honest chat template */
    JSON_ELEMENT_SHOWN = 1024, /* bytes of a string inside an array there */
    NAME_COLUMN = 40
};

struct report {
    const struct model_file *file;
    struct buf *out;
    int json;
    int code; /* the first failure; nothing is added after it */
};

__attribute__((format(printf, 2, 3))) static void add(struct report *r, const char *format, ...) {
    char line[512];
    if (r->code) return;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    r->code = n < 0 || (size_t)n >= sizeof(line) ? COHORT_E_INTERNAL : buf_add(r->out, line, (size_t)n);
}

/* Adds a JSON string of the first `max` bytes, not cutting a character. */
static void add_quoted(struct report *r, const char *bytes, uint64_t len, size_t max) {
    size_t n = len < max ? (size_t)len : max;
    if (n < len) n -= utf8_tail(bytes, n);
    if (!r->code) r->code = buf_json_string(r->out, bytes, n);
}

/* ---- Metadata ---- */

static void add_string(struct report *r, const struct meta_string *string, int in_array) {
    size_t max = r->json ? in_array ? JSON_ELEMENT_SHOWN : JSON_SHOWN : TEXT_SHOWN;
    add_quoted(r, string->bytes, string->len, max);
    if (string->len > max && !r->json) add(r, "... (%" PRIu64 " bytes)", string->len);
}

/* The shortest of the usual digits that read back as the same number. */
static void add_float(struct report *r, double value, int single) {
    char digits[32];
    for (int precision = single ? 6 : 15; precision <= (single ? 9 : 17); precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, value);
        double back = strtod(digits, NULL);
        if (back == value || (single && (float)back == (float)value)) break;
    }
    add(r, "%s", digits);
}

static void add_element(struct report *r, const struct meta_entry *entry, enum meta_type type, uint64_t i) {
    double value;
    switch (type) {
    case META_STRING:
        add_string(r, meta_entry_string(entry, i), entry->type == META_ARRAY);
        break;
    case META_BOOL:
        add(r, "%s", meta_entry_i64(entry, i) ? "true" : "false");
        break;
    case META_F32:
    case META_F64:
        value = meta_entry_f64(entry, i);
        if (__builtin_isfinite(value))
            add_float(r, value, type == META_F32);
        else
            add(r, "%s", r->json ? "null" : value != value ? "nan" : value > 0 ? "inf" : "-inf");
        break;
    case META_U64: {
        uint64_t large;
        memcpy(&large, (const char *)entry->data + 8 * i, sizeof(large));
        add(r, "%" PRIu64, large);
        break;
    }
    default:
        add(r, "%" PRId64, meta_entry_i64(entry, i));
    }
}

static void add_array(struct report *r, const struct meta_entry *entry) {
    /* Arrays of arrays are never used; the type says all there is to say. */
    uint64_t shown = entry->element == META_ARRAY ? 0 : entry->count < ARRAY_SHOWN ? entry->count : ARRAY_SHOWN;
    add(r, "[");
    for (uint64_t i = 0; i < shown; i++) {
        if (i) add(r, ", ");
        add_element(r, entry, entry->element, i);
    }
    if (shown < entry->count && !r->json) add(r, "%s...", shown ? ", " : "");
    add(r, "]");
}

static void add_entry(struct report *r, const struct meta_entry *entry) {
    int is_array = entry->type == META_ARRAY;
    if (r->json) {
        add_quoted(r, entry->key.bytes, entry->key.len, SIZE_MAX);
        add(r, ":{\"type\":\"%s\",", meta_type_name(entry->type));
        if (is_array)
            add(r, "\"element\":\"%s\",\"count\":%" PRIu64 ",\"first\":", meta_type_name(entry->element), entry->count);
        else if (entry->type == META_STRING)
            add(r, "\"length\":%" PRIu64 ",\"value\":", meta_entry_string(entry, 0)->len);
        else
            add(r, "\"value\":");
    } else {
        char type[48];
        if (is_array)
            snprintf(type, sizeof(type), "%s[%" PRIu64 "]", meta_type_name(entry->element), entry->count);
        else
            snprintf(type, sizeof(type), "%s", meta_type_name(entry->type));
        int shown = entry->key.len < 200 ? (int)entry->key.len : 200;
        shown -= (int)(shown < (int64_t)entry->key.len ? utf8_tail(entry->key.bytes, (size_t)shown) : 0);
        add(r, "  %-*.*s %-14s ", NAME_COLUMN, shown, entry->key.bytes, type);
    }
    if (is_array)
        add_array(r, entry);
    else
        add_element(r, entry, entry->type, 0);
    add(r, r->json ? "}" : "\n");
}

/* ---- Tensors ---- */

/* Where the tensor's bytes begin in its shard. */
static uint64_t file_offset(const struct report *r, const struct file_tensor *tensor) {
    return (uint64_t)((const uint8_t *)tensor->data - r->file->shards[tensor->shard].base);
}

static void add_tensor(struct report *r, const struct file_tensor *tensor) {
    const char *type = dtype_info(tensor->type)->name;
    char shape[100];
    size_t at = 0;
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        at += (size_t)snprintf(shape + at, sizeof(shape) - at, "%s%" PRIu64,
                               i == 0    ? ""
                               : r->json ? ","
                                         : " x ",
                               tensor->dims[i]);
    if (r->json) {
        add(r, "{\"name\":");
        add_quoted(r, tensor->name, strlen(tensor->name), SIZE_MAX);
        add(r, ",\"type\":\"%s\",\"shape\":[%s],\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"shard\":%u}", type,
            shape, file_offset(r, tensor), tensor->bytes, tensor->shard);
        return;
    }
    add(r, "  %-*s %-8s %-20s %14" PRIu64 " bytes at %" PRIu64, NAME_COLUMN, tensor->name, type, shape, tensor->bytes,
        file_offset(r, tensor));
    if (r->file->n_shards > 1) add(r, " of shard %u", tensor->shard);
    add(r, "\n");
}

struct total {
    uint64_t tensors, elements, bytes;
};

static uint64_t tensor_elements(const struct file_tensor *tensor) {
    return tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
}

static void add_total(struct report *r, const char *name, const struct total *total) {
    if (r->json)
        add(r, "{\"type\":\"%s\",\"tensors\":%" PRIu64 ",\"elements\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", name,
            total->tensors, total->elements, total->bytes);
    else
        add(r, "  %-8s %8" PRIu64 " tensors %16" PRIu64 " elements %16" PRIu64 " bytes\n", name, total->tensors,
            total->elements, total->bytes);
}

static void add_totals(struct report *r) {
    struct total totals[DTYPE_END] = {0}, all = {0};
    for (size_t i = 0; i < r->file->n_tensors; i++) {
        const struct file_tensor *tensor = &r->file->tensors[i];
        struct total *total = &totals[tensor->type];
        total->tensors++;
        total->elements += tensor_elements(tensor);
        total->bytes += tensor->bytes;
        all.tensors++;
        all.elements += tensor_elements(tensor);
        all.bytes += tensor->bytes;
    }
    const char *separator = "";
    for (uint32_t type = 0; type < DTYPE_END; type++) {
        if (!totals[type].tensors) continue;
        add(r, "%s", separator);
        add_total(r, dtype_info(type)->name, &totals[type]);
        separator = r->json ? "," : "";
    }
    add(r, "%s", r->json ? "],\"total\":" : "");
    add_total(r, "all", &all);
}

/* ---- The whole ---- */

static void add_head(struct report *r) {
    const char *format = r->json ? "{\"format\":\"gguf\",\"version\":%u,\"shards\":%u,\"bytes\":%" PRIu64
                                   ",\"alignment\":%u,\"metadata\":{"
                                 : "GGUF version %u, %u file(s), %" PRIu64 " bytes, alignment %u\n";
    add(r, format, model_file_version(r->file), model_file_shards(r->file), model_file_bytes(r->file),
        model_file_alignment(r->file));
}

int model_file_report(const struct model_file *file, int json, struct buf *out) {
    struct report r = {.file = file, .out = out, .json = json};
    const struct meta *meta = model_file_meta(file);
    const char *separator = json ? "," : "";
    add_head(&r);
    if (!json) add(&r, "\nmetadata: %zu keys\n", meta->n);
    for (size_t i = 0; i < meta->n; i++) {
        if (i) add(&r, "%s", separator);
        add_entry(&r, &meta->entries[i]);
    }
    if (json)
        add(&r, "},\"tensors\":[");
    else
        add(&r, "\ntensors: %zu (shape: fastest dimension first)\n", file->n_tensors);
    for (size_t i = 0; i < file->n_tensors; i++) {
        if (i) add(&r, "%s", separator);
        add_tensor(&r, &file->tensors[i]);
    }
    add(&r, "%s", json ? "],\"totals\":[" : "\ntotals\n");
    add_totals(&r);
    add(&r, "%s", json ? "}\n" : "");
    return r.code;
}
