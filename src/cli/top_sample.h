/* What `cohort top` knows of a server: one reading of its /metrics, and what two of them say. Pure. */
#ifndef CLI_TOP_SAMPLE_H
#define CLI_TOP_SAMPLE_H

#include <stddef.h>

enum { TOP_BUCKETS_MAX = 32, TOP_TENANTS_MAX = 64, TOP_TENANT_NAME_MAX = 63 };

/* name of the value here, of the series without "cohort_", and whether a server must have it to be one of ours */
#define TOP_VALUE_LIST(X)                                                                                              \
    X(RUNNING, "rows_running", 1)                                                                                      \
    X(PREPARING, "rows_preparing", 1)                                                                                  \
    X(WAITING, "rows_waiting", 1)                                                                                      \
    X(PROMPT_TOKENS, "prompt_tokens_total", 1)                                                                         \
    X(GENERATED_TOKENS, "generated_tokens_total", 1)                                                                   \
    X(ITERATIONS, "iterations_total", 1)                                                                               \
    X(BUILD_S, "step_build_seconds_total", 0)                                                                          \
    X(FORWARD_S, "step_forward_seconds_total", 0)                                                                      \
    X(DELIVER_S, "step_deliver_seconds_total", 0)                                                                      \
    X(GAP_S, "step_gap_seconds_total", 0)                                                                              \
    X(PAGES, "kv_pages", 1)                                                                                            \
    X(PAGES_USED, "kv_pages_used", 1)                                                                                  \
    X(HEALTHY, "healthy", 1)                                                                                           \
    X(STEP_AGE_S, "last_step_age_seconds", 0)                                                                          \
    X(PREEMPTIONS, "preemptions_total", 0)                                                                             \
    X(REDONE, "redone_tokens_total", 0)                                                                                \
    X(CACHED_TOKENS, "cached_tokens_total", 0)                                                                         \
    X(STORE_BLOCKS, "cache_blocks", 0)                                                                                 \
    X(STORE_BYTES, "cache_bytes", 0)                                                                                   \
    X(STORE_SESSIONS, "cache_sessions", 0)                                                                             \
    X(DISK_BYTES, "disk_bytes", 0)                                                                                     \
    X(REFUSED, "requests_refused_total", 0)                                                                            \
    X(TIMED_OUT, "requests_timed_out_total", 0)

enum top_value {
#define TOP_VALUE_ENUM(name, series, must) TOP_##name,
    TOP_VALUE_LIST(TOP_VALUE_ENUM)
#undef TOP_VALUE_ENUM
        TOP_VALUES
};

struct top_histogram {
    unsigned n;
    double bound[TOP_BUCKETS_MAX], below[TOP_BUCKETS_MAX]; /* cumulative; the last bound is infinite */
};

struct top_tenant {
    char name[TOP_TENANT_NAME_MAX + 1];
    double rows, places, prompt_tokens, generated_tokens, refused;
};

struct top_sample {
    double at_s; /* by the reader's clock */
    double value[TOP_VALUES];
    struct top_histogram first_token, inter_token;
    struct top_tenant tenants[TOP_TENANTS_MAX];
    unsigned tenants_n, tenants_left_out;
};

/* 0, or -1 if the text is not the metrics of a cohort server. */
int top_read(const char *text, size_t len, double at_s, struct top_sample *out);
/* Per second, of a counter; 0 if no time has passed. */
double top_rate(const struct top_sample *from, const struct top_sample *to, enum top_value value);
/* 1 if `to` cannot be of the same run as `from`: the server was started again between them. */
int top_restarted(const struct top_sample *from, const struct top_sample *to);
/* The quantile q of what came between two readings, by linear interpolation inside a bucket; NAN if nothing came. In
 * the last bucket, which has no end: where it begins. */
double top_quantile(const struct top_histogram *from, const struct top_histogram *to, double q);

#endif
