/* Which variable a name means: jinja2's rules, which are those of the Python functions that it compiles templates to.
 *
 * Each scope (the template, a macro's body, a loop's, a set block's...) has symbols: the names that it uses itself. A
 * name that is read and unknown further out is looked up among the template's variables when the scope is entered; one
 * that is set begins as a copy of the outer variable (and so does not leak), or as nothing. Macros, recursive loops and
 * the tests of loops are functions: they see outer variables as they are when they run.
 *
 * Two passes over each scope: collect() finds its symbols, resolve() gives every name its place and goes into the inner
 * scopes. */
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/tree.h"

/* From numbers to numbers; keys are never 0. */
struct number_map {
    uint64_t *keys;
    uint32_t *values;
    uint32_t n, cap;
};
struct function_slots {
    struct number_map slots; /* by level and name: loops beside each other share */
    uint32_t n;
    int depth;
};
struct symbol {
    const struct name *name;
    enum load_kind kind;
    struct symbols *alias; /* whose symbol of that name it begins as */
    uint32_t slot;
    int stored;
};
struct symbols {
    struct symbols *parent;
    struct function_slots *fn;
    uint32_t level;
    struct number_map by_name;
    struct symbol *v;
    uint32_t n, cap;
};
struct resolver {
    struct run *x;
    struct name_table *names;
    struct symbols *root;
    int loops; /* for loops around */
};

static uint32_t *map_find(struct run *x, struct number_map *m, uint64_t key, int add) {
    if (add && m->n * 2 >= m->cap) {
        struct number_map bigger = {.cap = m->cap ? m->cap * 2 : 8};
        bigger.keys = jx_zalloc(x, bigger.cap, sizeof(*bigger.keys));
        bigger.values = jx_alloc(x, bigger.cap, sizeof(*bigger.values));
        for (uint32_t i = 0; i < m->cap; i++)
            if (m->keys[i]) *map_find(x, &bigger, m->keys[i], 1) = m->values[i];
        *m = bigger;
    }
    if (!m->cap) return NULL;
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(h >> 32) & (m->cap - 1);
    for (; m->keys[at]; at = (at + 1) & (m->cap - 1))
        if (m->keys[at] == key) return &m->values[at];
    if (!add) return NULL;
    m->keys[at] = key;
    m->values[at] = UINT32_MAX;
    m->n++;
    return &m->values[at];
}

/* ---- Symbols ---- */

static struct symbols *symbols_new(struct resolver *r, struct symbols *parent, int new_function) {
    struct symbols *s = jx_zalloc(r->x, 1, sizeof(*s));
    s->parent = parent;
    s->level = parent ? parent->level + 1 : 0;
    s->fn = parent ? parent->fn : NULL;
    if (new_function || !s->fn) {
        s->fn = jx_zalloc(r->x, 1, sizeof(*s->fn));
        s->fn->depth = parent ? parent->fn->depth + 1 : 0;
    }
    return s;
}

static struct symbol *own(struct resolver *r, struct symbols *s, const struct name *name) {
    uint32_t *at = map_find(r->x, &s->by_name, name->id + 1, 0);
    return at ? &s->v[*at] : NULL;
}

static struct symbol *find(struct resolver *r, struct symbols *s, const struct name *name, struct symbols **owner) {
    for (; s; s = s->parent) {
        struct symbol *found = own(r, s, name);
        if (!found) continue;
        *owner = s;
        return found;
    }
    return NULL;
}

static struct symbol *define(struct resolver *r, struct symbols *s, const struct name *name, enum load_kind kind) {
    struct symbol *have = own(r, s, name);
    if (!have) {
        if (s->n == s->cap) {
            uint32_t cap = s->cap ? s->cap * 2 : 8;
            s->v = jx_grow(r->x, s->v, s->cap * sizeof(*s->v), cap * sizeof(*s->v));
            s->cap = cap;
        }
        uint32_t *slot = map_find(r->x, &s->fn->slots, ((uint64_t)(s->level + 1) << 32) | name->id, 1);
        if (*slot == UINT32_MAX) *slot = s->fn->n++;
        *map_find(r->x, &s->by_name, name->id + 1, 1) = s->n;
        have = &s->v[s->n++];
        *have = (struct symbol){.name = name, .slot = *slot};
    }
    have->kind = kind;
    return have;
}

