/* Stored rows of quantised matrices, dequantised by the format's own Python package, and their products with a vector
 * in double: against dequant_row, exactly, and against packed weights at every level. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "base/mem.h"
#include "expected.h"
#include "format/gguf.h"

static const char *const folders[] = {
    "llama_quant/quants/BF16", "llama_quant/quants/IQ4_NL", "llama_quant/quants/Q2_K",   "llama_quant/quants/Q3_K_M",
    "llama_quant/quants/Q4_0", "llama_quant/quants/Q4_1",   "llama_quant/quants/Q4_K_M", "llama_quant/quants/Q5_0",
    "llama_quant/quants/Q5_1", "llama_quant/quants/Q5_K_M", "llama_quant/quants/Q6_K",   "llama_quant/quants/Q8_0",
    "gpt_oss/quants/MXFP4_MOE"};
enum { FOLDERS = sizeof folders / sizeof *folders, WIDTH_MAX = 1024 };

static int seen[DTYPE_END];

/* The floats that a {"file", "offset", "shape"} names. */
static void floats_read(const char *folder, const json_t *ref, float *out, size_t n) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", expected_root(), folder, json_string_value(json_object_get(ref, "file")));
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    fseek(f, (long)(4 * json_integer_value(json_object_get(ref, "offset"))), SEEK_SET);
    assert_int_equal(fread(out, sizeof *out, n, f), n);
    fclose(f);
}

static void check_rows(const char *folder, const json_t *entry, const struct file_tensor *t, uint32_t cols) {
    float values[2][WIDTH_MAX], row[WIDTH_MAX], all[2 * WIDTH_MAX];
    floats_read(folder, json_object_get(entry, "values"), all, 2 * (size_t)cols);
    for (int i = 0; i < 2; i++) {
        memcpy(values[i], all + (size_t)i * cols, cols * sizeof(float));
        uint32_t number = (uint32_t)json_integer_value(json_array_get(json_object_get(entry, "rows"), (size_t)i));
        dequant_row((enum dtype)t->type, t->data, number, cols, row);
        for (uint32_t c = 0; c < cols; c++)
            if (!(row[c] == values[i][c]))
                fail_msg("%s, %s: row %u, column %u is %a, should be %a", folder, t->name, number, c, (double)row[c],
                         (double)values[i][c]);
    }
}

static void check_product(const char *folder, const json_t *entry, const struct file_tensor *t, const char *level,
                          uint32_t rows, uint32_t cols) {
    struct kernels k;
    struct packed p;
    float x[WIDTH_MAX], *y = mem_alloc(rows, sizeof *y), *want = mem_alloc(rows, sizeof *want), row[WIDTH_MAX];
    assert_int_equal(kernels_init(&k, level), 0);
    assert_int_equal(pack_plan(&p, (enum dtype)t->type, rows, cols), 0);
    p.data = mem_aligned(p.groups, p.group_bytes);
    void *act = mem_aligned(1, k.act_bytes(p.kind, cols));
    assert_true(p.data && act && y && want);
    for (uint32_t g = 0; g < p.groups; g++) pack_group(&p, t->data, g);
    floats_read(folder, json_object_get(entry, "x"), x, cols);
    floats_read(folder, json_object_get(entry, "product"), want, rows);
    k.act_prepare(p.kind, act, x, cols);
    k.matmul(&p, 0, p.groups, act, 0, 1, y, rows);
    for (uint32_t r = 0; r < rows; r++) {
        double bound = 0; /* what rounding x to bytes, or fp32 sums, can do at most */
        dequant_row((enum dtype)t->type, t->data, r, cols, row);
        for (uint32_t c = 0; c < cols; c++) {
            float largest = 0;
            for (uint32_t i = c & ~31u; i < (c | 31) + 1 && i < cols; i++) largest = fmaxf(largest, fabsf(x[i]));
            bound += fabs((double)row[c]) * largest * (p.kind == PACK_INT ? 0.51 / 127 : 1e-6);
        }
        if (!(fabs((double)y[r] - want[r]) <= bound + 1e-5))
            fail_msg("%s, %s at %s: output %u is %g, should be %g", folder, t->name, level, r, (double)y[r],
                     (double)want[r]);
    }
    mem_free(p.data);
    mem_free(act);
    mem_free(y);
    mem_free(want);
}

static void check_folder(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s/expected.json", expected_root(), folder);
    json_t *root = json_load_file(path, 0, NULL), *entry;
    if (!root) fail_msg("cannot read %s", path);
    struct model_file *file;
    cohort_error err = {0};
    snprintf(path, sizeof path, "%s/%s/model.gguf", expected_root(), folder);
    if (model_file_open(path, &file, &err)) fail_msg("%s: %s", path, err.text);
    size_t i;
    json_array_foreach(json_object_get(root, "tensors"), i, entry) {
        const struct file_tensor *t = model_file_tensor(file, json_string_value(json_object_get(entry, "name")));
        assert_non_null(t);
        uint32_t cols = (uint32_t)t->dims[0], rows = (uint32_t)(t->dims[1] * t->dims[2] * t->dims[3]);
        assert_true(cols <= WIDTH_MAX);
        check_rows(folder, entry, t, cols);
        for (unsigned l = 0; kernels_level(l); l++)
            if (kernels_available(kernels_level(l))) check_product(folder, entry, t, kernels_level(l), rows, cols);
        seen[t->type] = 1;
    }
    model_file_close(file);
    json_decref(root);
}

static void test_stored_weights(void **state) {
    static const enum dtype types[] = {DTYPE_F32,  DTYPE_BF16, DTYPE_Q8_0,   DTYPE_Q4_0, DTYPE_Q4_1,
                                       DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q2_K,   DTYPE_Q3_K, DTYPE_Q4_K,
                                       DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_MXFP4};
    if (!expected_root()) skip();
    for (int i = 0; i < FOLDERS; i++) check_folder(folders[i]);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!seen[types[i]]) fail_msg("no stored rows of %s", dtype_info(types[i])->name);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stored_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
