/* What enters the prefix store and what is taken out of it; copies elsewhere (prefix.h). */
#include <assert.h>
#include <string.h>

#include "pages/prefix_internal.h"

/* ---- Storing ---- */

/* A parent that something can be stored behind. */
static struct block *parent_for(const struct prefix *p, uint64_t space, prefix_block name) {
    struct block *b = prefix_block_of(p, name);
    return b != NULL && b->n == PAGE_TOKENS && p->space[b->space].number == space ? b : NULL;
}

static uint32_t kids_of(const struct prefix *p, uint64_t space, const struct block *parent) {
    if (parent != NULL) return parent->kids;
    const struct space *s = prefix_space_of(p, space);
    return s == NULL ? NO_BLOCK : s->root;
}

prefix_block prefix_child(const struct prefix *p, uint64_t space, prefix_block parent, const int32_t *tokens,
                          uint32_t n) {
    const struct block *before = parent == 0 ? NULL : parent_for(p, space, parent);
    if (parent != 0 && before == NULL) return 0;
    struct near_block nearest = prefix_nearest(p, kids_of(p, space, before), tokens, n, OWN_ANY);
    const struct block *b = nearest.block;
    return b != NULL && nearest.common == n && b->n == n ? prefix_name_of(p, b) : 0;
}

/* The row's page is one that rows hold, and no other block's. */
static void page_check(const struct prefix *p, const struct block *b, uint32_t group, uint32_t page) {
    uint32_t owner = p->group[group].owner[page];
    assert(prefix_rows_of(p, group, page) > 0);
    assert(owner == NO_BLOCK || owner == block_index(p, b));
}

/* The same block is there: one page serves both. */
static void pages_merge(struct prefix *p, struct block *b, uint32_t page[]) {
    for (uint32_t g = 0; g < p->groups; g++) {
        uint32_t mine = page[g], theirs = b->page[g];
        if (mine == PAGE_NONE || mine == theirs) continue;
        page_check(p, b, g, mine);
        if (theirs == PAGE_NONE) {
            prefix_gain(p, b, g, mine);
        } else {
            prefix_ref(p, g, theirs);
            prefix_unref(p, g, mine);
            page[g] = theirs;
        }
    }
}

/* The block was longer than the tree knew. Its old pages lack the rest; without new ones its snapshot is lost. */
static void pages_replace(struct prefix *p, struct block *b, const uint32_t page[]) {
    int lost = 0;
    for (uint32_t g = 0; g < p->groups; g++) lost |= b->page[g] != PAGE_NONE && page[g] == PAGE_NONE;
    if (lost && b->snapshot) prefix_snapshot_drop(p, b);
    for (uint32_t g = 0; g < p->groups; g++) {
        uint32_t old = b->page[g];
        if (page[g] != PAGE_NONE) page_check(p, b, g, page[g]);
        if (page[g] == old) continue;
        uint32_t keep = b->keep[g], keeper = b->keeper[g];
        if (old != PAGE_NONE) {
            if (prefix_rows_of(p, g, old) == 0) prefix_page_busy(p, b, g); /* a row holds what comes for it */
            b->keep[g] = 0;
            prefix_lose(p, b, g);
        }
        if (page[g] != PAGE_NONE) prefix_gain(p, b, g, page[g]);
        b->keep[g] = keep;
        b->keeper[g] = keeper;
    }
}

prefix_block prefix_add(struct prefix *p, uint64_t space, prefix_block parent, const int32_t *tokens, uint32_t n,
                        uint32_t page[]) {
    assert(n >= 1 && n <= PAGE_TOKENS);
    if (p->blocks_max == 0) return 0;
    struct block *before = parent == 0 ? NULL : parent_for(p, space, parent);
    if (parent != 0 && (before == NULL || (p->full != 0 && !block_resident(p, before)))) return 0;
    uint32_t none = blocks_none(p, before == NULL ? 0 : before->index + 1);
    assert(n == PAGE_TOKENS || !p->recurrent);
    for (uint32_t g = 0; g < p->groups; g++)
        assert(none >> g & 1U ? page[g] == PAGE_NONE : page[g] != PAGE_NONE || p->group[g].shape.window > 0);

    struct near_block nearest = prefix_nearest(p, kids_of(p, space, before), tokens, n, OWN_ANY);
    struct block *b = nearest.block;
    p->uses++;
    if (b != NULL && nearest.common == n && b->n > n) {
        prefix_leaf_use(p, b, 0);
        return prefix_name_of(p, b);
    }
    if (b != NULL && nearest.common == n && b->n == n) {
        pages_merge(p, b, page);
    } else if (b != NULL && nearest.common == b->n) {
        prefix_block_grow(p, b, tokens, n);
        pages_replace(p, b, page);
    } else {
        b = prefix_block_new(p, space, before, tokens, n);
        if (b == NULL) return 0;
        for (uint32_t g = 0; g < p->groups; g++) {
            if (page[g] == PAGE_NONE) continue;
            page_check(p, b, g, page[g]);
            prefix_gain(p, b, g, page[g]);
        }
    }
    prefix_space_use(p, &p->space[b->space]);
    prefix_leaf_use(p, b, 0);
    prefix_settle(p, b);
    prefix_fresh_note(p, b);
    return prefix_name_of(p, b);
}

