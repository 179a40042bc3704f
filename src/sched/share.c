/* What rows take from the prefix store and what they put there. The engine's thread.
 *
 * A row's blocks [0, stored) are in the store: those that it took, and behind them those that it computed and published
 * when their last position was committed and all their tokens were known. Its table names the store's pages for them,
 * and it pins the last, so nothing of it can be evicted while the row lives. A page is not written after it was
 * published: a row that begins inside a block has a copy of the page, and writes there. */
#include <assert.h>
#include <string.h>

#include "sched/sched_internal.h"

enum { BRANCH_LEAST = 64 /* tokens for which a place to go on is made where texts part */ };

static int shares(const struct sched *s, const struct row *r) {
    return r->space != 0 && !s->owns_prefix && !r->unsound;
}

static const int32_t *tokens_of(const struct sched *s, const struct row *r, uint32_t *n) {
    return s->config.tokens(s->config.user, row_name(s, r), n);
}

/* ---- Looking ---- */

static uint32_t hash_page(const int32_t *tokens) {
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < PAGE_TOKENS; i++) h = (h ^ (uint32_t)tokens[i]) * 16777619u;
    return h;
}

/* What the claims of full groups need not count: pages of blocks before `position` that are there. A block that is cut
 * is copied. */
static void count_shared(const struct sched *s, struct look *look) {
    struct prefix_view view;
    prefix_block block = look->block;
    for (int cut = look->position % PAGE_TOKENS != 0; prefix_get(s->prefix, block, &view); cut = 0) {
        for (uint32_t g = 0; g < s->config.groups && !cut; g++) {
            if (s->config.group[g].window != 0 || view.page[g] == PAGE_NONE) continue;
            look->shared[g]++;
            look->idle[g] += prefix_rows_of(s->prefix, g, view.page[g]) == 0;
        }
        block = view.parent;
    }
}

static void find(const struct sched *s, const struct row *r, const int32_t *tokens, uint32_t limit, struct look *out) {
    struct prefix_match match;
    prefix_find(s->prefix, r->space, tokens, limit, &match);
    int loads = match.cold > match.tokens && !r->warm_only;
    out->resident = match.tokens;
    out->position = loads ? match.cold : match.tokens;
    out->block = loads ? match.cold_block : match.block;
    out->branch = s->has_windows && match.common >= out->position + BRANCH_LEAST ? match.common : 0;
}

/* Nothing that must be copied. With windows what is found instead may be cut, too. */
static void find_whole(const struct sched *s, const struct row *r, const int32_t *tokens, struct look *out) {
    for (uint32_t cut; (cut = out->position % PAGE_TOKENS) != 0;) find(s, r, tokens, out->position - cut, out);
}

/* At least one token is always computed; outputs that were not made yet are made (so a row that wants them everywhere
 * takes only what it had before). */
static uint32_t most_of(const struct row *r) {
    return r->all_outputs ? sched_min(r->known - 1, r->reach) : r->known - 1;
}

static void share_full_pages(const struct sched *s, struct look *look, uint32_t pages) {
    for (uint32_t g = 0; g < s->config.groups; g++)
        if (s->config.group[g].window == 0)
            look->shared[g] = pages_clamp(&s->config.group[g], pages) - s->config.group[g].begin;
}

void sched_share_hope(const struct sched *s, const struct row *r, struct look *out) {
    *out = (struct look){.leader = NO_ROW};
    if (!shares(s, r)) return;
    out->position = out->resident = most_of(r);
    share_full_pages(s, out, out->position / PAGE_TOKENS);
}

void sched_share_look(struct sched *s, struct row *r, struct look *out) {
    *out = (struct look){.leader = NO_ROW};
    if (!shares(s, r)) return;
    uint32_t n;
    const int32_t *tokens = tokens_of(s, r, &n);
    uint32_t limit = sched_min(most_of(r), n);
    r->begins = n < PAGE_TOKENS ? 0 : hash_page(tokens);
    if (limit == 0) return;
    find(s, r, tokens, limit, out);
    sched_follow_find(s, r, tokens, limit, out);
    if (out->leader != NO_ROW) {
        share_full_pages(s, out, out->until / PAGE_TOKENS);
        return;
    }
    if (s->copies_n + s->config.groups > s->copies_max) find_whole(s, r, tokens, out);
    if (out->position > 0) count_shared(s, out);
}

/* ---- Taking ---- */

static void push_copy(struct sched *s, uint32_t group, uint32_t from, uint32_t to) {
    if (from == to) return; /* evicted just now, and taken */
    assert(s->copies_n < s->copies_max);
    s->copies[(s->copies_first + s->copies_n++) % s->copies_max] = (struct sched_copy){group, from, to};
}

