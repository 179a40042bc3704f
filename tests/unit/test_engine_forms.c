/* State in fewer bits, through cohort.h: whatever the company, the chunks, the level and the store, a request has the
 * bytes that it has alone; forms are part of what answers are known by, and what cannot be is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine_run.h"

enum { REQUESTS = 6, PROMPT_MAX = 150 };

struct forms {
    cohort_state_form key, value;
    uint32_t after;
    cohort_layer_forms layer;
    int layers;
};

static const struct forms cases[] = {
    {COHORT_FORM_Q8_0, COHORT_FORM_Q8_0, 0, {0}, 0},
    {COHORT_FORM_Q4_0, COHORT_FORM_Q4_0, 0, {0, 6, COHORT_FORM_Q4_0, COHORT_FORM_Q4_0}, 1},
    {COHORT_FORM_Q8_0, COHORT_FORM_Q4_0, 0, {1, 1, COHORT_FORM_F16, COHORT_FORM_F16}, 1},
    {COHORT_FORM_Q4_0, COHORT_FORM_F16, 33, {0}, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static cohort_engine_options options_of(const struct forms *f) {
    cohort_engine_options o;
    cohort_engine_options_defaults(&o);
    o.context = 256;
    o.rows = 4;
    o.kv_tokens = 1 << 14;
    o.key_form = f->key;
    o.value_form = f->value;
    o.quantise_after = f->after;
    o.layer_forms = &f->layer;
    o.layer_forms_n = (size_t)f->layers;
    return o;
}

static void ask(cohort_request *r, const int32_t *ids, uint32_t i) {
    cohort_request_defaults(r);
    r->prompt = ids;
    r->prompt_n = 20 + 26 * i; /* over the position where the form changes, and behind it */
    r->max_tokens = 20;
    r->ignore_eos = 1;
    r->logprobs = 3;
    r->sampling.temperature = i % 2 ? 0.9f : 0;
    r->sampling.seed = i;
    r->sampling.has_seed = 1;
}

static void ask_all(cohort_engine *engine, int together, struct outcome *out) {
    cohort_id id[REQUESTS];
    int32_t ids[PROMPT_MAX];
    cohort_request r;
    run_prompt(ids, PROMPT_MAX, 64, 5);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        ask(&r, ids, i);
        id[i] = run_submit(engine, &r);
        if (!together) run_finish(engine, id[i], &out[i]);
    }
    for (uint32_t i = 0; i < REQUESTS && together; i++) run_finish(engine, id[i], &out[i]);
}

static void compare(struct outcome *right, struct outcome *got, const char *what) {
    for (uint32_t i = 0; i < REQUESTS; i++) {
        outcome_assert_equal(&right[i], &got[i], what);
        outcome_free(&got[i]);
        got[i] = (struct outcome){0};
    }
}

static void same_bytes_in_any_company(void **state) {
    static struct outcome right[REQUESTS], got[REQUESTS];
    for (int c = 0; c < CASES; c++) {
        cohort_model *model = run_open_model("gemma3", "ref", 2);
        if (!model) skip();
        cohort_engine_options o = options_of(&cases[c]);
        o.batch_tokens = 256;
        o.cache = 0;
        o.rows = 1;
        ask_all(run_open_engine(model, &o), 0, right);
        run_close(0);
        cohort_model_close(model);
        for (int way = 0; way < 3; way++) {
            model = run_open_model("gemma3", NULL, 1 + way);
            o.rows = way ? 4 : 1;
            o.batch_tokens = way == 0 ? 1 : way == 1 ? 7 : 64;
            o.cache = way == 2;
            cohort_engine *engine = run_open_engine(model, &o);
            ask_all(engine, way > 0, got);
            compare(right, got, "first");
            if (way == 2) {
                ask_all(engine, 1, got); /* from the store */
                compare(right, got, "again");
            }
            run_close(0);
            cohort_model_close(model);
        }
        for (uint32_t i = 0; i < REQUESTS; i++) outcome_free(&right[i]);
        memset(right, 0, sizeof right);
    }
}

static void forms_are_identity(void **state) {
    char identity[CASES + 2][COHORT_IDENTITY_SIZE];
    static const struct forms plain = {0}, other = {COHORT_FORM_Q4_0, COHORT_FORM_F16, 64, {0}, 0};
    for (int c = 0; c < CASES + 2; c++) {
        cohort_model *model = run_open_model("gemma3", NULL, 1);
        if (!model) skip();
        cohort_engine_options o = options_of(c < CASES ? &cases[c] : c == CASES ? &plain : &other);
        cohort_engine *engine = run_open_engine(model, &o);
        cohort_error err;
        assert_int_equal(cohort_engine_identity(engine, identity[c], &err), 0);
        cohort_engine_get_options(engine, &o);
        if (c == 3) assert_int_equal(o.quantise_after, 64); /* 33, raised: the same as `other` */
        run_close(0);
        cohort_model_close(model);
        for (int d = 0; d < c; d++) assert_int_equal(strcmp(identity[c], identity[d]) == 0, c == CASES + 1 && d == 3);
    }
}

