/* The ring of events: what goes in comes out, in order and unbroken, at every offset and fill; it costs what it holds;
 * the end can always be said. */
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/ring.h"

enum { TEXT_MAX = 40, SEGMENTS_BYTES_MAX = 2 * (RING_SEGMENT_BYTES + 64) };

static struct ring ring;
static uint32_t largest;

static void make_ring(uint32_t limit) {
    largest = ring_event_bytes(4, TEXT_MAX);
    assert_int_equal(ring_init(&ring, limit, largest, ring_event_bytes(0, TEXT_MAX)), 0);
}

/* Record number i has contents that follow from i. */
static void make(uint32_t i, struct ring_event *head, cohort_logprob *top, char *text) {
    uint64_t r = rng_u64(1, 1, i);
    *head = (struct ring_event){.type = COHORT_EVENT_TOKEN, .token = (int32_t)i, .index = i * 3};
    head->top_n = (uint32_t)(r % 4);
    head->text_len = (uint32_t)(r / 4 % TEXT_MAX);
    for (uint32_t j = 0; j < head->top_n; j++) top[j] = (cohort_logprob){(int32_t)(i + j), (float)j};
    for (uint32_t j = 0; j < head->text_len; j++) text[j] = (char)(i + j);
}

/* 1 if there was room for it. */
static int push(uint32_t i) {
    struct ring_event head;
    cohort_logprob top[4];
    char text[TEXT_MAX];
    make(i, &head, top, text);
    if (ring_room(&ring) < ring_event_bytes(head.top_n, head.text_len)) return 0;
    if (ring_push(&ring, &head, top, text) != 0) abort(); /* called on a thread that is not cmocka's, too */
    return 1;
}

static void push_end(void) {
    struct ring_event head = {.type = COHORT_EVENT_FINISH, .text_len = 5};
    ring_push_last(&ring, &head, "the e");
}

static int pop(uint32_t i) {
    struct ring_event want;
    cohort_logprob top[4];
    char text[TEXT_MAX];
    const struct ring_event *got = ring_peek(&ring);
    if (!got) return 0;
    make(i, &want, top, text);
    if (got->token != want.token || got->index != want.index || got->top_n != want.top_n ||
        got->text_len != want.text_len || memcmp(ring_event_top(got), top, want.top_n * sizeof(top[0])) != 0 ||
        memcmp(ring_event_text(got), text, want.text_len) != 0)
        abort();
    ring_pop(&ring, got);
    return 1;
}

static void what_goes_in_comes_out(void **state) {
    for (uint32_t limit = 256; limit < 60000; limit += 7 + limit / 4) {
        make_ring(limit);
        assert_null(ring_peek(&ring));
        assert_true(ring_empty(&ring));
        uint32_t in = 0, out = 0, fill = 1 + limit / 64;
        for (uint64_t step = 0; step < 200; step++) {
            uint64_t r = rng_u64(2, limit, step);
            for (uint64_t n = r % (6 * fill); n > 0 && push(in); n--) in++;
            for (uint64_t n = r / 8192 % (6 * fill); n > 0 && pop(out); n--) out++;
        }
        while (pop(out)) out++;
        assert_int_equal(in, out);
        assert_true(in > 500);
        assert_true(ring_empty(&ring));
        assert_int_equal(ring_room(&ring), ring.limit);
        ring_deinit(&ring);
    }
}

/* A full ring has taken exactly what it promises, and what is popped is room again at once. */
static void a_full_ring_is_full(void **state) {
    make_ring(3 * RING_SEGMENT_BYTES);
    uint32_t in = 0, bytes = 0;
    while (push(in)) in++;
    for (uint32_t i = 0; i < in; i++) {
        struct ring_event head;
        cohort_logprob top[4];
        char text[TEXT_MAX];
        make(i, &head, top, text);
        bytes += ring_event_bytes(head.top_n, head.text_len);
    }
    assert_int_equal(ring_room(&ring), ring.limit - bytes);
    assert_true(ring_room(&ring) < largest);
    for (uint32_t i = 0; i < in; i++) {
        uint32_t room = ring_room(&ring), popped = ring_peek(&ring)->bytes;
        assert_true(pop(i));
        assert_int_equal(ring_room(&ring), room + popped);
    }
    assert_false(pop(in));
    ring_deinit(&ring);
}

