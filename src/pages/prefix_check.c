/* The invariants of the prefix store, each counted anew from what cannot be wrong (prefix.h, prefix_internal.h). Needs
 * memory for the counts. */
#include <string.h>

#include "base/mem.h"
#include "pages/prefix_internal.h"

/* What is counted of each block. */
struct tally {
    uint32_t kids, kid[KID_BITS];
    uint32_t keep[PAGES_GROUPS_MAX], keeper[PAGES_GROUPS_MAX], frees[PAGES_GROUPS_MAX];
    uint32_t seen; /* in the order of its siblings */
};

/* The whole store. */
struct sums {
    uint32_t blocks, resident, cold, snapshots;
    uint32_t space_blocks[PREFIX_SPACES_MAX], space_held[PREFIX_SPACES_MAX];
};

static int live(const struct prefix *p, uint32_t i) { return i < p->blocks_touched && p->block[i].n > 0; }
static int is_idle(const struct prefix *p, const struct block *b, uint32_t g) {
    return b->page[g] != PAGE_NONE && prefix_rows_of(p, g, b->page[g]) == 0;
}

/* ---- Each block by itself ---- */

static int place_holds(const struct prefix *p, const struct block *b) {
    if (b->n > PAGE_TOKENS || b->space >= PREFIX_SPACES_MAX) return 0;
    if (b->none != blocks_none(p, b->index) || (b->has & b->none) != 0) return 0;
    if (b->parent == NO_BLOCK) return b->index == 0;
    if (!live(p, b->parent)) return 0;
    const struct block *parent = &p->block[b->parent];
    return parent->n == PAGE_TOKENS && b->index == parent->index + 1 && b->space == parent->space;
}

static int pages_hold(const struct prefix *p, const struct block *b) {
    for (uint32_t g = 0; g < PAGES_GROUPS_MAX; g++) {
        uint32_t page = b->page[g];
        if ((page != PAGE_NONE) != (b->has >> g & 1U)) return 0;
        if (page == PAGE_NONE) continue;
        if (g >= p->groups || page >= p->group[g].total || p->group[g].owner[page] != block_index(p, b)) return 0;
        if (pages_count(p->pages, g, page) == 0) return 0;
        /* a windowed page is there while a row or a snapshot wants it */
        if (p->group[g].shape.window > 0 && b->keep[g] == 0 && is_idle(p, b, g)) return 0;
    }
    if (p->full == 0) return 1;
    if ((b->has & p->full) == 0) return b->has == 0 && block_copied(p, b);
    if (!block_resident(p, b)) return 0;
    return b->parent == NO_BLOCK || block_resident(p, &p->block[b->parent]);
}

static int flags_hold(const struct prefix *p, const struct block *b) {
    uint32_t all = p->full | p->windowed;
    uint8_t own = OWN_ANY;
    if ((b->has | b->none) == all) own |= OWN_PAGES;
    if ((b->has | b->where_has | b->none) == all) own |= OWN_STATE;
    uint8_t derived =
        (uint8_t)((block_resident(p, b) ? KID_RESIDENT : 0) | (b->where != 0 || b->kid[1] > 0 ? KID_COPIED : 0) |
                  (b->pins > 0 || b->kid[2] > 0 ? KID_HELD : 0));
    uint32_t below = own;
    if (b->left != NO_BLOCK) below |= p->block[b->left].below;
    if (b->right != NO_BLOCK) below |= p->block[b->right].below;
    return b->own == own && b->derived == derived && b->below == below && (b->where != 0 || b->where_has == 0);
}

static int heaps_hold(const struct prefix *p, const struct block *b) {
    for (uint32_t h = 0; h < HEAPS; h++) {
        uint32_t place = b->place[h];
        if (prefix_heap_wants(p, b, h) != (place != NO_BLOCK)) return 0;
        if (place == NO_BLOCK) continue;
        const struct heap *heap = &p->heap[h];
        if (place >= heap->n || heap->item[place] != block_index(p, b)) return 0;
        if (place > 0 && prefix_heap_less(p, h, heap->item[place], heap->item[(place - 1) / 2])) return 0;
    }
    return 1;
}

