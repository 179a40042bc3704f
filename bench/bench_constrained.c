/* What constrained rows cost. Prints one JSON line for each part:
 *
 *   mask     one token's mask and what it does to the row of logits, along answers that follow usual schemas, alone on
 *            this thread: median and slowest, in microseconds
 *   company  tokens a second of free rows beside as many constrained ones, and beside free ones; and what was filled in
 *
 * usage: bench_constrained MODEL.gguf [--rows 8] [--tokens 96] [--rounds 3] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/rng.h"
#include "cohort/cohort.h"
#include "grammar/grammar.h"
#include "sample/mask.h"
#include "sample/sample.h"
#include "text/tokenizer.h"

enum { PROMPT = 32, ROWS_MAX = 64, ANSWERS = 12, ANSWER_MAX = 200, SHIFT = 37 };

static const struct {
    const char *name;
    cohort_grammar_kind kind;
    const char *text;
} grammars[] = {
    {"object", COHORT_GRAMMAR_JSON, ""},
    {"person", COHORT_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"},\"tags\":{"
     "\"type\":"
     "\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"name\",\"age\",\"tags\"],\"additionalProperties\":"
     "false}"},
    {"weather", COHORT_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":40},\"unit\":{\"enum\":["
     "\"celsius\","
     "\"fahrenheit\"]},\"days\":{\"type\":\"array\",\"minItems\":2,\"maxItems\":7,\"items\":{\"type\":\"object\","
     "\"properties\":{\"low\":{\"type\":\"number\"},\"high\":{\"type\":\"number\"}},\"required\":[\"low\",\"high\"],"
     "\"additionalProperties\":false}}},\"required\":[\"city\",\"unit\",\"days\"],\"additionalProperties\":false}"},
    {"date", COHORT_GRAMMAR_REGEX, "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"},
};
enum { GRAMMARS = sizeof(grammars) / sizeof(grammars[0]) };

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "bench_constrained: %s: %s\n", what, why);
    exit(1);
}

static double us_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* ---- Masks ---- */
static struct grammar_vocab *open_vocab(const cohort_model *model, uint32_t n) {
    struct grammar_piece *pieces = calloc(n, sizeof(*pieces));
    cohort_model_info info;
    struct grammar_vocab *vocab;
    cohort_error err = {0};
    cohort_model_get_info(model, &info);
    if (!pieces) fail("vocabulary", "no memory");
    for (uint32_t i = 0; i < n; i++) {
        size_t len;
        cohort_token_piece(model, (int32_t)i, &pieces[i].bytes, &len);
        pieces[i].len = (uint32_t)len;
        pieces[i].control = len > 0 && pieces[i].bytes[0] == '<' && pieces[i].bytes[len - 1] == '>';
    }
    if (grammar_vocab_make(&vocab, pieces, n, &info.eos, 1, &err) != 0) fail("vocabulary", err.text);
    free(pieces);
    return vocab;
}

struct scene {
    uint32_t n;
    const struct vecops *ops;
    float *logits, *row, *peaks, *row_peaks, *scratch;
    uint32_t *mask;
};

/* What a mask costs beside a draw without one: from a fresh row, so what both do is not in the figure. */
static double draw_us(struct scene *s, const struct mask *mask, uint64_t position, int32_t *token) {
    cohort_sampling asked;
    struct sample_result out;
    sample_defaults(&asked);
    asked.temperature = 0;
    struct sample_params p = sample_params_make(&asked, 1, -1, 0);
    memcpy(s->row, s->logits, s->n * sizeof(float));
    memcpy(s->row_peaks, s->peaks, logits_spans(s->n) * sizeof(float));
    struct logits l = {s->row, s->n, s->row_peaks};
    double begin = us_of(CLOCK_THREAD_CPUTIME_ID);
    sample_draw(s->ops, &p, position, mask, &l, s->scratch, &out);
    *token = out.token;
    return us_of(CLOCK_THREAD_CPUTIME_ID) - begin;
}

