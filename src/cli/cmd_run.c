/* `cohort run`: one prompt, its completion as it comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli.h"

static int read_prompt(const struct cli_options *options, char **text, size_t *len) {
    if (options->file) return cli_read_file(options->file, text, len);
    const char *prompt = options->prompt ? options->prompt : options->argument;
    if (!prompt) return cli_failf("run: a prompt is missing: -p TEXT or -f FILE");
    *text = strdup(prompt);
    *len = strlen(prompt);
    return *text ? 0 : cli_failf("out of memory");
}

/* The prompt as the one user message of a chat. */
static int render_chat(const cohort_model *model, const char *text, size_t len, int32_t **ids, size_t *n,
                       cohort_error *error) {
    struct buf json = {0};
    int rc = buf_adds(&json, "[{\"role\":\"user\",\"content\":");
    if (!rc) rc = buf_json_string(&json, text, len);
    if (!rc) rc = buf_adds(&json, "}]");
    if (!rc) rc = cohort_chat_render(model, json.data, json.len, 1, ids, n, error);
    buf_free(&json);
    return rc;
}

static int print_events(cohort_engine *engine, cohort_id id) {
    int tty = isatty(STDOUT_FILENO);
    for (;;) {
        cohort_event event;
        if (cohort_wait(engine, id, -1) != COHORT_OK || cohort_next(engine, id, &event) != COHORT_OK) continue;
        fwrite(event.text, 1, event.text_len, stdout);
        if (tty) fflush(stdout);
        if (event.type != COHORT_EVENT_FINISH) continue;
        if (tty) putchar('\n');
        fflush(stdout);
        return event.finish == COHORT_FINISH_ERROR ? cli_failf("%s", event.error_text) : 0;
    }
}

static int run_prompt(const struct cli_options *options, cohort_engine *engine, const int32_t *ids, size_t n) {
    cohort_request request;
    cohort_request_defaults(&request);
    request.prompt = ids;
    request.prompt_n = n;
    request.max_tokens = options->predict < 0 ? UINT32_MAX : (uint32_t)options->predict;
    request.ignore_eos = options->ignore_eos;
    request.sampling.temperature = (float)options->temperature;
    request.sampling.top_k = (int32_t)options->top_k;
    request.sampling.top_p = (float)options->top_p;
    request.sampling.min_p = (float)options->min_p;
    request.sampling.has_seed = options->seed >= 0;
    request.sampling.seed = (uint64_t)options->seed;
    cohort_ticket ticket;
    cohort_id id;
    cohort_error error = {0};
    if (cohort_reserve(engine, &ticket, &error) || cohort_submit(engine, ticket, &request, &id, &error))
        return cli_fail(&error);
    int rc = print_events(engine, id);
    cohort_drop(engine, id);
    return rc;
}

int cmd_run(const struct cli_options *options) {
    char *text = NULL;
    size_t len = 0, n = 0;
    int32_t *ids = NULL;
    cohort_model *model = NULL;
    cohort_engine *engine = NULL;
    cohort_error error = {0};
    struct cli_options one = *options;
    one.rows = 1; /* state for one row only */
    int rc = read_prompt(options, &text, &len);
    if (!rc) rc = cli_open_model(options, 0, &model);
    if (!rc) rc = cli_open_engine(&one, model, NULL, &engine);
    if (!rc) {
        int code = options->chat ? render_chat(model, text, len, &ids, &n, &error)
                                 : cohort_tokenize(model, text, len, COHORT_TOKENIZE_BOS, &ids, &n, &error);
        rc = code ? cli_fail(&error) : run_prompt(options, engine, ids, n);
    }
    cohort_free(ids);
    free(text);
    cohort_engine_close(engine, 0);
    cohort_model_close(model);
    return rc;
}
