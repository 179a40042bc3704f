/* The one table of options: names, environment variable, kind, limits, help, and which commands take them. Main thread.
 */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

const struct cli_command cli_commands[] = {
    {"serve", "serve an OpenAI-compatible HTTP API", "medkhs", "", cmd_serve},
    {"top", "watch a running server", "v", "", cmd_top},
    {"run", "complete one prompt on the terminal", "medkhr", "[PROMPT]", cmd_run},
    {"bench", "measure prompt and decode speed", "meb", "", cmd_bench},
    {"perplexity", "perplexity of a text, in windows", "mef", "[FILE]", cmd_perplexity},
    {"score", "what the model says of given token ids", "mei", "", cmd_score},
    {"embed", "a text as a vector", "mel", "[TEXT]", cmd_embed},
    {"tokenize", "text to token ids", "mt", "[TEXT]", cmd_tokenize},
    {"inspect", "what is in a model file, and what running it takes", "mejk", "[FILE]", cmd_inspect},
    {"cache", "look at stored state, remove it, verify it", "dc", "ls|rm|verify [ID|all]", cmd_cache},
    {"pull", "fetch the default model", "", "", cmd_pull},
    {NULL, NULL, NULL, NULL, NULL},
};

enum kind { TEXT, INTEGER, BYTES, NUMBER, FLAG };

struct option {
    char group;
    const char *names; /* space-separated; the last long one gives the environment variable */
    enum kind kind;
    size_t offset;
    double low, high;
    const char *help;
};

