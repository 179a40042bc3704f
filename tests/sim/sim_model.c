/* A model that is cheap and cannot be fooled. Each position stores, in each layer group, a value made from its token
 * and from the sum of the values that it sees; a sample is made from such a sum. In a recurrent group there is one
 * value, the state, to which each position adds its own and which the next position sees. So one wrong, stale or
 * foreign value anywhere in a row's visible state changes its next token. The solo run has the same definition by
 * running sums over one plain array, without pages, chunks or plans. */
#include <stdlib.h>

#include "sim.h"

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

int32_t sim_token(uint64_t salt, uint32_t pos) { return (int32_t)mix(salt + pos * UINT64_C(0x632be59b)); }
static uint64_t value_of(const struct sim_task *task, uint32_t token, uint32_t pos, uint64_t seen, uint32_t group) {
    return mix(seen ^ mix((uint64_t)token << 32 | pos) ^ (group + 1 + 8 * task->space) * UINT64_C(0xd6e8feb86659fd93));
}
static uint64_t state_of(uint64_t state, uint64_t value) { return mix(state ^ mix(value)); }
static uint32_t sample_of(uint64_t seen) { return (uint32_t)(mix(seen) >> 16); }

int sim_task_stops(const struct sim_task *task, uint32_t token) {
    return task->stop_every > 0 && token % task->stop_every == 0;
}

/* ---- Solo ---- */

void sim_task_solve(const struct sched_config *config, struct sim_task *task) {
    uint32_t total = task->prompt_n + task->max_new, groups = config->groups;
    uint64_t state[PAGES_GROUPS_MAX] = {0};
    uint64_t *sums = calloc((size_t)groups * (total + 1), sizeof *sums); /* [g][p]: of the values before position p */
    task->expected = calloc(task->max_new + 1, sizeof *task->expected);
    SIM_HOLDS(sums != NULL && task->expected != NULL);
    task->expected_n = 0;
    task->scores = 0;
    for (uint32_t pos = 0, token = 0; pos < total; pos++) {
        if (pos < task->prompt_n) token = (uint32_t)task->tokens[pos];
        uint64_t before = 0, seen = 0;
        for (uint32_t g = 0; g < groups; g++) {
            uint32_t window = config->group[g].window;
            uint32_t from = window == 0 || pos < window ? 0 : pos - window + 1;
            if (config->group[g].recurrent)
                before += state[g];
            else
                before += sums[g * (total + 1) + pos] - sums[g * (total + 1) + from];
        }
        for (uint32_t g = 0; g < groups; g++) {
            uint64_t value = sim_has(&config->group[g], pos) ? value_of(task, token, pos, before, g) : 0;
            sums[g * (total + 1) + pos + 1] = sums[g * (total + 1) + pos] + value;
            if (config->group[g].recurrent) state[g] = state_of(state[g], value);
            seen += value;
        }
        seen += before;
        if (pos + 1 < task->prompt_n || task->max_new == 0) {
            task->scores += mix(seen + pos);
            continue;
        }
        if (task->expected_n == task->max_new) break;
        token = sample_of(seen);
        task->expected[task->expected_n++] = token;
        if (sim_task_stops(task, token)) break;
    }
    free(sums);
}

void sim_task_clear(struct sim_task *task) {
    free(task->expected);
    free(task->tokens);
    task->expected = NULL;
    task->tokens = NULL;
}

/* ---- Batched ---- */

void sim_model_init(struct sim_model *m, const struct sched_config *config) {
    *m = (struct sim_model){.config = config};
    for (uint32_t g = 0; g < config->groups; g++) {
        uint32_t total = pages_total(config->pages, g);
        m->arena[g] = calloc((size_t)total * PAGE_TOKENS, sizeof *m->arena[g]);
        m->owner[g] = calloc(total, sizeof *m->owner[g]);
        SIM_HOLDS(m->arena[g] != NULL && m->owner[g] != NULL);
    }
}

void sim_model_clear(struct sim_model *m) {
    for (uint32_t g = 0; g < PAGES_GROUPS_MAX; g++) {
        free(m->arena[g]);
        free(m->owner[g]);
    }
}

/* The page that holds `pos`, or the state after it, seen to be one that the row may use. */
static uint64_t *page_of(const struct sim_model *m, const struct plan_item *item, uint32_t g, uint32_t pos) {
    uint32_t page = item->table[g][pos / PAGE_TOKENS];
    if (page >= pages_total(m->config->pages, g) || pages_count(m->config->pages, g, page) == 0)
        sim_fail("row %llx reads position %u of group %u through page %u, which it does not hold",
                 (unsigned long long)item->row, pos, g, page);
    return m->arena[g] + (size_t)page * PAGE_TOKENS;
}

/* The sum of the row's values at positions [from, to), all of which it must have written itself if rows share nothing.
 */
