/* The row-wise operations: what a ROWS phase does with one row. */
#ifndef BACKEND_CPU_STEPS_H
#define BACKEND_CPU_STEPS_H

#include "backend/cpu/compiled.h"

/* Runs the phase's steps on rows [first, end) of its domain. Any thread of the team; rows are independent. */
void steps_run(const struct backend_program *p, const struct phase *phase, uint32_t first, uint32_t end);

static inline float *reg_row(const struct backend_program *p, int reg, uint32_t row) {
    return p->regs[reg].base + row * p->regs[reg].stride;
}

/* Bytes from one prepared row of `cols` columns to the next. */
static inline size_t act_stride(const struct backend_program *p, enum pack_kind kind, uint32_t cols) {
    return (p->backend->kernels.act_bytes(kind, cols) + 63) / 64 * 64;
}

/* The group that holds a layer's state at a position. */
static inline uint32_t group_at(const struct backend_program *p, uint32_t layer, uint32_t pos) {
    const struct program_layer *l = &p->layers[layer];
    return l->late >= 0 && pos >= p->groups[l->group].end ? (uint32_t)l->late : l->group;
}

/* The slice of a layer and kv head in page 0 of a group's arena. */
static inline char *slice_base(const struct backend_program *p, uint32_t group, uint32_t layer, uint32_t kv_head) {
    const struct program_group *g = &p->groups[group];
    struct page_shape shape = page_shape_of(g);
    size_t slice = (size_t)p->layers[layer].slot * g->kv_heads + kv_head;
    return (char *)p->run.batch.arena[group] + slice * page_slice_bytes(&shape);
}

#endif
