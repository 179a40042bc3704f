/* What is worth how much, and what goes (GreedyDual; prefix.h). A credit is what the last evicted one had when this was
 * used last, and on top of it the tokens that must be read again without it for each page that it frees, times its uses
 * and its weight. So what is used rarely is overtaken by the clock, whatever it cost.
 *
 * Two kinds compete separately. Leaves: blocks behind which nothing has pages in the full groups; each frees one page
 * in every group that has its place, so its tokens are its cost, or nothing if nobody could go on from there (windowed
 * groups, no snapshot). Snapshots: the tokens from the snapshot before it (or from 0) by the pages that only it keeps.
 *
 * A heap per group holds only what frees a page of that group at once: leaves whose page no row holds, snapshots that
 * alone keep a page that no row holds. To know the latter at any time, each page counts its keepers and xors their
 * indices: when one is left, that names it. A snapshot's price is looked at again when it is its turn to go, because it
 * rises when the one before it is gone. */
#include <assert.h>

#include "pages/prefix_internal.h"

enum { LOOKS_MAX = 16 }; /* times that the next snapshot's price is looked at again before one goes as it is */

static uint32_t rows_of(const struct prefix *p, uint32_t group, uint32_t page) {
    return prefix_rows_of(p, group, page);
}

static int is_idle(const struct prefix *p, const struct block *b, uint32_t group) {
    return b->page[group] != PAGE_NONE && rows_of(p, group, b->page[group]) == 0;
}

static struct block *parent_of(const struct prefix *p, const struct block *b) {
    return b->parent == NO_BLOCK ? NULL : &p->block[b->parent];
}

/* ---- Heaps ---- */

static int by_snapshot(const struct prefix *p, uint32_t heap) {
    return heap == HEAP_SNAP || (heap < HEAP_END && (p->windowed >> heap & 1U));
}

int prefix_heap_less(const struct prefix *p, uint32_t heap, uint32_t a, uint32_t b) {
    int snap = by_snapshot(p, heap);
    const struct worth *x = snap ? &p->block[a].snap : &p->block[a].leaf;
    const struct worth *y = snap ? &p->block[b].snap : &p->block[b].leaf;
    return x->credit != y->credit ? x->credit < y->credit : x->used < y->used;
}

static void heap_put(struct prefix *p, uint32_t heap, uint32_t place, uint32_t i) {
    p->heap[heap].item[place] = i;
    p->block[i].place[heap] = place;
}

