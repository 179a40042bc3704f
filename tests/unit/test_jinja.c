/* Templates rendered: each feature with the text that jinja2 3.1.6 gives, errors, marks, limits, memory that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "jinja/jinja.h"

enum { NOW = 1790000000 };

struct rendering {
    const char *template, *text;
};

static const char *const values[][2] = {
    {"s", "\"Hello World\""},
    {"u", "\"Stra\303\237e \303\251\344\270\226\""},
    {"l", "[3, 1, 2]"},
    {"d", "{\"a\": 1, \"b\": [1, \"x\"]}"},
    {"n", "null"},
    {"f", "1.5"},
    {"o", "[{\"k\": \"b\", \"v\": 1}, {\"k\": \"A\", \"v\": 2}]"},
    {"t", "true"},
};

static const struct rendering output[] = {
    {"a{{ s }}b", "aHello Worldb"},
    {"{{ none }}{{ true }}{{ missing }}", "NoneTrue"},
    {"{{ 1 }}{{ 1.0 }}{{ 1e20 }}{{ 0.1 + 0.2 }}{{ 1e-7 }}", "11.01e+200.300000000000000041e-07"},
    {"{{ [1, 'a', none, 2.5] }}", "[1, 'a', None, 2.5]"},
    {"{{ {'a': \"it's\", 2: (1,)} }}", "{'a': \"it's\", 2: (1,)}"},
    {"{{ () }}{{ (1, 2) }}", "()(1, 2)"},
    {"{{ d }}", "{'a': 1, 'b': [1, 'x']}"},
    {"{{ u }}{{ [u] }}", "Stra\303\237e \303\251\344\270\226['Stra\303\237e \303\251\344\270\226']"},
    {"{{ '\\n\\t\\\\\\'\\x41\\u00e9' }}", "\n\t\\'A\303\251"},
    {"{{ 'a' 'b' }}", "ab"},
};

static const struct rendering whitespace[] = {
    {"{% if true %}\n  x\n{% endif %}\ny\n", "  x\ny"},
    {"a  {%- if true -%}  b  {%- endif -%}  c", "abc"},
    {"  {% if true %}x{% endif %}\n", "x"},
    {"  {%+ if true +%}\nx{% endif %}", "  \nx"},
    {"{{ 1 }}\n{{ 2 }}\n\n", "1\n2\n"},
    {"a {#- c -#} b", "ab"},
    {"  {# c #}\nx", "x"},
    {"{% raw %}{{ x }}{% endraw %}\nz", "{{ x }}z"},
    {"a\r\nb\rc", "a\nb\nc"},
    {"{{- 1 -}} x {{- 2 }}", "1x2"},
    {"x\n   {{ 1 }}", "x\n   1"},
    {"{% set a = 1\n  %}\n{{ a }}", "1"},
};

static const struct rendering operators[] = {
    {"{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % -3 }}{{ 2 ** 10 }}{{ 7 / 2 }}", "3-4-210243.5"},
    {"{{ 1 + 2 * 3 - 4 }}", "3"},
    {"{{ 'a' ~ 1 ~ none }}", "a1None"},
    {"{{ 'ab' * 3 }}{{ [1] * 2 }}{{ [1] + [2] }}", "ababab[1, 1][1, 2]"},
    {"{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 == true }}", "TrueFalseTrue"},
    {"{{ 'a' in s }}{{ 'H' in s }}{{ 3 not in l }}{{ 'a' in d }}", "FalseTrueFalseTrue"},
    {"{{ not 1 }}{{ 0 or 'x' }}{{ 1 and '' }}", "Falsex"},
    {"{{ 'y' if s else 'n' }}{{ 'x' if false }}", "y"},
    {"{{ '%s-%d-%.2f' % ('a', 7, 1.005) }}", "a-7-1.00"},
    {"{{ '%(a)s' % d }}{{ '%5d|%-5d|%05d' % (1, 2, 3) }}", "1    1|2    |00003"},
    {"{{ '{} {0!r} {x:>5}'.format('a', x=1) if false else '{} {x:>5}'.format('a', x=1) }}", "a     1"},
    {"{{ (1, 2) < (1, 3) }}{{ 'a' < 'b' }}", "TrueTrue"},
    {"{{ 2 is even }}{{ 3 is divisibleby 3 }}{{ s is string and s is not mapping }}", "TrueTrueTrue"},
    {"{{ -2 ** 2 }}{{ 10 is in [10] }}", "4True"},
};

static const struct rendering access[] = {
    {"{{ l[0] }}{{ l[-1] }}{{ l[9] }}", "32"},
    {"{{ s[0:5] }}{{ s[::-1] }}{{ s[-3:] }}{{ u[4:7] }}", "HellodlroW olleHrld\303\237e "},
    {"{{ l[1:] }}{{ l[::2] }}{{ (1,2,3)[:2] }}", "[1, 2][3, 2](1, 2)"},
    {"{{ d.a }}{{ d['b'] }}{{ d.b[1] }}{{ d.zz }}", "1[1, 'x']x"},
    {"{{ d.items() | list }}{{ d.keys() }}{{ d.values() | list }}",
     "[('a', 1), ('b', [1, 'x'])]dict_keys(['a', 'b'])[1, [1, 'x']]"},
    {"{{ d.get('a') }}{{ d.get('q') }}{{ d.get('q', 5) }}", "1None5"},
    {"{{ o[0].k }}{{ o.0.v }}", "b1"},
    {"{{ s.upper() }}{{ s.split() }}{{ s.split('o', 1) }}", "HELLO WORLD['Hello', 'World']['Hell', ' World']"},
    {"{{ s.startswith('He') }}{{ s.find('World') }}{{ s.replace('l', 'L', 2) }}", "True6HeLLo World"},
    {"{{ ' x '.strip() }}{{ 'xxaxx'.strip('x') }}{{ 'a,b'.split(',') }}", "xa['a', 'b']"},
    {"{{ 'abc'.center(9, '*') }}{{ '7'.zfill(3) }}{{ u.upper() }}{{ 'hello world'.title() }}",
     "***abc***007STRASSE \303\211\344\270\226Hello World"},
};

static const struct rendering filters[] = {
    {"{{ s | upper | lower | title }}", "Hello World"},
    {"{{ l | sort }}{{ l | sort(reverse=true) }}{{ o | sort(attribute='k') | map(attribute='v') | list }}",
     "[1, 2, 3][3, 2, 1][2, 1]"},
    {"{{ l | join(', ') }}{{ o | map(attribute='k') | join }}", "3, 1, 2bA"},
    {"{{ l | first }}{{ l | last }}{{ l | length }}{{ l | sum }}{{ l | max }}{{ l | min }}", "323631"},
    {"{{ missing | default('x') }}{{ '' | default('y', true) }}", "xy"},
    {"{{ d | tojson }}{{ d | tojson(indent=2) }}{{ u | tojson }}{{ u | tojson(ensure_ascii=true) }}",
     "{\"a\": 1, \"b\": [1, \"x\"]}{\n  \"a\": 1,\n  \"b\": [\n    1,\n    \"x\"\n  ]\n}\"Stra\303\237e "
     "\303\251\344\270\226\"\"Stra\\u00dfe \\u00e9\\u4e16\""},
    {"{{ o | selectattr('v', 'gt', 1) | list }}{{ o | rejectattr('k', 'equalto', 'A') | list }}{{ l | select('odd') | "
     "list }}",
     "[{'k': 'A', 'v': 2}][{'k': 'b', 'v': 1}][3, 1]"},
    {"{{ d | dictsort }}{{ d | items | list }}", "[('a', 1), ('b', [1, 'x'])][('a', 1), ('b', [1, 'x'])]"},
    {"{{ 'a\nb' | indent }}{{ 'a\nb' | indent(2, true) }}", "a\n    b  a\n  b"},
    {"{{ '3.7' | float }}{{ '42' | int }}{{ 'x' | int(5) }}{{ 2.5 | round }}{{ 3.14159 | round(2) }}", "3.74252.03.14"},
    {"{{ '<a>' | escape }}{{ '<a>' | safe }}{{ ('<' | safe) + '>' }}", "&lt;a&gt;<a><&gt;"},
    {"{{ 'a b c d' | truncate(5, true, '') }}{{ 'foo bar' | wordcount }}", "a b c d2"},
    {"{{ [1, 1, 2] | unique | list }}{{ [1,2,3,4,5] | batch(2) | list }}{{ [1,2,3] | slice(2) | list }}",
     "[1, 2][[1, 2], [3, 4], [5]][[1, 2], [3]]"},
    {"{{ o | groupby('k') }}", "[('A', [{'k': 'A', 'v': 2}]), ('b', [{'k': 'b', 'v': 1}])]"},
    {"{{ l | map('string') | list | reverse | list }}", "['2', '1', '3']"},
    {"{{ 'a b&c' | urlencode }}{{ 1500 | filesizeformat }}", "a%20b%26c1.5 kB"},
};

static const struct rendering statements[] = {
    {"{% for x in l %}{{ loop.index }}{{ x }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }};{% endfor %}",
     "13TrueFalse2;21FalseFalse1;32FalseTrue0;"},
    {"{% for x in [] %}a{% else %}b{% endfor %}", "b"},
    {"{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}", "a1b[1, 'x']"},
    {"{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% endfor %}", "3222"},
    {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in l %}{% if x == 1 %}{% "
     "break %}{% endif %}{{ x }}{% endfor %}",
     "323"},
    {"{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "1"},
    {"{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "7"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c %}x{{ a }}{% endset %}{{ c | length }}", "122"},
    {"{% macro m(a, b='d') %}{{ a }}{{ b }}{{ kwargs }}{{ varargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3, z=4) }}",
     "1d{}()12{'z': 4}(3,)"},
    {"{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}", "<1>"},
    {"{% macro m() %}{{ y }}{% endmacro %}{% set y = 2 %}{{ m() }}{% for y in l %}{{ m() }}{% endfor %}", "2222"},
    {"{% filter upper %}a{{ s }}{% endfilter %}", "AHELLO WORLD"},
    {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "3"},
    {"{% for x in [[1, [2]], [3]] recursive %}{{ loop.depth0 }}{{ loop(x) if x is iterable else x }}{% endfor %}",
     "011122013"},
    {"{% if false %}{% elif n is none %}e{% else %}f{% endif %}", "e"},
    {"{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "1"},
    {"{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.changed(x > 1) }}{% "
     "endfor %}",
     "a1Trueb32Truea1True"},
    {"{% set g = l | map('string') %}{{ g | list }}{{ g | list }}", "['3', '1', '2'][]"},
    {"{{ strftime_now('%Y-%m-%d') }}{{ range(3) }}{{ dict(a=1) }}{{ range(5, 0, -2) | list }}",
     "2026-09-21range(0, 3){'a': 1}[5, 3, 1]"},
    {"{% if t %}{% set z = 3 %}{% endif %}{{ z }}", "3"},
    {"{% set j = joiner(';') %}{{ j() }}a{{ j() }}b{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() "
     "}}",
     "a;b121"},
};

static int render_with(const char *template, const struct jinja_variable *v, size_t n, struct jinja_text *out,
                       cohort_error *err) {
    struct jinja *t;
    memset(out, 0, sizeof(*out));
    int code = jinja_parse(template, strlen(template), &t, err);
    if (code) return code;
    code = jinja_render(t, v, n, NOW, out, err);
    jinja_free(t);
    return code;
}

static int render(const char *template, struct jinja_text *out, cohort_error *err) {
    struct jinja_variable v[sizeof(values) / sizeof(*values)];
    size_t n = sizeof(values) / sizeof(*values);
    for (size_t i = 0; i < n; i++)
        v[i] = (struct jinja_variable){.name = values[i][0], .json = values[i][1], .len = strlen(values[i][1])};
    return render_with(template, v, n, out, err);
}

static void check_all(const struct rendering *r, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct jinja_text text;
        cohort_error err = {0};
        if (render(r[i].template, &text, &err)) fail_msg("%s: %s", r[i].template, err.text);
        assert_string_equal(text.bytes, r[i].text);
        assert_int_equal(text.len, strlen(r[i].text));
        for (size_t k = 0; k < text.len; k++) assert_int_equal(text.marks[k], 0);
        jinja_text_free(&text);
        assert_null(text.bytes);
    }
}
#define CHECK_ALL(table) check_all(table, sizeof(table) / sizeof(*table))

static void test_output(void **state) { CHECK_ALL(output); }
static void test_whitespace(void **state) { CHECK_ALL(whitespace); }
static void test_operators(void **state) { CHECK_ALL(operators); }
static void test_access(void **state) { CHECK_ALL(access); }
static void test_filters(void **state) { CHECK_ALL(filters); }
static void test_statements(void **state) { CHECK_ALL(statements); }

/* ---- Errors ---- */

