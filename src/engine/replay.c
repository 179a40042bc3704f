/* Continuations (T2): what a request was given before comes again, by the way that new tokens take, and only then does
 * the scheduler get it. Engine thread. A row that replays has no scheduler's name yet; it stops while its ring is full.
 */
#include "engine/internal.h"

int replay_run(struct cohort_engine *e, struct row *row, uint64_t now) {
    const struct row_request *r = &row->request;
    while (row->generated < r->saved_n) {
        if (!row_has_room(row)) return 0;
        const cohort_saved_token *saved = &r->saved[row->generated];
        struct sample_result result = {
            .token = saved->token, .logprob = saved->logprob, .state = saved->sampler_state, .top_n = saved->top_n};
        for (uint32_t i = 0; i < saved->top_n; i++) result.top[i] = saved->top[i];
        int last = row->generated + 1 == r->saved_n;
        row->at_end = last && row->constraint && constraint_over(row->constraint, r->saved_n);
        deliver_token(e, row, &result, now);
        if (row->finished) return 1;
    }
    return r->saved_n == 0 || row_has_room(row);
}
