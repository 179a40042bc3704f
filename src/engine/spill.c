/* The tree and the disk tier (cache.h): blocks that are new get copies there, what has only a copy is read when a row
 * wants it, and what is worth least makes room. Engine thread; the disk's own thread does the work (state/disk.h).
 *
 * A block's copy has a record's number as its `where`. Pages are copied when they are handed over, so nothing here
 * holds pages. A block may go from the tree while it is being written: its record is then of no use, and is swept. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine/internal.h"

enum { TAG_MORE = 1 /* the queue has room again */ };
#define TENANT_UNKNOWN UINT32_MAX

/* ---- Forgetting ---- */

/* Removes the records whose blocks have left the tree. */
static int sweep(struct cohort_engine *e) {
    struct cache *c = &e->cache;
    uint64_t id;
    int n = 0;
    for (; (id = prefix_next_dropped(c->prefix)) != 0; n++) {
        disk_remove(c->disk, id);
        records_drop(&c->records, id);
    }
    return n;
}

void spill_forget_space(struct cohort_engine *e, uint64_t space) {
    prefix_remove_space(e->cache.prefix, space);
    if (e->cache.disk) sweep(e);
}

static int lies_behind(const struct cache *c, prefix_block block, prefix_block front) {
    struct prefix_view view;
    while (block && block != front && prefix_get(c->prefix, block, &view)) block = view.parent;
    return block == front;
}

static int descending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* A copy that is not what it should be is gone from the disk, with all behind it. Pages in memory are sound. */
static void forget(struct cohort_engine *e, uint64_t record) {
    struct cache *c = &e->cache;
    prefix_block front = records_get(&c->records, record);
    uint64_t *gone = front ? mem_alloc(c->records.n, sizeof(*gone)) : NULL;
    size_t n = 0;
    if (front && !gone) prefix_remove(c->prefix, front); /* no memory to be gentle */
    for (uint64_t i = 0; gone && i < c->records.size; i++) {
        const struct record *r = &c->records.list[i];
        if (r->id >= record && lies_behind(c, r->block, front)) gone[n++] = r->id;
    }
    if (n) qsort(gone, n, sizeof(*gone), descending); /* those behind have higher numbers */
    for (size_t i = 0; i < n; i++) {
        prefix_forget_where(c->prefix, records_get(&c->records, gone[i]));
        records_drop(&c->records, gone[i]);
    }
    mem_free(gone);
    sweep(e);
}

/* Saved sessions stay: they are found here one by one, as their turn to go comes, and pinned. Those that are not saved
 * any more are let go of. */
static prefix_block coldest(struct cohort_engine *e, struct prefix_view *view) {
    struct cache *c = &e->cache;
    prefix_block block;
    while ((block = prefix_coldest(c->prefix)) != 0 && prefix_get(c->prefix, block, view)) {
        if (c->pinned_n == DISK_SESSIONS_MAX || !disk_is_named(c->disk, view->where)) return block;
        prefix_pin(c->prefix, block);
        c->pinned[c->pinned_n++] = block;
    }
    return 0;
}

static int unpin_unnamed(struct cohort_engine *e) {
    struct cache *c = &e->cache;
    uint32_t kept = 0, all = c->pinned_n;
    for (uint32_t i = 0; i < all; i++) {
        struct prefix_view view;
        if (prefix_get(c->prefix, c->pinned[i], &view) && view.where && disk_is_named(c->disk, view.where))
            c->pinned[kept++] = c->pinned[i];
        else
            prefix_unpin(c->prefix, c->pinned[i]);
    }
    c->pinned_n = kept;
    return kept < all;
}

/* The copy that is worth least goes. 0: none may. */
static int make_room(struct cohort_engine *e) {
    struct cache *c = &e->cache;
    struct prefix_view view;
    prefix_block block = coldest(e, &view);
    if (!block && unpin_unnamed(e)) block = coldest(e, &view);
    if (!block) return 0;
    disk_remove(c->disk, view.where);
    records_drop(&c->records, view.where);
    prefix_forget_where(c->prefix, block);
    c->disk_evicted++;
    return 1;
}

/* ---- Opening ---- */

