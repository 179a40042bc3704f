/* A tiny random model for the executor's tests, and the plainest possible execution of a program: one token at a time,
 * one operation at a time, straight from the list of operations with the reference kernels. */
#ifndef TESTS_EXEC_MODEL_H
#define TESTS_EXEC_MODEL_H

#include <stdint.h>

#include "backend/backend.h"

enum { MODEL_VOCAB = 2230, MODEL_WINDOW = 40, MODEL_TOKENS_MAX = 192 };

struct model_options {
    int tied;          /* the head is the embedding table */
    int select_early;  /* the last layer's queries are selected before attention, instead of its result after */
    uint32_t kv_heads; /* 1, 2 or 4 of 4 query heads */
    enum state_form key_form, value_form;
    uint32_t after; /* positions below it are f16 */
};

struct tiny_model {
    struct program program;
    void *memory[64];
    int n_memory;
};

void tiny_model_init(struct tiny_model *m, uint64_t seed, struct model_options options);
/* Few outputs of long rows, so that products are cut by rows, too: no layers at all. */
void wide_model_init(struct tiny_model *m, uint64_t seed);
/* Two gated delta rules, gated attention between, a short convolution last: groups 0 and 2 are recurrent. */
void hybrid_model_init(struct tiny_model *m, uint64_t seed);
void tiny_model_deinit(struct tiny_model *m);

/* Logits of every position of a row: n * vocab floats; and, unless it is NULL, what the head made them from. */
void plain_run(const struct program *program, const int32_t *tokens, uint32_t n, float *logits, float *hidden);
uint32_t hidden_width(const struct program *program);

#endif
