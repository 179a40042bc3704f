/* The reference attention, for the reference's table (vector_ref.c). */
#ifndef BACKEND_CPU_ATTEND_REF_H
#define BACKEND_CPU_ATTEND_REF_H

#include "backend/cpu/kernels.h"

void attend_ref(const struct attend_args *a);
void rotate_ref(float *x, uint32_t width); /* keys, before they become codes */

/* Floats of scratch per row beside its query and its weights of one page, in as many arrays; and what each array has
 * behind the last row, so that sixteen may be taken from any row on. */
enum { ATTEND_ROW_FLOATS = 5, ATTEND_ROWS_BEHIND = 15 };

#endif
