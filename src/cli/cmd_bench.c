/* `cohort bench`: prompt and decode speed through the real engine, as llama-batched-bench measures them: R rows with
 * their own short prompts decode N tokens each, counted from the moment all of them have their first token. Medians of
 * the repeats. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

enum { ROWS_LIST_MAX = 64, BENCH_ROWS_MAX = 4096, DECODE_PROMPT = 16 };

struct row {
    cohort_id id;
    uint32_t tokens;
    int ended;
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int submit(cohort_engine *engine, const cohort_model_info *info, uint32_t seed, uint32_t prompt_n,
                  uint32_t predict, struct row *row) {
    int32_t *ids = malloc(prompt_n * sizeof *ids);
    if (!ids) return cli_failf("out of memory");
    uint32_t x = seed * 2654435761u + 12345;
    for (uint32_t i = 0; i < prompt_n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(x % info->vocab_size);
    }
    cohort_request request;
    cohort_request_defaults(&request);
    request.prompt = ids;
    request.prompt_n = prompt_n;
    request.max_tokens = predict;
    request.ignore_eos = 1;
    cohort_ticket ticket;
    cohort_error error = {0};
    *row = (struct row){0};
    int rc = cohort_reserve(engine, &ticket, &error);
    if (!rc) rc = cohort_submit(engine, ticket, &request, &row->id, &error);
    free(ids);
    return rc ? cli_fail(&error) : 0;
}

/* Takes in events; -1 after a printed error, else the tokens taken. */
static int take(cohort_engine *engine, struct row *row) {
    int n = 0;
    cohort_event event;
    while (!row->ended && cohort_next(engine, row->id, &event) == COHORT_OK) {
        if (event.type == COHORT_EVENT_TOKEN) n++;
        if (event.type != COHORT_EVENT_FINISH) continue;
        row->ended = 1;
        if (event.finish == COHORT_FINISH_ERROR) {
            cli_failf("%s", event.error_text);
            return -1;
        }
    }
    row->tokens += (uint32_t)n;
    return n;
}

/* One decode run: tokens per second after every row has begun, or < 0. */
static double decode_once(cohort_engine *engine, const cohort_model_info *info, struct row *rows, uint32_t n,
                          uint32_t predict) {
    for (uint32_t i = 0; i < n; i++)
        if (submit(engine, info, i + 1, DECODE_PROMPT, predict, &rows[i])) return -1;
    uint32_t begun = 0, ended = 0;
    double submitted = now_s(), start = 0, end = 0;
    uint64_t before = 0, total = 0;
    while (ended < n) {
        begun = ended = 0;
        for (uint32_t i = 0; i < n; i++) {
            int got = take(engine, &rows[i]);
            if (got < 0) return -1;
            total += (uint64_t)got;
            begun += rows[i].tokens > 0;
            ended += (uint32_t)rows[i].ended;
        }
        if (start == 0 && begun == n) {
            start = now_s();
            before = total;
        }
        end = now_s();
        for (uint32_t i = 0; i < n; i++)
            if (!rows[i].ended) {
                cohort_wait(engine, rows[i].id, 1000);
                break;
            }
    }
    for (uint32_t i = 0; i < n; i++) cohort_drop(engine, rows[i].id);
    /* A model so small that all tokens were there at the first look: the whole run counts. */
    return total > before ? (double)(total - before) / (end - start) : (double)total / (end - submitted);
}

/* One prompt run: prompt tokens per second until the first token, or < 0. */
static double prompt_once(cohort_engine *engine, const cohort_model_info *info, uint32_t tokens) {
    struct row row;
    double start = now_s();
    if (submit(engine, info, 7, tokens, 1, &row)) return -1;
    while (!row.ended) {
        cohort_wait(engine, row.id, 1000);
        if (take(engine, &row) < 0) return -1;
    }
    double end = now_s();
    cohort_drop(engine, row.id);
    return (double)tokens / (end - start);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_result(const struct cli_options *options, const cohort_model_info *info, const char *test,
                         uint32_t rows, uint32_t tokens, double *speeds, size_t n) {
    qsort(speeds, n, sizeof *speeds, compare);
    double median = speeds[n / 2];
    if (options->json)
        printf("{\"test\":\"%s\",\"rows\":%u,\"tokens\":%u,\"tokens_per_s\":%.2f,\"best\":%.2f,\"repeats\":%zu,"
               "\"threads\":%d,\"cpu\":\"%s\"}\n",
               test, rows, tokens, median, speeds[n - 1], n, info->threads, info->cpu);
    else
        printf("%-7s rows %4u  tokens %5u  %10.1f tok/s  (best %.1f of %zu)\n", test, rows, tokens, median,
               speeds[n - 1], n);
    fflush(stdout);
}

static int parse_rows(const char *text, uint32_t *list, size_t *n, uint32_t *most) {
    *n = 0;
    *most = 1;
    for (;;) {
        char *end;
        errno = 0;
        long value = strtol(text, &end, 10);
        if (errno || end == text || value < 1 || value > BENCH_ROWS_MAX || (*end && *end != ',') || *n == ROWS_LIST_MAX)
            return cli_failf("--rows: \"%s\" is not a list of numbers from 1 to %d", text, BENCH_ROWS_MAX);
        list[(*n)++] = (uint32_t)value;
        if (value > *most) *most = (uint32_t)value;
        if (!*end) return 0;
        text = end + 1;
    }
}

static int run_tests(const struct cli_options *options, cohort_engine *engine, const cohort_model_info *info,
                     const uint32_t *list, size_t list_n, struct row *rows, double *speeds) {
    size_t repeats = (size_t)options->bench_repeats;
    uint32_t prompt = (uint32_t)options->bench_prompt, predict = (uint32_t)options->predict;
    for (size_t r = 0; prompt && r < repeats; r++)
        if ((speeds[r] = prompt_once(engine, info, prompt)) < 0) return 1;
    if (prompt) print_result(options, info, "prompt", 1, prompt, speeds, repeats);
    for (size_t i = 0; predict && i < list_n; i++) {
        for (size_t r = 0; r < repeats; r++)
            if ((speeds[r] = decode_once(engine, info, rows, list[i], predict)) < 0) return 1;
        print_result(options, info, "decode", list[i], predict, speeds, repeats);
    }
    return 0;
}

int cmd_bench(const struct cli_options *options) {
    uint32_t list[ROWS_LIST_MAX], most;
    size_t list_n;
    int rc = parse_rows(options->rows_list, list, &list_n, &most);
    cohort_model *model = NULL;
    cohort_engine *engine = NULL;
    struct row *rows = calloc(most, sizeof *rows);
    double *speeds = calloc((size_t)options->bench_repeats, sizeof *speeds);
    if (!rc && (!rows || !speeds)) rc = cli_failf("out of memory");
    if (!rc) rc = cli_open_model(options, 0, &model);
    struct cli_options sized = *options;
    sized.rows = most;
    sized.no_cache = 1; /* the same prompt, again and again */
    if (!sized.context) {
        int64_t decode = DECODE_PROMPT + options->predict, prompt = options->bench_prompt + 1;
        sized.context = decode > prompt ? decode : prompt;
    }
    if (sized.batch_tokens < 512) sized.batch_tokens = 512;
    if (!rc) rc = cli_open_engine(&sized, model, NULL, &engine);
    if (!rc) {
        cohort_model_info info;
        cohort_model_get_info(model, &info);
        rc = run_tests(options, engine, &info, list, list_n, rows, speeds);
    }
    free(rows);
    free(speeds);
    cohort_engine_close(engine, 0);
    cohort_model_close(model);
    return rc;
}
