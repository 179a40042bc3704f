/* Playing a round: waves of requests, readers of every kind, and the books at the end (histories.h). */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "histories.h"

enum { STUCK_MS = 60000, STALL_MS = 10 };

static int has_fake(void) { return &fake_backend != NULL; }

/* ---- Readers ---- */
static void read_ask(struct round *r, struct ask *a) {
    if (a->got.done) return;
    while (answer_take(r->engine, a->id, &a->got, a->cancel_after > 0 ? 1 : UINT32_MAX)) {
        if (a->cancel_after <= 0 || a->got.events_n < (uint32_t)a->cancel_after || a->cancelled) continue;
        cohort_cancel(r->engine, a->id);
        a->cancelled = 1;
    }
    if (a->got.done) cohort_drop(r->engine, a->id);
}

/* Takes what is there of those that are read; 0 if nothing came in time. */
static int read_ready(struct round *r, struct ask *wave, uint32_t n, int timeout_ms) {
    cohort_id ids[HISTORY_WAVE_MAX];
    struct pollfd p = {cohort_event_fd(r->engine), POLLIN, 0};
    if (poll(&p, 1, timeout_ms) <= 0) return 0;
    int came = 0;
    for (size_t ready; (ready = cohort_ready(r->engine, ids, HISTORY_WAVE_MAX)) > 0;) {
        came = 1;
        for (size_t i = 0; i < ready; i++)
            for (uint32_t j = 0; j < n; j++)
                if (wave[j].id == ids[i] && !wave[j].late) read_ask(r, &wave[j]);
    }
    return came;
}

static void stop_being_late(struct round *r, struct ask *wave, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (!wave[i].late) continue;
        r->totals.paused++;
        wave[i].late = 0;
        read_ask(r, &wave[i]);
    }
}

static void read_wave(struct round *r, struct ask *wave, uint32_t n) {
    int waited = 0;
    for (;;) {
        uint32_t open = 0, late = 0;
        for (uint32_t i = 0; i < n; i++) {
            open += !wave[i].got.done;
            late += wave[i].late;
        }
        if (open == 0) return;
        if (late && late == open) {
            stop_being_late(r, wave, n);
        } else if (read_ready(r, wave, n, STALL_MS)) {
            waited = 0;
        } else {
            if (late && waited) stop_being_late(r, wave, n);
            waited += STALL_MS;
            if (waited < STUCK_MS) continue;
            for (uint32_t i = 0; i < n; i++)
                if (!wave[i].got.done) history_fail(r, &wave[i], "no event for a minute");
        }
    }
}

/* ---- Waves ---- */
static void submit(struct round *r, struct ask *a) {
    cohort_ticket ticket;
    cohort_error err = {0};
    if (cohort_reserve_for(r->engine, a->tenant, &ticket, &err) != 0) history_fail(r, a, "reserve: %s", err.text);
    if (cohort_submit(r->engine, ticket, &a->q, &a->id, &err) != 0)
        history_fail(r, a, "submit: %s: %s", err.field, err.text);
    if (a->cancel_after != 0) return;
    cohort_cancel(r->engine, a->id);
    a->cancelled = 1;
}

static void submit_wave(struct round *r, struct ask *wave, uint32_t n) {
    int hold = draw_chance(&r->draw, 40); /* all are there before the first is admitted */
    if (hold) cohort_engine_hold(r->engine, 1);
    for (uint32_t i = 0; i < n; i++) {
        submit(r, &wave[i]);
        if (r->shape.delay && draw_chance(&r->draw, 30)) usleep(draw_below(&r->draw, (uint32_t)r->shape.delay));
        if (!hold && draw_chance(&r->draw, 30)) read_ready(r, wave, i + 1, 1);
    }
    if (hold) cohort_engine_hold(r->engine, 0);
}

/* Of one answer: at least and at most so many tokens were computed for it. */
static void count_computed(struct round *r, const struct ask *a) {
    const cohort_stats *s = &a->got.stats;
    uint64_t generated = s->generated_tokens;
    uint64_t exact = ask_reads(a) - s->cached_tokens + (generated ? generated - 1 : 0) + s->redone_tokens;
    int by_length = a->got.finish == COHORT_FINISH_LENGTH;
    /* What is forced is told before it is read, so an answer that ends may have tokens that never were. */
    r->computed_most += exact + (by_length ? 0 : 2); /* iterations in flight when it ended */
    if (a->q.resume_n == 0 && (by_length || a->got.finish == COHORT_FINISH_STOP))
        r->computed_least += exact - s->forced_tokens;
}

static void count(struct round *r, const struct ask *a) {
    struct totals *t = &r->totals;
    t->requests++;
    t->prompt_tokens += a->got.stats.prompt_tokens;
    t->cached_tokens += a->got.stats.cached_tokens;
    t->preemptions += a->got.stats.preemptions;
    t->redone += a->got.stats.redone_tokens;
    t->cancelled += a->got.finish == COHORT_FINISH_CANCELLED;
    t->failed += a->got.finish == COHORT_FINISH_ERROR;
    t->resumed += a->q.resume_n > 0;
}

