/* Rows that are admitted and wait: for another row that computes what they would compute, too (they follow it), or for
 * a copy of their state from elsewhere (they load). The engine's thread.
 *
 * A row that follows has claims, but no pages and no part in any plan. Its leader is being prepared, or its state is
 * being loaded; it is not paused and does not follow itself. As soon as the leader's committed state reaches lead_until
 * the follower looks at the store again, before the leader's window moves on. When a leader stops to be one its
 * followers are orphans, and look again in the next plan. So nobody waits for somebody that does not advance. */
#include <assert.h>
#include <string.h>

#include "sched/sched_internal.h"

enum { LOOKS_MAX = 64 /* leaders with which a row is compared, of those that begin with the same page */ };

/* ---- Following ---- */

static int same(const int32_t *a, const int32_t *b, uint32_t n) { return memcmp(a, b, n * sizeof *a) == 0; }

/* Whole pages that both begin with, in tokens. */
static uint32_t common(const int32_t *a, const int32_t *b, uint32_t n) {
    uint32_t i = 0;
    while (i + PAGE_TOKENS <= n && same(a + i, b + i, PAGE_TOKENS)) i += PAGE_TOKENS;
    return i;
}

/* A short prompt does not wait for a long one, whose part of an iteration may be small (P9), for more than one such
 * part. */
static int is_too_slow(const struct sched *s, const struct row *leader, const struct row *r, uint32_t until) {
    if (r->known > SCHED_SHORT_PROMPT || leader->known <= SCHED_SHORT_PROMPT || leader->loading) return 0;
    struct allowance allowed =
        sched_costs_allow(&s->costs, &s->config, s->list[LIST_RUNNING].n, s->list[LIST_PREPARING].n);
    return until - leader->done > sched_min(leader->chunk, allowed.long_ones);
}

/* The leader that brings most, if it brings at least a page more than what is there, and what a copy would bring. One
 * that takes smaller steps, or is behind, is not waited for. Most that begin alike part where the store ends, so that
 * is where they are compared first; and only so many of them are. */
void sched_follow_find(struct sched *s, struct row *r, const int32_t *tokens, uint32_t limit, struct look *look) {
    uint32_t from = look->resident, least = from + PAGE_TOKENS, whole = from - from % PAGE_TOKENS, looks = 0;
    if (look->position > from && look->position >= least + PREFIX_COLD_LEAST)
        least = look->position - PREFIX_COLD_LEAST + 1;
    if (limit < least) return;
    for (uint32_t i = s->leaders.first; i != NO_ROW; i = row_at(s, i)->link[LINK_LEADS].next) {
        const struct row *leader = row_at(s, i);
        if (leader == r || leader->space != r->space || leader->begins != r->begins) continue;
        if (leader->chunk < r->chunk || leader->next < whole) continue;
        if (looks++ == LOOKS_MAX || look->until + PAGE_TOKENS > limit) break;
        uint32_t n;
        const int32_t *its = s->config.tokens(s->config.user, row_name(s, leader), &n);
        n = sched_min(limit, sched_min(n, leader->known));
        if (n < least || !same(tokens + from, its + from, least - from)) continue;
        uint32_t until = common(tokens, its, n);
        if (until < least || until <= leader->done || until <= look->until) continue;
        if (s->has_recurrent && until < leader->next) continue; /* it does not stop there any more */
        if (is_too_slow(s, leader, r, until)) continue;
        look->leader = i;
        look->until = until;
    }
    if (look->leader == NO_ROW) return;
    look->position = look->resident = look->branch = 0;
    look->block = 0;
}

void sched_follow(struct sched *s, struct row *r, const struct look *look) {
    assert(!r->following && row_at(s, look->leader)->leads);
    r->following = 1;
    s->following_n++;
    r->leader = look->leader;
    r->lead_until = look->until;
    sched_list_push(s, &row_at(s, r->leader)->followers, r);
}

void sched_unfollow(struct sched *s, struct row *r) {
    assert(r->following);
    sched_list_remove(s, r->leader == NO_ROW ? &s->orphans : &row_at(s, r->leader)->followers, r);
    r->following = 0;
    s->following_n--;
    r->leader = NO_ROW;
}

/* It looks anew, with what it finds now; without room for that it waits in line again, and has lost nothing. */
static void look_again(struct sched *s, struct row *r) {
    struct look look;
    sched_share_look(s, r, &look);
    if (!sched_room_refits(s, r, &look)) {
        sched_preempt(s, r);
        return;
    }
    if (look.leader != NO_ROW) sched_follow(s, r, &look);
    sched_room_claim(s, r);
    sched_share_take(s, r, &look);
    sched_row_settle(s, r);
}

