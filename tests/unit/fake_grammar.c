/* See fake_grammar.h. A grammar is a row of places, each a set of bytes that may be left out or repeated; a state is
 * the set of places that it may stand at, as bits. */
#include "fake_grammar.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "grammar/grammar.h"

enum { PLACES_MAX = 63 };

struct fake_grammar fake_grammar;

struct grammar_vocab {
    struct grammar_piece *pieces;
    uint32_t n, ends_n;
    int32_t *ends;
};

struct place {
    uint8_t bytes[32];
    uint8_t optional, repeated;
};

struct grammar {
    const struct grammar_vocab *vocab;
    struct place place[PLACES_MAX];
    uint32_t n;
};

struct grammar_state {
    const struct grammar *g;
    uint64_t at;
    uint32_t taken;
    int ended;
};

/* ---- Vocabularies ---- */
int grammar_vocab_make(struct grammar_vocab **out, const struct grammar_piece *pieces, uint32_t n, const int32_t *ends,
                       uint32_t ends_n, cohort_error *err) {
    struct grammar_vocab *v = *out = calloc(1, sizeof(*v));
    if (!v) abort();
    v->n = n;
    v->ends_n = ends_n;
    v->pieces = calloc(n, sizeof(*v->pieces));
    v->ends = calloc(ends_n + 1, sizeof(*v->ends));
    if (!v->pieces || !v->ends) abort();
    if (ends_n) memcpy(v->ends, ends, ends_n * sizeof(*ends));
    for (uint32_t i = 0; i < n; i++) {
        char *bytes = malloc(pieces[i].len + 1);
        if (!bytes) abort();
        memcpy(bytes, pieces[i].bytes, pieces[i].len);
        v->pieces[i] = (struct grammar_piece){bytes, pieces[i].len, pieces[i].control};
    }
    return 0;
}

void grammar_vocab_free(struct grammar_vocab *v) {
    if (!v) return;
    for (uint32_t i = 0; i < v->n; i++) free((void *)(uintptr_t)v->pieces[i].bytes);
    free(v->pieces);
    free(v->ends);
    free(v);
}

/* ---- Compiling ---- */
static void put(struct place *p, unsigned char byte) { p->bytes[byte / 8] |= (uint8_t)(1u << byte % 8); }
static int has(const struct place *p, unsigned char byte) { return p->bytes[byte / 8] >> byte % 8 & 1; }

static size_t read_set(const char *text, size_t at, size_t n, struct place *p) {
    int negated = at < n && text[at] == '^';
    for (at += (size_t)negated; at < n && text[at] != ']'; at++) {
        unsigned char low = (unsigned char)text[at], high = low;
        if (at + 2 < n && text[at + 1] == '-') {
            high = (unsigned char)text[at + 2];
            at += 2;
        }
        for (unsigned byte = low; byte <= high; byte++) put(p, (unsigned char)byte);
    }
    for (int i = 0; i < 32 && negated; i++) p->bytes[i] = (uint8_t)~p->bytes[i];
    return at + 1;
}

static size_t read_one(const char *text, size_t at, size_t n, struct place *p) {
    *p = (struct place){.optional = 0};
    if (text[at] == '[') return read_set(text, at + 1, n, p);
    if (text[at] == '.') {
        memset(p->bytes, 0xff, sizeof(p->bytes));
        return at + 1;
    }
    at += text[at] == '\\';
    put(p, (unsigned char)text[at]);
    return at + 1;
}

static size_t read_count(const char *text, size_t at, uint32_t *least, uint32_t *most) {
    char *end;
    *least = *most = (uint32_t)strtoul(text + at, &end, 10);
    if (*end == ',') *most = (uint32_t)strtoul(end + 1, &end, 10);
    return (size_t)(end - text) + 1;
}

static int refused(cohort_error *err, const char *why) {
    return err_set(err, COHORT_E_ARGUMENT, "grammar", "the regular expression %s", why);
}

static int parse(struct grammar *g, const char *text, size_t n, cohort_error *err) {
    for (size_t at = 0; at < n;) {
        uint32_t least = 1, most = 1;
        struct place p;
        if (strchr("(|)", text[at])) return refused(err, "has groups");
        at = read_one(text, at, n, &p);
        if (at > n) return refused(err, "ends too early");
        char mark = at < n ? text[at] : 0;
        if (mark == '*' || mark == '+') p.repeated = 1;
        if (mark == '*' || mark == '?') least = 0;
        if (mark == '{') at = read_count(text, at + 1, &least, &most) - 1;
        if (mark && strchr("*+?{", mark)) at++;
        if (g->n + most > PLACES_MAX || least > most) return refused(err, "is too long");
        for (uint32_t i = 0; i < most; i++) {
            p.optional = i >= least;
            g->place[g->n++] = p;
        }
    }
    return 0;
}