static void parameter(struct resolver *r, struct symbols *s, const struct name *name) {
    define(r, s, name, LOAD_PARAMETER)->stored = 1;
}

static void load(struct resolver *r, struct symbols *s, const struct name *name) {
    struct symbols *owner;
    if (find(r, s, name, &owner)) return;
    struct symbol *exported = s->level == 0 && s != r->root ? own(r, r->root, name) : NULL;
    if (!exported || !exported->stored)
        define(r, s, name, LOAD_RESOLVE);
    else
        define(r, s, name, LOAD_EXPORTED)->alias = r->root;
}

/* `branch`: within an if, so that the name may also stay what it is outside. */
static void store(struct resolver *r, struct symbols *s, const struct name *name, int branch) {
    struct symbol *have = own(r, s, name);
    struct symbols *owner = NULL;
    if (!have) {
        if (s->parent && find(r, s->parent, name, &owner)) {
            have = define(r, s, name, LOAD_ALIAS);
            have->alias = owner;
        } else {
            have = define(r, s, name, branch ? LOAD_RESOLVE : LOAD_UNDEFINED);
        }
    }
    have->stored = 1;
}

/* ---- Collecting ---- */

static void collect_expression(struct resolver *r, struct symbols *s, const struct node *n) {
    if (!n) return;
    if (n->kind == N_NAME || n->kind == N_NSREF) load(r, s, n->name);
    collect_expression(r, s, n->a);
    for (uint32_t i = 0; i < n->n; i++) collect_expression(r, s, n->list[i]);
    for (uint32_t i = 0; i < n->n_kw; i++) collect_expression(r, s, n->kw[i].value);
    collect_expression(r, s, n->b);
    collect_expression(r, s, n->c);
}

static void collect_target(struct resolver *r, struct symbols *s, const struct node *n, int as_parameter, int branch) {
    if (n->kind == N_TUPLE) {
        for (uint32_t i = 0; i < n->n; i++) collect_target(r, s, n->list[i], as_parameter, branch);
    } else if (n->kind == N_NSREF) {
        load(r, s, n->name);
    } else if (as_parameter) {
        parameter(r, s, n->name);
    } else {
        store(r, s, n->name, branch);
    }
}

static void collect(struct resolver *r, struct symbols *s, struct node *const *body, uint32_t n, int branch);

static void collect_if(struct resolver *r, struct symbols *s, const struct node *n, int branch) {
    collect_expression(r, s, n->a);
    collect(r, s, n->body, n->n_body, 1);
    collect(r, s, n->list, n->n, 1);
    collect(r, s, n->orelse, n->n_orelse, 1);
}

static void collect(struct resolver *r, struct symbols *s, struct node *const *body, uint32_t n_body, int branch) {
    for (uint32_t i = 0; i < n_body; i++) {
        const struct node *n = body[i];
        switch (n->kind) {
        case N_OUTPUT:
            for (uint32_t k = 0; k < n->n; k++) collect_expression(r, s, n->list[k]);
            break;
        case N_SET:
            collect_expression(r, s, n->b);
            collect_target(r, s, n->a, 0, branch);
            break;
        case N_SETBLOCK:
            collect_target(r, s, n->a, 0, branch);
            break;
        case N_IF:
            collect_if(r, s, n, branch);
            break;
        case N_MACRO:
            store(r, s, n->name, branch);
            break;
        case N_FOR:
        case N_FILTERBLOCK:
            collect_expression(r, s, n->b);
            break;
        case N_CALLBLOCK:
            collect_expression(r, s, n->a);
            break;
        case N_WITH:
            for (uint32_t k = 0; k < n->n2; k++) collect_expression(r, s, n->list2[k]);
            break;
        default:
            break;
        }
    }
}

