/* Slots and names of blocks, spaces, the order of siblings, and what a change of one block means to its parents
 * (prefix_internal.h). A slot that is used again has another generation. */
#include <assert.h>
#include <string.h>

#include "base/rng.h"
#include "pages/prefix_internal.h"

/* ---- Names ---- */

prefix_block prefix_name_of(const struct prefix *p, const struct block *b) {
    return (uint64_t)b->generation << 32 | block_index(p, b);
}

struct block *prefix_block_of(const struct prefix *p, prefix_block name) {
    uint32_t i = (uint32_t)name;
    if (i >= p->blocks_touched) return NULL;
    struct block *b = &p->block[i];
    return b->n > 0 && b->generation == name >> 32 ? b : NULL;
}

static void next_generation(struct block *b) {
    if (++b->generation == 0) b->generation = 1;
}

/* ---- Spaces ---- */

static uint32_t *bucket_of(const struct prefix *p, uint64_t number) {
    uint64_t mixed = (number ^ p->seed) * UINT64_C(0x9E3779B97F4A7C15); /* 2^64 / the golden ratio, odd */
    return &p->bucket[(mixed >> 32) % PREFIX_SPACES_MAX];
}

struct space *prefix_space_of(const struct prefix *p, uint64_t number) {
    for (uint32_t i = *bucket_of(p, number); i != NO_BLOCK; i = p->space[i].next)
        if (p->space[i].number == number) return &p->space[i];
    return NULL;
}

static void space_unlist(struct prefix *p, struct space *s) {
    *(s->older == NO_BLOCK ? &p->space_oldest : &p->space[s->older].newer) = s->newer;
    *(s->newer == NO_BLOCK ? &p->space_newest : &p->space[s->newer].older) = s->older;
}

static void space_list(struct prefix *p, struct space *s) {
    uint32_t i = (uint32_t)(s - p->space);
    s->older = p->space_newest;
    s->newer = NO_BLOCK;
    *(s->older == NO_BLOCK ? &p->space_oldest : &p->space[s->older].newer) = i;
    p->space_newest = i;
}

void prefix_space_use(struct prefix *p, struct space *s) {
    space_unlist(p, s);
    space_list(p, s);
}

static struct space *space_new(struct prefix *p, uint64_t number) {
    if (p->space_free == NO_BLOCK && !prefix_evict_space(p)) return NULL;
    struct space *s = &p->space[p->space_free];
    p->space_free = s->next;
    uint32_t *bucket = bucket_of(p, number);
    *s = (struct space){.number = number, .root = NO_BLOCK, .next = *bucket};
    *bucket = (uint32_t)(s - p->space);
    space_list(p, s);
    return s;
}

static void space_free(struct prefix *p, struct space *s) {
    assert(s->root == NO_BLOCK && s->held == 0);
    uint32_t i = (uint32_t)(s - p->space), *at = bucket_of(p, s->number);
    while (*at != i) at = &p->space[*at].next;
    *at = s->next;
    space_unlist(p, s);
    s->next = p->space_free;
    p->space_free = i;
}

/* ---- The order of siblings ---- */

static struct block *at_index(const struct prefix *p, uint32_t i) { return i == NO_BLOCK ? NULL : &p->block[i]; }

static uint32_t *root_of(const struct prefix *p, const struct block *b) {
    return b->parent == NO_BLOCK ? &p->space[b->space].root : &p->block[b->parent].kids;
}

static uint32_t common(const int32_t *a, uint32_t a_n, const int32_t *b, uint32_t b_n) {
    uint32_t most = prefix_min(a_n, b_n), i = 0;
    while (i < most && a[i] == b[i]) i++;
    return i;
}

/* Whether `b` comes before the tokens, of which it has the first `same` in common, and is not equal. */
static int comes_before(const struct block *b, const int32_t *tokens, uint32_t n, uint32_t same) {
    return same < b->n && same < n ? b->tokens[same] < tokens[same] : b->n < n;
}

static uint8_t below_of(const struct prefix *p, uint32_t i) { return i == NO_BLOCK ? 0 : p->block[i].below; }

static uint8_t sum_below(const struct prefix *p, const struct block *b) {
    return (uint8_t)(b->own | below_of(p, b->left) | below_of(p, b->right));
}

/* From b upward, until nothing changes. */
static void below_changed(struct prefix *p, struct block *b) {
    for (; b != NULL; b = at_index(p, b->up)) {
        uint8_t below = sum_below(p, b);
        if (below == b->below) return;
        b->below = below;
    }
}

