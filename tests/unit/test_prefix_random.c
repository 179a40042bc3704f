/* The prefix store under random use against a naive model. The model knows what bytes every page would hold: the state
 * of a position is a number that depends on all tokens up to it; a page of a recurrent group holds one such number, of
 * the last position that was computed in its block. Rows write such numbers into their pages, publish, keep, take,
 * leave and fail in random order, in pools so small that something is evicted all the time; copies are
 * made, lost and loaded. After each step:
 *   - every page that was taken holds what its tokens say;
 *   - what is found is the longest beginning that plain loops over all stored sequences find;
 *   - no row lost a page, pages run out only when rows hold them all, and nothing pinned is gone;
 *   - prefix_check holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "pages/prefix.h"
#include "prefix_setups.h"

enum {
    BLOCKS_LONG = 7,
    TOKENS_MAX = BLOCKS_LONG * PAGE_TOKENS,
    ROWS = 4,
    KNOWN_MAX = 96, /* blocks of the model */
    COPIES_MAX = 256,
    PAGES_MAX = 64,
    PINS_MAX = 3
};

/* A stored block as the model knows it: all tokens from the beginning to its end. */
struct known {
    prefix_block name;
    uint64_t space;
    int32_t tokens[TOKENS_MAX];
    uint32_t n;
    uint32_t told;
    int told_at_all;
    uint64_t where;
};

/* A copy elsewhere holds the pages of one block. */
struct copy {
    uint64_t where;
    uint32_t groups;
    uint32_t index;
    uint64_t bytes[PAGES_GROUPS_MAX][PAGE_TOKENS];
};

struct row {
    int runs;
    uint64_t space;
    int32_t tokens[TOKENS_MAX];
    uint64_t bytes[TOKENS_MAX]; /* what a page must hold for each position */
    uint32_t n, done, published;
    uint32_t table[PAGES_GROUPS_MAX][BLOCKS_LONG];
    uint32_t first[PAGES_GROUPS_MAX];
    prefix_block block; /* pinned */
    prefix_block own[BLOCKS_LONG];
    uint32_t own_n;
};

struct world {
    const struct setup *setup;
    struct pages *pages;
    struct prefix *p;
    struct known known[KNOWN_MAX];
    uint32_t known_n;
    struct copy copy[COPIES_MAX];
    uint64_t copies; /* so far */
    struct row row[ROWS];
    uint64_t bytes[PAGES_GROUPS_MAX][PAGES_MAX][PAGE_TOKENS];
    uint32_t held[PAGES_GROUPS_MAX][PAGES_MAX]; /* references of rows */
    prefix_block stray[PINS_MAX];
    uint64_t seed, step, draws;
    int removed;                                         /* something was taken out in this step */
    uint64_t hits, hit_tokens, cold_hits, cut_hits, dry; /* so that the test can tell that it saw something */
};

static uint32_t draw(struct world *w, uint32_t below) { return (uint32_t)(rng_u64(w->seed, 5, w->draws++) % below); }

#define HOLDS(w, what)                                                                                                 \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            print_message("setup \"%s\", seed %llu, step %llu\n", (w)->setup->name, (unsigned long long)(w)->seed,     \
                          (unsigned long long)(w)->step);                                                              \
            assert_true(what);                                                                                         \
        }                                                                                                              \
    } while (0)

/* ---- The model ---- */

static void bytes_of(uint64_t space, const int32_t *tokens, uint32_t n, uint64_t *bytes) {
    uint64_t state = space * 1000003 + 17;
    for (uint32_t i = 0; i < n; i++) {
        state = (state ^ (uint64_t)(tokens[i] + 1)) * UINT64_C(0x9E3779B97F4A7C15);
        bytes[i] = state ^= state >> 29;
    }
}

static struct known *known_find(struct world *w, prefix_block name) {
    for (uint32_t i = 0; i < w->known_n; i++)
        if (w->known[i].name == name) return &w->known[i];
    return NULL;
}

