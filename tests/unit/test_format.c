/* Good model files: what the reader finds in them, shards, files on disk, the report. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "format/gguf.h"
#include "gguf_writer.h"

static char folder[64]; /* for this program's files */

static int make_folder(void **state) {
    snprintf(folder, sizeof(folder), "/tmp/cohort_format_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) { return rmdir(folder); }

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void save(const char *name, struct buf *b) {
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->len, f), b->len);
    fclose(f);
    buf_free(b);
}

static struct model_file *open_good(const char *path) {
    struct model_file *file;
    cohort_error err;
    if (model_file_open(path, &file, &err)) fail_msg("%s", err.text);
    return file;
}

/* Opening fails with this code and field, and the text names the file and says `word`. */
static void refuse(const char *name, int code, const char *field, const char *file_named, const char *word) {
    struct model_file *file;
    cohort_error err = {0};
    assert_int_equal(model_file_open(path_of(name), &file, &err), code);
    assert_null(file);
    assert_string_equal(err.field, field);
    assert_int_equal(strncmp(err.text, path_of(file_named), strlen(path_of(file_named))), 0);
    if (!strstr(err.text, word)) fail_msg("'%s' is not in '%s'", word, err.text);
}

/* ---- One file ---- */

/* Every metadata type as a scalar and as an array, and a tensor of every element type. */
static struct buf all_types(uint32_t version) {
    struct buf b = {0};
    uint64_t offset = 0, tensors = 0;
    for (uint32_t type = 0; type < DTYPE_END; type++) tensors += dtype_info(type) != NULL;
    gguf_head(&b, version, tensors, 25);
    for (uint32_t type = 0; type <= META_F64; type++) {
        char key[32];
        size_t size = meta_type_size(type);
        if (type == META_ARRAY) continue;
        snprintf(key, sizeof(key), "one.%u", type);
        gguf_key(&b, key, type);
        for (int i = 0; i < 4; i++) {
            if (i == 1) {
                snprintf(key, sizeof(key), "list.%u", type);
                gguf_key_array(&b, key, type, 3);
            }
            uint64_t value = type == META_F32 ? 0xbfc00000 : type == META_F64 ? 0xbff8000000000000 : 0x8182838485868788;
            if (type == META_BOOL) value = i != 2;
            if (type == META_STRING)
                gguf_string(&b, (const char *[]){"zero", "one", "", "three"}[i]);
            else if (buf_add(&b, &value, size))
                abort();
        }
    }
    gguf_key_array(&b, "nested", META_ARRAY, 1);
    gguf_u32(&b, META_U8);
    gguf_u64(&b, 1);
    gguf_zeros(&b, 1);
    for (uint32_t type = 0; type < DTYPE_END; type++) {
        const struct dtype_info *info = dtype_info(type);
        if (!info) continue;
        char name[32];
        snprintf(name, sizeof(name), "t.%s", info->name);
        gguf_tensor(&b, name, 2, (uint64_t[]){info->block_elements, 2}, type, offset);
        offset += (2 * info->block_bytes + 31) / 32 * 32;
    }
    gguf_pad(&b, 32);
    size_t start = b.len;
    for (uint64_t i = 0; i < offset; i++)
        if (buf_add(&b, &(char){(char)(start + i)}, 1)) abort();
    return b;
}

