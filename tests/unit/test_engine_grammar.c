/* Grammars in the engine on the fake backend: answers follow them, alone and beside free rows, preempted, continued
 * anywhere; what fails ends one row; and compiled grammars are kept, counted and made once. Built twice: with the
 * grammars of fake_grammar.h, and with the real ones. */
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fake_grammar.h"
#include "fake_model.h"
#include "grammar_mix.h"
#include "sampler_mix.h"

enum { TOKENS = 200, PROMPT_MOST = 120, ROWS = 24, ROUNDS = 20 };

extern struct fake_grammar fake_grammar __attribute__((weak));
static int has_fake(void) { return &fake_grammar != NULL; }

static struct grammar_mix mixes;
static int32_t prompts[ROWS][PROMPT_MOST];

static cohort_engine *open_engine(uint32_t rows, uint64_t kv_tokens, int pipeline) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = rows;
    o.queue = 64;
    o.batch_tokens = 48;
    o.kv_tokens = kv_tokens;
    o.pipeline = pipeline;
    return run_open_engine(model, &o);
}

static int open_all(void **state) {
    open_model(state);
    if (model) grammar_mix_open(&mixes, model);
    return 0;
}

static int close_all(void **state) {
    grammar_mix_close(&mixes);
    return close_model(state);
}

static int begin(void **state) {
    if (has_fake())
        fake_grammar.compile_us = fake_grammar.compile_code = fake_grammar.mask_us = fake_grammar.break_after = 0;
    reset(state);
    if (model) fake_backend.end = info.eos; /* ends are likely wherever they may come */
    return 0;
}

/* Rows with and without grammars, samplers and lists of log-probabilities. */
static void make_request(uint32_t i, cohort_request *q) {
    cohort_request_defaults(q);
    q->prompt = prompts[i];
    q->prompt_n = 3 + 5 * i;
    run_prompt(prompts[i], (uint32_t)q->prompt_n, i % 2 ? 60 : info.vocab_size, 40 + i);
    q->max_tokens = TOKENS - i;
    q->sampling.seed = 70 + i;
    q->sampling.has_seed = 1;
    q->sampling.temperature = i % 5 ? 1 : 0;
    q->logprobs = i % 3 ? -1 : (int)(i % 4);
    q->post_sampling = i % 4 == 3;
    if (i % 6 == 5) sampler_mix(i % SAMPLER_MIXES, info.vocab_size, q);
    q->ignore_eos = i % 3 == 2;
    if (i % 3 != 2) grammar_mix_set(&mixes, i % GRAMMAR_MIXES, info.vocab_size, q);
}

/* The whole text is one of the language; of an answer that was cut off its beginning, as far as that can be told. */
static int follows(const char *pattern, const char *text) {
    char whole[512];
    regex_t regex;
    snprintf(whole, sizeof(whole), "^%s$", pattern);
    assert_int_equal(regcomp(&regex, whole, REG_EXTENDED | REG_NOSUB), 0);
    int same = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return same;
}

static const char *text_of(struct outcome *o) {
    assert_int_equal(buf_add(&o->text, "", 1), 0);
    return o->text.data;
}

static void run_mix(cohort_engine *engine, uint32_t mix, uint64_t seed, cohort_request *q, struct outcome *got) {
    make_request(0, q);
    q->logprobs = -1;
    q->sampling.seed = seed;
    q->sampling.temperature = 1;
    q->max_tokens = 200;
    q->grammar = mixes.of[mix];
    run_request(engine, q, got);
}

/* ---- Answers follow ---- */
static void test_answers_follow_their_grammar(void **state) {
    NEEDS_MODEL;
    static const uint32_t finite[] = {0, 1, 4, 5, 7};
    cohort_engine *engine = open_engine(4, 4096, 1);
    uint32_t forced = 0, whole = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint32_t mix = finite[seed % 5];
        cohort_request q;
        struct outcome got;
        run_mix(engine, mix, seed, &q, &got);
        if (got.finish == COHORT_FINISH_STOP) {
            const char *text = text_of(&got);
            if (!follows(grammar_mix_text(mix), text)) fail_msg("\"%s\" is not of %s", text, grammar_mix_text(mix));
            whole++;
        } else {
            assert_int_equal(got.finish, COHORT_FINISH_LENGTH);
        }
        forced += got.stats.forced_tokens;
        assert_int_equal(got.stats.generated_tokens, got.ids_n + (got.stop_token >= 0));
        outcome_free(&got);
    }
    assert_true(whole > 40 && forced > 200);
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    assert_int_equal(m.forced_tokens, forced);
    assert_true(m.grammar_masks > 100 && m.grammar_cached == GRAMMAR_MIXES);
    run_close(0);
}