static void wake(void *engine) {
    struct cohort_engine *e = engine;
    pthread_mutex_lock(&e->lock);
    e->disk_news = 1;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

static int restore(void *user, const struct disk_record *r) {
    struct cohort_engine *e = user;
    struct cache *c = &e->cache;
    uint64_t space = 0, dropped;
    prefix_block parent = 0;
    if (r->parent) {
        struct prefix_view view;
        parent = records_get(&c->records, r->parent);
        if (!parent || !prefix_get(c->prefix, parent, &view)) return 0;
        space = view.space;
    } else {
        struct space_name name = {.n = r->space_n};
        if (r->space_n > sizeof(name.bytes)) return 0;
        for (size_t i = 0; i < r->space_n; i++) name.bytes[i] = r->space[i];
        space = spaces_take(c->spaces, &name, TENANT_UNKNOWN, &dropped);
        if (dropped) spill_forget_space(e, dropped);
        if (!space) return 0;
        spaces_leave(c->spaces, space);
    }
    prefix_block block = prefix_restore(c->prefix, space, parent, r->tokens, r->n, r->id, r->groups);
    if (!block) return 0;
    if (records_put(&c->records, r->id, block)) return 1;
    prefix_forget_where(c->prefix, block);
    return 0;
}

int spill_open(struct cohort_engine *e, cohort_error *err) {
    struct cache *c = &e->cache;
    struct disk_options options = {
        .dir = e->options.state_dir, .bytes_max = e->options.state_dir_bytes, .wake = wake, .user = e};
    identity_of(e, &c->identity);
    options.identity = c->identity;
    c->pinned = mem_alloc(DISK_SESSIONS_MAX, sizeof(*c->pinned));
    uint64_t most = 0, least = UINT64_MAX;
    for (uint32_t g = 0; g < c->groups; g++) {
        if (c->page_bytes[g] > most) most = c->page_bytes[g];
        if (c->page_bytes[g] && c->page_bytes[g] < least) least = c->page_bytes[g];
    }
    c->scratch = mem_alloc(most ? most : 1, 1);
    if (!c->scratch || !c->pinned || records_init(&c->records, e->options.state_dir_bytes / least + 64))
        return err_set(err, COHORT_E_MEMORY, "state-dir", "no memory for the disk tier");
    int code = disk_open(&options, &c->disk, err);
    if (code) return code;
    struct disk_counts before, after;
    disk_get_counts(c->disk, &before);
    if ((code = disk_each(c->disk, restore, e, err)) != 0) return code;
    while (!disk_has_room(c->disk, 0) && make_room(e)) /* the folder may be larger than it may be now */
        ;
    disk_get_counts(c->disk, &after);
    if (after.records < before.records)
        fprintf(stderr,
                "cohort: state-dir: %llu of %llu stored blocks do not fit the budgets of this start and are removed\n",
                (unsigned long long)(before.records - after.records), (unsigned long long)before.records);
    return 0;
}

/* ---- Writing ---- */

/* Of a block's pages, those that are still there, by group. */
static uint32_t pages_of(struct cohort_engine *e, const struct prefix_view *view, uint32_t groups, const void *page[]) {
    uint32_t there = 0;
    for (uint32_t g = 0; g < e->cache.groups; g++) {
        page[g] = NULL;
        if (!(groups >> g & 1) || view->page[g] == PAGE_NONE) continue;
        page[g] = state_page(e->state, g, view->page[g]);
        there |= 1u << g;
    }
    return there;
}

/* Hands one block over, whose parent has a copy. 0, E_AGAIN, or another code: it gets none. */
static int write_block(struct cohort_engine *e, prefix_block block, const struct prefix_view *view, uint32_t groups,
                       uint64_t parent) {
    struct cache *c = &e->cache;
    const void *page[PAGES_GROUPS_MAX];
    uint32_t there = pages_of(e, view, groups, page);
    if (there == 0 && groups != 0) return COHORT_E_NOT_FOUND; /* they went meanwhile */
    int tries = 0;
    prefix_pin(c->prefix, block); /* and with it the parent's copy */
    while (!disk_has_room(c->disk, there) && make_room(e) && ++tries < CACHE_EVICT_MOST)
        ;
    prefix_unpin(c->prefix, block);
    if (c->records.n >= c->records.size * 3 / 4) return COHORT_E_LIMIT;
    const struct space_name *space = parent ? NULL : spaces_name(c->spaces, view->space);
    if (!parent && !space) return COHORT_E_NOT_FOUND;
    const struct disk_record record = {.parent = parent,
                                       .space = space ? space->bytes : "",
                                       .space_n = space ? space->n : 0,
                                       .tokens = view->tokens,
                                       .n = view->n,
                                       .groups = there};
    uint64_t id = view->where;
    int code = disk_write(c->disk, &record, page, &id);
    if (code == COHORT_E_CLOSED) c->failed = 1;
    if (code) return code;
    records_put(&c->records, id, block);
    prefix_set_where(c->prefix, block, id, view->where_has | there);
    return 0;
}

/* The first of the blocks up to this one that has no copy, save for the block itself; its parent's record in *parent. A
 * block whose copy was lost gets another one when something behind it is to have one. */
static prefix_block first_without(struct cohort_engine *e, prefix_block block, struct prefix_view *view,
                                  uint64_t *parent) {
    struct prefix_view before;
    *parent = 0;
    if (!prefix_get(e->cache.prefix, block, view)) return 0;
    while (view->parent && prefix_get(e->cache.prefix, view->parent, &before)) {
        *parent = before.where;
        if (before.where) break;
        block = view->parent;
        *view = before;
    }
    return block;
}

int spill_writes(struct cohort_engine *e) {
    struct cache *c = &e->cache;
    int n = sweep(e);
    for (int turns = 0; turns < CACHE_WRITES_A_TURN && !c->fresh_waits && !c->failed; turns++) {
        struct prefix_view view;
        uint64_t parent;
        if (!c->fresh) c->fresh = prefix_next_fresh(c->prefix, &c->fresh_groups);
        if (!c->fresh) break;
        n++;
        prefix_block block = first_without(e, c->fresh, &view, &parent);
        uint32_t groups = block == c->fresh ? c->fresh_groups : view.full;
        int code = block ? write_block(e, block, &view, groups, parent) : COHORT_E_NOT_FOUND;
        if (code == COHORT_E_AGAIN)
            c->fresh_waits = disk_barrier(c->disk, TAG_MORE) == 0;
        else if (code || block == c->fresh)
            c->fresh = 0;
    }
    return n > 0;
}

int spill_idle(const struct cohort_engine *e) {
    return e->cache.failed || (!e->cache.fresh && !prefix_has_fresh(e->cache.prefix));
}

/* ---- Reading ---- */

/* One block's wants behind *n; `page`: where to, NULL: into the scratch. */
static void want_block(struct cohort_engine *e, prefix_block block, uint32_t groups, const uint32_t *page,
                       struct disk_want *wants, size_t *n) {
    struct prefix_view view;
    if (!prefix_get(e->cache.prefix, block, &view)) return;
    for (uint32_t g = 0; g < e->cache.groups; g++)
        if (groups >> g & 1)
            wants[(*n)++] = (struct disk_want){
                .id = view.where, .group = g, .to = page ? state_page(e->state, g, page[g]) : e->cache.scratch};
}

void spill_load(struct cohort_engine *e, const struct sched_load *load) {
    struct disk_want *wants = mem_alloc((size_t)load->n * e->cache.groups, sizeof(*wants));
    size_t n = 0;
    int code = wants ? 0 : COHORT_E_MEMORY;
    for (uint32_t i = 0; i < load->n && !code; i++)
        want_block(e, load->blocks[i].block, load->blocks[i].groups, load->blocks[i].page, wants, &n);
    if (!code) code = disk_read(e->cache.disk, wants, n, load->row);
    mem_free(wants);
    if (!code) return;
    sched_loaded(e->sched, load->row, 0); /* it reads its tokens instead */
}

int spill_holds(const struct cohort_engine *e, prefix_block block, uint64_t *bytes) {
    struct prefix_view view;
    *bytes = 0;
    for (; block; block = view.parent) {
        if (!prefix_get(e->cache.prefix, block, &view) || !view.where) return 0;
        if (view.fresh || block == e->cache.fresh) return 0; /* more of it is on its way */
        for (uint32_t g = 0; g < e->cache.groups; g++)
            if (view.where_has >> g & 1) *bytes += e->cache.page_bytes[g];
    }
    return 1;
}

int spill_check(struct cohort_engine *e, prefix_block block, uint64_t tag) {
    struct prefix_view view;
    if (!prefix_get(e->cache.prefix, block, &view)) return COHORT_E_NOT_FOUND;
    struct disk_want *wants = mem_alloc(((size_t)view.index + 1) * e->cache.groups, sizeof(*wants));
    size_t n = 0;
    if (!wants) return COHORT_E_MEMORY;
    for (prefix_block at = block; at && prefix_get(e->cache.prefix, at, &view); at = view.parent)
        want_block(e, at, view.where_has, NULL, wants, &n);
    int code = disk_read(e->cache.disk, wants, n, tag);
    mem_free(wants);
    return code;
}

/* ---- Results ---- */

static void take_read(struct cohort_engine *e, const struct disk_result *r) {
    if (r->code) forget(e, r->record);
    if (r->tag >> 32 == 0) { /* rows' names begin above */
        sessions_read(e, r->tag, r->code);
        return;
    }
    e->cache.restores += r->code == 0;
    sched_loaded(e->sched, r->tag, r->code == 0);
}

int spill_results(struct cohort_engine *e) {
    struct disk_result r;
    int n = 0;
    while (disk_poll(e->cache.disk, &r)) {
        n++;
        switch (r.kind) {
        case DISK_READ:
            take_read(e, &r);
            break;
        case DISK_WRITE:
            forget(e, r.record);
            break;
        case DISK_BARRIER:
            if (r.tag == TAG_MORE)
                e->cache.fresh_waits = 0;
            else
                sessions_read(e, r.tag, r.code);
            break;
        }
    }
    return n > 0;
}
