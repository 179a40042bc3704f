/* Each schema in turn: references to definitions that are rewritten once, enums to the values that fit, choices with
 * what stands beside them, and the rest by type. */
#include "grammar/schema.h"

#include <stdio.h>
#include <string.h>

#include "grammar/schema_inner.h"

size_t schema_down(struct schema *s, const char *key) {
    size_t before = s->path_n;
    int n = snprintf(s->path + before, SCHEMA_PATH_MAX - before, "/%s", key);
    s->path_n = n < 0 || before + (size_t)n >= SCHEMA_PATH_MAX ? SCHEMA_PATH_MAX - 1 : before + (size_t)n;
    return before;
}

size_t schema_down_index(struct schema *s, size_t index) {
    char text[24];
    snprintf(text, sizeof text, "%zu", index);
    return schema_down(s, text);
}

void schema_up(struct schema *s, size_t before) {
    s->path_n = before;
    s->path[before] = 0;
}

int schema_refuse(struct schema *s, int code, const char *keyword, const char *reason) {
    return err_set(s->err, code, "grammar", "schema, at #%s%s%s: %s", s->path, keyword ? "/" : "",
                   keyword ? keyword : "", reason);
}

int schema_made(struct schema *s, const void *made) {
    return made ? 0 : err_set(s->err, COHORT_E_MEMORY, "grammar", "no memory to read the schema");
}

int schema_count(struct schema *s, size_t nodes) {
    s->nodes += nodes < SCHEMA_NODES_MAX ? (uint32_t)nodes : SCHEMA_NODES_MAX;
    if (s->nodes <= SCHEMA_NODES_MAX) return 0;
    s->nodes = SCHEMA_NODES_MAX; /* and not beyond, so that it cannot wrap */
    return schema_refuse(s, COHORT_E_LIMIT, NULL, "the schema is too large");
}

/* ---- References ---- */

/* The definition's number; a new one is rewritten later. */
static int definition_of(struct schema *s, json_t *ref, json_int_t *out) {
    json_t *target;
    int rc = schema_resolve(s, ref, &target);
    if (rc) return rc;
    const char *uri = json_string_value(ref);
    json_t *known = json_object_get(s->refs, uri);
    if (known) {
        *out = json_integer_value(known);
        return 0;
    }
    *out = (json_int_t)json_array_size(s->targets);
    int bad = json_array_append(s->targets, target) || json_array_append(s->uris, ref) ||
              json_object_set_new(s->refs, uri, json_integer(*out));
    return bad ? schema_made(s, NULL) : 0;
}

static int put_ref(struct schema *s, json_t *ref, json_t **out) {
    json_int_t number;
    char uri[40];
    int rc = definition_of(s, ref, &number);
    if (rc) return rc;
    snprintf(uri, sizeof uri, "#/$defs/d%d", (int)number);
    *out = json_pack("{s:s}", "$ref", uri);
    return schema_made(s, *out);
}

/* ---- Values and choices ---- */

static int put_enum(struct schema *s, json_t *flat, json_t **out) {
    json_t *values = json_object_get(flat, "enum"), *kept = json_array(), *beside = json_copy(flat);
    int rc = schema_made(s, kept && beside ? kept : NULL);
    if (!rc && !json_is_array(values)) rc = schema_refuse(s, COHORT_E_ARGUMENT, "enum", "must be an array of values");
    json_object_del(beside, "enum");
    for (size_t i = 0; !rc && i < json_array_size(values); i++) {
        json_t *value = json_array_get(values, i);
        int fits = schema_fits(s, beside, value);
        if (fits < 0)
            rc = schema_refuse(s, COHORT_E_UNSUPPORTED, "enum", "what stands beside it is not supported there");
        if (fits > 0 && json_array_append(kept, value)) rc = schema_made(s, NULL);
    }
    if (!rc && !json_array_size(kept)) rc = SCHEMA_NOTHING;
    if (!rc) {
        *out = json_pack("{s:O}", "enum", kept);
        rc = schema_made(s, *out);
    }
    json_decref(kept);
    json_decref(beside);
    return rc;
}

/* oneOf is anyOf where no two of its schemas can hold at once. */
static int check_disjoint(struct schema *s, json_t *options) {
    size_t n = json_array_size(options);
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            int rc = schema_count(s, 1);
            if (rc) return rc;
            if (!schema_disjoint(s, json_array_get(options, i), json_array_get(options, k)))
                return schema_refuse(s, COHORT_E_UNSUPPORTED, "oneOf",
                                     "is only supported where its cases cannot overlap");
        }
    return 0;
}