/* ---- Does a body read a name before it sets it? ---- */

enum use { USE_NONE, USE_READ, USE_SET };

static enum use use_of(const struct node *n, const char *name, int setting);

static enum use use_of_all(struct node *const *v, uint32_t n, const char *name, int setting) {
    for (uint32_t i = 0; i < n; i++) {
        enum use u = use_of(v[i], name, setting);
        if (u) return u;
    }
    return USE_NONE;
}

static enum use use_of(const struct node *n, const char *name, int setting) {
    enum use u = USE_NONE;
    if (!n || n->kind == N_BLOCK) return USE_NONE;
    if (n->kind == N_NAME) return !str_is(n->name->s, name) ? USE_NONE : setting ? USE_SET : USE_READ;
    int targets = n->kind == N_SET || n->kind == N_SETBLOCK || n->kind == N_FOR;
    if (n->kind == N_TUPLE && setting) return use_of_all(n->list, n->n, name, 1);
    if ((u = use_of(n->a, name, targets))) return u;
    if (n->kind == N_IF) {
        if ((u = use_of_all(n->body, n->n_body, name, 0)) || (u = use_of_all(n->list, n->n, name, 0))) return u;
        return use_of_all(n->orelse, n->n_orelse, name, 0);
    }
    int parameters = n->kind == N_MACRO || n->kind == N_CALLBLOCK || n->kind == N_WITH;
    if ((u = use_of_all(n->list, n->n, name, parameters)) || (u = use_of_all(n->list2, n->n2, name, 0))) return u;
    for (uint32_t i = 0; i < n->n_kw; i++)
        if ((u = use_of(n->kw[i].value, name, 0))) return u;
    if (n->kind != N_FILTERBLOCK && (u = use_of(n->b, name, 0))) return u;
    if (n->kind != N_FOR && (u = use_of(n->c, name, 0))) return u;
    if ((u = use_of_all(n->body, n->n_body, name, 0)) || (u = use_of_all(n->orelse, n->n_orelse, name, 0))) return u;
    if (n->kind == N_FILTERBLOCK) return use_of(n->b, name, 0);
    return n->kind == N_FOR ? use_of(n->c, name, 0) : USE_NONE;
}

static int reads(const struct node *n, const char *name) { return use_of_all(n->body, n->n_body, name, 0) == USE_READ; }

/* ---- Resolving ---- */

static struct place place_of(struct resolver *r, struct symbols *s, const struct name *name) {
    struct symbols *owner = NULL;
    struct symbol *found = find(r, s, name, &owner);
    if (!found) { /* a filter of a set block: not among the symbols of any scope */
        found = define(r, s, name, LOAD_RESOLVE);
        owner = s;
    }
    return (struct place){(uint16_t)(s->fn->depth - owner->fn->depth), found->slot};
}

static void resolve_expression(struct resolver *r, struct symbols *s, struct node *n, int soft) {
    if (!n) return;
    r->x->line = n->line;
    if (n->kind == N_NAME || n->kind == N_NSREF) n->at = place_of(r, s, n->name);
    if ((n->kind == N_FILTER || n->kind == N_TEST) && !n->known && !soft)
        jx_fail(r->x, "No %s named '%.*s'.", n->kind == N_FILTER ? "filter" : "test",
                (int)(n->value.s->n > 64 ? 64 : n->value.s->n), n->value.s->b);
    if (n->kind == N_COND) soft = 1;
    resolve_expression(r, s, n->a, soft);
    for (uint32_t i = 0; i < n->n; i++) resolve_expression(r, s, n->list[i], soft);
    for (uint32_t i = 0; i < n->n_kw; i++) resolve_expression(r, s, n->kw[i].value, soft);
    resolve_expression(r, s, n->b, soft);
    resolve_expression(r, s, n->c, soft);
}

static void check_loop_name(struct resolver *r, const struct node *target) {
    if (target->kind == N_NAME && r->loops && str_is(target->name->s, "loop")) {
        r->x->line = target->line;
        jx_fail(r->x, "Can't assign to special loop variable in for-loop target");
    }
    for (uint32_t i = 0; target->kind == N_TUPLE && i < target->n; i++) check_loop_name(r, target->list[i]);
}