static void expect_error(const char *template, int code, const char *field, const char *text) {
    struct jinja_text out;
    cohort_error err = {0};
    assert_int_equal(render(template, &out, &err), code);
    assert_int_equal(err.code, code);
    assert_string_equal(err.field, field);
    if (!strstr(err.text, text)) fail_msg("%s: \"%s\" is not in \"%s\"", template, text, err.text);
    assert_null(out.bytes);
}

static void test_errors(void **state) {
    static const struct rendering bad[] = {
        {"\n\n{% if %}", "line 3"},
        {"{% for %}", "expression"},
        {"{% endif %}", "unknown tag 'endif'"},
        {"{{ 1 | nothing }}", "No filter named 'nothing'"},
        {"{{ 1 is nothing }}", "No test named 'nothing'"},
        {"{% if true %}", "Unexpected end"},
        {"{{ (1 }}", "bracket"},
        {"{% break %}", "outside of a loop"},
        {"{% include 'x' %}", "no loader"},
        {"{{ missing.x }}", "'missing' is undefined"},
        {"{{ d.zz.x }}", "has no attribute 'zz'"},
        {"{{ 'a' + 1 }}", "unsupported operand"},
        {"{{ 'a' < 1 }}", "not supported between instances of 'str' and 'int'"},
        {"{{ [1, 'a'] | sort }}", "not supported between"},
        {"{{ 1 // 0 }}", "by zero"},
        {"{{ l.append(1) }}", "is unsafe"},
        {"{{ d.update({}) }}", "is unsafe"},
        {"{{ s.__class__.x }}", "is unsafe"},
        {"{{ 1() }}", "not callable"},
        {"{% for x in 1 %}{% endfor %}", "not iterable"},
        {"{% set a, b = [1] %}", "not enough values"},
        {"{{ {[]: 1} }}", "unhashable"},
        {"{{ range(200000) }}", "Range too big"},
        {"{% set d.x = 1 %}", "non-namespace"},
        {"{{ missing | tojson }}", "not JSON serializable"},
        {"{% for x in l %}{% set loop = 1 %}{% endfor %}", "loop variable"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        expect_error(bad[i].template, COHORT_E_ARGUMENT, "chat_template", bad[i].text);
    expect_error("{{ raise_exception('roles must ' ~ 'alternate') }}", COHORT_E_ARGUMENT, "messages",
                 "roles must alternate");
}

static void test_variables_not_json(void **state) {
    static const char *const bad[] = {"",    "{",           "[1,]", "{\"a\" 1}", "01",
                                      "1 2", "\"\\ud800\"", "nul",  "\"\n\"",    "\"\xff\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct jinja_variable v = {.name = "v", .json = bad[i], .len = strlen(bad[i])};
        struct jinja_text out;
        cohort_error err = {0};
        assert_int_equal(render_with("{{ v }}", &v, 1, &out, &err), COHORT_E_ARGUMENT);
    }
}

/* An integer beyond 64 bits can be written out, but not be counted with. */
static void test_large_integer(void **state) {
    struct jinja_variable v = {.name = "v", .json = "{\"a\": -99999999999999999999}", .len = 28};
    struct jinja_text out;
    cohort_error err = {0};
    assert_int_equal(
        render_with("{{ v.a }} {{ v | tojson }} {{ v.a is number and v.a is not string }}", &v, 1, &out, &err), 0);
    assert_string_equal(out.bytes, "-99999999999999999999 {\"a\": -99999999999999999999} True");
    jinja_text_free(&out);
    assert_int_equal(render_with("{{ v.a + 1 }}", &v, 1, &out, &err), COHORT_E_ARGUMENT);
}

/* ---- Limits ---- */

static char *repeated(const char *open, size_t n, const char *middle, const char *close) {
    char *text = malloc(n * (strlen(open) + strlen(close)) + strlen(middle) + 1), *at = text;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, open);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, close);
    return text;
}

