/* From a model file to a program: family, keys, tensors, emission. Built once by the thread that opens the model, then
 * immutable, but for the program, which is the engine's. */
#include "model/model.h"

#include <stdio.h>

#include "base/mem.h"
#include "model/emit.h"
#include "model/family.h"
#include "model/keys.h"
#include "model/spec.h"
#include "model/tensors.h"

struct model {
    struct model_spec spec;
    struct program program;
    uint64_t parameters;
};

/* Finds the family that the file names. */
static int find_family(const struct meta *meta, const struct family **out, cohort_error *err) {
    static const char key[] = "general.architecture";
    struct meta_string name;
    int rc = meta_string(meta, key, &name, err);
    if (rc == COHORT_E_NOT_FOUND) return err_set(err, COHORT_E_FILE, key, "key %s is missing", key);
    if (rc) return rc;
    *out = family_find(&name);
    if (*out) return 0;
    char known[256];
    family_names(known, sizeof known);
    return err_set(err, COHORT_E_UNSUPPORTED, key, "architecture \"%.*s\" is not supported (there are: %s)",
                   (int)(name.len < 64 ? name.len : 64), name.bytes, known);
}

static int build(struct model *m, const struct model_file *file, uint32_t vocab, cohort_error *err) {
    const struct meta *meta = model_file_meta(file);
    const struct family *family;
    int rc = find_family(meta, &family, err);
    if (rc) return rc;
    if (vocab == 0 || vocab > SPEC_VOCAB_MAX)
        return err_set(err, COHORT_E_FILE, "tokenizer.ggml.tokens", "the tokenizer has %u tokens, allowed is 1 to %d",
                       vocab, SPEC_VOCAB_MAX);
    struct keys keys = {.meta = meta, .prefix = family->architecture, .err = err};
    m->spec.vocab = vocab;
    rc = keys_read(&keys, family, &m->spec);
    if (!rc) rc = tensors_read(file, family, &m->spec, &m->parameters, err);
    return rc ? rc : emit_program(&m->spec, NULL, &m->program, err);
}

int model_build(const struct model_file *file, uint32_t vocab, struct model **out, cohort_error *err) {
    *out = NULL;
    struct model *m = mem_zalloc(1, sizeof *m);
    if (!m) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the model");
    int rc = build(m, file, vocab, err);
    if (rc) {
        model_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

int model_set_forms(struct model *m, const struct state_forms *forms, cohort_error *err) {
    struct program program = {0};
    int rc = emit_program(&m->spec, forms, &program, err);
    if (rc) {
        emit_free(&program);
        return rc;
    }
    emit_free(&m->program);
    m->program = program;
    return 0;
}

void model_free(struct model *m) {
    if (!m) return;
    emit_free(&m->program);
    mem_free(m->spec.layers);
    mem_free(m);
}

const struct program *model_program(const struct model *m) { return &m->program; }
const struct model_spec *model_get_spec(const struct model *m) { return &m->spec; }
uint64_t model_parameters(const struct model *m) { return m->parameters; }