/* Forgets what the store no longer has, and compares the rest. */
static void known_refresh(struct world *w) {
    for (uint32_t i = 0; i < w->known_n;) {
        struct known *k = &w->known[i];
        struct prefix_view view;
        if (!prefix_get(w->p, k->name, &view)) {
            *k = w->known[--w->known_n];
            continue;
        }
        HOLDS(w, view.space == k->space && view.where == k->where);
        HOLDS(w, view.index == (k->n - 1) / PAGE_TOKENS && view.index * PAGE_TOKENS + view.n == k->n);
        HOLDS(w, memcmp(view.tokens, &k->tokens[view.index * PAGE_TOKENS], view.n * sizeof(int32_t)) == 0);
        HOLDS(w, (view.parent == 0) == (view.index == 0));
        HOLDS(w, prefix_child(w->p, view.space, view.parent, view.tokens, view.n) == k->name);
        i++;
    }
}

static void known_add(struct world *w, prefix_block name, uint64_t space, const int32_t *tokens, uint32_t n,
                      uint64_t where) {
    struct known *k = known_find(w, name);
    if (k == NULL) {
        known_refresh(w); /* what was evicted for it */
        HOLDS(w, w->known_n < KNOWN_MAX);
        k = &w->known[w->known_n++];
        *k = (struct known){.name = name, .space = space, .n = n};
        memcpy(k->tokens, tokens, n * sizeof *tokens);
    }
    if (where == 0) return;
    k->where = where;
    k->told_at_all = 1; /* what has had a copy is as if told */
}

/* What the brute search needs of a block. */
static uint32_t groups_there(struct world *w, const struct known *k, int cold) {
    struct prefix_view view;
    HOLDS(w, prefix_get(w->p, k->name, &view));
    uint32_t there = cold ? view.where_has : 0;
    for (uint32_t g = 0; g < w->setup->groups; g++)
        if (view.page[g] != PAGE_NONE) there |= UINT32_C(1) << g;
    return there;
}

static int is_recurrent(const struct setup *s, uint32_t g) { return s->recurrent >> g & 1U; }
/* Whether a group has pages for block `index`. */
static int exists(const struct setup *s, uint32_t g, uint32_t index) {
    return index >= s->begin[g] && (s->end[g] == 0 || index < s->end[g]);
}

/* Whether block `index` of a reader at `position` is needed in a group. */
static int needs(const struct setup *s, uint32_t g, uint32_t position, uint32_t index) {
    if (!exists(s, g, index)) return 0;
    if (is_recurrent(s, g)) return position > 0 && index == (position - 1) / PAGE_TOKENS;
    uint32_t window = s->window[g] == 1 ? 2 : s->window[g];
    if (window == 0) return 1;
    uint32_t from = position + 1 > window ? position + 1 - window : 0;
    return index >= from / PAGE_TOKENS;
}

static const struct known *known_path(struct world *w, uint64_t space, const int32_t *tokens, uint32_t n) {
    for (uint32_t i = 0; i < w->known_n; i++)
        if (w->known[i].space == space && w->known[i].n == n &&
            memcmp(w->known[i].tokens, tokens, n * sizeof *tokens) == 0)
            return &w->known[i];
    return NULL;
}

/* Whether `position` of the tokens can be gone on from, when `last` is the block that holds the token before it. */
static int usable(struct world *w, uint64_t space, const int32_t *tokens, uint32_t position, const struct known *last,
                  int cold) {
    if (w->setup->recurrent != 0 && position % PAGE_TOKENS != 0) return 0; /* there is no state in the middle */
    for (uint32_t index = 0; index <= (position - 1) / PAGE_TOKENS; index++) {
        const struct known *k = last;
        if (index < (position - 1) / PAGE_TOKENS) {
            k = known_path(w, space, tokens, (index + 1) * PAGE_TOKENS);
            if (k == NULL) return 0;
        }
        uint32_t there = groups_there(w, k, cold);
        for (uint32_t g = 0; g < w->setup->groups; g++)
            if (needs(w->setup, g, position, index) && !(there >> g & 1U)) return 0;
    }
    return 1;
}

static uint32_t longest(struct world *w, uint64_t space, const int32_t *tokens, uint32_t n, int cold) {
    for (uint32_t position = n; position > 0; position--) {
        uint32_t index = (position - 1) / PAGE_TOKENS;
        for (uint32_t i = 0; i < w->known_n; i++) {
            const struct known *k = &w->known[i];
            if (k->space != space || k->n < position || (k->n - 1) / PAGE_TOKENS != index) continue;
            if (memcmp(k->tokens, tokens, position * sizeof *tokens) != 0) continue;
            if (usable(w, space, tokens, position, k, cold)) return position;
        }
    }
    return 0;
}

