/* `cohort inspect FILE`: what a model file holds, and whether it can be read; with --plan: what running it takes of
 * memory, before anything is loaded. */
#include <stdio.h>

#include "cli/cli.h"

static int plan(const struct cli_options *options, const char *path) {
    struct cli_options o = *options;
    cohort_model *model = NULL;
    char *report = NULL;
    size_t len = 0;
    o.model = path;
    if (cli_open_model(&o, 0, &model) != 0) return 1;
    int rc = cli_plan(&o, model, o.json, &report, &len);
    if (!rc) fwrite(report, 1, len, stdout);
    cohort_free(report);
    cohort_model_close(model);
    return rc;
}

int cmd_inspect(const struct cli_options *options) {
    const char *path = options->argument ? options->argument : options->model ? options->model : cli_default_model();
    if (options->plan) return plan(options, path);
    char *report = NULL;
    size_t len = 0;
    cohort_error error = {0};
    if (cohort_inspect(path, options->json, &report, &len, &error) != 0) return cli_fail(&error);
    fwrite(report, 1, len, stdout);
    cohort_free(report);
    return 0;
}