static struct scope scope_of(struct resolver *r, struct symbols *s) {
    struct scope out = {.n = s->n, .loads = jx_alloc(r->x, s->n + 1, sizeof(struct load))};
    for (uint32_t i = 0; i < s->n; i++) {
        const struct symbol *v = &s->v[i];
        out.loads[i] = (struct load){.kind = v->kind, .slot = v->slot, .name = v->name};
        if (v->alias)
            out.loads[i].from =
                (struct place){(uint16_t)(s->fn->depth - v->alias->fn->depth), own(r, v->alias, v->name)->slot};
    }
    return out;
}

static void resolve_body(struct resolver *r, struct symbols *s, struct node *const *body, uint32_t n, int soft);

static const struct name *named(struct resolver *r, const char *z) { return name_intern(r->x, r->names, z, strlen(z)); }

static void special(struct resolver *r, struct symbols *s, struct node *n, const char *name, int flag,
                    struct place *at) {
    if (!reads(n, name)) return;
    for (uint32_t i = 0; i < n->n; i++) {
        if (!str_is(n->list[i]->name->s, name)) continue;
        if (flag != USES_CALLER) return;
        if (i < n->n - n->n2) {
            r->x->line = n->line;
            jx_fail(r->x, "the special \"caller\" argument must be omitted or be given a default");
        }
        n->special |= USES_CALLER;
        return;
    }
    const struct name *own_name = named(r, name);
    parameter(r, s, own_name);
    *at = place_of(r, s, own_name);
    n->special |= (uint8_t)flag;
}

static void resolve_macro(struct resolver *r, struct symbols *outer, struct node *n) {
    struct symbols *s = symbols_new(r, outer, 1);
    for (uint32_t i = 0; i < n->n; i++) parameter(r, s, n->list[i]->name);
    for (uint32_t i = 0; i < n->n; i++) check_loop_name(r, n->list[i]);
    for (uint32_t i = 0; i < n->n2; i++) collect_expression(r, s, n->list2[i]);
    collect(r, s, n->body, n->n_body, 0);
    for (uint32_t i = 0; i < n->n; i++) n->list[i]->at = place_of(r, s, n->list[i]->name);
    special(r, s, n, "caller", USES_CALLER, &n->caller);
    special(r, s, n, "kwargs", USES_KWARGS, &n->kwargs);
    special(r, s, n, "varargs", USES_VARARGS, &n->varargs);
    for (uint32_t i = 0; i < n->n2; i++) resolve_expression(r, s, n->list2[i], 0);
    resolve_body(r, s, n->body, n->n_body, 0);
    n->scope = scope_of(r, s);
    n->slots = s->fn->n;
}

static void resolve_target(struct resolver *r, struct symbols *s, struct node *n) {
    if (n->kind == N_TUPLE)
        for (uint32_t i = 0; i < n->n; i++) resolve_target(r, s, n->list[i]);
    else
        n->at = place_of(r, s, n->name);
}

static void resolve_for(struct resolver *r, struct symbols *outer, struct node *n, int soft) {
    struct symbols *s = symbols_new(r, outer, n->flag);
    resolve_expression(r, outer, n->b, soft);
    r->loops++;
    if (n->c) {
        struct symbols *test = symbols_new(r, outer, 1);
        collect_target(r, test, n->d, 1, 0);
        collect_expression(r, test, n->c);
        resolve_target(r, test, n->d);
        resolve_expression(r, test, n->c, 0);
        n->scope2 = scope_of(r, test);
        n->slots2 = test->fn->n;
    }
    if (n->flag || reads(n, "loop")) {
        const struct name *loop = named(r, "loop");
        parameter(r, s, loop);
        n->loop = place_of(r, s, loop);
        n->special = USES_LOOP;
    }
    collect_target(r, s, n->a, 1, 0);
    collect(r, s, n->body, n->n_body, 0);
    resolve_target(r, s, n->a);
    resolve_body(r, s, n->body, n->n_body, 0);
    n->scope = scope_of(r, s);
    struct symbols *orelse = symbols_new(r, outer, 0);
    if (n->flag) orelse->fn = s->fn;
    collect(r, orelse, n->orelse, n->n_orelse, 0);
    resolve_body(r, orelse, n->orelse, n->n_orelse, 0);
    n->scope3 = scope_of(r, orelse);
    n->slots = s->fn->n;
    r->loops--;
}

