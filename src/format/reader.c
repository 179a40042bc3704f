/* The bounded walk: nothing is read before reader_need has found it inside the file. */
#include "format/reader.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void reader_begin(struct reader *r, const char *kind, uint64_t number) {
    r->kind = kind;
    r->number = number;
    r->name = (struct meta_string){0};
}

int reader_fail(struct reader *r, int code, const char *format, ...) {
    if (!r->err) return code;
    char reason[256], field[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    if (r->name.len) {
        int shown = r->name.len < 100 ? (int)r->name.len : 100;
        snprintf(field, sizeof(field), "%.*s", shown, r->name.bytes);
        return err_set(r->err, code, field, "%s '%.*s' %s", r->kind, shown, r->name.bytes, reason);
    }
    if (r->number == READER_NO_NUMBER) return err_set(r->err, code, r->kind, "%s %s", r->kind, reason);
    snprintf(field, sizeof(field), "%s %llu", r->kind, (unsigned long long)r->number);
    return err_set(r->err, code, field, "%s %s", field, reason);
}

int reader_no_memory(struct reader *r) { return reader_fail(r, COHORT_E_MEMORY, "found no memory"); }

size_t reader_left(const struct reader *r) { return r->size - r->at; }

int reader_need(struct reader *r, uint64_t bytes) {
    assert(r->at <= r->size);
    if (bytes <= reader_left(r)) return 0;
    return reader_fail(r, COHORT_E_FILE, "is cut short: %llu bytes wanted at %zu, but the file ends at %zu",
                       (unsigned long long)bytes, r->at, r->size);
}

int reader_u32(struct reader *r, uint32_t *out) {
    int code = reader_need(r, sizeof(*out));
    if (code) return code;
    memcpy(out, r->base + r->at, sizeof(*out));
    r->at += sizeof(*out);
    return 0;
}

int reader_u64(struct reader *r, uint64_t *out) {
    int code = reader_need(r, sizeof(*out));
    if (code) return code;
    memcpy(out, r->base + r->at, sizeof(*out));
    r->at += sizeof(*out);
    return 0;
}

int reader_string(struct reader *r, struct meta_string *out) {
    int code = reader_u64(r, &out->len);
    if (!code) code = reader_need(r, out->len);
    if (code) return code;
    out->bytes = (const char *)r->base + r->at;
    r->at += (size_t)out->len;
    return 0;
}

int reader_name(struct reader *r, uint64_t max) {
    struct meta_string name;
    int code = reader_u64(r, &name.len);
    if (code) return code;
    if (name.len == 0) return reader_fail(r, COHORT_E_FILE, "has an empty name");
    if (name.len > max)
        return reader_fail(r, COHORT_E_FILE, "has a name of %llu bytes, at most %llu are allowed",
                           (unsigned long long)name.len, (unsigned long long)max);
    code = reader_need(r, name.len);
    if (code) return code;
    name.bytes = (const char *)r->base + r->at;
    for (size_t i = 0; i < name.len;) {
        uint32_t cp;
        int length = utf8_decode(name.bytes + i, (size_t)name.len - i, &cp);
        if (length <= 0 || cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
            return reader_fail(r, COHORT_E_FILE, "has a name that is not printable UTF-8");
        i += (size_t)length;
    }
    r->at += (size_t)name.len;
    r->name = name;
    return 0;
}
