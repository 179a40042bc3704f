/* The ring of events (ring.h): one producer, one consumer. head and tail are sequentially consistent, because both
 * sides also look at flags of the other (a reader that waits, a row that is paused) right after moving theirs. */
#include "engine/ring.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

_Static_assert(sizeof(struct ring_event) % 8 == 0 && sizeof(cohort_logprob) == 8, "records keep 8-byte alignment");

int ring_init(struct ring *r, uint32_t size) {
    r->size = (size + 7) & ~7u;
    r->data = mem_aligned(r->size, 1);
    atomic_init(&r->head, 0);
    atomic_init(&r->tail, 0);
    return r->data ? 0 : COHORT_E_MEMORY;
}

void ring_deinit(struct ring *r) {
    mem_free(r->data);
    r->data = NULL;
    atomic_store(&r->head, 0);
    atomic_store(&r->tail, 0);
}

uint32_t ring_room(const struct ring *r) {
    uint64_t used = atomic_load(&r->head) - atomic_load(&r->tail);
    assert(used <= r->size);
    return r->size - (uint32_t)used;
}

void ring_push(struct ring *r, struct ring_event *head, const cohort_logprob *top, const char *text) {
    uint64_t at = atomic_load_explicit(&r->head, memory_order_relaxed);
    uint32_t offset = (uint32_t)(at % r->size), rest = r->size - offset;
    head->bytes = ring_event_bytes(head->top_n, head->text_len);
    if (rest < head->bytes) {
        assert(ring_room(r) >= rest + head->bytes);
        memset(r->data + offset, 0, sizeof(uint32_t));
        at += rest;
        offset = 0;
    }
    assert(ring_room(r) >= head->bytes);
    struct ring_event *record = (struct ring_event *)(void *)(r->data + offset);
    *record = *head;
    if (head->top_n) memcpy(record + 1, top, head->top_n * sizeof(*top));
    if (head->text_len) memcpy((char *)(record + 1) + head->top_n * sizeof(*top), text, head->text_len);
    atomic_store(&r->head, at + head->bytes);
}

int ring_empty(const struct ring *r) { return atomic_load(&r->head) == atomic_load(&r->tail); }

const struct ring_event *ring_peek(struct ring *r) {
    uint64_t at = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (atomic_load(&r->head) == at) return NULL;
    const struct ring_event *record = (const struct ring_event *)(const void *)(r->data + at % r->size);
    if (record->bytes == 0) { /* skipped: the record that made it necessary was published with it */
        at += r->size - at % r->size;
        atomic_store(&r->tail, at);
        record = (const struct ring_event *)(const void *)r->data;
    }
    return record;
}

void ring_pop(struct ring *r, const struct ring_event *event) {
    atomic_store(&r->tail, atomic_load_explicit(&r->tail, memory_order_relaxed) + event->bytes);
}
