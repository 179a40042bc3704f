/* Ten thousand histories of an engine whose state survives, against one that stores nothing (histories.h).
 *
 *   test_engine_histories [--seed N] [--histories N] [--round N] [--length N] [--models a,b:window] [--cpu LEVEL]
 *                         [--workers N]
 *
 * --round plays that round of the seed alone; an engine lives through --length histories. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "histories.h"

enum { MODELS_MAX = 16, WORKERS_MAX = 16 };

static struct {
    uint64_t seed, histories, round;
    int one_round;
    uint32_t length, workers;
    const char *cpu;
    char models[256];
} run = {.seed = 1,
         .histories = 10000,
         .length = 20,
         .workers = 2,
         .models = "llama,gemma3,gemma3:33,gemma3:64,gemma3:100,gemma2:40,llama"};

static struct history_model models[MODELS_MAX];
static uint32_t models_n;

_Noreturn static void usage(void) {
    fprintf(stderr, "test_engine_histories [--seed N] [--histories N] [--round N] [--length N] [--models LIST] "
                    "[--cpu LEVEL] [--workers N]\n");
    exit(2);
}

static void arguments(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value) usage();
        if (strcmp(argv[i], "--seed") == 0)
            run.seed = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--histories") == 0)
            run.histories = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--round") == 0)
            run.round = strtoull(value, NULL, 10), run.one_round = 1;
        else if (strcmp(argv[i], "--length") == 0)
            run.length = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--workers") == 0)
            run.workers = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--cpu") == 0)
            run.cpu = value;
        else if (strcmp(argv[i], "--models") == 0)
            snprintf(run.models, sizeof(run.models), "%s", value);
        else
            usage();
    }
    if (run.one_round) run.workers = 1;
    if (run.length < 1 || run.workers < 1 || run.workers > WORKERS_MAX) usage();
}

static int open_models(void) {
    for (char *name = strtok(run.models, ","); name && models_n < MODELS_MAX; name = strtok(NULL, ","))
        if (!history_model_open(&models[models_n++], name, run.cpu)) return 0;
    return models_n > 0;
}

static void play(uint64_t number, struct totals *sum) {
    static struct oracle *oracles[MODELS_MAX];
    struct history_model *m = &models[number % models_n];
    struct round *r = calloc(1, sizeof(*r));
    if (!r) abort();
    if (!oracles[number % models_n]) oracles[number % models_n] = oracle_new(m);
    r->seed = run.seed;
    r->number = number;
    r->model = m;
    r->oracle = oracles[number % models_n];
    round_play(r, run.length);
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)&r->totals;
    for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++) to[i] += from[i];
    free(r);
}

static uint64_t rounds(void) { return (run.histories + run.length - 1) / run.length; }

static int work(uint32_t worker, struct totals *sum) {
    if (!open_models()) return 77;
    if (run.one_round) {
        play(run.round, sum);
        return 0;
    }
    for (uint64_t i = worker; i < rounds(); i += run.workers) play(i, sum);
    return 0;
}

/* Whatever these tests are there for did happen. */
static int saw_it_all(const struct totals *t) {
    const struct {
        const char *what;
        uint64_t n;
    } needed[] = {{"preemptions", t->preemptions},
                  {"positions read again", t->redone},
                  {"cancelled requests", t->cancelled},
                  {"failed requests", t->failed},
                  {"continuations", t->resumed},
                  {"refused launches", t->refused_launches},
                  {"slow readers", t->paused},
                  {"hits", t->hits},
                  {"evictions", t->evictions},
                  {"evicted snapshots", t->snapshot_evictions},
                  {"answers of which it is known what they must take from the store", t->least_checks},
                  {"a quarter of all prompt tokens from the store", 4 * t->cached_tokens > t->prompt_tokens}};
    int missing = 0;
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (needed[i].n) continue;
        fprintf(stderr, "not seen: %s\n", needed[i].what);
        missing = 1;
    }
    return !missing;
}

static void print(const struct totals *t) {
    printf("%llu histories, %llu requests, %llu prompt tokens, %llu of them cached (%llu hits of %llu lookups); "
           "%llu preemptions, %llu redone; evicted %llu and %llu snapshots;\n"
           "%llu cancelled, %llu failed, %llu continued, %llu launches refused, %llu read late, %llu known hits\n",
           (unsigned long long)t->histories, (unsigned long long)t->requests, (unsigned long long)t->prompt_tokens,
           (unsigned long long)t->cached_tokens, (unsigned long long)t->hits, (unsigned long long)t->lookups,
           (unsigned long long)t->preemptions, (unsigned long long)t->redone, (unsigned long long)t->evictions,
           (unsigned long long)t->snapshot_evictions, (unsigned long long)t->cancelled, (unsigned long long)t->failed,
           (unsigned long long)t->resumed, (unsigned long long)t->refused_launches, (unsigned long long)t->paused,
           (unsigned long long)t->least_checks);
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    struct totals *sums =
        mmap(NULL, WORKERS_MAX * sizeof(*sums), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sums == MAP_FAILED) return 1;
    int bad = 0;
    for (uint32_t i = 0; i < run.workers; i++)
        if (fork() == 0) exit(work(i, &sums[i]));
    for (int status; wait(&status) > 0;)
        if (!WIFEXITED(status) || WEXITSTATUS(status)) bad = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    for (uint32_t i = 1; i < run.workers; i++)
        for (size_t j = 0; j < sizeof(*sums) / sizeof(uint64_t); j++)
            ((uint64_t *)sums)[j] += ((uint64_t *)&sums[i])[j];
    if (bad) return bad;
    print(sums);
    return run.one_round || run.histories < 1000 || saw_it_all(sums) ? 0 : 1;
}