/* A text without a choice: all of it comes, and behind its last token the row ends, though an end token and a number of
 * tokens were waited for. */
static void test_a_grammar_at_its_end_ends_the_row(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 4096, 1);
    cohort_request q;
    struct outcome got, more;
    for (int odd = 0; odd < 2; odd++) {
        make_request(0, &q);
        q.grammar = mixes.of[5];
        q.logprobs = -1;
        q.ignore_eos = odd;
        q.min_tokens = odd ? q.max_tokens : 0;
        run_request(engine, &q, &got);
        assert_string_equal(text_of(&got), grammar_mix_text(5));
        assert_int_equal(got.finish, COHORT_FINISH_STOP);
        assert_int_equal(got.stop_token, -1);
        assert_int_equal(got.stop_index, -1);
        assert_true(got.stats.forced_tokens + 3 >= got.ids_n && got.stats.forced_tokens < got.ids_n);
        q.max_tokens = q.min_tokens = got.ids_n; /* whole and at its length: whole */
        run_request(engine, &q, &more);
        assert_int_equal(more.finish, COHORT_FINISH_STOP);
        outcome_free(&more);
        q.max_tokens = q.min_tokens = 4; /* a forced text is cut like any other */
        run_request(engine, &q, &more);
        assert_int_equal(more.finish, COHORT_FINISH_LENGTH);
        assert_int_equal(more.ids_n, 4);
        assert_memory_equal(more.ids, got.ids, 4 * sizeof(got.ids[0]));
        outcome_free(&more);
        const cohort_span stop = {"so on", 5};
        q.stops = &stop;
        q.stops_n = 1;
        q.min_tokens = 0;
        q.max_tokens = 50;
        run_request(engine, &q, &more);
        assert_int_equal(more.stop_index, 0);
        assert_string_equal(text_of(&more), "and ");
        outcome_free(&more);
        outcome_free(&got);
    }
    /* Where it may end or go on, an end token ends it as usual, whatever was asked for. */
    uint32_t by_token = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        run_mix(engine, 4, seed, &q, &got);
        by_token += got.stop_token == info.eos;
        outcome_free(&got);
        make_request(0, &q);
        q.grammar = mixes.of[4];
        q.sampling.seed = seed;
        q.ignore_eos = 1;
        run_request(engine, &q, &got);
        for (uint32_t i = 0; i < got.ids_n; i++) assert_int_not_equal(got.ids[i], info.eos);
        outcome_free(&got);
        q.min_tokens = q.max_tokens; /* but not before it may */
        run_request(engine, &q, &got);
        assert_int_not_equal(got.stop_token, info.eos);
        outcome_free(&got);
    }
    assert_true(by_token > 3);
    run_close(0);
}

/* What is forced is the same with lists of log-probabilities, which need the logits of every token, and without. */
static void test_forced_tokens_are_told_of(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 4096, 1);
    for (uint32_t mix = 0; mix < 2; mix++) {
        cohort_request q;
        struct outcome plain, told, post;
        run_mix(engine, mix, 3, &q, &plain);
        q.logprobs = 2;
        run_request(engine, &q, &told);
        q.post_sampling = 1;
        run_request(engine, &q, &post);
        assert_int_equal(plain.ids_n, told.ids_n);
        assert_memory_equal(plain.ids, told.ids, plain.ids_n * sizeof(plain.ids[0]));
        assert_memory_equal(plain.ids, post.ids, plain.ids_n * sizeof(plain.ids[0]));
        assert_int_equal(plain.stats.forced_tokens, told.stats.forced_tokens);
        assert_true(plain.stats.forced_tokens > 5);
        assert_true(isfinite(told.logprob_sum) && told.logprob_sum < 0 && post.logprob_sum > told.logprob_sum);
        outcome_free(&plain);
        outcome_free(&told);
        outcome_free(&post);
    }
    run_close(0);
}

