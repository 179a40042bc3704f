/* The waiting lines and the tenants' shares. Each tenant has a line of its own, ordered by priority, then by
 * submission: a pairing heap through the rows, so that joining, leaving from the middle and going first cost a handful
 * of links, whatever waits. Who comes next is the head of the tenant that was served least: virtual token counters
 * (start-time fair queueing in tokens, divided by weights). A tenant competes while it has a line and is below its own
 * limit of rows; it begins to where the least served of those that do is, so that nobody saves up. The engine's thread.
 */
#include <assert.h>

#include "base/mem.h"
#include "sched/sched_internal.h"

int sched_row_before(const struct row *a, const struct row *b) {
    if (a->priority != b->priority) return a->priority < b->priority;
    return a->submitted < b->submitted;
}

/* ---- The heap ---- */

/* Joins two heaps whose roots have no siblings; either may be empty. */
static uint32_t meld(struct sched *s, uint32_t a, uint32_t b) {
    if (a == NO_ROW) return b;
    if (b == NO_ROW) return a;
    if (sched_row_before(row_at(s, b), row_at(s, a))) {
        uint32_t swap = a;
        a = b;
        b = swap;
    }
    struct heap_link *parent = &row_at(s, a)->heap, *child = &row_at(s, b)->heap;
    child->next = parent->child;
    child->prev = a;
    if (parent->child != NO_ROW) row_at(s, parent->child)->heap.prev = b;
    parent->child = b;
    parent->next = parent->prev = NO_ROW;
    return a;
}

/* Joins a list of siblings into one heap: in pairs from the left, then the pairs from the right. */
static uint32_t meld_siblings(struct sched *s, uint32_t first) {
    uint32_t pairs = NO_ROW, heap = NO_ROW; /* pairs: a stack through `next` */
    while (first != NO_ROW) {
        uint32_t a = first, b = row_at(s, a)->heap.next;
        first = b == NO_ROW ? NO_ROW : row_at(s, b)->heap.next;
        row_at(s, a)->heap.next = row_at(s, a)->heap.prev = NO_ROW;
        if (b != NO_ROW) row_at(s, b)->heap.next = row_at(s, b)->heap.prev = NO_ROW;
        a = meld(s, a, b);
        row_at(s, a)->heap.next = pairs;
        pairs = a;
    }
    while (pairs != NO_ROW) {
        uint32_t next = row_at(s, pairs)->heap.next;
        row_at(s, pairs)->heap.next = NO_ROW;
        heap = meld(s, heap, pairs);
        pairs = next;
    }
    return heap;
}

/* ---- Tenants that compete ---- */

static int at_its_limit(const struct tenant *t) { return t->rows_max != 0 && t->rows >= t->rows_max; }

/* Service that nobody had to wait for is owed to nobody. When a tenant begins to compete, those present that do not are
 * raised to the one served least of those that do; where nobody did, all are level from now on. */
static void make_level(struct sched *s) {
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = s->present_first; i != NO_ROW; i = s->tenants[i].next) {
        const struct tenant *t = &s->tenants[i];
        if (t->competes && t->served < least) least = t->served;
        if (t->served > most) most = t->served;
    }
    uint64_t level = least != UINT64_MAX ? least : most;
    for (uint32_t i = s->present_first; i != NO_ROW; i = s->tenants[i].next) {
        struct tenant *t = &s->tenants[i];
        if (!t->competes && t->served < level) t->served = level;
    }
}

/* Its line or its number of rows has changed. */
static void tenant_settle(struct sched *s, struct tenant *t) {
    int competes = t->waiting > 0 && !at_its_limit(t);
    if (competes && !t->competes) make_level(s);
    t->competes = competes;
}

/* ---- Lines ---- */

void sched_line_push(struct sched *s, struct row *r) {
    struct tenant *t = &s->tenants[r->tenant];
    r->heap = (struct heap_link){NO_ROW, NO_ROW, NO_ROW};
    t->root = meld(s, t->root, row_index(s, r));
    t->waiting++;
    tenant_settle(s, t);
}

static void heap_remove(struct sched *s, struct tenant *t, struct row *r) {
    uint32_t i = row_index(s, r), rest = meld_siblings(s, r->heap.child);
    if (t->root == i) {
        t->root = rest;
        return;
    }
    struct heap_link *left = &row_at(s, r->heap.prev)->heap;
    if (left->child == i)
        left->child = r->heap.next;
    else
        left->next = r->heap.next;
    if (r->heap.next != NO_ROW) row_at(s, r->heap.next)->heap.prev = r->heap.prev;
    t->root = meld(s, t->root, rest);
}

