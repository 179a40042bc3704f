/* The sampler against a naive one (whole sort, everything in the order that docs/NUMERICS.md states), against known
 * distributions, and at its edges. Built twice: with plain vector operations, and with the backend's. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/rng.h"
#include "sample/sample.h"
#include "vecops_naive.h"

enum { ROW_MAX = 20000 };

static float row[ROW_MAX], work[ROW_MAX], peaks[ROW_MAX / LOGITS_SPAN + 1], scratch[ROW_MAX];
static const struct vecops *ops;

static struct sample_params params(float temperature, int32_t top_k, float top_p, float min_p) {
    cohort_sampling s;
    sample_defaults(&s);
    s.temperature = temperature;
    s.top_k = top_k;
    s.top_p = top_p;
    s.min_p = min_p;
    return sample_params_make(&s, 7, -1, 0);
}

static struct logits logits_of(uint32_t n) {
    logits_peaks(ops, row, n, 0, logits_spans(n), peaks);
    return (struct logits){row, n, peaks};
}

static struct sample_result draw(const struct sample_params *p, uint64_t position, uint32_t n) {
    struct sample_result r;
    struct logits l = logits_of(n);
    sample_draw(ops, p, position, NULL, &l, scratch, &r);
    return r;
}

static double uniform(uint64_t *state) { return rng_unit(99, 1, (*state)++); }

/* Rows of several characters: peaked, flat, full of ties, with minus infinities, of huge range. */
static void fill_row(uint32_t n, int kind, uint64_t *state) {
    for (uint32_t i = 0; i < n; i++) {
        double u = uniform(state);
        switch (kind) {
        case 0:
            row[i] = (float)(-log(u + 1e-12) * 3);
            break;
        case 1:
            row[i] = (float)u;
            break;
        case 2:
            row[i] = (float)((int)(u * 6) - 3);
            break;
        case 3:
            row[i] = u < 0.5 ? -INFINITY : (float)(u * 20);
            break;
        case 4:
            row[i] = (float)((u - 0.5) * 6e38);
            break;
        default:
            row[i] = u < 0.5 ? 0.0f : -0.0f;
        }
    }
    if (kind == 3) row[n - 1] = 1.0f;
}

/* What the sampler counts on: a value's weight is the same alone and in its row, and the whole row's sum is that of its
 * weights. */
static void weights_are_the_same_alone_and_in_a_row(void **state) {
    uint64_t random = 11;
    static const float scales[] = {1, 0.3f, 7};
    for (int kind = 0; kind < 6; kind++) {
        fill_row(ROW_MAX, kind, &random);
        for (int s = 0; s < 3; s++) {
            float max = ops->peak(row, ROW_MAX), alone;
            ops->exp_shifted(work, row, ROW_MAX, max, scales[s]);
            for (uint32_t i = 0; i < ROW_MAX; i++) {
                ops->exp_shifted(&alone, &row[i], 1, max, scales[s]);
                assert_memory_equal(&alone, &work[i], sizeof(float));
                assert_true(alone >= 0 && alone <= 1);
                if (isinf(row[i])) assert_true(alone == 0);
            }
            assert_true(ops->sum(work, ROW_MAX) == ops->sum_exp(row, ROW_MAX, max, scales[s]));
        }
    }
}