static void bench_masks(const cohort_model *model, const struct vecops *ops) {
    cohort_model_info info;
    cohort_model_get_info(model, &info);
    uint32_t n = info.vocab_size, spans = logits_spans(n);
    struct scene s = {.n = n, .ops = ops};
    float *numbers = calloc(n + ANSWERS * ANSWER_MAX * SHIFT, sizeof(float));
    s.row = calloc(n, sizeof(float));
    s.peaks = calloc(spans, sizeof(float));
    s.row_peaks = calloc(spans, sizeof(float));
    s.scratch = calloc(n, sizeof(float));
    s.mask = calloc(mask_words(n), sizeof(uint32_t));
    if (!numbers || !s.row || !s.peaks || !s.row_peaks || !s.scratch || !s.mask) fail("masks", "no memory");
    for (uint32_t i = 0; i < n + ANSWERS * ANSWER_MAX * SHIFT; i++) numbers[i] = (float)rng_unit(1, 2, i);
    struct grammar_vocab *vocab = open_vocab(model, n);
    for (int k = 0; k < GRAMMARS; k++) {
        cohort_grammar_source source = {grammars[k].kind, grammars[k].text, strlen(grammars[k].text), 0};
        struct grammar_limits limits = {COHORT_GRAMMAR_MS_DEFAULT, COHORT_GRAMMAR_MEMORY_DEFAULT};
        struct grammar *g;
        cohort_error err = {0};
        double begin = us_of(CLOCK_THREAD_CPUTIME_ID);
        if (grammar_compile(vocab, &source, &limits, &g, &err) != 0) fail(grammars[k].name, err.text);
        double compile = us_of(CLOCK_THREAD_CPUTIME_ID) - begin;
        static double made[ANSWERS * ANSWER_MAX], applied[ANSWERS * ANSWER_MAX], taken[ANSWERS * ANSWER_MAX];
        size_t count = 0;
        for (uint64_t answer = 0; answer < ANSWERS; answer++) {
            struct grammar_state *state;
            if (grammar_state_make(g, &state) != 0) fail(grammars[k].name, "no state");
            for (uint64_t i = 0; i < ANSWER_MAX; i++) {
                int32_t token, other;
                char text[1024];
                s.logits = numbers + (answer * ANSWER_MAX + i) * SHIFT;
                logits_peaks(ops, s.logits, n, 0, spans, s.peaks);
                begin = us_of(CLOCK_THREAD_CPUTIME_ID);
                int some = grammar_state_mask(state, s.mask);
                struct mask mask = {s.mask, some == 1 ? mask_count(s.mask, n) : n};
                made[count] = us_of(CLOCK_THREAD_CPUTIME_ID) - begin;
                applied[count] = draw_us(&s, some == 1 ? &mask : NULL, i, &token) - draw_us(&s, NULL, i, &other);
                if (token < 0) break;
                begin = us_of(CLOCK_THREAD_CPUTIME_ID);
                int code = grammar_state_accept(state, token);
                grammar_state_forced(state, text, sizeof(text));
                taken[count++] = us_of(CLOCK_THREAD_CPUTIME_ID) - begin;
                if (code != 0 || token == info.eos) break;
            }
            grammar_state_free(state);
        }
        qsort(made, count, sizeof(double), by_value);
        qsort(applied, count, sizeof(double), by_value);
        qsort(taken, count, sizeof(double), by_value);
        printf("{\"part\":\"mask\",\"grammar\":\"%s\",\"vocab\":%u,\"tokens\":%zu,\"compile_ms\":%.1f,\"mask_us\":%.1f,"
               "\"mask_p99_us\":%.1f,\"apply_us\":%.1f,\"apply_p99_us\":%.1f,\"accept_us\":%.1f}\n",
               grammars[k].name, n, count, compile * 1e-3, made[count / 2], made[count * 99 / 100], applied[count / 2],
               applied[count * 99 / 100], taken[count / 2]);
        fflush(stdout);
        grammar_free(g);
    }
    grammar_vocab_free(vocab);
    free(numbers);
    free(s.row);
    free(s.peaks);
    free(s.row_peaks);
    free(s.scratch);
    free(s.mask);
}

/* ---- Company ---- */
struct load {
    uint32_t rows, tokens;
    uint64_t seed;
};

static cohort_id ask(cohort_engine *engine, const struct load *load, uint32_t i, const cohort_grammar *grammar) {
    int32_t prompt[PROMPT];
    cohort_request q;
    cohort_ticket ticket;
    cohort_id id;
    cohort_error err = {0};
    cohort_request_defaults(&q);
    for (uint32_t j = 0; j < PROMPT; j++) prompt[j] = (int32_t)(1000 + rng_u64(load->seed, i, j) % 100000);
    q.prompt = prompt;
    q.prompt_n = PROMPT;
    q.max_tokens = load->tokens;
    q.ignore_eos = 1;
    q.cache_prompt = 0;
    q.grammar = grammar;
    q.sampling.has_seed = 1;
    q.sampling.seed = i;
    if (cohort_reserve(engine, &ticket, &err) != 0 || cohort_submit(engine, ticket, &q, &id, &err) != 0)
        fail("submit", err.text);
    return id;
}

