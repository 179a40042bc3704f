/* Whole models on the real backend against the stored answers, and against themselves: alone or together, whole or in
 * chunks, prompt or continuation, one thread or two, any instruction-set level: the same bits.
 *
 * usage: test_vectors [FOLDER ...]    without: all */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "expected.h"
#include "interpret.h"
#include "machine.h"
#include "models.h"

/* ---- Against the stored answers ---- */

enum { EARLY = 7, ROWS_MAX = EARLY * MACHINE_ROWS };

struct score {
    struct distance logits, logprob;
    double rows[ROWS_MAX]; /* distance of a position's logits from the rounding interpreter's */
    uint32_t n_rows;
    uint32_t argmax_right, argmax_wrong, greedy_right, greedy_all;
};

static double logprob(const float *x, uint32_t vocab, int32_t id) {
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < vocab; i++) max = fmax(max, (double)x[i]);
    for (uint32_t i = 0; i < vocab; i++) sum += exp((double)x[i] - max);
    return (double)x[id] - max - log(sum);
}

static int32_t argmax(const float *x, uint32_t vocab) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (x[i] > x[best]) best = i;
    return (int32_t)best;
}

static void check_prompt(const struct machine *m, const struct expected *e, uint32_t row, struct score *s) {
    const struct expected_prompt *p = &e->prompts[row];
    for (uint32_t i = 0; i < p->n_logits; i++)
        for (uint32_t v = 0; v < e->vocab; v++)
            distance_add(&s->logits, (double)machine_logits(m, row, p->n - p->n_logits + i)[v],
                         (double)p->logits[i * e->vocab + v]);
    for (uint32_t t = 0; t < p->n; t++) {
        const float *x = machine_logits(m, row, t);
        if (t + 1 < p->n) distance_add(&s->logprob, logprob(x, e->vocab, p->ids[t + 1]), (double)p->next_logprob[t]);
        int right = argmax(x, e->vocab) == p->argmax[t];
        s->argmax_right += (uint32_t)right;
        s->argmax_wrong += !right;
        if (!right && (double)p->gap[t] > 2 * e->loose_max)
            fail_msg("prompt %u position %u: argmax %d, not %d, at a gap of %g", row, t, argmax(x, e->vocab),
                     p->argmax[t], (double)p->gap[t]);
    }
}

/* Against the interpreter that rounds where the backend does. Both round a value in the same direction unless it lies
 * within their noise of a tie; where one does, that position and all behind it may differ by a narrow number's step. So
 * the first positions are looked at, and what counts is what most of them say. */
