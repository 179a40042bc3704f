/* Grammars from outside, for tests in other languages. One JSON object a line comes in:
 *   {"kind": "schema" | "regex" | "gbnf" | "tags" | "json", "text": "...", "space": 0, "try": ["..."], "walks": 3,
 * "seed": 1} and one goes out: {"code": 0, "error": "", "takes": [1, 0], "walks": ["..."]} `takes`: whether each text
 * is an answer. `walks`: answers put together from tokens that the masks allow, at random; null for one that came to no
 * end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/buf.h"
#include "grammar_rig.h"

enum { STEPS_MAX = 4000, CALM_AFTER = 60 };

static uint64_t draws;
static uint32_t below(uint32_t n) {
    draws = draws * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((draws >> 33) % n);
}

static int allowed(const uint32_t *mask, int32_t token) { return mask[token / 32] >> token % 32 & 1; }

/* Any token at first; later one that leads to an end. */
static int32_t choose(const uint32_t *mask, int step) {
    static const char closing[] = "\"}]),0:e1";
    if (allowed(mask, RIG_END) && below(step > CALM_AFTER ? 1 : 3) == 0) return RIG_END;
    for (const char *p = closing; step > CALM_AFTER && *p; p++)
        if (allowed(mask, *p) && below(4)) return *p;
    for (int tries = 0; tries < 400; tries++) {
        int32_t token = (int32_t)below(tries < 200 ? 128 : RIG_VOCAB);
        if (tries < 10) token = RIG_WORDS_AT + (int32_t)below(RIG_END - RIG_WORDS_AT);
        if (allowed(mask, token) && token != RIG_END) return token;
    }
    for (int32_t token = 0; token < RIG_VOCAB; token++)
        if (allowed(mask, token)) return token;
    return -1;
}

static json_t *walk(const struct grammar *g) {
    struct grammar_state *s;
    struct buf text = {0};
    json_t *out = NULL;
    uint32_t mask[RIG_MASK_WORDS];
    if (grammar_state_make(g, &s)) return json_null();
    for (int step = 0; !out && step < STEPS_MAX; step++) {
        int rc = grammar_state_mask(s, mask);
        int32_t token = rc < 0 ? -1 : choose(mask, step);
        if (token >= 0 && token <= RIG_END) rc = grammar_state_accept(s, token);
        if (rc == COHORT_E_LIMIT)
            out = json_string("(a limit)");
        else if (token < 0)
            out = json_string("(nothing may come)");
        else if (token > RIG_END)
            out = json_string("(a control token)");
        else if (rc < 0)
            out = json_string("(not accepted)");
        else if (token == RIG_END)
            out = json_stringn(text.len ? text.data : "", text.len);
        else
            token == 0 ? buf_add(&text, "", 1) : buf_adds(&text, rig_text(token));
    }
    buf_free(&text);
    grammar_state_free(s);
    return out ? out : json_null();
}

static cohort_grammar_kind kind_of(const char *name) {
    static const char *const names[] = {"json", "schema", "regex", "gbnf", "tags"};
    for (int i = 0; i < 5; i++)
        if (name && !strcmp(name, names[i])) return (cohort_grammar_kind)(COHORT_GRAMMAR_JSON + i);
    return COHORT_GRAMMAR_NONE;
}

static json_t *answer(const struct grammar_vocab *v, json_t *in) {
    cohort_error err = {0};
    struct grammar *g = NULL;
    json_t *text = json_object_get(in, "text"), *tries = json_object_get(in, "try");
    json_t *takes = json_array(), *walks = json_array();
    cohort_grammar_source source = {kind_of(json_string_value(json_object_get(in, "kind"))), json_string_value(text),
                                    json_string_length(text),
                                    (int32_t)json_integer_value(json_object_get(in, "space"))};
    struct grammar_limits limits = rig_limits;
    json_t *ms = json_object_get(in, "ms");
    if (ms) limits = (struct grammar_limits){(uint32_t)json_integer_value(ms), COHORT_GRAMMAR_MEMORY_DEFAULT};
    int code = grammar_compile(v, &source, &limits, &g, &err);
    draws = (uint64_t)json_integer_value(json_object_get(in, "seed"));
    for (size_t i = 0; g && i < json_array_size(tries); i++) {
        json_t *one = json_array_get(tries, i);
        json_array_append_new(takes, json_integer(rig_takes(g, json_string_value(one), json_string_length(one), 0)));
    }
    for (json_int_t i = 0; g && i < json_integer_value(json_object_get(in, "walks")); i++)
        json_array_append_new(walks, walk(g));
    grammar_free(g);
    return json_pack("{s:i,s:s,s:o,s:o}", "code", code, "error", err.text, "takes", takes, "walks", walks);
}

int main(void) {
    struct grammar_vocab *v = rig_vocab();
    char *line = NULL;
    size_t capacity = 0;
    while (v && getline(&line, &capacity, stdin) > 0) {
        json_t *in = json_loads(line, 0, NULL), *out = answer(v, in);
        char *text = json_dumps(out, JSON_COMPACT);
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(in);
        json_decref(out);
    }
    free(line);
    grammar_vocab_free(v);
    return 0;
}