static int plan_has(cohort_model *model, struct forms f, const char *words) {
    cohort_engine_options o = options_of(&f);
    cohort_error err = {0};
    char *json;
    size_t len;
    assert_int_equal(cohort_plan(model, &o, 1, &json, &len, &err), 0);
    int has = strstr(json, words) != NULL;
    cohort_free(json);
    return has;
}

/* Six layers of seven have a window. */
static void four_bits_are_for_what_grows(void **state) {
    cohort_model *model = run_open_model("gemma3", NULL, 1);
    if (!model) skip();
    static const struct forms all = {COHORT_FORM_Q4_0, COHORT_FORM_Q4_0, 0, {0}, 0};
    static const struct forms named = {
        COHORT_FORM_Q4_0, COHORT_FORM_Q4_0, 0, {0, 6, COHORT_FORM_Q4_0, COHORT_FORM_Q4_0}, 1};
    const char *bounded = "\"window\":16,\"first_token\":0,\"end_token\":0,\"keys\":\"q8_0\",\"values\":\"q8_0\"";
    const char *whole = "\"window\":0,\"first_token\":0,\"end_token\":0,\"keys\":\"q4_0\",\"values\":\"q4_0\"";
    assert_true(plan_has(model, all, bounded) && plan_has(model, all, whole));
    assert_false(plan_has(model, named, "q8_0"));
    cohort_model_close(model);
}

static void refused(cohort_model *model, struct forms f, const char *field, const char *words) {
    cohort_engine *engine = NULL;
    cohort_error err = {0};
    cohort_engine_options o = options_of(&f);
    assert_int_not_equal(cohort_engine_open(model, &o, &engine, &err), 0);
    assert_null(engine);
    assert_string_equal(err.field, field);
    if (!strstr(err.text, words)) fail_msg("%s", err.text);
}

static void what_cannot_be_is_refused(void **state) {
    cohort_model *model = run_open_model("gemma3", NULL, 1);
    if (!model) skip();
    refused(model, (struct forms){(cohort_state_form)3, COHORT_FORM_F16, 0, {0}, 0}, "key_form", "q4_0");
    refused(model, (struct forms){COHORT_FORM_F16, (cohort_state_form)9, 0, {0}, 0}, "value_form", "q4_0");
    refused(model, (struct forms){COHORT_FORM_F16, COHORT_FORM_F16, 32, {0}, 0}, "quantise_after", "nothing");
    refused(model, (struct forms){COHORT_FORM_Q8_0, COHORT_FORM_F16, UINT32_MAX, {0}, 0}, "quantise_after", "possible");
    refused(model, (struct forms){COHORT_FORM_Q8_0, COHORT_FORM_F16, 250, {0}, 0}, "quantise_after", "the context 256");
    cohort_layer_forms far = {0, 4000, COHORT_FORM_Q8_0, COHORT_FORM_F16}, back = {1, 0, COHORT_FORM_Q8_0, 0};
    refused(model, (struct forms){COHORT_FORM_F16, COHORT_FORM_F16, 0, far, 1}, "layer_forms", "layers 0 to");
    refused(model, (struct forms){COHORT_FORM_F16, COHORT_FORM_F16, 0, back, 1}, "layer_forms", "layers 0 to");
    cohort_engine_options o = options_of(&cases[0]); /* and the model is as good as before */
    run_open_engine(model, &o);
    run_close(0);
    cohort_model_close(model);
}

static void what_recurrent_layers_lack_is_refused(void **state) {
    cohort_model *model = run_open_model("qwen3_5", NULL, 1);
    if (!model) skip();
    cohort_layer_forms first = {0, 0, COHORT_FORM_Q8_0, COHORT_FORM_Q8_0};
    refused(model, (struct forms){COHORT_FORM_F16, COHORT_FORM_F16, 0, first, 1}, "layer_forms", "recurrent");
    refused(model, (struct forms){COHORT_FORM_F16, COHORT_FORM_F16, 64, first, 1}, "layer_forms", "recurrent");
    cohort_engine_options o = options_of(&(struct forms){COHORT_FORM_Q8_0, COHORT_FORM_Q4_0, 0, {0}, 0});
    run_open_engine(model, &o); /* those that have keys */
    run_close(0);
    cohort_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(same_bytes_in_any_company, run_close_engine),
        cmocka_unit_test_teardown(forms_are_identity, run_close_engine),
        cmocka_unit_test(four_bits_are_for_what_grows),
        cmocka_unit_test_teardown(what_recurrent_layers_lack_is_refused, run_close_engine),
        cmocka_unit_test_teardown(what_cannot_be_is_refused, run_close_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
