/* What must hold of each answer and of the engine's figures (histories.h). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "histories.h"

enum { PAGE = 32 };

static void describe(const struct ask *a) {
    const cohort_request *q = &a->q;
    fprintf(stderr, "  grammar %u, mix %u\n", a->grammar, a->mix);
    fprintf(stderr,
            "  %s prompt of %zu, max_tokens %u, tenant %u, salt %u, session %u, cache_prompt %d, chunk_max %u,\n"
            "  %zu snapshots, prompt_logprobs %d, pooling %d, logprobs %d, resume %zu, cancel after %d, late %d, "
            "priority %d\n"
            "  got: finish %d, error %d, %u tokens, cached %u, preemptions %u, redone %u\n",
            a->kind, q->prompt_n, q->max_tokens, a->tenant, a->salt, a->session, q->cache_prompt, q->chunk_max,
            q->snapshot_at_n, q->prompt_logprobs, (int)q->pooling, q->logprobs, q->resume_n, a->cancel_after, a->late,
            q->priority, (int)a->got.finish, a->got.error, a->got.tokens_n, a->got.stats.cached_tokens,
            a->got.stats.preemptions, a->got.stats.redone_tokens);
    if (a->want)
        fprintf(stderr, "  want: finish %d, error %d, %u tokens\n", (int)a->want->finish, a->want->error,
                a->want->tokens_n);
}

_Noreturn void history_fail(const struct round *r, const struct ask *a, const char *format, ...) {
    va_list args;
    const cohort_engine_options *o = &r->shape.options;
    va_start(args, format);
    fprintf(stderr, "FAILED in history %llu, wave %llu: ", (unsigned long long)r->history, (unsigned long long)r->wave);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(
        stderr,
        "\n  window %u, context %u, rows %u, batch_tokens %u, kv_tokens %llu, pipeline %d, ring_bytes %u, cache %d,\n"
        "  snapshot_stride %u, alphabet %u, calm %d, backend %d, delay %d\n",
        r->model->window, o->context, o->rows, o->batch_tokens, (unsigned long long)o->kv_tokens, o->pipeline,
        o->ring_bytes, o->cache, o->snapshot_stride, r->shape.alphabet, r->shape.calm, r->shape.backend,
        r->shape.delay);
    if (a) describe(a);
    fprintf(stderr, "play it again: --seed %llu --round %llu, with the same --length, --models and --cpu\n",
            (unsigned long long)r->seed, (unsigned long long)r->number);
    fflush(NULL);
    _Exit(1);
}

/* ---- Answers ---- */
static int same(const struct answer *a, const struct answer *b) {
    return a->events.len == b->events.len && memcmp(a->events.data, b->events.data, a->events.len) == 0;
}

static int begins(const struct answer *part, const struct answer *whole) {
    return part->body <= whole->body &&
           (part->body == 0 || memcmp(part->events.data, whole->events.data, part->body) == 0);
}

void check_answer(struct round *r, struct ask *a, int disturbed) {
    const struct answer *got = &a->got, *want = a->want;
    uint32_t n = 0;
    if (same(got, want)) return;
    while (n < got->tokens_n && n < want->tokens_n && got->tokens[n].token == want->tokens[n].token) n++;
    if (!begins(got, want))
        history_fail(r, a, "another answer than without a cache; the first %u tokens are the same", n);
    if (a->cancelled && got->finish == COHORT_FINISH_CANCELLED) return;
    if (disturbed && got->finish == COHORT_FINISH_ERROR && got->error == COHORT_E_MEMORY) return;
    history_fail(r, a, "another end than without a cache, behind %u tokens", n);
}