#define AT(field) offsetof(struct cli_options, field)
#if defined(__aarch64__)
#define CPU_LEVELS "ref, neon"
#else
#define CPU_LEVELS "ref, avx2, avxvnni, avx512"
#endif
static const struct option table[] = {
    {'m', "-m --model", TEXT, AT(model), 0, 0, "GGUF file (first shard); default: the default model"},
    {'m', "-t --threads", INTEGER, AT(threads), 0, 256, "compute threads; 0: what affinity and quota allow"},
    {'m', "--cpu", TEXT, AT(cpu), 0, 0, "instruction-set level: " CPU_LEVELS},
    {'e', "-c --ctx-size", INTEGER, AT(context), 0, 1 << 24,
     "tokens of context per request; 0: as trained, at most 32768"},
    {'e', "-np --parallel", INTEGER, AT(rows), 1, 4096, "rows that run together"},
    {'e', "-b --batch-size", INTEGER, AT(batch_tokens), 1, 65536, "token budget of an iteration"},
    {'e', "--queue", INTEGER, AT(queue), 0, 65536, "waiting line behind the running rows"},
    {'e', "--kv-bytes", BYTES, AT(kv_bytes), 0, 1e15, "state budget in bytes (K, M, G, T allowed)"},
    {'e', "--kv-tokens", INTEGER, AT(kv_tokens), 0, 1e12, "state budget in tokens over all rows"},
    {'e', "-ctk --cache-type-k", TEXT, AT(key_form), 0, 0,
     "keys are kept as f16, q8_0 or q4_0 (layers with a window: q8_0)"},
    {'e', "-ctv --cache-type-v", TEXT, AT(value_form), 0, 0,
     "values are kept as f16, q8_0 or q4_0 (layers with a window: q8_0)"},
    {'e', "--cache-type-layers", TEXT, AT(layer_forms), 0, 0,
     "other forms for some layers: 0-3=f16,7=q8_0/q4_0 (keys/values)"},
    {'e', "--cache-quant-after", INTEGER, AT(quantise_after), 0, 1 << 24,
     "the first so many tokens of a request are kept as f16; raised to a multiple of 32"},
    {'e', "--itl-target-ms", INTEGER, AT(itl_target_ms), 0, 1000000,
     "time between tokens that reading prompts may stretch an iteration to; 0: by --itl-ratio"},
    {'e', "--itl-ratio", NUMBER, AT(itl_ratio), 1.1, 100, "the same, as a multiple of an iteration without prompts"},
    {'e', "--no-pipeline", FLAG, AT(no_pipeline), 0, 0, "deliver each iteration before the next starts (same output)"},
    {'e', "--trace", TEXT, AT(trace), 0, 0, "write spans of everything into this file (Chrome's trace format)"},
    {'d', "--state-dir", TEXT, AT(state_dir), 0, 0, "folder for state that survives the process"},
    {'k', "--state-dir-bytes", BYTES, AT(state_dir_bytes), 0, 1e15, "its size at most (K, M, G, T allowed)"},
    {'k', "--no-cache", FLAG, AT(no_cache), 0, 0, "keep and share no state of prompts (same output)"},
    {'k', "--snapshot-stride", INTEGER, AT(snapshot_stride), 0, 1 << 24,
     "models with windowed layers: a place to go on from every so many tokens; 0: none"},
    {'h', "--chat-template", TEXT, AT(chat_template), 0, 0,
     "template of chats, in Jinja, or the name of a built-in one, instead of the model's own"},
    {'h', "--chat-template-file", TEXT, AT(chat_template_file), 0, 0, "the same, from a file"},
    {'s', "--allow-request-templates", FLAG, AT(request_templates), 0, 0,
     "requests may bring a chat_template of their own"},
    {'s', "--host", TEXT, AT(host), 0, 0, "address to listen on"},
    {'s', "--port", INTEGER, AT(port), 0, 65535, "port to listen on; 0: any"},
    {'s', "--api-key", TEXT, AT(api_key), 0, 0, "key that clients must send"},
    {'s', "--keys", TEXT, AT(keys), 0, 0, "JSON file of keys, with names, weights and limits"},
    {'s', "-a --alias", TEXT, AT(alias), 0, 0, "model name in the API"},
    {'s', "--drain-seconds", INTEGER, AT(drain_seconds), 0, 86400, "time for running requests after SIGTERM"},
    {'s', "--request-timeout", INTEGER, AT(request_timeout), 0, 4000000,
     "seconds that a request may take, waiting included; 0: any"},
    {'s', "--store", TEXT, AT(store), 0, 0,
     "calls that survive a crash and their client: none, marked (\"store\": true) or all; needs --state-dir"},
    {'s', "--store-hours", INTEGER, AT(store_hours), 0, 8760, "hours that stored calls are kept after their end"},
    {'s', "-v --verbose", FLAG, AT(verbose), 0, 0, "a report of the last second on standard error while anything runs"},
    {'v', "--host", TEXT, AT(host), 0, 0, "address of the server"},
    {'v', "--port", INTEGER, AT(port), 1, 65535, "its port"},
    {'v', "--api-key", TEXT, AT(api_key), 0, 0, "its key"},
    {'v', "--interval", NUMBER, AT(interval), 0.1, 3600, "seconds between two looks"},
    {'v', "--once", FLAG, AT(once), 0, 0, "one picture on standard output, of one interval"},
    {'r', "-p --prompt", TEXT, AT(prompt), 0, 0, "the prompt"},
    {'r', "-f --file", TEXT, AT(file), 0, 0, "read the prompt from a file (- for standard input)"},
    {'r', "-n --n-predict --predict", INTEGER, AT(predict), -1, 1 << 24,
     "tokens to generate; -1: the rest of the context"},
    {'r', "--temp --temperature", NUMBER, AT(temperature), 0, 100, "0: always the most likely token"},
    {'r', "--top-k", INTEGER, AT(top_k), 0, 1 << 24, "0: off"},
    {'r', "--top-p", NUMBER, AT(top_p), 0, 1, "1: off"},
    {'r', "--min-p", NUMBER, AT(min_p), 0, 1, "0: off"},
    {'r', "-s --seed", INTEGER, AT(seed), -1, 9.2e18, "-1: a fresh one"},
    {'r', "--ignore-eos", FLAG, AT(ignore_eos), 0, 0, "go on behind the end token"},
    {'r', "--chat", FLAG, AT(chat), 0, 0, "the prompt is a user's turn of a chat"},
    {'f', "-f --file", TEXT, AT(file), 0, 0, "the text (- for standard input)"},
    {'f', "-j --json", FLAG, AT(json), 0, 0, "JSON"},
    {'i', "--ids", TEXT, AT(ids), 0, 0, "token ids, separated by commas"},
    {'i', "-j --json", FLAG, AT(json), 0, 0, "JSON"},
    {'l', "-p --prompt", TEXT, AT(prompt), 0, 0, "the text"},
    {'l', "-f --file", TEXT, AT(file), 0, 0, "read the text from a file (- for standard input)"},
    {'l', "--pooling", TEXT, AT(pooling), 0, 0, "mean, cls or last; default: what the file names, or the mean"},
    {'l', "--normalize", INTEGER, AT(normalize), -1, 2, "2: to a length of 1; -1: not at all"},
    {'l', "-j --json", FLAG, AT(json), 0, 0, "JSON"},
    {'b', "-p --prompt-tokens", INTEGER, AT(bench_prompt), 0, 1 << 20, "tokens of the prompt test; 0: no prompt test"},
    {'b', "-n --n-predict --predict", INTEGER, AT(predict), 0, 1 << 20,
     "tokens per row of the decode test; 0: no decode test"},
    {'b', "--rows", TEXT, AT(rows_list), 0, 0, "rows of the decode tests, separated by commas"},
    {'b', "-r --repeats", INTEGER, AT(bench_repeats), 1, 1000, "runs of each test: the median counts"},
    {'b', "-j --json", FLAG, AT(json), 0, 0, "one JSON object per line"},
    {'t', "-p --prompt", TEXT, AT(prompt), 0, 0, "the text"},
    {'t', "-f --file", TEXT, AT(file), 0, 0, "read the text from a file (- for standard input)"},
    {'t', "--special", FLAG, AT(special), 0, 0, "read special tokens in the text as such"},
    {'t', "--no-bos", FLAG, AT(no_bos), 0, 0, "no begin token in front"},
    {'t', "-j --json", FLAG, AT(json), 0, 0, "a JSON array instead of a line per token"},
    {'j', "-j --json", FLAG, AT(json), 0, 0, "JSON"},
    {'j', "--plan", FLAG, AT(plan), 0, 0, "what an engine of these options would take of memory, instead"},
    {'c', "--unused", INTEGER, AT(unused), 1, 1e10, "rm: what was not used for so many seconds"},
    {'c', "--repair", FLAG, AT(repair), 0, 0, "verify: remove what does not hold its checksum"},
    {'c', "-j --json", FLAG, AT(json), 0, 0, "ls: JSON"},
};
enum { OPTIONS = sizeof table / sizeof table[0] };