static int one_option(struct schema *s, json_t *beside, json_t *option, json_t **out) {
    if (!json_object_size(beside)) return schema_node(s, option, out);
    json_t *joined = json_copy(beside), *flat = NULL;
    int rc = schema_made(s, joined);
    if (!rc) rc = schema_flat(s, option, &flat);
    if (!rc) rc = schema_join(s, joined, flat);
    if (!rc) rc = schema_node_flat(s, joined, out);
    json_decref(joined);
    json_decref(flat);
    return rc;
}

static int put_choice(struct schema *s, json_t *flat, const char *keyword, json_t **out) {
    json_t *options = json_object_get(flat, keyword), *beside = json_copy(flat), *list = json_array();
    int rc = schema_made(s, beside && list ? list : NULL);
    if (!rc && !json_array_size(options))
        rc = schema_refuse(s, COHORT_E_ARGUMENT, keyword, "must be an array of schemas");
    if (!rc && !strcmp(keyword, "oneOf")) rc = check_disjoint(s, options);
    json_object_del(beside, keyword);
    for (size_t i = 0; !rc && i < json_array_size(options); i++) {
        json_t *option = NULL;
        size_t before = schema_down(s, keyword), inner = schema_down_index(s, i);
        rc = one_option(s, beside, json_array_get(options, i), &option);
        schema_up(s, inner);
        schema_up(s, before);
        if (!rc && json_array_append_new(list, option)) rc = schema_made(s, NULL);
        if (rc == SCHEMA_NOTHING) rc = 0; /* a case that nothing fits is none */
    }
    if (!rc && !json_array_size(list)) rc = SCHEMA_NOTHING;
    if (!rc) {
        *out = json_array_size(list) == 1 ? json_incref(json_array_get(list, 0)) : json_pack("{s:O}", "anyOf", list);
        rc = schema_made(s, *out);
    }
    json_decref(beside);
    json_decref(list);
    return rc;
}

/* ---- Types ---- */

/* A schema that names no type means the types that its keywords speak of. */
static unsigned implied_types(json_t *flat) {
    static const struct {
        const char *keyword;
        unsigned type;
    } of[] = {{"minimum", TYPE_NUMBER},
              {"maximum", TYPE_NUMBER},
              {"exclusiveMinimum", TYPE_NUMBER},
              {"exclusiveMaximum", TYPE_NUMBER},
              {"multipleOf", TYPE_NUMBER},
              {"minLength", TYPE_STRING},
              {"maxLength", TYPE_STRING},
              {"pattern", TYPE_STRING},
              {"format", TYPE_STRING},
              {"items", TYPE_ARRAY},
              {"prefixItems", TYPE_ARRAY},
              {"contains", TYPE_ARRAY},
              {"minItems", TYPE_ARRAY},
              {"maxItems", TYPE_ARRAY},
              {"uniqueItems", TYPE_ARRAY},
              {"properties", TYPE_OBJECT},
              {"required", TYPE_OBJECT},
              {"additionalProperties", TYPE_OBJECT},
              {"patternProperties", TYPE_OBJECT},
              {"propertyNames", TYPE_OBJECT},
              {"minProperties", TYPE_OBJECT},
              {"maxProperties", TYPE_OBJECT},
              {"dependentRequired", TYPE_OBJECT},
              {"dependentSchemas", TYPE_OBJECT},
              {"dependencies", TYPE_OBJECT}};
    unsigned types = 0;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (json_object_get(flat, of[i].keyword)) types |= of[i].type;
    return types;
}

