/* State that survives a request (S1 to S8, pains 13 to 26), case by case, through cohort.h, on the backend that counts
 * what it computes and whose answers show every wrong page (fake_backend.h). What is right is what the same request
 * says alone on an engine that stores nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine_run.h"
#include "histories.h"

enum { PAGE = 32, ASKS_MAX = 64, LONG = 8192 };

static struct history_model m;
static struct oracle *oracle;
static cohort_engine *engine;
static struct ask asks[ASKS_MAX];
static int32_t ids[LONG];
static const char *playing;

/* ---- The stage ---- */
static cohort_engine_options defaults(void) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 1024;
    o.rows = 8;
    o.queue = 64;
    o.batch_tokens = 64;
    o.kv_tokens = 1 << 16;
    o.snapshot_stride = 0;
    return o;
}

static void open_engine(const cohort_engine_options *o) {
    cohort_error err = {0};
    cohort_engine_options with = *o;
    history_model_forms(&m, &with);
    if (cohort_engine_open(m.played, &with, &engine, &err) != 0) fail_msg("%s: %s", err.field, err.text);
}

static void close_engine(void) {
    cohort_engine_close(engine, 0);
    engine = NULL;
}

static void open_model(const char *name) {
    playing = name;
    if (!history_model_open(&m, name, NULL)) skip();
    fake_backend.when = FAKE_AT_WAIT;
    oracle = oracle_new(&m);
    fake_backend.when = FAKE_AT_WAIT;
    fake_backend.end = m.eos;
    run_prompt(ids, LONG, m.vocab, 1);
}

static void close_model(void) {
    oracle_free(oracle);
    oracle = NULL;
    history_model_close(&m);
}

static int clean(void **state) {
    for (uint32_t i = 0; i < ASKS_MAX; i++) answer_free(&asks[i].got);
    fake_backend.delay_us = fake_backend.hold = fake_backend.refuse_launch = 0;
    fake_backend.poison = fake_backend.end = -1;
    return 0;
}

static int leave(void **state) {
    if (engine) close_engine();
    return clean(state);
}

/* ---- Requests ---- */
static struct ask *make(uint32_t i, const int32_t *prompt, uint32_t n, uint32_t max_tokens) {
    struct ask *a = &asks[i];
    answer_free(&a->got);
    memset(a, 0, sizeof(*a));
    a->mix = SAMPLER_MIXES;
    a->grammar = GRAMMAR_MIXES;
    cohort_request_defaults(&a->q);
    a->q.prompt = prompt;
    a->q.prompt_n = n;
    a->q.max_tokens = max_tokens;
    a->q.sampling.has_seed = 1;
    a->q.sampling.temperature = 0;
    a->q.ignore_eos = 1;
    return a;
}

static void submit(struct ask *a) {
    cohort_ticket ticket;
    cohort_error err = {0};
    if (cohort_reserve_for(engine, a->tenant, &ticket, &err) != 0) fail_msg("reserve: %s", err.text);
    if (cohort_submit(engine, ticket, &a->q, &a->id, &err) != 0) fail_msg("submit: %s: %s", err.field, err.text);
}

static void finish(struct ask *a) {
    while (!a->got.done)
        if (!answer_take(engine, a->id, &a->got, UINT32_MAX) && cohort_wait(engine, a->id, 60000) != COHORT_OK)
            fail_msg("no event for a minute");
    cohort_drop(engine, a->id);
}

static void await_token(struct ask *a) {
    while (a->got.tokens_n == 0) {
        assert_int_equal(cohort_wait(engine, a->id, 60000), COHORT_OK);
        answer_take(engine, a->id, &a->got, 1);
        assert_false(a->got.done);
    }
}

static uint32_t play(struct ask *a) {
    submit(a);
    finish(a);
    return a->got.stats.cached_tokens;
}

/* Events of `a` against the oracle's; cached tokens within what S1 allows. */
static void assert_right(struct ask *a, const char *what) {
    const struct answer *got = &a->got, *want = oracle_answer(oracle, a);
    uint32_t n = 0;
    while (n < got->tokens_n && n < want->tokens_n && got->tokens[n].token == want->tokens[n].token) n++;
    if (got->events.len != want->events.len || memcmp(got->events.data, want->events.data, got->events.len) != 0)
        fail_msg("%s, %s, prompt of %zu, %u cached: %u and %u tokens, the first difference at %u; finish %d and %d",
                 playing, what, a->q.prompt_n, got->stats.cached_tokens, got->tokens_n, want->tokens_n, n,
                 (int)got->finish, (int)want->finish);
    assert_true(got->stats.cached_tokens < a->q.prompt_n);
}

