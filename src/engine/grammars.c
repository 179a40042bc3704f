/* See grammars.h. An entry is a text with what became of it; it lies in the list of what is remembered, most recently
 * asked for first, until it is forgotten, and lives while it is counted: once by the list and once by everybody who
 * holds it or waits for it. */
#include "engine/grammars.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/internal.h"

enum {
    REFUSED_MAX = 64,              /* refused texts that are remembered */
    REFUSED_BYTES = 4 << 20,       /* of their texts; longer ones are not remembered */
    LIMIT_REMEMBERED_US = 60000000 /* a text that took too long may be tried again after that */
};

enum entry_state { ENTRY_COMPILING, ENTRY_READY, ENTRY_REFUSED };

struct cohort_grammar {
    struct grammars *home;
    cohort_grammar *prev, *next;
    _Atomic uint32_t holders;
    enum entry_state state; /* under the lock; READY and REFUSED stay */
    struct grammar *compiled;
    cohort_error error; /* REFUSED */
    uint64_t bytes, until_us;
    cohort_grammar_source source; /* its text lies behind the struct */
};

struct grammars {
    const struct tokenizer *tokenizer;
    struct grammar_limits limits;
    uint64_t bytes_max;

    pthread_mutex_t vocab_lock;
    struct grammar_vocab *vocab; /* made when the first grammar is compiled */

    pthread_mutex_t lock;
    pthread_cond_t settled; /* an entry is not COMPILING any more */
    cohort_grammar *first, *last;
    uint64_t bytes;         /* of READY entries in the list */
    uint64_t refused_bytes; /* of REFUSED ones */
    uint32_t ready_n, refused_n;
    uint64_t lookups, hits, refused;
};

static uint64_t or_default(uint64_t value, uint64_t otherwise) { return value ? value : otherwise; }

int grammars_check_options(const cohort_model_options *o, cohort_error *err) {
    const uint32_t ms_max = 600000;
    if (o->grammar_ms > ms_max)
        return err_set(err, COHORT_E_ARGUMENT, "grammar_ms", "grammar_ms is %u; at most %u is possible", o->grammar_ms,
                       ms_max);
    return 0;
}

int grammars_new(const struct tokenizer *tokenizer, const cohort_model_options *o, struct grammars **out) {
    struct grammars *g = *out = mem_zalloc(1, sizeof(*g));
    if (!g) return COHORT_E_MEMORY;
    g->tokenizer = tokenizer;
    g->limits.ms = (uint32_t)or_default(o->grammar_ms, COHORT_GRAMMAR_MS_DEFAULT);
    g->limits.bytes = or_default(o->grammar_bytes, COHORT_GRAMMAR_MEMORY_DEFAULT);
    g->bytes_max = or_default(o->grammar_cache_bytes, COHORT_GRAMMAR_CACHE_DEFAULT);
    pthread_mutex_init(&g->vocab_lock, NULL);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->settled, NULL);
    return 0;
}

/* ---- Entries ---- */
static void entry_free(cohort_grammar *e) {
    grammar_free(e->compiled);
    mem_free(e);
}

void cohort_grammar_release(cohort_grammar *e) {
    if (e && atomic_fetch_sub(&e->holders, 1) == 1) entry_free(e);
}

void grammars_retain(const cohort_grammar *e) { atomic_fetch_add(&((cohort_grammar *)(uintptr_t)e)->holders, 1); }
const struct grammar *grammars_compiled(const cohort_grammar *e) { return e->compiled; }
int grammars_owns(const struct grammars *g, const cohort_grammar *e) { return e->home == g; }

static cohort_grammar *entry_new(struct grammars *g, const cohort_grammar_source *source) {
    cohort_grammar *e = mem_zalloc(1, sizeof(*e) + source->len + 1);
    if (!e) return NULL;
    char *text = (char *)(e + 1);
    if (source->len) memcpy(text, source->text, source->len);
    e->home = g;
    e->source = *source;
    e->source.text = text;
    atomic_init(&e->holders, 1);
    return e;
}

/* ---- The list; under the lock ---- */
static void unlink_entry(struct grammars *g, cohort_grammar *e) {
    *(e->prev ? &e->prev->next : &g->first) = e->next;
    *(e->next ? &e->next->prev : &g->last) = e->prev;
    e->prev = e->next = NULL;
}

static void link_first(struct grammars *g, cohort_grammar *e) {
    e->prev = NULL;
    e->next = g->first;
    *(g->first ? &g->first->prev : &g->last) = e;
    g->first = e;
}

