/* /metrics in Prometheus' text format, from one snapshot of the engine. Loop thread. */
#include "base/buf.h"
#include "base/mem.h"
#include "server/internal.h"

static int counter(struct buf *out, const char *name, const char *help, uint64_t value) {
    return buf_addf(out, "# HELP cohort_%s %s\n# TYPE cohort_%s counter\ncohort_%s %llu\n", name, help, name, name,
                    (unsigned long long)value);
}

static int gauge(struct buf *out, const char *name, const char *help, uint64_t value) {
    return buf_addf(out, "# HELP cohort_%s %s\n# TYPE cohort_%s gauge\ncohort_%s %llu\n", name, help, name, name,
                    (unsigned long long)value);
}

static int seconds(struct buf *out, const char *name, const char *help, uint64_t us) {
    return buf_addf(out, "# HELP cohort_%s %s\n# TYPE cohort_%s counter\ncohort_%s %.6f\n", name, help, name, name,
                    (double)us / 1e6);
}

static int measure(struct buf *out, const char *name, const char *help, double value) {
    return buf_addf(out, "# HELP cohort_%s %s\n# TYPE cohort_%s gauge\ncohort_%s %.9f\n", name, help, name, name,
                    value);
}

static int histogram(struct buf *out, const char *name, const char *help, const cohort_histogram *h) {
    int rc = buf_addf(out, "# HELP cohort_%s %s\n# TYPE cohort_%s histogram\n", name, help, name);
    uint64_t below = 0;
    for (int i = 0; i < COHORT_HISTOGRAM_BUCKETS - 1 && !rc; i++) {
        below += h->buckets[i];
        rc = buf_addf(out, "cohort_%s_bucket{le=\"%g\"} %llu\n", name, cohort_histogram_bounds_s[i],
                      (unsigned long long)below);
    }
    if (!rc)
        rc = buf_addf(out, "cohort_%s_bucket{le=\"+Inf\"} %llu\ncohort_%s_sum %.6f\ncohort_%s_count %llu\n", name,
                      (unsigned long long)h->count, name, h->sum, name, (unsigned long long)h->count);
    return rc;
}

/* One number, written by one of the above. */
struct series {
    const char *name;
    int (*type)(struct buf *out, const char *name, const char *help, uint64_t value);
    const char *help;
    uint64_t value;
};

static int all(struct buf *out, const struct series *series, size_t n) {
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) rc = series[i].type(out, series[i].name, series[i].help, series[i].value);
    return rc;
}

#define ALL(out, series) all(out, series, sizeof(series) / sizeof((series)[0]))

static int finishes(struct buf *out, const cohort_metrics *m) {
    return buf_addf(
        out,
        "# HELP cohort_requests_finished_total Requests that ended, by reason.\n"
        "# TYPE cohort_requests_finished_total counter\n"
        "cohort_requests_finished_total{reason=\"stop\"} %llu\ncohort_requests_finished_total{reason=\"length\"} %llu\n"
        "cohort_requests_finished_total{reason=\"cancelled\"} %llu\ncohort_requests_finished_total{reason=\"error\"} "
        "%llu\n",
        (unsigned long long)m->requests_finished_stop, (unsigned long long)m->requests_finished_length,
        (unsigned long long)m->requests_cancelled, (unsigned long long)m->requests_failed);
}

static int counters(struct buf *out, const cohort_metrics *m) {
    const struct series asked[] = {
        {"requests_submitted_total", counter, "Requests given to the engine.", m->requests_submitted},
        {"requests_refused_total", counter, "Requests refused because the line was full.", m->requests_refused},
    };
    const struct series done[] = {
        {"prompt_tokens_total", counter, "Prompt tokens read.", m->prompt_tokens},
        {"cached_tokens_total", counter, "Prompt tokens taken from stored state.", m->cached_tokens},
        {"generated_tokens_total", counter, "Tokens generated.", m->generated_tokens},
        {"iterations_total", counter, "Forward passes.", m->iterations},
        {"iteration_tokens_total", counter, "Tokens in all forward passes.", m->iteration_tokens},
        {"step_build_seconds_total", seconds, "Time spent planning iterations.", m->step_build_us},
        {"step_forward_seconds_total", seconds, "Time spent in forward passes.", m->step_forward_us},
        {"step_deliver_seconds_total", seconds, "Time spent delivering tokens.", m->step_deliver_us},
        {"step_gap_seconds_total", seconds, "Time the compute team waited between iterations.", m->step_gap_us},
    };
    int rc = ALL(out, asked);
    if (!rc) rc = finishes(out, m);
    if (!rc) rc = ALL(out, done);
    return rc;
}