/* Whether a snapshot can be kept at a block: all that is needed to go on anywhere in it is in memory. */
static int can_keep(struct world *w, const struct known *k) {
    const struct setup *s = w->setup;
    uint32_t last = (k->n - 1) / PAGE_TOKENS;
    int windows = 0;
    for (uint32_t g = 0; g < s->groups; g++) windows |= s->window[g] != 0;
    for (uint32_t index = 0; windows && index <= last; index++) {
        const struct known *at = index == last ? k : known_path(w, k->space, k->tokens, (index + 1) * PAGE_TOKENS);
        HOLDS(w, at != NULL);
        uint32_t there = groups_there(w, at, 0);
        for (uint32_t g = 0; g < s->groups; g++) {
            int wanted = is_recurrent(s, g) ? index == last : needs(s, g, last * PAGE_TOKENS, index);
            if (s->window[g] != 0 && wanted && exists(s, g, index) && !(there >> g & 1U)) return 0;
            if (s->window[g] == 0 && index == last && exists(s, g, index) && !(there >> g & 1U)) return 0;
        }
    }
    return 1;
}

static struct prefix_match find(struct world *w, uint64_t space, const int32_t *tokens, uint32_t n) {
    struct prefix_match m;
    prefix_find(w->p, space, tokens, n, &m);
    uint32_t hot = longest(w, space, tokens, n, 0), cold = longest(w, space, tokens, n, 1);
    HOLDS(w, m.tokens == hot);
    HOLDS(w, m.cold == (cold >= hot + PREFIX_COLD_LEAST ? cold : hot));
    HOLDS(w, (m.block == 0) == (m.tokens == 0));
    HOLDS(w, m.cold != m.tokens || m.cold_block == m.block);
    return m;
}

/* ---- Rows ---- */

static struct copy *copy_of(struct world *w, uint64_t where) {
    struct copy *c = &w->copy[where % COPIES_MAX];
    HOLDS(w, where != 0 && c->where == where);
    return c;
}

/* The state after the first n tokens, as a recurrent page holds it. */
static void state_write(uint64_t *page, const uint64_t *bytes, uint32_t n) {
    page[0] = n;
    page[1] = bytes[n - 1];
}

static int state_is(const uint64_t *page, const uint64_t *bytes, uint32_t n) {
    return page[0] == n && page[1] == bytes[n - 1];
}

/* Of a recurrent group: from the state after `from` tokens, which is there, to that after `to`. If it was in the middle
 * of a block that is left now, it is of no use any more, and no state of that block. */
static void state_move(struct world *w, struct row *r, uint32_t g, uint32_t from, uint32_t to) {
    if (from > 0) HOLDS(w, state_is(w->bytes[g][r->table[g][(from - 1) / PAGE_TOKENS]], r->bytes, from));
    uint32_t *page = &r->table[g][from / PAGE_TOKENS];
    if (from % PAGE_TOKENS != 0 && from / PAGE_TOKENS != (to - 1) / PAGE_TOKENS) {
        w->held[g][*page]--;
        prefix_unref(w->p, g, *page);
        *page = PAGE_NONE;
    }
    state_write(w->bytes[g][r->table[g][(to - 1) / PAGE_TOKENS]], r->bytes, to);
}

static void page_write(struct world *w, struct row *r, uint32_t g, uint32_t from, uint32_t to) {
    if (is_recurrent(w->setup, g)) {
        state_move(w, r, g, from, to);
        return;
    }
    for (uint32_t i = from; i < to; i++)
        if (exists(w->setup, g, i / PAGE_TOKENS))
            w->bytes[g][r->table[g][i / PAGE_TOKENS]][i % PAGE_TOKENS] = r->bytes[i];
}

/* All that the row needs to go on is in its pages. */
static void row_verify(struct world *w, struct row *r) {
    for (uint32_t g = 0; g < w->setup->groups; g++)
        for (uint32_t i = 0; i < r->done; i++) {
            if (!needs(w->setup, g, r->done, i / PAGE_TOKENS)) continue;
            uint32_t page = r->table[g][i / PAGE_TOKENS];
            HOLDS(w, page != PAGE_NONE);
            if (is_recurrent(w->setup, g))
                HOLDS(w, state_is(w->bytes[g][page], r->bytes, r->done));
            else
                HOLDS(w, w->bytes[g][page][i % PAGE_TOKENS] == r->bytes[i]);
        }
}

