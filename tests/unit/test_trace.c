/* The trace: records become events that nest, whatever becomes of the file; a full buffer drops and counts; the
 * engine's spans add up. */
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/trace.h"
#include "engine_run.h"

static char path[64];

static int make_path(void **state) {
    snprintf(path, sizeof path, "/tmp/cohort-trace-%d.json", (int)getpid());
    unlink(path);
    return 0;
}

static int remove_path(void **state) {
    run_close(0);
    unlink(path);
    return 0;
}

static json_t *load(void) {
    json_error_t error;
    json_t *events = json_load_file(path, 0, &error);
    if (!json_is_array(events)) fail_msg("%s:%d: %s", path, error.line, error.text);
    return events;
}

static const char *text(const json_t *event, const char *field) {
    const char *value = json_string_value(json_object_get(event, field));
    return value ? value : "";
}

static json_int_t number(const json_t *event, const char *field) {
    return json_integer_value(json_object_get(event, field));
}

static json_int_t argument(const json_t *event, const char *field) {
    return number(json_object_get(event, "args"), field);
}

/* The first event of that phase and name at or behind index `from`; its index, or -1. */
static int find(const json_t *events, size_t from, const char *phase, const char *name) {
    for (size_t i = from; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(text(event, "ph"), phase) == 0 && strcmp(text(event, "name"), name) == 0) return (int)i;
    }
    return -1;
}

static int count(const json_t *events, const char *phase, const char *name) {
    int n = 0;
    for (int i = -1; (i = find(events, (size_t)(i + 1), phase, name)) >= 0;) n++;
    return n;
}

/* Every request's events begin and end like brackets, in the order of time. */
static void assert_nested(const json_t *events) {
    enum { DEEP = 8, REQUESTS = 256 };
    static struct {
        char id[32];
        const char *open[DEEP];
        int depth;
        json_int_t last;
    } tracks[REQUESTS];
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *phase = text(event, "ph"), *name = text(event, "name");
        if (strcmp(text(event, "cat"), "request") != 0) continue;
        size_t at = 0;
        while (at < n && strcmp(tracks[at].id, text(event, "id")) != 0) at++;
        if (at == n) {
            assert_true(n++ < REQUESTS);
            memset(&tracks[at], 0, sizeof tracks[at]);
            snprintf(tracks[at].id, sizeof tracks[at].id, "%s", text(event, "id"));
        }
        if (number(event, "ts") < tracks[at].last) fail_msg("%s of %s is out of order", name, tracks[at].id);
        tracks[at].last = number(event, "ts");
        if (*phase == 'b') {
            assert_true(tracks[at].depth < DEEP);
            tracks[at].open[tracks[at].depth++] = name;
        } else if (*phase == 'e') {
            if (tracks[at].depth == 0 || strcmp(tracks[at].open[tracks[at].depth - 1], name) != 0)
                fail_msg("%s of %s ends without being open", name, tracks[at].id);
            tracks[at].depth--;
        } else {
            assert_true(tracks[at].depth > 0); /* an instant, inside the request */
        }
    }
    for (size_t at = 0; at < n; at++) assert_int_equal(tracks[at].depth, 0);
}

/* ---- the recorder ---- */

static const struct trace_record submitted = {.kind = TRACE_SUBMITTED,
                                              .request = 0x1234,
                                              .begin_us = 10,
                                              .submitted = {.trace_id = {0xab, 1}, .prompt_n = 3, .max_new = 4}};
static const struct trace_record finished = {.kind = TRACE_FINISHED,
                                             .request = 0x1234,
                                             .begin_us = 30,
                                             .finished = {.phase = TRACE_PHASE_QUEUE,
                                                          .finish = COHORT_FINISH_ERROR,
                                                          .code = COHORT_E_NUMERIC,
                                                          .stats = {.prompt_tokens = 3, .seed = UINT64_MAX}}};

