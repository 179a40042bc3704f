/* One request, printed as it comes: one MODEL.gguf "text to go on from" [tokens] */
#include <cohort/cohort.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int code, const cohort_error *err) {
    if (code == COHORT_OK) return;
    fprintf(stderr, "%s: %s\n", cohort_error_name(code), err->text);
    exit(1);
}

int main(int argc, char **argv) {
    cohort_error err = {0};
    cohort_model *model;
    cohort_engine *engine;
    cohort_request request;
    cohort_ticket ticket;
    cohort_id id;
    cohort_event event = {0};
    int32_t *ids;
    if (argc < 3) return fprintf(stderr, "usage: one MODEL.gguf TEXT [TOKENS]\n"), 2;
    check(cohort_model_open(argv[1], NULL, &model, &err), &err);
    check(cohort_engine_open(model, NULL, &engine, &err), &err);
    cohort_request_defaults(&request);
    check(cohort_tokenize(model, argv[2], strlen(argv[2]), COHORT_TOKENIZE_BOS, &ids, &request.prompt_n, &err), &err);
    request.prompt = ids;
    request.sampling.temperature = 0; /* always the most likely token */
    request.max_tokens = argc > 3 ? (uint32_t)atoi(argv[3]) : 64;
    check(cohort_reserve(engine, &ticket, &err), &err);
    check(cohort_submit(engine, ticket, &request, &id, &err), &err);
    while (event.type != COHORT_EVENT_FINISH) {
        cohort_wait(engine, id, -1);
        if (cohort_next(engine, id, &event) != COHORT_OK) continue;
        fwrite(event.text, 1, event.text_len, stdout);
        fflush(stdout);
    }
    fprintf(stderr, "\n%u tokens, seed %llu\n", event.stats.generated_tokens, (unsigned long long)event.stats.seed);
    cohort_drop(engine, id);
    cohort_engine_close(engine, 0);
    cohort_free(ids);
    cohort_model_close(model);
    return 0;
}
