/* Answers in parts as /v1/messages and /v1/responses tell them: however the parts are spread over events, a stream
 * joins to the reply that is not streamed. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/anthropic.h"
#include "api/json_text.h"
#include "api/responses.h"
#include "api/routes.h"
#include "base/mem.h"

struct said_part {
    cohort_part_type type;
    uint32_t call;
    const char *bytes;
};

#define TEXT(bytes)                                                                                                    \
    { COHORT_PART_TEXT, 0, bytes }
#define REASONING(bytes)                                                                                               \
    { COHORT_PART_REASONING, 0, bytes }
#define CALL(n, name)                                                                                                  \
    { COHORT_PART_CALL, n, name }
#define ARGUMENTS(n, bytes)                                                                                            \
    { COHORT_PART_ARGUMENTS, n, bytes }
#define END(n)                                                                                                         \
    { COHORT_PART_CALL_END, n, "" }

static const struct said_part all_kinds[] = {REASONING("I sh"),
                                             REASONING("all look."),
                                             TEXT("One \"moment\"."),
                                             CALL(0, "weather"),
                                             ARGUMENTS(0, "{\"city\": \"R"),
                                             ARGUMENTS(0, "ome\", \"days\": [1, 2.5]}"),
                                             END(0),
                                             CALL(1, "clock"),
                                             ARGUMENTS(1, "{}"),
                                             END(1),
                                             TEXT("So."),
                                             TEXT(" Well.")};
static const struct said_part cut_off[] = {TEXT("Now"), CALL(0, "note"),
                                           ARGUMENTS(0, "{\"a\": true, \"text\": \"It was")};
static const struct said_part thought_only[] = {REASONING("Hm")};

struct rig {
    struct call call;
    struct choice choice;
    struct prompt prompt;
    cohort_part list[32];
    struct buf stream;
};

static void set_up(struct rig *r, const struct dialect *dialect, void *own) {
    *r = (struct rig){0};
    r->call.dialect = dialect;
    strcpy(r->call.id, dialect->id_prefix);
    strcat(r->call.id, "0123456789abcdef00000001");
    r->call.model_name = "m";
    r->call.prompts = &r->prompt;
    r->call.prompts_n = 1;
    r->call.choices = &r->choice;
    r->call.choices_n = 1;
    r->call.own = own;
    r->call.params.logprobs = -1;
    r->choice.call = &r->call;
    r->choice.reader = (cohort_reader *)r; /* there is one; nothing here reads by it */
    r->choice.stop_index = -1;
    r->call.parts.list = r->list;
}

static void tear_down(struct rig *r) {
    r->choice.reader = NULL;
    parts_close(&r->choice);
    buf_free(&r->stream);
    buf_free(&r->choice.logprobs);
}

/* An event with the first n of these parts, which are counted as parts_read does it. */
static void bring(struct rig *r, const struct said_part *parts, size_t n, cohort_event_type type) {
    const cohort_event event = {.type = type};
    for (size_t i = 0; i < n; i++) {
        r->list[i] = (cohort_part){parts[i].type, parts[i].call, parts[i].bytes, strlen(parts[i].bytes)};
        r->choice.said.last = parts[i].type;
        r->choice.said.calls += parts[i].type == COHORT_PART_CALL;
        r->choice.said.whole += parts[i].type == COHORT_PART_CALL_END;
        r->choice.said.reasoned |= parts[i].type == COHORT_PART_REASONING;
    }
    r->call.parts.n = n;
    assert_int_equal(r->call.dialect->piece(&r->choice, &event, &r->stream), 0);
    if (!r->call.dialect->keeps) assert_int_equal(r->call.dialect->collect(&r->choice, &event), 0);
}

/* All of them, so many an event, and its end. */
static void say(struct rig *r, const struct said_part *parts, size_t n, size_t at_once, cohort_finish finish) {
    r->choice.finish = finish;
    for (size_t i = 0; i < n; i += at_once) bring(r, parts + i, n - i < at_once ? n - i : at_once, COHORT_EVENT_TOKEN);
    r->choice.finished = 1;
    bring(r, NULL, 0, COHORT_EVENT_FINISH);
    assert_int_equal(r->call.dialect->close(&r->call, &r->stream), 0);
}

