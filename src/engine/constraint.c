/* See constraint.h. The grammar's state and the samplers' tokens are always behind the run: a run's ids are accepted
 * when it is found, and then come one by one, or all at once. So the next mask depends on nothing that comes later. */
#include "engine/constraint.h"

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "sample/mask.h"

enum mask_state { MASK_WANTED, MASK_MAKING, MASK_READY };

struct constraint {
    struct constraint_request request;
    struct grammar_state *state; /* NULL: no grammar */
    struct reasoning_watch reasoning;
    uint32_t taken;           /* tokens of the answer that are accepted, the run's too */
    uint32_t run_from, run_n; /* the run: tokens [run_from, run_from + run_n) of the answer */
    int32_t run[CONSTRAINT_RUN_MAX];
    uint8_t over, dead; /* dead: there was no token, and the row ends */
    int failed;
    _Atomic int mask_state;
    int mask_code; /* what grammar_state_mask said: 1: `mask` is one; 0: everything is allowed; else: it failed */
    uint32_t *mask_bits;
    struct mask mask;
};

/* ---- Sequences of ids ---- */
static int ends_with(const struct id_match *m, uint32_t length, int32_t token) {
    if (m->ids[length - 1] != token) return 0;
    return length == 1 || memcmp(m->ids, m->ids + m->have - (length - 1), (length - 1) * sizeof(*m->ids)) == 0;
}

void id_match_take(struct id_match *m, int32_t token) {
    if (m->n == 0 || m->found) return;
    uint32_t length = m->have + 1;
    while (length > 0 && !ends_with(m, length, token)) length--;
    m->have = length;
    m->found = length == m->n;
}

uint32_t reasoning_take(struct reasoning_watch *w, int32_t token) {
    uint32_t open = (uint32_t)reasoning_is_open(w);
    if (open)
        id_match_take(&w->end, token);
    else if (w->begin.n > 0 && !w->begin.found)
        id_match_take(&w->begin, token);
    return open ? 1 : reasoning_is_open(w) ? w->begin.n : 0;
}

/* ---- Masks ---- */
static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whoever calls has claimed it. */
static void make_mask(struct constraint *c) {
    uint64_t begin = now_ns();
    c->mask_code = grammar_state_mask(c->state, c->mask_bits);
    if (c->mask_code == 1) c->mask = (struct mask){c->mask_bits, mask_count(c->mask_bits, c->request.vocab)};
    atomic_fetch_add_explicit(&c->request.counts->masks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->request.counts->ns, now_ns() - begin, memory_order_relaxed);
    atomic_store_explicit(&c->mask_state, MASK_READY, memory_order_release);
}

static int claim_mask(struct constraint *c) {
    int wanted = MASK_WANTED;
    return atomic_compare_exchange_strong_explicit(&c->mask_state, &wanted, MASK_MAKING, memory_order_acquire,
                                                   memory_order_acquire);
}

void constraint_prepare(struct constraint *c) {
    if (c->state && claim_mask(c)) make_mask(c);
}

/* What somebody makes takes some microseconds, and nothing else can be done for this row meanwhile. */
static void ready_mask(struct constraint *c) {
    if (claim_mask(c)) make_mask(c);
    while (atomic_load_explicit(&c->mask_state, memory_order_acquire) != MASK_READY) sched_yield();
}

static int allows_ends_only(const struct constraint *c) {
    if (c->mask_code != 1) return 0;
    uint32_t ends = 0;
    for (uint32_t i = 0; i < c->request.ends_n; i++)
        ends += (uint32_t)mask_allows(&c->mask, (uint32_t)c->request.ends[i]);
    return ends > 0 && c->mask.allowed == ends;
}

/* ---- Runs ---- */
/* 0, E_ARGUMENT: the grammar does not allow it; or it has failed. */
static int take(struct constraint *c, int32_t token) {
    int code = c->state ? grammar_state_accept(c->state, token) : 0;
    if (code && code != COHORT_E_ARGUMENT) c->failed = code;
    if (code) return code;
    reasoning_take(&c->reasoning, token);
    c->taken++;
    return 0;
}

