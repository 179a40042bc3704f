/* A second opinion on programs: runs one over a whole sequence in double, one value after the other, with nothing of
 * the backend's but its reading of quantised rows. It keeps keys and values unrounded, so that it is compared with the
 * stored answers at float32's tolerance, where the backend's half-precision state would hide a small mistake. */
#ifndef VECTORS_INTERPRET_H
#define VECTORS_INTERPRET_H

#include <stddef.h>

#include "backend/program.h"

/* Called when a register was written: the rows (n of them, `stride` apart) behind operation `op`. */
typedef void (*interpret_hook)(void *user, uint32_t op, const double *rows, size_t stride);

enum interpret_mode { INTERPRET_EXACT, INTERPRET_ROUNDED };

/* The logits of all n positions into logits[n][vocab]. `hook` may be NULL. */
void interpret(const struct program *p, enum interpret_mode mode, const int32_t *ids, uint32_t n, double *logits,
               interpret_hook hook, void *user);

#endif
