/* The bytes behind page ids: one arena per layer group, mapped once at start from the state budget. Owned by the engine
 * thread; the backend reads and writes inside the arenas during batches. Untouched pages cost no memory. */
#ifndef STATE_STATE_H
#define STATE_STATE_H

#include <stdint.h>

#include "backend/program.h"
#include "base/err.h"

struct state;

struct state_plan { /* how a budget divides between the groups */
    uint32_t groups;
    uint32_t pages[PROGRAM_GROUPS_MAX];
    uint64_t page_bytes[PROGRAM_GROUPS_MAX];
    uint64_t bytes;
};

/* Divides `bytes` (or, if 0, room for `tokens` tokens over all rows) between the program's groups by the model's own
 * shape: full groups get a page per PAGE_TOKENS tokens; windowed groups what rows of `row_tokens_max` tokens, `rows` of
 * them, can hold at most (window + chunk in whole pages each), or less if the token budget is smaller. E_CAPACITY with
 * both numbers if not even one row of one page fits. */
int state_plan_make(const struct program *program, uint64_t bytes, uint64_t tokens, uint32_t rows,
                    uint32_t row_tokens_max, uint32_t chunk_max, struct state_plan *out, cohort_error *err);

int state_new(const struct state_plan *plan, struct state **out, cohort_error *err);
void state_free(struct state *s);
void *state_arena(struct state *s, uint32_t group);
/* Copies a page's bytes (copy on write of a partial page). */
void state_copy(struct state *s, uint32_t group, uint32_t from, uint32_t to);

#endif
