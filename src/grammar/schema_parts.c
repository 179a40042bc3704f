/* Arrays and objects. */
#include <string.h>

#include "grammar/schema_inner.h"

static int put_new(struct schema *s, json_t *into, const char *key, json_t *value) {
    return json_object_set_new(into, key, value) ? schema_made(s, NULL) : 0;
}

/* Keywords that nothing here can hold. */
static int refuse_all(struct schema *s, json_t *flat, const char *const *keywords, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (json_object_get(flat, keywords[i]))
            return schema_refuse(s, COHORT_E_UNSUPPORTED, keywords[i], "is not supported");
    return 0;
}

/* ---- Arrays ---- */

/* The items before the rest. An item that nothing fits ends the array before it. */
static int prefix_items(struct schema *s, json_t *flat, json_t *list, int64_t *longest) {
    json_t *prefix = json_object_get(flat, "prefixItems");
    if (prefix && !json_is_array(prefix)) return schema_refuse(s, COHORT_E_ARGUMENT, "prefixItems", "must be an array");
    for (size_t i = 0; i < json_array_size(prefix) && (int64_t)i < *longest; i++) {
        json_t *item = NULL;
        size_t before = schema_down(s, "prefixItems"), inner = schema_down_index(s, i);
        int rc = schema_node(s, json_array_get(prefix, i), &item);
        schema_up(s, inner);
        schema_up(s, before);
        if (rc == SCHEMA_NOTHING)
            *longest = (int64_t)i;
        else if (rc)
            return rc;
        else if (json_array_append_new(list, item))
            return schema_made(s, NULL);
    }
    return 0;
}

static int array_into(struct schema *s, json_t *flat, json_t *made, json_t *list) {
    int64_t fewest = 0, most = INT32_MAX;
    json_t *rest = NULL, *items = json_object_get(flat, "items");
    int rc = schema_size(s, flat, "minItems", &fewest);
    if (!rc) rc = schema_size(s, flat, "maxItems", &most);
    if (!rc) rc = prefix_items(s, flat, list, &most);
    if (rc) return rc;
    int64_t n = (int64_t)json_array_size(list);
    if (most > n) {
        size_t before = schema_down(s, "items");
        rc = items ? schema_node(s, items, &rest) : put_new(s, made, "items", json_true());
        schema_up(s, before);
        if (rc == SCHEMA_NOTHING) {
            most = n;
            rc = 0;
        } else if (!rc && rest) {
            rc = put_new(s, made, "items", rest);
        }
        if (rc) return rc;
    }
    if (most == n && (rc = put_new(s, made, "items", json_false()))) return rc;
    if (fewest > most) return SCHEMA_NOTHING;
    if (json_is_true(json_object_get(flat, "uniqueItems")) && most > 1)
        return schema_refuse(s, COHORT_E_UNSUPPORTED, "uniqueItems", "is not supported");
    if (n) rc = json_object_set(made, "prefixItems", list) ? schema_made(s, NULL) : 0;
    if (!rc && fewest) rc = put_new(s, made, "minItems", json_integer(fewest));
    if (!rc && most < INT32_MAX && most > n) rc = put_new(s, made, "maxItems", json_integer(most));
    return rc;
}

int schema_array(struct schema *s, json_t *flat, json_t **out) {
    static const char *const never[] = {"contains"};
    json_t *list = json_array();
    *out = json_pack("{s:s}", "type", "array");
    int rc = schema_made(s, *out && list ? *out : NULL);
    if (!rc) rc = refuse_all(s, flat, never, 1);
    if (!rc) rc = array_into(s, flat, *out, list);
    json_decref(list);
    return rc;
}

/* ---- Objects ---- */

/* A name that the exclusion of names from additional ones takes literally. */
static int is_plain(const char *name) {
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || (unsigned char)*name > 0x7e || *name == '"' || *name == '\\') return 0;
    return 1;
}

