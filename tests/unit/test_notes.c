/* Notes of events (server/notes.h): what is written comes back, also what a continuation needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/notes.h"

static cohort_event through(const cohort_event *event, struct buf *b) {
    cohort_event out;
    uint32_t choice;
    assert_int_equal(note_write(b, 3, event), 0);
    assert_int_equal(note_length(b->data, b->len), b->len);
    assert_int_equal(note_read(b->data, b->len, &choice, &out), 0);
    assert_int_equal(choice, 3);
    return out;
}

static void tokens_keep_their_state(void **state) {
    static const cohort_logprob top[] = {{7, -0.5f}, {9, -1.5f}};
    const cohort_event event = {.type = COHORT_EVENT_TOKEN,
                                .token = 7,
                                .index = 4,
                                .logprob = -0.5f,
                                .sampler_state = 9.25f,
                                .top = top,
                                .top_n = 2,
                                .text = "ab",
                                .text_len = 2};
    struct buf b = {0};
    cohort_event got = through(&event, &b);
    assert_int_equal(got.token, 7);
    assert_int_equal(got.index, 4);
    assert_true(got.sampler_state == 9.25f && got.logprob == -0.5f);
    assert_int_equal(got.finish, 0);
    assert_int_equal(got.top_n, 2);
    assert_memory_equal(got.top, top, sizeof(top));
    assert_int_equal(got.text_len, 2);
    assert_memory_equal(got.text, "ab", 2);
    buf_free(&b);
}

static void ends_have_none(void **state) {
    const cohort_event event = {.type = COHORT_EVENT_FINISH,
                                .finish = COHORT_FINISH_LENGTH,
                                .stop_token = -1,
                                .stop_index = -1,
                                .stats = {.seed = 5, .generated_tokens = 8}};
    struct buf b = {0};
    cohort_event got = through(&event, &b);
    assert_int_equal(got.finish, COHORT_FINISH_LENGTH);
    assert_true(got.sampler_state == 0);
    assert_int_equal(got.stats.seed, 5);
    assert_int_equal(got.stats.generated_tokens, 8);
    assert_int_equal(got.stop_index, -1);
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_keep_their_state), cmocka_unit_test(ends_have_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
