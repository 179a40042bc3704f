/* The undelivered events of one request, serialised one after the other. The engine thread pushes, the request's reader
 * peeks and pops; no lock.
 *
 * A chain of segments, so that a request that waits or whose reader keeps up costs one small segment at most, whatever
 * it may come to hold:
 *
 *   anchor -> [ popped | records | room ] -> [ records ] -> ... -> [ records | room ]
 *              ^ the reader is here                                            ^ the engine is here
 *
 * Records never straddle segments. The engine links a segment when a record does not fit the last one; the reader frees
 * a segment when it steps behind its last record. The record that ends a request lies in a segment of its own, taken
 * when the ring is made: an end can always be said. */
#ifndef ENGINE_RING_H
#define ENGINE_RING_H

#include <stdatomic.h>
#include <stdint.h>

#include "cohort/cohort.h"

struct ring_event { /* the head of a record; its `top` entries and its text follow */
    uint32_t bytes; /* of the whole record, a multiple of 8 */
    uint32_t type;  /* cohort_event_type */
    int32_t token;
    uint32_t index;
    float logprob;
    uint32_t top_n;
    uint32_t text_len;
    float sampler_state;
};

enum { RING_SEGMENT_BYTES = 2048 - 64 };

struct ring_segment {                    /* the head of `size` bytes for records */
    _Atomic(struct ring_segment *) next; /* set once: `used` does not change any more */
    uint32_t size, used;                 /* `used` is the engine's until `next` is set */
};

struct ring {
    uint32_t limit;           /* bytes of records that may be there at one time, without the last */
    uint32_t segment_bytes;   /* of a new segment: several of the largest record */
    _Atomic uint64_t pushed;  /* bytes of records so far: the engine's */
    _Atomic uint64_t popped;  /* the reader's */
    struct ring_segment *in;  /* engine: the segment it writes */
    struct ring_segment *out; /* reader: the segment it reads, from offset `at` */
    uint32_t at;
    struct ring_segment *last;  /* for the record that ends the request */
    struct ring_segment anchor; /* holds nothing */
};

/* `limit` rounds up. Records have at most `largest` bytes, the last one at most `last`. All segments together stay
 * below 4/3 limit and two more of them. 0 or COHORT_E_MEMORY. */
int ring_init(struct ring *r, uint32_t limit, uint32_t largest, uint32_t last);
void ring_deinit(struct ring *r); /* also of a zeroed one */

static inline uint32_t ring_event_bytes(uint32_t top_n, uint32_t text_len) {
    return ((uint32_t)sizeof(struct ring_event) + top_n * (uint32_t)sizeof(cohort_logprob) + text_len + 7) & ~7u;
}

/* Bytes of records that fit. */
uint32_t ring_room(const struct ring *r);
/* Fills in head->bytes and publishes the record. The caller made sure that there is room. COHORT_E_MEMORY: no memory
 * for a segment, nothing was pushed. */
int ring_push(struct ring *r, struct ring_event *head, const cohort_logprob *top, const char *text);
/* The same for the record that ends the request: cannot fail, needs no room, and nothing may follow. */
void ring_push_last(struct ring *r, struct ring_event *head, const char *text);

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
