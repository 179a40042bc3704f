/* Weights on their way from the file into memory: rows read back from packed matrices, and a mapping that is empty once
 * its matrices are packed, and never much fuller than what is being packed. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "backend/cpu/pack.h"
#include "base/rng.h"

static void fill(void *at, size_t n, uint64_t stream) {
    for (size_t i = 0; i < n; i += 8) {
        uint64_t v = rng_u64(7, stream, i);
        memcpy((char *)at + i, &v, n - i < 8 ? n - i : 8);
    }
}

static void rows_come_back(void **state) {
    enum { ROWS = 37, COLS = 768 }; /* two groups and five rows of a third */
    float want[COLS], got[COLS];
    for (int type = 0; type < DTYPE_END; type++) {
        struct packed p;
        if (!dequant_supported((enum dtype)type)) continue;
        assert_int_equal(pack_plan(&p, (enum dtype)type, ROWS, COLS), 0);
        assert_int_equal(pack_row_bytes(&p) % dtype_info(type)->block_bytes, 0);
        size_t bytes = pack_row_bytes(&p) * ROWS, packed = p.groups * p.group_bytes;
        char *file = malloc(bytes);
        p.data = aligned_alloc(64, packed);
        fill(file, bytes, (uint64_t)type);
        memset(p.data, 0xa5, packed); /* whatever was there */
        for (uint32_t g = 0; g < p.groups; g++) pack_group(&p, file, g);
        for (uint32_t row = 0; row < ROWS; row++) {
            dequant_row((enum dtype)type, file, row, COLS, want);
            pack_read_row(&p, row, got);
            assert_memory_equal(got, want, sizeof want);
        }
        free(p.data);
        free(file);
    }
}

#if defined(__linux__)
enum { VOCAB = 8192, WIDTH = 4096, BYTES = VOCAB * WIDTH / 32 * 34 };

/* Pages of a mapping that are in this process's memory. */
static size_t resident(const void *base, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (bytes + page - 1) / page, found = 0;
    uint64_t *entries = calloc(n, sizeof *entries);
    int fd = open("/proc/self/pagemap", O_RDONLY);
    if (fd < 0) skip();
    assert_int_equal(pread(fd, entries, n * 8, (off_t)((uintptr_t)base / page * 8)), n * 8);
    for (size_t i = 0; i < n; i++) found += entries[i] >> 63;
    close(fd);
    free(entries);
    return found * page;
}

struct watch {
    const void *base;
    atomic_int stop;
    size_t most;
};

static void *watch(void *arg) {
    struct watch *w = arg;
    while (!atomic_load(&w->stop)) {
        size_t now = resident(w->base, BYTES);
        if (now > w->most) w->most = now;
    }
    return NULL;
}

/* A file of one matrix, mapped; it has no name any more. */
static void *map_matrix(void) {
    char name[] = "weights.XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    unlink(name);
    char *bytes = malloc(BYTES);
    fill(bytes, BYTES, 0);
    assert_int_equal(write(fd, bytes, BYTES), BYTES);
    free(bytes);
    void *base = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(base != MAP_FAILED);
    close(fd);
    return base;
}

static void mapped_pages_are_given_back(void **state) {
    void *base = map_matrix();
    (void)resident(base, BYTES); /* skips here, not on a thread of its own, where it cannot be seen */
    struct program_tensor tensor = {
        .name = "head", .type = DTYPE_Q8_0, .rows = VOCAB, .cols = WIDTH, .data = base, .bytes = BYTES, .mapped = 1};
    struct program_reg regs[] = {{.width = WIDTH, .parent = -1}, {.width = WIDTH, .parent = -1}};
    struct op ops[] = {{.kind = OP_EMBED, .dst = 0, .a = -1, .b = -1, .c = -1, .bias = -1, .scale = 1},
                       {.kind = OP_SELECT, .dst = 1, .a = 0, .b = -1, .c = -1, .tensor = -1, .bias = -1},
                       {.kind = OP_LOGITS, .dst = -1, .a = 1, .b = -1, .c = -1, .bias = -1}};
    struct program program = {.n_tensors = 1, .n_regs = 2, .n_ops = 3, .vocab = VOCAB};
    program.tensors = &tensor;
    program.regs = regs;
    program.ops = ops;
    struct backend *backend;
    struct backend_program *compiled;
    assert_int_equal(backend_open(&(struct backend_options){"ref", 2}, &backend, NULL), 0);
    for (int mapped = 1; mapped >= 0; mapped--) {
        struct watch w = {.base = base};
        pthread_t thread;
        tensor.mapped = mapped;
        assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
        assert_int_equal(backend_compile(backend, &program, 1, 1, 1, NULL, NULL, &compiled, NULL), 0);
        size_t after = resident(base, BYTES);
        atomic_store(&w.stop, 1);
        pthread_join(thread, NULL);
        if (mapped) {
            assert_int_equal(after, 0);
            assert_true(w.most < BYTES / 2);
        } else {
            assert_true(after > BYTES / 2); /* not ours to give back: what the test looks at can be seen */
        }
        assert_true(backend_program_bytes(compiled) <= BYTES + 64);
        backend_program_free(compiled);
    }
    backend_close(backend);
    munmap(base, BYTES);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),
#if defined(__linux__)
        cmocka_unit_test(mapped_pages_are_given_back),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