static void records_become_events(void **state) {
    struct trace *t;
    struct stat found;
    int old = open(path, O_WRONLY | O_CREAT, 0644); /* another's file of that name: its text and its mode go */
    assert_true(old >= 0 && write(old, "xxx", 3) == 3 && close(old) == 0);
    assert_int_equal(trace_open(path, TRACE_BYTES_MAX, &t, NULL), 0);
    assert_string_equal(trace_path(t), path);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0600);
    trace_push(t, &submitted);
    trace_push(t,
               &(struct trace_record){
                   .kind = TRACE_STEP,
                   .request = 0x1234,
                   .begin_us = 11,
                   .end_us = 20,
                   .step = {.iteration = 1, .pos = 32, .n_tokens = 9, .prompt = 1, .boundary = 1, .first_token = 1}});
    trace_push(t, &finished);
    trace_close(t);
    json_t *events = load();
    assert_nested(events);
    const json_t *boundary = json_array_get(events, (size_t)find(events, 0, "n", "snapshot boundary"));
    assert_int_equal(argument(boundary, "position"), 41);
    assert_int_equal(number(boundary, "ts"), 20);
    const json_t *begin = json_array_get(events, (size_t)find(events, 0, "b", "request"));
    assert_string_equal(text(begin, "id"), "0x1234");
    assert_int_equal(number(begin, "ts"), 10);
    assert_int_equal(argument(begin, "max_tokens"), 4);
    assert_string_equal(text(json_object_get(begin, "args"), "trace_id"), "ab010000000000000000000000000000");
    assert_null(json_object_get(json_object_get(begin, "args"), "parent_id"));
    const json_t *end = json_object_get(json_array_get(events, (size_t)find(events, 0, "e", "request")), "args");
    assert_string_equal(text(end, "finish"), "error");
    assert_string_equal(text(end, "error"), "E_NUMERIC");
    assert_string_equal(text(end, "seed"), "18446744073709551615");
    json_decref(events);
}

static void a_file_that_cannot_be_is_refused(void **state) {
    static const char *const paths[] = {"/nowhere/at/all", "/tmp", "/dev/full", ""};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct trace *t;
        cohort_error error = {0};
        assert_int_equal(trace_open(paths[i], TRACE_BYTES_MAX, &t, &error), COHORT_E_IO);
        assert_null(t);
        assert_string_equal(error.field, "trace_path");
        assert_non_null(strstr(error.text, paths[i]));
    }
    assert_int_equal(mkfifo(path, 0600), 0); /* which must not hang */
    struct trace *t;
    assert_int_equal(trace_open(path, TRACE_BYTES_MAX, &t, NULL), COHORT_E_IO);
}

static void push_many(struct trace *t, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        trace_push(t, &submitted);
        trace_push(t, &finished);
        if (i % 1000 == 999) usleep(20000);
    }
}

/* Records come while the writer writes, and go on coming when it has ended. */
static void push_without_pause(struct trace *t) {
    for (uint32_t i = 0; i < 300; i++) {
        push_many(t, 500);
        usleep(500);
    }
}

