/* Linear probing, with entries moved back when one goes, so that no marks of gone entries pile up (records.h). */
#include "engine/records.h"

#include <string.h>

#include "base/mem.h"

int records_init(struct records *r, uint64_t most) {
    *r = (struct records){.size = 64};
    while (r->size * 3 / 4 < most) r->size *= 2;
    size_t bytes;
    if (size_mul(r->size, sizeof(*r->list), &bytes)) return COHORT_E_MEMORY;
    r->list = mem_map(bytes);
    if (!r->list) return COHORT_E_MEMORY;
    r->bytes = bytes;
    return 0;
}

void records_deinit(struct records *r) {
    if (r->list) mem_unmap(r->list, r->bytes);
    *r = (struct records){0};
}

static uint64_t home(const struct records *r, uint64_t id) { return (id * 0x9e3779b97f4a7c15u >> 20) & (r->size - 1); }

static uint64_t place(const struct records *r, uint64_t id) {
    uint64_t i = home(r, id);
    while (r->list[i].id && r->list[i].id != id) i = (i + 1) & (r->size - 1);
    return i;
}

int records_put(struct records *r, uint64_t id, prefix_block block) {
    uint64_t i = place(r, id);
    if (!r->list[i].id && r->n >= r->size * 3 / 4) return 0;
    r->n += !r->list[i].id;
    r->list[i] = (struct record){id, block};
    return 1;
}

prefix_block records_get(const struct records *r, uint64_t id) {
    const struct record *it = &r->list[place(r, id)];
    return it->id ? it->block : 0;
}

void records_drop(struct records *r, uint64_t id) {
    uint64_t hole = place(r, id), i = hole;
    if (!r->list[hole].id) return;
    r->n--;
    for (;;) {
        i = (i + 1) & (r->size - 1);
        if (!r->list[i].id) break;
        uint64_t want = home(r, r->list[i].id);
        /* It may move into the hole unless its home lies behind the hole, on the way to where it is. */
        if (((i - want) & (r->size - 1)) < ((i - hole) & (r->size - 1))) continue;
        r->list[hole] = r->list[i];
        hole = i;
    }
    r->list[hole] = (struct record){0};
}
