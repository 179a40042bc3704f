/* Every sampler, alone and together in any order and under masks, against a naive chain (samplers_naive.h) and against
 * values computed by hand; and what is said of the whole row, whatever becomes of it. Built twice: with plain vector
 * operations, and with the backend's. */
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
#include "base/mem.h"
#include "base/rng.h"
#include "sample/mask.h"
#include "sample/row.h"
#include "samplers_naive.h"
#include "tiny_vocab.h"
#include "vecops_naive.h"

enum { ROW_MAX = 6000, PAST_MAX = 80, ANSWER_MAX = 40 };

static float row[ROW_MAX], used_up[ROW_MAX], scratch[ROW_MAX + 1];
static float peaks[ROW_MAX / LOGITS_SPAN + 1];
static int32_t tokens[PAST_MAX + ANSWER_MAX];
static const struct vecops *ops;

static uint64_t dice;
static double uniform(void) { return rng_unit(4, 1, dice++); }
static uint32_t below(uint32_t n) { return (uint32_t)(uniform() * n); }
#define ONE_OF(...) ((const float[]){__VA_ARGS__}[below(sizeof((const float[]){__VA_ARGS__}) / sizeof(float))])

/* A request with its row, and `answer_n` tokens of `tokens` drawn behind its prompt. */
struct rig {
    cohort_request q;
    struct sample_params params;
    uint32_t vocab, answer_n;
    const int32_t *ends;
    uint32_t ends_n;
    const struct tokenizer *tokenizer;
    const uint8_t *rejected; /* by id; NULL: none */
};

static uint32_t narrow_draws;

static const struct mask *mask_of(const struct rig *r) {
    static uint32_t bits[ROW_MAX / 32 + 1];
    static struct mask mask = {.bits = bits};
    if (!r->rejected) return NULL;
    memset(bits, 0xff, sizeof(bits)); /* bits of no token are set, too */
    for (uint32_t i = 0; i < r->vocab; i++)
        if (r->rejected[i]) bits[i / 32] &= ~(1u << i % 32);
    mask.allowed = mask_count(bits, r->vocab);
    return &mask;
}

/* What a narrow draw must not look at is no number. Returns whether it is one. */
static int spoil(const struct rig *r, const struct mask *mask) {
    int narrow = sample_is_narrow(&r->params, mask, r->vocab);
    for (uint32_t i = 0; narrow && i < r->vocab; i++)
        if (!mask_allows(mask, i)) used_up[i] = NAN;
    for (uint32_t i = 0; narrow && i < logits_spans(r->vocab); i++) peaks[i] = NAN;
    return narrow;
}

static struct rig rig_of(uint32_t vocab, uint32_t prompt_n, uint32_t answer_n) {
    struct rig r = {.vocab = vocab, .answer_n = answer_n};
    sample_defaults(&r.q.sampling);
    r.q.prompt = tokens;
    r.q.prompt_n = prompt_n;
    r.q.logprobs = vocab < COHORT_TOP_LOGPROBS_MAX ? (int)vocab : COHORT_TOP_LOGPROBS_MAX;
    r.q.post_sampling = 1;
    r.q.sampling.seed = 3;
    return r;
}

static struct sample_result draw(struct rig *r, float state) {
    struct sample_result out;
    struct logits l = {used_up, r->vocab, peaks};
    cohort_error err = {0};
    assert_int_equal(sample_check(&r->q.sampling, r->q.logprobs, r->vocab, &err), 0);
    assert_int_equal(sample_check_lists(&r->q, r->vocab, &err), 0);
    r->params = sample_params_make(&r->q.sampling, r->q.sampling.seed, r->q.logprobs, r->q.post_sampling);
    assert_int_equal(sample_row_make(&r->params.row, &r->params, &r->q, r->answer_n + 1, r->vocab, r->ends, r->ends_n,
                                     r->tokenizer, &err),
                     0);
    for (uint32_t i = 0; i < r->answer_n; i++)
        sample_row_keep(r->params.row, r->q.prompt_n + i, tokens[r->q.prompt_n + i], state);
    logits_peaks(ops, row, r->vocab, 0, logits_spans(r->vocab), peaks);
    memcpy(used_up, row, r->vocab * sizeof(*row));
    scratch[r->vocab] = 4711;
    const struct mask *mask = mask_of(r);
    int narrow = spoil(r, mask);
    narrow_draws += (uint32_t)narrow;
    sample_draw(ops, &r->params, r->q.prompt_n + r->answer_n, mask, &l, scratch, &out);
    assert_true(scratch[r->vocab] == 4711);
    for (uint32_t i = 0; i < logits_spans(r->vocab) && !narrow;
         i++) { /* whatever the row became, its peaks are those */
        float peak;
        logits_peaks(ops, used_up + i * LOGITS_SPAN,
                     r->vocab - i * LOGITS_SPAN < LOGITS_SPAN ? r->vocab % LOGITS_SPAN : LOGITS_SPAN, 0, 1, &peak);
        assert_true(peak == peaks[i] || (isnan(peak) && isnan(peaks[i])));
    }
    sample_row_free(r->params.row);
    r->params.row = NULL;
    return out;
}