static void test_limits(void **state) {
    static const char *const much[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'a'.center(10 ** 9) }}",
        "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
        "{{ 2 ** (2 ** 62) }}",
        "{{ 9223372036854775807 + 1 }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | "
        "tojson }}",
        "{% set ns = namespace(g=l) %}{% for i in range(9999) %}{% set ns.g = ns.g | map('string') %}{% endfor %}{{ "
        "ns.g | list }}",
    };
    for (size_t i = 0; i < sizeof(much) / sizeof(*much); i++)
        expect_error(much[i], COHORT_E_LIMIT, "chat_template", "too much");
    static const char *const deep[][3] = {{"(", "1", ")"}, {"[", "", "]"},  {"not ", "1", ""},
                                          {"-", "1", ""},  {"1+", "1", ""}, {"", "1", "|abs"}};
    for (size_t i = 0; i < sizeof(deep) / sizeof(*deep); i++) {
        char *inner = repeated(deep[i][0], 10000, deep[i][1], deep[i][2]), *all = repeated("{{ ", 1, inner, " }}");
        expect_error(all, COHORT_E_LIMIT, "chat_template", "too much nesting");
        free(inner);
        free(all);
    }
    char *json = repeated("[", 1000, "", "]");
    struct jinja_variable v = {.name = "v", .json = json, .len = strlen(json)};
    struct jinja_text out;
    cohort_error err = {0};
    assert_int_equal(render_with("{{ v }}", &v, 1, &out, &err), COHORT_E_LIMIT);
    free(json);
}

