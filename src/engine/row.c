/* A row's request: checked at the border, copied into one block, sized for its ring. Filled by the
 * submitting thread; cleared by whoever frees the handle. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "engine/internal.h"

enum { ROW_TOKENS_STEP = 64 /* generated tokens that there is room for at first */ };

static int check_ids(const struct cohort_engine *e, const int32_t *ids, size_t n, const char *field,
                     cohort_error *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->vocab)
            return err_set(err, COHORT_E_ARGUMENT, field, "%s[%zu] is %d; the vocabulary has %u tokens", field, i,
                           ids[i], e->vocab);
    return 0;
}

static int check_stops(const cohort_request *q, cohort_error *err) {
    if (q->stops_n > COHORT_STOPS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "stop", "%zu stop strings; at most %d are allowed", q->stops_n,
                       COHORT_STOPS_MAX);
    for (size_t i = 0; i < q->stops_n; i++) {
        if (q->stops[i].len == 0 || q->stops[i].len > COHORT_STOP_BYTES_MAX)
            return err_set(err, COHORT_E_ARGUMENT, "stop", "stop string %zu has %zu bytes; 1 to %d are allowed", i,
                           q->stops[i].len, COHORT_STOP_BYTES_MAX);
        /* Text goes out in whole characters, so another string would be looked for in vain. */
        if (!utf8_valid(q->stops[i].bytes, q->stops[i].len))
            return err_set(err, COHORT_E_ARGUMENT, "stop", "stop string %zu is not valid UTF-8", i);
    }
    if (q->stop_ids_n > COHORT_STOP_IDS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "stop_ids", "%zu stop ids; at most %d are allowed", q->stop_ids_n,
                       COHORT_STOP_IDS_MAX);
    return 0;
}

static int check_names(const cohort_request *q, cohort_error *err) {
    if (q->cache_salt_n > COHORT_CACHE_SALT_MAX || (q->cache_salt && q->cache_salt_n == 0))
        return err_set(err, COHORT_E_ARGUMENT, "cache_salt", "cache_salt has %zu bytes; 1 to %d are possible",
                       q->cache_salt_n, COHORT_CACHE_SALT_MAX);
    if (q->session_n > COHORT_SESSION_NAME_MAX || (q->session && q->session_n == 0))
        return err_set(err, COHORT_E_ARGUMENT, "session", "session has %zu bytes; 1 to %d are possible", q->session_n,
                       COHORT_SESSION_NAME_MAX);
    if (q->session_n && !q->cache_prompt)
        return err_set(err, COHORT_E_ARGUMENT, "session", "a session keeps state, which cache_prompt 0 forbids");
    return 0;
}

static int check_constraint(const struct cohort_engine *e, const cohort_request *q, cohort_error *err) {
    if (q->show_special != 0 && q->show_special != 1)
        return err_set(err, COHORT_E_ARGUMENT, "show_special", "show_special must be 0 or 1");
    if (q->reasoning_end_n > COHORT_STOP_IDS_MAX || (q->reasoning_end && q->reasoning_end_n == 0))
        return err_set(err, COHORT_E_ARGUMENT, "reasoning_end", "reasoning_end has %zu ids; 1 to %d are possible",
                       q->reasoning_end_n, COHORT_STOP_IDS_MAX);
    if (q->reasoning_begin_n > COHORT_STOP_IDS_MAX || (q->reasoning_begin_n && !q->reasoning_end))
        return err_set(err, COHORT_E_ARGUMENT, "reasoning_begin",
                       "reasoning_begin has %zu ids; at most %d are possible, and only beside reasoning_end",
                       q->reasoning_begin_n, COHORT_STOP_IDS_MAX);
    if (q->grammar && !grammars_owns(e->model->grammars, q->grammar))
        return err_set(err, COHORT_E_ARGUMENT, "grammar", "the grammar was compiled for another model");
    if (q->grammar && q->pooling)
        return err_set(err, COHORT_E_ARGUMENT, "grammar", "a request for an embedding has no answer");
    return 0;
}

