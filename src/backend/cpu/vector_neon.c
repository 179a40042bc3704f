/* Everything but matrix products at level neon. The kernels are those of vector_lanes.h, attend_lanes.h and
 * recur_lanes.h over this level's lanes. Reentrant. */
#include "backend/cpu/lanes_neon.h"

#include "backend/cpu/vector_lanes.h"

#include "backend/cpu/attend_lanes.h"

#include "backend/cpu/recur_lanes.h"

void kernels_vector_neon(struct kernels *k) {
    vector_fill(k);
    recur_fill(k);
}
