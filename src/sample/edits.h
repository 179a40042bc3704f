/* Changes of single logits that are taken back: what penalties and biases do to a row without a copy of it. Peaks
 * follow. Plain data of one call. */
#ifndef SAMPLE_EDITS_H
#define SAMPLE_EDITS_H

#include "base/logits.h"

struct edit {
    uint32_t index;
    float x, peak; /* as they were */
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
/* Takes all back, the last first: the row has its bits again. */
void edits_undo(struct edits *e);

#endif