static void check_all_types(const struct model_file *file, const char *base) {
    const struct meta *meta = model_file_meta(file);
    assert_int_equal(meta->n, 25);
    static const int64_t integers[] = {0x88,
                                       -0x78,
                                       0x8788,
                                       -0x7878,
                                       0x85868788,
                                       -0x7a797878,
                                       0,
                                       0,
                                       0,
                                       0,
                                       INT64_MAX /* saturates */,
                                       -0x7e7d7c7b7a797878};
    for (uint32_t type = 0; type <= META_F64; type++) {
        char key[32];
        if (type == META_ARRAY) continue;
        snprintf(key, sizeof(key), "one.%u", type);
        const struct meta_entry *one = meta_find(meta, key);
        snprintf(key, sizeof(key), "list.%u", type);
        const struct meta_entry *list = meta_find(meta, key);
        assert_int_equal(one->type, type);
        assert_int_equal(one->count, 1);
        assert_int_equal(list->type, META_ARRAY);
        assert_int_equal(list->element, type);
        assert_int_equal(list->count, 3);
        if (type == META_STRING) {
            assert_int_equal(meta_entry_string(one, 0)->len, 4);
            assert_int_equal(meta_entry_string(list, 1)->len, 0);
            assert_memory_equal(meta_entry_string(list, 2)->bytes, "three", 5);
            assert_int_equal((uintptr_t)list->data % 8, 0);
        } else if (type == META_BOOL) {
            assert_int_equal(meta_entry_i64(list, 0), 1);
            assert_int_equal(meta_entry_i64(list, 1), 0);
        } else if (type == META_F32 || type == META_F64) {
            assert_true(meta_entry_f64(one, 0) == -1.5 && meta_entry_f64(list, 2) == -1.5);
        } else {
            assert_true(meta_entry_i64(one, 0) == integers[type] && meta_entry_i64(list, 2) == integers[type]);
        }
    }
    const struct meta_entry *nested = meta_find(meta, "nested");
    assert_int_equal(nested->element, META_ARRAY);
    assert_int_equal(nested->count, 1);
    size_t i = 0;
    for (uint32_t type = 0; type < DTYPE_END; type++) {
        const struct dtype_info *info = dtype_info(type);
        if (!info) continue;
        char name[32];
        snprintf(name, sizeof(name), "t.%s", info->name);
        const struct file_tensor *tensor = model_file_tensor(file, name);
        assert_ptr_equal(tensor, model_file_tensor_at(file, i++));
        assert_string_equal(tensor->name, name);
        assert_int_equal(tensor->type, type);
        assert_int_equal(tensor->n_dims, 2);
        assert_int_equal(tensor->dims[0], info->block_elements);
        assert_int_equal(tensor->dims[1], 2);
        assert_int_equal(tensor->dims[2], 1);
        assert_int_equal(tensor->dims[3], 1);
        assert_int_equal(tensor->bytes, 2 * info->block_bytes);
        assert_int_equal(tensor->shard, 0);
        /* The data's bytes were made from their places in the file. */
        const char *data = tensor->data;
        if (base) assert_int_equal((data - base) % 32, 0);
        for (uint64_t k = 1; k < tensor->bytes; k++) assert_int_equal(data[k], (char)(data[0] + (char)k));
    }
    assert_int_equal(model_file_tensor_count(file), i);
    assert_null(model_file_tensor_at(file, i));
    assert_null(model_file_tensor(file, "t.Q9_9"));
    assert_null(model_file_tensor(file, ""));
}

static void every_type_is_read(void **state) {
    for (uint32_t version = 2; version <= 3; version++) {
        struct buf b = all_types(version);
        struct model_file *file;
        assert_int_equal(model_file_from_memory(b.data, b.len, &file, NULL), 0);
        assert_int_equal(model_file_version(file), version);
        assert_int_equal(model_file_alignment(file), 32);
        assert_int_equal(model_file_shards(file), 1);
        assert_int_equal(model_file_bytes(file), b.len);
        check_all_types(file, b.data);
        const struct file_tensor *first = model_file_tensor_at(file, 0);
        assert_int_equal(*(const char *)first->data, (char)((const char *)first->data - b.data));
        model_file_release(file); /* not our memory: must stay */
        model_file_close(file);
        size_t size = b.len;
        save("all.gguf", &b);
        file = open_good(path_of("all.gguf"));
        assert_int_equal(model_file_bytes(file), size);
        check_all_types(file, NULL);
        model_file_close(file);
        unlink(path_of("all.gguf"));
    }
    model_file_close(NULL);
}

