/* Counters, gauges and histograms. Written by the engine thread (and, for what happens before the inbox, by API
 * threads), read by anybody; all under metrics_lock, which is held for some lines only. What belongs to an event is
 * counted before the event shows. */
#include <assert.h>

#include "base/clock.h"
#include "engine/internal.h"

const double cohort_histogram_bounds_s[COHORT_HISTOGRAM_BUCKETS - 1] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

static void add(cohort_histogram *h, uint64_t us) {
    double seconds = (double)us * 1e-6;
    int i = 0;
    while (i < COHORT_HISTOGRAM_BUCKETS - 1 && seconds > cohort_histogram_bounds_s[i]) i++;
    h->buckets[i]++;
    h->count++;
    h->sum += seconds;
}

void metrics_submitted(struct cohort_engine *e, const struct row *row) {
    tenants_submitted(e->tenants, row->tenant, row->request.prompt_n, row->request.submitted_us);
    pthread_mutex_lock(&e->metrics_lock);
    e->metrics.requests_submitted++;
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_refused(struct cohort_engine *e) {
    pthread_mutex_lock(&e->metrics_lock);
    e->metrics.requests_refused++;
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_task(struct cohort_engine *e) {
    pthread_mutex_lock(&e->metrics_lock);
    e->metrics.tasks_run++;
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_admitted(struct cohort_engine *e, const struct row *row) {
    pthread_mutex_lock(&e->metrics_lock);
    add(&e->metrics.queue_s, row->admitted_us - row->request.submitted_us);
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_token(struct cohort_engine *e, const struct row *row, uint64_t now_us) {
    tenants_generated(e->tenants, row->request.tenant, 1, now_us);
    pthread_mutex_lock(&e->metrics_lock);
    e->metrics.generated_tokens++;
    if (row->first_us)
        add(&e->metrics.inter_token_s, now_us - row->last_us);
    else
        add(&e->metrics.ttft_s, now_us - row->request.submitted_us);
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_forced(struct cohort_engine *e) {
    pthread_mutex_lock(&e->metrics_lock);
    e->metrics.forced_tokens++;
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_finish(struct cohort_engine *e, const struct row *row, uint64_t now_us) {
    pthread_mutex_lock(&e->metrics_lock);
    cohort_metrics *m = &e->metrics;
    switch (row->final.finish) {
    case COHORT_FINISH_STOP:
        m->requests_finished_stop++;
        break;
    case COHORT_FINISH_LENGTH:
        m->requests_finished_length++;
        break;
    case COHORT_FINISH_CANCELLED:
        m->requests_cancelled++;
        break;
    case COHORT_FINISH_ERROR:
        m->requests_failed++;
        m->requests_timed_out += row->final.error.code == COHORT_E_TIMEOUT;
        break;
    }
    m->cached_tokens += row->final.stats.cached_tokens;
    m->requests_resumed += row->request.saved_n > 0;
    add(&m->e2e_s, now_us - row->request.submitted_us);
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_iteration(struct cohort_engine *e, const struct iteration *it) {
    pthread_mutex_lock(&e->metrics_lock);
    e->metrics.iterations++;
    e->metrics.iteration_tokens += it->n_tokens;
    e->metrics.prompt_tokens += it->n_prompt_tokens - it->n_redone - it->n_filled;
    e->metrics.snapshot_boundaries += it->n_boundaries;
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_step(struct cohort_engine *e, const struct metrics_step *step) {
    struct sched_counts counts;
    uint64_t total = 0, used = 0; /* what only the prefix store holds is free for the taking */
    sched_get_counts(e->sched, &counts);
    for (uint32_t g = 0; g < e->groups; g++) {
        total += pages_total(e->pages, g);
        used += prefix_used(e->cache.prefix, g);
    }
    struct cache_sight sight;
    cache_look(e, &sight);
    pthread_mutex_lock(&e->metrics_lock);
    cohort_metrics *m = &e->metrics;
    m->kv_pages_total = total;
    m->kv_pages_used = used;
    m->rows_running = counts.running;
    m->rows_preparing = counts.preparing;
    m->rows_waiting = counts.waiting + counts.preempted;
    m->preemptions = counts.preemptions;
    m->redone_tokens = counts.redone;
    cache_metrics(e, &sight, m);
    m->steady_step_us = counts.step_us;
    m->prompt_token_ns = counts.token_ns;
    m->step_build_us += step->build_us;
    m->step_forward_us += step->forward_us;
    m->step_deliver_us += step->deliver_us;
    m->step_gap_us += step->gap_us;
    e->last_step_us = clock_us();
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_asleep(struct cohort_engine *e) {
    pthread_mutex_lock(&e->metrics_lock);
    e->last_step_us = 0;
    pthread_mutex_unlock(&e->metrics_lock);
}

/* From here on a turn that never ends shows. */
void metrics_awake(struct cohort_engine *e) {
    pthread_mutex_lock(&e->metrics_lock);
    e->last_step_us = clock_us();
    pthread_mutex_unlock(&e->metrics_lock);
}

void metrics_unhealthy(struct cohort_engine *e) {
    pthread_mutex_lock(&e->metrics_lock);
    e->metrics.healthy = 0;
    e->metrics.rows_running = e->metrics.rows_preparing = e->metrics.rows_waiting = 0; /* all of them end now */
    e->last_step_us = 0;
    pthread_mutex_unlock(&e->metrics_lock);
}

void cohort_metrics_get(cohort_engine *e, cohort_metrics *out) {
    pthread_mutex_lock(&e->metrics_lock);
    *out = e->metrics;
    uint64_t last = e->last_step_us;
    pthread_mutex_unlock(&e->metrics_lock);
    out->grammar_masks = atomic_load(&e->masks.masks);
    out->grammar_mask_us = atomic_load(&e->masks.ns) / 1000;
    grammars_metrics(e->model->grammars, out);
    out->trace_dropped = trace_dropped(e->trace);
    out->last_iteration_us_ago = last ? clock_us() - last : 0;
}
