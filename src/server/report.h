/* The step report of `--verbose`: a line a second on stderr while anything runs. Loop thread. */
#ifndef SERVER_REPORT_H
#define SERVER_REPORT_H

#include <stdint.h>

#include "base/buf.h"
#include "cohort/cohort.h"

struct report {
    uint64_t at_us; /* of `last`; 0: none yet */
    cohort_metrics last;
};

/* Looks at the clock, and once a second at the engine. */
void report_tick(struct report *report, cohort_engine *engine);
/* The line, without a newline, for what happened between two snapshots. Leaves `out` empty if nothing did. */
int report_line(const cohort_metrics *last, const cohort_metrics *now, double seconds, struct buf *out);

#endif
