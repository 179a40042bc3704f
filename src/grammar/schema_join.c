/* Conjunctions: what $ref, its siblings and allOf ask for together, as one schema object; and what can be said of
 * values and pairs of schemas without generating anything. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_inner.h"

static const char *const annotations[] = {"title",
                                          "description",
                                          "default",
                                          "examples",
                                          "example",
                                          "deprecated",
                                          "readOnly",
                                          "writeOnly",
                                          "$comment",
                                          "$schema",
                                          "$id",
                                          "id",
                                          "$anchor",
                                          "$defs",
                                          "definitions",
                                          "$vocabulary",
                                          "contentEncoding",
                                          "contentMediaType",
                                          "contentSchema"};
/* Everything that asserts something; other names are annotations by the standard. */
static const char *const assertions[] = {"$ref",
                                         "$dynamicRef",
                                         "$recursiveRef",
                                         "type",
                                         "enum",
                                         "const",
                                         "allOf",
                                         "anyOf",
                                         "oneOf",
                                         "not",
                                         "if",
                                         "then",
                                         "else",
                                         "minimum",
                                         "maximum",
                                         "exclusiveMinimum",
                                         "exclusiveMaximum",
                                         "multipleOf",
                                         "minLength",
                                         "maxLength",
                                         "pattern",
                                         "format",
                                         "items",
                                         "prefixItems",
                                         "additionalItems",
                                         "unevaluatedItems",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "minItems",
                                         "maxItems",
                                         "uniqueItems",
                                         "properties",
                                         "required",
                                         "additionalProperties",
                                         "patternProperties",
                                         "propertyNames",
                                         "unevaluatedProperties",
                                         "minProperties",
                                         "maxProperties",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies"};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static int among(const char *key, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, names[i])) return 1;
    return 0;
}

int schema_is_annotation(const char *key) {
    return among(key, annotations, COUNT(annotations)) || !among(key, assertions, COUNT(assertions));
}

int schema_is_ref(json_t *in) {
    const char *key;
    json_t *value;
    if (!json_object_get(in, "$ref")) return 0;
    json_object_foreach(in, key, value) {
        if (strcmp(key, "$ref") && !schema_is_annotation(key)) return 0;
    }
    return 1;
}

/* ---- References ---- */

/* One part of a JSON pointer in a URI's fragment, decoded in place. */
static void decode_part(char *part) {
    char *to = part;
    for (char *at = part; *at; at++) {
        unsigned code;
        if (*at == '%' && strspn(at + 1, "0123456789abcdefABCDEF") >= 2) {
            char digits[3] = {at[1], at[2], 0};
            code = (unsigned)strtoul(digits, NULL, 16);
            at += 2;
        } else {
            code = (unsigned char)*at;
        }
        *to++ = (char)code;
    }
    *to = 0;
    to = part;
    for (char *at = part; *at; at++) {
        if (*at == '~' && (at[1] == '0' || at[1] == '1'))
            *to++ = *++at == '0' ? '~' : '/';
        else
            *to++ = *at;
    }
    *to = 0;
}

static json_t *step(json_t *at, const char *part) {
    if (json_is_object(at)) return json_object_get(at, part);
    if (!json_is_array(at) || !*part || strlen(part) > 6 || strspn(part, "0123456789") != strlen(part)) return NULL;
    return json_array_get(at, (size_t)strtoul(part, NULL, 10));
}

int schema_resolve(struct schema *s, json_t *ref, json_t **out) {
    const char *uri = json_string_value(ref);
    if (!uri) return schema_refuse(s, COHORT_E_ARGUMENT, "$ref", "must be a string");
    if (uri[0] != '#' || (uri[1] && uri[1] != '/'))
        return schema_refuse(s, COHORT_E_UNSUPPORTED, "$ref",
                             "only references into the schema itself (\"#/...\") are supported");
    char *copy = strdup(uri + 1), *at = copy;
    int rc = schema_made(s, copy);
    json_t *found = s->root;
    while (!rc && found && *at == '/') {
        char *end = strchr(at + 1, '/');
        char *part = end ? strndup(at + 1, (size_t)(end - at - 1)) : strdup(at + 1);
        rc = schema_made(s, part);
        if (!rc) {
            decode_part(part);
            found = step(found, part);
            if (found && found != s->root && json_object_get(found, "$id"))
                rc = schema_refuse(s, COHORT_E_UNSUPPORTED, "$ref", "leads through a schema with an $id of its own");
        }
        free(part);
        at = end ? end : at + strlen(at);
    }
    free(copy);
    if (rc) return rc;
    if (!json_is_object(found) && !json_is_boolean(found))
        return schema_refuse(s, COHORT_E_ARGUMENT, "$ref", "there is no schema at that place");
    *out = found;
    return 0;
}

