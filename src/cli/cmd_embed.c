/* `cohort embed`: one text as a vector. Main thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { NORM_NONE = -1, NORM_EUCLIDEAN = 2 };

static const char *const kinds[] = {"none", "mean", "cls", "last"};

static int read_text(const struct cli_options *options, char **text, size_t *len) {
    if (options->file) return cli_read_file(options->file, text, len);
    const char *given = options->prompt ? options->prompt : options->argument;
    if (!given) return cli_failf("embed: a text is missing: -p TEXT or -f FILE");
    *text = strdup(given);
    *len = strlen(given);
    return *text ? 0 : cli_failf("out of memory");
}

/* What was asked for; else the file's own kind, and the mean if it names none. */
static int choose_pooling(const struct cli_options *options, const cohort_model *model, cohort_pooling *out) {
    cohort_model_info info;
    cohort_model_get_info(model, &info);
    *out = info.pooling ? info.pooling : COHORT_POOLING_MEAN;
    if (!options->pooling) return 0;
    for (int i = COHORT_POOLING_MEAN; i <= COHORT_POOLING_LAST; i++) {
        *out = (cohort_pooling)i;
        if (!strcmp(options->pooling, kinds[i])) return 0;
    }
    return cli_failf("--pooling: \"%.20s\" is none of mean, cls and last", options->pooling);
}

/* In double, the squares in order, each component rounded once. A vector of zeros stays. */
static void print_vector(const struct cli_options *options, const cohort_event *event, cohort_pooling pooling,
                         size_t tokens) {
    double sum = 0, length = 1;
    if (options->normalize == NORM_EUCLIDEAN) {
        for (uint32_t i = 0; i < event->embedding_n; i++)
            sum += (double)event->embedding[i] * (double)event->embedding[i];
        length = sum > 0 ? sqrt(sum) : 1;
    }
    if (options->json) printf("{\"tokens\":%zu,\"pooling\":\"%s\",\"embedding\":[", tokens, kinds[pooling]);
    const char *between = options->json ? "," : " ";
    for (uint32_t i = 0; i < event->embedding_n; i++)
        printf("%s%.9g", i ? between : "", (double)(float)((double)event->embedding[i] / length));
    printf(options->json ? "]}\n" : "\n");
}

static int embed(const struct cli_options *options, cohort_engine *engine, const int32_t *ids, size_t n,
                 cohort_pooling pooling) {
    cohort_request request;
    cohort_request_defaults(&request);
    request.prompt = ids;
    request.prompt_n = n;
    request.max_tokens = 0;
    request.pooling = pooling;
    cohort_ticket ticket;
    cohort_id id;
    cohort_error error = {0};
    if (cohort_reserve(engine, &ticket, &error) || cohort_submit(engine, ticket, &request, &id, &error))
        return cli_fail(&error);
    cohort_event event = {0};
    while (event.type != COHORT_EVENT_FINISH) {
        if (cohort_wait(engine, id, -1) != COHORT_OK || cohort_next(engine, id, &event) != COHORT_OK) continue;
        if (event.type == COHORT_EVENT_EMBEDDING) print_vector(options, &event, pooling, n);
    }
    int rc = event.finish == COHORT_FINISH_ERROR ? cli_failf("%s", event.error_text) : 0;
    cohort_drop(engine, id);
    return rc;
}

int cmd_embed(const struct cli_options *options) {
    char *text = NULL;
    size_t len = 0, n = 0;
    int32_t *ids = NULL;
    cohort_model *model = NULL;
    cohort_engine *engine = NULL;
    cohort_error error = {0};
    cohort_pooling pooling = COHORT_POOLING_NONE;
    struct cli_options one = *options;
    one.rows = 1; /* state for one row only */
    one.no_cache = 1;
    int rc = 0;
    if (options->normalize != NORM_NONE && options->normalize != NORM_EUCLIDEAN)
        rc = cli_failf("--normalize: -1 (not at all) and 2 (to a length of 1) are possible");
    if (!rc) rc = read_text(options, &text, &len);
    if (!rc) rc = cli_open_model(options, 0, &model);
    if (!rc) rc = choose_pooling(options, model, &pooling);
    if (!rc) rc = cli_open_engine(&one, model, NULL, &engine);
    if (!rc && cohort_tokenize(model, text, len, COHORT_TOKENIZE_BOS, &ids, &n, &error)) rc = cli_fail(&error);
    if (!rc) rc = embed(options, engine, ids, n, pooling);
    cohort_free(ids);
    free(text);
    cohort_engine_close(engine, 0);
    cohort_model_close(model);
    return rc;
}
