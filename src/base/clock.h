/* Monotonic time. Only the engine, server and bench read it; the scheduler is handed times. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_us(void);

#endif
