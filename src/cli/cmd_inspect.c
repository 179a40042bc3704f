/* `cohort inspect FILE`: what a model file holds, and whether it can be read. */
#include <stdio.h>

#include "cli/cli.h"

int cmd_inspect(const struct cli_options *options) {
    const char *path = options->argument ? options->argument : options->model ? options->model : cli_default_model();
    char *report = NULL;
    size_t len = 0;
    cohort_error error = {0};
    if (cohort_inspect(path, options->json, &report, &len, &error) != 0) return cli_fail(&error);
    fwrite(report, 1, len, stdout);
    cohort_free(report);
    return 0;
}
