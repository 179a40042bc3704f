/* From results to events: detokenising, stops, budgets, the row's ring. Engine thread only, usually while the next
 * iteration runs. What a row was given after the token that ended it is dropped here, so it never shows. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "engine/internal.h"

/* What does not fit into memory ends only its row (F1). */
static void push(struct cohort_engine *e, struct row *row, struct ring_event *event, const cohort_logprob *top) {
    event->text_len = (uint32_t)e->text.len;
    assert(e->text.len <= e->text_max);
    if (ring_push(&row->ring, event, top, e->text.data) == 0)
        events_announce(e, row);
    else
        deliver_finish(e, row, COHORT_FINISH_ERROR, COHORT_E_MEMORY, "no memory for a request's output");
}

static void push_finish(struct cohort_engine *e, struct row *row) {
    struct ring_event event = {.type = COHORT_EVENT_FINISH, .text_len = (uint32_t)e->text.len};
    assert(e->text.len <= e->text_max);
    ring_push_last(&row->ring, &event, e->text.data);
    events_announce(e, row);
}

/* Times so far. A part that a row never reached is 0. */
static void fill_stats(const struct cohort_engine *e, const struct row *row, cohort_stats *out, uint64_t now) {
    const struct row_request *r = &row->request;
    *out = (cohort_stats){.prompt_tokens = r->given_n, .generated_tokens = row->generated, .seed = r->sample.seed};
    out->queue_us = (row->admitted_us ? row->admitted_us : now) - r->submitted_us;
    struct sched_history history;
    sched_get_history(e->sched, row->sched, &history);
    out->forced_tokens = row->forced_tokens;
    out->reasoning_tokens = row->reasoning_tokens;
    out->preemptions = history.preemptions;
    out->redone_tokens = history.redone;
    out->cached_tokens = history.cached;
    uint64_t first = row->first_us ? row->first_us : now;
    /* What was replayed came before it was admitted. */
    if (row->admitted_us && first > row->admitted_us) out->prefill_us = first - row->admitted_us;
    if (!row->first_us) return;
    out->decode_us = now - row->first_us;
    out->first_token_us = row->first_us - r->submitted_us;
}

static void finish(struct cohort_engine *e, struct row *row, struct row_final *final) {
    assert(!row->finished);
    uint64_t now = clock_us();
    buf_clear(&e->text);
    if (final->stop_index < 0 && detok_finish(&row->detok, &e->text) != 0) buf_clear(&e->text);
    fill_stats(e, row, &final->stats, now);
    row->final = *final;
    row->finished = 1;
    deadlines_forget(e, row);
    /* A request whose time is over was still computed right; any other failure leaves nothing behind (S5). */
    int sound = final->finish != COHORT_FINISH_ERROR || final->error.code == COHORT_E_TIMEOUT;
    if (row->sched) sched_finish(e->sched, row->sched, sound);
    if (row->space) cache_count(e, final->stats.cached_tokens);
    /* Before the event shows: its reader may submit the next request at once. */
    metrics_finish(e, row, now);
    spans_finished(e, row, now);
    inbox_give_place_back(e, row, now);
    push_finish(e, row);
}

void deliver_finish(struct cohort_engine *e, struct row *row, cohort_finish how, int code, const char *text) {
    struct row_final final = {.finish = how, .stop_token = -1, .stop_index = -1, .logprob = NAN};
    if (code) err_set(&final.error, code, NULL, "%s", text);
    finish(e, row, &final);
}

/* Under a grammar an end token stands for the end of what may come, whatever was asked for. */
static int ends_row(const struct cohort_engine *e, const struct row_request *r, int32_t token) {
    if ((!r->ignore_eos || r->grammar) && tokenizer_is_end(e->model->tokenizer, token)) return 1;
    for (uint32_t i = 0; i < r->stop_ids_n; i++)
        if (r->stop_ids[i] == token) return 1;
    return 0;
}

void deliver_not_finite(struct cohort_engine *e, struct row *row) {
    deliver_finish(e, row, COHORT_FINISH_ERROR, COHORT_E_NUMERIC, cohort_error_text(COHORT_E_NUMERIC));
}

static void deliver_prompt(struct cohort_engine *e, struct row *row, uint32_t pos, const struct sample_result *r) {
    if (r->token < 0) {
        deliver_not_finite(e, row);
        return;
    }
    buf_clear(&e->text);
    struct ring_event event = {
        .type = COHORT_EVENT_PROMPT, .token = r->token, .index = pos, .logprob = r->logprob, .top_n = r->top_n};
    push(e, row, &event, r->top);
}

/* T2: a stop inside what is replayed: it was not this request that was given these tokens. */
static int replay_is_false(const struct row *row, int ends) { return row->generated < row->request.saved_n && ends; }

static void nothing_left(struct cohort_engine *e, struct row *row) {
    deliver_finish(
        e, row, COHORT_FINISH_ERROR, COHORT_E_ARGUMENT,
        row->request.grammar
            ? "the grammar, with the request's biases, allowed ids, banned sequences and min_tokens, leaves no token "
              "that may come next"
            : "the request's biases, allowed ids, banned sequences and min_tokens leave no token that may come next");
}

static void grammar_failed(struct cohort_engine *e, struct row *row, int code) {
    char text[128];
    snprintf(text, sizeof(text), "the request's grammar cannot go on: %s", cohort_error_text(code));
    deliver_finish(e, row, COHORT_FINISH_ERROR, code, text);
}

