/* Readings of /metrics (top_sample.h). */
#include "cli/top_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/prom.h"

static const struct {
    const char *name;
    int must;
} series[TOP_VALUES] = {
#define TOP_VALUE_SERIES(name, series, must) [TOP_##name] = {series, must},
    TOP_VALUE_LIST(TOP_VALUE_SERIES)
#undef TOP_VALUE_SERIES
};

static const struct {
    const char *name;
    size_t offset;
} tenant_series[] = {{"rows", offsetof(struct top_tenant, rows)},
                     {"places", offsetof(struct top_tenant, places)},
                     {"prompt_tokens_total", offsetof(struct top_tenant, prompt_tokens)},
                     {"generated_tokens_total", offsetof(struct top_tenant, generated_tokens)},
                     {"requests_refused_total", offsetof(struct top_tenant, refused)}};

/* What follows `prefix`, or NULL. */
static const char *behind(const char *name, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

/* Names come from outside and go to a terminal. */
static void copy_name(const char *from, char to[TOP_TENANT_NAME_MAX + 1]) {
    size_t n = 0;
    for (; n < TOP_TENANT_NAME_MAX && from[n]; n++) to[n] = from[n] > ' ' && from[n] <= '~' ? from[n] : '?';
    to[n] = 0;
}

static struct top_tenant *find_tenant(struct top_sample *out, const char *label) {
    char name[TOP_TENANT_NAME_MAX + 1];
    copy_name(label, name);
    for (unsigned i = 0; i < out->tenants_n; i++)
        if (strcmp(out->tenants[i].name, name) == 0) return &out->tenants[i];
    if (out->tenants_n == TOP_TENANTS_MAX) return NULL;
    struct top_tenant *tenant = &out->tenants[out->tenants_n++];
    *tenant = (struct top_tenant){0};
    memcpy(tenant->name, name, sizeof name);
    return tenant;
}

static void read_tenant(const struct prom_sample *s, const char *name, struct top_sample *out) {
    const char *label = prom_label(s, "tenant");
    for (size_t i = 0; label && i < sizeof tenant_series / sizeof tenant_series[0]; i++) {
        if (strcmp(name, tenant_series[i].name) != 0) continue;
        struct top_tenant *tenant = find_tenant(out, label);
        if (tenant)
            *(double *)(void *)((char *)tenant + tenant_series[i].offset) = s->value;
        else if (i == 0)
            out->tenants_left_out++;
    }
}

/* Buckets come in ascending order, the last one without a bound. */
static int read_bucket(const struct prom_sample *s, struct top_histogram *h) {
    const char *label = prom_label(s, "le");
    char *end;
    if (!label || h->n == TOP_BUCKETS_MAX) return -1;
    double bound = strtod(label, &end);
    if (end == label || *end || isnan(bound)) return -1;
    if (h->n && (bound <= h->bound[h->n - 1] || s->value < h->below[h->n - 1])) return -1;
    h->bound[h->n] = bound;
    h->below[h->n++] = s->value;
    return 0;
}

static int read_one(const struct prom_sample *s, struct top_sample *out, unsigned char seen[TOP_VALUES]) {
    const char *name = behind(s->name, "cohort_"), *rest;
    if (!name) return 0; /* another program's, in the same text */
    if (strcmp(name, "inter_token_seconds_bucket") == 0) return read_bucket(s, &out->inter_token);
    if (strcmp(name, "time_to_first_token_seconds_bucket") == 0) return read_bucket(s, &out->first_token);
    if ((rest = behind(name, "tenant_")) != NULL) {
        if (!isfinite(s->value)) return -1;
        read_tenant(s, rest, out);
        return 0;
    }
    for (int i = 0; i < TOP_VALUES; i++) {
        if (strcmp(name, series[i].name) != 0) continue;
        if (seen[i] || s->labels_n || !isfinite(s->value)) return -1;
        seen[i] = 1;
        out->value[i] = s->value;
    }
    return 0;
}

static int ends_without_bound(const struct top_histogram *h) { return h->n == 0 || isinf(h->bound[h->n - 1]); }

int top_read(const char *text, size_t len, double at_s, struct top_sample *out) {
    struct prom p = {text, text + len};
    struct prom_sample s;
    unsigned char seen[TOP_VALUES] = {0};
    int more;
    memset(out, 0, sizeof *out);
    out->at_s = at_s;
    while ((more = prom_next(&p, &s)) == 1)
        if (read_one(&s, out, seen) != 0) return -1;
    for (int i = 0; i < TOP_VALUES; i++)
        if (series[i].must && !seen[i]) return -1;
    return more == 0 && ends_without_bound(&out->inter_token) && ends_without_bound(&out->first_token) ? 0 : -1;
}

double top_rate(const struct top_sample *from, const struct top_sample *to, enum top_value value) {
    double seconds = to->at_s - from->at_s;
    return seconds > 0 ? (to->value[value] - from->value[value]) / seconds : 0;
}

static int fell(const struct top_histogram *from, const struct top_histogram *to) {
    if (from->n != to->n) return 1;
    for (unsigned i = 0; i < from->n; i++)
        if (from->bound[i] != to->bound[i] || to->below[i] < from->below[i]) return 1;
    return 0;
}

int top_restarted(const struct top_sample *from, const struct top_sample *to) {
    static const enum top_value counters[] = {TOP_PROMPT_TOKENS, TOP_GENERATED_TOKENS, TOP_ITERATIONS};
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
        if (to->value[counters[i]] < from->value[counters[i]]) return 1;
    return fell(&from->inter_token, &to->inter_token) || fell(&from->first_token, &to->first_token);
}

double top_quantile(const struct top_histogram *from, const struct top_histogram *to, double q) {
    if (to->n == 0 || from->n != to->n) return NAN;
    double total = to->below[to->n - 1] - from->below[from->n - 1], wanted = q * total;
    if (!(total > 0)) return NAN;
    double below = 0, bound = 0;
    for (unsigned i = 0; i < to->n; i++) {
        double next = to->below[i] - from->below[i];
        if (next >= wanted && next > below) {
            if (isinf(to->bound[i])) break;
            return bound + (to->bound[i] - bound) * (wanted - below) / (next - below);
        }
        below = next;
        bound = to->bound[i];
    }
    return bound;
}
