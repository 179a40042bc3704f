/* In which forms state is kept: from the engine's options to the model's program. Opening thread. */
#ifndef ENGINE_FORMS_H
#define ENGINE_FORMS_H

#include "engine/internal.h"

/* Checks the options, makes them effective (a list becomes our own) and has the program emitted. E_ARGUMENT names the
 * option; E_UNSUPPORTED: the layers would have too many kinds of state. Before anything looks at the program. */
int forms_take(struct cohort_engine *e, cohort_error *err);

/* A digest of the forms of a program's state, which begins at position 0 as f16 in all layers: 0 then. */
uint64_t forms_digest(const struct program *program);

#endif