/* ---- Against the naive chain ---- */
static void fill_row(uint32_t n, uint32_t kind) {
    for (uint32_t i = 0; i < n; i++) {
        double u = uniform();
        row[i] = kind == 0   ? (float)(-log(u + 1e-12) * 3)
                 : kind == 1 ? (float)u
                 : kind == 2 ? (float)((int)(u * 6) - 3)
                 : kind == 3 ? (u < 0.5 ? -INFINITY : (float)(u * 20 - 12))
                 : kind == 4 ? (float)((u - 0.5) * 6e38)
                 : kind == 5 ? 1.5f
                             : (u < 0.5 ? 0.0f : -0.0f);
    }
    if (kind == 3) row[n - 1] = 1.0f;
}

static void shuffle_order(cohort_sampling *s) {
    for (uint32_t i = 0; i < COHORT_SAMPLERS; i++) s->order[i] = (uint8_t)(i + 1);
    for (uint32_t i = COHORT_SAMPLERS; i-- > 1;) {
        uint32_t j = below(i + 1);
        uint8_t swap = s->order[i];
        s->order[i] = s->order[j];
        s->order[j] = swap;
    }
    s->order_n = 1 + below(COHORT_SAMPLERS);
}

static void choose_sampling(cohort_sampling *s) {
    s->seed = dice;
    s->choice = below(3);
    s->temperature = ONE_OF(0, 1e-45f, 0.01f, 0.7f, 1, 1, 1.7f, 100);
    if (below(4) == 0) s->temperature_range = ONE_OF(0.5f, 2, 100);
    s->temperature_exponent = ONE_OF(0, 0.5f, 1, 3);
    if (below(3) == 0) s->top_k = (int32_t)ONE_OF(1, 2, 40, 3000, 1 << 30);
    if (below(3) == 0) s->top_p = ONE_OF(0, 0.1f, 0.5f, 0.95f, 0.9999999f);
    if (below(3) == 0) s->min_p = ONE_OF(1e-30f, 0.05f, 0.9f, 1);
    if (below(3) == 0) s->typical_p = ONE_OF(0, 0.1f, 0.5f, 0.95f, 0.9999999f);
    if (below(3) == 0) s->top_n_sigma = ONE_OF(0.1f, 1, 2.5f, 1000);
    if (below(3) == 0) s->xtc_probability = ONE_OF(0.3f, 1);
    s->xtc_threshold = ONE_OF(0, 1e-4f, 0.05f, 0.3f, 0.5f, 0.6f);
    if (below(4) == 0) s->min_keep = (uint32_t)ONE_OF(1, 2, 5, 100, 1 << 30);
    if (below(2) == 0) s->repetition_penalty = ONE_OF(0.01f, 0.8f, 1.3f, 100);
    s->repetition_window = (int32_t)ONE_OF(-1, -1, 0, 1, 20, 1000);
    if (below(3) == 0) s->frequency_penalty = ONE_OF(-2, 0.3f, 100);
    if (below(3) == 0) s->presence_penalty = ONE_OF(-1, 0.7f, 50);
    s->answer_window = (int32_t)ONE_OF(-1, -1, 0, 1, 10, 1000);
    if (below(2) == 0) s->dry_multiplier = ONE_OF(0.5f, 3, 100);
    s->dry_base = ONE_OF(1, 1.75f, 100);
    s->dry_allowed_length = (uint32_t)ONE_OF(1, 2, 4);
    s->dry_window = (int32_t)ONE_OF(-1, -1, 0, 1, 30, 1000);
    if (below(6) == 0) s->mirostat = 1 + (int32_t)below(2);
    s->mirostat_tau = ONE_OF(0, 1, 3, 5, 100);
    s->mirostat_eta = ONE_OF(0, 0.1f, 1);
    if (below(2) == 0) shuffle_order(s);
}

enum { LIST_MAX = 64 };
static cohort_bias biases[LIST_MAX];
static int32_t allowed[LIST_MAX], banned_ids[4][3], stop_ids[2], end_ids[2];
static cohort_ids banned[4];

static void choose_lists(struct rig *r) {
    uint32_t step = 1 + below(r->vocab / LIST_MAX + 1), first = below(r->vocab);
    int32_t any[] = {(int32_t)below(r->vocab), (int32_t)below(r->vocab)};
    memcpy(stop_ids, any, sizeof(stop_ids));
    end_ids[0] = (int32_t)below(r->vocab);
    r->ends = end_ids;
    r->ends_n = 1;
    for (int list = 0; list < 2; list++) {
        if (below(3)) continue;
        size_t n = 0;
        for (uint32_t i = 0; i < LIST_MAX && first + i * step < r->vocab; i++, n++) {
            int32_t id = (int32_t)(first + i * step);
            if (list)
                allowed[n] = id;
            else
                biases[n] = (cohort_bias){id, ONE_OF(-100, -1, 0.5f, 5, -INFINITY)};
        }
        if (list) {
            int32_t swap = allowed[0]; /* in no order */
            allowed[0] = allowed[n - 1];
            allowed[n - 1] = swap;
            r->q.allowed_ids = allowed;
            r->q.allowed_ids_n = n;
        } else {
            r->q.biases = biases;
            r->q.biases_n = n;
        }
    }
    if (below(3) == 0) {
        uint32_t position = (uint32_t)r->q.prompt_n + r->answer_n;
        for (uint32_t i = 0; i < 4; i++) {
            banned[i] = (cohort_ids){banned_ids[i], 1 + below(3)};
            for (size_t j = 0; j < banned[i].n; j++)
                banned_ids[i][j] = position >= banned[i].n - 1 - j && j + 1 < banned[i].n
                                       ? tokens[position - (banned[i].n - 1) + j]
                                       : (int32_t)below(r->vocab);
            if (position < 3) banned[i].n = 1;
        }
        r->q.banned = banned;
        r->q.banned_n = 4;
    }
    if (below(3) == 0) {
        r->q.min_tokens = below(ANSWER_MAX);
        r->q.ignore_eos = (int)below(2);
        r->q.stop_ids = stop_ids;
        r->q.stop_ids_n = below(3);
    }
}

