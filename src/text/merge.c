/* The merge loop. Invariant: symbols with len > 0 form a list in text order through prev and next, beginning at symbol
 * 0 (the left symbol of a merge survives, so the first one always does). */
#include "text/merge.h"

#include <assert.h>

#include "base/err.h"
#include "base/mem.h"

static int grow(void **memory, size_t *capacity, size_t size) {
    size_t more = *capacity ? *capacity * 2 : 64;
    void *grown = mem_realloc(*memory, more, size);
    if (!grown) return COHORT_E_MEMORY;
    *memory = grown;
    *capacity = more;
    return 0;
}

int merge_add(struct merger *m, uint32_t at, uint32_t len, int32_t id) {
    assert(len > 0 && m->n < INT32_MAX);
    if (m->n == m->capacity && grow((void **)&m->symbols, &m->capacity, sizeof(*m->symbols))) return COHORT_E_MEMORY;
    int32_t i = (int32_t)m->n++;
    m->symbols[i] = (struct merge_symbol){at, len, id, i - 1, -1};
    if (i > 0) m->symbols[i - 1].next = i;
    return 0;
}

static int before(const struct merge_pair *a, const struct merge_pair *b) {
    return a->order != b->order ? a->order < b->order : a->left < b->left;
}

static int push(struct merger *m, struct merge_pair pair) {
    if (m->heap_n == m->heap_capacity && grow((void **)&m->heap, &m->heap_capacity, sizeof(*m->heap)))
        return COHORT_E_MEMORY;
    size_t i = m->heap_n++;
    for (; i > 0 && before(&pair, &m->heap[(i - 1) / 2]); i = (i - 1) / 2) m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = pair;
    return 0;
}

static struct merge_pair pop(struct merger *m) {
    assert(m->heap_n > 0);
    struct merge_pair top = m->heap[0], last = m->heap[--m->heap_n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->heap_n; i = child) {
        if (child + 1 < m->heap_n && before(&m->heap[child + 1], &m->heap[child])) child++;
        if (!before(&m->heap[child], &last)) break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

static int try_pair(struct merger *m, int32_t left, int32_t right, merge_join join, const void *context) {
    if (left < 0 || right < 0) return 0;
    const struct merge_symbol *a = &m->symbols[left], *b = &m->symbols[right];
    struct merge_pair pair = {.left = (uint32_t)left, .len = a->len + b->len};
    return join(context, a, b, &pair.order, &pair.id) ? push(m, pair) : 0;
}

int merge_run(struct merger *m, merge_join join, const void *context) {
    for (size_t i = 1; i < m->n; i++)
        if (try_pair(m, (int32_t)i - 1, (int32_t)i, join, context)) return COHORT_E_MEMORY;
    while (m->heap_n > 0) {
        struct merge_pair pair = pop(m);
        struct merge_symbol *left = &m->symbols[pair.left];
        /* Symbols only grow, and only to the right: the same sum at the same left end is the same pair. */
        if (left->len == 0 || left->next < 0 || left->len + m->symbols[left->next].len != pair.len) continue;
        struct merge_symbol *right = &m->symbols[left->next];
        left->len = pair.len;
        left->id = pair.id;
        left->next = right->next;
        right->len = 0;
        if (left->next >= 0) m->symbols[left->next].prev = (int32_t)pair.left;
        if (try_pair(m, left->prev, (int32_t)pair.left, join, context) ||
            try_pair(m, (int32_t)pair.left, left->next, join, context))
            return COHORT_E_MEMORY;
    }
    return 0;
}

void merge_free(struct merger *m) {
    mem_free(m->symbols);
    mem_free(m->heap);
    *m = (struct merger){0};
}
