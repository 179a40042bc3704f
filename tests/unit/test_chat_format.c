/* Which notation a template's answers are read by. Small templates here; with the folder of templates of published
 * models in COHORT_TEMPLATES all of those too, against the list in docs/TOOLS.md (`--table` prints it). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "chat/notation.h"
#include "jinja/jinja.h"

static int probe(void *user, const char *messages, const char *tools, const char *variables, int generation,
                 char **text, size_t *len) {
    const char *more = variables ? strchr(variables, ':') : NULL;
    const char *thinks = more && !strncmp(more, ":true", 5) ? "true" : "false";
    const char *opens = generation ? "true" : "false";
    struct jinja_variable v[8] = {
        {.name = "messages", .json = messages, .len = strlen(messages)},
        {.name = "add_generation_prompt", .json = opens, .len = strlen(opens)},
        {.name = "bos_token", .json = "\"<s>\"", .len = 5},
        {.name = "eos_token", .json = "\"</s>\"", .len = 6},
        {.name = "tools", .json = tools ? tools : "null", .len = tools ? strlen(tools) : 4},
        {.name = "enable_thinking", .json = thinks, .len = strlen(thinks)},
        {.name = "thinking", .json = thinks, .len = strlen(thinks)},
    };
    struct jinja_text out;
    int e = jinja_render(user, v, variables ? 7 : 5, 1700000000, &out, NULL);
    if (e) return e;
    *text = out.bytes;
    *len = out.len;
    out.bytes = NULL;
    jinja_text_free(&out);
    return 0;
}

static int find(const char *text, size_t n, struct chat_abilities *out) {
    struct jinja *t;
    cohort_error err = {0};
    int e = jinja_parse(text, n, &t, &err);
    if (e) return e;
    e = chat_format_find(text, n, probe, t, out, &err);
    jinja_free(t);
    return e;
}

#define TURNS  "{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
#define ANSWER "{% if add_generation_prompt %}[assistant]{% endif %}"
#define TOLD   "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"

static const struct {
    const char *text, *name;
    int tools, call_turns, object_arguments, tool_turns, system, reasoning;
} small[] = {
    {TURNS "{% endfor %}" ANSWER, "house", 0, 0, 0, 1, 1, 0},
    /* calls as they stand, and tools that the model is told of */
    {TOLD TURNS "{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ "
                "c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}}\n"
                "</tool_call>{% endfor %}{% endfor %}" ANSWER,
     "hermes", 1, 1, 0, 1, 1, 0},
    /* arguments must be an object */
    {TOLD TURNS "{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ "
                "c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}" ANSWER,
     "hermes", 1, 1, 1, 1, 1, 0},
    /* calls are written, but no tools are told of: explained, in this notation */
    {TURNS
     "{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments }}{% endfor "
     "%}{% endfor %}" ANSWER,
     "mistral-v13", 0, 1, 0, 1, 1, 0},
    /* only the template's text says how */
    {"Answer by <|tool_calls_section_begin|>." TOLD TURNS "{% endfor %}" ANSWER, "kimi-k2", 1, 0, 0, 1, 1, 0},
    /* tools in a notation that is not known: explained in the house's */
    {TOLD TURNS "{% for c in m.tool_calls or [] %}CALL {{ c.function.name }}{% endfor %}{% endfor %}" ANSWER, "house",
     0, 0, 0, 1, 1, 0},
    /* reasoning: written, opened by the prompt, closed by it, or only cut away */
    {TURNS "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{% endfor %}" ANSWER,
     "house+think", 0, 0, 0, 1, 1, 1},
    {TURNS "{% endfor %}" ANSWER "[THINK]", "house+mistral-think", 0, 0, 0, 1, 1, 1},
    {TURNS "{% endfor %}" ANSWER "{% if enable_thinking is false %}<think></think>{% endif %}", "house+think", 0, 0, 0,
     1, 1, 1},
    {"{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}", "house+think", 0, 0, 0, 1, 1, 1},
    /* no system turns, no tool turns */
    {"{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no') }}{% endif %}{{ "
     "m.content }}{% endfor %}",
     "house", 0, 0, 0, 0, 0, 0},
};

static void test_small(void **state) {
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        struct chat_abilities a;
        assert_int_equal(find(small[i].text, strlen(small[i].text), &a), 0);
        assert_string_equal(chat_format_name(a.format), small[i].name);
        assert_int_equal(a.tools, small[i].tools);
        assert_int_equal(a.call_turns, small[i].call_turns);
        assert_int_equal(a.object_arguments, small[i].object_arguments);
        assert_int_equal(a.tool_turns, small[i].tool_turns);
        assert_int_equal(a.system, small[i].system);
        assert_int_equal(a.reasoning, small[i].reasoning);
        assert_int_equal(a.typed_content, 0);
        chat_format_unref(a.format);
    }
}

/* White space is the template's own, between calls and at their ends. */
static void test_derived(void **state) {
    static const char text[] =
        TOLD TURNS "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {% for k, v in "
                   "c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>  <arg_value>{{ v }}</arg_value>{% endfor "
                   "%}\n\n</tool_call>\t{% endfor %}END{% endfor %}" ANSWER;
    struct chat_abilities a;
    assert_int_equal(find(text, strlen(text), &a), 0);
    const struct chat_calls *c = &a.format->calls;
    assert_string_equal(c->name, "glm");
    assert_string_equal(c->call, "<tool_call>");
    assert_string_equal(c->name_end, " ");
    assert_string_equal(c->key_end, "</arg_key>  <arg_value>");
    assert_string_equal(c->value_end, "</arg_value>");
    assert_string_equal(c->call_end, "\n</tool_call>"); /* a newline behind a block is the block's */
    assert_string_equal(c->between, "\t");
    chat_format_unref(a.format);
}