/* Each name once: an object of nulls. */
static int read_required(struct schema *s, json_t *flat, json_t *names) {
    json_t *required = json_object_get(flat, "required");
    if (required && !json_is_array(required))
        return schema_refuse(s, COHORT_E_ARGUMENT, "required", "must be an array of names");
    for (size_t i = 0; i < json_array_size(required); i++) {
        json_t *name = json_array_get(required, i);
        if (!json_is_string(name)) return schema_refuse(s, COHORT_E_ARGUMENT, "required", "must be an array of names");
        if (json_object_set_new(names, json_string_value(name), json_null())) return schema_made(s, NULL);
    }
    return 0;
}

static int one_property(struct schema *s, json_t *made, const char *name, json_t *schema, json_t *required) {
    json_t *rewritten = NULL;
    size_t before = schema_down(s, "properties"), inner = schema_down(s, name);
    int rc = schema_node(s, schema, &rewritten);
    schema_up(s, inner);
    schema_up(s, before);
    if (rc == SCHEMA_NOTHING) return json_object_get(required, name) ? SCHEMA_NOTHING : 0; /* it can only be absent */
    return rc ? rc : put_new(s, made, name, rewritten);
}

/* Those named, then those that are required and not named. */
static int properties_into(struct schema *s, json_t *flat, json_t *made, json_t *required, json_t *others) {
    json_t *named = json_object_get(flat, "properties"), *value;
    const char *name;
    int rc = 0;
    if (named && !json_is_object(named)) return schema_refuse(s, COHORT_E_ARGUMENT, "properties", "must be an object");
    json_object_foreach(named, name, value) {
        if (!rc) rc = one_property(s, made, name, value, required);
    }
    json_object_foreach(required, name, value) {
        if (rc || json_object_get(named, name)) continue;
        rc = others ? one_property(s, made, name, others, required) : put_new(s, made, name, json_object());
    }
    return rc;
}

/* Whether names that are not listed may come, and what their values are: 0 with *out NULL if they may not. */
static int others_of(struct schema *s, json_t *flat, int open, json_t **out) {
    json_t *others = json_object_get(flat, "additionalProperties");
    *out = NULL;
    if (!others) {
        *out = open ? json_true() : NULL;
        return 0;
    }
    size_t before = schema_down(s, "additionalProperties");
    int rc = schema_node(s, others, out);
    schema_up(s, before);
    return rc == SCHEMA_NOTHING ? 0 : rc;
}

static int counts_into(struct schema *s, json_t *flat, json_t *made, int64_t named, int64_t needed, int open) {
    int64_t fewest = 0, most = INT32_MAX;
    int rc = schema_size(s, flat, "minProperties", &fewest);
    if (!rc) rc = schema_size(s, flat, "maxProperties", &most);
    if (rc) return rc;
    if (needed > most || fewest > most || (!open && fewest > named)) return SCHEMA_NOTHING;
    if (fewest <= needed) fewest = 0;
    if (open && fewest > 1) /* one name could come twice */
        return schema_refuse(s, COHORT_E_UNSUPPORTED, "minProperties",
                             "above 1 is only supported where all names are known");
    if (!open && most >= named) most = INT32_MAX;
    if (fewest) rc = put_new(s, made, "minProperties", json_integer(fewest));
    if (!rc && most < INT32_MAX) rc = put_new(s, made, "maxProperties", json_integer(most));
    return rc;
}

static int put_names(struct schema *s, json_t *made, json_t *required) {
    json_t *list = json_array(), *value;
    const char *name;
    int bad = !list;
    json_object_foreach(required, name, value) { bad |= json_array_append_new(list, json_string(name)); }
    bad |= json_object_set(made, "required", list);
    json_decref(list);
    return bad ? schema_made(s, NULL) : 0;
}