/* ---- Joining ---- */

/* A schema for both: a new reference. */
static json_t *both(json_t *a, json_t *b) {
    if (!a || !b) return json_incref(a ? a : b);
    if (json_is_true(a)) return json_incref(b);
    if (json_is_true(b) || json_equal(a, b)) return json_incref(a);
    if (json_is_false(a) || json_is_false(b)) return json_false();
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

static json_t *property(json_t *flat, const char *key) {
    return json_object_get(json_object_get(flat, "properties"), key);
}

/* Each side's additionalProperties speaks of the other side's properties. */
static int join_properties(struct schema *s, json_t *into, json_t *other) {
    json_t *here = json_object_get(into, "additionalProperties"),
           *there = json_object_get(other, "additionalProperties");
    json_t *props = json_object(), *value;
    const char *key;
    int patterns = json_object_get(into, "patternProperties") || json_object_get(other, "patternProperties");
    if (schema_made(s, props)) return COHORT_E_MEMORY;
    if (patterns && (here || there || json_object_get(into, "properties") || json_object_get(other, "properties"))) {
        json_decref(props);
        return schema_refuse(s, COHORT_E_UNSUPPORTED, "patternProperties",
                             "is not supported together with other schemas of properties");
    }
    int bad = 0;
    json_object_foreach(json_object_get(into, "properties"), key, value) {
        json_t *second = property(other, key);
        bad |= json_object_set_new(props, key, both(value, second ? second : there));
    }
    json_object_foreach(json_object_get(other, "properties"), key, value) {
        if (!property(into, key)) bad |= json_object_set_new(props, key, both(value, here));
    }
    if (json_object_size(props)) bad |= json_object_set(into, "properties", props);
    json_decref(props);
    if (here || there) bad |= json_object_set_new(into, "additionalProperties", both(here, there));
    return bad ? schema_made(s, NULL) : 0;
}

static int join_items(struct schema *s, json_t *into, json_t *other) {
    json_t *first = json_object_get(into, "prefixItems"), *second = json_object_get(other, "prefixItems");
    json_t *rest = json_object_get(into, "items"), *rest2 = json_object_get(other, "items");
    size_t n = json_array_size(first) > json_array_size(second) ? json_array_size(first) : json_array_size(second);
    json_t *prefix = json_array(), *any = json_true();
    int bad = !prefix;
    for (size_t i = 0; i < n && !bad; i++) {
        json_t *a = json_array_get(first, i), *b = json_array_get(second, i);
        a = a ? a : rest ? rest : any;
        b = b ? b : rest2 ? rest2 : any;
        bad |= json_array_append_new(prefix, both(a, b));
    }
    if (n) bad |= json_object_set(into, "prefixItems", prefix);
    if (rest || rest2) bad |= json_object_set_new(into, "items", both(rest, rest2));
    json_decref(prefix);
    return bad ? schema_made(s, NULL) : 0;
}

static int join_values(struct schema *s, json_t *into, json_t *values) {
    json_t *mine = json_object_get(into, "enum"), *kept;
    int rc = schema_count(s, json_array_size(mine) * json_array_size(values) / 16);
    if (rc) return rc;
    kept = json_array();
    int bad = !kept;
    for (size_t i = 0; i < json_array_size(mine) && !bad; i++)
        for (size_t k = 0; k < json_array_size(values); k++)
            if (json_equal(json_array_get(mine, i), json_array_get(values, k))) {
                bad |= json_array_append(kept, json_array_get(mine, i));
                break;
            }
    bad |= json_object_set(into, "enum", kept);
    json_decref(kept);
    return bad ? schema_made(s, NULL) : 0;
}

static int join_required(struct schema *s, json_t *into, json_t *names) {
    json_t *all = json_copy(json_object_get(into, "required"));
    int bad = !all || json_array_extend(all, names) || json_object_set(into, "required", all);
    json_decref(all);
    return bad ? schema_made(s, NULL) : 0;
}

static int join_types(struct schema *s, json_t *into, json_t *other) {
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    unsigned a, b;
    int rc = schema_types(s, into, &a);
    if (!rc) rc = schema_types(s, other, &b);
    if (rc) return rc;
    if (a & TYPE_NUMBER) a |= TYPE_INTEGER;
    if (b & TYPE_NUMBER) b |= TYPE_INTEGER;
    json_t *list = json_array();
    int bad = !list;
    for (unsigned i = 0; i < COUNT(names); i++)
        if (a & b & 1u << i) bad |= json_array_append_new(list, json_string(names[i]));
    bad |= json_object_set(into, "type", list);
    json_decref(list);
    return bad ? schema_made(s, NULL) : 0;
}

/* The stricter bound. */
static int join_bound(struct schema *s, json_t *into, const char *key, json_t *value, int larger) {
    json_t *mine = json_object_get(into, key);
    if (!json_is_number(mine) || !json_is_number(value))
        return schema_refuse(s, COHORT_E_ARGUMENT, key, "must be a number");
    int keep = larger ? json_number_value(mine) >= json_number_value(value)
                      : json_number_value(mine) <= json_number_value(value);
    return keep ? 0 : json_object_set(into, key, value) ? schema_made(s, NULL) : 0;
}

static int join_key(struct schema *s, json_t *into, json_t *other, const char *key, json_t *value) {
    static const char *const apart[] = {"properties", "additionalProperties", "items", "prefixItems"};
    static const char *const lows[] = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"};
    static const char *const highs[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};
    json_t *mine = json_object_get(into, key);
    if (among(key, apart, COUNT(apart))) return 0;
    if (!mine) return json_object_set(into, key, value) ? schema_made(s, NULL) : 0;
    if (json_equal(mine, value)) return 0;
    if (!strcmp(key, "type")) return join_types(s, into, other);
    if (!strcmp(key, "enum")) return join_values(s, into, value);
    if (!strcmp(key, "required")) return join_required(s, into, value);
    if (among(key, lows, COUNT(lows))) return join_bound(s, into, key, value, 1);
    if (among(key, highs, COUNT(highs))) return join_bound(s, into, key, value, 0);
    if (!strcmp(key, "uniqueItems")) return json_object_set_new(into, key, json_true()) ? schema_made(s, NULL) : 0;
    return schema_refuse(s, COHORT_E_UNSUPPORTED, key, "two different ones cannot be held together");
}

int schema_join(struct schema *s, json_t *into, json_t *other) {
    int rc = schema_count(s, 1 + json_object_size(json_object_get(into, "properties")) +
                                 json_object_size(json_object_get(other, "properties")));
    const char *key;
    json_t *value;
    if (!rc) rc = join_properties(s, into, other);
    if (!rc) rc = join_items(s, into, other);
    json_object_foreach(other, key, value) {
        if (rc) break;
        rc = join_key(s, into, other, key, value);
    }
    return rc;
}

/* ---- Flattening ---- */

/* Older ways to say the same; and `const` is an enum of one. */
static int modernize(struct schema *s, json_t *flat) {
    json_t *items = json_object_get(flat, "items"), *value = json_object_get(flat, "const");
    int bad = 0;
    if (json_is_array(items)) {
        json_t *rest = json_object_get(flat, "additionalItems");
        bad |= json_object_set(flat, "prefixItems", items);
        if (rest)
            bad |= json_object_set(flat, "items", rest);
        else
            json_object_del(flat, "items");
    }
    json_object_del(flat, "additionalItems");
    if (value) {
        json_t *list = json_pack("[O]", value);
        if (!list) return schema_made(s, NULL);
        int rc = 0;
        if (json_object_get(flat, "enum"))
            rc = join_values(s, flat, list);
        else
            bad |= json_object_set(flat, "enum", list);
        json_decref(list);
        json_object_del(flat, "const");
        if (rc) return rc;
    }
    if (!json_object_get(flat, "if")) { /* they mean nothing without it */
        json_object_del(flat, "then");
        json_object_del(flat, "else");
    }
    return bad ? schema_made(s, NULL) : 0;
}

/* What unevaluated* says of a schema on its own: all that is evaluated there is seen, now that it is one object. */
static int settle(struct schema *s, json_t *flat) {
    static const char *const pairs[][2] = {{"unevaluatedProperties", "additionalProperties"},
                                           {"unevaluatedItems", "items"}};
    for (size_t i = 0; i < COUNT(pairs); i++) {
        json_t *value = json_object_get(flat, pairs[i][0]);
        if (!value) continue;
        if (json_object_get(flat, "anyOf") || json_object_get(flat, "oneOf") || json_object_get(flat, "contains"))
            return schema_refuse(s, COHORT_E_UNSUPPORTED, pairs[i][0], "is not supported beside a choice of schemas");
        if (!json_object_get(flat, pairs[i][1]) && json_object_set(flat, pairs[i][1], value))
            return schema_made(s, NULL);
        json_object_del(flat, pairs[i][0]);
    }
    return 0;
}

static int join_with(struct schema *s, json_t *into, json_t *schema) {
    json_t *flat = NULL;
    int rc = schema_flat(s, schema, &flat);
    if (!rc) rc = schema_join(s, into, flat);
    json_decref(flat);
    return rc;
}

static int flat_object(struct schema *s, json_t *in, json_t *flat) {
    json_t *value, *all = json_object_get(in, "allOf"), *ref = json_object_get(in, "$ref");
    const char *key;
    int bad = 0, rc;
    json_object_foreach(in, key, value) {
        if (!schema_is_annotation(key) && strcmp(key, "allOf") && strcmp(key, "$ref"))
            bad |= json_object_set(flat, key, value);
    }
    if (bad) return schema_made(s, NULL);
    rc = modernize(s, flat);
    if (!rc && ref) {
        json_t *target;
        rc = schema_resolve(s, ref, &target);
        if (!rc) rc = join_with(s, flat, target);
    }
    if (!rc && all && !json_array_size(all))
        rc = schema_refuse(s, COHORT_E_ARGUMENT, "allOf", "must be an array of schemas");
    for (size_t i = 0; !rc && i < json_array_size(all); i++) rc = join_with(s, flat, json_array_get(all, i));
    return rc ? rc : settle(s, flat);
}

int schema_flat(struct schema *s, json_t *in, json_t **out) {
    *out = NULL;
    if (json_is_false(in)) return SCHEMA_NOTHING;
    if (!json_is_true(in) && !json_is_object(in))
        return schema_refuse(s, COHORT_E_ARGUMENT, NULL, "a schema must be an object or a boolean");
    int rc = schema_count(s, 1);
    if (rc) return rc;
    if (s->depth >= SCHEMA_DEPTH_MAX)
        return schema_refuse(s, COHORT_E_LIMIT, NULL, "references and allOf are nested too deeply");
    s->depth++;
    json_t *flat = json_object();
    rc = schema_made(s, flat);
    if (!rc && json_is_object(in)) rc = flat_object(s, in, flat);
    s->depth--;
    if (rc)
        json_decref(flat);
    else
        *out = flat;
    return rc;
}

/* ---- Values and pairs ---- */

unsigned schema_type_of(json_t *value) {
    switch (json_typeof(value)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_INTEGER:
        return TYPE_INTEGER | TYPE_NUMBER;
    case JSON_REAL:
        return json_real_value(value) == floor(json_real_value(value)) ? TYPE_INTEGER | TYPE_NUMBER : TYPE_NUMBER;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    default:
        return TYPE_OBJECT;
    }
}

int schema_types(struct schema *s, json_t *flat, unsigned *out) {
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    json_t *type = json_object_get(flat, "type");
    size_t n = json_is_array(type) ? json_array_size(type) : 1;
    *out = type ? 0 : TYPE_ANY;
    for (size_t i = 0; type && i < n; i++) {
        const char *name = json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        unsigned k = 0;
        while (name && k < COUNT(names) && strcmp(name, names[k])) k++;
        if (!name || k == COUNT(names)) return schema_refuse(s, COHORT_E_ARGUMENT, "type", "is no type of JSON's");
        *out |= 1u << k;
    }
    return 0;
}

static size_t code_points(const char *text) {
    size_t n = 0;
    for (; *text; text++) n += (*text & 0xc0) != 0x80;
    return n;
}

/* Of one keyword. */
static int fits_key(struct schema *s, json_t *flat, const char *key, json_t *limit, json_t *value) {
    double n = json_number_value(value), bound = json_number_value(limit);
    if (!strcmp(key, "type")) {
        unsigned types;
        if (schema_types(s, flat, &types)) return -1;
        return (types & schema_type_of(value)) != 0;
    }
    if (!strcmp(key, "enum")) {
        for (size_t i = 0; i < json_array_size(limit); i++)
            if (json_equal(json_array_get(limit, i), value)) return 1;
        return 0;
    }
    if (!strcmp(key, "minimum")) return !json_is_number(value) || n >= bound;
    if (!strcmp(key, "maximum")) return !json_is_number(value) || n <= bound;
    if (!strcmp(key, "exclusiveMinimum")) return !json_is_number(value) || n > bound;
    if (!strcmp(key, "exclusiveMaximum")) return !json_is_number(value) || n < bound;
    if (!strcmp(key, "minLength"))
        return !json_is_string(value) || (double)code_points(json_string_value(value)) >= bound;
    if (!strcmp(key, "maxLength"))
        return !json_is_string(value) || (double)code_points(json_string_value(value)) <= bound;
    static const char *const of_strings[] = {"pattern", "format"};
    static const char *const of_numbers[] = {"multipleOf"};
    static const char *const general[] = {"anyOf", "oneOf", "not",         "if",
                                          "then",  "else",  "$dynamicRef", "$recursiveRef"};
    if (among(key, of_strings, COUNT(of_strings))) return json_is_string(value) ? -1 : 1;
    if (among(key, of_numbers, COUNT(of_numbers))) return json_is_number(value) ? -1 : 1;
    if (among(key, general, COUNT(general))) return -1;
    return json_is_array(value) || json_is_object(value) ? -1 : 1;
}

int schema_fits(struct schema *s, json_t *flat, json_t *value) {
    const char *key;
    json_t *limit;
    int fits = 1;
    json_object_foreach(flat, key, limit) {
        int one = fits_key(s, flat, key, limit, value);
        if (one == 0) return 0;
        if (one < 0) fits = -1;
    }
    return fits;
}

static int required(json_t *flat, const char *name) {
    json_t *names = json_object_get(flat, "required");
    for (size_t i = 0; i < json_array_size(names); i++)
        if (json_is_string(json_array_get(names, i)) && !strcmp(json_string_value(json_array_get(names, i)), name))
            return 1;
    return 0;
}

/* Whether all values of a's enum are outside of b. */
static int values_outside(struct schema *s, json_t *a, json_t *b) {
    json_t *values = json_object_get(a, "enum");
    if (!values || schema_count(s, json_array_size(values) * (1 + json_array_size(json_object_get(b, "enum"))) / 16))
        return 0;
    for (size_t i = 0; i < json_array_size(values); i++)
        if (schema_fits(s, b, json_array_get(values, i)) != 0) return 0;
    return 1;
}

static int properties_apart(struct schema *s, json_t *a, json_t *b) {
    const char *key;
    json_t *value, *named = json_object_get(a, "properties");
    size_t names =
        2 + json_array_size(json_object_get(a, "required")) + json_array_size(json_object_get(b, "required"));
    if (schema_count(s, json_object_size(named) * names / 16)) return 0;
    json_object_foreach(named, key, value) {
        json_t *other = property(b, key);
        if (other && required(a, key) && required(b, key) && schema_disjoint(s, value, other)) return 1;
    }
    return 0;
}

int schema_disjoint(struct schema *s, json_t *a, json_t *b) {
    json_t *x = NULL, *y = NULL;
    unsigned p = 0, q = 0;
    cohort_error *err = s->err;
    int depth = s->depth++, apart = 0;
    if (s->depth > SCHEMA_DEPTH_MAX) {
        s->depth = depth;
        return 0;
    }
    s->err = NULL; /* what cannot be flattened here is told where it is rewritten */
    int first = schema_flat(s, a, &x), second = schema_flat(s, b, &y);
    if (first == SCHEMA_NOTHING || second == SCHEMA_NOTHING) {
        apart = 1;
    } else if (!first && !second && !schema_types(s, x, &p) && !schema_types(s, y, &q)) {
        if (p & TYPE_NUMBER) p |= TYPE_INTEGER;
        if (q & TYPE_NUMBER) q |= TYPE_INTEGER;
        apart = !(p & q) || values_outside(s, x, y) || values_outside(s, y, x) ||
                (p == TYPE_OBJECT && q == TYPE_OBJECT && properties_apart(s, x, y));
    }
    json_decref(x);
    json_decref(y);
    s->depth = depth;
    s->err = err;
    return apart;
}
