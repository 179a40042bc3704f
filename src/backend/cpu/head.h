/* The phase of the head: logits, who takes them, and hidden vectors instead of them. It goes through several stages,
 * each cut into tiles. */
#ifndef BACKEND_CPU_HEAD_H
#define BACKEND_CPU_HEAD_H

#include "backend/cpu/compiled.h"

/* Between phases, alone. Sets the first stage, when a batch begins. */
void head_begin(struct run *r);
/* Cuts the current stage. Before the first products it asks what is wanted of the outputs. */
void head_cut(struct backend_program *p, const struct phase *phase);
/* Goes from the products of a tile of outputs to its consumers, then to the next tile, and behind the last one to the
 * outputs that are no logits. 0: nothing is left. */
int head_step(struct run *r);
/* Any thread of the team; tiles are independent. */
void head_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile, unsigned thread);

#endif