static uint64_t sum_seen(const struct sim_model *m, const struct plan_item *item, uint32_t g, uint32_t from,
                         uint32_t to) {
    const struct pages_shape *shape = &m->config->group[g];
    uint64_t sum = 0;
    from = sim_max(from, shape->begin * PAGE_TOKENS);
    if (shape->end != 0) to = sim_min(to, shape->end * PAGE_TOKENS);
    while (from < to) {
        const uint64_t *page = page_of(m, item, g, from);
        uint32_t id = item->table[g][from / PAGE_TOKENS];
        if (m->config->prefix == NULL && m->owner[g][id] != item->row)
            sim_fail("row %llx reads page %u of group %u, last written by row %llx", (unsigned long long)item->row, id,
                     g, (unsigned long long)m->owner[g][id]);
        uint32_t at = from % PAGE_TOKENS, n = sim_min(PAGE_TOKENS - at, to - from);
        sum += page[at + n - 1] - (at == 0 ? 0 : page[at - 1]);
        from += n;
    }
    return sum;
}

/* The state that an item goes on from. It stands for all that lies before the item, and nothing else. */
static uint64_t state_before(const struct sim_model *m, const struct plan_item *item, uint32_t g) {
    if (item->pos == 0) {
        SIM_HOLDS(item->from[g] == PAGE_NONE);
        return 0;
    }
    const uint64_t *page = page_of(m, item, g, item->pos - 1);
    SIM_HOLDS(item->from[g] == item->table[g][(item->pos - 1) / PAGE_TOKENS]);
    SIM_HOLDS(m->config->prefix != NULL || m->owner[g][item->from[g]] == item->row);
    if (page[1] != item->pos)
        sim_fail("row %llx goes on at %u from a state after %llu tokens", (unsigned long long)item->row, item->pos,
                 (unsigned long long)page[1]);
    return page[0];
}

/* The state after an item: in the place of the one before only inside one block, and never where somebody else reads.
 */
static void state_write(struct sim_model *m, const struct plan_item *item, uint32_t g, uint64_t state) {
    uint32_t end = item->pos + item->n_tokens, to = item->to[g];
    uint64_t *page = page_of(m, item, g, end - 1);
    int inside = item->pos % PAGE_TOKENS != 0 && item->pos / PAGE_TOKENS == (end - 1) / PAGE_TOKENS;
    SIM_HOLDS(to == item->table[g][(end - 1) / PAGE_TOKENS] && (item->from[g] == to) == inside);
    SIM_HOLDS(pages_count(m->config->pages, g, to) == 1);
    page[0] = state;
    page[1] = end;
    m->owner[g][to] = item->row;
}

static void value_write(struct sim_model *m, const struct plan_item *item, uint32_t g, uint32_t pos, uint64_t value) {
    uint64_t *page = page_of(m, item, g, pos);
    uint32_t at = pos % PAGE_TOKENS;
    page[at] = (at == 0 ? 0 : page[at - 1]) + value;
    m->owner[g][item->table[g][pos / PAGE_TOKENS]] = item->row;
}

static uint32_t token_at(const struct sim_task *task, const struct plan_item *item, const struct sim_feed *feed,
                         uint32_t pos, enum sim_canary canary) {
    if (item->source == PLAN_SAMPLE) return feed->sample;
    if (pos < task->prompt_n) return (uint32_t)task->tokens[pos];
    uint32_t index = pos - task->prompt_n;
    SIM_HOLDS(index < feed->read_n);
    if (canary == CANARY_REREAD && index > 0) index--;
    return (uint32_t)task->tokens[task->prompt_n + index];
}

uint32_t sim_model_run(struct sim_model *m, const struct sim_task *task, const struct plan_item *item,
                       const struct sim_feed *feed, uint64_t *scores, enum sim_canary canary) {
    uint32_t groups = m->config->groups, sample = 0;
    uint64_t state[PAGES_GROUPS_MAX] = {0};
    for (uint32_t g = 0; g < groups; g++)
        if (m->config->group[g].recurrent) state[g] = state_before(m, item, g);
    for (uint32_t k = 0; k < item->n_tokens; k++) {
        uint32_t pos = item->pos + k, token = token_at(task, item, feed, pos, canary);
        uint64_t before = 0, seen = 0;
        for (uint32_t g = 0; g < groups; g++) {
            uint32_t window = m->config->group[g].window;
            uint32_t from = window == 0 || pos < window ? 0 : pos - window + 1;
            if (canary == CANARY_STALE && from > PAGE_TOKENS) from -= PAGE_TOKENS;
            before += m->config->group[g].recurrent ? state[g] : sum_seen(m, item, g, from, pos);
        }
        for (uint32_t g = 0; g < groups; g++) {
            if (!sim_has(&m->config->group[g], pos)) continue;
            uint64_t value = value_of(task, token, pos, before, g);
            seen += value;
            if (m->config->group[g].recurrent)
                state[g] = state_of(state[g], value);
            else
                value_write(m, item, g, pos, value);
        }
        seen += before;
        if (k + item->n_outputs < item->n_tokens) continue;
        if (item->samples && k + 1 == item->n_tokens)
            sample = sample_of(seen);
        else
            *scores += mix(seen + pos);
    }
    for (uint32_t g = 0; g < groups; g++)
        if (m->config->group[g].recurrent) state_write(m, item, g, state[g]);
    return sample;
}