void deliver_token(struct cohort_engine *e, struct row *row, const struct sample_result *r, uint64_t now) {
    struct row_final final = {.finish = COHORT_FINISH_STOP, .stop_token = -1, .stop_index = -1, .logprob = NAN};
    if (r->token == SAMPLE_NOTHING_LEFT) {
        nothing_left(e, row);
        return;
    }
    if (r->token < 0) {
        deliver_not_finite(e, row);
        return;
    }
    int replays = row->generated < row->request.saved_n;
    if (!replays) metrics_token(e, row, now);
    row->generated++;
    row->reasoning_tokens += reasoning_take(&row->reasoning, r->token);
    if (!row->first_us) row->first_us = now;
    if (!replays) spans_decodes(e, row, now);
    row->last_us = now;
    int ends = ends_row(e, &row->request, r->token);
    if (replays && ends) { /* an end token is never told as a token */
        deliver_finish(e, row, COHORT_FINISH_ERROR, COHORT_E_ARGUMENT, "resume: an end token among the saved ones");
        return;
    }
    if (ends) {
        final.stop_token = r->token;
        final.logprob = r->logprob;
        finish(e, row, &final);
        return;
    }
    buf_clear(&e->text);
    row->detok.deaf = row->generated < row->request.min_tokens;
    int stop = detok_push(&row->detok, r->token, &e->text);
    if (replay_is_false(row, stop >= 0)) {
        deliver_finish(e, row, COHORT_FINISH_ERROR, COHORT_E_ARGUMENT, "resume: a stop inside the saved tokens");
        return;
    }
    if (stop <= DETOK_NO_MEMORY || row_add_token(row, r->token) != 0) {
        deliver_finish(e, row, COHORT_FINISH_ERROR, COHORT_E_MEMORY, "no memory for a token's text");
        return;
    }
    struct ring_event event = {.type = COHORT_EVENT_TOKEN,
                               .token = r->token,
                               .index = row->generated - 1,
                               .logprob = r->logprob,
                               .top_n = r->top_n,
                               .sampler_state = r->state};
    push(e, row, &event, r->top);
    if (row->finished) return;
    if (stop >= 0) {
        final.stop_index = stop;
        finish(e, row, &final);
    } else if (row->at_end) {
        finish(e, row, &final);
    } else if (row->generated == row->request.max_new) {
        deliver_finish(e, row, COHORT_FINISH_LENGTH, 0, NULL);
    } else {
        deadlines_text(e, row, now);
    }
}

static void deliver_forced(struct cohort_engine *e, struct row *row, const struct sample_result *r, uint64_t now) {
    row->forced_tokens++;
    metrics_forced(e);
    deliver_token(e, row, r, now);
}

/* A token of a row with a constraint. What comes behind it without being drawn is told at once, and read at once, too:
 * `index` says which tokens were told before they were made. */
static void deliver_noted(struct cohort_engine *e, struct row *row, uint32_t index, const struct sample_result *r,
                          const struct constraint_note *note, uint64_t now) {
    struct sample_result next;
    if (index < row->generated) return;
    if (note->failed) {
        grammar_failed(e, row, note->failed);
        return;
    }
    row->at_end = note->over && note->run_n == 0;
    if (note->forced && r->token >= 0)
        deliver_forced(e, row, r, now);
    else
        deliver_token(e, row, r, now);
    for (uint32_t i = 0; i < note->run_n && i < row->request.fill_max && !row->finished; i++) {
        constraint_run_token(row->constraint, row->generated, &next);
        row->at_end = note->over && i + 1 == note->run_n;
        deliver_forced(e, row, &next, now);
    }
    if (note->run_n && row->request.fill_max && !row->finished) sched_fill(e->sched, row->sched, row->tokens_n);
}

/* All of the prompt is read, and nothing else is wanted. */
static void deliver_read(struct cohort_engine *e, struct row *row) {
    if (row->request.pooling)
        embed_deliver(e, row);
    else
        deliver_finish(e, row, COHORT_FINISH_LENGTH, 0, NULL);
}

/* A reader that does not keep up is waited for: its row is not planned until its ring has room again. The flag is up
 * before the room is looked at a second time, so a reader that pops meanwhile sees the one or makes the other. */
static void pause_if_full(struct cohort_engine *e, struct row *row) {
    if (row_has_room(row) || atomic_load(&row->paused)) return;
    atomic_store(&row->paused, 1);
    if (row_has_room(row))
        atomic_store(&row->paused, 0);
    else
        sched_pause(e->sched, row->sched, 1);
}

void deliver_iteration(struct cohort_engine *e, struct iteration *it) {
    for (uint32_t i = 0; i < it->n_items; i++) {
        const struct iteration_item *item = &it->items[i];
        struct row *row = item->row;
        if (!row) continue;
        uint32_t first_pos = item->pos + item->n_tokens - item->n_outputs;
        for (uint32_t j = 0; item->scores && j < item->n_outputs && !row->finished; j++)
            deliver_prompt(e, row, first_pos + j, &it->scores[item->first_output + j]);
        if (row->finished) continue; /* now, or before this iteration */
        if (item->samples && row->constraint)
            deliver_noted(e, row, item->index, &it->samples[i], &it->notes[i], it->done_us);
        else if (item->samples)
            deliver_token(e, row, &it->samples[i], it->done_us);
        else if (row->request.max_new == 0 && item->pos + item->n_tokens == row->request.prompt_n)
            deliver_read(e, row);
        if (!row->finished) pause_if_full(e, row);
    }
}
