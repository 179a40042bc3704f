/* The undelivered events of one request, serialised one after the other in a ring of bytes. The engine thread pushes,
 * the request's reader peeks and pops; no lock. Records never wrap: one that does not fit before the ring's end starts
 * at its beginning, and the rest is skipped. */
#ifndef ENGINE_RING_H
#define ENGINE_RING_H

#include <stdatomic.h>
#include <stdint.h>

#include "cohort/cohort.h"

struct ring_event { /* the head of a record; its `top` entries and its text follow */
    uint32_t bytes; /* of the whole record, a multiple of 8; 0: nothing more before the ring's end */
    uint32_t type;  /* cohort_event_type */
    int32_t token;
    uint32_t index;
    float logprob;
    uint32_t top_n;
    uint32_t text_len;
    uint32_t unused;
};

struct ring {
    char *data;
    uint32_t size;         /* a multiple of 8 */
    _Atomic uint64_t head; /* bytes pushed so far: the engine's */
    _Atomic uint64_t tail; /* bytes popped so far: the reader's */
};

int ring_init(struct ring *r, uint32_t size); /* rounds up; 0 or COHORT_E_MEMORY */
void ring_deinit(struct ring *r);

static inline uint32_t ring_event_bytes(uint32_t top_n, uint32_t text_len) {
    return ((uint32_t)sizeof(struct ring_event) + top_n * (uint32_t)sizeof(cohort_logprob) + text_len + 7) & ~7u;
}

/* Bytes not in use. Records of `total` bytes together, none above `largest`, fit if total + largest are free. */
uint32_t ring_room(const struct ring *r);
/* Fills in head->bytes and publishes the record. The caller made sure that it fits. */
void ring_push(struct ring *r, struct ring_event *head, const cohort_logprob *top, const char *text);

/* The oldest record, NULL if there is none; it stays until it is popped. */
const struct ring_event *ring_peek(struct ring *r);
void ring_pop(struct ring *r, const struct ring_event *event);
int ring_empty(const struct ring *r);

static inline const cohort_logprob *ring_event_top(const struct ring_event *e) {
    return (const cohort_logprob *)(e + 1);
}
static inline const char *ring_event_text(const struct ring_event *e) {
    return (const char *)(ring_event_top(e) + e->top_n);
}

#endif
