/* Any bytes as a model file, up to the emitted program. The seeds are whole tiny models, so that the fuzzer starts from
 * files that build. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/gguf.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth) {
    if (!truth) abort();
}

/* What a backend relies on. */
static void check_program(const struct program *p) {
    check(p->n_ops > 0 && p->n_ops <= PROGRAM_OPS_MAX && p->n_regs <= PROGRAM_REGS_MAX);
    check(p->n_groups > 0 && p->n_groups <= PROGRAM_GROUPS_MAX && p->n_layers <= PROGRAM_LAYERS_MAX);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct program_tensor *t = &p->tensors[i];
        const struct dtype_info *info = dtype_info(t->type);
        check(t->rows > 0 && t->cols > 0 && t->cols % info->block_elements == 0);
        check(t->bytes == (uint64_t)t->rows * (t->cols / info->block_elements) * info->block_bytes);
        static volatile uint8_t sink;
        sink = ((const uint8_t *)t->data)[t->bytes - 1];
        (void)sink;
    }
    for (uint32_t i = 0; i < p->n_ropes; i++)
        for (uint32_t k = 0; k < p->ropes[i].pairs; k++) check(p->ropes[i].frequency[k] <= 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_file *file;
    struct model *model;
    cohort_error err = {0};
    if (model_file_from_memory(data, size, &file, &err)) return 0;
    int code = model_build(file, 40, &model, &err);
    check((code == 0) == (model != NULL));
    if (model)
        check_program(model_program(model));
    else
        check(err.code == code && err.field[0] && err.text[0]);
    model_free(model);
    model_file_close(file);
    return 0;
}
