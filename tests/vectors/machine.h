/* Rows on the real backend without an engine: a program compiled at a level, one arena per group, page tables whose ids
 * are scattered, and every output's logits kept by row and position.
 *
 * The state begins as NaNs, and table entries behind a window are ids that no arena has: what must not be read shows.
 */
#ifndef VECTORS_MACHINE_H
#define VECTORS_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

enum { MACHINE_ROWS = 8, MACHINE_TOKENS = 256, MACHINE_PAGES = MACHINE_TOKENS / BACKEND_PAGE_TOKENS };

struct machine {
    struct backend *backend;
    struct backend_program *compiled;
    const struct program *program;
    void *arena[PROGRAM_GROUPS_MAX];
    size_t arena_bytes[PROGRAM_GROUPS_MAX];
    uint32_t table[MACHINE_ROWS][PROGRAM_GROUPS_MAX][MACHINE_PAGES];
    uint32_t
        state[MACHINE_ROWS];     /* the row's page in every recurrent group: one of two of its own; BATCH_EMPTY: none */
    int32_t slots[MACHINE_ROWS]; /* argmax of each row's last output */
    float *logits;               /* [MACHINE_ROWS][MACHINE_TOKENS][vocab] */
};

/* Fails the test if something cannot be made. level NULL: the best. */
void machine_open(struct machine *m, const struct program *program, const char *level, int threads);
void machine_close(struct machine *m);
/* Forgets all state and outputs. */
void machine_reset(struct machine *m);

struct piece { /* the next tokens of a row */
    uint32_t row, first, n;
    const int32_t *ids; /* NULL: one token, the row's last argmax */
};
/* One batch of pieces of different rows, with an output for every token. */
void machine_step(struct machine *m, const struct piece *pieces, uint32_t n);

const float *machine_logits(const struct machine *m, uint32_t row, uint32_t position);

#endif
