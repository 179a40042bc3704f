/* Hostile model files: each wrong header, key and tensor gives an error that names the field, and nothing else happens.
 * Wrong hyper-parameters and vocabularies are the business of `model` and `text`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/gguf.h"
#include "gguf_writer.h"

/* Opens a copy of exactly n bytes, so that a sanitizer sees every read behind the end. */
static int open_copy(const void *bytes, size_t n, cohort_error *err) {
    struct model_file *file;
    void *copy = malloc(n ? n : 1);
    if (n) memcpy(copy, bytes, n);
    memset(err, 0, sizeof(*err));
    int code = model_file_from_memory(copy, n, &file, err);
    assert_true(code == 0 ? file != NULL : file == NULL);
    model_file_close(file);
    free(copy);
    return code;
}

static void check_error_line(int code, const cohort_error *err) {
    assert_int_equal(err->code, code);
    assert_true(err->field[0] != 0);
    assert_true(err->text[0] != 0);
    assert_null(strchr(err->text, '\n'));
    assert_true(utf8_valid(err->text, strlen(err->text)));
}

/* Checks that the file is refused with this code and field and a text that contains `word`; empties the buffer. */
static void refuse(struct buf *b, int code, const char *field, const char *word) {
    cohort_error err;
    assert_int_equal(open_copy(b->data, b->len, &err), code);
    check_error_line(code, &err);
    assert_string_equal(err.field, field);
    if (!strstr(err.text, word)) fail_msg("'%s' is not in '%s'", word, err.text);
    assert_int_equal(open_copy(b->data, b->len, &(cohort_error){0}), code);
    struct model_file *file;
    assert_int_equal(model_file_from_memory(b->data, b->len, &file, NULL), code); /* err may be NULL */
    buf_free(b);
}

static void accept(struct buf *b) {
    cohort_error err;
    int code = open_copy(b->data, b->len, &err);
    if (code) fail_msg("refused: %s", err.text);
    buf_free(b);
}

/* ---- Header ---- */

static void foreign_files(void **state) {
    struct buf b = {0};
    cohort_error err;
    assert_int_equal(open_copy("", 0, &err), COHORT_E_FILE);
    check_error_line(COHORT_E_FILE, &err);
    assert_string_equal(err.field, "magic");
    buf_adds(&b, "<!DOCTYPE html>\n<html>");
    refuse(&b, COHORT_E_FILE, "magic", "'<!DO'");
    buf_adds(&b, "GG");
    refuse(&b, COHORT_E_FILE, "magic", "cut short");
    buf_adds(&b, "GGML and more");
    refuse(&b, COHORT_E_FILE, "magic", "'GGML'");
    buf_add(&b, "\0\n\xff\x1b", 4);
    refuse(&b, COHORT_E_FILE, "magic", "not 'GGUF'");
    buf_adds(&b, "FUGG\0\0\0\3");
    refuse(&b, COHORT_E_FILE, "magic", "'FUGG'");
}

