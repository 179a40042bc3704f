/* What the files of the prefix store share. One thread: the opener's, then the engine's.
 *
 *   prefix.c         the object, rows' pages, finding and taking
 *   prefix_store.c   adding, restoring, removing, copies elsewhere
 *   prefix_tree.c    slots, spaces, the order of siblings, and what a change of a block means to those around it
 *   prefix_evict.c   credits, heaps, snapshots, eviction
 *   prefix_check.c   the invariants
 *
 * Blocks lie in one array; index and generation are a block's name. The blocks behind one parent form a treap in
 * lexicographic order of their tokens. So the sibling that has the longest beginning in common with given tokens is one
 * of their two neighbours in that order; and as each subtree knows what its blocks have, it can also be asked for the
 * neighbour that has pages.
 *
 *   space --root--> treap of first blocks --kids--> treap of second blocks --kids--> ...
 *
 * What a block means to its parent (derived): that it has pages in the full groups, that it or something behind it has
 * a copy elsewhere, that it or something behind it is pinned. The parent counts each of these over its kids. */
#ifndef PAGES_PREFIX_INTERNAL_H
#define PAGES_PREFIX_INTERNAL_H

#include "pages/prefix.h"

#define NO_BLOCK UINT32_MAX

enum {
    USES_MAX = 64,   /* more than this is not counted: what was popular once must be able to go */
    WEIGHT_MAX = 64, /* likewise */
    CREDIT_UNIT = 16 /* of a token: credits are whole numbers */
};

/* Bits of `own` and `below`: there is a block; it has pages in every group; in every group a page or a copy. */
enum { OWN_ANY = 1, OWN_PAGES = 2, OWN_STATE = 4 };
/* Bits of `derived`. */
enum { KID_RESIDENT = 1, KID_COPIED = 2, KID_HELD = 4, KID_BITS = 3 };

/* The heaps, each with its least credit on top. HEAP_GROUP + g: what frees a page of group g when it goes. */
enum {
    HEAP_GROUP,
    HEAP_END = PAGES_GROUPS_MAX, /* blocks that are not pinned and have nothing behind them */
    HEAP_SNAP,                   /* all snapshots */
    HEAP_COPY,                   /* blocks that are not pinned and whose copy has no copies behind it */
    HEAPS
};

struct worth {
    uint64_t base;   /* the credit of what was evicted last when this was used last */
    uint64_t credit; /* base + cost */
    uint64_t used;   /* when: the number of the use */
    uint32_t uses, weight;
};

struct block {
    int32_t tokens[PAGE_TOKENS];
    uint32_t generation;
    uint32_t n, index; /* n 0: the slot is unused */
    uint32_t parent, space;
    uint32_t kids;                     /* root of their treap */
    uint32_t left, right, up, rank;    /* of the treap among siblings; rank: a parent's is not lower */
    uint8_t own, below;                /* OWN_: of this block; of it and all below it in the treap */
    uint8_t derived;                   /* KID_: as counted by the parent */
    uint8_t snapshot, fresh;           /* fresh: in the list of those that may be worth a copy */
    uint32_t kids_n, kid[KID_BITS];    /* kid[i]: kids with bit i of `derived` */
    uint32_t pins;                     /* of this block itself */
    uint32_t none;                     /* bit g: group g has no pages for blocks of this index */
    uint32_t has;                      /* bit g: page[g] is there */
    uint32_t page[PAGES_GROUPS_MAX];   /* PAGE_NONE: none */
    uint32_t keep[PAGES_GROUPS_MAX];   /* windowed: snapshots that keep page[g] */
    uint32_t keeper[PAGES_GROUPS_MAX]; /* their indices, xored: if there is one, this is it */
    uint32_t frees[PAGES_GROUPS_MAX];  /* of a snapshot: idle pages that it alone keeps */
    uint32_t where_has, told;          /* told: bit g by prefix_next_fresh, TOLD_AT_ALL if ever */
    uint64_t where;
    struct worth leaf, snap;             /* as a block, as a snapshot */
    uint64_t stop_base, stop_used;       /* when somebody last went on right behind this block */
    uint32_t stops;                      /* how often */
    uint32_t fresh_next, fresh_previous; /* the list; fresh_next also threads free and dropped slots */
    uint32_t place[HEAPS];               /* in each heap, NO_BLOCK: not there */
};

#define TOLD_AT_ALL (UINT32_C(1) << 31)

struct space {
    uint64_t number;
    uint32_t root, blocks;
    uint32_t held;         /* first blocks that are held */
    uint32_t next;         /* in its bucket, or of the free ones */
    uint32_t older, newer; /* by last use */
};

struct group {
    struct pages_shape shape;
    uint32_t total;
    uint32_t used;   /* pages that rows hold */
    uint32_t *owner; /* of each page: the block that names it */
};

struct list {
    uint32_t first, last;
};

struct heap {
    uint32_t *item;
    uint32_t n;
};

struct prefix {
    struct pages *pages;
    uint32_t groups, full, windowed; /* bits of groups */
    int recurrent;                   /* one of the windowed ones is */
    uint64_t seed;
    struct group group[PAGES_GROUPS_MAX];

    struct block *block;
    uint32_t blocks_max, blocks_touched; /* touched: slots that were used ever */
    uint32_t slot_free;
    struct list dropped; /* free slots that still hold the name of a copy */
    struct list fresh;

    struct space *space;
    uint32_t *bucket;
    uint32_t space_free, space_oldest, space_newest;

    struct heap heap[HEAPS];
    uint64_t uses; /* so far */
    uint64_t clock_leaf, clock_snap;
    uint64_t ranks; /* drawn so far */

