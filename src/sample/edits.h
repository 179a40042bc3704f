/* Changes of single logits: what penalties and biases do to a row without a copy of it. Peaks follow, and what a logit
 * was is remembered. Plain data of one call. */
#ifndef SAMPLE_EDITS_H
#define SAMPLE_EDITS_H

#include "base/logits.h"

struct edit {
    uint32_t index;
    float x; /* as it was */
};

struct edits {
    const struct vecops *ops;
    const struct logits *logits;
    const int32_t *allowed; /* the ids of a small row's logits, ascending; NULL: index and id are the same */
    struct edit *done;      /* room for every one that comes */
    uint32_t n;
};

/* Where an id's logit is; UINT32_MAX: the row does not have it. */
uint32_t edits_index(const struct edits *e, int32_t id);
/* Sets a logit. What is beyond fp32 becomes the largest finite number, so that only what was forbidden has minus
 * infinity; and that stays what it is. */
void edits_set(struct edits *e, uint32_t index, float x);
void edits_forbid(struct edits *e, uint32_t index);
/* What the logit was before all edits. */
float edits_was(const struct edits *e, uint32_t index);

#endif