static void versions(void **state) {
    static const struct {
        uint32_t version;
        int code;
    } cases[] = {{0, COHORT_E_FILE},
                 {1, COHORT_E_UNSUPPORTED},
                 {2, 0},
                 {3, 0},
                 {4, COHORT_E_UNSUPPORTED},
                 {0x02000000, COHORT_E_UNSUPPORTED},
                 {0x03000000, COHORT_E_UNSUPPORTED},
                 {UINT32_MAX, COHORT_E_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf b = {0};
        gguf_head(&b, cases[i].version, 0, 0);
        if (cases[i].code)
            refuse(&b, cases[i].code, "version", cases[i].version == 0x03000000 ? "big-endian" : "version ");
        else
            accept(&b);
    }
}

static const uint64_t wild_counts[] = {2,          1u << 16,   (1u << 16) + 1, 1u << 20,        1u << 31,
                                       1ull << 32, 1ull << 58, 1ull << 59,     1ull << 61,      1ull << 63,
                                       INT64_MAX,  UINT64_MAX, UINT64_MAX - 1, UINT64_MAX / 14, UINT64_MAX / 33 + 1};

static void counts(void **state) {
    uint64_t dims[] = {8};
    for (size_t i = 0; i < sizeof(wild_counts) / sizeof(wild_counts[0]); i++) {
        struct buf b = {0};
        gguf_head(&b, 3, wild_counts[i], 0);
        gguf_tensor(&b, "t", 1, dims, DTYPE_F32, 0);
        gguf_pad(&b, 32);
        gguf_zeros(&b, 32);
        refuse(&b, COHORT_E_FILE, wild_counts[i] == 2 ? "tensor 1" : "tensor_count",
               wild_counts[i] == 2 ? "name" : "is ");
        gguf_head(&b, 3, 0, wild_counts[i]);
        gguf_key_u32(&b, "k", 1);
        refuse(&b, COHORT_E_FILE, "key_count", "is ");
    }
    struct buf b = {0};
    gguf_head(&b, 3, 0, 0);
    accept(&b);
    gguf_head(&b, 3, 1, 1);
    gguf_key_u32(&b, "k", 1);
    gguf_tensor(&b, "t", 1, dims, DTYPE_F32, 0);
    gguf_pad(&b, 32);
    gguf_zeros(&b, 32);
    accept(&b);
    gguf_head(&b, 3, 0, 2);
    gguf_key_u32(&b, "k", 1);
    gguf_zeros(&b, 14);
    refuse(&b, COHORT_E_FILE, "key 1", "empty name");
}

/* Counts that the file could hold, but that are above the stated limits. */
static void counts_above_the_limits(void **state) {
    struct buf b = {0};
    gguf_head(&b, 3, 0, (1u << 16) + 1);
    gguf_zeros(&b, 32u << 16);
    refuse(&b, COHORT_E_FILE, "key_count", "at most 65536");
    gguf_head(&b, 3, (1u << 20) + 1, 0);
    gguf_zeros(&b, 40u << 20);
    refuse(&b, COHORT_E_FILE, "tensor_count", "at most 1048576");
}

/* ---- Keys ---- */

static void key_names(void **state) {
    static const uint64_t lengths[] = {0,          1u << 16,       1ull << 32, 1ull << 63,
                                       UINT64_MAX, UINT64_MAX - 7, 60 /* > rest */};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct buf b = {0};
        gguf_head(&b, 3, 0, 1);
        gguf_u64(&b, lengths[i]);
        gguf_zeros(&b, 40);
        refuse(&b, COHORT_E_FILE, "key 0", lengths[i] == 0 ? "empty" : lengths[i] == 60 ? "cut short" : "65535");
    }
    static const char *const unprintable[] = {"a\nb", "a\x7f", "\xff", "a\xc3", "\xc2\x9b", "\xed\xa0\x80"};
    for (size_t i = 0; i < sizeof(unprintable) / sizeof(unprintable[0]); i++) {
        struct buf b = {0};
        gguf_head(&b, 3, 0, 1);
        gguf_key_u32(&b, unprintable[i], 0);
        refuse(&b, COHORT_E_FILE, "key 0", "printable");
    }
    struct buf b = {0};
    gguf_head(&b, 3, 0, 1);
    gguf_u64(&b, 3);
    buf_add(&b, "a\0b", 3);
    gguf_u32(&b, 4);
    gguf_u32(&b, 4);
    refuse(&b, COHORT_E_FILE, "key 0", "printable");
    gguf_head(&b, 3, 0, 1);
    gguf_u64(&b, 65535);
    for (int i = 0; i < 65535; i++) buf_adds(&b, "k");
    gguf_u32(&b, 0);
    gguf_zeros(&b, 1);
    accept(&b);
}

static void duplicate_keys(void **state) {
    struct buf b = {0};
    gguf_head(&b, 3, 0, 4);
    gguf_key_u32(&b, "same", 1);
    gguf_key_u32(&b, "other", 2);
    gguf_key_u32(&b, "sam", 2);
    gguf_key_string(&b, "same", "x");
    refuse(&b, COHORT_E_FILE, "same", "twice");
}