/* Contents must be lists of parts. */
static void test_typed(void **state) {
    static const char text[] = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
    struct chat_abilities a;
    assert_int_equal(find(text, strlen(text), &a), 0);
    assert_int_equal(a.typed_content, 1);
    chat_format_unref(a.format);
}

/* Reasoning at a prompt's end. */
static void test_begins(void **state) {
    static const struct {
        const char *prompt, *messages;
        int ending;
        enum chat_begins begins;
    } cases[] = {
        {"x<think>\n", "[]", 1, CHAT_BEGINS_REASONING},
        {"x<think>\n\n</think>\n\n", "[]", 1, CHAT_BEGINS_TEXT},
        {"<think>user</think> assistant", "[]", 1, CHAT_BEGINS_MAYBE},
        {"<think>a", "[{\"role\":\"assistant\",\"content\":\"<think>a\"}]", COHORT_CHAT_CONTINUE,
         CHAT_BEGINS_REASONING},
        {"<think>a</think>b", "[{\"role\":\"assistant\",\"content\":\"<think>a</think>b\"}]", COHORT_CHAT_CONTINUE,
         CHAT_BEGINS_TEXT},
    };
    const struct chat_format *f = chat_format_make(NULL, &chat_reasoning_table[0]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cohort_chat chat = {.messages = cases[i].messages, .messages_n = strlen(cases[i].messages)};
        chat.ending = cases[i].ending;
        struct chat_wants w = {.chat = &chat, .prompt = cases[i].prompt, .prompt_n = strlen(cases[i].prompt)};
        assert_int_equal(chat_format_begins(f, &w), cases[i].begins);
    }
    assert_string_equal(chat_format_reasoning_end(f), "</think>");
    chat_format_unref(f);
}

/* What the house tells a model can be read: its example is a call. */
static void test_explained(void **state) {
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"NAME\",\"parameters\":{\"type\":"
                                "\"object\",\"properties\":{\"PARAMETER\":{\"type\":\"string\"}}}}}]";
    for (size_t i = 0; i <= chat_calls_n; i++) {
        const struct chat_calls *c = i < chat_calls_n ? &chat_calls_table[i] : NULL;
        const struct chat_format *f = chat_format_make(c, NULL);
        char *text;
        size_t n;
        struct chat_reader *r;
        cohort_part p;
        int calls = 0, ended = 0;
        assert_int_equal(chat_format_explain(f, tools, strlen(tools), &text, &n, NULL), 0);
        assert_int_equal(chat_reader_make_probe(f, tools, strlen(tools), 0, &r, NULL), 0);
        assert_int_equal(chat_reader_feed(r, text, n, 1), 0);
        while (!chat_reader_next(r, &p)) {
            calls += p.type == COHORT_PART_CALL && p.len == 4 && !memcmp(p.bytes, "NAME", 4);
            ended += p.type == COHORT_PART_CALL_END;
        }
        if (calls < 1 || ended != calls)
            fail_msg("%s: %d calls, %d whole in %s", chat_format_name(f), calls, ended, text);
        chat_reader_free(r);
        mem_free(text);
        chat_format_unref(f);
    }
}

/* ---- Templates of published models ---- */

static const struct published {
    const char *file, *calls, *reasoning;
    int tools;
} published[] = {
#include "chat_templates.inc"
};

static char *read_template(const char *file, size_t *n) {
    char path[1024];
    const char *folder = getenv("COHORT_TEMPLATES");
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = folder ? fopen(path, "rb") : NULL;
    char *text = f ? malloc(JINJA_TEMPLATE_MAX) : NULL;
    *n = text ? fread(text, 1, JINJA_TEMPLATE_MAX, f) : 0;
    if (f) fclose(f);
    return text;
}

static int print_table(int check) {
    int wrong = 0;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *x = &published[i];
        size_t n;
        char *text = read_template(x->file, &n);
        struct chat_abilities a;
        if (!text) return -1;
        int e = find(text, n, &a);
        const char *calls = e ? "?" : a.format->calls.name;
        const char *reasoning = e || !a.format->reasoning.open ? "" : a.format->reasoning.name;
        int same = !e && !strcmp(calls, x->calls) && !strcmp(reasoning, x->reasoning) && a.tools == x->tools;
        wrong += !same;
        if (!check)
            printf("| %.*s | %s | %s | %s | %s |\n", (int)strlen(x->file) - 6, x->file, calls,
                   *reasoning ? reasoning : "-", a.tools ? "itself" : "house",
                   a.object_arguments ? "object" : "string");
        else if (!same)
            print_error("%s: %s, %s, %d\n", x->file, calls, reasoning, a.tools);
        if (!e) chat_format_unref(a.format);
        free(text);
    }
    return wrong;
}

static void test_published(void **state) {
    if (!getenv("COHORT_TEMPLATES")) skip();
    assert_int_equal(print_table(1), 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--table")) return print_table(0) < 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),     cmocka_unit_test(test_typed),   cmocka_unit_test(test_begins),
        cmocka_unit_test(test_explained), cmocka_unit_test(test_derived), cmocka_unit_test(test_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
