/* A prompt per line of standard input, all of them in one running batch, answers in the order of the lines:
 *     many MODEL.gguf [tokens] < prompts.txt
 * Lines that find the waiting line full wait until an earlier answer has been read. */
#include <cohort/cohort.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 10000 };

static cohort_model *model;
static cohort_engine *engine;

static void check(int code, const cohort_error *err) {
    if (code == COHORT_OK) return;
    fprintf(stderr, "%s: %s\n", cohort_error_name(code), err->text);
    exit(1);
}

/* COHORT_E_BUSY if there is no place; every other failure ends the program. */
static int submit(const char *line, uint32_t tokens, cohort_id *id) {
    cohort_error err = {0};
    cohort_ticket ticket;
    cohort_request request;
    int32_t *ids;
    int code = cohort_reserve(engine, &ticket, &err);
    if (code == COHORT_E_BUSY) return code;
    check(code, &err);
    cohort_request_defaults(&request);
    check(cohort_tokenize(model, line, strlen(line), COHORT_TOKENIZE_BOS, &ids, &request.prompt_n, &err), &err);
    request.prompt = ids;
    request.max_tokens = tokens;
    request.sampling.temperature = 0;
    check(cohort_submit(engine, ticket, &request, id, &err), &err);
    cohort_free(ids); /* the prompt was copied */
    return COHORT_OK;
}

static void print_answer(cohort_id id) {
    cohort_event event = {0};
    while (event.type != COHORT_EVENT_FINISH) {
        cohort_wait(engine, id, -1);
        if (cohort_next(engine, id, &event) == COHORT_OK) fwrite(event.text, 1, event.text_len, stdout);
    }
    if (event.finish == COHORT_FINISH_ERROR) fprintf(stderr, "%s\n", event.error_text);
    printf("\n----\n");
    cohort_drop(engine, id);
}

int main(int argc, char **argv) {
    static char line[1 << 16];
    static cohort_id ids[LINES_MAX];
    size_t submitted = 0, printed = 0;
    cohort_error err = {0};
    if (argc < 2) return fprintf(stderr, "usage: many MODEL.gguf [TOKENS] < PROMPTS\n"), 2;
    uint32_t tokens = argc > 2 ? (uint32_t)atoi(argv[2]) : 64;
    check(cohort_model_open(argv[1], NULL, &model, &err), &err);
    check(cohort_engine_open(model, NULL, &engine, &err), &err);
    while (submitted < LINES_MAX && fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!*line) continue;
        while (submit(line, tokens, &ids[submitted]) == COHORT_E_BUSY) print_answer(ids[printed++]);
        submitted++;
    }
    while (printed < submitted) print_answer(ids[printed++]);
    cohort_engine_close(engine, 0);
    cohort_model_close(model);
    return 0;
}
