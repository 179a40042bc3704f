/* Who has pages, and who gives them up. The engine's thread, all inside sched_plan but for giving back.
 *
 * A row claims pages before it takes them, in every layer group. What the claims cost together, each shared page
 * counted once, never exceeds the pool: so taking a claimed page cannot fail, because what no row holds is free or can
 * be evicted from the store. In windowed groups the claims alone stay below the pool: a window moves on, and then needs
 * pages of its own. Admission claims room for the tokens that the row knows and SCHED_AHEAD more, not
 * for its worst case (K3, optimistic). A running row that comes to the end of its claim claims the next SCHED_AHEAD
 * tokens, or at least the page it needs. If even that does not fit, there is pressure:
 *
 *   - pages on their way back are waited for: of rows that end or were preempted and are still in flight, of rows whose
 *     last token is not read yet; and rows that load are. The row stalls, at most STALLS_MAX plans in a row if others
 *     could give way;
 *   - else the row that costs least to redo is preempted, which may be the row itself.
 *
 * Progress: the senior, the first of all rows that are not paused (priority, then submission), is never preempted for
 * room, and it fits the pool alone; so it ends, and somebody else is the senior. No thrash: a row that was preempted
 * before is not preempted again until it has made SCHED_AHEAD tokens more than it had, unless only such rows are left,
 * or it has nothing to lose. */
#include <assert.h>

#include "sched/sched_internal.h"

enum { STALLS_MAX = 4 };

/* ---- Claims ---- */

static uint32_t row_total(const struct row *r) { return r->prompt_n + r->max_new; }

/* While it follows it does not claim the full pages that it will share. */
static uint64_t claim_for(const struct sched *s, const struct row *r, uint32_t group, uint32_t tokens) {
    const struct pages_shape *shape = &s->config.group[group];
    uint64_t claim = pages_worst(shape, tokens, (uint64_t)SCHED_IN_FLIGHT * r->chunk);
    if (shape->window != 0 || !r->following) return claim;
    return claim - (pages_clamp(shape, r->lead_until / PAGE_TOKENS) - shape->begin);
}

static void set_grows(struct sched *s, struct row *r, int grows) {
    s->growing_n += (uint32_t)grows - r->grows;
    r->grows = (uint8_t)grows;
}

/* What all claims cost together. */
static uint64_t spent(const struct sched *s, uint32_t g) {
    if (s->config.group[g].window != 0) return s->claimed[g];
    return s->claimed[g] - s->held[g] + prefix_used(s->prefix, g);
}

static void set_claim(struct sched *s, struct row *r, uint32_t tokens) {
    for (uint32_t g = 0; g < s->config.groups; g++) {
        uint32_t claim = (uint32_t)claim_for(s, r, g, tokens);
        s->claimed[g] = s->claimed[g] - r->span[g].claim + claim; /* it may claim less than when it followed */
        r->span[g].claim = claim;
    }
    r->covered = tokens;
    set_grows(s, r, tokens < row_total(r));
}

static uint32_t first_cover(const struct row *r) { return sched_min(row_total(r), r->known + SCHED_AHEAD); }

/* What the first claim of a row costs that takes, or will share, what was found. */
static uint64_t cost_of(const struct sched *s, const struct row *r, const struct look *look, uint32_t g) {
    uint64_t claim = claim_for(s, r, g, first_cover(r));
    return claim - look->shared[g] + look->idle[g];
}

/* Rows that will claim more find a page each, so that an admission does not cause the next preemption. */
int sched_room_fits(const struct sched *s, const struct row *r, const struct look *look) {
    uint32_t growing = s->growing_n + (first_cover(r) < row_total(r));
    for (uint32_t g = 0; g < s->config.groups; g++) {
        uint64_t others = spent(s, g) == 0 ? 0 : spent(s, g) + growing;
        if (others + cost_of(s, r, look, g) > pages_total(s->config.pages, g)) return 0;
    }
    return 1;
}

void sched_room_claim(struct sched *s, struct row *r) {
    set_claim(s, r, first_cover(r));
    r->admitted = r->known;
    r->stalls = 0;
}

int sched_room_refits(const struct sched *s, const struct row *r, const struct look *look) {
    for (uint32_t g = 0; g < s->config.groups; g++) {
        assert(r->span[g].held == 0);
        if (spent(s, g) - r->span[g].claim + cost_of(s, r, look, g) > pages_total(s->config.pages, g)) return 0;
    }
    return 1;
}

void sched_room_shrink(struct sched *s, struct row *r) {
    for (uint32_t g = 0; g < s->config.groups; g++) {
        struct span *span = &r->span[g];
        s->claimed[g] -= span->claim - span->held;
        span->claim = span->held;
    }
    set_grows(s, r, 0);
}

