/* `cohort run`: one prompt, its completion as it comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
static int render_chat(const cohort_model *model, const char *text, size_t len, cohort_prompt **prompt,
                       cohort_error *error) {
    cohort_chat chat;
    struct buf json = {0};
    int rc = buf_adds(&json, "[{\"role\":\"user\",\"content\":");
    if (!rc) rc = buf_json_string(&json, text, len);
    if (!rc) rc = buf_adds(&json, "}]");
    cohort_chat_defaults(&chat);
    chat.messages = json.data;
    chat.messages_n = json.len;
    chat.now_s = (int64_t)time(NULL);
    if (!rc) rc = cohort_prompt_render(model, &chat, prompt, error);
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

static int run_text(const struct cli_options *options, const cohort_model *model, cohort_engine *engine,
                    const char *text, size_t len) {
    int32_t *ids = NULL;
    size_t n = 0;
    cohort_prompt *prompt = NULL;
    cohort_prompt_info info = {0};
    cohort_error error = {0};
    int rc;
    if (options->chat) {
        rc = render_chat(model, text, len, &prompt, &error);
        if (!rc) cohort_prompt_get(prompt, &info);
    } else {
        rc = cohort_tokenize(model, text, len, COHORT_TOKENIZE_BOS, &ids, &n, &error);
    }
    rc = rc ? cli_fail(&error) : run_prompt(options, engine, prompt ? info.ids : ids, prompt ? info.n : n);
    cohort_prompt_free(prompt);
    cohort_free(ids);
    return rc;
}

int cmd_run(const struct cli_options *options) {
    char *text = NULL;
    size_t len = 0;
    cohort_model *model = NULL;
    cohort_engine *engine = NULL;
    struct cli_options one = *options;
    one.rows = 1; /* state for one row only */
    int rc = read_prompt(options, &text, &len);
    if (!rc) rc = cli_open_model(options, 0, &model);
    if (!rc) rc = cli_open_engine(&one, model, NULL, &engine);
    if (!rc) rc = run_text(options, model, engine, text, len);
    free(text);
    cohort_engine_close(engine, 0);
    cohort_model_close(model);
    return rc;
}