static void assert_cached(const struct ask *a, uint32_t least, uint32_t most, const char *what) {
    uint32_t cached = a->got.stats.cached_tokens;
    if (cached < least || cached > most)
        fail_msg("%s, %s, prompt of %zu: %u tokens from the store, not %u to %u", playing, what, a->q.prompt_n, cached,
                 least, most);
}

static cohort_metrics metrics(void) {
    cohort_metrics out;
    cohort_metrics_get(engine, &out);
    return out;
}

/* Tokens that were computed since the last call, once nothing runs. */
static uint64_t computed(void) {
    static uint64_t before;
    RUN_UNTIL(cohort_engine_idle(engine) && !fake_backend.running);
    uint64_t n = fake_backend.tokens - before;
    before += n;
    return n;
}

/* Requests with prompts of their own, so that what is in a small store is displaced. */
static void pass_through(uint32_t n, uint32_t prompt_n) {
    static int32_t other[1024];
    for (uint32_t i = 0; i < n; i++) {
        run_prompt(other, prompt_n, m.vocab, 1000 + i);
        play(make(ASKS_MAX - 1, other, prompt_n, 2));
    }
}

static void assert_nothing_is_held(void) {
    RUN_UNTIL(metrics().kv_pages_used == 0 && cohort_engine_idle(engine));
    cohort_engine_options o;
    cohort_engine_get_options(engine, &o);
    assert_true(metrics().cache_bytes <= o.kv_bytes);
}

static const char *const all_models[] = {"llama",   "gemma3", "gemma3:33",    "gemma3:64",        "gemma3:100",
                                         "qwen3_5", "lfm2",   "llama@1/2/64", "gemma3:64@2/1/96", "qwen3_5@1/1/32",
                                         NULL};

/* ---- Equal bytes ---- */
/* A request and what a conversation makes of it: said again, cut short, gone on with, edited in the middle. */
struct family {
    int32_t prompt[5][700];
    uint32_t n[5];
};

static void make_family(struct family *f, uint32_t n) {
    const struct answer *first = oracle_answer(oracle, make(0, ids, n, 40));
    for (int i = 0; i < 5; i++) memcpy(f->prompt[i], ids, n * sizeof(ids[0]));
    f->n[0] = f->n[1] = f->n[4] = n;
    f->n[2] = n - n / 3;
    f->n[3] = n;
    for (uint32_t i = 0; i < first->tokens_n; i++) f->prompt[3][f->n[3]++] = first->tokens[i].token;
    for (uint32_t i = 0; i < 21; i++) f->prompt[3][f->n[3]++] = ids[n + i];
    f->prompt[4][n / 2] = ids[n / 2] == 30 ? 31 : 30;
}

static const char *const member_names[5] = {"cold", "warm", "cut short", "gone on with", "edited in the middle"};

static struct ask *member(const struct family *f, int i, uint32_t at) {
    struct ask *a = make((uint32_t)i, f->prompt[i], f->n[i], 40);
    a->q.snapshot_at = a->snapshots;
    a->q.snapshot_at_n = at > 0 && at < f->n[i];
    a->snapshots[0] = at;
    return a;
}

static void play_family(const struct family *f, uint32_t at, int together) {
    for (int i = 0; i < 5; i++) {
        struct ask *a = member(f, i, at);
        submit(a);
        if (!together) finish(a);
    }
    for (int i = 0; i < 5; i++) {
        if (together) finish(&asks[i]);
        assert_right(&asks[i], member_names[i]);
    }
    if (together) return;
    if (f->n[1] > PAGE) assert_cached(&asks[1], f->n[1] - 1 - PAGE, f->n[1] - 1, "warm");
    /* What its first asker left: the prompt, and all but the last token of the answer. */
    if (f->n[0] + 39 >= PAGE) assert_cached(&asks[3], f->n[0] + 39 - PAGE, f->n[0] + 39, "gone on with");
    assert_cached(&asks[4], m.window || m.recurrent || f->n[0] < PAGE ? 0 : f->n[0] / 2, f->n[0] / 2, "edited");
}