static uint8_t rejected[ROW_MAX];

/* Nearly all, nearly none, or runs of them. */
static void choose_mask(struct rig *r) {
    if (below(2)) return;
    uint32_t kind = below(4);
    int run = 0;
    for (uint32_t i = 0; i < r->vocab; i++) {
        if (below(20) == 0) run = !run;
        rejected[i] = (uint8_t)(kind == 0   ? below(100) == 0
                                : kind == 1 ? below(r->vocab < 100 ? 6 : 100) > 0
                                : kind == 2 ? (int)below(2)
                                            : run);
    }
    r->rejected = rejected;
}

static void describe(const struct rig *r) {
    const cohort_sampling *s = &r->q.sampling;
    fprintf(stderr, "vocab %u prompt %zu answer %u: t %g +- %g ^ %g k %d p %g m %g typ %g sigma %g xtc %g %g keep %u\n",
            r->vocab, r->q.prompt_n, r->answer_n, (double)s->temperature, (double)s->temperature_range,
            (double)s->temperature_exponent, s->top_k, (double)s->top_p, (double)s->min_p, (double)s->typical_p,
            (double)s->top_n_sigma, (double)s->xtc_probability, (double)s->xtc_threshold, s->min_keep);
    fprintf(stderr,
            "rep %g/%d freq %g pres %g /%d dry %g %g %u/%d mirostat %d %g %g; biases %zu allowed %zu banned %zu\n",
            (double)s->repetition_penalty, s->repetition_window, (double)s->frequency_penalty,
            (double)s->presence_penalty, s->answer_window, (double)s->dry_multiplier, (double)s->dry_base,
            s->dry_allowed_length, s->dry_window, s->mirostat, (double)s->mirostat_tau, (double)s->mirostat_eta,
            r->q.biases_n, r->q.allowed_ids_n, r->q.banned_n);
    for (uint32_t i = 0; i < s->order_n; i++) fprintf(stderr, " %u", s->order[i]);
    fprintf(stderr, "\n");
}

static int same_float(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)) || a == b; }

static void assert_same(const struct rig *r, const struct sample_result *got, const struct sample_result *want) {
    int same = got->token == want->token && same_float(got->logprob, want->logprob) && got->top_n == want->top_n &&
               (same_float(got->state, want->state) ||
                fabsf(got->state - want->state) <= 1e-5f * fabsf(want->state)); /* the naive one takes libm's log */
    for (uint32_t i = 0; same && i < got->top_n; i++)
        same = got->top[i].id == want->top[i].id && same_float(got->top[i].logprob, want->top[i].logprob);
    if (same) return;
    describe(r);
    fail_msg("token %d instead of %d, logprob %.9g instead of %.9g, %u left instead of %u, state %.9g instead of %.9g",
             got->token, want->token, (double)got->logprob, (double)want->logprob, got->top_n, want->top_n,
             (double)got->state, (double)want->state);
}