static int check_resume(const struct cohort_engine *e, const cohort_request *q, cohort_error *err) {
    if (q->resume_n == 0) return 0;
    if (q->prompt_logprobs)
        return err_set(err, COHORT_E_UNSUPPORTED, "resume", "a request with prompt_logprobs cannot be continued");
    if (q->resume_n > q->max_tokens || q->resume_n > e->options.context)
        return err_set(err, COHORT_E_ARGUMENT, "resume", "%zu tokens to go on behind, and max_tokens is %u",
                       q->resume_n, q->max_tokens);
    for (size_t i = 0; i < q->resume_n; i++) {
        const cohort_saved_token *saved = &q->resume[i];
        int ok = saved->token >= 0 && (uint32_t)saved->token < e->vocab && saved->top_n <= COHORT_TOP_LOGPROBS_MAX &&
                 isfinite(saved->sampler_state);
        for (uint32_t j = 0; ok && j < saved->top_n; j++)
            ok = saved->top[j].id >= 0 && (uint32_t)saved->top[j].id < e->vocab;
        if (!ok)
            return err_set(err, COHORT_E_ARGUMENT, "resume", "resume[%zu] is no token of this vocabulary with its list",
                           i);
    }
    return 0;
}

/* Everything about a request that does not depend on lengths and the context. */
static int check_fields(const struct cohort_engine *e, const cohort_request *q, cohort_error *err) {
    if (q->size != sizeof(*q))
        return err_set(err, COHORT_E_ARGUMENT, "size", "the request was not filled by cohort_request_defaults");
    if (q->prompt_n == 0) return err_set(err, COHORT_E_ARGUMENT, "prompt", "the prompt has no tokens");
    if (q->prompt_logprobs != 0 && q->prompt_logprobs != 1)
        return err_set(err, COHORT_E_ARGUMENT, "prompt_logprobs", "prompt_logprobs must be 0 or 1");
    if (q->max_tokens == 0 && !q->prompt_logprobs && !q->pooling)
        return err_set(err, COHORT_E_ARGUMENT, "max_tokens", "max_tokens must be at least 1");
    if (q->min_tokens > q->max_tokens)
        return err_set(err, COHORT_E_ARGUMENT, "min_tokens", "min_tokens is %u and max_tokens %u", q->min_tokens,
                       q->max_tokens);
    if (q->priority < -COHORT_PRIORITY_MAX || q->priority > COHORT_PRIORITY_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "priority", "priority is %d; -%d to %d are possible", q->priority,
                       COHORT_PRIORITY_MAX, COHORT_PRIORITY_MAX);
    if (q->include_stop != 0 && q->include_stop != 1)
        return err_set(err, COHORT_E_ARGUMENT, "include_stop", "include_stop must be 0 or 1");
    int code = check_stops(q, err);
    if (!code) code = sample_check(&q->sampling, q->logprobs, e->vocab, err);
    if (!code) code = sample_check_lists(q, e->vocab, err);
    if (!code) code = check_names(q, err);
    if (!code) code = embed_check(q, err);
    if (!code) code = check_constraint(e, q, err);
    return code ? code : check_resume(e, q, err);
}

struct sched_request row_wanted(const struct row_request *r, uint32_t max_new) {
    struct sched_request wanted = {.prompt_n = r->prompt_n,
                                   .max_new = max_new,
                                   .chunk_max = r->chunk_max,
                                   .all_outputs = r->prompt_logprobs || r->pooling == COHORT_POOLING_MEAN,
                                   .last_output = r->pooling != COHORT_POOLING_NONE,
                                   .tenant = r->tenant,
                                   .priority = r->priority,
                                   .cuts_n = r->cuts_n,
                                   .weight = r->session_n ? CACHE_SESSION_WEIGHT : 1,
                                   .resumed = r->saved_n};
    memcpy(wanted.cuts, r->cuts, r->cuts_n * sizeof(wanted.cuts[0]));
    return wanted;
}

static int fits(const struct cohort_engine *e, const struct row_request *r, uint32_t max_new, cohort_error *err) {
    const struct sched_request wanted = row_wanted(r, max_new);
    return sched_fits(e->sched, &wanted, err);
}

/* The most tokens, up to `most`, that the state budget has room for behind the prompt; at least 1, which may not fit.
 */