static void around_borders(uint32_t n, uint32_t at) {
    static struct family f;
    cohort_engine_options o = defaults();
    o.batch_tokens = 48; /* the chunk */
    make_family(&f, n);
    open_engine(&o);
    play_family(&f, at, 0);
    for (int i = 0; i < 5; i++) { /* with a neighbour that has the same beginning and runs */
        struct ask *neighbour = make(10, f.prompt[0], f.n[0], 200), *a;
        fake_backend.delay_us = 50;
        submit(neighbour);
        await_token(neighbour);
        a = member(&f, i, at);
        play(a);
        assert_right(a, "with a running neighbour");
        cohort_cancel(engine, neighbour->id);
        finish(neighbour);
        fake_backend.delay_us = 0;
    }
    assert_nothing_is_held();
    close_engine();
    o.kv_tokens = 800; /* little more than the largest: things are displaced, and rows preempted */
    open_engine(&o);
    for (int round = 0; round < 2; round++) {
        play_family(&f, at, 1);
        pass_through(6, 150);
        for (int i = 0; i < 5; i++) {
            struct ask *a = member(&f, i, at);
            play(a);
            assert_right(a, "after others");
        }
    }
    assert_nothing_is_held();
    close_engine();
}

static void s1_s4_equal_around_every_border(void **state) {
    for (int k = 0; all_models[k]; k++) {
        open_model(all_models[k]);
        const uint32_t w = m.window ? m.window : 40, at = 75;
        const uint32_t lengths[] = {1,      2,      31, 32,     33,     47,         48,     49,         63,
                                    64,     65,     95, 96,     97,     w - 1,      w,      w + 1,      w + 31,
                                    w + 32, w + 33, at, at + 1, at + 2, 2 * 48 - 1, 2 * 48, 2 * 48 + 1, 512};
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) around_borders(lengths[i], i % 2 ? at : 0);
        close_model();
    }
}

/* S4, pain 16: a beginning that several texts share is a place to go on as soon as two have had it, though nobody named
 * it. Full layers need no such place. */
static void s4_where_texts_part_is_a_place_to_go_on(void **state) {
    for (int k = 0; all_models[k]; k++) {
        open_model(all_models[k]);
        cohort_engine_options o = defaults();
        o.batch_tokens = 256;
        open_engine(&o);
        static int32_t text[3][400];
        for (uint32_t i = 0; i < 3; i++) {
            run_prompt(text[i], 400, m.vocab, 50 + i);
            memcpy(text[i], ids, 230 * sizeof(ids[0]));
            text[i][230] = (int32_t)(20 + i);
            struct ask *a = make(i, text[i], 400, 4);
            play(a);
            assert_right(a, "of three that begin alike");
            uint32_t least = i == 2 || (i == 1 && !m.window && !m.recurrent) ? 224 : 0;
            assert_cached(a, least, i > 0 ? 230 : 0, "of three that begin alike");
        }
        close_engine();
        close_model();
    }
}

/* S3: preempted rows come back to what they left in the store, and say the same. */
static void s3_preempted_rows_find_their_state(void **state) {
    for (int k = 0; all_models[k]; k++) {
        open_model(all_models[k]);
        cohort_engine_options o = defaults();
        o.kv_tokens = 640;
        open_engine(&o);
        cohort_engine_hold(engine, 1);
        for (uint32_t i = 0; i < 6; i++) submit(make(i, ids, 100 + i, 300));
        cohort_engine_hold(engine, 0);
        uint32_t preempted = 0;
        for (uint32_t i = 0; i < 6; i++) {
            finish(&asks[i]);
            assert_right(&asks[i], "preempted");
            preempted += asks[i].got.stats.preemptions;
        }
        assert_true(preempted > 0);
        assert_nothing_is_held();
        close_engine();
        close_model();
    }
}

/* T2: a continuation that gives its state up before all that it was given is read again goes on where it should. */
static void t2_a_continuation_is_preempted(void **state) {
    open_model("llama");
    cohort_engine_options o = defaults();
    o.kv_tokens = 1024;
    open_engine(&o);
    struct ask *a = make(0, ids, 600, 60), *b = make(1, ids + 2000, 32, 900);
    const struct answer *want = oracle_answer(oracle, a);
    a->q.resume = want->tokens;
    a->q.resume_n = 50;
    a->q.chunk_max = 1;
    a->q.priority = 1;
    cohort_engine_hold(engine, 1);
    submit(b);
    submit(a);
    cohort_engine_hold(engine, 0);
    finish(b);
    finish(a);
    assert_true(a->got.stats.preemptions > 0);
    assert_right(a, "a continuation");
    assert_right(b, "its neighbour");
    assert_nothing_is_held();
    close_engine();
    close_model();
}

