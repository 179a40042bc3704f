/* Grammars by what they take and what they refuse, on a small vocabulary: every kind, white space, control tokens,
 * forced text, and what a state says after an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "grammar_rig.h"

static struct grammar_vocab *vocab;

static int set_up(void **state) {
    vocab = rig_vocab();
    return vocab ? 0 : -1;
}

static int tear_down(void **state) {
    grammar_vocab_free(vocab);
    return 0;
}

static struct grammar *made(cohort_grammar_kind kind, const char *text, int32_t space) {
    struct grammar *g;
    cohort_error err = {0};
    if (rig_compile(vocab, kind, text, space, &g, &err)) fail_msg("%s: %s", text, err.text);
    return g;
}

static void takes(const struct grammar *g, const char *text, int expected) {
    for (int words = 0; words < 2; words++) {
        int got = rig_takes(g, text, strlen(text), words);
        if (got != expected) fail_msg("%s: %d instead of %d", text, got, expected);
    }
}

static void schema_is_held(void **state) {
    struct grammar *g =
        made(COHORT_GRAMMAR_JSON_SCHEMA,
             "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"},\"x\":{\"enum\":[\"the\",null]}},"
             "\"required\":[\"ab\",\"x\"]}",
             0);
    takes(g, "{\"ab\": 123, \"x\": \"the\"}", 1);
    takes(g, "{\"ab\": -1, \"x\": null}", 1);
    takes(g, "{\"ab\":123, \"x\": \"the\"}", 0);
    takes(g, "{\"ab\": 1.5, \"x\": \"the\"}", 0);
    takes(g, "{\"ab\": 1}", 0);
    takes(g, "{\"ab\": 1, \"x\": \"ab\"}", 0);
    takes(g, "{\"ab\": 1, \"x\": null, \"y\": 1}", 0);
    grammar_free(g);
}

static void json_is_any_object(void **state) {
    struct grammar *g = made(COHORT_GRAMMAR_JSON, NULL, 0);
    takes(g, "{}", 1);
    takes(g, "{\"ab\": [1, 2.5e3, true, null, {\"x\": \"\\n\"}]}", 1);
    takes(g, "[]", 0);
    takes(g, "{\"ab\": tru}", 0);
    takes(g, "{\"ab\" : 1}", 0);
    grammar_free(g);
    g = made(COHORT_GRAMMAR_JSON, NULL, 2);
    takes(g, "{\"ab\" :  1\n}", 1);
    takes(g, "{\"ab\":1}", 1);
    takes(g, "{\"ab\":   1}", 0);
    grammar_free(g);
}

static void regex_is_the_whole_answer(void **state) {
    struct grammar *g = made(COHORT_GRAMMAR_REGEX, "(ab|the)+[0-9]{2,3}", 0);
    takes(g, "abthe12", 1);
    takes(g, "ab123", 1);
    takes(g, "ab1", 0);
    takes(g, "12", 0);
    grammar_free(g);
}

static void ebnf_begins_at_root(void **state) {
    struct grammar *g =
        made(COHORT_GRAMMAR_EBNF, "# a list\nroot ::= item (\", \" item)*\nitem ::= [a-c]+ | \"1\"{2,3}\n", 0);
    takes(g, "abc, 11, a", 1);
    takes(g, "11", 1);
    takes(g, "1", 0);
    takes(g, "abc, ", 0);
    grammar_free(g);
}

static void end_is_where_the_grammar_ends(void **state) {
    struct grammar *g = made(COHORT_GRAMMAR_REGEX, "ab", 0);
    struct grammar_state *s;
    assert_int_equal(grammar_state_make(g, &s), 0);
    assert_int_equal(grammar_state_accept(s, RIG_END), COHORT_E_ARGUMENT);
    assert_int_equal(grammar_state_accept(s, 'a'), 0);
    assert_int_equal(grammar_state_accept(s, 'a'), COHORT_E_ARGUMENT); /* and the state is as it was */
    assert_int_equal(grammar_state_accept(s, 'b'), 0);
    assert_int_equal(grammar_state_complete(s), 1);
    uint32_t mask[RIG_MASK_WORDS];
    assert_int_equal(grammar_state_mask(s, mask), 1);
    for (int i = 0; i < RIG_VOCAB; i++) assert_int_equal(mask[i / 32] >> i % 32 & 1, i == RIG_END);
    assert_int_equal(grammar_state_accept(s, RIG_END), 0);
    assert_int_equal(grammar_state_mask(s, mask), 1);
    assert_int_equal(grammar_state_accept(s, -1), COHORT_E_ARGUMENT);
    assert_int_equal(grammar_state_accept(s, RIG_VOCAB), COHORT_E_ARGUMENT);
    grammar_state_free(s);
    grammar_free(g);
}

static void forced_text_is_what_must_come(void **state) {
    struct grammar *g =
        made(COHORT_GRAMMAR_JSON_SCHEMA,
             "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"boolean\"}},\"required\":[\"ab\"]}", 0);
    struct grammar_state *s;
    char text[64];
    assert_int_equal(grammar_state_make(g, &s), 0);
    assert_int_equal(grammar_state_forced(s, text, sizeof text), 7);
    assert_memory_equal(text, "{\"ab\": ", 7);
    assert_int_equal(grammar_state_forced(s, text, 3), 3);
    grammar_state_free(s);
    grammar_free(g);
    g = made(COHORT_GRAMMAR_EBNF, "root ::= \"a\" root", 0); /* forced without an end */
    assert_int_equal(grammar_state_make(g, &s), 0);
    assert_int_equal(grammar_state_forced(s, text, sizeof text), sizeof text);
    grammar_state_free(s);
    grammar_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schema_is_held),
        cmocka_unit_test(json_is_any_object),
        cmocka_unit_test(regex_is_the_whole_answer),
        cmocka_unit_test(ebnf_begins_at_root),
        cmocka_unit_test(end_is_where_the_grammar_ends),
        cmocka_unit_test(forced_text_is_what_must_come),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