static void hang(struct prefix *p, struct block *b, uint32_t up, uint32_t instead_of) {
    b->up = up;
    if (up == NO_BLOCK)
        *root_of(p, b) = block_index(p, b);
    else
        *(p->block[up].left == instead_of ? &p->block[up].left : &p->block[up].right) = block_index(p, b);
}

/* b and the one above it change places. */
static void rotate(struct prefix *p, struct block *b) {
    uint32_t i = block_index(p, b), above = b->up;
    struct block *a = &p->block[above];
    uint32_t *inner = a->left == i ? &b->right : &b->left;
    *(a->left == i ? &a->left : &a->right) = *inner;
    if (*inner != NO_BLOCK) p->block[*inner].up = above;
    *inner = above;
    hang(p, b, a->up, above);
    a->up = i;
    a->below = sum_below(p, a);
    b->below = sum_below(p, b);
}

static void siblings_enter(struct prefix *p, struct block *b) {
    uint32_t *link = root_of(p, b), up = NO_BLOCK;
    while (*link != NO_BLOCK) {
        struct block *at = &p->block[*link];
        up = *link;
        link = comes_before(at, b->tokens, b->n, common(at->tokens, at->n, b->tokens, b->n)) ? &at->right : &at->left;
    }
    *link = block_index(p, b);
    b->up = up;
    b->left = b->right = NO_BLOCK;
    b->below = b->own;
    while (b->up != NO_BLOCK && p->block[b->up].rank < b->rank) rotate(p, b);
    below_changed(p, at_index(p, b->up));
}

static void siblings_leave(struct prefix *p, struct block *b) {
    while (b->left != NO_BLOCK || b->right != NO_BLOCK) {
        struct block *left = at_index(p, b->left), *right = at_index(p, b->right);
        rotate(p, right == NULL || (left != NULL && left->rank > right->rank) ? left : right);
    }
    uint32_t i = block_index(p, b);
    if (b->up == NO_BLOCK) {
        *root_of(p, b) = NO_BLOCK;
        return;
    }
    struct block *up = &p->block[b->up];
    *(up->left == i ? &up->left : &up->right) = NO_BLOCK;
    below_changed(p, up);
}

/* A neighbour on one side: a block, or the one nearest to the other side in the treap under it. */
struct side {
    uint32_t at;
    int under;
};

static void side_resolve(const struct prefix *p, struct side side, int rightmost, const int32_t *tokens, uint32_t n,
                         uint8_t own, struct near_block *best) {
    struct block *b = at_index(p, side.at);
    while (b != NULL && side.under) {
        uint32_t outer = rightmost ? b->right : b->left;
        if (below_of(p, outer) & own) {
            b = &p->block[outer];
        } else if (b->own & own) {
            break;
        } else {
            b = &p->block[rightmost ? b->left : b->right];
        }
    }
    if (b == NULL) return;
    uint32_t same = common(b->tokens, b->n, tokens, n);
    if (best->block == NULL || same > best->common) *best = (struct near_block){b, same};
}

struct near_block prefix_nearest(const struct prefix *p, uint32_t root, const int32_t *tokens, uint32_t n,
                                 uint8_t own) {
    struct side before = {NO_BLOCK, 0}, after = {NO_BLOCK, 0};
    struct near_block best = {NULL, 0};
    for (uint32_t i = root; below_of(p, i) & own;) {
        struct block *b = &p->block[i];
        uint32_t same = common(b->tokens, b->n, tokens, n);
        int equal = same == n && same == b->n, mine = b->own & own;
        if (equal && mine) return (struct near_block){b, same};
        int earlier = equal || comes_before(b, tokens, n, same), later = equal || !earlier;
        if (earlier) {
            if (mine)
                before = (struct side){i, 0};
            else if (below_of(p, b->left) & own)
                before = (struct side){b->left, 1};
        }
        if (later) {
            if (mine)
                after = (struct side){i, 0};
            else if (below_of(p, b->right) & own)
                after = (struct side){b->right, 1};
        }
        if (equal) break;
        i = earlier ? b->right : b->left;
    }
    side_resolve(p, before, 1, tokens, n, own, &best);
    side_resolve(p, after, 0, tokens, n, own, &best);
    return best;
}

/* ---- Lists through the slots ---- */

static void list_append(struct prefix *p, struct list *list, struct block *b) {
    uint32_t i = block_index(p, b);
    b->fresh_previous = list->last;
    b->fresh_next = NO_BLOCK;
    *(list->last == NO_BLOCK ? &list->first : &p->block[list->last].fresh_next) = i;
    list->last = i;
}

static void list_take(struct prefix *p, struct list *list, struct block *b) {
    uint32_t next = b->fresh_next, previous = b->fresh_previous;
    *(previous == NO_BLOCK ? &list->first : &p->block[previous].fresh_next) = next;
    *(next == NO_BLOCK ? &list->last : &p->block[next].fresh_previous) = previous;
}

