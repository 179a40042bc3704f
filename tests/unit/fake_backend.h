/* A backend without arithmetic, for tests of what is around it: it implements backend.h, so a test program that links
 * this file never takes the real one in.
 *
 * Its state is the token ids themselves, written into pages through the page tables, and its logits are a hash of the
 * tokens that a position sees (all of them, or its group's window). So whatever mixes rows, pages, positions, slots or
 * windows up changes what is generated, and a solo run says what is right. Batches run on a thread of their own; their
 * outputs are consumed last first. Or they run inside of backend_launch or backend_wait: no thread is waited for, and a
 * page that is changed or lent too early or too late shows each time, not now and then. */
#ifndef TESTS_FAKE_BACKEND_H
#define TESTS_FAKE_BACKEND_H

#include <stdatomic.h>
#include <stdint.h>

enum { FAKE_THREAD, FAKE_AT_LAUNCH, FAKE_AT_WAIT };

struct fake_backend {
    _Atomic int when;          /* a batch runs; changed between engines only */
    _Atomic int aside;         /* set while a program is made: nothing here but poison and end touches its batches, */
                               /* and they are not counted */
    _Atomic int delay_us;      /* every batch takes at least so long */
    _Atomic int hold;          /* while set, the batch that runs does not end */
    _Atomic int refuse_launch; /* the launch after so many fails with E_MEMORY (1: the next); 0: none */
    _Atomic int break_wait;    /* set: backend_wait fails */
    _Atomic int32_t poison;    /* positions that see this id get NaN logits; -1: none */
    _Atomic int32_t end;       /* id that ends answers: it is likely now and then. -1: never */
    _Atomic int running;       /* 1 while a batch runs */
    _Atomic uint32_t batches;  /* run so far */
    _Atomic uint32_t some;     /* outputs so far of which some logits were wanted, */
    _Atomic uint32_t none;     /* and none */
    _Atomic uint32_t last_tokens; /* of the last batch launched */
    _Atomic uint64_t tokens;      /* computed so far */
};
extern struct fake_backend fake_backend;

#endif