    uint32_t blocks, resident, cold, snapshots;
    uint64_t evicted, evicted_snapshots;
};

/* ---- Small answers ---- */
static inline uint32_t prefix_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t block_index(const struct prefix *p, const struct block *b) { return (uint32_t)(b - p->block); }
static inline int block_resident(const struct prefix *p, const struct block *b) {
    return p->full != 0 && ((b->has | b->none) & p->full) == p->full;
}
static inline int block_held(const struct block *b) { return b->pins > 0 || b->kid[2] > 0; }
/* Its copy alone gives back what the full groups need. */
static inline int block_copied(const struct prefix *p, const struct block *b) {
    return b->where != 0 && ((b->where_has | b->none) & p->full) == p->full;
}
static inline uint32_t block_end(const struct block *b) { return b->index * PAGE_TOKENS + b->n; }

/* Siblings in the order of their tokens. */
static inline uint32_t block_leftmost(const struct prefix *p, uint32_t i) {
    while (p->block[i].left != NO_BLOCK) i = p->block[i].left;
    return i;
}
static inline uint32_t block_next(const struct prefix *p, uint32_t i) {
    if (p->block[i].right != NO_BLOCK) return block_leftmost(p, p->block[i].right);
    while (p->block[i].up != NO_BLOCK && p->block[p->block[i].up].right == i) i = p->block[i].up;
    return p->block[i].up;
}

/* The first block whose page somebody who goes on at `position` needs. A window of 1 needs nothing; it is treated as 2,
 * so that a block that is cut always has a page to copy. */
static inline uint32_t window_first(uint32_t window, uint32_t position) {
    if (window == 0) return 0;
    uint32_t behind = window < 2 ? 1 : window - 1;
    return position <= behind ? 0 : (position - behind) / PAGE_TOKENS;
}
/* The first block whose page a snapshot at block `index` keeps. */
static inline uint32_t snapshot_first(const struct group *group, uint32_t index) {
    return group->shape.recurrent ? index : window_first(group->shape.window, index * PAGE_TOKENS);
}
static inline uint32_t blocks_none(const struct prefix *p, uint32_t index) {
    uint32_t none = 0;
    for (uint32_t g = 0; g < p->groups; g++) none |= (uint32_t)!pages_has(&p->group[g].shape, index) << g;
    return none;
}

/* ---- prefix_tree.c ---- */
struct block *prefix_block_of(const struct prefix *p, prefix_block name); /* NULL: gone */
prefix_block prefix_name_of(const struct prefix *p, const struct block *b);
struct space *prefix_space_of(const struct prefix *p, uint64_t number); /* NULL: it has no blocks */
void prefix_space_use(struct prefix *p, struct space *s);

struct near_block {
    struct block *block; /* NULL: none */
    uint32_t common;     /* tokens in common */
};
/* Of the siblings under `root` that have all bits of one OWN_ value: one with the longest beginning in common. */
struct near_block prefix_nearest(const struct prefix *p, uint32_t root, const int32_t *tokens, uint32_t n, uint8_t own);

/* A new block with no pages; evicts if it must. NULL: no room. */
struct block *prefix_block_new(struct prefix *p, uint64_t space, struct block *parent, const int32_t *tokens,
                               uint32_t n);
/* A longer one in the place of one that is its beginning: with its pages, without its name, pins and copy. */
void prefix_block_grow(struct prefix *p, struct block *b, const int32_t *tokens, uint32_t n);
/* The block and all behind it; then those before it that are there for nothing else. */
void prefix_block_remove(struct prefix *p, struct block *b);
/* Removes the block if nothing is left of it, and those before it. */
void prefix_block_prune(struct prefix *p, struct block *b);
/* After any change of what a block has: its flags, heaps, and what its parents count. */
void prefix_settle(struct prefix *p, struct block *b);
/* The tree names a page, or no longer. To be followed by prefix_settle. */
void prefix_gain(struct prefix *p, struct block *b, uint32_t group, uint32_t page);
void prefix_lose(struct prefix *p, struct block *b, uint32_t group);
uint32_t prefix_fresh_groups(const struct prefix *p, const struct block *b);
void prefix_fresh_note(struct prefix *p, struct block *b);
void prefix_fresh_drop(struct prefix *p, struct block *b);
uint32_t prefix_dropped_pop(struct prefix *p); /* NO_BLOCK: none */

/* ---- prefix_evict.c ---- */
void prefix_heaps_settle(struct prefix *p, struct block *b); /* it is where it belongs */
int prefix_heap_wants(const struct prefix *p, const struct block *b, uint32_t heap);
int prefix_heap_less(const struct prefix *p, uint32_t heap, uint32_t a, uint32_t b);
void prefix_heaps_leave(struct prefix *p, struct block *b);
void prefix_leaf_price(struct prefix *p, struct block *b); /* what it is worth has changed */
void prefix_leaf_use(struct prefix *p, struct block *b, uint32_t uses);
void prefix_snapshot_use(struct prefix *p, struct block *b, uint32_t uses);
void prefix_snapshot_drop(struct prefix *p, struct block *b); /* to be followed by prefix_block_prune */
/* A page of the tree is held by rows from now on, or by none. */
void prefix_page_busy(struct prefix *p, struct block *b, uint32_t group);
void prefix_page_idle(struct prefix *p, struct block *b, uint32_t group);
int prefix_evict_page(struct prefix *p, uint32_t group); /* something goes. 0: nothing can */
int prefix_evict_block(struct prefix *p);
int prefix_evict_space(struct prefix *p);

#endif
