/* The bytes behind page ids: one arena per layer group, mapped once at start from the state budget. Owned by the engine
 * (made by the opener's thread, then its own thread's); the backend reads and writes inside the arenas during batches.
 * Untouched pages cost no memory. */
#ifndef STATE_STATE_H
#define STATE_STATE_H

#include <stdint.h>

#include "backend/program.h"
#include "base/err.h"
#include "pages/pages.h"

enum { STATE_PAGES_MAX = 1 << 30 }; /* per group */

struct state;

/* How a budget divides between the groups, by the model's own shape. Let n be the number of pages that the budget's
 * tokens fill. Then
 *     a full group      gets n pages, or, if it holds only the beginnings of sequences, what those of all rows and
 *                       snapshots take, if that is less;
 *     a windowed group  gets min(n, rows * w + snapshots * v): w is what one row can hold at most, the pages that its
 *                       window, the slack behind it and the chunks of the batches in flight touch; v are those that a
 *                       snapshot in the prefix store keeps. More would lie idle;
 *     a recurrent group likewise, with PAGES_RECURRENT states for a row and one for a snapshot.
 * A budget in tokens is n directly; a budget in bytes is the largest n whose pages fit. So a window pays for itself
 * only up to its length, and all the rest of the budget is context. */
struct state_plan {
    uint32_t groups;
    uint32_t pages[PROGRAM_GROUPS_MAX];
    uint64_t page_bytes[PROGRAM_GROUPS_MAX];
    uint64_t bytes;
};

/* The same group as the pages' bookkeeping sees it. */
struct pages_shape state_shape(const struct program_group *group);

struct state_wanted {
    uint64_t bytes, tokens; /* bytes, or, if 0, room for so many tokens over all rows */
    uint32_t rows;
    uint32_t row_tokens_max; /* of one row */
    uint32_t chunk_max;      /* tokens of a row in one batch */
    uint32_t snapshots;      /* that there should be room for beside the rows */
};

/* E_CAPACITY with both numbers if not even one page per group fits. */
int state_plan_make(const struct program *program, const struct state_wanted *wanted, struct state_plan *out,
                    cohort_error *err);

int state_new(const struct state_plan *plan, struct state **out, cohort_error *err);
void state_free(struct state *s);
void *state_arena(struct state *s, uint32_t group); /* NULL if the group has no bytes */
void *state_page(struct state *s, uint32_t group, uint32_t page);
/* Copies a page's bytes (copy on write of a partial page). */
void state_copy(struct state *s, uint32_t group, uint32_t from, uint32_t to);

#endif
