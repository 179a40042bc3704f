/* Stored prefixes: a tree of blocks over token ids. A block is PAGE_TOKENS tokens (the last one of a stored sequence
 * may have fewer) and, in each layer group, the page that holds their state. So whoever reads the same tokens from the
 * same beginning may read the same pages. Knows no bytes and no clocks, allocates nothing after prefix_new. One thread:
 * the opener's, then the engine's.
 *
 * What is found is compared token by token, never by a hash alone, and only inside one space: a number that the caller
 * gives to everything that must be kept apart (tenant, salt, adapter and its scale, media).
 *
 * Who owns pages. Rows hold pages (prefix_alloc, prefix_ref, prefix_unref); the tree holds one reference more of each
 * page that it names. A page that only the tree holds can be taken back at any time: prefix_alloc does that when the
 * pool is empty. So prefix_alloc fails only if rows hold every page of the group (prefix_used counts those).
 *
 * Windowed groups. A block's page in a windowed group is of use only together with those of the whole window before the
 * place where somebody goes on. While a row holds such pages the tree lends them; when the last row lets go of one it
 * leaves the tree, unless a snapshot keeps it (prefix_keep): a snapshot at a block keeps the windowed pages that are
 * needed to go on at any position in that block. Full groups need no snapshots: every position of a stored block is a
 * place to go on.
 *
 * Recurrent groups are windowed ones in which a position needs one page, that of the block before it, with the state
 * after its last token. So with such a group only the ends of whole blocks are places to go on, a snapshot at a block
 * keeps that block's page alone, and a block that ends nowhere that somebody stopped has no page.
 *
 * A group may have pages for some blocks only (begin, end in struct pages_shape). At the others it counts as there.
 *
 * Copies elsewhere. A block may also have a copy outside of memory, under a name that only the caller understands
 * (`where`, and for which groups). It stays in the tree when its pages are taken, and can be matched as `cold`.
 *
 * Eviction is by cost (GreedyDual): what is lost has a credit, the tokens that must be read again without it for each
 * page that it frees, times what uses it had, on top of the credit of what was evicted last; the smallest goes first,
 * of equal ones the one used longest ago. In full groups a block without resident children goes, in windowed ones a
 * snapshot. Of a pinned block and those before it the pages that rows hold do not go, and not the block itself as
 * long as it has such a page or a copy elsewhere. Snapshots can go at any time: who needs their pages holds them.
 *
 * Invariants (prefix_check):
 *   - a block with a page in a full group has a parent with one; a row that holds a block's page in a full group and
 *     has pinned it or a block behind it holds those of all blocks before;
 *   - a page is named by at most one block, and then has one reference more than rows hold;
 *   - used + (pages that only the tree holds) + available = total, in every group;
 *   - siblings differ, and none is a beginning of another. */
#ifndef PAGES_PREFIX_H
#define PAGES_PREFIX_H

#include "pages/pages.h"

struct prefix;

/* A block's name: index and generation; 0: none. A name of a block that is gone is never found again. */
typedef uint64_t prefix_block;

enum {
    PREFIX_BLOCKS_MAX = 1 << 24,
    PREFIX_SPACES_MAX = 4096, /* spaces that have blocks at one time */
    PREFIX_COLD_LEAST = 64    /* tokens that a copy elsewhere must bring to be worth waiting for */
};

struct prefix_config {
    struct pages *pages; /* borrowed; from now on changed through this object only */
    uint32_t groups;
    struct pages_shape group[PAGES_GROUPS_MAX];
    uint32_t blocks_max; /* 0: stores nothing; rows still take their pages here */
    uint64_t seed;       /* any number: shapes the tree, never what is found */
};

int prefix_new(const struct prefix_config *config, struct prefix **out, cohort_error *err);
void prefix_free(struct prefix *p); /* the pages go with the pool */
/* Bytes of memory that the books of so many pages take, once all are in use. stores: blocks_max is not 0. */
uint64_t prefix_bytes(uint32_t groups, const uint32_t totals[], int stores);

/* ---- Rows' pages ---- */
/* A page with one reference, the caller's; evicts if it must. PAGE_NONE: rows hold all of the group. */
uint32_t prefix_alloc(struct prefix *p, uint32_t group);
void prefix_ref(struct prefix *p, uint32_t group, uint32_t page); /* of a page that a row or the tree holds */
void prefix_unref(struct prefix *p, uint32_t group, uint32_t page);
uint32_t prefix_used(const struct prefix *p, uint32_t group);                   /* pages that rows hold, each once */
uint32_t prefix_rows_of(const struct prefix *p, uint32_t group, uint32_t page); /* references that rows hold */

/* ---- Finding ---- */
struct prefix_match {
    uint32_t tokens; /* positions [0, tokens) can be taken from memory */
    uint32_t cold; /* >= tokens: if what is elsewhere is fetched. Equal to tokens unless it brings PREFIX_COLD_LEAST */
    uint32_t common;         /* whole blocks that are stored, in tokens: with windowed groups maybe no place to go on */
    prefix_block block;      /* holds position tokens - 1; 0 if tokens is 0 */
    prefix_block cold_block; /* holds position cold - 1 */
};
/* The longest usable beginning of tokens[0, n): n is the most that may be taken. Changes nothing. */
void prefix_find(const struct prefix *p, uint64_t space, const int32_t *tokens, uint32_t n, struct prefix_match *out);

