/* See forms.h. */
#include "engine/forms.h"

#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "model/spec.h"

_Static_assert((int)COHORT_FORM_F16 == (int)FORM_F16 && (int)COHORT_FORM_Q8_0 == (int)FORM_Q8 &&
                   (int)COHORT_FORM_Q4_0 == (int)FORM_Q4,
               "the forms are the same");

static int check_form(const char *field, int form, cohort_error *err) {
    if (form >= COHORT_FORM_F16 && form <= COHORT_FORM_Q4_0) return 0;
    return err_set(err, COHORT_E_ARGUMENT, field, "%s is %d; there are 0 (f16), 1 (q8_0) and 2 (q4_0)", field, form);
}

/* Four bits are for what grows with the context. A window holds a bounded number of tokens, so it keeps eight, unless
 * an exception names the layer: that costs little memory and saves most of what four bits cost in quality. */
static enum state_form form_of(const struct spec_layer *layer, cohort_state_form form) {
    int bounded = layer->mixer == SPEC_ATTENTION && layer->attention.window != 0;
    return bounded && form == COHORT_FORM_Q4_0 ? FORM_Q8 : (enum state_form)form;
}

static int take_exceptions(const cohort_engine_options *o, uint32_t layers, struct state_forms *forms,
                           cohort_error *err) {
    for (size_t i = 0; i < o->layer_forms_n; i++) {
        const cohort_layer_forms *f = &o->layer_forms[i];
        int code = check_form("layer_forms", (int)f->key, err);
        if (!code) code = check_form("layer_forms", (int)f->value, err);
        if (code) return code;
        if (f->first > f->last || f->last >= layers)
            return err_set(err, COHORT_E_ARGUMENT, "layer_forms",
                           "forms for layers %u to %u: the model has layers 0 to %u", f->first, f->last, layers - 1);
        for (uint32_t l = f->first; l <= f->last; l++)
            forms->layer[l] = (struct layer_forms){(enum state_form)f->key, (enum state_form)f->value};
    }
    return 0;
}

static int fill(struct cohort_engine *e, struct state_forms *forms, cohort_error *err) {
    cohort_engine_options *o = &e->options;
    uint32_t layers = model_get_spec(e->model->built)->n_layers, quantised = 0;
    int anything = 0;
    int code = check_form("key_form", (int)o->key_form, err);
    if (!code) code = check_form("value_form", (int)o->value_form, err);
    if (code) return code;
    const struct spec_layer *layer = model_get_spec(e->model->built)->layers;
    for (uint32_t l = 0; l < layers; l++)
        forms->layer[l] = (struct layer_forms){form_of(&layer[l], o->key_form), form_of(&layer[l], o->value_form)};
    code = take_exceptions(o, layers, forms, err);
    if (code) return code;
    for (uint32_t l = 0; l < layers; l++) {
        int plain = forms->layer[l].key == FORM_F16 && forms->layer[l].value == FORM_F16;
        if (layer[l].mixer == SPEC_ATTENTION) quantised += !plain;
        anything |= !plain;
    }
    if (anything && quantised == 0)
        return err_set(err, COHORT_E_ARGUMENT, o->layer_forms_n ? "layer_forms" : "key_form",
                       "the layers that should keep keys and values in other forms have none: they are recurrent");
    if (o->quantise_after > 0 && quantised == 0)
        return err_set(err, COHORT_E_ARGUMENT, "quantise_after",
                       "quantise_after is %u, and all keys and values are f16: there is nothing to quantise",
                       o->quantise_after);
    if (o->quantise_after > SPEC_CONTEXT_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "quantise_after", "quantise_after is %u; 0 to %d are possible",
                       o->quantise_after, SPEC_CONTEXT_MAX);
    o->quantise_after = (o->quantise_after + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS;
    if (o->quantise_after > 0 && o->quantise_after >= o->context)
        return err_set(err, COHORT_E_ARGUMENT, "quantise_after",
                       "quantise_after is %u, the context %u: nothing would be quantised", o->quantise_after,
                       o->context);
    forms->after = o->quantise_after;
    return 0;
}

/* The caller's list becomes ours, whatever happens next. */
static int copy_list(struct cohort_engine *e, cohort_error *err) {
    cohort_engine_options *o = &e->options;
    const cohort_layer_forms *list = o->layer_forms;
    size_t n = o->layer_forms_n;
    o->layer_forms = NULL;
    o->layer_forms_n = 0;
    if (n > COHORT_LAYER_FORMS_MAX || (n > 0 && !list))
        return err_set(err, COHORT_E_ARGUMENT, "layer_forms", "%zu exceptions for layers; at most %d are possible", n,
                       COHORT_LAYER_FORMS_MAX);
    if (n == 0) return 0;
    memcpy(e->layer_forms, list, n * sizeof(*list));
    o->layer_forms = e->layer_forms;
    o->layer_forms_n = n;
    return 0;
}

int forms_take(struct cohort_engine *e, cohort_error *err) {
    int code = copy_list(e, err);
    if (code) return code;
    struct state_forms *forms = mem_zalloc(1, sizeof(*forms));
    if (!forms) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the layers' forms");
    code = fill(e, forms, err);
    if (!code) code = model_set_forms(e->model->built, forms, err);
    mem_free(forms);
    return code;
}

uint64_t forms_digest(const struct program *program) {
    uint64_t digest = 0;
    for (uint32_t i = 0; i < program->n_layers; i++) {
        const struct program_layer *l = &program->layers[i];
        const struct program_group *g = &program->groups[l->late >= 0 ? (uint32_t)l->late : l->group];
        uint32_t what[] = {i, (uint32_t)g->key_form, (uint32_t)g->value_form, g->begin};
        if (g->key_form != FORM_F16 || g->value_form != FORM_F16)
            digest = XXH3_64bits_withSeed(what, sizeof(what), digest);
    }
    return digest;
}
