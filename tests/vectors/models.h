/* The vectors that this version must answer, by folder, and how a test opens one. */
#ifndef VECTORS_MODELS_H
#define VECTORS_MODELS_H

#include "format/gguf.h"
#include "model/model.h"

#define VECTORS_FLOAT(X) X(llama) X(qwen3) X(gemma3) X(qwen2) X(gemma2) X(phi3) X(llama_quant)
#define VECTORS_QUANT(X)                                                                                               \
    X(BF16) X(Q8_0) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q2_K) X(Q3_K_M) X(Q4_K_M) X(Q5_K_M) X(Q6_K) X(IQ4_NL)

#define VECTORS_RECURRENT(X) X(qwen3_5) X(lfm2)

/* Folders, NULL at the end. */
extern const char *const vectors_folders[];

struct opened {
    struct model_file *file;
    struct model *model;
};
/* Opens FOLDER/model.gguf of the vectors' root with the tokenizer's own size. Fails the test if it cannot. */
void vectors_open(struct opened *o, const char *folder);
void vectors_close(struct opened *o);

/* Prints the table's head or one line of it: what, largest and rms distance, and a remark. */
void vectors_report(const char *what, double max, double rms, const char *remark);

#endif
