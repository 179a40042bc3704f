/* Everything but matrix products at level avx512: AVX-512 F, DQ, BW and VL. The kernels are those of vector_lanes.h,
 * attend_lanes.h and recur_lanes.h over this level's lanes. Reentrant. */
#include "backend/cpu/lanes_avx512.h"

#include "backend/cpu/vector_lanes.h"

#include "backend/cpu/attend_lanes.h"

#include "backend/cpu/recur_lanes.h"

void kernels_vector_avx512(struct kernels *k) {
    vector_fill(k);
    recur_fill(k);
}
