/* The levels of the vector kernels that can run on this machine, the reference first. */
#ifndef TESTS_VECTOR_LEVELS_H
#define TESTS_VECTOR_LEVELS_H

#include "backend/cpu/kernels.h"

struct vector_level {
    const char *name;
    struct kernels k;
};
enum { VECTOR_LEVELS_MAX = 4 };

int vector_levels(struct vector_level out[VECTOR_LEVELS_MAX]); /* how many */

#endif
