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
    g = made(COHORT_GRAMMAR_EBNF, "root ::= \"a\"{9000}", 0); /* more than is asked for */
    assert_int_equal(grammar_state_make(g, &s), 0);
    assert_int_equal(grammar_state_forced(s, text, sizeof text), sizeof text);
    grammar_state_free(s);
    grammar_free(g);
}

/* ---- Control tokens ---- */

static void text_is_never_a_control_token(void **state) {
    static const struct {
        cohort_grammar_kind kind;
        const char *text;
    } texts[] = {
        {COHORT_GRAMMAR_TAGS, "{\"type\":\"structural_tag\",\"format\":{\"type\":\"any_text\"}}"},
        {COHORT_GRAMMAR_TAGS, "{\"type\":\"structural_tag\",\"format\":{\"type\":\"any_text\",\"excludes\":[\"zz\"]}}"},
        {COHORT_GRAMMAR_TAGS, "{\"type\":\"structural_tag\",\"format\":{\"type\":\"triggered_tags\",\"triggers\":["
                              "\"zz\"],\"tags\":[{\"begin\":\"zz\","
                              "\"content\":{\"type\":\"any_text\"},\"end\":\"yy\"}]}}"},
        {COHORT_GRAMMAR_REGEX, "[^]*"},
        {COHORT_GRAMMAR_EBNF, "root ::= .*"},
        {COHORT_GRAMMAR_EBNF, "root ::= [^z]*"},
        {COHORT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\"}"},
        {COHORT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":500}"},
        {COHORT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"z\"}"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct grammar *g = made(texts[i].kind, texts[i].text, 0);
        struct grammar_state *s;
        assert_int_equal(grammar_state_make(g, &s), 0);
        for (const char *p = "\"<call>x\xc3\xa9"; *p; p++) {
            for (int32_t token = RIG_CALL; token < RIG_VOCAB; token++) {
                if (rig_allows(s, token)) fail_msg("%s: token %d", texts[i].text, token);
                assert_int_equal(grammar_state_accept(s, token), COHORT_E_ARGUMENT);
            }
            if (grammar_state_accept(s, (unsigned char)*p)) fail_msg("%s: not '%c'", texts[i].text, *p);
        }
        grammar_state_free(s);
        grammar_free(g);
    }
}

static void tags_name_control_tokens(void **state) {
    struct grammar *g = made(
        COHORT_GRAMMAR_TAGS,
        "{\"type\":\"structural_tag\",\"format\":{\"type\":\"sequence\",\"elements\":[{\"type\":\"tag\",\"begin\":{"
        "\"type\":\"token\",\"token\":\"<think>\"},\"content\":{\"type\":\"any_text\"},\"end\":{\"type\":\"token\","
        "\"token\":\"</think>\"}},{\"type\":\"const_string\",\"value\":\"the\"}]}}",
        0);
    struct grammar_state *s;
    assert_int_equal(grammar_state_make(g, &s), 0);
    assert_int_equal(rig_allows(s, '<'), 0); /* its text is not the token */
    assert_int_equal(rig_allows(s, RIG_CALL), 0);
    assert_int_equal(rig_allows(s, RIG_THINK), 1);
    assert_int_equal(grammar_state_accept(s, RIG_THINK), 0);
    assert_int_equal(rig_allows(s, '<'), 1);
    assert_int_equal(rig_allows(s, RIG_THINK), 0);
    assert_int_equal(rig_allows(s, RIG_END), 0);
    assert_int_equal(grammar_state_accept(s, 'x'), 0);
    assert_int_equal(grammar_state_accept(s, RIG_THINK_END), 0);
    assert_int_equal(grammar_state_accept(s, 't'), 0);
    assert_int_equal(grammar_state_accept(s, 'h'), 0);
    assert_int_equal(grammar_state_accept(s, 'e'), 0);
    assert_int_equal(rig_allows(s, RIG_END), 1);
    grammar_state_free(s);
    grammar_free(g);
}

static void free_tokens_are_text(void **state) {
    static const char *const texts[] = {
        "{\"type\":\"structural_tag\",\"format\":{\"type\":\"token_triggered_tags\",\"trigger_tokens\":[\"<call>\"],"
        "\"tags\":[{\"begin\":{"
        "\"token\":\"<call>\"},\"content\":{\"type\":\"const_string\",\"value\":\"ab\"},\"end\":{\"token\":\"</"
        "call>\"}}]}}",
        "{\"type\":\"structural_tag\",\"format\":{\"type\":\"tag\",\"begin\":\"\",\"content\":{\"type\":\"any_tokens\"}"
        ",\"end\":{\"token\":\"<call>\"}}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct grammar *g = made(COHORT_GRAMMAR_TAGS, texts[i], 0);
        struct grammar_state *s;
        assert_int_equal(grammar_state_make(g, &s), 0);
        assert_int_equal(grammar_state_accept(s, 'x'), 0);
        assert_int_equal(rig_allows(s, 'x'), 1);
        assert_int_equal(rig_allows(s, RIG_CALL), 1);
        assert_int_equal(rig_allows(s, RIG_CALL_END), 0);
        assert_int_equal(rig_allows(s, RIG_THINK), 0);
        assert_int_equal(grammar_state_accept(s, RIG_CALL), 0);
        assert_int_equal(rig_allows(s, 'x'), 0);
        grammar_state_free(s);
        grammar_free(g);
    }
}

/* ---- Refusals ---- */

static void what_would_not_hold_is_refused(void **state) {
    static const struct {
        cohort_grammar_kind kind;
        int code;
        const char *text, *says;
    } cases[] = {
#define SCHEMA(code, text, says) {COHORT_GRAMMAR_JSON_SCHEMA, COHORT_##code, text, says}
        SCHEMA(E_UNSUPPORTED, "{\"not\":{\"type\":\"string\"}}", "#/not"),
        SCHEMA(E_UNSUPPORTED, "{\"properties\":{\"a\":{\"if\":{},\"then\":false}}}", "#/properties/a/if"),
        SCHEMA(E_UNSUPPORTED, "{\"type\":\"array\",\"uniqueItems\":true}", "#/uniqueItems"),
        SCHEMA(E_UNSUPPORTED, "{\"type\":\"array\",\"contains\":{\"const\":1}}", "#/contains"),
        SCHEMA(E_UNSUPPORTED, "{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}", "#/dependentRequired"),
        SCHEMA(E_UNSUPPORTED, "{\"type\":\"number\",\"multipleOf\":0.01}", "#/multipleOf"),
        SCHEMA(E_UNSUPPORTED, "{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":3}", "#/pattern"),
        SCHEMA(E_UNSUPPORTED, "{\"type\":\"string\",\"pattern\":\"a(?=b)\"}", "#/pattern"),
        SCHEMA(E_UNSUPPORTED, "{\"type\":\"string\",\"format\":\"idn-email\"}", "#/format"),
        SCHEMA(E_UNSUPPORTED, "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "#/oneOf"),
        SCHEMA(E_UNSUPPORTED, "{\"$ref\":\"other.json\"}", "#/$ref"),
        SCHEMA(E_UNSUPPORTED, "{\"minProperties\":2,\"additionalProperties\":true}", "#/minProperties"),
        SCHEMA(E_UNSUPPORTED, "{\"patternProperties\":{\"a\":{},\"b\":{}}}", "#/patternProperties"),
        SCHEMA(E_ARGUMENT, "{\"type\":\"text\"}", "#/type"),
        SCHEMA(E_ARGUMENT, "{\"$ref\":\"#/$defs/x\"}", "#/$ref"),
        SCHEMA(E_ARGUMENT, "false", "no value"),
        SCHEMA(E_ARGUMENT, "{\"enum\":[]}", "no value"),
        SCHEMA(E_ARGUMENT, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "no value"),
        SCHEMA(E_ARGUMENT, "{\"required\":[\"a\"],\"properties\":{\"a\":false}}", "no value"),
        SCHEMA(E_ARGUMENT, "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
               "no value"),
        SCHEMA(E_ARGUMENT,
               "{\"$defs\":{\"a\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
               "b\"},\"minItems\":1},\"b\":{\"anyOf\":["
               "{\"$ref\":\"#/$defs/a\"},{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/$defs/"
               "b\"}},\"required\":["
               "\"x\"]}]}},\"$ref\":\"#/$defs/a\"}",
               "no value"),
        SCHEMA(E_ARGUMENT, "{\"a\":1,\"a\":2}", "not JSON"),
        SCHEMA(E_ARGUMENT, "{", "not JSON"),
        {COHORT_GRAMMAR_REGEX, COHORT_E_UNSUPPORTED, "\\bab", "escape"},
        {COHORT_GRAMMAR_REGEX, COHORT_E_UNSUPPORTED, "a^b", "anchor"},
        {COHORT_GRAMMAR_REGEX, COHORT_E_ARGUMENT, "(a", "not closed"},
        {COHORT_GRAMMAR_REGEX, COHORT_E_LIMIT, "(((a{1,30}){1,30}){1,30}){1,30}", "too large"},
        {COHORT_GRAMMAR_EBNF, COHORT_E_ARGUMENT, "root ::= other", "no rule \"other\""},
        {COHORT_GRAMMAR_EBNF, COHORT_E_ARGUMENT, "root ::= \"a\" root", "no text ends"},
        {COHORT_GRAMMAR_EBNF, COHORT_E_ARGUMENT,
         "root ::= (a | b \"x\") [a-z]*\na ::= b+ \"]\"\nb ::= a{1,3} | \"q\" a", "no text ends"},
        {COHORT_GRAMMAR_EBNF, COHORT_E_ARGUMENT, "a ::= \"b\"", "no rule \"root\""},
        {COHORT_GRAMMAR_EBNF, COHORT_E_ARGUMENT, "root ::= root", "no text ends"},
        {COHORT_GRAMMAR_EBNF, COHORT_E_UNSUPPORTED, "root ::= <think>", "line 1"},
        {COHORT_GRAMMAR_EBNF, COHORT_E_ARGUMENT, "root ::= Token(5)", "no rule \"Token\""},
        {COHORT_GRAMMAR_EBNF, COHORT_E_ARGUMENT, "root ::= \"a\xff\"", "UTF-8"},
        {COHORT_GRAMMAR_EBNF, COHORT_E_ARGUMENT, "", "empty"},
        {COHORT_GRAMMAR_TAGS, COHORT_E_ARGUMENT,
         "{\"type\":\"structural_tag\",\"format\":{\"type\":\"token\",\"token\":\"<none>\"}}", "<none>"},
        {COHORT_GRAMMAR_TAGS, COHORT_E_UNSUPPORTED,
         "{\"type\":\"structural_tag\",\"format\":{\"type\":\"json_schema\",\"json_schema\":{\"not\":{}}}}", "#/not"},
        {COHORT_GRAMMAR_TAGS, COHORT_E_UNSUPPORTED,
         "{\"type\":\"structural_tag\",\"format\":{\"type\":\"any_text\",\"max_tokens\":3}}", "max_tokens"},
        {COHORT_GRAMMAR_NONE, COHORT_E_ARGUMENT, "x", "kind"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g;
        cohort_error err = {0};
        int code = rig_compile(vocab, cases[i].kind, cases[i].text, 0, &g, &err);
        if (code != cases[i].code) fail_msg("%s: %d (%s)", cases[i].text, code, err.text);
        if (!strstr(err.text, cases[i].says)) fail_msg("%s: %s", cases[i].text, err.text);
        assert_string_equal(err.field, "grammar");
        assert_null(g);
    }
}

/* What is taken and what is not, schema by schema. */
static void schemas_hold_exactly(void **state) {
    static const struct {
        const char *schema, *valid, *invalid;
    } cases[] = {
        {"{\"type\":\"string\",\"maxLength\":2000}", NULL, NULL},
        {"{\"type\":\"string\",\"maxLength\":3}",
         "\"a\xc3\xa9"
         "b\"",
         "\"abcd\""},
        {"{\"type\":\"string\",\"minLength\":2}", "\"ab\"", "\"a\""},
        {"{\"type\":\"string\",\"pattern\":\"b+c\"}", "\"abbcd\"", "\"abb\""},
        {"{\"type\":\"string\",\"pattern\":\"^a|c$\"}", "\"xxc\"", "\"xcx\""},
        {"{\"type\":\"string\",\"pattern\":\"^[0-9]{1,3}(a[0-9]{1,2})?$\"}", "\"123\"", "\"1234\""},
        {"{\"type\":\"string\",\"pattern\":\"^.{2}$\"}", "\"a\xef\xbf\xbd\"", "\"a\xe0\x89\xb4\""},    /* overlong */
        {"{\"type\":\"string\",\"pattern\":\"^[^x]{2}$\"}", "\"a\xed\x9f\xbf\"", "\"a\xed\xa0\x80\""}, /* a surrogate */
        {"{\"type\":\"integer\",\"minimum\":-5,\"exclusiveMaximum\":12.5}", "12", "13"},
        {"{\"type\":\"integer\",\"minimum\":-5,\"exclusiveMaximum\":12}", "-5", "12"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "0.5", "0"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "1", "1.5"},
        {"{\"type\":\"integer\",\"multipleOf\":7}", "49", "50"},
        {"{\"minimum\":3}", "3", "\"the\""},
        {"{\"type\":[\"integer\",\"null\"]}", "null", "true"},
        {"{\"const\":{\"a\":[1,\"x\"]}}", "{\"a\":[1,\"x\"]}", "{\"a\":[1]}"},
        {"{\"enum\":[1,\"the\",null],\"type\":\"string\"}", "\"the\"", "1"},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":2}", "[1, 2]", "[1, 2, 3]"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":false}", "[1]", "[1, 2]"},
        {"{\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}", "[1, 2, 2]", "[1, 1]"},
        {"{\"type\":\"array\"}", "[1, \"the\"]", "[1,2]"},
        {"{\"type\":\"object\"}", "{\"ab\": null}", "{\"ab\":null}"},
        {"{\"required\":[\"x\"],\"properties\":{\"ab\":{}}}", "{\"ab\": 1, \"x\": 1}", "{\"ab\": 1}"},
        {"{\"properties\":{\"ab\":{\"const\":1}},\"additionalProperties\":{\"const\":2}}", "{\"ab\": 1, \"abc\": 2}",
         "{\"ab\": 2}"},
        {"{\"properties\":{\"ab\":{\"const\":1}},\"additionalProperties\":{\"const\":2}}", "{\"x\\u0061\": 2}",
         "{\"\\u0061b\": 2}"},
        {"{\"patternProperties\":{\"^x_\":{\"const\":1}}}", "{\"x_a\": 1}", "{\"y\": 1}"},
        {"{\"propertyNames\":{\"maxLength\":2},\"type\":\"object\"}", "{\"ab\": 1}", "{\"abc\": 1}"},
        {"{\"allOf\":[{\"minimum\":2},{\"maximum\":4}],\"type\":\"integer\"}", "3", "5"},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}}},{\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]"
         "}]}",
         "{\"a\": 1, \"b\": 2}", "{\"a\": 1}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"anyOf\":[{\"required\":["
         "\"a\"]},{\"required\":[\"b\"]}]}",
         "{\"b\": 2}", "{}"},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "12", "1.5"},
        {"{\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}},\"$ref\":\"#/$defs/t\"}",
         "[[], [[]]]", "[1]"},
        {"{\"$defs\":{\"t\":{\"type\":\"integer\"}},\"$ref\":\"#/$defs/t\",\"minimum\":3}", "3", "2"},
        {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"", "\"2023-02-29\""},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"192.168.0.1\"", "\"192.168.0.256\""},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", "\"2eb8aa08-aa98-11ea-b4aa-73b441d16380\"",
         "\"2eb8aa08-aa98-11ea-b4aa73b441d16380\""},
        {"{\"type\":\"string\"}", "\"\\n\\u00e9\"", "\"\\ud800\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = made(COHORT_GRAMMAR_JSON_SCHEMA, cases[i].schema, 0);
        if (cases[i].valid) takes(g, cases[i].valid, 1);
        if (cases[i].invalid) takes(g, cases[i].invalid, 0);
        grammar_free(g);
    }
}

static void a_length_is_exact_to_the_last(void **state) {
    static char text[2010];
    struct grammar *g =
        made(COHORT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":2000,\"minLength\":1999}", 0);
    for (size_t n = 1998; n <= 2001; n++) {
        memset(text, 'a', n + 2);
        text[0] = text[n + 1] = '"';
        assert_int_equal(rig_takes(g, text, n + 2, 0), n == 1999 || n == 2000);
    }
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
        cmocka_unit_test(text_is_never_a_control_token),
        cmocka_unit_test(tags_name_control_tokens),
        cmocka_unit_test(free_tokens_are_text),
        cmocka_unit_test(what_would_not_hold_is_refused),
        cmocka_unit_test(schemas_hold_exactly),
        cmocka_unit_test(a_length_is_exact_to_the_last),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
