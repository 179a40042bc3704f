/* What the scheduler costs per iteration: sched_plan and sched_commit together, with two plans in flight, a full line
 * of 10,000 behind the rows, and rows that end and are replaced all the time. One JSON line per number of rows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/rng.h"
#include "sched/sched.h"

enum { ITERATIONS = 20000, QUEUE = 10000, LIFE = 200 /* tokens that a row makes at most */ };

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench_sched: %s failed\n", what);
    exit(1);
}

/* `life`, by row index: the tokens after which the engine ends the row, at most its budget. */
static void fill_line(struct sched *s, uint32_t *life, uint64_t *drawn) {
    sched_row row;
    while (sched_reserve(s, &row) == 0) {
        uint64_t n = (*drawn)++;
        struct sched_request q = {.prompt_n = 1 + (uint32_t)(rng_u64(1, 0, n) % 300), .max_new = LIFE};
        life[sched_row_index(row)] = 1 + (uint32_t)(rng_u64(1, 1, n) % LIFE);
        must(sched_submit(s, row, &q, NULL) == 0, "submit");
    }
}

/* Ends the rows whose last token this plan has made. */
static void finish_read(struct sched *s, const struct plan *p, const uint32_t *life) {
    for (uint32_t i = 0; i < p->n_items; i++)
        if (p->items[i].samples && p->items[i].sample_index + 1 >= life[sched_row_index(p->items[i].row)])
            sched_finish(s, p->items[i].row, 1);
}

static void measure(uint32_t rows) {
    struct sched_config c = {.rows_max = rows,
                             .queue_max = QUEUE,
                             .batch_tokens = 256 > rows + 256 ? 256 : rows + 256,
                             .context_max = 4096,
                             .groups = 2,
                             .group = {{0}, {512}}};
    must(pages_new(&c.pages, 2, (const uint32_t[]){rows * 20, rows * 40}, NULL) == 0, "pages_new");
    struct sched *s;
    must(sched_new(&c, &s, NULL) == 0, "sched_new");
    uint64_t *ns = malloc(ITERATIONS * sizeof *ns), drawn = 0, sum = 0, tokens = 0;
    uint32_t *life = calloc(sched_rows_total(s), sizeof *life);
    must(ns != NULL && life != NULL, "malloc");

    const struct plan *flying, *next;
    sched_row gone;
    fill_line(s, life, &drawn);
    must(sched_plan(s, &flying), "plan");
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        uint64_t start = now_ns();
        must(sched_plan(s, &next), "plan");
        uint64_t planned = now_ns();
        finish_read(s, flying, life);
        uint64_t read = now_ns();
        sched_commit(s, flying, 0);
        ns[i] = now_ns() - read + planned - start;
        sum += ns[i];
        tokens += next->n_tokens;
        while (sched_pop_gone(s, &gone)) continue;
        while (sched_pop_admitted(s, &gone)) continue;
        fill_line(s, life, &drawn);
        flying = next;
    }
    qsort(ns, ITERATIONS, sizeof *ns, ascending);
    printf("{\"test\":\"sched\",\"rows\":%u,\"queued\":%d,\"iterations\":%d,\"tokens_per_iteration\":%.1f,\"mean_us\":%"
           ".2f,"
           "\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f}\n",
           rows, QUEUE, ITERATIONS, (double)tokens / ITERATIONS, (double)sum / ITERATIONS / 1e3,
           (double)ns[ITERATIONS / 2] / 1e3, (double)ns[ITERATIONS * 99 / 100] / 1e3, (double)ns[ITERATIONS - 1] / 1e3);
    free(ns);
    free(life);
    sched_free(s);
    pages_free(c.pages);
}

int main(void) {
    static const uint32_t rows[] = {10, 30, 100, 300, 1000, 3000};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) measure(rows[i]);
    return 0;
}