static int try_claim(struct sched *s, struct row *r, uint32_t tokens) {
    for (uint32_t g = 0; g < s->config.groups; g++)
        if (spent(s, g) - r->span[g].claim + claim_for(s, r, g, tokens) > pages_total(s->config.pages, g)) return 0;
    set_claim(s, r, tokens);
    return 1;
}

static int extend(struct sched *s, struct row *r) {
    if (r->next < r->covered) return 1;
    uint32_t total = row_total(r), page_end = (r->next / PAGE_TOKENS + 1) * PAGE_TOKENS;
    return try_claim(s, r, sched_min(total, r->next + SCHED_AHEAD)) || try_claim(s, r, sched_min(total, page_end));
}

/* ---- Giving back ---- */

/* 0: it had none there. */
static int release(struct sched *s, struct row *r, uint32_t group, uint32_t block) {
    uint32_t *entry = &row_table(s, r, group)[block];
    if (*entry == PAGE_NONE) return 0;
    prefix_unref(s->prefix, group, *entry);
    *entry = PAGE_NONE;
    r->span[group].held--;
    s->held[group]--;
    return 1;
}

static void release_to(struct sched *s, struct row *r, uint32_t group, uint32_t first) {
    struct span *span = &r->span[group];
    for (; span->first < first && span->first < span->end; span->first++) release(s, r, group, span->first);
}

void sched_row_release_window(struct sched *s, struct row *r) {
    for (uint32_t g = 0; g < s->config.groups; g++) {
        uint32_t window = s->config.group[g].window + s->config.group[g].recurrent; /* the state of the token before */
        if (window == 0 || r->done < window + PAGES_SLACK) continue;
        release_to(s, r, g, (r->done - window - PAGES_SLACK + 1) / PAGE_TOKENS);
    }
}

void sched_row_release_state(struct sched *s, struct row *r, uint32_t pos) {
    uint32_t block = pos / PAGE_TOKENS;
    if (pos % PAGE_TOKENS == 0 || r->done <= (block + 1) * PAGE_TOKENS) return;
    int leaves = r->state == ROW_ENDING || r->state == ROW_PREEMPTED; /* it claims what it holds */
    for (uint32_t g = 0; g < s->config.groups; g++) {
        if (!s->config.group[g].recurrent || !release(s, r, g, block) || !leaves) continue;
        r->span[g].claim--;
        s->claimed[g]--;
    }
}

void sched_room_let_go(struct sched *s, struct row *r) {
    for (uint32_t g = 0; g < s->config.groups; g++) {
        release_to(s, r, g, r->span[g].end);
        r->span[g].first = r->span[g].end = 0;
    }
}

void sched_room_give_back(struct sched *s, struct row *r) {
    assert(r->in_flight == 0);
    sched_room_let_go(s, r);
    for (uint32_t g = 0; g < s->config.groups; g++) {
        s->claimed[g] -= r->span[g].claim;
        r->span[g] = (struct span){0};
    }
    set_grows(s, r, 0);
    r->covered = 0;
    s->slot_free[s->slot_free_n++] = r->slot;
    r->slot = NO_SLOT;
}

/* ---- Preemption ---- */

void sched_preempt(struct sched *s, struct row *r) {
    assert((r->state == ROW_PREPARING || r->state == ROW_RUNNING) && !r->loading);
    r->preemptions++;
    s->preemptions++;
    r->known = sched_max(r->known, r->reach); /* of a continuation more may be known than was planned */
    sched_row_untell(s, r);
    sched_room_shrink(s, r);
    sched_row_enter(s, r, ROW_PREEMPTED);
    if (r->in_flight == 0) sched_row_requeue(s, r);
}

/* It was preempted before and has not yet made `tokens` more than it had then. */
static int is_protected(const struct row *r, uint32_t tokens) {
    uint64_t until = (uint64_t)r->admitted + tokens;
    return r->preemptions > 0 && r->next < until;
}

/* What would have to be read again, in whole pages: what the store does not hold. With a store nearly everybody has
 * less than one, and which part of a page that is decides nothing. */
static uint32_t unstored(const struct row *r) {
    return (r->next - sched_min(r->next, r->stored * PAGE_TOKENS)) / PAGE_TOKENS;
}

/* It follows, or has just begun: it gives room and loses no work, so nothing protects it. */
static int has_nothing(const struct row *r) { return r->next == 0; }

/* Whether `a` is the better victim: one that nobody reads, then one of the tenant that was served most (a priority says
 * nothing to other tenants' rows), then the less important, then one that has nothing, then one that may be taken
 * again, then the one with the fewest pages to read again, then the younger. */
