/* The merge list of a BPE vocabulary: two token ids -> rank and the id they become. Immutable after load. */
#ifndef TEXT_PAIRS_H
#define TEXT_PAIRS_H

#include "text/vocab.h"

struct pair_slot {
    uint32_t left, right; /* ids + 1; 0: free */
    uint32_t rank;
    int32_t id;
};

struct pairs {
    struct pair_slot *slots;
    uint32_t mask;
    uint64_t seed;
};

/* Reads tokenizer.ggml.merges: "left right", both and their join listed in the vocabulary. */
int pairs_load(struct pairs *p, const struct vocab *v, const struct meta *meta, cohort_error *err);
void pairs_free(struct pairs *p);
const struct pair_slot *pairs_find(const struct pairs *p, int32_t left, int32_t right); /* NULL: they do not merge */

#endif
