/* Any bytes as a model file: opened, read through every getter, reported. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "format/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth) {
    if (!truth) abort();
}

/* Reads what the reader promises to be there. */
static void touch_tensors(const struct model_file *file, const uint8_t *base, size_t size) {
    static volatile uint8_t sink;
    for (size_t i = 0; i < model_file_tensor_count(file); i++) {
        const struct file_tensor *tensor = model_file_tensor_at(file, i);
        const uint8_t *bytes = tensor->data;
        const struct dtype_info *info = dtype_info(tensor->type);
        uint64_t elements = tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
        check(tensor->n_dims >= 1 && tensor->n_dims <= 4);
        check(elements > 0 && tensor->bytes == elements / info->block_elements * info->block_bytes);
        check(bytes >= base && tensor->bytes <= size && (size_t)(bytes - base) <= size - tensor->bytes);
        check((size_t)(bytes - base) % model_file_alignment(file) == 0);
        check(model_file_tensor(file, tensor->name) == tensor);
        sink = bytes[0];
        sink = bytes[tensor->bytes - 1];
    }
    (void)sink;
}

static void touch_meta(const struct meta *meta) {
    for (size_t i = 0; i < meta->n; i++) {
        const struct meta_entry *entry = &meta->entries[i];
        enum meta_type type = entry->type == META_ARRAY ? entry->element : entry->type;
        for (uint64_t k = 0; k < entry->count; k++) {
            if (type == META_STRING) {
                const struct meta_string *string = meta_entry_string(entry, k);
                utf8_valid(string->bytes, string->len);
            } else if (meta_is_integer(type) || type == META_BOOL) {
                meta_entry_i64(entry, k);
            } else if (type != META_ARRAY) {
                meta_entry_f64(entry, k);
            }
        }
    }
    cohort_error err;
    uint32_t number;
    float value;
    int flag;
    struct meta_string string;
    meta_u32(meta, "k", &number, &err);
    meta_f32(meta, "k", &value, &err);
    meta_bool(meta, "k", &flag, &err);
    meta_string(meta, "k", &string, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_file *file;
    cohort_error err = {0};
    int code = model_file_from_memory(data, size, &file, &err);
    if (code) {
        check(file == NULL && err.code == code && err.field[0] && err.text[0]);
        check(!strchr(err.text, '\n') && utf8_valid(err.text, strlen(err.text)));
        return 0;
    }
    touch_tensors(file, data, size);
    touch_meta(model_file_meta(file));
    for (int json = 0; json < 2; json++) {
        struct buf report = {0};
        check(model_file_report(file, json, &report) == 0);
        check(utf8_valid(report.data, report.len));
        buf_free(&report);
    }
    model_file_close(file);
    return 0;
}
