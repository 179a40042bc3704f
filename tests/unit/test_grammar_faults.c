/* Memory that gives out at every place where C++ asks for it: compiling, states, masks, accepting. Each time it is an
 * error and nothing else: the process lives, and what was held is given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/budget.h"
#include "grammar_rig.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEP = 11 /* of the allocations that are made to fail, since each takes so much longer */ };
#else
enum { STEP = 1 };
#endif

static struct grammar_vocab *vocab;

static int set_up(void **state) {
    vocab = rig_vocab();
    return vocab ? 0 : -1;
}

static int tear_down(void **state) {
    grammar_vocab_free(vocab);
    return 0;
}

struct try {
    cohort_grammar_kind kind;
    const char *text, *answer; /* what the grammar takes */
};
static const struct try tries[] = {
    {COHORT_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\",\"minimum\":3},\"x\":{\"$ref\":\"#/$defs/e\"},"
     "\"l\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":300}}},\"required\":[\"ab\"],"
     "\"$defs\":{\"e\":{\"enum\":[\"the\",null]}}}",
     "{\"ab\": 12, \"x\": null, \"l\": [\"the\"]}"},
    {COHORT_GRAMMAR_REGEX, "(ab|the)+[0-9]{2,3}", "abthe12"},
    {COHORT_GRAMMAR_EBNF, "root ::= item (\", \" item)*\nitem ::= [a-c]+ | \"1\"{2,3}\n", "abc, 11"},
    {COHORT_GRAMMAR_TAGS,
     "{\"type\":\"structural_tag\",\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<e\"],\"tags\":[{\"begin\":"
     "\"<e>\","
     "\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"boolean\"}},\"end\":\"</e>\"}]}}",
     "the <e>true</e> the"},
    {COHORT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(a{3,20}|b)*$\"}", "\"bb\""},
};

/* Errors, too, have paths of their own: of what only compiling finds. */
static const struct try refused[] = {
    {COHORT_GRAMMAR_TAGS,
     "{\"type\":\"structural_tag\",\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"x\"],\"tags\":[{\"begin\":"
     "\"y\","
     "\"content\":{\"type\":\"any_text\"},\"end\":\"z\"}]}}",
     NULL},
};

/* Everything that is done with a grammar. 0, or the code of what failed. */
static int use(const struct try *t) {
    struct grammar *g;
    struct grammar_state *s = NULL;
    uint32_t mask[RIG_MASK_WORDS];
    char text[64];
    int rc = rig_compile(vocab, t->kind, t->text, 0, &g, NULL);
    if (rc) return rc;
    rc = grammar_state_make(g, &s);
    for (const char *p = t->answer; !rc && *p; p++) {
        int masked = grammar_state_mask(s, mask);
        rc = masked < 0 ? masked : grammar_state_accept(s, (unsigned char)*p);
        if (!rc) grammar_state_forced(s, text, sizeof text);
    }
    if (!rc) rc = grammar_state_complete(s) ? 0 : COHORT_E_MEMORY; /* the last call broke it */
    grammar_state_free(s);
    grammar_free(g);
    return rc;
}

static void fail_everywhere(const struct try *t, int expected) {
    assert_int_equal(use(t), expected);
    int64_t held = grammar_held();
    uint64_t before = grammar_allocations();
    assert_int_equal(use(t), expected);
    assert_int_equal(grammar_held(), held);
    uint64_t all = grammar_allocations() - before, failed = 0;
    for (uint64_t nth = 1; nth <= all; nth += STEP) {
        grammar_fail_at(nth);
        int rc = use(t);
        grammar_fail_at(0);
        if (rc != expected && rc != COHORT_E_MEMORY)
            fail_msg("%s: allocation %llu: code %d", t->text, (unsigned long long)nth, rc);
        if (grammar_held() != held)
            fail_msg("%s: allocation %llu: %lld bytes kept", t->text, (unsigned long long)nth,
                     (long long)(grammar_held() - held));
        failed += rc == COHORT_E_MEMORY;
    }
    assert_true(all > 0);
    assert_true(failed > all / STEP / 2);
}

static void memory_gives_out_everywhere(void **state) {
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) fail_everywhere(&tries[i], 0);
}

static void and_on_the_way_to_a_refusal(void **state) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) fail_everywhere(&refused[i], COHORT_E_ARGUMENT);
}

static void a_vocabulary_too(void **state) {
    int64_t held = grammar_held();
    for (uint64_t nth = 1; nth < 2000; nth += 7) {
        grammar_fail_at(nth);
        struct grammar_vocab *v = rig_vocab();
        grammar_fail_at(0);
        grammar_vocab_free(v);
        assert_int_equal(grammar_held(), held);
    }
}

static void limits_are_kept(void **state) {
    static const char wide[] = "{\"type\":\"string\",\"pattern\":\"^(.{1,60}x){60}$\"}";
    static const struct {
        struct grammar_limits limits;
        const char *says;
    } cases[] = {{{1, 1u << 30}, "ms"}, {{60000, 1u << 16}, "bytes"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cohort_grammar_source source = {COHORT_GRAMMAR_JSON_SCHEMA, wide, sizeof wide - 1, 0};
        struct grammar *g;
        cohort_error err;
        int64_t held = grammar_held();
        assert_int_equal(grammar_compile(vocab, &source, &cases[i].limits, &g, &err), COHORT_E_LIMIT);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_string_equal(err.field, "grammar");
        assert_null(g);
        assert_int_equal(grammar_held(), held);
    }
}

/* Where a text can be read in ever more ways a token takes ever more work. What one may take is counted, so that an
 * answer ends at the same token each time, before its neighbours wait long. */
static void work_for_one_token_is_bounded(void **state) {
    static const char many[] = "(.{2,900}[^b]{2,900}){9}";
    cohort_grammar_source source = {COHORT_GRAMMAR_REGEX, many, sizeof many - 1, 0};
    struct grammar *g;
    cohort_error err;
    uint32_t ended[2] = {0}, mask[RIG_MASK_WORDS];
    assert_int_equal(grammar_compile(vocab, &source, &rig_limits, &g, &err), 0);
    for (int turn = 0; turn < 2; turn++) {
        struct grammar_state *s;
        int rc = grammar_state_make(g, &s);
        uint64_t before = grammar_allocations();
        for (; rc == 0 && ended[turn] < 2000; ended[turn]++) {
            if (ended[turn] % 16 == 0) rc = grammar_state_mask(s, mask);
            if (rc >= 0) rc = grammar_state_accept(s, 'c');
            assert_in_range(grammar_allocations() - before, 0, 2 * 250000);
            before = grammar_allocations();
        }
        assert_int_equal(rc, COHORT_E_LIMIT);
        assert_int_equal(grammar_state_mask(s, mask), COHORT_E_LIMIT);
        grammar_state_free(s);
    }
    assert_int_equal(ended[0], ended[1]);
    grammar_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_for_one_token_is_bounded),
        cmocka_unit_test(memory_gives_out_everywhere),
        cmocka_unit_test(and_on_the_way_to_a_refusal),
        cmocka_unit_test(a_vocabulary_too),
        cmocka_unit_test(limits_are_kept),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