void sched_lead(struct sched *s, struct row *r) {
    uint32_t next;
    for (uint32_t i = r->followers.first; i != NO_ROW; i = next) {
        struct row *f = row_at(s, i);
        next = f->link[LINK_SHARE].next;
        if (f->lead_until > r->done) continue;
        sched_unfollow(s, f);
        look_again(s, f);
    }
    sched_lead_settle(s, r);
}

void sched_orphans(struct sched *s) {
    for (uint32_t n = s->orphans.n; n > 0; n--) {
        struct row *r = row_at(s, s->orphans.first);
        sched_unfollow(s, r);
        look_again(s, r);
    }
}

/* ---- Leading ---- */

static int may_lead(const struct sched *s, const struct row *r) {
    if (r->done >= r->known || r->space == 0) return 0; /* most rows, for every token */
    return !s->owns_prefix && (r->state == ROW_PREPARING || r->state == ROW_RUNNING) && !r->paused && !r->following &&
           !r->unsound && !r->sealed && r->known > PAGE_TOKENS;
}

static void leave_followers(struct sched *s, struct row *r) {
    while (r->followers.n > 0) {
        struct row *f = row_at(s, r->followers.first);
        sched_list_remove(s, &r->followers, f);
        sched_list_push(s, &s->orphans, f);
        f->leader = NO_ROW;
    }
}

void sched_lead_settle(struct sched *s, struct row *r) {
    int leads = may_lead(s, r);
    if (leads == r->leads) return;
    r->leads = (uint8_t)leads;
    if (leads) {
        sched_list_push(s, &s->leaders, r);
        return;
    }
    sched_list_remove(s, &s->leaders, r);
    leave_followers(s, r);
}

/* ---- Loading ---- */

void sched_load(struct sched *s, struct row *r, prefix_block cold) {
    r->loading = r->unfetched = 1;
    r->cold = cold;
    s->loading_n++;
    sched_list_push(s, &s->loads, r);
}

static void load_end(struct sched *s, struct row *r) {
    if (r->unfetched) sched_list_remove(s, &s->loads, r);
    r->loading = r->unfetched = 0;
    s->loading_n--;
    s->trailing_n -= r->state == ROW_ENDING;
    prefix_unpin(s->prefix, r->cold);
    r->cold = 0;
}

/* Nothing of it can be used: it begins anew, and takes no copy again. Who waited for the load may not want to wait for
 * what comes instead. */
static void load_fail(struct sched *s, struct row *r) {
    load_end(s, r);
    leave_followers(s, r);
    r->warm_only = 1;
    sched_share_let_go(s, r);
    sched_room_let_go(s, r);
    r->next = 0;
    look_again(s, r);
}

/* Pages that are the block's own are there already; the others are the row's, and wanted. 0: the path is gone. */
static uint32_t list_load(struct sched *s, const struct row *r) {
    uint32_t n = 0, end = (r->next + PAGE_TOKENS - 1) / PAGE_TOKENS;
    struct prefix_view view;
    prefix_block block = r->cold;
    for (uint32_t i = end; i-- > 0; block = view.parent) {
        if (!prefix_get(s->prefix, block, &view)) return 0;
        struct sched_load_block b = {.block = block};
        for (uint32_t g = 0; g < s->config.groups; g++) {
            b.page[g] = PAGE_NONE;
            if (i < r->span[g].first || i >= r->span[g].end) continue;
            if (view.page[g] == row_table(s, r, g)[i]) continue;
            if (i + 1 == end && (r->copied >> g & 1) != 0) continue;
            b.page[g] = row_table(s, r, g)[i];
            b.groups |= UINT32_C(1) << g;
        }
        if (b.groups != 0) s->load_blocks[n++] = b;
    }
    return n;
}

int sched_pop_load(struct sched *s, struct sched_load *out) {
    while (s->loads.n > 0) {
        struct row *r = row_at(s, s->loads.first);
        sched_list_remove(s, &s->loads, r);
        r->unfetched = 0;
        *out = (struct sched_load){row_name(s, r), list_load(s, r), s->load_blocks};
        if (out->n > 0) return 1;
        load_fail(s, r);
    }
    return 0;
}

void sched_loaded(struct sched *s, sched_row row, int ok) {
    struct row *r = sched_row_find(s, row);
    if (r == NULL || !r->loading) return;
    if (!ok && r->state == ROW_PREPARING) {
        load_fail(s, r);
        return;
    }
    load_end(s, r);
    if (ok) {
        r->done = r->next;
        sched_share_note(s, r);
        sched_share_publish(s, r);
    }
    if (r->state == ROW_ENDING) {
        sched_row_leave(s, r);
        return;
    }
    sched_row_settle(s, r);
    sched_lead(s, r);
    sched_row_release_window(s, r);
}

void sched_load_cancel(struct sched *s, struct row *r) {
    if (r->unfetched) load_end(s, r);
}
