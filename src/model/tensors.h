/* The tensors of a model file, found by name and checked against the spec's sizes. */
#ifndef MODEL_TENSORS_H
#define MODEL_TENSORS_H

#include "model/family.h"

/* Fills every tensor of the spec. A tensor that is missing or has another shape is an E_FILE; one that the file has and
 * the spec does not use is an E_UNSUPPORTED: it stands for something that this version does not do. *parameters: the
 * elements of all that is used. */
int tensors_read(const struct model_file *file, const struct family *family, struct model_spec *spec,
                 uint64_t *parameters, cohort_error *err);

#endif