/* And unless their logits are asked for they are read together, not one an iteration. */
static void test_forced_text_is_read_at_once(void **state) {
    NEEDS_MODEL;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        cohort_engine *engine = open_engine(2, 4096, pipeline);
        uint32_t batches[2], tokens = 0;
        for (int told = 0; told < 2; told++) {
            cohort_request q;
            struct outcome got;
            make_request(0, &q);
            q.grammar = mixes.of[5];
            q.logprobs = told ? 0 : -1;
            q.cache_prompt = 0;
            uint32_t before = fake_backend.batches;
            run_request(engine, &q, &got);
            RUN_UNTIL(!fake_backend.running);
            batches[told] = fake_backend.batches - before;
            tokens = got.ids_n;
            outcome_free(&got);
        }
        assert_true(tokens > 10 && batches[1] >= tokens && batches[0] <= 6);
        cohort_metrics m;
        cohort_metrics_get(engine, &m);
        assert_int_equal(m.prompt_tokens, 6); /* forced ones are none of them */
        run_close(0);
    }
}

/* ---- Reasoning ---- */
static void test_reasoning_ends_at_its_budget(void **state) {
    NEEDS_MODEL;
    static const int32_t ends[] = {90, 91, 92};
    cohort_engine *engine = open_engine(2, 4096, 1);
    for (uint32_t budget = 0; budget < 30; budget += 7) {
        cohort_request q;
        struct outcome got, free_run;
        make_request(2, &q);
        q.ignore_eos = 1;
        q.max_tokens = 40;
        run_request(engine, &q, &free_run);
        q.reasoning_end = ends;
        q.reasoning_end_n = 3;
        q.reasoning_budget = budget;
        run_request(engine, &q, &got);
        assert_int_equal(got.ids_n, 40);
        assert_memory_equal(got.ids, free_run.ids, budget * sizeof(got.ids[0]));
        assert_memory_equal(got.ids + budget, ends, sizeof(ends));
        assert_int_equal(got.stats.reasoning_tokens, budget + 3);
        assert_int_equal(got.stats.forced_tokens, 3);
        outcome_free(&got);
        q.reasoning_budget = 100; /* never reached */
        run_request(engine, &q, &got);
        assert_memory_equal(got.ids, free_run.ids, 40 * sizeof(got.ids[0]));
        assert_int_equal(got.stats.reasoning_tokens, 40);
        outcome_free(&got);
        q.reasoning_end = free_run.ids + 1; /* comes by itself, one token in front of the budget or within it */
        q.reasoning_end_n = 2;
        q.reasoning_budget = 3;
        run_request(engine, &q, &got);
        assert_memory_equal(got.ids, free_run.ids, 40 * sizeof(got.ids[0]));
        assert_int_equal(got.stats.reasoning_tokens, 3);
        outcome_free(&got);
        q.reasoning_budget = 2; /* its first id is there: only the second comes */
        run_request(engine, &q, &got);
        assert_memory_equal(got.ids, free_run.ids, 3 * sizeof(got.ids[0]));
        assert_int_equal(got.stats.forced_tokens, 1);
        outcome_free(&got);
        outcome_free(&free_run);
    }
    run_close(0);
}