/* How many ids more a run may have. Forced text ends where the reasoning must. */
static uint32_t run_room(const struct constraint *c, int text) {
    uint32_t room = CONSTRAINT_RUN_MAX - c->run_n, left = c->request.max_new - c->taken;
    if (left < room) room = left;
    if (!text || !reasoning_is_open(&c->reasoning)) return room;
    uint32_t budget = c->request.reasoning_budget;
    left = c->taken < budget ? budget - c->taken : 0;
    return left < room ? left : room;
}

static int run_add(struct constraint *c, int32_t token) {
    struct sample_row *s = c->request.sample;
    uint32_t index = c->taken;
    int code = take(c, token);
    if (code) return code;
    c->run[c->run_n++] = token;
    sample_row_keep(s, (uint64_t)c->request.prompt_n + index, token, s && s->states ? s->states[index] : 0);
    return 0;
}

/* The ids that end the reasoning, if its budget is used up: what is missing of them. Where the grammar has no place for
 * them they come at the next one that it has. */
static void force_reasoning_end(struct constraint *c) {
    const struct id_match *end = &c->reasoning.end;
    if (!reasoning_is_open(&c->reasoning) || c->taken < c->request.reasoning_budget) return;
    for (uint32_t i = end->have; i < end->n && run_room(c, 0) > 0; i++)
        if (run_add(c, end->ids[i]) != 0) return;
}

static size_t whole_characters(const char *text, size_t n) {
    size_t at = 0;
    uint32_t cp;
    for (int len; at < n && (len = utf8_decode(text + at, n - at, &cp)) > 0;) at += (size_t)len;
    return at;
}

/* The text that must come, as the tokens that the model's own tokenizer makes of it, but for the last: what follows may
 * make a longer one of that. */
static void force_text(struct constraint *c) {
    char text[CONSTRAINT_TEXT_MAX];
    int32_t *ids;
    size_t n;
    if (!c->state || c->failed || run_room(c, 1) == 0) return;
    size_t len = whole_characters(text, grammar_state_forced(c->state, text, sizeof(text)));
    if (len == 0 || tokenizer_encode(c->request.tokenizer, text, len, TOKENIZER_GOES_ON, &ids, &n, NULL) != 0) return;
    for (size_t i = 0; i + 1 < n && run_room(c, 1) > 0; i++)
        if (run_add(c, ids[i]) != 0) break;
    mem_free(ids);
}

/* Behind a token that was drawn, or at the beginning: finds the run, and whether the grammar is at its end behind it.
 */
static void settle(struct constraint *c) {
    c->run_from = c->taken;
    c->run_n = 0;
    for (uint32_t before = UINT32_MAX; before != c->run_n && !c->failed;) {
        before = c->run_n;
        force_reasoning_end(c);
        force_text(c);
    }
    if (!c->state || c->failed) return;
    if (grammar_state_complete(c->state)) {
        make_mask(c);
        c->over = (uint8_t)(c->taken > 0 && allows_ends_only(c));
    } else {
        atomic_store_explicit(&c->mask_state, MASK_WANTED, memory_order_release);
    }
}

/* ---- Drawing ---- */
static void no_token(struct sample_result *out) {
    *out = (struct sample_result){.token = SAMPLE_NOTHING_LEFT, .logprob = NAN};
}

static void draw(struct constraint *c, const struct vecops *ops, const struct sample_params *params, uint64_t position,
                 const struct logits *logits, float *scratch, struct sample_result *out, struct constraint_note *note) {
    const struct mask *mask = NULL;
    if (c->state) {
        ready_mask(c);
        if (c->mask_code < 0) c->failed = c->mask_code;
        if (c->mask_code == 1) mask = &c->mask;
    }
    no_token(out);
    if (!c->failed) sample_draw(ops, params, position, mask, logits, scratch, out);
    if (out->token >= 0) {
        sample_row_keep(params->row, position, out->token, out->state);
        if (c->state && tokenizer_is_end(c->request.tokenizer, out->token)) {
            c->taken++;
            c->dead = 1; /* it ends the row */
            return;
        }
        int code = take(c, out->token);
        if (!code) {
            settle(c);
            return;
        }
        c->failed = code; /* its own mask had it */
        no_token(out);
    }
    c->dead = 1;
    note->failed = c->failed;
}

static int in_run(const struct constraint *c, uint32_t index) {
    return index >= c->run_from && index - c->run_from < c->run_n;
}

