/* The `cohort` program: options, commands, progress. Main thread; `serve` opens its model in a second one. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdint.h>

#include "cohort/cohort.h"

struct cli_options {
    const char *command;
    /* model */
    const char *model; /* NULL: the default model */
    const char *cpu;
    int64_t threads;
    /* engine */
    int64_t context, rows, batch_tokens, queue, kv_bytes, kv_tokens;
    int64_t itl_target_ms;
    double itl_ratio;
    int no_pipeline;
    const char *trace;
    const char *state_dir;
    int64_t state_dir_bytes, snapshot_stride;
    const char *key_form, *value_form, *layer_forms;
    int64_t quantise_after;
    int no_cache;
    const cohort_tenant *tenants; /* serve: of its keys */
    size_t tenants_n;
    const char *chat_template, *chat_template_file;
    /* server */
    const char *host, *api_key, *keys, *alias;
    int64_t port, drain_seconds, request_timeout;
    const char *store;
    int64_t store_hours;
    int verbose, request_templates;
    /* top */
    double interval;
    int once;
    /* one request */
    const char *prompt, *file;
    int64_t predict, top_k, seed;
    double temperature, top_p, min_p;
    int ignore_eos, chat;
    /* embed */
    const char *pooling;
    int64_t normalize;
    /* score, tokenize, inspect, bench */
    const char *ids, *rows_list;
    int64_t bench_prompt, bench_repeats;
    int json, special, no_bos, plan;
    /* cache */
    int64_t unused; /* seconds; -1: not given */
    int repair;
    const char *argument, *object; /* the words that are no options */
};

struct cli_command {
    const char *name, *summary, *options; /* options: letters of the groups that it takes, see options.c */
    const char *words;                    /* that are no options, for its help; as many as there are spaces and one */
    int (*run)(const struct cli_options *options);
};

extern const struct cli_command cli_commands[]; /* ends with a NULL name */

/* 0; 1: help was printed; 2: a mistake was printed. */
int cli_parse(int argc, char **argv, const struct cli_command *command, struct cli_options *out);
void cli_usage(void);
void cli_help(const struct cli_command *command);

/* "cohort: text" on stderr; returns 1. */
int cli_fail(const cohort_error *error);
int cli_failf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The model named by the options, or the default one; progress bar on a terminal. */
int cli_open_model(const struct cli_options *options, int vocab_only, cohort_model **out);
int cli_open_engine(const struct cli_options *options, cohort_model *model, const cohort_engine_options *base,
                    cohort_engine **out);
/* What that engine would take of memory: text or JSON, freed with cohort_free. */
int cli_plan(const struct cli_options *options, cohort_model *model, int json, char **out, size_t *len);
/* The forms of state, from names to the engine's options: 0, or 1 after a printed error. `list` has room for
 * COHORT_LAYER_FORMS_MAX and must live until the engine is open. */
int cli_forms(const struct cli_options *options, cohort_layer_forms *list, cohort_engine_options *engine);
/* Path of the default model in a static buffer. */
const char *cli_default_model(void);
/* Whole file (or stdin for "-") into malloc'ed *out, NUL behind it; at most CLI_FILE_MAX bytes. */
enum { CLI_FILE_MAX = 256 << 20 };
int cli_read_file(const char *path, char **out, size_t *len);
/* A progress bar on stderr if that is a terminal; `what` at fraction 0..1. */
void cli_progress(void *user, const char *what, double fraction);

int cmd_serve(const struct cli_options *options);
int cmd_run(const struct cli_options *options);
int cmd_score(const struct cli_options *options);
int cmd_embed(const struct cli_options *options);
int cmd_perplexity(const struct cli_options *options);
int cmd_bench(const struct cli_options *options);
int cmd_tokenize(const struct cli_options *options);
int cmd_inspect(const struct cli_options *options);
int cmd_top(const struct cli_options *options);
int cmd_pull(const struct cli_options *options);
int cmd_cache(const struct cli_options *options);

#endif