/* Where the answer has to open it, the budget is for answers that do. */
static void test_reasoning_that_was_not_opened_has_no_budget(void **state) {
    NEEDS_MODEL;
    static const int32_t ends[] = {90, 91}, never[] = {90, 92};
    cohort_engine *engine = open_engine(2, 4096, 1);
    cohort_request q;
    struct outcome got, free_run;
    make_request(2, &q);
    q.ignore_eos = 1;
    q.max_tokens = 30;
    run_request(engine, &q, &free_run);
    q.reasoning_end = ends;
    q.reasoning_end_n = 2;
    q.reasoning_begin = never;
    q.reasoning_begin_n = 2;
    q.reasoning_budget = 5;
    run_request(engine, &q, &got);
    assert_memory_equal(got.ids, free_run.ids, 30 * sizeof(got.ids[0]));
    assert_int_equal(got.stats.reasoning_tokens, 0);
    assert_int_equal(got.stats.forced_tokens, 0);
    outcome_free(&got);
    q.reasoning_begin = free_run.ids;
    run_request(engine, &q, &got);
    assert_memory_equal(got.ids, free_run.ids, 5 * sizeof(got.ids[0]));
    assert_memory_equal(got.ids + 5, ends, sizeof(ends));
    assert_int_equal(got.stats.reasoning_tokens, 7);
    outcome_free(&got);
    outcome_free(&free_run);
    run_close(0);
}

static void test_special_tokens_have_text_if_wanted(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(2, 4096, 1);
    const int32_t marker = 4; /* <start_of_turn> */
    cohort_request q;
    struct outcome got;
    for (int shown = 0; shown < 2; shown++) {
        make_request(2, &q);
        q.show_special = shown;
        q.reasoning_end = &marker;
        q.reasoning_end_n = 1;
        q.reasoning_budget = 2;
        run_request(engine, &q, &got);
        assert_int_equal(strstr(text_of(&got), "<start_of_turn>") != NULL, shown);
        outcome_free(&got);
    }
    run_close(0);
}

/* ---- Company ---- */
static struct outcome solo[ROWS];

static void run_solo(void) {
    uint32_t tokens = 0;
    cohort_engine *engine = open_engine(1, 4096, 0);
    for (uint32_t i = 0; i < ROWS; i++) {
        cohort_request q;
        make_request(i, &q);
        run_request(engine, &q, &solo[i]);
        tokens += solo[i].ids_n;
    }
    assert_true(tokens > 8 * ROWS);
    run_close(0);
}

static void free_solo(void) {
    for (uint32_t i = 0; i < ROWS; i++) outcome_free(&solo[i]);
}

static uint32_t run_company(cohort_engine *engine, uint64_t seed) {
    cohort_id ids[ROWS], noise[ROWS];
    uint32_t preemptions = 0;
    struct outcome got = {0};
    for (uint32_t i = 0; i < ROWS; i++) {
        cohort_request q;
        uint32_t at = (uint32_t)((i + seed) % ROWS);
        make_request((at + 5) % ROWS, &q);
        noise[at] = run_submit(engine, &q);
        make_request(at, &q);
        ids[at] = run_submit(engine, &q);
        usleep((useconds_t)(rng_u64(seed, 5, i) % 300));
        if (i % 2) cohort_cancel(engine, noise[at]);
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        char what[32];
        memset(&got, 0, sizeof(got));
        run_finish(engine, ids[i], &got);
        snprintf(what, sizeof(what), "row %u", i);
        outcome_assert_equal(&solo[i], &got, what);
        assert_int_equal(solo[i].stats.forced_tokens, got.stats.forced_tokens);
        assert_int_equal(solo[i].stats.reasoning_tokens, got.stats.reasoning_tokens);
        preemptions += got.stats.preemptions;
        outcome_free(&got);
        memset(&got, 0, sizeof(got));
        run_finish(engine, noise[i], &got);
        outcome_free(&got);
    }
    return preemptions;
}

static void test_company_changes_nothing(void **state) {
    NEEDS_MODEL;
    uint32_t preemptions = 0, some = fake_backend.some, none = fake_backend.none;
    fake_backend.end = -1; /* long answers: only those are preempted */
    run_solo();
    for (int slow = 0; slow < 2; slow++)
        for (int tight = 0; tight < 2; tight++)
            for (int pipeline = 0; pipeline < 2; pipeline++) {
                if (has_fake()) fake_grammar.mask_us = slow ? 50 : 0;
                cohort_engine *engine = open_engine(ROWS, tight ? 640 : 8192, pipeline);
                for (uint64_t round = 0; round < ROUNDS / 4; round++) preemptions += run_company(engine, round);
                run_close(0);
            }
    assert_true(preemptions > 0);
    /* What was not wanted was no number. */
    assert_true(fake_backend.some > some + 100 && fake_backend.none > none + 100);
    free_solo();
}

