/* Texts of the reference vectors: ids by the models' own tokenizers. Skipped where the vectors are not. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

#define VECTORS COHORT_SOURCE_DIR "/../shared/vectors"

static struct tokenizer *open_file(const char *path) {
    struct model_file *file;
    struct tokenizer *t;
    cohort_error err = {0};
    if (model_file_open(path, &file, &err)) fail_msg("%s", err.text);
    if (tokenizer_open(model_file_meta(file), &t, &err)) fail_msg("%s: %s", path, err.text);
    model_file_close(file); /* a tokenizer keeps nothing of it */
    return t;
}

static void check_decoded(const struct tokenizer *t, const int32_t *ids, size_t n, const char *text, size_t len) {
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t piece;
        tokenizer_piece(t, ids[i], 0, &bytes, &piece);
        size_t skip = i == 0 && tokenizer_strips_first_space(t) && piece && bytes[0] == ' ';
        assert_true(at + piece - skip <= len);
        assert_memory_equal(bytes + skip, text + at, piece - skip);
        at += piece - skip;
    }
    assert_int_equal(at, len);
}

static void check_text(const struct tokenizer *t, const char *folder, const json_t *one) {
    const json_t *want = json_object_get(one, "ids"), *json = json_object_get(one, "text");
    const char *text = json_string_value(json);
    size_t len = json_string_length(json), n;
    int32_t *ids;
    cohort_error err = {0};
    if (tokenizer_encode(t, text, len, 0, &ids, &n, &err)) fail_msg("%s: %s", folder, err.text);
    check_decoded(t, ids, n, text, len);
    /* Qwen's own tokenizer composes accents first (NFC); no key of a model file says so, and it is not done. */
    int composes = strncmp(folder, "qwen", 4) == 0 && strstr(text, "\xcc\x81");
    int same = n == json_array_size(want);
    for (size_t i = 0; same && i < n; i++) same = json_integer_value(json_array_get(want, i)) == ids[i];
    if (same == composes) fail_msg("%s: '%s'", folder, text);
    mem_free(ids);
}

static void check_folder(const char *folder) {
    char path[1024];
    snprintf(path, sizeof(path), VECTORS "/%s/expected.json", folder);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    snprintf(path, sizeof(path), VECTORS "/%s/model.gguf", folder);
    struct tokenizer *t = open_file(path);
    const json_t *texts = json_object_get(root, "texts"), *bos = json_object_get(root, "bos"),
                 *eos = json_object_get(root, "eos");
    assert_int_equal(tokenizer_size(t), json_integer_value(json_object_get(root, "vocab_size")));
    assert_int_equal(tokenizer_bos(t), json_is_integer(bos) ? json_integer_value(bos) : -1);
    assert_int_equal(tokenizer_eos(t), json_integer_value(eos));
    assert_true(tokenizer_is_end(t, tokenizer_eos(t)) && tokenizer_is_special(t, tokenizer_eos(t)));
    assert_true(json_array_size(texts) >= 16);
    for (size_t i = 0; i < json_array_size(texts); i++) check_text(t, folder, json_array_get(texts, i));
    tokenizer_close(t);
    json_decref(root);
}

static void test_vectors(void **state) {
    DIR *folder = opendir(VECTORS);
    if (!folder) skip();
    int n = 0;
    for (struct dirent *e; (e = readdir(folder));) {
        char path[1024];
        snprintf(path, sizeof(path), VECTORS "/%s/expected.json", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        fclose(f);
        check_folder(e->d_name);
        n++;
    }
    closedir(folder);
    assert_true(n > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
    return cmocka_run_group_tests_name("tokenizer_vectors", tests, NULL, NULL);
}
