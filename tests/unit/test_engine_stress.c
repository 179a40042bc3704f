/* Many threads at one engine: submitting for two tenants, reading at once or late, cancelling, timing out, dropping,
 * adding and cancelling tasks, holding admission and looking, then draining and closing under load, with state for two
 * of three rows, so that rows that nobody reads are preempted. What matters is what the thread sanitiser and the
 * engine's own asserts say; texts are compared too. Seconds of work, from fixed seeds. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine_run.h"

enum { WORKERS = 6, ROUNDS = 60, TASKERS = 2 };

static cohort_model *model;
static cohort_engine *engine;
static cohort_model_info info;
static struct outcome want;
static _Atomic int stop, finished, cancelled, timed_out, refused;
static _Atomic int tasks_added, tasks_ran, tasks_cancelled, tasks_closed, inside;

static void make_request(cohort_request *q, int32_t prompt[40]) {
    cohort_request_defaults(q);
    run_prompt(prompt, 40, info.vocab_size, 5);
    q->prompt = prompt;
    q->prompt_n = 40;
    q->max_tokens = 24;
    q->sampling.seed = 3;
    q->sampling.has_seed = 1;
    q->ignore_eos = 1;
}

/* cmocka's asserts belong to its own thread: here a broken promise ends the program. */
static void must(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "stress: %s\n", what);
    abort();
}

static void read_all(cohort_id id, int expect_text) {
    char text[4096];
    size_t len = 0;
    cohort_event e = {0};
    while (e.type != COHORT_EVENT_FINISH) {
        must(cohort_wait(engine, id, 60000) == COHORT_OK, "an event comes");
        if (cohort_next(engine, id, &e) != COHORT_OK) continue;
        /* A cut in the middle of a character is released as a replacement mark, which the whole text need not have. */
        if (e.type == COHORT_EVENT_FINISH && e.finish >= COHORT_FINISH_CANCELLED) break;
        must(len + e.text_len <= sizeof(text), "the text is no longer than it should be");
        memcpy(text + len, e.text, e.text_len);
        len += e.text_len;
    }
    finished += e.finish == COHORT_FINISH_LENGTH;
    cancelled += e.finish == COHORT_FINISH_CANCELLED;
    timed_out += e.finish == COHORT_FINISH_ERROR;
    must(e.finish != COHORT_FINISH_ERROR || e.error == COHORT_E_TIMEOUT, "nothing fails but by time");
    if (expect_text) must(e.finish == COHORT_FINISH_LENGTH, "what nobody cancelled runs to its end");
    must(len <= want.text.len && memcmp(text, want.text.data, len) == 0, "the text is always the same");
    must(!expect_text || len == want.text.len, "and whole");
}

static void *client(void *arg) {
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    int32_t prompt[40];
    cohort_request q;
    make_request(&q, prompt);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t choice = rng_u64(seed, 9, (uint64_t)round);
        cohort_ticket ticket;
        cohort_id id;
        if (cohort_reserve_for(engine, choice % 2, &ticket, NULL) != COHORT_OK) {
            refused++;
            usleep(1000);
            continue;
        }
        if (choice % 8 == 0) {
            cohort_unreserve(engine, ticket);
            continue;
        }
        q.prompt_logprobs = choice % 3 == 0;
        q.logprobs = choice % 2 ? COHORT_TOP_LOGPROBS_MAX : -1; /* more than a ring of the least size takes */
        q.timeout_ms = choice % 11 == 0 ? 1 + choice / 11 % 8 : 0;
        q.max_predict_ms = choice % 13 == 0 ? 100000 : 0;
        must(cohort_submit(engine, ticket, &q, &id, NULL) == COHORT_OK, "a place can be used");
        int cancel = choice % 5 == 0, leave = choice % 7 == 0, late = choice % 17 < 9;
        if (cancel || leave) usleep((useconds_t)(choice % 3000));
        if (late) usleep(20000 + (useconds_t)(choice % 10000));
        if (cancel) cohort_cancel(engine, id);
        if (!leave) read_all(id, !cancel && !q.timeout_ms);
        cohort_drop(engine, id);
    }
    return NULL;
}