/* ---- the naive sampler ---- */
static int by_value(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (row[i] != row[j]) return row[i] > row[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

static uint32_t sorted[ROW_MAX];

static double exp1(float x, float max, float scale) {
    float w;
    ops->exp_shifted(&w, &x, 1, max, scale);
    return w;
}

static int32_t naive_draw(const struct sample_params *params, uint64_t position, uint32_t n) {
    const cohort_sampling *p = &params->asked;
    for (uint32_t i = 0; i < n; i++) sorted[i] = i;
    qsort(sorted, n, sizeof(sorted[0]), by_value);
    float max = row[sorted[0]];
    if (p->temperature == 0) return (int32_t)sorted[0];
    float scale = 1.0f / p->temperature;
    if (isinf(scale)) return (int32_t)sorted[0];
    uint32_t kept = p->top_k > 0 && (uint32_t)p->top_k < n ? (uint32_t)p->top_k : n;
    int plain = kept == n && p->top_p == 1 && p->min_p == 0;
    if (p->top_p < 1) {
        double all = 0, sum = 0;
        if (kept == n)
            all = ops->sum_exp(row, n, max, 1);
        else
            for (uint32_t i = 0; i < kept; i++) all += exp1(row[sorted[i]], max, 1);
        for (uint32_t i = 0; i < kept; i++) {
            sum += exp1(row[sorted[i]], max, 1);
            if (sum >= (double)p->top_p * all) kept = i + 1;
        }
    }
    if (p->min_p > 0) {
        float floor = (float)((double)max + fmath_log(p->min_p));
        while (row[sorted[kept - 1]] < floor) kept--;
    }
    double all = 0, sum = 0;
    if (plain)
        all = ops->sum_exp(row, n, max, scale);
    else
        for (uint32_t i = 0; i < kept; i++) all += exp1(row[sorted[i]], max, scale);
    double target = rng_unit(params->seed, params->stream, position) * all;
    int32_t last = 0;
    for (uint32_t i = 0; i < kept; i++) {
        double w = exp1(row[sorted[i]], max, scale);
        if (w == 0) break;
        last = (int32_t)sorted[i];
        sum += w;
        if (sum > target) break;
    }
    return last;
}

static void equals_the_naive_sampler(void **state) {
    static const uint32_t sizes[] = {1, 2, 3, 17, 255, 4097, ROW_MAX};
    static const int32_t ks[] = {0, 1, 2, 40, 5000, 1 << 30};
    static const float ts[] = {0, 1e-45f, 0.01f, 0.7f, 1, 1.7f, 100};
    static const float ps[] = {1, 0, 0.1f, 0.5f, 0.95f, 0.9999999f};
    static const float ms[] = {0, 0, 1e-30f, 0.05f, 0.9f, 1};
    uint64_t random = 0;
    for (unsigned round = 0; round < 1400; round++) {
        uint32_t n = sizes[round % 7];
        fill_row(n, (int)(round / 7 % 6), &random);
        struct sample_params p = params(ts[(int)(uniform(&random) * 7)], ks[(int)(uniform(&random) * 6)],
                                        ps[(int)(uniform(&random) * 6)], ms[(int)(uniform(&random) * 6)]);
        p.seed = round;
        p.stream = round % 3;
        for (uint64_t position = 0; position < 4; position++) {
            int32_t want = naive_draw(&p, position, n), got = draw(&p, position, n).token;
            if (got != want)
                fail_msg("n %u kind %u t %g k %d p %g m %g: %d instead of %d", n, round / 7 % 6,
                         (double)p.asked.temperature, p.asked.top_k, (double)p.asked.top_p, (double)p.asked.min_p, got,
                         want);
        }
    }
}

/* ---- distributions ---- */
static void set_probabilities(const double *p, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) row[i] = (float)log(p[i]);
}

/* Draws many times and compares the counts with the expected probabilities: Pearson's statistic per degree of freedom
 * stays far below 6 unless something is wrong. */
static void expect_distribution(const struct sample_params *p, uint32_t n, const double *want) {
    enum { DRAWS = 40000 };
    uint32_t counts[16] = {0};
    double statistic = 0;
    unsigned possible = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t token = draw(p, i, n).token;
        assert_in_range(token, 0, n - 1);
        counts[token]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        double expected = want[i] * DRAWS;
        if (expected == 0) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
        possible++;
    }
    if (possible > 1) assert_true(statistic / (possible - 1) < 6);
}

