/* Lines of `cohort top` (top_view.h). */
#include "cli/top_view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BAR = 40, TIME_MAX = 24, SIZE_LEN = 24 };
static const double STUCK_S = 10; /* an iteration that takes longer is worth a word */

static const char *time_text(double seconds, char out[TIME_MAX]) {
    if (isnan(seconds))
        snprintf(out, TIME_MAX, "-");
    else if (seconds < 1)
        snprintf(out, TIME_MAX, "%.1f ms", seconds * 1e3);
    else
        snprintf(out, TIME_MAX, "%.2f s", seconds);
    return out;
}

static const char *size_text(double bytes, char out[SIZE_LEN]) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++) bytes /= 1024;
    snprintf(out, SIZE_LEN, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

static int add_head(const struct top_view *v, struct buf *out) {
    int rc = buf_addf(out, "cohort top   %s   ", v->url);
    if (rc) return rc;
    if (v->trouble && v->now) return buf_addf(out, "NO ANSWER for %.0f s: %s; trying again\n", v->silent_s, v->trouble);
    if (v->trouble || !v->now) return buf_addf(out, "%s\n", v->trouble ? v->trouble : "waiting for the first answer");
    if (!v->now->value[TOP_HEALTHY]) return buf_adds(out, "NOT HEALTHY: the engine has failed\n");
    if (v->now->value[TOP_STEP_AGE_S] > STUCK_S)
        return buf_addf(out, "SLOW: in one iteration for %.0f s\n", v->now->value[TOP_STEP_AGE_S]);
    return buf_adds(out, "healthy\n");
}

static int add_rows(const struct top_view *v, struct buf *out) {
    const double *now = v->now->value;
    return buf_addf(out, "\nrows          %6.0f running    %6.0f preparing  %6.0f waiting\n", now[TOP_RUNNING],
                    now[TOP_PREPARING], now[TOP_WAITING]);
}

static int add_rates(const struct top_view *v, struct buf *out) {
    if (!v->last) return buf_adds(out, "tokens/s           -\niterations/s       -\n");
    double iterations = v->now->value[TOP_ITERATIONS] - v->last->value[TOP_ITERATIONS];
    int rc = buf_addf(out, "tokens/s      %8.1f prompt   %8.1f generated\niterations/s  %8.1f",
                      top_rate(v->last, v->now, TOP_PROMPT_TOKENS), top_rate(v->last, v->now, TOP_GENERATED_TOKENS),
                      top_rate(v->last, v->now, TOP_ITERATIONS));
    static const struct {
        const char *name;
        enum top_value value;
    } parts[] = {{"build", TOP_BUILD_S}, {"forward", TOP_FORWARD_S}, {"deliver", TOP_DELIVER_S}, {"gap", TOP_GAP_S}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && iterations > 0 && !rc; i++) {
        char text[TIME_MAX];
        double each = (v->now->value[parts[i].value] - v->last->value[parts[i].value]) / iterations;
        rc = buf_addf(out, "%s%s %s", i ? ", " : " of ", parts[i].name, time_text(each, text));
    }
    return rc ? rc : buf_adds(out, "\n");
}

static int add_state(const struct top_view *v, struct buf *out) {
    double used = v->now->value[TOP_PAGES_USED], total = v->now->value[TOP_PAGES];
    double part = total > 0 && used > 0 ? (used < total ? used / total : 1) : 0;
    int filled = (int)(part * BAR + 0.5);
    char bar[BAR + 1];
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)filled);
    bar[BAR] = 0;
    return buf_addf(out, "state         [%s] %.0f %%: %.0f of %.0f pages\n", bar, part * 100, used, total);
}