static void value_types(void **state) {
    static const uint32_t wild[] = {13, 14, 255, 256, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        struct buf b = {0};
        gguf_head(&b, 3, 0, 1);
        gguf_key(&b, "a.key", wild[i]);
        gguf_zeros(&b, 64);
        refuse(&b, COHORT_E_FILE, "a.key", "unknown type");
        gguf_head(&b, 3, 0, 1);
        gguf_key_array(&b, "a.key", wild[i], 1);
        gguf_zeros(&b, 64);
        refuse(&b, COHORT_E_FILE, "a.key", "unknown type");
    }
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    for (uint32_t type = 0; type <= 12; type++)
        for (uint32_t missing = 0; missing < 2; missing++) {
            struct buf b = {0};
            gguf_head(&b, 3, 0, 1);
            gguf_key(&b, "a.key", type);
            gguf_zeros(&b, sizes[type] - missing);
            if (!missing)
                accept(&b);
            else
                refuse(&b, COHORT_E_FILE, "a.key", "cut short");
        }
}

static void bools(void **state) {
    for (int value = 0; value < 256; value += value < 4 ? 1 : 50) {
        struct buf b = {0};
        uint8_t byte = (uint8_t)value;
        gguf_head(&b, 3, 0, 1);
        gguf_key(&b, "flag", 7);
        buf_add(&b, &byte, 1);
        if (value < 2)
            accept(&b);
        else
            refuse(&b, COHORT_E_FILE, "flag", "bool");
    }
    struct buf b = {0};
    gguf_head(&b, 3, 0, 1);
    gguf_key_array(&b, "flags", 7, 4);
    buf_add(&b, "\0\1\1\2", 4);
    refuse(&b, COHORT_E_FILE, "flags", "byte is 2");
}

static void strings_without_end(void **state) {
    static const uint64_t lengths[] = {5, 1u << 31, 1ull << 63, UINT64_MAX, UINT64_MAX - 50};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct buf b = {0};
        gguf_head(&b, 3, 0, 1);
        gguf_key(&b, "text", 8);
        gguf_u64(&b, lengths[i]);
        buf_adds(&b, "four");
        refuse(&b, COHORT_E_FILE, "text", "cut short");
        gguf_head(&b, 3, 0, 1);
        gguf_key_array(&b, "texts", 8, 2);
        gguf_string(&b, "good");
        gguf_u64(&b, lengths[i]);
        buf_adds(&b, "four");
        refuse(&b, COHORT_E_FILE, "texts", "cut short");
    }
}

/* So many that they are kept in a mapping of their own: whole, without memory for it, and cut short in the middle. */
static void many_strings(void **state) {
    enum { MANY = 100000 };
    struct buf b = {0};
    cohort_error err;
    gguf_head(&b, 3, 0, 1);
    gguf_key_array(&b, "texts", 8, MANY);
    for (int i = 0; i < MANY - 1; i++) gguf_string(&b, i % 3 ? "" : "abc");
    gguf_u64(&b, 3); /* the last string, whose bytes follow */
    gguf_zeros(&b, 3);
    int code = COHORT_E_MEMORY;
    for (uint64_t nth = 1; code == COHORT_E_MEMORY; nth++) {
        mem_fail_at(nth, 0);
        code = open_copy(b.data, b.len, &err);
        mem_fail_at(0, 0);
    }
    assert_int_equal(code, 0);
    b.len--;
    refuse(&b, COHORT_E_FILE, "texts", "cut short");
}

static void array_counts(void **state) {
    for (uint32_t element = 0; element <= 12; element++)
        for (size_t i = 0; i < sizeof(wild_counts) / sizeof(wild_counts[0]); i++) {
            struct buf b = {0};
            gguf_head(&b, 3, 0, 1);
            gguf_key_array(&b, "list", element, wild_counts[i]);
            uint64_t before = mem_count();
            refuse(&b, COHORT_E_FILE, "list", "cut short");
            assert_true(mem_count() - before < 20);
        }
    for (uint32_t element = 0; element <= 12; element++) {
        struct buf b = {0};
        gguf_head(&b, 3, 0, 1);
        gguf_key_array(&b, "list", element, 0);
        accept(&b);
    }
}