static json_t *parse(const char *bytes, size_t n) {
    json_error_t why;
    json_t *value = json_loadb(bytes, n, 0, &why);
    if (!value) fail_msg("%s: %.*s", why.text, (int)n, bytes);
    return value;
}

/* The stream's lines, as an array. */
static json_t *events_of(const struct rig *r) {
    json_t *events = json_array();
    const char *at = r->stream.data, *end = at + r->stream.len;
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        assert_non_null(line);
        json_array_append_new(events, parse(at, (size_t)(line - at)));
        at = line + 1;
    }
    return events;
}

static json_t *whole_of(struct rig *r) {
    struct buf body = {0};
    assert_int_equal(r->call.dialect->whole(&r->call, &body), 0);
    json_t *whole = parse(body.data, body.len);
    buf_free(&body);
    return whole;
}

static const char *word(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static int is_type(const json_t *object, const char *type) { return strcmp(word(object, "type"), type) == 0; }

static void append(json_t *object, const char *name, const json_t *piece) {
    assert_true(json_is_string(piece));
    json_object_set_new(object, name, json_sprintf("%s%s", word(object, name), json_string_value(piece)));
}

/* ---- messages ---- */

static void take_delta(json_t *block, const json_t *delta) {
    if (is_type(delta, "text_delta")) append(block, "text", json_object_get(delta, "text"));
    if (is_type(delta, "thinking_delta")) append(block, "thinking", json_object_get(delta, "thinking"));
    if (is_type(delta, "signature_delta")) append(block, "signature", json_object_get(delta, "signature"));
    if (is_type(delta, "input_json_delta")) append(block, "json", json_object_get(delta, "partial_json"));
}

/* The content that a client makes of the events. */
static json_t *join_message(const json_t *events) {
    json_t *content = json_array();
    size_t closed = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i), *index = json_object_get(event, "index");
        size_t n = json_array_size(content);
        if (is_type(event, "content_block_start")) {
            assert_int_equal(json_integer_value(index), n);
            assert_int_equal(closed, n);
            json_array_append(content, json_object_get(event, "content_block"));
        } else if (is_type(event, "content_block_delta")) {
            assert_int_equal(json_integer_value(index) + 1, n);
            assert_int_equal(closed + 1, n);
            take_delta(json_array_get(content, n - 1), json_object_get(event, "delta"));
        } else if (is_type(event, "content_block_stop")) {
            assert_int_equal(json_integer_value(index), closed++);
        }
    }
    assert_int_equal(closed, json_array_size(content));
    for (size_t i = 0; i < closed; i++) {
        json_t *block = json_array_get(content, i), *json = json_object_get(block, "json");
        struct buf input = {0};
        if (!json) continue;
        json_text_closed(&input, json_string_value(json), json_string_length(json));
        json_object_set_new(block, "input", parse(input.data, input.len));
        json_object_del(block, "json");
        buf_free(&input);
    }
    return content;
}

static void check_message(const struct said_part *parts, size_t n, cohort_finish finish, const char *reason,
                          int hides) {
    for (size_t at_once = 1; at_once <= n + 1; at_once++) {
        struct message own = {.hides_thinking = hides};
        struct rig r;
        set_up(&r, &dialect_messages, &own);
        assert_int_equal(r.call.dialect->open(&r.call, &r.stream), 0);
        say(&r, parts, n, at_once, finish);
        json_t *events = events_of(&r), *whole = whole_of(&r), *content = join_message(events);
        if (!json_equal(content, json_object_get(whole, "content")))
            fail_msg("%s\n%s", json_dumps(content, 0), json_dumps(whole, 0));
        assert_string_equal(word(whole, "stop_reason"), reason);
        const json_t *end = json_array_get(events, json_array_size(events) - 2);
        assert_string_equal(word(json_object_get(end, "delta"), "stop_reason"), reason);
        json_decref(events);
        json_decref(whole);
        json_decref(content);
        tear_down(&r);
    }
}

static void test_messages(void **state) {
    (void)state;
    check_message(all_kinds, sizeof all_kinds / sizeof *all_kinds, COHORT_FINISH_STOP, "tool_use", 0);
    check_message(all_kinds, sizeof all_kinds / sizeof *all_kinds, COHORT_FINISH_STOP, "tool_use", 1);
    check_message(cut_off, sizeof cut_off / sizeof *cut_off, COHORT_FINISH_LENGTH, "max_tokens", 0);
    check_message(thought_only, 1, COHORT_FINISH_LENGTH, "max_tokens", 0);
    check_message(NULL, 0, COHORT_FINISH_STOP, "end_turn", 0);
}

