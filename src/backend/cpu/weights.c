/* Packing a program's matrices at load: the team packs tile by tile, one matrix after the other. Of a mapped file the
 * bytes ahead are asked for and those behind given back, so that memory never holds a matrix twice.
 *
 * Threads: the owner's, which waits; the team's for the tiles. A tile is a run of output groups of one matrix. */
#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/compiled.h"
#include "base/mem.h"

enum {
    AHEAD_BYTES = 8 << 20, /* of the file, asked for before they are packed: a disk's queue stays full */
    TILE_BYTES = 1 << 20,  /* of packed weights, at most (or one output group) */
    TILES_PER_THREAD = 4   /* of a small matrix, so that threads end together */
};

struct packing {
    struct team_job job;
    struct backend_program *p;
    size_t page;                      /* of the system's */
    uint32_t tensor, groups_per_tile; /* being packed */
    int started;
    _Atomic uint64_t bytes_done;
};

/* ---- The file's pages ---- */

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Tells the system about bytes [begin, end) of a tensor, on all pages that they touch: what is lost is read again. */
static void advise(const struct packing *k, uint32_t tensor, uint64_t begin, uint64_t end, int advice) {
    const struct program_tensor *t = &k->p->tensors[tensor];
    begin = min_u64(begin, t->bytes);
    end = min_u64(end, t->bytes);
    if (!t->mapped || begin >= end) return;
    uintptr_t first = ((uintptr_t)t->data + begin) & ~(uintptr_t)(k->page - 1);
    madvise((void *)first, (uintptr_t)t->data + end - first, advice); /* a wish */
}

/* ---- The job ---- */

/* The next matrix to be packed, from `tensor` on; n_tensors if there is none. */
static uint32_t matrix_from(const struct backend_program *p, uint32_t tensor) {
    while (tensor < p->n_tensors && !p->weights[tensor].packed.data) tensor++;
    return tensor;
}

static uint32_t packing_advance(void *user, unsigned thread) {
    struct packing *k = user;
    const struct backend_program *p = k->p;
    if (k->started) advise(k, k->tensor, 0, UINT64_MAX, MADV_DONTNEED); /* what faults brought back at tiles' edges */
    k->tensor = matrix_from(p, k->started ? k->tensor + 1 : 0);
    k->started = 1;
    if (k->tensor == p->n_tensors) return 0;
    uint32_t next = matrix_from(p, k->tensor + 1);
    if (next < p->n_tensors) advise(k, next, 0, AHEAD_BYTES, MADV_WILLNEED);
    const struct packed *w = &p->weights[k->tensor].packed;
    uint64_t groups = 1 + w->groups / (team_threads(p->backend->team) * TILES_PER_THREAD);
    groups = min_u64(groups, 1 + TILE_BYTES / w->group_bytes);
    if (groups < 1 + w->groups / TEAM_TILES_MAX) groups = 1 + w->groups / TEAM_TILES_MAX;
    k->groups_per_tile = (uint32_t)groups;
    return (w->groups - 1) / k->groups_per_tile + 1;
}

static void packing_tile(void *user, uint32_t tile, unsigned thread) {
    struct packing *k = user;
    const struct packed *w = &k->p->weights[k->tensor].packed;
    uint64_t group_rows = pack_row_bytes(w) * PACK_OUTPUTS;
    uint32_t first = tile * k->groups_per_tile, n = k->groups_per_tile;
    if (n > w->groups - first) n = w->groups - first;
    uint64_t begin = first * group_rows, end = begin + n * group_rows;
    advise(k, k->tensor, begin + AHEAD_BYTES, end + AHEAD_BYTES, MADV_WILLNEED);
    for (uint32_t g = first; g < first + n; g++) pack_group(w, k->p->tensors[k->tensor].data, g);
    advise(k, k->tensor, begin, end, MADV_DONTNEED);
    atomic_fetch_add_explicit(&k->bytes_done, n * w->group_bytes, memory_order_relaxed);
}

/* ---- Memory ---- */

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t weights_bytes(const struct packed *w) { return round_up(w->groups * w->group_bytes, WEIGHTS_ALIGNMENT); }

int weights_pack(struct backend_program *p, void (*progress)(void *user, double fraction), void *user,
                 cohort_error *err) {
    if (!p->packed_bytes) return 0;
    p->packed_data = mem_map_large(p->packed_bytes);
    if (!p->packed_data)
        return err_set(err, COHORT_E_MEMORY, "model", "no memory for packed weights (%zu bytes)", p->packed_bytes);
    size_t offset = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        struct packed *w = &p->weights[i].packed;
        if (!w->groups) continue;
        w->data = p->packed_data + offset;
        offset += weights_bytes(w);
    }
    assert(offset == p->packed_bytes);

    struct packing packing = {.job = {.advance = packing_advance, .tile = packing_tile, .user = &packing},
                              .p = p,
                              .page = (size_t)sysconf(_SC_PAGESIZE)};
    int code = team_post(p->backend->team, &packing.job);
    if (code) return err_set(err, code, "model", "the compute team is busy");
    while (!team_wait_ms(p->backend->team, &packing.job, 100))
        if (progress) progress(user, (double)atomic_load(&packing.bytes_done) / (double)p->packed_bytes);
    if (progress) progress(user, 1.0);
    return 0;
}