/* ---- Continuations ---- */
static cohort_saved_token saved[TOKENS];
static cohort_logprob tops[TOKENS][COHORT_TOP_LOGPROBS_MAX];

static uint32_t save(cohort_engine *engine, const cohort_request *q) {
    cohort_id id = run_submit(engine, q);
    cohort_event e;
    uint32_t n = 0;
    for (;;) {
        int code = cohort_next(engine, id, &e);
        if (code == COHORT_E_AGAIN) {
            assert_int_equal(cohort_wait(engine, id, 60000), COHORT_OK);
            continue;
        }
        assert_int_equal(code, COHORT_OK);
        if (e.type == COHORT_EVENT_FINISH) break;
        memcpy(tops[n], e.top, e.top_n * sizeof(*e.top));
        saved[n] = (cohort_saved_token){e.token, e.logprob, e.sampler_state, e.top_n, tops[n]};
        n++;
    }
    cohort_drop(engine, id);
    return n;
}

static void test_continuations_equal_the_whole(void **state) {
    NEEDS_MODEL;
    run_solo();
    cohort_engine *engine = open_engine(4, 4096, 1);
    for (uint32_t i = 0; i < ROWS; i++) {
        cohort_request q;
        struct outcome got;
        make_request(i, &q);
        uint32_t n = save(engine, &q);
        assert_int_equal(n, solo[i].ids_n);
        q.resume = saved;
        for (uint32_t k = 1; k <= n;
             k += k < 20 || k + 4 > n ? 1 : 7) { /* behind the last, too: what ended it then ends it again */
            q.resume_n = k;
            run_request(engine, &q, &got);
            if (k < n || solo[i].stop_index < 0) {
                outcome_assert_equal(&solo[i], &got, "a continuation");
                assert_int_equal(solo[i].stats.forced_tokens, got.stats.forced_tokens);
                assert_int_equal(solo[i].stats.reasoning_tokens, got.stats.reasoning_tokens);
            }
            outcome_free(&got);
        }
    }
    run_close(0);
    free_solo();
}

static void expect_refusal(cohort_engine *engine, const cohort_request *q, int code, const char *field) {
    cohort_ticket ticket;
    cohort_id id;
    cohort_error err = {0};
    assert_int_equal(cohort_reserve(engine, &ticket, &err), 0);
    assert_int_equal(cohort_submit(engine, ticket, q, &id, &err), code);
    assert_string_equal(err.field, field);
}

static void test_what_is_wrong_is_refused_by_name(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 4096, 1);
    cohort_request q;
    static int32_t many[COHORT_STOP_IDS_MAX + 1];
    const int32_t beyond[] = {(int32_t)info.vocab_size};
    make_request(0, &q);
    assert_true(save(engine, &q) > 3);
    q.resume = saved;
    q.resume_n = 3;
    saved[2].token = 530; /* nothing that the text begins with */
    expect_refusal(engine, &q, COHORT_E_ARGUMENT, "resume");
    make_request(0, &q);
    q.show_special = 2;
    expect_refusal(engine, &q, COHORT_E_ARGUMENT, "show_special");
    make_request(0, &q);
    q.reasoning_end = many;
    q.reasoning_end_n = COHORT_STOP_IDS_MAX + 1;
    expect_refusal(engine, &q, COHORT_E_ARGUMENT, "reasoning_end");
    q.reasoning_end = NULL;
    q.reasoning_end_n = 0;
    q.reasoning_begin = many;
    q.reasoning_begin_n = 1;
    expect_refusal(engine, &q, COHORT_E_ARGUMENT, "reasoning_begin");
    q.reasoning_begin = NULL;
    q.reasoning_begin_n = 0;
    q.reasoning_end = beyond;
    q.reasoning_end_n = 1;
    expect_refusal(engine, &q, COHORT_E_ARGUMENT, "reasoning_end");
    cohort_model *other = run_open_vocabulary("llama");
    struct grammar_mix others;
    grammar_mix_open(&others, other);
    make_request(0, &q);
    q.grammar = others.of[0];
    expect_refusal(engine, &q, COHORT_E_ARGUMENT, "grammar");
    grammar_mix_close(&others);
    cohort_model_close(other);
    run_close(0);
}