/* Moves block i, which has a place in the heap, to where it belongs. */
static void heap_sift(struct prefix *p, uint32_t heap, uint32_t i) {
    struct heap *h = &p->heap[heap];
    uint32_t place = p->block[i].place[heap];
    while (place > 0 && prefix_heap_less(p, heap, i, h->item[(place - 1) / 2])) {
        heap_put(p, heap, place, h->item[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        uint32_t down = 2 * place + 1;
        if (down >= h->n) break;
        if (down + 1 < h->n && prefix_heap_less(p, heap, h->item[down + 1], h->item[down])) down++;
        if (!prefix_heap_less(p, heap, h->item[down], i)) break;
        heap_put(p, heap, place, h->item[down]);
        place = down;
    }
    heap_put(p, heap, place, i);
}

static void heap_enter(struct prefix *p, uint32_t heap, struct block *b) {
    heap_put(p, heap, p->heap[heap].n++, block_index(p, b));
    heap_sift(p, heap, block_index(p, b));
}

static void heap_leave(struct prefix *p, uint32_t heap, struct block *b) {
    struct heap *h = &p->heap[heap];
    uint32_t place = b->place[heap], last = h->item[--h->n];
    b->place[heap] = NO_BLOCK;
    if (place == h->n) return;
    heap_put(p, heap, place, last);
    heap_sift(p, heap, last);
}

static struct block *heap_top(const struct prefix *p, uint32_t heap) {
    return p->heap[heap].n == 0 ? NULL : &p->block[p->heap[heap].item[0]];
}

int prefix_heap_wants(const struct prefix *p, const struct block *b, uint32_t heap) {
    switch (heap) {
    case HEAP_END:
        return b->kids_n == 0 && !block_held(b);
    case HEAP_SNAP:
        return b->snapshot;
    case HEAP_COPY:
        return b->where != 0 && b->kid[1] == 0 && !block_held(b);
    }
    if (heap >= p->groups) return 0;
    if (p->windowed >> heap & 1U) return b->snapshot && b->frees[heap] > 0;
    return block_resident(p, b) && b->kid[0] == 0 &&
           is_idle(p, b, heap); /* a pin without a row's pages protects none */
}

void prefix_heaps_settle(struct prefix *p, struct block *b) {
    for (uint32_t h = 0; h < HEAPS; h++) {
        int wanted = prefix_heap_wants(p, b, h);
        if (wanted == (b->place[h] != NO_BLOCK)) continue;
        if (wanted)
            heap_enter(p, h, b);
        else
            heap_leave(p, h, b);
    }
}

void prefix_heaps_leave(struct prefix *p, struct block *b) {
    for (uint32_t h = 0; h < HEAPS; h++)
        if (b->place[h] != NO_BLOCK) heap_leave(p, h, b);
}

/* Its credit of one kind has changed. */
static void heaps_sift(struct prefix *p, struct block *b, int snap) {
    for (uint32_t h = 0; h < HEAPS; h++)
        if (b->place[h] != NO_BLOCK && by_snapshot(p, h) == snap) heap_sift(p, h, block_index(p, b));
}

/* ---- Prices ---- */

static void worth_price(struct worth *w, uint64_t cost) { w->credit = w->base + cost * w->uses * w->weight; }

static void worth_use(const struct prefix *p, struct worth *w, uint64_t clock, uint32_t uses) {
    w->base = clock;
    w->used = p->uses;
    w->uses = prefix_min(USES_MAX, w->uses + uses);
}

void prefix_leaf_price(struct prefix *p, struct block *b) {
    int usable = p->windowed == 0 || (b->own & OWN_STATE);
    worth_price(&b->leaf, usable ? (uint64_t)b->n * CREDIT_UNIT : 0);
    heaps_sift(p, b, 0);
}

void prefix_leaf_use(struct prefix *p, struct block *b, uint32_t uses) {
    worth_use(p, &b->leaf, p->clock_leaf, uses);
    prefix_leaf_price(p, b);
}

static uint64_t snapshot_cost(const struct prefix *p, const struct block *b) {
    uint64_t tokens = block_end(b), pages = 0;
    for (const struct block *at = parent_of(p, b); at != NULL; at = parent_of(p, at)) {
        if (!at->snapshot) continue;
        tokens -= block_end(at);
        break;
    }
    for (uint32_t g = 0; g < p->groups; g++) {
        if (!(p->windowed >> g & 1U)) continue;
        uint32_t first = snapshot_first(&p->group[g], b->index);
        for (const struct block *at = b; at != NULL && at->index >= first; at = parent_of(p, at))
            pages += at->keep[g] == 1;
    }
    return tokens * CREDIT_UNIT / (pages == 0 ? 1 : pages);
}

static void snapshot_price(struct prefix *p, struct block *b) {
    worth_price(&b->snap, snapshot_cost(p, b));
    heaps_sift(p, b, 1);
}

void prefix_snapshot_use(struct prefix *p, struct block *b, uint32_t uses) {
    worth_use(p, &b->snap, p->clock_snap, uses);
    snapshot_price(p, b);
}

/* Before it goes: whoever went on right behind its parent used it, too. */
static void snapshot_look(struct prefix *p, struct block *b) {
    const struct block *before = parent_of(p, b);
    if (before != NULL && before->stop_used > b->snap.used) {
        b->snap.base = before->stop_base;
        b->snap.used = before->stop_used;
        b->snap.uses = prefix_min(USES_MAX, b->snap.uses + before->stops);
    }
    snapshot_price(p, b);
}

/* ---- Snapshots ---- */

static void frees_change(struct prefix *p, uint32_t snapshot, uint32_t group, uint32_t change) {
    struct block *s = &p->block[snapshot];
    s->frees[group] += change;
    prefix_heaps_settle(p, s);
}

static void keep_add(struct prefix *p, struct block *b, uint32_t group, uint32_t snapshot) {
    if (b->keep[group] == 1 && is_idle(p, b, group)) frees_change(p, b->keeper[group], group, UINT32_MAX);
    b->keep[group]++;
    b->keeper[group] ^= snapshot;
    prefix_fresh_note(p, b);
}

static void keep_remove(struct prefix *p, struct block *b, uint32_t group, uint32_t snapshot) {
    int idle = is_idle(p, b, group);
    if (idle && b->keep[group] == 1) frees_change(p, snapshot, group, UINT32_MAX);
    b->keep[group]--;
    b->keeper[group] ^= snapshot;
    if (!idle) return;
    if (b->keep[group] == 1) frees_change(p, b->keeper[group], group, 1);
    if (b->keep[group] == 0) {
        prefix_lose(p, b, group);
        prefix_settle(p, b);
    }
}

static int pages_are_there(const struct prefix *p, const struct block *b) {
    for (uint32_t g = 0; g < p->groups; g++) {
        if (!(p->windowed >> g & 1U)) continue;
        uint32_t first = snapshot_first(&p->group[g], b->index);
        for (const struct block *at = b; at != NULL && at->index >= first; at = parent_of(p, at))
            if (at->page[g] == PAGE_NONE && !(at->none >> g & 1U)) return 0;
    }
    return p->full == 0 || block_resident(p, b);
}

static void span_change(struct prefix *p, struct block *b, int add) {
    for (uint32_t g = 0; g < p->groups; g++) {
        if (!(p->windowed >> g & 1U)) continue;
        uint32_t first = snapshot_first(&p->group[g], b->index);
        for (struct block *at = b; at != NULL && at->index >= first; at = parent_of(p, at)) {
            if (at->none >> g & 1U) continue;
            if (add)
                keep_add(p, at, g, block_index(p, b));
            else
                keep_remove(p, at, g, block_index(p, b));
        }
    }
}

/* A place to go on is worth nothing without all that lies before it. */
static void weigh_path(struct prefix *p, struct block *b, uint32_t weight) {
    for (struct block *at = b; at != NULL && weight > 1; at = parent_of(p, at)) {
        if (at->leaf.weight >= weight) continue;
        at->leaf.weight = weight;
        prefix_leaf_price(p, at);
    }
}

int prefix_keep(struct prefix *p, prefix_block block, uint32_t weight) {
    struct block *b = prefix_block_of(p, block);
    if (b == NULL) return 0;
    if (p->windowed != 0 && !b->snapshot) {
        if (!pages_are_there(p, b)) return 0;
        b->snapshot = 1;
        b->snap = (struct worth){.uses = 1, .weight = 1};
        p->snapshots++;
        span_change(p, b, 1);
        prefix_settle(p, b);
    }
    weight = prefix_min(weight, WEIGHT_MAX);
    p->uses++;
    prefix_leaf_use(p, b, 0);
    weigh_path(p, b, weight);
    if (p->windowed == 0) return 1;
    if (b->snap.weight < weight) b->snap.weight = weight;
    prefix_snapshot_use(p, b, 0);
    return 1;
}

void prefix_snapshot_drop(struct prefix *p, struct block *b) {
    assert(b->snapshot);
    span_change(p, b, 0);
    b->snapshot = 0;
    p->snapshots--;
    for (uint32_t g = 0; g < p->groups; g++) assert(b->frees[g] == 0);
    prefix_settle(p, b);
}

void prefix_page_busy(struct prefix *p, struct block *b, uint32_t group) {
    if (!(p->windowed >> group & 1U))
        prefix_heaps_settle(p, b);
    else if (b->keep[group] == 1)
        frees_change(p, b->keeper[group], group, UINT32_MAX);
}

void prefix_page_idle(struct prefix *p, struct block *b, uint32_t group) {
    if (!(p->windowed >> group & 1U)) {
        prefix_heaps_settle(p, b);
    } else if (b->keep[group] == 1) {
        frees_change(p, b->keeper[group], group, 1);
    } else if (b->keep[group] == 0) {
        prefix_lose(p, b, group);
        prefix_settle(p, b);
        prefix_block_prune(p, b);
    }
}

/* ---- Eviction ---- */

static void clock_pass(uint64_t *clock, uint64_t credit) {
    if (*clock < credit) *clock = credit;
}

static void snapshot_evict(struct prefix *p, struct block *b) {
    clock_pass(&p->clock_snap, b->snap.credit);
    p->evicted_snapshots++;
    prefix_snapshot_drop(p, b);
    prefix_block_prune(p, b);
}

static void leaf_evict(struct prefix *p, struct block *b) {
    clock_pass(&p->clock_leaf, b->leaf.credit);
    p->evicted++;
    p->evicted_snapshots += b->snapshot;
    if (!block_copied(p, b)) {
        prefix_block_remove(p, b);
        return;
    }
    if (b->snapshot) prefix_snapshot_drop(p, b);
    for (uint32_t g = 0; g < p->groups; g++)
        if (b->page[g] != PAGE_NONE) prefix_lose(p, b, g);
    prefix_fresh_drop(p, b);
    prefix_settle(p, b);
}

static int keeps_idle(const struct prefix *p, const struct block *b, uint32_t group) {
    uint32_t first = snapshot_first(&p->group[group], b->index);
    for (const struct block *at = b; at != NULL && at->index >= first; at = parent_of(p, at))
        if (is_idle(p, at, group)) return 1;
    return 0;
}

/* Every idle page of the group has several keepers: the least of those that keep one goes, so that others get to be the
 * only ones. Rare, so all are looked at. */
static struct block *least_shared(const struct prefix *p, uint32_t group) {
    const struct heap *h = &p->heap[HEAP_SNAP];
    uint32_t least = NO_BLOCK;
    for (uint32_t k = 0; k < h->n; k++) {
        if (least != NO_BLOCK && !prefix_heap_less(p, HEAP_SNAP, h->item[k], least)) continue;
        if (keeps_idle(p, &p->block[h->item[k]], group)) least = h->item[k];
    }
    return least == NO_BLOCK ? NULL : &p->block[least];
}

static int evict_windowed(struct prefix *p, uint32_t group) {
    struct block *b = heap_top(p, HEAP_GROUP + group);
    for (uint32_t k = 0; b != NULL && k < LOOKS_MAX; k++) {
        snapshot_look(p, b);
        struct block *top = heap_top(p, HEAP_GROUP + group);
        if (top == b) break;
        b = top;
    }
    if (b == NULL) b = least_shared(p, group);
    if (b == NULL) return 0;
    snapshot_evict(p, b);
    return 1;
}

/* The group holds only beginnings, and all its idle pages lie before blocks that have theirs in another group: the last
 * such page on a path whose end is worth little. */
static struct block *last_idle(const struct prefix *p, uint32_t group) {
    for (uint32_t g = 0; g < p->groups; g++) {
        const struct heap *h = &p->heap[HEAP_GROUP + g];
        for (uint32_t k = 0; (p->full >> g & 1U) && k < h->n; k++)
            for (struct block *at = &p->block[h->item[k]]; at != NULL; at = parent_of(p, at))
                if (is_idle(p, at, group)) return at;
    }
    return NULL;
}

static struct block *resident_kid(const struct prefix *p, const struct block *b) {
    uint32_t i = b->kids == NO_BLOCK ? NO_BLOCK : block_leftmost(p, b->kids);
    while (i != NO_BLOCK && !block_resident(p, &p->block[i])) i = block_next(p, i);
    return i == NO_BLOCK ? NULL : &p->block[i];
}

/* The block and what lies behind it: of other paths nothing. No row holds what is behind an idle page. */
static void path_evict(struct prefix *p, struct block *b) {
    for (struct block *at = b, *kid; b->kid[0] > 0; at = b) {
        while ((kid = resident_kid(p, at)) != NULL) at = kid;
        leaf_evict(p, at);
    }
    leaf_evict(p, b);
}

int prefix_evict_page(struct prefix *p, uint32_t group) {
    if (p->windowed >> group & 1U) return evict_windowed(p, group);
    struct block *b = heap_top(p, HEAP_GROUP + group);
    if (b != NULL) {
        leaf_evict(p, b);
        return 1;
    }
    b = p->group[group].shape.end != 0 ? last_idle(p, group) : NULL;
    if (b == NULL) return prefix_evict_block(p); /* what is behind an idle page is in rows' hands, or in none */
    path_evict(p, b);
    return 1;
}

int prefix_evict_block(struct prefix *p) {
    struct block *b = heap_top(p, HEAP_END);
    if (b == NULL) return 0;
    clock_pass(&p->clock_leaf, b->leaf.credit);
    p->evicted++;
    p->evicted_snapshots += b->snapshot;
    prefix_block_remove(p, b);
    return 1;
}

/* The space used longest ago that nobody holds. */
int prefix_evict_space(struct prefix *p) {
    for (uint32_t i = p->space_oldest; i != NO_BLOCK; i = p->space[i].newer) {
        if (p->space[i].held > 0) continue;
        p->evicted += p->space[i].blocks;
        for (uint32_t n = p->space[i].blocks; n > 0;) {
            uint32_t before = p->blocks;
            prefix_block_remove(p, &p->block[p->space[i].root]);
            n -= before - p->blocks;
        }
        return 1;
    }
    return 0;
}
