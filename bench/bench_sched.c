/* What the scheduler costs per iteration: sched_plan and sched_commit together, with two plans in flight, a full line
 * of 10,000 behind the rows, and rows that end and are replaced all the time. Without a prefix store and with one, in
 * which every row puts what it was fed, and which is always full: prompts share their first 64 tokens, and what follows
 * is each one's own. One JSON line per number of rows and kind. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "measure.h"
#include "sched/sched.h"

enum { ITERATIONS = 20000, QUEUE = 10000, LIFE = 200 /* tokens that a row makes at most */, CONTEXT = 4096 };
enum { PROMPT = 300, COMMON = 64 };

/* What the engine knows of a row, by its index. */
struct known {
    uint32_t life; /* the tokens after which it ends the row, at most its budget */
    uint32_t n;    /* tokens that are read */
    int32_t tokens[PROMPT + LIFE];
};

static const int32_t *tokens_of(void *user, sched_row row, uint32_t *n) {
    const struct known *k = (const struct known *)user + sched_row_index(row);
    *n = k->n;
    return k->tokens;
}

static void fill_line(struct sched *s, struct known *known, uint64_t space, uint64_t *drawn) {
    sched_row row;
    while (sched_reserve(s, &row) == 0) {
        uint64_t n = (*drawn)++;
        struct sched_request q = {
            .prompt_n = 1 + (uint32_t)(rng_u64(1, 0, n) % PROMPT), .max_new = LIFE, .space = space};
        struct known *k = &known[sched_row_index(row)];
        k->life = 1 + (uint32_t)(rng_u64(1, 1, n) % LIFE);
        k->n = q.prompt_n;
        for (uint32_t i = 0; space != 0 && i < PROMPT + LIFE; i++)
            k->tokens[i] = i < COMMON ? (int32_t)i : (int32_t)(n * (PROMPT + LIFE) + i);
        measure_must(sched_submit(s, row, &q, NULL) == 0, "submit failed");
    }
}

/* Reads what this plan has made, and ends the rows that have made their last token. */
static void read_plan(struct sched *s, const struct plan *p, struct known *known) {
    for (uint32_t i = 0; i < p->n_items; i++) {
        struct known *k = &known[sched_row_index(p->items[i].row)];
        if (!p->items[i].samples) continue;
        k->n++;
        if (p->items[i].sample_index + 1 >= k->life) sched_finish(s, p->items[i].row, 1);
    }
}

static struct prefix *store_new(const struct sched_config *c) {
    struct prefix *store;
    struct prefix_config config = {
        .pages = c->pages, .groups = 2, .group = {{0}, c->group[1]}, .blocks_max = pages_total(c->pages, 0) * 2};
    measure_must(prefix_new(&config, &store, NULL) == 0, "prefix_new failed");
    return store;
}

static void measure(uint32_t rows, int stores) {
    struct sched_config c = {.rows_max = rows,
                             .queue_max = QUEUE,
                             .batch_tokens = 256 > rows + 256 ? 256 : rows + 256,
                             .context_max = CONTEXT,
                             .groups = 2,
                             .group = {{.window = 0}, {.window = 512}}};
    measure_must(pages_new(&c.pages, 2, (const uint32_t[]){rows * 20, rows * 40}, NULL) == 0, "pages_new failed");
    struct known *known = calloc(rows * (1 + SCHED_IN_FLIGHT) + QUEUE, sizeof *known);
    uint64_t *ns = malloc(ITERATIONS * sizeof *ns), drawn = 0, sum = 0, tokens = 0, space = (uint64_t)stores;
    measure_must(ns != NULL && known != NULL, "malloc failed");
    c.prefix = stores ? store_new(&c) : NULL;
    c.tokens = tokens_of;
    c.user = known;
    struct sched *s;
    measure_must(sched_new(&c, &s, NULL) == 0, "sched_new failed");
    struct sched_copy copy;

    const struct plan *flying, *next;
    sched_row gone;
    fill_line(s, known, space, &drawn);
    measure_must(sched_plan(s, &flying), "plan failed");
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        uint64_t start = measure_ns(CLOCK_MONOTONIC);
        measure_must(sched_plan(s, &next), "plan failed");
        uint64_t planned = measure_ns(CLOCK_MONOTONIC);
        while (sched_pop_copy(s, &copy)) continue;
        read_plan(s, flying, known);
        uint64_t read = measure_ns(CLOCK_MONOTONIC);
        sched_commit(s, flying, 0);
        ns[i] = measure_ns(CLOCK_MONOTONIC) - read + planned - start;
        sum += ns[i];
        tokens += next->n_tokens;
        while (sched_pop_gone(s, &gone)) continue;
        while (sched_pop_admitted(s, &gone)) continue;
        fill_line(s, known, space, &drawn);
        flying = next;
    }
    qsort(ns, ITERATIONS, sizeof *ns, measure_ascending);
    printf("{\"test\":\"sched\",\"store\":%d,\"rows\":%u,\"queued\":%d,\"iterations\":%d,\"tokens_per_iteration\":%.1f,"
           "\"mean_us\":%"
           ".2f,"
           "\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f}\n",
           stores, rows, QUEUE, ITERATIONS, (double)tokens / ITERATIONS, (double)sum / ITERATIONS / 1e3,
           (double)ns[ITERATIONS / 2] / 1e3, (double)ns[ITERATIONS * 99 / 100] / 1e3, (double)ns[ITERATIONS - 1] / 1e3);
    free(ns);
    free(known);
    sched_free(s);
    prefix_free(c.prefix);
    pages_free(c.pages);
}

int main(void) {
    static const uint32_t rows[] = {10, 30, 100, 300, 1000, 3000};
    for (int stores = 0; stores < 2; stores++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) measure(rows[i], stores);
    return 0;
}