static void equals_the_naive_chain(void **state) {
    static const uint32_t sizes[] = {1, 2, 3, 17, 255, 1000, ROW_MAX};
    for (unsigned round = 0; round < 14000; round++) {
        struct rig r = rig_of(sizes[round % 140 ? below(6) : 6], 1 + below(PAST_MAX), below(ANSWER_MAX));
        uint32_t alphabet = below(2) && r.vocab > 4 ? 4 : r.vocab;
        for (uint32_t i = 0; i < PAST_MAX + ANSWER_MAX; i++) tokens[i] = (int32_t)below(alphabet);
        fill_row(r.vocab, below(7));
        choose_sampling(&r.q.sampling);
        choose_lists(&r);
        choose_mask(&r);
        float mu = (float)(uniform() * 12 - 1);
        if (r.answer_n == 0) mu = 2 * r.q.sampling.mirostat_tau;
        struct sample_result got = draw(&r, mu), want;
        struct naive n = {.ops = ops,
                          .row = row,
                          .vocab = r.vocab,
                          .params = &r.params,
                          .request = &r.q,
                          .rejected = r.rejected,
                          .tokens = tokens,
                          .position = (uint32_t)r.q.prompt_n + r.answer_n,
                          .ends = r.ends,
                          .ends_n = r.ends_n,
                          .state = mu};
        naive_draw(&n, &want);
        if (want.token < 0) got.state = 0;
        assert_same(&r, &got, &want);
        if (got.token < 0) continue;
        /* Without log-probabilities the same token comes. */
        const struct sample_result first = got;
        int told = r.q.logprobs;
        r.q.logprobs = -1;
        got = draw(&r, mu);
        assert_int_equal(got.token, first.token);
        assert_true(same_float(got.state, first.state));
        /* And without post_sampling, and what is said of it is of the whole row. */
        r.q.logprobs = told;
        r.q.post_sampling = 0;
        got = draw(&r, mu);
        assert_int_equal(got.token, want.token);
        struct logits l = {used_up, r.vocab, peaks};
        memcpy(used_up, row, r.vocab * sizeof(*row));
        logits_peaks(ops, row, r.vocab, 0, logits_spans(r.vocab), peaks);
        want.state = got.state;
        sample_score(ops, &l, scratch, got.token, r.q.logprobs, &want);
        want.token = got.token;
        want.state = got.state;
        assert_same(&r, &got, &want);
    }
    assert_true(narrow_draws > 500);
}

/* A token that was not drawn is told of like one that was. */
static void given_tokens_are_told_of(void **state) {
    struct rig r = rig_of(1000, 3, 2);
    struct sample_result got, want;
    struct logits l = {used_up, r.vocab, peaks};
    fill_row(r.vocab, 0);
    memcpy(used_up, row, r.vocab * sizeof(*row));
    logits_peaks(ops, row, r.vocab, 0, logits_spans(r.vocab), peaks);
    struct sample_params p = sample_params_make(&r.q.sampling, 1, 5, 0);
    sample_given(ops, &p, 5, 77, &l, scratch, &got);
    sample_score(ops, &l, scratch, 77, 5, &want);
    assert_int_equal(got.token, 77);
    assert_int_equal(got.top_n, 5);
    assert_true(got.logprob == want.logprob);
    assert_memory_equal(got.top, want.top, 5 * sizeof(got.top[0]));
    p.post = 1;
    sample_given(ops, &p, 5, 77, &l, scratch, &got);
    assert_true(got.token == 77 && got.logprob == 0 && got.top_n == 1 && got.top[0].id == 77);
    used_up[5] = NAN; /* seen where something is said of the row */
    logits_peaks(ops, used_up, r.vocab, 0, 1, peaks);
    sample_given(ops, &p, 5, 77, &l, scratch, &got);
    assert_true(got.token == 77 && got.logprob == 0 && got.top_n == 1);
    p.logprobs = -1;
    sample_given(ops, &p, 5, 77, &l, scratch, &got);
    assert_true(got.token == 77 && isnan(got.logprob) && got.top_n == 0);
    p = sample_params_make(&r.q.sampling, 1, 5, 0);
    sample_given(ops, &p, 5, 77, &l, scratch, &got);
    assert_int_equal(got.token, SAMPLE_NOT_FINITE);
}

/* Few allowed ones: numbers they must be, and whatever the others are is not seen, unless the whole row is told of. */
static void narrow_rows_are_judged_by_what_is_allowed(void **state) {
    static const float bad[] = {NAN, INFINITY};
    for (uint32_t i = 0; i < 1000; i++) rejected[i] = i % 10 != 0;
    for (int k = 0; k < 2; k++) {
        struct rig r = rig_of(1000, 3, 2);
        uint32_t before = narrow_draws;
        r.rejected = rejected;
        fill_row(r.vocab, 0);
        int32_t token = draw(&r, 10).token;
        assert_true(token >= 0 && token % 10 == 0);
        row[333] = bad[k];
        assert_int_equal(draw(&r, 10).token, token);
        assert_int_equal(narrow_draws, before + 2);
        r.q.post_sampling = 0;
        assert_int_equal(draw(&r, 10).token, SAMPLE_NOT_FINITE);
        assert_int_equal(narrow_draws, before + 2);
        r.q.post_sampling = 1;
        row[330] = bad[k];
        assert_int_equal(draw(&r, 10).token, SAMPLE_NOT_FINITE);
        for (uint32_t i = 0; i < r.vocab; i += 10) row[i] = -INFINITY;
        assert_int_equal(draw(&r, 10).token, SAMPLE_NOTHING_LEFT);
    }
}

/* ---- Values by hand ---- */
static void set_row(const float *x, uint32_t n) { memcpy(row, x, n * sizeof(*x)); }
static void set_probabilities(const double *p, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) row[i] = (float)log(p[i]);
}
static void set_tokens(const int32_t *ids, uint32_t n) { memcpy(tokens, ids, n * sizeof(*ids)); }
#define SET_TOKENS(...) set_tokens((const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4)