static int row_alloc(struct world *w, struct row *r, uint32_t g, uint32_t index) {
    uint32_t page = prefix_alloc(w->p, g);
    if (page == PAGE_NONE) {
        w->dry++;
        uint32_t held = 0;
        for (uint32_t i = 0; i < w->setup->pages[g]; i++) held += w->held[g][i] > 0;
        HOLDS(w, held == w->setup->pages[g] || w->setup->stray_pins);
        return 0;
    }
    HOLDS(w, w->held[g][page] == 0);
    w->held[g][page] = 1;
    r->table[g][index] = page;
    memset(w->bytes[g][page], 0xA5, sizeof w->bytes[g][page]); /* nobody may rely on what was there */
    return 1;
}

static void row_release(struct world *w, struct row *r, uint32_t g, uint32_t to) {
    for (uint32_t i = r->first[g]; i < to; i++) {
        uint32_t page = r->table[g][i];
        if (page == PAGE_NONE) continue;
        w->held[g][page]--;
        prefix_unref(w->p, g, page);
        r->table[g][i] = PAGE_NONE;
    }
    if (to > r->first[g]) r->first[g] = to;
}

/* Adds the block of positions [from, to) of the row. */
static prefix_block row_add(struct world *w, struct row *r, uint32_t from, uint32_t to) {
    uint32_t page[PAGES_GROUPS_MAX], before[PAGES_GROUPS_MAX];
    for (uint32_t g = 0; g < PAGES_GROUPS_MAX; g++)
        before[g] = page[g] = g < w->setup->groups ? r->table[g][from / PAGE_TOKENS] : PAGE_NONE;
    struct prefix_match m;
    prefix_find(w->p, r->space, r->tokens, to, &m);
    prefix_block parent = from == 0 ? 0 : r->block;
    prefix_block name = prefix_add(w->p, r->space, parent, r->tokens + from, to - from, page);
    for (uint32_t g = 0; g < w->setup->groups; g++) {
        if (page[g] == before[g]) continue;
        w->held[g][before[g]]--;
        w->held[g][page[g]]++;
        r->table[g][from / PAGE_TOKENS] = page[g];
    }
    if (name == 0) return 0;
    struct prefix_view view;
    HOLDS(w, prefix_get(w->p, name, &view));
    HOLDS(w, view.n >= to - from && view.parent == parent);
    if (view.n == to - from) {
        if (known_find(w, name) == NULL && r->own_n < BLOCKS_LONG) r->own[r->own_n++] = name;
        known_add(w, name, r->space, r->tokens, to, view.where);
        for (uint32_t g = 0; g < w->setup->groups; g++) HOLDS(w, page[g] == PAGE_NONE || view.page[g] == page[g]);
    } else {
        HOLDS(w, known_find(w, name) != NULL);
    }
    return name;
}

static void row_publish(struct world *w, struct row *r) {
    for (; (r->published + 1) * PAGE_TOKENS <= r->done; r->published++) {
        uint32_t from = r->published * PAGE_TOKENS;
        prefix_block name = from > 0 && r->block == 0 ? 0 : row_add(w, r, from, from + PAGE_TOKENS);
        if (name != 0) {
            struct prefix_view view;
            HOLDS(w, prefix_get(w->p, name, &view) && view.n == PAGE_TOKENS);
            prefix_pin(w->p, name);
        }
        if (r->block != 0) prefix_unpin(w->p, r->block);
        r->block = name;
    }
}

static void row_leave(struct world *w, struct row *r, int sound) {
    if (sound) {
        row_publish(w, r);
        uint32_t from = r->published * PAGE_TOKENS;
        prefix_block last = r->block;
        int rest = r->done > from && w->setup->recurrent == 0;
        if (rest && draw(w, 4) > 0 && (from == 0 || r->block != 0)) last = row_add(w, r, from, r->done);
        if (last != 0 && draw(w, 3) > 0) prefix_keep(w->p, last, 1 + draw(w, 5));
    } else {
        for (uint32_t i = r->own_n; i-- > 0;) prefix_remove(w->p, r->own[i]);
        w->removed = 1;
    }
    int unpin_first = (int)draw(w, 2);
    if (unpin_first) prefix_unpin(w->p, r->block);
    for (uint32_t g = 0; g < w->setup->groups; g++) row_release(w, r, g, BLOCKS_LONG);
    if (!unpin_first) prefix_unpin(w->p, r->block);
    r->runs = 0;
}

