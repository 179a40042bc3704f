/* Reading typed values out of a metadata view. Pure. The bytes are little-endian and may lie unaligned. */
#include "base/meta.h"

#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "file bytes are read in place: little-endian hosts only");

const struct meta_entry *meta_find(const struct meta *meta, const char *key) {
    size_t len = strlen(key);
    for (size_t i = 0; i < meta->n; i++) {
        const struct meta_string *k = &meta->entries[i].key;
        if (k->len == len && memcmp(k->bytes, key, len) == 0) return &meta->entries[i];
    }
    return NULL;
}

int meta_is_integer(enum meta_type type) {
    switch (type) {
    case META_U8:
    case META_I8:
    case META_U16:
    case META_I16:
    case META_U32:
    case META_I32:
    case META_U64:
    case META_I64:
        return 1;
    default:
        return 0;
    }
}

const char *meta_type_name(enum meta_type type) {
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (size_t)type < sizeof(names) / sizeof(names[0]) ? names[type] : "unknown";
}

size_t meta_type_size(enum meta_type type) {
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return (size_t)type < sizeof(sizes) ? sizes[type] : 0;
}

/* Type of an entry's elements, scalar or array. */
static enum meta_type value_type(const struct meta_entry *entry) {
    return entry->type == META_ARRAY ? entry->element : entry->type;
}

static int is_unsigned(enum meta_type type) {
    return type == META_U8 || type == META_U16 || type == META_U32 || type == META_U64 || type == META_BOOL;
}

/* The bits of element i, sign-extended for signed types; a float's own bits. */
static uint64_t element_bits(const struct meta_entry *entry, uint64_t i) {
    enum meta_type type = value_type(entry);
    size_t size = meta_type_size(type);
    assert(size > 0 && i < entry->count);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)entry->data + i * size, size);
    if (!is_unsigned(type) && meta_is_integer(type) && size < 8) {
        uint64_t sign = 1ull << (8 * size - 1);
        bits = (bits ^ sign) - sign;
    }
    return bits;
}

int64_t meta_entry_i64(const struct meta_entry *entry, uint64_t i) {
    uint64_t bits = element_bits(entry, i);
    assert(meta_is_integer(value_type(entry)) || value_type(entry) == META_BOOL);
    /* Above INT64_MAX nothing in a model file means anything; saturating keeps such a value large, not negative. */
    if (is_unsigned(value_type(entry)) && bits > INT64_MAX) return INT64_MAX;
    return (int64_t)bits;
}

double meta_entry_f64(const struct meta_entry *entry, uint64_t i) {
    uint64_t bits = element_bits(entry, i);
    enum meta_type type = value_type(entry);
    if (type == META_F32) {
        uint32_t low = (uint32_t)bits;
        float value;
        memcpy(&value, &low, sizeof(value));
        return value;
    }
    if (type == META_F64) {
        double value;
        memcpy(&value, &bits, sizeof(value));
        return value;
    }
    return is_unsigned(type) ? (double)bits : (double)(int64_t)bits;
}

const struct meta_string *meta_entry_string(const struct meta_entry *entry, uint64_t i) {
    assert(value_type(entry) == META_STRING && i < entry->count);
    return (const struct meta_string *)entry->data + i;
}

static int wrong_type(const struct meta_entry *entry, const char *key, const char *wanted, cohort_error *err) {
    return err_set(err, COHORT_E_FILE, key, "key '%s' has type %s, expected %s", key, meta_type_name(entry->type),
                   wanted);
}

int meta_u64(const struct meta *meta, const char *key, uint64_t *out, cohort_error *err) {
    const struct meta_entry *entry = meta_find(meta, key);
    if (!entry) return COHORT_E_NOT_FOUND;
    if (!meta_is_integer(entry->type)) return wrong_type(entry, key, "an integer", err);
    uint64_t bits = element_bits(entry, 0);
    if (!is_unsigned(entry->type) && bits > INT64_MAX)
        return err_set(err, COHORT_E_FILE, key, "key '%s' is negative: %lld", key, (long long)bits);
    *out = bits;
    return 0;
}

int meta_u32(const struct meta *meta, const char *key, uint32_t *out, cohort_error *err) {
    uint64_t value;
    int code = meta_u64(meta, key, &value, err);
    if (code) return code;
    if (value > UINT32_MAX)
        return err_set(err, COHORT_E_FILE, key, "key '%s' is too large: %llu", key, (unsigned long long)value);
    *out = (uint32_t)value;
    return 0;
}

int meta_f32(const struct meta *meta, const char *key, float *out, cohort_error *err) {
    const struct meta_entry *entry = meta_find(meta, key);
    if (!entry) return COHORT_E_NOT_FOUND;
    if (entry->type != META_F32 && entry->type != META_F64) return wrong_type(entry, key, "a float", err);
    float value = (float)meta_entry_f64(entry, 0);
    if (!__builtin_isfinite(value)) return err_set(err, COHORT_E_FILE, key, "key '%s' is not a finite number", key);
    *out = value;
    return 0;
}

int meta_bool(const struct meta *meta, const char *key, int *out, cohort_error *err) {
    const struct meta_entry *entry = meta_find(meta, key);
    if (!entry) return COHORT_E_NOT_FOUND;
    if (entry->type != META_BOOL) return wrong_type(entry, key, "bool", err);
    uint64_t bits = element_bits(entry, 0);
    if (bits > 1)
        return err_set(err, COHORT_E_FILE, key, "key '%s' is a bool but its byte is %llu", key,
                       (unsigned long long)bits);
    *out = (int)bits;
    return 0;
}

int meta_string(const struct meta *meta, const char *key, struct meta_string *out, cohort_error *err) {
    const struct meta_entry *entry = meta_find(meta, key);
    if (!entry) return COHORT_E_NOT_FOUND;
    if (entry->type != META_STRING) return wrong_type(entry, key, "string", err);
    *out = *meta_entry_string(entry, 0);
    return 0;
}