static const struct cli_options defaults = {
    .rows = 16,
    .batch_tokens = 256,
    .queue = 256,
    .itl_ratio = 1.5,
    .key_form = "f16",
    .value_form = "f16",
    .state_dir_bytes = INT64_C(8) << 30,
    .snapshot_stride = 2048,
    .unused = -1,
    .host = "127.0.0.1",
    .port = 8080,
    .drain_seconds = 30,
    .store = "marked",
    .store_hours = 24,
    .interval = 1,
    .predict = 128,
    .seed = -1,
    .temperature = 0.8,
    .top_k = 40,
    .top_p = 0.95,
    .min_p = 0.05,
    .normalize = 2,
    .bench_prompt = 512,
    .bench_repeats = 3,
    .rows_list = "1,8,32",
};

static int in_command(const struct option *option, const struct cli_command *command) {
    return strchr(command->options, option->group) != NULL;
}

static int has_name(const struct option *option, const char *name) {
    size_t len = strlen(name);
    for (const char *at = strstr(option->names, name); at; at = strstr(at + 1, name))
        if ((at == option->names || at[-1] == ' ') && (at[len] == ' ' || at[len] == 0)) return 1;
    return 0;
}

/* "--kv-bytes" -> "COHORT_KV_BYTES" */
static void environment_name(const struct option *option, char out[64]) {
    const char *last = strrchr(option->names, ' ');
    last = last ? last + 1 : option->names;
    while (*last == '-') last++;
    int n = snprintf(out, 64, "COHORT_%s", last);
    for (int i = 0; i < n; i++)
        out[i] = out[i] == '-' ? '_' : (char)(out[i] >= 'a' && out[i] <= 'z' ? out[i] - 32 : out[i]);
}

static int bad_value(const struct option *option, const char *name, const char *value) {
    fprintf(stderr, "cohort: %s: \"%s\" is not %s from %.15g to %.15g%s\n", name, value,
            option->kind == NUMBER ? "a number" : "an integer", option->low, option->high,
            option->kind == BYTES ? ", with K, M, G or T behind it if need be" : "");
    return 2;
}

/* What a suffix of a size stands for; 0: it is none. */
static double unit_of(char suffix) {
    static const char suffixes[] = "KMGTkmgt";
    const char *at = suffix ? strchr(suffixes, suffix) : NULL;
    return at ? (double)(INT64_C(1) << (10 * ((at - suffixes) % 4 + 1))) : 0;
}