/* Pages for positions up to `to`: of a recurrent group only the last block's. */
static int row_grow(struct world *w, struct row *r, uint32_t to) {
    for (uint32_t g = 0; g < w->setup->groups; g++)
        for (uint32_t i = r->done / PAGE_TOKENS; i * PAGE_TOKENS < to; i++) {
            if (!exists(w->setup, g, i) || r->table[g][i] != PAGE_NONE) continue;
            if (is_recurrent(w->setup, g) && i != (to - 1) / PAGE_TOKENS) continue;
            if (!row_alloc(w, r, g, i)) return 0;
        }
    return 1;
}

/* Computes some tokens. With recurrent groups it often ends with a block, as rows do that want a state there. */
static void row_step(struct world *w, struct row *r) {
    uint32_t to = r->done + 1 + draw(w, 70);
    if (w->setup->recurrent != 0 && draw(w, 2) == 0) to += PAGE_TOKENS - 1 - (to - 1) % PAGE_TOKENS;
    if (to > r->n) to = r->n;
    if (!row_grow(w, r, to)) {
        row_leave(w, r, 1);
        return;
    }
    for (uint32_t g = 0; g < w->setup->groups; g++) page_write(w, r, g, r->done, to);
    r->done = to;
    row_verify(w, r);
    if (draw(w, 5) > 0) row_publish(w, r);
    if (r->block != 0 && draw(w, 3) == 0) prefix_keep(w->p, r->block, 1);
    for (uint32_t g = 0; g < w->setup->groups; g++) {
        uint32_t window = w->setup->window[g] == 1 ? 2 : w->setup->window[g];
        if (window == 0 || r->done < window + PAGES_SLACK) continue;
        uint32_t first = (r->done - window + 1 - PAGES_SLACK) / PAGE_TOKENS;
        row_release(w, r, g, first);
    }
    row_verify(w, r);
    if (r->done == r->n) row_leave(w, r, draw(w, 8) > 0);
}

/* Gives the row what a match brought, and what it must have of its own. 0: no pages. */
static int row_settle(struct world *w, struct row *r, prefix_block block, uint32_t position) {
    int ok = 1;
    uint32_t partial[PAGES_GROUPS_MAX];
    for (uint32_t g = 0; g < w->setup->groups; g++) {
        r->first[g] = prefix_take(w->p, block, position, g, r->table[g], &partial[g]);
        for (uint32_t i = r->first[g]; i < BLOCKS_LONG; i++)
            if (r->table[g][i] != PAGE_NONE) w->held[g][r->table[g][i]]++;
    }
    /* a page to copy from is without a reference: it is copied before anything can take it */
    for (uint32_t g = 0; g < w->setup->groups; g++)
        if (partial[g] != PAGE_NONE) {
            w->held[g][partial[g]]++;
            prefix_ref(w->p, g, partial[g]);
        }
    for (uint32_t g = 0; ok && g < w->setup->groups; g++)
        for (uint32_t i = r->first[g]; ok && i * PAGE_TOKENS < position; i++) {
            if (r->table[g][i] != PAGE_NONE || !exists(w->setup, g, i)) continue;
            HOLDS(w, needs(w->setup, g, position, i));
            ok = row_alloc(w, r, g, i);
            if (!ok) break;
            uint32_t to = r->table[g][i];
            if (i == position / PAGE_TOKENS && partial[g] != PAGE_NONE) {
                memcpy(w->bytes[g][to], w->bytes[g][partial[g]], sizeof w->bytes[g][to]);
                continue;
            }
            prefix_block at = block; /* load it */
            struct prefix_view view;
            while (prefix_get(w->p, at, &view) && view.index > i) at = view.parent;
            HOLDS(w, view.index == i && (view.where_has >> g & 1U));
            HOLDS(w, copy_of(w, view.where)->groups >> g & 1U);
            memcpy(w->bytes[g][to], copy_of(w, view.where)->bytes[g], sizeof w->bytes[g][to]);
        }
    for (uint32_t g = 0; g < w->setup->groups; g++)
        if (partial[g] != PAGE_NONE) {
            w->held[g][partial[g]]--;
            prefix_unref(w->p, g, partial[g]);
        }
    return ok;
}

