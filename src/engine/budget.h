/* Memory: how large the state may be. */
#ifndef ENGINE_BUDGET_H
#define ENGINE_BUDGET_H

#include "backend/backend.h"
#include "cohort/cohort.h"
#include "state/state.h"

/* The state's plan for effective options: by kv_tokens, else by kv_bytes, else a whole context for every row, capped at
 * half of the memory that this process may use. */
int budget_plan(const struct program *program, const cohort_engine_options *options, struct state_plan *out,
                cohort_error *err);
/* The machine's memory, or less if the control group has a limit ("max" is none). */
uint64_t budget_memory_limit(void);
/* Tokens over all rows that the plan has room for. */
uint64_t budget_tokens(const struct program *program, const struct state_plan *plan);

#endif
