/* The ring of events: what goes in comes out, in order and unbroken, at every offset and fill. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/ring.h"

static struct ring ring;

/* Record number i has contents that follow from i. */
static void make(uint32_t i, struct ring_event *head, cohort_logprob *top, char *text) {
    uint64_t r = rng_u64(1, 1, i);
    *head = (struct ring_event){.type = COHORT_EVENT_TOKEN, .token = (int32_t)i, .index = i * 3};
    head->top_n = (uint32_t)(r % 4);
    head->text_len = (uint32_t)(r / 4 % 40);
    for (uint32_t j = 0; j < head->top_n; j++) top[j] = (cohort_logprob){(int32_t)(i + j), (float)j};
    for (uint32_t j = 0; j < head->text_len; j++) text[j] = (char)(i + j);
}

static int push(uint32_t i) {
    struct ring_event head;
    cohort_logprob top[4];
    char text[40];
    make(i, &head, top, text);
    uint32_t largest = ring_event_bytes(4, 40);
    if (ring_room(&ring) < ring_event_bytes(head.top_n, head.text_len) + largest) return 0;
    ring_push(&ring, &head, top, text);
    return 1;
}

static int pop(uint32_t i) {
    struct ring_event want;
    cohort_logprob top[4];
    char text[40];
    const struct ring_event *got = ring_peek(&ring);
    if (!got) return 0;
    make(i, &want, top, text);
    if (got->token != want.token || got->index != want.index || got->top_n != want.top_n ||
        got->text_len != want.text_len || memcmp(ring_event_top(got), top, want.top_n * sizeof(top[0])) != 0 ||
        memcmp(ring_event_text(got), text, want.text_len) != 0)
        abort(); /* called on a thread that is not cmocka's, too */
    ring_pop(&ring, got);
    return 1;
}

static void what_goes_in_comes_out(void **state) {
    for (uint32_t size = 256; size < 400; size += 7) {
        assert_int_equal(ring_init(&ring, size), 0);
        assert_null(ring_peek(&ring));
        assert_true(ring_empty(&ring));
        uint32_t in = 0, out = 0;
        for (uint64_t step = 0; step < 1000; step++) {
            uint64_t r = rng_u64(2, size, step);
            for (uint64_t n = r % 6; n > 0 && push(in); n--) in++;
            for (uint64_t n = r / 8 % 6; n > 0 && pop(out); n--) out++;
        }
        while (pop(out)) out++;
        assert_int_equal(in, out);
        assert_true(in > 500);
        assert_true(ring_empty(&ring));
        assert_int_equal(ring_room(&ring), ring.size);
        ring_deinit(&ring);
    }
}

/* A full ring has taken as much as its rule promises: all of it but one largest record. */
static void a_full_ring_is_full(void **state) {
    assert_int_equal(ring_init(&ring, 1024), 0);
    uint32_t in = 0;
    while (push(in)) in++;
    assert_true(ring_room(&ring) < 2 * ring_event_bytes(4, 40));
    for (uint32_t i = 0; i < in; i++) assert_true(pop(i));
    assert_false(pop(in));
    ring_deinit(&ring);
}

enum { PASSED = 40000 };

static void *reader(void *arg) {
    for (uint32_t i = 0; i < PASSED;) i += (uint32_t)pop(i);
    return NULL;
}

static void two_threads_pass_records(void **state) {
    pthread_t thread;
    assert_int_equal(ring_init(&ring, 1000), 0);
    pthread_create(&thread, NULL, reader, NULL);
    for (uint32_t i = 0; i < PASSED;) i += (uint32_t)push(i);
    pthread_join(thread, NULL);
    assert_true(ring_empty(&ring));
    ring_deinit(&ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(a_full_ring_is_full),
        cmocka_unit_test(two_threads_pass_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