/* What is left says that the logits were these; minus infinity: it is not there. */
static void expect_logits(struct rig *r, const float *want) {
    struct sample_result got = draw(r, 10);
    double all = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->vocab; i++) {
        all += exp((double)want[i]);
        n += want[i] != -INFINITY;
    }
    assert_int_equal(got.top_n, n);
    for (uint32_t i = 0; i < got.top_n; i++) {
        double p = (double)want[got.top[i].id] - log(all);
        if (fabs((double)got.top[i].logprob - p) > 1e-5)
            fail_msg("token %d: %g instead of %g", got.top[i].id, (double)got.top[i].logprob, p);
        if (got.top[i].id == got.token) assert_true(got.top[i].logprob == got.logprob);
    }
}
#define EXPECT(r, ...) expect_logits(r, (const float[]){__VA_ARGS__})
#define GONE           (-INFINITY)

static void penalties_on_a_known_row(void **state) {
    static const float x[] = {2, -1, 0.5f, 3, 0};
    set_row(x, 5);
    SET_TOKENS(0, 1, 0, /* answer */ 2, 0, 2);
    struct rig r = rig_of(5, 3, 3);
    r.q.sampling.repetition_penalty = 2; /* each once, of prompt and answer: 0, 1, 2 */
    EXPECT(&r, 1, -2, 0.25f, 3, 0);
    r.q.sampling.repetition_window = 2; /* 0, 2 */
    EXPECT(&r, 1, -1, 0.25f, 3, 0);
    r.q.sampling.repetition_window = 0;
    EXPECT(&r, 2, -1, 0.5f, 3, 0);
    r.q.sampling.frequency_penalty = 0.5f; /* of the answer only: 2 twice, 0 once */
    EXPECT(&r, 1.5f, -1, -0.5f, 3, 0);
    r.q.sampling.presence_penalty = 0.25f;
    EXPECT(&r, 1.25f, -1, -0.75f, 3, 0);
    r.q.sampling.answer_window = 2; /* 0, 2 */
    EXPECT(&r, 1.25f, -1, -0.25f, 3, 0);
    r.q.sampling.answer_window = -1;
    r.q.sampling.repetition_window = -1; /* repetition first, then the others */
    EXPECT(&r, 0.25f, -2, -1, 3, 0);
    r.q.sampling.temperature = 2; /* behind them by default */
    EXPECT(&r, 0.125f, -1, -0.5f, 1.5f, 0);
    r.q.sampling.order[0] = COHORT_SAMPLER_TEMPERATURE; /* and before them */
    r.q.sampling.order[1] = COHORT_SAMPLER_PENALTIES;
    r.q.sampling.order_n = 2;
    EXPECT(&r, 0.5f - 0.75f, -1, 0.125f - 1.25f, 1.5f, 0);
}

static void biases_bans_and_ends_on_a_known_row(void **state) {
    static const float x[] = {2, -1, 0.5f, 3, 0};
    static const cohort_bias some[] = {{3, -INFINITY}, {1, 4}, {0, -0.5f}};
    static const int32_t only[] = {4, 1, 3}, single[] = {2}, longer[] = {0, 2, 4}, other[] = {1, 2, 0}, stop[] = {1};
    static const int32_t end[] = {3};
    static const cohort_ids bans[] = {{single, 1}, {longer, 3}, {other, 3}};
    set_row(x, 5);
    SET_TOKENS(1, 0, /* answer */ 2);
    struct rig r = rig_of(5, 2, 1);
    r.q.biases = some;
    r.q.biases_n = 3;
    EXPECT(&r, 1.5f, 3, 0.5f, GONE, 0);
    r.q.allowed_ids = only;
    r.q.allowed_ids_n = 3;
    EXPECT(&r, GONE, 3, GONE, GONE, 0);
    r.q.biases_n = 0;
    EXPECT(&r, GONE, -1, GONE, 3, 0);
    r.q.allowed_ids = NULL;
    r.q.allowed_ids_n = 0;
    r.q.banned = bans;
    r.q.banned_n = 3;
    EXPECT(&r, 2, -1, GONE, 3, GONE); /* 0 2 was there, across prompt and answer; 1 2 was not */
    r.q.banned_n = 0;
    r.q.min_tokens = 2;
    r.ends = end;
    r.ends_n = 1;
    r.q.stop_ids = stop;
    r.q.stop_ids_n = 1;
    EXPECT(&r, 2, GONE, 0.5f, GONE, 0);
    r.q.ignore_eos = 1; /* the end token ends nothing then */
    EXPECT(&r, 2, GONE, 0.5f, 3, 0);
    r.q.min_tokens = 1; /* one is there */
    EXPECT(&r, 2, -1, 0.5f, 3, 0);
    r.q.allowed_ids = stop;
    r.q.allowed_ids_n = 1;
    r.q.min_tokens = 2;
    assert_int_equal(draw(&r, 0).token, SAMPLE_NOTHING_LEFT);
}

