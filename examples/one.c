/* One request, printed as it comes: one MODEL.gguf "text to go on from" */
#include <cohort/cohort.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cohort_error err;
static void check(int code) {
    if (code != COHORT_OK) exit((fprintf(stderr, "%s: %s\n", cohort_error_name(code), err.text), 1));
}

int main(int argc, char **argv) {
    cohort_model *model;
    cohort_engine *engine;
    cohort_request request;
    cohort_ticket ticket;
    cohort_id id;
    cohort_event event = {0};
    int32_t *ids;
    if (argc != 3) return fprintf(stderr, "usage: one MODEL.gguf TEXT\n"), 2;
    setvbuf(stdout, NULL, _IONBF, 0); /* every piece at once */
    check(cohort_model_open(argv[1], NULL, &model, &err));
    check(cohort_engine_open(model, NULL, &engine, &err));
    cohort_request_defaults(&request);
    check(cohort_tokenize(model, argv[2], strlen(argv[2]), COHORT_TOKENIZE_BOS, &ids, &request.prompt_n, &err));
    request.prompt = ids;
    request.sampling.temperature = 0; /* always the most likely token */
    request.max_tokens = 64;
    check(cohort_reserve(engine, &ticket, &err));
    check(cohort_submit(engine, ticket, &request, &id, &err));
    while (event.type != COHORT_EVENT_FINISH) {
        cohort_wait(engine, id, -1);
        if (cohort_next(engine, id, &event) == COHORT_OK) fwrite(event.text, 1, event.text_len, stdout);
    }
    cohort_drop(engine, id);
    cohort_engine_close(engine, 0);
    cohort_free(ids);
    cohort_model_close(model);
    return 0;
}