int sched_pop_copy(struct sched *s, struct sched_copy *out) {
    if (s->copies_n == 0) return 0;
    *out = s->copies[s->copies_first];
    s->copies_first = (s->copies_first + 1) % s->copies_max;
    s->copies_n--;
    return 1;
}

/* All references first: what is allocated then may evict only what nobody takes. */
static void take_pages(struct sched *s, struct row *r, const struct look *look) {
    uint32_t partial[PAGES_GROUPS_MAX], end = (look->position + PAGE_TOKENS - 1) / PAGE_TOKENS;
    for (uint32_t g = 0; g < s->config.groups; g++) {
        struct span *span = &r->span[g];
        span->first = prefix_take(s->prefix, look->block, look->position, g, row_table(s, r, g), &partial[g]);
        span->end = pages_clamp(&s->config.group[g], end);
        span->held = span->end - span->first;
        s->held[g] += span->held;
    }
    for (uint32_t g = 0; g < s->config.groups; g++) {
        uint32_t *table = row_table(s, r, g);
        for (uint32_t k = r->span[g].first; k < r->span[g].end; k++) {
            if (table[k] != PAGE_NONE) continue;
            table[k] = prefix_alloc(s->prefix, g);
            assert(table[k] != PAGE_NONE);
        }
        if (partial[g] == PAGE_NONE) continue;
        push_copy(s, g, partial[g], table[end - 1]);
        r->copied |= (uint8_t)(1 << g);
    }
}

/* The last of the first n blocks of a path that ends with `block`. */
static prefix_block ancestor(const struct sched *s, prefix_block block, uint32_t n) {
    struct prefix_view view;
    while (prefix_get(s->prefix, block, &view) && view.index + 1 > n) block = view.parent;
    return n == 0 ? 0 : block;
}

/* Positions that it has now and never planned are its past like those that it planned. */
void sched_share_note(struct sched *s, struct row *r) {
    uint32_t from = sched_min(r->reach, r->prompt_n), to = sched_min(r->taken, r->prompt_n);
    if (to > from) {
        r->cached += to - from;
        s->cached += to - from;
    }
    r->reach = sched_max(r->reach, r->taken);
}

void sched_share_take(struct sched *s, struct row *r, const struct look *look) {
    r->taken = look->position;
    r->branch = look->branch;
    r->stored = 0;
    r->block = 0;
    r->sealed = r->copied = 0;
    if (look->position == 0) return;
    int loads = look->position > look->resident;
    r->stored = look->resident / PAGE_TOKENS;
    r->block = ancestor(s, look->block, r->stored);
    prefix_pin(s->prefix, r->block);
    if (loads) prefix_pin(s->prefix, look->block);
    take_pages(s, r, look);
    r->next = look->position;
    if (loads) {
        sched_load(s, r, look->block);
        return;
    }
    r->done = r->next;
    sched_share_note(s, r);
}

/* ---- Putting ---- */

/* The block of the place to go on at `position`, or NO_BLOCK: position p needs what lies before it, so it belongs to
 * the block of p - 1. With a recurrent group the nearest place is the end of the last whole block before it. */
static uint32_t place_block(const struct sched *s, uint32_t position) {
    return (s->has_recurrent ? position : position + PAGE_TOKENS - 1) / PAGE_TOKENS - 1;
}

/* A place to go on that somebody may want lies in block i: one token before the end of the prompt, a cut, where it
 * parts from another text, a multiple of the stride. */
static int wants_snapshot(const struct sched *s, const struct row *r, uint32_t i) {
    uint32_t low = i * PAGE_TOKENS, high = low + PAGE_TOKENS, stride = s->config.snapshot_stride;
    if (place_block(s, r->prompt_n - 1) == i || (r->branch > 0 && place_block(s, r->branch) == i)) return 1;
    for (uint32_t k = 0; k < r->cuts_n; k++)
        if (place_block(s, r->cuts[k]) == i) return 1;
    return stride > 0 && high / stride > low / stride;
}