static void row_tokens(struct world *w, struct row *r) {
    r->n = 1 + draw(w, TOKENS_MAX);
    uint32_t same = 0;
    if (w->known_n > 0 && draw(w, 8) > 0) {
        const struct known *k = &w->known[draw(w, w->known_n)];
        for (uint32_t tries = draw(w, 4); tries > 0; tries--) { /* longer ones rather */
            const struct known *other = &w->known[draw(w, w->known_n)];
            if (other->n > k->n) k = other;
        }
        r->space = k->space;
        same = draw(w, 2) == 0 ? k->n : draw(w, k->n + 1);
        if (same > r->n) same = r->n;
        memcpy(r->tokens, k->tokens, same * sizeof *r->tokens);
    }
    for (uint32_t i = same; i < r->n; i++) r->tokens[i] = (int32_t)(draw(w, 6) == 0 ? draw(w, 3) : 0);
    bytes_of(r->space, r->tokens, r->n, r->bytes);
}

static void row_begin(struct world *w, struct row *r) {
    *r = (struct row){.runs = 1, .space = draw(w, 2)};
    memset(r->table, 0xFF, sizeof r->table);
    row_tokens(w, r);
    struct prefix_match m = find(w, r->space, r->tokens, draw(w, 4) == 0 ? draw(w, r->n) : r->n - 1);
    int cold = m.cold > m.tokens && draw(w, 3) > 0;
    uint32_t position = cold ? m.cold : m.tokens;
    prefix_block block = cold ? m.cold_block : m.block;
    if (position == 0) return;
    w->hits++;
    w->hit_tokens += position;
    w->cold_hits += (uint64_t)cold;
    w->cut_hits += position % PAGE_TOKENS != 0;
    prefix_pin(w->p, block);
    int ok = row_settle(w, r, block, position);
    if (ok) {
        r->done = position;
        row_verify(w, r);
        if (!cold) { /* it goes on behind the last whole block */
            r->published = position / PAGE_TOKENS;
            struct prefix_view view;
            HOLDS(w, prefix_get(w->p, block, &view));
            r->block = position % PAGE_TOKENS == 0 ? block : view.parent;
            prefix_pin(w->p, r->block);
        } else {
            row_publish(w, r); /* its pages enter the cold blocks */
        }
    }
    prefix_unpin(w->p, block);
    if (!ok) row_leave(w, r, 0);
}

/* ---- Copies ---- */

static struct known *one_known(struct world *w) { return w->known_n == 0 ? NULL : &w->known[draw(w, w->known_n)]; }

static void copy_free(struct world *w, uint64_t where) {
    struct copy *c = copy_of(w, where);
    c->where = 0;
}

/* A copy of some groups is made, or it fails. */
static void copy_make(struct world *w) {
    uint32_t groups;
    prefix_block name = prefix_next_fresh(w->p, &groups);
    if (name == 0) return;
    struct prefix_view view;
    struct known *k = known_find(w, name);
    HOLDS(w, k != NULL && prefix_get(w->p, name, &view));
    HOLDS(w, (k->told & groups) == 0);
    int full = 0;
    for (uint32_t g = 0; g < w->setup->groups; g++) full |= w->setup->window[g] == 0;
    HOLDS(w, groups != 0 || !full);
    k->told |= groups;
    k->told_at_all = 1;
    struct known *parent = view.parent == 0 ? NULL : known_find(w, view.parent);
    HOLDS(w, parent == NULL || parent->told_at_all || parent->where != 0);
    uint64_t where = view.where;
    if (draw(w, 10) == 0 || (parent != NULL && parent->where == 0)) return;
    if (where == 0) {
        where = ++w->copies;
        if (w->copy[where % COPIES_MAX].where != 0) return; /* no room */
        w->copy[where % COPIES_MAX] = (struct copy){.where = where, .index = view.index};
    }
    struct copy *c = copy_of(w, where);
    uint64_t bytes[TOKENS_MAX];
    bytes_of(k->space, k->tokens, k->n, bytes);
    for (uint32_t g = 0; g < w->setup->groups; g++) {
        if (!(groups >> g & 1U)) continue;
        HOLDS(w, view.page[g] != PAGE_NONE);
        HOLDS(w, exists(w->setup, g, view.index));
        memcpy(c->bytes[g], w->bytes[g][view.page[g]], sizeof c->bytes[g]);
        if (is_recurrent(w->setup, g)) HOLDS(w, state_is(c->bytes[g], bytes, k->n));
        for (uint32_t i = 0; i < view.n && !is_recurrent(w->setup, g); i++)
            HOLDS(w, c->bytes[g][i] == bytes[view.index * PAGE_TOKENS + i]);
        c->groups |= UINT32_C(1) << g;
    }
    HOLDS(w, prefix_set_where(w->p, name, where, groups));
    k->where = where;
}

