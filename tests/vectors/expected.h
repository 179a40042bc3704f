/* A vectors folder: a tiny model and what it should answer, as stored beside it (expected.json and flat little-endian
 * float32 files). */
#ifndef VECTORS_EXPECTED_H
#define VECTORS_EXPECTED_H

#include <stddef.h>
#include <stdint.h>

enum { EXPECTED_PROMPTS_MAX = 8, EXPECTED_GREEDY_MAX = 32 };

struct expected_prompt {
    uint32_t n;
    int32_t *ids;
    uint32_t n_logits; /* rows stored: for the last n_logits positions */
    const float *logits;
    int32_t *argmax;     /* n */
    float *gap;          /* n: best logit less the second best */
    float *next_logprob; /* n - 1 */
    uint32_t n_greedy;
    int32_t greedy[EXPECTED_GREEDY_MAX];
    float greedy_gap[EXPECTED_GREEDY_MAX];
};

struct expected {
    uint32_t n_prompts, vocab;
    struct expected_prompt prompts[EXPECTED_PROMPTS_MAX];
    /* The strictest and the loosest of the stored distances: float32 throughout, and what a narrower cache or narrower
     * activations may do. */
    double strict_max, strict_rms, loose_max, loose_rms;
    uint32_t trace_n, trace_rows, trace_width; /* trace_rows 0: none */
    int32_t *trace_ids;
    const float *trace; /* [trace_rows][trace_n][trace_width] */
    void *files[4];     /* what the pointers point into */
};

/* The folder that holds the vectors: $COHORT_VECTORS, or what the build was configured with. NULL if there is none. */
const char *expected_root(void);
/* Loads FOLDER/expected.json of the root's folder. Fails the test if something is missing. */
void expected_load(struct expected *e, const char *folder);
void expected_free(struct expected *e);

/* Largest and root-mean-square distance of n values. */
struct distance {
    double max, sum;
    size_t n;
};
void distance_add(struct distance *d, double a, double b);
double distance_rms(const struct distance *d);

#endif