static void dry_on_a_known_row(void **state) {
    static const float x[] = {1, 1, 1, 1, 1, 1};
    set_row(x, 6);
    /* ... 0 1 2 3 | 1 2 4 | 5 0 1 2: a repeat of three goes on with 3, of two with 4 */
    SET_TOKENS(0, 1, 2, 3, 1, 2, 4, 5, 0, 1, 2);
    struct rig r = rig_of(6, 4, 7);
    r.q.sampling.dry_multiplier = 0.5f;
    r.q.sampling.dry_base = 2;
    EXPECT(&r, 1, 1, 1, 0, 0.5f, 1); /* 0.5 * 2^(3 - 2), 0.5 * 2^0 */
    r.q.sampling.dry_allowed_length = 3;
    EXPECT(&r, 1, 1, 1, 0.5f, 1, 1);
    r.q.sampling.dry_allowed_length = 1;
    EXPECT(&r, 1, 1, 1, -1, 0, 1);
    r.q.sampling.dry_window = 8; /* the first repeat begins before it: what is left of that has no tokens */
    EXPECT(&r, 1, 1, 1, 1 - 0.0f, 0, 1);
    r.q.sampling.dry_window = 10; /* 1 2 3 */
    EXPECT(&r, 1, 1, 1, 0, 0, 1);
    for (int i = 0; i < 11; i++) tokens[i] = 2; /* ten of one token: as often as it can */
    r.q.sampling.dry_window = -1;
    r.q.sampling.dry_allowed_length = 2;
    EXPECT(&r, 1, 1, 1 - 0.5f * 256, 1, 1, 1);
}

/* Breakers are texts, wherever tokens begin and end. */
static void dry_stops_at_breakers(void **state) {
    struct tiny_vocab *v = malloc(sizeof(*v));
    assert_non_null(v);
    static const char *const texts[] = {"a", "b", "c", "x\n", "=", "=>", "\n"};
    static const float x[] = {1, 1, 1, 1, 1, 1, 1};
    tiny_init(v, "llama");
    for (int i = 0; i < 7; i++) tiny_add(v, texts[i], 1, 0);
    tiny_add_bytes(v);
    struct tokenizer *t = tiny_open(v);
    set_row(x, 7);
    struct rig r = rig_of(7, 1, 0);
    r.tokenizer = t;
    r.q.sampling.dry_multiplier = 1;
    r.q.sampling.dry_base = 2;
    r.q.sampling.dry_allowed_length = 1;
    cohort_span breaker = {"\n", 1};
    SET_TOKENS(0, 3, 1, 2, 0, 3, 1); /* a x\n b c a x\n b */
    r.q.prompt_n = 3;
    r.answer_n = 4;
    EXPECT(&r, 1, 1, 1 - 4, 1, 1, 1, 1); /* c would be the fourth: a x\n b */
    r.q.dry_breakers = &breaker;
    r.q.dry_breakers_n = 1;
    EXPECT(&r, 1, 1, 0, 1, 1, 1, 1);       /* only b counts */
    SET_TOKENS(0, 4, 4, 1, 2, 0, 4, 4, 1); /* a = = b c a = = b: the breaker lies in two tokens */
    breaker = (cohort_span){"==", 2};
    r.answer_n = 6;
    EXPECT(&r, 1, 1, 0, 1, 1, 1, 1);
    breaker = (cohort_span){"a==b", 4}; /* nothing is left of it */
    EXPECT(&r, 1, 1, 1, 1, 1, 1, 1);
    breaker = (cohort_span){"===", 3};
    EXPECT(&r, 1, 1, 1 - 8, 1, 1, 1, 1);
    breaker = (cohort_span){"\n", 1}; /* a breaker itself is free, though it would go on with a repeat */
    SET_TOKENS(0, 1, 3, 2, 0, 1);
    r.answer_n = 3;
    EXPECT(&r, 1, 1, 1, 1, 1, 1, 1);
    breaker = (cohort_span){"!", 1};
    EXPECT(&r, 1, 1, 1, 1 - 2, 1, 1, 1);
    tokenizer_close(t);
    free(v);
}