static int put_type(struct schema *s, json_t *flat, unsigned type, json_t **out) {
    int rc;
    *out = NULL;
    switch (type) {
    case TYPE_INTEGER:
        rc = schema_integer(s, flat, out);
        break;
    case TYPE_NUMBER:
        rc = schema_number(s, flat, out);
        break;
    case TYPE_STRING:
        rc = schema_string(s, flat, out);
        break;
    case TYPE_ARRAY:
        rc = schema_array(s, flat, out);
        break;
    case TYPE_OBJECT:
        rc = schema_object(s, flat, out);
        break;
    default:
        *out = json_pack("{s:s}", "type", type == TYPE_NULL ? "null" : "boolean");
        rc = schema_made(s, *out);
    }
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

static int put_types(struct schema *s, json_t *flat, json_t **out) {
    unsigned types;
    int rc = schema_types(s, flat, &types);
    if (rc) return rc;
    if (!json_object_get(flat, "type")) {
        types = implied_types(flat);
        if (!types) {
            *out = json_object();
            return schema_made(s, *out);
        }
    }
    if (types & TYPE_NUMBER) types &= ~(unsigned)TYPE_INTEGER;
    json_t *list = json_array();
    rc = schema_made(s, list);
    for (unsigned type = 1; !rc && type <= TYPE_OBJECT; type <<= 1) {
        json_t *one;
        if (!(types & type)) continue;
        rc = put_type(s, flat, type, &one);
        if (!rc && json_array_append_new(list, one)) rc = schema_made(s, NULL);
        if (rc == SCHEMA_NOTHING) rc = 0;
    }
    if (!rc && !json_array_size(list)) rc = SCHEMA_NOTHING;
    if (!rc) {
        *out = json_array_size(list) == 1 ? json_incref(json_array_get(list, 0)) : json_pack("{s:O}", "anyOf", list);
        rc = schema_made(s, *out);
    }
    json_decref(list);
    return rc;
}

/* ---- All of it ---- */

int schema_node_flat(struct schema *s, json_t *flat, json_t **out) {
    static const char *const never[] = {"not", "if", "$dynamicRef", "$recursiveRef"};
    *out = NULL;
    int rc = schema_count(s, 1);
    if (rc) return rc;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (json_object_get(flat, never[i]))
            return schema_refuse(s, COHORT_E_UNSUPPORTED, never[i], "is not supported");
    if (json_object_get(flat, "anyOf")) return put_choice(s, flat, "anyOf", out);
    if (json_object_get(flat, "oneOf")) return put_choice(s, flat, "oneOf", out);
    if (json_object_get(flat, "enum")) return put_enum(s, flat, out);
    return put_types(s, flat, out);
}

/* The one schema of an allOf that stands alone, or the schema itself: it can be a reference then, and is not copied. */
static json_t *only_schema(json_t *in) {
    for (;;) {
        json_t *all = json_object_get(in, "allOf"), *value;
        const char *key;
        if (json_array_size(all) != 1) return in;
        json_object_foreach(in, key, value) {
            if (strcmp(key, "allOf") && !schema_is_annotation(key)) return in;
        }
        in = json_array_get(all, 0);
    }
}

int schema_node(struct schema *s, json_t *in, json_t **out) {
    json_t *flat = NULL;
    *out = NULL;
    in = only_schema(in);
    int rc = schema_count(s, 1);
    if (rc) return rc;
    if (schema_is_ref(in)) return put_ref(s, json_object_get(in, "$ref"), out);
    if (s->depth >= SCHEMA_DEPTH_MAX) return schema_refuse(s, COHORT_E_LIMIT, NULL, "is nested too deeply");
    rc = schema_flat(s, in, &flat);
    s->depth++;
    if (!rc) rc = schema_node_flat(s, flat, out);
    s->depth--;
    json_decref(flat);
    return rc;
}

/* Definitions bring further ones. One that no value fits can be named by no schema that is needed: it is refused. */
static int put_definitions(struct schema *s) {
    int rc = 0;
    for (size_t i = 0; !rc && i < json_array_size(s->targets); i++) {
        json_t *out = NULL;
        char name[24];
        snprintf(name, sizeof name, "d%zu", i);
        s->path_n = 0;
        s->path[0] = 0;
        const char *uri = json_string_value(json_array_get(s->uris, i));
        if (uri[1]) schema_down(s, uri + 2);
        rc = schema_node(s, json_array_get(s->targets, i), &out);
        if (rc == SCHEMA_NOTHING)
            rc = schema_refuse(s, COHORT_E_UNSUPPORTED, NULL, "no value is valid under this schema");
        if (!rc && json_object_set_new(s->defs, name, out)) rc = schema_made(s, NULL);
    }
    return rc;
}

int schema_rewrite(json_t *schema, json_t **out, cohort_error *err) {
    struct schema s = {.root = schema,
                       .refs = json_object(),
                       .targets = json_array(),
                       .uris = json_array(),
                       .defs = json_object(),
                       .err = err};
    *out = NULL;
    int rc = schema_made(&s, s.refs && s.targets && s.uris && s.defs ? &s : NULL);
    if (!rc) rc = schema_node(&s, schema, out);
    if (!rc) rc = put_definitions(&s);
    if (!rc) rc = schema_has_value(&s, *out);
    if (rc == SCHEMA_NOTHING) rc = schema_refuse(&s, COHORT_E_ARGUMENT, NULL, "no value is valid under this schema");
    if (!rc && json_array_size(s.targets)) {
        json_t *copy = json_copy(*out); /* it may be shared */
        json_decref(*out);
        *out = copy;
        rc = schema_made(&s, copy);
        if (!rc && json_object_set(copy, "$defs", s.defs)) rc = schema_made(&s, NULL);
    }
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    json_decref(s.refs);
    json_decref(s.targets);
    json_decref(s.uris);
    json_decref(s.defs);
    return rc;
}