static int plain_object(struct schema *s, json_t *flat, json_t *made, json_t *names, json_t *required) {
    int64_t fewest = 0;
    json_t *others = NULL;
    int rc = schema_size(s, flat, "minProperties", &fewest);
    size_t listed = json_object_size(json_object_get(flat, "properties"));
    int open = !json_object_get(flat, "properties") || fewest > (int64_t)listed;
    if (!rc) rc = others_of(s, flat, open, &others);
    if (!rc) rc = properties_into(s, flat, names, required, json_object_get(flat, "additionalProperties"));
    const char *name;
    json_t *value;
    json_object_foreach(names, name, value) {
        if (!rc && others && !is_plain(name))
            rc = schema_refuse(s, COHORT_E_UNSUPPORTED, "additionalProperties",
                               "is only supported beside names of plain ASCII characters");
    }
    if (!rc)
        rc = counts_into(s, flat, made, (int64_t)json_object_size(names), (int64_t)json_object_size(required),
                         others != NULL);
    if (!rc && json_object_size(names)) rc = json_object_set(made, "properties", names) ? schema_made(s, NULL) : 0;
    if (!rc && json_object_size(required)) rc = put_names(s, made, required);
    if (rc)
        json_decref(others);
    else
        rc = put_new(s, made, "additionalProperties", others ? others : json_false());
    return rc;
}

/* Names by a pattern, or by a schema of names, and by nothing else. */
static int patterned_object(struct schema *s, json_t *flat, json_t *made) {
    json_t *patterns = json_object_get(flat, "patternProperties"), *names = json_object_get(flat, "propertyNames");
    json_t *key = NULL, *value = NULL, *others = json_object_get(flat, "additionalProperties");
    const char *keyword = patterns ? "patternProperties" : "propertyNames";
    if (json_object_size(json_object_get(flat, "properties")) || json_array_size(json_object_get(flat, "required")) ||
        (patterns && names) || (patterns && (json_object_size(patterns) != 1 || (others && !json_is_false(others)))))
        return schema_refuse(s, COHORT_E_UNSUPPORTED, keyword, "is only supported alone, with one pattern");
    int rc = 0;
    if (patterns) {
        void *only = json_object_iter(patterns);
        json_t *text = json_pack("{s:s,s:s}", "type", "string", "pattern", json_object_iter_key(only));
        rc = schema_made(s, text);
        if (!rc) rc = schema_string(s, text, &key);
        json_decref(text);
        if (!rc) rc = schema_node(s, json_object_iter_value(only), &value);
    } else {
        json_t *flat_names = NULL, *string = json_pack("{s:[O,{s:s}]}", "allOf", names, "type", "string");
        rc = schema_made(s, string);
        if (!rc) rc = schema_flat(s, string, &flat_names);
        if (!rc) rc = schema_node_flat(s, flat_names, &key);
        json_decref(string);
        json_decref(flat_names);
        if (!rc) rc = others ? schema_node(s, others, &value) : schema_made(s, value = json_object());
    }
    if (rc == SCHEMA_NOTHING)
        rc = put_new(s, made, "additionalProperties", json_false()); /* no names: {} */
    else if (!rc && patterns)
        rc = put_new(s, made, "patternProperties",
                     json_pack("{s:O}", json_string_value(json_object_get(key, "pattern")), value));
    else if (!rc) {
        rc = json_object_set(made, "propertyNames", key) ? schema_made(s, NULL) : 0;
        if (!rc) rc = json_object_set(made, "additionalProperties", value) ? schema_made(s, NULL) : 0;
    }
    int open = json_object_get(made, "patternProperties") || json_object_get(made, "propertyNames");
    if (!rc) rc = counts_into(s, flat, made, 0, 0, open);
    json_decref(key);
    json_decref(value);
    return rc;
}

int schema_object(struct schema *s, json_t *flat, json_t **out) {
    static const char *const never[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    json_t *names = json_object(), *required = json_object();
    *out = json_pack("{s:s}", "type", "object");
    int rc = schema_made(s, *out && names && required ? *out : NULL);
    if (!rc) rc = refuse_all(s, flat, never, 3);
    if (!rc) rc = read_required(s, flat, required);
    if (!rc && (json_object_size(json_object_get(flat, "patternProperties")) || json_object_get(flat, "propertyNames")))
        rc = patterned_object(s, flat, *out);
    else if (!rc)
        rc = plain_object(s, flat, *out, names, required);
    json_decref(names);
    json_decref(required);
    return rc;
}
