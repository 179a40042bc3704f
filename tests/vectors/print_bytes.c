/* Prints what each model of the vectors gives at a level, as two numbers: its logits, and what comes out of the engine
 * (sampled tokens, their text and log-probabilities). Processors, compilers and levels that agree print the same text.
 * No test by itself: scripts/test.py compares.
 *
 * usage: print_bytes [LEVEL]    without: the best of this machine */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "cohort/cohort.h"
#include "expected.h"
#include "machine.h"
#include "models.h"

/* So few that it can be emulated; two pages and a part of a third. */
enum { LOGITS_TOKENS = 70, PROMPT_TOKENS = 40, NEW_TOKENS = 16 };

static uint32_t at_most(uint32_t n, uint32_t limit) { return n < limit ? n : limit; }

/* FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return hash;
}

static uint64_t hash_number(uint64_t hash, float x) {
    if (isnan(x)) x = NAN; /* which NaN it is has no meaning */
    return hash_bytes(hash, &x, sizeof x);
}

static const uint64_t hash_start = 14695981039346656037u;

static uint64_t logits_hash(const struct expected *e, const char *folder, const char *level) {
    struct opened o;
    struct machine m;
    uint64_t hash = hash_start;
    vectors_open(&o, folder);
    machine_open(&m, model_program(o.model), level, 2);
    const struct expected_prompt *last = &e->prompts[e->n_prompts - 1];
    struct piece piece = {0, 0, at_most(last->n, LOGITS_TOKENS), last->ids};
    machine_step(&m, &piece, 1);
    for (uint32_t t = 0; t < piece.n; t++)
        for (uint32_t i = 0; i < e->vocab; i++) hash = hash_number(hash, machine_logits(&m, 0, t)[i]);
    machine_close(&m);
    vectors_close(&o);
    return hash;
}

/* Every prompt has a sampler of its own kind. */
static cohort_id submit(cohort_engine *engine, const struct expected_prompt *p, uint32_t i) {
    cohort_request q;
    cohort_ticket ticket;
    cohort_id id;
    cohort_error err;
    cohort_request_defaults(&q);
    q.prompt = p->ids;
    q.prompt_n = at_most(p->n, PROMPT_TOKENS);
    q.max_tokens = NEW_TOKENS;
    q.ignore_eos = 1;
    q.logprobs = 3;
    q.prompt_logprobs = 1;
    q.sampling.temperature = 0.5f + 0.25f * (float)i;
    q.sampling.seed = i;
    q.sampling.has_seed = 1;
    if (i % 4 == 1) q.sampling.top_k = 40;
    if (i % 4 == 2) q.sampling.top_p = 0.9f;
    if (i % 4 == 3) q.sampling.min_p = 0.05f;
    if (cohort_reserve(engine, &ticket, &err)) fail_msg("%s", err.text);
    if (cohort_submit(engine, ticket, &q, &id, &err)) fail_msg("%s: %s", err.field, err.text);
    return id;
}

static uint64_t answer_hash(cohort_engine *engine, cohort_id id, uint64_t hash) {
    cohort_event event = {0};
    while (event.type != COHORT_EVENT_FINISH) {
        cohort_wait(engine, id, -1);
        if (cohort_next(engine, id, &event) != COHORT_OK) continue;
        if (event.type == COHORT_EVENT_FINISH) break;
        hash = hash_bytes(hash, &event.token, sizeof event.token);
        hash = hash_bytes(hash, event.text, event.text_len);
        hash = hash_number(hash, event.logprob);
        for (uint32_t i = 0; i < event.top_n; i++) {
            hash = hash_bytes(hash, &event.top[i].id, sizeof event.top[i].id);
            hash = hash_number(hash, event.top[i].logprob);
        }
    }
    if (event.finish != COHORT_FINISH_LENGTH) fail_msg("an answer ended early: %d", (int)event.finish);
    cohort_drop(engine, id);
    return hash;
}

static uint64_t answers_hash(const struct expected *e, const char *folder, const char *level) {
    char path[512];
    cohort_model_options model_options;
    cohort_engine_options options;
    cohort_model *model;
    cohort_engine *engine;
    cohort_error err;
    cohort_id id[EXPECTED_PROMPTS_MAX];
    uint64_t hash = hash_start;
    snprintf(path, sizeof path, "%s/%s/model.gguf", expected_root(), folder);
    cohort_model_options_defaults(&model_options);
    model_options.cpu = level;
    model_options.threads = 2;
    cohort_engine_options_defaults(&options);
    options.context = 512;
    if (cohort_model_open(path, &model_options, &model, &err)) fail_msg("%s", err.text);
    if (cohort_engine_open(model, &options, &engine, &err)) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < e->n_prompts; i++) id[i] = submit(engine, &e->prompts[i], i);
    for (uint32_t i = 0; i < e->n_prompts; i++) hash = answer_hash(engine, id[i], hash);
    cohort_engine_close(engine, 0);
    cohort_model_close(model);
    return hash;
}

int main(int argc, char **argv) {
    const char *level = argc > 1 ? argv[1] : kernels_best();
    if (!expected_root()) {
        fprintf(stderr, "print_bytes: the vectors are not at hand\n");
        return 1;
    }
    fprintf(stderr, "level: %s\n", level);
    for (int i = 0; vectors_folders[i]; i++) {
        struct expected e;
        expected_load(&e, vectors_folders[i]);
        printf("%-30s logits %016llx  answers %016llx\n", vectors_folders[i],
               (unsigned long long)logits_hash(&e, vectors_folders[i], level),
               (unsigned long long)answers_hash(&e, vectors_folders[i], level));
        fflush(stdout);
        expected_free(&e);
    }
    return 0;
}