/* The part of prompts' tokens that came from the prefix store: of the last interval, or of all if nothing was read. */
static double hit_rate(const struct top_view *v) {
    const double *now = v->now->value, *last = v->last ? v->last->value : NULL;
    double cached = now[TOP_CACHED_TOKENS], read = now[TOP_PROMPT_TOKENS];
    if (last && cached + read > last[TOP_CACHED_TOKENS] + last[TOP_PROMPT_TOKENS]) {
        cached -= last[TOP_CACHED_TOKENS];
        read -= last[TOP_PROMPT_TOKENS];
    }
    return cached > 0 ? 100 * fmin(cached / (cached + fmax(read, 0)), 1) : 0;
}

static int add_store(const struct top_view *v, struct buf *out) {
    const double *now = v->now->value;
    char memory[SIZE_LEN], disk[SIZE_LEN];
    return buf_addf(
        out, "store         %.0f %% of prompt tokens came from it; %.0f blocks (%s), %.0f sessions, %s on disk\n",
        hit_rate(v), now[TOP_STORE_BLOCKS], size_text(now[TOP_STORE_BYTES], memory), now[TOP_STORE_SESSIONS],
        size_text(now[TOP_DISK_BYTES], disk));
}

static int add_times(struct buf *out, const char *what, const struct top_histogram *from,
                     const struct top_histogram *to) {
    char middle[TIME_MAX], high[TIME_MAX];
    time_text(from ? top_quantile(from, to, 0.5) : NAN, middle);
    time_text(from ? top_quantile(from, to, 0.99) : NAN, high);
    return buf_addf(out, "%-20s p50 %-12s p99 %s\n", what, middle, high);
}

static int add_trouble(const struct top_view *v, struct buf *out) {
    const double *now = v->now->value;
    return buf_addf(out, "since its start      %.0f preemptions (%.0f tokens redone), %.0f refused, %.0f timed out\n",
                    now[TOP_PREEMPTIONS], now[TOP_REDONE], now[TOP_REFUSED], now[TOP_TIMED_OUT]);
}

static const struct top_tenant *same_tenant(const struct top_sample *sample, const char *name) {
    for (unsigned i = 0; sample && i < sample->tenants_n; i++)
        if (strcmp(sample->tenants[i].name, name) == 0) return &sample->tenants[i];
    return NULL;
}

static int add_tenants(const struct top_view *v, struct buf *out) {
    if (v->now->tenants_n == 0) return 0;
    int rc = buf_addf(out, "\n%-24s %6s %8s %10s %13s %9s\n", "tenant", "rows", "waiting", "prompt/s", "generated/s",
                      "refused");
    for (unsigned i = 0; i < v->now->tenants_n && !rc; i++) {
        const struct top_tenant *t = &v->now->tenants[i], *before = same_tenant(v->last, t->name);
        double seconds = before ? v->now->at_s - v->last->at_s : 0;
        rc = buf_addf(out, "%-24.24s %6.0f %8.0f %10.1f %13.1f %9.0f\n", t->name, t->rows, fmax(t->places - t->rows, 0),
                      seconds > 0 ? (t->prompt_tokens - before->prompt_tokens) / seconds : 0,
                      seconds > 0 ? (t->generated_tokens - before->generated_tokens) / seconds : 0, t->refused);
    }
    if (!rc && v->now->tenants_left_out) rc = buf_addf(out, "and %u more\n", v->now->tenants_left_out);
    return rc;
}

int top_view(const struct top_view *v, struct buf *out) {
    int rc = add_head(v, out);
    if (rc || !v->now) return rc;
    rc = add_rows(v, out);
    if (!rc) rc = add_rates(v, out);
    if (!rc) rc = add_state(v, out);
    if (!rc) rc = add_store(v, out);
    if (!rc) rc = add_times(out, "time between tokens", v->older ? &v->older->inter_token : NULL, &v->now->inter_token);
    if (!rc) rc = add_times(out, "time to first token", v->older ? &v->older->first_token : NULL, &v->now->first_token);
    if (!rc) rc = add_trouble(v, out);
    return rc ? rc : add_tenants(v, out);
}