/* ---- Siblings ---- */

static int links_hold(const struct prefix *p, uint32_t i) {
    const struct block *b = &p->block[i];
    const uint32_t kid[2] = {b->left, b->right};
    for (int k = 0; k < 2; k++) {
        if (kid[k] == NO_BLOCK) continue;
        if (!live(p, kid[k]) || p->block[kid[k]].up != i || p->block[kid[k]].rank > b->rank) return 0;
    }
    return 1;
}

/* In order, and no one the beginning of the next (so of none). */
static int siblings_hold(const struct prefix *p, uint32_t root, uint32_t parent, struct tally *tally) {
    if (root == NO_BLOCK) return 1;
    if (!live(p, root) || p->block[root].up != NO_BLOCK) return 0;
    const struct block *before = NULL;
    for (uint32_t i = block_leftmost(p, root); i != NO_BLOCK; i = block_next(p, i)) {
        const struct block *b = &p->block[i];
        if (!live(p, i) || b->parent != parent || !links_hold(p, i) || tally[i].seen++) return 0;
        if (before != NULL) {
            uint32_t k = 0, most = prefix_min(before->n, b->n);
            while (k < most && before->tokens[k] == b->tokens[k]) k++;
            if (k == most || before->tokens[k] > b->tokens[k]) return 0;
        }
        before = b;
    }
    return 1;
}

/* ---- Counts ---- */

static void tally_snapshot(const struct prefix *p, uint32_t i, struct tally *tally) {
    for (uint32_t g = 0; g < p->groups; g++) {
        if (p->group[g].shape.window == 0) continue;
        uint32_t first = snapshot_first(&p->group[g], p->block[i].index);
        for (uint32_t at = i; at != NO_BLOCK && p->block[at].index >= first; at = p->block[at].parent) {
            if (p->block[at].none >> g & 1U) continue;
            tally[at].keep[g]++;
            tally[at].keeper[g] ^= i;
        }
    }
}

static void tally_block(const struct prefix *p, uint32_t i, struct tally *tally, struct sums *sums) {
    const struct block *b = &p->block[i];
    sums->blocks++;
    sums->resident += b->has != 0;
    sums->cold += b->where != 0;
    sums->snapshots += b->snapshot;
    sums->space_blocks[b->space]++;
    if (b->snapshot) tally_snapshot(p, i, tally);
    if (b->parent == NO_BLOCK) {
        sums->space_held[b->space] += b->derived >> 2 & 1U;
        return;
    }
    tally[b->parent].kids++;
    for (uint32_t k = 0; k < KID_BITS; k++) tally[b->parent].kid[k] += b->derived >> k & 1U;
}

static int tallies_hold(const struct prefix *p, struct tally *tally) {
    for (uint32_t i = 0; i < p->blocks_touched; i++) {
        const struct block *b = &p->block[i];
        for (uint32_t g = 0; live(p, i) && g < p->groups; g++)
            if (tally[i].keep[g] == 1 && is_idle(p, b, g)) tally[tally[i].keeper[g]].frees[g]++;
    }
    for (uint32_t i = 0; i < p->blocks_touched; i++) {
        const struct block *b = &p->block[i];
        const struct tally *t = &tally[i];
        if (!live(p, i)) continue;
        if (t->seen != 1 || t->kids != b->kids_n || memcmp(t->kid, b->kid, sizeof t->kid) != 0) return 0;
        if (memcmp(t->keep, b->keep, sizeof t->keep) != 0 || memcmp(t->keeper, b->keeper, sizeof t->keeper) != 0)
            return 0;
        if (memcmp(t->frees, b->frees, sizeof t->frees) != 0) return 0;
        for (uint32_t g = 0; g < p->groups; g++)
            if (b->keep[g] > 0 && b->page[g] == PAGE_NONE) return 0;
        if (b->snapshot && p->full != 0 && !block_resident(p, b)) return 0;
    }
    return 1;
}