/* ---- What is saved ---- */
/* S8: whoever reads the same beginning waits for the first and takes it. */
static void s8_sixteen_equal_prompts_are_read_once(void **state) {
    for (int k = 0; all_models[k]; k++)
        for (int how = 0; how < 3; how++) { /* together; one by one, while the first is read; with ends of their own */
            static int32_t prompt[16][2000];
            open_model(all_models[k]);
            cohort_engine_options o = defaults();
            o.context = 4096;
            o.rows = 16;
            open_engine(&o);
            computed();
            if (how != 1) cohort_engine_hold(engine, 1);
            for (uint32_t i = 0; i < 16; i++) {
                memcpy(prompt[i], ids, sizeof(prompt[i]));
                if (how == 2) prompt[i][1999] = (int32_t)(10 + i);
                submit(make(i, prompt[i], 2000, 4));
                if (how == 1 && i == 0) RUN_UNTIL(metrics().iterations > 1);
            }
            cohort_engine_hold(engine, 0);
            for (uint32_t i = 0; i < 16; i++) finish(&asks[i]);
            uint64_t n = computed();
            if (n > 2000 + 16 * 64) fail_msg("%s: %llu tokens computed", playing, (unsigned long long)n);
            for (uint32_t i = 0; i < 16; i++) assert_right(&asks[i], "one of sixteen");
            assert_nothing_is_held();
            close_engine();
            close_model();
        }
}

/* S8: a row that only begins like one that is being read takes the common beginning and goes on beside it. */
static void s8_a_common_beginning_is_read_once(void **state) {
    static int32_t prompt[8][700];
    open_model("llama");
    cohort_engine_options o = defaults();
    open_engine(&o);
    computed();
    cohort_engine_hold(engine, 1);
    for (uint32_t i = 0; i < 8; i++) {
        memcpy(prompt[i], ids, sizeof(prompt[i]));
        run_prompt(prompt[i] + 500, 200, m.vocab, 50 + i);
        submit(make(i, prompt[i], 700, 4));
    }
    cohort_engine_hold(engine, 0);
    for (uint32_t i = 0; i < 8; i++) finish(&asks[i]);
    uint64_t n = computed();
    if (n > 500 + 8 * (200 + PAGE + 4)) fail_msg("%llu tokens computed", (unsigned long long)n);
    for (uint32_t i = 0; i < 8; i++) assert_right(&asks[i], "a branch");
    close_engine();
    close_model();
}

/* Pain 13: a hit of a whole long prompt reads its end again, once, and its first token is there two steps later. */
static void s1_a_full_hit_of_8000_tokens(void **state) {
    for (int k = 0; all_models[k]; k++) {
        open_model(all_models[k]);
        cohort_engine_options o = defaults();
        o.context = 8192;
        o.batch_tokens = 256;
        open_engine(&o);
        struct ask *a = make(0, ids, 8000, 1);
        play(a);
        assert_right(a, "cold");
        assert_cached(a, 0, 0, "cold");
        assert_int_equal(computed(), 8000);
        uint32_t batches = fake_backend.batches;
        a = make(1, ids, 8000, 1);
        play(a);
        assert_right(a, "warm");
        uint64_t n = computed();
        assert_true(n >= 1 && n <= 33);
        assert_int_equal(a->got.stats.cached_tokens, 8000 - n);
        assert_true(fake_backend.batches - batches <= 2);
        cohort_metrics now = metrics();
        assert_int_equal(now.cache_hits, 1);
        assert_int_equal(now.cached_tokens, 8000 - n);
        assert_int_equal(now.prompt_tokens, n + 8000);
        close_engine();
        close_model();
    }
}

