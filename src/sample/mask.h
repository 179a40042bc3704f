/* What a grammar rejects leaves a row of logits. Pure functions over one row; called on any thread. */
#ifndef SAMPLE_MASK_H
#define SAMPLE_MASK_H

#include "base/logits.h"

enum { MASK_FEW = 4 /* of n tokens, n / 4 allowed ones at most are few: they become a row of their own */ };

struct mask {
    const uint32_t *bits; /* bit id % 32 of word id / 32 is set for those that may be drawn */
    uint32_t allowed;     /* so many */
};

static inline uint32_t mask_words(uint32_t n) { return n / 32 + (n % 32 > 0); }
static inline int mask_allows(const struct mask *m, uint32_t id) { return m->bits[id / 32] >> id % 32 & 1; }

static inline int mask_is_few(const struct mask *m, uint32_t n) { return m->allowed > 0 && m->allowed <= n / MASK_FEW; }

/* How many of n tokens are allowed. */
uint32_t mask_count(const uint32_t *bits, uint32_t n);
/* The allowed ids, ascending, with their logits: mask->allowed of each. Nothing else of the row is read. */
void mask_gather(const struct mask *mask, const struct logits *from, int32_t *ids, float *x);
/* Rejected tokens get minus infinity. */
void mask_reject(const struct vecops *ops, const struct mask *mask, const struct logits *l);

#endif
