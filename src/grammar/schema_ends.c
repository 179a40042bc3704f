/* Whether a rewritten schema has a value at all: one that must hold itself, over whatever detour, has none, and an
 * answer that follows it never ends. Pure; any thread.
 *
 * A definition has a value if it has one with what is known so far, and that is asked again until nothing changes. What
 * is being looked at counts as having none meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/schema_inner.h"

enum { FOLLOWED_MAX = 1000 /* references one behind the other; what lies deeper is asked first, and known then */ };

struct ends {
    struct schema *s;
    uint8_t *known; /* by definition: 1: it has a value; 2: it is being looked at */
    uint32_t looks; /* at nodes */
    int followed, changed, rc;
};

static int has_value(struct ends *e, json_t *node);

static int definition_has(struct ends *e, size_t i) {
    char name[24];
    if (e->known[i] == 1) return 1;
    if (e->known[i] || e->followed == FOLLOWED_MAX) return 0;
    e->known[i] = 2;
    e->followed++;
    snprintf(name, sizeof name, "d%zu", i);
    int yes = has_value(e, json_object_get(e->s->defs, name));
    e->followed--;
    e->known[i] = (uint8_t)yes;
    e->changed |= yes;
    return yes;
}

static int array_has(struct ends *e, json_t *node) {
    json_int_t least = json_integer_value(json_object_get(node, "minItems"));
    json_t *first = json_object_get(node, "prefixItems"), *items = json_object_get(node, "items");
    size_t n = json_array_size(first);
    for (size_t i = 0; i < n && (json_int_t)i < least; i++)
        if (!has_value(e, json_array_get(first, i))) return 0;
    return least <= (json_int_t)n || !items || has_value(e, items);
}

static int object_has(struct ends *e, json_t *node) {
    json_t *required = json_object_get(node, "required"), *rest = json_object_get(node, "additionalProperties");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        json_t *of = name ? json_object_get(json_object_get(node, "properties"), name) : NULL;
        if (!of) of = rest;
        if (of && !has_value(e, of)) return 0;
    }
    return 1;
}

static int has_value(struct ends *e, json_t *node) {
    const char *ref = json_string_value(json_object_get(node, "$ref"));
    json_t *any = json_object_get(node, "anyOf");
    if (++e->looks > SCHEMA_NODES_MAX && !e->rc)
        e->rc = schema_refuse(e->s, COHORT_E_LIMIT, NULL, "refers to itself in too many ways");
    if (e->rc || !json_is_object(node)) return 1;
    if (ref) return definition_has(e, strtoul(strrchr(ref, '/') + 2, NULL, 10));
    for (size_t i = 0; i < json_array_size(any); i++)
        if (has_value(e, json_array_get(any, i))) return 1;
    return !any && array_has(e, node) && object_has(e, node);
}

int schema_has_value(struct schema *s, json_t *root) {
    size_t n = json_array_size(s->targets);
    struct ends e = {.s = s, .known = mem_zalloc(n + 1, 1)};
    int yes = 0;
    if (!e.known) return schema_made(s, NULL);
    do {
        e.changed = 0;
        for (size_t i = 0; i < n && !e.rc; i++) definition_has(&e, i);
        yes = has_value(&e, root);
    } while (!yes && e.changed && !e.rc);
    mem_free(e.known);
    return e.rc ? e.rc : yes ? 0 : SCHEMA_NOTHING;
}