uint32_t prefix_fresh_groups(const struct prefix *p, const struct block *b) {
    uint32_t worth = block_resident(p, b) ? p->full : 0;
    for (uint32_t g = 0; g < p->groups; g++)
        if (b->keep[g] > 0) worth |= UINT32_C(1) << g;
    return worth & ~b->told & ~b->where_has & ~b->none;
}

void prefix_fresh_note(struct prefix *p, struct block *b) {
    if (b->fresh || prefix_fresh_groups(p, b) == 0) return;
    b->fresh = 1;
    list_append(p, &p->fresh, b);
}

void prefix_fresh_drop(struct prefix *p, struct block *b) {
    if (!b->fresh) return;
    b->fresh = 0;
    list_take(p, &p->fresh, b);
}

/* A slot whose block is gone. It stays aside while the name of its copy is still to be told. */
static void slot_give(struct prefix *p, struct block *b) {
    b->n = 0;
    next_generation(b);
    if (b->where != 0) {
        list_append(p, &p->dropped, b);
    } else {
        b->fresh_next = p->slot_free;
        p->slot_free = block_index(p, b);
    }
}

uint32_t prefix_dropped_pop(struct prefix *p) {
    uint32_t i = p->dropped.first;
    if (i != NO_BLOCK) list_take(p, &p->dropped, &p->block[i]);
    return i;
}

/* A slot that costs nobody anything; else NULL. */
static struct block *slot_idle(struct prefix *p) {
    if (p->slot_free != NO_BLOCK) {
        struct block *b = &p->block[p->slot_free];
        p->slot_free = b->fresh_next;
        return b;
    }
    if (p->blocks_touched == p->blocks_max) return NULL;
    struct block *b = &p->block[p->blocks_touched++];
    b->generation = 1;
    return b;
}

static struct block *slot_new(struct prefix *p, struct block *parent) {
    struct block *b = slot_idle(p);
    if (b != NULL) return b;
    uint32_t dropped = prefix_dropped_pop(p); /* nobody asked for it in time */
    if (dropped != NO_BLOCK) return &p->block[dropped];
    if (parent != NULL) { /* it may be an end itself */
        parent->pins++;
        prefix_settle(p, parent);
    }
    int gone = prefix_evict_block(p);
    if (parent != NULL) {
        parent->pins--;
        prefix_settle(p, parent);
    }
    if (!gone) return NULL;
    b = slot_idle(p);
    return b != NULL ? b : &p->block[prefix_dropped_pop(p)];
}

/* ---- Blocks ---- */

void prefix_gain(struct prefix *p, struct block *b, uint32_t group, uint32_t page) {
    struct group *g = &p->group[group];
    assert(b->page[group] == PAGE_NONE && g->owner[page] == NO_BLOCK);
    pages_ref(p->pages, group, page);
    g->owner[page] = block_index(p, b);
    b->page[group] = page;
    p->resident += b->has == 0;
    b->has |= UINT32_C(1) << group;
}

void prefix_lose(struct prefix *p, struct block *b, uint32_t group) {
    struct group *g = &p->group[group];
    uint32_t page = b->page[group];
    assert(page != PAGE_NONE && b->keep[group] == 0 && g->owner[page] == block_index(p, b));
    g->owner[page] = NO_BLOCK;
    b->page[group] = PAGE_NONE;
    b->has &= ~(UINT32_C(1) << group);
    p->resident -= b->has == 0;
    pages_unref(p->pages, group, page);
}

static uint8_t own_of(const struct prefix *p, const struct block *b) {
    uint32_t all = p->full | p->windowed;
    uint8_t own = OWN_ANY;
    if ((b->has | b->none) == all) own |= OWN_PAGES;
    if ((b->has | b->where_has | b->none) == all) own |= OWN_STATE;
    return own;
}

static uint8_t derived_of(const struct prefix *p, const struct block *b) {
    uint8_t derived = 0;
    if (block_resident(p, b)) derived |= KID_RESIDENT;
    if (b->where != 0 || b->kid[1] > 0) derived |= KID_COPIED;
    if (block_held(b)) derived |= KID_HELD;
    return derived;
}

/* What its parent, or its space, counts of it. */
static void count_derived(struct prefix *p, struct block *b, uint8_t derived) {
    for (uint32_t bit = 0; bit < KID_BITS; bit++) {
        uint32_t change = (derived >> bit & 1U) - (b->derived >> bit & 1U);
        if (b->parent != NO_BLOCK)
            p->block[b->parent].kid[bit] += change;
        else if (bit == 2)
            p->space[b->space].held += change;
    }
    b->derived = derived;
}

