/* What the kernel benchmarks share: work on all threads against the processor's clock, the roofs of this machine, and
 * one form of result, as a line of text or of JSON.
 *
 * Threads: a program's main thread calls everything here; the work runs on as many threads as are asked for. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { MEASURE_THREADS_MAX = 256 };

struct roof {
    double gmacs; /* 10^9 multiply-adds a second; 0: not known */
    const char *instruction;
};

/* How a program was called (measure_option takes what is common), and the machine's peaks (measure_machine). */
struct measure {
    const char *program; /* "matmul", ... */
    const char *level;   /* of instructions */
    int threads;
    int json;
    struct roof int8, fp32;
};

/* 1 if argv[i] is one of ours: --level L, --threads N, --json. *used: arguments taken. */
int measure_option(struct measure *m, int argc, char **argv, int i, int *used);

/* Runs work over [0, n), cut into one part per thread. The slowest thread's time on the processor in seconds, so that
 * what other programs take away does not count; the best of many runs, because they only ever make a run slower. */
typedef void (*measure_work)(const void *job, size_t first, size_t end);
double measure_seconds(const struct measure *m, measure_work work, const void *job, size_t n);

/* What a clock says, in nanoseconds; qsort's order of such; and the end of a program that cannot go on, with its name.
 */
uint64_t measure_ns(clockid_t clock);
int measure_ascending(const void *a, const void *b);
void measure_must(int holds, const char *what);

/* Seconds of one call on this thread, likewise. */
double measure_call(void (*call)(void *), void *arg);

/* GB/s at which all threads read these bytes again and again: from memory, or from the cache that holds them. */
double roof_read(const struct measure *m, const void *data, size_t bytes);
/* The same for a fresh buffer of `bytes`, on large pages where the system has them. 0: no memory. */
double roof_read_fresh(const struct measure *m, size_t bytes);

/* The highest rate of a multiply-add in registers at the level, on all threads. */
enum roof_kind { ROOF_INT8, ROOF_FLOAT };
struct roof roof_multiply(const struct measure *m, enum roof_kind kind);

/* One measured kernel. What is 0 is left out. */
struct measure_result {
    const char *kernel, *shape;
    uint32_t rows;
    double seconds;
    double macs;      /* in these seconds ... */
    struct roof peak; /* ... and what the machine could do */
    double bytes;     /* read in these seconds ... */
    double read;      /* ... and the GB/s at which it reads */
    double tokens;
};
/* Measures the peaks and prints the first line: CPU, level, threads, peaks. */
void measure_machine(struct measure *m);
void measure_print(const struct measure *m, const struct measure_result *r);

#endif