static void data_begins_at_the_alignment(void **state) {
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 2) {
        struct buf b = {0};
        struct model_file *file;
        gguf_head(&b, 3, 2, 1);
        gguf_key_u32(&b, "general.alignment", alignment);
        gguf_tensor(&b, "x", 1, (uint64_t[]){1}, DTYPE_I32, alignment);
        gguf_tensor(&b, "y", 1, (uint64_t[]){1}, DTYPE_I32, 0);
        gguf_pad(&b, alignment);
        gguf_u32(&b, 1111);
        gguf_pad(&b, alignment);
        gguf_u32(&b, 2222);
        assert_int_equal(model_file_from_memory(b.data, b.len, &file, NULL), 0);
        assert_int_equal(model_file_alignment(file), alignment);
        assert_memory_equal(model_file_tensor(file, "y")->data, &(int32_t){1111}, 4);
        assert_memory_equal(model_file_tensor(file, "x")->data, &(int32_t){2222}, 4);
        model_file_close(file);
        buf_free(&b);
    }
}

static void released_pages_come_back(void **state) {
    enum { BYTES = 5 * 65536 + 123 };
    struct buf b = {0};
    gguf_head(&b, 3, 2, 0);
    gguf_tensor(&b, "big", 1, (uint64_t[]){BYTES}, DTYPE_I8, 0);
    gguf_tensor(&b, "small", 1, (uint64_t[]){5}, DTYPE_I8, (BYTES + 31) / 32 * 32);
    gguf_pad(&b, 32);
    for (uint32_t i = 0; i < BYTES; i++)
        if (buf_add(&b, &(char){(char)(i * 2654435761u >> 24)}, 1)) abort();
    gguf_pad(&b, 32);
    gguf_zeros(&b, 32);
    struct model_file *file;
    assert_int_equal(model_file_from_memory(b.data, b.len, &file, NULL), 0);
    model_file_release(file); /* memory that no file can give back: left alone */
    model_file_close(file);
    save("pages.gguf", &b);
    file = open_good(path_of("pages.gguf"));
    const struct file_tensor *big = model_file_tensor(file, "big");
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < BYTES; i++)
            assert_int_equal(((const char *)big->data)[i], (char)(i * 2654435761u >> 24));
        model_file_release(file);
    }
    model_file_close(file);
    unlink(path_of("pages.gguf"));
}

static void odd_paths(void **state) {
    struct buf b = {0};
    refuse("absent.gguf", COHORT_E_IO, "file", "absent.gguf", "No such file");
    mkdir(path_of("dir.gguf"), 0700);
    refuse("dir.gguf", COHORT_E_FILE, "file", "dir.gguf", "not a regular file");
    rmdir(path_of("dir.gguf"));
    mkfifo(path_of("pipe.gguf"), 0600);
    refuse("pipe.gguf", COHORT_E_FILE, "file", "pipe.gguf", "not a regular file");
    unlink(path_of("pipe.gguf"));
    buf_add(&b, "", 0);
    save("empty.gguf", &b);
    refuse("empty.gguf", COHORT_E_FILE, "magic", "empty.gguf", "empty");
    unlink(path_of("empty.gguf"));
    buf_adds(&b, "<html>Sign in to download</html>");
    save("page.gguf", &b);
    refuse("page.gguf", COHORT_E_FILE, "magic", "page.gguf", "'<htm'");
    unlink(path_of("page.gguf"));
    b = all_types(3);
    save("cut.gguf", &b);
    model_file_close(open_good(path_of("cut.gguf")));
    assert_int_equal(truncate(path_of("cut.gguf"), 4000), 0);
    refuse("cut.gguf", COHORT_E_FILE, "t.Q5_K", "cut.gguf", "the file holds only");
    unlink(path_of("cut.gguf"));
}

/* ---- Shards ---- */

struct shard_plan {
    uint32_t number, count, total; /* UINT32_MAX: the key is left out */
    const char *tensor;
};

