/* Models through cohort.h without an engine: what a file is, and what can be done with its vocabulary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine_run.h"

static cohort_model *model;

static int open_model(void **state) {
    model = run_open_model("gemma3", "ref", 1);
    return 0;
}

static int close_model(void **state) {
    cohort_model_close(model);
    return 0;
}

#define NEEDS_MODEL                                                                                                    \
    if (!model) skip()

static void a_model_says_what_it_is(void **state) {
    NEEDS_MODEL;
    cohort_model_info info;
    cohort_model_get_info(model, &info);
    assert_string_equal(info.architecture, "gemma3");
    assert_string_equal(info.cpu, "ref");
    assert_int_equal(info.threads, 1);
    assert_int_equal(info.layers, 7);
    assert_int_equal(info.embedding_width, 96);
    assert_int_equal(info.vocab_size, 576);
    assert_true(info.parameters > 100000 && info.file_bytes > 4 * info.parameters / 2);
    assert_int_equal(info.packed_bytes, 0);
    cohort_engine *engine = run_open_engine(model, NULL);
    cohort_model_get_info(model, &info);
    assert_true(info.packed_bytes > info.parameters);
    assert_non_null(engine);
    run_close(0);
}

static void text_goes_to_ids_and_back(void **state) {
    NEEDS_MODEL;
    static const char text[] = "the other \0 \xd0\xb5 <s> what\n";
    int32_t *ids, *with_bos;
    size_t n, n_bos, len;
    char *back;
    cohort_error err;
    cohort_model_info info;
    cohort_model_get_info(model, &info);
    assert_int_equal(cohort_tokenize(model, text, sizeof(text) - 1, 0, &ids, &n, &err), 0);
    for (size_t i = 0; i < n; i++) assert_int_not_equal(ids[i], info.bos); /* text is never read as a marker */
    assert_int_equal(cohort_detokenize(model, ids, n, 0, &back, &len, &err), 0);
    assert_int_equal(len, sizeof(text) - 1);
    assert_memory_equal(back, text, len);
    assert_int_equal(back[len], 0);
    cohort_free(back);
    assert_int_equal(cohort_tokenize(model, text, sizeof(text) - 1, COHORT_TOKENIZE_BOS, &with_bos, &n_bos, &err), 0);
    assert_int_equal(n_bos, n + (size_t)info.add_bos);
    if (info.add_bos) assert_int_equal(with_bos[0], info.bos);
    cohort_free(with_bos);
    cohort_free(ids);
    assert_int_equal(cohort_detokenize(model, &info.bos, 1, 0, &back, &len, &err), 0);
    assert_int_equal(len, 0);
    cohort_free(back);
    assert_int_equal(cohort_detokenize(model, &info.bos, 1, 1, &back, &len, &err), 0);
    assert_string_equal(back, "<s>");
    cohort_free(back);
    assert_int_equal(cohort_tokenize(model, "", 0, 0, &ids, &n, &err), 0);
    assert_int_equal(n, 0);
    cohort_free(ids);
}