/* S4, P7: places to go on inside a windowed prompt are where they were asked for, by stride and by name. */
static void s4_snapshots_by_stride_and_by_name(void **state) {
    static int32_t prompt[300];
    for (int by_name = 0; by_name < 2; by_name++) {
        open_model("gemma3:64");
        cohort_engine_options o = defaults();
        o.snapshot_stride = by_name ? 0 : 64;
        open_engine(&o);
        struct ask *a = make(0, ids, 300, 1);
        if (by_name) {
            a->snapshots[0] = 140;
            a->q.snapshot_at = a->snapshots;
            a->q.snapshot_at_n = 1;
        }
        play(a);
        memcpy(prompt, ids, sizeof(prompt));
        run_prompt(prompt + 150, 150, m.vocab, 9);
        a = make(1, prompt, 300, 8);
        play(a);
        assert_right(a, "branched behind a snapshot");
        assert_cached(a, by_name ? 128 : 96, 150, "branched behind a snapshot");
        close_engine();
        close_model();
    }
}

/* S8: a running row's state is there for others. */
static void s8_a_running_row_lends_its_state(void **state) {
    for (int k = 0; all_models[k]; k++) {
        static int32_t prompt[400];
        open_model(all_models[k]);
        cohort_engine_options o = defaults();
        open_engine(&o);
        fake_backend.delay_us = 200;
        struct ask *lender = make(0, ids, 300, 600), *a;
        submit(lender);
        await_token(lender);
        memcpy(prompt, ids, sizeof(prompt));
        a = make(1, prompt, 300, 4);
        play(a);
        assert_false(lender->got.done);
        assert_cached(a, 299 - PAGE, 299, "beside its lender");
        cohort_cancel(engine, lender->id);
        finish(lender);
        assert_int_equal(lender->got.finish, COHORT_FINISH_CANCELLED);
        fake_backend.delay_us = 0;
        assert_right(a, "beside its lender");
        assert_nothing_is_held();
        close_engine();
        close_model();
    }
}

/* Pain 25: what is stored makes room before anybody is preempted or refused. */
static void s6_the_store_gives_way_first(void **state) {
    for (int k = 0; all_models[k]; k++) {
        open_model(all_models[k]);
        cohort_engine_options o = defaults();
        o.kv_tokens = 1024;
        open_engine(&o);
        pass_through(30, 120);
        assert_true(metrics().cache_evictions > 0);
        struct ask *a = make(0, ids, 900, 100);
        play(a);
        assert_right(a, "in a full store");
        assert_int_equal(metrics().preemptions, 0);
        assert_nothing_is_held();
        close_engine();
        close_model();
    }
}

/* ---- What must not be stored ---- */
/* The first place from `at` on with an id that was not there before. */
static uint32_t first_new(uint32_t at) {
    uint32_t i = 0;
    while (i < at) {
        int repeats = ids[i++] == ids[at];
        if (!repeats) continue;
        at++;
        i = 0;
    }
    return at;
}

/* Pain 40, S5: of a row that failed nothing is left, and nothing that was there before is lost. */
static void s5_nan_leaves_nothing(void **state) {
    for (int k = 0; all_models[k]; k++) {
        open_model(all_models[k]);
        cohort_engine_options o = defaults();
        open_engine(&o);
        play(make(0, ids, 64, 2)); /* sound */
        uint32_t at = first_new(150);
        fake_backend.poison = ids[at];
        struct ask *a = make(1, ids, at + 20, 4);
        play(a);
        assert_int_equal(a->got.finish, COHORT_FINISH_ERROR);
        assert_int_equal(a->got.error, COHORT_E_NUMERIC);
        fake_backend.poison = -1;
        a = make(2, ids, 250, 4);
        play(a);
        assert_right(a, "after NaN");
        assert_cached(a, 32, 65, "after NaN");
        close_engine();
        close_model();
    }
}

/* F2, S5. */
static void s5_a_refused_launch_leaves_nothing(void **state) {
    for (int k = 0; all_models[k]; k++)
        for (int nth = 1; nth < 5; nth++) {
            open_model(all_models[k]);
            cohort_engine_options o = defaults();
            open_engine(&o);
            fake_backend.refuse_launch = nth;
            struct ask *a = make(0, ids, 200, 4), *b = make(1, ids, 200, 4);
            cohort_engine_hold(engine, 1);
            submit(a);
            submit(b); /* follows, and reads for itself when its leader is gone, or fails with it */
            cohort_engine_hold(engine, 0);
            finish(a);
            finish(b);
            assert_int_equal(a->got.finish, COHORT_FINISH_ERROR);
            int both = b->got.finish == COHORT_FINISH_ERROR;
            if (!both) assert_right(b, "behind a failed leader");
            assert_nothing_is_held();
            a = make(2, ids, 200, 4);
            play(a);
            assert_right(a, "after a refused launch");
            assert_cached(a, 0, both ? 0 : 199, "after a refused launch");
            close_engine();
            close_model();
        }
}

