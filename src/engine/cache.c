/* Opening the store, rows that come and go, and the bytes that a plan wants moved (cache.h). */
#include "engine/cache.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/internal.h"

_Static_assert(COHORT_CACHE_SALT_MAX + COHORT_TENANT_NAME_MAX + 64 <= SPACE_NAME_MAX, "every name fits");
_Static_assert((int)SPACE_NAME_MAX <= (int)DISK_SPACE_MAX, "and can be stored");
_Static_assert((int)SPACES_MAX <= (int)PREFIX_SPACES_MAX, "the tree has room for all of them");

/* Blocks that memory and the folder can hold: every block has a page in each full group that holds its place (the later
 * ones count), or, without such groups, is on the way to one that has some. */
static uint64_t blocks_max(const struct cohort_engine *e, const struct state_plan *plan) {
    uint64_t pages = 0, full = 0, least = UINT64_MAX;
    for (uint32_t g = 0; g < plan->groups; g++) {
        if (plan->pages[g] > pages) pages = plan->pages[g];
        if (plan->page_bytes[g] < least) least = plan->page_bytes[g];
        const struct program_group *group = &model_program(e->model->built)->groups[g];
        if (group->kind == GROUP_ATTENTION && group->window == 0 && group->end == 0) full += plan->page_bytes[g];
    }
    uint64_t of_a_block = full ? full : least;
    uint64_t cold = e->options.state_dir && of_a_block ? e->options.state_dir_bytes / of_a_block : 0;
    uint64_t most = 2 * pages + cold + 64;
    return most < PREFIX_BLOCKS_MAX ? most : PREFIX_BLOCKS_MAX;
}

int cache_open(struct cohort_engine *e, const struct state_plan *plan, cohort_error *err) {
    struct cache *c = &e->cache;
    const struct program *program = model_program(e->model->built);
    struct prefix_config config = {.pages = e->pages, .groups = plan->groups, .seed = rng_entropy()};
    c->groups = plan->groups;
    for (uint32_t g = 0; g < plan->groups; g++) {
        config.group[g] = state_shape(&program->groups[g]);
        c->page_bytes[g] = plan->page_bytes[g];
    }
    config.blocks_max = e->options.cache ? (uint32_t)blocks_max(e, plan) : 0;
    int code = prefix_new(&config, &c->prefix, err);
    if (code) return code;
    c->spaces = spaces_new();
    c->sessions = mem_zalloc(CACHE_SESSIONS_MAX, sizeof(*c->sessions));
    if (!c->spaces || !c->sessions) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the prefix store");
    return e->options.state_dir && e->options.cache ? spill_open(e, err) : 0;
}

void cache_close(struct cohort_engine *e) {
    struct cache *c = &e->cache;
    disk_close(c->disk);
    records_deinit(&c->records);
    mem_free(c->scratch);
    mem_free(c->pinned);
    mem_free(c->sessions);
    spaces_free(c->spaces);
    prefix_free(c->prefix);
}

/* ---- Rows ---- */

void cache_enter(struct cohort_engine *e, struct row *row) {
    const struct row_request *r = &row->request;
    row->space = 0;
    if (!e->options.cache || !r->cache) return;
    struct space_name name = {.n = 0};
    uint64_t dropped;
    space_name_make(&name, tenants_owner(e->tenants, r->tenant), r->salt, r->salt_n);
    row->space = spaces_take(e->cache.spaces, &name, r->tenant, &dropped);
    if (dropped) spill_forget_space(e, dropped);
}

void cache_leave(struct cohort_engine *e, struct row *row, prefix_block stored) {
    const struct row_request *r = &row->request;
    if (row->space == 0) return;
    spaces_leave(e->cache.spaces, row->space);
    if (!r->session_n || !stored) return;
    struct space_name name = {.n = 0};
    struct prefix_view view;
    if (!prefix_get(e->cache.prefix, stored, &view)) return;
    /* The last whole block: a shorter one makes way for whoever goes on from it, under another name. And no further
     * than this row went: what it left may be the beginning of a block that is there already. */
    uint32_t end = view.index * PAGE_TOKENS + view.n;
    if (view.parent && (view.n < PAGE_TOKENS || end > row->tokens_n)) {
        stored = view.parent;
        if (!prefix_get(e->cache.prefix, stored, &view)) return;
    }
    space_name_make(&name, tenants_owner(e->tenants, r->tenant), r->session, r->session_n);
    sessions_put(&e->cache, &name, r->tenant, stored, view.index * PAGE_TOKENS + view.n);
}

void cache_count(struct cohort_engine *e, uint32_t cached) {
    e->cache.lookups++;
    e->cache.hits += cached > 0;
}

/* ---- What a plan wants moved ---- */

int cache_moves(struct cohort_engine *e) {
    struct sched_copy copy;
    struct sched_load load;
    int n = 0;
    for (; sched_pop_copy(e->sched, &copy); n++) state_copy(e->state, copy.group, copy.from, copy.to);
    for (; sched_pop_load(e->sched, &load); n++) spill_load(e, &load);
    return n > 0;
}

int cache_turn(struct cohort_engine *e) {
    int worked = e->cache.disk ? spill_results(e) : 0;
    return sessions_turn(e) || worked;
}

int cache_writes(struct cohort_engine *e) { return e->cache.disk ? spill_writes(e) : 0; }

void cache_end(struct cohort_engine *e, int flush) {
    sessions_end(e);
    if (!e->cache.disk || !flush) return;
    uint64_t until = clock_us() + CACHE_FLUSH_MS * 1000;
    while ((spill_writes(e) || !spill_idle(e)) && clock_us() < until) {
        if (!spill_results(e)) usleep(500);
    }
}

/* ---- Sight ---- */

void cache_look(const struct cohort_engine *e, struct cache_sight *out) {
    *out = (struct cache_sight){.disk = {0}};
    prefix_get_counts(e->cache.prefix, &out->store);
    if (e->cache.disk) disk_get_counts(e->cache.disk, &out->disk);
}

void cache_metrics(const struct cohort_engine *e, const struct cache_sight *sight, cohort_metrics *m) {
    const struct cache *c = &e->cache;
    m->cache_lookups = c->lookups;
    m->cache_hits = c->hits;
    m->cache_blocks = sight->store.resident;
    m->cache_snapshots = sight->store.snapshots;
    m->cache_bytes = 0;
    for (uint32_t g = 0; g < c->groups; g++) m->cache_bytes += sight->store.idle[g] * c->page_bytes[g];
    m->cache_evictions = sight->store.evicted;
    m->cache_snapshot_evictions = sight->store.evicted_snapshots;
    m->cache_sessions = c->sessions_n;
    m->disk_blocks = sight->disk.records;
    m->disk_bytes = sight->disk.bytes;
    m->disk_queued_bytes = sight->disk.queued_bytes;
    m->disk_written = sight->disk.written;
    m->disk_restored = sight->disk.read;
    m->disk_evictions = c->disk_evicted;
    m->disk_failures = sight->disk.failed_writes + sight->disk.failed_reads;
    m->disk_restores = c->restores;
}
