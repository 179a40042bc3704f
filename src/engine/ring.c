/* The ring of events (ring.h): one producer, one consumer. `pushed` and `popped` are sequentially consistent, because
 * both sides also look at flags of the other (a reader that waits, a row that is paused) right after moving theirs.
 *
 * Why the reader finds the next record: it steps to the next segment when it stands at the end of a segment that is
 * closed. A record is published after the segment before it was closed, so a reader that saw the record published sees
 * that as well, and one that sees no next segment knows the record to be in the segment where it stands. */
#include "engine/ring.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

_Static_assert(sizeof(struct ring_event) % 8 == 0 && sizeof(cohort_logprob) == 8, "records keep 8-byte alignment");
_Static_assert(sizeof(struct ring_segment) % 8 == 0, "and begin so");

static char *data_of(struct ring_segment *s) { return (char *)(s + 1); }

static struct ring_segment *segment_new(uint32_t bytes) {
    struct ring_segment *s = mem_alloc(1, sizeof(struct ring_segment) + (size_t)bytes);
    if (!s) return NULL;
    atomic_init(&s->next, NULL);
    s->size = bytes;
    s->used = 0;
    return s;
}

int ring_init(struct ring *r, uint32_t limit, uint32_t largest, uint32_t last) {
    memset(r, 0, sizeof(*r));
    r->limit = (limit + 7) & ~7u;
    /* What a record leaves unused at a segment's end is at most a quarter of it. */
    r->segment_bytes = largest > RING_SEGMENT_BYTES / 4 ? 4 * largest : RING_SEGMENT_BYTES;
    r->in = r->out = &r->anchor;
    r->last = segment_new(last);
    return r->last ? 0 : COHORT_E_MEMORY;
}

void ring_deinit(struct ring *r) {
    for (struct ring_segment *s = r->out, *next; s; s = next) {
        next = atomic_load(&s->next);
        if (s != &r->anchor && s != r->last) mem_free(s);
    }
    mem_free(r->last);
    memset(r, 0, sizeof(*r));
}

uint32_t ring_room(const struct ring *r) {
    /* The reader's first: pushed is then at least what it was at that time. */
    uint64_t popped = atomic_load(&r->popped), used = atomic_load(&r->pushed) - popped;
    return used < r->limit ? r->limit - (uint32_t)used : 0; /* the last record needs no room */
}

static void link_segment(struct ring *r, struct ring_segment *s) {
    atomic_store(&r->in->next, s);
    r->in = s;
}

static void write_record(struct ring *r, struct ring_event *head, const cohort_logprob *top, const char *text) {
    struct ring_segment *s = r->in;
    assert(s->size - s->used >= head->bytes);
    struct ring_event *record = (struct ring_event *)(void *)(data_of(s) + s->used);
    *record = *head;
    if (head->top_n) memcpy(record + 1, top, head->top_n * sizeof(*top));
    if (head->text_len) memcpy((char *)(record + 1) + head->top_n * sizeof(*top), text, head->text_len);
    s->used += head->bytes;
    atomic_store(&r->pushed, atomic_load_explicit(&r->pushed, memory_order_relaxed) + head->bytes);
}

int ring_push(struct ring *r, struct ring_event *head, const cohort_logprob *top, const char *text) {
    head->bytes = ring_event_bytes(head->top_n, head->text_len);
    assert(ring_room(r) >= head->bytes && r->in != r->last);
    if (r->in->size - r->in->used < head->bytes) {
        struct ring_segment *s = segment_new(r->segment_bytes);
        if (!s) return COHORT_E_MEMORY;
        link_segment(r, s);
    }
    write_record(r, head, top, text);
    return 0;
}

void ring_push_last(struct ring *r, struct ring_event *head, const char *text) {
    head->bytes = ring_event_bytes(0, head->text_len);
    assert(head->top_n == 0 && r->in != r->last);
    link_segment(r, r->last);
    write_record(r, head, NULL, text);
}

int ring_empty(const struct ring *r) { return atomic_load(&r->pushed) == atomic_load(&r->popped); }

const struct ring_event *ring_peek(struct ring *r) {
    if (ring_empty(r)) return NULL;
    struct ring_segment *next;
    while ((next = atomic_load(&r->out->next)) != NULL && r->at == r->out->used) {
        if (r->out != &r->anchor) mem_free(r->out);
        r->out = next;
        r->at = 0;
    }
    return (const struct ring_event *)(const void *)(data_of(r->out) + r->at);
}

void ring_pop(struct ring *r, const struct ring_event *event) {
    r->at += event->bytes;
    atomic_store(&r->popped, atomic_load_explicit(&r->popped, memory_order_relaxed) + event->bytes);
}