static void draws_follow_the_distribution(void **state) {
    static const double p[5] = {0.1, 0.4, 0.05, 0.25, 0.2};
    set_probabilities(p, 5);
    struct sample_params plain = params(1, 0, 1, 0);
    expect_distribution(&plain, 5, p);
    struct sample_params k2 = params(1, 2, 1, 0);
    expect_distribution(&k2, 5, (double[]){0, 0.4 / 0.65, 0, 0.25 / 0.65, 0});
    struct sample_params p80 = params(1, 0, 0.8f, 0); /* 0.4 + 0.25 + 0.2 reaches it */
    expect_distribution(&p80, 5, (double[]){0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85});
    struct sample_params k3p60 = params(1, 3, 0.6f, 0); /* 0.4 + 0.25 of 0.85 */
    expect_distribution(&k3p60, 5, (double[]){0, 0.4 / 0.65, 0, 0.25 / 0.65, 0});
    struct sample_params m45 = params(1, 0, 1, 0.45f); /* at least 0.18 */
    expect_distribution(&m45, 5, (double[]){0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85});
    double hot[5], sum = 0;
    for (int i = 0; i < 5; i++) sum += sqrt(p[i]);
    for (int i = 0; i < 5; i++) hot[i] = sqrt(p[i]) / sum;
    struct sample_params t2 = params(2, 0, 1, 0);
    expect_distribution(&t2, 5, hot);
    /* The filters look at temperature 1, so that a hot request keeps the same candidates. */
    struct sample_params t2p80 = params(2, 0, 0.8f, 0);
    sum = sqrt(0.4) + sqrt(0.25) + sqrt(0.2);
    expect_distribution(&t2p80, 5, (double[]){0, sqrt(0.4) / sum, 0, sqrt(0.25) / sum, sqrt(0.2) / sum});
}

static void d3_streams_and_seeds_are_apart(void **state) {
    for (uint32_t i = 0; i < 1000; i++) row[i] = 0;
    struct sample_params a = params(1, 0, 1, 0), b = a, c = a;
    b.stream = 1;
    c.seed++;
    int equal_b = 0, equal_c = 0;
    for (uint64_t position = 0; position < 200; position++) {
        int32_t first = draw(&a, position, 1000).token;
        assert_int_equal(first, draw(&a, position, 1000).token);
        equal_b += first == draw(&b, position, 1000).token;
        equal_c += first == draw(&c, position, 1000).token;
    }
    assert_true(equal_b < 8 && equal_c < 8);
}

/* ---- edges ---- */
static void d3_greedy_takes_the_lowest_of_equals(void **state) {
    struct sample_params p = params(0, 0, 1, 0);
    for (uint32_t i = 0; i < 100; i++) row[i] = i == 41 || i == 77 ? 5.0f : 1.0f;
    assert_int_equal(draw(&p, 0, 100).token, 41);
    p = params(1, 1, 1, 0);
    assert_int_equal(draw(&p, 3, 100).token, 41);
    p = params(1, 0, 0, 0);
    assert_int_equal(draw(&p, 4, 100).token, 41);
    p = params(1, 0, 1, 1); /* min_p 1 keeps both */
    int seen[2] = {0};
    for (uint64_t position = 0; position < 64; position++) {
        int32_t token = draw(&p, position, 100).token;
        assert_true(token == 41 || token == 77);
        seen[token == 77]++;
    }
    assert_true(seen[0] > 8 && seen[1] > 8);
}

static void no_finite_logits_is_no_token(void **state) {
    struct sample_params greedy = params(0, 0, 1, 0), hot = params(1, 40, 0.9f, 0.1f);
    greedy.logprobs = hot.logprobs = 5;
    static const float poison[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        for (uint32_t j = 0; j < 64; j++) row[j] = (float)j;
        row[20] = poison[i];
        assert_int_equal(draw(&greedy, 0, 64).token, -1);
        assert_int_equal(draw(&hot, 0, 64).token, -1);
        assert_int_equal(draw(&hot, 0, 64).top_n, 0);
        struct sample_result r;
        struct logits l = logits_of(64);
        sample_score(ops, &l, scratch, 3, 5, &r);
        assert_int_equal(r.token, -1);
        assert_true(isnan(r.logprob));
    }
    for (uint32_t j = 0; j < 64; j++) row[j] = -INFINITY;
    assert_int_equal(draw(&greedy, 0, 64).token, -1);
    assert_int_equal(draw(&hot, 0, 64).token, -1);
    row[9] = -FLT_MAX;
    assert_int_equal(draw(&greedy, 0, 64).token, 9);
    assert_int_equal(draw(&hot, 0, 64).token, 9);
}

