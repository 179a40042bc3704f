/* Timing and reporting for the kernel benchmarks (measure.h). */
#include "measure.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS_MIN = 5 };
static const double spent_min = 0.25; /* seconds on the processor per measurement */

int measure_option(struct measure *m, int argc, char **argv, int i, int *used) {
    *used = 1;
    if (strcmp(argv[i], "--json") == 0) return m->json = 1;
    if (i + 1 >= argc) return 0;
    *used = 2;
    if (strcmp(argv[i], "--level") == 0) {
        m->level = argv[i + 1];
        return 1;
    }
    if (strcmp(argv[i], "--threads") == 0) {
        m->threads = atoi(argv[i + 1]);
        return m->threads >= 1 && m->threads <= MEASURE_THREADS_MAX;
    }
    return 0;
}

/* ---- Time ---- */

struct part {
    measure_work work;
    const void *job;
    size_t first, end;
    double seconds;
};

uint64_t measure_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int measure_ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void measure_must(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

static double thread_seconds(void) { return (double)measure_ns(CLOCK_THREAD_CPUTIME_ID) * 1e-9; }

static void *part_run(void *arg) {
    struct part *p = arg;
    double start = thread_seconds();
    p->work(p->job, p->first, p->end);
    p->seconds = thread_seconds() - start;
    return NULL;
}

static double seconds_once(const struct measure *m, measure_work work, const void *job, size_t n) {
    struct part parts[MEASURE_THREADS_MAX];
    pthread_t ids[MEASURE_THREADS_MAX];
    size_t threads = (size_t)m->threads;
    double most = 0;
    for (size_t i = 0; i < threads; i++) {
        parts[i] = (struct part){work, job, n * i / threads, n * (i + 1) / threads, 0};
        if (i && pthread_create(&ids[i], NULL, part_run, &parts[i]) != 0) exit(1);
    }
    part_run(&parts[0]);
    for (size_t i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    for (size_t i = 0; i < threads; i++) most = parts[i].seconds > most ? parts[i].seconds : most;
    return most;
}

double measure_seconds(const struct measure *m, measure_work work, const void *job, size_t n) {
    double best = 1e9, all = 0;
    for (int i = 0; i < RUNS_MIN || all < spent_min; i++) {
        double s = seconds_once(m, work, job, n);
        if (s < best) best = s;
        all += s;
    }
    return best;
}

struct call {
    void (*call)(void *);
    void *arg;
    long repeats; /* so many that the clock can see them */
};

static void call_work(const void *job, size_t first, size_t end) {
    const struct call *c = job;
    for (long i = 0; i < c->repeats; i++) c->call(c->arg);
}

double measure_call(void (*call)(void *), void *arg) {
    const struct measure alone = {.threads = 1};
    struct call c = {call, arg, 1};
    double once = seconds_once(&alone, call_work, &c, 1);
    c.repeats = (long)(0.002 / (once + 1e-8)) + 1;
    return measure_seconds(&alone, call_work, &c, 1) / (double)c.repeats;
}

/* ---- Results ---- */

static void cpu_name(char *out, size_t size) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "unknown CPU");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(out, size, "%.*s", (int)strcspn(colon + 2, "\n\"\\"), colon + 2);
        break;
    }
    if (f) fclose(f);
}

void measure_machine(struct measure *m) {
    char name[128];
    cpu_name(name, sizeof name);
    m->int8 = roof_multiply(m, ROOF_INT8);
    m->fp32 = roof_multiply(m, ROOF_FLOAT);
    if (m->json)
        printf("{\"bench\":\"%s\",\"kernel\":\"machine\",\"cpu\":\"%s\",\"level\":\"%s\",\"threads\":%d,"
               "\"int8_gmacs\":%.1f,\"int8_by\":\"%s\",\"float_gmacs\":%.1f,\"float_by\":\"%s\"}\n",
               m->program, name, m->level, m->threads, m->int8.gmacs, m->int8.instruction, m->fp32.gmacs,
               m->fp32.instruction);
    else
        printf("%s, level %s, threads %d, peak %.0f GMAC/s (%s), %.0f (%s)\n", name, m->level, m->threads,
               m->int8.gmacs, m->int8.instruction, m->fp32.gmacs, m->fp32.instruction);
    fflush(stdout);
}

static void print_json(const struct measure *m, const struct measure_result *r) {
    double gmacs = r->macs / r->seconds * 1e-9, gbs = r->bytes / r->seconds * 1e-9;
    printf("{\"bench\":\"%s\",\"kernel\":\"%s\",\"shape\":\"%s\",\"rows\":%u,\"us\":%.3f,\"level\":\"%s\","
           "\"threads\":%d",
           m->program, r->kernel, r->shape, r->rows, r->seconds * 1e6, m->level, m->threads);
    if (r->tokens > 0) printf(",\"tokens_per_s\":%.1f", r->tokens / r->seconds);
    if (r->macs > 0) printf(",\"gmacs\":%.2f", gmacs);
    if (r->macs > 0 && r->peak.gmacs > 0)
        printf(",\"peak_by\":\"%s\",\"peak_part\":%.4f", r->peak.instruction, gmacs / r->peak.gmacs);
    if (r->bytes > 0) printf(",\"gbs\":%.2f", gbs);
    if (r->bytes > 0 && r->read > 0) printf(",\"read_gbs\":%.2f,\"read_part\":%.4f", r->read, gbs / r->read);
    printf("}\n");
}

static void print_text(const struct measure_result *r) {
    double gmacs = r->macs / r->seconds * 1e-9, gbs = r->bytes / r->seconds * 1e-9;
    printf("%-10s %-30s rows %3u %11.2f us", r->kernel, r->shape, r->rows, r->seconds * 1e6);
    if (r->tokens > 0) printf(" %8.1f tok/s", r->tokens / r->seconds);
    if (r->macs > 0) printf(" %7.1f GMAC/s", gmacs);
    if (r->macs > 0 && r->peak.gmacs > 0) printf(" %5.1f %% of peak", 100 * gmacs / r->peak.gmacs);
    if (r->bytes > 0) printf(" %6.1f GB/s", gbs);
    if (r->bytes > 0 && r->read > 0) printf(" %5.1f %% of reading", 100 * gbs / r->read);
    printf("\n");
}

void measure_print(const struct measure *m, const struct measure_result *r) {
    if (m->json)
        print_json(m, r);
    else
        print_text(r);
    fflush(stdout);
}
