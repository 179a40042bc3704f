/* Requests and what became of them, for the engine's tests. */
#ifndef TESTS_ENGINE_RUN_H
#define TESTS_ENGINE_RUN_H

#include "base/buf.h"
#include "cohort/cohort.h"

enum { OUTCOME_TOKENS_MAX = 4096 };

struct outcome {
    struct buf events; /* everything that must be the same each time, event by event */
    struct buf text;
    int32_t ids[OUTCOME_TOKENS_MAX];
    uint32_t ids_n;
    float logprob_sum;
    uint32_t embeddings_n, embedding_n; /* EMBEDDING events; floats of the last one, */
    size_t embedding_at;                /* which lie there in `events` */
    uint32_t prompt_n;                  /* PROMPT events */
    int32_t prompt_argmax[OUTCOME_TOKENS_MAX];
    float prompt_logprob[OUTCOME_TOKENS_MAX];
    int done;
    cohort_finish finish;
    int error, stop_token, stop_index;
    cohort_stats stats;
};

/* The model of a vectors folder, opened with the library; NULL if the vectors are not there. */
cohort_model *run_open_model(const char *folder, const char *cpu, int threads);
cohort_model *run_open_vocabulary(const char *folder);
void run_model_path(const char *folder, char path[4096]);
/* Opening it and nothing else. */
int run_try_model(const char *folder, cohort_model **out, cohort_error *err);
/* One engine at a time; a teardown closes what a failed test left open. */
cohort_engine *run_open_engine(cohort_model *model, const cohort_engine_options *options);
void run_close(uint32_t grace_ms);
int run_close_engine(void **state);

/* `n` ids from `seed`, none of them special. */
void run_prompt(int32_t *ids, uint32_t n, uint32_t vocab, uint64_t seed);
/* Reserves and submits; both must succeed. */
cohort_id run_submit(cohort_engine *engine, const cohort_request *request);
/* Takes the events that are there. 1 once the finish event was taken. */
int run_take(cohort_engine *engine, cohort_id id, struct outcome *out);
/* Takes events up to the finish event and drops the request. Fails the test if nothing comes for a long time. */
void run_finish(cohort_engine *engine, cohort_id id, struct outcome *out);
/* All of the above. */
void run_request(cohort_engine *engine, const cohort_request *request, struct outcome *out);
void outcome_free(struct outcome *out);
void outcome_assert_equal(const struct outcome *a, const struct outcome *b, const char *what);
/* Polls until the condition holds; fails the test after some seconds. */
#define RUN_UNTIL(condition)                                                                                           \
    do {                                                                                                               \
        int left_ = 20000;                                                                                             \
        while (!(condition) && left_-- > 0) usleep(500);                                                               \
        if (left_ <= 0) fail_msg("never: %s", #condition);                                                             \
    } while (0)

#endif