static int set_value(const struct option *option, const char *name, const char *value, struct cli_options *out) {
    void *field = (char *)out + option->offset;
    char *end;
    errno = 0;
    switch (option->kind) {
    case TEXT:
        if (option->offset == AT(state_dir) && !*value) {
            fprintf(stderr, "cohort: %s is empty: it needs the name of a folder\n", name);
            return 2;
        }
        *(const char **)field = value;
        return 0;
    case FLAG:
        *(int *)field = strcmp(value, "0") != 0 && strcmp(value, "") != 0;
        return 0;
    case NUMBER: {
        double number = strtod(value, &end);
        if (errno || end == value || *end || !(number >= option->low && number <= option->high))
            return bad_value(option, name, value);
        *(double *)field = number;
        return 0;
    }
    default:
        break;
    }
    long long number = strtoll(value, &end, 10);
    double unit = 1;
    if (option->kind == BYTES && end != value && unit_of(*end) > 0) unit = unit_of(*end++);
    if (errno || end == value || *end || (double)number < option->low || (double)number * unit > option->high)
        return bad_value(option, name, value);
    *(int64_t *)field = (int64_t)((double)number * unit);
    if (unit == 1) *(int64_t *)field = number;
    return 0;
}

static int from_environment(const struct cli_command *command, struct cli_options *out) {
    for (int i = 0; i < OPTIONS; i++) {
        if (!in_command(&table[i], command)) continue;
        char name[64];
        environment_name(&table[i], name);
        const char *value = getenv(name);
        if (value) {
            int rc = set_value(&table[i], name, value, out);
            if (rc) return rc;
        }
    }
    return 0;
}

static int one_option(int argc, char **argv, int *at, const struct cli_command *command, struct cli_options *out) {
    char name[64];
    const char *word = argv[*at], *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - word) : (int)strlen(word), word);
    for (int i = 0; i < OPTIONS; i++) {
        const struct option *option = &table[i];
        if (!in_command(option, command) || !has_name(option, name)) continue;
        if (option->kind == FLAG && !equals) return set_value(option, name, "1", out);
        if (equals) return set_value(option, name, equals + 1, out);
        if (*at + 1 >= argc) {
            fprintf(stderr, "cohort: %s needs a value\n", name);
            return 2;
        }
        return set_value(option, name, argv[++*at], out);
    }
    fprintf(stderr, "cohort %s: unknown option %s; `cohort %s --help` lists them\n", command->name, name,
            command->name);
    return 2;
}

/* How many words that are no options the command takes. */
static int words_of(const struct cli_command *command) {
    int n = *command->words != 0;
    for (const char *at = command->words; *at; at++) n += *at == ' ';
    return n;
}

int cli_parse(int argc, char **argv, const struct cli_command *command, struct cli_options *out) {
    *out = defaults;
    out->command = command->name;
    int words = 0;
    int rc = from_environment(command, out);
    if (rc) return rc + 1;
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            cli_help(command);
            return 1;
        }
        if (argv[i][0] == '-' && argv[i][1]) {
            rc = one_option(argc, argv, &i, command, out);
            if (rc) return rc + 1;
        } else if (words == words_of(command)) {
            fprintf(stderr, "cohort %s: one argument too many: %s\n", command->name, argv[i]);
            return 3;
        } else if (words++ == 0) {
            out->argument = argv[i];
        } else {
            out->object = argv[i];
        }
    }
    return 0;
}

void cli_usage(void) {
    printf("cohort %s: many LLM requests in one running batch, each with the bytes it would have got alone\n\n"
           "usage: cohort COMMAND [options]\n\n",
           COHORT_VERSION);
    for (const struct cli_command *command = cli_commands; command->name; command++)
        printf("  %-12s %s\n", command->name, command->summary);
    printf("\n`cohort COMMAND --help` lists a command's options. Every option has an environment variable: --kv-bytes "
           "is COHORT_KV_BYTES.\n");
}

void cli_help(const struct cli_command *command) {
    printf("usage: cohort %s%s%s [options]\n  %s\n\n", command->name, *command->words ? " " : "", command->words,
           command->summary);
    for (int i = 0; i < OPTIONS; i++) {
        if (!in_command(&table[i], command)) continue;
        char names[64];
        snprintf(names, sizeof names, "%s%s", table[i].names, table[i].kind == FLAG ? "" : " X");
        printf("  %-26s %s\n", names, table[i].help);
    }
}
