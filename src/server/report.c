/* The line of `--verbose` (report.h). */
#include "server/report.h"

#include <stdio.h>

#include "base/clock.h"

enum { INTERVAL_US = 950 * 1000 /* the tick comes once a second, and more often when the server shuts down */ };

int report_line(const cohort_metrics *last, const cohort_metrics *now, double seconds, struct buf *out) {
    uint64_t iterations = now->iterations - last->iterations;
    if (iterations == 0 && now->rows_running + now->rows_preparing + now->rows_waiting == 0) return 0;
    double each_ms = iterations ? 1e-3 / (double)iterations : 0;
    int rc = buf_addf(out, "rows %u running, %u preparing, %u waiting; tokens/s %.1f prompt, %.1f generated; ",
                      now->rows_running, now->rows_preparing, now->rows_waiting,
                      (double)(now->prompt_tokens - last->prompt_tokens) / seconds,
                      (double)(now->generated_tokens - last->generated_tokens) / seconds);
    if (!rc)
        rc = buf_addf(out, "%.1f iterations/s of build %.3f, forward %.3f, deliver %.3f, gap %.3f ms; ",
                      (double)iterations / seconds, (double)(now->step_build_us - last->step_build_us) * each_ms,
                      (double)(now->step_forward_us - last->step_forward_us) * each_ms,
                      (double)(now->step_deliver_us - last->step_deliver_us) * each_ms,
                      (double)(now->step_gap_us - last->step_gap_us) * each_ms);
    uint64_t cached = now->cached_tokens - last->cached_tokens, read = now->prompt_tokens - last->prompt_tokens;
    if (!rc && cached)
        rc = buf_addf(out, "%.0f %% of prompt tokens from the store; ", 100 * (double)cached / (double)(cached + read));
    if (!rc)
        rc = buf_addf(out, "state pages %llu of %llu; preemptions %llu", (unsigned long long)now->kv_pages_used,
                      (unsigned long long)now->kv_pages_total,
                      (unsigned long long)(now->preemptions - last->preemptions));
    return rc;
}

void report_tick(struct report *report, cohort_engine *engine) {
    uint64_t now_us = clock_us(), since = now_us - report->at_us;
    if (report->at_us && since < INTERVAL_US) return;
    cohort_metrics now;
    struct buf line = {0};
    cohort_metrics_get(engine, &now);
    if (report->at_us && report_line(&report->last, &now, (double)since * 1e-6, &line) == 0 && line.len)
        fprintf(stderr, "cohort: %s\n", line.data);
    buf_free(&line);
    report->at_us = now_us;
    report->last = now;
}