/* ---- What fails ends one row ---- */
static void test_failures_end_one_row(void **state) {
    NEEDS_MODEL;
    run_solo();
    cohort_engine *engine = open_engine(8, 8192, 1);
    static const int32_t digits[] = {27, 28};
    cohort_request q, neighbour;
    struct outcome got, beside;
    for (int kind = 0; kind < 3; kind++) {
        int code = kind == 0 ? COHORT_E_ARGUMENT : kind == 1 ? COHORT_E_LIMIT : COHORT_E_NUMERIC;
        if (kind == 1 && !has_fake()) continue;
        make_request(2, &neighbour);
        cohort_id id = run_submit(engine, &neighbour);
        make_request(0, &q);
        q.grammar = mixes.of[2];
        q.ignore_eos = 1;
        if (kind == 0) { /* nothing that both allow, and no end yet */
            q.allowed_ids = digits;
            q.allowed_ids_n = 2;
        }
        if (kind == 1) fake_grammar.break_after = 3;
        if (kind == 2) {
            fake_backend.poison = (int32_t)info.vocab_size - 5;
            prompts[0][1] = (int32_t)info.vocab_size - 5;
        }
        run_request(engine, &q, &got);
        assert_int_equal(got.finish, COHORT_FINISH_ERROR);
        assert_int_equal(got.error, code);
        memset(&beside, 0, sizeof(beside));
        run_finish(engine, id, &beside);
        outcome_assert_equal(&solo[2], &beside, "the neighbour");
        outcome_free(&beside);
        outcome_free(&got);
        if (has_fake()) fake_grammar.break_after = 0;
        fake_backend.poison = -1;
    }
    run_close(0);
    free_solo();
}

/* ---- Compiling ---- */
enum { ASKERS = 8 };
static cohort_grammar *asked[ASKERS];
static const char shared_text[] = "a text that many ask for[0-9]";

static void *ask(void *at) {
    cohort_grammar_source source = {COHORT_GRAMMAR_REGEX, shared_text, sizeof(shared_text) - 1, 0};
    assert_int_equal(cohort_grammar_compile(model, &source, at, NULL), 0);
    return NULL;
}

static void test_a_grammar_is_compiled_once(void **state) {
    NEEDS_MODEL;
    pthread_t threads[ASKERS];
    int before = has_fake() ? fake_grammar.compiles : 0;
    if (has_fake()) fake_grammar.compile_us = 20000;
    for (int i = 0; i < ASKERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask, &asked[i]), 0);
    for (int i = 0; i < ASKERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < ASKERS; i++) {
        assert_ptr_equal(asked[i], asked[0]);
        cohort_grammar_release(asked[i]);
    }
    if (has_fake()) assert_int_equal(fake_grammar.compiles, before + 1);
}

static int compile_text(const char *text, int32_t space, cohort_grammar **out, cohort_error *err) {
    cohort_grammar_source source = {COHORT_GRAMMAR_REGEX, text, strlen(text), space};
    return cohort_grammar_compile(model, &source, out, err);
}

