/* A scheduler with two groups of pages for the unit tests: each call is followed by sched_check. Plain functions; one
 * thread. */
#ifndef TESTS_SCHED_RIG_H
#define TESTS_SCHED_RIG_H

#include "sched/sched.h"

struct rig {
    struct pages *pages;
    struct prefix *prefix; /* NULL: rows share nothing */
    struct sched *s;
};

/* Two groups, the second windowed, as in the default model. With config.tokens there is a prefix store. */
struct sched_config config_of(uint32_t rows, uint32_t queue, uint32_t batch);
struct rig rig_of(struct sched_config config, uint32_t full, uint32_t windowed);
struct rig rig_wide(uint32_t rows, uint32_t queue, uint32_t batch);
/* Ends every row and sees that all pages came back, but for those that the store keeps. */
void rig_end(struct rig *r);
sched_row reserve(struct rig *r);
sched_row submit_request(struct rig *r, struct sched_request q);
sched_row submit(struct rig *r, uint32_t prompt_n, uint32_t max_new);
const struct plan *plan(struct rig *r);
void commit(struct rig *r, const struct plan *p);
/* One whole iteration; the plan stays readable until the next but one. */
const struct plan *step(struct rig *r);
const struct plan_item *item_of(const struct plan *p, sched_row row);
uint32_t tokens_of(const struct plan *p, sched_row row);
void finish(struct rig *r, sched_row row);
sched_row pop_gone(struct rig *r);
void assert_state(struct rig *r, sched_row row, enum row_state state);

#endif