/* ---- What was taken from the store ---- */
void past_add(struct round *r, const struct ask *a) {
    if (r->pasts_n == r->pasts_cap) {
        r->pasts_cap = r->pasts_cap ? 2 * r->pasts_cap : 64;
        r->pasts = realloc(r->pasts, r->pasts_cap * sizeof(r->pasts[0]));
        if (!r->pasts) abort();
    }
    struct past *p = &r->pasts[r->pasts_n++];
    uint32_t prompt_n = (uint32_t)a->q.prompt_n, n = prompt_n + a->want->tokens_n;
    *p = (struct past){.space = a->tenant * HISTORY_SALTS + a->salt, .prompt_n = prompt_n, .n = n};
    p->stores = a->q.cache_prompt != 0;
    p->session = a->session != 0;
    p->wave = r->wave;
    if (p->stores && a->q.resume_n == 0 && a->got.stats.forced_tokens == 0 &&
        (a->got.finish == COHORT_FINISH_STOP || a->got.finish == COHORT_FINISH_LENGTH))
        p->certain = ask_reads(a) + (a->want->tokens_n ? a->want->tokens_n - 1 : 0);
    p->ids = malloc(n * sizeof(p->ids[0]));
    if (!p->ids) abort();
    memcpy(p->ids, a->prompt, prompt_n * sizeof(p->ids[0]));
    for (uint32_t i = 0; i < a->want->tokens_n; i++) p->ids[prompt_n + i] = a->want->tokens[i].token;
    /* A windowed state that ends inside of a block that somebody else stored longer finds no place there. */
    uint32_t whole = p->certain / PAGE * PAGE;
    for (uint32_t i = 0; r->model->window && p->certain > whole && i + 1 < r->pasts_n; i++) {
        const struct past *q = &r->pasts[i];
        if (q->space == p->space && q->stores && q->n > whole && p->certain > whole &&
            memcmp(q->ids, p->ids, (whole + 1) * sizeof(p->ids[0])) == 0)
            p->certain = 0;
    }
}

void pasts_clear(struct round *r) {
    for (uint32_t i = 0; i < r->pasts_n; i++) free(r->pasts[i].ids);
    free(r->pasts);
    r->pasts = NULL;
    r->pasts_n = r->pasts_cap = 0;
}

static uint32_t common(const struct ask *a, const struct past *p) {
    uint32_t n = 0;
    while (n < a->q.prompt_n && n < p->n && a->prompt[n] == p->ids[n]) n++;
    return n;
}

/* What a lone request must find of one that ended well before, on an engine that never had to give anything away. Full
 * layers can be gone on with anywhere; windowed ones at the end of a prompt and of an answer, each to its page. */
static uint32_t must_find(const struct round *r, const struct ask *a, const struct past *p) {
    uint32_t shared = common(a, p), last = (uint32_t)a->q.prompt_n - 1;
    if (p->certain < PAGE) return 0;
    if (shared > p->certain) shared = p->certain;
    if (shared > last) shared = last;
    if (r->model->recurrent) { /* the last whole block of what was read, of the prompt or with the answer */
        uint32_t whole = p->certain / PAGE * PAGE, prompt = (p->prompt_n - 1) / PAGE * PAGE;
        return shared >= whole ? whole : shared >= prompt ? prompt : 0;
    }
    if (r->model->window == 0) return shared;
    if (shared + 1 < p->prompt_n) return 0;
    if (shared + 1 == p->prompt_n || shared + 1 >= p->certain) return shared < PAGE ? 0 : shared - PAGE;
    return p->prompt_n < PAGE + 1 ? 0 : p->prompt_n - PAGE - 1;
}

/* Everybody of the same wave is among the pasts; `a` is, too, and does not count. */
void check_cached(struct round *r, const struct ask *a, int lone) {
    uint32_t cached = a->got.stats.cached_tokens, space = a->tenant * HISTORY_SALTS + a->salt, most = 0, least = 0;
    int none = !a->q.cache_prompt || !r->shape.options.cache || a->q.prompt_logprobs;
    none |= a->q.pooling == COHORT_POOLING_MEAN || a->q.pooling == COHORT_POOLING_CLS;
    if (cached >= a->q.prompt_n) history_fail(r, a, "all of the prompt from the store");
    if (none && cached) history_fail(r, a, "taken from the store, but must not be");
    if (a->got.stats.cached_tokens == 0 && !lone) return;
    int own = 1;
    for (uint32_t i = r->pasts_n; i-- > 0;) {
        const struct past *p = &r->pasts[i];
        if (p->space != space || !p->stores) continue;
        if (own && p->wave == r->wave && p->prompt_n == a->q.prompt_n && common(a, p) == p->prompt_n) {
            own = 0;
            continue;
        }
        uint32_t n = common(a, p);
        most = n > most ? n : most;
        n = lone && p->wave != r->wave ? must_find(r, a, p) : 0;
        least = n > least ? n : least;
    }
    if (cached > most)
        history_fail(r, a, "%u tokens from the store; nobody of that tenant and salt had more than %u in common",
                     cached, most);
    if (!lone || none || a->q.resume_n) return;
    cohort_metrics m;
    cohort_metrics_get(r->engine, &m);
    if (m.cache_evictions || m.cache_snapshot_evictions) return;
    r->totals.least_checks += least > 0;
    if (cached < least) history_fail(r, a, "%u tokens from the store; %u at least are there", cached, least);
}
