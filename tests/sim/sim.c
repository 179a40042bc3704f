/* The simulation's front: arguments, the seed, epochs until enough requests were played, and the last word. */
#include "sim.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static struct {
    uint64_t seed, epoch, requests;
    enum sim_canary canary;
    int one_epoch;
} run = {.requests = 100000};

static const char *const canary_names[] = {
#define SIM_CANARY_NAME(name, text) text,
    SIM_CANARY_LIST(SIM_CANARY_NAME)
#undef SIM_CANARY_NAME
};

uint64_t sim_draw(struct sim_rng *rng) { return rng_u64(rng->seed, rng->stream, rng->drawn++); }
uint32_t sim_below(struct sim_rng *rng, uint32_t n) { return (uint32_t)(((sim_draw(rng) >> 32) * n) >> 32); }
uint32_t sim_between(struct sim_rng *rng, uint32_t low, uint32_t high) { return low + sim_below(rng, high - low + 1); }
int sim_chance(struct sim_rng *rng, uint32_t per_thousand) { return sim_below(rng, 1000) < per_thousand; }

_Noreturn void sim_fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%s in epoch %" PRIu64 ": ", run.canary == CANARY_NONE ? "FAILED" : "canary caught", run.epoch);
    vprintf(format, args);
    va_end(args);
    printf("\nplay it again: test_sim --seed %" PRIu64 " --epoch %" PRIu64 "\n", run.seed, run.epoch);
    exit(run.canary == CANARY_NONE);
}

_Noreturn static void usage(void) {
    fprintf(stderr, "test_sim [--seed N] [--requests N] [--epoch N] [--canary NAME]; SEED and REQUESTS are read too\n");
    exit(2);
}

static enum sim_canary canary_of(const char *name) {
    for (size_t i = 0; i < sizeof canary_names / sizeof *canary_names; i++)
        if (strcmp(name, canary_names[i]) == 0) return (enum sim_canary)i;
    usage();
}

static void arguments(int argc, char **argv) {
    const char *seed = getenv("SEED"), *requests = getenv("REQUESTS");
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) usage();
        if (strcmp(argv[i], "--seed") == 0)
            seed = argv[i + 1];
        else if (strcmp(argv[i], "--requests") == 0)
            requests = argv[i + 1];
        else if (strcmp(argv[i], "--canary") == 0)
            run.canary = canary_of(argv[i + 1]);
        else if (strcmp(argv[i], "--epoch") == 0) {
            run.epoch = strtoull(argv[i + 1], NULL, 10);
            run.one_epoch = 1;
        } else
            usage();
    }
    run.seed = seed != NULL ? strtoull(seed, NULL, 10) : rng_entropy();
    if (requests != NULL) run.requests = strtoull(requests, NULL, 10);
}

static void say(const struct sim_totals *t) {
    printf("%" PRIu64 " requests in %" PRIu64 " epochs: %" PRIu64 " stopped, %" PRIu64 " reached their length, %" PRIu64
           " cancelled, %" PRIu64 " failed, %" PRIu64 " could never fit, %" PRIu64 " were wrong; %" PRIu64
           " times the line was full\n",
           t->requests, run.epoch, t->finished_stop, t->finished_length, t->cancelled, t->failed, t->refused_size,
           t->refused_wrong, t->refused_busy);
    printf("%" PRIu64 " plans, %" PRIu64 " tokens, %" PRIu64 " of them again; %" PRIu64 " pauses, %" PRIu64 " checks\n",
           t->plans, t->tokens, t->redone, t->pauses, t->checks);
    printf("preempted: %" PRIu64 " for room, %" PRIu64 " paused, %" PRIu64
           " ahead of their share; at most %u plans without "
           "room, %u plans without anything new, %" PRIu64 " tokens past a tenant that waits\n",
           t->pressed, t->made_way, t->owed, t->most_stalls, t->most_redo_plans, t->most_passed);
    printf("%" PRIu64 " epochs with a store: %" PRIu64 " prompt tokens taken, %" PRIu64 " pages copied, %" PRIu64
           " times a row followed, %" PRIu64 " loads, %" PRIu64 " of them failed, %" PRIu64 " refused; %" PRIu64
           " blocks written, %" PRIu64 " evictions, %" PRIu64 " spaces dropped; %" PRIu64 " rows resumed, %" PRIu64
           " preempted\n",
           t->stored_epochs, t->cached, t->copies, t->followed, t->loads, t->loads_failed, t->refused, t->spilled,
           t->evicted, t->dropped, t->resumed, t->not_said);
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    printf("seed %" PRIu64 "\n", run.seed);
    fflush(stdout);
    struct sim_totals t = {0};
    for (; t.requests < run.requests; run.epoch++) {
        sim_play(run.seed, run.epoch, run.canary, &t);
        if (run.one_epoch) break;
    }
    say(&t);
    if (run.canary == CANARY_NONE) return 0;
    printf("canary %s was not caught\n", canary_names[run.canary]);
    return 1;
}