static void check_rounded(const struct machine *m, const struct expected *e, uint32_t row, struct score *s) {
    const struct expected_prompt *p = &e->prompts[row];
    uint32_t n = p->n < EARLY ? p->n : EARLY;
    double *logits = malloc((size_t)n * e->vocab * sizeof *logits);
    assert_non_null(logits);
    interpret(m->program, INTERPRET_ROUNDED, p->ids, n, logits, NULL, NULL);
    for (uint32_t t = 0; t < n; t++) {
        struct distance d = {0};
        for (uint32_t v = 0; v < e->vocab; v++)
            distance_add(&d, (double)machine_logits(m, row, t)[v], logits[(size_t)t * e->vocab + v]);
        s->rows[s->n_rows++] = d.max;
    }
    free(logits);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Half-precision state has a step of 2^-11, so that some of the float models' positions see one; where activations have
 * 8 bits most values are far from a tie, and the middle is float's own noise. */
static double middle_max(const struct expected *e) { return e->loose_max < 0.5 ? 2e-3 : 1e-4; }

static double median(struct score *s) {
    qsort(s->rows, s->n_rows, sizeof s->rows[0], compare);
    return s->rows[s->n_rows / 2];
}

/* Continuations have to agree until a step whose gap is too small to mean anything. */
static void check_greedy(const int32_t *ids, const struct expected *e, uint32_t row, struct score *s) {
    const struct expected_prompt *p = &e->prompts[row];
    s->greedy_all += p->n_greedy;
    for (uint32_t i = 0; i < p->n_greedy; i++) {
        if (ids[i] == p->greedy[i]) {
            s->greedy_right++;
            continue;
        }
        if ((double)p->greedy_gap[i] > 2 * e->loose_max)
            fail_msg("prompt %u step %u: %d, not %d, at a gap of %g", row, i, ids[i], p->greedy[i],
                     (double)p->greedy_gap[i]);
        return;
    }
}

/* ---- Against itself ---- */

/* What one way of running gave, kept to be compared with another. */
struct outputs {
    float *logits;
    size_t n;
};

static struct outputs keep(const struct machine *m) {
    struct outputs o = {.n = (size_t)MACHINE_ROWS * MACHINE_TOKENS * m->program->vocab};
    o.logits = malloc(o.n * sizeof *o.logits);
    assert_non_null(o.logits);
    memcpy(o.logits, m->logits, o.n * sizeof *o.logits);
    return o;
}

static void same_bits(const struct machine *m, const struct outputs *o, const char *what) {
    for (size_t i = 0; i < o->n; i++) {
        if (memcmp(&m->logits[i], &o->logits[i], sizeof(float)) == 0) continue;
        size_t at = i / m->program->vocab;
        fail_msg("%s: row %zu position %zu logit %zu is %.9g, not %.9g", what, at / MACHINE_TOKENS, at % MACHINE_TOKENS,
                 i % m->program->vocab, (double)m->logits[i], (double)o->logits[i]);
    }
}

/* Each sequence by itself, in chunks of `chunk` tokens (0: whole). */
static void run_alone(struct machine *m, const struct expected *e, const int32_t *const ids[], const uint32_t n[],
                      uint32_t chunk) {
    machine_reset(m);
    for (uint32_t row = 0; row < e->n_prompts; row++) {
        uint32_t step = chunk ? chunk : n[row];
        for (uint32_t at = 0; at < n[row]; at += step) {
            struct piece piece = {row, at, n[row] - at < step ? n[row] - at : step, ids[row] + at};
            machine_step(m, &piece, 1);
        }
    }
}

/* All together, every row in chunks of a size of its own. */
static void run_together(struct machine *m, const struct expected *e, const int32_t *const ids[], const uint32_t n[]) {
    uint32_t done[MACHINE_ROWS] = {0};
    machine_reset(m);
    for (;;) {
        struct piece pieces[MACHINE_ROWS];
        uint32_t k = 0;
        for (uint32_t row = 0; row < e->n_prompts; row++) {
            uint32_t left = n[row] - done[row], size = 1 + (row * 7 + done[row] * 3) % 37;
            if (!left) continue;
            pieces[k] = (struct piece){row, done[row], left < size ? left : size, ids[row] + done[row]};
            done[row] += pieces[k++].n;
        }
        if (!k) return;
        machine_step(m, pieces, k);
    }
}

/* Continues all rows together by argmax, from the state that a run left; the ids into out[row]. */
static void run_greedy(struct machine *m, const struct expected *e, int32_t out[][EXPECTED_GREEDY_MAX]) {
    uint32_t steps = e->prompts[0].n_greedy;
    for (uint32_t step = 0; step < steps; step++) {
        struct piece pieces[MACHINE_ROWS];
        for (uint32_t row = 0; row < e->n_prompts; row++) {
            out[row][step] = m->slots[row];
            pieces[row] = (struct piece){row, e->prompts[row].n + step, 1, NULL};
        }
        machine_step(m, pieces, e->n_prompts);
    }
}

static const int threads_tried[] = {1, 3, 4};

/* Every level this machine has and other numbers of threads, on the same sequences. */
static void check_levels(const struct program *program, const struct expected *e, const int32_t *const ids[],
                         const uint32_t n[], const struct outputs *best) {
    const char *level;
    for (unsigned i = 0; (level = kernels_level(i)); i++) {
        if (!kernels_available(level)) continue;
        struct machine m;
        machine_open(&m, program, level, threads_tried[i % 3]);
        run_together(&m, e, ids, n);
        same_bits(&m, best, level);
        machine_close(&m);
    }
}

/* ---- One folder ---- */

static void check_folder(const struct expected *e, const struct program *program, const char *folder) {
    struct machine m;
    struct score s = {0};
    machine_open(&m, program, NULL, 2);
    const int32_t *ids[MACHINE_ROWS];
    uint32_t n[MACHINE_ROWS];
    for (uint32_t row = 0; row < e->n_prompts; row++) {
        ids[row] = e->prompts[row].ids;
        n[row] = e->prompts[row].n;
    }
    run_alone(&m, e, ids, n, 0);
    for (uint32_t row = 0; row < e->n_prompts; row++) {
        check_prompt(&m, e, row, &s);
        check_rounded(&m, e, row, &s);
    }
    struct outputs whole = keep(&m);
    static const uint32_t chunks[] = {1, 3, 16, 64};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        run_alone(&m, e, ids, n, chunks[i]);
        same_bits(&m, &whole, "in chunks");
    }
    run_together(&m, e, ids, n);
    same_bits(&m, &whole, "together");
    check_levels(program, e, ids, n, &whole);
    free(whole.logits);

    int32_t greedy[MACHINE_ROWS][EXPECTED_GREEDY_MAX], all[MACHINE_ROWS][MACHINE_TOKENS];
    run_greedy(&m, e, greedy);
    struct outputs continued = keep(&m);
    for (uint32_t row = 0; row < e->n_prompts; row++) {
        check_greedy(greedy[row], e, row, &s);
        memcpy(all[row], ids[row], n[row] * sizeof all[row][0]);
        memcpy(all[row] + n[row], greedy[row], e->prompts[row].n_greedy * sizeof all[row][0]);
        ids[row] = all[row];
        n[row] += e->prompts[row].n_greedy;
    }
    run_alone(&m, e, ids, n, 0);
    same_bits(&m, &continued, "as a prompt what was continued");
    free(continued.logits);
    machine_close(&m);

    double middle = median(&s);
    char remark[128];
    snprintf(remark, sizeof remark, "interpreter %.1e  argmax %u of %u  greedy %u of %u", middle, s.argmax_right,
             s.argmax_right + s.argmax_wrong, s.greedy_right, s.greedy_all);
    vectors_report(folder, s.logits.max, distance_rms(&s.logits), remark);
    assert_true(middle <= middle_max(e));
    assert_true(s.logits.max <= e->loose_max);
    assert_true(distance_rms(&s.logits) <= e->loose_rms);
    assert_true(s.logprob.max <= 2 * e->loose_max);
}

static void test_folder(void **state) {
    const char *folder = *state;
    if (!expected_root()) skip();
    struct expected e;
    struct opened o;
    expected_load(&e, folder);
    vectors_open(&o, folder);
    check_folder(&e, model_program(o.model), folder);
    vectors_close(&o);
    expected_free(&e);
}

static int wanted(const char *folder, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], folder) == 0) return 1;
    return argc == 1;
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[64];
    size_t n = 0;
    for (const char *const *folder = vectors_folders; *folder; folder++)
        if (wanted(*folder, argc, argv))
            tests[n++] =
                (struct CMUnitTest){.name = *folder, .test_func = test_folder, .initial_state = (void *)*folder};
    if (n < (size_t)argc - 1) {
        fprintf(stderr, "test_vectors: no such folder among the vectors'\n");
        return 2;
    }
    return _cmocka_run_group_tests("vectors", tests, n, NULL, NULL);
}
