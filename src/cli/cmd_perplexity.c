/* `cohort perplexity`: as llama-perplexity computes it. The text's ids are cut into windows of -c tokens (a rest is
 * left out); where the vocabulary wants a begin token, each window's first id is replaced by it; the second half of
 * each window is scored: PPL = exp(-mean log-probability). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/windows.h"

enum { WINDOW_DEFAULT = 512, ROWS_AT_ONCE = 8 };

struct sums {
    uint32_t first; /* position whose next id is the first one scored */
    double *of;     /* per window, so that the order of arrival does not matter */
    size_t *n;
};

static void add(void *user, size_t window, uint32_t position, int32_t argmax, float logprob) {
    (void)argmax;
    struct sums *sums = user;
    if (position < sums->first || isnan(logprob)) return;
    sums->of[window] += (double)logprob;
    sums->n[window]++;
}

/* The error is that of the mean over windows, which differ more than their tokens do. Two runs over the same text (two
 * forms of state) are compared window by window: JSON has the sums. */
static void report(const struct sums *sums, size_t windows_n, size_t size, int json) {
    double sum = 0, squares = 0;
    size_t count = 0;
    for (size_t i = 0; i < windows_n; i++) {
        sum += sums->of[i];
        count += sums->n[i];
    }
    double mean = sum / (double)count, ppl = exp(-mean);
    for (size_t i = 0; i < windows_n; i++) {
        double d = sums->of[i] - mean * (double)sums->n[i];
        squares += d * d;
    }
    double n = (double)windows_n, error = n > 1 ? ppl * sqrt(squares * n / (n - 1)) / (double)count : 0;
    if (!json) {
        printf("%zu windows of %zu tokens, %zu scored\nPPL = %.4f +/- %.4f\n", windows_n, size, count, ppl, error);
        return;
    }
    printf("{\"ppl\":%.9g,\"error\":%.4g,\"tokens\":%zu,\"windows\":%zu,\"context\":%zu,\"nll\":[", ppl, error, count,
           windows_n, size);
    for (size_t i = 0; i < windows_n; i++) printf("%s%.9g", i ? "," : "", -sums->of[i]);
    printf("]}\n");
}

static int score_text(const struct cli_options *options, cohort_model *model, int32_t *ids, size_t n, size_t size) {
    size_t windows_n = n / size;
    if (windows_n == 0) return cli_failf("the text has %zu tokens, a window needs %zu: choose a smaller -c", n, size);
    cohort_model_info info;
    cohort_model_get_info(model, &info);
    struct window *windows = calloc(windows_n, sizeof *windows);
    struct sums sums = {(uint32_t)(size / 2), calloc(windows_n, sizeof(double)), calloc(windows_n, sizeof(size_t))};
    cohort_engine *engine = NULL;
    struct cli_options rows = *options;
    rows.rows = ROWS_AT_ONCE;
    rows.no_cache = 1;
    rows.context = (int64_t)size;
    int rc = windows && sums.of && sums.n ? 0 : cli_failf("out of memory");
    for (size_t i = 0; i < windows_n && !rc; i++) {
        if (info.add_bos && info.bos >= 0) ids[i * size] = info.bos;
        windows[i] = (struct window){ids + i * size, size};
    }
    if (!rc) rc = cli_open_engine(&rows, model, NULL, &engine);
    if (!rc) rc = windows_score(engine, windows, windows_n, add, &sums);
    if (!rc) report(&sums, windows_n, size, options->json);
    cohort_engine_close(engine, 0);
    free(windows);
    free(sums.of);
    free(sums.n);
    return rc;
}

int cmd_perplexity(const struct cli_options *options) {
    const char *path = options->file ? options->file : options->argument;
    if (!path) return cli_failf("perplexity: -f FILE is missing");
    size_t size = options->context ? (size_t)options->context : WINDOW_DEFAULT;
    if (size < 4) return cli_failf("perplexity: -c is %zu, a window needs at least 4 tokens", size);
    char *text = NULL;
    size_t len = 0, n = 0;
    int32_t *ids = NULL;
    cohort_model *model = NULL;
    cohort_error error = {0};
    int rc = cli_read_file(path, &text, &len);
    if (!rc) rc = cli_open_model(options, 0, &model);
    if (!rc && cohort_tokenize(model, text, len, COHORT_TOKENIZE_BOS, &ids, &n, &error) != 0) rc = cli_fail(&error);
    if (!rc) rc = score_text(options, model, ids, n, size);
    cohort_free(ids);
    free(text);
    cohort_model_close(model);
    return rc;
}
