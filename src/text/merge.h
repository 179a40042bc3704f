/* Merging a word's symbols pair by pair, best pair first: a priority queue over linked symbols, so a word of n symbols
 * takes about n log n steps. Ties go to the left. One thread; the memory is kept from word to word. */
#ifndef TEXT_MERGE_H
#define TEXT_MERGE_H

#include <stddef.h>
#include <stdint.h>

struct merge_symbol {
    uint32_t at, len; /* bytes of the word; len 0: merged into its left neighbour */
    int32_t id;       /* -1: none yet */
    int32_t prev, next;
};

struct merge_pair {
    uint32_t order; /* smaller first */
    uint32_t left;  /* symbol */
    uint32_t len;   /* of both together: tells a pair that has changed since */
    int32_t id;     /* of the token they become */
};

struct merger {
    struct merge_symbol *symbols;
    struct merge_pair *heap;
    size_t n, capacity, heap_n, heap_capacity;
};

/* 1 and *order, *id if the two neighbours can become one token. */
typedef int (*merge_join)(const void *context, const struct merge_symbol *left, const struct merge_symbol *right,
                          uint32_t *order, int32_t *id);

static inline void merge_clear(struct merger *m) { m->n = m->heap_n = 0; }
int merge_add(struct merger *m, uint32_t at, uint32_t len, int32_t id); /* 0 or COHORT_E_MEMORY */
int merge_run(struct merger *m, merge_join join, const void *context);  /* the same */
void merge_free(struct merger *m);

#endif