void sched_line_remove(struct sched *s, struct row *r) {
    struct tenant *t = &s->tenants[r->tenant];
    heap_remove(s, t, r);
    assert(t->waiting > 0);
    t->waiting--;
    tenant_settle(s, t);
}

/* ---- Tenants that come and go ---- */

static int is_present(enum row_state state) {
    return state == ROW_WAITING || state == ROW_PREPARING || state == ROW_RUNNING || state == ROW_PREEMPTED;
}

static int is_admitted(enum row_state state) { return state == ROW_PREPARING || state == ROW_RUNNING; }

static void tenant_comes(struct sched *s, struct tenant *t) {
    uint32_t i = (uint32_t)(t - s->tenants);
    t->prev = NO_ROW;
    t->next = s->present_first;
    if (t->next != NO_ROW) s->tenants[t->next].prev = i;
    s->present_first = i;
}

static void tenant_goes(struct sched *s, struct tenant *t) {
    if (t->prev == NO_ROW)
        s->present_first = t->next;
    else
        s->tenants[t->prev].next = t->next;
    if (t->next != NO_ROW) s->tenants[t->next].prev = t->prev;
}

void sched_tenant_count(struct sched *s, struct row *r, enum row_state from, enum row_state to) {
    struct tenant *t = &s->tenants[r->tenant];
    t->rows += (uint32_t)is_admitted(to) - (uint32_t)is_admitted(from);
    tenant_settle(s, t);
    if (is_present(to) == is_present(from)) return;
    if (is_present(to)) {
        if (t->present++ == 0) tenant_comes(s, t);
    } else {
        assert(t->present > 0);
        if (--t->present == 0) tenant_goes(s, t);
    }
}

void sched_tenant_charge(struct sched *s, const struct row *r, uint32_t tokens) {
    struct tenant *t = &s->tenants[r->tenant];
    t->served += tokens * (SERVED_UNIT / t->weight);
}

uint64_t sched_share_limit(const struct tenant *t) {
    return t->served + SCHED_SHARE_QUANTUM * (SERVED_UNIT / t->weight);
}

static int tenant_before(const struct tenant *a, const struct tenant *b) {
    return a->served != b->served ? a->served < b->served : a < b;
}

/* Under a hold only rows that were admitted before come in. They stand anywhere in the lines, and are looked for: there
 * are few, a hold is rare, and so is a preemption. */
static struct row *returning_head(const struct sched *s) {
    struct row *best = NULL;
    if (s->returning_n == 0) return NULL;
    for (uint32_t i = s->list[LIST_WAITING].first; i != NO_ROW; i = row_at(s, i)->link[LINK_PLACE].next) {
        struct row *r = row_at(s, i);
        const struct tenant *t = &s->tenants[r->tenant], *other = best == NULL ? NULL : &s->tenants[best->tenant];
        if (r->preemptions == 0 || at_its_limit(t)) continue;
        if (best == NULL || tenant_before(t, other) || (t == other && sched_row_before(r, best))) best = r;
    }
    return best;
}

struct row *sched_line_head(struct sched *s) {
    if (s->held_back) return returning_head(s);
    const struct tenant *best = NULL;
    for (uint32_t i = s->present_first; i != NO_ROW; i = s->tenants[i].next) {
        const struct tenant *t = &s->tenants[i];
        if (t->competes && (best == NULL || tenant_before(t, best))) best = t;
    }
    return best == NULL ? NULL : row_at(s, best->root);
}

int sched_line_new(struct sched *s, const struct sched_config *config, cohort_error *err) {
    static const struct sched_tenant only = {.weight = 1};
    const struct sched_tenant *from = config->tenants != NULL ? config->tenants : &only;
    s->tenants_n = config->tenants != NULL ? config->tenants_n : 1;
    if (s->tenants_n < 1 || s->tenants_n > SCHED_TENANTS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "tenants", "%u tenants are outside 1 to %d", s->tenants_n,
                       SCHED_TENANTS_MAX);
    s->tenants = mem_zalloc(s->tenants_n, sizeof *s->tenants);
    if (s->tenants == NULL) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for %u tenants", s->tenants_n);
    for (uint32_t i = 0; i < s->tenants_n; i++) {
        if (from[i].weight < 1 || from[i].weight > SCHED_WEIGHT_MAX)
            return err_set(err, COHORT_E_ARGUMENT, "weight", "the weight %u of tenant %u is outside 1 to %d",
                           from[i].weight, i, SCHED_WEIGHT_MAX);
        s->tenants[i] = (struct tenant){.weight = from[i].weight, .rows_max = from[i].rows_max, .root = NO_ROW};
    }
    s->present_first = NO_ROW;
    return 0;
}
