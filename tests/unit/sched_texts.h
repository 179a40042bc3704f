/* Rows with real tokens and a prefix store for the unit tests of the scheduler. A generated token is a number made of
 * its position, so that equal prompts go on equally. One thread. */
#ifndef TESTS_SCHED_TEXTS_H
#define TESTS_SCHED_TEXTS_H

#include "sched/sched.h"
#include "sched_rig.h"

enum { ROWS = 64, TEXT = 4096, WINDOW = 64 };

struct text {
    int32_t tokens[TEXT];
    uint32_t n, asked; /* asked: how often the scheduler wanted to know them */
};
extern struct text texts[ROWS]; /* by row index: the prompt, and what was made since */

struct seen {
    struct sched_copy copy[64];
    uint32_t copies;
    struct sched_load load;
    struct sched_load_block blocks[128];
    uint32_t loads;
};
extern struct seen seen; /* what the last plan wanted done */

/* The first `shared` tokens of text `a`, then `n - shared` of text `b`. */
struct prompt {
    uint32_t a, shared, b, n;
};

const int32_t *tokens_of_row(void *user, sched_row row, uint32_t *n);
struct rig rig_storing(uint32_t rows, uint32_t batch, uint32_t full, uint32_t windowed);
/* 1,000 pages in each group; both full, so that every place is one to go on. */
struct rig rig_full(uint32_t rows, uint32_t batch);
sched_row submit_text(struct rig *r, struct prompt p, struct sched_request q); /* space 7, if it has none */
sched_row submit_new(struct rig *r, struct prompt p, uint32_t max_new);
void collect(struct rig *r); /* fills `seen` */
const struct plan *begin(struct rig *r);
void end(struct rig *r, const struct plan *p);
const struct plan *turn(struct rig *r);
/* Turns until the row has planned its last token; then it ends. Returns its prompt tokens in plans. */
uint32_t run(struct rig *r, sched_row row);
uint32_t run_new(struct rig *r, struct prompt p, uint32_t max_new);
uint32_t cached(struct rig *r, sched_row row);
struct prefix_counts store(struct rig *r);
struct sched_counts counts(struct rig *r);
const uint32_t *table(struct rig *r, sched_row row, uint32_t g);

#endif