static void nested_arrays(void **state) {
    for (int depth = 1; depth <= 1000; depth = depth < 6 ? depth + 1 : depth * 10) {
        struct buf b = {0};
        gguf_head(&b, 3, 0, 1);
        gguf_key_array(&b, "deep", 9, 1);
        for (int i = 1; i < depth; i++) {
            gguf_u32(&b, 9);
            gguf_u64(&b, 1);
        }
        gguf_u32(&b, 0);
        gguf_u64(&b, 3);
        gguf_zeros(&b, 3);
        if (depth <= 4)
            accept(&b);
        else
            refuse(&b, COHORT_E_FILE, "deep", "nests");
    }
    struct buf b = {0};
    gguf_head(&b, 3, 0, 2);
    gguf_key_array(&b, "mixed", 9, 3);
    gguf_u32(&b, 8); /* strings */
    gguf_u64(&b, 2);
    gguf_string(&b, "a");
    gguf_string(&b, "");
    gguf_u32(&b, 5); /* integers */
    gguf_u64(&b, 2);
    gguf_zeros(&b, 8);
    gguf_u32(&b, 9); /* nothing */
    gguf_u64(&b, 0);
    gguf_key_u32(&b, "behind", 7);
    accept(&b);
    gguf_head(&b, 3, 0, 1);
    gguf_key_array(&b, "mixed", 9, 1);
    gguf_u32(&b, 8);
    gguf_u64(&b, UINT64_MAX);
    gguf_string(&b, "a");
    refuse(&b, COHORT_E_FILE, "mixed", "cut short");
    gguf_head(&b, 3, 0, 1);
    gguf_key_array(&b, "mixed", 9, 1);
    gguf_u32(&b, 77);
    gguf_u64(&b, 1);
    refuse(&b, COHORT_E_FILE, "mixed", "unknown type");
}

/* ---- Tensors ---- */

/* A file with one tensor and `data` bytes behind it. */
static struct buf one_tensor(const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset,
                             size_t data) {
    struct buf b = {0};
    gguf_head(&b, 3, 1, 0);
    gguf_tensor(&b, name, n_dims, dims, type, offset);
    gguf_pad(&b, 32);
    gguf_zeros(&b, data);
    return b;
}

static void tensor_names(void **state) {
    uint64_t dims[] = {8};
    char name[300];
    memset(name, 'n', sizeof(name));
    name[255] = 0;
    struct buf b = one_tensor(name, 1, dims, DTYPE_F32, 0, 32);
    accept(&b);
    name[255] = 'n';
    name[256] = 0;
    b = one_tensor(name, 1, dims, DTYPE_F32, 0, 32);
    refuse(&b, COHORT_E_FILE, "tensor 0", "at most 255");
    b = one_tensor("", 1, dims, DTYPE_F32, 0, 32);
    refuse(&b, COHORT_E_FILE, "tensor 0", "empty name");
    b = one_tensor("a\tb", 1, dims, DTYPE_F32, 0, 32);
    refuse(&b, COHORT_E_FILE, "tensor 0", "printable");
    gguf_head(&b, 3, 3, 0);
    gguf_tensor(&b, "same", 1, dims, DTYPE_F32, 0);
    gguf_tensor(&b, "samf", 1, dims, DTYPE_F32, 32);
    gguf_tensor(&b, "same", 1, dims, DTYPE_F32, 64);
    gguf_pad(&b, 32);
    gguf_zeros(&b, 96);
    refuse(&b, COHORT_E_FILE, "same", "twice");
}

static void tensor_dimensions(void **state) {
    static const uint64_t ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (uint32_t n = 0; n <= 9; n++) {
        struct buf b = one_tensor("t", n, ones, DTYPE_F32, 0, 32);
        if (n >= 1 && n <= 4)
            accept(&b);
        else
            refuse(&b, COHORT_E_FILE, "t", "dimensions");
    }
    struct buf b = {0};
    gguf_head(&b, 3, 1, 0);
    gguf_string(&b, "t");
    gguf_u32(&b, UINT32_MAX);
    gguf_zeros(&b, 100);
    refuse(&b, COHORT_E_FILE, "t", "4294967295 dimensions");
    static const struct {
        uint64_t dims[4];
        const char *word;
    } wild[] = {
        {{0, 1, 1, 1}, "dimension 0 of 0"},
        {{8, 0, 1, 1}, "dimension 1 of 0"},
        {{8, 1, 1, 0}, "dimension 3 of 0"},
        {{UINT64_MAX, 1, 1, 1}, "2^47"},
        {{UINT64_MAX, UINT64_MAX, 1, 1}, "2^47"},
        {{INT64_MAX, 2, 1, 1}, "2^47"},
        {{(1ull << 47) + 1, 1, 1, 1}, "2^47"},
        {{(1ull << 42) + 1, 33, 1, 1}, "2^47"},
        {{1ull << 32, 1ull << 32, 1, 1}, "2^47"},                   /* the product wraps to 0 */
        {{1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16}, "2^47"}, /* so does this one */
        {{0xfffffffffffffff1u, 0xeeeeeeeeeeeeeeefu, 1, 1}, "2^47"}, /* wraps to 1 */
        {{0x8000000000000001u, 1ull << 63, 2, 1}, "2^47"},
        {{1ull << 40, 1, 1, 1}, "holds only"},
        {{1ull << 47, 1, 1, 1}, "holds only"},
    };
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        b = one_tensor("t", 4, wild[i].dims, DTYPE_F32, 0, 64);
        refuse(&b, COHORT_E_FILE, "t", wild[i].word);
    }
}