static void test_a_message_word_for_word(void **state) {
    (void)state;
    struct message own = {0};
    struct rig r;
    set_up(&r, &dialect_messages, &own);
    say(&r, all_kinds, sizeof all_kinds / sizeof *all_kinds, 3, COHORT_FINISH_STOP);
    json_t *whole = whole_of(&r), *content = json_object_get(whole, "content");
    json_t *expected =
        json_pack("[{s:s,s:s,s:s},{s:s,s:s},{s:s,s:s,s:s,s:{s:s,s:[i,f]}},{s:s,s:s,s:s,s:{}},{s:s,s:s}]", "type",
                  "thinking", "thinking", "I shall look.", "signature", "thinking_0123456789abcdef000000010000", "type",
                  "text", "text", "One \"moment\".", "type", "tool_use", "id", "toolu_0123456789abcdef000000010000",
                  "name", "weather", "input", "city", "Rome", "days", 1, 2.5, "type", "tool_use", "id",
                  "toolu_0123456789abcdef000000010001", "name", "clock", "input", "type", "text", "text", "So. Well.");
    if (!json_equal(content, expected)) fail_msg("%s", json_dumps(content, 0));
    json_decref(whole);
    json_decref(expected);
    tear_down(&r);
    memset(&own, 0, sizeof own);
    set_up(&r, &dialect_messages, &own);
    say(&r, cut_off, sizeof cut_off / sizeof *cut_off, 1, COHORT_FINISH_LENGTH);
    whole = whole_of(&r);
    const json_t *input = json_object_get(json_array_get(json_object_get(whole, "content"), 1), "input");
    assert_true(json_is_true(json_object_get(input, "a")));
    assert_int_equal(json_object_size(input), 1);
    json_decref(whole);
    tear_down(&r);
}

/* ---- responses ---- */

/* The member of an item that the events of this kind bring, and whether they are its pieces or all of it. */
static const char *piece_of(const char *type, int *is_delta) {
    static const char *const kinds[] = {"response.output_text", "response.reasoning_text",
                                        "response.reasoning_summary_text", "response.function_call_arguments"};
    for (size_t i = 0; i < 4; i++) {
        size_t n = strlen(kinds[i]);
        if (strncmp(type, kinds[i], n) != 0 || type[n] != '.') continue;
        *is_delta = strcmp(type + n, ".delta") == 0;
        return kinds[i];
    }
    return NULL;
}

/* The items that a client makes of the events; `pieces` gets what was joined. */
static json_t *join_response(const json_t *events) {
    json_t *done = json_array(), *pieces = json_object(), *item = NULL;
    int is_delta;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i), *index = json_object_get(event, "output_index");
        const char *kind = piece_of(word(event, "type"), &is_delta);
        assert_int_equal(json_integer_value(json_object_get(event, "sequence_number")), i);
        if (index) assert_int_equal(json_integer_value(index), json_array_size(done));
        if (is_type(event, "response.output_item.added")) {
            item = json_object_get(event, "item");
            json_object_clear(pieces);
        }
        if (json_object_get(event, "item_id")) assert_string_equal(word(event, "item_id"), word(item, "id"));
        if (kind && is_delta) append(pieces, kind, json_object_get(event, "delta"));
        if (kind && !is_delta)
            assert_string_equal(word(pieces, kind), word(event, json_object_get(event, "text") ? "text" : "arguments"));
        if (is_type(event, "response.output_item.done")) {
            assert_string_equal(word(json_object_get(event, "item"), "id"), word(item, "id"));
            json_array_append(done, json_object_get(event, "item"));
        }
    }
    json_decref(pieces);
    return done;
}