static void a_failed_write_ends_it_and_the_file_stays_whole(void **state) {
    struct trace *t;
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 200000;
    assert_int_equal(trace_open(path, TRACE_BYTES_MAX, &t, NULL), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    push_without_pause(t);
    trace_close(t);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    json_t *events = load();
    assert_in_range(json_array_size(events), 100, 3000);
    json_decref(events);
}

static void the_file_has_a_limit(void **state) {
    struct trace *t;
    struct stat found;
    assert_int_equal(trace_open(path, 100000, &t, NULL), 0);
    push_without_pause(t);
    trace_close(t);
    assert_int_equal(stat(path, &found), 0);
    assert_in_range(found.st_size, 100000, 101000);
    json_decref(load());
}

static void a_full_buffer_drops_and_counts(void **state) {
    struct trace *t;
    assert_int_equal(trace_open(path, TRACE_BYTES_MAX, &t, NULL), 0);
    const uint32_t n = 20 * TRACE_RECORDS; /* faster than anybody can write */
    for (uint32_t i = 0; i < n; i++) trace_push(t, i % 2 ? &finished : &submitted);
    uint64_t dropped = trace_dropped(t);
    assert_true(dropped > 0);
    trace_close(t);
    json_t *events = load();
    assert_int_equal(count(events, "b", "request") + count(events, "e", "request"), n - dropped);
    json_decref(events);
    assert_int_equal(trace_dropped(NULL), 0);
}

static void what_was_written_can_be_read_before_the_end(void **state) {
    struct trace *t;
    struct stat begin, now;
    assert_int_equal(trace_open(path, TRACE_BYTES_MAX, &t, NULL), 0);
    assert_int_equal(stat(path, &begin), 0);
    trace_push(t, &submitted);
    RUN_UNTIL(stat(path, &now) == 0 && now.st_size > begin.st_size);
    trace_close(t);
}

/* ---- the engine's spans ---- */

static cohort_model *model;

static int open_model(void **state) {
    model = run_open_model("gemma3", NULL, 0);
    return 0;
}

static int close_model(void **state) {
    cohort_model_close(model);
    return 0;
}

enum { ROWS = 4, PROMPT = 20, TOKENS = 6 };

static void play(cohort_engine *engine, uint32_t max_tokens, int cancel) {
    static int32_t prompt[PROMPT];
    cohort_model_info info;
    cohort_id ids[ROWS];
    cohort_model_get_info(model, &info);
    run_prompt(prompt, PROMPT, info.vocab_size, 7);
    for (int i = 0; i < ROWS; i++) {
        cohort_request q;
        cohort_request_defaults(&q);
        q.prompt = prompt;
        q.prompt_n = PROMPT;
        q.max_tokens = max_tokens;
        q.ignore_eos = 1;
        q.trace_id[0] = (uint8_t)(i + 1);
        q.trace_parent[7] = 9;
        ids[i] = run_submit(engine, &q);
    }
    for (int i = 0; i < ROWS; i++) {
        static struct outcome outcome;
        memset(&outcome, 0, sizeof outcome);
        if (cancel) cohort_cancel(engine, ids[i]);
        run_finish(engine, ids[i], &outcome);
        outcome_free(&outcome);
    }
}

static json_t *trace_of(uint32_t max_tokens, int cancel, int pipeline, uint64_t kv_tokens) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = ROWS;
    o.batch_tokens = 8;
    o.pipeline = pipeline;
    o.kv_tokens = kv_tokens;
    o.trace_path = path;
    cohort_engine *engine = run_open_engine(model, &o);
    cohort_engine_get_options(engine, &o);
    assert_true(o.trace_path != path && strcmp(o.trace_path, path) == 0); /* copied */
    play(engine, max_tokens, cancel);
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    assert_int_equal(m.trace_dropped, 0);
    run_close(5000);
    return load();
}

/* Rows and tokens of an iteration are those of the steps that carry its number. */
static void assert_adds_up(const json_t *events, const json_t *iteration) {
    json_int_t rows = 0, prompt = 0, decode = 0, at = argument(iteration, "iteration");
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(text(event, "ph"), "b") != 0 || argument(event, "iteration") != at) continue;
        rows++;
        *(strcmp(text(event, "name"), "chunk") == 0 ? &prompt : &decode) += argument(event, "tokens");
    }
    /* Pipelined, a row that has ended may have run once too often: the iteration has it, the row's track does not. */
    assert_in_range(argument(iteration, "rows"), rows, ROWS);
    assert_int_equal(argument(iteration, "prompt_tokens"), prompt);
    assert_in_range(argument(iteration, "decode_tokens"), decode, ROWS);
}