static void save_shard(const char *name, struct shard_plan plan) {
    struct buf b = {0};
    uint32_t keys = 1 + (plan.number != UINT32_MAX) + (plan.count != UINT32_MAX) + (plan.total != UINT32_MAX);
    gguf_head(&b, 3, plan.tensor ? 1 : 0, keys);
    if (plan.number != UINT32_MAX) {
        gguf_key(&b, "split.no", META_U16);
        buf_add(&b, &(uint16_t){(uint16_t)plan.number}, 2);
    }
    if (plan.count != UINT32_MAX) gguf_key_u32(&b, "split.count", plan.count);
    if (plan.total != UINT32_MAX) gguf_key_u32(&b, "split.tensors.count", plan.total);
    gguf_key_array(&b, "words", META_STRING, 1);
    gguf_string(&b, name);
    if (plan.tensor) gguf_tensor(&b, plan.tensor, 1, (uint64_t[]){4}, DTYPE_F32, 0);
    gguf_pad(&b, 32);
    for (int i = 0; plan.tensor && i < 4; i++) gguf_u32(&b, plan.number * 10 + (uint32_t)i);
    save(name, &b);
}

static const char *const shard_names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};

static void save_shards(const char *third_tensor) {
    save_shard(shard_names[0], (struct shard_plan){0, 3, 2, NULL});
    save_shard(shard_names[1], (struct shard_plan){1, 3, 2, "second"});
    save_shard(shard_names[2], (struct shard_plan){2, 3, UINT32_MAX, third_tensor});
}

static void remove_shards(void) {
    for (int i = 0; i < 3; i++) unlink(path_of(shard_names[i]));
}

static void shards_are_joined(void **state) {
    save_shards("first");
    struct model_file *file = open_good(path_of(shard_names[0]));
    assert_int_equal(model_file_shards(file), 3);
    assert_int_equal(model_file_tensor_count(file), 2);
    assert_string_equal(model_file_tensor_at(file, 0)->name, "second");
    const struct file_tensor *first = model_file_tensor(file, "first"), *second = model_file_tensor(file, "second");
    assert_int_equal(first->shard, 2);
    assert_int_equal(second->shard, 1);
    assert_memory_equal(first->data, ((uint32_t[]){20, 21, 22, 23}), 16);
    assert_memory_equal(second->data, ((uint32_t[]){10, 11, 12, 13}), 16);
    const struct meta_entry *words = meta_find(model_file_meta(file), "words");
    assert_memory_equal(meta_entry_string(words, 0)->bytes, shard_names[0], strlen(shard_names[0]));
    struct buf report = {0};
    assert_int_equal(model_file_report(file, 0, &report), 0);
    assert_non_null(strstr(report.data, "3 file(s)"));
    assert_non_null(strstr(report.data, "of shard 2"));
    buf_free(&report);
    model_file_close(file);
    remove_shards();
}

static void wrong_shards(void **state) {
    save_shards("second");
    refuse(shard_names[0], COHORT_E_FILE, "second", shard_names[0], "appears twice");
    save_shards("first");
    refuse(shard_names[1], COHORT_E_FILE, "split.no", shard_names[1], "open the first shard");
    unlink(path_of(shard_names[2]));
    refuse(shard_names[0], COHORT_E_IO, "file", shard_names[2], "No such file");
    save_shard(shard_names[2], (struct shard_plan){1, 3, 2, "first"});
    refuse(shard_names[0], COHORT_E_FILE, "split.no", shard_names[2], "expected 2");
    save_shard(shard_names[2], (struct shard_plan){2, 4, 2, "first"});
    refuse(shard_names[0], COHORT_E_FILE, "split.count", shard_names[2], "expected 3");
    save_shard(shard_names[2], (struct shard_plan){UINT32_MAX, 3, 2, "first"});
    refuse(shard_names[0], COHORT_E_FILE, "split.no", shard_names[2], "missing");
    save_shard(shard_names[2], (struct shard_plan){2, UINT32_MAX, 2, "first"});
    refuse(shard_names[0], COHORT_E_FILE, "split.count", shard_names[2], "missing");
    save_shard(shard_names[2], (struct shard_plan){2, 3, 2, NULL});
    refuse(shard_names[0], COHORT_E_FILE, "split.tensors.count", shard_names[0], "hold 1 tensors");
    struct buf b = {0};
    buf_adds(&b, "GGU");
    save(shard_names[2], &b);
    refuse(shard_names[0], COHORT_E_FILE, "magic", shard_names[2], "cut short");
    save_shards("first");
    save_shard(shard_names[0], (struct shard_plan){0, 3, UINT32_MAX, NULL});
    refuse(shard_names[0], COHORT_E_FILE, "split.tensors.count", shard_names[0], "missing");
    save_shard(shard_names[0], (struct shard_plan){0, 2, 2, NULL});
    refuse(shard_names[0], COHORT_E_FILE, "split.count", shard_names[0], "-00001-of-00002.gguf");
    static const uint32_t wild[] = {1025, 65536, UINT32_MAX - 1};
    for (int i = 0; i < 3; i++) {
        save_shard(shard_names[0], (struct shard_plan){0, wild[i], 2, NULL});
        refuse(shard_names[0], COHORT_E_FILE, "split.count", shard_names[0], "at most 1024");
    }
    remove_shards();
}

