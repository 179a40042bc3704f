/* Embeddings: the hidden vectors of a prompt pooled into one vector, which is the row's own memory from submit to drop.
 *
 * Nothing is kept of single positions. The backend hands over columns of all outputs of an item, which lie behind one
 * another, and a row's items run in the order of their positions, each position as an output once, however the prompt
 * was cut and however often the row was preempted (sched.h). So every column is one chain of sums over ascending
 * positions (docs/NUMERICS.md, Embeddings), whoever computes it.
 *
 * embed_take runs on the team's threads, several at once in one item, each with columns of its own. A row's last item
 * is over before its results are delivered, and no later one has outputs: the engine thread has the vector to itself
 * then, and the reader once its event is pushed. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/internal.h"
#include "model/spec.h"

int embed_check(const cohort_request *q, cohort_error *err) {
    if ((int)q->pooling < COHORT_POOLING_NONE || q->pooling > COHORT_POOLING_LAST)
        return err_set(err, COHORT_E_ARGUMENT, "pooling", "pooling is %d; %d to %d are possible", (int)q->pooling,
                       COHORT_POOLING_NONE, COHORT_POOLING_LAST);
    if (q->pooling == COHORT_POOLING_NONE) return 0;
    if (q->max_tokens != 0)
        return err_set(err, COHORT_E_ARGUMENT, "max_tokens", "a request for an embedding generates no tokens");
    if (q->prompt_logprobs)
        return err_set(err, COHORT_E_ARGUMENT, "prompt_logprobs",
                       "a request for an embedding has no log-probabilities");
    return 0;
}

/* No position sees a later one, in any model there is (the loader refuses others): of the first one's vector the first
 * token is all there is to know. */
uint32_t embed_reads(const cohort_request *q) { return q->pooling == COHORT_POOLING_CLS ? 1 : (uint32_t)q->prompt_n; }

int embed_init(const struct cohort_engine *e, struct row *row) {
    row->embedding = (struct embedding){.width = model_get_spec(e->model->built)->width};
    if (row->request.pooling == COHORT_POOLING_NONE) return 0;
    row->embedding.vector = mem_alloc(row->embedding.width, sizeof(float));
    if (!row->embedding.vector) return COHORT_E_MEMORY;
    if (row->request.pooling != COHORT_POOLING_MEAN) return 0;
    row->embedding.sums = mem_zalloc(row->embedding.width, sizeof(double));
    return row->embedding.sums ? 0 : COHORT_E_MEMORY;
}

void embed_deinit(struct row *row) {
    mem_free(row->embedding.vector);
    mem_free(row->embedding.sums);
    row->embedding = (struct embedding){0};
}

void embed_take(void *iteration, uint32_t item, const struct hidden *h) {
    const struct iteration *it = iteration;
    assert(item < it->n_items);
    struct row *row = it->items[item].row;
    assert(h->first + h->columns <= row->embedding.width);
    if (row->request.pooling != COHORT_POOLING_MEAN) {
        assert(h->rows == 1);
        memcpy(row->embedding.vector + h->first, h->x, h->columns * sizeof(float));
        return;
    }
    double *sums = row->embedding.sums + h->first;
    for (uint32_t o = 0; o < h->rows; o++)
        for (uint32_t i = 0; i < h->columns; i++) sums[i] += (double)h->x[o * h->stride + i];
}

static int is_finite(const float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}

void embed_deliver(struct cohort_engine *e, struct row *row) {
    const struct embedding *m = &row->embedding;
    for (uint32_t i = 0; m->sums && i < m->width; i++) m->vector[i] = (float)(m->sums[i] / row->request.prompt_n);
    if (!is_finite(m->vector, m->width)) {
        deliver_not_finite(e, row);
        return;
    }
    struct ring_event event = {.type = COHORT_EVENT_EMBEDDING, .token = -1, .logprob = NAN};
    if (ring_push(&row->ring, &event, NULL, NULL) != 0) {
        deliver_finish(e, row, COHORT_FINISH_ERROR, COHORT_E_MEMORY, "no memory for a request's output");
        return;
    }
    events_announce(e, row);
    deliver_finish(e, row, COHORT_FINISH_STOP, 0, NULL);
}
