/* The programs that `model` emits, run by the naive interpreter, against the stored answers at float32's tolerance: so
 * that a wrong key, norm, frequency or scale shows whatever the backend does. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "expected.h"
#include "interpret.h"
#include "models.h"

/* ---- Logits ---- */

static void check_prompt(const struct program *p, const struct expected *e, const struct expected_prompt *prompt,
                         struct distance *d) {
    uint32_t vocab = p->vocab;
    double *logits = calloc((size_t)prompt->n * vocab, sizeof *logits);
    interpret(p, INTERPRET_EXACT, prompt->ids, prompt->n, logits, NULL, NULL);
    for (uint32_t row = 0; row < prompt->n_logits; row++)
        for (uint32_t i = 0; i < vocab; i++)
            distance_add(d, logits[(prompt->n - prompt->n_logits + row) * vocab + i],
                         (double)prompt->logits[row * vocab + i]);
    for (uint32_t t = 0; t < prompt->n; t++) {
        if ((double)prompt->gap[t] <= 2 * e->strict_max) continue;
        const double *x = logits + (size_t)t * vocab;
        uint32_t best = 0;
        for (uint32_t i = 1; i < vocab; i++)
            if (x[i] > x[best]) best = i;
        assert_int_equal(best, prompt->argmax[t]);
    }
    free(logits);
}

/* ---- Residual stream ---- */

struct trace {
    const struct program *p;
    const struct expected *e;
    uint32_t row, adds;
    struct distance d;
};

/* The stored rows are the embedding, the stream after each layer (which adds to it twice) and the final norm. */
static void see(void *user, uint32_t op, const double *rows, size_t stride) {
    struct trace *t = user;
    enum op_kind kind = t->p->ops[op].kind;
    t->adds += kind == OP_ADD;
    int after_layer = kind == OP_ADD && t->adds % 2 == 0;
    if (kind != OP_EMBED && kind != OP_LOGITS && !after_layer) return;
    const struct expected *e = t->e;
    assert_in_range(t->row, 0, e->trace_rows - 1);
    const float *want = e->trace + (size_t)t->row++ * e->trace_n * e->trace_width;
    double scale = 0;
    struct distance here = {0};
    for (uint32_t n = 0; n < e->trace_n; n++)
        for (uint32_t i = 0; i < e->trace_width; i++) {
            double w = (double)want[n * e->trace_width + i];
            scale = fmax(scale, fabs(w));
            distance_add(&here, rows[n * stride + i], w);
            distance_add(&t->d, rows[n * stride + i], w);
        }
    if (!(here.max <= 1e-5 * scale + 1e-5)) fail_msg("trace row %u is off by %g of %g", t->row - 1, here.max, scale);
}

static void check_trace(const struct program *p, const struct expected *e) {
    if (!e->trace_rows) return;
    struct trace t = {.p = p, .e = e};
    double *logits = calloc((size_t)e->trace_n * p->vocab, sizeof *logits);
    interpret(p, INTERPRET_EXACT, e->trace_ids, e->trace_n, logits, see, &t);
    assert_int_equal(t.row, e->trace_rows);
    free(logits);
}

static void test_folder(void **state) {
    const char *folder = *state;
    if (!expected_root()) skip();
    struct expected e;
    struct opened o;
    expected_load(&e, folder);
    vectors_open(&o, folder);
    const struct program *p = model_program(o.model);
    assert_int_equal(p->vocab, e.vocab);
    check_trace(p, &e);
    struct distance d = {0};
    for (uint32_t i = 0; i < e.n_prompts; i++) check_prompt(p, &e, &e.prompts[i], &d);
    vectors_report(folder, d.max, distance_rms(&d), "(interpreter, unrounded state)");
    assert_true(d.max <= e.strict_max);
    assert_true(distance_rms(&d) <= e.strict_rms);
    vectors_close(&o);
    expected_free(&e);
}

int main(void) {
    struct CMUnitTest tests[64];
    size_t n = 0;
    for (; vectors_folders[n]; n++)
        tests[n] = (struct CMUnitTest){
            .name = vectors_folders[n], .test_func = test_folder, .initial_state = (void *)vectors_folders[n]};
    return _cmocka_run_group_tests("programs", tests, n, NULL, NULL);
}
