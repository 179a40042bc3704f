/* From a model file to a program. A family (one small file each) maps a file's metadata and tensors onto a spec
 * (model/spec.h); the forward pass is written once, from the spec (model/emit.c). Everything that the file says is
 * checked against tensor shapes here. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "backend/program.h"
#include "base/err.h"
#include "format/gguf.h"
#include "model/forms.h"

struct model;

/* Reads the architecture's keys, checks every size, emits the program. `file` must outlive the model. E_UNSUPPORTED
 * names an architecture or feature that is not implemented; E_FILE the key or tensor that is wrong. `vocab` is the
 * tokenizer's size: the token embedding must have at least that many rows. */
int model_build(const struct model_file *file, uint32_t vocab, struct model **out, cohort_error *err);
void model_free(struct model *m);

/* Emits the program anew, with state in these forms (it begins with f16 everywhere). Only whoever runs the model's
 * engine may call it, before anyone looks at the program. E_UNSUPPORTED: so many kinds of state are not possible; the
 * program stays as it was. */
int model_set_forms(struct model *m, const struct state_forms *forms, cohort_error *err);

const struct program *model_program(const struct model *m);
const struct model_spec *model_get_spec(const struct model *m);
uint64_t model_parameters(const struct model *m);

#endif
