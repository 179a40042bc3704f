/* Arenas and how a budget divides between them (state.h). One thread at a time; no allocation after state_new. */
#include "state/state.h"

#include <assert.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "pages/pages.h"

_Static_assert((int)PAGE_TOKENS == (int)BACKEND_PAGE_TOKENS, "page ids and page bytes speak of the same pages");
_Static_assert((int)PAGES_GROUPS_MAX == (int)PROGRAM_GROUPS_MAX, "every group has page ids");

struct state {
    struct state_plan plan;
    char *arena[PROGRAM_GROUPS_MAX];
    size_t arena_bytes[PROGRAM_GROUPS_MAX];
};

static uint64_t mul_saturated(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t add_saturated(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Pages of a group when the budget's tokens fill n pages; `most` is the group's limit. */
static uint64_t group_pages(uint64_t n, uint64_t most) { return n < most ? n : most; }

static uint64_t plan_bytes(const struct state_plan *plan, uint64_t n, const uint64_t most[]) {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < plan->groups; g++)
        bytes = add_saturated(bytes, mul_saturated(group_pages(n, most[g]), plan->page_bytes[g]));
    return bytes;
}

struct pages_shape state_shape(const struct program_group *group) {
    int recurrent = group->kind == GROUP_RECURRENT;
    return (struct pages_shape){.window = recurrent ? 1 : group->window,
                                .begin = group->begin / PAGE_TOKENS,
                                .end = group->end / PAGE_TOKENS,
                                .recurrent = (uint8_t)recurrent};
}

/* The most that a windowed or recurrent group has a use for. */
static uint64_t windowed_pages(const struct state_wanted *w, const struct pages_shape *shape) {
    uint64_t row = pages_worst(shape, w->row_tokens_max, (uint64_t)w->chunk_max * BACKEND_IN_FLIGHT);
    uint64_t snapshot = shape->recurrent ? 1 : pages_worst(shape, w->row_tokens_max, PAGE_TOKENS);
    return add_saturated(mul_saturated(w->rows, row), mul_saturated(w->snapshots, snapshot));
}

/* The most that a group has a use for, when the budget's tokens fill any number of pages. */
static uint64_t most_pages(const struct state_wanted *w, const struct pages_shape *shape) {
    uint64_t most = STATE_PAGES_MAX;
    if (shape->window != 0) return group_pages(windowed_pages(w, shape), most);
    if (shape->end != 0) return group_pages((uint64_t)(w->rows + w->snapshots) * (shape->end - shape->begin), most);
    return most;
}

/* The largest n that fits, by halving: plan_bytes never falls with n. */
static uint64_t pages_fitting(const struct state_plan *plan, uint64_t budget, uint64_t n_max, const uint64_t most[]) {
    uint64_t fits = 0, beyond = n_max + 1;
    while (beyond - fits > 1) {
        uint64_t n = fits + (beyond - fits) / 2;
        if (plan_bytes(plan, n, most) <= budget)
            fits = n;
        else
            beyond = n;
    }
    return fits;
}

int state_plan_make(const struct program *program, const struct state_wanted *wanted, struct state_plan *out,
                    cohort_error *err) {
    uint64_t bytes = wanted->bytes, tokens = wanted->tokens;
    assert(wanted->rows >= 1 && wanted->row_tokens_max >= 1 && wanted->chunk_max >= 1);
    assert(program->n_groups <= PROGRAM_GROUPS_MAX);
    struct state_plan plan = {.groups = program->n_groups};
    uint64_t most[PROGRAM_GROUPS_MAX], n_max = 1;
    for (uint32_t g = 0; g < plan.groups; g++) {
        struct pages_shape shape = state_shape(&program->groups[g]);
        plan.page_bytes[g] = backend_page_bytes(&program->groups[g]);
        most[g] = most_pages(wanted, &shape);
        if (most[g] > n_max) n_max = most[g];
    }

    uint64_t least = plan_bytes(&plan, 1, most);
    uint64_t n;
    if (bytes == 0) {
        if (tokens == 0)
            return err_set(err, COHORT_E_CAPACITY, "kv-tokens", "a state budget of 0 tokens: at least 1 is needed");
        n = tokens / PAGE_TOKENS + (tokens % PAGE_TOKENS != 0);
        if (n > STATE_PAGES_MAX)
            return err_set(err, COHORT_E_CAPACITY, "kv-tokens",
                           "a state budget of %llu tokens: at most %llu are possible", (unsigned long long)tokens,
                           (unsigned long long)STATE_PAGES_MAX * PAGE_TOKENS);
    } else {
        n = pages_fitting(&plan, bytes, n_max, most);
        if (n == 0)
            return err_set(err, COHORT_E_CAPACITY, "kv-bytes",
                           "a state budget of %llu bytes: one page of %d tokens per layer group takes %llu",
                           (unsigned long long)bytes, PAGE_TOKENS, (unsigned long long)least);
    }
    for (uint32_t g = 0; g < plan.groups; g++) plan.pages[g] = (uint32_t)group_pages(n, most[g]);
    plan.bytes = plan_bytes(&plan, n, most);
    *out = plan;
    return 0;
}

int state_new(const struct state_plan *plan, struct state **out, cohort_error *err) {
    struct state *s = mem_zalloc(1, sizeof *s);
    if (!s) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the state");
    s->plan = *plan;
    for (uint32_t g = 0; g < plan->groups; g++) {
        size_t bytes;
        int overflow = size_mul(plan->pages[g], plan->page_bytes[g], &bytes);
        if (!overflow && bytes == 0) continue;
        s->arena[g] = overflow ? NULL : mem_map(bytes);
        if (!s->arena[g]) {
            state_free(s);
            return err_set(err, COHORT_E_MEMORY, "kv-bytes", "cannot map %u pages of %llu bytes for layer group %u",
                           plan->pages[g], (unsigned long long)plan->page_bytes[g], g);
        }
        s->arena_bytes[g] = bytes;
    }
    *out = s;
    return 0;
}

void state_free(struct state *s) {
    if (!s) return;
    for (uint32_t g = 0; g < s->plan.groups; g++)
        if (s->arena[g]) mem_unmap(s->arena[g], s->arena_bytes[g]);
    mem_free(s);
}

void *state_arena(struct state *s, uint32_t group) {
    assert(group < s->plan.groups);
    return s->arena[group];
}

void *state_page(struct state *s, uint32_t group, uint32_t page) {
    assert(group < s->plan.groups && page < s->plan.pages[group]);
    return s->arena[group] + page * s->plan.page_bytes[group];
}

void state_copy(struct state *s, uint32_t group, uint32_t from, uint32_t to) {
    assert(from != to);
    memcpy(state_page(s, group, to), state_page(s, group, from), s->plan.page_bytes[group]);
}
