/* Monotonic time, for measuring and for time limits. The scheduler never sees it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

uint64_t clock_us(void);
/* The time `ms` from now, for pthread_cond_timedwait on a condition of CLOCK_MONOTONIC. */
struct timespec clock_deadline(uint32_t ms);

#endif
