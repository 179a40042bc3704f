/* State that survives the engine, on the fake backend: sessions that are saved, what later requests and other options
 * do to them, and continuations that wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_model.h"

enum { TEXT = 4096 };

static char folder[64];
static int32_t text[TEXT];

static int make_folder(void **state) {
    snprintf(folder, sizeof(folder), "/tmp/cohort-state-XXXXXX");
    assert_non_null(mkdtemp(folder));
    run_prompt(text, TEXT, info.vocab_size, 5);
    return reset(state);
}

static int remove_folder(void **state) {
    char command[128];
    run_close_engine(state);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) == 0 ? 0 : -1;
}

static cohort_engine *open_engine(int cache, uint64_t bytes) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = TEXT;
    o.rows = 4;
    o.batch_tokens = 2048;
    o.kv_tokens = 2 * TEXT;
    o.cache = cache;
    o.state_dir = folder;
    if (bytes) o.state_dir_bytes = bytes;
    return run_open_engine(model, &o);
}

/* The text's first n tokens, as a turn of the session. Returns how many were not computed. */
static uint32_t ask(cohort_engine *engine, uint32_t n, const char *session) {
    struct outcome got;
    cohort_request q;
    cohort_request_defaults(&q);
    q.prompt = text;
    q.prompt_n = n;
    q.max_tokens = 1;
    q.ignore_eos = 1;
    q.sampling.temperature = 0;
    q.session = session;
    q.session_n = session ? strlen(session) : 0;
    run_request(engine, &q, &got);
    assert_int_equal(got.finish, COHORT_FINISH_LENGTH);
    uint32_t cached = got.stats.cached_tokens;
    outcome_free(&got);
    return cached;
}

static cohort_span span(const char *name) { return (cohort_span){name, strlen(name)}; }

static int save(cohort_engine *engine, const char *session, const char *name, uint32_t *tokens) {
    const cohort_span s = span(session), n = span(name);
    cohort_error err = {0};
    int code = cohort_session_save(engine, 0, &s, &n, tokens, NULL, &err);
    assert_int_equal(err.code, code);
    return code;
}

static int restore(cohort_engine *engine, const char *session, const char *name, uint32_t *tokens) {
    const cohort_span s = span(session), n = span(name);
    return cohort_session_restore(engine, 0, &s, &n, tokens, NULL, NULL);
}

/* At once behind a prompt of many blocks: they are on their way, and waited for. */
static void s7_a_save_waits_for_what_is_on_its_way(void **state) {
    NEEDS_MODEL;
    uint32_t tokens;
    cohort_engine *engine = open_engine(1, 0);
    assert_int_equal(save(engine, "a", "x", &tokens), COHORT_E_NOT_FOUND);
    ask(engine, 2000, "a");
    assert_int_equal(save(engine, "a", "x", &tokens), 0);
    assert_true(tokens > 2000 - 32 && tokens <= 2000);
    run_close(0);
    engine = open_engine(1, 0);
    assert_int_equal(restore(engine, "b", "y", &tokens), COHORT_E_NOT_FOUND);
    assert_int_equal(restore(engine, "b", "x", &tokens), 0);
    assert_true(ask(engine, 2000, "b") >= tokens - 32);
    run_close(0);
}

/* The conversation goes on, with its session and without: what was saved is there all the same. */
static void s7_what_is_saved_stays_when_its_text_goes_on(void **state) {
    NEEDS_MODEL;
    uint32_t saved, tokens;
    cohort_engine *engine = open_engine(1, 0);
    ask(engine, 101, "a");
    assert_int_equal(save(engine, "a", "x", &saved), 0);
    for (uint32_t n = 120; n < 400; n += 33) ask(engine, n, n % 2 ? "a" : NULL);
    assert_int_equal(restore(engine, "c", "x", &tokens), 0);
    assert_int_equal(tokens, saved);
    assert_int_equal(save(engine, "c", "z", &tokens), 0);
    run_close(0);
    engine = open_engine(1, 0);
    assert_int_equal(restore(engine, "c", "x", &tokens), 0);
    assert_int_equal(restore(engine, "d", "z", &tokens), 0);
    assert_int_equal(tokens, saved);
    run_close(0);
}

