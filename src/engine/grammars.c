/* Grammars: cohort_grammar_* of cohort.h. Any thread. */
#include <stddef.h>

#include "base/err.h"
#include "cohort/cohort.h"

int cohort_grammar_compile(const cohort_model *model, const cohort_grammar_source *source, cohort_grammar **out,
                           cohort_error *err) {
    (void)model;
    (void)source;
    *out = NULL;
    return err_set(err, COHORT_E_UNSUPPORTED, "grammar", "grammars are not supported");
}

void cohort_grammar_release(cohort_grammar *grammar) { (void)grammar; }