/* A set block, a filter block or a with: a scope within the same function. */
static void resolve_inner(struct resolver *r, struct symbols *outer, struct node *n, int soft) {
    struct symbols *s = symbols_new(r, outer, 0);
    if (n->kind == N_WITH)
        for (uint32_t i = 0; i < n->n; i++) collect_target(r, s, n->list[i], 1, 0);
    collect(r, s, n->body, n->n_body, 0);
    if (n->kind == N_FILTERBLOCK) collect_expression(r, s, n->b);
    if (n->kind == N_WITH) {
        for (uint32_t i = 0; i < n->n; i++) {
            check_loop_name(r, n->list[i]);
            resolve_target(r, s, n->list[i]);
        }
        for (uint32_t i = 0; i < n->n2; i++) resolve_expression(r, outer, n->list2[i], soft);
    } else {
        resolve_expression(r, s, n->b, 0);
    }
    resolve_body(r, s, n->body, n->n_body, 0);
    if (n->kind == N_SETBLOCK) {
        check_loop_name(r, n->a);
        resolve_target(r, outer, n->a);
    }
    n->scope = scope_of(r, s);
}

static void resolve_block(struct resolver *r, struct symbols *outer, struct node *n) {
    struct symbols *s = symbols_new(r, n->flag ? outer : NULL, 1);
    int loops = r->loops;
    r->loops = 0;
    collect(r, s, n->body, n->n_body, 0);
    resolve_body(r, s, n->body, n->n_body, 0);
    r->loops = loops;
    n->scope = scope_of(r, s);
    n->slots = s->fn->n;
}

static void resolve_statement(struct resolver *r, struct symbols *s, struct node *n, int soft) {
    switch (n->kind) {
    case N_OUTPUT:
        for (uint32_t i = 0; i < n->n; i++) resolve_expression(r, s, n->list[i], soft);
        break;
    case N_SET:
        check_loop_name(r, n->a);
        resolve_expression(r, s, n->b, soft);
        resolve_target(r, s, n->a);
        break;
    case N_IF:
        resolve_expression(r, s, n->a, 1);
        resolve_body(r, s, n->body, n->n_body, 1);
        resolve_body(r, s, n->list, n->n, 1);
        resolve_body(r, s, n->orelse, n->n_orelse, 1);
        break;
    case N_MACRO:
        n->at = place_of(r, s, n->name);
        resolve_macro(r, s, n);
        break;
    case N_CALLBLOCK:
        resolve_expression(r, s, n->a, soft);
        resolve_macro(r, s, n);
        break;
    case N_FOR:
        resolve_for(r, s, n, soft);
        break;
    case N_SETBLOCK:
    case N_FILTERBLOCK:
    case N_WITH:
        resolve_inner(r, s, n, soft);
        break;
    case N_BLOCK:
        resolve_block(r, s, n);
        break;
    default:
        break;
    }
}

static void resolve_body(struct resolver *r, struct symbols *s, struct node *const *body, uint32_t n, int soft) {
    for (uint32_t i = 0; i < n; i++) resolve_statement(r, s, body[i], soft);
}

void resolve_names(struct run *x, struct jinja *t) {
    struct resolver r = {.x = x, .names = &t->names};
    r.root = symbols_new(&r, NULL, 1);
    collect(&r, r.root, t->root->body, t->root->n_body, 0);
    resolve_body(&r, r.root, t->root->body, t->root->n_body, 0);
    t->root->scope = scope_of(&r, r.root);
    t->root->slots = r.root->fn->n;
}