static size_t heap_bytes(void) { return mallinfo2().uordblks; }

/* Nothing but the end's segment while nothing was said, one more or two for a reader that keeps up however much goes
 * through, and with a reader that lags little more than the limit. */
static void it_costs_what_it_holds(void **state) {
    size_t before = heap_bytes();
    uint64_t allocations = mem_count();
    make_ring(64 << 10);
    assert_null(ring_peek(&ring));
    assert_int_equal(mem_count() - allocations, 1);
    assert_true(heap_bytes() - before < 256);
    uint32_t i = 0;
    for (; i < 20000; i++) {
        assert_true(push(i) && pop(i));
        if (i % 8 == 0) assert_true(heap_bytes() - before < 256 + SEGMENTS_BYTES_MAX);
    }
    assert_true(mem_count() - allocations > 100);
    uint32_t out = i;
    for (; i < 40000; i++) {
        while (!push(i)) assert_true(pop(out++));
        if (i % 8 == 0) assert_true(heap_bytes() - before < (64 << 10) / 3 * 4 + SEGMENTS_BYTES_MAX + 256);
    }
    while (pop(out)) out++;
    assert_int_equal(out, i);
    ring_deinit(&ring);
    assert_true(heap_bytes() <= before);
}

/* F1: without memory a record is refused and nothing else changes; the end needs none. */
static void an_end_needs_no_memory(void **state) {
    for (uint32_t full = 0; full < 2; full++) {
        make_ring(16 << 10);
        uint32_t in = 0;
        mem_fail_at(1 + full, 1);
        struct ring_event head;
        cohort_logprob top[4];
        char text[TEXT_MAX];
        for (;; in++) {
            make(in, &head, top, text);
            if (ring_push(&ring, &head, top, text) != 0) break;
        }
        assert_true(full ? in > 20 : in == 0);
        assert_int_equal(ring_push(&ring, &head, top, text), COHORT_E_MEMORY);
        push_end();
        mem_fail_at(0, 0);
        for (uint32_t i = 0; i < in; i++) assert_true(pop(i));
        const struct ring_event *end = ring_peek(&ring);
        assert_int_equal(end->type, COHORT_EVENT_FINISH);
        assert_memory_equal(ring_event_text(end), "the e", 5);
        ring_pop(&ring, end);
        assert_null(ring_peek(&ring));
        ring_deinit(&ring);
    }
    /* And no room: it may come to a full ring. */
    make_ring(256);
    uint32_t in = 0;
    while (push(in)) in++;
    push_end();
    assert_true(ring_room(&ring) <= 256);
    for (uint32_t i = 0; i < in; i++) assert_true(pop(i));
    assert_int_equal(ring_peek(&ring)->type, COHORT_EVENT_FINISH);
    ring_deinit(&ring); /* with a record in it */
}

enum { PASSED = 20000 };

static void *reader(void *arg) {
    for (uint32_t i = 0; i < PASSED;) i += (uint32_t)pop(i);
    const struct ring_event *end;
    while ((end = ring_peek(&ring)) == NULL)
        ;
    if (end->type != COHORT_EVENT_FINISH || memcmp(ring_event_text(end), "the e", 5) != 0) abort();
    ring_pop(&ring, end);
    return NULL;
}

static void two_threads_pass_records(void **state) {
    static const uint32_t limits[] = {1000, 5000, 64 << 10};
    for (int k = 0; k < 3; k++) {
        pthread_t thread;
        make_ring(limits[k]);
        pthread_create(&thread, NULL, reader, NULL);
        for (uint32_t i = 0; i < PASSED;) i += (uint32_t)push(i);
        push_end();
        pthread_join(thread, NULL);
        assert_true(ring_empty(&ring));
        ring_deinit(&ring);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),   cmocka_unit_test(a_full_ring_is_full),
        cmocka_unit_test(it_costs_what_it_holds),   cmocka_unit_test(an_end_needs_no_memory),
        cmocka_unit_test(two_threads_pass_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
