/* A plan as a batch: items with their tokens and page tables, the sampler as the batch's consumer, and room for its
 * results. The engine thread builds and launches; consume runs on the backend's team threads, which write only the
 * results of their own output and the row's own slot. */
#include "engine/internal.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"

int iteration_init(struct iteration *it, struct cohort_engine *e, uint32_t items_max, uint32_t outputs_max) {
    it->engine = e;
    it->items = mem_zalloc(items_max, sizeof(*it->items));
    it->batch_items = mem_zalloc(items_max, sizeof(*it->batch_items));
    it->scores = mem_zalloc(outputs_max, sizeof(*it->scores));
    it->samples = mem_zalloc(items_max, sizeof(*it->samples));
    it->notes = mem_zalloc(items_max, sizeof(*it->notes));
    return it->items && it->batch_items && it->scores && it->samples && it->notes ? 0 : COHORT_E_MEMORY;
}

void iteration_deinit(struct iteration *it) {
    mem_free(it->items);
    mem_free(it->batch_items);
    mem_free(it->scores);
    mem_free(it->samples);
    mem_free(it->notes);
}

static void choose(const struct cohort_engine *e, struct row *row, uint64_t position, const struct logits *logits,
                   float *scratch, struct sample_result *out, struct constraint_note *note) {
    const struct sample_params *params = &row->request.sample;
    if (row->constraint) {
        constraint_draw(row->constraint, e->vecops, params, position, logits, scratch, out, note);
        return;
    }
    sample_draw(e->vecops, params, position, NULL, logits, scratch, out);
    sample_row_keep(params->row, position, out->token < 0 ? 0 : out->token, out->state);
}

/* One row of logits: what it says of the prompt, then the next token. */
static void consume(void *user, uint32_t item_index, uint32_t output, const struct logits *logits, float *scratch) {
    struct iteration *it = user;
    const struct cohort_engine *e = it->engine;
    assert(item_index < it->n_items);
    const struct iteration_item *item = &it->items[item_index];
    const struct row_request *r = &item->row->request;
    uint32_t pos = item->pos + item->n_tokens - item->n_outputs + output;
    assert(output < item->n_outputs);
    if (item->scores) {
        int32_t next = pos + 1 < r->prompt_n ? item->row->tokens[pos + 1] : -1;
        sample_score(e->vecops, logits, scratch, next, r->sample.logprobs, &it->scores[item->first_output + output]);
    }
    if (item->samples && output + 1 == item->n_outputs) {
        struct sample_result *result = &it->samples[item_index];
        choose(e, item->row, (uint64_t)pos + 1, logits, scratch, result, &it->notes[item_index]);
        /* A row without a token ends when this is delivered, but the next iteration may already read the slot. */
        e->slots[item->slot] = result->token < 0 ? 0 : result->token;
    }
}

/* What consume will look at. */
static enum batch_wants logits_wanted(void *user, uint32_t item_index, uint32_t output, const uint32_t **ids) {
    const struct iteration *it = user;
    assert(item_index < it->n_items);
    const struct iteration_item *item = &it->items[item_index];
    const struct row *row = item->row;
    if (item->scores || !item->samples || !row->constraint || output + 1 != item->n_outputs) return BATCH_ALL;
    return constraint_wants(row->constraint, &row->request.sample, (uint64_t)item->pos + item->n_tokens, ids);
}

static void build_item(struct iteration *it, uint32_t i, const struct plan_item *planned, uint32_t first_output) {
    struct cohort_engine *e = it->engine;
    uint32_t slot = sched_row_index(planned->row);
    struct row *row = e->by_sched[slot];
    assert(row && row->sched == planned->row);
    it->items[i] = (struct iteration_item){.row = row,
                                           .pos = planned->pos,
                                           .n_tokens = planned->n_tokens,
                                           .n_outputs = planned->n_outputs,
                                           .first_output = first_output,
                                           .slot = slot,
                                           .index = planned->sample_index,
                                           .samples = planned->samples,
                                           .prompt = planned->source == PLAN_PROMPT,
                                           .boundary = planned->boundary,
                                           .scores = row->request.prompt_logprobs && planned->source == PLAN_PROMPT};
    struct batch_item *b = &it->batch_items[i];
    *b = (struct batch_item){
        .first_pos = planned->pos, .n_tokens = planned->n_tokens, .slot = slot, .n_outputs = planned->n_outputs};
    b->hidden = row->request.pooling != COHORT_POOLING_NONE;
    if (planned->source == PLAN_PROMPT) {
        assert((uint64_t)planned->pos + planned->n_tokens <= row->tokens_n);
        b->tokens = row->tokens + planned->pos;
    }
    for (uint32_t g = 0; g < e->groups; g++) {
        b->table[g] = planned->table[g];
        b->from[g] = planned->from[g];
        b->to[g] = planned->to[g];
    }
}

int iteration_launch(struct iteration *it, const struct plan *plan) {
    struct cohort_engine *e = it->engine;
    uint32_t outputs = 0;
    it->plan = plan;
    it->number = plan->number;
    it->n_items = plan->n_items;
    it->n_tokens = plan->n_tokens;
    it->n_prompt_tokens = plan->n_prompt_tokens;
    it->n_redone = plan->n_redone;
    it->n_filled = plan->n_filled;
    it->n_boundaries = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        build_item(it, i, &plan->items[i], outputs);
        outputs += plan->items[i].n_outputs;
        it->n_boundaries += plan->items[i].boundary;
    }
    assert(outputs == plan->n_outputs);
    struct batch batch = {
        .n_items = it->n_items, .items = it->batch_items, .slots = e->slots, .consume = consume, .user = it};
    batch.wants = logits_wanted;
    batch.take_hidden = embed_take;
    for (uint32_t g = 0; g < e->groups; g++) batch.arena[g] = state_arena(e->state, g);
    it->launched_us = clock_us();
    return backend_launch(e->program, &batch);
}

void iteration_prepare_masks(struct iteration *it) {
    for (uint32_t i = 0; i < it->n_items; i++)
        if (it->items[i].samples && it->items[i].row->constraint) constraint_prepare(it->items[i].row->constraint);
}

void iteration_forget_finished(struct iteration *it) {
    for (uint32_t i = 0; i < it->n_items; i++)
        if (it->items[i].row && it->items[i].row->finished) it->items[i].row = NULL;
}
