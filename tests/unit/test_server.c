/* What of the server needs no socket: keys, and the glance over unparsed bodies, which never says more than a parser
 * finds, and not less where the shape is the API's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/rng.h"
#include "server/glance.h"
#include "server/keys.h"

/* Whole, and again in pieces of every size, which must say the same. */
static struct glance look(const char *body, size_t n) {
    struct glance whole = {0};
    glance_feed(&whole, body, n);
    for (size_t piece = 1; piece < 10 && piece < n; piece++) {
        struct glance g = {0};
        for (size_t at = 0; at < n; at += piece) glance_feed(&g, body + at, n - at < piece ? n - at : piece);
        assert_int_equal(g.prompt, whole.prompt);
        assert_int_equal(g.messages, whole.messages);
        assert_int_equal(g.input, whole.input);
    }
    return whole;
}

static size_t prompt(const char *body) { return look(body, strlen(body)).prompt; }
static size_t messages(const char *body) { return look(body, strlen(body)).messages; }

static void prompts_are_measured(void **state) {
    assert_int_equal(prompt("{\"prompt\":\"hello\"}"), 5);
    assert_int_equal(prompt(" { \"x\" : [1,{\"prompt\":\"no\"}] , \"prompt\" : \" hello \" } "), 7);
    assert_int_equal(prompt("{\"prompt\":[\"a\",\"four\",\"bb\"],\"n\":3}"), 4);
    assert_int_equal(prompt("{\"prompt\":[\"a\",[\"too deep\"]]}"), 1);
    assert_int_equal(prompt("{\"prompt\":{\"text\":\"not a prompt\"}}"), 0);
    assert_int_equal(prompt("{\"Prompt\":\"no\",\"prompts\":\"no\",\"promp\":\"no\",\"x\":\"prompt\"}"), 0);
    assert_int_equal(prompt("{\"prompt\":\"a\\\"b\\\\c\\nd\\u0041\\\\\"}"), 9);
    assert_int_equal(prompt("{\"x\":\"\\\"prompt\\\":\",\"prompt\":\"ab\"}"), 2);
    assert_int_equal(prompt("{\"x\":\"}\",\"prompt\":\"ab\"}"), 2);
    assert_int_equal(prompt("{\"prompt\":[1,2,3]}"), 0);
    assert_int_equal(prompt("{\"prompt\":\"\\ud83d\\ude00\"}"), 2); /* four bytes; two at least */
    assert_int_equal(prompt("\"prompt\""), 0);
    assert_int_equal(prompt(""), 0);
}

static void messages_are_added_up(void **state) {
    assert_int_equal(messages("{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}"), 5);
    assert_int_equal(messages("{\"messages\":[{\"content\":\" a b \"},{\"content\":\"\\n cd\\n\"}]}"), 5);
    assert_int_equal(
        messages("{\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"abc\"},{\"text\":\"de\"}]}]}"), 5);
    assert_int_equal(messages("{\"messages\":[{\"content\":\"   \"},{\"content\":\"\\n\"},{\"content\":\"\"}]}"), 0);
    assert_int_equal(messages("{\"messages\":[{\"content\":{\"text\":\"no\"},\"text\":\"no\"}],\"content\":\"no\"}"),
                     0);
    assert_int_equal(messages("{\"messages\":{\"content\":\"no\"}}"), 0);
    assert_int_equal(messages("{\"messages\":[{\"content\":\"a\\nb\"}]}"), 3);
}

/* Cut off anywhere, it ends, inside the bytes it was given (the sanitizers see to that). */
static size_t input(const char *body) { return look(body, strlen(body)).input; }

static void inputs_are_added_up(void **state) {
    assert_int_equal(input("{\"input\":\" hello \"}"), 5);
    assert_int_equal(
        input("{\"input\":[{\"content\":\"abc\"},{\"content\":[{\"type\":\"input_text\",\"text\":\"de\"}]}]}"), 5);
    assert_int_equal(input("{\"messages\":[{\"content\":\"no\"}],\"x\":{\"input\":\"no\"},\"input\":[\"no\",1]}"), 0);
    assert_int_equal(messages("{\"input\":[{\"content\":\"no\"}]}"), 0);
}

static void broken_bodies_end(void **state) {
    static const char body[] =
        "{\"messages\":[{\"content\":[{\"text\":\"a\\u0041\\\"\\\\ \"}],\"x\":[[[[[[[[{}]]]]]]]]}],\"prompt\":"
        "\"\\u00e4\\\"\"}";
    for (size_t n = 0; n < sizeof(body); n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, body, n);
        look(copy, n);
        free(copy);
    }
    char noise[64];
    static const char alphabet[] = "{}[]\"\\:,u prompt";
    for (uint64_t seed = 0; seed < 20000; seed++) {
        for (size_t i = 0; i < sizeof(noise); i++) noise[i] = alphabet[rng_u64(seed, 5, i) % (sizeof(alphabet) - 1)];
        struct glance g = look(noise, sizeof(noise));
        assert_true(g.prompt <= sizeof(noise) && g.messages <= sizeof(noise));
    }
}

/* ---- against a parser ---- */

struct maker {
    uint64_t seed, n;
    struct buf out;
};

static uint32_t draw(struct maker *m, uint32_t below) { return (uint32_t)(rng_u64(m->seed, 6, m->n++) % below); }

