/* What all who cut phases into tiles share. It decides speed only. */
#ifndef BACKEND_CPU_TILES_H
#define BACKEND_CPU_TILES_H

#include "backend/cpu/compiled.h"

enum { TILES_PER_THREAD = 8 };

static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
static inline uint32_t threads_of(const struct backend_program *p) { return team_threads(p->backend->team); }

#endif
