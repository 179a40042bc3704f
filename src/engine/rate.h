/* Two measures of time for admission, as plain values without a clock: every call says what time it is (monotonic
 * microseconds; a time before the last one counts as the last one). The owner locks. */
#ifndef ENGINE_RATE_H
#define ENGINE_RATE_H

#include <stdint.h>

/* A token bucket that may go into debt: it holds a minute's worth at most, fills all the time, and whoever asks is let
 * in while it is above zero. So a prompt larger than a minute's worth runs, and is paid for afterwards. */
enum { RATE_UNITS = 60000000 /* of a token: what one token per minute brings in a microsecond */ };
struct rate_bucket {
    uint64_t per_minute; /* tokens; 0: no limit; at most COHORT_TOKENS_PER_MINUTE_MAX, so that a full bucket fits */
    int64_t level;       /* in units */
    uint64_t at_us;      /* when `level` was true */
};

void rate_bucket_init(struct rate_bucket *b, uint64_t per_minute, uint64_t now_us); /* full */
void rate_bucket_take(struct rate_bucket *b, uint64_t tokens, uint64_t now_us);
/* Until it is above zero, to the microsecond; 0: it is. */
uint64_t rate_bucket_wait_us(struct rate_bucket *b, uint64_t now_us);
/* Tokens in it, rounded down; negative: debt. */
int64_t rate_bucket_tokens(struct rate_bucket *b, uint64_t now_us);

/* How fast requests end: the last RATE_ENDS ends over the time they took. Time without any request does not count, and
 * time since the last end does, so a stall shows while it lasts. */
enum { RATE_ENDS = 16 };
struct rate_drain {
    uint64_t end_us[RATE_ENDS]; /* ring, in busy time */
    uint32_t n, next;
    uint64_t window_us;         /* where the ring's time begins, in busy time */
    uint64_t busy_us, since_us; /* busy time up to `since`, which is now if idle */
    int busy;
};

void rate_drain_busy(struct rate_drain *d, uint64_t now_us); /* there are requests that will end */
void rate_drain_idle(struct rate_drain *d, uint64_t now_us);
void rate_drain_end(struct rate_drain *d, uint64_t now_us); /* one ended, while busy */
/* Busy time per end. While none has ended yet: the time waited so far, as likely again as not. */
uint64_t rate_drain_interval_us(const struct rate_drain *d, uint64_t now_us);

#endif