static void filters_on_a_known_row(void **state) {
    static const double p[5] = {0.4, 0.05, 0.25, 0.1, 0.2};
    const float l[5] = {logf(0.4f), logf(0.05f), logf(0.25f), logf(0.1f), logf(0.2f)};
    set_probabilities(p, 5);
    SET_TOKENS(0, 0);
    struct rig r = rig_of(5, 1, 0);
    /* Entropy 1.4150: the surprises are 0.916, 2.996, 1.386, 2.303, 1.609; nearest are 0.25, 0.2, 0.4, 0.1, 0.05. */
    r.q.sampling.typical_p = 0.4f;
    EXPECT(&r, GONE, GONE, l[2], GONE, l[4]);
    r.q.sampling.typical_p = 0.46f;
    EXPECT(&r, l[0], GONE, l[2], GONE, l[4]);
    r.q.sampling.typical_p = 0.2f;
    EXPECT(&r, GONE, GONE, l[2], GONE, GONE);
    r.q.sampling.min_keep = 2;
    EXPECT(&r, GONE, GONE, l[2], GONE, l[4]);
    r.q.sampling.min_keep = 0;
    r.q.sampling.typical_p = 1;
    /* XTC: 0.4, 0.25 and 0.2 reach 0.15; the last of them stays. */
    r.q.sampling.xtc_probability = 1;
    r.q.sampling.xtc_threshold = 0.15f;
    EXPECT(&r, GONE, l[1], GONE, l[3], l[4]);
    r.q.sampling.xtc_threshold = 0.45f;
    EXPECT(&r, l[0], l[1], l[2], l[3], l[4]);
    r.q.sampling.xtc_threshold = 0.15f;
    r.q.sampling.min_keep = 3;
    EXPECT(&r, GONE, l[1], GONE, l[3], l[4]);
    r.q.sampling.min_keep = 4;
    EXPECT(&r, l[0], l[1], l[2], l[3], l[4]);
    r.q.sampling.min_keep = 0;
    r.q.sampling.xtc_probability = 0;
    /* Sigma: mean 1, deviation 2 of 4, 2, 0, -2 ... */
    static const float even[5] = {4, 1, -1, 3, -2}; /* mean 1, variance 26 / 5, deviation 2.2804 */
    set_row(even, 5);
    r.q.sampling.top_n_sigma = 1;
    EXPECT(&r, 4, GONE, GONE, 3, GONE);
    r.q.sampling.top_n_sigma = 1.4f;
    EXPECT(&r, 4, 1, GONE, 3, GONE);
    r.q.sampling.top_n_sigma = 0;
    /* min-p behind a temperature looks at what that made. */
    set_probabilities(p, 5);
    r.q.sampling.temperature = 0.5f; /* squares: 0.16, 0.0025, 0.0625, 0.01, 0.04 */
    r.q.sampling.min_p = 0.3f;
    EXPECT(&r, 2 * l[0], GONE, 2 * l[2], GONE, 2 * l[4]);
    r.q.sampling.order[0] = COHORT_SAMPLER_TEMPERATURE;
    r.q.sampling.order[1] = COHORT_SAMPLER_MIN_P;
    r.q.sampling.order_n = 2;
    EXPECT(&r, 2 * l[0], GONE, 2 * l[2], GONE, GONE);
}

static void the_temperature_follows_the_entropy(void **state) {
    static const double p[4] = {0.4, 0.3, 0.2, 0.1};
    set_probabilities(p, 4);
    SET_TOKENS(0);
    struct rig r = rig_of(4, 1, 0);
    double entropy = 0;
    for (int i = 0; i < 4; i++) entropy -= p[i] * log(p[i]);
    r.q.sampling.temperature = 1;
    r.q.sampling.temperature_range = 0.5f;
    r.q.sampling.temperature_exponent = 2;
    float t = (float)(0.5 + pow(entropy / log(4), 2));
    EXPECT(&r, row[0] / t, row[1] / t, row[2] / t, row[3] / t);
    r.q.sampling.temperature_range = 3; /* from 0 */
    t = (float)(4 * pow(entropy / log(4), 2));
    EXPECT(&r, row[0] / t, row[1] / t, row[2] / t, row[3] / t);
}

static void mirostat_keeps_its_surprise(void **state) {
    static const double p[4] = {0.5, 0.25, 0.125, 0.125}; /* surprises 1, 2, 3, 3 */
    set_probabilities(p, 4);
    SET_TOKENS(0, 0);
    struct rig r = rig_of(4, 1, 1);
    r.q.sampling.mirostat = 2;
    r.q.sampling.mirostat_tau = 3;
    r.q.sampling.mirostat_eta = 0.5f;
    struct sample_result got = draw(&r, 2.5f);
    assert_int_equal(got.top_n, 2); /* 2/3 and 1/3 */
    double surprise = got.token == 0 ? log2(1.5) : log2(3);
    assert_true(fabs((double)got.state - (2.5 - 0.5 * (surprise - 3))) < 1e-5);
    assert_int_equal(draw(&r, 3.5f).top_n, 4);
    got = draw(&r, -1);
    assert_int_equal(got.top_n, 1);
    assert_true(fabsf(got.state - 0.5f) < 1e-6f);
    r.answer_n = 0; /* it begins with twice tau */
    got = draw(&r, 0);
    assert_true(fabs((double)got.state - (6 - 0.5 * (-(double)got.logprob / log(2) - 3))) < 1e-5);
    /* The first version on an exact Zipf row: exponent 1.5, so k = ((0.5 * 2^mu) / (1 - n^-0.5))^(1 / 1.5). */
    for (uint32_t i = 0; i < 1000; i++) row[i] = (float)(-1.5 * log(i + 1));
    r = rig_of(1000, 1, 1);
    r.q.sampling.mirostat = 1;
    double k = pow(0.5 * 16 / (1 - pow(1000, -0.5)), 1 / 1.5);
    assert_int_equal(draw(&r, 4).top_n, (int)k);
    r.q.sampling.temperature = 0;
    got = draw(&r, 4);
    assert_int_equal(got.token, 0);
    assert_true(fabsf(got.state - 4.5f) < 1e-6f); /* no surprise at all: mu + eta * tau */
}