static int cheaper(const struct sched *s, const struct row *a, const struct row *b) {
    if (a->paused != b->paused) return a->paused;
    uint64_t served_a = s->tenants[a->tenant].served, served_b = s->tenants[b->tenant].served;
    if (served_a != served_b) return served_a > served_b;
    if (a->tenant != b->tenant) return a->tenant > b->tenant;
    if (a->priority != b->priority) return a->priority > b->priority;
    if (has_nothing(a) != has_nothing(b)) return has_nothing(a);
    int hot_a = is_protected(a, SCHED_AHEAD), hot_b = is_protected(b, SCHED_AHEAD);
    if (hot_a != hot_b) return hot_b;
    if (unstored(a) != unstored(b)) return unstored(a) < unstored(b);
    return a->submitted > b->submitted;
}

static const enum list_id admitted_lists[] = {LIST_PREPARING, LIST_FOLLOWING, LIST_RUNNING, LIST_PARKED};
enum { ADMITTED_LISTS = sizeof admitted_lists / sizeof *admitted_lists };

/* PARKED holds paused rows that wait, too. */
static int may_give(const struct row *r) {
    return (r->state == ROW_PREPARING || r->state == ROW_RUNNING) && !row_spent(r) && !r->loading;
}

static const struct row *find_senior(const struct sched *s) {
    const struct row *senior = NULL;
    for (int l = 0; l < ADMITTED_LISTS; l++)
        for (uint32_t i = s->list[admitted_lists[l]].first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next) {
            const struct row *r = row_at(s, i);
            if (may_give(r) && !r->paused && (senior == NULL || sched_row_before(r, senior))) senior = r;
        }
    return senior;
}

static struct row *find_victim(const struct sched *s) {
    const struct row *senior = find_senior(s);
    struct row *victim = NULL;
    for (int l = 0; l < ADMITTED_LISTS; l++)
        for (uint32_t i = s->list[admitted_lists[l]].first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next) {
            struct row *r = row_at(s, i);
            if (may_give(r) && r != senior && (victim == NULL || cheaper(s, r, victim))) victim = r;
        }
    return victim;
}

static int pages_return(const struct sched *s) {
    return s->state_n[ROW_ENDING] + s->state_n[ROW_PREEMPTED] + s->spent_n > 0;
}

int sched_room_make(struct sched *s) {
    int calm = 1;
    uint32_t next;
    for (uint32_t i = s->list[LIST_RUNNING].first; i != NO_ROW; i = next) {
        struct row *r = row_at(s, i);
        next = r->link[LINK_PLACE].next;
        while (!extend(s, r)) {
            calm = 0;
            struct row *victim = pages_return(s) && r->stalls < STALLS_MAX ? NULL : find_victim(s);
            if (victim == NULL) {
                assert(pages_return(s) || s->loading_n > 0); /* the senior fits alone */
                r->stalls += r->stalls < STALLS_MAX;
                break;
            }
            if (row_index(s, victim) == next) next = victim->link[LINK_PLACE].next;
            sched_preempt(s, victim);
            if (victim == r) break;
        }
        if (r->next < r->covered) r->stalls = 0;
    }
    return calm;
}

/* ---- Making way for the head of the line ---- */

static struct row *cheapest_paused(const struct sched *s) {
    struct row *best = NULL;
    for (uint32_t i = s->list[LIST_PARKED].first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next) {
        struct row *r = row_at(s, i);
        if (r->paused && may_give(r) && (best == NULL || cheaper(s, r, best))) best = r;
    }
    return best;
}

/* A row of a tenant that is ahead of its share; of the one that is farthest ahead, the cheapest. */
static struct row *owed(const struct sched *s, uint64_t limit) {
    uint64_t most = 0;
    for (uint32_t i = s->present_first; i != NO_ROW; i = s->tenants[i].next)
        if (s->tenants[i].rows > 0 && s->tenants[i].served > most) most = s->tenants[i].served;
    if (most <= limit) return NULL;
    struct row *best = NULL;
    for (int l = 0; l < ADMITTED_LISTS; l++)
        for (uint32_t i = s->list[admitted_lists[l]].first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next) {
            struct row *r = row_at(s, i);
            uint64_t served = s->tenants[r->tenant].served;
            if (!may_give(r) || served <= limit) continue;
            if (is_protected(r, sched_max(SCHED_SHARE_QUANTUM, r->admitted / 2))) continue;
            uint64_t best_served = best == NULL ? 0 : s->tenants[best->tenant].served;
            if (served > best_served || (served == best_served && cheaper(s, r, best))) best = r;
        }
    return best;
}

struct row *sched_room_giver(const struct sched *s, const struct row *head) {
    if (pages_return(s)) return NULL; /* what they give back may be enough */
    struct row *r = cheapest_paused(s);
    return r != NULL ? r : owed(s, sched_share_limit(&s->tenants[head->tenant]));
}