static void count(struct grammars *g, const cohort_grammar *e, int sign) {
    if (e->state == ENTRY_READY) {
        g->bytes += (uint64_t)sign * e->bytes;
        g->ready_n += (uint32_t)sign;
    } else if (e->state == ENTRY_REFUSED) {
        g->refused_bytes += (uint64_t)sign * e->bytes;
        g->refused_n += (uint32_t)sign;
    }
}

/* The list's hold goes over to the caller. */
static void forget(struct grammars *g, cohort_grammar *e) {
    count(g, e, -1);
    unlink_entry(g, e);
}

static int too_much(const struct grammars *g, enum entry_state state) {
    if (state == ENTRY_READY) return g->bytes > g->bytes_max;
    return g->refused_n > REFUSED_MAX || g->refused_bytes > REFUSED_BYTES;
}

/* The oldest of that kind go; *gone lists them, to be released outside of the lock, which may take a while. */
static void shrink(struct grammars *g, enum entry_state state, cohort_grammar **gone) {
    for (cohort_grammar *e = g->last, *before; e && too_much(g, state); e = before) {
        before = e->prev;
        if (e->state != state) continue;
        forget(g, e);
        e->next = *gone;
        *gone = e;
    }
}

static void release_all(cohort_grammar *gone) {
    for (cohort_grammar *next; gone; gone = next) {
        next = gone->next;
        cohort_grammar_release(gone);
    }
}

static int same(const cohort_grammar_source *a, const cohort_grammar_source *b) {
    return a->kind == b->kind && a->space == b->space && a->len == b->len &&
           (a->len == 0 || memcmp(a->text, b->text, a->len) == 0);
}

static cohort_grammar *find(struct grammars *g, const cohort_grammar_source *source) {
    for (cohort_grammar *e = g->first; e; e = e->next)
        if (same(&e->source, source)) return e;
    return NULL;
}

/* ---- Compiling ---- */
static int make_vocab(struct grammars *g, cohort_error *err) {
    uint32_t n = tokenizer_size(g->tokenizer), ends_n = 0;
    struct grammar_piece *pieces = mem_alloc(n, sizeof(*pieces));
    int32_t *ends = mem_alloc(n, sizeof(*ends));
    int code = pieces && ends ? 0 : err_set(err, COHORT_E_MEMORY, "grammar", "no memory for a vocabulary");
    for (uint32_t i = 0; i < n && !code; i++) {
        size_t len;
        tokenizer_piece(g->tokenizer, (int32_t)i, 1, &pieces[i].bytes, &len);
        pieces[i].len = (uint32_t)len;
        pieces[i].control = tokenizer_is_special(g->tokenizer, (int32_t)i) != 0;
        if (tokenizer_is_end(g->tokenizer, (int32_t)i)) ends[ends_n++] = (int32_t)i;
    }
    if (!code) code = grammar_vocab_make(&g->vocab, pieces, n, ends, ends_n, err);
    mem_free(pieces);
    mem_free(ends);
    return code;
}

static int compile(struct grammars *g, cohort_grammar *e, cohort_error *err) {
    pthread_mutex_lock(&g->vocab_lock);
    int code = g->vocab ? 0 : make_vocab(g, err);
    pthread_mutex_unlock(&g->vocab_lock);
    return code ? code : grammar_compile(g->vocab, &e->source, &g->limits, &e->compiled, err);
}

static int is_of_the_text(int code) {
    return code == COHORT_E_ARGUMENT || code == COHORT_E_UNSUPPORTED || code == COHORT_E_LIMIT;
}

/* The entry is in the list, COMPILING, and nobody else's to finish. */
static int settle(struct grammars *g, cohort_grammar *e) {
    cohort_error err = {0};
    cohort_grammar *gone = NULL;
    int code = compile(g, e, &err);
    pthread_mutex_lock(&g->lock);
    e->state = code ? ENTRY_REFUSED : ENTRY_READY;
    e->error = err;
    e->error.code = code;
    e->bytes = sizeof(*e) + e->source.len + (code ? 0 : grammar_bytes(e->compiled));
    e->until_us = code == COHORT_E_LIMIT ? clock_us() + LIMIT_REMEMBERED_US : UINT64_MAX;
    g->refused += code != 0;
    count(g, e, 1);
    if (code && !is_of_the_text(code)) {
        forget(g, e);
        gone = e;
    }
    shrink(g, e->state, &gone);
    pthread_cond_broadcast(&g->settled);
    pthread_mutex_unlock(&g->lock);
    release_all(gone);
    return code;
}