static void tensor_blocks(void **state) {
    for (uint32_t type = 0; type < DTYPE_END; type++) {
        const struct dtype_info *info = dtype_info(type);
        if (!info) continue;
        uint64_t dims[] = {info->block_elements * 2, 3};
        struct buf b = one_tensor("t", 2, dims, type, 0, info->block_bytes * 6);
        accept(&b);
        b = one_tensor("t", 2, dims, type, 0, info->block_bytes * 6 - 1);
        refuse(&b, COHORT_E_FILE, "t", "holds only");
        if (info->block_elements == 1) continue;
        static const int off[] = {1, -1, 16};
        for (int i = 0; i < 3; i++) {
            /* The rows must be whole blocks, not only the sum. */
            uint64_t odd[] = {info->block_elements * 2 + (uint64_t)off[i], info->block_elements};
            b = one_tensor("t", 2, odd, type, 0, 1 << 20);
            refuse(&b, COHORT_E_FILE, "t", "multiple");
        }
    }
}

static void tensor_types(void **state) {
    uint64_t dims[] = {256};
    static const uint32_t gaps[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 63};
    for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
        struct buf b = one_tensor("t", 1, dims, gaps[i], 0, 1 << 12);
        refuse(&b, COHORT_E_UNSUPPORTED, "t", "unknown type");
    }
    static const uint32_t wild[] = {64, 255, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        struct buf b = one_tensor("t", 1, dims, wild[i], 0, 1 << 12);
        refuse(&b, COHORT_E_FILE, "t", "unknown type");
    }
}

static void tensor_offsets(void **state) {
    uint64_t dims[] = {8};
    static const struct {
        uint64_t offset;
        const char *word;
    } wild[] = {{1, "alignment"},
                {31, "alignment"},
                {UINT64_MAX, "alignment"},
                {64, "holds only"},
                {96, "holds only"},
                {1ull << 63, "holds only"},
                {UINT64_MAX - 31, "holds only"}, /* offset + 32 wraps to 0 */
                {UINT64_MAX - 63, "holds only"}};
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        struct buf b = one_tensor("t", 1, dims, DTYPE_F32, wild[i].offset, 64);
        refuse(&b, COHORT_E_FILE, "t", wild[i].word);
    }
    struct buf b = one_tensor("t", 1, dims, DTYPE_F32, 32, 64);
    accept(&b);
    b = one_tensor("t", 1, dims, DTYPE_F32, 32, 63);
    refuse(&b, COHORT_E_FILE, "t", "holds only");
    gguf_head(&b, 3, 1, 0); /* the file ends inside the padding before the data */
    gguf_tensor(&b, "t", 1, dims, DTYPE_F32, 0);
    refuse(&b, COHORT_E_FILE, "t", "holds only 0 bytes");
}

