/* Tenants through the public interface: limits refuse with their numbers and a time, and whatever becomes of a request,
 * its place comes back. On the backend without arithmetic (fake_backend.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_model.h"

static int32_t prompt[600];

static int open_model_and_prompt(void **state) {
    open_model(state);
    if (model) run_prompt(prompt, 600, info.vocab_size, 1);
    return 0;
}

static cohort_engine *open_engine(uint32_t rows, uint32_t queue, const cohort_tenant *list, size_t n) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 512;
    o.rows = rows;
    o.queue = queue;
    o.tenants = list;
    o.tenants_n = n;
    return run_open_engine(model, &o);
}

static cohort_request request(uint32_t prompt_n, uint32_t max_tokens) {
    cohort_request q;
    cohort_request_defaults(&q);
    q.prompt = prompt;
    q.prompt_n = prompt_n;
    q.max_tokens = max_tokens;
    q.sampling.temperature = 0;
    return q;
}

static cohort_ticket reserve(cohort_engine *engine, uint32_t tenant) {
    cohort_ticket ticket;
    cohort_error err = {0};
    if (cohort_reserve_for(engine, tenant, &ticket, &err) != 0) fail_msg("%s", err.text);
    return ticket;
}

static cohort_id submit(cohort_engine *engine, uint32_t tenant, const cohort_request *q) {
    cohort_id id;
    cohort_error err = {0};
    if (cohort_submit(engine, reserve(engine, tenant), q, &id, &err) != 0) fail_msg("%s", err.text);
    return id;
}

static cohort_error refused(cohort_engine *engine, uint32_t tenant) {
    cohort_ticket ticket = 1;
    cohort_error err = {0};
    assert_int_equal(cohort_reserve_for(engine, tenant, &ticket, &err), COHORT_E_BUSY);
    assert_int_equal(ticket, 0);
    return err;
}

static cohort_tenant_metrics metrics(cohort_engine *engine, uint32_t tenant) {
    cohort_tenant_metrics m;
    assert_int_equal(cohort_tenant_metrics_get(engine, tenant, &m), 0);
    return m;
}

static void finish(cohort_engine *engine, cohort_id id, cohort_finish how) {
    struct outcome out = {0};
    run_finish(engine, id, &out);
    assert_int_equal(out.finish, how);
    outcome_free(&out);
}

static void assert_empty(cohort_engine *engine, uint32_t tenants) {
    cohort_tenant_metrics m;
    for (uint32_t i = 0; i < tenants; i++) {
        m = metrics(engine, i);
        assert_int_equal(m.places, 0);
        assert_int_equal(m.rows, 0);
    }
    assert_int_equal(cohort_tenant_metrics_get(engine, tenants, &m), COHORT_E_NOT_FOUND);
}

static void options_are_copied_and_reported(void **state) {
    NEEDS_MODEL;
    char name[] = "first";
    cohort_tenant list[] = {{name, 3, 2, 1, 100}, {"second", 1, 0, 0, 0}};
    cohort_engine *engine = open_engine(1, 1, list, 2);
    cohort_engine_options o;
    memset(name, '?', 5);
    memset(list, 0, sizeof(list));
    cohort_engine_get_options(engine, &o);
    assert_int_equal(o.tenants_n, 2);
    assert_string_equal(o.tenants[0].name, "first");
    assert_int_equal(o.tenants[0].weight, 3);
    assert_string_equal(metrics(engine, 0).name, "first");
    run_close(0);
    engine = open_engine(1, 1, NULL, 0);
    cohort_engine_get_options(engine, &o);
    assert_int_equal(o.tenants_n, 1);
    assert_string_equal(o.tenants[0].name, "default");
    cohort_ticket ticket;
    cohort_error err = {0};
    assert_int_equal(cohort_reserve_for(engine, 1, &ticket, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "tenant");
    run_close(0);
    cohort_engine *none;
    cohort_engine_options_defaults(&o);
    cohort_tenant bad = {"a b", 1, 0, 0, 0};
    o.tenants = &bad;
    o.tenants_n = 1;
    assert_int_equal(cohort_engine_open(model, &o, &none, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "tenants");
}

/* Every way out of a place: given back, refused at submit, waited and cancelled, ran to its end, cancelled while
 * running, dropped, too late, failed. Each time the tenant's one place is free again as soon as the end shows. */