/* ---- Marks ---- */

static void check_marks(const char *template, const char *text, const char *marks) {
    static const char json[] = "[{\"c\": \"ab\", \"n\": 12}, {\"c\": \"XY\", \"n\": null}]";
    struct jinja_variable v = {.name = "m", .json = json, .len = sizeof(json) - 1, .mark = 1, .by_element = 1};
    struct jinja_text out;
    cohort_error err = {0};
    if (render_with(template, &v, 1, &out, &err)) fail_msg("%s: %s", template, err.text);
    assert_string_equal(out.bytes, text);
    assert_int_equal(strlen(marks), out.len);
    for (size_t i = 0; i < out.len; i++)
        if (out.marks[i] != marks[i] - '0')
            fail_msg("%s: mark %d of \"%s\", byte %zu", template, out.marks[i], text, i);
    jinja_text_free(&out);
}

static void test_marks(void **state) {
    check_marks("<{{ m[0].c }}|{{ m[1].c }}>", "<ab|XY>", "0110220");
    check_marks("{{ m[0].c ~ '-' ~ m[1].c }}", "ab-XY", "11022");
    check_marks("{{ m[0].c + 'x' }}", "abx", "110");
    check_marks("{{ (m[0].c ~ m[1].c)[1:3] }}", "bX", "12");
    check_marks("{{ (m[0].c ~ m[1].c)[::-1] }}", "YXba", "2211");
    check_marks("{{ m[0].c | upper }}{{ m[1].c.lower() }}", "ABxy", "1122");
    check_marks("{{ m[0].c | tojson }}", "\"ab\"", "1111");
    check_marks("{{ m[0] | tojson }}", "{\"c\": \"ab\", \"n\": 12}", "11111111111111111111");
    check_marks("{{ [m[0].c, 'z'] | tojson }}", "[\"ab\", \"z\"]", "01111000000");
    check_marks("{{ m[0].n }}{{ m[0].n + 1 }}{{ m[1].n }}", "1213None", "11112222");
    check_marks("{{ m | map(attribute='c') | join('+') }}", "ab+XY", "11022");
    check_marks("{{ 'a-b' | replace('-', m[1].c) }}", "aXYb", "0220");
    check_marks("{{ m[0].c | replace('b', 'q') }}", "aq", "10");
    check_marks("{{ '[%s]' % m[0].c }}{{ '{}'.format(m[1].c) }}", "[ab]XY", "011022");
    check_marks("{{ (m[0].c ~ ',' ~ m[1].c).split(',') | last }}", "XY", "22");
    check_marks("{{ (' ' ~ m[0].c) | trim }}{{ m[0].c * 2 }}", "ababab", "111111");
    check_marks("{% set x %}({{ m[0].c }}){% endset %}{{ x }}", "(ab)", "0110");
    check_marks("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(m[1].c) }}", "<XY>", "0220");
    check_marks("{{ m[0].c | length }}{{ [m[0].c] }}", "2['ab']", "0011110");
    check_marks("{% for c in m[1].c %}{{ c }}.{% endfor %}", "X.Y.", "2020");
    check_marks("{{ m[0].c | indent(1, true) }}{{ m[0].c.center(4, '*') }}", " ab*ab*", "0110110");
}

