/* The grammars that answers must follow, by the library that holds them: each notation's own calls are taken, wrong
 * ones are not, with markers as text and as control tokens; and whatever a grammar lets through is read as calls. */
#include <jansson.h>
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
#include "grammar/grammar.h"
#include "tiny_vocab.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}},\"required\":[\"city\",\"days\"],"
    "\"additionalProperties\":false}}},{\"type\":\"function\",\"function\":{\"name\":\"stop\"}}]";

struct example {
    const char *calls, *reasoning, *prompt;
    const char *answer; /* get_weather of Rom for 4 days */
    const char *wrong;  /* taken out of it, */
    const char *by;     /* and put there, it is none */
    int texts;          /* text may stand before it */
};

#define OBJECT "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rom\", \"days\": 4}}"
#define VALUES "{\"city\": \"Rom\", \"days\": 4}"
static const struct example examples[] = {
    {"", "", "", "<tool_call>\n" OBJECT "\n</tool_call>", "get_weather", "get_weathen", 1},
    {"hermes", "", "", "<tool_call>\n" OBJECT "\n</tool_call>", "4", "\"4\"", 1},
    {"hermes", "think", "<think>\n", "hm\n</think>\n\n<tool_call>\n" OBJECT "\n</tool_call>", "\"days\"", "\"day\"", 0},
    {"hermes", "think", "", "<think>\nhm</think>\n\n<tool_call>\n" OBJECT "\n</tool_call>", "}}", "}", 0},
    {"qwen3-coder", "", "",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nRom\n</parameter>\n<parameter=days>\n4\n</parameter>\n"
     "</function>\n</tool_call>",
     "\n4\n", "four", 1},
    {"seed-oss", "", "",
     "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Rom</parameter>\n<parameter=days>4</parameter>\n"
     "</function>\n</seed:tool_call>",
     "4", "x", 1},
    {"glm", "", "",
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rom</arg_value>\n<arg_key>days</arg_key>\n"
     "<arg_value>4</arg_value>\n</tool_call>",
     "days", "dais", 1},
    {"hunyuan", "", "",
     "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city"
     "</arg_key:opensource>\n<arg_value:opensource>Rom</arg_value:opensource>\n<arg_key:opensource>days"
     "</arg_key:opensource>\n<arg_value:opensource>4</arg_value:opensource>\n</tool_call:opensource>\n"
     "</tool_calls:opensource>",
     "4", "x", 1},
    {"minimax", "", "",
     "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rom</parameter>\n"
     "<parameter name=\"days\">4</parameter>\n</invoke>\n</minimax:tool_call>",
     "4", "x", 1},
    {"muse", "", "",
     "<atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter name=\"city\">Rom</atem:parameter>\n"
     "<atem:parameter name=\"days\">4</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
     "4", "x", 1},
    {"minicpm", "", "",
     "<function name=\"get_weather\"><param name=\"city\">Rom</param><param name=\"days\">4</param></function>", "4",
     "x", 1},
    {"deepseek-v3.2", "", "",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
     "string=\"true\">Rom</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">4</｜DSML｜parameter>\n"
     "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "false", "true", 1},
    {"kimi-k3", "", "",
     "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" "
     "type=\"string\"<|sep|>Rom<|close|>argument<|sep|><|open|>argument key=\"days\" type=\"number\"<|sep|>4"
     "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
     "number", "string", 0},
    {"kimi-k2", "", "",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" VALUES
     "<|tool_call_end|><|tool_calls_section_end|>",
     ":0", "", 1},
    {"deepseek-r1", "", "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" VALUES
     "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "4", "x", 1},
    {"deepseek-v3.1", "", "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" VALUES
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "4", "x", 1},
    {"harmony", "harmony-analysis", "",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
     "<|constrain|>json<|message|>" VALUES "<|call|>",
     "4", "x", 0},
    {"mistral-v13", "", "", "[TOOL_CALLS]get_weather[ARGS]" VALUES, "4", "x", 1},
    {"mistral-v11", "", "", "[TOOL_CALLS]get_weather[CALL_ID]abcdefg12[ARGS]" VALUES, "g12", "g1", 1},
    {"mistral", "", "", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": " VALUES ", \"id\": \"abcdefg12\"}]",
     "4", "x", 1},
    {"nemotron-v2", "", "", "<TOOLCALL>[" OBJECT "]</TOOLCALL>", "4", "x", 1},
    {"apriel", "", "", "<tool_calls>[" OBJECT "]</tool_calls>", "4", "x", 1},
    {"minimax-m1", "", "", "<tool_calls>\n" OBJECT "\n</tool_calls>", "4", "x", 1},
    {"command-r7b", "command-thinking", "<|START_THINKING|>",
     "hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "
     "\"parameters\": " VALUES "}\n]<|END_ACTION|>",
     "4", "x", 0},
    {"command-r-plus", "", "",
     "Action:\n```json\n[\n    {\"tool_name\": \"get_weather\", \"parameters\": " VALUES "}\n]```", "4", "x", 1},
    {"granite-3", "", "", "<|tool_call|>[" OBJECT "]", "4", "x", 1},
    {"gigachat-3.1", "", "", "<|function_call|>" OBJECT, "4", "x", 1},
    {"gigachat-3", "", "", "<|message_sep|>\n\nfunction call<|role_sep|>\n" OBJECT, "4", "x", 1},
    {"firefunction", "", "", " functools[" OBJECT "]", "4", "x", 1},
    {"solar", "", "",
     "<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>get_weather<|tool_call:args|>" VALUES
     "<|tool_call:end|><|calls|>",
     "4", "x", 0},
    {"apertus", "", "", "<|tools_prefix|>[{\"get_weather\": " VALUES "}]<|tools_suffix|>", "4", "x", 1},
    {"lfm2", "", "", "<|tool_call_start|>[get_weather(city=\"Rom\", days=4)]<|tool_call_end|>", "4", "x", 1},
    {"gemma-4", "", "", "<|tool_call>call:get_weather{city:<|\"|>Rom<|\"|>,days:4}<tool_call|>", "4", "x", 1},
    {"functionary-v3.1", "", "", "<function=get_weather>" VALUES "</function>", "4", "x", 1},
    {"functionary-v3.2", "", ">>>", "get_weather\n" VALUES, "4", "x", 0},
    {"functionary-v3.2", "", "", ">>>get_weather\n" VALUES, "4", "x", 0},
    {"llama-3", "", "", "{\"name\": \"get_weather\", \"parameters\": " VALUES "}", "4", "x", 0},
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

/* Markers that are control tokens in the second vocabulary. */
static const char *const controls[] = {
    "<|end_of_turn|>",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|start|>",
    "<|constrain|>",
    "<|call|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tools_prefix|>",
    "<|tools_suffix|>",
    "<|tool_call|>",
    "<|return|>",
};
enum { CONTROLS = sizeof controls / sizeof *controls, VOCAB = 256 + CONTROLS, WORDS = (VOCAB + 31) / 32 };
static const struct grammar_limits limits = {20000, 1u << 30};

struct rig {
    struct tiny_vocab tiny;
    struct tokenizer *tokenizer;
    struct grammar_vocab *vocab;
    int tokens; /* control tokens are in use */
};
static struct rig rigs[2];

static void make_rig(struct rig *r, int tokens) {
    static char bytes[256];
    struct grammar_piece pieces[VOCAB];
    r->tokens = tokens;
    tiny_init(&r->tiny, "gpt2");
    tiny_string(&r->tiny, "tokenizer.ggml.pre", "gpt-2");
    tiny_add_alphabet(&r->tiny);
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (struct grammar_piece){bytes + i, 1, 0};
    }
    int n = tokens ? CONTROLS : 1;
    for (int i = 0; i < n; i++) {
        tiny_add(&r->tiny, controls[i], 3, 0);
        pieces[256 + i] = (struct grammar_piece){controls[i], (uint32_t)strlen(controls[i]), 1};
    }
    tiny_u32(&r->tiny, "tokenizer.ggml.eos_token_id", 256);
    r->tokenizer = tiny_open(&r->tiny);
    int32_t end = 256;
    assert_int_equal(grammar_vocab_make(&r->vocab, pieces, 256 + (uint32_t)n, &end, 1, NULL), 0);
}

static int set_up(void **state) {
    make_rig(&rigs[0], 0);
    make_rig(&rigs[1], 1);
    return 0;
}

static int tear_down(void **state) {
    for (int i = 0; i < 2; i++) {
        grammar_vocab_free(rigs[i].vocab);
        tokenizer_close(rigs[i].tokenizer);
    }
    return 0;
}

static const struct chat_format *format_of(const char *calls, const char *reasoning) {
    const struct chat_calls *c = NULL;
    const struct chat_reasoning *w = NULL;
    for (size_t i = 0; i < chat_calls_n; i++)
        if (!strcmp(chat_calls_table[i].name, calls)) c = &chat_calls_table[i];
    for (size_t i = 0; i < chat_reasoning_n; i++)
        if (!strcmp(chat_reasoning_table[i].name, reasoning)) w = &chat_reasoning_table[i];
    assert_true(c || !*calls);
    assert_true(w || !*reasoning);
    const struct chat_format *f = chat_format_make(c, w);
    assert_non_null(f);
    return f;
}

static cohort_chat chat_of(cohort_tool_choice choice) {
    cohort_chat chat = {.messages = "[]", .messages_n = 2, .ending = 1, .parallel_calls = 1, .strict = 1};
    chat.tools = tools;
    chat.tools_n = strlen(tools);
    chat.tool_choice = choice;
    if (choice == COHORT_TOOLS_NAMED) chat.tool_name = "stop";
    return chat;
}

static struct grammar *compiled(const struct rig *r, const struct chat_format *f, const cohort_chat *chat,
                                const char *prompt) {
    struct chat_wants w = {.chat = chat, .tokenizer = r->tokenizer, .prompt = prompt, .prompt_n = strlen(prompt)};
    cohort_grammar_source source;
    cohort_error err = {0};
    if (chat_constrain(f, &w, &source, &err)) fail_msg("%s: %s: %s", chat_format_name(f), err.field, err.text);
    if (source.kind == COHORT_GRAMMAR_NONE) return NULL;
    struct grammar *g;
    if (grammar_compile(r->vocab, &source, &limits, &g, &err))
        fail_msg("%s: %s\n%s", chat_format_name(f), err.text, source.text);
    mem_free((char *)source.text);
    return g;
}

static int32_t next_token(const struct rig *r, const char *text, size_t *len) {
    for (int i = 0; r->tokens && i < CONTROLS; i++) {
        *len = strlen(controls[i]);
        if (!strncmp(text, controls[i], *len)) return 256 + i;
    }
    *len = 1;
    return (unsigned char)*text;
}

/* 1: the whole text is taken, and the answer may end there. Otherwise *at: how far. */
static int takes(const struct rig *r, const struct grammar *g, const char *text, size_t *at) {
    struct grammar_state *s;
    assert_int_equal(grammar_state_make(g, &s), 0);
    int yes = 1;
    for (*at = 0; text[*at] && yes;) {
        size_t len;
        int32_t token = next_token(r, text + *at, &len);
        if (r->tokens && tokenizer_is_end(r->tokenizer, token)) break; /* ends the answer, by itself */
        yes = grammar_state_accept(s, token) == 0;
        if (yes) *at += len;
    }
    yes = yes && grammar_state_complete(s);
    grammar_state_free(s);
    return yes;
}

static void expect(const struct rig *r, const struct chat_format *f, cohort_chat chat, const char *prompt,
                   const char *text, int want) {
    struct grammar *g = compiled(r, f, &chat, prompt);
    assert_non_null(g);
    size_t at;
    int got = takes(r, g, text, &at);
    if (got != want)
        fail_msg("%s (tokens %d, choice %d): %s, but %s, to \"%s\"", chat_format_name(f), r->tokens, chat.tool_choice,
                 text, got ? "taken" : "not taken", text + at);
    grammar_free(g);
}

static char *replaced(const char *text, const char *what, const char *by) {
    const char *last = NULL;
    for (const char *p = text; (p = strstr(p, what)); p++) last = p;
    assert_non_null(last);
    struct buf b = {0};
    assert_int_equal(buf_add(&b, text, (size_t)(last - text)) | buf_adds(&b, by) | buf_adds(&b, last + strlen(what)),
                     0);
    return b.data;
}

static void test_examples(void **state) {
    for (size_t i = 0; i < EXAMPLES * 2; i++) {
        const struct example *x = &examples[i / 2];
        const struct rig *r = &rigs[i % 2];
        const struct chat_format *f = format_of(x->calls, x->reasoning);
        char *wrong = replaced(x->answer, x->wrong, x->by);
        expect(r, f, chat_of(COHORT_TOOLS_REQUIRED), x->prompt, x->answer, 1);
        expect(r, f, chat_of(COHORT_TOOLS_REQUIRED), x->prompt, wrong, 0);
        expect(r, f, chat_of(COHORT_TOOLS_REQUIRED), x->prompt, "Hello", 0);
        expect(r, f, chat_of(COHORT_TOOLS_NAMED), x->prompt, x->answer, 0);
        expect(r, f, chat_of(COHORT_TOOLS_AUTO), x->prompt, x->answer, 1);
        expect(r, f, chat_of(COHORT_TOOLS_AUTO), x->prompt, wrong, 0);
        if (x->texts) {
            char *text = replaced("Hello. ANSWER", "ANSWER", x->answer);
            expect(r, f, chat_of(COHORT_TOOLS_AUTO), x->prompt, text, 1);
            expect(r, f, chat_of(COHORT_TOOLS_AUTO), x->prompt, "Hello. {x}", 1);
            mem_free(text);
        }
        mem_free(wrong);
        chat_format_unref(f);
    }
}

/* Other choices, by one notation. */
static void test_choices(void **state) {
    const struct rig *r = &rigs[0];
    const struct chat_format *f = format_of("hermes", "think");
    const char *weather = "<tool_call>\n" OBJECT "\n</tool_call>";
    const char *stop = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
    struct buf two = {0};
    assert_int_equal(buf_addf(&two, "%s\n%s", weather, stop), 0);
    cohort_chat chat = chat_of(COHORT_TOOLS_NAMED);
    expect(r, f, chat, "", stop, 1);
    expect(r, f, chat, "", weather, 0);
    chat = chat_of(COHORT_TOOLS_REQUIRED);
    expect(r, f, chat, "", two.data, 1);
    expect(r, f, chat, "<think>\n", stop, 0);
    chat.parallel_calls = 0;
    expect(r, f, chat, "", stop, 1);
    expect(r, f, chat, "", two.data, 0);
    chat = chat_of(COHORT_TOOLS_AUTO);
    expect(r, f, chat, "", two.data, 1);
    chat.parallel_calls = 0;
    expect(r, f, chat, "", two.data, 0);
    chat = chat_of(COHORT_TOOLS_AUTO);
    chat.tool_names_allowed = (const char *[]){"stop"};
    chat.tool_names_allowed_n = 1;
    expect(r, f, chat, "", stop, 1);
    expect(r, f, chat, "", weather, 0);
    chat = chat_of(COHORT_TOOLS_REQUIRED);
    chat.strict = 0;
    expect(r, f, chat, "", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"any\": [1]}}\n</tool_call>", 1);
    chat = chat_of(COHORT_TOOLS_NONE);
    assert_null(compiled(r, f, &chat, ""));
    buf_free(&two);
    chat_format_unref(f);
}

/* The answer's own form, behind reasoning and beside calls. */
static void test_answer(void **state) {
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}";
    const struct rig *r = &rigs[1];
    const struct chat_format *f = format_of("hermes", "think");
    cohort_chat chat = chat_of(COHORT_TOOLS_NONE);
    chat.answer = (cohort_grammar_source){.kind = COHORT_GRAMMAR_JSON_SCHEMA, .text = schema, .len = strlen(schema)};
    expect(r, f, chat, "<think>\n", "hm</think>\n\n{\"a\": 1}", 1);
    expect(r, f, chat, "<think>\n", "hm</think>\n\n{\"a\": \"1\"}", 0);
    expect(r, f, chat, "<think>\n", "{\"a\": 1}", 0);
    expect(r, f, chat, "", "<think>hm</think>\n\n{\"a\": 1}", 1);
    expect(r, f, chat, "", "{\"a\": 1}", 1);
    expect(r, f, chat, "", "{\"a\":  1}", 0);
    expect(r, f, chat, "", "Hello", 0);
    chat.answer.space = 2;
    expect(r, f, chat, "", "{\"a\":  1}", 1);
    chat.answer = (cohort_grammar_source){.kind = COHORT_GRAMMAR_REGEX, .text = "[ab]+", .len = 5};
    expect(r, f, chat, "", "abba", 1);
    expect(r, f, chat, "", "abc", 0);
    chat.answer = (cohort_grammar_source){.kind = COHORT_GRAMMAR_EBNF, .text = "root ::= \"x\" | \"y\"", .len = 18};
    expect(r, f, chat, "", "y", 1);
    expect(r, f, chat, "", "z", 0);
    chat.answer = (cohort_grammar_source){.kind = COHORT_GRAMMAR_JSON};
    expect(r, f, chat, "", "{\"z\": [1]}", 1);
    chat.tool_choice = COHORT_TOOLS_AUTO;
    expect(r, f, chat, "", "{\"z\": [1]}", 1);
    expect(r, f, chat, "", "<tool_call>\n" OBJECT "\n</tool_call>", 1);
    expect(r, f, chat, "", "Hello", 0);
    chat_format_unref(f);
}

static void test_refused(void **state) {
    static const struct {
        const char *calls, *tools;
        int code;
    } cases[] = {
        {"hermes", "[{\"type\":\"function\",\"function\":{\"name\":\"a\\\"b\"}}]", COHORT_E_ARGUMENT},
        {"hermes", "[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]", COHORT_E_ARGUMENT},
        {"hermes", "[]", COHORT_E_ARGUMENT},
        {"muse",
         "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"type\":\"object\",\"properties\":{"
         "\"b\":{\"type\":\"string\",\"pattern\":\"x\"}}}}}]",
         COHORT_E_UNSUPPORTED},
        {"lfm2",
         "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"type\":\"object\",\"properties\":{"
         "\"b=\":{\"type\":\"string\"}}}}}]",
         COHORT_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct chat_format *f = format_of(cases[i].calls, "");
        cohort_chat chat = chat_of(COHORT_TOOLS_REQUIRED);
        chat.tools = cases[i].tools;
        chat.tools_n = strlen(chat.tools);
        struct chat_wants w = {.chat = &chat, .prompt = "", .prompt_n = 0};
        cohort_grammar_source source;
        cohort_error err = {0};
        assert_int_equal(chat_constrain(f, &w, &source, &err), cases[i].code);
        assert_true(err.text[0]);
        chat_format_unref(f);
    }
}

/* ---- Walks ---- */

static uint64_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static int allowed(const uint32_t *mask, int32_t token) { return mask[token / 32] >> token % 32 & 1; }

/* A token that the grammar allows: often one that ends something, so that walks end. */
static int32_t pick(const struct rig *r, const uint32_t *mask, uint64_t *seed) {
    static const char ending[] = "\"}])<>,\n";
    if (draw(seed) % 2) {
        int32_t byte = (unsigned char)ending[draw(seed) % (sizeof ending - 1)];
        if (allowed(mask, byte)) return byte;
    }
    for (int32_t t = 257; r->tokens && t < VOCAB; t++)
        if (allowed(mask, t) && draw(seed) % 4 == 0) return t;
    for (int tries = 0; tries < 40; tries++) {
        int32_t byte = (int32_t)(32 + draw(seed) % 95);
        if (allowed(mask, byte)) return byte;
    }
    for (int32_t t = 0; t < (r->tokens ? VOCAB : 256); t++)
        if (t != 256 && allowed(mask, t)) return t;
    return -1;
}

/* An answer that the grammar allows; `phrase` is written now and then where it may be. 0: it did not come to an end. */
static int walk(const struct rig *r, const struct grammar *g, const char *phrase, uint64_t seed, struct buf *out) {
    struct grammar_state *s;
    assert_int_equal(grammar_state_make(g, &s), 0);
    int whole = 0;
    const char *now = "";
    for (int step = 0; step < 3000 && !whole; step++) {
        uint32_t mask[WORDS];
        assert_true(grammar_state_mask(s, mask) >= 0);
        if (!*now && phrase && draw(&seed) % 12 == 0) now = phrase;
        size_t len = 1;
        int32_t token = *now ? next_token(r, now, &len) : -1;
        now = token >= 0 && allowed(mask, token) ? now + len : "";
        if (token < 0 || !allowed(mask, token)) token = pick(r, mask, &seed);
        if (token < 0) break;
        assert_int_equal(grammar_state_accept(s, token), 0);
        if (token < 256) {
            char byte = (char)token;
            assert_int_equal(buf_add(out, &byte, 1), 0);
        } else {
            assert_int_equal(buf_adds(out, controls[token - 256]), 0);
        }
        whole = grammar_state_complete(s);
    }
    grammar_state_free(s);
    return whole;
}

/* The parts of an answer: calls that are whole and have JSON as arguments, and no text. */
static int check_walk(const struct chat_format *f, const cohort_chat *chat, const char *prompt,
                      const struct buf *text) {
    struct chat_wants w = {.chat = chat, .prompt = prompt, .prompt_n = strlen(prompt)};
    struct chat_reader *r;
    struct buf arguments = {0};
    cohort_part p;
    int calls = 0, ended = 0;
    assert_int_equal(chat_reader_make(f, &w, &r, NULL), 0);
    assert_int_equal(chat_reader_feed(r, text->data, text->len, 1), 0);
    while (!chat_reader_next(r, &p)) {
        if (p.type == COHORT_PART_TEXT) fail_msg("%s: text in \"%s\"", chat_format_name(f), text->data);
        if (p.type == COHORT_PART_ARGUMENTS) assert_int_equal(buf_add(&arguments, p.bytes, p.len), 0);
        calls += p.type == COHORT_PART_CALL;
        if (p.type != COHORT_PART_CALL_END) continue;
        ended++;
        json_t *json = json_loadb(arguments.data, arguments.len, JSON_DECODE_INT_AS_REAL, NULL);
        if (!json_is_object(json)) fail_msg("%s: no JSON from \"%s\"", chat_format_name(f), text->data);
        json_decref(json);
        buf_clear(&arguments);
    }
    if (calls != ended) fail_msg("%s: %d calls, %d whole in \"%s\"", chat_format_name(f), calls, ended, text->data);
    buf_free(&arguments);
    chat_reader_free(r);
    return calls;
}

static void test_walks(void **state) {
    int walks = 0, whole = 0;
    for (size_t i = 0; i < EXAMPLES * 2; i++) {
        const struct example *x = &examples[i / 2];
        const struct rig *r = &rigs[i % 2];
        const struct chat_format *f = format_of(x->calls, x->reasoning);
        cohort_chat chat = chat_of(COHORT_TOOLS_REQUIRED);
        chat.parallel_calls = 0;
        struct grammar *g = compiled(r, f, &chat, x->prompt);
        const char *phrase = f->calls.value_end ? f->calls.value_end : f->calls.quote;
        if (f->reasoning.open) phrase = f->reasoning.close;
        for (uint64_t seed = 1; seed <= 12; seed++) {
            struct buf text = {0};
            walks++;
            if (walk(r, g, phrase, seed, &text)) {
                whole++;
                assert_int_equal(check_walk(f, &chat, x->prompt, &text), 1);
            }
            buf_free(&text);
        }
        grammar_free(g);
        chat_format_unref(f);
    }
    print_message("%d of %d walks came to an end\n", whole, walks);
    assert_true(whole * 2 > walks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples), cmocka_unit_test(test_choices), cmocka_unit_test(test_answer),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
