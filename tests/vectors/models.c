#include "models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "expected.h"

const char *const vectors_folders[] = {
#define FLOAT(name) #name,
#define QUANT(name) "llama_quant/quants/" #name,
    VECTORS_FLOAT(FLOAT) VECTORS_QUANT(QUANT) VECTORS_RECURRENT(FLOAT) NULL};

void vectors_open(struct opened *o, const char *folder) {
    *o = (struct opened){0};
    char path[512];
    snprintf(path, sizeof path, "%s/%s/model.gguf", expected_root(), folder);
    cohort_error err = {0};
    if (model_file_open(path, &o->file, &err)) fail_msg("%s: %s", path, err.text);
    const struct meta_entry *tokens = meta_find(model_file_meta(o->file), "tokenizer.ggml.tokens");
    assert_non_null(tokens);
    if (model_build(o->file, (uint32_t)tokens->count, &o->model, &err)) fail_msg("%s: %s", path, err.text);
}

void vectors_close(struct opened *o) {
    model_free(o->model);
    model_file_close(o->file);
}

void vectors_report(const char *what, double max, double rms, const char *remark) {
    printf("  %-34s max %.2e  rms %.2e  %s\n", what, max, rms, remark);
}
