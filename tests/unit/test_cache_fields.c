/* The prefix store's fields of a request: what is taken, what is refused and by which name, and the places that a
 * chat's turns give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/buf.h"
#include "server/cache.h"

static json_t *parse(const char *text) {
    json_t *body = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(body);
    return body;
}

/* "" or the field at fault. */
static const char *fault(const char *text) {
    static cohort_error err;
    struct cache_params params;
    json_t *body = parse(text);
    err = (cohort_error){0};
    int rc = cache_read(body, &params, &err);
    if (!rc) rc = cache_read_snapshots(body, &params, &err);
    json_decref(body);
    assert_int_equal(rc, err.code);
    assert_true(!rc || (rc == COHORT_E_ARGUMENT && strstr(err.text, err.field)));
    return err.field;
}

static void wrong_fields_are_named(void **state) {
    static const char *const cases[][2] = {
        {"{}", ""},
        {"{\"cache_prompt\":null,\"cache_salt\":null,\"cache_session_id\":null,\"id_slot\":null,\"snapshot_at\":null}",
         ""},
        {"{\"cache_prompt\":1}", "cache_prompt"},
        {"{\"cache_prompt\":\"true\"}", "cache_prompt"},
        {"{\"cache_salt\":\"\"}", "cache_salt"},
        {"{\"cache_salt\":5}", "cache_salt"},
        {"{\"cache_session_id\":\"\"}", "cache_session_id"},
        {"{\"cache_session_id\":[\"a\"]}", "cache_session_id"},
        {"{\"id_slot\":-2}", "id_slot"},
        {"{\"id_slot\":2147483648}", "id_slot"},
        {"{\"id_slot\":1.0}", "id_slot"},
        {"{\"id_slot\":\"1\"}", "id_slot"},
        {"{\"id_slot\":0,\"cache_session_id\":\"a\"}", "id_slot"},
        {"{\"id_slot\":-1,\"cache_session_id\":\"a\"}", ""},
        {"{\"cache_prompt\":false,\"cache_session_id\":\"a\"}", "cache_session_id"},
        {"{\"cache_prompt\":false,\"id_slot\":0}", "id_slot"},
        {"{\"cache_prompt\":false,\"id_slot\":-1}", ""},
        {"{\"snapshot_at\":[]}", ""},
        {"{\"snapshot_at\":[1,2,3,4,5,6,7,4294967295]}", ""},
        {"{\"snapshot_at\":[1,2,3,4,5,6,7,8,9]}", "snapshot_at"},
        {"{\"snapshot_at\":5}", "snapshot_at"},
        {"{\"snapshot_at\":[0]}", "snapshot_at"},
        {"{\"snapshot_at\":[5,5]}", "snapshot_at"},
        {"{\"snapshot_at\":[5,4]}", "snapshot_at"},
        {"{\"snapshot_at\":[4294967296]}", "snapshot_at"},
        {"{\"snapshot_at\":[1.5]}", "snapshot_at"},
        {"{\"snapshot_at\":[null]}", "snapshot_at"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(fault(cases[i][0]), cases[i][1]) != 0) fail_msg("%s: \"%s\"", cases[i][0], fault(cases[i][0]));
}

static void lengths_are_bounded(void **state) {
    static const struct {
        const char *name;
        int most;
    } fields[] = {{"cache_salt", COHORT_CACHE_SALT_MAX}, {"cache_session_id", COHORT_SESSION_NAME_MAX}};
    for (size_t i = 0; i < 2; i++)
        for (int n = fields[i].most; n <= fields[i].most + 1; n++) {
            struct buf text = {0};
            buf_addf(&text, "{\"%s\":\"%0*d\"}", fields[i].name, n, 0);
            assert_string_equal(fault(text.data), n == fields[i].most ? "" : fields[i].name);
            buf_free(&text);
        }
}

static void check_filled(const char *text, int cache_prompt, const char *salt, size_t salt_n, const char *session,
                         const char *positions) {
    struct cache_params params;
    cohort_request request = {0};
    json_t *body = parse(text);
    assert_int_equal(cache_read(body, &params, NULL), 0);
    assert_int_equal(cache_read_snapshots(body, &params, NULL), 0);
    cache_fill(&params, &request);
    assert_int_equal(request.cache_prompt, cache_prompt);
    assert_int_equal(request.cache_salt_n, salt_n);
    if (salt) assert_memory_equal(request.cache_salt, salt, salt_n);
    assert_int_equal(request.cache_salt == NULL, salt == NULL);
    assert_int_equal(request.session == NULL, session == NULL);
    assert_int_equal(request.session_n, session ? strlen(session) : 0);
    if (session) assert_memory_equal(request.session, session, request.session_n);
    struct buf list = {0};
    buf_adds(&list, "");
    for (size_t i = 0; i < request.snapshot_at_n; i++) buf_addf(&list, "%s%u", i ? " " : "", request.snapshot_at[i]);
    assert_string_equal(list.data ? list.data : "", positions);
    buf_free(&list);
    json_decref(body);
}

static void requests_are_filled(void **state) {
    check_filled("{}", 1, NULL, 0, NULL, "");
    check_filled("{\"cache_prompt\":false,\"id_slot\":-1}", 0, NULL, 0, NULL, "");
    check_filled("{\"cache_salt\":\"a\\u0000b\",\"cache_session_id\":\"talk\"}", 1, "a\0b", 3, "talk", "");
    check_filled("{\"id_slot\":0,\"snapshot_at\":[3,300]}", 1, NULL, 0, "slot-0", "3 300");
    check_filled("{\"id_slot\":2147483647}", 1, NULL, 0, "slot-2147483647", "");
}

/* Turns as "s300 u400 a900": role and end. */
static const char *borders(const char *talk, size_t prompt_n) {
    static char out[128];
    cohort_turn turns[64];
    struct cache_params params = {.snapshot_at_n = 7};
    size_t n = 0;
    for (char role; *talk; n++) {
        int used = 0;
        assert_int_equal(sscanf(talk, " %c%u%n", &role, &turns[n].end, &used), 2);
        turns[n].role = role == 's'   ? COHORT_ROLE_SYSTEM
                        : role == 'u' ? COHORT_ROLE_USER
                        : role == 'a' ? COHORT_ROLE_ASSISTANT
                                      : COHORT_ROLE_TOOL;
        talk += used;
    }
    cache_borders(turns, n, prompt_n, &params);
    out[0] = 0;
    for (size_t i = 0; i < params.snapshot_at_n; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%u", i ? " " : "", params.snapshot_at[i]);
    return out;
}

static void turns_give_places(void **state) {
    assert_string_equal(borders("u500", 510), "");         /* nothing in front of the first user */
    assert_string_equal(borders("s300 u500", 510), "300"); /* the system's end is the border before the user */
    assert_string_equal(borders("s100 s300 u500", 510), "300");
    assert_string_equal(borders("s255 u500", 510), ""); /* not worth it */
    assert_string_equal(borders("s256 u500", 510), "256");
    assert_string_equal(borders("s300", 300), ""); /* inside the prompt only */
    assert_string_equal(borders("s300 u500 a900 u1000", 1010), "300 900");
    assert_string_equal(borders("s300 u400 a500 u600 a900 u1000", 1010), "300 900"); /* 500 is near to 300 */
    /* the last three users of many, and the system part */
    assert_string_equal(borders("s300 u1000 a2000 u3000 a4000 u5000 a6000 u7000 a8000 u9000", 9010),
                        "300 4000 6000 8000");
    assert_string_equal(borders("u1000 a2000 u3000 a4000 u5000 a6000 u7000 a8000 u9000", 9010), "4000 6000 8000");
    /* what ends with a tool's or the assistant's turn */
    assert_string_equal(borders("s300 u1000 a2000 t3000", 3010), "300");
    assert_string_equal(borders("s300 u1000 u2000 a3000", 3010), "300 1000");
    /* a system text between turns is no system part */
    assert_string_equal(borders("u1000 s2000 u3000", 3010), "2000");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_fields_are_named),
        cmocka_unit_test(lengths_are_bounded),
        cmocka_unit_test(requests_are_filled),
        cmocka_unit_test(turns_give_places),
    };
    return cmocka_run_group_tests_name("cache_fields", tests, NULL, NULL);
}