static void test_refusals_are_remembered(void **state) {
    NEEDS_MODEL;
    cohort_grammar *g;
    cohort_error err = {0};
    cohort_grammar_source none = {COHORT_GRAMMAR_NONE, "", 0, 0}, large = {COHORT_GRAMMAR_REGEX, "", (1 << 20) + 1, 0};
    assert_int_equal(cohort_grammar_compile(model, &none, &g, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "grammar");
    assert_int_equal(cohort_grammar_compile(model, &large, &g, &err), COHORT_E_LIMIT);
    assert_int_equal(compile_text("a", -1, &g, &err), COHORT_E_ARGUMENT);
    assert_int_equal(compile_text("a", COHORT_GRAMMAR_SPACE_MAX + 1, &g, &err), COHORT_E_ARGUMENT);
    assert_int_equal(compile_text("(", 0, &g, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "grammar");
    assert_null(g);
    if (!has_fake()) return;
    int before = fake_grammar.compiles;
    cohort_error again = {0};
    assert_int_equal(compile_text("(", 0, &g, &again), COHORT_E_ARGUMENT);
    assert_string_equal(again.text, err.text);
    assert_int_equal(fake_grammar.compiles, before);
    fake_grammar.compile_code = COHORT_E_MEMORY; /* that is not the text's fault */
    assert_int_equal(compile_text("b", 0, &g, &err), COHORT_E_MEMORY);
    fake_grammar.compile_code = 0;
    assert_int_equal(compile_text("b", 0, &g, &err), 0);
    cohort_grammar_release(g);
    /* No more of them than a client can fill memory with. */
    char text[32];
    for (int i = 0; i < 200; i++) {
        snprintf(text, sizeof(text), "%d(", i);
        assert_int_equal(compile_text(text, 0, &g, &err), COHORT_E_ARGUMENT);
    }
    before = fake_grammar.compiles;
    assert_int_equal(compile_text("199(", 0, &g, &err), COHORT_E_ARGUMENT);
    assert_int_equal(fake_grammar.compiles, before);
    assert_int_equal(compile_text("0(", 0, &g, &err), COHORT_E_ARGUMENT);
    assert_int_equal(fake_grammar.compiles, before + 1);
}

/* What is kept is bounded, and what a request holds lives on. */
static void test_the_oldest_is_forgotten(void **state) {
    NEEDS_MODEL;
    if (!has_fake()) skip();
    cohort_model_options o;
    cohort_model *small;
    cohort_grammar *first, *g;
    char path[4096], text[32];
    cohort_model_options_defaults(&o);
    o.vocab_only = 1;
    o.grammar_cache_bytes = 20000;
    run_model_path("gemma3", path);
    assert_int_equal(cohort_model_open(path, &o, &small, NULL), 0);
    int before = fake_grammar.grammars;
    cohort_grammar_source source = {COHORT_GRAMMAR_REGEX, "first", 5, 0};
    assert_int_equal(cohort_grammar_compile(small, &source, &first, NULL), 0);
    for (int i = 0; i < 50; i++) {
        source = (cohort_grammar_source){COHORT_GRAMMAR_REGEX, text, (size_t)snprintf(text, sizeof(text), "t%d", i), 0};
        assert_int_equal(cohort_grammar_compile(small, &source, &g, NULL), 0);
        cohort_grammar_release(g);
    }
    int kept = fake_grammar.grammars - before;
    assert_true(kept > 3 && kept < 20);
    source = (cohort_grammar_source){COHORT_GRAMMAR_REGEX, "first", 5, 0};
    assert_int_equal(cohort_grammar_compile(small, &source, &g, NULL), 0);
    assert_ptr_not_equal(g, first); /* it was forgotten, and is still whole */
    cohort_grammar_release(g);
    cohort_grammar_release(first);
    source.space = 2; /* another grammar */
    int compiles = fake_grammar.compiles;
    assert_int_equal(cohort_grammar_compile(small, &source, &g, NULL), 0);
    assert_int_equal(fake_grammar.compiles, compiles + 1);
    cohort_grammar_release(g);
    cohort_model_close(small);
    assert_int_equal(fake_grammar.grammars, before);
}

static void test_nothing_is_left_behind(void **state) {
    NEEDS_MODEL;
    if (!has_fake()) skip();
    assert_int_equal(fake_grammar.states, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answers_follow_their_grammar, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_a_grammar_at_its_end_ends_the_row, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_forced_tokens_are_told_of, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_forced_text_is_read_at_once, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_reasoning_ends_at_its_budget, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_reasoning_that_was_not_opened_has_no_budget, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_special_tokens_have_text_if_wanted, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_company_changes_nothing, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_continuations_equal_the_whole, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_what_is_wrong_is_refused_by_name, begin, run_close_engine),
        cmocka_unit_test_setup_teardown(test_failures_end_one_row, begin, run_close_engine),
        cmocka_unit_test_setup(test_a_grammar_is_compiled_once, begin),
        cmocka_unit_test_setup(test_refusals_are_remembered, begin),
        cmocka_unit_test_setup(test_the_oldest_is_forgotten, begin),
        cmocka_unit_test_setup(test_nothing_is_left_behind, begin),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
