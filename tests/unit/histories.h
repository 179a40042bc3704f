/* Random histories of an engine whose state survives: requests that repeat, cut, extend and edit what was said before,
 * alone and together, on engines of every shape, each compared event by event with the same request alone on an engine
 * that stores nothing. Speaks only through cohort.h, so it runs on any backend; with the one without arithmetic
 * (fake_backend.h) it is quick and also counts what was computed.
 *
 * A round is one engine and the histories that it lives through; it is drawn from (seed, round) alone, so that is what
 * a failure names and what can be played again. One thread; the engine's threads are not drawn, so what meets whom may
 * differ from play to play. */
#ifndef TESTS_HISTORIES_H
#define TESTS_HISTORIES_H

#include "base/buf.h"
#include "cohort/cohort.h"
#include "fake_backend.h"
#include "grammar_mix.h"
#include "sampler_mix.h"

enum {
    HISTORY_ASKS_MAX = 40,
    HISTORY_WAVE_MAX = 12,
    HISTORY_PROMPT_MAX = 900,
    HISTORY_TENANTS = 3,
    HISTORY_SALTS = 3,
    HISTORY_SESSIONS = 3,
    HISTORY_NEVER = -1
};

extern struct fake_backend fake_backend __attribute__((weak)); /* not there with a real backend */

/* ---- Numbers (histories_draw.c) ---- */
struct draw {
    uint64_t seed, stream, n;
};
uint64_t draw_u64(struct draw *d);
uint32_t draw_below(struct draw *d, uint32_t n); /* n >= 1 */
uint32_t draw_between(struct draw *d, uint32_t low, uint32_t high);
int draw_chance(struct draw *d, uint32_t percent);

/* ---- Models: tiny ones, some with another window than their file says (histories_model.c) ---- */
struct history_model {
    uint32_t window; /* 0: full attention only */
    int recurrent;
    cohort_state_form key_form, value_form;
    uint32_t quantise_after;
    uint32_t vocab;
    int32_t eos;
    cohort_model *played, *oracle; /* a model has one engine at a time */
    struct grammar_mix played_grammars, oracle_grammars;
};
/* "folder", "folder:window", and behind either "@KEYS/VALUES/AFTER" with forms by their numbers; 0 if the vectors are
 * not there. */
int history_model_open(struct history_model *m, const char *name, const char *cpu);
void history_model_close(struct history_model *m);
/* The forms of its state, into the options of whoever plays it. */
void history_model_forms(const struct history_model *m, cohort_engine_options *o);

/* ---- Answers (histories_answer.c) ---- */
struct answer {
    struct buf events; /* everything that must be the same each time */
    size_t body;       /* bytes of it before the finish event */
    int done;
    cohort_finish finish;
    int error;
    cohort_stats stats;
    uint32_t events_n;
    cohort_saved_token *tokens; /* with their lists, as `resume` wants them */
    uint32_t tokens_n, tokens_cap;
};
/* Takes the events that are there, at most `most`. Returns how many came. */
uint32_t answer_take(cohort_engine *engine, cohort_id id, struct answer *a, uint32_t most);
void answer_free(struct answer *a);

/* A request with all that it points to, and what becomes of it. */
struct ask {
    cohort_request q;
    int32_t prompt[HISTORY_PROMPT_MAX];
    uint32_t snapshots[COHORT_SNAPSHOTS_MAX];
    int32_t stop_id;
    cohort_span stop;
    uint32_t mix;                   /* of samplers (sampler_mix.h); SAMPLER_MIXES: none */
    uint32_t grammar;               /* GRAMMAR_MIXES: none */
    uint32_t tenant, salt, session; /* salt, session: 0 is none */
    const char *kind;               /* how its prompt was made, for reports */
    int cancel_after;               /* that many events; HISTORY_NEVER */
    int late;                       /* read only when the others have ended, or nothing moves */
    int cancelled;
    cohort_id id;
    struct answer got;
    const struct answer *want;
};

uint32_t ask_reads(const struct ask *a); /* tokens of its prompt that are computed, or taken from the store */

/* What a request says alone, on an engine that stores nothing: asked once, then remembered. */
struct oracle;
struct oracle *oracle_new(struct history_model *m);
void oracle_ask(struct oracle *o, const struct ask *a); /* begins; a wave is asked together, and answered one by one */
const struct answer *oracle_answer(struct oracle *o, const struct ask *a);
void oracle_forget(struct oracle *o); /* all answers */
void oracle_free(struct oracle *o);

/* ---- A round ---- */
struct shape { /* of an engine and of what it is asked */
    cohort_engine_options options;
    cohort_tenant tenants[HISTORY_TENANTS];
    uint32_t alphabet; /* different ids in prompts */
    uint32_t prompt_most;
    int calm;           /* room for everything, nothing fails: what must be found is known */
    int backend, delay; /* of the fake one: when batches run */
};

struct past {       /* what an engine was asked: who may find what */
    uint32_t space; /* tenant and salt */
    uint32_t prompt_n;
    uint32_t n;       /* prompt and answer */
    uint32_t certain; /* of which so many surely had state at the end; 0 if it did not end well or stores nothing */
    int stores, session;
    uint64_t wave;
    int32_t *ids;
};

struct totals {
    uint64_t histories, requests, prompt_tokens, cached_tokens, preemptions, redone, cancelled, failed, resumed,
        refused_launches, evictions, snapshot_evictions, lookups, hits, least_checks, paused;
};

struct round {
    uint64_t seed, number, history, wave;
    struct history_model *model;
    struct oracle *oracle;
    struct shape shape;
    struct draw draw;
    cohort_engine *engine;
    struct ask asks[HISTORY_ASKS_MAX]; /* of the present history */
    uint32_t asks_n;
    struct past *pasts; /* of the whole round */
    uint32_t pasts_n, pasts_cap;
    uint64_t computed_least, computed_most, computed_before;
    struct totals totals;
};

/* histories_draw.c */
void shape_draw(struct draw *d, const struct history_model *m, struct shape *out);
/* The next request of the present history; its neighbours in the same wave count as earlier ones. */
void ask_draw(struct round *r, struct ask *out);
/* histories_play.c */
void round_play(struct round *r, uint32_t histories);
/* histories_check.c */
void check_answer(struct round *r, struct ask *a, int disturbed);
void check_cached(struct round *r, const struct ask *a, int lone);
void past_add(struct round *r, const struct ask *a);
void pasts_clear(struct round *r);

/* Says where, with the seed, and ends the process. `a` may be NULL. */
_Noreturn void history_fail(const struct round *r, const struct ask *a, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