/* Pain 22: positions whose outputs are asked for are computed; what they leave is as good as any. */
static void prompt_logprobs_are_never_from_the_store(void **state) {
    for (int k = 0; all_models[k]; k++) {
        open_model(all_models[k]);
        cohort_engine_options o = defaults();
        open_engine(&o);
        play(make(0, ids, 150, 4));
        struct ask *a = make(1, ids, 150, 4);
        a->q.prompt_logprobs = 1;
        play(a);
        assert_right(a, "scored after a hit");
        assert_cached(a, 0, 0, "scored");
        close_engine();
        open_engine(&o);
        a = make(2, ids, 150, 0);
        a->q.prompt_logprobs = 1;
        play(a);
        assert_right(a, "scored");
        a = make(3, ids, 150, 4);
        play(a);
        assert_right(a, "behind a scored one");
        assert_cached(a, 149 - PAGE, 149, "behind a scored one");
        close_engine();
        close_model();
    }
}

/* Pains 17 to 21, S2. */
static void s2_tenants_and_salts_never_share(void **state) {
    static const cohort_tenant tenants[] = {{.name = "a", .weight = 1}, {.name = "b", .weight = 1}};
    static const struct {
        uint32_t tenant;
        const char *salt;
        size_t n;
    } spaces[] = {{0, NULL, 0}, {1, NULL, 0}, {0, "s", 1}, {0, "s\0", 2}, {0, "s\0t", 3}, {1, "s", 1}, {0, "\0", 1}};
    enum { SPACES = sizeof(spaces) / sizeof(spaces[0]) };
    open_model("gemma3:33");
    cohort_engine_options o = defaults();
    o.tenants = tenants;
    o.tenants_n = 2;
    open_engine(&o);
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < SPACES; i++) {
            struct ask *a = make(i, ids, 150, 4);
            a->tenant = spaces[i].tenant;
            a->q.cache_salt = spaces[i].salt;
            a->q.cache_salt_n = spaces[i].n;
            play(a);
            assert_right(a, "in its space");
            if (round == 0)
                assert_cached(a, 0, 0, "first in its space");
            else
                assert_cached(a, 149 - PAGE, 149, "second in its space");
        }
    /* At the same time, too. */
    cohort_engine_hold(engine, 1);
    for (uint32_t i = 0; i < SPACES; i++) {
        struct ask *a = make(i, ids + 1000, 150, 4);
        a->tenant = spaces[i].tenant;
        a->q.cache_salt = spaces[i].salt;
        a->q.cache_salt_n = spaces[i].n;
        submit(a);
    }
    cohort_engine_hold(engine, 0);
    for (uint32_t i = 0; i < SPACES; i++) {
        finish(&asks[i]);
        assert_right(&asks[i], "beside other spaces");
        assert_cached(&asks[i], 0, 0, "beside other spaces");
    }
    close_engine();
    close_model();
}

/* C4: a request that wants nothing of the store takes nothing and leaves nothing. */
static void cache_prompt_0_stays_apart(void **state) {
    open_model("gemma3:33");
    cohort_engine_options o = defaults();
    open_engine(&o);
    struct ask *a;
    for (int i = 0; i < 4; i++) {
        a = make(0, ids, 150, 4);
        a->q.cache_prompt = i == 2;
        play(a);
        assert_right(a, "apart");
        assert_cached(a, 0, 0, "apart");
    }
    a = make(0, ids, 150, 4);
    play(a);
    assert_cached(a, 149 - PAGE, 149, "not apart");
    close_engine();
    o.cache = 0;
    open_engine(&o);
    for (int i = 0; i < 2; i++) {
        a = make(0, ids, 150, 4);
        play(a);
        assert_cached(a, 0, 0, "without a store");
    }
    assert_int_equal(metrics().cache_blocks, 0);
    close_engine();
    close_model();
}

/* ---- Sessions and memory ---- */
static uint32_t found_after_others(int session) {
    cohort_engine_options o = defaults();
    o.kv_tokens = 1536;
    o.rows = 2;
    open_engine(&o);
    struct ask *a = make(0, ids, 200, 4);
    a->q.session = session ? "s" : NULL;
    a->q.session_n = session ? 1 : 0;
    play(a);
    pass_through(50, 150);
    a = make(1, ids, 200, 4);
    uint32_t cached = play(a);
    assert_right(a, "after fifty others");
    close_engine();
    return cached;
}