void prefix_settle(struct prefix *p, struct block *b) {
    for (; b != NULL; b = at_index(p, b->parent)) {
        uint8_t own = own_of(p, b), derived = derived_of(p, b);
        if (own != b->own) {
            b->own = own;
            below_changed(p, b);
            prefix_leaf_price(p, b);
        }
        prefix_heaps_settle(p, b);
        if (derived == b->derived) return;
        count_derived(p, b, derived);
    }
}

struct block *prefix_block_new(struct prefix *p, uint64_t space, struct block *parent, const int32_t *tokens,
                               uint32_t n) {
    struct block *b = slot_new(p, parent);
    if (b == NULL) return NULL;
    struct space *s = parent != NULL ? &p->space[parent->space] : prefix_space_of(p, space);
    if (s == NULL) s = space_new(p, space);
    if (s == NULL) {
        b->where = 0;
        slot_give(p, b);
        return NULL;
    }
    uint32_t generation = b->generation;
    memset(b, 0, sizeof *b);
    b->generation = generation;
    memcpy(b->tokens, tokens, n * sizeof *tokens);
    b->n = n;
    b->space = (uint32_t)(s - p->space);
    b->parent = b->kids = NO_BLOCK;
    if (parent != NULL) {
        b->parent = block_index(p, parent);
        b->index = parent->index + 1;
        parent->kids_n++;
    }
    b->none = blocks_none(p, b->index);
    b->rank = (uint32_t)rng_u64(p->seed, 0, p->ranks++);
    b->own = OWN_ANY;
    for (uint32_t g = 0; g < PAGES_GROUPS_MAX; g++) b->page[g] = PAGE_NONE;
    for (uint32_t h = 0; h < HEAPS; h++) b->place[h] = NO_BLOCK;
    b->leaf.weight = b->leaf.uses = 1;
    s->blocks++;
    p->blocks++;
    siblings_enter(p, b);
    prefix_settle(p, b);
    prefix_settle(p, parent);
    return b;
}

void prefix_block_grow(struct prefix *p, struct block *b, const int32_t *tokens, uint32_t n) {
    assert(b->n < n && b->kids == NO_BLOCK && common(b->tokens, b->n, tokens, b->n) == b->n);
    if (b->where != 0) {
        struct block *aside = slot_idle(p); /* if there is none, the name of the copy is lost */
        if (aside != NULL) {
            aside->where = b->where;
            slot_give(p, aside);
        }
        p->cold--;
        b->where = 0;
        b->where_has = 0;
    }
    /* It keeps its place among its siblings: none of them lies between a block and what it is the beginning of. */
    memcpy(b->tokens, tokens, n * sizeof *tokens);
    b->n = n;
    b->pins = b->told = 0;
    next_generation(b);
    prefix_settle(p, b);
}

/* A block that has nothing behind it. */
static void end_remove(struct prefix *p, struct block *b) {
    assert(b->kids == NO_BLOCK && b->kids_n == 0);
    struct block *parent = at_index(p, b->parent);
    if (b->snapshot) prefix_snapshot_drop(p, b);
    for (uint32_t g = 0; g < p->groups; g++)
        if (b->page[g] != PAGE_NONE) prefix_lose(p, b, g);
    prefix_fresh_drop(p, b);
    prefix_heaps_leave(p, b);
    siblings_leave(p, b);
    count_derived(p, b, 0);
    p->cold -= b->where != 0;
    p->blocks--;
    struct space *s = &p->space[b->space];
    if (--s->blocks == 0) space_free(p, s);
    slot_give(p, b);
    if (parent != NULL) {
        parent->kids_n--;
        prefix_settle(p, parent);
    }
}

void prefix_block_remove(struct prefix *p, struct block *b) {
    struct block *before = at_index(p, b->parent), *at = b;
    for (;;) {
        while (at->kids != NO_BLOCK) at = &p->block[at->kids];
        struct block *parent = at_index(p, at->parent);
        int last = at == b;
        end_remove(p, at);
        if (last) break;
        at = parent;
    }
    if (before != NULL) prefix_block_prune(p, before);
}

/* With full groups a block has pages or a copy as long as it is there. Without them those before a snapshot's window
 * have nothing, and are there for what is behind them. */
void prefix_block_prune(struct prefix *p, struct block *b) {
    while (b != NULL && p->full == 0 && b->kids_n == 0 && b->has == 0 && b->where == 0 && !block_held(b)) {
        struct block *before = at_index(p, b->parent);
        end_remove(p, b);
        b = before;
    }
}
