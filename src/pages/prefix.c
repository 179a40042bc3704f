/* The prefix store: the object, the pages that rows hold, finding and taking (prefix.h, prefix_internal.h). */
#include <assert.h>

#include "base/mem.h"
#include "pages/prefix_internal.h"

/* ---- The object ---- */

static int config_check(const struct prefix_config *c, cohort_error *err) {
    if (c->pages == NULL) return err_set(err, COHORT_E_ARGUMENT, "pages", "no pages");
    if (c->groups < 1 || c->groups > PAGES_GROUPS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "groups", "%u layer groups, 1 to %d are possible", c->groups,
                       PAGES_GROUPS_MAX);
    if (c->blocks_max > PREFIX_BLOCKS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "blocks_max", "%u stored blocks, at most %d are possible", c->blocks_max,
                       PREFIX_BLOCKS_MAX);
    return 0;
}

static uint32_t *indices_new(uint32_t n) {
    uint32_t *indices = mem_alloc(n, sizeof *indices);
    for (uint32_t i = 0; indices != NULL && i < n; i++) indices[i] = NO_BLOCK;
    return indices;
}

static int groups_init(struct prefix *p, const struct prefix_config *config) {
    p->groups = config->groups;
    for (uint32_t g = 0; g < p->groups; g++) {
        struct group *group = &p->group[g];
        group->shape = config->group[g];
        *(group->shape.window == 0 ? &p->full : &p->windowed) |= UINT32_C(1) << g;
        p->recurrent |= group->shape.recurrent;
        group->total = pages_total(p->pages, g);
        group->owner = indices_new(group->total);
        if (group->owner == NULL) return -1;
    }
    return 0;
}

static int heaps_init(struct prefix *p) {
    for (uint32_t h = 0; h < HEAPS; h++) {
        if (h >= p->groups && h < HEAP_END) continue;
        p->heap[h].item = mem_alloc(p->blocks_max, sizeof *p->heap[h].item);
        if (p->heap[h].item == NULL) return -1;
    }
    return 0;
}

static int spaces_init(struct prefix *p) {
    p->space = mem_zalloc(PREFIX_SPACES_MAX, sizeof *p->space);
    p->bucket = indices_new(PREFIX_SPACES_MAX);
    if (p->space == NULL || p->bucket == NULL) return -1;
    for (uint32_t i = 0; i < PREFIX_SPACES_MAX; i++) p->space[i].next = i + 1 < PREFIX_SPACES_MAX ? i + 1 : NO_BLOCK;
    p->space_oldest = p->space_newest = NO_BLOCK;
    return 0;
}

int prefix_new(const struct prefix_config *config, struct prefix **out, cohort_error *err) {
    *out = NULL;
    int e = config_check(config, err);
    if (e != 0) return e;
    struct prefix *p = mem_zalloc(1, sizeof *p);
    if (p == NULL) goto fail;
    p->pages = config->pages;
    p->seed = config->seed;
    p->blocks_max = config->blocks_max;
    p->slot_free = NO_BLOCK;
    p->dropped = p->fresh = (struct list){NO_BLOCK, NO_BLOCK};
    p->block = mem_zalloc(p->blocks_max, sizeof *p->block);
    if (p->block == NULL || groups_init(p, config) != 0 || heaps_init(p) != 0 || spaces_init(p) != 0) goto fail;
    *out = p;
    return 0;
fail:
    prefix_free(p);
    return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the names of %u stored blocks", config->blocks_max);
}

void prefix_free(struct prefix *p) {
    if (p == NULL) return;
    for (uint32_t g = 0; g < p->groups; g++) mem_free(p->group[g].owner);
    for (uint32_t h = 0; h < HEAPS; h++) mem_free(p->heap[h].item);
    mem_free(p->block);
    mem_free(p->space);
    mem_free(p->bucket);
    mem_free(p);
}

uint64_t prefix_bytes(uint32_t groups, const uint32_t totals[], int stores) {
    uint64_t blocks = 0, bytes = 0;
    for (uint32_t g = 0; g < groups; g++) {
        bytes +=
            (uint64_t)totals[g] * 3 * sizeof(uint32_t); /* the owner here; the count and the free list in pages.c */
        if (totals[g] > blocks) blocks = totals[g];
    }
    uint64_t each = sizeof(struct block) + (groups + HEAPS - HEAP_END) * sizeof(uint32_t);
    return bytes + (stores ? blocks * each : 0);
}