static void every_end_gives_the_place_back(void **state) {
    NEEDS_MODEL;
    const cohort_tenant list[] = {{"other", 1, 0, 0, 0}, {"one", 1, 0, 1, 0}};
    cohort_engine *engine = open_engine(1, 4, list, 2);
    cohort_request q = request(8, 4), bad = request(8, 4), longer = request(8, 300);
    cohort_error err = {0};
    cohort_id id, busy;

    cohort_ticket ticket = reserve(engine, 1);
    assert_string_equal(refused(engine, 1).text, "all 1 places of \"one\" are taken");
    cohort_unreserve(engine, ticket);
    cohort_unreserve(engine, ticket); /* once is enough */
    assert_empty(engine, 2);

    bad.prompt_n = 0;
    assert_int_equal(cohort_submit(engine, reserve(engine, 1), &bad, &id, &err), COHORT_E_ARGUMENT);
    assert_empty(engine, 2);
    assert_int_equal(metrics(engine, 1).requests_submitted, 0);

    finish(engine, submit(engine, 1, &q), COHORT_FINISH_LENGTH);
    assert_empty(engine, 2);

    fake_backend.delay_us = 1000;
    busy = submit(engine, 0, &longer);
    RUN_UNTIL(metrics(engine, 0).rows == 1);
    id = submit(engine, 1, &q);
    assert_int_equal(metrics(engine, 1).places, 1);
    assert_int_equal(metrics(engine, 1).rows, 0); /* it waits */
    cohort_cancel(engine, id);
    finish(engine, id, COHORT_FINISH_CANCELLED);
    assert_int_equal(metrics(engine, 1).places, 0);
    assert_int_equal(metrics(engine, 0).places, 1);
    cohort_cancel(engine, busy);
    finish(engine, busy, COHORT_FINISH_CANCELLED);
    assert_empty(engine, 2);

    id = submit(engine, 1, &longer);
    RUN_UNTIL(metrics(engine, 1).rows == 1);
    cohort_cancel(engine, id);
    finish(engine, id, COHORT_FINISH_CANCELLED);
    assert_empty(engine, 2);

    id = submit(engine, 1, &longer);
    cohort_drop(engine, id);
    RUN_UNTIL(metrics(engine, 1).places == 0);
    assert_empty(engine, 2);

    longer.timeout_ms = 20;
    finish(engine, submit(engine, 1, &longer), COHORT_FINISH_ERROR);
    assert_empty(engine, 2);

    fake_backend.refuse_launch = 3;
    finish(engine, submit(engine, 1, &q), COHORT_FINISH_ERROR);
    assert_empty(engine, 2);

    fake_backend.poison = prompt[3];
    finish(engine, submit(engine, 1, &q), COHORT_FINISH_ERROR);
    fake_backend.poison = -1;
    assert_empty(engine, 2);
    cohort_tenant_metrics m = metrics(engine, 1);
    assert_int_equal(m.requests_submitted, 7);
    assert_int_equal(m.requests_refused, 1);
    assert_int_equal(m.prompt_tokens, 56);

    fake_backend.break_wait = 1;
    finish(engine, submit(engine, 1, &q), COHORT_FINISH_ERROR);
    assert_empty(engine, 2);
    cohort_ticket none;
    assert_int_equal(cohort_reserve_for(engine, 1, &none, &err), COHORT_E_CLOSED);
    assert_int_equal(err.retry_after_ms, 0);
    run_close(0);
}

/* A full line says when to come again, by what it has seen. */
static void refusals_carry_a_time(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 1, NULL, 0);
    cohort_request q = request(4, 1);
    cohort_ticket a = reserve(engine, 0), b = reserve(engine, 0);
    cohort_error err = refused(engine, 0);
    assert_string_equal(err.text, "all 2 places (1 rows and a line of 1) are taken");
    assert_int_equal(err.retry_after_ms, 1000);
    cohort_unreserve(engine, a);
    cohort_unreserve(engine, b);
    fake_backend.delay_us = 1200000; /* an iteration, and so a request of one token */
    cohort_id ids[2] = {submit(engine, 0, &q), submit(engine, 0, &q)};
    finish(engine, ids[0], COHORT_FINISH_LENGTH);
    b = reserve(engine, 0);
    err = refused(engine, 0);
    assert_in_range(err.retry_after_ms, 1200, 8000);
    fake_backend.delay_us = 0;
    finish(engine, ids[1], COHORT_FINISH_LENGTH);
    cohort_unreserve(engine, b);
    assert_empty(engine, 1);
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    assert_int_equal(m.requests_refused, 2);
    run_close(0);
}

/* The bucket: charged for prompts and answers, refused in debt, by the exact time, and a prompt beyond a minute's worth
 * runs. */
static void tokens_per_minute(void **state) {
    NEEDS_MODEL;
    const cohort_tenant list[] = {{"metered", 1, 0, 0, 60}, {"free", 1, 0, 0, 0}};
    cohort_engine *engine = open_engine(2, 8, list, 2);
    cohort_request q = request(100, 20);
    fake_backend.end = -1;
    finish(engine, submit(engine, 0, &q), COHORT_FINISH_LENGTH);
    cohort_error err = refused(engine, 0);
    assert_string_equal(err.field, "tokens_per_minute");
    assert_non_null(strstr(err.text, "\"metered\" may use 60 tokens per minute and is "));
    assert_in_range(err.retry_after_ms, 30000, 60001); /* 60 tokens over at one each second, less the time that ran */
    usleep(20000);
    cohort_error later = refused(engine, 0);
    assert_true(later.retry_after_ms + 20 <= err.retry_after_ms);
    cohort_tenant_metrics m = metrics(engine, 0);
    assert_int_equal(m.prompt_tokens, 100);
    assert_int_equal(m.generated_tokens, 20);
    assert_int_equal(m.requests_refused, 2);
    finish(engine, submit(engine, 1, &q), COHORT_FINISH_LENGTH);
    assert_int_equal(metrics(engine, 1).generated_tokens, 20);
    assert_empty(engine, 2);
    run_close(0);
}