static void copies_dropped(struct world *w) {
    for (uint64_t where; (where = prefix_next_dropped(w->p)) != 0;) {
        copy_free(w, where);
        known_refresh(w);
        for (uint32_t i = 0; i < w->known_n; i++) HOLDS(w, w->known[i].where != where);
    }
}

static void copy_forget(struct world *w) {
    prefix_block name = prefix_coldest(w->p);
    struct known *k = name == 0 ? NULL : known_find(w, name);
    if (name == 0) return;
    HOLDS(w, k != NULL && k->where != 0);
    for (uint32_t i = 0; i < w->known_n; i++) { /* no copies behind it */
        const struct known *other = &w->known[i];
        HOLDS(w, other->where == 0 || other->space != k->space || other->n <= k->n ||
                     memcmp(other->tokens, k->tokens, k->n * sizeof(int32_t)) != 0);
    }
    for (uint32_t i = 0; i < ROWS; i++) HOLDS(w, !w->row[i].runs || w->row[i].block != name);
    copy_free(w, k->where);
    k->where = 0;
    prefix_forget_where(w->p, name);
}

static void copy_lose_any(struct world *w) {
    struct known *k = one_known(w);
    if (k == NULL || k->where == 0) return;
    copy_free(w, k->where);
    k->where = 0;
    prefix_forget_where(w->p, k->name);
}

/* As after a start: a block that is known by its copy. */
static void copy_restore(struct world *w) {
    struct known *k = one_known(w);
    if (k == NULL || k->n % PAGE_TOKENS != 0 || k->n == TOKENS_MAX) return;
    uint64_t where = ++w->copies;
    struct copy *c = &w->copy[where % COPIES_MAX];
    if (c->where != 0) return;
    *c = (struct copy){.where = where, .index = k->n / PAGE_TOKENS};
    for (uint32_t g = 0; g < w->setup->groups; g++)
        if (exists(w->setup, g, c->index) && (w->setup->window[g] == 0 || draw(w, 3) > 0))
            c->groups |= UINT32_C(1) << g;
    int32_t tokens[TOKENS_MAX];
    uint64_t bytes[TOKENS_MAX], space = k->space;
    uint32_t from = k->n, n = draw(w, 3) > 0 ? PAGE_TOKENS : 1 + draw(w, PAGE_TOKENS);
    if (w->setup->recurrent != 0) n = PAGE_TOKENS;
    memcpy(tokens, k->tokens, from * sizeof *tokens);
    for (uint32_t i = 0; i < n; i++) tokens[from + i] = (int32_t)(draw(w, 6) == 0 ? draw(w, 3) : 0);
    bytes_of(space, tokens, from + n, bytes);
    for (uint32_t g = 0; g < w->setup->groups; g++)
        if (is_recurrent(w->setup, g))
            state_write(c->bytes[g], bytes, from + n);
        else
            memcpy(c->bytes[g], &bytes[from], n * sizeof *bytes);
    prefix_block name = prefix_restore(w->p, space, k->name, tokens + from, n, where, c->groups);
    if (name == 0)
        c->where = 0;
    else
        known_add(w, name, space, tokens, from + n, where);
}

/* ---- Steps ---- */

static void stray_pin(struct world *w) {
    uint32_t i = draw(w, PINS_MAX);
    prefix_unpin(w->p, w->stray[i]);
    struct known *k = draw(w, 2) ? one_known(w) : NULL;
    w->stray[i] = k == NULL ? 0 : k->name;
    if (k != NULL) prefix_pin(w->p, k->name);
}

