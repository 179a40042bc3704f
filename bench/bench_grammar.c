/* What grammars cost on a model's own vocabulary: the vocabulary itself, compiling, and the mask of each token of
 * answers drawn at random from what the masks allow. Processor time. One JSON line per grammar; the first says what
 * there is.
 *
 * usage: bench_grammar MODEL [MS]     MS: the limit of a compile; 0: the default */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "format/gguf.h"
#include "grammar/grammar.h"
#include "measure.h"
#include "text/tokenizer.h"

enum { WALKS = 12, STEPS = 250, SAMPLES = WALKS * STEPS };

#define PERSON                                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0," \
    "\"maximum\":150},\"email\":{\"type\":\"string\"}},\"required\":[\"name\",\"age\"],\"additionalProperties\":"      \
    "false}"
#define ORDER                                                                                                          \
    "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"status\":{\"enum\":"      \
    "[\"new\",\"paid\",\"sent\"]},\"at\":{\"type\":\"string\",\"format\":\"date-time\"},\"customer\":" PERSON          \
    ",\"items\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":20,\"items\":{\"type\":\"object\",\"properties\":{"    \
    "\"sku\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-[0-9]{4}$\"},\"count\":{\"type\":\"integer\",\"minimum\":1}" \
    ","                                                                                                                \
    "\"price\":{\"type\":\"number\",\"minimum\":0},\"note\":{\"type\":[\"string\",\"null\"],\"maxLength\":200}},"      \
    "\"required\":[\"sku\",\"count\",\"price\",\"note\"]}}},\"required\":[\"id\",\"status\",\"customer\",\"items\"]}"
#define TREE                                                                                                           \
    "{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"value\":{\"type\":\"string\"},\"children\":{"         \
    "\"type\":"                                                                                                        \
    "\"array\",\"items\":{\"$ref\":\"#/$defs/node\"}}},\"required\":[\"value\",\"children\"]}},\"$ref\":"              \
    "\"#/$defs/node\"}"
#define TOOL(name, schema)                                                                                             \
    "{\"begin\":\"<tool_call>\\n{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": \",\"content\":{\"type\":"         \
    "\"json_schema\",\"json_schema\":" schema "},\"end\":\"}\\n</tool_call>\"}"
#define TOOLS                                                                                                          \
    "{\"type\":\"structural_tag\",\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<tool_call>\"],\"tags\":"    \
    "[" TOOL("person", PERSON) "," TOOL("order", ORDER) "]}}"
#define STRINGS                                                                                                        \
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"minLength\":"  \
    "40,"                                                                                                              \
    "\"maxLength\":90},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":12}}},\"required\":[" \
    "\"text\",\"tags\"],\"additionalProperties\":false}}"
#define LIST                                                                                                           \
    "root ::= (\"- \" item \"\\n\")+\n"                                                                                \
    "item ::= [^\\n]{1,200}\n"

static const struct {
    const char *name;
    cohort_grammar_kind kind;
    const char *text;
    int32_t space;
} cases[] = {
    {"any JSON object", COHORT_GRAMMAR_JSON, "", 0},
    {"person", COHORT_GRAMMAR_JSON_SCHEMA, PERSON, 0},
    {"person, white space", COHORT_GRAMMAR_JSON_SCHEMA, PERSON, 20},
    {"order", COHORT_GRAMMAR_JSON_SCHEMA, ORDER, 0},
    {"tree", COHORT_GRAMMAR_JSON_SCHEMA, TREE, 0},
    {"string of 2000", COHORT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":2000}", 0},
    {"enum", COHORT_GRAMMAR_JSON_SCHEMA, "{\"enum\":[\"positive\",\"negative\",\"neutral\"]}", 0},
    {"date", COHORT_GRAMMAR_REGEX, "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])", 0},
    {"list", COHORT_GRAMMAR_EBNF, LIST, 0},
    {"shorter lines", COHORT_GRAMMAR_EBNF, "root ::= (\"- \" [^\\n]{1,60} \"\\n\")+\n", 0},
    {"sentences", COHORT_GRAMMAR_REGEX, "([A-Z][a-z]{1,9}( [a-z]{1,9}){3,9}[.?!] )*", 0},
    {"short strings", COHORT_GRAMMAR_JSON_SCHEMA, STRINGS, 0},
    {"two tools", COHORT_GRAMMAR_TAGS, TOOLS, 0},
    {"any 300", COHORT_GRAMMAR_REGEX, ".{1,300}", 0},
    {"quoted names", COHORT_GRAMMAR_REGEX, "(Name: \"[^\"\\n]{1,50}\"\\n)+", 0},
    {"pattern", COHORT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z ]{1,60}\\\\.$\"}", 0},
    {"letters", COHORT_GRAMMAR_EBNF, "root ::= ([a-z ]{1,300} \"\\n\")+", 0},
    {"unrolled", COHORT_GRAMMAR_REGEX, "[a-z]{5,60}x", 0},
};