static void s2_a_session_keeps_its_state(void **state) {
    for (int k = 0; all_models[k]; k++) {
        open_model(all_models[k]);
        uint32_t with = found_after_others(1), without = found_after_others(0);
        if (with < 199 - PAGE || without > PAGE) fail_msg("%s: %u and %u tokens", playing, with, without);
        close_model();
    }
}

static long resident_kb(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Pain 25: two thousand requests that have nothing in common. */
static void memory_is_flat(void **state) {
    open_model("gemma3:64");
    cohort_engine_options o = defaults();
    o.kv_tokens = 2048;
    open_engine(&o);
    long early = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        char name[16];
        static int32_t prompt[120];
        run_prompt(prompt, 120, m.vocab, 5000 + i);
        struct ask *a = make(0, prompt, 40 + i % 80, 3);
        a->q.session = a->q.cache_salt = name;
        a->q.session_n = (size_t)snprintf(name, sizeof(name), "s%u", i);
        a->q.cache_salt_n = i % 3 ? 0 : a->q.session_n;
        if (i % 3) a->q.cache_salt = NULL;
        if (i % 2) a->q.session = NULL, a->q.session_n = 0;
        play(a);
        if (i % 100 == 0) assert_right(a, "one of two thousand");
        if (i == 500) early = resident_kb();
    }
    long late = resident_kb();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (late > early + 2048) fail_msg("%ld KiB after 500, %ld after 2,000", early, late);
#endif
    assert_true(early >= 0 && late >= 0);
    assert_nothing_is_held();
    assert_true(metrics().cache_evictions > 0);
    struct ask *a = make(0, ids, 1000, 20);
    play(a);
    assert_right(a, "at the end");
    assert_int_equal(metrics().preemptions, 0);
    close_engine();
    close_model();
}

/* ---- Restarts ---- */
static void remove_folder(const char *folder) {
    char command[256];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0) fail_msg("%s", command);
}

/* S7: state is there after a restart, for the same model and for no other. */
static void s7_state_survives_the_engine(void **state) {
    for (int k = 0; all_models[k]; k++) {
        char folder[] = "/tmp/cohort-cache-XXXXXX";
        assert_non_null(mkdtemp(folder));
        cohort_engine_options o = defaults();
        o.state_dir = folder;
        o.state_dir_bytes = 64 << 20;
        struct ask *a;
        const char *others[] = {all_models[k], all_models[k], k ? "gemma3:50" : "gemma3", all_models[k]};
        for (int start = 0; start < 4; start++) {
            open_model(others[start]);
            open_engine(&o);
            for (int again = 0; again < 2; again++) {
                a = make(0, ids, 500, 8);
                play(a);
                assert_right(a, "over restarts");
                if (again || start == 1)
                    assert_cached(a, 499 - PAGE, 499, "over restarts");
                else if (start == 0 || start == 2)
                    assert_cached(a, 0, 0, "of another model");
            }
            a = make(1, ids, 300, 8);
            play(a);
            assert_right(a, "cut, over restarts");
            if (start == 1) assert_true(metrics().disk_restores > 0 && metrics().disk_restored > 0);
            assert_int_equal(metrics().disk_failures, 0);
            close_engine();
            close_model();
        }
        remove_folder(folder);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, clean, leave)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(s1_s4_equal_around_every_border),
        TEST(s4_where_texts_part_is_a_place_to_go_on),
        TEST(s3_preempted_rows_find_their_state),
        TEST(t2_a_continuation_is_preempted),
        TEST(s8_sixteen_equal_prompts_are_read_once),
        TEST(s8_a_common_beginning_is_read_once),
        TEST(s1_a_full_hit_of_8000_tokens),
        TEST(s4_snapshots_by_stride_and_by_name),
        TEST(s8_a_running_row_lends_its_state),
        TEST(s6_the_store_gives_way_first),
        TEST(s5_nan_leaves_nothing),
        TEST(s5_a_refused_launch_leaves_nothing),
        TEST(prompt_logprobs_are_never_from_the_store),
        TEST(s2_tenants_and_salts_never_share),
        TEST(cache_prompt_0_stays_apart),
        TEST(s2_a_session_keeps_its_state),
        TEST(memory_is_flat),
        TEST(s7_state_survives_the_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
