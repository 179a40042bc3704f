/* The CPU device: opening it, and launching and waiting for batches. Owner thread only. */
#include <assert.h>

#include "backend/cpu/compiled.h"
#include "backend/cpu/quota.h"
#include "base/mem.h"

enum { PAGE_LAYOUT_VERSION = 1 };

static int level_open(struct kernels *k, const char *level, cohort_error *err) {
    if (!level) level = kernels_best();
    switch (kernels_init(k, level)) {
    case 0:
        return 0;
    case -2:
        return err_set(err, COHORT_E_UNSUPPORTED, "cpu", "this CPU (or its operating system) cannot run %s; best is %s",
                       level, kernels_best());
    default:
        return err_set(err, COHORT_E_ARGUMENT, "cpu", "no instruction-set level is called \"%s\"; best here is %s",
                       level, kernels_best());
    }
}

unsigned backend_cpus(void) {
    unsigned cpus = quota_cpus();
    return cpus < BACKEND_THREADS_MAX ? cpus : BACKEND_THREADS_MAX;
}

int backend_open(const struct backend_options *options, struct backend **out, cohort_error *err) {
    _Static_assert((int)BACKEND_THREADS_MAX <= (int)TEAM_THREADS_MAX, "the team holds as many threads as are promised");
    if (options->threads < 0 || options->threads > BACKEND_THREADS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "threads", "%d compute threads: 0 (automatic) to %d are possible",
                       options->threads, BACKEND_THREADS_MAX);
    struct backend *b = mem_zalloc(1, sizeof *b);
    if (!b) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the backend");
    int code = level_open(&b->kernels, options->level, err);
    if (!code) code = team_new(options->threads ? (unsigned)options->threads : backend_cpus(), &b->team, err);
    if (code) {
        mem_free(b);
        return code;
    }
    *out = b;
    return 0;
}

void backend_close(struct backend *b) {
    if (!b) return;
    team_free(b->team);
    mem_free(b);
}

const char *backend_level(const struct backend *b) { return b->kernels.level; }
int backend_threads(const struct backend *b) { return (int)team_threads(b->team); }
const struct vecops *backend_vecops(const struct backend *b) { return &b->kernels.vec; }

uint64_t backend_page_bytes(const struct program_group *group) {
    if (group->kind == GROUP_RECURRENT) return (uint64_t)group->layers * group->floats * sizeof(float);
    struct page_shape shape = page_shape_of(group);
    return (uint64_t)group->layers * group->kv_heads * page_slice_bytes(&shape);
}
uint32_t backend_page_layout_version(void) { return PAGE_LAYOUT_VERSION; }

int backend_launch(struct backend_program *p, const struct batch *batch) {
    if (p->launched - p->waited == BACKEND_IN_FLIGHT) return COHORT_E_BUSY;
    struct flight *f = &p->flights[p->launched % BACKEND_IN_FLIGHT];
    f->batch = *batch;
    f->started = 0;
    int code = team_post(p->backend->team, &f->job);
    if (!code) p->launched++;
    return code;
}

int backend_wait(struct backend_program *p, uint64_t *busy_us) {
    if (p->launched == p->waited) return COHORT_E_AGAIN;
    struct flight *f = &p->flights[p->waited++ % BACKEND_IN_FLIGHT];
    team_wait(p->backend->team, &f->job);
    if (busy_us) *busy_us = f->busy_us;
    return 0;
}

int backend_done(const struct backend_program *p) {
    return p->launched == p->waited || team_done(&p->flights[p->waited % BACKEND_IN_FLIGHT].job);
}