static void put(struct maker *m, const char *text) { assert_int_equal(buf_adds(&m->out, text), 0); }

static void put_string(struct maker *m) {
    static const char *const parts[] = {
        "a",        " ",    "\\n", "\\\"", "\\\\",    "\\u0041", "\\u00e4", "\\ud83d\\ude00",
        "\xc3\xa4", "word", "  ",  "\\/",  "\\u0020", "{",       "]",       ":"};
    put(m, "\"");
    for (uint32_t i = draw(m, 8); i > 0; i--) put(m, parts[draw(m, 16)]);
    put(m, "\"");
}

static void put_value(struct maker *m, int depth) {
    static const char *const names[] = {"prompt", "messages", "content", "text", "role", "x"};
    uint32_t kind = draw(m, depth > 6 ? 2 : 6);
    if (kind == 0) put(m, "17");
    if (kind == 1 || kind == 2) put_string(m);
    if (kind == 3 || kind == 4) {
        put(m, "[");
        for (uint32_t i = draw(m, 4), first = 1; i > 0; i--, first = 0) {
            if (!first) put(m, ", ");
            put_value(m, depth + 1);
        }
        put(m, "]");
    }
    if (kind == 5) {
        uint32_t used = 0;
        put(m, "{");
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t name = draw(m, 6);
            if (used & 1u << name) continue;
            put(m, used ? " ,\"" : "\"");
            used |= 1u << name;
            put(m, names[name]);
            put(m, "\" : ");
            put_value(m, depth + 1);
        }
        put(m, "}");
    }
}

static size_t parsed_prompt(const json_t *root) {
    const json_t *p = json_object_get(root, "prompt");
    size_t most = json_string_length(p);
    for (size_t i = 0; i < json_array_size(p); i++) {
        size_t len = json_string_length(json_array_get(p, i));
        if (len > most) most = len;
    }
    return most;
}

static size_t parsed_messages(const json_t *root) {
    const json_t *list = json_object_get(root, "messages");
    size_t sum = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *content = json_object_get(json_array_get(list, i), "content");
        sum += json_string_length(content);
        for (size_t j = 0; j < json_array_size(content); j++)
            sum += json_string_length(json_object_get(json_array_get(content, j), "text"));
    }
    return sum;
}

static void never_more_than_a_parser_finds(void **state) {
    size_t seen[2] = {0, 0}, found[2] = {0, 0};
    for (uint64_t seed = 0; seed < 50000; seed++) {
        struct maker m = {.seed = seed};
        put(&m, seed % 2 ? "{\"prompt\": " : "{\"messages\": ");
        put_value(&m, 1);
        put(&m, ", \"other\": ");
        put_value(&m, 1);
        put(&m, "}");
        json_error_t where;
        json_t *root = json_loadb(m.out.data, m.out.len, JSON_REJECT_DUPLICATES, &where);
        if (!root) fail_msg("%s: %s", m.out.data, where.text);
        struct glance g = look(m.out.data, m.out.len);
        size_t glance[2] = {g.prompt, g.messages};
        size_t parsed[2] = {parsed_prompt(root), parsed_messages(root)};
        for (int i = 0; i < 2; i++) {
            if (glance[i] > parsed[i]) fail_msg("%zu, but %zu: %s", glance[i], parsed[i], m.out.data);
            seen[i] += glance[i];
            found[i] += parsed[i];
        }
        json_decref(root);
        buf_free(&m.out);
    }
    assert_true(found[1] > 0 && seen[0] > found[0] / 2 && seen[1] > found[1] / 3);
}

/* ---- keys ---- */

static void keys_are_found(void **state) {
    struct keys *keys;
    cohort_error err = {0};
    size_t n;
    assert_int_equal(keys_open(NULL, NULL, &keys, &err), 0);
    assert_null(keys);
    assert_null(keys_tenants(keys, &n));
    assert_int_equal(keys_open("", NULL, &keys, &err), COHORT_E_ARGUMENT);
    assert_string_equal(err.text, "--api-key is empty");
    char path[] = "/tmp/cohort_keys_XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fputs(
        "{\"keys\":[{\"name\":\"a\",\"key\":[\"first\",\"second\"],\"weight\":7},{\"name\":\"b\",\"key\":\"third\"}]}",
        file);
    fclose(file);
    assert_int_equal(keys_open("secret", path, &keys, &err), 0);
    remove(path);
    const cohort_tenant *list = keys_tenants(keys, &n);
    assert_int_equal(n, 3);
    assert_string_equal(list[0].name, "default");
    assert_string_equal(list[1].name, "a");
    assert_int_equal(list[1].weight, 7);
    assert_int_equal(keys_find(keys, "secret"), 0);
    assert_int_equal(keys_find(keys, "first"), 1);
    assert_int_equal(keys_find(keys, "second"), 1);
    assert_int_equal(keys_find(keys, "third"), 2);
    static const char *const wrong[] = {"", "secre", "secrett", "firs", "firsT", "thirdthird", "third ", "FIRST"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) assert_int_equal(keys_find(keys, wrong[i]), -1);
    char longest[4000];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(keys_find(keys, longest), -1);
    keys_close(keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_measured),
        cmocka_unit_test(messages_are_added_up),
        cmocka_unit_test(inputs_are_added_up),
        cmocka_unit_test(broken_bodies_end),
        cmocka_unit_test(never_more_than_a_parser_finds),
        cmocka_unit_test(keys_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
