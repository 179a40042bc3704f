/* Strict reading of JSON fields (fields.h). */
#include "server/fields.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* The end of the string that begins at `at`, behind its quotation mark. */
static const char *string_end(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\' && at + 1 < end) at++;
    return at < end ? at + 1 : end;
}

static int is_name(const char *behind, const char *end) {
    while (behind < end && strchr(" \t\r\n", *behind)) behind++;
    return behind < end && *behind == ':';
}

/* The library has no names with a NUL in them. None of ours has one either, so it becomes another character. */
static void spare_names(char *bytes, size_t len) {
    static const char nul[] = "\\u0000", other[] = "\\ufffd";
    const size_t n = sizeof nul - 1;
    char *end = bytes + len;
    for (char *at = bytes; at < end; at++) {
        if (*at != '"') continue;
        char *behind = bytes + (string_end(at, end) - bytes);
        int name = is_name(behind, end);
        for (char *c = at; name && c + n < behind; c++) {
            if (memcmp(c, nul, n) == 0) memcpy(c, other, n);
            if (*c == '\\') c++;
        }
        at = behind - 1;
    }
}

/* Each value but the first stands behind a comma, or opens its object or array. */
int fields_too_many(const char *bytes, size_t len) {
    size_t n = 0;
    const char *end = bytes + len;
    for (const char *at = bytes; at < end && n < FIELDS_VALUES_MAX; at++) {
        if (*at == '"')
            at = string_end(at, end) - 1;
        else
            n += *at == ',' || *at == '[' || *at == '{';
    }
    return n >= FIELDS_VALUES_MAX;
}

enum { LARGE = 1 << 20 }; /* bytes of a body whose values are many small pieces of memory */

static json_t *load(const char *bytes, size_t len, json_error_t *why) {
    json_t *body = json_loadb(len ? bytes : "", len, JSON_ALLOW_NUL, why);
    if (body || json_error_code(why) != json_error_null_byte_in_key) return body;
    char *copy = mem_alloc(len, 1);
    if (!copy) return NULL;
    memcpy(copy, bytes, len);
    spare_names(copy, len);
    body = json_loadb(copy, len, JSON_ALLOW_NUL, why);
    mem_free(copy);
    return body;
}

int fields_own_json(const char *bytes, size_t len, json_t **out, cohort_error *err) {
    json_error_t why = {0};
    *out = NULL;
    /* The library passes over such a byte behind a number. */
    if (len && memchr(bytes, 0, len))
        return err_set(err, COHORT_E_ARGUMENT, NULL, "the body is not JSON that can be read: it has a byte of 0");
    if (len > LARGE) mem_give_back_soon();
    json_t *body = load(bytes, len, &why);
    if (!body && json_error_code(&why) == json_error_out_of_memory)
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the body");
    if (!body)
        return err_set(err, COHORT_E_ARGUMENT, NULL, "the body is not JSON that can be read: line %d, column %d: %s",
                       why.line, why.column, why.text);
    if (!json_is_object(body)) {
        json_decref(body);
        return err_set(err, COHORT_E_ARGUMENT, NULL, "the body must be a JSON object");
    }
    *out = body;
    return 0;
}

int fields_json(const char *bytes, size_t len, json_t **out, cohort_error *err) {
    *out = NULL;
    if (len && fields_too_many(bytes, len))
        return err_set(err, COHORT_E_LIMIT, NULL, "the body has more than %d values", FIELDS_VALUES_MAX);
    return fields_own_json(bytes, len, out, err);
}

int fields_body(struct evbuffer *input, json_t **out, cohort_error *err) {
    return fields_json((const char *)evbuffer_pullup(input, -1), evbuffer_get_length(input), out, err);
}