static void task(void *user, int code) {
    must(++inside == 1, "tasks run one at a time");
    tasks_ran += code == COHORT_OK;
    tasks_cancelled += code == COHORT_E_CANCELLED;
    tasks_closed += code == COHORT_E_CLOSED;
    cohort_cancel(engine, 3); /* nobody's */
    inside--;
}

static void *tasker(void *arg) {
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    for (uint64_t i = 0; !stop; i++) {
        uint64_t choice = rng_u64(seed, 10, i);
        cohort_task added;
        int kind = choice % 3 ? COHORT_TASK_READ : COHORT_TASK_EXCLUSIVE;
        if (cohort_task_add(engine, kind, task, NULL, &added, NULL) == COHORT_OK) tasks_added++;
        if (choice / 3 % 4 == 0) cohort_task_cancel(engine, added);
        if (choice / 12 % 8 == 0) {
            cohort_engine_hold(engine, 1);
            usleep(300);
            cohort_engine_hold(engine, 0);
        }
        usleep((useconds_t)(choice / 96 % 2000));
    }
    return NULL;
}

static void *watcher(void *arg) {
    cohort_id ids[8];
    while (!stop) {
        cohort_metrics m;
        cohort_metrics_get(engine, &m);
        must(m.healthy, "the engine is healthy");
        cohort_ready(engine, ids, 8);
        cohort_cancel(engine, rng_u64(1, 2, m.iterations)); /* nobody's */
        cohort_engine_idle(engine);
        usleep(500);
    }
    return NULL;
}

static void many_threads_at_one_engine(void **state) {
    model = run_open_model("llama", NULL, 2);
    if (!model) skip();
    cohort_model_get_info(model, &info);
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 128;
    o.rows = 3;
    o.queue = 2;
    o.batch_tokens = 40;
    o.ring_bytes = 1;
    o.kv_tokens = 128;
    static const cohort_tenant tenants[] = {{.name = "a", .weight = 1}, {.name = "b", .weight = 3, .rows = 2}};
    o.tenants = tenants;
    o.tenants_n = 2;
    engine = run_open_engine(model, &o);
    cohort_request q;
    int32_t prompt[40];
    make_request(&q, prompt);
    run_request(engine, &q, &want);
    pthread_t threads[WORKERS], watching, tasking[TASKERS];
    pthread_create(&watching, NULL, watcher, NULL);
    q.logprobs = COHORT_TOP_LOGPROBS_MAX;
    cohort_id unread = run_submit(engine, &q); /* its ring is full before its end: it holds half of the state */
    cohort_wait(engine, unread, -1);
    for (int i = 0; i < WORKERS; i++) pthread_create(&threads[i], NULL, client, (void *)(uintptr_t)(i + 1));
    cohort_metrics m;
    RUN_UNTIL((cohort_metrics_get(engine, &m), m.preemptions > 0));
    read_all(unread, 1);
    cohort_drop(engine, unread);
    for (int i = 0; i < TASKERS; i++) pthread_create(&tasking[i], NULL, tasker, (void *)(uintptr_t)(i + 50));
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    stop = 1;
    pthread_join(watching, NULL);
    for (int i = 0; i < TASKERS; i++) pthread_join(tasking[i], NULL);
    RUN_UNTIL(cohort_engine_idle(engine));
    cohort_metrics_get(engine, &m);
    assert_int_equal(m.requests_submitted,
                     m.requests_finished_length + m.requests_cancelled + m.requests_finished_stop + m.requests_failed);
    assert_int_equal(m.requests_failed, m.requests_timed_out);
    assert_true(finished > 20 && cancelled > 2 && refused > 0);
    assert_int_equal(tasks_added, tasks_ran + tasks_cancelled);
    assert_int_equal(m.tasks_run, tasks_ran);
    assert_true(tasks_ran > 20);
    for (int i = 0; i < 4; i++) run_submit(engine, &q); /* closed under load, never read, never dropped */
    for (int i = 0; i < 8; i++) assert_int_equal(cohort_task_add(engine, i % 2, task, NULL, NULL, NULL), 0);
    tasks_added += 8;
    cohort_engine_drain(engine);
    run_close(0);
    assert_int_equal(tasks_added, tasks_ran + tasks_cancelled + tasks_closed);
    outcome_free(&want);
    cohort_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_threads_at_one_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