static void bad_text_and_ids_are_refused(void **state) {
    NEEDS_MODEL;
    static const int32_t bad[] = {-1, 576, INT32_MIN, INT32_MAX};
    int32_t *ids;
    size_t n, len;
    char *back;
    const char *bytes;
    cohort_error err;
    assert_int_equal(cohort_tokenize(model, "a\xff", 2, 0, &ids, &n, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "text");
    assert_null(ids);
    assert_int_equal(cohort_tokenize(model, "a", 1, 64, &ids, &n, &err), COHORT_E_ARGUMENT);
    for (int i = 0; i < 4; i++) {
        const int32_t some[2] = {5, bad[i]};
        assert_int_equal(cohort_detokenize(model, some, 2, 0, &back, &len, &err), COHORT_E_ARGUMENT);
        assert_string_equal(err.field, "ids");
        assert_null(back);
        assert_int_equal(cohort_token_piece(model, bad[i], &bytes, &len), COHORT_E_ARGUMENT);
    }
    assert_int_equal(cohort_token_piece(model, 575, &bytes, &len), 0);
}

static void chats_are_rendered(void **state) {
    NEEDS_MODEL;
    static const char chat[] = "[{\"role\":\"user\",\"content\":\"hello\"}]", wrong[] = "[{\"role\":\"nobody\"}]";
    cohort_prompt *prompt;
    cohort_prompt_info info;
    cohort_chat ask;
    cohort_error err;
    cohort_chat_defaults(&ask);
    ask.messages = chat;
    ask.messages_n = sizeof(chat) - 1;
    assert_int_equal(cohort_prompt_render(model, &ask, &prompt, &err), 0);
    cohort_prompt_get(prompt, &info);
    assert_true(info.n > 2);
    cohort_prompt_free(prompt);
    ask.ending = 0;
    assert_int_equal(cohort_prompt_render(model, &ask, &prompt, &err), 0);
    cohort_prompt_get(prompt, &info);
    assert_int_equal(info.turns_n, 1);
    assert_true(info.turns[0].role == COHORT_ROLE_USER && info.turns[0].end == info.n);
    cohort_prompt_free(prompt);
    ask.messages = wrong;
    ask.messages_n = sizeof(wrong) - 1;
    assert_int_equal(cohort_prompt_render(model, &ask, &prompt, &err), COHORT_E_ARGUMENT);
    assert_non_null(strstr(err.field, "messages[0]"));
    assert_null(prompt);
}

static void options_are_checked(void **state) {
    NEEDS_MODEL;
    cohort_model_options o;
    cohort_model *other;
    cohort_error err;
    cohort_model_options_defaults(&o);
    o.threads = -1;
    assert_int_equal(cohort_model_open("nowhere.gguf", &o, &other, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "threads");
    assert_null(other);
    o.threads = 0;
    o.size--;
    assert_int_equal(cohort_model_open("nowhere.gguf", &o, &other, &err), COHORT_E_ARGUMENT);
    assert_int_equal(cohort_model_open("nowhere.gguf", NULL, &other, &err), COHORT_E_IO);
    assert_non_null(strstr(err.text, "nowhere.gguf"));
    cohort_model_close(NULL);
    cohort_engine_close(NULL, 0);
}

static void a_vocabulary_has_no_engine(void **state) {
    NEEDS_MODEL;
    cohort_model *vocabulary = run_open_vocabulary("gemma3");
    cohort_engine *engine;
    cohort_error err;
    cohort_model_info info;
    int32_t *ids;
    size_t n;
    cohort_model_get_info(vocabulary, &info);
    assert_int_equal(info.vocab_size, 576);
    assert_string_equal(info.cpu, "none");
    assert_int_equal(cohort_engine_open(vocabulary, NULL, &engine, &err), COHORT_E_UNSUPPORTED);
    assert_null(engine);
    assert_int_equal(cohort_tokenize(vocabulary, "the", 3, 0, &ids, &n, &err), 0);
    cohort_free(ids);
    cohort_model_close(vocabulary);
}

/* The number behind a name in a report. */
static unsigned long long number_of(const char *json, const char *name) {
    const char *at = strstr(json, name);
    assert_non_null(at);
    return strtoull(at + strlen(name), NULL, 10);
}

static void a_plan_is_what_an_engine_takes(void **state) {
    NEEDS_MODEL;
    for (uint32_t rows = 1; rows <= 16; rows += 5)
        for (uint32_t context = 40; context <= 4000; context *= 10) {
            cohort_engine_options o;
            cohort_error err;
            cohort_model_info model_info;
            char *json;
            size_t len;
            cohort_engine_options_defaults(&o);
            o.rows = rows;
            o.context = context;
            assert_int_equal(cohort_plan(model, &o, 1, &json, &len, &err), 0);
            assert_int_equal(strlen(json), len);
            cohort_engine *engine = run_open_engine(model, &o);
            cohort_engine_get_options(engine, &o);
            cohort_model_get_info(model, &model_info);
            assert_int_equal(number_of(json, "\"state\":{\"bytes\":"), o.kv_bytes);
            assert_int_equal(number_of(json, "\"tokens\":"), o.kv_tokens);
            assert_int_equal(number_of(json, "\"weights_bytes\":"), model_info.packed_bytes);
            assert_non_null(strstr(json, "\"fits\":true"));
            cohort_free(json);
            run_close_engine(NULL);
        }
}

static void a_plan_needs_the_model_for_itself(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o;
    cohort_error err;
    char *text;
    size_t len;
    cohort_engine_options_defaults(&o);
    o.rows = 1;
    o.context = 64;
    run_open_engine(model, &o);
    assert_int_equal(cohort_plan(model, &o, 0, &text, &len, &err), COHORT_E_UNSUPPORTED);
    assert_string_equal(err.field, "model");
    run_close_engine(NULL);
    assert_int_equal(cohort_plan(model, &o, 0, &text, &len, &err), 0);
    cohort_free(text);
    o.snapshot_stride = UINT32_MAX;
    assert_int_equal(cohort_plan(model, &o, 0, &text, &len, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "snapshot_stride");
}

static void a_plan_of_bad_options_names_the_field(void **state) {
    NEEDS_MODEL;
    cohort_engine_options o;
    cohort_error err;
    char *text = (char *)&o;
    size_t len = 1;
    cohort_engine_options_defaults(&o);
    o.rows = 0;
    assert_int_equal(cohort_plan(model, &o, 0, &text, &len, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.field, "rows");
    assert_null(text);
    assert_int_equal(len, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_model_says_what_it_is, run_close_engine),
        cmocka_unit_test(text_goes_to_ids_and_back),
        cmocka_unit_test(bad_text_and_ids_are_refused),
        cmocka_unit_test(chats_are_rendered),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(a_vocabulary_has_no_engine),
        cmocka_unit_test_teardown(a_plan_is_what_an_engine_takes, run_close_engine),
        cmocka_unit_test_teardown(a_plan_needs_the_model_for_itself, run_close_engine),
        cmocka_unit_test(a_plan_of_bad_options_names_the_field),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