static void a_joined_file_is_one_file(void **state) {
    for (uint32_t count = 0; count < 2; count++) {
        save_shard("joined.gguf", (struct shard_plan){0, count, 9, "t"});
        struct model_file *file = open_good(path_of("joined.gguf"));
        assert_int_equal(model_file_shards(file), 1);
        model_file_close(file);
    }
    save_shard("joined.gguf", (struct shard_plan){0, 3, 9, "t"});
    refuse("joined.gguf", COHORT_E_FILE, "split.count", "joined.gguf", "name does not end in");
    struct buf b = {0};
    gguf_head(&b, 3, 0, 2);
    gguf_key_u32(&b, "split.count", 2);
    gguf_key_u32(&b, "split.no", 0);
    struct model_file *file;
    assert_int_equal(model_file_from_memory(b.data, b.len, &file, NULL), COHORT_E_UNSUPPORTED);
    buf_free(&b);
    unlink(path_of("joined.gguf"));
}

static void every_failed_allocation_is_survived(void **state) {
    save_shards("first");
    uint64_t nth = 0;
    int code;
    do {
        struct model_file *file;
        struct buf report = {0};
        cohort_error err = {0};
        mem_fail_at(++nth, 0);
        code = model_file_open(path_of(shard_names[0]), &file, &err);
        if (!code) {
            code = model_file_report(file, (int)nth & 1, &report);
            model_file_close(file);
        } else {
            assert_int_equal(err.code, code);
            assert_true(err.text[0] != 0);
        }
        mem_fail_at(0, 0);
        buf_free(&report);
        assert_true(code == 0 || code == COHORT_E_MEMORY);
    } while (code);
    assert_true(nth > 20);
    remove_shards();
}

/* ---- Report ---- */

static struct buf reported_file(void) {
    struct buf b = {0};
    gguf_head(&b, 3, 3, 8);
    gguf_key_string(&b, "general.name", "line\nbreak \"\x1b[2J\xff\xc2\x9b");
    gguf_key_array(&b, "words", META_STRING, 10);
    for (int i = 0; i < 10; i++) gguf_string(&b, "w");
    gguf_key_array(&b, "none", META_F32, 0);
    gguf_key_array(&b, "numbers", META_F32, 3);
    gguf_u32(&b, 0x3dcccccd); /* 0.1 */
    gguf_u32(&b, 0x7fc00000); /* nan */
    gguf_u32(&b, 0xff800000); /* -inf */
    gguf_key(&b, "large", META_U64);
    gguf_u64(&b, UINT64_MAX);
    gguf_key(&b, "signed", META_I8);
    buf_add(&b, "\x80", 1);
    gguf_key(&b, "flag", META_BOOL);
    buf_add(&b, "\1", 1);
    gguf_key_array(&b, "nested", META_ARRAY, 0);
    gguf_tensor(&b, "a", 2, (uint64_t[]){256, 3}, DTYPE_Q4_K, 0);
    gguf_tensor(&b, "b", 1, (uint64_t[]){5}, DTYPE_F32, 448);
    gguf_tensor(&b, "c", 1, (uint64_t[]){7}, DTYPE_F32, 480);
    gguf_pad(&b, 32);
    gguf_zeros(&b, 512);
    return b;
}

