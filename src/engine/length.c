/* What the length of a text says of a request before it is tokenised. Any thread; looks at nothing that changes. */
#include <stdio.h>

#include "engine/internal.h"

int cohort_check_length(const cohort_engine *e, size_t bytes, uint32_t max_tokens, cohort_error *err) {
    uint32_t reach = tokenizer_reach(e->model->tokenizer), context = e->options.context;
    uint64_t least = reach ? bytes / reach + (bytes % reach != 0) : 1;
    uint32_t fresh = max_tokens == UINT32_MAX ? 1 : max_tokens;
    if (least == 0) least = 1; /* the begin token */
    if (least + fresh > context)
        return err_set(err, COHORT_E_CONTEXT, "prompt",
                       "%zu bytes of text are at least %llu tokens, and with %u new ones more than the context of %u",
                       bytes, (unsigned long long)least, fresh, context);
    const struct sched_request wanted = {.prompt_n = (uint32_t)least, .max_new = fresh, .all_outputs = fresh == 0};
    int code = sched_fits(e->sched, &wanted, err);
    char prefix[80];
    snprintf(prefix, sizeof(prefix), "%zu bytes of text are at least %llu tokens", bytes, (unsigned long long)least);
    return code ? err_prefix(err, code, prefix) : 0;
}
