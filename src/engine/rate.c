/* Token bucket and drain rate (rate.h). Integers only, so that results are exact. */
#include "engine/rate.h"

#include <assert.h>

#include "cohort/cohort.h"

_Static_assert((uint64_t)COHORT_TOKENS_PER_MINUTE_MAX <= (uint64_t)INT64_MAX / 2 / RATE_UNITS, "a full bucket fits");

static int64_t capacity(const struct rate_bucket *b) { return (int64_t)b->per_minute * RATE_UNITS; }

static void fill(struct rate_bucket *b, uint64_t now_us) {
    if (now_us <= b->at_us) return;
    int64_t more, level;
    /* Debt is at least INT64_MIN / 2, so what overflows here is more than enough. */
    if (__builtin_mul_overflow(now_us - b->at_us, b->per_minute, &more) ||
        __builtin_add_overflow(b->level, more, &level) || level > capacity(b))
        level = capacity(b);
    b->level = level;
    b->at_us = now_us;
}

void rate_bucket_init(struct rate_bucket *b, uint64_t per_minute, uint64_t now_us) {
    assert(per_minute <= COHORT_TOKENS_PER_MINUTE_MAX);
    *b = (struct rate_bucket){.per_minute = per_minute, .at_us = now_us};
    b->level = capacity(b);
}

void rate_bucket_take(struct rate_bucket *b, uint64_t tokens, uint64_t now_us) {
    int64_t cost, level;
    if (!b->per_minute) return;
    fill(b, now_us);
    if (__builtin_mul_overflow(tokens, RATE_UNITS, &cost) || __builtin_sub_overflow(b->level, cost, &level) ||
        level < INT64_MIN / 2)
        level = INT64_MIN / 2;
    b->level = level;
}

uint64_t rate_bucket_wait_us(struct rate_bucket *b, uint64_t now_us) {
    if (!b->per_minute) return 0;
    fill(b, now_us);
    return b->level > 0 ? 0 : (uint64_t)-b->level / b->per_minute + 1;
}

int64_t rate_bucket_tokens(struct rate_bucket *b, uint64_t now_us) {
    fill(b, now_us);
    int64_t tokens = b->level / RATE_UNITS;
    return tokens * RATE_UNITS > b->level ? tokens - 1 : tokens;
}

static uint64_t busy_time(const struct rate_drain *d, uint64_t now_us) {
    return d->busy && now_us > d->since_us ? d->busy_us + (now_us - d->since_us) : d->busy_us;
}

void rate_drain_busy(struct rate_drain *d, uint64_t now_us) {
    assert(!d->busy);
    d->busy = 1;
    d->since_us = now_us;
}

void rate_drain_idle(struct rate_drain *d, uint64_t now_us) {
    assert(d->busy);
    d->busy_us = busy_time(d, now_us);
    d->busy = 0;
}

void rate_drain_end(struct rate_drain *d, uint64_t now_us) {
    assert(d->busy);
    if (d->n == RATE_ENDS)
        d->window_us = d->end_us[d->next];
    else
        d->n++;
    d->end_us[d->next] = busy_time(d, now_us);
    d->next = (d->next + 1) % RATE_ENDS;
}

uint64_t rate_drain_interval_us(const struct rate_drain *d, uint64_t now_us) {
    uint64_t spent = busy_time(d, now_us);
    /* A time from another thread's clock call may lie a little before the last end. */
    uint64_t window = spent > d->window_us ? spent - d->window_us : 0;
    return window / (d->n ? d->n : 1);
}
