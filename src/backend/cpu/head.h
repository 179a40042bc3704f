/* The phase of the head: logits, who takes them, and hidden vectors instead of them. It goes through several stages,
 * each cut into tiles. */
#ifndef BACKEND_CPU_HEAD_H
#define BACKEND_CPU_HEAD_H

#include "backend/cpu/compiled.h"

/* Between phases, alone: where the phase begins, what its current stage is cut into, and the next stage (0: none). */
void head_begin(struct run *r);
void head_cut(struct backend_program *p, const struct phase *phase);
int head_step(struct run *r);
/* Any thread of the team; tiles are independent. */
void head_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile, unsigned thread);

#endif