static int take(cohort_engine *engine, cohort_id id, uint32_t *tokens) {
    cohort_event event;
    while (cohort_next(engine, id, &event) == COHORT_OK) {
        *tokens += event.type == COHORT_EVENT_TOKEN;
        if (event.type == COHORT_EVENT_FINISH) return 1;
    }
    return 0;
}

/* Tokens a second of the first `rows` ones, while as many others run, which begin anew when they end. */
static double play(cohort_engine *engine, const struct load *load, cohort_grammar *const *beside) {
    cohort_id id[2 * ROWS_MAX];
    int done[2 * ROWS_MAX] = {0};
    uint32_t tokens = 0, others = 0, left = load->rows;
    for (uint32_t i = 0; i < 2 * load->rows; i++)
        id[i] = ask(engine, load, i, i < load->rows || !beside ? NULL : beside[i % GRAMMARS]);
    double begin = us_of(CLOCK_MONOTONIC), end = begin;
    while (left) {
        for (uint32_t i = 0; i < 2 * load->rows; i++) {
            if (done[i] || !take(engine, id[i], i < load->rows ? &tokens : &others)) continue;
            cohort_drop(engine, id[i]);
            done[i] = i < load->rows;
            left -= i < load->rows;
            if (!done[i]) id[i] = ask(engine, load, i, beside ? beside[i % GRAMMARS] : NULL);
        }
        if (left) usleep(200);
        end = us_of(CLOCK_MONOTONIC);
    }
    for (uint32_t i = load->rows; i < 2 * load->rows; i++) cohort_drop(engine, id[i]);
    return tokens / (end - begin) * 1e6;
}

static void bench_company(cohort_model *model, struct load load, uint32_t rounds) {
    cohort_engine_options options;
    cohort_engine *engine;
    cohort_error err = {0};
    cohort_grammar *held[GRAMMARS];
    double with = 0, without = 0;
    cohort_engine_options_defaults(&options);
    options.rows = 2 * load.rows;
    options.context = 1024;
    options.cache = 0;
    if (cohort_engine_open(model, &options, &engine, &err) != 0) fail("engine", err.text);
    for (int k = 0; k < GRAMMARS; k++) {
        cohort_grammar_source source = {grammars[k].kind, grammars[k].text, strlen(grammars[k].text), 0};
        if (cohort_grammar_compile(model, &source, &held[k], &err) != 0) fail(grammars[k].name, err.text);
    }
    for (uint32_t round = 0; round < rounds; round++) { /* in turn, and the best of each: others only make it slower */
        load.seed = round;
        double plain = play(engine, &load, NULL), mixed = play(engine, &load, held);
        if (plain > without) without = plain;
        if (mixed > with) with = mixed;
    }
    cohort_metrics m;
    cohort_metrics_get(engine, &m);
    printf(
        "{\"part\":\"company\",\"rows\":%u,\"tokens_per_s_beside_free\":%.1f,\"tokens_per_s_beside_constrained\":%.1f,"
        "\"percent\":%.1f,\"masks\":%llu,\"mask_mean_us\":%.1f,\"forced_tokens\":%llu}\n",
        load.rows, without, with, 100 * with / without, (unsigned long long)m.grammar_masks,
        m.grammar_masks ? (double)m.grammar_mask_us / (double)m.grammar_masks : 0.0,
        (unsigned long long)m.forced_tokens);
    for (int k = 0; k < GRAMMARS; k++) cohort_grammar_release(held[k]);
    cohort_engine_close(engine, 0);
}

int main(int argc, char **argv) {
    struct load load = {.rows = 8, .tokens = 96};
    uint32_t rounds = 3;
    cohort_model *model;
    cohort_error err = {0};
    if (argc < 2) fail("usage", "bench_constrained MODEL.gguf [--rows 8] [--tokens 96] [--rounds 3]");
    for (int i = 2; i + 1 < argc; i += 2) {
        uint32_t value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--rows") == 0) load.rows = value < ROWS_MAX ? value : ROWS_MAX;
        if (strcmp(argv[i], "--tokens") == 0) load.tokens = value;
        if (strcmp(argv[i], "--rounds") == 0) rounds = value;
    }
    if (cohort_model_open(argv[1], NULL, &model, &err) != 0) fail(argv[1], err.text);
    struct backend *backend;
    if (backend_open(&(struct backend_options){.threads = 1}, &backend, &err) != 0) fail("backend", err.text);
    bench_masks(model, backend_vecops(backend));
    backend_close(backend);
    bench_company(model, load, rounds);
    cohort_model_close(model);
    return 0;
}