static int happenings(struct buf *out, const cohort_metrics *m) {
    const struct series series[] = {
        {"preemptions_total", counter, "Times that a request's state was given up.", m->preemptions},
        {"redone_tokens_total", counter, "Positions read again after that.", m->redone_tokens},
        {"snapshot_boundaries_total", counter, "Snapshot boundaries that prompts reached.", m->snapshot_boundaries},
        {"tasks_run_total", counter, "Tasks run between iterations.", m->tasks_run},
        {"requests_timed_out_total", counter, "Requests that ended because their time was over.",
         m->requests_timed_out},
        {"trace_dropped_total", counter, "Trace records that found their buffer full.", m->trace_dropped},
    };
    return ALL(out, series);
}

/* The prefix store, and what of it lies on the disk. */
static int store(struct buf *out, const cohort_metrics *m) {
    const struct series series[] = {
        {"cache_lookups_total", counter, "Admissions that looked into the prefix store.", m->cache_lookups},
        {"cache_hits_total", counter, "Admissions that took something from it.", m->cache_hits},
        {"cache_blocks", gauge, "Blocks of tokens in the store.", m->cache_blocks},
        {"cache_snapshots", gauge, "Places at which windowed layers can go on.", m->cache_snapshots},
        {"cache_bytes", gauge, "Bytes of state that only the store holds.", m->cache_bytes},
        {"cache_evictions_total", counter, "Blocks that made room.", m->cache_evictions},
        {"cache_snapshot_evictions_total", counter, "Snapshots that made room.", m->cache_snapshot_evictions},
        {"cache_sessions", gauge, "Sessions known.", m->cache_sessions},
        {"disk_blocks", gauge, "Blocks in the state dir.", m->disk_blocks},
        {"disk_bytes", gauge, "Bytes in the state dir.", m->disk_bytes},
        {"disk_queued_bytes", gauge, "Bytes that wait to be written there.", m->disk_queued_bytes},
        {"disk_written_total", counter, "Blocks written.", m->disk_written},
        {"disk_restored_total", counter, "Blocks read back.", m->disk_restored},
        {"disk_evictions_total", counter, "Blocks removed from the state dir to make room.", m->disk_evictions},
        {"disk_failures_total", counter, "Blocks that could not be written or read.", m->disk_failures},
        {"disk_restores_total", counter, "Requests that went on from what was on the disk.", m->disk_restores},
        {"requests_resumed_total", counter, "Requests continued behind tokens given before.", m->requests_resumed},
    };
    return ALL(out, series);
}

/* Answers that are held to a form. */
static int grammars(struct buf *out, const cohort_metrics *m) {
    const struct series series[] = {
        {"grammar_lookups_total", counter, "Grammars asked for.", m->grammar_lookups},
        {"grammar_hits_total", counter, "Of these: found compiled.", m->grammar_hits},
        {"grammar_refused_total", counter, "Of these: refused.", m->grammar_refused},
        {"grammars_cached", gauge, "Compiled grammars that are kept.", m->grammar_cached},
        {"grammars_cached_bytes", gauge, "Bytes of them.", m->grammar_cached_bytes},
        {"grammar_masks_total", counter, "Masks made: sets of the tokens that may come.", m->grammar_masks},
        {"forced_tokens_total", counter, "Tokens filled in because no other text may come.", m->forced_tokens},
        {"grammar_mask_seconds_total", seconds, "Time spent making masks.", m->grammar_mask_us},
    };
    return ALL(out, series);
}

/* The two by the names that vLLM gives them, in its unit: tokens. */
static int store_as_vllm(const struct server *server, struct buf *out, const cohort_metrics *m) {
    cohort_engine_options engine;
    cohort_engine_get_options(server->engine, &engine);
    return buf_addf(out,
                    "# HELP vllm:prefix_cache_queries_total Prompt tokens looked up in the prefix store.\n"
                    "# TYPE vllm:prefix_cache_queries_total counter\nvllm:prefix_cache_queries_total %llu\n"
                    "# HELP vllm:prefix_cache_hits_total Prompt tokens taken from it.\n"
                    "# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total %llu\n",
                    (unsigned long long)(engine.cache ? m->prompt_tokens + m->cached_tokens : 0),
                    (unsigned long long)m->cached_tokens);
}

static int now(struct buf *out, const cohort_metrics *m) {
    const struct series series[] = {
        {"rows_running", gauge, "Requests that decode.", m->rows_running},
        {"rows_preparing", gauge, "Requests whose prompt is being read.", m->rows_preparing},
        {"rows_waiting", gauge, "Requests in the waiting line.", m->rows_waiting},
        {"kv_pages", gauge, "Pages of state in all.", m->kv_pages_total},
        {"kv_pages_used", gauge, "Pages of state in use.", m->kv_pages_used},
        {"healthy", gauge, "1 while the engine can go on.", (uint64_t)(m->healthy != 0)},
    };
    return ALL(out, series);
}

/* What the scheduler goes by when it chooses how much of a prompt an iteration reads. */
static int costs(struct buf *out, const cohort_metrics *m) {
    int rc = measure(out, "steady_step_seconds", "An iteration of the rows that decode now, without prompts.",
                     (double)m->steady_step_us * 1e-6);
    if (!rc)
        rc = measure(out, "prompt_token_seconds", "What one prompt token adds to an iteration.",
                     (double)m->prompt_token_ns * 1e-9);
    if (!rc)
        rc = measure(out, "last_step_age_seconds", "Since the engine last made a step; 0 while it has nothing to do.",
                     (double)m->last_iteration_us_ago * 1e-6);
    return rc;
}