/* A start without the store leaves the folder alone. */
static void s7_a_start_without_the_store_takes_nothing_away(void **state) {
    NEEDS_MODEL;
    uint32_t tokens;
    cohort_engine *engine = open_engine(1, 0);
    ask(engine, 300, "a");
    assert_int_equal(save(engine, "a", "x", NULL), 0);
    run_close(0);
    engine = open_engine(0, 0);
    assert_int_equal(ask(engine, 300, NULL), 0);
    assert_int_equal(save(engine, "a", "x", NULL), COHORT_E_UNSUPPORTED);
    run_close(0);
    engine = open_engine(1, 0);
    assert_int_equal(restore(engine, "a", "x", &tokens), 0);
    assert_true(ask(engine, 300, NULL) >= 288);
    run_close(0);
}

/* A folder that must be smaller than it is makes itself smaller, and what was saved goes last. */
static void s7_a_smaller_folder_keeps_what_was_saved(void **state) {
    NEEDS_MODEL;
    uint32_t tokens;
    cohort_metrics m;
    cohort_engine *engine = open_engine(1, 0);
    ask(engine, 300, "a");
    assert_int_equal(save(engine, "a", "x", NULL), 0);
    for (uint32_t i = 1; i < 12; i++) {
        run_prompt(text, TEXT, info.vocab_size, 100 + i);
        ask(engine, 640, NULL);
    }
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.disk_blocks > 200));
    uint64_t before = m.disk_bytes;
    run_close(0);
    engine = open_engine(1, before / 4);
    cohort_metrics_get(engine, &m);
    for (uint32_t i = 1; i < 6; i++) {
        run_prompt(text, TEXT, info.vocab_size, 200 + i);
        ask(engine, 640, NULL);
    }
    cohort_metrics_get(engine, &m);
    assert_true(m.disk_bytes <= before / 4);
    assert_int_equal(restore(engine, "a", "x", &tokens), 0);
    run_prompt(text, TEXT, info.vocab_size, 5);
    assert_true(ask(engine, 300, NULL) >= 288);
    run_close(0);
}

/* A damaged copy is read again, and what lies in memory is not given up for it. */
static void s7_a_damaged_copy_is_no_state(void **state) {
    NEEDS_MODEL;
    uint32_t tokens;
    char command[256];
    cohort_engine *engine = open_engine(1, 0);
    ask(engine, 300, "a");
    assert_int_equal(save(engine, "a", "x", NULL), 0);
    run_close(0);
    snprintf(command, sizeof(command),
             "for f in %s/pages-*.seg; do printf 'abcdefgh' | dd of=$f bs=1 seek=8200 conv=notrunc 2>/dev/null; done",
             folder);
    assert_int_equal(system(command), 0);
    engine = open_engine(1, 0);
    assert_int_not_equal(restore(engine, "a", "x", &tokens), 0);
    assert_true(ask(engine, 300, NULL) < 288);
    assert_true(ask(engine, 300, NULL) >= 288);
    run_close(0);
}

/* ---- Continuations that wait for their reader ---- */

static void submit_long_replay(cohort_engine *engine, uint32_t timeout_ms, cohort_id *id) {
    static cohort_saved_token saved[2000];
    static cohort_logprob top[COHORT_TOP_LOGPROBS_MAX];
    cohort_request q;
    for (uint32_t i = 0; i < 2000; i++)
        saved[i] = (cohort_saved_token){.token = text[i], .logprob = -1, .top = top, .top_n = COHORT_TOP_LOGPROBS_MAX};
    cohort_request_defaults(&q);
    q.prompt = text;
    q.prompt_n = 10;
    q.max_tokens = 3000;
    q.ignore_eos = 1;
    q.logprobs = COHORT_TOP_LOGPROBS_MAX;
    q.resume = saved;
    q.resume_n = 2000;
    q.timeout_ms = timeout_ms;
    *id = run_submit(engine, &q);
}

static void t3_a_replay_that_nobody_reads_has_its_time(void **state) {
    NEEDS_MODEL;
    struct outcome got = {0};
    cohort_id id;
    cohort_engine *engine = open_engine(1, 0);
    submit_long_replay(engine, 200, &id);
    RUN_UNTIL(cohort_engine_idle(engine));
    run_finish(engine, id, &got);
    assert_int_equal(got.error, COHORT_E_TIMEOUT);
    assert_true(got.ids_n > 0 && got.ids_n < 2000);
    outcome_free(&got);
    submit_long_replay(engine, 0, &id); /* one more, and the engine is closed under it */
    run_close(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(s7_a_save_waits_for_what_is_on_its_way, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(s7_what_is_saved_stays_when_its_text_goes_on, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(s7_a_start_without_the_store_takes_nothing_away, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(s7_a_smaller_folder_keeps_what_was_saved, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(s7_a_damaged_copy_is_no_state, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(t3_a_replay_that_nobody_reads_has_its_time, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
