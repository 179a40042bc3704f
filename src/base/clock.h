/* Monotonic time, for measuring and for time limits. The scheduler never sees it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_us(void);

#endif
