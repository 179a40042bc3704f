/* The phases of recurrent layers: what a RECUR phase is cut into, and what one tile does. */
#ifndef BACKEND_CPU_RECUR_H
#define BACKEND_CPU_RECUR_H

#include "backend/cpu/compiled.h"

/* Asserts that an item says where its recurrent state comes from and goes to. */
void recur_check(const struct backend_program *p, const struct batch_item *item);
/* Between phases, alone. */
void recur_cut(const struct backend_program *p, const struct phase *phase, struct tiling *t);
/* Any thread of the team; tiles are independent. */
void recur_tile(const struct backend_program *p, const struct phase *phase, uint32_t tile);

#endif