static void tensors_that_overlap(void **state) {
    uint64_t big[] = {16}, small[] = {1};
    static const struct {
        uint64_t offsets[3];
        int good;
    } cases[] = {{{0, 64, 128}, 1}, {{128, 0, 64}, 1}, {{256, 512, 0}, 1}, {{0, 0, 128}, 0},
                 {{0, 32, 128}, 0}, {{32, 0, 128}, 0}, {{128, 64, 96}, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf b = {0};
        gguf_head(&b, 3, 3, 0);
        for (int t = 0; t < 3; t++)
            gguf_tensor(&b, (char[]){(char)('a' + t), 0}, 1, big, DTYPE_F32, cases[i].offsets[t]);
        gguf_pad(&b, 32);
        gguf_zeros(&b, 1024);
        if (cases[i].good) {
            accept(&b);
            continue;
        }
        cohort_error err;
        assert_int_equal(open_copy(b.data, b.len, &err), COHORT_E_FILE);
        check_error_line(COHORT_E_FILE, &err);
        assert_non_null(strstr(err.text, "overlaps tensor '"));
        buf_free(&b);
    }
    struct buf b = {0};
    gguf_head(&b, 3, 2, 0);
    gguf_tensor(&b, "small", 1, small, DTYPE_I8, 32);
    gguf_tensor(&b, "big", 1, big, DTYPE_F32, 0);
    gguf_pad(&b, 32);
    gguf_zeros(&b, 64);
    refuse(&b, COHORT_E_FILE, "small", "overlaps tensor 'big'");
}

static void alignments(void **state) {
    static const uint32_t bad[] = {0, 1, 2, 3, 4, 12, 33, 1u << 21, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct buf b = {0};
        gguf_head(&b, 3, 0, 1);
        gguf_key_u32(&b, "general.alignment", bad[i]);
        refuse(&b, COHORT_E_FILE, "general.alignment", "power of two");
    }
    uint64_t dims[] = {8};
    for (uint32_t alignment = 8; alignment <= 1u << 20; alignment *= 2) {
        struct buf b = {0};
        gguf_head(&b, 3, 1, 1);
        gguf_key_u32(&b, "general.alignment", alignment);
        gguf_tensor(&b, "t", 1, dims, DTYPE_F32, alignment);
        gguf_pad(&b, alignment);
        gguf_zeros(&b, alignment + 32);
        accept(&b);
    }
    static const struct {
        uint32_t type;
        size_t bytes;
    } wrong[] = {{6, 4}, {7, 1}, {8, 8}, {9, 12}, {12, 8}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct buf b = {0};
        gguf_head(&b, 3, 0, 1);
        gguf_key(&b, "general.alignment", wrong[i].type);
        gguf_zeros(&b, wrong[i].bytes);
        refuse(&b, COHORT_E_FILE, "general.alignment", "expected an integer");
    }
}

/* ---- Everything at once ---- */

/* A small file with each kind of thing in it. */
static struct buf rich_file(void) {
    uint64_t matrix[] = {32, 2}, vector[] = {8};
    struct buf b = {0};
    gguf_head(&b, 3, 3, 7);
    gguf_key_string(&b, "general.architecture", "test");
    gguf_key_u32(&b, "general.alignment", 64);
    gguf_key(&b, "flag", 7);
    buf_add(&b, "\1", 1);
    gguf_key_array(&b, "words", 8, 2);
    gguf_string(&b, "one");
    gguf_string(&b, "");
    gguf_key_array(&b, "nested", 9, 1);
    gguf_u32(&b, 2);
    gguf_u64(&b, 3);
    gguf_zeros(&b, 6);
    gguf_key_array(&b, "floats", 6, 2);
    gguf_zeros(&b, 8);
    gguf_key(&b, "large", 10);
    gguf_u64(&b, UINT64_MAX);
    gguf_tensor(&b, "token_embd.weight", 2, matrix, DTYPE_Q8_0, 0);
    gguf_tensor(&b, "output_norm.weight", 1, vector, DTYPE_F32, 128);
    gguf_tensor(&b, "x", 1, vector, DTYPE_I8, 192);
    gguf_pad(&b, 64);
    gguf_zeros(&b, 200);
    return b;
}

static void every_cut_is_refused(void **state) {
    struct buf b = rich_file();
    cohort_error err;
    assert_int_equal(open_copy(b.data, b.len, &err), 0);
    for (size_t n = 0; n < b.len; n++) {
        assert_int_equal(open_copy(b.data, n, &err), COHORT_E_FILE);
        check_error_line(COHORT_E_FILE, &err);
    }
    buf_free(&b);
}

static void every_changed_byte_is_survived(void **state) {
    struct buf b = rich_file();
    for (size_t at = 0; at < b.len - 200; at++) {
        char old = b.data[at];
        static const uint8_t masks[] = {0x01, 0x08, 0x40, 0x80, 0xff};
        for (size_t i = 0; i < sizeof(masks); i++) {
            b.data[at] = (char)(old ^ masks[i]);
            cohort_error err;
            int code = open_copy(b.data, b.len, &err);
            if (code) check_error_line(code, &err);
        }
        b.data[at] = old;
    }
    buf_free(&b);
}

static void every_failed_allocation_is_survived(void **state) {
    struct buf b = rich_file();
    uint64_t failures = 0;
    for (int sticky = 0; sticky < 2; sticky++)
        for (uint64_t nth = 1;; nth++) {
            struct model_file *file;
            cohort_error err = {0};
            mem_fail_at(nth, sticky);
            int code = model_file_from_memory(b.data, b.len, &file, &err);
            mem_fail_at(0, 0);
            if (code == 0) {
                model_file_close(file);
                break;
            }
            failures++;
            assert_int_equal(code, COHORT_E_MEMORY);
            assert_int_equal(err.code, COHORT_E_MEMORY);
            assert_null(file);
        }
    assert_true(failures >= 20);
    buf_free(&b);
}

/* ---- Time ---- */

/* Numbers 0..n-1 in an order that is neither ascending nor descending. */
static uint32_t shuffled(uint32_t i, uint32_t n) { return (uint32_t)((uint64_t)i * 7919 % n); }

static void large_headers_load_in_time(void **state) {
    enum { KEYS = 60000, TENSORS = 200000, WORDS = 300000 };
    uint64_t dims[] = {1};
    char name[120];
    struct buf b = {0};
    gguf_head(&b, 3, TENSORS, KEYS);
    for (uint32_t i = 0; i < KEYS - 1; i++) {
        snprintf(name, sizeof(name), "a.long.common.beginning.of.all.the.keys.%u", shuffled(i, KEYS));
        gguf_key(&b, name, 8);
        gguf_string(&b, name);
    }
    gguf_key_array(&b, "words", 8, WORDS);
    for (uint32_t i = 0; i < WORDS; i++) gguf_string(&b, "word");
    for (uint32_t i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof(name), "a.long.common.beginning.of.all.the.names.%u", shuffled(i, TENSORS));
        gguf_tensor(&b, name, 1, dims, DTYPE_I8, 32 * (uint64_t)shuffled(i + 5, TENSORS));
    }
    gguf_pad(&b, 32);
    gguf_zeros(&b, 32 * (size_t)TENSORS);
    struct model_file *file;
    uint64_t start = clock_us();
    cohort_error err;
    int code = model_file_from_memory(b.data, b.len, &file, &err);
    uint64_t took = clock_us() - start;
    if (code) fail_msg("%s", err.text);
    print_message("%d keys, %d tensors, %d words: %.3f s\n", KEYS, TENSORS, WORDS, (double)took / 1e6);
    assert_true(took < 10 * 1000000u); /* a quadratic step would take minutes */
    assert_non_null(model_file_tensor(file, "a.long.common.beginning.of.all.the.names.199999"));
    assert_null(model_file_tensor(file, "a.long.common.beginning.of.all.the.names.200000"));
    model_file_close(file);
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(foreign_files),
        cmocka_unit_test(versions),
        cmocka_unit_test(counts),
        cmocka_unit_test(counts_above_the_limits),
        cmocka_unit_test(key_names),
        cmocka_unit_test(duplicate_keys),
        cmocka_unit_test(value_types),
        cmocka_unit_test(bools),
        cmocka_unit_test(strings_without_end),
        cmocka_unit_test(many_strings),
        cmocka_unit_test(array_counts),
        cmocka_unit_test(nested_arrays),
        cmocka_unit_test(tensor_names),
        cmocka_unit_test(tensor_dimensions),
        cmocka_unit_test(tensor_blocks),
        cmocka_unit_test(tensor_types),
        cmocka_unit_test(tensor_offsets),
        cmocka_unit_test(tensors_that_overlap),
        cmocka_unit_test(alignments),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(every_changed_byte_is_survived),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(large_headers_load_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
