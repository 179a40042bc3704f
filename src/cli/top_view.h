/* The picture of `cohort top`: lines of ASCII. Pure. */
#ifndef CLI_TOP_VIEW_H
#define CLI_TOP_VIEW_H

#include "base/buf.h"
#include "cli/top_sample.h"

struct top_view {
    const char *url;
    const char *trouble;            /* why the last try to read failed; NULL: it did not */
    double silent_s;                /* since `now` was read */
    const struct top_sample *now;   /* NULL: never read */
    const struct top_sample *last;  /* the reading before, for rates; NULL: none */
    const struct top_sample *older; /* for quantiles, which need more than a second; NULL: none */
};

int top_view(const struct top_view *view, struct buf *out);

#endif