/* ---- Memory that fails, and use by several renderings ---- */

static void test_memory_fails(void **state) {
    static const char template[] = "{% for x in l %}{{ x }}{{ d | tojson }}{% endfor %}{{ 'abc' * 100000 }}";
    int failed = 0, done = 0;
    for (uint64_t nth = 1; !done && nth < 100; nth++) {
        struct jinja_text out;
        cohort_error err = {0};
        mem_fail_at(nth, 0);
        int code = render(template, &out, &err);
        mem_fail_at(0, 0);
        if (code) {
            assert_int_equal(code, COHORT_E_MEMORY);
            assert_null(out.bytes);
            failed++;
        } else {
            done = 1;
            jinja_text_free(&out);
        }
    }
    assert_true(failed > 3 && done);
}

static void test_one_template_twice(void **state) {
    struct jinja *t;
    struct jinja_text a, b;
    struct jinja_variable one = {.name = "v", .json = "1", .len = 1}, two = {.name = "v", .json = "2", .len = 1};
    assert_int_equal(jinja_parse("{% set x = v %}{{ x }}{{ w }}", 29, &t, NULL), 0);
    assert_int_equal(jinja_render(t, &one, 1, 0, &a, NULL), 0);
    assert_int_equal(jinja_render(t, &two, 1, 0, &b, NULL), 0);
    assert_string_equal(a.bytes, "1");
    assert_string_equal(b.bytes, "2");
    jinja_text_free(&a);
    jinja_text_free(&b);
    jinja_free(t);
    jinja_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output),
        cmocka_unit_test(test_whitespace),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_access),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_variables_not_json),
        cmocka_unit_test(test_large_integer),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_memory_fails),
        cmocka_unit_test(test_one_template_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