/* ---- Rows' pages ---- */

static uint32_t idle_pages(const struct prefix *p, uint32_t group) {
    return p->group[group].total - pages_available(p->pages, group) - p->group[group].used;
}

uint32_t prefix_alloc(struct prefix *p, uint32_t group) {
    for (;;) {
        uint32_t page = pages_alloc(p->pages, group);
        if (page != PAGE_NONE) {
            p->group[group].used++;
            return page;
        }
        if (idle_pages(p, group) == 0 || !prefix_evict_page(p, group)) return PAGE_NONE;
    }
}

void prefix_ref(struct prefix *p, uint32_t group, uint32_t page) {
    uint32_t before = prefix_rows_of(p, group, page), owner = p->group[group].owner[page];
    pages_ref(p->pages, group, page);
    if (before > 0) return;
    p->group[group].used++;
    prefix_page_busy(p, &p->block[owner], group); /* no row had it, so the tree has */
}

void prefix_unref(struct prefix *p, uint32_t group, uint32_t page) {
    assert(prefix_rows_of(p, group, page) > 0);
    pages_unref(p->pages, group, page);
    if (prefix_rows_of(p, group, page) > 0) return;
    p->group[group].used--;
    uint32_t owner = p->group[group].owner[page];
    if (owner != NO_BLOCK) prefix_page_idle(p, &p->block[owner], group);
}

uint32_t prefix_used(const struct prefix *p, uint32_t group) {
    assert(group < p->groups);
    return p->group[group].used;
}

uint32_t prefix_rows_of(const struct prefix *p, uint32_t group, uint32_t page) {
    assert(group < p->groups && page < p->group[group].total);
    return pages_count(p->pages, group, page) - (p->group[group].owner[page] != NO_BLOCK);
}

/* ---- Finding ---- */

/* One of two ways to look: with pages only, or with copies as well. */
struct look {
    uint8_t own;                    /* what the last block must have: OWN_PAGES or OWN_STATE */
    int open;                       /* every block so far has what the full groups need */
    uint32_t run[PAGES_GROUPS_MAX]; /* windowed: blocks so far, counted back from the last, that have the group */
    uint32_t tokens;
    const struct block *block;
};

static uint32_t look_has(const struct look *look, const struct block *b) {
    return b->none | (look->own == OWN_PAGES ? b->has : b->has | b->where_has);
}

/* Whether somebody can go on behind the first `same` tokens of `b`, which has every group itself. */
static int windows_reach(const struct prefix *p, const struct look *look, const struct block *b, uint32_t same) {
    for (uint32_t g = 0; g < p->groups; g++) {
        if (p->group[g].shape.window == 0) continue;
        uint32_t first = window_first(p->group[g].shape.window, b->index * PAGE_TOKENS + same);
        if (first + look->run[g] < b->index) return 0;
    }
    return 1;
}

/* Among the siblings under `root` the one to stop in: of those that have everything, the one with most in common. Its
 * farthest position needs the least of the window. `nearest` is the answer without conditions. */
static void look_stop(const struct prefix *p, struct look *look, uint32_t root, const int32_t *tokens, uint32_t n,
                      struct near_block nearest) {
    if (!(nearest.block->own & look->own)) nearest = prefix_nearest(p, root, tokens, n, look->own);
    if (nearest.block == NULL || nearest.common < (p->recurrent ? PAGE_TOKENS : 1)) return;
    if (!windows_reach(p, look, nearest.block, nearest.common)) return;
    look->tokens = nearest.block->index * PAGE_TOKENS + nearest.common;
    look->block = nearest.block;
}

static void look_pass(const struct prefix *p, struct look *look, const struct block *b) {
    uint32_t has = look_has(look, b);
    if ((has & p->full) != p->full) look->open = 0;
    for (uint32_t g = 0; g < p->groups; g++) look->run[g] = has >> g & 1U ? look->run[g] + 1 : 0;
}