static void play_wave(struct round *r, struct ask *wave, uint32_t n) {
    int disturbed = has_fake() && !r->shape.calm && draw_chance(&r->draw, 2);
    if (disturbed) fake_backend.refuse_launch = 1 + (int)draw_below(&r->draw, 20);
    submit_wave(r, wave, n);
    read_wave(r, wave, n);
    if (disturbed) {
        r->totals.refused_launches += fake_backend.refuse_launch == 0;
        fake_backend.refuse_launch = 0;
    }
    for (uint32_t i = 0; i < n; i++) oracle_ask(r->oracle, &wave[i]);
    for (uint32_t i = 0; i < n; i++) {
        wave[i].want = oracle_answer(r->oracle, &wave[i]);
        check_answer(r, &wave[i], disturbed);
        count_computed(r, &wave[i]);
        count(r, &wave[i]);
        past_add(r, &wave[i]);
    }
    for (uint32_t i = 0; i < n; i++) check_cached(r, &wave[i], r->shape.calm && n == 1 && !wave[i].cancelled);
    r->wave++;
}

static void play_history(struct round *r) {
    uint32_t n = draw_between(&r->draw, 5, draw_chance(&r->draw, 80) ? 15 : HISTORY_ASKS_MAX);
    r->asks_n = 0;
    while (r->asks_n < n) {
        struct ask *wave = &r->asks[r->asks_n];
        uint32_t together = draw_chance(&r->draw, 45) ? 1 : draw_between(&r->draw, 2, HISTORY_WAVE_MAX);
        for (uint32_t i = 0; i < together && r->asks_n < n; i++) {
            ask_draw(r, &wave[i]);
            r->asks_n++;
        }
        play_wave(r, wave, (uint32_t)(&r->asks[r->asks_n] - wave));
    }
    for (uint32_t i = 0; i < n; i++) answer_free(&r->asks[i].got);
    r->asks_n = 0;
    r->totals.histories++;
    r->history++;
}

/* ---- Rounds ---- */
static void open_engine(struct round *r) {
    cohort_error err = {0};
    if (has_fake()) {
        fake_backend.when = r->shape.backend;
        fake_backend.delay_us = r->shape.delay;
        fake_backend.end = r->model->eos;
        fake_backend.poison = r->shape.calm ? -1 : (int32_t)(r->model->vocab - 5);
        r->computed_before = fake_backend.tokens;
    }
    r->shape.options.tenants = r->shape.tenants;
    if (cohort_engine_open(r->model->played, &r->shape.options, &r->engine, &err) != 0)
        history_fail(r, NULL, "%s: %s", err.field, err.text);
}

static void check_books(struct round *r) {
    cohort_metrics m;
    int patience = 20000;
    do {
        cohort_metrics_get(r->engine, &m);
        if (m.kv_pages_used == 0 && m.rows_running + m.rows_preparing + m.rows_waiting == 0) break;
        usleep(500);
    } while (--patience);
    if (!patience) history_fail(r, NULL, "%llu pages are still held", (unsigned long long)m.kv_pages_used);
    const struct totals *t = &r->totals;
    if (!m.healthy) history_fail(r, NULL, "not healthy");
    if (m.requests_submitted != t->requests || m.requests_failed != t->failed || m.requests_cancelled != t->cancelled)
        history_fail(r, NULL, "requests are not counted right");
    if (m.cached_tokens != t->cached_tokens)
        history_fail(r, NULL, "%llu cached tokens in the metrics, %llu in the answers",
                     (unsigned long long)m.cached_tokens, (unsigned long long)t->cached_tokens);
    if (m.cache_hits > m.cache_lookups) history_fail(r, NULL, "more hits than lookups");
    if (m.preemptions != t->preemptions) history_fail(r, NULL, "preemptions are not counted right");
    r->totals.evictions = m.cache_evictions;
    r->totals.snapshot_evictions = m.cache_snapshot_evictions;
    r->totals.lookups = m.cache_lookups;
    r->totals.hits = m.cache_hits;
}

static void check_computed(struct round *r) {
    if (!has_fake()) return;
    uint64_t computed = fake_backend.tokens - r->computed_before;
    if (computed < r->computed_least || computed > r->computed_most)
        history_fail(r, NULL, "%llu tokens computed; the answers' figures say %llu to %llu",
                     (unsigned long long)computed, (unsigned long long)r->computed_least,
                     (unsigned long long)r->computed_most);
}

void round_play(struct round *r, uint32_t histories) {
    r->draw = (struct draw){r->seed, r->number, 0};
    shape_draw(&r->draw, r->model, &r->shape);
    open_engine(r);
    while (histories--) play_history(r);
    check_books(r);
    cohort_engine_close(r->engine, 0);
    check_computed(r);
    pasts_clear(r);
    oracle_forget(r->oracle);
}