static double number_at(json_t *root, const char *object, const char *key) {
    return json_number_value(json_object_get(json_object_get(root, object), key));
}

static void check_json(json_t *root, size_t size) {
    json_t *meta = json_object_get(root, "metadata");
    assert_int_equal(json_number_value(json_object_get(root, "version")), 3);
    assert_int_equal(json_number_value(json_object_get(root, "bytes")), size);
    assert_int_equal(json_object_size(meta), 8);
    assert_string_equal(json_string_value(json_object_get(json_object_get(meta, "general.name"), "value")),
                        "line\nbreak \"\x1b[2J\xef\xbf\xbd\xc2\x9b");
    json_t *words = json_object_get(meta, "words");
    assert_int_equal(json_number_value(json_object_get(words, "count")), 10);
    assert_int_equal(json_array_size(json_object_get(words, "first")), 8);
    json_t *numbers = json_object_get(json_object_get(meta, "numbers"), "first");
    assert_true(json_number_value(json_array_get(numbers, 0)) == 0.1);
    assert_true(json_is_null(json_array_get(numbers, 1)) && json_is_null(json_array_get(numbers, 2)));
    assert_true(number_at(meta, "large", "value") == 18446744073709551616.0);
    assert_true(number_at(meta, "signed", "value") == -128);
    assert_true(json_is_true(json_object_get(json_object_get(meta, "flag"), "value")));
    json_t *a = json_array_get(json_object_get(root, "tensors"), 0),
           *b = json_array_get(json_object_get(root, "tensors"), 1);
    assert_string_equal(json_string_value(json_object_get(a, "type")), "Q4_K");
    assert_int_equal(json_number_value(json_array_get(json_object_get(a, "shape"), 1)), 3);
    assert_int_equal(json_number_value(json_object_get(b, "offset")) - json_number_value(json_object_get(a, "offset")),
                     448);
    json_t *totals = json_object_get(root, "totals"), *floats = json_array_get(totals, 0);
    assert_int_equal(json_array_size(totals), 2);
    assert_string_equal(json_string_value(json_object_get(floats, "type")), "F32");
    assert_int_equal(json_number_value(json_object_get(floats, "elements")), 12);
    assert_true(number_at(root, "total", "elements") == 780 && number_at(root, "total", "bytes") == 480);
}

static void report_says_what_is_there(void **state) {
    struct buf b = reported_file(), text = {0}, json = {0};
    struct model_file *file;
    assert_int_equal(model_file_from_memory(b.data, b.len, &file, NULL), 0);
    assert_int_equal(model_file_report(file, 1, &json), 0);
    json_error_t why;
    json_t *root = json_loads(json.data, JSON_DECODE_INT_AS_REAL, &why); /* its integers end before 2^64 - 1 */
    if (!root) fail_msg("%s: %s", why.text, json.data);
    check_json(root, b.len);
    json_decref(root);
    assert_int_equal(model_file_report(file, 0, &text), 0);
    static const char *const lines[] = {"GGUF version 3, 1 file(s)",
                                        "\"line\\nbreak \\\"\\u001b[2J\xef\xbf\xbd\\u009b\"\n",
                                        " string[10] ",
                                        "[\"w\", \"w\", \"w\", \"w\", \"w\", \"w\", \"w\", \"w\", ...]\n",
                                        " []\n",
                                        "[0.1, nan, -inf]\n",
                                        " 18446744073709551615\n",
                                        " -128\n",
                                        " true\n",
                                        " 256 x 3 "};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(text.data, lines[i])) fail_msg("no '%s' in\n%s", lines[i], text.data);
    for (size_t i = 0; i < text.len; i++) assert_true(text.data[i] == '\n' || (uint8_t)text.data[i] >= 0x20);
    struct buf small = {.max = 100};
    assert_int_equal(model_file_report(file, 0, &small), COHORT_E_LIMIT);
    buf_free(&small);
    buf_free(&text);
    buf_free(&json);
    buf_free(&b);
    model_file_close(file);
}