/* Without post_sampling they are those of the row as the model made it. */
static void logprobs_are_of_the_row_as_it_was(void **state) {
    static const float x[] = {2, -1, 0.5f, 3, 0};
    set_row(x, 5);
    SET_TOKENS(0, 3, 3);
    struct rig r = rig_of(5, 1, 2), plain = rig_of(5, 1, 2);
    r.q.post_sampling = plain.q.post_sampling = 0;
    r.q.sampling.presence_penalty = 100;
    r.q.sampling.repetition_penalty = 10;
    struct sample_result a = draw(&r, 0), b = draw(&plain, 0);
    assert_int_equal(a.top_n, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(a.top[i].id, b.top[i].id);
        assert_memory_equal(&a.top[i].logprob, &b.top[i].logprob, sizeof(float));
    }
    assert_int_not_equal(a.token, 3);
}

/* The exclusion's dice are its own: they come up as often as asked for, whatever the draw's are. */
static void xtc_dice_are_fair(void **state) {
    row[0] = 1;
    row[1] = 0.9f;
    SET_TOKENS(0);
    struct rig r = rig_of(2, 1, 0);
    r.q.sampling.xtc_probability = 0.25f;
    r.q.sampling.xtc_threshold = 0.1f;
    uint32_t excluded = 0;
    for (r.q.sampling.seed = 0; r.q.sampling.seed < 4000; r.q.sampling.seed++) excluded += draw(&r, 0).top_n == 1;
    assert_in_range(excluded, 900, 1100);
}

static void lists_are_checked(void **state) {
    cohort_request q = {0};
    cohort_error err = {0};
    struct sample_row *made;
    sample_defaults(&q.sampling);
    static const cohort_bias bad_ids[] = {{-1, 0}, {100, 0}, {INT32_MAX, 0}, {3, NAN}, {3, INFINITY}, {3, -100.5f}};
    for (int i = 0; i < 6; i++) {
        q.biases = &bad_ids[i];
        q.biases_n = 1;
        assert_int_equal(sample_check_lists(&q, 100, &err), COHORT_E_ARGUMENT);
        assert_string_equal(err.field, "biases");
    }
    q.biases_n = 0;
    static const int32_t ids[] = {4, 7, 4, 100, -1};
    q.allowed_ids = ids + 3;
    q.allowed_ids_n = 1;
    assert_int_equal(sample_check_lists(&q, 100, &err), COHORT_E_ARGUMENT);
    q.allowed_ids_n = 0;
    assert_int_equal(sample_check_lists(&q, 100, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "allowed_ids");
    struct sample_params p = sample_params_make(&q.sampling, 0, -1, 0);
    q.prompt = ids;
    q.prompt_n = 1;
    q.allowed_ids = ids;
    q.allowed_ids_n = 3;
    assert_int_equal(sample_check_lists(&q, 100, &err), 0);
    assert_int_equal(sample_row_make(&made, &p, &q, 5, 100, NULL, 0, NULL, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "allowed_ids");
    q.allowed_ids_n = 0;
    static const cohort_bias twice[] = {{9, 1}, {2, 1}, {9, 2}};
    q.allowed_ids = NULL;
    q.biases = twice;
    q.biases_n = 3;
    assert_int_equal(sample_row_make(&made, &p, &q, 5, 100, NULL, 0, NULL, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "biases");
    q.biases_n = COHORT_BIASES_MAX + 1;
    assert_int_equal(sample_check_lists(&q, 100, &err), COHORT_E_ARGUMENT);
    q.biases_n = 0;
    const cohort_ids bans[] = {{ids, 0}, {ids, COHORT_BANNED_IDS_MAX + 1}, {ids + 3, 1}, {ids + 4, 1}};
    for (int i = 0; i < 4; i++) {
        q.banned = &bans[i];
        q.banned_n = 1;
        assert_int_equal(sample_check_lists(&q, 100, &err), COHORT_E_ARGUMENT);
        assert_string_equal(err.field, "banned");
    }
    q.banned_n = 0;
    const cohort_span empty = {"", 0};
    q.dry_breakers = &empty;
    q.dry_breakers_n = 1;
    assert_int_equal(sample_check_lists(&q, 100, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "dry_breakers");
    q.dry_breakers_n = 0;
    q.post_sampling = 2;
    assert_int_equal(sample_check_lists(&q, 100, &err), COHORT_E_ARGUMENT);
    q.post_sampling = 0;
    /* Whoever needs nothing has nothing. */
    assert_int_equal(sample_row_make(&made, &p, &q, 5, 100, NULL, 0, NULL, &err), 0);
    assert_null(made);
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
        cmocka_unit_test(equals_the_naive_chain),
        cmocka_unit_test(given_tokens_are_told_of),
        cmocka_unit_test(narrow_rows_are_judged_by_what_is_allowed),
        cmocka_unit_test(penalties_on_a_known_row),
        cmocka_unit_test(biases_bans_and_ends_on_a_known_row),
        cmocka_unit_test(dry_on_a_known_row),
        cmocka_unit_test(dry_stops_at_breakers),
        cmocka_unit_test(filters_on_a_known_row),
        cmocka_unit_test(the_temperature_follows_the_entropy),
        cmocka_unit_test(mirostat_keeps_its_surprise),
        cmocka_unit_test(logprobs_are_of_the_row_as_it_was),
        cmocka_unit_test(xtc_dice_are_fair),
        cmocka_unit_test(lists_are_checked),
    };
    return cmocka_run_group_tests(tests, open_ops, close_ops);
}