/* The limit of rows reaches the scheduler, and the gauge says how many were admitted. */
static void rows_of_a_tenant(void **state) {
    NEEDS_MODEL;
    const cohort_tenant list[] = {{"narrow", 1, 1, 0, 0}, {"wide", 1, 0, 0, 0}};
    cohort_engine *engine = open_engine(4, 8, list, 2);
    cohort_request q = request(8, 100);
    cohort_id ids[5];
    fake_backend.delay_us = 1000;
    for (uint32_t i = 0; i < 5; i++) ids[i] = submit(engine, i / 3, &q);
    RUN_UNTIL(metrics(engine, 1).rows == 2);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(metrics(engine, 0).rows, 1);
        assert_int_equal(metrics(engine, 0).places, 3);
        usleep(1000);
    }
    fake_backend.delay_us = 0;
    for (uint32_t i = 0; i < 5; i++) finish(engine, ids[i], COHORT_FINISH_LENGTH);
    assert_empty(engine, 2);
    run_close(0);
}

static void priority_is_checked(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 1, NULL, 0);
    cohort_request q = request(4, 1);
    cohort_error err = {0};
    cohort_id id;
    const int32_t bad[] = {-101, 101, INT32_MIN, INT32_MAX}, good[] = {-100, 0, 100};
    for (int i = 0; i < 4; i++) {
        q.priority = bad[i];
        assert_int_equal(cohort_submit(engine, reserve(engine, 0), &q, &id, &err), COHORT_E_ARGUMENT);
        assert_string_equal(err.field, "priority");
    }
    for (int i = 0; i < 3; i++) {
        q.priority = good[i];
        finish(engine, submit(engine, 0, &q), COHORT_FINISH_LENGTH);
    }
    run_close(0);
}

/* Never refuses what fits: of every token as many as the context has room for, one behind the other. */
static void assert_fitting_texts_pass(cohort_engine *engine) {
    static char text[511 * 256];
    uint32_t fitting = 0, longest = 0;
    for (uint32_t id = 0; id < info.vocab_size; id++) {
        const char *piece;
        size_t len, n;
        int32_t *ids;
        assert_int_equal(cohort_token_piece(model, (int32_t)id, &piece, &len), 0);
        if (len == 0 || len > 256) continue;
        for (size_t i = 0; i < 510; i++) memcpy(text + i * len, piece, len);
        if (cohort_tokenize(model, text, 510 * len, COHORT_TOKENIZE_BOS, &ids, &n, NULL) != 0) continue;
        cohort_free(ids);
        if (n + 1 > 512) continue;
        fitting++;
        if (len > longest) longest = (uint32_t)len;
        assert_int_equal(cohort_check_length(engine, 510 * len, UINT32_MAX, NULL), 0);
    }
    assert_true(fitting > 100 && longest >= 8);
}

static void lengths_are_judged_before_tokenising(void **state) {
    NEEDS_MODEL;
    cohort_engine *engine = open_engine(1, 1, NULL, 0);
    cohort_error err = {0};
    assert_fitting_texts_pass(engine);
    assert_int_equal(cohort_check_length(engine, 40000, UINT32_MAX, &err), COHORT_E_CONTEXT);
    assert_non_null(strstr(err.text, "40000 bytes of text are at least "));
    assert_non_null(strstr(err.text, "the context of 512"));
    assert_int_equal(cohort_check_length(engine, 0, UINT32_MAX, &err), 0);
    assert_int_equal(cohort_check_length(engine, 0, 511, &err), 0);
    assert_int_equal(cohort_check_length(engine, 0, 512, &err), COHORT_E_CONTEXT);
    assert_int_equal(cohort_check_length(engine, SIZE_MAX, 0, &err), COHORT_E_CONTEXT);
    assert_string_equal(err.field, "prompt");
    run_close(0);
    /* A state budget below the context. */
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 4096;
    o.rows = 1;
    o.kv_tokens = 256;
    engine = run_open_engine(model, &o);
    assert_int_equal(cohort_check_length(engine, 16, 10, &err), 0);
    assert_int_equal(cohort_check_length(engine, 30000, 10, &err), COHORT_E_CAPACITY);
    assert_non_null(strstr(err.text, "30000 bytes of text are at least "));
    run_close(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(options_are_copied_and_reported, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(every_end_gives_the_place_back, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(refusals_carry_a_time, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(tokens_per_minute, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(rows_of_a_tenant, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(priority_is_checked, reset, run_close_engine),
        cmocka_unit_test_setup_teardown(lengths_are_judged_before_tokenising, reset, run_close_engine),
    };
    return cmocka_run_group_tests(tests, open_model_and_prompt, close_model);
}