/* The row ends, and its next token was planned before that was known. */
static int is_past(const struct constraint *c) { return c->dead || c->over; }

enum batch_wants constraint_wants(const struct constraint *c, const struct sample_params *params, uint64_t position,
                                  const uint32_t **ids) {
    uint32_t index = (uint32_t)position - c->request.prompt_n;
    if (in_run(c, index)) return sample_says_of_row(params) ? BATCH_ALL : BATCH_NONE;
    if (is_past(c)) return BATCH_NONE;
    assert(index == c->taken);
    if (!c->state || atomic_load_explicit(&c->mask_state, memory_order_acquire) != MASK_READY) return BATCH_ALL;
    if (c->mask_code != 1 || !sample_is_narrow(params, &c->mask, c->request.vocab)) return BATCH_ALL;
    *ids = c->mask.bits;
    return BATCH_SOME;
}

void constraint_draw(struct constraint *c, const struct vecops *ops, const struct sample_params *params,
                     uint64_t position, const struct logits *logits, float *scratch, struct sample_result *out,
                     struct constraint_note *note) {
    uint32_t index = (uint32_t)position - c->request.prompt_n;
    *note = (struct constraint_note){0};
    assert(logits->n == c->request.vocab);
    if (in_run(c, index)) {
        sample_given(ops, params, position, c->run[index - c->run_from], logits, scratch, out);
        note->forced = 1;
    } else if (is_past(c)) {
        no_token(out);
    } else {
        assert(index == c->taken);
        draw(c, ops, params, position, logits, scratch, out, note);
    }
    if (index < c->run_from + c->run_n) note->run_n = c->run_from + c->run_n - index - 1;
    note->over = c->over;
}

void constraint_run_token(const struct constraint *c, uint32_t index, struct sample_result *out) {
    const struct sample_row *s = c->request.sample;
    assert(index >= c->run_from && index - c->run_from < c->run_n);
    *out = (struct sample_result){.token = c->run[index - c->run_from], .logprob = NAN};
    if (s && s->states) out->state = s->states[index];
}

int constraint_over(const struct constraint *c, uint32_t n) { return c->over && c->taken == n; }

/* ---- Making ---- */
/* Continuations: what was given before comes the same way. */
static int replay(struct constraint *c, const cohort_saved_token *saved, uint32_t n, uint32_t *forced,
                  cohort_error *err) {
    *forced = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (c->failed) return err_set(err, c->failed, "grammar", "the grammar failed behind %u tokens", i);
        if (i < c->run_from + c->run_n) {
            if (saved[i].token != c->run[i - c->run_from])
                return err_set(err, COHORT_E_ARGUMENT, "resume", "resume[%u] is not the token that must come there", i);
            ++*forced;
            continue;
        }
        if (c->over) return err_set(err, COHORT_E_ARGUMENT, "resume", "the grammar ends before resume[%u]", i);
        if (take(c, saved[i].token) != 0)
            return err_set(err, COHORT_E_ARGUMENT, "resume", "the grammar does not allow resume[%u]", i);
        settle(c);
    }
    return 0;
}

int constraint_make(struct constraint **out, const struct constraint_request *request, const cohort_saved_token *saved,
                    uint32_t saved_n, uint32_t *forced, cohort_error *err) {
    struct constraint *c = mem_zalloc(1, sizeof(*c));
    int code = c ? 0 : COHORT_E_MEMORY;
    if (c) {
        c->request = *request;
        c->reasoning = request->reasoning;
    }
    if (!code && request->grammar) {
        c->mask_bits = mem_alloc(mask_words(request->vocab), sizeof(*c->mask_bits));
        code = c->mask_bits ? grammar_state_make(request->grammar, &c->state) : COHORT_E_MEMORY;
    }
    if (code) {
        constraint_free(c);
        return err_set(err, code, "grammar", "no room for the state of a grammar");
    }
    settle(c);
    code = replay(c, saved, saved_n, forced, err);
    if (code) {
        constraint_free(c);
        return code;
    }
    *out = c;
    return 0;
}

void constraint_free(struct constraint *c) {
    if (!c) return;
    grammar_state_free(c->state);
    mem_free(c->mask_bits);
    mem_free(c);
}