static void d4_logprobs_are_those_of_the_whole_row(void **state) {
    uint64_t random = 5;
    fill_row(5000, 0, &random);
    row[100] = row[4000] = 60; /* the best, twice */
    row[7] = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < 5000; i++) sum += exp((double)row[i] - 60);
    struct sample_params p = params(3, 100, 0.7f, 0.01f);
    p.logprobs = COHORT_TOP_LOGPROBS_MAX;
    struct sample_result r = draw(&p, 1, 5000);
    assert_true(fabs((double)r.logprob - ((double)row[r.token] - 60 - log(sum))) < 1e-5);
    assert_int_equal(r.top_n, COHORT_TOP_LOGPROBS_MAX);
    assert_int_equal(r.top[0].id, 100);
    assert_int_equal(r.top[1].id, 4000);
    for (uint32_t i = 0; i < r.top_n; i++) {
        double want = (double)row[r.top[i].id] - 60 - log(sum);
        assert_true(fabs((double)r.top[i].logprob - want) < 1e-5);
        if (i) assert_true(r.top[i - 1].logprob >= r.top[i].logprob);
    }
    struct sample_result score;
    struct logits l = logits_of(5000);
    sample_score(ops, &l, scratch, 7, 2, &score);
    assert_int_equal(score.token, 100);
    assert_true(isinf(score.logprob) && score.logprob < 0);
    assert_int_equal(score.top_n, 2);
    assert_int_equal(score.top[1].id, 4000);
    assert_memory_equal(&score.top[1].logprob, &r.top[1].logprob, sizeof(float));
    sample_score(ops, &l, scratch, -1, 0, &score);
    assert_true(isnan(score.logprob));
    assert_int_equal(score.top_n, 0);
    p.logprobs = 0;
    struct sample_result only = draw(&p, 1, 5000);
    assert_int_equal(only.token, r.token);
    assert_memory_equal(&only.logprob, &r.logprob, sizeof(float));
    assert_int_equal(only.top_n, 0);
}

static void short_rows_have_short_lists(void **state) {
    row[0] = 1;
    row[1] = -INFINITY;
    row[2] = 3;
    struct sample_params p = params(0, 0, 1, 0);
    p.logprobs = 3;
    struct sample_result r = draw(&p, 0, 3);
    assert_int_equal(r.top_n, 2); /* a token that cannot be is not listed */
    assert_int_equal(r.top[0].id, 2);
    assert_int_equal(r.top[1].id, 0);
}