void prefix_pin(struct prefix *p, prefix_block block) {
    struct block *b = prefix_block_of(p, block);
    if (b == NULL) return;
    b->pins++;
    prefix_settle(p, b);
}

void prefix_unpin(struct prefix *p, prefix_block block) {
    struct block *b = prefix_block_of(p, block);
    if (b == NULL) return;
    assert(b->pins > 0);
    b->pins--;
    prefix_settle(p, b);
    prefix_block_prune(p, b);
}

void prefix_remove(struct prefix *p, prefix_block block) {
    struct block *b = prefix_block_of(p, block);
    if (b != NULL) prefix_block_remove(p, b);
}

void prefix_remove_space(struct prefix *p, uint64_t space) {
    for (struct space *s; (s = prefix_space_of(p, space)) != NULL;) prefix_block_remove(p, &p->block[s->root]);
}

/* ---- Copies elsewhere ---- */

/* Windowed groups only. A block that has nothing itself, but is on the way to one that has, must be known there, too;
 * and what a later snapshot keeps may lie before what an earlier one does. So the first on the way goes first. */
static struct block *first_untold(const struct prefix *p, struct block *b) {
    struct block *first = b;
    for (uint32_t i = b->parent; i != NO_BLOCK; i = p->block[i].parent) {
        struct block *at = &p->block[i];
        int known = at->where != 0 || (at->told & TOLD_AT_ALL);
        if (!known || prefix_fresh_groups(p, at) != 0) first = at;
    }
    return first;
}

prefix_block prefix_next_fresh(struct prefix *p, uint32_t *groups) {
    *groups = 0;
    while (p->fresh.first != NO_BLOCK) {
        struct block *b = &p->block[p->fresh.first];
        if (prefix_fresh_groups(p, b) == 0) { /* it has lost them since */
            prefix_fresh_drop(p, b);
            continue;
        }
        if (p->windowed != 0) b = first_untold(p, b);
        prefix_fresh_drop(p, b);
        *groups = prefix_fresh_groups(p, b);
        b->told |= *groups | TOLD_AT_ALL;
        return prefix_name_of(p, b);
    }
    return 0;
}

int prefix_has_fresh(const struct prefix *p) { return p->fresh.first != NO_BLOCK; }

static void copy_set(struct prefix *p, struct block *b, uint64_t where, uint32_t groups) {
    p->cold += (where != 0) - (b->where != 0);
    b->where_has = groups & (p->full | p->windowed);
    b->where = where;
    if (where != 0) b->told |= b->where_has | TOLD_AT_ALL; /* what had a copy once does not ask for another */
    prefix_settle(p, b);
}

int prefix_set_where(struct prefix *p, prefix_block block, uint64_t where, uint32_t groups) {
    assert(where != 0);
    struct block *b = prefix_block_of(p, block);
    if (b == NULL) return 0;
    copy_set(p, b, where, b->where == where ? b->where_has | groups : groups);
    return 1;
}

void prefix_forget_where(struct prefix *p, prefix_block block) {
    struct block *b = prefix_block_of(p, block);
    if (b == NULL || b->where == 0) return;
    copy_set(p, b, 0, 0);
    if (p->full != 0 && !block_resident(p, b))
        prefix_block_remove(p, b);
    else
        prefix_block_prune(p, b);
}

prefix_block prefix_restore(struct prefix *p, uint64_t space, prefix_block parent, const int32_t *tokens, uint32_t n,
                            uint64_t where, uint32_t groups) {
    assert(n >= 1 && n <= PAGE_TOKENS && where != 0);
    if (p->blocks_max == 0) return 0;
    struct block *before = parent == 0 ? NULL : parent_for(p, space, parent);
    if (parent != 0 && before == NULL) return 0;
    uint32_t none = blocks_none(p, before == NULL ? 0 : before->index + 1);
    if (((groups | none) & p->full) != p->full) return 0;
    struct near_block nearest = prefix_nearest(p, kids_of(p, space, before), tokens, n, OWN_ANY);
    struct block *b = nearest.block;
    p->uses++;
    if (b != NULL && nearest.common == n) {
        if (b->n > n || b->where != 0) return 0;
    } else if (b != NULL && nearest.common == b->n) {
        if (b->has != 0) return 0;
        prefix_block_grow(p, b, tokens, n);
    } else {
        b = prefix_block_new(p, space, before, tokens, n);
        if (b == NULL) return 0;
    }
    copy_set(p, b, where, groups);
    prefix_space_use(p, &p->space[b->space]);
    prefix_leaf_use(p, b, 0);
    return prefix_name_of(p, b);
}

prefix_block prefix_coldest(const struct prefix *p) {
    const struct heap *h = &p->heap[HEAP_COPY];
    return h->n == 0 ? 0 : prefix_name_of(p, &p->block[h->item[0]]);
}

uint64_t prefix_next_dropped(struct prefix *p) {
    uint32_t i = prefix_dropped_pop(p);
    if (i == NO_BLOCK) return 0;
    struct block *b = &p->block[i];
    uint64_t where = b->where;
    b->where = 0;
    b->fresh_next = p->slot_free;
    p->slot_free = i;
    return where;
}
