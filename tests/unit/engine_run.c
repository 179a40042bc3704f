/* Running requests through the public interface (engine_run.h). */
#include "engine_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"

static const char *vectors_root(void) {
    const char *set = getenv("COHORT_VECTORS");
    return set && *set ? set : COHORT_SOURCE_DIR "/../shared/vectors";
}

void run_model_path(const char *folder, char path[4096]) {
    snprintf(path, 4096, "%s/%s/model.gguf", vectors_root(), folder);
}

int run_try_model(const char *folder, cohort_model **out, cohort_error *err) {
    char path[4096];
    run_model_path(folder, path);
    return cohort_model_open(path, NULL, out, err);
}

static cohort_model *open_with(const char *folder, const cohort_model_options *options) {
    char path[4096];
    cohort_model *model;
    cohort_error err = {0};
    run_model_path(folder, path);
    if (access(path, R_OK) != 0) return NULL;
    if (cohort_model_open(path, options, &model, &err) != 0) fail_msg("%s: %s", path, err.text);
    return model;
}

cohort_model *run_open_model(const char *folder, const char *cpu, int threads) {
    cohort_model_options options;
    cohort_model_options_defaults(&options);
    options.cpu = cpu;
    options.threads = threads;
    return open_with(folder, &options);
}

cohort_model *run_open_vocabulary(const char *folder) {
    cohort_model_options options;
    cohort_model_options_defaults(&options);
    options.vocab_only = 1;
    return open_with(folder, &options);
}

static cohort_engine *opened;

cohort_engine *run_open_engine(cohort_model *model, const cohort_engine_options *options) {
    cohort_error err = {0};
    if (cohort_engine_open(model, options, &opened, &err) != 0) fail_msg("%s: %s", err.field, err.text);
    return opened;
}

void run_close(uint32_t grace_ms) {
    cohort_engine_close(opened, grace_ms);
    opened = NULL;
}

int run_close_engine(void **state) {
    run_close(0);
    return 0;
}

void run_prompt(int32_t *ids, uint32_t n, uint32_t vocab, uint64_t seed) {
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(10 + rng_u64(seed, 77, i) % (vocab - 20));
}

cohort_id run_submit(cohort_engine *engine, const cohort_request *request) {
    cohort_ticket ticket;
    cohort_id id;
    cohort_error err = {0};
    if (cohort_reserve(engine, &ticket, &err) != 0) fail_msg("reserve: %s", err.text);
    if (cohort_submit(engine, ticket, request, &id, &err) != 0) fail_msg("submit: %s: %s", err.field, err.text);
    return id;
}

static void add(struct buf *b, const void *bytes, size_t n) { assert_int_equal(buf_add(b, bytes, n), 0); }
#define ADD(b, value) add(b, &(value), sizeof(value))

static void take_token(struct outcome *out, const cohort_event *e) {
    if (e->type == COHORT_EVENT_TOKEN) {
        assert_int_equal(e->index, out->ids_n);
        assert_true(out->ids_n < OUTCOME_TOKENS_MAX);
        out->ids[out->ids_n++] = e->token;
        out->logprob_sum += e->logprob;
    } else if (e->type == COHORT_EVENT_EMBEDDING) {
        out->embedding_at = out->events.len;
        out->embedding_n = e->embedding_n;
        add(&out->events, e->embedding, e->embedding_n * sizeof(float));
        out->embeddings_n++;
    } else {
        assert_int_equal(e->index, out->prompt_n);
        assert_true(out->prompt_n < OUTCOME_TOKENS_MAX);
        out->prompt_argmax[out->prompt_n] = e->token;
        out->prompt_logprob[out->prompt_n++] = e->logprob;
    }
}

static void take(struct outcome *out, const cohort_event *e) {
    assert_false(out->done);
    ADD(&out->events, e->type);
    ADD(&out->events, e->token);
    ADD(&out->events, e->index);
    ADD(&out->events, e->logprob);
    ADD(&out->events, e->sampler_state);
    for (uint32_t i = 0; i < e->top_n; i++) ADD(&out->events, e->top[i]);
    add(&out->events, e->text, e->text_len);
    add(&out->text, e->text, e->text_len);
    if (e->type != COHORT_EVENT_FINISH) {
        take_token(out, e);
        return;
    }
    out->done = 1;
    out->finish = e->finish;
    out->error = e->error;
    out->stop_token = e->stop_token;
    out->stop_index = e->stop_index;
    out->stats = e->stats;
    ADD(&out->events, e->finish);
    ADD(&out->events, e->error);
    ADD(&out->events, e->stop_token);
    ADD(&out->events, e->stop_index);
    ADD(&out->events, e->stats.prompt_tokens);
    ADD(&out->events, e->stats.generated_tokens);
    ADD(&out->events, e->stats.seed);
}

int run_take(cohort_engine *engine, cohort_id id, struct outcome *out) {
    cohort_event event;
    while (!out->done && cohort_next(engine, id, &event) == COHORT_OK) {
        assert_int_equal(event.id, id);
        take(out, &event);
    }
    return out->done;
}

void run_finish(cohort_engine *engine, cohort_id id, struct outcome *out) {
    while (!run_take(engine, id, out))
        if (cohort_wait(engine, id, 60000) != COHORT_OK) fail_msg("no event for a minute");
    cohort_event event;
    assert_int_equal(cohort_next(engine, id, &event), COHORT_E_NOT_FOUND);
    cohort_drop(engine, id);
}

void run_request(cohort_engine *engine, const cohort_request *request, struct outcome *out) {
    memset(out, 0, sizeof(*out));
    run_finish(engine, run_submit(engine, request), out);
}

void outcome_free(struct outcome *out) {
    buf_free(&out->events);
    buf_free(&out->text);
}

void outcome_assert_equal(const struct outcome *a, const struct outcome *b, const char *what) {
    if (a->events.len == b->events.len && memcmp(a->events.data, b->events.data, a->events.len) == 0) return;
    uint32_t i = 0;
    while (i < a->ids_n && i < b->ids_n && a->ids[i] == b->ids[i]) i++;
    fail_msg("%s: %u and %u tokens, the first difference at %u; finish %d and %d; \"%s\" and \"%s\"", what, a->ids_n,
             b->ids_n, i, a->finish, b->finish, a->text.data ? a->text.data : "", b->text.data ? b->text.data : "");
}