int grammar_compile(const struct grammar_vocab *v, const cohort_grammar_source *source,
                    const struct grammar_limits *limits, struct grammar **out, cohort_error *err) {
    *out = NULL;
    fake_grammar.compiles++;
    if (fake_grammar.compile_us) usleep((useconds_t)fake_grammar.compile_us);
    if (fake_grammar.compile_code) return err_set(err, fake_grammar.compile_code, "grammar", "as the test wants it");
    if (source->kind != COHORT_GRAMMAR_REGEX) return refused(err, "is none");
    struct grammar *g = calloc(1, sizeof(*g));
    if (!g) abort();
    g->vocab = v;
    int code = parse(g, source->text, source->len, err);
    if (code)
        free(g);
    else
        *out = g;
    fake_grammar.grammars += !code;
    return code;
}

void grammar_free(struct grammar *g) {
    if (!g) return;
    fake_grammar.grammars--;
    free(g);
}

uint64_t grammar_bytes(const struct grammar *g) { return sizeof(*g); }

/* ---- States ---- */
static uint64_t spread(const struct grammar *g, uint64_t at) {
    for (uint32_t i = 0; i < g->n; i++) {
        int here = at >> i & 1;
        if (here && g->place[i].optional) at |= UINT64_C(2) << i;
    }
    return at;
}

static uint64_t step(const struct grammar *g, uint64_t at, unsigned char byte) {
    uint64_t next = 0;
    for (uint32_t i = 0; i < g->n; i++)
        if ((at >> i & 1) && has(&g->place[i], byte)) {
            next |= UINT64_C(2) << i;
            if (g->place[i].repeated) next |= UINT64_C(1) << i;
        }
    return spread(g, next);
}

static uint64_t walk(const struct grammar_state *s, int32_t token) {
    const struct grammar_piece *p = &s->g->vocab->pieces[token];
    uint64_t at = p->control || p->len == 0 ? 0 : s->at;
    for (uint32_t i = 0; i < p->len && at; i++) at = step(s->g, at, (unsigned char)p->bytes[i]);
    return at;
}

static int is_end(const struct grammar_state *s, int32_t token) {
    for (uint32_t i = 0; i < s->g->vocab->ends_n; i++)
        if (s->g->vocab->ends[i] == token) return 1;
    return 0;
}

int grammar_state_make(const struct grammar *g, struct grammar_state **out) {
    struct grammar_state *s = *out = calloc(1, sizeof(*s));
    if (!s) abort();
    s->g = g;
    s->at = spread(g, 1);
    fake_grammar.states++;
    return 0;
}

void grammar_state_free(struct grammar_state *s) {
    if (!s) return;
    fake_grammar.states--;
    free(s);
}

int grammar_state_complete(const struct grammar_state *s) { return s->ended || (s->at >> s->g->n & 1); }

int grammar_state_mask(struct grammar_state *s, uint32_t *words) {
    uint32_t n = s->g->vocab->n;
    if (fake_grammar.mask_us) usleep((useconds_t)fake_grammar.mask_us);
    if (fake_grammar.break_after && s->taken >= (uint32_t)fake_grammar.break_after) return COHORT_E_LIMIT;
    memset(words, 0, (n + 31) / 32 * sizeof(*words));
    for (uint32_t i = 0; i < n; i++) {
        int may = is_end(s, (int32_t)i) ? grammar_state_complete(s) : !s->ended && walk(s, (int32_t)i) != 0;
        if (may) words[i / 32] |= 1u << i % 32;
    }
    return 1;
}

int grammar_state_accept(struct grammar_state *s, int32_t token) {
    if (is_end(s, token) && grammar_state_complete(s)) {
        s->ended = 1;
        return 0;
    }
    uint64_t at = s->ended ? 0 : walk(s, token);
    if (at == 0) return COHORT_E_ARGUMENT;
    s->at = at;
    s->taken++;
    return 0;
}

size_t grammar_state_forced(struct grammar_state *s, char *out, size_t capacity) {
    uint64_t at = s->at;
    size_t n = 0;
    while (n < capacity && !s->ended && !(at >> s->g->n & 1)) {
        int only = -1;
        for (int byte = 0; byte < 256; byte++)
            if (step(s->g, at, (unsigned char)byte)) only = only == -1 ? byte : -2;
        if (only < 0) break;
        out[n++] = (char)only;
        at = step(s->g, at, (unsigned char)only);
    }
    return n;
}