uint32_t sched_share_stop(const struct sched *s, const struct row *r) {
    if (!s->has_recurrent || !shares(s, r)) return UINT32_MAX;
    uint32_t low = r->next - r->next % PAGE_TOKENS, stride = s->config.snapshot_stride, stop = UINT32_MAX;
    uint32_t places[SCHED_CUTS_MAX + 3] = {r->prompt_n - 1, r->known - 1, r->branch}, n = 3;
    for (uint32_t k = 0; k < r->cuts_n; k++) places[n++] = r->cuts[k];
    for (uint32_t k = 0; k < n; k++) {
        uint32_t end = places[k] - places[k] % PAGE_TOKENS;
        if (end > r->next) stop = sched_min(stop, end);
    }
    if (stride > 0) stop = sched_min(stop, ((low / stride + 1) * stride + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS);
    for (uint32_t i = r->followers.first; i != NO_ROW; i = row_at(s, i)->link[LINK_SHARE].next)
        if (row_at(s, i)->lead_until > r->next) stop = sched_min(stop, row_at(s, i)->lead_until);
    return stop;
}

/* Stores its next block, of n tokens. While a plan in flight reads its table the table must stay: a block that is there
 * already is taken over later. */
static int store_next(struct sched *s, struct row *r, const int32_t *tokens, uint32_t n) {
    uint32_t page[PAGES_GROUPS_MAX], i = r->stored;
    if (r->in_flight > 0 && prefix_child(s->prefix, r->space, r->block, tokens, n) != 0) return 0;
    for (uint32_t g = 0; g < s->config.groups; g++)
        page[g] = i >= r->span[g].first && i < r->span[g].end ? row_table(s, r, g)[i] : PAGE_NONE;
    prefix_block block = prefix_add(s->prefix, r->space, r->block, tokens, n, page);
    r->sealed = block == 0;
    if (r->sealed) return 0;
    int computed = i >= r->taken / PAGE_TOKENS, lent = 0;
    struct prefix_view own;
    for (uint32_t g = 0; g < s->config.groups; g++) {
        if (i < r->span[g].first || i >= r->span[g].end) continue;
        uint32_t *entry = &row_table(s, r, g)[i];
        if (*entry != page[g]) computed = 0;
        lent |= page[g] != PAGE_NONE;
        *entry = page[g];
    }
    computed &= lent; /* without full groups a block may be there already, and this row have nothing for it */
    /* A copy of the own one may have outlived the pages of those before it. */
    if (computed && (!prefix_get(s->prefix, r->own, &own) || own.index > i)) r->own = block;
    prefix_pin(s->prefix, block);
    prefix_unpin(s->prefix, r->block);
    r->block = block;
    r->stored += n == PAGE_TOKENS;
    return 1;
}

/* How many of its tokens have their state, and are known. */
static const int32_t *storable(const struct sched *s, const struct row *r, uint32_t *n) {
    const int32_t *tokens = tokens_of(s, r, n);
    *n = sched_min(*n, r->done);
    return tokens;
}

void sched_share_publish(struct sched *s, struct row *r) {
    if (!shares(s, r) || r->sealed || r->done / PAGE_TOKENS <= r->stored) return;
    uint32_t n;
    const int32_t *tokens = storable(s, r, &n);
    while (r->stored < n / PAGE_TOKENS) {
        uint32_t i = r->stored;
        if (!store_next(s, r, tokens + i * PAGE_TOKENS, PAGE_TOKENS)) return;
        if (s->has_windows && wants_snapshot(s, r, i)) prefix_keep(s->prefix, r->block, r->weight);
    }
}

/* The rest of a block is stored if there is a page in all, or a weight says that it matters. */
static void store_rest(struct sched *s, struct row *r) {
    if (s->has_recurrent) return; /* its page, which goes on to change, is no place to go on */
    uint32_t n;
    const int32_t *tokens = storable(s, r, &n);
    uint32_t rest = n - sched_min(n, r->stored * PAGE_TOKENS);
    if (rest == 0 || rest >= PAGE_TOKENS || n <= r->taken || (r->stored == 0 && r->weight < 2)) return;
    store_next(s, r, tokens + r->stored * PAGE_TOKENS, rest);
}

void sched_share_leave(struct sched *s, struct row *r) {
    assert(r->in_flight == 0 && !r->loading);
    if (shares(s, r) && r->done > r->taken) {
        r->sealed = 0; /* there may be room now */
        sched_share_publish(s, r);
        if (!r->sealed) store_rest(s, r);
    }
    int worth = s->has_windows || r->weight > 1; /* else every position is a place to go on, and like all others */
    if (worth && shares(s, r) && r->block != 0) prefix_keep(s->prefix, r->block, r->weight);
    r->left = r->unsound ? 0 : r->block;
    sched_share_let_go(s, r);
}

void sched_share_let_go(struct sched *s, struct row *r) {
    prefix_unpin(s->prefix, r->block);
    r->block = 0;
    r->stored = r->taken = 0;
}

void sched_share_disown(struct sched *s, struct row *r) {
    r->unsound = 1;
    prefix_remove(s->prefix, r->own);
    r->own = r->left = 0;
    sched_lead_settle(s, r);
}
