/* Running many token sequences through one engine and hearing what the model says of each position: what `score` and
 * `perplexity` share. Main thread. */
#ifndef CLI_WINDOWS_H
#define CLI_WINDOWS_H

#include <stddef.h>

#include "cohort/cohort.h"

struct window {
    const int32_t *ids;
    size_t n;
};

/* Called for each position of each window, windows in any order, positions of one ascending. logprob: of the window's
 * next id, NAN at the last. */
typedef void (*window_fn)(void *user, size_t window, uint32_t position, int32_t argmax, float logprob);

/* 0, or 1 after a printed error. */
int windows_score(cohort_engine *engine, const struct window *windows, size_t n, window_fn said, void *user);

#endif