/* Holds what is remembered of the text, settled; NULL: the caller compiles *mine, which is in the list now. */
static cohort_grammar *look_up(struct grammars *g, const cohort_grammar_source *source, cohort_grammar *mine) {
    cohort_grammar *gone = NULL;
    pthread_mutex_lock(&g->lock);
    g->lookups++;
    cohort_grammar *e = find(g, source);
    if (e && e->state == ENTRY_REFUSED && e->until_us < clock_us()) {
        forget(g, e);
        gone = e;
        e = NULL;
    }
    if (e) {
        grammars_retain(e);
        g->hits++;
        unlink_entry(g, e);
        link_first(g, e);
        while (e->state == ENTRY_COMPILING) pthread_cond_wait(&g->settled, &g->lock);
        g->refused += e->state == ENTRY_REFUSED;
    } else {
        grammars_retain(mine);
        link_first(g, mine);
    }
    pthread_mutex_unlock(&g->lock);
    cohort_grammar_release(gone);
    return e;
}

static int check_source(const cohort_grammar_source *s, cohort_error *err) {
    if (s->kind <= COHORT_GRAMMAR_NONE || s->kind > COHORT_GRAMMAR_TAGS)
        return err_set(err, COHORT_E_ARGUMENT, "grammar", "there is no kind of grammar %d", (int)s->kind);
    if (s->len > COHORT_GRAMMAR_BYTES_MAX)
        return err_set(err, COHORT_E_LIMIT, "grammar", "a grammar of %zu bytes; at most %d are possible", s->len,
                       COHORT_GRAMMAR_BYTES_MAX);
    if (s->space < 0 || s->space > COHORT_GRAMMAR_SPACE_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "grammar", "white space of %d characters; 0 to %d are possible",
                       s->space, COHORT_GRAMMAR_SPACE_MAX);
    return 0;
}

/* What is settled, to the caller, whose hold it is. */
static int hand_over(cohort_grammar *e, cohort_grammar **out, cohort_error *err) {
    int code = e->error.code;
    if (!code) {
        *out = e;
        return 0;
    }
    err_set(err, code, e->error.field, "%s", e->error.text);
    cohort_grammar_release(e);
    return code;
}

int grammars_compile(struct grammars *g, const cohort_grammar_source *source, cohort_grammar **out, cohort_error *err) {
    cohort_grammar_source s = *source;
    *out = NULL;
    int code = check_source(&s, err);
    if (code) return code;
    if (s.kind == COHORT_GRAMMAR_JSON) s.len = 0;
    cohort_grammar *mine = entry_new(g, &s);
    if (!mine) return err_set(err, COHORT_E_MEMORY, "grammar", "no memory for a grammar");
    cohort_grammar *e = look_up(g, &s, mine);
    if (e) {
        cohort_grammar_release(mine);
    } else {
        e = mine;
        settle(g, e);
    }
    return hand_over(e, out, err);
}

int cohort_grammar_find(const cohort_model *model, const cohort_grammar_source *source, cohort_grammar **out,
                        cohort_error *err) {
    struct grammars *g = model->grammars;
    cohort_grammar_source s = *source;
    *out = NULL;
    int code = check_source(&s, err);
    if (code) return code;
    if (s.kind == COHORT_GRAMMAR_JSON) s.len = 0;
    pthread_mutex_lock(&g->lock);
    cohort_grammar *e = find(g, &s);
    if (e && (e->state == ENTRY_COMPILING || (e->state == ENTRY_REFUSED && e->until_us < clock_us()))) e = NULL;
    if (e) {
        grammars_retain(e);
        unlink_entry(g, e);
        link_first(g, e);
        g->lookups++;
        g->hits++;
        g->refused += e->state == ENTRY_REFUSED;
    }
    pthread_mutex_unlock(&g->lock);
    return e ? hand_over(e, out, err) : err_set(err, COHORT_E_NOT_FOUND, "grammar", "not compiled yet");
}

/* ---- The rest ---- */
void grammars_metrics(struct grammars *g, cohort_metrics *out) {
    pthread_mutex_lock(&g->lock);
    out->grammar_lookups = g->lookups;
    out->grammar_hits = g->hits;
    out->grammar_refused = g->refused;
    out->grammar_cached = g->ready_n;
    out->grammar_cached_bytes = g->bytes;
    pthread_mutex_unlock(&g->lock);
}

void grammars_free(struct grammars *g) {
    if (!g) return;
    release_all(g->first);
    grammar_vocab_free(g->vocab);
    pthread_mutex_destroy(&g->vocab_lock);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->settled);
    mem_free(g);
}

int cohort_grammar_compile(const cohort_model *model, const cohort_grammar_source *source, cohort_grammar **out,
                           cohort_error *err) {
    return grammars_compile(model->grammars, source, out, err);
}