static uint32_t most_that_fit(const struct cohort_engine *e, const struct row_request *r, uint32_t most) {
    uint32_t low = 1, high = most;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (fits(e, r, middle, NULL) == 0)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The budget in numbers: E_CONTEXT and E_CAPACITY. */
static int check_lengths(const struct cohort_engine *e, struct row_request *r, const cohort_request *q,
                         cohort_error *err) {
    uint32_t context = e->options.context;
    if (q->prompt_n > context || (q->prompt_n == context && q->max_tokens != 0))
        return err_set(err, COHORT_E_CONTEXT, "prompt",
                       "the prompt has %zu tokens and leaves no room to answer; the context is %u", q->prompt_n,
                       context);
    r->given_n = (uint32_t)q->prompt_n;
    r->prompt_n = embed_reads(q);
    r->max_new = q->max_tokens == UINT32_MAX ? most_that_fit(e, r, context - r->prompt_n) : q->max_tokens;
    if (q->resume_n > r->max_new)
        return err_set(err, COHORT_E_ARGUMENT, "resume", "%zu tokens to go on behind, and there is room for %u",
                       q->resume_n, r->max_new);
    if (r->max_new > context - r->prompt_n)
        return err_set(err, COHORT_E_CONTEXT, "max_tokens",
                       "a prompt of %u tokens and max_tokens of %u are more than the context of %u", r->prompt_n,
                       r->max_new, context);
    return fits(e, r, r->max_new, err);
}

static uint32_t best_n(const struct row_request *r) {
    return r->sample.logprobs > 0 ? (uint32_t)r->sample.logprobs : 0;
}

/* How many prompt tokens an iteration may take so that their events fit, and what must be free to go on: the results in
 * flight and those of one more iteration. */
static void size_ring(const struct cohort_engine *e, struct row_request *r, const cohort_request *q) {
    uint32_t token = ring_event_bytes(best_n(r), e->text_max), fixed = 2 * token;
    assert(fixed < e->options.ring_bytes);
    /* Tokens that come without being drawn are told together, unless their logits are asked for. */
    if ((q->grammar || q->reasoning_end_n) && q->logprobs < 0 && !q->prompt_logprobs) {
        r->fill_max = e->options.ring_bytes / 4 / token;
        if (r->fill_max > CONSTRAINT_RUN_MAX) r->fill_max = CONSTRAINT_RUN_MAX;
    }
    r->ring_need = fixed + 2 * r->fill_max * token;
    r->chunk_max = q->chunk_max;
    if (!r->prompt_logprobs) return;
    uint32_t each = ring_event_bytes(best_n(r), 0), most = (e->options.ring_bytes - fixed) / 4 / each;
    assert(most > 0);
    if (r->chunk_max == 0 || r->chunk_max > most) r->chunk_max = most;
    r->ring_need = fixed + 2 * r->chunk_max * each;
}

static int make_ring(const struct cohort_engine *e, struct row *row) {
    uint32_t token = ring_event_bytes(best_n(&row->request), e->text_max), finish = ring_event_bytes(0, e->text_max);
    return ring_init(&row->ring, e->options.ring_bytes, token, finish);
}

/* P7: where a chunk of the prompt ends exactly. */
static int take_cuts(struct row_request *r, const cohort_request *q, cohort_error *err) {
    if (q->snapshot_at_n > COHORT_SNAPSHOTS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "snapshot_at", "%zu snapshot positions; at most %d are allowed",
                       q->snapshot_at_n, COHORT_SNAPSHOTS_MAX);
    uint32_t before = 0;
    for (size_t i = 0; i < q->snapshot_at_n; i++) {
        if (q->snapshot_at[i] <= before || q->snapshot_at[i] > r->given_n)
            return err_set(err, COHORT_E_ARGUMENT, "snapshot_at",
                           "snapshot_at[%zu] is %u; positions ascend from 1 to the prompt's length of %u", i,
                           q->snapshot_at[i], r->given_n);
        before = q->snapshot_at[i];
        if (before <= r->prompt_n) r->cuts[r->cuts_n++] = before;
    }
    return 0;
}

/* The saved tokens, and behind them what is best beside each. Returns where they end. */
static char *copy_saved(struct row_request *r, const cohort_request *q, char *memory) {
    cohort_saved_token *saved = (cohort_saved_token *)(void *)memory;
    cohort_logprob *top = (cohort_logprob *)(void *)(saved + q->resume_n);
    r->saved = saved;
    r->saved_n = (uint32_t)q->resume_n;
    for (size_t i = 0; i < q->resume_n; i++) {
        saved[i] = q->resume[i];
        saved[i].top = top;
        for (uint32_t j = 0; j < saved[i].top_n; j++) *top++ = q->resume[i].top[j];
    }
    return (char *)top;
}

static struct id_match copy_ids(const int32_t *ids, size_t n, int32_t **to) {
    struct id_match out = {.ids = *to, .n = (uint32_t)n};
    if (n) memcpy(*to, ids, n * sizeof(**to));
    *to += n;
    return out;
}

static int copy(struct row_request *r, const cohort_request *q) {
    size_t stops = q->stops_n * sizeof(struct detok_stop),
           ids = (q->stop_ids_n + q->reasoning_end_n + q->reasoning_begin_n) * sizeof(int32_t);
    size_t saved = q->resume_n * sizeof(cohort_saved_token);
    for (size_t i = 0; i < q->resume_n; i++) saved += q->resume[i].top_n * sizeof(cohort_logprob);
    char *memory = mem_alloc(saved + ids + stops + q->cache_salt_n + q->session_n + 1, 1);
    if (!memory) return COHORT_E_MEMORY;
    r->memory = memory;
    memory = copy_saved(r, q, memory);
    r->stop_ids = (int32_t *)(void *)memory;
    if (q->stop_ids_n) memcpy(memory, q->stop_ids, q->stop_ids_n * sizeof(int32_t));
    int32_t *more = (int32_t *)(void *)memory + q->stop_ids_n;
    r->reasoning.end = copy_ids(q->reasoning_end, q->reasoning_end_n, &more);
    r->reasoning.begin = copy_ids(q->reasoning_begin, q->reasoning_begin_n, &more);
    r->reasoning_budget = q->reasoning_budget;
    struct detok_stop *to = (struct detok_stop *)(void *)(memory + ids);
    r->salt = memory + ids + stops;
    r->salt_n = (uint32_t)q->cache_salt_n;
    if (r->salt_n) memcpy(memory + ids + stops, q->cache_salt, r->salt_n);
    r->session = r->salt + r->salt_n;
    r->session_n = (uint32_t)q->session_n;
    if (r->session_n) memcpy(memory + ids + stops + r->salt_n, q->session, r->session_n);
    for (size_t i = 0; i < q->stops_n; i++) {
        to[i].len = (uint16_t)q->stops[i].len;
        memcpy(to[i].bytes, q->stops[i].bytes, q->stops[i].len);
    }
    r->stops = to;
    r->stops_n = (uint32_t)q->stops_n;
    r->stop_ids_n = (uint32_t)q->stop_ids_n;
    return 0;
}

static int copy_prompt(struct row *row, const cohort_request *q) {
    uint32_t n = row->request.prompt_n,
             more = row->request.max_new < ROW_TOKENS_STEP ? row->request.max_new : ROW_TOKENS_STEP;
    row->tokens = mem_alloc(n + more, sizeof(*row->tokens));
    if (!row->tokens) return COHORT_E_MEMORY;
    memcpy(row->tokens, q->prompt, n * sizeof(*row->tokens));
    row->tokens_n = n;
    row->tokens_cap = n + more;
    return 0;
}

int row_add_token(struct row *row, int32_t token) {
    if (row->tokens_n == row->tokens_cap) {
        uint32_t cap = row->tokens_cap + row->tokens_cap / 2 + ROW_TOKENS_STEP;
        int32_t *tokens = mem_realloc(row->tokens, cap, sizeof(*tokens));
        if (!tokens) return COHORT_E_MEMORY;
        row->tokens = tokens;
        row->tokens_cap = cap;
    }
    row->tokens[row->tokens_n++] = token;
    return 0;
}

/* Behind the row's samplers, which look back on what comes without being drawn, too. */
static int make_constraint(struct cohort_engine *e, struct row *row, const cohort_request *q, cohort_error *err) {
    struct row_request *r = &row->request;
    row->reasoning = r->reasoning;
    row->reasoning_tokens = row->forced_tokens = 0;
    if (q->grammar) {
        r->grammar = q->grammar;
        grammars_retain(q->grammar);
    }
    if (r->max_new == 0 || (!r->grammar && r->reasoning.end.n == 0)) return 0;
    const struct constraint_request wanted = {.grammar = r->grammar ? grammars_compiled(r->grammar) : NULL,
                                              .tokenizer = e->model->tokenizer,
                                              .ends = e->ends,
                                              .ends_n = e->ends_n,
                                              .vocab = e->vocab,
                                              .prompt_n = r->prompt_n,
                                              .max_new = r->max_new,
                                              .reasoning = r->reasoning,
                                              .reasoning_budget = r->reasoning_budget,
                                              .sample = r->sample.row,
                                              .counts = &e->masks};
    return constraint_make(&row->constraint, &wanted, r->saved, r->saved_n, &row->forced_tokens, err);
}

int row_fill(struct cohort_engine *e, struct row *row, const cohort_request *q, cohort_error *err) {
    struct row_request *r = &row->request;
    int code = check_fields(e, q, err);
    if (code) return code;
    *r = (struct row_request){.tenant = row->tenant,
                              .priority = q->priority,
                              .prompt_logprobs = (uint8_t)q->prompt_logprobs,
                              .ignore_eos = q->ignore_eos != 0,
                              .cache = q->cache_prompt != 0,
                              .show_special = (uint8_t)q->show_special,
                              .pooling = q->pooling,
                              .user = q->user,
                              .submitted_us = clock_us(),
                              .timeout_ms = q->timeout_ms,
                              .max_predict_ms = q->max_predict_ms,
                              .min_tokens = q->min_tokens};
    r->sample = sample_params_make(&q->sampling, q->sampling.has_seed ? q->sampling.seed : rng_entropy(), q->logprobs,
                                   q->post_sampling);
    size_ring(e, r, q);
    code = check_lengths(e, r, q, err);
    if (!code) code = check_ids(e, q->prompt, q->prompt_n, "prompt", err);
    if (!code) code = check_ids(e, q->stop_ids, q->stop_ids_n, "stop_ids", err);
    if (!code) code = check_ids(e, q->reasoning_end, q->reasoning_end_n, "reasoning_end", err);
    if (!code) code = check_ids(e, q->reasoning_begin, q->reasoning_begin_n, "reasoning_begin", err);
    if (!code) code = take_cuts(r, q, err);
    if (code) return code;
    if (copy(r, q) || copy_prompt(row, q) || make_ring(e, row) || embed_init(e, row))
        code = err_set(err, COHORT_E_MEMORY, NULL, "no memory for a request of %u prompt tokens", r->prompt_n);
    else
        code = sample_row_make(&r->sample.row, &r->sample, q, r->max_new, e->vocab, e->ends, e->ends_n,
                               e->model->tokenizer, err);
    if (!code) code = make_constraint(e, row, q, err);
    if (code) {
        row_clear(row);
        return code;
    }
    row->final = (struct row_final){.stop_token = -1, .stop_index = -1};
    row->sched = 0;
    row->space = 0;
    row->finished = row->newline = row->at_end = 0;
    row->generated = 0;
    row->due_us = DUE_NEVER;
    row->admitted_us = row->first_us = row->last_us = 0;
    /* The answer goes on from the prompt's text, so it keeps its leading space. */
    detok_init(&row->detok, e->model->tokenizer, r->stops, r->stops_n, 0);
    row->detok.include_stop = q->include_stop != 0;
    row->detok.special = r->show_special;
    atomic_store(&row->paused, 0);
    return 0;
}

void row_clear(struct row *row) {
    constraint_free(row->constraint); /* before what it borrows */
    row->constraint = NULL;
    cohort_grammar_release((cohort_grammar *)(uintptr_t)row->request.grammar);
    row->request.grammar = NULL;
    mem_free(row->request.memory);
    row->request.memory = NULL;
    sample_row_free(row->request.sample.row);
    row->request.sample.row = NULL;
    mem_free(row->tokens);
    row->tokens = NULL;
    embed_deinit(row);
    ring_deinit(&row->ring);
    row->held = NULL;
    row->finish_taken = 0;
}

int row_has_room(const struct row *row) { return ring_room(&row->ring) >= row->request.ring_need; }
