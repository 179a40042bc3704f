/* In which forms a model's layers keep keys and values: what the engine's options say, layer by layer. */
#ifndef MODEL_FORMS_H
#define MODEL_FORMS_H

#include "model/spec.h"

struct layer_forms {
    enum state_form key, value;
};

struct state_forms {
    uint32_t after; /* positions below it are f16 in every layer; a multiple of a page's tokens */
    struct layer_forms layer[SPEC_LAYERS_MAX];
};

#endif