/* Of one group, what somebody who goes on at `position` behind `block` needs: pages of blocks [first, end), first by
 * the window, both within the group's own blocks (pages_clamp). Writes their ids to table[first .. end): resident ones
 * get a reference for the caller, others (cold ones, and if `position` is inside a page the last one, which must be
 * copied or loaded) stay PAGE_NONE. Returns first. *partial: the page to copy from, with no reference, or PAGE_NONE.
 * `position` is behind the block's first token and not behind its last. The call for group 0 counts as a use of the
 * path (credits). */
uint32_t prefix_take(struct prefix *p, prefix_block block, uint32_t position, uint32_t group, uint32_t *table,
                     uint32_t *partial);

/* ---- Storing ---- */
/* Adds the block of tokens[0, n) (1 .. PAGE_TOKENS) behind `parent` (0: the first one of `space`), with the row's page
 * in each group (PAGE_NONE where it has none; a full group's must be there; with a recurrent group only whole blocks).
 * If the same block is there already its pages win: page[g] is replaced by the tree's, with a reference for the row,
 * and the row's own is let go of (equal tokens have equal bytes); where the tree has no page it takes the row's. A
 * shorter block that is the beginning of this one is replaced by it; one that this is the beginning of is taken instead
 * and nothing is added (page[] then stays as it is). What is replaced is gone, pinned or not; a snapshot at it stays if
 * page[] has all that it kept. The row's pages are ones that rows hold and that no other block names. Returns the
 * block; 0: no room (all pinned), or there is no parent to store behind (gone, shorter than a page, of another space,
 * or without pages in the full groups). */
prefix_block prefix_add(struct prefix *p, uint64_t space, prefix_block parent, const int32_t *tokens, uint32_t n,
                        uint32_t page[]);
/* Keeps the windowed pages that are needed to go on at any position in `block`. weight >= 1 multiplies the credit, also
 * of the blocks before it. 1: done (or there is nothing to keep); 0: some of them are not there any more, or no room.
 * Keeping again refreshes. */
int prefix_keep(struct prefix *p, prefix_block block, uint32_t weight);
/* A pinned block, and all before it, stay until the last unpin, if rows hold their pages in the full groups or they
 * have copies. A block that is gone is ignored. */
void prefix_pin(struct prefix *p, prefix_block block);
void prefix_unpin(struct prefix *p, prefix_block block);
/* Takes the block and all behind it out of the tree, pinned or not; rows keep their references. */
void prefix_remove(struct prefix *p, prefix_block block);
void prefix_remove_space(struct prefix *p, uint64_t space);

/* ---- Looking at blocks ---- */
struct prefix_view {
    prefix_block parent; /* 0: the first */
    uint64_t space;
    const int32_t *tokens; /* in the tree's memory */
    uint32_t n, index;     /* index: 0, 1, ... from the beginning */
    uint32_t page[PAGES_GROUPS_MAX];
    uint64_t where;     /* 0: no copy */
    uint32_t where_has; /* bit g: the copy has group g */
    uint32_t fresh;     /* bit g: prefix_next_fresh will tell of group g */
    uint32_t full;      /* bit g: a full group that has a page for this block */
};
int prefix_get(const struct prefix *p, prefix_block block, struct prefix_view *out); /* 0: gone */
/* The block of exactly these tokens behind `parent` (0: a first one of the space); 0: none. */
prefix_block prefix_child(const struct prefix *p, uint64_t space, prefix_block parent, const int32_t *tokens,
                          uint32_t n);

/* ---- Copies elsewhere ---- */
/* The next block that has something worth a copy and none of it: page in a full group, or in a windowed one that a
 * snapshot keeps; *groups: which. Parents come before children. 0: none left. Each is told once for each group, and not
 * for one that it had a copy of before (so a parent may have none any more: what is behind it cannot be found by copies
 * then). Without full groups, a block that has nothing, but stands before one that has, is told with no groups. */
prefix_block prefix_next_fresh(struct prefix *p, uint32_t *groups);
int prefix_has_fresh(const struct prefix *p); /* 1: there may be one more to tell */
/* The block has a copy: of these groups, and those told before under the same name. 0: it is gone. */
int prefix_set_where(struct prefix *p, prefix_block block, uint64_t where, uint32_t groups);
/* Its copy is no more; without pages it leaves the tree, with all behind it that has none. */
void prefix_forget_where(struct prefix *p, prefix_block block);
/* A block that is known from its copy only: as prefix_add, with no pages. The copy must have all full groups. 0: it is
 * of no use (as for prefix_add, or there is a longer one, or the block has another copy). */
prefix_block prefix_restore(struct prefix *p, uint64_t space, prefix_block parent, const int32_t *tokens, uint32_t n,
                            uint64_t where, uint32_t groups);
/* The block with a copy whose copy is worth least and has no copies behind it; 0: none. Never a pinned one. */
prefix_block prefix_coldest(const struct prefix *p);
/* The name of a copy whose block left the tree (removed, replaced by a longer one, evicted to make room for others), so
 * that nothing will ask for it any more; those behind come before those in front. Each is told once; if nobody asks
 * they may be forgotten when their places are needed. 0: none left. */
uint64_t prefix_next_dropped(struct prefix *p);

struct prefix_counts {
    uint32_t blocks, resident, cold, snapshots; /* resident: with pages; cold: with a copy elsewhere */
    uint32_t idle[PAGES_GROUPS_MAX];            /* pages that only the tree holds */
    uint64_t evicted, evicted_snapshots;        /* so far */
};
void prefix_get_counts(const struct prefix *p, struct prefix_counts *out);
int prefix_check(const struct prefix *p); /* 1 if every invariant holds (pages_check included); walks everything */

#endif
