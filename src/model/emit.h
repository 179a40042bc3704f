/* The forward pass, written once: spec -> program. */
#ifndef MODEL_EMIT_H
#define MODEL_EMIT_H

#include "base/err.h"
#include "model/forms.h"

/* Fills *out (zeroed by the caller); emit_free frees what it holds, also after a failure. `forms` NULL: all f16. */
int emit_program(const struct model_spec *spec, const struct state_forms *forms, struct program *out,
                 cohort_error *err);
void emit_free(struct program *program);

#endif
