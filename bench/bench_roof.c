/* The machine's roofs alone: how fast all threads read buffers of given sizes, and how fast they multiply.
 *
 *     bench_roof [--level L] [--threads N] [--json] [BYTES ...]        (default: 1 GiB) */
#include <stdio.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "measure.h"

enum { SIZES_MAX = 16 };

static void read_size(const struct measure *m, size_t bytes) {
    char shape[32];
    snprintf(shape, sizeof shape, "%zu bytes", bytes);
    double gbs = roof_read_fresh(m, bytes);
    measure_print(m,
                  &(struct measure_result){
                      .kernel = "read", .shape = shape, .bytes = (double)bytes, .seconds = (double)bytes / gbs * 1e-9});
}

int main(int argc, char **argv) {
    struct measure m = {.program = "roof", .level = kernels_best(), .threads = (int)backend_cpus()};
    size_t sizes[SIZES_MAX] = {(size_t)1 << 30}, n = 0;
    for (int i = 1, used; i < argc; i += used) {
        if (measure_option(&m, argc, argv, i, &used)) continue;
        used = 1;
        sizes[n] = strtoull(argv[i], NULL, 10);
        if (sizes[n] < 4096 || ++n == SIZES_MAX) return fprintf(stderr, "bench_roof: bad argument %s\n", argv[i]), 2;
    }
    measure_machine(&m);
    for (size_t i = 0; i < (n ? n : 1); i++) read_size(&m, sizes[i]);
    return 0;
}