static int sums_hold(const struct prefix *p, const struct sums *sums) {
    if (sums->blocks != p->blocks || sums->resident != p->resident || sums->cold != p->cold ||
        sums->snapshots != p->snapshots)
        return 0;
    uint32_t listed = 0, used = 0;
    for (uint32_t i = p->space_oldest; i != NO_BLOCK; i = p->space[i].newer) {
        const struct space *s = &p->space[i];
        if (++listed > PREFIX_SPACES_MAX || s->blocks == 0 || prefix_space_of(p, s->number) != s) return 0;
        if (s->blocks != sums->space_blocks[i] || s->held != sums->space_held[i]) return 0;
    }
    for (uint32_t i = 0; i < PREFIX_SPACES_MAX; i++) used += sums->space_blocks[i] > 0;
    return used == listed;
}

static int groups_hold(const struct prefix *p) {
    for (uint32_t g = 0; g < p->groups; g++) {
        uint32_t used = 0, idle = 0;
        for (uint32_t page = 0; page < p->group[g].total; page++) {
            uint32_t owner = p->group[g].owner[page], count = pages_count(p->pages, g, page);
            if (owner != NO_BLOCK && (!live(p, owner) || p->block[owner].page[g] != page || count == 0)) return 0;
            used += prefix_rows_of(p, g, page) > 0;
            idle += count > 0 && prefix_rows_of(p, g, page) == 0;
        }
        if (used != p->group[g].used || used + idle + pages_available(p->pages, g) != p->group[g].total) return 0;
    }
    return pages_check(p->pages);
}

/* Every slot is a block, free, or aside with the name of a copy; what is worth a copy is listed. */
static int slots_hold(const struct prefix *p) {
    uint32_t n = p->blocks, fresh = 0, flagged = 0;
    for (uint32_t i = p->slot_free; i != NO_BLOCK; i = p->block[i].fresh_next)
        if (live(p, i) || ++n > p->blocks_touched) return 0;
    for (uint32_t i = p->dropped.first; i != NO_BLOCK; i = p->block[i].fresh_next)
        if (live(p, i) || p->block[i].where == 0 || ++n > p->blocks_touched) return 0;
    for (uint32_t i = p->fresh.first; i != NO_BLOCK; i = p->block[i].fresh_next)
        if (!live(p, i) || !p->block[i].fresh || ++fresh > p->blocks) return 0;
    for (uint32_t i = 0; i < p->blocks_touched; i++) {
        if (!live(p, i)) continue;
        flagged += p->block[i].fresh;
        if (prefix_fresh_groups(p, &p->block[i]) != 0 && !p->block[i].fresh) return 0;
    }
    return n == p->blocks_touched && fresh == flagged;
}

static int blocks_hold(const struct prefix *p, struct tally *tally, struct sums *sums) {
    uint32_t heaped[HEAPS] = {0};
    for (uint32_t i = 0; i < p->blocks_touched; i++) {
        const struct block *b = &p->block[i];
        if (!live(p, i)) continue;
        if (!place_holds(p, b) || !pages_hold(p, b) || !flags_hold(p, b) || !heaps_hold(p, b)) return 0;
        if (!siblings_hold(p, b->kids, i, tally)) return 0;
        for (uint32_t h = 0; h < HEAPS; h++) heaped[h] += b->place[h] != NO_BLOCK;
        tally_block(p, i, tally, sums);
    }
    for (uint32_t i = p->space_oldest; i != NO_BLOCK; i = p->space[i].newer)
        if (!siblings_hold(p, p->space[i].root, NO_BLOCK, tally)) return 0;
    for (uint32_t h = 0; h < HEAPS; h++)
        if (heaped[h] != p->heap[h].n) return 0;
    return 1;
}

int prefix_check(const struct prefix *p) {
    struct tally *tally = mem_zalloc(p->blocks_touched, sizeof *tally);
    struct sums *sums = mem_zalloc(1, sizeof *sums);
    int holds = tally != NULL && sums != NULL && slots_hold(p) && groups_hold(p) && blocks_hold(p, tally, sums) &&
                tallies_hold(p, tally) && sums_hold(p, sums);
    mem_free(tally);
    mem_free(sums);
    return holds;
}