static void o1_spans_of_every_request_and_iteration(void **state) {
    if (!model) skip();
    for (int pipeline = 0; pipeline <= 1; pipeline++) {
        json_t *events = trace_of(TOKENS, 0, pipeline, 0);
        assert_nested(events);
        static const char *const once[] = {"request", "queue", "prefill", "first token", "decode"};
        for (size_t i = 0; i < sizeof once / sizeof once[0]; i++) {
            assert_int_equal(count(events, "b", once[i]), ROWS);
            assert_int_equal(count(events, "e", once[i]), ROWS);
        }
        assert_int_equal(count(events, "b", "token"), ROWS * (TOKENS - 1));
        assert_true(count(events, "b", "chunk") >= ROWS * PROMPT / 8);
        static const char *const parts[] = {"build", "forward", "deliver"};
        int iterations = count(events, "X", "iteration");
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            assert_int_equal(count(events, "X", parts[i]), iterations);
        assert_true(count(events, "X", "gap") > 0);
        for (int i = -1; (i = find(events, (size_t)(i + 1), "X", "iteration")) >= 0;)
            assert_adds_up(events, json_array_get(events, (size_t)i));
        const json_t *first = json_array_get(events, (size_t)find(events, 0, "e", "first token"));
        assert_true(argument(first, "state_pages_used") > 0);
        assert_true(argument(first, "state_pages") >= argument(first, "state_pages_used"));
        const json_t *end = json_array_get(events, (size_t)find(events, 0, "e", "request"));
        assert_string_equal(text(json_object_get(end, "args"), "finish"), "length");
        assert_int_equal(argument(end, "generated_tokens"), TOKENS);
        const json_t *begin = json_array_get(events, (size_t)find(events, 0, "b", "request"));
        assert_string_equal(text(json_object_get(begin, "args"), "trace_id"), "01000000000000000000000000000000");
        assert_string_equal(text(json_object_get(begin, "args"), "parent_id"), "0000000000000009");
        json_decref(events);
    }
}

static void a_cancel_shows(void **state) {
    if (!model) skip();
    json_t *events = trace_of(400, 1, 1, 0);
    assert_nested(events);
    assert_true(count(events, "n", "cancel") > 0);
    int at = find(events, (size_t)find(events, 0, "n", "cancel"), "e", "request");
    const json_t *end = json_object_get(json_array_get(events, (size_t)at), "args");
    assert_string_equal(text(end, "finish"), "cancelled");
    assert_string_equal(text(end, "error"), "E_CANCELLED");
    json_decref(events);
}

/* Which budgets make four rows of 220 tokens push each other out is the scheduler's affair; some of these do. */
static void o1_a_preemption_shows(void **state) {
    if (!model) skip();
    json_int_t all = 0;
    for (uint64_t kv_tokens = 256; kv_tokens <= 512; kv_tokens += 32) {
        json_t *events = trace_of(200, 0, 1, kv_tokens);
        json_int_t preemptions = 0, redone = 0, in_iterations = 0;
        assert_nested(events);
        for (int i = -1; (i = find(events, (size_t)(i + 1), "e", "request")) >= 0;) {
            preemptions += argument(json_array_get(events, (size_t)i), "preemptions");
            redone += argument(json_array_get(events, (size_t)i), "redone_tokens");
        }
        for (int i = -1; (i = find(events, (size_t)(i + 1), "X", "iteration")) >= 0;)
            in_iterations += argument(json_array_get(events, (size_t)i), "redone_tokens");
        assert_int_equal(count(events, "n", "preempted"), preemptions);
        assert_int_equal(in_iterations, redone);
        all += preemptions;
        json_decref(events);
    }
    assert_true(all > 0);
}

static void an_engine_without_its_trace_is_not_opened(void **state) {
    if (!model) skip();
    cohort_engine_options o;
    cohort_engine *engine;
    cohort_error error = {0};
    cohort_engine_options_defaults(&o);
    o.trace_path = "/nowhere/at/all";
    assert_int_equal(cohort_engine_open(model, &o, &engine, &error), COHORT_E_IO);
    assert_null(engine);
    assert_string_equal(error.field, "trace_path");
    o.trace_path = NULL;
    engine = run_open_engine(model, &o); /* and the model is free for another */
    cohort_engine_get_options(engine, &o);
    assert_null(o.trace_path);
}

#define ON_A_FILE(f) cmocka_unit_test_setup_teardown(f, make_path, remove_path)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_A_FILE(records_become_events),
        ON_A_FILE(a_file_that_cannot_be_is_refused),
        ON_A_FILE(a_failed_write_ends_it_and_the_file_stays_whole),
        ON_A_FILE(the_file_has_a_limit),
        ON_A_FILE(a_full_buffer_drops_and_counts),
        ON_A_FILE(what_was_written_can_be_read_before_the_end),
        ON_A_FILE(o1_spans_of_every_request_and_iteration),
        ON_A_FILE(a_cancel_shows),
        ON_A_FILE(o1_a_preemption_shows),
        ON_A_FILE(an_engine_without_its_trace_is_not_opened),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