void prefix_find(const struct prefix *p, uint64_t space, const int32_t *tokens, uint32_t n, struct prefix_match *out) {
    *out = (struct prefix_match){0};
    const struct space *s = prefix_space_of(p, space);
    if (s == NULL) return;
    struct look looks[2] = {{.own = OWN_PAGES, .open = 1}, {.own = OWN_STATE, .open = 1}};
    uint32_t root = s->root;
    for (uint32_t at = 0; at < n && root != NO_BLOCK; at += PAGE_TOKENS) {
        uint32_t some = prefix_min(n - at, PAGE_TOKENS);
        struct near_block nearest = prefix_nearest(p, root, tokens + at, some, OWN_ANY);
        int whole = nearest.common == PAGE_TOKENS, open = 0;
        for (int k = 0; k < 2; k++) {
            if (!looks[k].open) continue;
            look_stop(p, &looks[k], root, tokens + at, some, nearest);
            if (whole) look_pass(p, &looks[k], nearest.block);
            open |= looks[k].open;
        }
        if (!whole || !open) break;
        out->common = at + PAGE_TOKENS;
        root = nearest.block->kids;
    }
    const struct look *hot = &looks[0], *cold = &looks[1];
    if (cold->tokens < hot->tokens + PREFIX_COLD_LEAST) cold = hot;
    out->tokens = hot->tokens;
    out->cold = cold->tokens;
    if (hot->block != NULL) out->block = prefix_name_of(p, hot->block);
    if (cold->block != NULL) out->cold_block = prefix_name_of(p, cold->block);
}

static struct block *parent_of(struct prefix *p, const struct block *b) {
    return b->parent == NO_BLOCK ? NULL : &p->block[b->parent];
}

static void path_use(struct prefix *p, struct block *b, uint32_t position) {
    p->uses++;
    prefix_space_use(p, &p->space[b->space]);
    if (b->snapshot) {
        prefix_snapshot_use(p, b, 1);
    } else if (position % PAGE_TOKENS == 0) {
        b->stop_base = p->clock_snap;
        b->stop_used = p->uses;
        b->stops = prefix_min(USES_MAX, b->stops + 1);
    }
    for (; b != NULL; b = parent_of(p, b)) prefix_leaf_use(p, b, 1);
}

uint32_t prefix_take(struct prefix *p, prefix_block block, uint32_t position, uint32_t group, uint32_t *table,
                     uint32_t *partial) {
    assert(group < p->groups);
    const struct pages_shape *shape = &p->group[group].shape;
    uint32_t first = pages_clamp(shape, window_first(shape->window, position));
    uint32_t end = pages_clamp(shape, position / PAGE_TOKENS + (position % PAGE_TOKENS != 0));
    *partial = PAGE_NONE;
    for (uint32_t i = first; i < end; i++) table[i] = PAGE_NONE;
    struct block *b = prefix_block_of(p, block);
    if (b == NULL) return first;
    assert(position > b->index * PAGE_TOKENS && position <= block_end(b));
    if (group == 0) path_use(p, b, position);
    if (position % PAGE_TOKENS != 0) {
        *partial = b->page[group];
        b = parent_of(p, b);
    }
    for (; b != NULL && b->index >= first; b = parent_of(p, b)) {
        if (b->page[group] == PAGE_NONE) continue;
        prefix_ref(p, group, b->page[group]);
        table[b->index] = b->page[group];
    }
    return first;
}

/* ---- Looking at blocks ---- */

int prefix_get(const struct prefix *p, prefix_block block, struct prefix_view *out) {
    const struct block *b = prefix_block_of(p, block);
    if (b == NULL) return 0;
    *out = (struct prefix_view){
        .parent = b->parent == NO_BLOCK ? 0 : prefix_name_of(p, &p->block[b->parent]),
        .space = p->space[b->space].number,
        .tokens = b->tokens,
        .n = b->n,
        .index = b->index,
        .where = b->where,
        .where_has = b->where_has,
        .fresh = prefix_fresh_groups(p, b),
        .full = p->full & ~b->none,
    };
    for (uint32_t g = 0; g < PAGES_GROUPS_MAX; g++) out->page[g] = b->page[g];
    return 1;
}

void prefix_get_counts(const struct prefix *p, struct prefix_counts *out) {
    *out = (struct prefix_counts){
        .blocks = p->blocks,
        .resident = p->resident,
        .cold = p->cold,
        .snapshots = p->snapshots,
        .evicted = p->evicted,
        .evicted_snapshots = p->evicted_snapshots,
    };
    for (uint32_t g = 0; g < p->groups; g++) out->idle[g] = idle_pages(p, g);
}