static struct grammar_vocab *read_vocab(const char *path, uint32_t *n, double *ms) {
    struct model_file *file;
    struct tokenizer *t;
    cohort_error err;
    measure_must(!model_file_open(path, &file, &err) && !tokenizer_open(model_file_meta(file), &t, &err),
                 "no model there");
    *n = tokenizer_size(t);
    struct grammar_piece *pieces = mem_alloc(*n, sizeof *pieces);
    int32_t *ends = mem_alloc(*n, sizeof *ends);
    uint32_t ends_n = 0;
    measure_must(pieces && ends, "no memory");
    for (uint32_t i = 0; i < *n; i++) {
        size_t len;
        tokenizer_piece(t, (int32_t)i, 1, &pieces[i].bytes, &len);
        pieces[i].len = (uint32_t)len;
        pieces[i].control = tokenizer_is_special(t, (int32_t)i) != 0;
        if (tokenizer_is_end(t, (int32_t)i)) ends[ends_n++] = (int32_t)i;
    }
    struct grammar_vocab *v;
    uint64_t start = measure_ns(CLOCK_PROCESS_CPUTIME_ID);
    measure_must(!grammar_vocab_make(&v, pieces, *n, ends, ends_n, &err), "no vocabulary");
    *ms = (double)(measure_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / 1e6;
    mem_free(pieces);
    mem_free(ends);
    tokenizer_close(t);
    model_file_close(file);
    return v;
}

/* Any of the allowed tokens, or -1. */
static int32_t draw(uint64_t *r, const uint32_t *mask, uint32_t words) {
    uint32_t first = (uint32_t)(rng_u64(1, 0, (*r)++) % words);
    for (uint32_t i = 0; i < words; i++) {
        uint32_t word = mask[(first + i) % words];
        if (!word) continue;
        uint32_t skip = (uint32_t)(rng_u64(1, 0, (*r)++) % (uint32_t)__builtin_popcount(word));
        while (skip--) word &= word - 1;
        return (int32_t)((first + i) % words * 32 + (uint32_t)__builtin_ctz(word));
    }
    return -1;
}

static uint32_t walk(const struct grammar *g, uint64_t *r, uint32_t *mask, uint32_t words, uint64_t *mask_ns,
                     uint64_t *accept_ns) {
    struct grammar_state *s;
    uint32_t n = 0;
    measure_must(!grammar_state_make(g, &s), "no state");
    while (n < STEPS) {
        uint64_t start = measure_ns(CLOCK_THREAD_CPUTIME_ID);
        measure_must(grammar_state_mask(s, mask) >= 0, "no mask");
        mask_ns[n] = measure_ns(CLOCK_THREAD_CPUTIME_ID) - start;
        int32_t token = draw(r, mask, words);
        measure_must(token >= 0, "nothing may come");
        start = measure_ns(CLOCK_THREAD_CPUTIME_ID);
        measure_must(!grammar_state_accept(s, token), "an allowed token is not accepted");
        accept_ns[n++] = measure_ns(CLOCK_THREAD_CPUTIME_ID) - start;
        if (grammar_state_complete(s)) break;
    }
    grammar_state_free(s);
    return n;
}

static void measure(const struct grammar_vocab *v, uint32_t vocab, size_t k, const struct grammar_limits *limits) {
    static uint64_t masks[SAMPLES], accepts[SAMPLES];
    static uint32_t mask[1 << 16];
    cohort_grammar_source source = {cases[k].kind, cases[k].text, strlen(cases[k].text), cases[k].space};
    struct grammar *g;
    cohort_error err;
    uint64_t r = k << 32;
    uint32_t n = 0;
    uint64_t start = measure_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (grammar_compile(v, &source, limits, &g, &err)) {
        printf("{\"test\":\"grammar\",\"grammar\":\"%s\",\"error\":\"%s\"}\n", cases[k].name, err.text);
        return;
    }
    double compile_ms = (double)(measure_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / 1e6;
    for (int i = 0; i < WALKS; i++) n += walk(g, &r, mask, (vocab + 31) / 32, masks + n, accepts + n);
    qsort(masks, n, sizeof *masks, measure_ascending);
    qsort(accepts, n, sizeof *accepts, measure_ascending);
    printf("{\"test\":\"grammar\",\"grammar\":\"%s\",\"compile_ms\":%.1f,\"bytes\":%" PRIu64
           ",\"tokens\":%u,\"mask_p50_us\":%.1f,"
           "\"mask_p99_us\":%.1f,\"mask_max_us\":%.1f,\"accept_p50_us\":%.1f,\"accept_p99_us\":%.1f}\n",
           cases[k].name, compile_ms, grammar_bytes(g), n, (double)masks[n / 2] / 1e3,
           (double)masks[n * 99 / 100] / 1e3, (double)masks[n - 1] / 1e3, (double)accepts[n / 2] / 1e3,
           (double)accepts[n * 99 / 100] / 1e3);
    fflush(stdout);
    grammar_free(g);
}

int main(int argc, char **argv) {
    struct grammar_limits limits = {COHORT_GRAMMAR_MS_DEFAULT, COHORT_GRAMMAR_MEMORY_DEFAULT};
    uint32_t vocab;
    double ms;
    measure_must(argc >= 2, "usage: bench_grammar MODEL [MS]");
    if (argc > 2 && atoi(argv[2]) > 0) limits.ms = (uint32_t)atoi(argv[2]);
    struct grammar_vocab *v = read_vocab(argv[1], &vocab, &ms);
    printf("{\"test\":\"grammar\",\"vocabulary\":%u,\"vocabulary_ms\":%.1f}\n", vocab, ms);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) measure(v, vocab, k, &limits);
    grammar_vocab_free(v);
    return 0;
}
