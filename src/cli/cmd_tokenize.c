/* `cohort tokenize`: a text's ids, one per line with their pieces, or as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static void print_piece(const char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '\\' || c == '\'')
            printf("\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static void print_ids(const cohort_model *model, const int32_t *ids, size_t n, int json) {
    if (json) putchar('[');
    for (size_t i = 0; i < n; i++) {
        if (json) {
            printf("%s%d", i ? ", " : "", ids[i]);
            continue;
        }
        const char *bytes = "";
        size_t len = 0;
        cohort_token_piece(model, ids[i], &bytes, &len);
        printf("%6d '", ids[i]);
        print_piece(bytes, len);
        printf("'\n");
    }
    if (json) printf("]\n");
}

int cmd_tokenize(const struct cli_options *options) {
    char *text = NULL;
    size_t len = 0, n = 0;
    int32_t *ids = NULL;
    cohort_model *model = NULL;
    cohort_error error = {0};
    const char *given = options->prompt ? options->prompt : options->argument;
    int rc;
    if (!given) {
        rc = cli_read_file(options->file ? options->file : "-", &text, &len);
    } else {
        text = strdup(given);
        len = strlen(given);
        rc = text ? 0 : cli_failf("out of memory");
    }
    if (!rc) rc = cli_open_model(options, 1, &model);
    int flags = (options->special ? COHORT_TOKENIZE_SPECIAL : 0) | (options->no_bos ? 0 : COHORT_TOKENIZE_BOS);
    if (!rc && cohort_tokenize(model, text, len, flags, &ids, &n, &error) != 0) rc = cli_fail(&error);
    if (!rc) print_ids(model, ids, n, options->json);
    cohort_free(ids);
    free(text);
    cohort_model_close(model);
    return rc;
}
