/* Regroups a program's operations into phases (compiled.h). Part of compiling. */
#ifndef BACKEND_CPU_PHASES_H
#define BACKEND_CPU_PHASES_H

#include "backend/cpu/compiled.h"

/* Fills p's steps, products and phases. Tensors and registers of p are in place. 0 or COHORT_E_MEMORY. Asserts what
 * the program's maker guarantees. */
int phases_build(struct backend_program *p, const struct program *program, cohort_error *err);

#endif