static void step(struct world *w) {
    struct row *r = &w->row[draw(w, ROWS)];
    uint32_t what = draw(w, 100);
    struct known *k = one_known(w);
    if (what < 60) {
        if (r->runs)
            row_step(w, r);
        else
            row_begin(w, r);
    } else if (what < 64) {
        if (r->runs) row_leave(w, r, draw(w, 4) > 0);
    } else if (what < 70) {
        if (k != NULL) {
            int can = can_keep(w, k);
            HOLDS(w, prefix_keep(w->p, k->name, draw(w, 6)) == can);
        }
    } else if (what < 71) {
        w->removed = 1;
        if (k != NULL && draw(w, 2)) prefix_remove(w->p, k->name);
        if (draw(w, 40) == 0) prefix_remove_space(w->p, draw(w, 2));
    } else if (what < 86) {
        copy_make(w);
        copy_make(w);
    } else if (what < 88) {
        copy_forget(w);
    } else if (what < 89) {
        copy_lose_any(w);
    } else if (what < 91) {
        copy_restore(w);
    } else if (what < 93) {
        if (w->setup->stray_pins) stray_pin(w);
    } else {
        copies_dropped(w);
    }
}

/* A row's last block is gone only if something was taken out, not by eviction. */
static void pins_check(struct world *w) {
    struct prefix_view view;
    for (uint32_t i = 0; i < ROWS; i++) {
        struct row *r = &w->row[i];
        if (!r->runs || r->block == 0 || prefix_get(w->p, r->block, &view)) continue;
        HOLDS(w, w->removed);
        r->block = 0;
    }
    w->removed = 0;
}

static void world_check(struct world *w) {
    struct prefix_counts counts;
    known_refresh(w);
    prefix_get_counts(w->p, &counts);
    HOLDS(w, counts.blocks == w->known_n);
    pins_check(w);
    HOLDS(w, prefix_check(w->p));
    for (uint32_t g = 0; g < w->setup->groups; g++) {
        uint32_t used = 0;
        for (uint32_t i = 0; i < w->setup->pages[g]; i++) {
            used += w->held[g][i] > 0;
            HOLDS(w,
                  pages_count(w->pages, g, i) == 0 ? w->held[g][i] == 0 : prefix_rows_of(w->p, g, i) == w->held[g][i]);
        }
        HOLDS(w, prefix_used(w->p, g) == used);
    }
    for (uint32_t i = 0; i < ROWS; i++)
        if (w->row[i].runs) row_verify(w, &w->row[i]);
}

static void play(const struct setup *setup, uint64_t seed, uint64_t steps) {
    struct world *w = mem_zalloc(1, sizeof *w);
    w->setup = setup;
    w->seed = seed;
    assert_int_equal(pages_new(&w->pages, setup->groups, setup->pages, NULL), 0);
    struct prefix_config config = {
        .pages = w->pages, .groups = setup->groups, .blocks_max = setup->blocks_max, .seed = seed};
    for (uint32_t g = 0; g < setup->groups; g++)
        config.group[g] = (struct pages_shape){.window = setup->window[g],
                                               .begin = setup->begin[g],
                                               .end = setup->end[g],
                                               .recurrent = (uint8_t)is_recurrent(setup, g)};
    assert_int_equal(prefix_new(&config, &w->p, NULL), 0);
    for (w->step = 0; w->step < steps; w->step++) {
        step(w);
        world_check(w);
    }
    for (uint32_t i = 0; i < ROWS; i++)
        if (w->row[i].runs) row_leave(w, &w->row[i], 1);
    for (uint32_t i = 0; i < PINS_MAX; i++) prefix_unpin(w->p, w->stray[i]);
    struct prefix_counts counts;
    prefix_get_counts(w->p, &counts);
    print_message("%-28s %6llu hits (%llu tokens, %llu cold, %llu cut), %llu evicted, %llu snapshots, %llu dry\n",
                  setup->name, (unsigned long long)w->hits, (unsigned long long)w->hit_tokens,
                  (unsigned long long)w->cold_hits, (unsigned long long)w->cut_hits, (unsigned long long)counts.evicted,
                  (unsigned long long)counts.evicted_snapshots, (unsigned long long)w->dry);
    prefix_remove_space(w->p, 0);
    prefix_remove_space(w->p, 1);
    for (uint32_t g = 0; g < setup->groups; g++) assert_int_equal(pages_available(w->pages, g), setup->pages[g]);
    assert_true(prefix_check(w->p));
    prefix_free(w->p);
    pages_free(w->pages);
    mem_free(w);
}

static void random_use_agrees_with_a_naive_model(void **state) {
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
        for (uint64_t seed = 0; seed < 4; seed++) play(&setups[i], 100 * i + seed, 4000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_use_agrees_with_a_naive_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