static void ranges_are_checked_on_both_sides(void **state) {
    cohort_sampling good;
    cohort_error err;
    sample_defaults(&good);
    assert_int_equal(sample_check(&good, 20, 1000, &err), 0);
    assert_int_equal(sample_check(&good, -1, 1000, &err), 0);
#define GIVES(name, value, code)                                                                                       \
    do {                                                                                                               \
        cohort_sampling s = good;                                                                                      \
        s.name = (value);                                                                                              \
        assert_int_equal(sample_check(&s, -1, 1000, &err), code);                                                      \
        if (code) assert_string_equal(err.field, #name);                                                               \
    } while (0)
#define REFUSED(name, bad) GIVES(name, bad, COHORT_E_ARGUMENT)
#define RANGE(name, least, below, most, above)                                                                         \
    do {                                                                                                               \
        REFUSED(name, NAN);                                                                                            \
        REFUSED(name, -INFINITY);                                                                                      \
        REFUSED(name, INFINITY);                                                                                       \
        REFUSED(name, below);                                                                                          \
        REFUSED(name, above);                                                                                          \
        GIVES(name, least, 0);                                                                                         \
        GIVES(name, most, 0);                                                                                          \
    } while (0)
    RANGE(temperature, 0, -0.1f, 100, 100.5f);
    RANGE(temperature_range, 0, -0.1f, 100, 100.5f);
    RANGE(temperature_exponent, 0, -0.1f, 100, 100.5f);
    RANGE(top_p, 0, -0.1f, 1, 1.1f);
    RANGE(min_p, 0, -0.1f, 1, 1.1f);
    RANGE(typical_p, 0, -0.1f, 1, 1.1f);
    RANGE(top_n_sigma, 0, -0.1f, 1000, 1000.5f);
    RANGE(xtc_probability, 0, -0.1f, 1, 1.1f);
    RANGE(xtc_threshold, 0, -0.1f, 1, 1.1f);
    RANGE(repetition_penalty, 1e-6f, 0, 100, 100.5f);
    RANGE(frequency_penalty, -100, -100.5f, 100, 100.5f);
    RANGE(presence_penalty, -100, -100.5f, 100, 100.5f);
    RANGE(dry_multiplier, 0, -0.1f, 100, 100.5f);
    RANGE(dry_base, 1, 0.9f, 100, 100.5f);
    RANGE(mirostat_tau, 0, -0.1f, 100, 100.5f);
    RANGE(mirostat_eta, 0, -0.1f, 1, 1.1f);
    REFUSED(top_k, -1);
    REFUSED(dry_allowed_length, 0);
    REFUSED(mirostat, -1);
    REFUSED(mirostat, 3);
    REFUSED(repetition_window, -2);
    REFUSED(answer_window, -2);
    REFUSED(dry_window, COHORT_SAMPLER_WINDOW_MAX + 1);
    GIVES(dry_window, COHORT_SAMPLER_WINDOW_MAX, 0);
    static const int bad[] = {-2, 21, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sample_check(&good, bad[i], 1000, &err), COHORT_E_ARGUMENT);
        assert_string_equal(err.field, "logprobs");
    }
    assert_int_equal(sample_check(&good, 4, 3, &err), COHORT_E_ARGUMENT);
}

static void orders_name_each_sampler_once(void **state) {
    static const struct {
        uint32_t n;
        uint8_t order[COHORT_SAMPLERS];
        int code;
    } cases[] = {{0, {0}, 0},
                 {1, {COHORT_SAMPLER_TEMPERATURE}, 0},
                 {9, {9, 8, 7, 6, 5, 4, 3, 2, 1}, 0},
                 {2, {3, 3}, COHORT_E_ARGUMENT},
                 {1, {0}, COHORT_E_ARGUMENT},
                 {1, {10}, COHORT_E_ARGUMENT},
                 {1, {255}, COHORT_E_ARGUMENT},
                 {10, {1, 2, 3, 4, 5, 6, 7, 8, 9}, COHORT_E_ARGUMENT}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cohort_sampling s;
        cohort_error err = {0};
        sample_defaults(&s);
        memcpy(s.order, cases[i].order, sizeof(s.order));
        s.order_n = cases[i].n;
        assert_int_equal(sample_check(&s, -1, 100, &err), cases[i].code);
        if (cases[i].code) assert_string_equal(err.field, "order");
    }
}

#ifdef SAMPLE_TEST_BACKEND
static struct backend *backend;

static int open_ops(void **state) {
    const struct backend_options options = {.level = SAMPLE_TEST_BACKEND, .threads = 1};
    cohort_error err;
    if (backend_open(&options, &backend, &err) != 0) return -1;
    ops = backend_vecops(backend);
    return 0;
}

static int close_ops(void **state) {
    backend_close(backend);
    return 0;
}
#else
static int open_ops(void **state) {
    ops = &vecops_naive;
    return 0;
}

static int close_ops(void **state) { return 0; }
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_the_same_alone_and_in_a_row), cmocka_unit_test(equals_the_naive_sampler),
        cmocka_unit_test(draws_follow_the_distribution),           cmocka_unit_test(d3_streams_and_seeds_are_apart),
        cmocka_unit_test(d3_greedy_takes_the_lowest_of_equals),    cmocka_unit_test(no_finite_logits_is_no_token),
        cmocka_unit_test(d4_logprobs_are_those_of_the_whole_row),  cmocka_unit_test(short_rows_have_short_lists),
        cmocka_unit_test(ranges_are_checked_on_both_sides),        cmocka_unit_test(orders_name_each_sampler_once),
    };
    return cmocka_run_group_tests(tests, open_ops, close_ops);
}