static void long_strings_are_cut_in_the_report(void **state) {
    struct buf b = {0}, text = {0}, json = {0}, value = {0};
    buf_adds(&value, "x"); /* every cut falls into a character */
    for (int i = 0; i < 50000; i++) buf_adds(&value, "\xc3\xa9");
    gguf_head(&b, 3, 0, 2);
    gguf_key_string(&b, "chat", value.data);
    gguf_key_array(&b, "list", META_STRING, 1);
    gguf_string(&b, value.data);
    struct model_file *file;
    assert_int_equal(model_file_from_memory(b.data, b.len, &file, NULL), 0);
    assert_int_equal(model_file_report(file, 0, &text), 0);
    assert_int_equal(model_file_report(file, 1, &json), 0);
    assert_true(text.len < 1000 && json.len > 65536 && json.len < 67500);
    assert_non_null(strstr(text.data, "\xc3\xa9\"... (100001 bytes)"));
    assert_null(strstr(text.data, "\xef\xbf\xbd"));
    assert_null(strstr(json.data, "\xef\xbf\xbd"));
    model_file_close(file);
    buf_free(&b);
    buf_free(&text);
    buf_free(&json);
    buf_free(&value);
}

/* ---- Real files ---- */

static void every_vector_opens(void **state) {
    static const char *const names[] = {"gemma2",
                                        "gemma3",
                                        "gpt_oss",
                                        "gpt_oss/quants/MXFP4_MOE",
                                        "lfm2",
                                        "llama",
                                        "llama_quant",
                                        "phi3",
                                        "qwen2",
                                        "qwen3",
                                        "qwen3_5",
                                        "qwen3_moe",
                                        "qwen3_next",
                                        "llama_quant/quants/BF16",
                                        "llama_quant/quants/IQ4_NL",
                                        "llama_quant/quants/Q2_K",
                                        "llama_quant/quants/Q3_K_M",
                                        "llama_quant/quants/Q4_0",
                                        "llama_quant/quants/Q4_1",
                                        "llama_quant/quants/Q4_K_M",
                                        "llama_quant/quants/Q5_0",
                                        "llama_quant/quants/Q5_1",
                                        "llama_quant/quants/Q5_K_M",
                                        "llama_quant/quants/Q6_K",
                                        "llama_quant/quants/Q8_0"};
    if (access(COHORT_SOURCE_DIR "/../shared/vectors", R_OK)) skip();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[512];
        snprintf(path, sizeof(path), COHORT_SOURCE_DIR "/../shared/vectors/%s/model.gguf", names[i]);
        struct model_file *file = open_good(path);
        struct meta_string architecture;
        struct buf report = {0};
        assert_int_equal(meta_string(model_file_meta(file), "general.architecture", &architecture, NULL), 0);
        const struct file_tensor *embedding = model_file_tensor(file, "token_embd.weight");
        assert_int_equal(embedding->n_dims, 2);
        assert_int_equal(embedding->dims[1], meta_find(model_file_meta(file), "tokenizer.ggml.tokens")->count);
        assert_int_equal(model_file_report(file, 1, &report), 0);
        json_t *root = json_loads(report.data, 0, NULL);
        assert_non_null(root);
        json_decref(root);
        buf_free(&report);
        model_file_close(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read),        cmocka_unit_test(data_begins_at_the_alignment),
        cmocka_unit_test(released_pages_come_back),  cmocka_unit_test(odd_paths),
        cmocka_unit_test(shards_are_joined),         cmocka_unit_test(wrong_shards),
        cmocka_unit_test(a_joined_file_is_one_file), cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(report_says_what_is_there), cmocka_unit_test(long_strings_are_cut_in_the_report),
        cmocka_unit_test(every_vector_opens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
