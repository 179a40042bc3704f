/* Budgets of memory (budget.h). Called while an engine is opened. */
#include "engine/budget.h"

#include <stdio.h>
#include <unistd.h>

/* Places to go on in windowed layers, for each row that runs: the end of its prompt, of the turns before, of answers
 * that may be gone on from. */
enum { SNAPSHOTS_PER_ROW = 4 };

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t budget_memory_limit(void) {
    uint64_t limit = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    static const char *const files[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        FILE *f = fopen(files[i], "r");
        unsigned long long value;
        if (!f) continue;
        if (fscanf(f, "%llu", &value) == 1 && value > 0) limit = min_u64(limit, value);
        fclose(f);
    }
    return limit;
}

int budget_plan(const struct program *program, const cohort_engine_options *o, struct state_plan *out,
                cohort_error *err) {
    struct state_wanted w = {.bytes = o->kv_tokens ? 0 : o->kv_bytes,
                             .tokens = o->kv_tokens,
                             .rows = o->rows,
                             .row_tokens_max = o->context,
                             .chunk_max = o->batch_tokens,
                             .snapshots = o->cache ? SNAPSHOTS_PER_ROW * o->rows : 0};
    /* A row's last page is its own, however little of it is used. */
    uint64_t row_pages = (o->context + BACKEND_PAGE_TOKENS - 1) / BACKEND_PAGE_TOKENS;
    if (!w.bytes && !w.tokens) w.tokens = o->rows * row_pages * BACKEND_PAGE_TOKENS;
    int code = state_plan_make(program, &w, out, err);
    if (code || o->kv_bytes || o->kv_tokens) return code;
    uint64_t most = budget_memory_limit() / 2;
    if (out->bytes <= most) return 0;
    w.bytes = most;
    w.tokens = 0;
    return state_plan_make(program, &w, out, err);
}

uint64_t budget_tokens(const struct program *program, const struct state_plan *plan) {
    uint64_t full = UINT64_MAX, windowed = 0, recurrent = 0;
    for (uint32_t g = 0; g < plan->groups; g++) {
        uint64_t tokens = (uint64_t)plan->pages[g] * BACKEND_PAGE_TOKENS;
        const struct program_group *group = &program->groups[g];
        if (group->kind == GROUP_ATTENTION && group->window == 0 && group->end == 0) full = min_u64(full, tokens);
        uint64_t *most = group->kind == GROUP_ATTENTION ? &windowed : &recurrent;
        if (tokens > *most) *most = tokens;
    }
    if (full != UINT64_MAX) return full; /* the others hold what their rows need; full layers say how much fits */
    return windowed > 0 ? windowed : recurrent;
}
