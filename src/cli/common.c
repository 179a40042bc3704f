/* What the commands share: opening a model and an engine, reading files, progress, error lines. Main thread;
 * opening, with its progress, in whichever thread opens. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int cli_failf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("cohort: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return 1;
}

int cli_fail(const cohort_error *error) {
    return cli_failf("%s", error->text[0] ? error->text : cohort_error_text(error->code));
}

const char *cli_default_model(void) {
    static char path[4096];
    const char *home = getenv("COHORT_HOME"), *user = getenv("HOME");
    if (home && *home)
        snprintf(path, sizeof path, "%s/models/gemma-3-270m-q4_k_m.gguf", home);
    else
        snprintf(path, sizeof path, "%s/.cache/cohort/models/gemma-3-270m-q4_k_m.gguf", user ? user : "");
    return path;
}

void cli_progress(void *user, const char *what, double fraction) {
    (void)user;
    if (!isatty(STDERR_FILENO)) return;
    int filled = (int)(30 * fraction + 0.5);
    char bar[31];
    for (int i = 0; i < 30; i++) bar[i] = i < filled ? '#' : '.';
    bar[30] = 0;
    if (fraction >= 1)
        fprintf(stderr, "\r%60s\r", "");
    else
        fprintf(stderr, "\r  [%s] %3.0f%% %-18s", bar, 100 * fraction, what);
    fflush(stderr);
}

int cli_open_model(const struct cli_options *options, int vocab_only, cohort_model **out) {
    const char *path = options->model ? options->model : cli_default_model();
    char *template = NULL;
    size_t template_len;
    cohort_model_options model;
    cohort_model_options_defaults(&model);
    if (options->chat_template && options->chat_template_file)
        return cli_failf("--chat-template and --chat-template-file: only one can be");
    if (options->chat_template_file && cli_read_file(options->chat_template_file, &template, &template_len) != 0)
        return 1;
    model.chat_template = template ? template : options->chat_template;
    model.cpu = options->cpu;
    model.threads = (int)options->threads;
    model.vocab_only = vocab_only;
    model.progress = cli_progress;
    cohort_error error = {0};
    int rc = cohort_model_open(path, &model, out, &error);
    free(template);
    if (!rc) return 0;
    cli_fail(&error);
    if (!options->model && access(path, R_OK) != 0)
        cli_failf("the default model is not there yet: `cohort pull` fetches it (253 MB)");
    return 1;
}

/* The options of an engine; `base`: its sizes come from there. */
static void engine_options(const struct cli_options *options, const cohort_engine_options *base,
                           cohort_engine_options *out) {
    cohort_engine_options engine;
    if (base) {
        engine = *base;
    } else {
        cohort_engine_options_defaults(&engine);
        engine.context = (uint32_t)options->context;
        engine.rows = (uint32_t)options->rows;
        engine.queue = (uint32_t)options->queue;
        engine.batch_tokens = (uint32_t)options->batch_tokens;
        engine.kv_bytes = (uint64_t)options->kv_bytes;
        engine.kv_tokens = (uint64_t)options->kv_tokens;
        engine.tenants = options->tenants;
        engine.tenants_n = options->tenants_n;
    }
    engine.pipeline = !options->no_pipeline;
    engine.itl_target_ms = (uint32_t)options->itl_target_ms;
    engine.itl_ratio_percent = (uint32_t)(options->itl_ratio * 100 + 0.5);
    engine.trace_path = options->trace;
    engine.cache = !options->no_cache;
    engine.snapshot_stride = (uint32_t)options->snapshot_stride;
    engine.state_dir = options->state_dir;
    engine.state_dir_bytes = (uint64_t)options->state_dir_bytes;
    *out = engine;
}

int cli_plan(const struct cli_options *options, cohort_model *model, int json, char **out, size_t *len) {
    cohort_engine_options engine;
    cohort_layer_forms list[COHORT_LAYER_FORMS_MAX];
    cohort_error error = {0};
    engine_options(options, NULL, &engine);
    if (cli_forms(options, list, &engine)) return 1;
    return cohort_plan(model, &engine, json, out, len, &error) != 0 ? cli_fail(&error) : 0;
}

int cli_open_engine(const struct cli_options *options, cohort_model *model, const cohort_engine_options *base,
                    cohort_engine **out) {
    cohort_engine_options engine;
    cohort_layer_forms list[COHORT_LAYER_FORMS_MAX];
    cohort_error error = {0};
    engine_options(options, base, &engine);
    if (cli_forms(options, list, &engine)) return 1;
    int rc = cohort_engine_open(model, &engine, out, &error);
    return rc ? cli_fail(&error) : 0;
}

int cli_read_file(const char *path, char **out, size_t *len) {
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!file) return cli_failf("%s: %s", path, strerror(errno));
    size_t cap = 1 << 16, n = 0;
    char *data = malloc(cap);
    while (data) {
        n += fread(data + n, 1, cap - n, file);
        if (n < cap || cap > CLI_FILE_MAX) break;
        char *bigger = realloc(data, cap *= 2);
        if (!bigger) free(data);
        data = bigger;
    }
    int bad = ferror(file);
    if (file != stdin) fclose(file);
    if (data && !bad && n <= CLI_FILE_MAX) {
        data[n] = '\0'; /* n < cap */
        *out = data;
        *len = n;
        return 0;
    }
    free(data);
    return cli_failf("%s: %s", path, !data ? "out of memory" : bad ? "cannot be read" : "larger than 256 MiB");
}