enum { TENANT_SERIES = 6 };
static const struct tenant_series {
    const char *name, *type, *help;
} tenant_series[TENANT_SERIES] = {
    {"places", "gauge", "Requests of the tenant that wait or run."},
    {"rows", "gauge", "Requests of the tenant that run."},
    {"requests_submitted_total", "counter", "Requests given to the engine."},
    {"requests_refused_total", "counter", "Requests refused by a limit."},
    {"prompt_tokens_total", "counter", "Prompt tokens of submitted requests."},
    {"generated_tokens_total", "counter", "Tokens generated."},
};

static uint64_t tenant_value(const cohort_tenant_metrics *m, int series) {
    const uint64_t values[TENANT_SERIES] = {m->places,           m->rows,          m->requests_submitted,
                                            m->requests_refused, m->prompt_tokens, m->generated_tokens};
    return values[series];
}

static int add_series(struct buf *out, int series, const cohort_tenant_metrics *m, size_t n) {
    const struct tenant_series *s = &tenant_series[series];
    int rc =
        buf_addf(out, "# HELP cohort_tenant_%s %s\n# TYPE cohort_tenant_%s %s\n", s->name, s->help, s->name, s->type);
    for (size_t i = 0; i < n && !rc; i++)
        rc = buf_addf(out, "cohort_tenant_%s{tenant=\"%s\"} %llu\n", s->name, m[i].name,
                      (unsigned long long)tenant_value(&m[i], series));
    return rc;
}

static int tenants(struct server *server, struct buf *out) {
    size_t n;
    if (!server_tenants(server, &n)) return 0;
    cohort_tenant_metrics *m = mem_zalloc(n, sizeof *m);
    if (!m) return COHORT_E_MEMORY;
    for (size_t i = 0; i < n; i++) cohort_tenant_metrics_get(server->engine, (uint32_t)i, &m[i]);
    int rc = 0;
    for (int i = 0; i < TENANT_SERIES && !rc; i++) rc = add_series(out, i, m, n);
    mem_free(m);
    return rc;
}

/* Stored calls and their journal. */
static int stored(struct server *server, struct buf *out) {
    struct journal_counts m;
    if (!server->journal) return 0;
    journal_get_counts(server->journal, &m);
    int rc = gauge(out, "stored_calls_unfinished", "Stored calls that wait or run.", m.running);
    if (!rc) rc = gauge(out, "stored_calls_ended", "Stored calls that ended and are kept.", m.ended);
    if (!rc)
        rc = counter(out, "stored_calls_lost_total",
                     "Stored calls that a restart would make again from an earlier step.", server->stored_lost);
    if (!rc) rc = gauge(out, "stored_readers", "Connections that follow stored calls.", server->readers_n);
    if (!rc) rc = gauge(out, "journal_bytes", "Bytes of the journal that are in use.", m.bytes);
    if (!rc) rc = counter(out, "journal_commits_total", "Commits of the journal.", m.commits);
    if (!rc) rc = counter(out, "journal_failures_total", "Commits that failed.", m.failures);
    if (!rc) rc = counter(out, "journal_refused_total", "Writes refused because too much waits.", m.refused);
    if (!rc)
        rc = counter(out, "journal_lost_pages_total",
                     "Pages of the journal, written last before the start, that are lost by damage.", m.lost_frames);
    if (!rc)
        rc = counter(out, "journal_regained_calls_total",
                     "Stored calls that the journal had lost or damaged before the start, and that go on.", m.regained);
    if (!rc)
        rc = counter(out, "journal_damaged_places_total", "Places of the journal's second copy that were damaged.",
                     m.damaged_places);
    return rc;
}

int metrics_text(struct server *server, struct buf *out) {
    cohort_metrics m;
    cohort_metrics_get(server->engine, &m);
    int rc = counters(out, &m);
    if (!rc) rc = happenings(out, &m);
    if (!rc) rc = store(out, &m);
    if (!rc) rc = grammars(out, &m);
    if (!rc) rc = store_as_vllm(server, out, &m);
    if (!rc) rc = now(out, &m);
    if (!rc) rc = costs(out, &m);
    if (!rc) rc = histogram(out, "time_to_first_token_seconds", "From submit to the first token.", &m.ttft_s);
    if (!rc) rc = histogram(out, "inter_token_seconds", "Between two tokens of a request.", &m.inter_token_s);
    if (!rc) rc = histogram(out, "request_seconds", "From submit to the end.", &m.e2e_s);
    if (!rc) rc = histogram(out, "queue_seconds", "From submit to admission.", &m.queue_s);
    if (!rc) rc = stored(server, out);
    if (!rc) rc = tenants(server, out);
    return rc;
}
