/* `cohort score`: per position the most likely id, and the log-probability of the next given id. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/windows.h"

enum { SCORE_IDS_MAX = 1 << 20 };

struct score {
    int32_t *argmax;
    float *logprob;
};

static int parse_ids(const char *text, int32_t **out, size_t *out_n) {
    size_t n = 0, cap = 256;
    int32_t *ids = malloc(cap * sizeof *ids);
    while (ids && n < SCORE_IDS_MAX) {
        char *end;
        errno = 0;
        long id = strtol(text, &end, 10);
        if (errno || end == text || id < 0 || id > INT32_MAX || (*end && *end != ',')) {
            free(ids);
            return cli_failf("--ids: \"%.20s\" is not a token id", text);
        }
        if (n == cap) {
            int32_t *bigger = realloc(ids, (cap *= 2) * sizeof *ids);
            if (!bigger) break;
            ids = bigger;
        }
        ids[n++] = (int32_t)id;
        text = end + 1;
        if (*end) continue;
        *out = ids;
        *out_n = n;
        return 0;
    }
    free(ids);
    return cli_failf("--ids: more than %d ids, or out of memory", SCORE_IDS_MAX);
}

static void keep(void *user, size_t window, uint32_t position, int32_t argmax, float logprob) {
    (void)window;
    struct score *score = user;
    score->argmax[position] = argmax;
    score->logprob[position] = logprob;
}

static void print_score(const struct score *score, const int32_t *ids, size_t n, int json) {
    if (!json) {
        for (size_t i = 0; i < n; i++)
            printf(i + 1 < n ? "%zu\tid %d\targmax %d\tlogprob of next %.6f\n" : "%zu\tid %d\targmax %d\n", i, ids[i],
                   score->argmax[i], (double)score->logprob[i]);
        return;
    }
    printf("{\"argmax\":[");
    for (size_t i = 0; i < n; i++) printf("%s%d", i ? "," : "", score->argmax[i]);
    printf("],\"logprobs\":[");
    for (size_t i = 0; i + 1 < n; i++) printf("%s%.9g", i ? "," : "", (double)score->logprob[i]);
    printf("]}\n");
}

int cmd_score(const struct cli_options *options) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (!options->ids) return cli_failf("score: --ids is missing");
    int rc = parse_ids(options->ids, &ids, &n);
    cohort_model *model = NULL;
    cohort_engine *engine = NULL;
    struct cli_options one = *options;
    one.rows = 1;
    one.no_cache = 1;
    struct score score = {calloc(n + 1, sizeof *score.argmax), calloc(n + 1, sizeof *score.logprob)};
    if (!rc && (!score.argmax || !score.logprob)) rc = cli_failf("out of memory");
    if (!rc) rc = cli_open_model(options, 0, &model);
    if (!rc) rc = cli_open_engine(&one, model, NULL, &engine);
    struct window window = {ids, n};
    if (!rc) rc = windows_score(engine, &window, 1, keep, &score);
    if (!rc) print_score(&score, ids, n, options->json);
    free(score.argmax);
    free(score.logprob);
    free(ids);
    cohort_engine_close(engine, 0);
    cohort_model_close(model);
    return rc;
}
