/* Owns the counts and the free lists. A free list is threaded through an array of next ids, so that taking and giving
 * back a page is a few loads and stores; the page given back last is taken first, because its bytes are still warm. */
#include "pages/pages.h"

#include <assert.h>

#include "base/mem.h"

struct page {
    uint32_t count; /* owners; 0: free */
    uint32_t next;  /* the next free page, while free */
};

struct group {
    struct page *page;
    uint32_t total, available;
    uint32_t free; /* first free page, PAGE_NONE: none */
};

struct pages {
    uint32_t groups;
    struct group group[PAGES_GROUPS_MAX];
};

static int group_init(struct group *g, uint32_t total) {
    g->page = mem_alloc(total, sizeof *g->page);
    if (g->page == NULL) return COHORT_E_MEMORY;
    for (uint32_t i = 0; i < total; i++) g->page[i] = (struct page){0, i + 1 < total ? i + 1 : PAGE_NONE};
    g->total = g->available = total;
    g->free = 0;
    return 0;
}

int pages_new(struct pages **out, uint32_t groups, const uint32_t totals[], cohort_error *err) {
    *out = NULL;
    if (groups < 1 || groups > PAGES_GROUPS_MAX)
        return err_set(err, COHORT_E_ARGUMENT, "groups", "%u layer groups, 1 to %d are possible", groups,
                       PAGES_GROUPS_MAX);
    for (uint32_t g = 0; g < groups; g++)
        if (totals[g] < 1 || totals[g] > PAGES_TOTAL_MAX)
            return err_set(err, COHORT_E_ARGUMENT, "totals", "%u pages in layer group %u, 1 to %u are possible",
                           totals[g], g, PAGES_TOTAL_MAX);
    struct pages *p = mem_zalloc(1, sizeof *p);
    if (p == NULL) goto fail;
    p->groups = groups;
    for (uint32_t g = 0; g < groups; g++)
        if (group_init(&p->group[g], totals[g]) != 0) goto fail;
    *out = p;
    return 0;
fail:
    pages_free(p);
    return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the page counts");
}

void pages_free(struct pages *p) {
    if (p == NULL) return;
    for (uint32_t g = 0; g < p->groups; g++) mem_free(p->group[g].page);
    mem_free(p);
}

static struct group *group_of(const struct pages *p, uint32_t group) {
    assert(group < p->groups);
    return (struct group *)&p->group[group];
}

static struct page *page_of(const struct pages *p, uint32_t group, uint32_t page) {
    struct group *g = group_of(p, group);
    assert(page < g->total);
    return &g->page[page];
}

uint32_t pages_alloc(struct pages *p, uint32_t group) {
    struct group *g = group_of(p, group);
    uint32_t id = g->free;
    if (id == PAGE_NONE) return PAGE_NONE;
    struct page *page = page_of(p, group, id);
    assert(page->count == 0);
    page->count = 1;
    g->free = page->next;
    g->available--;
    return id;
}

void pages_ref(struct pages *p, uint32_t group, uint32_t page) {
    struct page *it = page_of(p, group, page);
    assert(it->count > 0);          /* a free page cannot be shared */
    assert(it->count < UINT32_MAX); /* owners are rows and stored prefixes, far fewer than this */
    it->count++;
}

void pages_unref(struct pages *p, uint32_t group, uint32_t page) {
    struct group *g = group_of(p, group);
    struct page *it = page_of(p, group, page);
    assert(it->count > 0);
    if (--it->count > 0) return;
    it->next = g->free;
    g->free = page;
    g->available++;
}

uint32_t pages_count(const struct pages *p, uint32_t group, uint32_t page) { return page_of(p, group, page)->count; }
uint32_t pages_available(const struct pages *p, uint32_t group) { return group_of(p, group)->available; }
uint32_t pages_total(const struct pages *p, uint32_t group) { return group_of(p, group)->total; }

static int group_check(const struct group *g) {
    uint32_t unused = 0, listed = 0;
    for (uint32_t i = 0; i < g->total; i++) unused += g->page[i].count == 0;
    /* A list that is longer than the free pages runs in a circle. */
    for (uint32_t i = g->free; i != PAGE_NONE; i = g->page[i].next) {
        if (i >= g->total || g->page[i].count != 0 || ++listed > unused) return 0;
    }
    return listed == unused && unused == g->available;
}

int pages_check(const struct pages *p) {
    for (uint32_t g = 0; g < p->groups; g++)
        if (!group_check(&p->group[g])) return 0;
    return 1;
}