const char *field_word(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

const char *field_type(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

const json_t *field_present(const json_t *body, const char *name) {
    const json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

int field_bool(const json_t *body, const char *name, int *out, cohort_error *err) {
    const json_t *value = field_present(body, name);
    if (!value) return 0;
    if (!json_is_boolean(value))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s must be true or false, not %s", name, field_type(value));
    *out = json_is_true(value);
    return 0;
}

int field_integer(const json_t *body, const char *name, int64_t low, int64_t high, int64_t *out, cohort_error *err) {
    const json_t *value = field_present(body, name);
    if (!value) return 0;
    if (!json_is_integer(value))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s must be an integer, not %s", name, field_type(value));
    int64_t number = json_integer_value(value);
    if (number < low || number > high)
        return err_set(err, COHORT_E_ARGUMENT, name, "%s is %lld, outside %lld to %lld", name, (long long)number,
                       (long long)low, (long long)high);
    *out = number;
    return 0;
}

int field_string(const json_t *body, const char *name, size_t most, cohort_span *out, cohort_error *err) {
    const json_t *value = field_present(body, name);
    if (!value) return 0;
    if (!json_is_string(value))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s must be a string, not %s", name, field_type(value));
    size_t len = json_string_length(value);
    if (len == 0 || len > most)
        return err_set(err, COHORT_E_ARGUMENT, name, "%s has %zu bytes, 1 to %zu are allowed", name, len, most);
    *out = (cohort_span){json_string_value(value), len};
    return 0;
}

int field_number(const json_t *body, const char *name, double low, double high, float *out, cohort_error *err) {
    const json_t *value = field_present(body, name);
    if (!value) return 0;
    if (!json_is_number(value))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s must be a number, not %s", name, field_type(value));
    double number = json_number_value(value);
    if (!(number >= low && number <= high))
        return err_set(err, COHORT_E_ARGUMENT, name, "%s is %g, outside %g to %g", name, number, low, high);
    *out = (float)number;
    return 0;
}

static void note_unknown(char *unknown, size_t cap, const char *name) {
    size_t used = strlen(unknown), len = strlen(name);
    if (len == 0 || len > 64 || used + len + 3 > cap) return;
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == ',') return;
    snprintf(unknown + used, cap - used, "%s%s", used ? ", " : "", name);
}

static int is_number_alike(const json_t *a, const json_t *b) {
    return json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b);
}

/* Of one type: all booleans are. */
static int is_alike(const json_t *example, const json_t *value) {
    return json_typeof(example) == json_typeof(value) || (json_is_boolean(example) && json_is_boolean(value)) ||
           (json_is_number(example) && json_is_number(value));
}

/* Whether the value is one of those in the field's list, or (by_type) of the type of one of them. */
static int is_neutral(const json_t *value, const struct known_field *field, int by_type) {
    if (json_is_null(value)) return 1;
    const char *at = field->neutral ? field->neutral : "";
    for (int found = 0; *at;) {
        json_error_t where;
        json_t *neutral = json_loads(at, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &where);
        if (!neutral) return 0;
        found = by_type ? is_alike(neutral, value) : json_equal(neutral, value) || is_number_alike(neutral, value);
        json_decref(neutral);
        if (found) return 1;
        at += where.position;
        while (*at == ' ') at++;
    }
    return 0;
}

static const struct known_field *find_field(const struct known_list *lists, size_t lists_n, const char *name) {
    for (size_t i = 0; i < lists_n; i++)
        for (size_t j = 0; j < lists[i].n; j++)
            if (strcmp(lists[i].fields[j].name, name) == 0) return &lists[i].fields[j];
    return NULL;
}

int fields_known(const json_t *body, const struct known_list *lists, size_t lists_n, char *unknown, size_t cap,
                 cohort_error *err) {
    unknown[0] = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)body, name, value) {
        const struct known_field *field = find_field(lists, lists_n, name);
        if (!field)
            note_unknown(unknown, cap, name);
        else if (field->kind == FIELD_REFUSED && !is_neutral(value, field, 0))
            return err_set(err, COHORT_E_UNSUPPORTED, name, "%s is not supported by this server yet", name);
        else if (field->kind == FIELD_NEUTRAL && field->neutral && !is_neutral(value, field, 1))
            return err_set(err, COHORT_E_ARGUMENT, name, "%s must not be %s", name, field_type(value));
    }
    return 0;
}