static void check_response(const struct said_part *parts, size_t n, cohort_finish finish, const char *status,
                           int sums) {
    for (size_t at_once = 1; at_once <= n + 1; at_once++) {
        struct response own = {.summarises = sums};
        struct rig r;
        buf_adds(&own.echo, "");
        set_up(&r, &dialect_responses, &own);
        assert_int_equal(r.call.dialect->open(&r.call, &r.stream), 0);
        say(&r, parts, n, at_once, finish);
        json_t *events = events_of(&r), *whole = whole_of(&r), *items = join_response(events);
        if (!json_equal(items, json_object_get(whole, "output")))
            fail_msg("%s\n%s", json_dumps(items, 0), json_dumps(whole, 0));
        assert_string_equal(word(whole, "status"), status);
        const json_t *last = json_array_get(events, json_array_size(events) - 1);
        assert_true(json_equal(json_object_get(last, "response"), whole));
        json_decref(events);
        json_decref(whole);
        json_decref(items);
        buf_free(&own.echo);
        buf_free(&own.begins);
        buf_free(&own.waiting);
        tear_down(&r);
    }
}

static void test_responses(void **state) {
    (void)state;
    check_response(all_kinds, sizeof all_kinds / sizeof *all_kinds, COHORT_FINISH_STOP, "completed", 0);
    check_response(all_kinds, sizeof all_kinds / sizeof *all_kinds, COHORT_FINISH_STOP, "completed", 1);
    check_response(cut_off, sizeof cut_off / sizeof *cut_off, COHORT_FINISH_LENGTH, "incomplete", 0);
    check_response(thought_only, 1, COHORT_FINISH_LENGTH, "incomplete", 1);
    check_response(NULL, 0, COHORT_FINISH_STOP, "completed", 0);
}

static void test_a_response_word_for_word(void **state) {
    (void)state;
    struct response own = {.summarises = 1};
    struct rig r;
    set_up(&r, &dialect_responses, &own);
    buf_adds(&own.echo, "");
    say(&r, cut_off, 3, 2, COHORT_FINISH_LENGTH);
    json_t *whole = whole_of(&r), *output = json_object_get(whole, "output");
    json_t *expected =
        json_pack("[{s:s,s:s,s:s,s:s,s:[{s:s,s:[],s:[],s:s}]},{s:s,s:s,s:s,s:s,s:s,s:s}]", "id",
                  "msg_0123456789abcdef00000001", "type", "message", "status", "completed", "role", "assistant",
                  "content", "type", "output_text", "annotations", "logprobs", "text", "Now", "id",
                  "fc_0123456789abcdef00000001_1", "type", "function_call", "status", "incomplete", "call_id",
                  "call_0123456789abcdef000000010000", "name", "note", "arguments", "{\"a\": true, \"text\": \"It was");
    if (!json_equal(output, expected)) fail_msg("%s", json_dumps(output, 0));
    json_decref(whole);
    json_decref(expected);
    buf_free(&own.echo);
    buf_free(&own.begins);
    buf_free(&own.waiting);
    tear_down(&r);
}

/* ---- JSON ---- */

static void test_what_was_cut_off_is_closed(void **state) {
    (void)state;
    const char *text = "{\"a\": [1, 2.5, {\"b\\\"\": \"x\\\\\", \"c\": null}], \"d\": {\"e\": true}, \"f\": -1e5}";
    for (size_t n = 0; n <= strlen(text); n++) {
        struct buf out = {0};
        assert_int_equal(json_text_closed(&out, text, n), 0);
        json_decref(parse(out.data, out.len));
        if (n == strlen(text)) assert_string_equal(out.data, text);
        if (n == 11) assert_string_equal(out.data, "{\"a\": [1]}"); /* 2 may go on */
        buf_free(&out);
    }
}

static void test_json_is_written_as_templates_write_it(void **state) {
    (void)state;
    json_t *value = parse("{\"z\":0.1,\"a\":[1.0,1e22,-3,\"\\u00e9\\n\"],\"n\":null,\"o\":{},\"l\":[]}", 61);
    struct buf out = {0};
    assert_int_equal(json_text(&out, value), 0);
    assert_string_equal(out.data,
                        "{\"z\": 0.1, \"a\": [1.0, 1e+22, -3, \"\xc3\xa9\\n\"], \"n\": null, \"o\": {}, \"l\": []}");
    buf_free(&out);
    json_decref(value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_a_message_word_for_word),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_a_response_word_for_word),
        cmocka_unit_test(test_what_was_cut_off_is_closed),
        cmocka_unit_test(test_json_is_written_as_templates_write_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
